//! The executor `Recorded`: a script executes. For tests, and to repeat a request's way.
//!
//! [`Recorded`] reads the frame as the kernel reads it, and remembers every question and everything
//! written into the guest's memory, in order. [`Recorded`] treats an answer as the kernel does:
//! outputs go where the array in the frame says, into the frame or to the guest.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use verbgate_abi::Errno;
use verbgate_abi::request::OutPlace;
use verbgate_abi::request::Request;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::AttrFlags;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::HDR_LEN;
use verbgate_sys::GuestFd;
use verbgate_sys::frame::Frame;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::stub::INPUTS;
use verbgate_sys::stub::request_offset;
use verbgate_sys::window::RO_LEN;
use verbgate_sys::window::RW_LEN;

use crate::decode;
use crate::executor::Executor;
use crate::executor::Order;
use crate::executor::Shown;
use crate::executor::Unbegun;
use crate::fetch::Copied;

/// What a script says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScriptedAnswer {
    /// What the kernel returns, or `-errno`.
    pub result: i64,
    /// What every byte of its outputs is; `None`: it writes none.
    pub fill: Option<u8>,
    /// What it names new objects.
    pub handle: u32,
    /// What the guest's table numbers a new descriptor; `None`: it is full.
    pub fd: Option<GuestFd>,
    /// Whether the guest's memory can be written when the request has been made.
    pub writable: bool,
}

impl ScriptedAnswer {
    /// This result, and no output.
    #[must_use]
    pub const fn of(result: i64) -> Self {
        Self { result, fill: None, handle: 1, fd: None, writable: true }
    }
}

/// What happened to an executor.
#[derive(Debug)]
pub enum ScriptEvent {
    /// It was asked to make this request, as the frame has it.
    Asked(Box<Request>),
    /// What lay in the frame was no request. Never, if the stages before do what they should.
    Nonsense(Errno),
    /// This was written into the guest's memory.
    Wrote(u64, Vec<u8>),
}

/// Answers from a script, and remembers.
pub struct Recorded<F> {
    frame: Frame,
    base: u64,
    script: F,
    last: Option<ScriptedAnswer>,
    /// What happened, oldest first.
    pub events: Vec<ScriptEvent>,
}

impl<F> fmt::Debug for Recorded<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("events", &self.events).finish_non_exhaustive()
    }
}

impl<F: FnMut(&Request) -> ScriptedAnswer> Recorded<F> {
    /// One whose frame is seen at `base` by the kernel that it plays.
    ///
    /// # Errors
    /// When memory or descriptors run out, or `/proc` is not mounted.
    pub fn new(base: u64, script: F) -> io::Result<Self> {
        let (frame, _) = Frame::new()?;
        Ok(Self { frame, base, script, last: None, events: Vec::new() })
    }

    /// Forgets what happened, and answers from another script.
    pub fn again(&mut self, script: F) {
        self.script = script;
        self.last = None;
        self.events.clear();
    }

    /// The requests that it was asked to make.
    pub fn asked(&self) -> impl Iterator<Item = &Request> {
        self.events.iter().filter_map(|event| match event {
            ScriptEvent::Asked(request) => Some(request.as_ref()),
            _ => None,
        })
    }

    fn wrote(&mut self, addr: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.events.push(ScriptEvent::Wrote(addr, bytes));
        }
    }

    /// The kernel writes to an address: of the frame, or of the guest.
    fn put(&mut self, addr: u64, bytes: Vec<u8>) {
        match addr.checked_sub(self.base + RO_LEN as u64).map(usize::try_from) {
            Some(Ok(at)) if at < RW_LEN => self.frame.rw_write(at, &bytes),
            _ => self.wrote(addr, bytes),
        }
    }

    /// Writes the outputs of a request that succeeded.
    fn answer(&mut self, request: &Request, answer: ScriptedAnswer) {
        let array = self.base + request_offset(INPUTS) as u64;
        for (pos, attr) in request.attrs().iter().enumerate() {
            let Some(index) = attr.index else { continue };
            let entry = array + (HDR_LEN + ATTR_LEN * index) as u64;
            if attr.spec.is_new() {
                self.put(entry + 8, u64::from(answer.handle).to_ne_bytes().to_vec());
            }
            let Some(fill) = answer.fill.filter(|_| attr.spec.is_output()) else { continue };
            let flags = attr.attr.flags | AttrFlags::VALID_OUTPUT.bits();
            self.put(entry + 4, flags.to_ne_bytes().to_vec());
            let mut bytes = vec![fill; attr.len()];
            for new in request.new_handles() {
                if let OutPlace::Output { pos: at, offset } = new.place
                    && at == pos
                {
                    for (to, from) in bytes.iter_mut().skip(offset).zip(answer.handle.to_ne_bytes())
                    {
                        *to = from;
                    }
                }
            }
            self.put(attr.attr.data, bytes);
        }
    }
}

