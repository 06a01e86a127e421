//! What the filter does with calls.

use super::super::bpf::interpret;
use super::*;
use crate::arch::RDMA_VERBS_IOCTL;
use crate::arch::aarch64::Aarch64;
use crate::arch::x86_64::X86_64;

const EPERM: u32 = 1;
const ENOENT: u32 = 2;
const EINVAL: u32 = 22;
const EAFNOSUPPORT: u32 = 97;
const EPROTONOSUPPORT: u32 = 93;

const W: AddrWindow = AddrWindow::at(0x6ae0);
const F: FdWindow = FdWindow { first: 960, len: 64 };
const BASE: u64 = W.base();
const END: u64 = BASE + (1 << 32);

fn x86(nr: u32, args: [u64; 6]) -> u32 {
    let program = program::<X86_64>(W, F).unwrap();
    interpret(&program, nr, X86_64::AUDIT, args).unwrap()
}
const NOTIFY: u32 = RET_USER_NOTIF;
const ALLOW: u32 = RET_ALLOW;

#[test]
fn duplicates_of_watched_descriptors_are_trapped() {
    assert_eq!(x86(32, [960, 0, 0, 0, 0, 0]), NOTIFY);
    assert_eq!(x86(32, [959, 0, 0, 0, 0, 0]), ALLOW);
    for (command, verdict) in [(0, NOTIFY), (1030, NOTIFY), (1, ALLOW), (3, ALLOW)] {
        assert_eq!(x86(72, [1023, command, 0, 0, 0, 0]), verdict);
        assert_eq!(x86(72, [1024, command, 0, 0, 0, 0]), ALLOW);
    }
}

