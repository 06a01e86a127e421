//! A guest thread that waits in a trap: the only way in which the supervisor looks at a guest.
//!
//! A number names a thread only as long as the thread lives, and a trapped call lasts only as long
//! as the call's notification is valid. So a fact that is found by the number is believed only if
//! the notification is found valid *afterwards* (seccomp_unotify(2), "NOTES"): then the thread has
//! lived, and the number has been the thread's, all the while. A handle that is opened in this way
//! (a [`Process`], a network namespace) pins the thing, and can be kept.
//!
//! Each of these calls may wait for the guest: for the guest's memory, whose faults the guest may
//! answer itself, or for locks that the guest's own system calls hold. No such call may be made
//! under a lock that serves another.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::fs::OFlags;

use crate::GuestFd;
use crate::Tgid;
use crate::Tid;
use crate::frame::SealedCode;
use crate::mem;
use crate::mem::GuestMemory;
use crate::mem::Range;
use crate::node;
use crate::node::MountId;
use crate::process;
use crate::process::GuestFile;
use crate::process::PidFd;
use crate::process::Process;
use crate::process::Thread;
use crate::resident;
use crate::resident::PageMap;
use crate::seccomp::Listener;
use crate::seccomp::NotifId;
use crate::seccomp::Notification;
use crate::share::Share;

/// A guest thread that waits in a trap.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    listener: &'a Listener,
    id: NotifId,
    tid: Tid,
    pages: Option<&'a PageMap>,
}

/// What a caller has in common with a stub.
#[derive(Debug)]
pub struct InCommon {
    /// They share their memory.
    pub memory: bool,
    /// The caller's descriptor means what the stub's ucontext was bound for; the error when the
    /// caller's is not open.
    pub file: io::Result<bool>,
}

/// A thread of a stub's process, known by its folder of descriptors in `/proc`: which is empty once the
/// thread is gone, whoever has the number then. As long as the stub lives the thread has executed no
/// other program, because that ends all threads but one; so both have one memory.
#[derive(Debug)]
pub struct Fellow {
    descriptors: OwnedFd,
}

impl Fellow {
    /// Whether the thread has ended, whoever has the number by now.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let beside = rustix::fs::statat(&self.descriptors, "../comm", AtFlags::empty());
        matches!(beside, Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH))
    }
}

/// By what a caller's descriptor is known to mean what a stub's ucontext was bound for.
#[derive(Clone, Copy, Debug)]
pub enum Meant {
    /// It is the same open file as this one of the stub's.
    File(GuestFd),
    /// It was opened through this mount.
    Mount(MountId),
}

