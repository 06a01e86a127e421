//! A container of the doctor's own: an engine starts it through the configured runtime, and it says what it sees.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::io::BufRead as _;
use std::io::BufReader;
use std::io::Read as _;
use std::io::Write as _;
use std::path::Path;
use std::process;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::resource::RLIM_INFINITY;
use nix::sys::resource::Resource;
use nix::sys::resource::getrlimit;
use serde::Deserialize;
use serde::Serialize;
use verbgate_host::output::print;
use verbgate_host::output::say;
use verbgate_host::signals::Signals;
use verbgate_oci::engine::Engine;
use verbgate_sysfs::RdmaDevice;
use verbgate_sysfs::collect;
use verbgate_sysfs::discover;

use super::preflight::Preflight;
use crate::check::Finding;
use crate::check::fail;
use crate::check::pass;
use crate::check::warn;
use crate::cli::SEEN;
use crate::engines;

/// A tar archive without files, of which the image is made: nothing is pulled or copied.
const EMPTY: [u8; 1024] = [0; 1024];
/// Folders of the host that the container has, so that this program finds its libraries there.
const FOLDERS: [&str; 3] = ["/usr", "/lib", "/lib64"];
/// This program in the container.
const PROGRAM: &str = "/verbgate";
/// Nodes of RDMA devices.
const NODES: &str = "/dev/infiniband";

/// What a container sees.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    /// Names of RDMA devices in `/sys`.
    devices: Vec<String>,
    /// Device nodes, and why a node cannot be opened.
    nodes: Vec<(String, Option<String>)>,
    /// Type of the file system at `/sys`.
    sys: String,
    /// Bytes that the program may lock.
    memlock: String,
}

/// Prints what this process sees, and waits for the end of its input: an engine may lose what a program prints that ends
/// at once.
pub(crate) fn seen() -> Result<u8, anyhow::Error> {
    let mut nodes = Vec::new();
    for entry in fs::read_dir(NODES).into_iter().flatten().flatten() {
        let opened = File::options().read(true).write(true).open(entry.path());
        let name = entry.path().display().to_string();
        nodes.push((name, opened.err().map(|e| e.to_string())));
    }
    nodes.sort();
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let at_sys = mounts.rfind(|fields| fields.get(1) == Some(&"/sys"));
    let memlock = match getrlimit(Resource::RLIMIT_MEMLOCK)? {
        (RLIM_INFINITY, _) => "unlimited".to_owned(),
        (soft, _) => format!("{soft} bytes"),
    };
    let seen = Seen {
        devices: discover::device_names(Path::new("/sys")).unwrap_or_default(),
        nodes,
        sys: at_sys
            .and_then(|fields| fields.get(2).map(|&kind| kind.to_owned()))
            .unwrap_or_default(),
        memlock,
    };
    print(&(serde_json::to_string(&seen)? + "\n"))?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(0)
}

/// Time between two looks at an engine's command and at signals.
const LOOK: Duration = Duration::from_millis(20);

