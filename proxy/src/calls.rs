//! Calls that are not requests: opening a device, closing and duplicating its descriptors, changing
//! credentials, attaching a debugger, and touching the stub's memory.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::arch::AfterIoctl;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::caller::Caller;
use verbgate_sys::process;
use verbgate_sys::seccomp::AddFd;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;

use crate::books::Known;
use crate::books::UcontextId;
use crate::device::Kind;
use crate::execute;
use crate::fetch::Form;
use crate::fetch::errno;
use crate::open;
use crate::open::Wanted;
use crate::session::Attach;
use crate::session::Guest;
use crate::session::GuestState;
use crate::supervisor::Supervisor;
use crate::task::Event;
use crate::tokens::Unopened;

impl Supervisor {
    /// What may open a device.
    pub(crate) fn open(&self, trap: Notification) {
        let caller = self.caller(&trap);
        let unserved = libc::O_PATH | libc::O_DIRECTORY;
        let wanted = open::wanted(&trap, &caller).filter(|w| w.flags & unserved == 0);
        let device = wanted.map_or(Ok(None), |wanted| open::device(caller, &self.devices, wanted));
        let (wanted, device) = match (wanted, device) {
            (Some(wanted), Ok(Some(device))) => (wanted, device),
            // Nobody can tell what the path means, and the kernel would open a node that is closed to the caller.
            (_, Err(errno)) => return self.refuse(trap, errno),
            _ => return self.answer(trap, Reply::Continue),
        };
        match self.open_device(&trap, device, wanted) {
            // The tracer tells of the open.
            Ok(None) => {}
            Ok(Some(given)) => self.opened(&trap, device, Ok(given)),
            Err(unopened) => self.opened(&trap, device, Err(unopened)),
        }
    }

    /// Tells of an open.
    pub(crate) fn opened(
        &self,
        trap: &Notification,
        device: usize,
        opened: Result<GuestFd, Unopened>,
    ) {
        let name = self.devices.get(device).map_or("?", |d| d.name.as_str());
        if let Err(Unopened { errno, answered, said }) = opened {
            if !said {
                self.warn("open failed", || format!("cannot open {name}: {errno}"));
            }
            if !answered {
                self.refuse(*trap, errno);
            }
        }
        let opened = opened.map_err(|unopened| unopened.errno);
        let mut told = self.told.lock();
        told.counts.opened += u64::from(opened.is_ok());
        if let Some(observer) = &mut told.observer {
            observer.opened(trap.tid, name, opened);
        }
    }

    /// Whether a file may be written. Of a device the kernel asks the control group, which in a container denies
    /// the device to everyone, while an open is the supervisor's. What the path means by the time of an open is
    /// judged then.
    pub(crate) fn access(&self, trap: Notification) {
        let caller = self.caller(&trap);
        let device = open::asked_about(&trap)
            .and_then(|wanted| open::device(caller, &self.devices, wanted).ok().flatten())
            .filter(|device| !self.narrowed.is_withdrawn(*device));
        self.answer(trap, device.map_or(Reply::Continue, |_| Reply::Value(0)));
    }

    fn open_device(
        &self,
        trap: &Notification,
        device: usize,
        wanted: Wanted,
    ) -> Result<Option<GuestFd>, Unopened> {
        let caller = self.caller(trap);
        self.spared()?;
        let guest = self.enter(caller)?;
        // The kernel checks the opener's network namespace (ib_uverbs_open), in exclusive mode; and
        // this thread may be in that of the guest that it served last.
        let network = caller.network().map_err(errno)?;
        process::enter_network(&network).map_err(errno)?;
        let granted = self.devices.get(device).ok_or(Errno(libc::ENODEV))?;
        self.check_left(device, "open").map_err(|errno| Unopened { said: true, ..errno.into() })?;
        let flags = wanted.flags;
        if let Some(tokens) = self.tokens.as_ref().filter(|_| granted.kind != Kind::Cm) {
            return self.open_by_token(trap, (&guest, device), wanted, tokens).map(|()| None);
        }
        let charged = self.charge_open(trap, granted.kind)?;
        let (file, id) = match (&self.tokens, granted.kind) {
            (Some(tokens), Kind::Cm) => {
                let (file, id) = self.open_cm(device, flags, tokens).map_err(errno)?;
                (Arc::new(file), id)
            }
            _ => {
                let (file, mount) = granted.open(flags).map_err(|e| self.uncharge(&charged, e))?;
                let file = Arc::new(file);
                let kept = mount.is_none().then(|| Arc::clone(&file));
                let mut books = self.books.lock();
                let id = books.open(device, mount);
                if let Some(ucontext) = books.get_mut(id) {
                    ucontext.account.keep(&charged);
                    ucontext.kept = kept;
                }
                (file, id)
            }
        };
        let cloexec = flags & libc::O_CLOEXEC != 0;
        let mut given = self.give(&guest, trap, file.as_fd(), cloexec);
        if given == Err(Errno::EMFILE) && granted.kind.works_unwatched() {
            let how = AddFd { at: None, cloexec, answer: true };
            given = self.listener.add_fd(trap.id, file.as_fd(), how).map_err(errno);
        } else if given == Err(Errno::EMFILE) {
            self.warn_no_number(&guest);
        }
        let mut books = self.books.lock();
        match given {
            Ok(fd) => books.hold(guest.key, fd, id),
            Err(_) => drop(books.close(id)),
        }
        Ok(Some(given?))
    }

