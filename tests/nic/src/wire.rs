//! The network between functions: it carries messages from address to address, and loses, delays,
//! duplicates and reorders them on demand.
//!
//! Without faults a message arrives before [`Wire::send`] returns, on the sender's thread (or on that
//! of who is carrying at the moment), so tests without faults are deterministic. What is late is
//! carried by the wire's own thread. A message is carried whole: there are no packets below it.

use std::collections::BTreeMap;
use std::collections::BinaryHeap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::Weak;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Condvar;
use parking_lot::Mutex;
use parking_lot::MutexGuard;

use crate::far::Far;
pub use crate::message::Address;
pub use crate::message::Body;
pub use crate::message::Change;
pub use crate::message::Message;

/// How often a function that waits for an answer is asked to look at its clock.
const TICK: Duration = Duration::from_millis(1);
/// How late a message is that was chosen to be overtaken.
const OVERTAKEN: Duration = Duration::from_millis(2);

/// What goes wrong on the wire. Chances are between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The chance that a message never arrives.
    pub loss: f64,
    /// The chance that it arrives twice.
    pub duplicate: f64,
    /// The chance that those after it overtake it.
    pub reorder: f64,
    /// How long all take.
    pub delay: Duration,
}

/// What the wire has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Carried {
    /// Messages that arrived, duplicates included.
    pub delivered: u64,
    /// Messages that were lost on demand.
    pub lost: u64,
    /// Messages that were sent twice on demand.
    pub duplicated: u64,
    /// Messages that others may have overtaken, on demand.
    pub reordered: u64,
    /// Messages that were late, on demand, as all were then.
    pub delayed: u64,
    /// Messages that went to another process.
    pub distant: u64,
    /// Messages to addresses where nobody is.
    pub unreachable: u64,
}

/// Who is at an address.
pub trait Port: Send + Sync {
    /// Takes a message; gives those that follow from it. Called without the wire's lock.
    fn receive(&self, message: Message) -> Vec<Message>;
    /// Looks at the clock: gives what is to be sent again. Called while [`Port::waits`].
    fn tick(&self, now: Instant) -> Vec<Message>;
    /// Whether an answer is missing.
    fn waits(&self) -> bool;
    /// A message of this port had nobody to arrive at.
    fn unreachable(&self, message: Message) -> Vec<Message>;
}

/// A network.
#[derive(Debug)]
pub struct Wire(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    wake: Condvar,
    far: OnceLock<Far>,
}

struct State {
    ports: BTreeMap<Address, Weak<dyn Port>>,
    queue: BinaryHeap<Due>,
    faults: Faults,
    random: fastrand::Rng,
    sequence: u64,
    carrying: bool,
    ended: bool,
    carried: Carried,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("faults", &self.faults)
            .field("queued", &self.queue.len())
            .field("carried", &self.carried)
            .finish_non_exhaustive()
    }
}

/// A message and when it arrives; the earliest is the greatest.
struct Due {
    at: Instant,
    sequence: u64,
    message: Message,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl Wire {
    /// A network without faults. The seed decides which messages will have them.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        let inner = Arc::new(Inner {
            state: Mutex::new(State {
                ports: BTreeMap::new(),
                queue: BinaryHeap::new(),
                faults: Faults::default(),
                random: fastrand::Rng::with_seed(seed),
                sequence: 0,
                carrying: false,
                ended: false,
                carried: Carried::default(),
            }),
            wake: Condvar::new(),
            far: OnceLock::new(),
        });
        let late = Arc::clone(&inner);
        thread::spawn(move || late.run());
        Arc::new(Self(inner))
    }

    /// Makes one network of this and of the wires of other processes that join the same folder, before
    /// ports are plugged in. What goes wrong is each sender's.
    ///
    /// # Errors
    /// The wire has joined a folder before, or this one is missing.
    pub fn join(&self, folder: &Path) -> io::Result<()> {
        if !folder.is_dir() {
            let text = format!("{} is no folder for a network", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
        }
        let inner = Arc::downgrade(&self.0);
        let arrive = move |message| {
            let inner: Option<Arc<Inner>> = inner.upgrade();
            inner.is_some_and(|inner| inner.arrive(message))
        };
        let far = Far::new(folder.to_owned(), Arc::new(arrive));
        self.0.far.set(far).map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))
    }

    /// Plugs a port in. A port that is gone is unplugged.
    pub fn plug(&self, address: Address, port: Weak<dyn Port>) {
        self.0.state.lock().ports.insert(address, port);
        if let Some(Err(e)) = self.0.far.get().map(|far| far.plug(address)) {
            log::error!("{address:?} is for this process alone: {e}");
        }
    }

    /// Unplugs what is at an address.
    pub fn unplug(&self, address: Address) {
        self.0.state.lock().ports.remove(&address);
        self.0.far.get().into_iter().for_each(|far| far.unplug(address));
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.0.state.lock().faults = faults;
    }

    /// What it has done so far.
    #[must_use]
    pub fn carried(&self) -> Carried {
        self.0.state.lock().carried
    }

    /// Sends messages, in this order. Call without holding what [`Port::receive`] locks.
    pub fn send(&self, messages: Vec<Message>) {
        let mut state = self.0.state.lock();
        for message in messages {
            state.push(message);
        }
        self.0.carry(state);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.wake.notify_all();
    }
}

