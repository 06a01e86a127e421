//! The command queue, and the table of its commands.

use zerocopy::FromBytes;
use zerocopy::Immutable;
use zerocopy::KnownLayout;
use zerocopy::Unaligned;

use super::Device;
use super::complete::Completion;
use super::complete::Queue;
use super::layout::BLOCK;
use super::layout::bits64;
use super::registers::COMMAND_CQ;

/// The longest command: eight blocks, as many as its header can say.
const LONGEST: usize = 8 * BLOCK;
/// The header before a command's fields.
const HEADER: usize = 8;

/// Why a command is refused. The driver makes an input/output error of each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Refusal {
    /// There is no such command.
    Unknown = 1,
    /// A value that is none, or memory that cannot be read.
    Malformed = 2,
    /// There is no such object, or there is one already.
    Object = 3,
    /// There are too many of these.
    Full = 4,
}

/// One of the driver's commands.
struct Command {
    /// `CMDQ_WQE_SUB_MOD`, and the opcode in it.
    code: (u8, u8),
    name: &'static str,
    run: fn(&mut Device, &Request) -> Result<[u64; 2], Refusal>,
}

const fn command(
    module: u8,
    opcode: u8,
    name: &'static str,
    run: fn(&mut Device, &Request) -> Result<[u64; 2], Refusal>,
) -> Command {
    Command { code: (module, opcode), name, run }
}

/// Every command: `CMDQ_RDMA_OPCODE` and `CMDQ_COMMON_OPCODE`.
#[rustfmt::skip]
static COMMANDS: &[Command] = &[
    command(0, 0,  "query_device", Device::query_device),
    command(0, 1,  "create_qp",    Device::create_qp),
    command(0, 2,  "destroy_qp",   Device::destroy_qp),
    command(0, 3,  "modify_qp",    Device::modify_qp),
    command(0, 4,  "create_cq",    Device::create_cq),
    command(0, 5,  "destroy_cq",   Device::destroy_cq),
    command(0, 6,  "reflush",      Device::reflush),
    command(0, 8,  "reg_mr",       Device::reg_mr),
    command(0, 9,  "dereg_mr",     Device::dereg_mr),
    command(0, 14, "set_gid",      Device::set_gid),
    command(0, 15, "create_ah",    Device::create_ah),
    command(0, 16, "destroy_ah",   Device::destroy_ah),
    command(0, 17, "query_qp",     Device::query_qp),
    command(1, 0,  "create_eq",    Device::create_eq),
    command(1, 1,  "destroy_eq",   Device::destroy_eq),
    command(1, 2,  "query_fw",     Device::query_firmware),
    command(1, 3,  "conf_mtu",     Device::accept),
    command(1, 4,  "get_stats",    Device::get_stats),
    command(1, 5,  "conf_device",  Device::conf_device),
    command(1, 8,  "alloc_db",     Device::alloc_db),
    command(1, 9,  "free_db",      Device::free_db),
];

/// A command as the driver wrote it; what it did not write is zero.
#[derive(Debug)]
pub(super) struct Request([u8; LONGEST]);

impl Request {
    fn code(&self) -> (u8, u8) {
        let [_, _, opcode, module, ..] = self.0;
        (module & 3, opcode)
    }

    /// What follows the header.
    pub(super) fn body<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
    ) -> Result<T, Refusal> {
        let rest = self.0.get(HEADER..).unwrap_or_default();
        T::read_from_prefix(rest).map(|(body, _)| body).map_err(|_| Refusal::Malformed)
    }
}

impl Device {
    /// Takes all commands up to the doorbell, and answers them.
    pub(super) fn commands(&mut self) {
        let (_, depth) = self.registers.commands();
        let left = self.registers.rung.wrapping_sub(self.registers.taken);
        if self.stalled || depth == 0 || u32::from(left) > depth {
            return;
        }
        while self.registers.taken != self.registers.rung {
            let index = self.registers.taken;
            let Some((request, blocks)) = self.next_command() else {
                log::error!("the command queue is not where the driver said");
                return;
            };
            self.registers.taken = index.wrapping_add(blocks);
            self.counters.commands += 1;
            let result = self.run(&request);
            let status = result.err().map_or(0, |refusal| refusal as u8);
            let done = Completion { index, status, ..Completion::of(Queue::Commands) };
            self.complete(COMMAND_CQ, 0, done, result.unwrap_or_default());
        }
    }

    fn next_command(&self) -> Option<(Request, u16)> {
        let (ring, depth) = self.registers.commands();
        let taken = u32::from(self.registers.taken);
        let head: [u8; BLOCK] = ring.entry(&self.bus, taken, depth)?;
        let (header, _) = head.split_first_chunk::<HEADER>()?;
        // `ERDMA_CMD_HDR_WQEBB_CNT_MASK`: one less than there are.
        let blocks = bits64(u64::from_le_bytes(*header), 52, 3) + 1;
        let mut bytes = [0; LONGEST];
        for (block, into) in (0..blocks).zip(bytes.as_chunks_mut::<BLOCK>().0) {
            *into = ring.entry(&self.bus, taken.wrapping_add(block), depth)?;
        }
        Some((Request(bytes), u16::try_from(blocks).ok()?))
    }

    fn run(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let code = request.code();
        let found = COMMANDS.iter().find(|command| command.code == code);
        let Some(command) = found else {
            log::warn!("the driver asks for {code:?}, which this device does not know");
            return Err(Refusal::Unknown);
        };
        let result = (command.run)(self, request);
        log::debug!("{}: {result:x?}", command.name);
        result
    }

    /// What is taken and changes nothing.
    fn accept(&mut self, _: &Request) -> Result<[u64; 2], Refusal> {
        Ok([0; 2])
    }
}
