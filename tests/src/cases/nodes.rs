//! Device nodes: a node that was not granted does not exist, and a granted node can be opened in
//! one way.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::requests::Script;
use super::verbs::compare;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::probe::OPENED;
use crate::shape;
use crate::world;
use crate::world::Place;
use crate::world::World;

/// What the lab has besides the device's own.
pub(super) const SPARE_NETDEV: &str = "v1";
pub(super) const SECOND: &str = "rxe1";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("device_that_was_not_granted", not_granted),
        Case::new("raw_node_of_a_granted_device", |world| {
            no_escape(world, &world.node, Some(&world.node))
        }),
        Case::new("raw_node_of_a_device_that_was_not_granted", |world| {
            let second = match SecondDevice::new()? {
                Ok(second) => second,
                Err(why) => return Ok(Verdict::Skipped(why)),
            };
            no_escape(world, &second.node, Some(&world.node))
        }),
        Case::new("raw_node_of_rdma_cm", |world| no_escape(world, "rdma_cm", Some("rdma_cm"))),
        Case::new("raw_descriptor_that_was_inherited", |world| of_each_device(world, inherited)),
        Case::new("raw_descriptor_that_was_passed", |world| of_each_device(world, passed)),
        Case::new("devices_by_netlink", by_netlink),
        Case::new("network_namespace", network_namespace),
    ]
}

/// A second Soft-RoCE device, removed with this.
#[derive(Debug)]
pub(super) struct SecondDevice {
    pub(super) node: String,
}

impl SecondDevice {
    /// The outer error is a failure, the inner one a reason to skip.
    pub(super) fn new() -> Result<Result<Self, String>> {
        if !Path::new("/sys/class/net").join(SPARE_NETDEV).exists() {
            return Ok(Err(format!(
                "needs a second network device ({SPARE_NETDEV}), as the lab has"
            )));
        }
        let mut command = Command::new("rdma");
        command.args(["link", "add", SECOND, "type", "rxe", "netdev", SPARE_NETDEV]);
        exec::run(command)?.expect_status(0)?;
        // From here on it is removed whatever happens.
        let mut second = Self { node: String::new() };
        second.node = world::node_of(SECOND)?;
        let node = format!("/dev/infiniband/{}", second.node);
        exec::wait_until(&node, || Ok(Path::new(&node).exists()))?;
        Ok(Ok(second))
    }
}

impl Drop for SecondDevice {
    fn drop(&mut self) {
        let mut command = Command::new("rdma");
        command.args(["link", "delete", SECOND]);
        if let Ok(program) = Program::start(command) {
            let _ = program.wait();
        }
    }
}

/// What `rdma` says of the granted device is what it says natively; of others it says nothing, and
/// it can change none.
fn by_netlink(world: &World) -> Result<Verdict> {
    for argv in [&["rdma", "-d", "dev", "show"][..], &["rdma", "-j", "link", "show"]] {
        let native = exec::run(world.command(Place::Native, argv)?)?;
        let inside = exec::run(world.command(Place::Sandbox, argv)?)?;
        compare(&native, &inside, shape::exact_difference)?;
        if !native.stdout.contains(&world.device) {
            bail!("{} is not even there natively: {native}", world.device);
        }
    }
    for words in ["link delete", "resource show qp link"] {
        let argv: Vec<&str> =
            ["rdma"].into_iter().chain(words.split(' ')).chain([&*world.device]).collect();
        let inside = exec::run(world.command(Place::Sandbox, &argv)?)?;
        if inside.status == 0 {
            bail!("not refused: {inside}");
        }
    }
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let list = exec::run(world.command(Place::Sandbox, &["rdma", "link"])?)?;
    if list.stdout.contains(SECOND) || !list.stdout.contains(&world.device) {
        bail!("granted {} only, but {list}", world.device);
    }
    drop(second);
    Ok(Verdict::Ok)
}

fn not_granted(world: &World) -> Result<Verdict> {
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let list = |place| exec::run(world.command(place, &["ibv_devices"])?)?.expect_status(0);
    let (native, inside) = (list(Place::Native)?, list(Place::Sandbox)?);
    if !native.stdout.contains(SECOND) {
        bail!("{SECOND} is not even there natively: {native}");
    }
    if inside.stdout.contains(SECOND) || !inside.stdout.contains(&world.device) {
        bail!("granted {} only, but {inside}", world.device);
    }
    let path = format!("/dev/infiniband/{}", second.node);
    let opened = exec::run(world.probe(Place::Sandbox, &["open", &path])?)?;
    if opened.stdout.trim() != "ENOENT" {
        bail!("open {path} should be ENOENT: {opened}");
    }
    let info = exec::run(world.command(Place::Sandbox, &["ibv_devinfo", "-d", SECOND])?)?;
    if info.status == 0 {
        bail!("it can be asked for: {info}");
    }
    Ok(Verdict::Ok)
}

