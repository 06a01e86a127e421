//! Completions, and the events that tell of them and of other things.

use super::Device;
use super::bits::Field;
use super::layout::qpc;
use super::objects::Armed;

/// The types of event: `MLX5_EVENT_TYPE_COMP` and others.
const COMPLETION: u8 = 0x00;
const COMMAND: u8 = 0x0a;
pub(super) const PORT_CHANGE: u8 = 0x09;
pub(super) const ACCESS_ERROR: u8 = 0x11;
const LIMIT_REACHED: u8 = 0x14;

/// `mlx5_eqe`: an entry's parts.
const EVENT: usize = 64;
const EVENT_TYPE: Field = Field::new(8, 8);
const EVENT_SUBTYPE: Field = Field::new(3 * 8, 8);
const EVENT_OWNER: usize = 63;
/// In its data: the number of a completion queue; the commands that are done; the number of a queue pair; a
/// port, in the upper half of a byte.
const EVENT_NUMBER: Field = Field::new(56 * 8, 32);
const EVENT_COMMANDS: Field = Field::new(32 * 8, 32);
const EVENT_PORT: Field = Field::new(40 * 8, 8);

/// `mlx5_cqe64` and `mlx5_err_cqe`.
const CQE: usize = 64;
const SOURCE_LID: Field = Field::new(22 * 8, 16);
const FLAGS_AND_SOURCE: Field = Field::new(24 * 8, 32);
const USER_INDEX: Field = Field::new(32 * 8, 32);
const IMMEDIATE: Field = Field::new(36 * 8, 32);
const LENGTH: Field = Field::new(44 * 8, 32);
const TIME: Field = Field::new(48 * 8, 64);
const SYNDROME: Field = Field::new(55 * 8, 8);
const OPCODE_AND_QPN: Field = Field::new(56 * 8, 32);
const COUNTER: Field = Field::new(60 * 8, 16);
const CQE_OPCODE: Field = Field::new(63 * 8, 4);
const OWNER: Field = Field::new(63 * 8 + 7, 1);
/// A global route header came with a datagram.
const HAS_ROUTE: u32 = 1 << 28;

/// What a completion is of: `MLX5_CQE_REQ` and others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Of {
    Request = 0,
    WriteImmediate = 1,
    Send = 2,
    SendImmediate = 3,
    SendInvalidate = 4,
}

/// Statuses: `MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR` and others. Zero is none.
pub(super) mod syndrome {
    pub(in super::super) const OK: u8 = 0;
    pub(in super::super) const LENGTH: u8 = 0x01;
    pub(in super::super) const OPERATION: u8 = 0x02;
    pub(in super::super) const PROTECTION: u8 = 0x04;
    pub(in super::super) const FLUSHED: u8 = 0x05;
    pub(in super::super) const REMOTE_REQUEST: u8 = 0x12;
    pub(in super::super) const REMOTE_ACCESS: u8 = 0x13;
    pub(in super::super) const REMOTE_OPERATION: u8 = 0x14;
    pub(in super::super) const UNRESPONSIVE: u8 = 0x15;
    pub(in super::super) const NO_RECEIVE: u8 = 0x16;
}

/// What has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) of: Of,
    /// The block, or the receive.
    pub(super) index: u16,
    /// Of the work request.
    pub(super) opcode: u8,
    pub(super) syndrome: u8,
    pub(super) length: u32,
    /// Immediate data as the wire has it, or a key that was invalidated.
    pub(super) word: u32,
    pub(super) solicited: bool,
    /// Who sent a datagram: queue pair and LID.
    pub(super) source: Option<(u32, u16)>,
}

impl Completion {
    /// Nothing but what it is of.
    pub(super) fn of(of: Of) -> Self {
        Self {
            of,
            index: 0,
            opcode: 0,
            syndrome: 0,
            length: 0,
            word: 0,
            solicited: false,
            source: None,
        }
    }
}

