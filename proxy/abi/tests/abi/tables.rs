//! The generated tables are up to date, complete and consistent.

use std::collections::HashSet;
use std::path::Path;

use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::legacy::FieldType;
use verbgate_abi::legacy::StructSpec;
use verbgate_abi::table;
use verbgate_abi::table::Access;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::FdPayload;
use verbgate_abi::table::ObjectClass;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::DRIVER_NS;
use verbgate_abi::wire::DriverId;
use verbgate_abi_gen::annotations::Annotations;
use verbgate_abi_gen::facts::Facts;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

#[test]
fn generated_file_is_up_to_date() {
    let (facts, annotations) = (read("data/uverbs_methods.json"), read("data/annotations.toml"));
    let generated = verbgate_abi_gen::generate(&facts, &annotations).unwrap();
    // Not assert_eq: the difference of 250 KB helps nobody.
    assert!(generated == read("src/generated.rs"), "run `cargo xtask abi generate`");
}

#[test]
fn everything_is_in_the_tables_but_what_is_left_out() {
    let facts = Facts::parse(&read("data/uverbs_methods.json")).unwrap();
    let notes = Annotations::parse(&read("data/annotations.toml")).unwrap();
    let kept = |name: &str| !notes.left_out.contains_key(name);
    let methods: Vec<_> = facts.methods.iter().filter(|m| kept(&m.method)).collect();
    let attrs = methods.iter().flat_map(|method| {
        method.attrs.iter().filter(|attr| kept(&format!("{}.{}", method.method, attr.name)))
    });
    let commands = facts.legacy_write_commands.iter().filter(|command| kept(&command.name));
    assert_eq!(table::objects().len(), facts.objects.len());
    assert_eq!(table::methods().len(), methods.len());
    assert_eq!(table::methods().iter().map(|m| m.attrs.len()).sum::<usize>(), attrs.count());
    assert_eq!(legacy::commands().len(), commands.count());
    assert_eq!(legacy::structs().len(), facts.legacy_structs.len());
    assert_eq!(legacy::uhw_specs().len(), notes.private.len());
    // As many as in 7.2, or more.
    assert!(methods.len() >= 79 && legacy::commands().len() >= 47, "{}", methods.len());
}

#[test]
fn no_two_methods_have_one_name_and_a_bare_name_is_the_cores() {
    let mut names = HashSet::new();
    for method in table::methods() {
        let name = method.full_name();
        assert!(names.insert(name.clone()), "{name} is the name of two methods");
        assert_eq!(method.provider == Provider::Core, !name.contains(':'), "{name}");
    }
    assert!(names.contains("DEVICE.QUERY_PORT") && names.contains("mlx5:DEVICE.QUERY_PORT"));
}

/// All providers with something of their own, and one without.
fn drivers() -> impl Iterator<Item = DriverId> {
    [DriverId::MLX5, DriverId::BNXT_RE, DriverId::EFA, DriverId::RXE].into_iter()
}

#[test]
fn ids_are_unique_for_every_driver() {
    for driver in drivers() {
        let mut objects = HashSet::new();
        for spec in table::objects().iter().filter(|spec| spec.object.provider.serves(driver)) {
            assert!(objects.insert(spec.object.id), "{}", spec.name);
            assert!(std::ptr::eq(table::object(spec.object.id, driver).unwrap(), spec));
        }
        let mut methods = HashSet::new();
        for spec in table::methods().iter().filter(|spec| spec.provider.serves(driver)) {
            assert!(methods.insert((spec.object.id, spec.id)), "{}", spec.name);
            assert!(std::ptr::eq(table::method(spec.object.id, spec.id, driver).unwrap(), spec));
            let mut attrs = HashSet::new();
            for attr in spec.attrs_of(driver) {
                assert!(attrs.insert(attr.id), "{} of {}", attr.name, spec.name);
                assert!(std::ptr::eq(table::attr(spec, attr.id, driver).unwrap(), attr));
            }
        }
    }
}

#[test]
fn names_are_unique() {
    let methods: HashSet<_> = table::methods().iter().map(|spec| spec.name).collect();
    assert_eq!(methods.len(), table::methods().len());
    let commands: HashSet<_> = legacy::commands().iter().map(|spec| spec.short_name).collect();
    assert_eq!(commands.len(), legacy::commands().len());
    assert!(commands.contains("REG_MR") && commands.contains("EX_CREATE_QP"), "{commands:?}");
}

#[test]
fn drivers_ids_are_in_the_drivers_namespace() {
    for method in table::methods() {
        assert_eq!(method.id.0 >= DRIVER_NS, method.provider != Provider::Core, "{}", method.name);
        for attr in method.attrs {
            let uhw = attr.is_uhw_in() || attr.is_uhw_out();
            assert_eq!(
                attr.id.0 >= DRIVER_NS,
                attr.provider != Provider::Core || uhw,
                "{}",
                attr.name
            );
        }
    }
    for object in table::objects() {
        assert_eq!(object.object.id.0 >= DRIVER_NS, object.object.provider != Provider::Core);
    }
}

