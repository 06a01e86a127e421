//! `verbgate agent`: an OCI seccomp agent, for engines that take a seccomp profile ([`profile`])
//! and no other runtime.
//!
//! The runtime makes the filter, and sends the filter's listener and the container's state to the
//! agent's socket (`state`). The agent decides what the container gets (`asked`) and starts one
//! supervisor for each container (`supervisor`), which also serves programs that are executed in
//! the container later. If the agent cannot serve a container, nobody is at the listener: the
//! trapped calls fail with ENOSYS.

pub(crate) mod asked;
mod life;
mod memlock;
pub mod profile;
mod state;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::fs::Permissions;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use listenfd::ListenFd;
use parking_lot::Mutex;
use sd_notify::NotifyState;
use verbgate_host::program;
use verbgate_sys::Tgid;
use verbgate_sys::process;
use verbgate_sys::process::PidFd;

use self::life::Order;
pub use self::life::run as supervise;
use self::profile::MadeFor;
use self::state::Arrived;
use super::place::Place;
use crate::options::Allowed;
use crate::options::Globals;

/// The hidden command of its supervisors.
pub const SUPERVISOR: &str = "agent-supervisor";

/// Stand-in for the runtime's state directory in the names of the containers' directories; nobody
/// tells the agent the real one.
const STATE: &str = "agent";

/// Time for the supervisor of an ended container to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is tried again what fails for want of descriptors, memory or threads.
const SHORT: Duration = Duration::from_millis(100);
/// Connections that have told nothing, at most: each has a thread and a descriptor, for an hour at most.
const MOST_SILENT: usize = 256;
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(5);

/// Options of the agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Socket to listen on; `agent.sock` in the directory of run-time state, unless systemd passes
    /// a socket.
    pub socket: Option<PathBuf>,
    /// What the operator allows.
    pub allowed: Allowed,
}

struct Agent {
    allowed: Allowed,
    /// Directory of run-time state.
    root: PathBuf,
    /// The options of the log.
    log: Vec<OsString>,
    /// The supervisors, by their containers' directories, until those are removed.
    supervisors: Mutex<HashMap<PathBuf, Known>>,
    /// Connections that have told nothing yet.
    silent: AtomicUsize,
}

/// A supervisor.
struct Known {
    /// Socket by which the supervisor hears of further processes.
    socket: OwnedFd,
    /// The container's first process: when it has ended, another container may have its name.
    first: PidFd,
    /// What the tenant's processes may lock, in bytes.
    memlock: Option<u64>,
}

/// Runs the agent.
///
/// # Errors
/// When it cannot listen.
pub fn run(options: &AgentOptions, globals: &Globals) -> Result<u8, Error> {
    verbgate_proxy::policy::Policy::named(&options.allowed.profile)?;
    let root = std::path::absolute(&globals.root)?;
    let socket = options.socket.clone().unwrap_or_else(|| root.join("agent.sock"));
    let listener = match ListenFd::from_env().take_unix_listener(0) {
        Ok(Some(passed)) => passed,
        Ok(None) => listener(&socket)?,
        Err(e) => {
            return Err(anyhow!(
                "systemd passed a descriptor that is not a Unix stream socket: {e}"
            ));
        }
    };
    process::raise_descriptor_limit();
    let agent = Arc::new(Agent {
        allowed: options.allowed.clone(),
        root,
        log: globals.log.clone(),
        supervisors: Mutex::default(),
        silent: AtomicUsize::new(0),
    });
    if let Err(e) = sd_notify::notify(&[NotifyState::Ready]) {
        log::warn!("cannot tell systemd that the agent is ready: {e}");
    }
    loop {
        let runtime = match listener.accept() {
            Ok((runtime, _)) => Arc::new(runtime),
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(e) if is_short(&e) => {
                log::error!(
                    "cannot accept connections of runtimes now: {e}; raise the limit of the agent"
                );
                std::thread::sleep(SHORT);
                continue;
            }
            Err(e) => return Err(anyhow!("cannot accept connections of runtimes: {e}")),
        };
        if agent.silent.load(Ordering::Acquire) >= MOST_SILENT {
            log::error!(
                "a connection is closed: {MOST_SILENT} runtimes have connected and told nothing; end these runtimes"
            );
            continue;
        }
        agent.silent.fetch_add(1, Ordering::AcqRel);
        // One that is slow keeps no other waiting.
        let begin = || {
            let (agent, runtime) = (Arc::clone(&agent), Arc::clone(&runtime));
            std::thread::Builder::new().name("runtime".to_owned()).spawn(move || {
                if let Err(error) = agent.heard(&runtime) {
                    log::error!("{}", format!("{error:#}").replace('\n', " "));
                }
            })
        };
        // The container waits meanwhile, and does not run without what it asked for.
        while let Err(e) = begin() {
            log::error!(
                "cannot start a thread for a runtime now: {e}; raise the agent's limit of tasks"
            );
            std::thread::sleep(SHORT);
        }
    }
}

/// Whether an error is for want of something of the agent's own, which may come back.
fn is_short(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    error.raw_os_error().is_some_and(|errno| short.iter().any(|one| one.raw_os_error() == errno))
}

