//! Containers of podman. podman knows `verbgate` by a runtime's path, and the device by an
//! annotation: an unmodified root file system, podman's own seccomp profile and capabilities.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use tempfile::TempDir;

use super::Case;
use super::Verdict;
use super::census::no_containers;
use crate::exec;
use crate::exec::Ended;
use crate::pair::Pair;
use crate::world;
use crate::world::World;

/// The first is podman's own choice, and tried in full.
const RUNTIMES: [&str; 2] = ["crun", "runc"];

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("podman_containers_speak_with_each_other", podman)]
}

/// A podman with storage of its own, which ends with this.
struct Podman<'a> {
    world: &'a World,
    dir: TempDir,
    runtime: &'static str,
}

impl<'a> Podman<'a> {
    fn new(world: &'a World, runtime: &'static str) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
        let podman = Self { world, dir, runtime };
        fs::create_dir(podman.rootfs())?;
        symlink(world.beside("verbgate"), podman.runtime())?;
        // The machine's own system; what else is mounted in it is not seen.
        let mut mount = Command::new("mount");
        mount.args(["--bind", "/"]).arg(podman.rootfs());
        exec::run(mount)?.expect_status(0)?;
        Ok(podman)
    }

    fn rootfs(&self) -> PathBuf {
        self.dir.path().join("rootfs")
    }

    fn runtime(&self) -> PathBuf {
        self.dir.path().join(format!("verbgate-oci-{}", self.runtime))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("podman");
        for (option, folder) in [("--root", "storage"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(self.dir.path().join(folder));
        }
        command.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]);
        command.args(["--events-backend", "none", "--runtime"]).arg(self.runtime()).args(words);
        command
    }

    /// `podman run` of a command, beside other containers on the host's network.
    fn run(&self, options: &[&str], argv: &[&str]) -> Command {
        let mut command = self.command(&["run", "--network", "host", "--ulimit", "memlock=-1:-1"]);
        // Not by annotation, which podman before 4.6 takes from images, too.
        let cm = "/dev/infiniband/rdma_cm".to_owned();
        for node in [self.world.node_path(), cm] {
            if Path::new(&node).exists() {
                command.arg("--device").arg(node);
            }
        }
        command.args(options).arg("--rootfs").arg(self.rootfs()).args(argv);
        command
    }
}

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        // Nothing is there any more, but when the case has failed.
        let remove = self.command(&["rm", "--all", "--force", "--time", "0"]);
        let _ = exec::run(remove);
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(self.rootfs());
        let _ = exec::run(unmount);
    }
}

fn podman(world: &World) -> Result<Verdict> {
    let mut version = Command::new("podman");
    version.arg("--version");
    if exec::run(version).is_err() {
        return Ok(Verdict::Skipped("needs podman".to_owned()));
    }
    let before = world::resources();
    for runtime in RUNTIMES {
        let podman = Podman::new(world, runtime)?;
        speak(&podman).context(runtime)?;
        if runtime == RUNTIMES[0] {
            execute(&podman).context(runtime)?;
        }
        no_containers(world)?;
    }
    exec::wait_until("the kernel's objects to be as before", || Ok(world::resources() == before))?;
    Ok(Verdict::Ok)
}

fn with(words: &[&str], options: Vec<String>) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).chain(options).collect()
}

fn both(
    argv: &[String],
    launch: impl FnMut(&'static str, &[&str]) -> Result<Command>,
) -> Result<()> {
    let ended = Pair::start(argv, launch)?.wait()?;
    ended.server.expect_status(0)?;
    ended.client.expect_status(0)?;
    Ok(())
}

/// Two containers.
fn speak(podman: &Podman<'_>) -> Result<()> {
    let world = podman.world;
    let shown = exec::run(podman.run(&["--rm"], &["ibv_devinfo"]))?.expect_status(0)?;
    if !shown.stdout.contains(&world.device) {
        bail!("ibv_devinfo does not show {}: {shown}", world.device);
    }
    let mut pairs =
        vec![with(&["ib_write_bw", "-n", "100", "-s", "65536"], world.perftest_options())];
    if podman.runtime == RUNTIMES[0] {
        pairs.push(with(&["ibv_rc_pingpong", "-e", "-n", "100"], world.pingpong_options()));
    }
    for argv in pairs {
        both(&argv, |_, words| Ok(podman.run(&["--rm"], words)))?;
    }
    Ok(())
}

/// A second pair, in containers that are there.
fn execute(podman: &Podman<'_>) -> Result<()> {
    let world = podman.world;
    for name in ["server", "client"] {
        let run = podman.run(&["--detach", "--name", name], &["sleep", "infinity"]);
        exec::run(run)?.expect_status(0)?;
    }
    let argv = with(&["ibv_rc_pingpong", "-e", "-n", "100"], world.pingpong_options());
    both(&argv, |end, words| Ok(podman.command(&[&["exec", end], words].concat())))?;
    let attack: Ended = exec::run(podman.command(&[
        "exec",
        "server",
        "sh",
        "-c",
        &format!("exec 3<{}", world.node_path()),
    ]))?;
    if attack.status == 0 {
        bail!("the node could be opened for reading: {attack}");
    }
    let remove = podman.command(&["rm", "--force", "--time", "0", "server", "client"]);
    exec::run(remove)?.expect_status(0)?;
    Ok(())
}
