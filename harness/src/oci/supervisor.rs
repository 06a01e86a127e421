//! The supervisor of a container: one process, which serves the container's command and whatever
//! is executed beside it, each under a filter of its own.
//!
//! It waits, unconfined, until the container's first process is to execute its command; there
//! nothing hostile has run yet. From then on it is confined as that of `verbgate run`.
//!
//! It is never restarted. It ends with the container; when the real runtime ends and has made no
//! container; or when the runtime says that the container is gone.

use std::fs;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use serde::Deserialize;
use verbgate_proxy::Siblings;
use verbgate_sys::Tgid;
use verbgate_sys::post::Letter;
use verbgate_sys::post::Post;
use verbgate_sys::process;
use verbgate_sys::process::PidFd;
use verbgate_sys::sandbox::Sysfs;
use verbgate_sys::sandbox::container::Arrival;

use super::SupervisorArgs;
use super::place::Place;
use super::place::Spec;
use super::shown::Served;
use super::shown::shown;
use super::start::READY;
use crate::failure::Failure;
use crate::supervise;
use crate::supervise::Guard;
use crate::supervise::Plan;
use crate::virtual_sys;
use crate::virtual_sys::Views;

/// How often it is looked whether the processes under a filter have ended, of which no descriptor
/// tells that could be waited for beside letters.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How long a runtime may take from `exec` to the process's arrival.
const EXEC_PATIENCE: Duration = Duration::from_secs(60);

/// A letter from `verbgate` itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Word {
    /// The container's first process.
    Created(i32),
    /// A process will be executed.
    Expect,
    /// What is there?
    Show,
    /// The container is gone.
    End,
}

/// Runs it. Standard input is the locked file of the container's directory; standard output takes
/// one line.
pub(crate) fn run(args: &SupervisorArgs) -> Result<u8, Failure> {
    // What the engine gave to the runtime, and waits to be closed.
    process::close_from(3).context("cannot close inherited descriptors (Linux 5.9 is needed)")?;
    let place = Place::at(&args.place);
    let life = Life::begin(&place, Tgid(args.runtime));
    let said = match &life {
        Ok(_) => READY.to_owned(),
        Err(error) => error.to_string().replace('\n', " "),
    };
    // Who asked may be dead; then there will be no container, and this process ends, too.
    let _ = writeln!(io::stdout(), "{said}").and_then(|()| io::stdout().flush());
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    let result = life.and_then(Life::live);
    // Confined, if a command was executed; who deletes the container removes the directory then.
    if !matches!(result, Ok(End::Over)) {
        let _ = place.remove_own(io::stdin().as_fd());
    }
    result.map(|_| 0).map_err(Failure::of_tool)
}

/// How a supervisor's life ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// No command of a container was executed, nor will be.
    Unstarted,
    /// Who deletes the container removes its directory, which this confined process cannot.
    Over,
}

struct Life {
    spec: Spec,
    plan: Plan,
    control: Post,
    guests: Post,
    runtime: Option<PidFd>,
    container: Option<(Tgid, PidFd)>,
    /// Until when processes may arrive from `exec`.
    expected: Vec<Instant>,
    views: Option<Views>,
    siblings: Siblings,
    served: Served,
}

impl Life {
    fn begin(place: &Place, runtime: Tgid) -> Result<Self, Error> {
        let spec =
            place.spec().with_context(|| format!("cannot read {}", place.path().display()))?;
        // A session of its own: what is sent to the engine's does not end it.
        rustix::process::setsid().context("cannot leave the session")?;
        rustix::process::chdir("/")?;
        let plan = Plan::with_cm(&spec.devices, &spec.profile)?;
        let bind = |path: std::path::PathBuf| {
            Post::bind(&path).with_context(|| format!("cannot make the socket {}", path.display()))
        };
        let (control, guests) = (bind(place.control())?, bind(place.socket())?);
        let runtime = PidFd::open(runtime).context("the runtime has ended")?;
        Ok(Self {
            spec,
            plan,
            control,
            guests,
            runtime: Some(runtime),
            container: None,
            expected: Vec::new(),
            views: None,
            siblings: Siblings::default(),
            served: Served::default(),
        })
    }

