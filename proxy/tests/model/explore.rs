//! Exploring a model: every state that can be reached, breadth first, and what fair runs never leave.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;
use std::rc::Rc;

/// Who takes a step. A run is fair when nobody who could go on all the time is never let.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Actor {
    /// Part of the machinery, by a number below 16: sooner or later it goes on.
    Fair(u8),
    /// It may act, or never.
    Free,
}

/// Something with states and steps.
pub(crate) trait Model: Clone + Eq + Hash {
    /// Names a step, for traces.
    type Step: Copy + Debug;

    /// What can happen now.
    fn steps(&self) -> Vec<(Actor, Self::Step)>;

    /// Lets it happen.
    ///
    /// # Errors
    /// What must not happen, and happened.
    fn take(&mut self, step: Self::Step) -> Result<(), String>;

    /// Who waits for something that must come.
    fn waits(&self) -> bool;

    /// What a trace shows of it.
    fn show(&self) -> String;
}

/// What was found wrong, and the steps that lead there.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) what: String,
    pub(crate) trace: Vec<String>,
}

impl Fault {
    /// For people.
    pub(crate) fn print(&self) -> String {
        format!("{}:\n  {}", self.what, self.trace.join("\n  "))
    }
}

/// Every state that was reached.
struct Graph<M: Model> {
    /// From which state, by which step.
    parents: Vec<Option<(usize, M::Step)>>,
    /// Somebody waits.
    waits: Vec<bool>,
    /// Steps of fair actors: who, and to where.
    fair: Vec<Vec<(u8, usize)>>,
}

/// Reaches every state, and returns how many there are.
///
/// # Errors
/// A step that must not be; or a state in which a fair run goes on, or ends, for ever while somebody
/// waits.
///
/// # Panics
/// When there are more than `most`.
pub(crate) fn explore<M: Model>(first: &M, most: usize) -> Result<usize, Fault> {
    let mut graph =
        Graph::<M> { parents: vec![None], waits: vec![first.waits()], fair: Vec::new() };
    let start = Rc::new(first.clone());
    let mut known = HashMap::from([(Rc::clone(&start), 0)]);
    let mut queue = VecDeque::from([start]);
    while let Some(state) = queue.pop_front() {
        let at = graph.fair.len();
        let mut fair = Vec::new();
        for (actor, step) in state.steps() {
            let mut next = M::clone(&state);
            if let Err(what) = next.take(step) {
                return Err(graph.fault(first, at, Some(step), what));
            }
            let (new, next) = (known.len(), Rc::new(next));
            let to = *known.entry(Rc::clone(&next)).or_insert(new);
            if to == new {
                assert!(new < most, "more than {most} states");
                graph.parents.push(Some((at, step)));
                graph.waits.push(next.waits());
                queue.push_back(next);
            }
            if let Actor::Fair(who) = actor {
                fair.push((who, to));
            }
        }
        graph.fair.push(fair);
    }
    match graph.forever() {
        Some(at) => {
            let what = "somebody waits for ever".to_owned();
            Err(graph.fault(first, at, None, what))
        }
        None => Ok(known.len()),
    }
}

impl<M: Model> Graph<M> {
    fn fault(&self, first: &M, at: usize, last: Option<M::Step>, what: String) -> Fault {
        let mut steps = Vec::from_iter(last);
        let mut at = at;
        while let Some((from, step)) = self.parents[at] {
            steps.push(step);
            at = from;
        }
        let mut state = first.clone();
        let mut trace = Vec::new();
        for step in steps.into_iter().rev() {
            trace.push(format!("{step:?}"));
            // The last one may be the fault.
            let _ = state.take(step);
        }
        trace.push(state.show());
        Fault { what, trace }
    }

    /// A state in which somebody waits, and in which, or round and round from which, a fair run can
    /// stay: among the strongly connected parts of what fair actors do, one that no actor must leave.
    fn forever(&self) -> Option<usize> {
        self.parts().into_iter().find_map(|part| {
            let mut waiting = part.iter().filter(|at| self.waits[**at]);
            let first = waiting.next()?;
            self.can_stay(&part).then_some(*first)
        })
    }

    /// Whether a fair run can stay among these states: everybody who can go on in all of them goes on
    /// in one of them without leaving.
    fn can_stay(&self, part: &[usize]) -> bool {
        let inside = |at: &usize| part.binary_search(at).is_ok();
        let (mut always, mut within) = (u16::MAX, 0_u16);
        let mut moves = false;
        for at in part {
            let mut enabled = 0;
            for (who, to) in &self.fair[*at] {
                enabled |= 1 << who;
                if inside(to) {
                    within |= 1 << who;
                    moves = true;
                }
            }
            always &= enabled;
        }
        // One state without a step to itself: it is left, unless nobody can go on.
        always & !within == 0 && (moves || always == 0)
    }

    /// Tarjan's strongly connected components, without recursion; each sorted.
    fn parts(&self) -> Vec<Vec<usize>> {
        const NEW: usize = usize::MAX;
        let count = self.fair.len();
        let (mut index, mut low) = (vec![NEW; count], vec![0; count]);
        let (mut on, mut stack, mut next) = (vec![false; count], Vec::new(), 0);
        let mut parts = Vec::new();
        for root in 0..count {
            let mut path = if index[root] == NEW { vec![(root, 0)] } else { Vec::new() };
            while let Some((at, edge)) = path.pop() {
                if edge == 0 {
                    (index[at], low[at]) = (next, next);
                    next += 1;
                    on[at] = true;
                    stack.push(at);
                } else {
                    let (_, child) = self.fair[at][edge - 1];
                    if on[child] {
                        low[at] = low[at].min(low[child]);
                    }
                }
                if let Some((_, child)) = self.fair[at].get(edge) {
                    path.push((at, edge + 1));
                    if index[*child] == NEW {
                        path.push((*child, 0));
                    }
                } else if low[at] == index[at] {
                    let from = stack.iter().rposition(|one| *one == at).unwrap_or(0);
                    let mut part = stack.split_off(from);
                    part.iter().for_each(|one| on[*one] = false);
                    part.sort_unstable();
                    parts.push(part);
                }
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up to three; then goes round for ever, or, if there is a way out, may be let out.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    struct Toy {
        at: u8,
        way_out: bool,
    }

    impl Model for Toy {
        type Step = u8;

        fn steps(&self) -> Vec<(Actor, u8)> {
            let round = match self.at {
                0..3 => self.at + 1,
                3 => 2,
                _ => return Vec::new(),
            };
            let out = (self.way_out && self.at >= 2).then_some((Actor::Fair(1), 4));
            [(Actor::Fair(0), round)].into_iter().chain(out).collect()
        }

        fn take(&mut self, step: u8) -> Result<(), String> {
            self.at = step;
            Ok(())
        }

        fn waits(&self) -> bool {
            self.at < 4
        }

        fn show(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn who_goes_round_for_ever_is_found_and_who_is_let_out_is_not() {
        assert_eq!(explore(&Toy { at: 0, way_out: true }, 9).unwrap(), 5);
        let fault = explore(&Toy { at: 0, way_out: false }, 9).unwrap_err();
        assert!(fault.print().contains("for ever"));
    }
}
