//! What the filter costs an ordinary program: its system calls, a compiler and a database, natively, in a
//! sandbox, and in gVisor's.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;

use super::host::Programs;
use super::rounds::Figure;
use super::rounds::Rounds;
use crate::exec;
use crate::table::Table;

/// Rounds of everything, by turns.
const ROUNDS: usize = 5;
/// Calls of a kind in a round.
const CALLS: &str = "4000";
/// gVisor's ways to trap system calls, the best first.
const PLATFORMS: &[&str] = &["systrap", "ptrace"];

/// Whole programs, as a shell starts them in a folder of their own.
const WHOLE: &[(&str, &str)] = &[
    (
        "cc of 100 files",
        "i=0; while [ $i -lt 100 ]; do echo \"#include <stdio.h>
         int f$i(int x) { return printf(\\\"%d\\\", x) + $i; }\" >f$i.c; cc -O1 -c f$i.c; i=$((i + 1)); done",
    ),
    (
        "SQLite: 40 transactions, 40,000 rows",
        "python3 -c \"import sqlite3
d = sqlite3.connect('file.db', isolation_level=None)
d.execute('create table t(a integer primary key, b text)')
for i in range(40):
    d.execute('begin')
    d.executemany('insert into t(b) values (?)', ((str(i * n),) for n in range(1000)))
    d.execute('commit')
    d.execute('select count(*), max(b) from t').fetchall()
d.execute('create index i on t(b)')
d.execute('delete from t where a % 2')\"",
    ),
];

/// Where a program runs.
#[derive(Clone, Debug)]
pub(super) enum Place<'a> {
    Native,
    Sandbox,
    /// gVisor: its program, and the platform.
    Runsc(&'a Path, &'static str),
}

impl Place<'_> {
    fn name(&self) -> String {
        match self {
            Self::Native => "native".to_owned(),
            Self::Sandbox => "inside".to_owned(),
            Self::Runsc(_, platform) => format!("runsc, {platform}"),
        }
    }

    fn command(&self, programs: &Programs, argv: &[&str]) -> Command {
        match self {
            Self::Sandbox => programs.sandbox(&[], argv),
            Self::Native => {
                let mut command = Command::new("env");
                command.args(argv);
                command
            }
            Self::Runsc(runsc, platform) => {
                let mut command = Command::new(runsc);
                let platform = format!("--platform={platform}");
                command.args(["--network=none", &platform, "do", "--"]).args(argv);
                command
            }
        }
    }
}

/// The platform that gVisor has here.
fn platform(runsc: &Path) -> Option<&'static str> {
    PLATFORMS.iter().copied().find(|platform| {
        let mut command = Command::new(runsc);
        command.args(["--network=none", &format!("--platform={platform}"), "do", "--", "true"]);
        exec::run(command).is_ok_and(|ended| ended.status == 0)
    })
}

/// Prints the tables; with gVisor's program, also of calls there.
///
/// # Errors
///
/// That a program failed.
pub fn run(programs: &Programs, runsc: Option<&Path>) -> Result<()> {
    let mut places = vec![Place::Native, Place::Sandbox];
    if let Some(runsc) = runsc {
        match platform(runsc) {
            Some(platform) => places.push(Place::Runsc(runsc, platform)),
            None => println!("gVisor is not measured: {} does not run here\n", runsc.display()),
        }
    }
    let (mut calls, mut whole) = (Rounds::default(), Rounds::default());
    for round in 1..=ROUNDS {
        eprintln!("calls, round {round} of {ROUNDS}");
        for (at, place) in places.iter().enumerate() {
            calls.add(at, in_place(programs, place, CALLS)?);
            for (name, script) in WHOLE {
                whole.add(at, [((*name).to_owned(), started(programs, place, script)?)]);
            }
        }
    }
    let names: Vec<String> = places.iter().map(Place::name).collect();
    let print = |first: &str, rounds: &Rounds, cell: fn(f64, f64) -> String| {
        let head: Vec<&str> =
            std::iter::once(first).chain(names.iter().map(String::as_str)).collect();
        let mut table = Table::new(&head);
        for (name, medians) in rounds.medians() {
            let native = medians.first().copied().unwrap_or(f64::NAN);
            let cells = medians.iter().map(|value| cell(native, *value));
            table.row(&std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>());
        }
        println!("{table}");
    };
    print("calls of an ordinary program: medians in us", &calls, |_, value| format!("{value:.2}"));
    print("whole programs: medians in ms, to native", &whole, |native, value| {
        format!("{value:.0}, {:.2}", value / native)
    });
    Ok(())
}

/// Calls by name, in microseconds.
pub(super) fn in_place(programs: &Programs, place: &Place<'_>, count: &str) -> Result<Vec<Figure>> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("file").to_string_lossy().into_owned();
    let guest = programs.0.join("verbgate-guest").to_string_lossy().into_owned();
    let command = place.command(programs, &[&guest, "calls", &file, count]);
    let said = exec::run(command)?.expect_status(0)?.stdout;
    said.lines()
        .map(|line| figure(line).with_context(|| format!("a strange line: {line}")))
        .collect()
}

/// `NAME: TIME ns`, as a name and microseconds.
fn figure(line: &str) -> Option<Figure> {
    let (name, time) = line.rsplit_once(": ")?;
    let time: f64 = time.strip_suffix(" ns")?.parse().ok()?;
    Some((name.to_owned(), time / 1000.0))
}

/// Milliseconds of a script, without the start of the sandbox.
fn started(programs: &Programs, place: &Place<'_>, script: &str) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let folder = dir.path().to_string_lossy();
    let script = format!(
        "mkdir -p {folder} && cd {folder} && from=$(date +%s%N) && {{ {script}\n}} && \
         echo took $(($(date +%s%N) - from))"
    );
    let begun = Instant::now();
    let said = exec::run(place.command(programs, &["sh", "-c", &script]))?;
    let said = said.expect_status(0)?.stdout;
    let took = said.split("took ").nth(1).and_then(|ns| ns.trim().parse::<f64>().ok());
    let took = took.with_context(|| format!("no time in {said:?} after {:?}", begun.elapsed()))?;
    Ok(took / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names_of_several_words() {
        let (name, time) = figure("open for both: 12500 ns").unwrap();
        assert_eq!((&*name, time), ("open for both", 12.5));
        assert!(figure("open").is_none());
    }
}
