//! A network namespace, held from outside: sockets and a directory that stay in the namespace,
//! whoever uses them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use rustix::mount::FsMountFlags;
use rustix::mount::FsOpenFlags;
use rustix::mount::MountAttrFlags;
use rustix::net::AddressFamily;
use rustix::net::Protocol;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use rustix::net::netlink::SocketAddrNetlink;

use crate::Tid;
use crate::process;

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR`, include/uapi/linux/rtnetlink.h.
const LINKS_AND_ADDRESSES: u32 = 0x1 | 0x10 | 0x100;

/// `NETLINK_RDMA`, include/uapi/linux/netlink.h.
const RDMA: u32 = 20;

/// The calling thread's namespace.
const OWN: &str = "/proc/thread-self/ns/net";

/// What [`Network::of`] opens.
#[derive(Debug)]
pub struct Network {
    /// The namespace itself.
    pub namespace: File,
    /// rtnetlink: a message for each change of a link or an address. Not blocking.
    pub news: OwnedFd,
    /// rtnetlink, for questions. Not blocking.
    pub route: OwnedFd,
    /// RDMA netlink, for questions; none when the kernel has no RDMA. Not blocking.
    pub rdma: Option<OwnedFd>,
    /// The root of a sysfs that shows this namespace's devices, or of the caller's where mounting
    /// is not permitted.
    pub sysfs: OwnedFd,
}

impl Network {
    /// The network namespace of a thread.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN, if it is another than the caller's; socket(2)'s.
    pub fn of(tid: Tid) -> io::Result<Self> {
        let there = process::network_of(tid)?;
        if is_here(&there)? {
            return Self::here();
        }
        // A thread for it: the caller stays where it is.
        let entered = std::thread::spawn(move || {
            process::enter_network(&there)?;
            Self::here()
        });
        entered.join().map_err(|_| io::Error::other("the thread ended"))?
    }

    /// The network namespace of the calling thread.
    ///
    /// # Errors
    /// socket(2)'s.
    pub fn here() -> io::Result<Self> {
        let route = netlink(0)?;
        let news = netlink(0)?;
        rustix::net::bind(&news, &SocketAddrNetlink::new(0, LINKS_AND_ADDRESSES))?;
        let rdma = match netlink(RDMA) {
            Ok(socket) => Some(socket),
            Err(e) if e.raw_os_error() == Some(libc::EPROTONOSUPPORT) => None,
            Err(e) => return Err(e),
        };
        let namespace = File::open(OWN)?;
        Ok(Self { namespace, news, route, rdma, sysfs: sysfs()? })
    }

    /// Whether this is the calling thread's own.
    ///
    /// # Errors
    /// stat(2)'s.
    pub fn is_here(&self) -> io::Result<bool> {
        is_here(&self.namespace)
    }
}

fn is_here(namespace: &File) -> io::Result<bool> {
    let (there, here) = (namespace.metadata()?, std::fs::metadata(OWN)?);
    Ok((there.dev(), there.ino()) == (here.dev(), here.ino()))
}

fn netlink(protocol: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = protocol.try_into().ok().map(Protocol::from_raw);
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    Ok(socket)
}

/// A mount of sysfs that is in no mount namespace: it shows the devices of the network namespace
/// that it was made in.
fn sysfs() -> io::Result<OwnedFd> {
    let mounted = || {
        let context = rustix::mount::fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    match mounted() {
        Ok(root) => Ok(root),
        Err(rustix::io::Errno::PERM) => Ok(File::open("/sys")?.into()),
        Err(e) => Err(e.into()),
    }
}

/// Takes what a socket has received and drops it; whether there was anything. Messages that did not
/// fit (`ENOBUFS`) count.
///
/// # Errors
/// recv(2)'s.
pub fn drain(socket: &OwnedFd) -> io::Result<bool> {
    let mut any = false;
    let mut buffer = [0; 4096];
    loop {
        match rustix::net::recv(socket, &mut buffer, rustix::net::RecvFlags::empty()) {
            Ok(_) | Err(rustix::io::Errno::NOBUFS) => any = true,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(any),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    #[test]
    fn a_namespace_is_told_from_another_and_its_news_come_at_once() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: needs root, to make a network namespace");
            return;
        }
        let other = std::thread::spawn(|| {
            // SAFETY: takes no pointers.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) }.into()).unwrap();
            let there = Network::here().unwrap();
            drain(&there.news).unwrap();
            assert!(!drain(&there.news).unwrap());
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.unwrap().success());
            assert!(drain(&there.news).unwrap());
            there
        });
        let (other, here) = (other.join().unwrap(), Network::here().unwrap());
        assert!(here.is_here().unwrap());
        assert!(!other.is_here().unwrap());
        let links = |network: &Network| {
            let (flags, mode) = (rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty());
            let dir = rustix::fs::openat(&network.sysfs, "class/net", flags, mode).unwrap();
            let names = rustix::fs::Dir::new(dir).unwrap().map(|e| e.unwrap());
            let mut names: Vec<_> = names.map(|e| e.file_name().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(links(&other), [c".", c"..", c"lo"].map(|name| name.to_owned()));
    }
}
