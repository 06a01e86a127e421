//! Ways in which engines show RDMA devices without asking for RDMA: none of the ways gives the raw
//! device.

use serde_json::Value;
use serde_json::json;

use crate::common;
use crate::common::bundle;
use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::stderr;
use crate::common::stdout;

type Edit = fn(&mut bundle::Object);

fn without_wish(runtime: &'static bundle::Runtime, args: &[&str], edit: Edit) -> Bundle {
    let mut bundle = Bundle::new(runtime, args);
    bundle.edit(|config| drop(config.remove("annotations")));
    bundle.edit(edit);
    bundle
}

fn mount(config: &mut bundle::Object, source: &str, destination: &str) {
    let mount = json!({"destination": destination, "type": "bind", "source": source,
                       "options": ["bind", "rw"]});
    config["mounts"].as_array_mut().unwrap().push(mount);
}

fn allow(config: &mut bundle::Object, major: u32) {
    let rule = json!({"allow": true, "type": "c", "major": major, "access": "rwm"});
    config["linux"]["resources"]["devices"].as_array_mut().unwrap().push(rule);
}

#[test]
fn a_mount_of_a_device_is_a_wish_for_it() {
    for runtime in runtimes() {
        // Natively that is the null device, open to all.
        let script = "exec 3<>/dev/infiniband/uverbs9 && grep Seccomp: /proc/self/status";
        let bundle = without_wish(runtime, &["sh", "-c", script], |config| {
            mount(config, "/dev/null", "/dev/infiniband/uverbs9");
            allow(config, 1);
        });
        assert_eq!(stdout(&bundle.run_natively()), "Seccomp:\t0");
        let output = bundle.run();
        assert_eq!(stdout(&output), "Seccomp:\t2", "{output:?}");
        let config: Value = serde_json::from_str(&bundle.config()).unwrap();
        assert_eq!(config["annotations"]["org.verbgate.granted"], "uverbs9");
        bundle.assert_nothing_left();
    }
}

/// UCX asks so before it opens a device, and shows no device that it may not write.
#[test]
fn a_device_may_be_written_says_access() {
    const ASKS: &str = "
import os
node = '/dev/infiniband/uverbs8'
kinds = {'read': os.R_OK, 'write': os.W_OK, 'both': os.R_OK | os.W_OK, 'execute': os.W_OK | os.X_OK}
print(*(name for name, mode in kinds.items() if os.access(node, mode)))
print(os.access(node, os.W_OK, follow_symlinks=False), os.access('infiniband/uverbs8', os.W_OK))
print(os.access('/dev/infiniband/uverbs7', os.W_OK), os.access('/usr/nothing', os.W_OK))
os.open(node, os.O_RDWR)
";
    if !common::has("python3") || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["python3", "-c", ASKS]);
        // The null device is any container's; this one the control group denies.
        bundle.options.extend(["--stand-in", "uverbs8=/dev/fuse"].map(Into::into));
        bundle.edit(|config| {
            config["annotations"] = json!({"org.verbgate.devices": "uverbs8"});
            config["process"]["cwd"] = json!("/dev");
        });
        let output = bundle.run();
        let said = stdout(&output);
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(said, ["write both", "True True", "False False"], "{output:?}");
        assert!(output.status.success(), "it does not open: {output:?}");
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_rule_about_all_devices_is_a_wish_for_all() {
    for runtime in runtimes() {
        let script = "ls /dev/infiniband; grep Seccomp: /proc/self/status";
        let bundle = without_wish(runtime, &["sh", "-c", script], |config| allow(config, 231));
        let output = bundle.run();
        assert_eq!(stdout(&output), "uverbs9\nSeccomp:\t2", "{output:?}");
        bundle.assert_nothing_left();
    }
}

/// Who writes a pod chooses where its volumes are mounted, and what is in them.
#[test]
fn what_a_mount_is_called_grants_nothing() {
    let volumes: [Edit; 3] = [
        |config| mount(config, "/usr", "/dev/infiniband"),
        |config| mount(config, "/etc/hostname", "/dev/infiniband/uverbs9"),
        |config| mount(config, "/dev/zero", "/dev/infiniband/uverbs9"),
    ];
    for runtime in runtimes() {
        for volume in volumes {
            let bundle = without_wish(runtime, &["grep", "Seccomp:", "/proc/self/status"], volume);
            assert_eq!(stdout(&bundle.run()), "Seccomp:\t0");
            let config: Value = serde_json::from_str(&bundle.config()).unwrap();
            assert_eq!(config.get("annotations"), None);
            bundle.assert_nothing_left();
        }
    }
}

/// A container of the fabric's own tools.
#[test]
fn the_engines_rule_gives_a_node_beside_verbs() {
    for runtime in runtimes() {
        let bundle = without_wish(runtime, &["grep", "Seccomp:", "/proc/self/status"], |config| {
            config["linux"]["devices"] =
                json!([{"path": "/dev/infiniband/umad0", "type": "c", "major": 231, "minor": 0}]);
            let rules = config["linux"]["resources"]["devices"].as_array_mut().unwrap();
            rules.push(
                json!({"allow": true, "type": "c", "major": 231, "minor": 0, "access": "rwm"}),
            );
        });
        assert_eq!(stdout(&bundle.run()), "Seccomp:\t0");
        bundle.assert_nothing_left();
    }
}

