//! An Elastic RDMA Adapter: the model behind the kernel's `erdma` driver.
//!
//! | module | is |
//! |---|---|
//! | `registers` | BAR 0: reset, where the command queue is, doorbells |
//! | `admin` | the command queue, and the table of its commands |
//! | `commands`, `create` | what each does |
//! | `objects` | what they make |
//! | `request`, `send`, `receive`, `complete` | the data engine: reliable connections and datagrams |
//! | `layout`, `limits` | the driver's structures; what this device offers |
//!
//! The driver finds the network interface of the same MAC address and takes the device's state and its
//! GIDs from that. Queues are memory of the program's: the program names them by address when it makes
//! a queue pair or a completion queue (`erdma-abi.h`), and the driver pins them and tells the device of
//! their pages.

mod admin;
mod commands;
mod complete;
mod create;
mod layout;
mod limits;
mod objects;
mod receive;
mod registers;
mod request;
mod send;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;

use crate::Bus;
use crate::Census;
use crate::Counters;
use crate::Event;
use crate::Function;
use crate::Model;
use crate::Wire;
use crate::pci::Bar;
use crate::pci::Decode;
use crate::pci::Identity;
use crate::wire::Address;
use crate::wire::Message;
use crate::wire::Port;

use complete::Trouble;
use limits::FUNCTION_BAR;
use limits::MSIX_BAR;
use objects::AddressHandle;
use objects::CompletionQueue;
use objects::EventQueue;
use objects::Kind;
use objects::Mapped;
use objects::QueuePair;
use registers::Registers;

/// What a device speaks. Drivers before Linux 6.14 know streams of TCP (iWARP) alone, and do not ask.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// Connections that the kernel's connection manager makes by TCP, and that the device then takes over.
    Tcp,
    /// RoCE v2: GIDs, connections that programs make as they like, datagrams.
    Roce,
}

/// A device with one port.
pub struct Erdma {
    bus: Arc<Bus>,
    wire: Arc<Wire>,
    identity: Identity,
    device: Mutex<Device>,
    /// Whether the device waits for answers, for who may not lock it.
    waits: AtomicBool,
    me: Weak<Self>,
}

impl std::fmt::Debug for Erdma {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Erdma").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// What was sent, and what arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Statistics {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
}

/// A change of where the device is on the wire.
#[derive(Clone, Copy, Debug)]
enum Plug {
    In(Address),
    Out(Address),
}

/// What a device knows, behind its lock.
struct Device {
    bus: Arc<Bus>,
    protocol: Protocol,
    mac: [u8; 6],
    registers: Registers,
    stalled: bool,
    eqs: BTreeMap<u8, EventQueue>,
    cqs: BTreeMap<u32, CompletionQueue>,
    qps: BTreeMap<u32, QueuePair>,
    regions: BTreeMap<u32, Mapped>,
    ahs: BTreeMap<u32, AddressHandle>,
    gids: BTreeMap<u16, Address>,
    /// Which queue pair has the stream of an address.
    streams: BTreeMap<Address, u32>,
    /// Contexts that have pages of doorbells.
    contexts: BTreeSet<u16>,
    outbox: Vec<Message>,
    plugs: Vec<Plug>,
    statistics: Statistics,
    counters: Counters,
}

impl Erdma {
    /// A device on a wire, beside the network interface of this MAC address.
    #[must_use]
    pub fn new(wire: &Arc<Wire>, mac: [u8; 6], protocol: Protocol) -> Arc<Self> {
        let bus = Arc::new(Bus::default());
        let bar = |index, size| Bar { index, size, decode: Decode::Low };
        let identity = Identity {
            vendor: 0x1ded,
            device: 0x107f,
            class: 0x02_0000,
            bars: vec![
                bar(FUNCTION_BAR, limits::FUNCTION_BAR_SIZE),
                bar(MSIX_BAR, limits::MSIX_BAR_SIZE),
            ],
            msix_bar: MSIX_BAR,
            vectors: limits::VECTORS,
        };
        Arc::new_cyclic(|me| Self {
            device: Mutex::new(Device::new(Arc::clone(&bus), mac, protocol)),
            bus,
            wire: Arc::clone(wire),
            identity,
            waits: AtomicBool::new(false),
            me: Weak::clone(me),
        })
    }

