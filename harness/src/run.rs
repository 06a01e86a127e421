//! `verbgate run`: a program in its sandbox.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use verbgate_sandbox::Counts;
use verbgate_sandbox::Host;
use verbgate_sandbox::Observer;
use verbgate_sandbox::Policy;
use verbgate_sandbox::Program;
use verbgate_sandbox::Sandbox;
use verbgate_sandbox::resolve;

use crate::cli::RunArgs;
use crate::cli::SysfsOf;
use crate::failure::Failure;

/// Runs the program; the exit code is its own.
pub(crate) fn run(args: &RunArgs) -> Result<u8, Failure> {
    supervised(args, None)
}

/// The common part of `run` and `trace`.
pub(crate) fn supervised(
    args: &RunArgs,
    observer: Option<Box<dyn Observer>>,
) -> Result<u8, Failure> {
    let devices = resolve(&args.devices, Host::real())?;
    let sandbox = Sandbox::new(devices, Policy::named(&args.profile)?)?;
    // Before the start, after which this process may no longer make files.
    let file = args.report.as_deref().map(report_file).transpose()?;
    let program = Program {
        argv: &args.command,
        netns: args.netns.as_deref(),
        preserve_fds: args.preserve_fds,
        virtual_sysfs: args.sysfs == SysfsOf::Virtual,
    };
    let mut running = sandbox.start(&program, observer)?;
    let ended = running.wait();
    if let Some(file) = &file {
        report(&running.counts(), file)?;
    }
    Ok(ended?.code())
}

/// A file for the report.
fn report_file(path: &Path) -> Result<File, anyhow::Error> {
    File::create(path).with_context(|| format!("--report: cannot create {}", path.display()))
}

/// Writes what a supervisor did, as JSON.
fn report(counts: &Counts, mut file: &File) -> Result<(), anyhow::Error> {
    writeln!(file, "{}", verbgate_sandbox::counted(counts)).context("cannot write the report")
}
