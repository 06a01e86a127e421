//! The log of supervisors, and the places where the log goes.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use verbgate_wait::until;

use crate::common::bundle::Bundle;
use crate::common::bundle::Runtime;
use crate::common::bundle::runtimes;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// A line that the supervisor alone writes.
const LINE: &str = "starts with uverbs9";

#[test]
fn a_supervisor_logs_to_the_file_that_the_runtime_was_given() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["true"]);
        let log = bundle.path().join("log");
        bundle.global =
            ["--log", log.to_str().unwrap(), "--log-level", "info"].map(Into::into).to_vec();
        assert!(bundle.run().status.success());
        bundle.assert_nothing_left();
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains(LINE), "{text}");
    }
}

/// Words before a command that has the socket of a directory in the place of the journal's.
fn with_journal_in(bundle: &Bundle) -> Vec<String> {
    let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                  mount --bind $1 /run/systemd/journal && shift && exec \"$@\"";
    let dir = bundle.path().join("logs");
    let words = ["unshare", "--mount", "sh", "-c", script, "sh", dir.to_str().unwrap()];
    words.map(str::to_owned).to_vec()
}

#[test]
fn a_supervisor_without_a_file_logs_to_the_journal() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["true"]);
        fs::create_dir(bundle.path().join("logs")).unwrap();
        let journal = UnixDatagram::bind(bundle.path().join("logs/socket")).unwrap();
        journal.set_nonblocking(true).unwrap();
        bundle.prefix = with_journal_in(&bundle);
        bundle.global = ["--log-level", "info"].map(Into::into).to_vec();
        let output = bundle.run();
        assert!(output.status.success(), "{output:?}");
        let mut bytes = [0; 4096];
        let mut text = String::new();
        while !text.contains(LINE) {
            let len = until("a line of the supervisor's", || journal.recv(&mut bytes).ok());
            text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        }
        assert!(text.contains("\nPRIORITY=6\n"), "{text}");
        assert!(text.contains("\nSYSLOG_IDENTIFIER=verbgate\n"), "{text}");
        // Its socket would be found among those of the bundle.
        drop(journal);
        bundle.prefix.clear();
        bundle.assert_nothing_left();
    }
}

/// Words before a command that has a machine without a journal: `/dev/log` alone is there, the socket of a directory.
fn with_syslog_in(bundle: &Bundle) -> Vec<String> {
    let script = "mount -t tmpfs none /run && dev=$1/dev && mkdir $dev && mount -t tmpfs none $dev && \
                  cd /dev && cp -R --preserve=mode null zero full random urandom tty fuse $dev && cd / && \
                  ln -s $1/socket $dev/log && mount --move $dev /dev && shift && exec \"$@\"";
    let dir = bundle.path().join("logs");
    let words = ["unshare", "--mount", "sh", "-c", script, "sh", dir.to_str().unwrap()];
    words.map(str::to_owned).to_vec()
}

#[test]
fn a_supervisor_without_a_journal_logs_to_syslog() {
    for runtime in runtimes() {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED: needs /dev/fuse");
            return;
        }
        let mut bundle = Bundle::new(runtime, &["true"]);
        fs::create_dir(bundle.path().join("logs")).unwrap();
        let syslog = UnixDatagram::bind(bundle.path().join("logs/socket")).unwrap();
        syslog.set_nonblocking(true).unwrap();
        bundle.prefix = with_syslog_in(&bundle);
        bundle.global = ["--log-level", "info"].map(Into::into).to_vec();
        let output = bundle.run();
        assert!(output.status.success(), "{output:?}");
        let mut bytes = [0; 4096];
        let mut text = String::new();
        while !text.contains(LINE) {
            let len = until("a line of the supervisor's", || syslog.recv(&mut bytes).ok());
            text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        }
        // The facility of daemons, and a note (RFC 5424): 3 * 8 + 6.
        assert!(text.starts_with("<30>verbgate["), "{text}");
        // Its socket would be found among those of the bundle.
        drop(syslog);
        bundle.prefix.clear();
        bundle.assert_nothing_left();
    }
}

/// Words before a command that has the configuration of a directory, and another's last file of nobody.
fn configured(bundle: &Bundle) -> Vec<String> {
    let hide = "mount -t tmpfs none /etc && mkdir -p /etc/verbgate /run/verbgate && \
                mount --bind \"$1/last\" /run/verbgate && mount --bind \"$1/etc\" /etc/verbgate && \
                if [ -e \"$1/program\" ]; then mount --bind \"$1/program\" \"$2\"; fi && \
                shift 2 && exec \"$@\"";
    for dir in ["last", "etc"] {
        fs::create_dir_all(bundle.path().join(dir)).unwrap();
    }
    let dir = bundle.path().to_str().unwrap();
    let words = ["unshare", "--mount", "sh", "-c", hide, "sh", dir, verbgate()];
    words.map(str::to_owned).to_vec()
}

/// The configuration file of [`configured`].
fn file_of(dir: &Path) -> PathBuf {
    dir.join("etc/config.toml")
}

