//! Generated calls: every system call of the native and the 32-bit table, with arguments drawn around a stub, while the
//! world outside compares what each stub has with what stubs have.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use libc::c_long;

use super::born;
use crate::board::Board;
use crate::guest::Guest;
use crate::guest::NOBODY;
use crate::guest::minion;
use crate::random::Random;
use crate::raw;
use crate::raw::PAGE;
use crate::raw::become_user;
use crate::raw::call;
use crate::raw::fork;
use crate::raw::gettid;
use crate::raw::int;
use crate::raw::memory;
use crate::raw::poke;
use crate::request;
use crate::stubs;

/// The rows of the sandbox's own table: name, and numbers for x86-64, IA32, AArch64 and AArch32.
const TABLE: &str = include_str!("../../../../proxy/sys/src/seccomp/calls.txt");
/// The columns of the processor's own calls, and of its 32-bit ones, which an AArch64 thread cannot make.
const COLUMNS: [usize; 2] = if cfg!(target_arch = "x86_64") { [0, 1] } else { [2, 3] };
/// Calls that end or stop the caller, wait, make others, or take away what the caller itself stands on.
const LEFT_OUT: &str = "exit exit_group kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal \
    reboot pause rt_sigsuspend rt_sigtimedwait rt_sigreturn restart_syscall wait4 waitid nanosleep clock_nanosleep \
    select pselect6 poll ppoll epoll_wait epoll_pwait epoll_pwait2 futex futex_wait futex_waitv futex_requeue semop \
    semtimedop msgrcv msgsnd mq_timedreceive mq_timedsend accept accept4 recvfrom recvmsg recvmmsg connect flock fork \
    vfork clone clone3 execve execveat arch_prctl alarm setitimer timer_create timer_settime io_getevents \
    io_pgetevents brk vhangup sync syncfs rt_sigaction rt_sigprocmask sigaltstack personality uprobe uretprobe";
/// Calls in a test; `--calls N` asks for more.
pub(crate) const SOME: u64 = 30_000;
/// For how long a group of threads makes calls, and how long it may take to end by itself.
const LIFE: Duration = Duration::from_millis(500);
const END: Duration = Duration::from_secs(1);

/// The numbers of the calls that are drawn, of a column of the table.
fn numbers(column: usize) -> Vec<u32> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let number = |row: &str| {
        let mut words = row.split_whitespace();
        let name = words.next()?;
        let number = words.nth(column)?.parse().ok()?;
        (!LEFT_OUT.split_whitespace().any(|out| out == name)).then_some(number)
    };
    rows.filter_map(number).collect()
}

/// The words from which arguments are drawn, and the calls.
struct Around {
    words: Vec<u64>,
    native: Vec<u32>,
    foreign: Vec<u32>,
}

impl Around {
    fn new(fd: i32, stub: i32) -> io::Result<Self> {
        let scratch = memory(None, 16 * PAGE)?;
        let task = format!("/proc/self/task/{stub}");
        let names = ["fd/0", "fd/2", "mem", "map_files", "fdinfo/0", ""];
        let mut words: Vec<u64> =
            (0..13).chain([35, 40, 64, 0o200, 0o2_000_002, u64::MAX]).collect();
        words.extend([1 << 16, 1 << 32, u64::from(u32::MAX), PAGE, 256 << 10, 1 << 20]);
        words.extend([int(fd), stub as u64, gettid() as u64, u64::from(std::process::id())]);
        for (place, name) in (0..).zip(names) {
            // Paths, and vectors that lead to the stub's memory.
            let at = scratch + place * 256;
            let path = format!("{task}/{name}\0");
            for (word, bytes) in (0..).zip(path.into_bytes().chunks(8)) {
                let mut whole = [0; 8];
                whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                poke(at + 8 * word, u64::from_ne_bytes(whole));
            }
            words.push(at);
        }
        for (place, mapping) in (0..).zip(stubs::mappings("memfd:verbgate-")) {
            let (at, len) = (mapping.start, mapping.end - mapping.start);
            let vector = scratch + 8 * PAGE + place * 16;
            poke(vector, at);
            poke(vector + 8, len);
            words.extend([at, at + PAGE, at | 0x5a << 56, at.wrapping_sub(PAGE), len, vector]);
        }
        let own = call(libc::SYS_pidfd_open, &[u64::from(std::process::id()), 0])?;
        words.extend([own, scratch, scratch + 15 * PAGE]);
        let [native, foreign] = COLUMNS.map(numbers);
        Ok(Self { words, native, foreign })
    }

