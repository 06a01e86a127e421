//! One run of a client: its ends in their places, from start to end.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::json;
use tempfile::TempDir;

use super::list::Card;
use super::list::Client;
use super::list::Ends;
use super::list::SCRIPTS;
use super::start::Traced;
use crate::bundle;
use crate::bundle::Container;
use crate::cases::nic;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::report::Report;
use crate::world;
use crate::world::World;

/// How long a server has to end by itself after its client.
const FAREWELL: Duration = Duration::from_secs(5);
/// What makes the containers, under `verbgate oci`.
const RUNTIME: &str = "crun";
/// Where programs of one machine meet, whatever their device.
const LOOPBACK: &str = "127.0.0.1";

/// Starts a rank in its place. A container has its own environment, so the launcher's is told to the rank in a file.
const IN_ITS_PLACE: &str = r#"cd "$0"
n=$OMPI_COMM_WORLD_RANK
{ env -0 | grep -zE '^(OMPI|PMIX|PRTE|TMPDIR)'; cat $n.rank; } >$n.told
exec xargs -0 -a $n.place env"#;

/// What both ends are in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Between {
    /// Nothing.
    Programs,
    /// A sandbox each.
    Sandboxes,
    /// A container each, with the machine's programs and in its network namespace.
    Containers,
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Programs => "natively",
            Self::Sandboxes => "between two sandboxes",
            Self::Containers => "between two containers",
        })
    }
}

/// An end's device.
#[derive(Debug)]
struct Own {
    world: World,
    address: String,
}

/// What stands for `{...}` in the words of a client.
#[derive(Debug)]
pub(super) struct Facts {
    server: Own,
    client: Own,
    /// Scripts of this crate.
    scripts: TempDir,
    /// Programs that were fetched, unpacked.
    fetched: PathBuf,
}

/// One run of a client.
#[derive(Debug)]
pub(super) struct Once {
    pub(super) seconds: f64,
    /// Of the supervisors together.
    pub(super) notifications: u64,
    pub(super) requests: u64,
    /// Served files of `/sys` that were opened.
    pub(super) files: u64,
}

/// A run: who is to supervise it, and what it leaves.
struct Stage<'a> {
    facts: &'a Facts,
    client: &'a Client,
    between: Between,
    /// Requests are counted by kind, and timed, instead of reported.
    is_traced: bool,
    port: u16,
    /// A report or a trace of each supervisor.
    reports: TempDir,
    /// What a launcher and its ranks share, also with ranks in containers.
    shared: TempDir,
    containers: Vec<Container>,
}

impl Facts {
    /// On Soft-RoCE both ends have the device of `world`; of NICs the client has the second.
    pub(super) fn look(world: &World, card: Card, fetched: &Path) -> Result<Self> {
        let scripts = tempfile::tempdir().context("cannot make a temporary folder")?;
        for (name, text) in SCRIPTS {
            fs::write(scripts.path().join(name), text)?;
        }
        let own = |world: &World| -> Result<Own> {
            let address = match card {
                Card::Software => world.address()?,
                Card::Erdma => nic::address(world)?,
                Card::Efa | Card::Mlx5 => LOOPBACK.to_owned(),
            };
            Ok(Own { world: world.clone(), address })
        };
        let (server, client) = match card {
            Card::Software => (own(world)?, own(world)?),
            Card::Efa | Card::Erdma | Card::Mlx5 => {
                let two = nic::Two::look(world)?;
                (own(two.end("server"))?, own(two.end("client"))?)
            }
        };
        Ok(Self { server, client, scripts, fetched: fetched.to_owned() })
    }

