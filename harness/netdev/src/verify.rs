//! Verification of a move: by asking the network, not by assuming.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::time::Duration;
use std::time::Instant;

use verbgate_host::netlink::Netlink;
use verbgate_host::netns::Namespace;
use verbgate_host::route::is_link_local;
use verbgate_host::route::local;
use verbgate_host::route::network;
use verbgate_host::way;

use super::Error;
use super::journal::Journal;
use super::plan::open;
use super::probe;
use super::probe::Question;
use super::select::route_to;
use super::state::Snapshot;

/// Time for a network to let packets pass, where nobody grants more.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Time for an echo, all tries together.
const ECHO: Duration = Duration::from_secs(3);

/// An address, and whose it is.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The NIC, for people.
    pub nic: String,
    /// The address that is claimed.
    pub ip: IpAddr,
    /// The MAC address that must answer for it.
    pub mac: String,
}

/// The claims of a journal's NICs.
pub fn claims(journal: &Journal) -> Vec<Claim> {
    let up = journal.nics.iter().filter(|nic| nic.state.link.up && nic.state.link.carrier);
    let of = up.flat_map(|nic| {
        nic.state.ips().into_iter().filter(|(ip, _)| !is_link_local(*ip)).map(|(ip, _)| Claim {
            nic: nic.target_name.clone(),
            ip,
            mac: nic.state.link.mac.clone(),
        })
    });
    of.collect()
}

/// Checks from the thread's namespace that each address is answered for by its own NIC's MAC and by
/// no other; returns a pair of addresses, ours and theirs, for each that was found. Behind a gateway
/// nobody sees a MAC, so there the address must answer through the gateway.
pub fn resolve(claims: &[Claim], limit: Duration) -> Result<Vec<(IpAddr, IpAddr)>, Error> {
    let mut netlink = open()?;
    let snapshot = Snapshot::take(&mut netlink)?;
    let own: Vec<(String, IpAddr, u8)> = snapshot
        .links
        .iter()
        .filter(|link| link.up)
        .flat_map(|link| {
            let its = snapshot.addresses_of(link.index);
            its.into_iter().map(|(ip, length)| (link.name.clone(), ip, length))
        })
        .collect();
    let mut questions = Vec::new();
    let mut pairs = Vec::new();
    for claim in claims {
        let near = own.iter().find(|(_, ip, length)| {
            ip.is_ipv4() == claim.ip.is_ipv4()
                && network(*ip, *length) == network(claim.ip, *length)
        });
        let Some((device, source, _)) = near else {
            pairs.push((through_gateway(&mut netlink, &snapshot, claim, limit)?, claim.ip));
            continue;
        };
        pairs.push((*source, claim.ip));
        if let (IpAddr::V4(source), IpAddr::V4(target)) = (*source, claim.ip) {
            questions.push(Question { device: device.clone(), source, target });
        }
    }
    let answered = probe::who_has(&questions, limit)
        .map_err(|source| Error::netlink("send ARP requests".to_owned(), source))?;
    let expected: BTreeMap<Ipv4Addr, &Claim> = claims
        .iter()
        .filter_map(|claim| match claim.ip {
            IpAddr::V4(ip) => Some((ip, claim)),
            IpAddr::V6(_) => None,
        })
        .collect();
    for (ip, macs) in &answered {
        let Some(claim) = expected.get(ip) else { continue };
        let named: Vec<&str> = macs.iter().map(String::as_str).collect();
        let why = match named.as_slice() {
            [only] if *only == claim.mac => continue,
            [] => {
                format!(
                    "nobody answers for the NIC's address {ip}; check the cable and the switch \
                     port"
                )
            }
            others => format!(
                "for the NIC's address {ip} {} answer, and the NIC's own MAC is {}; does another \
                 host or NIC have this address?",
                others.join(" and "),
                claim.mac
            ),
        };
        return Err(Error::Nic { nic: claim.nic.clone(), why });
    }
    answers(claims, &pairs)?;
    Ok(pairs)
}

/// Checks that an address of another network answers by the way that the kernel chooses; returns the
/// address of this host that was asked from.
fn through_gateway(
    netlink: &mut Netlink,
    snapshot: &Snapshot,
    claim: &Claim,
    limit: Duration,
) -> Result<IpAddr, Error> {
    let ip = claim.ip;
    let failed = |why: String| Error::Nic { nic: claim.nic.clone(), why };
    let no_route = |e: io::Error| {
        failed(format!(
            "the peer has no address in the network of {ip}, and no route to {ip} ({e}); add a route \
             by the peer's gateway (ip route add)"
        ))
    };
    let way = way::to(netlink, ip, None).map_err(no_route)?;
    let link = snapshot.links.iter().find(|link| link.index == way.device);
    let device = link.map_or("?", |link| link.name.as_str());
    let source = way::source(netlink, ip).map_err(no_route)?.ok_or_else(|| {
        failed(format!("the peer has no address from which to reach {ip} by {device}"))
    })?;
    let until = Instant::now() + limit;
    loop {
        match probe::echoes(Some(source), ip, probe::SMALL, ECHO) {
            Ok(true) => return Ok(source),
            Ok(false) if Instant::now() < until => {}
            Ok(false) => break,
            Err(e) => return Err(failed(format!("cannot ping {ip} from {source}: {e}"))),
        }
    }
    let Some(gateway) = way.gateway else {
        return Err(failed(format!("nobody answers for the NIC's address {ip} on {device}")));
    };
    let resolved = way::neighbour(netlink, way.device, gateway).ok().flatten();
    Err(failed(match resolved {
        None => format!(
            "the peer's gateway {gateway} to {ip} does not answer on {device}; check the cable and \
             the switch port"
        ),
        Some(_) => format!(
            "{ip} does not answer {source} through the gateway {gateway}; check the routes between \
             the two networks, in both directions"
        ),
    }))
}

