//! GIDs: two sandboxes in two network namespaces share a port, and each sees, and speaks by, its
//! own addresses only. Natively each could speak by the other's.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use tempfile::TempDir;

use super::Case;
use super::Verdict;
use super::nodes::Namespace;
use super::nodes::ip;
use crate::exec;
use crate::exec::Ended;
use crate::world::Place;
use crate::world::World;

const SCRIPT: &str = include_str!("../../scripts/gids.py");

/// The same name in both namespaces, and, as each has no other but `lo`, the same number.
const LINK: &str = "eth7";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("gids_of_two_sandboxes", two_sandboxes),
        Case::new("gid_of_a_new_address", new_address),
        Case::new("gids_of_a_look_alike", look_alike),
        Case::new("counters_of_a_port_that_is_shared", counters),
    ]
}

/// A tenant of the port: a namespace with a macvlan upon the port's network device.
#[derive(Debug)]
struct Tenant {
    namespace: Namespace,
    address: &'static str,
}

impl Tenant {
    fn new(name: &'static str, address: &'static str, netdev: &str) -> Result<Self> {
        let namespace = Namespace::new(name)?;
        let upon = ["link", "add", "link", netdev, "name", LINK, "netns", name];
        ip(&[&upon[..], &["type", "macvlan", "mode", "bridge"]].concat())?;
        let tenant = Self { namespace, address };
        tenant.ip(&["address", "add", &format!("{address}/24"), "dev", LINK])?;
        tenant.ip(&["link", "set", LINK, "up"])?;
        Ok(tenant)
    }

    fn ip(&self, arguments: &[&str]) -> Result<Ended> {
        ip(&[&["-n", self.namespace.name()][..], arguments].concat())
    }

    /// Its GID of IPv4, as libraries write it.
    fn gid(&self) -> Result<String> {
        let address: std::net::Ipv4Addr = self.address.parse()?;
        let [a, b, c, d] = address.octets();
        Ok(format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"))
    }

    fn run(&self, world: &World, place: Place, argv: &[&str]) -> Result<Ended> {
        let command = match place {
            Place::Sandbox => {
                let options = ["--netns", &self.namespace.path(), "--keep-cap", "NET_ADMIN"];
                world.sandbox(&options, argv)
            }
            Place::Native => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", self.namespace.name()]).args(argv);
                command
            }
        };
        exec::run(command)
    }
}

/// The script, and the folder of the port's GIDs on the host.
struct Gids {
    _dir: TempDir,
    script: PathBuf,
    port: PathBuf,
    netdev: String,
}

impl Gids {
    fn new(world: &World) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
        let script = dir.path().join("gids.py");
        fs::write(&script, SCRIPT)?;
        let port = Path::new("/sys/class/infiniband").join(&world.device).join("ports/1");
        let netdev = world.netdev().context("the device has no network device")?;
        Ok(Self { _dir: dir, script, port, netdev })
    }

    fn argv<'a>(&'a self, arguments: &[&'a str]) -> Result<Vec<&'a str>> {
        let script = self.script.to_str().context("an odd path")?;
        Ok([&["python3", script], arguments].concat())
    }

    /// The host's whole table.
    fn all(&self) -> Result<BTreeMap<u32, String>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(self.port.join("gids"))?.flatten() {
            let index = entry.file_name().to_string_lossy().parse()?;
            let gid = fs::read_to_string(entry.path())?.trim().to_owned();
            if gid.split(':').any(|part| part != "0000") {
                all.insert(index, gid);
            }
        }
        Ok(all)
    }

    fn index(&self, gid: &str) -> Result<u32> {
        let mut found = None;
        exec::wait_until(gid, || {
            found = self.all()?.into_iter().find(|(_, other)| other == gid).map(|(i, _)| i);
            Ok(found.is_some())
        })?;
        found.context("no such GID")
    }

    /// What speaking by an index comes to: of an address handle, and of a queue pair.
    fn speak(
        &self,
        world: &World,
        tenant: &Tenant,
        place: Place,
        index: u32,
    ) -> Result<(String, String)> {
        let (number, to) = (index.to_string(), tenant.gid()?);
        let argv = self.argv(&["speak", &world.device, &number, &to])?;
        let ended = tenant.run(world, place, &argv)?.expect_status(0)?;
        let result = |name: &str| {
            let found = ended.stdout.lines().find_map(|line| line.strip_prefix(name));
            found.map(|result| result.trim().to_owned()).with_context(|| format!("{ended}"))
        };
        Ok((result("ah ")?, result("qp ")?))
    }
}

