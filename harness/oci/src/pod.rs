//! The pod of a container: the pod's name; and the control groups of a container's supervisor, in the pod's
//! or beside the container's, with a bound of their own on memory.

use std::ffi::OsStr;
use std::fs;
use std::fs::DirBuilder;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use verbgate_proxy::Memory;
use verbgate_sys::Tgid;
use verbgate_sys::foreign;
use verbgate_sys::foreign::Owner;
use verbgate_sys::resident;

/// Annotations by which containerd, and then CRI-O, name a pod to the runtime: namespace, name, uid, and the
/// container's name in the pod.
const KEYS: [[&str; 4]; 2] = [
    [
        "io.kubernetes.cri.sandbox-namespace",
        "io.kubernetes.cri.sandbox-name",
        "io.kubernetes.cri.sandbox-uid",
        "io.kubernetes.cri.container-name",
    ],
    [
        "io.kubernetes.pod.namespace",
        "io.kubernetes.pod.name",
        "io.kubernetes.pod.uid",
        "io.kubernetes.container.name",
    ],
];
/// The controllers of version 1 whose limits a pod's overhead is about. A supervisor needs no set of
/// processors of the pod's.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "cpuacct"];
/// Beginning of the name of a supervisor's control group, before the name of the container's directory, and
/// the most characters of both.
const GROUP: &str = "verbgate-";
const LONGEST: usize = 200;
/// Bytes of memory that a supervisor may take, with its helpers and with what the kernel holds for them:
/// a supervisor of few processes takes 7 MiB, and each object of verbs that it remembers some hundred bytes.
const MOST: u64 = 256 << 20;
/// From here on the kernel has a supervisor wait, so that one that grows is seen before it ends.
const HIGH: u64 = MOST / 4 * 3;
/// A group's files for that, the strict one first: of version 2, and of version 1.
const LIMITS: [(&str, &[(&str, u64)]); 2] = [
    ("", &[("memory.max", MOST), ("memory.high", HIGH)]),
    ("memory", &[("memory.limit_in_bytes", MOST)]),
];
/// A group's file that takes and lists processes: cgroups(7).
const PROCESSES: &str = "cgroup.procs";
/// A group's file of the controllers that the groups below have.
const BELOW: &str = "cgroup.subtree_control";
/// The record, in a container's directory, of the groups that were made.
const RECORD: &str = "groups";
/// The folder, in the root, of notes of groups that outlive their containers.
const HELD: &str = "held-groups";
/// SIGKILL's bit in masks of signals, signal(7).
const KILL: u64 = 1 << 8;
/// To write that moves the writing process.
const MYSELF: &[u8] = b"0";
/// How long the processes of a group that is removed may take to end, and how often the group is tried: the
/// keeper of NICs ends some time after the container, and later on a busy machine. Processes that are killed
/// already wait for a device or a file server, which the guest may have chosen: those take less of the engine's
/// time.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_FOR_KILLED: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// The pod and the name of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) container: String,
}

impl Pod {
    /// Reads the annotations of `config.json`; `None` for a container of no pod.
    pub(crate) fn of(config: &Value) -> Option<Self> {
        let annotations = config.get("annotations")?;
        let text = |key: &str| annotations.get(key)?.as_str().map(str::to_owned);
        KEYS.iter().find_map(|[namespace, name, uid, container]| {
            Some(Self {
                namespace: text(namespace)?,
                name: text(name)?,
                // The pause container has no name, and older engines tell no uid.
                uid: text(uid).unwrap_or_default(),
                container: text(container).unwrap_or_default(),
            })
        })
    }

    /// Whether a control group of this name is the pod's: kubelet's names end in the pod's uid, which systemd's
    /// have with other dashes.
    fn has_group(&self, name: &str) -> bool {
        let of = |uid: &str| name.trim_end_matches(".slice").ends_with(&format!("pod{uid}"));
        !self.uid.is_empty() && (of(&self.uid) || of(&self.uid.replace('-', "_")))
    }
}

/// A supervisor's control groups, beside the groups of its container or of the container's pod. The
/// supervisor leaves them by descriptors of where the supervisor was before, since a confined supervisor can
/// open nothing.
#[derive(Debug)]
pub(crate) struct Groups {
    before: Vec<File>,
    /// The supervisor's memory, where the kernel bounds that.
    pub(crate) memory: Option<Memory>,
}

