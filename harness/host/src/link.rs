//! The links of a namespace, and the search for a given NIC among the links.

use std::fmt::Write as _;
use std::io;

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_core::NLM_F_EXCL;
use serde::Deserialize;
use serde::Serialize;

use super::netlink::Message;
use super::netlink::Netlink;
use super::netlink::encode;
use super::netlink::to_text;
use super::netlink::to_u32;
use super::netns::Namespace;
use super::uapi::*;
use crate::Error;

/// What a NIC is known by, whatever it is called and wherever it is. Names are for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkIdentity {
    /// The bus address of the device, e.g. a PCI address (IFLA_PARENT_DEV_NAME, Linux 5.14).
    pub parent: Option<String>,
    /// The permanent MAC address; virtual devices have none.
    pub permanent: Option<String>,
    /// The MAC address, which can be changed.
    pub mac: String,
    /// The port of the device, where sysfs tells (`dev_port`).
    pub port: Option<u32>,
}

impl LinkIdentity {
    fn is(&self, link: &Link) -> bool {
        match (&self.permanent, &link.permanent) {
            (Some(ours), Some(its)) => ours == its && self.parent == link.parent,
            (None, None) => self.mac == link.mac && self.parent == link.parent,
            _ => false,
        }
    }
}

/// A network device as rtnetlink(7) tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The link's number in its namespace.
    pub index: u32,
    /// The name, which can be changed.
    pub name: String,
    /// The MAC address, which can be changed.
    pub mac: String,
    /// The permanent MAC address; virtual devices have none.
    pub permanent: Option<String>,
    /// The bus address of the device, e.g. a PCI address.
    pub parent: Option<String>,
    /// `veth`, `bond` and so on; hardware has none.
    pub kind: Option<String>,
    /// Whether the link is set up.
    pub up: bool,
    /// Operational, which is some time after the cable has light: until then IPv6 waits, too.
    pub carrier: bool,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// The length of the queue for sending.
    pub txqlen: u32,
    /// A text of the administrator's.
    pub alias: Option<String>,
    /// Alternative names.
    pub altnames: Vec<String>,
    /// The queueing discipline (tc).
    pub qdisc: Option<String>,
    /// The bond, bridge or VRF that it is a part of.
    pub master: Option<u32>,
    /// The device that it stands on, in the same namespace.
    pub lower: Option<u32>,
}

const IFLA_QDISC: u16 = 6;
const IFLA_PARENT_DEV_NAME: u16 = 56;

impl Link {
    fn read(message: &Message) -> Self {
        let flags = message.word(IFI_FLAGS);
        let info = message.nested(IFLA_LINKINFO);
        let kind = info.iter().find(|(kind, _)| *kind == IFLA_INFO_KIND);
        let names = message.nested(IFLA_PROP_LIST);
        let number = |kind| message.get(kind).and_then(to_u32);
        let elsewhere = message.get(IFLA_LINK_NETNSID).is_some();
        Self {
            index: message.word(IFI_INDEX),
            name: message.text(IFLA_IFNAME).unwrap_or_default(),
            mac: message.get(IFLA_ADDRESS).map(mac).unwrap_or_default(),
            permanent: message.get(IFLA_PERM_ADDRESS).map(mac),
            parent: message.text(IFLA_PARENT_DEV_NAME),
            kind: kind.map(|(_, value)| to_text(value)),
            up: flags & IFF_UP != 0,
            carrier: flags & IFF_RUNNING != 0,
            mtu: number(IFLA_MTU).unwrap_or_default(),
            txqlen: number(IFLA_TXQLEN).unwrap_or_default(),
            alias: message.text(IFLA_IFALIAS),
            altnames: names
                .iter()
                .filter(|(kind, _)| *kind == IFLA_ALT_IFNAME)
                .map(|(_, value)| to_text(value))
                .collect(),
            qdisc: message.text(IFLA_QDISC),
            master: number(IFLA_MASTER),
            lower: number(IFLA_LINK).filter(|_| !elsewhere),
        }
    }

