//! The pod of a container: the pod's name, and the control group that the pod's overhead counts in.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use verbgate_sys::Tgid;

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
/// Beginning of the name of a supervisor's control group, and the digits of the container's id after that.
const GROUP: &str = "verbgate-";
const DIGITS: usize = 12;
/// A group's file that takes and lists processes: cgroups(7).
const PROCESSES: &str = "cgroup.procs";
/// To write that moves the writing process.
const MYSELF: &[u8] = b"0";
/// How often, and after which time, an attempt is made to remove a group that a process is leaving.
const TRIES: u32 = 100;
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

/// A supervisor's control groups in those of a pod. The supervisor leaves them by descriptors of where the
/// supervisor was before, since a confined supervisor can open nothing.
#[derive(Debug)]
pub(crate) struct Groups {
    before: Vec<File>,
}

impl Groups {
    /// Moves this process into the pod's groups; `process` is one of the container's, which tells where these
    /// are. The kernel counts there the processor's time, and the memory that this process takes from now on. Writes the groups' names to `record` before each is made.
    ///
    /// # Errors
    /// A group that cannot be made, or not be joined.
    pub(crate) fn join(pod: &Pod, process: Tgid, id: &str, record: &Path) -> io::Result<Self> {
        let mut joined = Self { before: Vec::new() };
        match joined.add(pod, process, id, record) {
            Ok(()) => Ok(joined),
            Err(e) => {
                joined.leave();
                Err(e)
            }
        }
    }

    fn add(&mut self, pod: &Pod, process: Tgid, id: &str, record: &Path) -> io::Result<()> {
        let theirs = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
        let ours = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let name: String = id.chars().take(DIGITS).collect();
        let mut made = String::new();
        for (controllers, path) in lines(&theirs) {
            let mount = mount_of(&mounts, controllers);
            let here = lines(&ours).find(|(known, _)| *known == controllers);
            let (Some(mount), Some((_, here))) = (mount, here) else { continue };
            let group = Path::new(path).ancestors().find(|group| {
                group.file_name().is_some_and(|name| pod.has_group(&name.to_string_lossy()))
            });
            let Some(group) = group else { continue };
            let group = mount.at(group).join(format!("{GROUP}{name}"));
            let home = mount.at(Path::new(here)).join(PROCESSES);
            let home = File::options().write(true).open(home)?;
            made += &format!("{}\n", group.display());
            fs::write(record, &made)?;
            match fs::create_dir(&group) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
            fs::write(group.join(PROCESSES), MYSELF)?;
            self.before.push(home);
        }
        Ok(())
    }

    /// Moves this process back.
    pub(crate) fn leave(&self) {
        for mut file in &self.before {
            if let Err(e) = file.write_all(MYSELF) {
                log::warn!("cannot leave the pod's control group: {e}");
            }
        }
    }
}

/// Removes the groups of a record.
pub(crate) fn remove(record: &Path) {
    let Ok(text) = fs::read_to_string(record) else { return };
    for group in text.lines() {
        for _ in 0..TRIES {
            match fs::remove_dir(group) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
                // The kubelet removes a pod's groups, too.
                _ => break,
            }
        }
    }
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
