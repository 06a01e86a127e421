//! RDMA netlink, by which libraries find devices: behind the guest's socket is the supervisor.
//!
//! The guest gets one end of a socket pair at a watched number. The supervisor judges each message
//! of the guest ([`verbgate_abi::netlink`]), asks the kernel by a socket of its own in the guest's
//! network namespace, and answers with the part about granted devices. Answers lie in the guest's
//! own socket when the guest's sending returns, so the kernel does the waiting. The supervisor does
//! the receiving, because a netlink socket tells who sent a message and a socket pair does not.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use rustix::fs::OFlags;
use rustix::net::AddressFamily;
use rustix::net::Protocol;
use rustix::net::RecvFlags;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use verbgate_abi::Errno;
use verbgate_abi::netlink;
use verbgate_abi::netlink::Grant;
use verbgate_abi::netlink::Judged;
use verbgate_abi::netlink::Message;
use verbgate_abi::netlink::Writer;
use verbgate_sys::GuestFd;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::process;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;

use crate::device::Device;
use crate::device::DeviceView;
use crate::device::Devices;
use crate::device::Kind;
use crate::execute;
use crate::execute::Then;
use crate::serve::Delivery;
use crate::supervisor::Supervisor;

/// `NETLINK_RDMA`, include/uapi/linux/netlink.h.
const RDMA: u32 = 20;
/// `SOL_NETLINK`.
const SOL_NETLINK: u64 = 270;
/// Bytes of `struct sockaddr_nl`.
const ADDRESS_LEN: usize = 12;
/// The longest datagram of questions that is read; a question has some fifty bytes.
const MAX_SENT: usize = 4096;
/// The longest part of an answer: the kernel's dumps come in parts of at most 32 KiB.
const MAX_PART: usize = 64 << 10;
/// Buffers of a guest that are looked at.
const MAX_VECTORS: usize = 16;
/// Sockets at once: each takes two of the supervisor's descriptors.
const MAX_SOCKETS: usize = 128;

/// The guests' sockets, by the inode number of the guest's end: whose number is its own until the
/// guest has closed it, which the other end tells.
pub(crate) type Sockets = HashMap<u64, Socket>;

/// What stands behind a guest's socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// The other end of the guest's.
    peer: OwnedFd,
    /// The kernel's answers come here.
    kernel: OwnedFd,
    /// By which the guest's socket is addressed.
    port: u32,
    granted: Granted,
}

/// What of the host's a sandbox may ask about.
#[derive(Debug)]
struct Granted {
    indices: Vec<u32>,
    cm: bool,
}

impl Granted {
    /// By the numbers that were recorded when the devices were granted: what was removed since has
    /// taken its own along, and whatever came in its place has another. Who does not find a device
    /// in sysfs does not find it here.
    fn of(devices: &Devices, found: Option<&dyn DeviceView>) -> Self {
        let shown = |device: &&Device| found.is_none_or(|found| found.shows(&device.name));
        let indices = devices.iter().filter(shown).filter_map(Device::index);
        Self { indices: indices.collect(), cm: devices.has(Kind::Cm) }
    }
}

impl Grant for Granted {
    fn device(&self, index: u32) -> bool {
        self.indices.contains(&index)
    }

    fn node(&self, kind: &str) -> bool {
        kind == "uverbs" || kind == "rdma_cm" && self.cm
    }
}

/// Forgets the sockets that guests have closed.
pub(crate) fn forget_closed(sockets: &mut Sockets) {
    sockets.retain(|_, socket| {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Hanging up is told without being asked for.
        let mut fds = [PollFd::new(&socket.peer, PollFlags::empty())];
        !poll(&mut fds, Some(&at_once)).is_ok_and(|n| n > 0)
    });
}

/// What a call on a socket comes to.
struct Done {
    value: i64,
    /// What its caller is told in its own memory.
    pieces: Vec<(u64, Vec<u8>)>,
}

impl From<i64> for Done {
    fn from(value: i64) -> Self {
        Self { value, pieces: Vec::new() }
    }
}

