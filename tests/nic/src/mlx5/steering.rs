//! Tables of rules by which packets that arrive are steered, what rules do with packets, and counters of such
//! packets. The device checks that rules fit and that what they name is there, and keeps them. Messages of an
//! InfiniBand port go to the queue pairs that they name, past all tables, so that counters stay at zero.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::Device;
use super::admin::Answer;
use super::admin::Refusal;
use super::admin::Reply;
use super::admin::Request;
use super::bits::Field;
use super::layout::fte;
use super::layout::steering as layout;
use super::limits;
use super::objects::Numbers;

/// `FS_FT_NIC_RX`, the one type of table.
const RECEIVED: u32 = 0;
/// `MLX5_FLOW_TABLE_MISS_ACTION_FWD`: what no rule meets goes to another table.
const FORWARD: u32 = 1;
/// What a rule does: `MLX5_FLOW_CONTEXT_ACTION_*`. A rule may drop, forward, count, take tunnels' headers off,
/// and change headers.
const FORWARDS: u32 = 0x4;
const COUNTS: u32 = 0x8;
const CHANGES: u32 = 0x40;
const ACTIONS: u32 = 0x2 | FORWARDS | COUNTS | 0x20 | CHANGES;
/// `MLX5_IFC_FLOW_DESTINATION_TYPE_FLOW_TABLE`. This device has no other destinations.
const TO_TABLE: u64 = 1;
/// A new rule, and one that takes the place of another.
const NEW: u32 = 0;
const CHANGE: u32 = 1;
/// A change of the table to which goes what no rule meets.
const MISS_TABLE: u32 = 1;
/// One header's change, in bytes.
const HEADER_ACTION: usize = 8;

/// Which rules of a table belong together, from the first place to the last.
#[derive(Debug)]
struct Group {
    first: u32,
    last: u32,
}

/// A rule: what it names.
#[derive(Debug, Default)]
struct Rule {
    group: u32,
    tables: BTreeSet<u32>,
    counters: BTreeSet<u32>,
    header: Option<u32>,
}

#[derive(Debug)]
struct Table {
    places: u32,
    miss: Option<u32>,
    groups: BTreeMap<u32, Group>,
    rules: BTreeMap<u32, Rule>,
}

/// Everything about steering.
#[derive(Debug)]
pub(super) struct Steering {
    table_numbers: Numbers,
    group_numbers: Numbers,
    counters: Numbers,
    headers: Numbers,
    tables: BTreeMap<u32, Table>,
}

impl Steering {
    pub(super) fn new() -> Self {
        Self {
            table_numbers: Numbers::new(1, 1 << limits::LOG_TABLES),
            group_numbers: Numbers::new(1, 1 << 16),
            counters: Numbers::new(0x200, 1 << limits::LOG_FLOW_COUNTERS),
            headers: Numbers::new(0x40, 1 << limits::LOG_HEADERS),
            tables: BTreeMap::new(),
        }
    }

    /// The table of a command.
    fn table(&mut self, request: &Request) -> Result<&mut Table, Refusal> {
        if request.word(layout::TYPE) != RECEIVED {
            return Err(Refusal::Parameter);
        }
        self.tables.get_mut(&request.word(layout::TABLE)).ok_or(Refusal::Object)
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.tables.values().flat_map(|table| table.rules.values())
    }

    fn miss(&self, request: &Request) -> Result<Option<u32>, Refusal> {
        if request.word(layout::MISS_ACTION) != FORWARD {
            return Ok(None);
        }
        let miss = request.word(layout::MISS_TABLE);
        self.tables.contains_key(&miss).then_some(Some(miss)).ok_or(Refusal::Object)
    }

    fn create_table(&mut self, request: &Request) -> Result<u32, Refusal> {
        let log = request.word(layout::LOG_SIZE);
        let fits = u64::from(log) <= limits::LOG_TABLE_SIZE
            && u64::from(request.word(layout::LEVEL)) < limits::TABLE_LEVELS;
        if request.word(layout::TYPE) != RECEIVED || !fits {
            return Err(Refusal::Parameter);
        }
        let miss = self.miss(request)?;
        let number = self.table_numbers.take().ok_or(Refusal::Limit)?;
        let (groups, rules) = (BTreeMap::new(), BTreeMap::new());
        self.tables.insert(number, Table { places: 1 << log, miss, groups, rules });
        Ok(number)
    }

