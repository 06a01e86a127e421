//! Queue pairs without a connection: unreliable datagrams (UD), and EFA's scalable reliable datagrams
//! (SRD), which are sent again until they arrive, in any order. Each work request says where it goes.

use crate::CompletionQueue;
use crate::Error;
use crate::Operation;
use crate::Pd;
use crate::check;
use crate::ffi;
use crate::ffi::extended;
use crate::last;
use crate::library::EfaLibrary;

/// What a device puts before a received datagram (UD): room for a global route header, in bytes.
pub const GRH: usize = 40;

/// What a queue pair promises: `enum ibv_qp_type`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Transport {
    /// A reliable connection: all verbs.
    #[default]
    Rc,
    /// Unreliable datagrams: sends of at most a packet.
    Ud,
    /// Scalable reliable datagrams of EFA: sends of at most a packet, and RDMA as the device can.
    Srd,
}

const QPT_RC: u32 = 2;
const QPT_UD: u32 = 4;
const QPT_DRIVER: u32 = 0xff;

impl Transport {
    pub(super) fn qp_type(self) -> u32 {
        match self {
            Self::Rc => QPT_RC,
            Self::Ud => QPT_UD,
            Self::Srd => QPT_DRIVER,
        }
    }
}

/// What peers' queue pairs must know to be heard: any number, the same for all.
pub(super) const QKEY: u32 = 0x1111_1111;
/// `IBV_QP_INIT_ATTR_PD | SEND_OPS_FLAGS`.
const WITH_PD_AND_OPERATIONS: u32 = 1 | 1 << 6;
/// `IBV_QP_EX_WITH_SEND | SEND_WITH_IMM`, and then `RDMA_READ`, and then `RDMA_WRITE | RDMA_WRITE_WITH_IMM`.
const SENDS: u64 = 1 << 2 | 1 << 3;
const READS: u64 = SENDS | 1 << 4;
const WRITES: u64 = READS | 1 | 1 << 1;

/// RDMA that a queue pair can.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Rdma {
    pub(super) read: bool,
    pub(super) write: bool,
}

/// A queue pair of SRD, with as much RDMA as the device has.
pub(super) fn scalable(
    pd: &Pd,
    cap: ffi::QueuePairCap,
    cq: &CompletionQueue,
) -> Result<(*mut ffi::RawQueuePair, *mut extended::QueuePairEx, u32, Rdma), Error> {
    let library = EfaLibrary::load()?;
    let mut error = None;
    for (send_ops_flags, write, read) in
        [(WRITES, true, true), (READS, false, true), (SENDS, false, false)]
    {
        let (send_cq, recv_cq, qp_type) = (cq.0.cq, cq.0.cq, Transport::Srd.qp_type());
        let null = std::ptr::null_mut();
        let mut attr = extended::InitAttrEx {
            qp_context: null,
            send_cq,
            recv_cq,
            srq: null,
            cap,
            qp_type,
            sq_sig_all: 0,
            comp_mask: WITH_PD_AND_OPERATIONS,
            pd: pd.0.pd,
            xrcd: null,
            create_flags: 0,
            max_tso_header: 0,
            rwq_ind_tbl: null,
            rx_hash_conf: [0; 3],
            source_qpn: 0,
            send_ops_flags,
        };
        let mut own = extended::EfaInitAttr::default();
        let size = u32::try_from(size_of::<extended::EfaInitAttr>()).unwrap_or(0);
        let context = pd.0.context.0.context;
        // SAFETY: the context, the domain and the queue are there, and both structures whole.
        let qp = unsafe { (library.create_qp)(context, &raw mut attr, &raw mut own, size) };
        if !qp.is_null() {
            // SAFETY: the queue pair was just made, with operations, so that it has this form.
            let ex = unsafe { (library.to_extended)(qp) };
            return Ok((qp, ex, attr.cap.max_inline_data, Rdma { read, write }));
        }
        error = Some(last("efadv_create_qp_ex"));
    }
    Err(error.unwrap_or_else(|| last("efadv_create_qp_ex")))
}

/// Where datagrams go: an address handle, and a queue pair there.
#[derive(Debug)]
pub(super) struct To {
    pd: Pd,
    pub(super) ah: *mut ffi::AddressHandle,
    pub(super) qp_num: u32,
}

// SAFETY: the handle belongs to no thread.
unsafe impl Send for To {}
// SAFETY: a handle does not change.
unsafe impl Sync for To {}

