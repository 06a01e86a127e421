//! The command line of what concerns containers and their engines.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;
use verbgate_netdev::journal::STATE_DIR;
use verbgate_oci::Event;
use verbgate_oci::agent;
use verbgate_oci::agent::profile;
use verbgate_oci::engine::Configure;
use verbgate_oci::engine::Engine;
use verbgate_oci::engine::Wrapped;

use crate::cli::SysfsOf;

#[derive(Debug, Subcommand)]
pub(crate) enum CdiCommand {
    /// Write a CDI specification of this host's RDMA devices
    Generate(GenerateArgs),
    /// Print the names by which engines are asked for them
    List(CdiListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// File to write to, e.g. /etc/cdi/verbgate.json, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CdiListArgs {
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(after_help = "The arguments are those of the real runtime, and so are output and exit \
                        code. Engines take this program as a runtime by the name verbgate-oci: \
                        make a link of that name, or verbgate-oci-crun, verbgate-oci-runc. \
                        `verbgate oci profile` prints the seccomp profile for `verbgate agent`.")]
pub(crate) struct OciArgs {
    /// The real runtime: a path, or a name to look for in PATH [default: runc, else crun]
    #[arg(long, value_name = "RUNTIME")]
    pub(crate) runtime: Option<OsString>,
    /// What containers may ask for, unless their annotation org.verbgate.profile says less:
    /// standard, hpc or full
    #[arg(long, value_name = "NAME", default_value = "standard")]
    pub(crate) profile: String,
    /// What containers see as /sys: their own devices and what is around them, or what the real
    /// runtime mounts there
    #[arg(long, value_name = "WHICH", default_value = "virtual")]
    pub(crate) sysfs: SysfsOf,
    /// Have a character device stand for an RDMA device, for tests; may be repeated
    #[arg(long, value_name = "uverbsN=PATH")]
    pub(crate) stand_in: Vec<OsString>,
    /// Directory for the journals of NICs that are in containers; it must outlive a reboot
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Read sysfs here, to find NICs of RDMA devices; for tests
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    pub(crate) sysfs_root: PathBuf,
    /// The real runtime's arguments
    #[arg(value_name = "RUNTIME-ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct SupervisorArgs {
    /// The container's directory
    pub(crate) place: PathBuf,
    /// The process that is, or becomes, the real runtime
    pub(crate) runtime: i32,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Directory for the journals of NICs that are in containers
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The container's id, or the beginning of it if no other begins so
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Serve them on a Unix socket at this path, by HTTP or, to who sends nothing else, as they are
    #[arg(long, value_name = "PATH", conflicts_with = "json")]
    pub(crate) listen: Option<PathBuf>,
    /// Print JSON, as `ps --json` and `show --json` do
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HookArgs {
    /// What happened
    pub(crate) event: EventArg,
    /// The container's directory
    pub(crate) place: PathBuf,
    /// The directory of the journal of its NICs
    #[arg(long, value_name = "DIR")]
    pub(crate) netdevs: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct KeeperArgs {
    /// The container's directory
    pub(crate) place: PathBuf,
    /// The container's first process
    pub(crate) pid: i32,
}

#[derive(Debug, Args)]
pub(crate) struct AgentSupervisorArgs {
    /// The container's directory
    pub(crate) place: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Listens on the socket that systemd passes, if it passes one; says when it is \
                        ready (Type=notify). The profile for its containers: verbgate oci profile."
)]
pub(crate) struct AgentArgs {
    /// Where to listen [default: agent.sock in --root]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// What containers may ask for, unless their annotation org.verbgate.profile says less:
    /// standard, hpc or full
    #[arg(long, value_name = "NAME", default_value = "standard")]
    pub(crate) profile: String,
    /// Have a character device stand for an RDMA device, for tests; may be repeated
    #[arg(long, value_name = "uverbsN=PATH")]
    pub(crate) stand_in: Vec<OsString>,
}

/// Print the seccomp profile for containers that `verbgate agent` serves.
#[derive(Debug, Parser)]
#[command(name = "verbgate oci profile", after_help = LACKS)]
pub(crate) struct ProfileArgs {
    /// The agent's socket, as the runtime finds it
    #[arg(long, value_name = "PATH", default_value = "/run/verbgate/agent.sock")]
    pub(crate) listener: PathBuf,
    /// Have requests wait for their answers without being interrupted by signals: for runtimes with
    /// libseccomp 2.6 or newer, which know the flag
    #[arg(long)]
    pub(crate) wait_killable: bool,
    /// Watch write(2), too: for crun; runc refuses such a profile
    #[arg(long)]
    pub(crate) write: bool,
}

/// What this way cannot do; printed by `--help`, and with the reasons in harness/README.md.
const LACKS: &str = "Put it into config.json as linux.seccomp, or give it to the engine (docker, \
podman: --security-opt seccomp=FILE; CRI: a localhost profile). It replaces the engine's own profile: \
everything that it does not name is allowed.

What this way cannot do, and `verbgate oci` can: show the container its own /sys; take its \
capabilities; and, without --write, watch write(2), so no doorbells of software NICs (Soft-RoCE, \
siw), no legacy commands and no rdma_cm. A container whose devices the device cgroup lets it open, or with CAP_SYS_ADMIN or \
CAP_SYS_PTRACE, is not served. Without --wait-killable, a signal that comes in the middle of a \
request makes it fail with EINTR though it may have been executed.";

#[derive(Debug, Subcommand)]
pub(crate) enum RuntimeCommand {
    /// Make `verbgate oci` known to a container engine, as a runtime beside the others
    Configure(ConfigureArgs),
    /// Take back every change that `runtime configure` has made to engines' files on this host
    Unconfigure(UnconfigureArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UnconfigureArgs {
    /// Only print what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Directory of the records of what the files were before
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigureArgs {
    /// The engine
    #[arg(long, value_name = "ENGINE")]
    pub(crate) runtime: EngineArg,
    /// The name by which containers ask for it (docker run --runtime NAME)
    #[arg(long, value_name = "NAME", default_value = "verbgate")]
    pub(crate) name: String,
    /// The real runtime that it wraps
    #[arg(long, value_name = "RUNTIME", default_value = "runc")]
    pub(crate) wrap: WrappedArg,
    /// Have the engine read CDI specifications, too: docker and containerd; the others do anyway
    #[arg(long)]
    pub(crate) cdi: bool,
    /// The file to edit, or to make [default: the engine's own]
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Path of the engine's program, which checks the changed file before the file is written [default:
    /// containerd or dockerd, in PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) engine: Option<PathBuf>,
    /// Write the file without a check by the engine's program
    #[arg(long, conflicts_with = "engine")]
    pub(crate) no_verify: bool,
    /// Only print what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take it back: the file is byte by byte as it was, if nobody else has changed it since
    #[arg(long)]
    pub(crate) undo: bool,
    /// Directory in which it is kept what the file was
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum EventArg {
    /// `createRuntime`: the container's first process is there
    Created,
    /// `poststop`: the container is gone
    Stopped,
}

impl From<EventArg> for Event {
    fn from(arg: EventArg) -> Self {
        match arg {
            EventArg::Created => Self::Created,
            EventArg::Stopped => Self::Stopped,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum EngineArg {
    Docker,
    Containerd,
    Podman,
    Crio,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WrappedArg {
    Runc,
    Crun,
}

impl From<&OciArgs> for verbgate_oci::Options {
    fn from(args: &OciArgs) -> Self {
        Self {
            runtime: args.runtime.clone(),
            profile: args.profile.clone(),
            virtual_sysfs: args.sysfs == SysfsOf::Virtual,
            stand_in: args.stand_in.clone(),
            state_dir: args.state_dir.clone(),
            sysfs_root: args.sysfs_root.clone(),
            args: args.args.clone(),
        }
    }
}

impl From<&AgentArgs> for agent::AgentOptions {
    fn from(args: &AgentArgs) -> Self {
        Self {
            socket: args.socket.clone(),
            profile: args.profile.clone(),
            stand_in: args.stand_in.clone(),
        }
    }
}

impl From<&ProfileArgs> for profile::ProfileOptions {
    fn from(args: &ProfileArgs) -> Self {
        let listener = args.listener.clone();
        Self { listener, wait_killable: args.wait_killable, write: args.write }
    }
}

impl From<&ConfigureArgs> for Configure {
    fn from(args: &ConfigureArgs) -> Self {
        Self {
            engine: match args.runtime {
                EngineArg::Docker => Engine::Docker,
                EngineArg::Containerd => Engine::Containerd,
                EngineArg::Podman => Engine::Podman,
                EngineArg::Crio => Engine::Crio,
            },
            name: args.name.clone(),
            wrap: match args.wrap {
                WrappedArg::Runc => Wrapped::Runc,
                WrappedArg::Crun => Wrapped::Crun,
            },
            cdi: args.cdi,
            config: args.config.clone(),
            program: args.engine.clone(),
            no_verify: args.no_verify,
            dry_run: args.dry_run,
            undo: args.undo,
            state_dir: args.state_dir.clone(),
        }
    }
}