    fn live(mut self) -> Result<End, Error> {
        loop {
            self.wait()?;
            while let Some(letter) = self.control.take()? {
                if self.told(&letter) {
                    return Ok(if self.has_started() { End::Over } else { End::Unstarted });
                }
            }
            while let Some(letter) = self.guests.take()? {
                self.arrived(letter)?;
            }
            self.served.retire();
            if self.runtime.as_ref().is_some_and(PidFd::has_ended) {
                self.runtime = None;
            }
            let gone = match &self.container {
                Some((_, pidfd)) => pidfd.has_ended(),
                None => self.runtime.is_none(),
            };
            if gone && self.served.all.is_empty() {
                return Ok(if self.has_started() { End::Over } else { End::Unstarted });
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> Result<(), Error> {
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.control.as_fd(), self.guests.as_fd()];
        fds.extend(self.runtime.as_ref().map(PidFd::as_fd));
        // One that has ended would wake at once for ever; then it is the others that are waited for.
        let container = self.container.as_ref().map(|(_, pidfd)| pidfd);
        fds.extend(container.filter(|pidfd| !pidfd.has_ended()).map(PidFd::as_fd));
        let mut fds: Vec<PollFd<'_>> =
            fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let look = (!self.served.all.is_empty()).then_some(&LOOK);
        match rustix::event::poll(&mut fds, look) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether a command has been executed under a filter.
    fn has_started(&self) -> bool {
        self.views.is_some()
    }

    /// Reads a letter of our own; true when it says that all is over.
    fn told(&mut self, letter: &Letter) -> bool {
        // Nobody else reaches the directory.
        match serde_json::from_slice(&letter.body) {
            Ok(Word::Created(pid)) if self.container.is_none() => match PidFd::open(Tgid(pid)) {
                Ok(pidfd) => self.container = Some((Tgid(pid), pidfd)),
                Err(e) => log::error!("process {pid}, the container's first: {e}"),
            },
            Ok(Word::Created(_)) => {}
            Ok(Word::Expect) => self.expected.push(Instant::now() + EXEC_PATIENCE),
            Ok(Word::Show) => return self.show(letter),
            Ok(Word::End) => {
                letter.reply(b"ending");
                return true;
            }
            Err(e) => log::error!("a letter that cannot be read: {e}"),
        }
        letter.reply(b"heard");
        false
    }

    fn show(&self, letter: &Letter) -> bool {
        let first = self.container.as_ref().map(|(tgid, _)| *tgid);
        let shown = shown(&self.spec, first, self.has_started(), &self.served);
        letter.reply(shown.to_string().as_bytes());
        false
    }

    /// A process that executes `verbgate-init`.
    fn arrived(&mut self, letter: Letter) -> Result<(), Error> {
        let Some(arrival) = Arrival::read(letter) else { return Ok(()) };
        if !self.may_enter(arrival.tgid) {
            arrival.refuse("this process was not started by the container's runtime");
            return Ok(());
        }
        let (tgid, first) = (arrival.tgid, !self.has_started());
        match self.serve(arrival) {
            Ok(()) => Ok(()),
            // Of the first, the container ends; of another, only the `exec` does.
            Err(e) if first => Err(e),
            Err(e) => {
                log::error!("process {tgid} is not served: {e}");
                Ok(())
            }
        }
    }

    /// The container's first process may, and as many as the runtime was told to execute.
    fn may_enter(&mut self, tgid: Tgid) -> bool {
        if !self.has_started() {
            return self.container.as_ref().is_some_and(|(container, _)| *container == tgid);
        }
        let now = Instant::now();
        self.expected.retain(|until| *until > now);
        self.expected.pop().is_some()
    }

    fn serve(&mut self, arrival: Arrival) -> Result<(), Error> {
        let guard = Guard::new(arrival.descriptors)?;
        let tgid = arrival.tgid;
        if self.spec.netdevs.is_some() && !self.has_started() {
            self.plan.follow(&mut self.spec.devices, tgid);
        }
        let shown = virtual_sys::shown(&self.spec.devices);
        let views = match &self.views {
            Some(views) => views.clone(),
            None => Views::of(tgid, &self.spec.devices)?,
        };
        let serve = |_, served| views.serve(served, shown.clone());
        let sysfs = Sysfs { keep: verbgate_sysfs::KEPT, serve: &serve };
        // Once for all: what is executed later is in the same mounts.
        let sysfs = (self.spec.sysfs && !self.has_started()).then_some(sysfs);
        let entered = arrival
            .admit(guard.program(), sysfs)
            .map_err(|e| anyhow!("process {tgid} did not come under the filter: {e}"))?;
        let siblings = Some(self.siblings.clone());
        let supervisor = self.plan.supervisor(&guard, entered.listener, &views, siblings, None)?;
        if self.views.replace(views).is_some() {
            supervise::serve(&supervisor)?;
        } else {
            supervise::start(&supervisor).context("cannot start the supervisor")?;
        }
        // Ended meanwhile: its supervisor finds nobody.
        let _ = entered.gate.go();
        self.served.all.push(supervisor);
        Ok(())
    }
}
