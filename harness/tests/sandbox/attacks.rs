//! Attacks from inside the sandbox. Each attack is also tried where it succeeds (natively, or on
//! the guest's own memory and processes), or the test would prove nothing.

use std::io::BufRead;
use std::io::BufReader;
use std::process::Command;
use std::process::Stdio;

use crate::common;
use crate::common::guest;
use crate::common::guest::DEVICE;
use crate::common::guest::code;
use crate::common::guest::native;
use crate::common::guest::run;
use crate::common::guest::run_with;

/// The numbers in a line `ENOTTY 3, EINVAL 4`.
fn tally(line: &str) -> Vec<(&str, u64)> {
    line.split(", ")
        .map(|part| part.split_once(' ').unwrap())
        .map(|(k, n)| (k, n.parse().unwrap()))
        .collect()
}

#[test]
fn the_stubs_memory_cannot_be_replaced() {
    let ran = run(&["attack", "remap", DEVICE]);
    assert_eq!((ran.line("before"), ran.line("after")), ("ENOTTY", "ENOTTY"), "{ran:#?}");
    assert_eq!((ran.line("regions"), ran.line("unchanged")), ("3", "true"), "{ran:#?}");
    for trick in [
        "mprotect",
        "pkey_mprotect",
        "munmap",
        "munmap around",
        "mmap over",
        "mmap across",
        "mremap away",
        "mremap a copy",
        "mremap shorter",
        "mremap onto",
        "madvise DONTNEED",
        "madvise DOFORK",
        "madvise REMOVE",
        "remap_file_pages",
    ] {
        assert_eq!(ran.line(trick), "ok EPERM EPERM EPERM", "{trick}");
    }
    // Not to be had anywhere: the range is not among the arguments.
    assert_eq!(ran.line("shmat"), "EINVAL EINVAL EINVAL EINVAL");
    assert_eq!(ran.line("process_madvise"), "ENOSYS ENOSYS ENOSYS ENOSYS");
    let native = native(&["attack", "remap", DEVICE]);
    assert_eq!((native.line("shmat"), native.line("process_madvise")), ("ok", "ok"));
}

