//! Who executes a request: a stub that waits, or one that is planted.

use std::sync::Arc;

use verbgate_abi::Errno;
use verbgate_sys::process;

use crate::session::Guest;
use crate::session::GuestState;
use crate::session::Worker;
use crate::supervisor::Supervisor;
use crate::task::Call;

/// Who executes a request.
pub(crate) enum Found {
    /// The stub in this place.
    Worker(usize),
    /// A new one, to be planted.
    Plant,
    /// Nobody yet.
    Later,
}

impl Supervisor {
    /// Who binds the file of a call.
    pub(crate) fn find_worker(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        call: &Call,
    ) -> Result<Found, Errno> {
        let is_free = |w: &Worker| w.bound.is_none() && w.idle().is_some();
        if let Some(place) = state.workers.iter().position(is_free) {
            return Ok(Found::Worker(place));
        }
        if state.is_coming() {
            return Ok(Found::Later);
        }
        // A thread that somebody traces can plant none, and waits for a stub that is there.
        let traced = || state.has_stub() && process::tracer(call.trap.tid).is_ok_and(|by| by != 0);
        if crate::planting::has_room(state)
            && self.caller(&call.trap).is_of(&guest.process).unwrap_or(false)
            && !traced()
        {
            return Ok(Found::Plant);
        }
        if let Some(place) = state.workers.iter().position(|w| w.idle().is_some()) {
            return Ok(Found::Worker(place));
        }
        // Another may come, but for stubs that have ended with nobody to plant by way of.
        if may_come(state) { Ok(Found::Later) } else { Err(Errno::EIO) }
    }
}

/// Whether a stub is there that will come back from what it does, or is being planted.
pub(crate) fn may_come(state: &GuestState) -> bool {
    state.planting.is_some() || state.has_stub()
}
