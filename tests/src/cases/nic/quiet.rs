//! Work requests are not Verbgate's business: what its supervisor is told, and does, is the same for
//! a few and for a hundred thousand; and while a hundred thousand are rung, the kernel sees nothing of it.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Meeting;
use super::Two;
use super::ask;
use super::number;
use super::silence::Silence;
use crate::cases::Verdict;
use crate::exec;
use crate::pair::Pair;
use crate::report::Report;
use crate::world::World;

/// Work requests of a short run, and of a long one.
const FEW: u32 = 1_000;
const MANY: u32 = 500_000;
/// Work requests of the long run that the kernel counts, from when the program has rung some.
const WATCHED: u64 = 100_000;
/// A read is as much of a work request as a write, and EFA's drivers before 6.5 have it.
const READS: &[&str] = &["ib_read_bw", "-s", "8", "-F"];

pub(super) fn cases() -> Vec<Case> {
    let datagrams = &["-c", "SRD", "-x", "0"];
    vec![Case::new("nic_no_trap_for_any_work_request", |world| {
        no_traps(world, Meeting::Socket, datagrams)
    })]
}

pub(super) fn connected() -> Vec<Case> {
    vec![Case::new("nic_rc_no_trap_for_any_work_request", |world| {
        no_traps(world, Meeting::Manager, &[])
    })]
}

pub(super) fn infiniband() -> Vec<Case> {
    vec![Case::new("nic_mlx5_no_trap_for_any_work_request", |world| {
        no_traps(world, Meeting::Socket, &[])
    })]
}

/// What a run told.
#[derive(Debug)]
struct Run {
    client: Report,
    server: Report,
    doorbells: u64,
}

fn no_traps(world: &World, meeting: Meeting, options: &[&str]) -> Result<Verdict> {
    let two = Two::look(world)?;
    let run = |count| run(&two, meeting, options, count);
    let (few, many) = (run(FEW)?, run(MANY)?);
    let more = many.doorbells.saturating_sub(few.doorbells);
    if more < u64::from(MANY - FEW) {
        bail!("only {more} doorbells more: the work requests were not rung one by one");
    }
    for (end, few, many) in
        [("client", &few.client, &many.client), ("server", &few.server, &many.server)]
    {
        // A stub that has parked shows, when it is woken: once for a request at most.
        if few.notifications == 0 || many.notifications > 2 * few.notifications {
            bail!(
                "the {end}'s supervisor got {} notifications for {FEW} work requests, and {} for \
                 {MANY}",
                few.notifications,
                many.notifications
            );
        }
    }
    println!(
        "    {more} more doorbells; notifications {} and {}",
        few.client.notifications, many.client.notifications
    );
    Ok(Verdict::Ok)
}

/// RDMA reads by one sandbox from the memory of another, each work request with a doorbell.
fn run(two: &Two, meeting: Meeting, options: &[&str], count: u32) -> Result<Run> {
    let folder = tempfile::tempdir()?;
    let report = |role: &str| folder.path().join(role).to_string_lossy().into_owned();
    let before = doorbells(&two.right)?;
    let words = count.to_string();
    let argv = [READS, options, &["-n", &words]].concat();
    let mut pair = two.start(meeting, &argv, |role, words| {
        Ok(two.end(role).sandbox(&["--report", &report(role)], words))
    })?;
    if count >= MANY {
        unseen(two, &mut pair, before)?;
    }
    let ended = pair.wait()?;
    ended.client.expect_status(0)?;
    ended.server.expect_status(0)?;
    Ok(Run {
        client: Report::read(report("client").as_ref())?,
        server: Report::read(report("server").as_ref())?,
        doorbells: doorbells(&two.right)?.saturating_sub(before),
    })
}

/// While work requests are rung, the supervisors make no system call but those of a look at their guests now
/// and then, of which there are as many while nothing is rung.
fn unseen(two: &Two, pair: &mut Pair, before: u64) -> Result<()> {
    let rung = |pair: &mut Pair, more: u64| -> Result<u64> {
        let mut now = 0;
        exec::wait_until("doorbells", || {
            now = doorbells(&two.right)?;
            Ok(now >= before + more || pair.client.has_ended()?)
        })?;
        Ok(now)
    };
    rung(pair, u64::from(FEW))?;
    let silence = Silence::of(&[pair.server.pid(), pair.client.pid()])?;
    let first = doorbells(&two.right)?;
    let last = rung(pair, first - before + WATCHED)?;
    let looks = silence.looks_alone();
    if pair.client.has_ended()? || last - first < WATCHED {
        bail!("only {} work requests were watched", last.saturating_sub(first));
    }
    let looks = looks.with_context(|| format!("during {} work requests", last - first))?;
    // The tracer sees what there is to see: both take down what they made.
    let before = silence.others()?.len();
    exec::wait_until("system calls in the trace", || Ok(silence.others()?.len() > before))?;
    println!("    {} work requests, and the supervisors looked {looks} times", last - first);
    Ok(())
}

pub(super) fn doorbells(world: &World) -> Result<u64> {
    let said = ask(&format!("counters {}", number(world)?))?;
    let rung = said.split_whitespace().find_map(|word| word.strip_prefix("doorbells="));
    let rung = rung.with_context(|| format!("no doorbells in {said:?}"))?;
    Ok(rung.parse()?)
}
