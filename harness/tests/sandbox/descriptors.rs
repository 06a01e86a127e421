//! Descriptors that `verbgate run` inherits: launchers hand them over, and some lead out of the
//! sandbox.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::FdFlags;

use crate::common;
use crate::common::NULL_AS_UVERBS;
use crate::common::has;
use crate::common::output;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// `$VERBGATE` is what starts a program in a sandbox.
fn bash(script: &str, dir: &Path) -> Command {
    let mut command = Command::new("bash");
    command
        .args(["-c", script])
        .env("VERBGATE", format!("{} run --device {NULL_AS_UVERBS}", verbgate()))
        .current_dir(dir)
        .stdin(Stdio::null());
    command
}

#[track_caller]
fn says(script: &str, dir: &Path, expected: &str) {
    let ended = output(&mut bash(script, dir));
    assert_eq!(stdout(&ended), expected, "{script}: {}", stderr(&ended));
}

/// Lets programs that are started from now on inherit a descriptor.
fn inheritable(fd: impl Into<OwnedFd>) -> OwnedFd {
    let fd = fd.into();
    rustix::io::fcntl_setfd(&fd, FdFlags::empty()).unwrap();
    fd
}

/// A line of bash in a sandbox, in which `$N` is the number of a descriptor.
fn inside(options: &[&str], fd: &OwnedFd, script: &str) -> Output {
    let mut command = Command::new(verbgate());
    command.args(["run", "--device", NULL_AS_UVERBS]).args(options).args(["--", "bash", "-c"]);
    output(command.arg(script).env("N", fd.as_raw_fd().to_string()).stdin(Stdio::null()))
}

#[test]
fn redirections_of_a_shell_reach_the_program() {
    if !has("bash") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in"), "from a file\n").unwrap();
    says("$VERBGATE -- cat /dev/fd/3 3<in", dir.path(), "from a file");
    says("$VERBGATE -- bash -c 'cat <&3' 3<in", dir.path(), "from a file");
    says("$VERBGATE -- cat <(echo from a program)", dir.path(), "from a program");
    says("$VERBGATE -- diff <(echo a) <(echo b) | head -1", dir.path(), "1c1");
    says("$VERBGATE -- bash -c 'echo out >&7' 7>out; cat out", dir.path(), "out");
}

/// As PMI's launchers do: a socket by its number.
#[test]
fn a_socket_reaches_the_program() {
    if !has("bash") {
        return;
    }
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let theirs = inheritable(theirs);
    let script = "read -r line <&$N; echo \"$line, said\" >&$N";
    ours.write_all(b"hello\n").unwrap();
    let ended = inside(&[], &theirs, script);
    assert!(ended.status.success(), "{ended:?}");
    drop(theirs);
    let mut answer = String::new();
    ours.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello, said\n");
}

/// The program takes systemd's sockets for its own: LISTEN_PID is its number.
#[test]
fn a_socket_of_systemds_is_the_programs() {
    if !has("bash") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let listener = inheritable(UnixListener::bind(dir.path().join("socket")).unwrap());
    let script = format!(
        "exec 3<&{n}; export LISTEN_FDS=1 LISTEN_PID=$$ LISTEN_PIDFDID=1
         exec $VERBGATE -- bash -c '[ $LISTEN_PID = $$ ] && echo mine; echo ${{LISTEN_PIDFDID-none}}
         readlink /proc/self/fd/$((LISTEN_FDS + 2)) | grep -o ^socket'",
        n = listener.as_raw_fd()
    );
    says(&script, dir.path(), "mine\nnone\nsocket");
    // Another's stay another's.
    says("LISTEN_PID=1 $VERBGATE -- bash -c 'echo $LISTEN_PID'", dir.path(), "1");
}

/// Nobody else holds what the program has closed: its peer sees the end while the program goes on.
#[test]
fn what_the_program_closes_is_closed() {
    if !has("bash") {
        return;
    }
    let (reader, writer) = io::pipe().unwrap();
    let writer = inheritable(OwnedFd::from(writer));
    let number = writer.as_raw_fd();
    let mut guest = Command::new(verbgate())
        .args(["run", "--device", NULL_AS_UVERBS, "--", "bash", "-c"])
        .arg(format!("echo last >&{number}; exec {number}>&-; read -r"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    drop(writer);
    // Whoever else holds the pipe keeps the reader waiting.
    let text = verbgate_wait::call("the end of the pipe", || io::read_to_string(reader));
    let is_alive = guest.try_wait().unwrap().is_none();
    drop(guest.stdin.take());
    guest.wait().unwrap();
    assert_eq!(text.unwrap(), "last\n");
    assert!(is_alive, "the program ended too early for this to prove anything");
}

#[test]
fn ways_out_are_closed() {
    if !has("bash") {
        return;
    }
    let open = |path: &str, flags| rustix::fs::open(path, flags, Mode::empty()).ok();
    for (path, flags) in [
        ("/", OFlags::RDONLY | OFlags::DIRECTORY),
        ("/", OFlags::PATH),
        ("/etc/passwd", OFlags::PATH),
        ("/proc/self/ns/mnt", OFlags::RDONLY),
        ("/proc/self/ns/net", OFlags::RDONLY),
        ("/proc/1/status", OFlags::RDONLY),
        ("/sys/kernel/mm/transparent_hugepage/enabled", OFlags::RDONLY),
        ("/dev/kmsg", OFlags::RDONLY),
    ] {
        // What this machine lacks, or the caller may not open.
        let Some(fd) = open(path, flags) else { continue };
        let fd = inheritable(fd);
        let ended = inside(&[], &fd, "[ -e /proc/self/fd/$N ] && echo open || echo closed");
        assert_eq!(stdout(&ended), "closed", "{path}: {}", stderr(&ended));
    }
    // And it is said, to who asks.
    let fd = inheritable(open("/", OFlags::RDONLY).unwrap());
    let mut command = Command::new(verbgate());
    command.args(["--log-level", "info", "run", "--device", NULL_AS_UVERBS, "--", "true"]);
    let text = stderr(&output(&mut command));
    let line = format!("does not inherit descriptor {}, which is a directory", fd.as_raw_fd());
    assert!(text.contains(&line) && text.contains("--preserve-fds"), "{text}");
}

/// What somebody insists on is passed on, whatever it is, and what is asked for must be there.
#[test]
fn descriptors_are_preserved_by_number() {
    if !has("bash") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in"), "x\n").unwrap();
    let script = "$VERBGATE --preserve-fds 2 -- bash -c 'stat -Lc %F /dev/fd/3 /dev/fd/4
        [ -e /dev/fd/5 ] || echo closed' 3</ 4<in 5</";
    says(script, dir.path(), "directory\nregular file\nclosed");
    let ended = output(&mut bash("exec 3<in 4<&-; $VERBGATE --preserve-fds 2 -- true", dir.path()));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(stderr(&ended).contains("descriptor 4 is not open"), "{ended:?}");
}

#[test]
fn an_rdma_device_is_not_preserved() {
    if !has("bash") || !common::is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("node");
    // The major number of uverbs; a minor that no device has cannot be opened.
    let made = Command::new("mknod").arg(&node).args(["c", "231", "192"]).status().unwrap();
    if !made.success() || File::open(&node).is_err() {
        eprintln!("SKIPPED: this machine has no RDMA device to be opened");
        return;
    }
    let ended = output(&mut bash("$VERBGATE --preserve-fds 1 -- true 3<node", dir.path()));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(stderr(&ended).contains("descriptor 3 is an RDMA device"), "{ended:?}");
}
