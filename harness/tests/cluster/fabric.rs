//! `verbgate fabric verify` and `verbgate explain` as commands: bad input, and ranks that do not
//! fit together. The lab tests the commands with a device.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use crate::common;
use crate::common::output;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// One rank, with nothing of the environment's launcher.
fn verify(args: &[&str]) -> Command {
    let mut command = Command::new(verbgate());
    command.args(["fabric", "verify"]).args(args).stdin(Stdio::null());
    for name in
        ["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK", "MASTER_ADDR", "VERBGATE_RENDEZVOUS"]
    {
        command.env_remove(name);
    }
    command
}

/// The exit code and the one line of a rank that failed.
fn failure(output: &Output) -> (i32, String) {
    let line = stderr(output);
    assert_eq!(line.lines().count(), 1, "{output:?}");
    assert!(line.starts_with("verbgate: "), "{line}");
    (output.status.code().unwrap(), line)
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn usage_errors_are_one_line_and_exit_with_2() {
    let ranks = ["--rank", "0", "--ranks", "1", "--rendezvous", "127.0.0.1:1"];
    let cases: [(&[&str], &str); 6] = [
        (&["--device", "x"], "--rank and --ranks are needed"),
        (&["--rank", "0", "--ranks", "1", "--device", "x"], "--rendezvous HOST:PORT is needed"),
        (&["--sizes", "12Q"], "\"12Q\" is not a size"),
        (&["--sizes", "2M"], "bytes up to 1048576"),
        (&["--device", "a/b"], "write DEVICE[:PORT][@GID_INDEX]"),
        (&["--timeout", "0", "--device", "x"], "--timeout 0"),
    ];
    for (args, words) in cases {
        let all =
            if args.first().is_some_and(|arg| *arg == "--rank") || words.contains("--rank and") {
                args.to_vec()
            } else {
                [&ranks[..], args].concat()
            };
        let (code, line) = failure(&output(&mut verify(&all)));
        assert_eq!(code, 2, "{args:?}: {line}");
        assert!(line.contains(words), "{args:?}: {line}");
    }
}

#[test]
fn a_rendezvous_that_nobody_answers_is_a_timeout() {
    let at = free_port();
    let args =
        ["--rank", "1", "--ranks", "2", "--timeout", "1", "--device", "x", "--rendezvous", &at];
    let (code, line) = failure(&output(&mut verify(&args)));
    assert_eq!(code, 3, "{line}");
    assert!(line.contains(&format!("nobody answers at the rendezvous {at}")), "{line}");
}

/// Whoever comes first, each says why in one line.
#[test]
fn ranks_that_were_told_different_things_say_so() {
    for _ in 0..5 {
        let at = free_port();
        let start = |rank: &str, sizes: &str| {
            let mut command = verify(&["--rank", rank, "--ranks", "2", "--device", "x"]);
            command.args(["--sizes", sizes, "--rendezvous", &at]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        for rank in [start("0", "1"), start("1", "2")] {
            let (code, line) = failure(&rank.wait_with_output().unwrap());
            assert_eq!(code, 2, "{line}");
            assert!(line.contains("--sizes 1 ") && line.contains("--sizes 2 "), "{line}");
        }
    }
}

/// A device that is not there is found by the rank that lacks it, and told by all.
#[test]
fn a_device_that_does_not_open_fails_the_preflight_of_all_ranks() {
    let at = free_port();
    let start = |rank: &str| {
        let mut command = verify(&["--rank", rank, "--ranks", "2", "--device", "nosuchdevice"]);
        command.args(["--rendezvous", &at]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let ranks = [start("0"), start("1")].map(|child| child.wait_with_output().unwrap());
    // What other ranks say goes to rank 0 alone.
    for (rank, (output, told)) in ranks.iter().zip([2, 1]).enumerate() {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let own = format!("FAIL  rank {rank}, rail 0: device opens: ");
        assert!(stdout(output).contains(&own), "{output:?}");
        assert!(stdout(output).contains("FAIL  rank 1, rail 0: device opens: "), "{output:?}");
        let end = format!("verify: FAILED: {told} checks of the preflight");
        assert!(stdout(output).ends_with(&end), "{output:?}");
    }
    let hash = |output: &Output| stdout(output).split(':').next().unwrap().to_owned();
    assert!(hash(&ranks[0]).starts_with("rank table "));
    assert_eq!(hash(&ranks[0]), hash(&ranks[1]));
}

#[test]
fn memory_that_cannot_be_locked_is_found_before_it_is_registered() {
    if !common::is_root() || !common::has("setpriv") || !common::has("prlimit") {
        return;
    }
    let at = free_port();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"]);
    command.args(["prlimit", "--memlock=4096", verbgate(), "fabric", "verify", "--device", "x"]);
    command.args(["--rank", "0", "--ranks", "1", "--rendezvous", &at]).stdin(Stdio::null());
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stdout(&output);
    let words = "FAIL  rank 0: locked memory: RLIMIT_MEMLOCK is 4096 bytes, and ";
    assert!(text.contains(words) && text.contains("raise `ulimit -l`"), "{output:?}");
}

#[test]
fn a_status_is_explained_by_number_and_by_name() {
    let explain = |code: &str| output(Command::new(verbgate()).args(["explain", code]));
    let text = stdout(&explain("RETRY_EXC"));
    assert!(text.starts_with("RETRY_EXC_ERR (12), completion status"), "{text}");
    for words in ["class: fabric", "ARP flux", "local_ack_timeout_err", "remedy: "] {
        assert!(text.contains(words), "{text}");
    }
    // Of a number that is several things, all are told.
    let text = stdout(&explain("12"));
    assert!(text.contains("RETRY_EXC_ERR") && text.contains("ENOMEM (12), errno of"), "{text}");
    let (code, line) = failure(&explain("nonsense"));
    assert_eq!(code, 2);
    assert!(line.contains("nothing is known of \"nonsense\""), "{line}");
    let (_, line) = failure(&explain("RNR_RERTY"));
    assert!(line.contains("did you mean RNR_RETRY_EXC_ERR"), "{line}");
    // What a log has, from standard input, and several at once.
    let mut child = Command::new(verbgate())
        .args(["explain", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let log =
        b"rank 0 began\nCompletion with error at client\n Failed status 13: wr_id 0 syndrom 0x87\n";
    child.stdin.take().unwrap().write_all(log).unwrap();
    let text = stdout(&child.wait_with_output().unwrap());
    assert!(text.contains("RNR_RETRY_EXC_ERR (13)") && text.contains("0x87 (135)"), "{text}");
    let several =
        Command::new(verbgate()).args(["explain", "129", "IBV_EVENT_GID_CHANGE"]).output();
    let text = stdout(&several.unwrap());
    assert!(text.contains("0x81 (129)") && text.contains("GID_CHANGE (18)"), "{text}");
}
