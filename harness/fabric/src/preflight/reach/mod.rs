//! The way from a rail to its peers, and who answers for the rail's address: neighbours, routes,
//! and ARP.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use nix::net::if_::if_indextoname;
use nix::net::if_::if_nametoindex;
use verbgate_host::link;
use verbgate_host::netlink::Message;
use verbgate_host::netlink::Netlink;
use verbgate_host::route;
use verbgate_host::uapi::*;
use verbgate_host::way;
use verbgate_host::way::Way;

use super::Check;
use super::Said;
use super::Verdict;
use super::fail;
use super::gid;
use super::ok;
use super::port;
use super::skip;
use crate::cause::Cause;
use crate::rail::Choice;
use crate::rail::Rail;
use crate::rendezvous::Entry;
use crate::rendezvous::Table;

/// How long a neighbour may take to answer: the kernel asks three times, a second apart.
const RESOLVE: Duration = Duration::from_secs(4);
/// How long somebody may take to answer who has answered before, when time is up already.
const ANSWER: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);
/// The discard protocol, which nobody serves: what is sent there makes the kernel resolve the
/// address.
const DISCARD: u16 = 9;

/// One check of each peer's rail: all that failed, or else what the last said.
pub(super) fn of_peers(me: &Entry, table: &Table, index: usize, check: OfPeer) -> Vec<Said> {
    let Some(mine) = me.rails.get(index) else { return vec![skip("no such rail")] };
    if !mine.is_roce() {
        return vec![skip("not of Ethernet")];
    }
    let peers = table.entries.iter().filter(|entry| entry.rank != me.rank);
    let peers: Vec<(u32, &Rail)> =
        peers.filter_map(|entry| Some((entry.rank, entry.rails.get(index)?))).collect();
    // All are asked for at once, so that those who do not answer take the time of one.
    let deadline = Instant::now() + RESOLVE;
    let from = mine.address();
    let theirs = peers.iter().filter_map(|(_, rail)| rail.address());
    from.into_iter().for_each(|from| ask_all(from, theirs.clone()));
    let (mut failed, mut last) = (Vec::new(), skip("no other rank"));
    for (rank, theirs) in peers {
        let Some(mut said) = of_peer(mine, theirs, deadline, check) else { continue };
        if said.verdict == Verdict::Fail {
            said.of_peer(rank);
            let again = said.own && failed.iter().any(|other: &Said| other.detail == said.detail);
            failed.extend(Some(said).filter(|_| !again));
        } else {
            last = said;
        }
    }
    if failed.is_empty() { vec![last] } else { failed }
}

/// How a rail's peer is reached, as far as is known at this time.
pub(super) type OfPeer = fn(&Rail, &Rail, (IpAddr, IpAddr), Instant) -> Said;

/// None: one of them has no address, which another check tells.
fn of_peer(mine: &Rail, theirs: &Rail, deadline: Instant, check: OfPeer) -> Option<Said> {
    let (from, to) = (mine.address()?, theirs.address()?);
    if from.is_ipv4() != to.is_ipv4() {
        return Some(skip("addresses of two families"));
    }
    Some(check(mine, theirs, (from, to), deadline))
}

/// Makes the kernel ask for all of these, or for their gateways, and for those again of whom it
/// has an answer that may be old. Without the right to ask again, an old answer counts.
fn ask_all(from: IpAddr, theirs: impl Iterator<Item = IpAddr>) {
    let mut netlink = Netlink::route().ok();
    let mut asked = BTreeSet::new();
    for to in theirs {
        nudge(from, to);
        let Some(netlink) = &mut netlink else { continue };
        let Ok(way) = way::to(netlink, to, Some(from)) else { continue };
        let next = (way.device, way.gateway.unwrap_or(to));
        if asked.insert(next) {
            way::ask_again(netlink, next.0, next.1);
        }
    }
}

