//! `verbgate runtime configure`: engines' files as found, edited, and given back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use tempfile::TempDir;

use crate::common;
use crate::common::CONTAINERD_1;
use crate::common::has;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

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
        // Whether there is a containerd on this host is of no interest here.
        if self.engine == "containerd"
            && !options.iter().any(|o| ["--engine", "--undo"].contains(o))
        {
            command.arg("--no-verify");
        }
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
        ("docker", "{\n\"runtimes\": 7}\n", "line 2: runtimes: must be an object; repair"),
        ("docker", "7\n", "line 1: "),
        ("containerd", "version = 5\n", "line 1: version"),
        ("containerd", "version = 2\nplugins = 7\n", "line 2: plugins: must be a table; repair"),
        (
            "containerd",
            "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\ncontainerd.runtimes.verbgate = []\n",
            "line 3: verbgate: must be a table",
        ),
        (
            "containerd",
            "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.verbgate]\n\
             pod_annotations = 'x'\n",
            "line 3: pod_annotations: must be an array",
        ),
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
    // What is no text at all.
    for engine in ["docker", "containerd", "podman", "crio"] {
        let file = File::new(engine, None);
        fs::write(file.path(), b"# \n\n# caf\xe9\n").unwrap();
        let output = file.configure(&[]);
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.contains("line 3: the text is not UTF-8; repair"), "{line}");
        assert_eq!(fs::read(file.path()).unwrap(), b"# \n\n# caf\xe9\n");
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
    let mut info = Command::new("unshare");
    // Podman mounts its storage, and leaves it so.
    info.args(["--mount", "podman", "--root"])
        .arg(file.dir.path().join("storage"))
        .arg("--runroot")
        .arg(file.dir.path().join("run"))
        .args(["--runtime", "verbgate", "info", "--format", "{{.Host.OCIRuntime.Path}}"])
        .env("CONTAINERS_CONF", file.path());
    let output = verbgate_wait::output(&mut info);
    assert_eq!(stdout(&output), called.to_str().unwrap(), "{output:?}");
}

/// The toolkit's file, as the package has it, and `verbgate` with a link beside it, as its package has that.
struct Toolkit {
    dir: TempDir,
}

const TOOLKIT: &str = "#swarm-resource = \"DOCKER_RESOURCE_GPU\"\n\n[nvidia-container-runtime]\n#debug = \"x\"\n\
                       runtimes = [\"docker-runc\", \"runc\", \"crun\"] # first wins\nmode = \"auto\"\n";

impl Toolkit {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("toolkit.toml"), TOOLKIT).unwrap();
        fs::copy(verbgate(), dir.path().join("verbgate")).unwrap();
        Self { dir }
    }

    fn link(&self) -> PathBuf {
        let link = self.dir.path().join("verbgate-oci-runc");
        std::os::unix::fs::symlink("verbgate", &link).unwrap();
        link
    }

    fn text(&self) -> String {
        fs::read_to_string(self.dir.path().join("toolkit.toml")).unwrap()
    }

    fn file(&self, engine: &str) -> PathBuf {
        self.dir.path().join(engine)
    }

    fn run(&self, engine: &str, options: &[&str]) -> Output {
        let mut command = Command::new(self.dir.path().join("verbgate"));
        command.args(["runtime", "configure", "--runtime", engine]);
        if engine != "nvidia" {
            command.arg("--config").arg(self.file(engine));
        }
        command.arg("--state-dir").arg(self.dir.path().join("state")).args(options);
        command.env("NVIDIA_CTK_CONFIG_FILE_PATH", self.dir.path().join("toolkit.toml"));
        command.output().unwrap()
    }

    fn done(&self, engine: &str, options: &[&str]) -> Output {
        let output = self.run(engine, options);
        assert!(output.status.success(), "{output:?}");
        output
    }
}

