//! `verbgate doctor`'s checks of container engines: whether each knows the runtime, by its configuration and by
//! what its socket answers, and what containers then get.

mod locked;

use std::env;
use std::fs;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::Error;
use serde_json::Value;
use verbgate_oci::cdi;
use verbgate_oci::engine;
use verbgate_oci::engine::Engine;
use verbgate_sys::Tid;
use verbgate_sys::process;

use crate::check;
use crate::check::Finding;
use crate::check::fail;
use crate::check::pass;
use crate::check::skipped;
use crate::check::warn;
use crate::doctor::preflight::Preflight;

/// Where engines look for CDI specifications, and what the package and the documentation call ours.
const CDI_FILES: [&str; 2] = ["/run/cdi/verbgate.json", "/etc/cdi/verbgate.json"];
/// Time for an engine to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Daemons whose limits containers inherit.
const DAEMONS: [&str; 3] = ["dockerd", "containerd", "crio"];

/// An engine, as it is looked for.
struct Known {
    engine: Engine,
    program: &'static str,
    socket: &'static str,
    configure: &'static str,
    restart: &'static str,
}

const ENGINES: [Known; 5] = [
    Known {
        engine: Engine::Docker,
        program: "dockerd",
        socket: "/var/run/docker.sock",
        configure: "verbgate runtime configure --runtime=docker --cdi && systemctl restart docker",
        restart: "systemctl restart docker",
    },
    Known {
        engine: Engine::Containerd,
        program: "containerd",
        socket: "/run/containerd/containerd.sock",
        configure: "for pods: verbgate runtime configure --runtime=containerd --cdi && systemctl restart \
                    containerd (ctr needs none: ctr run --runc-binary /usr/bin/verbgate-oci-runc)",
        restart: "journalctl -u containerd says why; to take verbgate's change back: verbgate runtime \
                  configure --runtime=containerd --undo && systemctl restart containerd",
    },
    Known {
        engine: Engine::Podman,
        program: "podman",
        socket: "",
        configure: "verbgate runtime configure --runtime=podman",
        restart: "",
    },
    Known {
        engine: Engine::Crio,
        program: "crio",
        socket: "/run/crio/crio.sock",
        configure: "verbgate runtime configure --runtime=crio && systemctl restart crio",
        restart: "systemctl restart crio",
    },
    Known {
        engine: Engine::Nvidia,
        program: "nvidia-container-runtime",
        socket: "",
        configure: "verbgate runtime configure --runtime=nvidia",
        restart: "",
    },
];

/// A finding where this host has no engine.
pub(crate) fn none(facts: &Preflight<'_>) -> Option<Finding> {
    let found = facts.engine.is_some()
        || ENGINES.iter().any(|one| one.engine != Engine::Nvidia && is_there(one));
    (!found).then(|| {
        facts.asked(warn(
            "none of Docker, containerd, podman and CRI-O",
            "containers can be named by PID or network namespace only",
        ))
    })
}

/// Whether an engine knows the runtime, if this host has the engine, or the user has named the engine. NVIDIA's runtime can
/// come before Verbgate with each engine.
pub(crate) fn look(facts: &Preflight<'_>, engine: Engine) -> Result<Vec<Finding>, Error> {
    let is_named = facts.engine == Some(engine);
    let is_open = facts.engine.is_none() || engine == Engine::Nvidia;
    let is_wanted = |one: &&Known| one.engine == engine && (is_named || (is_open && is_there(one)));
    let found = ENGINES.iter().filter(is_wanted).map(|one| Ok(facts.asked(of_engine(one)?)));
    found.collect()
}

fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn is_there(one: &Known) -> bool {
    let is_toolkit = one.engine == Engine::Nvidia && !engine::files(one.engine).is_empty();
    program(one.program).is_some()
        || is_toolkit
        || (!one.socket.is_empty() && Path::new(one.socket).exists())
}