/// The GIDs that a program saw, by the way in which it did.
fn seen(ended: &Ended) -> BTreeMap<&str, Vec<(u32, &str)>> {
    let mut seen: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for line in ended.stdout.lines() {
        let mut words = line.split(' ');
        let (way, _port) = (words.next().unwrap_or_default(), words.next());
        let (index, gid) = (words.next().and_then(|n| n.parse().ok()), words.next());
        if let (Some(index), Some(gid)) = (index, gid.filter(|gid| gid.contains(':'))) {
            seen.entry(way).or_default().push((index, gid));
        }
    }
    seen
}

/// How long the table is, by QUERY_PORT and by each kind of file.
fn lengths(ended: &Ended) -> Vec<u32> {
    let lines =
        ended.stdout.lines().filter(|l| l.starts_with("length ") || l.starts_with("files "));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect()
}

/// A walk over the table is as long as the table is, in requests and in files: natively over all of
/// its slots, in a sandbox up to the empty one behind the last that is its own.
fn walks_are_short(native: &[u32], inside: &[u32], own: u32, last: u32) -> Result<()> {
    println!("  slots to walk, by QUERY_PORT and by files: {native:?}, in the sandbox {inside:?}");
    if native.len() != 4 || native.iter().any(|length| *length <= last) {
        bail!("natively the table has {native:?} slots, and entry {last}");
    }
    if inside.len() != 4 || !inside.iter().all(|length| (own + 2..=last + 2).contains(length)) {
        bail!("in the sandbox the table has {inside:?} slots; its own is {own}, the last {last}");
    }
    Ok(())
}

fn two_sandboxes(world: &World) -> Result<Verdict> {
    let gids = Gids::new(world)?;
    let tenants = [
        Tenant::new("verbgate-a", "10.99.7.1", &gids.netdev)?,
        Tenant::new("verbgate-b", "10.99.7.2", &gids.netdev)?,
    ];
    for (tenant, other) in [(&tenants[0], &tenants[1]), (&tenants[1], &tenants[0])] {
        let own = gids.index(&tenant.gid()?)?;
        let others = gids.index(&other.gid()?)?;
        let argv = gids.argv(&["see", &world.device])?;
        let native = tenant.run(world, Place::Native, &argv)?.expect_status(0)?;
        let inside = tenant.run(world, Place::Sandbox, &argv)?.expect_status(0)?;
        let last = gids.all()?.keys().max().copied().unwrap_or_default();
        walks_are_short(&lengths(&native), &lengths(&inside), own, last)?;
        let (native, inside) = (seen(&native), seen(&inside));
        // Addresses come and go while this runs, so what is its own is known by the address, and
        // what is not by the others'.
        for way in ["table", "entry", "sysfs"] {
            let [native, inside] = [&native, &inside].map(|seen| seen.get(way).cloned());
            let (native, inside) = (native.unwrap_or_default(), inside.unwrap_or_default());
            let (mine, theirs) = (tenant.gid()?, other.gid()?);
            if !native.contains(&(others, &theirs)) {
                bail!("{way}: natively not even {theirs} is there: {native:?}");
            }
            let strange = |(_, gid): &&(u32, &str)| **gid != mine && !gid.starts_with("fe80:");
            if !inside.contains(&(own, &mine)) || inside.iter().find(strange).is_some() {
                bail!("{way}: with {mine} alone, the sandbox sees {inside:?}");
            }
            if inside.iter().any(|entry| !native.contains(entry)) {
                bail!("{way}: {inside:?}, of which natively are {native:?}");
            }
            if inside.len() >= native.len() {
                bail!("{way}: nothing is masked: {inside:?}");
            }
        }
        let expected = |index, place, wanted: &str| -> Result<()> {
            let (ah, qp) = gids.speak(world, tenant, place, index)?;
            if (&*ah, &*qp) != (wanted, wanted) {
                bail!("{place:?}, from index {index}: address handle {ah}, queue pair {qp}");
            }
            Ok(())
        };
        expected(own, Place::Sandbox, "0")?;
        expected(others, Place::Native, "0")?;
        // As from an entry that is empty.
        let empty = gids.all()?.keys().max().map_or(0, |last| last + 1);
        expected(empty, Place::Native, "ENODATA")?;
        expected(empty, Place::Sandbox, "ENODATA")?;
        expected(others, Place::Sandbox, "ENODATA")?;
    }
    Ok(Verdict::Ok)
}

