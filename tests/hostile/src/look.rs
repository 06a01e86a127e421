//! Looks at other processes and at the machine, by `/proc`.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::fs;
use std::fs::DirEntry;
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

/// For how long each thread of these processes ran, and was ready to run without a processor, so far.
pub(crate) fn scheduled(pids: &[i32]) -> HashMap<String, [Duration; 2]> {
    let tasks = |pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |task: DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut times = text.split_whitespace().map(|time| time.parse().map(Duration::from_nanos));
        let (ran, waited) = (times.next()?.ok()?, times.next()?.ok()?);
        Some((task.file_name().into_string().ok()?, [ran, waited]))
    };
    pids.iter().flat_map(tasks).filter_map(of).collect()
}

/// For how long one of these threads had to wait for a processor because of others: all that they ran
/// themselves is taken off, or an attack that keeps them busy would be forgiven.
pub(crate) fn starved(
    before: &HashMap<String, [Duration; 2]>,
    after: &HashMap<String, [Duration; 2]>,
) -> Duration {
    let since = |(thread, times): (&String, &[Duration; 2])| {
        let old = before.get(thread).copied().unwrap_or_default();
        [0, 1].map(|at| times[at].saturating_sub(old[at]))
    };
    let times: Vec<[Duration; 2]> = after.iter().map(since).collect();
    let longest = times.iter().map(|[_, waited]| *waited).max().unwrap_or_default();
    longest.saturating_sub(times.iter().map(|[ran, _]| *ran).sum())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(times: &[[u64; 2]]) -> HashMap<String, [Duration; 2]> {
        let one =
            |(n, times): (usize, &[u64; 2])| (n.to_string(), times.map(Duration::from_millis));
        times.iter().enumerate().map(one).collect()
    }

    #[test]
    fn waiting_for_others_is_forgiven_and_waiting_for_each_other_is_not() {
        let before = threads(&[[40, 900], [5, 0]]);
        let alone = threads(&[[60, 1000], [35, 2000]]);
        assert_eq!(starved(&before, &alone), Duration::from_millis(1950));
        let busy = threads(&[[60, 1000], [3005, 2900]]);
        assert_eq!(starved(&before, &busy), Duration::ZERO);
    }

    #[test]
    fn the_kernel_tells_of_this_thread() {
        let me = std::process::id() as i32;
        if fs::metadata("/proc/self/schedstat").is_err() {
            return println!("SKIPPED: needs a kernel that counts how long threads wait");
        }
        assert!(scheduled(&[me]).contains_key(&me.to_string()));
    }
}
