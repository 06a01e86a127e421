//! Connections by librdmacm, for queue pairs that the caller has made: `rdma_cm(7)`.
//!
//! The library only exchanges what the ends must know of each other. The caller's queue pair goes
//! through its states by [`QueuePair::connect_by`], as programs do that share queue pairs.

use std::ffi::c_int;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use rustix::io::Errno;

use crate::Error;
use crate::QueuePair;
use crate::check;
use crate::ffi;
use crate::ffi::cm as raw;
use crate::last;
use crate::library::CmLibrary;
use crate::queue;

/// `RDMA_PS_TCP`: reliable connections.
const PORT_SPACE: c_int = 0x0106;
/// Of `IBV_QP_MIN_RNR_TIMER`, in a mask of attributes.
const MASK_RTR: c_int = 1 << 15;
/// `IBV_QP_TIMEOUT | RETRY_CNT | RNR_RETRY`.
const MASK_RTS: c_int = 1 << 9 | 1 << 10 | 1 << 11;

/// `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are the header's")]
pub enum EventKind {
    AddrResolved,
    AddrError,
    RouteResolved,
    RouteError,
    ConnectRequest,
    ConnectResponse,
    ConnectError,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
    /// Of a number that has no name here.
    Other(u32),
}

impl EventKind {
    fn new(number: u32) -> Self {
        match number {
            0 => Self::AddrResolved,
            1 => Self::AddrError,
            2 => Self::RouteResolved,
            3 => Self::RouteError,
            4 => Self::ConnectRequest,
            5 => Self::ConnectResponse,
            6 => Self::ConnectError,
            7 => Self::Unreachable,
            8 => Self::Rejected,
            9 => Self::Established,
            10 => Self::Disconnected,
            other => Self::Other(other),
        }
    }
}

/// An event, of `rdma_get_cm_event(3)`.
#[derive(Debug)]
pub struct CmEvent {
    /// What has happened.
    pub kind: EventKind,
    /// A negative errno, or the reason of a rejection.
    pub status: i32,
    /// [`CmId::key`] of the identifier that the event is of.
    pub key: usize,
    /// Of a request: the identifier of the new connection.
    pub new: Option<CmId>,
    /// Of a request: what the peer said with it. The transport may have added zeroes.
    pub private: Vec<u8>,
}

/// Where events of identifiers come.
#[derive(Clone, Debug)]
pub struct EventChannel(Rc<ChannelInner>);

#[derive(Debug)]
struct ChannelInner {
    library: CmLibrary,
    channel: *mut raw::Channel,
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // SAFETY: identifiers hold this structure, so they are gone; each event was acknowledged.
        unsafe { (self.library.destroy_event_channel)(self.channel) };
    }
}

impl EventChannel {
    /// # Errors
    /// If the library is not there, or as `rdma_create_event_channel(3)`.
    pub fn new() -> Result<Self, Error> {
        let library = CmLibrary::load()?;
        // SAFETY: takes nothing.
        let channel = unsafe { (library.create_event_channel)() };
        if channel.is_null() {
            return Err(last("rdma_create_event_channel"));
        }
        Ok(Self(Rc::new(ChannelInner { library, channel })))
    }