/// What goes through a port, and which connections are made there, is nobody's business whose port others
/// use, too.
fn counters(world: &World) -> Result<Verdict> {
    let gids = Gids::new(world)?;
    let script =
        format!("grep -rs '' {}/*/ 2>/dev/null | cut -d: -f1 | sort -u", gids.port.display());
    let read = |place| -> Result<Vec<String>> {
        let ended = exec::run(world.command(place, &["sh", "-c", &script])?)?;
        let lines = ended.expect_status(0)?.stdout;
        let counts =
            |line: &&str| !["/gids/", "/gid_attrs/", "/pkeys/"].iter().any(|d| line.contains(d));
        Ok(lines.lines().filter(counts).map(str::to_owned).collect())
    };
    // Alone.
    let native = read(Place::Native)?;
    // Kernels differ in whether Soft-RoCE has the port's `counters`, too.
    for dir in ["/hw_counters/", "/cm_rx_msgs/"] {
        if !native.iter().any(|path| path.contains(dir)) {
            bail!("natively no {dir} of the port: {native:?}");
        }
    }
    let alone = read(Place::Sandbox)?;
    if alone != native {
        bail!("a port of one sandbox: {alone:?}, natively {native:?}");
    }
    let tenant = Tenant::new("verbgate-a", "10.99.7.1", &gids.netdev)?;
    gids.index(&tenant.gid()?)?;
    let shared = read(Place::Sandbox)?;
    if !shared.is_empty() {
        bail!("with another tenant at the port, the sandbox reads {shared:?}");
    }
    Ok(Verdict::Ok)
}

/// An address that a guest gives its own link is seen, in every way, and can be spoken by.
fn new_address(world: &World) -> Result<Verdict> {
    let gids = Gids::new(world)?;
    let tenant = Tenant::new("verbgate-a", "10.99.7.1", &gids.netdev)?;
    gids.index(&tenant.gid()?)?;
    let argv = gids.argv(&["add", &world.device, LINK, "10.99.7.9"])?;
    let added = tenant.run(world, Place::Sandbox, &argv)?.expect_status(0)?;
    println!("  seen after, in ms: {}", added.stdout.trim().replace('\n', ", "));
    let index = gids.index("0000:0000:0000:0000:0000:ffff:0a63:0709")?;
    let spoken = gids.speak(world, &tenant, Place::Sandbox, index)?;
    if spoken != ("0".to_owned(), "0".to_owned()) {
        bail!("from the new address: {spoken:?}");
    }
    Ok(Verdict::Ok)
}

/// Who may make links makes one with the name and the address of another's: it is none of the
/// port's, and its GIDs stay the other's.
fn look_alike(world: &World) -> Result<Verdict> {
    let gids = Gids::new(world)?;
    let victim = Tenant::new("verbgate-a", "10.99.7.1", &gids.netdev)?;
    let index = gids.index(&victim.gid()?)?;
    let attacker = Tenant { namespace: Namespace::new("verbgate-b")?, address: victim.address };
    attacker.ip(&["link", "add", LINK, "type", "veth", "peer", "name", "other"])?;
    attacker.ip(&["address", "add", &format!("{}/24", victim.address), "dev", LINK])?;
    attacker.ip(&["link", "set", LINK, "up"])?;
    let argv = gids.argv(&["see", &world.device])?;
    let inside = attacker.run(world, Place::Sandbox, &argv)?.expect_status(0)?;
    let inside = seen(&inside);
    for way in ["table", "entry", "sysfs"] {
        if let Some(entries) = inside.get(way) {
            bail!("{way}: it sees {entries:?}");
        }
    }
    let spoken = gids.speak(world, &attacker, Place::Sandbox, index)?;
    if spoken != ("ENODATA".to_owned(), "ENODATA".to_owned()) {
        bail!("it speaks as another: {spoken:?}");
    }
    Ok(Verdict::Ok)
}
