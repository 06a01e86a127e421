//! The plug-in against a double of an engine, which speaks NRI's side of the wire.

use std::thread;

use serde_json::json;

use super::messages::LinuxContainer;
use super::messages::LinuxDevice;
use super::messages::LinuxDeviceCgroup;
use super::messages::LinuxResources;
use super::messages::OptionalInt64;
use super::messages::SecurityProfile;
use super::*;
use crate::options::Annotations;
use crate::wish::GRANTED;

const NODE: &str = "/dev/infiniband/uverbs9";
const SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";

fn options() -> NriOptions {
    NriOptions {
        socket: "/nonexistent".into(),
        index: "10".to_owned(),
        handlers: vec!["verbgate".to_owned()],
        exempt: vec!["kube-system".to_owned()],
        profile: ProfileOptions {
            listener: "/run/x.sock".into(),
            wait_killable: true,
            write: false,
            compat: false,
        },
        allowed: Allowed {
            profile: "standard".to_owned(),
            policy_dir: "/nonexistent".into(),
            annotations: Annotations::Narrow,
            keep: Vec::new(),
            audit: None,
            expected: None,
            stand_in: vec!["uverbs9=/dev/null".into()],
            refuse: None,
        },
        sysfs_root: "/nonexistent".into(),
    }
}

fn plugin(options: &NriOptions) -> Plugin<'_> {
    let seccomp = config::seccomp(&profile::whole(&options.profile).unwrap());
    Plugin { options, seccomp, program: "/usr/bin/verbgate".into() }
}

fn pod(handler: &str, namespace: &str) -> PodSandbox {
    PodSandbox {
        id: "p".to_owned(),
        name: "pod".to_owned(),
        namespace: namespace.to_owned(),
        handler: handler.to_owned(),
        ..PodSandbox::default()
    }
}

/// A container as containerd shows one: all devices are closed, but these.
fn container(access: Option<&str>) -> NriContainer {
    let closed = LinuxDeviceCgroup { access: "rwm".to_owned(), ..LinuxDeviceCgroup::default() };
    let number = |value| Some(OptionalInt64 { value });
    let rule = |access: &str| LinuxDeviceCgroup {
        allow: true,
        kind: "c".to_owned(),
        major: number(231),
        minor: number(192),
        access: access.to_owned(),
    };
    let device = LinuxDevice { path: NODE.to_owned(), kind: "c".to_owned(), major: 1, minor: 3 };
    let rules = [closed].into_iter().chain(access.map(rule));
    NriContainer {
        id: "c".to_owned(),
        pod: "p".to_owned(),
        name: "box".to_owned(),
        linux: Some(LinuxContainer {
            devices: access.map(|_| device).into_iter().collect(),
            resources: Some(LinuxResources { devices: rules.collect() }),
            ..LinuxContainer::default()
        }),
        ..NriContainer::default()
    }
}

fn create(pod: PodSandbox, container: NriContainer) -> CreateContainerRequest {
    CreateContainerRequest { pod: Some(pod), container: Some(container) }
}

