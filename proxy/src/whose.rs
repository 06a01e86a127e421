//! Ownership: whose memory a caller has, and which ucontext the caller's descriptor means.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::arch::stub_fd;
use verbgate_sys::caller::Caller;
use verbgate_sys::caller::InCommon;
use verbgate_sys::caller::Meant;
use verbgate_sys::node;
use verbgate_sys::node::MountId;
use verbgate_sys::process;
use verbgate_sys::process::Thread;
use verbgate_sys::resident::PageMap;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::shortage;

use crate::books::Known;
use crate::books::UcontextId;
use crate::fetch;
use crate::fetch::Form;
use crate::session;
use crate::session::Guest;
use crate::session::GuestState;
use crate::session::StubState;
use crate::supervisor::Supervisor;
use crate::task::Call;
use crate::task::Event;

/// The stub's descriptor that requests go to.
const UCONTEXT: GuestFd = GuestFd(stub_fd::UCONTEXT.cast_signed());

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
    pub(crate) proven: bool,
    /// What is resident of the caller's memory, if that had to be opened.
    pub(crate) pages: Option<PageMap>,
    /// The mount that the caller's descriptor was opened through, if that was looked at.
    pub(crate) mount: Option<MountId>,
}

/// Stubs that are as soon compared with a caller as it is found which one is of the caller's process.
const FEW: usize = 4;

impl Supervisor {
    /// Whose memory a caller has.
    ///
    /// A thread that has made a request before is known again by its folder of descriptors, or by the
    /// memory that it shares with a stub of the same guest. Then the guest's map of resident memory is
    /// the thread's, too, and need not be opened, which would cost a quarter of a request. `fd`: the
    /// descriptor of the call, which the folder shows at the same time.
    pub(crate) fn whose(&self, caller: Caller<'_>, fd: Option<GuestFd>) -> Whose {
        let recent = self.registry.lock().recent(caller.tid());
        if let Some(session::Acquaintance { guest, stub, fellow }) = recent
            && guest.pages.get().is_some()
        {
            let found = |mount| Met { guest: Arc::clone(&guest), proven: true, pages: None, mount };
            if let (Some(fellow), Some(fd)) = (&fellow, fd)
                && let Ok(mount) = caller.mount_as((fellow, &stub), fd)
            {
                return Whose::Known(found(Some(mount)));
            }
            if caller.seems_to_share_memory_with(&stub).unwrap_or(false) {
                return Whose::Known(found(None));
            }
        }
        let pages = caller.pages().ok();
        let memory = pages.as_ref().map_or(caller, |pages| caller.looked_at(pages));
        if let Some(owner) = fetch::owner(&memory, self.window) {
            return match self.registry.lock().by_owner(owner) {
                Some(guest) => Whose::Known(Met { guest, proven: false, pages, mount: None }),
                None => Whose::Orphan,
            };
        }
        // The page where the owner stands may have been taken from the guest for the while, and is
        // not fetched: most of those that come here have none.
        let shares = |(_, stub): &(Arc<Guest>, Arc<Thread>)| {
            caller.shares_memory_with(stub).unwrap_or(false)
        };
        // Where there are many stubs, the caller's own process is looked at first. Most other callers have nothing where
        // stubs have their code, and are compared with none.
        let many = self.registry.lock().routes.len() > FEW;
        let own = many.then(|| process::tgid(caller.tid()).ok()).flatten();
        let own = own.and_then(|own| self.registry.lock().stub_of(own)).filter(&shares);
        let may = || !many || caller.may_share_memory_with_stubs(&self.code).unwrap_or(true);
        let found = own.or_else(|| {
            let stubs = if may() { self.registry.lock().stubs() } else { Vec::new() };
            stubs.into_iter().find(shares)
        });
        match found {
            Some((guest, _)) => Whose::Known(Met { guest, proven: true, pages, mount: None }),
            None => Whose::Nobody,
        }
    }

    /// A call from an address space that has no stub yet.
    pub(crate) fn unplanted(&self, trap: Notification, fd: GuestFd, form: Form) {
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
            let is_it = is_known(self.whose(caller, None));
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
        let books = self.books.lock();
        let (given, holders) = (books.given_of(device), books.holders_of(device));
        drop(books);
        // A guest has its descriptor before it is known which number that got.
        let is_it = |file: &File| caller.has_own(fd, file.as_fd()).unwrap_or(false);
        if let Some((id, _)) = given.iter().find(|(_, file)| is_it(file)) {
            return Some(*id);
        }
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
        let failed = |e: std::io::Error| Errno(shortage::errno_or(&e, libc::EBADF));
        let taken = caller.take(fd).map_err(failed)?;
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

    /// The idle stub that holds the file of a call already, if there is one; and whether the caller
    /// is of this guest at all.
    pub(crate) fn held(
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
            let lives = |worker: &&session::Worker| !matches!(worker.state, StubState::Ended);
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
        let looked_at = match (meant, call.mount) {
            (Meant::Mount(meant), Some(mount)) => Some(meant == mount),
            _ => None,
        };
        let shares = || caller.shares(call.fd, (stub, meant, idle), call.met);
        let found = looked_at.map(|file| Ok(InCommon { memory: true, file: Ok(file) }));
        match found.unwrap_or_else(shares) {
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
                log::debug!("cannot compare the memory of thread {} (kcmp): {e}", call.trap.tid);
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
            let fellow = self.caller(&call.trap).fellow_of(&guest.process).ok().flatten();
            let stub = &worker.stub.thread;
            self.registry.lock().remember(call.trap.tid, guest, stub, fellow);
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
}