    fn word(&self, random: &mut Random) -> u64 {
        let word = random.pick(&self.words).copied().unwrap_or(0);
        match random.below(10) {
            0 => word ^ 1 << random.below(64),
            1 => word.wrapping_add(random.draw() % 4096),
            _ => word,
        }
    }

    fn make_one(&self, random: &mut Random) {
        let mut args = [0; 6];
        args.iter_mut().for_each(|arg| *arg = self.word(random));
        let [a, b, c, ..] = args;
        if random.percent(5) {
            let number = random.pick(&self.foreign).copied().unwrap_or(0);
            born::int80(number, [a, b, c]);
        } else {
            let number = random.pick(&self.native).copied().unwrap_or(0);
            let _ = call(c_long::from(number), &args);
        }
    }
}

/// Groups of four threads, and two tasks that share their memory or their descriptors, one group after the other; some under a filter
/// of their own, some with an instruction that changes.
pub(super) fn generated(guest: &Guest) -> io::Result<()> {
    if guest.is_root() {
        println!("as nobody alone: root's calls are about the whole machine");
        return Ok(());
    }
    let wanted = guest.settings.get("calls").parse().unwrap_or(SOME);
    let mut seeds = Random::new(guest.settings.get("seed").parse().unwrap_or(0));
    let mut groups = 0;
    let made = || guest.board.mine(0);
    while made() < wanted {
        let pair = [seeds.draw(), seeds.draw()];
        let group = pair.map(|seed| minion(|| group(guest, seed)));
        for one in group {
            let one = one?;
            // A child that is not reaped yet has its number.
            if !raw::within(END, || is_reaped(one)) {
                raw::kill(one, libc::SIGKILL);
                raw::until(|| is_reaped(one));
            }
        }
        groups += 2;
        if groups > 100 && made() == 0 {
            println!("BROKEN: no call is made");
            break;
        }
    }
    println!("calls: {} by {groups} groups", made());
    Ok(())
}

/// Shows outside of every sandbox that generated calls take memory away that stands in for a stub's.
pub(super) fn natively(_: &Board, _: &str) -> io::Result<()> {
    for seed in 0..40 {
        let child = fork(|| i32::from(loses_memory(seed).is_ok_and(|loses| loses)))?;
        let mut end = None;
        // Some calls wait, and some end their caller.
        raw::within(END, || {
            end = raw::ended(child);
            end.is_some()
        });
        raw::kill(child, libc::SIGKILL);
        raw::wait(child);
        if end == Some(1) {
            println!("natively: generated calls of seed {seed}: take a stand-in's memory away");
            return Ok(());
        }
    }
    Err(io::Error::other("BROKEN: natively, generated calls take no memory away"))
}

/// Calls are made with the world's descriptors, too: what is said there stays as it is.
fn mute() -> io::Result<()> {
    let null = request::open("/dev/null")?;
    (0..3).try_for_each(|fd| raw::dup2(null, fd).map(drop))
}

fn loses_memory(seed: u64) -> io::Result<bool> {
    become_user(NOBODY)?;
    mute()?;
    call(libc::SYS_close_range, &[3, u64::from(u32::MAX), 0])?;
    let name = c"verbgate-stub".to_bytes_with_nul();
    let file = call(libc::SYS_memfd_create, &[raw::addr(&name[0]), 0])? as i32;
    call(libc::SYS_ftruncate, &[int(file), 3 * PAGE])?;
    let code = libc::PROT_READ | libc::PROT_EXEC;
    let at = raw::mmap(0, 3 * PAGE, code, libc::MAP_SHARED, file)?;
    let around = Around::new(request::open("/dev/urandom")?, gettid())?;
    let (mut random, mut resident) = (Random::new(seed), [0_u8; 3]);
    loop {
        (0..16).for_each(|_| around.make_one(&mut random));
        let there = call(libc::SYS_mincore, &[at, 3 * PAGE, raw::addr_mut(&mut resident)]);
        if there.is_err_and(|error| error.raw_os_error() == Some(libc::ENOMEM)) {
            return Ok(true);
        }
    }
}

/// Whether a child is gone. A thread of it that asked to be traced (PTRACE_TRACEME) is waited for as well.
fn is_reaped(child: i32) -> bool {
    loop {
        // SAFETY: the status is not asked for.
        let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) };
        if pid <= 0 {
            return !std::path::Path::new(&format!("/proc/{child}")).exists();
        }
    }
}

