//! Attacks by opens of two devices, and confusion of one with the other.

use std::fs;
use std::io;

use super::Inside;
use crate::guest::Guest;
use crate::guest::Settings;
use crate::guest::minion;
use crate::raw;
use crate::raw::close;
use crate::raw::dup2;
use crate::raw::fork;
use crate::raw::name;
use crate::raw::sleep;
use crate::request;

/// Uses one device in a way that its end is not seen, then the other in another process.
///
/// The kernel numbers mounts anew when they are gone.
pub(super) fn mount_id(guest: &Guest) -> io::Result<()> {
    for round in 0..4 {
        let ways: [(&str, Inside); 4] = [
            ("a duplicate", by_a_duplicate),
            ("a child that ends", by_a_child),
            ("a descriptor that was sent", by_sending),
            ("a program that executes another", by_executing),
        ];
        for (way, first) in ways {
            first(guest)?;
            sleep(10);
            let child = minion(|| {
                for path in [guest.other(), guest.device()] {
                    let fd = request::open(path)?;
                    let answer = request::query(fd);
                    if answer != guest.answer_of(path) {
                        println!("BROKEN: {path} after {way}: {}", name(answer));
                    }
                    close(fd);
                }
                Ok(())
            })?;
            if raw::wait(child) != Some(0) {
                println!("BROKEN: after {way}, round {round}: the next program failed");
            }
        }
    }
    println!("4 rounds of 4 ways");
    Ok(())
}

/// Two threads of one process, each with a table of descriptors of its own, to whom one number means
/// different devices, by turns; each has made requests before by that number.
pub(super) fn tables(guest: &Guest) -> io::Result<()> {
    const TURNS: u32 = 300;
    let (device, other) = (guest.device(), guest.other());
    let fd = guest.planted(device)?;
    let spare = guest.planted(other)?;
    let expect = |who: &str, turn: u32, wanted: i32| {
        let answer = request::query(fd);
        if answer != wanted {
            println!("BROKEN: {who}, turn {turn}: {} for {}", name(answer), name(wanted));
        }
    };
    let (first, second) = (guest.answer_of(device), guest.answer_of(other));
    let (give, take) = std::sync::mpsc::sync_channel(0);
    std::thread::scope(|scope| {
        let apart = scope.spawn(move || -> io::Result<()> {
            expect("with one table", 0, first);
            raw::call(libc::SYS_unshare, &[raw::int(libc::CLONE_FILES)])?;
            let own = dup2(fd, 50)?;
            while let Ok(turn) = take.recv() {
                match turn % 3 {
                    0 => drop(dup2(spare, fd)?),
                    1 => close(fd),
                    _ => drop(dup2(own, fd)?),
                }
                let wanted = [second, libc::EBADF, first];
                expect("apart", turn, wanted[turn as usize % 3]);
            }
            Ok(())
        });
        for turn in 0..TURNS {
            if give.send(turn).is_err() {
                break;
            }
            expect("the first", turn, first);
        }
        drop(give);
        apart.join().unwrap_or_else(|_| Err(io::Error::other("the thread apart has panicked")))
    })?;
    println!("{TURNS} turns");
    Ok(())
}

fn by_a_duplicate(guest: &Guest) -> io::Result<()> {
    let child = minion(|| {
        let fd = request::open(guest.device())?;
        let duplicate = dup2(fd, 50)?;
        request::query(duplicate);
        close(fd);
        close(duplicate);
        sleep(30);
        // While this process lives, so does what is known of it.
        let next = request::open(guest.other())?;
        let answer = request::query(next);
        if answer != guest.answer_of(guest.other()) {
            println!("BROKEN: {} after a duplicate: {}", guest.other(), name(answer));
        }
        let inner = fork(|| {
            let fd = request::open(guest.other()).unwrap_or(-1);
            i32::from(request::query(fd) != guest.answer_of(guest.other()))
        })?;
        match raw::wait(inner) {
            Some(0) => Ok(()),
            other => Err(io::Error::other(format!("a child of a duplicate's holder: {other:?}"))),
        }
    })?;
    ended(child, "a duplicate")
}

fn by_a_child(guest: &Guest) -> io::Result<()> {
    let child = fork(|| {
        let fd = request::open(guest.device()).unwrap_or(-1);
        i32::from(request::query(fd) != guest.answer_of(guest.device()))
    })?;
    ended(child, "a child that ends")
}

fn by_sending(guest: &Guest) -> io::Result<()> {
    let child = minion(|| {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let receiver = fork(|| match raw::receive(&theirs) {
            Ok(fd) => i32::from(request::query(fd) != guest.answer_of(guest.device())),
            Err(_) => 1,
        })?;
        let fd = request::open(guest.device())?;
        raw::send(&ours, fd)?;
        close(fd);
        ended(receiver, "the receiver of a descriptor")
    })?;
    ended(child, "a sender")
}

fn by_executing(guest: &Guest) -> io::Result<()> {
    let child = minion(|| {
        let fd = request::open(guest.device())?;
        request::query(fd);
        use std::os::unix::process::CommandExt;
        Err(std::process::Command::new("/proc/self/exe")
            .arg("list")
            .stdout(std::process::Stdio::null())
            .exec())
    })?;
    ended(child, "a program that executes another")
}

fn ended(child: i32, what: &str) -> io::Result<()> {
    match raw::wait(child) {
        Some(0) => {}
        other => println!("BROKEN: {what} ended with {other:?}"),
    }
    Ok(())
}

/// Every line of the trace names the device whose answer it shows.
pub(super) fn as_traced(dir: &str) -> io::Result<Vec<String>> {
    let settings = Settings::read(dir)?;
    let node = |key: &str| settings.get(key).rsplit('/').next().unwrap_or("").to_owned();
    let of = [("device", "answer"), ("other", "other-answer")].map(|(path, answer)| {
        let answer = match settings.get(answer).parse().unwrap_or(0) {
            0 => " = 0 ".to_owned(),
            errno => name(errno),
        };
        (format!(" {}: ", node(path)), answer)
    });
    let trace = fs::read_to_string(format!("{dir}/trace"))?;
    let mut wrong = Vec::new();
    let mut right = 0;
    for line in trace.lines().filter(|line| line.contains(": QUERY_")) {
        for (node, answer) in &of {
            if line.contains(node) {
                if line.contains(answer.as_str()) {
                    right += 1;
                } else {
                    wrong.push(line.to_owned());
                }
            }
        }
    }
    println!("trace: {right} lines name the device that answered, {} another", wrong.len());
    let of_all = wrong.len();
    wrong.truncate(3);
    let mut broken: Vec<String> =
        wrong.into_iter().map(|line| format!("the trace names another device: {line}")).collect();
    if of_all > 3 {
        broken.push(format!("the trace names another device in {of_all} lines"));
    }
    if right == 0 {
        broken.push("the trace holds no request".to_owned());
    }
    Ok(broken)
}
