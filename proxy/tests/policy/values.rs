//! Numbers and addresses in requests: by what they are, and by where they are.

use std::collections::BTreeSet;

use verbgate_abi::Request;
use verbgate_abi::legacy;
use verbgate_abi::table;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::values;
use verbgate_abi::values::MEANINGS;
use verbgate_abi::values::Meaning;
use verbgate_abi::wire::DriverId;
use verbgate_proxy::policy::Policy;

use super::build::*;

/// A rule on a number must find it, and a rule on another number must not.
fn judge(of: &str, path: &str, request: &Request, number: u64) {
    let with =
        |only: &[u64]| granting(&format!("rules.fields.{of:?}.{path:?} = {{ only = {only:?} }}"));
    assert_eq!(reason(&with(&[]), request), Some("value beyond a limit"), "{of}: {path}");
    let other = number ^ 1;
    assert_eq!(reason(&with(&[other]), request), Some("value beyond a limit"), "{of}: {path}");
    assert_eq!(reason(&with(&[number]), request), None, "{of}: {path}");
}

#[test]
fn a_number_of_a_command_that_no_rule_names_never_passes() {
    let mut judged = 0;
    for spec in legacy::commands() {
        let request = command(spec);
        for field in spec.req.fields.iter().filter(|field| matches!(field.size, 1 | 2 | 4 | 8)) {
            let number = request.legacy_field(field.name).unwrap();
            judge(spec.short_name, field.name, &request, number);
            judged += 1;
        }
    }
    assert!(judged > 200, "{judged}");
}

#[test]
fn a_number_of_a_method_that_no_rule_names_never_passes() {
    let (mut judged, mut none) = (0, 0);
    let invoke = |method: &&MethodSpec| method.is_invoke_write();
    for method in table::methods().iter().filter(|method| !invoke(method)) {
        let driver = driver_of(method);
        for spec in method.attrs_of(driver).filter(|spec| !spec.is_output() && !spec.is_uhw_in()) {
            let request = built(method_with(method, driver, Some(spec)));
            let attr = request.attr(spec.id).unwrap();
            let (of, path) = (method.full_name(), spec.short_name());
            match request.u64_of(attr) {
                Some(number) if passes_with_method(spec, method) => {
                    judge(&of, path, &request, number);
                    judged += 1;
                }
                // Refused for itself, before any number.
                Some(_) => {}
                // A rule on what is no number would be no rule: the policy is refused, or the request is.
                None => {
                    let text = format!(
                        "name = \"t\"\nextends = \"full\"\nrules.fields.{of:?}.{path:?} = {{ min = 0 }}"
                    );
                    match Policy::read(&text) {
                        Err(slip) => assert!(slip.to_string().contains("no number"), "{slip}"),
                        Ok(policy) => {
                            let got = reason(&policy, &request);
                            assert_eq!(got, Some("value beyond a limit"), "{of} {path}");
                        }
                    }
                    none += 1;
                }
            }
        }
    }
    assert!(judged > 150 && none > 10, "{judged} {none}");
}

/// Whether the policies of these tests, which name every method, let the attribute pass.
fn passes_with_method(spec: &AttrSpec, method: &'static MethodSpec) -> bool {
    let driver = driver_of(method);
    reason(&granting(""), &built(method_with(method, driver, Some(spec)))).is_none()
}

/// Fields that say whether the kernel looks at others.
const CONDITIONS: [&str; 8] = [
    "attr_mask",
    "base.attr_mask",
    "flags",
    "attr.is_global",
    "dest.is_global",
    "alt_dest.is_global",
    "base.dest.is_global",
    "base.alt_dest.is_global",
];

/// A command that the kernel looks at every field of, with 1 in one of them.
fn looked_at(name: &str, path: &str) -> Request {
    let spec = legacy::commands().iter().find(|spec| spec.short_name == name).unwrap();
    command_with(spec, DriverId::MLX5, &[], |input| {
        for condition in CONDITIONS.iter().filter_map(|path| spec.req.field(path)) {
            let at = usize::from(condition.offset);
            input[at..at + usize::from(condition.size)].fill(0xff);
        }
        input[usize::from(spec.req.field(path).unwrap().offset)] = 1;
    })
}

#[test]
fn a_value_that_matters_to_others_never_passes_a_rule_that_does_not_name_it() {
    let mut seen = BTreeSet::new();
    let mut judged = 0;
    for (of, path, meaning) in values::rows() {
        let method = table::methods().iter().find(|method| method.full_name() == of);
        let request = match method {
            None => looked_at(of, path),
            Some(method) => {
                let named = |spec: &&AttrSpec| spec.short_name() == path;
                let spec = method.attrs.iter().find(named).unwrap();
                let mut request = built(method_with(method, DriverId::MLX5, Some(spec)));
                let at = request.position(spec.id).unwrap();
                assert!(request.patch(at, 0, &[1]));
                request
            }
        };
        let value = request.values().find(|value| value.name == path);
        let value = value.unwrap_or_else(|| panic!("{of} {path} is not looked at"));
        assert_eq!(value.meaning, meaning);
        seen.insert(meaning);
        // Every other value of the request is 0: it is this one that is refused.
        let (without, with) = match meaning {
            // Whose index, key or port it is the request does not say: `proxy/src/vet.rs` judges these.
            Meaning::Port | Meaning::SourceGid | Meaning::Pkey => continue,
            Meaning::PeerGid => {
                ("peers = [\"::/128\"]".to_owned(), "peers = [\"::/128\", \"100::/8\"]".to_owned())
            }
            Meaning::Access => ("access = []".to_owned(), "access = [\"LOCAL_WRITE\"]".to_owned()),
            _ => {
                let rule = |only: &str| format!("{} = {{ only = {only} }}", meaning.name());
                (rule("[0, 2]"), rule("[0, 1]"))
            }
        };
        let of_rule = |rule: &str| granting(&format!("rules.{rule}"));
        let refused = Some("value beyond a limit");
        assert_eq!(reason(&of_rule(&without), &request), refused, "{of} {path}");
        assert_eq!(reason(&of_rule(&with), &request), None, "{of} {path}");
        judged += 1;
    }
    assert_eq!(seen, MEANINGS.iter().map(|(meaning, _)| *meaning).collect());
    assert!(judged > 30, "{judged}");
}
