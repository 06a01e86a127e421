//! `verbgate features`: the features of this build and of this kernel, as the kernel itself
//! answers.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use verbgate_abi::legacy;
use verbgate_abi::table;
use verbgate_host::output::print;
use verbgate_sys::sandbox::probe;
use verbgate_sysfs::RdmaDevice;
use verbgate_sysfs::collect;

use crate::cli::FeaturesArgs;
use crate::cli::Global;
use crate::failure::Failure;

#[derive(Debug, Serialize)]
struct Features {
    version: &'static str,
    arch: String,
    kernel: String,
    root: PathBuf,
    /// Sizes of the ABI tables.
    abi: Abi,
    kernel_features: Vec<Feature>,
    /// The mode that `run` would use here.
    sandbox: &'static str,
    devices: Vec<RdmaDevice>,
}

/// The part of the kernel's interface that this build knows.
#[derive(Debug, Serialize)]
struct Abi {
    objects: usize,
    methods: usize,
    commands: usize,
}

#[derive(Debug, Serialize)]
struct Feature {
    name: &'static str,
    /// Whether the kernel offers the feature here.
    supported: bool,
    /// Whether Verbgate needs the feature.
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// The use of the feature, and the consequence when the feature is missing.
    why: &'static str,
}

/// Prints the features; the exit code is 0 whatever is missing.
pub(crate) fn run(args: &FeaturesArgs, global: &Global) -> Result<u8, Failure> {
    let features = collect_all(global)?;
    let text =
        if args.json { serde_json::to_string_pretty(&features)? + "\n" } else { table(&features) };
    print(&text)?;
    Ok(0)
}

fn collect_all(global: &Global) -> Result<Features, Failure> {
    // First, because it forks, which only a process with one thread may.
    let user_namespace = probe::user_namespace();
    let privileged = probe::is_privileged();
    let (kernel, arch) = probe::kernel();
    let sandbox = match (privileged, &user_namespace) {
        (true, _) => "privileged",
        (false, Ok(())) => "user namespace",
        (false, Err(_)) => "none",
    };
    Ok(Features {
        version: env!("CARGO_PKG_VERSION"),
        arch,
        kernel,
        root: global.root(),
        abi: abi(),
        kernel_features: kernel_features(&user_namespace, privileged),
        sandbox,
        devices: collect::devices(std::path::Path::new(collect::SYSFS_ROOT))?,
    })
}

/// The features that `run` needs and that are missing in this kernel: names, and uses. Ask while
/// the process has one thread.
pub(crate) fn missing() -> Vec<(&'static str, &'static str)> {
    let user_namespace = probe::user_namespace();
    let features = kernel_features(&user_namespace, probe::is_privileged());
    let lacking = features.into_iter().filter(|feature| feature.required && !feature.supported);
    lacking.map(|feature| (feature.name, feature.why)).collect()
}

fn abi() -> Abi {
    Abi {
        objects: table::objects().len(),
        methods: table::methods().len(),
        commands: legacy::commands().len(),
    }
}

fn kernel_features(user_namespace: &Result<(), String>, privileged: bool) -> Vec<Feature> {
    let listener = probe::listener();
    let landlock = probe::landlock_abi();
    let fuse = probe::fuse();
    let ptrace_scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let ptrace_scope = ptrace_scope.as_deref().map(str::trim);
    let feature =
        |name, supported, required, why| Feature { name, supported, required, detail: None, why };
    vec![
        feature(
            "seccomp_notify",
            probe::user_notification(),
            true,
            "user notifications trap requests",
        ),
        feature(
            "seccomp_listener",
            listener.install,
            true,
            "a filter with a listener can be installed here (an outer filter can forbid that)",
        ),
        feature("seccomp_addfd", listener.add_fd, true, "gives descriptors to the guest"),
        feature(
            "seccomp_wait_killable",
            probe::wait_killable(),
            true,
            "a signal cannot orphan a half-done request",
        ),
        feature("seccomp_sync_wake_up", listener.sync_wake_up, false, "makes requests faster"),
        feature("mount_setattr", probe::mount_setattr(), true, "makes device nodes unusable"),
        feature("pidfd_getfd", probe::pidfd_getfd(), true, "resolves the guest's descriptors"),
        feature("memfd_future_write", probe::future_write_seal(), true, "makes frames immutable"),
        feature(
            "kcmp",
            probe::kcmp(),
            true,
            "tells whether two descriptors are the same open file",
        ),
        feature(
            "mseal",
            probe::mseal(),
            false,
            "a second lock on the stub's memory; the filter is the first",
        ),
        Feature {
            detail: landlock.map(|abi| format!("ABI {abi}")),
            ..feature(
                "landlock",
                landlock.is_some_and(|abi| abi >= probe::LANDLOCK_LEAST),
                false,
                "keeps a guest that is root out of other processes' mounts",
            )
        },
        Feature {
            detail: fuse.as_ref().err().cloned(),
            ..feature(
                "fuse",
                fuse.is_ok(),
                false,
                "serves a /sys of granted devices only; without FUSE the guest sees the host's",
            )
        },
        Feature {
            detail: user_namespace.as_ref().err().cloned(),
            ..feature(
                "user_namespace",
                user_namespace.is_ok(),
                !privileged,
                "lets callers other than root make a sandbox",
            )
        },
        Feature {
            detail: Some(format!("ptrace_scope {}", ptrace_scope.unwrap_or("0 (no Yama)"))),
            ..feature(
                "ptrace_child",
                // 0 all, 1 descendants, 2 with CAP_SYS_PTRACE, 3 nobody.
                match ptrace_scope {
                    Some("3") => false,
                    Some("2") => privileged,
                    _ => true,
                },
                true,
                "plants the thread that executes requests in the guest",
            )
        },
    ]
}

fn table(features: &Features) -> String {
    let Features { version, arch, kernel, root, sandbox, .. } = features;
    let mut lines = vec![
        format!("verbgate {version} on Linux {kernel} {arch}"),
        format!("run-time state: {}", root.display()),
        format!("sandbox: {sandbox}"),
        String::new(),
    ];
    let Abi { objects, methods, commands } = &features.abi;
    lines.push(format!("ABI: {objects} objects, {methods} methods, {commands} commands"));
    for Feature { name, supported, required, detail, why } in &features.kernel_features {
        let state = match (supported, required) {
            (true, _) => "yes",
            (false, true) => "MISSING",
            (false, false) => "no",
        };
        let detail = detail.as_ref().map_or_else(String::new, |d| format!(" [{d}]"));
        lines.push(format!("{name:<22} {state:<8} {why}{detail}"));
    }
    lines.push(String::new());
    if features.devices.is_empty() {
        lines.push("no RDMA devices".to_owned());
    }
    for device in &features.devices {
        let RdmaDevice { ibdev, uverbs, dev, ports, .. } = device;
        let ports: Vec<String> = ports
            .iter()
            .map(|port| {
                let or_unknown = |text: &Option<String>| text.clone().unwrap_or("?".to_owned());
                format!(
                    "{}/{} {}",
                    port.number,
                    or_unknown(&port.link_layer),
                    or_unknown(&port.state)
                )
            })
            .collect();
        lines.push(format!("{ibdev:<16} {uverbs} {dev} {}", ports.join(", ")));
    }
    lines.join("\n") + "\n"
}
