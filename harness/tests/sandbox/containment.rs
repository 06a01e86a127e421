//! Attacks on the sandbox by ways around the filter. Each attack runs twice: natively, where it
//! must succeed (or the test would prove nothing), and as a guest, where it must fail.

use std::process::Command;

use crate::common;
use crate::common::is_root;
use crate::common::output;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// Runs in a mount namespace of its own, in which `/dev/infiniband` holds a raw node: the null
/// device, which opens as an RDMA device would.
const HOST: &str = "mkdir -p /dev/infiniband && mount -t tmpfs host /dev/infiniband && \
                    mknod -m 666 /dev/infiniband/uverbs9 c 1 3 &&";

struct Outcome {
    native: std::process::Output,
    guest: std::process::Output,
}

/// `around` is shell to be run before, on the same line as the command: `cd X;`, `exec 7<X;`.
/// `$T` is a directory for it.
fn attempt(around: &str, attack: &str) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let host = |launch: &str| {
        let script = format!("{HOST} {{ {around} exec {launch} sh -c \"$ATTACK\"; }}");
        let output = output(
            Command::new("unshare")
                .args(["-m", "sh", "-c", &script])
                .env("ATTACK", attack)
                .env("T", dir.path())
                .current_dir("/")
                .stdin(std::process::Stdio::null()),
        );
        if let Ok(other) = std::fs::read_to_string(dir.path().join("pid")) {
            verbgate_wait::kill(other.trim().parse().unwrap());
        }
        output
    };
    let guest = format!("{} run --device uverbs9=/dev/infiniband/uverbs9 --", verbgate());
    Outcome { native: host(""), guest: host(&guest) }
}

fn must_fail(around: &str, attack: &str) {
    let Outcome { native, guest } = attempt(around, attack);
    assert!(native.status.success(), "the attack is void: {attack}: {}", stderr(&native));
    assert!(!guest.status.success(), "succeeded: {attack}: {}", stdout(&guest));
    let ours = stderr(&guest).contains("verbgate: ");
    assert!(!ours, "the attack was not reached: {}", stderr(&guest));
}

#[test]
fn the_node_is_seen_but_not_opened() {
    if !is_root() {
        return;
    }
    let Outcome { guest, .. } = attempt("", "stat -c '%F %t:%T %a' /dev/infiniband/uverbs9");
    assert_eq!(stdout(&guest), "character special file 1:3 666", "{}", stderr(&guest));
    must_fail("", "true < /dev/infiniband/uverbs9");
    must_fail("", "true > /dev/infiniband/uverbs9");
}

#[test]
fn the_rest_of_dev_is_usable() {
    if !is_root() {
        return;
    }
    let Outcome { guest, .. } = attempt(
        "",
        "head -c1 /dev/zero >/dev/null && : > /dev/shm/verbgate-test && \
                     rm /dev/shm/verbgate-test && test -c /dev/ptmx && echo ok",
    );
    assert_eq!(stdout(&guest), "ok", "{}", stderr(&guest));
}

#[test]
fn no_node_can_be_made() {
    if !is_root() {
        return;
    }
    for dir in ["/dev", "/tmp", "/dev/shm"] {
        let node = format!("{dir}/verbgate-test-node");
        must_fail("", &format!("mknod {node} c 1 3 && rm {node}"));
    }
}

#[test]
fn a_node_that_waits_elsewhere_is_dead() {
    if !is_root() {
        return;
    }
    // Made before, by somebody outside.
    let made = "mkdir -p $T/elsewhere && mount -t tmpfs x $T/elsewhere && \
                mknod -m 666 $T/elsewhere/node c 1 3;";
    must_fail(made, "true < $T/elsewhere/node");
    // A second view of the whole of /dev.
    let bound = "mkdir -p $T/dev && mount --bind /dev $T/dev;";
    must_fail(bound, "true < $T/dev/null");
}

#[test]
fn a_view_of_dev_within_dev_is_dead() {
    if !is_root() {
        return;
    }
    let bound = "mkdir -p /dev/shm/vg && mount -t devtmpfs x /dev/shm/vg;";
    must_fail(bound, "true < /dev/shm/vg/null");
}

#[test]
fn nothing_can_be_mounted_or_unmounted() {
    if !is_root() {
        return;
    }
    must_fail("", "mount -t tmpfs x /mnt");
    must_fail("", "umount -l /dev/infiniband");
    must_fail("", "mount -o remount,bind,dev /dev/infiniband");
    // With all capabilities of a user namespace.
    must_fail("", "unshare -Urm umount -l /dev/infiniband || umount -l /dev/infiniband");
    if has_landlock() {
        // Without Landlock this one succeeds, and gives nothing: no device node is honoured on
        // what a user namespace mounts.
        must_fail("", "unshare -Urm mount -t tmpfs x /mnt");
    }
}

