//! NICs of a lab's machine: models outside of QEMU, plugged in by vfio-user, each behind a bridge and
//! on a NUMA node of its own; and the way by which the guest asks for their faults.
//!
//! The guest writes a request into its control share (`nic/NUMBER.request`), and finds the answer beside
//! it (`nic/NUMBER.answer`): `ok` and what there is to say, or `error` and why.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;
use serde_json::json;
use verbgate_nic::Event;
use verbgate_nic::Function;
use verbgate_nic::Model;
use verbgate_nic::efa::Efa;
use verbgate_nic::erdma::Erdma;
use verbgate_nic::erdma::Protocol;
use verbgate_nic::mlx5::Mlx5;
use verbgate_nic::serve::Served;
use verbgate_nic::wire::Faults;
use verbgate_nic::wire::Wire;

use crate::diary;

/// How often requests are looked for.
const TICK: Duration = Duration::from_millis(20);
/// Nodes of memory and processors, which NICs are on in turns.
pub(crate) const NODES: usize = 2;
/// The folder of requests in the control share.
const REQUESTS: &str = "nic";
/// Decides which messages have faults.
const SEED: u64 = 1;
/// What the MAC addresses of network interfaces begin with; the NIC's number is the rest. The guest knows
/// the interfaces by it.
const MAC: [u8; 5] = [0x02, 0, 0, 0x98, 0];
/// The first kernel whose `erdma` driver speaks RoCE v2. Older ones speak iWARP alone, and do not ask the
/// device.
const ROCE_SINCE: (u32, u32) = (6, 14);

/// How many NICs a machine of a network may have, so that the numbers of two machines differ.
const MOST: u16 = 16;
/// The number of the network interface by which the programs of a network's machines meet, before the place.
const MEETING: u16 = 200;
/// In a network's folder: the socket between the machines' network interfaces.
const CABLE: &str = "cable";

/// What joins the NICs of two machines, and their network interfaces, into one network: a folder that both
/// have, and the machine's place in it, 1 or 2.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Network {
    folder: PathBuf,
    place: u16,
}

impl Network {
    /// The first machine, or the second.
    ///
    /// # Errors
    /// There is no such place, or no such folder.
    pub fn new(folder: &Path, place: u16) -> Result<Self> {
        if !(1..=2).contains(&place) {
            bail!("a network has the places 1 and 2, and no {place}");
        }
        let real = fs::canonicalize(folder)
            .with_context(|| format!("no folder for a network: {}", folder.display()))?;
        Ok(Self { folder: real, place })
    }

    /// The IPv4 address by which the programs of a machine meet those of the other.
    #[must_use]
    pub fn address(&self) -> String {
        format!("10.98.0.{}", MEETING + self.place)
    }

    /// QEMU's arguments for the network interfaces.
    fn arguments(&self) -> Vec<String> {
        let addr = json!({ "type": "unix", "path": text(&self.folder.join(CABLE)) });
        let cable = if self.place == 1 {
            json!({ "type": "stream", "id": "cable", "server": true, "addr": addr })
        } else {
            // The other machine may start later.
            json!({ "type": "stream", "id": "cable", "addr": addr, "reconnect-ms": 200 })
        };
        let own = json!({
            "driver": "virtio-net-pci",
            "bus": "pcie.0",
            "netdev": "meeting",
            "mac": mac_text(MEETING + self.place),
            "romfile": "",
        });
        let parts = [
            ("-netdev", cable.to_string()),
            ("-netdev", "hubport,id=joined,hubid=0,netdev=cable".to_owned()),
            ("-netdev", "hubport,id=meeting,hubid=0".to_owned()),
            ("-device", own.to_string()),
        ];
        parts.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
    }
}

/// A model of a NIC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Nic {
    /// An Elastic Fabric Adapter.
    Efa,
    /// An Elastic RDMA Adapter, and a network interface as the other function of the same card: RoCE v2 where
    /// the kernel's driver speaks it, else iWARP.
    Erdma,
    /// A ConnectX with an InfiniBand port, whose driver the distribution's kernels have.
    Mlx5,
}

impl Nic {
    /// By name, as `--nic` takes it.
    ///
    /// # Errors
    /// There is no such model; the error names those there are.
    pub fn find(name: &str) -> Result<Self> {
        match name {
            "efa" => Ok(Self::Efa),
            "erdma" => Ok(Self::Erdma),
            "mlx5" => Ok(Self::Mlx5),
            _ => bail!("no NIC is called {name:?}: there are efa, erdma and mlx5"),
        }
    }

    /// Whether the card has a network interface, too.
    pub(crate) fn has_netdev(self) -> bool {
        self == Self::Erdma
    }
}

