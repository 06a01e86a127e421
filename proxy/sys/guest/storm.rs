//! A storm: many processes and threads that open a device at the same moment, some of them stopped meanwhile.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::io::Read as _;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use crate::kernel::fork;
use crate::kernel::outcome;
use crate::life::request;
use crate::raw;

/// Opens the device and makes a request: the answer.
fn answer(device: &str) -> String {
    match raw::open(device) {
        Ok(file) => outcome(&request(file.as_raw_fd())).to_string(),
        Err(e) => format!("open: {}", outcome::<()>(&Err(e))),
    }
}

/// Has a child tell something and execute another program: what the child tells, and how it ends.
fn told_by(work: impl FnOnce() -> String) -> io::Result<(String, String)> {
    let (mut told, mut tell) = io::pipe()?;
    let child = fork(|| {
        if tell.write_all(work().as_bytes()).is_err() {
            return 1;
        }
        let _ = Command::new("/bin/true").exec();
        1
    })?;
    drop(tell);
    let mut text = String::new();
    told.read_to_string(&mut text)?;
    Ok((text, format!("{:?}", child.wait()?)))
}

/// So many processes of so many threads, each of which opens the device so many times and makes a request each time;
/// so many of the processes are stopped in the middle, until all others are done. One more process makes requests
/// all the while.
pub(crate) fn storm(device: &str, counts: [&str; 4]) -> Result<(), Box<dyn Error>> {
    let [processes, threads, opens, stopped] = counts.map(str::parse::<usize>);
    let (processes, threads, opens, stopped) = (processes?, threads?, opens?, stopped?);
    // A child asks the device: this process is to have no stub that others inherit.
    let expected = told_by(|| answer(device))?.0;
    let one = || (0..opens).map(|_| answer(device)).find(|told| *told != expected);
    let (mut gate, go) = io::pipe()?;
    let (mut done, working) = io::pipe()?;
    let mut go = Some(go);
    let mut storms = Vec::new();
    for _ in 0..processes {
        storms.push(fork(|| {
            drop(go.take());
            let _ = gate.read(&mut [0]);
            let ends: Vec<_> = std::thread::scope(|scope| {
                let all: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
                let own = one();
                let others = all.into_iter().filter_map(|thread| thread.join().unwrap_or(None));
                own.into_iter().chain(others).collect()
            });
            ends.iter().for_each(|end| eprintln!("storm: {end}"));
            i32::from(!ends.is_empty())
        })?);
    }
    drop(working);
    let (mut told, mut tell) = io::pipe()?;
    let bystander = fork(|| {
        drop(go.take());
        let Ok(file) = raw::open(device) else { return 1 };
        // The pipe ends with the last of those that were stopped.
        let (mut longest, mut made) = (Duration::ZERO, 0_u64);
        rustix::io::ioctl_fionbio(&done, true).ok();
        while done.read(&mut [0]).is_err() {
            let begun = Instant::now();
            if outcome(&request(file.as_raw_fd())).to_string() != expected {
                return 2;
            }
            (longest, made) = (longest.max(begun.elapsed()), made + 1);
        }
        let line = format!("made {made} longest {} ms", longest.as_millis());
        i32::from(tell.write_all(line.as_bytes()).is_err())
    })?;
    drop(tell);
    let begun = Instant::now();
    drop(go.take());
    let (late, prompt) = storms.split_at(stopped);
    // Each is somewhere else by then: about to open, in the middle of a planting, at a request.
    for (place, one) in late.iter().enumerate() {
        std::thread::sleep(Duration::from_micros(100 * (place as u64 % 10)));
        one.signal(libc::SIGSTOP);
    }
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    let mut wait = |one: &crate::kernel::Child| -> io::Result<()> {
        *ends.entry(format!("{:?}", one.wait()?)).or_default() += 1;
        Ok(())
    };
    prompt.iter().try_for_each(&mut wait)?;
    late.iter().for_each(|one| one.signal(libc::SIGCONT));
    late.iter().try_for_each(&mut wait)?;
    println!("{ends:?}");
    eprintln!("storm: {:?}", begun.elapsed());
    println!("bystander: {:?}", bystander.wait()?);
    let mut line = String::new();
    told.read_to_string(&mut line)?;
    eprintln!("storm: the bystander {line}");
    Ok(())
}

/// Has a new process open the device, make a request, close the device and execute another program, for each line of the
/// input, and tells what came of that.
pub(crate) fn steps(device: &str) -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lines() {
        line?;
        let (text, end) = told_by(|| answer(device))?;
        println!("{text}, {end}");
    }
    Ok(())
}
