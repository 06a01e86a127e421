//! Outcome: what a request brought about, and what a guest is told of that.

use verbgate_abi::Errno;
use verbgate_sys::GuestFd;

/// What a request brought about.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What the guest's call returns, or `-errno`.
    pub result: i64,
    /// The descriptor that it made, by the guest's number.
    pub fd: Option<GuestFd>,
    /// For each written attribute: its position, and `flags` and `data` as they are now.
    pub entries: Vec<(usize, u16, u64)>,
    /// Outputs for the guest, and where they go.
    pub outputs: Vec<(u64, Vec<u8>)>,
}

/// The errno of a negative result.
#[must_use]
pub fn errno(result: i64) -> Errno {
    Errno(i32::try_from(-result).unwrap_or(libc::EIO))
}
