//! System calls of a process that has the memory of a thread that goes on meanwhile.

use std::ffi::c_long;

/// A system call whose error is not written to errno, which is a thread's own: minus the error, or the result.
///
/// # Safety
/// As the system call demands.
pub(super) unsafe fn call(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> c_long {
    let result: c_long;
    // SAFETY: the caller's; what the kernel does not preserve is given up.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: the same.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f, in("x8") number,
            options(nostack),
        );
    }
    result
}