    pub(crate) fn warn_no_number(&self, guest: &Guest) {
        self.warn("no number", || {
            format!(
                "process {} has no free descriptor number from {} on, where RDMA descriptors are; \
                 give the process a higher limit (ulimit -n), or start verbgate with the lower \
                 limit that the process sets itself",
                guest.process.tgid(),
                self.fds.first
            )
        });
    }

    /// Gives a guest a descriptor of a watched number, which ends its call.
    ///
    /// `EMFILE`: every number that its limit leaves it is taken.
    pub(crate) fn give(
        &self,
        guest: &Guest,
        trap: &Notification,
        file: impl AsFd,
        cloexec: bool,
    ) -> Result<GuestFd, Errno> {
        let caller = self.caller(trap);
        let first = self.fds.first;
        let mut next = guest.next_fd.lock();
        let mut at = (*next).clamp(first, self.fds.end() - 1);
        let mut wrapped = at == first;
        loop {
            let free = open::free_number(caller, self.fds, at).map_err(errno)?;
            let given = free.map(|free| {
                let how = AddFd { at: Some(free), cloexec, answer: true };
                (free, self.listener.add_fd(trap.id, file.as_fd(), how))
            });
            match given {
                Some((free, Ok(fd))) => {
                    *next = free + 1;
                    return Ok(fd);
                }
                // Beyond its limit, or beyond the window: from the beginning, once.
                Some((_, Err(e))) if e.raw_os_error() != Some(libc::EBADF) => return Err(errno(e)),
                _ if wrapped => return Err(Errno::EMFILE),
                _ => {
                    wrapped = true;
                    at = first;
                }
            }
        }
    }

    /// Descriptors of the window are about to be closed or replaced: a stub must not hold the
    /// ucontext any longer than the guest does.
    pub(crate) fn close(&self, trap: Notification) {
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
        let Some(guest) = self.known(self.caller(&trap)) else {
            return self.answer(trap, Reply::Continue);
        };
        let held = self.books.lock().held_by(guest.key, first..=last);
        if held.is_empty() {
            return self.answer(trap, Reply::Continue);
        }
        let mut books = self.books.lock();
        held.iter().for_each(|fd| books.release(guest.key, *fd));
        drop(books);
        self.post(&guest, Event::Close(trap, held));
    }

    /// Takes a ucontext out of the stubs that hold it for a descriptor.
    pub(crate) fn unbind(&self, state: &mut GuestState, fd: GuestFd) {
        self.unbind_if(state, |bound, _| bound == fd);
    }

    /// Takes what is so out of the stubs that hold it.
    pub(crate) fn unbind_if(
        &self,
        state: &mut GuestState,
        is: impl Fn(GuestFd, UcontextId) -> bool,
    ) {
        for worker in &mut state.workers {
            if worker.bound.is_some_and(|(fd, id)| is(fd, id)) {
                execute::unbind(&self.listener, worker, &self.nothing);
            }
        }
    }

    /// `dup` and `fcntl(F_DUPFD)` of a descriptor of the window: of an RDMA descriptor, the
    /// duplicate must have a watched number, too.
    pub(crate) fn duplicate(&self, trap: Notification) {
        let caller = self.caller(&trap);
        let fd = execute::guest_fd(trap.args[0]);
        match self.duplicated(caller, &trap, fd) {
            Ok(true) => {}
            Ok(false) => self.answer(trap, Reply::Continue),
            Err(errno) => self.refuse(trap, errno),
        }
    }

