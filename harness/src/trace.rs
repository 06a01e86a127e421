//! `verbgate trace`: like `run`, and writes down every RDMA request, or the sums of all.

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use anyhow::anyhow;
use verbgate_sandbox::Running;
use verbgate_sandbox::Summary;
use verbgate_sandbox::Tracer;

use crate::cli::TraceArgs;
use crate::failure::Failure;
use crate::run;

/// Runs the program; the exit code is its own.
pub(crate) fn run(args: &TraceArgs, root: &Path) -> Result<u8, Failure> {
    let mut sink: Box<dyn Write + Send> = match &args.output {
        None => Box::new(io::stderr()),
        // Unbuffered, so that the trace of a program that hangs can be read.
        Some(path) => Box::new(
            File::create(path)
                .map_err(|e| anyhow!("cannot write the trace to {}: {e}", path.display()))?,
        ),
    };
    if !args.summary {
        let tracer = Box::new(Tracer::new(sink, args.json));
        return run::supervised(&args.run, root, Some(tracer), |_| Ok(()));
    }
    let summary = Summary::default();
    let told = summary.clone();
    run::supervised(&args.run, root, Some(Box::new(told)), |running: &Running| {
        let counts = running.counts();
        let written = if args.json {
            let mut all = summary.json();
            if let Some(all) = all.as_object_mut() {
                all.insert("stubs".to_owned(), counts.planted.into());
                all.insert("notifications".to_owned(), counts.notifications.into());
                all.insert("sysfs_files".to_owned(), running.sysfs_files().into());
            }
            writeln!(sink, "{all}")
        } else {
            writeln!(
                sink,
                "{summary}{} stubs planted, {} notifications, {} served files of /sys opened",
                counts.planted,
                counts.notifications,
                running.sysfs_files()
            )
        };
        written.context("cannot write the summary")
    })
}
