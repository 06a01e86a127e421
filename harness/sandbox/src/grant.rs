//! The devices that a guest is granted: from `--device` to nodes.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use verbgate_sys::sandbox::DeviceNode;
use verbgate_sys::sandbox::RDMA_DIR;
use verbgate_sysfs::DevNumber;
use verbgate_sysfs::Identity;
use verbgate_sysfs::RdmaDevice;
use verbgate_sysfs::collect;

/// The name of the connection manager's node.
pub const RDMA_CM: &str = "rdma_cm";

/// A granted device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Granted {
    /// Name of the node in the sandbox, such as `uverbs0`.
    pub name: String,
    /// Major and minor number.
    pub rdev: (u32, u32),
    /// The node on the host.
    pub source: PathBuf,
    /// Identity of the device at the time of the grant; afterwards the kernel gives the number to
    /// other devices.
    #[serde(default = "unrecorded")]
    pub identity: Identity,
    /// Ports that requests may name, from 1; all when there are none.
    #[serde(default)]
    pub ports: Option<Vec<u32>>,
}

/// Identity of no device, for listing containers that an older version has made.
fn unrecorded() -> Identity {
    Identity::unknown(DevNumber { major: u32::MAX, minor: u32::MAX })
}

impl From<&Granted> for DeviceNode {
    fn from(granted: &Granted) -> Self {
        let Granted { name, rdev, source, .. } = granted.clone();
        Self { name, rdev, source }
    }
}

/// Word that grants every device of the host.
const ALL: &str = "all";

/// The host to look at; directories in the tests.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Directory of sysfs.
    pub sysfs: &'a Path,
    /// Directory of the device nodes.
    pub nodes: &'a Path,
}

impl Host<'static> {
    /// The machine that this process runs on.
    pub fn real() -> Self {
        Self { sysfs: Path::new(collect::SYSFS_ROOT), nodes: Path::new(RDMA_DIR) }
    }
}

/// Reasons why a device cannot be granted.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says all")]
pub enum GrantError {
    #[error("no RDMA device is called {name:?}; {}", existing(.have))]
    NoSuchDevice { name: String, have: Vec<String> },
    #[error(
        "this host has {} RDMA devices: {}; say which one with --device NAME (repeat the option \
         for more), or grant all devices with --device {ALL}",
        .have.len(), .have.join(", ")
    )]
    Which { have: Vec<String> },
    #[error("{name:?} does not name a device node; write uverbsN=PATH, as in uverbs9=/dev/null")]
    NodeName { name: String },
    #[error("{} is not a character device; give the path of a character device", .path.display())]
    NotADevice { path: PathBuf },
    #[error(
        "{} is device {found}, but {uverbs} is {expected}; have udev make the node again",
        .path.display()
    )]
    WrongNode { path: PathBuf, uverbs: String, found: DevNumber, expected: DevNumber },
    #[error(
        "{device} is not for tenant {tenant:?} ({place}), who has the devices {}; ask for one of \
         these, or add the device to the tenant", .devices.join(", ")
    )]
    NotOfTenant { device: String, tenant: String, place: String, devices: Vec<String> },
    #[error("two devices have the name {name}; give one device another number")]
    Twice { name: String },
    #[error("the device {name} was removed, renamed or replaced in this moment; try again")]
    Changed { name: String },
    #[error("cannot tell which device {} is: {source}; is sysfs mounted at /sys?", .path.display())]
    Identity { path: PathBuf, r#source: io::Error },
    #[error("cannot open {}: {source}{}", .path.display(), open_hint(.source))]
    Open { path: PathBuf, r#source: io::Error },
    #[error(transparent)]
    Sysfs(#[from] collect::Error),
}

fn existing(have: &[String]) -> String {
    if have.is_empty() {
        return "this host has none (is the driver loaded, and ib_uverbs? see: rdma link)"
            .to_owned();
    }
    format!("this host has {}", have.join(", "))
}

fn open_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "; verbgate needs read and write permission on the node (mode or group), and a device \
             cgroup that allows the node"
        }
        io::ErrorKind::NotFound => {
            "; the node is missing: load ib_uverbs, or have udev or mknod make the node"
        }
        _ => "",
    }
}