/// The group is to end.
static OVER: AtomicBool = AtomicBool::new(false);

/// A task that shares the memory or the descriptors of the group that made it.
extern "C" fn sharer(around: *mut libc::c_void) -> libc::c_int {
    let _ = call(libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64]);
    // SAFETY: the maker's, which outlives this task or is copied with the maker's memory.
    let around = unsafe { &*around.cast::<Around>() };
    let mut random = Random::new(u64::from(std::process::id()));
    while !OVER.load(Ordering::Relaxed) {
        around.make_one(&mut random);
    }
    0
}

fn group(guest: &Guest, seed: u64) -> io::Result<()> {
    let mut random = Random::new(seed);
    // The second device is open in stubs alone.
    let fd = request::open(guest.other())?;
    if random.percent(30) {
        let native = numbers(COLUMNS[0]);
        let number = random.pick(&native).copied().unwrap_or(0);
        let errno = -(random.below(134) as i64);
        let _ = born::answered(number.into(), errno, random.percent(50));
    }
    let changes = random.percent(25);
    let page = memory(None, PAGE)?;
    if changes {
        raw::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)?;
        let ask = raw::ioctl_at(page);
        let request = memory(None, PAGE)?;
        request::lay_out_on(fd, request, request + 2048);
        thread::spawn(move || {
            let last = raw::IOCTL.len() - 1;
            for changed in raw::CHANGED.into_iter().cycle() {
                poke(page + 8 * last as u64, changed);
                poke(page + 8 * last as u64, raw::IOCTL[last]);
            }
        });
        ask(fd, request);
    } else {
        request::query(fd);
    }
    let own = [gettid()];
    let stub = raw::threads().into_iter().find(|tid| !own.contains(tid)).unwrap_or(0);
    let around = Around::new(fd, stub)?;
    let board = guest.board;
    let _ = mute();
    for flags in [libc::CLONE_VM, libc::CLONE_FILES] {
        let stack = raw::Stack::new()?;
        let around = raw::addr(&around);
        let _ = raw::clone(sharer, around, flags | libc::SIGCHLD, &stack, 0);
    }
    thread::scope(|scope| {
        for seed in 0..4 {
            let (around, mut random) = (&around, Random::new(random.draw() ^ seed));
            scope.spawn(move || {
                while !OVER.load(Ordering::Relaxed) {
                    for _ in 0..16 {
                        around.make_one(&mut random);
                    }
                    board.add_mine(0, 16);
                    if random.percent(5) {
                        request::query(fd);
                    }
                }
            });
        }
        thread::sleep(LIFE);
        OVER.store(true, Ordering::Relaxed);
    });
    raw::exit(0)
}

/// Compares, outside, what each stub has with what stubs have, and looks for the device in all other tables.
pub(super) fn compared(board: &Board, dir: &str) -> io::Result<()> {
    let (mut codes, mut looks): (HashMap<u64, Vec<u8>>, u64) = (HashMap::new(), 0);
    let device = fs::metadata("/dev/urandom").map(|node| device_of(&node))?;
    let wrong = |what: String| {
        // `World::show` finds the line among what the attacked said.
        let line = format!("BROKEN: {what}\n");
        let log = fs::OpenOptions::new().append(true).create(true).open(format!("{dir}/log"));
        log.and_then(|mut log| io::Write::write_all(&mut log, line.as_bytes()))
    };
    loop {
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
            else {
                continue;
            };
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            // Guests are this program; supervisors have the device by right.
            if !comm.starts_with("program") {
                continue;
            }
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                if let Some(what) = look(&task.path(), device, &mut codes) {
                    wrong(what)?;
                }
                looks += 1;
            }
        }
        board.set_mine(1, looks);
        raw::sleep(2);
    }
}

fn device_of(node: &fs::Metadata) -> u64 {
    node.rdev()
}

