//! `exec`: the wrapped runtime, and with it the executed process, come under a filter of their own.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::IntoRawFd;
use std::path::Path;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use rustix::fs::MemfdFlags;
use serde_json::Value;
use verbgate_sys::post::Way;

use super::letter;
use super::line::Line;
use super::place::Place;
use super::place::Spec;
use super::rewrite;
use super::rewrite::CONFIG;
use super::under;
use crate::line::name_of;
use crate::options::Globals;

/// A container that has RDMA, by a command line; `None` for any other.
pub(super) fn known(line: &Line, globals: &Globals) -> Result<Option<(Place, Spec)>, Error> {
    // A container whose name is none has no RDMA.
    let Ok(Some(id)) = name_of(line) else { return Ok(None) };
    let place = Place::of(&std::path::absolute(&globals.root)?, &id, line.global("--root"));
    match place.spec() {
        Ok(spec) => Ok(Some((place, spec))),
        // Where nobody has made a directory of run-time state, there is no such container.
        Err(e)
            if [
                io::ErrorKind::NotFound,
                io::ErrorKind::NotADirectory,
                io::ErrorKind::InvalidFilename,
            ]
            .contains(&e.kind()) =>
        {
            Ok(None)
        }
        // Only root's containers have RDMA.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !verbgate_host::is_root() => {
            Ok(None)
        }
        Err(e) => Err(e).with_context(|| {
            let place = place.path().display();
            format!("cannot read {place}; delete the container, and create the container anew")
        }),
    }
}

/// Prepares it, if the container has RDMA.
pub(super) fn prepare(line: &mut Line, globals: &Globals) -> Result<(), Error> {
    let Some((place, spec)) = known(line, globals)? else { return Ok(()) };
    let way = Way::to(&place.control())
        .map_err(|e| letter::of_container(&spec.id, &letter::Untold::Gone(e)))?;
    let process = match line.process_file() {
        Some(file) => {
            let process = read(file.as_ref(), &spec)?;
            line.set_process_file(in_memory(&process)?);
            process
        }
        None => {
            let taken = line.remove_capabilities(|name| rewrite::is_cut(name, &spec.keep));
            let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
            rewrite::without(&taken).inspect(|line| log::warn!("container {}: {line}", spec.id));
            // The runtime takes what is not said from the container's own process.
            let config = fs::read_to_string(spec.bundle.join(CONFIG)).unwrap_or_default();
            let config: Value = serde_json::from_str(&config).unwrap_or_default();
            config.get("process").cloned().unwrap_or_default()
        }
    };
    under::come_under(&way, &process, spec.compat)
        .map_err(|e| anyhow!("container {}: {e:#}", spec.id))
}

/// Tells the supervisor that the container's command will be executed next.
pub(super) fn start(line: &Line, globals: &Globals) -> Result<(), Error> {
    let Some((place, spec)) = known(line, globals)? else { return Ok(()) };
    letter::tell_at(&place, &letter::Word::Start)
        .map_err(|untold| letter::of_container(&spec.id, &untold))
}

/// The process that a file describes, without what containers with RDMA may not have.
fn read(file: &Path, spec: &Spec) -> Result<Value, Error> {
    let failed = |e: io::Error| anyhow!("--process {}: {e}", file.display());
    let text = fs::read_to_string(file).map_err(failed)?;
    let mut process: Value = serde_json::from_str(&text).map_err(|e| failed(e.into()))?;
    rewrite::process(&mut process, &spec.keep, spec.memlock)?;
    Ok(process)
}

/// A file, of which nothing is left when the runtime has ended.
fn in_memory(process: &Value) -> Result<OsString, Error> {
    let failed = |e: io::Error| anyhow!("cannot describe the process to the runtime: {e}");
    // Inherited by the runtime, which opens it by its name.
    let memory = rustix::fs::memfd_create("process.json", MemfdFlags::empty());
    let mut memory = File::from(memory.map_err(|e| failed(e.into()))?);
    memory.write_all(process.to_string().as_bytes()).map_err(failed)?;
    let name = format!("/proc/self/fd/{}", memory.as_raw_fd());
    // Stays open beyond this function, until the runtime ends.
    let _ = memory.into_raw_fd();
    Ok(name.into())
}
