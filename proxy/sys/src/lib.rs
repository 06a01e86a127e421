//! Every unsafe line by which Verbgate serves guests.
//!
//! The kernel interfaces by which requests are trapped and executed live here, and nothing that
//! knows what a request means: seccomp filters and user notification ([`seccomp`]), ptrace
//! ([`ptrace`]), the stub thread that runs vetted requests inside the guest ([`stub`]), the frame
//! that holds a request's arguments ([`frame`]), guest memory ([`mem`]), and the identity of
//! processes and files ([`process`]).
//!
//! Callers are `#![forbid(unsafe_code)]`; each unsafe block here states the invariant that it
//! relies on.

pub mod arch;
pub mod called_off;
pub mod caller;
mod closer;
pub mod cm;
pub mod confine;
pub mod control;
pub mod foreign;
pub mod frame;
pub mod hand;
pub mod heap;
mod inject;
pub mod lookup;
mod mappings;
pub mod mem;
pub mod network;
pub mod node;
pub mod plant;
pub mod post;
pub mod process;
pub mod ptrace;
pub mod range_lock;
pub mod resident;
pub mod rights;
pub mod sandbox;
pub mod seccomp;
pub mod share;
pub mod shortage;
pub mod stub;
pub mod token;
pub mod verbs;
pub mod window;

use std::fmt;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// A thread id as the supervisor's pid namespace numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tid(pub i32);

/// A thread-group id (what user space calls a process id) in the supervisor's pid namespace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tgid(pub i32);

/// A descriptor number in a guest thread's table: never to be used in the supervisor's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuestFd(pub i32);

macro_rules! plain_number {
    ($($t:ident),*) => {$(
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($t), self.0)
            }
        }
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
plain_number!(Tid, Tgid, GuestFd);

/// Turns the `-1` convention of libc into a `Result`.
fn check(ret: libc::c_long) -> io::Result<libc::c_long> {
    if ret == -1 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

static CALLS: AtomicU64 = AtomicU64::new(0);

/// Counts a system call on the way of a request.
fn count_call() {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// How many system calls this process has made on the way of requests: waits, answers, reads of
/// guest memory, and looks at guest descriptors.
#[must_use]
pub fn calls_made() -> u64 {
    CALLS.load(Ordering::Relaxed)
}
