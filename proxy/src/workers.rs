//! Who executes a request: which ucontext a call means, and which stub is free for it.

use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::time::Instant;

use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::node;
use verbgate_sys::plant::PlantError;
use verbgate_sys::plant::Planter;
use verbgate_sys::process;
use verbgate_sys::process::PidFd;
use verbgate_sys::seccomp::NotifId;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::stub::control;
use verbgate_sys::window::MAX_SLOTS;

use crate::cm::Written;
use crate::device::Kind;
use crate::execute;
use crate::execute::Form;
use crate::fetch::Owner;
use crate::quiet::Quiet;
use crate::session::Objects;
use crate::session::Process;
use crate::session::StubState;
use crate::session::Ucontext;
use crate::session::UcontextId;
use crate::session::Worker;
use crate::supervisor::State;
use crate::supervisor::Supervisor;

/// Who executes a request.
pub(crate) enum Chosen {
    /// This worker, which waits in this trap and holds this ucontext.
    Ready { place: usize, idle: NotifId, ucontext: UcontextId },
    /// Nobody now: the call is queued, or has been made to come again.
    Later,
}

/// The call that a trap is.
pub(crate) struct Call {
    pub(crate) trap: Notification,
    pub(crate) fd: GuestFd,
    pub(crate) form: Form,
    /// Where what it passes is.
    pub(crate) addr: u64,
    pub(crate) started: Instant,
}

