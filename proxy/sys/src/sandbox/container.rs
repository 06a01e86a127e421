//! A container's processes come under the filter by themselves: before its command, the runtime
//! executes `verbgate-init`, which puts itself under the filter and hands the listener over.
//!
//! ```text
//! verbgate-init               supervisor
//! hello, a socket ──────────▶ looks who it is
//!        ◀── /dev/fuse ─────
//! mounts it over /sys ──────▶ serves it
//!        ◀─── the filter ────
//! gives up capabilities, installs it
//! the listener ─────────────▶ serves it
//!        ◀────── go ─────────
//! execve
//! ```
//!
//! **Nobody in the container can steer it meanwhile**: it has CAP_SYS_ADMIN, with which the filter
//! is installed, and nothing else in the container has ever. Who has fewer capabilities than a
//! process may neither trace it nor write its memory (`cap_ptrace_access_check`,
//! security/commoncap.c); and who is under the filter can install no second one with a listener
//! (EBUSY), so no listener comes from there.

use std::ffi::CString;
use std::io;
use std::io::IoSlice;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;
use rustix::net::SendAncillaryBuffer;
use rustix::net::SendFlags;

use super::EXIT_OURS;
use super::Error;
use super::caps;
use super::caps::Setpcap;
use super::child;
use super::child::SetUpError;
use super::child::step;
use super::handoff;
use super::handoff::FromChild;
use super::sysfs;
use super::sysfs::Sysfs;
use crate::Tgid;
use crate::post;
use crate::post::Letter;
use crate::process;
use crate::seccomp;
use crate::seccomp::bpf::SockFilter;

/// First byte of a hello; the limit of descriptor numbers follows, 8 bytes in native order.
const HELLO: u8 = b'H';
/// First byte of the message that carries the filter.
const FILTER: u8 = b'P';
/// First byte of the message that offers a `/dev/fuse`; what of `/sys` stays follows, in lines.
const SYSFS: u8 = b'S';
/// First byte of a refusal; its text follows.
const REFUSED: u8 = b'R';

/// Bytes of an instruction: `struct sock_filter`.
const INSTRUCTION: usize = 8;

/// No filter is longer: BPF_MAXINSNS, include/uapi/linux/bpf_common.h.
const MAX_FILTER: usize = 4096 * INSTRUCTION;

/// How long a process that hands its listener over may take for a step: it is executing nothing
/// but this module.
const PATIENCE_MS: i32 = 5_000;

/// A process that wants to come under the filter.
#[derive(Debug)]
pub struct Arrival {
    /// Who it is, in the supervisor's PID namespace.
    pub tgid: Tgid,
    /// Its soft RLIMIT_NOFILE.
    pub descriptors: u64,
    socket: OwnedFd,
}

/// A process under the filter, before its program.
#[derive(Debug)]
pub struct Entered {
    /// Where its notifications arrive.
    pub listener: OwnedFd,
    /// Lets it go on.
    pub gate: Gate,
}

/// Holds a process back until somebody serves its listener. Dropping it ends the process.
#[derive(Debug)]
pub struct Gate(OwnedFd);

impl Arrival {
    /// Reads a hello; `None` when the letter is none.
    #[must_use]
    pub fn read(letter: Letter) -> Option<Self> {
        let (HELLO, limit) = letter.body.split_first().map(|(kind, rest)| (*kind, rest))? else {
            return None;
        };
        let descriptors = u64::from_ne_bytes(limit.try_into().ok()?);
        Some(Self { tgid: letter.sender, descriptors, socket: letter.answer })
    }

    /// Sends it away.
    pub fn refuse(self, why: &str) {
        let _ = send(&self.socket, REFUSED, why.as_bytes());
    }

