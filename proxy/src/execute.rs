//! Execute: a stub runs a framed request.
//!
//! The stub waits in its trap with the request's address already in its registers. While the stub
//! waits, the supervisor puts the rest in place: the ucontext and lent descriptors into the stub's
//! own table, and the orders for afterwards into the frame. Then the supervisor answers the trap
//! with CONTINUE, and the stub's next trap shows the result. If the supervisor answers with a value
//! instead, the stub makes no request, and only writes outputs.

use std::io;
use std::os::fd::AsFd;

use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::arch::AfterIoctl;
use verbgate_sys::arch::stub_fd;
use verbgate_sys::frame::SPARE;
use verbgate_sys::seccomp::AddFd;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::seccomp::NotifId;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::stub;
use verbgate_sys::stub::Piece;

use crate::frame::SCRATCH;
use crate::session::StubState;
use crate::session::Worker;
use crate::translate::Lent;
use crate::translate::Plan;

/// Makes a file the ucontext of a waiting stub.
///
/// # Errors
/// `ENOENT`: the stub is gone.
pub fn bind(listener: &Listener, idle: NotifId, file: impl AsFd) -> io::Result<()> {
    let how = AddFd { at: Some(stub_fd::UCONTEXT), ..AddFd::default() };
    listener.add_fd(idle, file.as_fd(), how).map(drop)
}

/// Takes the ucontext out of a stub: now if it waits in its trap, else as soon as it does.
pub(crate) fn unbind(listener: &Listener, worker: &mut Worker, nothing: impl AsFd) {
    worker.unbind = true;
    let StubState::Idle(idle) = worker.state else { return worker.wake() };
    match bind(listener, idle, nothing) {
        // The process's RLIMIT_NOFILE leaves its stubs no number: the end of the stub closes the file.
        Err(e) if e.raw_os_error() != Some(libc::ENOENT) => end(listener, worker, idle),
        // A stub that is gone holds nothing.
        _ => {
            worker.bound = None;
            worker.unbind = false;
        }
    }
}

/// Has a waiting stub end.
pub(crate) fn end(listener: &Listener, worker: &mut Worker, idle: NotifId) {
    stub::set_after(worker.stub.frame.ro(), AfterIoctl::EXIT);
    if listener.reply(idle, Reply::Value(0)).is_ok() {
        worker.state = StubState::Ended;
        worker.bound = None;
    }
}

/// Lends descriptors to a waiting stub, says what it does after the request, and lets it go.
///
/// # Errors
/// `ENOENT`: the stub is gone, and the request was not made.
pub(crate) fn go(
    listener: &Listener,
    worker: &mut Worker,
    idle: NotifId,
    base: u64,
    plan: &Plan,
    writes: bool,
) -> io::Result<()> {
    for Lent { at, file } in &plan.lent {
        let how = AddFd { at: Some(*at), ..AddFd::default() };
        let file = file.get().ok_or(io::ErrorKind::InvalidInput)?;
        listener.add_fd(idle, file.as_fd(), how)?;
    }
    let mut after = AfterIoctl::NOTHING;
    if writes {
        after = after.and(AfterIoctl::WRITE);
    }
    if plan.new_fd {
        after = after.and(AfterIoctl::SEND);
    }
    if plan.new_fd || !plan.lent.is_empty() {
        after = after.and(AfterIoctl::CLOSE);
    }
    if plan.new_fd {
        worker.stub.lend_socket(listener, idle)?;
    }
    let ro = worker.stub.frame.ro();
    if plan.new_fd {
        stub::write_message(ro, base);
    }
    stub::set_after(ro, after);
    listener.reply(idle, Reply::Continue)
}

/// Has a waiting stub write bytes to addresses of the guest. Returns what it shows when it could.
///
/// # Errors
/// `E2BIG`: more than a frame holds; `EIO`: the stub is gone.
pub(crate) fn write(
    listener: &Listener,
    worker: &mut Worker,
    idle: NotifId,
    base: u64,
    pieces: &[(u64, Vec<u8>)],
) -> Result<i64, Errno> {
    let mut at = SCRATCH;
    let mut placed = Vec::with_capacity(pieces.len());
    for (to, bytes) in pieces {
        placed.push(Piece { from: at, len: bytes.len(), to: *to });
        at += bytes.len();
        if at > SPARE {
            return Err(Errno::E2BIG);
        }
    }
    for (piece, (_, bytes)) in placed.iter().zip(pieces) {
        worker.stub.frame.rw_write(piece.from, bytes);
    }
    let ro = worker.stub.frame.ro();
    let written = stub::write_vectors(ro, base, &placed).ok_or(Errno::E2BIG)?;
    stub::set_after(ro, AfterIoctl::WRITE);
    listener.reply(idle, Reply::Value(0)).map_err(|_| Errno::EIO)?;
    Ok(written)
}

/// Has a waiting stub map memory of its ucontext, as the arguments of mmap(2) say.
///
/// # Errors
/// `ENOENT`: the stub is gone, and nothing was mapped.
pub(crate) fn map(
    listener: &Listener,
    worker: &mut Worker,
    idle: NotifId,
    args: [u64; 6],
) -> io::Result<()> {
    let ro = worker.stub.frame.ro();
    stub::write_mapping(ro, args);
    stub::set_after(ro, AfterIoctl::MAP);
    listener.reply(idle, Reply::Value(0))
}

/// A guest descriptor as the tables of processes number it.
#[must_use]
pub fn guest_fd(arg: u64) -> GuestFd {
    // The kernel takes an unsigned int and ignores the upper word.
    let low = u32::try_from(arg & 0xffff_ffff).unwrap_or(u32::MAX);
    GuestFd(low.cast_signed())
}
