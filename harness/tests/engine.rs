//! `verbgate runtime configure`: files of engines as they are found, edited and given back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests; clippy sees only the test functions themselves as such"
)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use common::has;
use common::stderr;
use common::stdout;
use common::verbgate;
use tempfile::TempDir;

const DOCKER: &str = "{\n\t\"runtimes\": {\"nvidia\": {\"path\": \"nvidia-container-runtime\"}},\n\
                      \t\"data-root\": \"/srv/docker\"   }\n\n";
const CONTAINERD: &str = "version = 2\n# ours\n[plugins.'io.containerd.grpc.v1.cri']\n\
                          sandbox_image = 'pause' # by hand\n";

/// Each engine, the file as it is found, if there is one, and what says that it knows the runtime.
const ENGINES: [(&str, Option<&str>, &str); 6] = [
    ("docker", Some(DOCKER), "+\t\t\"verbgate\": {"),
    ("docker", None, "\"verbgate\": {"),
    (
        "containerd",
        Some(CONTAINERD),
        "+[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.verbgate]",
    ),
    ("containerd", None, "BinaryName"),
    ("podman", None, "+[engine.runtimes]"),
    ("crio", None, "+[crio.runtime.runtimes.verbgate]"),
];

struct File {
    dir: TempDir,
    engine: &'static str,
}

