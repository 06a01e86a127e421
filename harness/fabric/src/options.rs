//! The options that all fabric commands share: who this rank is, and where the others are, from the
//! command line or from the launcher.

use std::path::PathBuf;
use std::time::Duration;

use verbgate_verbs::Memory;
use verbgate_verbs::Transport;

use crate::class::Class;
use crate::error::Error;
use crate::files::Outputs;
use crate::hardware::LARGEST;
use crate::hardware::LONGEST_MESSAGE;
use crate::hardware::Needs;
use crate::injection::Injection;
use crate::launch;
use crate::launch::Environment;
use crate::meeting;
use crate::pairs::Choosing;
use crate::rail;
use crate::rail::Choice;

/// More than this is a typing error.
const RANKS: u32 = 1 << 16;
const LONGEST_WAIT: u64 = 86_400;

/// How queue pairs are connected.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Connect {
    /// By what the ranks tell each other over the rendezvous.
    #[default]
    Rendezvous,
    /// By `rdma_cm(7)`.
    RdmaCm,
}

impl Connect {
    /// Each by the word that says it, and what it does.
    pub const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Rendezvous, "rendezvous", "By what the ranks tell each other over the rendezvous"),
        (Self::RdmaCm, "rdma-cm", "By rdma_cm, as programs that find peers by IP address"),
    ];
}

/// Each kind of memory by the word that says it, and what it is.
pub const MEMORY_WORDS: &[(Memory, &str, &str)] = &[
    (Memory::Host, "host", "Memory of the process"),
    (Memory::DmaBuf, "dma-buf", "A dma-buf, as GPU memory is registered; made by /dev/udmabuf"),
];

/// Each transport by the word that says it, and what it is.
pub const TRANSPORT_WORDS: &[(Transport, &str, &str)] = &[
    (Transport::Rc, "rc", "Reliable connections: all verbs"),
    (Transport::Ud, "ud", "Unreliable datagrams: sends of at most a packet"),
    (
        Transport::Srd,
        "srd",
        "Scalable reliable datagrams, of EFA: sends, and RDMA as the device can",
    ),
];

/// The word of a transport.
pub(crate) fn transport_word(transport: Transport) -> &'static str {
    TRANSPORT_WORDS.iter().find(|(of, ..)| *of == transport).map_or("", |(_, word, _)| word)
}

/// What every rank of every command is told.
#[derive(Clone, Debug)]
pub struct Common {
    /// Where the ranks meet, `HOST:PORT` on rank 0's host, or `file:PATH` of a file that all see; the
    /// launcher may say.
    pub rendezvous: Option<String>,
    /// Where rank 0 listens, if that is not the address by which the others find it.
    pub bind: Option<String>,
    /// This process's number, from 0; the launcher may say.
    pub rank: Option<u32>,
    /// How many processes there are; the launcher may say.
    pub ranks: Option<u32>,
    /// The rails, in the same order on all ranks; all devices if there are none.
    pub devices: Vec<Choice>,
    /// How long a stage may wait for the slowest rank, in seconds.
    pub timeout: u64,
    /// `traffic_class` of all queue pairs; that of NCCL's or UCX's variables if there is none.
    pub traffic_class: Option<u8>,
    /// Service level, 0 to 15; likewise.
    pub service_level: Option<u8>,
    /// Partition key; likewise.
    pub pkey: Option<u16>,
    /// How queue pairs are connected, once the ranks have met.
    pub connect: Connect,
    /// How far the rails of each rank are turned against those of the rank before; 0 for rails that speak
    /// among themselves.
    pub cross_rail: u32,
    /// What queue pairs promise.
    pub transport: Transport,
    /// What queue pairs send from and receive into.
    pub memory: Memory,
    /// Whether results are JSON.
    pub json: bool,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            rendezvous: None,
            bind: None,
            rank: None,
            ranks: None,
            devices: Vec::new(),
            timeout: 60,
            traffic_class: None,
            service_level: None,
            pkey: None,
            connect: Connect::default(),
            cross_rail: 0,
            transport: Transport::default(),
            memory: Memory::default(),
            json: false,
        }
    }
}

impl Common {
    /// What every command needs of each rail.
    pub(crate) fn needs(&self) -> Needs {
        Needs { kind: self.memory, transport: self.transport, ..Needs::default() }
    }
}

