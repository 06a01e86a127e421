//! The one view of GIDs: which entries of a port's table a sandbox may see and speak by.
//!
//! The kernel does not ask in whose network namespace an entry's network device is. Verbgate shows
//! an entry of a RoCE port when the entry's network device is in the sandbox's namespace: the
//! port's own device, or a device upon the port (VLAN, macvlan, bond), with the address that the
//! GID is made of. Ports without RoCE are shown as a whole: an InfiniBand subnet has partitions for
//! that, and iWARP connects by the connection manager, which knows namespaces.
//!
//! Indices are the host's, masked and never renumbered, because providers put indices into work
//! requests. A masked entry looks like an empty entry, and a table ends behind its last entry
//! (`length`).
//!
//! Only the links, the knowledge which links are a port's, and the ends of tables are cached, until
//! rtnetlink has news; rtnetlink has news before the change returns to the program that made the
//! change. Entries are read at each question.

mod length;
mod links;
mod requests;
mod side;

use std::collections::HashMap;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::fs::AtFlags;
use verbgate_abi::wire::GidIndex;
use verbgate_sys::Tid;
use verbgate_sys::network::Network;
use verbgate_sysfs::DevNumber;
use verbgate_sysfs::Identity;

pub use self::requests::GidPatch;
pub use self::requests::Judged;

use self::length::Length;
use self::links::Link;
use self::links::NamespaceId;
use self::side::Port;
use self::side::PortId;
use self::side::Side;
use self::side::known;

/// `enum ib_uverbs_gid_type`, include/uapi/rdma/ib_user_ioctl_verbs.h.
const GID_TYPE_IB: u32 = 0;
const GID_TYPE_ROCE_V1: u32 = 1;
const GID_TYPE_ROCE_V2: u32 = 2;

/// No device has more (`rdma_for_each_port`; switches have, and have no verbs).
pub(crate) const MAX_PORTS: u32 = 16;

/// No port has more: the index that a request can name has 8 bits, and Soft-RoCE's table 1024.
const MAX_INDEX: u32 = 4096;

/// What a sandbox sees of the GIDs of its devices.
pub struct GidView {
    sides: Mutex<Sides>,
    /// Which devices those are: another one at the same number is none of them.
    granted: Vec<Identity>,
}

impl std::fmt::Debug for GidView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GidView").finish_non_exhaustive()
    }
}

/// Where links are looked for.
#[derive(Debug)]
struct Sides {
    sandbox: Side,
    /// Where the supervisor is, if that is elsewhere: what the sandbox has may be made upon
    /// what is there.
    host: Option<(Side, Option<NamespaceId>)>,
    /// The numbers of the links in the sandbox's namespace that are a port's.
    of_ports: HashMap<PortId, Vec<u32>>,
    /// Where the tables of ports end.
    lengths: HashMap<PortId, Length>,
    /// Whether ports are of `RoCE`, which stays so.
    roce: HashMap<PortId, bool>,
    /// When the last news came.
    changed: Instant,
}

/// An entry of a GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The port, from 1.
    pub port: u32,
    /// Its place in the port's table.
    pub index: GidIndex,
    /// The address.
    pub gid: Ipv6Addr,
    /// `enum ib_uverbs_gid_type`.
    pub gid_type: u32,
    /// The network device's number in the sandbox's network namespace; 0 for none.
    pub ifindex: u32,
}

/// What a sandbox sees at a place of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Whatever is there: the port is none of RoCE, or there is no such place, which the kernel
    /// says best.
    Anything,
    /// This entry.
    Entry(Entry),
    /// Nothing: it is empty, or another's.
    Nothing,
}

impl GidView {
    /// The view, of these devices, of who is in the network namespace of a thread.
    ///
    /// # Errors
    /// `EPERM` when it is another namespace than the caller's and he has no CAP_SYS_ADMIN;
    /// socket(2)'s.
    pub fn of(tid: Tid, granted: Vec<Identity>) -> io::Result<Self> {
        let sandbox = Side { network: Network::of(tid)?, links: None };
        let host = if sandbox.network.is_here()? {
            None
        } else {
            let here = Network::here()?;
            let id = links::namespace_id(&sandbox.network.route, here.namespace.as_raw_fd())?;
            Some((Side { network: here, links: None }, id))
        };
        Ok(Self { sides: Mutex::new(Sides::new(sandbox, host)), granted })
    }

