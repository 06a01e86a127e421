//! What this device offers.

/// The BAR of the initialization segment and of the pages of doorbells; and that of MSI-X.
pub(super) const FUNCTION_BAR: u8 = 0;
pub(super) const FUNCTION_BAR_SIZE: u64 = 8 << 20;
pub(super) const MSIX_BAR: u8 = 2;
pub(super) const MSIX_BAR_SIZE: u64 = 0x1000;
pub(super) const VECTORS: u16 = 16;

/// Pages of doorbells: those before the first have the initialization segment.
pub(super) const PAGE: u64 = 4096;
pub(super) const FIRST_UAR: u32 = 16;
pub(super) const UARS: u32 = 1936;
/// After the last page of doorbells: doorbells of queues of virtio's, of which there are none; where what
/// is stored adds to memory on the device; and that memory, and how much.
pub(super) const VIRTIO_DOORBELLS: u64 = 1952 * PAGE;
pub(super) const LOG_VIRTIO_PAGES: u64 = 5;
pub(super) const INCREMENTS: u64 = 1984 * PAGE;
pub(super) const DEVICE_MEMORY: u64 = 2016 * PAGE;
pub(super) const DEVICE_MEMORY_SIZE: u64 = 32 * PAGE;

/// Entries of the command queue, and the size of one, as powers of two.
pub(super) const LOG_COMMANDS: u32 = 5;
pub(super) const LOG_ENTRY: u32 = 6;
/// The longest command and the longest answer: a list of a million pages.
pub(super) const LONGEST_COMMAND: usize = 8 << 20;

/// Pages that the device wants before it begins, and before it works. A device of silicon keeps its objects
/// there; this one keeps the pages, and gives them back.
pub(super) const BOOT_PAGES: u64 = 4;
pub(super) const INIT_PAGES: u64 = 16;

/// Powers of two.
pub(super) const LOG_QP: u64 = 17;
pub(super) const LOG_QP_SIZE: u64 = 15;
pub(super) const LOG_CQ: u64 = 16;
pub(super) const LOG_CQ_SIZE: u64 = 22;
pub(super) const LOG_SRQ: u64 = 14;
pub(super) const LOG_SRQ_SIZE: u64 = 15;
pub(super) const LOG_MKEY: u64 = 20;
pub(super) const LOG_PD: u64 = 16;
pub(super) const LOG_EQ: u64 = 4;
pub(super) const LOG_EQ_SIZE: u64 = 16;
pub(super) const LOG_MESSAGE: u64 = 30;
pub(super) const LOG_READS: u64 = 4;
/// The size of a register for doorbells with a work request in them.
pub(super) const LOG_BLUE_FLAME: u64 = 9;

/// How many rates packets may be paced with; the first is none.
pub(super) const RATES: u32 = 128;

/// Sets of counters for queue pairs.
pub(super) const COUNTER_SETS: u32 = 255;

/// How many event queues.
pub(super) const EQS: u64 = 16;
/// The largest send, and the largest receive, in bytes of their descriptions.
pub(super) const SEND_WQE: u64 = 1024;
pub(super) const RECEIVE_WQE: u64 = 512;
/// The clock counts nanoseconds.
pub(super) const KILOHERTZ: u64 = 1_000_000;

/// Tables of rules for packets, rules in one, levels of tables, counters, and changes of headers.
pub(super) const LOG_TABLES: u64 = 10;
pub(super) const LOG_TABLE_SIZE: u64 = 16;
pub(super) const TABLE_LEVELS: u64 = 255;
pub(super) const LOG_FLOW_COUNTERS: u64 = 10;
pub(super) const LOG_HEADERS: u64 = 8;
pub(super) const HEADER_ACTIONS: u64 = 16;
