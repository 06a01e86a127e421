//! x86-64: system call numbers, registers, and the stub's code.

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

/// x86-64.
#[derive(Debug)]
pub struct X86_64;

/// `struct user_regs_struct`, arch/x86/include/asm/user_64.h.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, zerocopy::FromBytes, zerocopy::IntoBytes)]
#[allow(missing_docs)] // each is the register of that name
pub struct UserRegs {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// Bytes of the `syscall` instruction.
const SYSCALL_LEN: u64 = 2;
const SYS_CLOSE: u32 = 3;
const SYS_SENDMSG: u32 = 46;
const SYS_EXIT: u32 = 60;
const SYS_CLOSE_RANGE: u32 = 436;
const SYS_IOCTL: u32 = 16;
const SYS_PREADV: u32 = 295;
const SYS_MMAP: u32 = 9;
const SYS_FUTEX: u32 = 202;
const SYS_SCHED_SETAFFINITY: u32 = 203;
const SYS_MSEAL: u32 = 462;
/// `MSG_DONTWAIT | MSG_NOSIGNAL`: a guest cannot make the stub wait for the supervisor.
const SEND_FLAGS: u32 = 0x4040;

impl Arch for X86_64 {
    type Regs = UserRegs;
    const AUDIT: u32 = 0xc000_003e;
    const COMPAT: u32 = 0x4000_0003;
    const NUMBERS: Numbers = Numbers {
        ioctl: SYS_IOCTL,
        open: Some(2),
        openat: 257,
        openat2: 437,
        access: Some(21),
        faccessat: 269,
        faccessat2: 439,
        write: 1,
        writev: 20,
        close: SYS_CLOSE,
        close_range: SYS_CLOSE_RANGE,
        dup: 32,
        fcntl: 72,
        dup2: Some(33),
        dup3: 292,
        socket: 41,
        sockets: SocketNumbers {
            bind: 49,
            getsockname: 51,
            setsockopt: 54,
            sendto: 44,
            sendmsg: 46,
            recvfrom: 45,
            recvmsg: 47,
        },
        io_uring: IO_URING,
        mmap: SYS_MMAP,
        munmap: 11,
        mremap: 25,
        mprotect: 10,
        pkey_mprotect: 329,
        madvise: 28,
        process_madvise: 440,
        remap_file_pages: 216,
        shmat: 30,
        prctl: 157,
        ptrace: 101,
        credentials: &[
            ("setuid", 105),
            ("setgid", 106),
            ("setreuid", 113),
            ("setregid", 114),
            ("setgroups", 116),
            ("setresuid", 117),
            ("setresgid", 119),
            ("setfsuid", 122),
            ("setfsgid", 123),
            ("capset", 126),
        ],
        clone: 56,
        mseal: SYS_MSEAL,
        pidfd_open: 434,
        pidfd_getfd: 438,
        exit: SYS_EXIT,
    };

