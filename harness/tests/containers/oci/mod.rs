//! `verbgate oci` under crun and runc: real bundles, with the null device for an RDMA one.

mod exec;
mod kills;
mod later;
mod log;
mod pod;
mod raw;
pub(crate) mod storm;
mod sysfs;

use std::fs;
use std::process::Command;

use verbgate_wait::until;

use crate::common;
use crate::common::bundle;
use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::guest;
use crate::common::guest::DEVICE;
use crate::common::stderr;
use crate::common::stdout;

#[test]
fn a_container_has_the_device_and_ends_as_natively() {
    for runtime in runtimes() {
        let bundle =
            Bundle::new(runtime, &["sh", "-c", "exec 3<>/dev/infiniband/uverbs9 && exit 3"]);
        let output = bundle.run();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        bundle.assert_nothing_left();
        for (command, code) in [("kill -TERM $$; sleep 9", 143), ("kill -KILL $$; sleep 9", 137)] {
            // As a child: the first process of a PID namespace ignores what it does not handle.
            let command = format!("sh -c '{command}'; exit $?");
            let bundle = Bundle::new(runtime, &["sh", "-c", &command]);
            assert_eq!(bundle.run().status.code(), Some(code));
        }
    }
}

#[test]
fn requests_of_an_unmodified_program_are_executed_in_the_container() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["/guest", "errors", DEVICE]);
        bundle.bind(guest::program(), "/guest");
        let output = bundle.run();
        let text = stdout(&output);
        for line in
            ["good: ENOTTY", "method not granted: EPROTONOSUPPORT", "QP type granted: ENOTTY"]
        {
            assert!(text.contains(line), "{output:?}");
        }
        assert!(output.status.success(), "{output:?}");
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_container_without_the_wish_is_left_untouched() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["true"]);
        bundle.edit(|config| drop(config.remove("annotations")));
        let before = bundle.config();
        assert!(bundle.run().status.success());
        assert_eq!(bundle.config(), before);
        bundle.assert_nothing_left();
    }
}

#[test]
fn the_raw_device_is_out_of_reach_of_the_containers_root() {
    let attacks = [
        ("read the node", "cat /dev/infiniband/uverbs9"),
        ("append to the node", "echo x >>/dev/infiniband/uverbs9"),
        ("remove the node", "rm /dev/infiniband/uverbs9"),
        ("make a node", "mknod /tmp/n c 231 192"),
        ("mount over it", "mount -t tmpfs none /dev/infiniband"),
        ("unmount it", "umount /dev/infiniband"),
        ("make it writable", "mount -o remount,bind,rw,dev /dev/infiniband"),
        ("mount sysfs", "mkdir /tmp/s && mount -t sysfs none /tmp/s"),
        ("reopen what was opened", "exec 3<>/dev/infiniband/uverbs9; : <>/proc/self/fd/3"),
        ("find what is ours", "test -e /dev/.verbgate"),
    ];
    for runtime in runtimes() {
        let script: String = attacks
            .iter()
            .map(|(name, attack)| format!("( {attack} ) >/dev/null 2>&1 && echo '{name}'; "))
            .collect();
        let mut bundle = Bundle::new(runtime, &["sh", "-c", &format!("{script} echo reached")]);
        // As much as an engine gives to a privileged container.
        bundle.edit(|config| {
            let all = ["SYS_ADMIN", "SYS_PTRACE", "MKNOD", "DAC_OVERRIDE", "DAC_READ_SEARCH"];
            let all: Vec<String> = all.iter().map(|name| format!("CAP_{name}")).collect();
            for set in ["bounding", "effective", "permitted", "inheritable", "ambient"] {
                config["process"]["capabilities"][set] = all.clone().into();
            }
            config["process"]["noNewPrivileges"] = false.into();
        });
        let output = bundle.run();
        assert_eq!(stdout(&output), "reached", "{output:?}");
    }
}

