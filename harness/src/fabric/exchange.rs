//! Every verb and every size between two ranks on one rail, each compared byte by byte.

use std::time::Duration;
use std::time::Instant;

use clap::ValueEnum;
use serde::Deserialize;
use serde::Serialize;
use verbgate_sys::rdma::Completion;
use verbgate_sys::rdma::Operation;
use verbgate_sys::rdma::Piece;

use crate::fabric::cause::Cause;
use crate::fabric::connect::Control;
use crate::fabric::connect::Mesh;
use crate::fabric::error::Error;
use crate::fabric::explain;
use crate::fabric::hardware::IN;
use crate::fabric::hardware::OUT;
use crate::fabric::hardware::Place;
use crate::fabric::hardware::TARGET;
use crate::fabric::plan::SEGMENT;
use crate::fabric::plan::SIGNALED;
use crate::fabric::plan::TRAIN;
use crate::fabric::plan::TRAIN_SIZE;
use crate::fabric::plan::Verb;
use crate::fabric::plan::steps;
use crate::fabric::protocol;
use crate::fabric::protocol::Kind;
use crate::fabric::protocol::Role;
use crate::fabric::random;
use crate::fabric::rendezvous::Link;

/// How long a step may take: longer than a queue pair repeats before it gives up.
const STEP: Duration = Duration::from_secs(20);
/// How often somebody who polls looks.
const POLL: Duration = Duration::from_micros(50);
/// What became of an exchange that was not over.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// One pair's exchange on one rail.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) mesh: &'a mut Mesh,
    pub(crate) link: &'a mut Link,
    /// Of the connection, in the mesh.
    pub(crate) peer: usize,
    /// The peer may still be busy with another before its first step.
    pub(crate) patience: Duration,
    pub(crate) injection: Option<Injection>,
}

/// What went wrong with one exchange.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Trouble {
    /// For people.
    pub(crate) words: String,
    /// `enum ibv_wc_status`, if a completion told.
    pub(crate) status: Option<u32>,
    /// The peer found it, and said so.
    pub(crate) heard: bool,
    /// The peer said nothing.
    pub(crate) hangs: bool,
    /// What is wrong, if it tells by itself.
    pub(crate) cause: Option<Cause>,
    /// The step, from 0: those before it went well.
    pub(crate) at: u64,
}

/// Why an exchange ended; or the end of everything.
#[derive(Debug)]
pub(crate) enum Fault {
    Step(Trouble),
    All(Error),
}

/// A fault that a test puts in, to see what is said of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Injection {
    /// It posts no receives.
    NoReceives,
    /// It uses another rkey than it was given.
    WrongRkey,
    /// It leaves out the last segment of each message.
    Segments,
    /// It ends in the middle of an exchange.
    Exit,
    /// It stops there, and says nothing more.
    Hang,
    /// It repeats for ever what the peer has no receive for.
    Patient,
    /// It says that its rails speak RoCE v1, which Soft-RoCE cannot.
    RoceV1,
}

/// At which step it ends.
const EXIT_STEP: u64 = 7;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::All(error)
    }
}

impl From<verbgate_sys::rdma::Error> for Fault {
    fn from(error: verbgate_sys::rdma::Error) -> Self {
        step(error.to_string())
    }
}

impl From<protocol::Violation> for Fault {
    fn from(violation: protocol::Violation) -> Self {
        step(violation.to_string()).because(match violation {
            protocol::Violation::Segments { .. } => Cause::SegmentCount,
            _ => Cause::DataDiffers,
        })
    }
}

impl Fault {
    fn because(mut self, cause: Cause) -> Self {
        if let Self::Step(trouble) = &mut self {
            trouble.cause = Some(cause);
        }
        self
    }
}

fn step(words: impl Into<String>) -> Fault {
    Fault::Step(Trouble { words: words.into(), ..Trouble::default() })
}

/// What a completion says, unless it is of success.
fn judge(completion: Completion) -> Result<Completion, Fault> {
    if completion.status == 0 {
        return Ok(completion);
    }
    let (words, status) = (explain::words(&completion), Some(completion.status));
    let cause = Some(Cause::of_status(completion.status));
    Err(Fault::Step(Trouble { words, status, cause, ..Trouble::default() }))
}

/// The first byte that differs.
fn compare(found: &[u8], expected: &[u8]) -> Result<(), Fault> {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    let at = at.unwrap_or(found.len().min(expected.len()));
    let length = expected.len();
    let words = format!("the data differs: byte {at} of {length} is not what was sent");
    Err(step(words).because(Cause::DataDiffers))
}

