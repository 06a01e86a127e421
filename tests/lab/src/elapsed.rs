//! Durations for people.

use std::time::Duration;

/// `12s`, or `3m07s`.
pub(crate) fn seconds(d: Duration) -> String {
    let all = d.as_secs();
    let (minutes, seconds) = (all / 60, all % 60);
    if minutes == 0 { format!("{seconds}s") } else { format!("{minutes}m{seconds:02}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_well() {
        assert_eq!(seconds(Duration::from_millis(12_900)), "12s");
        assert_eq!(seconds(Duration::from_secs(187)), "3m07s");
    }
}
