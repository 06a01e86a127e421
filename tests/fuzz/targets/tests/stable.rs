#![forbid(unsafe_code)]
#![allow(clippy::panic, reason = "tests; clippy sees only the test functions themselves as such")]
//! The fuzzers' targets without a fuzzer: seeds, and seeded random mutations of them.
//!
//! `VERBGATE_FUZZ_SEED` repeats a run, `VERBGATE_FUZZ_RUNS` says how many inputs each target gets
//! (default 20,000), `VERBGATE_FUZZ_SECONDS` runs for so long instead, `VERBGATE_FUZZ_TARGET` names
//! the one target to run.

use std::fs;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use verbgate_fuzz_targets::TARGETS;
use verbgate_fuzz_targets::Target;
use verbgate_fuzz_targets::mutate::mutate;
use verbgate_hostile::Random;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|e| panic!("{name}={value}: {e}")))
}

fn targets() -> impl Iterator<Item = &'static Target> {
    let only = std::env::var("VERBGATE_FUZZ_TARGET").ok();
    if let Some(only) = &only {
        assert!(TARGETS.iter().any(|target| target.name == only), "no target {only}");
    }
    TARGETS.iter().filter(move |target| only.as_deref().is_none_or(|only| only == target.name))
}

/// Runs one input; says which it was if that ends in a panic.
fn run(target: &Target, input: &[u8], from: &str) {
    let done = std::panic::catch_unwind(|| (target.run)(input));
    if let Err(panic) = done {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("target {}, {from}, input:\n{hex}", target.name);
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn seeds_pass() {
    for target in targets() {
        for (name, seed) in (target.seeds)() {
            run(target, &seed, &name);
        }
    }
}

/// Seeds of requests are requests: a corpus of refusals would explore nothing.
#[test]
fn seeds_decode() {
    for (name, seed) in verbgate_fuzz_targets::corpus::requests() {
        assert!(verbgate_fuzz_targets::decoder::request(&seed).is_some(), "{name}");
    }
    for (name, seed) in verbgate_fuzz_targets::corpus::writes() {
        let write = verbgate_abi::write::parse_write(&seed).unwrap();
        let request = write.into_request(verbgate_abi::wire::DriverId::RXE);
        assert!(request.is_ok(), "{name}: {request:?}");
    }
}

/// The checked-in corpora are the seeds. `VERBGATE_FUZZ_BLESS=1` writes them.
#[test]
fn the_corpora_are_up_to_date() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    let bless = std::env::var_os("VERBGATE_FUZZ_BLESS").is_some();
    for target in TARGETS.iter().filter(|target| target.name == target.corpus) {
        let folder = corpora.join(target.corpus);
        let seeds = (target.seeds)();
        if bless {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
        }
        for (name, seed) in &seeds {
            let file = folder.join(name);
            if bless {
                fs::write(&file, seed).unwrap();
            }
            assert!(fs::read(&file).is_ok_and(|bytes| bytes == *seed), "{}", file.display());
        }
        let files = fs::read_dir(&folder).unwrap().count();
        assert_eq!(files, seeds.len(), "{} has others", folder.display());
    }
}

#[test]
fn mutations_pass() {
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() & 0xffff_ffff;
    let seed = number("VERBGATE_FUZZ_SEED").unwrap_or_else(|| u64::try_from(clock).unwrap());
    let runs = number("VERBGATE_FUZZ_RUNS").unwrap_or(20_000);
    let seconds = number("VERBGATE_FUZZ_SECONDS").map(Duration::from_secs);
    for target in targets() {
        let seeds: Vec<Vec<u8>> = (target.seeds)().into_iter().map(|(_, seed)| seed).collect();
        println!("target {}: VERBGATE_FUZZ_SEED={seed}", target.name);
        let mut rng = Random::new(seed);
        let started = Instant::now();
        let mut done = 0;
        while seconds.map_or(done < runs, |limit| started.elapsed() < limit) {
            let mut input = seeds[rng.below(seeds.len())].clone();
            let other = &seeds[rng.below(seeds.len())];
            mutate(&mut rng, &mut input, other);
            run(target, &input, &format!("VERBGATE_FUZZ_SEED={seed}, run {done}"));
            done += 1;
        }
        println!("target {}: {done} inputs in {:.1?}", target.name, started.elapsed());
    }
}