impl Supervisor {
    /// `socket(AF_NETLINK, *, NETLINK_RDMA)`.
    pub(crate) fn netlink_socket(&self, trap: Notification) {
        if let Err(errno) = self.make_socket(&trap) {
            self.note("no netlink", || format!("thread {}: no netlink: {errno}", trap.tid));
            self.refuse(trap, errno);
        }
    }

    fn make_socket(&self, trap: &Notification) -> Result<(), Errno> {
        let caller = self.caller(trap);
        let guest = self.enter(caller)?;
        // Ports tell their network devices in the namespace of whoever asks.
        process::enter_network(&caller.network().map_err(errno)?).map_err(errno)?;
        let system = |e: rustix::io::Errno| Errno(e.raw_os_error());
        let kernel = socket().map_err(errno)?;
        let granted = Granted::of(&self.devices, self.found.as_deref());
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (theirs, peer) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).map_err(system)?;
        rustix::fs::fcntl_setfl(&peer, OFlags::NONBLOCK).map_err(system)?;
        let wants = |flag: i32| trap.args[1] & u64::from(flag.cast_unsigned()) != 0;
        if wants(libc::SOCK_NONBLOCK) {
            rustix::fs::fcntl_setfl(&theirs, OFlags::NONBLOCK).map_err(system)?;
        }
        let inode = rustix::fs::fstat(&theirs).map_err(system)?.st_ino;
        let mut sockets = self.netlinks.lock();
        forget_closed(&mut sockets);
        if sockets.len() >= MAX_SOCKETS {
            return Err(Errno::EMFILE);
        }
        // As the kernel's own choice: the process, or a number that no process has.
        let taken = |port: u32| sockets.values().any(|socket| socket.port == port);
        let first = guest.process.tgid().0.cast_unsigned();
        let port = if taken(first) {
            (0..=u32::MAX).rev().find(|port| !taken(*port)).unwrap_or(u32::MAX)
        } else {
            first
        };
        sockets.insert(inode, Socket { peer, kernel, port, granted });
        drop(sockets);
        let given = self.give(&guest, trap, &theirs, wants(libc::SOCK_CLOEXEC));
        if given.is_err() {
            self.netlinks.lock().remove(&inode);
        }
        given.map(drop)
    }

    /// A call on a descriptor that may be such a socket.
    pub(crate) fn netlink_call(&self, trap: Notification) {
        let fd = execute::guest_fd(trap.args[0]);
        let Some(inode) = self.socket_of(&trap, fd) else {
            // Some other socket with a number in the window.
            return self.answer(trap, Reply::Continue);
        };
        let n = Native::NUMBERS.sockets;
        let writes = [n.getsockname, n.recvfrom, n.recvmsg].contains(&trap.nr);
        // What its caller is told in its own memory, a stub of its writes.
        let guest = if writes {
            let Some(guest) = self.planted(&trap) else { return };
            Some(guest)
        } else {
            None
        };
        match (self.on_socket(&trap, fd, inode), guest) {
            (Ok(None), _) => self.answer(trap, Reply::Continue),
            (Ok(Some(Done { value, pieces })), Some(guest)) => {
                let then = Then::Answer(Reply::Value(value), None);
                self.deliver(&guest, Delivery { trap, pieces, then });
            }
            (Ok(Some(Done { value, .. })), None) => self.answer(trap, Reply::Value(value)),
            (Err(errno), _) => self.refuse(trap, errno),
        }
    }

    /// The socket that a descriptor is, if it is one of ours.
    fn socket_of(&self, trap: &Notification, fd: GuestFd) -> Option<u64> {
        if self.netlinks.lock().is_empty() {
            return None;
        }
        let inode = inode_of(&self.caller(trap).name_of(fd).ok()?)?;
        let mut sockets = self.netlinks.lock();
        forget_closed(&mut sockets);
        sockets.contains_key(&inode).then_some(inode)
    }

    /// The result of a call on one of our sockets; `None`: it is the kernel's.
    fn on_socket(
        &self,
        trap: &Notification,
        fd: GuestFd,
        inode: u64,
    ) -> Result<Option<Done>, Errno> {
        let n = Native::NUMBERS.sockets;
        let memory = self.caller(trap);
        let [_, b, c, d, e, f] = trap.args;
        let nr = trap.nr;
        // The guest's memory is read before the socket is locked: that may take long.
        let locked = |work: &mut dyn FnMut(&mut Socket) -> Result<Done, Errno>| {
            let mut sockets = self.netlinks.lock();
            sockets.get_mut(&inode).map(work).transpose()
        };
        if nr == n.bind {
            let address = Address::read(&memory, b, c)?;
            return locked(&mut |socket| socket.bind(&address).map(Done::from));
        }
        if nr == n.getsockname {
            let room = room(&memory, c)?;
            return locked(&mut |socket| {
                Ok(Done { value: 0, pieces: put_address(room, b, c, socket.port) })
            });
        }
        if nr == n.setsockopt {
            // Extended errors and the like: answers do without.
            return Ok((b == SOL_NETLINK).then_some(Done::from(0)));
        }
        if nr == n.sendto || nr == n.sendmsg {
            let vectors =
                if nr == n.sendto { vec![range(b, c)] } else { Header::read(&memory, b)?.vectors };
            let bytes = gather(&memory, &vectors, MAX_SENT)?;
            return locked(&mut |socket| socket.send(&bytes).map(Done::from));
        }
        let taken = memory.take(fd).map_err(|_| Errno::EBADF)?;
        // Replaced meanwhile: then it is none of ours to receive from.
        if taken.name().as_deref().and_then(inode_of) != Some(inode) {
            return Ok(None);
        }
        let file = taken.known().ok_or(Errno::EBADF)?;
        if nr == n.recvfrom {
            let room = if e == 0 { None } else { Some(room(&memory, f)?) };
            let mut received = receive(&file, &[range(b, c)], d)?;
            received.pieces.extend(room.into_iter().flat_map(|room| put_address(room, e, f, 0)));
            return Ok(Some(received.done()));
        }
        let header = Header::read(&memory, b)?;
        let mut received = receive(&file, &header.vectors, c)?;
        let told = header.told(b, received.flags);
        received.pieces.extend(told);
        Ok(Some(received.done()))
    }
}

