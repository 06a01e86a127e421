//! `verbgate doctor`: checks of everything that RDMA in containers needs on this machine, each with
//! a remedy. [`TABLE`] is the one list of checks; `runtime status`, `prepare` and the chart's node label take their rows.

mod container;
mod files;
mod hardware;
mod pci;
pub(crate) mod preflight;

use std::path::Path;
use std::time::Duration;

use anyhow::Error;
use nix::sys::resource::RLIM_INFINITY;
use nix::sys::resource::Resource;
use nix::sys::resource::getrlimit;
use verbgate_host::rdma;
use verbgate_host::rdma::Mode;
use verbgate_netdev::plan;
use verbgate_netdev::probe;
use verbgate_netdev::select::route_to;
use verbgate_oci::Globals;
use verbgate_oci::engine::Engine;
use verbgate_sys::sandbox::probe as kernel;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::Device;
use verbgate_sysfs::discover::ETHERNET;

pub(crate) use self::container::seen;
use self::preflight::Preflight;
use crate::check;
use crate::check::Check;
use crate::check::Finding;
use crate::check::Needs;
use crate::check::Verdict;
use crate::check::fail;
use crate::check::pass;
use crate::check::skipped;
use crate::check::some;
use crate::check::warn;
use crate::cli::DoctorArgs;
use crate::cli::HostArgs;
use crate::cli::Purpose;
use crate::cli::StatusOfArgs;
use crate::engines;
use crate::failure::Failure;
use crate::features;
use crate::fences;

/// MTU of a link for RoCE's largest packets: 4096 bytes and their headers.
const ROCE_MTU: u32 = 4200;
/// Membership in a partition: the top bit of a partition key (InfiniBand specification, 10.9.1.1).
const FULL_MEMBER: u16 = 0x8000;
/// Time for a peer to answer.
const ECHO: Duration = Duration::from_secs(3);

type Found = Result<Vec<Finding>, Error>;