impl Exchange<'_> {
    /// Both directions, the lower rank's first; the number of steps of each, and of bytes.
    pub(crate) fn run(&mut self, sizes: &[usize]) -> Result<(usize, usize), Fault> {
        let (mine, theirs) = self.places()?;
        let (me, peer) = (self.mesh.rank, self.peer_rank());
        let mut bytes = 0;
        let mut number = 0;
        for sender in [me.min(peer), me.max(peer)] {
            let (from, to) = if sender == me { (&mine, &theirs) } else { (&theirs, &mine) };
            for (verb, size) in steps(sizes, from, to) {
                let done = if sender == me {
                    self.send(number, verb, size)
                } else {
                    self.receive(number, verb, size)
                };
                done.map_err(|fault| match fault {
                    Fault::Step(mut trouble) => {
                        let words = trouble.words;
                        trouble.at = number;
                        trouble.words =
                            format!("step {number} ({verb:?} of {size} bytes): {words}");
                        Fault::Step(trouble)
                    }
                    all => all,
                })?;
                (number, bytes) = (number + 1, bytes + size);
            }
        }
        Ok((usize::try_from(number).unwrap_or(0), bytes))
    }

    /// Tells the peer that this end has given up, so that it does not wait.
    pub(crate) fn give_up(&mut self, why: &str) -> Result<(), Error> {
        let (rail, fault) = (self.rail(), Some(why.to_owned()));
        self.link.send(self.peer_rank(), &Control::Done { rail, step: u64::MAX, fault })
    }

    fn places(&self) -> Result<(Place, Place), Fault> {
        let peer = self.mesh.peers.get(self.peer);
        let places = peer.and_then(|p| Some((p.made.as_ref()?.place.clone(), p.theirs.clone()?)));
        places.ok_or_else(|| step("the connection is gone"))
    }

    fn peer_rank(&self) -> u32 {
        self.mesh.peers.get(self.peer).map_or(u32::MAX, |peer| peer.rank)
    }

    fn rail(&self) -> usize {
        self.mesh.peers.get(self.peer).map_or(usize::MAX, |peer| peer.rail)
    }

    fn payload(&self, rank: u32, number: u64, length: usize) -> Vec<u8> {
        let rail = u64::try_from(self.rail()).unwrap_or(0);
        random::payload(rank, rail << 32 | number, length)
    }

    fn send(&mut self, number: u64, verb: Verb, size: usize) -> Result<(), Fault> {
        self.await_ready(number)?;
        self.operate(number, verb, size)?;
        let (rail, fault) = (self.rail(), None);
        let done = Control::Done { rail, step: number, fault };
        Ok(self.link.send(self.peer_rank(), &done)?)
    }

    /// The sender's part.
    fn operate(&mut self, number: u64, verb: Verb, size: usize) -> Result<(), Fault> {
        let (mine, theirs) = self.places()?;
        let (me, peer) = (self.mesh.rank, self.peer_rank());
        let Place { address, mut rkey, .. } = theirs;
        match self.injection {
            Some(Injection::WrongRkey) => rkey ^= 0xff,
            // As if it had been killed: nobody is told.
            Some(Injection::Exit) if number >= EXIT_STEP => std::process::exit(9),
            Some(Injection::Hang) if number >= EXIT_STEP => {
                println!("injected: hangs");
                loop {
                    std::thread::park();
                }
            }
            _ => {}
        }
        let immediate = u32::try_from(number).unwrap_or(0);
        let data = self.payload(me, number, size);
        let operation = match verb {
            Verb::Send => Operation::Send,
            Verb::SendImm => Operation::SendImm(immediate),
            Verb::Write => Operation::Write(address, rkey),
            Verb::WriteImm => Operation::WriteImm(address, rkey, immediate),
            Verb::Read => Operation::Read(address, rkey),
            Verb::CompareSwap => Operation::CompareSwap(address, rkey, number, !number),
            Verb::FetchAdd => Operation::FetchAdd(address, rkey, number + 1),
            Verb::Message(kind) => return self.send_message(number, kind, size),
            Verb::Train => return self.send_train(number, &data),
        };
        let fetches = matches!(verb, Verb::Read | Verb::CompareSwap | Verb::FetchAdd);
        let at = if fetches { IN } else { OUT };
        let region = self.region()?;
        region.write(at, &if fetches { vec![0; size] } else { data })?;
        let inline = !fetches && size > 0 && size <= mine.inline;
        let piece = Piece { region: &region, offset: at, length: size };
        let pieces = if size == 0 { &[][..] } else { &[piece][..] };
        self.queue_pair()?.post_send(number, operation, pieces, true, inline)?;
        self.complete(number)?;
        if fetches {
            let expected = match verb {
                Verb::Read => self.payload(peer, number, size),
                _ => number.to_ne_bytes().to_vec(),
            };
            compare(&region.read(IN, size)?, &expected)?;
        }
        Ok(())
    }

    /// Header and segments of a message lie apart, and are gathered by the device.
    fn send_message(&mut self, number: u64, kind: Kind, size: usize) -> Result<(), Fault> {
        let by = format!("rank {} (sending)", self.mesh.rank);
        let mut lengths = lengths(kind, size);
        let header = if self.injection == Some(Injection::Segments) {
            lengths.pop();
            protocol::unchecked(kind, &lengths)
        } else {
            protocol::header(kind, &lengths, &by)?
        };
        let region = self.region()?;
        region.write(OUT, &header)?;
        let mut pieces = vec![Piece { region: &region, offset: OUT, length: header.len() }];
        let mut offset = OUT + 4096;
        for (index, length) in (0..).zip(&lengths) {
            region.write(offset, &self.payload(self.mesh.rank, number << 8 | index, *length))?;
            if *length > 0 {
                pieces.push(Piece { region: &region, offset, length: *length });
            }
            offset += 2 * SEGMENT;
        }
        self.queue_pair()?.post_send(number, Operation::Send, &pieces, true, false)?;
        self.complete(number)?;
        Ok(())
    }

    fn send_train(&mut self, number: u64, data: &[u8]) -> Result<(), Fault> {
        let region = self.region()?;
        region.write(OUT, data)?;
        for car in 0..TRAIN {
            let offset = OUT + car * TRAIN_SIZE;
            let piece = Piece { region: &region, offset, length: TRAIN_SIZE };
            let signaled = (car + 1) % SIGNALED == 0;
            self.queue_pair()?.post_send(number, Operation::Send, &[piece], signaled, false)?;
        }
        for _ in 0..TRAIN / SIGNALED {
            self.complete(number)?;
        }
        Ok(())
    }

    /// The receiver's part.
    fn receive(&mut self, number: u64, verb: Verb, size: usize) -> Result<(), Fault> {
        let region = self.region()?;
        let (me, peer) = (self.mesh.rank, self.peer_rank());
        let mut receives = 0;
        match verb {
            Verb::Send | Verb::SendImm | Verb::Message(_) => {
                // Whatever a message is, its receive has room for the longest.
                let length = if let Verb::Message(_) = verb { 4 * SEGMENT } else { size };
                region.write(IN, &vec![0; length])?;
                self.post(number, IN, length)?;
                receives = 1;
            }
            Verb::WriteImm => {
                region.write(TARGET, &vec![0; size])?;
                self.post(number, IN, 0)?;
                receives = 1;
            }
            Verb::Write => region.write(TARGET, &vec![0; size])?,
            Verb::Read => region.write(TARGET, &self.payload(me, number, size))?,
            Verb::CompareSwap | Verb::FetchAdd => region.write(TARGET, &number.to_ne_bytes())?,
            Verb::Train => {
                region.write(IN, &vec![0; size])?;
                for car in 0..TRAIN {
                    self.post(number, IN + car * TRAIN_SIZE, TRAIN_SIZE)?;
                }
                receives = TRAIN;
            }
        }
        let rail = self.rail();
        self.link.send(peer, &Control::Ready { rail, step: number })?;
        self.await_done(number)?;
        let mut last = None;
        for _ in 0..receives {
            last = Some(self.complete(number)?);
        }
        self.check(number, verb, size, last.as_ref())
    }

    /// What arrived, against what was sent.
    fn check(
        &self,
        number: u64,
        verb: Verb,
        size: usize,
        last: Option<&Completion>,
    ) -> Result<(), Fault> {
        let (region, peer) = (self.region()?, self.peer_rank());
        if let (Verb::SendImm | Verb::WriteImm, Some(completion)) = (verb, last) {
            let found = u64::from(u32::from_be(completion.imm_data));
            if found != number {
                return Err(step(format!("the immediate is {found}, not {number}")));
            }
        }
        let length = last.map_or(0, |c| usize::try_from(c.byte_len).unwrap_or(usize::MAX));
        match verb {
            Verb::Send | Verb::SendImm if length != size => {
                Err(step(format!("{length} bytes arrived of {size}")))
            }
            Verb::Send | Verb::SendImm | Verb::Train => {
                compare(&region.read(IN, size)?, &self.payload(peer, number, size))
            }
            Verb::Write | Verb::WriteImm => {
                compare(&region.read(TARGET, size)?, &self.payload(peer, number, size))
            }
            Verb::Read => Ok(()),
            Verb::CompareSwap => compare(&region.read(TARGET, 8)?, &(!number).to_ne_bytes()),
            Verb::FetchAdd => compare(&region.read(TARGET, 8)?, &(2 * number + 1).to_ne_bytes()),
            Verb::Message(kind) => {
                let by = format!("rank {peer}");
                let bytes = region.read(IN, length)?;
                let (found, segments) = protocol::parse(&bytes, &by)?;
                if found != kind {
                    return Err(step(format!("{by}: a {found} instead of a {kind}")));
                }
                (0..).zip(segments).try_for_each(|(index, segment)| {
                    compare(segment, &self.payload(peer, number << 8 | index, segment.len()))
                })
            }
        }
    }

    fn region(&self) -> Result<verbgate_sys::rdma::Region, Fault> {
        let hardware = self.mesh.hardware.get(self.rail());
        hardware.map(|hardware| hardware.region.clone()).ok_or_else(|| step("no such rail"))
    }

    fn queue_pair(&mut self) -> Result<&mut verbgate_sys::rdma::QueuePair, Fault> {
        let made = self.mesh.peers.get_mut(self.peer).and_then(|peer| peer.made.as_mut());
        made.map(|made| &mut made.qp).ok_or_else(|| step("the connection is gone"))
    }

    fn post(&mut self, number: u64, offset: usize, length: usize) -> Result<(), Fault> {
        if self.injection == Some(Injection::NoReceives) {
            return Ok(());
        }
        let region = self.region()?;
        let piece = Piece { region: &region, offset, length };
        let pieces = if length == 0 { &[][..] } else { &[piece][..] };
        Ok(self.queue_pair()?.post_receive(number, pieces)?)
    }

    /// The next completion on the rail; other pairs' exchanges have none outstanding.
    fn complete(&mut self, number: u64) -> Result<Completion, Fault> {
        let deadline = Instant::now() + STEP;
        let rail = self.rail();
        let queue_pair = self.queue_pair()?.number();
        let buffer = &mut self.mesh.completed;
        loop {
            if let Some(completion) = buffer.pop_front() {
                // Of an exchange that was given up, something may be left.
                if (completion.qp_num, completion.wr_id) == (queue_pair, number) {
                    return judge(completion);
                }
                continue;
            }
            let Some(hardware) = self.mesh.hardware.get(rail) else {
                return Err(step("no such rail"));
            };
            buffer.extend(hardware.cq.poll()?);
            if buffer.is_empty() {
                if self.link.interrupt.has_come() {
                    return Err(step(INTERRUPTED));
                }
                if Instant::now() >= deadline {
                    let seconds = STEP.as_secs();
                    return Err(step(format!(
                        "STALL: no completion in {seconds} s (`verbgate explain STALL`)"
                    ))
                    .because(Cause::Stall));
                }
                std::thread::sleep(POLL);
            }
        }
    }

    fn await_ready(&mut self, number: u64) -> Result<(), Fault> {
        self.await_word(number, |control| matches!(control, Control::Ready { .. }))
    }

    fn await_done(&mut self, number: u64) -> Result<(), Fault> {
        self.await_word(number, |control| matches!(control, Control::Done { .. }))
    }

    /// Waits for the peer's word on this step.
    fn await_word(&mut self, number: u64, is: impl Fn(&Control) -> bool) -> Result<(), Fault> {
        let (peer, rail) = (self.peer_rank(), self.rail());
        let patience = if number == 0 { self.patience } else { STEP * 2 };
        let deadline = Instant::now() + patience;
        loop {
            let of_this = |(from, control): &(u32, Control)| match control {
                Control::Ready { rail: r, .. } | Control::Done { rail: r, .. } => {
                    (*from, *r) == (peer, rail)
                }
                Control::Endpoint { .. } | Control::Cells(_) => false,
            };
            let found = self.mesh.said.iter().position(of_this);
            if let Some((_, control)) = found.and_then(|index| self.mesh.said.remove(index)) {
                match &control {
                    Control::Done { fault: Some(why), .. } => {
                        let words = format!("rank {peer} says: {why}");
                        let trouble = Trouble { words, heard: true, ..Trouble::default() };
                        return Err(Fault::Step(trouble));
                    }
                    Control::Ready { step: n, .. } | Control::Done { step: n, .. }
                        if *n == number && is(&control) =>
                    {
                        return Ok(());
                    }
                    _ => continue,
                }
            }
            if self.link.interrupt.has_come() {
                return Err(step(INTERRUPTED));
            }
            if Instant::now() >= deadline {
                let seconds = patience.as_secs();
                let words = format!("rank {peer} hangs: no word from it in {seconds} s");
                let cause = Some(Cause::PeerHangs);
                let trouble = Trouble { words, hangs: true, cause, ..Trouble::default() };
                return Err(Fault::Step(trouble));
            }
            if let Some((from, body)) = self.link.receive(Duration::from_millis(100))? {
                self.mesh.hear(self.link, from, body)?;
            }
        }
    }
}

/// The lengths of a message's segments.
fn lengths(kind: Kind, size: usize) -> Vec<usize> {
    let length = |role: &Role| if *role == Role::NoValues { 0 } else { size };
    kind.roles().iter().map(length).collect()
}