/// Whether the sandbox has a Landlock domain; says so when it has not.
fn has_landlock() -> bool {
    let features = output(Command::new(verbgate()).args(["features", "--json"]));
    let value: serde_json::Value = serde_json::from_slice(&features.stdout).unwrap();
    let has = value["kernel_features"]
        .as_array()
        .unwrap()
        .iter()
        .any(|f| f["name"] == "landlock" && f["supported"] == true);
    if !has {
        eprintln!("SKIPPED in part: this kernel has no Landlock");
    }
    has
}

#[test]
fn other_processes_lead_nowhere() {
    if !is_root() {
        return;
    }
    let other = "sleep infinity <&- >&- 2>&- & echo $! > $T/pid;";
    let raw = "true < /proc/$(cat $T/pid)/root/dev/infiniband/uverbs9";
    must_fail(other, raw);
    must_fail(other, "ls /proc/$(cat $T/pid)/cwd/");
    must_fail(other, "nsenter -t $(cat $T/pid) -m true");
    // The supervisor, which is the guest's parent.
    must_fail("", "test -n \"$(readlink /proc/$PPID/exe)\"");
    must_fail("", "readlink /proc/$PPID/fd/1");
    // A process of the same user without any capability is no bridge either.
    let weak = "setpriv --bounding-set=-all --inh-caps=-all sleep infinity <&- >&- 2>&- & \
                echo $! > $T/pid; sleep 0.1;";
    if common::has("setpriv") && has_landlock() {
        must_fail(weak, raw);
    }
}

#[test]
fn the_working_directory_is_no_way_out() {
    if !is_root() {
        return;
    }
    must_fail("cd /dev/infiniband;", "true < ./uverbs9");
    // And it is still what it was by name.
    let Outcome { guest, .. } = attempt("cd /dev/infiniband;", "pwd -P; ls");
    assert_eq!(stdout(&guest), "/dev/infiniband\nuverbs9", "{}", stderr(&guest));
}

#[test]
fn inherited_descriptors_are_no_way_out() {
    if !is_root() {
        return;
    }
    must_fail("exec 7< /dev/infiniband;", "true < /proc/self/fd/7/uverbs9");
    must_fail("exec 9< /;", "true < /proc/self/fd/9/dev/infiniband/uverbs9");
}

#[test]
fn a_directory_as_a_stream_is_refused() {
    if !is_root() {
        return;
    }
    let Outcome { native, guest } = attempt("exec < /dev/infiniband;", "true < /dev/stdin/uverbs9");
    assert!(native.status.success());
    assert_eq!(guest.status.code(), Some(125), "{}", stderr(&guest));
    assert!(stderr(&guest).contains("standard input is a directory"), "{}", stderr(&guest));
}

#[test]
fn a_chroot_can_be_left_but_devices_stay_dead() {
    if !is_root() || !common::has("perl") {
        return;
    }
    // The classic escape needs CAP_SYS_CHROOT, which a guest keeps.
    let escape = "mkdir -p $T/jail && perl -e 'chroot(\"$ENV{T}/jail\") or die; \
                  chdir(\"..\") for 1..9; chroot(\".\") or die; \
                  open(F, \"<\", \"$ENV{T}/outside/node\") or die $!;'";
    let made = "mkdir -p $T/outside && mount -t tmpfs x $T/outside && \
                mknod -m 666 $T/outside/node c 1 3; ";
    must_fail(made, escape);
}

#[test]
fn root_cannot_write_to_hardware_through_sysfs() {
    if !is_root() {
        return;
    }
    must_fail("", "test -w /sys/kernel");
}