    /// What is seen at a place of the table of a device, which its node names.
    ///
    /// # Errors
    /// When the kernel does not tell: then nothing may be taken for granted.
    pub fn at(&self, rdev: (u32, u32), port: u32, index: GidIndex) -> io::Result<Seen> {
        let mut sides = self.sides.lock();
        let seen = sides.seen(rdev, port, index)?;
        self.check(&sides, rdev)?;
        Ok(seen)
    }

    /// The P_Keys that an index names, with their ports, from 1: one for each port that has such an
    /// entry.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn pkeys(&self, rdev: (u32, u32), index: u32) -> io::Result<Vec<(u32, u16)>> {
        let mut sides = self.sides.lock();
        let mut found = Vec::new();
        for number in 1..=MAX_PORTS {
            let Some(port) = sides.port(rdev, number)? else { break };
            let file = port.file("pkeys", GidIndex(index));
            if let Some(text) = known(sides.sandbox.read(&file))? {
                let digits = text.strip_prefix("0x").unwrap_or(&text);
                found.push((number, u16::from_str_radix(digits, 16).map_err(io::Error::other)?));
            }
        }
        self.check(&sides, rdev)?;
        Ok(found)
    }

    /// The entries of all ports of a device, in the kernel's order; none when no port is of RoCE,
    /// and so nothing is masked.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn table(&self, rdev: (u32, u32)) -> io::Result<Option<Vec<Entry>>> {
        let mut sides = self.sides.lock();
        let entries = sides.entries(rdev)?;
        self.check(&sides, rdev)?;
        Ok(entries)
    }

    /// Compares a device with the one that was granted, after it was read
    /// ([`verbgate_sysfs::identity`]): what is at the same number by now has GIDs of its own, which
    /// are neither shown nor taken for those of a file that is still open.
    fn check(&self, sides: &Sides, rdev: (u32, u32)) -> io::Result<()> {
        let number = DevNumber { major: rdev.0, minor: rdev.1 };
        let sysfs = sides.sandbox.network.sysfs.as_fd();
        let same = match self.granted.iter().find(|identity| identity.number == number) {
            Some(granted) => granted.stands(sysfs),
            // None that has GIDs.
            None => Identity::read(sysfs, number)?.uverbs().is_none(),
        };
        if same { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENODEV)) }
    }

    /// Whether a sandbox is shown a GID with this network device, as sysfs names them; for whoever
    /// has read the entry already.
    #[must_use]
    pub fn shows(&self, ibdev: &str, port: u32, gid: Ipv6Addr, netdev: Option<&str>) -> bool {
        let mut sides = self.sides.lock();
        let Ok(Some(port)) = sides.hear().and_then(|()| sides.named(ibdev, port)) else {
            return false;
        };
        let of_it = |name| sides.ifindex(&port, gid, name).is_ok_and(|index| index.is_some());
        !port.roce || netdev.is_some_and(of_it)
    }
}

impl Sides {
    fn new(sandbox: Side, host: Option<(Side, Option<NamespaceId>)>) -> Self {
        let (of_ports, lengths, roce) = Default::default();
        Self { sandbox, host, of_ports, lengths, roce, changed: Instant::now() }
    }

    /// Takes the news.
    fn hear(&mut self) -> io::Result<()> {
        let mut any = self.sandbox.hear()?;
        if let Some((host, _)) = &mut self.host {
            any |= host.hear()?;
        }
        if any {
            self.of_ports.clear();
            self.changed = Instant::now();
        }
        Ok(())
    }

    fn seen(&mut self, rdev: (u32, u32), port: u32, index: GidIndex) -> io::Result<Seen> {
        self.hear()?;
        match self.port(rdev, port)? {
            Some(port) => self.at(&port, index),
            None => Ok(Seen::Anything),
        }
    }

    /// The entries of all ports of a device; none when no port is of RoCE.
    fn entries(&mut self, rdev: (u32, u32)) -> io::Result<Option<Vec<Entry>>> {
        self.hear()?;
        let ports = (1..=MAX_PORTS).map_while(|n| self.port(rdev, n).transpose());
        let ports: Vec<Port> = ports.collect::<io::Result<_>>()?;
        if !ports.iter().any(|port| port.roce) {
            return Ok(None);
        }
        let mut entries = Vec::new();
        for port in &ports {
            let length = self.length(port)?.unwrap_or(MAX_INDEX);
            for index in (0..length).map(GidIndex) {
                match self.at(port, index)? {
                    Seen::Entry(entry) => entries.push(entry),
                    Seen::Nothing => {}
                    Seen::Anything => break,
                }
            }
        }
        Ok(Some(entries))
    }

