//! The supervisor of a container: one process, which serves the container's command and every
//! process that `exec` adds, each under a filter of its own.
//!
//! The wrapped runtime is under a filter from before its beginning ([`super::under`]). Until the
//! container starts, there are only the runtime and its hooks, whose calls go on natively, and the
//! supervisor is unconfined: the supervisor starts the process that moves NICs, and leaves nothing
//! behind if there will be no container. When the container starts, the supervisor confines itself
//! and serves the filter, like the supervisor of `verbgate run`.
//!
//! A supervisor is never restarted. The supervisor ends with the container; when the wrapped
//! runtime ends without having made a container; or when the runtime says that the container is
//! gone.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use verbgate_proxy::Siblings;
use verbgate_proxy::Supervisor;
use verbgate_sandbox::Guard;
use verbgate_sandbox::Rights;
use verbgate_sandbox::Views;
use verbgate_sys::Tgid;
use verbgate_sys::post::Letter;
use verbgate_sys::post::Post;
use verbgate_sys::process::PidFd;
use verbgate_sys::sandbox;
use verbgate_sys::sandbox::container;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::seccomp::Reply;

use super::granted;
use super::keeper;
use super::letter::HEARD;
use super::letter::Watch;
use super::letter::Word;
use super::letter::narrowing_of;
use super::letter::say_readiness;
use super::place::Place;
use super::place::Spec;
use super::pod::Groups;
use super::served::Served;
use super::served::shown;
use super::under;
use super::warden;
use crate::options::Globals;

/// How often it is looked whether the processes under a filter have ended, of which no descriptor
/// tells that could be waited for beside letters.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The same when the container is gone.
const LOOK_SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// How long those may take to end who are under a filter when the container is gone: the real
/// runtime, which cleans up, and its hooks.
const LINGER: Duration = Duration::from_secs(10);

/// Runs the supervisor of the container with this directory, for the process that is or becomes the
/// real runtime. Standard input is the locked file of the directory; standard output takes one line.
///
/// # Errors
/// When the container cannot be served.
pub fn run(place: &Path, runtime: i32, globals: &Globals) -> Result<u8, Error> {
    // Crun waits for all of its children, and this would be one that waits for crun.
    sandbox::leave_parent().context("cannot detach the supervisor from the runtime")?;
    let place = Place::at(place);
    let life = Life::begin(&place, Tgid(runtime), globals.log.clone());
    say_readiness(&life)?;
    let result = life.and_then(Life::live);
    // Confined, if the container was started; who deletes it removes the directory then.
    if let Ok(End::Unstarted(lock)) = &result {
        let _ = place.remove_own(lock.as_fd());
    }
    result.map(|_| 0)
}

/// Moves this process into control groups of its own, before this process confines itself; says so where
/// there can be none.
pub(super) fn join_groups(
    spec: &Spec,
    rights: &Rights,
    first: Tgid,
    place: &Place,
) -> Option<Groups> {
    let mut joined = Groups::join(spec.pod.as_ref(), first, place.path());
    match joined.as_mut().map(|groups| groups.memory.take()) {
        Ok(Some(memory)) => rights.bound(memory),
        Ok(None) => log::warn!(
            "container {}: no control group has the controller memory, so nothing bounds the memory \
             of the supervisor",
            spec.id
        ),
        Err(e) => log::warn!(
            "container {}: the supervisor cannot have a control group of its own: {e}; its memory \
             is not bounded, and counts where the engine's does",
            spec.id
        ),
    }
    joined.ok()
}

/// How a supervisor's life ends.
#[derive(Debug)]
enum End {
    /// No command of a container was executed, nor will be. The container's file is still locked.
    Unstarted(OwnedFd),
    /// Who deletes the container removes its directory, which this confined process cannot.
    Over,
}

/// A filter whose processes are still the runtime's own.
struct Early {
    guard: Guard,
    listener: Listener,
    filters: u32,
}

struct Life {
    /// The options of the log.
    log: Vec<OsString>,
    place: Place,
    spec: Spec,
    rights: Rights,
    control: Post,
    runtime: Option<PidFd>,
    early: Option<Early>,
    container: Option<(Tgid, PidFd)>,
    views: Option<Views>,
    started: bool,
    /// Those that this process is in.
    groups: Option<Groups>,
    /// Whether the container is gone, and others may have its directory.
    given_up: bool,
    /// Until when those are served who are left, when the runtime says that there shall be none.
    ending: Option<Instant>,
    siblings: Siblings,
    served: Served,
}

