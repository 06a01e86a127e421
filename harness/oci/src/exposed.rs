//! RDMA devices that a container would get raw: by the engine's list, by a mount of a node or of `/dev/infiniband`, or by
//! a rule of the device cgroup that names them. Each is taken as a wish for RDMA, or refused. A rule for all devices is no
//! wish: SECURITY.md says what that costs.
//!
//! A device is known by its number, and a directory by its inode: a container's author chooses destinations, and what a
//! volume holds.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs;
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;
use verbgate_sandbox::grant;
use verbgate_sandbox::grant::Host;
use verbgate_sandbox::grant::RDMA_CM;
use verbgate_sys::sandbox;
use verbgate_sys::sandbox::RDMA_DIR;
use verbgate_sys::sandbox::RdmaNumbers;
use verbgate_sysfs::collect;

use super::wish::ALL;
use super::wish::WishError;
use crate::device_cgroup::RULES;
use crate::device_cgroup::Rules;
use crate::device_cgroup::number;

/// The fields of `config.json`, as errors name them.
pub(super) const MOUNTS: &str = "mounts";
pub(super) const DEVICES: &str = "linux.devices";

/// A node that a container is shown, or may open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// A device's, by its name, or [`ALL`].
    Device(String),
    /// The connection manager's.
    Cm,
    /// A node that nobody supervises.
    Unsupervised(PathBuf),
    /// The same, where the engine's own rules open the node.
    Opened(PathBuf),
}

/// Nodes, and where each comes from.
pub(super) type Found = Vec<(Shown, &'static str)>;

/// Major and minor number.
pub(super) type Rdev = (u32, u32);

/// The host's RDMA devices.
pub(crate) struct HostNodes {
    /// Numbers that are RDMA's.
    pub(crate) numbers: RdmaNumbers,
    /// Devices that stand for RDMA devices, by their numbers.
    stand_ins: Vec<(Rdev, String)>,
    /// Nodes of the host's own devices, read when a container first shows one.
    nodes: OnceCell<Vec<(Rdev, String)>>,
    /// The directory of the host's nodes.
    dir: PathBuf,
    /// Mount points, and whether each is of this machine's own file systems.
    mounts: OnceCell<Vec<(PathBuf, bool)>>,
}

impl HostNodes {
    /// Looks at this host; `stand_in` are character devices that stand for RDMA devices, `uverbsN=PATH`.
    pub(crate) fn of(stand_in: &[OsString]) -> Self {
        // A stand-in that is not there is named when a container asks for it.
        let stand_ins = grant::resolve_all(stand_in, Host::real()).unwrap_or_default();
        Self {
            numbers: RdmaNumbers::known(),
            stand_ins: stand_ins.into_iter().map(|one| (one.rdev, one.name)).collect(),
            nodes: OnceCell::new(),
            dir: RDMA_DIR.into(),
            mounts: OnceCell::new(),
        }
    }

    /// The host's devices of verbs.
    fn nodes(&self) -> &[(Rdev, String)] {
        self.nodes.get_or_init(|| {
            let devices = collect::devices(Path::new(collect::SYSFS_ROOT)).unwrap_or_default();
            devices.into_iter().map(|one| ((one.dev.major, one.dev.minor), one.uverbs)).collect()
        })
    }

    pub(super) fn has_devices(&self) -> bool {
        !self.stand_ins.is_empty() || !self.nodes().is_empty()
    }

    /// The name of a device's number; none where the host has no such device.
    fn name(&self, number: Rdev) -> Option<&str> {
        if self.is_cm(number) {
            return Some(RDMA_CM);
        }
        let mut all = self.stand_ins.iter().chain(self.nodes());
        all.find(|(known, _)| *known == number).map(|(_, name)| name.as_str())
    }

    fn is_cm(&self, number: Rdev) -> bool {
        self.numbers.cm_number() == Some(number)
    }

    /// Whether this is the directory of the host's nodes, wherever it is mounted.
    fn is_dir(&self, meta: &Metadata) -> bool {
        fs::metadata(&self.dir).is_ok_and(|dir| (dir.dev(), dir.ino()) == (meta.dev(), meta.ino()))
    }

    /// Whether this is a directory that the directory of the host's nodes is below.
    fn is_above(&self, meta: &Metadata) -> bool {
        let is = |above: &Path| {
            fs::metadata(above)
                .is_ok_and(|above| (above.dev(), above.ino()) == (meta.dev(), meta.ino()))
        };
        self.dir.ancestors().skip(1).any(is)
    }

    /// Whether a file is on a file system of the host's own nodes, and in no volume.
    fn is_of_host(&self, meta: &Metadata) -> bool {
        let volumes = fs::metadata("/").map(|root| root.dev()).ok();
        let is = |dir: &Path| fs::metadata(dir).is_ok_and(|dir| dir.dev() == meta.dev());
        volumes != Some(meta.dev()) && [Path::new("/dev"), &self.dir].into_iter().any(is)
    }

    /// Whether a path is on a file system of a server, which may never answer; no node of the host's is there.
    fn is_elsewhere(&self, path: &Path) -> bool {
        let mounts = self.mounts.get_or_init(|| sandbox::own_points().unwrap_or_default());
        let above = mounts.iter().filter(|(point, _)| path.starts_with(point));
        // The last of several mounts on one point counts.
        above.max_by_key(|(point, _)| point.as_os_str().len()).is_some_and(|(_, is_own)| !is_own)
    }

    /// Nodes beside verbs that a container with devices keeps: those that the engine's rules open by their
    /// numbers, which no device plug-in does by the way.
    pub(crate) fn kept(&self, rules: &Rules) -> Vec<Rdev> {
        let numbers = rules.named().filter_map(|(major, minor)| Some((major, minor?)));
        // Beside a rule that opens all of them, runc can open no single one.
        let is_kept = |(major, _): &Rdev| {
            self.numbers.beside.contains(major) && !rules.open((*major, Some(u32::MAX)))
        };
        numbers.filter(is_kept).collect()
    }
}

/// The look at one container.
struct Look<'a> {
    host: &'a HostNodes,
    rules: Rules,
}

