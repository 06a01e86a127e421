//! `verbgate runtime configure`: registers `verbgate oci` with a container engine.
//!
//! An engine's file is edited as a tree of the file's own syntax (`docker`, `containerd`), so that
//! comments, order and white space stay. If an engine reads a directory of files, verbgate adds a
//! file (`dropin`, `imported`). The original file is kept until the change is undone (`undo`). Before the
//! change, the engine itself says what it would make of the new file (`ask`, `effective`).

mod ask;
mod containerd;
mod docker;
mod dropin;
mod effective;
mod imported;
mod names;
mod shape;
mod toolkit;
mod undo;
mod wanted;

use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use similar::TextDiff;

use self::ask::Program;
pub use self::names::is_ours;
pub(crate) use self::names::refuse_nvidias;
use self::undo::Entry;
use self::undo::Undo;
pub use self::wanted::Engine;
use self::wanted::Wanted;
use verbgate_host::files;
use verbgate_host::output::print;
use verbgate_host::output::say;

/// A runtime that an engine is to know, and how.
#[derive(Clone, Debug)]
pub struct Configure {
    /// The engine.
    pub engine: Engine,
    /// The name by which containers ask for it.
    pub name: String,
    /// The real runtime that it wraps: a name, or a path.
    pub wrap: String,
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

impl Engine {
    /// The program that can be asked about a file.
    fn program(self, args: &Configure) -> Result<Option<Program>, ask::AskError> {
        if args.no_verify {
            return Ok(None);
        }
        match self {
            Self::Containerd => Program::find("containerd", args.program.as_deref()).map(Some),
            // What is written for these cannot harm what is there.
            Self::Docker | Self::Podman | Self::Crio | Self::Nvidia => {
                let name = self.checks();
                match args.program.as_deref() {
                    None => Ok(Program::find(name, None).ok()),
                    named => Program::find(name, named).map(Some),
                }
            }
        }
    }

    /// The name of the program that checks.
    fn checks(self) -> &'static str {
        match self {
            Self::Docker => "dockerd",
            Self::Containerd => "containerd",
            Self::Podman => "podman",
            Self::Crio => "crio",
            Self::Nvidia => names::PROGRAM,
        }
    }

    /// Has the engine check what a file is to be without the runtime of a name.
    fn check_without(
        self,
        program: &Program,
        file: &Path,
        (now, after): (Option<&str>, Option<&str>),
        name: &str,
    ) -> Result<(), Error> {
        match (self, after) {
            (Self::Containerd, after) => containerd::check(program, file, now, after, name),
            (Self::Docker, Some(after)) => match now.map(|now| docker::check(program, file, now)) {
                Some(Err(_)) => Ok(()),
                _ => docker::check(program, file, after),
            },
            // Nothing of theirs is left to check.
            (Self::Docker | Self::Podman | Self::Crio | Self::Nvidia, _) => Ok(()),
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
            Self::Nvidia => toolkit::configured(file, text, wanted, program),
            Self::Podman => {
                let text = dropin::podman(text, wanted)?;
                program.map_or(Ok(()), |program| dropin::check_podman(program, file, &text))?;
                Ok((text, Vec::new()))
            }
            Self::Crio => {
                let text = dropin::crio(text, wanted)?;
                program
                    .map_or(Ok(()), |program| dropin::check_crio(program, file, &text, wanted))?;
                Ok((text, Vec::new()))
            }
        }
    }

    /// The file's text without the runtime of a name; `None`: no file at all.
    fn without(self, text: &str, name: &str) -> Result<Option<String>, Error> {
        match self {
            Self::Docker => docker::without(text, name).map(Some),
            Self::Containerd => containerd::without(text, name).map(Some),
            Self::Podman | Self::Crio => dropin::without(text),
            Self::Nvidia => toolkit::without(text).map(Some),
        }
    }
}

/// Makes `verbgate oci` known to an engine, and to NVIDIA's container toolkit, if this host has one; or takes that
/// back.
///
/// # Errors
/// When a file cannot be read, changed or written, or the engine or the toolkit refuses the new one.
pub fn configure(args: &Configure) -> Result<u8, Error> {
    let alone = args.engine == Engine::Nvidia;
    if alone && args.config.is_some() {
        return configure_one(args, true);
    }
    let files = if args.undo && !alone { unused_toolkits(args)? } else { toolkit::files() };
    if alone && files.is_empty() {
        return Err(anyhow!(
            "this host has no NVIDIA container toolkit: {} is missing; name the toolkit's file by --config",
            Engine::Nvidia.file()
        ));
    }
    let toolkits = || {
        files.iter().try_for_each(|file| {
            let (engine, config) = (Engine::Nvidia, Some(file.clone()));
            let program = args.program.clone().filter(|_| alone);
            let of_file = Configure { engine, config, program, ..args.clone() };
            configure_one(&of_file, alone).map(drop)
        })
    };
    // A file that the toolkit refuses changes no engine.
    if alone || !args.undo {
        toolkits()?;
    }
    if !alone {
        configure_one(args, true)?;
    }
    if !alone && args.undo {
        toolkits()?;
    }
    Ok(0)
}

