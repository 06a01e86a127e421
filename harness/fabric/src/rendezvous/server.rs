//! Rank 0's side of the rendezvous.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;

use super::Hello;
use super::Loss;
use super::ToRank;
use super::ToServer;
use super::VERSION;
use super::frame;
use super::stages::Gather;
use super::stages::Member;
use super::stages::Refusal;
use super::stages::Stages;
use super::stages::broadcast;
use super::stages::send;
use crate::error::EXIT_CHECK;
use crate::error::EXIT_TIMEOUT;
use crate::error::EXIT_USAGE;
use crate::error::Error;

/// How long a connection may take to say its first message; scanners say nothing.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// Longer than this no rank may keep the others waiting by not reading.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// How long ranks that come late are still told why all is over.
const FAREWELL: Duration = Duration::from_secs(3);
/// How often it looks whether somebody is late.
const TICK: Duration = Duration::from_millis(20);
/// How often it looks whether a rank that comes twice has ended before.
const RETURNS: usize = 50;
/// A thread for each rank, which reads frames and no more.
const STACK: usize = 256 << 10;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Connections that have not said who they are, beyond those that are expected; the rest are
/// dropped at once.
const STRANGERS: usize = 64;

/// Serves until all ranks are done; ends with its process.
#[derive(Debug)]
pub(crate) struct Server {
    thread: Option<thread::JoinHandle<()>>,
}

struct Shared {
    state: Mutex<Stages>,
    /// Held by whoever writes letters: one writes at a time, and nobody while the state is locked.
    posting: Mutex<()>,
    ranks: u32,
}

impl Server {
    /// Waits for `ranks` ranks, but no longer than `patience`.
    pub(crate) fn start(
        at: &str,
        ranks: u32,
        patience: Duration,
    ) -> Result<(Self, std::net::SocketAddr), Error> {
        let failed = |error| Error::Listen { at: at.to_owned(), error };
        let listener = TcpListener::bind(at).map_err(failed)?;
        // The library's 128 is too few for a thousand ranks that start at once: what finds no room is
        // repeated a second later. The kernel takes no more than net.core.somaxconn (listen(2)).
        rustix::net::listen(&listener, BACKLOG).map_err(|errno| failed(errno.into()))?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let shared = Arc::new(Shared { state: Mutex::default(), posting: Mutex::default(), ranks });
        let thread = thread::Builder::new()
            .name("rendezvous".to_owned())
            .spawn(move || serve(&listener, &shared, patience))
            .map_err(failed)?;
        Ok((Self { thread: Some(thread) }, address))
    }

    /// Waits until every rank has left.
    pub(crate) fn finish(mut self) {
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, shared: &Arc<Shared>, patience: Duration) {
    let began = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => admit(stream, shared),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if shared.look_after(began, patience) {
                    return;
                }
                thread::sleep(TICK);
            }
            // Of one connection, or of descriptors that run out: the next may do.
            Err(_) => thread::sleep(TICK),
        }
    }
}

fn admit(stream: TcpStream, shared: &Arc<Shared>) {
    {
        let mut state = shared.lock();
        let expected = usize::try_from(shared.ranks).unwrap_or(usize::MAX);
        if state.unknown >= expected.saturating_add(STRANGERS) {
            state.strays += 1;
            return;
        }
        state.unknown += 1;
    }
    let theirs = Arc::clone(shared);
    let started = thread::Builder::new().stack_size(STACK).spawn(move || attend(stream, &theirs));
    if started.is_err() {
        let mut state = shared.lock();
        state.unknown -= 1;
        state.strays += 1;
    }
}

/// One connection, from its first message to its last.
fn attend(stream: TcpStream, shared: &Shared) {
    let hello = greet(&stream);
    let mut state = shared.lock();
    state.unknown -= 1;
    let Ok(hello) = hello else {
        state.strays += 1;
        return;
    };
    let rank = hello.rank;
    // The end of a rank that has come back may not have been read yet.
    for _ in 0..RETURNS {
        if !state.complete || state.members.get(&rank).is_none_or(|member| member.done) {
            break;
        }
        drop(state);
        thread::sleep(TICK);
        state = shared.lock();
    }
    let Ok(writer) = stream.try_clone() else { return };
    let writer = Arc::new(Mutex::new(writer));
    // Whoever comes late hears what the others were told.
    let done = state.members.get(&rank).map(|member| member.done);
    let back = match done {
        Some(true) if state.complete => {
            let host = hello.entry.host.clone();
            state.tell_all(ToRank::Lost { rank, why: Loss::Restarted });
            Some((EXIT_CHECK, Error::Restarted { rank, host }.to_string()))
        }
        None if state.complete && rank < shared.ranks => {
            let reason = format!("rank {rank} came too late: the others have begun without it");
            Some((EXIT_TIMEOUT, reason))
        }
        _ => None,
    };
    let back = back.map(|(code, reason)| Refusal { code, reason, since: Instant::now() });
    let refusal = state.refused.clone().or(back).or_else(|| {
        let reason = misfit(&hello, shared.ranks, &state)?;
        Some(Refusal { code: EXIT_USAGE, reason, since: Instant::now() })
    });
    if let Some(refusal) = refusal {
        // A stranger must not end what has begun; before that, all must know what is wrong.
        if !state.complete {
            state.refused.get_or_insert(refusal.clone());
        }
        shared.post(state);
        send(&writer, &refusal.message());
        // Not before: rank 0 ends when all have been told.
        shared.lock().told += 1;
        return;
    }
    state
        .members
        .insert(rank, Member { stream: writer, hello, done: false, heard: Instant::now() });
    drop(state);
    let mut reader = io::BufReader::new(&stream);
    loop {
        let message = frame::read(&mut reader, frame::LIMIT);
        if let Some(member) = shared.lock().members.get_mut(&rank) {
            member.heard = Instant::now();
        }
        match message {
            Ok(ToServer::Relay { to, body }) => {
                shared.pass_on(to, &ToRank::Relay { from: rank, body })
            }
            Ok(ToServer::Gather { stage, value, seconds }) => {
                shared.gather(rank, stage, value, seconds);
            }
            Ok(ToServer::Part { stage, items }) => {
                shared.pass_on(0, &ToRank::Part { stage, from: rank, items });
            }
            Ok(ToServer::Bye) => return shared.leave(rank, true),
            Ok(ToServer::Hello(_)) | Err(_) => return shared.leave(rank, false),
        }
    }
}

