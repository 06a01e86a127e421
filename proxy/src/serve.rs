//! Serving: receiving a trap, finding where the trap belongs, and working off a guest's inbox.
//!
//! The thread that receives a trap looks at the caller, under no lock. Everything that concerns a
//! guest's stubs goes into the guest's inbox, and the thread that holds the guest's state then
//! works the inbox off: there is always one such thread, and nobody waits for another. So a guest
//! that makes the supervisor wait keeps one thread and its own requests waiting, until the watch
//! ends the guest's process ([`crate::crew`]).

use std::io;
use std::sync::Arc;

use verbgate_abi::Errno;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::caller::Caller;
use verbgate_sys::process::Process;
use verbgate_sys::process::unguessable;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::seccomp::bpf::RET_ALLOW;
use verbgate_sys::seccomp::bpf::RET_USER_NOTIF;
use verbgate_sys::seccomp::bpf::interpret;
use verbgate_sys::seccomp::rules::About;
use verbgate_sys::share;
use verbgate_sys::share::Who;
use verbgate_sys::shortage;

use crate::crew;
use crate::crew::Seat;
use crate::fetch::Owner;
use crate::session::Foreseen;
use crate::session::Guest;
use crate::session::GuestState;
use crate::session::Route;
use crate::supervisor::Supervisor;
use crate::task::Event;

/// The end of a thread that serves.
struct End<'a> {
    supervisor: &'a Supervisor,
    seat: &'a Arc<Seat>,
    /// It ends because it is not needed.
    spare: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let Self { supervisor, seat, spare } = self;
        supervisor.crew.leave(seat);
        if *spare {
            return;
        }
        // Nobody may wait for an answer that will not come.
        if std::thread::panicking()
            && let Err(error) = supervisor.hang_up()
        {
            log::error!("programs that ask for RDMA will wait for ever: {error}; end them");
        }
        supervisor.end();
    }
}

impl Supervisor {
    /// Serves until no task is left under the filter, with as many threads as it takes. If one
    /// panics, it hangs up.
    ///
    /// # Errors
    /// When the listener fails; everything that one guest can cause is answered instead.
    pub fn serve(self: &Arc<Self>) -> io::Result<()> {
        match self.crew.join() {
            Some(seat) => self.attend(&seat),
            None => Ok(()),
        }
    }

    fn attend(self: &Arc<Self>, seat: &Arc<Seat>) -> io::Result<()> {
        let mut end = End { supervisor: self, seat, spare: false };
        seat.take();
        while self.crew.ready(seat) {
            let received = self.receive();
            let something = match &received {
                Ok(FromListener::Something(what)) => Some(*what),
                _ => None,
            };
            self.crew.received(seat, something);
            match received? {
                FromListener::Over => return Ok(()),
                FromListener::Nothing => {}
                FromListener::Something(what) => {
                    if self.crew.is_without_spare() {
                        self.start_another();
                    }
                    match what {
                        Some(trap) => self.handle(trap),
                        None => {
                            let guest = self.left.lock().pop_front();
                            guest.iter().for_each(|guest| self.drain(guest));
                        }
                    }
                    seat.end();
                }
            }
        }
        end.spare = !self.is_over();
        Ok(())
    }

    /// Starts another thread, unless one is free.
    pub(crate) fn start_another(self: &Arc<Self>) {
        let Some(seat) = self.crew.join_if_short() else { return };
        let (supervisor, its) = (Arc::clone(self), Arc::clone(&seat));
        let work = move || {
            if let Err(error) = supervisor.attend(&its) {
                log::error!(
                    "the supervisor no longer serves RDMA requests: {error}; start the sandbox \
                     again"
                );
            }
        };
        if let Err(error) = shortage::spawn(c"serve", work) {
            self.crew.leave(&seat);
            self.warn("no thread", || {
                format!("cannot start one more thread to serve requests: {error}")
            });
        }
    }
}

enum FromListener {
    /// A trap, or else what the tracer has left in a guest's inbox.
    Something(Option<Notification>),
    Nothing,
    Over,
}

impl Supervisor {
    fn receive(&self) -> io::Result<FromListener> {
        if let Some(what) = self.crew.handed() {
            return Ok(FromListener::Something(what));
        }
        // Before 6.11, who waits in the kernel is not told that nobody is left. A process that
        // serves one sandbox ends with it; others have to ask, one at a time, which costs a call
        // for each trap.
        let _turn = self.siblings.is_some().then(|| self.turn.lock());
        if self.siblings.is_some() && !self.is_over() {
            match self.listener.wait(-1) {
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(FromListener::Over),
                _ => {}
            }
        }
        if self.is_over() {
            return Ok(FromListener::Over);
        }
        match self.listener.receive() {
            Ok(trap) => {
                self.count_notification();
                Ok(FromListener::Something(Some(trap)))
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(FromListener::Nothing),
            // Either the caller was killed before it was received, or nobody is left.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => match self.listener.wait(0) {
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(FromListener::Over),
                _ => Ok(FromListener::Nothing),
            },
            Err(e) => Err(e),
        }
    }

