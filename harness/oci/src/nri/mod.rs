//! `verbgate nri`: a plug-in of the Node Resource Interface (NRI) of containerd and CRI-O, by which containers get RDMA
//! without a runtime of Verbgate's and without a change of the engine's configuration.
//!
//! The engine shows the plug-in each container before the container is created. To a container that asks for RDMA the
//! plug-in adds what makes `verbgate agent` its supervisor: the seccomp profile of `verbgate oci profile`, the devices
//! by their CDI names, pods' annotations that the agent reads, settings of communication libraries, the limit of locked
//! memory. A container that could open the raw device is not created.
//!
//! **What the engine took is checked where it counts.** NRI sets seccomp profiles since its version 0.10, and older
//! engines drop the profile without a word, as another plug-in could. So the container also gets the hook of the CDI
//! devices, which reads the `config.json` that the runtime has, and ends a container that nobody will supervise. An
//! older engine serves pods that name the profile by themselves (`localhostProfile`).
//!
//! The plug-in sees what is created while it runs, and the engine does not wait for it. So the plug-in makes no raw
//! device safe by being installed: what hands devices out has to give CDI devices, which nobody can open.

mod config;
mod messages;
mod wire;

use std::collections::HashMap;
use std::env;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use prost::Message;
use sd_notify::NotifyState;
use serde_json::Value;
use verbgate_sandbox::grant::RDMA_CM;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::process::PidFd;
use verbgate_sys::sandbox::RDMA_DIR;

use self::messages::CdiDevice;
use self::messages::ConfigureRequest;
use self::messages::ConfigureResponse;
use self::messages::ContainerAdjustment;
use self::messages::CreateContainerRequest;
use self::messages::CreateContainerResponse;
use self::messages::KeyValue;
use self::messages::LOCALHOST;
use self::messages::LinuxContainerAdjustment;
use self::messages::LinuxSeccomp;
use self::messages::NriContainer;
use self::messages::OciHook;
use self::messages::OciHooks;
use self::messages::PodSandbox;
use self::messages::PosixRlimit;
use self::messages::RegisterPluginRequest;
use self::messages::RpcRequest;
use self::messages::RpcResponse;
use self::messages::RpcStatus;
use self::messages::SynchronizeRequest;
use self::messages::SynchronizeResponse;
use self::wire::Letter;
use self::wire::PLUGIN;
use self::wire::REQUEST;
use self::wire::RESPONSE;
use self::wire::RUNTIME;
use self::wire::Trunk;
use crate::agent::asked;
use crate::agent::profile;
use crate::agent::profile::ProfileOptions;
use crate::cdi;
use crate::granted;
use crate::granted::Decided;
use crate::options::Allowed;
use crate::rewrite::MEMLOCK;
use crate::settings;
use crate::wish::DEVICES;

/// The plug-in's name, by which an engine starts `NN-verbgate` of its directory of plug-ins.
const NAME: &str = "verbgate";
/// How an engine that starts a plug-in names the plug-in's socket: the number of a descriptor.
const PASSED: &str = "NRI_PLUGIN_SOCKET";
/// The services of NRI, and the request of the plug-in's.
const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
const REGISTER: &str = "RegisterPlugin";
/// The bit of `Event.CREATE_CONTAINER`.
const CREATE_CONTAINER: i32 = 1 << 3;
/// The number of the plug-in's own call; numbers of whoever opened the connection are odd.
const OWN_CALL: u32 = 1;
/// Codes of gRPC's.
const FAILED_PRECONDITION: i32 = 9;
const UNIMPLEMENTED: i32 = 12;

/// Options of the plug-in.
#[derive(Clone, Debug)]
pub struct NriOptions {
    /// The engine's socket for plug-ins.
    pub socket: PathBuf,
    /// Two digits: engines ask plug-ins in the order of these.
    pub index: String,
    /// Names under which the engine knows `verbgate oci`, which needs no plug-in.
    pub handlers: Vec<String>,
    /// Namespaces whose pods are left alone, since they manage the node.
    pub exempt: Vec<String>,
    /// The profile that containers get.
    pub profile: ProfileOptions,
    /// What the operator allows, as the agent has it.
    pub allowed: Allowed,
    /// Directory of sysfs.
    pub sysfs_root: PathBuf,
}

