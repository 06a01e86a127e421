//! Programs that move data, natively and sandboxed, with the same status and output.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Two;
use super::ask;
use super::shell;
use crate::cases::Verdict;
use crate::cases::fabric::PROGRAM;
use crate::cases::verbs::compare;
use crate::exec;
use crate::exec::Program;
use crate::pair::BothEnded;
use crate::pair::Pair;
use crate::shape;
use crate::world::Place;
use crate::world::World;
use crate::world::free_port;

const MEMORY: &str = include_str!("../../../scripts/memory.py");
const MOVED: &str = include_str!("../../../scripts/moved.py");
const SUITE: &str = include_str!("../../../scripts/efa_tests.py");
/// Tests of the suite that must pass natively: a device that passes none proves nothing.
const SUITE_PASSES: usize = 12;

/// Whether a program must succeed natively. Drivers before 6.5 know no RDMA write, and perftest before
/// 6 has no events with SRD: then it must be refused in a sandbox in the same words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Native {
    Must,
    May,
}

use Native::May;
use Native::Must;

#[rustfmt::skip]
const EXCHANGES: &[(&str, Native, &[&str])] = &[
    ("nic_srd_send_lat",   Must, &["ib_send_lat", "-c", "SRD", "-n", "500", "-s", "64"]),
    ("nic_srd_send_bw",    Must, &["ib_send_bw", "-c", "SRD", "-n", "500", "-s", "8192"]),
    ("nic_srd_send_bw_e",  May,  &["ib_send_bw", "-c", "SRD", "-n", "500", "-s", "4096", "-e"]),
    ("nic_srd_send_bw_q",  Must, &["ib_send_bw", "-c", "SRD", "-n", "200", "-s", "1024", "-q", "8"]),
    ("nic_srd_read_lat",   Must, &["ib_read_lat", "-c", "SRD", "-n", "500", "-s", "64"]),
    ("nic_srd_read_bw",    Must, &["ib_read_bw", "-c", "SRD", "-n", "200", "-s", "1048576"]),
    ("nic_srd_write_lat",  May,  &["ib_write_lat", "-c", "SRD", "-n", "500", "-s", "64"]),
    ("nic_srd_write_bw",   May,  &["ib_write_bw", "-c", "SRD", "-n", "200", "-s", "65536"]),
    ("nic_ud_pingpong",    Must, &["ibv_ud_pingpong", "-g", "0", "-n", "200"]),
    ("nic_ud_pingpong_e",  Must, &["ibv_ud_pingpong", "-g", "0", "-n", "200", "-e"]),
];

/// Makes dma-bufs of a program's memory; Debian's 6.1 has none.
pub(super) const DMABUF_MAKER: &str = "/dev/udmabuf";

/// What must be in the output of perftest, which exits with 0 also when it measured nothing.
pub(super) const RESULT: &str = "#bytes";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("nic_devices", devices),
        Case::new("nic_netlink_names_what_is_granted", netlink),
        Case::new("nic_rdma_cores_own_tests", suite),
        Case::new("nic_memory_of_all_kinds", memory),
        Case::new("nic_data_in_memory_of_all_kinds", |world| moved(world, true)),
        Case::new("nic_dmabuf_is_its_holders", held),
        Case::new("nic_fabric_registers_dma_bufs", registered),
    ];
    cases.extend(EXCHANGES.iter().map(|(name, native, argv)| {
        Case::new(name, move |world| same_exchange(world, *native, argv))
    }));
    cases.push(Case::new("nic_srd_over_a_bad_wire", bad_wire));
    cases
}

pub(super) fn devices(world: &World) -> Result<Verdict> {
    let argv = ["ibv_devinfo", "-v", "-d", &world.device];
    let native = exec::run(world.command(Place::Native, &argv)?)?.expect_status(0)?;
    let inside = exec::run(world.command(Place::Sandbox, &argv)?)?;
    compare(&native, &inside, shape::exact_difference)?;
    Ok(Verdict::Ok)
}

/// libibverbs finds devices by netlink: exactly those that are granted.
pub(super) fn netlink(world: &World) -> Result<Verdict> {
    let inside = shell(world, Place::Sandbox, "ibv_devices; rdma link; rdma dev")?;
    let inside = inside.expect_status(0)?;
    let other = &Two::look(world)?.right.device;
    if inside.stdout.matches(&world.device).count() < 3 || inside.stdout.contains(other) {
        bail!("not {} alone: {inside}", world.device);
    }
    Ok(Verdict::Ok)
}