#[test]
fn the_host_sees_nothing_of_it() {
    if !is_root() {
        return;
    }
    // What a guest's sandbox mounts stays with it, even where mounts are shared.
    let script = format!(
        "T=$(mktemp -d) && mount --make-rshared / && {HOST} cat /proc/self/mountinfo > $T/before && \
         {} run --device uverbs9=/dev/null -- true && cat /proc/self/mountinfo > $T/after && \
         cmp $T/before $T/after && true < /dev/infiniband/uverbs9 && rm -r $T && echo same",
        verbgate()
    );
    let output = output(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    assert_eq!(stdout(&output), "same", "{}", stderr(&output));
}

#[test]
fn a_caller_without_privileges_gets_a_user_namespace() {
    if !is_root() || !common::has("setpriv") {
        return;
    }
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all";
    let attack = "id -u; stat -c '%F %t:%T' /dev/infiniband/uverbs9; \
                  true < /dev/null && echo null; true < /dev/infiniband/uverbs9 && echo opened; \
                  grep CapEff /proc/self/status";
    let script = format!(
        "{HOST} exec {nobody} {} run --device uverbs9=/dev/infiniband/uverbs9 -- sh -c \"$ATTACK\"",
        verbgate()
    );
    let output = output(
        Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .env("ATTACK", attack)
            .current_dir("/"),
    );
    let expected = "65534\ncharacter special file 1:3\nnull\nCapEff:\t0000000000000000";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

#[test]
fn roots_without_sys_admin_get_one_too() {
    if !is_root() || !common::has("setpriv") {
        return;
    }
    // As in a container: root, but none that may mount.
    let weak = "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin";
    let attack = "id -u; stat -c '%F %t:%T' /dev/infiniband/uverbs9; \
                  true < /dev/infiniband/uverbs9 && echo opened";
    let script = format!(
        "{HOST} exec {weak} {} run --device uverbs9=/dev/infiniband/uverbs9 -- sh -c \"$ATTACK\"",
        verbgate()
    );
    let output =
        output(Command::new("unshare").args(["-m", "sh", "-c", &script]).env("ATTACK", attack));
    assert_eq!(stdout(&output), "0\ncharacter special file 1:3", "{}", stderr(&output));
}

#[test]
fn a_caller_in_a_chroot_is_sealed_to_the_true_root() {
    if !is_root() || !common::has("perl") {
        return;
    }
    // The guest climbs out of the caller's chroot, to where the raw node is.
    let escape = "perl -e 'mkdir(\"$ENV{T}/jail\"); chroot(\"$ENV{T}/jail\") or die; \
                  chdir(\"..\") for 1..9; chroot(\".\") or die; -e \"$ENV{T}/chroot/etc\" or die; \
                  open(F, \"<\", \"/dev/infiniband/uverbs9\") or die $!; print \"opened\"'";
    let setup = format!(
        "{HOST} mkdir -p $T/chroot && mount --rbind / $T/chroot && cd / && \
         exec chroot $T/chroot"
    );
    let dir = tempfile::tempdir().unwrap();
    let at_root = |launch: &str| {
        let script = format!("{setup} {launch} sh -c \"$ATTACK\"");
        output(
            Command::new("unshare")
                .args(["-m", "sh", "-c", &script])
                .env("ATTACK", escape)
                .env("T", dir.path()),
        )
    };
    let native = at_root("");
    assert_eq!(stdout(&native), "opened", "the attack is void: {}", stderr(&native));
    let guest = at_root(&format!("{} run --device {} --", verbgate(), common::NULL_AS_UVERBS));
    assert_eq!(stdout(&guest), "", "{}", stderr(&guest));
    assert!(stderr(&guest).contains("Permission denied"), "{}", stderr(&guest));
}

#[test]
fn a_network_namespace_comes_with_its_sysfs() {
    if !is_root() {
        return;
    }
    let mut holder = Command::new("unshare")
        .args(["-n", "sh", "-c", "echo; exec sleep infinity"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(holder.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let path = format!("/proc/{}/ns/net", holder.id());
    let expected = std::fs::read_link(&path).unwrap().to_string_lossy().into_owned();
    let script = "readlink /proc/self/ns/net; ls /sys/class/net; ls /sys/fs/cgroup | wc -l";
    let guest = output(Command::new(verbgate()).args([
        "run",
        "--device",
        common::NULL_AS_UVERBS,
        "--netns",
        &path,
        "--",
        "sh",
        "-c",
        script,
    ]));
    let native = output(Command::new("sh").args(["-c", "ls /sys/fs/cgroup | wc -l"]));
    holder.kill().unwrap();
    holder.wait().unwrap();
    let text = stdout(&guest);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.first(), Some(&&*expected), "{}", stderr(&guest));
    assert_eq!(lines.last(), Some(&&*stdout(&native)), "{text}");
    let interfaces = &lines[1..lines.len() - 1];
    assert!(!interfaces.contains(&"eth0"), "{text}");

    let bad =
        output(Command::new(verbgate()).args(["run", "--netns", "/etc/passwd", "--", "true"]));
    assert_eq!(bad.status.code(), Some(125), "{bad:?}");
    assert!(stderr(&bad).contains("/etc/passwd"), "{}", stderr(&bad));
}
