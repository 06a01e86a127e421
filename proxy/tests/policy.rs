#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows these in test functions; here the helpers of tests use them, too"
)]
//! Policies, over the whole table: a policy that does not name a method never lets the method pass.
//!
//! The table is finite, so this is a proof where `kani` would only be another way to write it. For each
//! name there are a policy that names all but it, and one that names it alone; every method of that
//! name, with what the kernel demands and with all that it takes, must fail the one, for being not named,
//! and not fail the other for that.

use std::collections::BTreeSet;

use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::qp_types;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::wire::Handle;
use verbgate_proxy::policy::Policy;

/// Where the payloads of the requests are.
const PAYLOAD: GuestAddr = GuestAddr(0x10_0000);

const INVOKE: &str = "DEVICE.INVOKE_WRITE";

/// A valid value of the least length.
fn with(builder: RequestBuilder, spec: &AttrSpec) -> RequestBuilder {
    match spec.kind {
        AttrKind::PtrOut { min, .. } => builder.output(spec.id, GuestAddr(0x9000), min),
        AttrKind::Idr { .. } => builder.handle(spec.id, Handle(1)),
        AttrKind::Fd { .. } | AttrKind::RawFd => builder.fd(spec.id, 1),
        AttrKind::EnumIn { elems } => builder.elem(spec.id, 0, &vec![0; elems[0].min.into()]),
        AttrKind::PtrIn { min, .. } => builder.input(spec.id, &vec![0; min.into()]),
        AttrKind::ConstIn | AttrKind::FlagsIn => builder.constant(spec.id, 0),
        AttrKind::IdrsArray { min, .. } => builder.input(spec.id, &vec![0; 4 * usize::from(min)]),
        AttrKind::Umem => builder.input(spec.id, &[1; 32]),
    }
}

fn built(builder: RequestBuilder) -> Request {
    let encoded = builder.build(PAYLOAD);
    let outline = decode::parse(&encoded.bytes).unwrap();
    let mut arena = vec![0; outline.arena_len()];
    for payload in outline.payloads() {
        let start = usize::try_from(payload.addr.0 - PAYLOAD.0).unwrap();
        let len = payload.range.len();
        arena[payload.range].copy_from_slice(&encoded.payload[start..start + len]);
    }
    outline.with_payloads(arena).unwrap()
}

/// Requests for a method: the least and the most.
fn requests(method: &'static MethodSpec) -> Vec<Request> {
    let driver = match method.provider {
        Provider::Driver(driver) => driver,
        Provider::Core => DriverId::MLX5,
    };
    let request = |all: bool| {
        let wanted = method.attrs_of(driver).filter(|spec| all || spec.mandatory);
        built(wanted.fold(RequestBuilder::new(method, driver), with))
    };
    vec![request(false), request(true)]
}

/// A legacy command, with an input of zeros and room for any answer.
fn command(spec: &legacy::LegacySpec) -> Request {
    let (object, method) = (ids::UVERBS_OBJECT_DEVICE, ids::UVERBS_METHOD_INVOKE_WRITE);
    let invoke = table::method(object.id, method, DriverId::MLX5).unwrap();
    // And room for what may follow: a table has one handle at least.
    let mut input = vec![0; spec.req_size() + 8];
    if let Some(field) = spec.req.field("wqe_size") {
        // Of a work request: none is empty.
        input[usize::from(field.offset)] = 128;
    }
    if let Some(field) = spec.req.field("qp_type") {
        // RC, a type that every policy of these tests grants.
        input[usize::from(field.offset)] = 2;
    }
    let builder = RequestBuilder::new(invoke, DriverId::MLX5)
        .input(ids::UVERBS_ATTR_CORE_IN, &input)
        .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), 4096)
        .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd);
    built(builder)
}

