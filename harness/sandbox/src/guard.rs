//! The seccomp filter that a guest gets.

use std::io;
use std::os::fd::OwnedFd;

use serde::Deserialize;
use serde::Serialize;
use verbgate_sys::arch::Native;
use verbgate_sys::seccomp;
use verbgate_sys::seccomp::bpf::SockFilter;
use verbgate_sys::window::AddrWindow;
use verbgate_sys::window::FdWindow;

use crate::Error;

/// The filter for a process and all its descendants.
#[derive(Debug)]
pub struct Guard {
    pub(crate) window: AddrWindow,
    pub(crate) fds: FdWindow,
    pub(crate) program: Vec<SockFilter>,
    /// Whether the guest's filter was made by others, and asks about more calls.
    pub(crate) judges: bool,
}

/// The parameters in which one filter differs from another, as one process tells another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    addresses: u32,
    descriptors: (u32, u32),
}

impl Guard {
    /// Computes the filter of a process with a soft RLIMIT_NOFILE of `limit`.
    pub fn new(limit: u64) -> Result<Self, Error> {
        let window = AddrWindow::probe().map_err(|e| match e.kind() {
            // Refused by another supervisor's filter.
            io::ErrorKind::PermissionDenied => Error::Nested,
            _ => Error::Addresses(e),
        })?;
        let fds = FdWindow::under(limit);
        let program = seccomp::filter::program::<Native>(window, fds)?;
        Ok(Self { window, fds, program, judges: false })
    }

    /// The guard of a process that has computed its filter itself, by the same program.
    pub fn of(windows: Windows) -> Result<Self, Error> {
        let (first, len) = windows.descriptors;
        let (window, fds) = (AddrWindow::at(windows.addresses), FdWindow { first, len });
        let program = seccomp::filter::program::<Native>(window, fds)?;
        Ok(Self { window, fds, program, judges: false })
    }

    /// The parameters by which another process knows this guard.
    pub fn windows(&self) -> Windows {
        Windows { addresses: self.window.hi(), descriptors: (self.fds.first, self.fds.len) }
    }

    /// The guard of a guest under a filter that others have made: a filter of the same windows,
    /// with rules that ask about no fewer calls.
    pub fn behind(window: AddrWindow, fds: FdWindow) -> Result<Self, Error> {
        let program = seccomp::filter::program::<Native>(window, fds)?;
        Ok(Self { window, fds, program, judges: true })
    }

    /// Puts the calling process under the filter.
    pub fn install(&self) -> io::Result<OwnedFd> {
        seccomp::install(&self.program).map(OwnedFd::from)
    }
}
