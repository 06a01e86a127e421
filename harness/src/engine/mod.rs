//! `verbgate runtime configure`: makes `verbgate oci` known to a container engine.
//!
//! An engine's file is edited as a tree of its own syntax ([`docker`], [`containerd`]), so that
//! comments, order and white space stay; where an engine reads a directory of files, a file of our own
//! is put there ([`dropin`]). What the file was is kept until it is undone ([`undo`]).

mod containerd;
mod docker;
mod dropin;
mod undo;

use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;
use similar::TextDiff;

use self::undo::Undo;
use crate::cdi::print;
use crate::failure::Failure;
use crate::netdev::journal::STATE_DIR;

#[derive(Debug, Subcommand)]
pub(crate) enum RuntimeCommand {
    /// Make `verbgate oci` known to a container engine, as a runtime beside the others
    Configure(ConfigureArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigureArgs {
    /// The engine
    #[arg(long, value_name = "ENGINE")]
    runtime: Engine,
    /// The name by which containers ask for it (docker run --runtime NAME)
    #[arg(long, value_name = "NAME", default_value = "verbgate")]
    name: String,
    /// The real runtime that it wraps
    #[arg(long, value_name = "RUNTIME", default_value = "runc")]
    wrap: Wrapped,
    /// Have the engine read CDI specifications, too: docker and containerd; the others do anyway
    #[arg(long)]
    cdi: bool,
    /// The file to edit, or to make [default: the engine's own]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Only print what would change
    #[arg(long)]
    dry_run: bool,
    /// Take it back: the file is byte by byte as it was, if nobody else has changed it since
    #[arg(long)]
    undo: bool,
    /// Directory in which it is kept what the file was
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Engine {
    Docker,
    Containerd,
    Podman,
    Crio,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Wrapped {
    Runc,
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
#[derive(Debug)]
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

    /// The file's text with what is wanted.
    fn with(self, text: Option<&str>, wanted: &Wanted) -> Result<String, Error> {
        match self {
            Self::Docker => docker::with(text, wanted),
            Self::Containerd => containerd::with(text, wanted),
            Self::Podman => dropin::podman(text, wanted),
            Self::Crio => dropin::crio(text, wanted),
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

/// Runs the command.
pub(crate) fn run(command: &RuntimeCommand) -> Result<u8, Failure> {
    let RuntimeCommand::Configure(args) = command;
    configure(args).map_err(Failure::of_tool)
}

fn configure(args: &ConfigureArgs) -> Result<u8, Error> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if args.name.is_empty() || !args.name.chars().all(is_name) {
        return Err(anyhow!(
            "--name {:?}: letters, digits and -_. make a runtime's name",
            args.name
        ));
    }
    let engine = args.runtime;
    let path = args.config.clone().unwrap_or_else(|| engine.file().into());
    // A link is followed, not replaced.
    let path = fs::canonicalize(&path).or_else(|_| std::path::absolute(&path))?;
    let before = read(&path)?;
    let undo = Undo::of(&args.state_dir, &path);
    let at = |e: Error| anyhow!("{}: {e:#}", path.display());
    let after = if args.undo {
        match (undo.load()?, &before) {
            (Some(kept), before) if before.as_ref() == Some(&kept.after) => kept.before,
            (_, Some(text)) => engine.without(text, &args.name).map_err(at)?,
            (_, None) => None,
        }
    } else {
        let program = env::current_exe().context("cannot tell this program's path")?;
        let program = program.to_str().context("this program's path is no text")?.to_owned();
        let wanted =
            Wanted { name: args.name.clone(), program, wrapped: args.wrap.name(), cdi: args.cdi };
        if engine.takes_path() && !Path::new(&wanted.called()).exists() {
            eprintln!("verbgate: make the link: ln -s {} {}", wanted.program, wanted.called());
        }
        Some(engine.with(before.as_deref(), &wanted).map_err(at)?)
    };
    if before == after {
        eprintln!("verbgate: {}: nothing to change", path.display());
        if args.undo && !args.dry_run {
            undo.forget()?;
        }
        return Ok(0);
    }
    show(&path, before.as_deref(), after.as_deref())?;
    if args.dry_run {
        return Ok(0);
    }
    let done = match (&after, args.undo) {
        (Some(text), false) => {
            undo.keep(before.as_deref(), text)?;
            crate::cdi::replace(&path, text)
        }
        (Some(text), true) => crate::cdi::replace(&path, text),
        (None, _) => fs::remove_file(&path).map(|()| 0),
    };
    done.map_err(|e| anyhow!("cannot write {}: {e}", path.display()))?;
    if args.undo {
        undo.forget()?;
    }
    if !engine.next().is_empty() {
        eprintln!("verbgate: for it to take effect: {}", engine.next());
    }
    Ok(0)
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
