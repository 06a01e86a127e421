//! The charges of rdma_cm: ids, their ports and backlogs, and the multicast groups that ids have joined.
//!
//! The kernel writes responses into the supervisor's own memory, so the numbers in them are the kernel's.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use parking_lot::Mutex;
use verbgate_abi::cm;
use verbgate_abi::cm::Also;
use verbgate_abi::cm::OwnPort;
use verbgate_sys::node;
use verbgate_sys::process::GuestFile;

use crate::cm::account::CmAccount;
use crate::cm::command::CmCommand;
use crate::cm::command::CmCopy;
use crate::cm::command::Denied;
use crate::ledger::OverQuota;
use crate::pace::Pace;
use crate::policy::Policy;
use crate::quota::Amounts;
use crate::quota::Bounds;
use crate::quota::Resource;
use crate::supervisor::Supervisor;

/// `RDMA_CM_EVENT_CONNECT_REQUEST`, include/rdma/rdma_cm.h: the event names a new id.
const CONNECT_REQUEST: u32 = 4;

/// What an id asks for that leaves its backlog to the kernel. The kernel's own is larger
/// (net.rdma_ucm.max_backlog, 1024), of which one listener would take a tenant's whole.
const BACKLOG: u32 = 128;

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

/// What a command takes, if the kernel makes it.
fn takes(copied: &CmCopy, ids: &CmAccount) -> Amounts {
    let mut what = match copied.spec.also {
        Also::Namespace => Amounts::of(Resource::CmIds, 1),
        Also::NewId => Amounts::of(Resource::Multicast, 1),
        _ => Amounts::default(),
    };
    let addressed = OwnPort::asked(copied.header.cmd, &copied.body) != OwnPort::Nothing;
    if addressed && ids.takes_port(copied.id().unwrap_or(u32::MAX)) {
        what.add(Resource::Ports, 1);
    }
    if copied.header.cmd == cm::LISTEN {
        let asked = match copied.u32(cm::BACKLOG) {
            0 => BACKLOG,
            asked => asked,
        };
        what.add(Resource::Backlog, asked.into());
    }
    what
}

