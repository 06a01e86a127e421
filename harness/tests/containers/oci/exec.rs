//! Processes that `exec` adds to a hostile container: each has the container's rights and comes
//! under a filter, whatever the container does meanwhile.

use std::path::Path;
use std::process::Command;

use crate::common::bundle;
use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::stderr;
use crate::common::stdout;

/// Stands for whatever a container puts in a place that it believes to be executed.
const EVIL: &str = "#!/bin/sh\necho evil; grep CapEff /proc/self/status\n";

/// A container without a mount at /dev, whose command does as a script says once it has begun.
fn hostile(runtime: &'static bundle::Runtime, script: &str) -> Bundle {
    let script = format!("{script}; echo >/tmp/ready; exec sleep infinity");
    let mut bundle = Bundle::new(runtime, &["sh", "-c", &script]);
    bundle.edit(|config| {
        config["mounts"].as_array_mut().unwrap().retain(|mount| mount["destination"] != "/dev");
    });
    std::fs::write(bundle.path().join("rootfs/evil"), EVIL).unwrap();
    assert!(
        Command::new("chmod")
            .arg("755")
            .arg(bundle.path().join("rootfs/evil"))
            .status()
            .unwrap()
            .success()
    );
    bundle
}

fn status(bundle: &Bundle, options: &[&str]) -> String {
    let words =
        ["sh", "-c", "cat /tmp/ready; grep -E '^(CapEff|CapBnd|Seccomp):' /proc/self/status"];
    let mut text = String::new();
    // Until the script has done its work.
    for _ in 0..1000 {
        let output = bundle.verb_with("exec", options, &words);
        text = format!("{}{}", stdout(&output), stderr(&output));
        // A runtime that cannot enter the namespaces which the script has made never can.
        if output.status.success() || text.contains("evil") || text.contains("setns") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    text
}

#[test]
fn what_a_container_puts_in_our_place_is_not_executed() {
    let place = "mkdir -p /dev/.verbgate; cp /evil /dev/.verbgate/init";
    for runtime in runtimes() {
        let bundle = hostile(
            runtime,
            &format!("mv /dev /dev.old; mkdir -p /dev; mv /dev.old/* /dev; {place}"),
        );
        bundle.start();
        let text = status(&bundle, &[]);
        assert!(!text.contains("evil"), "{text}");
        // Under a filter, and without CAP_SYS_ADMIN, in the bounding set either.
        assert!(text.contains("Seccomp:\t2"), "{text}");
        assert_eq!(text.matches("00000000000001a1").count(), 2, "{text}");
        bundle.delete();
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_first_process_in_mounts_of_its_own_gains_nothing() {
    for runtime in runtimes() {
        // It executes itself, so the first process is in namespaces that it has made, where it
        // mounts what it likes.
        let inside = ": >/tmp/null; mount --bind /dev/null /tmp/null; mount -t tmpfs none /dev; \
                      : >/dev/null; mount --bind /tmp/null /dev/null; mkdir -p /dev/.verbgate; \
                      cp /evil /dev/.verbgate/init; echo >/tmp/ready; exec sleep infinity";
        let mut bundle = hostile(runtime, "true");
        bundle.edit(|config| {
            let words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside];
            config["process"]["args"] = words.into();
            // Whose root it may become without a capability.
            config["process"]["user"] = serde_json::json!({"uid": 1000, "gid": 1000});
        });
        bundle.start();
        let text = status(&bundle, &[]);
        assert!(!text.contains("evil"), "{text}");
        // Crun cannot enter such a container's network namespace, with Verbgate or without.
        let entered = text.contains("Seccomp:\t2");
        assert!(entered || (runtime.name == "crun" && text.contains("setns")), "{text}");
        bundle.delete();
        bundle.assert_nothing_left();
    }
}

#[test]
fn who_executes_grants_no_capability_that_reaches_a_device() {
    for runtime in runtimes() {
        let bundle = hostile(runtime, "true");
        bundle.start();
        let text = status(&bundle, &["--cap", "CAP_SYS_ADMIN", "--cap=CAP_MKNOD"]);
        assert_eq!(text.matches("00000000000001a1").count(), 2, "{text}");
        bundle.delete();
        bundle.assert_nothing_left();
    }
}

/// The thief as a program of the container: it knocks at every socket that it may know of.
fn thief(dir: &Path) -> Option<std::path::PathBuf> {
    let program = dir.join("thief");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/containers/oci/thief.c");
    let built =
        Command::new("cc").args(["-O1", "-static", "-o"]).arg(&program).arg(source).status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: needs a C compiler and a static libc");
        return None;
    }
    Some(program)
}

#[test]
fn nobody_in_a_container_takes_the_place_of_an_exec() {
    for runtime in runtimes() {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = thief(dir.path()) else { return };
        for mode in ["steal", "flood"] {
            let mut bundle = Bundle::new(runtime, &["/thief", mode]);
            bundle.bind(&program, "/thief");
            bundle.start();
            for _ in 0..10 {
                let script = "exec 3<>/dev/infiniband/uverbs9 && exit 7";
                let output = bundle.verb("exec", &["sh", "-c", script]);
                assert_eq!(output.status.code(), Some(7), "{mode}: {output:?}");
            }
            bundle.delete();
            bundle.assert_nothing_left();
        }
    }
}