/// A check.
struct Row {
    /// The name by which users see the check.
    name: &'static str,
    /// Without this privilege, the check is skipped.
    needs: Needs,
    /// The uses that take the row, besides `verbgate doctor`, which takes all.
    uses: &'static [Purpose],
    look: fn(&Preflight<'_>) -> Found,
}

const fn row(
    name: &'static str,
    needs: Needs,
    uses: &'static [Purpose],
    look: fn(&Preflight<'_>) -> Found,
) -> Row {
    Row { name, needs, uses, look }
}

/// The findings of a check; a check that does not concern a host has none.
fn all(found: impl IntoIterator<Item = Finding>) -> Found {
    Ok(found.into_iter().collect())
}

const ANY: Needs = Needs::Nothing;
const ROOT: Needs = Needs::Root;
const ONLY: &[Purpose] = &[];
const MOVE: &[Purpose] = &[Purpose::Prepare];
const NODE: &[Purpose] = &[Purpose::Prepare, Purpose::NodeLabel];
const ENGINES: &[Purpose] = &[Purpose::Prepare, Purpose::NodeLabel, Purpose::RuntimeStatus];

/// All checks, in the order in which one would repair.
const TABLE: &[Row] = &[
    row("privilege", ROOT, MOVE, |_| all(pass("CAP_SYS_ADMIN"))),
    // The look forks, which only a process with one thread may: before all that starts a thread.
    row("kernel", ANY, NODE, |_| all(kernel_features(&features::missing()))),
    row("fuse", ANY, NODE, |_| all(fuse())),
    row("configuration", ANY, NODE, |facts| all(files::configuration(facts))),
    row("policy", ANY, NODE, |facts| all(files::policy(facts)?)),
    row("state directory", ANY, MOVE, |facts| all(files::state(facts))),
    row("memlock", ANY, MOVE, |_| all(memlock())),
    row("NIC drivers", ANY, MOVE, |facts| all(pci::drivers(facts))),
    row("RDMA devices", ANY, MOVE, |facts| all(rdma_devices(&facts.devices))),
    row("RDMA namespaces", ANY, MOVE, |_| all(namespaces())),
    // A move undoes what an earlier attempt left.
    row("journal", ANY, ONLY, |facts| all(files::journal(facts)?)),
    row("container networks", ROOT, MOVE, |facts| all(container_networks(facts))),
    row("container engine", ANY, ENGINES, |facts| all(engines::none(facts))),
    row("Docker", ANY, ENGINES, |facts| engines::look(facts, Engine::Docker)),
    row("containerd", ANY, ENGINES, |facts| engines::look(facts, Engine::Containerd)),
    row("podman", ANY, ENGINES, |facts| engines::look(facts, Engine::Podman)),
    row("CRI-O", ANY, ENGINES, |facts| engines::look(facts, Engine::Crio)),
    row("NVIDIA's runtime", ANY, ENGINES, |facts| engines::look(facts, Engine::Nvidia)),
    row("CDI", ANY, MOVE, |facts| all(engines::described(facts))),
    row("/sys of containers", ANY, NODE, |facts| all(engines::own_sysfs(facts))),
    row("memlock of containers", ANY, MOVE, |_| all(engines::locked_memory())),
    row("ports", ANY, MOVE, |facts| all(ports(&facts.devices))),
    row("GIDs", ANY, MOVE, |facts| all(gids(&facts.devices))),
    row("partitions", ANY, MOVE, |facts| all(partitions(&facts.devices))),
    row("PCIe links", ANY, MOVE, |facts| all(hardware::pcie(facts))),
    row("PCIe slots", ANY, MOVE, |facts| all(hardware::slots(facts))),
    // Others do not see a bridge's extended configuration.
    row("GPU to NIC", ROOT, MOVE, |facts| all(hardware::gpu_path(facts))),
    row("IOMMU", ANY, MOVE, |facts| all(hardware::iommu(facts))),
    row("GPU memory", ANY, MOVE, |facts| all(hardware::gpu_memory(facts))),
    row("link flaps", ANY, MOVE, |facts| all(hardware::flaps(facts)?)),
    row("lossless classes", ANY, MOVE, |facts| all(hardware::lossless(facts)?)),
    row("MTU", ANY, MOVE, |facts| all(mtu(facts)?)),
    row("bootstrap path", ROOT, MOVE, |facts| all(bootstrap(facts)?)),
    row("container", ANY, ONLY, |facts| all(container::start(facts))),
];

/// Makes the checks of a use.
pub(crate) fn checks(facts: &Preflight<'_>) -> Vec<Check> {
    let is_root = kernel::is_privileged();
    let is_used = |row: &&Row| facts.purpose == Purpose::All || row.uses.contains(&facts.purpose);
    let of_row = |row: &'static Row| {
        let mut found = (row.look)(facts).unwrap_or_else(|error| vec![undone(&error, is_root)]);
        // Other users do not see all; a check that does not concern this host stays away.
        if row.needs == Needs::Root && !is_root && !found.is_empty() {
            found = vec![skipped("needs root")];
        }
        found.into_iter().map(|finding| Check { name: row.name, needs: row.needs, finding })
    };
    TABLE.iter().filter(is_used).flat_map(of_row).collect()
}

/// The finding of a check that could not be made.
fn undone(error: &Error, is_root: bool) -> Finding {
    match !is_root && check::is_denied(error) {
        true => skipped(format!("{error:#}")),
        false => fail(format!("{error:#}"), "repair what the error names"),
    }
}

/// Prints all checks; the exit code is 1 if one failed.
pub(crate) fn run(args: &DoctorArgs, globals: &Globals) -> Result<u8, Failure> {
    let facts = Preflight {
        peer: args.peer,
        engine: args.runtime.map(Into::into),
        tried: args.tried.map(Into::into),
        ..Preflight::of(&args.host, globals, args.purpose)
    };
    told(&facts, args.json)
}

/// Prints whether engines know the runtime; the exit code is 0 if all that are named, or all that there are, do.
pub(crate) fn status(args: &StatusOfArgs, globals: &Globals) -> Result<u8, Failure> {
    let host = HostArgs::default();
    let engine = args.runtime.map(Into::into);
    let facts = Preflight { engine, ..Preflight::of(&host, globals, Purpose::RuntimeStatus) };
    told(&facts, args.json)
}

fn told(facts: &Preflight<'_>, as_json: bool) -> Result<u8, Failure> {
    let checks = checks(facts);
    check::report(&checks, as_json)?;
    let is_bad = |check: &Check| match check.finding.verdict {
        Verdict::Fail => true,
        // Nobody is told that something is ready that nobody has looked at.
        Verdict::Skipped => facts.purpose != Purpose::All,
        Verdict::Pass | Verdict::Warn => false,
    };
    Ok(u8::from(checks.iter().any(is_bad)))
}

fn kernel_features(missing: &[(&str, &str)]) -> Finding {
    let (version, arch) = kernel::kernel();
    if missing.is_empty() {
        return pass(format!("Linux {version} {arch} has all that is needed"));
    }
    let lacks: Vec<String> = missing.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    let remedy = "Linux 5.19 or newer, outside of a container that forbids seccomp listeners; \
                  see: verbgate features";
    fail(format!("missing on Linux {version} {arch}: {}", lacks.join(", ")), remedy)
}

fn fuse() -> Finding {
    match Path::new("/dev/fuse").exists() {
        true => pass("/dev/fuse"),
        false => warn("no /dev/fuse", "modprobe fuse; FUSE serves the virtual /sys"),
    }
}

fn memlock() -> Finding {
    let remedy = "ulimit -l unlimited, LimitMEMLOCK=infinity in systemd units, --ulimit memlock=-1 \
                  for docker; with too little, NCCL uses sockets without a warning";
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) => pass("unlimited"),
        Ok((soft, _)) => warn(format!("{} KiB", soft / 1024), remedy),
        Err(e) => warn(format!("unknown: {e}"), remedy),
    }
}