    fn duplicated(
        &self,
        caller: Caller<'_>,
        trap: &Notification,
        fd: GuestFd,
    ) -> Result<bool, Errno> {
        // As for a write: whatever is no RDMA descriptor is the kernel's to duplicate.
        let Some(id) = self.means(caller, fd, Form::Write(0))? else { return Ok(false) };
        let n = &Native::NUMBERS;
        let least = if trap.nr == n.fcntl { trap.args[2] } else { 0 };
        if least > u64::from(self.fds.end()) {
            return Ok(false);
        }
        let cloexec = trap.nr == n.fcntl && trap.args[1] & 0xffff_ffff != 0;
        let at = u32::try_from(least).unwrap_or(0);
        let guest = self.enter(caller)?;
        let known = self.books.lock().known(id);
        if let Some(Known::Token(..)) = known {
            return Ok(self.duplicate_token(&guest, trap, (fd, at, cloexec), id));
        }
        let file = self.file_of(caller, fd, id)?;
        let mut next = guest.next_fd.lock();
        *next = at.max(*next);
        drop(next);
        let given = self.give(&guest, trap, &file, cloexec)?;
        self.books.lock().hold(guest.key, given, id);
        Ok(true)
    }

    /// A process changes its credentials: its stubs have the old ones, and are replaced.
    pub(crate) fn credentials(&self, trap: Notification) {
        match self.known(self.caller(&trap)) {
            Some(guest) if guest.planted.load(Ordering::Acquire) => {
                self.post(&guest, Event::Retire(trap));
            }
            _ => self.answer(trap, Reply::Continue),
        }
    }

    /// Ends a guest's stubs, each as soon as it waits.
    pub(crate) fn retire(&self, state: &mut GuestState) {
        for worker in &mut state.workers {
            worker.retire = true;
        }
        self.send_on(state, AfterIoctl::EXIT, |_| true);
    }

    /// A debugger may attach (`PTRACE_ATTACH`, `PTRACE_SEIZE`) to anything but a stub.
    pub(crate) fn trace(&self, trap: Notification) {
        let several = self.siblings.as_ref().is_some_and(|siblings| siblings.count() > 1);
        if several {
            self.warn("attached beside siblings", || {
                format!(
                    "thread {} may not trace others (ptrace) while the container has processes \
                     that were started from outside (exec); end those processes first",
                    trap.tid
                )
            });
            return self.answer(trap, Reply::Errno(libc::EPERM));
        }
        let target = execute::guest_fd(trap.args[1]).0;
        let Ok(attacher) = self.caller(&trap).thread() else {
            return self.refuse(trap, Errno(libc::ESRCH));
        };
        let may = self.registry.lock().attach(attacher, target);
        match may {
            Attach::Granted => self.answer(trap, Reply::Continue),
            Attach::Stub => {
                self.warn("stub traced", || {
                    format!("thread {} may not trace the stub {target}", trap.tid)
                });
                self.refuse(trap, Errno::EPERM);
            }
            Attach::Full => {
                self.warn("attached by many", || {
                    format!(
                        "thread {} may not trace others (ptrace): too many threads of the sandbox do \
                         so already; let some of these threads end",
                        trap.tid
                    )
                });
                self.refuse(trap, Errno::EPERM);
            }
        }
    }

    /// pidfd_getfd(2).
    pub(crate) fn take_file(&self, trap: Notification) {
        let [pidfd, at, flags, ..] = trap.args;
        // The kernel takes an unsigned int.
        if flags & u64::from(u32::MAX) != 0 {
            return self.refuse(trap, Errno(libc::EINVAL));
        }
        let (pidfd, at) = (execute::guest_fd(pidfd), execute::guest_fd(at));
        let taken = self.caller(&trap).file_of(pidfd, at);
        let how = AddFd { cloexec: true, answer: true, ..AddFd::default() };
        let given = taken.and_then(|file| match file.get() {
            Some(file) => self.listener.add_fd(trap.id, file.as_fd(), how).map(drop),
            None => Err(std::io::Error::from_raw_os_error(libc::EBADF)),
        });
        if let Err(e) = given {
            self.refuse(trap, errno(e));
        }
    }

    /// What would touch the stub's memory.
    pub(crate) fn stub_memory(&self, trap: Notification) {
        // A new stub that was killed on its way is no thread of the guest's own.
        if self.listener.is_valid(trap.id) {
            self.warn("stub memory", || {
                format!("thread {} may not touch the stub's memory (call {})", trap.tid, trap.nr)
            });
        }
        self.answer(trap, Reply::Errno(libc::EPERM));
    }
}
