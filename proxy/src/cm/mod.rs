//! rdma_cm: the connection manager's commands, which the supervisor gives for the guest.
//!
//! Unlike a verbs request, a command needs from its caller only the network namespace in which the
//! command makes an id, or a driver of iWARP or ERDMA a TCP socket, and the right to ports below 1024; and the kernel
//! takes commands only from the process that opened the file.
//! So the supervisor gives the commands. The thread that serves the guest copies each command once,
//! with all that the command needs from the guest, and replaces the addresses by the supervisor's
//! own. The guest's stub writes the response.
//!
//! A thread of its own gives the commands, because a command can take as long as the kernel waits
//! for its handlers. That thread never waits for a guest, nor in the kernel for an event: a caller
//! that asks for a missing event is kept, and served when the file has an event.

pub(crate) mod account;
mod charge;
pub(crate) mod command;
mod judge;
pub(crate) mod queue;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use rustix::fs::OFlags;
use verbgate_abi::Errno;
use verbgate_abi::cm;
use verbgate_abi::cm::Also;
use verbgate_abi::cm::BoundTo;
use verbgate_abi::cm::CmHeader;
use verbgate_abi::cm::HDR_LEN;
use verbgate_abi::cm::OwnPort;
use verbgate_abi::cm::Peer;
use verbgate_sys::GuestFd;
use verbgate_sys::caller::Caller;
use verbgate_sys::cm::Command;
use verbgate_sys::cm::give;
use verbgate_sys::mem;
use verbgate_sys::mem::Range;
use verbgate_sys::process;
use verbgate_sys::process::GuestFile;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;

use crate::books::UcontextId;
use crate::cm::account::CmAccount;
use crate::cm::command::CmCommand;
use crate::cm::command::CmCopy;
use crate::cm::command::Denied;
use crate::device::Kind;
use crate::fetch;
use crate::fetch::Form;
use crate::fetch::errno;
use crate::observe::CmDone;
use crate::observe::Verdict;
use crate::policy::Beyond;
use crate::policy::Policy;
use crate::session::Guest;
use crate::session::GuestState;
use crate::supervisor::Supervisor;
use crate::task::Asked;
use crate::task::Call;
use crate::task::Delivery;
use crate::task::Event;
use crate::task::Task;
use crate::task::Then;
use crate::task::Undo;
use crate::way::current;
use crate::worker::may_come;

/// How often it is looked whether somebody who waits for an event has been killed or signalled:
/// nothing tells, and the delay is felt at Ctrl-C.
const INTERVAL: Duration = Duration::from_millis(100);

/// The longest value of an option that is copied; the kernel's own are `struct ib_path_rec_data`
/// and not many of them.
const MAX_VALUE: usize = 4096;

/// Somebody who waits for an event.
#[derive(Debug)]
struct Waiter {
    guest: Arc<Guest>,
    written: CmCommand,
}

