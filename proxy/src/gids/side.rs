//! One network namespace in which links are looked for, and the ports of sysfs.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use verbgate_abi::netlink;
use verbgate_abi::netlink::Message;
use verbgate_abi::wire::GidIndex;
use verbgate_sys::network;
use verbgate_sys::network::Network;

use crate::gids::links::Link;
use crate::gids::links::links;
use crate::netlink::kernel::ask;

/// Longer than any attribute that is read here.
const MAX_ATTRIBUTE: usize = 256;

/// The inode of a port in sysfs: another when the device has been made anew.
pub(super) type PortId = u64;

#[derive(Debug)]
pub(super) struct Side {
    pub(super) network: Network,
    pub(super) links: Option<Vec<Link>>,
}

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) ibdev: String,
    pub(super) number: u32,
    pub(super) roce: bool,
    pub(super) id: PortId,
}

impl Port {
    pub(super) fn file(&self, rest: &str, index: GidIndex) -> String {
        format!("{}/{}", self.directory(rest), index.0)
    }

    pub(super) fn directory(&self, rest: &str) -> String {
        format!("class/infiniband/{}/ports/{}/{rest}", self.ibdev, self.number)
    }
}

impl Side {
    /// Takes the news; whether there were any.
    pub(super) fn hear(&mut self) -> io::Result<bool> {
        let any = network::drain(&self.network.news)?;
        if any {
            self.links = None;
        }
        Ok(any)
    }

    /// The links as they were when the last news came.
    pub(super) fn links(&mut self) -> io::Result<&[Link]> {
        let links = match self.links.take() {
            Some(links) => links,
            None => links(&self.network.route)?,
        };
        Ok(self.links.insert(links))
    }

    /// The number of a port's own network device, if it is in this namespace: the kernel tells no
    /// other's (`fill_port_info`, drivers/infiniband/core/nldev.c).
    pub(super) fn netdev(&self, port: &Port) -> io::Result<Option<u32>> {
        let Some(rdma) = &self.network.rdma else { return Ok(None) };
        let find = |kind, flags, attributes: &[(u16, &[u8])], wanted: u16| -> io::Result<_> {
            let payload = netlink::encode(attributes);
            let parts = ask(rdma, &Message { kind, flags, seq: 1, payload: &payload })?;
            let messages = parts.iter().flat_map(|part| netlink::messages(part));
            // The kernel numbers answers about ports as those about devices.
            let named = messages.filter(|message| {
                netlink::attributes(message.payload).any(|(number, name)| {
                    number == netlink::DEV_NAME
                        && name.strip_suffix(&[0]) == Some(port.ibdev.as_bytes())
                })
            });
            let mut values = named.flat_map(|message| netlink::attributes(message.payload));
            let value = values.find(|(number, _)| *number == wanted);
            Ok(value.and_then(|(_, value)| netlink::index(value)))
        };
        let all = netlink::REQUEST | netlink::DUMP;
        let Some(index) = find(netlink::nldev(netlink::GET), all, &[], netlink::DEV_INDEX)? else {
            return Ok(None);
        };
        let (index, number) = (index.to_ne_bytes(), port.number.to_ne_bytes());
        let about = [(netlink::DEV_INDEX, &index[..]), (netlink::PORT_INDEX, &number[..])];
        find(netlink::nldev(netlink::PORT_GET), netlink::REQUEST, &about, netlink::NDEV_INDEX)
    }

    /// An attribute of sysfs, without the end of its line.
    pub(super) fn read(&self, path: &str) -> io::Result<String> {
        read(self.network.sysfs.as_fd(), path)
    }

    /// A directory of sysfs.
    pub(super) fn directory(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.network.sysfs, path, flags, Mode::empty())?)
    }
}

/// An attribute below a directory of sysfs, without the end of its line.
pub(super) fn read(below: BorrowedFd<'_>, path: &str) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(below, path, flags, Mode::empty())?;
    // The kernel gives an attribute as a whole (`kernfs_fop_read_iter`, fs/kernfs/file.c).
    let mut text = [0; MAX_ATTRIBUTE];
    let length = rustix::io::read(&file, &mut text)?;
    let text = text.get(..length).unwrap_or_default();
    Ok(std::str::from_utf8(text).map_err(io::Error::other)?.trim_end().to_owned())
}

/// A GID below a directory of sysfs, all zeros if it is empty; none of a file that is not there.
pub(super) fn gid(below: BorrowedFd<'_>, path: &str) -> io::Result<Option<Ipv6Addr>> {
    let gid = known(read(below, path))?;
    gid.map(|gid| gid.parse().map_err(io::Error::other)).transpose()
}

/// What is not there is nothing, and no error.
pub(super) fn known<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
