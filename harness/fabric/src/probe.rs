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

use crate::cause::Cause;
use crate::connect::Mesh;
use crate::counters;
use crate::error::Error;
use crate::exchange::Trouble;
use crate::explain;
use crate::hardware::OUT;
use crate::options::Identity;
use crate::rendezvous::Link;

/// `wr_id` of the probe's work requests: no step of an exchange has these.
const SMALL: u64 = u64::MAX - 1;
const LARGE: u64 = u64::MAX;
/// In bytes.
const SMALLEST: usize = 1;
/// How often the others are heard meanwhile.
const LISTEN: Duration = Duration::from_millis(1);

/// A path from this rank: the peer and the rail.
pub(crate) type PathTo = (u32, usize);

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
        let found = packets(mesh, link, id, &probed)?;
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
        for (from, bad) in all {
            for (_, rail, words) in bad.into_iter().filter(|(peer, ..)| *peer == me.rank) {
                let (words, heard) = (format!("rank {from} says: {words}"), true);
                let trouble = Trouble { words, heard, ..Trouble::default() };
                probed.troubles.entry((from, rail)).or_insert(trouble);
            }
        }
    }
    Ok(probed)
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
) -> Result<BTreeMap<PathTo, Trouble>, Error> {
    let mut found = BTreeMap::new();
    let mut flying: BTreeMap<(usize, u32), (u32, usize)> = BTreeMap::new();
    let mut lengths: BTreeMap<PathTo, usize> = BTreeMap::new();
    for peer in &mut mesh.peers {
        let way = (peer.rank, peer.rail);
        let (Some(made), Some(theirs)) = (&mut peer.made, &peer.theirs) else { continue };
        let Some(hardware) = mesh.hardware.get(peer.rail) else { continue };
        if probed.troubles.contains_key(&way) || !link.has(peer.rank) {
            continue;
        }
        let mtu = 128_usize.checked_shl(made.place.mtu.min(theirs.mtu)).unwrap_or(SMALLEST);
        let length = if id == SMALL { SMALLEST } else { mtu };
        let piece = Piece { region: &hardware.region, offset: OUT, length };
        let operation = Operation::Write(theirs.address, theirs.rkey);
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
    while !flying.is_empty() && Instant::now() < deadline && !link.interrupt.has_come() {
        for (rail, hardware) in mesh.hardware.iter() {
            for completion in hardware.cq.poll()? {
                let Completion { qp_num, status, wr_id, .. } = completion;
                let of = flying.remove(&(rail, qp_num)).filter(|_| wr_id == id);
                if let Some(way) = of.filter(|_| status != 0) {
                    let cause = Some(of_class(Cause::of_status(status), id));
                    let words = words(&way, &explain::words(&completion));
                    let status = Some(status);
                    found.insert(way, Trouble { words, status, cause, ..Trouble::default() });
                }
            }
        }
        if let Some((from, body)) = link.receive(LISTEN)? {
            mesh.hear(link, from, body)?;
        }
        flying.retain(|_, (rank, _)| link.has(*rank));
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
    Ok(found)
}

/// A long packet is lost where a short one has just passed.
fn of_class(cause: Cause, id: u64) -> Cause {
    match cause {
        Cause::NothingArrives | Cause::Stall if id == LARGE => Cause::PathMtu,
        other => other,
    }
}
