//! Which pairs of ranks are tried or measured, and in which rounds: all ranks choose alike.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::Error;
use crate::progress::time;
use crate::random;
use crate::steps::partner;
use crate::steps::round_count;

/// Ranks that are tried with others again after a quick round, and with how many.
const SUSPECTS: usize = 16;
const WITNESSES: usize = 2;

/// Disjoint pairs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Pairs {
    /// Those of a round of the tournament.
    Round(u32),
    /// These, the lower rank first.
    Listed(Arc<[(u32, u32)]>),
}

impl Pairs {
    pub(crate) fn partner(&self, rank: u32, ranks: u32) -> Option<u32> {
        match self {
            Self::Round(round) => partner(rank, ranks, *round),
            Self::Listed(pairs) => pairs.iter().find_map(|(a, b)| match rank {
                rank if rank == *a => Some(*b),
                rank if rank == *b => Some(*a),
                _ => None,
            }),
        }
    }
}

/// Pairs in as few lists of disjoint ones as the first that fits makes; nobody twice in one list.
pub(crate) fn disjoint(pairs: &[(u32, u32)]) -> Vec<Pairs> {
    // Each with the ranks that are in it.
    type List = (BTreeSet<u32>, Vec<(u32, u32)>);
    let mut lists: Vec<List> = Vec::new();
    let pairs: BTreeSet<(u32, u32)> = pairs.iter().map(|(a, b)| (*a.min(b), *a.max(b))).collect();
    for (a, b) in pairs {
        let free = |list: &&mut (BTreeSet<u32>, _)| !list.0.contains(&a) && !list.0.contains(&b);
        match lists.iter_mut().find(free) {
            Some((busy, list)) => {
                busy.extend([a, b]);
                list.push((a, b));
            }
            None => lists.push((BTreeSet::from([a, b]), vec![(a, b)])),
        }
    }
    lists.into_iter().map(|(_, list)| Pairs::Listed(list.into())).collect()
}

/// The rounds from which some are picked.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) all: u32,
    /// As many as are asked for.
    pub(crate) wished: u32,
    listed: Vec<Pairs>,
}

impl Rounds {
    /// Of these pairs alone, if there are any.
    pub(crate) fn new(ranks: u32, quick: bool, sample: Option<u32>, pairs: &[(u32, u32)]) -> Self {
        let listed = disjoint(pairs);
        let count = u32::try_from(listed.len()).unwrap_or(u32::MAX);
        let all = if pairs.is_empty() { round_count(ranks) } else { count };
        let wished = match (quick, sample) {
            (true, None) => 1,
            (_, Some(sample)) => sample.clamp(1, all.max(1)),
            (false, None) => all,
        };
        Self { all, wished, listed }
    }

    /// So many, spread over the tournament, so that neighbours by number are not all there is.
    pub(crate) fn pick(&self, count: u32) -> Vec<Pairs> {
        let at = |n: u32| u64::from(n) * u64::from(self.all) / u64::from(count.max(1));
        let picked = (0..count).map(|n| u32::try_from(at(n)).unwrap_or(0));
        match self.listed.is_empty() {
            true => picked.map(Pairs::Round).collect(),
            false => {
                picked.filter_map(|n| self.listed.get(usize::try_from(n).ok()?).cloned()).collect()
            }
        }
    }

    /// The most rounds that fit into so many seconds, at least one; more rounds take longer.
    pub(crate) fn fit(&self, budget: f64, lasts: impl Fn(u32) -> f64) -> u32 {
        let (mut fits, mut too_many) = (1, self.wished + 1);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if lasts(middle) <= budget { fits = middle } else { too_many = middle }
        }
        fits.min(self.wished)
    }
}

/// Pairs to try again: each rank with a bad path, with ranks that have none.
pub(crate) fn again(
    bad: &BTreeSet<u32>,
    all: &BTreeSet<u32>,
    met: &BTreeSet<(u32, u32)>,
) -> Vec<(u32, u32)> {
    let well: Vec<u32> = all.difference(bad).copied().collect();
    let mut pairs = Vec::new();
    let mut next = well.iter().cycle();
    for rank in bad.iter().copied().take(SUSPECTS) {
        let fresh =
            |other: &&u32| !met.contains(&(rank, **other)) && !met.contains(&(**other, rank));
        let found: Vec<u32> =
            next.by_ref().take(well.len()).filter(fresh).take(WITNESSES).copied().collect();
        pairs.extend(found.into_iter().map(|other| (rank, other)));
    }
    pairs
}

/// Which pairs a command is to try.
#[derive(Clone, Debug, Default)]
pub struct Choosing {
    /// One round of disjoint pairs, and then more where it is bad.
    pub quick: bool,
    /// So many rounds of disjoint pairs; all if it is not given.
    pub sample: Option<u32>,
    /// These pairs alone; all if there are none.
    pub pairs: Vec<(u32, u32)>,
    /// The time that there is, in seconds.
    pub within: Option<f64>,
}

