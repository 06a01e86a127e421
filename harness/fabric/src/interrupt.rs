//! Ctrl-C: the first one ends the work in order and shows the results so far; a second one ends
//! everything at once.

use std::sync::OnceLock;
use std::time::Duration;
use std::time::Instant;

use verbgate_host::signals::Signals;

/// How long the others may take to end, too.
pub(crate) const FAREWELL: Duration = Duration::from_secs(10);

/// Whether this process has been told to end.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    /// None: nothing interrupts.
    signals: Option<Signals>,
    since: OnceLock<Instant>,
}

impl Interrupt {
    /// By SIGINT, SIGTERM and SIGHUP, in this thread and those that it starts.
    pub(crate) fn by_signals() -> Self {
        Self { signals: Some(Signals::hold()), since: OnceLock::new() }
    }

    pub(crate) fn has_come(&self) -> bool {
        self.since().is_some()
    }

    /// Since when.
    pub(crate) fn since(&self) -> Option<Instant> {
        if self.since.get().is_none()
            && let Some(signals) = self.signals.as_ref().filter(|signals| signals.have_come())
        {
            signals.release();
            return Some(*self.since.get_or_init(Instant::now));
        }
        self.since.get().copied()
    }
}

#[cfg(test)]
impl Interrupt {
    /// One that has come.
    pub(crate) fn now() -> Self {
        Self { signals: None, since: OnceLock::from(Instant::now()) }
    }
}
