//! Synchronous netlink, with messages kept as the kernel wrote them.
//!
//! A captured message must be put back to the last attribute, including attributes of kernels to
//! come. So a message is its header and a list of attributes, never a structure that knows only
//! some attributes (`ip route save` does the same). Numbers are in [`super::uapi`].

use std::io;
use std::net::IpAddr;

use netlink_packet_core::DecodeError;
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_core::NLM_F_DUMP_INTR;
use netlink_packet_core::NLM_F_REQUEST;
use netlink_packet_core::NetlinkDeserializable;
use netlink_packet_core::NetlinkHeader;
use netlink_packet_core::NetlinkMessage;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_core::NetlinkSerializable;
use netlink_sys::Socket;
use netlink_sys::SocketAddr;
use netlink_sys::protocols::NETLINK_ROUTE;
use serde::Deserialize;
use serde::Serialize;

/// Without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const NLA_TYPE_MASK: u16 = 0x3fff;
/// A dump that changes while it is read is read again, so often at most.
const DUMP_TRIES: u32 = 50;

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    kind: u16,
    #[serde(with = "hex")]
    value: Vec<u8>,
}

/// A message of a family that this module knows the header's length of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The message's type, `RTM_...`.
    pub kind: u16,
    /// The structure before the attributes.
    #[serde(with = "hex")]
    pub header: Vec<u8>,
    attributes: Vec<Attribute>,
}

impl Message {
    /// A message of this type with no attributes, and a header of zeros.
    pub fn new(kind: u16) -> Self {
        Self { kind, header: vec![0; header_length(kind)], attributes: Vec::new() }
    }

    /// Byte `at` of the header.
    pub fn byte(&self, at: usize) -> u8 {
        self.header.get(at).copied().unwrap_or_default()
    }

    /// Sets byte `at` of the header.
    pub fn set_byte(&mut self, at: usize, value: u8) {
        if let Some(byte) = self.header.get_mut(at) {
            *byte = value;
        }
    }

    /// The 32-bit number at byte `at` of the header.
    pub fn word(&self, at: usize) -> u32 {
        self.header.get(at..at + 4).and_then(to_u32).unwrap_or_default()
    }

    /// Sets the 32-bit number at byte `at` of the header.
    pub fn set_word(&mut self, at: usize, value: u32) {
        if let Some(bytes) = self.header.get_mut(at..at + 4) {
            bytes.copy_from_slice(&value.to_ne_bytes());
        }
    }

    /// The value of an attribute.
    pub fn get(&self, kind: u16) -> Option<&[u8]> {
        let found = self.attributes.iter().find(|a| a.kind & NLA_TYPE_MASK == kind)?;
        Some(&found.value)
    }

    /// The attribute as a 32-bit number.
    pub fn u32(&self, kind: u16) -> Option<u32> {
        self.get(kind).and_then(to_u32)
    }

    /// The attribute's first byte.
    pub fn u8(&self, kind: u16) -> Option<u8> {
        self.get(kind).and_then(|value| value.first().copied())
    }

    /// The attribute as a text.
    pub fn text(&self, kind: u16) -> Option<String> {
        self.get(kind).map(to_text)
    }

    /// The attribute as an IP address.
    pub fn ip(&self, kind: u16) -> Option<IpAddr> {
        self.get(kind).and_then(to_ip)
    }

    /// The attributes in an attribute.
    pub(crate) fn nested(&self, kind: u16) -> Vec<(u16, Vec<u8>)> {
        self.get(kind).map(decode).unwrap_or_default()
    }

    /// Sets the attribute in its place, or adds it.
    pub fn set(&mut self, kind: u16, value: impl Into<Vec<u8>>) {
        let value = value.into();
        match self.attributes.iter_mut().find(|a| a.kind & NLA_TYPE_MASK == kind) {
            Some(attribute) => attribute.value = value,
            None => self.attributes.push(Attribute { kind, value }),
        }
    }

    /// Sets an attribute to a 32-bit number.
    pub fn set_u32(&mut self, kind: u16, value: u32) {
        self.set(kind, value.to_ne_bytes());
    }

    /// Sets a text, with the NUL that the kernel wants behind it.
    pub fn set_text(&mut self, kind: u16, value: &str) {
        self.set(kind, [value.as_bytes(), &[0]].concat());
    }

    /// Sets an attribute to an IP address.
    pub fn set_ip(&mut self, kind: u16, value: IpAddr) {
        self.set(kind, ip_bytes(value));
    }

    /// Takes these attributes away.
    pub fn remove(&mut self, kinds: &[u16]) {
        self.attributes.retain(|a| !kinds.contains(&(a.kind & NLA_TYPE_MASK)));
    }
}

