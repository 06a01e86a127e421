//! Lives of processes that use RDMA, and what is left of them: stubs, descriptors, ucontexts.

use std::fs;
use std::process::Command;

use crate::common;
use crate::common::guest;
use crate::common::guest::DEVICE;
use crate::common::guest::Talk;
use crate::common::guest::code;
use crate::common::guest::eventually;
use crate::common::guest::native;
use crate::common::guest::run;

#[test]
fn signals_do_not_lose_a_result() {
    let ran = run(&["signals", DEVICE]).well();
    assert_eq!(ran.line("restarting"), "ENOTTY 5000; signals came: true", "{ran:#?}");
    // A call that is interrupted before the supervisor has it is not restarted, and was not made:
    // each result that there is was seen.
    let (ends, came) = ran.line("interrupting").split_once("; ").unwrap();
    assert_eq!(came, "signals came: true");
    let ends: Vec<_> = ends.split(", ").map(|end| end.split_once(' ').unwrap()).collect();
    assert!(ends.iter().all(|(end, _)| ["EINTR", "ENOTTY"].contains(end)), "{ran:#?}");
    let reached = ends.iter().find(|(end, _)| *end == "ENOTTY").unwrap().1;
    assert_eq!(ran.count("executed"), 5000 + reached.parse::<u64>().unwrap(), "{ran:#?}");
}

