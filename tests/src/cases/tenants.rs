//! Neighbours on one NIC, of whom one is hostile: what each attack does natively, and what becomes of
//! the attack where Verbgate stands.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::json;
use tempfile::TempDir;

use super::Case;
use super::Verdict;
use super::nodes::Namespace;
use super::nodes::SECOND;
use super::nodes::SPARE_NETDEV;
use super::nodes::SecondDevice;
use super::nodes::ip;
use crate::bundle::Container;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world::Place;
use crate::world::World;

const SCRIPT: &str = include_str!("../../scripts/tenants.py");

/// The attacker's address, in the device's network.
const ATTACKER: &str = "10.99.0.2";
/// Where nobody is.
const NOBODY: &str = "10.99.0.9";
const NAMESPACE: &str = "verbgate-attacker";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("tenant_speaks_roce_by_a_plain_socket", plain_socket),
        Case::new("tenant_behind_a_fence_speaks_roce_by_verbs", through_the_fence),
        Case::new("tenant_has_the_kernel_speak_rdma", families),
        Case::new("tenant_takes_the_connection_of_another", connection),
        Case::new("tenant_grants_itself_a_device_by_annotation", annotation),
    ]
}

/// The script, in a file while this lives.
pub(super) struct Script {
    dir: TempDir,
    path: PathBuf,
}

impl Script {
    pub(super) fn new() -> Result<Self> {
        Self::of("tenants.py", SCRIPT)
    }

    pub(super) fn of(name: &str, text: &str) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
        let path = dir.path().join(name);
        fs::write(&path, text)?;
        Ok(Self { dir, path })
    }

    /// A folder beside the script.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.path().join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }

    pub(super) fn argv(&self, arguments: &[&str]) -> Vec<String> {
        let words = ["python3".into(), self.path.to_string_lossy().into_owned()];
        words.into_iter().chain(arguments.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Starts the script, to be spoken to.
    pub(super) fn start(
        &self,
        world: &World,
        place: Place,
        name: &str,
        words: &[&str],
    ) -> Result<Partner> {
        self.start_with(world, place, name, &[], words)
    }

    /// The same; in a sandbox with these options.
    pub(super) fn start_with(
        &self,
        world: &World,
        place: Place,
        name: &str,
        options: &[&str],
        words: &[&str],
    ) -> Result<Partner> {
        let argv = self.argv(words);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let inner = match place {
            Place::Native => world.command(place, &argv)?,
            Place::Sandbox => world.sandbox(options, &argv),
        };
        Partner::start(&self.dir.path().join(name), &inner)
    }
}

/// A program that answers lines.
pub(super) struct Partner {
    pub(super) program: Program,
    input: File,
    heard: usize,
}

impl Partner {
    /// Starts a command that hears by a FIFO, which is made.
    pub(super) fn start(fifo: &Path, inner: &Command) -> Result<Self> {
        let made = Command::new("mkfifo").arg(fifo).status()?;
        if !made.success() {
            bail!("mkfifo {}: {made}", fifo.display());
        }
        // For both, so that neither end waits for the other.
        let input = File::options().read(true).write(true).open(fifo)?;
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" <\"$0\""]).arg(fifo);
        command.arg(inner.get_program()).args(inner.get_args());
        Ok(Self { program: Program::start(command)?, input, heard: 0 })
    }

    pub(super) fn hear(&mut self) -> Result<String> {
        let mut line = None;
        exec::wait_until("an answer", || {
            let text = self.program.stdout_so_far()?;
            let whole = text.matches('\n').count();
            line = text.lines().take(whole).nth(self.heard).map(str::to_owned);
            Ok(line.is_some() || self.program.has_ended()?)
        })?;
        self.heard += 1;
        match line {
            Some(line) => Ok(line),
            None => bail!("{}", self.program.describe()?),
        }
    }

    pub(super) fn tell(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.input, "{line}")?)
    }

    pub(super) fn ask(&mut self, line: &str) -> Result<String> {
        self.tell(line)?;
        self.hear()
    }

    pub(super) fn expect(&mut self, line: &str, wanted: &str) -> Result<()> {
        let heard = self.ask(line)?;
        if heard != wanted {
            bail!("{line}: {heard:?} instead of {wanted:?}: {}", self.program.describe()?);
        }
        Ok(())
    }
}