#[test]
fn executed_processes_have_the_device_and_their_own_exit_code() {
    for runtime in runtimes() {
        let bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        bundle.start();
        let script = "exec 3<>/dev/infiniband/uverbs9 && grep -c CapEff /proc/self/status; exit 7";
        let output = bundle.verb("exec", &["sh", "-c", script]);
        assert_eq!((stdout(&output).as_str(), output.status.code()), ("1", Some(7)), "{output:?}");
        // The way of engines.
        let process = bundle.process_file(&["sh", "-c", &format!("{script} ")]);
        let output = bundle.verb_with("exec", &["--process", process.to_str().unwrap()], &[]);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let plain = bundle.verb("exec", &["sh", "-c", "grep Cap /proc/self/status /proc/1/status"]);
        let text = stdout(&plain);
        let of = |who: &str| -> Vec<String> {
            text.lines().filter_map(|line| Some(line.strip_prefix(who)?.to_owned())).collect()
        };
        assert_eq!(of("/proc/self/status:"), of("/proc/1/status:"), "{plain:?}");
        bundle.delete();
        bundle.assert_nothing_left();
    }
}

#[test]
fn the_container_sees_its_own_devices_in_sysfs_and_cannot_write_there() {
    let script = "grep -o ' /sys .* fuse ' /proc/self/mountinfo | tail -1 | cut -d' ' -f2,3; \
                  ls /sys/firmware; (echo 1 >/sys/class/net/lo/mtu) 2>&1 | grep -c .";
    for runtime in runtimes() {
        if !std::path::Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED: needs /dev/fuse");
            return;
        }
        let output = Bundle::new(runtime, &["sh", "-c", script]).run();
        let text = stdout(&output);
        assert!(text.starts_with("/sys ro,"), "{output:?}");
        assert!(stderr(&output).contains("/sys/firmware"), "{output:?}");
        assert!(!text.ends_with('0'), "{output:?}");
    }
}

#[test]
fn capabilities_are_those_that_the_container_would_have() {
    for runtime in runtimes() {
        for (uid, no_new_privileges) in [(0, true), (0, false), (1000, true), (1000, false)] {
            let mut bundle =
                Bundle::new(runtime, &["grep", "-E", "^(Cap|NoNewPrivs)", "/proc/self/status"]);
            bundle.edit(|config| {
                config["process"]["user"]["uid"] = uid.into();
                config["process"]["noNewPrivileges"] = no_new_privileges.into();
            });
            let native = bundle.run_natively();
            let ours = bundle.run();
            assert_eq!(stdout(&ours), stdout(&native), "{ours:?}");
        }
    }
}

