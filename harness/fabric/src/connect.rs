//! All of a rank's connections: endpoints on real queue pairs, over the rendezvous.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::time::Duration;
use std::time::Instant;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::cause::Cause;
use crate::endpoint::Action;
use crate::endpoint::Counts;
use crate::endpoint::Endpoint;
use crate::endpoint::Message;
use crate::endpoint::Sid;
use crate::endpoint::State;
use crate::error::Error;
use crate::hardware::Hardware;
use crate::hardware::Made;
use crate::hardware::Place;
use crate::hardware::Rails;
use crate::hardware::TUNING;
use crate::hardware::Tuning;
use crate::known::Known;
use crate::random;
use crate::rdma_cm::Cm;
use crate::rendezvous::Link;

/// How often time passes for endpoints.
const TICK: Duration = Duration::from_millis(20);
/// Who only waits for the others' word, while threads of the rank work, waits so long at a time.
pub(crate) const WORD: Duration = Duration::from_millis(5);
/// What ranks say to each other.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Control {
    Endpoint {
        rail: usize,
        /// Of the queue pairs between two ranks on a rail.
        lane: usize,
        message: Message<Place>,
    },
    /// A step of an exchange: the receiver is ready for it, or it is over and this went wrong.
    Ready {
        rail: usize,
        step: u64,
    },
    Done {
        rail: usize,
        step: u64,
        fault: Option<String>,
    },
    /// How many datagrams of a step have arrived.
    Got {
        rail: usize,
        step: u64,
        count: u64,
    },
    /// What was measured, to rank 0, which knows its form: JSON, since very many cells may wait for rank 0.
    Cells(Vec<String>),
    /// Whether the receiver is there; that it is, and whether it is done with all exchanges.
    Ask,
    Here {
        done: bool,
    },
    /// A rank that says nothing, for all to know.
    Silent {
        rank: u32,
    },
    /// The sender's connection by rdma_cm has failed.
    Unmet {
        rail: usize,
        lane: usize,
    },
    /// A path that failed after a while, for all to know.
    Failed {
        peer: u32,
        rail: usize,
    },
}

impl Control {
    /// Of which rail's exchange it is, if it is of one.
    pub(crate) fn rail(&self) -> Option<usize> {
        match self {
            Self::Ready { rail, .. } | Self::Done { rail, .. } | Self::Got { rail, .. } => {
                Some(*rail)
            }
            _ => None,
        }
    }
}

/// One connection to one peer on one rail.
#[derive(Debug)]
pub(crate) struct Peer {
    pub rank: u32,
    pub rail: usize,
    /// Which of the queue pairs of the path, from 0.
    pub(crate) lane: usize,
    pub made: Option<Made>,
    pub(crate) theirs: Option<Place>,
    /// The peer's connection by rdma_cm has failed.
    pub(crate) unmet: bool,
    endpoint: Endpoint<Place>,
    /// What went wrong last.
    fault: Option<String>,
}

/// A connection that did not come about.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Open {
    pub(crate) peer: u32,
    pub rail: usize,
    /// A verb failed here; otherwise the other end is waited for.
    pub failed: bool,
    pub(crate) why: String,
    /// If it tells by itself.
    pub(crate) cause: Option<Cause>,
}

impl Open {
    fn words(&self, rank: u32) -> String {
        let Self { peer, rail, why, .. } = self;
        format!("rank {rank} to rank {peer} on rail {rail}: {why}")
    }
}

/// All of a rank's connections.
#[derive(Debug)]
pub(crate) struct Mesh {
    pub rank: u32,
    pub(crate) hardware: Rails,
    pub(crate) peers: Vec<Peer>,
    /// What was said of exchanges, and not yet awaited.
    pub said: VecDeque<(u32, Control)>,
    /// Of the queue pairs that are connected from now on.
    pub(crate) tuning: Tuning,
    /// Connections by rdma_cm, if they are wanted.
    pub(crate) cm: Option<Cm>,
    /// When ranks said last that they are there.
    pub(crate) alive: BTreeMap<u32, Instant>,
    /// This rank has made all of its exchanges, and ranks that have made theirs.
    pub(crate) done: bool,
    pub(crate) ended: BTreeSet<u32>,
    /// Ranks that say nothing, as somebody found.
    pub(crate) silent: BTreeSet<u32>,
    pub(crate) known: Known,
    began: Instant,
}

impl Peer {
    /// Both ends know each other's queue pair.
    pub(crate) fn is_joined(&self) -> bool {
        self.endpoint.state() == State::Connected
    }

    fn fresh(
        (hardware, lane): (&Hardware, usize),
        made: &mut Option<Made>,
        fault: &mut Option<String>,
    ) -> Option<(Sid, Place)> {
        match hardware.make(lane) {
            Ok(fresh) => {
                let said = (fresh.sid, fresh.place.clone());
                *made = Some(fresh);
                Some(said)
            }
            Err(why) => {
                *fault = Some(why);
                None
            }
        }
    }

