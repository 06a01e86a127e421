//! A cluster of one node: API server, scheduler, controllers and kubelet of Kubernetes, with containerd.
//!
//! Only on demand (`cargo xtask engines --cluster`), since Debian has no package of these programs: they are built
//! from the source package of bookworm, which takes minutes. The version, 1.20, is older than claims (DRA).

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use verbgate_wait::Stalled;
use verbgate_wait::Wait;

use crate::common::chart;
use crate::common::stderr;
use crate::common::stdout;
use crate::engines::containerd;
use crate::engines::image;
use crate::engines::node;
use crate::engines::pods::HANDLER;
use crate::engines::pods::Node;
use crate::engines::shared;
use crate::engines::world::Daemon;
use crate::engines::world::World;

/// Names the folder with the cluster's programs: one for etcd, and one that is all others by their names.
const PROGRAMS: &str = "VERBGATE_CLUSTER";
const NAMES: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"];
const SCRIPT: &str = include_str!("cluster.sh");
/// The programs in the world.
const DIR: &str = "/opt/cluster";
const ADDRESS: &str = "192.0.2.10";
const PORT: &str = "6443";
/// The port in hexadecimal digits, listening.
const LISTENS: [&str; 4] = ["grep", "-q", ":192B 00000000:0000 0A", "/proc/net/tcp"];
const TOKEN: &str = "of-the-cluster's-administrator";
struct Cluster {
    world: World,
    _programs: Daemon,
}

impl Cluster {
    fn of(mut world: World, programs: &Path) -> Self {
        fs::create_dir_all(world.path(DIR)).unwrap();
        for name in ["etcd", "allinone"] {
            fs::copy(programs.join(name), world.path(&format!("{DIR}/{name}"))).unwrap();
        }
        for name in NAMES {
            symlink("allinone", world.path(&format!("{DIR}/{name}"))).unwrap();
        }
        let key = Command::new("openssl").args(["genrsa", "2048"]).output().unwrap();
        world.write(&format!("{DIR}/account.key"), &key.stdout);
        node::program(&world, "/usr/bin/cluster", SCRIPT);
        let programs = world.start(&["cluster", DIR, TOKEN], &LISTENS);
        Self { world, _programs: programs }
    }

    /// A request to the API server.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let url = format!("https://{ADDRESS}:{PORT}{path}");
        let bearer = format!("Authorization: Bearer {TOKEN}");
        let mut words = vec!["curl", "--disable", "--silent", "--show-error", "--fail-with-body"];
        words.extend(["--noproxy", "*", "--insecure", "--max-time", "30", "--request", method]);
        words.extend(["--header", &bearer, "--header", "Content-Type: application/json"]);
        let body = body.map(Value::to_string);
        words.extend(body.iter().flat_map(|body| ["--data", body.as_str()]));
        words.push(&url);
        let output = self.world.beside(&words);
        let text = stdout(&output);
        let answer = serde_json::from_str(&text);
        match answer {
            Ok(answer) if output.status.success() => Ok(answer),
            _ => Err(format!("{method} {path}: {text} {}", stderr(&output))),
        }
    }

    fn make(&self, path: &str, object: &Value) {
        // The first objects come before the controllers have made the account that pods run as.
        self.await_some(path, || self.ask("POST", path, Some(object)));
    }

    /// Asks again and again, until there is an answer.
    fn await_some<T>(&self, what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
        let mut why = String::new();
        let answer = Wait::new(what).try_until(|| match ask() {
            Ok(answer) => Ok::<_, Stalled>(Some(answer)),
            Err(not_yet) => {
                why = not_yet;
                thread::sleep(Duration::from_millis(500));
                Ok(None)
            }
        });
        answer.unwrap_or_else(|stalled| {
            let logs = self.world.sh("for log in /tmp/kube*.log /tmp/etcd.log; do echo \"-- $log\"
                grep -E '^[EF]|panic|\"error' $log | tail -n 12 | cut -c1-300; done");
            panic!("{stalled}\n{why}\n{logs}")
        })
    }

    /// The answer as soon as it is right.
    fn await_that(&self, path: &str, right: impl Fn(&Value) -> bool) -> Value {
        self.await_some(path, || {
            let answer = self.ask("GET", path, None)?;
            if right(&answer) { Ok(answer) } else { Err(answer["status"].to_string()) }
        })
    }

    /// Gives an object another specification, as an upgrade does.
    fn replace(&self, path: &str, wanted: &Value) {
        self.await_some(path, || {
            let mut object = self.ask("GET", path, None)?;
            object["spec"] = wanted["spec"].clone();
            self.ask("PUT", path, Some(&object))
        });
    }

    fn label(&self) -> Value {
        let node = self.ask("GET", "/api/v1/nodes/node1", None).unwrap();
        node["metadata"]["labels"]["verbgate.org/runtime"].clone()
    }

    fn delete(&self, pod: &str) {
        let path = format!("{PODS}/{pod}");
        self.ask("DELETE", &path, Some(&json!({"gracePeriodSeconds": 1}))).unwrap();
        self.await_some(&path, || match self.ask("GET", &path, None) {
            Ok(_) => Err("the pod is still there".to_owned()),
            Err(why) if why.contains("NotFound") => Ok(()),
            Err(why) => Err(why),
        });
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter().any(|one| one["type"] == condition && one["status"] == "True")
    })
}

