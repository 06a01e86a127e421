#![forbid(unsafe_code)]
//! Messages of several segments, as parameter servers and key-value stores exchange: one table of
//! kinds and their segments, which the sender and the receiver check alike.
//!
//! If each side counts segments for itself, a sender that leaves one out looks like a failure of the
//! NIC: the receiver waits for what never comes. With one table, both sides name the kind, the number
//! that is expected and the number that there is, in the same words.
//!
//! # The format
//!
//! A message is a header of [`HEADER`] bytes, and then its segments, one behind the other, without
//! gaps. All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | the mark, 0xfa |
//! | 1 | the kind: 1 push, 2 pull, 3 pull reply, 4 push reply |
//! | 2 | the number of segments |
//! | 3 | 0 |
//! | 4 to 7, 8 to 11, 12 to 15, 16 to 19 | the length of each segment in bytes; 0 for those that are not there |
//!
//! | kind | segments |
//! |---|---|
//! | push | keys, values, lengths |
//! | pull | keys, and an empty one in place of values |
//! | pull reply | keys, values, lengths |
//! | push reply | none |
//!
//! A segment has [`SEGMENT_LIMIT`] bytes at most. A receiver that is told of more, of another number of
//! segments, or of other lengths than the bytes that came, refuses the message as a [`Violation`], and
//! makes no room for what a peer claims.
//!
//! ```
//! use verbgate_segments::MessageKind;
//! use verbgate_segments::header;
//! use verbgate_segments::parse;
//!
//! let mut message = header(MessageKind::Push, &[8, 4, 4], "rank 0")?;
//! message.extend(0_u64.to_le_bytes());
//! message.extend(1.5_f32.to_le_bytes());
//! message.extend(1_u32.to_le_bytes());
//! let (kind, segments) = parse(&message, "rank 0")?;
//! assert_eq!((kind, segments.len()), (MessageKind::Push, 3));
//!
//! let wrong = header(MessageKind::Push, &[8, 4], "rank 0").unwrap_err();
//! assert_eq!(wrong.to_string(), "rank 0: a message of push has 3 segments, not 2");
//! # Ok::<(), verbgate_segments::Violation>(())
//! ```

use std::fmt;

/// What a message is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MessageKind {
    /// Keys and their values, to be kept.
    Push,
    /// Keys whose values are asked for.
    Pull,
    /// The answer to a pull.
    PullReply,
    /// The answer to a push.
    PushReply,
}

/// What a segment holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Keys.
    Keys,
    /// The values of all keys, one behind the other.
    Values,
    /// There, and without bytes.
    NoValues,
    /// How many values each key has.
    Lengths,
}

/// Each kind, its number on the wire, and its segments.
#[rustfmt::skip]
pub const KINDS: &[(MessageKind, u8, &[Role])] = &[
    (MessageKind::Push,      1, &[Role::Keys, Role::Values, Role::Lengths]),
    (MessageKind::Pull,      2, &[Role::Keys, Role::NoValues]),
    (MessageKind::PullReply, 3, &[Role::Keys, Role::Values, Role::Lengths]),
    (MessageKind::PushReply, 4, &[]),
];

/// More segments than any kind has are not even counted.
const SEGMENTS: usize = 4;
/// Longer than this no segment may claim to be, in bytes.
pub const SEGMENT_LIMIT: usize = 1 << 20;
/// The header: a mark, the kind, the number of segments, a length for each.
pub const HEADER: usize = 4 + 4 * SEGMENTS;
const MARK: u8 = 0xfa;

/// Why a message is none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says all")]
pub enum Violation {
    #[error("{by}: a message of {kind} has {expected} segments, not {got}")]
    Segments { kind: MessageKind, expected: usize, got: usize, by: String },
    #[error("{by}: segment {index} of {kind} ({role:?}) may not have {length} bytes")]
    Length { kind: MessageKind, index: usize, role: Role, length: usize, by: String },
    #[error("{by}: a message of {got} bytes, where {expected} were announced")]
    Size { expected: usize, got: usize, by: String },
    #[error("{by}: message kind {number} is unknown")]
    Kind { number: u8, by: String },
    #[error("{by}: not a message: the header is damaged or missing")]
    Header { by: String },
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Push => "push",
            Self::Pull => "pull",
            Self::PullReply => "pull reply",
            Self::PushReply => "push reply",
        })
    }
}

impl MessageKind {
    fn row(self) -> (u8, &'static [Role]) {
        let found = KINDS.iter().find(|(kind, ..)| *kind == self);
        found.map_or((0, &[]), |(_, number, roles)| (*number, roles))
    }

