//! The manifests of `dist/kubernetes` and the chart of `dist/helm`, run on each node of a cluster: each container's
//! command and environment as the file has them, in a pod of the node's machine. This test is kubelet and cluster;
//! a program that writes its words down stands for curl, by which the chart's script speaks to the cluster.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use serde_json::Value;

use crate::common::CONTAINERD_1;
use crate::common::chart::read;
use crate::common::chart::rendered;
use crate::common::stdout;
use crate::machine::Machine;
use crate::machine::tool;
use crate::nodes::Fabric;
use crate::nodes::Nodes;
use crate::nodes::dist;
use crate::world::until;

/// What stands for curl, and a pod's token.
const CLUSTER: &str = r#"
printf '#!/bin/sh\ncat >/dev/null\necho "$*" >>/run/labels\n' >usr/bin/curl
chmod 755 usr/bin/curl
mkdir -p run/secrets/kubernetes.io/serviceaccount
echo not-to-be-seen >run/secrets/kubernetes.io/serviceaccount/token
"#;

fn words(container: &Value) -> Vec<String> {
    let of = |key: &str| container[key].as_array().cloned().unwrap_or_default();
    let all = [of("command"), of("args")].concat();
    all.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// A container's environment, with what a kubelet puts into every one.
fn environment(container: &Value, node: &str) -> Vec<(String, String)> {
    let value = |one: &Value| match one["value"].as_str() {
        Some(value) => value.to_owned(),
        None => {
            assert_eq!(one["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName", "{one}");
            node.to_owned()
        }
    };
    let given = container["env"].as_array().cloned().unwrap_or_default();
    let given = given.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), value(one)));
    let service = [("KUBERNETES_SERVICE_HOST", "192.0.2.1"), ("KUBERNETES_SERVICE_PORT", "443")];
    given.chain(service.map(|(a, b)| (a.to_owned(), b.to_owned()))).collect()
}

/// The image's files, where the Dockerfile puts them.
fn image() -> String {
    let text = fs::read_to_string(dist("docker/Dockerfile")).unwrap();
    let copies = text.lines().filter_map(|line| line.strip_prefix("COPY ")?.split_once(' '));
    let put = |(from, to): (&str, &str)| {
        let from = match from.strip_prefix("harness/dist/") {
            Some(of_dist) => PathBuf::from(dist(of_dist)),
            None => tool(),
        };
        format!("put {} {}\n", from.display(), to.trim_start_matches('/'))
    };
    copies.map(put).collect()
}

/// A pod that runs.
struct Pod(Child);

impl Pod {
    fn stop(mut self) -> String {
        let group = format!("-{}", self.0.id());
        Command::new("kill").args(["-s", "TERM", "--", &group]).status().unwrap();
        let mut told = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        self.0.wait().unwrap();
        told
    }
}

/// The DaemonSet's pod on a node.
fn daemon(machine: &Machine, set: &Value, pod: &str) -> Pod {
    let spec = &set["spec"]["template"]["spec"];
    // The script enters the machine by its first process.
    assert_eq!(spec["hostPID"], true);
    let [container] = &spec["containers"].as_array().unwrap()[..] else { panic!("{spec}") };
    let mut files = image() + CLUSTER;
    for mount in container["volumeMounts"].as_array().unwrap() {
        let all = spec["volumes"].as_array().unwrap();
        let volume = all.iter().find(|one| one["name"] == mount["name"]).unwrap();
        let path = volume["hostPath"]["path"].as_str().unwrap();
        let inside = mount["mountPath"].as_str().unwrap().trim_start_matches('/');
        files += &format!("mkdir -p {path} {inside}\nmount --bind {path} {inside}\n");
    }
    let mut command = machine.pod(pod, &files, &words(container));
    command.envs(environment(container, &machine.name));
    Pod(command.stderr(Stdio::piped()).spawn().unwrap())
}

