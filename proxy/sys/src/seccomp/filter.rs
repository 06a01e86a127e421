//! The filter that every guest thread runs under.
//!
//! What it sends to the supervisor and what it refuses by itself is the list in [`program`]; the
//! reasons stand beside the rules. All arguments that it judges are scalars: the filter cannot
//! read memory, and nothing it decides depends on memory.

use super::bpf::AssembleError;
use super::bpf::Assembler;
use super::bpf::Label;
use super::bpf::RET_ALLOW;
use super::bpf::RET_ERRNO;
use super::bpf::RET_USER_NOTIF;
use super::bpf::SockFilter;
use super::bpf::data::ARCH;
use super::bpf::data::NR;
use super::bpf::data::arg_hi;
use super::bpf::data::arg_lo;
use crate::arch::Arch;
use crate::arch::RDMA_VERBS_IOCTL;
use crate::window::AddrWindow;
use crate::window::FdWindow;

const O_ACCMODE: u32 = 3;
const O_RDWR: u32 = 2;
const AF_NETLINK: u32 = 16;
const NETLINK_RDMA: u32 = 20;
/// The `socket` of socketcall(2), include/uapi/linux/net.h.
const SYS_SOCKET: u32 = 1;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const SHM_REMAP: u32 = 0o40000;
const PR_SET_MM: u32 = 35;
const PTRACE_ATTACH: u32 = 16;
const PTRACE_SEIZE: u32 = 0x4206;

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSYS: u32 = 38;
const EPROTONOSUPPORT: u32 = 93;
const EOPNOTSUPP: u32 = 95;

/// Where a judgement ends.
struct Ends {
    allow: Label,
    notify: Label,
}

/// The filter of one sandbox.
///
/// # Errors
/// Never in practice: a rule list that grew past what jumps can express is found by the tests.
pub fn program<A: Arch>(
    addrs: AddrWindow,
    fds: FdWindow,
) -> Result<Vec<SockFilter>, AssembleError> {
    let n = &A::NUMBERS;
    let mut asm = Assembler::default();
    let ends = Ends { allow: asm.label(), notify: asm.label() };
    let foreign = asm.label();

    asm.load(ARCH);
    asm.if_ne(A::AUDIT, foreign);
    asm.load(NR);
    if let Some(alien) = A::FOREIGN.first_alien_number {
        // x32: the same verbs by other numbers, which no program of today uses.
        let native = asm.label();
        asm.if_lt(alien, native);
        asm.ret(RET_ERRNO | ENOSYS);
        asm.place(native);
    }

    // The verbs interface. `cmd` is an unsigned int: the kernel ignores the upper word.
    on(&mut asm, n.ioctl, |asm| {
        asm.load(arg_lo(1));
        asm.if_eq(RDMA_VERBS_IOCTL, ends.notify);
        // Types into the terminal, which the guest may share with the user's shell.
        let refuse = asm.label();
        asm.if_eq(TIOCSTI, refuse);
        asm.if_ne(TIOCLINUX, ends.allow);
        asm.place(refuse);
        asm.ret(RET_ERRNO | EPERM);
    });

    // The RDMA devices are opened for reading and writing; a thousand imports are not.
    for (nr, flags) in [(n.open, 1), (Some(n.openat), 2)] {
        let Some(nr) = nr else { continue };
        on(&mut asm, nr, |asm| {
            asm.load(arg_lo(flags));
            asm.and(O_ACCMODE);
            asm.if_eq(O_RDWR, ends.notify);
            asm.goto(ends.allow);
        });
    }
    // Its flags are in memory, so each is asked about; few programs call it.
    on(&mut asm, n.openat2, |asm| asm.goto(ends.notify));

    // Doorbells, commands, and messages of the netlink that the supervisor stands in for; and
    // whatever ends a descriptor's life, so that a stub does not keep the device open longer than
    // the guest does.
    let [first, second] = [asm.label(), asm.label()];
    for nr in [n.write, n.writev, n.close].into_iter().chain(n.sockets.all()) {
        asm.if_eq(nr, first);
    }
    for nr in n.dup2.into_iter().chain([n.dup3]) {
        asm.if_eq(nr, second);
    }
    on(&mut asm, n.close_range, |asm| {
        asm.load(arg_lo(0));
        asm.if_ge(fds.end(), ends.allow);
        asm.load(arg_lo(1));
        asm.if_ge(fds.first, ends.notify);
        asm.goto(ends.allow);
    });

    // Device discovery: the supervisor shows the sandbox its own devices only.
    on(&mut asm, n.socket, |asm| {
        asm.load(arg_lo(0));
        asm.if_ne(AF_NETLINK, ends.allow);
        asm.load(arg_lo(2));
        asm.if_eq(NETLINK_RDMA, ends.notify);
        asm.goto(ends.allow);
    });
    // A ring makes system calls that no filter sees.
    on(&mut asm, n.io_uring_setup, |asm| asm.ret(RET_ERRNO | ENOSYS));

    // The stub's memory. Asked about rather than refused here, because the supervisor makes the
    // same calls on the guest's behalf when it plants the stub.
    let range = asm.label();
    for nr in [n.mmap, n.munmap, n.mprotect, n.pkey_mprotect, n.madvise, n.remap_file_pages] {
        asm.if_eq(nr, range);
    }
    // Its ranges are in memory, where they cannot be judged. The allocators that know it go back
    // to madvise.
    on(&mut asm, n.process_madvise, |asm| asm.ret(RET_ERRNO | ENOSYS));
    on(&mut asm, n.mremap, |asm| {
        touches(asm, addrs, (4, 2), &ends, range);
    });
    // Attaches a segment over existing mappings; its length is not an argument.
    on(&mut asm, n.shmat, |asm| {
        asm.load(arg_lo(2));
        asm.and(SHM_REMAP);
        asm.if_eq(0, ends.allow);
        asm.ret(RET_ERRNO | EINVAL);
    });
    // Could move the heap's end across the stub and shrink it from there.
    on(&mut asm, n.prctl, |asm| {
        asm.load(arg_lo(0));
        asm.if_ne(PR_SET_MM, ends.allow);
        asm.ret(RET_ERRNO | EPERM);
    });
    // A stub is a thread of its own, with the credentials of the moment when it was planted: it
    // must not keep what the program gives up.
    for nr in n.credentials {
        asm.if_eq(*nr, ends.notify);
    }
    // A debugger is welcome to everything but the stubs.
    on(&mut asm, n.ptrace, |asm| {
        asm.load(arg_lo(0));
        asm.if_eq(PTRACE_ATTACH, ends.notify);
        asm.if_eq(PTRACE_SEIZE, ends.notify);
        asm.goto(ends.allow);
    });
    asm.goto(ends.allow);

    for (label, fd) in [(first, 0), (second, 1)] {
        asm.place(label);
        asm.load(arg_lo(fd));
        asm.if_lt(fds.first, ends.allow);
        asm.if_lt(fds.end(), ends.notify);
        asm.goto(ends.allow);
    }
    asm.place(range);
    touches(&mut asm, addrs, (0, 1), &ends, ends.allow);
    asm.place(foreign);
    foreign_rules::<A>(&mut asm, &ends);
    asm.place(ends.notify);
    asm.ret(RET_USER_NOTIF);
    asm.place(ends.allow);
    asm.ret(RET_ALLOW);
    asm.assemble()
}