impl Device {
    /// Writes a completion of a queue pair's.
    pub(super) fn complete(&mut self, qpn: u32, done: Completion) {
        let Some(pair) = self.qps.get(&qpn) else { return };
        let [sends, receives] = pair.cqs();
        let cqn = if done.of == Of::Request { sends } else { receives };
        let index = pair.get(qpc::USER_INDEX);
        let Some(queue) = self.cqs.get_mut(&cqn) else { return };
        let mut entry = [0; CQE];
        let owner = queue.produced >> queue.log_size & 1;
        let mut set = |field: Field, value: u32| field.set(&mut entry, value.into());
        set(USER_INDEX, index);
        set(OPCODE_AND_QPN, u32::from(done.opcode) << 24 | qpn);
        set(COUNTER, done.index.into());
        set(OWNER, owner);
        match (done.syndrome, done.of) {
            (syndrome::OK, of) => {
                set(CQE_OPCODE, of as u32);
                set(LENGTH, done.length);
                set(IMMEDIATE, done.word);
                if let Some((source, lid)) = done.source {
                    set(FLAGS_AND_SOURCE, HAS_ROUTE | source);
                    set(SOURCE_LID, lid.into());
                }
                TIME.set(&mut entry, self.registers.clock());
            }
            (code, of) => {
                set(CQE_OPCODE, if of == Of::Request { 13 } else { 14 });
                set(SYNDROME, code.into());
            }
        }
        let mask = (1u32 << queue.log_size) - 1;
        let position = u64::from(queue.produced & mask) * queue.entry + queue.entry - CQE as u64;
        queue.produced = queue.produced.wrapping_add(1);
        if done.solicited || done.syndrome != 0 {
            queue.solicited = queue.produced;
        }
        let wanted = match queue.armed {
            Armed::No => false,
            Armed::Solicited => done.solicited || done.syndrome != 0,
            Armed::Any => true,
        };
        let to = queue.buffer.at(position);
        if to.and_then(|to| self.publish(to, &entry)).is_none() {
            log::error!("completion queue {cqn}: a completion is lost");
        }
        if wanted {
            self.tell(cqn);
        }
    }

    /// Writes 64 bytes of which the last word says that they are there.
    fn publish(&self, to: u64, entry: &[u8; 64]) -> Option<()> {
        let (rest, last) = entry.split_last_chunk::<4>()?;
        self.bus.write(to, rest).ok()?;
        self.bus.publish(to + rest.len() as u64, u32::from_le_bytes(*last)).ok()
    }

    /// A program asks to be told of the next completion, and how far it has read.
    pub(super) fn arm(&mut self, uar: u32, word: u32, cqn: u32) {
        const SOLICITED_ONLY: u32 = 1 << 24;
        let Some(queue) = self.cqs.get_mut(&cqn).filter(|queue| queue.uar == uar) else { return };
        let solicited = word & SOLICITED_ONLY != 0;
        queue.armed = if solicited { Armed::Solicited } else { Armed::Any };
        let last = if solicited { queue.solicited } else { queue.produced };
        // There is one that the program has not read.
        let ahead = last.wrapping_sub(word) & 0xff_ffff;
        if ahead != 0 && ahead < 1 << 23 {
            self.tell(cqn);
        }
    }

    /// Writes the event that a program has asked for.
    fn tell(&mut self, cqn: u32) {
        let Some(queue) = self.cqs.get_mut(&cqn) else { return };
        queue.armed = Armed::No;
        let eqn = queue.eqn;
        let mut event = [0; EVENT];
        EVENT_TYPE.set(&mut event, COMPLETION.into());
        EVENT_NUMBER.set(&mut event, cqn.into());
        self.event(eqn, event);
    }

    /// Whether the driver has asked for events of commands.
    pub(super) fn tells_of_commands(&self) -> bool {
        self.eqs.values().any(|queue| queue.events >> COMMAND & 1 == 1)
    }

