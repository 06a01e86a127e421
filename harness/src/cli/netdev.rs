//! The command line of the commands for NICs and clusters.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;

use verbgate_netdev::journal::STATE_DIR;
use verbgate_netdev::select::Selection;
use verbgate_netdev::select::Shared;
use verbgate_netdev::share::Kind;
use verbgate_netdev::strict::Arp;
use verbgate_oci::engine::Engine;

use super::engine::EngineArg;
use super::env::EnvOptions;

// Paths through which the host is read.
#[derive(Clone, Debug, Args)]
pub(crate) struct HostArgs {
    /// Directory of the host's sysfs
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub(crate) sysfs_root: PathBuf,
    /// Directory of the journal, which must survive a reboot; each container needs a journal of its
    /// own
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
}

// Choice of NICs.
#[derive(Clone, Debug, Args)]
pub(crate) struct SelectArgs {
    /// Names of the NICs to take, separated by commas; overrides --exclude
    #[arg(long, value_name = "NAMES")]
    pub(crate) iface: Option<String>,
    // No documentation comment: rustdoc takes the brackets for links.
    #[arg(
        long,
        value_name = "FILTER",
        help = "RDMA devices whose NICs to take, as in NCCL_IB_HCA: \
                [^][=]NAME[:PORT[:RAIL[:PLANE]]],..."
    )]
    pub(crate) hca: Option<String>,
    /// Names of NICs to leave out; an empty expression leaves out none
    #[arg(long, value_name = "REGEX", default_value = "^eth[0-9]+$")]
    pub(crate) exclude: String,
    /// Names of the peer's NICs: take only NICs whose name is among them
    #[arg(long, value_name = "NAMES")]
    pub(crate) peer_ifaces: Option<String>,
    /// Manifest of a peer: take only rails that the peer has too; may be repeated (see: verbgate
    /// manifest)
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_manifest: Vec<PathBuf>,
    /// Fail if a NIC has no IPv4 address, instead of leaving the NIC here
    #[arg(long)]
    pub(crate) require_ipv4: bool,
    /// Address by which the nodes find each other: leave out the NIC that has the address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bootstrap: Option<IpAddr>,
    /// Address of a peer: leave out the NIC through which this node reaches the peer
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) pairing: PairingArgs,
    /// The NICs of this node as the peers' manifests name them, once they have been read.
    #[arg(skip)]
    pub(crate) shared: Option<Shared>,
}

impl Default for HostArgs {
    fn default() -> Self {
        Self { sysfs_root: "/sys".into(), state_dir: STATE_DIR.into() }
    }
}

impl SelectArgs {
    /// The options that concern this node alone.
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

// Options that pair the rails of two nodes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PairingArgs {
    /// Rail of a NIC, where nodes agree neither in names nor in PCI addresses; may be repeated. With a
    /// number (rail0), or a number and a plane (0/1), NCCL_IB_HCA has them too
    #[arg(long = "rail", value_name = "NETDEV=RAIL", value_parser = declared)]
    pub(crate) rails: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) terms: PairingTerms,
}

// Terms on which manifests are compared.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PairingTerms {
    /// Property that makes rails of two nodes the same rail
    #[arg(long, value_name = "WHAT", default_value = "subnet")]
    pub(crate) by: By,
    /// Go on with the rails that all nodes have, although others were left out
    #[arg(long)]
    pub(crate) allow_dropped: bool,
}

/// Parses `NETDEV=RAIL`.
fn declared(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(netdev, rail)| {
        let plain = |c: char| c.is_ascii_graphic();
        !netdev.is_empty() && !rail.is_empty() && rail.chars().all(plain)
    });
    parts.map(|(netdev, rail)| (netdev.to_owned(), rail.to_owned())).ok_or_else(|| {
        format!("{text:?} does not declare a rail: write NETDEV=RAIL, as in ens1np0=rail0")
    })
}

/// Ways to keep apart NICs that share a network in the container.
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
#[command(defer = true)]
pub(crate) enum NetdevCommand {
    /// List the NICs that have RDMA, and say which would be moved and why the others would not
    List(ListArgs),
    /// Print what a move would do, and change nothing
    Plan(MoveArgs),
    /// Move NICs into a container's network namespace, with their configuration
    Move(MoveArgs),
    /// Bring the NICs back, and give them their configuration again
    Restore(RestoreArgs),
    /// Show where the NICs of the journal are
    Status(StatusArgs),
    /// Check from this node that each rail of a peer answers for itself
    Verify(VerifyArgs),
    /// Give a container a link upon a NIC that stays (macvlan or ipvlan), so that several containers
    /// have RDMA by one NIC
    Share(ShareArgs),
    /// Remove such links
    Unshare(UnshareArgs),
}

/// Kinds of links upon a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShareKind {
    /// A MAC address of its own for each container
    Macvlan,
    /// The NIC's MAC address for all containers, for networks that let no other pass
    Ipvlan,
}

