//! BAR 0: registers. Offsets and fields are those of `efa_regs_defs.h`.

use std::collections::BTreeMap;

use super::Device;

pub(super) const VERSION: u64 = 0x00;
pub(super) const CONTROLLER_VERSION: u64 = 0x04;
pub(super) const CAPS: u64 = 0x08;
pub(super) const AQ_BASE_LO: u64 = 0x10;
pub(super) const AQ_CAPS: u64 = 0x18;
pub(super) const ACQ_BASE_LO: u64 = 0x20;
pub(super) const ACQ_CAPS: u64 = 0x28;
pub(super) const AQ_PROD_DB: u64 = 0x2c;
pub(super) const AENQ_CAPS: u64 = 0x34;
pub(super) const AENQ_BASE_LO: u64 = 0x38;
pub(super) const INTR_MASK: u64 = 0x4c;
pub(super) const DEV_CTL: u64 = 0x54;
pub(super) const DEV_STS: u64 = 0x58;
pub(super) const MMIO_REG_READ: u64 = 0x5c;
pub(super) const MMIO_RESP_LO: u64 = 0x60;
pub(super) const EQ_DB: u64 = 0x68;

/// Version 0.1 of the device and 0.0.1 of its controller: the least that the driver takes.
const VERSION_IS: u32 = 0x0001;
const CONTROLLER_VERSION_IS: u32 = 0x0000_0001;
/// A second for a reset (in 100 ms) and 48 bits of DMA addresses. How long a command may take is left to
/// the driver, whose thirty seconds a busy machine needs: the most that could be said is one and a half,
/// and the driver gives the device up after that.
const CAPS_ARE: u32 = 10 << 1 | 48 << 8;
const RESET: u32 = 1;
const READY: u32 = 1;
const RESETTING: u32 = 1 << 3;
const ARM: u32 = 1 << 31;

/// What the driver has written, and how far the admin queues are.
#[derive(Debug, Default)]
pub(super) struct Registers {
    written: BTreeMap<u64, u32>,
    resetting: bool,
    /// Commands that were taken, as a count.
    pub(super) commands: u32,
}

impl Registers {
    /// A register, as a load sees it.
    pub(super) fn get(&self, offset: u64) -> u32 {
        match offset {
            VERSION => VERSION_IS,
            CONTROLLER_VERSION => CONTROLLER_VERSION_IS,
            CAPS => CAPS_ARE,
            DEV_STS if self.resetting => READY | RESETTING,
            DEV_STS => READY,
            _ => self.written.get(&offset).copied().unwrap_or(0),
        }
    }

    /// An address in a register and the one after it.
    pub(super) fn address(&self, low: u64) -> u64 {
        u64::from(self.get(low)) | u64::from(self.get(low + 4)) << 32
    }

    /// The depth in the capabilities of a queue.
    pub(super) fn depth(&self, caps: u64) -> u32 {
        self.get(caps) & 0xffff
    }

    /// The interrupt in the capabilities of a queue.
    pub(super) fn vector(&self, caps: u64) -> usize {
        usize::from(self.get(caps).to_le_bytes()[3])
    }

    /// Whether the driver polls the admin queue instead of waiting for interrupts.
    pub(super) fn polled(&self) -> bool {
        self.get(INTR_MASK) & 1 == 1
    }
}

impl Device {
    pub(super) fn load_register(&mut self, offset: u64, data: &mut [u8]) {
        if data.len() == 4 {
            data.copy_from_slice(&self.registers.get(offset).to_le_bytes());
        }
    }

    pub(super) fn store_register(&mut self, offset: u64, word: u32) {
        match offset {
            DEV_CTL if word & RESET != 0 => {
                self.reset();
                self.registers.resetting = true;
            }
            DEV_CTL => self.registers.resetting = false,
            MMIO_REG_READ => self.answer_read(word),
            EQ_DB if word & ARM != 0 => self.arm_events(word),
            _ => {
                self.registers.written.insert(offset, word);
                if offset == AQ_PROD_DB {
                    self.commands();
                }
            }
        }
    }

    /// The driver reads registers without loads: it writes which, and the value comes by DMA, before
    /// the number of the request (`efa_admin_mmio_req_read_less_resp`).
    fn answer_read(&mut self, request: u32) {
        let [id_low, id_high, offset_low, offset_high] = request.to_le_bytes();
        let offset = u16::from_le_bytes([offset_low, offset_high]);
        let value = self.registers.get(u64::from(offset));
        let to = self.registers.address(MMIO_RESP_LO);
        let head = u32::from_le_bytes([id_low, id_high, offset_low, offset_high]);
        let written = self.bus.write(to.wrapping_add(4), &value.to_le_bytes());
        if let Err(error) = written.and_then(|()| self.bus.publish(to, head)) {
            log::warn!("a register cannot be read: {error}");
        }
    }
}
