//! NVIDIA's container toolkit and Verbgate, in both orders. The toolkit is a stand-in (`nvidia/nvidia-container-runtime`);
//! a real one in PATH is tried, too, in the modes that need no GPU.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use serde_json::json;

use crate::common::NULL_AS_UVERBS;
use crate::common::bundle::Bundle;
use crate::common::bundle::Runtime;
use crate::common::bundle::runtimes;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

pub(crate) const STAND_IN: &str = include_str!("nvidia/nvidia-container-runtime");
pub(crate) const NAME: &str = "nvidia-container-runtime";
/// The toolkit's programs, which know by their names what to do.
pub(crate) const NAMES: [&str; 5] = [
    NAME,
    "nvidia-container-runtime.cdi",
    "nvidia-container-runtime.legacy",
    "nvidia-container-runtime-hook",
    "nvidia-cdi-hook",
];
/// What an image asks for.
const ALL: [&str; 4] = [
    "NVIDIA_VISIBLE_DEVICES=all",
    "NVIDIA_MOFED=enabled",
    "NVIDIA_GDS=enabled",
    "NVIDIA_GDRCOPY=enabled",
];
/// Nodes of a host with a GPU, by numbers of devices that do no harm.
const GPU: [(&str, u32, u32); 4] =
    [("nvidiactl", 1, 5), ("nvidia0", 1, 5), ("nvidia-fs0", 1, 7), ("gdrdrv", 1, 9)];
/// A NIC that Verbgate knows, and one of a number that no driver has here: an open of the second fails with ENXIO where the
/// control group allows the open.
const SUPERVISED: (&str, u32, u32) = ("infiniband/uverbs9", 1, 3);
const RAW: (&str, u32, u32) = ("infiniband/uverbs7", 231, 199);
const OPENED: &str = "No such device or address";

/// Where a real toolkit is, if this machine has one.
fn real() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).find(|dir| dir.join(NAME).exists())
}

/// A container of an image that asks for everything, on a host with a GPU and a NIC, and with a toolkit in a mode.
struct Host {
    bundle: Bundle,
    /// The toolkit's runtime.
    program: PathBuf,
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

impl Host {
    fn of(
        runtime: &'static Runtime,
        toolkit: Option<&Path>,
        mode: &str,
        nic: (&str, u32, u32),
    ) -> Self {
        let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        let dir = bundle.path().to_owned();
        let at = |path: &str| dir.join(path).to_str().unwrap().to_owned();
        for below in ["driver/dev/infiniband", "toolkit/bin", "cdi"] {
            fs::create_dir_all(dir.join(below)).unwrap();
        }
        for (name, major, minor) in GPU.into_iter().chain([nic]) {
            let node = at(&format!("driver/dev/{name}"));
            let (major, minor) = (major.to_string(), minor.to_string());
            let words = ["-m", "666", &node, "c", &major, &minor];
            assert!(Command::new("mknod").args(words).status().unwrap().success());
        }
        // As the GPU operator installs the toolkit: each program is called with its configuration.
        for name in NAMES {
            let own = dir.join("toolkit/bin").join(name);
            write(&own, STAND_IN);
            let of_real = toolkit.filter(|_| name.starts_with(NAME) && !name.ends_with("-hook"));
            let program = of_real.map_or(own, |toolkit| toolkit.join(name));
            let (config, program) = (at("config.toml"), program.display());
            let text = format!(
                "#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin NVIDIA_CTK_CONFIG_FILE_PATH={config} exec {program} \"$@\"\n"
            );
            write(&dir.join("toolkit").join(name), &text);
        }
        let gpu = json!({"path": "/dev/nvidia0", "hostPath": at("driver/dev/nvidia0"), "major": 1, "minor": 5});
        let link =
            ["nvidia-cdi-hook", "create-symlinks", "--link", "libcuda.so.1::/srv/libcuda.so"];
        let link = json!({"hookName": "createContainer", "path": at("toolkit/nvidia-cdi-hook"), "args": link});
        let edits = json!({"deviceNodes": [gpu], "hooks": [link]});
        let devices = json!([{"name": "all", "containerEdits": edits}]);
        let spec = json!({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices});
        fs::write(dir.join("cdi/nvidia.json"), spec.to_string()).unwrap();
        bundle.edit(|config| {
            drop(config.remove("annotations"));
            config["process"]["env"].as_array_mut().unwrap().extend(ALL.map(Value::from));
        });
        let host = Self { program: dir.join("toolkit").join(NAME), bundle };
        host.configure(mode, runtime.name);
        host
    }

    /// Writes the toolkit's file, by which the toolkit calls a runtime.
    fn configure(&self, mode: &str, calls: &str) {
        let dir = self.bundle.path().display();
        let config = format!(
            "[nvidia-container-cli]\nroot = \"{dir}/driver\"\n[nvidia-container-runtime-hook]\n\
             path = \"{dir}/toolkit/nvidia-container-runtime-hook\"\n[nvidia-container-runtime]\n\
             mode = \"{mode}\"\nruntimes = [\"{calls}\"]\n[nvidia-container-runtime.modes.cdi]\n\
             spec-dirs = [\"{dir}/cdi\"]\n"
        );
        fs::write(self.bundle.path().join("config.toml"), config).unwrap();
    }