/// IPv6 asks by multicast and answers for a device's own addresses only, so there an answer is all
/// that there is to check.
fn answers(claims: &[Claim], pairs: &[(IpAddr, IpAddr)]) -> Result<(), Error> {
    for (claim, (from, to)) in claims.iter().zip(pairs).filter(|(claim, _)| claim.ip.is_ipv6()) {
        let why = match probe::echoes(Some(*from), *to, probe::SMALL, ECHO) {
            Ok(true) => continue,
            Ok(false) => format!("nobody answers for the NIC's address {to}"),
            Err(e) => format!("cannot ping {to} from {from}: {e}"),
        };
        return Err(Error::Nic { nic: claim.nic.clone(), why });
    }
    Ok(())
}

/// Checks in the container's namespace that each NIC reaches the peer from its own address.
pub fn reach(claims: &[Claim], pairs: &[(IpAddr, IpAddr)]) -> Result<(), Error> {
    let mut netlink = open()?;
    let links = super::plan::links()?;
    for (claim, (theirs, ours)) in claims.iter().zip(pairs) {
        let failed = |why: String| Error::Nic { nic: claim.nic.clone(), why };
        let device = route_to(&mut netlink, *theirs, Some(*ours));
        let by = links.iter().find(|link| Some(link.index) == device).map(|link| &link.name);
        if by != Some(&claim.nic) {
            let by = by.map_or("no device", String::as_str);
            return Err(failed(format!("packets from {ours} to {theirs} would leave by {by}")));
        }
        match probe::echoes(Some(*ours), *theirs, probe::SMALL, ECHO) {
            Ok(true) => {}
            Ok(false) => return Err(failed(format!("{theirs} does not answer {ours} (ping)"))),
            Err(e) => return Err(failed(format!("cannot ping {theirs} from {ours}: {e}"))),
        }
    }
    Ok(())
}

/// Both directions, from the namespace of a peer.
pub fn both(
    journal: &Journal,
    target: &Namespace,
    peer: &Namespace,
    limit: Duration,
) -> Result<(), Error> {
    let claims = claims(journal);
    let pairs = peer.within(|| resolve(&claims, limit.max(PATIENCE)))?;
    target.within(|| reach(&claims, &pairs))
}

/// The check that needs no peer: the NIC's addresses are routed by the NIC.
pub fn alone(journal: &Journal, target: &Namespace) -> Result<(), Error> {
    target.within(|| {
        let mut netlink = open()?;
        let links = super::plan::links()?;
        let own = Snapshot::take(&mut netlink)?;
        let own: Vec<IpAddr> = own.addresses.iter().filter_map(local).collect();
        for nic in journal.nics.iter().filter(|nic| nic.state.link.up && nic.table.is_some()) {
            for (ip, length) in nic.state.ips().into_iter().filter(|(ip, _)| !is_link_local(*ip)) {
                let Some(neighbour) = neighbour(ip, length, &own) else { continue };
                let device = route_to(&mut netlink, neighbour, Some(ip));
                let by = links.iter().find(|link| Some(link.index) == device);
                if by.is_none_or(|link| link.name != nic.target_name) {
                    let by = by.map_or("no device", |link| link.name.as_str());
                    let why =
                        format!("packets from {ip} to that address's network would leave by {by}");
                    return Err(Error::Nic { nic: nic.target_name.clone(), why });
                }
            }
        }
        Ok(())
    })
}

/// An address of a host in the network that nobody here has, if there is one.
fn neighbour(ip: IpAddr, length: u8, own: &[IpAddr]) -> Option<IpAddr> {
    let other = |n: u8| match ip {
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) ^ u32::from(n)).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) ^ u128::from(n)).into()),
    };
    let broadcast = |at: IpAddr| match at {
        IpAddr::V4(v4) => {
            let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            u32::from(v4) & host == host && length < 31
        }
        IpAddr::V6(_) => false,
    };
    let near = |at: &IpAddr| network(*at, length) == network(ip, length);
    // A network of two has no address of its own (RFC 3021, RFC 6164).
    let is_pair = length >= if ip.is_ipv4() { 31 } else { 127 };
    let is_host = |at: &IpAddr| (is_pair || network(*at, length) != *at) && !broadcast(*at);
    (1..=u8::MAX).map(other).find(|at| near(at) && is_host(at) && !own.contains(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ip: &str, length: u8, own: &[&str]) -> Option<String> {
        let own: Vec<IpAddr> = own.iter().map(|ip| ip.parse().unwrap()).collect();
        neighbour(ip.parse().unwrap(), length, &own).map(|ip| ip.to_string())
    }

    #[test]
    fn a_neighbour_is_a_host_that_nobody_here_is() {
        assert_eq!(of("10.0.0.1", 24, &["10.0.0.1", "10.0.0.3"]).as_deref(), Some("10.0.0.2"));
        assert_eq!(of("10.0.0.254", 24, &[]).as_deref(), Some("10.0.0.252"));
        assert_eq!(of("10.0.0.1", 30, &["10.0.0.2"]), None);
        assert_eq!(of("10.0.0.0", 31, &[]).as_deref(), Some("10.0.0.1"));
        assert_eq!(of("10.0.0.1", 32, &[]), None);
        assert_eq!(of("fd00::1", 64, &[]).as_deref(), Some("fd00::3"));
    }
}
