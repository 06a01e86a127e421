//! Seeds: valid requests, made from the tables.

use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::legacy::Trailing;
use verbgate_abi::residue;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::wire::BufferDesc;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::wire::Handle;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::aarch64::Aarch64;
use verbgate_sys::arch::x86_64::X86_64;
use verbgate_sys::seccomp::rules;
use verbgate_sys::seccomp::rules::When;
use verbgate_sys::seccomp::rules::Word;

use crate::filter::ADDRS;
use crate::filter::FDS;

/// Where outputs go.
const OUT: GuestAddr = GuestAddr(0x7f00_0000_1000);

/// For each method as each driver has it a request with all attributes, and for each command an
/// `INVOKE_WRITE`.
#[must_use]
pub fn requests() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for method in table::methods().iter().filter(|method| !method.is_invoke_write()) {
        for driver in residue::drivers(method) {
            let builder = RequestBuilder::new(method, driver);
            let all = method.attrs_of(driver).fold(builder, with);
            seeds.push((format!("{}-{driver}", method.name), bytes(all)));
        }
    }
    let invoke = table::methods().iter().find(|method| method.is_invoke_write()).unwrap();
    for spec in legacy::commands() {
        seeds.push((spec.name.to_owned(), bytes(invoke_write(invoke, spec))));
    }
    seeds
}

fn bytes(builder: RequestBuilder) -> Vec<u8> {
    let mut encoded = builder.build(GuestAddr(0x10_0000));
    // The payloads without the gaps between them: as the decoder fetches them.
    let outline = verbgate_abi::decode::parse(&encoded.bytes).unwrap();
    for payload in outline.payloads() {
        let start = usize::try_from(payload.addr.0 - 0x10_0000).unwrap();
        let end = start + payload.range.len();
        encoded.bytes.extend_from_slice(&encoded.payload[start..end]);
    }
    encoded.bytes
}

/// A valid value, mostly of the least length.
fn with(builder: RequestBuilder, spec: &AttrSpec) -> RequestBuilder {
    let id = spec.id;
    match spec.kind {
        // Private input: as long as many a driver's.
        AttrKind::PtrIn { .. } if spec.is_uhw_in() => builder.input(id, &[1; 24]),
        AttrKind::PtrOut { .. } if spec.is_uhw_out() => builder.output(id, OUT, 24),
        AttrKind::PtrOut { min, max, .. } => builder.output(id, OUT, min.max(4).min(max)),
        AttrKind::PtrIn { min, .. } => builder.input(id, &vec![1; min.into()]),
        AttrKind::Idr { .. } => builder.handle(id, Handle(1)),
        AttrKind::Fd { .. } | AttrKind::RawFd => builder.fd(id, 5),
        AttrKind::EnumIn { elems } => builder.elem(id, 0, &vec![0; elems[0].min.into()]),
        AttrKind::ConstIn | AttrKind::FlagsIn => builder.constant(id, 2),
        AttrKind::IdrsArray { min, max, .. } => {
            builder.input(id, &vec![1; 4 * usize::from(min.max(3).min(max))])
        }
        AttrKind::Umem => {
            let mut desc = [0; 32];
            desc[..4].copy_from_slice(&BufferDesc::DMABUF.to_ne_bytes());
            desc[4..8].copy_from_slice(&6_i32.to_ne_bytes());
            builder.input(id, &desc)
        }
    }
}

fn invoke_write(method: &MethodSpec, spec: &LegacySpec) -> RequestBuilder {
    let builder = RequestBuilder::new(method, DriverId::MLX5)
        .input(ids::UVERBS_ATTR_CORE_IN, &core_in(spec))
        .output(ids::UVERBS_ATTR_CORE_OUT, OUT, out_len(spec))
        .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd);
    if spec.takes_uhw {
        builder.input(ids::UVERBS_ATTR_UHW_IN, &[1; 16]).output(ids::UVERBS_ATTR_UHW_OUT, OUT, 32)
    } else {
        builder
    }
}

