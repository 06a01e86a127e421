//! Valid requests, made from the ABI tables and a list of values.

use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::legacy::FieldSpec;
use verbgate_abi::legacy::FieldType;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::legacy::StructSpec;
use verbgate_abi::legacy::Trailing;
use verbgate_abi::table;
use verbgate_abi::table::Access;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::FdPayload;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::IoctlHdr;
use zerocopy::IntoBytes;

use super::draft::Bytes;
use super::draft::Draft;
use super::draft::Field;
use super::draft::Form;
use super::draft::MEM;
use super::draft::Made;
use super::draft::OUT;
use super::draft::Part;
use super::draft::Put;
use super::draft::SlotId;
use super::draft::Value;
use super::written::written;
use verbgate_hostile::Random;

/// The device's own.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Its driver.
    pub driver: DriverId,
    /// A GID by which it reaches itself.
    pub gid: [u8; 16],
    /// Its index.
    pub gid_index: u8,
    /// Ucontexts are made by the method alone: Linux 7.2 takes the `WRITE_CMD` of an INVOKE_WRITE
    /// for the attribute of the same number that GET_CONTEXT has there, an array of descriptors.
    pub context_by_method: bool,
}

/// How many objects of a kind a script keeps the numbers of.
const SLOTS_OF_A_KIND: usize = 4;
/// Space for the answers of drivers. rxe's longest is 32 bytes.
const UHW_OUT: u64 = OUT + 0x1000;
const UHW_OUT_LEN: u16 = 64;
/// The MODIFY_SRQ of rxe takes an address to which it writes.
const NESTED_OUT: u64 = OUT + 0x1800;

/// Values of fields and attributes by the kernel's names; what is not named is zero.
type Values = &'static [(&'static str, u64)];

/// For every operation: sizes small enough to cost nothing, numbers that exist.
#[rustfmt::skip]
const COMMON: Values = &[
    ("port_num", 1), ("is_global", 1), ("hop_limit", 64), ("start", MEM), ("hca_va", MEM), ("length", 0x2000), ("cqe", 16),
    ("max_wr", 16), ("max_sge", 1), ("max_send_wr", 8), ("max_recv_wr", 8), ("max_send_sge", 1), ("max_recv_sge", 1),
    ("ne", 2), ("oflags", 0o100), ("path_mtu", 3), ("rq_psn", 7), ("sq_psn", 7), ("min_rnr_timer", 12), ("timeout", 14), ("retry_cnt", 3),
    ("dest_qp_num", 17), ("qkey", 0x1111_1111), ("port", 1), ("priority", 0), ("max_recv_sges", 1),
    ("UVERBS_ATTR_CREATE_CQ_CQE", 16), ("UVERBS_ATTR_QUERY_PORT_PORT_NUM", 1), ("UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM", 1),
    ("UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE", 32), ("UVERBS_ATTR_QUERY_GID_ENTRY_PORT", 1), ("UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX", 1),
    ("UVERBS_ATTR_CREATE_SRQ_MAX_WR", 16), ("UVERBS_ATTR_CREATE_SRQ_MAX_SGE", 1), ("UVERBS_ATTR_CREATE_WQ_MAX_WR", 16), ("UVERBS_ATTR_CREATE_WQ_MAX_SGE", 1),
    ("UVERBS_ATTR_REG_MR_ADDR", MEM), ("UVERBS_ATTR_REG_MR_IOVA", MEM), ("UVERBS_ATTR_REG_MR_LENGTH", 0x2000), ("UVERBS_ATTR_REG_MR_ACCESS_FLAGS", 7),
    ("UVERBS_ATTR_REG_DMABUF_MR_LENGTH", 0x1000), ("UVERBS_ATTR_ALLOC_DM_LENGTH", 0x1000), ("UVERBS_ATTR_REG_DM_MR_LENGTH", 0x1000), ("UVERBS_ATTR_ALLOC_DMABUF_PGOFF", 0),
];

