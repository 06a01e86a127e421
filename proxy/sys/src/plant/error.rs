//! Why a stub could not be planted, and what became of the guest.

use std::io;

use crate::Tid;
use crate::arch::Call;
use crate::shortage;

/// Why a stub could not be planted.
#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    /// The guest is being debugged. Nothing was touched.
    #[error(
        "thread {tid} is already traced by process {tracer}: a traced program cannot use RDMA \
         here; detach the debugger, or start the debugger inside the sandbox after the first RDMA \
         call"
    )]
    Traced {
        /// The thread.
        tid: Tid,
        /// Who traces it.
        tracer: i32,
    },
    /// Ptrace is not allowed. Nothing was touched.
    #[error(
        "the supervisor may not attach to thread {0}: the supervisor needs CAP_SYS_PTRACE, or the \
         guest's user and a permissive kernel.yama.ptrace_scope"
    )]
    Forbidden(Tid),
    /// The supervisor has no descriptor, memory or process left. The guest's call, if it has been answered, has been
    /// answered with this error.
    #[error("cannot make {what}: {source}")]
    Unready {
        /// What was to be made.
        what: &'static str,
        /// The error.
        r#source: io::Error,
    },
    /// The thread died meanwhile, with its process or because another thread executed a program.
    #[error("thread {0} is gone")]
    Gone(Tid),
    /// A signal ended the guest's call first. Nothing was touched.
    #[error("the call of thread {0} was interrupted by a signal")]
    Interrupted(Tid),
    /// The thread has its parent's memory (vfork). The guest's call has been answered with EPERM.
    #[error(
        "thread {0} makes its first RDMA request in the parent's memory (vfork), which is refused; \
         let the parent make an RDMA request before, or execute a program"
    )]
    Borrowed(Tid),
    /// Somebody may be about to trace the new stub, by its number. The guest's call is made again, and
    /// has another stub made.
    #[error("a new stub had the number {0}, to which somebody was attaching")]
    Sought(Tid),
    /// An injected call failed. The guest's call has been answered with its error.
    #[error("{call} in the guest: {source}")]
    Injected {
        /// The call.
        call: &'static str,
        /// What the kernel said.
        r#source: io::Error,
    },
    /// The guest did something else than what was injected. It has been killed.
    #[error("thread {tid} stopped at {what} instead of at {call}")]
    Unexpected {
        /// The thread.
        tid: Tid,
        /// The call that was injected.
        call: &'static str,
        /// What was seen.
        what: String,
    },
    /// A call of the supervisor's own failed halfway. The guest has been killed.
    #[error("{what}: {source}")]
    Own {
        /// What was being done.
        what: &'static str,
        /// The error.
        r#source: io::Error,
    },
}

pub(crate) fn lost(tid: Tid, source: io::Error) -> PlantError {
    match source.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => PlantError::Gone(tid),
        _ => PlantError::Own { what: "planting", source },
    }
}

/// An error of a call by which the supervisor takes something of its own, for which no guest is ended.
pub(crate) fn short(tid: Tid, what: &'static str, source: io::Error) -> PlantError {
    if shortage::is(&source) { PlantError::Unready { what, source } } else { lost(tid, source) }
}

pub(crate) fn unexpected(tid: Tid, call: &'static str, what: impl Into<String>) -> PlantError {
    PlantError::Unexpected { tid, call, what: what.into() }
}

pub(crate) fn failed(call: &Call, result: i64) -> PlantError {
    let errno = match i32::try_from(-result).unwrap_or(libc::EINVAL) {
        // The stub's numbers are beyond its RLIMIT_NOFILE.
        libc::EBADF => libc::EMFILE,
        // A filter of the guest's has answered it.
        0 => libc::EPERM,
        errno => errno,
    };
    PlantError::Injected { call: call.name, source: io::Error::from_raw_os_error(errno) }
}
