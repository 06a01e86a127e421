//! Completion queues, polled or by events.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use rustix::io::Errno;

use crate::Context;
use crate::Error;
use crate::check;
use crate::ffi;
use crate::ffi::Completion;
use crate::last;

/// A completion queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue(pub(super) Arc<CqInner>);

#[derive(Debug)]
pub(super) struct CqInner {
    context: Context,
    pub(super) cq: *mut ffi::RawCompletionQueue,
    /// Null without events.
    channel: *mut ffi::CompletionChannel,
}

// SAFETY: the queue belongs to no thread.
unsafe impl Send for CqInner {}
// SAFETY: libibverbs locks the queue while somebody polls, and channels are descriptors.
unsafe impl Sync for CqInner {}

impl Drop for CqInner {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold this structure, so it is used no more.
        unsafe { (self.context.library().destroy_cq)(self.cq) };
        if !self.channel.is_null() {
            // SAFETY: its only queue is gone, and no event of it is left to acknowledge.
            unsafe { (self.context.library().destroy_comp_channel)(self.channel) };
        }
    }
}

impl CompletionQueue {
    /// One of at least this many entries.
    ///
    /// # Errors
    /// As `ibv_create_cq(3)`.
    pub fn new(context: &Context, entries: u32) -> Result<Self, Error> {
        Self::on(context, entries, std::ptr::null_mut())
    }

    /// One of at least this many entries, for whose completions [`wait`] can wait.
    ///
    /// # Errors
    /// As `ibv_create_comp_channel(3)` and `ibv_create_cq(3)`.
    pub fn with_events(context: &Context, entries: u32) -> Result<Self, Error> {
        let library = context.library();
        // SAFETY: the context is open.
        let channel = unsafe { (library.create_comp_channel)(context.0.context) };
        if channel.is_null() {
            return Err(last("ibv_create_comp_channel"));
        }
        Self::on(context, entries, channel).inspect_err(|_| {
            // SAFETY: nothing was made on it.
            unsafe { (library.destroy_comp_channel)(channel) };
        })
    }

    fn on(
        context: &Context,
        entries: u32,
        channel: *mut ffi::CompletionChannel,
    ) -> Result<Self, Error> {
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        let create = context.library().create_cq;
        // SAFETY: the context is open, and the channel, if there is one, is of this context.
        let cq = unsafe { create(context.0.context, entries, std::ptr::null_mut(), channel, 0) };
        if cq.is_null() {
            return Err(last("ibv_create_cq"));
        }
        Ok(Self(Arc::new(CqInner { context: context.clone(), cq, channel })))
    }

    /// Asks for an event of the next completion. What completed before has none: poll once more.
    ///
    /// # Errors
    /// As `ibv_req_notify_cq(3)`.
    pub fn arm(&self) -> Result<(), Error> {
        // SAFETY: the context is open; its table of functions does not change.
        let notify = unsafe { (*self.0.context.0.context).req_notify_cq };
        // SAFETY: the queue is there. Of every completion, and not of solicited ones alone.
        check("ibv_req_notify_cq", unsafe { notify(self.0.cq, 0) })
    }

    /// Where events come; none of a queue without.
    fn events(&self) -> Option<BorrowedFd<'_>> {
        if self.0.channel.is_null() {
            return None;
        }
        // SAFETY: the channel is there as long as its queue.
        let fd = unsafe { (*self.0.channel).fd };
        // SAFETY: the descriptor is open as long as the channel.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Takes the event that is there.
    fn take(&self) -> Result<(), Error> {
        let (mut cq, mut own) = (std::ptr::null_mut(), std::ptr::null_mut());
        let library = self.0.context.library();
        // SAFETY: the channel is there, and both places are ours to write.
        let got = unsafe { (library.get_cq_event)(self.0.channel, &raw mut cq, &raw mut own) };
        check("ibv_get_cq_event", got)?;
        // SAFETY: the queue of the event, which is this one: the channel has no other.
        unsafe { (library.ack_cq_events)(cq, 1) };
        Ok(())
    }

    /// Takes what has completed, if anything.
    ///
    /// # Errors
    /// As `ibv_poll_cq(3)`.
    pub fn poll(&self) -> Result<Vec<Completion>, Error> {
        let mut completions = vec![Completion::default(); 16];
        let count = self.poll_into(&mut completions)?;
        completions.truncate(count);
        Ok(completions)
    }

    /// Takes what has completed into the beginning of these; how many.
    ///
    /// # Errors
    /// As `ibv_poll_cq(3)`.
    pub fn poll_into(&self, completions: &mut [Completion]) -> Result<usize, Error> {
        let entries = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        let context = self.0.context.0.context;
        // SAFETY: the context is open; its table of functions does not change.
        let poll = unsafe { &(*context).poll_cq };
        // SAFETY: the queue is there, and the array has so many entries.
        let count = unsafe { poll(self.0.cq, entries, completions.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| last("ibv_poll_cq"))
    }
}

/// Waits until one of these queues, which have been armed, has an event, but no longer than this;
/// whether one has. Queues without events are not waited for.
///
/// # Errors
/// As poll(2) and `ibv_get_cq_event(3)`.
pub fn wait(queues: &[&CompletionQueue], patience: Duration) -> Result<bool, Error> {
    let with: Vec<(&&CompletionQueue, BorrowedFd<'_>)> =
        queues.iter().filter_map(|queue| Some((queue, queue.events()?))).collect();
    let mut ready: Vec<PollFd<'_>> =
        with.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let patience = Timespec::try_from(patience).ok();
    match poll(&mut ready, patience.as_ref()) {
        Ok(0) | Err(Errno::INTR) => return Ok(false),
        Ok(_) => {}
        Err(errno) => return Err(Error::Verb { verb: "poll", error: errno.into() }),
    }
    let come = with.iter().zip(&ready).filter(|(_, fd)| fd.revents().contains(PollFlags::IN));
    let mut any = false;
    for ((queue, _), _) in come {
        queue.take()?;
        any = true;
    }
    Ok(any)
}
