//! `verbgate fabric bench`, natively and between sandboxes. How fast an emulated machine is says
//! nothing: what is looked at is that all is measured, and told.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::Case;
use super::Verdict;
use super::cluster;
use super::cluster::Cluster;
use super::fabric::Address;
use super::fabric::Job;
use super::fabric::PROGRAM;
use super::fabric::job;
use super::fabric::words;
use super::nodes::SECOND;
use super::nodes::SPARE_NETDEV;
use super::nodes::SecondDevice;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world::Place;
use crate::world::World;
use crate::written::Written;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("fabric_bench_of_four_ranks_and_two_rails", four_ranks),
        Case::new("fabric_takes_chosen_pairs", chosen_pairs),
        Case::new("fabric_bench_by_send_and_read", by_other_verbs),
        Case::new("fabric_bench_marks_what_fails", failures),
        Case::new("fabric_bench_interrupted", interrupted),
        Case::new("bench_compares_both_ways", both_ways),
        Case::new("fabric_bench_names_who_hangs", hung),
    ]
}

/// Columns that say which cell it is: from `sweep` to `repeat`.
const KEY: usize = 7;
/// From every rank to every other, on each of two rails.
const PATHS: usize = 4 * 3 * RAILS;
const RAILS: usize = 2;

/// A cell of the CSV: which it is, and whether it has numbers.
fn cells(file: &Path) -> Result<Vec<(Vec<String>, bool)>> {
    let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    let mut lines = text.lines();
    let titles: Vec<&str> = lines.next().context("an empty CSV")?.split(',').collect();
    let valid = titles.iter().position(|title| *title == "valid").context("no column `valid`")?;
    let cell = |line: &str| {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        let is_valid = fields.get(valid).is_some_and(|field| field == "true");
        (fields.into_iter().take(KEY).collect(), is_valid)
    };
    Ok(lines.map(cell).collect())
}

/// Four ranks with two rails each, natively and in sandboxes: hosts of a cluster where that can be,
/// else processes of one host.
fn four_ranks(world: &World) -> Result<Verdict> {
    if cluster::is_possible()? {
        let cluster = Cluster::new()?;
        for place in [Place::Native, Place::Sandbox] {
            let folder = TempDir::new()?;
            let written = Written::new(folder.path(), "verify");
            let options = |rank| {
                let more = if rank == 0 { written.options() } else { Vec::new() };
                [words("--sizes 1,4099"), more].concat()
            };
            let verified = cluster.run(world, place, "verify", &options)?;
            let ranks = verified.len();
            for ended in verified {
                ended.expect_status(0).with_context(|| format!("{place:?}"))?;
            }
            // All paths are well, and none was measured.
            anyhow::ensure!(written.check("verify", ranks * RAILS, true)? == 0, "{place:?}");
        }
        measured(|place, options| cluster.run(world, place, "bench", options))?;
        println!("  on four hosts");
        return Ok(Verdict::Ok);
    }
    let mut job = job!(world, 4);
    job.command = "bench";
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let address = Address::new("10.99.1.1/24", SPARE_NETDEV)?;
    let rails = words(&format!("--device {} --device {SECOND}", job.rail()?));
    let of_one_host = |place, options: &Options<'_>| {
        job.run(place, |rank| [rails.clone(), options(rank)].concat())
    };
    measured(of_one_host)?;
    drop(address);
    drop(second);
    Ok(Verdict::Ok)
}

/// The options of a rank.
type Options<'a> = dyn Fn(usize) -> Vec<String> + 'a;

