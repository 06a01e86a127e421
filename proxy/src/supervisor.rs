//! The supervisor of one sandbox: the state that all its threads share.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use parking_lot::Condvar;
use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use rustix::event::eventfd;
use verbgate_abi::Errno;
use verbgate_sys::Tid;
use verbgate_sys::arch::Native;
use verbgate_sys::frame;
use verbgate_sys::frame::Ready;
use verbgate_sys::frame::SealedCode;
use verbgate_sys::node;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::seccomp::bpf::SockFilter;
use verbgate_sys::seccomp::rules;
use verbgate_sys::seccomp::rules::About;
use verbgate_sys::seccomp::rules::Verdict;
use verbgate_sys::token::Tokens;
use verbgate_sys::window::AddrWindow;
use verbgate_sys::window::FdWindow;

use crate::books::Books;
use crate::cm::queue::Queue;
use crate::connections::Register;
use crate::counted::Counted;
use crate::crew::Crew;
use crate::device::DeviceView;
use crate::device::Devices;
use crate::gids::GidView;
use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::narrowed::Chain;
use crate::netlink::socket::Sockets;
use crate::observe::Counts;
use crate::observe::Done;
use crate::observe::Observer;
use crate::policy::Policy;
use crate::quiet::Quiet;
use crate::quota::Amounts;
use crate::session::Guest;
use crate::session::Registry;
use crate::tracer::Tracer;

/// What a sandbox is made of.
pub struct Config {
    /// The filter's listener.
    pub listener: Listener,
    /// The window that the filter guards.
    pub window: AddrWindow,
    /// The descriptor numbers that the filter watches.
    pub fds: FdWindow,
    /// The filter that decides what is served, where the one that notifies was made by somebody
    /// else and asks about more; all is served when there is none.
    pub judge: Option<Vec<SockFilter>>,
    /// Granted devices.
    pub devices: Devices,
    /// What may be asked for.
    pub policy: Arc<Policy>,
    /// Which GIDs the guests see; all when there is none.
    pub gids: Option<Arc<GidView>>,
    /// What the devices count of the guests' own queue pairs.
    pub counted: Option<Arc<Counted>>,
    /// Which granted devices the guests find; all when there is none.
    pub found: Option<Arc<dyn DeviceView>>,
    /// Where one sandbox has several supervisors, each for the processes under one filter.
    pub siblings: Option<Siblings>,
    /// The connections of the host's sandboxes, of which none may take another's.
    pub register: Option<Arc<Register>>,
    /// What the sandbox's tenant holds.
    pub ledger: Arc<Ledger>,
    /// Who is told of each request.
    pub observer: Option<Box<dyn Observer>>,
    /// The memory of this process's own control group, as soon as the process is in one that is bounded.
    pub memory: Arc<OnceLock<Memory>>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("window", &self.window)
            .field("fds", &self.fds)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

/// The supervisors of one sandbox that serve at a time.
///
/// None of them knows the stubs of the others, so while there are several, guests attach to
/// nobody by ptrace(2).
#[derive(Clone, Debug, Default)]
pub struct Siblings(Arc<AtomicUsize>);

impl Siblings {
    /// How many serve.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn join(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The supervisor of one sandbox.
pub struct Supervisor {
    pub(crate) listener: Listener,
    pub(crate) window: AddrWindow,
    pub(crate) fds: FdWindow,
    pub(crate) judge: Option<Vec<SockFilter>>,
    pub(crate) devices: Devices,
    pub(crate) policy: Arc<Policy>,
    /// The code of all stubs.
    pub(crate) code: SealedCode,
    /// A frame for the next stub.
    pub(crate) ready: Ready,
    /// Policies by which the guests were narrowed since; the last one counts.
    pub(crate) narrowed: Chain,
    /// Whether devices are opened through mounts of their own; if not, it has been said.
    pub(crate) own_mounts: bool,
    /// What guests get in the place of open devices, if that can be made; if not, it has been said.
    pub(crate) tokens: Option<Tokens>,
    /// Whether the numbers by which tokens are known come again.
    pub(crate) numbers_recur: bool,
    /// Held while files are closed whose tokens have ended.
    pub(crate) releasing: Mutex<()>,
    pub(crate) gids: Option<Arc<GidView>>,
    pub(crate) counted: Option<Arc<Counted>>,
    pub(crate) found: Option<Arc<dyn DeviceView>>,
    pub(crate) siblings: Option<Siblings>,
    /// Nobody is left to serve.
    over: AtomicBool,
    /// Becomes readable then.
    pub(crate) ended: OwnedFd,
    /// A guest has come, or nobody is left to serve: with the registry.
    pub(crate) entered: Condvar,
    /// What calls are about, by number.
    pub(crate) concerns: HashMap<u32, About>,
    /// The threads that serve.
    pub(crate) crew: Crew,
    /// Whose turn it is to receive, where several supervisors share a process.
    pub(crate) turn: Mutex<()>,
    /// The thread that traces.
    pub(crate) tracer: Tracer,
    /// Guests in whose inboxes the tracer has left something, for those who serve.
    pub(crate) left: Mutex<VecDeque<Arc<Guest>>>,
    /// Commands to the connection manager.
    pub(crate) cm: Queue,
    /// What stands in a stub's table when no ucontext does.
    pub(crate) nothing: File,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) books: Mutex<Books>,
    /// The connections of the host's sandboxes.
    pub(crate) register: Option<Arc<Register>>,
    /// What the tenant holds.
    pub(crate) ledger: Arc<Ledger>,
    memory: Arc<OnceLock<Memory>>,
    /// Sockets by which guests find devices.
    pub(crate) netlinks: Mutex<Sockets>,
    pub(crate) told: Mutex<Told>,
    /// Somebody is told of each request.
    pub(crate) is_observed: bool,
}

/// Who is told of what happens.
pub(crate) struct Told {
    pub(crate) quiet: Quiet,
    pub(crate) counts: Counts,
    pub(crate) observer: Option<Box<dyn Observer>>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("devices", &self.devices).finish_non_exhaustive()
    }
}

