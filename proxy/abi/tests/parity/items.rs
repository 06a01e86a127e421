//! The tables' statements, as C expressions.

use std::collections::BTreeMap;
use std::mem::offset_of;

use verbgate_abi::cm;
use verbgate_abi::cm::Also;
use verbgate_abi::cm::Length;
use verbgate_abi::legacy;
use verbgate_abi::legacy::FieldType;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::legacy::StructSpec;
use verbgate_abi::qp_types;
use verbgate_abi::qp_types::QpType;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::Kernels;
use verbgate_abi::table::Provider;
use verbgate_abi::wire;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::AttrFlags;
use verbgate_abi::wire::BufferDesc;
use verbgate_abi::wire::CmdHdr;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::ExCmdHdr;
use verbgate_abi::wire::IoctlHdr;
use verbgate_abi_gen::facts::Facts;

/// What is compared, for the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Objects, methods, attributes, commands, drivers, constants.
    Id,
    /// Sizes of structures and fields.
    Size,
    /// Sizes of drivers' structures, which grow: [`Item::or`].
    PrivateSize,
    /// Offsets of fields.
    Offset,
}

/// A constant expression and the value that the tables have for it.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) expr: String,
    pub(crate) want: u64,
    /// And what older kernels have: a driver's structure grows, and no check rests on its size.
    pub(crate) or: Vec<u64>,
    /// Kernels that have it, where the tables say so.
    pub(crate) kernels: Option<Kernels>,
}

impl Item {
    pub(crate) fn new(kind: Kind, expr: &str, want: u64) -> Self {
        Self { kind, expr: expr.to_owned(), want, or: Vec::new(), kernels: None }
    }

    /// Whether a value of the headers' is right.
    pub(crate) fn agrees(&self, value: u64) -> bool {
        value == self.want || self.or.contains(&value)
    }
}

/// Collects items, each once.
#[derive(Default)]
struct Items(BTreeMap<(Kind, String), Item>);

impl Items {
    fn add(&mut self, kind: Kind, expr: &str, want: u64) {
        self.put(Item::new(kind, expr, want));
    }

    fn put(&mut self, item: Item) {
        let key = (item.kind, item.expr.clone());
        let known = self.0.entry(key).or_insert_with(|| item.clone());
        let expr = &item.expr;
        assert_eq!(known.want, item.want, "the tables disagree with themselves on {expr}");
        // An id that several methods share is as old as the oldest of them.
        known.kernels = match (known.kernels, item.kernels) {
            (Some(a), Some(b)) => Some(a | b),
            (a, b) => a.or(b),
        };
    }

    fn id(&mut self, name: &str, want: u64) {
        self.add(Kind::Id, name, want);
    }

    /// An id that these kernels have.
    fn id_of(&mut self, name: &str, want: u64, kernels: Kernels) {
        self.put(Item { kernels: Some(kernels), ..Item::new(Kind::Id, name, want) });
    }

    fn size(&mut self, of: &str, want: usize) {
        self.add(Kind::Size, &format!("sizeof({of})"), want.try_into().unwrap());
    }

    /// A field by its dotted path; one of size 0 has no end, like `driver_data[]`.
    fn field(&mut self, structure: &str, path: &str, offset: u16, size: u16) {
        let expr = format!("offsetof(struct {structure}, {path})");
        self.add(Kind::Offset, &expr, offset.into());
        if size != 0 {
            self.size(&format!("((struct {structure} *)0)->{path}"), size.into());
        }
    }

    fn into_vec(self) -> Vec<Item> {
        self.0.into_values().collect()
    }
}

/// Of the connection manager's commands: the structure, and the response's.
const CM: &[(&str, &str, &str)] = &[
    ("CREATE_ID", "create_id", "create_id_resp"),
    ("DESTROY_ID", "destroy_id", "destroy_id_resp"),
    ("BIND_IP", "bind_ip", ""),
    ("RESOLVE_IP", "resolve_ip", ""),
    ("RESOLVE_ROUTE", "resolve_route", ""),
    ("QUERY_ROUTE", "query", "query_route_resp"),
    ("CONNECT", "connect", ""),
    ("LISTEN", "listen", ""),
    ("ACCEPT", "accept", ""),
    ("REJECT", "reject", ""),
    ("DISCONNECT", "disconnect", ""),
    ("INIT_QP_ATTR", "init_qp_attr", ""),
    ("GET_EVENT", "get_event", "event_resp"),
    ("SET_OPTION", "set_option", ""),
    ("NOTIFY", "notify", ""),
    ("JOIN_IP_MCAST", "join_ip_mcast", "create_id_resp"),
    ("LEAVE_MCAST", "destroy_id", "destroy_id_resp"),
    ("MIGRATE_ID", "migrate_id", "migrate_resp"),
    ("QUERY", "query", ""),
    ("BIND", "bind", ""),
    ("RESOLVE_ADDR", "resolve_addr", ""),
    ("JOIN_MCAST", "join_mcast", "create_id_resp"),
    ("RESOLVE_IB_SERVICE", "resolve_ib_service", ""),
    ("WRITE_CM_EVENT", "write_cm_event", ""),
];

