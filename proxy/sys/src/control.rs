//! Words at the start of a frame's read-only half, by which a stub is told what to do.

/// Offset of the [`AfterIoctl`](crate::arch::AfterIoctl) word ([`set_after`](crate::stub::set_after)).
pub const AFTER: usize = 0;
/// Offset of the number of vectors (4 bytes) by which outputs are written.
pub const VECTOR_COUNT: usize = 4;
/// Offset of the place in the read-write half's file that outputs are copied from (8 bytes).
pub const VECTOR_SOURCE: usize = 8;
/// Offset of the number that names the owner of this address space (8 bytes). It cannot be
/// guessed ([`process::unguessable`](crate::process::unguessable)), and only the owner's
/// memory holds it: memory that has no stub yet can hold something else there, because the
/// filter does not see where the kernel places what is mapped without an address.
pub const OWNER: usize = 16;
/// Offset of what mmap(2) takes besides the descriptor: address, length, protection, flags and
/// offset, 8 bytes each ([`write_mapping`](crate::stub::write_mapping)).
pub const MAPPING: usize = 24;
/// Offset of the message that carries a descriptor to the supervisor.
pub const MESSAGE: usize = 64;
/// Offset of the processors that a stub goes to, as sched_setaffinity(2) takes them.
pub const PROCESSORS: usize = 512;
/// Bytes for them: 2,048 processors.
pub const PROCESSORS_LEN: u32 = 256;
/// Offset of how long a parked stub waits for an order: `struct timespec`. Then it traps, or ends where no supervisor is
/// left.
pub const PATIENCE: usize = 1008;
/// Offset of the vectors: `struct iovec` each.
pub const VECTORS: usize = 1024;
/// Where payloads may begin.
pub const END: usize = 4096;
/// Vectors that there is room for.
pub const MAX_VECTORS: usize = (END - VECTORS) / 16;
