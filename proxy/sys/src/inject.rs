//! System calls that the supervisor makes a stopped thread make.

use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::Poll;
use std::time::Duration;

use crate::Tid;
use crate::arch::Arch;
use crate::arch::Call;
use crate::arch::CallList;
use crate::arch::Native;
use crate::frame::SealedCode;
use crate::plant::PlantError;
use crate::plant::Traps;
use crate::plant::lost;
use crate::plant::unexpected;
use crate::ptrace;
use crate::ptrace::Event;
use crate::ptrace::Running;
use crate::ptrace::Stopped;
use crate::ptrace::Waited;
use crate::seccomp::AddFd;
use crate::seccomp::Listener;
use crate::seccomp::NotifId;
use crate::seccomp::Notification;
use crate::seccomp::Reply;
use crate::stub::Stub;

/// The outcome of a new stub's calls: the call that failed, and its result.
pub(crate) type Followed = Result<(), (Call, i64)>;

/// Descriptors that a new stub is given, and their numbers.
pub(crate) type Given<'a> = [(u32, BorrowedFd<'a>)];

/// What became of an injected clone.
pub(crate) enum Cloned {
    /// The thread that made it, on its way out of the call ([`out_of_clone`]), and the new one.
    Born(Running, Running),
    /// It failed with this result.
    Failed(Stopped, i64),
}

/// What injecting takes.
pub(crate) struct Injector<'a> {
    pub(crate) listener: &'a Listener,
    /// Who receives from it.
    pub(crate) traps: &'a mut dyn Traps,
}