#[test]
fn what_nobody_supervises_is_refused_with_the_remedy() {
    let cases: [(&str, Edit); 3] = [
        ("/dev/infiniband/umad0", |config| {
            config["linux"]["devices"] =
                json!([{"path": "/dev/infiniband/umad0", "type": "c", "major": 231, "minor": 0}]);
        }),
        ("/dev/elsewhere", |config| {
            config["linux"]["devices"] =
                json!([{"path": "/dev/elsewhere", "type": "c", "major": 231, "minor": 192}]);
        }),
        ("podman before 4.4", |config| {
            config.insert(
                "annotations".into(),
                json!({
                    "org.verbgate.devices": "uverbs9", "io.podman.annotations.init": "FALSE",
                }),
            );
        }),
    ];
    for runtime in runtimes() {
        for (needle, edit) in cases {
            let bundle = without_wish(runtime, &["echo", "ran"], edit);
            let before = bundle.config();
            let output = bundle.run();
            let line = stderr(&output);
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{line}");
            assert!(line.contains(needle) && line.contains("/dev/infiniband/uverbsN"), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
            assert_eq!(bundle.config(), before);
            bundle.assert_nothing_left();
        }
    }
}

/// runc reads some files that are no JSON by RFC 8259, and Verbgate would not know what runc does with one.
#[test]
fn a_file_that_only_the_runtime_can_read_is_refused() {
    for runtime in runtimes() {
        let bundle = without_wish(runtime, &["echo", "ran"], |config| {
            config.insert("hostname".into(), "odd".into());
        });
        let file = bundle.path().join("config.json");
        let mut text = std::fs::read(&file).unwrap();
        let at = text.windows(5).position(|part| part == b"\"odd\"").unwrap();
        text[at + 1] = 0xff;
        std::fs::write(&file, text).unwrap();
        let output = bundle.run();
        assert_eq!(stdout(&output), "", "{output:?}");
        let line = stderr(&output);
        assert!(line.contains("config.json") && line.contains("UTF-8"), "{line}");
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_pause_container_has_no_supervisor() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        bundle.edit(|config| {
            config["annotations"]["io.kubernetes.cri.container-type"] = "sandbox".into();
        });
        let before = bundle.config();
        bundle.create();
        assert_eq!(bundle.ps(), json!([]));
        assert_eq!(bundle.config(), before);
        bundle.delete();
        bundle.assert_nothing_left();
    }
}

/// CAP_NET_ADMIN and CAP_NET_RAW (12 and 13, capabilities(7)) of whoever runs this.
const NETWORK: &str = "printf '%x' $((0x$(sed -n 's/^CapBnd:.//p' /proc/self/status) & 0x3000))";

#[test]
fn capabilities_about_the_network_are_kept_if_the_operator_says_so() {
    for runtime in runtimes() {
        for (keep, left) in
            [(&[][..], "0"), (&["NET_RAW"], "2000"), (&["NET_RAW", "NET_ADMIN"], "3000")]
        {
            let mut bundle = Bundle::new(runtime, &["sh", "-c", NETWORK]);
            let all = json!(["CAP_KILL", "CAP_NET_ADMIN", "CAP_NET_RAW"]);
            bundle.edit(|config| {
                for set in ["bounding", "effective", "permitted"] {
                    config["process"]["capabilities"][set] = all.clone();
                }
            });
            assert_eq!(stdout(&bundle.run_natively()), "3000");
            bundle
                .options
                .extend(keep.iter().flat_map(|name| ["--keep-cap", name]).map(str::to_owned));
            let output = bundle.run();
            assert_eq!(stdout(&output), left, "{output:?}");
            let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
            bundle
                .options
                .extend(keep.iter().flat_map(|name| ["--keep-cap", name]).map(str::to_owned));
            bundle.edit(|config| config["process"]["capabilities"]["bounding"] = all.clone());
            bundle.start();
            let options = ["--cap", "CAP_NET_ADMIN", "--cap", "CAP_NET_RAW"];
            let output = bundle.verb_with("exec", &options, &["sh", "-c", NETWORK]);
            assert_eq!(stdout(&output), left, "{output:?}");
            bundle.delete();
            bundle.assert_nothing_left();
        }
    }
}

#[test]
fn nobody_but_verbgate_says_what_was_granted() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["ls", "/dev/infiniband"]);
        let annotation = json!({"org.verbgate.granted": "uverbs9"});
        bundle.edit(|config| config["annotations"] = annotation);
        let told = stderr(&bundle.run());
        assert!(told.contains("org.verbgate.granted: only Verbgate writes"), "{told}");
        bundle.assert_nothing_left();
        // Rewritten by ourselves, a bundle says so and is believed.
        let bundle = Bundle::new(runtime, &["ls", "/dev/infiniband"]);
        for _ in 0..2 {
            assert_eq!(stdout(&bundle.run()), "uverbs9");
        }
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_container_that_leaves_its_device_aside_is_told_of_and_ended_if_rdma_is_required() {
    for runtime in runtimes() {
        for required in [false, true] {
            let told = "until grep -q rdma_unused /audit; do sleep 0.1; done";
            let script = if required { "exec sleep infinity" } else { told };
            let mut bundle = Bundle::new(runtime, &["sh", "-c", script]);
            let audit = bundle.path().join("audit");
            std::fs::write(&audit, "").unwrap();
            bundle.bind(&audit, "/audit");
            let audit_at = audit.to_str().unwrap();
            bundle.options.extend(["--rdma-within", "1", "--audit", audit_at].map(str::to_owned));
            bundle.options.extend(required.then(|| "--require-rdma".to_owned()));
            let output = bundle.run();
            // A signal ended it, of which a slow runtime hears before it has seen the container run.
            assert_eq!(output.status.success(), !required, "{output:?}");
            let text = std::fs::read_to_string(&audit).unwrap();
            let event: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            assert_eq!(
                (&event["event"], &event["ended"]),
                (&json!("rdma_unused"), &json!(required))
            );
            assert!(event["tenant"].as_str().unwrap().starts_with("verbgate-test-"), "{event}");
            bundle.assert_nothing_left();
        }
    }
}
