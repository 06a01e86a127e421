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
use verbgate_sysfs::collect;

use super::wish::ALL;
use super::wish::WishError;

/// The fields of `config.json`, as errors name them.
pub(super) const MOUNTS: &str = "mounts";
pub(super) const RULES: &str = "linux.resources.devices";
pub(super) const DEVICES: &str = "linux.devices";

/// Names of nodes, or [`ALL`], and where each comes from.
pub(super) type Found = Vec<(String, &'static str)>;

/// Major and minor number.
pub(super) type Rdev = (u32, u32);

/// The host's RDMA devices.
pub(crate) struct HostNodes {
    /// Numbers that are RDMA's ([`sandbox::rdma_numbers`]).
    pub(crate) numbers: Vec<(u32, Option<u32>)>,
    /// Devices that stand for RDMA devices, by their numbers.
    stand_ins: Vec<(Rdev, String)>,
    /// Nodes of the host's own devices, read when a container first shows one.
    nodes: OnceCell<Vec<(Rdev, String)>>,
    /// The directory of the host's nodes.
    dir: PathBuf,
}

impl HostNodes {
    /// Looks at this host; `stand_in` are character devices that stand for RDMA devices, `uverbsN=PATH`.
    pub(crate) fn of(stand_in: &[OsString]) -> Self {
        // A stand-in that is not there is named when a container asks for it.
        let stand_ins = grant::resolve_all(stand_in, Host::real()).unwrap_or_default();
        Self {
            numbers: sandbox::rdma_numbers(),
            stand_ins: stand_ins.into_iter().map(|one| (one.rdev, one.name)).collect(),
            nodes: OnceCell::new(),
            dir: RDMA_DIR.into(),
        }
    }

    fn nodes(&self) -> &[(Rdev, String)] {
        self.nodes.get_or_init(|| {
            let devices = collect::devices(Path::new(collect::SYSFS_ROOT)).unwrap_or_default();
            let nodes = devices.into_iter().map(|one| ((one.dev.major, one.dev.minor), one.uverbs));
            let cm = self.numbers.iter().filter_map(|(major, minor)| Some((*major, (*minor)?)));
            nodes.chain(cm.map(|number| (number, RDMA_CM.to_owned()))).collect()
        })
    }

    fn has_devices(&self) -> bool {
        self.nodes().iter().any(|(_, name)| name != RDMA_CM)
    }

    /// Whether a number is RDMA's.
    fn is_rdma(&self, (major, minor): Rdev) -> bool {
        self.numbers.iter().any(|(m, n)| *m == major && n.is_none_or(|n| n == minor))
    }

    /// The name of a number's node; none where Verbgate supervises no such node, or the host has none.
    fn name(&self, number: Rdev) -> Option<&str> {
        let mut all = self.stand_ins.iter().chain(self.nodes());
        all.find(|(known, _)| *known == number).map(|(_, name)| name.as_str())
    }

    /// Whether this is the directory of the host's nodes, wherever it is mounted.
    fn is_dir(&self, meta: &Metadata) -> bool {
        fs::metadata(&self.dir).is_ok_and(|dir| (dir.dev(), dir.ino()) == (meta.dev(), meta.ino()))
    }

    /// Whether a file is on a file system of the host's own nodes, and in no volume.
    fn is_of_host(&self, meta: &Metadata) -> bool {
        [Path::new("/dev"), &self.dir]
            .iter()
            .any(|dir| fs::metadata(dir).is_ok_and(|dir| dir.dev() == meta.dev()))
    }

    /// The name of a device that is shown in a container at this path, if it is one of RDMA's.
    fn shown(
        &self,
        field: &'static str,
        path: &Path,
        number: Option<Rdev>,
    ) -> Result<Option<String>, WishError> {
        let here = name_of(path);
        let is_rdma = number.is_some_and(|number| self.is_rdma(number));
        if here.is_none() && !is_rdma {
            return Ok(None);
        }
        match (here, number.and_then(|number| self.name(number))) {
            (Some(here), Some(name)) if here == name => Ok(Some(here)),
            // Verbgate supervises no node of this kind, as the caller says.
            (Some(here), None) if is_rdma && !here.starts_with("uverbs") && here != RDMA_CM => {
                Ok(Some(here))
            }
            (Some(_), name) => Err(WishError::Disagrees {
                field,
                path: path.to_owned(),
                number,
                name: name.map(str::to_owned),
            }),
            (None, _) => Err(WishError::OtherName { field, path: path.to_owned() }),
        }
    }
}

/// The devices that a container is shown, or may open.
pub(super) fn found(config: &Value, host: &HostNodes) -> Result<Found, WishError> {
    let mut found = listed(config, host)?;
    found.extend(by_mounts(config, host)?);
    found.extend(by_rules(config, host));
    Ok(found)
}

/// The devices that the engine lists.
fn listed(config: &Value, host: &HostNodes) -> Result<Found, WishError> {
    let mut found = Vec::new();
    for device in list(config, "/linux/devices") {
        let text = |key| device.get(key).and_then(Value::as_str);
        let path = Path::new(text("path").unwrap_or_default());
        let is_char = matches!(text("type"), Some("c" | "u"));
        let number = number(device, "major").zip(number(device, "minor")).filter(|_| is_char);
        found.extend(host.shown(DEVICES, path, number)?.map(|name| (name, DEVICES)));
    }
    Ok(found)
}

/// The devices that the mounts of a container show.
fn by_mounts(config: &Value, host: &HostNodes) -> Result<Found, WishError> {
    let mut found = Vec::new();
    for mount in list(config, "/mounts") {
        let text = |key| mount.get(key).and_then(Value::as_str).unwrap_or_default();
        let options: Vec<&str> = mount
            .get("options")
            .and_then(Value::as_array)
            .map(|all| all.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let binds = text("type") == "bind" || options.iter().any(|o| ["bind", "rbind"].contains(o));
        // Nodes on a mount of this kind cannot be opened: ours in a file that was rewritten.
        if !binds || options.contains(&"nodev") {
            continue;
        }
        let source = fs::canonicalize(text("source")).unwrap_or_else(|_| text("source").into());
        let Ok(meta) = fs::metadata(&source) else { continue };
        if meta.file_type().is_char_device() {
            let device = meta.rdev();
            let number = (rustix::fs::major(device), rustix::fs::minor(device));
            let destination = Path::new(text("destination"));
            if !host.is_of_host(&meta) {
                if host.is_rdma(number) {
                    return Err(WishError::OtherName { field: MOUNTS, path: source });
                }
                continue;
            }
            // Other devices may be called anything.
            if !host.is_rdma(number) && host.name(number).is_none() {
                continue;
            }
            let path = if name_of(destination).is_some() { destination } else { &source };
            found.extend(host.shown(MOUNTS, path, Some(number))?.map(|name| (name, MOUNTS)));
        } else if host.is_dir(&meta) {
            found.push((ALL.to_owned(), MOUNTS));
        } else if host.dir.starts_with(&source) {
            // All of /dev, or of the host, shows what the rules open. Without a device, rdma_cm is of no use.
            let nodes = host.nodes().iter().filter(|_| host.has_devices());
            let open = nodes.filter(|((major, minor), _)| may_open(config, *major, Some(*minor)));
            found.extend(open.map(|(_, name)| (name.clone(), MOUNTS)));
        }
    }
    Ok(found)
}

/// The name of a node by its path.
fn name_of(path: &Path) -> Option<String> {
    let name = path.strip_prefix(RDMA_DIR).ok()?.to_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// What rules about RDMA's own numbers let a container open, whose nodes are not listed.
fn by_rules(config: &Value, host: &HostNodes) -> Found {
    let mut found = Vec::new();
    for rule in list(config, "/linux/resources/devices") {
        let number = |key| number(rule, key);
        let Some(major) = number("major") else { continue };
        // Of the connection manager alone, the minor is among those of others.
        let is_ours = host.numbers.iter().any(|(m, n)| *m == major && n.is_none());
        if !is_ours || !lets_open(rule) || !may_open_any(config, host) {
            continue;
        }
        let listed = list(config, "/linux/devices").any(|device| {
            self::number(device, "major") == Some(major)
                && self::number(device, "minor") == number("minor")
        });
        match number("minor") {
            None => found.push((ALL.to_owned(), RULES)),
            Some(_) if listed => {}
            Some(minor) => {
                let name = host
                    .name((major, minor))
                    .map_or_else(|| format!("(the node {major}:{minor})"), str::to_owned);
                found.push((name, RULES));
            }
        }
    }
    found
}

/// Whether the device cgroup lets any of RDMA's devices be read or written.
fn may_open_any(config: &Value, host: &HostNodes) -> bool {
    host.numbers.iter().any(|(major, minor)| may_open(config, *major, *minor))
}

/// Whether the device cgroup lets a device be read or written, or any of this major number: of rules that contradict
/// each other the last counts.
fn may_open(config: &Value, major: u32, minor: Option<u32>) -> bool {
    let mut open = false;
    for rule in list(config, "/linux/resources/devices") {
        let kind = rule.get("type").and_then(Value::as_str).unwrap_or("a");
        let about = number(rule, "major").is_none_or(|m| m == major)
            && number(rule, "minor").is_none_or(|n| minor.is_none_or(|minor| n == minor));
        if !matches!(kind, "a" | "c" | "u" | "") || !about {
            continue;
        }
        let allows = rule.get("allow").and_then(Value::as_bool).unwrap_or(false);
        // That one of several may not be opened says nothing of the others.
        let part = !allows && minor.is_none() && number(rule, "minor").is_some();
        if allows && lets_open(rule) {
            open = true;
        } else if !allows && !part {
            open = false;
        }
    }
    open
}

/// Whether a rule allows more than to make the node.
fn lets_open(rule: &Value) -> bool {
    let access = rule.get("access").and_then(Value::as_str).unwrap_or("rwm");
    let allows = rule.get("allow").and_then(Value::as_bool).unwrap_or(false);
    allows && (access.is_empty() || access.contains(['r', 'w']))
}

fn list<'a>(config: &'a Value, at: &str) -> impl Iterator<Item = &'a Value> {
    config.pointer(at).and_then(Value::as_array).into_iter().flatten()
}

/// A number; wildcards are negative, or missing.
fn number(value: &Value, key: &str) -> Option<u32> {
    value.get(key).and_then(Value::as_i64).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A host with two devices and the connection manager, whose nodes would be in this directory; the null device
    /// stands for a third.
    pub(crate) fn host(dir: &Path) -> HostNodes {
        let nodes = [((231, 192), "uverbs0"), ((231, 195), "uverbs3"), ((10, 121), RDMA_CM)];
        let nodes = nodes.map(|(number, name)| (number, name.to_owned())).to_vec();
        HostNodes {
            numbers: vec![(231, None), (10, Some(121))],
            stand_ins: vec![((1, 3), "uverbs7".to_owned())],
            nodes: nodes.into(),
            dir: dir.to_owned(),
        }
    }

    fn mounts(dir: &Path, mount: &Value, rules: &Value) -> Result<Found, WishError> {
        let config = json!({"mounts": [mount], "linux": {"resources": {"devices": rules}}});
        by_mounts(&config, &host(dir))
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
        let none = json!([]);
        let all = vec![(ALL.to_owned(), MOUNTS)];
        let found = |mount: &Value| mounts(&dir, mount, &none);
        assert_eq!(found(&bind(&dir, "/x")), Ok(all.clone()));
        assert_eq!(found(&bind(&link, "/dev/infiniband/")), Ok(all.clone()));
        let one = Ok(vec![("uverbs7".to_owned(), MOUNTS)]);
        assert_eq!(found(&bind("/dev/null", "/dev/infiniband/uverbs7")), one);
        let error = found(&bind("/dev/null", "/dev/infiniband/uverbs3")).unwrap_err().to_string();
        assert!(error.contains("uverbs3") && error.contains("1:3, which is uverbs7"), "{error}");
        // Ours, in a file that was rewritten; another file system; what shows no device, whatever it is called.
        let mut ours = bind(&dir, "/dev/infiniband");
        ours["options"] = json!(["bind", "nodev"]);
        let tmpfs = json!({"type": "tmpfs", "source": "tmpfs", "destination": "/dev/infiniband"});
        let file = bind(scratch.path().join("file"), "/dev/infiniband/uverbs0");
        let volume = bind(&empty, "/dev/infiniband");
        for mount in [
            ours,
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
        // All of /dev matters where its devices can be opened.
        let deny = json!([{"allow": false, "access": "rwm"}]);
        let above = bind(scratch.path(), "/dev");
        assert_eq!(mounts(&dir, &above, &deny), Ok(vec![]));
        let named =
            |names: &[&str]| Ok(names.iter().map(|name| (String::from(*name), MOUNTS)).collect());
        let every = json!([{"allow": true, "type": "a"}]);
        assert_eq!(mounts(&dir, &above, &every), named(&["uverbs0", "uverbs3", RDMA_CM]));
        let one = json!([{"allow": true, "type": "c", "major": 231, "minor": 195}]);
        assert_eq!(mounts(&dir, &above, &one), named(&["uverbs3"]));
        // A host with the connection manager alone, as where drivers are installed.
        let config = json!({"mounts": [above], "linux": {"resources": {"devices": every}}});
        let bare = HostNodes { nodes: vec![((10, 121), RDMA_CM.to_owned())].into(), ..host(&dir) };
        assert_eq!(by_mounts(&config, &bare), Ok(vec![]));
    }

    #[test]
    fn a_rule_about_rdma_is_a_wish() {
        let nodes = host(Path::new("/nonexistent"));
        let found = |rule: Value| {
            let deny = json!({"allow": false, "access": "rwm"});
            by_rules(&json!({"linux": {"resources": {"devices": [deny, rule]}}}), &nodes)
        };
        let rule = |minor: Option<i64>, access: &str| json!({"allow": true, "type": "c", "major": 231, "minor": minor, "access": access});
        assert_eq!(found(rule(None, "rwm")), [(ALL.to_owned(), RULES)]);
        assert_eq!(found(rule(Some(-1), "rw")), [(ALL.to_owned(), RULES)]);
        assert_eq!(found(rule(Some(195), "rw")), [("uverbs3".to_owned(), RULES)]);
        // A node of MAD is none of verbs.
        assert_eq!(found(rule(Some(0), "rw")), [("(the node 231:0)".to_owned(), RULES)]);
        assert_eq!(found(rule(Some(195), "m")), []);
        assert_eq!(found(json!({"allow": true, "access": "rwm"})), []);
        assert_eq!(found(json!({"allow": true, "type": "c", "major": 10, "minor": 229})), []);
        // Listed beside it, as engines do.
        let config = json!({"linux": {
            "devices": [{"path": "/dev/infiniband/uverbs0", "type": "c", "major": 231, "minor": 192}],
            "resources": {"devices": [rule(Some(192), "rwm")]},
        }});
        assert_eq!(by_rules(&config, &nodes), []);
    }

    #[test]
    fn a_listed_device_is_known_by_its_number() {
        let nodes = host(Path::new("/nonexistent"));
        let device = |path: &str, kind: &str, major: u32, minor: u32| {
            let device = json!({"path": path, "type": kind, "major": major, "minor": minor});
            listed(&json!({"linux": {"devices": [device]}}), &nodes)
        };
        let uverbs0 = "/dev/infiniband/uverbs0";
        assert_eq!(device(uverbs0, "c", 231, 192), Ok(vec![("uverbs0".to_owned(), DEVICES)]));
        for (kind, major, minor) in [
            ("c", 231, 195),
            ("c", 231, 193),
            ("c", 1, 3),
            ("c", 1, 5),
            ("b", 231, 192),
            ("p", 231, 192),
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
