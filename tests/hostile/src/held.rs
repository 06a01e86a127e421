//! Stops the guests of a sandbox, by signal or by the freezer, and looks whether anybody ended one of them meanwhile.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use crate::look;
use crate::raw;
use crate::raw::call;
use crate::raw::sleep;

/// The means by which guests are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Means {
    /// SIGSTOP and SIGCONT.
    Signal,
    /// The freezer of version 1, where it is mounted, or `cgroup.freeze`.
    Freezer,
}

/// Holds every guest below this supervisor for so long. A line for each that was ended meanwhile: a guest that is held
/// ends nobody, itself included.
pub(crate) fn hold(supervisor: i32, means: Means, long: Duration) -> io::Result<Vec<String>> {
    let group = if means == Means::Freezer { Some(Group::make()?) } else { None };
    let mut held = Vec::new();
    // Guests that one made before it was held are in the next list.
    loop {
        let guests = look::guests_of(supervisor);
        let new: Vec<i32> = guests.into_iter().filter(|pid| !held.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in &new {
            // A guest may have ended since it was listed.
            match &group {
                Some(group) => drop(fs::write(group.dir.join("cgroup.procs"), pid.to_string())),
                None => stop(supervisor, *pid),
            }
        }
        held.extend(new);
        if let Some(group) = &group {
            group.set(true)?;
        }
        sleep(20);
    }
    // A guest that ended by itself is none of those that are held.
    held.retain(|pid| look::is_alive(*pid));
    println!("{} guests are held for {long:?} by {means:?}", held.len());
    std::thread::sleep(long);
    held.retain(|pid| !look::is_alive(*pid));
    match &group {
        Some(group) => group.set(false)?,
        None => look::guests_of(supervisor).iter().for_each(|pid| raw::kill(*pid, libc::SIGCONT)),
    }
    Ok(held.iter().map(|pid| format!("guest {pid} was ended while it was held")).collect())
}

/// Stops a guest, whose number is its own: it is among the guests after its pidfd was opened.
fn stop(supervisor: i32, pid: i32) {
    let Ok(pidfd) = call(libc::SYS_pidfd_open, &[pid as u64, 0]) else { return };
    if look::guests_of(supervisor).contains(&pid) {
        let _ = call(libc::SYS_pidfd_send_signal, &[pidfd, libc::SIGSTOP as u64, 0, 0]);
    }
    raw::close(pidfd as i32);
}

/// A control group with a freezer.
struct Group {
    dir: PathBuf,
    file: &'static str,
    words: [&'static str; 2],
}

impl Group {
    fn make() -> io::Result<Self> {
        let first = Path::new("/sys/fs/cgroup/freezer");
        let (root, file, words) = if first.is_dir() {
            (first, "freezer.state", ["THAWED", "FROZEN"])
        } else {
            (Path::new("/sys/fs/cgroup"), "cgroup.freeze", ["0", "1"])
        };
        let dir = root.join(format!("verbgate-hostile-{}", crate::board::now()));
        fs::create_dir(&dir)?;
        Ok(Self { dir, file, words })
    }

    fn set(&self, frozen: bool) -> io::Result<()> {
        fs::write(self.dir.join(self.file), self.words[usize::from(frozen)])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.set(false);
        // The living go back, so that the group can go.
        let pids = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        if let Some(root) = self.dir.parent() {
            pids.lines().for_each(|pid| drop(fs::write(root.join("cgroup.procs"), pid)));
        }
        let _ = fs::remove_dir(&self.dir);
    }
}
