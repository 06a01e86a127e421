//! Programs on InfiniBand ports (ConnectX): natively and sandboxed, with the same status and output. Programs
//! find each other by LIDs; there is no network interface, and nobody manages the subnet.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Meeting;
use super::Two;
use super::ask;
use super::connected;
use super::sysfs;
use super::traffic::RESULT;
use super::traffic::devices;
use super::traffic::moved;
use super::traffic::netlink;
use super::traffic::over_a_bad_wire;
use crate::cases::Verdict;
use crate::cases::verbs::compare;
use crate::exec;
use crate::pair::BothEnded;
use crate::shape;
use crate::world::Place;
use crate::world::World;

#[rustfmt::skip]
const EXCHANGES: &[(&str, &[&str])] = &[
    ("nic_mlx5_rc_pingpong_e", &["ibv_rc_pingpong", "-n", "200", "-e", "-c"]),
    ("nic_mlx5_uc_pingpong",   &["ibv_uc_pingpong", "-n", "20"]),
    ("nic_mlx5_ud_pingpong",   &["ibv_ud_pingpong", "-n", "100"]),
    ("nic_mlx5_srq_pingpong",  &["ibv_srq_pingpong", "-n", "20"]),
    ("nic_mlx5_write_bw",      &["ib_write_bw", "-n", "200", "-s", "65536", "-F"]),
    ("nic_mlx5_atomic_lat",    &["ib_atomic_lat", "-n", "200", "-F"]),
];

/// Objects that a program makes by itself: queues in its own memory, their doorbells, events, commands that
/// are not waited for, general objects, rates.
const DEVX: &str = include_str!("../../../scripts/devx.py");
/// What the program must have seen natively, or the case shows nothing.
const DEVX_SEEN: &[&str] = &[
    "queue pair is in state: 3",
    "event is of: 0xc0ffee",
    "completions: [0, 2]",
    "message: made by the program itself",
    "message: from the device's own memory",
    "domain of XRC's: ok",
    "answer tells the state: 3",
    "general object says: 0x1234",
    "memory in use: Device or resource busy",
    "end of memory: it was executed",
];

/// What the kernel and the device keep besides queues: rules for packets, counters, doorbells of virtio
/// queues, operations on memory of the device; and what an older library asks.
const STEERING: &str = include_str!("../../../scripts/steering.py");
const STEERING_SEEN: &[&str] = &[
    "a rule with a change of headers: ok",
    "an anchor: ok",
    "what was counted: ok",
    "end of counters that a rule uses: Device or resource busy",
    "end of a rule of the kernel's: ok",
    "end of another matcher: ok",
    "doorbells, in bytes: 4096",
    "forty and two: 42",
    // A context by INVOKE_WRITE is made before Linux 7 alone.
    "what the context has: ok",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("nic_mlx5_devices", devices),
        Case::new("nic_mlx5_netlink_names_what_is_granted", netlink),
        Case::new("nic_mlx5_sysfs_is_the_machines_own", sysfs::same_attributes),
    ];
    cases.extend(
        EXCHANGES
            .iter()
            .map(|(name, argv)| Case::new(name, move |world| same_exchange(world, argv))),
    );
    cases.push(Case::new("nic_mlx5_read_over_a_bad_wire", bad_wire));
    // The driver takes a dma-buf where work requests may change the pages of a region (UMR), which the model
    // does not offer.
    cases.push(Case::new("nic_mlx5_data_in_memory_of_all_kinds", |world| moved(world, false)));
    cases.push(Case::new("nic_mlx5_devx", devx));
    cases.push(Case::new("nic_mlx5_steering", steering));
    cases.push(Case::new("nic_mlx5_xrc_domain_is_one_sandboxs", domains));
    cases.push(Case::new("nic_mlx5_nothing_is_left_of_a_killed_sandbox", nothing_left));
    cases
}

fn exchange(two: &Two, place: Place, argv: &[&str]) -> Result<BothEnded> {
    let launch = |role, words: &[&str]| two.end(role).command(place, words);
    two.start(Meeting::Socket, argv, launch)?.wait()
}

fn bad_wire(world: &World) -> Result<Verdict> {
    let two = Two::look(world)?;
    let argv = ["ib_read_bw", "-n", "500", "-s", "8192", "-F"];
    over_a_bad_wire(|place| exchange(&two, place, &argv))
}

fn same_exchange(world: &World, argv: &[&str]) -> Result<Verdict> {
    let two = Two::look(world)?;
    let is_perftest = argv.first().is_some_and(|name| name.starts_with("ib_"));
    let run = |place| exchange(&two, place, argv);
    let native = run(Place::Native).context("natively")?;
    let measured = !is_perftest || native.client.stdout.contains(RESULT);
    if native.client.status != 0 || native.server.status != 0 || !measured {
        bail!("natively {}\nand its server {}", native.client, native.server);
    }
    connected::same(&native, &run(Place::Sandbox).context("in two sandboxes")?)
}

