//! The vfio-user server of a function: one socket, one machine at a time.

use std::fs::File;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;

use vfio_bindings::bindings::vfio::VFIO_IRQ_INFO_EVENTFD;
use vfio_bindings::bindings::vfio::VFIO_PCI_CONFIG_REGION_INDEX;
use vfio_bindings::bindings::vfio::VFIO_PCI_MSIX_IRQ_INDEX;
use vfio_bindings::bindings::vfio::VFIO_PCI_NUM_IRQS;
use vfio_bindings::bindings::vfio::VFIO_PCI_NUM_REGIONS;
use vfio_bindings::bindings::vfio::VFIO_REGION_INFO_FLAG_READ;
use vfio_bindings::bindings::vfio::VFIO_REGION_INFO_FLAG_WRITE;
use vfio_bindings::bindings::vfio::vfio_region_info;
use vfio_user::DmaMapFlags;
use vfio_user::DmaUnmapFlags;
use vfio_user::IrqInfo;
use vfio_user::Server;
use vfio_user::ServerBackend;
use vfio_user::ServerRegion;

use crate::Function;
use crate::pci::CONFIG_SIZE;
use crate::pci::ConfigSpace;
use crate::pci::Identity;

/// Why a function cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket cannot be made.
    #[error("cannot listen on {path}")]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: vfio_user::Error,
    },
    /// The thread cannot be made.
    #[error("cannot start a thread for the function on {path}")]
    Thread {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A function that machines can plug in by its socket. While this lives, a machine that left can come
/// back, and another can take its place.
#[derive(Debug)]
pub struct Served {
    path: PathBuf,
    ended: Arc<AtomicBool>,
}

impl Served {
    /// Serves a function on a socket of this path, by a thread of its own.
    ///
    /// # Errors
    /// The socket or the thread cannot be made; a path that is there already is an error.
    pub fn listen(path: &Path, function: Arc<dyn Function>) -> Result<Self, ServeError> {
        let identity = function.identity().clone();
        let server = Server::new(path, true, interrupts(&identity), regions(&identity));
        let server =
            server.map_err(|source| ServeError::Listen { path: path.to_owned(), source })?;
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let serve = move || {
            while !seen.load(Ordering::Acquire) {
                let config = ConfigSpace::new(function.identity());
                let mut seat = Seat { function: &*function, config };
                if let Err(error) = server.run(&mut seat) {
                    log::info!("a machine left without a word: {error}");
                }
                function.reset();
                function.bus().disconnect();
            }
        };
        thread::Builder::new()
            .name("nic".to_owned())
            .spawn(serve)
            .map_err(|source| ServeError::Thread { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), ended })
    }

    /// Where machines plug the function in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Served {
    /// Ends the thread once no machine has the function any more.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes the thread if it waits for a machine; one that has a machine ends with that.
        drop(std::os::unix::net::UnixStream::connect(&self.path));
    }
}

/// A machine that has the function.
struct Seat<'a> {
    function: &'a dyn Function,
    config: ConfigSpace,
}

impl ServerBackend for Seat<'_> {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            self.config.load(offset, data);
        } else if let Ok(bar) = u8::try_from(region) {
            data.fill(0);
            self.function.load(bar, offset, data);
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            self.config.store(offset, data);
        } else if let Ok(bar) = u8::try_from(region) {
            self.function.store(bar, offset, data);
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        log::debug!("DMA {address:#x}+{size:#x} shared={}", file.is_some());
        // Memory without a file (a ROM) can only be reached by messages, and no driver wants it.
        let Some(file) = file else { return Ok(()) };
        self.function
            .bus()
            .map(address, size, file, offset)
            .ok_or_else(|| io::Error::other(format!("cannot map {address:#x}+{size:#x}")))
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let all = flags.contains(DmaUnmapFlags::UNMAP_ALL);
        let (address, size) = if all { (0, u64::MAX) } else { (address, size) };
        self.function.bus().unmap(address, size);
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.config = ConfigSpace::new(self.function.identity());
        self.function.reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        _flags: u32,
        start: u32,
        count: u32,
        files: Vec<File>,
    ) -> io::Result<()> {
        if index == VFIO_PCI_MSIX_IRQ_INDEX {
            let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
            self.function.bus().set_vectors(number(start), number(count), files);
        }
        Ok(())
    }
}

fn regions(identity: &Identity) -> Vec<ServerRegion> {
    let size = |index: u32| {
        if index == VFIO_PCI_CONFIG_REGION_INDEX {
            return CONFIG_SIZE;
        }
        let bar = identity.bars.iter().find(|bar| u32::from(bar.index) == index);
        bar.map_or(0, |bar| bar.size)
    };
    let region = |index| {
        let there = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        ServerRegion {
            region_info: vfio_region_info {
                argsz: u32::try_from(size_of::<vfio_region_info>()).unwrap_or_default(),
                flags: if size(index) > 0 { there } else { 0 },
                index,
                cap_offset: 0,
                size: size(index),
                // Only memory that is shared would be found by it.
                offset: u64::from(index) << 40,
            },
            sparse_areas: Vec::new(),
            mmap_fd: None,
        }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

fn interrupts(identity: &Identity) -> Vec<IrqInfo> {
    let info = |index| {
        let is_msix = index == VFIO_PCI_MSIX_IRQ_INDEX;
        IrqInfo {
            index,
            flags: if is_msix { VFIO_IRQ_INFO_EVENTFD } else { 0 },
            count: if is_msix { u32::from(identity.vectors) } else { 0 },
        }
    };
    (0..VFIO_PCI_NUM_IRQS).map(info).collect()
}
