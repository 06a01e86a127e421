//! NICs that go to a container's network namespace and come back: cards whose network interface is another
//! function than the RDMA device, where devices are in all namespaces, and where they belong to one.

use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::json;
use tempfile::TempDir;

use super::Case;
use super::Two;
use super::address;
use super::interface;
use crate::bundle::Container;
use crate::cases::Verdict;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;
use crate::world::World;

/// Namespaces of containers.
const PODS: [&str; 2] = ["pod-left", "pod-right"];
/// The kernel's word for the process that a move is to end itself by, at a step of its journal.
const SIGNAL_AT: &str = "VERBGATE_TEST_SIGNAL_AT";
/// More steps than a move has.
const STEPS: usize = 20;
/// The first index of a RoCE v2 GID of an IPv4 address, as the namespace's own sysfs tells.
const INDEX: &str = r#"
for n in $(ls /sys/class/infiniband/$D/ports/1/gids | sort -n); do
    case $(cat /sys/class/infiniband/$D/ports/1/gids/$n) in
        0000:0000:0000:0000:0000:ffff:*) echo $n; exit ;;
    esac
done
echo "$D has no GID" >&2; ip addr >&2; exit 1"#;
/// A container's program: both ends of a ping-pong, on the device that came with the NIC.
const PINGPONG: &str = r#"
set -e
ls /sys/class/infiniband
index=$(sh -c "$INDEX")
ibv_rc_pingpong -d $D -g $index -n 50 >/tmp/server & server=$!
for n in $(seq 1000); do
    ibv_rc_pingpong -d $D -g $index -n 50 127.0.0.1 >/tmp/client 2>&1 && break
    sleep 0.2
done
wait $server
grep -c iters /tmp/server /tmp/client"#;

pub(super) fn connected() -> Vec<Case> {
    vec![
        Case::new("nic_rc_move_of_the_interface_beside", |world| moved(world, Mode::Shared)),
        Case::new("nic_rc_move_with_the_device", |world| moved(world, Mode::Exclusive)),
        Case::new("nic_rc_move_with_the_device_broken_off", broken_off),
        Case::new("nic_rc_container_takes_the_device", container),
    ]
}

/// Whether RDMA devices belong to network namespaces (rdma-system(8)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    Shared,
    Exclusive,
}

/// The mode, the namespaces, and the journals of moves; all is as before when this is gone.
struct Setting<'a> {
    world: &'a World,
    state: TempDir,
}

impl<'a> Setting<'a> {
    fn new(world: &'a World, mode: Mode) -> Result<Self> {
        let setting = Self { world, state: tempfile::tempdir()? };
        if mode == Mode::Exclusive {
            // Namespaces of earlier cases go when the kernel has time, and the mode cannot change before.
            exec::wait_until("the exclusive mode", || {
                let mut command = Command::new("rdma");
                command.args(["system", "set", "netns", "exclusive"]);
                Ok(exec::run(command)?.status == 0)
            })?;
        }
        for pod in PODS {
            sh(&format!("ip netns add {pod} && ip -n {pod} link set lo up"))?.expect_status(0)?;
        }
        Ok(setting)
    }

    fn netdev(&self, words: &[&str], pod: &str) -> Command {
        let mut command = self.world.program("verbgate");
        command.arg("netdev").args(words).arg("--state-dir").arg(self.state.path().join(pod));
        command
    }

    fn send(&self, interface: &str, pod: &str) -> Command {
        self.netdev(&["move", "--to", pod, "--iface", interface], pod)
    }

    fn restore(&self, pod: &str) -> Result<Ended> {
        exec::run(self.netdev(&["restore"], pod))?.expect_status(0)
    }
}

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        for pod in PODS {
            // Of a case that passed, nothing is there to restore.
            let _ = self.restore(pod);
            let _ = sh(&format!("ip netns del {pod}"));
        }
        let _ = exec::wait_until("the shared mode", || {
            Ok(sh("rdma system set netns shared")?.status == 0)
        });
    }
}