/// Listens where nobody does, for its own user alone.
pub(super) fn listener(path: &Path) -> Result<UnixListener, Error> {
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new().mode(0o700).recursive(true).create(dir)?;
    }
    let failed = |e: io::Error| anyhow!("cannot listen at {}: {e}", path.display());
    match UnixStream::connect(path) {
        Ok(_) => return Err(anyhow!("another agent listens at {}", path.display())),
        // The kernel says the same of a file that is no socket.
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            if !fs::symlink_metadata(path).map_err(failed)?.file_type().is_socket() {
                return Err(anyhow!(
                    "cannot listen at {}: it is a file, and no socket",
                    path.display()
                ));
            }
            fs::remove_file(path).map_err(failed)?;
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

impl Agent {
    /// Sees to a process that a runtime tells of.
    fn heard(self: Arc<Self>, runtime: &UnixStream) -> Result<(), Error> {
        let arrived = told(runtime);
        self.silent.fetch_sub(1, Ordering::AcqRel);
        let arrived = arrived?;
        let id = arrived.state.state.id.clone();
        self.serve(&arrived).map_err(|e| anyhow!("container {id} is not served: {e:#}"))
    }

    fn serve(self: Arc<Self>, arrived: &Arrived) -> Result<(), Error> {
        let Arrived { state, listener } = arrived;
        let id = &state.state.id;
        if id.is_empty() || id.starts_with('.') || id.contains('/') {
            return Err(anyhow!(
                "the container's id must be text without \"/\", and not begin with \".\""
            ));
        }
        let (windows, write) = MadeFor::read(&state.metadata)?;
        let order = Order { pid: state.pid, windows };
        let place = Place::of(&self.root, id, Some(OsStr::new(STATE)));
        let deadline = Instant::now() + END_PATIENCE;
        // Before a supervisor is told: no device can be opened yet. And not under the lock of all containers,
        // since a container may go on forking meanwhile.
        let known = self.memlock_of(&place);
        let spec = match known {
            Some(_) => None,
            None => Some(asked::spec(&state.state, state.pid, &self.allowed, write)?),
        };
        lock_at_most(state.pid, known.unwrap_or(spec.as_ref().and_then(|spec| spec.memlock)));
        // Held from when there is none until there is one: two processes of one container may arrive
        // at once.
        let mut supervisors = loop {
            let supervisors = self.supervisors.lock();
            let Some(known) = supervisors.get(place.path()) else { break supervisors };
            if !known.first.has_ended()
                && life::send(known.socket.as_fd(), &order, listener.as_fd()).is_ok()
            {
                return Ok(());
            }
            // That of a container of the same name, which ends with it.
            if Instant::now() >= deadline {
                return Err(anyhow!(
                    "the supervisor of an earlier container of this name does not end"
                ));
            }
            drop(supervisors);
            std::thread::sleep(LOOK);
        };
        let first = PidFd::open(Tgid(state.pid)).context("the container's process has ended")?;
        let spec = spec.context("the container has ended")?;
        let lock = place.make(&spec).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => anyhow!(
                "the container's supervisor is gone, or belongs to an agent that has ended, so \
                 programs that are executed in the container now cannot be served; start the \
                 container again"
            ),
            _ => anyhow!("cannot make {}: {e}", place.path().display()),
        })?;
        let (ours, theirs) = life::pair()?;
        let child = Command::new(program::own().context("cannot tell this program's path")?)
            .args(&self.log)
            .arg(SUPERVISOR)
            .arg(place.path())
            // Its lock: it is held as long as the supervisor has a standard input.
            .stdin(lock)
            .stdout(theirs)
            .stderr(Stdio::inherit())
            .env_clear()
            .spawn()
            .context("cannot start the container's supervisor")?;
        life::send(ours.as_fd(), &order, listener.as_fd())
            .map_err(|e| anyhow!("cannot tell the container's supervisor: {e:#}"))?;
        supervisors
            .insert(place.path().to_owned(), Known { socket: ours, first, memlock: spec.memlock });
        drop(supervisors);
        self.attend(child, &place)
    }

    /// What processes of a container that lives may lock, if the container is known.
    fn memlock_of(&self, place: &Place) -> Option<Option<u64>> {
        let supervisors = self.supervisors.lock();
        let known = supervisors.get(place.path()).filter(|known| !known.first.has_ended())?;
        Some(known.memlock)
    }

    /// Waits until a supervisor ends, and removes what it cannot, confined as it is.
    fn attend(&self, mut child: Child, place: &Place) -> Result<(), Error> {
        let ended = child.wait();
        let removed = place.remove_if_unsupervised();
        self.supervisors.lock().remove(place.path());
        let ended = ended.context("cannot wait for the container's supervisor")?;
        removed.context("cannot remove the container's directory")?;
        if ended.success() {
            Ok(())
        } else {
            Err(anyhow!("the container's supervisor ended with {ended}"))
        }
    }
}

/// Receives what a runtime tells of a process.
fn told(runtime: &UnixStream) -> Result<Arrived, Error> {
    let who = rustix::net::sockopt::socket_peercred(runtime)?;
    let own = rustix::process::geteuid();
    if !who.uid.is_root() && who.uid != own {
        return Err(anyhow!(
            "the agent does not serve the runtime of user {}; only root's runtimes are served",
            who.uid.as_raw()
        ));
    }
    state::receive(runtime)
        .map_err(|e| anyhow!("the runtime, process {}: {e}", who.pid.as_raw_nonzero()))
}

/// Lets a process that has come, and what it has started, lock as much as the tenant's policy says.
fn lock_at_most(pid: i32, bytes: Option<u64>) {
    let Some(bytes) = bytes else { return };
    if let Err(e) = memlock::set(Tgid(pid), bytes) {
        log::warn!(
            "the tenant's memlock is {bytes} bytes, and the limit of process {pid} cannot be set: \
             {e}; start the agent as root, or raise the limit in the engine (--ulimit memlock)"
        );
    }
}