/// The nodes that a container is shown, or may open.
pub(super) fn found(config: &Value, host: &HostNodes) -> Result<Found, WishError> {
    let look = Look { host, rules: Rules::of(config) };
    let mut found = look.listed(config)?;
    found.extend(look.by_mounts(config)?);
    found.extend(look.by_rules());
    Ok(found)
}

impl Look<'_> {
    /// The node that is shown in a container at a path, if it is one of RDMA's.
    fn shown(
        &self,
        field: &'static str,
        path: &Path,
        number: Option<Rdev>,
    ) -> Result<Option<(Shown, &'static str)>, WishError> {
        let here = name_of(path);
        let numbers = &self.host.numbers;
        let found = match (here, number.and_then(|number| self.host.name(number))) {
            (None, _) if !number.is_some_and(|number| numbers.contains(number)) => return Ok(None),
            (Some(RDMA_CM), Some(RDMA_CM)) => Shown::Cm,
            (Some(here), Some(name)) if here == name => Shown::Device(name.to_owned()),
            (here, None)
                if number.is_some_and(|number| numbers.is_beside(number))
                    && !here.is_some_and(|here| here.starts_with("uverbs") || here == RDMA_CM) =>
            {
                self.beside(path.to_owned(), number)
            }
            (Some(_), name) => {
                let (path, name) = (path.to_owned(), name.map(str::to_owned));
                return Err(WishError::Disagrees { field, path, number, name });
            }
            (None, _) => return Err(WishError::OtherName { field, path: path.to_owned() }),
        };
        Ok(Some((found, field)))
    }

    fn beside(&self, path: PathBuf, number: Option<Rdev>) -> Shown {
        match number {
            Some((major, minor)) if self.rules.allow((major, Some(minor))) => Shown::Opened(path),
            _ => Shown::Unsupervised(path),
        }
    }

    /// The nodes that the engine lists.
    fn listed(&self, config: &Value) -> Result<Found, WishError> {
        let mut found = Vec::new();
        for device in list(config, "/linux/devices") {
            let text = |key| device.get(key).and_then(Value::as_str);
            let path = Path::new(text("path").unwrap_or_default());
            let is_char = matches!(text("type"), Some("c" | "u"));
            let number = number(device, "major").zip(number(device, "minor"));
            found.extend(self.shown(DEVICES, path, number.filter(|_| is_char))?);
        }
        Ok(found)
    }

    /// The nodes that the mounts of a container show.
    fn by_mounts(&self, config: &Value) -> Result<Found, WishError> {
        let mut found = Vec::new();
        for mount in list(config, "/mounts") {
            let text = |key| mount.get(key).and_then(Value::as_str).unwrap_or_default();
            let mut options = list(mount, "/options").filter_map(Value::as_str);
            let binds = text("type") == "bind" || options.any(|o| ["bind", "rbind"].contains(&o));
            let source = Path::new(text("source"));
            if !binds || self.host.is_elsewhere(source) {
                continue;
            }
            let Ok(source) = fs::canonicalize(source) else { continue };
            let Ok(meta) = fs::metadata(&source) else { continue };
            if meta.file_type().is_char_device() {
                found.extend(self.mounted(&source, &meta, Path::new(text("destination")))?);
            } else if self.host.is_dir(&meta) {
                found.extend(self.of_directory());
            } else if self.host.is_above(&meta) {
                // All of /dev, or of the host, shows what the rules open.
                found.extend(self.opened(|(major, minor)| self.rules.open((major, Some(minor)))));
            }
        }
        Ok(found)
    }

    /// A node that is mounted by itself.
    fn mounted(
        &self,
        source: &Path,
        meta: &Metadata,
        destination: &Path,
    ) -> Result<Option<(Shown, &'static str)>, WishError> {
        let device = meta.rdev();
        let number = (rustix::fs::major(device), rustix::fs::minor(device));
        let is_rdma = self.host.numbers.contains(number);
        if !self.host.is_of_host(meta) {
            let other = WishError::OtherName { field: MOUNTS, path: source.to_owned() };
            return if is_rdma { Err(other) } else { Ok(None) };
        }
        // Other devices may be called anything.
        if !is_rdma && self.host.name(number).is_none() {
            return Ok(None);
        }
        let path = if name_of(destination).is_some() { destination } else { source };
        self.shown(MOUNTS, path, Some(number))
    }

    /// The directory of all nodes shows all, unless rules name some. Where there is no device yet, a container that loads
    /// the driver has the directory.
    fn of_directory(&self) -> Found {
        if !self.host.has_devices() {
            return Vec::new();
        }
        let named = self.opened(|number| self.rules.names(number));
        if named.iter().any(|(one, _)| *one != Shown::Cm) {
            return named;
        }
        vec![(Shown::Device(ALL.to_owned()), MOUNTS), (Shown::Cm, MOUNTS)]
    }

    /// Some of the host's nodes; without a device, rdma_cm is of no use.
    fn opened(&self, is: impl Fn(Rdev) -> bool) -> Found {
        let opens = |(number, _): &&(Rdev, String)| is(*number);
        let nodes = self.host.nodes().iter().filter(opens);
        let mut found: Found =
            nodes.map(|(_, name)| (Shown::Device(name.clone()), MOUNTS)).collect();
        if self.host.numbers.cm_number().is_some_and(is) && !found.is_empty() {
            found.push((Shown::Cm, MOUNTS));
        }
        found
    }

    /// Devices that rules about RDMA's own numbers open: by a node of the image, or one that the container makes.
    fn by_rules(&self) -> Found {
        let (host, mut found) = (self.host, Vec::new());
        for (major, minor) in self.rules.named() {
            let Some(minor) = minor else {
                if host.numbers.majors.contains(&major) {
                    found.extend(self.of_major(major));
                }
                continue;
            };
            let number = (major, minor);
            found.extend(match host.name(number) {
                Some(RDMA_CM) => Some(Shown::Cm),
                Some(name) if host.numbers.contains(number) => Some(Shown::Device(name.to_owned())),
                // A device that comes later may get the number.
                None if host.numbers.contains(number) && !host.numbers.is_beside(number) => {
                    Some(Shown::Unsupervised(format!("(the node {major}:{minor})").into()))
                }
                _ => None,
            });
        }
        found.into_iter().map(|one| (one, RULES)).collect()
    }

    /// The devices of a major number that the rules open.
    fn of_major(&self, major: u32) -> Vec<Shown> {
        let nodes = self.host.nodes();
        let is_open = |(number, _): &&(Rdev, String)| {
            number.0 == major && self.rules.open((number.0, Some(number.1)))
        };
        let open: Vec<_> = nodes.iter().filter(is_open).collect();
        if open.len() == nodes.len() {
            return vec![Shown::Device(ALL.to_owned())];
        }
        open.into_iter().map(|(_, name)| Shown::Device(name.clone())).collect()
    }
}

