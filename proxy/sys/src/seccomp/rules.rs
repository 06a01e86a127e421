//! The rules of the filter, as a table: the watched calls and the refused calls.
//!
//! The filter ([`super::filter`]) is assembled from this table, and so are the rules for other
//! programs that make filters of their own, such as an OCI runtime.

use super::calls;
use crate::arch::Arch;
use crate::arch::RDMA_VERBS_IOCTL;

/// Bits of the flags of an open and what they are where a device may be meant: for reading and writing,
/// and without `O_CREAT`, `O_TRUNC` and `O_APPEND` (include/uapi/asm-generic/fcntl.h), by which
/// databases and compilers open their files and no RDMA library opens a device; or as a shell opens by
/// `<>`, with `O_CREAT` and nothing else. What the filter lets through finds a node that nobody can
/// open.
pub const OPENS: [(u32, u32); 2] = [USUAL, BY_SHELL];
const USUAL: (u32, u32) = (0o3 | 0o100 | 0o1000 | 0o2000, 0o2);
const BY_SHELL: (u32, u32) = (u32::MAX, 0o2 | 0o100);
/// `PIDFD_THREAD`, include/uapi/linux/pidfd.h.
const O_EXCL: u32 = 0o200;
const AF_NETLINK: u32 = 16;
const NETLINK_RDMA: u32 = 20;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_RDS: u32 = 21;
const AF_RXRPC: u32 = 33;
const AF_SMC: u32 = 43;
/// Linux 6.11, include/uapi/linux/in.h.
const IPPROTO_SMC: u32 = 256;
const SOL_TCP: u32 = 6;
const TCP_ULP: u32 = 31;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
/// `W_OK`, include/uapi/linux/fcntl.h: `MAY_WRITE`.
const W_OK: u32 = 2;
const SHM_REMAP: u32 = 0o40000;
const PR_SET_MM: u32 = 35;
const PTRACE_ATTACH: u32 = 16;
const PTRACE_SEIZE: u32 = 0x4206;

const F_DUPFD: u32 = 0;
const F_DUPFD_CLOEXEC: u32 = 1030;

const EPERM: u32 = 1;
const ENOENT: u32 = 2;
const EINVAL: u32 = 22;
const ENOSYS: u32 = 38;
const EPROTONOSUPPORT: u32 = 93;
const EAFNOSUPPORT: u32 = 97;

/// What is compared with an argument's lower word, which is all that the kernel takes of an `int`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Which argument.
    pub arg: u32,
    /// The bits that count.
    pub mask: u32,
    /// What they are.
    pub value: u32,
}

/// The calls of a number that a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Every one.
    Always,
    /// Those in which all of these words are so.
    Words(&'static [Word]),
    /// Those whose argument is a descriptor number of the window.
    Fd(u32),
    /// Those whose argument is such a number, and in which all of these words are so.
    FdWords(u32, &'static [Word]),
    /// Those whose arguments 0 and 1 are the first and the last of descriptor numbers of which one
    /// is in the window.
    FdRange,
    /// Those of mmap(2) that share a file's memory, but for what is mapped through descriptor 0,
    /// [`stub_fd::UCONTEXT`](crate::arch::stub_fd::UCONTEXT): a stub's own.
    SharesFile,
    /// Those whose range of addresses meets the stub's memory.
    Range {
        /// The argument that holds its start.
        addr: u32,
        /// The argument that holds its length.
        len: u32,
    },
}

/// What becomes of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The supervisor decides.
    Notify,
    /// They fail with this errno.
    Fail(u32),
}

/// What calls are about that the supervisor decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// What may be a request on an RDMA descriptor.
    Verbs,
    /// What may open a device.
    Open,
    /// Asking whether a file may be written, which may be a device.
    Access,
    /// What ends the life of a descriptor that may be an RDMA descriptor.
    Close,
    /// What makes a duplicate of one.
    Duplicate,
    /// Making a socket of RDMA netlink.
    NetlinkSocket,
    /// What may be a call on such a socket.
    NetlinkCall,
    /// Taking a file out of another's descriptor table.
    TakeFile,
    /// Attaching a debugger.
    Ptrace,
    /// Changing credentials.
    Credentials,
    /// What touches the stub's memory.
    StubMemory,
    /// Mapping memory: the stub's, or that of a file that may be an RDMA device.
    Map,
    /// Nothing that the supervisor decides: the filter refuses it.
    Refused,
}

/// A rule. Calls that no rule is about are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The call's name.
    pub name: &'static str,
    /// Its number.
    pub nr: u32,
    /// Which calls of it.
    pub when: When,
    /// What becomes of them.
    pub verdict: Verdict,
    /// What they are about.
    pub about: About,
}