    /// Has it install the filter, and, before, cover its `/sys`, if that is to be served.
    ///
    /// # Errors
    /// When it is traced, ends, says what went wrong, or takes longer than it can.
    pub fn admit(self, program: &[SockFilter], sysfs: Option<Sysfs<'_>>) -> io::Result<Entered> {
        if process::tracer(crate::Tid(self.tgid.0))? != 0 {
            self.refuse("a traced process cannot be given RDMA");
            return Err(io::Error::other("it is traced"));
        }
        if let Some(sysfs) = sysfs {
            self.serve_sysfs(sysfs)?;
        }
        let mut bytes = Vec::with_capacity(program.len() * INSTRUCTION);
        for one in program {
            bytes.extend_from_slice(&one.code.to_ne_bytes());
            bytes.extend_from_slice(&[one.jt, one.jf]);
            bytes.extend_from_slice(&one.k.to_ne_bytes());
        }
        send(&self.socket, FILTER, &bytes)?;
        match self.hear()? {
            FromChild::Listener(listener) => Ok(Entered { listener, gate: Gate(self.socket) }),
            FromChild::Failed(text) => Err(io::Error::other(text)),
            _ => Err(io::Error::other("it ended before it was under the filter")),
        }
    }

    fn hear(&self) -> io::Result<FromChild> {
        if !post::readable(self.socket.as_fd(), PATIENCE_MS)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(handoff::receive(self.socket.as_fd())?)
    }

    fn serve_sysfs(&self, sysfs: Sysfs<'_>) -> io::Result<()> {
        let without = |why: &str| {
            log::warn!("the container sees its runtime's /sys, other devices included: {why}");
        };
        let fuse = match sysfs::open_fuse() {
            Ok(fuse) => fuse,
            Err(why) => {
                without(&why);
                return Ok(());
            }
        };
        let keep = sysfs.keep.join("\n");
        handoff::send_fds(self.socket.as_fd(), SYSFS, keep.as_bytes(), &[fuse.as_fd()])?;
        // Mounting into a file system that is served by this very descriptor.
        drop(fuse);
        match self.hear()? {
            FromChild::Sysfs(served) => {
                (sysfs.serve)(self.tgid, served)?;
                Ok(handoff::go(self.socket.as_fd())?)
            }
            FromChild::WithoutSysfs(why) => {
                without(&why);
                Ok(())
            }
            FromChild::Failed(text) => Err(io::Error::other(text)),
            _ => Err(io::Error::other("it ended while its /sys was covered")),
        }
    }
}

impl Gate {
    /// Lets it execute its program. The listener must be served from now on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn go(self) -> io::Result<()> {
        Ok(handoff::go(self.0.as_fd())?)
    }
}

