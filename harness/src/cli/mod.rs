//! The command line.

mod fabric;
mod netdev;
mod oci;

use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;
use verbgate_host::is_root;
use verbgate_host::output::say;
use verbgate_sys::sandbox;

pub(crate) use self::fabric::*;
pub(crate) use self::netdev::*;
pub(crate) use self::oci::*;
use crate::abi;
use crate::sysfs::SysfsCommand;

/// Usage errors of commands that run no program.
pub(crate) const EXIT_USAGE: u8 = 2;

/// RDMA for sandboxes.
#[derive(Debug, Parser)]
#[command(name = "verbgate", version, about, max_term_width = 100)]
#[command(disable_help_subcommand = true)]
// Those of the configuration file come first, and the command line wins.
#[command(args_override_self = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options before the command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Directory for run-time state [default: /run/verbgate for root, else
    /// $XDG_RUNTIME_DIR/verbgate]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// File to append the log to, instead of standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Format of the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Least severity to log: error, warn, info, debug, trace or off
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
pub(crate) enum Command {
    /// Run a program with RDMA but without the RDMA devices
    Run(RunArgs),
    /// Run a program and write down its RDMA requests
    Trace(TraceArgs),
    /// Be an OCI runtime: that of another name, which gives containers RDMA
    Oci(OciArgs),
    /// Serve containers whose runtime can be given nothing but a seccomp profile
    Agent(AgentArgs),
    #[command(name = verbgate_oci::agent::SUPERVISOR, hide = true)]
    AgentSupervisor(AgentSupervisorArgs),
    /// Describe this host's RDMA devices to container engines
    #[command(subcommand)]
    Cdi(CdiCommand),
    /// Make container engines know `verbgate oci`
    #[command(subcommand)]
    Runtime(RuntimeCommand),
    /// List the containers that have RDMA
    Ps(InspectArgs),
    /// Show what a container's supervisor holds and has done
    Show(ShowArgs),
    /// Print or serve numbers of all containers, for Prometheus
    Stats(StatsArgs),
    /// Remove what dead supervisors have left behind
    Gc(GcArgs),
    #[command(name = "pages", hide = true)]
    Pages(PagesArgs),
    #[command(name = verbgate_oci::cdi::HOOK, hide = true)]
    CdiHook,
    #[command(name = verbgate_oci::HOOK, hide = true)]
    OciHook(HookArgs),
    #[command(name = verbgate_oci::SUPERVISOR, hide = true)]
    OciSupervisor(SupervisorArgs),
    #[command(name = verbgate_oci::KEEPER, hide = true)]
    OciNetdevs(KeeperArgs),
    /// Show what this build and this kernel support
    Features(FeaturesArgs),
    /// Record, show and serve what sandboxes see of a host's devices
    #[command(subcommand)]
    Sysfs(SysfsCommand),
    /// Show the kernel's interface as this build knows it
    #[command(subcommand, arg_required_else_help = false)]
    Abi(AbiCommand),
    /// Move RoCE NICs into a container's network namespace, and back
    #[command(subcommand, arg_required_else_help = false)]
    Netdev(NetdevCommand),
    /// What NCCL needs to know of the NICs
    #[command(subcommand, arg_required_else_help = false)]
    Nccl(NcclCommand),
    /// Prepare this node of a cluster: check, move, verify, and say what the others need
    Prepare(PrepareArgs),
    /// Write this node's rails, or agree on those that all nodes have
    Manifest(ManifestArgs),
    /// Check what RDMA in containers needs here, with the remedy for what lacks
    Doctor(DoctorArgs),
    /// Prove that a fabric works, from inside the sandboxes of its nodes
    #[command(subcommand, arg_required_else_help = false)]
    Fabric(FabricCommand),
    /// Say what a status, an event, an errno, a vendor's code or a counter means, also in a line of a log
    Explain(ExplainArgs),
}

