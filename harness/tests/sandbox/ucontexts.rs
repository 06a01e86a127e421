//! Ucontexts: who keeps one, and how long.

use std::fs;
use std::time::Duration;

use crate::common;
use crate::common::guest::DEVICE;
use crate::common::guest::Talk;
use crate::common::guest::code;
use crate::common::guest::eventually;

/// A pseudo-terminal that stands for a device, and a guest that does as it is told.
fn observed() -> (Talk, Talk) {
    let terminal = Talk::with_native(&["terminal"]);
    let slave = terminal.line();
    let guest = Talk::with_guest(&slave, &["obey", DEVICE]);
    (terminal, guest)
}

#[test]
fn nobody_keeps_a_ucontext_that_the_guest_has_closed() {
    for closing in ["close a", "close-all a", "replace a"] {
        let (mut terminal, mut guest) = observed();
        assert_eq!(guest.ask("open a"), "ok");
        assert_eq!(guest.ask("request a"), "ENOTTY");
        assert_eq!(guest.ask("request a"), "ENOTTY");
        assert_eq!(terminal.ask("open"), "true");
        assert_eq!(guest.ask("stubs"), "1");
        assert_eq!(guest.ask(closing), "ok");
        assert_eq!(terminal.ask("closed"), "closed", "{closing}");
        assert_eq!(guest.ask("stubs"), "1");
        assert_eq!(guest.ask("open b"), "ok");
        assert_eq!(guest.ask("request b"), "ENOTTY");
        assert_eq!(terminal.ask("open"), "true");
        assert_eq!(code(guest.end()), 0);
        assert_eq!(terminal.ask("closed"), "closed");
    }
}

/// No number is left for another file in the device's place.
#[test]
fn no_stub_keeps_a_ucontext_under_a_limit_of_descriptors() {
    for millis in [0, 300] {
        let (mut terminal, mut guest) = observed();
        assert_eq!(guest.ask("open a"), "ok");
        // A stub that has waited for 20 ms has given the file back: until one has not.
        let is_held = |guest: &mut Talk| {
            let said = ["limit 64", "request a", "limit 0", "request a"].map(|ask| guest.ask(ask));
            said == ["ok", "ENOTTY", "ok", "ENOTTY"]
        };
        assert!((0..100).any(|_| is_held(&mut guest)));
        // The stub parks meanwhile.
        std::thread::sleep(Duration::from_millis(millis));
        assert_eq!(guest.ask("close a"), "ok");
        assert_eq!(terminal.ask("closed"), "closed", "{millis}");
        assert_eq!(code(guest.end()), 0);
    }
}

#[test]
fn a_duplicate_keeps_the_ucontext_and_no_stub_does() {
    let (mut terminal, mut guest) = observed();
    assert_eq!(guest.ask("open a"), "ok");
    assert_eq!(guest.ask("request a"), "ENOTTY");
    assert_eq!(guest.ask("duplicate a b"), "ok");
    assert_eq!(guest.ask("close a"), "ok");
    assert_eq!(guest.ask("request b"), "ENOTTY");
    assert_eq!(terminal.ask("open"), "true");
    // Its number is not watched.
    assert_eq!(guest.ask("close b"), "ok");
    assert_eq!(terminal.ask("closed"), "closed");
}

#[test]
fn a_child_keeps_the_ucontext_until_it_is_killed() {
    let (mut terminal, mut guest) = observed();
    assert_eq!(guest.ask("open a"), "ok");
    assert_eq!(guest.ask("request a"), "ENOTTY");
    assert_eq!(guest.ask("child c a"), "ok");
    assert_eq!(guest.ask("close a"), "ok");
    assert_eq!(terminal.ask("open"), "true");
    assert_eq!(guest.ask("kill c"), "Signal(9)");
    assert_eq!(terminal.ask("closed"), "closed");
}

#[test]
fn an_executed_program_has_none_of_the_last_ones_ucontexts() {
    let (mut terminal, mut guest) = observed();
    assert_eq!(guest.ask("open a"), "ok");
    assert_eq!(guest.ask("request a"), "ENOTTY");
    assert_eq!(guest.ask("execute"), "ok");
    assert_eq!(terminal.ask("closed"), "closed");
    assert_eq!(guest.ask("open a"), "ok");
    assert_eq!(guest.ask("request a"), "ENOTTY");
    drop(guest);
    assert_eq!(terminal.ask("closed"), "closed");
}

/// A device whose requests wait while the first of the two says so, and a guest that does as it is
/// told; `None` where that cannot be had.
fn stalled() -> Option<(Talk, Talk)> {
    if !common::is_root() || !fs::exists("/dev/net/tun").unwrap() {
        eprintln!("SKIPPED: needs root and /dev/net/tun, whose requests can be made to wait");
        return None;
    }
    let stall = Talk::with_native(&["stall"]);
    Some((stall, Talk::with_guest("/dev/net/tun", &["obey", DEVICE])))
}

/// The guest's process.
fn process_of(guest: &Talk) -> String {
    let children = format!("/proc/{}/task/{0}/children", guest.pid());
    fs::read_to_string(children).unwrap().trim().to_owned()
}

/// The threads of a process that wait in the device.
fn in_the_device(process: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let paths = tasks.map(|task| task.path().to_str().unwrap().to_owned());
    let waits = |task: &String| {
        fs::read_to_string(format!("{task}/stack")).is_ok_and(|s| s.contains("tun_chr_ioctl"))
    };
    paths.filter(waits).collect()
}