#[test]
fn a_supervisor_that_is_killed_leaves_no_stuck_container() {
    for runtime in runtimes() {
        let bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        bundle.start();
        let supervisor = bundle.ps()[0]["supervisor"].to_string();
        assert!(Command::new("kill").args(["-KILL", &supervisor]).status().unwrap().success());
        until("its end", || !fs::exists(format!("/proc/{supervisor}/fd/0")).unwrap());
        // What it had is closed one by one, its socket among them; whoever knocks before is told, too.
        until("word of its end", || {
            let output = bundle.verb("exec", &["true"]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let closes = stderr(&output).contains("the supervisor ended");
            let is_gone = stderr(&output).contains("the container's supervisor is gone");
            assert!(closes || is_gone, "{output:?}");
            is_gone
        });
        // It is known as long as it lives.
        assert!(stdout(&bundle.gc()).is_empty());
        bundle.delete();
        bundle.assert_nothing_left();
    }
}

#[test]
fn containers_that_are_never_started_leave_nothing() {
    for runtime in runtimes() {
        let bundle = Bundle::new(runtime, &["true"]);
        bundle.create();
        assert_eq!(bundle.ps()[0]["started"], false);
        bundle.delete();
        bundle.assert_nothing_left();
        // The runtime itself refuses it, after the supervisor is there.
        let mut bundle = Bundle::new(runtime, &["true"]);
        bundle.edit(|config| config["root"]["path"] = "/no/such/root".into());
        assert!(!bundle.run().status.success());
        bundle.assert_nothing_left();
    }
}

#[test]
fn bad_input_is_one_line_that_names_the_field() {
    let Some(runtime) = runtimes().next() else { return };
    let annotation = |key: &'static str, value: &'static str| {
        move |config: &mut bundle::Object| config["annotations"][key] = value.into()
    };
    type Edit = Box<dyn Fn(&mut bundle::Object)>;
    let cases: [(&str, Edit); 5] = [
        ("mlx5_77", Box::new(annotation("org.verbgate.devices", "mlx5_77"))),
        ("org.verbgate.devices", Box::new(annotation("org.verbgate.devices", "a,,b"))),
        ("org.verbgate.profile", Box::new(annotation("org.verbgate.profile", "full"))),
        ("org.verbgate.netdevs", Box::new(annotation("org.verbgate.netdevs", "eth1"))),
        (
            "linux.seccomp.listenerPath",
            Box::new(|config| {
                config["linux"]["seccomp"] = serde_json::json!({
                    "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/run/agent",
                });
            }),
        ),
    ];
    for (needle, edit) in cases {
        let mut bundle = Bundle::new(runtime, &["true"]);
        bundle.edit(|config| edit(config));
        let before = bundle.config();
        let output = bundle.run();
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.starts_with("verbgate: ") && line.contains(needle), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert_eq!(bundle.config(), before);
        bundle.assert_nothing_left();
    }
}

#[test]
fn ten_at_once_twenty_times_leave_nothing() {
    for runtime in runtimes() {
        let bundles: Vec<Bundle> = (0..10)
            .map(|_| Bundle::new(runtime, &["sh", "-c", "exec 3<>/dev/infiniband/uverbs9"]))
            .collect();
        for _ in 0..20 {
            std::thread::scope(|scope| {
                let runs: Vec<_> =
                    bundles.iter().map(|bundle| scope.spawn(|| bundle.run())).collect();
                for run in runs {
                    let output = run.join().unwrap();
                    assert!(output.status.success(), "{output:?}");
                }
            });
        }
        bundles.iter().for_each(Bundle::assert_nothing_left);
    }
}

#[test]
fn the_supervisor_is_out_of_reach_of_the_containers_root() {
    for runtime in runtimes() {
        for own_pids in [true, false] {
            let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
            bundle.edit(|config| {
                // As much as an engine gives to a privileged container.
                let all = ["SYS_ADMIN", "SYS_PTRACE", "KILL", "DAC_OVERRIDE", "DAC_READ_SEARCH"];
                let all: Vec<String> = all.iter().map(|name| format!("CAP_{name}")).collect();
                for set in ["bounding", "effective", "permitted"] {
                    config["process"]["capabilities"][set] = all.clone().into();
                }
                let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
                namespaces.retain(|one| own_pids || one["type"] != "pid");
            });
            bundle.start();
            let supervisor = bundle.ps()[0]["supervisor"].to_string();
            let mut attacks = vec![
                ("its memory", format!(": <>/proc/{supervisor}/mem")),
                ("its environment", format!("cat /proc/{supervisor}/environ")),
                ("its descriptors", format!("cat /proc/{supervisor}/fd/0")),
                ("its files", format!("ls /proc/{supervisor}/root/")),
                ("its mounts", format!("nsenter --target {supervisor} --mount true")),
                ("its network", format!("nsenter --target {supervisor} --net true")),
                ("its socket", "find / -xdev -type s | grep -q .".to_owned()),
            ];
            if own_pids {
                // In the host's PID namespace, its root kills every process of root's.
                attacks.push(("its life", format!("kill -KILL {supervisor}")));
            }
            let script: String = attacks
                .iter()
                .map(|(name, attack)| format!("( {attack} ) >/dev/null 2>&1 && echo '{name}'; "))
                .collect();
            let control = ": <>/proc/$$/mem && ls /proc/self/root/ >/dev/null && echo reached";
            let output = bundle.verb("exec", &["sh", "-c", &format!("{script} {control}")]);
            assert_eq!(stdout(&output), "reached", "own PIDs: {own_pids}: {output:?}");
            assert_eq!(bundle.ps()[0]["supervisor"].to_string(), supervisor);
            bundle.delete();
            bundle.assert_nothing_left();
        }
    }
}

#[test]
fn what_the_attacks_are_after_can_be_had_without_verbgate() {
    // Attacks that fail with it must not fail for reasons of their own.
    let script = "mknod /tmp/n c 1 3 && : <>/tmp/n && echo made; \
                  mkdir /tmp/s && mount -t sysfs none /tmp/s && echo mounted; \
                  exec 3<>/dev/null; : <>/proc/self/fd/3 && echo reopened";
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["sh", "-c", script]);
        bundle.edit(|config| {
            let all = ["CAP_SYS_ADMIN", "CAP_MKNOD"];
            for set in ["bounding", "effective", "permitted"] {
                config["process"]["capabilities"][set] = all.into();
            }
            let rules = config["linux"]["resources"]["devices"].as_array_mut().unwrap();
            let null = serde_json::json!({
                "allow": true, "access": "rwm", "type": "c", "major": 1, "minor": 3,
            });
            rules.push(null);
        });
        let native = bundle.run_natively();
        assert_eq!(stdout(&native), "made\nmounted\nreopened", "{native:?}");
        let ours = bundle.run();
        assert_eq!(stdout(&ours), "reopened", "{ours:?}");
    }
}

