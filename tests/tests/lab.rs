//! The lab's cases as tests, named `KERNEL::DEVICE::CASE`. A broker of machines runs them: `cargo xtask test` has one,
//! and `cargo xtask lab serve` is one for whoever runs these tests by hand. Without a broker they skip themselves.

use std::io::BufRead as _;
use std::io::BufReader;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::Arguments;
use libtest_mimic::Failed;
use libtest_mimic::Trial;
use verbgate_tests::said::Said;
use verbgate_tests::trial;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = trial::all().into_iter().map(|trial| {
        let name = trial.to_string();
        Trial::test(name.clone(), move || run(&name)).with_ignored_flag(trial.why.is_none())
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn run(name: &str) -> Result<(), Failed> {
    let socket = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab.sock");
    let Ok(mut broker) = UnixStream::connect(&socket) else {
        println!("SKIPPED: needs the lab's machines: cargo xtask lab serve");
        return Ok(());
    };
    writeln!(broker, "{name}")?;
    for line in BufReader::new(broker).lines() {
        match Said::read(&line?) {
            Some(Said::Passed) => return Ok(()),
            Some(Said::Skipped(why)) => {
                println!("SKIPPED: {why}");
                return Ok(());
            }
            Some(Said::Failed(report)) => return Err(report.into()),
            Some(Said::Alive) | None => {}
        }
    }
    Err("the broker of the lab's machines has gone away".into())
}