/// The NICs of one machine: they end with this.
pub(crate) struct Nics {
    functions: Vec<(Nic, Arc<dyn Model>, Served)>,
    /// The number of the first.
    first: u16,
    network: Option<Network>,
    wire: Arc<Wire>,
    ended: Arc<AtomicBool>,
    clerk: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Nics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nics: Vec<Nic> = self.functions.iter().map(|(nic, ..)| *nic).collect();
        f.debug_struct("Nics").field("nics", &nics).finish_non_exhaustive()
    }
}

impl Nics {
    /// Starts the models, with sockets in the run's folder, and answers requests in its control share.
    /// They speak what the drivers of a kernel of this series do.
    pub(crate) fn start(
        (nics, network): (&[Nic], Option<&Network>),
        series: &str,
        dir: &Path,
        control: &Path,
    ) -> Result<Self> {
        diary::open()?;
        let wire = Wire::new(SEED);
        let mut first = 1;
        if let Some(network) = network {
            wire.join(&network.folder)?;
            first += (network.place - 1) * MOST;
            if nics.len() > usize::from(MOST) {
                bail!("a machine of a network has at most {MOST} NICs");
            }
        }
        let mut functions = Vec::new();
        for (number, nic) in (first..).zip(nics) {
            let socket = dir.join(format!("nic{number}"));
            let (model, served): (Arc<dyn Model>, Served) = match nic {
                Nic::Efa => serve(Efa::new(&wire, number), &socket)?,
                Nic::Mlx5 => serve(Mlx5::new(&wire, number), &socket)?,
                Nic::Erdma => {
                    let protocol =
                        if speaks_roce(series)? { Protocol::Roce } else { Protocol::Tcp };
                    serve(Erdma::new(&wire, mac(number)?, protocol), &socket)?
                }
            };
            functions.push((*nic, model, served));
        }
        let requests = control.join(REQUESTS);
        fs::create_dir(&requests)?;
        let network = network.cloned();
        let mut nics = Self {
            functions,
            first,
            network,
            wire,
            ended: Arc::new(AtomicBool::new(false)),
            clerk: None,
        };
        let desk = Desk {
            devices: nics.functions.iter().map(|(_, model, _)| Arc::clone(model)).collect(),
            wire: Arc::clone(&nics.wire),
        };
        let ended = Arc::clone(&nics.ended);
        nics.clerk = Some(thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                desk.look(&requests);
                thread::sleep(TICK);
            }
        }));
        Ok(nics)
    }

    /// QEMU's arguments for them, and for memory that they can reach.
    pub(crate) fn arguments(&self, memory_mib: u32, cpus: u32) -> Vec<String> {
        let mut args = Vec::new();
        let nodes = u32::try_from(NODES).unwrap_or(1);
        for node in 0..nodes {
            let (object, size) = (format!("memory{node}"), memory_mib / nodes);
            args.extend([
                "-object".to_owned(),
                format!("memory-backend-memfd,id={object},size={size}M,share=on"),
                "-numa".to_owned(),
                format!("node,nodeid={node},memdev={object}"),
            ]);
        }
        for cpu in 0..cpus {
            args.extend([
                "-numa".to_owned(),
                format!("cpu,node-id={},socket-id=0,core-id={cpu}", cpu % nodes),
            ]);
        }
        // The kernel finds the bridge that was made last first.
        for (index, (nic, _, served)) in self.functions.iter().enumerate().rev() {
            let (node, bus) = (index % NODES, 0x40 + index * 0x20);
            let mut devices = vec![
                format!("pxb-pcie,id=host{index},bus=pcie.0,bus_nr={bus},numa_node={node}"),
                format!("pcie-root-port,id=port{index},bus=host{index},chassis={}", index + 1),
                plug(index, served.path(), nic.has_netdev()).to_string(),
            ];
            if nic.has_netdev() {
                // All interfaces are on one network, as the NICs are on one wire.
                args.extend(["-netdev".to_owned(), format!("hubport,id=net{index},hubid=0")]);
                devices.push(interface(index, self.first).to_string());
            }
            for device in devices {
                args.extend(["-device".to_owned(), device]);
            }
        }
        args.extend(self.network.iter().flat_map(Network::arguments));
        args
    }
}

impl Drop for Nics {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(clerk) = self.clerk.take() {
            // It answers requests, of which none can fail in a way that matters now.
            let _ = clerk.join();
        }
    }
}

/// Serves a model.
fn serve<M: Model + 'static>(model: Arc<M>, socket: &Path) -> Result<(Arc<dyn Model>, Served)> {
    let function: Arc<dyn Function> = model.clone();
    Ok((model, Served::listen(socket, function)?))
}

