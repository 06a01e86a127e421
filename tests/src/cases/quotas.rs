//! A tenant that takes all that there is: natively nothing stops the tenant, and inside the tenant's
//! quotas and rate do, while a neighbour goes on.

use std::fs;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::tenants::Script;
use crate::world::Place;
use crate::world::World;

const SCRIPT: &str = include_str!("../../scripts/quotas.py");

/// Requests of the neighbour, of which each is two.
const TURNS: &str = "spin 200";

/// Requests a second, and at once.
const RATE: f64 = 200.0;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("tenant_floods_and_meets_its_quotas", flood)]
}

fn flood(world: &World) -> Result<Verdict> {
    let script = Script::of("quotas.py", SCRIPT)?;
    let words = [world.device.as_str()];
    let mut native = script.start(world, Place::Native, "native", &words)?;
    native.hear()?;
    for step in ["qp", "mr", "cm"] {
        native.expect(step, "40 not-refused").context("natively nothing is refused")?;
    }
    drop(native);

    let policies = script.folder("policy.d")?;
    let text = format!(
        "version = 1\n[tenant.flood]\nmatch.uid = 0\nprofile = \"hpc\"\n\
         devices = [{{ name = \"*\" }}]\n[tenant.flood.rules]\n\
         quota = {{ qp = 8, mr_bytes = 1048576, cm_ids = 16 }}\n\
         rate = {{ per_s = {RATE}, burst = {RATE} }}\n"
    );
    fs::write(policies.join("flood.toml"), text)?;
    let policies = policies.to_str().context("an odd path")?.to_owned();
    let audit = script.folder("audit")?.join("lines");
    let audit = audit.to_str().context("an odd path")?.to_owned();
    let options = ["--policy-dir", &policies, "--audit", &audit];
    let start = |name: &str| -> Result<_> {
        let mut one = script.start_with(world, Place::Sandbox, name, &options, &words)?;
        one.hear()?;
        Ok(one)
    };
    let all = [("qp", "8 EAGAIN"), ("mr", "16 ENOMEM"), ("cm", "16 EAGAIN")];
    let none = [("qp", "0 EAGAIN"), ("mr", "0 ENOMEM"), ("cm", "0 EAGAIN")];
    let (mut one, mut other) = (start("one")?, start("other")?);
    for ((step, most), (_, nothing)) in all.into_iter().zip(none) {
        one.expect(step, most)?;
        other.expect(step, nothing).context("the tenant's other sandbox has the same quota")?;
    }
    one.expect("drop", "dropped")?;
    // Ids end with their file, whose end the kernel tells a moment later.
    crate::exec::wait_until("what was dropped", crate::world::PATIENCE, || {
        Ok(other.ask("cm")? == "16 EAGAIN")
    })?;
    other.expect("qp", "8 EAGAIN")?;
    other.expect("mr", "16 ENOMEM")?;
    one.expect("qp", "0 EAGAIN")?;
    other.program.kill_alone()?;
    crate::exec::wait_until("what a killed supervisor held", crate::world::PATIENCE, || {
        Ok(one.ask("qp")? == "8 EAGAIN")
    })?;
    let lines = fs::read_to_string(&audit)?;
    let told = |words: &[&str]| lines.lines().any(|l| words.iter().all(|word| l.contains(word)));
    if !told(&["quota reached", "QP_CREATE", "EAGAIN", "remedy", "rules.quota"]) {
        bail!("the audit does not tell of the quota: {lines}");
    }

    // A neighbour, whose tenant has no bound.
    let mut neighbour = script.start(world, Place::Sandbox, "neighbour", &words)?;
    neighbour.hear()?;
    neighbour.ask(TURNS)?;
    let before = neighbour.ask(TURNS)?;
    one.expect("flood", "flooding")?;
    let during = neighbour.ask(TURNS)?;
    let flooded = one.ask("flooded")?;
    println!("    the neighbour: {before} alone, {during} beside a flood of {flooded} s");
    let (made, took) = flooded.split_once(" in ").context("an odd answer")?;
    let (made, took): (f64, f64) = (made.parse()?, took.parse()?);
    // Each takes two requests; the first ones of an open, and the burst, come on top.
    if made * 2.0 > RATE * (took + 1.5) {
        bail!("the flood makes {made} in {took} s, and the rate is {RATE} a second");
    }
    Ok(Verdict::Ok)
}
