//! Every attribute that can be smuggled in is explained, and nothing else is.
//!
//! `proxy/tests/residue.rs` tests that a frame really confines the guest to the residue.

use std::collections::BTreeSet;

use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::residue;
use verbgate_abi::residue::RESIDUE;
use verbgate_abi::residue::Why;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::wire::DRIVER_NS;
use verbgate_abi::wire::DriverId;

use crate::common::decode;
use crate::common::invoke;

type Names = BTreeSet<(&'static str, &'static str)>;

fn computed() -> Names {
    let of_method = |method: &'static table::MethodSpec| {
        residue::drivers(method).into_iter().flat_map(move |driver| {
            residue::of(method, driver).into_iter().map(|attr| (method.name, attr.name))
        })
    };
    table::methods().iter().flat_map(of_method).collect()
}

#[test]
fn the_residue_is_explained_and_no_explanation_is_stale() {
    let explained: Names = RESIDUE.iter().map(|e| (e.method, e.attr)).collect();
    assert_eq!(explained.len(), RESIDUE.len(), "one explanation each");
    let computed = computed();
    let missing: Vec<_> = computed.difference(&explained).collect();
    assert!(missing.is_empty(), "explain or close: {missing:?}");
    let stale: Vec<_> = explained.difference(&computed).collect();
    assert!(stale.is_empty(), "no longer in the residue: {stale:?}");
}

/// Drivers reuse names of neither methods nor attributes, so names are enough to explain by.
#[test]
fn names_are_unique() {
    let mut seen = BTreeSet::new();
    for method in table::methods() {
        assert!(seen.insert(method.name), "{}", method.name);
        let attrs: BTreeSet<_> = method.attrs.iter().map(|attr| attr.name).collect();
        assert_eq!(attrs.len(), method.attrs.len(), "{}", method.name);
    }
}

/// The reasons hold for the kinds of the attributes that they are given for.
#[test]
fn reasons_fit() {
    for method in table::methods() {
        for attr in method.attrs {
            let Some(why) = residue::why(method, attr) else {
                continue;
            };
            let carries_fd = matches!(attr.kind, AttrKind::Fd { .. } | AttrKind::RawFd)
                || attr.fd_payload != table::FdPayload::None;
            match why {
                Why::Output => assert!(attr.is_output(), "{}", attr.name),
                Why::StubDescriptors => assert!(carries_fd, "{}", attr.name),
                Why::NotJudged => {
                    assert!(!carries_fd && !attr.is_written_by_kernel(), "{}", attr.name);
                }
                Why::AlwaysNamed => assert!(method.is_invoke_write(), "{}", attr.name),
            }
            assert!(!why.to_string().is_empty());
        }
    }
}

/// What [`Why::AlwaysNamed`] says of `CORE_IN`.
#[test]
fn no_command_goes_without_its_structure() {
    for spec in legacy::commands() {
        for out_len in [0, 64, 4096] {
            let request = invoke(spec.write_cmd, None, Some(out_len), None, DriverId::RXE);
            let error = decode(&request).unwrap_err();
            assert_eq!(error.kind(), "request_short", "{}", spec.name);
        }
        let residue = residue::of_command(spec);
        assert_eq!(residue.len(), 1, "{}", spec.name);
        assert_eq!(residue[0].id, ids::UVERBS_ATTR_CORE_IN);
    }
}

/// The argument rests on mandatory attributes being mandatory on each kernel that has the method,
/// and on a new object never being an option.
#[test]
fn mandatory_attributes_are_as_old_as_their_method() {
    for method in table::methods() {
        for attr in method.attrs {
            if attr.mandatory {
                assert_eq!(attr.kernels, method.kernels, "{} {}", method.name, attr.name);
            }
            if attr.is_new() {
                assert!(attr.mandatory, "{} {}", method.name, attr.name);
            }
        }
    }
}

/// `uapi_key_attr()` knows 32 core and 31 driver ids; what is beyond is in no kernel's tables, so
/// filler there is skipped whatever the kernel.
#[test]
fn ids_are_in_the_range_that_the_kernel_can_hold() {
    for method in table::methods() {
        for attr in method.attrs {
            let limit = if table::is_driver_id(attr.id.0) { 31 } else { 32 };
            assert!(attr.id.0 & !DRIVER_NS < limit, "{}", attr.name);
        }
    }
}
