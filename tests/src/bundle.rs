//! Bundles of plain containers: they show the machine's programs, and ask for the device.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;
use serde_json::json;
use tempfile::TempDir;

use crate::exec;
use crate::world::World;

/// A bundle in the host's network namespace, which shows the host's programs. Deleted with this.
#[derive(Debug)]
pub struct Container {
    /// What runs it, to which a runtime's arguments are added.
    wrapper: Vec<OsString>,
    /// As the runtime knows it.
    pub id: String,
    /// Where `config.json` is.
    pub dir: TempDir,
}

impl Container {
    /// One that wishes for a device, under `verbgate oci` with this runtime.
    pub fn new(world: &World, runtime: &str, id: &str, argv: &[&str]) -> Result<Self> {
        let verbgate = world.beside("verbgate").into_os_string();
        let words = ["oci", "--annotations", "grant", "--runtime", runtime].map(OsString::from);
        let wrapper = [vec![verbgate], words.to_vec()].concat();
        Self::under(wrapper, &world.device, &format!("lab-{id}"), argv)
    }

    /// One that wishes for a device, under a runtime that is called so.
    pub fn under(wrapper: Vec<OsString>, device: &str, id: &str, argv: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
        let root = dir.path().join("rootfs");
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]}),
            json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]}),
            bind("/sys"),
        ];
        for name in ["usr", "etc", "bin", "sbin", "lib", "lib64"] {
            let host = Path::new("/").join(name);
            let inside = root.join(name);
            if let Ok(target) = fs::read_link(&host) {
                std::os::unix::fs::symlink(target, inside)?;
            } else if host.is_dir() {
                fs::create_dir_all(inside)?;
                mounts.push(bind(&host.to_string_lossy()));
            }
        }
        let capabilities = ["CAP_KILL", "CAP_MKNOD", "CAP_IPC_LOCK", "CAP_DAC_OVERRIDE"];
        let namespaces = ["pid", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": argv,
                "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
                "cwd": "/",
                "capabilities": {
                    "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
                },
            },
            "root": {"path": "rootfs"},
            "mounts": mounts,
            "annotations": {"org.verbgate.devices": device},
            "linux": {
                "namespaces": namespaces,
                "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            },
        });
        fs::write(dir.path().join("config.json"), config.to_string())?;
        Ok(Self { wrapper, id: id.to_owned(), dir })
    }

    /// Adds a member to an object of `config.json`, or to an array if the key is `-`, as in RFC 6902.
    pub fn add(&self, pointer: &str, key: &str, value: Value) -> Result<()> {
        let file = self.dir.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file)?)?;
        match config.pointer_mut(pointer) {
            Some(Value::Array(all)) if key == "-" => all.push(value),
            Some(Value::Object(all)) => drop(all.insert(key.to_owned(), value)),
            _ => bail!("config.json has no {pointer} to add to"),
        }
        Ok(fs::write(file, config.to_string())?)
    }

    /// Makes the program that of a user without rights, who may lock 64 KiB.
    pub fn for_nobody(&self) -> Result<()> {
        for set in ["bounding", "effective", "permitted"] {
            self.add("/process/capabilities", set, json!([]))?;
        }
        self.add("/process", "user", json!({"uid": 1000, "gid": 1000}))?;
        let little = json!([{"type": "RLIMIT_MEMLOCK", "soft": 65536, "hard": 65536}]);
        self.add("/process", "rlimits", little)
    }

    /// A command of the runtime.
    pub fn wrapped(&self, verb: &str) -> Command {
        let (program, words) =
            self.wrapper.split_first().map_or((OsStr::new(""), &[][..]), |(p, w)| (p, w));
        let mut command = Command::new(program);
        command.args(words).arg(verb);
        command
    }

    /// Runs it to its end.
    pub fn run(&self) -> Command {
        let mut command = self.wrapped("run");
        command.arg("--bundle").arg(self.dir.path()).arg(&self.id);
        command
    }

    /// Executes a program in it.
    pub fn execute(&self, argv: &[&str]) -> Command {
        let mut command = self.wrapped("exec");
        command.arg(&self.id).args(argv);
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let mut command = self.wrapped("delete");
        command.arg("--force").arg(&self.id);
        // It has ended and is gone already, but when the case has failed.
        let _ = exec::run(command);
    }
}

/// A mount that shows what the machine has there.
pub fn bind(path: &str) -> Value {
    json!({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})
}
