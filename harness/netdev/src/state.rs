//! The configuration of a NIC, as far as a change of namespace loses the configuration.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use verbgate_host::link;
use verbgate_host::link::Link;
use verbgate_host::netlink::Message;
use verbgate_host::netlink::Netlink;
use verbgate_host::netlink::to_u32;
use verbgate_host::route::Route;
use verbgate_host::route::clean_route;
use verbgate_host::route::clean_rule;
use verbgate_host::route::devices;
use verbgate_host::route::is_dead;
use verbgate_host::route::is_link_local;
use verbgate_host::route::local;
use verbgate_host::route::renumbered;
use verbgate_host::uapi::*;

use super::Error;
use super::dress::describe;

/// Per-NIC settings, below /proc/sys/net: those of the namespace of the thread that looks.
pub(crate) const SYSCTLS: &[&str] = &["ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh"];
const PROC: &str = "/proc/sys/net";
const FOREVER: u32 = u32::MAX;
/// The flags of an address that can be asked for; the others tell of its state.
const ADDRESS_FLAGS: u32 =
    IFA_F_NODAD | IFA_F_HOMEADDRESS | IFA_F_MANAGETEMPADDR | IFA_F_NOPREFIXROUTE | IFA_F_MCAUTOJOIN;
/// `RTM_F_CLONED`: of the cache.
const CLONED: u32 = 0x200;

/// A NIC's configuration. Messages are such as make it anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The link itself.
    pub link: Link,
    /// In the order in which they must be added so that the kernel lists them as it did.
    pub addresses: Vec<Message>,
    /// Routes of all tables, without the routes that the kernel or a router makes.
    pub routes: Vec<Route>,
    /// Place of the kernel's own route to the NIC's first network among the routes of other NICs.
    pub(crate) rank: Option<usize>,
    /// Rules that name the NIC or one of its addresses.
    pub rules: Vec<Message>,
    /// The permanent ones.
    pub neighbours: Vec<Message>,
    /// By their paths below /proc/sys/net, the NIC's name left out: `ipv4/conf/rp_filter`.
    pub(crate) sysctls: BTreeMap<String, String>,
    /// The names of the devices that the routes mention by number.
    pub names: BTreeMap<u32, String>,
}

/// All of a namespace that can belong to a NIC.
#[derive(Debug)]
pub struct Snapshot {
    /// The links.
    pub links: Vec<Link>,
    /// The IP addresses of all links.
    pub addresses: Vec<Message>,
    /// The routes of all tables.
    pub routes: Vec<Message>,
    /// The routing rules.
    pub rules: Vec<Message>,
    /// The neighbours.
    pub neighbours: Vec<Message>,
}

impl Snapshot {
    /// Of the thread's namespace.
    pub fn take(netlink: &mut Netlink) -> Result<Self, Error> {
        let what = |what: &str| {
            let what = format!("read the {what}");
            move |source| Error::netlink(what, source)
        };
        let mut dump = |kind: u16, family: u8| {
            let mut message = Message::new(kind);
            message.set_byte(0, family);
            match netlink.dump(&message) {
                // A kernel without IPv6.
                Err(e) if e.raw_os_error() == Some(95) && family == AF_INET6 => Ok(Vec::new()),
                other => other,
            }
        };
        let mut both = |kind: u16| -> io::Result<Vec<Message>> {
            let mut found = dump(kind, AF_INET)?;
            found.extend(dump(kind, AF_INET6)?);
            Ok(found)
        };
        let addresses = both(RTM_GETADDR).map_err(what("addresses"))?;
        let routes = both(RTM_GETROUTE).map_err(what("routes"))?;
        let rules = both(RTM_GETRULE).map_err(what("rules"))?;
        let neighbours = both(RTM_GETNEIGH).map_err(what("neighbours"))?;
        let links = link::all(netlink).map_err(what("network devices"))?;
        Ok(Self { links, addresses, routes, rules, neighbours })
    }