/// Resolves the options. Without options, resolves to the host's only device: a program gets more
/// than one device only if somebody says so.
pub fn resolve(options: &[OsString], host: Host<'_>) -> Result<Vec<Granted>, GrantError> {
    if options.is_empty() {
        let usable = all(host)?;
        if usable.len() > 1 {
            return Err(GrantError::Which {
                have: usable.into_iter().map(|(name, _)| name).collect(),
            });
        }
        return Ok(usable.into_iter().map(|(_, node)| node).collect());
    }
    // Read once, and only if a name needs it.
    let mut known: Option<Vec<RdmaDevice>> = None;
    let mut granted: Vec<Granted> = Vec::new();
    for option in options {
        let nodes = match split(option) {
            _ if option == ALL => all(host)?.into_iter().map(|(_, node)| node).collect(),
            Some((name, path)) => vec![stand_in(name, path, host)?],
            None => {
                let known = match &mut known {
                    Some(known) => known,
                    none => none.insert(collect::devices(host.sysfs)?),
                };
                vec![by_name(&option.to_string_lossy(), known, host)?]
            }
        };
        for node in nodes {
            match granted.iter().find(|other| other.name == node.name) {
                None => granted.push(node),
                // The same device by both of its names.
                Some(other) if other.identity == node.identity => {}
                Some(_) => return Err(GrantError::Twice { name: node.name }),
            }
        }
    }
    Ok(granted)
}

/// The same of options of which there may be none.
pub fn resolve_all(options: &[OsString], host: Host<'_>) -> Result<Vec<Granted>, GrantError> {
    if options.is_empty() { Ok(Vec::new()) } else { resolve(options, host) }
}

/// The devices that the caller may open, with their names.
fn all(host: Host<'_>) -> Result<Vec<(String, Granted)>, GrantError> {
    let devices = collect::devices(host.sysfs)?;
    if devices.is_empty() {
        log::warn!("this host has no RDMA device to grant");
    }
    // Not asked for by name: one that the caller may not open is none of the caller's.
    let usable = devices.iter().filter_map(|device| match node_of(device, host) {
        Err(GrantError::Open { path, source }) => {
            log::warn!("{} is not granted: cannot open {}: {source}", device.ibdev, path.display());
            None
        }
        other => Some(other.map(|node| (called(device), node))),
    });
    usable.collect()
}

/// A device's two names.
fn called(device: &RdmaDevice) -> String {
    format!("{} ({})", device.ibdev, device.uverbs)
}

/// The connection manager's node, if this host has one.
pub fn connection_manager(host: Host<'_>) -> Option<Granted> {
    let name = RDMA_CM.to_owned();
    let source = host.nodes.join(&name);
    let granted = openable(&source).and_then(|found| of_number(name, found, source, host));
    granted.inspect_err(|e| log::debug!("the sandbox has no rdma_cm: {e}")).ok()
}

fn by_name(name: &str, known: &[RdmaDevice], host: Host<'_>) -> Result<Granted, GrantError> {
    // An administrator may give a device the name of another's node.
    let named = |is: fn(&RdmaDevice) -> &str| known.iter().find(|device| is(device) == name);
    let found = named(|device| &device.uverbs).or_else(|| named(|device| &device.ibdev));
    let device = found.ok_or_else(|| GrantError::NoSuchDevice {
        name: name.to_owned(),
        have: known.iter().map(called).collect(),
    })?;
    node_of(device, host)
}

fn node_of(device: &RdmaDevice, host: Host<'_>) -> Result<Granted, GrantError> {
    let path = host.nodes.join(&device.uverbs);
    let found = openable(&path)?;
    if found != device.dev {
        let (uverbs, expected) = (device.uverbs.clone(), device.dev);
        return Err(GrantError::WrongNode { path, uverbs, found, expected });
    }
    let granted = of_number(device.uverbs.clone(), found, path, host)?;
    let (uverbs, ibdev) = (granted.identity.uverbs(), granted.identity.ibdev());
    // It was found by a name, and read by a number.
    if (uverbs, ibdev) != (Some(&device.uverbs), Some(&device.ibdev)) {
        return Err(GrantError::Changed { name: device.ibdev.clone() });
    }
    Ok(granted)
}

/// The device that a number leads to now.
fn of_number(
    name: String,
    number: DevNumber,
    source: PathBuf,
    host: Host<'_>,
) -> Result<Granted, GrantError> {
    let identity = Identity::below(host.sysfs, number)
        .map_err(|e| GrantError::Identity { path: source.clone(), source: e })?;
    Ok(Granted { name, rdev: (number.major, number.minor), source, identity, ports: None })
}