/// Four bytes as a number.
pub fn to_u32(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

pub(crate) fn to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned()
}

pub(crate) fn to_ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// The bytes of an address, the first byte of the network order first.
pub fn ip_bytes(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The length of the structure before the attributes.
fn header_length(kind: u16) -> usize {
    match kind {
        16..20 | 108..111 => 16, // ifinfomsg
        20..24 => 8,             // ifaddrmsg
        24..36 => 12,            // rtmsg, ndmsg, fib_rule_hdr
        76..80 => 4,             // dcbmsg
        _ => 0,                  // RDMA netlink has none
    }
}

fn attributes(mut bytes: &[u8]) -> Result<Vec<Attribute>, DecodeError> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let short = || DecodeError::from("an attribute is cut off");
        let [l0, l1, k0, k1, ..] = *bytes else { return Err(short()) };
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(4..length).ok_or_else(short)?.to_vec();
        found.push(Attribute { kind: u16::from_ne_bytes([k0, k1]), value });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

/// The attributes in the value of one; none, if it has no such form.
pub fn decode(bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let inner = attributes(bytes).unwrap_or_default();
    inner.into_iter().map(|a| (a.kind & NLA_TYPE_MASK, a.value)).collect()
}

/// Attributes one behind the other, as they are nested in another.
pub fn encode(list: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in list {
        put(&mut bytes, *kind, value);
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        let padded = |a: &Attribute| (a.value.len() + 4).next_multiple_of(4);
        self.header.len() + self.attributes.iter().map(padded).sum::<usize>()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let mut bytes = self.header.clone();
        for attribute in &self.attributes {
            put(&mut bytes, attribute.kind, &attribute.value);
        }
        buffer.copy_from_slice(&bytes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let kind = header.message_type;
        let (front, rest) = payload
            .split_at_checked(header_length(kind))
            .ok_or_else(|| DecodeError::from("a message is cut off"))?;
        Ok(Self { kind, header: front.to_vec(), attributes: attributes(rest)? })
    }
}

/// A netlink socket of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// NETLINK_ROUTE.
    pub fn route() -> io::Result<Self> {
        Self::open(NETLINK_ROUTE)
    }

    /// A socket of this protocol, `NETLINK_RDMA` for instance.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        // In a sandbox a supervisor stands behind RDMA netlink, and that socket takes no connect; what
        // is sent without an address goes to the kernel in any case.
        if protocol == NETLINK_ROUTE {
            socket.connect(&SocketAddr::new(0, 0))?;
        }
        // RDMA netlink does not know the option.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// Makes a change, and waits for the kernel's answer to it.
    pub fn change(&mut self, flags: u16, message: &Message) -> io::Result<()> {
        self.talk(NLM_F_ACK | flags, message).map(drop)
    }

    /// Asks for one thing.
    pub fn ask(&mut self, message: &Message) -> io::Result<Option<Message>> {
        Ok(self.talk(NLM_F_ACK, message)?.pop())
    }

    /// Asks for all that there is, consistently.
    pub fn dump(&mut self, message: &Message) -> io::Result<Vec<Message>> {
        for _ in 0..DUMP_TRIES {
            match self.talk(NLM_F_DUMP, message) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
        Err(io::Error::other("the network's configuration never stops changing"))
    }

    fn talk(&mut self, flags: u16, message: &Message) -> io::Result<Vec<Message>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request =
            NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message.clone()));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        let mut changed = false;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest: &[u8] = &bytes;
            while !rest.is_empty() {
                let bad = |e| io::Error::other(format!("the kernel's answer is not netlink: {e}"));
                let answer = NetlinkMessage::<Message>::deserialize(rest).map_err(bad)?;
                let length = usize::try_from(answer.header.length).unwrap_or(usize::MAX);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                changed |= answer.header.flags & NLM_F_DUMP_INTR != 0;
                match answer.payload {
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    NetlinkPayload::Error(error) => match error.code {
                        Some(code) => return Err(io::Error::from_raw_os_error(-code.get())),
                        None => return Ok(answers),
                    },
                    NetlinkPayload::Done(_) if changed => {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }
}

/// Bytes as text, so that a journal can be read by people.
mod hex {
    use serde::Deserialize;
    use serde::Deserializer;
    use serde::Serializer;
    use serde::de::Error;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        s.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(d)?;
        let digits = text.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2);
            pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
        });
        digits.collect::<Option<_>>().ok_or_else(|| D::Error::custom("not bytes in hex"))
    }
}