/// Ways to make a request that need values together; one is chosen at random.
#[rustfmt::skip]
const VARIANTS: &[(&str, Values)] = &[
    ("REG_MR", &[("access_flags", 7)]),
    ("REG_MR", &[("access_flags", 0)]),
    ("REREG_MR", &[("flags", 4), ("access_flags", 1)]),
    ("REREG_MR", &[("flags", 2)]),
    ("REREG_MR", &[("flags", 1), ("length", 0x1000)]),
    ("ALLOC_MW", &[("mw_type", 1)]),
    ("ALLOC_MW", &[("mw_type", 2)]),
    ("CREATE_QP", &[("qp_type", 2)]),
    ("CREATE_QP", &[("qp_type", 3)]),
    ("CREATE_QP", &[("qp_type", 4)]),
    ("CREATE_QP", &[("qp_type", 2), ("is_srq", 1)]),
    ("CREATE_QP", &[("qp_type", 8)]),
    ("CREATE_QP", &[("qp_type", 9)]),
    ("CREATE_QP", &[("qp_type", 10)]),
    ("QP_CREATE", &[("UVERBS_ATTR_CREATE_QP_TYPE", 2)]),
    ("QP_CREATE", &[("UVERBS_ATTR_CREATE_QP_TYPE", 3)]),
    ("QP_CREATE", &[("UVERBS_ATTR_CREATE_QP_TYPE", 4)]),
    ("QUERY_QP", &[("attr_mask", 0xf_ffff)]),
    // INIT of a connected queue pair, and of a datagram one.
    ("MODIFY_QP", &[("attr_mask", 0x39), ("qp_state", 1), ("qp_access_flags", 7)]),
    ("MODIFY_QP", &[("attr_mask", 0x71), ("qp_state", 1)]),
    // Ready to receive, ready to send, and back.
    ("MODIFY_QP", &[("attr_mask", 0x12_9181), ("qp_state", 2)]),
    ("MODIFY_QP", &[("attr_mask", 0x1), ("qp_state", 2)]),
    ("MODIFY_QP", &[("attr_mask", 0x1_2e01), ("qp_state", 3)]),
    ("MODIFY_QP", &[("attr_mask", 0x1_0001), ("qp_state", 3)]),
    ("MODIFY_QP", &[("attr_mask", 1), ("qp_state", 6)]),
    ("MODIFY_QP", &[("attr_mask", 1), ("qp_state", 0)]),
    ("MODIFY_SRQ", &[("attr_mask", 2), ("srq_limit", 2)]),
    ("MODIFY_SRQ", &[("attr_mask", 1), ("max_wr", 32)]),
    ("CREATE_XSRQ", &[("srq_type", 0)]),
    ("CREATE_XSRQ", &[("srq_type", 1)]),
    ("SRQ_CREATE", &[("UVERBS_ATTR_CREATE_SRQ_TYPE", 0)]),
    ("SRQ_CREATE", &[("UVERBS_ATTR_CREATE_SRQ_TYPE", 1)]),
    ("RESIZE_CQ", &[("cqe", 32)]),
    ("POST_SEND", &[("wqe_size", 56)]),
    ("POST_SEND", &[("wqe_size", 56), ("wr_count", 1), ("sge_count", 1)]),
    ("POST_RECV", &[("wqe_size", 16)]),
    ("POST_RECV", &[("wqe_size", 16), ("wr_count", 1), ("sge_count", 1)]),
    ("POST_SRQ_RECV", &[("wqe_size", 16), ("wr_count", 2), ("sge_count", 1)]),
    ("OPEN_XRCD", &[("fd", 0xffff_ffff)]),
    ("CREATE_WQ", &[("comp_mask", 0)]),
];

fn variant(rng: &mut Random, operation: &str) -> Values {
    let operation = operation.strip_prefix("EX_").unwrap_or(operation);
    let of_it: Vec<Values> =
        VARIANTS.iter().filter(|(name, _)| *name == operation).map(|(_, values)| *values).collect();
    rng.pick(&of_it).copied().unwrap_or(&[])
}

fn value(values: Values, name: &str) -> u64 {
    let named = values.iter().chain(COMMON).find(|(known, _)| *known == name);
    named.map_or(0, |(_, value)| *value)
}

/// The slot of an object that a request uses: mostly the first of its kind, which every script
/// makes.
pub fn used(rng: &mut Random, object: ObjectRef) -> SlotId {
    let place = if rng.percent(70) { 0 } else { rng.below(SLOTS_OF_A_KIND) };
    slot(object, place)
}

