//! `verbgate doctor`: checks of everything that RDMA in containers needs on this machine, each with
//! a remedy.

mod hardware;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use nix::sys::resource::RLIM_INFINITY;
use nix::sys::resource::Resource;
use nix::sys::resource::getrlimit;
use serde::Serialize;
use verbgate_host::rdma;
use verbgate_host::rdma::Mode;
use verbgate_netdev::Error;
use verbgate_netdev::journal;
use verbgate_netdev::plan;
use verbgate_netdev::probe;
use verbgate_netdev::select::route_to;
use verbgate_oci::Globals;
use verbgate_sys::sandbox::probe as kernel;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::Device;
use verbgate_sysfs::discover::ETHERNET;

use crate::cli::DoctorArgs;
use crate::cli::HostArgs;
use crate::engines;
use crate::failure::Failure;
use crate::features;
use crate::fences;
use crate::output::print_json;
use verbgate_host::output::print;

/// MTU of a link for RoCE's largest packets: 4096 bytes and their headers.
const ROCE_MTU: u32 = 4200;
/// Membership in a partition: the top bit of a partition key (InfiniBand specification, 10.9.1.1).
const FULL_MEMBER: u16 = 0x8000;
/// Time for a peer to answer.
const ECHO: Duration = Duration::from_secs(3);
/// Number of names in a line.
const SHOWN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Verdict {
    Pass,
    Warn,
    Fail,
}

/// One prerequisite.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) verdict: Verdict,
    pub(crate) name: &'static str,
    pub(crate) found: String,
    /// The remedy; empty where there is nothing to do.
    pub(crate) remedy: &'static str,
}

pub(crate) fn pass(name: &'static str, found: impl Into<String>) -> Check {
    Check { verdict: Verdict::Pass, name, found: found.into(), remedy: "" }
}

pub(crate) fn warn(name: &'static str, found: impl Into<String>, remedy: &'static str) -> Check {
    Check { verdict: Verdict::Warn, name, found: found.into(), remedy }
}

pub(crate) fn fail(name: &'static str, found: impl Into<String>, remedy: &'static str) -> Check {
    Check { verdict: Verdict::Fail, name, found: found.into(), remedy }
}

/// Prints all checks; the exit code is 1 if one failed.
pub(crate) fn run(args: &DoctorArgs, globals: &Globals) -> Result<u8, Failure> {
    let checks = checks(&args.host, args.peer, globals)?;
    if args.json {
        print_json(&checks)?;
    } else {
        print(&text(&checks))?;
    }
    Ok(u8::from(checks.iter().any(|check| check.verdict == Verdict::Fail)))
}

/// A line for each check, and one below it for the remedy.
pub(crate) fn text(checks: &[Check]) -> String {
    let lines = checks.iter().map(|check| {
        let verdict = match check.verdict {
            Verdict::Pass => "PASS",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
        };
        let remedy = match check.remedy {
            "" => String::new(),
            remedy => format!("     remedy: {remedy}\n"),
        };
        format!("{verdict} {}: {}\n{remedy}", check.name, check.found)
    });
    lines.collect()
}

/// All checks, in the order in which one would repair.
pub(crate) fn checks(
    host: &HostArgs,
    peer: Option<IpAddr>,
    globals: &Globals,
) -> Result<Vec<Check>, Error> {
    // First, because it forks, which only a process with one thread may.
    let missing = features::missing();
    let devices = discover::devices(&host.sysfs_root);
    let mut checks = vec![
        privilege(),
        kernel_features(&missing),
        fuse(),
        memlock(),
        rdma_devices(&devices),
        namespaces(),
        left_over(&host.state_dir)?,
        container_networks(&host.state_dir, globals),
    ];
    checks.extend(engines::checks(!devices.is_empty()));
    if !devices.is_empty() {
        checks.push(ports(&devices));
        checks.extend(gids(&devices));
    }
    checks.extend(partitions(&devices));
    checks.extend(hardware::checks(&host.sysfs_root, &devices)?);
    checks.extend(mtu(&devices)?);
    if let Some(peer) = peer {
        checks.push(bootstrap(peer)?);
    }
    Ok(checks)
}

fn privilege() -> Check {
    match kernel::is_privileged() {
        true => pass("privilege", "CAP_SYS_ADMIN"),
        false => fail("privilege", "not root", "moving NICs needs CAP_SYS_ADMIN and CAP_NET_ADMIN"),
    }
}

fn kernel_features(missing: &[(&str, &str)]) -> Check {
    let (version, arch) = kernel::kernel();
    if missing.is_empty() {
        return pass("kernel", format!("Linux {version} {arch} has all that is needed"));
    }
    let lacks: Vec<String> = missing.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    let remedy = "Linux 5.19 or newer, outside of a container that forbids seccomp listeners; \
                  see: verbgate features";
    fail("kernel", format!("missing on Linux {version} {arch}: {}", lacks.join(", ")), remedy)
}

fn fuse() -> Check {
    match Path::new("/dev/fuse").exists() {
        true => pass("fuse", "/dev/fuse"),
        false => warn("fuse", "no /dev/fuse", "modprobe fuse; FUSE serves the virtual /sys"),
    }
}

