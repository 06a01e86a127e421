//! Tokens, which guests hold for the devices that they open, and the files that the supervisor
//! keeps for the tokens.
//!
//! A token shows the device and is of no other use ([`verbgate_sys::token`]). So the supervisor
//! opens a device for a guest, has memory of the device mapped for a guest, and closes the device
//! when the kernel reports that nobody holds the token any more.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::hand::Answer;
use verbgate_sys::node::Pin;
use verbgate_sys::process;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::token::Token;
use verbgate_sys::token::Tokens;
use verbgate_sys::window::FdWindow;

use crate::books::Known;
use crate::books::UcontextId;
use crate::device::Kind;
use crate::execute;
use crate::fetch::Form;
use crate::open;
use crate::open::Wanted;
use crate::quota::Amounts;
use crate::quota::Resource;
use crate::session::Guest;
use crate::supervisor::Supervisor;

/// The first number that is not one of the standard streams.
const LOWEST: u32 = 3;

/// How often it is looked whether anybody is left to serve.
const LOOK: Duration = Duration::from_millis(200);

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

fn errno(e: io::Error) -> Errno {
    Errno(e.raw_os_error().unwrap_or(libc::EIO))
}

impl Supervisor {
    /// Opens a device, and gives the guest what stands for it.
    pub(crate) fn open_by_token(
        &self,
        trap: &Notification,
        (guest, device): (&Guest, usize),
        wanted: Wanted,
        tokens: &Tokens,
    ) -> Result<GuestFd, Unopened> {
        // What the kernel has let go of by now is closed, as if the guest had held it itself.
        self.release();
        let granted = self.devices.get(device).ok_or(Errno(libc::ENODEV))?;
        if self.books.lock().kept() >= most_kept() {
            return Err(Errno(libc::EMFILE).into());
        }
        let caller = self.caller(trap);
        let path = open::path(&caller, wanted.path).ok_or(Errno::EFAULT)?;
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(&path).to_vec();
        let place = wanted.path + (path.len() - name.len()) as u64;
        let name = CString::new(name).map_err(|_| Errno::EFAULT)?;
        let charged = self.charge_open(trap, granted.kind)?;
        let opened = granted.open(wanted.flags).and_then(|(file, _)| {
            let token = tokens.make(&name, &file)?;
            Ok((file, token))
        });
        let (file, token) = opened.map_err(|e| self.uncharge(&charged, e))?;
        let mut books = self.books.lock();
        let id = books.open(device, Some((token.mount, Pin::new(None))));
        if let Some(ucontext) = books.get_mut(id) {
            ucontext.account.keep(&charged);
        }
        books.keep(id, Arc::new(file), token.end);
        drop(books);
        let how = (place, wanted.flags, granted.kind.works_unwatched());
        // If it fails, the guest may hold the token all the same: its end says when it does not.
        let given = self.give_token(trap, guest, &token, how)?;
        self.books.lock().hold(guest.key, given, id);
        Ok(given)
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

    fn give_token(
        &self,
        trap: &Notification,
        guest: &Guest,
        token: &Token,
        (name, flags, unwatched): (u64, i32, bool),
    ) -> Result<GuestFd, Unopened> {
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
        let Some(at) = at else {
            drop(next);
            self.warn_no_number(guest);
            return Err(Errno::EMFILE.into());
        };
        // Nobody is to wait for this guest: the next one looks from the next number on.
        drop(next);
        let cloexec = flags & libc::O_CLOEXEC != 0;
        let answer = Answer { token, name, at, cloexec, watched: self.fds };
        self.by_hand(guest, trap, |hand| hand.give_token(&guest.process, trap, &answer))
    }

    /// Has a guest make the duplicate itself, where the number that it asks for is none that is
    /// watched; otherwise it does so anyhow.
    pub(crate) fn duplicate_token(
        &self,
        guest: &Guest,
        trap: &Notification,
        (fd, least, cloexec): (GuestFd, u32, bool),
        id: UcontextId,
    ) -> Result<bool, Errno> {
        if least >= self.fds.first {
            return Ok(false);
        }
        let duplicate = (fd, self.fds.first, cloexec);
        let made =
            self.by_hand(guest, trap, |hand| hand.duplicate(&guest.process, trap, duplicate));
        if let Ok(given) = made {
            self.books.lock().hold(guest.key, given, id);
        }
        Ok(true)
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
        let interval = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        while !self.is_over() {
            let mut fds = [PollFd::from_borrowed_fd(tokens.as_fd(), PollFlags::IN)];
            let _ = poll(&mut fds, Some(&interval));
            self.release();
        }
    }
}
