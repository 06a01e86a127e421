//! The command line of the driver for Kubernetes' Dynamic Resource Allocation.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "The chart runs this on each node (--set dra=v1). Kubernetes 1.34 is needed, or 1.32 with the \
                  feature gate DynamicResourceAllocation. A pod gets the devices of its claims under the runtime \
                  of `verbgate runtime configure` only."
)]
pub(crate) struct DraArgs {
    /// This node's name in the cluster
    #[arg(long, value_name = "NAME")]
    pub(crate) node: String,
    /// Directory of the kubelet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub(crate) kubelet_dir: PathBuf,
    /// Directory of the node's sysfs; in a pod, where the host's /sys is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub(crate) sysfs_root: PathBuf,
    /// Root directory of the node, whose /etc/cdi and /run/cdi the engine reads; in a pod with the host's process ids, that
    /// of process 1
    #[arg(long, value_name = "DIR", default_value = "/proc/1/root")]
    pub(crate) host_root: PathBuf,
    /// Address of the cluster's API server; the account's token is sent by https only [default: as the
    /// environment of pods says]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Directory with the account's token and ca.crt
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    pub(crate) account: PathBuf,
    /// Remove what was published of this node, and do nothing else
    #[arg(long)]
    pub(crate) withdraw: bool,
}

impl From<&DraArgs> for verbgate_dra::Options {
    fn from(args: &DraArgs) -> Self {
        Self {
            node: args.node.clone(),
            kubelet: args.kubelet_dir.clone(),
            sysfs: args.sysfs_root.clone(),
            host: args.host_root.clone(),
            server: args.server.clone(),
            account: args.account.clone(),
        }
    }
}
