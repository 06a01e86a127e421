//! Options of `verbgate config`.

use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum ConfigCommand {
    /// Check config.toml and the policy's files, and tell everything that is wrong with them
    Check(ConfigCheckArgs),
    /// Print the values in force, and where each comes from
    Show(ConfigShowArgs),
    /// Put a file in force as config.toml, unless something is wrong with the file
    Apply(ConfigApplyArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all files are right, 1 a file has a slip, or cannot be read."
)]
pub(crate) struct ConfigCheckArgs {
    /// File to check, whoever owns it [default: /etc/verbgate/config.toml]
    pub(crate) file: Option<PathBuf>,
    /// Directory of the operator's policy [default: what the file says, or /etc/verbgate/policy.d]
    #[arg(long, value_name = "DIR")]
    pub(crate) policy_dir: Option<PathBuf>,
    /// Print JSON: a list of file, line and slip
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigApplyArgs {
    /// File with the new configuration
    pub(crate) file: PathBuf,
}
