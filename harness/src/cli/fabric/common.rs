//! Options that fabric commands share, and the forms of their values.

use std::path::PathBuf;

use clap::Args;

use verbgate_fabric::Choice;
use verbgate_fabric::Choosing;
use verbgate_fabric::Common;
use verbgate_fabric::Connect;
use verbgate_fabric::Memory;
use verbgate_fabric::Outputs;
use verbgate_fabric::Transport;

use super::Word;

#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Address on rank 0's host where the ranks meet, or file:PATH of a file that all ranks see, in
    /// which rank 0 writes its address [default: $VERBGATE_RENDEZVOUS, or from torchrun, Slurm, MPI or a
    /// Kubernetes indexed Job]
    #[arg(long, value_name = "HOST:PORT|file:PATH")]
    pub(crate) rendezvous: Option<String>,
    /// Address that rank 0 listens on [default: the address of --rendezvous]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) bind: Option<String>,
    /// Number of this rank, from 0 [default: from Slurm, MPI, Flux, torchrun, or a Kubernetes indexed
    /// Job]
    #[arg(long)]
    pub(crate) rank: Option<u32>,
    /// Number of ranks [default: from Slurm, MPI, Flux or torchrun, or $VERBGATE_RANKS]
    #[arg(long)]
    pub(crate) ranks: Option<u32>,
    /// Device to use as the next rail; may be repeated, in the same order on all ranks [default:
    /// all devices, in the order of their names]
    #[arg(long = "device", value_name = "DEVICE[:PORT][@GID_INDEX]")]
    pub(crate) devices: Vec<Choice>,
    /// Seconds to wait for ranks to come, and for a rank that says nothing; then the others go on without
    /// the rank
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Traffic class of all queue pairs, 0 to 255: DSCP times 4 [default: $NCCL_IB_TC, or
    /// $UCX_IB_TRAFFIC_CLASS, or 0]
    #[arg(long, value_name = "TC")]
    pub(crate) traffic_class: Option<u8>,
    /// Service level of all queue pairs, 0 to 15 [default: $NCCL_IB_SL, or $UCX_IB_SL, or 0]
    #[arg(long = "sl", value_name = "SL")]
    pub(crate) service_level: Option<u8>,
    /// Partition key of all queue pairs, as in 0x8001 [default: $UCX_IB_PKEY, or the key at index
    /// $NCCL_IB_PKEY or 0]
    #[arg(long, value_name = "KEY", value_parser = pkey)]
    pub(crate) pkey: Option<u16>,
    /// How to connect queue pairs, once the ranks have met; the same on all ranks
    #[arg(long, value_enum, default_value_t = Word(Connect::Rendezvous))]
    pub(crate) connect: Word<Connect>,
    /// Turn the rails of each rank by so many against those of the rank before, so that different rails
    /// speak to each other, unless ranks are a multiple of the number of rails apart; the same on all ranks
    /// [default: each rail speaks to itself]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "RAILS")]
    pub(crate) cross_rail: u32,
    /// Kind of queue pairs; the same on all ranks
    #[arg(long, value_enum, default_value_t = Word(Transport::Rc))]
    pub(crate) transport: Word<Transport>,
    /// What to send from and receive into
    #[arg(long, value_enum, default_value_t = Word(Memory::Host))]
    pub(crate) memory: Word<Memory>,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

// Which pairs are tried or measured.
#[derive(Debug, Args)]
pub(crate) struct ChoosingArgs {
    /// Take one round of disjoint pairs, and then more where something is slow or bad
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds of disjoint pairs to take; a round has half as many pairs as there are ranks
    /// [default: all]
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: Option<u32>,
    /// File with the pairs to take, two ranks a line [default: all pairs]; the same on all ranks
    #[arg(long, value_name = "FILE", value_parser = pairs)]
    pub(crate) pairs: Option<PairList>,
}

impl ChoosingArgs {
    /// With the time that there is, in seconds.
    pub(super) fn with(&self, within: Option<f64>) -> Choosing {
        let pairs = self.pairs.clone().map(|pairs| pairs.0).unwrap_or_default();
        Choosing { quick: self.quick, sample: self.sample, pairs, within }
    }
}

// Files beside what is printed; rank 0 writes the files.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// File for a page with a matrix of all paths (HTML, self-contained)
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// File for the results as tests (JUnit XML)
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// File for the results as metrics (Prometheus text format, for the textfile collector of
    /// node_exporter)
    #[arg(long, value_name = "FILE")]
    pub(crate) prometheus: Option<PathBuf>,
    /// File for a baseline, for --against of a later run
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Baseline to compare with; whatever is worse makes the command fail
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
}