#[test]
fn a_container_in_a_user_namespace_has_the_device() {
    for runtime in runtimes() {
        let script = "exec 3<>/dev/infiniband/uverbs9 && cat /proc/self/uid_map && \
                      stat -f -c %T /sys";
        let mut bundle = Bundle::new(runtime, &["sh", "-c", script]);
        bundle.show_to_all();
        bundle.edit(|config| {
            let linux = config["linux"].as_object_mut().unwrap();
            let namespaces = linux["namespaces"].as_array_mut().unwrap();
            namespaces.push(serde_json::json!({"type": "user"}));
            let map = serde_json::json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
            linux.insert("uidMappings".into(), map.clone());
            linux.insert("gidMappings".into(), map);
        });
        let native = Bundle::run_natively(&bundle);
        if stderr(&native).contains("mount") || stderr(&native).contains("user namespace") {
            eprintln!(
                "SKIPPED: {} makes no user namespace here: {}",
                runtime.name,
                stderr(&native)
            );
            continue;
        }
        let output = bundle.run();
        let words: Vec<String> = stdout(&output).split_whitespace().map(str::to_owned).collect();
        // Other devices are hidden there, too.
        assert_eq!(words, ["0", "100000", "65536", "fuseblk"], "{output:?}");
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_rootless_runtime_is_refused_clearly() {
    let Some(runtime) = runtimes().next() else { return };
    let mut bundle = Bundle::new(runtime, &["true"]);
    bundle.prefix = ["unshare", "--user", "--map-root-user"].map(str::to_owned).to_vec();
    let output = bundle.run();
    let line = stderr(&output);
    if line.contains("unshare") {
        eprintln!("SKIPPED: this machine gives no user namespaces: {line}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains("a rootless runtime cannot give containers RDMA"), "{line}");
    assert!(line.contains("run the engine as root"), "{line}");
    bundle.assert_nothing_left();
}

#[test]
fn a_bundle_that_cannot_be_rewritten_and_a_runtime_that_is_missing_are_named() {
    let Some(runtime) = runtimes().next() else { return };
    let mut bundle = Bundle::new(runtime, &["true"]);
    let before = bundle.config();
    bundle.make_read_only();
    for _ in 0..3 {
        let output = bundle.run();
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(
            line.contains("config.json") && line.contains("make the bundle writable"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    bundle.prefix.clear();
    assert_eq!(bundle.config(), before);
    bundle.assert_nothing_left();
    assert!(bundle.run().status.success());

    let mut bundle = Bundle::new(runtime, &["true"]);
    bundle.instead = Some("/no/such/runtime".into());
    let output = bundle.run();
    assert_eq!(output.status.code(), Some(1));
    let line = stderr(&output);
    assert!(line.contains("--runtime /no/such/runtime") && line.contains("name crun"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    bundle.assert_nothing_left();
    bundle.instead = None;
}

/// As an engine applies `verbgate cdi generate`, which needs a device of the host.
#[test]
fn a_cdi_device_ends_a_container_of_another_runtime_and_says_why() {
    for runtime in runtimes() {
        let edited = || {
            let mut bundle = Bundle::new(runtime, &["echo", "ran"]);
            let hook =
                serde_json::json!({"path": common::verbgate(), "args": ["verbgate", "cdi-hook"]});
            let hooks = serde_json::json!({"createRuntime": [hook]});
            bundle.edit(|config| drop(config.insert("hooks".to_owned(), hooks)));
            bundle
        };
        let output = edited().run_natively();
        assert!(!output.status.success() && stdout(&output).is_empty(), "{output:?}");
        let told = stderr(&output);
        // Crun shows nothing of what a hook says.
        let needle = if runtime.name == "runc" { "runtime configure" } else { "hook" };
        assert!(told.contains(needle), "{told}");
        assert_eq!(stdout(&edited().run()), "ran");
    }
}