    /// Sees a trap on its way.
    pub(crate) fn handle(&self, trap: Notification) {
        // Forgets an earlier try of this call.
        let _ = share::take_aside(trap.id);
        let route = self.registry.lock().routes.get(&trap.tid).cloned();
        let trap = match route {
            None => trap,
            Some(route) => match self.routed(route, trap) {
                Some(trap) => trap,
                None => return,
            },
        };
        if let Some(who) = self.crew.beyond(|| self.caller(&trap).share_owner().ok()) {
            return self.put_aside(who, &trap);
        }
        if let Some(reply) = self.judged(&trap) {
            return self.answer(trap, reply);
        }
        let Some(about) = self.concerns.get(&trap.nr) else {
            // A filter of somebody else's asks about more, and none of ours has judged that.
            return self.answer(trap, Reply::Continue);
        };
        match about {
            About::Verbs => self.request(trap),
            About::Open => self.open(trap),
            About::Access => self.access(trap),
            About::Close => self.close(trap),
            About::Duplicate => self.duplicate(trap),
            About::NetlinkSocket => self.netlink_socket(trap),
            About::NetlinkCall => self.netlink_call(trap),
            About::TakeFile => self.take_file(trap),
            About::Ptrace => self.trace(trap),
            About::Credentials => self.credentials(trap),
            About::StubMemory => self.stub_memory(trap),
            About::Map => self.map(trap),
            About::Refused => self.answer(trap, Reply::Errno(libc::EPERM)),
        }
    }

    /// Gives a trap to whom its thread belongs; gives it back when the number is another thread's
    /// by now.
    fn routed(&self, route: Route, trap: Notification) -> Option<Notification> {
        match route {
            Route::Made(making, foreseen, _) => {
                // Found valid after the route was looked up: so the number is that of the thread
                // which waits in this very trap now, and which is made to make calls.
                if !self.listener.is_valid(trap.id) {
                    return None;
                }
                if self.let_through(&foreseen, &trap) {
                    return None;
                }
                self.tracer.trapped(making, trap);
                None
            }
            // If the stub lives, and the trap is found valid after that ([`Self::stub_trapped`]), then
            // since it was received the number has been that of one thread, which waits in it: the stub.
            Route::Stub(guest, place, thread) => {
                if thread.is_alive() {
                    self.post(&guest, Event::Stub(place, trap));
                    return None;
                }
                self.registry.lock().retire(trap.tid, &thread);
                self.post(&guest, Event::Look);
                Some(trap)
            }
        }
    }

    /// Has the kernel make a call that was foreseen. The thread waits in this trap.
    pub(crate) fn let_through(&self, foreseen: &Foreseen, trap: &Notification) -> bool {
        let mut foreseen = foreseen.lock();
        let is_next = foreseen.front() == Some(&(trap.nr, trap.args, trap.ip));
        // Who takes part in a stop instead makes the call again after that.
        if is_next && self.listener.reply(trap.id, Reply::Continue).is_ok() {
            foreseen.pop_front();
        }
        is_next
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

    /// The caller of a trap.
    pub(crate) fn caller(&self, trap: &Notification) -> Caller<'_> {
        Caller::of(&self.listener, trap)
    }

    /// Answers a guest's trap. A caller that was killed meanwhile needs no answer.
    /// A call that something has to be waited for, beyond its guest's share, is tried again instead.
    pub(crate) fn answer(&self, trap: Notification, reply: Reply) {
        if !matches!(reply, Reply::Value(_)) && self.is_put_aside(&trap) {
            return;
        }
        if let Err(e) = self.listener.reply(trap.id, reply)
            && e.raw_os_error() != Some(libc::ENOENT)
        {
            log::error!("cannot answer thread {}: {e}", trap.tid);
        }
    }

    /// Puts a call aside whose guest has used up its share of waits, if this thread could not wait for that guest.
    pub(crate) fn is_put_aside(&self, trap: &Notification) -> bool {
        share::take_aside(trap.id).map(|who| self.put_aside(who, trap)).is_some()
    }

    /// Opens and requests can fail; whoever closes a descriptor or gives up rights does not look whether that has.
    fn put_aside(&self, who: Who, trap: &Notification) {
        let n = &Native::NUMBERS;
        let can_fail = [n.ioctl, n.write, n.writev, n.openat, n.openat2].contains(&trap.nr)
            || n.open == Some(trap.nr);
        if !self.crew.put_aside(who, *trap, can_fail) {
            self.refuse(*trap, Errno::EAGAIN);
        }
    }

    pub(crate) fn refuse(&self, trap: Notification, errno: Errno) {
        self.answer(trap, Reply::Errno(errno.0));
    }

