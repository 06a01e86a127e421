//! The world of the tests: the device, its addresses, and the programs under test.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv6Addr;
use std::net::TcpListener;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::exec;

const CLASS: &str = "/sys/class/infiniband";

/// A device, and `verbgate`.
#[derive(Clone, Debug)]
pub struct World {
    /// The RDMA device: `rxe0`.
    pub device: String,
    /// Its node's name: `uverbs0`.
    pub node: String,
    /// The index of its first RoCE v2 GID of an IPv4 address; none on InfiniBand.
    pub gid_index: Option<u32>,
    /// The folder of `verbgate`, `verbgate-guest` and this program.
    bin: PathBuf,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// As it is.
    Native,
    /// In a sandbox of its own.
    Sandbox,
}

/// The folder where sandboxes write traces of their requests, if they are to.
pub const TRACES: &str = "VERBGATE_TESTS_TRACES";

/// What the folder of a case's traces is called after its dot, until the case has passed.
pub const UNFINISHED: &str = "unfinished";

/// A file for the trace of one sandbox.
fn trace() -> Option<PathBuf> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let folder = PathBuf::from(std::env::var_os(TRACES)?);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    Some(folder.join(format!("{}-{number}.json", std::process::id())))
}

impl World {
    /// Looks around. Without a name it takes the first device there is.
    pub fn look(device: Option<&str>) -> Result<Self> {
        let device = match device {
            Some(name) => name.to_owned(),
            None => first_device()?,
        };
        let class = Path::new(CLASS).join(&device);
        if !class.exists() {
            bail!(
                "no RDMA device is called {device:?}: `ls {CLASS}` shows those there are; \
                 `rdma link add rxe0 type rxe netdev NETDEV` makes one"
            );
        }
        let me = std::env::current_exe().context("cannot find this program's own file")?;
        let bin = me.parent().context("this program's file is in no folder")?.to_owned();
        Ok(Self {
            node: node_of(&device)?,
            gid_index: gid_index(&class.join("ports/1")),
            device,
            bin,
        })
    }

    /// The node's path.
    pub fn node_path(&self) -> String {
        format!("/dev/infiniband/{}", self.node)
    }

    /// The IPv4 address by which the connection manager finds the device: that of its GID.
    pub fn address(&self) -> Result<String> {
        let index = self.gid_index.context("the device has no GID of an IPv4 address")?;
        let file = Path::new(CLASS).join(&self.device).join(format!("ports/1/gids/{index}"));
        let gid: Ipv6Addr = fs::read_to_string(&file)?.trim().parse()?;
        Ok(gid.to_ipv4_mapped().context("a GID that is no IPv4 address")?.to_string())
    }

    /// The packets that the device has sent.
    pub fn packets(&self) -> Result<u64> {
        let port = Path::new(CLASS).join(&self.device).join("ports/1");
        let counters = ["hw_counters/sent_pkts", "counters/port_xmit_packets"];
        let text = counters.iter().find_map(|file| fs::read_to_string(port.join(file)).ok());
        Ok(text.context("the device counts no packets")?.trim().parse()?)
    }

    /// The network device of the first GID; none on InfiniBand.
    pub fn netdev(&self) -> Option<String> {
        let file = Path::new(CLASS).join(&self.device).join("ports/1/gid_attrs/ndevs/0");
        let name = fs::read_to_string(file).ok()?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    }

    /// The folder of `verbgate`, of its guests and of this program.
    pub fn folder(&self) -> &Path {
        &self.bin
    }