impl Supervisor {
    /// A command: copied here, with what it takes of the guest.
    pub(crate) fn command(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        call: Call,
        (file, ucontext): (OwnedFd, UcontextId),
    ) -> Result<(), Errno> {
        let Call { trap, asked, started, .. } = call;
        let Asked::Request { form: Form::Write(count), addr, .. } = asked else {
            return Err(Errno(libc::ENOTTY));
        };
        let caller = self.caller(&trap);
        let copied = CmCopy::read(&caller, addr, count)?;
        // The stubs have ended with the credentials that the program has changed: the response takes one.
        if copied.response_at().is_some()
            && !may_come(state)
            && caller.is_of(&guest.process).unwrap_or(false)
        {
            self.plant(guest, state, trap);
            return Ok(());
        }
        let port = OwnPort::asked(copied.header.cmd, &copied.body);
        let judged = self.check_granted(&trap).and_then(|()| self.check_peer(&trap, &copied));
        let judged = judged.and_then(|()| self.check_port(&trap, &copied, port));
        if let Err(denied) = judged.and_then(|()| Self::check_low_port(caller, &copied)) {
            self.tell_cm(&trap, &copied, None, denied.verdict(), started);
            return Err(denied.errno);
        }
        let (mut value, mut other, mut network) = (Vec::new(), None, None);
        match copied.spec.also {
            Also::Value(at, len) => {
                let len = usize::try_from(copied.u32(len)).unwrap_or(usize::MAX);
                if len > MAX_VALUE {
                    return Err(Errno::EINVAL);
                }
                value.resize(len, 0);
                let range = Range { addr: copied.u64(at), len };
                mem::gather(&caller, &[range], &mut value).map_err(fetch::fault)?;
            }
            // siw and erdma make their TCP sockets in the current namespace
            // (drivers/infiniband/sw/siw/siw_cm.c, drivers/infiniband/hw/erdma/erdma_cm.c).
            Also::Namespace | Also::Device => network = Some(caller.network().map_err(errno)?),
            Also::File(at) => {
                // As the kernel has it; that it is an rdma_cm file the kernel sees to.
                let fd = GuestFd(copied.u32(at).cast_signed());
                other = Some(caller.take(fd).map_err(|_| Errno::ENOENT)?);
            }
            Also::NewId | Also::Nothing | Also::Event => {}
        }
        // An event is lost when it cannot be written.
        let touched = match (copied.spec.also, copied.response_at()) {
            (Also::Event, Some(addr)) => {
                let len = copied.written(&[]);
                current(&caller, std::iter::once(Range { addr, len }))?
            }
            _ => Vec::new(),
        };
        let ids = self.books.lock().get(ucontext).map(|ucontext| Arc::clone(&ucontext.cm));
        let ids = ids.ok_or(Errno::EBADF)?;
        let from = match (&other, copied.spec.also) {
            (Some(other), Also::File(_)) => self.ids_of(other),
            _ => None,
        };
        let written =
            CmCommand { trap, file, copied, value, other, network, count, started, ids, from };
        if touched.is_empty() {
            self.cm.push(Arc::clone(guest), written);
        } else {
            let then = Then::Command(Box::new(written));
            let delivery = Delivery { trap, pieces: touched, then };
            self.take_up(guest, state, Task::Deliver(delivery));
        }
        Ok(())
    }

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
                waiters.extend(self.attend_event(waiter));
            }
            for (guest, written) in self.cm.take() {
                let waits = written.copied.spec.also == Also::Event;
                if waits && !may_take_event(&written.file) {
                    waiters.push_back(Waiter { guest, written });
                } else {
                    self.execute(&guest, written);
                }
            }
        }
    }

    /// Looks whether a waiter's event has come, or something else that ends its waiting.
    fn attend_event(&self, waiter: Waiter) -> Option<Waiter> {
        let Waiter { guest, written } = waiter;
        let caller = self.caller(&written.trap);
        // Somebody who has gone takes no event with him.
        if !caller.waits() {
            return None;
        }
        if may_take_event(&written.file) {
            self.execute(&guest, written);
            return None;
        }
        match caller.is_called_away() {
            Ok(true) => {
                self.leave(&guest, Event::Interrupt(written.trap));
                None
            }
            Ok(false) => Some(Waiter { guest, written }),
            Err(_) => None,
        }
    }

    fn execute(&self, guest: &Arc<Guest>, mut written: CmCommand) {
        let id = about(&written);
        let given = self.charged(&mut written, id.as_deref());
        let CmCommand { trap, file, copied, count, started, ids, .. } = written;
        let verdict =
            given.as_ref().map_or_else(|denied| denied.verdict(), |_| Verdict::Executed(0));
        self.tell_cm(&trap, &copied, id.as_deref(), verdict, started);
        let given = given.map_err(|denied| denied.errno);
        let reply = Reply::Value(i64::try_from(count).unwrap_or(i64::MAX));
        match (given, copied.response_at()) {
            (Err(errno), _) => self.refuse(trap, errno),
            (Ok(_), None) => self.answer(trap, reply),
            (Ok(response), Some(addr)) => {
                let len = copied.written(&response);
                let bytes = response.get(..len).unwrap_or(&response).to_vec();
                let also = copied.spec.also;
                let undo = Undo(Box::new(move || take_back(&file, also, &response, &ids)));
                let then = Then::Answer(reply, Some(undo));
                self.deliver(guest, Delivery { trap, pieces: vec![(addr, bytes)], then });
            }
        }
    }

    /// Tells of a command; `id` as [`about`] has it.
    fn tell_cm(
        &self,
        trap: &Notification,
        copied: &CmCopy,
        id: Option<&[u8]>,
        verdict: Verdict,
        started: Instant,
    ) {
        let peer = match cm::peer(copied.header.cmd, &copied.body) {
            Peer::Address(peer) => Some(peer),
            Peer::Nobody | Peer::Unknown => id.and_then(cm::peer_of_id),
        };
        let (tid, name, elapsed) = (trap.tid, copied.spec.name, started.elapsed());
        let done = CmDone { tid, name, id: copied.id(), peer, verdict, elapsed };
        let mut told = self.told.lock();
        told.counts.add_cm(&done);
        if let Some(observer) = &mut told.observer {
            observer.cm(&done);
        }
    }

    /// Gives a command, and returns the response.
    fn given(&self, written: &CmCommand, id: Option<&[u8]>) -> Result<Vec<u8>, Denied> {
        let CmCommand { copied, value, other, network, file, .. } = written;
        let mut command = match copied.spec.also {
            Also::Value(at, _) => copied.command(Some((at, value))),
            _ => copied.command(None),
        };
        if let Some(network) = network {
            process::enter_network(network).map_err(errno)?;
        }
        match (copied.spec.also, other.as_ref().and_then(GuestFile::get)) {
            (Also::Device | Also::NewId, _) => self.check_device(written, id)?,
            (Also::File(at), Some(other)) => {
                put_descriptor(&mut command.bytes, HDR_LEN + at, other);
            }
            _ => {}
        }
        Ok(give(file.as_fd(), command).map_err(errno)?)
    }

    /// Refuses all commands once the operator has taken rdma_cm away.
    fn check_granted(&self, trap: &Notification) -> Result<(), Denied> {
        const REASON: &str = "rdma_cm not granted";
        if self.narrowed().is_none_or(Policy::grants_rdma_cm) {
            return Ok(());
        }
        let tid = trap.tid;
        self.warn(REASON, || format!("thread {tid}: the operator has taken rdma_cm away"));
        Err(Denied::because(REASON, Errno::EACCES))
    }

    /// Refuses a command to a peer that the policy does not have.
    fn check_peer(&self, trap: &Notification, copied: &CmCopy) -> Result<(), Denied> {
        const REASON: &str = "peer not granted";
        let (cmd, body) = (copied.header.cmd, &copied.body);
        judge::check_peer(self.policies(), cmd, body).map_err(|beyond| {
            self.warn(REASON, || {
                let Beyond { value, rule, .. } = beyond;
                let name = copied.spec.name;
                format!("thread {}: {name} to {value} is not granted (rule: {rule})", trap.tid)
            });
            Denied::because(REASON, Errno::EPERM)
        })
    }

    /// Refuses a port below 1024 to who may not bind to it: the kernel sees the supervisor's capabilities, and takes commands
    /// from who has those of the file's opener alone (`ib_safe_file_access`, include/rdma/ib.h).
    fn check_low_port(caller: Caller<'_>, copied: &CmCopy) -> Result<(), Denied> {
        let is_low = cm::is_low_port(copied.header.cmd, &copied.body);
        if is_low && !caller.may_bind_low_ports().map_err(errno)? {
            return Err(Errno::EACCES.into());
        }
        Ok(())
    }

    /// Refuses a port that the policy does not have.
    fn check_port(
        &self,
        trap: &Notification,
        copied: &CmCopy,
        port: OwnPort,
    ) -> Result<(), Denied> {
        const REASON: &str = "port not granted";
        judge::check_port(self.policies(), port).map_err(|beyond| {
            self.warn(REASON, || {
                let (name, Beyond { value, rule, .. }) = (copied.spec.name, beyond);
                format!("thread {}: {name} at {value} is not granted (rule: {rule})", trap.tid)
            });
            Denied::because(REASON, Errno::EACCES)
        })
    }

    /// An id is bound to a device by its address; that must be one that was granted.
    fn check_device(&self, written: &CmCommand, id: Option<&[u8]>) -> Result<(), Denied> {
        const REASON: &str = "device not granted";
        let copied = &written.copied;
        // No such id: the command says so itself.
        let Some(response) = id else { return Ok(()) };
        if copied.header.cmd == cm::LISTEN {
            let bound = OwnPort::bound(response);
            self.check_port(&written.trap, copied, judge::to_listen_at(bound))?;
            // However it was bound.
            let is_low = matches!(bound, OwnPort::Number(port) if cm::LOW_PORTS.contains(&port));
            let caller = self.caller(&written.trap);
            if is_low && !caller.may_bind_low_ports().map_err(errno)? {
                return Err(Errno::EACCES.into());
            }
        }
        let bound = match BoundTo::read(response) {
            // Any device's connections; each comes with a device, and is looked at then.
            Some(BoundTo::Nothing) if copied.header.cmd == cm::LISTEN => return Ok(()),
            // As the kernel has it; and an address may be resolved at any moment, after this look.
            Some(BoundTo::Nothing) => return Err(Errno::EINVAL.into()),
            Some(BoundTo::Device { index, port, pkey, .. })
                if self.narrowed.has_port(&self.devices, index, port.into())
                    && self.policies().all(|policy| policy.grants_pkey(pkey)) =>
            {
                return Ok(());
            }
            bound => bound,
        };
        let name = copied.spec.name;
        self.warn(REASON, || {
            let device = match bound {
                Some(BoundTo::Device { index, node_guid, .. }) => {
                    format!("RDMA device {index} (node GUID {node_guid:016x}; see: rdma dev)")
                }
                _ => "an RDMA device that the kernel does not name".to_owned(),
            };
            let tid = written.trap.tid;
            format!(
                "thread {tid}: {name} goes by {device}, of which the device, the port or the P_Key \
                 was not granted"
            )
        });
        Err(Denied::because(REASON, Errno::ENODEV))
    }
}

