//! podman before 4.6, which gives a container the annotations of its image, so that the author of
//! the image could grant devices (podman's pull request 18542 ended that).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// The first version whose annotations are the operator's alone.
const SAFE: (u32, u32) = (4, 6);

/// Of these annotations, podman before 4.4 writes those that are off, too (pull request 16889), over
/// whatever an image has.
const WRITTEN: [&str; 4] = [
    "io.podman.annotations.autoremove",
    "io.podman.annotations.init",
    "io.podman.annotations.privileged",
    "io.podman.annotations.publish-all",
];
const OFF: &str = "FALSE";

/// How far up the process that runs podman's exit command is looked for.
const GENERATIONS: usize = 3;

/// The version of a podman that passes an image's annotations on, if this container is of one.
pub(super) fn passes_images_annotations(config: &Value) -> Option<String> {
    let annotations = config.get("annotations");
    let value = |key: &str| annotations.and_then(|all| all.get(key)?.as_str());
    if WRITTEN.iter().any(|key| value(key) == Some(OFF)) {
        return Some("before 4.4".to_owned());
    }
    // The monitor of a container's processes starts the runtime, and knows its engine.
    let output = Command::new(engine()?).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().strip_prefix("podman version ")?;
    (numbers(version)? < SAFE).then(|| version.to_owned())
}

/// The engine that a monitor among this process's ancestors will tell of the container's end.
fn engine() -> Option<PathBuf> {
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..GENERATIONS {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        if name.trim() == "conmon" {
            return exit_command(&line);
        }
        let parent = verbgate_sys::process::parent(verbgate_sys::Tid(pid.cast_signed())).ok()?;
        pid = u32::try_from(parent.0).ok()?;
    }
    None
}

/// The program of a monitor's exit command; CRI-O's monitors have none.
fn exit_command(line: &[u8]) -> Option<PathBuf> {
    let words: Vec<&str> =
        line.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let at = words.iter().position(|word| *word == "--exit-command")?;
    words.get(at + 1).map(PathBuf::from)
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_old_podman_shows_in_its_bundle() {
        let old = json!({"annotations": {"io.podman.annotations.init": "FALSE"}});
        assert_eq!(passes_images_annotations(&old).as_deref(), Some("before 4.4"));
        let new = json!({"annotations": {"io.podman.annotations.init": "TRUE"}});
        // Nor is there a monitor above a test.
        assert_eq!(passes_images_annotations(&new), None);
        assert_eq!(passes_images_annotations(&json!({})), None);
    }

    #[test]
    fn a_monitor_names_its_engine_and_that_its_version() {
        let line =
            b"/usr/bin/conmon\0-c\0abc\0--exit-command\0/usr/bin/podman\0--exit-command-arg\0x\0";
        assert_eq!(exit_command(line), Some("/usr/bin/podman".into()));
        assert_eq!(exit_command(b"conmon\0--exit-dir\0/run\0"), None);
        for (version, old) in
            [("4.5.1", true), ("4.6.0", false), ("3.4", true), ("5.0.0-dev", false)]
        {
            assert_eq!(numbers(version).unwrap() < SAFE, old, "{version}");
        }
        assert_eq!(numbers("dev"), None);
    }
}
