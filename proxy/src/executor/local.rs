//! The executor `Local`: the calling process executes. For embedders that have the guest's memory
//! and descriptors, and for tests.
//!
//! The guest's addresses and descriptors are translated, as those of a virtual machine are. So all
//! outputs go by way of the frame, and a [`Recipient`] takes the outputs from there. The kernel
//! pins memory (memory regions, queues) in the calling process; a caller of
//! [`verbs::Device::new`](Device::new) vouches for that.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

use verbgate_abi::Errno;
use verbgate_abi::request::OutPlace;
use verbgate_sys::GuestFd;
use verbgate_sys::frame::Frame;
use verbgate_sys::verbs::Device;

use crate::executor::Executor;
use crate::executor::Order;
use crate::executor::Shown;
use crate::executor::Unbegun;
use crate::translate::Plan;

/// Who takes what is for the guest.
pub trait Recipient {
    /// Writes into the guest's memory, all of it or nothing that matters.
    ///
    /// # Errors
    /// `EFAULT` where the guest may not write.
    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// Puts a descriptor into the guest's table, close-on-exec.
    ///
    /// # Errors
    /// `EMFILE`.
    fn give(&mut self, file: OwnedFd) -> io::Result<GuestFd>;
}

/// The calling process.
#[derive(Debug)]
pub struct Local<R> {
    device: Device,
    guest: R,
    made: Option<OwnedFd>,
}

impl<R: Recipient> Local<R> {
    /// Makes requests on a device for a guest.
    pub const fn new(device: Device, guest: R) -> Self {
        Self { device, guest, made: None }
    }

    /// The guest.
    pub const fn guest(&self) -> &R {
        &self.guest
    }
}

/// Where the kernel writes the number of a new descriptor: its offset in the read-write half.
fn new_fd_at(order: &Order<'_>) -> Option<usize> {
    let place = order.request.new_fds().next()?.place;
    let (OutPlace::AttrData(pos) | OutPlace::Output { pos, .. }) = place;
    let written = order.layout.written.iter().find(|written| written.pos == pos)?;
    match place {
        OutPlace::AttrData(_) => Some(written.flags_at + 4),
        OutPlace::Output { offset, .. } => Some(written.scratch?.at + offset),
    }
}

impl<R: Recipient> Executor for Local<R> {
    type Begun = Shown;
    type Wrote = ();

    fn frame(&self) -> &Frame {
        &self.device.frame
    }

    fn frame_mut(&mut self) -> &mut Frame {
        &mut self.device.frame
    }

    fn base(&self) -> u64 {
        self.device.base()
    }

    /// Descriptors are looked up in the calling process's own table, where the files are already.
    fn plan(&self, plan: &mut Plan) {
        plan.supervised = true;
        for (lent, patch) in plan.lent.iter_mut().zip(&mut plan.patches) {
            let number = lent.file.get().map_or(-1, AsRawFd::as_raw_fd).cast_unsigned();
            (lent.at, patch.number) = (number, number);
        }
    }

    fn begin(&mut self, order: &Order<'_>) -> Result<Shown, Unbegun> {
        if !order.plan.supervised {
            // Its outputs would go to the guest's addresses in the calling process.
            return Err(Unbegun::Refused(Errno::EIO));
        }
        let (result, made) = self.device.request(new_fd_at(order));
        self.made = made;
        Ok(Shown { result, written: true })
    }

    fn write(&mut self, pieces: &[(u64, Vec<u8>)]) -> Result<(), Errno> {
        for (addr, bytes) in pieces {
            self.guest.write(*addr, bytes)?;
        }
        Ok(())
    }

    fn take_fd(&mut self) -> io::Result<OwnedFd> {
        self.made.take().ok_or_else(|| io::Error::from_raw_os_error(libc::EAGAIN))
    }

    fn give_fd(&mut self, file: OwnedFd) -> io::Result<GuestFd> {
        self.guest.give(file)
    }
}
