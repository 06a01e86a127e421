//! Identities: of a thread, and of the file that a descriptor means.
//!
//! A question by number is about the current holder of the number. Handles ([`Process`],
//! [`Thread`], [`PidFd`]) name one process or thread for ever; a guest's handles are made through a
//! [`Caller`](crate::caller::Caller).

mod by_number;
mod lend;
mod pidfd;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::OFlags;

use crate::GuestFd;
use crate::Tgid;
use crate::Tid;
use crate::check;
use crate::closer;
use crate::node;
use crate::node::FileId;
use crate::node::MountId;
use crate::process::pidfd::PIDFD_THREAD;

pub use self::by_number::Processors;
pub(crate) use self::by_number::borrows_memory;
pub(crate) use self::by_number::descriptor_mount;
pub(crate) use self::by_number::descriptor_name;
pub use self::by_number::enter_network;
pub use self::by_number::ids;
pub(crate) use self::by_number::ids_in;
pub use self::by_number::is_called_away;
pub(crate) use self::by_number::is_ending;
pub use self::by_number::is_held;
pub use self::by_number::is_of_real_time;
pub(crate) use self::by_number::network_of;
pub use self::by_number::parent;
pub use self::by_number::processors;
pub use self::by_number::ran;
pub(crate) use self::by_number::same_file;
pub(crate) use self::by_number::same_memory;
pub(crate) use self::by_number::send;
pub use self::by_number::started;
pub use self::by_number::state;
pub(crate) use self::by_number::text;
pub use self::by_number::tgid;
pub use self::by_number::threads;
pub use self::by_number::tracer;
pub use self::pidfd::PidFd;

/// A process, whatever becomes of its number.
#[derive(Debug)]
pub struct Process {
    tgid: Tgid,
    pidfd: PidFd,
}

impl Process {
    /// The process that has this number now.
    ///
    /// # Errors
    /// `ESRCH`: there is none.
    pub fn open(tgid: Tgid) -> io::Result<Self> {
        Ok(Self { tgid, pidfd: PidFd::open(tgid)? })
    }

    /// Its number, which is its own until it has ended ([`Process::has_ended`]).
    #[must_use]
    pub fn tgid(&self) -> Tgid {
        self.tgid
    }

