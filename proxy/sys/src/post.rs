//! Letters between processes: datagrams on a named Unix socket, with the sender's credentials and
//! descriptors.
//!
//! Datagrams fit, because the receiver is confined: the receiver neither accepts connections nor
//! makes sockets, and answers on a descriptor that came with the letter. unix(7).

use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::AddressFamily;
use rustix::net::RecvFlags;
use rustix::net::SendFlags;
use rustix::net::SocketAddrUnix;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use rustix::net::sockopt::Timeout;

use crate::Tgid;
use crate::rights;

/// Longest body. Longer letters are cut off.
pub const MAX_BODY: usize = 1024;

/// Longest answer, in bytes; one datagram carries it.
const MAX_ANSWER: usize = 128 << 10;

/// An hour, after which a wait without end begins anew.
const HOUR_MS: i32 = 3_600_000;

/// Where letters arrive.
#[derive(Debug)]
pub struct Post(OwnedFd);

/// A letter.
#[derive(Debug)]
pub struct Letter {
    /// Who sent it, as the receiver's PID namespace numbers it; the kernel vouches for it.
    pub sender: Tgid,
    /// The sender's user, as the receiver's user namespace numbers it.
    pub user: u32,
    /// Its text.
    pub body: Vec<u8>,
    /// Where an answer is waited for.
    pub answer: OwnedFd,
    /// Files that came with the letter.
    pub files: Vec<OwnedFd>,
}

impl Post {
    /// Makes the socket, for everybody to write to who reaches its directory.
    ///
    /// # Errors
    /// socket(2)'s, bind(2)'s (`EADDRINUSE`: the file exists) and chmod(2)'s.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?;
        Ok(Self(socket))
    }

    /// The next letter, if there is one. One without a descriptor to answer on is thrown away.
    ///
    /// # Errors
    /// recvmsg(2)'s.
    pub fn take(&self) -> io::Result<Option<Letter>> {
        loop {
            let mut body = [0_u8; MAX_BODY];
            let got = match rights::receive(&self.0, &mut body, RecvFlags::empty()) {
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                other => other?,
            };
            let mut files = got.fds;
            if let (Some(from), false) = (got.sender, files.is_empty()) {
                return Ok(Some(Letter {
                    sender: Tgid(from.pid.as_raw_nonzero().get()),
                    user: from.uid.as_raw(),
                    body: body.get(..got.bytes).unwrap_or_default().to_vec(),
                    answer: files.remove(0),
                    files,
                }));
            }
        }
    }

    /// Waits for the next letter, however long.
    ///
    /// # Errors
    /// poll(2)'s and recvmsg(2)'s.
    pub fn wait(&self) -> io::Result<Letter> {
        loop {
            if let Some(letter) = self.take()? {
                return Ok(letter);
            }
            readable(self.as_fd(), HOUR_MS)?;
        }
    }
}

