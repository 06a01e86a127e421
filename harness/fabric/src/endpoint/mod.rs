//! One end of a connection: the states that a pair of ranks goes through on one rail, as a table,
//! without any input or output of its own.
//!
//! Both ends may start, at any time, over a network that loses, repeats and reorders messages, and
//! either end may restart. Each attempt is a *session*: a random number and a queue pair that is
//! used once. A connection is the pair of both ends' sessions, so the connection is the same
//! whoever began. Two simultaneous opens are no special case: there is nothing to choose.
//!
//! A session is spent (its queue pair is connected) only on a message that *echoes* the session,
//! since only a peer that lives at the same time can know the session's number. A message of an
//! unknown session to a connected end may come from a restarted peer, or be a late message of a
//! dead peer. The end challenges such a session, and only a living peer can confirm.
//!
//! Handlers return [`Action`]s and never wait, so that no lock is held over a network call and
//! the passive side calls nobody.

#[cfg(test)]
mod sim;
mod table;

use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;

use table::Event;
pub(crate) use table::State;
use table::next;

/// A session's random number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Sid(pub u64);

/// First and longest interval between repetitions of what was not answered.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long an attempt may take: longer than the longest pause, so that two ends that fail in turn
/// still meet.
const ATTEMPT: Duration = Duration::from_secs(10);
/// First and longest pause of a rail after a failed attempt.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));

/// What one end tells the other. `Q` is where a queue pair is.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) struct Message<Q> {
    /// The sender's session.
    pub(crate) sid: Sid,
    /// The receiver's session, as far as the sender knows.
    pub(crate) echo: Option<Sid>,
    /// The rest.
    pub(crate) body: Body<Q>,
}

/// What a message says.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) enum Body<Q> {
    /// This session wants to be connected.
    Hello(Q),
    /// This session's queue pair is connected to that of `echo`. `acked`: and so is yours.
    Ready { qp: Q, acked: bool },
    /// Is your session still `about`?
    Challenge { about: Sid, nonce: u64 },
    /// It is.
    Confirm { nonce: u64 },
    /// The connection is closed.
    Bye,
}

/// What the driver has to do, in this order; after a `Join` that fails it leaves the rest out and
/// calls [`Endpoint::fail`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Action<Q> {
    /// Send it to the peer; it may get lost.
    Send(Message<Q>),
    /// Connect the queue pair of session `mine` to the peer's.
    Join { mine: Sid, theirs: Sid, qp: Q },
    /// Destroy the queue pair of a session, then call [`Endpoint::discarded`].
    Discard(Sid),
}

/// Makes a session: a random number, and a new queue pair's place. None if it cannot.
pub(crate) type Fresh<'a, Q> = &'a mut dyn FnMut() -> Option<(Sid, Q)>;

/// What an end has seen.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Counts {
    /// Messages that said nothing new.
    pub(crate) duplicates: u64,
    /// Messages of sessions that were not the peer's present one.
    pub(crate) strangers: u64,
    /// Restarts of the peer.
    pub(crate) restarts: u64,
    /// Attempts that failed.
    pub(crate) failures: u64,
}

#[derive(Clone, Debug)]
struct Attempt<Q> {
    sid: Sid,
    qp: Q,
    /// The peer's session that was heard of last; once the queue pair is connected, the one it is
    /// connected to.
    theirs: Option<Sid>,
    began: Duration,
    repeat_at: Duration,
    interval: Duration,
}

/// One end of one connection. Times are since any fixed moment.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint<Q> {
    state: State,
    session: Option<Attempt<Q>>,
    /// The session that was asked whether it lives, and the number that it has to know.
    challenge: Option<(Sid, u64)>,
    wanted: bool,
    closed: bool,
    pause: Duration,
    paused_until: Duration,
    counts: Counts,
}

impl<Q: Clone> Endpoint<Q> {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Unconnected,
            session: None,
            challenge: None,
            wanted: false,
            closed: false,
            pause: PAUSE.0,
            paused_until: Duration::ZERO,
            counts: Counts::default(),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Both sessions, own first, once the queue pair is connected.
    pub(crate) fn pair(&self) -> Option<(Sid, Sid)> {
        let joined = matches!(self.state, State::WaitReady | State::Connected);
        let session = self.session.as_ref().filter(|_| joined)?;
        Some((session.sid, session.theirs?))
    }

    /// The owner wants a connection, now and after each failure.
    pub(crate) fn start(&mut self, now: Duration, fresh: Fresh<'_, Q>) -> Vec<Action<Q>> {
        self.wanted = true;
        self.begin(now, fresh);
        if self.state == State::Connecting { self.hello() } else { Vec::new() }
    }

