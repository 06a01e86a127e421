//! Containers of crun and runc, wrapped by `verbgate oci`: unmodified programs speak from one to
//! another over the real device, which the containers' root cannot open.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;
use serde_json::json;
use tempfile::TempDir;

use super::Case;
use super::Verdict;
use crate::exec;
use crate::exec::Ended;
use crate::pair::Pair;
use crate::world;
use crate::world::PATIENCE;
use crate::world::World;

const RUNTIMES: [&str; 2] = ["runc", "crun"];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("containers_speak_with_each_other", |world| of_each(world, speak)),
        Case::new("containers_execute_more", |world| of_each(world, execute)),
        Case::new("containers_leave_nothing", |world| of_each(world, in_parallel)),
    ]
}

pub(super) fn of_each(
    world: &World,
    case: fn(&World, &'static str) -> Result<()>,
) -> Result<Verdict> {
    for runtime in RUNTIMES {
        if exec::run(version(runtime), PATIENCE).is_err() {
            return Ok(Verdict::Skipped(format!("needs {runtime}")));
        }
        let before = world::resources();
        case(world, runtime).context(runtime)?;
        exec::wait_until("the kernel's objects to be as before", PATIENCE, || {
            Ok(world::resources() == before)
        })?;
    }
    Ok(Verdict::Ok)
}

fn version(runtime: &str) -> Command {
    let mut command = Command::new(runtime);
    command.arg("--version");
    command
}

/// A bundle in the host's network namespace, which shows the host's programs. Deleted with this.
pub(super) struct Container<'a> {
    world: &'a World,
    runtime: &'static str,
    pub(super) id: String,
    pub(super) dir: TempDir,
}

impl<'a> Container<'a> {
    pub(super) fn new(
        world: &'a World,
        runtime: &'static str,
        id: &str,
        argv: &[&str],
    ) -> Result<Self> {
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
            "annotations": {"org.verbgate.devices": world.device},
            "linux": {
                "namespaces": namespaces,
                "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            },
        });
        fs::write(dir.path().join("config.json"), config.to_string())?;
        Ok(Self { world, runtime, id: format!("lab-{id}"), dir })
    }

    fn wrapped(&self, verb: &str) -> Command {
        let mut command = self.world.program("verbgate");
        command.args(["oci", "--runtime", self.runtime, verb]);
        command
    }

    fn run(&self) -> Command {
        let mut command = self.wrapped("run");
        command.arg("--bundle").arg(self.dir.path()).arg(&self.id);
        command
    }

    fn execute(&self, argv: &[&str]) -> Command {
        let mut command = self.wrapped("exec");
        command.arg(&self.id).args(argv);
        command
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let mut command = self.wrapped("delete");
        command.arg("--force").arg(&self.id);
        // It has ended and is gone already, but when the case has failed.
        let _ = exec::run(command, PATIENCE);
    }
}

pub(super) fn bind(path: &str) -> Value {
    json!({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})
}

/// Programs with two ends, each in a container of its own.
fn speak(world: &World, runtime: &'static str) -> Result<()> {
    let shown = run(Container::new(world, runtime, "info", &["ibv_devinfo"])?)?.expect_status(0)?;
    if !shown.stdout.contains(&world.device) {
        bail!("ibv_devinfo does not show {}: {shown}", world.device);
    }
    let with = |words: &[&str], options: Vec<String>| -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).chain(options).collect()
    };
    for argv in [
        with(&["ibv_rc_pingpong", "-e", "-n", "100"], world.pingpong_options()),
        with(&["ib_write_bw", "-n", "100", "-s", "65536"], world.perftest_options()),
    ] {
        let mut containers = Vec::new();
        let pair = Pair::start(&argv, |end, words| {
            let container = Container::new(world, runtime, end, words)?;
            let command = container.run();
            containers.push(container);
            Ok(command)
        })?;
        let ended = pair.wait()?;
        ended.server.expect_status(0)?;
        ended.client.expect_status(0)?;
    }
    Ok(())
}

fn run(container: Container<'_>) -> Result<Ended> {
    exec::run(container.run(), PATIENCE)
}

