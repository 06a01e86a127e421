//! Programs that connect by rdma_cm: natively and sandboxed, with the same status and output.

use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use rustix::process::Signal;

use super::Case;
use super::Verdict;
use super::verbs::compare;
use crate::cm_probe::FORBIDDEN;
use crate::exec;
use crate::exec::Program;
use crate::pair::BothEnded;
use crate::pair::Pair;
use crate::pair::by_manager;
use crate::shape;
use crate::world::Place;
use crate::world::World;
use crate::world::new_listener;

/// Stands for the address of the device, to be listened at and connected to.
const AT: &str = "@";

/// A program's two ends: the server's arguments, and what the client's are besides.
type Exchange =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

#[rustfmt::skip]
const EXCHANGES: &[Exchange] = &[
    ("rping",         &["rping", "-C", "5", "-v", "-a", AT], &["-s"], &["-c"]),
    ("ucmatose",      &["ucmatose", "-c", "2", "-C", "5"], &["-b", AT], &["-s", AT]),
    ("udaddy",        &["udaddy", "-c", "2", "-C", "5"], &["-b", AT], &["-s", AT]),
    ("ib_send_bw_cm", &["ib_send_bw", "-R", "-F", "-n", "100", "-s", "4096", "-p", "18600"], &[], &[AT]),
];

pub(super) fn cases() -> Vec<Case> {
    let exchanges = EXCHANGES.iter();
    let mut cases: Vec<Case> = exchanges
        .map(|exchange| Case::new(exchange.0, move |world| same(world, exchange)))
        .collect();
    cases.push(Case::new("raw_commands_of_rdma_cm", raw));
    cases.push(Case::new("listener_is_in_its_callers_network_namespace", listener));
    cases.push(Case::new("stopped_while_waiting_for_an_event", stopped));
    cases
}

fn same(world: &World, exchange: &Exchange) -> Result<Verdict> {
    let native = run(world, Place::Native, exchange).context("natively")?;
    let inside = run(world, Place::Sandbox, exchange).context("in two sandboxes")?;
    for (end, native, inside) in
        [("the client", native.client, inside.client), ("the server", native.server, inside.server)]
    {
        compare(&native, &inside, shape::difference).context(end)?;
    }
    Ok(Verdict::Ok)
}

/// Good and bad commands end as natively, but for those by files that the supervisor did not give.
fn raw(world: &World) -> Result<Verdict> {
    let run = |place| exec::run(world.probe(place, &["cm"])?)?.expect_status(0);
    let (native, inside) = (run(Place::Native)?, run(Place::Sandbox)?);
    let denied = rustix::io::Errno::ACCESS.raw_os_error().to_string();
    let expected = native.stdout.lines().map(|line| match line.split_once(": ") {
        Some((what, _)) if what == FORBIDDEN => format!("{what}: {denied}"),
        _ => line.to_owned(),
    });
    let expected: Vec<String> = expected.collect();
    let found: Vec<&str> = inside.stdout.lines().collect();
    if expected != found || expected == native.stdout.lines().collect::<Vec<_>>() {
        bail!("natively {native}\nin the sandbox {inside}");
    }
    Ok(Verdict::Ok)
}

/// The kernel's siw makes the socket of a listener in the caller's network namespace, natively and inside, also when another
/// process of the sandbox has made an id in its own meanwhile.
fn listener(_: &World) -> Result<Verdict> {
    const NAME: &str = "siw_lo";
    let link = |words: &[&str]| {
        let mut command = Command::new("rdma");
        command.arg("link").args(words);
        exec::run(command)
    };
    let is_uml = std::fs::read_to_string("/proc/cpuinfo")?.contains("User Mode Linux");
    let added = link(&["add", NAME, "type", "siw", "netdev", "lo"])?.expect_status(0);
    match added {
        Err(_) if !is_uml => return Ok(Verdict::Skipped("this kernel has no siw".to_owned())),
        added => added?,
    };
    let both = || -> Result<[exec::Ended; 2]> {
        let siw = World::look(Some(NAME))?;
        let run = |place| exec::run(siw.probe(place, &["networks"])?)?.expect_status(0);
        Ok([run(Place::Native)?, run(Place::Sandbox)?])
    };
    let both = both();
    link(&["del", NAME])?.expect_status(0)?;
    let [native, inside] = both?;
    // The other process has made its id, and only then is it asked where the socket is.
    let expected = "in the other network namespace: an id\nLISTEN: 0\nown: true\nother: false\n";
    if native.stdout != expected || inside.stdout != expected {
        bail!("natively {native}\nin the sandbox {inside}");
    }
    Ok(Verdict::Ok)
}

/// A server is stopped and continued while it waits for an event.
fn stopped(world: &World) -> Result<Verdict> {
    let address = world.address()?;
    let argv = ["ucmatose", "-c", "1", "-C", "5", "-b", &address];
    let listens = new_listener(&world.device);
    let mut server = Program::start(world.command(Place::Sandbox, &argv)?)?;
    exec::wait_until("a server that listens", || Ok(listens() || server.has_ended()?))?;
    let guest = exec::guest_of(&mut server)?;
    let stopped = || exec::threads_in_state(guest, 'T') >= 1;
    exec::signal(guest, Signal::STOP);
    exec::wait_until("the threads of the server to stop", || Ok(stopped()))?;
    exec::signal(guest, Signal::CONT);
    exec::wait_until("the server to go on", || Ok(!stopped()))?;
    let argv = ["ucmatose", "-c", "1", "-C", "5", "-s", &address];
    exec::run(world.command(Place::Sandbox, &argv)?)?.expect_status(0)?;
    server.wait()?.expect_status(0)?;
    Ok(Verdict::Ok)
}

fn run(world: &World, place: Place, (_, both, server, client): &Exchange) -> Result<BothEnded> {
    let address = world.address()?;
    let command = |own: &[&str]| {
        let words = both.iter().chain(own).map(|word| if *word == AT { &*address } else { word });
        world.command(place, &words.collect::<Vec<&str>>())
    };
    by_manager(both.first().unwrap_or(&""), || {
        Pair::meet(&world.device, command(server)?, command(client)?)?.wait()
    })
}