impl To {
    pub(super) fn new(pd: &Pd, mut attr: ffi::AddressAttr, qp_num: u32) -> Result<Self, Error> {
        // SAFETY: the domain is there, and the structure whole.
        let ah = unsafe { (pd.library().create_ah)(pd.0.pd, &raw mut attr) };
        if ah.is_null() {
            Err(last("ibv_create_ah"))
        } else {
            Ok(Self { pd: pd.clone(), ah, qp_num })
        }
    }
}

impl Drop for To {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and no work request is made with it any more.
        unsafe { (self.pd.library().destroy_ah)(self.ah) };
    }
}

/// Posts a work request of SRD.
///
/// # Errors
/// `EOPNOTSUPP` of what the device cannot; others as `ibv_wr_complete` of `ibv_wr_post(3)`.
pub(super) fn post(
    qp: *mut extended::QueuePairEx,
    to: &To,
    (id, flags): (u64, u32),
    operation: Operation,
    (pieces, inline): (&[ffi::Sge], bool),
) -> Result<(), Error> {
    // SAFETY: a queue pair that was made with operations has this form, and its functions do not change.
    let functions = unsafe { std::ptr::read(qp) };
    let extended::QueuePairEx { wr_start, wr_complete, wr_set_ud_addr, .. } = functions;
    let extended::QueuePairEx { wr_set_inline_data, wr_set_sge_list, .. } = functions;
    let begin = begin(&functions, operation);
    let (Some(start), Some(complete), Some(address), Some(set_pieces), Some(begin)) =
        (wr_start, wr_complete, wr_set_ud_addr, wr_set_sge_list, begin)
    else {
        let error = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        return Err(Error::Verb { verb: "ibv_wr_post", error });
    };
    // SAFETY: the queue pair is there; other threads wait until the request is complete.
    unsafe { start(qp) };
    // SAFETY: whoever has started a request sets these two.
    unsafe { (*qp).wr_id = id };
    // SAFETY: as above.
    unsafe { (*qp).wr_flags = flags };
    match begin {
        // SAFETY: a request was started, and the queue pair has the function; here and below.
        Begin::Plain(begin) => unsafe { begin(qp) },
        // SAFETY: as above.
        Begin::Number(begin, number) => unsafe { begin(qp, number) },
        // SAFETY: as above.
        Begin::Remote(begin, at, key) => unsafe { begin(qp, key, at) },
        // SAFETY: as above.
        Begin::RemoteNumber(begin, at, key, number) => unsafe { begin(qp, key, at, number) },
    }
    match (wr_set_inline_data, pieces) {
        (Some(set), [piece]) if inline => {
            let from = std::ptr::with_exposed_provenance_mut(usize_of(piece.addr));
            // SAFETY: so many bytes of a region, which are copied now.
            unsafe { set(qp, from, usize_of(piece.length.into())) };
        }
        // SAFETY: the list is whole until it returns; the memory stays as long as the queue pair.
        _ => unsafe { set_pieces(qp, pieces.len(), pieces.as_ptr()) },
    }
    // SAFETY: the handle is there as long as its queue pair.
    unsafe { address(qp, to.ah, to.qp_num, QKEY) };
    // SAFETY: ends what was started.
    check("ibv_wr_complete", unsafe { complete(qp) })
}

/// The function that begins a work request, and what it takes.
enum Begin {
    Plain(extended::OfQueuePair),
    Number(extended::SendImm, u32),
    Remote(extended::Remote, u64, u32),
    RemoteNumber(extended::RemoteImm, u64, u32, u32),
}

/// None: the device does not have this operation.
fn begin(functions: &extended::QueuePairEx, operation: Operation) -> Option<Begin> {
    Some(match operation {
        Operation::Send => Begin::Plain(functions.wr_send?),
        Operation::SendImm(number) => Begin::Number(functions.wr_send_imm?, number.to_be()),
        Operation::Write(at, key) => Begin::Remote(functions.wr_rdma_write?, at, key),
        Operation::Read(at, key) => Begin::Remote(functions.wr_rdma_read?, at, key),
        Operation::WriteImm(at, key, number) => {
            Begin::RemoteNumber(functions.wr_rdma_write_imm?, at, key, number.to_be())
        }
        Operation::CompareSwap(..) | Operation::FetchAdd(..) => return None,
    })
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