    /// Whether it has ended: all its threads.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.pidfd.has_ended()
    }

    /// Ends it.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn kill(&self) -> io::Result<()> {
        self.pidfd.signal(libc::SIGKILL)
    }

    /// What has been found out by its number, if that was its own all the while.
    fn believed<T>(&self, found: io::Result<T>) -> io::Result<T> {
        if self.has_ended() { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { found }
    }

    /// The state letter of its first thread, proc_pid_stat(5).
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn state(&self) -> io::Result<char> {
        self.believed(state(Tid(self.tgid.0)))
    }

    /// The effective user, or root where the process is not dumpable: proc(5).
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn user(&self) -> io::Result<u32> {
        let user = fs::metadata(format!("/proc/{}", self.tgid)).map(|meta| meta.uid());
        self.believed(user)
    }

    /// Its network namespace.
    ///
    /// # Errors
    /// `ESRCH`: it has ended. `EPERM`.
    pub fn network(&self) -> io::Result<fs::File> {
        self.believed(network_of(Tid(self.tgid.0)))
    }

    /// Whether none of its threads is left but stubs, and the first one, which has ended.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn is_only(&self, stubs: &[&Thread]) -> io::Result<bool> {
        let threads = self.believed(threads(self.tgid))?;
        let is_stub = |tid: &Tid| stubs.iter().any(|stub| stub.tid() == *tid && stub.is_alive());
        Ok(threads.iter().all(|tid| tid.0 == self.tgid.0 || is_stub(tid)))
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// A thread, whatever becomes of its number.
#[derive(Debug)]
pub struct Thread {
    tid: Tid,
    pin: Handle,
    /// Its number in every pid namespace in which it is visible, outermost first.
    ids: Vec<i32>,
}

#[derive(Debug)]
enum Handle {
    /// `PIDFD_THREAD`, Linux 6.9.
    PidFd(PidFd),
    /// Its folder in `/proc`, which is empty once it is gone.
    Folder(OwnedFd),
}

impl Thread {
    /// The thread that has this number now.
    pub(crate) fn by_number(tid: Tid) -> io::Result<Self> {
        // SAFETY: both arguments are plain numbers.
        let made = check(unsafe { libc::syscall(libc::SYS_pidfd_open, tid.0, PIDFD_THREAD) });
        let pin = match made {
            Ok(fd) => Handle::PidFd(PidFd::made(fd)?),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let path = format!("/proc/{tid}");
                Handle::Folder(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
            }
            Err(e) => return Err(e),
        };
        Ok(Self { tid, pin, ids: vec![tid.0] })
    }

    /// Asks by which numbers it is known in other pid namespaces.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub(crate) fn learn_numbers(&mut self) -> io::Result<()> {
        // The kernel tells these of a descriptor sooner than of a thread, of which it tells all.
        let ids = match &self.pin {
            Handle::PidFd(fd) => ids_in(format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd()))?,
            Handle::Folder(_) => ids(self.tid)?,
        };
        // Once it has ended, what was read may be another's.
        if !self.is_alive() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        self.ids = ids;
        Ok(())
    }

    /// Its number, which is its own as long as it lives ([`Thread::is_alive`]).
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        crate::count_call();
        match &self.pin {
            Handle::PidFd(fd) => !fd.has_ended(),
            Handle::Folder(folder) => {
                rustix::fs::statat(folder, c"stat", rustix::fs::AtFlags::empty()).is_ok()
            }
        }
    }

    /// Whether a debugger may mean it by this number, in whatever pid namespace.
    #[must_use]
    pub fn may_be_called(&self, id: i32) -> bool {
        self.ids.contains(&id) && self.is_alive()
    }

    /// Its state letter, proc_pid_stat(5).
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn state(&self) -> io::Result<char> {
        let found = state(self.tid);
        if self.is_alive() { found } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    }

    /// Whether it stands still at a debugger's will, or a freezer's.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn is_held(&self) -> io::Result<bool> {
        let found = is_held(self.tid);
        if self.is_alive() { found } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    }
}

/// A number that nobody can guess.
///
/// # Errors
/// getrandom(2)'s, of which no kernel of today gives any.
pub fn unguessable() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: `bytes` is writable for its whole length.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(n) {
        Ok(n) if n == bytes.len() => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The calling process's soft limit of descriptor numbers (RLIMIT_NOFILE).
#[must_use]
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Gives the calling process all the descriptors that it may have.
pub fn raise_descriptor_limit() {
    let resource = rustix::process::Resource::Nofile;
    let mut limit = rustix::process::getrlimit(resource);
    limit.current = limit.maximum;
    if let Err(e) = rustix::process::setrlimit(resource, limit) {
        log::debug!("cannot raise RLIMIT_NOFILE: {e}");
    }
}

/// Closes the calling process's descriptors from this number on.
///
/// To be called before the process has opened any of its own: they would be closed behind the back
/// of whoever holds them.
///
/// # Errors
/// close_range(2)'s: `ENOSYS` before Linux 5.9.
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: these descriptors were inherited, and nothing in this process holds one of them yet,
    // as the caller sees to.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) }).map(drop)
}

/// A file that a guest has opened.
///
/// Closing it can wait for the guest (close(2) asks a file system to flush, and the guest may serve
/// that), so that a thread of its own does it.
#[derive(Debug)]
pub struct GuestFile(Option<OwnedFd>);

impl From<OwnedFd> for GuestFile {
    fn from(file: OwnedFd) -> Self {
        Self(Some(file))
    }
}

impl GuestFile {
    /// The name by which the kernel shows it: no file system is asked.
    #[must_use]
    pub fn name(&self) -> Option<Vec<u8>> {
        let me = Tid(std::process::id().cast_signed());
        descriptor_name(me, GuestFd(self.0.as_ref()?.as_raw_fd())).ok()
    }

