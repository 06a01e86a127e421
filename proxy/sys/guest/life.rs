//! Lives of processes that use RDMA: signals, forks, programs executed, ends.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::kernel;
use crate::kernel::Child;
use crate::kernel::End;
use crate::kernel::addr_mut;
use crate::kernel::call;
use crate::kernel::fork;
use crate::kernel::int;
use crate::kernel::outcome;
use crate::kernel::pipe;
use crate::kernel::say;
use crate::kernel::threads;
use crate::raw;

/// A request that reaches the device; the null device's answer is ENOTTY.
pub(crate) fn request(fd: i32) -> io::Result<i32> {
    let mut out = [0; 2];
    raw::query_context(&mut out).send(fd)
}

/// Whether a request reached the null device.
fn reached(result: &io::Result<i32>) -> bool {
    result.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENOTTY))
}

/// How so many requests ended, as `ENOTTY 3, EINTR 1`.
pub(crate) fn tally(fd: i32, count: u32) -> String {
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..count {
        *ends.entry(outcome(&request(fd)).to_string()).or_default() += 1;
    }
    let ends: Vec<String> = ends.iter().map(|(end, count)| format!("{end} {count}")).collect();
    ends.join(", ")
}

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

static SIGNALS: AtomicI32 = AtomicI32::new(0);