    /// The link of this name or alternative name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|l| l.name == name || l.altnames.iter().any(|alt| alt == name))
    }

    /// Addresses of a link with their prefix lengths, as the kernel lists them.
    pub(crate) fn addresses_of(&self, index: u32) -> Vec<(IpAddr, u8)> {
        let its = self.addresses.iter().filter(|m| m.word(IFA_INDEX) == index);
        its.filter_map(|m| Some((local(m)?, m.byte(IFA_PREFIXLEN)))).collect()
    }

    /// The configuration of one link.
    pub fn state(&self, link: &Link) -> State {
        let index = link.index;
        let addresses = addresses(&self.addresses, index);
        let own: BTreeSet<IpAddr> = addresses.iter().filter_map(local).collect();
        let routes: Vec<Route> = self
            .routes
            .iter()
            .enumerate()
            .filter(|(_, route)| is_lost(route, index, &own))
            .map(|(position, route)| Route {
                position,
                message: clean_route(route),
                dead: is_dead(route),
            })
            .collect();
        let mentioned: BTreeSet<u32> = routes.iter().flat_map(|r| devices(&r.message)).collect();
        let is_connected = |route: &Message| {
            route.byte(RTM_PROTOCOL) == RTPROT_KERNEL
                && route.byte(RTM_TYPE) == RTN_UNICAST
                && route.u32(RTA_OIF) == Some(index)
        };
        let names = self.links.iter().filter(|l| mentioned.contains(&l.index));
        State {
            names: names.map(|l| (l.index, l.name.clone())).collect(),
            rules: self
                .rules
                .iter()
                .filter(|rule| mentions(rule, &link.name, &own))
                .map(clean_rule)
                .collect(),
            neighbours: self
                .neighbours
                .iter()
                .filter(|n| n.word(NDM_IFINDEX) == index && n.byte(NDM_STATE) & NUD_PERMANENT != 0)
                .map(clean_neighbour)
                .collect(),
            sysctls: sysctls(&link.name),
            rank: self.routes.iter().position(is_connected),
            addresses,
            routes,
            link: link.clone(),
        }
    }
}

impl State {
    /// IPv4 and IPv6 addresses with their prefix lengths; those that are local to the link last.
    pub fn ips(&self) -> Vec<(IpAddr, u8)> {
        let found = self.addresses.iter();
        let mut ips: Vec<_> =
            found.filter_map(|m| Some((local(m)?, m.byte(IFA_PREFIXLEN)))).collect();
        ips.sort_by_key(|(ip, _)| is_link_local(*ip));
        ips
    }

    /// The first difference to another state, as far as a NIC can be made to have it.
    pub(crate) fn difference(&self, now: &Self) -> Option<String> {
        let strip = |messages: &[Message]| -> Vec<Message> {
            messages.iter().map(|m| renumbered(m, &|_| 0)).map(without_lifetimes).collect()
        };
        let (a, b) = (&self.link, &now.link);
        if a.name != b.name {
            return Some(format!("it is called {}", b.name));
        }
        if a.mac != b.mac || a.mtu != b.mtu || a.txqlen != b.txqlen {
            return Some(format!("MAC {}, MTU {}, txqlen {}", b.mac, b.mtu, b.txqlen));
        }
        if a.alias != b.alias || a.altnames != b.altnames {
            return Some("another alias or other alternative names".to_owned());
        }
        if a.up != b.up {
            return Some(format!("it is {}", if b.up { "up" } else { "down" }));
        }
        let routes = |state: &Self| -> Vec<Message> {
            state.routes.iter().map(|route| route.message.clone()).collect()
        };
        let (before, after) = (routes(self), routes(now));
        let lists = [
            ("addresses", &self.addresses, &now.addresses),
            ("routes", &before, &after),
            ("rules", &self.rules, &now.rules),
            ("permanent neighbours", &self.neighbours, &now.neighbours),
        ];
        for (what, before, now) in lists {
            let (mut before, mut now) = (strip(before), strip(now));
            if what == "addresses" {
                // The kernel makes one when the link has a carrier, which the link may have got since.
                now.retain(|m| before.contains(m) || !is_link_local_v6(m));
            }
            if what == "routes" {
                // Several NICs' routes lie between one NIC's.
                before.sort_by_key(|m| format!("{m:?}"));
                now.sort_by_key(|m| format!("{m:?}"));
            }
            if before != now {
                return Some(differing(what, &before, &now));
            }
        }
        let differing = self
            .sysctls
            .iter()
            .find(|(path, value)| now.sysctls.get(*path).is_some_and(|other| other != *value));
        differing.map(|(path, value)| {
            let now = now.sysctls.get(path).map(String::as_str).unwrap_or_default();
            format!("net/{path} was {value}, and is {now}")
        })
    }
}

