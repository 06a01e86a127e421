//! Locks of single bytes of a file, by which processes agree on who has what: fcntl(2),
//! `F_OFD_SETLK`. The file stays empty of what is agreed on, and the kernel takes the locks of a
//! process back, however it ends.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A file whose bytes stand for things, and which is open once in a process.
#[derive(Debug)]
pub struct RangeLocks(File);

impl RangeLocks {
    /// Locks of a file that is open for writing. Who has the same open file has the same locks.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self(file)
    }

    /// Takes the lock of a byte; whether that could be taken, or was taken here before.
    ///
    /// # Errors
    /// fcntl(2)'s: `ENOLCK` when there are too many, `EINVAL` for a byte from 2^63 on.
    pub fn take(&self, at: u64) -> io::Result<bool> {
        match self.set(libc::F_WRLCK, at) {
            Ok(()) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Gives the lock of a byte back.
    ///
    /// # Errors
    /// fcntl(2)'s.
    pub fn give(&self, at: u64) -> io::Result<()> {
        self.set(libc::F_UNLCK, at)
    }

    fn set(&self, kind: libc::c_int, at: u64) -> io::Result<()> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let whence = libc::SEEK_SET;
        let lock = libc::flock {
            l_type: kind.try_into().map_err(|_| invalid())?,
            l_whence: whence.try_into().map_err(|_| invalid())?,
            l_start: at.try_into().map_err(|_| invalid())?,
            l_len: 1,
            // Must be 0 for a lock of an open file.
            l_pid: 0,
        };
        // SAFETY: the kernel reads the structure, which lives until the call returns, and keeps no
        // pointer to the structure.
        match unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_byte_is_one_open_files_until_that_gives_the_byte_back_or_closes() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || {
            RangeLocks::new(OpenOptions::new().read(true).write(true).open(path.path()).unwrap())
        };
        let (one, other) = (open(), open());
        let last = u64::MAX >> 1;
        for at in [0, 7, last - 1] {
            assert!(one.take(at).unwrap() && one.take(at).unwrap());
            assert!(!other.take(at).unwrap());
            assert!(other.take(at + 1).unwrap());
            other.give(at + 1).unwrap();
        }
        one.give(7).unwrap();
        assert!(other.take(7).unwrap() && !one.take(7).unwrap());
        drop(other);
        assert!(one.take(7).unwrap());
        assert_eq!(one.take(u64::MAX).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