/// The number in `socket:[N]`, by which the kernel shows a socket. No path is shown so.
fn inode_of(name: &[u8]) -> Option<u64> {
    let number = name.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// A `struct sockaddr_nl`: family and padding, port, groups.
struct Address {
    port: u32,
    groups: u32,
}

impl Address {
    fn read(memory: &impl GuestMemory, addr: u64, len: u64) -> Result<Self, Errno> {
        if len < ADDRESS_LEN as u64 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; ADDRESS_LEN];
        read(memory, addr, &mut bytes)?;
        let [port, groups] = [4, 8].map(|at| word(&bytes, at));
        Ok(Self { port, groups })
    }
}

impl Socket {
    fn bind(&mut self, to: &Address) -> Result<i64, Errno> {
        if to.groups != 0 {
            // News of devices, which are told to everybody.
            return Err(Errno::EPERM);
        }
        if to.port != 0 {
            self.port = to.port;
        }
        Ok(0)
    }

    /// Has the questions of a datagram answered.
    fn send(&mut self, bytes: &[u8]) -> Result<i64, Errno> {
        for message in netlink::messages(bytes) {
            match netlink::judge(&message, &self.granted) {
                Judged::Ignored => {}
                Judged::Refused(errno) => {
                    self.deliver(&netlink::refusal(&message, errno, self.port))?;
                }
                Judged::Asked(payload) => {
                    let message = Message { payload: &payload, ..message };
                    let parts = ask(&self.kernel, &message).map_err(errno)?;
                    for part in parts {
                        let mut seen = Writer::default();
                        for answer in netlink::messages(&part) {
                            if netlink::may_see(&answer, &self.granted) {
                                seen.message(&answer, self.port);
                            }
                        }
                        self.deliver(&seen.into_bytes())?;
                    }
                }
            }
        }
        Ok(i64::try_from(bytes.len()).unwrap_or(i64::MAX))
    }

