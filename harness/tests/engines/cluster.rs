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
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::common::stderr;
use crate::common::stdout;
use crate::containerd;
use crate::image;
use crate::node;
use crate::pods::HANDLER;
use crate::pods::Node;
use crate::world::Daemon;
use crate::world::World;

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
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const CERTIFICATE: &str = "/var/lib/cluster/certificates/apiserver.crt";
/// A cluster takes its time, and machines are shared.
const PATIENCE: Duration = Duration::from_secs(240);

struct Cluster {
    world: World,
    _programs: Daemon,
}

/// A program of the host with its libraries, in the world: another suite's libraries may be newer or older.
fn lend(world: &World, name: &str) {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", name]).output().unwrap();
    let program = PathBuf::from(stdout(&found));
    let libraries = Command::new("ldd").arg(&program).output().unwrap();
    let text = stdout(&libraries);
    let libraries: Vec<&str> = text.split_whitespace().filter(|w| w.starts_with('/')).collect();
    let dir = format!("{DIR}/{name}");
    fs::create_dir_all(world.path(&dir)).unwrap();
    let mut loader = None;
    for file in libraries.iter().map(Path::new).chain([program.as_path()]) {
        let base = file.file_name().unwrap().to_str().unwrap();
        fs::copy(file, world.path(&format!("{dir}/{base}"))).unwrap();
        loader = loader.or_else(|| base.starts_with("ld-linux").then(|| base.to_owned()));
    }
    let loader = loader.unwrap();
    let script =
        format!("#!/bin/sh\nexec {dir}/{loader} --library-path {dir} {dir}/{name} \"$@\"\n");
    node::program(world, &format!("/usr/bin/{name}"), &script);
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
        let deadline = Instant::now() + PATIENCE;
        loop {
            match ask() {
                Ok(answer) => return answer,
                Err(why) if Instant::now() > deadline => {
                    let logs = self
                        .world
                        .sh("for log in /tmp/kube*.log /tmp/etcd.log; do echo \"-- $log\"
                        grep -E '^[EF]|panic|\"error' $log | tail -n 12 | cut -c1-300; done");
                    panic!("waited in vain for {what}: {why}\n{logs}");
                }
                Err(_) => thread::sleep(Duration::from_millis(500)),
            }
        }
    }

    /// The answer as soon as it is right.
    fn await_that(&self, path: &str, right: impl Fn(&Value) -> bool) -> Value {
        self.await_some(path, || {
            let answer = self.ask("GET", path, None)?;
            if right(&answer) { Ok(answer) } else { Err(answer["status"].to_string()) }
        })
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

/// `node.sh`, as the chart's DaemonSet runs it.
fn words(verb: &str) -> Vec<&str> {
    let mut words =
        vec!["env", "NODE=node1", "ENGINE=containerd", "RUNTIME=verbgate", "RESTART=no"];
    words.extend(["DRA=no", "KUBELET=/var/lib/kubelet", "KUBERNETES_SERVICE_HOST=192.0.2.10"]);
    words.extend(["KUBERNETES_SERVICE_PORT=6443", "/usr/bin/verbgate-node", verb]);
    words
}

#[test]
fn engines_cluster_of_one_node() {
    let Some(programs) = env::var_os(PROGRAMS).map(PathBuf::from) else {
        eprintln!("SKIPPED: needs Kubernetes' programs: cargo xtask engines --cluster");
        return;
    };
    let Some(mut world) = World::of("trixie") else { return };
    Node::equip(&world);
    world.sh("rm -f /usr/bin/verbgate-oci-runc && mkdir -p /usr/local/bin && ln -s / /host");
    node::program(&world, "/usr/bin/verbgate-node", node::SCRIPT);
    node::program(&world, "/usr/libexec/verbgate/prerm", node::PRERM);
    lend(&world, "curl");
    let found = world.read(containerd::FILE).unwrap();
    let daemon = containerd::start(&mut world);
    world.done(&["ctr", "--namespace=k8s.io", "image", "import", image::ARCHIVE]);
    let mut cluster = Cluster::of(world, &programs);
    cluster.await_that("/api/v1/nodes/node1", |node| is_true(node, "Ready"));
    cluster.world.write(&format!("{ACCOUNT}/token"), TOKEN.as_bytes());
    let certificate = cluster.world.read(CERTIFICATE).unwrap();
    cluster.world.write(&format!("{ACCOUNT}/ca.crt"), certificate.as_bytes());

    // The node's label follows the restart of the engine.
    let script = cluster.world.start(&words("run"), &["test", "-e", "/run/cdi/verbgate.json"]);
    assert_eq!(cluster.label(), Value::Null);
    script.stop();
    daemon.stop();
    let daemon = containerd::start(&mut cluster.world);
    let script = cluster.world.start(&words("run"), &["true"]);
    cluster.await_some("the label", || match cluster.label() {
        Value::Null => Err("no label".to_owned()),
        label => {
            assert_eq!(label, "true");
            Ok(())
        }
    });

    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": HANDLER},
        "handler": HANDLER, "overhead": {"podFixed": {"memory": "16Mi"}},
        "scheduling": {"nodeSelector": {"verbgate.org/runtime": "true"}},
    });
    cluster.make("/apis/node.k8s.io/v1/runtimeclasses", &class);
    cluster.make(PODS, &annotated("annotated", "mlx5_0"));
    cluster.make(PODS, &mounted("mounted"));
    for name in ["annotated", "mounted"] {
        cluster.await_that(&format!("{PODS}/{name}"), |pod| is_true(pod, "Ready"));
    }
    let supervised = cluster.world.supervised();
    let mut of: Vec<&str> =
        supervised.iter().filter_map(|one| one["pod"]["name"].as_str()).collect();
    of.sort_unstable();
    // Both containers of the one that is annotated, and the one with the mount of the other.
    assert_eq!(of, ["annotated", "annotated", "mounted"], "{supervised:?}");

    // What an operator sees of a wish that cannot be granted.
    cluster.make(PODS, &annotated("wrong", "mlx5_9"));
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=wrong";
    let told = cluster.await_that(events, |events| events.to_string().contains("mlx5_9"));
    assert!(told.to_string().contains("verbgate"), "{told}");
    cluster.delete("wrong");

    script.stop();
    let refused = cluster.world.run(&words("uninstall"));
    let why = stderr(&refused);
    assert!(!refused.status.success() && why.contains("can end cleanly: 3"), "{why}");
    cluster.delete("annotated");
    cluster.delete("mounted");
    let traces = "find /usr/local/bin /run/cdi ! -type d 2>/dev/null
        ls -d /run/verbgate /var/lib/verbgate 2>/dev/null; true";
    let gone = ["sh", "-c", &format!("test -z \"$({traces})\"")];
    let script = cluster.world.start(&words("uninstall"), &gone);
    script.stop();
    assert_eq!(cluster.label(), Value::Null);
    assert_eq!(cluster.world.read(containerd::FILE), Some(found));
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