fn greet(stream: &TcpStream) -> io::Result<Hello> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HELLO_PATIENCE))?;
    stream.set_write_timeout(Some(WRITE_PATIENCE))?;
    let ToServer::Hello(hello) = frame::read(stream, frame::HELLO_LIMIT)? else {
        return Err(io::Error::other("the first message is not a hello"));
    };
    stream.set_read_timeout(None)?;
    Ok(hello)
}

/// Why a rank does not fit to those that are there.
fn misfit(hello: &Hello, ranks: u32, state: &Stages) -> Option<String> {
    let Hello { version, rank, parameters, .. } = hello;
    let from = |hello: &Hello| format!("rank {} on {}", hello.rank, hello.entry.host);
    let who = from(hello);
    if *version != VERSION {
        return Some(format!(
            "{who} speaks version {version} of the rendezvous, and rank 0 version {VERSION}: run \
             one version of verbgate on all ranks"
        ));
    }
    if hello.ranks != ranks {
        let theirs = hello.ranks;
        return Some(format!("{who} was told --ranks {theirs}, and rank 0 {ranks}"));
    }
    if *rank >= ranks {
        return Some(format!("{who}: of {ranks} ranks, the last is {}", ranks - 1));
    }
    if let Some(other) = state.members.get(rank) {
        let other = from(&other.hello);
        return Some(format!("two processes are rank {rank}: {other}, and {who}"));
    }
    let (other, member) = state.members.first_key_value()?;
    let theirs = &member.hello.parameters;
    (theirs != parameters)
        .then(|| format!("rank {rank} was told \"{parameters}\", and rank {other} \"{theirs}\""))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Stages> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What nobody's message brings about; whether all is over.
    fn look_after(&self, began: Instant, patience: Duration) -> bool {
        let mut state = self.lock();
        let all = state.members.len() == usize::try_from(self.ranks).unwrap_or(usize::MAX);
        let late = !state.complete && state.refused.is_none() && began.elapsed() >= patience;
        // Two make a fabric.
        let enough = late && state.members.len() > 1 && state.members.contains_key(&0);
        if late && !enough {
            let absent = (0..self.ranks).filter(|rank| !state.members.contains_key(rank));
            let reason = Error::Missing {
                stage: "rendezvous".to_owned(),
                ranks: absent.collect(),
                seconds: patience.as_secs(),
            };
            state.refuse(EXIT_TIMEOUT, reason.to_string());
        }
        if let Some(refusal) = state.refused.clone() {
            let streams = state.streams();
            state.members.values_mut().for_each(|member| member.done = true);
            drop(state);
            broadcast(&streams, &refusal.message());
            let mut state = self.lock();
            state.told += streams.len();
            let all = state.told >= usize::try_from(self.ranks).unwrap_or(usize::MAX);
            return all || refusal.since.elapsed() >= FAREWELL;
        }
        if (all || enough) && !state.complete {
            state.complete = true;
            let welcome = state.welcome(self.ranks);
            state.tell_all(welcome);
            self.post(state);
            return false;
        }
        state.look_at_gathers();
        state.deliver();
        let over = state.complete && state.left == state.members.len();
        self.post(state);
        over
    }

    /// Writes all letters. When this returns, those that were there have been written, by whomever.
    fn post(&self, state: MutexGuard<'_, Stages>) {
        drop(state);
        let _turn = self.posting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(letter) = self.lock().next_letter() else { return };
            letter.post();
        }
    }

    fn pass_on(&self, to: u32, message: &ToRank) {
        let stream = self.lock().members.get(&to).map(|member| Arc::clone(&member.stream));
        if let Some(stream) = stream {
            send(&stream, message);
        }
    }

    fn gather(&self, rank: u32, stage: String, value: Value, seconds: u64) {
        let mut state = self.lock();
        let now = Instant::now();
        let new = || Gather { values: BTreeMap::new(), began: now, seconds, told: now };
        state.gathers.entry(stage).or_insert_with(new).values.insert(rank, value);
        state.deliver();
        self.post(state);
    }

    fn leave(&self, rank: u32, orderly: bool) {
        let mut state = self.lock();
        if !state.complete {
            // Another may still come in its place.
            state.members.remove(&rank);
            return;
        }
        if state.drop_out(rank) && !orderly {
            state.tell_all(ToRank::Lost { rank, why: Loss::Ended });
        }
        state.deliver();
        self.post(state);
    }
}