impl Groups {
    /// Moves this process into groups of its own: in the pod's, or else beside the container's; `process` is
    /// one of the container's, which tells where these are. The kernel counts there the processor's time, and
    /// the memory that this process, and those that it starts, take from now on; their memory is bounded.
    /// Writes the groups' names to `record` before each is made.
    ///
    /// # Errors
    /// A group that cannot be made, or not be joined.
    pub(crate) fn join(pod: Option<&Pod>, process: Tgid, place: &Path) -> io::Result<Self> {
        let mut joined = Self { before: Vec::new(), memory: None };
        match joined.add(pod, process, place) {
            Ok(()) => Ok(joined),
            Err(e) => {
                joined.leave();
                Err(e)
            }
        }
    }

    fn add(&mut self, pod: Option<&Pod>, process: Tgid, place: &Path) -> io::Result<()> {
        let theirs = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
        let ours = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let name: String = format!("{GROUP}{name}").chars().take(LONGEST).collect();
        let mut made = String::new();
        for (controllers, path) in lines(&theirs) {
            let mount = mount_of(&mounts, controllers);
            let here = lines(&ours).find(|(known, _)| *known == controllers);
            let (Some(mount), Some((_, here))) = (mount, here) else { continue };
            let of_pod = |group: &&Path| {
                let name = group.file_name().map(|name| name.to_string_lossy());
                name.is_some_and(|name| pod.is_some_and(|pod| pod.has_group(&name)))
            };
            let group = Path::new(path).ancestors().find(of_pod).unwrap_or_else(|| beside(path));
            let group = mount.at(group).join(&name);
            let home = mount.at(Path::new(here)).join(PROCESSES);
            let home = File::options().write(true).open(home)?;
            made += &format!("{}\n", group.display());
            fs::write(place.join(RECORD), &made)?;
            match fs::create_dir(&group) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
            if bound(&group, &mount, controllers)? {
                self.memory = Memory::of(&group).ok();
            }
            fs::write(group.join(PROCESSES), MYSELF)?;
            self.before.push(home);
        }
        Ok(())
    }

    /// Moves this process back, and ends what it has started and does not need.
    pub(crate) fn leave(&self) {
        for mut file in &self.before {
            if let Err(e) = file.write_all(MYSELF) {
                log::warn!("cannot leave the supervisor's control group: {e}");
            }
        }
        resident::dismiss();
    }
}

/// The group above a container's. systemd's scopes are passed over: systemd ends what is left in a scope
/// when the container ends, and podman has the container in a group of the scope.
fn beside(group: &str) -> &Path {
    let is_scope = |group: &&Path| group.extension().is_some_and(|word| word == "scope");
    Path::new(group).ancestors().skip(1).find(|above| !is_scope(above)).unwrap_or(Path::new("/"))
}

/// Bounds the memory of a group that nobody is in; false where the hierarchy has no such controller.
fn bound(group: &Path, mount: &Hierarchy, controllers: &str) -> io::Result<bool> {
    let of = LIMITS.iter().find(|(one, _)| controllers.split(',').any(|known| known == *one));
    let Some((_, limits @ [first, ..])) = of else { return Ok(false) };
    if !group.join(first.0).exists() {
        // Whoever cannot have it is not bounded, which the caller says.
        if let Err(e) = mount.enable("memory", group) {
            log::debug!("{}: no controller memory: {e}", group.display());
        }
    }
    if !group.join(first.0).exists() {
        return Ok(false);
    }
    for (file, bytes) in *limits {
        fs::write(group.join(file), bytes.to_string())?;
    }
    Ok(true)
}