/// The frame as whoever executes reads it.
struct SeenOrder<'a> {
    frame: &'a Frame,
    base: u64,
}

impl GuestMemory for SeenOrder<'_> {
    fn read(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
        let fault = || io::Error::from_raw_os_error(libc::EFAULT);
        let mut rest = &mut *into;
        for range in from {
            let at = range.addr.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
            let at = at.filter(|at| at.saturating_add(range.len) <= RO_LEN + RW_LEN);
            let at = at.ok_or_else(fault)?;
            let (to, later) = rest.split_at_mut_checked(range.len).ok_or_else(fault)?;
            let low = RO_LEN.saturating_sub(at).min(range.len);
            let (below, above) = to.split_at_mut_checked(low).ok_or_else(fault)?;
            if let Some(bytes) = self.frame.ro_bytes().get(at..at + low) {
                below.copy_from_slice(bytes);
            }
            self.frame.rw_read((at + low).saturating_sub(RO_LEN), above);
            rest = later;
        }
        Ok(from.iter().map(|range| range.len).sum())
    }
}

impl<F: FnMut(&Request) -> ScriptedAnswer> Executor for Recorded<F> {
    type Begun = Shown;
    type Wrote = ();

    fn frame(&self) -> &Frame {
        &self.frame
    }

    fn frame_mut(&mut self) -> &mut Frame {
        &mut self.frame
    }

    fn base(&self) -> u64 {
        self.base
    }

    fn begin(&mut self, order: &Order<'_>) -> Result<Shown, Unbegun> {
        let seen = SeenOrder { frame: &self.frame, base: self.base };
        let array = self.base + request_offset(INPUTS) as u64;
        let copied = Copied::beginning(&seen, array, HDR_LEN);
        let request = match decode::ioctl(&seen, copied, DriverId::UNKNOWN) {
            Ok(request) => request,
            Err(malformed) => {
                self.events.push(ScriptEvent::Nonsense(malformed.errno()));
                let result = -i64::from(malformed.errno().0);
                return Ok(Shown { result, written: true });
            }
        };
        let answer = (self.script)(&request);
        self.last = Some(answer);
        self.events.push(ScriptEvent::Asked(Box::new(request.clone())));
        if answer.result >= 0 {
            self.answer(&request, answer);
            for piece in order.entries.iter().filter(|_| answer.writable) {
                let mut bytes = vec![0; piece.len];
                self.frame.rw_read(piece.from, &mut bytes);
                self.wrote(piece.to, bytes);
            }
        }
        Ok(Shown { result: answer.result, written: answer.writable })
    }

    fn write(&mut self, pieces: &[(u64, Vec<u8>)]) -> Result<(), Errno> {
        if self.last.is_some_and(|answer| !answer.writable) {
            return Err(Errno::EFAULT);
        }
        for (addr, bytes) in pieces {
            self.wrote(*addr, bytes.clone());
        }
        Ok(())
    }

    fn take_fd(&mut self) -> io::Result<OwnedFd> {
        match self.last {
            Some(answer) if answer.result >= 0 => Ok(File::open("/dev/null")?.into()),
            _ => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        }
    }

    fn give_fd(&mut self, _file: OwnedFd) -> io::Result<GuestFd> {
        let full = || io::Error::from_raw_os_error(libc::EMFILE);
        self.last.and_then(|answer| answer.fd).ok_or_else(full)
    }
}