/// The slot of an object that a request destroys: mostly another than the first, which others need.
fn destroyed(rng: &mut Random, object: ObjectRef) -> SlotId {
    let place = if rng.percent(10) { 0 } else { 1 + rng.below(SLOTS_OF_A_KIND - 1) };
    slot(object, place)
}

/// A slot of a kind.
pub fn slot(object: ObjectRef, place: usize) -> SlotId {
    SlotId(usize::from(object.id.0) * SLOTS_OF_A_KIND + place)
}

/// What a request is made with.
#[derive(Debug)]
pub struct Catalogue<'a> {
    /// The device.
    pub device: &'a Device,
    /// Where the numbers of new objects go; none for a place at random.
    pub first: bool,
    /// In how many cases of a hundred an optional attribute is named.
    pub optional: usize,
}

/// The ways to make a legacy command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// By the ioctl.
    Invoke,
    /// By `write(2)`.
    Write,
}

impl Catalogue<'_> {
    /// Every core method but INVOKE_WRITE.
    pub fn methods() -> Vec<&'static MethodSpec> {
        let all = table::methods().iter();
        let core = all.filter(|m| m.provider == Provider::Core && !m.is_invoke_write());
        core.filter(|m| m.object.provider == Provider::Core).collect()
    }

    fn new_slot(&self, rng: &mut Random, object: ObjectRef) -> SlotId {
        slot(object, if self.first { 0 } else { 1 + rng.below(SLOTS_OF_A_KIND - 1) })
    }

    /// A request for a method.
    pub fn method(&self, rng: &mut Random, method: &'static MethodSpec) -> Draft {
        let values = variant(rng, method.short_name());
        let mut made = Vec::new();
        let mut parts = Vec::new();
        let mut out = OUT;
        for spec in method.attrs_of(self.device.driver) {
            let wanted = spec.mandatory || spec.is_uhw_out() || rng.percent(self.optional);
            if !wanted || spec.is_uhw_in() {
                continue;
            }
            let part = self.part(rng, spec, values, &mut out);
            if let Some((object, Access::New)) = spec.object() {
                made.push(Made::Attr(spec.id.0, self.new_slot(rng, object)));
            }
            parts.push(part);
        }
        let hdr = self.header(method);
        let name = format!("{}.{}", method.object.name(), method.short_name());
        Draft { made, ..Draft::new(name, Form::Ioctl(hdr, parts)) }
    }

    fn header(&self, method: &MethodSpec) -> IoctlHdr {
        IoctlHdr {
            object_id: method.object.id.0,
            method_id: method.id.0,
            driver_id: self.device.driver.0,
            ..IoctlHdr::default()
        }
    }

    fn part(
        &self,
        rng: &mut Random,
        spec: &'static AttrSpec,
        values: Values,
        out: &mut u64,
    ) -> Part {
        let mut attr = Attr { attr_id: spec.id.0, flags: 1, ..Attr::default() };
        let number = value(values, spec.name);
        let value = match spec.kind {
            AttrKind::PtrIn { .. } if spec.name == "UVERBS_ATTR_CREATE_QP_CAP" => {
                let cap: [u32; 5] = [8, 8, 1, 1, 0];
                Value::Input(Bytes { bytes: cap.as_bytes().to_vec(), puts: Vec::new() })
            }
            AttrKind::PtrIn { .. } if spec.fd_payload != FdPayload::None => {
                let slot = used(rng, ids::UVERBS_OBJECT_COMP_CHANNEL);
                let puts = vec![Put { offset: 0, slot, width: 4 }];
                Value::Input(Bytes { bytes: vec![0; 4], puts })
            }
            AttrKind::PtrIn { min, .. } => {
                let mut bytes = number.to_ne_bytes().to_vec();
                bytes.resize(min.into(), 0);
                Value::Input(Bytes { bytes, puts: Vec::new() })
            }
            AttrKind::EnumIn { elems } => {
                let elem = rng.below(elems.len());
                let len = elems.get(elem).map_or(0, |elem| elem.min);
                attr.attr_data = u16::try_from(elem).unwrap_or_default();
                Value::Input(Bytes { bytes: vec![0; len.into()], puts: Vec::new() })
            }
            AttrKind::ConstIn | AttrKind::FlagsIn => {
                attr.len = 8;
                Value::Word(number)
            }
            AttrKind::PtrOut { min, .. } => {
                attr.len = if spec.is_uhw_out() { UHW_OUT_LEN } else { min.max(32) };
                if let AttrKind::PtrOut { max, zero_trailing: false, .. } = spec.kind {
                    attr.len = attr.len.min(max);
                }
                let at = if spec.is_uhw_out() { UHW_OUT } else { *out };
                *out += u64::from(attr.len).next_multiple_of(8) + 8;
                Value::Word(at)
            }
            AttrKind::Idr { access: Access::New, .. }
            | AttrKind::Fd { access: Access::New, .. } => Value::Word(0),
            AttrKind::Idr { object, access: Access::Destroy } => {
                Value::Slot(destroyed(rng, object))
            }
            AttrKind::Idr { object, .. } | AttrKind::Fd { object, .. } => {
                Value::Slot(used(rng, object))
            }
            AttrKind::RawFd => Value::Slot(used(rng, ids::UVERBS_OBJECT_COMP_CHANNEL)),
            AttrKind::IdrsArray { object, .. } => {
                let puts = vec![Put { offset: 0, slot: used(rng, object), width: 4 }];
                Value::Input(Bytes { bytes: vec![0; 4], puts })
            }
            AttrKind::Umem => {
                let words: [u64; 4] = [1, 0, MEM, 0x1000];
                Value::Input(Bytes { bytes: words.as_bytes().to_vec(), puts: Vec::new() })
            }
        };
        if let Value::Input(input) = &value {
            attr.len = u16::try_from(input.bytes.len()).unwrap_or(u16::MAX);
        }
        Part { name: spec.name, attr, value }
    }

    /// A request for a legacy command.
    pub fn command(&self, rng: &mut Random, spec: &'static LegacySpec, way: Way) -> Draft {
        let values = variant(rng, spec.short_name);
        let mut core = self.core_in(rng, spec, values);
        let wcs = if spec.trailing_wcs { value(values, "ne") * legacy::WC_LEN } else { 0 };
        let core_out = spec.resp_size() + usize::try_from(wcs).unwrap_or_default();
        let uhw_in = match spec.short_name {
            "MODIFY_SRQ" => NESTED_OUT.to_ne_bytes().to_vec(),
            _ => Vec::new(),
        };
        let uhw_out = if spec.takes_uhw && spec.resp.is_some() { UHW_OUT_LEN } else { 0 };
        let mut made = Vec::new();
        for field in spec.handles.iter().filter(|field| field.in_resp) {
            let slot = self.new_slot(rng, field.object);
            made.push(Made::At(OUT + u64::from(field.offset), slot));
        }
        for field in spec.fds.iter().filter(|field| field.in_resp) {
            let slot = self.new_slot(rng, field.object.unwrap_or(ids::UVERBS_OBJECT_ASYNC_EVENT));
            made.push(Made::At(OUT + u64::from(field.offset), slot));
        }
        let mut fields = Vec::new();
        flatten(spec.req, 0, &mut fields);
        let form = match way {
            Way::Invoke => self.invoke(spec, core, core_out, uhw_in, uhw_out),
            Way::Write => {
                core.bytes.extend_from_slice(&uhw_in);
                Form::Write(written(spec, core, core_out, uhw_in.len(), uhw_out))
            }
        };
        let core_at = match way {
            Way::Invoke => 0,
            Way::Write if spec.extended => 24,
            Way::Write => 8,
        };
        let way = if way == Way::Invoke { "invoke" } else { "write" };
        Draft { made, fields, core_at, ..Draft::new(format!("{way}.{}", spec.short_name), form) }
    }

    fn core_in(&self, rng: &mut Random, spec: &'static LegacySpec, values: Values) -> Bytes {
        let mut core = Bytes { bytes: vec![0; spec.req_size()], puts: Vec::new() };
        self.fill(spec.req, 0, values, &mut core);
        for field in spec.handles.iter().filter(|field| !field.in_resp) {
            let slot = match field.access {
                Access::Destroy => destroyed(rng, field.object),
                _ => used(rng, field.object),
            };
            core.puts.push(Put { offset: field.offset.into(), slot, width: 4 });
        }
        for field in spec.fds.iter().filter(|field| !field.in_resp) {
            let none = field.none != legacy::NoFd::Never && rng.percent(50);
            let offset = field.offset.into();
            match field.object {
                Some(object) if !none => {
                    core.puts.push(Put { offset, slot: used(rng, object), width: 4 });
                }
                _ => core.set(offset, &u32::MAX.to_ne_bytes()),
            }
        }
        let count = |name| usize::try_from(value(values, name)).unwrap_or_default();
        match spec.trailing_in {
            Trailing::SendWrs | Trailing::RecvWrs => {
                for _ in 0..count("wr_count") {
                    let start = core.bytes.len();
                    core.bytes.resize(start + count("wqe_size"), 0);
                    // num_sge: of a send behind wr_id, of a receive, too.
                    core.set(start + 8, &1_u32.to_ne_bytes());
                }
                for _ in 0..count("sge_count") {
                    core.bytes.extend_from_slice(&MEM.to_ne_bytes());
                    core.bytes.extend_from_slice(&[64, 0, 0, 0, 0, 0, 0, 0]);
                }
            }
            // One handle, padded to whole words of 8 bytes.
            Trailing::WqHandles => core.bytes.extend_from_slice(&[0; 8]),
            Trailing::FlowSpecs | Trailing::None => {}
        }
        core
    }

    fn fill(&self, of: &'static StructSpec, base: usize, values: Values, into: &mut Bytes) {
        for field in of.fields {
            let FieldSpec { name, ty, offset, size, .. } = field;
            let at = base + usize::from(*offset);
            match (ty, *name) {
                (FieldType::Nested(inner), _) => self.fill(inner, at, values, into),
                (_, "dgid") => into.set(at, &self.device.gid),
                (_, "gid") => into.set(at, &MULTICAST),
                (_, "sgid_index") => into.set(at, &[self.device.gid_index]),
                (FieldType::Trailing, _) => {}
                _ => {
                    let bytes = value(values, name).to_ne_bytes();
                    into.set(at, bytes.get(..usize::from(*size).min(8)).unwrap_or_default());
                }
            }
        }
    }

    fn invoke(
        &self,
        spec: &LegacySpec,
        core: Bytes,
        core_out: usize,
        uhw_in: Vec<u8>,
        uhw_out: u16,
    ) -> Form {
        let part = |id: u16, name, len: usize, value| {
            let len = u16::try_from(len).unwrap_or(u16::MAX);
            Part { name, attr: Attr { attr_id: id, len, flags: 1, ..Attr::default() }, value }
        };
        let mut parts = vec![
            part(0, "CORE_IN", core.bytes.len(), Value::Input(core)),
            part(2, "WRITE_CMD", 8, Value::Word(spec.write_cmd)),
        ];
        if core_out > 0 {
            parts.push(part(1, "CORE_OUT", core_out, Value::Word(OUT)));
        }
        if !uhw_in.is_empty() {
            let input = Value::Input(Bytes { bytes: uhw_in.clone(), puts: Vec::new() });
            parts.push(part(ids::UVERBS_ATTR_UHW_IN.0, "UHW_IN", uhw_in.len(), input));
        }
        if uhw_out > 0 {
            let id = ids::UVERBS_ATTR_UHW_OUT.0;
            parts.push(part(id, "UHW_OUT", uhw_out.into(), Value::Word(UHW_OUT)));
        }
        let hdr = IoctlHdr {
            object_id: ids::UVERBS_OBJECT_DEVICE.id.0,
            method_id: ids::UVERBS_METHOD_INVOKE_WRITE.0,
            driver_id: self.device.driver.0,
            ..IoctlHdr::default()
        };
        Form::Ioctl(hdr, parts)
    }
}

/// The fields of a structure that hold something themselves.
fn flatten(of: &'static StructSpec, base: usize, into: &mut Vec<Field>) {
    for field in of.fields {
        let offset = base + usize::from(field.offset);
        match field.ty {
            FieldType::Nested(inner) => flatten(inner, offset, into),
            FieldType::Trailing => {}
            _ => into.push(Field { name: field.name, offset, size: field.size.into() }),
        }
    }
}

/// A multicast group of IPv4, as a GID.
const MULTICAST: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
