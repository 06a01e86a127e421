#![forbid(unsafe_code)]
//! Tools that tell whether an RDMA fabric works, how fast the fabric is, and what is wrong. The
//! tools run on all nodes of the fabric as *ranks*, inside the same sandboxes as the jobs.
//!
//! The ranks meet ([`Common::rendezvous`]), check what each has, connect all pairs on all rails, and
//! exchange messages whose contents both ends know: [`verify`]. [`bench()`] measures paths alone and
//! together, [`diagnose`] names causes with the evidence and the remedy, and [`explain`] says what a
//! status, an event or a counter means.
//!
//! ```
//! let meaning = verbgate_fabric::explain(&["RNR_RETRY".to_owned()], false)?;
//! assert!(meaning.contains("receive"));
//! # Ok::<(), verbgate_fabric::Error>(())
//! ```
//!
//! One of two ranks, which waits for the other rank:
//!
//! ```no_run
//! use verbgate_fabric::Common;
//! use verbgate_fabric::VerifyOptions;
//!
//! let common = Common {
//!     rendezvous: Some("node0:4711".to_owned()),
//!     rank: Some(0),
//!     ranks: Some(2),
//!     ..Common::default()
//! };
//! let answer = verbgate_fabric::verify(&VerifyOptions { common, ..VerifyOptions::default() })?;
//! print!("{}", answer.text);
//! # Ok::<(), verbgate_fabric::Error>(())
//! ```

mod abreast;
mod bench;
mod blame;
mod cause;
mod class;
mod connect;
mod cost;
mod counters;
mod diagnose;
mod endpoint;
mod error;
mod exchange;
mod explain;
mod files;
mod findings;
mod hardware;
mod injection;
mod interrupt;
mod known;
mod launch;
mod matrix;
mod meeting;
mod options;
mod outcome;
mod outputs;
mod pairs;
mod pmi;
mod preflight;
mod probe;
mod progress;
mod rail;
mod random;
mod rdma_cm;
mod rendezvous;
mod reopen;
mod report;
mod session;
mod simulate;
mod sound;
mod steps;
mod trial;
mod verify;

pub use crate::bench::BenchOptions;
pub use crate::bench::By;
pub use crate::bench::Sweep;
pub use crate::cost::COST_WORKER;
pub use crate::cost::CostOptions;
pub use crate::cost::cost;
pub use crate::cost::cost_worker;
pub use crate::error::Error;
pub use crate::files::Outputs;
pub use crate::injection::Injection;
pub use crate::options::Common;
pub use crate::options::Connect;
pub use crate::options::DiagnoseOptions;
use crate::options::Identity;
pub use crate::options::MEMORY_WORDS;
pub use crate::options::SimulateOptions;
pub use crate::options::TRANSPORT_WORDS;
pub use crate::options::VerifyOptions;
pub use crate::options::message_size;
pub use crate::options::size;
pub use crate::pairs::Choosing;
pub use crate::rail::Choice;
pub use verbgate_host::output::print;
pub use verbgate_verbs::Memory;
pub use verbgate_verbs::Transport;

/// What a rank found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// For people, or JSON if that was asked for.
    pub text: String,
    /// 0 if all is well, as the commands exit.
    pub exit_code: u8,
}

/// Checks every rank, connects all pairs on all rails, and compares what they exchange.
///
/// # Errors
/// When the ranks do not meet, or one of them ends.
pub fn verify(options: &VerifyOptions) -> Result<Answer, Error> {
    let (text, exit_code) = verify::run(options, &me(&options.common)?)?;
    Ok(Answer { text, exit_code })
}

/// Finds out what is wrong, and where.
///
/// # Errors
/// When the ranks do not meet, or one of them ends.
pub fn diagnose(options: &DiagnoseOptions) -> Result<Answer, Error> {
    let (text, exit_code) = diagnose::run(options, &me(&options.common)?)?;
    Ok(Answer { text, exit_code })
}

/// Measures all paths, and writes each cell to standard output once it is measured. Returns what
/// the command exits with.
///
/// # Errors
/// When the ranks do not meet, or one of them ends.
pub fn bench(options: &BenchOptions) -> Result<u8, Error> {
    bench::run(options, &me(&options.common)?)
}

/// Lets many ranks meet and connect without verbs, and says how long that takes.
///
/// # Errors
/// When they do not meet.
pub fn simulate(options: &SimulateOptions) -> Result<String, Error> {
    simulate::run(options)
}

/// Says what statuses, events, errnos, codes and counters mean, also in lines of logs. `json`: as a
/// list, and not in words.
///
/// # Errors
/// When one of them means nothing here.
pub fn explain(codes: &[String], json: bool) -> Result<String, Error> {
    explain::run(codes, json)
}

fn me(common: &Common) -> Result<Identity, Error> {
    Identity::find(common, &|name| std::env::var(name).ok())
}
