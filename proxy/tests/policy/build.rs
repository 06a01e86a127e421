//! Requests of every kind, and policies by names.

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
pub(super) const PAYLOAD: GuestAddr = GuestAddr(0x10_0000);

pub(super) const INVOKE: &str = "DEVICE.INVOKE_WRITE";

/// A valid value of the least length.
pub(super) fn with(builder: RequestBuilder, spec: &AttrSpec) -> RequestBuilder {
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

pub(super) fn built(builder: RequestBuilder) -> Request {
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
pub(super) fn requests(method: &'static MethodSpec) -> Vec<Request> {
    let driver = driver_of(method);
    let request = |all: bool| {
        let wanted = method.attrs_of(driver).filter(|spec| all || spec.mandatory);
        built(wanted.fold(RequestBuilder::new(method, driver), with))
    };
    vec![request(false), request(true)]
}

/// A legacy command with room for any answer, and an input of zeros but for what `fill` puts there.
pub(super) fn command_with(
    spec: &legacy::LegacySpec,
    driver: DriverId,
    private: &[u8],
    fill: impl Fn(&mut [u8]),
) -> Request {
    let (object, method) = (ids::UVERBS_OBJECT_DEVICE, ids::UVERBS_METHOD_INVOKE_WRITE);
    let invoke = table::method(object.id, method, driver).unwrap();
    // And room for what may follow: a table has one handle at least.
    let mut input = vec![0; spec.req_size() + 8];
    // Of a work request: none is empty. And RC, a type that every policy of these tests grants.
    for (path, number) in [("wqe_size", 128), ("qp_type", 2)] {
        if let Some(field) = spec.req.field(path) {
            input[usize::from(field.offset)] = number;
        }
    }
    fill(&mut input);
    let mut builder = RequestBuilder::new(invoke, driver)
        .input(ids::UVERBS_ATTR_CORE_IN, &input)
        .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), 4096)
        .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd);
    if !private.is_empty() {
        builder = builder.input(ids::UVERBS_ATTR_UHW_IN, private);
    }
    built(builder)
}

pub(super) fn command(spec: &legacy::LegacySpec) -> Request {
    command_with(spec, DriverId::MLX5, &[], |_| {})
}

/// The request for a method with what the kernel demands, and one attribute besides; a queue pair is of
/// the type RC.
pub(super) fn method_with(
    method: &'static MethodSpec,
    driver: DriverId,
    also: Option<&AttrSpec>,
) -> RequestBuilder {
    let is_wanted =
        |spec: &&AttrSpec| spec.mandatory || also.is_some_and(|also| also.id == spec.id);
    let wanted = method.attrs_of(driver).filter(is_wanted);
    wanted.fold(RequestBuilder::new(method, driver), |builder, spec| match spec.short_name() {
        "CREATE_QP_TYPE" => builder.constant(spec.id, 2),
        _ => with(builder, spec),
    })
}

/// The drivers on whose devices a method is.
pub(super) fn driver_of(method: &MethodSpec) -> DriverId {
    match method.provider {
        Provider::Driver(driver) => driver,
        Provider::Core => DriverId::MLX5,
    }
}

pub(super) fn policy<'a>(
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

pub(super) fn reason(policy: &Policy, request: &Request) -> Option<&'static str> {
    policy.check(request).err().map(|refusal| refusal.reason)
}

/// A command or a method with this private input.
pub(super) fn with_private(operation: &str, driver: DriverId, private: &[u8]) -> Vec<Request> {
    let of = |name: &str| legacy::operation_of(name) == operation;
    let commands = legacy::commands().iter().filter(|spec| spec.takes_uhw && of(spec.short_name));
    let commands = commands.map(|spec| command_with(spec, driver, private, |_| {}));
    let methods = table::methods().iter().filter(|method| {
        method.has_uhw && method.provider == Provider::Core && !method.is_invoke_write()
    });
    let methods = methods.filter(|method| of(method.short_name())).map(|method| {
        built(method_with(method, driver, None).input(ids::UVERBS_ATTR_UHW_IN, private))
    });
    commands.chain(methods).collect()
}

/// A policy with every name, and with what some lines add.
pub(super) fn granting(lines: &str) -> Policy {
    let methods: Vec<String> = table::methods().iter().map(MethodSpec::full_name).collect();
    let commands: Vec<&str> = legacy::commands().iter().map(|spec| spec.short_name).collect();
    let types: Vec<_> = qp_types::QP_TYPES.iter().map(|known| known.full_name()).collect();
    Policy::read(&format!(
        "name = \"test\"\nqp_types = {types:?}\nmethods = {methods:?}\ncommands = {commands:?}\n\
         {lines}\n"
    ))
    .unwrap()
}
