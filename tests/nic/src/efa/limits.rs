//! What the device offers, and where its BARs have what.

/// Registers.
pub(super) const REGISTER_BAR: u8 = 0;
/// The table of interrupts.
pub(super) const MSIX_BAR: u8 = 1;
/// The rings of send work requests (LLQ), written by programs.
pub(super) const RING_BAR: u8 = 2;
/// Doorbells, rung by programs.
pub(super) const DOORBELL_BAR: u8 = 4;

/// Queue pairs; their numbers' lower eight bits say which.
pub(super) const MAX_QP: u16 = 255;
/// Completion queues.
pub(super) const MAX_CQ: u16 = 255;
/// Entries of a completion queue: what a power of two in 16 bits can be.
pub(super) const MAX_CQ_DEPTH: u16 = 1 << 15;
/// Send work requests of a queue pair.
pub(super) const MAX_SQ_DEPTH: u32 = 1024;
/// Receive descriptors of a queue pair.
pub(super) const MAX_RQ_DEPTH: u32 = 8192;
/// Bytes of a ring of send work requests.
pub(super) const MAX_LLQ: u32 = MAX_SQ_DEPTH * 64;
/// Bytes that a work request may hold itself.
pub(super) const MAX_INLINE: u16 = 32;
/// Buffers of a send, and of a receive.
pub(super) const MAX_SGES: u16 = 2;
/// Memory regions.
pub(super) const MAX_MR: u32 = 4096;
/// Pages of a memory region.
pub(super) const MAX_MR_PAGES: u32 = 1 << 20;
/// Protection domains.
pub(super) const MAX_PD: u16 = 1024;
/// Address handles.
pub(super) const MAX_AH: u16 = 1024;
/// Contexts of programs.
pub(super) const MAX_UAR: u16 = 1024;
/// Event queues: one for each processor, as far as vectors go.
pub(super) const MAX_EQ: u16 = 8;
/// Entries of an event queue.
pub(super) const MAX_EQ_DEPTH: u16 = 256;
/// The most that an RDMA read or write moves.
pub(super) const MAX_RDMA: u32 = 64 << 20;
/// The most that a send moves.
pub(super) const MTU: u32 = 8928;
/// What the device puts before the data of a datagram, as room for a global route header.
pub(super) const GRH: usize = 40;

/// A page of doorbells for each queue pair and each completion queue.
pub(super) const DOORBELL_PAGE: u64 = 4096;
/// Where the pages of completion queues begin.
pub(super) const CQ_DOORBELLS: u64 = 256 * DOORBELL_PAGE;
/// The doorbell of receives, in the page of a queue pair; that of sends is at 0.
pub(super) const RQ_DOORBELL: u64 = 8;

/// The sizes of the BARs.
pub(super) const BAR_SIZES: [(u8, u64); 4] = [
    (REGISTER_BAR, 0x2000),
    (MSIX_BAR, 0x1000),
    (RING_BAR, 256 * MAX_LLQ as u64),
    (DOORBELL_BAR, 2 * CQ_DOORBELLS),
];