/// What two lists of messages do not have in common.
fn differing(what: &str, before: &[Message], now: &[Message]) -> String {
    let only = |these: &[Message], those: &[Message]| {
        let only = these.iter().filter(|message| !those.contains(message)).map(name);
        only.collect::<Vec<_>>().join(", ")
    };
    let (missing, new) = (only(before, now), only(now, before));
    let parts = [(missing, "missing"), (new, "new")];
    let parts = parts.iter().filter(|(names, _)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(names, how)| format!("{how} {what}: {names}")).collect();
    match parts.as_slice() {
        [] => format!("its {what} are in another order"),
        parts => parts.join("; "),
    }
}

/// An address, a route, a rule or a neighbour, in short.
fn name(message: &Message) -> String {
    match message.kind {
        RTM_NEWADDR => {
            let ip = local(message).map(|ip| ip.to_string()).unwrap_or_default();
            format!("{ip}/{}", message.byte(IFA_PREFIXLEN))
        }
        RTM_NEWROUTE => describe(message),
        RTM_NEWRULE => {
            let priority = message.u32(FRA_PRIORITY).unwrap_or_default();
            format!("{priority}, lookup {}", message.u32(FRA_TABLE).unwrap_or_default())
        }
        _ => message.ip(NDA_DST).map(|ip| ip.to_string()).unwrap_or_default(),
    }
}

fn addresses(all: &[Message], index: u32) -> Vec<Message> {
    let mine = all.iter().filter(|m| m.word(IFA_INDEX) == index);
    let made = |m: &&Message| {
        let flags = m.u32(IFA_FLAGS).unwrap_or_default();
        // A router's announcements bring these again.
        m.u8(IFA_PROTO) != Some(IFAPROT_KERNEL_RA)
            && (m.byte(0) == AF_INET || flags & IFA_F_TEMPORARY == 0)
    };
    let (v4, v6): (Vec<_>, Vec<_>) = mine.filter(made).partition(|m| m.byte(0) == AF_INET);
    // The kernel puts a new IPv6 address before others of its scope, so the last came first.
    v4.into_iter().chain(v6.into_iter().rev()).map(clean_address).collect()
}

fn is_link_local_v6(address: &Message) -> bool {
    address.byte(0) != AF_INET && local(address).is_some_and(is_link_local)
}

fn clean_address(message: &Message) -> Message {
    let mut clean = message.clone();
    clean.kind = RTM_NEWADDR;
    let flags = message.u32(IFA_FLAGS).unwrap_or_default() & ADDRESS_FLAGS;
    let [low, ..] = flags.to_le_bytes();
    clean.set_byte(IFA_HEADER_FLAGS, low);
    clean.set_u32(IFA_FLAGS, flags);
    if lifetimes(message).is_none_or(|lifetimes| lifetimes == (FOREVER, FOREVER)) {
        clean.remove(&[IFA_CACHEINFO]);
    }
    clean
}

/// Preferred and valid, in seconds.
fn lifetimes(message: &Message) -> Option<(u32, u32)> {
    let bytes = message.get(IFA_CACHEINFO)?;
    Some((to_u32(bytes.get(..4)?)?, to_u32(bytes.get(4..8)?)?))
}

