//! How a rail reaches its peers, and who answers for its address: neighbours, routes, and ARP.

use std::fs;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;

use super::Check;
use super::Said;
use super::Verdict;
use super::fail;
use super::gid;
use super::ok;
use super::port;
use super::skip;
use crate::fabric::cause::Cause;
use crate::fabric::rail::Choice;
use crate::fabric::rail::Rail;
use crate::fabric::rendezvous::Entry;
use crate::fabric::rendezvous::Table;

/// How long a neighbour may take to answer: the kernel asks three times, a second apart.
const RESOLVE: Duration = Duration::from_secs(4);
const POLL: Duration = Duration::from_millis(50);
/// The discard protocol, which nobody serves: what is sent there makes the kernel resolve the
/// address.
const DISCARD: u16 = 9;

/// One check of each peer's rail; the first that failed, else what the last said.
pub(super) fn of_peers(me: &Entry, table: &Table, index: usize, check: OfPeer) -> Said {
    let Some(mine) = me.rails.get(index) else { return skip("no such rail") };
    if !mine.is_roce() {
        return skip("not of Ethernet");
    }
    let mut last = skip("no other rank");
    for entry in table.entries.iter().filter(|entry| entry.rank != me.rank) {
        let Some(theirs) = entry.rails.get(index) else { continue };
        let Some(mut said) = of_peer(mine, theirs, check) else { continue };
        if said.verdict == Verdict::Fail {
            said.detail = format!("rank {}: {}", entry.rank, said.detail);
            said.peer = Some(entry.rank);
            return said;
        }
        last = said;
    }
    last
}

/// How a rail's peer is reached.
pub(super) type OfPeer = fn(&Rail, &Rail, IpAddr, IpAddr) -> Said;

/// None: one of them has no address, which another check tells.
fn of_peer(mine: &Rail, theirs: &Rail, check: OfPeer) -> Option<Said> {
    let (from, to) = (mine.address()?, theirs.address()?);
    if from.is_ipv4() != to.is_ipv4() {
        return Some(skip("addresses of two families"));
    }
    Some(check(mine, theirs, from, to))
}

/// What can be looked at again once a path has failed: whether the port is still up, and how the
/// peer is reached now.
pub(crate) fn again(rank: u32, index: usize, mine: &Rail, peer: &Entry) -> Vec<Check> {
    let choice =
        Choice { device: mine.device.clone(), port: mine.port, gid_index: Some(mine.gid_index) };
    let (now, _) = Rail::look(&choice);
    let rail = Some(index);
    let mut checks = Vec::new();
    match &now.fault {
        Some(why) => {
            let opens = fail(Cause::NoDevice, why.clone());
            checks.push(opens.check(rank, rail, "device opens"));
            return checks;
        }
        None => checks.push(port(&now).check(rank, rail, "port active")),
    }
    if now.gid == mine.gid {
        checks.push(gid(&now).check(rank, rail, "GID"));
    } else {
        let changed = format!("index {} was {}, and is {} now", mine.gid_index, mine.gid, now.gid);
        checks.push(fail(Cause::WrongGid, changed).check(rank, rail, "GID"));
    }
    let Some(theirs) = peer.rails.get(index).filter(|_| now.is_roce()) else { return checks };
    let each: [(&str, OfPeer); 2] = [("neighbours", neighbour), ("routes", route)];
    for (name, check) in each {
        if let Some(mut said) = of_peer(&now, theirs, check) {
            said.peer = Some(peer.rank);
            said.detail = format!("rank {}: {}", peer.rank, said.detail);
            checks.push(said.check(rank, rail, name));
        }
    }
    checks
}

/// An address of a network device.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Local {
    netdev: String,
    address: Ipv4Addr,
    prefix: u32,
}

impl Local {
    fn holds(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32_u32.saturating_sub(self.prefix)).unwrap_or(0);
        u32::from(self.address) & mask == u32::from(address) & mask
    }
}

/// All of this network namespace, of devices that are up (`ip -j -4 address show up`).
fn locals() -> Result<Vec<Local>, String> {
    let mut locals = Vec::new();
    for link in ip(&["-4", "address", "show", "up"])?.as_array().into_iter().flatten() {
        let netdev = link.get("ifname").and_then(Value::as_str).unwrap_or_default();
        for entry in link.get("addr_info").and_then(Value::as_array).into_iter().flatten() {
            let text = entry.get("local").and_then(Value::as_str);
            let prefix = entry.get("prefixlen").and_then(Value::as_u64);
            let prefix = prefix.and_then(|prefix| u32::try_from(prefix).ok());
            if let (Some(Ok(address)), Some(prefix)) = (text.map(str::parse), prefix) {
                locals.push(Local { netdev: netdev.to_owned(), address, prefix });
            }
        }
    }
    Ok(locals)
}

/// Whoever asks for the rail's address must hear of the rail's MAC, and by default every NIC that
/// hears the question answers: which answer counts is chance, so it may look well for a while.
pub(super) fn answers(rank: u32, mine: &Rail) -> Said {
    let (Some(netdev), Some(IpAddr::V4(address))) = (&mine.netdev, mine.address()) else {
        return skip("of IPv4 on Ethernet alone");
    };
    let locals = match locals() {
        Ok(locals) => locals,
        Err(why) => return skip(why),
    };
    match stranger(netdev, address, &locals, ignores) {
        None => ok(format!("{netdev} alone")),
        Some(other) => {
            let mut said = fail(
                Cause::ArpFlux,
                format!(
                    "{} is on the same network and answers for {address} of {netdev}, too (arp_ignore \
                 is 0): ARP flux: set arp_ignore=1 and arp_announce=2 on its NICs, then `ip \
                 neighbour flush all` on the others",
                    other.netdev
                ),
            );
            said.peer = Some(rank);
            said
        }
    }
}

