//! The command line of `verbgate sysfs`.

use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum SysfsCommand {
    /// Record a host's RDMA devices, GPUs and the buses around them, as JSON
    Snapshot(SnapshotArgs),
    /// Draw a host: root complexes, bridges, GPUs, and NICs with their GIDs
    Show(SysfsShowArgs),
    /// Print the differences between two snapshots; exit with 1 if there are any
    Diff(DiffArgs),
    /// Reduce a snapshot to what a sandbox with the given devices sees
    Select(SysfsSelectArgs),
    /// Explain why a sandbox with the given devices sees something, or does not
    Explain(SysfsExplainArgs),
    /// Write the /sys of a sandbox as plain files
    Materialise(MaterialiseArgs),
    /// Mount and serve the /sys of a sandbox, until a signal or umount(8)
    Serve(MaterialiseArgs),
}

// The host to look at.
#[derive(Debug, Args)]
pub(crate) struct SysfsHostArgs {
    /// Snapshot to read instead of a host
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Directory of the host's sysfs [default: /sys]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

// The devices that a sandbox is granted.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// RDMA device to grant, by the name of the device or of the device's node; may be repeated
    /// [default: all]
    #[arg(long = "device", value_name = "NAME")]
    pub(crate) devices: Vec<String>,
    /// GPU to grant, by PCI address; may be repeated [default: all]
    #[arg(long = "gpu", value_name = "ADDRESS")]
    pub(crate) gpus: Vec<String>,
    /// Grant no GPU
    #[arg(long, conflicts_with = "gpus")]
    pub(crate) no_gpus: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// Directory of the host's sysfs [default: /sys]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// File to write to [default: standard output]
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
    /// The later snapshot
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
    /// File to write to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SysfsExplainArgs {
    #[command(flatten)]
    pub(crate) host: SysfsHostArgs,
    #[command(flatten)]
    pub(crate) grant: GrantArgs,
    /// RDMA devices, interfaces or PCI addresses [default: all]
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
    /// Directory to write to, or to mount on
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
