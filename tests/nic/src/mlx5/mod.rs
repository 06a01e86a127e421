//! A ConnectX with one InfiniBand port: the model behind the kernel's `mlx5_core` and `mlx5_ib`.
//!
//! | module | is |
//! |---|---|
//! | `registers` | BAR 0: the initialization segment, and pages of doorbells |
//! | `admin` | the command queue with its mailboxes, and the table of commands |
//! | `device` | commands about the device, its port, and numbers |
//! | `create`, `pairs` | commands about queues, keys and queue pairs |
//! | `devx` | commands of objects that programs make by themselves |
//! | `device_memory` | memory on the device |
//! | `steering` | tables of rules for packets |
//! | `objects`, `memory` | what they make |
//! | `request`, `send`, `receive`, `complete` | the data engine: connections and datagrams |
//! | `change` | work requests of the driver's that change keys |
//! | `bits`, `layout`, `limits` | the device's structures; what this device offers |
//!
//! The port is active from the beginning, with a LID that is the device's number on the wire: nobody manages
//! the subnet. Programs find each other by LIDs, as `ibv_rc_pingpong` does.

mod admin;
mod bits;
mod change;
mod complete;
mod count;
mod create;
mod device;
mod device_memory;
mod devx;
mod layout;
mod limits;
mod memory;
mod objects;
mod pairs;
mod receive;
mod registers;
mod request;
mod send;
mod steering;

use std::collections::BTreeMap;
use std::sync::Arc;
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
use crate::wire::Message;
use crate::wire::Port;

use count::Sets;
use device_memory::Memory;
use devx::General;
use devx::Umem;
use limits::FUNCTION_BAR;
use limits::MSIX_BAR;
use memory::Key;
use objects::CompletionQueue;
use objects::EventQueue;
use objects::Numbers;
use objects::QueuePair;
use objects::SharedQueue;
use registers::Registers;
use steering::Steering;

/// A port of InfiniBand goes down, and is active: `MLX5_PORT_CHANGE_SUBTYPE_DOWN` and `_ACTIVE`.
const PORT_DOWN: u8 = 1;
const PORT_ACTIVE: u8 = 4;
/// The vendor's part of a GUID.
const GUID: u64 = 0x0002_c903_0000_0000;

/// A device with one port.
pub struct Mlx5 {
    bus: Arc<Bus>,
    wire: Arc<Wire>,
    identity: Identity,
    device: Mutex<Device>,
    /// Whether the device waits for answers, for who may not lock it.
    waits: AtomicBool,
}

impl std::fmt::Debug for Mlx5 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mlx5").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// What a device knows, behind its lock.
struct Device {
    bus: Arc<Bus>,
    lid: u16,
    guid: u64,
    registers: Registers,
    stalled: bool,
    /// Its health does not change any more.
    broken: bool,
    /// Entries of the command queue that were rung while it was stalled.
    pending: u32,
    issi: u8,
    /// Capabilities that the driver has set, by kind.
    settings: BTreeMap<u32, Vec<u8>>,
    /// Pages that the driver has lent.
    pages: Vec<u64>,
    uars: Numbers,
    pds: Numbers,
    xrcds: Numbers,
    domains: Numbers,
    contexts: Numbers,
    eq_numbers: Numbers,
    cq_numbers: Numbers,
    qp_numbers: Numbers,
    srq_numbers: Numbers,
    key_numbers: Numbers,
    umem_numbers: Numbers,
    general_numbers: Numbers,
    set_numbers: Numbers,
    eqs: BTreeMap<u32, EventQueue>,
    cqs: BTreeMap<u32, CompletionQueue>,
    qps: BTreeMap<u32, QueuePair>,
    srqs: BTreeMap<u32, SharedQueue>,
    keys: BTreeMap<u32, Key>,
    /// Memory that programs have registered for objects which they make by themselves; and objects of
    /// theirs that this device does nothing with but keep them.
    umems: BTreeMap<u32, Umem>,
    generals: BTreeMap<u32, General>,
    /// Counters of queue pairs.
    sets: Sets,
    /// Rates that packets may be paced with.
    rates: BTreeMap<u32, Vec<u8>>,
    memory: Memory,
    steering: Steering,
    outbox: Vec<Message>,
    port_capabilities: u64,
    statistics: Statistics,
    counters: Counters,
}

/// What was sent, and what arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Statistics {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
}

impl Mlx5 {
    /// A device on a wire. Its number is its LID, and the end of its GUID.
    #[must_use]
    pub fn new(wire: &Arc<Wire>, number: u16) -> Arc<Self> {
        let bus = Arc::new(Bus::default());
        let identity = Identity {
            vendor: 0x15b3,
            // A ConnectX-6.
            device: 0x101b,
            class: 0x02_0700,
            bars: vec![
                Bar {
                    index: FUNCTION_BAR,
                    size: limits::FUNCTION_BAR_SIZE,
                    decode: Decode::WidePrefetchable,
                },
                Bar { index: MSIX_BAR, size: limits::MSIX_BAR_SIZE, decode: Decode::Low },
            ],
            msix_bar: MSIX_BAR,
            vectors: limits::VECTORS,
        };
        let model = Arc::new(Self {
            device: Mutex::new(Device::new(Arc::clone(&bus), number)),
            bus,
            wire: Arc::clone(wire),
            identity,
            waits: AtomicBool::new(false),
        });
        let port: Arc<dyn Port> = model.clone();
        wire.plug(objects::address(number), Arc::downgrade(&port));
        model
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
        (result, std::mem::take(&mut device.outbox))
    }
}

