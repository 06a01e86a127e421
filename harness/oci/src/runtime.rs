//! The wrapped runtime: finding it, and becoming it.

use std::env;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Error;
use anyhow::anyhow;
use serde_json::json;

use super::line::Line;

/// Looked for in this order where none is named.
const NAMES: [&str; 2] = ["runc", "crun"];

/// Directories where engines look besides PATH, because services often start without PATH.
const DIRS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Finds the runtime that is named, or the first that there is.
pub(super) fn find(named: Option<&OsStr>) -> Result<PathBuf, Error> {
    // A link of a runtime's name to this program would call itself for ever.
    let own = env::current_exe().and_then(fs::canonicalize).ok();
    let usable = |path: &PathBuf| {
        let meta = fs::metadata(path);
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
            && fs::canonicalize(path).ok() != own
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = env::split_paths(&path).chain(DIRS.map(PathBuf::from)).collect();
    let in_path = |name: &OsStr| dirs.iter().map(|dir| dir.join(name)).find(usable);
    match named {
        Some(name) if name.as_encoded_bytes().contains(&b'/') => {
            Some(PathBuf::from(name)).filter(usable).ok_or_else(|| {
                anyhow!(
                    "--runtime {}: not an executable file; name crun, runc or a path",
                    name.display()
                )
            })
        }
        Some(name) => in_path(name).ok_or_else(|| {
            anyhow!(
                "--runtime {}: not found in PATH; install the runtime, or give a path",
                name.display()
            )
        }),
        None => NAMES.iter().find_map(|name| in_path(OsStr::new(name))).ok_or_else(|| {
            anyhow!("no OCI runtime is installed: install runc or crun, or name one by --runtime")
        }),
    }
}

/// Whether a runtime may be a program that edits the bundle and calls another: whatever is neither runc nor crun, nor a
/// build of these (`runc-1.2`, `runc.amd64`). crun-vm is a program of its own.
pub(super) fn may_edit(runtime: &Path) -> bool {
    let real = fs::canonicalize(runtime).unwrap_or_else(|_| runtime.to_owned());
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let mut rests = NAMES.iter().filter_map(|known| name.strip_prefix(known));
    !rests.any(|rest| !rest.trim_start_matches('-').starts_with(char::is_alphabetic))
}

/// Replaces this process by the runtime; returns only why that failed.
pub(super) fn become_it(runtime: &Path, args: &[OsString]) -> Error {
    let error = Command::new(runtime).args(args).exec();
    anyhow!("cannot run {}: {error}", runtime.display())
}

/// Tells the engine: it reads the last error from the file that it named to the runtime.
pub(super) fn tell(line: &Line, error: &Error) {
    let Some(path) = line.global("--log") else { return };
    let json = line.global("--log-format").is_some_and(|format| format == "json");
    let text = if json {
        json!({"level": "error", "msg": format!("verbgate: {error:#}")}).to_string()
    } else {
        format!("level=error msg=\"verbgate: {error:#}\"")
    };
    // What is printed says it, too.
    let _ = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| writeln!(file, "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_is_missing_is_named() {
        for name in ["/no/such/runc", "no-such-runc", "/etc"] {
            let error = find(Some(OsStr::new(name))).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert_eq!(find(Some(OsStr::new("sh"))).unwrap().file_name().unwrap(), "sh");
    }

    #[test]
    fn builds_of_runc_and_crun_edit_nothing() {
        for name in ["/no/runc", "/no/crun", "/no/runc-1.2", "/no/runc.amd64"] {
            assert!(!may_edit(name.as_ref()), "{name}");
        }
        for name in ["/no/crun-vm", "/no/runcvm", "/no/youki", "/no/nvidia-container-runtime"] {
            assert!(may_edit(name.as_ref()), "{name}");
        }
    }

    #[test]
    fn the_engine_finds_the_error_in_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let words =
            ["--log".into(), log.clone().into(), "--log-format=json".into(), "create".into()];
        tell(&Line::parse(&words), &anyhow!("no \"device\""));
        let value: serde_json::Value = serde_json::from_slice(&fs::read(log).unwrap()).unwrap();
        assert_eq!(value["msg"], "verbgate: no \"device\"");
    }
}
