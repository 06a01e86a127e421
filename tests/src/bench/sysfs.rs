//! The virtual sysfs: recording a large host, and walking the served tree.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use verbgate_sysfs_fixtures::Fixture;

use super::host::Programs;
use super::median;
use crate::exec;
use crate::table::Table;
use crate::world::Place;
use crate::world::World;

/// Rounds of everything.
const ROUNDS: usize = 5;
/// Serves the fixture in a mount namespace of its own: `$1` is the folder, `$2` is `verbgate`, `$3` reads.
const SERVED: &str = "cd $1; mkdir mnt; $2 sysfs serve --root sys mnt & server=$!
tries=0
until grep -q $1/mnt /proc/self/mounts; do
    tries=$((tries + 1)); [ $tries -lt 200 ] || exit 99; sleep 0.05
done
for dir in sys mnt; do echo $dir $($3 reads 5 $dir); done
sed -n 's/VmHWM: */memory /p' /proc/$server/status
kill $server; wait $server";

/// Prints a table of sixteen NICs of two ports with 256 GIDs each, on paper.
///
/// # Errors
///
/// That a program failed; no FUSE, or no root, is said instead.
pub fn host(programs: &Programs) -> Result<()> {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let sys = dir.path().join("sys");
    fs::create_dir(&sys)?;
    let fixture = Fixture::named("sixteen_nics").context("there is no such fixture")?;
    fixture.write(&sys)?;
    let verbgate = programs.0.join("verbgate");
    let mut table = Table::new(&["sysfs of 16 NICs of 2 ports, on paper", ""]);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut command = Command::new(&verbgate);
        command.args(["sysfs", "snapshot", "--root"]).arg(&sys);
        command.arg("-o").arg(dir.path().join("snapshot"));
        let start = Instant::now();
        exec::run(command)?.expect_status(0)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let took = median(&mut times).unwrap_or(f64::NAN);
    table.row(&["`verbgate sysfs snapshot`", &format!("{took:.0} ms")]);
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        println!("{table}");
        println!("walks of what is served need root and /dev/fuse");
        return Ok(());
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SERVED, "sh"]);
    command.arg(dir.path()).arg(&verbgate).arg(programs.0.join("verbgate-guest"));
    let said = exec::run(command)?.expect_status(0)?.stdout;
    for (word, figure, name) in [
        ("sys", "median", "files a second to one reader: plain files in memory"),
        ("mnt", "first", "the same, served, the first time"),
        ("mnt", "median", "the same, served, again"),
    ] {
        table.row(&[name, &format!("{:.0}", number(&said, word, figure)?)]);
    }
    let memory = number(&said, "memory", "")?;
    table.row(&["most memory of the server", &format!("{:.1} MiB", memory / 1024.0)]);
    println!("{table}");
    Ok(())
}

/// Prints how fast files of the device, and of its network device, are read natively and in a sandbox.
///
/// # Errors
///
/// That a program failed.
pub fn lab(world: &World) -> Result<()> {
    let mut table =
        Table::new(&["sysfs, files a second", "native", "sandbox", "native to sandbox"]);
    let port = format!("/sys/class/infiniband/{}/ports/1", world.device);
    let netdev = world.netdev().context("the device has no network device")?;
    let netdev = format!("/sys/class/net/{netdev}");
    for (name, dir) in [
        ("the device's own: partition keys", format!("{port}/pkeys")),
        ("judged at each read: the table of GIDs", format!("{port}/gids")),
        ("served: the network device's counters", format!("{netdev}/statistics")),
    ] {
        let mut rates = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            for (at, place) in [Place::Native, Place::Sandbox].into_iter().enumerate() {
                let argv = ["verbgate-guest", "reads", "5", &dir];
                let ended = exec::run(world.command(place, &argv)?)?.expect_status(0)?;
                for (figure, rates) in ["first", "median"].iter().zip(rates.iter_mut().skip(at * 2))
                {
                    rates.push(number(&ended.stdout, "files", figure)?);
                }
            }
        }
        let [cold, warm, cold_inside, warm_inside] =
            rates.map(|mut rates| median(&mut rates).unwrap_or(f64::NAN));
        for (when, native, inside) in
            [("the first time", cold, cold_inside), ("again", warm, warm_inside)]
        {
            let cells = [native, inside].map(|rate| format!("{rate:.0}"));
            let [native_cell, inside_cell] = &cells;
            let name = format!("{name}, {when}");
            table.row(&[&*name, native_cell, inside_cell, &format!("{:.2}", native / inside)]);
        }
    }
    println!("{table}");
    Ok(())
}

/// The number behind a figure's name, in the line that begins with a word.
fn number(said: &str, word: &str, figure: &str) -> Result<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    let rest = line.and_then(|line| line.split_once(figure)).map(|(_, rest)| rest.trim_start());
    let number = rest.and_then(|rest| rest.split_whitespace().next());
    let number = number.and_then(|number| number.parse().ok());
    number.with_context(|| format!("no {figure} of {word} in {said:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found() {
        let said = "mnt files 10, first 5 /s, median 7 /s\nmemory     9000 kB\n";
        assert!((number(said, "mnt", "first").unwrap() - 5.0).abs() < 1e-9);
        assert!((number(said, "memory", "").unwrap() - 9000.0).abs() < 1e-9);
        assert!(number(said, "sys", "first").is_err());
    }
}