    /// As engines do it: NVIDIA's runtime looks at `create` alone.
    fn start(&self) {
        self.bundle.create();
        let started = self.bundle.verb("start", &[]);
        assert!(started.status.success(), "{started:?}");
    }

    fn open(&self, node: &str) -> String {
        stderr(&self.bundle.verb("exec", &["sh", "-c", &format!(": <>/dev/{node}")]))
    }
}

/// The toolkits, each with a mode; and whether the mode looks for NICs.
fn modes() -> impl Iterator<Item = (Option<PathBuf>, &'static str, bool)> {
    let all = [("legacy", true), ("cdi", false), ("jit-cdi", true), ("auto", true)];
    let stand_in = all.into_iter().map(|(mode, mofed)| (None, mode, mofed));
    // What the others ask the driver for is not here.
    let real = real().into_iter().flat_map(move |dir| {
        all.into_iter().take(2).map(move |(mode, mofed)| (Some(dir.clone()), mode, mofed))
    });
    stand_in.chain(real)
}

#[test]
fn nvidias_runtime_calls_verbgate_which_judges_the_bundle() {
    for runtime in runtimes() {
        for (toolkit, mode, mofed) in modes() {
            let mut host = Host::of(runtime, toolkit.as_deref(), mode, SUPERVISED);
            let dir = host.bundle.path().to_owned();
            let (ours, root) = (dir.join("verbgate-oci"), dir.join("state"));
            let text = format!(
                "#!/bin/sh\nexec {} --root {} oci --stand-in {NULL_AS_UVERBS} --runtime {} -- \"$@\"\n",
                verbgate(),
                root.display(),
                runtime.name
            );
            write(&ours, &text);
            host.configure(mode, ours.to_str().unwrap());
            host.bundle.called = Some(host.program.clone());
            host.start();
            let listed = stdout(&host.bundle.verb("exec", &["sh", "-c", "ls /dev /srv"]));
            let has = |name: &str| listed.lines().any(|line| line == name);
            assert!(has("nvidia0"), "{mode}: {listed}");
            assert_eq!(has("libcuda.so"), mode != "legacy", "{mode}: {listed}");
            assert_eq!(
                (has("gdrdrv"), has("nvidia-fs0"), has("infiniband")),
                (mofed, mofed, mofed),
                "{mode}"
            );
            assert_eq!(host.open("nvidia0"), "", "{mode}");
            let supervised = if mofed { "Seccomp:\t2" } else { "Seccomp:\t0" };
            let status = host.bundle.verb("exec", &["grep", "Seccomp:", "/proc/self/status"]);
            assert_eq!(stdout(&status), supervised, "{mode}: {status:?}");
            if mofed {
                assert_eq!(host.open(SUPERVISED.0), "", "{mode}");
                let config: Value = serde_json::from_str(&host.bundle.config()).unwrap();
                assert_eq!(config["annotations"]["org.verbgate.granted"], "uverbs9", "{mode}");
            }
            host.bundle.delete();
            host.bundle.assert_nothing_left();
        }
    }
}

/// The order that Verbgate does not set up: what NVIDIA's runtime brings later is caught, whatever was asked for.
#[test]
fn a_device_that_nvidias_runtime_brings_later_is_caught() {
    for runtime in runtimes() {
        for (toolkit, mode, mofed) in modes().filter(|(_, mode, _)| *mode != "auto") {
            // Without Verbgate, the container has the device.
            let mut host = Host::of(runtime, toolkit.as_deref(), mode, RAW);
            host.bundle.called = Some(host.program.clone());
            host.start();
            let opened = host.open(RAW.0);
            assert_eq!(opened.contains(OPENED), mofed, "{mode}: {opened}");
            host.bundle.delete();
            for wishes in [false, true] {
                let mut host = Host::of(runtime, toolkit.as_deref(), mode, RAW);
                host.bundle.instead = Some(host.program.clone());
                if wishes {
                    let wish = json!({"org.verbgate.devices": "uverbs9"});
                    host.bundle.edit(|config| drop(config.insert("annotations".into(), wish)));
                }
                let dir = host.bundle.path().to_str().unwrap();
                if !mofed && !wishes {
                    // Nothing is brought but the GPU.
                    host.bundle.create();
                    host.bundle.delete();
                    continue;
                }
                let output = host.bundle.verb_with("create", &["--bundle", dir], &[]);
                let why = stderr(&output);
                assert!(!output.status.success(), "{mode}: {why}");
                let needle = if wishes { "--runtime " } else { "/dev/infiniband/uverbs7: " };
                for needle in [needle, "verbgate runtime configure"] {
                    assert!(why.contains(needle), "{mode}: {needle}: {why}");
                }
                host.bundle.delete_if_there();
                host.bundle.assert_nothing_left();
            }
        }
    }
}
