//! rdma_cm: the connection manager's commands, which the supervisor gives for the guest.
//!
//! Unlike a verbs request, a command needs nothing of its caller but the network namespace in
//! which it makes an id; and the kernel takes commands only from whoever opened the file. So no
//! stub is needed. Each is copied once, its addresses are replaced by the supervisor's own, and
//! the response is written back.
//!
//! A thread of its own does it, because a command can take as long as the kernel waits for its
//! handlers. It never waits in the kernel for an event: whoever asks for one that is not there is
//! kept, and served when the file has one.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::eventfd;
use rustix::event::poll;
use rustix::fs::OFlags;
use verbgate_abi::Errno;
use verbgate_abi::cm;
use verbgate_abi::cm::Also;
use verbgate_abi::cm::BoundTo;
use verbgate_abi::cm::CmHeader;
use verbgate_abi::cm::CmSpec;
use verbgate_abi::cm::HDR_LEN;
use verbgate_abi::cm::Length;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::cm::Command;
use verbgate_sys::cm::give;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::mem::RemoteMemory;
use verbgate_sys::process;
use verbgate_sys::process::PidFd;
use verbgate_sys::ptrace;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;

use crate::device::Kind;
use crate::supervisor::Supervisor;

/// How often it is looked whether somebody who waits for an event has been killed or signalled:
/// nothing tells, and the delay is felt at Ctrl-C.
const INTERVAL: Duration = Duration::from_millis(100);

/// The longest value of an option that is copied; the kernel's own are `struct ib_path_rec_data`
/// and not many of them.
const MAX_VALUE: usize = 4096;

/// `ERESTARTSYS`, include/linux/errno.h: the call begins again, or fails with EINTR, as the handler
/// of the signal that is pending was installed. Not for callers without a signal pending.
const ERESTARTSYS: i32 = 512;

/// A command that a guest has written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) trap: Notification,
    pub(crate) tgid: Tgid,
    pub(crate) file: OwnedFd,
    pub(crate) addr: u64,
    pub(crate) count: usize,
    pub(crate) started: Instant,
}

/// Commands on their way to the thread that gives them.
#[derive(Debug)]
pub(crate) struct Queue {
    written: Mutex<VecDeque<Written>>,
    wake: OwnedFd,
}

impl Queue {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { written: Mutex::default(), wake: eventfd(0, flags)? })
    }

    pub(crate) fn push(&self, written: Written) {
        self.written.lock().push_back(written);
        self.wake();
    }

    /// Has the thread look.
    pub(crate) fn wake(&self) {
        // It cannot overflow: that takes 2^64 wakings between two looks.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> VecDeque<Written> {
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        std::mem::take(&mut *self.written.lock())
    }
}

/// A command, copied.
#[derive(Debug)]
struct Copied {
    spec: &'static CmSpec,
    header: CmHeader,
    /// The structure; shorter than the kernel's where it takes a part.
    body: Vec<u8>,
}

impl Copied {
    /// One read of the guest's memory, and what it says.
    fn read(memory: &impl GuestMemory, addr: u64, count: usize) -> Result<Self, Errno> {
        if count < HDR_LEN {
            return Err(Errno::EINVAL);
        }
        let mut bytes = vec![0; HDR_LEN + cm::MAX_LEN];
        let all = Range { addr, len: bytes.len() };
        let have = memory.read(&mem::pages(all), &mut bytes).map_err(|_| Errno::EFAULT)?;
        bytes.truncate(have);
        let header = CmHeader::read(&bytes).ok_or(Errno::EFAULT)?;
        if usize::from(header.input) + HDR_LEN > count {
            return Err(Errno::EINVAL);
        }
        let spec = cm::command(header.cmd)?;
        let len = if spec.partial { spec.len.min(header.input.into()) } else { spec.len };
        // The kernel reads all of it, behind `count` as well.
        let body = bytes.get(HDR_LEN..HDR_LEN + len).ok_or(Errno::EFAULT)?.to_vec();
        Ok(Self { spec, header, body })
    }

    fn u32(&self, at: usize) -> u32 {
        let word = self.body.get(at..).and_then(|rest| rest.first_chunk::<4>());
        word.map_or(0, |word| u32::from_ne_bytes(*word))
    }

    fn u64(&self, at: usize) -> u64 {
        let word = self.body.get(at..).and_then(|rest| rest.first_chunk::<8>());
        word.map_or(0, |word| u64::from_ne_bytes(*word))
    }

    fn id(&self) -> Option<u32> {
        self.spec.id.map(|at| self.u32(at))
    }

