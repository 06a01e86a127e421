#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy.toml allows it in test functions")]
//! The places where a framed request's outputs go.
//!
//! The kernel takes a new object back when it cannot write the response that names it. So it must
//! be the kernel that writes it, and to the guest's memory: had it written elsewhere, the guest
//! would be told of a fault and the object would be there.

use verbgate_abi::Request;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::wire::DriverId;
use verbgate_abi::write;
use verbgate_proxy::frame::Layout;
use verbgate_proxy::frame::lay_out;
use verbgate_proxy::gids::GidPatch;
use verbgate_proxy::translate::Plan;
use verbgate_sys::frame::Frame;

const BASE: u64 = 0x6ae0_0010_0000;
const RESPONSE: u64 = 0x9000;

/// A plain command, given with `write`.
fn request(name: &str) -> Request {
    let spec = legacy::commands().iter().find(|spec| spec.short_name == name).unwrap();
    let mut bytes = u32::try_from(spec.write_cmd).unwrap().to_ne_bytes().to_vec();
    for words in [(8 + spec.req_size()) / 4, spec.resp_size() / 4] {
        bytes.extend(u16::try_from(words).unwrap().to_ne_bytes());
    }
    bytes.extend(RESPONSE.to_ne_bytes());
    bytes.resize(8 + spec.req_size(), 0);
    write::parse_write(&bytes).unwrap().into_request(DriverId::RXE).unwrap()
}

fn layout(request: &Request, plan: &Plan) -> Layout {
    lay_out(&mut Frame::new().unwrap().0, BASE, request, plan).unwrap()
}

#[test]
fn a_response_with_a_handle_is_written_by_the_kernel() {
    for name in ["ALLOC_PD", "REG_MR", "CREATE_QP", "CREATE_CQ"] {
        let layout = layout(&request(name), &Plan::default());
        assert!(layout.written.iter().all(|written| written.scratch.is_none()), "{name}");
    }
}

#[test]
fn a_response_with_a_descriptor_goes_by_way_of_the_supervisor() {
    for name in ["CREATE_COMP_CHANNEL", "GET_CONTEXT"] {
        let layout = layout(&request(name), &Plan::default());
        let guest = layout.written.iter().find_map(|w| w.scratch).map(|scratch| scratch.guest);
        assert_eq!(guest, Some(RESPONSE), "{name}");
    }
}

#[test]
fn a_response_that_is_changed_goes_by_way_of_the_supervisor() {
    let request = request("QUERY_PORT");
    let pos = request.position(ids::UVERBS_ATTR_CORE_OUT).unwrap();
    let told = Some(GidPatch { pos, offset: 16, bytes: [6, 0, 0, 0] });
    let changed = layout(&request, &Plan { told, ..Plan::default() });
    let guest = changed.written.iter().find_map(|w| w.scratch).map(|scratch| scratch.guest);
    assert_eq!((guest, changed.is_supervised()), (Some(RESPONSE), true));
    // The kernel writes it where nothing is changed.
    assert!(!layout(&request, &Plan::default()).is_supervised());
}
