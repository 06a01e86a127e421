//! The command line of `verbgate-hostile run`.

use std::io;
use std::process::Command;
use std::time::Duration;

use crate::attacks::calls::SOME;
use crate::board::now;
use crate::held::Means;

/// What is asked for on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) verbgate: String,
    /// `NAME` or `NAME=PATH`, as `verbgate run --device` has it, and the node's name.
    pub(crate) devices: [(String, String); 2],
    pub(crate) user: String,
    /// For how long an attack that goes on is watched, where the bystanders' waits are measured.
    pub(crate) lasts: Duration,
    /// Set the machine's own `kernel.pid_max`, where namespaces have none of their own.
    pub(crate) machine: bool,
    /// No sandbox, to see that what is tried works where nothing stands in its way.
    pub(crate) native: bool,
    /// 32-bit programs run in the sandboxes.
    pub(crate) compat: bool,
    /// The IPv4 address by which the connection manager finds the first device.
    pub(crate) address: String,
    /// Names what an attack does at random.
    pub(crate) seed: u64,
    /// The OCI runtime that runs the attacked sandbox as a container.
    pub(crate) container: Option<String>,
    /// Real devices answer requests with success.
    pub(crate) real: bool,
    /// So many processes attack in the same way at once.
    pub(crate) minions: u32,
    /// The share of a processor that each process of a load takes, in thousandths; 0: every processor, all of it.
    pub(crate) share: u32,
    /// How many calls a generated attack makes.
    pub(crate) calls: u64,
    /// All guests of the attacked sandbox are held for a while, once the attack is in effect.
    pub(crate) held: Option<(Means, Duration)>,
}

impl Options {
    /// The program in a sandbox, unless there is to be none; its arguments follow.
    pub(crate) fn sandbox(&self, dir: &str, traced: bool) -> Command {
        let program = format!("{dir}/program");
        if self.native {
            return Command::new(program);
        }
        let mut command = Command::new(&self.verbgate);
        if traced {
            command.args(["trace", "--output", &format!("{dir}/trace")]);
        } else {
            command.arg("run");
        }
        for (device, _) in &self.devices {
            command.args(["--device", device]);
        }
        if self.compat {
            command.arg("--compat");
        }
        command.arg("--").arg(program);
        command
    }

    pub(crate) fn parse(words: &[&str]) -> io::Result<Self> {
        let mut options = Self {
            verbgate: String::new(),
            devices: [device("uverbs9=/dev/null"), device("uverbs8=/dev/urandom")],
            user: "nobody".to_owned(),
            lasts: Duration::ZERO,
            machine: false,
            native: false,
            compat: false,
            address: String::new(),
            seed: now(),
            container: None,
            real: false,
            minions: 1,
            share: 0,
            calls: SOME,
            held: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                let missing = || io::Error::other(format!("{word} needs a value"));
                words.next().map(ToString::to_string).ok_or_else(missing)
            };
            match *word {
                "--verbgate" => options.verbgate = value()?,
                "--device" => options.devices[0] = device(&value()?),
                "--other" => options.devices[1] = device(&value()?),
                "--user" => options.user = value()?,
                "--lasts-ms" => {
                    options.lasts =
                        Duration::from_millis(value()?.parse().map_err(io::Error::other)?);
                }
                "--machine-pid-max" => options.machine = true,
                "--seed" => options.seed = value()?.parse().map_err(io::Error::other)?,
                "--address" => options.address = value()?,
                "--container" => options.container = Some(value()?),
                "--compat" => options.compat = true,
                "--native" => options.native = true,
                "--real" => options.real = true,
                "--minions" => options.minions = value()?.parse().map_err(io::Error::other)?,
                "--share" => options.share = value()?.parse().map_err(io::Error::other)?,
                "--calls" => options.calls = value()?.parse().map_err(io::Error::other)?,
                "--stopped-s" => options.held = Some((Means::Signal, seconds(&value()?)?)),
                "--frozen-s" => options.held = Some((Means::Freezer, seconds(&value()?)?)),
                other => return Err(io::Error::other(format!("unknown option {other}"))),
            }
        }
        Ok(options)
    }
}

impl Options {
    /// Where an attacker finds a device.
    pub(crate) fn path(&self, which: usize) -> String {
        let (device, node) = &self.devices[which];
        match device.split_once('=') {
            Some((_, path)) if self.native => path.to_owned(),
            _ => format!("/dev/infiniband/{node}"),
        }
    }
}

fn seconds(word: &str) -> io::Result<Duration> {
    Ok(Duration::from_secs(word.parse().map_err(io::Error::other)?))
}

/// `NODE=PATH`, or `DEVICE:NODE`.
fn device(word: &str) -> (String, String) {
    match (word.split_once('='), word.split_once(':')) {
        (Some((node, _)), _) => (word.to_owned(), node.to_owned()),
        (None, Some((name, node))) => (name.to_owned(), node.to_owned()),
        (None, None) => (word.to_owned(), word.to_owned()),
    }
}
