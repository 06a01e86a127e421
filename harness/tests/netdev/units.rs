//! The units of `dist/systemd`, run on each node of a cluster as their files say.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use crate::common::has;
use crate::common::stderr;
use crate::machine::Machine;
use crate::nodes::Fabric;
use crate::nodes::Nodes;
use crate::nodes::dist;
use crate::world::until;

/// What a manager does with processes, or with other units. A test of the files has systemd read these
/// (`systemd_takes_the_units`).
const MANAGERS: &[&str] = &[
    "Description",
    "Documentation",
    "Requires",
    "After",
    "Before",
    "WantedBy",
    "Also",
    "Restart",
    "RestartSec",
    "KillMode",
    "StartLimitIntervalSec",
    "TimeoutStartSec",
    "RemainAfterExit",
    "RuntimeDirectoryPreserve",
    "ProtectHome",
    "ProtectSystem",
    "ReadWritePaths",
    "ProtectClock",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "RestrictAddressFamilies",
    "SystemCallArchitectures",
    "LockPersonality",
    "MemoryDenyWriteExecute",
];
/// What is done here, as systemd.exec(5), systemd.service(5), systemd.socket(5) and systemd.unit(5) say.
const DONE: &[&str] = &[
    "Type",
    "ExecStart",
    "RuntimeDirectory",
    "RuntimeDirectoryMode",
    "LimitNOFILE",
    "CapabilityBoundingSet",
    "NoNewPrivileges",
    "PrivateNetwork",
    "ConditionPathIsDirectory",
    "ConditionDirectoryNotEmpty",
    "ListenStream",
    "SocketMode",
    "DirectoryMode",
    "PathChanged",
];

/// A unit's file.
struct Unit {
    name: String,
    settings: BTreeMap<String, String>,
}

/// A service that runs.
struct Service<'a> {
    machine: &'a Machine,
    child: Child,
}

impl Unit {
    fn read(name: &str) -> Self {
        let text = fs::read_to_string(dist(&format!("systemd/{name}"))).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
        let settings: BTreeMap<String, String> = lines
            .map(|line| line.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap())
            .collect();
        // A setting that nobody here knows would be left out without a word.
        for key in settings.keys() {
            assert!(MANAGERS.contains(&&**key) || DONE.contains(&&**key), "{name}: {key}");
        }
        Self { name: name.to_owned(), settings }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.get(key) == Some(value)
    }

    /// Whether the unit is started at all.
    fn conditions_hold(&self, machine: &Machine) -> bool {
        let files = |path: &str| fs::read_dir(machine.file(path));
        self.get("ConditionPathIsDirectory").is_none_or(|path| machine.file(path).is_dir())
            && self
                .get("ConditionDirectoryNotEmpty")
                .is_none_or(|path| files(path).is_ok_and(|mut all| all.next().is_some()))
    }

    /// `ExecStart` as it is written, behind programs that give the process what the unit says.
    fn command(&self, machine: &Machine, before: &[&str]) -> Command {
        if let Some(folder) = self.get("RuntimeDirectory") {
            let mode = self.get("RuntimeDirectoryMode").unwrap();
            machine.ok(&["install", "-d", "-m", mode, &format!("/run/{folder}")]);
        }
        let mut words: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        if let Some(files) = self.get("LimitNOFILE") {
            // As systemd does: as much as this process may give.
            let asked = ["prlimit", "--nofile", "--output", "HARD", "--noheadings", "--raw"];
            let most = machine.ok(&asked).parse().unwrap_or(u64::MAX);
            let files = files.parse().unwrap_or(u64::MAX).min(most);
            words.extend(["prlimit".to_owned(), format!("--nofile={files}")]);
        }
        if self.is("PrivateNetwork", "yes") {
            words.extend(["unshare", "--net"].map(str::to_owned));
        }
        words.push("setpriv".to_owned());
        if let Some(kept) = self.get("CapabilityBoundingSet") {
            let kept = kept.split(' ').map(|one| one.strip_prefix("CAP_").unwrap().to_lowercase());
            let kept: String = kept.map(|one| format!(",+{one}")).collect();
            words.push(format!("--bounding-set=-all{kept}"));
        }
        words.extend(self.is("NoNewPrivileges", "yes").then(|| "--no-new-privs".to_owned()));
        words.push("--".to_owned());
        words.extend(self.get("ExecStart").unwrap().split(' ').map(str::to_owned));
        machine.command(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A unit that ends by itself; whether its conditions held.
    fn run_once(&self, machine: &Machine) -> bool {
        assert!(self.is("Type", "oneshot"), "{}", self.name);
        if !self.conditions_hold(machine) {
            return false;
        }
        let output = self.command(machine, &[]).output().unwrap();
        assert!(output.status.success(), "{} of {}: {}", self.name, machine.name, stderr(&output));
        true
    }

    /// Starts a unit that stays, with the socket of another, and waits until it says that it is ready.
    fn start<'a>(&self, machine: &'a Machine, socket: Option<&Self>) -> Service<'a> {
        assert!(self.conditions_hold(machine));
        let listener = socket.map(|socket| {
            let path = socket.get("ListenStream").unwrap();
            let folder = Path::new(path).parent().unwrap().to_str().unwrap();
            machine.ok(&["install", "-d", "-m", socket.get("DirectoryMode").unwrap(), folder]);
            let listener = UnixListener::bind(machine.file(path)).unwrap();
            let mode = u32::from_str_radix(socket.get("SocketMode").unwrap(), 8).unwrap();
            fs::set_permissions(machine.file(path), fs::Permissions::from_mode(mode)).unwrap();
            listener
        });
        // Descriptor 3 is the first that sd_listen_fds(3) has; a shell puts the socket there.
        const SOCKET: &str = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
        let with_socket = ["sh", "-c", SOCKET, "sh"];
        let before = if socket.is_some() { &with_socket[..] } else { &[] };
        let mut command = self.command(machine, before);
        let said = machine.file("/run/notify");
        let notify = self.is("Type", "notify").then(|| {
            command.env("NOTIFY_SOCKET", "/run/notify");
            UnixDatagram::bind(&said).unwrap()
        });
        if let Some(listener) = listener {
            command.stdin(OwnedFd::from(listener));
        }
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut service = Service { machine, child };
        if let Some(notify) = notify {
            notify.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            until(&format!("{} of {}", self.name, machine.name), || {
                service.is_alive();
                let mut word = [0; 64];
                notify.recv(&mut word).is_ok_and(|length| word[..length].starts_with(b"READY=1"))
            });
            fs::remove_file(said).unwrap();
        }
        service
    }
}

