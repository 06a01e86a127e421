//! Executors, which make a vetted request, and give the guest the results.
//!
//! The stages before and after are functions of the copied bytes and of the executor's answer
//! ([`way`](crate::way)); the stages do not know which executor there is. The executors are a stub
//! in the guest's own process (`stub`), which answers later, the calling process
//! ([`Local`]), and a script ([`Recorded`]).
//!
//! An executor sees only the frame and the plan of a request: bytes that are not in the frame are
//! not executed.

pub mod local;
pub mod recorded;
pub(crate) mod stub;

use std::io;
use std::os::fd::OwnedFd;

use verbgate_abi::Errno;
use verbgate_abi::request::Request;
use verbgate_sys::GuestFd;
use verbgate_sys::frame::Frame;
use verbgate_sys::stub::Piece;

use crate::frame::Layout;
use crate::translate::Plan;

pub use local::Local;
pub use recorded::Recorded;

/// Bytes for the guest's memory, and where they go.
pub type Pieces = Vec<(u64, Vec<u8>)>;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// What the kernel returned, or `-errno`.
    pub result: i64,
    /// The entries of the guest's array that the executor was to write could be written. Of no
    /// meaning when the request failed.
    pub written: bool,
}

/// Why a request was not begun. The kernel has not seen it.
#[derive(Debug, thiserror::Error)]
pub enum Unbegun {
    /// The guest is answered with this.
    #[error("the request cannot be executed: {0:?}")]
    Refused(Errno),
    /// The executor has failed or is gone.
    #[error("the executor failed")]
    Failed(#[from] io::Error),
}

impl From<Errno> for Unbegun {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno)
    }
}

/// What an executor is asked to do. The request itself lies in the frame; this is what must be
/// known besides.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The request that was laid out.
    pub request: &'a Request,
    /// Where its outputs are in the frame.
    pub layout: &'a Layout,
    /// The descriptors that it needs, and whether it makes one.
    pub plan: &'a Plan,
    /// What is to be copied from the read-write half to the guest if the request succeeds.
    pub entries: &'a [Piece],
}

/// Executes requests.
///
/// The order of calls for one request: [`plan`](Self::plan); [`write`](Self::write) when outputs
/// are to be tried first; [`frame_mut`](Self::frame_mut), [`begin`](Self::begin);
/// [`take_fd`](Self::take_fd) and [`give_fd`](Self::give_fd) when the plan has a new descriptor,
/// `take_fd` also after a failure, so that nothing is left for the next; `write`.
pub trait Executor {
    /// What is known when a request has begun: how it ended, if the executor waits for that
    /// ([`AtOnce`]), or what to know its end by.
    type Begun;
    /// The same of a write.
    type Wrote;

    /// The frame that requests are laid out in.
    fn frame(&self) -> &Frame;
    /// The same, to be filled. Only while no request runs.
    fn frame_mut(&mut self) -> &mut Frame;
    /// The address at which whoever executes sees the frame.
    fn base(&self) -> u64;

    /// Fits a plan, made for a stub, to this executor.
    fn plan(&self, _plan: &mut Plan) {}

    /// Makes the request that lies in the frame.
    ///
    /// # Errors
    /// See [`Unbegun`].
    fn begin(&mut self, order: &Order<'_>) -> Result<Self::Begun, Unbegun>;

    /// Writes into the guest's memory, in the guest's rights.
    ///
    /// # Errors
    /// `EFAULT` when it cannot be written; `E2BIG`: more than a frame holds; `EIO`.
    fn write(&mut self, pieces: &[(u64, Vec<u8>)]) -> Result<Self::Wrote, Errno>;

    /// Takes the descriptor that the last request made.
    ///
    /// # Errors
    /// `EAGAIN`: it made none.
    fn take_fd(&mut self) -> io::Result<OwnedFd>;

    /// Gives the guest a descriptor, and returns the number that it has there. Every descriptor
    /// that the verbs interface makes is `O_CLOEXEC`.
    ///
    /// # Errors
    /// `EMFILE` and whatever else keeps the guest's table from taking it.
    fn give_fd(&mut self, file: OwnedFd) -> io::Result<GuestFd>;
}

/// An executor that returns when what it was asked for is done.
pub trait AtOnce: Executor<Begun = Shown, Wrote = ()> {}

impl<E: Executor<Begun = Shown, Wrote = ()>> AtOnce for E {}
