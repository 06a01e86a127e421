//! Tokens, which guests hold for the devices that they open, and the files that the supervisor
//! keeps for the tokens.
//!
//! A token shows the device and is of no other use ([`verbgate_sys::token`]). So the supervisor
//! opens a device for a guest, has memory of the device mapped for a guest, and closes the device
//! when the kernel reports that nobody holds the token any more.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::poll;
use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::hand::Answer;
use verbgate_sys::node::Pin;
use verbgate_sys::plant::Planter;
use verbgate_sys::process;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::shortage;
use verbgate_sys::token::Tokens;
use verbgate_sys::window::FdWindow;

use crate::books::Known;
use crate::books::UcontextId;
use crate::device::Kind;
use crate::execute;
use crate::fetch::Form;
use crate::fetch::errno;
use crate::open;
use crate::open::Wanted;
use crate::quota::Amounts;
use crate::quota::Resource;
use crate::session::Guest;
use crate::supervisor::Supervisor;

/// The first number that is not one of the standard streams.
const LOWEST: u32 = 3;

/// How many files are kept for guests at most: half of the descriptors that this process may have.
fn most_kept() -> usize {
    usize::try_from(process::descriptor_limit() / 2).unwrap_or(usize::MAX)
}

/// Why a device was not opened, or a descriptor not duplicated.
pub(crate) struct Unopened {
    pub(crate) errno: Errno,
    /// The caller has been told.
    pub(crate) answered: bool,
    /// So has the operator, or needs not be.
    pub(crate) said: bool,
}

impl From<Errno> for Unopened {
    fn from(errno: Errno) -> Self {
        Self { errno, answered: false, said: false }
    }
}