/// `NAME=PATH`.
fn split(option: &OsStr) -> Option<(&OsStr, &Path)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = option.as_bytes();
    let at = bytes.iter().position(|b| *b == b'=')?;
    let (name, path) = (bytes.get(..at)?, bytes.get(at + 1..)?);
    Some((OsStr::from_bytes(name), Path::new(OsStr::from_bytes(path))))
}

fn stand_in(name: &OsStr, path: &Path, host: Host<'_>) -> Result<Granted, GrantError> {
    let name = name.to_string_lossy().into_owned();
    if collect::uverbs_number(&name).is_none() {
        return Err(GrantError::NodeName { name });
    }
    // The path is resolved now: the guest's working directory is no part of the grant.
    let path = fs::canonicalize(path)
        .map_err(|source| GrantError::Open { path: path.to_owned(), source })?;
    let found = openable(&path)?;
    of_number(name, found, path, host)
}

/// Opens a device as the supervisor will, to find out now whether the supervisor may.
fn openable(path: &Path) -> Result<DevNumber, GrantError> {
    let failed = |source| GrantError::Open { path: path.to_owned(), source };
    let meta = fs::metadata(path).map_err(failed)?;
    // Before it is opened: opening a FIFO would wait.
    if !meta.file_type().is_char_device() {
        return Err(GrantError::NotADevice { path: path.to_owned() });
    }
    OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    Ok(number(meta.rdev()))
}

/// Splits a `dev_t` as glibc's `gnu_dev_major` and `gnu_dev_minor` do.
fn number(rdev: u64) -> DevNumber {
    let low = |n: u64| u32::try_from(n & 0xffff_ffff).unwrap_or(u32::MAX);
    DevNumber {
        major: low(((rdev >> 32) & 0xffff_f000) | ((rdev >> 8) & 0xfff)),
        minor: low(((rdev >> 12) & 0xffff_ff00) | (rdev & 0xff)),
    }
}

#[cfg(test)]
mod tests {
    use verbgate_sysfs_fixtures::Changing;
    use verbgate_sysfs_fixtures::Software;

    use super::*;

