//! The *keeper*: the process that moves a container's NICs there and back.
//!
//! The keeper is started for the `created` hook, moves the NICs with the code of `verbgate netdev`,
//! and lives as long as the container. The keeper holds the container's network namespace open, so
//! that NICs which the kernel would destroy with the namespace (veth, macvlan) come back too. The
//! keeper reads nothing that a container says, and no container reaches the keeper.
//!
//! The journal is in a directory of its own, `STATE/oci/NAME`, which the keeper locks. A process
//! that gets this lock, and finds the container dead, brings the NICs back: see [`home`].

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;
use anyhow::anyhow;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use verbgate_host::netns::Namespace;
use verbgate_host::program;
use verbgate_host::signals::Signals;
use verbgate_netdev::back;
use verbgate_netdev::journal;
use verbgate_netdev::journal::Journal;
use verbgate_netdev::journal::Store;
use verbgate_netdev::plan;
use verbgate_netdev::strict::Arp;
use verbgate_netdev::transfer;
use verbgate_netdev::verify;
use verbgate_sys::Tgid;
use verbgate_sys::post;
use verbgate_sys::process::PidFd;

use super::home;
use super::home::Turn;
use super::letter::Word;
use super::letter::heard_readiness;
use super::letter::say_readiness;
use super::netdevs;
use super::netdevs::Netdevs;
use super::place;
use super::place::Place;
use super::wish;

/// Time until the NICs are there: the keeper waits for its turn, for links and for GIDs.
const MOVE_PATIENCE_MS: i32 = 180_000;

/// Starts the keeper of a container that was just made; it answers when the NICs are there. Called
/// in the supervisor: the hook is under the container's filter, and so would be its children.
pub(super) fn start(
    log: &[OsString],
    place: &Place,
    pid: i32,
    answer: OwnedFd,
) -> Result<(), anyhow::Error> {
    let exe = program::own().context("cannot tell the path of this program")?;
    // It outlives this process, mostly, and nobody waits for it.
    Command::new(exe)
        .args(log)
        .arg(crate::options::KEEPER)
        .arg(place.path())
        .arg(pid.to_string())
        .stdin(Stdio::null())
        .stdout(answer)
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
        .context("cannot start the process that moves NICs")
}

/// Waits until the NICs of a container that was just made are there.
pub(super) fn move_there(place: &Place, pid: i32) -> Result<(), anyhow::Error> {
    let word = serde_json::to_vec(&Word::Move(pid))?;
    let said = match post::ask(&place.control(), &word, MOVE_PATIENCE_MS) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Vec::new(),
        other => other.context("the container's supervisor is gone; create the container again")?,
    };
    let nothing =
        "somebody ended the process that moves the NICs; verbgate gc brings the NICs back";
    heard_readiness(&said, nothing)
        .map_err(|error| anyhow!("annotation {}: {error}", wish::NETDEVS))
}

/// The process that moves the NICs of the container with this directory, whose first process is
/// `pid`, and brings them home. Standard output takes one line.
///
/// # Errors
/// When the NICs cannot be moved, or not be brought home.
pub fn keep(place: &Path, pid: i32) -> Result<u8, anyhow::Error> {
    rustix::process::setsid().context("cannot leave the session")?;
    rustix::process::chdir("/")?;
    let kept = Keeper::begin(&Place::at(place), Tgid(pid));
    say_readiness(&kept)?;
    kept.and_then(|keeper| keeper.wait())?;
    Ok(0)
}

struct Keeper {
    netdevs: Netdevs,
    container: PidFd,
    signals: Signals,
    store: Store,
    /// As long as it is open, it is not destroyed.
    _namespace: Namespace,
}

impl Keeper {
    fn begin(place: &Place, container: Tgid) -> Result<Self, anyhow::Error> {
        let signals = Signals::hold();
        let spec = place.spec().context("the container's directory cannot be read")?;
        let netdevs = spec.netdevs.context("the container has asked for no NICs")?;
        let pidfd = PidFd::open(container).context("the container has ended")?;
        let namespace = Namespace::open(&PathBuf::from(format!("/proc/{container}/ns/net")))?;
        let _turn = Turn::wait(&netdevs.journal)?;
        let store = Store::lock(&netdevs.journal)?;
        if let Err(e) = Self::send(&netdevs, &store, &namespace, container, &signals) {
            // All NICs are home, or there is a journal that says so.
            if matches!(journal::load(&netdevs.journal), Ok(None)) {
                let _ = fs::remove_dir_all(&netdevs.journal);
            }
            return Err(e);
        }
        Ok(Self { netdevs, container: pidfd, signals, store, _namespace: namespace })
    }

    fn send(
        netdevs: &Netdevs,
        store: &Store,
        namespace: &Namespace,
        container: Tgid,
        signals: &Signals,
    ) -> Result<(), anyhow::Error> {
        place::note_process(&netdevs.journal.join(home::CONTAINER), container.0)
            .context("the container has ended")?;
        let terms = home::terms(&netdevs.sysfs, signals);
        if let Some(mut left_over) = journal::load(&netdevs.journal)? {
            let left = back::back(&mut left_over, store, &terms)?;
            if let Some(why) = left.into_iter().next() {
                return Err(anyhow!("{why}; see: verbgate gc"));
            }
        }
        // By a name under which others find it, as long as this process lives.
        let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.raw_fd());
        let select = netdevs::selection(Some(&netdevs.names));
        let plan = plan::plan(&select, &netdevs.sysfs, &path, Arp::Strict)?;
        plan.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        let verify = |journal: &Journal, target: &Namespace| verify::alone(journal, target);
        transfer::execute(plan, store, Arp::Strict, &terms, &verify)?;
        Ok(())
    }

    /// Waits for the container's end, and brings its NICs home.
    fn wait(self) -> Result<(), anyhow::Error> {
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(self.container.as_fd(), PollFlags::IN)];
            fds.extend(self.signals.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if self.container.has_ended() {
                break;
            }
            // Told to end before the container does: the journal stays, for `verbgate gc`.
            self.signals.check()?;
        }
        let Netdevs { journal, sysfs, .. } = &self.netdevs;
        let turn = Turn::wait(journal)?;
        for line in home::home(journal, &self.store, sysfs, &turn)? {
            log::warn!("{line}");
        }
        Ok(())
    }
}
