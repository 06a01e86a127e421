//! Reply: what the kernel would have written into the guest's memory, and the answer.

use verbgate_abi::Errno;
use verbgate_abi::request::Request;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::HDR_LEN;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::seccomp::Reply;

use crate::commit::Outcome;
use crate::commit::errno;
use crate::execute::Form;
use crate::frame::Layout;
use crate::frame::Scratch;

/// Makes sure, before a request is executed, that what goes by way of the supervisor can be written
/// to the guest: afterwards there would be a descriptor, or a ucontext, that nobody was told of.
///
/// What is there is written again, so that a request which fails changes nothing.
///
/// # Errors
/// `EFAULT`.
pub fn touch(memory: &impl GuestMemory, layout: &Layout) -> Result<(), Errno> {
    for Scratch { len, guest, .. } in layout.written.iter().filter_map(|written| written.scratch) {
        let mut bytes = vec![0; len];
        mem::gather(memory, &[Range { addr: guest, len }], &mut bytes)
            .and_then(|()| memory.scatter(&[(guest, &bytes)]))
            .map_err(|_| Errno::EFAULT)?;
    }
    Ok(())
}

/// Writes a request's outputs into the guest's memory, and says how its call ends.
///
/// Only what the kernel writes is written, and only where it has changed: `flags` and, for a new
/// object, `data` of an attribute, and the outputs that came by way of the supervisor.
#[must_use]
pub fn write_back(
    memory: &impl GuestMemory,
    form: Form,
    request: &Request,
    outcome: &Outcome,
) -> Reply {
    let mut entries: Vec<(u64, [u8; 8], usize)> = Vec::new();
    if let Form::Ioctl(array) = form {
        for (pos, flags, data) in &outcome.entries {
            let Some(attr) = request.attrs().get(*pos) else { continue };
            let Some(index) = attr.index else { continue };
            let at = array.wrapping_add((HDR_LEN + ATTR_LEN * index) as u64);
            if *flags != attr.attr.flags {
                let [a, b] = flags.to_ne_bytes();
                entries.push((at.wrapping_add(4), [a, b, 0, 0, 0, 0, 0, 0], 2));
            }
            if attr.spec.is_new() && *data != attr.attr.data {
                entries.push((at.wrapping_add(8), data.to_ne_bytes(), 8));
            }
        }
    }
    let mut pieces: Vec<(u64, &[u8])> = Vec::with_capacity(entries.len() + outcome.outputs.len());
    pieces.extend(entries.iter().map(|(at, b, len)| (*at, b.get(..*len).unwrap_or_default())));
    pieces.extend(outcome.outputs.iter().map(|(at, bytes)| (*at, bytes.as_slice())));
    let written = if pieces.is_empty() { Ok(()) } else { memory.scatter(&pieces) };
    match (outcome.result, form, written) {
        (result, _, _) if result < 0 => Reply::Errno(errno(result).0),
        (_, _, Err(_)) => Reply::Errno(libc::EFAULT),
        (_, Form::Write(count), Ok(())) => Reply::Value(i64::try_from(count).unwrap_or(i64::MAX)),
        (result, Form::Ioctl(_), Ok(())) => Reply::Value(result),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use verbgate_sys::mem::FakeMemory;

    use super::*;
    use crate::frame::Written;

    #[test]
    fn a_place_that_cannot_be_written_is_found_before_and_others_stay_as_they_are() {
        let memory = FakeMemory { base: 64, bytes: RefCell::new((0..32).collect()) };
        let touched = |guest, len| {
            let scratch = Some(Scratch { at: 0, len, guest });
            let written = vec![Written { pos: 0, flags_at: 0, scratch }];
            touch(&memory, &Layout { written })
        };
        assert_eq!(touched(64, 32), Ok(()));
        assert_eq!(touched(64, 33), Err(Errno::EFAULT));
        assert_eq!(touched(0, 8), Err(Errno::EFAULT));
        assert_eq!(*memory.bytes.borrow(), (0..32).collect::<Vec<u8>>());
    }
}