    /// Does something to the device, and sends what follows from it once the lock is free.
    fn with<T>(&self, work: impl FnOnce(&mut Device) -> T) -> T {
        let (result, messages) = self.locked(work);
        if !messages.is_empty() {
            self.wire.send(messages);
        }
        result
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Device) -> T) -> (T, Vec<Message>) {
        let mut device = self.device.lock();
        let result = work(&mut device);
        self.waits.store(device.qps.values().any(|pair| pair.again.is_some()), Ordering::Release);
        let messages = std::mem::take(&mut device.outbox);
        // With the lock, so that changes of one address stay in order. The wire does not call with its own.
        for plug in std::mem::take(&mut device.plugs) {
            match plug {
                Plug::In(address) => {
                    let port: Weak<Self> = Weak::clone(&self.me);
                    self.wire.plug(address, port);
                }
                Plug::Out(address) => self.wire.unplug(address),
            }
        }
        drop(device);
        (result, messages)
    }
}

impl Function for Erdma {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    fn load(&self, bar: u8, offset: u64, data: &mut [u8]) {
        if bar == FUNCTION_BAR {
            self.device.lock().load_register(offset, data);
        }
    }

    fn store(&self, bar: u8, offset: u64, data: &[u8]) {
        if bar != FUNCTION_BAR {
            return;
        }
        self.with(|device| match (offset / limits::PAGE, <[u8; 8]>::try_from(data)) {
            (0, _) => device.store_register(offset, data),
            (page, Ok(word)) => device.doorbell(page, u64::from_le_bytes(word)),
            _ => {}
        });
    }

    fn reset(&self) {
        self.with(Device::reset);
    }
}

impl Model for Erdma {
    /// The driver keeps protection domains to itself, and has what it makes for its own use in these counts.
    fn census(&self) -> Census {
        let device = self.device.lock();
        Census {
            uars: device.contexts.len(),
            pds: 0,
            ahs: device.ahs.len(),
            mrs: device.regions.len(),
            cqs: device.cqs.len().saturating_sub(1),
            qps: device.qps.len(),
        }
    }

    fn counters(&self) -> Counters {
        self.device.lock().counters
    }

    fn stall(&self, stall: bool) {
        self.with(|device| {
            device.stalled = stall;
            device.commands();
        });
    }

    /// The driver knows one: each connection is broken.
    fn raise(&self, event: Event) {
        if event != Event::FatalError {
            return;
        }
        self.with(|device| {
            let connected = device.qps.iter().filter(|(_, pair)| pair.kind == Kind::Connected);
            let broken: Vec<u32> = connected.map(|(qpn, _)| *qpn).collect();
            for qpn in broken {
                device.fail(qpn);
                device.trouble(qpn, Trouble::Fatal);
            }
        });
    }
}

impl Port for Erdma {
    fn receive(&self, message: Message) -> Vec<Message> {
        self.locked(|device| device.receive(message)).1
    }

    fn tick(&self, now: Instant) -> Vec<Message> {
        self.locked(|device| device.try_again(now)).1
    }

    fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// Nobody is at an address yet, or any more: who waits for an answer sends again.
    fn unreachable(&self, _message: Message) -> Vec<Message> {
        Vec::new()
    }
}

impl Device {
    fn new(bus: Arc<Bus>, mac: [u8; 6], protocol: Protocol) -> Self {
        Self {
            bus,
            protocol,
            mac,
            registers: Registers::default(),
            stalled: false,
            eqs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            regions: BTreeMap::new(),
            ahs: BTreeMap::new(),
            gids: BTreeMap::new(),
            streams: BTreeMap::new(),
            contexts: BTreeSet::new(),
            outbox: Vec::new(),
            plugs: Vec::new(),
            statistics: Statistics::default(),
            counters: Counters::default(),
        }
    }

    /// All objects and addresses are gone; what counts goes on.
    fn reset(&mut self) {
        let fresh = Self::new(Arc::clone(&self.bus), self.mac, self.protocol);
        let old = std::mem::replace(self, fresh);
        self.counters = old.counters;
        self.stalled = old.stalled;
        let addresses = old.gids.into_values().chain(old.streams.into_keys());
        self.plugs.extend(old.plugs);
        self.plugs.extend(addresses.map(Plug::Out));
    }
}
