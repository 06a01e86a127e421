#![forbid(unsafe_code)]
//! RDMA devices for Kubernetes' Dynamic Resource Allocation (DRA).
//!
//! The driver does two things on a node. It publishes the node's RDMA devices, with their attributes, as
//! a ResourceSlice (`slice`, `cluster`), from which the scheduler chooses devices for the claims of pods. And it
//! tells the kubelet which CDI devices a claim stands for (`claims`, `serve`), when a pod with the claim starts. The
//! CDI devices are those of `verbgate cdi`: wishes for RDMA, which the runtime `verbgate oci` grants, and which end a
//! container under any other runtime with an error.
//!
//! Of a claim, a file is kept as long as the claim is prepared: a CDI device by which the runtime knows the claim, and the
//! tenant that the claim's class names (`parameters`, `verbgate_oci::claims`).
//!
//! ```
//! # let root = tempfile::tempdir()?;
//! # verbgate_sysfs_fixtures::Fixture::named("hgx").unwrap().write(root.path())?;
//! for device in verbgate_dra::devices(root.path())? {
//!     println!("{}", device.name);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod claims;
mod cluster;
mod devices;
mod driver;
mod messages;
mod parameters;
mod serve;
mod slice;

pub use devices::Device;
pub use devices::DevicesError;
pub use devices::devices;
pub use driver::Options;
pub use driver::run;
pub use driver::withdraw;

/// The driver's name, by which DeviceClasses choose devices: `device.driver == "verbgate.org"`.
pub const DRIVER: &str = "verbgate.org";