/// The decoder demands mandatory attributes whatever the kernel: so none may be newer than its method.
#[test]
fn mandatory_attributes_are_as_old_as_their_method() {
    for method in table::methods() {
        for attr in method.attrs {
            assert!(method.kernels.contains(attr.kernels), "{}", attr.name);
            if attr.mandatory {
                assert_eq!(attr.kernels, method.kernels, "{} of {}", attr.name, method.name);
            }
        }
        assert_eq!(method.attrs.iter().any(table::AttrSpec::is_uhw_in), method.has_uhw);
        assert_eq!(method.attrs.iter().any(table::AttrSpec::is_uhw_out), method.has_uhw);
        assert_eq!(method.object.spec().map(|spec| spec.object), Some(method.object));
        assert!(!method.source.is_empty());
    }
}

#[test]
fn objects_of_attributes_exist_and_are_of_the_kind() {
    for attr in table::methods().iter().flat_map(|method| method.attrs) {
        let Some((object, access)) = attr.object() else {
            continue;
        };
        if object.is_any() {
            continue;
        }
        let class = object.spec().expect(attr.name).class;
        match attr.kind {
            AttrKind::Fd { .. } => {
                assert_eq!(class, ObjectClass::Fd, "{}", attr.name);
                assert!(matches!(access, Access::Read | Access::New), "{}", attr.name);
            }
            _ => assert_eq!(class, ObjectClass::Idr, "{}", attr.name),
        }
    }
}

#[test]
fn sizes_of_attributes_are_in_order() {
    for attr in table::methods().iter().flat_map(|method| method.attrs) {
        match attr.kind {
            AttrKind::PtrIn { min, max, .. }
            | AttrKind::PtrOut { min, max, .. }
            | AttrKind::IdrsArray { min, max, .. } => assert!(min <= max, "{}", attr.name),
            AttrKind::EnumIn { elems } => assert!(elems.iter().all(|elem| elem.min <= elem.max)),
            _ => {}
        }
    }
}

/// What carries descriptors, apart from what the kernel's macro says: of each, someone has read the
/// handler. An annotation that is changed by mistake differs from this.
const CARRY_DESCRIPTORS: [(&str, FdPayload); 3] = [
    ("UVERBS_ATTR_REG_DMABUF_MR_FD", FdPayload::One),
    ("MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM", FdPayload::One),
    ("UVERBS_ATTR_GET_CONTEXT_FD_ARR", FdPayload::Array),
];

#[test]
fn every_payload_with_a_descriptor_is_marked() {
    let attrs = || table::methods().iter().flat_map(|method| method.attrs);
    for (name, payload) in CARRY_DESCRIPTORS {
        assert_eq!(attrs().find(|attr| attr.name == name).expect(name).fd_payload, payload);
    }
    for attr in attrs() {
        // Not every buffer is declared with UVERBS_ATTR_UMEM.
        let umem = attr.ctype.contains("struct ib_uverbs_buffer_desc");
        assert!(umem || attr.kind != AttrKind::Umem, "{}", attr.name);
        assert_eq!(umem, attr.fd_payload == FdPayload::BufferDesc, "{}", attr.name);
        let listed = CARRY_DESCRIPTORS.iter().any(|(name, _)| *name == attr.name);
        assert_eq!(listed || umem, attr.fd_payload != FdPayload::None, "{}", attr.name);
        // An input whose name says descriptor is one of those above.
        let input = matches!(attr.kind, AttrKind::PtrIn { .. } | AttrKind::ConstIn);
        let named = attr.name.split('_').any(|word| word == "FD" || word == "FDS");
        if input && named && !attr.name.ends_with("FD_OFFSET") {
            assert_ne!(attr.fd_payload, FdPayload::None, "{}", attr.name);
        }
    }
}

#[test]
fn fields_are_inside_their_structures() {
    fn check(spec: &StructSpec) {
        let mut end = 0;
        for field in spec.fields {
            assert!(field.offset >= end, "{}.{} overlaps", spec.name, field.name);
            end = field.offset + field.size;
            assert!(end <= spec.size, "{}.{}", spec.name, field.name);
            let size = match field.ty {
                FieldType::U8 => 1,
                FieldType::U16 => 2,
                FieldType::U32 | FieldType::I32 => 4,
                FieldType::U64 | FieldType::Be64 => 8,
                FieldType::Nested(inner) => {
                    check(inner);
                    inner.size
                }
                FieldType::Trailing => 0,
                FieldType::Bytes | FieldType::Union => field.size,
            };
            assert_eq!(field.size, size, "{}.{}", spec.name, field.name);
        }
    }
    legacy::structs().iter().for_each(|spec| check(spec));
}

