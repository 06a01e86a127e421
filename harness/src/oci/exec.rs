//! `exec`: another process in a container comes under a filter of its own.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::IntoRawFd;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use rustix::fs::MemfdFlags;
use serde_json::Value;
use verbgate_sys::post;

use super::hook::PATIENCE_MS;
use super::line::Line;
use super::name_of;
use super::place::Place;
use super::rewrite;
use crate::cli::Global;

/// Prepares it, if the container has RDMA.
pub(super) fn prepare(line: &mut Line, global: &Global) -> Result<(), Error> {
    let Some(id) = name_of(line)? else { return Ok(()) };
    let place = Place::of(&std::path::absolute(global.root())?, &id, line.global("--root"));
    let spec = match place.spec() {
        Ok(spec) => spec,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", place.path().display())),
    };
    post::ask(&place.control(), br#""expect""#, PATIENCE_MS).map_err(|e| {
        anyhow!(
            "container {id}: its supervisor is gone ({e}); delete the container and create it again"
        )
    })?;
    if let Some(file) = line.process_file() {
        let process = rewritten(file.as_ref())?;
        line.set_process_file(process);
        return Ok(());
    }
    let after = line.id + 1;
    if after <= line.words.len() {
        let prefix = rewrite::prefix(&spec.setpcap).map(OsString::from);
        line.words.splice(after..after, prefix);
    }
    Ok(())
}

/// A file, of which nothing is left when the runtime has ended, that describes the process.
fn rewritten(file: &std::path::Path) -> Result<OsString, Error> {
    let failed = |e: io::Error| anyhow!("--process {}: {e}", file.display());
    let text = fs::read_to_string(file).map_err(failed)?;
    let mut process: Value = serde_json::from_str(&text).map_err(|e| failed(e.into()))?;
    rewrite::process(&mut process)?;
    // Inherited by the runtime, which opens it by its name.
    let mut memory = File::from(
        rustix::fs::memfd_create("process.json", MemfdFlags::empty())
            .map_err(|e| failed(e.into()))?,
    );
    memory.write_all(process.to_string().as_bytes()).map_err(failed)?;
    let name = format!("/proc/self/fd/{}", memory.as_raw_fd());
    // Stays open beyond this function, until the runtime ends.
    let _ = memory.into_raw_fd();
    Ok(name.into())
}
