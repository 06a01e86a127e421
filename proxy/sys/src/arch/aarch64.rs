//! AArch64: system call numbers, registers, and the stub's code.

use super::AfterIoctl;
use super::Arch;
use super::Call;
use super::CallList;
use super::IO_URING;
use super::MAPPING;
use super::Numbers;
use super::PATIENCE;
use super::PROCESSORS;
use super::RDMA_VERBS_IOCTL;
use super::SocketNumbers;
use super::StubAddrs;
use super::StubCode;
use super::VECTOR_COUNT;
use super::VECTOR_SOURCE;
use super::VECTORS_FROM_MESSAGE;
use super::stub_fd;
use crate::control::PROCESSORS_LEN;

/// AArch64.
#[derive(Debug)]
pub struct Aarch64;

/// `struct user_pt_regs`, arch/arm64/include/uapi/asm/ptrace.h.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, zerocopy::FromBytes, zerocopy::IntoBytes)]
#[allow(missing_docs)] // each is the register of that name
pub struct UserPtRegs {
    pub x: [u64; 31],
    pub sp: u64,
    pub pc: u64,
    pub pstate: u64,
}

/// Bytes of an instruction.
const INSN: u64 = 4;
const SVC: u32 = 0xd400_0001;
/// `-ERESTARTSYS`, include/linux/errno.h.
const INTERRUPTED: i64 = -512;
const SYS_IOCTL: u32 = 29;
const SYS_PREADV: u32 = 69;
const SYS_MMAP: u32 = 222;
const SYS_FUTEX: u32 = 98;
const SYS_SCHED_SETAFFINITY: u32 = 122;
const SYS_MSEAL: u32 = 462;
const SYS_SENDMSG: u32 = 211;
const SYS_EXIT: u32 = 93;
const SYS_CLOSE: u32 = 57;
const SYS_CLOSE_RANGE: u32 = 436;
/// `MSG_DONTWAIT | MSG_NOSIGNAL`.
const SEND_FLAGS: u32 = 0x4040;

/// `movz xD, #value`.
const fn movz(d: u32, value: u32) -> u32 {
    0xd280_0000 | (value << 5) | d
}
/// `movk xD, #value, lsl #(16 * half)`.
const fn movk(d: u32, value: u32, half: u32) -> u32 {
    0xf280_0000 | half << 21 | (value << 5) | d
}
/// `mov xD, xM`.
const fn mov(d: u32, m: u32) -> u32 {
    0xaa00_03e0 | (m << 16) | d
}
/// `ldr wT, [xN, #offset]`.
const fn ldr_w(t: u32, n: u32, offset: u32) -> u32 {
    0xb940_0000 | (offset / 4) << 10 | n << 5 | t
}
/// `ldr xT, [xN, #offset]`.
const fn ldr_x(t: u32, n: u32, offset: u32) -> u32 {
    0xf940_0000 | (offset / 8) << 10 | n << 5 | t
}
/// `add xD, xN, #value`.
const fn add(d: u32, n: u32, value: u32) -> u32 {
    0x9100_0000 | value << 10 | n << 5 | d
}
/// The 19-bit word offset of a conditional branch.
const fn imm19(from: u32, to: u32) -> u32 {
    (to.wrapping_sub(from) & 0x7_ffff) << 5
}
/// `cmp wN, wM`.
const fn cmp_ww(n: u32, m: u32) -> u32 {
    0x6b00_001f | m << 16 | n << 5
}
/// `and wD, wN, #127`: [`AfterIoctl::MASK`] as an immediate operand.
const fn and_w_127(d: u32, n: u32) -> u32 {
    0x1200_1800 | n << 5 | d
}
/// `tbz wT, #bit, to`, for the bit of one order.
const fn tbz(t: u32, order: AfterIoctl, from: u32, to: u32) -> u32 {
    let bit = order.bits().trailing_zeros();
    0x3600_0000 | bit << 19 | (to.wrapping_sub(from) & 0x3fff) << 5 | t
}
/// `tbnz wT, #bit, to`.
const fn tbnz(t: u32, order: AfterIoctl, from: u32, to: u32) -> u32 {
    tbz(t, order, from, to) | 0x0100_0000
}
/// `tbnz xT, #63, to`: where it is negative.
const fn tbnz_sign(t: u32, from: u32, to: u32) -> u32 {
    0xb7f8_0000 | (to.wrapping_sub(from) & 0x3fff) << 5 | t
}
/// `cbz wT, to`.
const fn cbz_w(t: u32, from: u32, to: u32) -> u32 {
    0x3400_0000 | imm19(from, to) | t
}
/// `cbnz xT, to`.
const fn cbnz_x(t: u32, from: u32, to: u32) -> u32 {
    0xb500_0000 | imm19(from, to) | t
}
/// `b.eq to`.
const fn b_eq(from: u32, to: u32) -> u32 {
    0x5400_0000 | imm19(from, to)
}
/// `b to`.
const fn b(from: u32, to: u32) -> u32 {
    0x1400_0000 | (to.wrapping_sub(from) & 0x3ff_ffff)
}

