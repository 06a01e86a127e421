//! The admin queue, and the table of its commands.

use zerocopy::FromBytes;
use zerocopy::Immutable;
use zerocopy::IntoBytes;
use zerocopy::KnownLayout;
use zerocopy::Unaligned;

use super::Device;
use super::layout::ADMIN_ENTRY;
use super::layout::AENQ_ENTRY;
use super::layout::AcqCommon;
use super::layout::AenqEntry;
use super::layout::AqCommon;
use super::layout::Status;
use super::memory::Listed;
use super::registers;
use crate::Event;
use crate::ring::place;
use crate::ring::publish;

/// One of the driver's commands.
struct Command {
    opcode: u8,
    name: &'static str,
    run: fn(&mut Device, &Request) -> Result<Response, Status>,
}

const fn command(
    opcode: u8,
    name: &'static str,
    run: fn(&mut Device, &Request) -> Result<Response, Status>,
) -> Command {
    Command { opcode, name, run }
}

/// Every command: `efa_admin_aq_opcode`.
#[rustfmt::skip]
static COMMANDS: &[Command] = &[
    command(1,  "create_qp",   Device::create_qp),
    command(2,  "modify_qp",   Device::modify_qp),
    command(3,  "query_qp",    Device::query_qp),
    command(4,  "destroy_qp",  Device::destroy_qp),
    command(5,  "create_ah",   Device::create_ah),
    command(6,  "destroy_ah",  Device::destroy_ah),
    command(7,  "reg_mr",      Device::reg_mr),
    command(8,  "dereg_mr",    Device::dereg_mr),
    command(9,  "create_cq",   Device::create_cq),
    command(10, "destroy_cq",  Device::destroy_cq),
    command(11, "get_feature", Device::get_feature),
    command(12, "set_feature", Device::set_feature),
    command(13, "get_stats",   Device::get_stats),
    command(14, "alloc_pd",    Device::alloc_pd),
    command(15, "dealloc_pd",  Device::dealloc_pd),
    command(16, "alloc_uar",   Device::alloc_uar),
    command(17, "dealloc_uar", Device::dealloc_uar),
    command(18, "create_eq",   Device::create_eq),
    command(19, "destroy_eq",  Device::destroy_eq),
    command(20, "alloc_mr",    Device::alloc_mr),
];

/// `efa_admin_aq_common_desc.flags`.
const CONTROL_BUFFER: u8 = 1 << 1;
const CONTROL_BUFFER_INDIRECT: u8 = 1 << 2;
/// `efa_admin_aq_common_desc.command_id`: its bits.
const COMMAND_ID: u16 = 0xfff;

/// An entry of the admin queue.
#[derive(Debug)]
pub(super) struct Request {
    common: AqCommon,
    bytes: [u8; ADMIN_ENTRY],
}

impl Request {
    fn new(bytes: [u8; ADMIN_ENTRY]) -> Option<Self> {
        let (common, _) = AqCommon::read_from_prefix(&bytes).ok()?;
        Some(Self { common, bytes })
    }

    /// What follows the common descriptor.
    pub(super) fn body<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
    ) -> Result<T, Status> {
        let rest = self.bytes.get(size_of::<AqCommon>()..).unwrap_or_default();
        T::read_from_prefix(rest).map(|(body, _)| body).map_err(|_| Status::MalformedRequest)
    }

    /// How the command gives its buffer.
    pub(super) fn listed(&self) -> Listed {
        match (
            self.common.flags & CONTROL_BUFFER != 0,
            self.common.flags & CONTROL_BUFFER_INDIRECT != 0,
        ) {
            (false, _) => Listed::Inline,
            (true, false) => Listed::Direct,
            (true, true) => Listed::Indirect,
        }
    }
}

/// What follows the common descriptor of a completion.
#[derive(Debug)]
pub(super) struct Response([u8; ADMIN_ENTRY - size_of::<AcqCommon>()]);

impl Response {
    /// Nothing.
    pub(super) const EMPTY: Self = Self([0; ADMIN_ENTRY - size_of::<AcqCommon>()]);

