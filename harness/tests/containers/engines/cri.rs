//! A kubelet's part in making containers: requests of the Container Runtime Interface.
//!
//! Debian has no `crictl`. A request is gRPC: one message as the body of a POST by HTTP/2, which curl sends.

mod asks;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use prost::Message;
use tempfile::TempDir;
use verbgate_lab::Progress;
use verbgate_lab::require_program;

use crate::engines::world::World;

/// Where containerd listens, in its world.
const SOCKET: &str = "/run/containerd/containerd.sock";
/// Not compressed; the length follows in four bytes.
const PREFIX: [u8; 5] = [0; 5];
// Of `runtime.v1` in Kubernetes' api.proto, the fields that a kubelet sets for these pods or reads of them.

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PodMetadata>,
    #[prost(string, tag = "2")]
    hostname: String,
    #[prost(string, tag = "3")]
    log_directory: String,
    #[prost(map = "string, string", tag = "7")]
    annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    linux: Option<LinuxPod>,
}

#[derive(Clone, PartialEq, Message)]
struct PodMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxPod {
    #[prost(string, tag = "1")]
    cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    security: Option<PodSecurity>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSecurity {
    #[prost(message, optional, tag = "1")]
    namespaces: Option<Namespaces>,
    #[prost(message, optional, tag = "9")]
    seccomp: Option<Seccomp>,
}

/// The network: a pod's own, or with [`HOST`] the host's.
#[derive(Clone, Copy, PartialEq, Message)]
struct Namespaces {
    #[prost(int32, tag = "1")]
    network: i32,
}

const HOST: i32 = 2;
/// Where the engine writes what containers print.
pub(crate) const LOGS: &str = "/tmp/pods";

/// Without fields: the runtime's default profile. None at all: no profile.
#[derive(Clone, PartialEq, Message)]
struct Seccomp {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    file: String,
}

const LOCALHOST: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct RunPod {
    #[prost(message, optional, tag = "1")]
    config: Option<Pod>,
    #[prost(string, tag = "2")]
    handler: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Container {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<Image>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    envs: Vec<KeyValue>,
    #[prost(message, repeated, tag = "7")]
    mounts: Vec<Mount>,
    #[prost(message, repeated, tag = "8")]
    devices: Vec<Device>,
    #[prost(map = "string, string", tag = "10")]
    annotations: HashMap<String, String>,
    #[prost(string, tag = "11")]
    log_path: String,
    #[prost(message, optional, tag = "15")]
    linux: Option<LinuxContainer>,
    #[prost(message, repeated, tag = "17")]
    cdi: Vec<CdiDevice>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerMetadata {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Image {
    #[prost(string, tag = "1")]
    image: String,
}

#[derive(Clone, PartialEq, Message)]
struct Mount {
    #[prost(string, tag = "1")]
    inside: String,
    #[prost(string, tag = "2")]
    outside: String,
}

#[derive(Clone, PartialEq, Message)]
struct Device {
    #[prost(string, tag = "1")]
    inside: String,
    #[prost(string, tag = "2")]
    outside: String,
    #[prost(string, tag = "3")]
    permissions: String,
}

#[derive(Clone, PartialEq, Message)]
struct CdiDevice {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxContainer {
    #[prost(message, optional, tag = "2")]
    security: Option<ContainerSecurity>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerSecurity {
    #[prost(message, optional, tag = "3")]
    namespaces: Option<Namespaces>,
    #[prost(message, optional, tag = "15")]
    seccomp: Option<Seccomp>,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(message, optional, tag = "2")]
    config: Option<Container>,
    #[prost(message, optional, tag = "3")]
    pod_config: Option<Pod>,
}

#[derive(Clone, PartialEq, Message)]
struct Exec {
    #[prost(string, tag = "1")]
    container: String,
    #[prost(string, repeated, tag = "2")]
    command: Vec<String>,
    #[prost(int64, tag = "3")]
    seconds: i64,
}

/// What a command in a container printed, and how it ended.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Executed {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) stderr: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

/// The id of a pod or of a container: many a request and many an answer has nothing else.
#[derive(Clone, PartialEq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

/// How long a container may take to end.
#[derive(Clone, PartialEq, Message)]
struct Stop {
    #[prost(string, tag = "1")]
    container: String,
    #[prost(int64, tag = "2")]
    seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Checkpoint {
    #[prost(string, tag = "1")]
    container: String,
    #[prost(string, tag = "2")]
    location: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusOf {
    #[prost(message, optional, tag = "1")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int32, tag = "7")]
    code: i32,
}

const EXITED: i32 = 2;

/// Counters of a container, of which the id is read.
#[derive(Clone, PartialEq, Message)]
struct StatsOf {
    #[prost(message, optional, tag = "1")]
    stats: Option<Stats>,
}

#[derive(Clone, PartialEq, Message)]
struct Stats {
    #[prost(message, optional, tag = "1")]
    of: Option<Id>,
}

#[derive(Clone, PartialEq, Message)]
struct Empty {}

/// A list of pods or of containers, of which the ids are read.
#[derive(Clone, PartialEq, Message)]
struct Ids {
    #[prost(message, repeated, tag = "1")]
    items: Vec<Id>,
}

/// Asks the containerd of a world.
pub(crate) struct Kubelet {
    socket: PathBuf,
}

impl Kubelet {
    /// Says why where there is nothing to ask with.
    pub(crate) fn of(world: &World) -> Option<Self> {
        if let Err(error) = require_program("curl", "curl", &Progress::stderr()) {
            eprintln!("SKIPPED: needs curl, to ask as a kubelet does: {error:#}");
            return None;
        }
        Some(Self { socket: world.path(SOCKET) })
    }

    /// Starts a pod without containers; its id.
    pub(crate) fn run_pod(&self, pod: &Pod, handler: &str) -> Result<String, String> {
        let request = RunPod { config: Some(pod.clone()), handler: handler.to_owned() };
        self.ask::<Id>("RunPodSandbox", &request).map(|answer| answer.id)
    }

    /// Creates and starts a container of a pod; its id.
    pub(crate) fn run(
        &self,
        pod: &str,
        pod_config: &Pod,
        mut container: Container,
    ) -> Result<String, String> {
        let security = container.linux.iter_mut().flat_map(|linux| &mut linux.security);
        security.for_each(|security| security.namespaces = pod_config.namespaces());
        let (config, pod_config) = (Some(container), Some(pod_config.clone()));
        let request = CreateContainer { pod: pod.to_owned(), config, pod_config };
        let id = self.ask::<Id>("CreateContainer", &request)?;
        self.ask::<Empty>("StartContainer", &id)?;
        Ok(id.id)
    }

    /// Runs a command in a container to its end.
    pub(crate) fn exec(&self, container: &str, command: &[&str]) -> Executed {
        self.try_exec(container, command).unwrap()
    }

    /// The same, of what may not begin.
    pub(crate) fn try_exec(&self, container: &str, command: &[&str]) -> Result<Executed, String> {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let request = Exec { container: container.to_owned(), command, seconds: 30 };
        self.ask("ExecSync", &request)
    }

    /// Ends a container: by a signal that it may handle, and after a while by force.
    pub(crate) fn stop(&self, container: &str) {
        let request = Stop { container: container.to_owned(), seconds: 20 };
        self.ask::<Empty>("StopContainer", &request).unwrap();
    }

    /// How a container has ended; `None` while it runs.
    pub(crate) fn exit_code(&self, container: &str) -> Option<i32> {
        let answer = self.ask::<StatusOf>("ContainerStatus", &Id { id: container.to_owned() });
        let status = answer.unwrap().status.unwrap();
        (status.state == EXITED).then_some(status.code)
    }

    /// The container that the engine's counters are about.
    pub(crate) fn counted(&self, container: &str) -> Option<String> {
        let answer = self.ask::<StatsOf>("ContainerStats", &Id { id: container.to_owned() });
        Some(answer.unwrap().stats?.of?.id)
    }

    /// Why a container is not checkpointed.
    pub(crate) fn checkpoint(&self, container: &str) -> Option<String> {
        let location = "/tmp/checkpoint.tar".to_owned();
        let request = Checkpoint { container: container.to_owned(), location };
        self.ask::<Empty>("CheckpointContainer", &request).err()
    }

    /// Ends a pod with all its containers, and then takes away what is left of them.
    pub(crate) fn remove_pod(&self, pod: &str) {
        self.try_remove_pod(pod).unwrap();
    }

    /// The same once, which a kubelet tries again where a shim has died.
    pub(crate) fn try_remove_pod(&self, pod: &str) -> Result<(), String> {
        let pod = Id { id: pod.to_owned() };
        for method in ["StopPodSandbox", "RemovePodSandbox"] {
            self.ask::<Empty>(method, &pod)?;
        }
        Ok(())
    }

    /// The ids of all pods and of all containers.
    pub(crate) fn list(&self) -> Vec<String> {
        let lists = ["ListPodSandbox", "ListContainers"];
        let lists = lists.map(|method| self.ask::<Ids>(method, &Empty {}).unwrap());
        lists.into_iter().flat_map(|list| list.items).map(|item| item.id).collect()
    }

    fn ask<A: Message + Default>(&self, method: &str, request: &impl Message) -> Result<A, String> {
        call(&self.socket, &format!("runtime.v1.RuntimeService/{method}"), request)
    }
}

/// One request of gRPC; the answer, or the status with which it failed.
pub(crate) fn call<A: Message + Default>(
    socket: &Path,
    method: &str,
    request: &impl Message,
) -> Result<A, String> {
    let dir = TempDir::new().unwrap();
    let file = |name| dir.path().join(name);
    let mut body = PREFIX.to_vec();
    body[1..].copy_from_slice(&u32::try_from(request.encoded_len()).unwrap().to_be_bytes());
    request.encode(&mut body).unwrap();
    fs::write(file("request"), body).unwrap();
    let mut curl = Command::new("curl");
    curl.args(["--disable", "--silent", "--show-error", "--http2-prior-knowledge"]);
    curl.args(["--noproxy", "*"]);
    curl.arg("--unix-socket").arg(socket);
    curl.args(["--header", "content-type: application/grpc", "--header", "te: trailers"]);
    curl.arg("--data-binary").arg(format!("@{}", file("request").display()));
    curl.arg("--dump-header").arg(file("head")).arg("--output").arg(file("answer"));
    let output = verbgate_wait::output(curl.arg(format!("http://local/{method}")));
    let head = fs::read_to_string(file("head")).unwrap_or_default();
    // Among the trailers; where there is no answer, among the headers.
    let field = |name: &str| head.lines().rev().find_map(|line| line.strip_prefix(name));
    match field("grpc-status: ").map(str::trim) {
        Some("0") => {
            let answer = fs::read(file("answer")).unwrap();
            Ok(A::decode(answer.get(PREFIX.len()..).unwrap()).unwrap())
        }
        Some(code) => {
            let why = field("grpc-message: ").unwrap_or_default();
            Err(format!("{method}: {code}: {why}"))
        }
        None => panic!("{method} is not answered: {output:?} {head}"),
    }
}
