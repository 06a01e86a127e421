//! System calls of supervisors while their programs ring doorbells, as the kernel's own tracepoint shows them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use rustix::mount::MountFlags;

use crate::exec;

/// Where the kernel's tracer is.
const TRACEFS: &str = "/sys/kernel/tracing";
/// The tracepoint of every system call.
const ENTER: &str = "events/raw_syscalls/sys_enter/enable";
/// The threads that look after guests, and at what guests gave up (`proxy/src/look_after.rs`, `tokens.rs`), and
/// the one that gives back memory some times after the first request (`harness/sandbox/src/threads.rs`): each
/// with the call by which it sleeps between two looks (clock_nanosleep(2), ppoll(2) on x86-64), whatever guests do.
const LOOKS: &[(&str, &str)] = &[
    ("look-after-", "sys_enter: NR 230 "),
    ("tokens-", "sys_enter: NR 271 "),
    ("tidy-", "sys_enter: NR 230 "),
];
/// A thread that rests looks once a second whether there are too many, and ends if so (`proxy/src/crew`): futex(2),
/// and what the C library does at a thread's end (sigaltstack(2), munmap(2), sigprocmask(2), madvise(2), exit(2)).
/// It takes no request by any of these.
const RESTS: &str = "serve-";
const RESTING: &[&str] = &["NR 202 ", "NR 131 ", "NR 11 ", "NR 14 ", "NR 28 ", "NR 60 "];
/// What a look at one process takes at most, the sleep included.
const CALLS_OF_A_LOOK: usize = 12;
/// Calls that the wakes of parked stubs take, of all threads, during a hundred thousand work requests: a stub comes to its
/// trap once a minute, to see whether anybody is there (`proxy/sys/src/stub.rs`).
const CALLS_OF_WAKES: usize = 200;
/// For so long nothing but looks is seen once the supervisor has nothing to do.
const QUIET: Duration = Duration::from_secs(1);

/// Records the system calls of some processes' threads until dropped.
#[derive(Debug)]
pub(super) struct Silence(());

impl Silence {
    /// Begins, once the processes have done what they were asked for before.
    pub(super) fn of(pids: &[u32]) -> Result<Self> {
        if !file(ENTER).exists() {
            rustix::mount::mount("none", TRACEFS, "tracefs", MountFlags::empty(), None)
                .context("cannot mount the kernel's tracer")?;
        }
        let silence = Self(());
        exec::wait_until("supervisors that have nothing to do", || {
            let threads: BTreeSet<String> = pids.iter().flat_map(|pid| threads(*pid)).collect();
            let threads: Vec<String> = threads.into_iter().collect();
            write("set_event_pid", &threads.join(" "))?;
            write("trace", "")?;
            write(ENTER, "1")?;
            std::thread::sleep(QUIET);
            Ok(silence.calls()?.iter().all(|call| is_look(call)))
        })?;
        write("trace", "")?;
        Ok(silence)
    }

    /// The calls so far, in the tracer's words.
    pub(super) fn calls(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(file("trace")).context("cannot read the kernel's trace")?;
        let calls = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        Ok(calls.map(ToOwned::to_owned).collect())
    }

    /// The calls so far that are no part of a look.
    pub(super) fn others(&self) -> Result<Vec<String>> {
        Ok(self.calls()?.into_iter().filter(|call| !is_look(call)).collect())
    }

    /// How many looks there were; more than what stubs do that wake is an error.
    pub(super) fn looks_alone(&self) -> Result<usize> {
        let (others, calls) = (self.others()?, self.calls()?);
        if others.len() > CALLS_OF_WAKES {
            bail!("supervisors made {} system calls: {:#?}", others.len(), others.get(..40));
        }
        let calls: Vec<_> = calls.iter().filter(|call| is_look(call)).collect();
        let sleeps = |call: &&&String| LOOKS.iter().any(|(_, sleep)| call.contains(sleep));
        let looks = calls.iter().filter(sleeps).count();
        // One of each thread's may have begun before.
        if calls.len() > (looks + 2 * LOOKS.len()) * CALLS_OF_A_LOOK {
            bail!("{} system calls in {looks} looks: {:#?}", calls.len(), calls.get(..40));
        }
        Ok(looks)
    }
}

fn is_look(call: &str) -> bool {
    let is_of = |thread: &str| call.trim_start().starts_with(thread);
    LOOKS.iter().any(|(thread, _)| is_of(thread))
        || (is_of(RESTS) && RESTING.iter().any(|number| call.contains(number)))
}

impl Drop for Silence {
    fn drop(&mut self) {
        // What cannot be undone is the lab's, which ends.
        let _ = write(ENTER, "0").and_then(|()| write("set_event_pid", ""));
    }
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(TRACEFS).join(name)
}

fn write(name: &str, text: &str) -> Result<()> {
    fs::write(file(name), text).with_context(|| format!("cannot set the tracer's {name}"))
}

/// Threads of a process.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(|task| task.file_name().to_string_lossy().into_owned()).collect()
}
