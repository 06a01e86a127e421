//! The settings of communication libraries, which a container asks for by annotation: variables in the
//! environment of the container's process, for the rails that the container has.

use std::path::Path;

use anyhow::Error;
use anyhow::anyhow;
use serde_json::Value;
use verbgate_host::netns::Namespace;
use verbgate_netdev::env;
use verbgate_netdev::env::Library;
use verbgate_netdev::env::Wish;
use verbgate_netdev::rails;
use verbgate_netdev::select::Selection;
use verbgate_sandbox::grant::Granted;
use verbgate_sysfs::collect;

use super::netdevs::Netdevs;
use super::wish::SETTINGS;

/// Adds the variables that are not there; the image's and the user's own stay as they are.
pub(super) fn add(
    config: &mut Value,
    nodes: &[Granted],
    netdevs: Option<&Netdevs>,
    sysfs: &Path,
) -> Result<(), Error> {
    let failed = |why: String| anyhow!("annotation {SETTINGS}: {why}");
    let Some(value) = config.get("annotations").and_then(|all| all.get(SETTINGS)) else {
        return Ok(());
    };
    let value = value.as_str().ok_or_else(|| failed("must be a string".to_owned()))?;
    let library = |name: &str| {
        let known = Library::ALL.map(|(name, _)| name).join(", ");
        let unknown = || failed(format!("{name:?} is none of {known}"));
        Library::named(name.trim()).ok_or_else(unknown)
    };
    let libraries: Vec<Library> = value.split(',').map(library).collect::<Result<_, _>>()?;
    let rails = rails_of(config, nodes, sysfs).map_err(|e| failed(e.to_string()))?;
    let (namespace, rails) = rails;
    let class = |of: &[rails::Rail]| env::of_ports(of).map(|(class, _)| class);
    let class = match &namespace {
        Some(namespace) => namespace.within(|| class(&rails)),
        None => class(&rails),
    };
    let class = class.map_err(|e| failed(e.to_string()))?;
    let socket = socket_of(config, &rails).map_err(|e| failed(e.to_string()))?;
    // NICs that have yet to move may get other indices there.
    let wish = Wish { class, socket, by_address: netdevs.is_some(), ..Wish::default() };
    for library in libraries {
        let (found, warnings) =
            env::of(library, &rails, &wish).map_err(|e| failed(e.to_string()))?;
        warnings.iter().for_each(|warning| log::warn!("annotation {SETTINGS}: {warning}"));
        for (name, variable) in &found.0 {
            set(config, name, &variable.value)?;
        }
    }
    Ok(())
}

/// The container's network namespace, if it is there already: of a pod, or the host's.
fn network_of(config: &Value) -> Result<Option<Namespace>, verbgate_netdev::Error> {
    let namespaces = config.pointer("/linux/namespaces").and_then(Value::as_array);
    let network = namespaces.into_iter().flatten().find(|one| one["type"] == "network");
    match network {
        None => Namespace::current().map(Some).map_err(Into::into),
        Some(one) => {
            let path = one.get("path").and_then(Value::as_str);
            path.map(|path| Namespace::open(Path::new(path))).transpose().map_err(Into::into)
        }
    }
}

/// The link by which the container's processes find others. A namespace that the runtime has yet to
/// make has none.
fn socket_of(
    config: &Value,
    rails: &[rails::Rail],
) -> Result<Option<env::Socket>, verbgate_netdev::Error> {
    match network_of(config)? {
        Some(network) => network.within(|| env::default_link(rails)),
        None => Ok(None),
    }
}

/// The rails of granted devices: in the container's network namespace if the namespace is there, else
/// in the one that the NICs come from.
fn rails_of(
    config: &Value,
    nodes: &[Granted],
    sysfs: &Path,
) -> Result<(Option<Namespace>, Vec<rails::Rail>), Error> {
    let known = collect::devices(sysfs)?;
    let granted = known.iter().filter(|one| nodes.iter().any(|node| node.name == one.uverbs));
    let names: Vec<&str> = granted.map(|one| one.ibdev.as_str()).collect();
    let selection =
        Selection { hca: Some(format!("={}", names.join(","))), ..Selection::default() };
    if let Some(there) = network_of(config)? {
        let found = rails::within(&there, &selection, sysfs)?;
        if !found.is_empty() {
            return Ok((Some(there), found));
        }
    }
    let here = Namespace::current()?;
    Ok((None, rails::within(&here, &selection, sysfs)?))
}

