//! A bare seccomp notification, answered at once: the cost of trapping alone.

use std::error::Error;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Instant;

use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::caller::Caller;
use verbgate_sys::mem;
use verbgate_sys::mem::Range;
use verbgate_sys::process::PidFd;
use verbgate_sys::seccomp;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::window::AddrWindow;
use verbgate_sys::window::FdWindow;

use crate::kernel::fork;
use crate::raw;

const LISTENER_AT: i32 = 500;

/// How a request is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// At once.
    AtOnce,
    /// After copying it, fetching its descriptor, and making it from this process: what a proxy
    /// does that executes requests itself.
    Served,
}

/// Forks a guest that makes `count` requests, and answers each with ENOTTY.
pub(crate) fn notify(how: Answer, count: &str) -> Result<(), Box<dyn Error>> {
    let guest = Guest::start(1, count)?;
    guest.serve(how, &AtomicU64::new(count.parse()?))?;
    guest.wait();
    Ok(())
}

/// The same with several processes under one listener, answered at once by so many threads; prints the
/// requests a second. So much, and no more, the kernel's own listener carries.
pub(crate) fn crowd(processes: &str, threads: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let (processes, threads): (u32, u32) = (processes.parse()?, threads.parse()?);
    let start = Instant::now();
    let guest = Guest::start(processes, count)?;
    let total = u64::from(processes) * count.parse::<u64>()?;
    let left = Arc::new(AtomicU64::new(total));
    let guest = Arc::new(guest);
    for _ in 1..threads {
        let (guest, left) = (Arc::clone(&guest), Arc::clone(&left));
        // Before 6.11 nobody tells those who receive that all is over: the process ends with them.
        std::thread::spawn(move || guest.serve(Answer::AtOnce, &left).is_ok());
    }
    while left.load(Ordering::Acquire) > 0 && guest.serve(Answer::AtOnce, &left).is_ok() {}
    guest.wait();
    println!("rate {:.0}", u32::try_from(total).map(f64::from)? / start.elapsed().as_secs_f64());
    Ok(())
}

/// Processes under one listener.
struct Guest {
    pid: libc::pid_t,
    pidfd: PidFd,
    listener: Listener,
}

impl Guest {
    /// Forks a process that makes `count` requests, as do those that this process forks.
    fn start(processes: u32, count: &str) -> Result<Self, Box<dyn Error>> {
        let window = AddrWindow::probe()?;
        let program = seccomp::filter::program::<Native>(window, FdWindow { first: 960, len: 64 })?;
        // SAFETY: this process has one thread, so the child may go on as it likes.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let listener = OwnedFd::from(seccomp::install(&program)?);
            // SAFETY: plain numbers; the number is not in use.
            unsafe { libc::dup2(listener.as_raw_fd(), LISTENER_AT) };
            drop(listener);
            let requests = || i32::from(raw::requests("/dev/null", count).is_err());
            let others = (1..processes).map(|_| fork(requests)).collect::<io::Result<Vec<_>>>()?;
            raw::requests("/dev/null", count)?;
            for other in others {
                other.wait()?;
            }
            // SAFETY: ends this process; nothing needs to be cleaned up.
            unsafe { libc::_exit(0) };
        }
        let pidfd = PidFd::open(Tgid(pid))?;
        let listener = loop {
            match pidfd.get_fd(GuestFd(LISTENER_AT)) {
                Ok(fd) => break Listener::from(fd),
                Err(_) if pidfd.has_ended() => return Err("the guest ended early".into()),
                Err(_) => std::thread::yield_now(),
            }
        };
        let _ = listener.wake_synchronously();
        Ok(Self { pid, pidfd, listener })
    }

    /// Answers until nothing is left. A guest opens the device, makes its requests and closes the device;
    /// nothing else is trapped.
    fn serve(&self, how: Answer, left: &AtomicU64) -> Result<(), Box<dyn Error>> {
        let mut pages = None;
        while left.load(Ordering::Acquire) > 0 {
            let notif = self.listener.receive()?;
            let is_request = notif.nr == Native::NUMBERS.ioctl;
            if is_request && how == Answer::Served {
                let caller = Caller::of(&self.listener, &notif);
                if pages.is_none() {
                    pages = Some(caller.pages()?);
                }
                let caller = pages.as_ref().map_or(caller, |pages| caller.looked_at(pages));
                serve(caller, &self.pidfd, &notif)?;
            }
            let reply = if is_request { Reply::Errno(libc::ENOTTY) } else { Reply::Continue };
            self.listener.reply(notif.id, reply)?;
            left.fetch_sub(u64::from(is_request), Ordering::AcqRel);
        }
        Ok(())
    }

    fn wait(&self) {
        let mut status = 0;
        // SAFETY: our own child, and an int that lives through the call.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
    }
}

/// Copies a request of 56 bytes, makes it here, and copies its array back.
fn serve(memory: Caller<'_>, pidfd: &PidFd, notif: &Notification) -> Result<(), Box<dyn Error>> {
    let [fd, _, addr, ..] = notif.args;
    let mut bytes = [0; 24];
    mem::gather(&memory, &[Range { addr, len: 24 }], &mut bytes)?;
    let mut attrs = [0; 32];
    mem::gather(&memory, &[Range { addr: addr + 24, len: 32 }], &mut attrs)?;
    let file = pidfd.get_fd(GuestFd(i32::try_from(fd)?))?;
    let mut out = [0; 2];
    let _ = raw::query_context(&mut out).send(file.as_raw_fd());
    let from = libc::iovec { iov_base: attrs.as_mut_ptr().cast(), iov_len: attrs.len() };
    let to = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(addr + 24)?),
        iov_len: attrs.len(),
    };
    // SAFETY: `from` is memory of this process; the kernel checks `to` against the guest, which is
    // this benchmark's own child.
    unsafe { libc::process_vm_writev(notif.tid.0, &raw const from, 1, &raw const to, 1, 0) };
    Ok(())
}
