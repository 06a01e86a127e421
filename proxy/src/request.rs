//! The way of a request, stage by stage, and what a stub's traps mean.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use verbgate_abi::Errno;
use verbgate_abi::request::Request;
use verbgate_abi::wire;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::HDR_LEN;
use verbgate_sys::GuestFd;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::arch::stub_fd;
use verbgate_sys::caller::Caller;
use verbgate_sys::caller::Meant;
use verbgate_sys::frame::Frame;
use verbgate_sys::mem;
use verbgate_sys::mem::Range;
use verbgate_sys::node;
use verbgate_sys::process;
use verbgate_sys::process::Thread;
use verbgate_sys::resident::PageMap;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::stub::Stub;

use crate::commit;
use crate::device::Kind;
use crate::execute;
use crate::execute::About;
use crate::execute::Form;
use crate::execute::Job;
use crate::execute::Then;
use crate::executor::Executor;
use crate::executor::Unbegun;
use crate::executor::stub;
use crate::fetch;
use crate::observe::Done;
use crate::observe::Verdict;
use crate::reply;
use crate::serve::Asked;
use crate::serve::Call;
use crate::serve::Delivery;
use crate::serve::Event;
use crate::serve::Task;
use crate::session::Guest;
use crate::session::GuestState;
use crate::session::Known;
use crate::session::StubState;
use crate::session::UcontextId;
use crate::supervisor::Supervisor;
use crate::vet::Refusal;
use crate::vet::Rules;
use crate::way;
use crate::way::InFlight;
use crate::way::Next;
use crate::way::Prepared;

/// The stub's descriptor that requests go to.
const UCONTEXT: GuestFd = GuestFd(stub_fd::UCONTEXT.cast_signed());

impl Supervisor {
    /// A call on what may be an RDMA descriptor: `ioctl`, `write` or `writev`.
    pub(crate) fn request(&self, trap: Notification) {
        let started = Instant::now();
        let caller = self.caller(&trap);
        let n = &Native::NUMBERS;
        let [fd, b, c, ..] = trap.args;
        let fd = execute::guest_fd(fd);
        let (form, addr) = if trap.nr == n.ioctl {
            (Form::Ioctl(c), c)
        } else {
            let (addr, count) =
                if trap.nr == n.write { (b, c) } else { first_vector(caller, b, c) };
            (Form::Write(usize::try_from(count).unwrap_or(usize::MAX)), addr)
        };
        let extent = match form {
            Form::Ioctl(_) => Some((HDR_LEN, fetch::FIRST_READ)),
            Form::Write(count) if count <= fetch::FIRST_READ => Some((count, count)),
            // Of a file that is none of ours, maybe.
            Form::Write(_) => None,
        };
        self.ask(trap, fd, started, Some(Given { form, addr, extent }));
    }

    /// Has a call on what may be an RDMA descriptor answered: a request, or else a mapping.
    pub(crate) fn ask(
        &self,
        trap: Notification,
        fd: GuestFd,
        started: Instant,
        request: Option<Given>,
    ) {
        if self.numbers_recur {
            // What has come to its end is known by a number no more.
            self.release();
        }
        let caller = self.caller(&trap);
        let Met { guest, proven: met, pages } = match self.whose(caller) {
            Whose::Known(met) => met,
            Whose::Nobody => {
                let form = request.map_or(Form::Write(0), |given| given.form);
                return self.unplanted(trap, fd, form);
            }
            Whose::Orphan => {
                self.warn("orphan", || {
                    format!(
                        "thread {} shares the memory of a process that has ended, and its stubs \
                         with it: it cannot use RDMA any more",
                        trap.tid
                    )
                });
                return self.refuse(trap, Errno::EIO);
            }
        };
        let known = guest.pages.get().filter(|_| met).or(pages.as_ref());
        let memory = known.map_or(caller, |pages| caller.looked_at(pages));
        let asked = match request {
            Some(Given { form, addr, extent }) => {
                let copied = extent.map(|extent| fetch::first(&memory, addr, extent));
                Asked::Request { form, addr, copied }
            }
            None => Asked::Map,
        };
        let call = Call { trap, fd, asked, met, pages, started };
        self.post(&guest, Event::Task(Task::Call(call)));
    }