fn rdma_devices(devices: &[Device]) -> Finding {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    match names.is_empty() {
        false => pass(some(&names)),
        true => fail(
            "none",
            "load the NIC's RDMA driver (mlx5_ib, irdma, bnxt_re) and ib_uverbs; see: rdma link",
        ),
    }
}

fn ports(devices: &[Device]) -> Option<Finding> {
    let down: Vec<String> = devices
        .iter()
        .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
        .filter(|(_, port)| port.state.as_deref() != Some("ACTIVE"))
        .map(|(device, port)| {
            let state = port.state.as_deref().unwrap_or("unknown");
            format!("{}/{} {state}", device.name, port.port)
        })
        .collect();
    let down: Vec<&str> = down.iter().map(String::as_str).collect();
    (!devices.is_empty()).then(|| match down.is_empty() {
        true => pass("all ACTIVE"),
        false => warn(some(&down), "cable, switch port, ip link set NETDEV up"),
    })
}

/// RoCE ports that nothing can be sent from.
fn gids(devices: &[Device]) -> Option<Finding> {
    let is_roce = |port: &&discover::Port| port.link_layer.as_deref() == Some(ETHERNET);
    let usable = |port: &discover::Port| {
        let v2 = |gid: &discover::Gid| gid.kind.as_deref() == Some(discover::ROCE_V2);
        port.gids.iter().any(|gid| v2(gid) && !gid.gid.is_unicast_link_local())
    };
    let without: Vec<&str> = devices
        .iter()
        .filter(|device| device.ports.iter().filter(is_roce).any(|port| !usable(port)))
        .map(|device| device.name.as_str())
        .collect();
    devices.iter().flat_map(|device| &device.ports).find(is_roce)?;
    Some(match without.is_empty() {
        true => pass("every RoCE port has a routable RoCE v2 GID"),
        false => warn(
            format!("no routable RoCE v2 GID on {}", some(&without)),
            "give the netdev an address, or find the netdev: verbgate netdev status",
        ),
    })
}

