//! Every attack, by an attacker without rights and by one that is root in its sandbox, on stand-in
//! devices: one answers ENOTTY, the other EINVAL, so that an answer shows which file executed.
//!
//! `verbgate-hostile run NAME` tries one alone, and `cargo xtask test --case hostile` all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests; clippy sees only the test functions themselves as such"
)]

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The program under test, built now if it is not: cargo builds another crate's programs only with
/// that crate's own tests, of which one small one is built here. Of the whole workspace, as its tests are:
/// another set of features would link the program anew under the tests that run it meanwhile.
fn verbgate() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_verbgate-hostile")).with_file_name("verbgate");
        // `cargo xtask test` has built all programs, and lints that run meanwhile hold cargo's lock for minutes.
        if std::env::var_os("VERBGATE_TESTS_BUILT").is_some() {
            return beside;
        }
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["test", "--quiet", "--no-run", "--workspace", "--test", "house"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        if let Some(target) = beside.parent().and_then(Path::parent) {
            build.arg("--target-dir").arg(target);
        }
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        // Where the tests run without cargo, it has been put beside them.
        assert!(built.is_ok_and(|s| s.success()) || beside.exists(), "no verbgate");
        beside
    })
}

/// Whether a container runtime is installed.
fn is_installed(runtime: &str) -> bool {
    let version = Command::new(runtime).arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

#[track_caller]
fn holds(attack: &str) {
    let mut worlds = vec![vec!["nobody"], vec!["root"]];
    if matches!(attack, "ways" | "generated") {
        worlds.push(vec!["nobody", "--compat"]);
    }
    if verbgate_hostile::going_on().contains(&attack) {
        if is_installed("crun") {
            worlds.push(vec!["root", "--container", "crun"]);
        } else {
            println!("SKIPPED in a container: crun(1) is not installed");
        }
    }
    try_in(attack, worlds);
}

/// An attack by crowds, so many processes at once; and one whose guests are stopped and frozen meanwhile.
#[track_caller]
fn holds_by_crowds(attack: &str) {
    let ways =
        [["--minions", "24"], ["--minions", "300"], ["--stopped-s", "30"], ["--frozen-s", "30"]];
    try_in(attack, ways.map(|[option, value]| vec!["root", option, value]).to_vec());
}

#[track_caller]
fn try_in(attack: &str, worlds: Vec<Vec<&str>>) {
    let mut broken = Vec::new();
    for words in worlds {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verbgate-hostile"));
        command.args(["run", attack, "--verbgate"]).arg(verbgate()).arg("--user").args(&words);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let who = words.join(" ");
        println!("{attack}, by {who}:\n{text}{errors}");
        match output.status.code() {
            Some(0) => {}
            Some(code) if code == i32::from(verbgate_hostile::SKIPPED) => {}
            _ => broken.push(who),
        }
    }
    assert!(broken.is_empty(), "{attack} by {}: see above", broken.join(" and by "));
}

/// A test for each attack, and the list of those that have one.
macro_rules! attacks {
    ($($test:ident: $attack:literal,)*) => {
        $(
            #[test]
            fn $test() {
                holds($attack);
            }
        )*
        const TESTED: &[(&str, &str)] = &[$((stringify!($test), $attack),)*];
    };
}

attacks! {
    hostile_ghost: "ghost",
    hostile_ghost_slow: "ghost_slow",
    hostile_ghost_event: "ghost_event",
    hostile_read_only: "read_only",
    hostile_read_only_forged: "read_only_forged",
    hostile_impersonate: "impersonate",
    hostile_impersonate_from_start: "impersonate_from_start",
    hostile_dead_stub: "dead_stub",
    hostile_dead_stub_anywhere: "dead_stub_anywhere",
    hostile_filters: "filters",
    hostile_parked: "parked",
    hostile_ways: "ways",
    hostile_generated: "generated",
    hostile_innocent: "innocent",
    hostile_heirs: "heirs",
    hostile_lives: "lives",
    hostile_traced: "traced",
    hostile_mount_id: "mount_id",
    hostile_stall: "stall",
    hostile_exec_lease: "exec_lease",
    hostile_exec_zombie: "exec_zombie",
    hostile_exec_fuse: "exec_fuse",
    hostile_fuse_getattr: "fuse_getattr",
    hostile_fuse_flush: "fuse_flush",
    hostile_fuse_read: "fuse_read",
    hostile_fuse_read_sync: "fuse_read_sync",
    hostile_fuse_path: "fuse_path",
    hostile_fuse_path_sync: "fuse_path_sync",
    hostile_fuse_access: "fuse_access",
    hostile_fuse_access_sync: "fuse_access_sync",
    hostile_faults_request: "faults_request",
    hostile_faults_path: "faults_path",
    hostile_faults_access: "faults_access",
    hostile_faults_vector: "faults_vector",
    hostile_faults_write: "faults_write",
    hostile_faults_input: "faults_input",
    hostile_faults_output: "faults_output",
    hostile_faults_of_programs: "faults_of_programs",
    hostile_model: "model",
    hostile_tables: "tables",
    hostile_slow_threads: "slow_threads",
    hostile_short_waits: "short_waits",
    hostile_slow_processes: "slow_processes",
    hostile_handles: "handles",
    hostile_descriptors: "descriptors",
    hostile_opens: "opens",
    hostile_duplicates: "duplicates",
    hostile_no_descriptors: "no_descriptors",
    hostile_connections: "connections",
    hostile_accomplice: "accomplice",
}

/// Waits, which a crowd has at once.
macro_rules! crowds {
    ($($test:ident: $attack:literal,)*) => {
        $(
            #[test]
            #[ignore = "two to five minutes; `cargo xtask test --all` runs it"]
            fn $test() {
                holds_by_crowds($attack);
            }
        )*
    };
}

crowds! {
    crowd_of_stall: "stall",
    crowd_of_fuse_getattr: "fuse_getattr",
    crowd_of_fuse_flush: "fuse_flush",
    crowd_of_fuse_read: "fuse_read",
    crowd_of_fuse_path: "fuse_path",
    crowd_of_fuse_access: "fuse_access",
    crowd_of_faults_request: "faults_request",
    crowd_of_faults_path: "faults_path",
    crowd_of_faults_access: "faults_access",
    crowd_of_faults_vector: "faults_vector",
    crowd_of_faults_write: "faults_write",
    crowd_of_faults_input: "faults_input",
    crowd_of_faults_output: "faults_output",
    crowd_of_faults_of_programs: "faults_of_programs",
}

#[test]
fn hostile_attacks_all_have_a_test() {
    let tested: Vec<&str> = TESTED.iter().map(|(_, attack)| *attack).collect();
    assert_eq!(tested, verbgate_hostile::names());
    for (test, attack) in TESTED {
        assert_eq!(test.strip_prefix("hostile_"), Some(*attack));
    }
}
