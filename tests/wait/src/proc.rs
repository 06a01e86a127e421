//! Processes as `/proc` tells of them (proc_pid_stat(5), proc_pid_io(5)).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::Pid;
use rustix::process::Signal;

/// A process, or a thread of this process: the number, and the start, by which a later holder of the number differs.
type Id = (u32, u64);

/// The descendants that looks have found so far, since one that is handed to another parent is watched still.
static FOUND: Mutex<BTreeSet<Id>> = Mutex::new(BTreeSet::new());

#[derive(Clone, Copy, Debug)]
struct Stat {
    state: char,
    parent: u32,
    ticks: u64,
    start: u64,
}

impl Stat {
    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Reads the file `stat` of a process or a thread.
fn stat(folder: &Path) -> Option<Stat> {
    let text = fs::read_to_string(folder.join("stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
        start: number(19)?,
    })
}

fn folder(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The entries of a folder whose names are numbers.
fn numbered(folder: &Path) -> impl Iterator<Item = (u32, PathBuf)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

fn threads(pid: u32) -> impl Iterator<Item = (u32, PathBuf, Stat)> {
    let tasks = numbered(&folder(pid).join("task"));
    tasks.filter_map(|(tid, path)| stat(&path).map(|stat| (tid, path, stat)))
}

fn all() -> BTreeMap<u32, Stat> {
    numbered(Path::new("/proc")).filter_map(|(pid, path)| Some((pid, stat(&path)?))).collect()
}

/// The roots' children, and theirs: parents before children.
fn below(all: &BTreeMap<u32, Stat>, mut roots: Vec<u32>) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, stat) in all {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let mut found = Vec::new();
    while let Some(pid) = roots.pop() {
        let of_it = children.remove(&pid).unwrap_or_default();
        found.extend_from_slice(&of_it);
        roots.extend(of_it);
    }
    found
}

/// The children of a process, and theirs.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    below(&all(), vec![root])
}

/// Whether a process is there and not a zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    stat(&folder(pid)).is_some_and(|stat| !stat.is_dead())
}

/// How many threads of a process are in a state.
#[must_use]
pub fn threads_in_state(pid: u32, state: char) -> usize {
    threads(pid).filter(|(_, _, stat)| stat.state == state).count()
}

/// Kills a process, if it is there.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Sends a process a signal, if it is there.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Which processes are watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// Processes whose descendants are watched, too.
    pub(crate) named: Vec<u32>,
    /// The descendants that are watched, by their names, and no other process; otherwise this process's, too.
    pub(crate) only: Option<fn(&str) -> bool>,
}

/// What the watched processes have done so far.
#[derive(Debug, Default)]
pub struct Sight {
    /// Processor time in ticks, and the counters of I/O.
    counters: BTreeMap<Id, (u64, String)>,
    /// Threads in state D.
    uninterruptible: BTreeSet<u32>,
    is_runnable: bool,
}

impl Sight {
    /// Looks at the watched processes, and at the other threads of this one.
    pub(crate) fn take(watched: &Watched) -> Self {
        let mut sight = Self::default();
        for (tid, path, stat) in other_threads(watched) {
            sight.add_thread(tid, &stat);
            sight.add((tid, stat.start), &stat, &path);
        }
        processes(watched).iter().for_each(|(pid, stat)| sight.add_process(*pid, stat));
        sight
    }

    /// Looks at each child of a process, with its descendants.
    #[must_use]
    pub fn of_children(parent: u32) -> BTreeMap<u32, Self> {
        let all = all();
        let children = all.iter().filter(|(_, stat)| stat.parent == parent);
        let look = |pid| {
            let mut sight = Self::default();
            for pid in below(&all, vec![pid]).into_iter().chain([pid]) {
                all.get(&pid).iter().for_each(|stat| sight.add_process(pid, stat));
            }
            sight
        };
        children.map(|(pid, _)| (*pid, look(*pid))).collect()
    }

