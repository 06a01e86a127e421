//! Plans of exchanges and their order. All ranks make the same plan.

use verbgate_segments as protocol;
use verbgate_segments::MessageKind;

use crate::hardware::LONGEST_MESSAGE;
use crate::hardware::Place;

/// Messages of a train, and every which of them completes with an entry.
pub(crate) const TRAIN: usize = 16;
pub(crate) const SIGNALED: usize = 4;
pub(crate) const TRAIN_SIZE: usize = 1024;
/// Segments of a message that have bytes.
pub(crate) const SEGMENT: usize = 1021;

/// What one step does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verb {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    /// A message of several segments, gathered.
    Message(MessageKind),
    /// Many sends, of which every few are signaled.
    Train,
}

const ATOMICS: &[Verb] = &[Verb::CompareSwap, Verb::FetchAdd];

/// The steps of an exchange from a rank to another: both make the same list.
pub(crate) fn steps(sizes: &[usize], sender: &Place, receiver: &Place) -> Vec<(Verb, usize)> {
    let mtu = 128_usize.checked_shl(sender.mtu.min(receiver.mtu)).unwrap_or(1024);
    let edges = [sender.inline, mtu].map(|edge| [edge.saturating_sub(1), edge, edge + 1]);
    let mut all: Vec<usize> = sizes.to_vec();
    if sizes.is_empty() {
        all.extend([0, 1, 7, 4099, 64 << 10, 999_983, 1 << 20]);
        all.extend(edges.iter().flatten());
    }
    // What a datagram cannot carry is cut to the longest.
    let message = sender.message.min(receiver.message);
    let sorted = |sizes: &mut Vec<usize>| {
        sizes.sort_unstable();
        sizes.dedup();
    };
    let mut sent: Vec<usize> = all.iter().map(|size| *size.min(&message)).collect();
    sorted(&mut all);
    sorted(&mut sent);
    let connected = sender.message >= LONGEST_MESSAGE;
    let mut verbs: Vec<(Verb, &[usize])> =
        [Verb::Send, Verb::SendImm].map(|verb| (verb, &*sent)).to_vec();
    if sender.write && receiver.write {
        verbs.extend([Verb::Write, Verb::WriteImm].map(|verb| (verb, &*all)));
    }
    if sender.read && receiver.read {
        verbs.push((Verb::Read, &all));
    }
    // Without a connection nothing is moved by no bytes.
    let moves = |verb: Verb, size: usize| {
        size > 0 || connected || matches!(verb, Verb::Send | Verb::SendImm)
    };
    let mut steps: Vec<(Verb, usize)> = verbs
        .iter()
        .flat_map(|(verb, sizes)| sizes.iter().map(|size| (*verb, *size)))
        .filter(|(verb, size)| moves(*verb, *size))
        .collect();
    steps.sort_by_key(|(_, size)| *size);
    if sender.atomics && receiver.atomics {
        steps.extend(ATOMICS.iter().map(|verb| (*verb, 8)));
    }
    let segment = if message >= 4 * SEGMENT { SEGMENT } else { message / 8 };
    steps.extend(protocol::KINDS.iter().map(|(kind, ..)| (Verb::Message(*kind), segment)));
    if message >= TRAIN_SIZE {
        steps.push((Verb::Train, TRAIN * TRAIN_SIZE));
    }
    steps
}

/// Whom a rank meets in each round of a tournament in which all pairs meet once, and nobody two at
/// a time.
pub(crate) fn rounds(rank: u32, ranks: u32) -> Vec<u32> {
    (0..round_count(ranks)).filter_map(|round| partner(rank, ranks, round)).collect()
}

/// Of a tournament. With an odd number somebody pauses in each round.
pub(crate) fn round_count(ranks: u32) -> u32 {
    ranks.next_multiple_of(2).saturating_sub(1)
}

/// Whom a rank meets in a round, unless it pauses (the circle method).
pub(crate) fn partner(rank: u32, ranks: u32, round: u32) -> Option<u32> {
    let last = round_count(ranks);
    let other = if rank == last {
        // Whoever would meet himself meets the last.
        (0..last).find(|other| (other + other) % last == round)?
    } else {
        let other = (round + last - rank) % last;
        if other == rank { last } else { other }
    };
    (other < ranks).then_some(other)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn in_a_tournament_all_meet_once_and_nobody_two_at_a_time() {
        for ranks in 1..=17 {
            let seats: u32 = if ranks % 2 == 0 { ranks } else { ranks + 1 };
            let mut met = BTreeSet::new();
            for rank in 0..ranks {
                let partners = rounds(rank, ranks);
                let distinct: BTreeSet<u32> = partners.iter().copied().collect();
                assert_eq!(distinct.len(), partners.len());
                assert!(!distinct.contains(&rank));
                met.extend(partners.iter().map(|other| (rank.min(*other), rank.max(*other))));
                if ranks == seats {
                    for (round, other) in partners.iter().enumerate() {
                        assert_eq!(rounds(*other, ranks)[round], rank, "round {round}");
                    }
                }
            }
            assert_eq!(met.len(), usize::try_from(ranks * (ranks - 1) / 2).unwrap());
        }
    }

    #[test]
    fn both_sides_make_the_same_steps_with_all_edges() {
        let place = |inline, mtu| Place {
            qp_num: 1,
            psn: 0,
            gid: [0; 16],
            lid: 0,
            mtu,
            address: 0,
            rkey: 0,
            inline,
            message: LONGEST_MESSAGE,
            read: true,
            write: true,
            atomics: true,
        };
        let steps = steps(&[], &place(64, 3), &place(0, 5));
        for size in [0, 1, 63, 64, 65, 1023, 1024, 1025, 64 << 10, 1 << 20, 999_983] {
            for verb in [Verb::Send, Verb::SendImm, Verb::Write, Verb::WriteImm, Verb::Read] {
                assert!(steps.contains(&(verb, size)), "{verb:?} {size}");
            }
        }
        assert!(steps.contains(&(Verb::FetchAdd, 8)));
        assert!(steps.contains(&(Verb::Message(MessageKind::PushReply), SEGMENT)));
        // A datagram carries no more than a packet, and what the device cannot is not tried.
        let of =
            |message, read| Place { message, read, write: false, atomics: false, ..place(32, 5) };
        let ud = self::steps(&[], &of(4096, false), &of(1024, false));
        assert!(ud.contains(&(Verb::Send, 1024)) && ud.contains(&(Verb::SendImm, 0)));
        let longest = ud.iter().filter(|(verb, _)| *verb != Verb::Train).map(|(_, size)| *size);
        assert_eq!(longest.max(), Some(1024));
        assert!(
            ud.iter().all(|(verb, _)| !matches!(verb, Verb::Write | Verb::Read | Verb::FetchAdd))
        );
        assert!(ud.contains(&(Verb::Message(MessageKind::Push), 128)));
        let srd = self::steps(&[64 << 10, 0], &of(8928, true), &of(8928, true));
        assert!(srd.contains(&(Verb::Send, 8928)) && srd.contains(&(Verb::Read, 64 << 10)));
        assert!(!srd.contains(&(Verb::Read, 0)) && !srd.contains(&(Verb::Send, 64 << 10)));
    }
}