/// Charges what a command takes; of a backlog as much as is left, which the command then asks for.
fn charge(
    ids: &mut CmAccount,
    copied: &mut CmCopy,
    bounds: Bounds<'_>,
) -> Result<Amounts, OverQuota> {
    let mut what = takes(copied, ids);
    if let Err(over) = ids.charge(&what, bounds) {
        let left = over.left_of(Resource::Backlog).filter(|left| *left > 0).ok_or(over)?;
        what = what.minus(&Amounts::of(Resource::Backlog, u64::MAX));
        what.add(Resource::Backlog, left);
        ids.charge(&what, bounds)?;
    }
    let backlog = what.get(Resource::Backlog);
    if backlog > 0 && bounds(Resource::Backlog).is_some() {
        copied.set_u32(cm::BACKLOG, u32::try_from(backlog).unwrap_or(u32::MAX));
    }
    Ok(what)
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
        written: &mut CmCommand,
        id: Option<&[u8]>,
    ) -> Result<Vec<u8>, Denied> {
        let ids = Arc::clone(&written.ids);
        let takes_any = takes(&written.copied, &ids.lock()) != Amounts::default();
        if takes_any && self.policies().any(Policy::has_quota) {
            self.release();
        }
        let bounds = |resource| self.bound(resource);
        let what = charge(&mut ids.lock(), &mut written.copied, &bounds).map_err(|over| {
            let refusal = over.refusal(written.copied.spec.name);
            self.warn(refusal.reason, || format!("thread {}: {}", written.trap.tid, refusal.line));
            Denied::because(refusal.reason, refusal.errno)
        })?;
        let given = self.given(written, id);
        let CmCommand { copied, from, .. } = written;
        let id = copied.id().unwrap_or(u32::MAX);
        let mut own = ids.lock();
        // Unless it binds and nothing else, a command that fails may have left the id with a port.
        let binds = [cm::BIND_IP, cm::BIND].contains(&copied.header.cmd);
        if what.get(Resource::Ports) > 0 && (given.is_ok() || !binds) {
            own.bound(id);
        }
        match (&given, copied.spec.also) {
            (Ok(response), Also::Namespace) => own.made(word(response, 0)),
            (Ok(response), Also::NewId) => own.joined(id, word(response, 0)),
            // struct rdma_ucm_event_resp: uid, id, event.
            (Ok(response), Also::Event) if word(response, 12) == CONNECT_REQUEST => {
                own.came(word(response, 8));
            }
            (Ok(_), Also::File(_)) => {
                drop(own);
                let held = from.as_ref().and_then(|from| from.lock().give(id));
                if let Some(held) = held {
                    ids.lock().take(id, held);
                }
            }
            (Ok(_), _) if copied.header.cmd == cm::LISTEN => {
                own.listens(id, what.get(Resource::Backlog));
            }
            (Ok(_), _) => gone(copied.header.cmd, id, &mut own),
            (Err(_), _) => {
                let mut back = what;
                if !binds {
                    back = back.minus(&Amounts::of(Resource::Ports, 1));
                }
                own.uncharge(&back);
            }
        }
        given
    }

    /// How often the tenant may make requests.
    pub(crate) fn pace(&self) -> Option<Pace> {
        self.policies().filter_map(Policy::rate).reduce(Pace::and)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use verbgate_abi::Errno;

    use verbgate_abi::cm::CmHeader;
    use verbgate_sys::mem::FakeMemory;

    use super::*;
    use crate::ledger::Ledger;

    /// A command of this number, about an id, with words behind the id.
    fn copied(cmd: u32, id: u32, word: u32) -> CmCopy {
        let spec = cm::command(cmd).unwrap();
        let len = u16::try_from(spec.len).unwrap();
        let mut bytes = CmHeader { cmd, input: len, output: 0 }.bytes().to_vec();
        let mut body = vec![0; spec.len];
        if let Some(at) = spec.id {
            body[at..at + 4].copy_from_slice(&id.to_ne_bytes());
            if cmd == cm::LISTEN {
                body[4..8].copy_from_slice(&word.to_ne_bytes());
            }
        }
        bytes.extend(body);
        bytes.resize(4096, 0);
        let memory = FakeMemory { base: 4096, bytes: RefCell::new(bytes) };
        CmCopy::read(&memory, 4096, cm::HDR_LEN + spec.len).unwrap()
    }

    #[test]
    fn a_command_takes_what_the_kernel_makes_of_it() {
        let ledger = Arc::new(Ledger::default());
        let mut ids = CmAccount::new(&ledger);
        let none = |_| None;
        ids.charge(&Amounts::of(Resource::CmIds, 1), &none).unwrap();
        ids.made(7);
        for cmd in (0..25).filter(|cmd| cm::command(*cmd).is_ok()) {
            let what = takes(&copied(cmd, 7, 9), &ids);
            let expected: &[(Resource, u64)] = match cm::command(cmd).unwrap().name {
                "CM_CREATE_ID" => &[(Resource::CmIds, 1)],
                "CM_JOIN_IP_MCAST" | "CM_JOIN_MCAST" => &[(Resource::Multicast, 1)],
                "CM_BIND_IP" | "CM_BIND" | "CM_RESOLVE_IP" | "CM_RESOLVE_ADDR" => {
                    &[(Resource::Ports, 1)]
                }
                "CM_LISTEN" => &[(Resource::Ports, 1), (Resource::Backlog, 9)],
                _ => &[],
            };
            assert_eq!(what.some().collect::<Vec<_>>(), expected, "{cmd}");
        }
        // An id has one port.
        ids.charge(&Amounts::of(Resource::Ports, 1), &none).unwrap();
        ids.bound(7);
        assert_eq!(takes(&copied(cm::BIND, 7, 0), &ids), Amounts::default());
        assert_eq!(takes(&copied(cm::LISTEN, 7, 0), &ids), Amounts::of(Resource::Backlog, 128));
    }

    #[test]
    fn a_backlog_is_cut_to_what_the_tenant_has_left() {
        let ledger = Arc::new(Ledger::default());
        let mut ids = CmAccount::new(&ledger);
        let none = |_| None;
        for id in [7, 8, 9] {
            ids.charge(&Amounts::of(Resource::CmIds, 1), &none).unwrap();
            ids.made(id);
        }
        let bounds = |resource| match resource {
            Resource::Backlog => Some(200),
            Resource::Ports => Some(2),
            _ => None,
        };
        let mut listen = |id, backlog, bounds: Bounds<'_>| {
            let mut copied = copied(cm::LISTEN, id, backlog);
            let what = charge(&mut ids, &mut copied, bounds)?;
            ids.bound(id);
            ids.listens(id, what.get(Resource::Backlog));
            Ok::<_, OverQuota>((what.get(Resource::Backlog), copied.u32(cm::BACKLOG)))
        };
        // The kernel would take 0 for all that it has.
        assert_eq!(listen(7, 0, &bounds).unwrap(), (128, 128));
        assert_eq!(listen(8, u32::MAX, &bounds).unwrap(), (72, 72));
        // Nothing is left, neither of ports nor of the backlog.
        let refused = listen(9, 1, &bounds).unwrap_err().refusal("CM_LISTEN");
        assert_eq!(refused.errno, Errno::EAGAIN);
        assert!(refused.line.contains("quota.ports = 2"), "{}", refused.line);
        let only = |resource| bounds(resource).filter(|_| resource == Resource::Backlog);
        let refused = listen(9, 1, &only).unwrap_err().refusal("CM_LISTEN");
        assert!(refused.line.contains("quota.backlog = 200"), "{}", refused.line);
        // Without a bound the number stays the program's.
        assert_eq!(listen(9, 0, &none).unwrap(), (128, 0));
        ids.destroyed(7);
        ids.destroyed(8);
        let held = [Resource::Ports, Resource::Backlog].map(|resource| ledger.held().get(resource));
        assert_eq!(held, [1, 128]);
    }
}