impl Service<'_> {
    fn is_alive(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            let mut told = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            panic!("{}: {status}: {told}", self.machine.name);
        }
    }

    fn stop(mut self) {
        self.is_alive();
        let group = format!("-{}", self.child.id());
        Command::new("kill").args(["-s", "TERM", "--", &group]).status().unwrap();
        self.child.wait().unwrap();
    }
}

/// All that the units do from a machine's start to its end, on so many machines.
fn by_systemd(count: u8, fabric: Fabric) {
    let Some(nodes) = Nodes::new(count, fabric) else { return };
    if !has("setpriv") || !has("prlimit") {
        return;
    }
    let before = nodes.dumps();
    let machines = nodes.machines();
    let unit = |name: &str| Unit::read(&format!("verbgate-{name}"));
    let (gc, restore, cdi) =
        (unit("gc.service"), unit("netdev-restore.service"), unit("cdi.service"));
    let watched = unit("cdi.path").get("PathChanged").unwrap().to_owned();
    let [socket, agent] = [unit("agent.socket"), unit("agent.service")];
    let (stats, nri) = (unit("stats.service"), unit("nri.service"));
    for machine in &machines {
        assert!(gc.run_once(machine));
        // Nothing has been moved, and the folder of the journal is empty.
        assert!(!restore.run_once(machine));
        assert!(machine.file(&watched).is_dir());
        assert!(cdi.run_once(machine));
        let spec = machine.read("/run/cdi/verbgate.json");
        assert!(spec.contains("\"mlx5_0\"") && spec.contains("\"/usr/bin/verbgate\""), "{spec}");
        // A device that has gone is gone from the file once the unit has run again.
        fs::rename(machine.file("/sys/class/infiniband_verbs/uverbs1"), machine.file("/sys/gone"))
            .unwrap();
        assert!(spec.contains("\"mlx5_1\"") && cdi.run_once(machine));
        let spec = machine.read("/run/cdi/verbgate.json");
        assert!(spec.contains("\"mlx5_0\"") && !spec.contains("\"mlx5_1\""), "{spec}");
        machine.ok(&["mv", "/sys/gone", "/sys/class/infiniband_verbs/uverbs1"]);
    }
    // All machines' services at the same time: none is in another's way.
    let agents: Vec<_> = machines.iter().map(|one| agent.start(one, Some(&socket))).collect();
    let counted: Vec<_> = machines.iter().map(|one| stats.start(one, None)).collect();
    for (machine, mut service) in machines.iter().zip(counted) {
        let listens = stats.get("ExecStart").unwrap().split(' ').next_back().unwrap();
        let mut stream = None;
        until("the counters", || {
            service.is_alive();
            stream = UnixStream::connect(machine.file(listens)).ok();
            stream.is_some()
        });
        let mut stream = stream.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.contains("# TYPE verbgate_"), "{text}");
        service.stop();
    }
    for (machine, service) in machines.iter().zip(agents) {
        // Without an engine, the plug-in says what is missing, and systemd starts it again.
        let output = nri.command(machine, &[]).output().unwrap();
        let told = stderr(&output);
        assert!(!output.status.success() && told.contains("/var/run/nri/nri.sock"), "{told}");
        assert!(nri.is("Restart", "always"));
        service.stop();
    }
    // A node that was prepared, and goes down: the unit brings the NICs home.
    for machine in &machines {
        let told = machine.ok(&["verbgate", "prepare", "--role", &machine.name]);
        assert!(told.contains("NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"), "{told}");
        let links = machine.ok(&["ip", "-o", "link"]);
        assert!(!links.contains("rail0") && !links.contains("rail1"), "{links}");
    }
    for machine in &machines {
        assert!(restore.run_once(machine));
    }
    drop(machines);
    nodes.home_again(&before);
}

#[test]
fn the_units_serve_two_machines() {
    by_systemd(2, Fabric::Flat);
    by_systemd(2, Fabric::Routed);
}

#[test]
fn the_units_serve_sixteen_machines() {
    by_systemd(16, Fabric::Flat);
}