    /// The path of a program beside this one.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// `verbgate`, or another program beside this one.
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.beside(name))
    }

    /// `verbgate run --device DEVICE [OPTIONS] -- ARGV`.
    pub fn sandbox(&self, options: &[&str], argv: &[&str]) -> Command {
        match trace() {
            Some(file) => {
                let file = file.to_string_lossy();
                self.supervised(&["trace", "--json", "--output", &file], options, argv)
            }
            None => self.supervised(&["run"], options, argv),
        }
    }

    /// `verbgate trace --summary --json --output FILE --device DEVICE -- ARGV`.
    pub fn summed(&self, file: &str, argv: &[&str]) -> Command {
        self.supervised(&["trace", "--summary", "--json", "--output", file], &[], argv)
    }

    fn supervised(&self, how: &[&str], options: &[&str], argv: &[&str]) -> Command {
        let mut command = self.program("verbgate");
        command.args(how).args(["--device", &self.device]).args(options).arg("--").args(argv);
        command
    }

    /// A command in its place.
    pub fn command(&self, place: Place, argv: &[&str]) -> Result<Command> {
        match place {
            Place::Sandbox => Ok(self.sandbox(&[], argv)),
            Place::Native => {
                let (program, arguments) = argv.split_first().context("an empty command")?;
                let mut command = Command::new(program);
                command.args(arguments);
                Ok(command)
            }
        }
    }

    /// This program as a guest: `verbgate-lab-tests probe ...`.
    pub fn probe(&self, place: Place, arguments: &[&str]) -> Result<Command> {
        let me = self.bin.join("verbgate-lab-tests");
        let me = me.to_string_lossy();
        let argv: Vec<&str> = [&*me, "probe"].iter().chain(arguments).copied().collect();
        self.command(place, &argv)
    }

    /// The options that make a ping-pong of rdma-core use the device.
    pub fn pingpong_options(&self) -> Vec<String> {
        self.device_options("-g")
    }

    /// The options that make a program of perftest use the device.
    pub fn perftest_options(&self) -> Vec<String> {
        let mut options = self.device_options("-x");
        // Clock rates vary on any machine of today, which is only a warning.
        options.push("-F".to_owned());
        options
    }

    fn device_options(&self, gid: &str) -> Vec<String> {
        let mut options = vec!["-d".to_owned(), self.device.clone()];
        if let Some(index) = self.gid_index {
            options.extend([gid.to_owned(), index.to_string()]);
        }
        options
    }
}

/// The first RDMA device.
fn first_device() -> Result<String> {
    let entries = fs::read_dir(CLASS).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.into_iter().next().context(
        "this machine has no RDMA device: leave out --host, and a virtual machine with one is \
         used; or make one with `rdma link add rxe0 type rxe netdev NETDEV`",
    )
}

/// The name of a device's node.
pub fn node_of(device: &str) -> Result<String> {
    let class = Path::new("/sys/class/infiniband_verbs");
    for entry in fs::read_dir(class).into_iter().flatten().flatten() {
        let name = fs::read_to_string(entry.path().join("ibdev")).unwrap_or_default();
        if name.trim() == device {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    bail!("the RDMA device {device} has no node: is ib_uverbs loaded?")
}

/// The index of the first RoCE v2 GID of an IPv4 address.
fn gid_index(port: &Path) -> Option<u32> {
    let mut indices: Vec<u32> = fs::read_dir(port.join("gids"))
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    indices.sort_unstable();
    indices.into_iter().find(|index| {
        let read = |file: String| fs::read_to_string(port.join(file)).unwrap_or_default();
        read(format!("gids/{index}")).starts_with("0000:0000:0000:0000:0000:ffff:")
            && read(format!("gid_attrs/types/{index}")).trim() == "RoCE v2"
    })
}

/// A TCP port that nobody uses.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot find a free TCP port")?;
    Ok(listener.local_addr()?.port())
}

/// Whether somebody listens on this TCP port.
pub fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let mut fields = line.split_ascii_whitespace();
            let local = fields.nth(1).unwrap_or_default();
            let state = fields.nth(1).unwrap_or_default();
            state == "0A" && local.ends_with(&format!(":{port:04X}"))
        })
    })
}

/// How many objects the kernel holds for each device, as `rdma resource show` counts them; nothing
/// where there is no `rdma`.
pub fn resources() -> BTreeMap<String, u64> {
    let mut command = Command::new("rdma");
    command.args(["-j", "resource", "show"]);
    let Ok(ended) = exec::run(command) else {
        return BTreeMap::new();
    };
    let devices: Vec<BTreeMap<String, serde_json::Value>> =
        serde_json::from_str(&ended.stdout).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for device in devices {
        let name = device.get("ifname").and_then(|n| n.as_str()).unwrap_or("?");
        for (object, count) in &device {
            if let Some(count) = count.as_u64().filter(|_| object != "ifindex") {
                counts.insert(format!("{name} {object}"), count);
            }
        }
    }
    counts
}

/// Tells whether a device has got a listener of the connection manager since this call: of a server that listens by
/// `rdma_cm` no port tells.
pub fn new_listener(device: &str) -> impl Fn() -> bool + use<> {
    let device = device.to_owned();
    let before = listeners(&device);
    move || !listeners(&device).is_subset(&before)
}

/// The numbers of a device's identifiers that listen.
fn listeners(device: &str) -> BTreeSet<u64> {
    let mut command = Command::new("rdma");
    command.args(["-j", "resource", "show", "cm_id"]);
    let text = exec::run(command).map(|ended| ended.stdout).unwrap_or_default();
    let ids: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap_or_default();
    let listens = |id: &&serde_json::Value| id["ifname"] == device && id["state"] == "LISTEN";
    ids.iter().filter(listens).filter_map(|id| id["cm-idn"].as_u64()).collect()
}
