//! Execute: a framed request runs on a stub.
//!
//! The stub waits in its trap with the request's address already in its registers. What it needs
//! besides is put in place while it waits: the ucontext and lent descriptors into its own table,
//! and what to do afterwards into the frame. Then its trap is answered with CONTINUE, and its
//! next trap shows the result.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use verbgate_abi::request::Request;
use verbgate_sys::GuestFd;
use verbgate_sys::arch::AfterIoctl;
use verbgate_sys::arch::stub_fd;
use verbgate_sys::seccomp::AddFd;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::seccomp::NotifId;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::stub;

use crate::frame::Layout;
use crate::gids::Patch;
use crate::session::StubState;
use crate::session::UcontextId;
use crate::session::Worker;
use crate::translate::Lent;

/// How a request was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `ioctl`: its array is at this address.
    Ioctl(u64),
    /// `write`, of so many bytes.
    Write(usize),
}

/// A request that a stub is executing.
#[derive(Debug)]
pub struct InFlight {
    /// The guest's trap.
    pub trap: Notification,
    /// How it was made.
    pub form: Form,
    /// The ucontext.
    pub ucontext: UcontextId,
    /// The request as it was decoded.
    pub request: Request,
    /// Where its outputs are in the frame.
    pub layout: Layout,
    /// What the guest is told in the place of the kernel's word, if it succeeds.
    pub patch: Option<Patch>,
    /// When its trap was received.
    pub started: Instant,
}

/// Makes a file the ucontext of a waiting stub.
///
/// # Errors
/// `ENOENT`: the stub is gone.
pub fn bind(listener: &Listener, idle: NotifId, file: impl AsFd) -> io::Result<()> {
    let how = AddFd { at: Some(stub_fd::UCONTEXT), ..AddFd::default() };
    listener.add_fd(idle, file.as_fd(), how).map(drop)
}

/// Takes the ucontext out of a stub: now if it waits, else as soon as it does.
pub fn unbind(listener: &Listener, worker: &mut Worker, nothing: impl AsFd) {
    match worker.state {
        StubState::Idle(idle) => {
            // A stub that is gone holds nothing.
            let _ = bind(listener, idle, nothing);
            worker.bound = None;
            worker.unbind = false;
        }
        StubState::Starting | StubState::Busy(_) => worker.unbind = true,
        StubState::Ended => {}
    }
}

/// Lends descriptors to a waiting stub, and says what it does after the request.
///
/// # Errors
/// `ENOENT`: the stub is gone.
pub fn prepare(
    listener: &Listener,
    worker: &mut Worker,
    idle: NotifId,
    base: u64,
    lent: &[Lent],
    new_fd: bool,
) -> io::Result<()> {
    for Lent { at, file } in lent {
        let how = AddFd { at: Some(*at), ..AddFd::default() };
        listener.add_fd(idle, file.as_fd(), how)?;
    }
    let after = match (new_fd, lent.is_empty()) {
        (true, _) => AfterIoctl::SendAndClose,
        (false, false) => AfterIoctl::Close,
        (false, true) => AfterIoctl::Nothing,
    };
    let ro = worker.stub.frame.ro();
    if new_fd {
        stub::write_message(ro, base);
    }
    stub::set_after(ro, after);
    Ok(())
}

/// Lets a waiting stub go.
///
/// # Errors
/// `ENOENT`: the stub is gone.
pub fn go(listener: &Listener, idle: NotifId) -> io::Result<()> {
    listener.reply(idle, Reply::Continue)
}

/// The number at which a descriptor is given to the stub, by its place among the lent ones.
#[must_use]
pub fn lent_number(place: usize) -> Option<u32> {
    let at = stub_fd::LENT.checked_add(u32::try_from(place).ok()?)?;
    (at <= stub_fd::LAST).then_some(at)
}

/// A guest descriptor as the tables of processes number it.
#[must_use]
pub fn guest_fd(arg: u64) -> GuestFd {
    // The kernel takes an unsigned int and ignores the upper word.
    let low = u32::try_from(arg & 0xffff_ffff).unwrap_or(u32::MAX);
    GuestFd(low.cast_signed())
}
