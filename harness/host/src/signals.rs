//! Signals, which interrupt between steps, so that no step is cut in two.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use nix::sys::signal::SigSet;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SfdFlags;
use nix::sys::signalfd::SignalFd;

use crate::Error;

/// SIGINT, SIGTERM and SIGHUP, held until they are asked for.
#[derive(Debug)]
pub struct Signals(Option<SignalFd>);

impl Signals {
    /// Holds them for this thread and those that it starts.
    pub fn hold() -> Self {
        let set = set();
        let held = set.thread_block().and_then(|()| {
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        });
        Self(
            held.inspect_err(|e| {
                log::warn!("a signal will end verbgate without undoing the move: {e}")
            })
            .ok(),
        )
    }

    /// Is readable once one has come.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }

    /// An error once one has come.
    pub fn check(&self) -> Result<(), Error> {
        if self.have_come() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Whether one has come since this was asked last.
    pub fn have_come(&self) -> bool {
        matches!(self.0.as_ref().map(SignalFd::read_signal), Some(Ok(Some(_))))
    }

    /// From now on they do what they do by default.
    pub fn release(&self) {
        // What was blocked can be unblocked.
        let _ = set().thread_unblock();
    }
}

fn set() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}
