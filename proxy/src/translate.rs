//! Translate: descriptors of the guest become descriptors of the stub.
//!
//! The kernel looks descriptors up in the table of the thread that executes the request, which is
//! the stub's own. Each descriptor of a request is looked up once, in the caller's table, and lent
//! to the stub under a number of its own. So changes that the guest makes to the caller's table
//! meanwhile do not matter.

use verbgate_abi::Errno;
use verbgate_abi::request::Place;
use verbgate_abi::request::Request;
use verbgate_abi::wire::GuestFd;
use verbgate_sys::arch::stub_fd;
use verbgate_sys::process::GuestFile;

use crate::gids;

/// A descriptor for the stub's table.
#[derive(Debug)]
pub struct Lent {
    /// The number there.
    pub at: u32,
    /// The file.
    pub file: GuestFile,
}

/// A number to be replaced in the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Where it stands.
    pub place: Place,
    /// The stub's number.
    pub number: u32,
}

/// What a request needs besides itself.
#[derive(Debug, Default)]
pub struct Plan {
    /// Descriptors to lend, in the stub's table.
    pub lent: Vec<Lent>,
    /// Numbers to replace.
    pub patches: Vec<Patch>,
    /// The kernel will install a new descriptor.
    pub new_fd: bool,
    /// What the guest is told in the place of the kernel's word, if it succeeds.
    pub told: Option<gids::GidPatch>,
    /// Every output goes by way of the supervisor: the guest's addresses mean nothing, or something
    /// else, to whoever executes the request.
    pub supervised: bool,
}

/// Looks up every descriptor of a request.
///
/// # Errors
/// `EBADF` for one that is not open, as the kernel answers; `E2BIG` for more than can be lent.
pub fn translate(
    request: &Request,
    mut look_up: impl FnMut(GuestFd) -> Result<GuestFile, Errno>,
) -> Result<Plan, Errno> {
    let mut plan = Plan { new_fd: request.new_fds().next().is_some(), ..Plan::default() };
    for used in request.fds() {
        let number = lent_number(plan.lent.len()).ok_or(Errno::E2BIG)?;
        plan.lent.push(Lent { at: number, file: look_up(used.fd)? });
        plan.patches.push(Patch { place: used.place, number });
    }
    Ok(plan)
}

/// The number at which a descriptor is given to the stub, by its place among the lent ones.
#[must_use]
pub fn lent_number(place: usize) -> Option<u32> {
    let at = stub_fd::LENT.checked_add(u32::try_from(place).ok()?)?;
    (at <= stub_fd::LAST).then_some(at)
}
