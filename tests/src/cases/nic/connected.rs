//! Programs on reliable connections: natively and sandboxed, with the same status and output.
//!
//! Where the device speaks RoCE v2 (drivers since 6.14), programs tell each other of their queue pairs as
//! they like; where it speaks iWARP, only the connection manager connects them.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Meeting;
use super::Two;
use super::address;
use super::fabric;
use super::faults::Kind;
use super::shell;
use super::traffic::Native;
use super::traffic::Native::May;
use super::traffic::Native::Must;
use super::traffic::RESULT;
use super::traffic::devices;
use super::traffic::moved;
use super::traffic::netlink;
use super::traffic::over_a_bad_wire;
use crate::cases::Verdict;
use crate::cases::verbs::compare;
use crate::pair::BothEnded;
use crate::pair::Pair;
use crate::pair::by_manager;
use crate::shape;
use crate::world::Place;
use crate::world::World;

use Meeting::Manager;
use Meeting::Socket;

// Perftest has no events for one-sided traffic, and drivers before 6.3 no atomics.
#[rustfmt::skip]
const EXCHANGES: &[(&str, Meeting, Native, &[&str])] = &[
    ("nic_rc_pingpong",          Socket,  Must, &["ibv_rc_pingpong", "-n", "200"]),
    ("nic_rc_pingpong_e",        Socket,  Must, &["ibv_rc_pingpong", "-n", "200", "-e"]),
    ("nic_rc_pingpong_checked",  Socket,  Must, &["ibv_rc_pingpong", "-n", "200", "-c"]),
    ("nic_rc_srq_pingpong",      Socket,  May,  &["ibv_srq_pingpong", "-n", "20"]),
    ("nic_rc_uc_pingpong",       Socket,  May,  &["ibv_uc_pingpong", "-n", "20"]),
    ("nic_rc_send_lat",          Socket,  Must, &["ib_send_lat", "-n", "300", "-s", "64"]),
    ("nic_rc_send_bw",           Socket,  Must, &["ib_send_bw", "-n", "300", "-s", "65536"]),
    ("nic_rc_write_lat",         Socket,  Must, &["ib_write_lat", "-n", "300", "-s", "64"]),
    ("nic_rc_write_bw",          Socket,  Must, &["ib_write_bw", "-n", "300", "-s", "65536"]),
    ("nic_rc_read_lat",          Socket,  Must, &["ib_read_lat", "-n", "300", "-s", "64"]),
    ("nic_rc_read_bw",           Socket,  Must, &["ib_read_bw", "-n", "300", "-s", "65536"]),
    ("nic_rc_atomic_lat",        Socket,  Must, &["ib_atomic_lat", "-n", "300"]),
    ("nic_rc_cm_send_lat",       Manager, Must, &["ib_send_lat", "-n", "300", "-s", "64"]),
    ("nic_rc_cm_send_lat_inline", Manager, Must, &["ib_send_lat", "-n", "300", "-s", "64", "-I", "64"]),
    ("nic_rc_cm_send_bw",        Manager, Must, &["ib_send_bw", "-n", "300", "-s", "65536"]),
    ("nic_rc_cm_send_bw_e",      Manager, Must, &["ib_send_bw", "-n", "300", "-s", "4096", "-e"]),
    ("nic_rc_cm_send_bw_q",      Manager, Must, &["ib_send_bw", "-n", "100", "-s", "1024", "-q", "8"]),
    ("nic_rc_cm_write_lat",      Manager, Must, &["ib_write_lat", "-n", "300", "-s", "64"]),
    ("nic_rc_cm_write_bw",       Manager, Must, &["ib_write_bw", "-n", "300", "-s", "65536"]),
    ("nic_rc_cm_write_bw_inline", Manager, Must, &["ib_write_bw", "-n", "300", "-s", "64", "-I", "64"]),
    ("nic_rc_cm_read_lat",       Manager, Must, &["ib_read_lat", "-n", "300", "-s", "64"]),
    ("nic_rc_cm_read_bw",        Manager, Must, &["ib_read_bw", "-n", "100", "-s", "1048576"]),
    ("nic_rc_cm_atomic_bw",      Manager, May,  &["ib_atomic_bw", "-n", "300"]),
];

/// Programs of rdma_cm: what both ends are told, the server and the client besides. `@` stands for the
/// server's address, and `^` for the client's own.
type Exchange =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

#[rustfmt::skip]
const BY_MANAGER: &[Exchange] = &[
    ("nic_rc_rping",    &["rping", "-C", "5", "-v", "-a", "@"], &["-s"], &["-c", "-I", "^"]),
    ("nic_rc_ucmatose", &["ucmatose", "-c", "2", "-C", "5"], &["-b", "@"], &["-b", "^", "-s", "@"]),
];

/// A GID that is none.
const NO_GID: &str = ":0000:0000:0000:0000:0000:0000:0000:0000";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("nic_rc_devices", devices),
        Case::new("nic_rc_netlink_names_what_is_granted", netlink),
        Case::new("nic_rc_sysfs_is_the_machines_own", same_attributes),
    ];
    cases.extend(EXCHANGES.iter().map(|(name, meeting, native, argv)| {
        Case::new(name, move |world| same_exchange(world, *meeting, *native, argv))
    }));
    cases.extend(
        BY_MANAGER.iter().map(|it| Case::new(it.0, move |world| same_by_manager(world, it))),
    );
    cases.push(Case::new("nic_rc_read_over_a_bad_wire", bad_wire));
    cases.push(Case::new("nic_rc_data_in_memory_of_all_kinds", |world| {
        streams_only(world).map_or_else(|| moved(world, false), Ok)
    }));
    cases.push(Case::new("nic_rc_fabric_verify", fabric_verify));
    cases
}

