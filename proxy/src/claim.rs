//! Claim: the connections that a vetted request is about to make are the sandbox's own, or the
//! request is refused.

use verbgate_abi::Errno;
use verbgate_abi::Request;

use crate::books::UcontextId;
use crate::connections::Sources;
use crate::connections::Ticket;
use crate::supervisor::Supervisor;
use crate::task::About;
use crate::vet::Refusal;

impl Supervisor {
    /// Claims the connections that a request is about to make, or tells that the request is refused.
    pub(crate) fn claim(&self, about: &About, request: &Request) -> Result<Ticket, Errno> {
        self.connect(about.ucontext, request).map_err(|refusal| {
            self.refused(about, Some(request), &refusal);
            refusal.errno
        })
    }

    fn connect(&self, id: UcontextId, request: &Request) -> Result<Ticket, Refusal> {
        let Some(register) = &self.register else { return Ok(Ticket::default()) };
        let device = self.books.lock().get(id).map(|ucontext| ucontext.device);
        let rdev = device.and_then(|device| self.devices.get(device)).map(|device| device.rdev);
        let sources = Sources { gids: self.gids.as_deref(), rdev: rdev.unwrap_or((0, 0)) };
        // Looked up before the books are locked: the look-up asks the kernel.
        let paths = sources.paths(request).map_err(|e| {
            let line = format!("MODIFY_QP: cannot tell whose the source GID is: {e}");
            Refusal::note("cannot tell whose the GID is", Errno::EIO, line)
        })?;
        let mut books = self.books.lock();
        match books.get_mut(id) {
            Some(ucontext) => ucontext.connections.begin(request, &paths, register),
            None => Ok(Ticket::default()),
        }
    }
}
