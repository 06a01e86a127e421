#![forbid(unsafe_code)]
//! The lab: virtual machines with a real `ib_uverbs` device, on machines without RDMA hardware.
//!
//! A lab is a pair of a Debian kernel and a Debian userland. The kernel boots under QEMU without
//! KVM (or is User-Mode Linux, an ordinary process), makes a Soft-RoCE device on one end of a veth
//! pair, runs one command, and powers off.
//!
//! ```no_run
//! use verbgate_lab::{Kernel, Lab, Progress, RunSpec, Userland};
//!
//! # fn main() -> anyhow::Result<()> {
//! let lab = Lab::prepare(
//!     Kernel::find("6.12")?,
//!     Userland::find("trixie")?,
//!     &Progress::stderr(),
//! )?;
//! let spec = RunSpec::script("ibv_devinfo -d rxe0").share("target/guest");
//! let result = lab.run(&spec, &mut std::io::stdout())?;
//! assert_eq!(result.status, 0);
//! # Ok(())
//! # }
//! ```
//!
//! Contracts that hold for every run:
//! - The images are never written: each run starts from the same state.
//! - A run ends by itself, by its limit, or with the process that asked for it; no QEMU
//!   outlives its caller.
//! - Inside, `/lab` is the shared folder (if any), `rxe0` is up with the address `10.99.0.1`, and
//!   its RoCE v2 GID is in the table before the command starts.

mod apt;
mod attend;
mod cache;
mod cluster;
mod cpio;
mod diary;
mod doctor;
mod driver;
mod elapsed;
mod engines;
mod guest;
mod host;
pub mod image;
mod kernel;
mod lab;
mod machine;
mod modules;
mod nic;
mod pace;
pub mod package;
mod progress;
mod qemu;
mod recipe;
mod source;
mod tool;
mod uml;
mod userland;

pub use attend::Attended;
pub use attend::MachineDied;
pub use attend::attend;
pub use cache::clean;
pub use cache::root as cache_root;
pub use cluster::Cluster;
pub use doctor::Finding;
pub use doctor::Verdict;
pub use doctor::examine;
pub use engines::ENGINE_SUITES;
pub use engines::Engines;
pub use engines::Unpacked;
pub use guest::RunSpec;
pub use host::INSTALL;
pub use host::may_install;
pub use host::permit_installing;
pub use host::require_program;
pub use host::require_programs;
pub use lab::Lab;
pub use lab::RunResult;
pub use nic::Network;
pub use nic::Nic;
pub use pace::Limit;
pub use progress::Progress;
pub use recipe::Arch;
pub use recipe::KERNELS;
pub use recipe::Kernel;
pub use recipe::USERLANDS;
pub use recipe::Userland;
pub use recipe::Vmm;
pub use source::cached_source;
pub use source::fetch_source;
