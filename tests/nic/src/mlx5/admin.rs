//! The command queue: entries of 64 bytes, mailboxes that hold what an entry does not, and the table of
//! commands.

use super::Device;
use super::bits::Field;
use super::layout::command;
use super::limits;

/// `mlx5_cmd_layout`: where its parts are.
const ENTRY: usize = 64;
const INPUT_LENGTH: Field = Field::new(4 * 8, 32);
const INPUT_MAILBOX: Field = Field::new(8 * 8, 64);
const INPUT: usize = 16;
const OUTPUT: usize = 32;
const OUTPUT_MAILBOX: Field = Field::new(48 * 8, 64);
const OUTPUT_LENGTH: Field = Field::new(56 * 8, 32);
const TOKEN: usize = 60;
const STATUS_OWNER: usize = 63;
/// What an entry holds itself of a command, and of an answer.
const INLINE: usize = 16;
/// `MLX5_PCI_CMD_XPORT`.
const TRANSPORT: u8 = 7;
/// `mlx5_cmd_prot_block`: data, and after that a pointer to the next, a number and a token.
const BLOCK: usize = 576;
const BLOCK_DATA: usize = 512;
const BLOCK_NEXT: Field = Field::new(560 * 8, 64);
const BLOCK_NUMBER: Field = Field::new(568 * 8, 32);
const BLOCK_TOKEN: usize = 573;
/// The entry is the device's.
const OWNER: u8 = 1;

/// Why a command could not be read: `MLX5_CMD_DELIVERY_STAT_TOK_ERR` and others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Undelivered {
    Token = 0x2,
    BlockNumber = 0x3,
    Descriptor = 0x10,
    InputLength = 0x6,
}

/// Why a command is refused: `MLX5_CMD_STAT_BAD_OP_ERR` and others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Refusal {
    /// There is no such command.
    Unknown = 0x2,
    /// A value that is none.
    Parameter = 0x3,
    /// There is no such object.
    Object = 0x5,
    /// The object is in use.
    Busy = 0x6,
    /// There are too many of these.
    Limit = 0x8,
    /// Not in this state of a queue pair.
    State = 0x10,
    /// The command is too short.
    Length = 0x50,
}

/// What a command answers: the bytes after the status, from the ninth on.
pub(super) type Answer = Result<Reply, Refusal>;

/// An answer. What is not set is zero.
#[derive(Debug)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    /// Nothing but that all is well.
    pub(super) fn done() -> Answer {
        Ok(Self(vec![0; INLINE]))
    }

    /// The number of what was made.
    pub(super) fn number(number: u32) -> Answer {
        Self::sized(INLINE).with(command::NUMBER, number.into()).ok()
    }

    /// So many bytes, those of the status included.
    pub(super) fn sized(bytes: usize) -> Self {
        Self(vec![0; bytes.max(INLINE)])
    }

    /// With a field that counts from the beginning of the answer.
    pub(super) fn with(mut self, field: Field, value: u64) -> Self {
        field.set(&mut self.0, value);
        self
    }

    /// With bytes at a place that counts from the beginning, which grows the answer if needed.
    pub(super) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        let end = at + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        if let Some(to) = self.0.get_mut(at..end) {
            to.copy_from_slice(bytes);
        }
        self
    }

    pub(super) fn ok(self) -> Answer {
        Ok(self)
    }
}

/// A command as the driver wrote it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    /// How long the answer may be.
    pub(super) room: usize,
}

impl Request {
    pub(super) fn get(&self, field: Field) -> u64 {
        field.get(&self.bytes)
    }

    pub(super) fn word(&self, field: Field) -> u32 {
        field.word(&self.bytes)
    }

    /// Which object is meant.
    pub(super) fn number(&self) -> u32 {
        self.word(command::NUMBER)
    }

    pub(super) fn op_mod(&self) -> u32 {
        self.word(command::OP_MOD)
    }

    /// A structure in it, by the bits where it begins and ends.
    pub(super) fn part(&self, from: usize, until: usize) -> Result<&[u8], Refusal> {
        self.bytes.get(from / 8..until / 8).ok_or(Refusal::Length)
    }

    /// So many addresses of eight bytes, from this bit on.
    pub(super) fn addresses(&self, from: usize, count: usize) -> Result<Vec<u64>, Refusal> {
        let end = count.checked_mul(64).and_then(|bits| from.checked_add(bits));
        let bytes = self.part(from, end.ok_or(Refusal::Length)?)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word)).collect())
    }
}

/// One of the driver's commands.
struct Command {
    opcode: u32,
    name: &'static str,
    run: fn(&mut Device, &Request) -> Answer,
}

const fn command(
    opcode: u32,
    name: &'static str,
    run: fn(&mut Device, &Request) -> Answer,
) -> Command {
    Command { opcode, name, run }
}