/// No way but the served one leads to the node; natively, as a check of the probe, many do.
fn no_escape(world: &World, node: &str, granted: Option<&str>) -> Result<Verdict> {
    let path = Path::new("/dev/infiniband").join(node);
    let meta = fs::metadata(&path).with_context(|| format!("cannot look at {}", path.display()))?;
    let rdev = meta.rdev().to_string();
    let link = CharLink::new(meta.rdev(), &path)?;
    let mut arguments = vec!["escape", &rdev, node];
    arguments.extend(granted);
    let run = |place| exec::run(world.probe(place, &arguments)?)?.expect_status(0);
    let (native, inside) = (run(Place::Native)?, run(Place::Sandbox)?);
    drop(link);
    let opened = |output: &str| -> Vec<String> {
        let lines = output.lines().filter(|line| line.ends_with(OPENED));
        lines.map(ToOwned::to_owned).collect()
    };
    if opened(&native.stdout).len() < 10 {
        bail!("the attempts are void: natively few succeed: {native}");
    }
    let escapes = opened(&inside.stdout);
    if !escapes.is_empty() {
        bail!("{} ways lead to the raw node:\n{}", escapes.len(), escapes.join("\n"));
    }
    if inside.stdout.lines().count() < 20 {
        bail!("the attempts were not made: {inside}");
    }
    Ok(Verdict::Ok)
}

/// `/dev/char/M:m`, as udev makes it; removed if it was made here.
#[derive(Debug)]
struct CharLink(Option<std::path::PathBuf>);

impl CharLink {
    fn new(rdev: u64, node: &Path) -> Result<Self> {
        let name = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let link = Path::new("/dev/char").join(name);
        if link.exists() {
            return Ok(Self(None));
        }
        fs::create_dir_all("/dev/char")?;
        std::os::unix::fs::symlink(node, &link)?;
        Ok(Self(Some(link)))
    }
}

impl Drop for CharLink {
    fn drop(&mut self) {
        if let Some(link) = &self.0 {
            let _ = fs::remove_file(link);
        }
    }
}

/// With the node of the granted device, and with that of another if there can be one.
fn of_each_device(world: &World, test: fn(&World, &str) -> Result<()>) -> Result<Verdict> {
    test(world, &world.node_path()).context("the granted device")?;
    if let Ok(second) = SecondDevice::new()? {
        let node = format!("/dev/infiniband/{}", second.node);
        test(world, &node).context("the device that was not granted")?;
    }
    Ok(Verdict::Ok)
}

/// A descriptor of a node that was open when the sandbox was made is closed or of no use.
fn inherited(world: &World, node: &str) -> Result<()> {
    let script = Script::new()?;
    let guest = script.argv(&["inherited", "7"]).join(" ");
    let verbgate = world.sandbox(&[], &[]);
    let launch: Vec<_> = std::iter::once(verbgate.get_program())
        .chain(verbgate.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let native = format!("exec 7<>{node}; exec {guest}");
    let inside = format!("exec 7<>{node}; exec {} {guest}", launch.join(" "));
    let run = |script: &str| exec::run(world.command(Place::Native, &["sh", "-c", script])?);
    let native = run(&native)?.expect_status(0)?;
    useful(&native.stdout, true).with_context(|| format!("the attempt is void: {native}"))?;
    useful(&run(&inside)?.expect_status(0)?.stdout, false)
}

/// A descriptor of a node that somebody outside sends to the guest is of no use.
fn passed(world: &World, node: &str) -> Result<()> {
    for (place, is_useful) in [(Place::Native, true), (Place::Sandbox, false)] {
        let script = Script::new()?;
        let socket = script.beside("socket");
        let sender = script.argv(&["send", &socket, node]);
        let sender: Vec<&str> = sender.iter().map(String::as_str).collect();
        let sender = Program::start(world.command(Place::Native, &sender)?)?;
        exec::wait_until("the sender", || Ok(Path::new(&socket).exists()))?;
        let got = script.run(world, place, &["received", &socket])?.expect_status(0)?;
        useful(&got.stdout, is_useful)?;
        sender.wait()?;
    }
    Ok(())
}

/// A named network namespace, removed with this.
#[derive(Debug)]
pub(super) struct Namespace(String);

impl Namespace {
    pub(super) fn new(name: &str) -> Result<Self> {
        ip(&["netns", "add", name])?;
        Ok(Self(name.to_owned()))
    }

    pub(super) fn name(&self) -> &str {
        &self.0
    }

    pub(super) fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.0]);
    }
}

pub(super) fn ip(arguments: &[&str]) -> Result<Ended> {
    let mut command = Command::new("ip");
    command.args(arguments);
    exec::run(command)?.expect_status(0)
}

/// `--netns` enters the namespace, and the device goes with the program.
fn network_namespace(world: &World) -> Result<Verdict> {
    let namespace = Namespace::new("verbgate-tests")?;
    let path = namespace.path();
    let inode = fs::metadata(&path)?.ino();
    let script = format!("readlink /proc/self/ns/net && ibv_devinfo -d {}", world.device);
    let guest = ["sh", "-c", &script];
    let inside = exec::run(world.sandbox(&["--netns", &path], &guest))?;
    let inside = inside.expect_status(0)?;
    if !inside.stdout.starts_with(&format!("net:[{inode}]\n")) {
        bail!("not in the namespace {inode}: {inside}");
    }
    if !inside.stdout.contains("PORT_ACTIVE") {
        bail!("the device is of no use there: {inside}");
    }
    Ok(Verdict::Ok)
}

/// Whether any request of these lines was executed.
fn useful(lines: &str, expected: bool) -> Result<()> {
    let any = lines.lines().any(|line| line.ends_with(" 0"));
    if lines.trim().is_empty() || any != expected {
        bail!("requests on the descriptor are {}executed: {lines}", if any { "" } else { "not " });
    }
    Ok(())
}
