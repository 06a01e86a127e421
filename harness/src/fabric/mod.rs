//! `verbgate fabric`: finds out whether a fabric works, from inside the sandboxes of its nodes, and
//! what is wrong with it; and `verbgate explain`.

mod bench;
mod blame;
mod cause;
mod connect;
mod counters;
mod diagnose;
mod diagnosis;
mod endpoint;
mod error;
mod exchange;
mod explain;
mod hardware;
mod interrupt;
mod options;
mod plan;
mod preflight;
mod protocol;
mod rail;
mod random;
mod rendezvous;
mod reopen;
mod report;
mod session;
mod simulate;
mod verify;

use std::io::Write;

use crate::failure::Failure;
pub(crate) use bench::BenchOptions;
pub(crate) use bench::By;
pub(crate) use bench::Sweep;
use error::Error;
pub(crate) use exchange::Injection;
pub(crate) use options::Common;
pub(crate) use options::DiagnoseOptions;
use options::Identity;
pub(crate) use options::SimulateOptions;
pub(crate) use options::VerifyOptions;
pub(crate) use options::size;
pub(crate) use rail::Choice;

/// `verbgate fabric verify`.
pub(crate) fn verify(args: &VerifyOptions) -> Result<u8, Failure> {
    rank(&args.common, |identity| verify::run(args, identity))
}

/// `verbgate fabric diagnose`.
pub(crate) fn diagnose(args: &DiagnoseOptions) -> Result<u8, Failure> {
    rank(&args.common, |identity| diagnose::run(args, identity))
}

/// One rank of a command: what it has to say, and its exit code.
fn rank(
    common: &Common,
    run: impl FnOnce(&Identity) -> Result<(String, u8), Error>,
) -> Result<u8, Failure> {
    let environment = |name: &str| std::env::var(name).ok();
    let done = Identity::find(common, &environment).and_then(|identity| run(&identity));
    let (text, code) = done.map_err(fail)?;
    print(&text).map_err(fail)?;
    Ok(code)
}

/// `verbgate fabric bench`.
pub(crate) fn bench(args: &BenchOptions) -> Result<u8, Failure> {
    let environment = |name: &str| std::env::var(name).ok();
    let identity = Identity::find(&args.common, &environment);
    identity.and_then(|identity| bench::run(args, &identity)).map_err(fail)
}

/// `verbgate fabric simulate`.
pub(crate) fn simulate(args: &SimulateOptions) -> Result<u8, Failure> {
    simulate::run(args).and_then(|text| print(&text)).map_err(fail)?;
    Ok(0)
}

/// `verbgate explain`.
pub(crate) fn explain(codes: &[String]) -> Result<u8, Failure> {
    explain::run(codes).and_then(|text| print(&text)).map_err(fail)?;
    Ok(0)
}

fn fail(error: Error) -> Failure {
    let code = error.exit_code();
    Failure::new(code, error.into())
}

fn print(text: &str) -> Result<(), Error> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Io { what: "cannot write to standard output".to_owned(), error })
        }
        _ => Ok(()),
    }
}
