//! `verbgate trace`: like `run`, and writes down every RDMA request.

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;

use anyhow::anyhow;
use verbgate_sandbox::Tracer;

use crate::cli::TraceArgs;
use crate::failure::Failure;
use crate::run;

/// Runs the program; the exit code is its own.
pub(crate) fn run(args: &TraceArgs, root: &Path) -> Result<u8, Failure> {
    let sink: Box<dyn Write + Send> = match &args.output {
        None => Box::new(io::stderr()),
        // Unbuffered, so that the trace of a program that hangs can be read.
        Some(path) => Box::new(
            File::create(path)
                .map_err(|e| anyhow!("cannot write the trace to {}: {e}", path.display()))?,
        ),
    };
    run::supervised(&args.run, root, Some(Box::new(Tracer::new(sink, args.json))))
}
