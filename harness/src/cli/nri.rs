//! The command line of the plug-in for engines.

use std::path::PathBuf;

use clap::Args;
use verbgate_oci::agent::profile::ProfileOptions;
use verbgate_oci::nri::NriOptions;

use crate::cli::AllowedArgs;

#[derive(Debug, Args)]
#[command(
    after_help = "The plug-in needs `verbgate agent` with the same options, a CDI specification (`verbgate cdi \
                  refresh`), and an engine whose NRI sets seccomp profiles (0.10 and later). Under an older \
                  engine, as containerd 2.1, a pod names the profile of `verbgate oci profile` by itself \
                  (seccompProfile: Localhost), and a container that asks for RDMA without the profile is not \
                  created. An engine also starts this program by itself, without options, by a link of the \
                  name 10-verbgate in /opt/nri/plugins.\n\n\
                  The engine creates containers without the plug-in while no plug-in runs. So have a device \
                  plug-in give CDI devices (verbgate.org/rdma=NAME), which nobody can open, and no raw devices."
)]
pub(crate) struct NriArgs {
    /// Socket of the engine
    #[arg(long, value_name = "PATH", default_value = "/var/run/nri/nri.sock")]
    pub(crate) socket: PathBuf,
    /// Place among the engine's plug-ins, two digits
    #[arg(long, value_name = "NN", default_value = "10")]
    pub(crate) index: String,
    /// Name of a runtime that is `verbgate oci`, whose pods are left to the runtime; may be repeated
    #[arg(long, value_name = "NAME", default_value = "verbgate")]
    pub(crate) handler: Vec<String>,
    /// Namespace of pods that manage the node, and may have raw devices; may be repeated
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub(crate) exempt: Vec<String>,
    /// Socket of the agent
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
    #[command(flatten)]
    pub(crate) allowed: AllowedArgs,
    /// Directory of the host's sysfs, to find NICs of RDMA devices; for tests
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    pub(crate) sysfs_root: PathBuf,
}

impl From<&NriArgs> for NriOptions {
    fn from(args: &NriArgs) -> Self {
        Self {
            socket: args.socket.clone(),
            index: args.index.clone(),
            handlers: args.handler.clone(),
            exempt: args.exempt.clone(),
            profile: ProfileOptions {
                listener: args.listener.clone(),
                wait_killable: args.wait_killable,
                write: args.write,
                compat: args.compat,
            },
            allowed: (&args.allowed).into(),
            sysfs_root: args.sysfs_root.clone(),
        }
    }
}