/// What makes tokens, and whether the numbers by which they are known come again; none where this process
/// may not, or the kernel cannot. Whatever a guest could bring about is an error, and no reason to go
/// without.
fn tokens() -> io::Result<Option<(Tokens, bool)>> {
    let made = Tokens::new().and_then(|tokens| {
        let token = tokens.make(c"null", File::open("/dev/null")?)?;
        Ok((tokens, !token.for_ever))
    });
    match made {
        Err(e) if INCAPABLE.contains(&e.raw_os_error().unwrap_or(0)) => {
            log::warn!(
                "guests get the devices themselves ({e}): a descriptor that a guest sends out of \
                 the sandbox works there, unsupervised; run with CAP_MKNOD to prevent that"
            );
            Ok(None)
        }
        Err(e) if e.raw_os_error() == Some(libc::EMFILE) => Err(io::Error::new(
            e.kind(),
            format!("no inotify instance is left ({e}); raise fs.inotify.max_user_instances"),
        )),
        made => made.map(Some),
    }
}

/// Without a capability, by a device cgroup, without tmpfs, before Linux 5.2.
const INCAPABLE: [i32; 4] = [libc::EPERM, libc::EACCES, libc::ENODEV, libc::ENOSYS];

/// What the rules of the filter say that calls are about, by number.
fn concerns() -> HashMap<u32, About> {
    let rules = rules::native::<Native>();
    let asked = rules.iter().filter(|rule| rule.verdict == Verdict::Notify);
    asked.map(|rule| (rule.nr, rule.about)).collect()
}

