//! `verbgate fabric diagnose` and `simulate` as commands, as far as they need no device. The lab
//! tests the commands with a device.

use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use verbgate_wait::until;

use crate::common;
use crate::common::output;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// One rank, with nothing of the environment's launcher.
fn diagnose(at: &str, rank: &str, args: &[&str]) -> Command {
    let mut command = Command::new(verbgate());
    command.args(["fabric", "diagnose", "--rendezvous", at, "--rank", rank]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK", "VERBGATE_RENDEZVOUS"] {
        command.env_remove(name);
    }
    command
}

fn start(at: &str, rank: &str, args: &[&str]) -> Child {
    diagnose(at, rank, args).spawn().unwrap()
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The exit code and the one line of a rank that failed.
fn failure(output: &Output) -> (i32, String) {
    let line = stderr(output);
    assert_eq!(line.lines().count(), 1, "{output:?}");
    assert!(line.starts_with("verbgate: "), "{line}");
    (output.status.code().unwrap(), line)
}

const NONE: [&str; 4] = ["--ranks", "2", "--device", "nosuchdevice"];

/// The first rank has the device that is asked of it; of the others each is named.
#[test]
fn a_device_that_is_not_there_is_a_cause_and_strangers_are_told_of() {
    let at = free_port();
    let zero = start(&at, "0", &NONE);
    let mut strangers = 0;
    until("the rendezvous", || {
        if let Ok(mut stranger) = TcpStream::connect(&at) {
            stranger.write_all(b"SSH-2.0-scanner\r\n").unwrap();
            strangers += 1;
        }
        strangers == 2
    });
    let one = start(&at, "1", &NONE);
    for (rank, child) in [zero, one].into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = stdout(&output);
        for other in 0..2 {
            let words = format!("CAUSE no-device: rank {other}: rail 0: ");
            assert!(text.contains(&words), "{rank}: {text}");
        }
        assert!(text.contains("CAUSE stray-connections: 2 connections"), "{rank}: {text}");
        assert!(text.ends_with("diagnose: FOUND no-device, stray-connections"), "{text}");
    }
}

#[test]
fn locked_memory_that_is_too_small_is_named_before_what_follows_from_it() {
    if !common::is_root() || !common::has("setpriv") || !common::has("prlimit") {
        return;
    }
    let at = free_port();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"]);
    command.args(["prlimit", "--memlock=4096", verbgate(), "fabric", "diagnose", "--device", "x"]);
    command.args(["--rank", "0", "--ranks", "1", "--rendezvous", &at, "--json"]);
    let output = output(command.stdin(Stdio::null()));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let causes: Vec<&str> =
        report["causes"].as_array().unwrap().iter().map(|c| c["cause"].as_str().unwrap()).collect();
    assert!(causes.contains(&"memlock-too-small"), "{report}");
}

/// Whoever comes first, all ranks say the same, each in one line.
#[test]
fn ranks_that_do_not_fit_name_the_rank_and_the_difference() {
    let three = ["--ranks", "3", "--device", "x"];
    let sizes = ["--ranks", "2", "--device", "x", "--sizes", "7"];
    for (args, words) in [(&three[..], "--ranks 3, and rank 0 2"), (&sizes[..], "--sizes 7")] {
        let at = free_port();
        for child in [start(&at, "0", &NONE), start(&at, "1", args)] {
            let (code, line) = failure(&child.wait_with_output().unwrap());
            assert_eq!(code, 2, "{line}");
            assert!(line.contains("rank 1 ") && line.contains(words), "{line}");
        }
    }
}

#[test]
fn a_rank_that_comes_twice_is_told_so_by_both() {
    let at = free_port();
    let args = ["--ranks", "3", "--device", "x"];
    let ranks = ["0", "1", "1"].map(|rank| start(&at, rank, &args));
    for child in ranks {
        let (code, line) = failure(&child.wait_with_output().unwrap());
        assert_eq!(code, 2, "{line}");
        assert!(line.contains("two processes are rank 1: rank 1 on "), "{line}");
    }
}

#[test]
fn sizes_and_ranks_that_are_none_are_usage_errors() {
    for (args, words) in [
        (["--ranks", "2", "--sizes", "64Q"], "\"64Q\" is not a size"),
        (["--ranks", "2", "--sizes", "2M"], "bytes up to 1048576"),
        (["--ranks", "0", "--device", "x"], "--ranks 0"),
        (["--ranks", "1", "--device", "x"], "of 1 ranks, the last is 0"),
    ] {
        let (code, line) = failure(&output(&mut diagnose("127.0.0.1:1", "1", &args)));
        assert_eq!(code, 2, "{line}");
        assert!(line.contains(words), "{line}");
    }
}

/// Each rank connects with others one after the other, both ends at the same time.
#[test]
fn simulated_ranks_agree_and_all_pairs_connect_once() {
    let mut command = Command::new(verbgate());
    command.args(["fabric", "simulate", "--ranks", "64", "--rounds", "6"]).stdin(Stdio::null());
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let outcome: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let of = |name: &str| outcome[name].as_u64().unwrap();
    assert_eq!((of("hashes"), of("pairs"), of("left_over")), (1, 64 / 2 * 6, 0), "{outcome}");
    // What rank 0 holds does not grow with what ranks say to each other.
    assert!(of("server_kib") < 64 << 10, "{outcome}");
}

/// A cluster of 128 nodes with 8 rails each: all meet, check, try each path, and report; what is
/// injected is named, and nothing else.
#[test]
fn a_simulated_cluster_names_what_is_injected() {
    let faults = ["nothing-arrives@rank=17", "packet-loss@rail=3", "path-mtu@pair=5-99,rail=2"];
    let mut command = Command::new(verbgate());
    command.args(["fabric", "simulate", "--ranks", "128", "--rails", "8"]).stdin(Stdio::null());
    command.args(faults.iter().flat_map(|fault| ["--fault", fault]));
    command.args(["--fault", "peer-killed@rank=64"]);
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let outcome: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let causes: Vec<String> = outcome["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let ranks = one["ranks"].as_array().unwrap().len();
            format!("{} {} {ranks}", one["cause"].as_str().unwrap(), one["rail"])
        })
        .collect();
    // Of 127 ranks that are there.
    let expected =
        ["peer-killed null 1", "path-mtu 2 2", "packet-loss 3 126", "nothing-arrives null 1"];
    assert_eq!(causes, expected, "{outcome}");
    assert!(outcome["ends"].as_u64().unwrap() > 120_000, "{outcome}");
    assert!(outcome["plan"].as_str().unwrap().contains("of 127 rounds"), "{outcome}");
    assert!(outcome["server_kib"].as_u64().unwrap() < 256 << 10, "{outcome}");
    let wrong = Command::new(verbgate())
        .args(["fabric", "simulate", "--ranks", "4", "--rails", "1", "--fault", "x@y=1"])
        .output()
        .unwrap();
    let (code, line) = failure(&wrong);
    assert!(code == 2 && line.contains("write CAUSE@PLACE"), "{line}");
}
