//! Who this rank is and where the others are: from the command line, or from what started it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::fabric::error::Error;
use crate::fabric::exchange::Injection;
use crate::fabric::hardware::SLOT;
use crate::fabric::rail;
use crate::fabric::rail::Choice;

/// What the launchers call the rank and the number of ranks.
const LAUNCHERS: &[(&str, &str, &str)] = &[
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("torchrun", "RANK", "WORLD_SIZE"),
];
/// More than this is a typing error.
const RANKS: u32 = 1 << 16;
const LONGEST_WAIT: u64 = 86_400;

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Where the ranks meet, on rank 0's host [default: $VERBGATE_RENDEZVOUS, or torchrun's
    /// $MASTER_ADDR and the port after $MASTER_PORT]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) rendezvous: Option<String>,
    /// Where rank 0 listens, if that is not the address by which the others find it
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) bind: Option<String>,
    /// This process's number, from 0 [default: as Slurm, Open MPI or torchrun say]
    #[arg(long)]
    pub(crate) rank: Option<u32>,
    /// How many processes there are [default: as Slurm, Open MPI or torchrun say]
    #[arg(long)]
    pub(crate) ranks: Option<u32>,
    /// A rail; may be repeated, in the same order on all ranks. Without it, all devices in the
    /// order of their names
    #[arg(long = "device", value_name = "DEVICE[:PORT][@GID_INDEX]")]
    pub(crate) devices: Vec<Choice>,
    /// How long a stage may wait for the slowest rank, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 all is well, 1 a check failed, 2 usage, or ranks that do \
                        not fit together, 3 a rank did not come or answer in time.")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Sizes of messages in bytes, with K or M for binary thousands or millions; 0 to 1M [default:
    /// the edges of the device and some between]
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    pub(crate) sizes: Vec<usize>,
    /// Connect and disconnect this often before, each time with random delays
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) reconnects: u32,
    /// What those delays are made of, to have the same again [default: drawn by rank 0, and shown]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Do something wrong, as a test of what is said of it
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Option<Injection>,
    /// File to write the report of all ranks to, on rank 0 (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 nothing is wrong, 1 causes were found, 2 usage, or ranks that \
                        do not fit together, 3 a rank did not come or answer in time."
)]
pub(crate) struct DiagnoseArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Sizes of messages in bytes, with K or M for binary thousands or millions; 0 to 1M [default:
    /// 1, 4099, 64K]
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    pub(crate) sizes: Vec<usize>,
    /// Do something wrong, as a test of what is said of it
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Option<Injection>,
    /// File to write the report of all ranks to, on rank 0 (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// Many ranks in two processes, without verbs.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    #[arg(long, default_value_t = 1000)]
    pub(crate) ranks: u32,
    /// With how many others each rank connects, one after the other
    #[arg(long, default_value_t = 10)]
    pub(crate) rounds: usize,
    /// Only the ranks, which meet here
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) at: Option<String>,
}

/// Sizes, as all ranks must have been told them.
pub(crate) fn sizes_text(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// `1`, `64K`, `1M`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.trim_end_matches(['K', 'k', 'M', 'm']) {
        digits if digits.len() == text.len() => (digits, 1),
        digits if text.ends_with(['K', 'k']) => (digits, 1 << 10),
        digits => (digits, 1 << 20),
    };
    let limit = SLOT - 4096;
    let one_unit = text.len() - digits.len() <= 1;
    let number: Option<usize> = digits.parse().ok().filter(|_| one_unit);
    number
        .and_then(|number| number.checked_mul(unit))
        .filter(|size| *size <= limit)
        .ok_or_else(|| format!("{text:?} is no size: give bytes up to {limit}, as 1, 64K or 1M"))
}

/// Who this rank is, checked.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) rendezvous: String,
    pub(crate) bind: String,
    pub(crate) rails: Vec<Choice>,
    pub(crate) patience: Duration,
}

