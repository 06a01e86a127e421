//! Fuzzing of the seccomp filter: its decision on a system call, against the meant decision.
//!
//! The bytes are a system call: which architecture's filter (1 byte), how the call is made (1), the
//! number (2) and six arguments (8 each).

use std::sync::LazyLock;

use verbgate_sys::arch::Arch;
use verbgate_sys::arch::RDMA_VERBS_IOCTL;
use verbgate_sys::arch::aarch64::Aarch64;
use verbgate_sys::arch::x86_64::X86_64;
use verbgate_sys::seccomp::bpf::RET_ALLOW;
use verbgate_sys::seccomp::bpf::RET_ERRNO;
use verbgate_sys::seccomp::bpf::RET_USER_NOTIF;
use verbgate_sys::seccomp::bpf::SockFilter;
use verbgate_sys::seccomp::bpf::interpret;
use verbgate_sys::seccomp::calls;
use verbgate_sys::seccomp::filter::program;
use verbgate_sys::window::AddrWindow;
use verbgate_sys::window::FdWindow;
use verbgate_sys::window::MAX_SLOTS;
use verbgate_sys::window::RO_LEN;
use verbgate_sys::window::RW_LEN;

/// The window of addresses.
pub const ADDRS: AddrWindow = AddrWindow::at(0x6ae0);
/// The window of descriptors.
pub const FDS: FdWindow = FdWindow { first: 960, len: 64 };
/// One past the last address of the window.
const END: u64 = ADDRS.base() + (1 << 32);
/// The longest address space of any kernel: 57 bits with five levels of page tables on x86-64, of
/// which programs have half, but for the last page.
const TASK_SIZE: u128 = (1 << 56) - 4096;
const PAGE: u64 = 4096;

static X86_64_PROGRAM: LazyLock<Vec<SockFilter>> =
    LazyLock::new(|| program::<X86_64>(ADDRS, FDS).unwrap());
static AARCH64_PROGRAM: LazyLock<Vec<SockFilter>> =
    LazyLock::new(|| program::<Aarch64>(ADDRS, FDS).unwrap());

/// A system call.
#[derive(Clone, Copy, Debug)]
struct Call {
    nr: u32,
    arch: u32,
    args: [u64; 6],
}

/// What is meant to happen with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meant {
    Notify,
    Allow,
    Errno(u32),
    /// Asking too often costs time only.
    NotifyOrAllow,
}

impl Meant {
    const fn is(self, action: u32) -> bool {
        match self {
            Self::Notify => action == RET_USER_NOTIF,
            Self::Allow => action == RET_ALLOW,
            Self::Errno(errno) => action == RET_ERRNO | errno,
            Self::NotifyOrAllow => action == RET_USER_NOTIF || action == RET_ALLOW,
        }
    }

    const fn notify_if(condition: bool) -> Self {
        if condition { Self::Notify } else { Self::Allow }
    }
}

/// Judges a call both ways.
pub fn run(data: &[u8]) {
    let Some((head, rest)) = data.split_at_checked(4) else { return };
    let mut args = [0; 6];
    for (arg, bytes) in args.iter_mut().zip(rest.chunks_exact(8)) {
        *arg = u64::from_ne_bytes(bytes.try_into().unwrap());
    }
    let nr = u32::from(u16::from_ne_bytes([head[2], head[3]]));
    if head[0] & 1 == 0 {
        judge::<X86_64>(&X86_64_PROGRAM, head[1], nr, args);
    } else {
        judge::<Aarch64>(&AARCH64_PROGRAM, head[1], nr, args);
    }
}

fn judge<A: Arch>(program: &[SockFilter], how: u8, nr: u32, args: [u64; 6]) {
    let (arch, nr) = match how % 4 {
        0 | 1 => (A::AUDIT, nr),
        2 => (calls::ABIS[usize::from(how / 4 % 4)], nr),
        // x32 numbers on x86-64; elsewhere there are no such calls.
        _ => (A::AUDIT, nr | 0x4000_0000),
    };
    let call = Call { nr, arch, args };
    let action = interpret(program, nr, arch, args).expect("a program that the kernel would take");
    let meant = meant::<A>(&call);
    assert!(meant.is(action), "{call:x?}: {action:#x}, meant is {meant:?}");
}