/// Every command: `MLX5_CMD_OP_*`.
#[rustfmt::skip]
static COMMANDS: &[Command] = &[
    command(0x100, "query_hca_cap",            Device::query_hca_cap),
    command(0x101, "query_adapter",            Device::query_adapter),
    command(0x102, "init_hca",                 Device::accept),
    command(0x103, "teardown_hca",             Device::teardown_hca),
    command(0x104, "enable_hca",               Device::enable_hca),
    command(0x105, "disable_hca",              Device::accept),
    command(0x107, "query_pages",              Device::query_pages),
    command(0x108, "manage_pages",             Device::manage_pages),
    command(0x109, "set_hca_cap",              Device::set_hca_cap),
    command(0x10a, "query_issi",               Device::query_issi),
    command(0x10b, "set_issi",                 Device::set_issi),
    command(0x200, "create_mkey",              Device::create_mkey),
    command(0x201, "query_mkey",               Device::query_mkey),
    command(0x202, "destroy_mkey",             Device::destroy_mkey),
    command(0x203, "query_special_contexts",   Device::query_special_contexts),
    command(0x205, "alloc_memic",              Device::alloc_memic),
    command(0x206, "dealloc_memic",            Device::dealloc_memic),
    command(0x207, "modify_memic",             Device::modify_memic),
    command(0x301, "create_eq",                Device::create_eq),
    command(0x302, "destroy_eq",               Device::destroy_eq),
    command(0x400, "create_cq",                Device::create_cq),
    command(0x401, "destroy_cq",               Device::destroy_cq),
    command(0x402, "query_cq",                 Device::query_cq),
    command(0x403, "modify_cq",                Device::modify_cq),
    command(0x500, "create_qp",                Device::create_qp),
    command(0x501, "destroy_qp",               Device::destroy_qp),
    command(0x502, "rst2init_qp",              Device::modify_qp),
    command(0x503, "init2rtr_qp",              Device::modify_qp),
    command(0x504, "rtr2rts_qp",               Device::modify_qp),
    command(0x505, "rts2rts_qp",               Device::modify_qp),
    command(0x507, "2err_qp",                  Device::modify_qp),
    command(0x50a, "2rst_qp",                  Device::modify_qp),
    command(0x50b, "query_qp",                 Device::query_qp),
    command(0x50e, "init2init_qp",             Device::modify_qp),
    command(0x703, "arm_rq",                   Device::arm_srq),
    command(0x705, "create_xrc_srq",           Device::create_xrc_srq),
    command(0x706, "destroy_xrc_srq",          Device::destroy_srq),
    command(0x707, "query_xrc_srq",            Device::query_xrc_srq),
    command(0x708, "arm_xrc_srq",              Device::arm_srq),
    command(0x762, "query_hca_vport_context",  Device::query_port),
    command(0x763, "modify_hca_vport_context", Device::modify_port),
    command(0x764, "query_hca_vport_gid",      Device::query_gid),
    command(0x765, "query_hca_vport_pkey",     Device::query_pkey),
    command(0x771, "alloc_q_counter",          Device::alloc_q_counter),
    command(0x772, "dealloc_q_counter",        Device::dealloc_q_counter),
    command(0x773, "query_q_counter",          Device::query_q_counter),
    command(0x770, "query_vport_counter",      Device::query_port_counter),
    command(0x780, "set_pp_rate_limit",        Device::set_rate),
    command(0x800, "alloc_pd",                 Device::alloc_pd),
    command(0x801, "dealloc_pd",               Device::dealloc_pd),
    command(0x802, "alloc_uar",                Device::alloc_uar),
    command(0x803, "dealloc_uar",              Device::dealloc_uar),
    command(0x805, "access_reg",               Device::access_reg),
    command(0x80d, "nop",                      Device::accept),
    command(0x80e, "alloc_xrcd",               Device::alloc_xrcd),
    command(0x80f, "dealloc_xrcd",             Device::dealloc_xrcd),
    command(0x816, "alloc_transport_domain",   Device::alloc_domain),
    command(0x817, "dealloc_transport_domain", Device::dealloc_domain),
    command(0x90c, "create_rmp",               Device::create_rmp),
    command(0x90d, "modify_rmp",               Device::modify_rmp),
    command(0x90e, "destroy_rmp",              Device::destroy_srq),
    command(0x90f, "query_rmp",                Device::query_rmp),
    command(0x930, "create_flow_table",        Device::create_flow_table),
    command(0x931, "destroy_flow_table",       Device::destroy_flow_table),
    command(0x933, "create_flow_group",        Device::create_flow_group),
    command(0x934, "destroy_flow_group",       Device::destroy_flow_group),
    command(0x936, "set_flow_table_entry",     Device::set_flow_rule),
    command(0x938, "delete_flow_table_entry",  Device::delete_flow_rule),
    command(0x939, "alloc_flow_counter",       Device::alloc_flow_counter),
    command(0x93a, "dealloc_flow_counter",     Device::dealloc_flow_counter),
    command(0x93b, "query_flow_counter",       Device::query_flow_counter),
    command(0x93c, "modify_flow_table",        Device::modify_flow_table),
    command(0x940, "alloc_modify_header",      Device::alloc_modify_header),
    command(0x941, "dealloc_modify_header",    Device::dealloc_modify_header),
    command(0xa00, "create_general_object",    Device::create_general),
    command(0xa02, "query_general_object",     Device::query_general),
    command(0xa03, "destroy_general_object",   Device::destroy_general),
    command(0xa04, "create_uctx",              Device::create_uctx),
    command(0xa06, "destroy_uctx",             Device::destroy_uctx),
    command(0xa08, "create_umem",              Device::create_umem),
    command(0xa0a, "destroy_umem",             Device::destroy_umem),
];