    /// Whose memory a caller has.
    ///
    /// A thread that has made a request before is asked first whether it shares memory with a stub
    /// of the same guest's: then that guest's map of what is resident is the thread's, too, and need
    /// not be opened, which costs a quarter of a request.
    pub(crate) fn whose(&self, caller: Caller<'_>) -> Whose {
        let recent = self.registry.lock().recent(caller.tid());
        if let Some((guest, stub)) = recent
            && guest.pages.get().is_some()
            && caller.seems_to_share_memory_with(&stub).unwrap_or(false)
        {
            return Whose::Known(Met { guest, proven: true, pages: None });
        }
        let pages = caller.pages().ok();
        let memory = pages.as_ref().map_or(caller, |pages| caller.looked_at(pages));
        if let Some(owner) = fetch::owner(&memory, self.window) {
            return match self.registry.lock().by_owner(owner) {
                Some(guest) => Whose::Known(Met { guest, proven: false, pages }),
                None => Whose::Orphan,
            };
        }
        // The page where the owner stands may have been taken from the guest for the while, and is
        // not fetched: most of those that come here have none.
        let stubs = self.registry.lock().stubs();
        let shares = |stub: &Thread| caller.shares_memory_with(stub).unwrap_or(false);
        match stubs.into_iter().find(|(_, stub)| shares(stub)) {
            Some((guest, _)) => Whose::Known(Met { guest, proven: true, pages }),
            None => Whose::Nobody,
        }
    }

    /// A call from an address space that has no stub yet.
    fn unplanted(&self, trap: Notification, fd: GuestFd, form: Form) {
        let caller = self.caller(&trap);
        match self.means(caller, fd, form) {
            Ok(Some(_)) => self.plant_for(trap),
            Ok(None) => self.answer(trap, Reply::Continue),
            Err(errno) => self.refuse(trap, errno),
        }
    }

    /// Has a stub planted by way of a call, which is then made again.
    pub(crate) fn plant_for(&self, trap: Notification) {
        let caller = self.caller(&trap);
        let mut guest = self.enter(caller);
        if let Ok(known) = &guest
            && known.planted.load(Ordering::Acquire)
        {
            let is_known = |whose| matches!(whose, Whose::Known(met) if met.guest.key == known.key);
            let is_it = is_known(self.whose(caller));
            if !caller.waits() {
                // It is ending: that it showed no owner says nothing.
                return;
            }
            // Unless another thread's call has had one planted just now, it had one, and has
            // executed another program since.
            if !is_it {
                self.forget(known);
                guest = self.enter(caller);
            }
        }
        match guest {
            Ok(guest) => self.post(&guest, Event::Plant(trap)),
            Err(errno) => self.refuse(trap, errno),
        }
    }

    /// Which ucontext a guest descriptor means. `None`: none, and the kernel may have the call.
    ///
    /// A file of the guest's own is recognised by what the kernel knows of it, and not taken: that
    /// could make the supervisor wait for whoever serves it.
    pub(crate) fn means(
        &self,
        caller: Caller<'_>,
        fd: GuestFd,
        form: Form,
    ) -> Result<Option<UcontextId>, Errno> {
        let found = if self.own_mounts {
            caller.mount_of(fd).map(|mount| self.books.lock().by_mount(mount))
        } else {
            caller.name_of(fd).map(|name| self.by_name(caller, fd, &name))
        };
        match (found, form) {
            (Ok(Some(id)), _) => Ok(Some(id)),
            // Some other file with a number in the window: its write is the kernel's. (If the
            // guest replaces it by an RDMA descriptor meanwhile, the kernel refuses the write,
            // because the guest's credentials did not open that.)
            (_, Form::Write(_)) => Ok(None),
            (Err(_), Form::Ioctl(_)) => Err(Errno::EBADF),
            // Nothing else knows this ioctl.
            (Ok(None), Form::Ioctl(_)) => Err(self.foreign(caller, fd)),
        }
    }

    /// The ucontext of a descriptor, where opens have no mounts of their own.
    fn by_name(&self, caller: Caller<'_>, fd: GuestFd, name: &[u8]) -> Option<UcontextId> {
        use std::os::unix::ffi::OsStrExt;
        let device = self.devices.position(|d| d.source.as_os_str().as_bytes() == name)?;
        let holders = self.books.lock().holders_of(device);
        holders.into_iter().find_map(|(id, key, at)| {
            let holder = self.registry.lock().by_key(key)?;
            caller.has_same(fd, (&holder.process, at)).unwrap_or(false).then_some(id)
        })
    }