impl Supervisor {
    /// A supervisor, ready to serve.
    ///
    /// # Errors
    /// When memory or descriptors run out.
    pub fn new(config: Config) -> io::Result<Self> {
        let Config {
            listener,
            window,
            fds,
            judge,
            devices,
            policy,
            gids,
            counted,
            found,
            siblings,
            register,
            ledger,
            observer,
            memory,
        } = config;
        if let Err(e) = listener.wake_synchronously() {
            log::debug!(
                "this kernel wakes threads across processors, which is slow (6.6 and later need \
                 not): {e}"
            );
        }
        let own_mounts = node::open(Path::new("/dev/null"), libc::O_CLOEXEC)
            .inspect_err(|e| {
                log::warn!(
                    "devices cannot be opened through mounts of their own ({e}): a guest can \
                     reopen a device through /proc/self/fd, and use the device unsupervised; \
                     run as root to prevent that"
                );
            })
            .is_ok();
        let tokens = if own_mounts { tokens()? } else { None };
        let numbers_recur = tokens.as_ref().is_some_and(|(_, recur)| *recur);
        let is_observed = observer.as_ref().is_some_and(|one| one.looks_at_objects());
        let told = Told { quiet: Quiet::default(), counts: Counts::default(), observer };
        Ok(Self {
            own_mounts,
            tokens: tokens.map(|(tokens, _)| tokens),
            numbers_recur,
            releasing: Mutex::default(),
            listener,
            window,
            fds,
            judge,
            devices,
            policy,
            narrowed: Chain::default(),
            gids,
            counted,
            found,
            siblings: siblings.inspect(Siblings::join),
            register,
            over: AtomicBool::new(false),
            ended: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            entered: Condvar::new(),
            concerns: concerns(),
            crew: Crew::default(),
            turn: Mutex::default(),
            code: SealedCode::new(window)?,
            ready: Ready::default(),
            tracer: Tracer::default(),
            left: Mutex::default(),
            cm: Queue::new()?,
            nothing: frame::nothing()?,
            registry: Mutex::default(),
            books: Mutex::new(Books::with(Arc::clone(&ledger))),
            ledger,
            memory,
            netlinks: Mutex::default(),
            told: Mutex::new(told),
            is_observed,
        })
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.told.lock().counts.clone();
        counts.calls = verbgate_sys::calls_made();
        counts
    }

    /// What the devices count of the sandbox's own queue pairs.
    #[must_use]
    pub fn counted(&self) -> Option<&Counted> {
        self.counted.as_deref()
    }

    /// What the sandbox holds of its tenant's quotas.
    #[must_use]
    pub fn holds(&self) -> Amounts {
        self.ledger.held()
    }

    /// Serves no more: what guests ask from now on, and what waits, fails with ENOSYS, as if the
    /// supervisor had died; what they have goes on.
    ///
    /// # Errors
    /// See [`Listener::hang_up`].
    pub fn hang_up(&self) -> io::Result<()> {
        self.end();
        self.listener.hang_up(&self.crew.others())
    }

    /// Whether [`Supervisor::serve`] has returned, or is about to.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Nobody is left to serve.
    pub(crate) fn end(&self) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.cm.wake();
        self.tracer.end();
        // The counter cannot overflow.
        let _ = rustix::io::write(&self.ended, &1_u64.to_ne_bytes());
        let _registry = self.registry.lock();
        self.entered.notify_all();
        self.crew.dismiss();
        if let Some(siblings) = &self.siblings {
            siblings.leave();
        }
    }

    /// Whether a guest may have the supervisor keep more.
    ///
    /// # Errors
    /// `ENOMEM`, before the kernel has the supervisor wait for memory, or ends it.
    pub(crate) fn spared(&self) -> Result<(), Errno> {
        if !self.memory.get().is_some_and(Memory::is_short) {
            return Ok(());
        }
        self.warn("memory is short", || {
            "the supervisor's control group is nearly full, so no more is opened or made: let the program keep less, or \
             raise memory.high of the group"
                .to_owned()
        });
        Err(Errno(libc::ENOMEM))
    }

    pub(crate) fn count_notification(&self) {
        self.told.lock().counts.notifications += 1;
    }

    /// A request is done with.
    pub(crate) fn told(&self, done: &Done<'_>) {
        let mut told = self.told.lock();
        told.counts.add(done);
        if let Some(observer) = &mut told.observer {
            observer.done(done);
        }
    }

    /// A request comes sooner than a rate allows.
    pub(crate) fn beyond_rate(&self, tid: Tid, rule: &str, waits: bool) {
        let mut told = self.told.lock();
        told.counts.beyond_rate += 1;
        if let Some(observer) = &mut told.observer {
            observer.beyond_rate(tid, rule, waits);
        }
    }

    /// Writes a line of the log that the operator should see, unless one of its kind was written
    /// just now.
    pub(crate) fn warn(&self, kind: &'static str, line: impl FnOnce() -> String) {
        self.told.lock().quiet.warn(kind, line);
    }

    /// The same for what programs cause in passing.
    pub(crate) fn note(&self, kind: &'static str, line: impl FnOnce() -> String) {
        self.told.lock().quiet.note(kind, line);
    }
}