    /// Tells that commands are done.
    pub(super) fn commands_done(&mut self, done: u32) {
        let mut event = [0; EVENT];
        EVENT_COMMANDS.set(&mut event, done.into());
        self.announce(COMMAND, event);
    }

    /// Tells of an error of a queue pair's.
    pub(super) fn trouble(&mut self, qpn: u32) {
        let mut event = [0; EVENT];
        EVENT_NUMBER.set(&mut event, qpn.into());
        self.announce(ACCESS_ERROR, event);
    }

    /// Tells that the port is active again, or down.
    pub(super) fn port_changed(&mut self, subtype: u8) {
        let mut event = [0; EVENT];
        EVENT_SUBTYPE.set(&mut event, subtype.into());
        EVENT_PORT.set(&mut event, 1 << 4);
        self.announce(PORT_CHANGE, event);
    }

    /// Tells once that a shared receive queue has fewer receives than its limit.
    pub(super) fn look_at_limit(&mut self, number: u32) {
        const SHARED: u64 = 2;
        const QUEUE_TYPE: Field = Field::new(52 * 8, 8);
        let Some(left) = self.left(number) else { return };
        let Some(queue) = self.srqs.get_mut(&number) else { return };
        if queue.limit == 0 || left >= queue.limit {
            return;
        }
        queue.limit = 0;
        let mut event = [0; EVENT];
        QUEUE_TYPE.set(&mut event, SHARED);
        EVENT_NUMBER.set(&mut event, number.into());
        self.announce(LIMIT_REACHED, event);
    }

    /// Writes an event to the queue that takes its type.
    fn announce(&mut self, kind: u8, mut event: [u8; EVENT]) {
        EVENT_TYPE.set(&mut event, kind.into());
        let taking = self.eqs.iter().find(|(_, queue)| queue.events >> kind & 1 == 1);
        if let Some(eqn) = taking.map(|(eqn, _)| *eqn) {
            self.event(eqn, event);
        }
    }

    /// Writes an event, whose owner bit is set here, and interrupts if the driver waits.
    fn event(&mut self, eqn: u32, mut event: [u8; EVENT]) {
        let Some(queue) = self.eqs.get_mut(&eqn) else { return };
        let size = 1u32 << queue.log_size;
        if queue.produced.wrapping_sub(queue.consumed) & 0xff_ffff >= size {
            queue.waiting.push_back(event);
            return;
        }
        if let Some(owner) = event.get_mut(EVENT_OWNER) {
            *owner = u8::from(queue.produced & size != 0);
        }
        let to = queue.buffer.at(u64::from(queue.produced & (size - 1)) * EVENT as u64);
        queue.produced = queue.produced.wrapping_add(1);
        let interrupt = std::mem::take(&mut queue.armed).then_some(queue.vector);
        if to.and_then(|to| self.publish(to, &event)).is_none() {
            log::error!("event queue {eqn}: an event is lost");
        }
        if let Some(vector) = interrupt {
            self.bus.interrupt(vector);
        }
    }

    /// The driver has handled events of a queue, and may want to be interrupted by the next.
    pub(super) fn consumed(&mut self, uar: u32, word: u32, arm: bool) {
        let eqn = word >> 24;
        let Some(queue) = self.eqs.get_mut(&eqn).filter(|queue| queue.uar == uar) else { return };
        queue.consumed = word & 0xff_ffff;
        let waiting = std::mem::take(&mut queue.waiting);
        for event in waiting {
            self.event(eqn, event);
        }
        let Some(queue) = self.eqs.get_mut(&eqn).filter(|_| arm) else { return };
        if queue.produced.wrapping_sub(queue.consumed) & 0xff_ffff == 0 {
            queue.armed = true;
        } else {
            let vector = queue.vector;
            self.bus.interrupt(vector);
        }
    }
}
