//! Reply: the bytes that the kernel would have written into the guest's memory, and the answer.
//!
//! The supervisor writes nothing into a guest: the supervisor says what goes where, and the guest's
//! stub writes.

use verbgate_abi::request::Request;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::HDR_LEN;
use verbgate_sys::seccomp::Reply;

use crate::fetch::Form;
use crate::outcome::Outcome;
use crate::outcome::errno;

/// What belongs into the guest's memory, and where: nothing for a request that failed.
///
/// Only what the kernel writes, and only where it has changed: `flags` and, for a new object,
/// `data` of an attribute, and the outputs that came by way of the supervisor.
#[must_use]
pub fn pieces(form: Form, request: &Request, outcome: Outcome) -> Vec<(u64, Vec<u8>)> {
    let mut pieces = Vec::new();
    if outcome.result < 0 {
        return pieces;
    }
    if let Form::Ioctl(array) = form {
        for (pos, flags, data) in &outcome.entries {
            let Some(attr) = request.attrs().get(*pos) else { continue };
            let Some(index) = attr.index else { continue };
            let at = array.wrapping_add((HDR_LEN + ATTR_LEN * index) as u64);
            if *flags != attr.attr.flags {
                pieces.push((at.wrapping_add(4), flags.to_ne_bytes().to_vec()));
            }
            if attr.spec.is_new() && *data != attr.attr.data {
                pieces.push((at.wrapping_add(8), data.to_ne_bytes().to_vec()));
            }
        }
    }
    pieces.extend(outcome.outputs);
    pieces
}

/// How the guest's call ends, when what belongs into its memory could be written.
#[must_use]
pub fn value(form: Form, result: i64) -> Reply {
    match form {
        _ if result < 0 => Reply::Errno(errno(result).0),
        Form::Write(count) => Reply::Value(i64::try_from(count).unwrap_or(i64::MAX)),
        Form::Ioctl(_) => Reply::Value(result),
    }
}