    /// The command as the supervisor gives it.
    fn command<'a>(&self, value: Option<(usize, &'a [u8])>) -> Command<'a> {
        // No more than what follows, so that header and count agree.
        let input = u16::try_from(self.body.len()).unwrap_or(u16::MAX).min(self.header.input);
        let mut bytes = CmHeader { input, ..self.header }.bytes().to_vec();
        bytes.extend(&self.body);
        Command {
            bytes,
            response: self.spec.response.map(|(at, _)| HDR_LEN + at),
            out: self.header.output,
            value: value.map(|(at, value)| (HDR_LEN + at, value)),
        }
    }

    /// How many bytes of the response the kernel has written.
    fn written(&self, response: &[u8]) -> usize {
        let out = usize::from(self.header.output);
        match self.spec.response {
            None => 0,
            Some((_, Length::Fixed(len))) => len.min(out),
            Some((_, Length::Query(at))) => cm::query_len(self.u32(at), response, out),
        }
    }
}

/// Somebody who waits for an event.
#[derive(Debug)]
struct Waiter {
    written: Written,
    copied: Copied,
}

impl Supervisor {
    /// Gives guests' rdma_cm commands until none is left, if rdma_cm was granted.
    pub fn serve_cm(&self) {
        if !self.devices.has(Kind::Cm) {
            return;
        }
        let mut waiters: VecDeque<Waiter> = VecDeque::new();
        while !self.is_over() {
            let mut fds = vec![PollFd::new(&self.cm.wake, PollFlags::IN)];
            fds.extend(waiters.iter().map(|w| PollFd::new(&w.written.file, PollFlags::IN)));
            let interval = Timespec { tv_sec: 0, tv_nsec: INTERVAL.subsec_nanos().into() };
            let timeout = (!waiters.is_empty()).then_some(&interval);
            // Whether anything came is looked at again, for each: one event may have many waiters.
            let _ = poll(&mut fds, timeout);
            for waiter in std::mem::take(&mut waiters) {
                waiters.extend(self.attend(waiter));
            }
            for written in self.cm.take() {
                waiters.extend(self.begin(written));
            }
        }
    }

    /// Serves a command that has just come, unless it must wait for an event.
    fn begin(&self, written: Written) -> Option<Waiter> {
        match Copied::read(&RemoteMemory(written.trap.tid), written.addr, written.count) {
            Ok(copied) if copied.spec.also == Also::Event && !may_take_event(&written.file) => {
                Some(Waiter { written, copied })
            }
            Ok(copied) => {
                self.execute(&written, &copied);
                None
            }
            Err(errno) => {
                self.answer(written.trap, Reply::Errno(errno.0));
                None
            }
        }
    }

    /// Looks whether a waiter's event has come, or something else that ends its waiting.
    fn attend(&self, waiter: Waiter) -> Option<Waiter> {
        let Waiter { written, copied } = &waiter;
        if may_take_event(&written.file) {
            self.execute(written, copied);
            return None;
        }
        if !self.listener.is_valid(written.trap.id) {
            return None;
        }
        if is_called_away(written.trap.tid, written.tgid) {
            self.let_be_interrupted(&written.trap);
            return None;
        }
        Some(waiter)
    }

    /// Lets a waiting thread take its signal, or part in a stop; it comes again afterwards if it
    /// may.
    ///
    /// The kernel begins a call again only for a thread that has something pending. Another thread
    /// may take a signal of the process meanwhile; being interrupted by its tracer stands in for
    /// it.
    fn let_be_interrupted(&self, trap: &Notification) {
        let seized = ptrace::seize(trap.tid).and_then(|running| {
            running.interrupt()?;
            self.answer(*trap, Reply::Errno(ERESTARTSYS));
            let (stopped, _) = running.wait()?;
            stopped.detach(0)
        });
        if let Err(e) = seized {
            log::debug!("thread {} cannot be interrupted ({e}): EINTR", trap.tid);
            // One that was answered before does not hear this.
            self.answer(*trap, Reply::Errno(libc::EINTR));
        }
    }

    fn execute(&self, written: &Written, copied: &Copied) {
        let result = self.given(written, copied);
        let reply = match result {
            Ok(()) => Reply::Value(i64::try_from(written.count).unwrap_or(i64::MAX)),
            Err(errno) => Reply::Errno(errno.0),
        };
        let state = &mut *self.state.lock();
        state.counts.add_cm(copied.spec.name, result.is_err());
        if let Some(observer) = &mut state.observer {
            let tid = written.trap.tid;
            observer.cm(tid, copied.spec.name, copied.id(), result, written.started.elapsed());
        }
        self.answer(written.trap, reply);
    }

