//! Shares of what waits for guests: a process has a few waits at a time, a user some more, and all have as many as there
//! are helpers at most. Whose share is used up waits until one of its own waits is over: its call is put aside, and
//! nobody else waits.
//!
//! A helper that does not end though it was killed holds its share for as long as it is there.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::Tgid;
use crate::Tid;
use crate::caller::Caller;
use crate::process;
use crate::seccomp::NotifId;

/// Waits at a time of one process, of one user, and of all.
const OF_PROCESS: usize = 2;
const OF_USER: usize = 23;
const OF_ALL: usize = 64;

/// Waits that are under way.
static WAITS: Mutex<Vec<Who>> = Mutex::new(Vec::new());

thread_local! {
    /// The call of which something could not be waited for, and whose share is used up.
    static ASIDE: Cell<Option<(NotifId, Who)>> = const { Cell::new(None) };
}

/// The owner of a share: a process, by its number and by when it was started, which no later process of that number has
/// in common; and the process's user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    process: (Tgid, u64),
    /// The effective user of the process, or root where the process is not dumpable: proc(5).
    user: u32,
}

impl Who {
    /// Whether both are one process.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.process == other.process
    }

    /// Whether both processes are one user's.
    #[must_use]
    pub fn is_of_user_of(&self, other: &Self) -> bool {
        self.user == other.user
    }
}

fn waits() -> MutexGuard<'static, Vec<Who>> {
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A wait for a guest, until it is dropped.
pub(crate) struct Share(Who);

impl Caller<'_> {
    /// The owner of the share that the caller's waits count in.
    ///
    /// # Errors
    /// `ESRCH`: the caller is gone.
    pub fn share_owner(self) -> io::Result<Who> {
        let found = who(self.tid())?;
        self.believed(found)
    }
}

fn who(tid: Tid) -> io::Result<Who> {
    let user = fs::metadata(format!("/proc/{tid}"))?.uid();
    let process = process::tgid(tid)?;
    Ok(Who { process: (process, process::started(Tid(process.0))?), user })
}

fn has_room(waits: &[Who], who: Who) -> bool {
    let of = |is: &dyn Fn(&&Who) -> bool| waits.iter().filter(|one| is(one)).count();
    waits.len() < OF_ALL
        && of(&|one| one.process == who.process) < OF_PROCESS
        && of(&|one| one.user == who.user) < OF_USER
}

impl Share {
    /// A wait for the caller of a call, which is put aside if there is no room: `EBUSY`.
    ///
    /// # Errors
    /// `EBUSY`; `ESRCH`: the caller is gone.
    pub(crate) fn of(caller: Caller<'_>, call: NotifId) -> io::Result<Self> {
        Self::take(caller.share_owner()?, call)
    }

    fn take(who: Who, call: NotifId) -> io::Result<Self> {
        let mut waits = waits();
        if has_room(&waits, who) {
            waits.push(who);
            return Ok(Self(who));
        }
        ASIDE.set(Some((call, who)));
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut waits = waits();
        if let Some(at) = waits.iter().position(|one| *one == self.0) {
            waits.swap_remove(at);
        }
    }
}

/// The owner of the share that was used up when the calling thread was to wait for something of this call, if so. Then what
/// the thread has found out of the call means nothing, and the call is to be tried again, when there is room ([`Room`]).
pub fn take_aside(call: NotifId) -> Option<Who> {
    let (_, who) = ASIDE.get().filter(|(aside, _)| *aside == call)?;
    ASIDE.set(None);
    Some(who)
}

/// A copy of the waits that are under way, to find room in.
#[derive(Debug)]
pub struct Room(Vec<Who>);

impl Room {
    /// The room as it is now.
    #[must_use]
    pub fn now() -> Self {
        Self(waits().clone())
    }

    /// Counts one that waits without a share.
    pub fn add(&mut self, who: Who) {
        self.0.push(who);
    }

    /// Finds room for one more, who is counted from now on.
    pub fn take(&mut self, who: Who) -> bool {
        let has = has_room(&self.0, who);
        self.0.extend(has.then_some(who));
        has
    }
}

#[cfg(test)]
impl Share {
    /// A wait for this process itself.
    pub(crate) fn own() -> std::sync::Arc<Self> {
        let me = who(Tid(std::process::id().cast_signed()));
        std::sync::Arc::new(Self::take(me.unwrap(), NotifId::default()).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_a_user_have_shares() {
        let call = NotifId::default();
        let of = |tid: u32| who(Tid(tid.cast_signed()));
        let me = of(std::process::id()).unwrap();
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let its = of(other.id()).unwrap();
        let mut own: Vec<Share> = std::iter::from_fn(|| Share::take(me, call).ok()).collect();
        // Other tests wait, too.
        assert!((1..=OF_PROCESS).contains(&own.len()));
        assert_eq!(Share::take(me, call).err().and_then(|e| e.raw_os_error()), Some(libc::EBUSY));
        let who = take_aside(call).unwrap();
        assert!(take_aside(call).is_none() && !Room::now().take(who));
        own.push(Share::take(its, call).unwrap());
        own.clear();
        Share::take(me, call).unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(of(i32::MAX.cast_unsigned()).is_err());
        // The number is another process's by now.
        let heir = Who { process: (its.process.0, its.process.1 + 1), ..its };
        assert!(!heir.is(&its));
    }
}
