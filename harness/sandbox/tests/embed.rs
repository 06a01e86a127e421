#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows this in test functions; here the helpers of tests use it, too"
)]
//! The example `embed`, run as its documentation says.

use std::path::PathBuf;
use std::process::Command;

/// Cargo builds examples beside the tests.
fn embed() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/embed")
}

#[test]
fn the_example_serves_a_program_and_prints_what_it_asks_for() {
    if !verbgate_host::is_root() {
        eprintln!("SKIPPED: a stand-in for a device needs root");
        return;
    }
    let script = "exec 3<>/dev/infiniband/uverbs9 && ls /dev/infiniband && exit 7";
    let output =
        Command::new(embed()).args(["uverbs9=/dev/null", "sh", "-c", script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{text}{stderr}");
    assert!(text.contains(" opened uverbs9 as descriptor "), "{text}{stderr}");
    assert!(text.contains("1 devices opened, 0 requests executed"), "{text}{stderr}");
    // The policy has no rdma_cm.
    assert!(!text.contains("rdma_cm"), "{text}{stderr}");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let output = Command::new(embed()).args(["nonesuch0", "true"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("nonesuch0"), "{stderr}");
}
