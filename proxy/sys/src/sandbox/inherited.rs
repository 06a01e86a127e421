//! Descriptors that this program has inherited, and the part that the guest gets.
//!
//! Launchers hand over sockets and pipes (PMI's, systemd's, a shell's `3<file` and `<(...)`), so
//! harmless descriptors are passed on under their numbers. Descriptors that could lead around the
//! sandbox are not: out of the mount namespace, to a device, into another process, or past the
//! filter.

use std::env;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;

use rustix::fs::FileType;
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::net::AddressFamily;
use rustix::net::sockopt;

use super::devices::RdmaNumbers;
use super::spec::Error;

/// The first that is not a standard stream.
const FIRST: RawFd = 3;

/// Files that are the kernel's own and do what is written into them; the magic numbers are those of
/// include/uapi/linux/magic.h.
#[rustfmt::skip]
const KERNELS_OWN: &[(u32, &str)] = &[
    (0x0000_9fa0, "a file of /proc"),      // another process's memory, sysctls
    (0x6265_6572, "a file of sysfs"),      // a device's registers
    (0x6e73_6673, "a namespace"),
    (0x5049_4446, "a pidfd"),              // Linux 6.9; before, an anonymous inode
    (0x6462_6720, "a file of debugfs"),
    (0x7472_6163, "a file of tracefs"),
    (0x7363_6673, "a file of securityfs"),
    (0x6265_6570, "a file of configfs"),
    (0xcafe_4a11, "a BPF object"),
    (0x6367_7270, "a file of a control group"),
    (0x0027_e0eb, "a file of a control group"),
    (0x4249_4e4d, "a file of binfmt_misc"),
    (0xde5e_81e4, "a firmware variable"),
    (0xf97c_ff8c, "a file of SELinux"),
    (0x5a3c_69f0, "a file of AppArmor"),
    (0x6573_5546, "a file of /sys/fs/fuse"),
];

/// Anonymous inodes that hold nothing but a state of their own. Others are a ring of system calls
/// past the filter, a process, a virtual machine, a BPF program, an RDMA event channel.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "anon_inode:[eventfd]", "anon_inode:[timerfd]", "anon_inode:[signalfd]",
    "anon_inode:[eventpoll]", "anon_inode:inotify", "anon_inode:[inotify]",
];

/// Character devices that a program may always have: major number, and the first and the last minor.
#[rustfmt::skip]
const COMMON: &[(u32, u32, u32)] = &[
    (1, 3, 3), (1, 5, 5), (1, 7, 9),       // null, zero, full, random, urandom
    (4, 0, u32::MAX), (5, 0, 2),           // terminals, tty, console, ptmx
    (136, 0, u32::MAX), (137, 0, u32::MAX), (138, 0, u32::MAX), (139, 0, u32::MAX),
    (140, 0, u32::MAX), (141, 0, u32::MAX), (142, 0, u32::MAX), (143, 0, u32::MAX),
    (204, 0, u32::MAX), (229, 0, u32::MAX), // serial and hypervisor consoles
];

/// `AF_RDS`, `AF_SMC` and `NETLINK_RDMA`: what the filter keeps programs from making.
const AF_RDS: u16 = 21;
const AF_SMC: u16 = 43;
const NETLINK_RDMA: u32 = 20;
/// `IPPROTO_SMC`.
const IPPROTO_SMC: u32 = 256;

/// What was inherited.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// The guest's, by their numbers, in ascending order.
    pub(super) kept: Vec<RawFd>,
    /// All of them.
    all: Vec<RawFd>,
}