    /// What a verbs request on any other file is answered with.
    fn foreign(&self, caller: Caller<'_>, fd: GuestFd) -> Errno {
        let name = caller.name_of(fd).unwrap_or_default();
        if !name.starts_with(b"/dev/infiniband/") {
            return Errno(libc::ENOTTY);
        }
        // A descriptor of the raw device that somebody outside of the sandbox sent.
        self.warn("foreign descriptor", || {
            let name = String::from_utf8_lossy(&name);
            format!("descriptor {fd} of a thread means {name}, which was not opened here")
        });
        Errno(libc::ENODEV)
    }

    /// The file of a descriptor that was found to mean a ucontext.
    pub(crate) fn file_of(
        &self,
        caller: Caller<'_>,
        fd: GuestFd,
        id: UcontextId,
    ) -> Result<OwnedFd, Errno> {
        let taken = caller.take(fd).map_err(|_| Errno::EBADF)?;
        let file = taken.get().ok_or(Errno::EBADF)?;
        let books = self.books.lock();
        let ucontext = books.get(id).ok_or(Errno::EBADF)?;
        let is_it = match &ucontext.mount {
            Some((mount, _)) => node::mount_id(file.as_fd()).is_ok_and(|of| of == *mount),
            None => {
                let rdev = self.devices.get(ucontext.device).map(|device| device.rdev);
                process::char_device(file.as_fd()).is_ok_and(|of| of.is_some() && of == rdev)
            }
        };
        drop(books);
        // Replaced between the two looks: as if it had been so from the beginning.
        if is_it { taken.known().ok_or(Errno::EBADF) } else { Err(Errno(libc::ENOTTY)) }
    }

    /// Something that takes a stub.
    pub(crate) fn take_up(&self, guest: &Arc<Guest>, state: &mut GuestState, task: Task) {
        let trap = *task.trap();
        if state.over {
            return self.give_up(task, Errno::EIO);
        }
        match task {
            Task::Call(call) => {
                if let Err(errno) = self.call(guest, state, call) {
                    self.refuse(trap, errno);
                }
            }
            Task::Deliver(delivery) => {
                let idle = state.workers.iter().position(|worker| worker.idle().is_some());
                match idle {
                    Some(place) => self.write(guest, state, place, delivery),
                    None if may_come(state) => {
                        state.waiting.push_back(Task::Deliver(delivery));
                    }
                    None => self.give_up(Task::Deliver(delivery), Errno::EIO),
                }
            }
        }
    }

    /// A task that no stub will do.
    pub(crate) fn give_up(&self, task: Task, errno: Errno) {
        match task {
            Task::Call(call) => self.refuse(call.trap, errno),
            Task::Deliver(Delivery { trap, then, .. }) => self.undone(trap, then, errno),
        }
    }

    /// Outputs could not be written.
    pub(crate) fn undone(&self, trap: Notification, then: Then, errno: Errno) {
        if let Then::Answer(_, Some(undo)) = then {
            (undo.0)();
        }
        self.refuse(trap, errno);
    }