    /// What the link is known by, whatever becomes of its name.
    pub fn identity(&self, port: Option<u32>) -> LinkIdentity {
        let (parent, permanent, mac) =
            (self.parent.clone(), self.permanent.clone(), self.mac.clone());
        LinkIdentity { parent, permanent, mac, port }
    }
}

/// All links of the thread's namespace.
pub fn all(netlink: &mut Netlink) -> io::Result<Vec<Link>> {
    let found = netlink.dump(&Message::new(RTM_GETLINK))?;
    Ok(found.iter().filter(|m| m.kind == RTM_NEWLINK).map(Link::read).collect())
}

/// How often a link has gained or lost its carrier since the device was made.
pub fn carrier_changes(netlink: &mut Netlink, index: u32) -> io::Result<Option<u32>> {
    let mut message = Message::new(RTM_GETLINK);
    message.set_word(IFI_INDEX, index);
    Ok(netlink.ask(&message)?.and_then(|link| link.u32(IFLA_CARRIER_CHANGES)))
}

/// Makes a link upon another, under this name in a namespace, in one step. `data` is what the kind
/// wants (`IFLA_INFO_DATA`).
pub fn make_upon(
    netlink: &mut Netlink,
    lower: u32,
    namespace: &Namespace,
    name: &str,
    kind: &str,
    data: &[(u16, Vec<u8>)],
) -> io::Result<()> {
    let mut message = Message::new(RTM_NEWLINK);
    message.set_u32(IFLA_LINK, lower);
    message.set_text(IFLA_IFNAME, name);
    message.set(IFLA_NET_NS_FD, namespace.raw_fd().to_ne_bytes());
    let kind = [kind.as_bytes(), &[0]].concat();
    let info = encode(&[(IFLA_INFO_KIND, kind), (IFLA_INFO_DATA | NLA_F_NESTED, encode(data))]);
    message.set(IFLA_LINKINFO | NLA_F_NESTED, info);
    netlink.change(NLM_F_CREATE | NLM_F_EXCL, &message)
}

/// Removes a link of a kind that can be made.
pub fn remove(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let mut message = Message::new(RTM_DELLINK);
    message.set_word(IFI_INDEX, index);
    netlink.change(0, &message)
}

/// The link of this identity.
pub fn find<'a>(links: &'a [Link], identity: &LinkIdentity) -> Option<&'a Link> {
    links.iter().find(|link| identity.is(link))
}

/// The links of another namespace.
pub fn of(namespace: &Namespace) -> Result<Vec<Link>, Error> {
    namespace.within(|| {
        let listed = Netlink::route().and_then(|mut netlink| all(&mut netlink));
        listed.map_err(|source| Error::Netlink { what: "list the network devices".into(), source })
    })
}

/// As sysfs and ip(8) write it.
pub fn mac(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let colon = if text.is_empty() { "" } else { ":" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{colon}{byte:02x}");
        text
    })
}

/// The bytes of a MAC address.
pub fn mac_bytes(text: &str) -> Option<Vec<u8>> {
    text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}

/// A change of one link.
pub fn change(index: u32) -> Message {
    let mut message = Message::new(RTM_SETLINK);
    message.set_word(IFI_INDEX, index);
    message
}

/// Sets a link up or down.
pub fn set_up(netlink: &mut Netlink, index: u32, up: bool) -> io::Result<()> {
    let mut message = change(index);
    message.set_word(IFI_FLAGS, if up { IFF_UP } else { 0 });
    message.set_word(IFI_CHANGE, IFF_UP);
    netlink.change(0, &message)
}

/// Moves a link into another namespace, where it gets this name, in one step: between a move and a
/// renaming another device could take the name.
pub fn send_to(
    netlink: &mut Netlink,
    index: u32,
    namespace: &Namespace,
    name: &str,
) -> io::Result<()> {
    let mut message = change(index);
    message.set(IFLA_NET_NS_FD, namespace.raw_fd().to_ne_bytes());
    message.set_text(IFLA_IFNAME, name);
    netlink.change(0, &message)
}
