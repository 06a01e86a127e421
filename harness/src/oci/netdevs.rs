//! NICs of a container: which it asks for, and the process that moves them there and back.
//!
//! That process, the *keeper*, is started by the `created` hook, moves the NICs by the code of
//! `verbgate netdev`, and lives as long as the container does. It holds the container's network
//! namespace open, so that NICs which the kernel would destroy with it (veth, macvlan) come home,
//! too. It reads nothing that a container says, and no container reaches it.
//!
//! The journal is in a directory of its own, `STATE/oci/NAME`, which the keeper locks; whoever gets
//! that lock, and finds the container dead, brings the NICs home: the `stopped` hook, the next
//! `create`, or `verbgate gc`.

use std::fs;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::anyhow;
use clap::Args;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use verbgate_sys::Tgid;
use verbgate_sys::process;
use verbgate_sys::process::PidFd;
use verbgate_sys::sandbox::DeviceNode;
use verbgate_sysfs::collect;

use super::place;
use super::place::Place;
use super::start::READY;
use super::wish;
use super::wish::ALL;
use crate::cli::Arp;
use crate::cli::SelectArgs;
use crate::failure::Failure;
use crate::netdev::Error;
use crate::netdev::back;
use crate::netdev::discover;
use crate::netdev::journal;
use crate::netdev::journal::Journal;
use crate::netdev::journal::Store;
use crate::netdev::link;
use crate::netdev::netns::Namespace;
use crate::netdev::plan;
use crate::netdev::signals::Signals;
use crate::netdev::transfer;
use crate::netdev::transfer::Terms;
use crate::netdev::verify;

/// How long links and GIDs may take to be there again, and the kernel to give a NIC back: as for
/// `verbgate netdev`.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long others may be at work: they move one container's NICs at a time.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(10);
/// In a journal's directory: the container's first process.
const CONTAINER: &str = "container";

/// What was decided on a container's NICs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Netdevs {
    pub(crate) names: Vec<String>,
    /// The directory of the journal.
    pub(crate) journal: PathBuf,
    sysfs: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct KeeperArgs {
    /// The container's directory
    place: PathBuf,
    /// The container's first process
    pid: i32,
}

/// Where a container's journal is.
pub(crate) fn journal_of(state: &Path, place: &Place) -> PathBuf {
    state.join("oci").join(place.path().file_name().unwrap_or_default())
}

/// Decides which NICs go, and refuses what is known now to fail then.
pub(super) fn decide(
    wished: &[String],
    nodes: &[DeviceNode],
    config: &Value,
    journal: PathBuf,
    sysfs: &Path,
) -> Result<Netdevs, anyhow::Error> {
    let failed = |why: String| anyhow!("annotation {}: {why}", wish::NETDEVS);
    let namespaces = config.pointer("/linux/namespaces").and_then(Value::as_array);
    let network = |one: &Value| one.get("type").and_then(Value::as_str) == Some("network");
    if !namespaces.into_iter().flatten().any(network) {
        return Err(failed(
            "the container shares the host's network namespace, in which the NICs are already; \
             give it one of its own (linux.namespaces)"
                .to_owned(),
        ));
    }
    let own = of_devices(nodes, sysfs)?;
    let all = wished.iter().any(|name| name == ALL);
    if let Some(other) = wished.iter().find(|name| !all && !own.contains(name)) {
        let own = if own.is_empty() { "none".to_owned() } else { own.join(", ") };
        return Err(failed(format!(
            "{other} is no NIC of a device that this container is granted (those have: {own})"
        )));
    }
    let names: Vec<String> = if all {
        let (found, _) =
            plan::candidates(&selection(None), sysfs).map_err(|e| failed(e.to_string()))?;
        let fit = found.iter().filter(|one| one.dropped.is_none() && own.contains(&one.netdev));
        fit.map(|one| one.netdev.clone()).collect()
    } else {
        plan::candidates(&selection(Some(wished)), sysfs).map_err(|e| failed(e.to_string()))?;
        wished.to_vec()
    };
    if names.is_empty() {
        return Err(failed(
            "no NIC of the granted devices can be moved; verbgate netdev list says why".to_owned(),
        ));
    }
    Ok(Netdevs { names, journal, sysfs: sysfs.to_owned() })
}

