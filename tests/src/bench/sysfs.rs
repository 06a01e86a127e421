//! The virtual sysfs: recording a large host, and walking the served tree.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use verbgate_sysfs_fixtures::Fixture;

use super::host::Programs;
use super::median;
use crate::exec;
use crate::table::Table;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;

/// Rounds of everything.
const ROUNDS: usize = 5;
/// A walk of ten thousand files by `cat` takes two seconds on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Reads every file below a directory, and prints how many there are and how long it took.
const WALK: &str = "walk() {
    n=$(find $1 -type f | wc -l); from=$(date +%s%N)
    dir=$1; word=$2; shift 2
    find $dir -type f | xargs \"$@\" cat >/dev/null 2>&1; to=$(date +%s%N)
    echo $word $n $((to - from))
}
";

/// Serves the fixture in a mount namespace of its own: `$1` is the folder, `$2` is `verbgate`.
const SERVED: &str = "cd $1; mkdir mnt; $2 sysfs serve --root sys mnt & server=$!
tries=0
until grep -q $1/mnt /proc/self/mounts; do
    tries=$((tries + 1)); [ $tries -lt 200 ] || exit 99; sleep 0.05
done
walk mnt first; walk mnt served; walk mnt four -P 4 -n 400; walk sys plain
sed -n 's/VmHWM: */memory 0 /p' /proc/$server/status
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
        exec::run(command, PATIENCE)?.expect_status(0)?;
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
    command.args(["--mount", "--propagation", "private", "sh", "-c", &format!("{WALK}{SERVED}")]);
    command.arg("sh").arg(dir.path()).arg(&verbgate);
    let said = exec::run(command, LIMIT)?.expect_status(0)?.stdout;
    for (word, name) in [
        ("plain", "files a second by `find | xargs cat`: plain files in memory"),
        ("first", "the same, served, the first time"),
        ("served", "the same, served, again"),
        ("four", "the same, served, four readers at a time"),
    ] {
        table.row(&[name, &format!("{:.0}", rate(&said, word)?)]);
    }
    let memory = figures(&said, "memory")?.1;
    table.row(&["most memory of the server", &format!("{:.1} MiB", memory / 1024.0)]);
    println!("{table}");
    Ok(())
}

/// Prints how fast the attributes of the device are walked, natively and in a sandbox.
///
/// # Errors
///
/// That a program failed.
pub fn lab(world: &World) -> Result<()> {
    let mut table = Table::new(&["sysfs, files a second", "native", "sandbox", "ratio"]);
    let script =
        format!("{WALK}walk $(readlink -f /sys/class/infiniband/{})/ports walked", world.device);
    let mut rates = [const { Vec::new() }; 2];
    for _ in 0..3 {
        for (place, rates) in [Place::Native, Place::Sandbox].into_iter().zip(&mut rates) {
            let argv = ["sh", "-c", &script];
            let ended = exec::run(world.command(place, &argv)?, PATIENCE)?.expect_status(0)?;
            rates.push(rate(&ended.stdout, "walked")?);
        }
    }
    let [native, inside] = rates.map(|mut rates| median(&mut rates).unwrap_or(f64::NAN));
    let ratio = format!("{:.2}", native / inside);
    table.row(&["find | xargs cat", &format!("{native:.0}"), &format!("{inside:.0}"), &ratio]);
    println!("{table}");
    Ok(())
}

/// Files a second.
fn rate(said: &str, word: &str) -> Result<f64> {
    let (files, nanoseconds) = figures(said, word)?;
    Ok(files / nanoseconds * 1e9)
}

/// The two numbers behind a word.
fn figures(said: &str, word: &str) -> Result<(f64, f64)> {
    let line = said.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    let mut numbers = line.into_iter().flat_map(str::split_whitespace).map(str::parse);
    let (Some(Ok(first)), Some(Ok(second))) = (numbers.next(), numbers.next()) else {
        anyhow::bail!("no {word} in {said:?}");
    };
    Ok((first, second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found() {
        let said = "first 10 2000000000\nmemory 0     9000 kB\n";
        assert!((rate(said, "first").unwrap() - 5.0).abs() < 1e-9);
        assert!((figures(said, "memory").unwrap().1 - 9000.0).abs() < 1e-9);
        assert!(rate(said, "served").is_err());
    }
}
