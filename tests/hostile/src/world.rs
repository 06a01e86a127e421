//! The world of one attack: few numbers, a canary, two bystanders, and the attacked sandbox.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::process::Stdio;
use std::ptr::null_mut;
use std::time::Duration;
use std::time::Instant;

use verbgate_wait::Stalled;
use verbgate_wait::Wait;

use crate::SKIPPED;
use crate::attacks;
use crate::attacks::Attack;
use crate::board::Board;
use crate::board::Meter;
use crate::board::Word;
use crate::canary;
use crate::container::Container;
use crate::few::Few;
use crate::few::PID_MAX;
use crate::few::namespaces_have_their_own;
use crate::guest::NAME;
use crate::held;
use crate::look;
use crate::options::Options;
use crate::raw;
use crate::raw::addr;
use crate::raw::call;
use crate::raw::fork;
use crate::raw::mount;

/// The processor time that a sandbox's start or end takes at most; and an answer to a request, with what the supervisor
/// does for others meanwhile.
const USUAL: Duration = Duration::from_secs(3);
const REQUEST: Duration = Duration::from_millis(500);
/// Requests of each bystander beside an attack that goes on; and after one that has ended, since what the
/// attack set in motion may come to pass.
const BESIDE: u64 = 200;
const AFTER: u64 = 60;
/// Requests of a bystander by which an attack is over, or goes on, or else waits for ever: the longest took a
/// twentieth of these. Who is kept from the processors makes fewer requests, too.
const MOST: u64 = 60_000;
/// What a container's supervisor takes in KiB, with the kernel's memory for it, when nobody attacks.
const SMALL: u64 = 8 << 10;

/// Tries an attack in a world of its own.
pub(crate) fn run(name: &str, words: &[&str]) -> io::Result<u8> {
    let attack = attacks::find(name)?;
    let options = Options::parse(words)?;
    // SAFETY: takes no argument.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: needs root, for namespaces and for processes of several users");
        return Ok(SKIPPED);
    }
    let few = Few::new(numbers(attack, &options), options.machine)?;
    let dir = format!("/tmp/verbgate-hostile-{}-{}", std::process::id(), crate::board::now());
    fs::create_dir(&dir)?;
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    call(libc::SYS_unshare, &[flags as u64])?;
    let director = fork(|| match World::new(attack, &options, &dir).and_then(|mut w| w.run()) {
        Ok(code) => i32::from(code),
        Err(error) => {
            println!("BROKEN: the world could not be made: {error}");
            2
        }
    })?;
    let code = raw::wait(director);
    drop(few);
    if let Ok(path) = CString::new(dir.as_str()) {
        let path = addr(&path.as_bytes_with_nul()[0]);
        let _ = call(libc::SYS_umount2, &[path, libc::MNT_DETACH as u64]);
    }
    let _ = fs::remove_dir(&dir);
    Ok(u8::try_from(code.unwrap_or(1)).unwrap_or(1))
}

/// The limit of process numbers: few, but for a crowd.
fn numbers(attack: &Attack, options: &Options) -> u32 {
    if options.minions > 1 { attack.numbers + 32 * options.minions } else { attack.numbers }
}

/// The world, seen from its process 1.
struct World<'a> {
    attack: &'a Attack,
    options: &'a Options,
    dir: &'a str,
    board: Board,
    ended: HashSet<i32>,
    broken: u32,
}