/// Seconds that a step of an exchange takes, and what is before and behind all steps: of slow machines, so
/// that a plan is rather too short than too long.
const STEP: f64 = 0.005;
const BESIDE: f64 = 6.0;

impl Choosing {
    /// What must be the same on all ranks; nothing, if all is as by default.
    pub(crate) fn text(&self) -> String {
        let Self { quick, sample, pairs, within } = self;
        let mut text = String::new();
        if *quick {
            text += " --quick";
        }
        if let Some(sample) = sample {
            text += &format!(" --sample {sample}");
        }
        if !pairs.is_empty() {
            text += &format!(" --pairs {:x}", random::hash(format!("{pairs:?}").as_bytes()));
        }
        if let Some(within) = within {
            text += &format!(" --within {within}");
        }
        text
    }

    /// The rounds that fit, of so many steps each, and how they were chosen, for people.
    ///
    /// # Errors
    /// When not even one fits.
    pub(crate) fn plan(&self, ranks: u32, steps: usize) -> Result<(Vec<Pairs>, String), Error> {
        let rounds = Rounds::new(ranks, self.quick, self.sample, &self.pairs);
        let lasts = |count: u32| BESIDE + f64::from(count) * steps as f64 * STEP;
        let budget = self.within.unwrap_or(f64::INFINITY);
        if lasts(1) > budget && ranks > 1 {
            return Err(Error::Usage(format!(
                "--within {}: a round of pairs takes about {}: give more time, or fewer --sizes",
                time(budget),
                // Upwards, so that who gives this has given enough.
                time(lasts(1).ceil())
            )));
        }
        let count = rounds.fit(budget, lasts);
        let mut words = format!(
            "plan: {count} of {} rounds of disjoint pairs, about {}",
            rounds.all,
            time(lasts(count))
        );
        if count < rounds.wished {
            words += &format!(", for --within {}", time(budget));
        }
        Ok((rounds.pick(count), words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(rounds: &[Pairs], ranks: u32) -> Vec<(u32, u32)> {
        let of = |round: &Pairs| {
            let met = |rank| Some((rank, round.partner(rank, ranks)?));
            (0..ranks).filter_map(met).filter(|(a, b)| a < b).collect::<Vec<_>>()
        };
        rounds.iter().flat_map(of).collect()
    }

    #[test]
    fn a_quick_run_has_one_round_and_a_sample_is_spread() {
        let quick = Choosing { quick: true, ..Choosing::default() };
        let (rounds, words) = quick.plan(128, 150).unwrap();
        assert_eq!(pairs(&rounds, 128).len(), 64);
        assert!(words.starts_with("plan: 1 of 127 rounds of disjoint pairs, about 7 s"), "{words}");
        let sample = Choosing { sample: Some(4), ..Choosing::default() };
        let (rounds, _) = sample.plan(128, 150).unwrap();
        assert_eq!(rounds, [0, 31, 63, 95].map(Pairs::Round));
        let (all, _) = Choosing::default().plan(9, 150).unwrap();
        assert_eq!(pairs(&all, 9).len(), 36);
        assert_eq!(Choosing::default().text(), "");
        assert_eq!(quick.text(), " --quick");
    }

    #[test]
    fn the_time_that_there_is_decides_how_many_rounds() {
        let within = |seconds| Choosing { within: Some(seconds), ..Choosing::default() };
        let (rounds, words) = within(30.0).plan(128, 300).unwrap();
        assert_eq!(rounds.len(), 16);
        assert!(words.ends_with("about 30 s, for --within 30 s"), "{words}");
        let (all, words) = within(3600.0).plan(128, 300).unwrap();
        assert!(all.len() == 127 && !words.contains("--within"), "{words}");
        let error = within(2.0).plan(128, 300).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(
            error.to_string().contains("--within 2 s: a round of pairs takes about"),
            "{error}"
        );
        // A rank by itself has nothing to plan.
        assert!(pairs(&within(2.0).plan(1, 300).unwrap().0, 1).is_empty());
    }

    #[test]
    fn given_pairs_are_all_that_is_tried() {
        let given = Choosing { pairs: vec![(0, 1), (5, 2), (1, 2)], ..Choosing::default() };
        let (rounds, _) = given.plan(8, 150).unwrap();
        assert_eq!((rounds.len(), pairs(&rounds, 8)), (2, vec![(0, 1), (2, 5), (1, 2)]));
    }

    #[test]
    fn the_bad_are_tried_again_with_those_who_are_not() {
        let (bad, all) = (BTreeSet::from([3, 2]), (0..8).collect());
        let met = BTreeSet::from([(0, 1), (2, 3), (0, 2)]);
        let again = again(&bad, &all, &met);
        assert_eq!(again.len(), 4, "{again:?}");
        assert!(again.iter().all(|(a, b)| bad.contains(a) && !bad.contains(b)));
        assert!(!again.contains(&(2, 0)));
    }
}