impl Life {
    fn begin(place: &Place, runtime: Tgid, log: Vec<OsString>) -> Result<Self, Error> {
        let spec =
            place.spec().with_context(|| format!("cannot read {}", place.path().display()))?;
        // A session of its own: what is sent to the engine's does not end it.
        rustix::process::setsid().context("cannot leave the session")?;
        rustix::process::chdir("/")?;
        let rights = granted::rights(&spec, place)?;
        let control = Post::bind(&place.control())
            .with_context(|| format!("cannot make the socket {}", place.control().display()))?;
        let runtime = PidFd::open(runtime).context("the runtime has ended")?;
        Ok(Self {
            log,
            place: place.clone(),
            spec,
            rights,
            control,
            runtime: Some(runtime),
            early: None,
            container: None,
            views: None,
            started: false,
            groups: None,
            given_up: false,
            ending: None,
            siblings: Siblings::default(),
            served: Served::default(),
        })
    }

    fn live(mut self) -> Result<End, Error> {
        loop {
            self.wait()?;
            while let Some(letter) = self.control.take()? {
                self.read(letter)?;
            }
            self.let_on();
            self.served.retire();
            let first = self.container.as_ref().map(|(_, first)| first);
            self.served.expect(&self.spec, &self.rights, first);
            if self.runtime.as_ref().is_some_and(PidFd::has_ended) {
                self.runtime = None;
            }
            let gone = match &self.container {
                Some((_, pidfd)) => pidfd.has_ended(),
                // A process that the runtime leaves under the filter is a container's that no hook has told of.
                None => self.runtime.is_none() && self.early.is_none(),
            };
            if !self.started && (gone || self.ending.is_some()) {
                // Before the folder is removed, and the groups with the folder.
                self.groups.take().iter().for_each(Groups::leave);
                let lock = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
                return Ok(End::Unstarted(lock));
            }
            if gone || self.ending.is_some() {
                self.give_up_place()?;
            }
            let over = self.given_up && self.served.all.is_empty();
            if over || self.ending.is_some_and(|until| Instant::now() >= until) {
                return Ok(End::Over);
            }
        }
    }

    /// Lets others have the container's directory: the lock goes with standard input.
    fn give_up_place(&mut self) -> Result<(), Error> {
        if !self.given_up {
            // Before the folder is free: who removes the folder removes the groups.
            self.groups.take().iter().for_each(Groups::leave);
            rustix::stdio::dup2_stdin(fs::File::open("/dev/null")?)?;
            self.given_up = true;
        }
        Ok(())
    }

    /// Waits until there is something to do.
    fn wait(&self) -> Result<(), Error> {
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.control.as_fd()];
        fds.extend(self.runtime.as_ref().map(PidFd::as_fd));
        fds.extend(self.early.as_ref().map(|early| early.listener.as_fd()));
        // One that has ended would wake at once for ever; then it is the others that are waited for.
        let container = self.container.as_ref().map(|(_, pidfd)| pidfd);
        fds.extend(container.filter(|pidfd| !pidfd.has_ended()).map(PidFd::as_fd));
        let mut fds: Vec<PollFd<'_>> =
            fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let often = if self.given_up { &LOOK_SOON } else { &LOOK };
        let look = (!self.served.all.is_empty() || self.given_up).then_some(often);
        match rustix::event::poll(&mut fds, look) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Lets the calls of the runtime and its hooks go on natively.
    fn let_on(&mut self) {
        let Some(Early { listener, .. }) = &self.early else { return };
        let nobody = loop {
            match listener.wait(0) {
                Ok(false) => break false,
                // Whoever was killed meanwhile waits for nothing.
                Ok(true) => drop(
                    listener.receive().and_then(|trap| listener.reply(trap.id, Reply::Continue)),
                ),
                Err(_) => break true,
            }
        };
        if nobody {
            self.early = None;
        }
    }

