//! The memory of supervisors: without huge pages (one would cost as much as a hundred guests), and
//! kept in memory. Guests keep their own settings.

use std::fs;

use crate::common;
use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::output;
use crate::common::run_sh;
use crate::common::stdout;

/// Whether a process may have huge pages: `1`, or `0` after PR_SET_THP_DISABLE.
fn huge_pages(pid: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    value.expect("Linux 5.0 or newer").trim().to_owned()
}

#[test]
fn the_supervisor_of_run_has_none_and_its_guest_has_what_the_caller_has() {
    let mut guest =
        run_sh("grep THP_enabled /proc/self/status; grep THP_enabled /proc/$PPID/status");
    let text = stdout(&output(&mut guest));
    let values: Vec<&str> =
        text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(values, [&*huge_pages("self"), "0"], "guest, supervisor: {text}");
}

#[test]
fn the_supervisor_of_run_stays_in_memory() {
    if !common::is_root() {
        eprintln!("SKIPPED: locking memory needs root");
        return;
    }
    let text = stdout(&output(&mut run_sh("grep VmLck /proc/self/status /proc/$PPID/status")));
    let kib: Vec<u64> =
        text.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    assert_eq!((kib.len(), kib[0]), (2, 0), "guest, supervisor: {text}");
    assert!(kib[1] > 1000, "guest, supervisor: {text}");
}

#[test]
fn the_supervisor_of_a_container_has_none_and_the_container_has_what_the_caller_has() {
    for runtime in runtimes() {
        let bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        bundle.start();
        let supervisor = huge_pages(&bundle.ps()[0]["supervisor"].to_string());
        let inside = bundle.verb("exec", &["grep", "THP_enabled", "/proc/1/status"]);
        bundle.delete();
        assert_eq!(supervisor, "0", "{}", runtime.name);
        let inside = stdout(&inside);
        assert_eq!(inside.split_whitespace().nth(1), Some(&*huge_pages("self")), "{inside}");
        bundle.assert_nothing_left();
    }
}
