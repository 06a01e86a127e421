//! The states of an end, as a table.

/// Where an end stands.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum State {
    /// No session.
    Unconnected,
    /// A session, of which the peer may not know yet.
    Connecting,
    /// The queue pair is connected; the peer's may not be, so nothing may be sent.
    WaitReady,
    /// Both queue pairs are connected.
    Connected,
    /// The session is over, and its queue pair is being destroyed.
    Closing,
    /// Closed by its owner, for good.
    Dead,
}

/// What happens to an end.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Event {
    /// Its owner or its peer wants the connection.
    Start,
    /// The peer has heard of this session.
    Echoed,
    /// The peer's queue pair is connected to this session's.
    PeerReady,
    /// The peer proved that it lives in another session than the one this end is paired with.
    Replaced,
    /// The queue pair failed, or the time is up.
    Failed,
    /// The owner is done.
    Close,
    /// The peer is done.
    PeerClosed,
    /// The queue pair is destroyed, and the owner still wants a connection.
    Discarded,
    /// The queue pair is destroyed, and the owner is done.
    Finished,
}

/// Every transition there is; an event that has none in a state changes nothing.
#[rustfmt::skip]
const TRANSITIONS: &[(State, Event, State)] = &[
    (State::Unconnected, Event::Start,      State::Connecting),
    (State::Unconnected, Event::Close,      State::Dead),
    (State::Connecting,  Event::Echoed,     State::WaitReady),
    (State::Connecting,  Event::PeerReady,  State::Connected),
    (State::Connecting,  Event::Failed,     State::Closing),
    (State::Connecting,  Event::Close,      State::Closing),
    (State::WaitReady,   Event::PeerReady,  State::Connected),
    (State::WaitReady,   Event::Replaced,   State::Closing),
    (State::WaitReady,   Event::Failed,     State::Closing),
    (State::WaitReady,   Event::Close,      State::Closing),
    (State::WaitReady,   Event::PeerClosed, State::Closing),
    (State::Connected,   Event::Replaced,   State::Closing),
    (State::Connected,   Event::Failed,     State::Closing),
    (State::Connected,   Event::Close,      State::Closing),
    (State::Connected,   Event::PeerClosed, State::Closing),
    (State::Closing,     Event::Discarded,  State::Unconnected),
    (State::Closing,     Event::Finished,   State::Dead),
];

pub(super) fn next(state: State, event: Event) -> Option<State> {
    TRANSITIONS.iter().find(|(from, on, _)| (*from, *on) == (state, event)).map(|(_, _, to)| *to)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const STATES: [State; 6] = [
        State::Unconnected,
        State::Connecting,
        State::WaitReady,
        State::Connected,
        State::Closing,
        State::Dead,
    ];

    #[test]
    fn the_table_says_one_thing_of_each_state_and_event_and_the_dead_stay_dead() {
        let mut seen = Vec::new();
        for (from, event, _) in TRANSITIONS {
            assert!(!seen.contains(&(from, event)), "{from:?} {event:?} twice");
            assert_ne!(*from, State::Dead);
            seen.push((from, event));
        }
        let reached: BTreeSet<_> = TRANSITIONS.iter().map(|(_, _, to)| *to as usize).collect();
        assert_eq!(reached.len(), STATES.len());
        // A queue pair is used once: a session that was connected ends before another begins.
        for state in [State::WaitReady, State::Connected] {
            for (from, _, to) in TRANSITIONS.iter().filter(|(from, ..)| *from == state) {
                assert!(matches!(to, State::Connected | State::Closing), "{from:?} -> {to:?}");
            }
        }
    }
}
