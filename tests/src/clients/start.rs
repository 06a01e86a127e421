//! The census of a client: requests by method, traps, files of `/sys`, and where its start-up goes, as
//! `verbgate trace --summary` tells of each of its sandboxes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Result;
use serde::Deserialize;

use crate::table::Table;

/// Methods of a client that are shown, the most frequent first.
const SHOWN: usize = 10;

/// What a trace says of one sandbox.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Traced {
    requests: Vec<Method>,
    /// Seconds from the start.
    first_open: Option<f64>,
    first_ready_to_send: Option<f64>,
    last: Option<f64>,
    stubs: u64,
    notifications: u64,
    sysfs_files: u64,
}

/// The requests of one kind.
#[derive(Clone, Debug, Deserialize)]
struct Method {
    request: String,
    count: u64,
    /// That the supervisor had these requests, in all.
    seconds: f64,
}

impl Traced {
    /// Reads one.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the trace {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is no summary of a trace: {text}", path.display()))
    }
}

/// The census of all clients.
#[derive(Debug)]
pub(super) struct Starts {
    starts: Table,
    methods: Table,
}

impl Default for Starts {
    fn default() -> Self {
        let starts = Table::new(&[
            "census, both ends together",
            "traps",
            "requests",
            "in them, ms",
            "files of /sys",
            "stubs",
            "device open, ms",
            "queue pair ready, ms",
            "last request, ms",
        ]);
        let methods = Table::new(&["most frequent requests", "", "times", "ms in all", "us each"]);
        Self { starts, methods }
    }
}

impl Starts {
    /// Adds a client: counts are sums of its ends, moments those of the end that came last.
    pub(super) fn add(&mut self, client: &str, ends: &[Traced]) {
        let sum = |of: fn(&Traced) -> u64| ends.iter().map(of).sum::<u64>();
        let ms = |seconds: f64| format!("{:.0}", seconds * 1e3);
        let latest = |of: fn(&Traced) -> Option<f64>| {
            let moments = ends.iter().filter_map(of);
            moments.reduce(f64::max).map_or_else(|| "-".to_owned(), ms)
        };
        let mut methods: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
        for method in ends.iter().flat_map(|end| &end.requests) {
            let (count, seconds) = methods.entry(&method.request).or_default();
            *count += method.count;
            *seconds += method.seconds;
        }
        let requests: u64 = methods.values().map(|(count, _)| count).sum();
        let within: f64 = methods.values().map(|(_, seconds)| seconds).sum();
        self.starts.row(&[
            client.to_owned(),
            sum(|end| end.notifications).to_string(),
            requests.to_string(),
            ms(within),
            sum(|end| end.sysfs_files).to_string(),
            sum(|end| end.stubs).to_string(),
            latest(|end| end.first_open),
            latest(|end| end.first_ready_to_send),
            latest(|end| end.last),
        ]);
        let mut methods: Vec<_> = methods.into_iter().collect();
        methods.sort_by_key(|(_, (count, _))| Reverse(*count));
        for (name, (count, seconds)) in methods.into_iter().take(SHOWN) {
            let times = u32::try_from(count).unwrap_or(u32::MAX);
            self.methods.row(&[
                client.to_owned(),
                name.to_owned(),
                count.to_string(),
                format!("{:.1}", seconds * 1e3),
                format!("{:.0}", seconds * 1e6 / f64::from(times.max(1))),
            ]);
        }
    }
}

impl fmt::Display for Starts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.starts, self.methods)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_added_up_and_the_most_frequent_is_first() {
        let end = |ready: f64| -> Traced {
            let text = format!(
                r#"{{"requests": [{{"request": "open", "count": 1, "seconds": 0.001}},
                                  {{"request": "POST_SEND", "count": 20, "seconds": 0.004}}],
                     "first_open": 0.25, "first_ready_to_send": {ready}, "last": null,
                     "stubs": 1, "notifications": 30, "sysfs_files": 7}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let mut census = Starts::default();
        census.add("some", &[end(0.5), end(0.75)]);
        let text = census.to_string();
        let words: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["some", "60", "42", "10", "14", "2", "250", "750", "-"]);
        assert_eq!(words[4], ["some", "POST_SEND", "40", "8.0", "200"]);
        assert_eq!(words[5][..3], ["some", "open", "2"]);
    }
}
