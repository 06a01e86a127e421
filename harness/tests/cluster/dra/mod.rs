//! `verbgate dra` between a kubelet and a cluster.
//!
//! curl is the kubelet, whose gRPC is HTTP/2. A server of this file stands for the cluster's API server, since none is
//! in Debian: the server keeps one slice as applying it twice would, and one claim.

mod kubelet;

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;

use kubelet::Claim;
use kubelet::Claims;
use kubelet::Device;
use kubelet::Info;
use kubelet::Prepared;
use kubelet::Status;
use kubelet::Unprepared;
use kubelet::ask;
use serde_json::Value;
use serde_json::json;
use tempfile::TempDir;
use verbgate_sysfs_fixtures::Fixture;
use verbgate_wait::until;

use crate::common::has;
use crate::common::stderr;
use crate::common::verbgate;

const SLICE: &str = "n1-verbgate.org";
const DESCRIBED: &str =
    r#"{"kind": "verbgate.org/rdma", "containerEdits": {"hooks": [{"path": "/opt/v"}]}}"#;

/// What the cluster has.
#[derive(Debug, Default)]
struct Cluster {
    versions: Vec<&'static str>,
    slice: Option<Value>,
    claim: Option<Value>,
    heads: Vec<String>,
}

impl Cluster {
    fn answer(&mut self, verb: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let absent = (404, json!({ "message": "not found" }));
        if path == "/apis/resource.k8s.io" {
            if self.versions.is_empty() {
                return absent;
            }
            let all = self.versions.iter().map(|version| json!({ "version": version }));
            return (200, json!({ "versions": all.collect::<Vec<_>>() }));
        }
        if path == "/api/v1/nodes/n1" {
            return (200, json!({ "metadata": { "uid": "uid-of-n1" } }));
        }
        let version = self
            .versions
            .iter()
            .find_map(|version| path.strip_prefix(&format!("/apis/resource.k8s.io/{version}/")));
        let slices = format!("resourceslices/{SLICE}");
        let found = |object: &Option<Value>| object.clone().map_or(absent.clone(), |it| (200, it));
        match (verb, version) {
            ("GET", Some(rest)) if rest == slices => found(&self.slice),
            ("PATCH", Some(rest))
                if rest == format!("{slices}?fieldManager=verbgate&force=true") =>
            {
                self.slice = Some(serde_json::from_slice(body).unwrap());
                (201, self.slice.clone().unwrap())
            }
            ("DELETE", Some(rest)) if rest == slices => found(&self.slice.take()),
            ("GET", Some("namespaces/ml/resourceclaims/nics")) => found(&self.claim),
            ("GET", Some("namespaces/ml/resourceclaims/secret")) => {
                (403, json!({ "message": "resourceclaims is forbidden" }))
            }
            _ => absent,
        }
    }

