//! Requests, good and bad, made by raw system calls; and the cost of a request.

use std::process::Command;

use crate::common;
use crate::common::NULL_AS_UVERBS;
use crate::common::guest;
use crate::common::guest::DEVICE;
use crate::common::guest::native;
use crate::common::guest::run;
use crate::common::guest::run_with;

#[test]
fn a_good_request_reaches_the_device_and_a_bad_one_gets_the_kernels_error() {
    let ran = run(&["errors", DEVICE]);
    let expected = [
        ("good", "ENOTTY"),
        ("length too short", "EINVAL"),
        ("length too long", "EINVAL"),
        ("length over a page", "EINVAL"),
        ("first reserved field", "EPROTONOSUPPORT"),
        ("second reserved field", "EPROTONOSUPPORT"),
        ("unknown object", "EPROTONOSUPPORT"),
        ("unknown method", "EPROTONOSUPPORT"),
        ("attribute twice", "EINVAL"),
        ("unknown mandatory attribute", "EPROTONOSUPPORT"),
        ("unknown optional attribute", "ENOTTY"),
        ("missing mandatory attribute", "EINVAL"),
        ("reserved field of an attribute", "EINVAL"),
        ("attribute too short", "EINVAL"),
        ("header nowhere", "EFAULT"),
        ("header in the kernel", "EFAULT"),
        ("header at the end of addresses", "EFAULT"),
        ("request that ends with its page", "ENOTTY"),
        ("request cut by the end of memory", "EFAULT"),
        ("header cut by the end of memory", "EFAULT"),
        ("request that is not in memory", "ENOTTY"),
        ("request whose end is not in memory", "ENOTTY"),
        ("payload nowhere", "EFAULT"),
        ("descriptor that is not open", "EBADF"),
        ("descriptor -1", "EBADF"),
        ("a plain file", "ENOTTY"),
        ("a pipe", "ENOTTY"),
        ("upper words are ignored", "ENOTTY"),
        // Never ENOTTY, on which libibverbs gives up ioctls.
        ("method not granted", "EPROTONOSUPPORT"),
        ("command not granted", "EOPNOTSUPP"),
        ("QP type not granted", "EOPNOTSUPP"),
        ("QP type granted", "ENOTTY"),
        ("command that does not exist", "EOPNOTSUPP"),
        ("bits that no command has", "EINVAL"),
        ("another ioctl", another_ioctl()),
    ];
    assert_eq!(ran.pairs(), expected, "{ran:#?}");
    assert_eq!(ran.count("executed"), 7, "{ran:#?}");
    assert_eq!(ran.count("planted"), 1);
    assert!(ran.status.success());
    // Each refusal by policy is one line, which says everything once.
    for (asked, grants) in [
        ("method COUNTERS.COUNTERS_DESTROY", "hpc"),
        ("command ATTACH_MCAST", "hpc"),
        ("queue pair type RAW_PACKET", "full"),
    ] {
        let line = format!(
            "{asked} is not granted by profile \"standard\"; profile \"{grants}\" grants it"
        );
        let said = ran.log().into_iter().filter(|said| said.ends_with(&line));
        assert_eq!(said.count(), 1, "{line}: {ran:#?}");
    }
    assert!(!ran.errors.contains("kind="), "{ran:#?}");
}

/// What the kernel says of an ioctl that is no request, on a descriptor that stands for no open file;
/// an ordinary user's guest has the file.
fn another_ioctl() -> &'static str {
    if rustix::process::geteuid().is_root() { "EBADF" } else { "ENOTTY" }
}

#[test]
fn the_null_device_itself_answers_every_request_with_enotty() {
    // What the sandbox says beyond that is the supervisor's judgement, not the device's.
    let ran = native(&["errors", DEVICE]);
    let others = ran.pairs().into_iter().filter(|(_, errno)| *errno != "ENOTTY");
    let others: Vec<_> = others.collect();
    assert_eq!(others, [("descriptor that is not open", "EBADF"), ("descriptor -1", "EBADF")]);
}