/// A pod of two containers under the engine's default profile; the kubelet asks by exec whether the first can use the
/// device.
fn pod(name: &str) -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": image::NAME, "imagePullPolicy": "Never", "command": ["sleep", "1000"],
        })
    };
    let mut asks = container("asks");
    asks["readinessProbe"] = json!({
        "exec": {"command": image::ASK}, "periodSeconds": 2, "timeoutSeconds": 20, "failureThreshold": 30,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {}},
        "spec": {
            "runtimeClassName": HANDLER,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "restartPolicy": "Never",
            "containers": [asks, container("waits")],
        },
    })
}

fn annotated(name: &str, device: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["annotations"]["org.verbgate.devices"] = device.into();
    pod
}

/// As most pods get RDMA without Verbgate: the folder with the nodes, mounted.
fn mounted(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["volumes"] =
        json!([{"name": "nodes", "hostPath": {"path": "/dev/infiniband", "type": "Directory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "nodes", "mountPath": "/dev/infiniband"}]);
    pod
}

/// As a device plug-in gives RDMA: the pod asks for a share, and the plug-in lists the node, to be opened by anybody.
fn sharing(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {shared::RESOURCE: "1"}});
    pod
}

/// What the chart makes, less what this old cluster does not know; where the API has each kind.
fn objects(uninstall: &str) -> Option<Vec<(String, Value)>> {
    let values = [("image", image::CHART), ("admission", "no"), ("uninstall", uninstall)];
    let mut all = chart::rendered(&values)?;
    for one in all.iter_mut().filter(|one| one["kind"] == "DaemonSet") {
        let spec = &mut one["spec"]["template"]["spec"];
        // No program carries a service's address to the API server here.
        spec["hostNetwork"] = true.into();
        let env = spec["containers"][0]["env"].as_array_mut().unwrap();
        env.push(json!({"name": "KUBERNETES_SERVICE_HOST", "value": ADDRESS}));
        env.push(json!({"name": "KUBERNETES_SERVICE_PORT", "value": PORT}));
    }
    let placed = all.into_iter().map(|one| {
        let kinds = format!("{}s", one["kind"].as_str().unwrap().to_lowercase());
        let kinds = kinds.replace("classs", "classes");
        let version = one["apiVersion"].as_str().unwrap();
        let root = if version.contains('/') { "/apis" } else { "/api" };
        let space = match one["metadata"]["namespace"].as_str() {
            Some(space) => format!("namespaces/{space}/"),
            None => String::new(),
        };
        (format!("{root}/{version}/{space}{kinds}"), one)
    });
    Some(placed.collect())
}

const SPACE: &str = "site";
const DAEMONS: &str = "/apis/apps/v1/namespaces/site/daemonsets";
const ITS_PODS: &str = "/api/v1/namespaces/site/pods";
/// What the pods of the chart have said.
const SAID: &str = "cat /var/log/pods/site_verbgate-*/node/*.log 2>/dev/null; true";
/// What a node has of Verbgate, beside the engine's configuration.
const TRACES: &str = "find /usr/local/bin /run/cdi ! -type d 2>/dev/null
    ls -d /run/verbgate /var/lib/verbgate 2>/dev/null; true";

#[test]
fn of_one_node() {
    let Some(programs) = env::var_os(PROGRAMS).map(PathBuf::from) else {
        eprintln!("SKIPPED: needs Kubernetes' programs: cargo xtask engines --cluster");
        return;
    };
    let (Some(installs), Some(removes)) = (objects("no"), objects("yes")) else { return };
    let Some(mut world) = World::of("trixie") else { return };
    Node::equip(&world);
    if !image::of_the_chart(&world) {
        return;
    }
    world.sh("rm -f /usr/bin/verbgate-oci-runc");
    let found = world.read(containerd::FILE).unwrap();
    let daemon = containerd::start(&mut world);
    for archive in [image::ARCHIVE, image::CHARTS] {
        world.done(&["ctr", "--namespace=k8s.io", "image", "import", archive]);
    }
    assert_eq!(world.sh(TRACES), "");
    let mut cluster = Cluster::of(world, &programs);
    cluster.await_that("/api/v1/nodes/node1", |node| is_true(node, "Ready"));

    // The chart. The node's label follows the restart of the engine.
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}});
    cluster.make("/api/v1/namespaces", &space);
    installs.iter().for_each(|(path, object)| cluster.make(path, object));
    cluster.await_some("the node's script", || match cluster.world.sh(TRACES) {
        traces if traces.contains("/run/cdi/verbgate.json") => Ok(()),
        traces => Err(format!("{traces} {}", cluster.world.sh(SAID))),
    });
    assert_eq!(cluster.label(), Value::Null);
    daemon.stop();
    let daemon = containerd::start(&mut cluster.world);
    // It is looked once a minute; a new pod looks at once.
    cluster.ask("DELETE", ITS_PODS, None).unwrap();
    cluster.await_some("the label", || match cluster.label() {
        Value::Null => Err(cluster.world.sh(SAID)),
        label => {
            assert_eq!(label, "true");
            Ok(())
        }
    });

    shared::start(&cluster.world);
    cluster.await_that("/api/v1/nodes/node1", |node| {
        node["status"]["allocatable"][shared::RESOURCE] == shared::SHARES
    });
    cluster.make(PODS, &annotated("annotated", "mlx5_0"));
    cluster.make(PODS, &mounted("mounted"));
    cluster.make(PODS, &sharing("shared"));
    for name in ["annotated", "mounted", "shared"] {
        cluster.await_that(&format!("{PODS}/{name}"), |pod| is_true(pod, "Ready"));
    }
    let supervised = cluster.world.supervised();
    let mut of: Vec<&str> =
        supervised.iter().filter_map(|one| one["pod"]["name"].as_str()).collect();
    of.sort_unstable();
    // Both containers of the one that is annotated, and of the others the one that has the device.
    assert_eq!(of, ["annotated", "annotated", "mounted", "shared"], "{supervised:?}");

    // What an operator sees of a wish that cannot be granted.
    cluster.make(PODS, &annotated("wrong", "mlx5_9"));
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=wrong";
    let told = cluster.await_that(events, |events| events.to_string().contains("mlx5_9"));
    assert!(told.to_string().contains("verbgate"), "{told}");
    cluster.delete("wrong");

    // The chart, told to take itself back: as long as there are pods with RDMA, the node is not touched.
    let (_, removes) = removes.iter().find(|(path, _)| path == DAEMONS).unwrap();
    cluster.replace(&format!("{DAEMONS}/verbgate"), removes);
    cluster.await_some("the refusal", || match cluster.world.sh(SAID) {
        said if said.contains("can end cleanly: 4") => Ok(()),
        said => Err(said),
    });
    ["annotated", "mounted", "shared"].iter().for_each(|name| cluster.delete(name));
    cluster.await_some("the node to be as it was", || match cluster.world.sh(TRACES) {
        traces if traces.is_empty() && cluster.world.sh(SAID).contains("as it was") => Ok(()),
        traces => Err(format!("{traces} {}", cluster.world.sh(SAID))),
    });
    assert_eq!(cluster.label(), Value::Null);
    assert_eq!(cluster.world.read(containerd::FILE), Some(found));
    for (path, object) in &installs {
        let name = object["metadata"]["name"].as_str().unwrap();
        cluster.ask("DELETE", &format!("{path}/{name}"), None).unwrap();
    }
    cluster.await_that(ITS_PODS, |pods| pods["items"] == json!([]));
    daemon.stop();
    let daemon = containerd::start(&mut cluster.world);
    // A node as any other.
    let mut plain = pod("plain");
    plain["spec"].as_object_mut().unwrap().remove("runtimeClassName");
    plain["spec"]["containers"] = json!([plain["spec"]["containers"][1]]);
    cluster.make(PODS, &plain);
    cluster.await_that(&format!("{PODS}/plain"), |pod| is_true(pod, "Ready"));
    cluster.delete("plain");
    daemon.stop();
}