impl Injector<'_> {
    /// Has a stopped thread make one call, and returns it stopped when the call is done.
    ///
    /// The instruction is the guest's memory. So the call is looked at where it can no longer become another, and what it
    /// returned is what the kernel shows after it: a filter of the guest's can only keep the call from being made.
    ///
    /// A stop of the whole process may come at any point, since SIGSTOP cannot be blocked: it
    /// takes effect when the thread is let go, and a call that it interrupts is made again.
    pub(crate) async fn inject(
        &mut self,
        mut stopped: Stopped,
        base: &ptrace::Regs,
        call: &Call,
    ) -> Result<(Stopped, i64), PlantError> {
        let tid = stopped.tid();
        let gone = move |e: io::Error| lost(tid, e);
        loop {
            let (.., ip) = Native::entry(base);
            // Whoever receives its trap lets it through.
            self.traps.foresee(tid, vec![(call.nr, call.args, ip)]);
            let running = enter(stopped, base, call).await?;
            let left = self.passed(running, call).await?;
            self.traps.foresee(tid, Vec::new());
            let result = result(&left, base).map_err(gone)?;
            if !RESTART.contains(&result) {
                return Ok((left, result));
            }
            stopped = left;
        }
    }

    /// Waits until a thread has made a call that it has entered, which our own filter may ask about.
    async fn passed(&mut self, mut running: Running, call: &Call) -> Result<Stopped, PlantError> {
        let tid = running.tid();
        let gone = move |e: io::Error| lost(tid, e);
        loop {
            running = match self.comes(running).await? {
                Came::Trapped(running, notif) if notif.nr == call.nr && notif.args == call.args => {
                    match self.listener.reply(notif.id, Reply::Continue) {
                        // A stop has ended the wait, where a filter of others has waits that need not be killable.
                        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                        replied => replied.map_err(gone)?,
                    }
                    running
                }
                Came::Trapped(_, notif) if self.listener.is_valid(notif.id) => {
                    return Err(unexpected(tid, call.name, format!("trap {}", notif.nr)));
                }
                // A trap of before, whose wait a signal has ended, was still on its way.
                Came::Trapped(running, _) => running,
                Came::Stopped(stopped, Event::Syscall) => return Ok(stopped),
                Came::Stopped(stopped, event) => match group_stop(&event) {
                    Some(signal) => stopped.to_syscall(signal).map_err(gone)?,
                    None => return Err(unexpected(tid, call.name, format!("{event:?}"))),
                },
            };
        }
    }

    /// Waits until a thread traps or stops.
    async fn comes(&mut self, running: Running) -> Result<Came, PlantError> {
        let tid = running.tid();
        let mut running = Some(running);
        poll_fn(|_| {
            let Some(taken) = running.take() else { return Poll::Pending };
            if let Some(trap) = self.traps.take(tid) {
                ptrace::moves();
                return Poll::Ready(Ok(Came::Trapped(taken, trap)));
            }
            match taken.try_wait() {
                Ok(Waited::Nothing(still)) => {
                    running = Some(still);
                    Poll::Pending
                }
                Ok(Waited::Stopped(stopped, event)) => {
                    Poll::Ready(Ok(Came::Stopped(stopped, event)))
                }
                Ok(Waited::Gone) => Poll::Ready(Err(PlantError::Gone(tid))),
                Err(e) => Poll::Ready(Err(lost(tid, e))),
            }
        })
        .await
    }

    /// Has a new stub, stopped, make calls by its own code, until it shows what the last one returned, or one that failed.
    /// Before the first it closes the descriptor that its maker was lent; before the second it is given others. `meanwhile`
    /// is done beside the first, and says whether the others are made.
    ///
    /// Each call is one that our own filter asks about: the kernel tells the call, and the place of the code that makes
    /// it, before the call is let through. So no filter of the guest's can pretend that the call was made.
    pub(crate) async fn follow(
        &mut self,
        stopped: Stopped,
        like: &ptrace::Regs,
        (calls, places, lent): (&[Call], &CallList, Option<u32>),
        give: &Given<'_>,
        meanwhile: impl FnOnce() -> bool,
    ) -> Result<(Stopped, Followed), PlantError> {
        let tid = stopped.tid();
        let gone = move |e: io::Error| lost(tid, e);
        let list: Vec<_> =
            calls.iter().zip(&places.ips).map(|(call, ip)| (call.nr, call.args, *ip)).collect();
        let after = |count: usize| list.get(count..).unwrap_or_default().to_vec();
        stopped.set_regs(&Native::begin_list(places, lent, like)).map_err(gone)?;
        // Calls but the second are let through by whoever receives their traps.
        let mut until = 1;
        self.traps.foresee(tid, list.get(..until).unwrap_or_default().to_vec());
        let mut running = stopped.go_on(0).map_err(gone)?;
        let goes_on = meanwhile();
        let (stopped, made, result) = loop {
            let (still, notif) = match self.traps_next(running).await? {
                Ok(trapped) => trapped,
                Err(stopped) => {
                    let made = until - self.traps.foreseen();
                    break (stopped, made.min(calls.len() - 1), -i64::from(libc::EPERM));
                }
            };
            running = still;
            let made = until - self.traps.foreseen();
            let is_next =
                until == made && list.get(made) == Some(&(notif.nr, notif.args, notif.ip));
            if is_next {
                self.traps.foresee(tid, after(made + 1));
                let given = match goes_on {
                    true => self.give(&notif, give).await,
                    false => self.listener.reply(notif.id, Reply::Errno(libc::ECANCELED)),
                };
                match given {
                    // A stop has ended the wait: the call is made again.
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                        self.traps.foresee(tid, Vec::new());
                    }
                    given => {
                        given.map_err(gone)?;
                        until = list.len();
                    }
                }
                continue;
            }
            if !self.listener.is_valid(notif.id) {
                continue;
            }
            // Our filter asks about what closes a high number.
            if (notif.nr, notif.ip) == (Native::NUMBERS.close, places.closed) {
                match self.listener.reply(notif.id, Reply::Continue) {
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                    replied => replied.map_err(gone)?,
                }
                continue;
            }
            running.interrupt().map_err(gone)?;
            match self.listener.reply(notif.id, Reply::Value(0)) {
                // The stop has ended the wait.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                replied => replied.map_err(gone)?,
            }
            let stopped = self.stops(running).await?;
            let regs = Native::behind(&stopped.regs().map_err(gone)?, notif.ip);
            let (.., ip) = Native::entry(&regs);
            if ip != notif.ip {
                return Err(unexpected(tid, "a stop", format!("{ip:#x}")));
            }
            break match notif.nr == Native::NUMBERS.ioctl {
                true => (stopped, made.saturating_sub(1), Stub::shown_result(&notif)),
                // Our filter did not ask about the call before this one: a filter of the guest's has answered it.
                false => (stopped, made, -i64::from(libc::EPERM)),
            };
        };
        self.traps.foresee(tid, Vec::new());
        let is_last = made + 1 == calls.len();
        let failed = calls.get(made).filter(|_| !is_last || result < 0);
        Ok((stopped, failed.map_or(Ok(()), |call| Err((*call, result)))))
    }

    /// Waits for a new stub's next trap; or for a signal that nobody can block, which a filter of the guest's has sent
    /// instead of a call (SECCOMP_RET_TRAP), or brought about by answering the call in which a result is shown.
    async fn traps_next(
        &mut self,
        mut running: Running,
    ) -> Result<Result<(Running, Notification), Stopped>, PlantError> {
        loop {
            running = match self.comes(running).await? {
                Came::Trapped(running, notif) => return Ok(Ok((running, notif))),
                Came::Stopped(stopped, Event::Signal(libc::SIGSYS | libc::SIGSEGV)) => {
                    return Ok(Err(stopped));
                }
                Came::Stopped(stopped, event) => through_stop(stopped, &event, "a call")?,
            };
        }
    }

    /// Waits until a new stub stops that was asked to.
    async fn stops(&mut self, mut running: Running) -> Result<Stopped, PlantError> {
        let tid = running.tid();
        loop {
            running = match running.wait().await.map_err(|e| lost(tid, e))? {
                (stopped, Event::Stop) => return Ok(stopped),
                (stopped, event) => through_stop(stopped, &event, "a call")?,
            };
        }
    }

    /// Gives a thread that waits in a trap descriptors, and has the kernel make the call; or has it fail.
    async fn give(&self, notif: &Notification, give: &Given<'_>) -> io::Result<()> {
        for (at, fd) in give {
            let how = AddFd { at: Some(*at), ..AddFd::default() };
            if let Err(e) = self.listener.lend(notif.id, *fd, how).await {
                let errno = e.raw_os_error().unwrap_or(libc::EIO);
                return self.listener.reply(notif.id, Reply::Errno(errno));
            }
        }
        self.listener.reply(notif.id, Reply::Continue)
    }
}