    /// The next event, if one comes within this time.
    ///
    /// # Errors
    /// As `poll(2)` and `rdma_get_cm_event(3)`.
    pub fn next(&self, patience: Duration) -> Result<Option<CmEvent>, Error> {
        // SAFETY: the channel is there.
        let fd = unsafe { (*self.0.channel).fd };
        // SAFETY: the descriptor is open as long as the channel.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut ready, Timespec::try_from(patience).ok().as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(errno) => return Err(Error::Verb { verb: "poll", error: errno.into() }),
        }
        let mut event = null_mut();
        // SAFETY: the channel is there, and the place ours to write.
        let got = unsafe { (self.0.library.get_cm_event)(self.0.channel, &raw mut event) };
        check("rdma_get_cm_event", got)?;
        // SAFETY: an event that was just given, and not acknowledged yet.
        let raw::Event { id, kind, status, conn, .. } = unsafe { &*event };
        let kind = EventKind::new(*kind);
        let (new, private) = if kind == EventKind::ConnectRequest {
            let length = usize::from(conn.private_data_len);
            let private = if conn.private_data.is_null() {
                Vec::new()
            } else {
                // SAFETY: so many bytes of the event.
                unsafe { std::slice::from_raw_parts(conn.private_data.cast(), length) }.to_vec()
            };
            (Some(CmId { id: *id, channel: self.clone() }), private)
        } else {
            (None, Vec::new())
        };
        let found = CmEvent { kind, status: *status, key: id.addr(), new, private };
        // SAFETY: the event is used no more.
        check("rdma_ack_cm_event", unsafe { (self.0.library.ack_cm_event)(event) })?;
        Ok(Some(found))
    }
}

/// How a connection tries, which rdma_cm leaves to the queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Tries {
    /// As in [`crate::Path`].
    pub min_rnr_timer: u8,
    /// As in [`crate::Path`].
    pub rnr_retry: u8,
    /// As in [`crate::Path`].
    pub timeout: u8,
    /// As in [`crate::Path`].
    pub retry_cnt: u8,
}

/// An identifier, of `rdma_create_id(3)`: like a socket.
#[derive(Debug)]
pub struct CmId {
    id: *mut raw::Id,
    channel: EventChannel,
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: ours; its events are acknowledged as soon as they are taken.
        unsafe { (self.channel.0.library.destroy_id)(self.id) };
    }
}

impl CmId {
    /// # Errors
    /// As `rdma_create_id(3)`.
    pub fn new(channel: &EventChannel) -> Result<Self, Error> {
        let mut id = null_mut();
        let create = channel.0.library.create_id;
        // SAFETY: the channel is there, and the place ours to write.
        let made = unsafe { create(channel.0.channel, &raw mut id, null_mut(), PORT_SPACE) };
        check("rdma_create_id", made)?;
        Ok(Self { id, channel: channel.clone() })
    }

    fn library(&self) -> &CmLibrary {
        &self.channel.0.library
    }

    /// By which events name the identifier, as long as it is there.
    #[must_use]
    pub fn key(&self) -> usize {
        self.id.addr()
    }

    /// The type of service of the connection's packets: what RoCE calls the traffic class.
    ///
    /// # Errors
    /// As `rdma_set_option(3)`.
    pub fn set_type_of_service(&self, tos: u8) -> Result<(), Error> {
        let mut tos = tos;
        let value = (&raw mut tos).cast();
        // SAFETY: the identifier is there; RDMA_OPTION_ID_TOS takes one byte.
        check("rdma_set_option", unsafe { (self.library().set_option)(self.id, 0, 0, value, 1) })
    }

    /// Listens at this address, at any port; which.
    ///
    /// # Errors
    /// As `rdma_bind_addr(3)` and `rdma_listen(3)`.
    pub fn listen(&self, at: IpAddr, backlog: u16) -> Result<u16, Error> {
        let mut at = raw::Address::new(SocketAddr::new(at, 0));
        // SAFETY: the identifier is there, and the address whole.
        let bound = unsafe { (self.library().bind_addr)(self.id, &raw mut at) };
        check("rdma_bind_addr", bound)?;
        // SAFETY: as above.
        check("rdma_listen", unsafe { (self.library().listen)(self.id, backlog.into()) })?;
        // SAFETY: as above.
        Ok(u16::from_be(unsafe { (self.library().get_src_port)(self.id) }))
    }

    /// Begins to find the device and the neighbour on the way from here to there.
    ///
    /// # Errors
    /// As `rdma_resolve_addr(3)`.
    pub fn resolve_address(&self, from: IpAddr, to: SocketAddr, ms: u16) -> Result<(), Error> {
        let mut from = raw::Address::new(SocketAddr::new(from, 0));
        let mut to = raw::Address::new(to);
        let resolve = self.library().resolve_addr;
        // SAFETY: the identifier is there, and the addresses whole.
        let begun = unsafe { resolve(self.id, &raw mut from, &raw mut to, ms.into()) };
        check("rdma_resolve_addr", begun)
    }

