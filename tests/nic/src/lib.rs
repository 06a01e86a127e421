#![forbid(unsafe_code)]
//! RDMA NICs in user space: PCI functions that a virtual machine plugs in over
//! [vfio-user](https://www.qemu.org/docs/master/system/devices/vfio-user.html), and that the kernel's
//! own, unmodified drivers take for hardware.
//!
//! QEMU 10.1 and newer has the other end (`-device vfio-user-pci`). Under TCG each store of a
//! program to a mapped doorbell becomes a message to the model, so programs ring doorbells by mmap
//! as they do on hardware, and no KVM is needed.
//!
//! A model has two parts: a table of the commands that its driver gives it (`efa::admin`), and a data
//! engine that reads work requests, moves bytes between guest memory and the [`Wire`], and writes
//! completions. What all models share is here:
//!
//! | module | is |
//! |---|---|
//! | [`bus`] | what a function reaches of its machine: memory (DMA) and interrupts (MSI-X) |
//! | [`pci`] | the configuration space that the function shows |
//! | [`serve`] | the vfio-user server: one socket, one function |
//! | [`wire`] | the network between functions, with loss, delay, duplicates and reordering on demand |
//! | [`efa`] | the model of an Elastic Fabric Adapter |
//! | [`erdma`] | the model of an Elastic RDMA Adapter |
//! | [`mlx5`] | the model of a ConnectX with an InfiniBand port |
//!
//! ```no_run
//! use verbgate_nic::efa::Efa;
//! use verbgate_nic::serve::Served;
//! use verbgate_nic::wire::Wire;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wire = Wire::new(1);
//! let left = Served::listen("/tmp/efa0.sock".as_ref(), Efa::new(&wire, 1))?;
//! let right = Served::listen("/tmp/efa1.sock".as_ref(), Efa::new(&wire, 2))?;
//! // qemu-system-x86_64 -object memory-backend-memfd,id=mem,size=1G,share=on \
//! //     -machine q35,memory-backend=mem \
//! //     -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/tmp/efa0.sock"}}' ...
//! # drop((left, right));
//! # Ok(())
//! # }
//! ```
//!
//! A driver in user space (`vfio_user::Client`) tests a model in milliseconds without a machine: see
//! `tests/`.
//!
//! What the models promise: the layout of registers, commands, work requests and completions is that
//! of the driver's headers; what a command or a work request does is what the verbs say of it; errors
//! come with the status that the driver and its library know. What they do not: timing, packets below
//! the size of a message, and whatever a driver never asks for.

pub mod bus;
pub mod efa;
pub mod erdma;
mod far;
mod layout;
mod message;
pub mod mlx5;
pub mod pci;
mod region;
mod ring;
pub mod serve;
pub mod wire;

pub use bus::Bus;
pub use wire::Wire;

use std::sync::Arc;

/// A PCI function of a model.
///
/// All calls come from the thread that serves the function's socket; calls by the wire come from
/// others, so models lock what they share.
pub trait Function: Send + Sync {
    /// What the function's configuration space says.
    fn identity(&self) -> &pci::Identity;

    /// What the function reaches of its machine.
    fn bus(&self) -> &Arc<Bus>;

    /// A load from a BAR. What nothing is behind reads as zero.
    fn load(&self, bar: u8, offset: u64, data: &mut [u8]);

    /// A store to a BAR. What nothing is behind takes it and forgets it.
    fn store(&self, bar: u8, offset: u64, data: &[u8]);

    /// The machine resets the function: all its objects are gone.
    fn reset(&self);
}

/// Asynchronous events of a device, numbered as `efa_admin_aenq_group`. A model whose driver does not know
/// an event ignores it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum Event {
    /// The device is broken.
    FatalError = 1,
    /// Something is wrong.
    Warning = 2,
    /// Something changed.
    Notification = 3,
    /// The device is alive.
    KeepAlive = 4,
}

/// How many objects a device holds: nothing may be left of a program that ended. Of what the driver keeps
/// to itself there is none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Census {
    /// Contexts of programs that have doorbells.
    pub uars: usize,
    /// Protection domains.
    pub pds: usize,
    /// Address handles.
    pub ahs: usize,
    /// Memory regions.
    pub mrs: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Queue pairs.
    pub qps: usize,
}

/// What has reached a device.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Commands on the admin queue.
    pub commands: u64,
    /// Doorbells rung by programs.
    pub doorbells: u64,
    /// Messages that were sent again.
    pub repeated: u64,
    /// Messages that arrived again and were not executed again.
    pub ignored: u64,
}

/// A function that can be watched and broken.
pub trait Model: Function {
    /// What the device holds.
    fn census(&self) -> Census;

    /// What has reached the device.
    fn counters(&self) -> Counters;

    /// Stops taking commands, or takes those that have come since.
    fn stall(&self, stall: bool);

    /// Tells the driver of an event.
    fn raise(&self, event: Event);
}