fn connection_manager(items: &mut Items) {
    for (number, spec) in cm::COMMANDS.iter().enumerate() {
        let Some(spec) = spec else { continue };
        let named = |(name, ..): &&(&str, &str, &str)| spec.name == format!("CM_{name}");
        let (name, structure, response) = CM.iter().find(named).expect("a structure");
        let structure = format!("rdma_ucm_{structure}");
        items.id(&format!("RDMA_USER_CM_CMD_{name}"), number.try_into().unwrap());
        items.size(&format!("struct {structure}"), spec.len);
        let mut field = |path: &str, at: usize, size| {
            items.field(&structure, path, at.try_into().unwrap(), size);
        };
        if let Some(at) = spec.id {
            field("id", at, 4);
        }
        if let Some((at, _)) = spec.response {
            field("response", at, 8);
        }
        match spec.also {
            Also::Value(at, len) => {
                field("optval", at, 8);
                field("optlen", len, 4);
            }
            Also::File(at) => field("fd", at, 4),
            _ => {}
        }
        match spec.response {
            Some((_, Length::Fixed(len))) if *name == "INIT_QP_ATTR" => {
                items.size("struct ib_uverbs_qp_attr", len);
            }
            Some((_, Length::Fixed(len))) => {
                items.size(&format!("struct rdma_ucm_{response}"), len)
            }
            _ => {}
        }
    }
    items.size("struct rdma_ucm_cmd_hdr", cm::HDR_LEN);
    items.size("struct rdma_ucm_query_addr_resp", cm::QUERY_ADDR_LEN);
    items.size("struct rdma_ucm_query_path_resp", cm::QUERY_FIXED);
    items.size("struct ib_path_rec_data", cm::PATH_RECORD);
    items.size("struct rdma_ucm_query_ib_service_resp", cm::QUERY_FIXED);
    items.size("struct ib_user_service_rec", cm::SERVICE_RECORD);
    items.id("RDMA_USER_CM_QUERY_ADDR", cm::QUERY_ADDR.into());
}

/// Everything.
pub(crate) fn all() -> Vec<Item> {
    let mut items = Items::default();
    wire_format(&mut items);
    connection_manager(&mut items);
    methods(&mut items);
    legacy::structs().iter().for_each(|spec| structure(&mut items, spec));
    legacy::commands().iter().for_each(|spec| command(&mut items, spec));
    private_inputs(&mut items);
    constants(&mut items);
    items.into_vec()
}

/// What the library has names for: the structures that it shares with the kernel, and its own
/// names of constants.
pub(crate) fn of_libibverbs() -> Vec<Item> {
    let mut items = Items::default();
    for method in table::methods() {
        method.attrs.iter().for_each(|attr| type_of(&mut items, attr));
    }
    items.id("IBV_QPT_DRIVER", qp_types::DRIVER);
    for QpType { name, value, .. } in core_qp_types() {
        items.id(&format!("IB_UVERBS_QPT_{name}"), value);
        // The library has other words for two of them.
        let own = match name {
            "XRC_INI" => "XRC_SEND",
            "XRC_TGT" => "XRC_RECV",
            other => other,
        };
        items.id(&format!("IBV_QPT_{own}"), value);
    }
    items.id("IBV_FLOW_SPEC_ACTION_HANDLE", legacy::FLOW_SPEC_ACTION_HANDLE);
    items.id("IBV_FLOW_SPEC_ACTION_COUNT", legacy::FLOW_SPEC_ACTION_COUNT);
    drivers(&mut items);
    items.into_vec()
}