/// The reason to skip what needs connections that programs make themselves.
fn streams_only(world: &World) -> Option<Verdict> {
    let reason = "the driver of this kernel speaks iWARP alone, which only rdma_cm connects";
    world.gid_index.is_none().then(|| Verdict::Skipped(reason.to_owned()))
}

/// A program of perftest or a ping-pong on both devices, to its end.
fn exchange(two: &Two, place: Place, meeting: Meeting, argv: &[&str]) -> Result<BothEnded> {
    let is_perftest = argv.first().is_some_and(|name| name.starts_with("ib_"));
    let index = two.left.gid_index.unwrap_or(0).to_string();
    let more: &[&str] = match (is_perftest, meeting) {
        (true, Manager) => &["-F"],
        (true, Socket) => &["-F", "-x", &index],
        (false, _) => &["-g", &index],
    };
    let argv = [argv, more].concat();
    let pair = two.start(meeting, &argv, |role, words| two.end(role).command(place, words))?;
    pair.wait()
}

fn bad_wire(world: &World) -> Result<Verdict> {
    let two = Two::look(world)?;
    let argv = ["ib_read_bw", "-n", "500", "-s", "8192"];
    over_a_bad_wire(|place| exchange(&two, place, Kind::of_connections(world).meeting, &argv))
}

fn same_exchange(
    world: &World,
    meeting: Meeting,
    success: Native,
    argv: &[&str],
) -> Result<Verdict> {
    let two = Two::look(world)?;
    if let (Socket, Some(skipped)) = (meeting, streams_only(world)) {
        return Ok(skipped);
    }
    let is_perftest = argv.first().is_some_and(|name| name.starts_with("ib_"));
    let run = |place| exchange(&two, place, meeting, argv);
    let native = run(Place::Native).context("natively")?;
    let measured = !is_perftest || native.client.stdout.contains(RESULT);
    if success == Must && (native.client.status != 0 || !measured) {
        bail!("natively {}\nand its server {}", native.client, native.server);
    }
    same(&native, &run(Place::Sandbox).context("in two sandboxes")?)
}

pub(super) fn same(native: &BothEnded, inside: &BothEnded) -> Result<Verdict> {
    for (end, native, inside) in [
        ("the client", &native.client, &inside.client),
        ("the server", &native.server, &inside.server),
    ] {
        compare(native, inside, shape::difference).context(end)?;
    }
    Ok(Verdict::Ok)
}

fn same_by_manager(world: &World, (_, both, server, client): &Exchange) -> Result<Verdict> {
    let two = Two::look(world)?;
    let (at, own) = (address(&two.left)?, address(&two.right)?);
    let run = |place| {
        let words = |more: &[&'static str]| {
            let words = both.iter().chain(more).map(|word| match *word {
                "@" => at.clone(),
                "^" => own.clone(),
                word => word.to_owned(),
            });
            words.collect::<Vec<String>>()
        };
        let command = |world: &World, words: Vec<String>| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            world.command(place, &words)
        };
        by_manager(both.first().unwrap_or(&""), || {
            let client = command(&two.right, words(client))?;
            Pair::meet(&two.left.device, command(&two.left, words(server))?, client)?.wait()
        })
    };
    let native = run(Place::Native).context("natively")?;
    if native.client.status != 0 {
        bail!("natively {}\nand its server {}", native.client, native.server);
    }
    same(&native, &run(Place::Sandbox).context("in two sandboxes")?)
}

/// All of the RDMA device, which has no PCI function above it: the driver gives it none.
fn same_attributes(world: &World) -> Result<Verdict> {
    let script = format!(
        "cd /sys/class/infiniband/{device} || exit 1
         grep -r --exclude-dir=power --exclude-dir=hw_counters '' . 2>&1 | sort",
        device = world.device
    );
    let native = shell(world, Place::Native, &script)?.expect_status(0)?;
    let inside = shell(world, Place::Sandbox, &script)?.expect_status(0)?;
    // Of a table of GIDs, what is empty is not shown in a sandbox.
    let is_empty = |line: &&str| line.ends_with("Invalid argument") || line.ends_with(NO_GID);
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !is_empty(line)).map(ToOwned::to_owned).collect()
    };
    let (native, inside) = (lines(&native.stdout), lines(&inside.stdout));
    let missing = native.iter().find(|line| !inside.contains(line));
    let more = inside.iter().find(|line| !native.contains(line));
    match (missing, more, native.len() > 10) {
        (None, None, true) => Ok(Verdict::Ok),
        _ => bail!("of {} lines a sandbox misses {missing:?} and has {more:?}", native.len()),
    }
}

/// Two ranks, each on a device of its own.
fn fabric_verify(world: &World) -> Result<Verdict> {
    let two = Two::look(world)?;
    match streams_only(world) {
        Some(skipped) => Ok(skipped),
        None => fabric::of_two(&two, &["verify"], 0, &["verify: all is well"]),
    }
}
