//! The front door: a program in its sandbox, and its supervisor in this process.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use verbgate_proxy::Supervisor;
use verbgate_proxy::observe::Counts;
use verbgate_proxy::observe::Observer;
use verbgate_proxy::policy::Policy;
use verbgate_sys::Tgid;
use verbgate_sys::process;
use verbgate_sys::process::PidFd;
use verbgate_sys::sandbox;
use verbgate_sys::sandbox::DeviceNode;
use verbgate_sys::sandbox::Exit;
use verbgate_sys::sandbox::Guest;
use verbgate_sys::sandbox::Job;
use verbgate_sys::sandbox::Spawn;
use verbgate_sys::sandbox::Sysfs;

use crate::Error;
use crate::audit::Audit;
use crate::grant;
use crate::grant::Granted;
use crate::grant::Host;
use crate::guard::Guard;
use crate::reload::Follower;
use crate::rights::Rights;
use crate::threads;
use crate::usage::Expected;
use crate::views;
use crate::views::KEEP;
use crate::views::Views;

/// SIGKILL, signal(7): what programs cannot handle.
const KILL: i32 = 9;

/// How long killed processes may take to end, if they have work to do at their end (freeing much
/// memory, for example). Processes that the kernel holds (in a driver, on a dead file server) are
/// not waited for.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The program to start.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// Arguments, beginning with the program, which is looked up in `PATH`.
    pub argv: &'a [OsString],
    /// Network namespace to enter, e.g. `/run/netns/pod1`.
    pub netns: Option<&'a Path>,
    /// Capabilities about the network (`NET_RAW`, `NET_ADMIN`) that the program keeps, if it has them.
    pub keep: &'a [String],
    /// Number of descriptors behind the standard streams that the program gets whatever they are.
    pub preserve_fds: u16,
    /// Whether the program sees a `/sys` of granted devices only, and not the host's.
    pub virtual_sysfs: bool,
}

impl<'a> Program<'a> {
    /// A program in this process's network namespace, with a `/sys` of granted devices only.
    #[must_use]
    pub fn new(argv: &'a [OsString]) -> Self {
        Self { argv, netns: None, keep: &[], preserve_fds: 0, virtual_sysfs: true }
    }
}

/// A sandbox for one program: a grant and a policy, decided and checked before anything starts.
#[derive(Debug)]
pub struct Sandbox {
    devices: Vec<Granted>,
    rights: Rights,
    guard: Guard,
    follower: Option<Follower>,
}

impl Sandbox {
    /// A sandbox with these devices, and with the connection manager's node if policy and host have
    /// one.
    ///
    /// # Errors
    /// When a device is not what was granted or cannot be opened, or this process is in a sandbox
    /// itself.
    pub fn new(mut devices: Vec<Granted>, policy: Policy) -> Result<Self, Error> {
        let mut rights = Rights::new(&devices, policy)?;
        let cm = grant::connection_manager(Host::real());
        if let Some(cm) = cm.filter(|_| rights.grants_rdma_cm()) {
            rights.add_rdma_cm(&cm);
            devices.push(cm);
        }
        let guard = Guard::new(process::descriptor_limit(), false)?;
        Ok(Self { devices, rights, guard, follower: None })
    }