    /// Runs a client once.
    pub(super) fn once(&self, client: &Client, between: Between) -> Result<Once> {
        let mut stage = self.stage(client, between, false)?;
        let ended = stage.run()?;
        let seconds = ended.took.as_secs_f64();
        let mut run = Once { seconds, notifications: 0, requests: 0, files: 0 };
        if between == Between::Sandboxes {
            for entry in fs::read_dir(stage.reports.path())?.flatten() {
                let report = Report::read(&entry.path())?;
                run.notifications += report.notifications;
                run.files += report.sysfs_files;
                run.requests += report.executed;
            }
            if run.requests == 0 {
                bail!("the client has made no request of a device: {ended}");
            }
        }
        Ok(run)
    }

    /// Runs a client once between two sandboxes, for what `verbgate trace --summary` says of each.
    pub(super) fn traced(&self, client: &Client) -> Result<Vec<Traced>> {
        let mut stage = self.stage(client, Between::Sandboxes, true)?;
        stage.run()?;
        let entries = fs::read_dir(stage.reports.path())?.flatten();
        entries.map(|entry| Traced::read(&entry.path())).collect()
    }

    fn stage<'a>(
        &'a self,
        client: &'a Client,
        between: Between,
        is_traced: bool,
    ) -> Result<Stage<'a>> {
        Ok(Stage {
            facts: self,
            client,
            between,
            is_traced,
            port: world::free_port()?,
            reports: tempfile::tempdir()?,
            shared: tempfile::tempdir()?,
            containers: Vec::new(),
        })
    }
}

