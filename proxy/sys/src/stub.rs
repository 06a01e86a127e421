//! A planted stub: a thread of the guest's own process that runs vetted requests.

use std::io;
use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::AddressFamily;
use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;
use rustix::net::SocketFlags;
use rustix::net::SocketType;

use crate::arch::AfterIoctl;
use crate::arch::Arch;
use crate::arch::Native;
use crate::arch::RDMA_VERBS_IOCTL;
use crate::arch::stub_fd;
use crate::control;
use crate::frame::Frame;
use crate::frame::SPARE;
use crate::frame::SPARE_LEN;
use crate::process::Processors;
use crate::process::Thread;
use crate::seccomp::AddFd;
use crate::seccomp::Listener;
use crate::seccomp::NotifId;
use crate::seccomp::Notification;
use crate::window::AddrWindow;
use crate::window::RO_LEN;

/// A planted stub.
#[derive(Debug)]
pub struct Stub {
    /// The stub's thread.
    pub thread: Arc<Thread>,
    /// Which slot of the window holds its frame.
    pub slot: usize,
    /// Its frame.
    pub frame: Frame,
    /// Our end of the socket over which it sends descriptors, once it has one.
    socket: Option<OwnedFd>,
    /// Where its program counter stands while it waits.
    trap_ip: u64,
}

/// The address of the request in a slot whose array has `inputs` attributes before the first one
/// that the kernel writes: the boundary to the read-write half falls between that attribute's
/// `len` and its `flags`.
#[must_use]
pub const fn request_offset(inputs: usize) -> usize {
    // struct ib_uverbs_ioctl_hdr is 24 bytes, struct ib_uverbs_attr 16, of which attr_id and len
    // take 4.
    RO_LEN - 24 - 16 * inputs - 4
}

/// Number of attributes before the boundary, always: the stub's registers are loaded before the
/// request is known, so its address must not depend on it. Unused ones are filled with optional
/// attributes that no method knows.
pub const INPUTS: usize = 32;

impl Stub {
    /// A thread that was planted in a slot.
    #[must_use]
    pub fn new(thread: Arc<Thread>, slot: usize, frame: Frame, window: AddrWindow) -> Self {
        let trap_ip = window.code() + Native::stub_code(&[]).trap_ip;
        Self { thread, slot, frame, socket: None, trap_ip }
    }

    /// The thread has ended, and another serves in its place.
    pub fn replaced_by(&mut self, thread: Arc<Thread>) {
        self.thread = thread;
        self.socket = None;
    }

    /// Gives the stub, which waits in a trap, the socket over which descriptors made by the kernel
    /// reach the supervisor. Due before the first request that makes one.
    ///
    /// # Errors
    /// `ENOENT`: the stub is gone. When descriptors run out.
    pub fn lend_socket(&mut self, listener: &Listener, idle: NotifId) -> io::Result<()> {
        if self.socket.is_none() {
            let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
            let (ours, its) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
            let how = AddFd { at: Some(stub_fd::SOCKET), ..AddFd::default() };
            listener.add_fd(idle, its.as_fd(), how)?;
            self.socket = Some(ours);
        }
        Ok(())
    }

    /// Whether a trap is this stub's, waiting for work or showing a result: its place in the code
    /// and every argument that the kernel will use are the ones that were planted.
    #[must_use]
    pub fn is_own_trap(&self, window: AddrWindow, trap: &Notification) -> bool {
        let request = window.slot(self.slot) + request_offset(INPUTS) as u64;
        let [fd, cmd, arg, ..] = trap.args;
        trap.tid == self.thread.tid()
            && trap.nr == Native::NUMBERS.ioctl
            && trap.ip == self.trap_ip
            && fd == u64::from(stub_fd::UCONTEXT)
            && cmd == u64::from(RDMA_VERBS_IOCTL)
            && arg == request
    }

    /// What the last request returned, as the next trap shows it.
    #[must_use]
    pub fn shown_result(trap: &Notification) -> i64 {
        trap.args[3].cast_signed()
    }

    /// What writing the outputs of the last request returned: bytes, or `-errno`.
    #[must_use]
    pub fn shown_written(trap: &Notification) -> i64 {
        trap.args[4].cast_signed()
    }

    /// Takes a descriptor that the stub has sent.
    ///
    /// # Errors
    /// `EAGAIN`: it has sent none.
    pub fn take_fd(&self) -> io::Result<OwnedFd> {
        let none = || io::Error::from_raw_os_error(libc::EAGAIN);
        let socket = self.socket.as_ref().ok_or_else(none)?;
        let mut byte = [0_u8];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut fds) = message
                && let Some(fd) = fds.next()
            {
                return Ok(fd);
            }
        }
        Err(none())
    }
}

/// Orders a waiting stub what to do after its `ioctl`. Due before each return from its trap.
pub fn set_after(ro: &mut [u8], after: AfterIoctl) {
    let word = ro.get_mut(control::AFTER..).and_then(|ro| ro.first_chunk_mut::<4>());
    let Some(word) = word else { return };
    let mask = u32::from(AfterIoctl::MASK);
    let order = (u32::from_ne_bytes(*word) & !mask).wrapping_add(mask + 1);
    *word = (order | u32::from(after.bits())).to_ne_bytes();
}

