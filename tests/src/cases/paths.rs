//! Values by which a tenant reaches what is others': the fabric's own queue pairs, other classes of traffic,
//! another's address as a source, another's memory by its keys.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::nodes::Namespace;
use super::nodes::SPARE_NETDEV;
use super::nodes::ip;
use super::tenants::Script;
use super::tenants::run;
use crate::exec;
use crate::exec::Program;
use crate::world::Place;
use crate::world::World;
use crate::world::new_listener;

/// Another tenant's link upon the port's network device, its address, and its namespace.
const LINK: &str = "verbgate-m";
const OTHER: &str = "10.99.0.77";
const NAMESPACE: &str = "verbgate-other";
/// Where nobody is.
const NOBODY: &str = "10.99.0.9";
/// Service level and traffic class of the tenant's policy.
const POLICY: &str = "version = 1\n[tenant.own]\nmatch.uid = 0\nprofile = \"standard\"\n\
    devices = [{ name = \"*\" }]\n[tenant.own.rules]\nservice_level = { only = [0] }\n\
    traffic_class = { only = [0, 0x68] }\n";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("tenant_names_paths_that_are_the_fabrics", paths),
        Case::new("tenant_sends_from_the_address_of_another", forged),
        Case::new("tenant_uses_the_keys_of_another", keys),
        Case::new("tenant_connects_by_rdma_cm_and_the_audit_says_with_whom", connects),
    ]
}

fn gid_index(world: &World) -> Result<String> {
    Ok(world.gid_index.context("the device has no GID of an IPv4 address")?.to_string())
}

/// The queue pair of the fabric's manager, and service levels and traffic classes of others.
fn paths(world: &World) -> Result<Verdict> {
    let script = Script::new()?;
    let policies = script.folder("policy.d")?;
    fs::write(policies.join("own.toml"), POLICY)?;
    let policies = policies.to_str().context("an odd path")?.to_owned();
    let (index, gid) = (gid_index(world)?, format!("::ffff:{}", world.address()?));
    // A queue pair's number, service level and traffic class.
    let own = ["77", "0", "104"];
    for (path, errno) in [
        (own, "0"),
        (["1", "0", "104"], "EPERM"),
        (["0", "0", "104"], "EPERM"),
        (["77", "5", "104"], "EPERM"),
        (["77", "0", "184"], "EPERM"),
    ] {
        let argv = script.argv(&[&["path", &world.device, &index, &gid][..], &path].concat());
        let native = run(world, Place::Native, &argv)?.expect_status(0)?;
        if native.stdout.trim() != "0" {
            bail!("the attempt is void: natively {path:?} ends with {native}");
        }
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let inside = world.sandbox(&["--policy-dir", &policies], &argv);
        let inside = exec::run(inside)?.expect_status(0)?;
        if inside.stdout.trim() != errno {
            bail!("inside {path:?} is to end with {errno}, and ends so: {inside}");
        }
    }
    Ok(Verdict::Ok)
}

/// Whom a client of rdma_cm connects with is in the audit, and so is what a policy about peers refuses.
fn connects(world: &World) -> Result<Verdict> {
    let script = Script::new()?;
    let (policies, audit) = (script.folder("policy.d")?, script.folder("audit")?.join("lines"));
    let rules = |peers: &str| {
        let rules = format!("{POLICY}peers = [\"{peers}\"]\n");
        fs::write(policies.join("own.toml"), rules)
    };
    let [folder, log] = [&policies, &audit].map(|path| path.to_string_lossy().into_owned());
    let address = world.address()?;
    let options = ["--policy-dir", &*folder, "--audit", &*log];
    let client = ["ucmatose", "-c", "1", "-C", "2", "-s", &*address];
    for (peers, place) in [
        (None, Place::Native),
        (Some("10.99.0.0/16"), Place::Sandbox),
        (Some("10.7.0.0/16"), Place::Sandbox),
    ] {
        let listens = new_listener(&world.device);
        let argv = ["ucmatose", "-c", "1", "-C", "2", "-b", &address];
        let mut server = Program::start(world.command(Place::Native, &argv)?)?;
        exec::wait_until("a server that listens", || Ok(listens() || server.has_ended()?))?;
        if let Some(peers) = peers {
            rules(peers)?;
        }
        let command = match place {
            Place::Native => world.command(place, &client)?,
            Place::Sandbox => world.sandbox(&options, &client),
        };
        let ended = exec::run(command)?;
        if peers != Some("10.7.0.0/16") {
            ended.expect_status(0)?;
            server.wait()?.expect_status(0)?;
            continue;
        }
        server.kill_alone()?;
        if ended.status == 0 {
            bail!("a peer outside of {peers:?} is reached: {ended}");
        }
    }
    let text = fs::read_to_string(&audit)?;
    let told =
        |words: &[&str]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    let peer = format!("\"peer\":[\"::ffff:{address}\"]");
    let tenant = "\"tenant\":\"own\"";
    if !told(&["\"event\":\"connect\"", "CM_CONNECT", "\"errno\":\"0\"", &peer, tenant])
        || !told(&[
            "\"event\":\"refused\"",
            "peer not granted",
            "EPERM",
            "rules.peers",
            &peer,
            tenant,
        ])
    {
        bail!("the audit: {text}");
    }
    Ok(Verdict::Ok)
}

