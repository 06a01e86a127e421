//! The supervisor of a container that came by the agent: one process, confined like the supervisors
//! of `verbgate oci`. The supervisor ends when no process is left under a filter of the container.

use std::fs;
use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::net::AddressFamily;
use rustix::net::RecvFlags;
use rustix::net::SendFlags;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use serde::Deserialize;
use serde::Serialize;
use verbgate_proxy::Siblings;
use verbgate_sandbox::Guard;
use verbgate_sandbox::Rights;
use verbgate_sandbox::Views;
use verbgate_sandbox::Windows;
use verbgate_sys::Tgid;
use verbgate_sys::post::Letter;
use verbgate_sys::post::Post;
use verbgate_sys::process::PidFd;
use verbgate_sys::rights;

use super::super::bounds;
use super::super::granted;
use super::super::letter::HEARD;
use super::super::letter::Word;
use super::super::letter::narrowing_of;
use super::super::place::Place;
use super::super::place::Spec;
use super::super::pod::Groups;
use super::super::served::Served;
use super::super::served::shown;
use super::super::supervisor::join_groups;

/// How often it is looked whether the processes under a filter have ended.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// The same once the container's first has.
const LOOK_SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Longest order.
const MAX_ORDER: usize = 1024;

/// The agent's message about a listener that the agent passes on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// The process under the filter.
    pub(super) pid: i32,
    pub(super) windows: Windows,
}

/// The agent's end, and the supervisor's.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Passes a listener on; never waits for the supervisor.
pub(super) fn send(to: BorrowedFd<'_>, order: &Order, listener: BorrowedFd<'_>) -> io::Result<()> {
    let body = serde_json::to_vec(order)?;
    Ok(rights::send(to, &[IoSlice::new(&body)], &[listener], SendFlags::DONTWAIT)?)
}

/// The next order; `None` when the agent is gone.
fn receive(from: BorrowedFd<'_>) -> Result<Option<(Order, OwnedFd)>, Error> {
    let mut body = [0_u8; MAX_ORDER];
    let got = rights::receive(from, &mut body, RecvFlags::empty())?;
    match (body.get(..got.bytes), got.fds.into_iter().next()) {
        (Some([]) | None, _) => Ok(None),
        (Some(text), Some(fd)) => Ok(Some((serde_json::from_slice(text)?, fd))),
        (Some(_), None) => Err(anyhow!("the descriptor table is full")),
    }
}

/// Runs the supervisor of the container with this directory. Standard input is the locked file of
/// the directory; standard output is the agent.
///
/// # Errors
/// When the container cannot be served.
pub fn run(place: &Path) -> Result<u8, Error> {
    AgentLife::begin(place).and_then(AgentLife::live).map(|()| 0)
}

struct AgentLife {
    place: Place,
    spec: Spec,
    rights: Rights,
    agent: Option<OwnedFd>,
    control: Post,
    first: Option<(Tgid, PidFd)>,
    views: Option<Views>,
    siblings: Siblings,
    served: Served,
    /// The control groups that this process is in.
    groups: Option<Groups>,
}

impl AgentLife {
    fn begin(place: &Path) -> Result<Self, Error> {
        let place = Place::at(place);
        let spec =
            place.spec().with_context(|| format!("cannot read {}", place.path().display()))?;
        // A session of its own: what is sent to the agent's does not end it.
        rustix::process::setsid().context("cannot leave the session")?;
        rustix::process::chdir("/")?;
        let agent = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        let null = fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(&null)?;
        Ok(Self {
            rights: granted::rights(&spec, &place)?,
            place: place.clone(),
            spec,
            agent: Some(agent),
            control: Post::bind(&place.control())?,
            first: None,
            views: None,
            siblings: Siblings::default(),
            served: Served::default(),
            groups: None,
        })
    }

    fn live(mut self) -> Result<(), Error> {
        loop {
            self.wait()?;
            while let Some(letter) = self.control.take()? {
                self.answer(letter);
            }
            self.hear()?;
            self.served.retire();
            let first = self.first.as_ref().map(|(_, first)| first);
            self.served.expect(&self.spec, &self.rights, first);
            if self.served.all.is_empty() && (self.views.is_some() || self.agent.is_none()) {
                // The agent removes the groups with the directory.
                self.groups.take().iter().for_each(Groups::leave);
                return Ok(());
            }
        }
    }

    /// Answers a letter: about the container, unless a policy came along.
    fn answer(&mut self, mut letter: Letter) {
        let word = serde_json::from_slice(&letter.body);
        if !matches!(word, Ok(Word::Narrow)) {
            let first = self.first.as_ref().map(|(tgid, _)| *tgid);
            let value = shown(&self.spec, first, self.views.is_some(), &self.served);
            return letter.reply(value.to_string().as_bytes());
        }
        match narrowing_of(std::mem::take(&mut letter.files)) {
            Ok(by) => {
                log::info!("container {} is narrowed by {by}", self.spec.id);
                self.rights.narrow(by.clone());
                self.served.all.iter().for_each(|one| one.narrow(by.clone()));
                letter.reply(HEARD.as_bytes());
            }
            Err(e) => letter.reply(format!("{e:#}").as_bytes()),
        }
    }

    fn wait(&self) -> Result<(), Error> {
        let mut fds = vec![PollFd::new(&self.control, PollFlags::IN)];
        fds.extend(self.agent.as_ref().map(|agent| PollFd::new(agent, PollFlags::IN)));
        let first = self.first.as_ref().map(|(_, first)| first);
        let lives = first.filter(|first| !first.has_ended());
        fds.extend(lives.map(|first| PollFd::from_borrowed_fd(first.as_fd(), PollFlags::IN)));
        let often = if lives.is_some() { &LOOK } else { &LOOK_SOON };
        let look = (!self.served.all.is_empty()).then_some(often);
        match rustix::event::poll(&mut fds, look) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Serves what the agent passes on, if it does.
    fn hear(&mut self) -> Result<(), Error> {
        let Some(agent) = &self.agent else { return Ok(()) };
        let mut fds = [PollFd::new(agent, PollFlags::IN)];
        if rustix::event::poll(&mut fds, Some(&Timespec::default()))? == 0 {
            return Ok(());
        }
        let first = self.views.is_none();
        match receive(agent.as_fd()) {
            Ok(None) => self.agent = None,
            Ok(Some((order, listener))) => match self.serve(&order, listener) {
                Err(e) if first => return Err(e),
                Err(e) => log::error!("process {} is not served: {e:#}", order.pid),
                Ok(()) => {}
            },
            Err(e) => log::error!("cannot read an order of the agent: {e:#}"),
        }
        Ok(())
    }

    fn serve(&mut self, order: &Order, listener: OwnedFd) -> Result<(), Error> {
        let guard = Guard::behind(order.windows)?;
        let views = match &self.views {
            Some(views) => views.clone(),
            None => Views::of(Tgid(order.pid), &self.spec.devices)?,
        };
        let siblings = Some(self.siblings.clone());
        let supervisor = self.rights.supervisor(&guard, listener, &views, siblings, None)?;
        if self.views.replace(views).is_some() {
            verbgate_sandbox::serve(&supervisor)?;
        } else {
            let first = Tgid(order.pid);
            bounds::enforce(&self.spec, order.pid).context("cannot read the container's policy")?;
            self.groups = join_groups(&self.spec, &self.rights, first, &self.place);
            self.first = Some((first, PidFd::open(first)?));
            verbgate_sandbox::start(&supervisor).context("cannot start the supervisor")?;
            self.served.began(&self.spec);
        }
        self.served.all.push(supervisor);
        Ok(())
    }
}