/// Rules for one system call. The number is in the accumulator, before and after.
fn on(asm: &mut Assembler, nr: u32, rules: impl FnOnce(&mut Assembler)) {
    let other = asm.label();
    asm.if_ne(nr, other);
    rules(asm);
    asm.place(other);
}

/// Notifies when `[args[addr], args[addr] + args[len]]` meets the window: the end counts as
/// inside, which errs on the safe side and saves instructions. Goes to `no` otherwise.
fn touches(
    asm: &mut Assembler,
    window: AddrWindow,
    (addr, len): (u32, u32),
    ends: &Ends,
    no: Label,
) {
    let no_carry = asm.label();
    let sum = asm.label();
    asm.load(arg_hi(addr));
    asm.if_gt(window.hi(), no);
    // A length of 2^56 and more is refused by the kernel before it touches anything: a program's
    // addresses have 56 bits at most (x86-64 with five levels of page tables).
    asm.load(arg_hi(len));
    asm.if_ge(0x100_0000, no);
    asm.store(0);
    // The upper word of the end is the sum of the upper words and the carry of the lower ones.
    asm.load(arg_lo(len));
    asm.store(1);
    asm.load_x(1);
    asm.load(arg_lo(addr));
    asm.add_x();
    asm.if_ge_x(no_carry);
    asm.load(arg_hi(addr));
    asm.add(1);
    asm.goto(sum);
    asm.place(no_carry);
    asm.load(arg_hi(addr));
    asm.place(sum);
    asm.load_x(0);
    asm.add_x();
    asm.if_ge(window.hi(), ends.notify);
    asm.goto(no);
}

