//! Queue pairs.

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;

use crate::CompletionQueue;
use crate::Error;
use crate::Pd;
use crate::Region;
use crate::Transport;
use crate::check;
use crate::datagram;
use crate::datagram::QKEY;
use crate::datagram::Rdma;
use crate::datagram::To;
use crate::ffi;
use crate::ffi::extended::QueuePairEx;
use crate::last;

const STATE_INIT: u32 = 1;
pub(super) const STATE_RTR: u32 = 2;
pub(super) const STATE_RTS: u32 = 3;
const STATE_ERR: u32 = 6;
/// Remote write, read and atomics, of `enum ibv_access_flags`.
const QP_ACCESS: u32 = 2 | 4 | 8;
/// `IBV_QP_STATE | ACCESS_FLAGS | PKEY_INDEX | PORT`.
const TO_INIT: c_int = 1 | 1 << 3 | 1 << 4 | 1 << 5;
/// `IBV_QP_STATE | AV | PATH_MTU | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER | DEST_QPN`.
const TO_RTR: c_int = 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 17 | 1 << 15 | 1 << 20;
/// `IBV_QP_STATE | TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC`.
const TO_RTS: c_int = 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 16 | 1 << 13;
/// Of datagrams: `IBV_QP_STATE | PKEY_INDEX | PORT | QKEY`, `STATE`, and `STATE | SQ_PSN`.
const DATAGRAM_TO_INIT: c_int = 1 | 1 << 4 | 1 << 5 | 1 << 6;
const DATAGRAM_TO_RTR: c_int = 1;
const DATAGRAM_TO_RTS: c_int = 1 | 1 << 16;
const SEND_SIGNALED: u32 = 2;
const SEND_INLINE: u32 = 8;

/// How much a queue pair holds.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Work requests of the send queue.
    pub send: u32,
    /// Work requests of the receive queue.
    pub receive: u32,
    /// Pieces of each.
    pub pieces: u32,
    /// Bytes that are copied into the work request; what the device gives may differ.
    pub inline: u32,
}

/// Where the peer's queue pair is, and how to speak to it.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Own port.
    pub port: u8,
    /// Own GID's index.
    pub sgid_index: u8,
    /// The peer's GID.
    pub dgid: [u8; 16],
    /// The peer's LID, on InfiniBand.
    pub dlid: u16,
    /// Packets carry both GIDs: always with RoCE, and on InfiniBand through routers.
    pub global: bool,
    /// `ibv_global_route.traffic_class`: the DSCP times 4, and the two bits of ECN.
    pub traffic_class: u8,
    /// `ibv_ah_attr.sl`: the service level.
    pub service_level: u8,
    /// The peer's queue pair.
    pub qp_num: u32,
    /// The packet sequence numbers that the peer and this end begin with.
    pub psn: (u32, u32),
    /// `enum ibv_mtu`.
    pub mtu: u32,
    /// Reads and atomics at a time.
    pub reads: u8,
    /// Of `ibv_modify_qp(3)`: how long the peer waits before it repeats after this end was not ready.
    pub min_rnr_timer: u8,
    /// How often it is repeated then; 7 is for ever.
    pub rnr_retry: u8,
    /// 4.096 us times 2 to the power of this, until an acknowledgement is missed.
    pub timeout: u8,
    /// How often what was not acknowledged is repeated.
    pub retry_cnt: u8,
}

/// A part of a region.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The region.
    pub region: &'a Region,
    /// In bytes.
    pub offset: usize,
    /// In bytes.
    pub length: usize,
}

/// What to do with the pieces: `enum ibv_wr_opcode`. Remote memory is an address and an rkey.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// To the peer's posted receive.
    Send,
    /// The same with a number.
    SendImm(u32),
    /// To the peer's memory.
    Write(u64, u32),
    /// The same, and a number to its posted receive.
    WriteImm(u64, u32, u32),
    /// From the peer's memory.
    Read(u64, u32),
    /// Compares 8 bytes with the first number, and swaps them for the second.
    CompareSwap(u64, u32, u64, u64),
    /// Adds to 8 bytes.
    FetchAdd(u64, u32, u64),
}