fn memlock() -> Check {
    const NAME: &str = "memlock";
    let remedy = "ulimit -l unlimited, LimitMEMLOCK=infinity in systemd units, --ulimit memlock=-1 \
                  for docker; with too little, NCCL uses sockets without a warning";
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) => pass(NAME, "unlimited"),
        Ok((soft, _)) => warn(NAME, format!("{} KiB", soft / 1024), remedy),
        Err(e) => warn(NAME, format!("unknown: {e}"), remedy),
    }
}

fn rdma_devices(devices: &[Device]) -> Check {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    match names.is_empty() {
        false => pass("RDMA devices", some(&names)),
        true => fail(
            "RDMA devices",
            "none",
            "load the NIC's RDMA driver (mlx5_ib, irdma, bnxt_re) and ib_uverbs; see: rdma link",
        ),
    }
}

fn ports(devices: &[Device]) -> Check {
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
    match down.is_empty() {
        true => pass("ports", "all ACTIVE"),
        false => warn("ports", some(&down), "cable, switch port, ip link set NETDEV up"),
    }
}

/// RoCE ports that nothing can be sent from.
fn gids(devices: &[Device]) -> Option<Check> {
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
        true => pass("GIDs", "every RoCE port has a routable RoCE v2 GID"),
        false => warn(
            "GIDs",
            format!("no routable RoCE v2 GID on {}", some(&without)),
            "give the netdev an address, or find the netdev: verbgate netdev status",
        ),
    })
}

fn namespaces() -> Check {
    const NAME: &str = "RDMA namespaces";
    match rdma::mode() {
        Mode::Shared => pass(NAME, "shared: netdevs are moved, RDMA devices are not"),
        Mode::Exclusive => pass(NAME, "exclusive: RDMA devices are moved with their netdevs"),
        Mode::Unknown => {
            warn(NAME, "the kernel does not tell", "modprobe ib_core, and: rdma system")
        }
    }
}

fn left_over(state_dir: &Path) -> Result<Check, Error> {
    const NAME: &str = "journal";
    Ok(match journal::load(state_dir)? {
        None => pass(NAME, "all NICs are home"),
        Some(journal) if journal.complete => pass(NAME, format!("away: {}", journal.names())),
        Some(journal) => fail(
            NAME,
            format!("a move of {} was interrupted", journal.names()),
            "verbgate netdev restore",
        ),
    })
}

fn container_networks(state_dir: &Path, globals: &Globals) -> Check {
    const NAME: &str = "container networks";
    match fences::look(state_dir, globals) {
        (0, open) if open.is_empty() => pass(NAME, "none has a NIC or RDMA"),
        (fenced, open) if open.is_empty() => {
            pass(NAME, format!("{fenced} with NICs or RDMA, all fenced"))
        }
        (_, open) => warn(
            NAME,
            open.join("; "),
            "modprobe nf_tables and nft_fib_inet; give containers network namespaces of their own, \
             and NICs by verbgate netdev (move or share) or the annotation org.verbgate.netdevs, all \
             of which make the rules; start containers without NET_ADMIN and NET_RAW (verbgate oci \
             drops both unless --keep-cap says otherwise)",
        ),
    }
}

/// InfiniBand peers must have a partition in common, of which one is a full member.
fn partitions(devices: &[Device]) -> Option<Check> {
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
        true => pass("partitions", found),
        false => fail(
            "partitions",
            format!("a port is full member of none ({found})"),
            "have the subnet manager make the port a full member; limited members cannot talk to \
             each other",
        ),
    })
}

fn mtu(devices: &[Device]) -> Result<Option<Check>, Error> {
    let links = plan::links()?;
    let is_rdma = |name: &String| devices.iter().any(|device| device.port_of(name).is_some());
    let small: Vec<String> = links
        .iter()
        .filter(|link| is_rdma(&link.name) && link.mtu < ROCE_MTU)
        .map(|link| format!("{} {}", link.name, link.mtu))
        .collect();
    let small: Vec<&str> = small.iter().map(String::as_str).collect();
    if !links.iter().any(|link| is_rdma(&link.name)) {
        return Ok(None);
    }
    Ok(Some(match small.is_empty() {
        true => pass("MTU", format!("at least {ROCE_MTU} on all NICs with RDMA")),
        false => warn("MTU", some(&small), "ip link set NETDEV mtu 9000, on the switch, too"),
    }))
}

/// Whether packets of full size reach the peer: a tunnel on the way swallows them at times.
fn bootstrap(peer: IpAddr) -> Result<Check, Error> {
    const NAME: &str = "bootstrap path";
    let device = route_to(&mut plan::open()?, peer, None);
    let links = plan::links()?;
    let Some(link) = links.iter().find(|link| Some(link.index) == device) else {
        return Ok(fail(NAME, format!("no route to {peer}"), "ip route get, on this node"));
    };
    let small = probe::echoes(None, peer, probe::SMALL, ECHO);
    if !matches!(small, Ok(true)) {
        let remedy = "is the peer up, and does a firewall drop ICMP?";
        return Ok(fail(NAME, format!("{peer} does not answer by {}", link.name), remedy));
    }
    let mtu = link.mtu.min(u16::MAX.into());
    Ok(match probe::echoes(None, peer, mtu, ECHO) {
        Ok(true) => pass(NAME, format!("{peer} by {}, MTU {mtu}", link.name)),
        _ => fail(
            NAME,
            format!("{peer} answers by {}, but not packets of that device's MTU {mtu}", link.name),
            "lower the MTU of that device to the MTU of the path (a tunnel takes some 40 to 80)",
        ),
    })
}

/// The first few names.
fn some(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN).copied().collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