/// The name of a command by which an engine starts this program as a plug-in: two digits, as in `10-verbgate`.
pub(crate) fn is_called(name: &str) -> bool {
    name.split_once('-').is_some_and(|(index, name)| is_index(index) && name == NAME)
}

fn is_index(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Answers the engine until the engine closes the connection.
///
/// # Errors
/// When there is no engine, or the engine does not take the plug-in.
pub fn run(options: &NriOptions) -> Result<u8, Error> {
    if !is_index(&options.index) {
        return Err(anyhow!("--index {:?}: must be two digits, as in 10", options.index));
    }
    let plugin = Plugin {
        seccomp: config::seccomp(&profile::whole(&options.profile)?),
        program: env::current_exe().context("cannot tell this program's path")?,
        options,
    };
    let passed = env::var(PASSED).ok();
    let socket = match &passed {
        Some(number) => inherited(number)?,
        None => UnixStream::connect(&options.socket).map_err(|e| {
            anyhow!(
                "cannot connect to the engine at {}: {e}; is containerd 2.0 or CRI-O running, or NRI \
                 enabled in containerd 1.7 ([plugins.\"io.containerd.nri.v1.nri\"], disable = false)?",
                options.socket.display()
            )
        })?,
    };
    plugin.converse(socket)?;
    match passed {
        Some(_) => Ok(0),
        None => {
            Err(anyhow!("the engine has closed the connection; start the plug-in again with it"))
        }
    }
}

/// The socket of an engine that has started this program.
fn inherited(number: &str) -> Result<UnixStream, Error> {
    let failed = || anyhow!("{PASSED}={number:?}: not the number of an open socket");
    let fd = GuestFd(number.parse().map_err(|_| failed())?);
    let own = Tgid(i32::try_from(std::process::id())?);
    let got = PidFd::open(own).and_then(|own| own.get_fd(fd)).with_context(failed)?;
    Ok(UnixStream::from(got))
}

/// Answers the engine's calls.
#[derive(Debug)]
struct Plugin<'a> {
    options: &'a NriOptions,
    seccomp: LinuxSeccomp,
    /// This program, for the hook.
    program: PathBuf,
}