/// The device as QEMU takes it; alone on its card, or with another function.
fn plug(index: usize, socket: &Path, shared: bool) -> Value {
    json!({
        "driver": "vfio-user-pci",
        "id": format!("nic{index}"),
        "bus": format!("port{index}"),
        "addr": "0.0",
        "multifunction": shared,
        "socket": { "type": "unix", "path": text(socket) },
    })
}

/// The network interface of a card, its second function.
fn interface(index: usize, first: u16) -> Value {
    json!({
        "driver": "virtio-net-pci",
        "id": format!("interface{index}"),
        "bus": format!("port{index}"),
        "addr": "0.1",
        "netdev": format!("net{index}"),
        "mac": mac_text(first + u16::try_from(index).unwrap_or_default()),
        // It boots from nothing.
        "romfile": "",
    })
}

/// The MAC address of a card's network interface.
fn mac(number: u16) -> Result<[u8; 6]> {
    let number = u8::try_from(number).context("too many NICs")?;
    let [a, b, c, d, e] = MAC;
    Ok([a, b, c, d, e, number])
}

fn mac_text(number: u16) -> String {
    mac(number).unwrap_or_default().map(|byte| format!("{byte:02x}")).join(":")
}

/// Whether the `erdma` driver of a kernel of this series speaks RoCE v2.
fn speaks_roce(series: &str) -> Result<bool> {
    let numbers = series
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?)));
    Ok(numbers.with_context(|| format!("{series:?} is no kernel's series"))? >= ROCE_SINCE)
}

/// Who answers requests.
struct Desk {
    devices: Vec<Arc<dyn Model>>,
    wire: Arc<Wire>,
}

impl Desk {
    fn look(&self, folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "request") {
                continue;
            }
            let Ok(request) = fs::read_to_string(&path) else { continue };
            let answer = match self.answer(request.trim()) {
                Ok(text) => format!("ok {text}"),
                Err(error) => format!("error {error:#}"),
            };
            let new = path.with_extension("new");
            // A guest that is gone misses nothing.
            let _ = fs::remove_file(&path);
            let _ = fs::write(&new, answer)
                .and_then(|()| fs::rename(&new, path.with_extension("answer")));
        }
    }

    /// Does what a request says.
    fn answer(&self, request: &str) -> Result<String> {
        let words: Vec<&str> = request.split_whitespace().collect();
        match words.as_slice() {
            ["faults", changes @ ..] => {
                self.wire.set_faults(faults(changes)?);
                Ok(String::new())
            }
            ["carried"] => Ok(format!("{:?}", self.wire.carried())),
            ["census", nic] => Ok(format!("{:?}", self.device(nic)?.census())),
            ["counters", nic] => {
                let counters = self.device(nic)?.counters();
                Ok(format!("commands={} doorbells={}", counters.commands, counters.doorbells))
            }
            ["stall", nic, on] => {
                self.device(nic)?.stall(switch(on)?);
                Ok(String::new())
            }
            ["deaf", nic, on] => {
                self.device(nic)?.bus().lose_interrupts(switch(on)?);
                Ok(String::new())
            }
            ["event", nic, kind, count @ ..] => {
                let count: u32 = count.first().map_or(Ok(1), |count| count.parse())?;
                for _ in 0..count {
                    self.device(nic)?.raise(event(kind)?);
                }
                Ok(String::new())
            }
            _ => bail!("no such request: {request:?}"),
        }
    }

    fn device(&self, number: &str) -> Result<&dyn Model> {
        let index: usize = number.parse().with_context(|| format!("{number:?} is no number"))?;
        let device = self.devices.get(index);
        device.map(|device| &**device).with_context(|| format!("there is no NIC {index}"))
    }
}

/// `loss=0.1 duplicate=0.1 reorder=0.1 delay=200` (microseconds); what is not said is none.
fn faults(changes: &[&str]) -> Result<Faults> {
    let mut faults = Faults::default();
    for change in changes {
        let (name, value) =
            change.split_once('=').with_context(|| format!("{change}: no value"))?;
        match name {
            "loss" => faults.loss = value.parse()?,
            "duplicate" => faults.duplicate = value.parse()?,
            "reorder" => faults.reorder = value.parse()?,
            "delay" => faults.delay = Duration::from_micros(value.parse()?),
            _ => bail!("no fault is called {name}"),
        }
    }
    Ok(faults)
}

fn switch(word: &str) -> Result<bool> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("{word:?} is neither on nor off"),
    }
}

fn event(kind: &str) -> Result<Event> {
    match kind {
        "fatal" => Ok(Event::FatalError),
        "warning" => Ok(Event::Warning),
        "notification" => Ok(Event::Notification),
        "alive" => Ok(Event::KeepAlive),
        _ => bail!("no event is called {kind}"),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