impl From<ShareKind> for Kind {
    fn from(kind: ShareKind) -> Self {
        match kind {
            ShareKind::Macvlan => Self::Macvlan,
            ShareKind::Ipvlan => Self::Ipvlan,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShareArgs {
    /// NIC to share
    #[arg(long, value_name = "NAME")]
    pub(crate) iface: String,
    /// Container: a PID, a file (/run/netns/NAME), a name of ip-netns(8), or a container's name
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) to: String,
    /// Address of the container, with the length of the network unless the NIC is in the same one;
    /// may be repeated
    #[arg(long, value_name = "ADDRESS[/LENGTH]", required = true, value_parser = prefixed)]
    pub(crate) address: Vec<(IpAddr, Option<u8>)>,
    /// Gateway of the link's own routing table; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) gateway: Vec<IpAddr>,
    /// Kind of the link; a NIC has links of one kind
    #[arg(long, value_name = "KIND", default_value = "macvlan")]
    pub(crate) kind: ShareKind,
    /// Name of the link in the container [default: the NIC's, or one like it]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Way to keep apart links that share a network
    #[arg(long, value_name = "HOW", default_value = "strict")]
    pub(crate) arp: ArpOption,
    /// Seconds to wait for the GIDs of the addresses; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UnshareArgs {
    /// Container whose links to remove [default: those of all containers]
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) to: Option<String>,
    /// Name of the link to remove [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// Parses `ADDRESS[/LENGTH]`.
fn prefixed(text: &str) -> Result<(IpAddr, Option<u8>), String> {
    let bad = |_| format!("{text:?} is no address: write ADDRESS or ADDRESS/LENGTH");
    match text.split_once('/') {
        None => Ok((text.parse().map_err(bad)?, None)),
        Some((ip, length)) => {
            let length =
                length.parse().map_err(|_| format!("{text:?}: the length is no number"))?;
            Ok((ip.parse().map_err(bad)?, Some(length)))
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// Directory of the host's sysfs
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub(crate) sysfs_root: PathBuf,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

// Which NICs are moved, and how.
#[derive(Clone, Debug, Args)]
pub(crate) struct TermsArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Way to keep apart NICs that share a network
    #[arg(long, value_name = "HOW", default_value = "strict")]
    pub(crate) arp: ArpOption,
    /// Seconds to wait until links and GIDs are back; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) wait: u64,
    /// Network namespace of a peer, from which to verify that each NIC answers for its own address
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) verify_from: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct MoveArgs {
    /// Container: a PID, a file (/run/netns/NAME), a name of ip-netns(8), or a container's name
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
    /// Seconds to wait until the kernel gives NICs back
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) wait: u64,
    /// Remove the journal even if a NIC is gone or changed
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
    /// Manifest of the peer; may be repeated
    #[arg(value_name = "FILE", required = true)]
    pub(crate) manifests: Vec<PathBuf>,
    /// Network namespace to verify from, such as the container's
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) netns: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// Name of this node in the cluster
    #[arg(long, value_name = "NAME")]
    pub(crate) role: String,
    /// Container, as for `netdev move` [default: the network namespace verbgate-ROLE, made if
    /// missing, for containers to join]
    #[arg(long, value_name = "PID|NETNS|CONTAINER")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) terms: TermsArgs,
    /// File for this node's manifest, written before the move
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) env: EnvOptions,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ManifestArgs {
    #[command(subcommand)]
    pub(crate) agree: Option<ManifestCommand>,
    /// Name of this node [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// Properties that make rails of two nodes the same rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The rail that --rail declares, else the network; names or PCI addresses in which the nodes
    /// agree tell apart several rails of one network
    #[default]
    Subnet,
    /// The netdev's name
    Name,
    /// The PCI address
    Pci,
    /// The place among the node's rails, in the order of PCI addresses; every node must have all
    /// rails
    Order,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum ManifestCommand {
    /// Work out the rails that all nodes have alike
    Agree(AgreeArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all nodes have all rails alike, 1 rails were left out (unless \
                        --allow-dropped) or no rail is common, 2 wrong usage."
)]
pub(crate) struct AgreeArgs {
    /// Manifests of the nodes
    #[arg(value_name = "FILE", required = true)]
    pub(crate) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) terms: PairingTerms,
    /// Node whose NICs to print, in the form that --iface takes
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Print the node's NICs as options of `verbgate prepare`, also for InfiniBand and bonds
    #[arg(long, requires = "node")]
    pub(crate) options: bool,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Uses of the list of checks, each of some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// Every check
    All,
    /// What a move of NICs needs: verbgate prepare
    Prepare,
    /// What pods on this node need: the label that the chart gives the node
    NodeLabel,
    /// Whether engines know the runtime: verbgate runtime status
    RuntimeStatus,
}

/// Engines that can start a container without a cluster.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TriedEngine {
    Docker,
    Podman,
}

impl From<TriedEngine> for Engine {
    fn from(arg: TriedEngine) -> Self {
        match arg {
            TriedEngine::Docker => Self::Docker,
            TriedEngine::Podman => Self::Podman,
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 no check failed, 1 a check failed, 2 wrong usage. With --for, a check that needs root \
                  and was skipped counts as failed, and so does an engine that is not ready, for node-label and \
                  runtime-status."
)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Checks to make
    #[arg(long = "for", value_name = "USE", default_value = "all")]
    pub(crate) purpose: Purpose,
    /// Engine to check [default: all that this host has]
    #[arg(long, value_name = "ENGINE")]
    pub(crate) runtime: Option<EngineArg>,
    /// Engine that is to start a container through the configured runtime, in the end; nothing is pulled, and
    /// everything is removed
    #[arg(long = "try", value_name = "ENGINE", conflicts_with = "purpose")]
    pub(crate) tried: Option<TriedEngine>,
    /// Address of a peer, to check the bootstrap path to
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<IpAddr>,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}
