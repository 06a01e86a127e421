//! Progress of a command on standard error: done, left, bad so far, and the time that is left.

use std::io::IsTerminal as _;
use std::io::Write as _;
use std::time::Duration;
use std::time::Instant;

use verbgate_host::output::say;

/// How often a terminal shows progress, and how often a log gets a line.
const TERMINAL: Duration = Duration::from_millis(500);
const LOG: Duration = Duration::from_secs(30);
/// Whoever is done sooner is not told.
const PATIENCE: Duration = Duration::from_secs(3);

/// The progress of one stage, which one rank shows for all.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    total: usize,
    bad: usize,
    began: Instant,
    said: Instant,
    terminal: bool,
    shown: bool,
    on: bool,
}

impl Progress {
    /// `on`: this rank shows it.
    pub(crate) fn new(what: &'static str, total: usize, on: bool) -> Self {
        let (began, terminal) = (Instant::now(), std::io::stderr().is_terminal());
        Self { what, total, bad: 0, began, said: began, terminal, shown: false, on }
    }

    /// So many are done, and so many of all that has been tried are bad.
    pub(crate) fn step(&mut self, done: usize, bad: usize) {
        self.bad = bad;
        let pause = match (self.terminal, self.shown) {
            (true, true) => TERMINAL,
            (true, false) => PATIENCE,
            (false, _) => LOG,
        };
        if !self.on || self.said.elapsed() < pause {
            return;
        }
        self.said = Instant::now();
        self.shown = true;
        let line = words(self.what, done, self.total, bad, self.began.elapsed());
        if self.terminal {
            // Nobody is left to be told of a standard error that takes nothing.
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        } else {
            say(&line);
        }
    }
}

impl Drop for Progress {
    /// What is printed next begins on a line of its own.
    fn drop(&mut self) {
        if self.shown && self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn words(what: &str, done: usize, total: usize, bad: usize, took: Duration) -> String {
    let left = total.saturating_sub(done);
    let rest = took.as_secs_f64() / done.max(1) as f64 * left as f64;
    let rest = match done {
        0 => String::new(),
        _ => format!(", about {} left", time(rest)),
    };
    format!("{what}: {done} of {total} done, {left} to do, {bad} bad so far{rest}")
}

/// Seconds, as people say them.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_from_what_is_done() {
        let told = |done| words("verify", done, 40, 3, Duration::from_secs(60));
        assert_eq!(told(10), "verify: 10 of 40 done, 30 to do, 3 bad so far, about 3 min left");
        assert_eq!(told(0), "verify: 0 of 40 done, 40 to do, 3 bad so far");
        assert_eq!(time(7200.0), "2.0 h");
    }
}