    /// r12 holds the request, r13 the word that says what comes after, r15 the message, ebp the
    /// word that was acted on last, rbx what writing the outputs returned.
    fn stub_code(lists: &[Vec<Call>]) -> StubCode {
        let mut code = Code::default();
        code.syscall(); // mseal, by the registers that the stub begins with
        code.close_lent();
        code.put(&[0x31, 0xc0]); // xor eax, eax
        let start = code.0.len();
        // The last results become the fourth and fifth argument, which `ioctl` ignores and the
        // trap shows.
        code.put(&[0x49, 0x89, 0xc2]); // mov r10, rax
        code.put(&[0x49, 0x89, 0xd8]); // mov r8, rbx
        code.mov_eax(SYS_IOCTL);
        code.mov_edi(stub_fd::UCONTEXT);
        code.mov_esi(RDMA_VERBS_IOCTL);
        code.put(&[0x4c, 0x89, 0xe2]); // mov rdx, r12
        code.syscall();
        let trap_ip = code.0.len() as u64;
        code.put(&[0x41, 0x8b, 0x4d, 0x00]); // mov ecx, [r13]
        code.put(&[0x39, 0xe9]); // cmp ecx, ebp
        let to_end = code.jump_forward(JE);
        code.put(&[0x89, 0xcd]); // mov ebp, ecx
        code.put(&[0x31, 0xdb]); // xor ebx, ebx
        code.test_order(AfterIoctl::MASK);
        code.jump_back(JE, start);
        code.test_order(AfterIoctl::EXIT.bits());
        let to_exit = code.jump_forward(JNE);
        code.put(&[0x49, 0x89, 0xc6]); // mov r14, rax
        code.test_order(AfterIoctl::WRITE.bits());
        let no_write = code.jump_forward(JE);
        code.put(&[0x48, 0x85, 0xc0]); // test rax, rax
        let failed = code.jump_forward(JS);
        code.mov_eax(SYS_PREADV);
        code.mov_edi(stub_fd::SCRATCH);
        code.put(&[0x49, 0x8d, 0xb7]); // lea rsi, [r15 + distance of the vectors]
        code.put(&VECTORS_FROM_MESSAGE.to_le_bytes());
        code.put(&[0x41, 0x8b, 0x55, VECTOR_COUNT]); // mov edx, [r13 + their number's]
        code.put(&[0x4d, 0x8b, 0x55, VECTOR_SOURCE]); // mov r10, [r13 + their source's]
        code.put(&[0x45, 0x31, 0xc0]); // xor r8d, r8d
        code.syscall();
        code.put(&[0x48, 0x89, 0xc3]); // mov rbx, rax
        code.land(no_write);
        code.land(failed);
        code.test_order(AfterIoctl::SEND.bits());
        let no_send = code.jump_forward(JE);
        code.mov_eax(SYS_SENDMSG);
        code.mov_edi(stub_fd::SOCKET);
        code.put(&[0x4c, 0x89, 0xfe]); // mov rsi, r15
        code.mov_edx(SEND_FLAGS);
        code.syscall();
        code.land(no_send);
        code.test_order(AfterIoctl::CLOSE.bits());
        let no_close = code.jump_forward(JE);
        code.close_lent();
        code.land(no_close);
        code.test_order(AfterIoctl::MAP.bits());
        let no_map = code.jump_forward(JE);
        let [addr, len, prot, flags, offset] = MAPPING;
        code.put(&[0x49, 0x8b, 0x7d, addr]); // mov rdi, [r13 + the address's]
        code.put(&[0x49, 0x8b, 0x75, len]); // mov rsi, [r13 + the length's]
        code.put(&[0x49, 0x8b, 0x55, prot]); // mov rdx, [r13 + the protection's]
        code.put(&[0x4d, 0x8b, 0x55, flags]); // mov r10, [r13 + the flags']
        code.put(&[0x41, 0xb8]); // mov r8d, the ucontext
        code.put(&stub_fd::UCONTEXT.to_le_bytes());
        code.put(&[0x4d, 0x8b, 0x4d, offset]); // mov r9, [r13 + the offset's]
        code.mov_eax(SYS_MMAP);
        code.syscall();
        code.put(&[0x49, 0x89, 0xc6]); // mov r14, rax
        code.land(no_map);
        code.test_order(AfterIoctl::MOVE.bits());
        let no_move = code.jump_forward(JE);
        code.mov_eax(SYS_SCHED_SETAFFINITY);
        code.mov_edi(0); // this thread
        code.mov_esi(PROCESSORS_LEN);
        code.put(&[0x49, 0x8d, 0x95]); // lea rdx, [r13 + distance of the processors]
        code.put(&PROCESSORS.to_le_bytes());
        code.syscall();
        code.land(no_move);
        code.test_order(AfterIoctl::PARK.bits());
        let no_park = code.jump_forward(JE);
        let park = code.0.len();
        code.mov_eax(SYS_FUTEX);
        code.put(&[0x4c, 0x89, 0xef]); // mov rdi, r13
        code.mov_esi(0); // FUTEX_WAIT, of memory that processes share
        code.put(&[0x89, 0xea]); // mov edx, ebp
        code.put(&[0x4d, 0x8d, 0x95]); // lea r10, [r13 + distance of the time]
        code.put(&PATIENCE.to_le_bytes());
        code.syscall();
        code.put(&[0x49, 0x89, 0xc6]); // mov r14, rax
        code.put(&[0x48, 0x85, 0xc0]); // test rax, rax
        let not_woken = code.jump_forward(JNE);
        code.put(&[0x41, 0x3b, 0x6d, 0x00]); // cmp ebp, [r13]
        code.jump_back(JE, park); // woken by the guest
        code.land(not_woken);
        code.land(no_park);
        code.put(&[0x4c, 0x89, 0xf0]); // mov rax, r14
        code.jump_back(JMP, start);
        code.land(to_exit);
        code.land(to_end);
        let exit_at = code.0.len() as u64;
        code.mov_eax(SYS_EXIT);
        code.mov_edi(0);
        code.syscall();
        code.put(UD2);
        let mut made = Vec::new();
        for calls in lists {
            let begin = code.0.len() as u64;
            code.mov_eax(SYS_CLOSE);
            code.put(&[0x89, 0xef]); // mov edi, ebp
            code.syscall();
            let mut list = CallList { begin, closed: code.0.len() as u64, ips: Vec::new() };
            for Call { nr, args, .. } in calls {
                code.mov_eax(*nr);
                for (register, value) in ARGUMENTS.into_iter().zip(args) {
                    code.put(register);
                    code.put(&value.to_le_bytes());
                }
                code.syscall();
                list.ips.push(code.0.len() as u64);
                code.put(&[0x48, 0x85, 0xc0]); // test rax, rax
                code.jump_back(JS, start);
            }
            code.jump_back(JMP, start);
            made.push(list);
        }
        StubCode { bytes: code.0, trap_ip, exit_at, lists: made }
    }