    fn given(&self, written: &Written, copied: &Copied) -> Result<(), Errno> {
        let errno = |e: io::Error| Errno(e.raw_os_error().unwrap_or(libc::EIO));
        let tid = written.trap.tid;
        let memory = RemoteMemory(tid);
        let response_at = copied.spec.response.map(|(at, _)| copied.u64(at));
        if let (Also::Event, Some(addr)) = (copied.spec.also, response_at) {
            // It is lost when the response cannot be written.
            let most = copied.written(&[]);
            let mut bytes = vec![0; most];
            mem::gather(&memory, &[Range { addr, len: most }], &mut bytes)
                .and_then(|()| memory.scatter(&[(addr, &bytes)]))
                .map_err(|_| Errno::EFAULT)?;
        }
        let mut value = Vec::new();
        let mut other: Option<OwnedFd> = None;
        let mut command = match copied.spec.also {
            Also::Value(at, len) => {
                let len = usize::try_from(copied.u32(len)).unwrap_or(usize::MAX);
                if len > MAX_VALUE {
                    return Err(Errno::EINVAL);
                }
                value.resize(len, 0);
                let range = Range { addr: copied.u64(at), len };
                mem::gather(&memory, &[range], &mut value).map_err(|_| Errno::EFAULT)?;
                copied.command(Some((at, &value)))
            }
            _ => copied.command(None),
        };
        match copied.spec.also {
            Also::Namespace => process::enter_network_of(tid).map_err(errno)?,
            Also::Device | Also::NewId => self.check_device(written, copied)?,
            Also::File(at) => {
                let fd = GuestFd(copied.u32(at).cast_signed());
                let file = PidFd::open_thread(tid, written.tgid).and_then(|t| t.get_fd(fd));
                // As the kernel has it; that it is an rdma_cm file the kernel sees to.
                let file = other.insert(file.map_err(|_| Errno::ENOENT)?);
                put_descriptor(&mut command.bytes, HDR_LEN + at, file);
            }
            Also::Nothing | Also::Event | Also::Value(..) => {}
        }
        let response = give(written.file.as_fd(), command).map_err(errno)?;
        if let Some(addr) = response_at {
            let bytes = response.get(..copied.written(&response)).unwrap_or(&response);
            if memory.scatter(&[(addr, bytes)]).is_err() {
                take_back(&written.file, copied.spec.also, &response);
                return Err(Errno::EFAULT);
            }
        }
        Ok(())
    }

    /// An id is bound to a device by its address; that must be one that was granted.
    fn check_device(&self, written: &Written, copied: &Copied) -> Result<(), Errno> {
        let Some(id) = copied.id() else { return Ok(()) };
        let header = CmHeader {
            cmd: cm::QUERY,
            input: 16,
            output: u16::try_from(cm::QUERY_ADDR_LEN).unwrap_or(u16::MAX),
        };
        let mut bytes = header.bytes().to_vec();
        bytes.extend([0; 8]);
        bytes.extend(id.to_ne_bytes());
        bytes.extend(cm::QUERY_ADDR.to_ne_bytes());
        let query = Command { bytes, response: Some(HDR_LEN), out: header.output, value: None };
        let response = match give(written.file.as_fd(), query) {
            Ok(response) => response,
            // No such id: the command says so itself.
            Err(_) => return Ok(()),
        };
        let bound = match BoundTo::read(&response) {
            // Any device's connections; each comes with a device, and is looked at then.
            Some(BoundTo::Nothing) if copied.header.cmd == cm::LISTEN => return Ok(()),
            // As the kernel has it; and an address may be resolved at any moment, after this look.
            Some(BoundTo::Nothing) => return Err(Errno::EINVAL),
            Some(BoundTo::Device { index, .. }) if self.devices.has_index(index) => return Ok(()),
            bound => bound,
        };
        let name = copied.spec.name;
        self.state.lock().quiet.warn("device not granted", || {
            let device = match bound {
                Some(BoundTo::Device { index, node_guid }) => {
                    format!("RDMA device {index} (node GUID {node_guid:016x}; see: rdma dev)")
                }
                _ => "an RDMA device that the kernel does not name".to_owned(),
            };
            let tid = written.trap.tid;
            format!("thread {tid}: {name} goes by {device}, which was not granted")
        });
        Err(Errno::ENODEV)
    }
}