    fn call(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        mut call: Call,
    ) -> Result<(), Errno> {
        let caller = self.caller(&call.trap);
        if let Some((place, ucontext)) = self.held(guest, state, caller, &mut call)? {
            return self.run(guest, state, call, place, ucontext);
        }
        let Some(ucontext) = self.means(caller, call.fd, call.asked.form())? else {
            self.answer(call.trap, Reply::Continue);
            return Ok(());
        };
        let device = self.books.lock().get(ucontext).map(|ucontext| ucontext.device);
        let device = device.and_then(|device| self.devices.get(device)).ok_or(Errno::EBADF)?;
        if device.kind == Kind::Cm {
            let file = self.file_of(caller, call.fd, ucontext)?;
            return self.command(guest, state, call, file);
        }
        self.books.lock().hold(guest.key, call.fd, ucontext);
        match self.find_worker(guest, state, &call)? {
            Found::Worker(place) => {
                let known = self.books.lock().known(ucontext).ok_or(Errno::EBADF)?;
                let file = match known {
                    Known::Token(_, file) => Bound::Kept(file),
                    Known::File => Bound::Taken(self.file_of(caller, call.fd, ucontext)?),
                };
                let worker = state.workers.get_mut(place).ok_or(Errno::EIO)?;
                let Some(idle) = worker.idle() else { return Err(Errno::EIO) };
                match execute::bind(&self.listener, idle, &file) {
                    Ok(()) => {}
                    // Gone with the program that it belonged to, or by a filter of its own.
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                        worker.state = StubState::Ended;
                        self.handle(call.trap);
                        return Ok(());
                    }
                    // The process's RLIMIT_NOFILE leaves its stubs no number.
                    Err(_) => return Err(Errno::EMFILE),
                }
                worker.bound = Some((call.fd, ucontext));
                // Closing a number outside of the window is not trapped: hold on to it for this
                // request only.
                worker.unbind = !self.fds.contains(call.fd.0);
                self.run(guest, state, call, place, ucontext)
            }
            Found::Plant => {
                self.plant(guest, state, call.trap);
                Ok(())
            }
            Found::Later => {
                state.waiting.push_back(Task::Call(call));
                Ok(())
            }
        }
    }

    /// The idle stub that holds the file of a call already, if there is one; and whether the caller
    /// is of this guest at all.
    fn held(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        caller: Caller<'_>,
        call: &mut Call,
    ) -> Result<Option<(usize, UcontextId)>, Errno> {
        let bound = state.workers.iter().enumerate().find_map(|(place, worker)| {
            let (fd, ucontext) = worker.bound?;
            let idle = worker.idle().filter(|_| fd == call.fd)?;
            Some((place, ucontext, worker.stub.thread.tid(), idle))
        });
        let Some((place, ucontext, stub, idle)) = bound else {
            let lives =
                |worker: &&crate::session::Worker| !matches!(worker.state, StubState::Ended);
            let witness = state.workers.iter().position(|worker| lives(&worker));
            let Some(witness) = witness else { return Ok(None) };
            if call.met {
                self.meet(guest, state, witness, call);
                return Ok(None);
            }
            let stub = state.workers.get(witness).map(|worker| Arc::clone(&worker.stub.thread));
            return match stub.map(|stub| caller.shares_memory_with(&stub)) {
                Some(Ok(false)) => Err(self.forged(&call.trap)),
                Some(Ok(true)) => {
                    self.meet(guest, state, witness, call);
                    Ok(None)
                }
                // It cannot be told for one that is being killed. Its call comes to nothing.
                _ => Ok(None),
            };
        };
        let known = self.books.lock().known(ucontext);
        let meant = match known {
            Some(Known::Token(mount, _)) => Meant::Mount(mount),
            Some(Known::File) | None => Meant::File(UCONTEXT),
        };
        match caller.shares(call.fd, (stub, meant, idle), call.met) {
            Ok(shared) if !shared.memory => Err(self.forged(&call.trap)),
            Ok(shared) => match shared.file {
                Ok(true) => {
                    self.meet(guest, state, place, call);
                    Ok(Some((place, ucontext)))
                }
                Ok(false) => {
                    // The number means another file by now.
                    self.unbind(state, call.fd);
                    Ok(None)
                }
                Err(e) if e.raw_os_error() == Some(libc::EBADF) => Err(Errno::EBADF),
                Err(_) => Ok(None),
            },
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
                if caller.waits()
                    && let Some(worker) = state.workers.get_mut(place)
                {
                    worker.state = StubState::Ended;
                }
                Ok(None)
            }
            Err(e) => {
                log::debug!("kcmp of thread {}: {e}", call.trap.tid);
                Ok(None)
            }
        }
    }

    /// A caller was found to share the memory of the stub in this place: this is faster next time.
    fn meet(&self, guest: &Arc<Guest>, state: &GuestState, place: usize, call: &mut Call) {
        call.met = true;
        let Some(pages) = call.pages.take() else { return };
        let _ = guest.pages.set(pages);
        if let Some(worker) = state.workers.get(place) {
            self.registry.lock().remember(call.trap.tid, guest, &worker.stub.thread);
        }
    }

    /// The kernel itself may put a mapping of many TiB across the window, and who was given it can
    /// write any owner there.
    fn forged(&self, trap: &Notification) -> Errno {
        self.warn("forged owner", || {
            format!("thread {} poses as a part of another process", trap.tid)
        });
        Errno::EPERM
    }

    /// The stages from fetch to execute.
    fn run(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        call: Call,
        place: usize,
        ucontext: UcontextId,
    ) -> Result<(), Errno> {
        let Call { trap, asked, met, started, .. } = call;
        let Asked::Request { form, addr, copied } = asked else {
            return self.map_by_stub(state, place, trap);
        };
        let caller = self.caller(&trap);
        let pages = guest.pages.get().filter(|_| met);
        let caller = pages.map_or(caller, |pages| caller.looked_at(pages));
        let copied = match (copied, form) {
            (Some(copied), _) => copied,
            (None, Form::Write(count)) => way::copy_write(&caller, addr, count)?,
            (None, Form::Ioctl(_)) => return Err(Errno::EIO),
        };
        let about = About { trap, ucontext, started };
        let look_up = |fd: wire::GuestFd| caller.take(GuestFd(fd.0)).map_err(|_| Errno::EBADF);
        let stub = self.stub(state, place, &trap).ok_or(Errno::EIO)?;
        match way::prepare(&stub, &caller, form, copied, &self.rules(ucontext), look_up)? {
            Next::Refused(request, refusal) => {
                let errno = refusal.errno;
                self.refused(&about, request.as_ref(), &refusal);
                return Err(errno);
            }
            Next::Answered(request, outcome) => {
                self.tell(&about, Some(&request), Verdict::Executed(outcome.result));
                let then = Then::Answer(reply::value(form, outcome.result), None);
                let pieces = reply::pieces(form, &request, outcome);
                self.write(guest, state, place, Delivery { trap, pieces, then });
            }
            Next::Execute(prepared, pieces) => {
                let then = Then::Execute(about, Box::new(prepared));
                self.write(guest, state, place, Delivery { trap, pieces, then });
            }
        }
        Ok(())
    }

    /// Has the stub in a place map memory of its ucontext for a caller.
    fn map_by_stub(
        &self,
        state: &mut GuestState,
        place: usize,
        trap: Notification,
    ) -> Result<(), Errno> {
        let worker = state.workers.get_mut(place).ok_or(Errno::EIO)?;
        let idle = worker.idle().ok_or(Errno::EIO)?;
        match execute::map(&self.listener, worker, idle, trap.args) {
            Ok(()) => worker.state = StubState::Busy(Job::Map(trap)),
            Err(_) => {
                worker.state = StubState::Ended;
                self.handle(trap);
            }
        }
        Ok(())
    }

    /// The stub in a place, which waits for work, to do some for a trap.
    fn stub<'a>(
        &'a self,
        state: &'a mut GuestState,
        place: usize,
        trap: &Notification,
    ) -> Option<stub::Stub<'a>> {
        let worker = state.workers.get_mut(place)?;
        let idle = worker.idle()?;
        let base = self.window.slot(worker.stub.slot);
        Some(stub::Stub { listener: &self.listener, worker, idle, base, trap: trap.id })
    }

    /// Lays a vetted request out, and lets the stub make it.
    fn start(&self, state: &mut GuestState, place: usize, about: About, prepared: Prepared) {
        let trap = about.trap;
        let Some(mut stub) = self.stub(state, place, &trap) else {
            return self.refuse(trap, Errno::EIO);
        };
        match way::begin(&mut stub, prepared) {
            Ok((done, written)) => {
                let done = Box::new(done);
                stub.worker.state = StubState::Busy(Job::Request { about, done, written });
            }
            Err(Unbegun::Refused(errno)) => self.refuse(trap, errno),
            // The stub went with the program that it belonged to; the caller's call is begun again.
            Err(Unbegun::Failed(e)) if e.raw_os_error() == Some(libc::ENOENT) => {
                stub.worker.state = StubState::Ended;
                self.handle(trap);
            }
            Err(Unbegun::Failed(e)) => {
                log::error!("cannot start a request of thread {}: {e}", trap.tid);
                self.refuse(trap, Errno::EIO);
            }
        }
    }

    /// Has a waiting stub write bytes for a caller.
    pub(crate) fn write(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        place: usize,
        delivery: Delivery,
    ) {
        let Delivery { trap, pieces, then } = delivery;
        if pieces.iter().all(|(_, bytes)| bytes.is_empty()) {
            return self.written(guest, state, place, trap, then);
        }
        let Some(mut stub) = self.stub(state, place, &trap) else {
            return self.undone(trap, then, Errno::EIO);
        };
        match stub.write(&pieces) {
            Ok(written) => {
                stub.worker.state = StubState::Busy(Job::Write { trap, written, then });
            }
            Err(errno) => self.undone(trap, then, errno),
        }
    }

    /// Outputs have been written.
    fn written(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        place: usize,
        trap: Notification,
        then: Then,
    ) {
        match then {
            Then::Answer(reply, _) => self.answer(trap, reply),
            Then::Execute(about, prepared) => self.start(state, place, about, *prepared),
            Then::Command(written) => self.cm.push(Arc::clone(guest), *written),
        }
    }

    /// A stub waits for work, and shows the result of the last.
    pub(crate) fn stub_trapped(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        place: usize,
        trap: Notification,
    ) {
        let Some(worker) = state.workers.get_mut(place) else { return };
        if worker.stub.thread.tid() != trap.tid || !self.listener.is_valid(trap.id) {
            // Of the one before, which has been replaced; or taken back, where the filter's waits are
            // not killable: then it shows what was done for somebody else.
            return;
        }
        if !worker.stub.is_own_trap(self.window, &trap) {
            log::error!(
                "process {} was ended: its stub did another call than its own: {trap:x?}",
                guest.process.tgid()
            );
            // Killed with its guest; the trap needs no answer.
            let _ = guest.process.kill();
            return self.forget(guest);
        }
        let was = std::mem::replace(&mut worker.state, StubState::Idle(trap.id));
        state.stillborn = 0;
        if worker.unbind {
            execute::unbind(&self.listener, worker, &self.nothing);
        }
        if let StubState::Busy(job) = was {
            self.done(guest, state, place, job, &trap);
        }
        let retires = state.workers.get(place).is_some_and(|worker| worker.retire);
        if retires {
            self.retire(state);
        }
        self.go_on(guest, state);
    }

    /// One waiting task per idle stub, or to plant another when all are busy; more when they come to
    /// nothing.
    pub(crate) fn go_on(&self, guest: &Arc<Guest>, state: &mut GuestState) {
        let mut turns = state.waiting.len();
        while turns > 0 && crate::planting::can_take(state) {
            turns -= 1;
            let Some(next) = state.waiting.pop_front() else { return };
            if self.caller(next.trap()).waits() {
                self.take_up(guest, state, next);
            }
        }
    }

    /// The stages after execute.
    fn done(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        place: usize,
        job: Job,
        shown: &Notification,
    ) {
        let (result, wrote) = (Stub::shown_result(shown), Stub::shown_written(shown));
        let (about, done, written) = match job {
            Job::Write { trap, written, then } if wrote == written => {
                return self.written(guest, state, place, trap, then);
            }
            Job::Write { trap, then, .. } => return self.undone(trap, then, Errno::EFAULT),
            Job::Map(trap) => return self.answer(trap, mapped(result)),
            Job::Request { about, done, written } => (about, done, written),
        };
        let trap = about.trap;
        let Some(mut stub) = self.stub(state, place, &trap) else { return };
        let outcome = way::finish(&mut stub, &done, result);
        if let Some(ucontext) = self.books.lock().get_mut(about.ucontext) {
            ucontext.enter(&done.request, outcome.result);
        }
        self.tell_done(stub.frame(), &about, &done, &outcome);
        let (pieces, answer) = way::answer(&done, outcome, wrote == written);
        let then = Then::Answer(answer, None);
        self.write(guest, state, place, Delivery { trap, pieces, then });
    }

    /// What requests on a ucontext are held against.
    fn rules(&self, id: UcontextId) -> Rules<'_> {
        let books = self.books.lock();
        let ucontext = books.get(id);
        let device = ucontext.and_then(|ucontext| self.devices.get(ucontext.device));
        let driver = match device.map(|device| device.kind) {
            Some(Kind::Verbs { driver, .. }) => driver,
            _ => DriverId::UNKNOWN,
        };
        Rules {
            driver,
            policy: &self.policy,
            gids: self.gids.as_deref(),
            rdev: device.map_or((0, 0), |device| device.rdev),
            asked: ucontext.is_none_or(|ucontext| ucontext.asked),
        }
    }

    fn device_name(&self, id: UcontextId) -> &str {
        let device = self.books.lock().get(id).map(|ucontext| ucontext.device);
        device.and_then(|device| self.devices.get(device)).map_or("?", |d| d.name.as_str())
    }

    /// A request was not executed: told and counted here, and nowhere else.
    fn refused(&self, about: &About, request: Option<&Request>, refusal: &Refusal) {
        let Refusal { reason, errno, warns, line } = refusal;
        let said = || format!("thread {}: {line}", about.trap.tid);
        if *warns {
            self.warn(reason, said);
        } else {
            self.note(reason, said);
        }
        self.tell(about, request, Verdict::Refused(reason, *errno));
    }

    fn tell(&self, about: &About, request: Option<&Request>, verdict: Verdict) {
        self.told(&Done {
            tid: about.trap.tid,
            device: self.device_name(about.ucontext),
            request,
            verdict,
            made: &[],
            made_fd: None,
            elapsed: about.started.elapsed(),
        });
    }

    fn tell_done(&self, frame: &Frame, about: &About, done: &InFlight, outcome: &commit::Outcome) {
        // For onlookers only: it reads the guest's memory.
        let made = if self.is_observed && outcome.result >= 0 {
            commit::made(frame, &self.caller(&about.trap), done)
        } else {
            Vec::new()
        };
        self.told(&Done {
            tid: about.trap.tid,
            device: self.device_name(about.ucontext),
            request: Some(&done.request),
            verdict: Verdict::Executed(outcome.result),
            made: &made,
            made_fd: outcome.fd,
            elapsed: about.started.elapsed(),
        });
    }
}

