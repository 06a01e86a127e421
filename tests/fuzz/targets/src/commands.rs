//! Fuzzing of legacy commands: the bytes of a `write(2)` on a uverbs descriptor, decoded and laid
//! out.

use verbgate_abi::ids;
use verbgate_abi::wire::CMD_FLAG_EXTENDED;
use verbgate_abi::wire::DriverId;
use verbgate_abi::write::parse_write;

use crate::decoder::explain;
use crate::exercise::exercise;
use crate::way;

/// Devices that differ in what their commands carry, and one for all others.
const DRIVERS: [DriverId; 3] = [DriverId::RXE, DriverId::USNIC, DriverId::MLX5];

/// Reads the bytes as they are, and with lengths that agree.
pub fn run(data: &[u8]) {
    for bytes in [data, &repaired(data)] {
        one(bytes);
        for driver in DRIVERS {
            let number = bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(driver.0);
            way::write(bytes, driver, way::World::numbered(number));
        }
    }
}

fn one(data: &[u8]) {
    let write = match parse_write(data) {
        Ok(write) => write,
        Err(error) => return explain(&error),
    };
    let headers = if write.spec.extended { 24 } else { 8 };
    assert_eq!(write.core_in.len() + write.uhw_in.len(), data.len() - headers);
    assert!(data.ends_with(&write.uhw_in));
    assert!(data[headers..].starts_with(&write.core_in));
    if write.uhw_out.len > 0 {
        let end = write.core_out.addr.0.wrapping_add(write.core_out.len as u64);
        assert_eq!(write.uhw_out.addr.0, end, "one output is behind the other");
    }
    for driver in DRIVERS {
        match write.clone().into_request(driver) {
            Ok(request) => {
                let command = request.value(ids::UVERBS_ATTR_WRITE_CMD);
                assert_eq!(command, Some(write.spec.write_cmd));
                assert!(request.core_in().starts_with(&write.core_in));
                assert_eq!(request.uhw_in(), write.uhw_in);
                assert!(request.attrs().iter().all(|attr| attr.index.is_none()));
                crate::frame::check(&request);
                exercise(request);
            }
            Err(error) => explain(&error),
        }
    }
}

/// The bytes with the lengths in the headers made right.
fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if bytes.len() < 24 {
        return bytes;
    }
    let command = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if command & CMD_FLAG_EXTENDED == 0 {
        bytes.truncate(bytes.len() / 4 * 4);
        let words = u16::try_from(bytes.len() / 4).unwrap_or(u16::MAX);
        bytes[4..6].copy_from_slice(&words.to_ne_bytes());
    } else {
        bytes.truncate(bytes.len() / 8 * 8);
        let words = u16::try_from((bytes.len() - 24) / 8).unwrap_or(u16::MAX);
        let provider = u16::from(bytes[16]).min(words);
        bytes[4..6].copy_from_slice(&(words - provider).to_ne_bytes());
        bytes[16..18].copy_from_slice(&provider.to_ne_bytes());
        bytes[20..24].fill(0);
        if bytes[6] == 0 && bytes[7] == 0 && bytes[18] == 0 && bytes[19] == 0 {
            bytes[8..16].fill(0);
        } else if bytes[8..16] == [0; 8] {
            bytes[8] = 1;
        }
    }
    bytes
}