fn out_len(spec: &LegacySpec) -> u16 {
    // Room for two of POLL_CQ's.
    let wcs = if spec.trailing_wcs { 2 * 48 } else { 0 };
    u16::try_from(spec.resp_size() + wcs).unwrap()
}

/// The structure of a command, with handles 1 and descriptor 5, and what follows it.
fn core_in(spec: &LegacySpec) -> Vec<u8> {
    let mut bytes = vec![0; spec.req_size()];
    let mut put = |path: &str, value: u64| {
        if let Some(field) = spec.req.field(path) {
            let (offset, size) = (usize::from(field.offset), usize::from(field.size));
            bytes[offset..offset + size].copy_from_slice(&value.to_ne_bytes()[..size]);
        }
    };
    put("response", OUT.0);
    spec.handles.iter().filter(|field| !field.in_resp).for_each(|field| put(field.path, 1));
    spec.fds.iter().filter(|field| !field.in_resp).for_each(|field| put(field.path, 5));
    put("ne", 2);
    put("qp_type", 2);
    let mut tail = Vec::new();
    match spec.trailing_in {
        Trailing::None => {}
        Trailing::SendWrs | Trailing::RecvWrs => {
            let len = if spec.trailing_in == Trailing::SendWrs { 56 } else { 16 };
            put("wr_count", 1);
            put("sge_count", 1);
            put("wqe_size", len);
            tail.resize(usize::try_from(len).unwrap() + 16, 1);
        }
        Trailing::FlowSpecs => {
            put("flow_attr.num_of_specs", 1);
            put("flow_attr.size", 16);
            // IB_FLOW_SPEC_ACTION_HANDLE: header of type and size, then the handle.
            tail.extend(0x1002_u32.to_ne_bytes());
            tail.extend([16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        }
        Trailing::WqHandles => {
            put("log_ind_tbl_size", 1);
            tail.extend([1, 0, 0, 0, 2, 0, 0, 0]);
        }
    }
    bytes.extend(tail);
    bytes
}

/// For each command the bytes of a `write`.
#[must_use]
pub fn writes() -> Vec<(String, Vec<u8>)> {
    legacy::commands().iter().map(|spec| (spec.name.to_owned(), write(spec))).collect()
}

fn write(spec: &LegacySpec) -> Vec<u8> {
    let mut core = core_in(spec);
    let uhw: &[u8] = if spec.takes_uhw { &[1; 16] } else { &[] };
    let out = out_len(spec);
    let mut bytes = u32::try_from(spec.write_cmd).unwrap().to_ne_bytes().to_vec();
    let words = |len: usize, size: usize| u16::try_from(len.div_ceil(size)).unwrap().to_ne_bytes();
    if spec.extended {
        core.resize(core.len().next_multiple_of(8), 0);
        bytes.extend(words(core.len(), 8));
        bytes.extend(words(out.into(), 8));
        let response = if out == 0 { 0 } else { OUT.0 };
        bytes.extend(response.to_ne_bytes());
        bytes.extend(words(uhw.len(), 8));
        bytes.extend([0; 6]);
    } else {
        core.resize(core.len().next_multiple_of(4), 0);
        bytes.extend(words(8 + core.len() + uhw.len(), 4));
        bytes.extend(words(out.into(), 4));
    }
    bytes.extend(core);
    bytes.extend(uhw);
    bytes
}

/// Calls that the filter has rules for, on both architectures.
#[must_use]
pub fn calls() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    calls_of::<X86_64>(0, "x86_64", &mut seeds);
    calls_of::<Aarch64>(1, "aarch64", &mut seeds);
    seeds
}

fn calls_of<A: Arch>(which: u8, name: &str, seeds: &mut Vec<(String, Vec<u8>)>) {
    let n = A::NUMBERS;
    let verbs = u64::from(verbgate_sys::arch::RDMA_VERBS_IOCTL);
    let fd = u64::from(FDS.first);
    let (base, slot) = (ADDRS.base(), ADDRS.slot(0));
    let calls: [(&str, u8, u32, [u64; 6]); 19] = [
        ("ioctl", 0, n.ioctl, [fd, verbs, 0x7000, 0, 0, 0]),
        ("ioctl-32", 2 + 4, n.ioctl, [fd, verbs, 0x7000, 0, 0, 0]),
        ("ioctl-x32", 3, n.ioctl, [fd, verbs, 0x7000, 0, 0, 0]),
        ("openat", 0, n.openat, [0, 0x7000, 0o2_000_002, 0, 0, 0]),
        ("openat2", 0, n.openat2, [0, 0x7000, 0x7000, 24, 0, 0]),
        ("write", 0, n.write, [fd, 0x7000, 24, 0, 0, 0]),
        ("dup3", 0, n.dup3, [3, fd, 0, 0, 0, 0]),
        ("close_range", 0, n.close_range, [3, u64::from(u32::MAX), 0, 0, 0, 0]),
        ("socket", 0, n.socket, [16, 3, 20, 0, 0, 0]),
        ("bind", 0, n.sockets.bind, [fd, 0x7000, 12, 0, 0, 0]),
        ("mmap", 0, n.mmap, [slot, 0x1000, 3, 0x32, u64::MAX, 0]),
        ("munmap-long", 0, n.munmap, [0x1000, base, 0, 0, 0, 0]),
        ("munmap-longer", 0, n.munmap, [0x1000, 1 << 48, 0, 0, 0, 0]),
        ("process_madvise", 0, n.process_madvise, [3, 0x7000, 1, 4, 0, 0]),
        ("mremap", 0, n.mremap, [0x1000, 0x1000, 0x1000, 3, slot, 0]),
        ("shmat", 0, n.shmat, [1, base, 0o40000, 0, 0, 0]),
        ("prctl", 0, n.prctl, [35, 1, 0, 0, 0, 0]),
        ("ptrace", 0, n.ptrace, [0x4206, 1, 0, 0, 0, 0]),
        ("setuid", 0, n.credentials.first().map_or(0, |(_, nr)| *nr), [1; 6]),
    ];
    let mut add = |call: &str, how: u8, nr: u32, args: [u64; 6]| {
        let mut bytes = vec![which, how];
        bytes.extend(u16::try_from(nr).unwrap().to_ne_bytes());
        bytes.extend(args.iter().flat_map(|arg| arg.to_ne_bytes()));
        seeds.push((format!("{name}-{call}"), bytes));
    };
    for (call, how, nr, args) in calls {
        add(call, how, nr, args);
    }
    // One of each rule of the table, so that none can be made that is not judged here.
    for (at, rule) in rules::native::<A>().iter().enumerate() {
        add(&format!("rule-{at}-{}", rule.name), 0, rule.nr, meets(rule.when));
    }
}

/// Arguments that a rule is about.
fn meets(when: When) -> [u64; 6] {
    let mut args = [0; 6];
    let fd = u64::from(FDS.first);
    let words: &[Word] = match when {
        When::Always => &[],
        When::Words(words) => words,
        When::Fd(at) => {
            args[at as usize] = fd;
            &[]
        }
        When::FdWords(at, words) => {
            args[at as usize] = fd;
            words
        }
        When::FdRange => {
            (args[0], args[1]) = (fd, fd);
            &[]
        }
        When::SharesFile => {
            (args[1], args[3], args[4]) = (0x1000, 1, fd);
            &[]
        }
        When::Range { addr, len } => {
            (args[addr as usize], args[len as usize]) = (ADDRS.slot(0), 0x1000);
            &[]
        }
    };
    for word in words {
        args[word.arg as usize] = u64::from(word.value);
    }
    args
}
