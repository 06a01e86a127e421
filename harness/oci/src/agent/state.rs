//! The message of a runtime to a seccomp agent: the container process state, and descriptors beside
//! the state. OCI runtime specification, config-linux.md, "The Container Process State".

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::RecvFlags;
use serde::Deserialize;
use serde_json::Map;
use serde_json::Value;
use verbgate_sys::rights;
use verbgate_sys::rights::MAX_FDS;

/// The name of the descriptor at which notifications arrive.
const SECCOMP_FD: &str = "seccompFd";

/// Longest state; annotations make most of it.
const MAX_STATE: usize = 1 << 20;

/// How long a runtime may take for the first part: crun connects when it creates a container, and sends when that is
/// started.
const SILENT: Duration = Duration::from_secs(3600);
/// How long a runtime may take for the rest, when a part is there.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process that came under a filter.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) state: ProcessState,
    /// The listener for the container's notifications.
    pub(super) listener: OwnedFd,
}

/// `ContainerProcessState`. Fields that are not used here are not asked for.
#[derive(Debug, Deserialize)]
pub(super) struct ProcessState {
    fds: Vec<String>,
    pub(super) pid: i32,
    #[serde(default)]
    pub(super) metadata: String,
    pub(super) state: State,
}

/// `State`: the container.
#[derive(Debug, Deserialize)]
pub(super) struct State {
    pub(super) id: String,
    pub(super) bundle: PathBuf,
    #[serde(default)]
    pub(super) annotations: Map<String, Value>,
}

/// Why what was sent cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    #[error("the container's state did not arrive: {0}")]
    Lost(io::Error),
    #[error("the container's state is longer than {MAX_STATE} bytes")]
    Long,
    #[error("the message is not a container process state: {0}")]
    Json(serde_json::Error),
    #[error("field fds: no {SECCOMP_FD:?} with a descriptor")]
    NoListener,
    #[error("field fds: {SECCOMP_FD:?} is {0}, not a listener for seccomp notifications")]
    NotSeccomp(String),
}

impl From<io::Error> for StateError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Receives it.
pub(super) fn receive(from: &UnixStream) -> Result<Arrived, StateError> {
    let (mut text, mut fds) = (Vec::new(), Vec::new());
    from.set_read_timeout(Some(SILENT))?;
    loop {
        let mut part = [0_u8; 4096];
        let got = rights::receive(from, &mut part, RecvFlags::empty()).map_err(io::Error::from)?;
        let len = got.bytes;
        // They come with the first part.
        fds.extend(got.fds.into_iter().take(MAX_FDS.saturating_sub(fds.len())));
        if len == 0 {
            break;
        }
        from.set_read_timeout(Some(PATIENCE))?;
        text.extend_from_slice(part.get(..len).unwrap_or_default());
        if text.len() > MAX_STATE {
            return Err(StateError::Long);
        }
        // Crun keeps the connection; it is not waited for.
        if text.trim_ascii_end().ends_with(b"}") && serde_json::from_slice::<Value>(&text).is_ok() {
            break;
        }
    }
    let state: ProcessState = serde_json::from_slice(&text).map_err(StateError::Json)?;
    let at = state.fds.iter().position(|name| name == SECCOMP_FD).ok_or(StateError::NoListener)?;
    let listener = fds.into_iter().nth(at).ok_or(StateError::NoListener)?;
    let is = std::fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd()))?;
    if is.as_os_str() != "anon_inode:seccomp notify" {
        return Err(StateError::NotSeccomp(is.display().to_string()));
    }
    Ok(Arrived { state, listener })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use rustix::net::SendFlags;

    use super::*;

    const GOOD: &str = r#"{"ociVersion":"1.0.2","fds":["seccompFd"],"pid":1,"metadata":"m",
        "state":{"ociVersion":"1.0.2","id":"c","status":"creating","pid":1,"bundle":"/b"}}"#;

    fn sent(text: &str, with: bool) -> Result<Arrived, StateError> {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let fds = [null.as_fd()];
        let (first, rest) = text.as_bytes().split_at(text.len() / 2);
        let parts = [io::IoSlice::new(first)];
        let fds: &[_] = if with { &fds } else { &[] };
        rights::send(&theirs, &parts, fds, SendFlags::empty()).unwrap();
        theirs.write_all(rest).unwrap();
        drop(theirs);
        receive(&ours)
    }

    #[test]
    fn a_state_is_read_in_parts_and_its_descriptor_looked_at() {
        assert!(matches!(sent(GOOD, true), Err(StateError::NotSeccomp(is)) if is == "/dev/null"));
        assert!(matches!(sent(GOOD, false), Err(StateError::NoListener)));
        assert!(matches!(sent(&GOOD.replace("seccompFd", "x"), true), Err(StateError::NoListener)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["xx", "{}", "[1]", r#"{"fds":[]}"#, &GOOD.replace("\"pid\":1", "\"pid\":\"\"")]
        {
            assert!(matches!(sent(text, true), Err(StateError::Json(_))), "{text}");
        }
        // More than a socket holds.
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let receiving = std::thread::spawn(move || receive(&ours));
        let _ = theirs.write_all(&vec![b' '; MAX_STATE + 1]);
        assert!(matches!(receiving.join().unwrap(), Err(StateError::Long)));
    }
}
