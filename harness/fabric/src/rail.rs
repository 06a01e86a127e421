//! A rail: one port of one NIC of a rank, and the address by which the rail speaks.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use verbgate_host::dcb;
use verbgate_host::dcb::Dcb;
use verbgate_host::netlink::Netlink;
use verbgate_sysfs::collect::SYSFS_ROOT;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::ETHERNET;
use verbgate_sysfs::discover::Gid;
use verbgate_sysfs::discover::PortDir;
use verbgate_sysfs::discover::ROCE_V2;
use verbgate_verbs as rdma;
use verbgate_verbs::Context;

use crate::class::Partition;
use crate::error::Error;

/// `link_layer` of a port, as the kernel says it.
const INFINIBAND: &str = "InfiniBand";

/// What a rank says of a rail.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Rail {
    pub device: String,
    pub port: u8,
    pub(crate) gid_index: u32,
    /// As it is written: eight groups.
    pub(crate) gid: String,
    /// `RoCE v2`, `IB/RoCE v1`.
    pub(crate) gid_type: String,
    pub(crate) netdev: Option<String>,
    pub(crate) mac: Option<String>,
    /// `Ethernet` or `InfiniBand`.
    pub(crate) link_layer: String,
    /// `100 Gb/sec (4X EDR)`.
    pub(crate) rate: String,
    /// `enum ibv_mtu`.
    pub(crate) mtu: u32,
    pub(crate) lid: u16,
    /// The longest message, in bytes; 0 where that is unknown.
    #[serde(default)]
    pub(crate) max_message: u32,
    pub(crate) active: bool,
    /// Its rate is not a wire's: it has no device of its own, or is made upon another (rxe_sysfs).
    #[serde(default)]
    pub(crate) software: bool,
    /// What the port does with classes of traffic, where the driver tells (DCB).
    #[serde(default)]
    pub(crate) dcb: Option<Dcb>,
    /// Why it cannot be used; the rest is then unknown.
    pub fault: Option<String>,
}

/// What the user calls a rail: `DEVICE[:PORT][@GID_INDEX]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The RDMA device's name.
    pub device: String,
    /// The port's number; the first is 1.
    pub port: u8,
    pub(crate) gid_index: Option<u32>,
}

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a rail: write DEVICE[:PORT][@GID_INDEX], as in mlx5_0@3");
        let (rest, gid_index) = match text.split_once('@') {
            Some((rest, index)) => (rest, Some(index.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let (device, port) = match rest.split_once(':') {
            Some((device, port)) => (device, port.parse().map_err(|_| wrong())?),
            None => (rest, 1),
        };
        if device.is_empty() || device.contains('/') || port == 0 {
            return Err(wrong());
        }
        Ok(Self { device: device.to_owned(), port, gid_index })
    }
}

/// All devices, in the order of their names as people count, by their first port.
pub(crate) fn all() -> Result<Vec<Choice>, Error> {
    below(Path::new(SYSFS_ROOT))
}

fn below(sysfs: &Path) -> Result<Vec<Choice>, Error> {
    let names = discover::device_names(sysfs).unwrap_or_default();
    if names.is_empty() {
        return Err(Error::Usage(format!(
            "this host has no RDMA device ({} is empty): load the driver, or grant the devices to \
             the sandbox",
            sysfs.join("class/infiniband").display()
        )));
    }
    Ok(names.into_iter().map(|device| Choice { device, port: 1, gid_index: None }).collect())
}

impl Rail {
    /// Opens the device and looks at the port; what is wrong is part of the answer, so that the
    /// other ranks hear of it.
    pub(crate) fn look(choice: &Choice) -> (Self, Option<Context>) {
        let mut rail = Self { device: choice.device.clone(), port: choice.port, ..Self::default() };
        match rail.examine(choice) {
            Ok(context) => (rail, Some(context)),
            Err(error) => {
                rail.fault = Some(error);
                (rail, None)
            }
        }
    }

    fn examine(&mut self, choice: &Choice) -> Result<Context, String> {
        let context = Context::open(&choice.device).map_err(|e| e.to_string())?;
        let port = context.port(choice.port).map_err(|e| e.to_string())?;
        self.active = port.state == rdma::PORT_ACTIVE;
        (self.mtu, self.lid, self.max_message) = (port.active_mtu, port.lid, port.max_message);
        let place = self.place();
        let device = Path::new(SYSFS_ROOT).join("class/infiniband").join(&self.device);
        self.software = device.join("parent").exists() || !device.join("device").exists();
        let read = |file: &str| place.attribute(file).unwrap_or_default();
        (self.link_layer, self.rate) = (read("link_layer"), read("rate"));
        let index = match choice.gid_index {
            Some(index) => index,
            None => {
                let gids = place.gids().into_iter();
                gids.min_by_key(|gid| (preference(gid), gid.index)).map(|gid| gid.index).ok_or(
                    "the port has no GID: give the port's network device an address, and bring the \
                     device up",
                )?
            }
        };
        let gid = context.gid(choice.port, index).map_err(|e| e.to_string())?;
        if gid.iter().all(|byte| *byte == 0) {
            return Err(format!(
                "GID {index} is empty, or another network namespace's: `rdma link` and \
                 gid_attrs/types show those there are"
            ));
        }
        self.gid_index = index;
        self.gid = Ipv6Addr::from(gid).to_string();
        let entry = place.gid(index);
        (self.gid_type, self.netdev) =
            entry.map(|gid| (gid.kind.unwrap_or_default(), gid.netdev)).unwrap_or_default();
        self.mac = self.netdev.as_ref().and_then(|netdev| {
            let address = Path::new(SYSFS_ROOT).join("class/net").join(netdev).join("address");
            Some(fs::read_to_string(address).ok()?.trim().to_owned())
        });
        self.dcb = self.netdev.as_ref().and_then(|netdev| {
            let mut netlink = Netlink::route().ok()?;
            dcb::read(&mut netlink, netdev).ok().flatten()
        });
        Ok(context)
    }

    /// The port's directory.
    pub(crate) fn place(&self) -> PortDir {
        PortDir::new(Path::new(SYSFS_ROOT), &self.device, self.port.into())
    }

    /// All counters of the port that can be read.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        let place = self.place();
        ["counters", "hw_counters"].iter().flat_map(|dir| place.counters(dir)).collect()
    }

    /// Where the port's table has a partition's key: as it is, or with the other kind of membership
    /// (the highest bit, InfiniBand architecture 10.9.1.1).
    pub(crate) fn pkey_index(&self, key: u16) -> Option<u16> {
        let place = self.place();
        let value = |index: &u16| {
            let text = place.attribute(&format!("pkeys/{index}"))?;
            u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        // Tables have up to a few hundred entries, one file each, without a gap.
        let table: Vec<u16> = (0..u16::MAX).map_while(|index| value(&index)).collect();
        let alike = |of: &dyn Fn(&u16) -> bool| table.iter().position(of);
        let base = |key: u16| key & 0x7fff;
        let found = alike(&|entry| *entry == key)
            .or_else(|| alike(&|entry| *entry != 0 && base(*entry) == base(key)));
        found.and_then(|index| u16::try_from(index).ok())
    }

    /// Where the port's table has a partition, if it does.
    pub(crate) fn partition(&self, partition: Partition) -> Option<u16> {
        match partition {
            Partition::Key(key) => self.pkey_index(key),
            Partition::Index(index) => {
                let text = self.place().attribute(&format!("pkeys/{index}"))?;
                // An entry without a key is no partition.
                (text.trim() != "0x0000").then_some(index)
            }
        }
    }

    pub(crate) fn is_roce(&self) -> bool {
        self.link_layer == ETHERNET
    }

    pub(crate) fn is_infiniband(&self) -> bool {
        self.link_layer == INFINIBAND
    }

    /// The longest datagram, in bytes: one packet. EFA tells it as the longest message, since the words for
    /// an MTU end at 4096.
    pub(crate) fn datagram(&self) -> usize {
        let message = usize::try_from(self.max_message).unwrap_or(0);
        if self.is_roce() || self.is_infiniband() || message == 0 {
            self.mtu_bytes()
        } else {
            message
        }
    }

    pub(crate) fn is_v2(&self) -> bool {
        self.gid_type == ROCE_V2
    }

    /// The address of its GID.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let gid: Ipv6Addr = self.gid.parse().ok()?;
        Some(gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4))
    }

    pub(crate) fn gid_bytes(&self) -> [u8; 16] {
        self.gid.parse().map_or([0; 16], |gid: Ipv6Addr| gid.octets())
    }

    /// Its MTU in bytes.
    pub(crate) fn mtu_bytes(&self) -> usize {
        128_usize.checked_shl(self.mtu).unwrap_or(0)
    }
}