    fn deliver(&self, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        // Who asks and does not read is told as by the kernel.
        rustix::io::write(&self.peer, bytes).map(drop).map_err(|_| Errno(libc::ENOBUFS))
    }
}

/// Asks the kernel, and returns the parts of the answer. They are there as soon as it is asked;
/// those of a dump are made when the last one is taken.
pub(crate) fn ask(kernel: &OwnedFd, message: &Message<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut question = Writer::default();
    question.message(message, 0);
    rustix::io::write(kernel, &question.into_bytes())?;
    let mut parts = Vec::new();
    let mut buffer = vec![0; MAX_PART];
    loop {
        match rustix::net::recv(kernel, &mut *buffer, RecvFlags::empty()) {
            Ok((n, _)) => parts.push(buffer.get(..n).unwrap_or_default().to_vec()),
            Err(rustix::io::Errno::AGAIN) => return Ok(parts),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// A socket in the network namespace of the calling thread.
fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = RDMA.try_into().ok().map(Protocol::from_raw);
    Ok(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?)
}

/// By which number RDMA netlink and the connection manager know the RDMA device of a node.
///
/// The kernel counts on with each device that comes (`assign_name`, drivers/infiniband/core/
/// device.c), so the number stays that of this one, and names no other afterwards. That the node
/// still is the device's is to be looked at after this ([`verbgate_sysfs::identity`]).
///
/// # Errors
/// netlink(7)'s. A node without an RDMA device, and a kernel without RDMA, have no number.
pub fn index_of(node: (u32, u32)) -> io::Result<Option<u32>> {
    let kernel = match socket() {
        Err(e) if e.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(None),
        socket => socket?,
    };
    let question = |command, flags, payload: &[u8]| {
        let kind = netlink::nldev(command);
        ask(&kernel, &Message { kind, flags: netlink::REQUEST | flags, seq: 1, payload })
    };
    let all = question(netlink::GET, netlink::DUMP, &[])?;
    for index in values(&all, netlink::DEV_INDEX) {
        let about = [(netlink::DEV_INDEX, &*index), (netlink::CHARDEV_TYPE, b"uverbs\0")];
        let answer = question(netlink::GET_CHARDEV, 0, &netlink::encode(&about))?;
        let number = values(&answer, netlink::CHARDEV).next();
        if number.and_then(|number| netlink::device_number(&number)) == Some(node) {
            return Ok(netlink::index(&index));
        }
    }
    Ok(None)
}

/// What an attribute holds in each of the messages.
fn values(parts: &[Vec<u8>], wanted: u16) -> impl Iterator<Item = Vec<u8>> {
    let messages = parts.iter().flat_map(|part| netlink::messages(part));
    let attributes = messages.flat_map(|message| netlink::attributes(message.payload));
    let values = attributes.filter(move |(number, _)| *number == wanted);
    values.map(|(_, value)| value.to_vec())
}

/// A `struct msghdr` of a guest's.
#[derive(Debug)]
struct Header {
    name: u64,
    name_len: u32,
    vectors: Vec<Range>,
}

impl Header {
    const LEN: usize = 56;

    fn read(memory: &impl GuestMemory, addr: u64) -> Result<Self, Errno> {
        let mut bytes = [0; Self::LEN];
        read(memory, addr, &mut bytes)?;
        let [name, at, count] = [0, 16, 24].map(|at| long(&bytes, at));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > MAX_VECTORS {
            return Err(Errno(libc::EMSGSIZE));
        }
        let mut vectors = vec![0; count * 16];
        read(memory, at, &mut vectors)?;
        let vectors = vectors.chunks(16).map(|one| range(long(one, 0), long(one, 8))).collect();
        Ok(Self { name, name_len: word(&bytes, 8), vectors })
    }

    /// Tells who sent what was received: the kernel.
    fn told(&self, addr: u64, flags: RecvFlags) -> Vec<(u64, Vec<u8>)> {
        let len = u32::try_from(ADDRESS_LEN).unwrap_or(u32::MAX).to_ne_bytes();
        let from = address(0);
        let room = usize::try_from(self.name_len).unwrap_or(usize::MAX).min(ADDRESS_LEN);
        let mut pieces = Vec::new();
        if self.name != 0 {
            pieces.push((self.name, from.get(..room).unwrap_or(&from).to_vec()));
            pieces.push((addr.wrapping_add(8), len.to_vec()));
        }
        // msg_controllen, and msg_flags behind it.
        pieces.push((addr.wrapping_add(40), vec![0; 8]));
        pieces.push((addr.wrapping_add(48), flags.bits().to_ne_bytes().to_vec()));
        pieces
    }
}

struct Received {
    value: i64,
    flags: RecvFlags,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Received {
    fn done(self) -> Done {
        Done { value: self.value, pieces: self.pieces }
    }
}

/// Takes a message from the guest's own end.
fn receive(file: &OwnedFd, vectors: &[Range], flags: u64) -> Result<Received, Errno> {
    let flags = RecvFlags::from_bits_truncate(u32::try_from(flags & 0xffff_ffff).unwrap_or(0));
    let room: usize = vectors.iter().map(|vector| vector.len.min(MAX_PART)).sum();
    let mut buffer = vec![0; room.min(MAX_PART)];
    // A guest that waits for what it has not asked for would wait for ever; it is told so.
    let how = flags & (RecvFlags::PEEK | RecvFlags::TRUNC) | RecvFlags::DONTWAIT;
    // Without TRUNC the true length is not told; whether it is longer is.
    let (n, len) = rustix::net::recv(file, &mut *buffer, how | RecvFlags::TRUNC)
        .map_err(|e| errno(e.into()))?;
    let mut rest = buffer.get(..n).unwrap_or_default();
    let mut pieces = Vec::new();
    for vector in vectors {
        let (piece, behind) = rest.split_at_checked(vector.len).unwrap_or((rest, &[]));
        if !piece.is_empty() {
            pieces.push((vector.addr, piece.to_vec()));
        }
        rest = behind;
    }
    let value = if flags.contains(RecvFlags::TRUNC) { len } else { n };
    let cut = if len > n { RecvFlags::TRUNC } else { RecvFlags::empty() };
    Ok(Received { value: i64::try_from(value).unwrap_or(i64::MAX), flags: cut, pieces })
}

fn errno(e: io::Error) -> Errno {
    Errno(e.raw_os_error().unwrap_or(libc::EIO))
}

fn range(addr: u64, len: u64) -> Range {
    Range { addr, len: usize::try_from(len).unwrap_or(usize::MAX) }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let long = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    long.map_or(0, |long| u64::from_ne_bytes(*long))
}

fn read(memory: &impl GuestMemory, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
    let len = into.len();
    mem::gather(memory, &[Range { addr, len }], into).map_err(|_| Errno::EFAULT)
}

fn gather(memory: &impl GuestMemory, vectors: &[Range], most: usize) -> Result<Vec<u8>, Errno> {
    let len = vectors.iter().fold(0_usize, |all, vector| all.saturating_add(vector.len));
    if len > most {
        return Err(Errno(libc::EMSGSIZE));
    }
    let mut bytes = vec![0; len];
    mem::gather(memory, vectors, &mut bytes).map_err(|_| Errno::EFAULT)?;
    Ok(bytes)
}

/// `struct sockaddr_nl` of a port.
fn address(port: u32) -> [u8; ADDRESS_LEN] {
    let mut bytes = [0; ADDRESS_LEN];
    let family = u32::from(AddressFamily::NETLINK.as_raw()).to_ne_bytes();
    for (to, from) in bytes.iter_mut().zip(family.into_iter().chain(port.to_ne_bytes())) {
        *to = from;
    }
    bytes
}

/// How much room there is for an address.
fn room(memory: &impl GuestMemory, len_at: u64) -> Result<usize, Errno> {
    let mut room = [0; 4];
    read(memory, len_at, &mut room)?;
    Ok(usize::try_from(u32::from_ne_bytes(room)).unwrap_or(usize::MAX))
}

/// An address, as much as there is room for, and how long it is.
fn put_address(room: usize, addr: u64, len_at: u64, port: u32) -> Vec<(u64, Vec<u8>)> {
    let bytes = address(port);
    let len = u32::try_from(ADDRESS_LEN).unwrap_or(u32::MAX).to_ne_bytes();
    let part = bytes.get(..room.min(ADDRESS_LEN)).unwrap_or(&bytes);
    vec![(len_at, len.to_vec()), (addr, part.to_vec())]
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn memory(bytes: Vec<u8>) -> mem::FakeMemory {
        mem::FakeMemory { base: 0, bytes: RefCell::new(bytes) }
    }

    #[test]
    fn netlink_tells_of_the_kernels_devices_that_were_granted_and_are_found() {
        use std::path::Path;

        use verbgate_abi::wire::DriverId;
        use verbgate_sysfs::DevNumber;
        use verbgate_sysfs::Identity;

        use crate::device::Watched;

        struct Shows(&'static str);
        impl DeviceView for Shows {
            fn shows(&self, node: &str) -> bool {
                node == self.0
            }
        }
        let device = |name: &str, index| Device {
            name: name.to_owned(),
            rdev: (1, 3),
            identity: Watched::new(
                Identity::unknown(DevNumber { major: 1, minor: 3 }),
                Path::new("/absent"),
            ),
            source: "/dev/null".into(),
            kind: Kind::Verbs { driver: DriverId::UNKNOWN, index },
        };
        let devices =
            vec![device("uverbs0", Some(4)), device("uverbs1", Some(7)), device("uverbs9", None)];
        let devices = Devices::from(devices);
        assert_eq!(Granted::of(&devices, None).indices, [4, 7]);
        assert_eq!(Granted::of(&devices, Some(&Shows("uverbs1"))).indices, [7]);
        assert_eq!(Granted::of(&devices, Some(&Shows("uverbs9"))).indices, [0; 0]);
        assert!(!Granted::of(&devices, None).cm);
    }

    #[test]
    fn an_address_is_cut_to_the_room_and_its_length_is_told() {
        let pieces = put_address(8, 100, 16, 7);
        let told = (16, 12_u32.to_ne_bytes().to_vec());
        assert_eq!(pieces, [told, (100, vec![16, 0, 0, 0, 7, 0, 0, 0])]);
    }

    #[test]
    fn a_message_is_spread_over_vectors_and_its_cut_is_told() {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let vectors = [range(0, 2), range(16, 2)];
        for (flags, value) in [(libc::MSG_PEEK | libc::MSG_TRUNC, 5), (0, 4)] {
            if value == 5 {
                rustix::io::write(&ours, b"hello").unwrap();
            }
            let flags = u64::try_from(flags).unwrap();
            let received = receive(&theirs, &vectors, flags).unwrap();
            assert_eq!((received.value, received.flags), (value, RecvFlags::TRUNC));
            assert_eq!(received.pieces, [(0, b"he".to_vec()), (16, b"ll".to_vec())]);
        }
        let nothing = receive(&theirs, &vectors, 0).map(|r| r.value);
        assert_eq!(nothing, Err(Errno::EAGAIN));
    }

    #[test]
    fn only_a_socket_is_a_socket() {
        assert_eq!(inode_of(b"socket:[17]"), Some(17));
        for other in [&b"/socket:[17]"[..], b"pipe:[17]", b"socket:[]", b"socket:[17] (deleted)"] {
            assert_eq!(inode_of(other), None);
        }
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let mut bytes = vec![0; 128];
        bytes[24..32].copy_from_slice(&17_u64.to_ne_bytes());
        let header = |bytes: &[u8]| Header::read(&memory(bytes.to_vec()), 0).map(|h| h.vectors);
        assert_eq!(header(&bytes), Err(Errno(libc::EMSGSIZE)));
        bytes[24..32].copy_from_slice(&1_u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&4096_u64.to_ne_bytes());
        assert_eq!(header(&bytes), Err(Errno::EFAULT));
        let huge = [range(0, u64::MAX), range(0, u64::MAX)];
        assert_eq!(gather(&memory(bytes), &huge, MAX_SENT), Err(Errno(libc::EMSGSIZE)));
    }
}
