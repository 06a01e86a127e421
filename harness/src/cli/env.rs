//! The command line of the commands that print settings of libraries.

use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;

use super::netdev::HostArgs;
use super::netdev::SelectArgs;

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum EnvCommand {
    /// Print the environment variables, each with the reason: for the NICs that were moved, else for
    /// the host's network namespace
    Env(EnvArgs),
}

/// Formats of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// export NAME='VALUE', for eval in a shell
    Sh,
    /// A JSON object
    Json,
    /// NAME=VALUE, for docker run --env-file and docker exec --env-file
    Docker,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct EnvArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// Container whose NICs to look at, whoever brought the NICs there: a PID, a file
    /// (/run/netns/NAME), a name of ip-netns(8), or a container's name
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) netns: Option<String>,
    /// Format to print: sh, json or docker
    #[arg(long, value_name = "FORMAT", default_value = "sh")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) options: EnvOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct EnvOptions {
    /// Interface in the container by which the processes find each other [default: the interface of
    /// the container's default route]
    #[arg(long, value_name = "NAME")]
    pub(crate) socket_ifname: Option<String>,
    /// Traffic class of RDMA, which is four times the DSCP [default: the class that the ports do not
    /// drop, where dcb tells]
    #[arg(long, value_name = "CLASS")]
    pub(crate) traffic_class: Option<u8>,
    /// Traffic class of NCCL's control messages [default: the same]
    #[arg(long, value_name = "CLASS")]
    pub(crate) fifo_traffic_class: Option<u8>,
    /// Service level; on RoCE the VLAN's priority
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..16))]
    pub(crate) sl: Option<u8>,
    /// Say that a rail reaches no other rail [default: by networks and routes]
    #[arg(long)]
    pub(crate) rail_only: bool,
    /// File to write a topology for NCCL to, from /sys; NCCL_TOPO_FILE then names the file
    #[arg(long, value_name = "FILE")]
    pub(crate) write_topo: Option<PathBuf>,
    /// Topology file of NCCL: auto lets NCCL find the topology unless NCCL_TOPO_FILE is set; none
    /// ignores NCCL_TOPO_FILE
    #[arg(long, value_name = "auto|FILE|none", default_value = "auto")]
    pub(crate) topo: String,
    /// Directory for a detailed log of NCCL; variables that are set already stay as they are
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "/tmp", require_equals = true)]
    pub(crate) debug_all: Option<PathBuf>,
}