/// Has a signal counted, and nothing else done.
pub(crate) fn catch(signal: i32, flags: i32) {
    // SAFETY: all zeros are a valid sigaction: no mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: the handler only adds to an atomic number.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

/// Requests under a flood of signals, whose handler asks for restarts or does not.
pub(crate) fn signals(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    for (name, flags) in [("restarting", libc::SA_RESTART), ("interrupting", 0)] {
        catch(libc::SIGALRM, flags);
        let before = SIGNALS.load(Ordering::Relaxed);
        let every = |micros: u64| {
            let timer = [0, micros, 0, micros];
            call(libc::SYS_setitimer, &[int(libc::ITIMER_REAL), kernel::addr(&timer), 0])
        };
        every(100)?;
        let ends = tally(file.as_raw_fd(), 5000);
        every(0)?;
        let came = SIGNALS.load(Ordering::Relaxed) - before;
        println!("{name}: {ends}; signals came: {}", came > 100);
    }
    Ok(())
}

/// A child that makes requests is stopped and continued, again and again; each stop is complete,
/// and no result is lost.
pub(crate) fn stops(device: &str) -> Result<(), Box<dyn Error>> {
    let (mut ready, mut tell) = pipe()?;
    let (mut go_on, stop) = pipe()?;
    let child = fork(|| {
        let Ok(file) = raw::open(device) else { return 1 };
        let mut reader_done = false;
        let mut lost = !reached(&request(file.as_raw_fd()));
        let _ = tell.write_all(b".");
        // SAFETY: a plain number; the pipe's end is this child's own.
        unsafe { libc::fcntl(go_on.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        drop(stop.try_clone());
        while !reader_done {
            lost |= !reached(&request(file.as_raw_fd()));
            reader_done = go_on.read(&mut [0]).is_ok();
        }
        i32::from(lost)
    })?;
    ready.read_exact(&mut [0])?;
    for _ in 0..20 {
        child.signal(libc::SIGSTOP);
        child.wait_stopped()?;
        child.signal(libc::SIGCONT);
    }
    println!("stopped each time");
    let mut stop = stop;
    stop.write_all(b".")?;
    println!("{:?}", child.wait()?);
    Ok(())
}

/// Stop signals that come while the first request of a process has its stub planted.
pub(crate) fn stops_at_first(device: &str) -> Result<(), Box<dyn Error>> {
    let mut ends = BTreeMap::new();
    for _ in 0..60 {
        let (mut ready, mut tell) = pipe()?;
        let child = fork(|| {
            let Ok(file) = raw::open(device) else { return 1 };
            let _ = tell.write_all(b".");
            i32::from(!reached(&request(file.as_raw_fd())))
        })?;
        ready.read_exact(&mut [0])?;
        for _ in 0..30 {
            child.signal(libc::SIGSTOP);
            child.signal(libc::SIGCONT);
        }
        *ends.entry(format!("{:?}", child.wait()?)).or_insert(0) += 1;
    }
    println!("{ends:?}");
    Ok(())
}

/// Parent and child: whose stub runs whose requests.
pub(crate) fn forks(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    println!("parent: {} with {} stubs", outcome(&request(fd)), threads().len() - 1);
    let child = fork(|| {
        let before = threads().len();
        let reached = reached(&request(fd));
        println!("child: {reached} with {} stubs, {} before", threads().len() - 1, before - 1);
        let grandchild = fork(|| i32::from(!self::reached(&request(fd))));
        let end = grandchild.and_then(|grandchild| grandchild.wait());
        i32::from(end.ok() != Some(End::Code(0)))
    })?;
    println!("{:?}", child.wait()?);
    println!("spawned: {:?}", Command::new("/bin/true").status()?.code());
    println!("parent: {} with {} stubs", outcome(&request(fd)), threads().len() - 1);
    Ok(())
}

/// What a child that borrows its parent's memory is to do.
struct Borrower {
    fd: i32,
    result: AtomicI32,
}

extern "C" fn borrow(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent, which waits meanwhile, has passed a `Borrower`.
    let borrower = unsafe { &*argument.cast::<Borrower>() };
    let result = request(borrower.fd).err().and_then(|e| e.raw_os_error()).unwrap_or(0);
    borrower.result.store(result, Ordering::Release);
    0
}

/// A child as vfork(2) makes it, which makes a request.
fn vforked(fd: i32) -> io::Result<io::Error> {
    let borrower = Borrower { fd, result: AtomicI32::new(0) };
    let mut stack = vec![0_u64; 8192];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let top = stack.as_mut_ptr_range().end.cast();
    let argument = std::ptr::from_ref(&borrower).cast_mut().cast();
    // SAFETY: this thread waits until the child has ended, so both the stack and the argument
    // outlive it; the child calls nothing that minds to be in another's memory.
    let pid = unsafe { libc::clone(borrow, top, flags, argument) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Child(pid).wait()?;
    Ok(io::Error::from_raw_os_error(borrower.result.load(Ordering::Acquire)))
}

/// Requests of a child in its parent's memory, before and after the parent's own first one.
pub(crate) fn borrowers(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    say("child first", &Err::<(), _>(vforked(fd)?));
    say("parent", &request(fd));
    say("child", &Err::<(), _>(vforked(fd)?));
    say("parent again", &request(fd));
    println!("{} stubs", threads().len() - 1);
    Ok(())
}

/// Another program in the same process, which uses RDMA again.
pub(crate) fn executes(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    say("first program", &request(file.as_raw_fd()));
    io::stdout().flush()?;
    Err(Command::new("/proc/self/exe").args(["once", device]).exec().into())
}

/// One request.
pub(crate) fn once(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    println!("{} with {} stubs", outcome(&request(file.as_raw_fd())), threads().len() - 1);
    Ok(())
}

/// One thread makes the first request, another executes a program: the program runs.
pub(crate) fn executes_meanwhile(device: &str) -> Result<(), Box<dyn Error>> {
    let mut ends = BTreeMap::new();
    for turn in 0..200 {
        let child = fork(|| {
            let Ok(file) = raw::open(device) else { return 1 };
            let go = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    go.store(true, Ordering::Release);
                    let _ = request(file.as_raw_fd());
                });
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                // Somewhere in the half millisecond that planting takes.
                for _ in 0..turn * 100 {
                    std::hint::spin_loop();
                }
                let _ = Command::new("/bin/true").exec();
            });
            1
        })?;
        *ends.entry(format!("{:?}", child.wait()?)).or_insert(0) += 1;
    }
    println!("{ends:?}");
    Ok(())
}

/// The users of this process's threads, without repetition.
fn users() -> io::Result<BTreeSet<String>> {
    let line = |tid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status"))?;
        Ok(status.lines().find(|line| line.starts_with("Uid:")).unwrap_or_default().to_owned())
    };
    threads().iter().map(line).collect()
}

/// The process becomes another user, if it may: its requests are that user's from then on.
pub(crate) fn becomes(device: &str) -> Result<(), Box<dyn Error>> {
    const NOBODY: u64 = 65534;
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    say("before", &request(fd));
    // SAFETY: takes no argument.
    let user = u64::from(unsafe { libc::getuid() });
    let user = if user == 0 { NOBODY } else { user };
    say("change", &call(libc::SYS_setresuid, &[user, user, user]));
    while threads().len() > 1 {
        std::thread::yield_now();
    }
    println!("no stub of the former user is left");
    say("after", &request(fd));
    println!("{} stubs, {} user", threads().len() - 1, users()?.len());
    Ok(())
}

