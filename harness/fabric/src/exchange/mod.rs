//! The exchange: every verb and every size between two ranks on one rail, compared byte by byte.

mod desk;
mod fault;
mod wait;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Weak;

pub(crate) use desk::Desk;
pub(crate) use fault::Fault;
pub(crate) use fault::INTERRUPTED;
pub(crate) use fault::Trouble;
use fault::step;
use verbgate_segments as protocol;
use verbgate_segments::MessageKind;
use verbgate_segments::Role;
use verbgate_verbs::Completion;
use verbgate_verbs::Operation;
use verbgate_verbs::Piece;
use verbgate_verbs::QueuePair;
use verbgate_verbs::Region;
use verbgate_verbs::Transport;

use crate::cause::Cause;
use crate::connect::Control;
use crate::connect::Mesh;
use crate::connect::Peer;
use crate::error::Error;
use crate::hardware::Hardware;
use crate::hardware::IN;
use crate::hardware::OUT;
use crate::hardware::Place;
use crate::hardware::TARGET;
use crate::injection::Injection;
use crate::random;
use crate::steps::SEGMENT;
use crate::steps::SIGNALED;
use crate::steps::TRAIN;
use crate::steps::TRAIN_SIZE;
use crate::steps::Verb;
use crate::steps::steps;

/// One pair's exchange on one rail, in a thread of its own.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) rank: u32,
    pub(crate) rail: usize,
    /// This end's, and the peer's.
    places: Option<(Place, Place)>,
    /// Gone once the connection is.
    queue_pair: Weak<QueuePair>,
    pub(crate) hardware: Option<Arc<Hardware>>,
    /// Completions that were taken from the rail's queue, and not yet awaited.
    completed: VecDeque<Completion>,
    desk: &'a Desk,
    injection: Option<Injection>,
}

/// What the end says that leaves a path out.
pub(crate) const KNOWN: &str = "not tried: enough is known of this rail";
/// What the end says whose time is over.
pub(crate) const OVER: &str = "not tried: the time is over";
/// How often unreliable datagrams are sent again that do not arrive.
const AGAIN: u32 = 2;
/// At which step it ends.
const EXIT_STEP: u64 = 7;

/// The first byte that differs.
fn compare(found: &[u8], expected: &[u8]) -> Result<(), Fault> {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    let at = at.unwrap_or(found.len().min(expected.len()));
    let length = expected.len();
    let words = format!("the data differs: byte {at} of {length} is not the byte that was sent");
    Err(step(words).because(Cause::DataDiffers))
}

impl<'a> Exchange<'a> {
    /// With the peer of the desk, who is at the other end of this connection.
    pub(crate) fn new(
        mesh: &Mesh,
        peer: &Peer,
        desk: &'a Desk,
        injection: Option<Injection>,
    ) -> Self {
        let Peer { rail, made, theirs, .. } = peer;
        let made = made.as_ref();
        Self {
            rank: mesh.rank,
            rail: *rail,
            places: made.map(|made| made.place.clone()).zip(theirs.clone()),
            queue_pair: made.map_or_else(Weak::new, |made| Arc::downgrade(&made.qp)),
            hardware: mesh.hardware.share(*rail),
            completed: VecDeque::new(),
            desk,
            injection,
        }
    }
}

