//! Names by which programs open a device, and the numbers of the descriptors.

use std::process::Command;

use rustix::fs::OFlags;

use crate::common::NULL_AS_UVERBS;
use crate::common::guest::DEVICE;
use crate::common::guest::Ran;
use crate::common::guest::finish;
use crate::common::guest::native;
use crate::common::guest::program;
use crate::common::guest::run;
use crate::common::verbgate;

#[test]
fn a_device_is_opened_by_whatever_leads_to_it() {
    let ran = run(&["names", DEVICE]).well();
    let native = native(&["names", DEVICE]);
    let for_both = |ran: &Ran| {
        let for_both = ran.lines.iter().filter(|line| !line.starts_with(char::is_numeric));
        for_both.cloned().collect::<Vec<_>>()
    };
    assert_eq!(for_both(&ran), for_both(&native), "{ran:#?}");
    let served = ran.pairs().into_iter().filter(|(_, outcome)| *outcome == "ENOTTY").count();
    assert_eq!(served, 13, "{ran:#?}");
    // Opens for reading alone, or for writing, or as databases open are not seen (harness/README.md,
    // Limits).
    let unusual = [OFlags::CREATE, OFlags::TRUNC, OFlags::APPEND].map(|flag| OFlags::RDWR | flag);
    for flags in [OFlags::RDONLY, OFlags::WRONLY].into_iter().chain(unusual) {
        let flags = flags.bits().to_string();
        assert_eq!((native.line(&flags), ran.line(&flags)), ("ok", "EACCES"), "{flags}: {ran:#?}");
    }
    // A shell's `<>`, which makes files, is.
    let mut command = Command::new(verbgate());
    let script = format!("exec 7<>{DEVICE} && echo opened");
    command.args(["run", "--device", NULL_AS_UVERBS, "--", "sh", "-c", &script]);
    assert_eq!(finish(&mut command).lines, ["opened"]);
}

fn limited(numbers: &str) -> Ran {
    let script = format!("ulimit -S -n {numbers}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, verbgate(), "run", "--device", NULL_AS_UVERBS, "--"]);
    finish(command.arg(program()).args(["narrow", DEVICE]))
}

#[test]
fn few_numbers_are_enough() {
    for numbers in ["20", "24", "32", "64"] {
        let ran = limited(numbers);
        assert_eq!((ran.line("first"), ran.line("three")), ("ENOTTY", "3"), "{numbers}: {ran:#?}");
        assert!(ran.status.success() && ran.log().is_empty(), "{numbers}: {ran:#?}");
    }
}

/// What is left where the supervisor may have no more, either, is said.
#[test]
fn too_few_numbers_are_told_of() {
    let script = "ulimit -n 20; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, verbgate(), "run", "--device", NULL_AS_UVERBS, "--"]);
    let ran = finish(command.arg(program()).args(["narrow", DEVICE]));
    let words = ["Too many open files", "cannot open uverbs9: EMFILE"];
    let is_told = ran.log().iter().any(|line| words.iter().any(|word| line.contains(word)));
    assert!(ran.line("first") == "ENOTTY" || is_told, "{ran:#?}");
}

#[test]
fn high_numbers_work() {
    let ran = limited("18000");
    for number in ["at 1100", "at 5000", "at 17000"] {
        assert_eq!(ran.line(number), "ENOTTY", "{ran:#?}");
    }
    assert!(ran.status.success() && ran.log().is_empty(), "{ran:#?}");
}
