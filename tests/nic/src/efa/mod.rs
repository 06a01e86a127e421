//! An Elastic Fabric Adapter: the model behind the kernel's `efa` driver.
//!
//! | module | is |
//! |---|---|
//! | `registers` | BAR 0: reset, the addresses of the admin queues, reads by DMA |
//! | `admin` | the admin queue, and the table of its commands |
//! | `commands`, `features` | what each does |
//! | `objects`, `memory` | what they make |
//! | `send`, `receive`, `complete` | the data engine: SRD and UD, RDMA read and write |
//! | `layout`, `limits` | the driver's structures; what this device offers |
//!
//! The scalable reliable datagram is reliable and unordered: a message is sent again until it is
//! answered, and is executed once however often it arrives. A datagram is sent once.

mod admin;
mod commands;
mod complete;
mod features;
mod layout;
mod limits;
mod memory;
mod objects;
mod receive;
mod registers;
mod send;

use std::collections::BTreeMap;
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

use features::Statistics;
use limits::DOORBELL_BAR;
use limits::REGISTER_BAR;
use limits::RING_BAR;
use objects::AddressHandle;
use objects::CompletionQueue;
use objects::EventQueue;
use objects::QueuePair;
use objects::Regions;
use objects::Slots;
use registers::Registers;
use send::Pending;

/// A device with one port.
pub struct Efa {
    bus: Arc<Bus>,
    wire: Arc<Wire>,
    identity: Identity,
    device: Mutex<Device>,
    /// Whether the device waits for answers, for who may not lock it.
    waits: AtomicBool,
}

impl std::fmt::Debug for Efa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Efa").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// What a device knows, behind its lock.
struct Device {
    bus: Arc<Bus>,
    address: Address,
    registers: Registers,
    stalled: bool,
    uars: Slots<()>,
    pds: Slots<()>,
    ahs: Slots<AddressHandle>,
    cqs: Slots<CompletionQueue>,
    eqs: Slots<EventQueue>,
    qps: Slots<QueuePair>,
    /// How often queue pairs were made: their numbers' upper bits.
    generation: u8,
    regions: Regions,
    pending: BTreeMap<u64, Pending>,
    /// Numbers messages, over resets too: an old answer must not fit a new message.
    next_id: u64,
    outbox: Vec<Message>,
    statistics: Statistics,
    counters: Counters,
    enabled_events: u32,
    events: u32,
}

impl Efa {
    /// A device on a wire. The number makes its address (`fe80::200:0:0:NUMBER`) and its GUID.
    #[must_use]
    pub fn new(wire: &Arc<Wire>, number: u16) -> Arc<Self> {
        let mut gid = [0; 16];
        [gid[0], gid[1], gid[8]] = [0xfe, 0x80, 2];
        [gid[14], gid[15]] = number.to_be_bytes();
        let address = Address(gid);
        let bus = Arc::new(Bus::default());
        let bars = limits::BAR_SIZES.map(|(index, size)| {
            let decode = match index {
                RING_BAR => Decode::WidePrefetchable,
                DOORBELL_BAR => Decode::Wide,
                _ => Decode::Low,
            };
            Bar { index, size, decode }
        });
        let identity = Identity {
            vendor: 0x1d0f,
            device: 0xefa1,
            class: 0x02_0000,
            bars: bars.to_vec(),
            msix_bar: limits::MSIX_BAR,
            vectors: limits::MAX_EQ + 1,
        };
        let efa = Arc::new(Self {
            device: Mutex::new(Device::new(Arc::clone(&bus), address)),
            bus,
            wire: Arc::clone(wire),
            identity,
            waits: AtomicBool::new(false),
        });
        let port: Weak<Self> = Arc::downgrade(&efa);
        wire.plug(address, port);
        efa
    }

    /// The port's address, which is its GID.
    #[must_use]
    pub fn address(&self) -> Address {
        self.device.lock().address
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
        self.waits.store(!device.pending.is_empty(), Ordering::Release);
        (result, std::mem::take(&mut device.outbox))
    }
}

impl Function for Efa {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    fn load(&self, bar: u8, offset: u64, data: &mut [u8]) {
        self.with(|device| match bar {
            REGISTER_BAR => device.load_register(offset, data),
            RING_BAR => device.load_ring(offset, data),
            _ => {}
        });
    }

    fn store(&self, bar: u8, offset: u64, data: &[u8]) {
        self.with(|device| match (bar, <[u8; 4]>::try_from(data).map(u32::from_le_bytes)) {
            (REGISTER_BAR, Ok(word)) => device.store_register(offset, word),
            (RING_BAR, _) => device.store_ring(offset, data),
            (DOORBELL_BAR, Ok(word)) => device.doorbell(offset, word),
            _ => {}
        });
    }

    fn reset(&self) {
        self.with(Device::reset);
    }
}

impl Model for Efa {
    fn census(&self) -> Census {
        let device = self.device.lock();
        Census {
            uars: device.uars.len(),
            pds: device.pds.len(),
            ahs: device.ahs.len(),
            mrs: device.regions.len(),
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
            device.commands();
        });
    }

    fn raise(&self, event: Event) {
        self.with(|device| device.raise(event));
    }
}

impl Port for Efa {
    fn receive(&self, message: Message) -> Vec<Message> {
        self.locked(|device| device.receive(message)).1
    }

    fn tick(&self, now: Instant) -> Vec<Message> {
        self.locked(|device| device.try_again(now)).1
    }

    fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    fn unreachable(&self, message: Message) -> Vec<Message> {
        self.locked(|device| device.nobody_at(&message)).1
    }
}

impl Device {
    fn new(bus: Arc<Bus>, address: Address) -> Self {
        Self {
            bus,
            address,
            registers: Registers::default(),
            stalled: false,
            uars: Slots::new(limits::MAX_UAR),
            pds: Slots::new(limits::MAX_PD),
            ahs: Slots::new(limits::MAX_AH),
            cqs: Slots::new(limits::MAX_CQ),
            eqs: Slots::new(limits::MAX_EQ),
            qps: Slots::new(limits::MAX_QP),
            generation: 0,
            regions: Regions::default(),
            pending: BTreeMap::new(),
            next_id: 0,
            outbox: Vec::new(),
            statistics: Statistics::default(),
            counters: Counters::default(),
            enabled_events: 0,
            events: 0,
        }
    }

    /// All objects and addresses are gone; what counts goes on.
    fn reset(&mut self) {
        let fresh = Self::new(Arc::clone(&self.bus), self.address);
        let old = std::mem::replace(self, fresh);
        self.counters = old.counters;
        self.next_id = old.next_id;
        self.generation = old.generation;
    }

    /// A queue pair by the number that programs know; none if that is of an older one.
    fn pair(&mut self, number: u16) -> Option<&mut QueuePair> {
        self.qps.get_mut(slot(number)).filter(|pair| pair.number == number)
    }
}

/// The slot in a queue pair's number.
fn slot(number: u16) -> u16 {
    number & 0xff
}
