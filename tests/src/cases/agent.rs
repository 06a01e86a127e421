//! Containers of the bare crun and runc that have the seccomp profile of `verbgate agent`, and nothing
//! else of Verbgate.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;

use super::Case;
use super::containers::of_each;
use super::quotas::REGISTER;
use crate::bundle::Container;
use crate::bundle::bind;
use crate::exec;
use crate::exec::Program;
use crate::pair::Pair;
use crate::world::World;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("agent_serves_containers_with_the_profile", |world| {
            of_each(world, |world, runtime| serve(world, runtime, None, served))
        }),
        Case::new("agent_lets_containers_lock_what_the_tenant_may", |world| {
            of_each(world, |world, runtime| serve(world, runtime, Some(POLICY), locks))
        }),
    ]
}

/// A tenant who may lock 64 MiB.
const POLICY: &str = "version = 1\n[tenant.locks]\n\
    match.annotation = { \"org.verbgate.devices\" = \"*\" }\n\
    profile = \"standard\"\ndevices = [{ name = \"*\" }]\nmemlock = 67108864\n";

/// Has an agent, with a policy or without, serve what a test does.
fn serve(
    world: &World,
    runtime: &'static str,
    policy: Option<&str>,
    test: fn(&World, &'static str, &Path) -> Result<()>,
) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (mut agent, socket) = started(world, dir.path(), policy)?;
    test(world, runtime, &socket).with_context(|| {
        agent.describe().map_or_else(|e| e.to_string(), |said| format!("the agent {said}"))
    })?;
    exec::wait_until("the supervisors to end", || {
        Ok(fs::read_dir(dir.path().join("oci"))?.next().is_none())
    })?;
    let said = agent.describe()?;
    if agent.has_ended()? || said.contains("error") {
        bail!("the agent: {said}");
    }
    agent.kill_alone()
}

/// An agent that has its state in a directory, and its socket.
pub(super) fn started(
    world: &World,
    dir: &Path,
    policy: Option<&str>,
) -> Result<(Program, PathBuf)> {
    let socket = dir.join("agent.sock");
    let mut command = world.program("verbgate");
    command.arg("--root").arg(dir).arg("agent").arg("--socket").arg(&socket);
    if let Some(policy) = policy {
        let policies = dir.join("policy.d");
        fs::create_dir(&policies)?;
        fs::write(policies.join("one.toml"), policy)?;
        command.arg("--policy-dir").arg(policies);
    }
    let agent = Program::start(command)?;
    exec::wait_until("the agent to listen", || Ok(socket.exists()))?;
    Ok((agent, socket))
}

/// A container of the bare runtime, with the agent's profile.
fn bare(
    world: &World,
    (runtime, socket): (&str, &Path),
    id: &str,
    argv: &[&str],
) -> Result<Container> {
    let id = format!("lab-{id}");
    let container = Container::under(vec![runtime.into()], &world.device, &id, argv)?;
    container.add("/linux", "seccomp", profile(world, runtime, socket)?)?;
    // The raw nodes, to be seen and, by the device cgroup, not to be opened.
    container.add("/mounts", "-", bind("/dev/infiniband"))?;
    Ok(container)
}

/// What a user without rights may register: as the tenant's policy says, also in a program that was
/// started before anybody looked.
fn locks(world: &World, runtime: &'static str, socket: &Path) -> Result<()> {
    let register = |mebibytes: u32| {
        let script = format!("python3 -c '{REGISTER}' {} {mebibytes} & wait $!", world.device);
        let container = bare(world, (runtime, socket), "locks", &["sh", "-c", &script])?;
        container.for_nobody()?;
        exec::run(container.run())
    };
    register(32)?.expect_status(0)?;
    let beyond = register(96)?;
    if beyond.status == 0 || !beyond.stderr.contains("Cannot allocate memory") {
        bail!("96 MiB are registered where 64 may be locked: {beyond}");
    }
    Ok(())
}

/// Containers of one runtime.
fn served(world: &World, runtime: &'static str, socket: &Path) -> Result<()> {
    let bare = |id: &str, argv: &[&str]| bare(world, (runtime, socket), id, argv);
    let container = bare("info", &["ibv_devinfo"])?;
    let shown = exec::run(container.run())?.expect_status(0)?;
    if !shown.stdout.contains(&world.device) {
        bail!("ibv_devinfo does not show {}: {shown}", world.device);
    }
    let container = bare("attack", &["sh", "-c", &attacks(world)?])?;
    let ended = exec::run(container.run())?.expect_status(0)?;
    if ended.stdout.trim() != "done" {
        bail!("the container could do what it may not: {ended}");
    }
    let mut argv: Vec<String> = ["ibv_rc_pingpong", "-n", "100"].map(str::to_owned).to_vec();
    argv.extend(world.pingpong_options());
    // Soft-RoCE sends by write(2), which runc has nobody watch.
    if runtime == "crun" {
        let mut containers = Vec::new();
        let pair = Pair::start(&argv, |end, words| {
            let container = bare(end, words)?;
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

/// A script that prints the name of each attack that succeeds, and "done".
fn attacks(world: &World) -> Result<String> {
    let node = world.node_path();
    let numbers = fs::read_to_string(format!("/sys/class/infiniband_verbs/{}/dev", world.node))?;
    let (major, minor) = numbers.trim().split_once(':').context("an odd number")?;
    let attacks = [
        format!("cat {node}"),
        format!("echo x >>{node}"),
        format!("exec 3<>{node}; : <>/proc/self/fd/3"),
        format!("mknod /tmp/raw c {major} {minor}; : >/tmp/raw"),
        "mkdir /tmp/sys && mount -t sysfs none /tmp/sys".to_owned(),
    ];
    let each = attacks.map(|attack| format!("(set -e; {attack}) 2>/dev/null && echo '{attack}'\n"));
    Ok(format!("{}echo done", each.concat()))
}

pub(super) fn profile(world: &World, runtime: &str, socket: &Path) -> Result<Value> {
    let mut command = world.program("verbgate");
    command.args(["oci", "profile", "--listener"]).arg(socket);
    if runtime == "crun" {
        command.arg("--write");
    }
    Ok(serde_json::from_str(&exec::run(command)?.expect_status(0)?.stdout)?)
}
