#![forbid(unsafe_code)]
//! The way of an RDMA request from a sandboxed program to the host's device.
//!
//! ```text
//! guest thread          supervisor                                        kernel
//! ioctl(uverbs) ─trap─▶ fetch     one copy of header, attributes, inputs
//!                       decode    bytes + ABI table -> Request
//!                       policy    Request -> allowed, or the errno of its refusal
//!                       translate descriptors into the stub's numbers
//!                       frame     the request in memory that the guest cannot change
//!                       execute ── stub thread, in the guest's own process ──▶ ioctl
//!                       commit    new descriptors and objects
//! returns ◀──answer──── reply     write-back and result
//! ```
//!
//! Each stage is a module of that name and sees only the types of the stage before. [`way`] puts
//! the stages together over an [`executor`]: a stub, the calling process, or a script. State that
//! outlives a request is in [`session`] and [`books`]; [`supervisor`] receives the traps.

mod account;
pub mod books;
mod calls;
mod claim;
mod cm;
pub mod commit;
pub mod connections;
mod counted;
mod crew;
pub mod decode;
pub mod device;
pub mod execute;
pub mod executor;
pub mod fetch;
mod finish;
pub mod flight;
pub mod frame;
pub mod gids;
mod held;
pub mod inventory;
pub mod ledger;
mod look_after;
mod memory;
mod narrowed;
mod netlink;
pub mod observe;
pub mod open;
pub mod outcome;
mod outside;
pub mod pace;
mod planting;
pub mod policy;
pub mod quiet;
pub mod quota;
pub mod reply;
mod request;
mod serve;
pub mod session;
pub mod supervisor;
mod task;
mod tokens;
mod tracer;
pub mod translate;
pub mod vet;
pub mod way;
mod whose;
mod worker;

pub use connections::Register;
pub use counted::Counted;
pub use device::Device;
pub use device::DeviceView;
pub use device::Watched;
pub use gids::GidView;
pub use ledger::Ledger;
pub use memory::Memory;
pub use netlink::kernel::index_of;
pub use supervisor::Config;
pub use supervisor::Siblings;
pub use supervisor::Supervisor;
