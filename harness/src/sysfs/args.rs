//! The command line of `verbgate sysfs`.

use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum SysfsCommand {
    /// Record a host's RDMA devices, GPUs and what lies around them, as JSON
    Snapshot(SnapshotArgs),
    /// Draw a host: root complexes, bridges, GPUs, and NICs with their GIDs
    Show(SysfsShowArgs),
    /// Print what differs between two snapshots; exits with 1 if anything does
    Diff(DiffArgs),
    /// Reduce a snapshot to what a sandbox with these devices is shown
    Select(SysfsSelectArgs),
    /// Say why something is shown to a sandbox with these devices, or hidden
    Explain(SysfsExplainArgs),
    /// Write what such a sandbox is shown as plain files
    Materialise(MaterialiseArgs),
    /// Mount what such a sandbox is shown, and serve it until a signal or umount(8)
    Serve(MaterialiseArgs),
}

/// Which host.
#[derive(Debug, Args)]
pub(crate) struct SysfsHostArgs {
    /// A snapshot, instead of a host
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Where the host's sysfs is [default: /sys]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

/// What a sandbox is granted.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// Grant an RDMA device, by its name or that of its node; may be repeated. Without this
    /// option, all are
    #[arg(long = "device", value_name = "NAME")]
    pub(crate) devices: Vec<String>,
    /// Grant the GPU at a PCI address; may be repeated. Without this option, all are
    #[arg(long = "gpu", value_name = "ADDRESS")]
    pub(crate) gpus: Vec<String>,
    /// Grant no GPU
    #[arg(long, conflicts_with = "gpus")]
    pub(crate) no_gpus: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// Where the host's sysfs is [default: /sys]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// File to write to, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SysfsShowArgs {
    #[command(flatten)]
    pub(crate) host: SysfsHostArgs,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The earlier snapshot
    #[arg(value_name = "A")]
    pub(crate) before: PathBuf,
    /// The later one
    #[arg(value_name = "B")]
    pub(crate) after: PathBuf,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SysfsSelectArgs {
    #[command(flatten)]
    pub(crate) host: SysfsHostArgs,
    #[command(flatten)]
    pub(crate) grant: GrantArgs,
    /// File to write to, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SysfsExplainArgs {
    #[command(flatten)]
    pub(crate) host: SysfsHostArgs,
    #[command(flatten)]
    pub(crate) grant: GrantArgs,
    /// RDMA devices, interfaces, PCI addresses; all that there are without
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MaterialiseArgs {
    #[command(flatten)]
    pub(crate) host: SysfsHostArgs,
    #[command(flatten)]
    pub(crate) grant: GrantArgs,
    /// The directory
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
