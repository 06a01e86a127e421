//! How much memory the processes of a container may lock, and so register (`RLIMIT_MEMLOCK`), where the
//! tenant's policy says so. The runtime has made the process already, and perhaps let it go on: the
//! limit is raised there, and in what the process has started since.

use std::collections::VecDeque;
use std::fs;
use std::io;

use rustix::process::Pid;
use rustix::process::Resource;
use rustix::process::Rlimit;
use rustix::process::prlimit;
use verbgate_sys::Tgid;
use verbgate_sys::process::PidFd;

/// The most looks at a process. A family that goes on forking has no end; a container that has just begun is
/// small.
const LOOKS: usize = 512;

/// Lets a process and its descendants lock so many bytes. They may end meanwhile.
///
/// # Errors
/// prlimit(2): `EPERM` without CAP_SYS_RESOURCE. `EAGAIN`: more processes than are looked at, of which those
/// that came first have the limit.
pub(super) fn set(first: Tgid, bytes: u64) -> io::Result<()> {
    let mut looks = 0;
    loop {
        // A child inherits the limit of its parent at that time, so a round finds only children of parents
        // that were still to come in the round before.
        let mut changed = false;
        let mut family = VecDeque::from([first]);
        while let Some(process) = family.pop_front() {
            looks += 1;
            if looks > LOOKS {
                return Err(rustix::io::Errno::AGAIN.into());
            }
            changed |= set_one(process, bytes)?;
            // After the limit: who is forked from here on has it.
            family.extend(children(process));
        }
        if !changed {
            return Ok(());
        }
    }
}

/// Whether the limit had been another.
fn set_one(process: Tgid, bytes: u64) -> io::Result<bool> {
    let Some(pid) = Pid::from_raw(process.0) else { return Ok(false) };
    // prlimit(2) takes a number alone. The number is held against a descriptor: of a process that lives
    // at the second look, the number was nobody else's.
    let Ok(held) = PidFd::open(process) else { return Ok(false) };
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    match prlimit(Some(pid), Resource::Memlock, limit) {
        Ok(before) if held.has_ended() => {
            // Whoever has the number by now keeps the old limit.
            let _ = prlimit(Some(pid), Resource::Memlock, before);
            Ok(false)
        }
        Ok(before) => Ok(before != limit),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// `/proc/PID/task/TID/children`, proc_pid_children(5).
fn children(of: Tgid) -> Vec<Tgid> {
    let threads = fs::read_dir(format!("/proc/{}/task", of.0)).into_iter().flatten().flatten();
    let texts =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = |text: String| -> Vec<Tgid> {
        text.split_whitespace().filter_map(|number| number.parse().ok().map(Tgid)).collect()
    };
    texts.flat_map(numbers).collect()
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::io::BufReader;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::process::Stdio;

    use super::*;

    const WANTED: u64 = 4096;

    /// A shell that has started a shell that has started a program.
    #[test]
    fn a_family_is_bounded_with_what_it_has_started() {
        let script = "sh -c 'sleep 600 & echo $!; wait' & echo $!; wait";
        let mut first =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
        let mut number = || lines.next().unwrap().unwrap().parse::<u32>().unwrap();
        let family = [first.id(), number(), number()];
        set(Tgid(first.id().cast_signed()), WANTED).unwrap();
        let limits = family.map(|pid| fs::read_to_string(format!("/proc/{pid}/limits")).unwrap());
        for pid in family {
            Command::new("kill").arg(pid.to_string()).status().unwrap();
        }
        first.wait().unwrap();
        for limit in limits {
            let line = limit.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words.get(3..5), Some(&["4096", "4096"][..]), "{line}");
        }
    }

    /// A family without an end costs the agent some looks, and not for ever.
    #[test]
    fn a_family_that_is_too_large_is_let_be() {
        let script = "i=0; while [ $i -lt 600 ]; do sleep 600 & i=$((i+1)); done; echo all; wait";
        let mut first = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        BufReader::new(first.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let ended = set(Tgid(first.id().cast_signed()), WANTED);
        Command::new("kill").args(["-KILL", "--", &format!("-{}", first.id())]).status().unwrap();
        first.wait().unwrap();
        let again = rustix::io::Errno::AGAIN.raw_os_error();
        assert_eq!(ended.unwrap_err().raw_os_error(), Some(again));
    }

    #[test]
    fn a_process_that_has_ended_is_no_error() {
        let mut ended = Command::new("true").spawn().unwrap();
        let pid = Tgid(ended.id().cast_signed());
        ended.wait().unwrap();
        set(pid, WANTED).unwrap();
    }
}
