//! The command line of `verbgate`: options and commands.

mod config;
mod dra;
mod engine;
mod env;
mod fabric;
mod groups;
mod netdev;
mod nri;
mod oci;
mod policy;

use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::CommandFactory;
use clap::FromArgMatches;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;
use clap::error::ErrorKind;
use verbgate_host::is_root;
use verbgate_host::output::say;
use verbgate_sys::sandbox;
use verbgate_sys::sandbox::KEEPABLE_CAPABILITIES;

pub(crate) use self::config::*;
pub(crate) use self::dra::*;
pub(crate) use self::engine::*;
pub(crate) use self::env::*;
pub(crate) use self::fabric::*;
pub(crate) use self::netdev::*;
pub(crate) use self::nri::*;
pub(crate) use self::oci::*;
pub(crate) use self::policy::*;
use crate::abi;
use crate::sysfs::SysfsCommand;

/// Exit code of usage errors in commands that run no program.
pub(crate) const EXIT_USAGE: u8 = 2;
/// The command by which a container of the doctor says what it sees.
pub(crate) const SEEN: &str = "doctor-seen";

/// RDMA for sandboxes and containers, without the RDMA devices
#[derive(Debug, Parser)]
#[command(name = "verbgate", version, max_term_width = 100)]
#[command(disable_help_subcommand = true)]
// Those of the configuration file come first, and the command line wins.
#[command(args_override_self = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The command line as the user typed it; `--help` lists the commands in groups.
    pub(crate) fn of(args: &[OsString]) -> Result<Self, clap::Error> {
        let matches = groups::grouped(Self::command()).try_get_matches_from(args)?;
        Self::from_arg_matches(&matches)
    }
}

/// Options that stand before the command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Directory for run-time state [default: /run/verbgate for root, else
    /// $XDG_RUNTIME_DIR/verbgate]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// File to append the log to [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Format of the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Lowest severity to log: error, warn, info, debug, trace or off
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub(crate) log_level: log::LevelFilter,
}

impl Global {
    /// The directory of run-time state.
    pub(crate) fn root(&self) -> PathBuf {
        let of_user = || std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !is_root());
        self.root.clone().unwrap_or_else(|| {
            of_user().map_or_else(|| "/run".into(), PathBuf::from).join("verbgate")
        })
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Debug, Subcommand)]
// Each start builds the options of one command, and not the several hundred of all. An `Args` that
// others flatten has no doc comment, which would come after the command's own, and replace it.
#[command(defer = true)]
pub(crate) enum Command {
    /// Run a program with RDMA, but without the RDMA devices
    Run(RunArgs),
    /// Run a program in the same way, and write down its RDMA requests
    Trace(TraceArgs),
    /// Measure what a sandbox costs on a device of this host
    Bench(CostArgs),
    #[command(name = verbgate_fabric::COST_WORKER, hide = true)]
    BenchWorker(CostWorkerArgs),
    /// Run as an OCI runtime that wraps runc or crun
    Oci(OciArgs),
    /// Serve containers of other runtimes, by a seccomp profile
    Agent(AgentArgs),
    #[command(name = verbgate_oci::agent::SUPERVISOR, hide = true)]
    AgentSupervisor(AgentSupervisorArgs),
    /// Have the agent serve pods without a RuntimeClass, as a plug-in (NRI)
    Nri(NriArgs),
    /// Describe this host's RDMA devices to container engines (CDI)
    #[command(subcommand)]
    Cdi(CdiCommand),
    /// Give this node's RDMA devices to claims of pods (Kubernetes' DRA)
    Dra(DraArgs),
    /// Register `verbgate oci` with docker, containerd, podman, CRI-O
    #[command(subcommand)]
    Runtime(RuntimeCommand),
    /// List the containers that have RDMA
    Ps(InspectArgs),
    /// Show a container's RDMA objects, memory and requests
    Show(ShowArgs),
    /// Print or serve counters of containers and tenants, for Prometheus
    ///
    /// Programs of `run` are not among them: see `run --report`.
    Stats(StatsArgs),
    /// Remove what crashed supervisors have left behind
    Gc(GcArgs),
    #[command(name = "pages", hide = true)]
    Pages(PagesArgs),
    #[command(name = verbgate_oci::cdi::HOOK, hide = true)]
    CdiHook(CdiHookArgs),
    #[command(name = verbgate_oci::HOOK, hide = true)]
    OciHook(HookArgs),
    #[command(name = verbgate_oci::SUPERVISOR, hide = true)]
    OciSupervisor(SupervisorArgs),
    #[command(name = verbgate_oci::WARDEN, hide = true)]
    OciWarden(WardenArgs),
    #[command(name = verbgate_oci::KEEPER, hide = true)]
    OciNetdevs(KeeperArgs),
    /// Show what this kernel and this build support
    Features(FeaturesArgs),
    /// Record, draw, compare and serve the /sys of RDMA devices
    #[command(subcommand)]
    Sysfs(SysfsCommand),
    /// List the kernel's RDMA methods that this build knows
    #[command(subcommand, arg_required_else_help = false)]
    Abi(AbiCommand),
    /// Check, show and apply config.toml, and check the policy
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check, explain, try and reload the operator's policy
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Move RoCE NICs into a container's network namespace, and back
    #[command(subcommand, arg_required_else_help = false)]
    Netdev(NetdevCommand),
    /// Print the settings that NCCL needs for the NICs
    #[command(subcommand, arg_required_else_help = false)]
    Nccl(EnvCommand),
    /// Print the settings that UCX needs for the NICs
    #[command(subcommand, arg_required_else_help = false)]
    Ucx(EnvCommand),
    /// Print the settings that NIXL needs for the NICs
    #[command(subcommand, arg_required_else_help = false)]
    Nixl(EnvCommand),
    /// Print the settings that Mooncake needs for the NICs
    #[command(subcommand, arg_required_else_help = false)]
    Mooncake(EnvCommand),
    /// Prepare this node of a cluster: check, move, verify, report
    Prepare(PrepareArgs),
    /// Write this node's rails, or agree on the rails of all nodes
    Manifest(ManifestArgs),
    /// Check what RDMA in containers needs, and how to fix the rest
    Doctor(DoctorArgs),
    #[command(name = SEEN, hide = true)]
    DoctorSeen,
    /// Verify, measure and diagnose a fabric, on all its nodes
    #[command(subcommand, arg_required_else_help = false)]
    Fabric(FabricCommand),
    /// Explain a status, event, errno, counter, or a line of a log
    Explain(ExplainArgs),
}

