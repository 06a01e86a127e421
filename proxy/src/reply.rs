//! Reply: what the kernel would have written into the guest's memory, and the answer.

use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::HDR_LEN;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::seccomp::Reply;

use crate::commit::Outcome;
use crate::commit::errno;
use crate::execute::Form;
use crate::execute::InFlight;

/// Writes a request's outputs into the guest's memory, and says how its call ends.
///
/// Only what the kernel writes is written, and only where it has changed: `flags` and, for a new
/// object, `data` of an attribute, and the outputs that came by way of the supervisor.
#[must_use]
pub fn write_back(memory: &impl GuestMemory, done: &InFlight, outcome: &Outcome) -> Reply {
    let mut entries: Vec<(u64, [u8; 8], usize)> = Vec::new();
    if let Form::Ioctl(array) = done.form {
        for (pos, flags, data) in &outcome.entries {
            let Some(attr) = done.request.attrs().get(*pos) else { continue };
            let Some(index) = attr.index else { continue };
            let at = array.wrapping_add((HDR_LEN + ATTR_LEN * index) as u64);
            if *flags != attr.attr.flags {
                let [a, b] = flags.to_ne_bytes();
                entries.push((at.wrapping_add(4), [a, b, 0, 0, 0, 0, 0, 0], 2));
            }
            if attr.spec.is_new() && *data != attr.attr.data {
                entries.push((at.wrapping_add(8), data.to_ne_bytes(), 8));
            }
        }
    }
    let mut pieces: Vec<(u64, &[u8])> = Vec::with_capacity(entries.len() + outcome.outputs.len());
    pieces.extend(entries.iter().map(|(at, b, len)| (*at, b.get(..*len).unwrap_or_default())));
    pieces.extend(outcome.outputs.iter().map(|(at, bytes)| (*at, bytes.as_slice())));
    let written = if pieces.is_empty() { Ok(()) } else { memory.scatter(&pieces) };
    match (outcome.result, done.form, written) {
        (result, _, _) if result < 0 => Reply::Errno(errno(result).0),
        (_, _, Err(_)) => Reply::Errno(libc::EFAULT),
        (_, Form::Write(count), Ok(())) => Reply::Value(i64::try_from(count).unwrap_or(i64::MAX)),
        (result, Form::Ioctl(_), Ok(())) => Reply::Value(result),
    }
}
