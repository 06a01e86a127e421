//! One NIC, one MAC: ARP and routing in the container such that each rail speaks for itself alone.
//!
//! With the kernel's defaults any NIC answers for any address of the host. So one of several NICs
//! in a subnet gets all the traffic, and RoCE frames that reach the wrong NIC are dropped.
//! `arp_filter` and strict `rp_filter` ask the routing table which NIC an address belongs to.
//! Without a table and a rule for each NIC, the answer is the first NIC for all addresses, so the
//! other NICs no longer answer. See Documentation/networking/ip-sysctl.rst.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use verbgate_host::netlink::Message;
use verbgate_host::route::Route;
use verbgate_host::route::connected;
use verbgate_host::route::device_rule;
use verbgate_host::route::devices;
use verbgate_host::route::hop_route;
use verbgate_host::route::hops;
use verbgate_host::route::is_link_local;
use verbgate_host::route::source_rule;
use verbgate_host::uapi::*;

use super::Error;
use super::state::Snapshot;
use super::state::State;

/// The first table and the first priority that are tried: above what people and distributions use,
/// below the main table's rule (32766).
const FIRST: u32 = 22_000;

/// The NIC's settings at home that matter in the container too: whether and how the NIC has IPv6 at
/// all.
const CARRIED: &[&str] = &[
    "ipv6/conf/accept_dad",
    "ipv6/conf/accept_ra",
    "ipv6/conf/addr_gen_mode",
    "ipv6/conf/autoconf",
    "ipv6/conf/disable_ipv6",
];

/// Ways to keep apart NICs that share a network in the container. The journal has these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arp {
    /// arp_announce 2, arp_ignore 1, arp_filter 1, rp_filter 1, and a routing table for each NIC
    Strict,
    /// arp_announce 2, arp_ignore 1, rp_filter 2, and no tables
    Loose,
}

fn settings(arp: Arp) -> &'static [(&'static str, &'static str)] {
    match arp {
        Arp::Strict => &[
            ("ipv4/conf/arp_announce", "2"),
            ("ipv4/conf/arp_filter", "1"),
            ("ipv4/conf/arp_ignore", "1"),
            ("ipv4/conf/rp_filter", "1"),
        ],
        Arp::Loose => &[
            ("ipv4/conf/arp_announce", "2"),
            ("ipv4/conf/arp_filter", "0"),
            ("ipv4/conf/arp_ignore", "1"),
            ("ipv4/conf/rp_filter", "2"),
        ],
    }
}

/// The NIC's settings in the container.
pub(crate) fn sysctls(home: &State, arp: Arp) -> BTreeMap<String, String> {
    let carried = CARRIED.iter().filter_map(|key| home.sysctls.get_key_value(*key));
    let mut wanted: BTreeMap<_, _> = carried.map(|(k, v)| (k.clone(), v.clone())).collect();
    wanted.extend(settings(arp).iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    wanted
}

/// Whether settings of the thread's whole namespace undo those of the NIC: for `arp_announce`,
/// `arp_ignore` and `rp_filter` the larger counts, for `arp_filter` either.
pub(crate) fn check_effective(arp: Arp) -> Result<(), Error> {
    let all = |key: &str| -> u32 {
        let text = fs::read_to_string(Path::new("/proc/sys/net/ipv4/conf/all").join(key));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    // 3 and more: addresses of some scopes, or all, are not answered for.
    if all("arp_ignore") > 2 {
        return Err(Error::Invalid(format!(
            "net.ipv4.conf.all.arp_ignore is {} in the container, so NICs would not answer for \
             their own addresses; set arp_ignore to 0 there",
            all("arp_ignore")
        )));
    }
    if arp == Arp::Loose && all("arp_filter") != 0 {
        return Err(Error::Invalid(
            "net.ipv4.conf.all.arp_filter is 1 in the container, which --arp loose cannot undo; \
             set arp_filter to 0 there, or use --arp strict"
                .to_owned(),
        ));
    }
    Ok(())
}

/// The number of a routing table, and of the rules that lead to it.
pub(crate) fn free_tables(target: &Snapshot, count: usize) -> Vec<u32> {
    let table = |m: &Message| m.u32(RTA_TABLE).unwrap_or_else(|| m.byte(RTM_TABLE).into());
    let taken = |n: u32| {
        target.routes.iter().any(|route| table(route) == n)
            || target
                .rules
                .iter()
                .any(|rule| rule.u32(FRA_PRIORITY) == Some(n) || rule.u32(FRA_TABLE) == Some(n))
    };
    (FIRST..).filter(|n| !taken(*n)).take(count).collect()
}

/// The rules that lead from a NIC's addresses, and from the NIC, to its table.
pub fn rules(home: &State, name: &str, table: u32) -> Vec<Message> {
    let mut ips: Vec<_> = home.ips();
    ips.retain(|(ip, _)| !is_link_local(*ip));
    let mut rules: Vec<Message> =
        ips.iter().map(|(ip, _)| source_rule(*ip, table, table)).collect();
    for family in [AF_INET, AF_INET6] {
        if rules.iter().any(|rule| rule.byte(0) == family) {
            rules.push(device_rule(family, name, table, table));
        }
    }
    rules
}

/// The routes of a NIC in the container: in its own table all that led through it, and in the main
/// table what stood there, but for a default route, which is the container's own business.
pub fn routes(home: &State, index: u32, table: Option<u32>) -> Vec<Route> {
    let mut found = Vec::new();
    let mut add = |message: Message| {
        let position = found.len();
        found.push(Route { position, message, dead: false });
    };
    if let Some(table) = table {
        for (ip, length) in home.ips() {
            let whole = if ip.is_ipv4() { 32 } else { 128 };
            if !is_link_local(ip) && length < whole {
                add(connected(ip, length, index, table));
            }
        }
    }
    for route in &home.routes {
        let Some(mine) = through(&route.message, home.link.index) else { continue };
        if let Some(table) = table {
            let mut own = mine.clone();
            own.set_byte(RTM_TABLE, 0);
            own.set_u32(RTA_TABLE, table);
            add(own);
        }
        let of_main = mine.u32(RTA_TABLE) == Some(RT_TABLE_MAIN.into());
        if of_main && mine.byte(RTM_DST_LEN) > 0 {
            add(mine);
        }
    }
    found
}

/// The part of a route that leads through this device.
fn through(route: &Message, device: u32) -> Option<Message> {
    if let Some(hop) = hops(route).iter().find(|hop| hop.device == device) {
        return Some(hop_route(route, hop));
    }
    devices(route).contains(&device).then(|| route.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_of_all_versions_have_the_same_words() {
        for (arp, word) in [(Arp::Strict, "\"strict\""), (Arp::Loose, "\"loose\"")] {
            assert_eq!(serde_json::to_string(&arp).unwrap(), word);
            assert_eq!(serde_json::from_str::<Arp>(word).unwrap(), arp);
        }
    }
}
