#![forbid(unsafe_code)]
//! What a sandbox sees of RDMA devices in sysfs.
//!
//! Stages as the architecture names them; today there is the first, [`collect`], as far as
//! `verbgate run` needs it: which RDMA devices the host has, and by which numbers.

pub mod collect;
pub mod gids;

pub use collect::DevNumber;
pub use collect::Error;
pub use collect::Port;
pub use collect::RdmaDevice;
pub use gids::AllGids;
pub use gids::GidView;
