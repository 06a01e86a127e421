//! Looks at other processes and at the machine, by `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// By how much longer something may take at most where programs wait for a processor.
const MOST_STRETCH: f64 = 4.0;

/// A limit on a machine as busy as this one: programs that are ready to run were seen to get no processor
/// for four seconds, in a control group beside a build that yields to all others, and nobody's guest had
/// made them wait.
pub(crate) fn unhurried(limit: Duration) -> Duration {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let processors = u32::try_from(processors).map_or(1.0, f64::from);
    limit.mul_f64((load / processors).ceil().clamp(1.0, MOST_STRETCH))
}

/// A process's resident memory in KiB.
pub(crate) fn resident(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How many pages of a process had to be fetched from a disk (`majflt`, proc_pid_stat(5)): what makes
/// a supervisor slow on a machine that is short of memory, and is no attacker's doing.
pub(crate) fn fetched(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(9)?.parse().ok()
}

/// Parts those that nobody can end from the others: a guest that the kernel holds in a call of its
/// own, or at its exit (then it has no memory, and so no command line any more), and a process of the
/// supervisor's that reads such a guest's memory for it.
pub(crate) fn in_the_kernel(lines: BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    lines.into_iter().partition(|line| {
        line.contains(" program ") && (line.contains("(D ") || line.ends_with(") "))
            || line.contains(" verbgate-read (D ")
    })
}

/// Processes of this world under a seccomp filter.
pub(crate) fn filtered() -> BTreeSet<String> {
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
        Some(format!("{pid} {} ({state}) {}", name.trim(), line.trim()))
    });
    found.collect()
}
