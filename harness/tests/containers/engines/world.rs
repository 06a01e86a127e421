//! A world in which a container engine runs as the engine's packages have it: see `world.sh`.

use std::fs;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use verbgate_lab::Engines;
use verbgate_lab::Progress;
use verbgate_wait::Stalled;
use verbgate_wait::Wait;
use verbgate_wait::until;

use crate::common::is_root;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// For how long a control group that does not go keeps the end of a test waiting.
const DROPPED: Duration = Duration::from_secs(10);
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/containers/engines/world.sh");
/// Joins the control groups of a world, and then its namespaces and its root.
const ENTER: &str = "while read -r group; do echo 0 >\"$group/cgroup.procs\" || true; done <\"$1\"
    shift; exec nsenter --all --root --wd --target \"$@\"";

/// What a container of busybox prints of what is mounted at `/sys`.
pub(crate) const SYS: &str = "grep ' /sys ' /proc/mounts | tail -n 1";

/// A world takes a processor for itself: one after another, whoever runs the tests.
static ONE: Mutex<()> = Mutex::new(());

/// A world; all that is in it ends with this.
pub(crate) struct World {
    dir: TempDir,
    outside: Child,
    init: u32,
    /// Engines, and what they log to.
    logs: Vec<PathBuf>,
    /// What was there before any container of ours, by [`World::traces`].
    before: Option<String>,
    _engines: Engines,
    // Dropped last.
    _one: MutexGuard<'static, ()>,
}

impl World {
    /// A world with the engines of a suite and `verbgate`; says why where there can be none.
    pub(crate) fn of(suite: &str) -> Option<Self> {
        Self::with(suite, verbgate())
    }

