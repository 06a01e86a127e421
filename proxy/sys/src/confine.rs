//! The supervisor's own confinement, before it serves: a process that reads a hostile guest's bytes
//! keeps only the means that serving takes.

use std::io;

use rustix::thread::CapabilitySet;

use crate::check;
use crate::seccomp::bpf::Assembler;
use crate::seccomp::bpf::RET_ALLOW;
use crate::seccomp::bpf::RET_ERRNO;
use crate::seccomp::bpf::SockFilter;
use crate::seccomp::bpf::data;

/// Capabilities that are kept, if they are there, and what for.
pub const KEPT: &[(CapabilitySet, &str)] = &[
    (CapabilitySet::SYS_PTRACE, "plants stubs in guests of any user, and reads their requests"),
    (
        CapabilitySet::SYS_ADMIN,
        "opens devices through mounts of their own, in a guest's network namespace",
    ),
    (
        CapabilitySet::DAC_READ_SEARCH,
        "looks at the meaning of guests' descriptors, of any user, without taking them",
    ),
    (CapabilitySet::MKNOD, "makes the node that a guest's descriptor of a device stands for"),
    (CapabilitySet::KILL, "passes signals on to guests of any user, and ends them"),
    (
        CapabilitySet::NET_BIND_SERVICE,
        "binds ids of rdma_cm to ports below 1024, for guests that may",
    ),
];