    fn destroy_table(&mut self, request: &Request) -> Result<(), Refusal> {
        let number = request.word(layout::TABLE);
        let is_empty = self.table(request)?.groups.is_empty();
        let is_meant = self.tables.values().any(|table| table.miss == Some(number))
            || self.rules().any(|rule| rule.tables.contains(&number));
        if !is_empty || is_meant {
            return Err(Refusal::Busy);
        }
        self.tables.remove(&number);
        self.table_numbers.release(number);
        Ok(())
    }

    fn modify_table(&mut self, request: &Request) -> Result<(), Refusal> {
        let miss = self.miss(request)?;
        if request.word(layout::MODIFY) != MISS_TABLE {
            return Err(Refusal::Parameter);
        }
        self.table(request)?.miss = miss;
        Ok(())
    }

    fn create_group(&mut self, request: &Request) -> Result<u32, Refusal> {
        let (first, last) = (request.word(layout::FIRST), request.word(layout::LAST));
        let table = self.table(request)?;
        let overlaps =
            table.groups.values().any(|other| other.first <= last && first <= other.last);
        if first > last || last >= table.places || overlaps {
            return Err(Refusal::Parameter);
        }
        let number = self.group_numbers.take().ok_or(Refusal::Limit)?;
        self.table(request)?.groups.insert(number, Group { first, last });
        Ok(number)
    }

    fn destroy_group(&mut self, request: &Request) -> Result<(), Refusal> {
        let number = request.word(layout::GROUP);
        let table = self.table(request)?;
        if table.rules.values().any(|rule| rule.group == number) {
            return Err(Refusal::Busy);
        }
        table.groups.remove(&number).ok_or(Refusal::Object)?;
        self.group_numbers.release(number);
        Ok(())
    }

    /// What a rule says, if everything that the rule names is there.
    fn rule(&self, request: &Request) -> Result<Rule, Refusal> {
        let action = request.word(fte::ACTION);
        if action & !ACTIONS != 0 {
            return Err(Refusal::Parameter);
        }
        let mut rule = Rule { group: request.word(fte::GROUP), ..Rule::default() };
        let mut at = fte::DESTINATIONS;
        let mut next = || {
            let bytes = request.part(at, at + fte::DESTINATION)?;
            at += fte::DESTINATION;
            Ok(bytes)
        };
        for _ in 0..request.word(fte::DESTINATION_COUNT) {
            let bytes = next()?;
            let table = fte::DESTINATION_NUMBER.word(bytes);
            let is_there = self.tables.contains_key(&table);
            if fte::DESTINATION_TYPE.get(bytes) != TO_TABLE || !is_there {
                return Err(Refusal::Object);
            }
            rule.tables.insert(table);
        }
        for _ in 0..request.word(fte::COUNTER_COUNT) {
            let counter = fte::COUNTER.word(next()?);
            let is_there = self.counters.has(counter);
            rule.counters.insert(is_there.then_some(counter).ok_or(Refusal::Object)?);
        }
        if action & CHANGES != 0 {
            let header = request.word(fte::HEADER);
            rule.header = Some(self.headers.has(header).then_some(header).ok_or(Refusal::Object)?);
        }
        let forwards = rule.tables.is_empty() != (action & FORWARDS != 0);
        let counts = rule.counters.is_empty() != (action & COUNTS != 0);
        if forwards && counts { Ok(rule) } else { Err(Refusal::Parameter) }
    }

    fn set_rule(&mut self, request: &Request) -> Result<(), Refusal> {
        let rule = self.rule(request)?;
        let place = request.word(layout::PLACE);
        let table = self.table(request)?;
        let group = table.groups.get(&rule.group).ok_or(Refusal::Object)?;
        if !(group.first..=group.last).contains(&place) {
            return Err(Refusal::Parameter);
        }
        match (request.op_mod(), table.rules.contains_key(&place)) {
            (NEW, false) | (CHANGE, true) => table.rules.insert(place, rule),
            (NEW, true) => return Err(Refusal::Busy),
            (CHANGE, false) => return Err(Refusal::Object),
            _ => return Err(Refusal::Parameter),
        };
        Ok(())
    }

    fn delete_rule(&mut self, request: &Request) -> Result<(), Refusal> {
        let place = request.word(layout::PLACE);
        self.table(request)?.rules.remove(&place).map(drop).ok_or(Refusal::Object)
    }

    fn free_counter(&mut self, number: u32) -> Result<(), Refusal> {
        if self.rules().any(|rule| rule.counters.contains(&number)) {
            return Err(Refusal::Busy);
        }
        self.counters.release(number).then_some(()).ok_or(Refusal::Object)
    }

    fn free_header(&mut self, number: u32) -> Result<(), Refusal> {
        if self.rules().any(|rule| rule.header == Some(number)) {
            return Err(Refusal::Busy);
        }
        self.headers.release(number).then_some(()).ok_or(Refusal::Object)
    }
}

