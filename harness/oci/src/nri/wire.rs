//! NRI's transport: ttRPC in both directions over one socket.
//!
//! A frame has the number of a logical connection and the length of what follows, in four bytes each, big-endian
//! (NRI's `pkg/net/multiplex`). The frames of a connection are a stream of ttRPC's messages: length, number of the call
//! (four bytes each, big-endian), type, flags, and then the message (ttRPC's PROTOCOL.md).

use std::collections::HashMap;
use std::io;
use std::io::Read;
use std::io::Write;

/// The logical connection on which the engine calls the plug-in.
pub(super) const PLUGIN: u32 = 1;
/// The logical connection on which the plug-in calls the engine.
pub(super) const RUNTIME: u32 = 2;

/// Types of ttRPC's messages.
pub(super) const REQUEST: u8 = 1;
pub(super) const RESPONSE: u8 = 2;

/// Of a frame.
const FRAME_HEADER: usize = 8;
/// Of a message of ttRPC.
const HEADER: usize = 10;
/// Longest message that ttRPC sends.
const LONGEST: usize = 4 << 20;
/// The engine reads a frame at once into what may be a buffer of this size, and gives the connection up where the
/// buffer is smaller.
const CHUNK: usize = 4096;

/// A message of ttRPC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Letter {
    pub(super) conn: u32,
    /// The call that it begins or answers.
    pub(super) call: u32,
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

/// Why the engine is not understood.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("the connection to the engine failed")]
    Io(#[from] io::Error),
    #[error("the engine sends a {what} of {len} bytes, which is too long")]
    Long { what: &'static str, len: usize },
}

/// The socket that all connections share.
#[derive(Debug)]
pub(super) struct Trunk<S> {
    socket: S,
    /// What has come of each connection's next message.
    parts: HashMap<u32, Vec<u8>>,
}

impl<S: Read + Write> Trunk<S> {
    pub(super) fn new(socket: S) -> Self {
        Self { socket, parts: HashMap::new() }
    }

    /// The next message; `None` once the engine has closed the connection.
    pub(super) fn receive(&mut self) -> Result<Option<Letter>, WireError> {
        loop {
            let whole = self.parts.iter_mut().find_map(|(conn, part)| take(*conn, part));
            if let Some(whole) = whole {
                return whole.map(Some);
            }
            let mut header = [0_u8; FRAME_HEADER];
            match self.socket.read_exact(&mut header) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                done => done?,
            }
            let [a, b, c, d, len @ ..] = header;
            let (conn, len) = (u32::from_be_bytes([a, b, c, d]), length(len));
            if len > HEADER + LONGEST {
                return Err(WireError::Long { what: "frame", len });
            }
            let mut frame = vec![0; len];
            self.socket.read_exact(&mut frame)?;
            // What is meant for no connection of NRI's is dropped, as the engine does.
            if [PLUGIN, RUNTIME].contains(&conn) {
                self.parts.entry(conn).or_default().extend(frame);
            }
        }
    }

    pub(super) fn send(&mut self, letter: &Letter) -> Result<(), WireError> {
        let Letter { conn, call, kind, payload } = letter;
        let len = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= LONGEST);
        let len = len.ok_or(WireError::Long { what: "answer", len: payload.len() })?;
        let mut bytes = len.to_be_bytes().to_vec();
        bytes.extend(call.to_be_bytes());
        bytes.extend([*kind, 0]);
        bytes.extend(payload);
        for chunk in bytes.chunks(CHUNK) {
            let len = u32::try_from(chunk.len()).unwrap_or_default();
            self.socket.write_all(&conn.to_be_bytes())?;
            self.socket.write_all(&len.to_be_bytes())?;
            self.socket.write_all(chunk)?;
        }
        Ok(self.socket.flush()?)
    }
}

fn length(bytes: [u8; 4]) -> usize {
    usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX)
}

/// Takes a message that is there as a whole.
fn take(conn: u32, part: &mut Vec<u8>) -> Option<Result<Letter, WireError>> {
    let (header, rest) = part.split_first_chunk::<HEADER>()?;
    let [a, b, c, d, e, f, g, h, kind, _flags] = *header;
    let (len, call) = (length([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    if len > LONGEST {
        return Some(Err(WireError::Long { what: "message", len }));
    }
    let payload = rest.get(..len)?.to_vec();
    part.drain(..HEADER + len);
    Some(Ok(Letter { conn, call, kind, payload }))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn letter(conn: u32, call: u32, payload: &[u8]) -> Letter {
        Letter { conn, call, kind: REQUEST, payload: payload.to_vec() }
    }

    #[test]
    fn a_message_is_written_as_the_protocols_say() {
        let mut trunk = Trunk::new(Cursor::new(Vec::new()));
        trunk.send(&letter(RUNTIME, 1, b"ab")).unwrap();
        let expected = [
            [0, 0, 0, 2, 0, 0, 0, 12].as_slice(), // connection 2, 12 bytes
            &[0, 0, 0, 2, 0, 0, 0, 1, 1, 0],      // 2 bytes, call 1, a request, no flags
            b"ab",
        ];
        assert_eq!(trunk.socket.into_inner(), expected.concat());
    }

    #[test]
    fn long_messages_come_in_parts_and_those_of_two_connections_between_each_other() {
        let long = vec![7; 3 * CHUNK];
        let mut trunk = Trunk::new(Cursor::new(Vec::new()));
        trunk.send(&letter(PLUGIN, 3, &long)).unwrap();
        trunk.send(&letter(RUNTIME, 5, b"")).unwrap();
        let bytes = trunk.socket.into_inner();
        // No frame is longer than what an engine's reader has room for (4096: Go's bufio).
        let (mut at, mut frames) = (0, Vec::new());
        while at < bytes.len() {
            let end = at + FRAME_HEADER + length(bytes[at + 4..at + 8].try_into().unwrap());
            assert!(end - at <= 4096 + FRAME_HEADER);
            frames.push(bytes[at..end].to_vec());
            at = end;
        }
        // That of the other connection comes first, then one that nobody knows.
        let last = frames.pop().unwrap();
        frames.insert(1, last);
        frames.insert(2, [&[0, 0, 0, 9, 0, 0, 0, 1][..], b"x"].concat());
        let mut trunk = Trunk::new(Cursor::new(frames.concat()));
        assert_eq!(trunk.receive().unwrap(), Some(letter(RUNTIME, 5, b"")));
        assert_eq!(trunk.receive().unwrap(), Some(letter(PLUGIN, 3, &long)));
        assert_eq!(trunk.receive().unwrap(), None);
    }

    #[test]
    fn what_is_too_long_is_refused_before_memory_is_taken() {
        for bytes in [
            [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff].as_slice(),
            &[0, 0, 0, 1, 0, 0, 0, 10, 0xff, 0, 0, 0, 0, 0, 0, 1, 1, 0],
        ] {
            let mut trunk = Trunk::new(Cursor::new(bytes.to_vec()));
            assert!(matches!(trunk.receive(), Err(WireError::Long { .. })));
        }
        let mut trunk = Trunk::new(Cursor::new(vec![0, 0, 0, 1, 0, 0, 0, 10, 1]));
        assert!(matches!(trunk.receive(), Err(WireError::Io(_))));
        let mut trunk = Trunk::new(Cursor::new(Vec::new()));
        assert!(trunk.send(&letter(PLUGIN, 1, &vec![0; LONGEST + 1])).is_err());
    }
}
