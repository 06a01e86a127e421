//! `verbgate fabric` under launchers, which tell who a rank is and where the ranks meet: no rank is
//! given a number or a rendezvous by hand. No device is needed: ranks that have none meet, and say so.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;

use crate::common::has;
use crate::common::is_root;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use serde_json::Value;

/// What tells ranks who they are, and must come from the launcher under test alone.
const VARIABLES: [&str; 9] = [
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMI_FD",
    "PMIX_NAMESPACE",
    "RANK",
    "WORLD_SIZE",
    "JOB_COMPLETION_INDEX",
    "VERBGATE_RENDEZVOUS",
];

/// All ranks met, each is known to rank 0, and nobody else.
fn met(report: &Path, ranks: usize) {
    let text = fs::read_to_string(report).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let causes = report["causes"].as_array().unwrap();
    let found: Vec<&Value> = causes.iter().map(|one| &one["ranks"][0]).collect();
    assert!(causes.iter().all(|one| one["cause"] == "no-device"), "{text}");
    assert_eq!(found, (0..ranks).collect::<Vec<_>>(), "{text}");
}

/// Under a real launcher. A rank that exits with 1 must not have the launcher end the others before they
/// have written, so the shell ends with 0.
fn launched(launcher: &str, options: &[&str]) {
    if !has(launcher) {
        return;
    }
    const RANKS: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let script = "\"$0\" fabric diagnose --device nosuchdevice --report \"$1\" >/dev/null\n\
                  echo \"code $?\"";
    let mut command = Command::new(launcher);
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.args(options).args(["-np", &RANKS.to_string(), "sh", "-c", script, verbgate()]);
    let output = command.arg(&report).stdin(Stdio::null()).output().unwrap();
    let told = stdout(&output);
    assert_eq!(told.matches("code 1").count(), RANKS, "{told}{}", stderr(&output));
    met(&report, RANKS);
}

/// MPICH's launcher: PMI-1 by a descriptor.
#[test]
fn mpich_starts_ranks_that_find_each_other() {
    launched("mpiexec.hydra", &[]);
}

/// Open MPI's launcher: a file in the job's own folder.
#[test]
fn open_mpi_starts_ranks_that_find_each_other() {
    launched("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"]);
}

/// As torchrun does.
#[test]
fn torchrun_starts_ranks_that_find_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    // Ranks meet at the port behind that of torchrun's own store.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: usize| {
        let mut command = Command::new(verbgate());
        command.args(["fabric", "diagnose", "--device", "nosuchdevice", "--report"]).arg(&report);
        VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("LOCAL_RANK", "0");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", (port - 1).to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for child in [start(0), start(1)] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    met(&report, 2);
}

/// The documents of the Job, by a reader of YAML.
fn manifest() -> Option<Vec<Value>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/dist/kubernetes/verify-job.yaml");
    let script =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let read = Command::new("python3").args(["-c", script, file]).output();
    match read.ok().filter(|output| output.status.success()) {
        Some(output) => Some(serde_json::from_slice(&output.stdout).unwrap()),
        None => {
            eprintln!("SKIPPED: needs python3 with yaml (python3-yaml)");
            None
        }
    }
}

/// The Job of `dist`, as Kubernetes starts it: a pod for each index, with its name, its names in
/// /etc/hosts, and the variables of the manifest. All addresses are loopback's.
#[test]
fn an_indexed_job_of_kubernetes_starts_ranks_that_find_each_other() {
    let Some(all) = manifest() else { return };
    let [service, job] = &all[..] else { panic!("{all:?}") };
    let (spec, name) = (&job["spec"], job["metadata"]["name"].as_str().unwrap());
    let pod = &spec["template"];
    assert_eq!((&service["kind"], &job["kind"]), (&"Service".into(), &"Job".into()));
    assert_eq!((&spec["completionMode"], &spec["backoffLimit"]), (&"Indexed".into(), &0.into()));
    let domain = service["metadata"]["name"].as_str().unwrap();
    assert_eq!(pod["spec"]["subdomain"], domain);
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert!(pod["metadata"]["annotations"]["org.verbgate.devices"].is_string());
    assert_eq!(pod["spec"]["runtimeClassName"], "verbgate");
    let container = &pod["spec"]["containers"][0];
    let ranks = spec["completions"].as_u64().unwrap();
    assert_eq!(spec["parallelism"], ranks);
    let [variable] = &container["env"].as_array().unwrap()[..] else { panic!("{container}") };
    assert_eq!(
        *variable,
        serde_json::json!({"name": "VERBGATE_RANKS", "value": ranks.to_string()})
    );
    if !is_root() || !has("unshare") || !has("ip") {
        return;
    }
    let words = container["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let words: Vec<&str> = words.skip(1).collect();
    let folder = tempfile::tempdir().unwrap();
    for index in 0..ranks {
        let full = |of: u64| format!("127.0.0.1 {name}-{of}.{domain}.ns.svc.cluster.local");
        // A pod's own names, and what the cluster's DNS would say.
        let text = format!("127.0.0.1 localhost\n{} {name}-{index}\n{}\n", full(index), full(0));
        fs::write(folder.path().join(format!("hosts{index}")), text).unwrap();
    }
    // One network for all pods, where no other job has rank 0's port.
    let script = "ip link set lo up && for n in $(seq 0 $(($VERBGATE_RANKS - 1))); do
        JOB_COMPLETION_INDEX=$n unshare --uts --mount sh -c '
            hostname \"$1\" && mount --bind \"$2\" /etc/hosts && shift 2 && exec \"$@\"
        ' pod \"$1-$n\" \"$2/hosts$n\" \"$3\" $4 --device nosuchdevice >\"$2/out$n\" 2>&1 &
        done; wait";
    let mut command = Command::new("unshare");
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.args(["--net", "sh", "-c", script, "job", name]).arg(folder.path()).arg(verbgate());
    command.arg(words.join(" ")).env("VERBGATE_RANKS", ranks.to_string()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for index in 0..ranks {
        let told = fs::read_to_string(folder.path().join(format!("out{index}"))).unwrap();
        let whom = match index {
            0 => format!(": {ranks} ranks\n"),
            _ => format!(": this is rank {index}\n"),
        };
        let table = told.lines().find(|line| line.starts_with("rank table "));
        assert!(table.is_some_and(|line| format!("{line}\n").contains(&whom)), "{told}");
    }
}
