//! A legacy command as `write(2)` takes it.

use verbgate_abi::legacy::LegacySpec;

use super::draft::Bytes;
use super::draft::OUT;
use super::draft::Put;

/// The bytes that `write(2)` takes.
pub(super) fn written(
    spec: &LegacySpec,
    core: Bytes,
    core_out: usize,
    uhw_in: usize,
    uhw_out: u16,
) -> Bytes {
    let words = |bytes: usize, of: usize| u16::try_from(bytes.div_ceil(of)).unwrap_or(u16::MAX);
    let has_out = core_out > 0;
    let mut bytes = u32::try_from(spec.write_cmd).unwrap_or(u32::MAX).to_ne_bytes().to_vec();
    let mut core = core;
    if spec.extended {
        let body = core.bytes.len() - uhw_in;
        let out = words(core_out, 8);
        bytes.extend_from_slice(&words(body, 8).to_ne_bytes());
        bytes.extend_from_slice(&out.to_ne_bytes());
        bytes.extend_from_slice(&if has_out { OUT } else { 0 }.to_ne_bytes());
        bytes.extend_from_slice(&words(uhw_in, 8).to_ne_bytes());
        bytes.extend_from_slice(&words(uhw_out.into(), 8).to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
    } else {
        if spec.has_resp {
            core.set(0, &OUT.to_ne_bytes());
        }
        bytes.extend_from_slice(&words(core.bytes.len() + 8, 4).to_ne_bytes());
        bytes.extend_from_slice(&words(core_out + usize::from(uhw_out), 4).to_ne_bytes());
    }
    let start = bytes.len();
    bytes.extend_from_slice(&core.bytes);
    let puts = core.puts.iter().map(|put| Put { offset: start + put.offset, ..*put }).collect();
    Bytes { bytes, puts }
}
