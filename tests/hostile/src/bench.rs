//! `verbgate-hostile bench`: how long bystanders wait while each attacker does its worst, against
//! the bound that is promised for a machine with nothing else to do.

use std::io;
use std::process::Command;

use crate::attacks::names;

/// The promise, in milliseconds.
const BOUND: &str = "100";

/// Tries every attack, or those whose names hold the first word; a line for each.
pub(crate) fn run(words: &[&str]) -> io::Result<u8> {
    let (word, options) = match words {
        [word, rest @ ..] if !word.starts_with("--") => (*word, rest),
        rest => ("", rest),
    };
    println!(
        "{:<24} {:<8} {:>11} {:>11}  held, with {BOUND} ms",
        "attack", "by", "inside", "outside"
    );
    let mut all = true;
    for name in names().into_iter().filter(|name| name.contains(word)) {
        for user in ["nobody", "root"] {
            let ran = Command::new("/proc/self/exe")
                .args(["run", name, "--user", user, "--bound-ms", BOUND])
                .args(options)
                .output()?;
            let text = String::from_utf8_lossy(&ran.stdout);
            let worst = |which: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(which))?;
                Some(line.split(',').next()?.trim_start_matches(": worst ").to_owned())
            };
            let [inside, outside] = ["bystander inside", "bystander outside"]
                .map(|which| worst(which).unwrap_or_else(|| "-".to_owned()));
            let broken = text.lines().find_map(|line| line.strip_prefix("BROKEN: "));
            let verdict = match ran.status.code() {
                Some(0) => "yes",
                Some(77) => "skipped",
                _ => broken.unwrap_or("no"),
            };
            all &= matches!(ran.status.code(), Some(0 | 77));
            println!("{name:<24} {user:<8} {inside:>11} {outside:>11}  {verdict}");
        }
    }
    Ok(u8::from(!all))
}