impl Plugin<'_> {
    fn converse(&self, socket: UnixStream) -> Result<(), Error> {
        let mut trunk = Trunk::new(socket);
        let own =
            RegisterPluginRequest { name: NAME.to_owned(), index: self.options.index.clone() };
        let call = RpcRequest {
            service: RUNTIME_SERVICE.to_owned(),
            method: REGISTER.to_owned(),
            payload: own.encode_to_vec(),
        };
        trunk.send(&Letter {
            conn: RUNTIME,
            call: OWN_CALL,
            kind: REQUEST,
            payload: call.encode_to_vec(),
        })?;
        while let Some(letter) = trunk.receive()? {
            match (letter.conn, letter.kind) {
                (RUNTIME, RESPONSE) if letter.call == OWN_CALL => registered(&letter.payload)?,
                (PLUGIN, REQUEST) => {
                    let answer = self.answer(&letter.payload);
                    let payload = answer.encode_to_vec();
                    trunk.send(&Letter { kind: RESPONSE, payload, ..letter })?;
                }
                (conn, kind) => {
                    log::debug!("message of type {kind} on connection {conn} is ignored")
                }
            }
        }
        Ok(())
    }

    fn answer(&self, payload: &[u8]) -> RpcResponse {
        let made = RpcRequest::decode(payload).map_err(Error::from).and_then(|call| {
            let payload = &*call.payload;
            Ok(match call.method.as_str() {
                "Configure" => {
                    Some(configure(&ConfigureRequest::decode(payload)?)?.encode_to_vec())
                }
                "Synchronize" => {
                    Some(self.synchronize(&SynchronizeRequest::decode(payload)?).encode_to_vec())
                }
                "CreateContainer" => {
                    Some(self.create(&CreateContainerRequest::decode(payload)?)?.encode_to_vec())
                }
                // Nothing of these is asked for, and each has an answer without fields.
                "Shutdown" | "StateChange" => Some(Vec::new()),
                other => {
                    log::debug!("{other} is none of the requests that are answered");
                    None
                }
            })
        });
        let failed = |code, message: String| RpcResponse {
            status: Some(RpcStatus { code, message }),
            payload: Vec::new(),
        };
        match made {
            Ok(Some(payload)) => RpcResponse { status: None, payload },
            Ok(None) => failed(UNIMPLEMENTED, "not a request that verbgate answers".to_owned()),
            Err(error) => {
                let error = format!("{NAME}: {error:#}").replace('\n', " ");
                log::warn!("{error}");
                failed(FAILED_PRECONDITION, error)
            }
        }
    }

    /// Whether a pod's containers are somebody else's business.
    fn leaves_alone(&self, pod: &PodSandbox) -> bool {
        self.options.handlers.contains(&pod.handler) || self.options.exempt.contains(&pod.namespace)
    }

    /// Tells of containers that were created while no plug-in ran; nothing is taken from them.
    fn synchronize(&self, all: &SynchronizeRequest) -> SynchronizeResponse {
        let pods: HashMap<&str, &PodSandbox> =
            all.pods.iter().map(|pod| (pod.id.as_str(), pod)).collect();
        for container in &all.containers {
            let Some(pod) = pods.get(container.pod.as_str()) else { continue };
            if self.leaves_alone(pod) {
                continue;
            }
            if let Err(why) =
                self.decided(&config::of(container, &config::passed_on(pod, container)), container)
            {
                log::error!(
                    "container {} ({}) of pod {}/{} was created without this plug-in, which refuses \
                     it: {why:#}; delete the pod",
                    container.name,
                    container.id,
                    pod.namespace,
                    pod.name
                );
            }
        }
        SynchronizeResponse { more: all.more }
    }

    fn decided(&self, config: &Value, container: &NriContainer) -> Result<Option<Decided>, Error> {
        asked::decided(config, &self.options.allowed, granted::cgroup_asked(config), &container.id)
    }

    fn create(&self, request: &CreateContainerRequest) -> Result<CreateContainerResponse, Error> {
        let (Some(pod), Some(container)) = (&request.pod, &request.container) else {
            return Err(anyhow!("CreateContainer: the engine names no pod or no container"));
        };
        if self.leaves_alone(pod) {
            return Ok(CreateContainerResponse::default());
        }
        let adjust = self.adjusted(pod, container).with_context(|| {
            format!("container {} of pod {}/{}", container.name, pod.namespace, pod.name)
        })?;
        Ok(CreateContainerResponse { adjust })
    }

    /// What makes the agent the supervisor of a container; nothing for a container that asks for nothing.
    fn adjusted(
        &self,
        pod: &PodSandbox,
        container: &NriContainer,
    ) -> Result<Option<ContainerAdjustment>, Error> {
        let passed = config::passed_on(pod, container);
        let mut config = config::of(container, &passed);
        let decided = self.decided(&config, container).map_err(|e| {
            e.context(format!(
                "no RDMA without a supervisor (run the pod by the RuntimeClass of `verbgate oci`, or exempt \
                 the namespace {:?} by --exempt of `verbgate nri`)",
                pod.namespace
            ))
        })?;
        let Some(decided) = decided else { return Ok(None) };
        let seccomp_policy = (!names_ours(container)?).then(|| self.seccomp.clone());
        let own = container.env.len();
        settings::add(&mut config, &decided.devices, None, &self.options.sysfs_root)?;
        let env = config.pointer("/process/env").and_then(Value::as_array);
        let env = env.into_iter().flatten().skip(own);
        let env = env.filter_map(Value::as_str).filter_map(|text| text.split_once('='));
        let env = env.map(|(key, value)| KeyValue { key: key.to_owned(), value: value.to_owned() });
        let env = env.collect();
        let cdi = cdi_of(&config, &decided)?;
        // With CDI devices comes the same hook, and with devices that an engine drops comes none.
        let hooks = (!has_hook(container)).then(|| OciHooks {
            create_runtime: vec![OciHook {
                path: self.program.to_string_lossy().into_owned(),
                args: vec![NAME.to_owned(), cdi::HOOK.to_owned()],
            }],
        });
        let limited = container.rlimits.iter().any(|limit| limit.kind == MEMLOCK);
        let memlock = decided.memlock.filter(|_| !limited);
        let memlock =
            memlock.map(|bytes| PosixRlimit { kind: MEMLOCK.to_owned(), hard: bytes, soft: bytes });
        Ok(Some(ContainerAdjustment {
            annotations: passed.into_iter().collect(),
            env,
            hooks,
            linux: Some(LinuxContainerAdjustment { seccomp_policy }),
            rlimits: memlock.into_iter().collect(),
            cdi,
        }))
    }
}

