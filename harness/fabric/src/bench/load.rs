//! The load of a step: the messages of each sender, and for how long.

use std::time::Duration;

use verbgate_verbs::Transport;

use crate::bench::options::By;
use crate::bench::pace::interval;
use crate::bench::pace::span;
use crate::bench::sender::FLUSH;
use crate::injection::Injection;

/// A load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub by: By,
    pub(crate) transport: Transport,
    pub size: usize,
    pub window: u32,
    /// Queue pairs of each path.
    pub(crate) lanes: usize,
    /// Each has every which of the queue pairs.
    pub(crate) threads: usize,
    /// Completions are waited for.
    pub(crate) events: bool,
    /// Of each queue pair, in Gb/s.
    pub target: Option<f64>,
    pub seconds: f64,
    /// After so long without a completion something is wrong.
    pub(crate) stall: Duration,
    pub(crate) injection: Option<Injection>,
}

impl Load {
    /// From one message to the next, in seconds, at a pace.
    pub(crate) fn interval(&self) -> Option<f64> {
        interval(self.size, self.target)
    }

    /// How long messages are sent, in seconds: at a pace, a whole number of intervals.
    pub(crate) fn span(&self) -> f64 {
        span(self.seconds, self.size, self.target)
    }

    /// The longest that a rank may take, when a peer takes this long until it is ready.
    pub(crate) fn most(&self, patience: Duration) -> Duration {
        patience + self.stall + FLUSH + Duration::from_secs_f64(self.span())
    }
}

#[cfg(test)]
impl Load {
    /// What tests begin with.
    pub(super) fn of_size(size: usize) -> Self {
        Self {
            by: By::Write,
            transport: Transport::Rc,
            size,
            window: 16,
            lanes: 1,
            threads: 1,
            events: false,
            target: None,
            seconds: 0.5,
            stall: Duration::ZERO,
            injection: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_a_whole_number_of_messages_and_not_too_few() {
        let load = |size, target, seconds| Load { target, seconds, ..Load::of_size(size) };
        assert_eq!(load(64, None, 0.5).span(), 0.5);
        // 1,000 bytes at 0.008 Gb/s are one each millisecond.
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(load(1000, Some(0.008), 0.5).span(), 0.5);
        near(load(1000, Some(0.008), 0.0995).span(), 0.1);
        near(load(1000, Some(0.008), 0.001).span(), 0.01);
    }
}