/// Another device that answers for the address, if there is one.
fn stranger<'a>(
    netdev: &str,
    address: Ipv4Addr,
    locals: &'a [Local],
    ignores: impl Fn(&str) -> bool,
) -> Option<&'a Local> {
    locals
        .iter()
        .find(|other| other.netdev != netdev && other.holds(address) && !ignores(&other.netdev))
}

/// Whether a device answers for its own addresses alone (`arp_ignore`, ip-sysctl.rst: the larger of
/// the device's and that of all counts).
fn ignores(netdev: &str) -> bool {
    let read = |of: &str| {
        let file = Path::new("/proc/sys/net/ipv4/conf").join(of).join("arp_ignore");
        fs::read_to_string(file).ok()?.trim().parse::<u32>().ok()
    };
    // Where it cannot be read nothing is said.
    read("all").max(read(netdev)).is_none_or(|value| value > 0)
}

/// What `ip -j` answers.
fn ip(arguments: &[&str]) -> Result<Value, String> {
    let output = Command::new("ip").arg("-j").args(arguments).output();
    let output = output.map_err(|e| format!("needs the program ip (package iproute2): {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if !output.status.success() {
        return Err(format!("`ip {}` says: {said}", arguments.join(" ")));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("ip -j: {e}"))
}

/// The address that the peer says it owns must resolve to the MAC that it says it has: otherwise
/// another NIC of it answers (ARP flux), and what is sent is dropped until retries are exceeded.
pub(super) fn neighbour(mine: &Rail, theirs: &Rail, from: IpAddr, to: IpAddr) -> Said {
    let (Some(netdev), Some(mac)) = (&mine.netdev, &theirs.mac) else {
        return skip("no network device");
    };
    if is_local(to) {
        return ok("the same host");
    }
    let target = to.to_string();
    let deadline = Instant::now() + RESOLVE;
    let poke = || UdpSocket::bind((from, 0)).and_then(|s| s.send_to(&[0], (to, DISCARD)));
    let mut found = None;
    while found.is_none() && Instant::now() < deadline {
        // It fails when there is no route, which the next check tells.
        let _ = poke();
        match ip(&["neighbour", "show", "to", &target, "dev", netdev]) {
            Err(why) => return skip(why),
            Ok(entries) => {
                let first = entries.get(0).and_then(|entry| entry.get("lladdr"));
                found = first.and_then(Value::as_str).map(str::to_owned);
            }
        }
        if found.is_none() {
            thread::sleep(POLL);
        }
    }
    match found {
        Some(found) if found == *mac => ok(format!("{to} is {mac}")),
        Some(found) => fail(
            Cause::ArpFlux,
            format!(
                "{to} resolves to {found}, and its owner says it is {mac}: ARP flux: set arp_ignore=1 \
             and arp_announce=2 on its NICs, then `ip neighbour flush all`"
            ),
        ),
        None => fail(
            Cause::NoNeighbour,
            format!("{to} does not answer on {netdev}: look at the cable, the VLAN and the switch"),
        ),
    }
}

/// What is sent from the rail's address must leave by the rail.
pub(super) fn route(mine: &Rail, _: &Rail, from: IpAddr, to: IpAddr) -> Said {
    let Some(netdev) = &mine.netdev else { return skip("no network device") };
    if is_local(to) {
        return ok("the same host");
    }
    match ip(&["route", "get", &to.to_string(), "from", &from.to_string()]) {
        Err(why) if why.contains("package iproute2") => skip(why),
        Err(why) => {
            let remedy = format!("give {netdev} a routing table and a source rule for {from}");
            fail(Cause::WrongRoute, format!("{why}: {remedy}"))
        }
        Ok(routes) => {
            let first = routes.get(0).and_then(|route| route.get("dev"));
            match first.and_then(Value::as_str) {
                Some(found) if found == netdev => ok(format!("{to} by {netdev}")),
                Some(found) => fail(
                    Cause::WrongRoute,
                    format!(
                        "{to} from {from} leaves by {found}, not by {netdev}: give {netdev} a routing \
                     table and a source rule for {from}"
                    ),
                ),
                None => skip(format!("ip names no device: {routes}")),
            }
        }
    }
}

/// Whether an address is this host's own: only those can be bound to.
fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_on_the_same_network_answers_unless_it_is_told_not_to() {
        let local = |netdev: &str, address: &str, prefix| Local {
            netdev: netdev.to_owned(),
            address: address.parse().unwrap(),
            prefix,
        };
        let locals = [
            local("lo", "127.0.0.1", 8),
            local("a", "10.0.0.1", 24),
            local("b", "10.0.0.2", 24),
            local("c", "10.1.0.1", 16),
        ];
        let of = |netdev, address: &str, ignores: bool| {
            let found = stranger(netdev, address.parse().unwrap(), &locals, |_| ignores);
            found.map(|local| local.netdev.clone())
        };
        assert_eq!(of("a", "10.0.0.1", false).as_deref(), Some("b"));
        assert_eq!(of("b", "10.0.0.2", false).as_deref(), Some("a"));
        assert_eq!(of("a", "10.0.0.1", true), None);
        assert_eq!(of("c", "10.1.0.1", false), None);
        assert!(local("d", "0.0.0.0", 0).holds(Ipv4Addr::new(1, 2, 3, 4)));
    }
}
