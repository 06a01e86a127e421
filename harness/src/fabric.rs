//! `verbgate fabric` and `verbgate explain`.

use verbgate_fabric::Answer;
use verbgate_fabric::Error;
use verbgate_host::output::print;

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