/// The NICs of granted devices' ports.
fn of_devices(nodes: &[DeviceNode], sysfs: &Path) -> Result<Vec<String>, anyhow::Error> {
    let known = collect::devices(sysfs)?;
    let granted = |name: &str| {
        let uverbs = known.iter().find(|device| device.ibdev == name);
        uverbs.is_some_and(|device| nodes.iter().any(|node| node.name == device.uverbs))
    };
    let devices = discover::devices(sysfs);
    let granted = devices.iter().filter(|device| granted(&device.name));
    let mut names: Vec<String> = granted
        .flat_map(|device| &device.ports)
        .flat_map(|port| port.netdevs.iter().cloned())
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn selection(names: Option<&[String]>) -> SelectArgs {
    SelectArgs {
        iface: names.map(|names| names.join(",")),
        hca: None,
        exclude: String::new(),
        peer_ifaces: None,
        peer_manifest: Vec::new(),
        require_ipv4: false,
        bootstrap: None,
        peer: None,
    }
}

/// Starts the keeper of a container that was just made, and waits until the NICs are there.
pub(super) fn move_there(place: &Place, pid: i32) -> Result<(), anyhow::Error> {
    let exe = std::env::current_exe().context("cannot tell the path of this program")?;
    let mut child = Command::new(exe)
        .arg(super::KEEPER)
        .arg(place.path())
        .arg(pid.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // The runtime waits for the end of what a hook writes.
        .stderr(Stdio::null())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .spawn()
        .context("cannot start the process that moves NICs")?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut said).context("cannot hear what moves NICs")?;
    }
    match said.trim() {
        READY => Ok(()),
        "" => Err(anyhow!(
            "annotation {}: what moves the NICs was ended; verbgate gc brings them home",
            wish::NETDEVS
        )),
        error => Err(anyhow!("annotation {}: {error}", wish::NETDEVS)),
    }
}

/// The keeper. Standard output takes one line.
pub(crate) fn keep(args: &KeeperArgs) -> Result<u8, Failure> {
    process::close_from(3).context("cannot close inherited descriptors (Linux 5.9 is needed)")?;
    rustix::process::setsid().context("cannot leave the session")?;
    rustix::process::chdir("/")?;
    let kept = Keeper::begin(&Place::at(&args.place), Tgid(args.pid));
    let said = match &kept {
        Ok(_) => READY.to_owned(),
        Err(error) => error.to_string().replace('\n', " "),
    };
    // Who asked may be dead; then the container is, too, or will be.
    let _ = writeln!(io::stdout(), "{said}").and_then(|()| io::stdout().flush());
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    kept.and_then(|keeper| keeper.wait()).map_err(Failure::of_tool)?;
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
        let netdevs = spec.netdevs.context("the container has asked for none")?;
        let pidfd = PidFd::open(container).context("the container has ended")?;
        let namespace = Namespace::open(&PathBuf::from(format!("/proc/{container}/ns/net")))?;
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
        place::note_process(&netdevs.journal.join(CONTAINER), container.0)
            .context("the container has ended")?;
        let _turn = turn(&netdevs.journal)?;
        let terms = terms(&netdevs.sysfs, signals);
        if let Some(mut left_over) = journal::load(&netdevs.journal)? {
            let left = back::back(&mut left_over, store, &terms)?;
            if let Some(why) = left.into_iter().next() {
                return Err(anyhow!("{why}; see: verbgate gc"));
            }
        }
        // By a name under which others find it, as long as this process lives.
        let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.raw_fd());
        let select = selection(Some(&netdevs.names));
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
        for line in home(&self.netdevs.journal, &self.store, &self.netdevs.sysfs)? {
            log::warn!("{line}");
        }
        Ok(())
    }
}