/// What a process outside gets from a guest, and what either can do with it: mapping memory is done by
/// a stub for the guest, and not at all outside.
#[test]
fn a_descriptor_that_leaves_the_sandbox_is_of_no_use() {
    if !common::is_root() {
        return;
    }
    let zero = ["--device", "uverbs9=/dev/zero"];
    for (inside, guest, outside) in [
        (false, "ENOTTY", ["ENOTTY", "ok", "ok", "ok", "ok"]),
        (true, "ENOTTY", ["EBADF", "EBADF", "EBADF", "EBADF", "EACCES"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let socket = socket.to_str().unwrap();
        let mut taker = Command::new(guest::program());
        let mut taker = taker.args(["takes", socket]).stdout(Stdio::piped()).spawn().unwrap();
        let mut taken = BufReader::new(taker.stdout.take().unwrap()).lines();
        assert_eq!(taken.next().unwrap().unwrap(), "listens");
        let ran = match inside {
            true => run_with(&zero, &["gives-away", DEVICE, socket]),
            false => native(&["gives-away", "/dev/zero", socket]),
        };
        let ran = ran.well();
        assert_eq!((ran.line("guest"), ran.line("guest again")), (guest, guest), "{ran:#?}");
        assert_eq!(ran.line("shared"), "ok", "{ran:#?}");
        let thread = if inside { "EINVAL" } else { "ok" };
        assert!(ran.pairs().iter().all(|(name, said)| *name != "thread" || *said == thread));
        // The stub has the file itself, in a table of its own.
        let through: Vec<&str> =
            ran.pairs().iter().filter(|p| p.0 == "through /proc").map(|p| p.1).collect();
        assert_eq!(through, if inside { vec!["EACCES"] } else { vec![] }, "{ran:#?}");
        let taken: Vec<String> = taken.map(Result::unwrap).collect();
        let names = ["ioctl", "read", "write", "shared", "reopen"];
        let expected = names.iter().zip(outside).map(|(name, said)| format!("{name}: {said}"));
        assert_eq!(taken, expected.collect::<Vec<_>>(), "{ran:#?}");
        assert!(taker.wait().unwrap().success());
    }
}

#[test]
fn nothing_is_mapped_there_beforehand() {
    let ran = run(&["attack", "premap", DEVICE]);
    for part in ["code", "frame", "end"] {
        assert_eq!(ran.line(part), "EPERM EPERM EPERM", "{ran:#?}");
    }
    for way in ["across", "moved"] {
        assert_eq!(ran.line(way), "EPERM", "{ran:#?}");
    }
    assert_eq!((ran.line("below"), ran.line("above")), ("ok", "ok"));
    assert_eq!((ran.line("request"), ran.line("regions")), ("ENOTTY", "3"));
    let native = native(&["attack", "premap", DEVICE]);
    assert_eq!(native.line("across"), "ok", "{native:#?}");
}

#[test]
fn the_frame_and_the_code_cannot_be_written() {
    let ran = run(&["attack", "write", DEVICE]);
    assert_eq!((ran.line("before"), ran.line("after")), ("ENOTTY", "ENOTTY"), "{ran:#?}");
    assert_eq!((ran.line("regions"), ran.line("unchanged")), ("2", "true"), "{ran:#?}");
    assert_eq!(ran.line("/proc/self/mem"), "ok EIO EIO");
    // It minds protections, those of the guest's own page as well.
    assert_eq!(ran.line("process_vm_writev"), "EFAULT EFAULT EFAULT");
    assert_eq!(ran.line("ptrace"), "ok EIO EIO");
    assert_eq!(ran.line("userfaultfd"), "ok EPERM EPERM");
    // Anonymous memory has no such file.
    assert_eq!(ran.line("map_files"), "ENOENT EPERM EPERM");
    assert_eq!(ran.line("scratch"), "ok");
}

#[test]
fn a_store_to_the_frame_or_the_code_is_the_end() {
    const SEGV: i32 = 128 + 11;
    for region in ["store-frame", "store-code"] {
        let ran = run(&["attack", region, DEVICE]);
        assert_eq!((ran.line("before"), code(ran.status)), ("ENOTTY", SEGV), "{ran:#?}");
    }
    let ran = run(&["attack", "store-scratch", DEVICE]);
    assert_eq!(ran.lines, ["before: ENOTTY", "stored"], "{ran:#?}");
}

#[test]
fn no_process_passes_for_another() {
    let ran = run(&["attack", "forge-owner", DEVICE]);
    assert_eq!(ran.line("placed"), "true", "{ran:#?}");
    // Its first guess, nothing, is the truth; but what it mapped is where its stub belongs.
    let mut guesses = ran.line("guessed").split(' ');
    assert!(guesses.all(|guess| ["ENOMEM", "EIO", "EPERM"].contains(&guess)), "{ran:#?}");
    assert_eq!(ran.line("told"), "EPERM", "{ran:#?}");
    assert_eq!((ran.line("own stubs"), ran.line("victim")), ("0", "Code(0)"), "{ran:#?}");
    // Of the victim.
    assert_eq!((ran.count("planted"), ran.count("executed")), (1, 1), "{ran:#?}");
    assert!(ran.log().len() < 10, "{ran:#?}");
}

#[test]
fn a_child_made_during_planting_is_not_served_by_its_parents_stub() {
    let ran = run(&["attack", "inherit", DEVICE]);
    assert_eq!(ran.line("borrowed"), "0, failed: 0", "{ran:#?}");
}

#[test]
fn who_scribbles_on_the_frame_disturbs_nobody() {
    let ran = run(&["attack", "scribble", DEVICE]).well();
    assert_eq!(ran.line("racer"), "ENOTTY 20000", "{ran:#?}");
    assert_eq!(ran.line("bystander"), "Code(0)", "{ran:#?}");
}

#[test]
fn a_descriptor_that_changes_is_never_another_file() {
    let ran = run(&["attack", "swap", DEVICE]);
    let ends = tally(ran.line("racer"));
    assert_eq!(ends.iter().map(|(_, n)| n).sum::<u64>(), 10_000, "{ran:#?}");
    assert!(ends.iter().all(|(end, _)| ["ENOTTY", "EBADF"].contains(end)), "{ran:#?}");
    assert_eq!(ran.line("after"), "ENOTTY 1", "{ran:#?}");
    assert!(ran.status.success() && ran.log().is_empty(), "{ran:#?}");
}

#[test]
fn what_is_executed_is_what_was_checked() {
    for (attack, refused) in
        [("flip-method", "method not granted"), ("flip-payload", "QP type not granted")]
    {
        let ran = run(&["attack", attack, DEVICE]);
        let ends = tally(ran.line("racer"));
        let count = |errno| ends.iter().find(|(end, _)| *end == errno).map_or(0, |(_, n)| *n);
        let refusal = if attack == "flip-method" { "EPROTONOSUPPORT" } else { "EOPNOTSUPP" };
        // Both happened, or the race was none.
        assert!(count("ENOTTY") > 100 && count(refusal) > 100, "{ran:#?}");
        assert_eq!(ran.report["refused"][refused], count(refusal), "{ran:#?}");
        assert_eq!(ran.line("seen in the frame"), "false", "{ran:#?}");
        let requests = ran.report["requests"].as_object().unwrap();
        let name = if attack == "flip-method" { "PD_DESTROY" } else { "CREATE_QP" };
        assert_eq!(requests.keys().collect::<Vec<_>>(), [name], "{ran:#?}");
        assert_eq!(requests[name], count("ENOTTY") + 1, "{ran:#?}");
    }
}

#[test]
fn a_path_that_changes_opens_the_device_or_the_file() {
    let ran = run(&["attack", "flip-path", DEVICE]);
    assert_eq!(ran.line("both"), "true, others: 0", "{ran:#?}");
    assert!(ran.status.success(), "{ran:#?}");
}

#[test]
fn a_debugger_gets_any_thread_but_the_stub() {
    let ran = run(&["attack", "trace", DEVICE]);
    assert_eq!(ran.line("ordinary"), "ok ok", "{ran:#?}");
    assert_eq!(ran.line("stub"), "EPERM EPERM", "{ran:#?}");
    assert_eq!((ran.line("before"), ran.line("after")), ("ENOTTY", "ENOTTY"), "{ran:#?}");
}

#[test]
fn a_traced_process_is_told_so_until_it_is_let_go() {
    let ran = run(&["attack", "traced", DEVICE]);
    let expected = [
        "seize: ok",
        "traced: EPERM",
        "traced: EPERM",
        "traced: EPERM",
        "free: ENOTTY",
        "free: ENOTTY",
        "free: ENOTTY",
        "Code(0)",
    ];
    assert_eq!(ran.lines, expected, "{ran:#?}");
    let log = ran.log();
    assert!(log.len() == 1 && log[0].contains("traced by process"), "{log:?}");
}