pub(super) fn run(world: &World, place: Place, argv: &[String]) -> Result<Ended> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    exec::run(world.command(place, &argv)?)
}

/// A namespace with the spare network device, which leaves the device in the host's.
struct Attacker<'a> {
    world: &'a World,
    namespace: Namespace,
}

impl<'a> Attacker<'a> {
    fn new(world: &'a World) -> Result<Self> {
        Ok(Self { world, namespace: Namespace::new(NAMESPACE)? })
    }

    /// By ip(8): nobody has put a fence there.
    fn enter(&self) -> Result<()> {
        ip(&["link", "set", SPARE_NETDEV, "netns", NAMESPACE])?;
        ip(&["-n", NAMESPACE, "address", "add", &format!("{ATTACKER}/24"), "dev", SPARE_NETDEV])?;
        ip(&["-n", NAMESPACE, "link", "set", SPARE_NETDEV, "up"])?;
        Ok(())
    }

    fn leave(&self) -> Result<()> {
        ip(&["-n", NAMESPACE, "link", "set", SPARE_NETDEV, "netns", "1"])?;
        ip(&["link", "set", SPARE_NETDEV, "up"])?;
        Ok(())
    }

    fn udp(&self, script: &Script, target: &str, number: &str, text: &str) -> Result<String> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", NAMESPACE]);
        command.args(script.argv(&["udp", ATTACKER, target, number, text]));
        Ok(exec::run(command)?.expect_status(0)?.stdout.trim().to_owned())
    }

    fn netdev(&self, words: &[&str]) -> Result<Ended> {
        let mut command = self.world.program("verbgate");
        command.arg("netdev").args(words).args(["--state-dir", "/tmp/verbgate-attacker"]);
        exec::run(command)?.expect_status(0)
    }
}

impl Drop for Attacker<'_> {
    fn drop(&mut self) {
        // When the case has failed, some of this is done already.
        let mut command = self.world.program("verbgate");
        command.args(["netdev", "restore", "--state-dir", "/tmp/verbgate-attacker"]);
        let _ = exec::run(command);
        let _ = fs::remove_dir_all("/tmp/verbgate-attacker");
        let _ = ip(&["-n", NAMESPACE, "link", "set", SPARE_NETDEV, "netns", "1"]);
        let _ = ip(&["address", "flush", "dev", SPARE_NETDEV]);
        let _ = ip(&["link", "set", SPARE_NETDEV, "up"]);
        let _ = &self.namespace;
    }
}

/// A program without any RDMA device writes what an RDMA device executes.
fn plain_socket(world: &World) -> Result<Verdict> {
    if !fs::exists(format!("/sys/class/net/{SPARE_NETDEV}"))? {
        return Ok(Verdict::Skipped(format!("needs a second network device ({SPARE_NETDEV})")));
    }
    let script = Script::new()?;
    let index = world.gid_index.context("the device has no GID of an IPv4 address")?.to_string();
    let words = ["victim", &world.device, &index];
    let mut victim = script.start(world, Place::Native, "victim", &words)?;
    let said = victim.hear()?;
    let number = said.strip_prefix("qpn ").context("no number")?.to_owned();
    let target = world.address()?;
    let attacker = Attacker::new(world)?;
    attacker.enter()?;
    let sent = attacker.udp(&script, &target, &number, "natively")?;
    if sent != "0" {
        bail!("the attack is void: natively sendto(2) fails with {sent}");
    }
    let got = victim.ask("look")?;
    if got != "got natively" {
        bail!("the attack is void: natively the victim has {got:?}");
    }
    attacker.leave()?;
    ip(&["address", "add", &format!("{ATTACKER}/24"), "dev", SPARE_NETDEV])?;
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    attacker.netdev(&["move", "--iface", SPARE_NETDEV, "--to", NAMESPACE])?;
    let sent = attacker.udp(&script, &target, &number, "inside")?;
    if sent != "EPERM" {
        bail!("behind the fence sendto(2) says {sent}");
    }
    attacker.netdev(&["restore"])?;
    drop(second);
    // Messages come in order: had the one from inside come, it would be the next.
    attacker.enter()?;
    attacker.udp(&script, &target, &number, "afterwards")?;
    victim.expect("look", "got afterwards")?;
    attacker.leave()?;
    Ok(Verdict::Ok)
}