    /// The mount that it was opened through.
    ///
    /// # Errors
    /// statx(2)'s.
    pub fn mount(&self) -> io::Result<MountId> {
        let file = self.0.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        node::mount_id(file.as_fd())
    }

    /// Which file it is, and the same open file once more, so that no other file becomes that one.
    ///
    /// # Errors
    /// statx(2)'s; `EMFILE`.
    pub fn kept(&self) -> io::Result<(FileId, Self)> {
        let file = self.0.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        Ok((node::inode(file.as_fd())?, Self(Some(file.try_clone()?))))
    }

    /// The file, when it is known to be none of the guest's making.
    #[must_use]
    pub fn known(mut self) -> Option<OwnedFd> {
        self.0.take()
    }

    /// The file.
    #[must_use]
    pub fn get(&self) -> Option<&OwnedFd> {
        self.0.as_ref()
    }
}

impl Drop for GuestFile {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            closer::close(file);
        }
    }
}

/// What a character device descriptor is: `(major, minor)`, or `None` for any other file.
///
/// # Errors
/// fstat(2)'s.
pub fn char_device(fd: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    let stat = rustix::fs::fstat(fd)?;
    let is_char =
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::CharacterDevice;
    Ok(is_char.then(|| (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Barrier;

    use super::*;

    fn me() -> Tid {
        Tid(std::process::id().cast_signed())
    }

    #[test]
    fn a_thread_knows_its_group_state_and_tracer() {
        assert_eq!(tgid(me()).unwrap().0, me().0);
        assert!("RSDI".contains(state(me()).unwrap()));
        assert_eq!(tracer(me()).unwrap(), 0);
        assert!(tgid(Tid(i32::MAX)).is_err());
        assert!(started(me()).unwrap() >= started(Tid(1)).unwrap());
        assert!(started(Tid(i32::MAX)).is_err());
    }

    #[test]
    fn a_listing_of_threads_has_those_that_live_though_others_end_meanwhile() {
        const END: usize = 8;
        const LIVE: usize = 4;
        let missing = (0..300).filter(|_| {
            let (end, over) = (Barrier::new(END + 1), Barrier::new(LIVE + 1));
            let (give, take) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                for _ in 0..END {
                    scope.spawn(|| end.wait());
                }
                for _ in 0..LIVE {
                    let (give, over) = (give.clone(), &over);
                    scope.spawn(move || {
                        give.send(Tid(rustix::thread::gettid().as_raw_nonzero().get())).unwrap();
                        over.wait();
                    });
                }
                let live: Vec<Tid> = take.iter().take(LIVE).collect();
                end.wait();
                let all = |_| {
                    let listed = threads(Tgid(me().0)).unwrap();
                    live.iter().all(|tid| listed.contains(tid))
                };
                let found = (0..20).all(all);
                over.wait();
                !found
            })
        });
        assert_eq!(missing.count(), 0, "of 300 times");
    }

    #[test]
    fn duplicates_are_the_same_file_and_second_opens_are_not() {
        let a = fs::File::open("/dev/null").unwrap();
        let b = a.try_clone().unwrap();
        let c = fs::File::open("/dev/null").unwrap();
        let at = |f: &fs::File| (me(), GuestFd(f.as_raw_fd()));
        assert!(same_file(at(&a), at(&b)).unwrap());
        assert!(!same_file(at(&a), at(&c)).unwrap());
        let closed = same_file(at(&a), (me(), GuestFd(9999))).unwrap_err();
        assert_eq!(closed.raw_os_error(), Some(libc::EBADF));
        assert!(same_memory(me(), me()).unwrap());
    }

    #[test]
    fn descriptors_are_fetched_and_recognised() {
        let null = fs::File::open("/dev/null").unwrap();
        let pidfd = PidFd::open(Tgid(me().0)).unwrap();
        let got = pidfd.get_fd(GuestFd(null.as_raw_fd())).unwrap();
        assert_eq!(char_device(got.as_fd()).unwrap(), Some((1, 3)));
        let dir = fs::File::open("/").unwrap();
        assert_eq!(char_device(dir.as_fd()).unwrap(), None);
    }
}