    /// The owner wants none any more.
    pub(crate) fn close(&mut self) -> Vec<Action<Q>> {
        let bye = self.pair().map(|(sid, theirs)| {
            Action::Send(Message { sid, echo: Some(theirs), body: Body::Bye })
        });
        (self.wanted, self.closed) = (false, true);
        let over = self.over(Event::Close);
        bye.into_iter().chain(over).collect()
    }

    /// The queue pair of this session failed; of an earlier one it is no news.
    pub(crate) fn fail(&mut self, sid: Sid, now: Duration) -> Vec<Action<Q>> {
        if self.session.as_ref().is_none_or(|session| session.sid != sid) {
            return Vec::new();
        }
        self.failed(now)
    }

    /// The queue pair of this session is destroyed.
    pub(crate) fn discarded(
        &mut self,
        sid: Sid,
        now: Duration,
        fresh: Fresh<'_, Q>,
    ) -> Vec<Action<Q>> {
        if self.session.as_ref().is_none_or(|session| session.sid != sid) {
            return Vec::new();
        }
        let event = if self.closed { Event::Finished } else { Event::Discarded };
        if !self.go(event) {
            return Vec::new();
        }
        self.session = None;
        if self.wanted { self.start(now, fresh) } else { Vec::new() }
    }

    /// Time passes: what was not answered is repeated, an attempt that takes too long fails, and a
    /// pause ends.
    pub(crate) fn tick(&mut self, now: Duration, fresh: Fresh<'_, Q>) -> Vec<Action<Q>> {
        match (self.state, &mut self.session) {
            (State::Unconnected, _) if self.wanted => self.start(now, fresh),
            (State::Connecting | State::WaitReady, Some(session)) => {
                if now >= session.began + ATTEMPT {
                    return self.failed(now);
                }
                if now < session.repeat_at {
                    return Vec::new();
                }
                session.interval = (session.interval * 2).min(RETRY.1);
                session.repeat_at = now + session.interval;
                if self.state == State::Connecting { self.hello() } else { self.ready() }
            }
            _ => Vec::new(),
        }
    }

