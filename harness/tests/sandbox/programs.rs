//! Programs whose language runtimes reserve most addresses: each program starts in a sandbox, and
//! the stub finds a place among the program's mappings.
//!
//! The tests use the compilers and runtimes of this machine; each test says what it skips, and why.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use crate::common::NULL_AS_UVERBS;
use crate::common::has;
use crate::common::output;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

const DEVICE: &str = "/dev/infiniband/uverbs9";

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sandbox/programs").join(name)
}

/// Whether a compiler made a program; if not, what it said is the reason for a skip.
fn compiled(what: &str, command: &mut Command) -> bool {
    let ended = output(command);
    if !ended.status.success() {
        let said = stderr(&ended);
        let said = said.lines().find(|line| line.contains("rror") || line.contains("cannot"));
        eprintln!("SKIPPED: {what} cannot be compiled here: {}", said.unwrap_or("no reason"));
    }
    ended.status.success()
}

fn compile(compiler: &str, options: &[&str], program: &Path) -> bool {
    let mut command = Command::new(compiler);
    command.args(["-g", "-O1", "-pthread"]).args(options).arg("-o").arg(program);
    compiled(&format!("{compiler} {options:?}"), command.arg(source("verbs.c")))
}

fn sandboxed(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(verbgate());
    command.args(["run", "--device", NULL_AS_UVERBS, "--"]).arg(program);
    command
}

/// It ran to its end, its request reached the device, and the log has nothing to say but this.
#[track_caller]
fn reached(what: &str, ended: &Output, allowed: &str) {
    let text = stderr(ended);
    let lines = stdout(ended);
    assert!(ended.status.success(), "{what}: {:?}: {lines}\n{text}", ended.status);
    assert_eq!(lines.lines().last(), Some("ENOTTY"), "{what}: {lines}\n{text}");
    let log = text.lines().filter(|line| line.starts_with("verbgate: "));
    let log: Vec<_> = log.filter(|line| allowed.is_empty() || !line.contains(allowed)).collect();
    assert!(log.is_empty(), "{what}: {log:?}");
}

/// AddressSanitizer looks for leaks at the end, attaching to every thread, and does without the stub.
const AT_THE_END: &str = "may not trace the stub";

/// READ_IMPLIES_EXEC, personality(2): a stub's memory is mapped otherwise then.
#[test]
fn programs_that_may_execute_what_they_read_make_requests() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("executable");
    if has("gcc") && compile("gcc", &["-DEXECUTABLE"], &program) {
        reached("READ_IMPLIES_EXEC", &output(sandboxed(&program).arg(DEVICE)), "");
    }
}

#[test]
fn programs_under_sanitizers_make_requests() {
    let dir = tempfile::tempdir().unwrap();
    for (compiler, sanitizer, allowed) in [
        ("gcc", "thread", ""),
        ("gcc", "address", AT_THE_END),
        ("gcc", "leak", AT_THE_END),
        ("gcc", "undefined", ""),
        ("clang", "thread", ""),
        ("clang", "address", AT_THE_END),
        ("clang", "memory", ""),
    ] {
        let program = dir.path().join(format!("{compiler}-{sanitizer}"));
        if !has(compiler) || !compile(compiler, &[&format!("-fsanitize={sanitizer}")], &program) {
            continue;
        }
        // Addresses are drawn anew at each start.
        for _ in 0..5 {
            let ended = output(sandboxed(&program).arg(DEVICE));
            reached(&format!("{compiler} -fsanitize={sanitizer}"), &ended, allowed);
        }
    }
}

#[test]
fn go_programs_make_requests() {
    if !has("go") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // The race detector is ThreadSanitizer.
    for options in [&[][..], &["-race"]] {
        let program = dir.path().join("verbs");
        let mut build = Command::new("go");
        build.arg("build").args(options).arg("-o").arg(&program).arg(source("verbs.go"));
        build.env("GOCACHE", dir.path().join("cache")).env("GO111MODULE", "off");
        if compiled(&format!("go build {options:?}"), build.env("CGO_ENABLED", "1")) {
            reached("Go", &output(sandboxed(&program).arg(DEVICE)), "");
        }
    }
}

/// A library that makes a request when a program ends.
fn preloaded(dir: &Path) -> Option<PathBuf> {
    let library = dir.join("last.so");
    let made = has("gcc") && compile("gcc", &["-shared", "-fPIC", "-DLIBRARY"], &library);
    made.then_some(library)
}

fn at_its_end(library: &Path, program: &[&str]) -> Output {
    let mut command = sandboxed("env");
    output(command.arg(format!("LD_PRELOAD={}", library.display())).args(program))
}

#[test]
fn java_leaves_the_stub_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = preloaded(dir.path()).filter(|_| has("java") && has("javac")) else {
        return;
    };
    let mut javac = Command::new("javac");
    if !compiled("Heap.java", javac.arg("-d").arg(dir.path()).arg(source("Heap.java"))) {
        return;
    }
    let classes = dir.path().to_str().unwrap();
    // The collectors lay out their heaps in ways of their own.
    for collector in ["-XX:+UseG1GC", "-XX:+UseSerialGC", "-XX:+UseZGC"] {
        let java = ["java", "-XX:+IgnoreUnrecognizedVMOptions", collector, "-cp", classes, "Heap"];
        let ended = at_its_end(&library, &java);
        assert!(stdout(&ended).starts_with("java 100\n"), "{collector}: {ended:?}");
        reached(collector, &ended, "");
    }
}

#[test]
fn v8_leaves_the_stub_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = preloaded(dir.path()).filter(|_| has("node")) else { return };
    // Memory of WebAssembly is where V8 reserves most.
    let script = "const m = new WebAssembly.Memory({initial: 10, maximum: 65536, shared: true});
        console.log('node', m.buffer.byteLength)";
    let ended = at_its_end(&library, &["node", "-e", script]);
    assert!(stdout(&ended).starts_with("node 655360\n"), "{ended:?}");
    reached("node", &ended, "");
}