/// Another tenant's link upon the port's network device; removed with this.
struct Other;

impl Other {
    fn new(netdev: &str) -> Result<Self> {
        ip(&["link", "add", LINK, "link", netdev, "type", "macvlan", "mode", "bridge"])?;
        let other = Self;
        other.dress(&[])?;
        Ok(other)
    }

    fn dress(&self, within: &[&str]) -> Result<()> {
        let of = |words: &[&str]| ip(&[within, words].concat()).map(drop);
        of(&["address", "add", &format!("{OTHER}/24"), "dev", LINK])?;
        of(&["link", "set", LINK, "up"])
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may be in the namespace, whose end is its own.
        let _ = ip(&["link", "del", LINK]);
    }
}

/// The index of the other's address in the port's table.
fn index_of(port: &Path) -> Result<String> {
    let wanted: Ipv6Addr = format!("::ffff:{OTHER}").parse()?;
    let mut found = None;
    exec::wait_until("the other tenant's GID", || {
        for entry in fs::read_dir(port.join("gids"))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let gid: Ipv6Addr = fs::read_to_string(entry.path())?.trim().parse()?;
            let kind = fs::read_to_string(port.join("gid_attrs/types").join(&name));
            if gid == wanted && kind.is_ok_and(|kind| kind.trim() == "RoCE v2") {
                found = Some(name);
            }
        }
        Ok(found.is_some())
    })?;
    found.context("no GID")
}

/// A datagram whose work request names another's address as its source.
fn forged(world: &World) -> Result<Verdict> {
    if !fs::exists(format!("/sys/class/net/{SPARE_NETDEV}"))? {
        return Ok(Verdict::Skipped(format!("needs a second network device ({SPARE_NETDEV})")));
    }
    let port = Path::new("/sys/class/infiniband").join(&world.device).join("ports/1");
    let index = gid_index(world)?;
    let netdev = fs::read_to_string(port.join("gid_attrs/ndevs").join(&index))?.trim().to_owned();
    let script = Script::new()?;
    let gid = format!("::ffff:{NOBODY}");
    let forge = |place, index: &str| -> Result<String> {
        let argv = script.argv(&["forge", &world.device, index, &gid, SPARE_NETDEV]);
        Ok(run(world, place, &argv)?.expect_status(0)?.stdout.trim().to_owned())
    };
    let other = Other::new(&netdev)?;
    for dev in [&*netdev, LINK] {
        ip(&["neigh", "replace", NOBODY, "lladdr", "02:00:00:00:00:09", "dev", dev])?;
    }
    let sent = forge(Place::Native, &index_of(&port)?);
    ip(&["neigh", "del", NOBODY, "dev", &netdev])?;
    let sent = sent?;
    if sent != format!("from {OTHER}") {
        bail!("the attempt is void: natively {sent}");
    }
    let namespace = Namespace::new(NAMESPACE)?;
    ip(&["link", "set", LINK, "netns", NAMESPACE])?;
    other.dress(&["-n", NAMESPACE])?;
    let foreign = index_of(&port)?;
    for index in [&*foreign, &*index] {
        let inside = forge(Place::Sandbox, index)?;
        // One number has two names.
        if !["queue-pair ENOTSUP", "queue-pair EOPNOTSUPP"].contains(&&*inside) {
            bail!("where another speaks by the port, a queue pair of datagrams: {inside}");
        }
    }
    drop(namespace);
    drop(other);
    Ok(Verdict::Ok)
}

/// The keys of another's memory in work requests, which no supervisor sees: the device knows whose they are,
/// natively, too.
fn keys(world: &World) -> Result<Verdict> {
    let script = Script::new()?;
    let index = gid_index(world)?;
    let words = ["server", &world.device, &index];
    let mut owner = script.start(world, Place::Sandbox, "owner", &words)?;
    let said = owner.hear()?;
    let [_, rkey, address] = *said.split(' ').collect::<Vec<_>>() else {
        bail!("it says {said:?}")
    };
    let lkey = owner.ask("lkey")?;
    let argv = script.argv(&["keys", &world.device, &index, &lkey, rkey, address]);
    for place in [Place::Native, Place::Sandbox] {
        let ended = run(world, place, &argv)?.expect_status(0)?;
        // Of its own side Soft-RoCE says LOC_QP_OP_ERR, LOC_PROT_ERR or WR_FLUSH_ERR (6.12); of the other,
        // REM_ACCESS_ERR.
        if !["status 2 10", "status 4 10", "status 5 10"].contains(&ended.stdout.trim()) {
            bail!("{place:?}: by the keys of another: {ended}");
        }
    }
    owner.expect("show", "holds nothing")?;
    Ok(Verdict::Ok)
}
