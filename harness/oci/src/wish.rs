//! The wish of a container: the RDMA that `config.json` asks for.

use std::path::PathBuf;

use serde_json::Value;
use verbgate_proxy::policy::hint;
use verbgate_sandbox::grant::RDMA_CM;

use super::exposed;
use super::exposed::HostNodes;
use super::exposed::Shown;
use super::rewrite;
use crate::kind::KIND;
use crate::kind::device_of;

/// Names of devices, separated by commas, or `all`.
pub(crate) const DEVICES: &str = "org.verbgate.devices";
/// Annotation for the requests that a program may make: the name of a profile.
pub(crate) const PROFILE: &str = "org.verbgate.profile";
/// Network devices to move into the container: names, separated by commas, or `all` of the granted
/// RDMA devices.
pub(crate) const NETDEVS: &str = "org.verbgate.netdevs";
/// `host` for the `/sys` that the runtime mounts, other devices included.
pub(crate) const SYSFS: &str = "org.verbgate.sysfs";
/// Libraries whose settings the container gets, separated by commas: nccl, ucx, nixl, mooncake.
pub(crate) const SETTINGS: &str = "org.verbgate.env";
/// Annotation for the devices that were granted when the file was rewritten: the nodes are no
/// longer among the devices.
pub(crate) const GRANTED: &str = "org.verbgate.granted";
/// Where devices are asked for that annotations of CDI name.
pub(crate) const OF_CDI: &str = "a CDI device";
/// Annotations of this prefix are ours.
pub(crate) const PREFIX: &str = "org.verbgate.";
/// Annotations of containerd and CRI-O for the container that holds a pod's namespaces, and runs
/// nothing.
const PAUSE: [(&str, &str); 2] = [
    ("io.kubernetes.cri.container-type", "sandbox"),
    ("io.kubernetes.cri-o.ContainerType", "sandbox"),
];
/// CDI: annotations of this prefix name devices, separated by commas.
const CDI_PREFIX: &str = "cdi.k8s.io/";
/// Every device of the host.
pub(crate) const ALL: &str = "all";

/// The wish of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wish {
    /// Names of devices or their nodes, or [`ALL`]; and where each is asked for.
    pub devices: Vec<(String, &'static str)>,
    /// Whether the container is given the connection manager.
    pub(crate) cm: bool,
    /// Whether the container names devices, with which the connection manager comes where annotations
    /// grant.
    pub(crate) cm_asked: bool,
    pub profile: Option<String>,
    /// Names of NICs, or [`ALL`]; empty for none.
    pub netdevs: Vec<String>,
    /// Whether the container sees the `/sys` that the runtime mounts.
    pub(crate) sees_host: bool,
    /// Whether annotations are a part of the wish.
    pub(crate) annotated: bool,
}

/// Why a wish cannot be fulfilled, whatever the host has.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum WishError {
    #[error(
        "annotation {DEVICES}: {value:?} does not name a device; write names separated by commas, \
         as in mlx5_0,mlx5_1, or \"all\""
    )]
    Devices { value: String },
    #[error(
        "{field}: {} is a node of RDMA hardware that Verbgate does not supervise, and no rule of the \
         device cgroup opens the node: have the engine list /dev/infiniband/uverbsN for verbs; give \
         the fabric's own tools (ibdiagnet, SHARP) a container with this node and its rule \
         (--device), and no uverbsN; or leave the node out", .path.display()
    )]
    Unsupervised { field: &'static str, path: PathBuf },
    #[error(
        "{field}: rdma_cm serves the container's RDMA devices, and the container has none: have the \
         engine list /dev/infiniband/uverbsN too, or leave rdma_cm out"
    )]
    OnlyCm { field: &'static str },
    #[error(
        "{field}: {} is an RDMA device under another name; have the engine show the device as \
         /dev/infiniband/uverbsN", .path.display()
    )]
    OtherName { field: &'static str, path: PathBuf },
    #[error(
        "{field}: {} is {}; have the engine list the host's own node by its name", .path.display(),
        other(*.number, .name.as_deref())
    )]
    Disagrees {
        field: &'static str,
        path: PathBuf,
        number: Option<exposed::Rdev>,
        name: Option<String>,
    },
    #[error(
        "annotation {GRANTED}: only Verbgate writes this annotation, together with a hook, and \
         this container has no such hook; remove the annotation"
    )]
    Forged,
    #[error("annotation {SYSFS}: {value:?} is neither \"virtual\" nor \"host\"")]
    Sysfs { value: String },
    #[error("annotation {key}: Verbgate knows no such annotation; {hint}")]
    Unknown { key: String, hint: String },
    #[error("annotation {0}: must be a string")]
    NotText(&'static str),
    #[error(
        "annotation {NETDEVS}: {value:?} does not name a NIC; write names separated by commas, as \
         in eth1,eth2, or \"all\" for the NICs of the granted RDMA devices"
    )]
    Netdevs { value: String },
    #[error(
        "annotation {NETDEVS}: the container asks for NICs and for no RDMA device; add {DEVICES}, \
         or let the network plug-in move the NICs"
    )]
    OnlyNetdevs,
    #[error(
        "linux.seccomp{field}: the profile names another agent for system calls, and the kernel \
         allows one; remove the agent from this container, or the RDMA devices"
    )]
    OtherAgent { field: String },
}

