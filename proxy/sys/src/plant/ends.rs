//! Ends of guests that were killed while they were traced: whoever traces must take note of them.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use crate::Tgid;
use crate::Tid;
use crate::process;
use crate::ptrace;

/// How long a thread may take to end that was killed, or lost, in the middle of a planting.
const PATIENCE: Duration = Duration::from_secs(2);

/// Threads by way of which planting failed, whose end only their tracer can take note of.
#[derive(Debug, Default)]
pub struct Ends(Mutex<Vec<(Tid, Tgid, Instant)>>);

impl Ends {
    fn lock(&self) -> MutexGuard<'_, Vec<(Tid, Tgid, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called by the thread that plants, when that has failed.
    pub(super) fn expect(&self, tgid: Tgid) {
        // Also of one that was born without our being told, because its maker was killed.
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let mut traced = process::threads(tgid).unwrap_or_default();
        traced.retain(|tid| process::tracer(*tid).is_ok_and(|by| by == me));
        // The first thread is the last to end.
        traced.sort_by_key(|tid| tid.0 == tgid.0);
        let since = Instant::now();
        self.lock().extend(traced.into_iter().map(|tid| (tid, tgid, since)));
    }

    /// Takes note of them. A traced thread keeps its number, and its process's, until that is done.
    pub fn take(&self) {
        self.lock().retain(|(tid, tgid, since)| {
            let ended = ptrace::has_ended(*tid);
            if !ended && since.elapsed() > PATIENCE {
                log::warn!(
                    "process {tgid} was ended: the planting of a stub failed in the middle, and thread {tid} \
                     did not end in {} s",
                    PATIENCE.as_secs()
                );
                let _ = process::kill_traced(*tgid);
            }
            !ended
        });
    }
}