/// [`OPENS`], by the argument that the flags are.
const fn opens<const ARG: u32>() -> [When; 2] {
    const fn of<const ARG: u32>((mask, value): (u32, u32)) -> Word {
        Word { arg: ARG, mask, value }
    }
    [When::Words(const { &[of::<ARG>(USUAL)] }), When::Words(const { &[of::<ARG>(BY_SHELL)] })]
}

/// By the argument that the mode is.
const fn writable<const ARG: u32>() -> Word {
    Word { arg: ARG, mask: W_OK, value: W_OK }
}

const fn word(arg: u32, value: u32) -> Word {
    Word { arg, mask: u32::MAX, value }
}

/// `cmd` is an unsigned int: the kernel ignores the upper word.
const VERBS: When = When::Words(&[word(1, RDMA_VERBS_IOCTL)]);
const RDMA_NETLINK: When = When::Words(&[word(0, AF_NETLINK), word(2, NETLINK_RDMA)]);
const TYPE: When = When::Words(&[word(1, TIOCSTI)]);
const TYPE_LINUX: When = When::Words(&[word(1, TIOCLINUX)]);
const OPENS_OF_OPEN: [When; 2] = opens::<1>();
const OPENS_OF_OPENAT: [When; 2] = opens::<2>();
const WRITABLE: When = When::Words(&[writable::<1>()]);
const WRITABLE_AT: When = When::Words(&[writable::<2>()]);
const REMAP: When = When::Words(&[Word { arg: 2, mask: SHM_REMAP, value: SHM_REMAP }]);
const DUPFD: When = When::FdWords(0, &[word(1, F_DUPFD)]);
const DUPFD_CLOEXEC: When = When::FdWords(0, &[word(1, F_DUPFD_CLOEXEC)]);
const PIDFD_OF_THREAD: When = When::Words(&[Word { arg: 1, mask: O_EXCL, value: O_EXCL }]);
const SET_MM: When = When::Words(&[word(0, PR_SET_MM)]);
const UPPER_LAYER: When = When::Words(&[word(1, SOL_TCP), word(2, TCP_ULP)]);
const ATTACH: When = When::Words(&[word(0, PTRACE_ATTACH)]);
const SEIZE: When = When::Words(&[word(0, PTRACE_SEIZE)]);

/// Sockets that the kernel itself carries over RDMA devices (net/smc, net/rds), and what socket(2)
/// says where the kernel was built without them. Their queue pairs are the kernel's: no supervisor
/// sees them, and neither a grant nor a quota bounds them.
const RDMA_SOCKETS: [(When, u32); 5] = [
    (When::Words(&[word(0, AF_SMC)]), EAFNOSUPPORT),
    (When::Words(&[word(0, AF_RDS)]), EAFNOSUPPORT),
    // Speaks UDP by a socket of the kernel's own (net/rxrpc/local_object.c), to any port: RoCE's
    // 4791, too, of which no packet filter can tell that it is not Soft-RoCE's.
    (When::Words(&[word(0, AF_RXRPC)]), EAFNOSUPPORT),
    // SMC by the family of TCP.
    (When::Words(&[word(0, AF_INET), word(2, IPPROTO_SMC)]), EPROTONOSUPPORT),
    (When::Words(&[word(0, AF_INET6), word(2, IPPROTO_SMC)]), EPROTONOSUPPORT),
];

