//! Causes that nothing else in the lab has: each is injected, and must be named without a hint.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Pair;
use super::causes as named;
use super::expect;
use crate::cases::Verdict;
use crate::cases::fabric::PROGRAM;
use crate::exec::Program;
use crate::world::Place;
use crate::world::World;

/// What all ranks are told, what rank 1 is told besides, the causes and words of them.
struct Injected {
    place: Place,
    all: &'static str,
    one: &'static str,
    causes: &'static [&'static str],
    said: &'static [&'static str],
}

#[rustfmt::skip]
const SOON: &[Injected] = &[
    Injected { place: Place::Native, all: "", one: "--device nosuch0", causes: &["no-device"], said: &["rank 1: rail 0: ", "nosuch0"] },
    Injected { place: Place::Native, all: "--pkey 0x1234", one: "", causes: &["wrong-pkey", "wrong-pkey"], said: &["rank 0: rail 0: ", "rank 1: rail 0: ", "partition key 0x1234"] },
    Injected { place: Place::Native, all: "", one: "--inject lossy", causes: &["lossy-class"], said: &["DSCP 0 has priority 0", "give --traffic-class 96"] },
    Injected { place: Place::Sandbox, all: "--timeout 20", one: "--inject wrong-address", causes: &["cannot-connect"], said: &["the way between ranks 0 and 1 on rail 0", "cannot connect: "] },
    Injected { place: Place::Sandbox, all: "", one: "--inject wrong-data", causes: &["data-differs"], said: &["the data differs: byte "] },
    Injected { place: Place::Sandbox, all: "", one: "--inject foreign-memory", causes: &["local-error"], said: &["rank 1: ", "LOC_PROT_ERR"] },
    Injected { place: Place::Sandbox, all: "", one: "--inject long-inline", causes: &["failed"], said: &["ibv_post_send"] },
];

/// Faults that only a long wait shows are tried beside each other, each on its own queue pairs.
pub(super) fn causes(world: &World) -> Result<Verdict> {
    if !world.beside(PROGRAM).exists() {
        return Ok(Verdict::Skipped(format!("needs {PROGRAM} beside this program")));
    }
    let hung = Slow::start(world, 2, &["--timeout 30", "--timeout 30 --inject hang"])?;
    let absent = Slow::start(world, 3, &["--timeout 30", "--timeout 30"])?;
    // Nothing else beside them: the port counts what the others send again, and a path beside that loses packets.
    absent.expect("absent", &["peer-absent"], "rank 2 did not come to the rendezvous")?;
    // The command says by its exit code that a rank hangs.
    let zero = hung.zero.wait()?;
    drop(hung.others);
    let zero = zero.expect_status(3).context("hang")?;
    if named(&zero) != ["peer-hangs"] || !zero.stdout.contains("CAUSE peer-hangs: rank 1") {
        bail!("hang: {zero}");
    }
    for Injected { place, all, one, causes, said } in SOON {
        let pair = Pair::new(world, *place)?;
        let one = format!("{all} {one}");
        let (zero, one) = (pair.start(0, "", all)?, pair.start(1, "", &one)?);
        let ended = zero.wait()?;
        one.wait()?;
        expect(&format!("{place:?} {all} {}", causes.join(" ")), ended, causes, said)?;
    }
    let stalled = Slow::start(world, 2, &["", "--inject unsignaled"])?;
    stalled.expect("stall", &["stall"], "STALL: no completion in 20 s")?;
    Ok(Verdict::Ok)
}

/// Ranks that take long.
struct Slow {
    zero: Program,
    others: Vec<Program>,
}

impl Slow {
    /// Each with its own options; fewer than all of them, if some are missing.
    fn start(world: &World, ranks: usize, options: &[&str]) -> Result<Self> {
        let pair = Pair { ranks, ..Pair::new(world, Place::Native)? };
        let started: Result<Vec<Program>> = options
            .iter()
            .enumerate()
            .map(|(rank, options)| pair.start(rank, "", options))
            .collect();
        let mut others = started?;
        let zero = others.remove(0);
        Ok(Self { zero, others })
    }

    fn expect(self, what: &str, causes: &[&str], said: &str) -> Result<()> {
        let zero = self.zero.wait()?;
        self.others.into_iter().try_for_each(|one| one.wait().map(drop))?;
        expect(what, zero, causes, &[said])
    }
}