impl Inherited {
    /// Judges what is inherited. The first `preserved` numbers behind the standard streams are kept
    /// whatever they are, since somebody wants them; an RDMA device is refused also there.
    ///
    /// To be called before anything is opened without O_CLOEXEC.
    ///
    /// # Errors
    /// [`Error::Preserved`]: one of those is not open, or an RDMA device.
    pub(super) fn find(preserved: u16) -> Result<Self, Error> {
        let end = FIRST.saturating_add(preserved.into());
        let rdma = RdmaNumbers::known();
        let mut found = Self::default();
        for number in open_numbers() {
            // SAFETY: the number was found open just now, this process has one thread, and nothing
            // closes a descriptor before this function returns.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            // Whatever is this program's own goes by itself.
            if rustix::io::fcntl_getfd(fd).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC)) {
                continue;
            }
            found.all.push(number);
            if number < end {
                let of_rdma = || {
                    fs::metadata(format!("/proc/self/fd/{number}")).is_ok_and(|m| rdma.are_of(&m))
                };
                if of_rdma() {
                    return Err(Error::Preserved { number, what: "is an RDMA device" });
                }
                found.kept.push(number);
                continue;
            }
            match judge(fd) {
                Ok(()) => found.kept.push(number),
                Err(what) => log::info!(
                    "the program does not inherit descriptor {number}, which is {what} \
                     (--preserve-fds passes the descriptor on)"
                ),
            }
        }
        match (FIRST..end).find(|number| !found.kept.contains(number)) {
            Some(number) => Err(Error::Preserved { number, what: "is not open" }),
            None => Ok(found),
        }
    }

    /// Closes them here, where they would keep pipes and sockets open that the guest has closed.
    pub(super) fn close(self) {
        for number in self.all {
            // SAFETY: this process was started with the descriptor, and what it opens itself is
            // O_CLOEXEC, which this is not: no value in it owns the number.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}

/// The numbers of open descriptors behind the standard streams, in ascending order.
fn open_numbers() -> Vec<RawFd> {
    // Where /proc is missing, nothing is known, and nothing kept.
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut numbers: Vec<RawFd> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.retain(|number| *number >= FIRST);
    numbers.sort_unstable();
    // The listing's own is closed by now.
    numbers.retain(|number| fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok());
    numbers
}

/// Whether a guest may have a descriptor, or what it is that it may not.
pub(super) fn judge(fd: BorrowedFd<'_>) -> Result<(), &'static str> {
    let flags = rustix::fs::fcntl_getfl(fd).map_err(|_| "unreadable")?;
    if flags.contains(OFlags::PATH) {
        return Err("a place in a file system (O_PATH)");
    }
    let link = link(fd).map_err(|_| "unreadable")?;
    if link.starts_with("anon_inode:") {
        let is_harmless = HARMLESS.contains(&&*link);
        return if is_harmless { Ok(()) } else { Err("an object of the kernel's") };
    }
    let stat = rustix::fs::fstat(fd).map_err(|_| "unreadable")?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let of = rustix::fs::fstatfs(fd).map_err(|_| "unreadable")?;
            let magic = u32::try_from(of.f_type).unwrap_or_default();
            match KERNELS_OWN.iter().find(|(known, _)| *known == magic) {
                Some((_, what)) => Err(what),
                None => Ok(()),
            }
        }
        FileType::Fifo => Ok(()),
        FileType::Socket => socket(fd),
        FileType::CharacterDevice => {
            let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
            let is = |(known, first, last): &(u32, u32, u32)| {
                *known == major && (*first..=*last).contains(&minor)
            };
            if COMMON.iter().any(is) { Ok(()) } else { Err("a device") }
        }
        FileType::BlockDevice => Err("a device"),
        FileType::Directory => Err("a directory"),
        _ => Err("of a kind that is not known"),
    }
}

fn link(fd: BorrowedFd<'_>) -> io::Result<String> {
    let link = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    Ok(link.to_string_lossy().into_owned())
}

fn socket(fd: BorrowedFd<'_>) -> Result<(), &'static str> {
    let domain = sockopt::socket_domain(fd).map_err(|_| "unreadable")?;
    let protocol = sockopt::socket_protocol(fd).map_err(|_| "unreadable")?;
    let protocol = protocol.map_or(0, |protocol| protocol.as_raw().get());
    match domain.as_raw() {
        AF_SMC | AF_RDS => Err("a socket that the kernel carries over RDMA"),
        _ if protocol == IPPROTO_SMC => Err("a socket that the kernel carries over RDMA"),
        _ if domain == AddressFamily::NETLINK && protocol == NETLINK_RDMA => {
            Err("a socket of RDMA netlink")
        }
        _ => Ok(()),
    }
}

/// Tells the program that it is the one to which systemd has passed sockets, if it was this one
/// (sd_listen_fds(3)): called in the child, which becomes the program.
pub(super) fn become_listener(parent: i32) {
    let is_ours = env::var("LISTEN_PID").is_ok_and(|pid| pid.parse() == Ok(parent));
    if is_ours {
        let own = rustix::process::getpid().as_raw_nonzero();
        // SAFETY: the child has one thread.
        unsafe { env::set_var("LISTEN_PID", own.to_string()) };
        // Names the process by the inode of its pidfd, as systemd 258 does; optional.
        // SAFETY: as above.
        unsafe { env::remove_var("LISTEN_PIDFDID") };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixListener;
    use std::os::unix::net::UnixStream;

    use rustix::event::EventfdFlags;
    use rustix::event::epoll;
    use rustix::fs::Mode;
    use rustix::fs::inotify;
    use rustix::process::PidfdFlags;
    use rustix::pty::OpenptFlags;

    use super::*;

    fn opened(path: &str, flags: OFlags) -> Option<OwnedFd> {
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).ok()
    }

    #[test]
    fn what_launchers_hand_over_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("file")).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let memory = rustix::fs::memfd_create(c"x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let counter = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        let fifo = opened(fifo.to_str().unwrap(), OFlags::RDWR).unwrap();
        let terminal = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::CLOEXEC).unwrap();
        let signals =
            nix::sys::signalfd::SignalFd::new(&nix::sys::signal::SigSet::empty()).unwrap();
        for (what, fd) in [
            ("a file", file.as_fd()),
            ("a pipe's end to read", reader.as_fd()),
            ("a pipe's end to write", writer.as_fd()),
            ("a named pipe", fifo.as_fd()),
            ("a socket", one.as_fd()),
            ("its peer", other.as_fd()),
            ("a listening socket", listener.as_fd()),
            ("a socket of TCP", tcp.as_fd()),
            ("a memfd", memory.as_fd()),
            ("an eventfd", counter.as_fd()),
            ("an epoll", poll.as_fd()),
            ("an inotify", watch.as_fd()),
            ("a signalfd", signals.as_fd()),
            ("a terminal", terminal.as_fd()),
        ] {
            assert_eq!(judge(fd), Ok(()), "{what}");
        }
        for device in ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"] {
            let fd = opened(device, OFlags::RDONLY).unwrap();
            assert_eq!(judge(fd.as_fd()), Ok(()), "{device}");
        }
    }

    #[test]
    fn what_could_be_a_way_out_is_not() {
        let own = rustix::process::getpid();
        let process = rustix::process::pidfd_open(own, PidfdFlags::empty()).unwrap();
        assert!(judge(process.as_fd()).is_err(), "a pidfd");
        let read = OFlags::RDONLY;
        for (path, flags, what) in [
            ("/", read | OFlags::DIRECTORY, "a directory"),
            ("/etc/passwd", OFlags::PATH, "a place in a file system (O_PATH)"),
            ("/", OFlags::PATH, "a place in a file system (O_PATH)"),
            ("/dev/null", OFlags::PATH, "a place in a file system (O_PATH)"),
            ("/proc/self/ns/mnt", read, "a namespace"),
            ("/proc/self/ns/net", read, "a namespace"),
            ("/proc/self/mem", read, "a file of /proc"),
            ("/sys/kernel/mm/transparent_hugepage/enabled", read, "a file of sysfs"),
        ] {
            let Some(fd) = opened(path, flags) else { panic!("{path}") };
            assert_eq!(judge(fd.as_fd()), Err(what), "{path}");
        }
        // Those that this machine has, and lets the caller open.
        for (path, what) in [
            ("/dev/kmsg", "a device"),
            ("/dev/fuse", "a device"),
            ("/dev/net/tun", "a device"),
            ("/dev/vda", "a device"),
            ("/dev/sda", "a device"),
            ("/dev/loop0", "a device"),
            ("/sys/fs/cgroup/cgroup.controllers", "a file of a control group"),
            ("/sys/kernel/debug/sleep_time", "a file of debugfs"),
        ] {
            if let Some(fd) = opened(path, OFlags::RDONLY) {
                assert_eq!(judge(fd.as_fd()), Err(what), "{path}");
            }
        }
        let netlink = |protocol: u32| {
            let protocol = protocol.try_into().ok().map(rustix::net::Protocol::from_raw);
            let kind = rustix::net::SocketType::RAW;
            rustix::net::socket(AddressFamily::NETLINK, kind, protocol)
        };
        assert_eq!(judge(netlink(0).unwrap().as_fd()), Ok(()), "rtnetlink");
        match netlink(NETLINK_RDMA) {
            Ok(fd) => assert_eq!(judge(fd.as_fd()), Err("a socket of RDMA netlink")),
            Err(e) => eprintln!("SKIPPED in part: this kernel has no RDMA netlink: {e}"),
        }
        let mount = rustix::mount::fsopen("tmpfs", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC);
        if let Ok(fd) = mount {
            assert_eq!(judge(fd.as_fd()), Err("an object of the kernel's"));
        }
    }
}
