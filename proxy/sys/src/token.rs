//! Tokens: a guest gets a token in place of an open device. A token is a descriptor of a node with
//! the device's number, opened by path alone (`O_PATH`, open(2)).
//!
//! fstat(2) shows the device, by which libraries know the token. Reading, writing, ioctl(2) and
//! mmap(2) fail on a token, wherever the token is sent; and nobody opens the file through a token,
//! because the token's mount honours no device nodes. The file itself stays with the supervisor,
//! which has stubs make requests on the file.
//!
//! Each open has a file system of its own, with nothing in it but the node. So the mount names the
//! open, as [`node`] says; and the file system lasts as long as any duplicate of the
//! descriptor, in whatever process, or on its way over a socket. inotify(7) tells of its end, which
//! no watch puts off.

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::inotify;
use rustix::fs::inotify::CreateFlags;
use rustix::fs::inotify::ReadFlags;
use rustix::fs::inotify::WatchFlags;
use rustix::mount::FsMountFlags;
use rustix::mount::FsOpenFlags;
use rustix::mount::MountAttrFlags;
use rustix::process::DumpableBehavior;
use rustix::process::Uid;

use crate::node;
use crate::node::MountId;
use crate::sandbox::mounts;

/// The longest name of a file.
const NAME_MAX: usize = 255;

/// The first of numbers that no user has. Process numbers are below 2^22.
const USERS: u32 = 0x7f00_0000;

/// Names the end of a token, until it has been told of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct End(i32);

impl From<i32> for End {
    /// As inotify(7) tells it.
    fn from(watch: i32) -> Self {
        Self(watch)
    }
}

/// Makes tokens, and tells of their ends.
#[derive(Debug)]
pub struct Tokens(OwnedFd);

/// A file system with a node in it.
#[derive(Debug)]
pub struct Token {
    /// The mount by which the token is known.
    pub mount: MountId,
    /// No other mount will have that number, even when this one is gone (Linux 6.8). If not, it may be
    /// given again as soon as the end has been told ([`Tokens::ended`]).
    pub for_ever: bool,
    /// Its end.
    pub end: End,
    /// The directory that the node is in. Keeps the token from its end, as a duplicate would.
    pub dir: OwnedFd,
}

impl Tokens {
    /// None are made yet.
    ///
    /// # Errors
    /// inotify_init1(2)'s: `EMFILE` where the user has as many as fs.inotify.max_user_instances, and
    /// CAP_SETUID is missing.
    pub fn new() -> io::Result<Self> {
        let init = || inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        // A node runs more containers than a user may have instances (128), and any process of root's
        // in a container could take them all: so each supervisor counts as a user of its own. On a
        // thread of its own, since the kernel knows users by thread.
        let before = rustix::process::dumpable_behavior();
        let made = std::thread::spawn(move || {
            let own = Uid::from_raw(USERS + std::process::id());
            rustix::thread::set_thread_res_uid(None, own, None).ok().map(|()| init())
        });
        let made = made.join().map_err(|_| io::Error::other("a thread ended"))?;
        // Changed with the user.
        if let Ok(before @ DumpableBehavior::Dumpable) = before {
            rustix::process::set_dumpable_behavior(before)?;
        }
        Ok(Self(made.unwrap_or_else(init)?))
    }

    /// A token of this name for an open device.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN and CAP_MKNOD. `ENAMETOOLONG`. fsopen(2)'s and mknod(2)'s.
    pub fn make(&self, name: &CStr, device: impl AsFd) -> io::Result<Token> {
        let number = rustix::fs::fstat(device)?.st_rdev;
        self.placed(name, number, MountAttrFlags::MOUNT_ATTR_NODEV).map(|(token, _)| token)
    }