    fn add_process(&mut self, pid: u32, stat: &Stat) {
        let threads = threads(pid).filter(|(_, _, stat)| !stat.is_dead());
        let living = threads.inspect(|(tid, _, stat)| self.add_thread(*tid, stat)).count();
        if living > 0 {
            self.add((pid, stat.start), stat, &folder(pid));
        }
    }

    fn add_thread(&mut self, tid: u32, stat: &Stat) {
        self.is_runnable |= stat.state == 'R';
        if stat.state == 'D' {
            self.uninterruptible.insert(tid);
        }
    }

    fn add(&mut self, id: Id, stat: &Stat, folder: &Path) {
        // A kernel without accounting of I/O has no such file.
        let io = fs::read_to_string(folder.join("io")).unwrap_or_default();
        self.counters.insert(id, (stat.ticks, io));
    }

    /// Whether something happened between another look and this one.
    #[must_use]
    pub fn progressed_since(&self, last: &Self) -> bool {
        self.is_at_work(last) || self.counters != last.counters
    }

    /// Whether a thread is runnable, or left state D between another look and this one.
    pub(crate) fn is_at_work(&self, last: &Self) -> bool {
        self.is_runnable || !last.uninterruptible.is_subset(&self.uninterruptible)
    }

    /// The processor time that the watched processes used between another look and this one.
    pub(crate) fn used_since(&self, last: &Self) -> Duration {
        let before = |id| last.counters.get(id).map_or(0, |(ticks, _)| *ticks);
        let used = self.counters.iter().map(|(id, (ticks, _))| ticks.saturating_sub(before(id)));
        Duration::from_secs(used.sum()) / u32::try_from(clock_ticks_per_second()).unwrap_or(100)
    }
}

/// The threads of this process but the one that calls, unless others alone are watched.
fn other_threads(watched: &Watched) -> impl Iterator<Item = (u32, PathBuf, Stat)> + use<> {
    let (me, ours) = (rustix::thread::gettid().as_raw_pid(), watched.only.is_none());
    threads(std::process::id()).filter(move |(tid, ..)| ours && i64::from(*tid) != i64::from(me))
}

fn processes(watched: &Watched) -> Vec<(u32, Stat)> {
    let (all, also) = (all(), &watched.named);
    if let Some(passes) = watched.only {
        let name = |pid: &u32| fs::read_to_string(folder(*pid).join("comm")).unwrap_or_default();
        let mut pids = below(&all, also.clone());
        pids.retain(|pid| passes(name(pid).trim_end()));
        pids.extend(also);
        return pids.into_iter().filter_map(|pid| Some((pid, *all.get(&pid)?))).collect();
    }
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    found.retain(|(pid, start)| all.get(pid).is_some_and(|stat| stat.start == *start));
    let mut roots = vec![std::process::id()];
    roots.extend(found.iter().map(|(pid, _)| *pid));
    let ours = below(&all, roots);
    found.extend(ours.iter().map(|pid| (*pid, all[pid].start)));
    let mut pids: BTreeSet<u32> = below(&all, also.clone()).into_iter().collect();
    pids.extend(also.iter().copied().chain(found.iter().map(|(pid, _)| *pid)));
    pids.into_iter().filter_map(|pid| Some((pid, *all.get(&pid)?))).collect()
}

/// Each watched thread, its state, and the calls in which the thread waits, for an error.
pub(crate) fn where_they_wait(watched: &Watched) -> String {
    let mut text = String::new();
    let others = processes(watched).into_iter().flat_map(|(pid, _)| threads(pid));
    for (tid, path, stat) in other_threads(watched).chain(others) {
        let read = |file| fs::read_to_string(path.join(file)).unwrap_or_default().trim().to_owned();
        let stack = read("stack");
        let frames = stack.lines().filter_map(|line| line.split_ascii_whitespace().nth(1));
        let frames: Vec<&str> = frames.filter_map(|f| f.split('+').next()).take(6).collect();
        let (comm, syscall) = (read("comm"), read("syscall"));
        let (state, frames) = (stat.state, frames.join(" < "));
        // Writing to a string cannot fail.
        let _ = write!(text, "\nthread {tid} ({comm}): {state}, syscall {syscall} {frames}");
    }
    text
}