    fn inject(stopped: &UserRegs, nr: u32, args: [u64; 6]) -> UserRegs {
        let [rdi, rsi, rdx, r10, r8, r9] = args;
        UserRegs {
            // No system call is in progress as far as restarting goes.
            orig_rax: u64::MAX,
            rax: u64::from(nr),
            rip: stopped.rip.wrapping_sub(SYSCALL_LEN),
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..*stopped
        }
    }

    fn again(stopped: &UserRegs, nr: u32, _first_arg: u64) -> UserRegs {
        UserRegs {
            orig_rax: u64::MAX,
            rax: u64::from(nr),
            rip: stopped.rip.wrapping_sub(SYSCALL_LEN),
            ..*stopped
        }
    }

    fn returning(stopped: &UserRegs, value: i64) -> UserRegs {
        UserRegs { orig_rax: u64::MAX, rax: value.cast_unsigned(), ..*stopped }
    }

    fn enter_stub(at: &StubAddrs, like: &UserRegs) -> UserRegs {
        let (rdi, rsi) = at.sealed;
        UserRegs {
            rax: u64::from(SYS_MSEAL),
            rdi,
            rsi,
            r12: at.request,
            r13: at.after,
            r15: at.message,
            ..Self::begin(at.code, like)
        }
    }

    fn begin(at: u64, like: &UserRegs) -> UserRegs {
        UserRegs {
            orig_rax: u64::MAX,
            rip: at,
            cs: like.cs,
            ss: like.ss,
            ds: like.ds,
            es: like.es,
            fs: like.fs,
            gs: like.gs,
            fs_base: like.fs_base,
            gs_base: like.gs_base,
            eflags: 0x202,
            ..UserRegs::default()
        }
    }

    fn begin_list(list: &CallList, closes: Option<u32>, like: &UserRegs) -> UserRegs {
        let rbp = u64::from(closes.unwrap_or(u32::MAX));
        UserRegs { rbp, ..Self::begin(list.begin, like) }
    }

    fn entry(regs: &UserRegs) -> (u64, [u64; 6], u64) {
        (regs.orig_rax, [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9], regs.rip)
    }