/// An engine, and the image and container of this process there; both are gone when dropped. A signal ends the command that
/// runs.
struct Trial {
    engine: [&'static str; 3],
    name: String,
    held: Signals,
}

/// What a command said, and how it ended.
struct Ended {
    /// The first line.
    line: String,
    errors: String,
    status: ExitStatus,
}

impl Trial {
    fn command(&self, words: &[&str]) -> Command {
        let words = self.engine.iter().chain(words).filter(|word| !word.is_empty());
        let mut words = words.map(OsString::from);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Gives a command its input, or an open one until the command has said a line; and waits for the command's end or for
    /// a signal, however long the engine takes.
    fn ended(&self, words: &[&str], given: Option<&'static [u8]>) -> io::Result<Ended> {
        let mut child = self.command(words).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let errors = child.stderr.take();
        let line = thread::spawn(move || {
            let mut line = String::new();
            let held = match (input, given) {
                // Who reads no input says by its end why.
                (Some(mut input), Some(bytes)) => {
                    drop(input.write_all(bytes));
                    None
                }
                (input, _) => input,
            };
            let Some(mut output) = output.map(BufReader::new) else { return line };
            let read = output.read_line(&mut line);
            drop((held, read));
            // What else the command prints, it can print.
            let _ = io::copy(&mut output, &mut io::sink());
            line
        });
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            drop(errors.map(|mut errors| errors.read_to_end(&mut text)));
            String::from_utf8_lossy(&text).into_owned()
        });
        let status = loop {
            // A program that the command has left behind may hold what the threads read.
            if let Some(status) = child.try_wait()?
                && line.is_finished()
                && errors.is_finished()
            {
                break status;
            }
            if self.held.have_come() {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::other("a signal has ended the wait"));
            }
            thread::sleep(LOOK);
        };
        let (line, errors) = (line.join(), errors.join());
        Ok(Ended { line: line.unwrap_or_default(), errors: errors.unwrap_or_default(), status })
    }

    /// Makes the image.
    fn import(&self) -> Result<(), String> {
        let ended = self.ended(&["import", "-", &self.name], Some(&EMPTY));
        let ended = ended.map_err(|e| e.to_string())?;
        if ended.status.success() { Ok(()) } else { Err(said(&ended)) }
    }

    /// Runs the container with these devices.
    fn run(&self, runtime: &str, devices: &[RdmaDevice]) -> Result<Seen, String> {
        let own = env::current_exe().map_err(|e| e.to_string())?;
        let mut words =
            vec!["run".to_owned(), "--rm".into(), "--interactive".into(), "--network=none".into()];
        words.extend(["--pull=never".into(), format!("--name={}", self.container())]);
        // podman has this option before the command.
        let is_podman = self.engine.contains(&"podman");
        words.insert(usize::from(!is_podman), format!("--runtime={runtime}"));
        words.extend(devices.iter().map(|device| format!("--device={NODES}/{}", device.uverbs)));
        words.push(format!("--volume={}:{PROGRAM}:ro", own.display()));
        let folders = FOLDERS.iter().filter(|folder| Path::new(folder).is_dir());
        words.extend(folders.map(|folder| format!("--volume={folder}:{folder}:ro")));
        words.extend([self.name.clone(), PROGRAM.into(), SEEN.into()]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // The program ends with its input.
        let ended = self.ended(&words, None).map_err(|e| e.to_string())?;
        serde_json::from_str(&ended.line).map_err(|_| said(&ended))
    }

    fn container(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        for words in [["rm", "--force", self.container()], ["rmi", "--force", &self.name]] {
            // What was never made cannot be removed.
            let _ = self.ended(&words, Some(&[]));
        }
        self.held.release();
    }
}

/// The last line of what a command said.
fn said(ended: &Ended) -> String {
    let mut lines = ended.errors.lines().rev();
    let last = lines.find(|line| !line.trim().is_empty() && !line.contains("--help"));
    last.map_or_else(|| ended.status.to_string(), |line| line.trim().to_owned())
}

/// Has an engine start a container, if one was asked for, and removes all of it.
pub(super) fn start(facts: &Preflight<'_>) -> Option<Finding> {
    let (engine, command) = match facts.tried? {
        Engine::Podman => (Engine::Podman, ["podman", "", ""]),
        other => (other, ["docker", "--host", "unix:///var/run/docker.sock"]),
    };
    let runtime = match engines::name_of(engine) {
        Ok(runtime) => runtime,
        Err(finding) => return Some(finding),
    };
    let devices = match collect::devices(Path::new(collect::SYSFS_ROOT)) {
        Ok(devices) => devices,
        Err(e) => return Some(fail(e.to_string(), "verbgate features")),
    };
    say(&format!("waiting for {} to start a container; Ctrl-C ends that", command[0]));
    // What has been begun is removed.
    let trial = Trial {
        engine: command,
        name: format!("localhost/verbgate-doctor-{}", process::id()),
        held: Signals::hold(),
    };
    let seen = trial.import().and_then(|()| trial.run(&runtime, &devices));
    drop(trial);
    let names: Vec<&str> = devices.iter().map(|device| device.ibdev.as_str()).collect();
    Some(judged(&format!("{} with the runtime {runtime}", command[0]), &names, seen))
}