#[test]
fn more_requests_than_stubs_wait_their_turn() {
    let Some((mut stall, mut guest)) = stalled() else { return };
    assert_eq!(guest.ask("open a"), "ok");
    assert_eq!(guest.ask("request a"), "EBADFD");
    assert_eq!(stall.ask("block"), "blocked");
    for _ in 0..30 {
        assert_eq!(guest.ask("call a"), "ok");
    }
    // All that there may be; the rest of the calls wait for them.
    let process = process_of(&guest);
    eventually("all stubs at work", || {
        let busy = in_the_device(&process).len();
        if busy == 8 { Ok(()) } else { Err(busy) }
    });
    assert_eq!(guest.ask("stubs"), "8");
    assert_eq!(stall.ask("release"), "released");
    assert_eq!(guest.ask("join"), r#"{"EBADFD": 30}"#);
    assert_eq!(guest.ask("stubs"), "8");
    assert_eq!(code(guest.end()), 0);
}

/// A request that names no memory waits for a slow device in the supervisor, once for a process; stubs make the others.
#[test]
fn a_slow_device_keeps_one_thread_of_the_supervisor() {
    let Some((mut stall, mut guest)) = stalled() else { return };
    assert_eq!(guest.ask("open a"), "ok");
    assert_eq!(guest.ask("request a"), "EBADFD");
    assert_eq!(stall.ask("block"), "blocked");
    let (supervisor, process) = (guest.pid().to_string(), process_of(&guest));
    for stubs in 0..4 {
        assert_eq!(guest.ask("end a"), "ok");
        eventually("the request", || {
            let waiting = [&supervisor, &process].map(|process| in_the_device(process).len());
            if waiting == [1, stubs] { Ok(()) } else { Err(waiting) }
        });
    }
    // Nobody else waits.
    assert_eq!(guest.ask("open b"), "ok");
    assert_eq!(guest.ask("close b"), "ok");
    assert_eq!(stall.ask("release"), "released");
    assert_eq!(guest.ask("join"), r#"{"EBADFD": 4}"#);
    // A stub's request is in the kernel: no other of that file is made outside.
    assert_eq!(stall.ask("block"), "blocked");
    assert_eq!(guest.ask("call a"), "ok");
    eventually("the stub's", || {
        let waiting = in_the_device(&process).len();
        if waiting == 1 { Ok(()) } else { Err(waiting) }
    });
    assert_eq!(guest.ask("end a"), "ok");
    eventually("another stub's", || {
        let waiting = [&supervisor, &process].map(|process| in_the_device(process).len());
        if waiting == [0, 2] { Ok(()) } else { Err(waiting) }
    });
    assert_eq!(stall.ask("release"), "released");
    assert_eq!(guest.ask("join"), r#"{"EBADFD": 2}"#);
    assert_eq!(code(guest.end()), 0);
}

#[test]
fn a_ucontext_closed_under_a_request_is_let_go_after_it() {
    let Some((mut stall, mut guest)) = stalled() else { return };
    assert_eq!(guest.ask("open a"), "ok");
    assert_eq!(guest.ask("request a"), "EBADFD");
    assert_eq!(stall.ask("block"), "blocked");
    assert_eq!(guest.ask("call a"), "ok");
    let process = process_of(&guest);
    let mut stub = None;
    eventually("the request", || {
        stub = in_the_device(&process).pop();
        stub.as_ref().map(drop).ok_or("no thread in the device")
    });
    let held = || fs::read_link(format!("{}/fd/0", stub.as_ref().unwrap())).unwrap();
    let device = held();
    assert_eq!(guest.ask("close a"), "ok");
    assert_eq!(held(), device);
    assert_eq!(stall.ask("release"), "released");
    assert_eq!(guest.ask("join"), r#"{"EBADFD": 1}"#);
    eventually(
        "the ucontext's end",
        || if held() == device { Err(device.clone()) } else { Ok(()) },
    );
}

#[test]
fn a_guest_killed_in_a_request_is_gone_after_it() {
    let Some((mut stall, mut guest)) = stalled() else { return };
    assert_eq!(guest.ask("open a"), "ok");
    assert_eq!(guest.ask("request a"), "EBADFD");
    assert_eq!(stall.ask("block"), "blocked");
    for _ in 0..12 {
        assert_eq!(guest.ask("call a"), "ok");
    }
    let process = process_of(&guest);
    eventually("the requests", || match in_the_device(&process).len() {
        8 => Ok(()),
        busy => Err(busy),
    });
    drop(guest);
    // What is in the kernel stays there until the kernel is done with it.
    assert_eq!(in_the_device(&process).len(), 8);
    assert_eq!(stall.ask("release"), "released");
    eventually("its end", || match fs::exists(format!("/proc/{process}")).unwrap() {
        true => Err(in_the_device(&process)),
        false => Ok(()),
    });
}

#[test]
fn a_process_stopped_in_a_request_is_stopped_after_it() {
    let Some((mut stall, mut guest)) = stalled() else { return };
    assert_eq!(guest.ask("open a"), "ok");
    assert_eq!(guest.ask("request a"), "EBADFD");
    assert_eq!(guest.ask("child c a"), "ok");
    assert_eq!(stall.ask("block"), "blocked");
    assert_eq!(guest.ask("tell c"), "ok");
    eventually("the request", || {
        let child = guest.ask("pid c");
        if in_the_device(&child).len() == 1 { Ok(()) } else { Err(child) }
    });
    assert_eq!(guest.ask("stop c"), "ok");
    assert_eq!(stall.ask("release"), "released");
    assert_eq!(guest.ask("stopped c"), "ok");
    assert_eq!(guest.ask("continue c"), "ok");
    assert_eq!(guest.ask("heard c"), "EBADFD");
    assert_eq!(guest.ask("kill c"), "Signal(9)");
}
