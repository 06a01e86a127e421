//! The command line of the commands for containers and engines.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;
use verbgate_netdev::journal::STATE_DIR;
use verbgate_oci::Allowed;
use verbgate_oci::Annotations;
use verbgate_oci::Event;
use verbgate_oci::agent;
use verbgate_oci::agent::profile;
use verbgate_oci::engine::Configure;
use verbgate_sandbox::Expected;
use verbgate_sys::sandbox::KEEPABLE_CAPABILITIES;

use crate::abi;
use crate::cli::EngineArg;
use crate::cli::PolicyDir;
use crate::cli::SysfsOf;

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum CdiCommand {
    /// Write a CDI specification of this host's RDMA devices
    Generate(GenerateArgs),
    /// Bring a CDI specification up to date: write the file, or remove the file where no device is left
    Refresh(RefreshArgs),
    /// Print the names by which containers ask engines for the devices
    List(CdiListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// File to write to, e.g. /etc/cdi/verbgate.json [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RefreshArgs {
    /// File of the specification; engines read /etc/cdi and /run/cdi
    #[arg(short, long, value_name = "FILE", default_value = "/run/cdi/verbgate.json")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CdiHookArgs {
    /// The record of a claim, for the runtime
    #[arg(long, value_name = "JSON")]
    pub(crate) claim: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CdiListArgs {
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

// What containers may have, of every command that gives containers RDMA.
#[derive(Debug, Args)]
pub(crate) struct AllowedArgs {
    /// Requests that containers may make: standard, hpc or full; a container's annotation
    /// org.verbgate.profile can allow less
    #[arg(long, value_name = "NAME", default_value = "standard", value_parser = abi::profile)]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) policy: PolicyDir,
    /// Capability that containers with RDMA keep, if they have the capability: NET_RAW or NET_ADMIN, by
    /// which a container reaches the NICs of others and takes addresses of others; may be repeated
    #[arg(long = "keep-cap", value_name = "NAME", value_parser = KEEPABLE_CAPABILITIES)]
    pub(crate) keep: Vec<String>,
    /// Power of the annotation org.verbgate.devices and the like. Whoever makes a container writes
    /// annotations
    #[arg(long, value_name = "POWER", default_value = "narrow")]
    pub(crate) annotations: AnnotationsArg,
    /// Why the configuration cannot be read: no container gets RDMA
    #[arg(long, value_name = "WHY", hide = true)]
    pub(crate) refuse: Option<String>,
}

impl From<&AllowedArgs> for Allowed {
    fn from(args: &AllowedArgs) -> Self {
        Self {
            profile: args.profile.clone(),
            policy_dir: args.policy.policy_dir.clone(),
            annotations: args.annotations.into(),
            keep: args.keep.clone(),
            audit: None,
            expected: None,
            stand_in: Vec::new(),
            refuse: args.refuse.clone(),
        }
    }
}

// What is done about containers, of every command that starts supervisors.
#[derive(Debug, Args)]
pub(crate) struct ServedArgs {
    /// Where to write refusals and connections, one JSON object a line: a file, `journald`, or
    /// unix:PATH for a datagram socket
    #[arg(long, value_name = "WHERE")]
    pub(crate) audit: Option<String>,
    /// End a container that has made no queue pair in time, with an error: libraries go on by sockets
    /// without a word when something is wrong with RDMA
    #[arg(long)]
    pub(crate) require_rdma: bool,
    /// Seconds until the first queue pair; a log line says when there is none then; 0 for no such line
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) rdma_within: u64,
    /// Character device to serve in place of an RDMA device, for tests; may be repeated
    #[arg(long, value_name = "uverbsN=PATH")]
    pub(crate) stand_in: Vec<OsString>,
}

impl ServedArgs {
    fn allowed(&self, allowed: &AllowedArgs) -> Allowed {
        Allowed {
            audit: self.audit.clone(),
            expected: (self.rdma_within > 0)
                .then_some(Expected { within: self.rdma_within, required: self.require_rdma }),
            stand_in: self.stand_in.clone(),
            ..allowed.into()
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Arguments, output and exit code are those of the wrapped runtime. Engines take \
                        this program as a runtime by the name verbgate-oci: make a link of that \
                        name, or of the name verbgate-oci-crun or verbgate-oci-runc. `verbgate oci \
                        profile` prints the seccomp profile for `verbgate agent`."
)]
pub(crate) struct OciArgs {
    /// Wrapped runtime: a path, or a name to look for in PATH [default: runc, else crun]
    #[arg(long, value_name = "RUNTIME")]
    pub(crate) runtime: Option<OsString>,
    #[command(flatten)]
    pub(crate) allowed: AllowedArgs,
    #[command(flatten)]
    pub(crate) served: ServedArgs,
    /// View of /sys in containers: the container's devices and what surrounds them, or the mount of
    /// the wrapped runtime
    #[arg(long, value_name = "WHICH", default_value = "virtual")]
    pub(crate) sysfs: SysfsOf,
    /// A container whose supervisor dies: the container ends, or goes on without RDMA, which `verbgate ps` and
    /// `verbgate stats` show
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    pub(crate) without_supervisor: WithoutSupervisor,
    /// Run 32-bit programs (i386, ARM) too, without RDMA; their system calls fail with ENOSYS otherwise
    #[arg(long)]
    pub(crate) compat: bool,
    /// Directory for the journals of containers' NICs; the directory must survive a reboot
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Directory of the host's sysfs, to find NICs of RDMA devices; for tests
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    pub(crate) sysfs_root: PathBuf,
    /// Arguments of the wrapped runtime
    #[arg(value_name = "RUNTIME-ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct SupervisorArgs {
    /// The container's directory
    pub(crate) place: PathBuf,
    /// The process that is, or becomes, the wrapped runtime
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
    /// Directory of the journals of containers' NICs
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Container to show, by the id or the beginning of the id
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Unix socket to serve the counters on, by HTTP; a client that sends no request gets the plain
    /// text
    #[arg(long, value_name = "PATH", conflicts_with = "json")]
    pub(crate) listen: Option<PathBuf>,
    /// Print JSON, with what `ps --json` and `show --json` print
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HookArgs {
    /// The event of the container
    pub(crate) event: EventArg,
    /// The container's directory; of `mounted` and `mounted-unasked`, the root file system
    pub(crate) place: PathBuf,
    /// The directory of the journal of the container's NICs
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
pub(crate) struct WardenArgs {
    /// The container's directory
    pub(crate) place: PathBuf,
    /// The container's first process
    pub(crate) pid: i32,
    /// The container's supervisor
    pub(crate) supervisor: i32,
}

#[derive(Debug, Args)]
pub(crate) struct AgentSupervisorArgs {
    /// The container's directory
    pub(crate) place: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The agent listens on the socket that systemd passes, if any, and tells systemd \
                  when the agent is ready (Type=notify). `verbgate oci profile` prints the profile \
                  for the containers."
)]
pub(crate) struct AgentArgs {
    /// Socket to listen on [default: agent.sock in --root]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) allowed: AllowedArgs,
    #[command(flatten)]
    pub(crate) served: ServedArgs,
}

/// Print the seccomp profile for containers that `verbgate agent` serves.
#[derive(Debug, Parser)]
#[command(name = "verbgate oci profile", bin_name = "verbgate oci profile", after_help = LACKS)]
pub(crate) struct ProfileArgs {
    /// Socket of the agent, by the path at which the runtime finds the socket
    #[arg(long, value_name = "PATH", default_value = "/run/verbgate/agent.sock")]
    pub(crate) listener: PathBuf,
    /// Let no signal interrupt a request that waits for an answer; for runtimes with libseccomp 2.6
    /// or newer
    #[arg(long)]
    pub(crate) wait_killable: bool,
    /// Watch write(2) too; for crun, since runc refuses such a profile
    #[arg(long)]
    pub(crate) write: bool,
    /// Run 32-bit programs (i386, ARM) too, without RDMA; their system calls fail with ENOSYS otherwise
    #[arg(long)]
    pub(crate) compat: bool,
}

/// Limits of containers by profile; `--help` prints the limits, and harness/README.md has the
/// reasons.
const LACKS: &str = "Put the profile into config.json as linux.seccomp, or give the profile to the \
engine (docker, podman: --security-opt seccomp=FILE; CRI: a localhost profile). The profile replaces the \
engine's own profile, and allows everything that it does not name.

The profile cannot do three things that `verbgate oci` can: show the container a /sys of its own, \
take the container's capabilities, and, without --write, watch write(2): so there are no doorbells of \
software NICs (Soft-RoCE, siw), no legacy commands and no rdma_cm. The agent does not serve a container \
that may open its devices by the device cgroup, or that has CAP_SYS_ADMIN or CAP_SYS_PTRACE. Without \
--wait-killable, a signal in the middle of a request makes the request fail with EINTR, although the \
request may have been executed.";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum RuntimeCommand {
    /// Register `verbgate oci` with a container engine, beside the engine's other runtimes
    Configure(ConfigureArgs),
    /// Tell whether the running engines know `verbgate oci`; the exit code is 0 if they do
    Status(StatusOfArgs),
    /// Take back every change that `runtime configure` has made on this host
    Unconfigure(UnconfigureArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StatusOfArgs {
    /// Engine to ask [default: all that this host has]
    #[arg(long, value_name = "ENGINE")]
    pub(crate) runtime: Option<EngineArg>,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UnconfigureArgs {
    /// Print what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Directory where `runtime configure` recorded the original files
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigureArgs {
    /// Engine to configure
    #[arg(long, value_name = "ENGINE")]
    pub(crate) runtime: EngineArg,
    /// Name by which containers ask for the runtime (docker run --runtime NAME)
    #[arg(long, value_name = "NAME", default_value = "verbgate")]
    pub(crate) name: String,
    /// Runtime to wrap: runc, crun, another name in PATH, or a path
    #[arg(long, value_name = "RUNTIME", default_value = "runc")]
    pub(crate) wrap: String,
    /// Make the engine read CDI specifications; for docker and containerd, since the others always
    /// do
    #[arg(long)]
    pub(crate) cdi: bool,
    /// Configuration file to edit or to create [default: the engine's own]
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Program of the engine, which checks the changed file before verbgate writes the file
    /// [default: containerd or dockerd, in PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) engine: Option<PathBuf>,
    /// Write the file without asking the engine's program
    #[arg(long, conflicts_with = "engine")]
    pub(crate) no_verify: bool,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take the change back: restore the file byte by byte, if nobody else has changed the file
    /// since
    #[arg(long)]
    pub(crate) undo: bool,
    /// Directory in which to record the original file
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum EventArg {
    /// `createRuntime`: the container's first process is there
    Created,
    /// `createContainer`: the container's mounts are there, and the hooks of others have run
    Mounted,
    /// The same of a container without RDMA
    MountedUnasked,
    /// `poststop`: the container is gone
    Stopped,
}

impl From<EventArg> for Event {
    fn from(arg: EventArg) -> Self {
        match arg {
            EventArg::Created => Self::Created,
            EventArg::Mounted => Self::Mounted,
            EventArg::MountedUnasked => Self::MountedUnasked,
            EventArg::Stopped => Self::Stopped,
        }
    }
}

/// What becomes of a container whose supervisor has died.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum WithoutSupervisor {
    /// The container goes on without RDMA
    Keep,
    /// The container ends
    End,
}

/// What annotations of a container can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnnotationsArg {
    /// Select among the devices that the engine gives the container (linux.devices, by --device, a
    /// device plug-in or CDI)
    Narrow,
    /// Grant any RDMA device of the host, move NICs, show the host's /sys; for nodes of one tenant
    Grant,
}

impl From<AnnotationsArg> for Annotations {
    fn from(arg: AnnotationsArg) -> Self {
        match arg {
            AnnotationsArg::Narrow => Self::Narrow,
            AnnotationsArg::Grant => Self::Grant,
        }
    }
}

impl From<&OciArgs> for verbgate_oci::Options {
    fn from(args: &OciArgs) -> Self {
        Self {
            runtime: args.runtime.clone(),
            allowed: args.served.allowed(&args.allowed),
            virtual_sysfs: args.sysfs == SysfsOf::Virtual,
            compat: args.compat,
            ends_alone: args.without_supervisor == WithoutSupervisor::End,
            state_dir: args.state_dir.clone(),
            sysfs_root: args.sysfs_root.clone(),
            args: args.args.clone(),
        }
    }
}

impl From<&AgentArgs> for agent::AgentOptions {
    fn from(args: &AgentArgs) -> Self {
        Self { socket: args.socket.clone(), allowed: args.served.allowed(&args.allowed) }
    }
}

impl From<&ProfileArgs> for profile::ProfileOptions {
    fn from(args: &ProfileArgs) -> Self {
        let listener = args.listener.clone();
        let compat = args.compat;
        Self { listener, wait_killable: args.wait_killable, write: args.write, compat }
    }
}

impl From<&ConfigureArgs> for Configure {
    fn from(args: &ConfigureArgs) -> Self {
        Self {
            engine: args.runtime.into(),
            name: args.name.clone(),
            wrap: args.wrap.clone(),
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
