//! The messages of NRI's `pkg/api/api.proto` (package `nri.pkg.api.v1alpha1`) and of ttRPC, with the fields that are
//! read or written here. Both sides skip fields that they do not know: so an older engine drops `seccomp_policy`.

use std::collections::HashMap;

use prost::Message;

/// ttRPC's `Request`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RpcRequest {
    #[prost(string, tag = "1")]
    pub(super) service: String,
    #[prost(string, tag = "2")]
    pub(super) method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) payload: Vec<u8>,
}

/// ttRPC's `Response`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RpcResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<RpcStatus>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) payload: Vec<u8>,
}

/// `google.rpc.Status`; without a code, all is well.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RegisterPluginRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) index: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ConfigureRequest {
    #[prost(string, tag = "1")]
    pub(super) config: String,
    #[prost(string, tag = "2")]
    pub(super) runtime: String,
    #[prost(string, tag = "3")]
    pub(super) version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct ConfigureResponse {
    #[prost(int32, tag = "2")]
    pub(super) events: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SynchronizeRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) pods: Vec<PodSandbox>,
    #[prost(message, repeated, tag = "2")]
    pub(super) containers: Vec<NriContainer>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct SynchronizeResponse {
    #[prost(bool, tag = "2")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateContainerRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) pod: Option<PodSandbox>,
    #[prost(message, optional, tag = "2")]
    pub(super) container: Option<NriContainer>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateContainerResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) adjust: Option<ContainerAdjustment>,
}

/// `PodSandbox`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PodSandbox {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) namespace: String,
    #[prost(map = "string, string", tag = "6")]
    pub(super) annotations: HashMap<String, String>,
    #[prost(string, tag = "7")]
    pub(super) handler: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NriContainer {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) pod: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(map = "string, string", tag = "6")]
    pub(super) annotations: HashMap<String, String>,
    #[prost(string, repeated, tag = "8")]
    pub(super) env: Vec<String>,
    #[prost(message, repeated, tag = "9")]
    pub(super) mounts: Vec<OciMount>,
    #[prost(message, optional, tag = "10")]
    pub(super) hooks: Option<OciHooks>,
    #[prost(message, optional, tag = "11")]
    pub(super) linux: Option<LinuxContainer>,
    #[prost(message, repeated, tag = "13")]
    pub(super) rlimits: Vec<PosixRlimit>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct OciMount {
    #[prost(string, tag = "1")]
    pub(super) destination: String,
    #[prost(string, tag = "2")]
    pub(super) kind: String,
    #[prost(string, tag = "3")]
    pub(super) source: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) options: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct OciHooks {
    #[prost(message, repeated, tag = "2")]
    pub(super) create_runtime: Vec<OciHook>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct OciHook {
    #[prost(string, tag = "1")]
    pub(super) path: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) args: Vec<String>,
}

/// `LinuxContainer`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxContainer {
    #[prost(message, repeated, tag = "1")]
    pub(super) namespaces: Vec<LinuxNamespace>,
    #[prost(message, repeated, tag = "2")]
    pub(super) devices: Vec<LinuxDevice>,
    #[prost(message, optional, tag = "3")]
    pub(super) resources: Option<LinuxResources>,
    #[prost(string, tag = "5")]
    pub(super) cgroups_path: String,
    #[prost(message, optional, tag = "7")]
    pub(super) seccomp_profile: Option<SecurityProfile>,
    #[prost(message, optional, tag = "8")]
    pub(super) seccomp_policy: Option<LinuxSeccomp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxNamespace {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) path: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxDevice {
    #[prost(string, tag = "1")]
    pub(super) path: String,
    #[prost(string, tag = "2")]
    pub(super) kind: String,
    #[prost(int64, tag = "3")]
    pub(super) major: i64,
    #[prost(int64, tag = "4")]
    pub(super) minor: i64,
}

/// `LinuxResources`, of which the rules of the device cgroup are read.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxResources {
    #[prost(message, repeated, tag = "7")]
    pub(super) devices: Vec<LinuxDeviceCgroup>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxDeviceCgroup {
    #[prost(bool, tag = "1")]
    pub(super) allow: bool,
    #[prost(string, tag = "2")]
    pub(super) kind: String,
    #[prost(message, optional, tag = "3")]
    pub(super) major: Option<OptionalInt64>,
    #[prost(message, optional, tag = "4")]
    pub(super) minor: Option<OptionalInt64>,
    #[prost(string, tag = "5")]
    pub(super) access: String,
}

/// `OptionalInt64`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct OptionalInt64 {
    #[prost(int64, tag = "1")]
    pub(super) value: i64,
}

/// The profile that the pod names: [`LOCALHOST`], the engine's default, or none.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct SecurityProfile {
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(string, tag = "2")]
    pub(super) file: String,
}

/// A profile of the node's own.
pub(super) const LOCALHOST: i32 = 2;

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PosixRlimit {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(uint64, tag = "2")]
    pub(super) hard: u64,
    #[prost(uint64, tag = "3")]
    pub(super) soft: u64,
}

/// `ContainerAdjustment`: what the engine adds to a container.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerAdjustment {
    #[prost(map = "string, string", tag = "2")]
    pub(super) annotations: HashMap<String, String>,
    #[prost(message, repeated, tag = "4")]
    pub(super) env: Vec<KeyValue>,
    #[prost(message, optional, tag = "5")]
    pub(super) hooks: Option<OciHooks>,
    #[prost(message, optional, tag = "6")]
    pub(super) linux: Option<LinuxContainerAdjustment>,
    #[prost(message, repeated, tag = "7")]
    pub(super) rlimits: Vec<PosixRlimit>,
    #[prost(message, repeated, tag = "8")]
    pub(super) cdi: Vec<CdiDevice>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CdiDevice {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// `LinuxContainerAdjustment`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxContainerAdjustment {
    #[prost(message, optional, tag = "6")]
    pub(super) seccomp_policy: Option<LinuxSeccomp>,
}

/// `LinuxSeccomp`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxSeccomp {
    #[prost(string, tag = "1")]
    pub(super) default_action: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) architectures: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(super) flags: Vec<String>,
    #[prost(string, tag = "5")]
    pub(super) listener_path: String,
    #[prost(string, tag = "6")]
    pub(super) listener_metadata: String,
    #[prost(message, repeated, tag = "7")]
    pub(super) syscalls: Vec<LinuxSyscall>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxSyscall {
    #[prost(string, repeated, tag = "1")]
    pub(super) names: Vec<String>,
    #[prost(string, tag = "2")]
    pub(super) action: String,
    #[prost(message, optional, tag = "3")]
    pub(super) errno: Option<OptionalUint32>,
    #[prost(message, repeated, tag = "4")]
    pub(super) args: Vec<LinuxSeccompArg>,
}

/// `OptionalUInt32`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct OptionalUint32 {
    #[prost(uint32, tag = "1")]
    pub(super) value: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxSeccompArg {
    #[prost(uint32, tag = "1")]
    pub(super) index: u32,
    #[prost(uint64, tag = "2")]
    pub(super) value: u64,
    #[prost(uint64, tag = "3")]
    pub(super) value_two: u64,
    #[prost(string, tag = "4")]
    pub(super) op: String,
}
