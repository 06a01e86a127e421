//! The attacked sandbox as a container: what an engine gives an OCI runtime, with the host's
//! programs and the world's folder in it.

use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use serde_json::Value;
use serde_json::json;

use crate::options::Options;

const FAULTS: &str = "/dev/userfaultfd";
/// What an attacker needs that is root: it becomes other users, and ends what it started.
const CAPABILITIES: [&str; 4] = ["CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"];

/// A container of a world.
pub(crate) struct Container<'a> {
    options: &'a Options,
    dir: &'a str,
    runtime: &'a str,
}

impl<'a> Container<'a> {
    /// Writes the bundle of a container in the world of this folder, run by a runtime.
    pub(crate) fn new(options: &'a Options, dir: &'a str, runtime: &'a str) -> io::Result<Self> {
        let rootfs = format!("{dir}/bundle/rootfs");
        fs::create_dir_all(&rootfs)?;
        let mut mounts = vec![
            mount("proc", "/proc", "proc", &[]),
            mount("tmpfs", "/dev", "tmpfs", &["nosuid", "mode=755"]),
            mount("tmpfs", "/tmp", "tmpfs", &["nosuid", "mode=1777"]),
            mount("/usr", "/usr", "bind", &["rbind", "ro"]),
            mount(dir, dir, "bind", &["rbind"]),
        ];
        for name in ["bin", "sbin", "lib", "lib64"] {
            let host = format!("/{name}");
            if let Ok(target) = fs::read_link(&host) {
                std::os::unix::fs::symlink(target, format!("{rootfs}/{name}"))?;
            } else if Path::new(&host).is_dir() {
                mounts.push(mount(&host, &host, "bind", &["rbind", "ro"]));
            }
        }
        let mut rules = vec![json!({"allow": false, "access": "rwm"})];
        // For attackers who make the kernel wait for their pages: some engines give it.
        if let Ok(faults) = fs::metadata(FAULTS) {
            let (major, minor) = (libc::major(faults.rdev()), libc::minor(faults.rdev()));
            mounts.push(mount(FAULTS, FAULTS, "bind", &["bind"]));
            rules.push(json!({
                "allow": true, "type": "c", "major": major, "minor": minor, "access": "rw",
            }));
        }
        let [(one, _), (other, _)] = &options.devices;
        let devices = [name_of(one), name_of(other)].join(",");
        let namespaces = ["pid", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "cwd": "/",
                "args": [format!("{dir}/program"), "leader", dir],
                "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
                "capabilities": {
                    "bounding": CAPABILITIES,
                    "effective": CAPABILITIES,
                    "permitted": CAPABILITIES,
                },
            },
            "root": {"path": "rootfs"},
            "mounts": mounts,
            "annotations": {"org.verbgate.devices": devices},
            "linux": {
                "namespaces": namespaces,
                "resources": {"devices": rules},
            },
        });
        fs::write(format!("{dir}/bundle/config.json"), config.to_string())?;
        // Debian's crun refuses to run where version 2 of cgroups is mounted beside version 1.
        if Path::new("/sys/fs/cgroup/unified").is_dir() {
            Command::new("umount").arg("/sys/fs/cgroup/unified").stderr(Stdio::null()).status()?;
        }
        Ok(Self { options, dir, runtime })
    }

    /// Runs the container; ends when the container does.
    pub(crate) fn run(&self, out: File, err: File) -> io::Result<Child> {
        let mut command = self.command();
        command.args(["run", "--bundle", &format!("{}/bundle", self.dir), self.id()]);
        command.stdin(Stdio::null()).stdout(out).stderr(err).spawn()
    }

    /// Begins to delete the container, whatever it does, as an engine does.
    pub(crate) fn delete(&self, err: File) -> io::Result<Child> {
        let mut command = self.command();
        command.args(["delete", "--force", self.id()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(err).spawn()
    }

    /// The most memory in KiB that the supervisor took, the kernel's own for it included, as its control group
    /// tells; none where there is no such controller.
    pub(crate) fn most_memory(&self) -> Option<u64> {
        let (groups, files) = (self.groups(), ["memory.peak", "memory.max_usage_in_bytes"]);
        let mut files =
            groups.lines().flat_map(|group| files.map(|file| format!("{group}/{file}")));
        let bytes: u64 =
            files.find_map(|file| fs::read_to_string(file).ok())?.trim().parse().ok()?;
        Some(bytes / 1024)
    }

    /// The supervisor's processes.
    pub(crate) fn supervisor(&self) -> Vec<i32> {
        let groups = self.groups();
        let mut lists =
            groups.lines().map(|group| fs::read_to_string(format!("{group}/cgroup.procs")));
        let list = lists.find_map(Result::ok).unwrap_or_default();
        list.lines().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// The supervisor's control groups, a line each.
    fn groups(&self) -> String {
        let states =
            fs::read_dir(format!("{}/state/oci", self.dir)).into_iter().flatten().flatten();
        states.filter_map(|state| fs::read_to_string(state.path().join("groups")).ok()).collect()
    }

    /// The container's name, which is that of its control group, too, and so no other world's.
    fn id(&self) -> &str {
        self.dir.trim_start_matches("/tmp/")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.options.verbgate);
        command.args(["--root", &format!("{}/state", self.dir), "oci"]);
        for (device, _) in &self.options.devices {
            if device.contains('=') {
                command.args(["--stand-in", device]);
            }
        }
        command.args([
            "--annotations",
            "grant",
            "--runtime",
            self.runtime,
            "--log",
            &format!("{}/log", self.dir),
        ]);
        command.args(["--root", &format!("{}/runtime", self.dir)]);
        command
    }
}

/// What a container's annotation calls a device.
fn name_of(device: &str) -> &str {
    device.split_once('=').map_or(device, |(name, _)| name)
}

fn mount(source: &str, destination: &str, kind: &str, options: &[&str]) -> Value {
    json!({"source": source, "destination": destination, "type": kind, "options": options})
}
