//! The way of a request, as functions: from the first copy of its bytes to its answer.
//!
//! ```text
//! prepare   decode, policy, GIDs; translate     ─▶ refused, answered, or to be executed
//! begin     frame; the executor makes it
//! finish    commit: what it brought about
//! answer    reply: what belongs into the guest's memory, and the end of its call
//! ```
//!
//! The supervisor drives these functions by events, because stubs answer later (`Supervisor::{run,
//! start, done}`); [`carry`] drives them in one go, for executors that answer at once. There is no
//! other way from a guest's bytes to a device.

use verbgate_abi::Errno;
use verbgate_abi::contexts::ContextMethods;
use verbgate_abi::request::Request;
use verbgate_abi::wire;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::process::GuestFile;
use verbgate_sys::seccomp::Reply;

use crate::books::Ucontext;
use crate::commit;
use crate::executor::AtOnce;
use crate::executor::Executor;
use crate::executor::Order;
use crate::executor::Pieces;
use crate::executor::Unbegun;
use crate::fetch;
use crate::fetch::Copied;
use crate::fetch::Form;
use crate::fetch::MAX_WRITE;
use crate::flight::InFlight;
use crate::flight::Prepared;
use crate::flight::Rest;
use crate::frame;
use crate::outcome::Outcome;
use crate::reply;
use crate::translate;
use crate::translate::Plan;
use crate::vet::Refusal;
use crate::vet::Rules;
use crate::vet::Vetted;
use crate::vet::vet;

/// What becomes of a request.
#[derive(Debug)]
pub enum Next {
    /// It is not executed; `None` for what could not be decoded.
    Refused(Option<Request>, Refusal),
    /// This is the answer.
    Answered(Request, Outcome),
    /// It can be executed, as soon as these have been written.
    ///
    /// Afterwards there would be a descriptor, or a ucontext, that nobody was told of. What is
    /// there is written again, so that a request which fails changes nothing.
    Execute(Prepared, Pieces),
}

/// Copies a request, given with `write`, that was not a part of the first read.
///
/// # Errors
/// `EFAULT`.
pub fn copy_write(memory: &impl GuestMemory, addr: u64, count: usize) -> Result<Copied, Errno> {
    Copied::read(memory, addr, count.min(MAX_WRITE)).ok_or(Errno::EFAULT)
}

/// The stages up to translate, of a request of which the first bytes have been copied.
///
/// # Errors
/// Those of [`translate`](translate::translate); `EFAULT` for an output that cannot be read.
pub fn prepare(
    executor: &impl Executor,
    memory: &impl GuestMemory,
    form: Form,
    copied: Copied,
    rules: &Rules<'_>,
    look_up: impl FnMut(wire::GuestFd) -> Result<GuestFile, Errno>,
) -> Result<Next, Errno> {
    match vet(memory, form, copied, rules) {
        Vetted::Refused(request, refusal) => Ok(Next::Refused(request, refusal)),
        Vetted::Answered(request, outcome) => Ok(Next::Answered(request, outcome)),
        Vetted::Execute(request, told) => {
            let mut plan = Plan { told, ..translate::translate(&request, look_up)? };
            executor.plan(&mut plan);
            let pieces = current(memory, frame::touched(&request, &plan))?;
            Ok(Next::Execute(Prepared { form, request, plan, rest: None }, pieces))
        }
    }
}

/// Lays a vetted request out, and has it made.
///
/// # Errors
/// See [`Unbegun`].
pub fn begin<E: Executor>(
    executor: &mut E,
    prepared: Prepared,
) -> Result<(InFlight, E::Begun), Unbegun> {
    let Prepared { form, request, plan, rest } = prepared;
    let base = executor.base();
    let layout = frame::lay_out(executor.frame_mut(), base, &request, &plan)?;
    let supervised = plan.supervised || plan.new_fd || layout.is_supervised();
    let entries = match form {
        Form::Ioctl(array) if !supervised => layout.entries(&request, array),
        _ => Vec::new(),
    };
    let order = Order { request: &request, layout: &layout, plan: &plan, entries: &entries };
    let begun = executor.begin(&order)?;
    Ok((InFlight { form, request, layout, told: plan.told, supervised, rest }, begun))
}

/// Takes over what a request brought about.
pub fn finish(executor: &mut impl Executor, done: &InFlight, result: i64) -> Outcome {
    if !done.supervised {
        return Outcome { result, ..Outcome::default() };
    }
    let mut outcome = commit::commit(executor, done, result);
    // The last of several makes the descriptor.
    if let (Some(rest), Some(fd)) = (&done.rest, outcome.fd) {
        outcome.outputs.push((rest.fd_at.0, fd.0.to_ne_bytes().to_vec()));
    }
    outcome
}

