//! RDMA netlink, as far as programs find their devices with it: `NETLINK_RDMA`, client
//! `RDMA_NL_NLDEV` (include/uapi/rdma/rdma_netlink.h, drivers/infiniband/core/nldev.c).
//!
//! A datagram is a row of messages: a header of 16 bytes, then attributes of 4 bytes and a value.
//! All numbers are in the machine's byte order, and each part is padded to 4 bytes.

use crate::Errno;

/// Bytes of `struct nlmsghdr`.
pub const HDR_LEN: usize = 16;
/// Bytes of `struct nlattr`.
const ATTR_LEN: usize = 4;

/// `NLM_F_REQUEST`.
pub const REQUEST: u16 = 1;
/// `NLM_F_DUMP`.
pub const DUMP: u16 = 0x300;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// The first number that is no message of netlink's own.
const MIN_TYPE: u16 = 16;

/// `RDMA_NL_NLDEV`.
const NLDEV: u16 = 5;

/// What programs ask in order to find devices. The rest changes devices, or tells of those who use
/// them.
pub const COMMANDS: [(u16, &str); 5] = [
    (GET, "GET"),                 // devices
    (PORT_GET, "PORT_GET"),       // their ports and network devices
    (SYS_GET, "SYS_GET"),         // what holds for all, as whether fork copies pinned pages
    (GET_CHARDEV, "GET_CHARDEV"), // a device's node
    (STAT_GET, "STAT_GET"),       // a port's counters, which sysfs lacks in a network namespace
];
/// `RDMA_NLDEV_CMD_GET`.
pub const GET: u16 = 1;
/// `RDMA_NLDEV_CMD_PORT_GET`.
pub const PORT_GET: u16 = 5;
const SYS_GET: u16 = 6;
/// `RDMA_NLDEV_CMD_GET_CHARDEV`.
pub const GET_CHARDEV: u16 = 15;
/// `RDMA_NLDEV_CMD_STAT_SET`: how queue pairs are bound to counters.
pub const STAT_SET: u16 = 16;
/// `RDMA_NLDEV_CMD_STAT_GET`. Counters of single objects have attributes that are not passed on.
pub const STAT_GET: u16 = 17;

/// `RDMA_NLDEV_ATTR_DEV_INDEX`: u32.
pub const DEV_INDEX: u16 = 1;
/// `RDMA_NLDEV_ATTR_DEV_NAME`: string.
pub const DEV_NAME: u16 = 2;
/// `RDMA_NLDEV_ATTR_PORT_INDEX`: u32.
pub const PORT_INDEX: u16 = 3;
/// `RDMA_NLDEV_ATTR_RES_QP`; also the value of [`STAT_RES`] that means queue pairs.
pub const RES_QP: u32 = 19;
/// `RDMA_NLDEV_ATTR_RES_PID`: u32, a thread in the asker's pid namespace.
pub const RES_PID: u16 = 28;
/// `RDMA_NLDEV_ATTR_NDEV_INDEX`: u32, of a port's network device in the asker's namespace.
pub const NDEV_INDEX: u16 = 50;
/// `RDMA_NLDEV_ATTR_CHARDEV_TYPE`: string.
pub const CHARDEV_TYPE: u16 = 69;
/// `RDMA_NLDEV_ATTR_CHARDEV`: u64, `huge_encode_dev()`.
pub const CHARDEV: u16 = 72;