/// 32-bit callers of a 64-bit kernel. Their addresses do not reach the window, and their opens
/// and writes fail in the kernel; what is left is refused here.
fn foreign_rules<A: Arch>(asm: &mut Assembler, ends: &Ends) {
    let f = A::FOREIGN;
    asm.if_ne(f.audit, ends.allow);
    asm.load(NR);
    on(asm, f.ioctl, |asm| {
        asm.load(arg_lo(1));
        asm.if_ne(RDMA_VERBS_IOCTL, ends.allow);
        asm.ret(RET_ERRNO | EOPNOTSUPP);
    });
    on(asm, f.socket, |asm| {
        asm.load(arg_lo(0));
        asm.if_ne(AF_NETLINK, ends.allow);
        asm.load(arg_lo(2));
        asm.if_ne(NETLINK_RDMA, ends.allow);
        asm.ret(RET_ERRNO | EPROTONOSUPPORT);
    });
    if let Some(socketcall) = f.socketcall {
        // Which protocol cannot be seen. C libraries of today do without it.
        on(asm, socketcall, |asm| {
            asm.load(arg_lo(0));
            asm.if_ne(SYS_SOCKET, ends.allow);
            asm.ret(RET_ERRNO | ENOSYS);
        });
    }
    on(asm, f.ptrace, |asm| {
        let refuse = asm.label();
        asm.load(arg_lo(0));
        asm.if_eq(PTRACE_ATTACH, refuse);
        asm.if_ne(PTRACE_SEIZE, ends.allow);
        asm.place(refuse);
        asm.ret(RET_ERRNO | EPERM);
    });
    on(asm, f.io_uring_setup, |asm| asm.ret(RET_ERRNO | ENOSYS));
    asm.goto(ends.allow);
}

#[cfg(test)]
mod tests {
    use super::super::bpf::interpret;
    use super::*;
    use crate::arch::aarch64::Aarch64;
    use crate::arch::x86_64::X86_64;

    const W: AddrWindow = AddrWindow::at(0x6ae0);
    const F: FdWindow = FdWindow { first: 960, len: 64 };
    const BASE: u64 = W.base();
    const END: u64 = BASE + (1 << 32);

    fn x86(nr: u32, args: [u64; 6]) -> u32 {
        let program = program::<X86_64>(W, F).unwrap();
        interpret(&program, nr, X86_64::AUDIT, args).unwrap()
    }
    fn x86_32(nr: u32, args: [u64; 6]) -> u32 {
        let program = program::<X86_64>(W, F).unwrap();
        interpret(&program, nr, X86_64::FOREIGN.audit, args).unwrap()
    }
    const NOTIFY: u32 = RET_USER_NOTIF;
    const ALLOW: u32 = RET_ALLOW;

    #[test]
    fn verbs_requests_are_trapped_whatever_the_upper_word_says() {
        let cmd = u64::from(RDMA_VERBS_IOCTL);
        assert_eq!(x86(16, [3, cmd, 0, 0, 0, 0]), NOTIFY);
        assert_eq!(x86(16, [3, cmd | 1 << 40, 0, 0, 0, 0]), NOTIFY);
        assert_eq!(x86(16, [3, 0x5401, 0, 0, 0, 0]), ALLOW);
        assert_eq!(x86_32(54, [3, cmd, 0, 0, 0, 0]), RET_ERRNO | EOPNOTSUPP);
        assert_eq!(x86(16 | 0x4000_0000, [3, cmd, 0, 0, 0, 0]), RET_ERRNO | ENOSYS);
    }

    #[test]
    fn only_opens_for_reading_and_writing_are_trapped() {
        assert_eq!(x86(257, [0, 0, 0o2_000_002, 0, 0, 0]), NOTIFY);
        assert_eq!(x86(257, [0, 0, 0o2_000_000, 0, 0, 0]), ALLOW);
        assert_eq!(x86(257, [0, 0, 1, 0, 0, 0]), ALLOW);
        assert_eq!(x86(2, [0, 2, 0, 0, 0, 0]), NOTIFY);
        assert_eq!(x86(2, [0, 0, 2, 0, 0, 0]), ALLOW);
        assert_eq!(x86(437, [0; 6]), NOTIFY);
    }