/// Makes the kernel ask for an address, or for the gateway's; what becomes of the packet does not
/// matter.
fn nudge(from: IpAddr, to: IpAddr) {
    let _ = UdpSocket::bind((from, 0)).and_then(|s| s.send_to(&[0], (to, DISCARD)));
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
    now.address().into_iter().for_each(|from| ask_all(from, theirs.address().into_iter()));
    for (name, check) in each {
        if let Some(mut said) = of_peer(&now, theirs, Instant::now() + RESOLVE, check) {
            said.of_peer(peer.rank);
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

/// All of this network namespace, of devices that are up.
fn locals() -> io::Result<Vec<Local>> {
    let mut netlink = Netlink::route()?;
    let links = link::all(&mut netlink)?;
    let mut message = Message::new(RTM_GETADDR);
    message.set_byte(0, AF_INET);
    let of = |message: &Message| {
        let index = message.word(IFA_INDEX);
        let link = links.iter().find(|link| link.index == index && link.up)?;
        let Some(IpAddr::V4(address)) = route::local(message) else { return None };
        let prefix = message.byte(IFA_PREFIXLEN).into();
        Some(Local { netdev: link.name.clone(), address, prefix })
    };
    Ok(netlink.dump(&message)?.iter().filter_map(of).collect())
}

/// Whoever asks for the rail's address must hear of the rail's MAC, and by default every NIC that
/// hears the question answers: which answer counts is chance, so it may look well for a while.
pub(super) fn answers(rank: u32, mine: &Rail) -> Said {
    let (Some(netdev), Some(IpAddr::V4(address))) = (&mine.netdev, mine.address()) else {
        return skip("of IPv4 on Ethernet alone");
    };
    let locals = match locals() {
        Ok(locals) => locals,
        Err(error) => return unasked(&error),
    };
    match stranger(netdev, address, &locals, ignores) {
        None => ok(format!("{netdev} alone")),
        Some(other) => {
            let mut said = fail(
                Cause::ArpFlux,
                format!(
                    "{} is on the same network and answers for {address} of {netdev}, too \
                     (arp_ignore is 0): ARP flux: set arp_ignore=1 and arp_announce=2 on this \
                     rank's NICs, then `ip neighbour flush all` on the others",
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

/// A check that cannot be made, because the kernel is not to be asked.
fn unasked(error: &io::Error) -> Said {
    skip(format!("the kernel does not tell (route netlink): {error}"))
}

/// Whoever is asked for the peer's MAC must answer. On the rail's own network that is the peer, with
/// the MAC that it says it has: otherwise another NIC of it answers (ARP flux), and what is sent is
/// dropped until retries are exceeded. Behind a router it is the gateway, and its MAC is no peer's.
pub(super) fn neighbour(
    mine: &Rail,
    theirs: &Rail,
    (from, to): (IpAddr, IpAddr),
    deadline: Instant,
) -> Said {
    let (Some(netdev), Some(mac)) = (&mine.netdev, &theirs.mac) else {
        return skip("no network device");
    };
    if is_local(to) {
        return ok("the same host");
    }
    let mut netlink = match Netlink::route() {
        Ok(netlink) => netlink,
        Err(error) => return unasked(&error),
    };
    let way = match way::to(&mut netlink, to, Some(from)) {
        Ok(way) if is_called(way.device, netdev) => way,
        _ => return skip(format!("{to} is not reached by {netdev}: see the routes")),
    };
    let asked = way.gateway.unwrap_or(to);
    let found = match resolve(&mut netlink, way.device, asked, (from, to), deadline) {
        Ok(found) => found,
        Err(error) => return unasked(&error),
    };
    match (found, way.gateway) {
        (Some(found), Some(gateway)) => ok(format!("{to} through {gateway}, which is {found}")),
        (Some(found), None) if found == *mac => ok(format!("{to} is {mac}")),
        (Some(found), None) => fail(
            Cause::ArpFlux,
            format!(
                "{to} resolves to {found}, and the peer's MAC is {mac}: ARP flux: set arp_ignore=1 \
             and arp_announce=2 on the peer's NICs, then `ip neighbour flush all`"
            ),
        ),
        (None, Some(gateway)) => {
            let what = format!(
                "the gateway {gateway} of {netdev}, by which {to} is reached, does not answer: \
                 look at the cable, the VLAN, and the switch's address"
            );
            Said { own: true, ..fail(Cause::NoNeighbour, what) }
        }
        (None, None) => fail(
            Cause::NoNeighbour,
            format!("{to} does not answer on {netdev}: look at the cable, the VLAN and the switch"),
        ),
    }
}

/// Who answers for a neighbour, once packets from one address to another have made the kernel ask.
/// Once the neighbour is asked again, only a new answer counts.
fn resolve(
    netlink: &mut Netlink,
    device: u32,
    asked: IpAddr,
    (from, to): (IpAddr, IpAddr),
    deadline: Instant,
) -> io::Result<Option<String>> {
    let began = Instant::now();
    loop {
        nudge(from, to);
        let found = way::neighbour(netlink, device, asked)?;
        let outstanding = found.as_ref().is_some_and(|found| found.asked_again);
        let until = if outstanding { deadline.max(began + ANSWER) } else { deadline };
        let found = found.filter(|_| !outstanding).map(|found| found.mac);
        if found.is_some() || Instant::now() >= until {
            return Ok(found);
        }
        thread::sleep(POLL);
    }
}

/// What is sent from the rail's address must leave by the rail.
pub(super) fn route(mine: &Rail, _: &Rail, (from, to): (IpAddr, IpAddr), _: Instant) -> Said {
    let Some(netdev) = &mine.netdev else { return skip("no network device") };
    if is_local(to) {
        return ok("the same host");
    }
    let mut netlink = match Netlink::route() {
        Ok(netlink) => netlink,
        Err(error) => return unasked(&error),
    };
    let remedy = format!("give {netdev} a routing table and a source rule for {from}");
    match way::to(&mut netlink, to, Some(from)) {
        Err(error) => {
            let what = format!("there is no route to {to} from {from} ({error}): {remedy}");
            fail(Cause::WrongRoute, what)
        }
        Ok(Way { device, gateway }) if is_called(device, netdev) => {
            let through = gateway.map_or_else(String::new, |gateway| format!(" through {gateway}"));
            ok(format!("{to} by {netdev}{through}"))
        }
        Ok(Way { device, .. }) => {
            let name = if_indextoname(device).ok().and_then(|name| name.into_string().ok());
            let name = name.unwrap_or_else(|| format!("device {device}"));
            let what = format!("{to} from {from} leaves by {name}, not by {netdev}: {remedy}");
            fail(Cause::WrongRoute, what)
        }
    }
}

fn is_called(device: u32, netdev: &str) -> bool {
    if_nametoindex(netdev).is_ok_and(|index| index == device)
}

/// Whether an address is this host's own: only those can be bound to.
fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests;
