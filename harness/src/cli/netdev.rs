//! The command line of what concerns NICs and clusters.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;

use verbgate_netdev::journal::STATE_DIR;
use verbgate_netdev::select::Selection;
use verbgate_netdev::select::Shared;
use verbgate_netdev::strict::Arp;

/// Where the host is looked at.
#[derive(Clone, Debug, Args)]
pub(crate) struct HostArgs {
    /// Read sysfs here
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub(crate) sysfs_root: PathBuf,
    /// Directory of the journal; it must outlive a reboot. Of several containers each needs its own
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
}

/// Which NICs.
#[derive(Clone, Debug, Args)]
pub(crate) struct SelectArgs {
    /// These NICs and no others, separated by commas; wins over --exclude
    #[arg(long, value_name = "NAMES")]
    pub(crate) iface: Option<String>,
    #[allow(rustdoc::broken_intra_doc_links, reason = "NCCL's brackets are no links")]
    /// Only NICs of these RDMA devices, as in NCCL_IB_HCA: [^][=]NAME[:PORT],...
    #[arg(long, value_name = "FILTER")]
    pub(crate) hca: Option<String>,
    /// Not the NICs whose names match; empty turns it off
    #[arg(long, value_name = "REGEX", default_value = "^eth[0-9]+$")]
    pub(crate) exclude: String,
    /// Only NICs that the peer has, too, by these names
    #[arg(long, value_name = "NAMES")]
    pub(crate) peer_ifaces: Option<String>,
    /// Only rails that this peer has, too; may be repeated (see: verbgate manifest)
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_manifest: Vec<PathBuf>,
    /// Fail if a NIC has no IPv4 address, instead of leaving it here
    #[arg(long)]
    pub(crate) require_ipv4: bool,
    /// Not the NIC with this address, by which the nodes find each other
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bootstrap: Option<IpAddr>,
    /// Not the NIC by which this address is reached
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) pairing: PairingArgs,
    /// What the peers' manifests say of this node's NICs, once they have been read.
    #[arg(skip)]
    pub(crate) shared: Option<Shared>,
}

impl SelectArgs {
    /// What of the options concerns this node alone.
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            iface: self.iface.clone(),
            hca: self.hca.clone(),
            exclude: self.exclude.clone(),
            peer_ifaces: self.peer_ifaces.clone(),
            require_ipv4: self.require_ipv4,
            bootstrap: self.bootstrap,
            peer: self.peer,
            shared: self.shared.clone(),
        }
    }
}

/// How rails of two nodes are told to be the same rail.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PairingArgs {
    /// Declare which rail a NIC is, where nodes agree neither in names nor in PCI addresses; may be
    /// repeated
    #[arg(long = "rail", value_name = "NETDEV=RAIL", value_parser = declared)]
    pub(crate) rails: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) terms: PairingTerms,
}

/// What manifests are compared by.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PairingTerms {
    /// What makes rails of two nodes the same
    #[arg(long, value_name = "WHAT", default_value = "subnet")]
    pub(crate) by: By,
    /// Go on with the rails that all nodes have, although others were left out
    #[arg(long)]
    pub(crate) allow_dropped: bool,
}

/// `NETDEV=RAIL`.
fn declared(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(netdev, rail)| {
        let plain = |c: char| c.is_ascii_graphic();
        !netdev.is_empty() && !rail.is_empty() && rail.chars().all(plain)
    });
    parts
        .map(|(netdev, rail)| (netdev.to_owned(), rail.to_owned()))
        .ok_or_else(|| format!("{text:?} declares no rail: write NETDEV=RAIL, as ens1np0=rail0"))
}

/// How NICs that share a network are kept apart in the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArpOption {
    /// arp_announce 2, arp_ignore 1, arp_filter 1, rp_filter 1, and a routing table for each NIC
    Strict,
    /// arp_announce 2, arp_ignore 1, rp_filter 2, and no tables
    Loose,
}

