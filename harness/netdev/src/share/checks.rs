//! Checks before a link is made upon a NIC.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use verbgate_host::link::Link;
use verbgate_host::rdma;
use verbgate_host::route::network;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::Device;

use super::journal::Share;
use super::wanted::Wanted;
use crate::Error;
use crate::probe;
use crate::state::Snapshot;

/// Time for somebody else to answer for an address.
const TAKEN: Duration = Duration::from_millis(1);

/// The NIC's RDMA ports, if links upon the NIC can use them.
pub(super) fn ports(nic: &Link, sysfs: &Path) -> Result<Vec<(String, u32)>, Error> {
    let refused = |why: &str| Error::Refused { nic: nic.name.clone(), why: why.to_owned() };
    let all = discover::devices(sysfs);
    let of = |device: &Device| Some((device.name.clone(), device.port_of(&nic.name)?.clone()));
    let found: Vec<(String, discover::Port)> = all.iter().filter_map(of).collect();
    if found.is_empty() {
        return Err(refused("no RDMA device belongs to the NIC"));
    }
    if found.iter().all(|(_, port)| port.link_layer.as_deref() == Some(discover::INFINIBAND)) {
        return Err(refused(
            "InfiniBand serves every network namespace as it is; no link is needed (verbgate nccl \
             env)",
        ));
    }
    let is_software = |name: &String| {
        all.iter().find(|device| device.name == *name).is_some_and(|device| device.pci.is_none())
    };
    if found.iter().all(|(name, _)| is_software(name)) {
        return Err(refused(
            "the RDMA device is Soft-RoCE or Soft-iWARP, which takes packets from its own NIC alone, \
             and not from links upon the NIC; make a device upon a NIC of the container's own (rdma \
             link add)",
        ));
    }
    if let Some(master) = nic.master {
        return Err(refused(&format!("the NIC is a part of device {master}; share that one")));
    }
    if !nic.up {
        return Err(refused("the NIC is down (ip link set up)"));
    }
    if rdma::mode() == rdma::Mode::Exclusive {
        return Err(refused(
            "RDMA devices belong to one namespace each (rdma system: exclusive), so containers cannot \
             share one; rdma system set netns shared",
        ));
    }
    let hardware = found.into_iter().filter(|(name, _)| !is_software(name));
    Ok(hardware.map(|(name, port)| (name, port.port)).collect())
}

/// The addresses with the lengths of their networks, if nobody has them.
pub(super) fn addresses(
    wanted: &Wanted,
    nic: &Link,
    here: &Snapshot,
    shares: &[Share],
) -> Result<Vec<(IpAddr, u8)>, Error> {
    let own = here.addresses_of(nic.index);
    let mut found = Vec::new();
    for (ip, length) in &wanted.addresses {
        let whole = if ip.is_ipv4() { 32 } else { 128 };
        let near = |(its, length): &&(IpAddr, u8)| {
            its.is_ipv4() == ip.is_ipv4() && network(*its, *length) == network(*ip, *length)
        };
        let length = match length {
            Some(length) if *length <= whole => *length,
            Some(length) => {
                let why = format!("--address {ip}/{length}: the length is at most {whole}");
                return Err(Error::Usage(why));
            }
            None => own.iter().find(near).map(|(_, length)| *length).ok_or_else(|| {
                Error::Usage(format!(
                    "--address {ip} is in no network of {}; give the length, as in {ip}/24",
                    nic.name
                ))
            })?,
        };
        let taken = |by: String| Error::Refused {
            nic: nic.name.clone(),
            why: format!("{by} has the address {ip} already; give each container its own"),
        };
        if let Some(share) = shares.iter().find(|s| s.addresses.iter().any(|(its, _)| its == ip)) {
            return Err(taken(format!("{} in {}", share.name, share.target_path.display())));
        }
        let mine = here
            .links
            .iter()
            .find(|link| here.addresses_of(link.index).iter().any(|(its, _)| its == ip));
        if let Some(link) = mine {
            return Err(taken(link.name.clone()));
        }
        let source = own.iter().find_map(|(its, _)| match its {
            IpAddr::V4(its) => Some(*its),
            IpAddr::V6(_) => None,
        });
        if let (IpAddr::V4(target), Some(source)) = (ip, source) {
            let question = probe::Question { device: nic.name.clone(), source, target: *target };
            let answers = probe::who_has(&[question], TAKEN)
                .map_err(|source| Error::netlink("send ARP requests".to_owned(), source))?;
            if let Some(mac) = answers.values().flatten().next() {
                return Err(taken(format!("the host with the MAC address {mac}")));
            }
        }
        found.push((*ip, length));
    }
    match found.is_empty() {
        true => Err(Error::Usage("--address is missing: each container needs its own".into())),
        false => Ok(found),
    }
}
