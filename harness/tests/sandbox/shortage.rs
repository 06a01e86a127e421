//! Verbgate's own shortage: strace(1) fails a call of the supervisor's, each in turn, while a process opens a device, makes
//! a request, closes the device and executes another program. Nobody is ended, nothing is left, the errno is the
//! kernel's, and the next attempt works.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use verbgate_wait::until;

use crate::common::guest::DEVICE;
use crate::common::guest::Talk;

/// Calls by which a supervisor takes something, and what the kernel says when there is none left.
const FAILS: &[(&str, &str)] = &[
    ("openat", "EMFILE"),
    ("pidfd_open", "ENFILE"),
    ("memfd_create", "EMFILE"),
    ("ftruncate", "ENOSPC"),
    ("mmap", "ENOMEM"),
    ("clone,clone3", "EAGAIN"),
    ("fcntl", "EMFILE"),
    ("fsopen", "EMFILE"),
    ("fsmount", "ENFILE"),
    ("open_tree", "EMFILE"),
    ("mknodat", "ENOSPC"),
    ("inotify_add_watch", "ENOSPC"),
    ("pidfd_getfd", "EMFILE"),
    ("socketpair", "EMFILE"),
];
/// Names of these errnos, as the guest tells them.
const SHORTAGES: [&str; 7] =
    ["EMFILE", "ENFILE", "errno23", "ENOMEM", "EAGAIN", "ENOSPC", "errno28"];
const WELL: &str = "ENOTTY, Code(0)";

/// Has the Nth of such calls of each of the supervisor's threads fail: what the guest tells meanwhile, and whether any did.
fn failing(guest: &mut Talk, (calls, errno): (&str, &str), n: u32) -> (String, bool) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let inject = format!("inject={calls}:error={errno}:when={n}");
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-e", &format!("trace={calls}"), "-e", &inject, "-o"])
        .arg(log.path());
    let mut strace = strace.args(["-p", &guest.pid().to_string()]).spawn().unwrap();
    let pid = strace.id().to_string();
    let is_traced = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        // A thread that has just ended is traced by nobody.
        status.is_empty()
            || status
                .lines()
                .any(|line| line.strip_prefix("TracerPid:").is_some_and(|by| by.trim() == pid))
    };
    let tasks = format!("/proc/{}/task", guest.pid());
    until("strace", || fs::read_dir(&tasks).unwrap().flatten().all(is_traced));
    let told = guest.ask("go");
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    strace.wait().unwrap();
    let text = fs::read_to_string(log.path()).unwrap();
    (told, text.contains("(INJECTED)"))
}

fn descriptors(guest: &Talk) -> usize {
    fs::read_dir(format!("/proc/{}/fd", guest.pid())).unwrap().count()
}

#[test]
fn a_shortage_ends_nobody_and_is_told_as_what_it_is() {
    if !rustix::process::geteuid().is_root() || Command::new("strace").arg("-V").output().is_err() {
        eprintln!("SKIPPED: failing a supervisor's calls needs root and strace");
        return;
    }
    let mut guest = Talk::with_guest("/dev/null", &["steps", DEVICE]);
    for _ in 0..3 {
        assert_eq!(guest.ask("go"), WELL);
    }
    let before = descriptors(&guest);
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for fails in FAILS {
        for n in 1.. {
            let (told, injected) = failing(&mut guest, *fails, n);
            let case = format!("{fails:?}, call {n}");
            let is_shortage = SHORTAGES.iter().any(|errno| {
                told == format!("open: {errno}, Code(0)") || told == format!("{errno}, Code(0)")
            });
            assert!(told == WELL || is_shortage, "{case}: {told}");
            assert_eq!(guest.ask("go"), WELL, "after {case}");
            *seen.entry(format!("{}: {told}", fails.0)).or_default() += 1;
            if !injected {
                break;
            }
        }
    }
    println!("{seen:#?}");
    assert!(seen.keys().any(|told| told.contains("open: EMFILE")), "{seen:#?}");
    // A helper and a frame for the next stub are kept.
    until("the end of what is left", || descriptors(&guest) <= before + 4);
}
