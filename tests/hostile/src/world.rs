//! The world of one attack: few numbers, a canary, two bystanders, and the attacked sandbox.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use crate::SKIPPED;
use crate::attacks;
use crate::attacks::Attack;
use crate::board::Board;
use crate::board::Word;
use crate::canary;
use crate::container::Container;
use crate::few::Few;
use crate::few::PID_MAX;
use crate::few::namespaces_have_their_own;
use crate::guest::PATIENCE;
use crate::look;
use crate::options::Options;
use crate::raw;
use crate::raw::addr;
use crate::raw::call;
use crate::raw::fork;
use crate::raw::mount;
use crate::raw::sleep;
use crate::raw::until;

/// How long a world may exist.
const LIFE: Duration = Duration::from_secs(110);
/// Waits of the bystander outside that one wait of the bystander inside may consist of.
const CROWD: u32 = 10;
/// The bystander outside waits less on a machine that does nothing else.
const USUAL: Duration = Duration::from_millis(20);
/// How long a sandbox may take to be gone after SIGTERM.
const GONE: Duration = Duration::from_secs(5);
/// What a container's supervisor takes in KiB, with the kernel's memory for it, when nobody attacks.
const SMALL: u64 = 8 << 10;
/// How long the bystanders are watched before the attack.
const QUIET: Duration = Duration::from_millis(400);

/// Tries an attack in a world of its own.
pub(crate) fn run(name: &str, words: &[&str]) -> io::Result<u8> {
    let attack = attacks::find(name)?;
    let options = Options::parse(words)?;
    // SAFETY: takes no argument.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: needs root, for namespaces and for processes of several users");
        return Ok(SKIPPED);
    }
    let few = Few::new(attack.numbers, options.machine)?;
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
    let mut code = raw::wait(director, LIFE);
    if code.is_none() {
        println!("BROKEN: the world did not end in {} s", LIFE.as_secs());
        raw::kill(director, libc::SIGKILL);
        raw::wait(director, Duration::from_secs(10));
        code = Some(1);
    }
    drop(few);
    if let Ok(path) = CString::new(dir.as_str()) {
        let path = addr(&path.as_bytes_with_nul()[0]);
        let _ = call(libc::SYS_umount2, &[path, libc::MNT_DETACH as u64]);
    }
    let _ = fs::remove_dir(&dir);
    Ok(u8::try_from(code.unwrap_or(1)).unwrap_or(1))
}

