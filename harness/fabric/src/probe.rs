//! The probe: one small packet on every path at the same time, and then one as long as the path's
//! MTU. Whatever is dead shows within the time of one failure, however many ranks there are, and what
//! drops long packets alone is told from what drops them all.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use verbgate_verbs::Completion;
use verbgate_verbs::Operation;
use verbgate_verbs::Piece;
use verbgate_verbs::Transport;

use crate::cause::Cause;
use crate::connect::Mesh;
use crate::counters;
use crate::error::Error;
use crate::exchange::Trouble;
use crate::explain;
use crate::hardware::IN;
use crate::hardware::OUT;
use crate::known::PathTo;
use crate::options::Identity;
use crate::rendezvous::Link;

/// `wr_id` of the probe's work requests: no step of an exchange has these. Receives have numbers of
/// their own.
const SMALL: u64 = u64::MAX - 1;
const LARGE: u64 = u64::MAX;
const RECEIVES: u64 = 2;
/// In bytes.
const SMALLEST: usize = 1;
/// How often the others are heard meanwhile.
const LISTEN: Duration = Duration::from_millis(1);

/// By rail and queue pair.
type Flying = BTreeMap<(usize, u32), PathTo>;

/// What the probe found on this rank's paths.
#[derive(Debug, Default)]
pub(crate) struct Probed {
    pub(crate) troubles: BTreeMap<PathTo, Trouble>,
    /// Counters of each rail that moved meanwhile, of those that tell.
    pub(crate) evidence: BTreeMap<usize, BTreeMap<String, u64>>,
}

/// Probes all paths that are connected. Both ends hear of each that is bad.
pub(crate) fn run(
    me: &Identity,
    mesh: &mut Mesh,
    link: &mut Link,
    wait: Duration,
) -> Result<Probed, Error> {
    let mut probed = Probed::default();
    for (id, name) in [(SMALL, "probe"), (LARGE, "probe of long packets")] {
        let before = counted(mesh);
        let found = packets(mesh, link, id, &probed, wait)?;
        let after = counted(mesh);
        for (rail, after) in after {
            let none = BTreeMap::new();
            let moved = counters::moved(before.get(&rail).unwrap_or(&none), &after);
            let told = counters::telling(moved, !found.is_empty());
            let evidence = probed.evidence.entry(rail).or_default();
            told.into_iter().for_each(|(name, by)| *evidence.entry(name).or_default() += by);
        }
        // Nobody uses the memory for something else before all are done.
        let bad: Vec<(u32, usize, String)> = found
            .iter()
            .map(|((peer, rail), trouble)| (*peer, *rail, trouble.words.clone()))
            .collect();
        let all = link.gather(name, &bad, wait, |link, from, body| mesh.hear(link, from, body))?;
        probed.troubles.extend(found);
        heard(me.rank, all, &mut probed.troubles);
    }
    Ok(probed)
}

/// A path that its other end has found bad is bad here, too; what this end has found by itself tells more.
fn heard(
    rank: u32,
    all: BTreeMap<u32, Vec<(u32, usize, String)>>,
    troubles: &mut BTreeMap<PathTo, Trouble>,
) {
    for (from, bad) in all {
        for (_, rail, words) in bad.into_iter().filter(|(peer, ..)| *peer == rank) {
            let (words, heard) = (format!("rank {from} says: {words}"), true);
            let trouble = Trouble { words, heard, ..Trouble::default() };
            troubles.entry((from, rail)).or_insert(trouble);
        }
    }
}

fn counted(mesh: &Mesh) -> BTreeMap<usize, BTreeMap<String, u64>> {
    mesh.hardware.iter().map(|(rail, hardware)| (rail, counters::of(&hardware.rail))).collect()
}