/// Puts the program where [`configured`] shows it, in the place of one that is there.
fn install(dir: &Path) {
    fs::copy(verbgate(), dir.join("new")).unwrap();
    fs::rename(dir.join("new"), dir.join("program")).unwrap();
}

fn nothing(_: &Path) {}

/// Fills the file system below the run-time state to the last page.
fn fill(dir: &Path) {
    let mut file = fs::File::create(dir.join("state/full")).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

/// Names of containers' directories, and of those that are being made.
fn places(dir: &Path) -> Vec<String> {
    let places = fs::read_dir(dir.join("state/oci")).into_iter().flatten().flatten();
    places.map(|place| place.file_name().into_string().unwrap()).collect()
}

fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A policy whose file is made by a function.
fn policy(dir: &Path, make: impl Fn(&Path)) {
    let policies = dir.join("policy.d");
    fs::create_dir_all(&policies).unwrap();
    make(&policies.join("a.toml"));
    fs::write(file_of(dir), format!("policy-dir = {policies:?}\n")).unwrap();
}

/// Something that is broken.
struct Broken {
    what: &'static str,
    /// Breaks it, in the directory of a bundle.
    make: fn(&Path),
    /// Prepares that, before the container is created.
    before: fn(&Path),
    /// Breaks the thing once more, right before the new container.
    again: fn(&Path),
    /// The words of a refusal of new containers with RDMA, if they are refused.
    refused: Option<&'static str>,
    /// Verbs that a container with RDMA loses.
    lost: &'static [&'static str],
    /// Whether a container with RDMA depends on it by its nature.
    is_record: bool,
}

const BROKEN: &[Broken] = &[
    Broken {
        what: "an unknown key",
        make: |dir| fs::write(file_of(dir), "log-levl = \"info\"\n").unwrap(),
        before: nothing,
        again: nothing,
        refused: Some("log-levl"),
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "a pipe for the file",
        make: |dir| pipe(&file_of(dir)),
        before: nothing,
        again: nothing,
        refused: Some("no regular file"),
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "no file",
        make: |dir| fs::remove_file(file_of(dir)).unwrap(),
        before: nothing,
        again: nothing,
        refused: None,
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "a log on a full disk",
        make: |dir| fs::write(file_of(dir), "log = \"/dev/full\"\n").unwrap(),
        before: nothing,
        again: nothing,
        refused: None,
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "a log that nobody reads",
        make: |dir| {
            pipe(&dir.join("log"));
            fs::write(file_of(dir), format!("log = {:?}\n", dir.join("log"))).unwrap();
        },
        before: nothing,
        again: nothing,
        refused: None,
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "a slip in the policy",
        make: |dir| policy(dir, |file| fs::write(file, "version = 1\n[tenat.x]\n").unwrap()),
        before: nothing,
        again: nothing,
        refused: Some("tenat"),
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "a pipe for a policy",
        make: |dir| policy(dir, pipe),
        before: nothing,
        again: nothing,
        refused: Some("no regular file"),
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "no supervisor",
        make: |dir| {
            let found = Command::new("pgrep").args(["-f", dir.to_str().unwrap()]).output().unwrap();
            let is_supervisor = |pid: &&str| {
                fs::read_to_string(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.contains("oci-supervisor"))
            };
            for pid in stdout(&found).lines().filter(is_supervisor) {
                assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
                until("its end", || !fs::exists(format!("/proc/{pid}/fd/0")).unwrap());
            }
        },
        before: nothing,
        again: nothing,
        refused: None,
        lost: &["exec"],
        is_record: false,
    },
    Broken {
        what: "a record of another version",
        make: |dir| {
            for place in fs::read_dir(dir.join("state/oci")).into_iter().flatten().flatten() {
                let lock = place.path().join("lock");
                let text = fs::read_to_string(&lock).unwrap();
                fs::write(&lock, text.replacen('{', "{\"later\":1,", 1)).unwrap();
            }
        },
        before: nothing,
        again: nothing,
        refused: None,
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "a record that nobody can read",
        make: |dir| {
            for place in fs::read_dir(dir.join("state/oci")).into_iter().flatten().flatten() {
                fs::write(place.path().join("lock"), "").unwrap();
            }
        },
        before: nothing,
        again: nothing,
        refused: None,
        lost: &["exec"],
        is_record: false,
    },
    Broken {
        what: "a program that is replaced",
        make: install,
        before: install,
        again: nothing,
        refused: None,
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "a full disk below the run-time state",
        make: fill,
        // In the namespace of this thread, with which the mount goes.
        before: |dir| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            fs::create_dir(dir.join("state")).unwrap();
            let state = dir.join("state");
            for words in [
                &["--make-rprivate", "/"][..],
                &["-t", "tmpfs", "-o", "size=1m", "none", state.to_str().unwrap()],
            ] {
                assert!(Command::new("mount").args(words).status().unwrap().success());
            }
        },
        // What has ended leaves room.
        again: |dir| {
            until("an empty directory of containers", || places(dir).is_empty());
            fill(dir);
        },
        refused: Some("No space left"),
        lost: &[],
        is_record: false,
    },
    Broken {
        what: "no directory of run-time state",
        make: |dir| {
            let _ = fs::rename(dir.join("state"), dir.join("away"));
            fs::write(dir.join("state"), "").unwrap();
        },
        before: nothing,
        again: nothing,
        refused: Some("cannot make"),
        lost: &[],
        is_record: true,
    },
];

