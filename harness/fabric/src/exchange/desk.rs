//! Where the exchanges of a pair hear what the peer says. Each exchange has a thread, which posts and polls;
//! the rank's own thread listens to the others meanwhile, and says what became of the peer.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use super::Fault;
use super::INTERRUPTED;
use super::Trouble;
use super::fault::step;
use super::wait::STEP;
use crate::cause::Cause;
use crate::connect::Control;
use crate::connect::Mesh;
use crate::connect::WORD;
use crate::error::Error;
use crate::rendezvous::Link;
use crate::rendezvous::Loss;
use crate::rendezvous::Voice;

/// How often a peer is asked whether it is there.
const ASK: Duration = Duration::from_secs(3);

/// What a pair's exchanges, on whatever rails, have heard and not yet awaited.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(super) peer: u32,
    pub(super) voice: Arc<Voice>,
    heard: Mutex<Heard>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Heard {
    /// By rail.
    words: BTreeMap<usize, VecDeque<Control>>,
    /// How many exchanges wait for a word.
    waiting: usize,
    /// Why no more is to be expected.
    over: Option<Trouble>,
    /// The peer has made all of its exchanges.
    ended: bool,
}

impl Desk {
    pub(crate) fn new(peer: u32, link: &Link) -> Self {
        let (heard, news) = (Mutex::default(), Condvar::new());
        Self { peer, voice: link.voice(), heard, news }
    }

    /// Says it to the peer.
    pub(super) fn say(&self, control: &Control) -> Result<(), Error> {
        self.voice.send(self.peer, control)
    }

    /// The peer's next word on the rail's exchange, however long that takes while the peer says that it is
    /// there: the peer may be busy with another.
    pub(crate) fn word(&self, rail: usize) -> Result<Control, Fault> {
        let mut heard = self.heard();
        heard.waiting += 1;
        let word = loop {
            if let Some(word) = heard.words.get_mut(&rail).and_then(VecDeque::pop_front) {
                break Ok(word);
            }
            if let Some(over) = &heard.over {
                break Err(Fault::Step(over.clone()));
            }
            if heard.ended {
                break Err(step(format!("rank {} has ended without this exchange", self.peer)));
            }
            heard = self.news.wait(heard).unwrap_or_else(PoisonError::into_inner);
        };
        heard.waiting -= 1;
        word
    }

    /// An error if nothing more is to be expected of the peer.
    pub(super) fn check(&self) -> Result<(), Fault> {
        self.heard().over.clone().map_or(Ok(()), |over| Err(Fault::Step(over)))
    }

    /// Ends all exchanges that wait; the first reason is the one.
    pub(crate) fn end(&self, why: Trouble) {
        self.heard().over.get_or_insert(why);
        self.news.notify_all();
    }

    /// Ends them without a verdict.
    pub(crate) fn stop(&self) {
        self.end(Trouble { words: INTERRUPTED.to_owned(), ..Trouble::default() });
    }

    /// As if this process were stopped: no thread of it hears or says anything any more.
    pub(super) fn hang(&self) -> ! {
        let _all = self.heard();
        loop {
            std::thread::park();
        }
    }

    /// Listens to the others, until the exchanges are done. A peer that says nothing for `patience`, while
    /// an exchange waits for the peer's word, hangs.
    pub(crate) fn listen(
        &self,
        mesh: &mut Mesh,
        link: &mut Link,
        patience: Duration,
        is_done: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let patience = patience.min(STEP * 2);
        let (peer, ask) = (self.peer, ASK.min(patience / 3));
        let mut alive = Instant::now();
        let mut asked = alive;
        while !is_done() {
            mesh.listen(link, WORD)?;
            if self.hear(mesh) {
                alive = Instant::now();
            }
            alive = mesh.alive.get(&peer).map_or(alive, |here| alive.max(*here));
            if link.interrupt.has_come() {
                self.stop();
            }
            if let Some(why) = gone(peer, mesh, link) {
                self.end(why);
            } else if alive.elapsed() >= patience && self.heard().waiting > 0 {
                let seconds = alive.elapsed().as_secs();
                let words = format!("rank {peer} hangs: no message for {seconds} s");
                let cause = Some(Cause::PeerHangs);
                self.end(Trouble { words, hangs: true, cause, ..Trouble::default() });
                mesh.silent.insert(peer);
                mesh.tell_all(link, &Control::Silent { rank: peer })?;
            } else if asked.elapsed() >= ask {
                asked = Instant::now();
                link.send(peer, &Control::Ask)?;
            }
        }
        Ok(())
    }