/// Waits for what a pod of each machine does, which takes all of them together about as long as one.
fn each(machines: &[Machine], pods: &mut [Pod], what: &str, is_so: impl Fn(&Machine) -> bool) {
    for (machine, Pod(pod)) in machines.iter().zip(pods) {
        until(&format!("{what} of {}", machine.name), || {
            if let Some(status) = pod.try_wait().unwrap() {
                let mut told = String::new();
                pod.stderr.take().unwrap().read_to_string(&mut told).unwrap();
                panic!("{}: {status}: {told}", machine.name);
            }
            is_so(machine)
        });
    }
}

fn by_chart(count: u8) {
    let Some(nodes) = Nodes::new(count, Fabric::Flat) else { return };
    let (Some(chart), Some(gone)) = (rendered(&[]), rendered(&[("uninstall", "yes")])) else {
        return;
    };
    let [runs, ends] =
        [&chart, &gone].map(|all| all.iter().find(|one| one["kind"] == "DaemonSet").unwrap());
    let before = nodes.dumps();
    let machines = nodes.machines();
    for machine in &machines {
        let engine = machine.file("/usr/bin/containerd");
        fs::write(&engine, CONTAINERD_1).unwrap();
        fs::set_permissions(&engine, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut pods: Vec<Pod> = machines.iter().map(|one| daemon(one, runs, "run")).collect();
    each(&machines, &mut pods, "the label", |one| {
        one.read("/run/pods/run/labels").contains("verbgate.org/runtime")
    });
    for (machine, pod) in machines.iter().zip(pods) {
        let told = pod.stop();
        assert!(told.contains("installed /usr/local/bin/verbgate"), "{told}");
        let label = machine.read("/run/pods/run/labels");
        assert!(label.contains(&format!("/api/v1/nodes/{}\n", machine.name)), "{label}");
        // Every user of the host can read a program's arguments.
        assert!(!label.contains("not-to-be-seen"), "{label}");
        // An engine that does not run will read the file when it starts.
        assert!(label.contains("runtime\": \"true\""), "{label}");
        let engine = machine.read("/etc/containerd/config.toml");
        assert!(
            engine.contains("runtimes.verbgate") && engine.contains("/usr/local/bin"),
            "{engine}"
        );
        let spec = machine.read("/run/cdi/verbgate.json");
        assert!(spec.contains("\"mlx5_1\"") && spec.contains("/usr/local/bin/verbgate"), "{spec}");
        assert!(machine.ok(&["/usr/local/bin/verbgate", "--version"]).starts_with("verbgate "));
        for wrapper in ["verbgate-oci-runc", "verbgate-oci-crun"] {
            let link = machine.file(&format!("/usr/local/bin/{wrapper}"));
            assert_eq!(fs::read_link(link).unwrap(), Path::new("verbgate"));
        }
    }
    let mut pods: Vec<Pod> = machines.iter().map(|one| daemon(one, ends, "end")).collect();
    let traces = "find /usr/local/bin /run/cdi ! -type d -name 'verbgate*'; ls -d /run/verbgate /var/lib/verbgate; true";
    let left = |one: &Machine| stdout(&one.run(&["sh", "-c", traces]));
    each(&machines, &mut pods, "the end", |one| {
        let label = one.read("/run/pods/end/labels");
        label.contains("runtime\": null") && left(one).is_empty()
    });
    for (machine, pod) in machines.iter().zip(pods) {
        let told = pod.stop();
        assert!(told.contains("this node is as it was"), "{told}");
        assert!(!machine.read("/etc/containerd/config.toml").contains("verbgate"));
    }
    drop(machines);
    nodes.home_again(&before);
}

#[test]
fn the_chart_serves_two_machines() {
    by_chart(2);
}

#[test]
fn the_chart_serves_sixteen_machines() {
    by_chart(16);
}

/// One pod on each machine: its name, the service's, the container, and what the kubelet adds to the environment.
type Rank<'a> = (String, &'a str, &'a Value, Option<String>);

/// All ranks of a fabric, which meet over the nodes' rails. No device opens here, which each rank says of its own,
/// and of the others: for that, all have met.
fn ranks(nodes: &Nodes, ranks: &[Rank<'_>]) {
    let machines = nodes.machines();
    let address = |rank: usize| nodes.address(rank + 1);
    let hosts: String = ranks
        .iter()
        .enumerate()
        .map(|(at, (name, service, ..))| format!("{} {name}.{service} {name}\n", address(at)))
        .collect();
    let start = |(machine, (name, _, container, index)): (&Machine, &Rank<'_>)| {
        let files = format!("{}cat >etc/hosts <<'END'\n{hosts}END\n", image());
        let mut command = machine.pod(name, &files, &words(container));
        command.envs(environment(container, &machine.name));
        command.envs(index.iter().map(|index| ("JOB_COMPLETION_INDEX", index)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let pods: Vec<Child> = machines.iter().zip(ranks).map(start).collect();
    let outputs = pods.into_iter().map(|pod| pod.wait_with_output().unwrap());
    let mut tables = BTreeSet::new();
    for (rank, output) in outputs.enumerate() {
        let told = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let (table, rest) = told.strip_prefix("rank table ").unwrap().split_once(": ").unwrap();
        tables.insert(table.to_owned());
        let expected = if rank == 0 {
            format!("{} ranks\n", ranks.len())
        } else {
            format!("this is rank {rank}\n")
        };
        assert!(rest.starts_with(&expected), "{told}");
        for (at, (name, ..)) in ranks.iter().enumerate().filter(|_| rank == 0) {
            assert!(told.contains(&format!("rank {at} on {name}\n")), "{told}");
            assert!(told.contains(&format!("FAIL  rank {at}, rail 1: ")), "{told}");
        }
    }
    assert_eq!(tables.len(), 1, "{tables:?}");
}

fn by_job(count: u8, fabric: Fabric) {
    let Some(nodes) = Nodes::new(count, fabric) else { return };
    let Some(mut all) = read(&[dist("kubernetes/verify-job.yaml").into()]) else { return };
    let service = all.remove(0)["metadata"]["name"].as_str().unwrap().to_owned();
    let job = &mut all[0];
    // As the file's first lines say.
    let ranks_of = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["env"][0].clone();
    assert_eq!(ranks_of(job)["name"], "VERBGATE_RANKS");
    assert_eq!(ranks_of(job)["value"], job["spec"]["completions"].to_string());
    assert_eq!(job["spec"]["completions"], job["spec"]["parallelism"]);
    let container = &mut job["spec"]["template"]["spec"]["containers"][0];
    container["env"][0]["value"] = count.to_string().into();
    let (container, spec) = (container.clone(), &job["spec"]["template"]["spec"]);
    assert_eq!(
        (&job["spec"]["completionMode"], &spec["subdomain"]),
        (&"Indexed".into(), &service.clone().into())
    );
    let name = job["metadata"]["name"].as_str().unwrap();
    let pods: Vec<Rank<'_>> = (0..count)
        .map(|index| (format!("{name}-{index}"), &*service, &container, Some(index.to_string())))
        .collect();
    ranks(&nodes, &pods);
}

#[test]
fn the_jobs_ranks_meet_on_two_machines() {
    by_job(2, Fabric::Flat);
    by_job(2, Fabric::Routed);
}

#[test]
fn the_jobs_ranks_meet_on_sixteen_machines() {
    by_job(16, Fabric::Flat);
}

#[test]
fn the_two_pods_meet() {
    let Some(nodes) = Nodes::new(2, Fabric::Flat) else { return };
    let Some(all) = read(&[dist("kubernetes/two-ranks.yaml").into()]) else { return };
    let pod = |one: &&Value| one["kind"] == "Pod";
    fn rank(one: &Value) -> Rank<'_> {
        let text = |key: &str| one["spec"][key].as_str().unwrap();
        (text("hostname").to_owned(), text("subdomain"), &one["spec"]["containers"][0], None)
    }
    let pods: Vec<Rank<'_>> = all.iter().filter(pod).map(rank).collect();
    assert_eq!(pods.len(), 2);
    ranks(&nodes, &pods);
}
