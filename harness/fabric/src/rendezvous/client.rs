//! A rank's side of the rendezvous.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Hello;
use super::Loss;
use super::Table;
use super::ToRank;
use super::ToServer;
use super::frame;
use super::voice::Voice;
use crate::error::Error;
use crate::interrupt::FAREWELL;
use crate::interrupt::Interrupt;
use crate::meeting;

/// How long one attempt to connect may take, and the pause before the next.
const ATTEMPT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);
/// What a rank waits beyond rank 0's own limit, which names the late ones.
const GRACE: Duration = Duration::from_secs(5);
/// How often somebody who waits looks whether it is interrupted.
const LOOK: Duration = Duration::from_millis(100);
/// Whoever reads frames and no more.
const STACK: usize = 256 << 10;

/// A rank's connection to the rendezvous.
#[derive(Debug)]
pub(crate) struct Link {
    voice: Arc<Voice>,
    inbox: Receiver<io::Result<ToRank>>,
    rank: u32,
    /// What others said while something else was awaited.
    early: VecDeque<(u32, Value)>,
    /// Pieces of lists for rank 0, by their stages and ranks; they come at any time.
    parts: BTreeMap<(String, u32), Vec<Box<RawValue>>>,
    /// As it came: its hash is of these bytes.
    table: String,
    strays: u64,
    /// Ranks that are not there any more: the others go on.
    pub(crate) lost: BTreeMap<u32, Loss>,
    pub(crate) interrupt: Arc<Interrupt>,
}