/// NVIDIA's runtime comes first, and calls Verbgate.
#[test]
fn nvidias_toolkit_is_told_to_call_verbgate() {
    if !has("runc") {
        return;
    }
    let toolkit = Toolkit::new();
    let docker = DOCKER.replacen('{', "{\n\t\"default-runtime\": \"nvidia\",", 1);
    fs::write(toolkit.file("docker"), &docker).unwrap();
    // NVIDIA's runtime would go on to runc.
    let why = stderr(&toolkit.run("docker", &[]));
    assert!(why.contains("verbgate-oci-runc is missing; make the link: ln -s "), "{why}");
    assert_eq!(fs::read_to_string(toolkit.file("docker")).unwrap(), docker);
    let link = toolkit.link().display().to_string();
    let line =
        format!("runtimes = [\"{link}\", \"docker-runc\", \"runc\", \"crun\"] # first wins\n");
    let planned = toolkit.done("docker", &["--dry-run"]);
    let (changes, said) = (stdout(&planned), stderr(&planned));
    assert!(
        changes.contains(&format!("+{line}")) && changes.contains("+\t\t\"verbgate\": {"),
        "{changes}"
    );
    for needle in
        ["the default runtime is \"nvidia\"", "nvidia, nvidia-cdi and nvidia-legacy get RDMA"]
    {
        assert!(said.contains(needle), "{needle}: {said}");
    }
    assert_eq!(toolkit.text(), TOOLKIT);
    assert_eq!(stdout(&toolkit.done("docker", &[])), changes);
    assert!(toolkit.text().contains(&line), "{}", toolkit.text());
    assert_eq!(stdout(&toolkit.done("docker", &[])), "");
    // The other engine needs the toolkit's file as it is.
    toolkit.done("podman", &[]);
    toolkit.done("docker", &["--undo"]);
    assert_eq!(fs::read_to_string(toolkit.file("docker")).unwrap(), docker);
    assert!(toolkit.text().contains(&line), "{}", toolkit.text());
    toolkit.done("podman", &["--undo"]);
    assert_eq!(toolkit.text(), TOOLKIT);
    assert_eq!(fs::read_dir(toolkit.dir.path().join("state")).unwrap().count(), 0);
    // The toolkit's file is told of, whatever engine is named.
    let told = || {
        let status = Command::new(toolkit.dir.path().join("verbgate"))
            .args(["runtime", "status", "--runtime", "docker"])
            .env("NVIDIA_CTK_CONFIG_FILE_PATH", toolkit.dir.path().join("toolkit.toml"))
            .output();
        stdout(&status.unwrap())
    };
    assert!(told().contains("verbgate runtime configure --runtime=nvidia"));
    // By itself before, after and without another engine, whose undoing leaves the file.
    for engines in [["nvidia", "docker"], ["docker", "nvidia"]] {
        for engine in engines {
            toolkit.done(engine, &[]);
        }
        toolkit.done("docker", &["--undo"]);
        assert!(toolkit.text().contains(&line), "{}", toolkit.text());
        assert!(!told().contains("--runtime=nvidia"));
        toolkit.done("nvidia", &["--undo"]);
        assert_eq!(toolkit.text(), TOOLKIT);
    }
    // With what others have changed since.
    toolkit.done("nvidia", &[]);
    let changed = toolkit.text().replace("auto", "cdi");
    fs::write(toolkit.dir.path().join("toolkit.toml"), changed).unwrap();
    toolkit.done("nvidia", &["--undo"]);
    assert_eq!(toolkit.text(), TOOLKIT.replace("auto", "cdi"));
    // A file that cannot be read changes no engine.
    fs::write(
        toolkit.dir.path().join("toolkit.toml"),
        "[nvidia-container-runtime]\nruntimes = 3\n",
    )
    .unwrap();
    let why = stderr(&toolkit.run("docker", &[]));
    assert!(why.contains("toolkit.toml: line 2: runtimes: must be an array"), "{why}");
    assert_eq!(fs::read_to_string(toolkit.file("docker")).unwrap(), docker);
}

