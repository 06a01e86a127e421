//! The executor `Stub`: a stub in the guest's own process executes; see [`execute`].

use std::io;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;

use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::Tid;
use verbgate_sys::frame::Frame;
use verbgate_sys::process;
use verbgate_sys::seccomp::AddFd;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::seccomp::NotifId;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::stub;

use crate::execute;
use crate::executor::Executor;
use crate::executor::Order;
use crate::executor::Unbegun;
use crate::session::Worker;

/// A stub, at work for one trap. Its own next trap shows the end of what it begins.
#[derive(Debug)]
pub(crate) struct Stub<'a> {
    /// Where both trap.
    pub(crate) listener: &'a Listener,
    /// The stub.
    pub(crate) worker: &'a mut Worker,
    /// The trap that it waits in: nothing runs that its frame is for.
    pub(crate) idle: NotifId,
    /// The guest's address of its frame.
    pub(crate) base: u64,
    /// The trap of the caller.
    pub(crate) trap: NotifId,
}

impl Stub<'_> {
    /// Has the stub go where a caller runs, unless it is there. Then it traps again.
    ///
    /// Beside a thread that polls on a processor of its own the stub would wait for that processor; and what the kernel
    /// allocates in the stub's time, it takes from the memory of the stub's processor. The caller is asked by its
    /// number: where another has that by now, the stub runs where that one may.
    pub(crate) fn goes_to(&mut self, caller: Tid) -> bool {
        let Ok(wanted) = process::processors(caller) else { return false };
        let worker = &mut *self.worker;
        let now = worker.processors.or_else(|| process::processors(worker.stub.thread.tid()).ok());
        worker.processors = now;
        // Where a caller of real time leaves no processor to others, it would leave none to the stub.
        if now.is_none_or(|now| now == wanted) || process::is_of_real_time(caller) {
            return false;
        }
        worker.processors = Some(wanted);
        stub::go_to(worker.stub.frame.ro(), &wanted);
        worker.moves = self.listener.reply(self.idle, Reply::Value(0)).is_ok();
        worker.moves
    }
}

impl Executor for Stub<'_> {
    /// What the stub shows when it could write all that it was told to write.
    type Begun = i64;
    type Wrote = i64;

    fn frame(&self) -> &Frame {
        &self.worker.stub.frame
    }

    fn frame_mut(&mut self) -> &mut Frame {
        &mut self.worker.stub.frame
    }

    fn base(&self) -> u64 {
        self.base
    }

    fn begin(&mut self, order: &Order<'_>) -> Result<i64, Unbegun> {
        let mut written = 0;
        if !order.entries.is_empty() {
            let ro = self.worker.stub.frame.ro();
            written = stub::write_vectors(ro, self.base, order.entries).ok_or(Errno::E2BIG)?;
        }
        execute::go(self.listener, self.worker, self.idle, self.base, order.plan, written > 0)?;
        Ok(written)
    }

    fn write(&mut self, pieces: &[(u64, Vec<u8>)]) -> Result<i64, Errno> {
        execute::write(self.listener, self.worker, self.idle, self.base, pieces)
    }

    fn take_fd(&mut self) -> io::Result<OwnedFd> {
        self.worker.stub.take_fd()
    }

    fn give_fd(&mut self, file: OwnedFd) -> io::Result<GuestFd> {
        let how = AddFd { cloexec: true, ..AddFd::default() };
        self.listener.add_fd(self.trap, file.as_fd(), how)
    }
}
