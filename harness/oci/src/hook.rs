//! Hooks, by which the wrapped runtime tells when a container exists, and when the container is
//! gone.

use std::fs;
use std::io;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use serde_json::Value;
use verbgate_sys::Tgid;
use verbgate_sys::post::Way;
use verbgate_sys::sandbox;
use verbgate_sys::sandbox::container::Cover;

use super::bounds;
use super::home;
use super::keeper;
use super::letter;
use super::letter::Word;
use super::place::Place;
use super::place::Spec;
use super::rewrite;
use super::rewrite::CONFIG;
use super::wish;

/// Time for a supervisor to end that was told to end.
const END_PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(2);

/// An event in a container's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `createRuntime`: the container's first process is there.
    Created,
    /// `createContainer`: the container's mounts are there, and the hooks of others have run.
    Mounted,
    /// The same of a container without RDMA.
    MountedUnasked,
    /// `poststop`: the container is gone.
    Stopped,
}

/// Runs a hook of the container with this directory, and with this directory of its NICs' journal;
/// standard input is the container's state, as the OCI runtime specification has it. `Mounted` and `MountedUnasked` run in the
/// container's namespaces, where that directory cannot be read: `place` is the root file system instead.
///
/// # Errors
/// When the container cannot be served, or cannot be cleaned up after.
pub fn run(event: Event, place: &Path, netdevs: Option<&Path>) -> Result<u8, Error> {
    heed(event, place, netdevs).inspect_err(tell)
}

/// runc passes on what a hook says; crun does not, and then it is said where crun speaks.
fn tell(error: &Error) {
    let null = fs::metadata("/dev/null").map(|meta| meta.rdev()).ok();
    if fs::metadata("/proc/self/fd/2").map(|meta| meta.rdev()).ok() == null {
        // /proc may be of another namespace than this process, and counts processes as that one does.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let stderr = format!("/proc/{}/fd/2", parent.unwrap_or_default().trim());
        let file = fs::OpenOptions::new().append(true).open(stderr);
        let _ = file.and_then(|mut file| writeln!(file, "verbgate: {error:#}"));
    }
}

fn heed(event: Event, path: &Path, netdevs: Option<&Path>) -> Result<u8, Error> {
    let state = io::read_to_string(io::stdin()).context("cannot read the container's state")?;
    let place = &Place::at(path);
    match event {
        Event::Created => {
            let state: Value =
                serde_json::from_str(&state).context("the container's state is not JSON")?;
            let pid = state.get("pid").and_then(Value::as_i64).map(i32::try_from);
            let pid = pid.context("the container's state has no pid")??;
            let bundle = state.get("bundle").and_then(Value::as_str).unwrap_or_default();
            refuse_changed(place, bundle.as_ref())?;
            created(place, pid, netdevs.is_some())?;
        }
        Event::Mounted => refuse_raw(path, true)?,
        // Without a device, rdma_cm is of no use.
        Event::MountedUnasked => refuse_raw(path, false)?,
        Event::Stopped => {
            let home = netdevs.map_or(Ok(()), home::bring_home);
            end(place)?;
            home?;
        }
    }
    Ok(0)
}

/// Refuses a container of another `config.json` than the one that Verbgate has written.
fn refuse_changed(place: &Place, bundle: &Path) -> Result<(), Error> {
    let (file, judged) = place.judged().context("cannot read what was decided")?;
    // A program that calls the runtime may name another bundle.
    let runs = if file.ends_with(CONFIG) { bundle.join(CONFIG) } else { file };
    let failed = || format!("cannot read {}", runs.display());
    let text = fs::read_to_string(&runs).with_context(failed)?;
    let (judged, text) = (serde_json::from_str(&judged)?, serde_json::from_str(&text)?);
    match rewrite::difference(&judged, &text) {
        None => Ok(()),
        Some(at) => Err(anyhow!(
            "{}: a program that Verbgate calls has changed {at}, after Verbgate has judged the bundle; have \
             that program call Verbgate instead (for NVIDIA's, verbgate runtime configure does so)",
            runs.display()
        )),
    }
}

/// Refuses a container that could open a device without a supervisor.
fn refuse_raw(rootfs: &Path, cm: bool) -> Result<(), Error> {
    let found =
        sandbox::openable_node(rootfs, cm).context("cannot search the container for devices")?;
    found.map_or(Ok(()), |node| {
        Err(anyhow!(
            "{}: a hook, or a program that Verbgate calls, has brought this RDMA device into the container, \
             unsupervised; remove the hook, or have the program call Verbgate instead (for NVIDIA's, verbgate \
             runtime configure does so)",
            Path::new("/").join(node.strip_prefix(rootfs).unwrap_or(&node)).display()
        ))
    })
}

fn created(place: &Place, pid: i32, netdevs: bool) -> Result<(), Error> {
    place.set_process(pid).context("cannot record the container's process")?;
    let way = Way::to(&place.control())
        .context("the container's supervisor is gone; create the container again")?;
    if netdevs {
        keeper::move_there(place, pid)?;
    }
    let spec = place.spec().context("cannot read the decisions for the container")?;
    bounds::enforce(&spec, pid).context("cannot read the container's policy")?;
    if spec.sysfs {
        // From here on this process is in the container's mount namespace.
        cover_sysfs(&way, &spec, pid)?;
    }
    letter::tell(&way, &Word::Created(pid), &[])?;
    Ok(())
}

/// The container sees its own devices in `/sys`, or there is no container.
fn cover_sysfs(way: &Way, spec: &Spec, pid: i32) -> Result<(), Error> {
    let serve = |fuse: BorrowedFd<'_>, root: BorrowedFd<'_>| {
        letter::tell(way, &Word::Sysfs(pid), &[fuse, root]).map_err(io::Error::other)
    };
    let cover = Cover {
        container: Tgid(pid),
        rootfs: &spec.rootfs,
        keep: verbgate_sandbox::KEEP,
        serve: &serve,
    };
    cover.make().map(drop).map_err(|e| {
        anyhow!(
            "the container would see the host's devices in /sys: {e}; annotation {}=host, or \
             --sysfs host, allows that",
            wish::SYSFS
        )
    })
}

/// Ends the supervisor, and removes the container's directory.
pub(super) fn end(place: &Place) -> Result<(), Error> {
    // Gone already, if it has died before.
    let _ = letter::tell_at(place, &Word::End);
    let deadline = Instant::now() + END_PATIENCE;
    while !place.remove_if_unsupervised().context("cannot remove the container's directory")? {
        if Instant::now() >= deadline {
            return Err(anyhow!("the supervisor of {} does not end", place.path().display()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
