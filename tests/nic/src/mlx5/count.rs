//! Sets of counters that queue pairs are bound to ("q counters"): what a port's `hw_counters` are made of, and
//! what `rdma statistic qp` shows.

use std::collections::BTreeMap;

use super::Device;
use super::admin::Answer;
use super::admin::Refusal;
use super::admin::Reply;
use super::admin::Request;
use super::bits::Field;
use super::layout::qpc;
use super::layout::set;

/// What is counted, by the place in the answer of QUERY_Q_COUNTER: `query_q_counter_out`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u32)]
pub(super) enum Count {
    Writes = 0x80,
    Reads = 0xc0,
    Atomics = 0x100,
    /// A message for which there was no receive.
    OutOfBuffer = 0x180,
    /// A request that had been executed already.
    Duplicates = 0x200,
    /// The peer had no receive for too long.
    NoReceive = 0x240,
    /// No answer came in time.
    Timeouts = 0x300,
}

/// The values of each set.
pub(super) type Sets = BTreeMap<u32, BTreeMap<Count, u32>>;

impl Device {
    pub(super) fn alloc_q_counter(&mut self, _: &Request) -> Answer {
        let number = self.set_numbers.take().ok_or(Refusal::Limit)?;
        self.sets.insert(number, BTreeMap::new());
        Reply::sized(16).with(set::NUMBER, number.into()).ok()
    }

    pub(super) fn dealloc_q_counter(&mut self, request: &Request) -> Answer {
        let number = request.word(set::NUMBER);
        self.sets.remove(&number).ok_or(Refusal::Object)?;
        self.set_numbers.release(number);
        Reply::done()
    }

    pub(super) fn query_q_counter(&mut self, request: &Request) -> Answer {
        let values = self.sets.get_mut(&request.word(set::ASKED)).ok_or(Refusal::Object)?;
        let mut answer = Reply::sized(set::ANSWER);
        for (count, value) in &*values {
            answer = answer.with(Field::new(*count as usize, 0x20), (*value).into());
        }
        if request.get(set::CLEAR) == 1 {
            values.clear();
        }
        answer.ok()
    }

    /// Counts in the set that a queue pair is bound to. A set wraps, as the device's do.
    pub(super) fn count(&mut self, qpn: u32, what: Count) {
        let bound = self.qps.get(&qpn).map(|pair| pair.get(qpc::COUNTER_SET));
        if let Some(values) = bound.and_then(|number| self.sets.get_mut(&number)) {
            let value = values.entry(what).or_insert(0);
            *value = value.wrapping_add(1);
        }
    }
}