    /// Begins to find the route; after the address.
    ///
    /// # Errors
    /// As `rdma_resolve_route(3)`.
    pub fn resolve_route(&self, ms: u16) -> Result<(), Error> {
        // SAFETY: the identifier is there.
        let begun = unsafe { (self.library().resolve_route)(self.id, ms.into()) };
        check("rdma_resolve_route", begun)
    }

    /// Asks the peer for a connection of this queue pair, with up to 56 bytes for its eyes.
    ///
    /// # Errors
    /// As `rdma_connect(3)`.
    pub fn connect(&self, qp: &QueuePair, reads: u8, private: &[u8]) -> Result<(), Error> {
        let mut parameters = parameters(qp, reads, private);
        // SAFETY: the identifier is there; the parameters and their data are whole.
        let begun = unsafe { (self.library().connect)(self.id, &raw mut parameters) };
        check("rdma_connect", begun)
    }

    /// Answers a request, with this queue pair.
    ///
    /// # Errors
    /// As `rdma_accept(3)`.
    pub fn accept(&self, qp: &QueuePair, reads: u8) -> Result<(), Error> {
        let mut parameters = parameters(qp, reads, &[]);
        // SAFETY: the identifier is there, and the parameters whole.
        let done = unsafe { (self.library().accept)(self.id, &raw mut parameters) };
        check("rdma_accept", done)
    }

    /// Tells the peer that its answer has come.
    ///
    /// # Errors
    /// As `rdma_establish(3)`.
    pub fn establish(&self) -> Result<(), Error> {
        // SAFETY: the identifier is there.
        check("rdma_establish", unsafe { (self.library().establish)(self.id) })
    }

    fn attributes(&self, state: u32) -> Result<(ffi::QueuePairAttr, c_int), Error> {
        let mut attr = ffi::QueuePairAttr { qp_state: state, ..Default::default() };
        let mut mask = 0;
        let init = self.library().init_qp_attr;
        // SAFETY: the identifier is there, and both places are ours to write.
        let done = unsafe { init(self.id, &raw mut attr, &raw mut mask) };
        check("rdma_init_qp_attr", done)?;
        Ok((attr, mask))
    }
}

impl QueuePair {
    /// Connects it as rdma_cm says, to RTR and then to RTS: once the request or the answer has come.
    ///
    /// # Errors
    /// As `rdma_init_qp_attr` and `ibv_modify_qp(3)`.
    pub fn connect_by(&self, id: &CmId, tries: Tries) -> Result<(), Error> {
        let (attr, mask) = id.attributes(queue::STATE_RTR)?;
        let attr = ffi::QueuePairAttr { min_rnr_timer: tries.min_rnr_timer, ..attr };
        self.modify("ibv_modify_qp to RTR", attr, mask | MASK_RTR)?;
        let (attr, mask) = id.attributes(queue::STATE_RTS)?;
        let attr = ffi::QueuePairAttr {
            timeout: tries.timeout,
            retry_cnt: tries.retry_cnt,
            rnr_retry: tries.rnr_retry,
            ..attr
        };
        self.modify("ibv_modify_qp to RTS", attr, mask | MASK_RTS)
    }
}

fn parameters(qp: &QueuePair, reads: u8, private: &[u8]) -> raw::ConnParam {
    raw::ConnParam {
        private_data: private.as_ptr().cast(),
        private_data_len: u8::try_from(private.len()).unwrap_or(u8::MAX),
        responder_resources: reads,
        initiator_depth: reads,
        flow_control: 0,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: qp.number(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without the library or a device there is nothing more to see.
    #[test]
    fn a_library_that_is_there_has_every_function() {
        if let Err(Error::LoadCm(reason)) = EventChannel::new() {
            assert!(reason.contains("cannot open shared object"), "{reason}");
        }
    }
}
