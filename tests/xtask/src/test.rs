//! `cargo xtask test`: runs every test that this machine can run, and counts in the closing line.

use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Kernel;
use verbgate_lab::Lab;
use verbgate_lab::Progress;
use verbgate_tests::tally::Tally;

use crate::cases;
use crate::guest::Programs;
use crate::host;
use crate::host::Outcome;
use crate::lane;
use crate::record::Stages;

/// The kernels that everything is tested on, each with the userland of its distribution.
const TESTED: &[&str] = &["6.1", "6.12", "7.2"];
/// Processors for the tests of this machine and for those of the lab at the same time: a lab's
/// machine has two.
const ENOUGH: usize = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only the tests of this machine, and no virtual machine.
    #[arg(long, visible_alias = "host")]
    no_lab: bool,
    /// Run only the cases of the lab.
    #[arg(long, conflicts_with = "no_lab")]
    no_host: bool,
    /// Kernel of the lab to run the cases on; may be repeated. [default: 6.1, 6.12, 7.2]
    #[arg(long = "kernel", value_name = "K", conflicts_with = "no_lab")]
    kernels: Vec<String>,
    /// Part of a name: run only the tests and cases whose names hold WORD; may be repeated.
    #[arg(long = "case", value_name = "WORD")]
    cases: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Also dependencies, documentation, aarch64 and the oldest compiler, as `test` does.
    #[arg(long)]
    house: bool,
}

/// What does not run the project's code: what a change is held against every minute.
pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode> {
    let mut all = Tally::NONE;
    let house = if args.house { host::HOUSE } else { &[] };
    for (name, step) in host::CHECKS.iter().chain(house) {
        println!("== {name}");
        let outcome = step()?;
        outcome.skipped.iter().for_each(|line| println!("    skipped {line}"));
        all += outcome.tally;
    }
    println!("{all}");
    Ok(ExitCode::from(u8::from(all.failed > 0)))
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let kernels: Result<Vec<&Kernel>> = match args.kernels.as_slice() {
        [] => TESTED.iter().map(|name| Kernel::find(name)).collect(),
        named => named.iter().map(|name| Kernel::find(name)).collect(),
    };
    let kernels = kernels?;
    let stages = Stages::watched();
    let with_lab = !args.no_lab && cases::are_there(&args.cases);
    // Tests of this machine measure time, and so do those of the lab.
    let together = args.no_host || thread::available_parallelism().is_ok_and(|n| n.get() >= ENOUGH);
    let (host_is_done, wait) = mpsc::channel::<()>();
    let (stages, args) = (&stages, &args);
    thread::scope(move |scope| {
        if with_lab {
            scope.spawn(move || {
                lane::enter(if args.no_host { "" } else { "lab | " });
                in_labs(stages, &kernels, &args.cases, || {
                    // Or the other lane is gone.
                    let _ = if together { Ok(()) } else { wait.recv() };
                });
            });
        }
        if args.no_host {
            return;
        }
        if !args.cases.is_empty() {
            stages.run("tests of the crates", |_| host::tests(&args.cases));
            return;
        }
        in_order(stages, host::CHECKS);
        in_order(stages, host::STEPS);
        drop(host_is_done);
        lane::yield_to_others(with_lab);
        in_order(stages, host::HOUSE);
    });
    let (text, all) = stages.close();
    print!("{text}");
    if !args.cases.is_empty() && all.total() == 0 {
        bail!("no name of a test or a case holds {}", args.cases.join(" or "));
    }
    Ok(ExitCode::from(u8::from(all.failed > 0)))
}

fn in_order(stages: &Stages, steps: &[host::Step]) {
    for (name, step) in steps {
        stages.run(name, |_| step());
    }
}

/// Builds and fetches what labs need, waits for its turn, and runs the cases of one kernel after the
/// other, each in one machine.
fn in_labs(stages: &Stages, kernels: &[&'static Kernel], words: &[String], turn: impl FnOnce()) {
    lane::yield_to_others(true);
    let mut programs = None;
    stages.run("building for the lab", |_| {
        programs = Some(Programs::build()?);
        Ok(Outcome::NOTHING)
    });
    for kernel in kernels {
        // The stage that needs it says why that cannot be had.
        let fetched = kernel
            .default_userland()
            .and_then(|userland| Lab::prepare(kernel, userland, &Progress::stderr()));
        drop(fetched);
    }
    turn();
    lane::yield_to_others(false);
    let Some(programs) = programs else { return };
    for kernel in kernels {
        let name = format!("Linux {} with {}", kernel.name, kernel.userland);
        stages.run(&name, |told| Ok(cases::in_lab(&programs, kernel, words, told)));
    }
}
