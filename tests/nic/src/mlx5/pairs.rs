//! Commands about queue pairs.

use std::collections::VecDeque;

use super::Device;
use super::admin::Answer;
use super::admin::Refusal;
use super::admin::Reply;
use super::admin::Request;
use super::bits::Field;
use super::devx::InUmem;
use super::layout::command;
use super::layout::command::PAGES;
use super::layout::command::QPC;
use super::layout::command::QPC_END;
use super::layout::qpc;
use super::limits;
use super::objects::DATAGRAM;
use super::objects::MANAGEMENT;
use super::objects::MEMORY;
use super::objects::QueuePair;
use super::objects::RELIABLE;
use super::objects::SUBNET;
use super::objects::State;
use super::objects::UNRELIABLE;

/// What a transition changes always, and what it changes if its option is chosen (`MLX5_QP_OPTPAR_RRE` and
/// others).
struct Transition {
    opcode: u32,
    from: &'static [State],
    to: Option<State>,
    always: &'static [Field],
    options: &'static [(u32, Field)],
}

const OPTIONS: &[(u32, Field)] = &[
    (1 << 1, qpc::RRE),
    (1 << 2, qpc::RAE),
    (1 << 3, qpc::RWE),
    (1 << 4, qpc::PKEY_INDEX),
    (1 << 5, qpc::Q_KEY),
    (1 << 6, qpc::MIN_RNR_NAK),
    (1 << 8, qpc::LOG_SRA_MAX),
    (1 << 9, qpc::LOG_RRA_MAX),
    (1 << 10, qpc::PM_STATE),
    (1 << 12, qpc::RETRY_COUNT),
    (1 << 13, qpc::RNR_RETRY),
    (1 << 14, qpc::ACK_TIMEOUT),
    (1 << 16, qpc::PORT),
    (1 << 25, qpc::COUNTER_SET),
];

/// The queues are in memory that a program has registered for that: in which, and where.
const IN_UMEM: InUmem = InUmem {
    valid: Field::new(0x860, 1),
    id: Field::new(0x840, 0x20),
    at: Field::new(0x800, 0x40),
};

const ALL: &[State] = &[State::Reset, State::Init, State::Receives, State::Sends, State::Error];

static TRANSITIONS: &[Transition] = &[
    Transition {
        opcode: 0x502,
        from: &[State::Reset],
        to: Some(State::Init),
        always: &[
            qpc::COUNTER_SET,
            qpc::PM_STATE,
            qpc::PKEY_INDEX,
            qpc::PORT,
            qpc::Q_KEY,
            qpc::RRE,
            qpc::RWE,
            qpc::RAE,
        ],
        options: &[],
    },
    Transition { opcode: 0x50e, from: &[State::Init], to: None, always: &[], options: OPTIONS },
    Transition {
        opcode: 0x503,
        from: &[State::Init],
        to: Some(State::Receives),
        always: &[
            qpc::MTU,
            qpc::REMOTE_QPN,
            qpc::RLID,
            qpc::GRH,
            qpc::GID_HIGH,
            qpc::GID_LOW,
            qpc::SL,
            qpc::NEXT_RCV_PSN,
            qpc::LOG_RRA_MAX,
            qpc::MIN_RNR_NAK,
        ],
        options: OPTIONS,
    },
    Transition {
        opcode: 0x504,
        from: &[State::Receives],
        to: Some(State::Sends),
        always: &[
            qpc::ACK_TIMEOUT,
            qpc::RETRY_COUNT,
            qpc::RNR_RETRY,
            qpc::NEXT_SEND_PSN,
            qpc::LOG_SRA_MAX,
        ],
        options: OPTIONS,
    },
    Transition { opcode: 0x505, from: &[State::Sends], to: None, always: &[], options: OPTIONS },
    Transition { opcode: 0x507, from: ALL, to: Some(State::Error), always: &[], options: &[] },
    Transition { opcode: 0x50a, from: ALL, to: Some(State::Reset), always: &[], options: &[] },
];

impl QueuePair {
    /// The completion queues: of sends, and of receives.
    pub(super) fn cqs(&self) -> [u32; 2] {
        [self.get(qpc::CQN_SND), self.get(qpc::CQN_RCV)]
    }
}