/// Verbs that end nothing.
const VERBS: [(&str, &[&str], &[&str]); 7] = [
    ("state", &[], &[]),
    ("ps", &[], &[]),
    ("exec", &[], &["true"]),
    ("pause", &[], &[]),
    ("resume", &[], &[]),
    ("update", &["--pids-limit", "100"], &[]),
    ("kill", &[], &["WINCH"]),
];

/// A broken thing costs new containers with RDMA, and no verb of what runs that the runtime alone has here.
#[test]
fn what_is_broken_costs_no_verb_of_others() {
    let cases = runtimes().flat_map(|runtime| [(runtime, true), (runtime, false)]);
    std::thread::scope(|scope| {
        for (runtime, asks) in cases {
            let rows = BROKEN.iter().filter(move |broken| !asks || !broken.is_record);
            scope.spawn(move || {
                let each = |broken| scope.spawn(move || try_all(runtime, broken, asks));
                rows.for_each(|broken| each(broken).join().unwrap());
            });
        }
    });
}

fn try_all(runtime: &'static Runtime, broken: &Broken, asks: bool) {
    let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
    if !asks {
        bundle.edit(|config| drop(config.remove("annotations")));
    }
    bundle.prefix = configured(&bundle);
    fs::write(file_of(bundle.path()), "log-level = \"error\"\n").unwrap();
    (broken.before)(bundle.path());
    bundle.create();
    assert!(bundle.verb("start", &[]).status.success());
    until("the container's command", || bundle.verb("exec", &["true"]).status.success());
    (broken.make)(bundle.path());
    let case = format!("{}, {}, asks: {asks}", runtime.name, broken.what);
    for (verb, options, args) in VERBS {
        let output = bundle.verb_with(verb, options, args);
        let is_lost = asks && broken.lost.contains(&verb);
        let native = || bundle.natively(verb, options, args).status.success();
        assert!(output.status.success() != is_lost || !native(), "{case}: {verb}: {output:?}");
        // go-runc reads what `state` prints on both streams.
        let both = [&*output.stdout, &*output.stderr].concat();
        let is_json = serde_json::from_slice::<serde_json::Value>(&both).is_ok();
        assert!(verb != "state" || !output.status.success() || is_json, "{case}: {output:?}");
    }
    for (verb, args) in [("kill", &["KILL"][..]), ("delete", &[])] {
        let over = || verb == "kill" || stdout(&bundle.verb("state", &[])).contains("stopped");
        until("the container's end", over);
        let output = bundle.verb(verb, args);
        assert!(output.status.success(), "{case}: {verb}: {output:?}");
    }
    bundle.edit(|config| config["process"]["args"] = serde_json::json!(["true"]));
    (broken.again)(bundle.path());
    let output = bundle.run();
    // A refusal leaves no directory half made. The last check may call `verbgate gc`, which removes such directories.
    let left = places(bundle.path());
    assert!(!left.iter().any(|name| name.starts_with(".new-")), "{case}: {left:?}");
    let refused = broken.refused.filter(|_| asks);
    assert_eq!(output.status.success(), refused.is_none(), "{case}: {output:?}");
    assert!(stderr(&output).contains(refused.unwrap_or_default()), "{case}: {output:?}");
    if broken.is_record {
        fs::remove_file(bundle.path().join("state")).unwrap();
    }
    bundle.assert_nothing_left();
    // A file system that was mounted there.
    let _ = Command::new("umount").arg(bundle.path().join("state")).output();
}

/// Engines are told a link's path, and no options: those come from the configuration file.
#[test]
fn a_runtime_that_is_called_by_a_link_reads_its_configuration() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["true"]);
        // No device of this host: the wish fails, after the log has begun.
        bundle.edit(|config| config["annotations"]["org.verbgate.devices"] = "mlx5_77".into());
        let link = bundle.path().join(format!("verbgate-oci-{}", runtime.name));
        std::os::unix::fs::symlink(verbgate(), &link).unwrap();
        bundle.called = Some(link);
        bundle.prefix = configured(&bundle);
        let (file, log) = (file_of(bundle.path()), bundle.path().join("log"));

        let text =
            format!("log = {log:?}\nlog-level = \"debug\"\nprofile = \"hpc\"\nsysfs = \"host\"\n");
        fs::write(&file, text).unwrap();
        let told = stderr(&bundle.run());
        assert!(told.contains("mlx5_77"), "{told}");
        assert!(log.exists());

        for (text, needle) in [("profil = \"hpc\"", "profil"), ("log-level = \"loud\"", "loud")] {
            fs::write(&file, text).unwrap();
            let output = bundle.run();
            let told = stderr(&output);
            assert!(!output.status.success() && told.contains(needle), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
        }
        bundle.prefix.clear();
        bundle.called = None;
    }
}
