//! Commit: the results of a request pass from the stub to the guest and the books.
//!
//! The result is the kernel's. Outputs come from memory that the guest may write (the frame's, or
//! the guest's own): observers see the outputs, and the books do not depend on them.

use verbgate_abi::request::OutPlace;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::wire::Handle;
use verbgate_sys::GuestFd;
use verbgate_sys::frame::Frame;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;

use crate::executor::Executor;
use crate::flight::InFlight;
use crate::frame::Written;
use crate::outcome::Outcome;

fn read<const N: usize>(frame: &Frame, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    frame.rw_read(at, &mut bytes);
    bytes
}

/// Takes over what a request brought about that has one of its outputs go by way of the supervisor,
/// or makes a descriptor.
pub(crate) fn commit(executor: &mut impl Executor, done: &InFlight, result: i64) -> Outcome {
    let mut outcome = Outcome { result, ..Outcome::default() };
    let new_fd = done.request.new_fds().next();
    if new_fd.is_some() {
        // Also when the request failed: nothing must be left for the next one.
        let sent = executor.take_fd();
        if result >= 0 {
            match sent.and_then(|file| executor.give_fd(file)) {
                Ok(fd) => outcome.fd = Some(fd),
                // The guest's table is full. The object went with its only descriptor.
                Err(e) => outcome.result = -i64::from(e.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
    }
    if outcome.result < 0 {
        return outcome;
    }
    let frame = executor.frame();
    for Written { pos, flags_at, scratch } in &done.layout.written {
        let flags = u16::from_ne_bytes(read(frame, *flags_at));
        let data = u64::from_ne_bytes(read(frame, flags_at + 4));
        outcome.entries.push((*pos, flags, data));
        if let Some(scratch) = scratch {
            let mut bytes = vec![0; scratch.len];
            frame.rw_read(scratch.at, &mut bytes);
            outcome.outputs.push((scratch.guest, bytes));
        }
    }
    if let (Some(new), Some(fd)) = (new_fd, outcome.fd) {
        put_fd(&mut outcome, done, new.place, fd);
    }
    if let Some(told) = &done.told
        && let Some(output) = output_of(&mut outcome, done, told.pos)
    {
        told.put(output);
    }
    outcome
}

/// The handles of new objects, for whoever looks on: a guest can make them up.
pub(crate) fn made(
    frame: &Frame,
    memory: &impl GuestMemory,
    done: &InFlight,
) -> Vec<(ObjectRef, Handle)> {
    let handles = done.request.new_handles();
    handles
        .filter_map(|new| Some((new.object, handle_at(frame, memory, done, new.place)?)))
        .collect()
}

/// The output behind the attribute at a position, if it goes by way of the supervisor.
fn output_of<'a>(outcome: &'a mut Outcome, done: &InFlight, pos: usize) -> Option<&'a mut [u8]> {
    let mut supervised = done.layout.written.iter().filter(|written| written.scratch.is_some());
    let at = supervised.position(|written| written.pos == pos)?;
    outcome.outputs.get_mut(at).map(|(_, bytes)| bytes.as_mut_slice())
}

fn put_fd(outcome: &mut Outcome, done: &InFlight, place: OutPlace, fd: GuestFd) {
    match place {
        OutPlace::AttrData(pos) => {
            for entry in outcome.entries.iter_mut().filter(|entry| entry.0 == pos) {
                entry.2 = u64::from(fd.0.cast_unsigned());
            }
        }
        OutPlace::Output { pos, offset } => {
            let output = output_of(outcome, done, pos);
            let bytes = output.into_iter().flat_map(|bytes| bytes.iter_mut().skip(offset));
            for (to, from) in bytes.zip(fd.0.to_ne_bytes()) {
                *to = from;
            }
        }
    }
}

fn handle_at(
    frame: &Frame,
    memory: &impl GuestMemory,
    done: &InFlight,
    place: OutPlace,
) -> Option<Handle> {
    match place {
        OutPlace::AttrData(pos) => {
            let written = done.layout.written.iter().find(|written| written.pos == pos)?;
            Some(Handle(u32::from_ne_bytes(read(frame, written.flags_at + 4))))
        }
        OutPlace::Output { pos, offset } => {
            let mut word = [0; 4];
            let addr = done.request.attrs().get(pos)?.attr.data;
            let addr = addr.checked_add(u64::try_from(offset).ok()?)?;
            let range = Range { addr, len: word.len() };
            // The word was just written, and so is at hand. Nobody waits for a guest to tell onlookers.
            let n = memory.read_at_hand(&[range], &mut word).ok()?;
            (n == word.len()).then_some(())?;
            Some(Handle(u32::from_ne_bytes(word)))
        }
    }
}
