//! The log of supervisors, and the places where the log goes.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Output;

use verbgate_wait::until;

use crate::common::bundle::Bundle;
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

/// Words before a command that has this configuration file, and another's last one of nobody.
fn configured(file: &Path) -> Vec<String> {
    let hide = "mount -t tmpfs none /etc && mkdir -p /etc/verbgate /run/verbgate && \
                mount --bind \"${1%/*}/last\" /run/verbgate && \
                cp $1 /etc/verbgate/config.toml && shift && exec \"$@\"";
    fs::create_dir_all(file.with_file_name("last")).unwrap();
    let words = ["unshare", "--mount", "sh", "-c", hide, "sh", file.to_str().unwrap()];
    words.map(str::to_owned).to_vec()
}

/// A mistake in the configuration costs those who ask for RDMA then, and nobody else.
#[test]
fn a_broken_configuration_costs_no_verb_of_others() {
    for runtime in runtimes() {
        for asks in [true, false] {
            let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
            if !asks {
                bundle.edit(|config| drop(config.remove("annotations")));
            }
            let file = bundle.path().join("config.toml");
            bundle.prefix = configured(&file);
            fs::write(&file, "log-level = \"info\"\n").unwrap();
            bundle.create();
            let well = |output: Output| assert!(output.status.success(), "{output:?}");
            well(bundle.verb("start", &[]));
            fs::write(&file, "log-levl = \"info\"\n").unwrap();
            well(bundle.verb("state", &[]));
            let exec = || bundle.verb("exec", &["sh", "-c", "exit 7"]).status.code();
            until("the container's command", || exec() == Some(7));
            fs::write(&file, "log = \"/nonexistent/log\"\n").unwrap();
            assert_eq!(exec(), Some(7));
            fs::write(&file, "log-levl = \"info\"\n").unwrap();
            well(bundle.verb("kill", &["KILL"]));
            let is_over = || stdout(&bundle.verb("state", &[])).contains("stopped");
            until("the container's end", is_over);
            well(bundle.verb("delete", &[]));
            bundle.edit(|config| config["process"]["args"] = serde_json::json!(["true"]));
            let output = bundle.run();
            assert_eq!(output.status.success(), !asks, "{output:?}");
            let told = stderr(&output);
            assert!(
                !asks || told.contains("log-levl") && told.contains("no container gets RDMA"),
                "{told}"
            );
            bundle.assert_nothing_left();
        }
    }
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
        let (file, log) = (bundle.path().join("config.toml"), bundle.path().join("log"));
        bundle.prefix = configured(&file);

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
