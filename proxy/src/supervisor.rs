//! The supervisor of one sandbox: receives every trap, and sees each through.
//!
//! One thread serves ([`Supervisor::serve`]); it is event-driven, so a request that a stub is
//! executing keeps nobody waiting. A second one looks after processes that end or stop
//! ([`Supervisor::look_after`]).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::arch::AfterIoctl;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::frame;
use verbgate_sys::mem::RemoteMemory;
use verbgate_sys::node;
use verbgate_sys::plant::Watch;
use verbgate_sys::process;
use verbgate_sys::seccomp::AddFd;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::seccomp::bpf::RET_ALLOW;
use verbgate_sys::seccomp::bpf::RET_USER_NOTIF;
use verbgate_sys::seccomp::bpf::SockFilter;
use verbgate_sys::seccomp::bpf::interpret;
use verbgate_sys::window::AddrWindow;
use verbgate_sys::window::FdWindow;

use crate::cm::Queue;
use crate::device::DeviceView;
use crate::device::Devices;
use crate::execute;
use crate::fetch;
use crate::gids::GidView;
use crate::netlink;
use crate::observe::Counts;
use crate::observe::Observer;
use crate::open;
use crate::policy::Policy;
use crate::quiet::Quiet;
use crate::session::Objects;
use crate::session::Session;
use crate::session::Ucontext;
use crate::session::UcontextId;
use crate::workers::shares_memory;

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
    /// Which granted devices the guests find; all when there is none.
    pub found: Option<Arc<dyn DeviceView>>,
    /// Where one sandbox has several supervisors, each for the processes under one filter.
    pub siblings: Option<Siblings>,
    /// Who is told of each request.
    pub observer: Option<Box<dyn Observer>>,
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

/// The end of serving, however it comes.
struct End<'a>(&'a Supervisor);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let Self(supervisor) = self;
        // Nobody may wait for an answer that will not come.
        if std::thread::panicking()
            && let Err(error) = supervisor.hang_up()
        {
            log::error!("programs that ask for RDMA will wait for ever: {error}; end them");
        }
        supervisor.over.store(true, Ordering::Release);
        supervisor.cm.wake();
        if let Some(siblings) = &supervisor.siblings {
            siblings.leave();
        }
    }
}

/// `PTRACE_ATTACH` and `PTRACE_SEIZE`, include/uapi/linux/ptrace.h.
const ATTACHING: [u64; 2] = [16, 0x4206];

/// The supervisor of one sandbox.
pub struct Supervisor {
    pub(crate) listener: Listener,
    pub(crate) window: AddrWindow,
    pub(crate) fds: FdWindow,
    judge: Option<Vec<SockFilter>>,
    pub(crate) devices: Devices,
    pub(crate) policy: Arc<Policy>,
    /// The stub's code.
    pub(crate) code: OwnedFd,
    pub(crate) watch: Watch,
    /// Whether devices are opened through mounts of their own; if not, it has been said.
    pub(crate) own_mounts: bool,
    pub(crate) gids: Option<Arc<GidView>>,
    pub(crate) found: Option<Arc<dyn DeviceView>>,
    siblings: Option<Siblings>,
    /// Nobody is left to serve.
    over: AtomicBool,
    /// Commands to the connection manager.
    pub(crate) cm: Queue,
    /// What stands in a stub's table when no ucontext does.
    pub(crate) nothing: File,
    pub(crate) state: Mutex<State>,
}

