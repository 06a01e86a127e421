//! Hostile guests. Each attack is tried on the guest itself, where the attack must succeed, and on
//! the protected thing; the guest prints both results.

mod forge;
mod memory;
mod race;
mod swap;
mod tracer;
mod write;

use std::error::Error;

use crate::kernel;
use crate::kernel::Mapping;

type Attack = fn(&str) -> Result<(), Box<dyn Error>>;

const ATTACKS: &[(&str, Attack)] = &[
    ("remap", memory::remap),
    ("premap", memory::premap),
    ("write", write::by_every_means),
    ("store-frame", |device| write::store(device, "frame")),
    ("store-code", |device| write::store(device, "code")),
    ("store-scratch", |device| write::store(device, "scratch")),
    ("forge-owner", forge::owner),
    ("inherit", forge::inherit),
    ("scribble", race::scribble),
    ("swap", race::swap),
    ("flip-method", race::flip_method),
    ("flip-payload", race::flip_payload),
    ("flip-path", race::flip_path),
    ("swap-instruction", swap::instruction),
    ("trace", tracer::of_threads),
    ("traced", tracer::of_itself),
];

pub(crate) fn run(name: &str, device: &str) -> Result<(), Box<dyn Error>> {
    match ATTACKS.iter().find(|(known, _)| *known == name) {
        Some((_, attack)) => attack(device),
        None => Err(format!("no attack named {name}").into()),
    }
}

/// The parts of the first stub's memory. The second request after this makes a planted process.
pub(crate) fn regions() -> Vec<(&'static str, Mapping)> {
    // The first stub's code stands right before its frame, in one file.
    let parts = [
        ("code", "verbgate-stub", 0),
        ("frame", "verbgate-stub", 1),
        ("scratch", "verbgate-scratch", 0),
    ];
    let found = |name, which| kernel::mappings(name).get(which).copied();
    parts
        .into_iter()
        .filter_map(|(short, name, which)| Some((short, found(name, which)?)))
        .collect()
}
