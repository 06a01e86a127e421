//! `verbgate abi list` as a program runs it.

use std::process::Command;
use std::process::Output;

use crate::common::code;
use crate::common::output;
use crate::common::stderr;
use crate::common::verbgate;

fn list(args: &[&str]) -> Output {
    output(Command::new(verbgate()).args(["abi", "list"]).args(args))
}

#[test]
fn the_table_is_json_on_request() {
    let all = list(&["--json"]);
    assert!(all.status.success() && all.stderr.is_empty(), "{all:?}");
    let value: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    let methods = value["methods"].as_array().unwrap();
    assert!(methods.len() > 70 && value["commands"].as_array().unwrap().len() > 40);
    let srq = methods.iter().find(|m| m["method"] == "SRQ_CREATE").unwrap();
    assert_eq!(srq["object"], "SRQ");
    assert_eq!(srq["profiles"], serde_json::json!(["standard", "hpc", "full"]));
    assert_eq!(srq["residue"].as_array().unwrap().len(), 4);
    let standard = list(&["--profile", "standard", "--json"]);
    assert!(standard.stdout.len() < all.stdout.len());
}

/// Drivers have methods of the core's names, and profiles tell them apart.
#[test]
fn a_profile_grants_no_drivers_method_by_the_name_of_the_cores() {
    let standard = list(&["--profile", "standard", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&standard.stdout).unwrap();
    let methods = value["methods"].as_array().unwrap();
    let of_port = methods.iter().filter(|m| m["method"] == "QUERY_PORT");
    let names: Vec<_> = of_port.map(|method| method["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["DEVICE.QUERY_PORT"]);
    let of_drivers = methods.iter().filter(|method| method.get("driver").is_some());
    let names: Vec<_> = of_drivers.map(|method| method["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["efa:MR.MR_QUERY"]);
}

#[test]
fn an_unknown_profile_is_a_usage_error() {
    let refused = list(&["--profile", "stanard"]);
    assert_eq!(refused.status.code(), Some(2));
    let line = stderr(&refused);
    assert!(line.contains("\"stanard\"") && line.contains("did you mean \"standard\""), "{line}");
    assert!(!line.contains('\n') && refused.stdout.is_empty());
    assert_eq!(code(Command::new(verbgate()).arg("abi")), 2);
}
