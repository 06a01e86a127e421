//! `verbgate runtime configure`: makes `verbgate oci` known to a container engine.
//!
//! An engine's file is edited as a tree of its own syntax ([`docker`], [`containerd`]), so that
//! comments, order and white space stay; where an engine reads a directory of files, a file of our own
//! is put there ([`dropin`]). What the file was is kept until it is undone ([`undo`]). Before it is
//! changed, the engine itself is asked what it would make of it ([`ask`], [`effective`]).

mod ask;
mod containerd;
mod docker;
mod dropin;
mod effective;
mod undo;

use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use serde::Deserialize;
use serde::Serialize;
use similar::TextDiff;

use self::ask::Program;
use self::undo::Entry;
use self::undo::Undo;
use crate::output::print;

/// A runtime that an engine is to know, and how.
#[derive(Clone, Debug)]
pub struct Configure {
    /// The engine.
    pub engine: Engine,
    /// The name by which containers ask for it.
    pub name: String,
    /// The real runtime that it wraps.
    pub wrap: Wrapped,
    /// Whether the engine is to read CDI specifications, too.
    pub cdi: bool,
    /// The file to edit, or to make; the engine's own if none is given.
    pub config: Option<PathBuf>,
    /// The engine's program, which checks the changed file; the one in `PATH` if none is given.
    pub program: Option<PathBuf>,
    /// Whether the file is written without a check.
    pub no_verify: bool,
    /// Whether to print only what would change.
    pub dry_run: bool,
    /// Whether to take the change back.
    pub undo: bool,
    /// Directory in which it is kept what the file was.
    pub state_dir: PathBuf,
}

/// A container engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Docker.
    Docker,
    /// containerd.
    Containerd,
    /// Podman.
    Podman,
    /// CRI-O.
    Crio,
}

/// An OCI runtime that can be wrapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrapped {
    /// runc.
    Runc,
    /// crun.
    Crun,
}

impl Wrapped {
    fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
        }
    }
}

/// What an engine is to know.
#[derive(Clone, Debug)]
struct Wanted {
    /// The runtime's name.
    name: String,
    /// This program.
    program: String,
    /// What it wraps.
    wrapped: &'static str,
    cdi: bool,
}

impl Wanted {
    /// The path for engines that take no arguments: this program by a name that says them.
    fn called(&self) -> String {
        let beside =
            Path::new(&self.program).with_file_name(format!("verbgate-oci-{}", self.wrapped));
        beside.to_string_lossy().into_owned()
    }
}

impl Engine {
    fn file(self) -> &'static str {
        match self {
            Self::Docker => "/etc/docker/daemon.json",
            Self::Containerd => "/etc/containerd/config.toml",
            Self::Podman => "/etc/containers/containers.conf.d/50-verbgate.conf",
            Self::Crio => "/etc/crio/crio.conf.d/50-verbgate.conf",
        }
    }

    /// What is left to do.
    fn next(self) -> &'static str {
        match self {
            Self::Docker => "systemctl restart docker",
            Self::Containerd => "systemctl restart containerd",
            Self::Podman => "",
            Self::Crio => "systemctl restart crio",
        }
    }

    /// Whether it is told a path only.
    fn takes_path(self) -> bool {
        self != Self::Docker
    }

    /// The program that can be asked about a file.
    fn program(self, args: &Configure) -> Result<Option<Program>, ask::Error> {
        if args.no_verify {
            return Ok(None);
        }
        match self {
            Self::Containerd => Program::find("containerd", args.program.as_deref()).map(Some),
            // What is written for Docker cannot harm what is there.
            Self::Docker if args.program.is_none() => Ok(Program::find("dockerd", None).ok()),
            Self::Docker => Program::find("dockerd", args.program.as_deref()).map(Some),
            Self::Podman | Self::Crio => Ok(None),
        }
    }

    /// The file's text with what is wanted, and what is to be said about that.
    fn with(
        self,
        file: &Path,
        text: Option<&str>,
        wanted: &Wanted,
        program: Option<&Program>,
    ) -> Result<(String, Vec<String>), Error> {
        match self {
            Self::Docker => docker::configured(file, text, wanted, program),
            Self::Containerd => containerd::configured(file, text, wanted, program),
            Self::Podman => dropin::podman(text, wanted).map(|text| (text, Vec::new())),
            Self::Crio => dropin::crio(text, wanted).map(|text| (text, Vec::new())),
        }
    }

    /// The file's text without the runtime of a name; `None`: no file at all.
    fn without(self, text: &str, name: &str) -> Result<Option<String>, Error> {
        match self {
            Self::Docker => docker::without(text, name).map(Some),
            Self::Containerd => containerd::without(text, name).map(Some),
            Self::Podman | Self::Crio => dropin::without(text),
        }
    }
}