impl Stage<'_> {
    fn own(&self, role: &str) -> &Own {
        if role == "server" { &self.facts.server } else { &self.facts.client }
    }

    /// An end's words, without braces.
    fn fill(&self, role: &str, words: &[&str]) -> Vec<String> {
        let (own, facts) = (self.own(role), self.facts);
        let gid = own.world.gid_index.unwrap_or(0).to_string();
        let netdev = own.world.netdev().map_or_else(String::new, |name| format!(",{name}"));
        let scripts = facts.scripts.path().to_string_lossy();
        let (fetched, port) = (facts.fetched.to_string_lossy(), self.port.to_string());
        let known = [
            ("{role}", role),
            ("{device}", &own.world.device),
            ("{gid}", &gid),
            ("{netdev}", &netdev),
            ("{own}", &own.address),
            ("{address}", &facts.server.address),
            ("{port}", &port),
            ("{scripts}", &scripts),
            ("{fetched}", &fetched),
        ];
        let filled = words.iter().map(|word| {
            known.iter().fold((*word).to_owned(), |word, (name, value)| word.replace(name, value))
        });
        filled.collect()
    }

    /// The settings of an end, as `NAME=VALUE`.
    fn settings(&self, role: &str) -> Vec<String> {
        let all = self.client.env.iter();
        all.map(|(name, value)| format!("{name}={}", self.fill(role, &[value]).concat())).collect()
    }

    /// The command of an end in its place: its own name for reports, its role, and its words.
    fn end(&mut self, name: &str, role: &str, words: &[String]) -> Result<Command> {
        let settings = self.settings(role);
        let report = self.reports.path().join(name).to_string_lossy().into_owned();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let world = &self.own(role).world;
        match self.between {
            Between::Programs => {}
            Between::Sandboxes => {
                let mut command = Command::new("env");
                let inner = match self.is_traced {
                    true => world.summed(&report, &words),
                    false => world.sandbox(&["--report", &report], &words),
                };
                command.args(settings).arg(inner.get_program()).args(inner.get_args());
                return Ok(command);
            }
            Between::Containers => {
                let container = Container::new(world, RUNTIME, name, &words)?;
                for setting in settings {
                    container.add("/process/env", "-", setting.into())?;
                }
                let shm = json!({"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs"});
                container.add("/mounts", "-", shm)?;
                for folder in [self.facts.scripts.path(), &self.facts.fetched] {
                    container.add("/mounts", "-", bundle::bind(&folder.to_string_lossy()))?;
                }
                let shared = self.shared.path();
                let shared = json!({"destination": shared, "source": shared, "options": ["bind"]});
                container.add("/mounts", "-", shared)?;
                let command = container.run();
                self.containers.push(container);
                return Ok(command);
            }
        }
        let mut command = Command::new("env");
        command.args(settings).args(words);
        Ok(command)
    }

    /// Runs the ends to the client's end.
    fn run(&mut self) -> Result<Ended> {
        let client = self.client;
        let ended = match client.ends {
            Ends::Pair { server, client: other, ready } => self.pair(server, other, ready)?,
            Ends::Ranks { launcher, rank } => self.ranks(launcher, rank)?,
        };
        if ended.status != 0 || !ended.stdout.contains(client.says) {
            bail!("not {:?}: {ended}", client.says);
        }
        Ok(ended)
    }

    fn pair(&mut self, server: &[&str], other: &[&str], ready: Option<&str>) -> Result<Ended> {
        let words = self.fill("server", server);
        let device = &self.facts.server.world.device;
        let listens = world::new_listener(device);
        let mut server = Program::start(self.end("server", "server", &words)?)?;
        let hears = || world::is_listening(self.port) || listens();
        let address = listening(&mut server, hears, ready)?;
        let words = self.fill("client", other);
        let words: Vec<String> =
            words.iter().map(|word| word.replace("{server}", &address)).collect();
        let ended = Program::start(self.end("client", "client", &words)?)?.wait();
        let ended = match ended {
            Ok(ended) if ended.status == 0 => ended,
            Ok(ended) => bail!("{ended}\nand its server {}", server.describe()?),
            Err(error) => bail!("{error:#}\nand its server {}", server.describe()?),
        };
        // Some wait for the next client, until they are told to end.
        let farewell = Instant::now() + FAREWELL;
        exec::wait_until("the server's end", || {
            if Instant::now() > farewell {
                server.terminate()?;
            }
            server.has_ended()
        })?;
        Ok(ended)
    }

    /// Each rank in a sandbox or container of its own; the launcher is no RDMA program. The launcher is given one program
    /// for both ranks: given two, with a colon in between, that of Open MPI 5.0.7 ends with SIGSEGV before there is a rank.
    fn ranks(&mut self, launcher: &[&str], rank: &[&str]) -> Result<Ended> {
        let shared = self.shared.path().to_owned();
        let file = |name: &str| shared.join(name).to_string_lossy().into_owned();
        for (number, role) in ["0", "1"].into_iter().zip(["server", "client"]) {
            let rank = self.fill(role, rank).join("\0");
            fs::write(file(&format!("{number}.rank")), rank)?;
            let inside = ["xargs", "-0", "-a", &file(&format!("{number}.told")), "env"];
            let inside = inside.map(str::to_owned);
            let place = self.end(&format!("rank-{number}"), role, &inside)?;
            let all: Vec<&OsStr> =
                [place.get_program()].into_iter().chain(place.get_args()).collect();
            fs::write(
                file(&format!("{number}.place")),
                all.join(OsStr::new("\0")).as_encoded_bytes(),
            )?;
        }
        let mut command = Command::new("env");
        command.arg(format!("TMPDIR={}", shared.display()));
        command.args(self.settings("server")).args(self.fill("server", launcher));
        command.args(["-np", "2", "sh", "-c", IN_ITS_PLACE]).arg(shared);
        exec::run(command)
    }
}

/// Waits until a server can be spoken with; gives the address that it tells, or that of this machine.
fn listening(
    server: &mut Program,
    hears: impl Fn() -> bool,
    ready: Option<&str>,
) -> Result<String> {
    let mut address = LOOPBACK.to_owned();
    exec::wait_until("a server that can be spoken with", || {
        let said = server.stdout_so_far()? + &server.stderr_so_far()?;
        let is_ready = match ready.map(|word| said.split_once(word)) {
            Some(Some((_, rest))) => {
                address = rest.split_whitespace().next().unwrap_or_default().to_owned();
                true
            }
            Some(None) => false,
            None => hears(),
        };
        // The client's failure shows why a server has ended.
        Ok(is_ready || server.has_ended()?)
    })?;
    Ok(address)
}
