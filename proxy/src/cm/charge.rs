//! The charges of rdma_cm: ids, and the multicast groups that ids have joined.
//!
//! The kernel writes responses into the supervisor's own memory, so the numbers in them are the kernel's.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use parking_lot::Mutex;
use verbgate_abi::cm;
use verbgate_abi::cm::Also;
use verbgate_sys::node;
use verbgate_sys::process::GuestFile;

use crate::account::CmAccount;
use crate::cm::command::CmCommand;
use crate::cm::command::Denied;
use crate::pace::Pace;
use crate::policy::Policy;
use crate::quota::Resource;
use crate::supervisor::Supervisor;

/// `RDMA_CM_EVENT_CONNECT_REQUEST`, include/rdma/rdma_cm.h: the event names a new id.
const CONNECT_REQUEST: u32 = 4;

/// A word of a response; all ones where there is none.
pub(super) fn word(response: &[u8], at: usize) -> u32 {
    let word = response.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map_or(u32::MAX, |word| u32::from_ne_bytes(*word))
}

/// A command has destroyed an id, or left a group.
pub(super) fn gone(cmd: u32, number: u32, ids: &mut CmAccount) {
    match cmd {
        cm::DESTROY_ID => ids.destroyed(number),
        cm::LEAVE_MCAST => ids.left(number),
        _ => {}
    }
}

impl Supervisor {
    /// The ids of another file of rdma_cm, if the file was opened here.
    pub(super) fn ids_of(&self, other: &GuestFile) -> Option<Arc<Mutex<CmAccount>>> {
        let mount = node::mount_id(other.get()?.as_fd()).ok()?;
        let books = self.books.lock();
        let id = books.by_mount(mount)?;
        books.get(id).map(|ucontext| Arc::clone(&ucontext.cm))
    }

    /// Gives a command for which the tenant has been charged.
    pub(super) fn charged(
        &self,
        written: &CmCommand,
        id: Option<&[u8]>,
    ) -> Result<Vec<u8>, Denied> {
        let CmCommand { copied, ids, from, .. } = written;
        let what = match copied.spec.also {
            Also::Namespace => Some(Resource::CmIds),
            Also::NewId => Some(Resource::Multicast),
            _ => None,
        };
        if let Some(what) = what {
            if self.policies().any(Policy::has_quota) {
                self.release();
            }
            let charged = ids.lock().charge(what, &|resource| self.bound(resource));
            charged.map_err(|over| {
                let refusal = over.refusal(copied.spec.name);
                self.warn(refusal.reason, || {
                    format!("thread {}: {}", written.trap.tid, refusal.line)
                });
                Denied::because(refusal.reason, refusal.errno)
            })?;
        }
        let given = self.given(written, id);
        let mut own = ids.lock();
        match (&given, copied.spec.also) {
            (Ok(response), Also::Namespace) => own.made(word(response, 0)),
            (Ok(response), Also::NewId) => {
                own.joined(copied.id().unwrap_or(u32::MAX), word(response, 0));
            }
            // struct rdma_ucm_event_resp: uid, id, event.
            (Ok(response), Also::Event) if word(response, 12) == CONNECT_REQUEST => {
                own.came(word(response, 8));
            }
            (Ok(_), Also::File(_)) => {
                let id = copied.id().unwrap_or(u32::MAX);
                drop(own);
                let groups = from.as_ref().and_then(|from| from.lock().give(id));
                if let Some(groups) = groups {
                    ids.lock().take(id, groups);
                }
            }
            (Ok(_), _) => gone(copied.header.cmd, copied.id().unwrap_or(u32::MAX), &mut own),
            (Err(_), _) => {
                if let Some(what) = what {
                    own.uncharge(what);
                }
            }
        }
        given
    }

    /// How often the sandbox may make requests.
    pub(crate) fn pace(&self) -> Option<Pace> {
        self.policies().filter_map(Policy::rate).reduce(Pace::and)
    }
}