/// Everything is measured, natively and in sandboxes: the same cells, all with numbers, and both
/// verdicts.
fn measured(run: impl Fn(Place, &Options<'_>) -> Result<Vec<Ended>>) -> Result<()> {
    let folder = TempDir::new()?;
    let mut kinds = Vec::new();
    for place in [Place::Native, Place::Sandbox] {
        let written = Written::new(folder.path(), &format!("{place:?}"));
        let [csv, plot] =
            ["csv", "svg"].map(|suffix| folder.path().join(format!("{place:?}.{suffix}")));
        let options = |rank| {
            let mut options =
                words("--sizes 64,4K --message 4K --pace 0.002 --seconds 0.02 --window 4");
            if rank == 0 {
                let [csv, plot] = [&csv, &plot].map(|path| path.display().to_string());
                options.extend(["--csv".to_owned(), csv, "--plot".to_owned(), plot]);
                options.extend(written.options());
            }
            options
        };
        let ended = run(place, &options)?;
        let zero = ended.first().context("no rank")?;
        agree(&ended).with_context(|| format!("{place:?}: {zero}"))?;
        let cells = cells(&csv)?;
        if let Some((cell, _)) = cells.iter().find(|(_, valid)| !valid) {
            bail!("{place:?}: {cell:?} has no numbers: {zero}");
        }
        let kind: BTreeSet<Vec<String>> = cells.iter().map(|(key, _)| key.clone()).collect();
        // Two sizes, two sizes and a target three times, and three patterns, of which a ring has fewer
        // paths.
        let expected = PATHS * (2 + 2 * 3 + 3 + 2) + 4 * 2;
        if kind.len() != expected || cells.len() != expected {
            bail!("{place:?}: {} cells, {} of them distinct: {zero}", cells.len(), kind.len());
        }
        let said = [
            "plan: ",
            "3 of 3 rounds of disjoint pairs",
            "rail 1: from the rank of the line",
            "verdict on sizes: ",
            "verdict on pace: ",
            // A software device's rate is no wire's.
            "verdict on the wire: not judged",
            "min_rnr_timer 12, rnr_retry 6",
        ];
        for words in said {
            if !zero.stdout.contains(words) {
                bail!("{place:?}: nothing is said of {words:?}: {zero}");
            }
        }
        let drawn = fs::read_to_string(&plot)?;
        if !drawn.starts_with("<svg") || !drawn.contains("<polyline") {
            bail!("{place:?}: no picture: {drawn}");
        }
        let paths = written.check("bench", ended.len() * RAILS, zero.status == 0)?;
        if paths != PATHS {
            bail!("{place:?}: {paths} paths of {PATHS} are in the outputs: {zero}");
        }
        let said = zero.stdout.lines().filter(|line| line.starts_with("verdict"));
        println!("  {place:?}, {} s: {}", zero.took.as_secs(), said.collect::<Vec<_>>().join("; "));
        kinds.push(kind);
    }
    if kinds.first() != kinds.last() {
        bail!("natively and in sandboxes other cells are measured: {kinds:?}");
    }
    Ok(())
}

/// Options of four ranks, which have three rounds of disjoint pairs; the rounds that are taken, and what
/// the plan says.
const CHOICES: &[(&str, usize, &str)] = &[
    ("", 3, "3 of 3 rounds of disjoint pairs"),
    ("--quick", 1, "1 of 3 rounds of disjoint pairs"),
    ("--sample 2", 2, "2 of 3 rounds of disjoint pairs"),
    // A round of `bench` is planned to take 1.2 s, both ways.
    ("--within 3", 2, "2 of 3 rounds of disjoint pairs"),
];

/// The pairs are measured that the options leave, and no others, and each with numbers.
fn chosen_pairs(world: &World) -> Result<Verdict> {
    let bench = "--sweep sizes --sizes 4K --seconds 0.5 --repeat 1 --window 4";
    for (choice, rounds, words_of_plan) in CHOICES {
        let mut job = job!(world, 4);
        job.command = "bench";
        let folder = TempDir::new()?;
        let csv = folder.path().join("cells.csv");
        let ended = job.run(Place::Native, |rank| {
            let mut options = words(&format!("{bench} {choice}"));
            if rank == 0 {
                options.extend(["--csv".to_owned(), csv.display().to_string()]);
            }
            options
        })?;
        let zero = ended.first().context("no rank")?;
        agree(&ended).with_context(|| format!("{choice}: {zero}"))?;
        // A budget follows behind.
        let says = |line: &str| line.contains("plan: ") && line.contains(words_of_plan);
        if !zero.stdout.lines().chain(zero.stderr.lines()).any(says) {
            bail!("{choice}: the plan is not {words_of_plan:?}: {zero}");
        }
        let cells = cells(&csv)?;
        let paths: BTreeSet<(&String, &String)> =
            cells.iter().filter_map(|(key, _)| Some((key.get(1)?, key.get(2)?))).collect();
        // A round has two pairs, which are measured both ways. What is slow in a quick round is tried
        // with other partners.
        let (expected, more) = (rounds * 4, choice.contains("quick") && zero.status != 0);
        if paths.len() < expected || (paths.len() > expected && !more) {
            bail!("{choice}: {} paths and not {expected}: {zero}", paths.len());
        }
        if let Some((cell, _)) = cells.iter().find(|(_, valid)| !valid) {
            bail!("{choice}: {cell:?} has no numbers: {zero}");
        }
        println!("  bench {choice}: {} paths in {:.1} s", paths.len(), zero.took.as_secs_f64());
    }
    // Not even the shortest plan fits.
    let mut job = job!(world, 2);
    job.command = "bench";
    for ended in job.run(Place::Native, |_| words(&format!("{bench} --within 1")))? {
        let ended = ended.expect_status(2)?;
        if !ended.stderr.contains("--within 1 s: the shortest plan takes 2 s") {
            bail!("{ended}");
        }
    }
    // `verify` tries the rounds that are left, and says so.
    let job = job!(world, 4);
    let ended = job.run(Place::Native, |_| words("--sizes 1 --sample 1"))?;
    let ended: Result<Vec<Ended>> = ended.into_iter().map(|one| one.expect_status(0)).collect();
    let ended = ended?;
    let zero = ended.first().context("no rank")?;
    // Rank 0 says so of each rank.
    if !zero.stderr.contains("plan: 1 of 3 rounds of disjoint pairs")
        || zero.stdout.matches("1 of 1 paths are well").count() != ended.len()
    {
        bail!("verify: {ended:?}");
    }
    Ok(Verdict::Ok)
}

/// All ranks print the same table's hash, and end alike.
fn agree(ended: &[Ended]) -> Result<()> {
    let hash = |ended: &Ended| {
        let line = ended.stdout.lines().next().unwrap_or_default().to_owned();
        line.split(':').next().unwrap_or_default().to_owned()
    };
    let hashes: BTreeSet<String> = ended.iter().map(hash).collect();
    let statuses: BTreeSet<i32> = ended.iter().map(|ended| ended.status).collect();
    // A verdict may be bad on a machine that does other things, too.
    let known = statuses.first().is_some_and(|status| [0, 1].contains(status));
    if hashes.len() != 1 || !hashes.iter().all(|hash| hash.starts_with("rank table ")) {
        bail!("the ranks have different tables: {hashes:?}");
    }
    if statuses.len() != 1 || !known {
        bail!("the ranks end with {statuses:?}");
    }
    Ok(())
}

/// Of rank 0's JSON lines, the cells.
fn json_cells(ended: &Ended) -> Result<Vec<Value>> {
    let lines: Result<Vec<Value>, _> = ended.stdout.lines().map(serde_json::from_str).collect();
    let lines = lines.with_context(|| format!("not JSON: {ended}"))?;
    Ok(lines.into_iter().filter(|line| line["kind"] == "cell").collect())
}

/// Ways of sending that are not the default: by another verb, on several queue pairs, by events, and
/// with messages that are longer than those of an exchange. The longest is what the port takes.
const WAYS: &[(&str, &str)] = &[
    ("send", "--sizes 1,4K --message 4K --qps 4"),
    ("read", "--sizes 1,4K --message 4K --events"),
    ("write", "--sizes 1,4M --message 4M --qps 2 --events"),
    ("read", "--sizes 1,4M --message 4K"),
];

/// Two ranks, by the ways that are not the default.
fn by_other_verbs(world: &World) -> Result<Verdict> {
    for (verb, way) in WAYS {
        let mut job = job!(world, 2);
        job.command = "bench";
        // What does not get a receive in time is repeated for ever: a machine that does other
        // things, too, may take its time.
        let options = format!(
            "--by {verb} --sweep latency,sizes,bidirectional {way} --seconds 0.05 --window 4 \
             --rnr-retry 7 --repeat 1 --json"
        );
        let ended = job.run(Place::Sandbox, |_| words(&options))?;
        let zero = ended.first().context("no rank")?;
        let cells = json_cells(zero)?;
        let valid = cells.iter().filter(|cell| cell["valid"] == true).count();
        if (cells.len(), valid) != (10, 10) {
            bail!("{verb} {way}: {valid} cells of {} have numbers: {zero}", cells.len());
        }
    }
    // Longer than what an exchange compares.
    let mut job = job!(world, 2);
    job.command = "bench";
    let options = "--sweep sizes --sizes 4M --seconds 0.05 --window 2 --repeat 1 --json";
    let ended = job.run(Place::Sandbox, |_| words(options))?;
    let cells = json_cells(ended.first().context("no rank")?)?;
    if cells.is_empty() || cells.iter().any(|cell| cell["valid"] != true) {
        bail!("messages of 4 MiB: {ended:?}");
    }
    Ok(Verdict::Ok)
}

/// What rank 1 does wrong, by which verb, whose cells fail, and how.
const FAULTS: &[(&str, &str, u32, &str)] = &[
    ("wrong-rkey", "write", 1, "REM_ACCESS_ERR"),
    ("no-receives", "send", 0, "RNR_RETRY_EXC_ERR"),
];

/// What fails has no numbers and no zeroes, is not tried for ever, and all ranks exit with 1.
fn failures(world: &World) -> Result<Verdict> {
    for (fault, verb, from, error) in FAULTS {
        let mut job = job!(world, 2);
        job.command = "bench";
        let options = format!(
            "--sweep sizes --sizes 64,4K,8K --seconds 0.05 --repeat 1 --window 4 --by {verb}"
        );
        let ended = job.run(Place::Sandbox, |rank| {
            let more = if rank == 1 { format!("--inject {fault}") } else { "--json".to_owned() };
            words(&format!("{options} {more}"))
        })?;
        let ended: Result<Vec<Ended>> = ended.into_iter().map(|e| e.expect_status(1)).collect();
        let ended = ended?;
        let zero = ended.first().context("no rank")?;
        let cells = json_cells(zero)?;
        let of = |rank: u32| cells.iter().filter(move |cell| cell["from"] == rank);
        let errors: Vec<&str> = of(*from).filter_map(|cell| cell["first_error"].as_str()).collect();
        let [first, second, third] = &errors[..] else { bail!("{errors:?}: {zero}") };
        if ![first, second].iter().all(|found| found.starts_with(error)) {
            bail!("{errors:?}: {zero}");
        }
        if !third.starts_with("not tried again") || of(*from).any(|cell| !cell["gbps"].is_null()) {
            bail!("{third}: {zero}");
        }
        // Nothing is wrong the other way; what sends to receives may have to wait for them too long.
        if *verb == "write" && !of(1 - from).all(|cell| cell["valid"] == true) {
            bail!("{zero}");
        }
    }
    Ok(Verdict::Ok)
}

/// Two ranks that measure for long, once the first cell is there.
fn begun(job: &mut Job<'_>) -> Result<(Program, Program)> {
    job.command = "bench";
    let options = "--sweep sizes --sizes 64 --seconds 0.3 --repeat 1000 --window 4 --timeout 20 \
                   --ack-timeout 14 --retry-cnt 3 --all --details";
    let options = words(options);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut zero = job.start(Place::Native, 0, &options)?;
    let one = job.start(Place::Native, 1, &options)?;
    exec::wait_until("the first cell", || {
        if zero.has_ended()? {
            bail!("it ended: {}", zero.describe()?);
        }
        Ok(zero.stdout_so_far()?.lines().any(|line| line.trim_start().starts_with("sizes")))
    })?;
    Ok((zero, one))
}

/// Ctrl-C at one rank ends all of them in order, with what there is.
fn interrupted(world: &World) -> Result<Verdict> {
    let mut job = job!(world, 2);
    let (zero, one) = begun(&mut job)?;
    exec::signal(zero.pid(), Signal::INT);
    let (zero, one) = (zero.wait()?, one.wait()?);
    let (zero, _) = (zero.expect_status(130)?, one.expect_status(130)?);
    for words in ["verdict on sizes: PASS", "bench: not all was measured: "] {
        if !zero.stdout.contains(words) {
            bail!("nothing is said of {words:?}: {zero}");
        }
    }
    Ok(Verdict::Ok)
}

/// A rank that is stopped is named by the other, which shows what there is.
fn hung(world: &World) -> Result<Verdict> {
    let mut job = job!(world, 2);
    let (zero, one) = begun(&mut job)?;
    exec::signal(one.pid(), Signal::STOP);
    let zero = zero.wait()?.expect_status(3)?;
    exec::signal(one.pid(), Signal::CONT);
    if !zero.stdout.contains("FAIL  rank 1 hangs: ") {
        bail!("{zero}");
    }
    if !zero.stdout.contains("bench: not all was measured: ") {
        bail!("{zero}");
    }
    // Said once, not at each look.
    if zero.stderr.matches("still waits for").count() > 1 {
        bail!("{zero}");
    }
    drop(one);
    Ok(Verdict::Ok)
}

/// `verbgate bench`: every operation of the device natively and in a sandbox.
fn both_ways(world: &World) -> Result<Verdict> {
    let mut command = world.program(PROGRAM);
    command.args(["bench", "--rounds", "1", "--json", &world.device]);
    let ended = exec::run(command)?.expect_status(0)?;
    let compared: Value = serde_json::from_str(&ended.stdout)?;
    let operations = compared.get("operations").and_then(Value::as_array);
    let operations = operations.context("no operations")?;
    for name in ["open and close the device", "queue pair, connected", "write of 1 MiB"] {
        let of_name = operations.iter().find(|row| row["operation"] == name);
        let both =
            ["native_us", "sandboxed_us"].map(|way| of_name.and_then(|row| row[way].as_f64()));
        if !both.iter().all(|us| us.is_some_and(|us| us > 0.0)) {
            bail!("no times of {name:?}: {ended}");
        }
    }
    let mut wrong = world.program(PROGRAM);
    wrong.args(["bench", "nosuch0"]);
    let ended = exec::run(wrong)?.expect_status(1)?;
    if !ended.stderr.contains("nosuch0") || !ended.stderr.contains(&world.device) {
        bail!("the error names neither what was asked for nor what there is: {ended}");
    }
    Ok(Verdict::Ok)
}
