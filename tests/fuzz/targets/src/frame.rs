//! Fuzzing of frames: a request laid out in a frame, read back as the kernel reads it, by rules
//! that are not those of the writing code.

use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;

use verbgate_abi::Errno;
use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::request::Place;
use verbgate_abi::request::ReqAttr;
use verbgate_abi::residue;
use verbgate_abi::table::AttrKind;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::HDR_LEN;
use verbgate_abi::wire::INLINE_LEN;
use verbgate_proxy::frame::FILLER;
use verbgate_proxy::frame::Layout;
use verbgate_proxy::frame::lay_out;
use verbgate_proxy::translate::Plan;
use verbgate_proxy::translate::translate;
use verbgate_sys::control;
use verbgate_sys::frame::Frame;
use verbgate_sys::stub::INPUTS;
use verbgate_sys::stub::request_offset;
use verbgate_sys::window::RO_LEN;
use verbgate_sys::window::RW_LEN;

use crate::decoder;

/// Where the guest sees the frame.
const BASE: u64 = 0x6ae0_0010_0000;
/// What was in the frame before.
const OLD: u8 = 0xa5;
/// Outputs that go by way of the supervisor are behind the longest array.
const SCRATCH: usize = 4096;

thread_local! {
    static FRAME: RefCell<Frame> = RefCell::new(Frame::new().unwrap().0);
}

/// Lays the request out that the bytes are, for the decoder or repaired as there.
pub fn run(data: &[u8]) {
    for bytes in [data, &decoder::repaired(data)] {
        if let Some(request) = decoder::request(bytes) {
            check(&request);
        }
    }
}

/// Lays a request out, however it came.
pub(crate) fn check(request: &Request) {
    FRAME.with_borrow_mut(|frame| one(frame, request));
}

fn one(frame: &mut Frame, request: &Request) {
    // Any open file will do: what is lent is not looked at here.
    let look_up = |_| {
        File::open("/dev/null").map(|file| OwnedFd::from(file).into()).map_err(|_| Errno::EBADF)
    };
    let Ok(plan) = translate(request, look_up) else { return };
    frame.ro()[..control::END].fill(OLD);
    let layout = match lay_out(frame, BASE, request, &plan) {
        Ok(layout) => layout,
        Err(errno) => {
            assert_eq!(errno, Errno::E2BIG);
            assert!(!surely_fits(request), "{request:?}");
            return;
        }
    };
    assert!(frame.ro()[..control::END].iter().all(|byte| *byte == OLD), "control words");
    let start = request_offset(INPUTS);
    let mut bytes = frame.ro()[start..].to_vec();
    let immutable = bytes.len();
    bytes.resize(immutable + SCRATCH, 0);
    frame.rw_read(0, &mut bytes[immutable..]);
    let entries = header(&bytes, request, &layout);
    // The boundary is between `len` and `flags` of the first written one.
    assert_eq!(immutable, HDR_LEN + ATTR_LEN * INPUTS + 4);
    let (inputs, outputs) = entries.split_at(INPUTS);
    check_inputs(frame, request, &plan, inputs, &layout);
    check_outputs(request, outputs, &layout);
    again(&bytes, request);
}

/// Whether there can be no reason to refuse: the most that the parts can take is there.
fn surely_fits(request: &Request) -> bool {
    let attrs = request.attrs();
    let payloads = attrs.iter().map(|attr| request.bytes(attr).len().max(attr.len()) + 8);
    let room = request_offset(INPUTS) - control::END;
    let outputs = attrs.iter().filter(|attr| attr.spec.is_output()).map(|attr| attr.len() + 8);
    payloads.sum::<usize>() <= room && outputs.sum::<usize>() <= RW_LEN - SCRATCH
}

fn header(bytes: &[u8], request: &Request, layout: &Layout) -> Vec<Attr> {
    let hdr = decode::header(bytes).unwrap();
    let written = request.attrs().iter().filter(|attr| attr.spec.is_written_by_kernel()).count();
    assert_eq!(layout.written.len(), written);
    assert_eq!(usize::from(hdr.num_attrs), INPUTS + written);
    let same = |hdr: &verbgate_abi::wire::IoctlHdr| (hdr.object_id, hdr.method_id, hdr.driver_id);
    assert_eq!(same(&hdr), same(request.hdr()));
    let word = |entry: &[u8], at: usize| u16::from_ne_bytes([entry[at], entry[at + 1]]);
    bytes[HDR_LEN..usize::from(hdr.length)]
        .chunks(ATTR_LEN)
        .map(|entry| Attr {
            attr_id: word(entry, 0),
            len: word(entry, 2),
            flags: word(entry, 4),
            attr_data: word(entry, 6),
            data: u64::from_ne_bytes(entry[8..].try_into().unwrap()),
        })
        .collect()
}