/// A queue pair. Several threads may post at the same time.
#[derive(Debug)]
pub struct QueuePair {
    qp: *mut ffi::RawQueuePair,
    number: u32,
    inline: u32,
    pd: Pd,
    _cq: CompletionQueue,
    transport: Transport,
    /// Of SRD.
    extended: *mut QueuePairEx,
    rdma: Rdma,
    /// Where datagrams go.
    to: OnceLock<To>,
    /// Those of all work requests that were posted.
    regions: Mutex<Vec<Region>>,
}

// SAFETY: the queue pair belongs to no thread.
unsafe impl Send for QueuePair {}
// SAFETY: libibverbs locks each queue while somebody posts, and ibv_modify_qp(3) is a call of the kernel.
unsafe impl Sync for QueuePair {}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: ours, and used no more. Afterwards the device does not touch the regions.
        unsafe { (self.pd.library().destroy_qp)(self.qp) };
    }
}

impl QueuePair {
    /// A queue pair in the state INIT of this port, whose both queues complete to one. `pkey_index`
    /// is the partition's place in the port's table.
    ///
    /// # Errors
    /// As `ibv_create_qp(3)`, `efadv_create_qp_ex(3)` and `ibv_modify_qp(3)`.
    pub fn new(
        pd: &Pd,
        cq: &CompletionQueue,
        caps: Caps,
        port: u8,
        pkey_index: u16,
        transport: Transport,
    ) -> Result<Self, Error> {
        let cap = ffi::QueuePairCap {
            max_send_wr: caps.send,
            max_recv_wr: caps.receive,
            max_send_sge: caps.pieces,
            max_recv_sge: caps.pieces,
            max_inline_data: caps.inline,
        };
        let (qp, extended, inline, rdma) = match transport {
            Transport::Srd => datagram::scalable(pd, cap, cq)?,
            Transport::Rc | Transport::Ud => plain(pd, cap, cq, transport)?,
        };
        // SAFETY: a queue pair that was just made; its number does not change.
        let number = unsafe { (*qp).qp_num };
        let (pd, cq) = (pd.clone(), cq.clone());
        let (to, regions) = (OnceLock::new(), Mutex::new(Vec::new()));
        let made = Self { qp, number, inline, pd, _cq: cq, transport, extended, rdma, to, regions };
        let attr = ffi::QueuePairAttr {
            qp_state: STATE_INIT,
            port_num: port,
            pkey_index,
            ..Default::default()
        };
        let (attr, mask) = match transport {
            Transport::Rc => (ffi::QueuePairAttr { qp_access_flags: QP_ACCESS, ..attr }, TO_INIT),
            _ => (ffi::QueuePairAttr { qkey: QKEY, ..attr }, DATAGRAM_TO_INIT),
        };
        made.modify("ibv_modify_qp to INIT", attr, mask)?;
        Ok(made)
    }

    /// Its number on the wire.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The device's `max_inline_data` for it, in bytes.
    #[must_use]
    pub fn inline(&self) -> usize {
        usize::try_from(self.inline).unwrap_or(0)
    }

    /// Whether the device reads from peers' memory by it, and writes to theirs.
    #[must_use]
    pub fn rdma(&self) -> (bool, bool) {
        (self.rdma.read, self.rdma.write)
    }

    /// Connects it, as to RTR and then to RTS. Datagrams go to the peer from now on.
    ///
    /// # Errors
    /// As `ibv_modify_qp(3)` and `ibv_create_ah(3)`.
    pub fn connect(&self, path: &Path) -> Result<(), Error> {
        let half = |bytes: &[u8]| {
            let mut half = [0; 8];
            half.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            u64::from_ne_bytes(half)
        };
        let (first, second) = path.dgid.split_at(8);
        let ah_attr = ffi::AddressAttr {
            dgid: [half(first), half(second)],
            sgid_index: path.sgid_index,
            hop_limit: 64,
            dlid: path.dlid,
            is_global: path.global.into(),
            port_num: path.port,
            traffic_class: path.traffic_class,
            sl: path.service_level,
            ..Default::default()
        };
        if self.transport != Transport::Rc {
            return self.address(ah_attr, path);
        }
        let attr = ffi::QueuePairAttr {
            qp_state: STATE_RTR,
            path_mtu: path.mtu,
            dest_qp_num: path.qp_num,
            rq_psn: path.psn.0,
            max_dest_rd_atomic: path.reads,
            min_rnr_timer: path.min_rnr_timer,
            ah_attr,
            ..Default::default()
        };
        self.modify("ibv_modify_qp to RTR", attr, TO_RTR)?;
        let attr = ffi::QueuePairAttr {
            qp_state: STATE_RTS,
            sq_psn: path.psn.1,
            timeout: path.timeout,
            retry_cnt: path.retry_cnt,
            rnr_retry: path.rnr_retry,
            max_rd_atomic: path.reads,
            ..Default::default()
        };
        self.modify("ibv_modify_qp to RTS", attr, TO_RTS)
    }