/// Files of toolkits that Verbgate has changed, if no other engine is left for which Verbgate did so. What was asked for by
/// itself stays.
fn unused_toolkits(args: &Configure) -> Result<Vec<PathBuf>, Error> {
    let this = Entry { engine: args.engine, name: args.name.clone() };
    let mut files = Vec::new();
    for undo in Undo::all(&args.state_dir)? {
        let Some(kept) = undo.load()? else { continue };
        match kept.entry {
            Some(entry) if entry.engine == Engine::Nvidia && kept.alone => {}
            Some(entry) if entry.engine == Engine::Nvidia => files.push(undo.path().to_owned()),
            entry if entry != Some(this.clone()) => return Ok(Vec::new()),
            _ => {}
        }
    }
    Ok(files)
}

fn configure_one(args: &Configure, alone: bool) -> Result<u8, Error> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if args.name.is_empty() || !args.name.chars().all(is_name) {
        return Err(anyhow!(
            "--name {:?}: a runtime's name has letters, digits and -_. only",
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
        let program = args.program.as_deref();
        let how = Back { dry_run: args.dry_run, unchecked: args.no_verify, program };
        if args.config.is_none()
            && undo.load()?.is_none()
            && let Some(undo) = record_of(&args.state_dir, &entry)?
        {
            return take_back(&undo, Some(&entry), read(undo.path())?.as_deref(), how);
        }
        return take_back(&undo, Some(&entry), before.as_deref(), how);
    }
    let program = env::current_exe().context("cannot tell this program's path")?;
    let program = program.to_str().context("this program's path is not UTF-8 text")?.to_owned();
    let low_level = || toolkit::low_level(before.as_deref());
    let wrapped = (engine == Engine::Nvidia).then(low_level).flatten();
    let wrapped = wrapped.unwrap_or_else(|| args.wrap.clone());
    let wanted = Wanted { name: args.name.clone(), program, wrapped, cdi: args.cdi };
    wanted.check(engine)?;
    if engine.takes_path() && engine != Engine::Nvidia && !Path::new(&wanted.called()).exists() {
        say(&format!("make the link: ln -s {} {}", wanted.program, wanted.called()));
    }
    let asked = engine.program(args)?;
    let own = match (engine, &asked, &before, &args.config) {
        (Engine::Containerd, Some(program), Some(text), None) => {
            let own = imported::configured(&path, text, &wanted, program);
            own.map_err(|e| anyhow!("{}: {e:#}", path.display()))?
        }
        _ => None,
    };
    let change = match own {
        Some(change) => change,
        None => {
            let made = engine.with(&path, before.as_deref(), &wanted, asked.as_ref());
            let (after, notes) = made.map_err(|e| anyhow!("{}: {e:#}", path.display()))?;
            imported::Change { file: path, before, after, notes }
        }
    };
    let imported::Change { file: path, before, after, notes } = change;
    let undo = Undo::of(&args.state_dir, &path);
    for note in notes {
        say(&note);
    }
    if asked.is_none() && !args.no_verify {
        say(&format!(
            "the program {} is missing, so nobody but verbgate has read the file; --engine PATH names \
             the program",
            engine.checks()
        ));
    }
    if before.as_ref() == Some(&after) {
        if alone && !args.dry_run {
            undo.keep_alone()?;
        }
        say(&format!("{}: nothing to change", path.display()));
        return Ok(0);
    }
    show(&path, before.as_deref(), Some(&after))?;
    if !args.dry_run {
        undo.keep(entry, alone, before.as_deref(), &after)?;
        write(&path, Some(&after))?;
        say_next(engine);
    }
    Ok(0)
}

/// The record of a runtime's entry, in whatever file the entry is.
fn record_of(state_dir: &Path, entry: &Entry) -> Result<Option<Undo>, Error> {
    for undo in Undo::all(state_dir)? {
        if undo.load()?.is_some_and(|kept| kept.entry.as_ref() == Some(entry)) {
            return Ok(Some(undo));
        }
    }
    Ok(None)
}

/// The files in which an engine's runtimes are: the engine's own file, and verbgate's, if the engine reads one.
#[must_use]
pub fn files(engine: Engine) -> Vec<PathBuf> {
    if engine == Engine::Nvidia {
        return toolkit::files();
    }
    let main = PathBuf::from(engine.file());
    let own = match engine {
        Engine::Containerd => fs::read_to_string(&main).ok().and_then(|text| imported::file(&text)),
        _ => None,
    };
    [Some(main), own].into_iter().flatten().filter(|file| file.exists()).collect()
}

/// The names that verbgate's own file for podman or CRI-O has for runtimes; none for other engines.
#[must_use]
pub fn names(engine: Engine) -> Vec<String> {
    fs::read_to_string(engine.file())
        .map_or_else(|_| Vec::new(), |text| dropin::names(engine, &text))
}

/// Whether an engine's file names this program as a runtime, as the engine itself reads the file.
///
/// # Errors
/// When the file cannot be read, or the engine cannot read the file.
pub fn configured(engine: Engine) -> Result<bool, Error> {
    if engine == Engine::Nvidia {
        let files = toolkit::files();
        let texts = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
        let calls_us = |text: &Option<String>| text.as_deref().is_some_and(toolkit::calls_us);
        return Ok(!texts.is_empty() && texts.iter().all(calls_us));
    }
    let path = Path::new(engine.file());
    let text = read(path)?;
    let known = match (engine, &text) {
        (Engine::Containerd, _) => match Program::find("containerd", None) {
            Ok(program) => {
                let text = text.as_deref().filter(|text| !text.trim().is_empty());
                effective::Effective::of(&program, path, text)
                    .map(|all| all.programs().any(is_ours))
            }
            // Without the program, only its socket is here.
            Err(_) => Ok(text.is_some_and(|text| text.contains("verbgate-oci"))),
        },
        (_, None) => Ok(false),
        (Engine::Docker, Some(text)) => {
            return docker::programs(text).map(|all| all.iter().any(|path| is_ours(path)));
        }
        (Engine::Podman | Engine::Crio | Engine::Nvidia, Some(text)) => {
            Ok(text.contains("verbgate-oci"))
        }
    };
    known.map_err(|e| anyhow!("{}: {e}", path.display()))
}

/// How a file is taken back.
#[derive(Clone, Copy, Default)]
struct Back<'a> {
    dry_run: bool,
    /// Whether the engine is not asked.
    unchecked: bool,
    /// The engine's program, if one is named.
    program: Option<&'a Path>,
}

