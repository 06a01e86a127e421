//! Processes that open, duplicate, send, close, fork, execute and end at random, against a
//! reference that knows which descriptor of which process is which device.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::time::Instant;

use crate::guest::Guest;
use crate::random::Random;
use crate::raw;
use crate::raw::fork;
use crate::raw::is_short;
use crate::raw::name;
use crate::request;
use crate::worker::Line;
use crate::worker::call_in;
use crate::worker::device_at;

/// How long it goes on.
const LASTS: Duration = Duration::from_secs(6);
const MOST_WORKERS: usize = 6;
const MOST_DESCRIPTORS: usize = 16;
/// Steps shown of those before a fault.
const SHOWN: usize = 14;

/// What a descriptor is, as the reference knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Open {
    device: usize,
    close_on_exec: bool,
}

struct Worker {
    pid: i32,
    line: Line,
    table: BTreeMap<i32, Open>,
}

struct Model<'a> {
    paths: [&'a str; 2],
    answers: [i32; 2],
    nodes: [i32; 2],
    random: Random,
    listener: UnixListener,
    workers: Vec<Worker>,
    history: VecDeque<String>,
    steps: usize,
}

/// A fault that the model found; it ends the test.
type Step = Result<(), String>;

pub(super) fn model(guest: &Guest) -> io::Result<()> {
    let seed: u64 = guest.settings.get("seed").parse().unwrap_or(1);
    println!("seed {seed}");
    let path = format!("{}/open/model", guest.dir);
    let listener = UnixListener::bind(&path)?;
    let paths = [guest.device(), guest.other()];
    let mut model = Model {
        paths,
        answers: paths.map(|path| guest.answer_of(path)),
        nodes: [device_at(paths[0])?, device_at(paths[1])?],
        // A state of zeros would stay so.
        random: Random::new(seed),
        listener,
        workers: Vec::new(),
        history: VecDeque::new(),
        steps: 0,
    };
    // SAFETY: ignoring a signal runs nothing.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let begun = Instant::now();
    let mut done = Ok(());
    while begun.elapsed() < LASTS && done.is_ok() {
        if model.workers.is_empty() {
            if fork(|| i32::from(call_in(&path).is_err())).is_ok() {
                done = model.arrive(BTreeMap::new());
            }
        } else {
            done = model.step();
        }
    }
    println!("{} steps", model.steps);
    if let Err(fault) = done {
        println!("BROKEN: seed {seed}, step {}: {fault}", model.steps);
        for line in &model.history {
            println!("before: {line}");
        }
    }
    Ok(())
}