/// `RDMA_NLDEV_ATTR_STAT_MODE`: u32, how queue pairs are bound to counters.
pub const STAT_MODE: u16 = 74;
/// `RDMA_COUNTER_MODE_AUTO`, include/uapi/rdma/rdma_netlink.h.
pub const MODE_AUTO: u32 = 1;
/// `RDMA_NLDEV_ATTR_STAT_RES`: u32, of which objects counters are.
pub const STAT_RES: u16 = 75;
/// `RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK`: u32, what queue pairs of one counter have in common.
pub const STAT_AUTO_MODE_MASK: u16 = 76;
/// `RDMA_COUNTER_MASK_PID`.
pub const MASK_PID: u32 = 2;
/// `RDMA_NLDEV_ATTR_STAT_COUNTER`: a list of [`STAT_COUNTER_ENTRY`].
pub const STAT_COUNTER: u16 = 77;
/// `RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY`.
pub const STAT_COUNTER_ENTRY: u16 = 78;
/// `RDMA_NLDEV_ATTR_STAT_HWCOUNTERS`: a list of [`STAT_HWCOUNTER_ENTRY`].
pub const STAT_HWCOUNTERS: u16 = 80;
/// `RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY`.
pub const STAT_HWCOUNTER_ENTRY: u16 = 81;
/// `RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME`: string.
pub const STAT_HWCOUNTER_NAME: u16 = 82;
/// `RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE`: u64.
pub const STAT_HWCOUNTER_VALUE: u16 = 83;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Number of client and command.
    pub kind: u16,
    /// Flags.
    pub flags: u16,
    /// Tells answers apart.
    pub seq: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

fn padded(len: usize) -> usize {
    len.saturating_add(3) & !3
}

/// The messages of a datagram; what cannot be one ends it.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = usize::try_from(u32::from_ne_bytes(field(bytes, 0)?)).ok()?;
        let message = Message {
            kind: u16::from_ne_bytes(field(bytes, 4)?),
            flags: u16::from_ne_bytes(field(bytes, 6)?),
            seq: u32::from_ne_bytes(field(bytes, 8)?),
            payload: bytes.get(HDR_LEN..len)?,
        };
        bytes = bytes.get(padded(len)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes of a message without a fixed part: number and value.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// `NLA_TYPE_MASK`.
    const TYPE: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(field(bytes, 0)?));
        let number = u16::from_ne_bytes(field(bytes, 2)?) & TYPE;
        let value = bytes.get(ATTR_LEN..len)?;
        bytes = bytes.get(padded(len)..).unwrap_or_default();
        Some((number, value))
    })
}

/// Writes messages into a datagram.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Adds a message to or from this port.
    pub fn message(&mut self, message: &Message<'_>, port: u32) {
        let len = HDR_LEN.saturating_add(message.payload.len());
        self.0.extend(u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes());
        self.0.extend(message.kind.to_ne_bytes());
        self.0.extend(message.flags.to_ne_bytes());
        self.0.extend(message.seq.to_ne_bytes());
        self.0.extend(port.to_ne_bytes());
        self.0.extend(message.payload);
        self.0.resize(padded(self.0.len()), 0);
    }

    /// The datagram.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Attributes as bytes.
#[must_use]
pub fn encode(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, value) in attributes {
        let len = u16::try_from(value.len().saturating_add(ATTR_LEN)).unwrap_or(u16::MAX);
        bytes.extend(len.to_ne_bytes());
        bytes.extend(number.to_ne_bytes());
        bytes.extend(*value);
        bytes.resize(padded(bytes.len()), 0);
    }
    bytes
}

/// The number of a message that gives NLDEV a command.
#[must_use]
pub const fn nldev(command: u16) -> u16 {
    NLDEV << 10 | command
}

/// Counters that queue pairs are bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatCounter {
    /// The port, from 1.
    pub port: Option<u32>,
    /// The thread whose queue pairs are counted, where that is how they are chosen.
    pub pid: Option<u32>,
    /// Names, and how often.
    pub values: Vec<(String, u64)>,
}

/// The counters of queue pairs in the answer to [`STAT_GET`].
pub fn stat_counters(payload: &[u8]) -> impl Iterator<Item = StatCounter> {
    let lists = of(payload, STAT_COUNTER);
    lists.flat_map(|list| of(list, STAT_COUNTER_ENTRY)).map(|entry| StatCounter {
        port: of(entry, PORT_INDEX).find_map(index),
        pid: of(entry, RES_PID).find_map(index),
        values: of(entry, STAT_HWCOUNTERS)
            .flat_map(|list| of(list, STAT_HWCOUNTER_ENTRY))
            .filter_map(|one| {
                let name = of(one, STAT_HWCOUNTER_NAME).find_map(text)?;
                let value =
                    of(one, STAT_HWCOUNTER_VALUE).find_map(|value| value.try_into().ok())?;
                Some((name.to_owned(), u64::from_ne_bytes(value)))
            })
            .collect(),
    })
}