/// Removes the groups that were made for the supervisor of a container with this directory. Those that the
/// kernel still has processes in are noted below `root`.
pub(crate) fn remove(place: &Path, root: &Path) {
    let Ok(text) = foreign::read_text(&place.join(RECORD), Owner::Trusted) else { return };
    let mut held = String::new();
    let begun = Instant::now();
    let mut killed: Option<Instant> = None;
    for group in text.lines().filter(|group| is_group(group)) {
        while let Err(e) = fs::remove_dir(group) {
            // The kubelet removes a pod's groups, too.
            if e.kind() != io::ErrorKind::ResourceBusy {
                break;
            }
            let now = Instant::now();
            killed = are_killed(Path::new(group)).then(|| killed.unwrap_or(now));
            let is_held = killed.is_some_and(|since| now - since > PATIENCE_FOR_KILLED);
            if is_held || now - begun > PATIENCE {
                log::warn!(
                    "control group {group} still has processes; who starts or deletes a container after \
                     their end, or `verbgate gc`, removes the group"
                );
                held += &format!("{group}\n");
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
    if !held.is_empty()
        && let Err(e) = note(root, place.file_name().unwrap_or_default(), &held)
    {
        log::warn!("cannot note held control groups in {}: {e}", root.join(HELD).display());
    }
}

/// Whether a path is that of a group that Verbgate could have made.
fn is_group(path: &str) -> bool {
    let path = Path::new(path);
    let name = path.file_name().map(|name| name.to_string_lossy().starts_with(GROUP));
    name == Some(true) && path.join(PROCESSES).exists()
}

/// Notes groups that are held, by the name of their container's directory.
fn note(root: &Path, name: &OsStr, held: &str) -> io::Result<()> {
    let notes = root.join(HELD);
    DirBuilder::new().mode(0o700).recursive(true).create(&notes)?;
    File::options().append(true).create(true).open(notes.join(name))?.write_all(held.as_bytes())
}

/// Removes groups that were held when their containers were deleted, unless they still are.
pub(crate) fn remove_held(root: &Path) {
    for note in fs::read_dir(root.join(HELD)).into_iter().flatten().flatten() {
        let Ok(text) = foreign::read_text(&note.path(), Owner::Trusted) else { continue };
        let is_held = |group: &str| {
            let removed = is_group(group).then(|| fs::remove_dir(group));
            removed.is_some_and(|one| one.is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy))
        };
        // All are tried.
        if text.lines().filter(|group| is_held(group)).count() == 0 {
            let _ = fs::remove_file(note.path());
        }
    }
}

/// Whether there are processes in a group, and each was sent SIGKILL, which the kernel acts on when the
/// process leaves the kernel.
fn are_killed(group: &Path) -> bool {
    let Ok(processes) = fs::read_to_string(group.join(PROCESSES)) else { return false };
    !processes.is_empty()
        && processes.lines().all(|process| {
            let status = fs::read_to_string(format!("/proc/{process}/status"));
            status.is_ok_and(|status| is_killed(&status))
        })
}

/// Whether SIGKILL is pending, by proc_pid_status(5): one of the kernel's masks has the signal's bit.
fn is_killed(status: &str) -> bool {
    let masks = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")));
    let mut masks = masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    masks.any(|mask| mask & KILL != 0)
}

/// The controllers and the path of each line of /proc/PID/cgroup that matters; none is version 2.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let fields = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    fields.filter(|(controllers, _)| {
        controllers.is_empty() || controllers.split(',').any(|one| CONTROLLERS.contains(&one))
    })
}

/// A mounted hierarchy: where, and which part.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Hierarchy {
    pub(crate) at: PathBuf,
    root: PathBuf,
}

impl Hierarchy {
    /// A group's folder.
    pub(crate) fn at(&self, group: &Path) -> PathBuf {
        let below = group.strip_prefix(&self.root).unwrap_or(group);
        self.at.join(below.strip_prefix("/").unwrap_or(below))
    }

    /// Gives a group of version 2 a controller, if the groups above can have it: cgroups(7).
    ///
    /// # Errors
    /// The kernel's: a group above has processes of its own, or the kernel has no such controller.
    pub(crate) fn enable(&self, controller: &str, group: &Path) -> io::Result<()> {
        // From the root on: a group has a controller only if the group above has it.
        let above: Vec<&Path> =
            group.ancestors().skip(1).take_while(|above| above.starts_with(&self.at)).collect();
        above.iter().rev().try_for_each(|one| fs::write(one.join(BELOW), format!("+{controller}")))
    }
}