    /// Does as a letter of our own says. Nobody else reaches the directory.
    fn read(&mut self, letter: Letter) -> Result<(), Error> {
        let word = match serde_json::from_slice(&letter.body) {
            Ok(word) => word,
            Err(e) => {
                log::error!("cannot read a message of verbgate oci: {e}");
                letter.reply(format!("the supervisor cannot read this: {e}").as_bytes());
                return Ok(());
            }
        };
        if word == Word::Show {
            let first = self.container.as_ref().map(|(tgid, _)| *tgid);
            let shown = shown(&self.spec, first, self.started, &self.served);
            letter.reply(shown.to_string().as_bytes());
            return Ok(());
        }
        let Letter { answer, files, body, sender, user } = letter;
        let (answer, done) = match word {
            // What moves them answers itself.
            Word::Move(pid) => {
                // Before the keeper is there, which is in the same groups then.
                self.join_groups(Tgid(pid));
                if let Err(e) = keeper::start(&self.log, &self.place, pid, answer) {
                    log::error!("{e:#}");
                }
                return Ok(());
            }
            word => (answer, self.heed(word, files)),
        };
        let letter = Letter { answer, files: Vec::new(), body, sender, user };
        match done {
            Ok(()) => letter.reply(HEARD.as_bytes()),
            Err(e) => {
                let text = format!("{e:#}");
                log::error!("{text}");
                letter.reply(text.as_bytes());
                // Without its first process served there is no container; of an `exec`, only that
                // fails.
                if !self.started && word == Word::Start {
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn heed(&mut self, word: Word, files: Vec<OwnedFd>) -> Result<(), Error> {
        match word {
            Word::Watch(watch) => self.watch(watch, files),
            Word::Sysfs(pid) => {
                let served = container::served(files).map_err(|files| {
                    anyhow!("the message about /sys came with {} descriptors", files.len())
                })?;
                self.follow(Tgid(pid));
                let shown = verbgate_sandbox::shown(&self.spec.devices);
                Ok(self.views_of(Tgid(pid))?.serve(served, shown)?)
            }
            Word::Created(pid) if self.container.is_none() => self.created(Tgid(pid)),
            Word::Start => self.start(),
            Word::Narrow => {
                let by = narrowing_of(files)?;
                log::info!("container {} is narrowed by {by}", self.spec.id);
                self.rights.narrow(by.clone());
                self.served.all.iter().for_each(|one| one.narrow(by.clone()));
                Ok(())
            }
            Word::End => {
                self.ending.get_or_insert(Instant::now() + LINGER);
                Ok(())
            }
            Word::Created(_) | Word::Move(_) | Word::Show => Ok(()),
        }
    }

    /// A runtime is under a filter: the one that makes the container, or one that executes something
    /// in it.
    fn watch(&mut self, watch: Watch, files: Vec<OwnedFd>) -> Result<(), Error> {
        let [file] = <[OwnedFd; 1]>::try_from(files).map_err(|files| {
            anyhow!("the message about a filter came with {} listeners", files.len())
        })?;
        let (guard, listener) = (Guard::of(watch.windows)?, Listener::receive_from(file)?);
        if self.started {
            return self.serve(&guard, listener.into(), verbgate_sandbox::serve);
        }
        if self.container.is_some() || self.early.is_some() {
            return Err(anyhow!("the container is not started yet; start the container first"));
        }
        self.early = Some(Early { guard, listener, filters: watch.filters });
        Ok(())
    }

    fn created(&mut self, first: Tgid) -> Result<(), Error> {
        let pidfd = PidFd::open(first).with_context(|| format!("process {first} has ended"))?;
        let early = self.early.as_ref().context("the runtime is not under verbgate's filter")?;
        // Who starts containers through a daemon leaves them outside.
        if under::filters(&first.to_string())? < early.filters {
            return Err(anyhow!(
                "the runtime has made the container's process {first} outside of the filter that \
                 the runtime is under; use runc or crun"
            ));
        }
        self.follow(first);
        self.views_of(first)?;
        self.join_groups(first);
        self.container = Some((first, pidfd));
        if self.spec.runs { self.start() } else { Ok(()) }
    }

    /// Follows the devices that were moved with their NICs, before anything is shown by what they were.
    fn follow(&mut self, first: Tgid) {
        if self.spec.netdevs.is_some() {
            self.rights.follow(&mut self.spec.devices, first);
        }
    }

    fn views_of(&mut self, first: Tgid) -> Result<Views, Error> {
        match &self.views {
            Some(views) => Ok(views.clone()),
            None => Ok(self.views.insert(Views::of(first, &self.spec.devices)?).clone()),
        }
    }

    /// From now on the container's own program may run.
    fn start(&mut self) -> Result<(), Error> {
        if self.started {
            return Ok(());
        }
        let early = self.early.take().context("the container's process has ended")?;
        let Some((first, _)) = &self.container else {
            return Err(anyhow!("the container is not created yet"));
        };
        let first = *first;
        if self.spec.ends_alone {
            warden::start(&self.log, self.place.path(), first)?;
        }
        self.serve(&early.guard, early.listener.into(), verbgate_sandbox::start)?;
        self.started = true;
        self.served.began(&self.spec);
        let devices: Vec<&str> = self.spec.devices.iter().map(|one| one.name.as_str()).collect();
        log::info!("container {} starts with {}", self.spec.id, devices.join(", "));
        Ok(())
    }

    /// Lets the limits of the container's pod, or of the groups above the container's, count this process
    /// and its helpers, and the kernel bound their memory.
    fn join_groups(&mut self, first: Tgid) {
        if self.groups.is_none() {
            self.groups = join_groups(&self.spec, &self.rights, first, &self.place);
        }
    }

    fn serve(
        &mut self,
        guard: &Guard,
        listener: OwnedFd,
        how: fn(&Arc<Supervisor>) -> io::Result<()>,
    ) -> Result<(), Error> {
        let views = self.views.clone().context("the container is not created yet")?;
        let siblings = Some(self.siblings.clone());
        let supervisor = self.rights.supervisor(guard, listener, &views, siblings, None)?;
        how(&supervisor).context("cannot start the supervisor")?;
        self.served.all.push(supervisor);
        Ok(())
    }
}