/// The rules for calls of the processor's own kind; rules of one call stand together.
#[must_use]
pub fn native<A: Arch>() -> Vec<Rule> {
    use Verdict::Fail;
    use Verdict::Notify;
    let n = &A::NUMBERS;
    let mut rules = Vec::new();
    let mut add = |name, nr, when, verdict, about| {
        rules.push(Rule { name, nr, when, verdict, about });
    };

    // The verbs interface.
    add("ioctl", n.ioctl, VERBS, Notify, About::Verbs);
    // Types into the terminal, which the guest may share with the user's shell.
    add("ioctl", n.ioctl, TYPE, Fail(EPERM), About::Refused);
    add("ioctl", n.ioctl, TYPE_LINUX, Fail(EPERM), About::Refused);

    // The RDMA devices are opened for reading and writing; a thousand imports are not.
    for when in OPENS_OF_OPEN {
        if let Some(open) = n.open {
            add("open", open, when, Notify, About::Open);
        }
    }
    for when in OPENS_OF_OPENAT {
        add("openat", n.openat, when, Notify, About::Open);
    }
    // Its flags are in memory, so each is asked about; few programs call it.
    add("openat2", n.openat2, When::Always, Notify, About::Open);

    // UCX asks before it opens. A container's control group says no, and is not told to say yes: it keeps raw
    // nodes shut. What only reads is not asked about: loaders ask that of a hundred files.
    if let Some(access) = n.access {
        add("access", access, WRITABLE, Notify, About::Access);
    }
    add("faccessat", n.faccessat, WRITABLE_AT, Notify, About::Access);
    add("faccessat2", n.faccessat2, WRITABLE_AT, Notify, About::Access);

    // Doorbells, commands, and messages of the netlink that the supervisor stands in for; and
    // whatever ends a descriptor's life, so that a stub does not keep the device open longer than
    // the guest does.
    for (name, nr, about) in [
        ("write", n.write, About::Verbs),
        ("writev", n.writev, About::Verbs),
        ("close", n.close, About::Close),
    ] {
        add(name, nr, When::Fd(0), Notify, about);
    }
    for (name, nr) in n.sockets.named() {
        add(name, nr, When::Fd(0), Notify, About::NetlinkCall);
        if nr == n.sockets.setsockopt {
            // Makes a TCP socket one of SMC (Linux 5.17), by a name that is in memory. The same
            // option turns on TLS in the kernel, which libraries do without when it fails.
            add(name, nr, UPPER_LAYER, Fail(ENOENT), About::Refused);
        }
    }
    // A duplicate belongs into the window as well, or what is written to it is not seen.
    add("dup", n.dup, When::Fd(0), Notify, About::Duplicate);
    add("fcntl", n.fcntl, DUPFD, Notify, About::Duplicate);
    add("fcntl", n.fcntl, DUPFD_CLOEXEC, Notify, About::Duplicate);
    if let Some(dup2) = n.dup2 {
        add("dup2", dup2, When::Fd(1), Notify, About::Close);
    }
    add("dup3", n.dup3, When::Fd(1), Notify, About::Close);
    add("close_range", n.close_range, When::FdRange, Notify, About::Close);

    // Device discovery: the supervisor shows the sandbox its own devices only.
    add("socket", n.socket, RDMA_NETLINK, Notify, About::NetlinkSocket);
    for (when, errno) in RDMA_SOCKETS {
        add("socket", n.socket, when, Fail(errno), About::Refused);
    }
    // A ring makes system calls that no filter sees.
    for (name, nr) in n.io_uring {
        add(name, nr, When::Always, Fail(ENOSYS), About::Refused);
    }

    // A descriptor of a stub's leads to its files, the open device among them. Before Linux 6.9 no
    // thread but a process's first has one, and pidfd_open(2) says so.
    add("pidfd_open", n.pidfd_open, PIDFD_OF_THREAD, Fail(EINVAL), About::Refused);

    // A thread's descriptor takes no file of a stub's, by whichever way it came.
    add("pidfd_getfd", n.pidfd_getfd, When::Always, Notify, About::TakeFile);

    // The stub's memory. Asked about rather than refused here, because the supervisor makes the
    // same calls on the guest's behalf when it plants the stub.
    let range = When::Range { addr: 0, len: 1 };
    // An RDMA descriptor is of no use to mmap(2): a stub maps for it, whatever its number is, since one
    // that came over a socket has any.
    add("mmap", n.mmap, When::SharesFile, Notify, About::Map);
    add("mmap", n.mmap, range, Notify, About::Map);
    for (name, nr) in [
        ("munmap", n.munmap),
        ("mprotect", n.mprotect),
        ("pkey_mprotect", n.pkey_mprotect),
        ("madvise", n.madvise),
        ("remap_file_pages", n.remap_file_pages),
    ] {
        add(name, nr, range, Notify, About::StubMemory);
    }
    // Its ranges are in memory, where they cannot be judged. The allocators that know it go back
    // to madvise.
    add("process_madvise", n.process_madvise, When::Always, Fail(ENOSYS), About::Refused);
    add("mremap", n.mremap, When::Range { addr: 4, len: 2 }, Notify, About::StubMemory);
    add("mremap", n.mremap, range, Notify, About::StubMemory);
    // Attaches a segment over existing mappings; its length is not an argument.
    add("shmat", n.shmat, REMAP, Fail(EINVAL), About::Refused);
    // Could move the heap's end across the stub and shrink it from there.
    add("prctl", n.prctl, SET_MM, Fail(EPERM), About::Refused);
    // A stub is a thread of its own, with the credentials of the moment when it was planted: it
    // must not keep what the program gives up.
    for (name, nr) in n.credentials {
        add(name, *nr, When::Always, Notify, About::Credentials);
    }
    // A debugger is welcome to everything but the stubs.
    add("ptrace", n.ptrace, ATTACH, Notify, About::Ptrace);
    add("ptrace", n.ptrace, SEIZE, Notify, About::Ptrace);
    rules
}

