//! What this device offers.

/// Its registers and doorbells, and what MSI-X needs. The driver wants these two BARs and no other.
pub(super) const FUNCTION_BAR: u8 = 0;
pub(super) const MSIX_BAR: u8 = 2;
pub(super) const FUNCTION_BAR_SIZE: u64 = 4 << 20;
pub(super) const MSIX_BAR_SIZE: u64 = 0x2000;
pub(super) const VECTORS: u16 = 32;

/// A page of doorbells.
pub(super) const PAGE: u64 = 4096;
/// Pages of doorbells that all share: `ERDMA_BAR_SQDB_SPACE_OFFSET` and the two after it.
pub(super) const SHARED_SEND: u64 = 1;
pub(super) const SHARED_RECEIVE: u64 = SHARED_SEND + 96;
pub(super) const SHARED_COMPLETION: u64 = SHARED_RECEIVE + 24;
/// The first page of those that contexts get for themselves, three each.
pub(super) const OWN_PAGES: u64 = 256;
pub(super) const MAX_CONTEXTS: u16 = 256;

/// Powers of two.
pub(super) const MAX_CQE_SHIFT: u64 = 17;
pub(super) const MAX_RECEIVE_SHIFT: u64 = 13;
pub(super) const MAX_MR_SHIFT: u64 = 31;
pub(super) const MAX_GID_SHIFT: u64 = 5;
pub(super) const MAX_AH_SHIFT: u64 = 10;
/// Blocks of 1024 queue pairs; of regions and completion queues there are twice as many.
pub(super) const QP_BLOCKS: u64 = 1;
pub(super) const MAX_QP: u32 = 1024;
pub(super) const MAX_CQ: u32 = 2 * MAX_QP;
pub(super) const MAX_MR: u32 = 2 * MAX_QP;
pub(super) const MAX_EQ: u8 = 31;
/// The key by which the kernel's own queues name memory at its bus address.
pub(super) const PHYSICAL_KEY: u32 = 0x7fff_ff00;
/// The most that a ring of a queue pair may hold.
pub(super) const MAX_RING_SHIFT: u32 = 15;
/// The most in a message.
pub(super) const MAX_MESSAGE: u32 = 1 << 31;
/// The most in a datagram: the largest packet of RoCE.
pub(super) const MAX_DATAGRAM: usize = 4096;
/// Pages of the largest region, of the smallest size.
pub(super) const MAX_MR_PAGES: u64 = (1 << (MAX_MR_SHIFT - 12)) + 1;
