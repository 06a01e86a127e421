//! Differences between processors: system call numbers, registers, and the stub's code.
//!
//! Both implementations are plain data and arithmetic, compiled and tested on every host; only
//! [`Native`] talks to a kernel.

pub mod aarch64;
pub mod x86_64;

use std::fmt;

use crate::control;

/// The processor that this build runs on.
#[cfg(target_arch = "aarch64")]
pub type Native = aarch64::Aarch64;
/// The processor that this build runs on.
#[cfg(target_arch = "x86_64")]
pub type Native = x86_64::X86_64;

/// `RDMA_VERBS_IOCTL`, include/uapi/rdma/rdma_user_ioctl_cmds.h.
pub const RDMA_VERBS_IOCTL: u32 = 0xc018_1b01;

/// What the stub does after the request's `ioctl`: the low bits of the frame's first word.
///
/// The other bits number the orders. A stub that returns from its trap and finds the order that
/// it has carried out already was not let go by the supervisor (which has died, or a filter of
/// the guest's own answers the trap): it ends, rather than trap in vain for ever.
///
/// Orders are carried out in this order: writing, sending, closing, mapping, moving, parking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AfterIoctl(u8);

impl AfterIoctl {
    /// Show the result.
    pub const NOTHING: Self = Self(0);
    /// Close the descriptors that were lent for this request.
    pub const CLOSE: Self = Self(1);
    /// Send the message that the frame holds (it carries the descriptor that the kernel has just
    /// installed).
    pub const SEND: Self = Self(2);
    /// If the result is no error, copy from the frame's read-write half to the addresses that the
    /// frame's vectors name, and show how many bytes could be copied. The kernel copies, in the
    /// guest's own rights: the supervisor has no way to write into a guest.
    pub const WRITE: Self = Self(4);
    /// End the stub thread.
    pub const EXIT: Self = Self(8);
    /// Map memory of the ucontext, as the frame says, and show what that returned.
    pub const MAP: Self = Self(16);
    /// Wait for the next order in futex(2), where a stop, a freezer and a debugger reach the stub, and show what that
    /// returned.
    pub const PARK: Self = Self(32);
    /// Go to the processors that the frame says, by sched_setaffinity(2).
    pub const MOVE: Self = Self(64);
    /// The bits of the word that hold them.
    pub const MASK: u8 = 127;

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of another's orders are among these.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Descriptor numbers in a stub's own table. They are constant, so they can stand in the code.
pub mod stub_fd {
    /// The ucontext that requests go to.
    pub const UCONTEXT: u32 = 0;
    /// The socket over which descriptors made by the kernel reach the supervisor.
    pub const SOCKET: u32 = 1;
    /// The file of the frame's read-write half, for reading: outputs are copied out of it.
    pub const SCRATCH: u32 = 2;
    /// The lowest free number while a request runs: where the kernel installs a new descriptor.
    pub const NEW: u32 = 3;
    /// The first number for descriptors lent to one request.
    pub const LENT: u32 = 4;
    /// The last number for them. Stays below every [`FdWindow`](crate::window::FdWindow), so that
    /// closing them is not trapped.
    pub const LAST: u32 = 11;
}

/// The calls of rings, which have the same numbers everywhere.
const IO_URING: [(&str, u32); 3] =
    [("io_uring_setup", 425), ("io_uring_enter", 426), ("io_uring_register", 427)];

/// System call numbers that the filter and the planting use. `None`: not on this processor.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // each is the call of that name
pub struct Numbers {
    pub ioctl: u32,
    pub open: Option<u32>,
    pub openat: u32,
    pub openat2: u32,
    pub access: Option<u32>,
    pub faccessat: u32,
    pub faccessat2: u32,
    pub write: u32,
    pub writev: u32,
    pub close: u32,
    pub close_range: u32,
    pub dup: u32,
    pub fcntl: u32,
    pub dup2: Option<u32>,
    pub dup3: u32,
    pub socket: u32,
    pub sockets: SocketNumbers,
    /// Calls of rings, by name.
    pub io_uring: [(&'static str, u32); 3],
    pub mmap: u32,
    pub munmap: u32,
    pub mremap: u32,
    pub mprotect: u32,
    pub pkey_mprotect: u32,
    pub madvise: u32,
    pub process_madvise: u32,
    pub remap_file_pages: u32,
    pub shmat: u32,
    pub prctl: u32,
    pub ptrace: u32,
    /// Calls that change a thread's credentials, by name.
    pub credentials: &'static [(&'static str, u32)],
    pub clone: u32,
    pub mseal: u32,
    pub pidfd_open: u32,
    pub pidfd_getfd: u32,
    pub exit: u32,
}

/// Calls on a socket, by which RDMA netlink is spoken.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // each is the call of that name
pub struct SocketNumbers {
    pub bind: u32,
    pub getsockname: u32,
    pub setsockopt: u32,
    pub sendto: u32,
    pub sendmsg: u32,
    pub recvfrom: u32,
    pub recvmsg: u32,
}

impl SocketNumbers {
    /// All of them.
    #[must_use]
    pub const fn all(self) -> [u32; 7] {
        let Self { bind, getsockname, setsockopt, sendto, sendmsg, recvfrom, recvmsg } = self;
        [bind, getsockname, setsockopt, sendto, sendmsg, recvfrom, recvmsg]
    }

