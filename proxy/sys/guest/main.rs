//! A guest for tests: makes raw requests, good and hostile, and prints the results.
//!
//! The guest is not installed. The guest stands in this crate because the guest is unsafe from end
//! to end.

#![allow(clippy::indexing_slicing, reason = "a test; a panic is a failure like any other")]

mod attack;
mod bare;
mod beside;
mod calls;
mod cases;
mod crowd;
mod faults;
mod fields;
mod kernel;
mod life;
mod names;
mod neighbour;
mod obey;
mod passing;
mod raw;
mod replay;
mod scale;
mod stall;
mod storm;
mod terminal;
mod timers;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["requests", device, count] => raw::requests(device, count),
        ["destroys", device, count] => raw::destroys(device, count),
        ["bare-notify", count] => bare::notify(bare::Answer::AtOnce, count),
        ["bare-crowd", processes, threads, count] => bare::crowd(processes, threads, count),
        ["served-notify", count] => bare::notify(bare::Answer::Served, count),
        ["poller", device, first, count] => beside::poller(device, first, count),
        ["sleepers", device, threads, processes] => beside::sleepers(device, threads, processes),
        ["opens", path, count] => raw::opens(path, count),
        ["maps", path, count] => raw::maps(path, count),
        ["calls", path, count] => calls::calls(path, count),
        ["reads", rounds, dirs @ ..] => calls::reads(rounds, dirs),
        ["errors", device] => cases::errors(device),
        ["types", device] => cases::types(device),
        ["foreign", device] => cases::foreign(device),
        ["writes", device] => cases::writes(device),
        ["watched-numbers", device] => cases::watched_numbers(device),
        ["many", device, threads, each] => crowd::many(device, threads, each),
        ["passers", device, count] => crowd::passers(device, count),
        ["turns", device, count] => crowd::turns(device, count),
        ["refused", device, count] => crowd::refused(device, count),
        ["quota", device, count] => crowd::quota(device, count),
        ["limits", device] => crowd::limits(device),
        ["closed", device] => crowd::closed(device),
        ["filters", device] => crowd::filters(device),
        ["filtered-stub", device] => crowd::filtered_stub(device),
        ["signals", device] => life::signals(device),
        ["timers", device, micros, count] => timers::timers(device, micros, count),
        ["stops", device] => life::stops(device),
        ["stops-at-first", device] => life::stops_at_first(device),
        ["forks", device] => life::forks(device),
        ["borrowers", device] => life::borrowers(device),
        ["executes", device] => life::executes(device),
        ["executes-meanwhile", device] => life::executes_meanwhile(device),
        ["once", device] => life::once(device),
        ["ends", device] => life::ends(device, false),
        ["ends-all", device] => life::ends(device, true),
        ["killed", device, count] => life::killed(device, count),
        ["bereft", device] => life::bereft(device),
        ["streams", device, threads, pause] => life::streams(device, threads, pause),
        ["becomes", device] => life::becomes(device),
        ["sends", device] => passing::sends(device),
        ["gives-away", device, path] => passing::gives_away(device, path),
        ["takes", path] => passing::takes(path),
        ["spawns", device] => passing::spawns(device),
        ["inherited"] => passing::inherited(),
        ["attack", name, device] => attack::run(name, device),
        ["names", device] => names::names(device),
        ["leaves", device, count] => crowd::leaves(device, count),
        ["early", device, count] => crowd::early(device, count),
        ["firsts", device, count] => crowd::firsts(device, count),
        ["neighbour", device, gid, extra] => neighbour::tenant(device, gid, extra),
        ["narrow", device] => names::narrow(device),
        ["obey", device] => obey::obey(device),
        ["terminal"] => terminal::serve(),
        ["replay", device, script] => replay::run(device, script),
        ["scale", device, processes, objects, flags] => {
            scale::run(device, processes, objects, flags)
        }
        ["steps", device] => storm::steps(device),
        ["stall"] => stall::serve(),
        ["storm", device, processes, threads, opens, stopped] => {
            storm::storm(device, [processes, threads, opens, stopped])
        }
        _ => Err("the sources say what it takes".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("guest: {e}");
            ExitCode::FAILURE
        }
    }
}
