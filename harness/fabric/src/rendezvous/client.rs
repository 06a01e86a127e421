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
use super::Table;
use super::ToRank;
use super::ToServer;
use super::frame;
use crate::error::Error;
use crate::interrupt::FAREWELL;
use crate::interrupt::Interrupt;

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
    stream: TcpStream,
    at: SocketAddr,
    inbox: Receiver<io::Result<ToRank>>,
    rank: u32,
    /// What others said while something else was awaited.
    early: VecDeque<(u32, Value)>,
    /// Pieces of lists for rank 0, by their stages and ranks; they come at any time.
    parts: BTreeMap<(String, u32), Vec<Box<RawValue>>>,
    /// As it came: its hash is of these bytes.
    table: String,
    strays: u64,
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
        let (early, parts) = (VecDeque::new(), BTreeMap::new());
        let mut link =
            Self { stream, at: address, inbox, rank, early, parts, table, strays, interrupt };
        let deadline = deadline + GRACE;
        loop {
            match link.next(deadline)? {
                Some(ToRank::Welcome { table, strays }) => {
                    (link.table, link.strays) = (table, strays);
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
            0 => self.lost(&format!("no message for {seconds} s at \"{stage}\"")),
            _ => Error::Missing { stage: stage.to_owned(), ranks: vec![0], seconds },
        }
    }

    pub(crate) fn table(&self) -> Result<Table, Error> {
        serde_json::from_str(&self.table).map_err(|error| self.lost(&error.to_string()))
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
        let body = serde_json::to_value(body).map_err(|e| self.lost(&e.to_string()))?;
        self.write(&ToServer::Relay { to, body })
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

    /// Gives a value, and returns all ranks' values, in their order, once the last has given its
    /// own. Meanwhile `other` hears what ranks say to this one.
    pub(crate) fn gather<T: Serialize + DeserializeOwned>(
        &mut self,
        stage: &str,
        value: &T,
        patience: Duration,
        mut other: impl FnMut(&mut Self, u32, Value) -> Result<(), Error>,
    ) -> Result<Vec<T>, Error> {
        let value = serde_json::to_value(value).map_err(|e| self.lost(&e.to_string()))?;
        let seconds = patience.as_secs();
        self.write(&ToServer::Gather { stage: stage.to_owned(), value, seconds })?;
        let deadline = Instant::now() + patience + GRACE;
        let mut all = Vec::new();
        loop {
            while let Some((from, body)) = self.early.pop_front() {
                other(self, from, body)?;
            }
            match self.next(deadline)? {
                Some(ToRank::Relay { from, body }) => other(self, from, body)?,
                Some(ToRank::Gathered { stage: theirs, values, last }) if theirs == stage => {
                    for value in values {
                        let value = serde_json::from_value(value);
                        all.push(value.map_err(|e| self.lost(&e.to_string()))?);
                    }
                    if last {
                        return Ok(all);
                    }
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
    ) -> Result<Vec<T>, Error> {
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
            let item = serde_json::to_string(item).map_err(|e| self.lost(&e.to_string()))?;
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
        let counts: Vec<usize> = self.gather(stage, &items.len(), patience, other)?;
        (self.rank == 0).then(|| self.whole(stage, &counts)).transpose()
    }

    fn part(&self, stage: &str, piece: &str) -> Result<(), Error> {
        let items = RawValue::from_string(format!("{piece}]"));
        let items = items.map_err(|e| self.lost(&e.to_string()))?;
        self.write(&ToServer::Part { stage: stage.to_owned(), items })
    }

    /// The lists of all ranks, of which each has said how long it is.
    fn whole<T: DeserializeOwned>(
        &mut self,
        stage: &str,
        counts: &[usize],
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::with_capacity(counts.iter().sum());
        for (rank, count) in (0..).zip(counts) {
            let before = all.len();
            for piece in self.parts.remove(&(stage.to_owned(), rank)).unwrap_or_default() {
                let items: Vec<T> =
                    serde_json::from_str(piece.get()).map_err(|e| self.lost(&e.to_string()))?;
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

    /// Whether a rank that has gone comes back in this time.
    pub(crate) fn returns(&mut self, gone: u32, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            match self.next(deadline) {
                Err(Error::Restarted { rank, .. }) if rank == gone => return true,
                // Rank 0 has ended, and nobody tells any more.
                Err(Error::Lost { .. }) => return false,
                _ => {}
            }
        }
        false
    }

    /// This rank is done.
    pub(crate) fn leave(self) -> Result<(), Error> {
        self.write(&ToServer::Bye)
    }

    /// As if its process had been killed.
    #[cfg(test)]
    pub(super) fn vanish(&self) {
        // Its end is gone, or has gone before.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    fn write(&self, message: &ToServer) -> Result<(), Error> {
        frame::write(&self.stream, message).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Error::Check(format!("for the rendezvous, {error}")),
            _ => self.lost(&error.to_string()),
        })
    }

    fn lost(&self, error: &str) -> Error {
        Error::Lost { at: self.at, error: error.to_owned() }
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
            Err(RecvTimeoutError::Disconnected) => Err(self.lost("the connection ended")),
            Ok(Err(error)) => Err(self.lost(&error.to_string())),
            Ok(Ok(ToRank::Refused { code, reason })) => Err(Error::Refused { code, reason }),
            Ok(Ok(ToRank::Missing { stage, ranks, seconds })) => {
                Err(Error::Missing { stage, ranks, seconds })
            }
            Ok(Ok(ToRank::Gone { rank })) => Err(Error::Gone { rank }),
            Ok(Ok(ToRank::Restarted { rank, host })) => Err(Error::Restarted { rank, host }),
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
    let addresses: Vec<SocketAddr> = at.to_socket_addrs().map_err(unresolved)?.collect();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    // Rank 0 may start last.
    loop {
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
