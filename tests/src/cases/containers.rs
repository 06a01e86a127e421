//! Containers of crun and runc, wrapped by `verbgate oci`: unmodified programs speak from one to
//! another over the real device, which the containers' root cannot open.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::json;

use super::Case;
use super::Verdict;
use super::census::Census;
use super::census::no_containers;
use super::nodes::ip;
use crate::bundle::Container;
use crate::exec;
use crate::exec::Ended;
use crate::pair::Pair;
use crate::world;
use crate::world::World;

const RUNTIMES: [&str; 2] = ["runc", "crun"];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("containers_speak_with_each_other", |world| of_each(world, speak)),
        Case::new("containers_execute_more", |world| of_each(world, execute)),
        Case::new("containers_leave_nothing", |world| of_each(world, in_parallel)),
        Case::new("container_with_a_nic", |world| of_each(world, with_nic)),
    ]
}

pub(super) fn of_each(
    world: &World,
    case: fn(&World, &'static str) -> Result<()>,
) -> Result<Verdict> {
    for runtime in RUNTIMES {
        if exec::run(version(runtime)).is_err() {
            return Ok(Verdict::Skipped(format!("needs {runtime}")));
        }
        let before = world::resources();
        case(world, runtime).context(runtime)?;
        exec::wait_until("the kernel's objects to be as before", || {
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

fn run(container: Container) -> Result<Ended> {
    exec::run(container.run())
}

/// A container that is there, and programs that come to it.
fn execute(world: &World, runtime: &'static str) -> Result<()> {
    let container = Container::new(world, runtime, "sleeper", &["sleep", "infinity"])?;
    let mut create = container.wrapped("run");
    create.arg("--detach").arg("--bundle").arg(container.dir.path()).arg(&container.id);
    exec::run(create)?.expect_status(0)?;
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
        "test -e /dev/.verbgate".to_owned(),
    ] {
        // A shell that ends by the failure, so that only success is 0.
        let script = format!("set -e; {attack}");
        let ended = exec::run(container.execute(&["sh", "-c", &script]))?;
        if ended.status == 0 {
            bail!("the container could do what it may not: {attack}: {ended}");
        }
    }
    Ok(())
}

/// Several start and stop at a time, again and again; each opens the device.
fn in_parallel(world: &World, runtime: &'static str) -> Result<()> {
    // The host's tests start ten twenty times, on the null device; here each takes seconds.
    const CONTAINERS: usize = 5;
    const ROUNDS: usize = 2;
    let argv = ["ibv_devinfo", "-d", &world.device];
    let before = Census::take()?;
    for _ in 0..ROUNDS {
        let containers: Vec<Container> = (0..CONTAINERS)
            .map(|number| Container::new(world, runtime, &format!("many-{number}"), &argv))
            .collect::<Result<_>>()?;
        let running: Vec<exec::Program> = containers
            .iter()
            .map(|container| exec::Program::start(container.run()))
            .collect::<Result<_>>()?;
        for program in running {
            program.wait()?.expect_status(0)?;
        }
    }
    no_containers(world)?;
    let same = exec::wait_until("nothing to be left", || Ok(Census::take()? == before));
    same.with_context(|| format!("before: {before:?}, now: {:?}", Census::take()))
}

/// A NIC of the device, upon the port's own: a Soft-RoCE device would not outlive the move of that.
const NIC: &str = "rail9";
const NIC_ADDRESS: &str = "10.123.0.9/24";

/// The NIC goes into the container and comes home, and its GID with it.
fn with_nic(world: &World, runtime: &'static str) -> Result<()> {
    let port = Path::new("/sys/class/infiniband").join(&world.device).join("ports/1");
    let netdev = world.netdev().context("the device has no network device")?;
    ip(&["link", "add", "link", &netdev, "name", NIC, "type", "macvlan", "mode", "bridge"])?;
    let done = there_and_back(world, runtime, &port);
    ip(&["link", "del", NIC])?;
    done
}

fn there_and_back(world: &World, runtime: &'static str, port: &Path) -> Result<()> {
    ip(&["address", "add", NIC_ADDRESS, "dev", NIC])?;
    ip(&["link", "set", NIC, "up"])?;
    let has_gid = || Ok(ndevs(port).contains(&NIC.to_owned()));
    exec::wait_until("its GID", has_gid)?;
    let before = ip(&["-o", "-4", "address", "show", "dev", NIC])?.stdout;
    let look = format!(
        "ip -o -4 address; cd /sys/class/infiniband/{}/ports/1/gid_attrs/ndevs; \
         cat * 2>/dev/null | sort -u | sed 's/^/gid of /'",
        world.device
    );
    let container = Container::new(world, runtime, "nic", &["sh", "-c", &look])?;
    container.add("/annotations", "org.verbgate.netdevs", NIC.into())?;
    container.add("/linux/namespaces", "-", json!({"type": "network"}))?;
    let ended = run(container)?.expect_status(0)?;
    let gids: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("gid of ")).collect();
    if !ended.stdout.contains(NIC_ADDRESS) || gids != [format!("gid of {NIC}")] {
        bail!("the container does not have its NIC and its GID alone: {ended}");
    }
    if ip(&["-o", "-4", "address", "show", "dev", NIC])?.stdout != before {
        bail!("the NIC did not come home with what it had: {before}");
    }
    if fs::read_dir("/var/lib/verbgate/oci").is_ok_and(|mut all| all.next().is_some()) {
        bail!("a journal is left in /var/lib/verbgate/oci");
    }
    exec::wait_until("its GID to be back", has_gid)
}

/// The netdevs of the port's GIDs.
fn ndevs(port: &Path) -> Vec<String> {
    let entries = fs::read_dir(port.join("gid_attrs/ndevs")).into_iter().flatten().flatten();
    // An empty entry cannot be read.
    let names = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    names.map(|name| name.trim().to_owned()).collect()
}
