//! Many sandboxes on one port, each in a network namespace of its own with a macvlan upon the port's
//! network device: each sees one device and its own addresses, and uses nothing of the others.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use tempfile::TempDir;

use super::Case;
use super::Verdict;
use super::nodes::Namespace;
use super::nodes::ip;
use super::tenants::Partner;
use crate::exec;
use crate::world::Place;
use crate::world::World;

/// Tenants of the port.
const TENANTS: u8 = 64;
/// So many start at a time.
const AT_ONCE: usize = 4;
/// Memory of a supervisor that is no file's, in KiB. What is mapped of the program says little: since Linux 6.18 or
/// so a page fault maps a whole folio, which may be 2 MiB.
const SUPERVISOR_KIB: u64 = 4 << 10;
/// The name of each tenant's link, in the tenant's namespace.
const LINK: &str = "eth7";
/// A port of the connection manager's.
const PORT: &str = "18515";
/// Address handle and queue pair.
const BY_SOURCE: usize = 2;
/// Protection domain, memory region, completion queue, queue pair.
const BY_HANDLE: usize = 4;
/// A region and a queue pair in a protection domain, and a queue pair with a completion queue.
const BY_PARENT: usize = 3;
/// EADDRNOTAVAIL, as the guest says it.
const NO_ADDRESS: &str = "errno99";
/// A handle that nobody has.
const NO_HANDLE: &str = "1000000";

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("sixty_four_tenants_of_one_port", many)]
}

/// A tenant, and what it said of itself.
struct Tenant {
    number: u8,
    partner: Partner,
    /// The greatest handle that it has.
    last: u32,
    /// An identifier of the connection manager's that it has.
    id: u32,
}

fn name(number: u8) -> String {
    format!("verbgate-t{number}")
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 8, number)
}

fn gid(number: u8) -> Ipv6Addr {
    address(number).to_ipv6_mapped()
}

fn many(world: &World) -> Result<Verdict> {
    let port = Path::new("/sys/class/infiniband").join(&world.device).join("ports/1");
    let netdev = world.netdev().context("the device has no network device")?;
    let _namespaces = namespaces(&netdev)?;
    let mut table = BTreeMap::new();
    exec::wait_until("the tenants' GIDs", || {
        table = gids(&port)?;
        Ok((1..=TENANTS).all(|number| table.contains_key(&gid(number))))
    })?;
    let index = |number: u8| table.get(&gid(number)).copied().context("no GID");

    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut tenants: Vec<Tenant> = Vec::new();
    let numbers: Vec<u8> = (1..=TENANTS).collect();
    for numbers in numbers.chunks(AT_ONCE) {
        let started: Vec<(u8, Partner)> = numbers
            .iter()
            .map(|number| Ok((*number, start(world, &folder, Place::Sandbox, *number)?)))
            .collect::<Result<_>>()?;
        for (number, mut partner) in started {
            let said = partner.hear()?;
            let (last, id) = sees_its_own(&said, &world.device, number, index(number)?)?;
            tenants.push(Tenant { number, partner, last, id });
        }
        println!("  {} of {TENANTS} tenants are there", tenants.len());
    }

    // What nobody may do inside succeeds natively.
    let mut native = start(world, &folder, Place::Native, 1)?;
    native.hear()?;
    native.expect(&format!("speak {}", index(2)?), "ok 2").context("natively")?;
    // A handle counts in one file: another's is one that this file has not.
    let none = native.ask(&format!("borrow {NO_HANDLE}"))?;
    let (sources, handles, ids) = use_of_others(&mut tenants, index, &none)?;
    let memory: Vec<u64> = tenants
        .iter()
        .map(|tenant| memory_kib(tenant.partner.program.pid()))
        .collect::<Result<_>>()?;
    let (sum, most) = (memory.iter().sum::<u64>(), memory.into_iter().max().unwrap_or_default());
    println!(
        "  refused: {sources} uses of others' addresses as a source, {handles} of others' handles, {ids} of \
         others' identifiers and addresses to listen at; a supervisor's own memory: {} KiB, at most \
         {most} KiB",
        sum / u64::from(TENANTS)
    );
    if most > SUPERVISOR_KIB {
        bail!("a supervisor takes {most} KiB of its own, more than {SUPERVISOR_KIB}");
    }
    for tenant in &mut tenants {
        // All that was made is there still.
        let made = 3 + u32::from(tenant.number);
        tenant.partner.expect("free", &format!("ok {made}"))?;
    }
    Ok(Verdict::Ok)
}

/// A namespace with a macvlan and an address for each tenant.
fn namespaces(netdev: &str) -> Result<Vec<Namespace>> {
    // An attempt that was broken off left some.
    for number in 1..=TENANTS {
        let left = Path::new("/run/netns").join(name(number));
        if left.exists() {
            ip(&["netns", "delete", &name(number)])?;
        }
    }
    let all: Vec<Namespace> =
        (1..=TENANTS).map(|number| Namespace::new(&name(number))).collect::<Result<_>>()?;
    let links: String = all
        .iter()
        .map(|namespace| {
            let of = namespace.name();
            format!("link add link {netdev} name {LINK} netns {of} type macvlan mode bridge\n")
        })
        .collect();
    batch(&[], &links)?;
    for (number, namespace) in (1..).zip(&all) {
        let address = address(number);
        let up = format!("address add {address}/24 dev {LINK}\nlink set {LINK} up\n");
        batch(&["-n", namespace.name()], &up)?;
    }
    Ok(all)
}

