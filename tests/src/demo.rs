//! The demonstration: two programs that talk RDMA natively, then each in a sandbox of its own.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use tempfile::TempDir;

use crate::exec::Ended;
use crate::pair::BothEnded;
use crate::pair::Pair;
use crate::report::Report;
use crate::table::Table;
use crate::world::Place;
use crate::world::World;

/// Enough for a stable number, and a few seconds under emulation.
const ITERATIONS: &str = "1000";

/// Runs both, and prints them side by side with what the supervisors did.
pub fn run(world: &World) -> Result<()> {
    let mut argv: Vec<String> =
        ["ibv_rc_pingpong", "-n", ITERATIONS].map(ToOwned::to_owned).to_vec();
    argv.extend(world.pingpong_options());
    let line = argv.join(" ");
    let reports = Reports::new()?;

    println!("1. natively:              {line}");
    let native = Pair::start(&argv, |_, words| world.command(Place::Native, words))?.wait()?;
    println!("2. in two sandboxes:      verbgate run --device {} -- {line}", world.device);
    let inside =
        Pair::start(&argv, |end, words| Ok(world.sandbox(&["--report", &reports.of(end)], words)))?
            .wait()?;
    for end in [&native.server, &native.client, &inside.server, &inside.client] {
        if end.status != 0 {
            bail!("{end}");
        }
    }
    println!("\n{}", results(&native, &inside)?);
    println!("{}", supervisors(&reports)?);
    Ok(())
}

/// Where the supervisors write their reports.
struct Reports(TempDir);

impl Reports {
    fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir().context("cannot make a temporary folder")?))
    }

    fn of(&self, end: &str) -> String {
        self.0.path().join(end).to_string_lossy().into_owned()
    }

    fn read(&self, end: &str) -> Result<Report> {
        Report::read(&self.0.path().join(end))
    }
}

fn results(native: &BothEnded, inside: &BothEnded) -> Result<Table> {
    let mut table = Table::new(&["what the client measured", "natively", "in two sandboxes"]);
    for (name, unit) in [("bandwidth", "Mbit/sec"), ("time of an iteration", "usec/iter")] {
        let [native, inside] = [&native.client, &inside.client].map(|end| figure(end, unit));
        table.row(&[name.to_owned(), format!("{} {unit}", native?), format!("{} {unit}", inside?)]);
    }
    table.row(&[
        "status of client and server".to_owned(),
        format!("{} and {}", native.client.status, native.server.status),
        format!("{} and {}", inside.client.status, inside.server.status),
    ]);
    Ok(table)
}

/// The number before a unit.
fn figure<'a>(ended: &'a Ended, unit: &str) -> Result<&'a str> {
    let mut before = "";
    for word in ended.stdout.split_whitespace() {
        if word == unit {
            return Ok(before);
        }
        before = word;
    }
    bail!("no figure in {unit}: {ended}")
}

fn supervisors(reports: &Reports) -> Result<Table> {
    let [server, client] = ["server", "client"].map(|end| reports.read(end));
    let (server, client) = (server?, client?);
    let mut table = Table::new(&["what the supervisors did", "server", "client"]);
    let mut row = |what: &str, of: &dyn Fn(&Report) -> u64| {
        table.row(&[what.to_owned(), of(&server).to_string(), of(&client).to_string()]);
    };
    row("devices opened", &|r| r.opened);
    row("threads planted", &|r| r.planted);
    row("requests executed in the guest", &|r| r.executed);
    let mut names: Vec<&String> = server.requests.keys().chain(client.requests.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        row(&format!("  {name}"), &|r| r.requests.get(name).copied().unwrap_or(0));
    }
    row("  of these refused by the kernel", &|r| r.failed);
    row("requests refused by the policy", &Report::refused_in_all);
    row("notifications", &|r| r.notifications);
    row("system calls", &|r| r.calls);
    Ok(table)
}