/// Tells of a thread that has what it must not have, or of a stub without its memory.
fn look(task: &std::path::Path, device: u64, codes: &mut HashMap<u64, Vec<u8>>) -> Option<String> {
    let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
    let maps = read("maps");
    let bounds = |line: &&str| -> Option<(u64, u64)> {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
    };
    // mlock(2) and mbind(2) of some pages split a mapping.
    let end_of = |lines: &[&str], at: u64, rights: &str| {
        let parts = lines.iter().filter(|line| line.contains(rights));
        parts.filter_map(bounds).fold(at, |end, (from, to)| if from == end { to } else { end })
    };
    let is_code = |line: &&str| line.contains("verbgate-stub") && line.contains(" r-xs ");
    let code: Vec<&str> = maps.lines().filter(is_code).collect();
    let (from, _) = bounds(code.first()?)?;
    let to = end_of(&code, from, " r-xs ");
    let call = read("syscall");
    let ip = call.split_whitespace().last()?.trim_start_matches("0x").to_owned();
    let ip = u64::from_str_radix(&ip, 16).ok()?;
    let is_stub = ip >= from && ip < to;
    for entry in fs::read_dir(task.join("fd")).into_iter().flatten().flatten() {
        let Ok(node) = fs::metadata(entry.path()) else { continue };
        if device_of(&node) != device {
            continue;
        }
        let info = entry.file_name().into_string().ok()?;
        let info = read(&format!("fdinfo/{info}"));
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let is_path = u64::from_str_radix(field("flags:")?, 8).ok()? & libc::O_PATH as u64 != 0;
        // Another file may have come under the number, by threads that go on.
        if field("ino:")? != node.ino().to_string() {
            continue;
        }
        // A stub on its way is none of those that wait; it is looked at again.
        let still = read("syscall") == call;
        if !is_path && !is_stub && still && !call.starts_with("running") {
            let (link, info) = (fs::read_link(entry.path()), info.replace("\n", " "));
            return Some(format!("{} has the open device: {link:?} {info} {call}", task.display()));
        }
    }
    if !is_stub {
        return None;
    }
    let stays = |name: &str| name.starts_with("/memfd:verbgate-");
    // A place in the frame of a stub that waits: its request's, or that of its orders. A stub that is being made, and
    // shows what a call returned, has no request.
    let words: Vec<&str> = call.split_whitespace().take(4).collect();
    let number = |at: usize| {
        let word = words.get(at)?.trim_start_matches("0x");
        u64::from_str_radix(word, 16).ok()
    };
    let is = |call: c_long| words.first() == Some(&&*call.to_string());
    let request = match (is(libc::SYS_ioctl), is(libc::SYS_futex)) {
        (true, _) => number(3).unwrap_or(0),
        (_, true) => number(1).unwrap_or(0),
        _ => 0,
    };
    let waits = request != 0;
    // The mappings seen before the stub was seen to wait may be the half. A thread that ends has no memory at all.
    let maps = if waits { read("maps") } else { maps };
    if maps.is_empty() {
        return None;
    }
    let window: Vec<&str> = maps
        .lines()
        .filter(|line| bounds(line).is_some_and(|(at, _)| at >> 32 == from >> 32))
        .collect();
    let are_whole = request.checked_sub(to).is_some_and(|from| {
        let frame = to + (from >> 20 << 20);
        let half = end_of(&window, frame, " r--s ");
        half == frame + (256 << 10) && end_of(&window, half, " rw-s ") == half + (256 << 10)
    });
    if waits && !are_whole && read("syscall") == call {
        return Some(format!("{}: a stub with {window:?}", task.display()));
    }
    // Where no stub has its frame, shmat(2) may map something of the guest's, whose stub has no place there then.
    let is_ours = |line: &&str| line.split_whitespace().nth(5).is_some_and(stays);
    let slots = (0..8).map(|slot| to + (slot << 20)).map(|at| (at, at + (512 << 10)));
    for (from, to) in slots.chain([(from, to)]) {
        let is_in = |line: &&&str| bounds(line).is_some_and(|(at, end)| at < to && end > from);
        let there: Vec<&&str> = window.iter().filter(is_in).collect();
        let is_wrong = |line: &&&&str| {
            !is_ours(line) || line.contains(" rw") && !line.contains("verbgate-scratch")
        };
        if there.iter().any(|line| is_ours(line))
            && let Some(line) = there.iter().find(is_wrong)
        {
            return Some(format!("{}: {line}", task.display()));
        }
    }
    let mut bytes = vec![0; (to - from) as usize];
    let mem = fs::File::open(task.join("mem")).ok()?;
    mem.read_exact_at(&mut bytes, from).ok()?;
    let first = codes.entry(to - from).or_insert_with(|| bytes.clone());
    (*first != bytes).then(|| format!("{}: the stub's code is another", task.display()))
}