fn terms<'a>(sysfs: &'a Path, signals: &'a Signals) -> Terms<'a> {
    Terms { sysfs, patience: PATIENCE, signals, progress: &|line| log::info!("{line}") }
}

/// One container's NICs are moved at a time, and not while `verbgate netdev` moves any.
fn turn(journal: &Path) -> Result<Store, Error> {
    let state = journal.ancestors().nth(2).unwrap_or(Path::new("/"));
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match Store::lock(state) {
            Err(Error::Locked { .. }) if Instant::now() < until => std::thread::sleep(LOOK),
            other => return other,
        }
    }
}

/// Brings the NICs of a dead container home, and removes the journal's directory, which the caller
/// has locked. Returns what is to be told of it.
fn home(journal_dir: &Path, store: &Store, sysfs: &Path) -> Result<Vec<String>, anyhow::Error> {
    let mut told = Vec::new();
    if let Some(mut journal) = journal::load(journal_dir)? {
        let _turn = turn(journal_dir)?;
        let signals = Signals::hold();
        let left = back::back(&mut journal, store, &terms(sysfs, &signals))?;
        let here = plan::links()?;
        // With its namespace, the kernel destroys what is no hardware; nobody can bring that home.
        let destroyed: Vec<&str> = journal
            .nics
            .iter()
            .filter(|nic| link::find(&here, &nic.identity).is_none())
            .filter(|nic| nic.state.link.kind.is_some())
            .map(|nic| nic.state.link.name.as_str())
            .collect();
        if left.len() > destroyed.len() {
            return Err(anyhow!(
                "{}; repair it, and then: verbgate netdev restore --state-dir {}",
                left.join("; "),
                journal_dir.display()
            ));
        }
        told.extend(destroyed.into_iter().map(|name| {
            format!("{name} was virtual, and is gone with the container's network namespace")
        }));
    }
    match fs::remove_dir_all(journal_dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", journal_dir.display()))
        }
        _ => Ok(told),
    }
}

/// Brings the NICs of a container that is gone home, or waits until its keeper has.
pub(super) fn bring_home(journal: &Path) -> Result<(), anyhow::Error> {
    let until = Instant::now() + LOCK_PATIENCE;
    while journal.exists() {
        match Store::lock(journal) {
            Ok(store) => {
                let told = home(journal, &store, Path::new(collect::SYSFS_ROOT))?;
                told.iter().for_each(|line| log::warn!("{line}"));
            }
            Err(Error::Locked { .. }) if Instant::now() < until => std::thread::sleep(LOOK),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Brings home what dead containers have left in their journals; a line for each, or why not.
pub(super) fn reap(state: &Path) -> Vec<Result<String, anyhow::Error>> {
    let entries = fs::read_dir(state.join("oci")).into_iter().flatten().flatten();
    let mut journals: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    journals.sort();
    journals.iter().filter_map(|journal| reap_one(journal).transpose()).collect()
}

fn reap_one(journal: &Path) -> Result<Option<String>, anyhow::Error> {
    if place::process_lives(&journal.join(CONTAINER)) {
        return Ok(None);
    }
    let name = journal.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let store = match Store::lock(journal) {
        // Its keeper is at it.
        Err(Error::Locked { .. }) => return Ok(None),
        other => other?,
    };
    let nics = journal::load(journal)?.map(|journal| journal.names());
    let told = home(journal, &store, Path::new(collect::SYSFS_ROOT))
        .with_context(|| format!("NICs of container {name} are not home"))?;
    let line =
        format!("{name}: {} home", nics.unwrap_or_else(|| "no NIC was away; all".to_owned()));
    Ok(Some([vec![line], told].concat().join("; ")))
}