    /// The kind's segments.
    #[must_use]
    pub fn roles(self) -> &'static [Role] {
        self.row().1
    }

    /// Whether segments of these lengths, in bytes, are a message of this kind; `by` is the sender, for
    /// people.
    ///
    /// # Errors
    /// [`Violation::Segments`] or [`Violation::Length`].
    pub fn check(self, lengths: &[usize], by: &str) -> Result<(), Violation> {
        let roles = self.roles();
        if roles.len() != lengths.len() {
            let (expected, got) = (roles.len(), lengths.len());
            return Err(Violation::Segments { kind: self, expected, got, by: by.to_owned() });
        }
        for (index, (role, length)) in roles.iter().zip(lengths).enumerate() {
            let limit = if *role == Role::NoValues { 0 } else { SEGMENT_LIMIT };
            if *length > limit {
                let (role, length) = (*role, *length);
                return Err(Violation::Length {
                    kind: self,
                    index,
                    role,
                    length,
                    by: by.to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// The header of a message, which its segments follow. `by` is the sender, for people.
///
/// # Errors
/// As [`MessageKind::check`].
pub fn header(kind: MessageKind, lengths: &[usize], by: &str) -> Result<Vec<u8>, Violation> {
    kind.check(lengths, by)?;
    Ok(unchecked(kind, lengths))
}

/// The header of what may be no message: for those who test what a receiver makes of such a header.
#[must_use]
pub fn unchecked(kind: MessageKind, lengths: &[usize]) -> Vec<u8> {
    let count = u8::try_from(lengths.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![MARK, kind.row().0, count, 0];
    for length in lengths.iter().take(SEGMENTS) {
        bytes.extend(u32::try_from(*length).unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes.resize(HEADER, 0);
    bytes
}

/// The kind and the segments of a message that a peer, `by`, has sent.
///
/// # Errors
/// A [`Violation`], if the bytes are not exactly one message.
pub fn parse<'a>(bytes: &'a [u8], by: &str) -> Result<(MessageKind, Vec<&'a [u8]>), Violation> {
    let damaged = || Violation::Header { by: by.to_owned() };
    let (header, mut rest) = bytes.split_at_checked(HEADER).ok_or_else(damaged)?;
    let [MARK, number, count, 0, lengths @ ..] = header else { return Err(damaged()) };
    let known = KINDS.iter().find(|(_, of, _)| of == number);
    let (kind, ..) =
        *known.ok_or_else(|| Violation::Kind { number: *number, by: by.to_owned() })?;
    let length = |bytes: &[u8]| {
        let bytes = bytes.try_into().map_or(u32::MAX, u32::from_le_bytes);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    };
    let mut lengths: Vec<usize> = lengths.chunks_exact(4).map(length).collect();
    // A count that is too large stays so, without room being made for it.
    lengths.resize(usize::from(*count), 0);
    kind.check(&lengths, by)?;
    let (expected, got) = (lengths.iter().sum(), rest.len());
    if expected != got {
        return Err(Violation::Size { expected, got, by: by.to_owned() });
    }
    let mut segments = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (segment, after) = rest.split_at_checked(length).ok_or_else(damaged)?;
        segments.push(segment);
        rest = after;
    }
    Ok((kind, segments))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths that fit a kind.
    fn fitting(kind: MessageKind) -> Vec<usize> {
        let length = |role: &Role| if *role == Role::NoValues { 0 } else { 5 };
        kind.roles().iter().map(length).collect()
    }

    #[test]
    fn each_kind_is_what_the_table_says_and_nothing_else() {
        for (kind, _, roles) in KINDS {
            let lengths = fitting(*kind);
            let mut bytes = header(*kind, &lengths, "rank 1").unwrap();
            bytes.extend(vec![7; lengths.iter().sum()]);
            let (found, segments) = parse(&bytes, "rank 1").unwrap();
            assert_eq!((found, segments.len()), (*kind, roles.len()));
            assert!(segments.iter().map(|s| s.len()).eq(lengths.clone()));
            // One more, or one less, is refused by both sides, in the same words.
            let mut more = lengths.clone();
            more.push(0);
            let less = lengths.split_last().map(|(_, rest)| rest.to_vec());
            for wrong in [Some(more), less].into_iter().flatten() {
                let sent = header(*kind, &wrong, "rank 1").unwrap_err();
                let mut bytes = unchecked(*kind, &wrong);
                bytes.extend(vec![7; wrong.iter().sum()]);
                assert_eq!(parse(&bytes, "rank 1"), Err(sent.clone()));
                let words = format!("rank 1: a message of {kind} has {} segments", roles.len());
                assert!(sent.to_string().starts_with(&words), "{sent}");
            }
        }
    }

    #[test]
    fn what_a_peer_claims_is_bounded() {
        let huge = unchecked(MessageKind::Push, &[usize::MAX, 1, 1]);
        assert!(matches!(parse(&huge, "x"), Err(Violation::Length { index: 0, .. })));
        let filled = unchecked(MessageKind::Pull, &[1, 1]);
        assert!(matches!(parse(&filled, "x"), Err(Violation::Length { index: 1, .. })));
        let short = unchecked(MessageKind::Push, &[1, 1, 1]);
        let size = Violation::Size { expected: 3, got: 0, by: "x".to_owned() };
        assert_eq!(parse(&short, "x"), Err(size));
        let mut many = short.clone();
        many[2] = 255;
        assert!(matches!(parse(&many, "x"), Err(Violation::Segments { got: 255, .. })));
        let mut unknown = short.clone();
        unknown[1] = 99;
        assert!(matches!(parse(&unknown, "x"), Err(Violation::Kind { number: 99, .. })));
        assert!(matches!(parse(&short[1..], "x"), Err(Violation::Header { .. })));
        assert!(matches!(parse(&[], "x"), Err(Violation::Header { .. })));
    }
}
