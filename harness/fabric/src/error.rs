//! Errors of a fabric command: one line each, and an exit code for scripts.

use std::io;
use std::net::SocketAddr;

use verbgate_verbs as rdma;

/// A check failed.
pub(crate) const EXIT_CHECK: u8 = 1;
/// The command line, or what the ranks were told, is wrong.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Somebody did not come, or did not answer, in time.
pub(crate) const EXIT_TIMEOUT: u8 = 3;
/// As shells have it of a program that SIGINT ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Why a fabric command ends before its result.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says all")]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("cannot listen at {at}: {error}: give rank 0 an address of its own by --bind")]
    Listen { at: String, error: io::Error },
    #[error(
        "nobody answers at the rendezvous {at} after {seconds} s: {error}: is rank 0 running, \
             and does a firewall let this port through?"
    )]
    Unreachable { at: String, seconds: u64, error: io::Error },
    #[error("cannot reach {0} by any address: {1}")]
    Resolve(String, io::Error),
    /// Rank 0's words to all.
    #[error("{reason}")]
    Refused { code: u8, reason: String },
    #[error("the rendezvous at {at} is gone: rank 0 ended, or rank 0's network is down ({error})")]
    Lost { at: SocketAddr, error: String },
    #[error("{}: waited {seconds} s for {} at \"{stage}\": read the output of these ranks", 
            hung(.ranks), names(.ranks))]
    Missing { stage: String, ranks: Vec<u32>, seconds: u64 },
    #[error("rank {rank} ended before the others were done: read that rank's output")]
    Gone { rank: u32 },
    #[error("rank {rank} on {host} was restarted in the middle: start all ranks again")]
    Restarted { rank: u32, host: String },
    #[error("not connected after {seconds} s: {}", .what.join("; "))]
    Unconnected { seconds: u64, what: Vec<String> },
    #[error("interrupted")]
    Interrupted,
    #[error("{0}")]
    Check(String),
    #[error(transparent)]
    Rdma(#[from] rdma::Error),
    #[error(transparent)]
    Host(#[from] verbgate_host::Error),
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
}

fn names(ranks: &[u32]) -> String {
    let names: Vec<String> = ranks.iter().take(8).map(u32::to_string).collect();
    let more = if ranks.len() > 8 { " and others" } else { "" };
    format!("{} {}{more}", if ranks.len() == 1 { "rank" } else { "ranks" }, names.join(", "))
}

fn hung(ranks: &[u32]) -> &'static str {
    if ranks.len() == 1 { "a rank hangs" } else { "ranks hang" }
}

impl Error {
    /// What a command exits with, for scripts to act upon.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Resolve(..) | Self::Listen { .. } => EXIT_USAGE,
            Self::Refused { code, .. } => *code,
            Self::Unreachable { .. } | Self::Missing { .. } | Self::Unconnected { .. } => {
                EXIT_TIMEOUT
            }
            Self::Interrupted => EXIT_INTERRUPTED,
            Self::Gone { .. }
            | Self::Restarted { .. }
            | Self::Lost { .. }
            | Self::Check(_)
            | Self::Rdma(_)
            | Self::Host(_)
            | Self::Io { .. } => EXIT_CHECK,
        }
    }
}
