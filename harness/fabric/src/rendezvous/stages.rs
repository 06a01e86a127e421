//! What rank 0 knows of the ranks: who is there, who waits for whom, and why all is over.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io::Write;
use std::net::Shutdown;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;

use super::Entry;
use super::Hello;
use super::Loss;
use super::Table;
use super::ToRank;
use super::frame;
use crate::error::EXIT_CHECK;
use crate::error::EXIT_TIMEOUT;
use crate::error::Error;

/// How often those who wait are told that they do.
const WORD: Duration = Duration::from_secs(2);

/// The way to a rank.
pub(super) type WayTo = Arc<Mutex<TcpStream>>;

#[derive(Debug, Default)]
pub(super) struct Stages {
    pub(super) members: BTreeMap<u32, Member>,
    pub(super) unknown: usize,
    pub(super) strays: u64,
    pub(super) refused: Option<Refusal>,
    /// Ranks that know why all is over.
    pub(super) told: usize,
    pub(super) gathers: BTreeMap<String, Gather>,
    pub(super) left: usize,
    pub(super) complete: bool,
    /// What is to be written, in the order in which it came to be true: who is lost is known before
    /// what the others have given without that rank.
    outbox: VecDeque<Letter>,
}

/// Why all is over.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: u8,
    pub(super) reason: String,
    pub(super) since: Instant,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) stream: WayTo,
    pub(super) hello: Hello,
    pub(super) done: bool,
    /// When the rank said something last, to whomever.
    pub(super) heard: Instant,
}

#[derive(Debug)]
pub(super) struct Gather {
    pub(super) values: BTreeMap<u32, Value>,
    pub(super) began: Instant,
    pub(super) seconds: u64,
    /// When those who wait were told that they do.
    pub(super) told: Instant,
}

impl Stages {
    pub(super) fn streams(&self) -> Vec<WayTo> {
        let present = self.members.values().filter(|member| !member.done);
        present.map(|member| Arc::clone(&member.stream)).collect()
    }

    pub(super) fn refuse(&mut self, code: u8, reason: String) {
        self.refused.get_or_insert(Refusal { code, reason, since: Instant::now() });
    }

    /// Whether the rank was there until now.
    pub(super) fn drop_out(&mut self, rank: u32) -> bool {
        let member = self.members.get_mut(&rank).filter(|member| !member.done);
        let was = member.map(|member| member.done = true).is_some();
        self.left += usize::from(was);
        was
    }

    pub(super) fn next_letter(&mut self) -> Option<Letter> {
        self.outbox.pop_front()
    }

    /// Has all who are present told.
    pub(super) fn tell_all(&mut self, message: ToRank) {
        let to = self.streams();
        self.outbox.push_back(Letter { to, message, last: false });
    }

    /// Has all that they wait for given to those who do, if it is there.
    pub(super) fn deliver(&mut self) {
        for (stage, values) in self.whole() {
            let mut pieces = pieces(values.into_iter()).peekable();
            while let Some(values) = pieces.next() {
                let (stage, last) = (stage.clone(), pieces.peek().is_none());
                self.tell_all(ToRank::Gathered { stage, values, last });
            }
        }
    }

    /// Takes the gathers for which nobody is missing any more.
    fn whole(&mut self) -> Vec<(String, BTreeMap<u32, Value>)> {
        let members = &self.members;
        let there = |gather: &Gather| {
            members.iter().all(|(rank, member)| member.done || gather.values.contains_key(rank))
        };
        let whole = self.gathers.iter().filter(|(_, gather)| there(gather));
        let whole: Vec<String> = whole.map(|(stage, _)| stage.clone()).collect();
        let take = |stage: String| Some((stage.clone(), self.gathers.remove(&stage)?.values));
        whole.into_iter().filter_map(take).collect()
    }