    /// The peer said this.
    pub(crate) fn receive(
        &mut self,
        message: Message<Q>,
        now: Duration,
        fresh: Fresh<'_, Q>,
        nonce: u64,
    ) -> Vec<Action<Q>> {
        let Message { sid, echo, body } = message;
        match body {
            Body::Challenge { about, nonce } => self.challenged(sid, about, nonce),
            Body::Confirm { nonce } => self.confirmed(sid, nonce),
            Body::Bye => {
                if self.pair().is_some_and(|(mine, theirs)| (echo, sid) == (Some(mine), theirs)) {
                    self.over(Event::PeerClosed)
                } else {
                    self.counts.strangers += 1;
                    Vec::new()
                }
            }
            Body::Hello(qp) => self.heard(sid, echo, qp, None, now, fresh, nonce),
            Body::Ready { qp, acked } => self.heard(sid, echo, qp, Some(acked), now, fresh, nonce),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a message's parts, and what to answer with")]
    fn heard(
        &mut self,
        sid: Sid,
        echo: Option<Sid>,
        qp: Q,
        ready: Option<bool>,
        now: Duration,
        fresh: Fresh<'_, Q>,
        nonce: u64,
    ) -> Vec<Action<Q>> {
        if self.state == State::Unconnected {
            self.begin(now, fresh);
        }
        let Some(session) = &mut self.session else { return Vec::new() };
        let mine = session.sid;
        match self.state {
            State::Connecting => {
                session.theirs = Some(sid);
                if echo != Some(mine) {
                    return self.hello();
                }
                session.repeat_at = now + session.interval;
                self.go(if ready.is_some() { Event::PeerReady } else { Event::Echoed });
                let join = Action::Join { mine, theirs: sid, qp };
                std::iter::once(join).chain(self.ready()).collect()
            }
            State::WaitReady | State::Connected if session.theirs == Some(sid) => {
                self.counts.duplicates += u64::from(self.state == State::Connected);
                if ready.is_some() && echo == Some(mine) {
                    self.go(Event::PeerReady);
                }
                if ready == Some(true) { Vec::new() } else { self.ready() }
            }
            State::WaitReady | State::Connected => {
                self.counts.strangers += 1;
                let (_, nonce) = *self.challenge.insert(match self.challenge {
                    Some((about, nonce)) if about == sid => (about, nonce),
                    _ => (sid, nonce),
                });
                let body = Body::Challenge { about: sid, nonce };
                vec![Action::Send(Message { sid: mine, echo: None, body })]
            }
            State::Unconnected | State::Closing | State::Dead => Vec::new(),
        }
    }

    fn challenged(&mut self, by: Sid, about: Sid, nonce: u64) -> Vec<Action<Q>> {
        let lives = matches!(self.state, State::Connecting | State::WaitReady | State::Connected);
        match &self.session {
            Some(session) if lives && session.sid == about => {
                let body = Body::Confirm { nonce };
                vec![Action::Send(Message { sid: about, echo: Some(by), body })]
            }
            _ => Vec::new(),
        }
    }

    fn confirmed(&mut self, sid: Sid, nonce: u64) -> Vec<Action<Q>> {
        if self.challenge != Some((sid, nonce)) || self.pair().is_none() {
            self.counts.strangers += 1;
            return Vec::new();
        }
        self.counts.restarts += 1;
        // Whoever was connected goes on being so, with the peer as it is now.
        self.wanted = true;
        self.over(Event::Replaced)
    }

    /// A new session, unless paused or done.
    fn begin(&mut self, now: Duration, fresh: Fresh<'_, Q>) {
        if self.state != State::Unconnected || now < self.paused_until {
            return;
        }
        let Some((sid, qp)) = fresh() else {
            self.counts.failures += 1;
            return self.pause(now);
        };
        self.go(Event::Start);
        self.challenge = None;
        let (interval, began) = (RETRY.0, now);
        let repeat_at = now + interval;
        self.session = Some(Attempt { sid, qp, theirs: None, began, repeat_at, interval });
    }

    fn failed(&mut self, now: Duration) -> Vec<Action<Q>> {
        self.counts.failures += 1;
        self.pause(now);
        self.over(Event::Failed)
    }

    /// A rail that fails is not spun on.
    fn pause(&mut self, now: Duration) {
        self.paused_until = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE.1);
    }

    /// The session is over.
    fn over(&mut self, event: Event) -> Vec<Action<Q>> {
        if !self.go(event) {
            return Vec::new();
        }
        self.session.iter().map(|session| Action::Discard(session.sid)).collect()
    }

    fn hello(&self) -> Vec<Action<Q>> {
        self.say(|qp| Body::Hello(qp))
    }

    fn ready(&self) -> Vec<Action<Q>> {
        let acked = self.state == State::Connected;
        self.say(|qp| Body::Ready { qp, acked })
    }

    fn say(&self, body: impl Fn(Q) -> Body<Q>) -> Vec<Action<Q>> {
        let say = |session: &Attempt<Q>| Message {
            sid: session.sid,
            echo: session.theirs,
            body: body(session.qp.clone()),
        };
        self.session.iter().map(|session| Action::Send(say(session))).collect()
    }

    /// Whether the event means something in this state.
    fn go(&mut self, event: Event) -> bool {
        let Some(state) = next(self.state, event) else { return false };
        self.state = state;
        if state == State::Connected {
            self.pause = PAUSE.0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_that_fails_is_paused_longer_each_time_and_not_for_ever() {
        let mut end = Endpoint::<u32>::new();
        let mut pauses = Vec::new();
        let mut now = Duration::ZERO;
        for sid in 0..6 {
            let mut fresh = || Some((Sid(sid), 0));
            assert!(matches!(end.start(now, &mut fresh)[..], [Action::Send(_)]));
            end.fail(Sid(sid), now);
            assert!(end.discarded(Sid(sid), now, &mut || panic!("spins")).is_empty());
            let before = now;
            while end.paused_until > now {
                assert!(end.tick(now, &mut || panic!("spins")).is_empty());
                now += Duration::from_millis(100);
            }
            pauses.push((now - before).as_millis());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 4000, 4000]);
    }

    #[test]
    fn closing_tells_the_peer_and_nothing_reopens_it() {
        let (mut a, mut b) = (Endpoint::<u32>::new(), Endpoint::<u32>::new());
        let now = Duration::ZERO;
        let (mut fresh_a, mut fresh_b) = (|| Some((Sid(1), 1)), || Some((Sid(2), 2)));
        let mut to_b = a.start(now, &mut fresh_a);
        for _ in 0..4 {
            let mut to_a = Vec::new();
            for action in to_b {
                if let Action::Send(m) = action {
                    to_a.extend(b.receive(m, now, &mut fresh_b, 0));
                }
            }
            to_b = Vec::new();
            for action in to_a {
                if let Action::Send(m) = action {
                    to_b.extend(a.receive(m, now, &mut fresh_a, 0));
                }
            }
        }
        assert_eq!((a.pair(), b.pair()), (Some((Sid(1), Sid(2))), Some((Sid(2), Sid(1)))));
        let [Action::Send(bye), Action::Discard(Sid(1))] = &a.close()[..] else { panic!() };
        assert_eq!(b.receive(bye.clone(), now, &mut fresh_b, 0), [Action::Discard(Sid(2))]);
        assert!(a.discarded(Sid(1), now, &mut fresh_a).is_empty());
        assert_eq!((a.state(), b.state()), (State::Dead, State::Closing));
        assert!(a.start(now, &mut || panic!("reopened")).is_empty());
    }
}