    pub(super) fn of<T: IntoBytes + Immutable>(body: &T) -> Self {
        let mut response = Self::EMPTY;
        for (to, from) in response.0.iter_mut().zip(body.as_bytes()) {
            *to = *from;
        }
        response
    }
}

impl Device {
    /// Takes all commands up to the doorbell, and answers them.
    pub(super) fn commands(&mut self) {
        let depth = self.registers.depth(registers::AQ_CAPS);
        let end = self.registers.get(registers::AQ_PROD_DB);
        if self.stalled || depth == 0 || end.wrapping_sub(self.registers.commands) > depth {
            return;
        }
        let before = self.registers.commands;
        while self.registers.commands != end {
            if let Err(error) = self.command(depth) {
                log::error!("the admin queue is not where the driver said: {error}");
                return;
            }
        }
        if before != end && !self.registers.polled() {
            self.bus.interrupt(self.registers.vector(registers::ACQ_CAPS));
        }
    }

    fn command(&mut self, depth: u32) -> Result<(), crate::bus::Abort> {
        let taken = self.registers.commands;
        let (from, _) =
            place(self.registers.address(registers::AQ_BASE_LO), taken, depth, ADMIN_ENTRY);
        let mut bytes = [0; ADMIN_ENTRY];
        self.bus.read(from, &mut bytes)?;
        let Some(request) = Request::new(bytes) else { return Ok(()) };
        self.registers.commands = taken.wrapping_add(1);
        self.counters.commands += 1;
        let result = self.execute(&request);

        let depth = self.registers.depth(registers::ACQ_CAPS).max(1);
        let base = self.registers.address(registers::ACQ_BASE_LO);
        let (to, phase) = place(base, taken, depth, ADMIN_ENTRY);
        let [low, high, ..] = self.registers.commands.to_le_bytes();
        let common = AcqCommon {
            command: (request.common.command_id.get() & COMMAND_ID).into(),
            status: result.as_ref().map_or_else(|status| *status as u8, |_| 0),
            flags: phase,
            extended_status: 0.into(),
            sq_head_indx: u16::from_le_bytes([low, high]).into(),
        };
        let body = result.unwrap_or(Response::EMPTY);
        self.bus.write(to.wrapping_add(size_of::<AcqCommon>() as u64), &body.0)?;
        publish(&self.bus, to, common.as_bytes())
    }

    fn execute(&mut self, request: &Request) -> Result<Response, Status> {
        let opcode = request.common.opcode;
        let known = COMMANDS.iter().find(|command| command.opcode == opcode);
        let Some(known) = known else {
            log::warn!("the driver has a command that this device has not: {opcode}");
            return Err(Status::BadOpcode);
        };
        let result = (known.run)(self, request);
        log::debug!("{}: {:?}", known.name, result.as_ref().err());
        result
    }

    /// Writes an event into the queue of asynchronous events.
    pub(super) fn raise(&mut self, event: Event) {
        let depth = self.registers.depth(registers::AENQ_CAPS);
        if depth == 0 || self.enabled_events & (1 << (event as u32)) == 0 {
            return;
        }
        let base = self.registers.address(registers::AENQ_BASE_LO);
        let (to, phase) = place(base, self.events, depth, AENQ_ENTRY);
        self.events = self.events.wrapping_add(1);
        let entry = AenqEntry {
            group: (event as u16).into(),
            syndrom: 0.into(),
            flags: phase,
            reserved: [0; 3],
            timestamp_low: 0.into(),
            timestamp_high: 0.into(),
        };
        let Some((group, flags)) = entry.as_bytes().split_first_chunk::<4>() else { return };
        let Some((flags, _)) = flags.split_first_chunk::<4>() else { return };
        let told = self.bus.write(to, group);
        let flags = u32::from_le_bytes(*flags);
        match told.and_then(|()| self.bus.publish(to.wrapping_add(4), flags)) {
            Ok(()) => self.bus.interrupt(self.registers.vector(registers::AENQ_CAPS)),
            Err(error) => log::warn!("an event is lost: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_the_drivers() {
        let opcodes: Vec<u8> = COMMANDS.iter().map(|command| command.opcode).collect();
        assert_eq!(opcodes, (1..=20).collect::<Vec<u8>>());
    }
}
