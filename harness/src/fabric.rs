//! `verbgate fabric`, `verbgate bench` and `verbgate explain`.

use verbgate_fabric::Answer;
use verbgate_fabric::CostOptions;
use verbgate_fabric::Error;
use verbgate_host::output::print;

use crate::cli::CostArgs;
use crate::cli::CostWorkerArgs;
use crate::cli::ExplainArgs;
use crate::cli::FabricCommand;
use crate::failure::Failure;

/// Runs one of the subcommands.
pub(crate) fn run(command: &FabricCommand) -> Result<u8, Failure> {
    let done = match command {
        FabricCommand::Verify(args) => verbgate_fabric::verify(&args.into()).and_then(answer),
        FabricCommand::Bench(args) => verbgate_fabric::bench(&args.into()),
        FabricCommand::Diagnose(args) => verbgate_fabric::diagnose(&args.into()).and_then(answer),
        FabricCommand::Simulate(args) => verbgate_fabric::simulate(&args.into()).and_then(say),
    };
    done.map_err(fail)
}

/// Says what codes mean.
pub(crate) fn explain(args: &ExplainArgs) -> Result<u8, Failure> {
    verbgate_fabric::explain(&args.codes, args.json).and_then(say).map_err(fail)
}

/// Measures what a sandbox costs here.
pub(crate) fn cost(args: &CostArgs) -> Result<u8, Failure> {
    let options = CostOptions { rail: args.rail.clone(), rounds: args.rounds, json: args.json };
    verbgate_fabric::cost(&options).and_then(say).map_err(fail)
}

/// The work that is measured.
pub(crate) fn cost_worker(args: &CostWorkerArgs) -> Result<u8, Failure> {
    verbgate_fabric::cost_worker(args.rail.as_ref(), args.nothing).and_then(say).map_err(fail)
}

fn answer(answer: Answer) -> Result<u8, Error> {
    print(&answer.text)?;
    Ok(answer.exit_code)
}

fn say(text: String) -> Result<u8, Error> {
    print(&text)?;
    Ok(0)
}

fn fail(error: Error) -> Failure {
    let code = error.exit_code();
    Failure::new(code, error.into())
}