fn registered(payload: &[u8]) -> Result<(), Error> {
    let status = RpcResponse::decode(payload)?.status.unwrap_or_default();
    if status.code != 0 {
        return Err(anyhow!("the engine refuses the plug-in: {}", status.message));
    }
    Ok(())
}

fn configure(engine: &ConfigureRequest) -> Result<ConfigureResponse, Error> {
    if !engine.config.trim().is_empty() {
        return Err(anyhow!(
            "the engine has a configuration for the plug-in, which takes none; remove {NAME}.conf from \
             the engine's directory of plug-ins' configurations (/etc/nri/conf.d), and start `verbgate \
             nri` with options as a unit of its own"
        ));
    }
    verbgate_host::output::say(&format!(
        "plug-in of {} {}: containers that ask for RDMA are looked at",
        engine.runtime, engine.version
    ));
    if let Err(e) = sd_notify::notify(&[NotifyState::Ready]) {
        log::warn!("cannot tell systemd that the plug-in is ready: {e}");
    }
    Ok(ConfigureResponse { events: CREATE_CONTAINER })
}

/// Whether the pod has named the agent's profile by itself. A profile of the node's that is another one, ours would
/// replace.
fn names_ours(container: &NriContainer) -> Result<bool, Error> {
    let linux = container.linux.as_ref();
    let named = linux.and_then(|linux| linux.seccomp_profile.as_ref());
    let Some(named) = named.filter(|profile| profile.kind == LOCALHOST) else { return Ok(false) };
    let of_file = || {
        let text = fs::read(named.file.trim_start_matches("localhost/")).ok()?;
        let profile: Value = serde_json::from_slice(&text).ok()?;
        profile.get("listenerMetadata")?.as_str().map(str::to_owned)
    };
    // Engines tell the profile itself since 2026, and before that the file's name alone.
    let policy = linux.and_then(|linux| linux.seccomp_policy.as_ref());
    let metadata = policy.map(|policy| policy.listener_metadata.clone()).or_else(of_file);
    if metadata.is_some_and(|metadata| profile::is_ours(&metadata)) {
        return Ok(true);
    }
    Err(anyhow!(
        "seccompProfile: the profile of RDMA would replace {}; leave seccompProfile out, say \
         RuntimeDefault, or run the pod by the RuntimeClass of `verbgate oci`, under which both hold",
        named.file
    ))
}

/// The CDI devices of an annotation that grants; devices that the engine gives by itself are there.
fn cdi_of(config: &Value, decided: &Decided) -> Result<Vec<CdiDevice>, Error> {
    if config.get("annotations").and_then(|all| all.get(DEVICES)).is_none() {
        return Ok(Vec::new());
    }
    let listed = |name: &str| {
        let path = format!("{RDMA_DIR}/{name}");
        let devices = config.pointer("/linux/devices").and_then(Value::as_array);
        devices.into_iter().flatten().any(|one| one.get("path").is_some_and(|one| *one == path))
    };
    let missing = decided.devices.iter().filter(|one| one.name != RDMA_CM && !listed(&one.name));
    missing
        .map(|one| {
            let ibdev = one.identity.ibdev().with_context(|| {
                format!(
                    "annotation {DEVICES}: {} stands for no RDMA device, and has no CDI name",
                    one.name
                )
            })?;
            Ok(CdiDevice { name: cdi::name_of(ibdev) })
        })
        .collect()
}

fn has_hook(container: &NriContainer) -> bool {
    let hooks = container.hooks.iter().flat_map(|hooks| &hooks.create_runtime);
    hooks.flat_map(|hook| hook.args.get(1)).any(|word| word == cdi::HOOK)
}

#[cfg(test)]
mod tests;
