//! `cargo xtask test`: runs every test that this machine can run, and counts in the closing line.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Arch;
use verbgate_lab::Kernel;
use verbgate_lab::Lab;
use verbgate_lab::Progress;
use verbgate_tests::tally::Tally;

use crate::cases;
use crate::guest::Programs;
use crate::host;
use crate::host::Outcome;
use crate::lane;
use crate::machines;
use crate::record::Stages;

/// The kernels that everything is tested on, each with the userland of its distribution.
const TESTED: &[&str] = &["6.1", "6.12", "7.2"];
/// An emulated machine of the other processor, where nobody chooses: a few cases, which take as long as its
/// programs take to be compiled.
const OTHER_PROCESSOR: (&str, &[&str]) = (
    "arm64-6.12",
    &[
        "ibv_rc_pingpong_checked",
        "ib_send_bw_e",
        "malformed_requests",
        "raw_node_of_a_granted_device",
        "several_processes_of_one_guest",
        "hostile_heirs",
        "hostile_short_waits",
        "hostile_traced",
    ],
);
/// Processors for the tests of this machine and for those of the lab at the same time: a lab's
/// machine has two.
const ENOUGH: usize = 4;
/// Machines of the lab at once, where processors are enough: each has two, and keeps a bit more than one
/// of ours busy. On two processors, two machines take as long as one after the other.
const MACHINES: usize = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only the tests of this machine, and no virtual machine.
    #[arg(long, visible_alias = "host")]
    no_lab: bool,
    /// Run only the cases of the lab.
    #[arg(long, conflicts_with = "no_lab")]
    no_host: bool,
    /// Kernel of the lab to run the cases on; may be repeated. [default: 6.1, 6.12, 7.2; and a few cases on
    /// arm64-6.12]
    #[arg(long = "kernel", value_name = "K", conflicts_with = "no_lab")]
    kernels: Vec<String>,
    /// Part of a name: run only the tests and cases whose names hold WORD; may be repeated.
    #[arg(long = "case", value_name = "WORD")]
    cases: Vec<String>,
    /// Run all cases on the lab's own NICs, instead of a few on one kernel: twenty minutes more.
    #[arg(long, conflicts_with = "no_lab")]
    nics: bool,
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
    if kernels.iter().any(|k| kernels.iter().any(|other| k.arch != other.arch)) {
        bail!("kernels of two processors in one run: give the arm64 kernel alone");
    }
    let is_chosen = !args.kernels.is_empty() || !args.cases.is_empty();
    let other = (!is_chosen).then(|| Kernel::find(OTHER_PROCESSOR.0)).transpose()?;
    let stages = Stages::watched();
    let has_case = |k: &&Kernel| {
        !cases::settings(k.name, &args.cases, args.nics).is_empty()
            || !machines::chosen(k.name, &args.cases, args.nics).is_empty()
    };
    let with_lab = !args.no_lab && kernels.iter().any(has_case);
    // Tests of this machine measure time, and so do those of the lab.
    let enough = thread::available_parallelism().is_ok_and(|n| n.get() >= ENOUGH);
    let together = args.no_host || enough;
    let machines = if enough { MACHINES } else { 1 };
    let host = |done: Done| {
        if args.no_host {
            return;
        }
        if !args.cases.is_empty() {
            stages.run("tests of the crates", |_| host::tests(&args.cases));
            return;
        }
        in_order(&stages, host::STEPS);
        drop(done);
        lane::yield_to_others(with_lab);
        for steps in [host::CHECKS, host::EXAMPLES, host::HOUSE] {
            in_order(&stages, steps);
        }
    };
    let lab = |turn: Turn| {
        if with_lab {
            lane::enter(if args.no_host { "" } else { "lab | " });
            in_labs(&stages, (&kernels, machines), (&args.cases, args.nics), turn);
            if let Some(other) = other {
                let words: Vec<String> =
                    OTHER_PROCESSOR.1.iter().map(ToString::to_string).collect();
                in_labs(&stages, (&[other], 1), (&words, false), Turn(None));
            }
        }
    };
    side_by_side(together, host, lab);
    let (text, all) = stages.close();
    print!("{text}");
    if !args.cases.is_empty() && all.total() == 0 {
        bail!("no name of a test or a case holds {}", args.cases.join(" or "));
    }
    Ok(ExitCode::from(u8::from(all.failed > 0)))
}

