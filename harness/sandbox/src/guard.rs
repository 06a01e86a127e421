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
    compat: bool,
}

/// The parameters in which one filter differs from another, as one process tells another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    addresses: u32,
    descriptors: (u32, u32),
    #[serde(default)]
    compat: bool,
}

impl Windows {
    /// The parameters of a filter with these windows; `compat`: 32-bit programs run.
    #[must_use]
    pub const fn new(window: AddrWindow, fds: FdWindow, compat: bool) -> Self {
        Self { addresses: window.hi(), descriptors: (fds.first, fds.len), compat }
    }
}

impl Guard {
    /// Computes the filter of a process with a soft RLIMIT_NOFILE of `limit`; `compat`: 32-bit programs run, without
    /// RDMA.
    pub fn new(limit: u64, compat: bool) -> Result<Self, Error> {
        let window = AddrWindow::probe().map_err(|e| match e.kind() {
            // Refused by another supervisor's filter.
            io::ErrorKind::PermissionDenied => Error::Nested,
            _ => Error::Addresses(e),
        })?;
        let fds = FdWindow::under(limit);
        Self::with(window, fds, compat)
    }

    /// The guard of a process that has computed its filter itself, by the same program.
    pub fn of(windows: Windows) -> Result<Self, Error> {
        let Windows { addresses, descriptors: (first, len), compat } = windows;
        Self::with(AddrWindow::at(addresses), FdWindow { first, len }, compat)
    }

    /// The parameters by which another process knows this guard.
    pub fn windows(&self) -> Windows {
        Windows::new(self.window, self.fds, self.compat)
    }

    /// The guard of a guest under a filter that others have made: a filter of the same windows,
    /// with rules that ask about no fewer calls.
    pub fn behind(windows: Windows) -> Result<Self, Error> {
        Ok(Self { judges: true, ..Self::of(windows)? })
    }

    fn with(window: AddrWindow, fds: FdWindow, compat: bool) -> Result<Self, Error> {
        let program = seccomp::filter::with::<Native>(window, fds, compat)?;
        Ok(Self { window, fds, program, judges: false, compat })
    }

    /// Puts the calling process under the filter.
    pub fn install(&self) -> io::Result<OwnedFd> {
        seccomp::install(&self.program).map(OwnedFd::from)
    }
}
