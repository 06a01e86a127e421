//! Verbs for Verbgate's own RDMA programs, by the machine's libibverbs, loaded at run time.
//!
//! Nothing here serves guests. Only the used functions are declared: a crate that binds all of
//! libibverbs needs cmake and libclang to build Verbgate, for twenty functions.
//!
//! Objects keep alive the objects that they stand on, and a queue pair keeps the memory of all its
//! work requests, so no memory that a device writes to is freed early. That memory is shared with
//! the device and the peer, so its contents are only ever copied, never referred to.
//!
//! All verbs may be called by several threads at the same time (`ibv_create_qp(3)`: libibverbs locks what
//! threads share), so that objects can be passed to threads and used by several.
//!
//! ```no_run
//! use verbgate_verbs::Context;
//!
//! let device = Context::open("mlx5_0")?;
//! let port = device.port(1)?;
//! println!("state {}, {} GIDs", port.state, port.gids);
//! # Ok::<(), verbgate_verbs::Error>(())
//! ```

pub mod cm;
mod completions;
mod datagram;
pub mod ethtool;
pub mod ffi;
mod library;
mod memory;
mod queue;

pub use completions::CompletionQueue;
pub use completions::wait;
pub use datagram::GRH;
pub use datagram::Transport;
pub use memory::Access;
pub use memory::Memory;
pub use memory::Region;
pub use queue::Caps;
pub use queue::Operation;
pub use queue::Path;
pub use queue::Piece;
pub use queue::QueuePair;

pub use ffi::Completion;

use std::ffi::CStr;
use std::ffi::c_int;
use std::io;
use std::sync::Arc;

use library::Library;

/// `IBV_PORT_ACTIVE`.
pub const PORT_ACTIVE: u32 = 4;

/// What can fail.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A static program cannot load a library.
    #[error(
        "this verbgate is linked statically and cannot load libibverbs; use a verbgate that is \
         linked dynamically"
    )]
    Static,
    /// The library is not there, or too old.
    #[error("cannot load libibverbs: {0}; install the package libibverbs1 (rdma-core)")]
    Load(String),
    /// The library of connections is not there, or too old.
    #[error("cannot load librdmacm: {0}; install the package librdmacm1 (rdma-core)")]
    LoadCm(String),
    /// The library of a device is not there, or too old.
    #[error("cannot load {library}: {reason}; install the package ibverbs-providers (rdma-core)")]
    LoadProvider {
        /// The file.
        library: &'static str,
        /// Why.
        reason: String,
    },
    /// No such device is visible here.
    #[error("no RDMA device is called {name:?}; this host has {there}")]
    NoDevice {
        /// What was asked for.
        name: String,
        /// What there is.
        there: String,
    },
    /// A verb failed.
    #[error("{verb} failed: {error}")]
    Verb {
        /// The function.
        verb: &'static str,
        /// Its errno.
        error: io::Error,
    },
    /// A piece that lies outside of its memory, or a work request of too many pieces.
    #[error("{length} bytes at {offset} are outside of the memory of {size} bytes")]
    Bounds {
        /// From the beginning of the memory, in bytes.
        offset: usize,
        /// In bytes.
        length: usize,
        /// Of the memory, in bytes.
        size: usize,
    },
}

impl Error {
    /// The errno of a verb that failed.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Verb { error, .. } => error.raw_os_error(),
            _ => None,
        }
    }
}

/// What a verb that sets errno failed with.
fn last(verb: &'static str) -> Error {
    Error::Verb { verb, error: io::Error::last_os_error() }
}

/// What a verb that returns an errno says.
fn check(verb: &'static str, result: c_int) -> Result<(), Error> {
    if result == 0 {
        return Ok(());
    }
    // Some providers return -1 and set errno.
    let error =
        if result > 0 { io::Error::from_raw_os_error(result) } else { io::Error::last_os_error() };
    Err(Error::Verb { verb, error })
}

/// What a device can, of `ibv_query_device(3)`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Work requests of a queue.
    pub max_qp_wr: u32,
    /// Pieces of a work request.
    pub max_sge: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Reads and atomics that a queue pair may have outstanding.
    pub max_qp_rd_atom: u32,
    /// Whether it has atomics.
    pub atomics: bool,
}

/// The state of a port, of `ibv_query_port(3)`.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// `enum ibv_port_state`.
    pub state: u32,
    /// `enum ibv_mtu`: 1 for 256 bytes to 5 for 4096.
    pub active_mtu: u32,
    /// The longest message, in bytes.
    pub max_message: u32,
    /// How many GIDs it has room for.
    pub gids: u32,
    /// On InfiniBand.
    pub lid: u16,
}

/// An open device.
#[derive(Clone, Debug)]
pub struct Context(Arc<ContextInner>);

#[derive(Debug)]
struct ContextInner {
    library: Library,
    context: *mut ffi::RawContext,
}