    #[test]
    fn descriptors_in_the_window_are_watched() {
        let sockets = [44, 45, 46, 47, 49, 51, 54].map(|nr| (nr, 0));
        let others = [(1, 0), (20, 0), (3, 0), (33, 1), (292, 1)];
        for (nr, at) in others.into_iter().chain(sockets) {
            for (fd, want) in [
                (959, ALLOW),
                (960, NOTIFY),
                (1023, NOTIFY),
                (1024, ALLOW),
                (1 << 32 | 960, NOTIFY),
            ] {
                let mut args = [0; 6];
                args[at] = fd;
                assert_eq!(x86(nr, args), want, "call {nr} fd {fd}");
            }
        }
        assert_eq!(x86(436, [3, 0xffff_ffff, 0, 0, 0, 0]), NOTIFY);
        assert_eq!(x86(436, [2, 11, 0, 0, 0, 0]), ALLOW);
        assert_eq!(x86(436, [1024, 2000, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn static_refusals() {
        assert_eq!(x86(16, [0, 0x5412, 0, 0, 0, 0]), RET_ERRNO | EPERM);
        assert_eq!(x86(16, [0, 0x541c, 0, 0, 0, 0]), RET_ERRNO | EPERM);
        assert_eq!(x86(41, [16, 3, 20, 0, 0, 0]), NOTIFY);
        assert_eq!(x86_32(359, [16, 3, 20, 0, 0, 0]), RET_ERRNO | EPROTONOSUPPORT);
        assert_eq!(x86_32(102, [1, 0, 0, 0, 0, 0]), RET_ERRNO | ENOSYS);
        assert_eq!(x86_32(102, [3, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(x86(41, [16, 3, 0, 0, 0, 0]), ALLOW);
        assert_eq!(x86(41, [2, 1, 20, 0, 0, 0]), ALLOW);
        assert_eq!(x86(425, [0; 6]), RET_ERRNO | ENOSYS);
        assert_eq!(x86(440, [0; 6]), RET_ERRNO | ENOSYS);
        assert_eq!(x86(30, [0, 0, 0o40000, 0, 0, 0]), RET_ERRNO | EINVAL);
        assert_eq!(x86(30, [0, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(x86(126, [0; 6]), NOTIFY);
        assert_eq!(x86(105, [1000, 0, 0, 0, 0, 0]), NOTIFY);
        assert_eq!(x86(157, [35, 0, 0, 0, 0, 0]), RET_ERRNO | EPERM);
        assert_eq!(x86(157, [15, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(x86(101, [16, 0, 0, 0, 0, 0]), NOTIFY);
        assert_eq!(x86(101, [0, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(x86_32(26, [16, 0, 0, 0, 0, 0]), RET_ERRNO | EPERM);
    }

    /// Every way to name a range, against the definition of overlap.
    #[test]
    fn no_range_reaches_the_stub_unseen() {
        let starts = [
            0,
            0x1000,
            BASE - 0x1000,
            BASE - 1,
            BASE,
            BASE + 0x1000,
            END - 0x1000,
            END,
            END + 0x1000,
        ];
        let lens = [
            0,
            1,
            0x1000,
            0x2000,
            0xffff_f000,
            1 << 32,
            (1 << 32) + 0x1000,
            BASE,
            BASE + 1,
            END,
            1 << 48,
            (1 << 56) - 1,
        ];
        for nr in [9, 11, 10, 329, 28, 216] {
            for start in starts {
                for len in lens {
                    let meets = start < END && start + len > BASE;
                    let got = x86(nr, [start, len, 0, 0, 0, 0]);
                    if meets {
                        assert_eq!(got, NOTIFY, "call {nr} {start:#x}+{len:#x}");
                    } else if start + len < BASE || start >= END {
                        assert_eq!(got, ALLOW, "call {nr} {start:#x}+{len:#x}");
                    }
                }
            }
        }
        assert_eq!(x86(9, [0, 1 << 30, 3, 0x22, u64::MAX, 0]), ALLOW);
    }

    #[test]
    fn mremap_is_judged_by_both_ends() {
        assert_eq!(x86(25, [BASE, 0x1000, 0x1000, 0, 0, 0]), NOTIFY);
        assert_eq!(x86(25, [0x1000, 0x1000, 0x1000, 3, BASE + 0x10_0000, 0]), NOTIFY);
        assert_eq!(x86(25, [0x1000, 0x1000, 0x2000, 1, 0, 0]), ALLOW);
        assert_eq!(x86(25, [END + 0x1000, 0x1000, 0x2000, 1, 0, 0]), ALLOW);
    }

    #[test]
    fn the_other_processor_has_the_same_rules() {
        let program = program::<Aarch64>(W, F).unwrap();
        let run = |nr, args| interpret(&program, nr, Aarch64::AUDIT, args).unwrap();
        assert_eq!(run(29, [0, u64::from(RDMA_VERBS_IOCTL), 0, 0, 0, 0]), NOTIFY);
        assert_eq!(run(56, [0, 0, 2, 0, 0, 0]), NOTIFY);
        assert_eq!(run(222, [BASE, 0x1000, 0, 0x10, 0, 0]), NOTIFY);
        assert_eq!(run(2, [0, 2, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn programs_are_small() {
        let len = program::<X86_64>(W, F).unwrap().len();
        assert!(len < 256, "{len} instructions; jumps must reach");
    }
}
