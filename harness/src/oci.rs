//! `verbgate oci`, `agent`, `ps`, `show`, `stats`, `gc`, `cdi` and `runtime`: arguments into calls
//! of the library.

use std::path::Path;

use clap::Parser;
use verbgate_host::files;
use verbgate_host::output;
use verbgate_oci::Globals;
use verbgate_oci::agent;
use verbgate_oci::cdi;
use verbgate_oci::cdi::Refreshed;
use verbgate_oci::engine;

use crate::cli;
use crate::cli::AgentArgs;
use crate::cli::CdiCommand;
use crate::cli::Global;
use crate::cli::HookArgs;
use crate::cli::OciArgs;
use crate::cli::ProfileArgs;
use crate::cli::RuntimeCommand;
use crate::doctor;
use crate::failure::Failure;
use crate::logging;

/// The command that is ours and no runtime's.
const PROFILE: &str = "profile";

/// The part of the command line that goes to the started processes.
pub(crate) fn globals(global: &Global) -> Globals {
    Globals { root: global.root(), log: logging::options().to_vec() }
}

/// Becomes the real runtime; returns only why that could not be.
pub(crate) fn run(args: &OciArgs, global: &Global) -> Result<u8, Failure> {
    if args.args.first().is_some_and(|word| word == PROFILE) {
        return match ProfileArgs::try_parse_from(&args.args) {
            Ok(args) => agent::profile::print(&(&args).into()).map_err(Failure::of_tool),
            Err(error) => Ok(cli::complain(&error, "oci profile ", cli::EXIT_USAGE)),
        };
    }
    Err(Failure::of_tool(verbgate_oci::run(&args.into(), &globals(global))))
}

/// Serves containers whose runtime has a seccomp profile only.
pub(crate) fn agent(args: &AgentArgs, global: &Global) -> Result<u8, Failure> {
    agent::run(&args.into(), &globals(global)).map_err(Failure::of_tool)
}

/// Runs a hook.
pub(crate) fn hook(args: &HookArgs) -> Result<u8, Failure> {
    let netdevs = args.netdevs.as_deref();
    verbgate_oci::hook(args.event.into(), &args.place, netdevs).map_err(Failure::of_tool)
}

/// Describes this host's RDMA devices to engines.
pub(crate) fn cdi(command: &CdiCommand) -> Result<u8, Failure> {
    let done = || -> Result<u8, anyhow::Error> {
        match command {
            CdiCommand::Generate(args) => {
                let text = cdi::generate()?;
                match &args.output {
                    None => output::print(&text)?,
                    Some(path) => write(path, &text)?,
                }
            }
            CdiCommand::Refresh(args) => {
                let file = args.output.display();
                match cdi::refresh(&args.output)? {
                    Refreshed::Same => {}
                    Refreshed::Written => output::say(&format!("wrote {file}")),
                    Refreshed::Removed => {
                        output::say(&format!("removed {file}: this host has no RDMA device"));
                    }
                }
            }
            CdiCommand::List(args) => {
                let names = cdi::names()?;
                let lines = || names.iter().map(|name| format!("{name}\n")).collect();
                let json = || Ok::<_, serde_json::Error>(serde_json::to_string(&names)? + "\n");
                output::print(&if args.json { json()? } else { lines() })?;
            }
        }
        Ok(0)
    };
    done().map_err(Failure::of_tool)
}

fn write(path: &Path, text: &str) -> Result<(), anyhow::Error> {
    files::replace(path, text.as_bytes(), files::PUBLIC)
        .map_err(|e| anyhow::anyhow!("cannot write the specification to {}: {e}", path.display()))
}

/// Makes engines know `verbgate oci`.
pub(crate) fn runtime(command: &RuntimeCommand, global: &Global) -> Result<u8, Failure> {
    match command {
        RuntimeCommand::Configure(args) => engine::configure(&args.into()),
        RuntimeCommand::Status(args) => return doctor::status(args, &globals(global)),
        RuntimeCommand::Unconfigure(args) => engine::unconfigure(&args.state_dir, args.dry_run),
    }
    .map_err(Failure::of_tool)
}