fn namespaces() -> Finding {
    match rdma::mode() {
        Mode::Shared => pass("shared: netdevs are moved, RDMA devices are not"),
        Mode::Exclusive => pass("exclusive: RDMA devices are moved with their netdevs"),
        Mode::Unknown => warn("the kernel does not tell", "modprobe ib_core, and: rdma system"),
    }
}

fn container_networks(facts: &Preflight<'_>) -> Finding {
    match fences::look(&facts.host.state_dir, facts.globals) {
        (0, open) if open.is_empty() => pass("none has a NIC or RDMA"),
        (fenced, open) if open.is_empty() => {
            pass(format!("{fenced} with NICs or RDMA, all fenced"))
        }
        (_, open) => warn(
            open.join("; "),
            "modprobe nf_tables and nft_fib_inet; give containers network namespaces of their own, \
             and NICs by verbgate netdev (move or share) or the annotation org.verbgate.netdevs, all \
             of which make the rules; start containers without NET_ADMIN and NET_RAW (verbgate oci \
             drops both unless --keep-cap says otherwise)",
        ),
    }
}

/// InfiniBand peers must have a partition in common, of which one is a full member.
fn partitions(devices: &[Device]) -> Option<Finding> {
    let ports: Vec<&discover::Port> = devices
        .iter()
        .flat_map(|device| &device.ports)
        .filter(|port| port.link_layer.as_deref() == Some(discover::INFINIBAND))
        .collect();
    let first = ports.first()?;
    let keys: Vec<String> = first.pkeys.values().map(|key| format!("{key:#06x}")).collect();
    let found = keys.join(", ");
    let is_full = |port: &&discover::Port| port.pkeys.values().any(|key| key & FULL_MEMBER != 0);
    Some(match ports.iter().all(is_full) {
        true => pass(found),
        false => fail(
            format!("a port is full member of none ({found})"),
            "have the subnet manager make the port a full member; limited members cannot talk to \
             each other",
        ),
    })
}

fn mtu(facts: &Preflight<'_>) -> Result<Option<Finding>, verbgate_netdev::Error> {
    let links = plan::links()?;
    let small: Vec<String> = links
        .iter()
        .filter(|link| facts.is_rdma(&link.name) && link.mtu < ROCE_MTU)
        .map(|link| format!("{} {}", link.name, link.mtu))
        .collect();
    let small: Vec<&str> = small.iter().map(String::as_str).collect();
    if !links.iter().any(|link| facts.is_rdma(&link.name)) {
        return Ok(None);
    }
    Ok(Some(match small.is_empty() {
        true => pass(format!("at least {ROCE_MTU} on all NICs with RDMA")),
        false => warn(some(&small), "ip link set NETDEV mtu 9000, on the switch, too"),
    }))
}

/// Whether packets of full size reach the peer: a tunnel on the way swallows them at times.
fn bootstrap(facts: &Preflight<'_>) -> Result<Option<Finding>, verbgate_netdev::Error> {
    let Some(peer) = facts.peer else { return Ok(None) };
    let device = route_to(&mut plan::open()?, peer, None);
    let links = plan::links()?;
    let Some(link) = links.iter().find(|link| Some(link.index) == device) else {
        return Ok(Some(fail(format!("no route to {peer}"), "ip route get, on this node")));
    };
    let small = probe::echoes(None, peer, probe::SMALL, ECHO);
    if !matches!(small, Ok(true)) {
        let remedy = "is the peer up, and does a firewall drop ICMP?";
        return Ok(Some(fail(format!("{peer} does not answer by {}", link.name), remedy)));
    }
    let mtu = link.mtu.min(u16::MAX.into());
    Ok(Some(match probe::echoes(None, peer, mtu, ECHO) {
        Ok(true) => pass(format!("{peer} by {}, MTU {mtu}", link.name)),
        _ => fail(
            format!("{peer} answers by {}, but not packets of that device's MTU {mtu}", link.name),
            "lower the MTU of that device to the MTU of the path (a tunnel takes some 40 to 80)",
        ),
    }))
}
