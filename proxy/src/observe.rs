//! The view of an observer: what is told of each request, for the trace and the counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::time::Duration;

use verbgate_abi::Errno;
use verbgate_abi::fmt::fmt_request;
use verbgate_abi::ids;
use verbgate_abi::request::Request;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::wire::Handle;
use verbgate_sys::GuestFd;
use verbgate_sys::Tid;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The kernel executed it and returned this, or `-errno`.
    Executed(i64),
    /// It was not executed, because of this.
    Refused(&'static str, Errno),
}

/// One request, done with.
#[derive(Debug)]
pub struct Done<'a> {
    /// The calling thread.
    pub tid: Tid,
    /// The device.
    pub device: &'a str,
    /// What was asked for; `None` when it could not be decoded.
    pub request: Option<&'a Request>,
    /// How it ended.
    pub verdict: Verdict,
    /// Objects that it made.
    pub made: &'a [(ObjectRef, Handle)],
    /// The descriptor that it made.
    pub made_fd: Option<GuestFd>,
    /// From the trap to the answer.
    pub elapsed: Duration,
}

/// One command to the connection manager, done with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmDone {
    /// The calling thread.
    pub tid: Tid,
    /// The kernel's name.
    pub name: &'static str,
    /// The id that the command is about.
    pub id: Option<u32>,
    /// Whom the command, or the id of a command that connects, speaks to; of version 4 as
    /// `::ffff:a.b.c.d`.
    pub peer: Option<Ipv6Addr>,
    /// How it ended.
    pub verdict: Verdict,
    /// From the trap to the answer.
    pub elapsed: Duration,
}

impl CmDone {
    /// The error, if it failed or was refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        self.verdict.errno()
    }
}

impl Verdict {
    /// The error of a request that failed or was refused.
    #[must_use]
    pub fn errno(self) -> Option<Errno> {
        match self {
            Self::Executed(result) if result < 0 => {
                Some(Errno(i32::try_from(-result).unwrap_or(Errno::EIO.0)))
            }
            Self::Executed(_) => None,
            Self::Refused(_, errno) => Some(errno),
        }
    }
}

/// Somebody who is told.
pub trait Observer: Send {
    /// A device was opened.
    fn opened(&mut self, tid: Tid, device: &str, result: Result<GuestFd, Errno>);
    /// A request is done with.
    fn done(&mut self, done: &Done<'_>);
    /// A command to the connection manager is done with.
    fn cm(&mut self, done: &CmDone);

    /// A request comes sooner than a rate allows: it waits, or is refused with EAGAIN. The rule is as a
    /// policy names it.
    fn beyond_rate(&mut self, _tid: Tid, _rule: &str, _waits: bool) {}

    /// Whether [`Done::made`] is of interest, which takes a look at the guest's memory.
    fn looks_at_objects(&self) -> bool {
        true
    }
}

/// What a supervisor did, in numbers.
#[derive(Clone, Default, Debug)]
pub struct Counts {
    /// Requests executed, by the kernel's name.
    pub requests: BTreeMap<&'static str, u64>,
    /// Requests that the kernel refused.
    pub failed: u64,
    /// Requests refused before the kernel saw them, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Requests that waited, or were refused, since they came too fast.
    pub beyond_rate: u64,
    /// Queue pairs made.
    pub queue_pairs: u64,
    /// Devices opened.
    pub opened: u64,
    /// Stubs planted.
    pub planted: u64,
    /// Notifications received while requests were served.
    pub notifications: u64,
    /// System calls made for them.
    pub calls: u64,
}

impl Counts {
    /// Counts a request.
    pub fn add(&mut self, done: &Done<'_>) {
        match done.verdict {
            Verdict::Executed(result) => {
                let name = done.request.map_or("?", name);
                *self.requests.entry(name).or_default() += 1;
                self.failed += u64::from(result < 0);
                let made = done.request.is_some_and(makes_queue_pair);
                self.queue_pairs += u64::from(made && result >= 0);
            }
            Verdict::Refused(reason, _) => self.refuse(reason),
        }
    }

    /// Adds what another has done; the system calls are those of the whole process in both.
    pub fn absorb(&mut self, other: &Self) {
        for (name, count) in &other.requests {
            *self.requests.entry(name).or_default() += count;
        }
        for (reason, count) in &other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        self.failed += other.failed;
        self.queue_pairs += other.queue_pairs;
        self.beyond_rate += other.beyond_rate;
        self.opened += other.opened;
        self.planted += other.planted;
        self.notifications += other.notifications;
        self.calls = self.calls.max(other.calls);
    }

    /// Counts what is refused and is no request of a device.
    pub(crate) fn refuse(&mut self, reason: &'static str) {
        *self.refused.entry(reason).or_default() += 1;
    }

    /// Counts a command to the connection manager.
    pub fn add_cm(&mut self, done: &CmDone) {
        match done.verdict {
            Verdict::Executed(result) => {
                *self.requests.entry(done.name).or_default() += 1;
                self.failed += u64::from(result < 0);
            }
            Verdict::Refused(reason, _) => self.refuse(reason),
        }
    }

    /// Requests executed, of every kind.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.requests.values().sum()
    }
}

/// The kernel's name for what a request asks for: the legacy command's, or the method's.
#[must_use]
pub fn name(request: &Request) -> &'static str {
    match request.legacy() {
        Some(legacy) => legacy.spec.short_name,
        None => request.method().short_name(),
    }
}

fn makes_queue_pair(request: &Request) -> bool {
    let qp = ObjectRef::core(ids::UVERBS_OBJECT_QP.id.0);
    request.new_handles().any(|new| new.object == qp)
}

/// A request in one line, as strace would write it.
#[must_use]
pub fn line(done: &Done<'_>) -> String {
    let mut line = format!("[{}] {}: ", done.tid, done.device);
    // Writing to a string cannot fail.
    let _ = match done.request {
        Some(request) => fmt_request(request, &mut line),
        None => write!(line, "?"),
    };
    let _ = match done.verdict {
        Verdict::Executed(result) if result < 0 => {
            let errno = Errno(i32::try_from(-result).unwrap_or(0));
            write!(line, " = -1 {errno}")
        }
        Verdict::Executed(result) => write!(line, " = {result}"),
        Verdict::Refused(reason, errno) => {
            // What cannot be decoded the kernel would refuse, too: libibverbs asks so on purpose, to
            // learn whether a device has ioctls.
            let how = if done.request.is_some() { "refused" } else { "malformed" };
            write!(line, " = -1 {errno} ({how}: {reason})")
        }
    };
    let mut made: Vec<String> =
        done.made.iter().map(|(kind, handle)| format!("{kind} {handle}")).collect();
    made.extend(done.made_fd.map(|fd| format!("fd {fd}")));
    if !made.is_empty() {
        let _ = write!(line, " {{{}}}", made.join(", "));
    }
    let _ = write!(line, " <{:.6}>", done.elapsed.as_secs_f64());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_decoded_is_malformed_and_not_refused() {
        let done = Done {
            tid: Tid(7),
            device: "uverbs0",
            request: None,
            verdict: Verdict::Refused("request_short", Errno::ENOSPC),
            made: &[],
            made_fd: None,
            elapsed: Duration::ZERO,
        };
        let expected = "[7] uverbs0: ? = -1 ENOSPC (malformed: request_short) <0.000000>";
        assert_eq!(line(&done), expected);
    }
}
