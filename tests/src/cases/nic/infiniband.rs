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
use super::traffic::RESULT;
use super::traffic::devices;
use super::traffic::netlink;
use crate::cases::Verdict;
use crate::exec;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;

#[rustfmt::skip]
const EXCHANGES: &[(&str, &[&str])] = &[
    ("nic_mlx5_rc_pingpong_e", &["ibv_rc_pingpong", "-n", "200", "-e", "-c"]),
    ("nic_mlx5_ud_pingpong",   &["ibv_ud_pingpong", "-n", "100"]),
    ("nic_mlx5_srq_pingpong",  &["ibv_srq_pingpong", "-n", "20"]),
    ("nic_mlx5_write_bw",      &["ib_write_bw", "-n", "200", "-s", "65536", "-F"]),
    ("nic_mlx5_atomic_lat",    &["ib_atomic_lat", "-n", "200", "-F"]),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("nic_mlx5_devices", devices),
        Case::new("nic_mlx5_netlink_names_what_is_granted", netlink),
        Case::new("nic_mlx5_sysfs_is_the_machines_own", connected::same_attributes),
    ];
    cases.extend(
        EXCHANGES
            .iter()
            .map(|(name, argv)| Case::new(name, move |world| same_exchange(world, argv))),
    );
    cases.push(Case::new("nic_mlx5_nothing_is_left_of_a_killed_sandbox", nothing_left));
    cases
}

fn same_exchange(world: &World, argv: &[&str]) -> Result<Verdict> {
    let two = Two::look(world)?;
    let is_perftest = argv.first().is_some_and(|name| name.starts_with("ib_"));
    let run = |place| {
        let launch = |role, words: &[&str]| two.end(role).command(place, words);
        two.start(Meeting::Socket, argv, launch)?.wait_for(PATIENCE)
    };
    let native = run(Place::Native).context("natively")?;
    let measured = !is_perftest || native.client.stdout.contains(RESULT);
    if native.client.status != 0 || native.server.status != 0 || !measured {
        bail!("natively {}\nand its server {}", native.client, native.server);
    }
    connected::same(&native, &run(Place::Sandbox).context("in two sandboxes")?)
}

/// The device's own count of objects, after a program in a sandbox was killed.
fn nothing_left(world: &World) -> Result<Verdict> {
    let before = ask("census 0")?;
    let argv = ["ibv_rc_pingpong", "-d", &world.device];
    let server = exec::Program::start(world.command(Place::Sandbox, &argv)?)?;
    exec::wait_until("objects of a program", PATIENCE, || Ok(ask("census 0")? != before))?;
    drop(server);
    exec::wait_until("the same objects as before", PATIENCE, || Ok(ask("census 0")? == before))?;
    Ok(Verdict::Ok)
}