    /// The same for datagrams, which have no connection.
    fn address(&self, ah_attr: ffi::AddressAttr, path: &Path) -> Result<(), Error> {
        let to = To::new(&self.pd, ah_attr, path.qp_num)?;
        // A queue pair is connected once.
        let _ = self.to.set(to);
        let attr = ffi::QueuePairAttr { qp_state: STATE_RTR, ..Default::default() };
        self.modify("ibv_modify_qp to RTR", attr, DATAGRAM_TO_RTR)?;
        let (qp_state, sq_psn) = (STATE_RTS, path.psn.1);
        let attr = ffi::QueuePairAttr { qp_state, sq_psn, ..Default::default() };
        self.modify("ibv_modify_qp to RTS", attr, DATAGRAM_TO_RTS)
    }

    /// Ends all its work requests with errors.
    ///
    /// # Errors
    /// As `ibv_modify_qp(3)`.
    pub fn abort(&self) -> Result<(), Error> {
        let attr = ffi::QueuePairAttr { qp_state: STATE_ERR, ..Default::default() };
        self.modify("ibv_modify_qp to ERR", attr, 1)
    }

    pub(super) fn modify(
        &self,
        verb: &'static str,
        mut attr: ffi::QueuePairAttr,
        mask: c_int,
    ) -> Result<(), Error> {
        // SAFETY: the queue pair is ours, and the structure whole.
        let result = unsafe { (self.pd.library().modify_qp)(self.qp, &raw mut attr, mask) };
        check(verb, result)
    }