/// Whether an engine knows the runtime: by its file, and by what it says itself.
fn of_engine(one: &Known) -> Result<Finding, Error> {
    let configured = match engine::configured(one.engine) {
        Ok(configured) => configured,
        Err(e) if check::is_denied(&e) => return Err(e),
        Err(e) => return Ok(fail(format!("{e:#}"), one.configure)),
    };
    if one.engine == Engine::Containerd
        && let Some(why) = cri()
    {
        return Ok(fail(why, one.restart));
    }
    if !configured && one.engine == Engine::Nvidia {
        const FOUND: &str = "the runtime nvidia gives containers raw RDMA devices if their image asks for that \
                             (NVIDIA_MOFED=enabled)";
        return Ok(warn(FOUND, one.configure));
    }
    if !configured {
        return Ok(warn("does not know the runtime verbgate", one.configure));
    }
    if one.engine == Engine::Nvidia {
        return Ok(pass("calls verbgate, after the toolkit's own changes of a container"));
    }
    if one.socket.is_empty() {
        return Ok(podman(one));
    }
    Ok(match UnixStream::connect(one.socket) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            skipped(format!("is configured; this user may not ask {}", one.socket))
        }
        Err(_) => pass("will know the runtime verbgate; the engine is not running"),
        Ok(_) => match one.engine {
            Engine::Docker => docker(one, info(one.socket)),
            Engine::Crio => crio(one, ask(one.socket, "/config")),
            _ => match changed_since_start(one) {
                Some(true) => {
                    let found = "is configured, and has not been restarted since the change";
                    warn(found, one.configure)
                }
                _ => pass("knows the runtime verbgate"),
            },
        },
    })
}

/// Whether an engine's file has changed since the engine's process began; `None` where that cannot be told.
fn changed_since_start(one: &Known) -> Option<bool> {
    let files = engine::files(one.engine).into_iter();
    let changed =
        files.filter_map(|file| fs::metadata(file).and_then(|meta| meta.modified()).ok()).max()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let boot = SystemTime::now().checked_sub(Duration::try_from_secs_f64(uptime).ok()?)?;
    let programs = [one.program];
    let began = processes(&programs).filter_map(|(_, pid)| {
        let pid = pid.file_name()?.to_str()?.parse().ok()?;
        process::started(Tid(pid)).ok()
    });
    // In hundredths of a second, on every processor that Linux runs on: proc_pid_stat(5).
    let began = boot.checked_add(Duration::from_millis(began.max()? * 10))?;
    Some(changed > began)
}

/// The processes of these names, and their folders in /proc.
fn processes(names: &[&'static str]) -> impl Iterator<Item = (&'static str, PathBuf)> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    all.filter_map(|pid| {
        let name = fs::read_to_string(pid.join("comm")).ok()?;
        Some((*names.iter().find(|known| **known == name.trim())?, pid))
    })
}

/// What a running Docker says of its runtimes.
fn docker(one: &Known, info: io::Result<Value>) -> Finding {
    let info = match info {
        Ok(info) => info,
        Err(e) => {
            return warn(format!("{} does not answer: {e}", one.socket), one.restart);
        }
    };
    let version = info.get("ServerVersion").and_then(Value::as_str).unwrap_or("?");
    match of_docker(&info) {
        Some(name) => pass(format!("{version} knows the runtime {name}")),
        None => {
            let found = format!("{version} is configured, and does not know the runtime yet");
            warn(found, one.restart)
        }
    }
}

/// The name that a running Docker has for a runtime of ours.
fn of_docker(info: &Value) -> Option<&str> {
    let ours =
        |runtime: &Value| runtime.get("path").and_then(Value::as_str).is_some_and(engine::is_ours);
    let mut runtimes = info.get("Runtimes")?.as_object()?.iter();
    runtimes.find(|(_, runtime)| ours(runtime)).map(|(name, _)| name.as_str())
}

/// The name by which a container asks an engine for a runtime of ours; else why there is none.
pub(crate) fn name_of(engine: Engine) -> Result<String, Finding> {
    let one = ENGINES.iter().find(|one| one.engine == engine);
    let one = one.ok_or_else(|| fail("the engine is unknown", "name another engine"))?;
    let name = match engine {
        Engine::Docker => match info(one.socket) {
            Ok(info) => of_docker(&info).map(str::to_owned),
            Err(e) => {
                return Err(fail(format!("{} does not answer: {e}", one.socket), one.restart));
            }
        },
        _ => engine::names(engine).into_iter().next(),
    };
    name.ok_or_else(|| fail("the engine does not know the runtime verbgate", one.configure))
}

/// What a running CRI-O says of its runtimes: its configuration, as TOML.
fn crio(one: &Known, config: io::Result<String>) -> Finding {
    let read = |text: String| toml::from_str::<toml::Table>(&text).map_err(io::Error::other);
    let config = match config.and_then(read) {
        Ok(config) => config,
        Err(e) => {
            return warn(format!("{} does not answer: {e}", one.socket), one.restart);
        }
    };
    let all = config.get("crio").and_then(|all| all.get("runtime")?.get("runtimes")?.as_table());
    let ours = |runtime: &toml::Value| {
        runtime.get("runtime_path").and_then(toml::Value::as_str).is_some_and(engine::is_ours)
    };
    match all.into_iter().flatten().find(|(_, runtime)| ours(runtime)) {
        Some((name, _)) => pass(format!("knows the runtime {name}")),
        None => warn("is configured, and does not know the runtime yet", one.restart),
    }
}

