//! Looks at other processes and at the machine, by `/proc`.

use std::collections::BTreeMap;
use std::fs;

/// A process's resident memory in KiB.
pub(crate) fn resident(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether of the guests those alone are left that nobody can end, at many looks in a row: a guest that the kernel
/// holds in a call of its own, or at its exit (then it has no memory, and so no command line any more), and a process
/// of the supervisor's that reads such a guest's memory for it. One other process may be left, too.
pub(crate) fn only_held(beside: i32) -> impl FnMut() -> bool {
    let mut looks = 0;
    let is_held = |line: &String| {
        line.starts_with("program ") && (line.contains("(D ") || line.ends_with(") "))
            || line.starts_with("verbgate-read (D ")
    };
    move || {
        let mut left = filtered();
        left.remove(&beside);
        looks = if left.is_empty() || !left.values().all(is_held) { 0 } else { looks + 1 };
        looks > 100
    }
}

/// Processes of this world under a seccomp filter: the name, the state and the command line of each.
pub(crate) fn filtered() -> BTreeMap<i32, String> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = pids.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        if !status.lines().any(|line| line == "Seccomp:\t2") {
            return None;
        }
        let state = status.lines().find_map(|line| line.strip_prefix("State:"))?.trim().to_owned();
        if state.starts_with('Z') {
            return None;
        }
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some((pid, format!("{} ({state}) {}", name.trim(), line.trim())))
    });
    found.collect()
}
