//! Vet: decode, policy and GIDs, as one function of the copied bytes and the grant.

use std::fmt;

use verbgate_abi::Errno;
use verbgate_abi::request::Request;
use verbgate_abi::wire::DriverId;
use verbgate_sys::mem::GuestMemory;

use crate::decode;
use crate::fetch::Copied;
use crate::fetch::Form;
use crate::gids::GidPatch;
use crate::gids::GidView;
use crate::gids::Judged;
use crate::observe;
use crate::outcome::Outcome;
use crate::policy::Policy;

/// Why a request is not executed: told, counted and answered in one place
/// ([`Supervisor::refused`](crate::Supervisor)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// For counters, and whoever reads a trace.
    pub reason: &'static str,
    /// What the guest sees.
    pub errno: Errno,
    /// Whether the operator should know; programs find out what a kernel can do by making requests
    /// that fail.
    pub warns: bool,
    /// What is said of it, the caller aside.
    pub line: String,
}

impl Refusal {
    /// One that programs cause in passing.
    #[must_use]
    pub fn note(reason: &'static str, errno: Errno, line: impl fmt::Display) -> Self {
        Self { reason, errno, warns: false, line: line.to_string() }
    }

    /// One that the operator should know of.
    #[must_use]
    pub fn warn(reason: &'static str, errno: Errno, line: impl fmt::Display) -> Self {
        Self { reason, errno, warns: true, line: line.to_string() }
    }
}

/// What requests on a ucontext are held against.
#[derive(Debug)]
pub struct Rules<'a> {
    /// The driver of the device, which the kernel compares with the request's.
    pub driver: DriverId,
    /// What may be asked for.
    pub policy: &'a Policy,
    /// Which GIDs the guest sees; all when there is none.
    pub gids: Option<&'a GidView>,
    /// The device's number.
    pub rdev: (u32, u32),
    /// Whether the kernel was asked to make the ucontext.
    pub asked: bool,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Vetted {
    /// The kernel may have it; the guest is told something else than the kernel's word, if there
    /// is something.
    Execute(Request, Option<GidPatch>),
    /// This is the answer.
    Answered(Request, Outcome),
    /// It is not executed; `None` for what could not be decoded.
    Refused(Option<Request>, Refusal),
}

/// Judges a request of which the first bytes have been copied, and copies the rest: each byte once.
pub fn vet(memory: &impl GuestMemory, form: Form, copied: Copied, rules: &Rules<'_>) -> Vetted {
    let decoded = match form {
        Form::Ioctl(_) => decode::ioctl(memory, copied, rules.driver),
        Form::Write(count) => decode::write(&copied, count, rules.driver),
    };
    let request = match decoded {
        Ok(request) => request,
        Err(malformed) => {
            let line = format!("malformed request: {malformed}");
            let refusal = Refusal::note(malformed.kind(), malformed.errno(), line);
            return Vetted::Refused(None, refusal);
        }
    };
    if let Err(refused) = rules.policy.check(&request) {
        let refusal = Refusal::warn(refused.reason, refused.errno, &refused);
        return Vetted::Refused(Some(request), refusal);
    }
    match rules.gids.map(|gids| gids.judge(&request, rules.rdev, rules.asked)) {
        None | Some(Judged::Passed) => Vetted::Execute(request, None),
        Some(Judged::Patched(patch)) => Vetted::Execute(request, Some(patch)),
        Some(Judged::Answered(outcome)) => Vetted::Answered(request, outcome),
        Some(Judged::Refused(reason, errno)) => {
            let line = format!("{}: {reason}", observe::name(&request));
            Vetted::Refused(Some(request), Refusal::note(reason, errno, line))
        }
    }
}