/// A list of counters as [`STAT_GET`] answers of a port.
#[must_use]
pub fn hw_counters<'a>(values: impl Iterator<Item = (&'a str, u64)>) -> Vec<u8> {
    let one = |(name, value): (&str, u64)| {
        let name = [name.as_bytes(), b"\0"].concat();
        let value = value.to_ne_bytes();
        let entry = encode(&[(STAT_HWCOUNTER_NAME, &name), (STAT_HWCOUNTER_VALUE, &value)]);
        encode(&[(STAT_HWCOUNTER_ENTRY, &entry)])
    };
    encode(&[(STAT_HWCOUNTERS, &values.flat_map(one).collect::<Vec<u8>>())])
}

/// The values of one attribute.
fn of(bytes: &[u8], wanted: u16) -> impl Iterator<Item = &[u8]> {
    attributes(bytes).filter(move |(number, _)| *number == wanted).map(|(_, value)| value)
}

/// Whose devices may be asked about.
pub trait Grant {
    /// Whether a device was granted.
    fn device(&self, index: u32) -> bool;
    /// Whether this kind of node was granted: naming one can make the kernel load a module.
    fn node(&self, kind: &str) -> bool;
    /// Whether a port's counters tell of nobody else.
    fn counters(&self, index: u32, port: u32) -> bool;
}

/// What becomes of a guest's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judged {
    /// The kernel would not look at it, either.
    Ignored,
    /// It is asked with these attributes.
    Asked(Vec<u8>),
    /// It is answered with this error.
    Refused(Errno),
}

/// Judges a guest's message. What is asked carries known attributes alone.
#[must_use]
pub fn judge(message: &Message<'_>, grant: &impl Grant) -> Judged {
    if message.flags & REQUEST == 0 || message.kind < MIN_TYPE {
        return Judged::Ignored;
    }
    if !COMMANDS.iter().any(|(command, _)| message.kind == nldev(*command)) {
        return Judged::Refused(Errno::EOPNOTSUPP);
    }
    let mut kept: Vec<(u16, &[u8])> = Vec::new();
    for (number, value) in attributes(message.payload) {
        let known = match number {
            DEV_INDEX => index(value).is_some_and(|index| grant.device(index)),
            PORT_INDEX => value.len() == 4,
            CHARDEV_TYPE => text(value).is_some_and(|kind| grant.node(kind)),
            _ => continue,
        };
        if !known {
            // What the kernel says of a device that does not exist.
            return Judged::Refused(Errno::EINVAL);
        }
        kept.push((number, value));
    }
    if counts_others(message, grant) {
        return Judged::Refused(Errno::EPERM);
    }
    Judged::Asked(encode(&kept))
}

/// Whether a message is about the counters of a port by which others speak, too.
fn counts_others(message: &Message<'_>, grant: &impl Grant) -> bool {
    // The kernel takes the last of several, and here each counts.
    let numbers = |wanted| {
        let all = attributes(message.payload).filter(move |(number, _)| *number == wanted);
        all.filter_map(|(_, value)| index(value))
    };
    message.kind == nldev(STAT_GET)
        && numbers(DEV_INDEX)
            .any(|device| numbers(PORT_INDEX).any(|port| !grant.counters(device, port)))
}

/// Whether the guest may see a message of an answer: all but those about other devices.
#[must_use]
pub fn may_see(message: &Message<'_>, grant: &impl Grant) -> bool {
    if message.kind < MIN_TYPE {
        return true;
    }
    let mut of = attributes(message.payload).filter(|(number, _)| *number == DEV_INDEX);
    of.all(|(_, value)| index(value).is_some_and(|index| grant.device(index)))
        && !counts_others(message, grant)
}