    /// Passes on what the peer has said; whether that was anything.
    fn hear(&self, mesh: &mut Mesh) -> bool {
        let mut heard = self.heard();
        let mut any = false;
        for (from, control) in std::mem::take(&mut mesh.said) {
            match control.rail().filter(|_| from == self.peer) {
                Some(rail) => {
                    heard.words.entry(rail).or_default().push_back(control);
                    any = true;
                }
                // Of a round that this rank has yet to come to.
                None => mesh.said.push_back((from, control)),
            }
        }
        heard.ended = mesh.ended.contains(&self.peer);
        if any || heard.ended {
            self.news.notify_all();
        }
        any
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What others have found of a peer that is not there any more.
fn gone(peer: u32, mesh: &Mesh, link: &Link) -> Option<Trouble> {
    let (words, cause) = match link.lost.get(&peer) {
        Some(Loss::Silent) => (Loss::Silent.words(), Cause::PeerHangs),
        Some(why) => (why.words(), Cause::PeerKilled),
        None if mesh.silent.contains(&peer) => ("hangs, as others found", Cause::PeerHangs),
        None => return None,
    };
    let (words, cause) = (format!("rank {peer} {words}"), Some(cause));
    Some(Trouble { words, hangs: true, heard: true, cause, ..Trouble::default() })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::hardware::Rails;
    use crate::rendezvous::tests::pair;

    const PATIENCE: Duration = Duration::from_secs(600);

    /// What each of two rails' exchanges gets for a word, while rank 0 listens.
    fn words(link: &mut Link, patience: Duration) -> (Vec<Result<Control, Fault>>, Mesh) {
        let mut mesh = Mesh::new(0, 2, Rails::default());
        let desk = Desk::new(1, link);
        let found = thread::scope(|scope| {
            let desk = &desk;
            let each: Vec<_> = (0..2).map(|rail| scope.spawn(move || desk.word(rail))).collect();
            let is_done = || each.iter().all(thread::ScopedJoinHandle::is_finished);
            desk.listen(&mut mesh, link, patience, is_done).unwrap();
            each.into_iter().map(|one| one.join().unwrap()).collect()
        });
        (found, mesh)
    }

    fn hangs(found: &[Result<Control, Fault>]) -> Vec<Trouble> {
        let of = |found: &Result<Control, Fault>| match found {
            Err(Fault::Step(trouble)) if trouble.hangs => trouble.clone(),
            other => panic!("{other:?}"),
        };
        found.iter().map(of).collect()
    }

    #[test]
    fn each_rail_hears_its_own_words_and_others_are_kept() {
        let (server, mut link, other) = pair();
        for rail in [1, 0] {
            other
                .send(0, &Control::Ready { rail, step: 7 + u64::try_from(rail).unwrap() })
                .unwrap();
        }
        let (found, _) = words(&mut link, PATIENCE);
        let steps: Vec<u64> = found
            .iter()
            .map(|found| match found {
                Ok(Control::Ready { step, .. }) => *step,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(steps, [7, 8]);
        // Of somebody else, who is ahead.
        let mut mesh = Mesh::new(0, 3, Rails::default());
        mesh.said.push_back((2, Control::Ready { rail: 0, step: 0 }));
        mesh.said.push_back((1, Control::Ready { rail: 0, step: 0 }));
        assert!(Desk::new(1, &link).hear(&mut mesh));
        assert_eq!(mesh.said.iter().map(|(from, _)| *from).collect::<Vec<_>>(), [2]);
        link.leave().unwrap();
        other.leave().unwrap();
        server.finish();
    }

    #[test]
    fn a_peer_that_says_nothing_or_is_gone_ends_all_rails_and_one_that_answers_is_waited_for() {
        let (server, mut link, other) = pair();
        let (found, mesh) = words(&mut link, Duration::from_millis(300));
        for trouble in hangs(&found) {
            assert!(!trouble.heard && trouble.words.contains("hangs: no message"), "{trouble:?}");
        }
        assert!(mesh.silent.contains(&1));
        // It says nothing of the exchange, but that it is there, for longer than that; then that it is done.
        let peer = thread::spawn(move || {
            let (mut other, mut asked) = (other, 0);
            while let Some((_, body)) = other.receive(PATIENCE).unwrap() {
                if matches!(serde_json::from_value(body).unwrap(), Control::Ask) {
                    asked += 1;
                    other.send(0, &Control::Here { done: asked > 3 }).unwrap();
                }
                if asked > 3 {
                    break;
                }
            }
            other
        });
        let (found, _) = words(&mut link, Duration::from_secs(3));
        for found in found {
            let Err(Fault::Step(trouble)) = found else { panic!("{found:?}") };
            assert!(trouble.words.contains("has ended without this exchange"), "{trouble:?}");
        }
        peer.join().unwrap().vanish();
        let (found, _) = words(&mut link, PATIENCE);
        for trouble in hangs(&found) {
            assert_eq!((trouble.heard, trouble.cause), (true, Some(Cause::PeerKilled)));
        }
        link.leave().unwrap();
        server.finish();
    }
}