impl Device {
    /// The driver rings for these entries of the queue.
    pub(super) fn commands(&mut self, rung: u32) {
        self.pending |= rung;
        if self.stalled {
            return;
        }
        let rung = std::mem::take(&mut self.pending);
        // Who makes the queue for such events waits for that command otherwise.
        let tells = self.tells_of_commands();
        let mut done = 0;
        for index in (0..1u32 << limits::LOG_COMMANDS).filter(|index| rung >> index & 1 == 1) {
            let at = self.registers.queue() + (u64::from(index) << limits::LOG_ENTRY);
            if self.serve(at).is_none() {
                log::error!("the command queue is not where the driver said");
                continue;
            }
            self.counters.commands += 1;
            done |= 1u32 << index;
        }
        if tells && done != 0 {
            self.commands_done(done);
        }
    }

    /// Serves one entry.
    fn serve(&mut self, at: u64) -> Option<()> {
        let mut entry = [0; ENTRY];
        self.bus.read(at, &mut entry).ok()?;
        let (status, reply) = match self.read_command(&entry) {
            Ok(request) => (0, self.run(&request)),
            Err(undelivered) => (undelivered as u8, Vec::new()),
        };
        let (inline, rest) = reply.split_at_checked(INLINE).unwrap_or((&reply, &[]));
        self.bus.write(at + OUTPUT as u64, inline).ok()?;
        self.write_mailboxes(OUTPUT_MAILBOX.get(&entry), rest)?;
        // Ownership goes back last, with the word that has it.
        let [.., token, signature, _, _] = entry;
        let word = u32::from_le_bytes([token, signature, 0, status << 1]);
        self.bus.publish(at + TOKEN as u64, word).ok()
    }

    fn read_command(&self, entry: &[u8; ENTRY]) -> Result<Request, Undelivered> {
        let length = usize::try_from(INPUT_LENGTH.get(entry)).unwrap_or(usize::MAX);
        let room = usize::try_from(OUTPUT_LENGTH.get(entry)).unwrap_or(usize::MAX);
        let owned = entry.get(STATUS_OWNER).is_some_and(|byte| byte & OWNER != 0);
        if entry.first() != Some(&TRANSPORT) || !owned {
            return Err(Undelivered::Descriptor);
        }
        if !(8..=limits::LONGEST_COMMAND).contains(&length) || room > limits::LONGEST_COMMAND {
            return Err(Undelivered::InputLength);
        }
        let mut bytes = entry.get(INPUT..INPUT + INLINE).unwrap_or_default().to_vec();
        let (mut next, mut number) = (INPUT_MAILBOX.get(entry), 0);
        while bytes.len() < length {
            let mut block = [0; BLOCK];
            self.bus.read(next, &mut block).map_err(|_| Undelivered::Descriptor)?;
            if BLOCK_NUMBER.word(&block) != number {
                return Err(Undelivered::BlockNumber);
            }
            if block.get(BLOCK_TOKEN) != entry.get(TOKEN) {
                return Err(Undelivered::Token);
            }
            bytes.extend(block.get(..BLOCK_DATA).unwrap_or_default());
            (next, number) = (BLOCK_NEXT.get(&block), number + 1);
        }
        bytes.truncate(length);
        Ok(Request { bytes, room })
    }

    fn write_mailboxes(&self, mut next: u64, bytes: &[u8]) -> Option<()> {
        for data in bytes.chunks(BLOCK_DATA) {
            let mut block = [0; BLOCK];
            self.bus.read(next, &mut block).ok()?;
            self.bus.write(next, data).ok()?;
            next = BLOCK_NEXT.get(&block);
        }
        Some(())
    }

    /// Runs a command: gives all bytes of the answer, as many as the driver has room for.
    fn run(&mut self, request: &Request) -> Vec<u8> {
        let opcode = request.word(command::OPCODE);
        let found = COMMANDS.iter().find(|command| command.opcode == opcode);
        let name = found.map_or("unknown", |command| command.name);
        let result = found.map_or(Err(Refusal::Unknown), |found| (found.run)(self, request));
        match &result {
            Ok(_) => log::debug!("{name}"),
            Err(refusal) => log::warn!("{name} {opcode:#x} {:#x}: {refusal:?}", request.op_mod()),
        }
        let mut reply = match result {
            Ok(Reply(bytes)) => bytes,
            Err(refusal) => {
                let mut bytes = vec![0; INLINE];
                command::STATUS.set(&mut bytes, refusal as u64);
                bytes
            }
        };
        reply.resize(request.room, 0);
        reply
    }

    /// What is taken and changes nothing.
    pub(super) fn accept(&mut self, _: &Request) -> Answer {
        Reply::done()
    }
}
