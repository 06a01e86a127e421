//! Who executes a request: a stub that waits, or one that is planted.

use std::sync::Arc;

use verbgate_abi::Errno;

use crate::session::Guest;
use crate::session::GuestState;
use crate::session::StubState;
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
        state: &GuestState,
        call: &Call,
    ) -> Result<Found, Errno> {
        let workers = || state.workers.iter().enumerate();
        let free = workers().find(|(_, w)| w.bound.is_none() && w.idle().is_some());
        let starting = workers().any(|(_, w)| matches!(w.state, StubState::Starting));
        if let Some((place, _)) = free {
            return Ok(Found::Worker(place));
        }
        if starting {
            return Ok(Found::Later);
        }
        if crate::planting::has_room(state)
            && self.caller(&call.trap).is_of(&guest.process).unwrap_or(false)
        {
            return Ok(Found::Plant);
        }
        if let Some((place, _)) = workers().find(|(_, w)| w.idle().is_some()) {
            return Ok(Found::Worker(place));
        }
        // Another may come, but for stubs that have ended with nobody to plant by way of.
        if may_come(state) { Ok(Found::Later) } else { Err(Errno::EIO) }
    }
}

/// Whether a stub is there that will come back from what it does.
pub(crate) fn may_come(state: &GuestState) -> bool {
    state.workers.iter().any(|worker| !matches!(worker.state, StubState::Ended))
}
