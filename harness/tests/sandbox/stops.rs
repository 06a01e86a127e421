//! A guest that uses RDMA is stopped, frozen, dumped and debugged as any other process is, while it idles and while its
//! threads make requests; and goes on afterwards.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::thread::CpuSet;
use rustix::thread::sched_getaffinity;
use rustix::thread::sched_setaffinity;

use crate::common::guest::DEVICE;
use crate::common::guest::Talk;
use verbgate_wait::until;

/// A guest with so many threads, which pause for so many microseconds after each request.
struct Streams {
    guest: Talk,
    pid: String,
}

impl Streams {
    fn start(threads: &str, pause: &str) -> Self {
        let guest = Talk::with_guest("/dev/null", &["streams", DEVICE, threads, pause]);
        let pid = guest.line();
        let mut streams = Self { guest, pid };
        // A stub for each thread that asks at the same time: none is made any more.
        let (mut known, mut same) = (0, 0);
        until("all stubs", || {
            streams.goes_on();
            let threads = states(&streams.pid).len();
            same = if threads == std::mem::replace(&mut known, threads) { same + 1 } else { 0 };
            same == 25
        });
        streams
    }

    /// Requests are made, and all of them reach the device.
    fn goes_on(&mut self) {
        self.guest.ask("go");
        until("a request", || {
            let told = self.guest.ask("go");
            assert!(
                told == "{}" || told.starts_with("{\"ENOTTY\": ") && !told.contains(','),
                "{told}"
            );
            told != "{}"
        });
    }
}

/// Threads and pauses. A guest with a pause of 100 ms has a stub that idles.
const STREAMS: [(&str, &str); 4] = [("1", "100000"), ("3", "0"), ("16", "0"), ("200", "2000")];

#[test]
fn debuggers_reach_a_guest_and_let_go_of_it() {
    let core = tempfile::tempdir().unwrap();
    let core = core.path().join("core").display().to_string();
    for (threads, pause) in STREAMS {
        let mut streams = Streams::start(threads, pause);
        let pid = streams.pid.clone();
        let gdb = ["gdb", "-p", &pid, "-batch", "-ex", "thread apply all bt 1"];
        let strace =
            ["timeout", "-s", "INT", "1", "strace", "-qq", "-f", "-o", "/dev/null", "-p", &pid];
        for tool in [&gdb[..], &["gcore", "-o", &core, &pid], &strace] {
            let name =
                tool.iter().find(|word| !["timeout", "-s", "INT", "1"].contains(word)).unwrap();
            if Command::new("which").arg(name).output().is_ok_and(|found| !found.status.success()) {
                eprintln!("SKIPPED: {name} is not installed");
                continue;
            }
            let output = Command::new(tool[0]).args(&tool[1..]).output().unwrap();
            let ended = output.status.success() || output.status.code() == Some(124);
            assert!(ended, "{threads} threads: {tool:?}: {output:?}");
            streams.goes_on();
        }
    }
}

/// The states of all threads, as `/proc/PID/task/TID/stat` has them.
fn states(pid: &str) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next()).collect()
}

#[test]
fn a_guest_that_makes_requests_stops() {
    for (threads, pause) in STREAMS {
        let mut streams = Streams::start(threads, pause);
        let pid = Pid::from_raw(streams.pid.parse().unwrap()).unwrap();
        for _ in 0..10 {
            rustix::process::kill_process(pid, Signal::STOP).unwrap();
            until("a stop of all threads", || {
                states(&streams.pid).chars().all(|state| state == 'T')
            });
            rustix::process::kill_process(pid, Signal::CONT).unwrap();
            streams.goes_on();
        }
    }
}

#[test]
fn a_stub_runs_where_its_caller_runs() {
    let streams = Streams::start("1", "1000");
    let task = format!("/proc/{}/task", streams.pid);
    let mut tids: Vec<i32> = fs::read_dir(&task)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    tids.sort_unstable();
    let stub = tids.pop().unwrap();
    let allowed = sched_getaffinity(None).unwrap();
    let each = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).take(4);
    for processor in each.chain([0, 1].into_iter().filter(|one| allowed.is_set(*one))) {
        let mut set = CpuSet::new();
        set.set(processor);
        for tid in &tids {
            sched_setaffinity(Pid::from_raw(*tid), &set).unwrap();
        }
        until("the stub to be there", || {
            let status = fs::read_to_string(format!("{task}/{stub}/status")).unwrap();
            let mut lines = status.lines();
            lines.any(|line| line == format!("Cpus_allowed_list:\t{processor}"))
        });
    }
}

#[test]
fn a_freezer_reaches_a_guest() {
    // A hierarchy of the first version, or the second's.
    let (root, file, stop, go, told, frozen) = if Path::new("/sys/fs/cgroup/freezer").exists() {
        ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN")
    } else {
        ("/sys/fs/cgroup", "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1")
    };
    let group = Path::new(root).join(format!("verbgate-test-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&group) {
        return eprintln!("SKIPPED: no control group can be made: {error}");
    }
    // Guests with more threads have stubs made later, and the moment of a making may keep the group from freezing.
    for (threads, pause) in &STREAMS[..2] {
        let mut streams = Streams::start(threads, pause);
        fs::write(group.join("cgroup.procs"), &streams.pid).unwrap();
        for _ in 0..10 {
            fs::write(group.join(file), stop).unwrap();
            until("the group to freeze", || {
                fs::read_to_string(group.join(told)).unwrap().lines().any(|line| line == frozen)
            });
            fs::write(group.join(file), go).unwrap();
            streams.goes_on();
        }
        drop(streams);
        until("the group to be empty", || {
            fs::read_to_string(group.join("cgroup.procs")).unwrap().is_empty()
        });
    }
    fs::remove_dir(&group).unwrap();
}