/// What is made next for the same call: the methods in the place of a GET_CONTEXT that was written,
/// where the kernel makes none by `INVOKE_WRITE`; if they are granted.
pub fn more(
    executor: &impl Executor,
    done: &mut InFlight,
    outcome: &Outcome,
    is_granted: impl Fn(&Request) -> bool,
) -> Option<Prepared> {
    let next = done.rest.as_mut().map(|rest| (rest.fd_at, rest.next.take()));
    let (request, rest) = match next {
        Some((fd_at, next)) if outcome.result >= 0 => (next?, Rest { next: None, fd_at }),
        None if outcome.result == -i64::from(Errno::EBADF.0) && is_written(done.form) => {
            let ContextMethods { context, events, fd_at } = ContextMethods::of(&done.request)?;
            (context, Rest { next: Some(events), fd_at })
        }
        _ => return None,
    };
    if !is_granted(&request) {
        return None;
    }
    // They name no descriptor.
    let mut plan = translate::translate(&request, |_| Err(Errno::EBADF)).ok()?;
    executor.plan(&mut plan);
    Some(Prepared { form: done.form, request, plan, rest: Some(Box::new(rest)) })
}

const fn is_written(form: Form) -> bool {
    matches!(form, Form::Write(_))
}

/// What belongs into the guest's memory still, and how the call ends then. `written`: what the
/// executor was to write, it could write.
#[must_use]
pub fn answer(done: &InFlight, outcome: Outcome, written: bool) -> (Pieces, Reply) {
    let answer = reply::value(done.form, outcome.result);
    if outcome.result < 0 {
        (Pieces::new(), answer)
    } else if done.supervised {
        (reply::pieces(done.form, &done.request, outcome), answer)
    } else if written {
        (Pieces::new(), answer)
    } else {
        (Pieces::new(), Reply::Errno(Errno::EFAULT.0))
    }
}

/// What guest memory holds in these places, to be written there again.
pub(crate) fn current(
    memory: &impl GuestMemory,
    places: impl Iterator<Item = Range>,
) -> Result<Pieces, Errno> {
    let read = |range: Range| {
        let mut bytes = vec![0; range.len];
        mem::gather(memory, &[range], &mut bytes).map_err(fetch::fault)?;
        Ok((range.addr, bytes))
    };
    places.map(read).collect()
}

/// How a request's way ended.
#[derive(Debug)]
pub struct Carried {
    /// How the guest's call ends.
    pub reply: Reply,
    /// The request as it was decoded, if it was refused, answered or executed.
    pub request: Option<Request>,
    /// Why it was not executed, if it was refused.
    pub refusal: Option<Refusal>,
}

impl From<Errno> for Carried {
    fn from(errno: Errno) -> Self {
        Self { reply: Reply::Errno(errno.0), request: None, refusal: None }
    }
}

/// Carries a call from the bytes at an address to its answer, all stages of it.
pub fn carry(
    executor: &mut impl AtOnce,
    memory: &impl GuestMemory,
    (form, addr): (Form, u64),
    rules: &Rules<'_>,
    ucontext: &mut Ucontext,
    look_up: impl FnMut(wire::GuestFd) -> Result<GuestFile, Errno>,
) -> Carried {
    let copied = match form {
        Form::Ioctl(_) => Ok(Copied::beginning(memory, addr, fetch::FIRST_READ)),
        Form::Write(count) => copy_write(memory, addr, count),
    };
    let next = copied.and_then(|copied| prepare(executor, memory, form, copied, rules, look_up));
    match next {
        Err(errno) => errno.into(),
        Ok(Next::Refused(request, refusal)) => {
            Carried { reply: Reply::Errno(refusal.errno.0), request, refusal: Some(refusal) }
        }
        Ok(Next::Answered(request, outcome)) => {
            let value = reply::value(form, outcome.result);
            let pieces = reply::pieces(form, &request, outcome);
            let reply = deliver(executor, &pieces, value);
            Carried { reply, request: Some(request), refusal: None }
        }
        Ok(Next::Execute(prepared, before)) => {
            execute(executor, prepared, &before, ucontext, rules).unwrap_or_else(Carried::from)
        }
    }
}

/// The stages of [`carry`] from frame to reply.
fn execute(
    executor: &mut impl AtOnce,
    prepared: Prepared,
    before: &Pieces,
    ucontext: &mut Ucontext,
    rules: &Rules<'_>,
) -> Result<Carried, Errno> {
    write(executor, before)?;
    let mut prepared = prepared;
    let (done, shown, outcome) = loop {
        let (mut done, shown) = match begin(executor, prepared) {
            Ok(begun) => begun,
            Err(Unbegun::Refused(errno)) => return Err(errno),
            Err(Unbegun::Failed(e)) => {
                log::error!("cannot start a request: {e}");
                return Err(Errno::EIO);
            }
        };
        let outcome = finish(executor, &done, shown.result);
        ucontext.enter(&done.request, outcome.result);
        match more(executor, &mut done, &outcome, |next| rules.grants(next)) {
            Some(next) => prepared = next,
            None => break (done, shown, outcome),
        }
    };
    let (pieces, value) = answer(&done, outcome, shown.written);
    let reply = deliver(executor, &pieces, value);
    Ok(Carried { reply, request: Some(done.request), refusal: None })
}

/// Writes what belongs into the guest's memory; the end of the call.
fn deliver(executor: &mut impl AtOnce, pieces: &Pieces, reply: Reply) -> Reply {
    write(executor, pieces).map_or_else(|errno| Reply::Errno(errno.0), |()| reply)
}

fn write(executor: &mut impl AtOnce, pieces: &Pieces) -> Result<(), Errno> {
    if pieces.iter().all(|(_, bytes)| bytes.is_empty()) {
        return Ok(());
    }
    executor.write(pieces)
}
