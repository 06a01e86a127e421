//! Looks at other processes and at the machine, by `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

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
        looks > 20
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

/// The guests below a supervisor of this world.
pub(crate) fn guests_of(supervisor: i32) -> Vec<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:\t"))?.parse().ok()
    };
    let is_below = |pid: &i32| {
        std::iter::successors(Some(*pid), |pid| parent(*pid)).any(|above| above == supervisor)
    };
    let guests = filtered().into_iter().filter(|(_, line)| !line.starts_with("verbgate"));
    guests.map(|(pid, _)| pid).filter(is_below).collect()
}

/// The processor time of a process, of all its threads and of the children that it has waited for.
pub(crate) fn used(pid: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // utime, stime, cutime and cstime, proc_pid_stat(5), in ticks of 10 ms.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let ticks = fields.map(|field| field.parse::<u64>().unwrap_or(0)).sum::<u64>();
    Some(Duration::from_millis(10 * ticks))
}

/// The processor time of all attackers below a supervisor of this world.
pub(crate) fn used_by_attackers(supervisor: i32) -> Duration {
    let attacks = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"attacker")
    };
    guests_of(supervisor).into_iter().filter(attacks).filter_map(used).sum()
}

/// Whether a process lives, and no SIGKILL waits for it: a frozen one keeps it waiting.
pub(crate) fn is_alive(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pends = |line: &str| {
        let signals = ["SigPnd:\t", "ShdPnd:\t"].iter().find_map(|name| line.strip_prefix(name));
        let signals = signals.and_then(|mask| u64::from_str_radix(mask, 16).ok());
        signals.is_some_and(|mask| mask & 1 << (libc::SIGKILL - 1) != 0)
    };
    status.lines().any(|line| line.starts_with("State:") && !line.contains(['Z', 'X']))
        && !status.lines().any(pends)
}