    fn result(regs: &UserRegs) -> i64 {
        regs.rax.cast_signed()
    }

    fn behind(stopped: &UserRegs, _: u64) -> UserRegs {
        *stopped
    }
}

/// A few instructions' worth of assembler.
#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    fn mov(&mut self, opcode: u8, value: u32) {
        self.put(&[opcode]);
        self.put(&value.to_le_bytes());
    }
    fn mov_eax(&mut self, value: u32) {
        self.mov(0xb8, value);
    }
    fn mov_edi(&mut self, value: u32) {
        self.mov(0xbf, value);
    }
    fn mov_esi(&mut self, value: u32) {
        self.mov(0xbe, value);
    }
    fn mov_edx(&mut self, value: u32) {
        self.mov(0xba, value);
    }
    fn syscall(&mut self) {
        self.put(&[0x0f, 0x05]);
    }
    fn close_lent(&mut self) {
        self.mov_eax(SYS_CLOSE_RANGE);
        self.mov_edi(stub_fd::NEW);
        self.mov_esi(stub_fd::LAST);
        self.mov_edx(0);
        self.syscall();
    }
    /// Whether the order that is being carried out, in ebp, has any of these bits.
    fn test_order(&mut self, bits: u8) {
        self.put(&[0x40, 0xf6, 0xc5, bits]); // test bpl, bits
    }
    /// A jump to an earlier offset.
    fn jump_back(&mut self, jump: &[u8], to: usize) {
        self.put(jump);
        let next = self.0.len() + 4;
        let distance = i32::try_from(to).unwrap_or(0) - i32::try_from(next).unwrap_or(0);
        self.put(&distance.to_le_bytes());
    }
    /// A jump whose target is yet to be placed.
    fn jump_forward(&mut self, jump: &[u8]) -> usize {
        self.put(jump);
        self.put(&[0; 4]);
        self.0.len()
    }
    fn land(&mut self, from: usize) {
        let distance = u32::try_from(self.0.len() - from).unwrap_or(0).to_le_bytes();
        if let Some(place) = self.0.get_mut(from - 4..from) {
            place.copy_from_slice(&distance);
        }
    }
}

/// `mov` of 64 bits to rdi, rsi, rdx, r10, r8, r9.
const ARGUMENTS: [&[u8]; 6] =
    [&[0x48, 0xbf], &[0x48, 0xbe], &[0x48, 0xba], &[0x49, 0xba], &[0x49, 0xb8], &[0x49, 0xb9]];
/// Not reached.
const UD2: &[u8] = &[0x0f, 0x0b];
/// Jumps with distances of 32 bits.
const JE: &[u8] = &[0x0f, 0x84];
const JNE: &[u8] = &[0x0f, 0x85];
const JS: &[u8] = &[0x0f, 0x88];
const JMP: &[u8] = &[0xe9];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stub_is_short_and_its_landmark_follows_a_syscall() {
        let code = X86_64::stub_code(&[]);
        assert!(code.bytes.len() < 400, "{}", code.bytes.len());
        let ip = usize::try_from(code.trap_ip).unwrap();
        assert_eq!(&code.bytes[ip - 2..ip], &[0x0f, 0x05]);
    }

    #[test]
    fn a_call_is_injected_at_the_instruction_executed_last() {
        let stopped = UserRegs { rip: 0x1002, rsp: 7, rax: 99, ..UserRegs::default() };
        let regs = X86_64::inject(&stopped, 9, [1, 2, 3, 4, 5, 6]);
        assert_eq!((regs.rip, regs.rsp, regs.rax, regs.orig_rax), (0x1000, 7, 9, u64::MAX));
        assert_eq!(X86_64::entry(&UserRegs { orig_rax: 9, ..regs }).1, [1, 2, 3, 4, 5, 6]);
        let again = X86_64::again(&stopped, 16, 3);
        assert_eq!((again.rip, again.rax, again.rsp), (0x1000, 16, 7));
    }
}
