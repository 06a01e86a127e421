//! A device that is replaced under a running sandbox, on a host without RDMA: sysfs says that the
//! zero device is an RDMA device, and then that the zero device is another RDMA device.

use std::process::Command;
use std::process::Output;

use crate::common::has;
use crate::common::is_root;
use crate::common::output;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// In a mount namespace of its own. `register N` makes sysfs show the zero device as the N-th RDMA
/// device that has had its number.
const HOST: &str = "
    mount -t tmpfs none /sys/dev/char || exit 97
    register() {
        dir=/sys/dev/char/of/$1/uverbs9
        # Up to the root and down again, as the kernel's own links lead.
        mkdir -p $dir; echo rxe$1 >$dir/ibdev
        ln -sfn ../../dev/char/of/$1/uverbs9 /sys/dev/char/1:5
    }
    soon() {
        tries=0
        until \"$@\"; do tries=$((tries + 1)); [ $tries -lt 2000 ] || exit 98; sleep 0.05; done
    }
    mount -t tmpfs none /mnt; cd /mnt
    register 1";

/// Opens as often as asked, and says how each ended; waits for what is done meanwhile.
const GUEST: &str = r#"
    try() { (exec 3<>/dev/infiniband/$1) 2>&1 | grep -c 'No such device or address'; }
    echo granted $(try uverbs9) $(try uverbs8)
    : >/mnt/ready
    tries=0
    until [ -e /mnt/go ]; do tries=$((tries + 1)); [ $tries -lt 2000 ] || exit 98; sleep 0.05; done
    echo replaced $(try uverbs9) $(try uverbs9) $(try uverbs8)"#;

/// Runs the guest, with its own `/sys` or the host's, and what is to be done to the host when it has
/// opened both devices.
fn run(sysfs: &str, meanwhile: &str) -> Output {
    let run = format!("run --device uverbs9=/dev/zero --device uverbs8=/dev/null --sysfs {sysfs}");
    let script = format!(
        "{HOST}
        {verbgate} {run} -- sh -c \"$0\" &
        soon test -e ready
        {meanwhile}
        : >go
        wait $!",
        verbgate = verbgate()
    );
    output(Command::new("unshare").args(["--mount", "sh", "-c", &script, GUEST]))
}

#[test]
fn a_device_that_is_replaced_under_a_sandbox_is_enxio_and_a_line() {
    if !is_root() || !has("unshare") {
        return;
    }
    for sysfs in ["host", "virtual"] {
        let ended = run(sysfs, "register 2");
        assert_eq!(stdout(&ended), "granted 0 0\nreplaced 1 1 0", "{ended:?}");
        let said = stderr(&ended);
        let told = |line: &&str| line.contains("start the sandbox");
        let lines: Vec<&str> = said.lines().filter(told).collect();
        // One line, however often it is tried: which device, what it was, what it is, what to do.
        assert_eq!(lines.len(), 1, "{said}");
        let parts =
            ["refuses to open uverbs9 (ENXIO): device 1:5", "rxe1 (uverbs9", "now rxe2 (uverbs9"];
        for part in parts {
            assert!(lines[0].contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn a_device_that_is_removed_under_a_sandbox_is_enxio_and_a_line() {
    if !is_root() || !has("unshare") {
        return;
    }
    let ended = run("host", "rm /sys/dev/char/1:5");
    assert_eq!(stdout(&ended), "granted 0 0\nreplaced 1 1 0", "{ended:?}");
    assert!(stderr(&ended).contains("is now no device that sysfs knows"), "{ended:?}");
}

/// The check of the tests above: nothing is refused that was not replaced.
#[test]
fn a_device_that_is_renamed_or_joined_by_others_is_the_same() {
    if !is_root() || !has("unshare") {
        return;
    }
    let meanwhile = "echo rxe7 >/sys/dev/char/of/1/uverbs9/ibdev; mkdir /sys/dev/char/1:6";
    let ended = run("host", meanwhile);
    assert_eq!(stdout(&ended), "granted 0 0\nreplaced 0 0 0", "{ended:?}");
}