/// How a request is made.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) form: Form,
    /// Where what it passes is.
    pub(crate) addr: u64,
    /// How much of that is read at first: at least, and at most; nothing of what is long.
    pub(crate) extent: Option<(usize, usize)>,
}

/// Whose memory a caller has.
pub(crate) enum Whose {
    /// This guest's, it seems.
    Known(Met),
    /// That of a guest which has ended.
    Orphan,
    /// That of a process without a stub.
    Nobody,
}

/// A guest, met by way of a caller.
pub(crate) struct Met {
    pub(crate) guest: Arc<Guest>,
    /// Whether the caller was found to share memory with a stub of this guest's.
    proven: bool,
    /// What is resident of the caller's memory, if that had to be opened.
    pages: Option<PageMap>,
}

/// Who executes a request.
pub(crate) enum Found {
    /// The stub in this place.
    Worker(usize),
    /// A new one, to be planted.
    Plant,
    /// Nobody yet.
    Later,
}

impl Supervisor {
    /// Who binds the file of a call.
    fn find_worker(
        &self,
        guest: &Arc<Guest>,
        state: &GuestState,
        call: &Call,
    ) -> Result<Found, Errno> {
        let workers = || state.workers.iter().enumerate();
        let free = workers().find(|(_, w)| w.bound.is_none() && w.idle().is_some());
        let starting = workers().any(|(_, w)| matches!(w.state, StubState::Starting));
        if let Some((place, _)) = free {
            return Ok(Found::Worker(place));
        }
        if starting {
            return Ok(Found::Later);
        }
        if crate::planting::has_room(state)
            && self.caller(&call.trap).is_of(&guest.process).unwrap_or(false)
        {
            return Ok(Found::Plant);
        }
        if let Some((place, _)) = workers().find(|(_, w)| w.idle().is_some()) {
            return Ok(Found::Worker(place));
        }
        // Another may come, but for stubs that have ended with nobody to plant by way of.
        if may_come(state) { Ok(Found::Later) } else { Err(Errno::EIO) }
    }
}