/// The answer that refuses a message: `struct nlmsgerr`.
#[must_use]
pub fn refusal(message: &Message<'_>, errno: Errno, port: u32) -> Vec<u8> {
    let mut original = Writer::default();
    original.message(&Message { payload: &[], ..*message }, port);
    let mut payload = errno.0.saturating_neg().to_ne_bytes().to_vec();
    payload.extend(original.into_bytes());
    let mut answer = Writer::default();
    answer.message(&Message { kind: ERROR, flags: 0, seq: message.seq, payload: &payload }, port);
    answer.into_bytes()
}

/// The value of an attribute that is an index.
#[must_use]
pub fn index(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// The value of an attribute that is a device number.
#[must_use]
pub fn device_number(value: &[u8]) -> Option<(u32, u32)> {
    let number = u64::from_ne_bytes(value.try_into().ok()?);
    // huge_encode_dev() is new_encode_dev(), include/linux/kdev_t.h.
    let number = u32::try_from(number).ok()?;
    Some((number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00))
}

fn text(value: &[u8]) -> Option<&str> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    std::str::from_utf8(value.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct First;

    impl Grant for First {
        fn device(&self, index: u32) -> bool {
            index == 1
        }
        fn node(&self, kind: &str) -> bool {
            kind == "uverbs"
        }
        fn counters(&self, index: u32, port: u32) -> bool {
            (index, port) == (1, 1)
        }
    }

    fn ask(command: u16, attributes: &[(u16, &[u8])]) -> Judged {
        let payload = encode(attributes);
        let message = Message { kind: nldev(command), flags: REQUEST, seq: 7, payload: &payload };
        judge(&message, &First)
    }

    #[test]
    fn only_questions_about_granted_devices_are_asked() {
        let index = |n: u32| n.to_ne_bytes();
        assert_eq!(ask(GET, &[]), Judged::Asked(vec![]));
        assert!(matches!(ask(GET, &[(DEV_INDEX, &index(1))]), Judged::Asked(_)));
        assert_eq!(ask(GET, &[(DEV_INDEX, &index(2))]), Judged::Refused(Errno::EINVAL));
        assert_eq!(ask(GET, &[(DEV_INDEX, &[1])]), Judged::Refused(Errno::EINVAL));
        let kind: &[u8] = b"uverbs\0";
        let asked = [(CHARDEV_TYPE, kind), (999, b"?"), (DEV_INDEX, &index(1))];
        let kept = encode(&[(CHARDEV_TYPE, kind), (DEV_INDEX, &index(1))]);
        assert_eq!(ask(GET_CHARDEV, &asked), Judged::Asked(kept));
        let other = [(CHARDEV_TYPE, b"issm\0".as_slice())];
        assert_eq!(ask(GET_CHARDEV, &other), Judged::Refused(Errno::EINVAL));
        // Of a port's counters, and of no queue pair's: RDMA_NLDEV_ATTR_STAT_RES is 74.
        let port = [(DEV_INDEX, &index(1)[..]), (PORT_INDEX, &index(1)[..])];
        let asked = [port[0], port[1], (74, &[3, 0, 0, 0])];
        assert_eq!(ask(STAT_GET, &asked), Judged::Asked(encode(&port)));
        assert_eq!(ask(STAT_GET, &[(DEV_INDEX, &index(2))]), Judged::Refused(Errno::EINVAL));
        // Of a port by which others speak, too; the kernel takes the last of several.
        let shared = [(DEV_INDEX, &index(1)[..]), (PORT_INDEX, &index(2)[..])];
        assert_eq!(ask(STAT_GET, &shared), Judged::Refused(Errno::EPERM));
        let both = [port[0], port[1], shared[1]];
        assert_eq!(ask(STAT_GET, &both), Judged::Refused(Errno::EPERM));
        let payload = encode(&shared);
        let answer = Message { kind: nldev(STAT_GET), flags: 0, seq: 7, payload: &payload };
        assert!(!may_see(&answer, &First));
        assert!(may_see(&Message { kind: nldev(GET), ..answer }, &First));
        // SET, NEWLINK, RES_QP_GET, STAT_SET
        for command in [2, 3, 10, 16] {
            assert_eq!(ask(command, &[]), Judged::Refused(Errno::EOPNOTSUPP));
        }
    }

    #[test]
    fn what_is_no_request_is_ignored_and_other_clients_are_refused() {
        let message = Message { kind: nldev(GET), flags: 0, seq: 0, payload: &[] };
        assert_eq!(judge(&message, &First), Judged::Ignored);
        let message = Message { kind: 3, flags: REQUEST, seq: 0, payload: &[] };
        assert_eq!(judge(&message, &First), Judged::Ignored);
        let message = Message { kind: 2 << 10, flags: REQUEST, seq: 0, payload: &[] };
        assert_eq!(judge(&message, &First), Judged::Refused(Errno::EOPNOTSUPP));
    }

    #[test]
    fn datagrams_are_read_as_they_are_written() {
        let first = encode(&[(DEV_INDEX, &2_u32.to_ne_bytes()), (CHARDEV_TYPE, b"abc")]);
        let mut writer = Writer::default();
        let one = Message { kind: nldev(GET), flags: REQUEST | DUMP, seq: 5, payload: &first };
        let two = Message { kind: 3, flags: 2, seq: 6, payload: &[1, 2, 3, 4] };
        writer.message(&one, 9);
        writer.message(&two, 9);
        let bytes = writer.into_bytes();
        assert_eq!(messages(&bytes).collect::<Vec<_>>(), [one, two]);
        assert!(!may_see(&one, &First) && may_see(&two, &First));
        // Cut, or with a length that is too long or too short, it ends.
        assert_eq!(messages(&bytes[..bytes.len() - 1]).count(), 1);
        assert_eq!(messages(&[255; 64]).count(), 0);
        assert_eq!(messages(&[0; 64]).count(), 0);
        assert_eq!(attributes(&[0; 64]).count(), 0);
        assert_eq!(attributes(&[255; 3]).count(), 0);
    }

    #[test]
    fn counters_of_queue_pairs_are_read() {
        let values =
            hw_counters([("duplicate_request", 7), ("out_of_buffer", 1 << 40)].into_iter());
        let head = [(PORT_INDEX, &1_u32.to_ne_bytes()[..]), (RES_PID, &77_u32.to_ne_bytes())];
        let entry = encode(&[(STAT_COUNTER_ENTRY, &[encode(&head), values].concat())]);
        let found: Vec<StatCounter> = stat_counters(&encode(&[(STAT_COUNTER, &entry)])).collect();
        let names =
            vec![("duplicate_request".to_owned(), 7), ("out_of_buffer".to_owned(), 1 << 40)];
        assert_eq!(found, [StatCounter { port: Some(1), pid: Some(77), values: names }]);
        assert_eq!(stat_counters(&[0; 64]).count(), 0);
    }

    #[test]
    fn a_refusal_names_what_it_refuses() {
        let message = Message { kind: nldev(2), flags: REQUEST, seq: 77, payload: &[1; 8] };
        let bytes = refusal(&message, Errno::EOPNOTSUPP, 42);
        let answer = messages(&bytes).next().unwrap();
        assert_eq!((answer.kind, answer.seq, answer.payload.len()), (ERROR, 77, 20));
        assert_eq!(answer.payload[..4], (-95_i32).to_ne_bytes());
        assert_eq!(bytes[12..16], 42_u32.to_ne_bytes());
    }

    #[test]
    fn device_numbers_are_split() {
        // new_encode_dev(231, 192)
        assert_eq!(device_number(&0xe7c0_u64.to_ne_bytes()), Some((231, 192)));
        assert_eq!(device_number(&0x10_0a04_u64.to_ne_bytes()), Some((10, 0x104)));
        assert_eq!(device_number(&[0; 4]), None);
    }
}