    /// The record of the process that a caller belongs to, made when it is first seen.
    pub(crate) fn enter(&self, caller: Caller<'_>) -> Result<Arc<Guest>, Errno> {
        let failed = |e: io::Error| Errno(e.raw_os_error().unwrap_or(libc::ESRCH));
        let process: Process = caller.process().map_err(failed)?;
        if let Some(known) = self.registry.lock().by_process(process.tgid()) {
            return Ok(known);
        }
        let process = shortage::spared(process).map_err(failed)?;
        let owner = unguessable().map(Owner).map_err(|_| Errno::EIO)?;
        let guest = self.registry.lock().enter(process, owner);
        self.entered.notify_all();
        Ok(guest)
    }

    /// The guest that a caller belongs to, if it is known.
    pub(crate) fn known(&self, caller: Caller<'_>) -> Option<Arc<Guest>> {
        let process = caller.process().ok()?;
        self.registry.lock().by_process(process.tgid())
    }

    /// Forgets a guest that has ended, or executed another program.
    pub(crate) fn forget(&self, guest: &Arc<Guest>) {
        self.registry.lock().forget(guest);
        self.books.lock().release_all(guest.key);
        self.leave(guest, Event::Over);
    }

    /// Has something done for a guest: now, or by whoever is serving it.
    pub(crate) fn post(&self, guest: &Arc<Guest>, event: Event) {
        guest.inbox.lock().push_back(event);
        self.drain(guest);
    }

    /// Has something done for a guest, by a thread that serves nobody and must not wait for a guest. The thread does what
    /// waits for nobody, and leaves the rest to those who serve.
    pub(crate) fn leave(&self, guest: &Arc<Guest>, event: Event) {
        guest.inbox.lock().push_back(event);
        if let Some(mut state) = guest.state.try_lock() {
            let next = || {
                let mut inbox = guest.inbox.lock();
                if inbox.front()?.waits_for_nobody() { inbox.pop_front() } else { None }
            };
            while let Some(event) = next() {
                self.act(guest, &mut state, event);
            }
        }
        self.hand_over_rest(guest);
    }

    /// Leaves what is in an inbox to those who serve.
    pub(crate) fn hand_over_rest(&self, guest: &Arc<Guest>) {
        if !guest.inbox.lock().is_empty() {
            self.left.lock().push_back(Arc::clone(guest));
            self.crew.hand_over(None);
        }
    }

    /// Does something with a guest's state, if nobody is serving the guest now.
    ///
    /// Whoever has had the state must look into the inbox afterwards: others have left there what
    /// they found no state to do with.
    pub(crate) fn with_state<T>(
        &self,
        guest: &Arc<Guest>,
        work: impl FnOnce(&mut GuestState) -> T,
    ) -> Option<T> {
        let mut state = guest.state.try_lock()?;
        let done = work(&mut state);
        drop(state);
        self.hand_over_rest(guest);
        Some(done)
    }

    /// Does what there is to do for a guest, unless somebody is at it.
    pub(crate) fn drain(&self, guest: &Arc<Guest>) {
        loop {
            let Some(mut state) = guest.state.try_lock() else { return };
            while state.outside.is_none() {
                let next = guest.inbox.lock().pop_front();
                let Some(event) = next else { break };
                self.act(guest, &mut state, event);
            }
            let outside = state.outside.take();
            drop(state);
            if outside.is_some() {
                self.hand_over_rest(guest);
            }
            if let Some(request) = outside {
                self.make_outside(guest, request);
            }
            // Put there by somebody who found the state taken.
            if guest.inbox.lock().is_empty() {
                return;
            }
        }
    }

    fn act(&self, guest: &Arc<Guest>, state: &mut GuestState, event: Event) {
        crew::serving(&guest.process);
        match event {
            Event::Task(task) => self.take_up(guest, state, task),
            Event::Stub(place, trap) => match &mut state.planting {
                Some(planting) if planting.place == place => planting.early = Some(trap),
                _ => self.stub_trapped(guest, state, place, trap),
            },
            Event::Planted(planted) => self.planted_now(guest, state, *planted),
            Event::Plant(trap) => self.plant_first(guest, state, trap),
            Event::Close(trap, fds) => {
                for fd in fds {
                    self.unbind(state, fd);
                }
                self.answer(trap, Reply::Continue);
            }
            Event::Retire(trap) => {
                if let Some(planting) = &mut state.planting {
                    planting.retire = true;
                }
                self.retire(state);
                self.answer(trap, Reply::Continue);
            }
            Event::Interrupt(trap) => self.tracer.give(guest, move |supervisor| {
                Box::pin(async move { supervisor.let_be_interrupted(&trap).await })
            }),
            Event::Look => self.look_at(guest, state),
            Event::Over => self.over(state),
        }
    }
}