    /// Opens the device of a number for reading and writing, through a file system of its own: the end
    /// of the file's last duplicate is told as a token's is. Nobody opens the device again by way of the
    /// file.
    ///
    /// # Errors
    /// As [`Tokens::make`]; open(2)'s.
    pub fn open(&self, name: &CStr, number: u64, flags: i32) -> io::Result<(File, Token)> {
        let (token, mount) = self.placed(name, number, MountAttrFlags::empty())?;
        let flags =
            OFlags::from_bits_retain(flags.cast_unsigned()) | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&mount, name, flags, Mode::empty())?;
        mounts::refuse_devices(mount.as_fd())?;
        Ok((file.into(), token))
    }

    /// A file system with a node in it, and its mount.
    fn placed(
        &self,
        name: &CStr,
        number: u64,
        devices: MountAttrFlags,
    ) -> io::Result<(Token, OwnedFd)> {
        if name.count_bytes() > NAME_MAX {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        let system = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(system.as_fd(), "mode", "0755")?;
        rustix::mount::fsconfig_create(system.as_fd())?;
        let none = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC | devices;
        let mount = rustix::mount::fsmount(system.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, none)?;
        let (kind, mode) = (rustix::fs::FileType::CharacterDevice, Mode::from_raw_mode(0o666));
        rustix::fs::mknodat(&mount, name, kind, mode, number)?;
        mounts::refuse_changes(mount.as_fd())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&mount, c".", flags, Mode::empty())?;
        let root = format!("/proc/self/fd/{}", mount.as_raw_fd());
        // Whatever is watched, the end of the file system is told.
        let end = End(inotify::add_watch(&self.0, root, WatchFlags::DELETE_SELF)?);
        let (id, for_ever) = node::mount_for_ever(dir.as_fd())?;
        Ok((Token { mount: id, for_ever, end, dir }, mount))
    }

    /// The ends since the last look, of those that are `known`: asked for where the kernel has had no room
    /// to tell of all.
    pub fn ended(&self, known: impl Fn() -> Vec<End>) -> Vec<End> {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut space);
        let (mut ended, mut overflowed) = (Vec::new(), false);
        // Fails with EAGAIN when all have been told.
        while let Ok(event) = reader.next() {
            overflowed |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            if event.events().contains(ReadFlags::IGNORED) {
                ended.push(End(event.wd()));
            }
        }
        if overflowed && let Ok(living) = self.living() {
            ended = known().into_iter().filter(|end| !living.contains(end)).collect();
        }
        ended
    }

    /// The ends that are yet to come; proc_pid_fdinfo(5).
    fn living(&self) -> io::Result<HashSet<End>> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()))?;
        let watch = |line: &str| {
            let number = line.strip_prefix("inotify wd:")?.split_whitespace().next()?;
            i32::from_str_radix(number, 16).ok().map(End)
        };
        Ok(info.lines().filter_map(watch).collect())
    }

    /// What becomes readable when one has come to its end.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    fn made(tokens: &Tokens) -> Option<(Token, OwnedFd)> {
        let null = File::open("/dev/null").unwrap();
        let token = match tokens.make(c"uverbs0", &null) {
            Ok(token) => token,
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                println!("skipped: mounting needs root");
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let guest = rustix::fs::openat(&token.dir, c"uverbs0", flags, Mode::empty()).unwrap();
        Some((token, guest))
    }

    #[test]
    fn supervisors_do_not_share_the_limit_of_a_user() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: being another user needs root");
            return;
        }
        let mut all = Vec::new();
        let exhausted = loop {
            match inotify::init(CreateFlags::CLOEXEC) {
                Ok(one) => all.push(one),
                Err(errno) => break errno,
            }
        };
        assert_eq!(exhausted, rustix::io::Errno::MFILE);
        assert!(Tokens::new().is_ok());
        let dumpable = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(dumpable, DumpableBehavior::Dumpable);
    }

    #[test]
    fn a_token_shows_the_device_and_is_of_no_use() {
        let tokens = Tokens::new().unwrap();
        let Some((token, guest)) = made(&tokens) else { return };
        assert_eq!(process::char_device(guest.as_fd()).unwrap(), Some((1, 3)));
        assert_eq!(node::mount_id(guest.as_fd()).unwrap(), token.mount);
        let bad = Some(libc::EBADF);
        let errno =
            |ret: i64| (ret < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten();
        // SAFETY: plain numbers; the descriptor is open.
        assert_eq!(errno(unsafe { libc::ioctl(guest.as_raw_fd(), 0xc018_1b01, 0) }.into()), bad);
        assert_eq!(rustix::io::write(&guest, b"x"), Err(rustix::io::Errno::BADF));
        // SAFETY: the mapping must not come into being; if it does, the test fails.
        assert!(unsafe { memmap2::MmapOptions::new().len(4096).map(&guest) }.is_err());
        let again = format!("/proc/self/fd/{}", guest.as_raw_fd());
        for options in [File::options().read(true), File::options().read(true).write(true)] {
            assert_eq!(options.open(&again).unwrap_err().raw_os_error(), Some(libc::EACCES));
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let new = rustix::fs::openat(&token.dir, c"new", flags, Mode::RWXU);
        assert_eq!(new.unwrap_err(), rustix::io::Errno::ROFS);
    }

    #[test]
    fn a_file_of_its_own_file_system_ends_with_its_last_duplicate_and_is_not_opened_again() {
        let tokens = Tokens::new().unwrap();
        let (file, token) = match tokens.open(c"device", rustix::fs::makedev(1, 3), 0) {
            Ok(made) => made,
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                println!("skipped: mounting needs root");
                return;
            }
            Err(e) => panic!("{e}"),
        };
        let Token { mount, end, dir, .. } = token;
        drop(dir);
        assert_eq!(process::char_device(file.as_fd()).unwrap(), Some((1, 3)));
        assert_eq!(node::mount_id(file.as_fd()).unwrap(), mount);
        assert_eq!(rustix::io::write(&file, b"x"), Ok(1));
        let again = File::options().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EACCES));
        let other = file.try_clone().unwrap();
        drop(file);
        assert_eq!(tokens.ended(Vec::new), []);
        drop(other);
        // Another test may be starting a program, which has them all for a moment.
        assert_eq!(next_ended(&tokens), [end]);
    }

    fn next_ended(tokens: &Tokens) -> Vec<End> {
        verbgate_wait::until("an end", || {
            Some(tokens.ended(Vec::new)).filter(|ended| !ended.is_empty())
        })
    }

    #[test]
    fn ends_that_the_kernel_had_no_room_to_tell_of_are_found() {
        let tokens = Tokens::new().unwrap();
        let Some((over, guest)) = made(&tokens) else { return };
        let Some((living, kept)) = made(&tokens) else { return };
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let events = WatchFlags::CREATE | WatchFlags::DELETE;
        inotify::add_watch(&tokens.0, dir.path(), events).unwrap();
        for _ in 0..most.trim().parse::<u32>().unwrap() / 2 + 1 {
            File::create(dir.path().join("file")).unwrap();
            fs::remove_file(dir.path().join("file")).unwrap();
        }
        let known = [over.end, living.end];
        drop((over, guest));
        // Another test may be starting a program, which has them all for a moment.
        verbgate_wait::until("an end", || !tokens.living().unwrap().contains(&known[0]));
        assert_eq!(tokens.ended(|| known.to_vec()), [known[0]]);
        drop(kept);
    }

    #[test]
    fn a_token_ends_with_its_last_duplicate() {
        let tokens = Tokens::new().unwrap();
        let Some((token, guest)) = made(&tokens) else { return };
        let Token { end, dir, .. } = token;
        drop(dir);
        let other = guest.try_clone().unwrap();
        drop(guest);
        assert_eq!(tokens.ended(Vec::new), []);
        assert_eq!(tokens.living().unwrap(), HashSet::from([end]));
        drop(other);
        // Another test may be starting a program, which has them all for a moment.
        assert_eq!(next_ended(&tokens), [end]);
        assert_eq!(tokens.ended(Vec::new), []);
        assert!(tokens.living().unwrap().is_empty());
    }
}