fn sh(script: &str) -> Result<Ended> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    exec::run(command)
}

/// What a namespace has: without numbers of links, which change with each move.
fn dump() -> Result<String> {
    let script = "ip -o addr | sed -E 's/^[0-9]+: //; s/valid_lft.*//'; rdma dev | sed 's/^[0-9]*: //'; \
                  ip -o link | sed -E 's/^[0-9]+: //'; ip route show table all | sort; ip rule";
    Ok(sh(script)?.expect_status(0)?.stdout)
}

fn is_back(before: &str) -> Result<()> {
    let mut after = String::new();
    exec::wait_until("all to be as before", || {
        after = dump()?;
        Ok(after == before)
    })
    .with_context(|| format!("before: {before}\nafter: {after}"))
}

/// RDMA devices that a namespace has.
fn devices_in(pod: &str) -> Result<String> {
    Ok(sh(&format!("ip netns exec {pod} rdma dev"))?.expect_status(0)?.stdout)
}

/// The reason to skip, if the driver makes no GIDs.
fn streams_only(world: &World) -> Option<Verdict> {
    let reason =
        "the driver of this kernel speaks iWARP alone, and its devices have no GIDs to move";
    world.gid_index.is_none().then(|| Verdict::Skipped(reason.to_owned()))
}

/// Both NICs are moved, each to a namespace of its own; sandboxes there write to each other, and all comes back.
fn moved(world: &World, mode: Mode) -> Result<Verdict> {
    if let Some(skipped) = streams_only(world) {
        return Ok(skipped);
    }
    let two = Two::look(world)?;
    let before = dump()?;
    let setting = Setting::new(world, mode)?;
    let ends = [&two.left, &two.right];
    let (netdevs, at) = ([interface(&two.left)?, interface(&two.right)?], address(&two.left)?);
    for ((end, netdev), pod) in ends.into_iter().zip(netdevs).zip(PODS) {
        let said = exec::run(setting.send(&netdev, pod))?.expect_status(0)?;
        if said.stderr.contains("is gone") {
            bail!("a device that is there is called gone: {said}");
        }
        let there = devices_in(pod)?;
        let own = there.contains(&end.device);
        let other = ends.iter().any(|it| it.device != end.device && there.contains(&it.device));
        if !own || other != (mode == Mode::Shared) {
            bail!("{mode:?}: {pod} has {there:?}");
        }
    }
    write_bw(&two, mode, &at)?;
    for pod in PODS {
        setting.restore(pod)?;
    }
    is_back(&before)?;
    Ok(Verdict::Ok)
}

fn write_bw(two: &Two, mode: Mode, at: &str) -> Result<()> {
    let port = world::free_port()?.to_string();
    let start = |end: &World, pod: &str, rest: &[&str]| -> Result<Program> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", pod, "sh", "-c", INDEX]).env("D", &end.device);
        let index = exec::run(command)?.expect_status(0)?.stdout;
        let traffic = ["ib_write_bw", "-d", &end.device, "-x", index.trim(), "-F", "-p", &port];
        let argv = [&traffic[..], &["-n", "200", "-s", "65536"], rest].concat();
        let sandbox = match mode {
            Mode::Shared => end.sandbox(&["--netns", &format!("/run/netns/{pod}")], &argv),
            // From where the device is.
            Mode::Exclusive => {
                let inner = end.sandbox(&[], &argv);
                let mut command = Command::new("ip");
                command.args(["netns", "exec", pod]);
                command.arg(inner.get_program()).args(inner.get_args());
                command
            }
        };
        Program::start(sandbox)
    };
    let [left, right] = PODS;
    let mut server = start(&two.left, left, &[])?;
    exec::wait_until("a server that listens", || {
        let listening = format!(":{:04X} ", port.parse::<u16>()?);
        let sockets = sh(&format!("ip netns exec {left} cat /proc/net/tcp /proc/net/tcp6"))?;
        Ok(sockets.stdout.contains(&listening) || server.has_ended()?)
    })?;
    let client = start(&two.right, right, &[at])?;
    let ended = client.wait()?;
    let server = server.wait()?;
    if ended.status != 0
        || !ended.stdout.lines().any(|line| line.trim_start().starts_with("65536 "))
    {
        bail!("nothing was written: {ended}\nand its server {server}");
    }
    server.expect_status(0)?;
    Ok(())
}