/// Whether podman finds a runtime of ours, by the name that the file has for it.
fn podman(one: &Known) -> Finding {
    let names = engine::names(one.engine);
    let name = names.first().map_or("verbgate", String::as_str);
    let words = ["--runtime", name, "info", "--format", "{{.Host.OCIRuntime.Path}}"];
    let output = program(one.program).map(|podman| Command::new(podman).args(words).output());
    let output = match output {
        // Another user's podman has runtimes of its own, but the same file.
        None => return pass(format!("knows the runtime {name}")),
        Some(Err(e)) => return fail(format!("cannot run podman: {e}"), one.configure),
        Some(Ok(output)) => output,
    };
    let (path, why) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() && engine::is_ours(path.trim()) {
        return pass(format!("finds the runtime {name}: {}", path.trim()));
    }
    let why = why.lines().last().unwrap_or_default();
    let found =
        format!("is configured, and does not find the runtime {name}: {} {why}", path.trim());
    fail(found, one.configure)
}

/// `GET /info` of Docker's Engine API.
fn info(socket: &str) -> io::Result<Value> {
    Ok(serde_json::from_str(&ask(socket, "/info")?)?)
}

/// The body of an answer to `GET`.
fn ask(socket: &str, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // By version 1.0 of HTTP the answer is one piece.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: engine\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(body.to_owned())
}

/// Why a running containerd serves no CRI, if it serves none; by the program that comes with it.
fn cri() -> Option<String> {
    let output = Command::new(program("ctr")?)
        .args(["--connect-timeout=5s", "--timeout=5s", "plugins", "ls"])
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    broken_cri(&String::from_utf8_lossy(&output.stdout))
}

/// The same, of the list of `ctr plugins ls`: kind, name, platforms, and what became of the plug-in.
fn broken_cri(plugins: &str) -> Option<String> {
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let cri = plugins.lines().map(fields).find(|line| {
        // Up to 1.7 and from 2.0 on.
        let is = |kind: &str| line.first().is_some_and(|first| first == kind);
        is("io.containerd.grpc.v1") && line.get(1).is_some_and(|name| name == "cri")
    });
    match cri?.last()?.as_str() {
        "ok" => None,
        other => Some(format!("the CRI plug-in is not up ({other}): no pod can be started")),
    }
}

/// Whether engines that read CDI specifications know the devices of now.
pub(crate) fn described(facts: &Preflight<'_>) -> Option<Finding> {
    let is_asked = !facts.devices.is_empty()
        && ENGINES.iter().any(|one| one.engine != Engine::Nvidia && is_there(one));
    is_asked.then(|| described_by(CDI_FILES.map(PathBuf::from).as_slice()))
}

fn described_by(files: &[PathBuf]) -> Finding {
    const REFRESH: &str = "systemctl enable --now verbgate-cdi.path verbgate-cdi.service; or by hand: verbgate cdi refresh";
    let read = |file: &PathBuf| Some((file.clone(), fs::read_to_string(file).ok()?));
    let found: Vec<(PathBuf, String)> = files.iter().filter_map(read).collect();
    let now = match cdi::current() {
        Ok(now) => now.unwrap_or_default(),
        Err(e) => return warn(format!("{e:#}"), REFRESH),
    };
    if found.is_empty() {
        return warn("no specification: --device verbgate.org/rdma=... is unknown", REFRESH);
    }
    match found.iter().find(|(_, text)| *text != now) {
        None => pass("the specification describes the devices of now"),
        Some((file, _)) => {
            let found = format!("{} describes other devices, or another verbgate", file.display());
            warn(found, "verbgate cdi refresh --output FILE; a file that is not wanted: rm")
        }
    }
}

/// The view of `/sys` that containers get, which Verbgate mounts from outside: a seccomp profile has no part in that.
/// Nothing where the configuration cannot be read.
pub(crate) fn own_sysfs(facts: &Preflight<'_>) -> Option<Finding> {
    let config = facts.config.as_ref().ok()?.as_ref();
    let named = config.and_then(|config| config.value("sysfs"));
    Some(view(named, Path::new("/dev/fuse").exists()))
}