/// Less is better. The order of users' needs: routable addresses of a network device by RoCE v2
/// first.
fn preference(gid: &Gid) -> u32 {
    let (v2, netdev) = (gid.kind.as_deref() == Some(ROCE_V2), gid.netdev.is_some());
    let v4 = gid.gid.to_ipv4_mapped().is_some();
    match (v2, netdev, v4, gid.gid.is_unicast_link_local()) {
        (true, true, true, _) => 0,
        (true, true, _, false) => 1,
        (true, true, ..) => 2,
        (true, false, ..) => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rail 3 of `diagnose` must be rail 3 of `manifest`: a node with mlx5_0 to mlx5_8 is paired
    /// with one of mlx5_2 to mlx5_10.
    #[test]
    fn rails_are_counted_as_everywhere_else() {
        let sysfs = tempfile::tempdir().unwrap();
        let class = sysfs.path().join("class/infiniband");
        for n in [10, 2, 1, 11, 0] {
            fs::create_dir_all(class.join(format!("mlx5_{n}/ports/1"))).unwrap();
        }
        let here: Vec<String> =
            below(sysfs.path()).unwrap().into_iter().map(|choice| choice.device).collect();
        assert_eq!(here, ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_10", "mlx5_11"]);
        let there = discover::devices(sysfs.path());
        let there: Vec<String> = there.into_iter().map(|device| device.name).collect();
        assert_eq!(here, there);
        assert!(below(&sysfs.path().join("none")).is_err());
    }

    #[test]
    fn rails_are_named_by_device_port_and_index() {
        let choice =
            |device: &str, port, gid_index| Choice { device: device.to_owned(), port, gid_index };
        assert_eq!("mlx5_0".parse(), Ok(choice("mlx5_0", 1, None)));
        assert_eq!("mlx5_0:2@3".parse(), Ok(choice("mlx5_0", 2, Some(3))));
        for wrong in ["", "@1", "a:0", "a:x", "a@-1", "../x"] {
            assert!(wrong.parse::<Choice>().is_err(), "{wrong}");
        }
    }
}
