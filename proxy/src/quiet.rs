//! Log lines that a guest can cause: written at most once a second, with the number of lines that were
//! left out.

use std::collections::HashMap;
use std::time::Duration;
use std::time::Instant;

/// The least time between two log lines of one kind.
const INTERVAL: Duration = Duration::from_secs(1);

/// What went unsaid by kind, and when each was last said.
#[derive(Debug, Default)]
pub struct Quiet {
    kinds: HashMap<&'static str, LineKind>,
}

#[derive(Debug, Default)]
struct LineKind {
    unsaid: u64,
    said: Option<Instant>,
}

impl Quiet {
    /// Takes an event; returns how many of its kind went unsaid before when it is to be said now.
    pub fn event(&mut self, kind: &'static str, now: Instant) -> Option<u64> {
        let state = self.kinds.entry(kind).or_default();
        if state.said.is_some_and(|said| now.duration_since(said) < INTERVAL) {
            state.unsaid += 1;
            return None;
        }
        state.said = Some(now);
        Some(std::mem::take(&mut state.unsaid))
    }

    /// Takes an event and writes its line, if it is time for one.
    pub fn warn(&mut self, kind: &'static str, line: impl FnOnce() -> String) {
        self.say(log::Level::Warn, kind, line);
    }

    /// The same for what programs cause in passing: rdma-core finds out what a kernel can do by
    /// making requests that fail.
    pub fn note(&mut self, kind: &'static str, line: impl FnOnce() -> String) {
        self.say(log::Level::Info, kind, line);
    }

    fn say(&mut self, level: log::Level, kind: &'static str, line: impl FnOnce() -> String) {
        if let Some(unsaid) = self.event(kind, Instant::now()) {
            let line = line();
            if unsaid == 0 {
                log::log!(level, kind; "{line}");
            } else {
                log::log!(level, kind, unsaid; "{line} ({unsaid} more since the last such line)");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_with_how_many_went_unsaid() {
        let mut quiet = Quiet::default();
        let start = Instant::now();
        assert_eq!(quiet.event("denied", start), Some(0));
        for _ in 0..999 {
            assert_eq!(quiet.event("denied", start), None);
        }
        assert_eq!(quiet.event("other", start), Some(0));
        assert_eq!(quiet.event("denied", start + INTERVAL), Some(999));
    }
}
