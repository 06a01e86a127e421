//! BAR 0: the initialization segment, and after that pages of doorbells.
//!
//! A page of doorbells (UAR) has three: of completion queues, of event queues, and of sends. The last are
//! registers of BlueFlame: a program writes a whole work request there, or its first eight bytes. The device
//! takes the queue pair's number from those, and the rest from the queue.

use std::time::Instant;

use super::Device;
use super::limits;

/// `mlx5_init_seg`: where its words are.
const FIRMWARE: u64 = 0x0;
const INTERFACE: u64 = 0x4;
const QUEUE_HIGH: u64 = 0x10;
const QUEUE_LOW: u64 = 0x14;
const DOORBELL: u64 = 0x18;
const CLOCK_HIGH: u64 = 0x1000;
const CLOCK_LOW: u64 = 0x1004;
const HEALTH: u64 = 0x1010;
/// The device is ready: no bit of `initializing` is set. (The word is at 0x1fc, and reads as zero.)
const HEALTH_TICK: u128 = 100;

/// The firmware's version, 20.99.1: major below minor.
const FIRMWARE_IS: u32 = 99 << 16 | 20;
/// `CMD_IF_REV` above the last part of the firmware's version.
const INTERFACE_IS: u32 = 5 << 16 | 1;

/// `MLX5_CQ_DOORBELL`, `MLX5_EQ_DOORBELL_OFFSET` (arming; the other is eight bytes on) and `MLX5_BF_OFFSET`.
const CQ_DOORBELL: u64 = 0x20;
const EQ_ARM: u64 = 0x40;
const EQ_CONSUMED: u64 = 0x48;
const BLUE_FLAME: u64 = 0x800;
/// Each register of BlueFlame has two halves, which are used in turns.
const HALF: u64 = 1 << (limits::LOG_BLUE_FLAME - 1);

/// What the driver has written.
#[derive(Debug)]
pub(super) struct Registers {
    high: u32,
    low: u32,
    began: Instant,
}

/// `MLX5_INITIAL_SEG_NIC_INTERFACE_DISABLED`, where drivers look for it: a device that gave up.
const DISABLED: u32 = 1 << 8;

impl Registers {
    pub(super) fn new() -> Self {
        Self { high: 0, low: 0, began: Instant::now() }
    }

    /// Where the command queue is.
    pub(super) fn queue(&self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low) & !(limits::PAGE - 1)
    }

    /// Nanoseconds.
    pub(super) fn clock(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Device {
    pub(super) fn load_register(&self, offset: u64, data: &mut [u8]) {
        // Loads are of words; longer ones are of several.
        for (index, bytes) in data.chunks_mut(4).enumerate() {
            let word = self.register(offset + 4 * index as u64);
            for (to, from) in bytes.iter_mut().zip(word.to_be_bytes()) {
                *to = from;
            }
        }
    }

    fn register(&self, offset: u64) -> u32 {
        let clock = self.registers.clock();
        match offset {
            FIRMWARE => FIRMWARE_IS,
            INTERFACE => INTERFACE_IS,
            QUEUE_HIGH => self.registers.high,
            QUEUE_LOW => {
                let sizes = limits::LOG_COMMANDS << 4 | limits::LOG_ENTRY;
                let state = if self.broken { DISABLED } else { 0 };
                self.registers.low & !0xfff | state | sizes
            }
            CLOCK_HIGH => u32::try_from(clock >> 32).unwrap_or(0),
            CLOCK_LOW => u32::try_from(clock & 0xffff_ffff).unwrap_or(0),
            HEALTH if !self.broken => {
                let ticks = self.registers.began.elapsed().as_millis() / HEALTH_TICK;
                u32::try_from(ticks & 0xff_ffff).unwrap_or(0)
            }
            _ => 0,
        }
    }

    pub(super) fn store_register(&mut self, offset: u64, data: &[u8]) {
        let Some(word) = data.first_chunk::<4>().map(|word| u32::from_be_bytes(*word)) else {
            return;
        };
        match offset {
            QUEUE_HIGH => self.registers.high = word,
            QUEUE_LOW => self.registers.low = word,
            DOORBELL => self.commands(word),
            _ => {}
        }
    }

    /// A program, or the kernel, rings a doorbell on a page.
    pub(super) fn doorbell(&mut self, page: u32, offset: u64, data: &[u8]) {
        if !self.uars.has(page) {
            return;
        }
        let Some(first) = data.first_chunk::<4>().map(|word| u32::from_be_bytes(*word)) else {
            return;
        };
        let second = data.get(4..8).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes);
        match (offset, second) {
            (EQ_ARM, _) => self.consumed(page, first, true),
            (EQ_CONSUMED, _) => self.consumed(page, first, false),
            (CQ_DOORBELL, Some(cqn)) => {
                self.counters.doorbells += 1;
                self.arm(page, first, cqn & 0xff_ffff);
            }
            (BLUE_FLAME.., Some(second)) if (offset - BLUE_FLAME).is_multiple_of(HALF) => {
                self.counters.doorbells += 1;
                self.rung(page, second >> 8);
            }
            _ => {}
        }
    }
}