impl AsFd for Post {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Letter {
    /// Answers it. Who does not wait for it any more needs none.
    pub fn reply(&self, text: &[u8]) {
        let _ = rights::send(&self.answer, &[IoSlice::new(text)], &[], SendFlags::DONTWAIT);
    }
}

/// A way to somebody's [`Post`], which stays open when the sender enters other namespaces.
#[derive(Debug)]
pub struct Way(OwnedFd);

impl Way {
    /// Finds the socket.
    ///
    /// # Errors
    /// connect(2)'s: `ENOENT` or `ECONNREFUSED` when nobody is there (any more).
    pub fn to(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Sends a letter with a few files, and gives the socket on which the receiver answers.
    ///
    /// # Errors
    /// sendmsg(2)'s: `ECONNREFUSED` when nobody is there any more.
    pub fn send(&self, body: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let all: Vec<BorrowedFd<'_>> =
            std::iter::once(theirs.as_fd()).chain(files.iter().copied()).collect();
        rights::send(&self.0, &[IoSlice::new(body)], &all, SendFlags::empty())?;
        Ok(ours)
    }

    /// Sends a letter and waits for the answer: for so many milliseconds until there is room for the
    /// letter, and for so many until there is an answer.
    ///
    /// # Errors
    /// As [`Way::send`]'s; `TimedOut`; `UnexpectedEof` when the other side went away.
    pub fn ask(
        &self,
        body: &[u8],
        files: &[BorrowedFd<'_>],
        patience_ms: i32,
    ) -> io::Result<Vec<u8>> {
        // Whose letters nobody takes must not keep the sender, either.
        let patience = Duration::from_millis(patience_ms.try_into().unwrap_or(0));
        rustix::net::sockopt::set_socket_timeout(&self.0, Timeout::Send, Some(patience))?;
        let socket = self.send(body, files).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => e,
        })?;
        if !readable(socket.as_fd(), patience_ms)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut answer = vec![0_u8; MAX_ANSWER];
        let (len, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.truncate(len);
        Ok(answer)
    }
}

/// Sends a letter and waits for the answer, for so many milliseconds.
///
/// # Errors
/// As [`Way::to`]'s and [`Way::ask`]'s.
pub fn ask(path: &Path, body: &[u8], patience_ms: i32) -> io::Result<Vec<u8>> {
    Way::to(path)?.ask(body, &[], patience_ms)
}

/// Waits until there is something to read, or the other side is gone; false when the time is over.
pub(crate) fn readable(fd: BorrowedFd<'_>, patience_ms: i32) -> io::Result<bool> {
    use rustix::event::PollFd;
    use rustix::event::PollFlags;
    use rustix::event::Timespec;
    let timeout = Timespec {
        tv_sec: i64::from(patience_ms) / 1000,
        tv_nsec: i64::from(patience_ms) % 1000 * 1_000_000,
    };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&timeout)))?;
    Ok(ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_carry_their_sender_and_are_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("post");
        let post = Post::bind(&path).unwrap();
        assert!(post.take().unwrap().is_none());
        let asking = std::thread::spawn(move || ask(&path, b"who", 5000).unwrap());
        assert!(readable(post.as_fd(), 5000).unwrap());
        let letter = post.take().unwrap().unwrap();
        assert_eq!(letter.sender.0, std::process::id().cast_signed());
        assert_eq!(letter.body, b"who");
        assert!(letter.files.is_empty());
        letter.reply(b"me");
        assert_eq!(asking.join().unwrap(), b"me");
    }

    #[test]
    fn letters_carry_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("post");
        let post = Post::bind(&path).unwrap();
        let way = Way::to(&path).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        drop(way.send(b"two", &[null.as_fd(), null.as_fd()]).unwrap());
        let letter = post.take().unwrap().unwrap();
        assert_eq!(letter.files.len(), 2);
        assert_eq!(crate::process::char_device(letter.files[1].as_fd()).unwrap(), Some((1, 3)));
    }

    #[test]
    fn whoever_takes_no_letters_keeps_no_sender_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("post");
        let _post = Post::bind(&path).unwrap();
        let way = Way::to(&path).unwrap();
        // The kernel keeps some letters (net.unix.max_dgram_qlen), and then has no room.
        rustix::io::ioctl_fionbio(&way.0, true).unwrap();
        while way.send(b"x", &[]).is_ok() {}
        rustix::io::ioctl_fionbio(&way.0, false).unwrap();
        assert_eq!(way.ask(b"x", &[], 20).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_wait_ends_with_a_letter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("post");
        let post = Post::bind(&path).unwrap();
        let waiting = std::thread::spawn(move || {
            let letter = post.wait().unwrap();
            letter.reply(&letter.body);
        });
        assert_eq!(ask(&path, b"here", 5000).unwrap(), b"here");
        waiting.join().unwrap();
    }

    #[test]
    fn nobody_there_is_an_error_and_no_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("post");
        assert!(Way::to(&path).is_err());
        let post = Post::bind(&path).unwrap();
        let way = Way::to(&path).unwrap();
        drop(post);
        let gone = io::ErrorKind::ConnectionRefused;
        assert_eq!(Way::to(&path).unwrap_err().kind(), gone);
        assert_eq!(way.send(b"x", &[]).unwrap_err().kind(), gone);
    }
}
