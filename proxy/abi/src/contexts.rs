//! GET_CONTEXT as methods: what the legacy command does in one, two methods do.
//!
//! From Linux 7 on the command is given with `write(2)` alone: its handler makes a descriptor for
//! whoever wrote, and answers `INVOKE_WRITE` with EBADF. `DEVICE.GET_CONTEXT` makes the same
//! ucontext, and the first `ASYNC_EVENT.ALLOC` the descriptor of its events
//! (drivers/infiniband/core/uverbs_std_types_device.c, uverbs_std_types_async_fd.c).

use std::ops::Range;

use crate::generated::ids;
use crate::request::ReqAttr;
use crate::request::Request;
use crate::table::method;
use crate::wire::Attr;
use crate::wire::AttrId;
use crate::wire::GuestAddr;
use crate::wire::IoctlHdr;
use crate::wire::MethodId;
use crate::wire::ObjectId;

/// `struct ib_uverbs_get_context_resp`: `async_fd`, then `num_comp_vectors`.
const RESPONSE: u16 = 8;
const VECTORS: u64 = 4;
const VECTORS_LEN: u16 = 4;

/// The methods in the place of a GET_CONTEXT.
#[derive(Clone, Debug)]
pub struct ContextMethods {
    /// Makes the ucontext, and answers as the command does but for the descriptor.
    pub context: Request,
    /// Makes the descriptor.
    pub events: Request,
    /// Where the descriptor's number belongs.
    pub fd_at: GuestAddr,
}

impl ContextMethods {
    /// The methods for a command; none for another command, and for one without room for its answer.
    #[must_use]
    pub fn of(command: &Request) -> Option<Self> {
        let legacy = command.legacy().filter(|legacy| legacy.spec.creates_ucontext)?;
        let answer = command.attrs().get(legacy.core_out?)?;
        if answer.attr.len < RESPONSE {
            return None;
        }
        let fd_at = answer.addr();
        let vectors = Attr {
            attr_id: ids::UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS.0,
            len: VECTORS_LEN,
            data: fd_at.0.wrapping_add(VECTORS),
            ..Attr::default()
        };
        let mut attrs = vec![(vectors, None)];
        let bytes = command.uhw_in();
        if let Some(input) = legacy.uhw_in.and_then(|pos| command.attrs().get(pos)) {
            attrs.push((Attr { data: 0, ..input.attr }, Some(0..bytes.len())));
        }
        attrs.extend(
            legacy.uhw_out.and_then(|pos| command.attrs().get(pos)).map(|out| (out.attr, None)),
        );
        let device = (ids::UVERBS_OBJECT_DEVICE.id, ids::UVERBS_METHOD_GET_CONTEXT);
        let context = built(command, device, attrs, bytes.to_vec())?;
        let descriptor =
            Attr { attr_id: ids::UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE.0, ..Attr::default() };
        let of_events = (ids::UVERBS_OBJECT_ASYNC_EVENT.id, ids::UVERBS_METHOD_ASYNC_EVENT_ALLOC);
        let events = built(command, of_events, vec![(descriptor, None)], Vec::new())?;
        Some(Self { context, events, fd_at })
    }
}

/// A request for a method of the command's device, whose attributes are in no array of the guest's.
fn built(
    command: &Request,
    (object, id): (ObjectId, MethodId),
    attrs: Vec<(Attr, Option<Range<usize>>)>,
    arena: Vec<u8>,
) -> Option<Request> {
    let driver = command.hdr().driver();
    let method = method(object, id, driver)?;
    let attrs = attrs.into_iter().map(|(attr, payload)| {
        let spec = method.attr(AttrId(attr.attr_id), driver)?;
        Some(ReqAttr { spec, attr, index: None, payload })
    });
    let hdr = IoctlHdr {
        object_id: object.0,
        method_id: id.0,
        driver_id: driver.0,
        ..IoctlHdr::default()
    };
    Some(Request::new(hdr, method, attrs.collect::<Option<_>>()?, arena))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::DriverId;
    use crate::write::parse_write;

    /// A GET_CONTEXT of a driver whose private parts are so long.
    fn command(words_in: u16, words_out: u16, private: &[u8]) -> Request {
        let mut bytes = 0_u32.to_ne_bytes().to_vec();
        bytes.extend(words_in.to_ne_bytes());
        bytes.extend(words_out.to_ne_bytes());
        bytes.extend(0x5000_u64.to_ne_bytes());
        bytes.extend(private);
        parse_write(&bytes).unwrap().into_request(DriverId::MLX5).unwrap()
    }

    #[test]
    fn two_methods_answer_where_the_command_would() {
        let methods = ContextMethods::of(&command(6, 6, &[7; 8])).unwrap();
        let context = methods.context;
        assert!(context.makes_ucontext() && context.legacy().is_none());
        assert_eq!(context.uhw_in(), [7; 8]);
        let outputs: Vec<_> = context.outputs().map(|(_, a)| (a.attr.data, a.attr.len)).collect();
        assert_eq!(outputs, [(0x5004, 4), (0x5008, 16)]);
        assert_eq!(methods.events.new_fds().count(), 1);
        assert_eq!(methods.fd_at, GuestAddr(0x5000));
    }

    #[test]
    fn other_commands_have_no_such_methods() {
        let mut bytes = vec![3, 0, 0, 0, 4, 0, 1, 0];
        bytes.extend(0x5000_u64.to_ne_bytes());
        let pd = parse_write(&bytes).unwrap().into_request(DriverId::MLX5).unwrap();
        assert!(ContextMethods::of(&pd).is_none());
    }
}