/// How many of the sequences that a line tells of ended so.
fn ended(line: &str, how: &str) -> u64 {
    let ends = line.split(", ").filter_map(|end| end.rsplit_once(' '));
    ends.filter(|(end, _)| *end == how).map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

/// A signal ends a call only in the microseconds before the supervisor has it, also that by way of
/// which a stub is planted, which takes as long as some of these timers.
#[test]
fn programs_with_timers_use_rdma() {
    for micros in ["5000", "1000"] {
        let ran = run(&["timers", DEVICE, micros, "100"]).well();
        assert_eq!(ran.line("restarting"), "well 100", "{ran:#?}");
        let line = ran.line("interrupting");
        let interrupted = ["EINTR at open", "EINTR at the first", "EINTR later"];
        let interrupted: u64 = interrupted.iter().map(|how| ended(line, how)).sum();
        assert_eq!(ended(line, "well") + interrupted, 100, "{ran:#?}");
        // A busy machine may let the supervisor wait longer.
        assert!(interrupted <= 30, "{micros} us: {ran:#?}");
    }
}

#[test]
fn a_stopped_process_stops_and_goes_on() {
    let ran = run(&["stops", DEVICE]).well();
    assert_eq!(ran.lines, ["stopped each time", "Code(0)"], "{ran:#?}");
}

#[test]
fn a_stop_in_the_middle_of_planting_is_survived() {
    let ran = run(&["stops-at-first", DEVICE]).well();
    assert_eq!(ran.lines, [r#"{"Code(0)": 60}"#], "{ran:#?}");
    assert_eq!(ran.count("planted"), 60);
}

#[test]
fn every_process_has_its_own_stub() {
    let ran = run(&["forks", DEVICE]).well();
    let expected = [
        "parent: ENOTTY with 1 stubs",
        "child: true with 1 stubs, 0 before",
        "Code(0)",
        "spawned: Some(0)",
        "parent: ENOTTY with 1 stubs",
    ];
    assert_eq!(ran.lines, expected, "{ran:#?}");
    assert_eq!((ran.count("planted"), ran.count("executed")), (3, 4), "{ran:#?}");
}

#[test]
fn a_device_sent_over_a_socket_works_and_stays_when_the_sender_closes_it() {
    let ran = run(&["sends", DEVICE]).well();
    let expected = [
        "sender: ENOTTY",
        "receiver: ENOTTY with 1 stubs",
        "sender again: ENOTTY",
        "receiver alone: ENOTTY",
        "Code(0)",
    ];
    assert_eq!(ran.lines, expected, "{ran:#?}");
    assert_eq!((ran.count("planted"), ran.count("executed")), (2, 4), "{ran:#?}");
}

#[test]
fn spawned_programs_use_a_device_of_their_own_and_an_inherited_one() {
    let ran = run(&["spawns", DEVICE]).well();
    let expected = [
        "parent: ENOTTY",
        "ENOTTY with 1 stubs",
        "Some(0)",
        "inherited: ENOTTY with 1 stubs",
        "Some(0)",
        "parent again: ENOTTY",
    ];
    assert_eq!(ran.lines, expected, "{ran:#?}");
    assert_eq!((ran.count("planted"), ran.count("executed")), (3, 4), "{ran:#?}");
}

#[test]
fn a_child_in_its_parents_memory_uses_its_parents_stub_or_none() {
    let ran = run(&["borrowers", DEVICE]);
    let expected = [
        "child first: EPERM",
        "parent: ENOTTY",
        "child: ENOTTY",
        "parent again: ENOTTY",
        "1 stubs",
    ];
    assert_eq!(ran.lines, expected, "{ran:#?}");
    assert!(ran.status.success() && ran.log().len() == 1, "{ran:#?}");
}

#[test]
fn the_next_program_is_planted_anew() {
    let ran = run(&["executes", DEVICE]).well();
    assert_eq!(ran.lines, ["first program: ENOTTY", "ENOTTY with 1 stubs"], "{ran:#?}");
    assert_eq!(ran.count("planted"), 2);
}

#[test]
fn another_user_gets_stubs_of_its_own() {
    let ran = run(&["becomes", DEVICE]).well();
    let expected = [
        "before: ENOTTY",
        "change: ok",
        "no stub of the former user is left",
        "after: ENOTTY",
        "1 stubs, 1 user",
    ];
    assert_eq!(ran.lines, expected, "{ran:#?}");
    assert_eq!(ran.count("planted"), 2, "{ran:#?}");
}

#[test]
fn a_program_executed_in_the_middle_of_planting_runs() {
    let ran = run(&["executes-meanwhile", DEVICE]);
    assert_eq!(ran.lines, [r#"{"Code(0)": 200}"#], "{ran:#?}");
}

#[test]
fn a_process_ends_with_its_last_ordinary_thread() {
    let ran = run(&["ends-all", DEVICE]).well_with(7);
    assert_eq!(ran.line("alone"), "ENOTTY 50", "{ran:#?}");
    assert_eq!(code(native(&["ends-all", DEVICE]).status), 7);
    // Its code is that of the last thread to end: its own natively, here the stub's.
    let ran = run(&["ends", DEVICE]).well_with(0);
    assert_eq!(ran.line("alone"), "ENOTTY 50", "{ran:#?}");
}

/// How many descriptors a process has, how many threads that serve, and how many others.
fn held(pid: &str) -> (usize, usize, usize) {
    let folder = |what| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().flatten();
    let serves = |task: fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "serve\n")
    };
    let (serve, others): (Vec<_>, Vec<_>) = folder("task").map(serves).partition(|serves| *serves);
    (folder("fd").count(), serve.len(), others.len())
}

#[test]
fn guests_killed_at_any_moment_leave_nothing_in_the_supervisor() {
    let mut guest = Talk::with_guest("/dev/null", &["killed", DEVICE, "200"]);
    assert_eq!(guest.line(), "first: ENOTTY");
    let supervisor = guest.line().strip_prefix("supervisor ").unwrap().to_owned();
    // The frame that is made ahead comes a while after the first request.
    let mut before = held(&supervisor);
    let mut unchanged = 0;
    eventually("a quiet supervisor", || {
        let now = held(&supervisor);
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
        if unchanged > 60 { Ok(()) } else { Err(now) }
    });
    guest.tell("go");
    assert_eq!(guest.line(), r#"{"Signal(9)": 200}"#);
    assert_eq!(guest.line(), "last: ENOTTY");
    // As many threads serve as guests asked at once, at most one for each processor, and a spare one;
    // more, of which there may have been some at the start, end by themselves.
    let most = std::thread::available_parallelism().unwrap().get() + 1;
    eventually("the return to the start", || {
        let now = held(&supervisor);
        let is_back = now.0 <= before.0 && now.1 <= before.1.max(most) && now.2 <= before.2;
        if is_back { Ok(()) } else { Err((before, now)) }
    });
    guest.tell("done");
    assert_eq!(code(guest.end()), 0);
}

/// A thread that makes a request is known again by a descriptor, which is of no use once the thread has ended.
#[test]
fn threads_that_come_and_go_leave_few_descriptors_in_the_supervisor() {
    let mut guest = Talk::with_guest("/dev/null", &["passers", DEVICE, "400"]);
    assert_eq!(guest.line(), r#"{"ENOTTY 1": 400}"#);
    let (descriptors, ..) = held(&guest.pid().to_string());
    guest.tell("done");
    assert_eq!(code(guest.end()), 0);
    assert!(descriptors < 120, "{descriptors}");
}

/// A thread on its way to its end has no memory any more: that makes nobody a forger.
#[test]
fn processes_that_end_in_the_middle_of_requests_are_not_suspected() {
    let ran = run(&["leaves", DEVICE, "300"]);
    assert_eq!(ran.lines, [r#"{"Code(0)": 300}"#], "{ran:#?}");
    // The kernel makes no thread while another executes a program, and that is said.
    let suspected = ran.log().into_iter().filter(|line| !line.contains("clone in the guest"));
    assert_eq!(suspected.count(), 0, "{ran:#?}");
}

/// What one thread's planting leaves is no leftover to the others, which ask meanwhile.
#[test]
fn first_requests_of_many_threads_at_once_plant_one_stub_after_the_other() {
    let ran = run(&["firsts", DEVICE, "200"]);
    assert_eq!(ran.lines, [r#"{"Code(0)": 200}"#], "{ran:#?}");
    assert_eq!(ran.log(), Vec::<String>::new(), "{ran:#?}");
}

#[test]
fn without_its_supervisor_a_guest_goes_on_without_rdma() {
    let guest = Talk::with_guest("/dev/null", &["bereft", DEVICE]);
    for line in [
        "first: ENOTTY",
        "request: ENOSYS",
        "open: ENOSYS",
        "close: ENOSYS",
        "no stub is left",
        "Code(0)",
    ] {
        assert_eq!(guest.line(), line);
    }
}

#[test]
fn limits_of_descriptors_are_the_kernels() {
    // The limit that it starts with decides which numbers are watched.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 1024; exec \"$0\" \"$@\"", common::verbgate(), "run"]);
    command.args(["--device", common::NULL_AS_UVERBS, "--"]).arg(guest::program());
    let ran = guest::finish(command.args(["limits", DEVICE]));
    let expected = [
        ("no number to plant with", "EMFILE"),
        ("then", "ENOTTY"),
        ("before", "ENOTTY"),
        ("above the limit", "ENOTTY"),
        ("open below the numbers that are watched", "EMFILE"),
        ("no number, held by the stub", "ENOTTY"),
        ("no number, held by a stub that has waited", "ENOTTY"),
        ("no number, not held", "EMFILE"),
        ("limit raised", "ENOTTY"),
        ("full, open", "EMFILE"),
        ("full, request", "ENOTTY"),
        ("one free", "ok"),
    ];
    assert_eq!(ran.pairs(), expected, "{ran:#?}");
    assert!(ran.status.success(), "{ran:#?}");
}

#[test]
fn a_duplicate_works_when_all_else_is_closed() {
    let ran = run(&["closed", DEVICE]).well();
    let expected = [
        ("before", "ENOTTY"),
        ("closed", "EBADF"),
        ("duplicate", "ENOTTY"),
        ("duplicate again", "ENOTTY"),
        ("opened again", "ENOTTY"),
        ("all closed", "EBADF"),
        ("from scratch", "ENOTTY"),
    ];
    assert_eq!(ran.pairs(), expected, "{ran:#?}");
}

#[test]
fn a_guests_own_filters_are_its_own() {
    let ran = run(&["filters", DEVICE]).well();
    let expected = [
        "before: ENOTTY",
        "second listener: EBUSY",
        "filter: ok",
        "filtered: EACCES",
        "Code(0)",
        "after: ENOTTY",
    ];
    assert_eq!(ran.lines, expected, "{ran:#?}");
}

#[test]
fn a_filter_on_the_stub_ends_it_rather_than_make_it_spin() {
    let ran = run(&["filtered-stub", DEVICE]);
    assert!(ran.status.success(), "{ran:#?}");
    assert_eq!(ran.lines, ["before: ENOTTY", "filter: ok", "the stub has ended"], "{ran:#?}");
}
