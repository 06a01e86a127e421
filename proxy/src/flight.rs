//! Requests on their way: vetted, and then in the kernel.

use verbgate_abi::request::Request;
use verbgate_abi::wire::GuestAddr;

use crate::fetch::Form;
use crate::frame::Layout;
use crate::gids;
use crate::translate::Plan;

/// A vetted request, with what it needs besides.
#[derive(Debug)]
pub struct Prepared {
    /// How it was made.
    pub form: Form,
    /// The request as it was decoded.
    pub request: Request,
    /// What it needs.
    pub plan: Plan,
    /// What is still to be made for the same call.
    pub rest: Option<Box<Rest>>,
}

/// What is still to be made for a call that one request does not answer.
#[derive(Debug)]
pub struct Rest {
    /// The next request; none in the last.
    pub next: Option<Request>,
    /// Where the number of the descriptor that the last makes belongs.
    pub fd_at: GuestAddr,
}

/// A request that is being executed.
#[derive(Debug)]
pub struct InFlight {
    /// How it was made.
    pub form: Form,
    /// The request as it was decoded.
    pub request: Request,
    /// Where its outputs are in the frame.
    pub layout: Layout,
    /// What the guest is told in the place of the kernel's word, if the request succeeds.
    pub told: Option<gids::GidPatch>,
    /// It has an output that goes by way of the supervisor, or makes a descriptor.
    pub supervised: bool,
    /// What is still to be made for the same call.
    pub rest: Option<Box<Rest>>,
}