/// The environment, or a test's.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Identity {
    pub(crate) fn find(common: &Common, environment: Environment<'_>) -> Result<Self, Error> {
        let usage = |text: String| Err(Error::Usage(text));
        let number = |name: &str| -> Result<Option<u32>, Error> {
            let Some(text) = environment(name) else { return Ok(None) };
            let number = text.parse().map(Some);
            number.map_err(|_| Error::Usage(format!("${name} is {text:?}, which is no number")))
        };
        let mut found = None;
        for (_, rank, ranks) in LAUNCHERS {
            if let (Some(rank), Some(ranks)) = (number(rank)?, number(ranks)?) {
                found = Some((rank, ranks));
                break;
            }
        }
        let rank = common.rank.or(found.map(|(rank, _)| rank));
        let ranks = common.ranks.or(found.map(|(_, ranks)| ranks));
        let (Some(rank), Some(ranks)) = (rank, ranks) else {
            let launchers: Vec<&str> = LAUNCHERS.iter().map(|(name, ..)| *name).collect();
            let launchers = launchers.join(", ");
            return usage(format!(
                "--rank and --ranks are needed: nothing was said by {launchers}"
            ));
        };
        if ranks == 0 || ranks > RANKS {
            return usage(format!("--ranks {ranks}: give a number from 1 to {RANKS}"));
        }
        if rank >= ranks {
            return usage(format!("--rank {rank}: of {ranks} ranks, the last is {}", ranks - 1));
        }
        let torchrun = || -> Result<Option<String>, Error> {
            // Its own store listens at its port.
            let port = number("MASTER_PORT")?;
            Ok(environment("MASTER_ADDR")
                .zip(port)
                .map(|(host, port)| format!("{host}:{}", port + 1)))
        };
        let named = common.rendezvous.clone().or_else(|| environment("VERBGATE_RENDEZVOUS"));
        let named = match named {
            Some(at) => Some(at),
            None => torchrun()?,
        };
        let Some(rendezvous) = named else {
            return usage(
                "--rendezvous HOST:PORT is needed: any free port of rank 0's host".into(),
            );
        };
        for at in [Some(&rendezvous), common.bind.as_ref()].into_iter().flatten() {
            let port = at.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none() {
                return usage(format!("{at:?} is no address: write HOST:PORT"));
            }
        }
        if common.timeout == 0 || common.timeout > LONGEST_WAIT {
            return usage(format!("--timeout {}: give 1 to {LONGEST_WAIT} s", common.timeout));
        }
        let rails = if common.devices.is_empty() { rail::all()? } else { common.devices.clone() };
        let bind = common.bind.clone().unwrap_or_else(|| rendezvous.clone());
        let patience = Duration::from_secs(common.timeout);
        Ok(Self { rank, ranks, rendezvous, bind, rails, patience })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(arguments: &[&str]) -> Common {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            common: Common,
        }
        let line = ["x", "--device", "d"].iter().chain(arguments);
        <Line as clap::Parser>::try_parse_from(line).unwrap().common
    }

    fn identity(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Identity, Error> {
        Identity::find(&common(arguments), &|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn launchers_say_who_it_is_and_the_command_line_overrules_them() {
        let at = ["--rendezvous", "h:1"];
        for (_, rank, ranks) in LAUNCHERS {
            let found = identity(&at, &[(rank, "2"), (ranks, "4")]).unwrap();
            assert_eq!((found.rank, found.ranks), (2, 4));
        }
        let found = identity(
            &["--rank", "1"],
            &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "29500")],
        );
        let found = found.unwrap();
        assert_eq!((found.rank, &*found.rendezvous, &*found.bind), (1, "h:29501", "h:29501"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let both = ["--rank", "0", "--ranks", "2"];
        type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
        let cases: [Case<'_>; 6] = [
            (&[], &[], "--rank and --ranks are needed"),
            (&both, &[], "--rendezvous HOST:PORT is needed"),
            (&["--rank", "2", "--ranks", "2"], &[], "the last is 1"),
            (&["--rank", "0", "--ranks", "0"], &[], "--ranks 0"),
            (&["--rendezvous", "h"], &[("RANK", "0"), ("WORLD_SIZE", "1")], "write HOST:PORT"),
            (&both, &[("RANK", "x"), ("WORLD_SIZE", "1")], "$RANK is \"x\""),
        ];
        for (arguments, variables, words) in cases {
            let error = identity(arguments, variables).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
        assert_eq!([size("0"), size("64K"), size("1m")], [Ok(0), Ok(65536), Ok(1 << 20)]);
        for wrong in ["", "K", "1KM", "2M", "-1", "1G", "1.5K"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