/// A guest has its descriptor before the supervisor is told which number that got.
#[test]
fn a_request_reaches_the_device_as_soon_as_the_descriptor_is_there() {
    const OPENS: u32 = 100;
    let early = ["early", DEVICE, &OPENS.to_string()];
    let mut all = vec![run(&early)];
    if rustix::process::geteuid().is_root() {
        // Who may not mount opens devices without mounts of their own; an ordinary user has done so above.
        let mut weak = Command::new("setpriv");
        weak.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", common::verbgate()]);
        let ran = guest::run_by(weak, &["--device", NULL_AS_UVERBS], &early);
        assert!(ran.errors.contains("mounts of their own"), "{ran:#?}");
        all.push(ran);
    }
    for ran in all {
        assert_eq!(ran.line("early"), format!(r#"{{"ENOTTY": {}}}"#, 4 * OPENS), "{ran:#?}");
        // Other files are answered with ENOTTY, too.
        assert_eq!(ran.count("executed"), u64::from(1 + 4 * OPENS), "{ran:#?}");
    }
}

#[test]
fn a_flood_of_refusals_is_a_few_lines_and_a_count() {
    let ran = run(&["refused", DEVICE, "100000"]);
    assert_eq!(ran.lines[0], r#"{"EPROTONOSUPPORT": 100000}"#, "{ran:#?}");
    assert_eq!(ran.line("after"), "ENOTTY");
    assert_eq!(ran.report["refused"]["method not granted"], 100_000);
    assert_eq!(ran.count("executed"), 1);
    // One a second, and the machine may be slow.
    assert!((1..60).contains(&ran.log().len()), "{} lines", ran.log().len());
}

#[test]
fn other_interfaces_to_the_same_call_are_closed() {
    let ran = run(&["foreign", DEVICE]).well();
    if cfg!(target_arch = "x86_64") {
        assert_eq!(native(&["foreign", DEVICE]).line("32-bit"), "ENOTTY");
    }
    assert_eq!(ran.line("native"), "ENOTTY");
    let refused = if cfg!(target_arch = "x86_64") { "ENOSYS" } else { "EOPNOTSUPP" };
    assert_eq!(ran.line("32-bit"), refused);
    assert_eq!(ran.line("32-bit, another ioctl"), refused);
    assert_eq!(ran.line("x32"), "ENOSYS");
    assert_eq!(ran.count("executed"), 1);
}

/// A program of 32 bits runs where it may, and finds no RDMA.
#[test]
fn compat_calls_are_made_where_they_are_allowed_and_reach_no_device() {
    if !cfg!(target_arch = "x86_64") {
        return println!("SKIPPED: needs x86_64, whose 32-bit calls a 64-bit program can make");
    }
    let ran = run_with(&["--device", NULL_AS_UVERBS, "--compat"], &["foreign", DEVICE]).well();
    assert_eq!(ran.line("native"), "ENOTTY");
    // The kernel's own answer about a token, which is no file to be read or asked (O_PATH).
    assert_eq!(ran.line("32-bit"), "EBADF");
    assert_eq!(ran.line("32-bit, another ioctl"), "EBADF");
    assert_eq!(ran.line("x32"), "ENOSYS");
    assert_eq!(ran.count("executed"), 1);
}

#[test]
fn commands_given_with_write_are_requests() {
    let ran = run(&["writes", DEVICE]);
    let expected = [
        ("command", "ENOTTY"),
        ("command of another length", "EINVAL"),
        ("no command", "EINVAL"),
        ("command that is not granted", "EOPNOTSUPP"),
        ("command that does not exist", "EOPNOTSUPP"),
        ("command nowhere", "EFAULT"),
        ("vector", "ENOTTY"),
        ("vector nowhere", "EFAULT"),
    ];
    assert_eq!(ran.pairs(), expected, "{ran:#?}");
    assert_eq!(ran.count("executed"), 2, "{ran:#?}");
    // The null device would have taken them all.
    assert_eq!(native(&["writes", DEVICE]).line("command that is not granted"), "ok");
}

#[test]
fn plain_files_at_watched_numbers_work_as_everywhere() {
    let ran = run(&["watched-numbers", DEVICE]).well();
    assert_eq!(ran.lines, native(&["watched-numbers", DEVICE]).lines);
    assert_eq!(ran.lines.len(), 12, "{ran:#?}");
}

#[test]
fn two_hundred_threads_at_once() {
    let ran = run(&["many", DEVICE, "200", "20"]).well();
    assert_eq!(ran.lines[0], r#"{"ENOTTY 20": 200}"#, "{ran:#?}");
    assert_eq!(ran.count("executed"), 4000);
    assert!(ran.count("planted") <= 8, "{ran:#?}");
}

#[test]
fn storms_of_opens_are_served_and_end_nobody() {
    // Processes, threads of each, opens of each, and how many of the processes are stopped meanwhile.
    for counts in [
        ["1000", "1", "1", "0"],
        ["200", "1", "5", "0"],
        ["20", "100", "1", "0"],
        ["90", "1", "3", "30"],
    ] {
        let [processes, threads, opens, stopped] = counts;
        let ran = run(&["storm", DEVICE, processes, threads, opens, stopped]).well();
        assert_eq!(ran.lines[0], format!("{{\"Code(0)\": {processes}}}"), "{ran:#?}");
        assert_eq!(ran.line("bystander"), "Code(0)");
    }
}

#[test]
fn ucontexts_take_turns_with_and_without_a_stub_for_each() {
    for ucontexts in ["2", "12"] {
        let ran = run(&["turns", DEVICE, ucontexts]).well();
        let all = 300 * ucontexts.parse::<u64>().unwrap();
        assert_eq!(ran.lines[0], format!("{{\"ENOTTY\": {all}}}"), "{ran:#?}");
        assert_eq!(ran.count("executed"), all);
        assert_eq!(ran.count("opened"), ucontexts.parse::<u64>().unwrap());
    }
}

/// A stub that has parked, because this machine had no processor for the guest, shows when it is woken: a few times.
const WAKES: u64 = 10;

#[test]
fn a_request_costs_two_notifications_and_few_calls() {
    let cost = |requests: &str| {
        let ran = run(&["requests", DEVICE, requests]).well();
        assert_eq!(ran.count("executed"), requests.parse::<u64>().unwrap());
        (ran.count("notifications"), ran.count("calls"))
    };
    // The difference is what requests cost, without start and planting.
    let (small, large) = (cost("100"), cost("1100"));
    assert!((2 * 1000..2 * 1000 + WAKES).contains(&(large.0 - small.0)), "{small:?} {large:?}");
    let calls = large.1 - small.1;
    // Of these, seven find out whether a number still names what it named, and one whether the
    // request is in memory. Looking after guests meanwhile adds a few.
    assert!(calls <= 15 * 1000 + 100, "{calls} calls for 1000 requests");
}

#[test]
fn a_request_that_names_no_memory_costs_one_notification() {
    let cost = |requests: &str| run(&["destroys", DEVICE, requests]).well().count("notifications");
    let (small, large) = (cost("100"), cost("1100"));
    assert!((1000..1000 + WAKES).contains(&(large - small)), "{small} {large}");
}

#[test]
fn a_trace_is_summed_up() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(common::verbgate());
    command.args(["trace", "--summary", "--json", "--device", NULL_AS_UVERBS, "-o"]);
    command.arg(file.path()).arg("--").arg(guest::program()).args(["requests", DEVICE, "20"]);
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let text = std::fs::read_to_string(file.path()).unwrap();
    let sums: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |name: &str| {
        let kinds = sums["requests"].as_array().unwrap();
        kinds.iter().find(|kind| kind["request"] == name).cloned().unwrap_or_default()
    };
    assert_eq!(of("open")["count"], 1, "{text}");
    let requests: u64 = sums["requests"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|kind| kind["request"] != "open")
        .map(|kind| kind["count"].as_u64().unwrap())
        .sum();
    assert_eq!((requests, sums["stubs"].as_u64()), (20, Some(1)), "{text}");
    assert!(sums["first_open"].as_f64().unwrap() > 0.0, "{text}");
    assert!(sums["first_ready_to_send"].is_null(), "{text}");
}
