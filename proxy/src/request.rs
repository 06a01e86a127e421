//! The way of a request from its trap to the stub that makes it.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use verbgate_abi::Errno;
use verbgate_abi::wire;
use verbgate_abi::wire::HDR_LEN;
use verbgate_sys::GuestFd;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;

use crate::account::Receipt;
use crate::books::Known;
use crate::books::UcontextId;
use crate::connections::Ticket;
use crate::device::Kind;
use crate::execute;
use crate::executor::Executor;
use crate::executor::Unbegun;
use crate::executor::stub;
use crate::fetch;
use crate::fetch::Form;
use crate::flight::Prepared;
use crate::observe::Verdict;
use crate::pace::VerbClass;
use crate::reply;
use crate::session::Guest;
use crate::session::GuestState;
use crate::session::StubState;
use crate::supervisor::Supervisor;
use crate::task::About;
use crate::task::Asked;
use crate::task::Call;
use crate::task::Delivery;
use crate::task::Event;
use crate::task::Job;
use crate::task::Task;
use crate::task::Then;
use crate::way;
use crate::way::Next;
use crate::whose::Met;
use crate::whose::Whose;
use crate::worker::Found;
use crate::worker::may_come;

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
                if trap.nr == n.write { (b, c) } else { fetch::first_vector(&caller, b, c) };
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
        let Met { guest, proven: met, pages, mount } =
            match self.whose(caller, self.own_mounts.then_some(fd)) {
                Whose::Known(met) => met,
                Whose::Nobody => {
                    let form = request.map_or(Form::Write(0), |given| given.form);
                    return self.unplanted(trap, fd, form);
                }
                Whose::Orphan => {
                    self.warn("orphan", || {
                    format!(
                        "thread {} cannot use RDMA: the thread shares the memory of a process that \
                         has ended, and the stubs have ended with that process",
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
        if self.is_put_aside(&trap) {
            return;
        }
        let call = Call { trap, fd, asked, met, pages, mount, paced: false, late: false, started };
        self.post(&guest, Event::Task(Task::Call(call)));
    }

    /// Something that takes a stub.
    pub(crate) fn take_up(&self, guest: &Arc<Guest>, state: &mut GuestState, task: Task) {
        let trap = *task.trap();
        if state.over {
            return self.give_up(task, Errno::EIO);
        }
        match task {
            Task::Call(call) if self.is_again(guest, state, &call) => {}
            Task::Call(call) => {
                let Some(call) = self.paced(state, call) else { return };
                if let Err(errno) = self.call(guest, state, call) {
                    self.refuse(trap, errno);
                }
            }
            Task::Deliver(delivery) => {
                let idle = state.workers.iter().position(|worker| worker.idle().is_some());
                match idle {
                    Some(place) => self.write(guest, state, place, delivery),
                    None if state.is_coming() || may_come(state) => {
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
        match then {
            Then::Answer(_, Some(undo)) => (undo.0)(),
            Then::Execute(about, _) => self.ended(&about, false),
            Then::Answer(_, None) | Then::Command(_) => {}
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
            let Some(call) = self.paced_by_class(state, call, None)? else { return Ok(()) };
            return self.run(guest, state, call, place, ucontext);
        }
        let Some(ucontext) = self.means(caller, call.fd, call.asked.form())? else {
            self.answer(call.trap, Reply::Continue);
            return Ok(());
        };
        let device = self.books.lock().get(ucontext).map(|ucontext| ucontext.device);
        let device = device.and_then(|device| self.devices.get(device)).ok_or(Errno::EBADF)?;
        let manager = (device.kind == Kind::Cm).then_some(VerbClass::RdmaCm);
        let Some(call) = self.paced_by_class(state, call, manager)? else { return Ok(()) };
        if manager.is_some() {
            let file = self.file_of(caller, call.fd, ucontext)?;
            return self.command(guest, state, call, (file, ucontext));
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
                // A mount's number is not kept while the mount may go.
                state.waiting.push_back(Task::Call(Call { mount: None, ..call }));
                Ok(())
            }
        }
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
            let device = self.books.lock().get(ucontext).map(|ucontext| ucontext.device);
            self.check_left(device.ok_or(Errno::EBADF)?, "map memory of")?;
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
        let (ticket, receipt) = (Ticket::default(), Receipt::default());
        let mut about = About { trap, ucontext, started, ticket, receipt };
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
                if let Some(result) = self.ring(ucontext, &prepared.request, &caller) {
                    self.tell(&about, Some(&prepared.request), Verdict::Executed(result));
                    self.answer(trap, reply::value(form, result));
                    return Ok(());
                }
                about.receipt = self.charge(&about, &prepared.request)?;
                about.ticket = self.claim(&about, &prepared).inspect_err(|_| {
                    self.ended(&about, false);
                })?;
                let Some(prepared) = self.left_outside(guest, state, about, prepared) else {
                    return Ok(());
                };
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
            Ok(()) => worker.state = StubState::Busy(Box::new(Job::Map(trap))),
            Err(_) => {
                worker.state = StubState::Ended;
                self.handle(trap);
            }
        }
        Ok(())
    }

    /// The stub in a place, which waits for work, to do some for a trap.
    pub(crate) fn stub<'a>(
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
    pub(crate) fn start(
        &self,
        state: &mut GuestState,
        place: usize,
        about: About,
        prepared: Prepared,
    ) {
        let trap = about.trap;
        let stays = state.stubs_stay;
        let Some(mut stub) = self.stub(state, place, &trap) else {
            self.ended(&about, false);
            return self.refuse(trap, Errno::EIO);
        };
        if !stays && stub.goes_to(trap.tid) {
            let then = Then::Execute(about, Box::new(prepared));
            stub.worker.state = StubState::Busy(Box::new(Job::Write { trap, written: 0, then }));
            return;
        }
        self.at_work(&about, true);
        match way::begin(&mut stub, prepared) {
            Ok((done, written)) => {
                let done = Box::new(done);
                let job = Job::Request { about, done, written };
                stub.worker.state = StubState::Busy(Box::new(job));
            }
            Err(Unbegun::Refused(errno)) => {
                self.at_work(&about, false);
                self.ended(&about, false);
                self.refuse(trap, errno);
            }
            // The stub went with the program that it belonged to; the caller's call is begun again.
            Err(Unbegun::Failed(e)) if e.raw_os_error() == Some(libc::ENOENT) => {
                stub.worker.state = StubState::Ended;
                self.at_work(&about, false);
                self.ended(&about, false);
                self.handle(trap);
            }
            Err(Unbegun::Failed(e)) => {
                self.at_work(&about, false);
                self.ended(&about, false);
                log::error!("cannot start a request of thread {}: {e}", trap.tid);
                self.refuse(trap, Errno::EIO);
            }
        }
    }

    /// A stub's request is in the kernel from now on, or no longer.
    pub(crate) fn at_work(&self, about: &About, begins: bool) {
        if let Some(ucontext) = self.books.lock().get_mut(about.ucontext) {
            let one = if begins { 1 } else { u32::MAX };
            ucontext.at_work = ucontext.at_work.wrapping_add(one);
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
                stub.worker.state = StubState::Busy(Box::new(Job::Write { trap, written, then }));
            }
            Err(errno) => self.undone(trap, then, errno),
        }
    }

    /// Outputs have been written.
    pub(crate) fn written(
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