/// What the serving thread and the one that looks after processes share.
pub(crate) struct State {
    pub(crate) session: Session,
    pub(crate) quiet: Quiet,
    pub(crate) counts: Counts,
    pub(crate) observer: Option<Box<dyn Observer>>,
    /// Sockets by which guests find devices.
    pub(crate) netlinks: netlink::Sockets,
    /// Traps received out of turn, while a stub was being planted.
    pub(crate) backlog: VecDeque<Notification>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("devices", &self.devices).finish_non_exhaustive()
    }
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
            found,
            siblings,
            observer,
        } = config;
        if let Err(e) = listener.wake_synchronously() {
            log::debug!("this kernel wakes across processors (6.6 and later need not): {e}");
        }
        let own_mounts = node::open(Path::new("/dev/null"), libc::O_CLOEXEC)
            .inspect_err(|e| {
                log::warn!(
                    "devices cannot be opened through mounts of their own ({e}): a guest can \
                     reopen what it was given through /proc/self/fd, and use it unsupervised; \
                     run as root to prevent it"
                );
            })
            .is_ok();
        Ok(Self {
            own_mounts,
            listener,
            window,
            fds,
            judge,
            devices,
            policy,
            gids,
            found,
            siblings: siblings.inspect(Siblings::join),
            over: AtomicBool::new(false),
            code: frame::code_memfd(&Native::stub_code().bytes)?,
            watch: Watch::default(),
            cm: Queue::new()?,
            nothing: File::open("/dev/null")?,
            state: Mutex::new(State {
                session: Session::default(),
                quiet: Quiet::default(),
                counts: Counts::default(),
                observer,
                netlinks: netlink::Sockets::new(),
                backlog: VecDeque::new(),
            }),
        })
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.lock().counts.clone()
    }

    /// Serves no more: what guests ask from now on, and what waits, fails with ENOSYS, as if the
    /// supervisor had died; what they have goes on.
    ///
    /// # Errors
    /// See [`Listener::hang_up`].
    pub fn hang_up(&self) -> io::Result<()> {
        self.listener.hang_up()
    }

    /// Serves until no task is left under the filter. If that panics, it hangs up.
    ///
    /// # Errors
    /// When the listener fails; everything that one guest can cause is answered instead.
    pub fn serve(&self) -> io::Result<()> {
        let _end = End(self);
        self.serve_all()
    }

    /// Whether [`Supervisor::serve`] has returned, or is about to.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn serve_all(&self) -> io::Result<()> {
        loop {
            // Before 6.11, who waits in the kernel is not told that nobody is left. A process that
            // serves one sandbox ends with it; others have to ask, which costs a call for each trap.
            if self.siblings.is_some() {
                match self.listener.wait(-1) {
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
                    _ => {}
                }
            }
            let next = self.state.lock().backlog.pop_front();
            let trap = match next {
                Some(trap) => trap,
                None => match self.listener.receive() {
                    Ok(trap) => trap,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    // Either the caller was killed before it was received, or nobody is left.
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                        match self.listener.wait(0) {
                            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
                            _ => continue,
                        }
                    }
                    Err(e) => return Err(e),
                },
            };
            let mut state = self.state.lock();
            state.counts.notifications += 1;
            self.handle(&mut state, trap);
            state.counts.calls = verbgate_sys::calls_made();
        }
    }

    fn handle(&self, state: &mut State, trap: Notification) {
        let n = &Native::NUMBERS;
        if state.session.stubs.contains_key(&trap.tid) {
            return self.stub_trapped(state, trap);
        }
        if let Some(reply) = self.judged(&trap) {
            return self.answer(trap, reply);
        }
        let is = |nr: Option<u32>| nr == Some(trap.nr);
        if trap.nr == n.ioctl || trap.nr == n.write || trap.nr == n.writev {
            self.request(state, trap);
        } else if is(n.open) || trap.nr == n.openat || trap.nr == n.openat2 {
            self.open(state, trap);
        } else if trap.nr == n.close || is(n.dup2) || trap.nr == n.dup3 || trap.nr == n.close_range
        {
            self.close(state, trap);
        } else if trap.nr == n.socket {
            self.netlink_socket(state, trap);
        } else if n.sockets.all().contains(&trap.nr) {
            self.netlink_call(state, trap);
        } else if trap.nr == n.ptrace {
            self.trace(state, trap);
        } else if n.credentials.iter().any(|(_, nr)| *nr == trap.nr) {
            self.retire(state, &trap);
            self.answer(trap, Reply::Continue);
        } else {
            // What is left touches the stub's memory.
            state.quiet.warn("stub memory", || {
                format!("thread {} may not touch the stub's memory (call {})", trap.tid, trap.nr)
            });
            self.answer(trap, Reply::Errno(libc::EPERM));
        }
    }

    /// The answer to what the filter of ours would not have asked about. Nothing that it looks at can
    /// change: it judges the arguments, which the kernel has copied.
    fn judged(&self, trap: &Notification) -> Option<Reply> {
        let judge = self.judge.as_ref()?;
        let verdict = interpret(judge, trap.nr, trap.arch, trap.args)?;
        match verdict {
            RET_USER_NOTIF => None,
            RET_ALLOW => Some(Reply::Continue),
            other => Some(Reply::Errno(i32::try_from(other & 0xffff).unwrap_or(libc::EPERM))),
        }
    }

    /// Answers a guest's trap. A caller that was killed meanwhile needs no answer.
    pub(crate) fn answer(&self, trap: Notification, reply: Reply) {
        if let Err(e) = self.listener.reply(trap.id, reply)
            && e.raw_os_error() != Some(libc::ENOENT)
        {
            log::error!("cannot answer thread {}: {e}", trap.tid);
        }
    }

    pub(crate) fn refuse(&self, trap: Notification, errno: Errno) {
        self.answer(trap, Reply::Errno(errno.0));
    }

    /// The process that a trapped thread belongs to, by its memory if it is planted.
    pub(crate) fn process_of(&self, state: &State, trap: &Notification) -> Option<Tgid> {
        let memory = RemoteMemory(trap.tid);
        if let Some((owner, _)) = fetch::first(&memory, self.window, 0, 0)
            && let Some(tgid) = state.session.owners.get(&owner)
            && shares_memory(state, *tgid, trap.tid)
        {
            return Some(*tgid);
        }
        process::tgid(trap.tid).ok()
    }

    fn open(&self, state: &mut State, trap: Notification) {
        let memory = RemoteMemory(trap.tid);
        let unserved = libc::O_PATH | libc::O_DIRECTORY;
        let wanted = open::wanted(&trap, &memory).filter(|w| w.flags & unserved == 0);
        let path = wanted.and_then(|w| open::path(&memory, w.path));
        let device = path.and_then(|path| self.devices.by_path(open::as_path(&path)));
        let (Some(wanted), Some(device)) = (wanted, device) else {
            return self.answer(trap, Reply::Continue);
        };
        let name = self.devices.get(device).map_or("?", |d| d.name.as_str());
        let opened = self.open_device(state, &trap, device, wanted.flags);
        if let Err(errno) = opened {
            state.quiet.warn("open failed", || format!("cannot open {name}: {errno}"));
            self.refuse(trap, errno);
        } else {
            state.counts.opened += 1;
        }
        if let Some(observer) = &mut state.observer {
            observer.opened(trap.tid, name, opened);
        }
    }

    fn open_device(
        &self,
        state: &mut State,
        trap: &Notification,
        device: usize,
        flags: i32,
    ) -> Result<GuestFd, Errno> {
        let errno = |e: io::Error| Errno(e.raw_os_error().unwrap_or(libc::EIO));
        let tgid = self.process_of(state, trap).ok_or(Errno(libc::ESRCH))?;
        // The kernel checks the opener's network namespace (ib_uverbs_open), in exclusive mode.
        if let Err(e) = process::enter_network_of(trap.tid) {
            log::debug!("cannot enter the network namespace of thread {}: {e}", trap.tid);
        }
        let granted = self.devices.get(device).ok_or(Errno(libc::ENODEV))?;
        let (file, mount) = granted.open(flags).map_err(errno)?;
        state.session.process(tgid).map_err(errno)?;
        let cloexec = flags & libc::O_CLOEXEC != 0;
        let at = open::free_number(trap.tid, self.fds).and_then(|fd| u32::try_from(fd.0).ok());
        let how = AddFd { at, cloexec, answer: true };
        use std::os::fd::AsFd;
        let given = match self.listener.add_fd(trap.id, file.as_fd(), how) {
            // Its limit has been lowered below the window: such a descriptor works but for
            // commands given with write(2).
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => {
                self.listener.add_fd(trap.id, file.as_fd(), AddFd { at: None, ..how })
            }
            other => other,
        };
        let fd = given.map_err(errno)?;
        let id = UcontextId(state.session.number());
        let ucontext = Ucontext {
            device,
            mount,
            holders: Vec::new(),
            asked: false,
            objects: Objects::default(),
        };
        state.session.opens.extend(mount.map(|mount| (mount, device)));
        state.session.release(tgid, fd);
        state.session.ucontexts.insert(id, ucontext);
        state.session.hold(tgid, fd, id);
        Ok(fd)
    }

    /// A descriptor of the window is about to be closed or replaced: a stub must not hold the
    /// ucontext any longer than the guest does.
    fn close(&self, state: &mut State, trap: Notification) {
        let n = &Native::NUMBERS;
        let low = |arg: u64| u32::try_from(arg & 0xffff_ffff).unwrap_or(u32::MAX);
        let [a, b, ..] = trap.args;
        let (first, last) = if trap.nr == n.close_range {
            (low(a).max(self.fds.first), low(b).min(self.fds.end() - 1))
        } else if trap.nr == n.close {
            (low(a), low(a))
        } else {
            (low(b), low(b))
        };
        if let Some(tgid) = self.process_of(state, &trap) {
            for fd in (first..=last).filter_map(|fd| i32::try_from(fd).ok()) {
                self.unbind(state, tgid, GuestFd(fd));
                state.session.release(tgid, GuestFd(fd));
            }
        }
        self.answer(trap, Reply::Continue);
    }

    /// Takes a ucontext out of the stubs that hold it for a descriptor.
    pub(crate) fn unbind(&self, state: &mut State, tgid: Tgid, fd: GuestFd) {
        let Some(process) = state.session.processes.get_mut(&tgid) else { return };
        for worker in &mut process.workers {
            if worker.bound.is_some_and(|(bound, _)| bound == fd) {
                execute::unbind(&self.listener, worker, &self.nothing);
            }
        }
    }

    /// A process changes its credentials: its stubs have the old ones, and are replaced.
    fn retire(&self, state: &mut State, trap: &Notification) {
        let Some(tgid) = self.process_of(state, trap) else { return };
        let Some(process) = state.session.processes.get_mut(&tgid) else { return };
        for worker in &mut process.workers {
            worker.retire = true;
        }
        self.send_on(state, tgid, AfterIoctl::Exit, |_| true);
    }

    /// A debugger may attach to anything but a stub.
    fn trace(&self, state: &mut State, trap: Notification) {
        let several = self.siblings.as_ref().is_some_and(|siblings| siblings.count() > 1);
        if several && ATTACHING.contains(&trap.args[0]) {
            state.quiet.warn("attached beside siblings", || {
                format!(
                    "thread {} may not trace others while processes were started in its container \
                     from outside",
                    trap.tid
                )
            });
            return self.answer(trap, Reply::Errno(libc::EPERM));
        }
        let target = execute::guest_fd(trap.args[1]).0;
        let workers = state.session.processes.values().flat_map(|process| &process.workers);
        if workers.flat_map(|worker| &worker.ids).any(|id| *id == target) {
            state.quiet.warn("stub traced", || {
                format!("thread {} may not trace the stub {target}", trap.tid)
            });
            return self.answer(trap, Reply::Errno(libc::EPERM));
        }
        self.answer(trap, Reply::Continue);
    }
}