    /// A port of the device of a node; none when sysfs does not know it.
    fn port(&mut self, (major, minor): (u32, u32), number: u32) -> io::Result<Option<Port>> {
        match known(self.sandbox.read(&format!("dev/char/{major}:{minor}/ibdev")))? {
            Some(ibdev) => self.named(&ibdev, number),
            None => Ok(None),
        }
    }

    fn named(&mut self, ibdev: &str, number: u32) -> io::Result<Option<Port>> {
        let device = format!("class/infiniband/{ibdev}");
        let place = format!("{device}/ports/{number}");
        let stat = rustix::fs::statat(&self.sandbox.network.sysfs, &place, AtFlags::empty());
        let Some(stat) = known(stat.map_err(io::Error::from))? else { return Ok(None) };
        let id = stat.st_ino;
        let roce = if let Some(roce) = self.roce.get(&id) {
            *roce
        } else {
            let read = |path: String| known(self.sandbox.read(&path));
            let Some(layer) = read(format!("{place}/link_layer"))? else { return Ok(None) };
            let Some(kind) = read(format!("{device}/node_type"))? else { return Ok(None) };
            // "1: CA"; iWARP's are "4: RNIC" (drivers/infiniband/core/sysfs.c).
            let roce = layer == "Ethernet" && kind.starts_with("1:");
            self.roce.insert(id, roce);
            roce
        };
        Ok(Some(Port { ibdev: ibdev.to_owned(), number, roce, id }))
    }

    fn at(&mut self, port: &Port, index: GidIndex) -> io::Result<Seen> {
        match self.gid(port, index)? {
            Some(gid) => self.shown(port, index, gid),
            None => Ok(Seen::Anything),
        }
    }

    /// The host's entry, all zeros if it is empty; none behind the end of the host's table.
    fn gid(&self, port: &Port, index: GidIndex) -> io::Result<Option<Ipv6Addr>> {
        side::gid(self.sandbox.network.sysfs.as_fd(), &port.file("gids", index))
    }

    /// What a sandbox sees of an entry of the host's.
    fn shown(&mut self, port: &Port, index: GidIndex, gid: Ipv6Addr) -> io::Result<Seen> {
        let entry = |gid_type, ifindex| Entry { port: port.number, index, gid, gid_type, ifindex };
        if gid.is_unspecified() {
            return Ok(Seen::Nothing);
        }
        if !port.roce {
            return Ok(Seen::Entry(entry(GID_TYPE_IB, 0)));
        }
        // EINVAL: it is going away, or has gone since.
        let Ok(name) = self.sandbox.read(&port.file("gid_attrs/ndevs", index)) else {
            return Ok(Seen::Nothing);
        };
        let Some(ifindex) = self.ifindex(port, gid, &name)? else { return Ok(Seen::Nothing) };
        let kind = self.sandbox.read(&port.file("gid_attrs/types", index)).unwrap_or_default();
        let gid_type = if kind == "RoCE v2" { GID_TYPE_ROCE_V2 } else { GID_TYPE_ROCE_V1 };
        Ok(Seen::Entry(entry(gid_type, ifindex)))
    }

    /// The number of the link in the sandbox's namespace that a GID is of, if it is of one: names
    /// and addresses may be the same elsewhere, and who may make links may make any. So it must be
    /// the port's own, or made upon it, too.
    fn ifindex(&mut self, port: &Port, gid: Ipv6Addr, name: &str) -> io::Result<Option<u32>> {
        let found = self.sandbox.links()?.iter().find(|link| link.name == name && link.has(gid));
        let Some(index) = found.map(|link| link.index) else { return Ok(None) };
        if let Some(of_port) = self.of_ports.get(&port.id) {
            return Ok(of_port.contains(&index).then_some(index));
        }
        let of_port = self.of_port(port)?;
        let is_of_it = of_port.contains(&index);
        self.of_ports.insert(port.id, of_port);
        Ok(is_of_it.then_some(index))
    }

    /// The numbers of the links in the sandbox's namespace that are the port's.
    fn of_port(&mut self, port: &Port) -> io::Result<Vec<u32>> {
        let mut own: Vec<u32> = self.sandbox.netdev(port)?.into_iter().collect();
        if own.is_empty()
            && let Some((host, Some(id))) = &mut self.host
        {
            let id = *id;
            let there = host.netdev(port)?.into_iter().collect();
            let there = with_uppers(host.links()?, there);
            let upon = |link: &&Link| {
                link.lower.is_some_and(|(lower, of)| of == Some(id) && there.contains(&lower))
            };
            own = self.sandbox.links()?.iter().filter(upon).map(|link| link.index).collect();
        }
        Ok(with_uppers(self.sandbox.links()?, own))
    }
}

