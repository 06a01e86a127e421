//! Supervisors and guests that are killed while traffic flows.

use std::fs;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::requests::Script;
use crate::exec;
use crate::exec::Program;
use crate::pair::Pair;
use crate::world::Place;
use crate::world::World;
use crate::world::resources;

/// How long traffic flows in all; long enough that what is killed is killed in its midst.
const FLOW: &str = "8";
/// Longer than a case takes.
const LONG: &str = "3600";
/// The packets after which traffic flows.
const PACKETS: u64 = 100;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("supervisor_of_the_passive_end_killed", |world| {
            supervisor_killed(world, End::Server)
        }),
        Case::new("supervisor_of_the_active_end_killed", |world| {
            supervisor_killed(world, End::Client)
        }),
        Case::new("requests_without_a_supervisor", requests_without),
        Case::new("guest_killed", guest_killed),
        Case::new("supervisor_ended_by_a_signal", terminated),
    ]
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Server,
    Client,
}

/// Starts writes of one sandbox into the memory of another, and waits until they flow.
fn flow(world: &World, seconds: &str) -> Result<Pair> {
    let mut argv: Vec<String> =
        ["ib_write_bw", "-s", "65536", "-D", seconds].map(ToOwned::to_owned).to_vec();
    argv.extend(world.perftest_options());
    let before = world.packets()?;
    let pair = Pair::start(&argv, |_, words| world.command(Place::Sandbox, words))?;
    exec::wait_until("traffic", || Ok(world.packets()? >= before + PACKETS))?;
    Ok(pair)
}

fn supervisor_killed(world: &World, end: End) -> Result<Verdict> {
    let mut pair = flow(world, FLOW)?;
    let victim = if end == End::Server { &mut pair.server } else { &mut pair.client };
    let guest = exec::guest_of(victim)?;
    victim.kill_alone()?;
    if !exec::is_alive(guest) && end == End::Server {
        bail!("the guest died with its supervisor");
    }
    match end {
        // The kernel answers for a passive end; the other must see nothing of it.
        End::Server => {
            let client = pair.client.wait()?.expect_status(0)?;
            if !client.stdout.contains("65536") {
                bail!("the traffic did not go on: {client}");
            }
        }
        // A software device sends by system calls, which fail now: the end must see it and end.
        End::Client => {
            pair.server.wait()?;
        }
    }
    exec::wait_until("the guest without a supervisor to end", || Ok(!exec::is_alive(guest)))?;
    Ok(Verdict::Ok)
}

/// What is requested of a dead supervisor fails with ENOSYS.
fn requests_without(world: &World) -> Result<Verdict> {
    let script = Script::new()?;
    let flag = script.beside("flag");
    let argv = script.argv(&["idle", &world.node_path(), &flag]);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut program = Program::start(world.command(Place::Sandbox, &argv)?)?;
    exec::wait_until("the guest's first request", || {
        Ok(program.stdout_so_far()?.contains("before") || program.has_ended()?)
    })?;
    let guest = exec::guest_of(&mut program)?;
    program.kill_alone()?;
    fs::write(&flag, "")?;
    exec::wait_until("the guest to end", || Ok(!exec::is_alive(guest)))?;
    let said = program.stdout_so_far()?;
    for line in ["before 0", "after ENOSYS", "open ENOSYS"] {
        if !said.lines().any(|said| said == line) {
            bail!("no {line:?} in: {said:?}");
        }
    }
    Ok(Verdict::Ok)
}

/// What a killed guest held is freed, and its supervisor tells by what it was killed.
fn guest_killed(world: &World) -> Result<Verdict> {
    let before = resources();
    let mut pair = flow(world, LONG)?;
    if resources() == before {
        bail!("`rdma resource show` counts nothing: {before:?}");
    }
    for supervisor in [&mut pair.server, &mut pair.client] {
        exec::kill(exec::guest_of(supervisor)?);
    }
    let ended = pair.wait()?;
    for end in [ended.server, ended.client] {
        end.expect_status(128 + 9)?;
    }
    exec::wait_until("the kernel to free what the guests held", || Ok(resources() == before))?;
    Ok(Verdict::Ok)
}

/// A signal to `verbgate run` is one to the guest.
fn terminated(world: &World) -> Result<Verdict> {
    let before = resources();
    for is_server in [true, false] {
        let pair = flow(world, LONG)?;
        let (first, second) =
            if is_server { (pair.server, pair.client) } else { (pair.client, pair.server) };
        // Perftest has no handler, so the guest dies of it.
        terminate(&first)?;
        first.wait()?.expect_status(128 + 15)?;
        // The partner may have ended by itself since.
        terminate(&second)?;
        second.wait()?;
    }
    exec::wait_until("the kernel to free what the guests held", || Ok(resources() == before))?;
    Ok(Verdict::Ok)
}

fn terminate(supervisor: &Program) -> Result<()> {
    let pid = i32::try_from(supervisor.pid()).ok().and_then(rustix::process::Pid::from_raw);
    Ok(rustix::process::kill_process(pid.context("an odd pid")?, rustix::process::Signal::TERM)?)
}