// SAFETY: the pointer is of an open device, whose functions any thread may call.
unsafe impl Send for ContextInner {}
// SAFETY: libibverbs locks what threads share.
unsafe impl Sync for ContextInner {}

impl Drop for ContextInner {
    fn drop(&mut self) {
        // SAFETY: open, and all that stands on it holds this structure, so it is gone.
        unsafe { (self.library.close_device)(self.context) };
    }
}

impl Context {
    /// Opens the device of this name, as `ibv_open_device(3)`.
    ///
    /// # Errors
    /// When the library or the device is not there, or open(2) of its node fails.
    pub fn open(name: &str) -> Result<Self, Error> {
        let library = Library::load()?;
        let mut count: c_int = 0;
        // SAFETY: the count is ours to write.
        let list = unsafe { (library.get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(last("ibv_get_device_list"));
        }
        let mut there = Vec::new();
        let mut opened = None;
        for index in 0..usize::try_from(count).unwrap_or(0) {
            let entry = list.wrapping_add(index);
            // SAFETY: the list has this many entries.
            let device = unsafe { *entry };
            // SAFETY: a device of a list that has not been freed.
            let text = unsafe { (library.get_device_name)(device) };
            // SAFETY: a C string inside of the device.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
            if text == name {
                // SAFETY: as above.
                let context = unsafe { (library.open_device)(device) };
                opened = Some(if context.is_null() {
                    Err(last("ibv_open_device"))
                } else {
                    Ok(context)
                });
                break;
            }
            there.push(text);
        }
        // SAFETY: the list is not used any more; a device that is open stays.
        unsafe { (library.free_device_list)(list) };
        match opened {
            Some(context) => Ok(Self(Arc::new(ContextInner { library, context: context? }))),
            None => {
                let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
                Err(Error::NoDevice { name: name.to_owned(), there })
            }
        }
    }

    fn library(&self) -> &Library {
        &self.0.library
    }

    /// # Errors
    /// As `ibv_query_device(3)`.
    pub fn limits(&self) -> Result<Limits, Error> {
        let mut attr = ffi::DeviceAttr::default();
        // SAFETY: the context is open, and the structure ours to write.
        let result = unsafe { (self.library().query_device)(self.0.context, &raw mut attr) };
        check("ibv_query_device", result)?;
        let number = |n: c_int| u32::try_from(n).unwrap_or(0);
        Ok(Limits {
            max_qp_wr: number(attr.max_qp_wr),
            max_sge: number(attr.max_sge),
            max_cqe: number(attr.max_cqe),
            max_qp_rd_atom: number(attr.max_qp_rd_atom),
            atomics: attr.atomic_cap != 0,
        })
    }

    /// # Errors
    /// As `ibv_query_port(3)`.
    pub fn port(&self, number: u8) -> Result<Port, Error> {
        let mut attr = ffi::PortAttr::default();
        // SAFETY: the context is open, and the structure ours to write.
        let result = unsafe { (self.library().query_port)(self.0.context, number, &raw mut attr) };
        check("ibv_query_port", result)?;
        let ffi::PortAttr { state, active_mtu, gid_tbl_len, max_msg_sz, lid, .. } = attr;
        let gids = u32::try_from(gid_tbl_len).unwrap_or(0);
        Ok(Port { state, active_mtu, max_message: max_msg_sz, gids, lid })
    }

    /// The GID at an index; all zeroes is none.
    ///
    /// # Errors
    /// As `ibv_query_gid(3)`.
    pub fn gid(&self, port: u8, index: u32) -> Result<[u8; 16], Error> {
        let mut gid = [0_u64; 2];
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: the context is open, and the GID ours to write.
        let result =
            unsafe { (self.library().query_gid)(self.0.context, port, index, &raw mut gid) };
        check("ibv_query_gid", result)?;
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(gid.iter().flat_map(|half| half.to_ne_bytes())) {
            *to = from;
        }
        Ok(bytes)
    }
}

/// A protection domain.
#[derive(Clone, Debug)]
pub struct Pd(Arc<PdInner>);

#[derive(Debug)]
struct PdInner {
    context: Context,
    pd: *mut ffi::ProtectionDomain,
}

impl Pd {
    /// # Errors
    /// As `ibv_alloc_pd(3)`.
    pub fn new(context: &Context) -> Result<Self, Error> {
        // SAFETY: the context is open.
        let pd = unsafe { (context.library().alloc_pd)(context.0.context) };
        if pd.is_null() {
            return Err(last("ibv_alloc_pd"));
        }
        Ok(Self(Arc::new(PdInner { context: context.clone(), pd })))
    }

    fn library(&self) -> &Library {
        self.0.context.library()
    }
}

// SAFETY: the domain belongs to no thread, and its address is never written to.
unsafe impl Send for PdInner {}
// SAFETY: libibverbs locks what threads share.
unsafe impl Sync for PdInner {}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: what stands on it holds this structure, so it is gone.
        unsafe { (self.context.library().dealloc_pd)(self.pd) };
    }
}