/// Makes `verbgate oci` known to an engine, or takes that back.
///
/// # Errors
/// When the engine's file cannot be read, changed or written, or the engine refuses the new one.
pub fn configure(args: &Configure) -> Result<u8, Error> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if args.name.is_empty() || !args.name.chars().all(is_name) {
        return Err(anyhow!(
            "--name {:?}: letters, digits and -_. make a runtime's name",
            args.name
        ));
    }
    let engine = args.engine;
    let path = args.config.clone().unwrap_or_else(|| engine.file().into());
    // A link is followed, not replaced.
    let path = fs::canonicalize(&path).or_else(|_| std::path::absolute(&path))?;
    let before = read(&path)?;
    let undo = Undo::of(&args.state_dir, &path);
    let entry = Entry { engine, name: args.name.clone() };
    if args.undo {
        return take_back(&undo, Some(&entry), before.as_deref(), args.dry_run);
    }
    let program = env::current_exe().context("cannot tell this program's path")?;
    let program = program.to_str().context("this program's path is no text")?.to_owned();
    let wanted =
        Wanted { name: args.name.clone(), program, wrapped: args.wrap.name(), cdi: args.cdi };
    if engine.takes_path() && !Path::new(&wanted.called()).exists() {
        eprintln!("verbgate: make the link: ln -s {} {}", wanted.program, wanted.called());
    }
    let asked = engine.program(args)?;
    let made = engine.with(&path, before.as_deref(), &wanted, asked.as_ref());
    let (after, notes) = made.map_err(|e| anyhow!("{}: {e:#}", path.display()))?;
    for note in notes {
        eprintln!("verbgate: {note}");
    }
    if before.as_ref() == Some(&after) {
        eprintln!("verbgate: {}: nothing to change", path.display());
        return Ok(0);
    }
    show(&path, before.as_deref(), Some(&after))?;
    if !args.dry_run {
        undo.keep(entry, before.as_deref(), &after)?;
        write(&path, Some(&after))?;
        say_next(engine);
    }
    Ok(0)
}

/// Takes one file back to what it was; where others have changed it since, only our entry goes.
fn take_back(
    undo: &Undo,
    entry: Option<&Entry>,
    now: Option<&str>,
    dry_run: bool,
) -> Result<u8, Error> {
    let path = undo.path();
    let after = match (undo.load()?, now) {
        (Some(kept), now) if now == Some(kept.after.as_str()) => kept.before,
        (kept, Some(text)) => {
            let entry = entry.cloned().or_else(|| kept?.entry).with_context(|| {
                format!(
                    "{}: somebody else has changed this file, and the record names no runtime; remove the \
                     runtime by: verbgate runtime configure --undo --runtime ENGINE --config {}",
                    path.display(),
                    path.display()
                )
            })?;
            let without = entry.engine.without(text, &entry.name);
            without.map_err(|e| anyhow!("{}: {e:#}", path.display()))?
        }
        (_, None) => None,
    };
    if now == after.as_deref() {
        eprintln!("verbgate: {}: nothing to change", path.display());
    } else {
        show(path, now, after.as_deref())?;
    }
    if dry_run {
        return Ok(0);
    }
    if now != after.as_deref() {
        write(path, after.as_deref())?;
        if let Some(entry) = entry {
            say_next(entry.engine);
        }
    }
    undo.forget()?;
    Ok(0)
}

/// Takes all back of which there is a record. What cannot be taken back does not keep the rest.
///
/// # Errors
/// What cannot be taken back.
pub fn unconfigure(state_dir: &Path, dry_run: bool) -> Result<u8, Error> {
    let mut failed = Vec::new();
    for undo in Undo::all(state_dir)? {
        let done = read(undo.path()).and_then(|now| {
            let entry = undo.load()?.and_then(|kept| kept.entry);
            take_back(&undo, entry.as_ref(), now.as_deref(), dry_run)
        });
        failed.extend(done.err().map(|e| format!("{e:#}")));
    }
    if failed.is_empty() { Ok(0) } else { Err(anyhow!("{}", failed.join("; "))) }
}

/// Writes a file, or removes it.
fn write(path: &Path, text: Option<&str>) -> Result<(), Error> {
    let done = match text {
        Some(text) => verbgate_host::files::replace(path, text),
        None => fs::remove_file(path),
    };
    done.map_err(|e| anyhow!("cannot write {}: {e}", path.display()))
}

fn say_next(engine: Engine) {
    if !engine.next().is_empty() {
        eprintln!("verbgate: for it to take effect: {}", engine.next());
    }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(anyhow!("cannot read {}: {e}", path.display())),
    }
}

fn show(path: &Path, before: Option<&str>, after: Option<&str>) -> Result<u8, Error> {
    let name = |text: Option<&str>| text.map_or("/dev/null".into(), |_| path.display().to_string());
    let diff = TextDiff::from_lines(before.unwrap_or_default(), after.unwrap_or_default());
    print(&diff.unified_diff().header(&name(before), &name(after)).to_string())
}

/// Line and column of a byte, as editors count them.
fn place_of(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[cfg(test)]
fn wanted_for_tests() -> Wanted {
    Wanted {
        name: "verbgate".into(),
        program: "/usr/bin/verbgate".into(),
        wrapped: "runc",
        cdi: true,
    }
}