/// The name of a node by its path.
fn name_of(path: &Path) -> Option<&str> {
    path.strip_prefix(RDMA_DIR).ok()?.to_str().filter(|name| !name.is_empty())
}

fn list<'a>(config: &'a Value, at: &str) -> impl Iterator<Item = &'a Value> {
    config.pointer(at).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A host with two devices and the connection manager, whose nodes would be in this directory; the null device
    /// stands for a third.
    pub(crate) fn host(dir: &Path) -> HostNodes {
        let nodes = [((231, 192), "uverbs0"), ((231, 195), "uverbs3")];
        let nodes = nodes.map(|(number, name)| (number, name.to_owned())).to_vec();
        HostNodes {
            numbers: RdmaNumbers { majors: vec![231], beside: vec![243], cm: Some(121) },
            stand_ins: vec![((1, 3), "uverbs7".to_owned())],
            nodes: nodes.into(),
            dir: dir.to_owned(),
            mounts: OnceCell::new(),
        }
    }

    fn mounts(dir: &Path, mount: &Value, rules: &Value) -> Result<Found, WishError> {
        let config = json!({"mounts": [mount], "linux": {"resources": {"devices": rules}}});
        look(&config, &host(dir)).by_mounts(&config)
    }

    fn look<'a>(config: &Value, host: &'a HostNodes) -> Look<'a> {
        Look { host, rules: Rules::of(config) }
    }

    fn device(name: &str) -> Shown {
        Shown::Device(name.to_owned())
    }

    fn bind(source: impl AsRef<Path>, destination: &str) -> Value {
        let source = source.as_ref();
        json!({"type": "bind", "source": source, "destination": destination, "options": ["rbind"]})
    }

    #[test]
    fn a_mount_of_the_nodes_is_a_wish_for_them() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("infiniband");
        let (link, empty) = (scratch.path().join("link"), scratch.path().join("empty"));
        fs::create_dir(&dir).unwrap();
        fs::create_dir(&empty).unwrap();
        fs::write(scratch.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        let deny = json!({"allow": false, "access": "rwm"});
        let all = vec![(device(ALL), MOUNTS), (Shown::Cm, MOUNTS)];
        let found = |mount: &Value| mounts(&dir, mount, &json!([deny]));
        assert_eq!(found(&bind(&dir, "/x")), Ok(all.clone()));
        assert_eq!(found(&bind(&link, "/dev/infiniband/")), Ok(all.clone()));
        let one = Ok(vec![(device("uverbs7"), MOUNTS)]);
        assert_eq!(found(&bind("/dev/null", "/dev/infiniband/uverbs7")), one);
        let error = found(&bind("/dev/null", "/dev/infiniband/uverbs3")).unwrap_err().to_string();
        assert!(error.contains("uverbs3") && error.contains("1:3, which is uverbs7"), "{error}");
        // Another file system; what shows no device, whatever it is called.
        // Mounts below one with `rbind` keep their devices.
        let mut closed = bind(&dir, "/dev/infiniband");
        closed["options"] = json!(["rbind", "nodev"]);
        assert_eq!(found(&closed), Ok(all));
        let tmpfs = json!({"type": "tmpfs", "source": "tmpfs", "destination": "/dev/infiniband"});
        let file = bind(scratch.path().join("file"), "/dev/infiniband/uverbs0");
        let volume = bind(&empty, "/dev/infiniband");
        for mount in [
            tmpfs,
            file,
            volume,
            bind("/usr", "/usr"),
            bind("/dev/zero", "/dev/infiniband/uverbs0"),
        ] {
            assert_eq!(
                mounts(&dir, &mount, &json!([{"allow": true, "access": "rwm"}])),
                Ok(vec![])
            );
        }
        // Rules that name devices decide about the directory, and all about /dev.
        let above = bind(scratch.path(), "/dev");
        assert_eq!(mounts(&dir, &above, &json!([deny])), Ok(vec![]));
        let named =
            |names: &[&str]| -> Found { names.iter().map(|name| (device(name), MOUNTS)).collect() };
        let every = json!([{"allow": true, "type": "a"}]);
        let with_cm = [named(&["uverbs0", "uverbs3"]), vec![(Shown::Cm, MOUNTS)]].concat();
        assert_eq!(mounts(&dir, &above, &every), Ok(with_cm));
        let one = json!([deny, {"allow": true, "type": "c", "major": 231, "minor": 195}]);
        for mount in [&above, &bind(&dir, "/dev/infiniband")] {
            assert_eq!(mounts(&dir, mount, &one), Ok(named(&["uverbs3"])));
        }
        // A host with the connection manager alone, as where drivers are installed.
        let config = json!({"mounts": [above], "linux": {"resources": {"devices": every}}});
        let bare = HostNodes { nodes: vec![].into(), ..host(&dir) };
        assert_eq!(look(&config, &bare).by_mounts(&config), Ok(vec![]));
    }

    /// A server of a volume that never answers keeps nobody else waiting: nothing there is looked at.
    #[test]
    fn a_volume_of_a_server_is_not_looked_at() {
        let scratch = tempfile::tempdir().unwrap();
        let mut nodes = host(scratch.path());
        let config = json!({"mounts": [bind(scratch.path(), "/dev/infiniband")]});
        assert!(!look(&config, &nodes).by_mounts(&config).unwrap().is_empty());
        let own = (PathBuf::from("/"), true);
        nodes.mounts = vec![own.clone(), (scratch.path().to_owned(), false)].into();
        assert_eq!(look(&config, &nodes).by_mounts(&config), Ok(vec![]));
        nodes.mounts = vec![own, (scratch.path().join("below"), false)].into();
        assert!(!look(&config, &nodes).by_mounts(&config).unwrap().is_empty());
    }

    #[test]
    fn a_rule_about_rdma_is_a_wish() {
        let nodes = host(Path::new("/nonexistent"));
        let all = |rules: &[Value]| {
            let deny = json!({"allow": false, "access": "rwm"});
            let rules: Vec<_> = [deny].iter().chain(rules).cloned().collect();
            let config = json!({"linux": {"resources": {"devices": rules}}});
            let found = look(&config, &nodes).by_rules();
            found.into_iter().map(|(shown, _)| shown).collect::<Vec<_>>()
        };
        let found = |rule: Value| all(&[rule]);
        let rule = |minor: Option<i64>, access: &str| json!({"allow": true, "type": "c", "major": 231, "minor": minor, "access": access});
        // rdma_cm has another number, and is not given.
        assert_eq!(found(rule(None, "rwm")), [device(ALL)]);
        assert_eq!(found(rule(Some(-1), "rw")), [device(ALL)]);
        assert_eq!(found(rule(Some(195), "rw")), [device("uverbs3")]);
        let mut taken = rule(None, "rwm");
        taken["allow"] = false.into();
        assert_eq!(all(&[rule(None, "rwm"), taken]), []);
        // A node of MAD is none of verbs, and of a device that is not there nothing may be opened.
        assert_eq!(found(rule(Some(0), "rw")), []);
        let later = Shown::Unsupervised("(the node 231:200)".into());
        assert_eq!(found(rule(Some(200), "rw")), [later]);
        assert_eq!(found(rule(Some(195), "m")), []);
        assert_eq!(found(json!({"allow": true, "access": "rwm"})), []);
        assert_eq!(found(json!({"allow": true, "type": "c", "major": 10, "minor": 229})), []);
        assert_eq!(
            found(json!({"allow": true, "type": "c", "major": 10, "minor": 121})),
            [Shown::Cm]
        );
        assert_eq!(found(json!({"allow": true, "type": "b", "major": 231, "minor": 192})), []);
    }

    #[test]
    fn a_listed_device_is_known_by_its_number() {
        let nodes = host(Path::new("/nonexistent"));
        let device = |path: &str, kind: &str, major: u32, minor: u32| {
            let device = json!({"path": path, "type": kind, "major": major, "minor": minor});
            let config = json!({"linux": {"devices": [device]}});
            look(&config, &nodes).listed(&config)
        };
        let uverbs0 = "/dev/infiniband/uverbs0";
        let shown = Shown::Device("uverbs0".to_owned());
        assert_eq!(device(uverbs0, "c", 231, 192), Ok(vec![(shown, DEVICES)]));
        for (kind, major, minor) in [
            ("c", 231, 195),
            ("c", 231, 193),
            ("c", 1, 3),
            ("c", 1, 5),
            ("b", 231, 192),
            ("p", 231, 192),
            ("c", 243, 0),
        ] {
            let error = device(uverbs0, kind, major, minor).unwrap_err();
            assert!(
                matches!(error, WishError::Disagrees { .. }),
                "{kind} {major}:{minor}: {error}"
            );
        }
        assert!(matches!(device("/dev/x", "c", 231, 192), Err(WishError::OtherName { .. })));
        assert_eq!(device("/dev/x", "c", 1, 3), Ok(vec![]));
    }
}