fn judged(by: &str, devices: &[&str], seen: Result<Seen, String>) -> Finding {
    const REMEDY: &str = "journalctl -t verbgate, and the checks above";
    let seen = match seen {
        Ok(seen) => seen,
        Err(why) => return fail(format!("{by} starts none: {why}"), REMEDY),
    };
    let nodes = seen.nodes.iter().map(|(name, why)| match why {
        None => format!("{name} opens"),
        Some(why) => format!("{name} does not open ({why})"),
    });
    let nodes = match seen.nodes.is_empty() {
        true => "no RDMA device".to_owned(),
        false => nodes.collect::<Vec<_>>().join(", "),
    };
    let found = format!(
        "{by} ran one, which saw: {nodes}; in /sys ({}) {}; memory to lock: {}",
        seen.sys,
        if seen.devices.is_empty() { "none".to_owned() } else { seen.devices.join(", ") },
        seen.memlock
    );
    let mut names = devices.to_vec();
    names.sort_unstable();
    let mut shown: Vec<&str> = seen.devices.iter().map(String::as_str).collect();
    shown.sort_unstable();
    let opens =
        seen.nodes.len() == devices.len() && seen.nodes.iter().all(|(_, why)| why.is_none());
    match (devices.is_empty(), opens, names == shown) {
        (true, ..) => {
            warn(found, "this host has no RDMA device to give to a container; see RDMA devices")
        }
        (false, false, _) => fail(found, REMEDY),
        (false, true, false) => warn(found, "/sys must show these devices: libraries look there"),
        (false, true, true) => pass(found),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;
    use nix::sys::signal::raise;

    use super::*;
    use crate::check::Verdict;

    /// An engine that never answers, but to what removes.
    #[test]
    fn a_signal_ends_the_wait_for_an_engine_and_all_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let removed = dir.path().join("removed");
        let script = r#"case $0 in rm*) echo "$0 $*" >>REMOVED ;; *) exec sleep 600 ;; esac"#
            .replace("REMOVED", removed.to_str().unwrap());
        let engine = ["sh", "-c", script.leak()];
        let trial = Trial { engine, name: "localhost/one".to_owned(), held: Signals::hold() };
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            raise(signal).unwrap();
            assert_eq!(trial.import().unwrap_err(), "a signal has ended the wait");
            raise(signal).unwrap();
            assert_eq!(trial.run("verbgate", &[]).unwrap_err(), "a signal has ended the wait");
        }
        drop(trial);
        let removed = fs::read_to_string(removed).unwrap();
        assert_eq!(removed, "rm --force one\nrmi --force localhost/one\n");
    }

    #[test]
    fn a_container_passes_that_opens_what_the_host_has_and_finds_it_in_sys() {
        let one = ["mlx5_0"];
        let of = |devices: &[&str], why: Option<&str>| Seen {
            devices: devices.iter().map(|name| (*name).to_owned()).collect(),
            nodes: vec![("/dev/infiniband/uverbs0".to_owned(), why.map(str::to_owned))],
            sys: "fuse".to_owned(),
            memlock: "65536 bytes".to_owned(),
        };
        for (devices, seen, verdict) in [
            (&one[..], Ok(of(&["mlx5_0"], None)), Verdict::Pass),
            (&one[..], Ok(of(&[], None)), Verdict::Warn),
            (&one[..], Ok(of(&["mlx5_0"], Some("denied"))), Verdict::Fail),
            (&one[..], Ok(Seen { nodes: Vec::new(), ..of(&["mlx5_0"], None) }), Verdict::Fail),
            (&one[..], Err("no such image".to_owned()), Verdict::Fail),
            (&[], Ok(Seen { nodes: Vec::new(), ..of(&[], None) }), Verdict::Warn),
        ] {
            let found = judged("docker with the runtime verbgate", devices, seen);
            assert_eq!(found.verdict, verdict, "{found:?}");
        }
    }
}