/// Cuts the calling thread's capabilities to [`KEPT`]; threads started later have no more.
///
/// # Errors
/// capset(2)'s.
pub fn cut_capabilities() -> io::Result<()> {
    let kept = KEPT.iter().fold(CapabilitySet::empty(), |all, (one, _)| all | *one);
    let mut sets = rustix::thread::capabilities(None)?;
    sets.permitted &= kept;
    sets.effective = sets.permitted;
    sets.inheritable = CapabilitySet::empty();
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Keeps the calling process's memory small from now on.
///
/// - All threads share one heap (`M_ARENA_MAX`, mallopt(3)): the GNU C library would give each thread an arena,
///   and what is free in one arena serves no other thread.
/// - Huge pages stay out: a supervisor is small, and one page of 2 MiB under a stack or a heap would cost as much as
///   a hundred guests. Processes forked later inherit this, and programs that they execute: a guest must be there
///   before.
///
/// # Errors
/// prctl(2)'s, for `PR_SET_THP_DISABLE`. The threads share a heap all the same.
pub fn keep_small() -> io::Result<()> {
    #[cfg(target_env = "gnu")]
    // SAFETY: a number for the allocator, which takes the number under its own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    Ok(rustix::thread::disable_transparent_huge_pages(true)?)
}

/// Code and constants of the calling process.
#[derive(Debug)]
pub struct CodePages(Vec<(usize, usize)>);

impl CodePages {
    /// Looks where they are: the mappings of files that are for reading, and of which no page is the process's
    /// own. (What is relocated at the start of a program is its own, by the time it runs.)
    ///
    /// # Errors
    /// `/proc/self/smaps` cannot be read.
    pub fn look() -> io::Result<Self> {
        Ok(Self(unchanged(&std::fs::read_to_string("/proc/self/smaps")?)))
    }

    /// Gives their pages back: most of what a supervisor runs at its start (the command line, the policy, the
    /// tree of `/sys`) never runs again, and would stay in memory for its whole life. A page that is needed
    /// comes back from the page cache, and a handful of neighbours with it.
    ///
    /// # Errors
    /// madvise(2)'s.
    pub fn forget(&self) -> io::Result<()> {
        for (at, len) in &self.0 {
            let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(*at);
            // SAFETY: the mapping is a file's, which nobody writes to by way of this mapping: the kernel
            // maps the same bytes again where they are used. Nothing unmaps a loaded program.
            if unsafe { libc::madvise(at, *len, libc::MADV_DONTNEED_LOCKED) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

/// Places and lengths of such mappings, in the words of proc_pid_smaps(5).
fn unchanged(smaps: &str) -> Vec<(usize, usize)> {
    let (mut last, mut found) = (None, Vec::new());
    for line in smaps.lines() {
        let is_name = |name: &str| name.chars().all(|c| c.is_alphabetic() || c == '_');
        match line.split_once(':').filter(|(name, _)| is_name(name)) {
            Some(("Anonymous", size)) if size.trim() == "0 kB" => found.extend(last),
            Some(_) => {}
            None => last = mapping(line),
        }
    }
    found
}

/// Place and length of a mapping: readable, never writable, and of a file that has an inode.
fn mapping(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    let is_kept = matches!(fields.next()?, "r-xp" | "r--p");
    let is_file = fields.nth(2).is_some_and(|inode| inode != "0");
    let number = |hex| usize::from_str_radix(hex, 16).ok();
    let from = number(from)?;
    (is_kept && is_file).then_some((from, number(to)?.checked_sub(from)?))
}

/// Keeps what the calling process has used of its memory, its program included, from being given back:
/// on a machine that is short of memory each page would have to come from the disk again, while a
/// guest waits, and its neighbours. Not what is mapped later.
///
/// # Errors
/// mlockall(2)'s: without CAP_IPC_LOCK, `ENOMEM` or `EPERM` by RLIMIT_MEMLOCK.
pub fn keep_in_memory() -> io::Result<()> {
    // SAFETY: takes no memory; what it does to pages changes nothing that they hold.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes all capabilities from the calling thread, and those that it starts.
///
/// # Errors
/// capset(2)'s.
pub fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let sets =
        rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Calls that serving never makes.
#[rustfmt::skip]
const DENIED: &[libc::c_long] = &[
    // Other programs and processes.
    libc::SYS_execve, libc::SYS_execveat,
    // The network; what talks to a stub is a pair made by socketpair(2). Of other sockets, RDMA
    // netlink is let through below.
    libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept,
    libc::SYS_accept4, libc::SYS_sendto,
    // Files by name. Writing is denied below, by the flags of openat(2).
    libc::SYS_openat2, libc::SYS_unlinkat, libc::SYS_renameat2, libc::SYS_mkdirat,
    libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_fchmodat,
    libc::SYS_fchownat, libc::SYS_truncate, libc::SYS_open_by_handle_at,
    // The file system's shape. open_tree(2), mount_setattr(2), fsopen(2), fsmount(2) and mknodat(2)
    // serve the opening of devices; without move_mount(2), what they make is seen by nobody else.
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot,
    libc::SYS_move_mount, libc::SYS_unshare,
    // The kernel.
    libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_kexec_load, libc::SYS_reboot,
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_io_uring_setup, libc::SYS_userfaultfd,
    libc::SYS_add_key, libc::SYS_keyctl, libc::SYS_setuid, libc::SYS_setresuid, libc::SYS_setgid,
    libc::SYS_setresgid, libc::SYS_capset,
];

/// The same calls by their older names, which only x86-64 has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const DENIED_OLD: &[libc::c_long] = &[
    libc::SYS_fork, libc::SYS_vfork, libc::SYS_unlink, libc::SYS_rename, libc::SYS_renameat,
    libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_link, libc::SYS_symlink, libc::SYS_mknod,
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_creat,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_OLD: &[libc::c_long] = &[];

/// Opens for writing alone, or that make, empty or replace a file. Devices are opened for both.
const MAKING: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;

/// include/uapi/linux/netlink.h. It tells of devices; changing them takes CAP_NET_ADMIN.
const NETLINK_RDMA: u32 = 20;

fn program() -> io::Result<Vec<SockFilter>> {
    let mut asm = Assembler::default();
    let (deny, allow) = (asm.label(), asm.label());
    asm.load(data::NR);
    let number = |nr: libc::c_long| u32::try_from(nr).unwrap_or(u32::MAX);
    for nr in DENIED.iter().chain(DENIED_OLD) {
        asm.if_eq(number(*nr), deny);
    }
    let socket = asm.label();
    asm.if_ne(number(libc::SYS_socket), socket);
    asm.load(data::arg_lo(0));
    asm.if_ne(libc::AF_NETLINK.cast_unsigned(), deny);
    asm.load(data::arg_lo(2));
    asm.if_ne(NETLINK_RDMA, deny);
    asm.goto(allow);
    asm.place(socket);
    #[cfg(target_arch = "x86_64")]
    let opens = [(libc::SYS_openat, 2), (libc::SYS_open, 1)];
    #[cfg(not(target_arch = "x86_64"))]
    let opens = [(libc::SYS_openat, 2)];
    for (nr, flags) in opens {
        let other = asm.label();
        asm.if_ne(number(nr), other);
        asm.load(data::arg_lo(flags));
        asm.and(MAKING.cast_unsigned());
        asm.if_ne(0, deny);
        asm.goto(allow);
        asm.place(other);
    }
    asm.goto(allow);
    asm.place(deny);
    asm.ret(RET_ERRNO | libc::EPERM.cast_unsigned());
    asm.place(allow);
    asm.ret(RET_ALLOW);
    asm.assemble().map_err(io::Error::other)
}

/// Puts all threads of the calling process under a filter that fails, with EPERM, what serving
/// never does: executing programs, the network, making or removing files, mounting, loading code.
///
/// # Errors
/// seccomp(2)'s.
pub fn deny_the_rest() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let program = program()?;
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let fprog = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: `fprog` points to `len` instructions that live through the call.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const fprog,
        )
    };
    match check(ret)? {
        0 => Ok(()),
        thread => Err(io::Error::other(format!("thread {thread} cannot be put under the filter"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::bpf::interpret;

    fn judge(nr: libc::c_long, args: [u64; 6]) -> bool {
        let nr = u32::try_from(nr).unwrap();
        interpret(&program().unwrap(), nr, 0, args) == Some(RET_ALLOW)
    }

    #[test]
    fn used_code_is_given_back_and_runs_on() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
        };
        let code = CodePages::look().unwrap();
        let before = resident();
        code.forget().unwrap();
        let after = resident();
        assert!(after < before, "{before} KiB before, {after} KiB after");
        assert!(judge(libc::SYS_ioctl, [0; 6]));
    }

    #[test]
    fn what_somebody_has_changed_stays() {
        let smaps = "1000-3000 r-xp 00001000 08:01 77   /bin/x\nRss:  8 kB\nShared_Clean: 8 kB\nAnonymous:  0 kB\n\
                     VmFlags: rd ex\n3000-5000 r--p 00003000 08:01 77   /bin/x\nAnonymous:  4 kB\n\
                     5000-6000 rw-p 00005000 08:01 77   /bin/x\nAnonymous:  0 kB\n\
                     6000-7000 r--p 00000000 00:00 0   [vvar]\nAnonymous:  0 kB\n\
                     7000-8000 r--p 00000000 08:01 78   /lib/y: z\nAnonymous:  0 kB\n";
        assert_eq!(unchanged(smaps), [(0x1000, 0x2000), (0x7000, 0x1000)]);
    }

    #[test]
    fn serving_is_allowed_and_the_rest_is_not() {
        let open =
            |flags: i32| judge(libc::SYS_openat, [0, 0, u64::from(flags.cast_unsigned()), 0, 0, 0]);
        assert!(open(libc::O_RDONLY | libc::O_CLOEXEC) && open(libc::O_RDWR));
        assert!(!open(libc::O_WRONLY) && !open(libc::O_RDWR | libc::O_CREAT));
        for nr in [libc::SYS_ioctl, libc::SYS_memfd_create, libc::SYS_ptrace, libc::SYS_socketpair]
        {
            assert!(judge(nr, [0; 6]));
        }
        let socket = |domain: i32, protocol| {
            judge(libc::SYS_socket, [domain.cast_unsigned().into(), 3, protocol, 0, 0, 0])
        };
        assert!(socket(libc::AF_NETLINK, 20) && !socket(libc::AF_NETLINK, 0));
        assert!(!socket(libc::AF_INET, 20));
        for nr in [libc::SYS_execve, libc::SYS_socket, libc::SYS_unlinkat, libc::SYS_mount] {
            assert!(!judge(nr, [0; 6]));
        }
    }

    #[test]
    fn a_confined_thread_keeps_only_what_serving_takes() {
        // In a thread of its own, which ends with the test.
        let thread = std::thread::spawn(|| {
            cut_capabilities().unwrap();
            rustix::thread::capabilities(None).unwrap()
        });
        let kept: CapabilitySet = KEPT.iter().fold(CapabilitySet::empty(), |a, (b, _)| a | *b);
        let left = thread.join().unwrap();
        assert!((left.effective - kept).is_empty() && left.inheritable.is_empty());
    }
}