impl Listener {
    /// Puts a copy of `fd` into the table of the thread that made a call, which takes the copy itself: the thread may have
    /// no processor now, or be frozen.
    pub(crate) async fn lend(
        &self,
        id: NotifId,
        fd: BorrowedFd<'_>,
        how: AddFd,
    ) -> io::Result<i64> {
        let mut again = false;
        loop {
            match self.add_fd_soon(id, fd, how, again) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                    again = true;
                    ptrace::pause(AGAIN).await;
                }
                added => return added,
            }
        }
    }
}

/// Ends a new stub, which executes nothing but its own code.
pub(crate) async fn end(
    stopped: Stopped,
    like: &ptrace::Regs,
    code: &SealedCode,
) -> Result<(), PlantError> {
    let tid = stopped.tid();
    let gone = move |e: io::Error| lost(tid, e);
    stopped.set_regs(&Native::begin(code.exit(), like)).map_err(gone)?;
    let mut running = stopped.go_on(0).map_err(gone)?;
    loop {
        let (stopped, event) = match running.wait().await {
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            came => came.map_err(gone)?,
        };
        running = through_stop(stopped, &event, "exit")?;
    }
}

/// How long it is waited until a thread is given a descriptor again.
const AGAIN: Duration = Duration::from_millis(20);

/// The next thing that a thread comes to.
enum Came {
    Trapped(Running, Notification),
    Stopped(Stopped, Event),
}

