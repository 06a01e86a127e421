//! Frames on the rendezvous connection: a mark, a length, JSON.

use std::io;
use std::io::Read;
use std::io::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What is not begun by this is somebody else's: a port scanner, a browser.
const MARK: [u8; 4] = *b"VGF\x01";
/// A first message is a few rails.
pub(super) const HELLO_LIMIT: usize = 64 << 10;
/// A table of a thousand ranks with eight rails each is 4 MB; reports go in pieces.
pub(super) const LIMIT: usize = 16 << 20;

/// What rank 0 passes on has a name around it.
pub(super) const PASSED_ON: usize = LIMIT + (64 << 10);
/// What grows with the number of ranks goes in pieces of about this.
pub(super) const PIECE: usize = 1 << 20;

pub(super) fn encode(message: &impl Serialize, limit: usize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= limit);
    let length = length.ok_or_else(|| {
        let long = format!("a message of {} bytes, of {limit} at most", body.len());
        io::Error::new(io::ErrorKind::InvalidInput, long)
    })?;
    Ok([&MARK[..], &length.to_le_bytes(), &body].concat())
}

pub(super) fn write(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(message, LIMIT)?)
}

/// One frame of at most `limit` bytes.
pub(super) fn read<T: DeserializeOwned>(mut from: impl Read, limit: usize) -> io::Result<T> {
    let (mut mark, mut length) = ([0; 4], [0; 4]);
    from.read_exact(&mut mark)?;
    if mark != MARK {
        return Err(io::Error::other("not of this protocol"));
    }
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > limit {
        return Err(io::Error::other(format!(
            "a message of {length} bytes, where {limit} are the most"
        )));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_foreign_or_too_long_is_refused_before_it_is_read() {
        let frame = encode(&[1, 2, 3], 16).unwrap();
        assert!(encode(&[1, 2, 3], 6).unwrap_err().to_string().contains("7 bytes"));
        assert_eq!(read::<Vec<u8>>(&frame[..], 16).unwrap(), [1, 2, 3]);
        assert!(read::<Vec<u8>>(&frame[..], 6).unwrap_err().to_string().contains("7 bytes"));
        assert!(read::<Vec<u8>>(&b"GET / HTTP/1.1\r\n\r\n"[..], 16).is_err());
        assert!(read::<Vec<u8>>(&frame[..9], 16).is_err());
        let endless = [&MARK[..], &u32::MAX.to_le_bytes()].concat();
        assert!(read::<Vec<u8>>(&endless[..], LIMIT).is_err());
    }
}
