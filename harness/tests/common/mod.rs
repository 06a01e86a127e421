//! Running the built `verbgate` from tests.

#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod bundle;
pub(crate) mod chart;
pub(crate) mod guest;

use std::process::Command;
use std::process::Output;
use std::process::Stdio;

/// A stand-in device: the kernel's null device under the name of an RDMA one.
pub(crate) const NULL_AS_UVERBS: &str = "uverbs9=/dev/null";

/// A stand-in for containerd, which merges nothing: it has its default runtime as long as the file names
/// none, as containerd 1.x does. What the real ones do is in `engines`.
pub(crate) const CONTAINERD_1: &str = r#"#!/bin/sh
case "$*" in
--version) echo "containerd example.org/containerd 1.6.20"; exit;;
"config default") file=/dev/null; echo 'version = 2';;
"--config "*) file=$2; if grep -q '"trouble"' "$file"; then echo "containerd: $file: trouble" >&2; exit 1; fi;;
esac
cat "$file"
grep -q 'runtimes' "$file" || cat <<'END'
[plugins.'io.containerd.grpc.v1.cri'.containerd]
default_runtime_name = 'runc'
[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
END
"#;

pub(crate) fn verbgate() -> &'static str {
    env!("CARGO_BIN_EXE_verbgate")
}

/// `verbgate run --device uverbs9=/dev/null -- ARGS`.
pub(crate) fn run(args: &[&str]) -> Command {
    let mut command = Command::new(verbgate());
    command.args(["run", "--device", NULL_AS_UVERBS, "--"]).args(args).stdin(Stdio::null());
    command
}

/// The same for a line of shell.
pub(crate) fn run_sh(script: &str) -> Command {
    run(&["sh", "-c", script])
}

pub(crate) fn output(command: &mut Command) -> Output {
    verbgate_wait::output(command)
}

pub(crate) fn code(command: &mut Command) -> i32 {
    let output = output(command);
    output.status.code().unwrap_or_else(|| panic!("{command:?}: {output:?}"))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

/// Whether this test may make nodes and mounts; says so when it may not.
pub(crate) fn is_root() -> bool {
    let id = output(Command::new("id").arg("-u"));
    let root = stdout(&id) == "0";
    if !root {
        eprintln!("SKIPPED: needs root, to make device nodes and mounts");
    }
    root
}

/// Whether a program of the system is there; says so when it is not.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success();
    if !found {
        eprintln!("SKIPPED: needs the program {program}");
    }
    found
}