impl Arch for Aarch64 {
    type Regs = UserPtRegs;
    const AUDIT: u32 = 0xc000_00b7;
    const COMPAT: u32 = 0x4000_0028;
    const NUMBERS: Numbers = Numbers {
        ioctl: SYS_IOCTL,
        open: None,
        openat: 56,
        openat2: 437,
        access: None,
        faccessat: 48,
        faccessat2: 439,
        write: 64,
        writev: 66,
        close: SYS_CLOSE,
        close_range: SYS_CLOSE_RANGE,
        dup: 23,
        fcntl: 25,
        dup2: None,
        dup3: 24,
        socket: 198,
        sockets: SocketNumbers {
            bind: 200,
            getsockname: 204,
            setsockopt: 208,
            sendto: 206,
            sendmsg: 211,
            recvfrom: 207,
            recvmsg: 212,
        },
        io_uring: IO_URING,
        mmap: SYS_MMAP,
        munmap: 215,
        mremap: 216,
        mprotect: 226,
        pkey_mprotect: 288,
        madvise: 233,
        process_madvise: 440,
        remap_file_pages: 234,
        shmat: 196,
        prctl: 167,
        ptrace: 117,
        credentials: &[
            ("capset", 91),
            ("setregid", 143),
            ("setgid", 144),
            ("setreuid", 145),
            ("setuid", 146),
            ("setresuid", 147),
            ("setresgid", 149),
            ("setfsuid", 151),
            ("setfsgid", 152),
            ("setgroups", 159),
        ],
        clone: 220,
        mseal: SYS_MSEAL,
        pidfd_open: 434,
        pidfd_getfd: 438,
        exit: SYS_EXIT,
    };