/// What the kernel knows of the id that a command sends by, or lets send by: `struct
/// rdma_ucm_query_addr_resp`. None for any other command, and where there is no such id.
fn about(written: &CmCommand) -> Option<Vec<u8>> {
    let copied = &written.copied;
    if !matches!(copied.spec.also, Also::Device | Also::NewId) {
        return None;
    }
    let header = CmHeader {
        cmd: cm::QUERY,
        input: 16,
        output: u16::try_from(cm::QUERY_ADDR_LEN).unwrap_or(u16::MAX),
    };
    let mut bytes = header.bytes().to_vec();
    bytes.extend([0; 8]);
    bytes.extend(copied.id()?.to_ne_bytes());
    bytes.extend(cm::QUERY_ADDR.to_ne_bytes());
    let query = Command { bytes, response: Some(HDR_LEN), out: header.output, value: None };
    give(written.file.as_fd(), query).ok()
}

/// Destroys an id that its maker was not told of.
fn take_back(file: &OwnedFd, also: Also, response: &[u8], ids: &Mutex<CmAccount>) {
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
    match give(file.as_fd(), command) {
        Ok(_) => charge::gone(cmd, charge::word(response, 0), &mut ids.lock()),
        Err(e) => log::debug!("rdma_cm: cannot destroy an id: {e}"),
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