/// Destroys an id that its maker was not told of.
fn take_back(file: &OwnedFd, also: Also, response: &[u8]) {
    let cmd = match also {
        Also::Namespace => cm::DESTROY_ID,
        Also::NewId => cm::LEAVE_MCAST,
        _ => return,
    };
    let out = 4;
    let mut bytes = CmHeader { cmd, input: 16, output: out }.bytes().to_vec();
    // struct rdma_ucm_destroy_id: address of the response, id, and a reserved word.
    bytes.extend([0; 8]);
    bytes.extend(response.iter().take(4));
    bytes.extend([0; 4]);
    let command = Command { bytes, response: Some(HDR_LEN), out, value: None };
    if let Err(e) = give(file.as_fd(), command) {
        log::debug!("cannot take an id back: {e}");
    }
}

fn put_descriptor(bytes: &mut [u8], at: usize, file: &OwnedFd) {
    use std::os::fd::AsRawFd;
    for (to, from) in bytes.iter_mut().skip(at).zip(file.as_raw_fd().to_ne_bytes()) {
        *to = from;
    }
}

/// Whether asking for an event returns at once. Nobody else takes events from this file, since
/// the kernel takes commands from its opener alone, and this thread gives them one by one.
fn may_take_event(file: &OwnedFd) -> bool {
    let nonblocking = rustix::fs::fcntl_getfl(file).is_ok_and(|f| f.contains(OFlags::NONBLOCK));
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    nonblocking || poll(&mut fds, Some(&at_once)).is_ok_and(|n| n > 0)
}

/// Whether a thread has a signal to handle, or its process has been stopped.
fn is_called_away(tid: Tid, tgid: Tgid) -> bool {
    if process::has_signal(tid).unwrap_or(true) {
        return true;
    }
    // A stop that another thread has begun. Of all other threads any will do; the first one
    // usually is another.
    let stopped = |tid: Tid| process::state(tid).is_ok_and(|state| state == 'T');
    if tid.0 == tgid.0 {
        process::threads(tgid).unwrap_or_default().into_iter().any(stopped)
    } else {
        stopped(Tid(tgid.0))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn memory(bytes: Vec<u8>) -> mem::FakeMemory {
        mem::FakeMemory { base: 4096, bytes: RefCell::new(bytes) }
    }

    fn written(cmd: u32, input: u16, output: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = CmHeader { cmd, input, output }.bytes().to_vec();
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_command_is_copied_whole_whatever_its_header_says() {
        let mut bytes = written(cm::DESTROY_ID, 0, 4, &[9; 16]);
        bytes.resize(4096, 1);
        let copied = Copied::read(&memory(bytes), 4096, 8).unwrap();
        assert_eq!(copied.body, [9; 16]);
        let command = copied.command(None);
        assert_eq!(command.bytes.len(), 24);
        assert_eq!(CmHeader::read(&command.bytes).unwrap().input, 0);
        assert_eq!(command.response, Some(8));
    }

    #[test]
    fn a_part_is_copied_where_the_kernel_takes_a_part() {
        let mut bytes = written(6, 280, 0, &[7; 280]);
        bytes.resize(8192, 1);
        let copied = Copied::read(&memory(bytes), 4096, 288).unwrap();
        assert_eq!(copied.body, [7; 280]);
    }

    #[test]
    fn bad_commands_get_the_kernels_errors() {
        let read =
            |bytes: Vec<u8>, count| Copied::read(&memory(bytes), 4096, count).map(|c| c.spec.name);
        assert_eq!(read(vec![0; 400], 7), Err(Errno::EINVAL));
        assert_eq!(read(written(0, 24, 4, &[0; 400]), 31), Err(Errno::EINVAL));
        assert_eq!(read(written(13, 0, 4, &[0; 400]), 8), Err(Errno::ENOSYS));
        assert_eq!(read(written(99, 0, 4, &[0; 400]), 8), Err(Errno::EINVAL));
        assert_eq!(read(written(0, 24, 4, &[0; 400]), 32), Ok("CM_CREATE_ID"));
        let nothing = memory(Vec::new());
        assert_eq!(Copied::read(&nothing, 64, 8).map(|_| ()), Err(Errno::EFAULT));
    }

    #[test]
    fn a_response_is_as_long_as_the_kernel_makes_it() {
        let copied = |cmd, output, body: &[u8]| {
            let mut bytes = written(cmd, 16, output, body);
            bytes.resize(4096, 0);
            Copied::read(&memory(bytes), 4096, 24).unwrap()
        };
        assert_eq!(copied(0, 4, &[0; 16]).written(&[]), 4);
        assert_eq!(copied(12, 300, &[0; 16]).written(&[]), 300);
        assert_eq!(copied(4, 300, &[0; 16]).written(&[]), 0);
        let mut query = [0; 16];
        query[12] = 1;
        assert_eq!(copied(cm::QUERY, 200, &query).written(&1_u32.to_ne_bytes()), 80);
    }
}