impl Model<'_> {
    fn note(&mut self, line: String) {
        self.history.push_back(line);
        if self.history.len() > SHOWN {
            self.history.pop_front();
        }
    }

    /// A worker that was started calls.
    fn arrive(&mut self, table: BTreeMap<i32, Open>) -> Step {
        let fault = |what: &str| format!("a worker does not call: {what}");
        let (stream, _) = self.listener.accept().map_err(|e| fault(&e.to_string()))?;
        let mut line = Line(stream);
        let pid = line.hear().map_err(|e| fault(&e.to_string()))?;
        self.workers.push(Worker { pid: pid.parse().unwrap_or(0), line, table });
        Ok(())
    }

    /// Tells a worker something, and hears its answer.
    fn tell(&mut self, worker: usize, what: &str) -> Result<i32, String> {
        let pid = self.workers[worker].pid;
        let line = &mut self.workers[worker].line;
        let answer = line.say(what).and_then(|()| line.hear());
        let told = format!("worker {worker} (process {pid}): {what}");
        match answer {
            Ok(answer) => {
                self.note(format!("{told}: {answer}"));
                answer.parse().map_err(|_| format!("{told}: {answer}"))
            }
            Err(error) => Err(format!("{told}: it does not answer: {error}")),
        }
    }

    /// One of a worker's descriptors.
    fn any(&mut self, worker: usize) -> Option<(i32, Open)> {
        let count = self.workers[worker].table.len();
        let place = if count == 0 { return None } else { self.random.below(count) };
        self.workers[worker].table.iter().nth(place).map(|(fd, open)| (*fd, *open))
    }

    fn step(&mut self) -> Step {
        self.steps += 1;
        let worker = self.random.below(self.workers.len());
        let full = self.workers[worker].table.len() >= MOST_DESCRIPTORS;
        match self.random.below(28) {
            0..=5 if !full => self.open(worker)?,
            6..=9 if !full => self.duplicate(worker)?,
            10..=12 => self.close(worker)?,
            13 => self.close_range(worker)?,
            14..=16 if self.workers.len() < MOST_WORKERS => self.fork(worker)?,
            17 => self.execute(worker)?,
            18..=19 => self.end(worker)?,
            20 => self.change_nothing(worker)?,
            21..=22 => self.send(worker)?,
            23 => {
                let burnt = 5 + self.random.below(40);
                self.tell(worker, &format!("burn {burnt}")).map(drop)?;
            }
            _ => {}
        }
        if self.steps.is_multiple_of(60) {
            return self.ask_all();
        }
        if self.workers.is_empty() {
            return Ok(());
        }
        let worker = self.random.below(self.workers.len());
        match self.any(worker) {
            Some((fd, open)) => self.ask(worker, fd, open),
            None => Ok(()),
        }
    }

    fn ask(&mut self, worker: usize, fd: i32, open: Open) -> Step {
        let how = if self.random.below(4) == 0 { "ask-by-thread" } else { "ask" };
        let answer = self.tell(worker, &format!("{how} {fd}"))?;
        let expected = self.answers[open.device];
        if is_short(answer) {
            return Ok(());
        }
        if answer != expected {
            return Err(format!(
                "worker {worker}'s descriptor {fd} is {}, which answers {}; it answered {}",
                self.paths[open.device],
                name(expected),
                name(answer)
            ));
        }
        if self.random.below(8) == 0 {
            let node = self.tell(worker, &format!("device {fd}"))?;
            if node != self.nodes[open.device] {
                return Err(format!("worker {worker}'s descriptor {fd} shows device {node}"));
            }
        }
        Ok(())
    }

    fn ask_all(&mut self) -> Step {
        for worker in 0..self.workers.len() {
            for (fd, open) in self.workers[worker].table.clone() {
                self.ask(worker, fd, open)?;
            }
        }
        Ok(())
    }

    /// A number that a worker got must not have been in use.
    fn enter(&mut self, worker: usize, fd: i32, open: Open, what: &str) -> Step {
        if is_short(fd) && fd < 0 {
            return Ok(());
        }
        if fd < 0 {
            return Err(format!("worker {worker}: {what} failed with {}", name(-fd)));
        }
        match self.workers[worker].table.insert(fd, open) {
            None => Ok(()),
            Some(_) => Err(format!("worker {worker}: {what} gave {fd}, which is open already")),
        }
    }

    fn open(&mut self, worker: usize) -> Step {
        let open = Open { device: self.random.below(2), close_on_exec: self.random.below(2) == 0 };
        let path = self.paths[open.device];
        let fd = self.tell(worker, &format!("open {path} {}", i32::from(open.close_on_exec)))?;
        self.enter(worker, fd, open, "open")
    }

    fn duplicate(&mut self, worker: usize) -> Step {
        let Some((fd, open)) = self.any(worker) else { return Ok(()) };
        match self.random.below(4) {
            0 => {
                let new = self.tell(worker, &format!("dup {fd}"))?;
                self.enter(worker, new, Open { close_on_exec: false, ..open }, "dup")
            }
            1 => {
                let (least, kept) = ([40, 970, 1000][self.random.below(3)], self.random.below(2));
                let new = self.tell(worker, &format!("dup-above {fd} {least} {kept}"))?;
                self.enter(worker, new, Open { close_on_exec: kept == 1, ..open }, "fcntl")
            }
            _ => {
                // Onto another descriptor of a device, or onto a number like its.
                let onto = match self.any(worker) {
                    Some((other, _)) if self.random.below(2) == 0 => other,
                    _ => [30, 31, 50, 980, 990, 1010][self.random.below(6)],
                };
                let flags = if self.random.below(2) == 0 { 0 } else { libc::O_CLOEXEC };
                let new = self.tell(worker, &format!("dup3 {fd} {onto} {flags}"))?;
                if fd == onto {
                    return if new == -libc::EINVAL {
                        Ok(())
                    } else {
                        Err(format!("dup3 onto itself: {new}"))
                    };
                }
                if new != onto {
                    return Err(format!("worker {worker}: dup3 of {fd} onto {onto}: {new}"));
                }
                self.workers[worker].table.insert(onto, Open { close_on_exec: flags != 0, ..open });
                Ok(())
            }
        }
    }

    fn close(&mut self, worker: usize) -> Step {
        let Some((fd, _)) = self.any(worker) else { return Ok(()) };
        let closed = self.tell(worker, &format!("close {fd}"))?;
        self.workers[worker].table.remove(&fd);
        if closed != 0 {
            return Err(format!("worker {worker}: close of {fd}: {}", name(-closed)));
        }
        // The kernel knows it no more, and so must the supervisor.
        let answer = self.tell(worker, &format!("ask {fd}"))?;
        if answer == libc::EBADF || is_short(answer) {
            Ok(())
        } else {
            Err(format!("closed {fd} answers {}", name(answer)))
        }
    }

    fn close_range(&mut self, worker: usize) -> Step {
        let Some((first, _)) = self.any(worker) else { return Ok(()) };
        let last = first + self.random.below(4) as i32;
        let closed = self.tell(worker, &format!("close-range {first} {last}"))?;
        self.workers[worker].table.retain(|fd, _| *fd < first || *fd > last);
        if closed == 0 { Ok(()) } else { Err(format!("close_range: {}", name(-closed))) }
    }

    fn fork(&mut self, worker: usize) -> Step {
        if self.tell(worker, "fork")? != 0 {
            return Ok(());
        }
        let table = self.workers[worker].table.clone();
        self.arrive(table)
    }

    fn execute(&mut self, worker: usize) -> Step {
        let line = &mut self.workers[worker].line;
        line.say("execute").map_err(|e| e.to_string())?;
        self.note(format!("worker {worker}: execute"));
        self.workers[worker].table.retain(|_, open| !open.close_on_exec);
        // It answers as the next program.
        self.tell(worker, "burn 0").map(drop)
    }

    fn end(&mut self, worker: usize) -> Step {
        let ended = self.workers.swap_remove(worker);
        self.note(format!("worker {worker} (process {}) ends", ended.pid));
        if self.random.below(2) == 0 {
            raw::kill(ended.pid, libc::SIGKILL);
        }
        Ok(())
    }

    fn change_nothing(&mut self, worker: usize) -> Step {
        let what = ["same-user", "same-group"][self.random.below(2)];
        let changed = self.tell(worker, what)?;
        if changed == 0 || is_short(changed) {
            Ok(())
        } else {
            Err(format!("{what}: {}", name(-changed)))
        }
    }

    /// From one to another, by way of this process, which looks at it, too.
    fn send(&mut self, from: usize) -> Step {
        let to = self.random.below(self.workers.len());
        if self.workers[to].table.len() >= MOST_DESCRIPTORS {
            return Ok(());
        }
        let Some((fd, open)) = self.any(from) else { return Ok(()) };
        let fault = |e: io::Error| format!("sending {fd}: {e}");
        let socket = |worker: &Worker| worker.line.0.try_clone();
        self.workers[from].line.say(&format!("send {fd}")).map_err(fault)?;
        let stream: UnixStream = socket(&self.workers[from]).map_err(fault)?;
        let ours = raw::receive(&stream).map_err(fault)?;
        // SAFETY: just received, and nobody else's.
        let _closes = unsafe { OwnedFd::from_raw_fd(ours) };
        self.note(format!("worker {from} sends {fd}, to worker {to}"));
        let answer = request::query(ours);
        if answer != self.answers[open.device] && !is_short(answer) {
            return Err(format!("descriptor {fd}, received, answers {}", name(answer)));
        }
        self.workers[to].line.say("take").map_err(fault)?;
        let stream = socket(&self.workers[to]).map_err(fault)?;
        raw::send(&stream, ours).map_err(fault)?;
        let new = self.workers[to].line.hear().map_err(fault)?;
        let new = new.parse().unwrap_or(-1);
        self.enter(to, new, Open { close_on_exec: false, ..open }, "receiving")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It ends when it hears nothing more.
        let _ = self.line.0.shutdown(std::net::Shutdown::Both);
    }
}