#[test]
fn an_engine_is_answered() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let plugin = thread::spawn(move || plugin(&options()).converse(theirs));
    let mut engine = Trunk::new(ours);
    // It registers before it is asked for anything.
    let own = engine.receive().unwrap().unwrap();
    assert_eq!((own.conn, own.kind, own.call), (2, 1, 1));
    let call = RpcRequest::decode(&*own.payload).unwrap();
    assert_eq!((&*call.service, &*call.method), (RUNTIME_SERVICE, "RegisterPlugin"));
    let name = RegisterPluginRequest::decode(&*call.payload).unwrap();
    assert_eq!((&*name.name, &*name.index), ("verbgate", "10"));
    engine.send(&Letter { kind: 2, payload: Vec::new(), ..own }).unwrap();
    let mut asked = 1;
    let mut ask = |method: &str, payload: Vec<u8>| {
        let (service, method) = (SERVICE.to_owned(), method.to_owned());
        let payload = RpcRequest { service, method, payload }.encode_to_vec();
        engine.send(&Letter { conn: 1, call: asked, kind: 1, payload }).unwrap();
        let answer = engine.receive().unwrap().unwrap();
        assert_eq!((answer.conn, answer.call, answer.kind), (1, asked, 2));
        asked += 2;
        let answer = RpcResponse::decode(&*answer.payload).unwrap();
        answer.status.map_or(Ok(answer.payload), |status| Err((status.code, status.message)))
    };
    let configure = |config: &str| {
        ConfigureRequest { config: config.to_owned(), ..ConfigureRequest::default() }
            .encode_to_vec()
    };
    let answer = ask("Configure", configure("")).unwrap();
    assert_eq!(
        ConfigureResponse::decode(&*answer).unwrap().events,
        0b1000,
        "CREATE_CONTAINER alone"
    );
    let (code, why) = ask("Configure", configure("x: 1")).unwrap_err();
    assert!(code == 9 && why.contains("verbgate.conf"), "{why}");
    let all = SynchronizeRequest { more: true, ..SynchronizeRequest::default() };
    let answer = ask("Synchronize", all.encode_to_vec()).unwrap();
    assert!(SynchronizeResponse::decode(&*answer).unwrap().more);
    let request = create(pod("runc", "default"), container(None));
    let answer = ask("CreateContainer", request.encode_to_vec()).unwrap();
    assert_eq!(CreateContainerResponse::decode(&*answer).unwrap().adjust, None);
    let request = create(pod("runc", "default"), container(Some("m")));
    let answer = ask("CreateContainer", request.encode_to_vec()).unwrap();
    assert!(CreateContainerResponse::decode(&*answer).unwrap().adjust.is_some());
    let request = create(pod("runc", "default"), container(Some("rwm")));
    let (code, why) = ask("CreateContainer", request.encode_to_vec()).unwrap_err();
    assert_eq!(code, 9);
    for word in ["box", "default/pod", "linux.resources.devices", "RuntimeClass", "--exempt"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    assert_eq!(ask("CreateContainer", Vec::new()).unwrap_err().0, 9);
    assert_eq!(ask("CreateContainer", vec![0xff]).unwrap_err().0, 9);
    assert_eq!(ask("Nonsense", Vec::new()).unwrap_err().0, 12);
    assert_eq!(ask("Shutdown", Vec::new()), Ok(Vec::new()));
    drop(engine);
    plugin.join().unwrap().unwrap();
}

#[test]
fn an_engine_that_refuses_is_named() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let plugin = thread::spawn(move || plugin(&options()).converse(theirs));
    let mut engine = Trunk::new(ours);
    let own = engine.receive().unwrap().unwrap();
    let status = Some(RpcStatus { code: 2, message: "no such name".to_owned() });
    let payload = RpcResponse { status, payload: Vec::new() }.encode_to_vec();
    engine.send(&Letter { kind: 2, payload, ..own }).unwrap();
    let error = plugin.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("no such name"), "{error}");
}

fn adjusted(pod: &PodSandbox, container: &NriContainer) -> Result<ContainerAdjustment, Error> {
    plugin(&options()).adjusted(pod, container).map(Option::unwrap)
}

