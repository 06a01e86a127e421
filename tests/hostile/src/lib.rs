//! Hostile guests. One program plays every part: the world outside, the guest that attacks, and
//! the processes that must not notice.
//!
//! `verbgate-hostile run ATTACK --verbgate PATH` makes a world (a pid namespace with few numbers,
//! a mount namespace), puts into it a canary (a root process outside of every sandbox), a
//! bystander in the attacked sandbox and one in another, and lets the attacker loose. Lines on
//! stdout say what happened; a line that begins with `BROKEN: ` says that something did not hold.
//! The exit code is 0 if all held, 1 if not, 77 if the attack cannot be tried here. With `--native`
//! there is no sandbox, to see that what is innocent works. `verbgate-hostile bench` prints how long
//! the bystanders waited, attack by attack.
//!
//! This crate is not installed. The crate's guests are unsafe from end to end, because a hostile
//! program is: they jump into the stub's code, share memory between processes, and hand the kernel
//! addresses whose faults never end. They break only themselves.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    reason = "a test program; numbers go to the kernel as they are, a panic is a failure like any other"
)]

mod attacks;
mod bench;
mod board;
mod canary;
mod container;
mod faults;
mod few;
mod fuse;
mod guest;
mod held;
mod look;
mod options;
mod random;
mod raw;
mod request;
mod stubs;
mod worker;
mod world;

use std::process::ExitCode;

pub use attacks::going_on;
pub use attacks::names;
pub use random::Random;

/// The exit code of an attack that cannot be tried here.
pub const SKIPPED: u8 = 77;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["list"] => {
            names().iter().for_each(|name| println!("{name}"));
            Ok(0)
        }
        ["run", name, rest @ ..] => world::run(name, rest),
        ["bench", rest @ ..] => bench::run(rest),
        ["leader", dir] => guest::lead(dir),
        ["attacker", dir] => guest::attack(dir),
        ["bystander", dir, which] => guest::stand_by(dir, which),
        ["worker", socket, listener, real @ ..] => {
            real.iter().for_each(|device| request::is_real(device));
            worker::obey(socket, listener)
        }
        ["canary", dir, which] => canary::watch(dir, which),
        _ => Err(std::io::Error::other("the sources say what verbgate-hostile takes")),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("verbgate-hostile {}: {error}", args.join(" "));
            ExitCode::FAILURE
        }
    }
}