fn without_lifetimes(mut message: Message) -> Message {
    if message.kind == RTM_NEWADDR {
        message.remove(&[IFA_CACHEINFO]);
    }
    message
}

/// Whether the route goes when this NIC does, and nobody brings it again.
fn is_lost(route: &Message, index: u32, own: &BTreeSet<IpAddr>) -> bool {
    let made_again =
        matches!(route.byte(RTM_PROTOCOL), RTPROT_KERNEL | RTPROT_REDIRECT | RTPROT_RA);
    let by_source = || {
        route.byte(0) == AF_INET
            && route.ip(RTA_PREFSRC).is_some_and(|source| own.contains(&source))
    };
    !made_again
        && route.word(RTM_FLAGS) & CLONED == 0
        && (devices(route).contains(&index) || by_source())
}

fn clean_neighbour(message: &Message) -> Message {
    let mut clean = message.clone();
    clean.kind = RTM_NEWNEIGH;
    clean.remove(&[NDA_CACHEINFO, NDA_PROBES]);
    clean
}

/// Whether a rule names the NIC or one of its addresses.
fn mentions(rule: &Message, name: &str, own: &BTreeSet<IpAddr>) -> bool {
    let by_name = [FRA_IIFNAME, FRA_OIFNAME].iter().any(|k| rule.text(*k).as_deref() == Some(name));
    by_name || [FRA_SRC, FRA_DST].iter().any(|k| rule.ip(*k).is_some_and(|ip| own.contains(&ip)))
}

/// Settings of a NIC of the thread's namespace.
pub(crate) fn sysctls(name: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for family in SYSCTLS {
        let dir = Path::new(PROC).join(family).join(name);
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            // Some cannot be read (stable_secret while there is none).
            if let Ok(value) = fs::read_to_string(entry.path()) {
                let path = format!("{family}/{}", entry.file_name().to_string_lossy());
                found.insert(path, value.trim_end().to_owned());
            }
        }
    }
    found
}

/// Path of a NIC's setting: `ipv4/conf/rp_filter` of eth0 is in ipv4/conf/eth0/rp_filter.
pub(crate) fn sysctl_path(path: &str, name: &str) -> std::path::PathBuf {
    let (family, key) = path.rsplit_once('/').unwrap_or((path, ""));
    Path::new(PROC).join(family).join(name).join(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(ip: &str) -> Message {
        let mut message = Message::new(RTM_NEWADDR);
        message.set_byte(0, AF_INET);
        message.set_byte(IFA_PREFIXLEN, 16);
        message.set_ip(IFA_LOCAL, ip.parse().unwrap());
        message
    }

    #[test]
    fn a_difference_names_what_is_missing_and_what_is_new() {
        let mut route = Message::new(RTM_NEWROUTE);
        route.set_byte(RTM_DST_LEN, 24);
        route.set_ip(RTA_DST, [192, 168, 1, 0].into());
        route.set_u32(RTA_TABLE, 100);
        let mut rule = Message::new(RTM_NEWRULE);
        rule.set_u32(FRA_PRIORITY, 1000);
        rule.set_u32(FRA_TABLE, 100);
        let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(address);
        let [one, two, three] = &all;
        let of = |before: &[&Message], now: &[&Message]| {
            let owned = |these: &[&Message]| these.iter().map(|m| (*m).clone()).collect::<Vec<_>>();
            differing("things", &owned(before), &owned(now))
        };
        assert_eq!(of(&[one, two], &[one]), "missing things: 10.0.0.2/16");
        assert_eq!(
            of(&[one, two], &[one, three]),
            "missing things: 10.0.0.2/16; new things: 10.0.0.3/16"
        );
        assert_eq!(of(&[one, two], &[two, one]), "its things are in another order");
        assert_eq!(of(&[&route], &[]), "missing things: 192.168.1.0/24 table 100");
        assert_eq!(of(&[], &[&rule]), "new things: 1000, lookup 100");
    }
}