impl Command {
    /// A process that goes on when its starter has ended, with nobody to read what it prints: the
    /// container's directory.
    pub(crate) fn alone(&self) -> Option<&Path> {
        match self {
            Self::OciSupervisor(args) => Some(&args.place),
            Self::OciNetdevs(args) => Some(&args.place),
            Self::AgentSupervisor(args) => Some(&args.place),
            _ => None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct PagesArgs {
    /// Directory to write to: man/*.1, and completions by the names that shells look for
    pub(crate) dir: PathBuf,
    /// The date of the pages, as in 2026-01-31: a build of the same source is the same
    pub(crate) date: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AbiCommand {
    /// Print all methods and legacy commands
    List(AbiListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AbiListArgs {
    /// Print only what a profile grants: standard, hpc or full
    #[arg(long, value_name = "NAME", value_parser = abi::profile)]
    pub(crate) profile: Option<String>,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 125 verbgate failed, 126 CMD cannot be invoked, 127 CMD not \
                        found, 128+n CMD ended by signal n, otherwise CMD's own.\n\nSignals are \
                        passed on to CMD. 3 seconds after SIGTERM, CMD is killed if it neither has \
                        ended nor handles that signal; another SIGTERM kills it in any case.")]
pub(crate) struct RunArgs {
    /// Grant an RDMA device; may be repeated. NAME is that of the device (mlx5_0) or of its node
    /// (uverbs0); all grants every RDMA device of the host; uverbsN=PATH serves the character device
    /// PATH under the name uverbsN. Needed where the host has more than one device
    #[arg(long = "device", value_name = "NAME")]
    pub(crate) devices: Vec<OsString>,
    /// Enter a network namespace, e.g. /run/netns/NAME
    #[arg(long, value_name = "PATH")]
    pub(crate) netns: Option<PathBuf>,
    /// Pass on N descriptors behind standard error (3 and up) whatever they are. Other open
    /// descriptors are passed on if they are files, pipes, sockets, terminals or the like, and
    /// closed if they could lead out of the sandbox: directories, O_PATH, devices, namespaces,
    /// pidfds, files of /proc and /sys
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) preserve_fds: u16,
    /// What the program sees as /sys: its own devices and what is around them, or the host's
    #[arg(long, value_name = "WHICH", default_value = "virtual")]
    pub(crate) sysfs: SysfsOf,
    /// What the program may ask for: standard, hpc (XRC, multicast, device memory too) or full
    /// (everything that is known, raw packets and DEVX too)
    #[arg(long, value_name = "NAME", default_value = "standard")]
    pub(crate) profile: String,
    /// File to write to, at the end, what the supervisor did: requests by kind, refusals,
    /// notifications, its own system calls (JSON)
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
    /// Only what is granted, served by FUSE
    Virtual,
    /// The host's own, other devices included
    Host,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// File to write to, instead of standard error
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FeaturesArgs {
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Prints what clap has to say: help as it is, an error in one line.
pub(crate) fn report(error: &clap::Error, args: impl Iterator<Item = OsString>) -> ExitCode {
    let command = command_of(args.skip(1));
    let help = command.as_deref().map_or_else(String::new, |c| format!("{c} "));
    let runs = matches!(command.as_deref(), Some("run" | "trace"));
    complain(error, &help, if runs { sandbox::EXIT_OURS } else { EXIT_USAGE }).into()
}

/// The same for a command by its name; what to exit with, if it is an error, is given.
pub(crate) fn complain(error: &clap::Error, command: &str, code: u8) -> u8 {
    if !error.use_stderr() {
        // Nothing is left to do about a closed standard output.
        let _ = error.print();
        return 0;
    }
    let line = one_line(&error.render().to_string());
    say(&format!("{line} (see: verbgate {command}--help)"));
    code
}

/// The place of the first word that is neither a global option nor the value of one.
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

/// The command that was meant, if any.
fn command_of(args: impl Iterator<Item = OsString>) -> Option<String> {
    let args: Vec<OsString> = args.collect();
    let word = args.get(first_word(&args)?)?.to_str()?;
    match word {
        "run" | "trace" | "oci" | "agent" | "cdi" | "runtime" | "ps" | "show" | "stats" | "gc"
        | "features" | "abi" | "netdev" | "nccl" | "prepare" | "manifest" | "doctor" | "sysfs"
        | "fabric" | "explain" => Some(word.to_owned()),
        _ => None,
    }
}

/// Clap's message up to its first blank line, without "error: ".
fn one_line(message: &str) -> String {
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
        use clap::CommandFactory;
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