#[test]
fn verbs_requests_are_trapped_whatever_the_upper_word_says() {
    let cmd = u64::from(RDMA_VERBS_IOCTL);
    assert_eq!(x86(16, [3, cmd, 0, 0, 0, 0]), NOTIFY);
    assert_eq!(x86(16, [3, cmd | 1 << 40, 0, 0, 0, 0]), NOTIFY);
    assert_eq!(x86(16, [3, 0x5401, 0, 0, 0, 0]), ALLOW);
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
        for (fd, want) in
            [(959, ALLOW), (960, NOTIFY), (1023, NOTIFY), (1024, ALLOW), (1 << 32 | 960, NOTIFY)]
        {
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
    assert_eq!(x86(41, [16, 3, 0, 0, 0, 0]), ALLOW);
    assert_eq!(x86(41, [2, 1, 20, 0, 0, 0]), ALLOW);
    for ring in [425, 426, 427] {
        assert_eq!(x86(ring, [0; 6]), RET_ERRNO | ENOSYS);
    }
    assert_eq!(x86(440, [0; 6]), RET_ERRNO | ENOSYS);
    assert_eq!(x86(30, [0, 0, 0o40000, 0, 0, 0]), RET_ERRNO | EINVAL);
    assert_eq!(x86(30, [0, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(x86(126, [0; 6]), NOTIFY);
    assert_eq!(x86(105, [1000, 0, 0, 0, 0, 0]), NOTIFY);
    assert_eq!(x86(157, [35, 0, 0, 0, 0, 0]), RET_ERRNO | EPERM);
    assert_eq!(x86(157, [15, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(x86(101, [16, 0, 0, 0, 0, 0]), NOTIFY);
    assert_eq!(x86(101, [0, 0, 0, 0, 0, 0]), ALLOW);
}

#[test]
fn no_socket_carries_rdma_from_within_the_kernel() {
    let arm = program::<Aarch64>(W, F).unwrap();
    let arm = |nr, audit, args| interpret(&arm, nr, audit, args).unwrap();
    for high in [0, 1 << 32] {
        // AF_SMC, AF_RDS and AF_RXRPC, of any kind; TCP's families with SMC's protocol.
        for (family, kind, protocol, errno) in [
            (43, 1, 0, EAFNOSUPPORT),
            (43, 1 | 0o2_000_000, 1, EAFNOSUPPORT),
            (21, 5, 0, EAFNOSUPPORT),
            (33, 2, 2, EAFNOSUPPORT),
            (2, 1, 256, EPROTONOSUPPORT),
            (10, 1, 256, EPROTONOSUPPORT),
        ] {
            let args = [family | high, kind, protocol | high, 0, 0, 0];
            let want = RET_ERRNO | errno;
            assert_eq!(x86(41, args), want, "{args:x?}");
            assert_eq!(arm(198, Aarch64::AUDIT, args), want, "{args:x?}");
        }
        let upper_layer = [5, 6 | high, 31 | high, 0, 3, 0];
        let want = RET_ERRNO | ENOENT;
        assert_eq!(x86(54, upper_layer), want);
        assert_eq!(arm(208, Aarch64::AUDIT, upper_layer), want);
    }
    // What programs use: TCP, UDP, local sockets, MPTCP; TCP_NODELAY; and options of a watched
    // descriptor go to the supervisor.
    for args in [[2, 1, 0], [2, 1, 6], [10, 2, 17], [1, 1, 0], [2, 1, 262], [40, 1, 0]] {
        let args = [args[0], args[1], args[2], 0, 0, 0];
        assert_eq!(x86(41, args), ALLOW, "{args:?}");
    }
    assert_eq!(x86(54, [5, 6, 1, 0, 4, 0]), ALLOW);
    assert_eq!(x86(54, [960, 6, 31, 0, 4, 0]), NOTIFY);
}

/// Every way to name a range, against the definition of overlap.
#[test]
fn no_range_reaches_the_stub_unseen() {
    let starts =
        [0, 0x1000, BASE - 0x1000, BASE - 1, BASE, BASE + 0x1000, END - 0x1000, END, END + 0x1000];
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
        1 << 56,
        1 << 63,
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
fn memory_that_is_shared_with_a_file_is_asked_about() {
    for (flags, fd, verdict) in [
        (0x1, 7, NOTIFY),
        (0x3, 7, NOTIFY),
        (0x1 | 0x8000, 960, NOTIFY),
        (0x2, 7, ALLOW),
        (0x21, u64::MAX, ALLOW),
        // A stub's own.
        (0x1, 0, ALLOW),
    ] {
        assert_eq!(x86(9, [0, 0x1000, 3, flags, fd, 0]), verdict, "{flags:#x} {fd}");
    }
}

#[test]
fn nobody_holds_on_to_a_stub() {
    assert_eq!(x86(434, [7, 0o200, 0, 0, 0, 0]), RET_ERRNO | EINVAL);
    assert_eq!(x86(434, [7, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(x86(438, [7, 0, 0, 0, 0, 0]), NOTIFY);
}

#[test]
fn what_is_unknown_is_refused() {
    let arm = program::<Aarch64>(W, F).unwrap();
    let unknown = RET_ERRNO | ENOSYS;
    for (audit, program) in
        [(X86_64::AUDIT, program::<X86_64>(W, F).unwrap()), (Aarch64::AUDIT, arm)]
    {
        let known: Vec<u32> = calls::of(audit).into_iter().map(|(nr, _)| nr).collect();
        for nr in (0..2048).chain([0x4000_0000, 0x4000_0010, u32::MAX]) {
            for abi in calls::ABIS {
                // With arguments that no rule is about.
                let said = interpret(&program, nr, abi, [u64::MAX >> 8; 6]).unwrap();
                if abi == audit && known.contains(&nr) {
                    let rules = [rules::native::<X86_64>(), rules::native::<Aarch64>()].concat();
                    let is_plain = !rules.iter().any(|rule| rule.nr == nr);
                    assert!(!is_plain || said == ALLOW, "call {nr}");
                } else {
                    assert_eq!(said, unknown, "call {nr} of {abi:#x}");
                }
            }
        }
    }
}

/// A filter that allows compat calls is the filter without them in all else.
#[test]
fn compat_calls_are_judged_by_twins() {
    let (with, without) = (with::<X86_64>(W, F, true).unwrap(), program::<X86_64>(W, F).unwrap());
    let compat = |nr, args| interpret(&with, nr, X86_64::COMPAT, args).unwrap();
    let fails = |errno| RET_ERRNO | errno;
    for (nr, args, verdict) in [
        (3, [3, 0, 0, 0, 0, 0], ALLOW),                  // read
        (6, [960, 0, 0, 0, 0, 0], ALLOW),                // close
        (54, [3, 0xc018_1b01, 0, 0, 0, 0], ALLOW),       // ioctl
        (54, [3, 0x5412, 0, 0, 0, 0], fails(EPERM)),     // the same, TIOCSTI
        (91, [0x1000, 0x1000, 0, 0, 0, 0], ALLOW),       // munmap
        (172, [35, 14, 0, 0, 0, 0], fails(EPERM)),       // prctl, PR_SET_MM
        (434, [7, 0o200, 0, 0, 0, 0], fails(EINVAL)),    // pidfd_open, PIDFD_THREAD
        (438, [7, 0, 0, 0, 0, 0], fails(EPERM)),         // pidfd_getfd
        (359, [43, 1, 0, 0, 0, 0], fails(EAFNOSUPPORT)), // socket, AF_SMC
        (359, [16, 3, 20, 0, 0, 0], fails(EPROTONOSUPPORT)),
        (102, [1, 0, 0, 0, 0, 0], fails(ENOSYS)), // socketcall
        (117, [1 << 16 | 21, 0, 0o40000, 0, 0, 0], fails(EINVAL)), // ipc, SHMAT
        (117, [2, 0, 0o40000, 0, 0, 0], ALLOW),   // the same, SEMGET
        (23, [0; 6], fails(EPERM)),               // setuid
        (213, [0; 6], fails(EPERM)),              // setuid32
        (26, [16, 1, 0, 0, 0, 0], fails(EPERM)),  // ptrace, PTRACE_ATTACH
        (26, [0; 6], ALLOW),                      // the same, PTRACE_TRACEME
        (425, [0; 6], fails(ENOSYS)),             // io_uring_setup
        (1999, [0; 6], fails(ENOSYS)),
    ] {
        assert_eq!(compat(nr, args), verdict, "{nr} {args:x?}");
    }
    for nr in 0..600 {
        for args in [[0; 6], [960, 0xc018_1b01, 2, 0, 0, 0], [BASE, 0x1000, 0, 0, 0, 0]] {
            let native = |program| interpret(program, nr, X86_64::AUDIT, args).unwrap();
            assert_eq!(native(&with), native(&without), "{nr} {args:x?}");
            assert_eq!(interpret(&without, nr, X86_64::COMPAT, args), Some(fails(ENOSYS)));
        }
    }
    // A range of 32 bits ends below 8 GiB.
    assert!(AddrWindow::usual().hi() > 1);
}

#[test]
fn tags_of_addresses_do_not_hide_the_stub() {
    for tag in [0x5a << 56, 0xff << 56, 1 << 62] {
        for nr in [9, 11, 10, 28] {
            assert_eq!(x86(nr, [BASE | tag, 0x1000, 0, 0, 0, 0]), NOTIFY, "call {nr}");
        }
        assert_eq!(x86(25, [0x1000, 0x1000, 0x1000, 3, (BASE + 0x10_0000) | tag, 0]), NOTIFY);
    }
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
    assert!(len < 400, "{len} instructions; jumps must reach");
}