#[test]
fn a_runtime_that_cannot_be_wrapped_is_refused_with_the_remedy() {
    for (wrap, needle) in [
        ("nosuch", "--wrap nosuch: not found in PATH; install the runtime, or name another"),
        ("/no/such", "--wrap /no/such: not an executable file"),
        ("nvidia-container-runtime", "have NVIDIA's runtime call verbgate"),
        ("/usr/bin/nvidia-container-runtime.legacy", "have NVIDIA's runtime call verbgate"),
    ] {
        for engine in ["docker", "containerd", "podman", "crio"] {
            let file = File::new(engine, None);
            let output = file.configure(&["--wrap", wrap]);
            let why = stderr(&output);
            assert_eq!((output.status.code(), file.text()), (Some(1), None), "{why}");
            assert!(why.contains(needle), "{why}");
        }
    }
}

fn stand_in(dir: &TempDir) -> String {
    program(dir, "containerd-1", CONTAINERD_1)
}

fn program(dir: &TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn containerd_is_asked_before_its_file_is_changed() {
    // Debian's own file names no runtime.
    let debian = "version = 2\n\n[plugins]\n  [plugins.\"io.containerd.internal.v1.opt\"]\n";
    let file = File::new("containerd", Some(debian));
    let engine = stand_in(&file.dir);
    let output = file.configure(&["--engine", &engine, "--cdi"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("--cdi has no effect"), "{output:?}");
    let text = file.text().unwrap();
    assert!(text.contains("runtimes.runc]") && !text.contains("enable_cdi"), "{text}");
    // The file, the state and the stand-in: no copy is left.
    assert_eq!(fs::read_dir(file.dir.path()).unwrap().count(), 3);
    file.done(&["--undo"]);
    assert_eq!(file.text().as_deref(), Some(debian));
}

#[test]
fn what_containerd_would_not_take_is_not_written() {
    for (text, needle) in [
        ("version = 2\n# \"trouble\"\n", "trouble; repair"),
        ("disabled_plugins = [\"cri\"]\n", "line 1: disabled_plugins"),
        ("version = 2\n[plugins\n", "line 2, column 9"),
    ] {
        let file = File::new("containerd", Some(text));
        let engine = stand_in(&file.dir);
        let output = file.configure(&["--engine", &engine]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(needle), "{said}");
        // It speaks of the file, not of the copy that containerd has read.
        assert!(said.contains(file.path().to_str().unwrap()), "{said}");
        assert!(!said.contains(".verbgate-check"), "{said}");
        assert_eq!(file.text().as_deref(), Some(text));
        assert_eq!(fs::read_dir(file.dir.path()).unwrap().count(), 2);
    }
    let file = File::new("containerd", None);
    let output = file.configure(&["--engine", "/nowhere/containerd"]);
    let said = stderr(&output);
    assert!(said.contains("--engine") && said.contains("--no-verify"), "{said}");
    assert_eq!((output.status.code(), file.text()), (Some(1), None));
}

/// An engine that is newer now, or whose file others have changed: it is asked before its file is taken back.
#[test]
fn what_an_engine_would_not_take_is_not_taken_back() {
    let debian = "version = 2\n";
    let file = File::new("containerd", Some(debian));
    let engine = stand_in(&file.dir);
    file.done(&["--engine", &engine]);
    let ours = file.text().unwrap();
    let newer = "#!/bin/sh\ngrep -q verbgate \"$2\" || { echo \"containerd: $2: (1, 1): is too old\" >&2; exit 1; }\n\
                 cat \"$2\"\n";
    let newer = program(&file.dir, "containerd-9", newer);
    let output = file.configure(&["--undo", "--engine", &newer]);
    let why = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{why}");
    for needle in ["line 1: ", "is too old", "stays as it is", "--no-verify"] {
        assert!(why.contains(needle), "{needle}: {why}");
    }
    assert_eq!(file.text().as_deref(), Some(ours.as_str()));
    file.done(&["--undo", "--no-verify"]);
    assert_eq!(file.text().as_deref(), Some(debian));
    // An engine that takes neither is no worse off.
    file.done(&["--engine", &engine]);
    file.done(&["--undo", "--engine", &program(&file.dir, "broken", "#!/bin/sh\nexit 1\n")]);
    assert_eq!(file.text().as_deref(), Some(debian));
}

/// podman and CRI-O read the file before it is written, if they are there; who asks nobody says so.
#[test]
fn podman_and_crio_are_asked_before_their_file_is_written() {
    let podman = "#!/bin/sh\ngrep -q 'runtimes' \"$CONTAINERS_CONF\" && [ \"$*\" = --version ]\n";
    let crio = "#!/bin/sh\n[ \"$1 $3\" = '--config config' ] && cat \"$2\"\n";
    let refuses = "#!/bin/sh\necho 'toml: line 2: no such key' >&2; exit 1\n";
    for (engine, takes) in [("podman", podman), ("crio", crio)] {
        let file = File::new(engine, None);
        let [takes, refuses, ignores] =
            [("takes", takes), ("refuses", refuses), ("ignores", "#!/bin/sh\n")]
                .map(|(name, text)| program(&file.dir, name, text));
        let output = file.configure(&["--engine", &refuses]);
        let why = stderr(&output);
        assert!(why.contains("line 2: no such key; repair"), "{why}");
        assert_eq!((output.status.code(), file.text()), (Some(1), None));
        if engine == "crio" {
            let why = stderr(&file.configure(&["--engine", &ignores]));
            assert!(why.contains("would ignore the runtime \"verbgate\""), "{why}");
            assert_eq!(file.text(), None);
        }
        let output = file.configure(&["--engine", &takes]);
        assert!(output.status.success() && file.text().is_some(), "{output:?}");
        assert!(!stderr(&output).contains("nobody"), "{output:?}");
    }
    for engine in ["docker", "podman", "crio"] {
        let file = File::new(engine, None);
        let mut command = Command::new(verbgate());
        command.args(["runtime", "configure", "--runtime", engine, "--config"]).arg(file.path());
        command.arg("--state-dir").arg(file.dir.path().join("state")).env("PATH", "/nonexistent");
        let output = command.output().unwrap();
        let is_here = ["/usr/sbin", "/usr/local/sbin"].iter().any(|dir| {
            ["dockerd", "crio"].iter().any(|name| PathBuf::from(dir).join(name).exists())
        });
        assert!(output.status.success(), "{output:?}");
        assert!(is_here || stderr(&output).contains("nobody but verbgate has read"), "{output:?}");
    }
}

/// As the package does when it is removed: all files, whatever the runtimes are called.
#[test]
fn everything_is_taken_back_at_once() {
    let docker = File::new("docker", Some(DOCKER));
    docker.done(&["--name", "one"]);
    let state = docker.dir.path().join("state");
    let podman = File::new("podman", None);
    let path = podman.path();
    let words = ["runtime", "configure", "--runtime", "podman", "--config"];
    let both = |words: &[&str]| {
        let mut command = Command::new(verbgate());
        command.args(words);
        command
    };
    let mut configure = both(&words);
    configure.arg(&path).arg("--state-dir").arg(&state);
    assert!(configure.output().unwrap().status.success());
    // Somebody else's change stays.
    let changed = docker.text().unwrap().replace("/srv/docker", "/srv/other");
    fs::write(docker.path(), &changed).unwrap();
    let mut unconfigure = both(&["runtime", "unconfigure", "--state-dir"]);
    unconfigure.arg(&state);
    let output = unconfigure.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = docker.text().unwrap();
    assert!(text.contains("/srv/other") && !text.contains("\"one\""), "{text}");
    assert_eq!(podman.text(), None);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    assert!(unconfigure.output().unwrap().status.success());

    // What cannot be taken back is named, and keeps its record.
    docker.done(&[]);
    let default = docker.text().unwrap().replacen('{', "{\"default-runtime\": \"verbgate\",", 1);
    fs::write(docker.path(), &default).unwrap();
    let output = unconfigure.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("default-runtime is \"verbgate\""), "{output:?}");
    assert_eq!(docker.text().unwrap(), default);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1);
}