impl Link {
    /// Tells rank 0 who this is, and waits for the table.
    pub(crate) fn join(
        at: &str,
        hello: Hello,
        patience: Duration,
        interrupt: Arc<Interrupt>,
    ) -> Result<Self, Error> {
        let deadline = Instant::now() + patience;
        let (stream, address) = connect(at, deadline, patience, &interrupt)?;
        let lost = |e: io::Error| Error::Lost { at: address, error: e.to_string() };
        stream.set_nodelay(true).map_err(lost)?;
        let rank = hello.rank;
        frame::write(&stream, &ToServer::Hello(hello)).map_err(lost)?;
        let (sender, inbox) = mpsc::channel();
        let reader = stream.try_clone().map_err(lost)?;
        thread::Builder::new()
            .name("rendezvous".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                let mut reader = io::BufReader::new(reader);
                loop {
                    let message = frame::read(&mut reader, frame::PASSED_ON);
                    let last = message.is_err();
                    if sender.send(message).is_err() || last {
                        return;
                    }
                }
            })
            .map_err(lost)?;
        let (table, strays) = (String::new(), 0);
        let (early, parts, lost_ranks) = (VecDeque::new(), BTreeMap::new(), BTreeMap::new());
        let voice = Arc::new(Voice::new(stream, address));
        let mut link =
            Self { voice, inbox, rank, early, parts, table, strays, lost: lost_ranks, interrupt };
        let deadline = deadline + GRACE;
        loop {
            match link.next(deadline)? {
                Some(ToRank::Welcome { table, strays, absent }) => {
                    (link.table, link.strays) = (table, strays);
                    link.lost.extend(absent.into_iter().map(|rank| (rank, Loss::Absent)));
                    return Ok(link);
                }
                // Of a rank that was welcomed earlier.
                Some(ToRank::Relay { from, body }) => link.early.push_back((from, body)),
                _ => {}
            }
            if Instant::now() >= deadline {
                return Err(link.silence("rendezvous", patience.as_secs()));
            }
        }
    }

    /// Rank 0's side says nothing, not even who is late. Rank 0 does not accuse itself of that.
    fn silence(&self, stage: &str, seconds: u64) -> Error {
        match self.rank {
            0 => self.gone(&format!("no message for {seconds} s at \"{stage}\"")),
            _ => Error::Missing { stage: stage.to_owned(), ranks: vec![0], seconds },
        }
    }

    pub(crate) fn table(&self) -> Result<Table, Error> {
        serde_json::from_str(&self.table).map_err(|error| self.gone(&error.to_string()))
    }

    pub(crate) fn hash(&self) -> String {
        Table::hash(&self.table)
    }

    /// Connections that rank 0 dropped, because they were nobody's.
    pub(crate) fn strays(&self) -> u64 {
        self.strays
    }

    /// Says something to one rank.
    pub(crate) fn send(&self, to: u32, body: &impl Serialize) -> Result<(), Error> {
        self.voice.send(to, body)
    }

    /// For threads that say something, too.
    pub(crate) fn voice(&self) -> Arc<Voice> {
        Arc::clone(&self.voice)
    }

    /// The next that another rank said to this one, if it comes in time.
    pub(crate) fn receive(&mut self, patience: Duration) -> Result<Option<(u32, Value)>, Error> {
        if let Some(early) = self.early.pop_front() {
            return Ok(Some(early));
        }
        match self.next(Instant::now() + patience)? {
            Some(ToRank::Relay { from, body }) => Ok(Some((from, body))),
            _ => Ok(None),
        }
    }

    /// Gives a value, and returns the values of all ranks that are there, once the last has given its
    /// own. Meanwhile `other` hears what ranks say to this one. A rank that says nothing at all for
    /// `patience` is lost; whoever says something, to whomever, is waited for.
    pub(crate) fn gather<T: Serialize + DeserializeOwned>(
        &mut self,
        stage: &str,
        value: &T,
        patience: Duration,
        mut other: impl FnMut(&mut Self, u32, Value) -> Result<(), Error>,
    ) -> Result<BTreeMap<u32, T>, Error> {
        let value = serde_json::to_value(value).map_err(|e| self.gone(&e.to_string()))?;
        let seconds = patience.as_secs();
        self.write(&ToServer::Gather { stage: stage.to_owned(), value, seconds })?;
        let mut deadline = Instant::now() + patience + GRACE;
        let mut all = BTreeMap::new();
        loop {
            while let Some((from, body)) = self.early.pop_front() {
                other(self, from, body)?;
            }
            let next = self.next(deadline)?;
            if next.is_some() {
                // Rank 0 lives, and names those who do not.
                deadline = Instant::now() + patience + GRACE;
            }
            match next {
                Some(ToRank::Relay { from, body }) => other(self, from, body)?,
                Some(ToRank::Gathered { stage: theirs, values, last }) if theirs == stage => {
                    for (rank, value) in values {
                        let value = serde_json::from_value(value);
                        all.insert(rank, value.map_err(|e| self.gone(&e.to_string()))?);
                    }
                    if last {
                        return Ok(all);
                    }
                }
                Some(ToRank::Waiting { stage, missing }) => {
                    log::info!("{missing} ranks have yet to come to {stage:?}");
                }
                None if Instant::now() >= deadline => return Err(self.silence(stage, seconds)),
                _ => {}
            }
        }
    }

    /// A gather in which nothing else is expected; what is said meanwhile is kept.
    pub(crate) fn gather_quietly<T: Serialize + DeserializeOwned>(
        &mut self,
        stage: &str,
        value: &T,
        patience: Duration,
    ) -> Result<BTreeMap<u32, T>, Error> {
        let mut kept = VecDeque::new();
        let values = self.gather(stage, value, patience, |_, from, body| {
            kept.push_back((from, body));
            Ok(())
        });
        self.early = kept;
        values
    }

    /// Gives a list to rank 0 alone, however long, and waits until all ranks have. Rank 0 gets those
    /// of all, in the order of ranks; the others nothing.
    pub(crate) fn collect<T: Serialize + DeserializeOwned>(
        &mut self,
        stage: &str,
        items: &[T],
        patience: Duration,
        other: impl FnMut(&mut Self, u32, Value) -> Result<(), Error>,
    ) -> Result<Option<Vec<T>>, Error> {
        let mut piece = String::new();
        for item in items {
            let item = serde_json::to_string(item).map_err(|e| self.gone(&e.to_string()))?;
            if !piece.is_empty() && piece.len() + item.len() > frame::PIECE {
                self.part(stage, &std::mem::take(&mut piece))?;
            }
            piece.push(if piece.is_empty() { '[' } else { ',' });
            piece += &item;
        }
        if !piece.is_empty() {
            self.part(stage, &piece)?;
        }
        // Behind its last piece: who has this has those.
        let counts: BTreeMap<u32, usize> = self.gather(stage, &items.len(), patience, other)?;
        (self.rank == 0).then(|| self.whole(stage, &counts)).transpose()
    }

    fn part(&self, stage: &str, piece: &str) -> Result<(), Error> {
        let items = RawValue::from_string(format!("{piece}]"));
        let items = items.map_err(|e| self.gone(&e.to_string()))?;
        self.write(&ToServer::Part { stage: stage.to_owned(), items })
    }

    /// The lists of all ranks, of which each has said how long it is.
    fn whole<T: DeserializeOwned>(
        &mut self,
        stage: &str,
        counts: &BTreeMap<u32, usize>,
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::with_capacity(counts.values().sum());
        for (rank, count) in counts {
            let rank = *rank;
            let before = all.len();
            for piece in self.parts.remove(&(stage.to_owned(), rank)).unwrap_or_default() {
                let items: Vec<T> =
                    serde_json::from_str(piece.get()).map_err(|e| self.gone(&e.to_string()))?;
                all.extend(items);
            }
            let came = all.len() - before;
            if came != *count {
                return Err(Error::Check(format!(
                    "of rank {rank}'s report at \"{stage}\", only {came} of {count} entries came"
                )));
            }
        }
        Ok(all)
    }

    /// The same, with nothing else expected.
    pub(crate) fn collect_quietly<T: Serialize + DeserializeOwned>(
        &mut self,
        stage: &str,
        items: &[T],
        patience: Duration,
    ) -> Result<Option<Vec<T>>, Error> {
        let mut kept = VecDeque::new();
        let all = self.collect(stage, items, patience, |_, from, body| {
            kept.push_back((from, body));
            Ok(())
        });
        self.early = kept;
        all
    }

    /// Waits so long whether ranks that have ended come back; then they were restarted.
    pub(crate) fn await_returns(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let ended = |link: &Self| link.lost.values().any(|why| *why == Loss::Ended);
        while ended(self) && Instant::now() < deadline {
            // Whatever ends this link ends the wait, too, and is told by the next that uses the link.
            match self.next(deadline) {
                Ok(Some(ToRank::Relay { from, body })) => self.early.push_back((from, body)),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether a rank is there.
    pub(crate) fn has(&self, rank: u32) -> bool {
        !self.lost.contains_key(&rank)
    }

    /// This rank is done.
    pub(crate) fn leave(self) -> Result<(), Error> {
        self.write(&ToServer::Bye)
    }

    /// As if its process had been killed.
    pub(crate) fn vanish(&self) {
        self.voice.shut();
    }

    fn write(&self, message: &ToServer) -> Result<(), Error> {
        self.voice.write(message)
    }

    fn gone(&self, error: &str) -> Error {
        self.voice.gone(error)
    }

    /// Who is interrupted does not wait for those who have not come; those who have may still say
    /// what there is.
    fn heed(&self) -> Result<(), Error> {
        match self.interrupt.since() {
            Some(since) if self.table.is_empty() || since.elapsed() >= FAREWELL => {
                Err(Error::Interrupted)
            }
            _ => Ok(()),
        }
    }

    /// The next message, unless it is of the kind that ends everything.
    fn next(&mut self, deadline: Instant) -> Result<Option<ToRank>, Error> {
        loop {
            match self.next_of_any(deadline)? {
                Some(ToRank::Part { stage, from, items }) => {
                    self.parts.entry((stage, from)).or_default().push(items);
                }
                Some(ToRank::Lost { rank, why }) => {
                    self.lost.insert(rank, why);
                    // Whoever waits for the rank looks again.
                    return Ok(None);
                }
                other => return Ok(other),
            }
        }
    }

    fn next_of_any(&mut self, deadline: Instant) -> Result<Option<ToRank>, Error> {
        let mut left = deadline.saturating_duration_since(Instant::now());
        let mut next = self.inbox.recv_timeout(left.min(LOOK));
        while left > LOOK && matches!(next, Err(RecvTimeoutError::Timeout)) {
            self.heed()?;
            left = deadline.saturating_duration_since(Instant::now());
            next = self.inbox.recv_timeout(left.min(LOOK));
        }
        match next {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone("the connection ended")),
            Ok(Err(error)) => Err(self.gone(&error.to_string())),
            Ok(Ok(ToRank::Refused { code, reason })) => Err(Error::Refused { code, reason }),
            Ok(Ok(message)) => Ok(Some(message)),
        }
    }
}

fn connect(
    at: &str,
    deadline: Instant,
    patience: Duration,
    interrupt: &Interrupt,
) -> Result<(TcpStream, SocketAddr), Error> {
    let unresolved = |e| Error::Resolve(format!("--rendezvous {at}"), e);
    let file = meeting::file(at);
    let mut addresses: Vec<SocketAddr> = match file {
        Some(_) => Vec::new(),
        // Of rank 0's host there may be several.
        None => {
            let each: io::Result<Vec<_>> = at.split(',').map(|at| at.to_socket_addrs()).collect();
            each.map_err(unresolved)?.into_iter().flatten().collect()
        }
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    // Rank 0 may start last.
    loop {
        match file.map(meeting::read) {
            Some(Ok(found)) => addresses = found,
            Some(Err(error)) => last = error,
            None => {}
        }
        for address in &addresses {
            match TcpStream::connect_timeout(address, ATTEMPT) {
                Ok(stream) => return Ok((stream, *address)),
                Err(error) => last = error,
            }
        }
        if interrupt.has_come() {
            return Err(Error::Interrupted);
        }
        if Instant::now() >= deadline {
            let (at, seconds) = (at.to_owned(), patience.as_secs());
            return Err(Error::Unreachable { at, seconds, error: last });
        }
        thread::sleep(PAUSE);
    }
}