    /// x19 holds the request, x20 the word that says what comes after, x22 the message, w23 the
    /// word that was acted on last, x24 what writing the outputs returned.
    fn stub_code(lists: &[Vec<Call>]) -> StubCode {
        const START: u32 = 7;
        const SEND: u32 = 33;
        const CLOSE: u32 = 39;
        const MAP: u32 = 45;
        const MOVE: u32 = 55;
        const PARK: u32 = 61;
        const WAIT: u32 = 62;
        const LOOP: u32 = 73;
        const EXIT: u32 = 75;
        const IOCTL_LO: u32 = RDMA_VERBS_IOCTL & 0xffff;
        const IOCTL_HI: u32 = RDMA_VERBS_IOCTL >> 16;
        const WORDS: [u32; 79] = [
            SVC, // mseal, by the registers that the stub begins with
            movz(8, SYS_CLOSE_RANGE),
            movz(0, stub_fd::NEW),
            movz(1, stub_fd::LAST),
            movz(2, 0),
            SVC,
            movz(0, 0),
            mov(3, 0), // START: the last results become the fourth and fifth argument, which the
            mov(4, 24), // trap shows
            movz(8, SYS_IOCTL),
            movz(0, stub_fd::UCONTEXT),
            movz(1, IOCTL_LO),
            movk(1, IOCTL_HI, 1),
            mov(2, 19),
            SVC,
            ldr_w(9, 20, 0),
            cmp_ww(9, 23),
            b_eq(17, EXIT),
            mov(23, 9),
            movz(24, 0),
            and_w_127(9, 9),
            cbz_w(9, 21, START),
            tbnz(23, AfterIoctl::EXIT, 22, EXIT),
            mov(21, 0),
            tbz(23, AfterIoctl::WRITE, 24, SEND),
            tbnz_sign(21, 25, SEND),
            movz(8, SYS_PREADV),
            movz(0, stub_fd::SCRATCH),
            add(1, 22, VECTORS_FROM_MESSAGE),
            ldr_w(2, 20, VECTOR_COUNT as u32),
            ldr_x(3, 20, VECTOR_SOURCE as u32),
            SVC, // a 64-bit kernel takes the whole offset from the fourth argument
            mov(24, 0),
            tbz(23, AfterIoctl::SEND, SEND, CLOSE), // SEND
            movz(8, SYS_SENDMSG),
            movz(0, stub_fd::SOCKET),
            mov(1, 22),
            movz(2, SEND_FLAGS),
            SVC,
            tbz(23, AfterIoctl::CLOSE, CLOSE, MAP), // CLOSE
            movz(8, SYS_CLOSE_RANGE),
            movz(0, stub_fd::NEW),
            movz(1, stub_fd::LAST),
            movz(2, 0),
            SVC,
            tbz(23, AfterIoctl::MAP, MAP, MOVE), // MAP
            movz(8, SYS_MMAP),
            ldr_x(0, 20, MAPPING[0] as u32),
            ldr_x(1, 20, MAPPING[1] as u32),
            ldr_x(2, 20, MAPPING[2] as u32),
            ldr_x(3, 20, MAPPING[3] as u32),
            movz(4, stub_fd::UCONTEXT),
            ldr_x(5, 20, MAPPING[4] as u32),
            SVC,
            mov(21, 0),
            tbz(23, AfterIoctl::MOVE, MOVE, PARK), // MOVE
            movz(8, SYS_SCHED_SETAFFINITY),
            movz(0, 0), // this thread
            movz(1, PROCESSORS_LEN),
            add(2, 20, PROCESSORS),
            SVC,
            tbz(23, AfterIoctl::PARK, PARK, LOOP), // PARK
            movz(8, SYS_FUTEX),                    // WAIT
            mov(0, 20),
            movz(1, 0), // FUTEX_WAIT, of memory that processes share
            mov(2, 23),
            add(3, 20, PATIENCE),
            SVC,
            mov(21, 0),
            cbnz_x(0, 69, LOOP),
            ldr_w(9, 20, 0),
            cmp_ww(9, 23),
            b_eq(72, WAIT), // woken by the guest
            mov(0, 21),     // LOOP
            b(74, START),
            movz(8, SYS_EXIT), // EXIT
            movz(0, 0),
            SVC,
            0, // udf: not reached
        ];
        let mut words = WORDS.to_vec();
        let mut made = Vec::new();
        let at = |words: &Vec<u32>| u32::try_from(words.len()).unwrap_or(0);
        for calls in lists {
            let begin = words.len() as u64 * INSN;
            words.extend([movz(8, SYS_CLOSE), mov(0, 23), SVC]);
            let closed = words.len() as u64 * INSN;
            let mut list = CallList { begin, closed, ips: Vec::new() };
            for Call { nr, args, .. } in calls {
                for (register, value) in (0..).zip(args) {
                    let [a, b, c, d] = [0, 16, 32, 48].map(|shift| value >> shift & 0xffff);
                    let half = |value: u64| u32::try_from(value).unwrap_or(0);
                    words.push(movz(register, half(a)));
                    words.extend((1..).zip([b, c, d]).map(|(at, v)| movk(register, half(v), at)));
                }
                words.extend([movz(8, *nr), SVC]);
                list.ips.push(u64::from(at(&words)) * INSN);
                words.push(tbnz_sign(0, at(&words), START));
            }
            words.push(b(at(&words), START));
            made.push(list);
        }
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        StubCode { bytes, trap_ip: 15 * INSN, exit_at: u64::from(EXIT) * INSN, lists: made }
    }

    fn inject(stopped: &UserPtRegs, nr: u32, args: [u64; 6]) -> UserPtRegs {
        let mut regs = *stopped;
        let [x0, x1, x2, x3, x4, x5, _, _, x8, ..] = &mut regs.x;
        [*x0, *x1, *x2, *x3, *x4, *x5] = args;
        *x8 = u64::from(nr);
        regs.pc = stopped.pc.wrapping_sub(INSN);
        regs
    }

    fn again(stopped: &UserPtRegs, nr: u32, first_arg: u64) -> UserPtRegs {
        let mut regs = *stopped;
        let [x0, _, _, _, _, _, _, _, x8, ..] = &mut regs.x;
        // The result has replaced the first argument.
        *x0 = first_arg;
        *x8 = u64::from(nr);
        regs.pc = stopped.pc.wrapping_sub(INSN);
        regs
    }

    fn returning(stopped: &UserPtRegs, value: i64) -> UserPtRegs {
        let mut regs = *stopped;
        let [x0, ..] = &mut regs.x;
        *x0 = value.cast_unsigned();
        regs
    }

    fn enter_stub(at: &StubAddrs, like: &UserPtRegs) -> UserPtRegs {
        let mut regs = Self::begin(at.code, like);
        regs.x[8] = u64::from(SYS_MSEAL);
        (regs.x[0], regs.x[1]) = at.sealed;
        regs.x[19] = at.request;
        regs.x[20] = at.after;
        regs.x[22] = at.message;
        regs
    }

    fn begin(at: u64, like: &UserPtRegs) -> UserPtRegs {
        UserPtRegs { pc: at, pstate: like.pstate, ..UserPtRegs::default() }
    }