/// One packet on each path; which did not arrive.
fn packets(
    mesh: &mut Mesh,
    link: &mut Link,
    id: u64,
    probed: &Probed,
    wait: Duration,
) -> Result<BTreeMap<PathTo, Trouble>, Error> {
    let mut found = BTreeMap::new();
    let mut flying = Flying::new();
    let mut awaited = receives(mesh, link, id, probed)?;
    if mesh.hardware.iter().any(|(_, hardware)| hardware.needs.transport != Transport::Rc) {
        // Nobody sends before all have a place for what comes.
        let stage = if id == SMALL { "receives" } else { "receives of long packets" };
        link.gather(stage, &(), wait, |link, from, body| mesh.hear(link, from, body))?;
    }
    let mut lengths: BTreeMap<PathTo, usize> = BTreeMap::new();
    for peer in &mesh.peers {
        let way = (peer.rank, peer.rail);
        let (Some(made), Some(theirs)) = (&peer.made, &peer.theirs) else { continue };
        let Some(hardware) = mesh.hardware.get(peer.rail) else { continue };
        if probed.troubles.contains_key(&way) || !link.has(peer.rank) {
            continue;
        }
        let mtu = 128_usize.checked_shl(made.place.mtu.min(theirs.mtu)).unwrap_or(SMALLEST);
        let mtu = mtu.min(made.place.message).min(theirs.message);
        let length = if id == SMALL { SMALLEST } else { mtu };
        let piece = Piece { region: &hardware.region, offset: OUT, length };
        let operation = match hardware.needs.transport {
            Transport::Rc => Operation::Write(theirs.address, theirs.rkey),
            Transport::Ud | Transport::Srd => Operation::Send,
        };
        lengths.insert(way, length);
        match made.qp.post_send(id, operation, &[piece], true, false) {
            Ok(()) => drop(flying.insert((peer.rail, made.place.qp_num), way)),
            Err(error) => {
                let cause = Some(Cause::Failed);
                let words = error.to_string();
                found.insert(way, Trouble { words, cause, ..Trouble::default() });
            }
        }
    }
    let words = |way: &PathTo, what: &str| {
        let length = lengths.get(way).copied().unwrap_or(0);
        format!("a packet of {length} bytes does not arrive: {what}")
    };
    let patience = mesh.tuning.gives_up_after();
    let deadline = Instant::now() + patience;
    let open = |flying: &Flying, awaited: &Flying| !flying.is_empty() || !awaited.is_empty();
    while open(&flying, &awaited) && Instant::now() < deadline && !link.interrupt.has_come() {
        for (rail, hardware) in mesh.hardware.iter() {
            for completion in hardware.poll()? {
                let Completion { qp_num, status, wr_id, .. } = completion;
                if wr_id == id - RECEIVES {
                    awaited.remove(&(rail, qp_num));
                    continue;
                }
                let of = flying.remove(&(rail, qp_num)).filter(|_| wr_id == id);
                if let Some(way) = of.filter(|_| status != 0) {
                    let cause = Some(of_class(Cause::of_status(status), id));
                    let words = words(&way, &explain::words(&completion));
                    let status = Some(status);
                    found.insert(way, Trouble { words, status, cause, ..Trouble::default() });
                    awaited.retain(|_, from| *from != way);
                }
            }
        }
        if let Some((from, body)) = link.receive(LISTEN)? {
            mesh.hear(link, from, body)?;
        }
        flying.retain(|_, (rank, _)| link.has(*rank));
        awaited.retain(|_, (rank, _)| link.has(*rank));
    }
    if link.interrupt.has_come() {
        return Ok(found);
    }
    for way in flying.values().copied().collect::<BTreeSet<PathTo>>() {
        let seconds = patience.as_secs();
        let words =
            words(&way, &format!("STALL: no completion in {seconds} s (`verbgate explain STALL`)"));
        let cause = Some(of_class(Cause::Stall, id));
        // What repeats for ever would move counters while other paths are tried.
        let of = |peer: &&crate::connect::Peer| (peer.rank, peer.rail) == way;
        let made = mesh.peers.iter().find(of).and_then(|peer| peer.made.as_ref());
        let _ = made.map(|made| made.qp.abort());
        found.insert(way, Trouble { words, cause, ..Trouble::default() });
    }
    for way in awaited.into_values() {
        let seconds = patience.as_secs();
        let words = words(&way, &format!("no datagram from rank {} in {seconds} s", way.0));
        let cause = Some(of_class(Cause::NothingArrives, id));
        found.entry(way).or_insert(Trouble { words, cause, ..Trouble::default() });
    }
    Ok(found)
}

/// Where datagrams of the probe may come; connections need none, since they are written to.
fn receives(mesh: &Mesh, link: &Link, id: u64, probed: &Probed) -> Result<Flying, Error> {
    let mut awaited = Flying::new();
    for peer in &mesh.peers {
        let way = (peer.rank, peer.rail);
        let Some((made, hardware)) = peer.made.as_ref().zip(mesh.hardware.get(peer.rail)) else {
            continue;
        };
        let tried = peer.theirs.is_some() && !probed.troubles.contains_key(&way);
        if !tried || hardware.needs.transport == Transport::Rc || !link.has(peer.rank) {
            continue;
        }
        let length = hardware.needs.before() + made.place.message;
        let piece = Piece { region: &hardware.region, offset: IN, length };
        made.qp.post_receive(id - RECEIVES, &[piece])?;
        awaited.insert((peer.rail, made.place.qp_num), way);
    }
    Ok(awaited)
}

/// A long packet is lost where a short one has just passed.
fn of_class(cause: Cause, id: u64) -> Cause {
    match cause {
        Cause::NothingArrives | Cause::Stall if id == LARGE => Cause::PathMtu,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_end_found_is_known_here_and_own_findings_tell_more() {
        let own = Trouble { words: "own".to_owned(), ..Trouble::default() };
        let mut troubles = BTreeMap::from([((1, 0), own.clone())]);
        let bad = |peer: u32, rail: usize| (peer, rail, "lost".to_owned());
        let all = BTreeMap::from([
            (1, vec![bad(0, 0), bad(0, 1), bad(2, 1)]),
            (2, vec![bad(1, 1)]),
            (3, vec![bad(0, 0)]),
        ]);
        heard(0, all, &mut troubles);
        assert_eq!(troubles.keys().copied().collect::<Vec<_>>(), [(1, 0), (1, 1), (3, 0)]);
        assert_eq!(troubles[&(1, 0)], own);
        let told = &troubles[&(3, 0)];
        assert!(told.heard && told.words == "rank 3 says: lost" && told.cause.is_none());
    }

    #[test]
    fn what_drops_long_packets_alone_is_told_from_what_drops_all() {
        for lost in [Cause::NothingArrives, Cause::Stall] {
            assert_eq!((of_class(lost, SMALL), of_class(lost, LARGE)), (lost, Cause::PathMtu));
        }
        assert_eq!(of_class(Cause::WrongRkey, LARGE), Cause::WrongRkey);
        // The work requests of a probe are told apart, also from receives.
        let ids: BTreeSet<u64> =
            [SMALL, LARGE].into_iter().flat_map(|id| [id, id - RECEIVES]).collect();
        assert_eq!(ids.len(), 4);
    }
}