impl Exchange<'_> {
    /// Both directions, the lower rank's first; the number of steps of each, and of bytes.
    pub(crate) fn run(&mut self, sizes: &[usize]) -> Result<(usize, usize), Fault> {
        let (mine, theirs) = self.places()?;
        let (me, peer) = (self.rank, self.desk.peer);
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
    pub(crate) fn give_up(&self, why: &str) -> Result<(), Error> {
        let (rail, fault) = (self.rail, Some(why.to_owned()));
        self.desk.say(&Control::Done { rail, step: u64::MAX, fault })
    }

    fn places(&self) -> Result<(Place, Place), Fault> {
        self.places.clone().ok_or_else(|| step("the connection is gone"))
    }

    fn payload(&self, rank: u32, number: u64, length: usize) -> Vec<u8> {
        let rail = u64::try_from(self.rail).unwrap_or(0);
        random::payload(rank, rail << 32 | number, length)
    }

    fn send(&mut self, number: u64, verb: Verb, size: usize) -> Result<(), Fault> {
        self.await_ready(number)?;
        loop {
            self.operate(number, verb, size)?;
            let (rail, fault) = (self.rail, None);
            self.desk.say(&Control::Done { rail, step: number, fault })?;
            // Of an unreliable datagram only the receiver knows whether it is to be sent again.
            if self.transport() != Transport::Ud || self.has_arrived(number)? {
                return Ok(());
            }
        }
    }

    /// The sender's part.
    fn operate(&mut self, number: u64, verb: Verb, size: usize) -> Result<(), Fault> {
        let (mine, theirs) = self.places()?;
        let (me, peer) = (self.rank, self.desk.peer);
        let Place { address, mut rkey, .. } = theirs;
        match self.injection {
            Some(Injection::WrongRkey) => rkey ^= 0xff,
            // As if it had been killed: nobody is told.
            Some(Injection::Exit) if number >= EXIT_STEP => std::process::exit(9),
            Some(Injection::Hang) if number >= EXIT_STEP => {
                println!("injected: hangs");
                self.desk.hang();
            }
            _ => {}
        }
        let immediate = u32::try_from(number).unwrap_or(0);
        let mut data = self.payload(me, number, size);
        if let (Some(Injection::WrongData), Some(byte)) = (self.injection, data.last_mut()) {
            *byte ^= 0xff;
        }
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
        let region = self.source()?;
        region.write(at, &if fetches { vec![0; size] } else { data })?;
        let fits = size <= mine.inline || self.injection == Some(Injection::LongInline);
        // EFA takes bytes inline that it sends, and none that it writes.
        let takes = self.transport() == Transport::Rc || matches!(verb, Verb::Send | Verb::SendImm);
        let inline = !fetches && size > 0 && fits && takes;
        let signaled = self.injection != Some(Injection::Unsignaled);
        let piece = Piece { region: &region, offset: at, length: size };
        let pieces = if size == 0 { &[][..] } else { &[piece][..] };
        self.queue_pair()?.post_send(number, operation, pieces, signaled, inline)?;
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
    fn send_message(&mut self, number: u64, kind: MessageKind, size: usize) -> Result<(), Fault> {
        let by = format!("rank {} (sending)", self.rank);
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
        // Datagrams of devices that gather few pieces lie in one.
        let gathers = self.transport() == Transport::Rc;
        let apart = if gathers { 2 * SEGMENT } else { 0 };
        let mut whole = header.len();
        for (index, length) in (0..).zip(&lengths) {
            let at = if gathers { offset } else { OUT + whole };
            region.write(at, &self.payload(self.rank, number << 8 | index, *length))?;
            if *length > 0 && gathers {
                pieces.push(Piece { region: &region, offset, length: *length });
            }
            (offset, whole) = (offset + apart, whole + length);
        }
        if !gathers {
            pieces = vec![Piece { region: &region, offset: OUT, length: whole }];
        }
        self.queue_pair()?.post_send(number, Operation::Send, &pieces, true, false)?;
        self.complete(number)?;
        Ok(())
    }

    fn send_train(&mut self, number: u64, data: &[u8]) -> Result<(), Fault> {
        let region = self.region()?;
        region.write(OUT, data)?;
        // Datagrams may end in any order, and of EFA each has an entry, asked for or not.
        let every = if self.transport() == Transport::Rc { SIGNALED } else { 1 };
        for car in 0..TRAIN {
            let offset = OUT + car * TRAIN_SIZE;
            let piece = Piece { region: &region, offset, length: TRAIN_SIZE };
            let signaled = (car + 1) % every == 0;
            self.queue_pair()?.post_send(number, Operation::Send, &[piece], signaled, false)?;
        }
        for _ in 0..TRAIN / every {
            self.complete(number)?;
        }
        Ok(())
    }

    /// The receiver's part.
    fn receive(&mut self, number: u64, verb: Verb, size: usize) -> Result<(), Fault> {
        let region = self.region()?;
        let me = self.rank;
        let before = self.before();
        let mut receives = 0;
        match verb {
            Verb::Send | Verb::SendImm | Verb::Message(_) => {
                // Whatever a message is, its receive has room for the longest.
                let length = if let Verb::Message(_) = verb { 4 * SEGMENT } else { size };
                region.write(IN, &vec![0; before + length])?;
                self.post(number, IN, before + length)?;
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
                let room = before + TRAIN_SIZE;
                region.write(IN, &vec![0; TRAIN * room])?;
                for car in 0..TRAIN {
                    self.post(number, IN + car * room, room)?;
                }
                receives = TRAIN;
            }
        }
        let (rail, step) = (self.rail, number);
        let mut last = None;
        for attempt in 0.. {
            self.desk.say(&Control::Ready { rail, step })?;
            self.await_done(number)?;
            let mut arrived = 0;
            let lost = loop {
                if arrived == receives {
                    break None;
                }
                match self.arrival(number) {
                    Ok(completion) => (last, arrived) = (Some(completion), arrived + 1),
                    Err(fault) if attempt < AGAIN && is_lost(&fault) => break Some(arrived),
                    Err(fault) => return Err(fault),
                }
            };
            let Some(arrived) = lost else { break };
            // All are sent again: behind the receives that are left, those that were used.
            for car in 0..arrived {
                let room = before + TRAIN_SIZE;
                self.post(number, IN + car * room, room)?;
            }
        }
        if self.transport() == Transport::Ud {
            let count = u64::try_from(receives).unwrap_or(0);
            self.desk.say(&Control::Got { rail, step, count })?;
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
        let (region, peer) = (self.region()?, self.desk.peer);
        if let (Verb::SendImm | Verb::WriteImm, Some(completion)) = (verb, last) {
            let found = u64::from(u32::from_be(completion.imm_data));
            if found != number {
                return Err(step(format!("the immediate is {found}, not {number}")));
            }
        }
        let before = self.before();
        let length = last.map_or(0, |c| usize::try_from(c.byte_len).unwrap_or(usize::MAX));
        let length = length.saturating_sub(before);
        match verb {
            Verb::Send | Verb::SendImm if length != size => {
                Err(step(format!("{length} bytes arrived of {size}")))
            }
            Verb::Send | Verb::SendImm => {
                compare(&region.read(IN + before, size)?, &self.payload(peer, number, size))
            }
            Verb::Train => self.check_train(&self.payload(peer, number, size)),
            Verb::Write | Verb::WriteImm => {
                compare(&region.read(TARGET, size)?, &self.payload(peer, number, size))
            }
            Verb::Read => Ok(()),
            Verb::CompareSwap => compare(&region.read(TARGET, 8)?, &(!number).to_ne_bytes()),
            Verb::FetchAdd => compare(&region.read(TARGET, 8)?, &(2 * number + 1).to_ne_bytes()),
            Verb::Message(kind) => {
                let by = format!("rank {peer}");
                let bytes = region.read(IN + before, length)?;
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

    /// All cars, in the order of the connection; datagrams come in any order.
    fn check_train(&self, expected: &[u8]) -> Result<(), Fault> {
        let (region, before) = (self.region()?, self.before());
        let cars = (0..TRAIN)
            .map(|car| region.read(IN + car * (before + TRAIN_SIZE) + before, TRAIN_SIZE))
            .collect::<Result<Vec<Vec<u8>>, _>>()?;
        if self.transport() == Transport::Rc {
            return compare(&cars.concat(), expected);
        }
        for (number, sent) in expected.chunks(TRAIN_SIZE).enumerate() {
            if !cars.iter().any(|car| car == sent) {
                let words =
                    format!("the data differs: message {number} of {TRAIN} did not arrive as sent");
                return Err(step(words).because(Cause::DataDiffers));
            }
        }
        Ok(())
    }

    fn transport(&self) -> Transport {
        self.hardware.as_ref().map_or(Transport::Rc, |of| of.needs.transport)
    }

    /// Bytes before what is received.
    fn before(&self) -> usize {
        self.hardware.as_ref().map_or(0, |of| of.needs.before())
    }

    fn hardware(&self) -> Result<Arc<Hardware>, Fault> {
        self.hardware.clone().ok_or_else(|| step("no such rail"))
    }

    fn region(&self) -> Result<Region, Fault> {
        Ok(self.hardware()?.region.clone())
    }

    /// The memory of what is sent.
    fn source(&self) -> Result<Region, Fault> {
        match self.injection {
            Some(Injection::ForeignMemory) => Ok(self.hardware()?.foreign()?),
            _ => self.region(),
        }
    }

    fn queue_pair(&self) -> Result<Arc<QueuePair>, Fault> {
        self.queue_pair.upgrade().ok_or_else(|| step("the connection is gone"))
    }

    fn post(&mut self, number: u64, offset: usize, length: usize) -> Result<(), Fault> {
        if self.injection == Some(Injection::NoReceives) {
            return Ok(());
        }
        let region = self.region()?;
        // Of no bytes, EFA makes no receive.
        let least = usize::from(self.transport() != Transport::Rc);
        let length = length.max(least);
        let piece = Piece { region: &region, offset, length };
        let pieces = if length == 0 { &[][..] } else { &[piece][..] };
        Ok(self.queue_pair()?.post_receive(number, pieces)?)
    }
}

fn is_lost(fault: &Fault) -> bool {
    matches!(fault, Fault::Step(Trouble { cause: Some(Cause::PacketLoss), .. }))
}

/// The lengths of a message's segments.
fn lengths(kind: MessageKind, size: usize) -> Vec<usize> {
    let length = |role: &Role| if *role == Role::NoValues { 0 } else { size };
    kind.roles().iter().map(length).collect()
}