impl From<ArpOption> for Arp {
    fn from(option: ArpOption) -> Self {
        match option {
            ArpOption::Strict => Self::Strict,
            ArpOption::Loose => Self::Loose,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetdevCommand {
    /// List NICs that have RDMA, and say which would be moved and why the others not
    List(ListArgs),
    /// Say what a move would do, and change nothing
    Plan(MoveArgs),
    /// Move NICs into a container's network namespace, with their configuration
    Move(MoveArgs),
    /// Bring the NICs home and give them what they had
    Restore(RestoreArgs),
    /// Say where the NICs of the journal are
    Status(StatusArgs),
    /// Check from this node that each rail of a peer answers for itself
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// Read sysfs here
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub(crate) sysfs_root: PathBuf,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Which NICs are moved, and how.
#[derive(Clone, Debug, Args)]
pub(crate) struct TermsArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// How NICs that share a network are kept apart
    #[arg(long, value_name = "HOW", default_value = "strict")]
    pub(crate) arp: ArpOption,
    /// How many seconds links and GIDs may take to be there again; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) wait: u64,
    /// Verify from this network namespace, in which a peer is, that each NIC answers for itself
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) verify_from: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct MoveArgs {
    /// The container: a PID, a file (/run/netns/NAME), a name of ip-netns(8), or a container's name
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) terms: TermsArgs,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// How many seconds the kernel may take to give NICs back
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) wait: u64,
    /// Remove the journal even if a NIC is gone or not as it was
    #[arg(long)]
    pub(crate) forget: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The peer's manifest; may be repeated
    #[arg(value_name = "FILE", required = true)]
    pub(crate) manifests: Vec<PathBuf>,
    /// Verify from this network namespace, such as that of the container
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) netns: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NcclCommand {
    /// Print the environment for NCCL, from the NICs as they are after the move
    Env(NcclArgs),
}

/// The form of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// export NAME='VALUE', for eval in a shell
    Sh,
    /// An object
    Json,
    /// NAME=VALUE, for docker run --env-file and docker exec --env-file
    Docker,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NcclArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// sh, json or docker
    #[arg(long, value_name = "FORMAT", default_value = "sh")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) options: NcclOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NcclOptions {
    /// The interface by which the processes find each other, in the container [default: the one of
    /// the default route there]
    #[arg(long, value_name = "NAME")]
    pub(crate) socket_ifname: Option<String>,
    /// NCCL's topology file: auto lets NCCL find out by itself unless NCCL_TOPO_FILE is set, none
    /// also then
    #[arg(long, value_name = "auto|FILE|none", default_value = "auto")]
    pub(crate) topo: String,
    /// Have NCCL tell what it does, into files in this directory; a variable that is set is left as
    /// it is
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "/tmp", require_equals = true)]
    pub(crate) debug_all: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// This node's name in the cluster
    #[arg(long, value_name = "NAME")]
    pub(crate) role: String,
    /// The container, as for `netdev move` [default: a network namespace verbgate-ROLE that is made
    /// if need be, for containers to join]
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) terms: TermsArgs,
    /// File to write this node's manifest to, before the move
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) nccl: NcclOptions,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ManifestArgs {
    #[command(subcommand)]
    pub(crate) agree: Option<ManifestCommand>,
    /// This node's name [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// What makes rails of two nodes the same rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// What --rail declared, else the network; several rails of one network are told apart by names
    /// or PCI addresses in which the nodes agree
    #[default]
    Subnet,
    /// The netdev's name
    Name,
    /// The PCI address
    Pci,
    /// The place among the node's rails, by PCI addresses; every node must have all of them
    Order,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ManifestCommand {
    /// Work out the rails that all nodes have alike
    Agree(AgreeArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all nodes have all rails alike, 1 rails were left out (unless \
                        --allow-dropped) or nothing is common, 2 usage."
)]
pub(crate) struct AgreeArgs {
    /// The nodes' manifests
    #[arg(value_name = "FILE", required = true)]
    pub(crate) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) terms: PairingTerms,
    /// Print only this node's NICs, as --iface takes them
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Address of a peer, to which the bootstrap path is checked
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<IpAddr>,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}