/// Whether a supervisor without CAP_DAC_READ_SEARCH was kept from looking at a descriptor of another
/// user's. It may take the file, which is to be avoided where it can be.
fn lacks_permission<T>(looked: &io::Result<T>) -> bool {
    looked.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

impl<'a> Caller<'a> {
    /// The thread that made a call, of which `listener` has told.
    #[must_use]
    pub fn of(listener: &'a Listener, trap: &Notification) -> Self {
        Self { listener, id: trap.id, tid: trap.tid, pages: None }
    }

    /// What has been found out, if the number was the thread's all the while.
    pub(crate) fn believed<T>(self, found: T) -> io::Result<T> {
        if self.listener.is_valid(self.id) { Ok(found) } else { Err(gone()) }
    }

    /// Whether it waits still.
    #[must_use]
    pub fn waits(self) -> bool {
        self.listener.is_valid(self.id)
    }

    /// What is resident of its memory: to be kept, because opening it costs as much as a few reads.
    ///
    /// # Errors
    /// `ESRCH`: it is gone. open(2)'s.
    pub fn pages(self) -> io::Result<PageMap> {
        let opened = PageMap::by_number(self.tid);
        self.believed(())?;
        opened
    }

    /// The same caller, whose memory is looked at by this map: its own, or that of a thread that
    /// shares memory with it.
    #[must_use]
    pub fn looked_at<'b>(self, pages: &'b PageMap) -> Caller<'b>
    where
        'a: 'b,
    {
        Caller { pages: Some(pages), ..self }
    }

    /// How many of these ranges, from the first one on, are at hand.
    fn at_hand(self, from: &[Range]) -> io::Result<usize> {
        if let Some(pages) = self.pages {
            return Ok(pages.at_hand(from));
        }
        match self.pages() {
            Ok(pages) => Ok(pages.at_hand(from)),
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Err(e),
            Err(e) => {
                resident::without_map(&e);
                Ok(0)
            }
        }
    }

    /// The process that it belongs to.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn process(self) -> io::Result<Process> {
        // A process has its first thread's number, and no other thread's number is taken for one
        // (pidfd_open(2)). To ask a thread's status which process it is of takes four times as long.
        let found = match Process::open(Tgid(self.tid.0)) {
            Ok(found) => found,
            Err(_) => Process::open(process::tgid(self.tid)?)?,
        };
        self.believed(found)
    }

    /// The thread itself.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn thread(self) -> io::Result<Thread> {
        let found = Thread::by_number(self.tid)?;
        self.believed(found)
    }

    /// Whether it belongs to a process.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn is_of(self, process: &Process) -> io::Result<bool> {
        let tgid = process.tgid();
        // Whose number is the process's own is its first thread.
        let is_its = self.tid.0 == tgid.0 || process::tgid(self.tid)? == tgid;
        self.believed(is_its && !process.has_ended())
    }

    /// The same caller, to be known again by; `None` if it is of another process than this.
    ///
    /// # Errors
    /// `ESRCH`: it is gone. open(2)'s.
    pub fn fellow_of(self, process: &Process) -> io::Result<Option<Fellow>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("/proc/{}/fd", self.tid);
        let descriptors = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
        Ok(self.is_of(process)?.then_some(Fellow { descriptors }))
    }

    /// The mount that a descriptor's file was opened through, if the caller is this fellow of a stub's,
    /// and so has the stub's memory.
    ///
    /// # Errors
    /// `ENOENT`: no such descriptor, or another caller; `ESRCH`: it is gone, or the stub is.
    pub fn mount_as(self, known: (&Fellow, &Thread), fd: GuestFd) -> io::Result<MountId> {
        let (fellow, stub) = known;
        let mount = node::mount_at(fellow.descriptors.as_fd(), &fd.to_string())?;
        if !stub.is_alive() {
            return Err(gone());
        }
        self.believed(mount)
    }

    /// Whether it shares its memory with another thread.
    ///
    /// # Errors
    /// `ESRCH`: one of them is gone. kcmp(2)'s.
    pub fn shares_memory_with(self, other: &Thread) -> io::Result<bool> {
        let shared = process::same_memory(self.tid, other.tid())?;
        // A thread on its way to its end has no memory before it counts as ended.
        if !shared && process::is_ending(other.tid()) || !other.is_alive() {
            return Err(gone());
        }
        self.believed(shared)
    }

    /// The same for one that has been asked about before: whether that was about this caller all the
    /// while, or about another thread of its number, what is done next has to tell.
    ///
    /// # Errors
    /// `ESRCH`: one of them is gone. kcmp(2)'s.
    pub fn seems_to_share_memory_with(self, other: &Thread) -> io::Result<bool> {
        Ok(process::same_memory(self.tid, other.tid())? && other.is_alive())
    }

    /// Whether its memory may be a stub's: whether anything is mapped where a stub has its code.
    ///
    /// # Errors
    /// `ESRCH`: it is gone. Those of reading `/proc/TID/maps`.
    pub fn may_share_memory_with_stubs(self, code: &SealedCode) -> io::Result<bool> {
        let may = code.has_place_of(self.tid)?;
        self.believed(may)
    }

    /// Whether a descriptor of its means the same file as one of a process's.
    ///
    /// # Errors
    /// `EBADF`; `ESRCH`: one of them is gone. kcmp(2)'s.
    pub fn has_same(self, fd: GuestFd, (other, at): (&Process, GuestFd)) -> io::Result<bool> {
        let same = process::same_file((self.tid, fd), (Tid(other.tgid().0), at))?;
        if other.has_ended() {
            return Err(gone());
        }
        self.believed(same)
    }

    /// Whether a descriptor of its means the same file as one of the supervisor's.
    ///
    /// # Errors
    /// `EBADF`; `ESRCH`: it is gone. kcmp(2)'s.
    pub fn has_own(self, fd: GuestFd, file: BorrowedFd<'_>) -> io::Result<bool> {
        let me = Tid(rustix::thread::gettid().as_raw_nonzero().get());
        let same = process::same_file((self.tid, fd), (me, GuestFd(file.as_raw_fd())))?;
        self.believed(same)
    }

    /// What it shares with a stub that waits in the trap `idle`: memory, unless `met` says that this
    /// is known, and what its descriptor `fd` means.
    ///
    /// # Errors
    /// `ESRCH`: it is gone, or the stub is; kcmp(2)'s.
    pub fn shares(
        self,
        fd: GuestFd,
        (stub, meant, idle): (Tid, Meant, NotifId),
        met: bool,
    ) -> io::Result<InCommon> {
        let memory = met || process::same_memory(self.tid, stub)?;
        let file = match meant {
            Meant::File(at) => process::same_file((self.tid, fd), (stub, at)),
            Meant::Mount(mount) => process::descriptor_mount(self.tid, fd).map(|of| of == mount),
        };
        // Unless its number was used, it tells by itself when it is sent on that it is gone.
        let by_number = !met || matches!(meant, Meant::File(_));
        if by_number && !self.listener.is_valid(idle) {
            return Err(gone());
        }
        self.believed(InCommon { memory, file })
    }

    /// Whether a descriptor of its means a file of this process's.
    ///
    /// # Errors
    /// `EBADF`; `ESRCH`: it is gone.
    pub fn has(self, fd: GuestFd, ours: &OwnedFd) -> io::Result<bool> {
        let me = (Tid(std::process::id().cast_signed()), GuestFd(ours.as_raw_fd()));
        let same = process::same_file((self.tid, fd), me)?;
        self.believed(same)
    }

    /// The name by which the kernel shows what a descriptor means: a path, or `socket:[N]`. No file
    /// system is asked.
    ///
    /// # Errors
    /// `EBADF`; `ESRCH`: it is gone.
    pub fn name_of(self, fd: GuestFd) -> io::Result<Vec<u8>> {
        let name = process::descriptor_name(self.tid, fd);
        self.believed(())?;
        if lacks_permission(&name) {
            return self.take(fd)?.name().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF));
        }
        name
    }

    /// The mount that a descriptor's file was opened through. No file system is asked for anything
    /// that it does not have at hand.
    ///
    /// # Errors
    /// `EBADF`; `ESRCH`: it is gone.
    pub fn mount_of(self, fd: GuestFd) -> io::Result<MountId> {
        let mount = process::descriptor_mount(self.tid, fd);
        self.believed(())?;
        if lacks_permission(&mount) {
            return self.take(fd)?.mount();
        }
        mount
    }

    /// Whether a number is taken in its descriptor table.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn has_open(self, fd: GuestFd) -> io::Result<bool> {
        let taken = match process::same_file((self.tid, fd), (self.tid, fd)) {
            Ok(same) => same,
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => false,
            Err(e) => return Err(e),
        };
        self.believed(taken)
    }

    /// One past the highest number that its descriptors may have: its process's RLIMIT_NOFILE.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn descriptor_limit(self) -> io::Result<u32> {
        let limits = process::text(format!("/proc/{}/limits", self.tid));
        self.believed(())?;
        let limits = limits?;
        let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let soft = soft.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
        Ok(soft.parse().unwrap_or(u32::MAX))
    }

    /// A duplicate of a descriptor, from its own table.
    ///
    /// # Errors
    /// `EBADF`; `ESRCH`: it is gone; `EPERM`.
    pub fn take(self, fd: GuestFd) -> io::Result<GuestFile> {
        let table = PidFd::of_thread(self.tid)?;
        self.believed(())?;
        table.get_fd(fd).map(GuestFile::from)
    }

    /// Its network namespace.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn network(self) -> io::Result<File> {
        let network = process::network_of(self.tid)?;
        self.believed(network)
    }

    /// Whether a signal waits for it that it does not block, its process has been stopped, or a freezer or a tracer has
    /// poked it: then it waits on where nobody but SIGKILL ends the wait (`D`; kernel/seccomp.c,
    /// `should_sleep_killable`).
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn is_called_away(self) -> io::Result<bool> {
        let called = process::is_called_away(self.tid)? || process::state(self.tid)? == 'D';
        self.believed(called)
    }

    /// Takes a share in waits for this caller, in a helper process. If none is left, the call is put aside
    /// ([`share::take_aside`](crate::share)).
    pub(crate) fn share(self) -> io::Result<Arc<Share>> {
        Share::of(self, self.id).map(Arc::new)
    }

    /// Its number, which is its own as long as it waits.
    #[must_use]
    pub fn tid(self) -> Tid {
        self.tid
    }
}

impl GuestMemory for Caller<'_> {
    fn read(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
        let read = if self.at_hand(from)? == from.len() {
            mem::read_by_number(self.tid, from, into)
        } else {
            let share = self.share()?;
            resident::read_elsewhere(self.tid, from, into, &share, || self.waits())
        };
        self.believed(())?;
        read
    }

    fn read_at_hand(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
        let there = from.get(..self.at_hand(from)?).unwrap_or_default();
        if there.is_empty() {
            return Ok(0);
        }
        let read = mem::read_by_number(self.tid, there, into);
        self.believed(())?;
        read
    }
}
