//! Options of `verbgate policy`, and the option for the directory of the policy.

use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;
use verbgate_proxy::policy::DIRECTORY;

// The directory of the operator's policy.
#[derive(Clone, Debug, Args)]
pub(crate) struct PolicyDir {
    /// Directory of the operator's policy, verbgate-policy(5); root must own the directory and its files,
    /// and be the only user who can write them
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    pub(crate) policy_dir: PathBuf,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum PolicyCommand {
    /// Check the files of the policy, or a file that is not in force yet
    Check(PolicyCheckArgs),
    /// Print what a tenant is granted, as profiles that stand alone
    Explain(PolicyExplainArgs),
    /// Say whether a policy grants a request that verbgate trace --json has written
    Test(PolicyTestArgs),
    /// Narrow running containers and programs of verbgate run to what the files say now
    Reload(PolicyDir),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyCheckArgs {
    /// File or directory to check, whoever owns it [default: the directory of the policy in force]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) dir: PolicyDir,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyExplainArgs {
    /// Name of the tenant
    pub(crate) tenant: String,
    #[command(flatten)]
    pub(crate) dir: PolicyDir,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A line does not decide everything: GID types, P_Keys, whether a port is shared, what a \
                        tenant holds. The output names what was not judged.\n\nExit codes: 0 the policy grants \
                        every request, 1 the policy refuses a request, or the command failed."
)]
pub(crate) struct PolicyTestArgs {
    /// A line of verbgate trace --json; - reads lines from standard input
    pub(crate) request: String,
    /// Tenant whose policy is tried
    #[arg(long, value_name = "NAME", conflicts_with = "profile")]
    pub(crate) tenant: Option<String>,
    /// Profile that is tried: a built-in one, or one of the files [default: standard]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    #[command(flatten)]
    pub(crate) dir: PolicyDir,
}