impl Supervisor {
    /// Finds a worker for a call, or arranges that there will be one.
    pub(crate) fn choose(
        &self,
        state: &mut State,
        tgid: Tgid,
        call: &Call,
    ) -> Result<Chosen, Errno> {
        let process = state.session.processes.get_mut(&tgid).ok_or(Errno(libc::ESRCH))?;
        let held = process.workers.iter().enumerate().find_map(|(place, worker)| {
            let (fd, ucontext) = worker.bound?;
            match worker.state {
                StubState::Idle(idle) if fd == call.fd => {
                    Some((place, idle, ucontext, worker.stub.tid))
                }
                _ => None,
            }
        });
        if let Some((place, idle, ucontext, stub)) = held {
            // The number may mean another file by now.
            let ours = (stub, GuestFd(0));
            match process::same_file((call.trap.tid, call.fd), ours) {
                Ok(true) => return Ok(Chosen::Ready { place, idle, ucontext }),
                Ok(false) => {
                    self.unbind(state, tgid, call.fd);
                    state.session.release(tgid, call.fd);
                }
                Err(e) if e.raw_os_error() == Some(libc::EBADF) => return Err(Errno::EBADF),
                Err(e) => log::debug!("kcmp of thread {}: {e}", call.trap.tid),
            }
        }
        let Some((ucontext, file)) = self.identify(state, tgid, call)? else {
            return Ok(Chosen::Later);
        };
        let process = state.session.processes.get_mut(&tgid).ok_or(Errno(libc::ESRCH))?;
        let idle_at = |worker: &Worker| match worker.state {
            StubState::Idle(idle) => Some(idle),
            _ => None,
        };
        let workers = || process.workers.iter().enumerate();
        let free = workers().find(|(_, w)| w.bound.is_none() && idle_at(w).is_some());
        let starting = workers().any(|(_, w)| matches!(w.state, StubState::Starting));
        let found = match free {
            Some((place, _)) => Some(place),
            None if starting => None,
            None if has_room(process)
                && process::tgid(call.trap.tid).is_ok_and(|own| own == tgid) =>
            {
                self.plant(state, tgid, call)?;
                return Ok(Chosen::Later);
            }
            None => workers().find(|(_, w)| idle_at(w).is_some()).map(|(place, _)| place),
        };
        let Some((place, worker)) =
            found.and_then(|place| Some((place, process.workers.get_mut(place)?)))
        else {
            process.waiting.push_back(call.trap);
            return Ok(Chosen::Later);
        };
        let Some(idle) = idle_at(worker) else { return Err(Errno::EIO) };
        match execute::bind(&self.listener, idle, &file) {
            Ok(()) => {}
            // Gone with the program that it belonged to.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                state.session.forget(tgid);
                state.backlog.push_back(call.trap);
                return Ok(Chosen::Later);
            }
            // The process's RLIMIT_NOFILE leaves its stubs no number.
            Err(_) => return Err(Errno::EMFILE),
        }
        worker.bound = Some((call.fd, ucontext));
        // Closing a number outside of the window is not trapped: hold on to it for this request
        // only.
        worker.unbind = !self.fds.contains(call.fd.0);
        Ok(Chosen::Ready { place, idle, ucontext })
    }

    /// Which ucontext a guest descriptor means, and the file itself.
    ///
    /// `None`: it is no verbs device, and the call has been answered or will be.
    pub(crate) fn identify(
        &self,
        state: &mut State,
        tgid: Tgid,
        call: &Call,
    ) -> Result<Option<(UcontextId, OwnedFd)>, Errno> {
        let (tid, fd) = (call.trap.tid, call.fd);
        let file = PidFd::open_thread(tid, tgid).and_then(|table| table.get_fd(fd));
        let file = match (file, call.form) {
            (Ok(file), _) => file,
            (Err(_), Form::Ioctl(_)) => return Err(Errno::EBADF),
            (Err(_), Form::Write(_)) => {
                self.answer(call.trap, Reply::Continue);
                return Ok(None);
            }
        };
        let rdev = process::char_device(file.as_fd()).ok().flatten();
        let Some(device) = rdev.and_then(|rdev| self.devices.by_rdev(rdev)) else {
            // Some other file with a number in the window: its write is the kernel's. (If the
            // guest replaces it by an RDMA descriptor meanwhile, the kernel refuses the write,
            // because the guest's credentials did not open that.) Nothing else knows this ioctl;
            // and on a device that was not granted it is refused.
            if matches!(call.form, Form::Write(_)) {
                self.answer(call.trap, Reply::Continue);
                return Ok(None);
            }
            let uverbs = rdev.is_some_and(|(major, _)| major == UVERBS_MAJOR);
            return Err(if uverbs { Errno(libc::ENODEV) } else { Errno(libc::ENOTTY) });
        };
        let mount = node::mount_id(file.as_fd()).ok();
        let mount = mount.filter(|mount| state.session.opens.get(mount) == Some(&device));
        if mount.is_none() && self.own_mounts {
            // A descriptor of the raw device that somebody outside of the sandbox sent.
            state.quiet.warn("foreign descriptor", || {
                format!("thread {tid}: descriptor {fd} of a device that was not opened here")
            });
            return Err(Errno::ENODEV);
        }
        if self.devices.get(device).is_some_and(|device| device.kind == Kind::Cm) {
            let Form::Write(count) = call.form else { return Err(Errno(libc::ENOTTY)) };
            let (trap, addr, started) = (call.trap, call.addr, call.started);
            self.cm.push(Written { trap, tgid, file, addr, count, started });
            return Ok(None);
        }
        let known = state.session.ucontexts.iter().find_map(|(id, ucontext)| {
            let same = |(holder, at): &(Tgid, GuestFd)| {
                process::same_file((tid, fd), (Tid(holder.0), *at)).unwrap_or(false)
            };
            let is_it = match mount {
                Some(_) => ucontext.mount == mount,
                None => ucontext.device == device && ucontext.holders.iter().any(same),
            };
            is_it.then_some(*id)
        });
        let id = known.unwrap_or_else(|| {
            // Passed on in a way that we did not see, and closed where we did.
            let id = UcontextId(state.session.number());
            let ucontext = Ucontext {
                device,
                mount,
                holders: Vec::new(),
                // Forgotten once, so it has been in use.
                asked: true,
                objects: Objects::default(),
            };
            state.session.ucontexts.insert(id, ucontext);
            id
        });
        let process = state.session.process(tgid).map_err(|_| Errno(libc::ESRCH))?;
        if process.fds.get(&fd) != Some(&id) {
            state.session.release(tgid, fd);
            state.session.hold(tgid, fd, id);
        }
        Ok(Some((id, file)))
    }

    /// Plants a stub by way of the thread that makes this call, which then makes it again.
    pub(crate) fn plant(&self, state: &mut State, tgid: Tgid, call: &Call) -> Result<(), Errno> {
        let State { session, backlog, counts, quiet, .. } = state;
        let process = session.processes.get_mut(&tgid).ok_or(Errno(libc::ESRCH))?;
        // The frame of a stub that has ended serves again, once its thread is really gone.
        let ended = process.workers.iter().position(|worker| {
            matches!(worker.state, StubState::Ended) && process::state(worker.stub.tid).is_err()
        });
        if ended.is_none() && process.workers.len() >= MAX_SLOTS {
            return Err(Errno::EBUSY);
        }
        let owner = process::unguessable().map(Owner).map_err(|_| Errno::EIO)?;
        let mut others = Vec::new();
        let mut planter = Planter {
            listener: &self.listener,
            others: &mut others,
            window: self.window,
            code: &self.code,
            watch: &self.watch,
        };
        let slot = ended.unwrap_or(process.workers.len());
        let planted = match process.workers.get_mut(slot) {
            Some(worker) => {
                session.stubs.remove(&worker.stub.tid);
                planter.replace(tgid, &call.trap, &mut worker.stub).map(|()| worker.renew())
            }
            None => planter
                .plant(tgid, &call.trap, slot, slot == 0)
                .map(|stub| process.workers.push(Worker::new(stub))),
        };
        counts.notifications += others.len() as u64;
        backlog.extend(others);
        if let Err(e) = planted {
            return not_planted(quiet, tgid, &e);
        }
        counts.planted += 1;
        let Some(worker) = process.workers.get_mut(slot) else { return Ok(()) };
        session.stubs.insert(worker.stub.tid, (tgid, slot));
        if process.owner.is_none() {
            let word = owner.0.to_ne_bytes();
            for (to, from) in worker.stub.frame.ro().iter_mut().skip(control::OWNER).zip(word) {
                *to = from;
            }
            session.owners.insert(owner, tgid);
            process.owner = Some(owner);
        }
        Ok(())
    }
}

