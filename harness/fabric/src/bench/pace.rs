//! Paces: how far apart messages are, and for how long messages are sent.

/// At least so many messages make a pace.
const PACED: f64 = 10.0;

/// From one message to the next, in seconds, for a target in Gb/s.
pub(crate) fn interval(size: usize, target: Option<f64>) -> Option<f64> {
    Some(size as f64 * 8e-9 / target?)
}

/// How long messages of a size are sent for a target in Gb/s, in seconds.
pub(crate) fn span(seconds: f64, size: usize, target: Option<f64>) -> f64 {
    match interval(size, target) {
        Some(interval) => (seconds / interval).ceil().max(PACED) * interval,
        None => seconds,
    }
}