/// The verdict on the compat calls that a rule is about: by the numbers of the processor's 32-bit kind. The supervisor
/// serves none, so that a 32-bit program has no RDMA.
const fn abroad(rule: &Rule) -> Option<Verdict> {
    match rule.about {
        // An open finds a node that nobody can open, and no driver serves the files that a 64-bit program leaves to
        // a 32-bit one. Nobody is told of their ends, which the supervisor finds by itself.
        About::Verbs | About::Open | About::Access | About::Close | About::Duplicate => None,
        About::NetlinkCall => None,
        About::NetlinkSocket => Some(Verdict::Fail(EPROTONOSUPPORT)),
        About::TakeFile | About::Ptrace | About::Credentials => Some(Verdict::Fail(EPERM)),
        // An address and a length of 32 bits do not reach the window ([`crate::window::AddrWindow`]).
        About::StubMemory | About::Map => None,
        About::Refused => Some(rule.verdict),
    }
}

/// The rules for compat calls: for each of the processor's own kind the twin, by the names that the call has.
#[must_use]
pub fn compat<A: Arch>() -> Vec<Rule> {
    /// `SHMAT`, include/uapi/linux/ipc.h: the lower half of the first argument, whose flags are the third.
    const ATTACHES: When = When::Words(&[
        Word { arg: 0, mask: 0xffff, value: 21 },
        Word { arg: 2, mask: SHM_REMAP, value: SHM_REMAP },
    ]);
    let calls = calls::of(A::COMPAT);
    let mut rules = Vec::new();
    for rule in native::<A>() {
        let Some(verdict) = abroad(&rule) else { continue };
        let is_same = |name: &str| name.strip_suffix("32").unwrap_or(name) == rule.name;
        for (nr, name) in calls.iter().filter(|(_, name)| is_same(name)) {
            rules.push(Rule { name, nr: *nr, verdict, about: About::Refused, ..rule });
        }
    }
    // Calls of several kinds in one number. Those of socketcall(2) have their arguments in memory.
    for (name, when, errno) in [("socketcall", When::Always, ENOSYS), ("ipc", ATTACHES, EINVAL)] {
        if let Some((nr, name)) = calls.iter().find(|(_, of)| *of == name) {
            let verdict = Verdict::Fail(errno);
            rules.push(Rule { name, nr: *nr, when, verdict, about: About::Refused });
        }
    }
    rules.sort_by_key(|rule| rule.nr);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::aarch64::Aarch64;
    use crate::arch::x86_64::X86_64;

    #[test]
    fn rules_of_one_call_stand_together() {
        for rules in [native::<X86_64>(), native::<Aarch64>()] {
            let mut names: Vec<_> = rules.iter().map(|rule| (rule.name, rule.nr)).collect();
            names.dedup();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }

    #[test]
    fn each_rule_has_its_twin() {
        fn names<A: Arch>(audit: u32) {
            let twins = compat::<A>();
            for rule in native::<A>().iter().filter(|rule| abroad(rule).is_some()) {
                let is_twin = |twin: &&Rule| twin.name.trim_end_matches("32") == rule.name;
                let twin = twins.iter().filter(is_twin).find(|twin| twin.when == rule.when);
                assert!(twin.is_some(), "{audit:#x}: {rule:?}");
            }
            assert!(twins.iter().all(|twin| twin.verdict != Verdict::Notify));
        }
        names::<X86_64>(X86_64::COMPAT);
        names::<Aarch64>(Aarch64::COMPAT);
    }

    #[test]
    fn numbers_go_by_the_kernels_names() {
        let of = |wanted| native::<X86_64>().iter().find(|r| r.name == wanted).unwrap().nr;
        for (name, nr) in [
            ("ioctl", libc::SYS_ioctl),
            ("setresgid", libc::SYS_setresgid),
            ("capset", libc::SYS_capset),
            ("setgroups", libc::SYS_setgroups),
            ("recvmsg", libc::SYS_recvmsg),
            ("dup", libc::SYS_dup),
            ("fcntl", libc::SYS_fcntl),
            ("remap_file_pages", libc::SYS_remap_file_pages),
        ] {
            if cfg!(target_arch = "x86_64") {
                assert_eq!(libc::c_long::from(of(name)), nr, "{name}");
            }
        }
    }
}
