//! Programs that must run: natively and sandboxed, with the same status and output.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use crate::exec;
use crate::exec::Ended;
use crate::pair::BothEnded;
use crate::pair::Pair;
use crate::shape;
use crate::world::Place;
use crate::world::World;

/// Whose options a program takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    /// `ibv_*_pingpong` of rdma-core.
    Pingpong,
    /// `ib_*` of perftest.
    Perftest,
}

use Family::Perftest;
use Family::Pingpong;

/// A program with two ends. Few iterations, because every one of them is emulated.
type Exchange = (&'static str, Family, &'static [&'static str]);

// Some of them Soft-RoCE cannot do (XRC, device memory, time stamps; ODP before 7.2), and some
// perftest does not offer (several queue pairs for latencies, inline data for what is read). Then
// it must be refused in the sandbox in the same words.
#[rustfmt::skip]
const EXCHANGES: &[Exchange] = &[
    ("ibv_rc_pingpong",          Pingpong, &["ibv_rc_pingpong", "-n", "50"]),
    ("ibv_rc_pingpong_e",        Pingpong, &["ibv_rc_pingpong", "-n", "50", "-e"]),
    // `ibv_fork_init`, which the library does for this variable.
    ("ibv_rc_pingpong_fork",     Pingpong,
        &["env", "RDMAV_FORK_SAFE=1", "ibv_rc_pingpong", "-n", "50"]),
    ("ibv_rc_pingpong_checked",  Pingpong, &["ibv_rc_pingpong", "-n", "50", "-c"]),
    ("ibv_rc_pingpong_new_send", Pingpong, &["ibv_rc_pingpong", "-n", "50", "-N"]),
    ("ibv_rc_pingpong_odp",      Pingpong, &["ibv_rc_pingpong", "-n", "50", "-o"]),
    ("ibv_rc_pingpong_odp_all",  Pingpong, &["ibv_rc_pingpong", "-n", "50", "-O"]),
    ("ibv_rc_pingpong_stamps",   Pingpong, &["ibv_rc_pingpong", "-n", "50", "-t"]),
    ("ibv_rc_pingpong_dm",       Pingpong, &["ibv_rc_pingpong", "-n", "50", "-j"]),
    ("ibv_uc_pingpong",          Pingpong, &["ibv_uc_pingpong", "-n", "50"]),
    ("ibv_uc_pingpong_e",        Pingpong, &["ibv_uc_pingpong", "-n", "50", "-e"]),
    ("ibv_ud_pingpong",          Pingpong, &["ibv_ud_pingpong", "-n", "50"]),
    ("ibv_ud_pingpong_e",        Pingpong, &["ibv_ud_pingpong", "-n", "50", "-e"]),
    ("ibv_srq_pingpong",         Pingpong, &["ibv_srq_pingpong", "-n", "50", "-q", "4"]),
    ("ibv_srq_pingpong_e",       Pingpong, &["ibv_srq_pingpong", "-n", "50", "-q", "4", "-e"]),
    ("ibv_xsrq_pingpong",        Pingpong, &["ibv_xsrq_pingpong", "-n", "50"]),
    ("ibv_xsrq_pingpong_e",      Pingpong, &["ibv_xsrq_pingpong", "-n", "50", "-e"]),
    ("ib_send_bw",               Perftest, &["ib_send_bw", "-n", "25", "-s", "65536"]),
    ("ib_send_bw_e",             Perftest, &["ib_send_bw", "-n", "25", "-s", "65536", "-e"]),
    ("ib_send_bw_inline",        Perftest, &["ib_send_bw", "-n", "100", "-s", "64", "-I", "64"]),
    ("ib_send_bw_q",             Perftest, &["ib_send_bw", "-n", "100", "-s", "1024", "-q", "8"]),
    ("ib_send_lat",              Perftest, &["ib_send_lat", "-n", "100", "-s", "2"]),
    ("ib_send_lat_e",            Perftest, &["ib_send_lat", "-n", "100", "-s", "2", "-e"]),
    ("ib_send_lat_inline",       Perftest, &["ib_send_lat", "-n", "100", "-s", "64", "-I", "64"]),
    ("ib_send_lat_q",            Perftest, &["ib_send_lat", "-n", "100", "-s", "2", "-q", "8"]),
    ("ib_write_bw",              Perftest, &["ib_write_bw", "-n", "25", "-s", "65536"]),
    // Perftest has no events for one-sided traffic and says so.
    ("ib_write_bw_e",            Perftest, &["ib_write_bw", "-n", "25", "-s", "65536", "-e"]),
    ("ib_write_bw_inline",       Perftest, &["ib_write_bw", "-n", "100", "-s", "64", "-I", "64"]),
    ("ib_write_bw_q",            Perftest, &["ib_write_bw", "-n", "100", "-s", "1024", "-q", "8"]),
    ("ib_write_lat",             Perftest, &["ib_write_lat", "-n", "100", "-s", "2"]),
    ("ib_write_lat_e",           Perftest, &["ib_write_lat", "-n", "100", "-s", "2", "-e"]),
    ("ib_write_lat_inline",      Perftest, &["ib_write_lat", "-n", "100", "-s", "64", "-I", "64"]),
    ("ib_write_lat_q",           Perftest, &["ib_write_lat", "-n", "100", "-s", "2", "-q", "8"]),
    ("ib_read_bw",               Perftest, &["ib_read_bw", "-n", "25", "-s", "65536"]),
    ("ib_read_bw_e",             Perftest, &["ib_read_bw", "-n", "25", "-s", "65536", "-e"]),
    ("ib_read_bw_inline",        Perftest, &["ib_read_bw", "-n", "100", "-s", "64", "-I", "64"]),
    ("ib_read_bw_q",             Perftest, &["ib_read_bw", "-n", "100", "-s", "1024", "-q", "8"]),
    ("ib_read_lat",              Perftest, &["ib_read_lat", "-n", "100", "-s", "2"]),
    ("ib_read_lat_e",            Perftest, &["ib_read_lat", "-n", "100", "-s", "2", "-e"]),
    ("ib_read_lat_inline",       Perftest, &["ib_read_lat", "-n", "100", "-s", "64", "-I", "64"]),
    ("ib_read_lat_q",            Perftest, &["ib_read_lat", "-n", "100", "-s", "2", "-q", "8"]),
    ("ib_atomic_bw",             Perftest, &["ib_atomic_bw", "-n", "100"]),
    ("ib_atomic_bw_e",           Perftest, &["ib_atomic_bw", "-n", "100", "-e"]),
    ("ib_atomic_bw_inline",      Perftest, &["ib_atomic_bw", "-n", "100", "-I", "8"]),
    ("ib_atomic_bw_q",           Perftest, &["ib_atomic_bw", "-n", "100", "-q", "8"]),
    ("ib_atomic_lat",            Perftest, &["ib_atomic_lat", "-n", "100"]),
    ("ib_atomic_lat_e",          Perftest, &["ib_atomic_lat", "-n", "100", "-e"]),
    ("ib_atomic_lat_inline",     Perftest, &["ib_atomic_lat", "-n", "100", "-I", "8"]),
    ("ib_atomic_lat_q",          Perftest, &["ib_atomic_lat", "-n", "100", "-q", "8"]),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("ibv_devices", |world| same_output(world, &["ibv_devices"])),
        Case::new("ibv_devinfo_v", |world| {
            same_output(world, &["ibv_devinfo", "-v", "-d", &world.device])
        }),
        Case::new("several_processes_of_one_guest", several_processes),
    ];
    cases.extend(EXCHANGES.iter().map(|(name, family, argv)| {
        Case::new(name, move |world| same_exchange(world, *family, argv))
    }));
    cases
}

/// A program whose output is the same every time.
fn same_output(world: &World, argv: &[&str]) -> Result<Verdict> {
    let native = exec::run(world.command(Place::Native, argv)?)?.expect_status(0)?;
    let inside = exec::run(world.command(Place::Sandbox, argv)?)?;
    compare(&native, &inside, shape::exact_difference)?;
    Ok(Verdict::Ok)
}

/// Each process of a guest makes requests of its own, also at the same time.
fn several_processes(world: &World) -> Result<Verdict> {
    let one = format!("ibv_devinfo -v -d {}", world.device);
    let script = format!("{one} >/dev/null & {one} >/dev/null & {one} && wait");
    same_output(world, &["sh", "-c", &script])
}

fn same_exchange(world: &World, family: Family, argv: &[&str]) -> Result<Verdict> {
    let native = exchange(world, Place::Native, family, argv).context("natively")?;
    let inside = exchange(world, Place::Sandbox, family, argv).context("in two sandboxes")?;
    for (end, native, inside) in [
        ("the client", &native.client, &inside.client),
        ("the server", &native.server, &inside.server),
    ] {
        compare(native, inside, shape::difference).context(end)?;
    }
    Ok(Verdict::Ok)
}

fn exchange(world: &World, place: Place, family: Family, argv: &[&str]) -> Result<BothEnded> {
    let options = match family {
        Pingpong => world.pingpong_options(),
        Perftest => world.perftest_options(),
    };
    let argv: Vec<String> = argv.iter().map(ToString::to_string).chain(options).collect();
    Pair::start(&argv, |_, words| world.command(place, words))?.wait()
}

/// Compares how a program ended natively and in a sandbox.
pub(super) fn compare(
    native: &Ended,
    inside: &Ended,
    difference: fn(&str, &str) -> Option<String>,
) -> Result<()> {
    if native.status != inside.status {
        bail!("natively status {}, but {inside}", native.status);
    }
    for (what, native, inside) in
        [("stdout", &native.stdout, &inside.stdout), ("stderr", &native.stderr, &inside.stderr)]
    {
        if let Some(difference) = difference(native, inside) {
            bail!("another {what}: {difference}");
        }
    }
    Ok(())
}