    /// Tells those who wait that they do, and leaves out those for whom the others wait in vain.
    pub(super) fn look_at_gathers(&mut self) {
        let now = Instant::now();
        let mut silent = BTreeMap::new();
        for (stage, gather) in &mut self.gathers {
            let missing = self
                .members
                .iter()
                .filter(|(rank, member)| !member.done && !gather.values.contains_key(rank));
            let limit = Duration::from_secs(gather.seconds);
            let mut count = 0;
            for (rank, member) in missing {
                count += 1;
                if now >= gather.began.max(member.heard) + limit {
                    silent.insert(*rank, (stage.clone(), gather.seconds));
                }
            }
            if now >= gather.told + WORD {
                gather.told = now;
                let given = |rank: &u32| gather.values.contains_key(rank);
                let there = self.members.iter().filter(|(rank, m)| !m.done && given(rank));
                let to = there.map(|(_, member)| Arc::clone(&member.stream)).collect();
                let message = ToRank::Waiting { stage: stage.clone(), missing: count };
                self.outbox.push_back(Letter { to, message, last: false });
            }
        }
        for (rank, (stage, seconds)) in silent {
            if rank == 0 {
                // Nobody else has the report.
                let missing = Error::Missing { stage, ranks: vec![0], seconds };
                self.refuse(EXIT_TIMEOUT, missing.to_string());
                break;
            }
            if let Some(member) = self.members.get(&rank) {
                let reason = format!(
                    "the others waited {seconds} s for rank {rank} at \"{stage}\", and went on \
                     without it"
                );
                let message = ToRank::Refused { code: EXIT_TIMEOUT, reason };
                let to = vec![Arc::clone(&member.stream)];
                self.outbox.push_back(Letter { to, message, last: true });
            }
            self.drop_out(rank);
            self.tell_all(ToRank::Lost { rank, why: Loss::Silent });
        }
    }

    pub(super) fn welcome(&self, ranks: u32) -> ToRank {
        let absent = (0..ranks).filter(|rank| !self.members.contains_key(rank)).collect();
        let entries: Vec<Entry> =
            self.members.values().map(|member| member.hello.entry.clone()).collect();
        match serde_json::to_string(&Table { entries }) {
            Ok(table) => ToRank::Welcome { table, strays: self.strays, absent },
            Err(error) => ToRank::Refused { code: EXIT_CHECK, reason: error.to_string() },
        }
    }
}

impl Refusal {
    pub(super) fn message(&self) -> ToRank {
        ToRank::Refused { code: self.code, reason: self.reason.clone() }
    }
}

/// A rank's value.
pub(super) type Given = (u32, Value);

/// What is to be written to ranks.
#[derive(Debug)]
pub(super) struct Letter {
    to: Vec<WayTo>,
    message: ToRank,
    /// Nothing follows.
    last: bool,
}

impl Letter {
    pub(super) fn post(self) {
        broadcast(&self.to, &self.message);
        for way in self.to.iter().filter(|_| self.last) {
            let stream = way.lock().unwrap_or_else(PoisonError::into_inner);
            // Its reader ends, or has ended.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Values in lists of about a piece each; one list at least.
fn pieces(values: impl Iterator<Item = Given>) -> impl Iterator<Item = Vec<Given>> {
    let (mut lists, mut size) = (vec![Vec::new()], 0);
    for value in values {
        let its = value.1.to_string().len();
        if size > 0 && size + its > frame::PIECE {
            lists.push(Vec::new());
            size = 0;
        }
        size += its;
        if let Some(list) = lists.last_mut() {
            list.push(value);
        }
    }
    lists.into_iter()
}

pub(super) fn broadcast(streams: &[WayTo], message: &ToRank) {
    let bytes = frame::encode(message, frame::PASSED_ON).or_else(|error| {
        // Nobody may wait for what does not come.
        let reason = format!("rank 0 cannot tell the others: {error}: use fewer ranks or rails");
        frame::encode(&ToRank::Refused { code: EXIT_CHECK, reason }, frame::PASSED_ON)
    });
    if let Ok(bytes) = bytes {
        streams.iter().for_each(|stream| send_bytes(stream, &bytes));
    }
}

pub(super) fn send(stream: &WayTo, message: &ToRank) {
    broadcast(std::slice::from_ref(stream), message);
}

/// A rank that does not take it has gone, or hangs: its reader or a gather will tell.
fn send_bytes(stream: &Mutex<TcpStream>, bytes: &[u8]) {
    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    if stream.write_all(bytes).is_err() {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
