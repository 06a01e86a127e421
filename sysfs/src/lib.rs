#![forbid(unsafe_code)]
//! RDMA devices in sysfs, as a sandbox sees them.
//!
//! [`record`] reads the host once into a [`Snapshot`], [`select`] reduces it to what the sandbox
//! was granted, [`tree`] turns that into directories, files and links that are path-identical to
//! the host, and [`serve`] mounts it or [`materialise`] writes it as a plain tree. [`discover`] reads the
//! host's devices, ports and GIDs alone, [`collect`] those that user space can open, and [`hardware`]
//! what the devices are made of.

pub mod collect;
mod config;
pub mod contents;
pub mod diff;
pub mod discover;
pub mod gids;
pub mod hardware;
pub mod identity;
pub mod materialise;
mod names;
pub mod record;
pub mod select;
pub mod serve;
pub mod snapshot;
pub mod tree;
pub mod value;

pub use collect::DevNumber;
pub use collect::Error;
pub use collect::RdmaDevice;
pub use gids::AllGids;
pub use gids::GidView;
pub use identity::Identity;
pub use identity::Replaced;
pub use names::Natural;
pub use names::natural;
pub use record::KEPT;
pub use serve::JUDGED;
pub use serve::PLAIN;
pub use snapshot::Snapshot;
pub use value::Value;
