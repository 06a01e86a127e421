//! `verbgate-hostile bench`: how long bystanders wait beside each attack and, right after it and for as long, beside a
//! load that computes and attacks nobody. Machines differ, and differ from one minute to the next; the ratio tells
//! what the attack does. The load beside several attackers is as many processes, which take as much of the processors.

use std::io;
use std::process::Command;

use crate::attacks::find;
use crate::attacks::names;

/// The attack that is none.
pub(crate) const LOAD: &str = "load";
/// The aim for the longest wait, in milliseconds.
const AIM: f64 = 100.0;
/// A longer wait is the attack's doing if the longest beside the load is so many times shorter.
const MOST: f64 = 10.0;
/// The part of the requests beside a load of many that a bystander makes at least beside as many attackers.
const FEWEST: f64 = 1.0 / 1.5;
/// For how long an attack that goes on is watched, in milliseconds.
const LASTS: &str = "3000";

/// The longest waits inside the attacked sandbox and outside of it, and for how long they were watched.
#[derive(Debug)]
struct Waits {
    worst: [f64; 2],
    lasted: String,
    /// Requests of the bystander inside, in a second.
    rate: f64,
    /// Processors that the attackers took.
    processors: f64,
}

/// Tries every attack, or those whose names hold the first word; a line for each.
pub(crate) fn run(words: &[&str]) -> io::Result<u8> {
    let (word, options) = match words {
        [word, rest @ ..] if !word.starts_with("--") => (*word, rest),
        rest => ("", rest),
    };
    let minions = options.iter().position(|word| *word == "--minions").map(|at| at + 1);
    let many = minions.and_then(|at| options.get(at)?.parse::<u32>().ok()).filter(|n| *n > 1);
    println!(
        "the longest wait of a bystander in ms: beside the attack, beside a load alone, ratio"
    );
    println!("{:<24} {:<8} {:^22}  {:^22}  {AIM} ms", "attack", "by", "inside", "outside");
    let mut all = true;
    for name in names().into_iter().filter(|name| name.contains(word)) {
        let many =
            many.map(|many| (many * find(name).map_or(1, |attack| attack.processes)).to_string());
        let mut of_load = options.to_vec();
        if let (Some(many), Some(place)) = (&many, minions.and_then(|at| of_load.get_mut(at))) {
            *place = many;
        }
        for user in ["nobody", "root"] {
            let attack = measure(&["run", name, "--user", user, "--lasts-ms", LASTS], options)?;
            let (cells, verdict) = match attack {
                Ok(Waits { worst, lasted, rate, processors }) => {
                    let many = many.as_ref().and_then(|many| many.parse::<f64>().ok());
                    let share = many.map_or(0.0, |many| (1000.0 * processors / many).max(1.0));
                    let share = format!("{share:.0}");
                    let load =
                        ["run", LOAD, "--user", user, "--lasts-ms", &*lasted, "--share", &share];
                    match measure(&load, &of_load)? {
                        Ok(load) => {
                            let (cells, mut verdict) = judge(worst, load.worst);
                            let ratio = rate / load.rate;
                            if many.is_some() && ratio < FEWEST {
                                verdict = "BROKEN: the bystander makes fewer requests".to_owned();
                            }
                            (cells, format!("{verdict}; {ratio:.2} of the requests"))
                        }
                        Err(why) => (Default::default(), why),
                    }
                }
                Err(why) => (Default::default(), why),
            };
            all &= !verdict.starts_with("BROKEN");
            println!("{name:<24} {user:<8} {:>22}  {:>22}  {verdict}", cells[0], cells[1]);
        }
    }
    Ok(u8::from(!all))
}

/// The cells inside and outside, and the verdict.
fn judge(attack: [f64; 2], load: [f64; 2]) -> ([String; 2], String) {
    let cell =
        |at: usize| format!("{:>7.1} {:>7.1} {:>6.1}", attack[at], load[at], attack[at] / load[at]);
    let longer = |at: &usize| attack[*at] > AIM;
    let verdict = match [0, 1].into_iter().filter(longer).find(|at| attack[*at] > MOST * load[*at])
    {
        Some(_) => "BROKEN: the attack makes the bystander wait",
        None if [0, 1].iter().any(longer) => "longer, and so beside the load",
        None => "kept",
    };
    ([cell(0), cell(1)], verdict.to_owned())
}

/// Runs a world. Without figures there is the reason.
fn measure(words: &[&str], options: &[&str]) -> io::Result<Result<Waits, String>> {
    let ran = Command::new("/proc/self/exe").args(words).args(options).output()?;
    let text = String::from_utf8_lossy(&ran.stdout);
    let broken = text.lines().find(|line| line.starts_with("BROKEN: "));
    let line = |which: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(which))?;
        let mut words = line.split(' ');
        let (worst, lasted) = (words.next()?.parse::<f64>().ok()?, words.nth(2)?.to_owned());
        let (requests, ms) = (words.nth(1)?.parse::<f64>().ok()?, lasted.parse::<f64>().ok()?);
        Some((worst, lasted, requests / ms * 1000.0))
    };
    let processors = text.lines().find_map(|line| line.strip_prefix("processors: "));
    let processors = processors.and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
    let lines = [line("bystander inside: worst "), line("bystander outside: worst ")];
    Ok(match (ran.status.code(), lines) {
        (Some(0), [Some((inside, lasted, rate)), Some((outside, ..))]) => {
            let processors = processors.unwrap_or(0.0) / lasted.parse::<f64>().unwrap_or(1.0);
            Ok(Waits { worst: [inside, outside], lasted, rate, processors })
        }
        (Some(77), _) => Err("skipped".to_owned()),
        _ => Err(broken.unwrap_or("BROKEN: it says nothing").to_owned()),
    })
}
