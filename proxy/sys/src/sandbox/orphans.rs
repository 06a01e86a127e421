//! Orphans: descendants that outlive their parents, which this process adopts and reaps.

use std::fs;
use std::time::Duration;
use std::time::Instant;

use rustix::process::Pid;
use rustix::process::WaitId;
use rustix::process::WaitIdOptions;

use crate::Tgid;
use crate::process;
use crate::process::PidFd;

/// Ancestors looked at to tell whether a signal's sender is a guest; deeper trees are rare, and
/// the cost of missing one is a signal that comes twice.
const MAX_ANCESTORS: usize = 64;

/// How long killed processes may do nothing before they are left to the kernel, which holds them (in
/// a driver, on a dead file server): with [`GRACE`], less than the 5 seconds after which whoever sent
/// SIGTERM may become impatient.
pub(super) const HELD: Duration = Duration::from_millis(500);

/// How often the end of killed processes is looked for.
const REAP_INTERVAL: Duration = Duration::from_millis(1);

/// Children of all threads of this process, adopted ones included.
fn children() -> Vec<i32> {
    children_of(std::process::id().cast_signed())
}

fn children_of(parent: i32) -> Vec<i32> {
    let mut all = Vec::new();
    for thread in process::threads(Tgid(parent)).unwrap_or_default() {
        match fs::read_to_string(format!("/proc/{parent}/task/{thread}/children")) {
            Ok(text) => all.extend(text.split_whitespace().filter_map(|n| n.parse::<i32>().ok())),
            // Without CONFIG_PROC_CHILDREN the whole of /proc has to be asked.
            Err(_) => return children_by_parent(parent),
        }
    }
    all
}

fn children_by_parent(parent: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| stat_field(*pid, 1) == Some(parent))
        .collect()
}

/// Kills what is below a killed process that the kernel holds: its children become nobody else's until it has ended.
fn kill_below(parent: i32, depth: usize) {
    for child in children_of(parent) {
        // The number may be another's by now, which then has another parent.
        if let Ok(one) = PidFd::open(Tgid(child))
            && stat_field(child, 1) == Some(parent)
        {
            let _ = one.signal(libc::SIGKILL);
            if depth > 0 {
                kill_below(child, depth - 1);
            }
        }
    }
}

/// Reaps adopted children that have ended, all but the main process.
pub(super) fn reap_orphans(main: Pid) {
    for pid in children().into_iter().filter_map(Pid::from_raw).filter(|pid| *pid != main) {
        reap_if_ended(pid);
    }
}

fn reap_if_ended(pid: Pid) {
    // Asked first, because waiting for a live one could take a stop from the tracing thread.
    if is_zombie(pid.as_raw_nonzero().get()) {
        // The supervisor's readers send no signal at their end (`resident`); they are reaped by it,
        // and here when it is about to end.
        let all = WaitIdOptions::from_bits_retain(libc::__WALL.cast_unsigned());
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | all;
        let _ = rustix::process::waitid(WaitId::Pid(pid), options);
    }
}

/// Kills what the main process left behind, as a container's processes are when its init exits;
/// returns how many could not be ended: the kernel holds them, or they are not through in time.
///
/// Children are killed by number: theirs cannot be reused before they are reaped here. Their own children become this
/// process's then, so that the loop comes to all of them; those of one that is held are killed by their pidfds.
#[must_use]
pub fn end_descendants(patience: Duration) -> usize {
    let deadline = Instant::now() + patience;
    // When one of them was last seen to do something, or to have ended.
    let mut busy = (Instant::now(), usize::MAX);
    loop {
        let left = children();
        if left.len() != busy.1 || left.iter().any(|pid| runs(*pid)) {
            busy = (Instant::now(), left.len());
        }
        if left.is_empty() || Instant::now() >= deadline || busy.0.elapsed() >= HELD {
            return left.len();
        }
        let are_held = busy.0.elapsed() >= HELD / 5;
        for pid in left.into_iter().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            if are_held {
                kill_below(pid.as_raw_nonzero().get(), MAX_ANCESTORS);
            }
            reap_if_ended(pid);
        }
        if !children().is_empty() {
            std::thread::sleep(REAP_INTERVAL);
        }
    }
}

/// The nth number after the state in `/proc/PID/stat`: 1 is the parent, 3 the session, 4 the
/// terminal; proc_pid_stat(5).
pub(super) fn stat_field(pid: i32, nth: usize) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    stat_fields(&stat)?.split(' ').nth(nth)?.parse().ok()
}

pub(super) fn stat_fields(stat: &[u8]) -> Option<&str> {
    // The name may hold anything, a parenthesis included; the last one ends it.
    let end = stat.iter().rposition(|b| *b == b')')?;
    std::str::from_utf8(stat.get(end + 2..)?).ok()
}

pub(super) fn is_zombie(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat_fields(&stat).is_some_and(|fields| fields.starts_with('Z')))
}

pub(super) fn is_descendant(mut pid: i32) -> bool {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    for _ in 0..MAX_ANCESTORS {
        match stat_field(pid, 1) {
            Some(parent) if parent == me => return true,
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// Whether a thread of a process is at work: one that gives back much memory at its end takes long,
/// but is not held.
pub(super) fn runs(pid: i32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.flatten().any(|task| {
        fs::read(task.path().join("stat"))
            .is_ok_and(|stat| stat_fields(&stat).is_some_and(|fields| fields.starts_with('R')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let fields = stat_fields(b"12 (a) Z) (b) S 7 12 12 34816 -1").unwrap();
        assert_eq!(fields.split(' ').next(), Some("S"));
        assert_eq!(fields.split(' ').nth(1), Some("7"));
        assert_eq!(fields.split(' ').nth(4), Some("34816"));
    }

    #[test]
    fn init_is_no_descendant() {
        assert!(!is_descendant(1));
        assert!(!is_descendant(0));
    }
}