/// A container that is there, and programs that come to it.
fn execute(world: &World, runtime: &'static str) -> Result<()> {
    let container = Container::new(world, runtime, "sleeper", &["sleep", "600"])?;
    let mut create = container.wrapped("run");
    create.arg("--detach").arg("--bundle").arg(container.dir.path()).arg(&container.id);
    exec::run(create, PATIENCE)?.expect_status(0)?;
    let mut argv: Vec<String> = ["ibv_rc_pingpong", "-n", "100"].map(str::to_owned).to_vec();
    argv.extend(world.pingpong_options());
    let ended = Pair::start(&argv, |_, words| Ok(container.execute(words)))?.wait()?;
    ended.server.expect_status(0)?;
    ended.client.expect_status(0)?;

    let node = world.node_path();
    let numbers = fs::read_to_string(format!("/sys/class/infiniband_verbs/{}/dev", world.node))?;
    let (major, minor) = numbers.trim().split_once(':').context("an odd number")?;
    for attack in [
        format!("cat {node}"),
        format!("echo x >>{node}"),
        format!("exec 3<>{node}; : <>/proc/self/fd/3"),
        format!("mknod /tmp/raw c {major} {minor}"),
        "umount /dev/infiniband".to_owned(),
        "mkdir /tmp/sys && mount -t sysfs none /tmp/sys".to_owned(),
        "/dev/.verbgate/init /dev/.verbgate/socket kept -- true".to_owned(),
    ] {
        // A shell that ends by the failure, so that only success is 0.
        let script = format!("set -e; {attack}");
        let ended = exec::run(container.execute(&["sh", "-c", &script]), PATIENCE)?;
        if ended.status == 0 {
            bail!("the container could do what it may not: {attack}: {ended}");
        }
    }
    Ok(())
}

/// Several start and stop at a time, again and again; each opens the device.
fn in_parallel(world: &World, runtime: &'static str) -> Result<()> {
    // The host's tests start ten twenty times, on the null device; here each takes seconds.
    const CONTAINERS: usize = 10;
    const ROUNDS: usize = 2;
    let argv = ["ibv_devinfo", "-d", &world.device];
    let before = Census::take()?;
    for _ in 0..ROUNDS {
        let containers: Vec<Container<'_>> = (0..CONTAINERS)
            .map(|number| Container::new(world, runtime, &format!("many-{number}"), &argv))
            .collect::<Result<_>>()?;
        let running: Vec<exec::Program> = containers
            .iter()
            .map(|container| exec::Program::start(container.run()))
            .collect::<Result<_>>()?;
        for program in running {
            program.wait(2 * PATIENCE)?.expect_status(0)?;
        }
    }
    no_containers(world)?;
    let same = exec::wait_until("nothing to be left", PATIENCE, || Ok(Census::take()? == before));
    same.with_context(|| format!("before: {before:?}, now: {:?}", Census::take()))
}

/// Everything of which containers have some, on a machine where nothing else starts or ends.
#[derive(Debug, PartialEq)]
struct Census {
    processes: usize,
    namespaces: usize,
    mounts: usize,
    sockets: usize,
    control_groups: usize,
    /// Containers' directories, and their runtimes'; journals of NICs.
    directories: usize,
    objects: std::collections::BTreeMap<String, u64>,
}

impl Census {
    fn take() -> Result<Self> {
        let mut processes = 0;
        let mut namespaces = std::collections::BTreeSet::new();
        let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
        for process in fs::read_dir("/proc")?.flatten() {
            let path = process.path();
            // Not the kernel's own threads, which come and go.
            let is_process = process.file_name().to_str().is_some_and(is_number)
                && fs::read_link(path.join("exe")).is_ok();
            if !is_process {
                continue;
            }
            processes += 1;
            let kinds = fs::read_dir(path.join("ns")).into_iter().flatten().flatten();
            namespaces.extend(kinds.filter_map(|kind| fs::read_link(kind.path()).ok()));
        }
        let lines =
            |file: &str| Ok::<usize, std::io::Error>(fs::read_to_string(file)?.lines().count());
        Ok(Self {
            processes,
            namespaces: namespaces.len(),
            mounts: lines("/proc/self/mountinfo")?,
            sockets: lines("/proc/net/unix")?,
            control_groups: folders(Path::new("/sys/fs/cgroup")),
            directories: ["/run/verbgate/oci", "/var/lib/verbgate/oci", "/run/crun", "/run/runc"]
                .iter()
                .map(|dir| fs::read_dir(dir).into_iter().flatten().count())
                .sum(),
            objects: world::resources(),
        })
    }
}

/// How many folders there are in a folder, at any depth.
fn folders(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let inside = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    inside.map(|entry| 1 + folders(&entry.path())).sum()
}

/// Waits until no container has RDMA any more.
pub(super) fn no_containers(world: &World) -> Result<()> {
    let mut ps = world.program("verbgate");
    ps.args(["ps", "--json"]);
    exec::wait_until("no container to be left", PATIENCE, || {
        let mut again = Command::new(ps.get_program());
        again.args(ps.get_args());
        Ok(exec::run(again, PATIENCE)?.stdout.trim() == "[]")
    })
}