    fn join(
        &self,
        hardware: &Hardware,
        tuning: Tuning,
        mine: Sid,
        place: &Place,
    ) -> Result<(), String> {
        let made = self.made.as_ref().filter(|made| made.sid == mine);
        hardware.join(made.ok_or("the session's queue pair is gone")?, tuning, place)
    }
}

impl Mesh {
    /// One connection to each other rank on each rail, none of them begun.
    pub(crate) fn new(rank: u32, ranks: u32, hardware: Rails) -> Self {
        Self::wide(rank, ranks, hardware, 1)
    }

    /// So many connections to each other rank on each rail.
    pub(crate) fn wide(rank: u32, ranks: u32, hardware: Rails, lanes: usize) -> Self {
        let others = (0..ranks).filter(|other| *other != rank);
        let rails = hardware.len();
        let each =
            move || (0..rails).flat_map(move |rail| (0..lanes).map(move |lane| (rail, lane)));
        let peers = others.flat_map(|rank| {
            each().map(move |(rail, lane)| Peer {
                rank,
                rail,
                lane,
                made: None,
                theirs: None,
                unmet: false,
                endpoint: Endpoint::new(),
                fault: None,
            })
        });
        let peers = peers.collect();
        let (said, tuning, began) = (VecDeque::new(), TUNING, Instant::now());
        let (alive, silent, known) = (BTreeMap::new(), BTreeSet::new(), Known::default());
        let (done, ended) = (false, BTreeSet::new());
        Self {
            rank,
            hardware,
            peers,
            said,
            tuning,
            cm: None,
            alive,
            done,
            ended,
            silent,
            known,
            began,
        }
    }

    /// Connects to all, whoever begins, and waits until all others have, too.
    pub(crate) fn connect(
        &mut self,
        link: &mut Link,
        stage: &str,
        patience: Duration,
    ) -> Result<(), Error> {
        let mut open = self.begin(link, patience)?;
        if open.is_empty() {
            open = self.by_cm(link, stage, patience)?;
        }
        if !open.is_empty() {
            let seconds = patience.as_secs();
            let what = open.into_iter().map(|open| open.words(self.rank)).collect();
            return Err(Error::Unconnected { seconds, what });
        }
        link.gather(stage, &(), patience, |link, from, body| self.hear(link, from, body))?;
        Ok(())
    }

    /// Connects to all that it can; what no rank could, each as the rank saw it that tells.
    pub(crate) fn connect_some(
        &mut self,
        link: &mut Link,
        stage: &str,
        patience: Duration,
    ) -> Result<Vec<(u32, Open)>, Error> {
        let mut open = self.begin(link, patience)?;
        open.extend(self.by_cm(link, stage, patience)?);
        let all = link
            .gather(stage, &open, patience * 2, |link, from, body| self.hear(link, from, body))?;
        Ok(all
            .into_iter()
            .flat_map(|(rank, all)| all.into_iter().map(move |o| (rank, o)))
            .collect())
    }