/// Has a stopped thread make another by `call`, which no filter of ours sees. It is not waited for until it
/// has left the call.
pub(crate) async fn clone(
    mut stopped: Stopped,
    base: &ptrace::Regs,
    call: &Call,
) -> Result<Cloned, PlantError> {
    let tid = stopped.tid();
    let gone = move |e: io::Error| lost(tid, e);
    loop {
        let left = match next_event(enter(stopped, base, call).await?).await? {
            (left, Event::Clone(born)) => {
                let born = Running::born(born);
                return Ok(Cloned::Born(left.to_syscall(0).map_err(gone)?, born));
            }
            other => exit_stop(tid, other, call.name)?,
        };
        let result = result(&left, base).map_err(gone)?;
        if !RESTART.contains(&result) {
            return Ok(Cloned::Failed(left, result));
        }
        stopped = left;
    }
}

/// What an injected call returned.
fn result(left: &Stopped, base: &ptrace::Regs) -> io::Result<i64> {
    let (.., ip) = Native::entry(base);
    Ok(Native::result(&Native::behind(&left.regs()?, ip)))
}

/// Waits until a thread has left its clone.
pub(crate) async fn out_of_clone(maker: Running) -> Result<Stopped, PlantError> {
    exit_stop(maker.tid(), next_event(maker).await?, "clone")
}

fn exit_stop(
    tid: Tid,
    (stopped, event): (Stopped, Event),
    call: &'static str,
) -> Result<Stopped, PlantError> {
    match event {
        Event::Syscall => Ok(stopped),
        event => Err(unexpected(tid, call, format!("{event:?}"))),
    }
}

/// Lets a stopped thread into a call, past the point where it could still be another.
async fn enter(stopped: Stopped, base: &ptrace::Regs, call: &Call) -> Result<Running, PlantError> {
    let tid = stopped.tid();
    let gone = move |e: io::Error| lost(tid, e);
    stopped.set_regs(&Native::inject(base, call.nr, call.args)).map_err(gone)?;
    let (entered, event) = next_event(stopped.to_syscall(0).map_err(gone)?).await?;
    // The instruction is the guest's memory: make sure that it still is the system call, with the
    // arguments that were set.
    let regs = entered.regs().map_err(gone)?;
    let (nr, args, at) = Native::entry(&regs);
    let (.., place) = Native::entry(base);
    if event != Event::Syscall || (nr, args, at) != (call.nr.into(), call.args, place) {
        return Err(unexpected(tid, call.name, format!("{event:?} nr {nr} at {at:#x}")));
    }
    entered.to_syscall(0).map_err(gone)
}

/// `-ERESTARTSYS` to `-ERESTART_RESTARTBLOCK`, include/linux/errno.h: a call was interrupted.
pub(crate) const RESTART: std::ops::RangeInclusive<i64> = -516..=-512;

/// The signal to go on with after a stop of the whole process; `None` for any other event.
fn group_stop(event: &Event) -> Option<i32> {
    match event {
        Event::Stop => Some(0),
        // About to stop the process, which this thread can only pass on.
        Event::Signal(libc::SIGSTOP) => Some(libc::SIGSTOP),
        _ => None,
    }
}

/// Lets a thread go on that takes part in a stop of its process.
fn through_stop(
    stopped: Stopped,
    event: &Event,
    call: &'static str,
) -> Result<Running, PlantError> {
    let tid = stopped.tid();
    match group_stop(event) {
        Some(signal) => stopped.go_on(signal).map_err(|e| lost(tid, e)),
        None => Err(unexpected(tid, call, format!("{event:?}"))),
    }
}

/// Waits for a thread's next event other than a stop of the whole process.
async fn next_event(mut running: Running) -> Result<(Stopped, Event), PlantError> {
    let tid = running.tid();
    loop {
        let (stopped, event) = running.wait().await.map_err(|e| lost(tid, e))?;
        let Some(signal) = group_stop(&event) else { return Ok((stopped, event)) };
        running = stopped.to_syscall(signal).map_err(|e| lost(tid, e))?;
    }
}