#[test]
fn legacy_fields_are_where_the_paths_say() {
    for spec in legacy::commands() {
        assert!(std::ptr::eq(legacy::legacy(spec.write_cmd).unwrap(), spec));
        assert!(usize::from(spec.req_min) <= spec.req_size(), "{}", spec.name);
        assert!(usize::from(spec.resp_min) <= spec.resp_size(), "{}", spec.name);
        // write(2) and INVOKE_WRITE split at req_min and resp_min: for plain commands those are all.
        if spec.min_enforced {
            assert_eq!(usize::from(spec.req_min), spec.req_size(), "{}", spec.name);
            assert_eq!(usize::from(spec.resp_min), spec.resp_size(), "{}", spec.name);
        }
        if spec.has_resp {
            assert!(!spec.extended, "{}", spec.name);
            let field = spec.req.field("response").unwrap();
            assert_eq!((field.offset, field.size), (0, 8), "{}", spec.name);
        }
        let of = |in_resp: bool| {
            if in_resp { spec.resp.unwrap() } else { spec.req }
        };
        for field in spec.handles {
            let found = of(field.in_resp).field(field.path).unwrap();
            assert_eq!((found.offset, found.size), (field.offset, 4), "{}", spec.name);
            assert_eq!(field.in_resp, field.access == Access::New, "{}", spec.name);
            assert!(field.object.spec().is_some(), "{}", spec.name);
            for test in field.when {
                let found = spec.req.field(test.field).unwrap();
                assert_eq!((found.offset, found.size), (test.offset, test.size), "{}", spec.name);
            }
        }
        for field in spec.fds {
            let found = of(field.in_resp).field(field.path).unwrap();
            assert_eq!((found.offset, found.size), (field.offset, 4), "{}", spec.name);
        }
        for va in spec.user_vas {
            assert!(usize::from(va.addr.max(va.len)) + 8 <= spec.req_size(), "{}", spec.name);
        }
    }
}

/// A handle by name is a handle in the table.
#[test]
fn every_field_named_handle_is_known() {
    fn walk(spec: &StructSpec, prefix: &str, found: &mut Vec<String>) {
        for field in spec.fields {
            let path = format!("{prefix}{}", field.name);
            match field.ty {
                FieldType::Nested(inner) => walk(inner, &format!("{path}."), found),
                FieldType::U32 if field.name.ends_with("handle") => found.push(path),
                _ => {}
            }
        }
    }
    for spec in legacy::commands() {
        for (in_resp, structure) in [(false, Some(spec.req)), (true, spec.resp)] {
            let Some(structure) = structure else { continue };
            let mut found = Vec::new();
            walk(structure, "", &mut found);
            for path in found {
                let known =
                    |field: &legacy::HandleField| field.in_resp == in_resp && field.path == path;
                assert!(spec.handles.iter().any(known), "{} {path}", spec.name);
            }
        }
    }
}

#[test]
fn look_ups_know_the_namespaces() {
    let create = ids::UVERBS_METHOD_CQ_CREATE;
    let cq = ids::UVERBS_OBJECT_CQ.id;
    assert_eq!(table::method(cq, create, DriverId::RXE).unwrap().name, "UVERBS_METHOD_CQ_CREATE");
    let qp = table::method(ids::UVERBS_OBJECT_QP.id, ids::UVERBS_METHOD_QP_CREATE, DriverId::MLX5);
    let name =
        |driver| qp.unwrap().attr(ids::MLX5_IB_ATTR_CREATE_QP_DBR_BUF_UMEM, driver).map(|a| a.name);
    assert_eq!(name(DriverId::MLX5), Some("MLX5_IB_ATTR_CREATE_QP_DBR_BUF_UMEM"));
    assert_eq!(name(DriverId::BNXT_RE), Some("BNXT_RE_CREATE_QP_ATTR_DBR_HANDLE"));
    assert_eq!(name(DriverId::RXE), None);
    let devx = ids::MLX5_IB_OBJECT_DEVX;
    assert_eq!(
        table::object(devx.id, DriverId::BNXT_RE).unwrap().name,
        "BNXT_RE_OBJECT_ALLOC_PAGE"
    );
    assert_ne!(devx, ids::BNXT_RE_OBJECT_ALLOC_PAGE);
    let uhw = legacy::uhw(DriverId::MANA, "QP_CREATE", 48).unwrap();
    assert_eq!(uhw.name, "mana_ib_create_rc_qp");
    assert_eq!(legacy::uhw(DriverId::MLX5, "EX_CREATE_WQ", 0).unwrap().name, "mlx5_ib_create_wq");
    assert_eq!(legacy::uhw(DriverId::MLX5, "CREATE_XSRQ", 0).unwrap().name, "mlx5_ib_create_srq");
}

/// The kernel's table says that this is an input of four bytes, and the handler writes to the address that
/// those bytes are in. Handed on as an input, a guest's number would be an address in our memory.
#[test]
fn an_answer_that_the_kernel_declares_as_an_input_is_an_output() {
    let found = table::methods()
        .iter()
        .flat_map(|method| method.attrs)
        .find(|attr| attr.name == "MLX5_IB_ATTR_STEERING_ANCHOR_FT_ID");
    let kind = found.map(|attr| attr.kind);
    assert!(matches!(kind, Some(AttrKind::PtrOut { min: 4, max: 4, .. })), "{kind:?}");
}
