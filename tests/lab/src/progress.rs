//! Progress messages of long work.

use std::time::Instant;

use crate::elapsed::seconds;

/// Tells people what the lab is doing, on stderr, with the time since the start.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    silent: bool,
}

impl Progress {
    /// Talks on stderr.
    pub fn stderr() -> Self {
        Self { start: Instant::now(), silent: false }
    }

    /// Says nothing.
    pub fn silent() -> Self {
        Self { start: Instant::now(), silent: true }
    }

    /// Says one line.
    pub fn say(&self, what: &str) {
        if !self.silent {
            eprintln!("lab [{:>5}] {what}", seconds(self.start.elapsed()));
        }
    }
}