fn wire_format(items: &mut Items) {
    items.id("RDMA_VERBS_IOCTL", wire::RDMA_VERBS_IOCTL.into());
    items.id("UVERBS_ATTR_F_MANDATORY", AttrFlags::MANDATORY.bits().into());
    items.id("UVERBS_ATTR_F_VALID_OUTPUT", AttrFlags::VALID_OUTPUT.bits().into());
    items.id("1 << UVERBS_ID_NS_SHIFT", wire::DRIVER_NS.into());
    items.id("IB_USER_VERBS_CMD_FLAG_EXTENDED", wire::CMD_FLAG_EXTENDED.into());
    items.id("IB_USER_VERBS_CMD_COMMAND_MASK", wire::CMD_COMMAND_MASK.into());
    items.id("IB_UVERBS_BUFFER_TYPE_DMABUF", BufferDesc::DMABUF.into());
    items.id("IB_UVERBS_BUFFER_TYPE_VA", BufferDesc::VA.into());
    items.size("((struct ib_uverbs_attr *)0)->data", wire::INLINE_LEN);
    let elem = offset_of!(Attr, attr_data);
    let mut layout = |name: &str, size: usize, fields: &[(&str, usize)]| {
        items.size(&format!("struct {name}"), size);
        for (field, offset) in fields {
            let expr = format!("offsetof(struct {name}, {field})");
            items.add(Kind::Offset, &expr, (*offset).try_into().unwrap());
        }
    };
    #[rustfmt::skip]
    layout("ib_uverbs_ioctl_hdr", wire::HDR_LEN, &[
        ("length", offset_of!(IoctlHdr, length)),
        ("object_id", offset_of!(IoctlHdr, object_id)),
        ("method_id", offset_of!(IoctlHdr, method_id)),
        ("num_attrs", offset_of!(IoctlHdr, num_attrs)),
        ("reserved1", offset_of!(IoctlHdr, reserved1)),
        ("driver_id", offset_of!(IoctlHdr, driver_id)),
        ("reserved2", offset_of!(IoctlHdr, reserved2)),
        ("attrs", wire::HDR_LEN),
    ]);
    #[rustfmt::skip]
    layout("ib_uverbs_attr", wire::ATTR_LEN, &[
        ("attr_id", offset_of!(Attr, attr_id)),
        ("len", offset_of!(Attr, len)),
        ("flags", offset_of!(Attr, flags)),
        ("attr_data.reserved", elem),
        ("attr_data.enum_data.elem_id", elem),
        ("attr_data.enum_data.reserved", elem + 1),
        ("data", offset_of!(Attr, data)),
        ("data_s64", offset_of!(Attr, data)),
    ]);
    #[rustfmt::skip]
    layout("ib_uverbs_cmd_hdr", size_of::<CmdHdr>(), &[
        ("command", offset_of!(CmdHdr, command)),
        ("in_words", offset_of!(CmdHdr, in_words)),
        ("out_words", offset_of!(CmdHdr, out_words)),
    ]);
    #[rustfmt::skip]
    layout("ib_uverbs_ex_cmd_hdr", size_of::<ExCmdHdr>(), &[
        ("response", offset_of!(ExCmdHdr, response)),
        ("provider_in_words", offset_of!(ExCmdHdr, provider_in_words)),
        ("provider_out_words", offset_of!(ExCmdHdr, provider_out_words)),
        ("cmd_hdr_reserved", offset_of!(ExCmdHdr, reserved)),
    ]);
    #[rustfmt::skip]
    layout("ib_uverbs_buffer_desc", size_of::<BufferDesc>(), &[
        ("type", offset_of!(BufferDesc, r#type)),
        ("fd", offset_of!(BufferDesc, fd)),
        ("flags", offset_of!(BufferDesc, flags)),
        ("optional_flags", offset_of!(BufferDesc, optional_flags)),
        ("addr", offset_of!(BufferDesc, addr)),
        ("length", offset_of!(BufferDesc, length)),
    ]);
    drivers(items);
}

fn drivers(items: &mut Items) {
    for number in 0..64 {
        if let Some(name) = DriverId(number).name() {
            items.id(&format!("RDMA_DRIVER_{}", name.to_uppercase()), number.into());
        }
    }
}

fn methods(items: &mut Items) {
    for object in table::objects() {
        items.id_of(object.name, object.object.id.0.into(), object.kernels);
    }
    for method in table::methods() {
        items.id_of(method.name, method.id.0.into(), method.kernels);
        for attr in method.attrs {
            items.id_of(attr.name, attr.id.0.into(), attr.kernels);
            type_of(items, attr);
        }
    }
}

/// Least and greatest size of an attribute whose kernel declaration names a structure.
fn type_of(items: &mut Items, attr: &AttrSpec) {
    let (min, max) = match attr.kind {
        AttrKind::PtrIn { min, max, .. } | AttrKind::PtrOut { min, max, .. } => (min, max),
        AttrKind::Umem => (32, 32),
        _ => return,
    };
    let inside = |prefix: &str| attr.ctype.strip_prefix(prefix)?.strip_suffix(')');
    if let Some(name) = inside("UVERBS_ATTR_TYPE(struct ") {
        assert_eq!(min, max, "{}", attr.name);
        items.size(&format!("struct {name}"), max.into());
    } else if let Some((name, last)) =
        inside("UVERBS_ATTR_STRUCT(struct ").and_then(|args| args.split_once(", "))
    {
        items.size(&format!("struct {name}"), max.into());
        let end = format!("offsetof(struct {name}, {last}) + sizeof(((struct {name} *)0)->{last})");
        items.add(Kind::Offset, &end, min.into());
    } else if let Some(name) = inside("UVERBS_ATTR_MIN_SIZE(sizeof(struct ") {
        items.size(&format!("struct {}", name.trim_end_matches(')')), min.into());
    } else if let Some(name) = inside("UVERBS_ATTR_SIZE(1, sizeof(struct ") {
        assert_eq!(min, 1, "{}", attr.name);
        items.size(&format!("struct {}", name.trim_end_matches(')')), max.into());
    } else if let Some(name) = attr.ctype.strip_prefix("struct ") {
        items.size(&format!("struct {name}"), max.into());
    } else {
        // Kernel types of fixed size (u32), bare lengths, and structures of the firmware's.
        assert!(!attr.ctype.contains("struct "), "{}: {}", attr.name, attr.ctype);
    }
}

fn structure(items: &mut Items, spec: &StructSpec) {
    items.size(&format!("struct {}", spec.name), spec.size.into());
    for field in spec.fields {
        items.field(spec.name, field.name, field.offset, field.size);
        if let FieldType::Nested(inner) = field.ty {
            items.size(&format!("struct {}", inner.name), field.size.into());
        }
    }
}

fn command(items: &mut Items, spec: &LegacySpec) {
    items.id_of(spec.name, spec.number.into(), spec.kernels);
    let structure = |in_resp: bool| match spec.resp {
        Some(resp) if in_resp => resp.name,
        _ => spec.req.name,
    };
    for field in spec.handles {
        items.field(structure(field.in_resp), field.path, field.offset, 4);
        for test in field.when {
            items.field(spec.req.name, test.field, test.offset, test.size);
        }
    }
    for field in spec.fds {
        items.field(structure(field.in_resp), field.path, field.offset, 4);
    }
    for va in spec.user_vas {
        for test in va.when {
            items.field(spec.req.name, test.field, test.offset, test.size);
        }
        // They have no names: they must be fields of 8 bytes.
        for offset in [va.addr, va.len] {
            let at = |field: &legacy::FieldSpec| field.offset == offset && field.size == 8;
            assert!(spec.req.fields.iter().any(at), "{} {offset}", spec.name);
        }
    }
    if spec.has_resp {
        items.field(spec.req.name, "response", 0, 8);
    }
}

fn private_inputs(items: &mut Items) {
    let facts = Facts::parse(include_str!("../../data/uverbs_methods.json")).unwrap();
    // The structure of usnic is in no exported header, and that of hfi1 has no name.
    let exported = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    for spec in legacy::uhw_specs() {
        if spec.drivers.contains(&DriverId::USNIC) || !exported(spec.name) {
            continue;
        }
        let expr = format!("sizeof(struct {})", spec.name);
        let older = facts.private_structs[spec.name].older_sizes.values();
        let or = older.map(|size| u64::from(*size)).collect();
        items.put(Item { or, ..Item::new(Kind::PrivateSize, &expr, spec.size.into()) });
        for field in spec.fields {
            items.field(spec.name, field.name, field.offset, field.size);
        }
    }
}

fn constants(items: &mut Items) {
    let as_size = |value: u64| usize::try_from(value).unwrap();
    items.size("struct ib_uverbs_wc", as_size(legacy::WC_LEN));
    items.size("struct ib_uverbs_sge", as_size(legacy::SGE_LEN));
    items.size("struct ib_uverbs_send_wr", as_size(legacy::SEND_WR_LEN));
    items.size("struct ib_uverbs_recv_wr", as_size(legacy::RECV_WR_LEN));
    items.size("struct ib_uverbs_flow_spec_hdr", legacy::FLOW_SPEC_HDR_LEN);
    items.id("IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE", legacy::MAX_LOG_IND_TBL_SIZE);
    items.id("IB_UVERBS_QPT_DRIVER", qp_types::DRIVER);
    for QpType { name, value, .. } in core_qp_types() {
        items.id(&format!("IB_UVERBS_QPT_{name}"), value);
    }
}

/// The types that the kernel's headers name.
fn core_qp_types() -> impl Iterator<Item = QpType> {
    qp_types::QP_TYPES.into_iter().filter(|known| known.provider == Provider::Core)
}
