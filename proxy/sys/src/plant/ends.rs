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
        // Also of one that was born without our being told, because its maker was killed. The first
        // thread is the last to end.
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let traced = process::threads(tgid).unwrap_or_default().into_iter().rev();
        let traced = traced.filter(|tid| process::tracer(*tid).is_ok_and(|by| by == me));
        let since = Instant::now();
        self.lock().extend(traced.map(|tid| (tid, tgid, since)));
    }

    /// Takes note of them. A traced thread keeps its number, and its process's, until that is done.
    pub fn take(&self) {
        self.lock().retain(|(tid, tgid, since)| {
            let ended = ptrace::has_ended(*tid);
            if !ended && since.elapsed() > PATIENCE {
                let _ = process::kill_traced(*tgid);
            }
            !ended
        });
    }
}