/// What to verify.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// Who this rank is.
    pub common: Common,
    /// Sizes of messages in bytes; the edges of the device and some between if there are none.
    pub sizes: Vec<usize>,
    /// How often to connect and disconnect before, each time with random delays.
    pub reconnects: u32,
    /// What those delays are made of; drawn by rank 0 if it is not given.
    pub seed: Option<u64>,
    /// Which pairs are tried.
    pub choosing: Choosing,
    /// A fault to put in, for tests.
    pub inject: Option<Injection>,
    /// File for the report of all ranks, on rank 0 (JSON).
    pub report: Option<PathBuf>,
    /// What to write beside that.
    pub outputs: Outputs,
}

/// What to diagnose.
#[derive(Clone, Debug, Default)]
pub struct DiagnoseOptions {
    /// Who this rank is.
    pub common: Common,
    /// Sizes of messages in bytes; a few if there are none.
    pub sizes: Vec<usize>,
    /// Which pairs are tried.
    pub choosing: Choosing,
    /// A fault to put in, for tests.
    pub inject: Option<Injection>,
    /// File for the report of all ranks, on rank 0 (JSON).
    pub report: Option<PathBuf>,
    /// What to write beside that.
    pub outputs: Outputs,
}

/// Many ranks in two processes, without verbs.
#[derive(Clone, Debug)]
pub struct SimulateOptions {
    /// How many there are.
    pub ranks: u32,
    /// With how many others each rank connects, one after the other.
    pub rounds: usize,
    /// Only the ranks, which meet here.
    pub at: Option<String>,
    /// Rails of each rank; with 0, ranks meet and connect, and no more.
    pub rails: usize,
    /// Faults of the cluster, each `CAUSE@PLACE`.
    pub faults: Vec<String>,
    /// What to write of the cluster.
    pub outputs: Outputs,
    /// The outcome of an earlier run (`--save`), to be written anew: nothing is simulated.
    pub outcome: Option<PathBuf>,
}