impl<'a> World<'a> {
    fn new(attack: &'a Attack, options: &'a Options, dir: &'a str) -> io::Result<Self> {
        mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "")?;
        mount("proc", "/proc", "proc", 0, "")?;
        mount("tmpfs", dir, "tmpfs", 0, "mode=755")?;
        fs::copy("/proc/self/exe", format!("{dir}/program"))?;
        fs::set_permissions(format!("{dir}/program"), fs::Permissions::from_mode(0o755))?;
        // For attackers to write to.
        fs::create_dir(format!("{dir}/open"))?;
        fs::set_permissions(format!("{dir}/open"), fs::Permissions::from_mode(0o1777))?;
        if namespaces_have_their_own() {
            fs::write(PID_MAX, numbers(attack, options).to_string())?;
        }
        // Numbers below 300 are not given again: the first time round must be over.
        for _ in 0..320 {
            let child = fork(|| 0)?;
            raw::wait(child);
        }
        let board = Board::make(dir)?;
        let settings = |answer: i32, other: i32| {
            format!(
                "attack={}\nuser={}\ndevice={}\nother={}\n\
                 answer={answer}\nother-answer={other}\nreal={}\nseed={}\naddress={}\nminions={}\ncompat={}\nshare={}\ncalls={}\nnative={}\n",
                attack.name,
                options.user,
                options.path(0),
                options.path(1),
                u8::from(options.real),
                options.seed,
                options.address,
                options.minions,
                options.compat,
                options.share,
                options.calls,
                options.native,
            )
        };
        let text = if options.real {
            settings(0, libc::EINVAL)
        } else {
            settings(libc::ENOTTY, libc::EINVAL)
        };
        fs::write(format!("{dir}/settings"), text)?;
        Ok(Self { attack, options, dir, board, ended: HashSet::new(), broken: 0 })
    }

    fn run(&mut self) -> io::Result<u8> {
        if let Some(prepare) = self.attack.prepare
            && let Err(error) = prepare(&self.board, self.dir)
        {
            println!("{error}");
            return Ok(if error.to_string().starts_with("SKIPPED") { SKIPPED } else { 1 });
        }
        let canary = self.helper(&["canary", self.dir, "canary"])?;
        self.until(wait("the canary", &[canary], all), |world| world.board.get(Word::Canary) != 0);
        let before = canary::possessions(canary)?;
        let outside = self.sandbox("outside", &["bystander", self.dir, "outside"], false)?;
        let container = match &self.options.container {
            Some(runtime) => Some(Container::new(self.options, self.dir, runtime)?),
            None => None,
        };
        let attacked = match &container {
            Some(container) => {
                container.run(self.file("attacked.out")?, self.file("attacked.err")?)?.id() as i32
            }
            None => self.sandbox("attacked", &["leader", self.dir], self.attack.traced)?,
        };
        let [inside, other] = [Word::Inside, Word::Outside].map(|word| self.board.meter(word));
        let mut bystanders = [
            Bystander { which: "inside", meter: inside, served: vec![attacked] },
            Bystander { which: "outside", meter: other, served: vec![outside] },
        ];
        for Bystander { which, meter, served } in &bystanders {
            let what = format!("the bystander {which}");
            let ready = self.until(wait(&what, served, all), |world| {
                meter.is_ready() || world.has_ended(served)
            });
            if !ready || self.has_ended(served) {
                self.show();
                return Err(io::Error::other(format!("{what} does not start")));
            }
        }
        // The runtime's process, where that is not the supervisor's.
        let size = look::resident(attacked).filter(|_| container.is_none());
        bystanders[0].served.extend(container.iter().flat_map(Container::supervisor));

        let before_go = bystanders.each_ref().map(|bystander| {
            bystander.meter.take_worst();
            bystander.meter.requests()
        });
        let supervisor_before = look::used(attacked).unwrap_or_default();
        let begun = Instant::now();
        self.board.set(Word::Go, 1);
        let helper = match self.attack.outside {
            Some(outside) => {
                let (board, dir) = (self.board, self.dir.to_owned());
                Some(fork(move || i32::from(outside(&board, &dir).is_err()))?)
            }
            None => None,
        };
        self.watch(&bystanders);
        let lasted = begun.elapsed().as_millis();
        let used = [
            look::used_by_attackers(attacked),
            look::used(attacked).unwrap_or_default().saturating_sub(supervisor_before),
        ];
        println!(
            "processors: {:.0} ms of the attackers, {:.0} ms of their supervisor",
            millis(used[0]),
            millis(used[1])
        );
        for (bystander, before) in bystanders.iter().zip(before_go) {
            let Bystander { which, meter, .. } = bystander;
            println!(
                "bystander {which}: worst {:.1} ms of {lasted} ms; {} requests",
                millis(meter.take_worst()),
                meter.requests() - before,
            );
        }
        let code = self.board.get(Word::AttackerDone).checked_sub(1);
        if let (Some(before), Some(after)) = (size, look::resident(attacked)) {
            println!("supervisor: {before} KiB before the attack, {after} KiB after");
            if after > before + self.attack.growth {
                self.broken("the supervisor grew without end");
            }
        }
        if let Some(most) = container.as_ref().and_then(Container::most_memory) {
            println!("supervisor: {most} KiB at most, with what the kernel has for it");
            if most > SMALL + self.attack.growth {
                self.broken("the supervisor's control group grew without end");
            }
        }
        for Bystander { which, served, .. } in &bystanders {
            if self.has_ended(served) {
                self.broken(&format!("the supervisor of the bystander {which} ended"));
            }
        }
        self.end(outside, "the other sandbox");
        match &container {
            Some(container) => self.delete(container, attacked, &bystanders[0].served)?,
            None => self.end(attacked, "the attacked sandbox"),
        }
        self.left();
        self.compare(canary, &before)?;
        self.show();
        match code {
            Some(77) => return Ok(SKIPPED),
            Some(0) | None => {}
            Some(137) => println!("the attacker was killed"),
            // An attack that did not take place proves nothing.
            Some(code) => self.broken(&format!("the attacker ended with {code}")),
        }
        let judged = container.is_none() && !self.options.native;
        if let Some(judge) = self.attack.judge.filter(|_| judged) {
            for line in judge(self.dir)? {
                self.broken(&line);
            }
        }
        for pid in helper.into_iter().chain([canary]) {
            raw::kill(pid, libc::SIGKILL);
        }
        println!("{}", if self.broken == 0 { "held" } else { "did not hold" });
        Ok(u8::from(self.broken > 0))
    }

    fn broken(&mut self, why: &str) {
        println!("BROKEN: {why}");
        self.broken += 1;
    }

    /// Waits until the attack is over, or a supervisor has ended. Meanwhile the requests of each bystander come to their
    /// end, one after the other.
    fn watch(&mut self, bystanders: &[Bystander; 2]) {
        let begun = Instant::now();
        let requests = || bystanders.each_ref().map(|bystander| bystander.meter.requests());
        let first = requests();
        let (mut noticed, mut held) = (None, self.options.held);
        loop {
            for Bystander { which, meter, served } in bystanders {
                let before = meter.requests();
                let what = format!("the end of a request of the bystander {which}");
                let wait = wait(&what, served, serves).usual(REQUEST);
                let ended = |world: &Self| meter.requests() > before || world.has_ended(served);
                if !self.until(wait, ended) || self.has_ended(served) {
                    return;
                }
            }
            let done = self.board.get(Word::AttackerDone) != 0;
            let now = requests();
            // Some attacks have no moment in which they are in effect.
            let begun_well = self.board.get(Word::InEffect) != 0 || now[0] - first[0] > AFTER;
            if let Some((means, long)) = held.take_if(|_| begun_well || done) {
                let outside = bystanders[1].meter.requests();
                match held::hold(bystanders[0].served[0], means, long) {
                    Ok(ended) => ended.iter().for_each(|line| self.broken(line)),
                    Err(error) => self.broken(&format!("the guests cannot be held: {error}")),
                }
                if bystanders[1].meter.requests() == outside {
                    self.broken("the other sandbox made no request while these guests were held");
                }
            }
            if done || self.board.get(Word::InEffect) != 0 {
                let from = *noticed.get_or_insert(now);
                let enough = if done { AFTER } else { BESIDE };
                let lasted = done || begun.elapsed() >= self.options.lasts;
                if lasted && now.iter().zip(from).all(|(now, from)| now - from >= enough) {
                    return;
                }
            } else if now[0] - first[0] > MOST {
                self.broken(&format!(
                    "the attacker waits for ever: {MOST} requests were made meanwhile"
                ));
                return;
            }
        }
    }

    /// Waits until something is so. False: nothing happens any more, and so something is broken.
    fn until(&mut self, wait: Wait, mut so: impl FnMut(&Self) -> bool) -> bool {
        let awaited = wait.try_until(|| {
            self.reap();
            Ok::<_, Stalled>(so(self))
        });
        awaited.map_err(|stalled| self.broken(&stalled.to_string())).is_ok()
    }

    /// Whether one of these children has ended.
    fn has_ended(&self, pids: &[i32]) -> bool {
        pids.iter().any(|pid| self.ended.contains(pid))
    }

    fn reap(&mut self) {
        loop {
            // SAFETY: the status is not asked for.
            let pid = unsafe { libc::waitpid(-1, null_mut(), libc::__WALL | libc::WNOHANG) };
            if pid <= 0 {
                return;
            }
            self.ended.insert(pid);
        }
    }

    fn helper(&self, part: &[&str]) -> io::Result<i32> {
        let child = Command::new(format!("{}/program", self.dir))
            .args(part)
            .stdin(Stdio::null())
            .spawn()?;
        Ok(child.id() as i32)
    }

    fn file(&self, name: &str) -> io::Result<File> {
        File::create(format!("{}/{name}", self.dir))
    }

    fn sandbox(&self, name: &str, part: &[&str], traced: bool) -> io::Result<i32> {
        let file = |what: &str| self.file(&format!("{name}.{what}"));
        let mut command = self.options.sandbox(self.dir, traced);
        command.args(part);
        command.stdin(Stdio::null()).stdout(file("out")?).stderr(file("err")?);
        Ok(command.spawn()?.id() as i32)
    }

    /// Ends a sandbox as an operator does.
    fn end(&mut self, pid: i32, name: &str) {
        let begun = Instant::now();
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            raw::kill(pid, signal);
            let what = format!("the end of {name} after signal {signal}");
            if self.until(wait(&what, &[pid], all), |world| world.has_ended(&[pid])) {
                return println!("{name}: gone after {:.0} ms", millis(begun.elapsed()));
            }
        }
    }

    /// Ends a container as an engine does; `run` is the process that waits for its end.
    fn delete(&mut self, container: &Container<'_>, run: i32, serve: &[i32]) -> io::Result<()> {
        let begun = Instant::now();
        let delete = container.delete(self.file("delete.err")?)?.id() as i32;
        let pids = [&[delete], serve].concat();
        if !self.until(wait("delete --force", &pids, all), |world| world.has_ended(&[delete])) {
            raw::kill(delete, libc::SIGKILL);
        }
        println!("the container: deleted after {:.0} ms", millis(begun.elapsed()));
        // The first process of a pid namespace ends after all others, whoever runs the container.
        let mut only_held = look::only_held(run);
        self.until(wait("the end of the container", &pids, all), |world| {
            world.has_ended(&[run]) || only_held()
        });
        if self.has_ended(&[run]) {
            println!("the container: gone after {:.0} ms", millis(begun.elapsed()));
        }
        raw::kill(run, libc::SIGKILL);
        Ok(())
    }

    /// Nothing that was under a filter may go on, but for what the kernel holds.
    fn left(&mut self) {
        let pids: Vec<i32> = look::filtered().into_keys().collect();
        let mut only_held = look::only_held(0);
        self.until(wait("the end of all guests", &pids, all), |_| {
            look::filtered().is_empty() || only_held()
        });
        look::filtered().values().for_each(|line| println!("left: {line}"));
    }

    fn compare(&mut self, canary: i32, before: &[String]) -> io::Result<()> {
        for (word, name) in [(Word::Canary, "the canary"), (Word::Heir, "the heir of a number")] {
            if let Some(how) = canary::changed(&self.board, word) {
                self.broken(&format!("MEMORY of {name} changed, outside of the sandbox: {how}"));
            }
        }
        let after = canary::possessions(canary)?;
        for line in before.iter().filter(|line| !after.contains(line)) {
            self.broken(&format!("the canary no longer has {line}"));
        }
        for line in after.iter().filter(|line| !before.contains(line)) {
            self.broken(&format!("the canary has got {line}"));
        }
        Ok(())
    }

    /// What guests and supervisors said.
    fn show(&mut self) {
        for (name, limit) in [
            ("attacked.out", 60),
            ("attacked.err", 12),
            ("log", 12),
            ("delete.err", 5),
            ("outside.out", 5),
            ("outside.err", 5),
        ] {
            let text = fs::read_to_string(format!("{}/{name}", self.dir)).unwrap_or_default();
            for line in text.lines().take(limit) {
                if line.starts_with("BROKEN: ") {
                    println!("{line}");
                    self.broken += 1;
                } else {
                    println!("    {line}");
                }
            }
            let more = text.lines().count().saturating_sub(limit);
            if more > 0 {
                println!("    and {more} lines of {name}");
            }
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A bystander, and the processes that serve it.
struct Bystander {
    which: &'static str,
    meter: Meter,
    served: Vec<i32>,
}

/// Whether a process serves a bystander, or is one, by its name.
fn serves(name: &str) -> bool {
    name.starts_with("verbgate") || NAME.to_str() == Ok(name)
}

fn all(_: &str) -> bool {
    true
}

/// A wait for what these processes do, and those of their descendants whose names pass.
fn wait(what: &str, pids: &[i32], passes: fn(&str) -> bool) -> Wait {
    let pids: Vec<u32> = pids.iter().map(|pid| pid.cast_unsigned()).collect();
    Wait::new(what).only(&pids, passes).usual(USUAL)
}
