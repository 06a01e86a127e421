//! Why a sandbox could not be set up: the step that failed, and how to mend that.

use std::io;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetUpError {
    #[error(
        "process {0} traces this command and would trace the program too, and a traced program \
         gets no RDMA; trace without following children, or see `verbgate trace`"
    )]
    Traced(i32),
    #[error("cannot {what}: {source}{}", remedy_after_semicolon(.remedy))]
    Step { what: String, r#source: io::Error, remedy: &'static str },
}

fn remedy_after_semicolon(remedy: &str) -> String {
    if remedy.is_empty() { String::new() } else { format!("; {remedy}") }
}

/// Names a failed step.
pub(super) fn step<E: Into<io::Error>>(
    what: impl Into<String>,
    remedy: &'static str,
) -> impl FnOnce(E) -> SetUpError {
    move |source| SetUpError::Step { what: what.into(), source: source.into(), remedy }
}