/// Sizes, as all ranks must have been told them.
pub(crate) fn sizes_text(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// `1`, `64K`, `1M`: the size of a message whose contents are compared.
pub fn size(text: &str) -> Result<usize, String> {
    up_to(text, LARGEST)
}

/// `1`, `64K`, `1G`: the size of a message of a benchmark.
pub fn message_size(text: &str) -> Result<usize, String> {
    up_to(text, LONGEST_MESSAGE)
}

fn up_to(text: &str, limit: usize) -> Result<usize, String> {
    let (digits, unit) = match text.trim_end_matches(['K', 'k', 'M', 'm', 'G', 'g']) {
        digits if digits.len() == text.len() => (digits, 1),
        digits if text.ends_with(['K', 'k']) => (digits, 1 << 10),
        digits if text.ends_with(['M', 'm']) => (digits, 1 << 20),
        digits => (digits, 1 << 30),
    };
    let one_unit = text.len() - digits.len() <= 1;
    let number: Option<usize> = digits.parse().ok().filter(|_| one_unit);
    number.and_then(|number| number.checked_mul(unit)).filter(|size| *size <= limit).ok_or_else(
        || format!("{text:?} is not a size: give bytes up to {limit}, as in 1, 64K or 1M"),
    )
}

/// Who this rank is, checked.
#[derive(Debug)]
pub(crate) struct Identity {
    pub rank: u32,
    pub ranks: u32,
    pub rendezvous: String,
    pub bind: String,
    pub rails: Vec<Choice>,
    pub(crate) patience: Duration,
    pub(crate) class: Class,
    pub(crate) connect: Connect,
    pub(crate) transport: Transport,
    pub(crate) cross_rail: u32,
}

impl Identity {
    pub(crate) fn find(common: &Common, environment: Environment<'_>) -> Result<Self, Error> {
        let usage = |text: String| Err(Error::Usage(text));
        let found = launch::who(environment)?;
        let rank = common.rank.or(found.0);
        let ranks = common.ranks.or(found.1);
        let (Some(rank), Some(ranks)) = (rank, ranks) else {
            let launchers = launch::names();
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
        let named = common.rendezvous.clone().or_else(|| environment("VERBGATE_RENDEZVOUS"));
        let named = match named {
            Some(at) => Some(at),
            None => {
                let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
                let host = read("/proc/sys/kernel/hostname");
                launch::meeting(environment, host.trim(), &read("/etc/hosts"))?
            }
        };
        let Some(rendezvous) = named else {
            return usage(
                "--rendezvous HOST:PORT is needed: any free port of rank 0's host, or file:PATH of a \
                 file that all ranks see".into(),
            );
        };
        let is_told = meeting::is_told(&rendezvous);
        let given = [Some(&rendezvous).filter(|_| !is_told), common.bind.as_ref()];
        for at in given.into_iter().flatten() {
            let port = at.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none() {
                return usage(format!("{at:?} is not an address: write HOST:PORT"));
            }
        }
        if common.timeout == 0 || common.timeout > LONGEST_WAIT {
            return usage(format!("--timeout {}: give 1 to {LONGEST_WAIT} s", common.timeout));
        }
        let mut rails =
            if common.devices.is_empty() { rail::all()? } else { common.devices.clone() };
        let cross_rail = common.cross_rail;
        let turned = u64::from(rank) * u64::from(cross_rail);
        let turned = turned.checked_rem(rails.len() as u64).unwrap_or(0);
        rails.rotate_left(usize::try_from(turned).unwrap_or(0));
        let anywhere = || if is_told { "0.0.0.0:0".to_owned() } else { rendezvous.clone() };
        let bind = common.bind.clone().unwrap_or_else(anywhere);
        let patience = Duration::from_secs(common.timeout);
        let given = (common.traffic_class, common.service_level, common.pkey);
        let class = Class::find(given, environment)?;
        let (connect, transport) = (common.connect, common.transport);
        if connect == Connect::RdmaCm && transport != Transport::Rc {
            let word = transport_word(transport);
            return usage(format!(
                "--connect rdma-cm: rdma_cm connects queue pairs of --transport rc, and not of {word}"
            ));
        }
        Ok(Self {
            rank,
            ranks,
            rendezvous,
            bind,
            rails,
            patience,
            class,
            connect,
            transport,
            cross_rail,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(arguments: &[&str]) -> Common {
        let mut common = Common { devices: vec!["d".parse().unwrap()], ..Common::default() };
        for pair in arguments.chunks(2) {
            match pair[0] {
                "--rendezvous" => common.rendezvous = Some(pair[1].to_owned()),
                "--rank" => common.rank = Some(pair[1].parse().unwrap()),
                "--ranks" => common.ranks = Some(pair[1].parse().unwrap()),
                other => panic!("{other}"),
            }
        }
        common
    }

    fn identity(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Identity, Error> {
        Identity::find(&common(arguments), &|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn launchers_say_who_it_is_and_the_command_line_overrules_them() {
        let by_file =
            identity(&["--rendezvous", "file:/x"], &[("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
        assert_eq!(by_file.unwrap().bind, "0.0.0.0:0");
        let found = identity(
            &["--rank", "1"],
            &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "29500")],
        );
        let found = found.unwrap();
        assert_eq!((found.rank, &*found.rendezvous, &*found.bind), (1, "h:29501", "h:29501"));
    }

    #[test]
    fn rails_are_turned_by_the_ranks_number() {
        let names = |rank: u32, cross_rail: u32| -> Vec<String> {
            let devices = ["a", "b", "c"].map(|name| name.parse().unwrap()).to_vec();
            let rendezvous = Some("h:1".to_owned());
            let (rank, ranks) = (Some(rank), Some(9));
            let common =
                Common { devices, rendezvous, rank, ranks, cross_rail, ..Common::default() };
            let rails = Identity::find(&common, &|_| None).unwrap().rails;
            rails.iter().map(|choice| choice.device.clone()).collect()
        };
        assert_eq!(names(7, 0), ["a", "b", "c"]);
        assert_eq!(names(0, 1), ["a", "b", "c"]);
        // Rail 0 of rank 0 speaks to the second device of rank 1, and to the third of rank 2.
        assert_eq!(names(1, 1), ["b", "c", "a"]);
        assert_eq!(names(2, 1), ["c", "a", "b"]);
        assert_eq!(names(1, 5), ["c", "a", "b"]);
        // No rail speaks to itself, between two ranks and between as many ranks as there are rails; of more
        // ranks, those do that are as many apart as there are rails.
        for (one, other) in [(0, 1), (0, 2), (1, 2), (7, 8)] {
            let (one, other) = (names(one, 1), names(other, 1));
            assert!(one.iter().zip(&other).all(|(a, b)| a != b), "{one:?} {other:?}");
        }
        assert_eq!(names(0, 1), names(3, 1));
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
        assert_eq!([message_size("1G"), message_size("256m")], [Ok(1 << 30), Ok(256 << 20)]);
        assert!(message_size("2G").is_err());
        assert_eq!([size("0"), size("64K"), size("1m")], [Ok(0), Ok(65536), Ok(1 << 20)]);
        for wrong in ["", "K", "1KM", "2M", "-1", "1G", "1.5K"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