/// The device that a node is, where its name says another.
fn other(number: Option<exposed::Rdev>, name: Option<&str>) -> String {
    match (number, name) {
        (None, _) => "no character device".to_owned(),
        (Some((major, minor)), Some(name)) => format!("{major}:{minor}, which is {name}"),
        (Some((major, minor)), None) => {
            format!("{major}:{minor}, which is no RDMA device of this host")
        }
    }
}

impl Wish {
    /// Reads it; `None` when there is none. What a container could reach without having asked is a
    /// wish, too: see [`exposed`].
    pub(crate) fn of(config: &Value, host: &HostNodes) -> Result<Option<Self>, WishError> {
        let mut wish = Self::default();
        let text = |key: &'static str| match config.get("annotations").and_then(|all| all.get(key))
        {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or(WishError::NotText(key)),
        };
        // A pod's annotations are those of its pause container, which has no use for devices.
        let pauses = is_pause(config) && text(NETDEVS)?.is_none();
        wish.annotated = has_ours(config);
        let unknown = refuse_unknown(config);
        // Whoever makes a container writes annotations, and hooks are the engine's.
        if text(GRANTED)?.is_some() && !rewrite::is_ours(config) {
            return Err(WishError::Forged);
        }
        for key in [DEVICES, GRANTED] {
            let Some(value) = text(key)?.filter(|_| !pauses) else { continue };
            let names =
                names(value).ok_or_else(|| WishError::Devices { value: value.to_owned() })?;
            // Who names devices gets the connection manager with them, as with `verbgate run`.
            wish.cm |= key == GRANTED && names.contains(&RDMA_CM);
            wish.cm_asked |= key == DEVICES;
            let names = names.into_iter().filter(|name| *name != RDMA_CM);
            wish.devices.extend(names.map(|name| (name.to_owned(), key)));
        }
        for name in of_cdi(config).into_iter().filter(|_| !pauses) {
            (wish.cm_asked, wish.annotated) = (true, true);
            wish.devices.push((name, OF_CDI));
        }
        let raw = wish.add_shown(config, host)?;
        if let Some(value) = text(NETDEVS)? {
            let names =
                names(value).ok_or_else(|| WishError::Netdevs { value: value.to_owned() })?;
            wish.netdevs = names.into_iter().map(str::to_owned).collect();
        }
        if let (true, Some(error)) = (wish.devices.is_empty(), raw) {
            return Err(error);
        }
        if wish.devices.is_empty() {
            if let (Err(error), false) = (&unknown, is_pause(config)) {
                log::warn!("{error}");
            }
            let none = wish.netdevs.is_empty();
            return if none { Ok(None) } else { Err(WishError::OnlyNetdevs) };
        }
        wish.profile = text(PROFILE)?.map(str::to_owned);
        wish.sees_host = match text(SYSFS)? {
            None | Some("virtual") => false,
            Some("host") => true,
            Some(other) => return Err(WishError::Sysfs { value: other.to_owned() }),
        };
        unknown?;
        refuse_other_agent(config)?;
        Ok(Some(wish))
    }

