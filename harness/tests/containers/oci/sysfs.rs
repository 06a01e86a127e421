//! A container's `/sys` under the seccomp profiles of engines, and where `/sys` cannot be covered.

use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::stderr;
use crate::common::stdout;
use serde_json::json;

/// As the default profiles of Docker and containerd: who has no CAP_SYS_ADMIN fails these calls.
fn profile() -> serde_json::Value {
    let names = [
        "bpf",
        "clone3",
        "fsconfig",
        "fsmount",
        "fsopen",
        "fspick",
        "lookup_dcookie",
        "mount",
        "mount_setattr",
        "move_mount",
        "open_tree",
        "perf_event_open",
        "quotactl",
        "setdomainname",
        "sethostname",
        "setns",
        "syslog",
        "umount",
        "umount2",
        "unshare",
    ];
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [{"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": 1}],
    })
}

const SHOW: &str = "stat -f -c %T /sys; exec 3<>/dev/infiniband/uverbs9 && echo opened";

#[test]
fn the_hosts_devices_are_hidden_under_an_engines_default_profile() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["sh", "-c", SHOW]);
        bundle.edit(|config| config["linux"]["seccomp"] = profile());
        let output = bundle.run();
        assert_eq!(stdout(&output), "fuseblk\nopened", "{output:?}");
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_container_whose_sysfs_cannot_be_covered_is_not_created_unless_it_says_so() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["sh", "-c", SHOW]);
        // A machine without FUSE.
        let hide = "mount --bind /dev/null /dev/fuse && exec \"$@\"";
        bundle.prefix = ["unshare", "--mount", "sh", "-c", hide, "sh"].map(str::to_owned).to_vec();
        let output = bundle.run();
        assert!(!output.status.success() && stdout(&output).is_empty(), "{output:?}");
        let told = stderr(&output);
        assert!(told.contains("FUSE") && told.contains("org.verbgate.sysfs=host"), "{told}");
        bundle.edit(|config| config["annotations"]["org.verbgate.sysfs"] = "host".into());
        let told = stderr(&bundle.run());
        assert!(told.contains("shows the devices of others"), "{told}");
        bundle.options.extend(["--annotations".to_owned(), "grant".to_owned()]);
        let output = bundle.run();
        assert_eq!(stdout(&output), "sysfs\nopened", "{output:?}");
        bundle.prefix.clear();
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_container_in_the_hosts_mounts_does_not_cover_the_hosts_sysfs() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["true"]);
        bundle.edit(|config| {
            let all = config["linux"]["namespaces"].as_array_mut().unwrap();
            all.retain(|one| one["type"] != "mount" && one["type"] != "pid");
        });
        let output = bundle.run();
        assert!(!output.status.success(), "{output:?}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.lines().any(|line| line.contains(" /sys ") && line.contains("fuse")));
        // Such a container's mounts may be the runtime's to remove, which some do not.
        bundle.delete_if_there();
    }
}