/// The fence is about programs: what Soft-RoCE sends passes, and a plain socket's packet to the
/// same place does not.
fn through_the_fence(world: &World) -> Result<Verdict> {
    if !fs::exists(format!("/sys/class/net/{SPARE_NETDEV}"))? {
        return Ok(Verdict::Skipped(format!("needs a second network device ({SPARE_NETDEV})")));
    }
    let script = Script::new()?;
    let index = world.gid_index.context("the device has no GID of an IPv4 address")?.to_string();
    let port = format!("/sys/class/infiniband/{}/ports/1/gid_attrs/ndevs/{index}", world.device);
    let netdev = fs::read_to_string(port)?.trim().to_owned();
    let gid = format!("::ffff:{NOBODY}");
    ip(&["neigh", "replace", NOBODY, "lladdr", "02:00:00:00:00:09", "dev", &netdev])?;
    let done = (|| -> Result<()> {
        let own = world.address()?;
        let by_socket =
            || run(world, Place::Native, &script.argv(&["udp", &own, NOBODY, "2", "x"]));
        let by_verbs = || {
            let words = ["ud", &world.device, &index, &gid, SPARE_NETDEV];
            run(world, Place::Native, &script.argv(&words))
        };
        let both = || -> Result<(String, String)> {
            let (socket, verbs) = (by_socket()?.expect_status(0)?, by_verbs()?.expect_status(0)?);
            Ok((socket.stdout.trim().to_owned(), verbs.stdout.trim().to_owned()))
        };
        let before = both()?;
        if before != ("0".to_owned(), "passed".to_owned()) {
            bail!("the attempt is void: without a fence {before:?}");
        }
        // The device's packets leave by the namespace that the device is in.
        fence(world, "put")?;
        let behind = both();
        fence(world, "lift")?;
        let behind = behind?;
        if behind != ("EPERM".to_owned(), "passed".to_owned()) {
            bail!("behind the fence, by a socket and by verbs: {behind:?}");
        }
        let after = by_socket()?.expect_status(0)?;
        if after.stdout.trim() != "0" {
            bail!("the fence is still there: {after}");
        }
        Ok(())
    })();
    ip(&["neigh", "del", NOBODY, "dev", &netdev])?;
    done.map(|()| Verdict::Ok)
}

fn fence(world: &World, what: &str) -> Result<()> {
    exec::run(world.probe(Place::Native, &["fence", what])?)?.expect_status(0).map(drop)
}

/// Sockets that the kernel itself carries by RDMA, or by UDP to whatever port.
fn families(world: &World) -> Result<Verdict> {
    let script = Script::new()?;
    let argv = script.argv(&["families"]);
    let lines = |place| -> Result<Vec<(String, String)>> {
        let ended = run(world, place, &argv)?.expect_status(0)?;
        let pairs = ended.stdout.lines().filter_map(|line| line.rsplit_once(' '));
        Ok(pairs.map(|(name, result)| (name.to_owned(), result.to_owned())).collect())
    };
    let (native, inside) = (lines(Place::Native)?, lines(Place::Sandbox)?);
    println!("  natively {native:?}");
    let works = |name: &str| native.iter().any(|(one, result)| one == name && result == "0");
    if !native.iter().any(|(_, result)| result == "0") || (has_module("smc") && !works("smc")) {
        bail!("the attempts are void: natively {native:?}");
    }
    let refused = |result: &str| ["EAFNOSUPPORT", "EPROTONOSUPPORT"].contains(&result);
    if inside.len() != native.len() || !inside.iter().all(|(_, result)| refused(result)) {
        bail!("inside: {inside:?}");
    }
    Ok(Verdict::Ok)
}

fn has_module(name: &str) -> bool {
    let dry = Command::new("modprobe").args(["--dry-run", "--quiet", name]).status();
    dry.is_ok_and(|status| status.success())
}