fn policy<'a>(
    methods: impl Iterator<Item = &'a String>,
    commands: impl Iterator<Item = &'a str>,
) -> Policy {
    let types: Vec<_> = qp_types::QP_TYPES.iter().map(|known| known.full_name()).collect();
    let (methods, commands): (Vec<_>, Vec<_>) = (methods.collect(), commands.collect());
    let text = format!(
        "name = \"test\"\nqp_types = {types:?}\nmethods = {methods:?}\ncommands = {commands:?}\n"
    );
    Policy::read(&text).unwrap()
}

fn reason(policy: &Policy, request: &Request) -> Option<&'static str> {
    policy.check(request).err().map(|refusal| refusal.reason)
}

#[test]
fn a_method_that_is_not_named_never_passes() {
    let names: BTreeSet<String> = table::methods().iter().map(MethodSpec::full_name).collect();
    let commands = || legacy::commands().iter().map(|spec| spec.short_name);
    let mut judged = 0;
    for name in &names {
        let without = policy(names.iter().filter(|other| *other != name), commands());
        let alone = policy(std::iter::once(name), commands());
        for method in table::methods().iter().filter(|method| method.full_name() == *name) {
            if method.is_invoke_write() {
                continue;
            }
            for request in requests(method) {
                assert_eq!(reason(&without, &request), Some("method not granted"), "{name}");
                assert_ne!(reason(&alone, &request), Some("method not granted"), "{name}");
                judged += 1;
            }
        }
    }
    assert_eq!(judged, 2 * table::methods().iter().filter(|m| !m.is_invoke_write()).count());
}

#[test]
fn a_command_that_is_not_named_never_passes() {
    let names: BTreeSet<String> = table::methods().iter().map(MethodSpec::full_name).collect();
    assert!(names.contains(INVOKE));
    for spec in legacy::commands() {
        let others = legacy::commands().iter().map(|other| other.short_name);
        let others = others.filter(|other| *other != spec.short_name);
        let request = command(spec);
        let without = policy(names.iter(), others);
        assert_eq!(reason(&without, &request), Some("command not granted"), "{}", spec.short_name);
        let alone = policy(names.iter(), std::iter::once(spec.short_name));
        assert_ne!(reason(&alone, &request), Some("command not granted"), "{}", spec.short_name);
        // The method by which commands are given must be named, too.
        let not_invoke =
            policy(names.iter().filter(|name| *name != INVOKE), std::iter::once(spec.short_name));
        assert_eq!(reason(&not_invoke, &request), Some("method not granted"));
    }
}

/// A command or a method with this private input.
fn with_private(operation: &str, driver: DriverId, private: &[u8]) -> Vec<Request> {
    let of = |name: &str| legacy::operation_of(name) == operation;
    let commands = legacy::commands().iter().filter(|spec| spec.takes_uhw && of(spec.short_name));
    let commands = commands.map(|spec| {
        let (object, method) = (ids::UVERBS_OBJECT_DEVICE, ids::UVERBS_METHOD_INVOKE_WRITE);
        let invoke = table::method(object.id, method, driver).unwrap();
        let mut input = vec![0; spec.req_size() + 8];
        if let Some(field) = spec.req.field("qp_type") {
            // RC.
            input[usize::from(field.offset)] = 2;
        }
        RequestBuilder::new(invoke, driver)
            .input(ids::UVERBS_ATTR_CORE_IN, &input)
            .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), 4096)
            .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd)
    });
    let methods = table::methods().iter().filter(|method| {
        method.has_uhw && method.provider == Provider::Core && !method.is_invoke_write()
    });
    let methods = methods.filter(|method| of(method.short_name())).map(|method| {
        let wanted = method.attrs_of(driver).filter(|spec| spec.mandatory);
        wanted.fold(RequestBuilder::new(method, driver), |builder, spec| match spec.short_name() {
            "CREATE_QP_TYPE" => builder.constant(spec.id, 2),
            _ => with(builder, spec),
        })
    });
    let all = commands.chain(methods);
    all.map(|builder| built(builder.input(ids::UVERBS_ATTR_UHW_IN, private))).collect()
}

