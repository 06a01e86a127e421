//! Configuration of a bare NIC: at home the configuration that the NIC had, in a container the
//! configuration that the NIC needs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use netlink_packet_core::NLM_F_APPEND;
use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_core::NLM_F_REPLACE;
use verbgate_host::link;
use verbgate_host::link::Link;
use verbgate_host::netlink::Message;
use verbgate_host::netlink::Netlink;
use verbgate_host::netlink::encode;
use verbgate_host::route::Route;
use verbgate_host::route::hops;
use verbgate_host::route::local;
use verbgate_host::route::renumbered;
use verbgate_host::uapi::*;

use super::Error;
use super::state::Snapshot;
use super::state::State;
use super::state::sysctl_path;

/// How long the kernel may take to make addresses usable that it need not defend: it does so in a
/// work queue.
const SETTLE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
/// Addresses that come home have no duplicates to look for; the setting is the NIC's own afterwards.
const ACCEPT_DAD: &str = "ipv6/conf/accept_dad";

const EEXIST: i32 = 17;

/// The input of `dress`.
#[derive(Debug)]
pub(crate) struct Wardrobe<'a> {
    pub netlink: &'a mut Netlink,
    pub link: Link,
}

impl Wardrobe<'_> {
    fn failed<'b>(&'b self, what: &'b str) -> impl FnOnce(io::Error) -> Error + 'b {
        move |source| {
            let what = format!("{what} of {}", self.link.name);
            Error::netlink(what, source)
        }
    }

    /// Takes all configuration from the NIC that a move would take.
    pub(crate) fn undress(&mut self) -> Result<(), Error> {
        let index = self.link.index;
        link::set_up(self.netlink, index, false).map_err(self.failed("set the state"))?;
        let now = Snapshot::take(self.netlink)?;
        for address in now.addresses.iter().filter(|m| m.word(IFA_INDEX) == index) {
            let mut removal = address.clone();
            removal.kind = RTM_DELADDR;
            match self.netlink.change(0, &removal) {
                // A primary address takes its secondary ones with it.
                Err(e) if e.raw_os_error() != Some(99) => {
                    return Err(self.failed("remove an address")(e));
                }
                _ => {}
            }
        }
        self.link.up = false;
        Ok(())
    }

    /// Gives the NIC name, hardware settings, sysctls, state, addresses and neighbours. Routes and
    /// rules come when all NICs have theirs, and [`finish`] when the links are there.
    pub(crate) fn dress(&mut self, name: &str, wanted: &State) -> Result<(), Error> {
        self.hardware(name, &wanted.link)?;
        let mut sysctls = wanted.sysctls.clone();
        if let Some(value) = sysctls.get_mut(ACCEPT_DAD) {
            "0".clone_into(value);
        }
        write_sysctls(name, &sysctls)?;
        if self.link.up != wanted.link.up {
            link::set_up(self.netlink, self.link.index, wanted.link.up)
                .map_err(self.failed("set the state"))?;
        }
        self.addresses(wanted)?;
        for neighbour in &wanted.neighbours {
            let neighbour = renumbered(neighbour, &|_| self.link.index);
            self.netlink
                .change(NLM_F_CREATE | NLM_F_REPLACE, &neighbour)
                .map_err(self.failed("set a permanent neighbour"))?;
        }
        Ok(())
    }

    fn hardware(&mut self, name: &str, wanted: &Link) -> Result<(), Error> {
        let is = self.link.clone();
        let mut change = link::change(is.index);
        let mut differs = false;
        let has_mac = wanted.mac.chars().any(|c| !matches!(c, '0' | ':'));
        if is.mac != wanted.mac && has_mac {
            // Many drivers take a MAC only while the NIC is down.
            link::set_up(self.netlink, is.index, false).map_err(self.failed("set the state"))?;
            self.link.up = false;
            change.set(IFLA_ADDRESS, link::mac_bytes(&wanted.mac).unwrap_or_default());
            differs = true;
        }
        if is.name != name {
            change.set_text(IFLA_IFNAME, name);
            differs = true;
        }
        if is.mtu != wanted.mtu {
            change.set_u32(IFLA_MTU, wanted.mtu);
            differs = true;
        }
        if is.txqlen != wanted.txqlen {
            change.set_u32(IFLA_TXQLEN, wanted.txqlen);
            differs = true;
        }
        if is.alias != wanted.alias {
            change.set_text(IFLA_IFALIAS, wanted.alias.as_deref().unwrap_or_default());
            differs = true;
        }
        if differs {
            self.netlink
                .change(0, &change)
                .map_err(self.failed("set name, MTU or queue length"))?;
            name.clone_into(&mut self.link.name);
        }
        for missing in wanted.altnames.iter().filter(|alt| !is.altnames.contains(alt)) {
            let mut message = Message::new(RTM_NEWLINKPROP);
            message.set_word(IFI_INDEX, is.index);
            let text = [missing.as_bytes(), &[0]].concat();
            message.set(IFLA_PROP_LIST | NLA_F_NESTED, encode(&[(IFLA_ALT_IFNAME, text)]));
            self.netlink
                .change(NLM_F_CREATE, &message)
                .map_err(self.failed("set an alternative name"))?;
        }
        Ok(())
    }

    fn addresses(&mut self, wanted: &State) -> Result<(), Error> {
        let index = self.link.index;
        // A link-local address with these has a flag that cannot be asked for.
        let secret = wanted
            .sysctls
            .get("ipv6/conf/addr_gen_mode")
            .is_some_and(|mode| mode == "2" || mode == "3");
        for address in &wanted.addresses {
            if secret && wanted.link.up && address.u8(IFA_PROTO) == Some(IFAPROT_KERNEL_LL) {
                self.await_link_local(address)?;
            }
            let address = renumbered(address, &|_| index);
            match self.netlink.change(NLM_F_CREATE, &address) {
                Err(e) if e.raw_os_error() != Some(EEXIST) => {
                    let ip = local(&address).map(|ip| ip.to_string()).unwrap_or_default();
                    return Err(self.failed(&format!("add the address {ip}"))(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn await_link_local(&mut self, address: &Message) -> Result<(), Error> {
        let until = Instant::now() + SETTLE;
        let index = self.link.index;
        let is_it = |m: &Message| m.word(IFA_INDEX) == index && local(m) == local(address);
        while !Snapshot::take(self.netlink)?.addresses.iter().any(is_it) && Instant::now() < until {
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// The steps that are possible only when the links are there, because the kernel changes settings
/// then: among them the settings of duplicate address detection.
pub(crate) fn finish(netlink: &mut Netlink, nics: &[(&str, &State)]) -> Result<(), Error> {
    let until = Instant::now() + SETTLE;
    loop {
        let now = Snapshot::take(netlink)?;
        let waiting = nics.iter().any(|(name, _)| {
            let link = now.link(name).filter(|link| link.up && link.carrier);
            link.is_some_and(|link| {
                let its = now.addresses.iter().filter(|m| m.word(IFA_INDEX) == link.index);
                its.filter_map(|m| m.u32(IFA_FLAGS)).any(|flags| flags & IFA_F_TENTATIVE != 0)
            })
        });
        if !waiting || Instant::now() > until {
            break;
        }
        thread::sleep(PAUSE);
    }
    nics.iter().try_for_each(|(name, wanted)| write_sysctls(name, &wanted.sysctls))
}

/// Writes the settings that are not so already.
pub(crate) fn write_sysctls(name: &str, wanted: &BTreeMap<String, String>) -> Result<(), Error> {
    for (key, value) in wanted {
        let path = sysctl_path(key, name);
        let failed = |source| Error::file(path.clone(), source);
        match fs::read_to_string(&path) {
            Ok(now) if now.trim_end() == value => {}
            // Such as this kernel does not have, or has for another kind of device.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            _ => fs::write(&path, value).map_err(failed)?,
        }
    }
    Ok(())
}

/// Adds routes, those that need others after those; says which could not be added.
pub(crate) fn add_routes(
    netlink: &mut Netlink,
    routes: &[Route],
    number: &dyn Fn(u32) -> u32,
) -> Result<Vec<String>, Error> {
    let mut ordered: Vec<&Route> = routes.iter().collect();
    ordered.sort_by_key(|route| route.position);
    let mut pending: Vec<Message> =
        ordered.iter().map(|route| renumbered(&route.message, number)).collect();
    pending.dedup();
    loop {
        let mut failed = Vec::new();
        let mut why = Vec::new();
        let before = pending.len();
        for route in pending {
            match add_route(netlink, &route)? {
                Ok(()) => {}
                Err(e) => {
                    why.push(format!("{}: {e}", describe(&route)));
                    failed.push(route);
                }
            }
        }
        if failed.is_empty() || failed.len() == before {
            return Ok(why);
        }
        pending = failed;
    }
}

fn add_route(netlink: &mut Netlink, route: &Message) -> Result<io::Result<()>, Error> {
    let mut flags = NLM_F_CREATE | NLM_F_APPEND;
    if route.byte(0) == AF_INET6 && !hops(route).is_empty() {
        // The hops that did not go with the NIC are still a route; this one is all of it. Nothing
        // else may be replaced: a route there that has other hops is somebody else's.
        if let Some(rest) = remainder(netlink, route)? {
            let ours = hops(route);
            let gateways = |m: &Message| -> Vec<(u32, Vec<u8>)> {
                hops(m).into_iter().map(|hop| (hop.device, hop.rest)).collect()
            };
            let known = gateways(route);
            let single = (rest.u32(RTA_OIF).unwrap_or_default(), rest.get(RTA_GATEWAY));
            let is_part = match hops(&rest).len() {
                0 => ours.iter().any(|hop| {
                    let hop = verbgate_host::route::hop_route(route, hop);
                    (hop.u32(RTA_OIF).unwrap_or_default(), hop.get(RTA_GATEWAY)) == single
                }),
                _ => gateways(&rest).iter().all(|hop| known.contains(hop)),
            };
            if is_part {
                flags = NLM_F_CREATE | NLM_F_REPLACE;
            }
        }
    }
    Ok(match netlink.change(flags, route) {
        Err(e) if e.raw_os_error() == Some(EEXIST) => Ok(()),
        other => other,
    })
}

/// The route to the same destination, in the same table and with the same metric, if there is one.
fn remainder(netlink: &mut Netlink, route: &Message) -> Result<Option<Message>, Error> {
    const RTA_PRIORITY: u16 = 6;
    let key = |m: &Message| {
        let bytes = |kind| m.get(kind).map(<[u8]>::to_vec);
        (m.byte(0), m.byte(RTM_DST_LEN), bytes(RTA_DST), bytes(RTA_TABLE), bytes(RTA_PRIORITY))
    };
    let all = Snapshot::take(netlink)?.routes;
    Ok(all.into_iter().find(|other| key(other) == key(route)))
}

/// Rules of a state that are not there are added.
pub(crate) fn add_rules(netlink: &mut Netlink, rules: &[Message]) -> Result<(), Error> {
    for rule in rules {
        match netlink.change(NLM_F_CREATE | netlink_packet_core::NLM_F_EXCL, rule) {
            Err(e) if e.raw_os_error() != Some(EEXIST) => {
                return Err(Error::netlink("add a routing rule".to_owned(), e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes rules; those that are not there are none to remove.
pub(crate) fn remove_rules(netlink: &mut Netlink, rules: &[Message]) -> Result<(), Error> {
    for rule in rules {
        let mut removal = rule.clone();
        removal.kind = RTM_DELRULE;
        match netlink.change(0, &removal) {
            Err(e) if e.raw_os_error() != Some(2) => {
                return Err(Error::netlink("remove a routing rule".to_owned(), e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A route as ip-route(8) would write it, in short.
pub fn describe(route: &Message) -> String {
    let to = match route.ip(RTA_DST) {
        Some(ip) => format!("{ip}/{}", route.byte(RTM_DST_LEN)),
        None => "default".to_owned(),
    };
    let via = route.ip(RTA_GATEWAY).map_or_else(String::new, |ip| format!(" via {ip}"));
    let count = hops(route).len();
    let hops = if count > 0 { format!(" over {count} hops") } else { String::new() };
    let table = route.u32(RTA_TABLE).unwrap_or_else(|| route.byte(RTM_TABLE).into());
    format!("{to}{via}{hops} table {table}")
}
