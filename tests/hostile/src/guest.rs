//! The inside of the sandbox: a leader, who starts a bystander and the attacker.

use std::collections::HashMap;
use std::ffi::CStr;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::SKIPPED;
use crate::attacks;
use crate::board::Board;
use crate::board::Word;
use crate::raw;
use crate::raw::addr;
use crate::raw::become_user;
use crate::raw::call;
use crate::raw::exit;
use crate::raw::fork;
use crate::raw::int;
use crate::raw::sleep;
use crate::request;

/// The user that an attacker without rights is.
pub(crate) const NOBODY: u32 = 65534;
/// Whom the bystander is, so that such an attacker cannot signal it.
const BYSTANDER: u32 = 65533;
/// The name of a bystander's process (`PR_SET_NAME`).
pub(crate) const NAME: &CStr = c"bystander";

/// What the world told its processes.
#[derive(Debug)]
pub(crate) struct Settings(HashMap<String, String>);

impl Settings {
    pub(crate) fn read(dir: &str) -> io::Result<Self> {
        let text = fs::read_to_string(format!("{dir}/settings"))?;
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Ok(Self(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()))
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }
}

/// What an attack is given.
pub(crate) struct Guest {
    pub(crate) dir: String,
    pub(crate) board: Board,
    pub(crate) settings: Settings,
}

impl Guest {
    fn new(dir: &str) -> io::Result<Self> {
        let (board, settings) = (Board::open(dir)?, Settings::read(dir)?);
        if settings.get("real") == "1" {
            request::is_real(settings.get("device"));
        }
        Ok(Self { dir: dir.to_owned(), board, settings })
    }

    /// The path of the first device.
    pub(crate) fn device(&self) -> &str {
        self.settings.get("device")
    }

    /// The path of the second, which answers otherwise.
    pub(crate) fn other(&self) -> &str {
        self.settings.get("other")
    }

    /// This program's file.
    pub(crate) fn program(&self) -> String {
        format!("{}/program", self.dir)
    }

    pub(crate) fn is_root(&self) -> bool {
        self.settings.get("user") == "root"
    }

    /// An attack that goes on does its worst from now on.
    pub(crate) fn in_effect(&self) {
        self.board.set(Word::InEffect, 1);
    }

    /// Opens a device, and makes a first request on it.
    pub(crate) fn planted(&self, path: &str) -> io::Result<i32> {
        let fd = request::open(path).map_err(|e| io::Error::other(format!("open {path}: {e}")))?;
        let first = request::query(fd);
        if first != self.answer_of(path) {
            return Err(io::Error::other(format!("first request on {path}: {}", raw::name(first))));
        }
        Ok(fd)
    }

    /// What a device answers to [`request::query`].
    pub(crate) fn answer_of(&self, path: &str) -> i32 {
        let key = if path == self.device() { "answer" } else { "other-answer" };
        self.settings.get(key).parse().unwrap_or(0)
    }
}

/// The main program of the sandbox. It lives until it is ended.
pub(crate) fn lead(dir: &str) -> io::Result<u8> {
    let guest = Guest::new(dir)?;
    let board = guest.board;
    if let Ok(path) = CString::new("/dev/userfaultfd") {
        let flags = int(libc::O_RDWR);
        let path = addr(&path.as_bytes_with_nul()[0]);
        if let Ok(fd) = call(libc::SYS_openat, &[int(libc::AT_FDCWD), path, flags]) {
            board.set(Word::Faults, fd);
        }
    }
    fork(|| start(&guest, BYSTANDER, &["bystander", dir, "inside"]))?;
    raw::until(|| board.meter(Word::Inside).is_ready());
    raw::until(|| board.get(Word::Go) != 0);
    let user = if guest.is_root() { 0 } else { NOBODY };
    let attacker = fork(|| start(&guest, user, &["attacker", dir]))?;
    board.set(Word::AttackerDone, raw::wait(attacker).unwrap_or(1) as u64 + 1);
    go_on().map(|()| 0)
}

/// Becomes this program in another part, as a user.
fn start(guest: &Guest, user: u32, part: &[&str]) -> i32 {
    if user != 0
        && let Err(error) = become_user(user)
    {
        println!("cannot become user {user}: {error}");
        return 1;
    }
    println!("cannot execute: {}", Command::new(guest.program()).args(part).exec());
    1
}

/// Makes a request every 5 ms, and writes down how long the worst took.
pub(crate) fn stand_by(dir: &str, which: &str) -> io::Result<u8> {
    let guest = Guest::new(dir)?;
    let meter = guest.board.meter(if which == "inside" { Word::Inside } else { Word::Outside });
    let fd = guest.planted(guest.device())?;
    let expected = guest.answer_of(guest.device());
    for _ in 0..20 {
        request::query(fd);
    }
    call(libc::SYS_prctl, &[libc::PR_SET_NAME as u64, addr(&NAME.to_bytes_with_nul()[0])])?;
    meter.ready();
    loop {
        meter.begin();
        let answer = request::query(fd);
        meter.end();
        if answer != expected {
            println!("BROKEN: the bystander {which} was answered {}", raw::name(answer));
            sleep(500);
        }
        sleep(5);
    }
}

/// Attacks.
pub(crate) fn attack(dir: &str) -> io::Result<u8> {
    let guest = Guest::new(dir)?;
    let attack = attacks::find(guest.settings.get("attack"))?;
    for _ in 1..guest.settings.get("minions").parse().unwrap_or(1) {
        minion(|| (attack.guest)(&Guest::new(dir)?))?;
    }
    match (attack.guest)(&guest) {
        Ok(()) => Ok(0),
        Err(error) if error.to_string().starts_with("SKIPPED") => {
            println!("{error}");
            Ok(SKIPPED)
        }
        Err(error) => {
            println!("attacker: {error}");
            Ok(1)
        }
    }
}

/// A child of the attacker's that does its worst; ended with it.
pub(crate) fn minion(work: impl FnOnce() -> io::Result<()>) -> io::Result<i32> {
    let parent = std::process::id();
    fork(|| {
        let _ = call(libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64]);
        if std::os::unix::process::parent_id() != parent {
            exit(1);
        }
        match work() {
            Ok(()) => 0,
            Err(error) => {
                println!("{error}");
                if error.to_string().starts_with("SKIPPED") { i32::from(SKIPPED) } else { 1 }
            }
        }
    })
}

/// Lives until the world has seen enough.
pub(crate) fn go_on() -> io::Result<()> {
    loop {
        sleep(1000);
    }
}