/// Where the hierarchy with these controllers is mounted, by proc_pid_mountinfo(5).
pub(crate) fn mount_of(mounts: &str, controllers: &str) -> Option<Hierarchy> {
    let wanted: Vec<&str> = controllers.split(',').filter(|one| !one.is_empty()).collect();
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, at) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1)?);
        let is_it = match kind {
            "cgroup2" => wanted.is_empty(),
            "cgroup" => {
                !wanted.is_empty()
                    && wanted.iter().all(|one| options.split(',').any(|option| option == *one))
            }
            _ => false,
        };
        is_it.then(|| Hierarchy { at: at.into(), root: root.into() })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "1b2c-77";

    fn pod() -> Pod {
        let text = |text: &str| text.to_owned();
        Pod { namespace: text("ml"), name: text("rank-0"), uid: text(UID), container: text("main") }
    }

    #[test]
    fn both_engines_name_the_pod() {
        for [namespace, name, uid, container] in KEYS {
            let config = json!({"annotations": {
                namespace: "ml", name: "rank-0", uid: UID, container: "main",
            }});
            assert_eq!(Pod::of(&config), Some(pod()));
        }
        assert_eq!(Pod::of(&json!({"annotations": {"a": "b"}})), None);
        let pause = json!({"annotations": {KEYS[0][0]: "ml", KEYS[0][1]: "rank-0"}});
        assert_eq!(Pod::of(&pause).unwrap().container, "");
    }

    #[test]
    fn the_pods_group_is_known_by_its_uid() {
        for name in ["pod1b2c-77", "kubepods-burstable-pod1b2c_77.slice"] {
            assert!(pod().has_group(name), "{name}");
        }
        for name in ["pod1b2c-778", "kubepods", "cri-containerd-1b2c-77.scope", "1b2c-77"] {
            assert!(!pod().has_group(name), "{name}");
        }
        let unknown = Pod { uid: String::new(), ..pod() };
        assert!(!unknown.has_group("pod") && !unknown.has_group("kubepods-pod.slice"));
    }

    #[test]
    fn a_supervisors_group_is_beside_the_containers_and_in_no_scope() {
        let of = |path: &'static str| beside(path).to_str().unwrap();
        assert_eq!(of("/docker/0123"), "/docker");
        assert_eq!(of("/system.slice/docker-0123.scope"), "/system.slice");
        assert_eq!(of("/machine.slice/libpod-0123.scope/container"), "/machine.slice");
        assert_eq!((of("/0123"), of("/")), ("/", "/"));
    }

    #[test]
    fn a_killed_process_is_known_by_its_pending_signals() {
        let of = |thread, all| format!("Name:\tx\nSigPnd:\t{thread:016x}\nShdPnd:\t{all:016x}\n");
        assert!(is_killed(&of(0x100, 0)) && is_killed(&of(0, 0x4100)));
        assert!(!is_killed(&of(0x4000, 0x80)) && !is_killed(""));
    }

    #[test]
    fn a_hierarchy_without_memory_bounds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mount = Hierarchy { at: dir.path().to_owned(), root: "/".into() };
        let group = dir.path().join("group");
        fs::create_dir(&group).unwrap();
        assert!(!bound(&group, &mount, "cpu,cpuacct").unwrap());
        assert!(!bound(&group, &mount, "").unwrap());
        fs::write(group.join("memory.max"), "max").unwrap();
        fs::write(group.join("memory.high"), "max").unwrap();
        assert!(bound(&group, &mount, "").unwrap());
        let text = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(
            (text("memory.max"), text("memory.high")),
            ("268435456".into(), "201326592".into())
        );
    }

    #[test]
    fn a_group_that_is_held_is_removed_when_nobody_holds_it() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let Some(mount) = mount_of(&mounts, "memory").or_else(|| mount_of(&mounts, "")) else {
            return println!("SKIPPED: needs control groups");
        };
        let group = mount.at.join(format!("verbgate-test-{}", std::process::id()));
        if let Err(e) = fs::create_dir(&group) {
            return println!("SKIPPED: needs a control group of its own: {e}");
        }
        let mut held = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(group.join(PROCESSES), held.id().to_string()).unwrap();
        let root = tempfile::tempdir().unwrap();
        note(root.path(), OsStr::new("c1"), &format!("{}\n", group.display())).unwrap();
        remove_held(root.path());
        let notes = root.path().join(HELD).join("c1");
        assert!(group.exists() && notes.exists());
        held.kill().unwrap();
        held.wait().unwrap();
        remove_held(root.path());
        assert!(!group.exists() && !notes.exists());
    }

    #[test]
    fn hierarchies_are_found_where_they_are_mounted() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 25 0:27 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 25 0:28 / /sys/fs/cgroup/unified rw shared:1 - cgroup2 cgroup2 rw\n";
        let memory = mount_of(mounts, "memory").unwrap();
        assert_eq!(memory.at(Path::new("/a/b")), Path::new("/sys/fs/cgroup/memory/a/b"));
        let cpu = mount_of(mounts, "cpu,cpuacct").unwrap();
        assert_eq!(cpu.at(Path::new("/docker/x/pod")), Path::new("/sys/fs/cgroup/cpu/pod"));
        assert_eq!(mount_of(mounts, "").unwrap().at, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(mount_of(mounts, "pids"), None);
        let text = "9:name=systemd:/x\n4:memory:/a\n3:cpu,cpuacct:/b\n2:pids:/c\n0::/d\n";
        let found: Vec<_> = lines(text).collect();
        assert_eq!(found, [("memory", "/a"), ("cpu,cpuacct", "/b"), ("", "/d")]);
    }
}
