//! Many sandboxes on one port, each in a network namespace of its own with a macvlan upon the port's
//! network device: each sees one device and its own addresses, and speaks by none of the others'.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::nodes::Namespace;
use super::tenants::Partner;
use super::tenants::Script;
use crate::exec;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;

const SCRIPT: &str = include_str!("../../scripts/neighbours.py");

/// Tenants of the port.
const TENANTS: u8 = 64;
/// So many start at a time: each imports pyverbs.
const AT_ONCE: usize = 8;
/// Resident memory of a supervisor, in KiB.
const SUPERVISOR_KIB: u64 = 7 << 10;
/// The name of each tenant's link, in the tenant's namespace.
const LINK: &str = "eth7";

pub(super) fn cases() -> Vec<Case> {
    let mut many = Case::new("sixty_four_tenants_of_one_port", many);
    many.limit = 4 * PATIENCE;
    vec![many]
}

fn name(number: u8) -> String {
    format!("verbgate-t{number}")
}

fn gid(number: u8) -> String {
    format!("0000:0000:0000:0000:0000:ffff:0a63:08{number:02x}")
}

fn many(world: &World) -> Result<Verdict> {
    let port = Path::new("/sys/class/infiniband").join(&world.device).join("ports/1");
    let netdev = fs::read_to_string(port.join("gid_attrs/ndevs/0"))?.trim().to_owned();
    let namespaces: Vec<Namespace> =
        (1..=TENANTS).map(|number| Namespace::new(&name(number))).collect::<Result<_>>()?;
    let mut lines = String::new();
    for number in 1..=TENANTS {
        let of = name(number);
        lines +=
            &format!("link add link {netdev} name {LINK} netns {of} type macvlan mode bridge\n");
    }
    batch(&[], &lines)?;
    for (number, namespace) in (1..).zip(&namespaces) {
        let up = format!("address add 10.99.8.{number}/24 dev {LINK}\nlink set {LINK} up\n");
        batch(&["-n", namespace.name()], &up)?;
    }
    let mut indices = BTreeMap::new();
    exec::wait_until("the tenants' GIDs", PATIENCE, || {
        indices = table(&port)?;
        Ok((1..=TENANTS).all(|number| indices.contains_key(&gid(number))))
    })?;
    let index = |number: u8| indices.get(&gid(number)).copied().context("no GID");

    let script = Script::of("neighbours.py", SCRIPT)?;
    let mut tenants: Vec<(u8, Partner)> = Vec::new();
    let all: Vec<u8> = (1..=TENANTS).collect();
    for numbers in all.chunks(AT_ONCE) {
        let mut started = Vec::new();
        for number in numbers {
            let path = format!("/run/netns/{}", name(*number));
            let options = ["--netns", &path];
            let (words, name) = ([world.device.as_str(), &gid(*number)], name(*number));
            started.push((
                *number,
                script.start_with(world, Place::Sandbox, &name, &options, &words)?,
            ));
        }
        for (number, mut tenant) in started {
            sees_its_own(&tenant.hear()?, &world.device, &gid(number), index(number)?)?;
            tenants.push((number, tenant));
        }
    }

    // The first speaks by the second's natively, and nobody by anybody's inside.
    let mut native = script.start(world, Place::Native, "native", &[&world.device, &gid(1)])?;
    native.hear()?;
    native.expect(&format!("speak {}", index(2)?), "0 2").context("natively")?;
    let (mut most, mut sum) = (0, 0);
    for (number, tenant) in &mut tenants {
        let others = all.iter().filter(|other| *other != number);
        let others: Vec<String> =
            others.map(|other| Ok(index(*other)?.to_string())).collect::<Result<_>>()?;
        tenant.expect(&format!("speak {}", index(*number)?), "0 2")?;
        let refused = format!("ENODATA {}", 2 * others.len());
        tenant.expect(&format!("speak {}", others.join(" ")), &refused)?;
        let kib = resident_kib(tenant.program.pid())?;
        (most, sum) = (most.max(kib), sum + kib);
    }
    let crossed = tenants.len() * (tenants.len() - 1);
    println!(
        "  {crossed} cross-uses of GIDs by address handle and by queue pair, all refused; resident \
         memory of a supervisor: {} KiB, at most {most} KiB",
        sum / u64::from(TENANTS)
    );
    if most > SUPERVISOR_KIB {
        bail!("a supervisor has {most} KiB resident; at most {SUPERVISOR_KIB} KiB are allowed");
    }
    for (_, tenant) in &mut tenants {
        tenant.expect("free", "free")?;
    }
    Ok(Verdict::Ok)
}

/// What a tenant sees: the device, and no address but its own ones.
fn sees_its_own(said: &str, device: &str, gid: &str, index: u32) -> Result<()> {
    let gids =
        said.strip_prefix(&format!("devices {device} gids ")).with_context(|| said.to_owned())?;
    let is_its = |entry: &str| {
        entry == format!("{index}={gid}")
            || entry.split_once('=').is_some_and(|(_, gid)| gid.starts_with("fe80:"))
    };
    let links = gids.split(',').filter(|entry| entry.contains("=fe80:")).count();
    if !gids.split(',').all(is_its) || !gids.contains(gid) || links > 1 {
        bail!("with {gid} alone, the tenant sees {gids}");
    }
    Ok(())
}

/// The addresses that the port has, as the host sees the table.
fn table(port: &Path) -> Result<BTreeMap<String, u32>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(port.join("gids"))?.flatten() {
        let gid = fs::read_to_string(entry.path())?.trim().to_owned();
        all.insert(gid, entry.file_name().to_string_lossy().parse()?);
    }
    Ok(all)
}

/// Has ip(8) do what lines say, in one process.
fn batch(options: &[&str], lines: &str) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), lines)?;
    let mut command = Command::new("ip");
    command.args(options).arg("-batch").arg(file.path());
    exec::run(command, PATIENCE)?.expect_status(0).map(drop)
}

fn resident_kib(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