    /// Adds what is shown to the container, or open to it. Returns why a container without a device is
    /// refused.
    fn add_shown(
        &mut self,
        config: &Value,
        host: &HostNodes,
    ) -> Result<Option<WishError>, WishError> {
        let (mut raw, mut left_out) = (None, Vec::new());
        for (shown, field) in exposed::found(config, host)? {
            match shown {
                Shown::Device(name) => self.devices.push((name, field)),
                Shown::Cm => {
                    self.cm = true;
                    raw = raw.or(host.has_devices().then_some(WishError::OnlyCm { field }));
                }
                Shown::Opened(path) => left_out.push(path),
                Shown::Unsupervised(path) => {
                    left_out.push(path.clone());
                    raw = raw.or(Some(WishError::Unsupervised { field, path }));
                }
            }
        }
        if !self.devices.is_empty() {
            for path in left_out {
                log::info!(
                    "{} is left out of the container: beside uverbs nodes, nobody supervises this one; the fabric's \
                     own tools (ibdiagnet, SHARP) get it in a container without uverbs nodes",
                    path.display()
                );
            }
        }
        Ok(raw)
    }
}

fn is_pause(config: &Value) -> bool {
    let all = config.get("annotations");
    let says = |key: &str, value: &str| all.and_then(|all| all.get(key)?.as_str()) == Some(value);
    PAUSE.iter().any(|(key, value)| says(key, value))
}

fn has_ours(config: &Value) -> bool {
    let all = config.get("annotations").and_then(Value::as_object);
    all.into_iter().flatten().any(|(key, _)| key.starts_with(PREFIX))
}

/// Refuses annotations that nobody would read: whoever writes one means something by it.
fn refuse_unknown(config: &Value) -> Result<(), WishError> {
    const OURS: [&str; 6] = [DEVICES, PROFILE, NETDEVS, SYSFS, SETTINGS, GRANTED];
    let all = config.get("annotations").and_then(Value::as_object).into_iter().flatten();
    let mut ours = all.map(|(key, _)| key).filter(|key| key.starts_with(PREFIX));
    match ours.find(|key| !OURS.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            // The prefix is alike in all.
            let bare = |key: &'static str| key.trim_start_matches(PREFIX);
            let hint = hint(key.trim_start_matches(PREFIX), OURS.into_iter().take(5).map(bare));
            Err(WishError::Unknown { key: key.clone(), hint })
        }
    }
}

/// Names that are separated by commas, if they all are such.
fn names(value: &str) -> Option<Vec<&str>> {
    let names: Vec<&str> = value.split(',').map(str::trim).collect();
    let odd = |name: &&str| name.is_empty() || name.contains(['/', '=', ' ']);
    (!names.iter().any(odd)).then_some(names)
}

/// Whether this is where a container's maker asks, and nothing is given.
pub(crate) fn is_asked(field: &str) -> bool {
    [DEVICES, OF_CDI].contains(&field)
}

/// The names of our devices among those that CDI annotations name.
fn of_cdi(config: &Value) -> Vec<String> {
    let annotations = config.get("annotations").and_then(Value::as_object);
    let cdi = annotations.into_iter().flatten().filter(|(key, _)| key.starts_with(CDI_PREFIX));
    let names = cdi.filter_map(|(_, value)| value.as_str()).flat_map(|value| value.split(','));
    names
        .filter_map(|name| name.trim().strip_prefix(KIND)?.strip_prefix('='))
        .map(|name| device_of(name).to_owned())
        .collect()
}

