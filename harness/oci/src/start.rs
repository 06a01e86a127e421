//! `create` and `run`: a supervisor, and a rewritten bundle.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use serde_json::Value;
use verbgate_host::files;
use verbgate_sys::post::Way;
use verbgate_sys::sandbox;
use verbgate_sys::sandbox::DeviceNode;

use super::exec;
use super::granted;
use super::granted::Decided;
use super::hook;
use super::letter::heard_readiness;
use super::line::Line;
use super::line::Verb;
use super::netdevs;
use super::place::Place;
use super::place::Spec;
use super::pod::Pod;
use super::podman;
use super::rewrite;
use super::rewrite::Addition;
use super::rewrite::CONFIG;
use super::runtime;
use super::settings;
use super::under;
use super::wish::Wish;
use crate::device_cgroup::Rules;
use crate::engine;
use crate::exposed::HostNodes;
use crate::line::name_of;
use crate::options::Globals;
use crate::options::Options;
use crate::options::SUPERVISOR;

/// The number of the initial user namespace: PROC_USER_INIT_INO, include/linux/proc_ns.h.
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Prepares a container, if it is meant to have RDMA.
pub(super) fn prepare(
    line: &Line,
    options: &Options,
    globals: &Globals,
    runtime: &Path,
) -> Result<(), Error> {
    let file = config_file(line);
    // The real runtime tells best of a file that is missing. A file that others read in another way, nobody executes.
    let Ok(text) = fs::read(&file) else { return Ok(()) };
    let mut config: Value = serde_json::from_slice(&text).map_err(|e| {
        anyhow!("{}: {e}; have the engine write JSON (RFC 8259), in UTF-8", file.display())
    })?;
    let host = HostNodes::of(&options.allowed.stand_in);
    let Some(wish) = Wish::of(&config, &host)? else {
        let may_change = runtime::may_edit(runtime) || rewrite::has_early_hooks(&config);
        return if may_change { look(&file, &mut config, line) } else { Ok(()) };
    };
    granted::refuse(&options.allowed)?;
    engine::refuse_nvidias("--runtime", &runtime.to_string_lossy())?;
    let Some(id) = name_of(line)? else { return Ok(()) };
    if !is_init_namespace_root() {
        return Err(anyhow!(
            "a rootless runtime cannot give containers RDMA: device nodes need CAP_MKNOD on the \
             host, and the supervisor needs CAP_SYS_PTRACE; run the engine as root, with user \
             namespaces for containers (--userns) if wanted"
        ));
    }
    if wish.annotated
        && let Some(version) = podman::passes_images_annotations(&config)
    {
        return Err(anyhow!(
            "annotations: podman {version} passes an image's annotations on, so the image could \
             grant devices; list the devices (--device /dev/infiniband/uverbsN), or use podman 4.6 \
             or newer"
        ));
    }
    let cgroup = granted::cgroup_asked(&config);
    let Decided { devices: nodes, profile, tenant, policy, memlock, .. } =
        granted::decided(&wish, &options.allowed, &config, cgroup)?;
    let root = std::path::absolute(&globals.root)?;
    let place = Place::of(&root, &id, line.global("--root"));
    let exe = env::current_exe().context("cannot tell the path of this program")?;
    let granted: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let rootfs = rootfs(line, &config);
    let (exe_name, place_name) = (utf8(&exe)?, utf8(place.path())?);
    let netdevs = netdevs::wanted(&wish.netdevs, &nodes, &config, &place, options)?;
    let journal = netdevs.as_ref().map(|all| utf8(&all.journal)).transpose()?;
    let journal: Vec<&str> = journal.iter().flat_map(|path| ["--netdevs", path.as_str()]).collect();
    let of = |event| [&[event, place_name.as_str()], journal.as_slice()].concat();
    settings::add(&mut config, &nodes, netdevs.as_ref(), &options.sysfs_root)?;
    let kept = host.kept(&Rules::of(&config));
    let taken = rewrite::taken(&config, &options.allowed.keep);
    taken.inspect(|line| log::warn!("container {id}: {line}"));
    rewrite::config(
        &mut config,
        &Addition {
            nodes: &place.nodes(),
            hook: &exe_name,
            created: &of("created"),
            mounted: &["mounted", &utf8(&rootfs)?],
            stopped: &of("stopped"),
            keep: &options.allowed.keep,
            memlock,
            granted: &granted.join(","),
            numbers: &host.numbers.in_rules(),
            kept: &kept,
        },
    )?;
    let audit = granted::audit(&options.allowed, &config, &id);
    let spec = Spec {
        id,
        audit,
        expected: options.allowed.expected,
        bundle: file.parent().unwrap_or(Path::new(".")).to_owned(),
        rootfs,
        runs: line.verb == Verb::Run,
        profile,
        tenant,
        policy,
        keep: options.allowed.keep.clone(),
        compat: options.compat,
        memlock,
        devices: nodes.clone(),
        sysfs: options.virtual_sysfs && !wish.sees_host,
        netdevs,
        pod: Pod::of(&config),
        ends_alone: options.ends_alone,
    };
    let lock = place.make(&spec).map_err(|e| refusal(e, &place, &spec))?;
    let shown: Vec<DeviceNode> = nodes.iter().map(DeviceNode::from).collect();
    let made = sandbox::show_nodes(&shown, &place.nodes())
        .map_err(|(path, e)| anyhow!("cannot make the node {}: {e}", path.display()))
        .and_then(|()| supervisor(&exe, &globals.log, &place, lock))
        .and_then(|()| Ok(place.note_judged(&file, &config.to_string())?))
        .and_then(|()| replace(&file, &config, "or the container cannot have RDMA"))
        .and_then(|()| {
            let way = Way::to(&place.control())
                .context("the supervisor ended; see the supervisor's log")?;
            under::come_under(&way, config.get("process").unwrap_or(&Value::Null), spec.compat)
        });
    if made.is_err() {
        // Nothing is left behind; that this cannot be removed is not the error to tell of.
        let _ = hook::end(&place);
    }
    made
}

