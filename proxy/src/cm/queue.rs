//! The queue of commands to the connection manager.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use rustix::event::eventfd;

use crate::cm::command::CmCommand;
use crate::session::Guest;

/// Commands on their way to the thread that gives them.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(super) written: Mutex<VecDeque<(Arc<Guest>, CmCommand)>>,
    pub(super) wake: OwnedFd,
}

impl Queue {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { written: Mutex::default(), wake: eventfd(0, flags)? })
    }

    pub(crate) fn push(&self, guest: Arc<Guest>, written: CmCommand) {
        self.written.lock().push_back((guest, written));
        self.wake();
    }

    /// Has the thread look.
    pub(crate) fn wake(&self) {
        // It cannot overflow: that takes 2^64 wakings between two looks.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> VecDeque<(Arc<Guest>, CmCommand)> {
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        std::mem::take(&mut *self.written.lock())
    }
}
