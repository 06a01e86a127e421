#![forbid(unsafe_code)]
//! The command `verbgate`.

mod abi;
mod check;
mod cli;
mod config;
mod doctor;
mod engines;
mod env;
mod fabric;
mod failure;
mod features;
mod fences;
mod logging;
mod manifest;
mod netdev;
mod oci;
mod output;
mod pages;
mod policy;
mod policy_pages;
mod prepare;
mod run;
mod slip;
mod sysfs;
mod topology;
mod trace;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use verbgate_host::is_root;
use verbgate_host::output::say;
use verbgate_netdev::env::Library;
use verbgate_netdev::journal;
use verbgate_sys::process;

use crate::cli::AbiCommand;
use crate::cli::Cli;
use crate::cli::Command;
use crate::cli::EnvCommand;
use crate::failure::Failure;

/// Supervisors live long and have a thread for each guest that waits.
#[cfg(target_env = "gnu")]
#[global_allocator]
static HEAP: verbgate_sys::heap::FewSizes = verbgate_sys::heap::FewSizes;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let args = verbgate_oci::called(&args).unwrap_or(args);
    let config::Added { args, notice } =
        match config::add(&args, Path::new(config::FILE), Path::new(config::LAST)) {
            Ok(added) => added,
            Err(failure) => return told(&failure),
        };
    let cli = match Cli::of(&args) {
        Ok(cli) => cli,
        Err(error) => return cli::report(&error, args.into_iter()),
    };
    let begun = begin(&cli, notice.as_deref());
    let result = begun.and_then(|()| match &cli.command {
        Command::Run(args) => run::run(args, &cli.global.root()),
        Command::Trace(args) => trace::run(args, &cli.global.root()),
        Command::Bench(args) => fabric::cost(args),
        Command::BenchWorker(args) => fabric::cost_worker(args),
        Command::Oci(args) => oci::run(args, &cli.global),
        Command::Agent(args) => oci::agent(args, &cli.global),
        Command::AgentSupervisor(args) => of_tool(verbgate_oci::agent::supervise(&args.place)),
        Command::Nri(args) => of_tool(verbgate_oci::nri::run(&args.into())),
        Command::Cdi(command) => oci::cdi(command),
        Command::Pages(args) => pages::run(args),
        Command::CdiHook(_) => of_tool(verbgate_oci::cdi::hook()),
        Command::Dra(args) if args.withdraw => of_tool(verbgate_dra::withdraw(&args.into())),
        Command::Dra(args) => of_tool(verbgate_dra::run(&args.into())),
        Command::Runtime(command) => oci::runtime(command, &cli.global),
        Command::Ps(args) => of_tool(verbgate_oci::ps(&oci::globals(&cli.global), args.json)),
        Command::Show(args) => {
            of_tool(verbgate_oci::show(&oci::globals(&cli.global), &args.sandbox, args.json))
        }
        Command::Stats(args) => {
            let globals = oci::globals(&cli.global);
            of_tool(verbgate_oci::stats(&globals, args.listen.as_deref(), args.json))
        }
        Command::Gc(args) => {
            of_tool(verbgate_oci::gc(&oci::globals(&cli.global), &args.state_dir, args.json))
        }
        Command::OciHook(args) => oci::hook(args),
        Command::OciSupervisor(args) => {
            let globals = oci::globals(&cli.global);
            of_tool(verbgate_oci::supervise(&args.place, args.runtime, &globals))
        }
        Command::OciWarden(args) => {
            of_tool(verbgate_oci::ward(&args.place, args.pid, args.supervisor))
        }
        Command::OciNetdevs(args) => of_tool(verbgate_oci::keep(&args.place, args.pid)),
        Command::Features(args) => features::run(args, &cli.global),
        Command::Sysfs(command) => sysfs::run(command),
        Command::Abi(AbiCommand::List(args)) => abi::list(args),
        Command::Config(command) => config::run(command, &cli.global),
        Command::Policy(command) => policy::run(command, &cli.global),
        Command::Netdev(command) => netdev::run(command),
        Command::Nccl(EnvCommand::Env(args)) => env::run(Library::Nccl, args),
        Command::Ucx(EnvCommand::Env(args)) => env::run(Library::Ucx, args),
        Command::Nixl(EnvCommand::Env(args)) => env::run(Library::Nixl, args),
        Command::Mooncake(EnvCommand::Env(args)) => env::run(Library::Mooncake, args),
        Command::Prepare(args) => prepare::run(args, &oci::globals(&cli.global)),
        Command::Manifest(args) => manifest::run(args),
        Command::Doctor(args) => doctor::run(args, &oci::globals(&cli.global)),
        Command::DoctorSeen => of_tool(doctor::seen()),
        Command::Fabric(command) => fabric::run(command),
        Command::Explain(args) => fabric::explain(args),
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => told(&failure),
    }
}

fn of_tool(done: Result<u8, anyhow::Error>) -> Result<u8, Failure> {
    done.map_err(Failure::of_tool)
}

fn told(failure: &Failure) -> ExitCode {
    // One line: an error's text may quote others' lines.
    say(&failure.to_string().replace('\n', " "));
    ExitCode::from(failure.code)
}

/// Steps before a command, in this order: closing the descriptors that an own process inherited
/// from an engine, which waits for their end; then the log, which must not be closed again; and then the state
/// that an earlier version hid from other users.
fn begin(cli: &Cli, notice: Option<&str>) -> Result<(), Failure> {
    let alone = cli.command.alone();
    if alone.is_some() {
        process::close_from(3)
            .context("cannot close inherited descriptors (Linux 5.9 is needed)")?;
    }
    let anyway = alone.is_some() || matches!(cli.command, Command::Oci(_));
    let missing = logging::start(&cli.global, alone, anyway)?.map(|error| error.to_string());
    // Engines read what `state` and `ps` print, standard error included.
    let is_read = matches!(&cli.command, Command::Oci(args) if !verbgate_oci::creates(&args.args));
    if !is_read || cli.global.log.is_some() && missing.is_none() {
        missing.as_deref().into_iter().chain(notice).for_each(|line| log::warn!("{line}"));
    }
    if alone.is_none()
        && is_root()
        && let Err(e) = journal::show_to_all(Path::new(journal::STATE_DIR))
    {
        log::warn!("other users cannot read {}: {e}", journal::STATE_DIR);
    }
    Ok(())
}
