//! Methods, commands, attributes and private input.

use std::collections::BTreeSet;
use verbgate_abi::Request;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::legacy;
use verbgate_abi::qp_types;
use verbgate_abi::table;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::DriverId;
use verbgate_proxy::policy::Policy;

use super::build::*;

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
fn an_attribute_that_a_driver_added_never_passes() {
    let (nothing, full) = (granting(""), Policy::named("full").unwrap());
    let mut judged = 0;
    for method in table::methods().iter().filter(|method| method.provider == Provider::Core) {
        let added = method.attrs.iter().filter(|spec| !spec.is_output() && !spec.mandatory);
        for spec in added {
            let Provider::Driver(driver) = spec.provider else { continue };
            let request = built(method_with(method, driver, Some(spec)));
            let name = format!("{} {}", method.full_name(), spec.short_name());
            assert_eq!(reason(&nothing, &request), Some("driver attribute not granted"), "{name}");
            assert_eq!(reason(&full, &request), None, "{name}");
            judged += 1;
        }
    }
    assert!(judged >= 6, "{judged}");
}

/// Of the core's optional inputs all pass with their method but these two, and private input, which is
/// judged by the byte. Why each of the others passes is said in `proxy/src/policy/attributes.rs`.
#[test]
fn an_optional_attribute_passes_with_its_method_or_never() {
    let (nothing, full) = (granting(""), Policy::named("full").unwrap());
    let refused = |name: &str| match name {
        "CREATE_QP_SOURCE_QPN" => Some("source QP number not granted"),
        "CREATE_QP_IND_TABLE_HANDLE" => Some("indirection table not granted"),
        _ => None,
    };
    let (mut judged, mut not) = (0, 0);
    for method in table::methods().iter().filter(|m| m.provider == Provider::Core) {
        let core = method.attrs.iter().filter(|spec| spec.provider == Provider::Core);
        let optional =
            core.filter(|spec| !spec.is_output() && !spec.mandatory && !spec.is_uhw_in());
        for spec in optional.filter(|_| !method.is_invoke_write()) {
            let request = built(method_with(method, DriverId::MLX5, Some(spec)));
            let expected = refused(spec.short_name());
            let name = format!("{} {}", method.full_name(), spec.short_name());
            assert_eq!(reason(&nothing, &request), expected, "{name}");
            assert_eq!(reason(&full, &request), None, "{name}");
            // And never without the method.
            let others: Vec<String> = table::methods().iter().map(MethodSpec::full_name).collect();
            let others = others.iter().filter(|other| **other != method.full_name());
            let without = policy(others, std::iter::empty());
            assert_eq!(reason(&without, &request), Some("method not granted"), "{name}");
            judged += 1;
            not += usize::from(expected.is_some());
        }
    }
    assert!(judged >= 38 && not == 2, "{judged} {not}");
}

/// In whatever way a queue pair of a type is made.
fn queue_pairs(value: u64, driver: DriverId) -> Vec<Request> {
    let makes = |spec: &&legacy::LegacySpec| spec.req.field("qp_type").is_some();
    let commands = legacy::commands().iter().filter(makes).map(|spec| {
        let at = usize::from(spec.req.field("qp_type").unwrap().offset);
        let byte = u8::try_from(value).unwrap();
        command_with(spec, driver, &[], |input| input[at] = byte)
    });
    let method = table::methods().iter().find(|m| m.full_name() == "QP.QP_CREATE").unwrap();
    let wanted = method.attrs_of(driver).filter(|spec| spec.mandatory);
    let by_method =
        wanted.fold(RequestBuilder::new(method, driver), |builder, spec| match spec.short_name() {
            "CREATE_QP_TYPE" => builder.constant(spec.id, value),
            _ => with(builder, spec),
        });
    commands.chain([built(by_method)]).collect()
}

#[test]
fn a_type_of_queue_pair_that_is_not_named_never_passes() {
    let base = "name = \"t\"\nmethods = [\"DEVICE.INVOKE_WRITE\", \"QP.QP_CREATE\"]\n\
                commands = [\"CREATE_QP\", \"EX_CREATE_QP\", \"OPEN_QP\"]\n";
    let of = |types: &[String]| Policy::read(&format!("{base}qp_types = {types:?}\n")).unwrap();
    let names: Vec<String> = qp_types::QP_TYPES.iter().map(|known| known.full_name()).collect();
    let (all, none) = (of(&names), of(&[]));
    let mut judged = 0;
    for driver in [DriverId::MLX5, DriverId::EFA, DriverId::RXE, DriverId::IRDMA] {
        for value in 0..=255 {
            let known = qp_types::QpType::of(value, driver).map(|known| known.full_name());
            let without: Vec<String> =
                names.iter().filter(|name| known.as_ref() != Some(*name)).cloned().collect();
            let (without, alone) = (of(&without), known.iter().cloned().collect::<Vec<_>>());
            for request in queue_pairs(value, driver) {
                let refused = Some("QP type not granted");
                assert_eq!(reason(&none, &request), refused, "{driver} {value}");
                assert_eq!(reason(&without, &request), refused, "{driver} {value}");
                let expected = if known.is_some() { None } else { refused };
                assert_eq!(reason(&all, &request), expected, "{driver} {value}");
                assert_eq!(reason(&of(&alone), &request), expected, "{driver} {value}");
                judged += 1;
            }
        }
    }
    assert_eq!(judged, 4 * 256 * 4);
}