fn devx(world: &World) -> Result<Verdict> {
    same_script(world, DEVX, DEVX_SEEN)?;
    let argv = ["python3", "-c", DEVX, &world.device];
    let refused = exec::run(world.command(Place::Sandbox, &argv)?)?;
    if refused.status == 0 || refused.stdout.contains("queue pair") {
        bail!("the usual profile lets a program make objects by itself: {refused}");
    }
    Ok(Verdict::Ok)
}

fn steering(world: &World) -> Result<Verdict> {
    same_script(world, STEERING, STEERING_SEEN)?;
    // Without the capability, a sandbox steers nobody's packets, whatever its profile.
    let argv = ["python3", "-c", STEERING, &world.device];
    let without = exec::run(world.sandbox(&["--profile", "full"], &argv))?;
    let rules = ["a rule: ok", "an anchor: ok", "a rule of the kernel's: ok"];
    if without.status != 0 || rules.iter().any(|rule| without.stdout.lines().any(|l| l == *rule)) {
        bail!("a sandbox without CAP_NET_RAW makes rules for packets: {without}");
    }
    Ok(Verdict::Ok)
}

/// A script says the same natively and in a sandbox that may do everything, natively also these lines, and
/// leaves nothing in the device.
fn same_script(world: &World, script: &str, seen: &[&str]) -> Result<()> {
    let before = ask("census 0")?;
    let argv = ["python3", "-c", script, &world.device];
    let native = exec::run(world.command(Place::Native, &argv)?)?.expect_status(0)?;
    if let Some(missing) = seen.iter().find(|line| !native.stdout.contains(**line)) {
        bail!("natively there is no {missing:?}: {native}");
    }
    // No narrower profile grants DEVX: its commands are opaque. Raw packets need the capability, too.
    let all = ["--profile", "full", "--keep-cap", "NET_RAW"];
    let inside = exec::run(world.sandbox(&all, &argv))?;
    compare(&native, &inside, shape::exact_difference)?;
    exec::wait_until("the same objects as before", || Ok(ask("census 0")? == before))
}

/// Opens the XRC domain of a file, says how that ended, and keeps the domain.
const DOMAIN: &str = "import os, signal, sys\n\
    from pyverbs.device import Context\n\
    from pyverbs.xrcd import XRCD, XRCDInitAttr\n\
    from pyverbs.pyverbs_error import PyverbsRDMAError\n\
    context, fd = Context(name=sys.argv[1]), os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)\n\
    try:\n    domain = XRCD(context, XRCDInitAttr(3, os.O_CREAT, fd))\n    print('opened', flush=True)\n\
    except PyverbsRDMAError as error:\n    print(os.strerror(error.error_code), flush=True)\n\
    signal.pause()\n";

/// A file that two programs open names one XRC domain for both; of two sandboxes, for the first alone.
fn domains(world: &World) -> Result<Verdict> {
    let folder = tempfile::tempdir()?;
    let start = |place, file: &str| -> Result<(exec::Program, String)> {
        let file = folder.path().join(file);
        let file = file.to_str().context("an odd path")?;
        let argv = ["python3", "-c", DOMAIN, &world.device, file];
        let command = match place {
            Place::Native => world.command(place, &argv)?,
            Place::Sandbox => world.sandbox(&["--profile", "hpc"], &argv),
        };
        let mut program = exec::Program::start(command)?;
        let mut said = String::new();
        exec::wait_until("a word of the domain", || {
            said = program.stdout_so_far()?.trim().to_owned();
            Ok(!said.is_empty() || program.has_ended()?)
        })?;
        Ok((program, said))
    };
    for (place, second) in [(Place::Native, "opened"), (Place::Sandbox, "Device or resource busy")]
    {
        let (one, first) = start(place, "shared")?;
        let (_other, said) = start(place, "shared")?;
        let (_third, own) = start(place, "own")?;
        if (first.as_str(), said.as_str(), own.as_str()) != ("opened", second, "opened") {
            bail!("{place:?}: {first:?}, by the same file {said:?}, by another {own:?}");
        }
        drop(one);
        exec::wait_until("the file to be free", || Ok(start(place, "shared")?.1 == "opened"))?;
    }
    Ok(Verdict::Ok)
}

/// The device's own count of objects, after a program in a sandbox was killed.
fn nothing_left(world: &World) -> Result<Verdict> {
    let before = ask("census 0")?;
    let argv = ["ibv_rc_pingpong", "-d", &world.device];
    let server = exec::Program::start(world.command(Place::Sandbox, &argv)?)?;
    exec::wait_until("objects of a program", || Ok(ask("census 0")? != before))?;
    drop(server);
    exec::wait_until("the same objects as before", || Ok(ask("census 0")? == before))?;
    Ok(Verdict::Ok)
}