/// Ends the calling thread, and no other.
fn end_thread(code: i32) -> ! {
    // SAFETY: SYS_exit ends this thread at once; nobody joins it, and what it holds leaks.
    unsafe { libc::syscall(libc::SYS_exit, code) };
    unreachable!()
}

/// The first thread ends while another goes on; then that one ends, too, and nothing is left but
/// a stub. `group`: it ends the process instead.
pub(crate) fn ends(device: &str, group: bool) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    say("first", &request(fd));
    let main = kernel::gettid();
    std::thread::Builder::new().spawn(move || {
        let state = || std::fs::read_to_string(format!("/proc/self/task/{main}/stat"));
        while state().is_ok_and(|stat| !stat.contains(") Z")) {
            std::thread::yield_now();
        }
        println!("alone: {}", tally(fd, 50));
        if group {
            // SAFETY: ends the process.
            unsafe { libc::_exit(7) }
        }
        end_thread(9)
    })?;
    std::mem::forget(file);
    end_thread(5)
}

/// Children that make requests are killed at any moment; `go` and `done` are on the standard
/// streams, for somebody to look at the supervisor before and after.
pub(crate) fn killed(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    say("first", &request(file.as_raw_fd()));
    println!("supervisor {}", kernel::getppid());
    io::stdin().read_line(&mut String::new())?;
    let mut seed = 1_u32;
    let mut ends = BTreeMap::new();
    for _ in 0..count.parse()? {
        let (mut ready, mut tell) = pipe()?;
        let child = fork(|| {
            let Ok(file) = raw::open(device) else { return 1 };
            let _ = tell.write_all(b".");
            let work = || while reached(&request(file.as_raw_fd())) {};
            std::thread::scope(|scope| {
                scope.spawn(work);
                work();
            });
            2
        })?;
        ready.read_exact(&mut [0])?;
        // Xorshift: any moment of the planting and the first requests.
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        for _ in 0..seed % 100_000 {
            std::hint::spin_loop();
        }
        child.signal(libc::SIGKILL);
        *ends.entry(format!("{:?}", child.wait()?)).or_insert(0) += 1;
    }
    println!("{ends:?}");
    say("last", &request(file.as_raw_fd()));
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// The supervisor is killed; what it served goes on without.
pub(crate) fn bereft(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    say("first", &request(fd));
    let supervisor = kernel::getppid();
    call(libc::SYS_kill, &[int(supervisor), int(libc::SIGKILL)])?;
    while kernel::getppid() == supervisor {
        std::thread::yield_now();
    }
    say("request", &request(fd));
    say("open", &raw::open(device));
    say("close", &call(libc::SYS_close, &[int(fd)]));
    std::mem::forget(file);
    // A stub that nobody will ever let go again must not stay.
    while threads().len() > 1 {
        std::thread::yield_now();
    }
    println!("no stub is left");
    let child = fork(|| 0)?;
    println!("{:?}", child.wait()?);
    let mut status = 0_i32;
    let _ = call(libc::SYS_wait4, &[int(-1), addr_mut(&mut status), int(libc::WNOHANG), 0]);
    Ok(())
}

/// Threads make requests, each with a pause of so many microseconds after each; for every line that is read, what became
/// of those since the last.
pub(crate) fn streams(device: &str, threads: &str, pause: &str) -> Result<(), Box<dyn Error>> {
    static ENDS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    let pause = Duration::from_micros(pause.parse()?);
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    for _ in 0..threads.parse()? {
        std::thread::spawn(move || {
            loop {
                let end = outcome(&request(fd)).to_string();
                if let Ok(mut ends) = ENDS.lock() {
                    *ends.entry(end).or_default() += 1;
                }
                std::thread::sleep(pause);
            }
        });
    }
    println!("{}", std::process::id());
    for line in io::stdin().lines() {
        line?;
        let ends = ENDS.lock().map(|mut ends| std::mem::take(&mut *ends)).unwrap_or_default();
        println!("{ends:?}");
    }
    Ok(())
}