    /// Lets programs of the processor's 32-bit kind run, without RDMA: their system calls have numbers of their own
    /// (`AUDIT_ARCH_I386`, `AUDIT_ARCH_ARM`), and fail with ENOSYS otherwise.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn allow_compat(&mut self) -> Result<(), Error> {
        self.guard = Guard::new(process::descriptor_limit(), true)?;
        Ok(())
    }

    /// Claims connections in the register of a directory of run-time state: of all sandboxes that
    /// share the directory, each queue pair of a peer is one's.
    ///
    /// # Errors
    /// The file system's.
    pub fn register_in(&mut self, root: &Path) -> Result<(), Error> {
        self.rights.register_in(root)
    }

    /// Charges what the program holds to a tenant, together with all sandboxes of that tenant which
    /// share the directory of run-time state.
    ///
    /// # Errors
    /// The file system's.
    pub fn charge_to(&mut self, root: &Path, tenant: &str) -> Result<(), Error> {
        self.rights.charge_to(root, tenant)
    }

    /// Narrows the program, while the program runs, to what the files of `dir` grant the tenant whenever
    /// [`reload`](crate::reload) is called for the same directories. Nothing is granted that was not
    /// granted at the start.
    ///
    /// # Errors
    /// The file system's.
    pub fn follow_policy(&mut self, root: &Path, dir: &Path, tenant: &str) -> Result<(), Error> {
        let now = self.rights.policy().clone().into();
        self.follower = Some(Follower::bind(root, dir, tenant, now)?);
        Ok(())
    }

    /// Writes down what the program is refused, and whom the program connects with.
    pub fn audit(&mut self, audit: Audit) {
        self.rights.audit(audit);
    }

    /// Starts the program, and in this process the threads that serve the program's requests;
    /// `observer` sees each request. From now on, this process passes SIGINT, SIGTERM and the like
    /// on to the program, and may do only what serving takes: this process can no longer make
    /// files, for example.
    ///
    /// # Errors
    /// When this process has threads already, or the sandbox or the program cannot be started.
    pub fn start(
        self,
        program: &Program<'_>,
        observer: Option<Box<dyn Observer>>,
    ) -> Result<Running, Error> {
        let Self { devices, rights, guard, follower } = self;
        // Before any thread: they inherit the blocked signals, and the child is forked.
        let job = Job::begin().map_err(Error::Signals)?;
        let nodes: Vec<DeviceNode> = devices.iter().map(DeviceNode::from).collect();
        let shown = views::shown(&devices);
        let views = OnceCell::new();
        let serve = |guest, served| {
            let made = Views::of(guest, &devices)?;
            views.get_or_init(|| made).serve(served, shown.clone())
        };
        let sysfs = Sysfs { keep: KEEP, serve: &serve };
        let spec = Spawn {
            argv: program.argv,
            devices: &nodes,
            netns: program.netns,
            keep: program.keep,
            preserve_fds: program.preserve_fds,
            sysfs: program.virtual_sysfs.then_some(sysfs),
            install: &|| guard.install(),
        };
        let started = sandbox::spawn(&job, &spec)?;
        let views = match views.into_inner() {
            Some(views) => views,
            None => Views::of(started.gate.pid(), &devices).map_err(Error::Views)?,
        };
        let supervisor = rights.supervisor(&guard, started.listener, &views, None, observer)?;
        threads::start(&supervisor).map_err(Error::Supervisor)?;
        // Once this thread is confined, and so the thread that it starts.
        if let Some(follower) = follower {
            let narrowed = Arc::clone(&supervisor);
            let narrow = move |by| narrowed.narrow(by);
            follower.start(narrow).map_err(Error::Supervisor)?;
        }
        let guest = started.gate.exec()?;
        Ok(Running { job, guest, supervisor, rights, views })
    }
}

/// A program in its sandbox.
#[derive(Debug)]
pub struct Running {
    job: Job,
    guest: Guest,
    supervisor: Arc<Supervisor>,
    rights: Rights,
    views: Views,
}

impl Running {
    /// The program's process.
    #[must_use]
    pub fn tgid(&self) -> Tgid {
        self.guest.tgid()
    }

    /// The supervisor's counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.supervisor.counts()
    }

    /// How many files of `/sys` that are served the program has opened so far: the device's own, which the
    /// kernel answers by itself, are not counted.
    #[must_use]
    pub fn sysfs_files(&self) -> u64 {
        self.views.files_opened()
    }

    /// Looks, when the time has come, whether the program has made a queue pair; says so if not, and
    /// ends the program if that was required.
    ///
    /// # Errors
    /// When there can be no thread, or the program has ended.
    pub fn expect(&self, expected: Expected) -> Result<(), Error> {
        let program = PidFd::open(self.tgid()).map_err(Error::Wait)?;
        let (supervisor, rights) = (Arc::clone(&self.supervisor), self.rights.clone());
        let look = move || {
            std::thread::sleep(expected.patience());
            if supervisor.counts().queue_pairs > 0 || program.has_ended() {
                return;
            }
            log::warn!("{}", expected.complaint("the program"));
            rights.say(expected.event());
            if expected.required
                && let Err(e) = program.signal(KILL)
            {
                log::error!("cannot end the program: {e}");
            }
        };
        let thread = std::thread::Builder::new().name("usage".to_owned());
        thread.spawn(look).map(drop).map_err(Error::Wait)
    }

    /// Waits for the program's end, passes signals on meanwhile, and ends the processes that the
    /// program leaves.
    ///
    /// # Errors
    /// The kernel's, of waiting.
    pub fn wait(&mut self) -> Result<Exit, Error> {
        let ended = self.job.attend(&self.guest);
        let left = sandbox::end_descendants(END_PATIENCE);
        if left > 0 {
            log::warn!(
                "{left} killed processes of the program do not end: the kernel holds \
                 them until the device or file server that they use answers"
            );
        }
        ended.map_err(Error::Wait)
    }
}