/// What a planting that failed means for the call by way of which it was tried.
fn not_planted(quiet: &mut Quiet, tgid: Tgid, error: &PlantError) -> Result<(), Errno> {
    let line = || format!("process {tgid} cannot use RDMA: {error}");
    match error {
        PlantError::Gone(_) | PlantError::Interrupted(_) => Ok(()),
        PlantError::Traced { .. } | PlantError::Forbidden(_) => {
            quiet.warn("not planted", line);
            Err(Errno::EPERM)
        }
        PlantError::Unready { source, .. } => {
            quiet.warn("not planted", line);
            Err(Errno(source.raw_os_error().unwrap_or(libc::EIO)))
        }
        // Its call has been answered.
        PlantError::Injected { .. } => {
            quiet.warn("not planted", line);
            Ok(())
        }
        PlantError::Unexpected { .. } | PlantError::Own { .. } => {
            quiet.warn("ended", || format!("process {tgid} was ended: {error}"));
            Ok(())
        }
    }
}

/// Whether a thread shares its memory with the stubs of a process.
pub(crate) fn shares_memory(state: &State, tgid: Tgid, tid: Tid) -> bool {
    let Some(process) = state.session.processes.get(&tgid) else { return false };
    let lives = |worker: &&Worker| !matches!(worker.state, StubState::Ended);
    let witness = process.workers.iter().find(lives).map_or(Tid(tgid.0), |w| w.stub.tid);
    // It cannot be told for one that is being killed. Its call comes to nothing.
    process::same_memory(tid, witness)
        .unwrap_or_else(|_| process::tgid(tid).is_ok_and(|own| own == tgid))
}

/// Whether a process has, or may have, a stub for another call.
pub(crate) fn can_take(process: &Process) -> bool {
    let any = |is: fn(&StubState) -> bool| process.workers.iter().any(|w| is(&w.state));
    let starting = any(|state| matches!(state, StubState::Starting));
    any(|state| matches!(state, StubState::Idle(_))) || !starting && has_room(process)
}

/// Whether another stub may be planted in a process.
fn has_room(process: &Process) -> bool {
    process.workers.len() < MAX_SLOTS
        || process.workers.iter().any(|worker| matches!(worker.state, StubState::Ended))
}

/// `IB_UVERBS_MAJOR`, drivers/infiniband/core/uverbs_main.c.
const UVERBS_MAJOR: u32 = 231;