fn suite(world: &World) -> Result<Verdict> {
    let argv = ["python3", "-c", SUITE, &world.device];
    let mut said = Vec::new();
    for place in [Place::Native, Place::Sandbox] {
        let ended = exec::run(world.command(place, &argv)?)?.expect_status(0)?;
        let mut lines: Vec<String> = ended
            .stdout
            .lines()
            .filter(|line| line.starts_with("tests."))
            .map(ToOwned::to_owned)
            .collect();
        lines.sort();
        said.push((lines, ended));
    }
    let [(native, ran), (inside, _)] = said.as_slice() else { bail!("nothing has run") };
    let passed = native.iter().filter(|line| line.ends_with(" ok")).count();
    if passed < SUITE_PASSES {
        bail!("natively only {passed} tests of the suite pass: {ran}");
    }
    if let Some(different) = inside.iter().find(|line| !native.contains(line)) {
        bail!("in a sandbox: {different}");
    }
    if native.len() != inside.len() {
        bail!("natively {} tests, in a sandbox {}", native.len(), inside.len());
    }
    Ok(Verdict::Ok)
}

/// Plain memory, huge pages, a dma-buf, memory that a fork has seen, and what is none of these.
fn memory(world: &World) -> Result<Verdict> {
    // A guest has a thread more, of which Python warns at a fork.
    let argv = ["python3", "-W", "ignore", "-c", MEMORY, &world.device];
    let native = exec::run(world.command(Place::Native, &argv)?)?.expect_status(0)?;
    let buffers = Path::new(DMABUF_MAKER).exists().then_some("dma-buf");
    for what in ["64 MiB", "huge pages", "after a fork"].into_iter().chain(buffers) {
        if !native.stdout.contains(&format!("{what} registered and ended")) {
            bail!("natively not registered: {what}: {native}");
        }
    }
    let inside = exec::run(world.command(Place::Sandbox, &argv)?)?;
    compare(&native, &inside, shape::exact_difference)?;
    Ok(Verdict::Ok)
}

/// A dma-buf that another process holds: natively it is taken from there and registered; of another sandbox,
/// in a pid namespace of its own as containers are, neither by that way nor by any number.
fn held(world: &World) -> Result<Verdict> {
    if !Path::new(DMABUF_MAKER).exists() {
        return Ok(Verdict::Skipped(format!("this kernel has no {DMABUF_MAKER}")));
    }
    let native = |role: &[&str]| {
        let argv = [&["python3", "-c", MEMORY, &world.device], role].concat();
        world.command(Place::Native, &argv)
    };
    let inside = |role: &[&str]| -> Result<Command> {
        let argv = [&["python3", "-c", MEMORY, &world.device], role].concat();
        let sandbox = world.command(Place::Sandbox, &argv)?;
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(sandbox.get_program()).args(sandbox.get_args());
        Ok(command)
    };
    let try_all = |place: &dyn Fn(&[&str]) -> Result<Command>| -> Result<String> {
        let mut holder = Program::start(place(&["holds"])?)?;
        let mut said = String::new();
        exec::wait_until("a dma-buf", || {
            said = holder.stdout_so_far()?;
            Ok(said.ends_with('\n') || holder.has_ended()?)
        })?;
        let words: Vec<&str> = said.split_whitespace().collect();
        let [.., "holds", process, descriptor] = words.as_slice() else {
            bail!("no dma-buf: {}", holder.describe()?);
        };
        let taker = place(&["takes", process, descriptor])?;
        Ok(exec::run(taker)?.expect_status(0)?.stdout)
    };
    let said = try_all(&native).context("natively")?;
    if !said.contains("by its holder: taken\nby number: 1\n") {
        bail!("natively not taken: {said}");
    }
    let said = try_all(&inside).context("in two sandboxes")?;
    if said.contains("taken") || !said.contains("by number: 0\n") {
        bail!("taken from another sandbox: {said}");
    }
    Ok(Verdict::Ok)
}