/// The kernel allows one listener for a process and its ancestors: seccomp_unotify(2).
fn refuse_other_agent(config: &Value) -> Result<(), WishError> {
    let Some(seccomp) = config.pointer("/linux/seccomp") else { return Ok(()) };
    let other = |field: String| Err(WishError::OtherAgent { field });
    if seccomp.get("listenerPath").and_then(Value::as_str).is_some_and(|path| !path.is_empty()) {
        return other(".listenerPath".to_owned());
    }
    let notifies =
        |value: &Value, key| value.get(key).and_then(Value::as_str) == Some("SCMP_ACT_NOTIFY");
    if notifies(seccomp, "defaultAction") {
        return other(".defaultAction".to_owned());
    }
    let rules = seccomp.get("syscalls").and_then(Value::as_array);
    match rules.into_iter().flatten().position(|rule| notifies(rule, "action")) {
        Some(at) => other(format!(".syscalls[{at}].action")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(config: &Value) -> Result<Option<Wish>, WishError> {
        Wish::of(config, &exposed::tests::host("/nonexistent".as_ref()))
    }

    /// A device as an engine lists it.
    fn node((name, major, minor): (&str, u32, u32)) -> Value {
        json!({"path": format!("/dev/infiniband/{name}"), "type": "c", "major": major, "minor": minor})
    }

    const UVERBS0: (&str, u32, u32) = ("uverbs0", 231, 192);

    fn names(config: &Value) -> Vec<String> {
        let wish = of(config).unwrap().unwrap();
        wish.devices.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn who_asks_for_nothing_is_left_alone() {
        for config in [
            json!({}),
            json!({"annotations": {"a": "b"}, "linux": {"devices": [{"path": "/dev/fuse"}]}}),
            json!({"linux": {"seccomp": {"listenerPath": "/x"}}}),
        ] {
            assert_eq!(of(&config), Ok(None), "{config}");
        }
    }

    #[test]
    fn what_was_granted_is_believed_with_our_hook() {
        let mut config = json!({"annotations": {GRANTED: "uverbs0,rdma_cm"}});
        assert_eq!(of(&config), Err(WishError::Forged));
        config["hooks"] = json!({"createRuntime": [{"path": "/v", "args": ["v", "other-hook"]}]});
        assert_eq!(of(&config), Err(WishError::Forged));
        config["hooks"] = json!({"createRuntime": [{"path": "/v", "args": ["v", "oci-hook"]}]});
        let wish = of(&config).unwrap().unwrap();
        assert_eq!(
            (names(&config), wish.cm, wish.cm_asked),
            (vec!["uverbs0".to_owned()], true, false)
        );
    }

    #[test]
    fn devices_are_asked_for_in_three_ways() {
        let annotation = json!({"annotations": {DEVICES: "mlx5_0, uverbs1"}});
        assert_eq!(names(&annotation), ["mlx5_0", "uverbs1"]);
        let wish = of(&annotation).unwrap().unwrap();
        assert!(wish.cm_asked && !wish.cm);
        let nodes = [UVERBS0, ("umad3", 231, 3), ("issm3", 231, 67)].map(node);
        let listed = json!({"linux": {"devices": nodes}});
        assert_eq!(names(&listed), ["uverbs0"]);
        assert!(!of(&listed).unwrap().unwrap().cm);
        let cdi =
            json!({"annotations": {"cdi.k8s.io/x_y": "a.org/gpu=0,verbgate.org/rdma=mlx5_0:1"}});
        assert_eq!(names(&cdi), ["mlx5_0"]);
    }

    #[test]
    fn a_node_that_nobody_supervises_comes_with_a_device_or_not_at_all() {
        let with = |nodes: &[(&str, u32, u32)], open: &[(u32, u32)]| {
            let rule = |(major, minor): &(u32, u32)| json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"});
            let deny = json!({"allow": false, "access": "rwm"});
            let rules: Vec<_> = [deny].into_iter().chain(open.iter().map(rule)).collect();
            let nodes: Vec<_> = nodes.iter().copied().map(node).collect();
            json!({"linux": {"devices": nodes, "resources": {"devices": rules}}})
        };
        for other in
            [("umad0", 231, 0), ("issm1", 231, 65), ("rdma_cm", 10, 121), ("../hfi1_0", 243, 0)]
        {
            let error = of(&with(&[other], &[])).unwrap_err().to_string();
            assert!(error.contains(other.0) && error.contains("uverbsN"), "{error}");
            assert_eq!(names(&with(&[other, UVERBS0], &[])), ["uverbs0"]);
            // The engine's own rule gives the fabric's tools what plain runc does.
            let given = of(&with(&[other], &[(other.1, other.2)]));
            assert_eq!(given.is_ok_and(|wish| wish.is_none()), other.0 != "rdma_cm", "{other:?}");
        }
        let hidden = json!({"linux": {"devices": [
            {"path": "/dev/x", "type": "c", "major": 231, "minor": 192},
        ]}});
        assert!(matches!(of(&hidden), Err(WishError::OtherName { .. })));
    }

    #[test]
    fn a_pause_container_asks_for_nothing_unless_it_moves_nics() {
        for (key, value) in PAUSE {
            let mut config = json!({"annotations": {DEVICES: "all", key: value}});
            assert_eq!(of(&config), Ok(None));
            config["annotations"][NETDEVS] = "eth1".into();
            assert_eq!(names(&config), ["all"]);
            let container = json!({"annotations": {DEVICES: "all", key: "container"}});
            assert_eq!(names(&container), ["all"]);
        }
    }

    #[test]
    fn the_hosts_sysfs_is_asked_for_by_name() {
        let of = |value: &str| of(&json!({"annotations": {DEVICES: "all", SYSFS: value}}));
        assert!(of("host").unwrap().unwrap().sees_host);
        assert!(!of("virtual").unwrap().unwrap().sees_host);
        assert_eq!(of("none"), Err(WishError::Sysfs { value: "none".to_owned() }));
    }

    #[test]
    fn malformed_annotations_are_named() {
        for value in ["", "mlx5_0,", "a=/dev/mem", "../x"] {
            let error = of(&json!({"annotations": {DEVICES: value}})).unwrap_err();
            assert!(error.to_string().contains(DEVICES), "{error}");
        }
        let error = of(&json!({"annotations": {DEVICES: 3}})).unwrap_err();
        assert_eq!(error, WishError::NotText(DEVICES));
        let config = json!({"annotations": {DEVICES: "all", NETDEVS: "eth1,"}});
        assert_eq!(of(&config), Err(WishError::Netdevs { value: "eth1,".to_owned() }));
        let config = json!({"annotations": {NETDEVS: "eth1"}});
        assert_eq!(of(&config), Err(WishError::OnlyNetdevs));
        let config = json!({"annotations": {DEVICES: "all", NETDEVS: "eth1, eth2"}});
        assert_eq!(of(&config).unwrap().unwrap().netdevs, ["eth1", "eth2"]);
    }

    #[test]
    fn an_annotation_that_nobody_reads_is_named() {
        for (key, near) in
            [("devces", "\"devices\""), ("profil", "\"profile\""), ("x", "known: devices")]
        {
            let key = format!("{PREFIX}{key}");
            let error = of(&json!({"annotations": {DEVICES: "all", &key: "all"}})).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(&key) && error.contains(near), "{error}");
            // A container without RDMA goes on, and the log says so.
            assert_eq!(of(&json!({"annotations": {&key: "all"}})), Ok(None));
        }
        let mut known =
            json!({"annotations": {DEVICES: "all", SETTINGS: "nccl", "other.org/x": "y"}});
        assert!(of(&known).unwrap().is_some());
        known["annotations"] = json!({SETTINGS: "nccl"});
        assert_eq!(of(&known), Ok(None));
    }

    #[test]
    fn another_agent_is_named() {
        for (seccomp, field) in [
            (json!({"listenerPath": "/run/agent"}), ".listenerPath"),
            (json!({"defaultAction": "SCMP_ACT_NOTIFY"}), ".defaultAction"),
            (
                json!({"syscalls": [{"action": "SCMP_ACT_ALLOW"}, {"action": "SCMP_ACT_NOTIFY"}]}),
                ".syscalls[1].action",
            ),
        ] {
            let config = json!({"annotations": {DEVICES: "all"}, "linux": {"seccomp": seccomp}});
            let error = of(&config).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