    fn serve(all: &Mutex<Self>, stream: TcpStream) {
        let mut reader = BufReader::new(&stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        let mut words = head.split(' ');
        let (verb, path) = (words.next().unwrap(), words.next().unwrap());
        let (status, answer) = all.lock().unwrap().answer(verb, path, &body);
        let answer = answer.to_string();
        let length = answer.len();
        let text = format!(
            "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
        );
        all.lock().unwrap().heads.push(head);
        // A driver that ends in between reads no answer.
        let _ = (&stream).write_all(text.as_bytes());
    }

    /// The cluster, and its address.
    fn start(versions: &[&'static str]) -> (Arc<Mutex<Self>>, String) {
        let cluster = Arc::new(Mutex::new(Self { versions: versions.to_vec(), ..Self::default() }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let all = Arc::clone(&cluster);
        thread::spawn(move || {
            for stream in listener.incoming() {
                Self::serve(&all, stream.unwrap());
            }
        });
        (cluster, address)
    }
}

/// A node with a kubelet's folders and eight GPUs' NICs.
struct Node {
    dir: TempDir,
}

impl Node {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("kubelet/plugins_registry")).unwrap();
        fs::create_dir(dir.path().join("sys")).unwrap();
        Fixture::named("hgx").unwrap().write(&dir.path().join("sys")).unwrap();
        // As `verbgate cdi refresh` leaves it.
        fs::create_dir_all(dir.path().join("run/cdi")).unwrap();
        fs::write(dir.path().join("run/cdi/verbgate.json"), DESCRIBED).unwrap();
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn registration(&self) -> PathBuf {
        self.path("kubelet/plugins_registry/verbgate.org-reg.sock")
    }

    fn driver(&self, server: &str) -> Command {
        let mut driver = Command::new(verbgate());
        driver.args(["dra", "--node", "n1", "--server", server, "--kubelet-dir"]);
        driver.arg(self.path("kubelet")).arg("--sysfs-root").arg(self.path("sys"));
        driver.arg("--account").arg(self.path("account"));
        driver.arg("--host-root").arg(self.dir.path());
        driver
    }
}

/// A driver, which ends with its test.
struct Driver(Child);

impl Driver {
    fn start(mut command: Command) -> Self {
        Self(command.stderr(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // One that has ended is ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn end(mut driver: Driver) -> String {
    let driver = &mut driver.0;
    let pid = rustix::process::Pid::from_child(driver);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut said = String::new();
    driver.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(driver.wait().unwrap().success(), "{said}");
    said
}

/// From registration to a claim's devices, with each version that kubelets and clusters have.
fn gives_a_claim_its_devices(service: &str, versions: &[&'static str]) {
    let (cluster, server) = Cluster::start(versions);
    let node = Node::new();
    let driver = Driver::start(node.driver(&server));
    until("the slice", || cluster.lock().unwrap().slice.is_some());
    let slice = cluster.lock().unwrap().slice.clone().unwrap();
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "uid-of-n1");
    assert_eq!(
        slice["spec"]["pool"],
        json!({ "name": "n1", "generation": 1, "resourceSliceCount": 1 })
    );
    let devices = slice["spec"]["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 12);
    let one = devices.iter().find(|one| one["name"] == "mlx5-5").unwrap();
    let one = if versions.contains(&"v1") { one } else { &one["basic"] };
    assert_eq!(one["attributes"]["resource.kubernetes.io/pcieRoot"]["string"], "pci0000:53");

    let registration = node.registration();
    let info: Info = ask(&registration, "pluginregistration.Registration/GetInfo", &()).unwrap();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", "verbgate.org"));
    assert_eq!(info.versions, ["v1.DRAPlugin", "v1beta1.DRAPlugin"]);
    let status = Status { registered: true, error: String::new() };
    let notify = "pluginregistration.Registration/NotifyRegistrationStatus";
    ask::<()>(&registration, notify, &status).unwrap();

    let result = |driver: &str, device: &str| json!({ "request": "nic", "driver": driver, "pool": "n1", "device": device });
    let results = [result("verbgate.org", "mlx5-5"), result("gpu.example.com", "gpu-0")];
    let config = json!([{
        "source": "FromClass", "requests": [], "opaque": { "driver": "verbgate.org", "parameters": {
            "apiVersion": "verbgate.org/v1", "kind": "RdmaParameters", "tenant": "gold",
        } },
    }]);
    cluster.lock().unwrap().claim = Some(json!({
        "metadata": { "uid": "u1" },
        "status": { "allocation": { "devices": { "results": results, "config": config } } },
    }));
    let claim = |uid: &str, name: &str| {
        let (namespace, uid, name) = ("ml".to_owned(), uid.to_owned(), name.to_owned());
        Claim { namespace, uid, name }
    };
    // One that is good does not suffer from others.
    let claims = [
        claim("u1", "nics"),
        claim("u2", "none"),
        claim("u3", "../../pods"),
        claim("u4", "secret"),
    ];
    let claims = Claims { claims: claims.to_vec() };
    let endpoint = Path::new(&info.endpoint);
    let method = format!("k8s.io.kubelet.pkg.apis.dra.{service}.DRAPlugin/NodePrepareResources");
    let mut answer: Prepared = ask(endpoint, &method, &claims).unwrap();
    let good = answer.claims.remove("u1").unwrap();
    assert_eq!(good.error, "");
    let wanted = Device {
        requests: vec!["nic".into()],
        pool: "n1".into(),
        device: "mlx5-5".into(),
        cdi: vec!["verbgate.org/rdma=mlx5_5".into(), "verbgate.org/claim=uid-u1".into()],
    };
    assert_eq!(good.devices, [wanted]);
    let record = node.path("run/cdi/verbgate-claim-u1.json");
    let told: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    let hook = &told["devices"][0]["containerEdits"]["hooks"][0];
    assert_eq!(hook["path"], "/opt/v");
    assert_eq!(hook["args"][3], r#"{"claim":"ml/nics","tenant":"gold"}"#);
    for (uid, needle) in [("u2", "404"), ("u3", "impossible name"), ("u4", "ClusterRole")] {
        let bad = answer.claims.remove(uid).unwrap();
        assert!(bad.devices.is_empty() && bad.error.contains(needle), "{bad:?}");
    }
    let again: Prepared =
        ask(endpoint, &method, &Claims { claims: vec![claim("old", "nics")] }).unwrap();
    assert!(again.claims["old"].error.contains("made anew"), "{again:?}");
    let unprepare = method.replace("Prepare", "Unprepare");
    let undone: Unprepared = ask(endpoint, &unprepare, &claims).unwrap();
    assert_eq!(undone.claims.len(), 4);
    assert!(undone.claims.values().all(|one| one.error.is_empty()));
    // Once more is no error, and a uid that leads elsewhere is no file's name.
    let odd = Claims { claims: vec![claim("u1", "nics"), claim("../cdi/verbgate", "nics")] };
    let undone: Unprepared = ask(endpoint, &unprepare, &odd).unwrap();
    assert_eq!(undone.claims["u1"].error, "");
    assert!(undone.claims["../cdi/verbgate"].error.contains("impossible"), "{undone:?}");
    assert_eq!(fs::read_dir(node.path("run/cdi")).unwrap().count(), 1);
    ask::<Prepared>(endpoint, &method, &claims).unwrap();
    assert!(record.exists());
    let unknown = ask::<()>(endpoint, &method.replace("Prepare", "Steal"), &claims);
    assert_eq!(unknown.unwrap_err(), "12");
    // No token goes over a connection that anybody can read.
    assert!(!cluster.lock().unwrap().heads.concat().contains("Authorization"));

    let said = end(driver);
    assert!(said.contains("published 12 RDMA devices") && said.contains("registered"), "{said}");
    assert!(!registration.exists() && !endpoint.exists());
    // The next driver finds the slice as it should be; a changed one gets a new generation.
    let driver = Driver::start(node.driver(&server));
    let asks = cluster.lock().unwrap().heads.len();
    until("another look", || cluster.lock().unwrap().heads.len() >= asks + 2);
    let said = end(driver);
    assert!(!said.contains("published"), "{said}");
    cluster.lock().unwrap().slice.as_mut().unwrap()["spec"]["devices"] = json!([]);
    let driver = Driver::start(node.driver(&server));
    let generation =
        || cluster.lock().unwrap().slice.as_ref().unwrap()["spec"]["pool"]["generation"].clone();
    until("a new generation", || generation() == 2);
    end(driver);
    assert!(node.driver(&server).arg("--withdraw").status().unwrap().success());
    assert_eq!(cluster.lock().unwrap().slice, None);
    assert!(!record.exists());
    assert!(node.driver(&server).arg("--withdraw").status().unwrap().success());
}

#[test]
fn a_claim_is_given_its_devices_by_v1() {
    if has("curl") {
        gives_a_claim_its_devices("v1", &["v1", "v1beta2", "v1beta1"]);
    }
}

#[test]
fn a_claim_is_given_its_devices_by_v1beta1() {
    if has("curl") {
        gives_a_claim_its_devices("v1beta1", &["v1beta1", "v1alpha3"]);
    }
}

/// What is missing is named, with the remedy.
#[test]
fn what_is_missing_is_named() {
    if !has("curl") {
        return;
    }
    let node = Node::new();
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        stderr(&output)
    };
    let (_cluster, old) = Cluster::start(&[]);
    let (_cluster, older) = Cluster::start(&["v1alpha2"]);
    let none = "http://127.0.0.1:1";
    for (server, needle) in
        [(none, "cannot be reached"), (&old, "Kubernetes 1.34"), (&older, "v1alpha2")]
    {
        let text = said(node.driver(server).arg("--withdraw"));
        assert!(text.contains(needle), "{text}");
    }
    let text = said(node.driver("https://127.0.0.1:1").arg("--withdraw"));
    assert!(text.contains("account/token") && text.contains("--account"), "{text}");
    let mut pod = Command::new(verbgate());
    let text = said(pod.args(["dra", "--node", "n1"]).env_remove("KUBERNETES_SERVICE_HOST"));
    assert!(text.contains("KUBERNETES_SERVICE_HOST"), "{text}");
    let text = said(node.driver(none).args(["--node", "a/b"]));
    assert!(text.contains("--node"), "{text}");
    fs::remove_dir(node.path("kubelet/plugins_registry")).unwrap();
    let text = said(&mut node.driver(none));
    assert!(text.contains("--kubelet-dir"), "{text}");
    // A cluster that is not there yet is waited for; a kubelet that refuses is told of.
    fs::create_dir(node.path("kubelet/plugins_registry")).unwrap();
    let driver = Driver::start(node.driver(none));
    until("the socket", || node.registration().exists());
    let refused = Status { registered: false, error: "none of the versions\nis known".into() };
    let notify = "pluginregistration.Registration/NotifyRegistrationStatus";
    ask::<()>(&node.registration(), notify, &refused).unwrap();
    let text = end(driver);
    assert!(text.contains("cannot be reached") && text.contains("a kubelet of 1.34"), "{text}");
}