/// Links, and those of the same namespace that are made upon them.
fn with_uppers(links: &[Link], mut found: Vec<u32>) -> Vec<u32> {
    let mut next = 0;
    while let Some(index) = found.get(next).copied() {
        next += 1;
        let upon = links.iter().filter(|l| l.lower == Some((index, None))).map(|l| l.index);
        let over = links.iter().filter(|l| l.index == index).filter_map(|l| l.master);
        let more: Vec<u32> = upon.chain(over).filter(|i| !found.contains(i)).collect();
        found.extend(more);
    }
    found
}

#[cfg(test)]
mod walk;

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;

    use verbgate_sysfs_fixtures::Changing;
    use verbgate_sysfs_fixtures::Software;

    use super::*;

    fn link(index: u32, lower: Option<u32>, master: Option<u32>) -> Link {
        Link { index, lower: lower.map(|l| (l, None)), master, ..Link::default() }
    }

    #[test]
    fn what_is_made_upon_a_link_is_found_and_a_loop_ends() {
        // A NIC in a bond that has a VLAN; another link beside; two that lead to each other.
        let links = [
            link(1, None, Some(2)),
            link(2, None, None),
            link(3, Some(2), None),
            link(4, None, None),
            link(5, Some(6), None),
            link(6, Some(5), None),
        ];
        assert_eq!(with_uppers(&links, vec![1]), [1, 2, 3]);
        assert_eq!(with_uppers(&links, vec![5]), [5, 6]);
        assert_eq!(with_uppers(&links, vec![]), [0; 0]);
        // A number of another namespace is no number of this one.
        let other = Link { lower: Some((4, Some(NamespaceId::default()))), ..link(7, None, None) };
        assert_eq!(with_uppers(&[other], vec![4]), [4]);
    }

    pub(crate) fn view(sysfs: &std::path::Path, granted: Vec<Identity>) -> GidView {
        let view = GidView::of(Tid(std::process::id().cast_signed()), granted).unwrap();
        view.sides.lock().sandbox.network.sysfs = File::open(sysfs).unwrap().into();
        view
    }

    /// Makes the loopback device a port's.
    pub(crate) fn own_loopback(view: &GidView, port: &std::path::Path) {
        use std::os::unix::fs::MetadataExt as _;
        let id = std::fs::metadata(port).unwrap().ino();
        view.sides.lock().of_ports.insert(id, vec![1]);
    }

    #[test]
    fn a_device_that_sysfs_does_not_know_is_not_filtered() {
        let sysfs = std::path::Path::new("/sys");
        let null = Identity::below(sysfs, DevNumber { major: 1, minor: 3 }).unwrap();
        for granted in [vec![null], Vec::new()] {
            let view = view(sysfs, granted);
            assert_eq!(view.at((1, 3), 1, GidIndex(0)).unwrap(), Seen::Anything);
            assert_eq!(view.table((1, 3)).unwrap(), None);
            assert!(!view.shows("absent", 1, Ipv6Addr::LOCALHOST, Some("lo")));
        }
    }

    #[test]
    fn gids_are_those_of_the_granted_device_alone() {
        let device = Software {
            number: (231, 192),
            node: "uverbs0",
            ibdev: "rxe0",
            node_guid: "0000:0000:0000:0000",
            function: None,
        };
        let dir = tempfile::tempdir().unwrap();
        let host = Changing::new(dir.path()).unwrap();
        let put = |file: &str, text: &str| {
            let file = dir.path().join(device.path()).join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let add = || {
            host.add(&device).unwrap();
            // Whole, since the port is none of RoCE.
            put("ports/1/link_layer", "InfiniBand\n");
            put("ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n");
        };
        add();
        let number = DevNumber { major: 231, minor: 192 };
        let view_of = |granted| view(dir.path(), granted);
        let view = view_of(vec![Identity::below(dir.path(), number).unwrap()]);
        let at = |view: &GidView| view.at(device.number, 1, GidIndex(0)).ok();
        assert!(matches!(at(&view), Some(Seen::Entry(_))), "{:?}", at(&view));
        assert_eq!(view.table(device.number).unwrap(), None);
        host.remove(&device).unwrap();
        add();
        // Of its successor a file that is still open tells nothing, and speaks by nothing.
        for errno in [view.at(device.number, 1, GidIndex(0)).err(), view.table(device.number).err()]
        {
            assert_eq!(errno.and_then(|e| e.raw_os_error()), Some(libc::ENODEV));
        }
        assert_eq!(at(&view_of(Vec::new())), None, "never granted");
    }
}