/// How a call ends for which a stub has mapped memory.
fn mapped(result: i64) -> Reply {
    match i32::try_from(-result) {
        Ok(errno @ 1..4096) => Reply::Errno(errno),
        _ => Reply::Value(result),
    }
}

/// A file to be bound.
enum Bound {
    Kept(Arc<File>),
    Taken(OwnedFd),
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kept(file) => file.as_fd(),
            Self::Taken(file) => file.as_fd(),
        }
    }
}

/// Whether a stub is there that will come back from what it does.
fn may_come(state: &GuestState) -> bool {
    state.workers.iter().any(|worker| !matches!(worker.state, StubState::Ended))
}

/// The first buffer of a `writev`: the device takes each as a command of its own, and a short
/// count tells the caller to come again with the rest.
fn first_vector(caller: Caller<'_>, addr: u64, count: u64) -> (u64, u64) {
    let mut vector = [0; 16];
    let range = [Range { addr, len: vector.len() }];
    if mem::gather(&caller, &range, &mut vector).is_err() {
        // Nothing can be read there, either, so that it ends in EFAULT.
        return (u64::MAX, 1);
    }
    if count == 0 {
        return (0, 0);
    }
    let [base, len] = [0, 8].map(|at| {
        let word = vector.get(at..at + 8).and_then(|b| b.try_into().ok()).unwrap_or_default();
        u64::from_ne_bytes(word)
    });
    (base, len)
}
