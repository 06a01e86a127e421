//! The step under the filter: this process installs the filter on itself, and then becomes the
//! wrapped runtime.
//!
//! So everything that the runtime starts in a container is under the filter from the first
//! instruction, and no code of verbgate runs there: verbgate believes no path that a container can
//! replace, lends no capability, and need not tell a caller from another. The listener goes to the
//! supervisor through a socket that containers do not see.
//!
//! The runtime itself, and its hooks, are trusted. The filter is little in their way: calls that
//! the filter asks about go on natively until the container starts (see `supervisor`).

use std::fs;
use std::os::fd::AsFd;

use anyhow::Context;
use anyhow::Error;
use serde_json::Value;
use verbgate_sandbox::Guard;
use verbgate_sys::post::Way;
use verbgate_sys::process;

use super::letter;
use super::letter::Untold;
use super::letter::Watch;
use super::letter::Word;

/// Puts the calling process under a filter, and has the supervisor watch it. Given is the
/// description of the process that the runtime will execute, and whether 32-bit programs run.
pub(super) fn come_under(way: &Way, described: &Value, compat: bool) -> Result<(), Error> {
    let limit = limit(described).unwrap_or_else(process::descriptor_limit);
    let guard = Guard::new(limit, compat)?;
    let listener = guard.install().context(
        "cannot install the seccomp filter: a kernel of 5.19 or newer with CONFIG_SECCOMP_FILTER \
         is needed, and no other filter with a listener",
    )?;
    let filters = filters("self")?;
    let word = Word::Watch(Watch { windows: guard.windows(), filters });
    letter::tell(way, &word, &[listener.as_fd()]).map_err(|untold| match untold {
        Untold::Gone(e) => Error::new(e).context("the supervisor ended; see the supervisor's log"),
        other => anyhow::anyhow!("{other}"),
    })
}

/// The limit of descriptor numbers that a process is to have.
fn limit(process: &Value) -> Option<u64> {
    let all = process.get("rlimits")?.as_array()?;
    let of_files = |one: &&Value| one.get("type").and_then(Value::as_str) == Some("RLIMIT_NOFILE");
    all.iter().find(of_files)?.get("soft")?.as_u64()
}

/// Number of filters that a process is under: proc(5), since Linux 5.9.
pub(super) fn filters(process: &str) -> Result<u32, Error> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let count = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    count
        .and_then(|text| text.trim().parse().ok())
        .with_context(|| format!("{path} does not count seccomp filters (Linux 5.9 is needed)"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_limit_of_the_process_counts() {
        let rlimits = json!([{"type": "RLIMIT_CORE", "soft": 1, "hard": 1},
                             {"type": "RLIMIT_NOFILE", "soft": 64, "hard": 128}]);
        assert_eq!(limit(&json!({ "rlimits": rlimits })), Some(64));
        assert_eq!(limit(&json!({"rlimits": []})), None);
        assert_eq!(limit(&json!({})), None);
    }

    #[test]
    fn filters_are_counted() {
        assert!(filters("self").is_ok());
        assert!(filters("no-such").is_err());
    }
}