/// The value of an input with the stub's descriptors in it, and whether it may be behind a pointer.
fn expected(request: &Request, plan: &Plan, pos: usize, attr: &ReqAttr) -> (Vec<u8>, bool) {
    let is_word =
        matches!(attr.spec.kind, AttrKind::Idr { .. } | AttrKind::Fd { .. } | AttrKind::RawFd);
    let mut value = if is_word {
        attr.attr.data.to_ne_bytes().to_vec()
    } else {
        request.bytes(attr)[..attr.len()].to_vec()
    };
    for patch in &plan.patches {
        match patch.place {
            Place::AttrData(at) if at == pos => {
                value = u64::from(patch.number).to_ne_bytes().to_vec();
            }
            Place::Payload { pos: at, offset } if at == pos => {
                value[offset..offset + 4].copy_from_slice(&patch.number.to_ne_bytes());
            }
            _ => {}
        }
    }
    (value, !is_word && attr.len() > INLINE_LEN)
}

fn check_inputs(
    frame: &mut Frame,
    request: &Request,
    plan: &Plan,
    inputs: &[Attr],
    layout: &Layout,
) {
    let mut named = vec![false; inputs.len()];
    let mut regions: Vec<Range<usize>> = Vec::new();
    for (pos, attr) in request.attrs().iter().enumerate() {
        let mut of_attr = inputs.iter().enumerate().filter(|(_, e)| e.attr_id == attr.spec.id.0);
        if attr.spec.is_written_by_kernel() {
            assert!(of_attr.next().is_none(), "{} before the boundary", attr.spec.name);
            continue;
        }
        let (at, entry) = of_attr.next().expect(attr.spec.name);
        assert!(of_attr.next().is_none(), "{} twice", attr.spec.name);
        named[at] = true;
        assert_eq!((entry.len, entry.attr_data), (attr.attr.len, attr.attr.attr_data));
        let (value, pointed) = expected(request, plan, pos, attr);
        if pointed {
            let start = usize::try_from(entry.data - BASE).unwrap();
            let region = start..start + value.len();
            // All that the kernel reads lies before the boundary, and before the request.
            assert!(region.start >= control::END && region.end <= request_offset(INPUTS));
            assert!(regions.iter().all(|r| r.end <= region.start || region.end <= r.start));
            assert_eq!(frame.ro()[region.clone()], value, "{}", attr.spec.name);
            regions.push(region);
        } else {
            let (inline, rest) = (entry.data.to_ne_bytes(), value.len());
            assert_eq!(inline[..rest], value, "{}", attr.spec.name);
            // The kernel knows the size of flags; what drivers read is up to them.
            let is_flags = attr.spec.kind == AttrKind::FlagsIn;
            assert!(is_flags || inline[rest..].iter().all(|byte| *byte == 0), "{inline:?}");
        }
    }
    let optional =
        |written: &&verbgate_proxy::frame::Written| !request.attrs()[written.pos].spec.mandatory;
    let open = layout.written.iter().filter(optional).count() > 1;
    let driver = request.hdr().driver();
    for spec in request.method().attrs_of(driver) {
        let neutral = residue::neutral(spec).filter(|_| request.attr(spec.id).is_none());
        let at = inputs.iter().position(|entry| entry.attr_id == spec.id.0);
        match (neutral, at) {
            (Some(neutral), Some(at)) => {
                assert_eq!(inputs[at], neutral);
                named[at] = true;
            }
            (Some(_), None) => assert!(!open, "{} is not named", spec.name),
            (None, _) => {}
        }
    }
    for (entry, named) in inputs.iter().zip(named) {
        assert!(named || *entry == Attr { attr_id: FILLER.0, ..Attr::default() }, "{entry:?}");
    }
}

fn check_outputs(request: &Request, outputs: &[Attr], layout: &Layout) {
    assert_eq!(outputs.len(), layout.written.len());
    let mut regions: Vec<Range<usize>> = Vec::new();
    regions.push(0..ATTR_LEN * outputs.len());
    let mut mandatory = false;
    for (at, (entry, written)) in outputs.iter().zip(&layout.written).enumerate() {
        let attr = &request.attrs()[written.pos];
        assert_eq!((entry.attr_id, entry.len), (attr.spec.id.0, attr.attr.len));
        assert_eq!(written.flags_at, ATTR_LEN * at);
        // No optional one behind a mandatory one: its place would be free to take.
        assert!(attr.spec.mandatory || !mandatory, "{}", attr.spec.name);
        mandatory |= attr.spec.mandatory;
        let Some(scratch) = written.scratch else {
            assert_eq!(entry.data, attr.attr.data);
            continue;
        };
        assert_eq!((scratch.guest, scratch.len), (attr.attr.data, attr.len()));
        assert_eq!(entry.data, BASE + (RO_LEN + scratch.at) as u64);
        let region = scratch.at..scratch.at + scratch.len;
        assert!(region.end <= RW_LEN);
        assert!(regions.iter().all(|r| r.end <= region.start || region.end <= r.start));
        regions.push(region);
    }
}

/// The kernel would find the same attributes, and neutral ones.
fn again(bytes: &[u8], request: &Request) {
    let outline = decode::parse(bytes).unwrap();
    for attr in request.attrs() {
        assert!(outline.attrs().iter().any(|again| again.spec.id == attr.spec.id));
    }
    for again in outline.attrs() {
        let named = request.attr(again.spec.id).is_some();
        assert!(named || residue::neutral(again.spec).is_some(), "{}", again.spec.name);
    }
}