    fn begin_list(list: &CallList, closes: Option<u32>, like: &UserPtRegs) -> UserPtRegs {
        let mut regs = Self::begin(list.begin, like);
        regs.x[23] = u64::from(closes.unwrap_or(u32::MAX));
        regs
    }

    fn entry(regs: &UserPtRegs) -> (u64, [u64; 6], u64) {
        let [x0, x1, x2, x3, x4, x5, _, _, x8, ..] = regs.x;
        (x8, [x0, x1, x2, x3, x4, x5], regs.pc)
    }

    fn result(regs: &UserPtRegs) -> i64 {
        regs.x[0].cast_signed()
    }

    /// `do_signal`, arch/arm64/kernel/signal.c, sets the first argument and the program counter back before
    /// the thread stops for its tracer; x86 does so after the stop.
    fn behind(stopped: &UserPtRegs, ip: u64) -> UserPtRegs {
        let is_set_back = stopped.pc == ip.wrapping_sub(INSN);
        if !is_set_back {
            return *stopped;
        }
        let mut regs = Self::returning(stopped, INTERRUPTED);
        regs.pc = ip;
        regs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(code: &StubCode, at: u64) -> u32 {
        let at = usize::try_from(at).unwrap();
        u32::from_le_bytes(code.bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn a_call_that_the_kernel_is_about_to_make_again_was_interrupted() {
        let mut regs = UserPtRegs { pc: 0x1000, ..UserPtRegs::default() };
        regs.x[0] = 7;
        assert_eq!(Aarch64::behind(&regs, 0x1000), regs);
        let behind = Aarch64::behind(&regs, 0x1004);
        assert_eq!((behind.pc, Aarch64::result(&behind)), (0x1004, -512));
        let again = Aarch64::again(&behind, 29, 7);
        assert_eq!((again.pc, again.x[0], again.x[8]), (0x1000, 7, 29));
    }

    #[test]
    fn the_landmark_follows_the_third_svc() {
        let code = Aarch64::stub_code(&[]);
        let calls: Vec<_> =
            (0..code.trap_ip).step_by(4).filter(|at| word(&code, *at) == SVC).collect();
        assert_eq!(calls, [0, 5 * INSN, code.trap_ip - INSN]);
    }

    /// The words of `aarch64-linux-gnu-as` for the branches and the less common encodings.
    #[test]
    fn encodings_are_the_assemblers() {
        assert_eq!(movz(8, 29), 0xd280_03a8); // mov x8, #0x1d
        assert_eq!(movk(1, 0xc018, 1), 0xf2b8_0301); // movk x1, #0xc018, lsl #16
        assert_eq!(mov(2, 19), 0xaa13_03e2); // mov x2, x19
        assert_eq!(ldr_w(9, 20, 0), 0xb940_0289); // ldr w9, [x20]
        assert_eq!(ldr_w(2, 20, 4), 0xb940_0682); // ldr w2, [x20, #4]
        assert_eq!(ldr_x(3, 20, 8), 0xf940_0683); // ldr x3, [x20, #8]
        assert_eq!(add(1, 22, 960), 0x910f_02c1); // add x1, x22, #0x3c0
        assert_eq!(cmp_ww(9, 23), 0x6b17_013f); // cmp w9, w23
        assert_eq!(and_w_127(9, 9), 0x1200_1929); // and w9, w9, #127
        assert_eq!(cbnz_x(0, 4, 8), 0xb500_0080); // cbnz x0, . + 16
        assert_eq!(tbz(23, AfterIoctl::WRITE, 17, 26), 0x3610_0137); // tbz w23, #2, . + 36
        assert_eq!(tbnz(23, AfterIoctl::EXIT, 15, 40), 0x3718_0337); // tbnz w23, #3, . + 100
        assert_eq!(tbnz_sign(21, 18, 26), 0xb7f8_0115); // tbnz x21, #63, . + 32
        assert_eq!(cbz_w(9, 8, 0), 0x34ff_ff09); // cbz w9, . - 32
        assert_eq!(b_eq(10, 26), 0x5400_0200); // b.eq . + 64
        assert_eq!(b(25, 0), 0x17ff_ffe7); // b . - 100
    }

    #[test]
    fn a_repeated_call_gets_its_first_argument_back() {
        let mut stopped = UserPtRegs { pc: 0x1004, ..UserPtRegs::default() };
        stopped.x[0] = 42; // the result
        let again = Aarch64::again(&stopped, 29, 3);
        assert_eq!((again.pc, again.x[0], again.x[8]), (0x1000, 3, 29));
    }
}
