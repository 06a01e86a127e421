//! What a sandbox costs on a device of this host: the same work natively and in a sandbox, by turns.
//!
//! A program of [`COST_WORKER`] does the work and writes how long each operation took; [`cost`] runs
//! that program alone and by `verbgate run`, and compares.

mod table;
mod work;

use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use serde::Deserialize;
use serde::Serialize;

use self::table::Comparison;
use crate::Choice;
use crate::error::Error;
use crate::rail;
use crate::rail::Rail;

/// The hidden command that does the work.
pub const COST_WORKER: &str = "bench-worker";

/// What [`cost`] measures.
#[derive(Clone, Debug)]
pub struct CostOptions {
    /// The device, port and GID; without them the first device with an active port.
    pub rail: Option<Choice>,
    /// How often both ways are measured.
    pub rounds: u32,
    /// JSON instead of a table.
    pub json: bool,
}

/// An operation and how long one took, in nanoseconds: the median of one worker's turns.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Sample {
    operation: String,
    nanoseconds: u64,
}

/// What a worker writes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
struct Work {
    samples: Vec<Sample>,
    /// Why there are no samples of data.
    no_data: Option<String>,
}

/// Measures, and returns a table: each operation's median natively and in a sandbox, in
/// microseconds, and the ratio of both.
///
/// # Errors
/// No device is usable; the worker fails in one of both ways.
pub fn cost(options: &CostOptions) -> Result<String, Error> {
    let rail = chosen(options.rail.as_ref())?;
    let own = std::env::current_exe().map_err(|error| Error::Io {
        what: "cannot find the program verbgate itself".to_owned(),
        error,
    })?;
    let at = format!("{}:{}@{}", rail.device, rail.port, rail.gid_index);
    let natively = || {
        let mut command = Command::new(&own);
        command.args([COST_WORKER, &at]);
        command
    };
    let sandboxed = || {
        let mut command = Command::new(&own);
        command.args(["run", "--device", &rail.device, "--"]).arg(&own).args([COST_WORKER, &at]);
        command
    };
    let mut table = Comparison::default();
    // Not counted: files that are read from a disk for the first time.
    work_of("natively", natively(), true)?;
    work_of("in a sandbox", sandboxed(), true)?;
    for _ in 0..options.rounds.max(1) {
        for (way, command) in [("natively", natively()), ("in a sandbox", sandboxed())] {
            table.add(way == "natively", work_of(way, command, false)?);
        }
        for (native, command) in [(true, natively()), (false, sandboxed())] {
            table.add_start(native, start_of(command)?);
        }
    }
    Ok(if options.json { table.json(&at) } else { table.text(&at, options.rounds.max(1)) })
}

/// Does the work of one round, and returns what [`cost`] reads.
///
/// # Errors
/// The device cannot be opened.
pub fn cost_worker(rail: Option<&Choice>, nothing: bool) -> Result<String, Error> {
    let work = if nothing { Work::default() } else { work::all(&chosen(rail)?)? };
    serde_json::to_string(&work).map_err(|e| Error::Check(e.to_string()))
}

fn chosen(rail: Option<&Choice>) -> Result<Rail, Error> {
    let choices = rail.map_or_else(rail::all, |choice| Ok(vec![choice.clone()]))?;
    let looked: Vec<Rail> = choices.iter().map(|choice| Rail::look(choice).0).collect();
    let usable = |rail: &&Rail| rail.fault.is_none() && rail.active;
    match looked.iter().find(usable).or_else(|| looked.iter().find(|rail| rail.fault.is_none())) {
        Some(rail) => Ok(rail.clone()),
        None => {
            let fault = |rail: &Rail| {
                format!("{}: {}", rail.device, rail.fault.as_deref().unwrap_or("no fault"))
            };
            Err(Error::Check(format!(
                "no RDMA device can be measured: {}",
                looked.iter().map(fault).collect::<Vec<_>>().join("; ")
            )))
        }
    }
}

fn output_of(way: &str, command: &mut Command) -> Result<Vec<u8>, Error> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output
        .map_err(|error| Error::Io { what: format!("cannot start verbgate {way}"), error })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::Check(format!(
        "the work failed {way} ({}): what stands above says why; `verbgate doctor` looks for more",
        output.status
    )))
}

fn work_of(way: &str, mut command: Command, nothing: bool) -> Result<Work, Error> {
    if nothing {
        command.arg("--nothing");
    }
    let text = output_of(way, &mut command)?;
    serde_json::from_slice(&text)
        .map_err(|e| Error::Check(format!("cannot read what the worker wrote {way}: {e}")))
}

/// How long it takes to start and end a program that does nothing.
fn start_of(mut command: Command) -> Result<Duration, Error> {
    let begun = Instant::now();
    output_of("without work", command.arg("--nothing"))?;
    Ok(begun.elapsed())
}