impl State {
    fn push(&mut self, message: Message) {
        let faults = self.faults;
        if self.random.f64() < faults.loss {
            self.carried.lost += 1;
            return;
        }
        let now = Instant::now();
        let mut at = now + faults.delay;
        self.carried.delayed += u64::from(!faults.delay.is_zero());
        if self.random.f64() < faults.reorder {
            self.carried.reordered += 1;
            at += OVERTAKEN;
        }
        if self.random.f64() < faults.duplicate {
            self.carried.duplicated += 1;
            self.enqueue(at, message.clone());
        }
        self.enqueue(at, message);
    }

    fn enqueue(&mut self, at: Instant, message: Message) {
        self.sequence += 1;
        self.queue.push(Due { at, sequence: self.sequence, message });
    }

    fn port(&self, address: Address) -> Option<Arc<dyn Port>> {
        self.ports.get(&address).and_then(Weak::upgrade)
    }

    fn waiting(&self) -> Vec<Arc<dyn Port>> {
        self.ports.values().filter_map(Weak::upgrade).filter(|port| port.waits()).collect()
    }

    /// When something is to be done; nothing if nothing is.
    fn next(&self) -> Option<Instant> {
        let due = self.queue.peek().map(|due| due.at);
        let tick = (!self.waiting().is_empty()).then(|| Instant::now() + TICK);
        due.into_iter().chain(tick).min()
    }
}

/// Gives a message to another process, or back.
fn hand_over(far: Option<&Far>, message: Message) -> Result<(), Message> {
    match far {
        Some(far) => far.send(message),
        None => Err(message),
    }
}

/// What became of a message.
enum End {
    Delivered,
    Distant,
    Unreachable,
}

impl Inner {
    /// Takes a message from another process. It goes to a port here or nowhere, since its sender has
    /// carried it this far.
    fn arrive(&self, message: Message) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        match state.port(message.to) {
            Some(_) => state.enqueue(Instant::now(), message),
            None => state.carried.unreachable += 1,
        }
        self.carry(state);
        true
    }

    /// Delivers what is due, and what follows from it, unless another thread is at it: that one then
    /// takes this along.
    fn carry(&self, mut state: MutexGuard<'_, State>) {
        if state.carrying {
            return;
        }
        state.carrying = true;
        while state.queue.peek().is_some_and(|due| due.at <= Instant::now()) {
            let Some(Due { message, .. }) = state.queue.pop() else { break };
            let (there, from) = (state.port(message.to), state.port(message.from));
            let (end, more) = MutexGuard::unlocked(&mut state, || match there {
                Some(port) => (End::Delivered, port.receive(message)),
                None => match hand_over(self.far.get(), message) {
                    Ok(()) => (End::Distant, Vec::new()),
                    Err(message) => {
                        let more = from.map(|port| port.unreachable(message));
                        (End::Unreachable, more.unwrap_or_default())
                    }
                },
            });
            match end {
                End::Delivered => state.carried.delivered += 1,
                End::Distant => state.carried.distant += 1,
                End::Unreachable => state.carried.unreachable += 1,
            }
            for message in more {
                state.push(message);
            }
        }
        state.carrying = false;
        if state.next().is_some() {
            self.wake.notify_all();
        }
    }

    /// The thread for what is late.
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            match state.next() {
                None => self.wake.wait(&mut state),
                Some(at) => {
                    self.wake.wait_until(&mut state, at);
                }
            }
            let waiting = state.waiting();
            let more: Vec<Message> = MutexGuard::unlocked(&mut state, || {
                waiting.iter().flat_map(|port| port.tick(Instant::now())).collect()
            });
            for message in more {
                state.push(message);
            }
            self.carry(state);
            state = self.state.lock();
        }
    }
}

#[cfg(test)]
mod tests;