fn set(config: &mut Value, name: &str, value: &str) -> Result<(), Error> {
    let shape = || anyhow!("process.env: must be a list of texts");
    let process = config.get_mut("process").and_then(Value::as_object_mut).ok_or_else(shape)?;
    let env = process.entry("env").or_insert_with(|| Value::Array(Vec::new()));
    let env = env.as_array_mut().ok_or_else(shape)?;
    let prefix = format!("{name}=");
    if !env.iter().any(|one| one.as_str().is_some_and(|one| one.starts_with(&prefix))) {
        env.push(Value::String(prefix + value));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use serde_json::json;
    use verbgate_sysfs::DevNumber;
    use verbgate_sysfs::Identity;
    use verbgate_sysfs::RdmaDevice;

    use super::*;

    /// InfiniBand's ports serve every network namespace: there is nothing to move, and no GID to choose.
    #[test]
    fn a_container_with_infiniband_has_settings_without_a_move() {
        let sysfs = tempfile::tempdir().unwrap();
        verbgate_sysfs_fixtures::Fixture::named("infiniband").unwrap().write(sysfs.path()).unwrap();
        let devices = collect::devices(sysfs.path()).unwrap();
        let granted = |count: usize| -> Vec<Granted> {
            let none = DevNumber { major: 0, minor: 0 };
            let of = |one: &RdmaDevice| Granted {
                name: one.uverbs.clone(),
                rdev: (0, 0),
                source: "/dev/null".into(),
                identity: Identity::unknown(none),
                ports: None,
            };
            devices.iter().take(count).map(of).collect()
        };
        for (count, expected) in [(1, "=mlx5_0:1"), (2, "=mlx5_0:1,mlx5_1:1")] {
            let mut config = json!({"annotations": {SETTINGS: "nccl,ucx"}, "process": {"env": []}});
            add(&mut config, &granted(count), None, sysfs.path()).unwrap();
            let env = config["process"]["env"].to_string();
            assert!(env.contains(&format!("\"NCCL_IB_HCA={expected}\"")), "{env}");
            let ucx = expected.trim_start_matches('=');
            assert!(env.contains(&format!("\"UCX_NET_DEVICES={ucx}\"")), "{env}");
            assert!(!env.contains("GID_INDEX") && !env.contains("ADDR_RANGE"), "{env}");
        }
        // A pod's network is there before the container, and has a default route; a network that the
        // runtime has yet to make has none.
        let made = "ip link add eth7 type veth peer name p && ip addr add 192.0.2.7/24 dev eth7 && \
                    ip link set eth7 up && ip route add default dev eth7 && echo made && \
                    exec sleep infinity";
        let mut pod = std::process::Command::new("unshare");
        pod.args(["--net", "sh", "-c", made]).stdout(std::process::Stdio::piped());
        let mut pod = pod.stderr(std::process::Stdio::null()).spawn().unwrap();
        let mut said = [0; 4];
        let ready = pod.stdout.as_mut().unwrap().read_exact(&mut said);
        if ready.is_err() {
            pod.wait().unwrap();
            eprintln!("SKIPPED: needs root, to make network namespaces");
            return;
        }
        let settings = |network: Value| {
            let mut config = json!({
                "annotations": {SETTINGS: "nccl"}, "process": {"env": []},
                "linux": {"namespaces": [network]},
            });
            add(&mut config, &granted(1), None, sysfs.path()).unwrap();
            config["process"]["env"].to_string()
        };
        let path = format!("/proc/{}/ns/net", pod.id());
        let there = settings(json!({"type": "network", "path": path}));
        let none = settings(json!({"type": "network"}));
        pod.kill().unwrap();
        pod.wait().unwrap();
        for line in ["\"NCCL_SOCKET_IFNAME==eth7\"", "\"GLOO_SOCKET_IFNAME=eth7\""] {
            assert!(there.contains(line), "{there}");
        }
        assert!(!none.contains("IFNAME"), "{none}");
    }

    #[test]
    fn what_the_user_has_set_stays() {
        let mut config = json!({"process": {"env": ["A=1"]}});
        set(&mut config, "A", "2").unwrap();
        set(&mut config, "B", "3").unwrap();
        assert_eq!(config["process"]["env"], json!(["A=1", "B=3"]));
        let mut bare = json!({"process": {}});
        set(&mut bare, "B", "3").unwrap();
        assert_eq!(bare["process"]["env"], json!(["B=3"]));
        assert!(set(&mut json!({"process": {"env": {}}}), "A", "1").is_err());
    }

    #[test]
    fn a_container_that_asks_for_nothing_gets_nothing_and_a_wrong_word_is_named() {
        let none = json!({"process": {"env": []}});
        let mut config = none.clone();
        add(&mut config, &[], None, Path::new("/nonexistent")).unwrap();
        assert_eq!(config, none);
        for (value, word) in [(json!("nccl,x"), "\"x\" is none of nccl"), (json!(1), "a string")] {
            let mut config = json!({"annotations": {SETTINGS: value}, "process": {"env": []}});
            let error = add(&mut config, &[], None, Path::new("/nonexistent")).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