impl Function for Mlx5 {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    fn load(&self, bar: u8, offset: u64, data: &mut [u8]) {
        match bar {
            FUNCTION_BAR if offset < limits::VIRTIO_DOORBELLS => {
                self.device.lock().load_register(offset, data);
            }
            FUNCTION_BAR if self.device.lock().memory.load(offset, data).is_some() => {}
            _ => data.fill(0),
        }
    }

    fn store(&self, bar: u8, offset: u64, data: &[u8]) {
        if bar != FUNCTION_BAR {
            return;
        }
        if offset >= limits::VIRTIO_DOORBELLS {
            let memory = &mut self.device.lock().memory;
            let stored = match offset {
                ..limits::INCREMENTS => None,
                limits::INCREMENTS..limits::DEVICE_MEMORY => memory.increment(offset, data),
                _ => memory.store(offset, data),
            };
            if stored.is_none() {
                log::warn!("a program stores at {offset:#x}, which was not given out");
            }
            return;
        }
        let page = u32::try_from(offset / limits::PAGE).unwrap_or(u32::MAX);
        self.with(|device| match page {
            ..limits::FIRST_UAR => device.store_register(offset, data),
            _ => device.doorbell(page, offset % limits::PAGE, data),
        });
    }

    fn reset(&self) {
        self.with(Device::reset);
    }
}

impl Model for Mlx5 {
    fn census(&self) -> Census {
        let device = self.device.lock();
        Census {
            uars: device.uars.len(),
            pds: device.pds.len(),
            ahs: 0,
            mrs: device.keys.len(),
            cqs: device.cqs.len(),
            qps: device.qps.len(),
        }
    }

    fn counters(&self) -> Counters {
        self.device.lock().counters
    }

    fn stall(&self, stall: bool) {
        self.with(|device| {
            device.stalled = stall;
            device.commands(0);
        });
    }

    /// A fatal error stops the counter of the device's health, which the driver watches, and disables the
    /// interface, until the device is reset or said to be alive; a warning takes the port down, a notification
    /// brings it up again.
    fn raise(&self, event: Event) {
        self.with(|device| match event {
            Event::FatalError => device.broken = true,
            Event::Warning => device.port_changed(PORT_DOWN),
            Event::Notification => device.port_changed(PORT_ACTIVE),
            Event::KeepAlive => device.broken = false,
        });
    }
}

impl Port for Mlx5 {
    fn receive(&self, message: Message) -> Vec<Message> {
        self.locked(|device| device.receive(message)).1
    }

    fn tick(&self, now: Instant) -> Vec<Message> {
        self.locked(|device| device.try_again(now)).1
    }

    fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// Nobody is at an address: who waits for an answer sends again.
    fn unreachable(&self, _message: Message) -> Vec<Message> {
        Vec::new()
    }
}

impl Device {
    fn new(bus: Arc<Bus>, lid: u16) -> Self {
        // Numbers of objects begin where no number of another kind is likely to be right by chance.
        let kind = |log: u64, first: u32| Numbers::new(first, (1 << log) - first);
        Self {
            bus,
            lid,
            guid: GUID | u64::from(lid),
            registers: Registers::new(),
            stalled: false,
            broken: false,
            pending: 0,
            issi: 0,
            settings: BTreeMap::new(),
            pages: Vec::new(),
            uars: Numbers::new(limits::FIRST_UAR, limits::UARS),
            pds: kind(limits::LOG_PD, 1),
            xrcds: kind(limits::LOG_PD, 1),
            domains: kind(limits::LOG_PD, 1),
            contexts: kind(8, 1),
            eq_numbers: kind(limits::LOG_EQ, 1),
            cq_numbers: kind(limits::LOG_CQ, 0x400),
            qp_numbers: kind(limits::LOG_QP, 0x80),
            srq_numbers: kind(limits::LOG_SRQ, 0x10),
            key_numbers: kind(limits::LOG_MKEY, 0x100),
            umem_numbers: kind(12, 1),
            general_numbers: kind(12, 1),
            set_numbers: Numbers::new(1, limits::COUNTER_SETS),
            eqs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            srqs: BTreeMap::new(),
            keys: BTreeMap::new(),
            umems: BTreeMap::new(),
            generals: BTreeMap::new(),
            sets: Sets::new(),
            rates: BTreeMap::new(),
            memory: Memory::new(),
            steering: Steering::new(),
            outbox: Vec::new(),
            port_capabilities: device::PORT_CAPABILITIES,
            statistics: Statistics::default(),
            counters: Counters::default(),
        }
    }

    /// All objects are gone; the command queue, pages and what counts stay.
    fn forget(&mut self) {
        let old = std::mem::replace(self, Self::new(Arc::clone(&self.bus), self.lid));
        self.registers = old.registers;
        self.stalled = old.stalled;
        self.broken = old.broken;
        self.issi = old.issi;
        self.pages = old.pages;
        self.statistics = old.statistics;
        self.counters = old.counters;
    }

    /// The machine resets the function.
    fn reset(&mut self) {
        self.forget();
        self.registers = Registers::new();
        self.pages.clear();
        (self.issi, self.broken) = (0, false);
    }
}
