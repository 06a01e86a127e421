//! A process that obeys orders, a line at a time: a part of the model test.

use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::raw;
use crate::raw::call;
use crate::raw::fork;
use crate::raw::int;
use crate::request;
use crate::request::errno;

/// Where a worker has its socket: no device is opened or duplicated to such a number.
const NUMBER: RawFd = 200;

/// One end of a conversation: lines, and descriptors between them.
pub(crate) struct Line(pub(crate) UnixStream);

impl Line {
    /// The next line. Nothing after it is taken from the socket, because a descriptor may follow.
    pub(crate) fn hear(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            if byte == [b'\n'] {
                return String::from_utf8(line).map_err(io::Error::other);
            }
            line.push(byte[0]);
        }
    }

    pub(crate) fn say(&mut self, line: &str) -> io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())
    }
}

/// Obeys what comes by a socket that it has inherited; `listener` is where its children call.
pub(crate) fn obey(socket: &str, listener: &str) -> io::Result<u8> {
    // SAFETY: the caller has left this number open for us, and uses it for nothing else.
    let inherited = unsafe { OwnedFd::from_raw_fd(socket.parse().map_err(io::Error::other)?) };
    serve(Line(UnixStream::from(inherited)), listener)
}

/// Calls at a listener, says which process it is, and obeys.
pub(crate) fn call_in(listener: &str) -> io::Result<u8> {
    // Children are nobody's to reap.
    // SAFETY: ignoring a signal runs nothing.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let socket = UnixStream::connect(listener)?;
    // The number that this process's parent had its own at.
    raw::dup2(socket.as_raw_fd(), NUMBER)?;
    drop(socket);
    // SAFETY: the number was made just above; what the parent had there is gone.
    let mut line = Line(UnixStream::from(unsafe { OwnedFd::from_raw_fd(NUMBER) }));
    line.say(&std::process::id().to_string())?;
    serve(line, listener)
}

fn serve(mut line: Line, listener: &str) -> io::Result<u8> {
    loop {
        let Ok(told) = line.hear() else { return Ok(0) };
        let words: Vec<&str> = told.split(' ').collect();
        let number =
            |place: usize| words.get(place).and_then(|w| w.parse::<RawFd>().ok()).unwrap_or(-1);
        let answer: i32 = match words.first().copied().unwrap_or("") {
            "open" => open(words.get(1).copied().unwrap_or(""), number(2)),
            "ask" => request::query(number(1)),
            "ask-by-thread" => {
                let fd = number(1);
                let asked = std::thread::Builder::new().spawn(move || request::query(fd));
                asked.map_or(libc::EAGAIN, |asked| asked.join().unwrap_or(-99))
            }
            "dup" => result(call(libc::SYS_dup, &[int(number(1))])),
            "dup3" => {
                result(call(libc::SYS_dup3, &[int(number(1)), int(number(2)), int(number(3))]))
            }
            "dup-above" => {
                let how = if number(3) == 0 { libc::F_DUPFD } else { libc::F_DUPFD_CLOEXEC };
                result(call(libc::SYS_fcntl, &[int(number(1)), int(how), int(number(2))]))
            }
            "close" => result(call(libc::SYS_close, &[int(number(1))])),
            "close-range" => {
                result(call(libc::SYS_close_range, &[int(number(1)), int(number(2)), 0]))
            }
            "device" => device(number(1)),
            "same-user" => result(call(libc::SYS_setresuid, &[u64::MAX, u64::MAX, u64::MAX])),
            "same-group" => {
                // SAFETY: takes no argument.
                let group = unsafe { libc::getegid() };
                result(call(libc::SYS_setgid, &[u64::from(group)]))
            }
            "fork" => result(fork(|| i32::from(call_in(listener).is_err())).map(|_| 0)),
            "execute" => {
                let socket = line.0.as_raw_fd();
                call(libc::SYS_fcntl, &[int(socket), int(libc::F_SETFD), 0])?;
                let mut program = Command::new("/proc/self/exe");
                program.args(["worker", &socket.to_string(), listener]).args(request::real());
                return Err(program.exec());
            }
            "send" => {
                raw::send(&line.0, number(1))?;
                continue;
            }
            "take" => raw::receive(&line.0).unwrap_or(-1),
            "burn" => {
                for _ in 0..number(1) {
                    let _ = fork(|| 0).map(raw::wait);
                }
                0
            }
            _ => -98,
        };
        if line.say(&answer.to_string()).is_err() {
            return Ok(0);
        }
    }
}

/// A number, or a negative errno.
fn result(result: io::Result<u64>) -> i32 {
    match result {
        Ok(value) => value as i32,
        Err(_) => -errno(&result),
    }
}

fn open(path: &str, close_on_exec: i32) -> i32 {
    let opened = request::open(path);
    if close_on_exec == 0
        && let Ok(fd) = &opened
    {
        let _ = call(libc::SYS_fcntl, &[int(*fd), int(libc::F_SETFD), 0]);
    }
    result(opened.map(|fd| fd as u64))
}

/// The number of the device that a descriptor shows, or a negative errno.
fn device(fd: RawFd) -> i32 {
    request::device_number(fd).unwrap_or_else(|e| -e.raw_os_error().unwrap_or(1))
}

/// The same of a path.
pub(crate) fn device_at(path: &str) -> io::Result<i32> {
    let path_only =
        std::os::unix::fs::OpenOptionsExt::custom_flags(File::options().read(true), libc::O_PATH)
            .open(path)?;
    Ok(device(path_only.as_raw_fd()))
}