/// Starts a tenant; each has as many more objects as its number says.
fn start(world: &World, folder: &TempDir, place: Place, number: u8) -> Result<Partner> {
    let guest = world.beside("verbgate-guest").to_string_lossy().into_owned();
    let (device, gid, extra) = (world.node_path(), gid(number).to_string(), number.to_string());
    let argv = [guest.as_str(), "neighbour", &device, &gid, &extra];
    let namespace = format!("/run/netns/{}", name(number));
    let command = match place {
        Place::Native => world.command(place, &argv)?,
        Place::Sandbox => world.sandbox(&["--netns", &namespace], &argv),
    };
    Partner::start(&folder.path().join(format!("{place:?}-{number}")), &command)
}

/// Each tenant uses what it has, and tries to use what all others have. Gives how many tries were refused:
/// by address as a source, by handle, and by the connection manager.
fn use_of_others(
    tenants: &mut [Tenant],
    index: impl Fn(u8) -> Result<u32>,
    no_handle: &str,
) -> Result<(usize, usize, usize)> {
    let known: Vec<(u8, u32, u32)> =
        tenants.iter().map(|tenant| (tenant.number, tenant.last, tenant.id)).collect();
    let greatest = known.iter().map(|(_, last, _)| *last).max().unwrap_or(0);
    let join = |words: Vec<String>| words.join(" ");
    let (mut sources, mut handles, mut ids) = (0, 0, 0);
    for Tenant { number, partner, last, .. } in tenants {
        let others = || known.iter().filter(|(other, ..)| other != number);
        let indices = others().map(|(other, ..)| Ok(index(*other)?.to_string()));
        let indices: Vec<String> = indices.collect::<Result<_>>()?;
        let tries = BY_SOURCE * indices.len();
        partner.expect(&format!("speak {}", index(*number)?), &format!("ok {BY_SOURCE}"))?;
        partner.expect(&format!("speak {}", join(indices)), &format!("ENODATA {tries}"))?;
        sources += tries;

        // Handles that others have, and this tenant has not.
        let foreign: Vec<String> =
            (*last + 1..=greatest).map(|handle| handle.to_string()).collect();
        if !foreign.is_empty() {
            let tries = BY_HANDLE * foreign.len();
            partner.expect(
                &format!("destroy {}", join(foreign.clone())),
                &format!("ENOENT {tries}"),
            )?;
            handles += tries;
            handles += BY_PARENT * foreign.len();
            let wanted = times(no_handle, foreign.len())?;
            partner.expect(&format!("borrow {}", join(foreign)), &wanted)?;
        }

        let foreign: Vec<String> = others().map(|(.., id)| id.to_string()).collect();
        let tries = foreign.len();
        // The numbers of ids count in the kernel: another file's is known, and refused
        // (`_ucma_find_id`, drivers/infiniband/core/ucma.c).
        partner.expect(&format!("ids {}", join(foreign)), &format!("EINVAL {tries}"))?;
        let foreign: Vec<String> =
            others().map(|(other, ..)| address(*other).to_string()).collect();
        partner.expect(&format!("listen {PORT} {}", address(*number)), "ok 1")?;
        partner.expect(
            &format!("listen {PORT} {}", join(foreign)),
            &format!("{NO_ADDRESS} {tries}"),
        )?;
        ids += 2 * tries;
    }
    Ok((sources, handles, ids))
}

/// How tries upon so many handles end, when tries upon one end so: errors, and how often each came.
fn times(of_one: &str, handles: usize) -> Result<String> {
    let words: Vec<&str> = of_one.split_whitespace().collect();
    let mut all = Vec::new();
    for pair in words.chunks(2) {
        let [errno, count] = pair else { bail!("an odd answer: {of_one:?}") };
        if *errno == "ok" {
            bail!("a handle that nobody has is used: {of_one:?}");
        }
        all.push(format!("{errno} {}", count.parse::<usize>()? * handles));
    }
    Ok(all.join(" "))
}

/// What a tenant sees: the device, and no address but its own ones. Gives the greatest handle and the
/// identifier that the tenant has.
fn sees_its_own(said: &str, device: &str, number: u8, index: u32) -> Result<(u32, u32)> {
    let words: Vec<&str> = said.split_whitespace().collect();
    let ["devices", devices, "gids", gids, "last", last, "id", id] = words.as_slice() else {
        bail!("the tenant said {said:?}");
    };
    let own = format!("{index}={}", gid(number));
    let links = gids.split(',').filter(|entry| entry.contains("=fe80:")).count();
    let is_its = |entry: &str| entry == own || entry.contains("=fe80:");
    if *devices != device
        || links > 1
        || !gids.split(',').all(is_its)
        || !gids.split(',').any(|entry| entry == own)
    {
        bail!("with {device} and {own} alone, the tenant sees {devices} and {gids}");
    }
    Ok((last.parse()?, id.parse()?))
}

/// The addresses that the port has, as the host sees the table.
fn gids(port: &Path) -> Result<BTreeMap<Ipv6Addr, u32>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(port.join("gids"))?.flatten() {
        // RoCE v1 and v2 have the same address: the later index is v2's.
        let gid = fs::read_to_string(entry.path())?.trim().parse()?;
        let index: u32 = entry.file_name().to_string_lossy().parse()?;
        all.entry(gid).and_modify(|known: &mut u32| *known = index.max(*known)).or_insert(index);
    }
    Ok(all)
}

/// Has ip(8) do what lines say, in one process.
fn batch(options: &[&str], lines: &str) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), lines)?;
    let mut command = Command::new("ip");
    command.args(options).arg("-batch").arg(file.path());
    exec::run(command)?.expect_status(0).map(drop)
}

/// Memory of a process that is no file's (proc_pid_status(5)).
fn memory_kib(process: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    Ok(line.context("no RssAnon")?.trim_end_matches("kB").trim().parse()?)
}