#[test]
fn what_asks_gets_what_the_agent_needs() {
    let mut pod = pod("runc", "default");
    for (key, value) in [("org.verbgate.profile", "standard"), (GRANTED, "uverbs9"), ("a", "b")] {
        pod.annotations.insert(key.to_owned(), value.to_owned());
    }
    let adjust = adjusted(&pod, &container(Some("m"))).unwrap();
    let passed = [("org.verbgate.profile".to_owned(), "standard".to_owned())];
    assert_eq!(adjust.annotations, passed.into());
    let hook = &adjust.hooks.unwrap().create_runtime[0];
    assert_eq!(
        (&*hook.path, &*hook.args),
        ("/usr/bin/verbgate", &["verbgate", cdi::HOOK].map(str::to_owned)[..])
    );
    // The profile arrives whole.
    let seccomp = adjust.linux.unwrap().seccomp_policy.unwrap();
    let whole = profile::whole(&options().profile).unwrap();
    assert_eq!(seccomp.listener_path, "/run/x.sock");
    assert!(profile::is_ours(&seccomp.listener_metadata));
    assert_eq!(seccomp.flags, ["SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"]);
    let back = seccomp.syscalls.iter().map(|one| {
        let args = one.args.iter().map(|arg| {
            let mut back = json!({"index": arg.index, "value": arg.value, "op": arg.op});
            if arg.op == "SCMP_CMP_MASKED_EQ" {
                back["valueTwo"] = arg.value_two.into();
            }
            back
        });
        let mut back =
            json!({"names": one.names, "action": one.action, "args": args.collect::<Vec<_>>()});
        if let Some(errno) = one.errno {
            back["errnoRet"] = errno.value.into();
        }
        back
    });
    assert_eq!(json!(back.collect::<Vec<_>>()), whole["syscalls"]);
    assert_eq!(json!(seccomp.architectures), whole["architectures"]);
    assert_eq!(json!(seccomp.default_action), whole["defaultAction"]);
}

#[test]
fn what_is_there_is_not_added_again() {
    let mut container = container(Some("m"));
    let args = ["verbgate", cdi::HOOK].map(str::to_owned).to_vec();
    let hook = OciHook { path: "/v".to_owned(), args };
    container.hooks = Some(OciHooks { create_runtime: vec![hook] });
    assert_eq!(adjusted(&pod("runc", "default"), &container).unwrap().hooks, None);
    // A profile of the node's: ours stays, and another is not replaced.
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = format!("localhost/{}", file.path().display());
    let linux = container.linux.as_mut().unwrap();
    linux.seccomp_profile = Some(SecurityProfile { kind: LOCALHOST, file: path.clone() });
    let error = adjusted(&pod("runc", "default"), &container).unwrap_err().to_string();
    assert!(error.contains(&path), "{error}");
    let whole = profile::whole(&options().profile).unwrap();
    fs::write(file.path(), whole.to_string()).unwrap();
    let adjust = adjusted(&pod("runc", "default"), &container).unwrap();
    assert_eq!(adjust.linux.unwrap().seccomp_policy, None);
}

#[test]
fn pods_of_the_runtime_and_of_exempt_namespaces_are_left_alone() {
    for pod in [pod("verbgate", "default"), pod("runc", "kube-system")] {
        let request = create(pod, container(Some("rwm")));
        assert_eq!(
            plugin(&options()).create(&request).unwrap(),
            CreateContainerResponse::default()
        );
    }
}

#[test]
fn an_annotation_of_the_pod_grants_only_where_the_operator_says_so() {
    let mut asks = pod("runc", "default");
    asks.annotations.insert(DEVICES.to_owned(), "uverbs3".to_owned());
    let error = adjusted(&asks, &container(Some("m"))).unwrap_err();
    assert!(format!("{error:#}").contains("uverbs3"), "{error:#}");
    // A stand-in has no name among CDI devices; what is listed needs none.
    asks.annotations.insert(DEVICES.to_owned(), "uverbs9".to_owned());
    assert!(adjusted(&asks, &container(Some("m"))).unwrap().cdi.is_empty());
    let error = adjusted(&asks, &container(None)).unwrap_err();
    assert!(format!("{error:#}").contains("no CDI name"), "{error:#}");
}

#[test]
fn another_plug_ins_agent_is_named() {
    let mut container = container(Some("m"));
    let other = LinuxSeccomp { listener_path: "/other".to_owned(), ..LinuxSeccomp::default() };
    container.linux.as_mut().unwrap().seccomp_policy = Some(other);
    let error = adjusted(&pod("runc", "default"), &container).unwrap_err();
    assert!(format!("{error:#}").contains("listenerPath"), "{error:#}");
}