    /// Leaves out what is not to be connected.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32, usize) -> bool) {
        self.peers.retain(|peer| keep(peer.rank, peer.rail));
    }

    /// Connects, until all are or no more have been for so long; which are not.
    fn begin(&mut self, link: &mut Link, patience: Duration) -> Result<Vec<Open>, Error> {
        let mut deadline = Instant::now() + patience;
        let (mut begun, mut most) = (false, 0);
        let missing = |mesh: &Self, link: &Link| {
            let there = mesh.peers.iter().filter(|peer| link.has(peer.rank));
            there.filter(|peer| peer.endpoint.state() != State::Connected).count()
        };
        while missing(self, link) > 0 {
            let connected = self.peers.len() - missing(self, link);
            if connected > most {
                (most, deadline) = (connected, Instant::now() + patience);
            }
            for index in 0..self.peers.len() {
                self.act(link, index, |endpoint, now, fresh| {
                    if begun { endpoint.tick(now, fresh) } else { endpoint.start(now, fresh) }
                })?;
            }
            begun = true;
            if link.interrupt.has_come() {
                return Err(Error::Interrupted);
            }
            if Instant::now() >= deadline {
                return Ok(self.unconnected());
            }
            if let Some((from, body)) = link.receive(TICK)? {
                self.hear(link, from, body)?;
            }
        }
        Ok(Vec::new())
    }

    /// Closes all; how many queue pairs are left over after that.
    pub(crate) fn close(
        &mut self,
        link: &mut Link,
        stage: &str,
        patience: Duration,
    ) -> Result<usize, Error> {
        for index in 0..self.peers.len() {
            self.act(link, index, |endpoint, _, _| endpoint.close())?;
        }
        link.gather(stage, &(), patience, |link, from, body| self.hear(link, from, body))?;
        self.cm.iter_mut().for_each(Cm::clear);
        let left = self.peers.iter().filter(|peer| peer.made.is_some()).count();
        for peer in &mut self.peers {
            (peer.endpoint, peer.theirs, peer.fault) = (Endpoint::new(), None, None);
        }
        Ok(left)
    }

    /// What all endpoints have seen.
    pub(crate) fn counts(&self) -> Counts {
        self.peers.iter().map(|peer| peer.endpoint.counts()).fold(Counts::default(), |a, b| {
            Counts {
                duplicates: a.duplicates + b.duplicates,
                strangers: a.strangers + b.strangers,
                restarts: a.restarts + b.restarts,
                failures: a.failures + b.failures,
            }
        })
    }

    fn unconnected(&self) -> Vec<Open> {
        let open = self.peers.iter().filter(|peer| peer.endpoint.state() != State::Connected);
        open.map(|peer| {
            let state = match peer.endpoint.pair() {
                Some((mine, theirs)) => {
                    format!("waits for the peer (sessions {:x} and {:x})", mine.0, theirs.0)
                }
                None => "the peer does not answer".to_owned(),
            };
            let (failed, why) = (peer.fault.is_some(), peer.fault.clone().unwrap_or(state));
            Open { peer: peer.rank, rail: peer.rail, failed, why, cause: None }
        })
        .collect()
    }

    /// What another rank said, at any time.
    pub(crate) fn hear(&mut self, link: &mut Link, from: u32, body: Value) -> Result<(), Error> {
        // What is not understood was not meant for this version, which all ranks have: drop it.
        let Ok(control) = serde_json::from_value(body) else { return Ok(()) };
        let (rail, lane, message) = match control {
            Control::Endpoint { rail, lane, message } => (rail, lane, message),
            Control::Ask => return link.send(from, &Control::Here { done: self.done }),
            Control::Here { done } => {
                self.alive.insert(from, Instant::now());
                self.ended.extend(Some(from).filter(|_| done));
                return Ok(());
            }
            Control::Silent { rank } => {
                // Whoever says so of this rank is wrong.
                self.silent.extend(Some(rank).filter(|rank| *rank != self.rank));
                return Ok(());
            }
            Control::Unmet { rail, lane } => {
                let of = |peer: &&mut Peer| (peer.rank, peer.rail, peer.lane) == (from, rail, lane);
                self.peers.iter_mut().find(of).into_iter().for_each(|peer| peer.unmet = true);
                return Ok(());
            }
            Control::Failed { peer, rail } => {
                self.known.note(from, peer, rail);
                return Ok(());
            }
            other => {
                self.said.push_back((from, other));
                return Ok(());
            }
        };
        let of = |peer: &Peer| (peer.rank, peer.rail, peer.lane) == (from, rail, lane);
        let Some(index) = self.peers.iter().position(of) else { return Ok(()) };
        let nonce =
            random::unique().map_err(|error| Error::Io { what: "/dev/urandom".into(), error })?;
        self.act(link, index, |endpoint, now, fresh| endpoint.receive(message, now, fresh, nonce))
    }

    /// Hears all that the others have said; who has said nothing yet may take so long.
    pub(crate) fn listen(&mut self, link: &mut Link, pause: Duration) -> Result<(), Error> {
        let mut pause = pause;
        while let Some((from, body)) = link.receive(pause)? {
            self.hear(link, from, body)?;
            pause = Duration::ZERO;
        }
        Ok(())
    }

    /// Tells all other ranks.
    pub(crate) fn tell_all(&self, link: &Link, control: &Control) -> Result<(), Error> {
        let ranks: BTreeSet<u32> = self.peers.iter().map(|peer| peer.rank).collect();
        ranks.into_iter().filter(|rank| link.has(*rank)).try_for_each(|to| link.send(to, control))
    }

    /// Lets one endpoint act, and does what it asks for.
    fn act(
        &mut self,
        link: &mut Link,
        index: usize,
        act: impl FnOnce(
            &mut Endpoint<Place>,
            Duration,
            crate::endpoint::Fresh<'_, Place>,
        ) -> Vec<Action<Place>>,
    ) -> Result<(), Error> {
        let (now, tuning) = (self.began.elapsed(), self.tuning);
        let Some(peer) = self.peers.get_mut(index) else { return Ok(()) };
        let Some(hardware) = self.hardware.get(peer.rail) else { return Ok(()) };
        let by_cm = self.cm.is_some();
        let on = (hardware, peer.lane);
        let Peer { endpoint, made, fault, .. } = peer;
        let mut work: VecDeque<_> = act(endpoint, now, &mut || Peer::fresh(on, made, fault)).into();
        while let Some(action) = work.pop_front() {
            match action {
                Action::Send(message) => {
                    let (rail, lane) = (peer.rail, peer.lane);
                    link.send(peer.rank, &Control::Endpoint { rail, lane, message })?;
                }
                // Both ends know all, and rdma_cm connects them afterwards.
                Action::Join { qp, .. } if by_cm => peer.theirs = Some(qp),
                Action::Join { mine, qp, .. } => match peer.join(hardware, tuning, mine, &qp) {
                    Ok(()) => peer.theirs = Some(qp),
                    Err(why) => {
                        peer.fault = Some(why);
                        work = peer.endpoint.fail(mine, now).into();
                    }
                },
                Action::Discard(sid) => {
                    peer.made = None;
                    let Peer { endpoint, made, fault, .. } = &mut *peer;
                    work.extend(endpoint.discarded(sid, now, &mut || Peer::fresh(on, made, fault)));
                }
            }
        }
        Ok(())
    }
}
