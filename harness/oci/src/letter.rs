//! Messages from `verbgate` to a container's supervisor. The socket is in a directory of root
//! ([`Place`]) that no container sees, so only the operator can write to the socket.

use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use anyhow::Error;
use anyhow::anyhow;
use serde::Deserialize;
use serde::Serialize;
use verbgate_sandbox::Narrowing;
use verbgate_sandbox::Windows;
use verbgate_sys::post::Way;

use super::place::Place;

/// The supervisor's message when the supervisor is ready; any other message is an error.
const READY: &str = "ready";

/// What a process that another waits for says of its beginning: one line, with all causes.
fn readiness<T>(begun: &Result<T, Error>) -> String {
    match begun {
        Ok(_) => READY.to_owned(),
        Err(error) => format!("{error:#}").replace('\n', " "),
    }
}

/// Says that on standard output, which nobody has from then on.
///
/// # Errors
/// There is no null device.
pub(super) fn say_readiness<T>(begun: &Result<T, Error>) -> io::Result<()> {
    // Who asked may be dead; then there will be no container, and this process ends, too.
    let _ = writeln!(io::stdout(), "{}", readiness(begun)).and_then(|()| io::stdout().flush());
    let null = File::options().read(true).write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

/// What was said: nothing, if the process ended before that.
pub(super) fn heard_readiness(said: &[u8], nothing: &str) -> Result<(), Error> {
    match String::from_utf8_lossy(said).trim() {
        READY => Ok(()),
        "" => Err(anyhow!("{nothing}")),
        error => Err(anyhow!("{error}")),
    }
}

/// Time for a supervisor to answer a question: the supervisor waits for letters, and serves in
/// other threads.
pub(super) const PATIENCE_MS: i32 = 5_000;

/// Time for a supervisor to carry out an order. On a machine that starts many containers at once,
/// an order takes seconds; the death of a supervisor shows without waiting.
const DEED_PATIENCE_MS: i32 = 120_000;

/// The answer to what was done; any other text is why it was not.
pub(super) const HEARD: &str = "heard";

/// A letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Word {
    /// The sender is under a filter, which came along, and becomes the real runtime.
    Watch(Watch),
    /// Have the container's NICs moved there, whose first process this is.
    Move(i32),
    /// `/sys` of the container of this first process is covered; what serves it came along.
    Sysfs(i32),
    /// The container's first process.
    Created(i32),
    /// The container's command is about to be executed.
    Start,
    /// Asks for the counters and objects.
    Show,
    /// A policy came along, by which what runs is narrowed.
    Narrow,
    /// The container is gone.
    End,
}

/// How the sender is under the sender's filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Watch {
    pub(super) windows: Windows,
    /// The sender's filters, all counted.
    pub(super) filters: u32,
}

/// No policy in a letter is longer.
const MAX_POLICY: usize = 1 << 20;

/// What came with [`Word::Narrow`].
pub(super) fn narrowing_of(files: Vec<OwnedFd>) -> Result<Narrowing, Error> {
    let [file] = <[OwnedFd; 1]>::try_from(files)
        .map_err(|files| anyhow!("the message came with {} files and not 1", files.len()))?;
    let file = File::from(file);
    let mut bytes = vec![0; MAX_POLICY];
    let mut have = 0;
    while let Some(rest) = bytes.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, u64::try_from(have)?)? {
            0 => break,
            n => have += n,
        }
    }
    Ok(serde_json::from_slice(bytes.get(..have).unwrap_or_default())?)
}

/// Why a supervisor did not do as it was told.
#[derive(Debug, thiserror::Error)]
pub(super) enum Untold {
    #[error("the container's supervisor is gone; delete the container and create it again")]
    Gone(#[source] io::Error),
    #[error(
        "the container's supervisor has not answered for {} s; delete the container and create it \
         again",
        DEED_PATIENCE_MS / 1000
    )]
    Silent,
    #[error("{0}")]
    Refused(String),
}

impl From<io::Error> for Untold {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Gone(error),
        }
    }
}

impl From<serde_json::Error> for Untold {
    fn from(error: serde_json::Error) -> Self {
        Self::Gone(error.into())
    }
}

/// Tells a supervisor.
pub(super) fn tell(way: &Way, word: &Word, files: &[BorrowedFd<'_>]) -> Result<(), Untold> {
    let answer = way.ask(&serde_json::to_vec(word)?, files, DEED_PATIENCE_MS)?;
    match String::from_utf8_lossy(&answer).into_owned() {
        text if text == HEARD => Ok(()),
        text => Err(Untold::Refused(text)),
    }
}

/// Tells the supervisor of a container.
pub(super) fn tell_at(place: &Place, word: &Word) -> Result<(), Untold> {
    tell(&Way::to(&place.control())?, word, &[])
}

/// The same, with the error as a person reads it.
pub(super) fn of_container(id: &str, untold: &Untold) -> Error {
    anyhow!("container {id}: {untold}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        for word in [Word::Created(7), Word::Start, Word::End, Word::Show, Word::Move(3)] {
            let text = serde_json::to_string(&word).unwrap();
            assert_eq!(serde_json::from_str::<Word>(&text).unwrap(), word, "{text}");
        }
        assert!(serde_json::from_str::<Word>(r#""expect""#).is_err());
    }

    #[test]
    fn readiness_is_one_line_with_all_causes() {
        let begun = Err::<(), _>(anyhow!("no such\nfile").context("cannot open the device"));
        let said = readiness(&begun);
        assert_eq!(said, "cannot open the device: no such file");
        assert_eq!(heard_readiness(said.as_bytes(), "x").unwrap_err().to_string(), said);
        assert!(heard_readiness(readiness(&Ok(())).as_bytes(), "x").is_ok());
        assert_eq!(heard_readiness(b"", "it ended").unwrap_err().to_string(), "it ended");
    }
}