fn send(socket: &OwnedFd, kind: u8, body: &[u8]) -> io::Result<()> {
    let mut none = SendAncillaryBuffer::default();
    let parts = [IoSlice::new(std::slice::from_ref(&kind)), IoSlice::new(body)];
    rustix::net::sendmsg(socket, &parts, &mut none, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What `verbgate-init` is called with.
#[derive(Debug)]
pub struct Init<'a> {
    /// The supervisor's socket, as the container names it.
    pub socket: &'a Path,
    /// What becomes of CAP_SETPCAP, which it was given beside CAP_SYS_ADMIN.
    pub setpcap: Setpcap,
    /// Program and arguments.
    pub argv: &'a [std::ffi::OsString],
}

/// Goes under the filter and becomes the program. Returns only why it could not: an exit code and
/// a line.
#[must_use]
pub fn enter(init: &Init<'_>) -> (u8, String) {
    match try_enter(init) {
        Ok(error) => (error.exit_code(), error.to_string()),
        Err(error) => (EXIT_OURS, error.to_string()),
    }
}

fn try_enter(init: &Init<'_>) -> Result<Error, SetUpError> {
    let Some(program) = init.argv.first() else { return Ok(Error::NoProgram) };
    let candidates = match super::candidates(program) {
        Ok(candidates) => candidates,
        Err(error) => return Ok(error),
    };
    let argv: Vec<CString> = match init.argv.iter().map(super::c_string).collect() {
        Ok(argv) => argv,
        Err(error) => return Ok(error),
    };
    let mut hello = vec![HELLO];
    hello.extend_from_slice(&process::descriptor_limit().to_ne_bytes());
    let socket = post::send(init.socket, &hello).map_err(step(
        format!("reach the supervisor at {}", init.socket.display()),
        "it has ended: delete the container and create it again",
    ))?;
    let filter = match filter(&socket)? {
        Ok(filter) => filter,
        Err(refusal) => {
            return Err(SetUpError::Step {
                what: "be given RDMA".to_owned(),
                source: io::Error::other(refusal),
                remedy: "",
            });
        }
    };
    let installed = caps::drop_for_container(init.setpcap)
        .map_err(step("give up capabilities", "the runtime must grant CAP_SETPCAP to this program"))
        .and_then(|()| seccomp::install(&filter).map(OwnedFd::from).map_err(child::filter_error));
    let listener = installed.inspect_err(|e| handoff::failed(socket.as_fd(), &e.to_string()))?;
    handoff::offer(socket.as_fd(), &listener)
        .map_err(step("hand the listener to the supervisor", "is its descriptor table full?"))?;
    drop(listener);
    if !handoff::wait_for_go(socket.as_fd()) {
        return Err(SetUpError::Step {
            what: "be supervised".to_owned(),
            source: io::ErrorKind::NotConnected.into(),
            remedy: "see the supervisor's log",
        });
    }
    let errno = child::execute(&candidates, &argv, None);
    Ok(Error::Exec { program: program.clone(), source: io::Error::from_raw_os_error(errno) })
}

/// The filter; or why there is none. `/sys` is covered first, if the supervisor serves it.
fn filter(socket: &OwnedFd) -> Result<Result<Vec<SockFilter>, String>, SetUpError> {
    let failed = |source: io::Error| {
        step("be answered by the supervisor", "delete the container and create it again")(source)
    };
    let mut bytes = vec![0_u8; 1 + MAX_FILTER];
    loop {
        let (len, fd) = receive(socket, &mut bytes).map_err(failed)?;
        match (bytes.get(..len).and_then(<[u8]>::split_first), fd) {
            (Some((&SYSFS, body)), Some(fuse)) => {
                let keep = String::from_utf8_lossy(body);
                let keep: Vec<&str> = keep.lines().collect();
                sysfs::cover_with(Ok(fuse), &keep, socket.as_fd())?;
            }
            (Some((&FILTER, body)), _) => return Ok(Ok(parse(body))),
            (Some((&REFUSED, text)), _) => {
                return Ok(Err(String::from_utf8_lossy(text).into_owned()));
            }
            _ => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// One message, and the descriptor that may come with it.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(bytes)];
        rustix::net::recvmsg(socket, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)
    })?;
    let fd = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((got.bytes, fd))
}

fn parse(body: &[u8]) -> Vec<SockFilter> {
    let (instructions, _) = body.as_chunks::<INSTRUCTION>();
    let parsed = instructions.iter().map(|[c0, c1, jt, jf, k @ ..]| SockFilter {
        code: u16::from_ne_bytes([*c0, *c1]),
        jt: *jt,
        jf: *jf,
        k: u32::from_ne_bytes(*k),
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Native;
    use crate::window::AddrWindow;
    use crate::window::FdWindow;

    #[test]
    fn a_filter_arrives_as_it_was_sent() {
        let program = seccomp::filter::program::<Native>(
            AddrWindow::at(0x6ae0),
            FdWindow { first: 960, len: 64 },
        )
        .unwrap();
        assert!(program.len() * INSTRUCTION < MAX_FILTER);
        let (ours, theirs) = handoff::pair().unwrap();
        let me = Tgid(std::process::id().cast_signed());
        let arrival = Arrival { tgid: me, descriptors: 1024, socket: theirs };
        let admitting = std::thread::spawn({
            let program = program.clone();
            move || arrival.admit(&program, None)
        });
        assert_eq!(filter(&ours).unwrap().unwrap(), program);
        handoff::failed(ours.as_fd(), "no");
        assert_eq!(admitting.join().unwrap().unwrap_err().to_string(), "no");
    }

    #[test]
    fn a_refusal_is_told() {
        let (ours, theirs) = handoff::pair().unwrap();
        Arrival { tgid: Tgid(1), descriptors: 1, socket: theirs }.refuse("none of mine");
        assert_eq!(filter(&ours).unwrap().unwrap_err(), "none of mine");
    }

    #[test]
    fn without_a_supervisor_there_is_no_program() {
        let init = Init {
            socket: Path::new("/no/such/socket"),
            setpcap: Setpcap::Never,
            argv: &["true".into()],
        };
        let (code, line) = enter(&init);
        assert_eq!(code, EXIT_OURS);
        assert!(
            line.contains("/no/such/socket") && line.contains("delete the container"),
            "{line}"
        );
    }
}