/// What is meant to happen to a call, said a second time and without the table of rules.
fn meant<A: Arch>(call: &Call) -> Meant {
    const EPERM: u32 = 1;
    const ENOENT: u32 = 2;
    const EINVAL: u32 = 22;
    const ENOSYS: u32 = 38;
    const EPROTONOSUPPORT: u32 = 93;
    const EAFNOSUPPORT: u32 = 97;

    let Call { nr, arch, args } = *call;
    // The kernel takes these arguments as ints.
    let int = |at: usize| u32::try_from(args[at] & 0xffff_ffff).unwrap();
    let is_verbs = int(1) == RDMA_VERBS_IOCTL;
    let is_rdma_netlink = int(0) == 16 && int(2) == 20;
    // AF_RDS, AF_RXRPC and AF_SMC; AF_INET and AF_INET6 with IPPROTO_SMC; the option TCP_ULP.
    let rdma_socket = match (int(0), int(2)) {
        (21 | 33 | 43, _) => Some(Meant::Errno(EAFNOSUPPORT)),
        (2 | 10, 256) => Some(Meant::Errno(EPROTONOSUPPORT)),
        _ => None,
    };
    let is_upper_layer = int(1) == 6 && int(2) == 31;
    let attaches = matches!(int(0), 16 | 0x4206);
    // Another ABI, and what is unknown.
    if arch != A::AUDIT || !calls::of(arch).iter().any(|(known, _)| *known == nr) {
        return Meant::Errno(ENOSYS);
    }
    let n = A::NUMBERS;
    let named = |fd: u32| FDS.contains(fd.cast_signed());
    // O_RDWR, and neither O_CREAT nor O_TRUNC nor O_APPEND; or a shell's `<>`.
    let opens = |flags: u32| flags & 3 == 2 && flags & 0o3100 == 0 || flags == 0o102;
    match nr {
        _ if nr == n.ioctl && is_verbs => Meant::Notify,
        // TIOCSTI, TIOCLINUX.
        _ if nr == n.ioctl => match int(1) {
            0x5412 | 0x541c => Meant::Errno(EPERM),
            _ => Meant::Allow,
        },
        _ if Some(nr) == n.open => Meant::notify_if(opens(int(1))),
        _ if nr == n.openat => Meant::notify_if(opens(int(2))),
        _ if nr == n.openat2 => Meant::Notify,
        // W_OK.
        _ if Some(nr) == n.access => Meant::notify_if(int(1) & 2 != 0),
        _ if [n.faccessat, n.faccessat2].contains(&nr) => Meant::notify_if(int(2) & 2 != 0),
        _ if [n.write, n.writev, n.close, n.dup].contains(&nr) => Meant::notify_if(named(int(0))),
        // F_DUPFD, F_DUPFD_CLOEXEC.
        _ if nr == n.fcntl => Meant::notify_if(matches!(int(1), 0 | 1030) && named(int(0))),
        _ if Some(nr) == n.dup2 || nr == n.dup3 => Meant::notify_if(named(int(1))),
        _ if nr == n.close_range => {
            let any = (FDS.first..FDS.end()).any(|fd| int(0) <= fd && fd <= int(1));
            // An empty range is EINVAL, whoever says so.
            if int(0) > int(1) { Meant::NotifyOrAllow } else { Meant::notify_if(any) }
        }
        _ if nr == n.socket && is_rdma_netlink => Meant::Notify,
        _ if nr == n.socket => rdma_socket.unwrap_or(Meant::Allow),
        _ if n.sockets.all().contains(&nr) && named(int(0)) => Meant::Notify,
        _ if nr == n.sockets.setsockopt && is_upper_layer => Meant::Errno(ENOENT),
        _ if n.sockets.all().contains(&nr) => Meant::Allow,
        _ if nr == n.process_madvise || n.io_uring.iter().any(|(_, ring)| *ring == nr) => {
            Meant::Errno(ENOSYS)
        }
        _ if nr == n.pidfd_getfd => Meant::Notify,
        _ if nr == n.shmat && int(2) & 0o40000 != 0 => Meant::Errno(EINVAL),
        // PR_SET_MM.
        _ if nr == n.prctl && int(0) == 35 => Meant::Errno(EPERM),
        _ if nr == n.ptrace && attaches => Meant::Notify,
        _ if n.credentials.iter().any(|(_, one)| *one == nr) => Meant::Notify,
        _ if nr == n.mremap => match (touches(args[0], args[1]), touches(args[4], args[2])) {
            (Meant::Notify, _) | (_, Meant::Notify) => Meant::Notify,
            (Meant::Allow, Meant::Allow) => Meant::Allow,
            _ => Meant::NotifyOrAllow,
        },
        // PIDFD_THREAD.
        _ if nr == n.pidfd_open && int(1) & 0o200 != 0 => Meant::Errno(EINVAL),
        // MAP_SHARED without MAP_ANONYMOUS; what a stub maps is through descriptor 0.
        _ if nr == n.mmap && int(3) & 0x21 == 1 && int(4) != 0 => Meant::Notify,
        _ if [n.mmap, n.munmap, n.mprotect, n.pkey_mprotect, n.madvise, n.remap_file_pages]
            .contains(&nr) =>
        {
            touches(args[0], args[1])
        }
        _ => Meant::Allow,
    }
}

/// A call on `len` bytes at `addr`: noticed when it touches a page of a stub's, and not when it is
/// nowhere near.
fn touches(addr: u64, len: u64) -> Meant {
    let end = u128::from(addr) + u128::from(len);
    if len == 0 {
        return Meant::NotifyOrAllow;
    }
    // mprotect(2) and madvise(2) begin, and fail in the end.
    if end > TASK_SIZE {
        let begins_below = addr & (u64::MAX >> 8) < ADDRS.base();
        return if begins_below && addr < 1 << 56 { Meant::Notify } else { Meant::NotifyOrAllow };
    }
    // Kernels round to pages, an address as a hint up or down.
    let stubs_end = ADDRS.slot(MAX_SLOTS - 1) + (RO_LEN + RW_LEN) as u64;
    if addr < stubs_end && end > u128::from(ADDRS.code()) {
        Meant::Notify
    } else if end + u128::from(PAGE) < u128::from(ADDRS.base()) || addr >= END {
        Meant::Allow
    } else {
        Meant::NotifyOrAllow
    }
}