/// NeVerMore: a second client that names the server's queue pair writes into the server's memory in
/// the first one's name, whose own write is acknowledged and lost.
fn connection(world: &World) -> Result<Verdict> {
    let script = Script::new()?;
    let index = world.gid_index.context("the device has no GID of an IPv4 address")?.to_string();
    let gid = format!("::ffff:{}", world.address()?);
    let audit = script.dir.path().join("audit");
    for (place, name) in [(Place::Native, "native"), (Place::Sandbox, "inside")] {
        let words = ["server", &world.device, &index];
        let mut server = script.start(world, Place::Native, &format!("server-{name}"), &words)?;
        let said = server.hear()?;
        let server_words: Vec<&str> = said.split(' ').collect();
        let [number, rkey, address] = *server_words else { bail!("the server says {said:?}") };
        let client = |who: &str| -> Result<(Partner, String)> {
            let words = ["client", &world.device, &index, &gid, number, rkey, address, who];
            let fifo = format!("{who}-{name}");
            let options = ["--audit", audit.to_str().context("an odd path")?];
            let mut client = script.start_with(world, place, &fifo, &options, &words)?;
            let own = client.hear()?;
            Ok((client, own))
        };
        let (mut owner, own) = client("owner")?;
        let (mut thief, _) = client("thief")?;
        server.expect(&format!("connect {own}"), "connected")?;
        owner.expect("connect", "0")?;
        if place == Place::Native {
            thief.expect("connect", "0")?;
            // The server acknowledges to the owner's queue pair: the thief never hears how the write ends.
            thief.expect("post", "0")?;
            exec::wait_until("the thief's write", || Ok(server.ask("show")? == "holds thief"))?;
            owner.expect("write", "status 0")?;
            server.expect("show", "holds thief").context("natively the owner's write is lost")?;
            continue;
        }
        thief.expect("connect", "EADDRINUSE")?;
        owner.expect("write", "status 0")?;
        server.expect("show", "holds owner")?;
        // With its supervisor the owner's claim goes, however that ends.
        owner.program.kill_alone()?;
        exec::wait_until("the claim to be given back", || {
            let (mut next, _) =
                client(&format!("next-{}", fs::read_dir(script.dir.path())?.count()))?;
            Ok(next.ask("connect")? == "0")
        })?;
        let text = fs::read_to_string(&audit)?;
        let has =
            |words: &[&str]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
        if !has(&["\"event\":\"connect\"", "\"errno\":\"0\"", &world.node])
            || !has(&[
                "\"event\":\"refused\"",
                "EADDRINUSE",
                "connection of another sandbox",
                "remedy",
            ])
        {
            bail!("the audit: {text}");
        }
    }
    Ok(Verdict::Ok)
}

/// An annotation alone is worth a device where the operator says so, and nowhere else; where the
/// engine gives a device, the annotation selects.
fn annotation(world: &World) -> Result<Verdict> {
    let runtime = "crun";
    let script = "ls /dev/infiniband";
    let verbgate = world.beside("verbgate").into_os_string();
    let make = |id: &str, options: &[&str]| -> Result<Container> {
        let words = [&["oci"], options, &["--runtime", runtime]].concat();
        let mut wrapper = vec![verbgate.clone()];
        wrapper.extend(words.into_iter().map(OsString::from));
        Container::under(wrapper, &world.device, &format!("lab-{id}"), &["sh", "-c", script])
    };
    let granting = make("granting", &["--annotations", "grant"])?;
    let shown = exec::run(granting.run())?.expect_status(0)?;
    if !shown.stdout.contains(&world.node) {
        bail!("where annotations grant, the container sees {shown}");
    }
    let bare = make("bare", &[])?;
    let refused = exec::run(bare.run())?;
    if refused.status == 0 || !refused.stderr.contains("an annotation selects among those") {
        bail!("an annotation alone: {refused}");
    }
    let numbers = fs::read_to_string(format!("/sys/class/infiniband_verbs/{}/dev", world.node))?;
    let (major, minor) = numbers.trim().split_once(':').context("an odd number")?;
    let (major, minor): (u32, u32) = (major.parse()?, minor.parse()?);
    let given = make("given", &[])?;
    let node = json!({"path": world.node_path(), "type": "c", "major": major, "minor": minor});
    given.add("/linux", "devices", json!([node]))?;
    let shown = exec::run(given.run())?.expect_status(0)?;
    if shown.stdout.trim() != world.node {
        bail!("with one node given, the container sees {shown}");
    }
    // Another device is given than the one that is asked for.
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let other = make("other", &[])?;
    other.add("/linux", "devices", json!([node]))?;
    other.add("/annotations", "org.verbgate.devices", SECOND.into())?;
    let refused = exec::run(other.run())?;
    if refused.status == 0 || !refused.stderr.contains(SECOND) {
        bail!("an annotation for {SECOND}: {refused}");
    }
    drop(second);
    Ok(Verdict::Ok)
}
