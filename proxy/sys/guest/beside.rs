//! The cost of requests beside other threads of the process: one that polls, and many that sleep.

use std::error::Error;
use std::hint::spin_loop;
use std::io::Read as _;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::thread::CpuSet;
use rustix::thread::sched_getaffinity;
use rustix::thread::sched_setaffinity;

use crate::kernel::End;
use crate::kernel::fork;
use crate::kernel::pipe;
use crate::life::request;
use crate::raw;

/// The pause between two requests of a program that polls for completions.
const PAUSE: Duration = Duration::from_micros(500);

/// Makes so many requests beside a thread that polls without a pause, each pinned to a processor of its own.
/// The poller opens the device and makes the first request, or the main thread before there is a poller.
pub(crate) fn poller(device: &str, opens: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let count: u32 = count.parse()?;
    let allowed = sched_getaffinity(None)?;
    let processors: Vec<usize> =
        (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).take(2).collect();
    let pin = |number: Option<&usize>| {
        let mut set = CpuSet::new();
        number.iter().for_each(|number| set.set(**number));
        sched_setaffinity(None, &set)
    };
    let file = OnceLock::new();
    let open =
        || file.get_or_init(|| raw::open(device).inspect(|file| drop(request(file.as_raw_fd()))));
    if opens == "main" {
        let _ = open();
    }
    let (start, stop) = (Barrier::new(2), AtomicBool::new(false));
    let mut times = thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin(processors.last());
            let _ = open();
            start.wait();
            while !stop.load(Ordering::Relaxed) {
                spin_loop();
            }
        });
        start.wait();
        let _ = pin(processors.first());
        let fd = open().as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let timed = |_| {
            thread::sleep(PAUSE);
            let begun = Instant::now();
            let _ = request(fd);
            begun.elapsed().as_nanos()
        };
        let times: Vec<u128> = (0..count).map(timed).collect();
        stop.store(true, Ordering::Relaxed);
        times
    });
    open().as_ref().map_err(|error| format!("cannot open {device}: {error}"))?;
    times.sort_unstable();
    let of = |hundredth: usize| times.get(times.len() * hundredth / 100).copied().unwrap_or(0);
    println!("median {} ns, p99 {} ns", of(50), of(99));
    Ok(())
}

/// The first open and the first request of so many processes, one after another, of so many threads each.
pub(crate) fn sleepers(device: &str, threads: &str, processes: &str) -> Result<(), Box<dyn Error>> {
    let (threads, processes): (usize, usize) = (threads.parse()?, processes.parse()?);
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..processes {
        let (mut told, mut tell) = pipe()?;
        let child = fork(|| {
            let started = Barrier::new(threads);
            thread::scope(|scope| {
                for _ in 1..threads {
                    scope.spawn(|| {
                        started.wait();
                        loop {
                            thread::park();
                        }
                    });
                }
                started.wait();
                let begun = Instant::now();
                let Ok(file) = raw::open(device) else { std::process::exit(1) };
                let opened = begun.elapsed();
                let _ = request(file.as_raw_fd());
                let figures = [opened, begun.elapsed() - opened].map(|time| time.as_nanos());
                let told = tell.write_all(figures.map(u128::to_ne_bytes).as_flattened());
                std::process::exit(i32::from(told.is_err()))
            })
        })?;
        drop(tell);
        for times in &mut times {
            let mut time = [0; 16];
            told.read_exact(&mut time)?;
            times.push(u128::from_ne_bytes(time));
        }
        if child.wait()? != End::Code(0) {
            return Err("a process failed".into());
        }
    }
    let [opened, asked] = times.map(|mut times| {
        times.sort_unstable();
        times.get(processes / 2).copied().unwrap_or(0)
    });
    println!("open {opened} ns, request {asked} ns");
    Ok(())
}
