//! libfabric's own provider of a NIC, as MPI and NCCL's plug-in use it.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Two;
use crate::cases::Verdict;
use crate::exec;
use crate::exec::Program;
use crate::pair::BothEnded;
use crate::pair::Pair;
use crate::world;
use crate::world::Place;
use crate::world::World;

/// Reliable datagrams of all sizes, each compared with what was sent.
const PINGPONG: &[&str] = &["fi_pingpong", "-p", "efa", "-e", "rdm", "-I", "20", "-S", "all", "-c"];

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("nic_libfabric_pingpong", pingpong)]
}

fn pingpong(world: &World) -> Result<Verdict> {
    let two = Two::look(world)?;
    let native = run(&two, Place::Native).context("natively")?;
    let inside = run(&two, Place::Sandbox).context("in two sandboxes")?;
    // Sizes and counts; the rest of a line is of time.
    let measured = |ends: &BothEnded| -> Vec<String> {
        let line = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        ends.client.stdout.lines().map(line).collect()
    };
    if measured(&native).len() < 10 || measured(&native) != measured(&inside) {
        bail!("natively {}\nin the sandbox {}", native.client, inside.client);
    }
    Ok(Verdict::Ok)
}

fn run(two: &Two, place: Place) -> Result<BothEnded> {
    let port = world::free_port()?;
    let number = port.to_string();
    let start = |role, more: &[&str]| {
        let end = two.end(role);
        let domain = format!("{}-rdm", end.device);
        let argv = [PINGPONG, &["-d", &domain], more].concat();
        Program::start(end.command(place, &argv)?)
    };
    let mut server = start("server", &["-B", &number])?;
    exec::wait_until("a server that listens", || {
        Ok(world::is_listening(port) || server.has_ended()?)
    })?;
    let client = start("client", &["-P", &number, "127.0.0.1"])?;
    let ends = Pair { server, client }.wait()?;
    if ends.client.status != 0 || ends.server.status != 0 {
        bail!("{}\nand its server {}", ends.client, ends.server);
    }
    Ok(ends)
}