impl Device {
    pub(super) fn create_qp(&mut self, request: &Request) -> Answer {
        let context = request.part(QPC, QPC_END)?;
        let kind = qpc::ST.word(context);
        if !matches!(kind, RELIABLE | UNRELIABLE | DATAGRAM | SUBNET | MANAGEMENT | MEMORY) {
            log::warn!("the driver wants a queue pair of type {kind:#x}");
            return Err(Refusal::Parameter);
        }
        let mut pair = QueuePair {
            context: context.to_vec(),
            state: State::Reset,
            buffer: super::memory::Buffer::new(&[], limits::PAGE.ilog2(), 0),
            record: qpc::DBR_ADDR.get(context),
            umems: Vec::new(),
            sent: 0,
            taken: 0,
            send_id: 0,
            receive_id: 0,
            flight: VecDeque::new(),
            answered: VecDeque::new(),
            again: None,
            tries: 0,
            refusals: 0,
        };
        let (stride, receives) = pair.receives();
        let shared = pair.shared().is_none_or(|srq| self.srqs.contains_key(&srq));
        // The kernel's own pair for changes of keys has no protection domain.
        let known = (self.pds.has(pair.pd()) || kind == MEMORY)
            && pair.cqs().iter().all(|cqn| *cqn == 0 || self.cqs.contains_key(cqn))
            && (pair.blocks() == 0 || self.uars.has(pair.get(qpc::UAR_PAGE)));
        if !known || !shared {
            log::warn!(
                "no such object: pd {} queues {:?} shared {:?} uar {} of {} blocks",
                pair.pd(),
                pair.cqs(),
                pair.shared(),
                pair.get(qpc::UAR_PAGE),
                pair.blocks()
            );
            return Err(Refusal::Object);
        }
        let bytes = stride * u64::from(receives) + 64 * u64::from(pair.blocks());
        let (log_page, offset) = (pair.get(qpc::LOG_PAGE_SIZE), pair.get(qpc::PAGE_OFFSET));
        match self.of_a_program(request, &IN_UMEM, bytes)? {
            Some((buffer, umem)) => {
                pair.buffer = buffer;
                pair.umems.push(umem);
            }
            None => pair.buffer = Self::buffer(request, PAGES, bytes, log_page, offset)?,
        }
        if qpc::DBR_UMEM_VALID.is_set(context) {
            let umem = pair.get(qpc::DBR_UMEM_ID);
            pair.record = self.record(request, umem, pair.record)?;
            pair.umems.push(umem);
        }
        let qpn = self.qp_numbers.take().ok_or(Refusal::Limit)?;
        log::debug!(
            "{qpn:#x}: receives {:?} blocks {} record {:#x} at {:x?}",
            pair.receives(),
            pair.blocks(),
            pair.record,
            pair.buffer
        );
        self.qps.insert(qpn, pair);
        Reply::number(qpn)
    }

    pub(super) fn destroy_qp(&mut self, request: &Request) -> Answer {
        let qpn = request.number();
        self.qps.remove(&qpn).ok_or(Refusal::Object)?;
        self.qp_numbers.release(qpn);
        Reply::done()
    }

    pub(super) fn query_qp(&mut self, request: &Request) -> Answer {
        let pair = self.qps.get(&request.number()).ok_or(Refusal::Object)?;
        let mut context = pair.context.clone();
        qpc::STATE.set(&mut context, pair.state as u64);
        Reply::sized(QPC_END / 8).put(QPC / 8, &context).ok()
    }

    /// Changes the state of a queue pair, and what the transition may change.
    pub(super) fn modify_qp(&mut self, request: &Request) -> Answer {
        let opcode = request.word(command::OPCODE);
        let found = TRANSITIONS.iter().find(|transition| transition.opcode == opcode);
        let transition = found.ok_or(Refusal::Unknown)?;
        let qpn = request.number();
        let pair = self.qps.get_mut(&qpn).ok_or(Refusal::Object)?;
        if !transition.from.contains(&pair.state) {
            return Err(Refusal::State);
        }
        if !transition.always.is_empty() || !transition.options.is_empty() {
            let context = request.part(QPC, QPC_END)?;
            let options = request.word(command::OPTIONS);
            let chosen = transition.options.iter().filter(|(option, _)| options & option != 0);
            for field in transition.always.iter().chain(chosen.map(|(_, field)| field)) {
                field.copy(context, &mut pair.context);
            }
        }
        if let Some(state) = transition.to {
            pair.state = state;
        }
        match transition.to {
            Some(State::Reset) => pair.clear(),
            Some(State::Error) => self.fail(qpn),
            _ => {}
        }
        self.pump(qpn);
        Reply::done()
    }
}