/// Has a container that asks for nothing looked at, when others have made what they make of the container.
fn look(file: &Path, config: &mut Value, line: &Line) -> Result<(), Error> {
    // A user's container opens what the user may open.
    if !is_init_namespace_root() {
        return Ok(());
    }
    let exe = env::current_exe().context("cannot tell the path of this program")?;
    let rootfs = rootfs(line, config);
    rewrite::look(config, &utf8(&exe)?, &["mounted-unasked", &utf8(&rootfs)?])?;
    const WHY: &str = "because its hooks, or a runtime that is neither runc nor crun, can bring RDMA devices into the \
                       container, and verbgate adds a hook that looks for those";
    replace(file, config, WHY)
}

fn utf8(path: &Path) -> Result<String, Error> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| anyhow!("the path {} is not UTF-8 text", path.display()))
}

fn refusal(error: io::Error, place: &Place, spec: &Spec) -> Error {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return anyhow!(
            "container {}: a container of this id has a supervisor; delete that container first, \
             or choose another id",
            spec.id
        );
    }
    anyhow!("cannot make {}: {error}", place.path().display())
}

/// The file that the real runtime reads.
fn config_file(line: &Line) -> PathBuf {
    let bundle =
        line.of_start(&["--bundle", "-b"]).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let name = line.of_start(&["--config", "-f"]).unwrap_or(CONFIG.as_ref());
    let file = bundle.join(name);
    std::path::absolute(&file).unwrap_or(file)
}

/// The container's root file system, which a bundle may name by its place in the bundle.
fn rootfs(line: &Line, config: &Value) -> PathBuf {
    let bundle = line.of_start(&["--bundle", "-b"]).map_or(Path::new("."), Path::new);
    let root = config.pointer("/root/path").and_then(Value::as_str).unwrap_or_default();
    let path = bundle.join(root);
    std::path::absolute(&path).unwrap_or(path)
}

/// A device's queues, keys and connections are in the NIC, where nobody can save them.
pub(super) fn refuse_checkpoint(line: &Line, globals: &Globals) -> Result<(), Error> {
    match exec::known(line, globals)? {
        None => Ok(()),
        Some((_, spec)) => Err(anyhow!(
            "container {}: a container with RDMA cannot be checkpointed, because its queues and \
             connections are in the NIC; have the program itself save its state",
            spec.id
        )),
    }
}

/// The same of a bundle that asks for RDMA.
pub(super) fn refuse_restore(line: &Line, options: &Options) -> Result<(), Error> {
    let bundle = line.of_restore(&["--bundle", "-b"]).map_or(Path::new("."), Path::new);
    let Ok(text) = fs::read_to_string(bundle.join(CONFIG)) else { return Ok(()) };
    let Ok(config) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
    match Wish::of(&config, &HostNodes::of(&options.allowed.stand_in))? {
        None => Ok(()),
        Some(_) => Err(anyhow!(
            "{}: a container with RDMA cannot be restored, because its queues and connections were \
             in the NIC; create the container anew",
            bundle.display()
        )),
    }
}

/// Removes what is left of a container that is dead, and that the runtime may not know any more.
pub(super) fn forget_dead(line: &Line, globals: &Globals) {
    match exec::known(line, globals) {
        // Whether it can be removed is not what the runtime was asked.
        Ok(Some((place, _))) => drop(place.remove_if_dead()),
        Ok(None) => {}
        Err(error) => log::warn!("{error:#}"),
    }
}

/// Whether this is root and not one of a user namespace, who can make no nodes.
fn is_init_namespace_root() -> bool {
    let own = fs::metadata("/proc/self/ns/user").map(|meta| meta.ino()).ok();
    own == Some(INITIAL_USER_NAMESPACE) && verbgate_host::is_root()
}

/// Writes the file anew.
fn replace(file: &Path, config: &Value, why: &str) -> Result<(), Error> {
    // No container outlives a crash of the machine.
    files::replace_for_now(file, config.to_string().as_bytes(), files::PUBLIC).map_err(|e| {
        anyhow!("cannot rewrite {}: {e}; make the bundle writable, {why}", file.display())
    })
}

/// Starts the supervisor, and waits until it is ready.
fn supervisor(exe: &Path, log: &[OsString], place: &Place, lock: File) -> Result<(), Error> {
    let mut command = Command::new(exe);
    let mut child = command
        .args(log)
        .arg(SUPERVISOR)
        .arg(place.path())
        .arg(std::process::id().to_string())
        // Its lock: it is held as long as the supervisor has a standard input.
        .stdin(lock)
        .stdout(Stdio::piped())
        // An engine waits for the end of what a runtime writes.
        .stderr(Stdio::null())
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .spawn()
        .context("cannot start the supervisor")?;
    let mut said = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout
            .read_to_string(&mut said)
            .context("cannot read the supervisor's readiness message")?;
    }
    // What was started has ended, and left the supervisor as nobody's child.
    child.wait().context("cannot wait for the process that has started the supervisor")?;
    let nothing = "the supervisor exited before it was ready; see the kernel log";
    heard_readiness(said.as_bytes(), nothing)
}