/// `verbgate fabric` with a dma-buf as its memory, as far as registering it: there are no reliable connections
/// here, over which the tool would send.
fn registered(world: &World) -> Result<Verdict> {
    if !Path::new(DMABUF_MAKER).exists() {
        return Ok(Verdict::Skipped(format!("this kernel has no {DMABUF_MAKER}")));
    }
    let program = world.beside(PROGRAM);
    if !program.exists() {
        return Ok(Verdict::Skipped(format!("needs {PROGRAM} beside this program")));
    }
    let (program, rail) = (program.to_string_lossy(), format!("{}@0", world.device));
    for place in [Place::Native, Place::Sandbox] {
        let at = format!("127.0.0.1:{}", free_port()?);
        let alone = ["--rendezvous", &at, "--rank", "0", "--ranks", "1", "--device", &rail];
        let argv = [&[&*program, "fabric", "verify", "--memory", "dma-buf"], &alone[..]].concat();
        let ended = exec::run(world.command(place, &argv)?)?.expect_status(0)?;
        if !ended.stdout.contains("verify: all is well") {
            bail!("{place:?}: nothing was registered: {ended}");
        }
    }
    Ok(Verdict::Ok)
}

fn same_exchange(world: &World, success: Native, argv: &[&str]) -> Result<Verdict> {
    let two = Two::look(world)?;
    let native = exchange(&two, Place::Native, argv).context("natively")?;
    if native.client.status != 0 && success == Must {
        bail!("natively {}", native.client);
    }
    let inside = exchange(&two, Place::Sandbox, argv).context("in two sandboxes")?;
    for (end, native, inside) in [
        ("the client", &native.client, &inside.client),
        ("the server", &native.server, &inside.server),
    ] {
        compare(native, inside, shape::difference).context(end)?;
    }
    Ok(Verdict::Ok)
}

fn exchange(two: &Two, place: Place, argv: &[&str]) -> Result<BothEnded> {
    let is_perftest = argv.first().is_some_and(|name| name.starts_with("ib_"));
    let mut words: Vec<String> = argv.iter().map(ToString::to_string).collect();
    if is_perftest {
        words.extend(["-x", "0", "-F"].map(ToOwned::to_owned));
    }
    let launch = |role: &'static str, words: &[&str]| {
        let (program, rest) = words.split_first().context("an empty command")?;
        let words: Vec<&str> = [program].into_iter().copied().chain(two.options(role)).collect();
        two.end(role).command(place, &[words, rest.to_vec()].concat())
    };
    let ended = Pair::start(&words, launch)?.wait()?;
    let client = &ended.client;
    if is_perftest && client.status == 0 && !client.stdout.contains(RESULT) {
        bail!("nothing was measured: {client}");
    }
    Ok(ended)
}

fn bad_wire(world: &World) -> Result<Verdict> {
    let two = Two::look(world)?;
    let argv = ["ib_read_bw", "-c", "SRD", "-n", "500", "-s", "8192"];
    over_a_bad_wire(|place| exchange(&two, place, &argv))
}

/// What is reliable stays so: what the wire loses is sent again, and nothing of this is the sandbox's business.
pub(super) fn over_a_bad_wire(exchange: impl Fn(Place) -> Result<BothEnded>) -> Result<Verdict> {
    ask("faults loss=0.05 duplicate=0.05 reorder=0.1 delay=50")?;
    let ends = [Place::Native, Place::Sandbox].map(exchange);
    ask("faults")?;
    for end in ends {
        let BothEnded { client, server } = end?;
        if !client.stdout.contains(RESULT) {
            bail!("nothing was measured: {client}");
        }
        client.expect_status(0)?;
        server.expect_status(0)?;
    }
    let carried = ask("carried")?;
    let faults = ["lost", "duplicated", "reordered", "delayed"];
    if faults.iter().any(|fault| carried.contains(&format!("{fault}: 0"))) {
        bail!("the wire was good: {carried}");
    }
    println!("    {carried}");
    Ok(Verdict::Ok)
}

/// Memory of all kinds holds what was sent out of it, and what has arrived; of a dma-buf, if the driver takes it.
pub(super) fn moved(world: &World, takes_buffers: bool) -> Result<Verdict> {
    let index = world.gid_index.map(|index| index.to_string());
    let mut argv = vec!["python3", "-W", "ignore", "-c", MOVED, &world.device];
    argv.extend(index.as_deref());
    let native = exec::run(world.command(Place::Native, &argv)?)?.expect_status(0)?;
    let buffers = takes_buffers && Path::new(DMABUF_MAKER).exists();
    for what in
        ["plain", "huge pages", "after a fork"].into_iter().chain(buffers.then_some("dma-buf"))
    {
        for way in ["out of", "into"] {
            if !native.stdout.contains(&format!("{what} {way}: arrived")) {
                bail!("natively nothing has moved {way} {what}: {native}");
            }
        }
    }
    let inside = exec::run(world.command(Place::Sandbox, &argv)?)?;
    compare(&native, &inside, shape::exact_difference)?;
    Ok(Verdict::Ok)
}