impl File {
    fn new(engine: &'static str, text: Option<&str>) -> Self {
        let file = Self { dir: tempfile::tempdir().unwrap(), engine };
        if let Some(text) = text {
            fs::write(file.path(), text).unwrap();
            fs::set_permissions(file.path(), fs::Permissions::from_mode(0o640)).unwrap();
        }
        file
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    fn text(&self) -> Option<String> {
        fs::read_to_string(self.path()).ok()
    }

    fn configure(&self, options: &[&str]) -> Output {
        let mut command = Command::new(verbgate());
        command.args(["runtime", "configure", "--runtime", self.engine]);
        command.arg("--config").arg(self.path());
        command.arg("--state-dir").arg(self.dir.path().join("state"));
        command.args(options).output().unwrap()
    }

    fn done(&self, options: &[&str]) -> String {
        let output = self.configure(options);
        assert!(output.status.success(), "{output:?}");
        stdout(&output)
    }
}

#[test]
fn what_is_configured_is_undone_byte_by_byte() {
    for (engine, before, needle) in ENGINES {
        let file = File::new(engine, before);
        let planned = file.done(&["--dry-run"]);
        assert_eq!(file.text().as_deref(), before, "{engine}");
        assert!(planned.contains(needle), "{engine}: {planned}");
        assert_eq!(file.done(&[]), planned);
        let after = file.text().unwrap();
        // Twice is once.
        assert_eq!(file.done(&[]), "");
        assert_eq!(file.text().unwrap(), after);
        file.done(&["--wrap", "crun"]);
        assert_ne!(file.text().unwrap(), after);
        let undone = file.done(&["--undo"]);
        assert_eq!(file.text().as_deref(), before, "{engine}");
        assert!(undone.lines().any(|line| line.starts_with('-')), "{engine}: {undone}");
        if before.is_some() {
            let mode = fs::metadata(file.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o640);
        }
        assert_eq!(file.done(&["--undo"]), "");
        assert_eq!(fs::read_dir(file.dir.path().join("state")).unwrap().count(), 0);
    }
}

#[test]
fn what_others_have_changed_since_stays() {
    let file = File::new("docker", Some(DOCKER));
    file.done(&[]);
    let changed = file.text().unwrap().replace("/srv/docker", "/srv/other");
    fs::write(file.path(), &changed).unwrap();
    file.done(&["--undo"]);
    let text = file.text().unwrap();
    assert!(text.contains("/srv/other") && text.contains("nvidia"), "{text}");
    assert!(!text.contains("verbgate"), "{text}");
    let file = File::new("containerd", Some(CONTAINERD));
    file.done(&[]);
    fs::write(file.path(), file.text().unwrap() + "\n[debug]\nlevel = 'info'\n").unwrap();
    file.done(&["--undo"]);
    let text = file.text().unwrap();
    assert!(text.contains("[debug]") && text.contains("by hand") && !text.contains("verbgate"));
    let file = File::new("podman", None);
    file.done(&[]);
    fs::write(file.path(), "[engine]\n").unwrap();
    assert_eq!(file.configure(&["--undo"]).status.code(), Some(1));
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_left_alone() {
    for (engine, text, needle) in [
        ("docker", "{\"a\": 1,}\n", "line 1"),
        ("docker", "{\"runtimes\": 7}\n", "runtimes"),
        ("containerd", "version = 2\n\n[plugins\n", "line 3"),
        ("containerd", "root = '/x'\n", "containerd config migrate"),
        ("crio", "[crio]\n", "--config"),
        ("podman", "engine = [\n", "line "),
    ] {
        let file = File::new(engine, Some(text));
        for options in [&[][..], &["--dry-run"]] {
            let output = file.configure(options);
            let line = stderr(&output);
            let line = line.lines().last().unwrap();
            assert_eq!(output.status.code(), Some(1), "{line}");
            assert!(line.starts_with("verbgate: ") && line.contains(needle), "{line}");
            assert!(line.contains(file.path().to_str().unwrap()), "{line}");
            assert_eq!(file.text().unwrap(), text);
        }
    }
    let output = File::new("docker", None).configure(&["--name", "a b"]);
    assert_eq!(output.status.code(), Some(1));
    let output = File::new("nonsense", None).configure(&[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_link_is_followed() {
    let file = File::new("docker", None);
    let target = file.dir.path().join("target.json");
    fs::write(&target, DOCKER).unwrap();
    std::os::unix::fs::symlink(&target, file.path()).unwrap();
    file.done(&[]);
    assert!(fs::read_link(file.path()).is_ok());
    assert!(fs::read_to_string(&target).unwrap().contains("verbgate"));
}

/// Podman itself reads the file and finds the runtime by it.
#[test]
fn podman_finds_the_runtime() {
    if !common::is_root() || !has("podman") || !has("runc") {
        return;
    }
    let file = File::new("podman", None);
    // By the name that says what it wraps.
    let program = file.dir.path().join("verbgate");
    fs::copy(verbgate(), &program).unwrap();
    let called = file.dir.path().join("verbgate-oci-runc");
    std::os::unix::fs::symlink("verbgate", &called).unwrap();
    let configured = Command::new(&program)
        .args(["runtime", "configure", "--runtime", "podman", "--config"])
        .arg(file.path())
        .arg("--state-dir")
        .arg(file.dir.path().join("state"))
        .output()
        .unwrap();
    assert!(configured.status.success() && configured.stderr.is_empty(), "{configured:?}");
    let output = Command::new("timeout")
        // Podman mounts its storage, and leaves it so.
        .args(["-s", "KILL", "60", "unshare", "--mount", "podman", "--root"])
        .arg(file.dir.path().join("storage"))
        .arg("--runroot")
        .arg(file.dir.path().join("run"))
        .args(["--runtime", "verbgate", "info", "--format", "{{.Host.OCIRuntime.Path}}"])
        .env("CONTAINERS_CONF", file.path())
        .output()
        .unwrap();
    assert_eq!(stdout(&output), called.to_str().unwrap(), "{output:?}");
}

/// Containerd itself reads the file, with its own defaults in it.
#[test]
fn containerd_reads_the_file() {
    if !has("containerd") {
        return;
    }
    let containerd = |args: &[&str]| {
        let output = Command::new("containerd").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        stdout(&output)
    };
    let file = File::new("containerd", Some(&containerd(&["config", "default"])));
    file.done(&["--cdi"]);
    let dump = containerd(&["--config", file.path().to_str().unwrap(), "config", "dump"]);
    let value: toml::Value = toml::from_str(&dump).unwrap();
    let plugins = value["plugins"].as_table().unwrap();
    let cri = plugins.iter().find(|(name, _)| name.contains("cri") && !name.contains("image"));
    let ours = &cri.unwrap().1["containerd"]["runtimes"]["verbgate"];
    assert!(ours["options"]["BinaryName"].as_str().unwrap().ends_with("verbgate-oci-runc"));
}