impl Device {
    pub(super) fn create_flow_table(&mut self, request: &Request) -> Answer {
        Reply::number(self.steering.create_table(request)?)
    }

    pub(super) fn destroy_flow_table(&mut self, request: &Request) -> Answer {
        self.steering.destroy_table(request).and_then(|()| Reply::done())
    }

    pub(super) fn modify_flow_table(&mut self, request: &Request) -> Answer {
        self.steering.modify_table(request).and_then(|()| Reply::done())
    }

    pub(super) fn create_flow_group(&mut self, request: &Request) -> Answer {
        Reply::number(self.steering.create_group(request)?)
    }

    pub(super) fn destroy_flow_group(&mut self, request: &Request) -> Answer {
        self.steering.destroy_group(request).and_then(|()| Reply::done())
    }

    pub(super) fn set_flow_rule(&mut self, request: &Request) -> Answer {
        self.steering.set_rule(request).and_then(|()| Reply::done())
    }

    pub(super) fn delete_flow_rule(&mut self, request: &Request) -> Answer {
        self.steering.delete_rule(request).and_then(|()| Reply::done())
    }

    /// A counter of packets. Several at once are not offered.
    pub(super) fn alloc_flow_counter(&mut self, request: &Request) -> Answer {
        if request.word(layout::BULK) != 0 {
            return Err(Refusal::Parameter);
        }
        let number = self.steering.counters.take().ok_or(Refusal::Limit)?;
        Reply::sized(16).with(layout::NUMBER, number.into()).ok()
    }

    pub(super) fn dealloc_flow_counter(&mut self, request: &Request) -> Answer {
        self.steering.free_counter(request.word(layout::NUMBER)).and_then(|()| Reply::done())
    }

    /// Packets and bytes.
    pub(super) fn query_flow_counter(&mut self, request: &Request) -> Answer {
        let is_there = self.steering.counters.has(request.word(layout::COUNTER_ASKED));
        is_there.then_some(()).ok_or(Refusal::Object)?;
        Reply::sized(32).ok()
    }

    /// Changes of packets' headers.
    pub(super) fn alloc_modify_header(&mut self, request: &Request) -> Answer {
        let count = usize::try_from(request.get(layout::HEADER_ACTIONS)).unwrap_or(usize::MAX);
        let most = usize::try_from(limits::HEADER_ACTIONS).unwrap_or(0);
        if request.word(layout::HEADER_TYPE) != RECEIVED || !(1..=most).contains(&count) {
            return Err(Refusal::Parameter);
        }
        request.part(layout::HEADER_LIST, layout::HEADER_LIST + count * HEADER_ACTION * 8)?;
        let number = self.steering.headers.take().ok_or(Refusal::Limit)?;
        Reply::sized(16).with(layout::NUMBER, number.into()).ok()
    }

    pub(super) fn dealloc_modify_header(&mut self, request: &Request) -> Answer {
        self.steering.free_header(request.word(layout::NUMBER)).and_then(|()| Reply::done())
    }
}

/// What the device says of its tables: `flow_table_properties_nic_receive`, and where that is among the kind's
/// capabilities.
#[rustfmt::skip]
pub(super) const TABLES: &[(Field, u64)] = &[
    (Field::new(0x200, 1), 1), (Field::new(0x202, 1), 1), (Field::new(0x203, 1), 1), (Field::new(0x204, 1), 1),
    (Field::new(0x205, 1), 1), (Field::new(0x206, 1), 1),
    // Headers of tunnels can be taken off, and a rule may forward to a table of any level.
    (Field::new(0x208, 1), 1), (Field::new(0x215, 1), 1),
    (Field::new(0x222, 6), limits::LOG_TABLE_SIZE),
    (Field::new(0x228, 8), limits::LOG_HEADERS), (Field::new(0x230, 8), limits::HEADER_ACTIONS),
    (Field::new(0x238, 8), limits::TABLE_LEVELS),
    (Field::new(0x278, 8), limits::LOG_TABLES), (Field::new(0x290, 8), 0), (Field::new(0x298, 8), 1),
    (Field::new(0x2b8, 8), limits::LOG_TABLE_SIZE),
];

#[cfg(test)]
mod tests {
    use super::super::layout::command;
    use super::*;

    fn request(fields: &[(Field, u64)]) -> Request {
        let mut bytes = vec![0; fte::DESTINATIONS / 8 + 16];
        fields.iter().for_each(|(field, value)| field.set(&mut bytes, *value));
        Request { bytes, room: 64 }
    }