impl Back<'_> {
    /// Has the engine check what the file is to be. An engine whose program is gone reads no file.
    fn check(
        self,
        entry: &Entry,
        file: &Path,
        texts: (Option<&str>, Option<&str>),
    ) -> Result<(), Error> {
        let program = match self.program {
            None => Program::find(entry.engine.checks(), None).ok(),
            named => Some(Program::find(entry.engine.checks(), named)?),
        };
        let Some(program) = program.filter(|_| !self.unchecked) else { return Ok(()) };
        let checked = entry.engine.check_without(&program, file, texts, &entry.name);
        checked.map_err(|e| {
            anyhow!(
                "{}: the engine would not take the file without the runtime {}: {e:#}; the file stays as it is; \
                 after the repair, or with --no-verify: verbgate runtime configure --undo --runtime {} --name {} \
                 --config {}",
                file.display(),
                entry.name,
                entry.engine.word(),
                entry.name,
                file.display()
            )
        })
    }
}

/// Takes one file back to what it was; where others have changed it since, only our entry goes.
fn take_back(
    undo: &Undo,
    entry: Option<&Entry>,
    now: Option<&str>,
    how: Back<'_>,
) -> Result<u8, Error> {
    let path = undo.path();
    let after = match (undo.load()?, now) {
        (Some(kept), now) if now == Some(kept.after.as_str()) => kept.before,
        (kept, Some(text)) => {
            let entry = entry.cloned().or_else(|| kept?.entry).with_context(|| {
                format!(
                    "{}: somebody else has changed this file, and the record names no runtime; \
                     remove the runtime by: verbgate runtime configure --undo --runtime ENGINE \
                     --config {}",
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
        say(&format!("{}: nothing to change", path.display()));
    } else {
        if let Some(entry) = entry {
            how.check(entry, path, (now, after.as_deref()))?;
        }
        show(path, now, after.as_deref())?;
    }
    if how.dry_run {
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
            let how = Back { dry_run, ..Back::default() };
            take_back(&undo, entry.as_ref(), now.as_deref(), how)
        });
        failed.extend(done.err().map(|e| format!("{e:#}")));
    }
    if failed.is_empty() { Ok(0) } else { Err(anyhow!("{}", failed.join("; "))) }
}

/// Writes a file, or removes it.
fn write(path: &Path, text: Option<&str>) -> Result<(), Error> {
    let done = match text {
        Some(text) => files::replace(path, text.as_bytes(), files::PUBLIC),
        None => fs::remove_file(path),
    };
    done.map_err(|e| anyhow!("cannot write {}: {e}", path.display()))
}

fn say_next(engine: Engine) {
    if !engine.next().is_empty() {
        say(&format!("for the change to take effect: {}", engine.next()));
    }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let text = String::from_utf8(bytes).map_err(|e| {
        let good = e.as_bytes().get(..e.utf8_error().valid_up_to()).unwrap_or_default();
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        anyhow!("{}: line {line}: the text is not UTF-8; repair the file first", path.display())
    })?;
    Ok(Some(text))
}

fn show(path: &Path, before: Option<&str>, after: Option<&str>) -> Result<(), Error> {
    let name = |text: Option<&str>| text.map_or("/dev/null".into(), |_| path.display().to_string());
    let diff = TextDiff::from_lines(before.unwrap_or_default(), after.unwrap_or_default());
    Ok(print(&diff.unified_diff().header(&name(before), &name(after)).to_string())?)
}
