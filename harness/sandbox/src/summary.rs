//! The summary of a trace: how often each request was made, and how long the supervisor had each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::Value;
use serde_json::json;
use verbgate_abi::Errno;
use verbgate_abi::Request;
use verbgate_abi::ids;
use verbgate_proxy::observe;
use verbgate_proxy::observe::CmDone;
use verbgate_proxy::observe::Done;
use verbgate_proxy::observe::Observer;
use verbgate_proxy::observe::Verdict;
use verbgate_sys::GuestFd;
use verbgate_sys::Tid;

/// `IBV_QPS_RTS`: a queue pair that is ready to send.
const RTS: u64 = 3;

/// What became of the requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    count: u64,
    errors: u64,
    refused: u64,
    took: Duration,
    longest: Duration,
}

/// Sums of a trace, shared with the observer that adds to these sums.
#[derive(Clone, Debug)]
pub struct Summary(Arc<Mutex<Sums>>);

#[derive(Clone, Debug)]
struct Sums {
    begun: Instant,
    kinds: BTreeMap<String, Kind>,
    first_open: Option<Duration>,
    first_ready: Option<Duration>,
    last: Option<Duration>,
}

impl Default for Summary {
    fn default() -> Self {
        let kinds = BTreeMap::new();
        let begun = Instant::now();
        let sums = Sums { begun, kinds, first_open: None, first_ready: None, last: None };
        Self(Arc::new(Mutex::new(sums)))
    }
}

impl Summary {
    fn add(&self, name: &str, took: Duration, end: Result<(), Errno>, refused: bool) {
        let mut sums = self.0.lock();
        sums.last = Some(sums.begun.elapsed());
        let kind = sums.kinds.entry(name.to_owned()).or_default();
        kind.count += 1;
        kind.errors += u64::from(end.is_err() && !refused);
        kind.refused += u64::from(refused);
        kind.took += took;
        kind.longest = kind.longest.max(took);
    }

    /// The sums as JSON; times are in seconds, since the start where these are moments.
    #[must_use]
    pub fn json(&self) -> Value {
        let sums = self.0.lock();
        let kinds = sums.kinds.iter().map(|(name, kind)| {
            json!({"request": name, "count": kind.count, "errors": kind.errors,
                   "refused": kind.refused, "seconds": kind.took.as_secs_f64(),
                   "longest": kind.longest.as_secs_f64()})
        });
        let at = |moment: Option<Duration>| moment.map(|moment| moment.as_secs_f64());
        json!({"requests": kinds.collect::<Vec<_>>(), "first_open": at(sums.first_open),
               "first_ready_to_send": at(sums.first_ready), "last": at(sums.last)})
    }
}

impl Observer for Summary {
    fn opened(&mut self, _: Tid, _: &str, result: Result<GuestFd, Errno>) {
        self.add("open", Duration::ZERO, result.map(drop), false);
        let mut sums = self.0.lock();
        let now = sums.begun.elapsed();
        sums.first_open.get_or_insert(now);
    }

    fn done(&mut self, done: &Done<'_>) {
        let name = done.request.map_or("?", observe::name);
        let (end, refused) = match done.verdict {
            Verdict::Executed(result) => (if result < 0 { Err(Errno::EIO) } else { Ok(()) }, false),
            Verdict::Refused(_, errno) => (Err(errno), true),
        };
        self.add(name, done.elapsed, end, refused);
        if end.is_ok() && done.request.is_some_and(readies) {
            let mut sums = self.0.lock();
            let now = sums.begun.elapsed();
            sums.first_ready.get_or_insert(now);
        }
    }

    fn cm(&mut self, done: &CmDone) {
        let name = format!("rdma_cm: {}", done.name);
        let refused = matches!(done.verdict, Verdict::Refused(..));
        self.add(&name, done.elapsed, done.errno().map_or(Ok(()), Err), refused);
    }

    fn looks_at_objects(&self) -> bool {
        false
    }
}

/// Whether a request makes a queue pair ready to send.
fn readies(request: &Request) -> bool {
    let command = request.legacy().map(|legacy| legacy.spec.write_cmd);
    let modifies = [ids::IB_USER_VERBS_CMD_MODIFY_QP, ids::IB_USER_VERBS_EX_CMD_MODIFY_QP];
    let is_one = command.is_some_and(|command| modifies.contains(&command));
    let state = request.legacy_field("qp_state").or_else(|| request.legacy_field("base.qp_state"));
    is_one && state == Some(RTS)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = self.0.lock();
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        writeln!(
            f,
            "{:<32} {:>8} {:>8} {:>8} {:>12} {:>12} {:>12}",
            "request", "count", "errors", "refused", "ms in all", "us each", "us longest"
        )?;
        let mut kinds: Vec<(&String, &Kind)> = sums.kinds.iter().collect();
        kinds.sort_by_key(|(_, kind)| std::cmp::Reverse((kind.took, kind.count)));
        for (name, kind) in kinds {
            let each =
                ms(kind.took) * 1000.0 / f64::from(u32::try_from(kind.count).unwrap_or(u32::MAX));
            writeln!(
                f,
                "{name:<32} {:>8} {:>8} {:>8} {:>12.3} {each:>12.1} {:>12.1}",
                kind.count,
                kind.errors,
                kind.refused,
                ms(kind.took),
                ms(kind.longest) * 1000.0
            )?;
        }
        for (what, moment) in [
            ("first device opened", sums.first_open),
            ("first queue pair ready to send", sums.first_ready),
            ("last request", sums.last),
        ] {
            if let Some(moment) = moment {
                writeln!(f, "{what}: {:.1} ms after the start", ms(moment))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_by_request_and_the_longest_first() {
        let summary = Summary::default();
        let mut observer = summary.clone();
        observer.opened(Tid(1), "uverbs0", Ok(GuestFd(3)));
        let mut cm = |name, result, micros| {
            let (verdict, elapsed) = (Verdict::Executed(result), Duration::from_micros(micros));
            observer.cm(&CmDone { tid: Tid(1), name, id: Some(1), peer: None, verdict, elapsed });
        };
        cm("CONNECT", 0, 10);
        cm("CONNECT", 0, 30);
        cm("LISTEN", -22, 5);
        let text = summary.to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..6], ["rdma_cm:", "CONNECT", "2", "0", "0", "0.040"]);
        assert_eq!(lines[1][6..], ["20.0", "30.0"]);
        assert_eq!(lines[2][..4], ["rdma_cm:", "LISTEN", "1", "1"]);
        assert_eq!(lines[3][..2], ["open", "1"]);
        assert!(text.contains("first device opened: "), "{text}");
        let json = summary.json();
        assert_eq!(json["requests"].as_array().unwrap().len(), 3);
        assert!(json["first_ready_to_send"].is_null() && json["last"].as_f64().unwrap() >= 0.0);
    }
}
