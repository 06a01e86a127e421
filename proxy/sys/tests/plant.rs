//! A stub planted in a real process, on the host, with a null device.

#![allow(
    clippy::unwrap_used,
    reason = "a test; clippy sees only the test functions themselves as such"
)]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::arch::AfterIoctl;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::frame::Ready;
use verbgate_sys::frame::SealedCode;
use verbgate_sys::plant::New;
use verbgate_sys::plant::Origin;
use verbgate_sys::plant::Planter;
use verbgate_sys::plant::Traps;
use verbgate_sys::process::PidFd;
use verbgate_sys::process::Process;
use verbgate_sys::process::Thread;
use verbgate_sys::ptrace;
use verbgate_sys::seccomp;
use verbgate_sys::seccomp::AddFd;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::stub;
use verbgate_sys::stub::Stub;
use verbgate_sys::window::AddrWindow;
use verbgate_sys::window::FdWindow;

const LISTENER_AT: i32 = 300;

struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// Receives by itself.
struct Alone<'a> {
    listener: &'a Listener,
    others: &'a mut Vec<Notification>,
    foreseen: VecDeque<(u32, [u64; 6], u64)>,
}

impl Traps for Alone<'_> {
    fn expect(&mut self, _: Tid) {}

    fn foresee(&mut self, _: Tid, calls: Vec<(u32, [u64; 6], u64)>) {
        self.foreseen = calls.into();
    }

    fn foreseen(&self) -> usize {
        self.foreseen.len()
    }

    fn announce(&mut self, _: &Arc<Thread>) -> bool {
        true
    }

    fn stubs_beside(&self) -> Vec<Tid> {
        Vec::new()
    }

    fn take(&mut self, tid: Tid) -> Option<Notification> {
        if !self.listener.wait(1).unwrap() {
            return None;
        }
        let notif = self.listener.receive().unwrap();
        if notif.tid != tid {
            self.others.push(notif);
            return None;
        }
        if self.foreseen.front() == Some(&(notif.nr, notif.args, notif.ip)) {
            self.foreseen.pop_front();
            self.listener.reply(notif.id, Reply::Continue).unwrap();
            return None;
        }
        Some(notif)
    }
}

/// Waits for a making, which this thread makes alone.
fn wait_for<T>(making: impl Future<Output = T>) -> T {
    let mut making = std::pin::pin!(making);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        ptrace::take_stops();
        if let Poll::Ready(made) = making.as_mut().poll(&mut context) {
            return made;
        }
    }
}

#[test]
fn a_stub_runs_requests_and_shows_their_results() {
    let window = AddrWindow::probe().unwrap();
    let program = seccomp::filter::program::<Native>(window, FdWindow::under(1024)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbgate-guest"));
    command.args(["requests", "/dev/null", "2000"]).stdout(Stdio::piped());
    let confine = move || {
        let fd = OwnedFd::from(seccomp::install(&program)?);
        // SAFETY: plain numbers; the number is nobody else's.
        if unsafe { libc::dup2(fd.as_raw_fd(), LISTENER_AT) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls and touches memory made before the fork.
    unsafe { command.pre_exec(confine) };
    let mut child = KillOnDrop(command.spawn().unwrap());
    let child = &mut child.0;
    let tgid = Tgid(child.id().cast_signed());
    let pidfd = PidFd::open(tgid).unwrap();
    let listener = Listener::from(pidfd.get_fd(GuestFd(LISTENER_AT)).unwrap());
    let _ = listener.wake_synchronously();
    let (ready, code) = (Ready::default(), SealedCode::new(window).unwrap());
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();

    let process = Process::open(tgid).unwrap();
    let mut stub: Option<Stub> = None;
    let mut idle = None;
    let mut waiting = None;
    let mut served = 0;
    let mut others: Vec<Notification> = Vec::new();
    loop {
        let notif = match others.pop() {
            Some(notif) => notif,
            None if listener.wait(5000).unwrap_or(false) => {
                let Ok(notif) = listener.receive() else { break };
                notif
            }
            None => break,
        };
        if stub.as_ref().is_some_and(|stub| stub.thread.tid() == notif.tid) {
            let stub = stub.as_ref().unwrap();
            assert!(stub.is_own_trap(window, &notif), "{notif:x?}");
            assert!(code.is_mapped(notif.tid, 0, &stub.frame).unwrap());
            if let Some(guest) = waiting.take() {
                if idle.is_some() || served > 0 {
                    assert_eq!(Stub::shown_result(&notif), -i64::from(libc::ENOTTY));
                }
                served += 1;
                listener.reply(guest, Reply::Errno(libc::ENOTTY)).unwrap();
            } else {
                let how = AddFd { at: Some(0), ..AddFd::default() };
                listener.add_fd(notif.id, null.as_fd(), how).unwrap();
            }
            idle = Some(notif.id);
            continue;
        }
        if notif.nr != Native::NUMBERS.ioctl {
            listener.reply(notif.id, Reply::Continue).unwrap();
            continue;
        }
        match (stub.is_some(), idle.take()) {
            (false, _) => {
                let start = std::time::Instant::now();
                let mut traps =
                    Alone { listener: &listener, others: &mut others, foreseen: VecDeque::new() };
                let way = Origin { process: &process, trap: &notif, is_own: false };
                let mut planter = Planter { listener: &listener, traps: &mut traps, code: &code };
                let (frame, ro) = ready.take().unwrap();
                let new = New { slot: 0, ro: Some(ro.as_fd()), scratch: frame.scratch() };
                let thread = wait_for(planter.plant(way, &new)).unwrap();
                stub = Some(Stub::new(thread, 0, frame, window));
                eprintln!("planted in {:?}", start.elapsed());
            }
            (true, Some(id)) => {
                waiting = Some(notif.id);
                let to = stub.as_mut().unwrap();
                stub::set_after(to.frame.ro(), AfterIoctl::NOTHING);
                listener.reply(id, Reply::Continue).unwrap();
            }
            (true, None) => {
                // The stub has not come yet: its first trap is next.
                let next = listener.receive().unwrap();
                assert_eq!(Some(next.tid), stub.as_ref().map(|s| s.thread.tid()));
                let how = AddFd { at: Some(0), ..AddFd::default() };
                listener.add_fd(next.id, null.as_fd(), how).unwrap();
                waiting = Some(notif.id);
                let to = stub.as_mut().unwrap();
                stub::set_after(to.frame.ro(), AfterIoctl::NOTHING);
                listener.reply(next.id, Reply::Continue).unwrap();
            }
        }
    }
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    eprintln!("{said}");
    assert!(child.wait().unwrap().success());
    assert!(said.contains("errno 25"), "{said}");
    assert_eq!(served, 2000);
    assert!(process.has_ended() && process.state().is_err());
}