/// Orders a waiting stub to park: it waits for the next order outside of its trap, for a minute at most.
pub fn park(ro: &mut [u8]) {
    let seconds = [60_u64, 0].map(u64::to_ne_bytes);
    for (to, from) in ro.iter_mut().skip(control::PATIENCE).zip(seconds.as_flattened()) {
        *to = *from;
    }
    set_after(ro, AfterIoctl::PARK);
}

/// Orders a waiting stub to go to these processors.
pub fn go_to(ro: &mut [u8], processors: &Processors) {
    for (to, from) in ro.iter_mut().skip(control::PROCESSORS).zip(&processors.0) {
        *to = *from;
    }
    set_after(ro, AfterIoctl::MOVE);
}

/// Has a parked stub come to its trap.
pub fn wake(ro: &mut [u8]) {
    set_after(ro, AfterIoctl::NOTHING);
    let Some(word) = ro.get(control::AFTER..) else { return };
    // SAFETY: the word lies in memory that this process has mapped; the kernel wakes who waits there, and
    // neither reads nor writes it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Whether a stub shows that it cannot park: a filter of the guest's answers its futex(2).
#[must_use]
pub fn cannot_park(trap: &Notification) -> bool {
    let result = Stub::shown_result(trap);
    let usual = [libc::EAGAIN, libc::ETIMEDOUT, libc::EINTR].map(|errno| -i64::from(errno));
    result < 0 && !usual.contains(&result)
}

/// Where bytes of the read-write half go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where they are in the read-write half.
    pub from: usize,
    /// How many.
    pub len: usize,
    /// Where the guest wants them.
    pub to: u64,
}

/// Writes the vectors by which the stub copies pieces to the guest ([`AfterIoctl::WRITE`]), and
/// returns what the stub shows when all could be written. The pieces stand in the order of their
/// places in the half; what lies between two of them goes to a spare place of the half itself.
///
/// `None` when there is no room for so many, or too much lies between two.
pub fn write_vectors(ro: &mut [u8], base: u64, pieces: &[Piece]) -> Option<i64> {
    let first = pieces.first()?;
    let spare = base + (RO_LEN + SPARE) as u64;
    let mut vectors: Vec<(u64, usize)> = Vec::with_capacity(pieces.len() * 2);
    let mut at = first.from;
    for piece in pieces {
        let gap = piece.from.checked_sub(at)?;
        if gap > SPARE_LEN {
            return None;
        }
        if gap > 0 {
            vectors.push((spare, gap));
        }
        vectors.push((piece.to, piece.len));
        at = piece.from + piece.len;
    }
    if vectors.len() > control::MAX_VECTORS {
        return None;
    }
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in ro.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    };
    put(control::VECTOR_COUNT, &u32::try_from(vectors.len()).ok()?.to_ne_bytes());
    put(control::VECTOR_SOURCE, &(first.from as u64).to_ne_bytes());
    for (index, (to, len)) in vectors.iter().enumerate() {
        put(control::VECTORS + 16 * index, &to.to_ne_bytes());
        put(control::VECTORS + 16 * index + 8, &(*len as u64).to_ne_bytes());
    }
    i64::try_from(at - first.from).ok()
}

/// Writes what the stub is to map ([`AfterIoctl::MAP`]), as the arguments of mmap(2).
///
/// The fifth, the descriptor, is the stub's own, and stands in its code.
pub fn write_mapping(ro: &mut [u8], args: [u64; 6]) {
    let [addr, len, prot, flags, _, offset] = args;
    let words = [addr, len, prot, flags, offset].map(u64::to_ne_bytes);
    for (to, from) in ro.iter_mut().skip(control::MAPPING).zip(words.as_flattened()) {
        *to = *from;
    }
}

/// Writes the message by which the stub sends the descriptor that the kernel has just installed.
///
/// `base` is the guest's address of the frame's read-only half. The message is complete before
/// the request runs, because the number is known: [`stub_fd::NEW`] is the lowest free one.
pub fn write_message(ro: &mut [u8], base: u64) {
    // struct msghdr, then struct iovec, then one byte, then struct cmsghdr with one descriptor;
    // the layout is the same on every 64-bit Linux.
    const IOV: usize = control::MESSAGE + 64;
    const BYTE: usize = IOV + 16;
    const CMSG: usize = BYTE + 16;
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in ro.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    };
    let at = |offset: usize| (base + offset as u64).to_ne_bytes();
    put(control::MESSAGE, &[0; 56]);
    put(control::MESSAGE + 16, &at(IOV));
    put(control::MESSAGE + 24, &1_u64.to_ne_bytes());
    put(control::MESSAGE + 32, &at(CMSG));
    put(control::MESSAGE + 40, &20_u64.to_ne_bytes());
    put(IOV, &at(BYTE));
    put(IOV + 8, &1_u64.to_ne_bytes());
    put(CMSG, &20_u64.to_ne_bytes());
    put(CMSG + 8, &libc::SOL_SOCKET.to_ne_bytes());
    put(CMSG + 12, &libc::SCM_RIGHTS.to_ne_bytes());
    put(CMSG + 16, &stub_fd::NEW.to_ne_bytes());
}