/// The world, seen from its process 1.
struct World<'a> {
    attack: &'a Attack,
    options: &'a Options,
    dir: &'a str,
    board: Board,
    ended: HashMap<i32, i32>,
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
            fs::write(PID_MAX, attack.numbers.to_string())?;
        }
        // Numbers below 300 are not given again: the first time round must be over.
        for _ in 0..320 {
            let child = fork(|| 0)?;
            raw::wait(child, PATIENCE);
        }
        let board = Board::make(dir)?;
        let settings = |answer: i32, other: i32| {
            format!(
                "attack={}\nuser={}\ndevice={}\nother={}\n\
                 answer={answer}\nother-answer={other}\nreal={}\nseed={}\naddress={}\n",
                attack.name,
                options.user,
                options.path(0),
                options.path(1),
                u8::from(options.real),
                options.seed,
                options.address,
            )
        };
        let text = if options.real {
            settings(0, libc::EINVAL)
        } else {
            settings(libc::ENOTTY, libc::EINVAL)
        };
        fs::write(format!("{dir}/settings"), text)?;
        Ok(Self { attack, options, dir, board, ended: HashMap::new(), broken: 0 })
    }

    fn run(&mut self) -> io::Result<u8> {
        if let Some(prepare) = self.attack.prepare
            && let Err(error) = prepare(&self.board, self.dir)
        {
            println!("{error}");
            return Ok(if error.to_string().starts_with("SKIPPED") { SKIPPED } else { 1 });
        }
        let canary = self.helper(&["canary", self.dir, "canary"])?;
        if !until(PATIENCE, || {
            self.board.at(Word::Canary, 0).load(std::sync::atomic::Ordering::SeqCst) != 0
        }) {
            return Err(io::Error::other("the canary does not live"));
        }
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
        let meters = [self.board.meter(Word::Inside), self.board.meter(Word::Outside)];
        let ready = until(PATIENCE, || {
            self.reap();
            self.ended.contains_key(&attacked)
                || self.board.get(Word::Leader) != 0 && meters.iter().all(|m| m.is_ready())
        });
        if !ready || self.ended.contains_key(&attacked) {
            self.show();
            return Err(io::Error::other("the sandboxes do not start"));
        }
        for meter in &meters {
            meter.take_worst();
        }
        std::thread::sleep(QUIET);
        let quiet = meters.map(|m| m.take_worst());
        // The runtime's process, where that is not the supervisor's.
        let size = look::resident(attacked).filter(|_| container.is_none());

        let supervisor = container.as_ref().map_or_else(|| vec![attacked], Container::supervisor);
        let before_go = look::scheduled(&supervisor);

        self.board.set(Word::Go, 1);
        let helper = match self.attack.outside {
            Some(outside) => {
                let (board, dir) = (self.board, self.dir.to_owned());
                Some(fork(move || i32::from(outside(&board, &dir).is_err()))?)
            }
            None => None,
        };
        let ended_early = self.watch(attacked);
        let worst = meters.map(|m| m.take_worst());
        let stopped = meters.map(|m| m.stopped());
        let code = self.board.get(Word::AttackerDone).checked_sub(1);
        // A busy machine stretches every wait. By how much tells the bystander outside, whom the attacked
        // supervisor does not serve; the one inside is one of a crowd. And a supervisor alone in a control group
        // was seen to get no processor for two seconds.
        let starved = look::starved(&before_go, &look::scheduled(&supervisor));
        let busy = worst[1].saturating_sub(USUAL) * CROWD + starved;
        let bounds = [self.options.bound + busy, self.options.bound];
        // The numbers first: what follows may end some of them.
        for (at, which) in ["inside", "outside"].into_iter().enumerate() {
            println!(
                "bystander {which}: worst {:.1} ms of {:.0}, {:.1} ms before the attack; {} requests",
                millis(worst[at]),
                millis(bounds[at]),
                millis(quiet[at]),
                meters[at].requests(),
            );
            if stopped[at] {
                self.broken(&format!("the bystander {which} makes no requests any more"));
            }
            if worst[at] > bounds[at] && code != Some(u64::from(SKIPPED)) {
                self.broken(&format!(
                    "the bystander {which} waited {:.0} ms, more than {} ms",
                    millis(worst[at]),
                    bounds[at].as_millis()
                ));
            }
        }
        if let (Some(before), Some(after)) = (size, look::resident(attacked)) {
            let fetched = look::fetched(attacked).unwrap_or(0);
            println!(
                "supervisor: {before} KiB before the attack, {after} KiB after; pages that it had to \
                 wait for the disk for: {fetched}"
            );
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
        if code.is_none() && !self.attack.goes_on && !ended_early {
            self.broken(&format!(
                "the attacker is not done after {} s: what it found out is not known",
                (self.attack.lasts * self.options.stretch).as_secs()
            ));
        }
        if ended_early {
            self.broken("the attacked sandbox's supervisor ended");
        }
        match &container {
            Some(container) => self.delete(container, attacked)?,
            None => self.end(attacked, "the attacked sandbox"),
        }
        self.end(outside, "the other sandbox");
        self.left();
        self.compare(canary, &before)?;
        self.show();
        match code {
            Some(77) => return Ok(SKIPPED),
            Some(0) | None => {}
            Some(137) => println!("the attacker was killed"),
            Some(code) => println!("the attacker ended with {code}"),
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

    /// Waits until the attack is over; says whether the sandbox has ended.
    fn watch(&mut self, attacked: i32) -> bool {
        let begun = Instant::now();
        let mut rest = None;
        loop {
            self.reap();
            if self.ended.contains_key(&attacked) {
                return true;
            }
            if self.board.get(Word::AttackerDone) != 0 && rest.is_none() {
                rest = Some(Instant::now());
            }
            // What it set in motion may come to pass.
            let over = rest.is_some_and(|at| at.elapsed() > Duration::from_millis(300));
            if over || begun.elapsed() > self.attack.lasts * self.options.stretch {
                return false;
            }
            sleep(5);
        }
    }

    fn reap(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: `status` is an int that lives through the call.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WNOHANG) };
            if pid <= 0 {
                return;
            }
            self.ended.insert(pid, status);
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
        raw::kill(pid, libc::SIGTERM);
        let gone = |world: &mut Self, patience| {
            until(patience, || {
                world.reap();
                world.ended.contains_key(&pid)
            })
        };
        let limit = look::unhurried(GONE);
        if gone(self, limit) {
            println!("{name}: gone {:.0} ms after SIGTERM", millis(begun.elapsed()));
            return;
        }
        self.broken(&format!("{name} is not gone {} s after SIGTERM", limit.as_secs()));
        raw::kill(pid, libc::SIGKILL);
        if !gone(self, Duration::from_secs(3)) {
            self.broken(&format!("{name}'s supervisor survives SIGKILL"));
        }
    }

    /// Ends a container as an engine does; `run` is the process that waits for its end.
    fn delete(&mut self, container: &Container<'_>, run: i32) -> io::Result<()> {
        let (begun, limit) = (Instant::now(), look::unhurried(GONE));
        let delete = container.delete(self.file("delete.err")?)?.id() as i32;
        let gone = |world: &mut Self, pid| {
            until(limit.saturating_sub(begun.elapsed()), || {
                world.reap();
                world.ended.contains_key(&pid)
            })
        };
        let deleted = gone(self, delete);
        let took = millis(begun.elapsed());
        if !deleted {
            self.broken(&format!("delete --force takes longer than {} s", limit.as_secs()));
            raw::kill(delete, libc::SIGKILL);
        }
        if gone(self, run) {
            println!("the container: gone {:.0} ms after delete --force", millis(begun.elapsed()));
            return Ok(());
        }
        // The first process of a pid namespace ends after all others, whoever runs the container.
        let (stuck, left) = look::in_the_kernel(look::filtered());
        if stuck.is_empty() {
            self.broken(&format!("the container goes on: {}", left.join(", ")));
        } else if deleted {
            println!(
                "the container: deleted {took:.0} ms after delete --force, but for what the kernel holds"
            );
        }
        raw::kill(run, libc::SIGKILL);
        Ok(())
    }

    /// Nothing that was under a filter may go on.
    fn left(&mut self) {
        let mut left = BTreeSet::new();
        until(Duration::from_secs(1), || {
            self.reap();
            left = look::filtered();
            left.is_empty()
        });
        let (stuck, left) = look::in_the_kernel(left);
        stuck.iter().for_each(|line| println!("in the kernel, by its own doing: {line}"));
        if !left.is_empty() {
            self.broken(&format!("left behind: {}", left.join(", ")));
        }
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
