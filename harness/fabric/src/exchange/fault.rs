//! Faults of an exchange.

use serde::Deserialize;
use serde::Serialize;
use verbgate_segments as protocol;
use verbgate_verbs::Completion;

use crate::cause::Cause;
use crate::error::Error;
use crate::explain;

/// What became of an exchange that was not over.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// What went wrong with one exchange.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Trouble {
    /// For people.
    pub words: String,
    /// `enum ibv_wc_status`, if a completion told.
    pub(crate) status: Option<u32>,
    /// The peer found it, and said so.
    pub(crate) heard: bool,
    /// The peer said nothing.
    pub(crate) hangs: bool,
    /// What is wrong, if it tells by itself.
    pub(crate) cause: Option<Cause>,
    /// The step, from 0: those before it went well.
    pub at: u64,
}

/// Why an exchange ended; or the end of everything.
#[derive(Debug)]
pub(crate) enum Fault {
    Step(Trouble),
    All(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::All(error)
    }
}

impl From<verbgate_verbs::Error> for Fault {
    fn from(error: verbgate_verbs::Error) -> Self {
        step(error.to_string())
    }
}

impl From<protocol::Violation> for Fault {
    fn from(violation: protocol::Violation) -> Self {
        step(violation.to_string()).because(match violation {
            protocol::Violation::Segments { .. } => Cause::SegmentCount,
            _ => Cause::DataDiffers,
        })
    }
}

impl Fault {
    pub(super) fn because(mut self, cause: Cause) -> Self {
        if let Self::Step(trouble) = &mut self {
            trouble.cause = Some(cause);
        }
        self
    }
}

pub(super) fn step(words: impl Into<String>) -> Fault {
    Fault::Step(Trouble { words: words.into(), ..Trouble::default() })
}

/// What a completion says, unless it is of success.
pub(super) fn judge(completion: Completion) -> Result<Completion, Fault> {
    if completion.status == 0 {
        return Ok(completion);
    }
    let (words, status) = (explain::words(&completion), Some(completion.status));
    let cause = Some(Cause::of_status(completion.status));
    Err(Fault::Step(Trouble { words, status, cause, ..Trouble::default() }))
}