/// Whatever step a move ends at, and if the container's namespace ends with the NIC in it: the NIC comes home
/// with its device.
fn broken_off(world: &World) -> Result<Verdict> {
    if let Some(skipped) = streams_only(world) {
        return Ok(skipped);
    }
    let netdev = interface(world)?;
    let before = dump()?;
    let setting = Setting::new(world, Mode::Exclusive)?;
    let [pod, _] = PODS;
    let mut killed = 0;
    for step in 1..STEPS {
        let mut command = setting.send(&netdev, pod);
        command.env(SIGNAL_AT, format!("KILL:{step}"));
        let ended = exec::run(command)?;
        if ended.status == 0 {
            break;
        }
        if ended.status != 128 + 9 {
            bail!("step {step}: {ended}");
        }
        killed = step;
        setting.restore(pod)?;
        is_back(&before).with_context(|| format!("after a move that ended at step {step}"))?;
    }
    if killed < 4 || !devices_in(pod)?.contains(&world.device) {
        bail!("ended at {killed} steps, and {pod} has {:?}", devices_in(pod)?);
    }
    // The kernel gives the NIC back first, and the device some time later.
    sh(&format!("ip netns del {pod}"))?.expect_status(0)?;
    setting.restore(pod)?;
    is_back(&before).context("after the end of the namespace")?;
    println!("    ended at {killed} steps");
    Ok(Verdict::Ok)
}

/// A container gets the NIC with the device, uses the device, and ends by itself and by a signal.
fn container(world: &World) -> Result<Verdict> {
    const RUNTIME: &str = "crun";
    let mut version = Command::new(RUNTIME);
    version.arg("--version");
    if exec::run(version).is_err() {
        return Ok(Verdict::Skipped(format!("needs {RUNTIME}")));
    }
    if let Some(skipped) = streams_only(world) {
        return Ok(skipped);
    }
    let before = dump()?;
    let setting = Setting::new(world, Mode::Exclusive)?;
    let make = |id: &str, script: &str| -> Result<Container> {
        let container = Container::new(world, RUNTIME, id, &["sh", "-c", script])?;
        container.add("/linux/namespaces", "-", json!({"type": "network"}))?;
        // As engines mount it beside a network namespace: the machine's own shows no device that has left.
        for (key, value) in [("type", json!("sysfs")), ("source", json!("sysfs"))] {
            container.add("/mounts/3", key, value)?;
        }
        container.add("/mounts/3", "options", json!(["nosuid", "noexec", "nodev", "ro"]))?;
        container.add("/annotations", "org.verbgate.netdevs", json!(interface(world)?))?;
        for variable in [format!("D={}", world.device), format!("INDEX={INDEX}")] {
            container.add("/process/env", "-", json!(variable))?;
        }
        Ok(container)
    };
    let ended = exec::run(make("moves", PINGPONG)?.run())?;
    if ended.status != 0 || !ended.stdout.contains("/tmp/client:1") {
        bail!("nothing was sent in the container: {ended}");
    }
    is_back(&before).context("after the container's end")?;
    let container = make("killed", "echo runs; sleep infinity")?;
    let mut program = Program::start(container.run())?;
    exec::wait_until("the container", || {
        Ok(program.stdout_so_far()?.contains("runs") || program.has_ended()?)
    })?;
    let mut kill = container.wrapped("kill");
    kill.args([&container.id, "KILL"]);
    exec::run(kill)?.expect_status(0)?;
    program.wait()?.expect_status(128 + 9)?;
    is_back(&before).context("after the container was killed")?;
    drop(setting);
    Ok(Verdict::Ok)
}