    fn table(steering: &mut Steering, fields: &[(Field, u64)]) -> Result<u32, Refusal> {
        steering.create_table(&request(&[&[(layout::LOG_SIZE, 3)], fields].concat()))
    }

    fn rule(place: u64, group: u32, fields: &[(Field, u64)]) -> Request {
        let own = [(layout::TABLE, 1), (layout::PLACE, place), (fte::GROUP, group.into())];
        request(&[&own, fields].concat())
    }

    #[test]
    fn tables_forward_to_tables_that_are_there() {
        let mut steering = Steering::new();
        assert_eq!(table(&mut steering, &[]), Ok(1));
        let miss = |number| [(layout::MISS_ACTION, 1), (layout::MISS_TABLE, number)];
        assert_eq!(table(&mut steering, &miss(7)), Err(Refusal::Object));
        assert_eq!(table(&mut steering, &miss(1)), Ok(2));
        assert_eq!(table(&mut steering, &[(layout::LOG_SIZE, 17)]), Err(Refusal::Parameter));
        assert_eq!(table(&mut steering, &[(layout::TYPE, 1)]), Err(Refusal::Parameter));
        let first = request(&[(layout::TABLE, 1)]);
        assert_eq!(steering.destroy_table(&first), Err(Refusal::Busy));
        let change = request(&[(layout::TABLE, 2), (layout::MODIFY, 1)]);
        assert_eq!(steering.modify_table(&change), Ok(()));
        assert_eq!(steering.destroy_table(&first), Ok(()));
        assert_eq!(steering.destroy_table(&first), Err(Refusal::Object));
    }

    #[test]
    fn rules_are_in_their_groups_and_keep_what_they_name() {
        let mut steering = Steering::new();
        table(&mut steering, &[]).unwrap();
        let places = |first, last| {
            request(&[(layout::TABLE, 1), (layout::FIRST, first), (layout::LAST, last)])
        };
        let group = steering.create_group(&places(2, 4)).unwrap();
        assert_eq!(steering.create_group(&places(4, 5)), Err(Refusal::Parameter));
        assert_eq!(steering.create_group(&places(5, 8)), Err(Refusal::Parameter));
        let dropping = [(fte::ACTION, 2)];
        assert_eq!(steering.set_rule(&rule(5, group, &dropping)), Err(Refusal::Parameter));
        assert_eq!(steering.set_rule(&rule(3, group + 1, &dropping)), Err(Refusal::Object));
        assert_eq!(steering.set_rule(&rule(3, group, &dropping)), Ok(()));
        assert_eq!(steering.set_rule(&rule(3, group, &dropping)), Err(Refusal::Busy));
        assert_eq!(
            steering.set_rule(&rule(3, group, &[(fte::ACTION, 0x10)])),
            Err(Refusal::Parameter)
        );

        // A counter is where destinations would be, since there are none.
        let counter = steering.counters.take().unwrap();
        let number = Field::new(fte::DESTINATIONS, 0x20);
        let counts =
            |counter: u32| [(fte::ACTION, 0xa), (fte::COUNTER_COUNT, 1), (number, counter.into())];
        assert_eq!(steering.set_rule(&rule(2, group, &counts(counter + 1))), Err(Refusal::Object));
        assert_eq!(steering.set_rule(&rule(2, group, &counts(counter))), Ok(()));
        assert_eq!(steering.free_counter(counter), Err(Refusal::Busy));
        let change = [(command::OP_MOD, 1), (fte::ACTION, 2)];
        assert_eq!(steering.set_rule(&rule(2, group, &change)), Ok(()));
        assert_eq!(steering.free_counter(counter), Ok(()));
        assert_eq!(steering.free_counter(counter), Err(Refusal::Object));
        assert_eq!(steering.set_rule(&rule(4, group, &change)), Err(Refusal::Object));
        let absent = [(fte::ACTION, 0x42), (fte::HEADER, 0x40)];
        assert_eq!(steering.set_rule(&rule(4, group, &absent)), Err(Refusal::Object));

        let whole = request(&[(layout::TABLE, 1), (layout::GROUP, group.into())]);
        assert_eq!(steering.destroy_group(&whole), Err(Refusal::Busy));
        for place in [2, 3] {
            assert_eq!(steering.delete_rule(&rule(place, group, &[])), Ok(()));
        }
        assert_eq!(steering.delete_rule(&rule(3, group, &[])), Err(Refusal::Object));
        assert_eq!(steering.destroy_group(&whole), Ok(()));
        assert_eq!(steering.destroy_table(&request(&[(layout::TABLE, 1)])), Ok(()));
    }
}