impl Command {
    /// The container's directory, for a process that outlives the process that started it: nobody
    /// reads what such a process prints.
    pub(crate) fn alone(&self) -> Option<&Path> {
        match self {
            Self::OciSupervisor(args) => Some(&args.place),
            Self::OciNetdevs(args) => Some(&args.place),
            Self::OciWarden(args) => Some(&args.place),
            Self::AgentSupervisor(args) => Some(&args.place),
            _ => None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct PagesArgs {
    /// Directory for man/*.1, and for completions under the names that shells look for
    pub(crate) dir: PathBuf,
    /// Date to print in the pages, as in 2026-01-31, so that builds are reproducible
    pub(crate) date: String,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum AbiCommand {
    /// Print all methods and legacy commands
    List(AbiListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AbiListArgs {
    /// Print only what this profile grants: standard, hpc or full
    #[arg(long, value_name = "NAME", value_parser = abi::profile)]
    pub(crate) profile: Option<String>,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 125 verbgate failed, 126 CMD cannot be executed, 127 CMD was not \
                        found, 128+N signal N ended CMD, otherwise the exit code of CMD.\n\n\
                        verbgate passes signals on to CMD. A CMD that does not handle SIGTERM is \
                        killed 3 seconds after SIGTERM; a second SIGTERM kills any CMD."
)]
pub(crate) struct RunArgs {
    /// RDMA device to grant; may be repeated. NAME is the name of the device (mlx5_0) or of the
    /// device's node (uverbs0); all grants every RDMA device of the host; uverbsN=PATH serves the
    /// character device PATH under the name uverbsN. Needed where the host has more than one device
    #[arg(long = "device", value_name = "NAME")]
    pub(crate) devices: Vec<OsString>,
    /// Network namespace to run the program in, e.g. /run/netns/NAME
    #[arg(long, value_name = "PATH")]
    pub(crate) netns: Option<PathBuf>,
    /// Capability that the program keeps, if it has the capability: NET_RAW (raw queue pairs, and packets
    /// that others' NICs execute as RDMA) or NET_ADMIN (interfaces, addresses and firewalls); may be
    /// repeated
    #[arg(long = "keep-cap", value_name = "NAME", value_parser = KEEPABLE_CAPABILITIES)]
    pub(crate) keep: Vec<String>,
    /// Number of descriptors, from 3 on, that the program inherits whatever they are. The program
    /// inherits other open descriptors if they are files, pipes, sockets, terminals or the like;
    /// verbgate closes those that could lead out of the sandbox: directories, O_PATH, devices,
    /// namespaces, pidfds, files of /proc and /sys
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) preserve_fds: u16,
    /// View of /sys: the granted devices and what surrounds them, or the host's
    #[arg(long, value_name = "WHICH", default_value = "virtual")]
    pub(crate) sysfs: SysfsOf,
    /// Run 32-bit programs (i386, ARM) too, without RDMA; their system calls fail with ENOSYS otherwise
    #[arg(long)]
    pub(crate) compat: bool,
    /// Requests that the program may make: standard, hpc (also XRC, multicast, device memory) or
    /// full (every known request, also raw packets and DEVX); where the operator has a policy, a
    /// profile can only narrow the tenant's [default: standard, or the tenant's profile]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    #[command(flatten)]
    pub(crate) policy: PolicyDir,
    /// Where to write refusals and connections, one JSON object a line: a file, `journald`, or
    /// unix:PATH for a datagram socket
    #[arg(long, value_name = "WHERE")]
    pub(crate) audit: Option<String>,
    /// End a program that has made no queue pair in time, with an error: libraries go on by sockets
    /// without a word when something is wrong with RDMA
    #[arg(long)]
    pub(crate) require_rdma: bool,
    /// Seconds until the first queue pair; a log line says when there is none then. With --require-rdma [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) rdma_within: Option<u64>,
    /// File for a report at the end (JSON): requests by kind, refusals, notifications, the
    /// supervisor's system calls
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        num_args = 1..,
        trailing_var_arg = true
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SysfsOf {
    /// The granted devices only, served by FUSE
    Virtual,
    /// The host's /sys, other devices included
    Host,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// File to write the requests to [default: standard error]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write JSON, one object for each request: verbgate policy test reads the lines
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Write no requests, and at the end how many of each kind there were, and how long they took
    #[arg(short, long)]
    pub(crate) summary: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// Device, port and GID, as in mlx5_0:1@3 [default: the first with an active port]
    #[arg(value_name = "RAIL")]
    pub(crate) rail: Option<verbgate_fabric::Choice>,
    /// How often to measure natively and in a sandbox, by turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: u32,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CostWorkerArgs {
    /// Device, port and GID
    pub(crate) rail: Option<verbgate_fabric::Choice>,
    /// Start and end alone
    #[arg(long)]
    pub(crate) nothing: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FeaturesArgs {
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Prints clap's message: help as it is, an error in one line.
pub(crate) fn report(error: &clap::Error, args: impl Iterator<Item = OsString>) -> ExitCode {
    let command = command_of(args.skip(1));
    let help = command.as_deref().map_or_else(String::new, |c| format!("{c} "));
    let runs = matches!(command.as_deref(), Some("run" | "trace"));
    complain(error, &help, if runs { sandbox::EXIT_OURS } else { EXIT_USAGE }).into()
}

/// Prints clap's message for a command, by the command's name; an error gives the exit code `code`.
pub(crate) fn complain(error: &clap::Error, command: &str, code: u8) -> u8 {
    if !error.use_stderr() {
        // Nothing is left to do about a closed standard output.
        let _ = error.print();
        return 0;
    }
    let line = match error.kind() {
        // Clap's text is the whole help, or lists hidden commands.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            "a command is missing".to_owned()
        }
        _ => one_line(&error.render().to_string()),
    };
    say(&format!("{line} (see: verbgate {command}--help)"));
    code
}

/// Place of the first word that is neither a global option nor the value of one.
pub(crate) fn first_word(args: &[OsString]) -> Option<usize> {
    let mut at = 0;
    loop {
        match args.get(at)?.to_str()? {
            "--root" | "--log" | "--log-format" | "--log-level" => at += 2,
            option if option.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
}

/// Name of the command that the user meant, if any.
fn command_of(args: impl Iterator<Item = OsString>) -> Option<String> {
    let args: Vec<OsString> = args.collect();
    let word = args.get(first_word(&args)?)?.to_str()?;
    groups::names().find(|name| *name == word).map(str::to_owned)
}

/// Clap's message up to its first blank line, without "error: ".
pub(crate) fn one_line(message: &str) -> String {
    let lines: Vec<&str> =
        message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let text = lines.join(" ");
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("verbgate").chain(args.iter().copied()))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_the_program_are_the_programs() {
        for args in [
            &["run", "--device", "rxe0", "--", "prog", "--device", "x", "-h"][..],
            &["run", "--device", "rxe0", "prog", "--device", "x", "-h"][..],
        ] {
            let Command::Run(run) = parse(args).unwrap().command else { panic!("not run") };
            assert_eq!(run.devices, ["rxe0"]);
            assert_eq!(run.command, ["prog", "--device", "x", "-h"]);
        }
    }

    #[test]
    fn usage_errors_are_one_line() {
        let error = parse(&["run"]).unwrap_err();
        let line = one_line(&error.render().to_string());
        assert!(line.contains("required") && line.contains("<CMD>"), "{line}");
        assert!(!line.contains('\n') && !line.starts_with("error"), "{line}");
    }

    #[test]
    fn the_command_is_found_behind_global_options() {
        let of = |args: &[&str]| command_of(args.iter().map(OsString::from));
        assert_eq!(of(&["--root", "/x", "run", "--nonsense"]).as_deref(), Some("run"));
        assert_eq!(of(&["--log=run", "features"]).as_deref(), Some("features"));
        assert_eq!(of(&["--log", "run"]), None);
        assert_eq!(of(&["nonsense", "run"]), None);
    }
}