/// A policy with every name, and with some fields of private input.
fn granting(private: &str) -> Policy {
    let methods: Vec<String> = table::methods().iter().map(MethodSpec::full_name).collect();
    let commands: Vec<&str> = legacy::commands().iter().map(|spec| spec.short_name).collect();
    let types: Vec<_> = qp_types::QP_TYPES.iter().map(|known| known.full_name()).collect();
    Policy::read(&format!(
        "name = \"test\"\nqp_types = {types:?}\nmethods = {methods:?}\ncommands = {commands:?}\n\
         {private}\n"
    ))
    .unwrap()
}

#[test]
fn a_byte_of_private_input_that_is_not_named_never_passes() {
    let nothing = granting("");
    let mut judged = 0;
    for spec in legacy::uhw_specs() {
        for (driver, operation) in
            spec.drivers.iter().flat_map(|d| spec.operations.iter().map(|o| (*d, *o)))
        {
            let size = usize::from(spec.size);
            // Behind the structure, too, but not as long as another structure of the operation.
            for at in 0..size + 1 {
                let mut bytes = vec![0; size.max(at + 1)];
                bytes[at] = 1;
                let holds = |field: &&legacy::UhwField| {
                    (field.offset..field.offset + field.size).contains(&u16::try_from(at).unwrap())
                };
                let needed = spec.fields.iter().any(|field| holds(&field));
                let named: Vec<&str> =
                    spec.plain.iter().filter(holds).map(|field| field.name).collect();
                let requests = with_private(operation, driver, &bytes);
                assert!(!requests.is_empty(), "{driver}:{operation}");
                for request in requests {
                    let got = reason(&nothing, &request);
                    let expected = (!needed).then_some("private input not granted");
                    assert_eq!(got, expected, "{driver}:{operation} byte {at}");
                    for field in &named {
                        let one = granting(&format!(
                            "private.\"{driver}:{operation}\".{field} = \"any\""
                        ));
                        assert_eq!(reason(&one, &request), None, "{driver}:{operation} {field}");
                    }
                    judged += 1;
                }
            }
        }
    }
    assert!(judged > 1500, "{judged}");
}

#[test]
fn a_number_that_no_rule_names_never_passes() {
    // Every number of every command and method: with a rule that has no number, and one that has 0.
    let mut judged = 0;
    let mut judge = |of: &str, path: &str, request: &Request| {
        let with =
            |only: &str| granting(&format!("rules.fields.{of:?}.{path:?} = {{ only = [{only}] }}"));
        assert_eq!(reason(&with(""), request), Some("value beyond a limit"), "{of}: {path}");
        assert_eq!(reason(&with("0, 1, 2, 128"), request), None, "{of}: {path}");
        judged += 1;
    };
    for spec in legacy::commands() {
        let request = command(spec);
        for field in spec.req.fields {
            if matches!(field.size, 1 | 2 | 4 | 8) {
                judge(spec.short_name, field.name, &request);
            }
        }
    }
    assert!(judged > 200, "{judged}");
}

#[test]
fn an_attribute_that_a_driver_added_never_passes() {
    let (nothing, full) = (granting(""), Policy::named("full").unwrap());
    let mut judged = 0;
    for method in table::methods().iter().filter(|method| method.provider == Provider::Core) {
        let added = method.attrs.iter().filter(|spec| !spec.is_output() && !spec.mandatory);
        for spec in added {
            let Provider::Driver(driver) = spec.provider else { continue };
            let wanted = method.attrs_of(driver).filter(|spec| spec.mandatory);
            let least =
                wanted.fold(RequestBuilder::new(method, driver), |builder, spec| {
                    match spec.short_name() {
                        "CREATE_QP_TYPE" => builder.constant(spec.id, 2),
                        _ => with(builder, spec),
                    }
                });
            let request = built(with(least, spec));
            let name = format!("{} {}", method.full_name(), spec.short_name());
            assert_eq!(reason(&nothing, &request), Some("driver attribute not granted"), "{name}");
            assert_eq!(reason(&full, &request), None, "{name}");
            judged += 1;
        }
    }
    assert!(judged >= 6, "{judged}");
}