/// Dropped when what measures time on this machine is over, however it ends.
struct Done(#[expect(dead_code, reason = "its end is the message")] Sender<()>);

/// When the lab's tests may begin.
struct Turn(Option<Receiver<()>>);

impl Turn {
    fn wait(self) {
        // Nothing is ever sent: the other lane lets go.
        let _ = self.0.map(|lane| lane.recv());
    }
}

/// Runs the two lanes; the lab's turn comes at once, or when the host's lane has let go.
fn side_by_side(together: bool, host: impl FnOnce(Done), lab: impl FnOnce(Turn) + Send) {
    let (done, turn) = mpsc::channel();
    let (done, turn) = (Done(done), Turn((!together).then_some(turn)));
    thread::scope(move |scope| {
        scope.spawn(move || lab(turn));
        host(done);
    });
}

fn in_order(stages: &Stages, steps: &[host::Step]) {
    for (name, step) in steps {
        stages.run(name, |_| step());
    }
}

/// Builds and fetches what labs need, waits for its turn, and runs the cases of each kernel in one
/// machine, so many machines at a time.
fn in_labs(
    stages: &Stages,
    (kernels, machines): (&[&'static Kernel], usize),
    (words, nics): (&[String], bool),
    turn: Turn,
) {
    lane::yield_to_others(true);
    let mut programs = None;
    let arch = kernels.first().map_or(Arch::Amd64, |kernel| kernel.arch);
    let name = match arch {
        Arch::Amd64 => "building for the lab",
        Arch::Arm64 => "building for the lab's arm64",
    };
    stages.run(name, |_| {
        programs = Some(Programs::build_for(arch)?);
        Ok(Outcome::NOTHING)
    });
    for kernel in kernels {
        // The stage that needs it says why that cannot be had.
        let fetched = kernel
            .default_userland()
            .and_then(|userland| Lab::prepare(kernel, userland, &Progress::stderr()));
        drop(fetched);
    }
    turn.wait();
    lane::yield_to_others(false);
    let Some(programs) = programs else { return };
    let of = |k: &&'static Kernel| {
        let kernel = *k;
        cases::settings(kernel.name, words, nics).into_iter().map(move |it| (kernel, it))
    };
    let all: VecDeque<_> = kernels.iter().flat_map(of).collect();
    let machines = machines.min(all.len());
    let all = Mutex::new(all);
    let next = || all.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let run = || {
        while let Some((kernel, (setting, words))) = next() {
            if machines > 1 {
                lane::enter(format!("{} | ", kernel.name));
            }
            let name = format!("Linux {} with {}", kernel.name, cases::equipment(kernel, setting));
            stages.run(&name, |told| Ok(cases::in_lab(&programs, kernel, setting, &words, told)));
        }
    };
    thread::scope(|scope| {
        (1..machines).for_each(|_| drop(scope.spawn(run)));
        run();
    });
    for kernel in kernels {
        for case in machines::chosen(kernel.name, words, nics) {
            let name = format!("Linux {}: {case}", kernel.name);
            stages.run(&name, |_| Ok(machines::run(&programs, kernel, case)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn order(together: bool) -> Vec<&'static str> {
        let seen = Mutex::new(Vec::new());
        let say = |what| seen.lock().unwrap().push(what);
        // Meets both lanes in the middle of the host's tests if they run at the same time.
        let pause = Duration::from_millis(if together { 1500 } else { 200 });
        side_by_side(
            together,
            |done| {
                thread::sleep(pause);
                say("host");
                drop(done);
            },
            |turn| {
                turn.wait();
                say("lab");
            },
        );
        seen.into_inner().unwrap()
    }

    #[test]
    fn cases_on_the_other_processor_are_there() {
        let (kernel, words) = OTHER_PROCESSOR;
        assert_eq!(Kernel::find(kernel).unwrap().arch, Arch::Arm64);
        for word in words {
            let words = [(*word).to_owned()];
            assert_eq!(cases::settings(kernel, &words, false).len(), 1, "{word}");
        }
    }

    #[test]
    fn the_lab_waits_for_the_tests_of_this_machine_where_processors_are_few() {
        assert_eq!(order(false), ["host", "lab"]);
        assert_eq!(order(true), ["lab", "host"]);
    }

    #[test]
    fn a_lane_that_ends_early_keeps_nobody_waiting() {
        side_by_side(false, |_| (), Turn::wait);
    }
}