impl Supervisor {
    /// Opens a device, and has the tracer give the guest what stands for it, and tell of that.
    pub(crate) fn open_by_token(
        &self,
        trap: &Notification,
        (guest, device): (&Arc<Guest>, usize),
        wanted: Wanted,
        tokens: &Tokens,
    ) -> Result<(), Unopened> {
        // What the kernel has let go of by now is closed, as if the guest had held it itself.
        self.release();
        let granted = self.devices.get(device).ok_or(Errno(libc::ENODEV))?;
        if self.books.lock().kept() >= most_kept() {
            return Err(Errno(libc::EMFILE).into());
        }
        let caller = self.caller(trap);
        let path = open::path(&caller, wanted.path)?;
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(&path).to_vec();
        let place = wanted.path + (path.len() - name.len()) as u64;
        let name = CString::new(name).map_err(|_| Errno::EFAULT)?;
        let charged = self.charge_open(trap, granted.kind)?;
        let opened = granted.open(wanted.flags).and_then(|(file, _)| {
            let token = tokens.make(&name, &file)?;
            Ok((shortage::spared(file)?, token))
        });
        let (file, token) = opened.map_err(|e| self.uncharge(&charged, e))?;
        let mut books = self.books.lock();
        let id = books.open(device, Some((token.mount, Pin::new(None))));
        if let Some(ucontext) = books.get_mut(id) {
            ucontext.account.keep(&charged);
        }
        books.keep(id, Arc::new(file), token.end);
        drop(books);
        let at = self.number_for(trap, guest, granted.kind.works_unwatched())?;
        let cloexec = wanted.flags & libc::O_CLOEXEC != 0;
        let (guest, trap, of) = (Arc::clone(guest), *trap, Arc::clone(guest));
        self.tracer.give(&of, move |supervisor| {
            Box::pin(async move {
                let watched = supervisor.fds;
                let answer = Answer { token: &token, name: place, at, cloexec, watched };
                let work = async |hand: &mut Planter<'_>| {
                    hand.give_token(&guest.process, &trap, &answer).await
                };
                // If it fails, the guest may hold the token all the same: its end says when it does not.
                let given = supervisor.by_hand(&guest, &trap, work).await;
                if let Ok(given) = &given {
                    supervisor.books.lock().hold(guest.key, *given, id);
                }
                supervisor.opened(&trap, device, given);
            })
        });
        Ok(())
    }

    /// Opens the connection manager, whose file a guest gets itself, through a file system of its own:
    /// the end of that is the end of the file, whoever has a duplicate.
    pub(crate) fn open_cm(
        &self,
        device: usize,
        flags: i32,
        tokens: &Tokens,
    ) -> io::Result<(File, UcontextId)> {
        let granted = self.devices.get(device).ok_or(io::ErrorKind::NotFound)?;
        let (file, token) = granted.open_with_end(flags, tokens)?;
        let mut books = self.books.lock();
        let id = books.open(device, Some((token.mount, Pin::new(None))));
        books.ends_with(id, token.end);
        Ok((file, id))
    }

    /// Charges an open of a device.
    pub(crate) fn charge_open(&self, trap: &Notification, kind: Kind) -> Result<Amounts, Errno> {
        if kind == Kind::Cm {
            return Ok(Amounts::default());
        }
        let what = Amounts::of(Resource::Ucontexts, 1);
        self.ledger.charge(&what, &|resource| self.bound(resource)).map_err(|over| {
            let refusal = over.refusal("open");
            self.warn(refusal.reason, || format!("thread {}: {}", trap.tid, refusal.line));
            self.told.lock().counts.refuse(refusal.reason);
            refusal.errno
        })?;
        Ok(what)
    }

    /// An open that was charged has failed.
    pub(crate) fn uncharge(&self, charged: &Amounts, e: io::Error) -> Errno {
        self.ledger.release(charged);
        errno(e)
    }

    /// The number that a token gets, in a table as it is.
    fn number_for(
        &self,
        trap: &Notification,
        guest: &Guest,
        unwatched: bool,
    ) -> Result<u32, Unopened> {
        let caller = self.caller(trap);
        let limit = caller.descriptor_limit().map_err(errno)?;
        let first = self.fds.first;
        let watched = FdWindow { first, len: self.fds.end().min(limit).saturating_sub(first) };
        let below = FdWindow { first: LOWEST, len: first.min(limit).saturating_sub(LOWEST) };
        let free = |window, at| open::free_number(caller, window, at).map_err(errno);
        let mut next = guest.next_fd.lock();
        let mut at = free(watched, *next)?;
        if at.is_none() {
            at = free(watched, first)?;
        }
        *next = at.map_or(first, |at| at + 1);
        if at.is_none() && unwatched {
            at = free(below, LOWEST)?;
        }
        // Nobody is to wait for this guest: the next one looks from the next number on.
        drop(next);
        at.ok_or_else(|| {
            self.warn_no_number(guest);
            Errno::EMFILE.into()
        })
    }

    /// Has a guest make the duplicate itself, where the number that it asks for is none that is
    /// watched; otherwise it does so anyhow.
    pub(crate) fn duplicate_token(
        &self,
        guest: &Arc<Guest>,
        trap: &Notification,
        (fd, least, cloexec): (GuestFd, u32, bool),
        id: UcontextId,
    ) -> bool {
        if least >= self.fds.first {
            return false;
        }
        let (guest, trap, of) = (Arc::clone(guest), *trap, Arc::clone(guest));
        self.tracer.give(&of, move |supervisor| {
            Box::pin(async move {
                let duplicate = (fd, supervisor.fds.first, cloexec);
                let work = async |hand: &mut Planter<'_>| {
                    hand.duplicate(&guest.process, &trap, duplicate).await
                };
                if let Ok(given) = supervisor.by_hand(&guest, &trap, work).await {
                    supervisor.books.lock().hold(guest.key, given, id);
                }
            })
        });
        true
    }

    /// Mapping memory: of a device, a stub does it.
    pub(crate) fn map(&self, trap: Notification) {
        let [addr, len, .., fd, _] = trap.args;
        if self.window.is_near(addr, len, self.judge.is_some()) {
            return self.stub_memory(trap);
        }
        let fd = execute::guest_fd(fd);
        if self.numbers_recur {
            self.release();
        }
        let meant = self.means(self.caller(&trap), fd, Form::Write(0));
        let known = meant.ok().flatten().and_then(|id| self.books.lock().known(id));
        match known {
            Some(Known::Token(..)) => self.ask(trap, fd, Instant::now(), None),
            Some(Known::File) | None => self.answer(trap, Reply::Continue),
        }
    }

    /// Closes the files whose tokens have come to their ends.
    pub(crate) fn release(&self) {
        let Some(tokens) = &self.tokens else { return };
        let _turn = self.releasing.lock();
        for end in tokens.ended(|| self.books.lock().ends()) {
            // Closing a device may take a while: not under the lock of the books.
            let ended = self.books.lock().ended(end);
            drop(ended);
        }
    }

    /// Closes files as soon as their tokens have come to their ends, until nobody is left to serve.
    pub fn attend_tokens(&self) {
        let Some(tokens) = &self.tokens else { return };
        while !self.is_over() {
            let fds = [tokens.as_fd(), self.ended.as_fd()];
            let _ = poll(&mut fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)), None);
            self.release();
        }
    }
}