    /// The same with another program for `verbgate`, or none.
    pub(crate) fn with(suite: &str, program: &str) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let engines = Engines::of(suite, &Progress::stderr());
        let engines = match engines {
            Ok(engines) => engines,
            Err(error) => {
                eprintln!("SKIPPED: needs the container engines of {suite}: {error:#}");
                return None;
            }
        };
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let name = format!("verbgate-engines-{}", dir.path().file_name().unwrap().display());
        let log = File::create(dir.path().join("world.log")).unwrap();
        // Also where nothing can be dropped: a test that takes too long is killed.
        let outside = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "sh", SCRIPT, "outside", &name])
            .args([engines.root(), dir.path()])
            .arg(program)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut world = Self {
            dir,
            outside,
            init: 0,
            logs: Vec::new(),
            before: None,
            _engines: engines,
            _one: one,
        };
        let made = world.wait_for(|world| {
            world.init = child_of(world.outside.id())?;
            let name = fs::read_to_string(format!("/proc/{}/comm", world.init)).ok()?;
            (name.trim() == "tini").then_some(())
        });
        if made.is_none() {
            let log = fs::read_to_string(world.dir.path().join("world.log")).unwrap_or_default();
            let log = log.trim().replace('\n', "; ");
            eprintln!("SKIPPED: no world for an engine can be made here: {log}");
            return None;
        }
        if !program.is_empty() && !world.run(&["verbgate", "--version"]).status.success() {
            eprintln!("SKIPPED: needs a build that runs with the libc of {suite}");
            return None;
        }
        Some(world)
    }

    /// Asks again and again, unless the world ends.
    fn wait_for<T>(&mut self, mut ask: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        until("the world", || match ask(self) {
            None if self.outside.try_wait().unwrap().is_some() => Some(None),
            None => None,
            answer => Some(answer),
        })
    }

    /// A command in the world.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", ENTER, "sh"]).arg(self.dir.path().join("groups"));
        command.arg(self.init.to_string()).args(["env", "-i", "HOME=/root"]);
        command.arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin").args(words);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        verbgate_wait::output(&mut self.command(words))
    }

    /// Runs a program of the host in the world's network.
    pub(crate) fn beside(&self, words: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.arg("--net").arg("--target").arg(self.init.to_string());
        command.args(words).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command that succeeds; what it prints.
    pub(crate) fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {output:?}\n{}", self.said());
        stdout(&output)
    }

    /// The same, of a line of shell.
    pub(crate) fn sh(&self, line: &str) -> String {
        self.done(&["sh", "-c", line])
    }

    /// A file in the world, by its path on the host.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().write_all(bytes).unwrap();
    }

    /// Starts a daemon, and waits until it answers.
    pub(crate) fn start(&mut self, words: &[&str], answers: &[&str]) -> Daemon {
        let path = self.dir.path().join(format!("daemon-{}.log", self.logs.len()));
        let log = File::create(&path).unwrap();
        self.logs.push(path);
        let mut command = self.command(words);
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut daemon = Daemon { child };
        let up = self.wait_for(|world| {
            let ended = daemon.child.try_wait().unwrap().is_some();
            (ended || world.run(answers).status.success()).then_some(!ended)
        });
        assert_eq!(up, Some(true), "{words:?} does not start\n{}", self.said());
        daemon
    }

    /// The end of what daemons have logged.
    fn said(&self) -> String {
        let logs = self.logs.iter().filter_map(|log| fs::read_to_string(log).ok());
        let ends = logs.map(|log| {
            let lines: Vec<&str> = log.lines().collect();
            lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n")
        });
        ends.collect::<Vec<_>>().join("\n--\n")
    }

    /// Containers with RDMA, as `verbgate ps` has them.
    pub(crate) fn supervised(&self) -> Vec<serde_json::Value> {
        serde_json::from_str(&self.done(&["verbgate", "ps", "--json"])).unwrap()
    }

    /// What containers leave in the system: mounts, network namespaces, and what keeps containers. Docker's network
    /// namespaces are mounts; the files under them go once a minute. Podman mounts its store upon itself
    /// while it works, and that mount was once seen to stay: it is no container's.
    pub(crate) fn traces(&self) -> String {
        self.sh(
            "cut -d' ' -f2,3 /proc/mounts | grep -v '^/var/lib/containers/storage/overlay ' | sort
            ls /run/netns /run/containerd/io.containerd.runtime.v2.task/* 2>/dev/null
            ps -o args | grep -E '[s]him|[c]onmon|[p]ause|[s]leep 1000$' || true",
        )
    }

    /// From now on, what is there is all that may be left.
    pub(crate) fn begins_here(&mut self) {
        self.before = Some(self.traces());
    }

    /// Waits until nothing of ours is in the world: no container, no process, no state; and nothing of the engine's
    /// containers, where it is known what there was before.
    pub(crate) fn assert_nothing_left(&mut self) {
        let left = |world: &Self| {
            let processes = world.sh("ps -o pid,args | grep '[v]erbgate' || true");
            let state = world.sh("ls /run/verbgate/oci 2>/dev/null || true");
            let traces = world.before.as_ref().map(|before| added(before, &world.traces()));
            [processes, state, traces.unwrap_or_default()].concat()
        };
        let gone = self.wait_for(|world| left(world).is_empty().then_some(()));
        assert!(gone.is_some(), "left: {}", left(self));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.said());
        }
        // By --kill-child, the first process ends with it, and all others with that.
        let _ = self.outside.kill();
        let _ = self.outside.wait();
        let groups = fs::read_to_string(self.dir.path().join("groups")).unwrap_or_default();
        for group in groups.lines().map(Path::new) {
            let gone = Wait::new("the end of a control group").quiet(DROPPED);
            let _ = gone.try_until(|| {
                remove_group(group);
                Ok::<_, Stalled>(!group.exists())
            });
        }
    }
}

/// The lines of a text that another does not have, or has less often.
fn added(before: &str, now: &str) -> String {
    let mut known: Vec<&str> = before.lines().collect();
    let new = |line: &&str| match known.iter().position(|one| one == line) {
        Some(at) => {
            known.swap_remove(at);
            false
        }
        None => true,
    };
    now.lines().filter(new).collect::<Vec<_>>().join("\n")
}

/// Removes a control group and those below it, once their processes have ended.
fn remove_group(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_group(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// A daemon in a world.
pub(crate) struct Daemon {
    child: Child,
}

impl Daemon {
    /// Ends it, as a restart does.
    pub(crate) fn stop(self) {
        self.end(rustix::process::Signal::TERM);
    }

    /// Ends it as nothing can be ready for.
    pub(crate) fn kill(self) {
        self.end(rustix::process::Signal::KILL);
    }

    fn end(mut self, signal: rustix::process::Signal) {
        // The child is who has entered the world and waits for the daemon.
        let daemon = child_of(self.child.id()).unwrap();
        let daemon = rustix::process::Pid::from_raw(daemon.try_into().unwrap()).unwrap();
        rustix::process::kill_process(daemon, signal).unwrap();
        verbgate_wait::end(&mut self.child);
    }
}

/// The first child of a process, both by their numbers on the host.
fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// What a container found at `/sys`, or why it was not created: the host's is shown to nobody.
pub(crate) fn assert_sys_is_ours(output: &Output) {
    let (said, why) = (stdout(output), stderr(output));
    if output.status.success() {
        let kind = said.lines().last().unwrap_or_default().split(' ').nth(2);
        assert_eq!(kind, Some("fuse"), "the container sees the host's /sys: {said} {why}");
    } else {
        assert!(why.contains("/sys"), "refused, but not for its /sys: {why}");
    }
}
