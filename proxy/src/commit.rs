//! Commit: what a request brought about is taken over, from the stub into the guest and the books.
//!
//! Outputs are read from memory that the guest may write, the frame's or its own: they are believed
//! only in what hurts nobody but the guest.

use std::os::fd::AsFd;

use verbgate_abi::Errno;
use verbgate_abi::request::OutPlace;
use verbgate_abi::table::Access;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::wire::Handle;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::frame::Frame;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::seccomp::AddFd;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::stub::Stub;

use crate::execute::InFlight;
use crate::frame::Written;
use crate::session::Objects;

/// What a request brought about.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What the guest's call returns, or `-errno`.
    pub result: i64,
    /// Objects that it made.
    pub made: Vec<(ObjectRef, Handle)>,
    /// The descriptor that it made, by the guest's number.
    pub fd: Option<GuestFd>,
    /// For each written attribute: its position, and `flags` and `data` as they are now.
    pub entries: Vec<(usize, u16, u64)>,
    /// Outputs for the guest, and where they go.
    pub outputs: Vec<(u64, Vec<u8>)>,
}

fn read<const N: usize>(frame: &Frame, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    frame.rw_read(at, &mut bytes);
    bytes
}

/// Takes over what a request brought about.
#[must_use]
pub fn commit(
    listener: &Listener,
    stub: &Stub,
    memory: &impl GuestMemory,
    done: &InFlight,
    result: i64,
) -> Outcome {
    let frame = &stub.frame;
    let mut outcome = Outcome { result, ..Outcome::default() };
    let new_fd = done.request.new_fds().next();
    if new_fd.is_some() {
        // Also when the request failed: nothing must be left for the next one.
        let sent = stub.take_fd();
        if result >= 0 {
            let given = sent.and_then(|file| {
                // Every descriptor that the verbs interface makes is O_CLOEXEC.
                let how = AddFd { cloexec: true, ..AddFd::default() };
                listener.add_fd(done.trap.id, file.as_fd(), how)
            });
            match given {
                Ok(fd) => outcome.fd = Some(fd),
                // The guest's table is full. The object went with its only descriptor.
                Err(e) => outcome.result = -i64::from(e.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
    }
    for Written { pos, flags_at, scratch } in &done.layout.written {
        let flags = u16::from_ne_bytes(read(frame, *flags_at));
        let data = u64::from_ne_bytes(read(frame, flags_at + 4));
        outcome.entries.push((*pos, flags, data));
        if let Some(scratch) = scratch
            && outcome.result >= 0
        {
            let mut bytes = vec![0; scratch.len];
            frame.rw_read(scratch.at, &mut bytes);
            outcome.outputs.push((scratch.guest, bytes));
        }
    }
    if outcome.result < 0 {
        return outcome;
    }
    if let (Some(new), Some(fd)) = (new_fd, outcome.fd) {
        put_fd(&mut outcome, done, new.place, fd);
    }
    let patch = done.patch.as_ref().and_then(|patch| patch.place(&done.request));
    outcome.outputs.extend(patch);
    for new in done.request.new_handles() {
        if let Some(handle) = handle_at(&outcome, memory, done, new.place) {
            outcome.made.push((new.object, handle));
        }
    }
    outcome
}

/// The output behind the attribute at a position.
fn output_at(done: &InFlight, pos: usize) -> Option<usize> {
    let supervised = done.layout.written.iter().filter(|written| written.scratch.is_some());
    supervised.enumerate().find_map(|(at, written)| (written.pos == pos).then_some(at))
}

fn put_fd(outcome: &mut Outcome, done: &InFlight, place: OutPlace, fd: GuestFd) {
    match place {
        OutPlace::AttrData(pos) => {
            for entry in outcome.entries.iter_mut().filter(|entry| entry.0 == pos) {
                entry.2 = u64::from(fd.0.cast_unsigned());
            }
        }
        OutPlace::Output { pos, offset } => {
            let output = output_at(done, pos).and_then(|at| outcome.outputs.get_mut(at));
            let bytes = output.into_iter().flat_map(|(_, bytes)| bytes.iter_mut().skip(offset));
            for (to, from) in bytes.zip(fd.0.to_ne_bytes()) {
                *to = from;
            }
        }
    }
}

fn handle_at(
    outcome: &Outcome,
    memory: &impl GuestMemory,
    done: &InFlight,
    place: OutPlace,
) -> Option<Handle> {
    match place {
        OutPlace::AttrData(pos) => {
            let data = outcome.entries.iter().find(|entry| entry.0 == pos)?.2;
            u32::try_from(data & 0xffff_ffff).ok().map(Handle)
        }
        OutPlace::Output { pos, offset } => {
            let mut word = [0; 4];
            if let Some(output) = output_at(done, pos) {
                let (_, bytes) = outcome.outputs.get(output)?;
                word.copy_from_slice(bytes.get(offset..offset.checked_add(4)?)?);
            } else {
                let addr = done.request.attrs().get(pos)?.attr.data;
                let addr = addr.checked_add(u64::try_from(offset).ok()?)?;
                let range = Range { addr, len: word.len() };
                mem::gather(memory, &[range], &mut word).ok()?;
            }
            Some(Handle(u32::from_ne_bytes(word)))
        }
    }
}

/// Enters a request's objects into the books of its ucontext.
pub fn track(objects: &mut Objects, done: &InFlight, outcome: &Outcome, owner: Tgid) {
    if outcome.result < 0 {
        return;
    }
    for (object, handle) in &outcome.made {
        objects.insert(*object, *handle, owner);
    }
    for used in done.request.handles().filter(|used| used.access == Access::Destroy) {
        objects.remove(used.object, used.handle);
    }
}

/// The errno of a negative result.
#[must_use]
pub fn errno(result: i64) -> Errno {
    Errno(i32::try_from(-result).unwrap_or(libc::EIO))
}