impl From<&OutputArgs> for Outputs {
    fn from(args: &OutputArgs) -> Self {
        Self {
            html: args.html.clone(),
            junit: args.junit.clone(),
            prometheus: args.prometheus.clone(),
            save: args.save.clone(),
            against: args.against.clone(),
        }
    }
}

pub(super) fn pkey(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| format!("{text:?} is not a partition key: give 0 to 65535, as in 0x8001"))
}

/// `90`, `90s`, `10m`, `2h`, in seconds.
pub(super) fn duration(text: &str) -> Result<f64, String> {
    let (digits, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(digits) if text.ends_with('m') => (digits, 60.0),
        Some(digits) if text.ends_with('h') => (digits, 3600.0),
        Some(digits) => (digits, 1.0),
        None => (text, 1.0),
    };
    let number: Option<f64> = digits.parse().ok();
    let seconds = number.map(|number| number * unit);
    seconds
        .filter(|seconds| seconds.is_finite() && *seconds > 0.0)
        .ok_or_else(|| format!("{text:?} is not a time: write seconds, or 90s, 10m or 2h"))
}

/// Lines of `FROM TO` or `FROM-TO`; `#` begins a comment.
pub(super) fn pairs(file: &str) -> Result<PairList, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {file}: {e}"))?;
    let mut pairs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> =
            line.split([' ', '\t', ',', '-']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            [] => {}
            [a, b] => match (a.parse(), b.parse()) {
                (Ok(a), Ok(b)) if a != b => pairs.push((a, b)),
                _ => return Err(format!("{file}:{}: {line:?} is not two ranks", index + 1)),
            },
            _ => return Err(format!("{file}:{}: {line:?} is not two ranks", index + 1)),
        }
    }
    match pairs.is_empty() {
        true => Err(format!("{file} has no pairs: write two ranks a line, as in 0 5")),
        false => Ok(PairList(pairs)),
    }
}

/// What a file of pairs holds.
#[derive(Clone, Debug)]
pub(crate) struct PairList(pub(super) Vec<(u32, u32)>);

pub(super) fn gbps(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|number| number.is_finite() && *number >= 0.0).ok_or_else(|| {
        format!("{text:?} is not a target bandwidth: give Gb/s, as in 25 or 0.5; 0 is unpaced")
    })
}

impl From<&CommonArgs> for Common {
    fn from(args: &CommonArgs) -> Self {
        Self {
            rendezvous: args.rendezvous.clone(),
            bind: args.bind.clone(),
            rank: args.rank,
            ranks: args.ranks,
            devices: args.devices.clone(),
            timeout: args.timeout,
            traffic_class: args.traffic_class,
            service_level: args.service_level,
            pkey: args.pkey,
            connect: args.connect.0,
            cross_rail: args.cross_rail,
            transport: args.transport.0,
            memory: args.memory.0,
            json: args.json,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_in_the_forms_that_people_write() {
        assert_eq!(duration("90"), Ok(90.0));
        assert_eq!(
            [duration("90s"), duration("10m"), duration("1.5h")],
            [Ok(90.0), Ok(600.0), Ok(5400.0)]
        );
        for wrong in ["", "0", "-1s", "m", "10 m", "1d", "inf"] {
            assert!(duration(wrong).unwrap_err().contains("is not a time"), "{wrong}");
        }
        assert_eq!([pkey("0x8001"), pkey("32767")], [Ok(0x8001), Ok(0x7fff)]);
        assert!(pkey("0x10000").is_err() && pkey("default").is_err());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pairs");
        let file = file.to_str().unwrap();
        std::fs::write(file, "# slow ones\n0 5\n\n3-7 # by name\n2,9\n").unwrap();
        assert_eq!(pairs(file).unwrap().0, [(0, 5), (3, 7), (2, 9)]);
        for (text, words) in [("", "has no pairs"), ("1 2 3\n", ":1: "), ("0 1\n4 4\n", ":2: ")] {
            std::fs::write(file, text).unwrap();
            assert!(pairs(file).unwrap_err().contains(words), "{text:?}");
        }
        assert!(pairs("/nonexistent").unwrap_err().contains("cannot read /nonexistent"));
    }
}