    /// Nodes of devices that every machine has stand for RDMA nodes.
    fn host_with(devices: &[(&str, &str, (u32, u32), &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let host = Changing::new(dir.path()).unwrap();
        for (node, ibdev, number, opens) in devices {
            let (number, node_guid, function) = (*number, "0000:0000:0000:0000", None);
            host.add(&Software { number, node, ibdev, node_guid, function }).unwrap();
            std::os::unix::fs::symlink(opens, dir.path().join(node)).unwrap();
        }
        dir
    }

    const NULL: (u32, u32) = (1, 3);
    const ZERO: (u32, u32) = (1, 5);

    fn resolved(dir: &tempfile::TempDir, options: &[&str]) -> Result<Vec<Granted>, GrantError> {
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        resolve(&options, Host { sysfs: dir.path(), nodes: dir.path() })
    }

    fn names(granted: &[Granted]) -> Vec<&str> {
        granted.iter().map(|g| &*g.name).collect()
    }

    #[test]
    fn a_device_has_two_names_and_is_granted_once() {
        let host = host_with(&[
            ("uverbs0", "rxe0", NULL, "/dev/null"),
            ("uverbs1", "rxe1", ZERO, "/dev/zero"),
        ]);
        assert_eq!(names(&resolved(&host, &["rxe1"]).unwrap()), ["uverbs1"]);
        assert_eq!(names(&resolved(&host, &["rxe0", "uverbs0"]).unwrap()), ["uverbs0"]);
        let odd = host_with(&[
            ("uverbs1", "uverbs0", NULL, "/dev/null"),
            ("uverbs0", "rxe0", ZERO, "/dev/zero"),
        ]);
        assert_eq!(names(&resolved(&odd, &["uverbs0"]).unwrap()), ["uverbs0"]);
        assert_eq!(names(&resolved(&host, &["rxe1", "all"]).unwrap()), ["uverbs1", "uverbs0"]);
    }

    #[test]
    fn more_than_one_device_is_granted_to_who_asks_for_it_only() {
        let one = host_with(&[("uverbs0", "rxe0", NULL, "/dev/null")]);
        assert_eq!(names(&resolved(&one, &[]).unwrap()), ["uverbs0"]);
        assert_eq!(names(&resolved(&host_with(&[]), &[]).unwrap()), [""; 0]);
        let two = host_with(&[
            ("uverbs0", "rxe0", NULL, "/dev/null"),
            ("uverbs1", "mlx5_1", ZERO, "/dev/zero"),
        ]);
        assert_eq!(
            resolved(&two, &[]).unwrap_err().to_string(),
            "this host has 2 RDMA devices: mlx5_1 (uverbs1), rxe0 (uverbs0); say which one with \
             --device NAME (repeat the option for more), or grant all devices with --device all"
        );
        // In the order of the devices' names.
        assert_eq!(names(&resolved(&two, &["all"]).unwrap()), ["uverbs1", "uverbs0"]);
    }

    #[test]
    fn an_unknown_name_lists_those_that_exist() {
        let host = host_with(&[("uverbs0", "rxe0", NULL, "/dev/null")]);
        let error = resolved(&host, &["mlx5_0"]).unwrap_err().to_string();
        assert!(error.contains("\"mlx5_0\"") && error.contains("rxe0 (uverbs0)"), "{error}");
        let error = resolved(&host_with(&[]), &["mlx5_0"]).unwrap_err().to_string();
        assert!(error.contains("this host has none"), "{error}");
    }

    #[test]
    fn a_stand_in_is_any_character_device() {
        let host = host_with(&[]);
        let granted = resolved(&host, &["uverbs9=/dev/null"]).unwrap();
        assert_eq!(granted[0].rdev, (1, 3));
        assert_eq!(granted[0].name, "uverbs9");
        assert!(matches!(resolved(&host, &["x=/dev/null"]), Err(GrantError::NodeName { .. })));
        assert!(matches!(resolved(&host, &["../x=/dev/null"]), Err(GrantError::NodeName { .. })));
        assert!(matches!(resolved(&host, &["uverbs9=/tmp"]), Err(GrantError::NotADevice { .. })));
        assert!(matches!(resolved(&host, &["uverbs9=/absent"]), Err(GrantError::Open { .. })));
        let host = host_with(&[("uverbs9", "rxe0", NULL, "/dev/null")]);
        for twice in [["uverbs9=/dev/null", "uverbs9=/dev/zero"], ["uverbs9=/dev/zero", "all"]] {
            assert!(matches!(resolved(&host, &twice), Err(GrantError::Twice { .. })), "{twice:?}");
        }
    }

    #[test]
    fn a_node_with_another_number_is_not_the_device() {
        let host = host_with(&[("uverbs0", "rxe0", (231, 192), "/dev/null")]);
        let error = resolved(&host, &["rxe0"]).unwrap_err().to_string();
        assert!(error.contains("1:3") && error.contains("231:192"), "{error}");
    }

    #[test]
    fn a_grant_says_which_device_it_is_of() {
        let host = host_with(&[("uverbs0", "rxe0", NULL, "/dev/null")]);
        let granted = resolved(&host, &["rxe0"]).unwrap().remove(0);
        assert_eq!(granted.identity.ibdev(), Some("rxe0"));
        let text = serde_json::to_string(&granted).unwrap();
        assert_eq!(serde_json::from_str::<Granted>(&text).unwrap(), granted);
        // One under two names, by a stand-in of the same node.
        let both = resolved(&host, &["rxe0", "uverbs9=/dev/null"]).unwrap();
        assert_eq!(both[0].identity, both[1].identity);
        // What an older version wrote is read, and of no device.
        let old = r#"{"name": "uverbs0", "rdev": [1, 3], "source": "/dev/null"}"#;
        let old: Granted = serde_json::from_str(old).unwrap();
        assert!(!old.identity.matches(&granted.identity));
    }

    #[test]
    fn a_device_that_is_renamed_meanwhile_is_not_granted_by_its_former_name() {
        let host = host_with(&[("uverbs0", "rxe0", NULL, "/dev/null")]);
        let known = collect::devices(host.path()).unwrap();
        let at = Host { sysfs: host.path(), nodes: host.path() };
        by_name("rxe0", &known, at).unwrap();
        fs::write(host.path().join("class/infiniband_verbs/uverbs0/ibdev"), "rxe1\n").unwrap();
        let error = by_name("rxe0", &known, at).unwrap_err();
        assert!(matches!(error, GrantError::Changed { .. }), "{error}");
    }

    #[test]
    fn device_numbers_split_as_in_glibc() {
        assert_eq!(number(0x103), DevNumber { major: 1, minor: 3 });
        assert_eq!(number(0xe7c0), DevNumber { major: 231, minor: 192 });
        assert_eq!(number(0x12_3456), DevNumber { major: 0x234, minor: 0x156 });
    }
}