    /// The entries of a work request, and how many count; their regions are kept from now on.
    ///
    /// There is always one: of a read, erdma's provider looks at the first entry, also if none counts.
    fn pieces(&self, pieces: &[Piece<'_>]) -> Result<(Vec<ffi::Sge>, c_int), Error> {
        let mut list = Vec::with_capacity(pieces.len());
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        for Piece { region, offset, length } in pieces {
            region.check(*offset, *length)?;
            let bounds = Error::Bounds { offset: *offset, length: *length, size: region.len() };
            let addr = region.address() + u64::try_from(*offset).unwrap_or(0);
            let Ok(length) = u32::try_from(*length) else { return Err(bounds) };
            list.push(ffi::Sge { addr, length, lkey: region.lkey() });
            if !regions.iter().any(|known| known.is(region)) {
                regions.push((*region).clone());
            }
        }
        let count = c_int::try_from(list.len()).unwrap_or(c_int::MAX);
        if list.is_empty() {
            list.push(ffi::Sge { addr: 0, length: 0, lkey: 0 });
        }
        Ok((list, count))
    }

    /// Posts a work request.
    ///
    /// `signaled`: it completes with an entry when it succeeds, too. `inline`: its bytes are copied
    /// now; no more than [`Self::inline`].
    ///
    /// # Errors
    /// As `ibv_post_send(3)`: `ENOMEM` when the queue is full, `EINVAL` for too many pieces, or for what
    /// datagrams cannot; `EOPNOTSUPP` for what the device cannot.
    pub fn post_send(
        &self,
        id: u64,
        operation: Operation,
        pieces: &[Piece<'_>],
        signaled: bool,
        inline: bool,
    ) -> Result<(), Error> {
        let (mut list, num_sge) = self.pieces(pieces)?;
        let mut request = ffi::SendRequest {
            wr_id: id,
            sg_list: list.as_mut_ptr(),
            num_sge,
            ..Default::default()
        };
        if signaled {
            request.send_flags |= SEND_SIGNALED;
        }
        if inline {
            request.send_flags |= SEND_INLINE;
        }
        if self.transport == Transport::Srd {
            let to = self.to.get().ok_or_else(unaddressed)?;
            let count = usize::try_from(num_sge).unwrap_or(0);
            let pieces = (list.get(..count).unwrap_or_default(), inline);
            return datagram::post(self.extended, to, (id, request.send_flags), operation, pieces);
        }
        let halves = |n: u64| {
            let [a, b, c, d, e, f, g, h] = n.to_ne_bytes();
            [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
        };
        match operation {
            Operation::Send => request.opcode = 2,
            Operation::SendImm(number) => {
                (request.opcode, request.imm_data) = (3, number.to_be());
            }
            Operation::Write(address, rkey) => {
                (request.opcode, request.remote_addr) = (0, address);
                request.compare_add = [rkey, 0];
            }
            Operation::WriteImm(address, rkey, number) => {
                (request.opcode, request.remote_addr) = (1, address);
                (request.compare_add, request.imm_data) = ([rkey, 0], number.to_be());
            }
            Operation::Read(address, rkey) => {
                (request.opcode, request.remote_addr) = (4, address);
                request.compare_add = [rkey, 0];
            }
            Operation::CompareSwap(address, rkey, compare, swap) => {
                (request.opcode, request.remote_addr) = (5, address);
                (request.compare_add, request.swap) = (halves(compare), swap);
                request.atomic_rkey = rkey;
            }
            Operation::FetchAdd(address, rkey, add) => {
                (request.opcode, request.remote_addr) = (6, address);
                (request.compare_add, request.atomic_rkey) = (halves(add), rkey);
            }
        }
        if self.transport == Transport::Ud {
            let to = self.to.get().ok_or_else(unaddressed)?;
            request.remote_addr = u64::try_from(to.ah.expose_provenance()).unwrap_or(0);
            request.compare_add = [to.qp_num, QKEY];
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: a queue pair has a context, which is open while it is there.
        let context = unsafe { (*self.qp).context };
        // SAFETY: as above; its table of functions does not change.
        let post = unsafe { &(*context).post_send };
        // SAFETY: the request and its list are whole until it returns; the memory of its pieces
        // stays for as long as the queue pair.
        let result = unsafe { post(self.qp, &raw mut request, &raw mut bad) };
        check("ibv_post_send", result)
    }

    /// Posts a receive of these pieces.
    ///
    /// # Errors
    /// As `ibv_post_recv(3)`.
    pub fn post_receive(&self, id: u64, pieces: &[Piece<'_>]) -> Result<(), Error> {
        let (mut list, num_sge) = self.pieces(pieces)?;
        let mut request = ffi::ReceiveRequest {
            wr_id: id,
            sg_list: list.as_mut_ptr(),
            num_sge,
            ..Default::default()
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: a queue pair has a context, which is open while it is there.
        let context = unsafe { (*self.qp).context };
        // SAFETY: as above; its table of functions does not change.
        let post = unsafe { &(*context).post_recv };
        // SAFETY: as for sending.
        let result = unsafe { post(self.qp, &raw mut request, &raw mut bad) };
        check("ibv_post_recv", result)
    }
}

/// A datagram before there is somebody to send it to.
fn unaddressed() -> Error {
    Error::Verb {
        verb: "ibv_post_send",
        error: std::io::Error::from_raw_os_error(libc::EDESTADDRREQ),
    }
}

/// A queue pair of the kinds that all devices have.
fn plain(
    pd: &Pd,
    cap: ffi::QueuePairCap,
    cq: &CompletionQueue,
    transport: Transport,
) -> Result<(*mut ffi::RawQueuePair, *mut QueuePairEx, u32, Rdma), Error> {
    let (send_cq, recv_cq, qp_type) = (cq.0.cq, cq.0.cq, transport.qp_type());
    let mut attr = ffi::QueuePairInitAttr { send_cq, recv_cq, cap, qp_type, ..Default::default() };
    // SAFETY: the domain and the queue are there, and the structure ours to write.
    let qp = unsafe { (pd.library().create_qp)(pd.0.pd, &raw mut attr) };
    if qp.is_null() {
        return Err(last("ibv_create_qp"));
    }
    let has = transport == Transport::Rc;
    let rdma = Rdma { read: has, write: has };
    Ok((qp, std::ptr::null_mut(), attr.cap.max_inline_data, rdma))
}
