//! A link upon a NIC: made, configured, and taken away.

use std::net::IpAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_core::NLM_F_EXCL;
use verbgate_host::link;
use verbgate_host::link::Link;
use verbgate_host::netlink::Message;
use verbgate_host::netns::Namespace;
use verbgate_host::route::Route;
use verbgate_host::route::family;
use verbgate_host::uapi::*;
use verbgate_sysfs::discover::PortDir;

use super::journal::Share;
use super::wanted::Wanted;
use crate::Error;
use crate::announce;
use crate::dress;
use crate::plan;
use crate::plan::open;
use crate::state::Snapshot;
use crate::strict;
use crate::transfer::PAUSE;
use crate::transfer::fence;
use crate::transfer::is_gid_of;
use crate::transfer::lift;

/// Puts the fence around the container's namespace, makes a link there and configures the link.
pub(super) fn make(
    share: &mut Share,
    nic: &Link,
    wanted: &Wanted,
    target: &Namespace,
) -> Result<(), Error> {
    let (kind, name) = (share.kind.name(), share.name.clone());
    let data = [share.kind.data()];
    target.within(|| fence(&name))?;
    link::make_upon(&mut open()?, nic.index, target, &name, kind, &data).map_err(|source| {
        let hint = match source.raw_os_error() {
            // EBUSY: the NIC's receive handler is somebody else's.
            Some(16) => " (has the NIC links of the other kind, or is it in a bridge?)",
            // EOPNOTSUPP
            Some(95) => " (is the kernel module missing? modprobe)",
            _ => "",
        };
        Error::netlink(format!("make the {kind} {name} upon {}{hint}", nic.name), source)
    })?;
    let (addresses, table) = (share.addresses.clone(), share.table);
    share.rules = target.within(|| dressed(&name, &addresses, table, wanted))?;
    Ok(())
}

/// Configures a link that was just made; runs in the container's namespace. Returns the rules.
fn dressed(
    name: &str,
    addresses: &[(IpAddr, u8)],
    table: Option<u32>,
    wanted: &Wanted,
) -> Result<Vec<Message>, Error> {
    let mut netlink = open()?;
    let failed = |what: &str| {
        let what = format!("{what} of {name}");
        move |source| Error::netlink(what, source)
    };
    let find = |snapshot: &Snapshot| -> Result<Link, Error> {
        let gone = || Error::Nic { nic: name.to_owned(), why: "the link is gone".to_owned() };
        snapshot.link(name).cloned().ok_or_else(gone)
    };
    let snapshot = Snapshot::take(&mut netlink)?;
    let link = find(&snapshot)?;
    let sysctls = strict::sysctls(&snapshot.state(&link), wanted.arp);
    dress::write_sysctls(name, &sysctls)?;
    for (ip, length) in addresses {
        let mut message = Message::new(RTM_NEWADDR);
        message.set_byte(0, family(*ip));
        message.set_byte(IFA_PREFIXLEN, *length);
        message.set_word(IFA_INDEX, link.index);
        message.set_ip(IFA_LOCAL, *ip);
        message.set_ip(IFA_ADDRESS, *ip);
        if ip.is_ipv6() {
            message.set_u32(IFA_FLAGS, IFA_F_NODAD);
        }
        netlink.change(NLM_F_CREATE | NLM_F_EXCL, &message).map_err(failed("add an address"))?;
    }
    link::set_up(&mut netlink, link.index, true).map_err(failed("set the state"))?;
    let snapshot = Snapshot::take(&mut netlink)?;
    let state = snapshot.state(&find(&snapshot)?);
    let rules = table.map(|table| strict::rules(&state, name, table)).unwrap_or_default();
    let mut routes = match table {
        Some(_) => strict::routes(&state, link.index, table),
        None => Vec::new(),
    };
    for gateway in &wanted.gateways {
        let mut route = Message::new(RTM_NEWROUTE);
        route.set_byte(0, family(*gateway));
        route.set_byte(RTM_PROTOCOL, RTPROT_STATIC);
        route.set_byte(RTM_TYPE, RTN_UNICAST);
        route.set_u32(RTA_TABLE, table.unwrap_or_else(|| RT_TABLE_MAIN.into()));
        route.set_ip(RTA_GATEWAY, *gateway);
        route.set_u32(RTA_OIF, link.index);
        routes.push(Route { position: routes.len(), message: route, dead: false });
    }
    if let Some(why) = dress::add_routes(&mut netlink, &routes, &|device| device)?.first() {
        return Err(Error::Nic { nic: name.to_owned(), why: format!("cannot add a route: {why}") });
    }
    dress::add_rules(&mut netlink, &rules)?;
    announce::all(&[(name, addresses.to_vec())], true);
    Ok(rules)
}

/// Waits until the NIC's RDMA device has a GID for each address.
pub(super) fn await_gids(share: &Share, sysfs: &Path, patience: Duration) -> Result<(), Error> {
    let until = Instant::now() + patience;
    loop {
        let missing = share.rdma.iter().find_map(|(device, port)| {
            let gids = PortDir::new(sysfs, device, *port).gids();
            let has = |ip: IpAddr| gids.iter().any(|gid| is_gid_of(gid, ip));
            let (ip, _) = share.addresses.iter().find(|(ip, _)| !has(*ip))?;
            Some((device, port, ip))
        });
        match missing {
            None => return Ok(()),
            Some(_) if patience.is_zero() => return Ok(()),
            Some((device, port, ip)) if Instant::now() > until => {
                let why = format!(
                    "port {port} has no RoCE v2 GID of {ip} {} s after the link was made: the driver \
                     makes none for a {} upon the NIC, or the table is full; see --wait",
                    patience.as_secs(),
                    share.kind.name()
                );
                return Err(Error::Nic { nic: device.clone(), why });
            }
            Some(_) => thread::sleep(PAUSE),
        }
    }
}

/// Removes a link, its rules and its fence, as far as they are there.
pub(super) fn take_away(share: &Share) -> Result<(), Error> {
    // The kernel removes such links with their namespace.
    let Some(target) = share.namespace() else { return Ok(()) };
    target.within(|| {
        let mut netlink = open()?;
        let links = plan::links()?;
        let is_it = |link: &&Link| {
            link.name == share.name && link.kind.as_deref() == Some(share.kind.name())
        };
        if let Some(link) = links.iter().find(is_it) {
            let what = format!("remove {}", share.name);
            link::remove(&mut netlink, link.index)
                .map_err(|source| Error::netlink(what, source))?;
        }
        lift(&share.name)?;
        dress::remove_rules(&mut netlink, &share.rules)
    })
}