fn view(named: Option<&str>, fuse: bool) -> Finding {
    match named {
        Some("host") => {
            warn("the host's, by the configuration file", "sysfs = \"virtual\" in that file")
        }
        _ if !fuse => fail("no /dev/fuse: no container with RDMA is created", "modprobe fuse"),
        _ => pass("their own, under every seccomp profile"),
    }
}

/// How much memory containers may lock, and so register.
pub(crate) fn locked_memory() -> Vec<Finding> {
    const REMEDY: &str = "LimitMEMLOCK=infinity in the engine's unit (systemctl edit ENGINE), default-ulimits in daemon.json, \
         default_ulimits in containers.conf, or --ulimit memlock=-1; with too little, registering memory fails with ENOMEM";
    let check = |(by, limit): (String, String)| match limit.as_str() {
        locked::UNLIMITED => pass(format!("unlimited under {by}")),
        _ => warn(format!("{limit} bytes under {by}"), REMEDY),
    };
    let found = locked::found(processes(&DAEMONS), program("podman").is_some());
    found.into_iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::Verdict;

    #[test]
    fn a_cri_that_is_down_is_told() {
        let of = |state: &str| {
            broken_cri(&format!(
                "TYPE ID PLATFORMS STATUS\nio.containerd.internal.v1 cri - skip\n\
                 io.containerd.grpc.v1 cri linux/amd64 {state}\n"
            ))
        };
        assert_eq!(of("ok"), None);
        assert!(of("error").unwrap().contains("(error)"));
        // A containerd that has no such plug-in at all, such as that of Docker Inc.
        assert_eq!(broken_cri("TYPE ID PLATFORMS STATUS\n"), None);
    }

    #[test]
    fn a_docker_that_was_not_restarted_is_told() {
        let of = |runtimes: Value| docker(&ENGINES[0], Ok(json!({"Runtimes": runtimes})));
        let known = of(json!({"runc": {"path": "runc"}, "rdma": {"path": "/usr/bin/verbgate"}}));
        assert_eq!((known.verdict, &*known.remedy), (Verdict::Pass, ""));
        assert!(known.found.contains("rdma"), "{}", known.found);
        let unknown = of(json!({"runc": {"path": "runc"}}));
        assert_eq!(
            (unknown.verdict, &*unknown.remedy),
            (Verdict::Warn, "systemctl restart docker")
        );
        let silent = docker(&ENGINES[0], Err(io::ErrorKind::TimedOut.into()));
        assert_eq!(silent.verdict, Verdict::Warn);
    }

    /// By a stand-in for CRI-O's socket, which is in no suite of Debian.
    #[test]
    fn a_cri_o_that_was_not_restarted_is_told() {
        let one = &ENGINES[3];
        let of = |runtimes: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("crio.sock");
            let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            let body = format!("[crio.runtime]\nlog_level = \"info\"\n{runtimes}");
            let served = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let len = stream.read(&mut request).unwrap();
                assert!(request[..len].starts_with(b"GET /config HTTP/1.0\r\n"));
                write!(stream, "HTTP/1.0 200 OK\r\nContent-Type: application/toml\r\n\r\n{body}")
                    .unwrap();
            });
            let check = crio(one, ask(path.to_str().unwrap(), "/config"));
            served.join().unwrap();
            check
        };
        let known =
            of("[crio.runtime.runtimes.rdma]\nruntime_path = \"/usr/bin/verbgate-oci-crun\"\n");
        assert!(known.verdict == Verdict::Pass && known.found.contains("rdma"), "{}", known.found);
        let unknown = of("[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\"\n");
        assert_eq!((unknown.verdict, &*unknown.remedy), (Verdict::Warn, "systemctl restart crio"));
        assert_eq!(of("nonsense").verdict, Verdict::Warn);
        assert_eq!(crio(one, ask("/no/such.sock", "/config")).verdict, Verdict::Warn);
    }

    #[test]
    fn the_hosts_sys_is_told() {
        for (named, fuse, verdict) in [
            (Some("host"), true, Verdict::Warn),
            (Some("virtual"), true, Verdict::Pass),
            (None, false, Verdict::Fail),
        ] {
            assert_eq!(view(named, fuse).verdict, verdict, "{named:?}");
        }
    }

    #[test]
    fn a_specification_of_other_devices_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("verbgate.json");
        assert!(described_by(std::slice::from_ref(&file)).found.contains("no specification"));
        fs::write(&file, "{}").unwrap();
        assert_eq!(described_by(&[file]).verdict, Verdict::Warn);
    }
}