    /// The same with their names.
    pub fn named(self) -> impl Iterator<Item = (&'static str, u32)> {
        const NAMES: [&str; 7] =
            ["bind", "getsockname", "setsockopt", "sendto", "sendmsg", "recvfrom", "recvmsg"];
        NAMES.into_iter().zip(self.all())
    }
}

/// The stub's machine code and its landmarks, as offsets into the code page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StubCode {
    /// The bytes, position independent.
    pub bytes: Vec<u8>,
    /// Where the program counter stands while the stub waits in its trap.
    pub trap_ip: u64,
    /// The place where a stub ends.
    pub exit_at: u64,
    /// The lists of calls that new stubs make. One that makes a list stops in its trap, and shows the result, when a call
    /// fails, and after the last.
    pub lists: Vec<CallList>,
}

/// A list of calls in the stub's code, before which it closes a descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallList {
    /// The place of the first instruction.
    pub begin: u64,
    /// The program counter while the kernel closes the descriptor.
    pub closed: u64,
    /// The same while the kernel makes each call.
    pub ips: Vec<u64>,
}

/// A call that a thread is made to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // its name, number and arguments
pub struct Call {
    pub name: &'static str,
    pub nr: u32,
    pub args: [u64; 6],
}

/// How far the vectors of outputs stand behind the message, how far their number and their source
/// behind the word that says what to do. They are in the code, so they cannot vary.
const VECTORS_FROM_MESSAGE: u32 = behind(control::VECTORS, control::MESSAGE);
const VECTOR_COUNT: u8 = near(control::VECTOR_COUNT, control::AFTER);
const VECTOR_SOURCE: u8 = near(control::VECTOR_SOURCE, control::AFTER);
/// The distance of the processors that a stub goes to.
const PROCESSORS: u32 = behind(control::PROCESSORS, control::AFTER);
/// The distance of the time for which a parked stub waits.
const PATIENCE: u32 = behind(control::PATIENCE, control::AFTER);
/// The same for what mmap(2) takes besides the descriptor.
const MAPPING: [u8; 5] = [
    near(control::MAPPING, control::AFTER),
    near(control::MAPPING + 8, control::AFTER),
    near(control::MAPPING + 16, control::AFTER),
    near(control::MAPPING + 24, control::AFTER),
    near(control::MAPPING + 32, control::AFTER),
];

/// A distance that an instruction can hold; one that it cannot hold does not compile.
#[allow(clippy::cast_possible_truncation, reason = "TryFrom is not const; the line before looks")]
const fn behind(at: usize, from: usize) -> u32 {
    assert!(at - from <= u32::MAX as usize);
    (at - from) as u32
}

#[allow(clippy::cast_possible_truncation, reason = "as for `behind`")]
const fn near(at: usize, from: usize) -> u8 {
    assert!(at - from <= u8::MAX as usize);
    (at - from) as u8
}

/// Where a stub finds its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StubAddrs {
    /// The code page.
    pub code: u64,
    /// The request: `struct ib_uverbs_ioctl_hdr` and its attributes.
    pub request: u64,
    /// The word that says what to do [`AfterIoctl`].
    pub after: u64,
    /// The `struct msghdr` to send; the vectors of outputs stand at a fixed distance from it.
    pub message: u64,
    /// The range that nobody may map anew, first address and length: all of it, or nothing.
    pub sealed: (u64, u64),
}

/// A processor architecture.
pub trait Arch {
    /// General registers, laid out as `NT_PRSTATUS` of `PTRACE_GETREGSET`.
    type Regs: Copy + fmt::Debug + PartialEq + zerocopy::FromBytes + zerocopy::IntoBytes;
    /// `AUDIT_ARCH_*` of native system calls.
    const AUDIT: u32;
    /// `AUDIT_ARCH_*` of compat calls: those of the processor's 32-bit kind.
    const COMPAT: u32;
    /// System call numbers.
    const NUMBERS: Numbers;

    /// The stub's code, with lists of calls of which a new stub makes one.
    fn stub_code(lists: &[Vec<Call>]) -> StubCode;
    /// Registers with which a new thread begins at an address, and nothing else of its maker's.
    fn begin(at: u64, like: &Self::Regs) -> Self::Regs;
    /// Registers with which a new thread begins with a list, and closes a descriptor or none.
    fn begin_list(list: &CallList, closes: Option<u32>, like: &Self::Regs) -> Self::Regs;
    /// Registers with which a stopped thread executes `nr(args)` at the system call instruction
    /// that it executed last.
    fn inject(stopped: &Self::Regs, nr: u32, args: [u64; 6]) -> Self::Regs;
    /// Registers with which a thread stopped after a trapped system call makes that call again.
    fn again(stopped: &Self::Regs, nr: u32, first_arg: u64) -> Self::Regs;
    /// Registers with which a thread stopped after a system call goes on as if that had returned
    /// `value`.
    fn returning(stopped: &Self::Regs, value: i64) -> Self::Regs;
    /// Registers with which a new thread enters the stub's code, which begins with the system call
    /// instruction: mseal(2) of its memory. Then the stub closes what it was lent, and traps.
    fn enter_stub(at: &StubAddrs, like: &Self::Regs) -> Self::Regs;
    /// The number of the system call that a thread in syscall-entry-stop is about to make, its
    /// arguments, and the program counter after it.
    fn entry(regs: &Self::Regs) -> (u64, [u64; 6], u64);
    /// What the system call returned.
    fn result(regs: &Self::Regs) -> i64;
    /// Registers of a thread that stopped in a system call which goes on at `ip`, with what that call
    /// returned: -ERESTARTSYS for an interrupted one, even if the kernel has prepared to make the call again
    /// before it shows the thread.
    fn behind(stopped: &Self::Regs, ip: u64) -> Self::Regs;
}
