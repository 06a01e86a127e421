//! Questions to an engine: its version, and the settings that the engine would take from a file.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

/// Directories of engines that are not in everybody's `PATH`.
const SYSTEM_PATH: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Beginning of the copies' names.
pub(super) const TRIAL: &str = ".verbgate-check-";

/// Why an engine could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// The program is missing.
    #[error(
        "cannot check the changed file: the program {name} is missing; name the engine's program by \
         --engine PATH, or write the file unchecked by --no-verify"
    )]
    Missing { name: String },
    /// The program cannot be run.
    #[error("cannot run {}: {source}", .program.display())]
    Run { program: PathBuf, r#source: io::Error },
    /// The program refuses the file.
    #[error("{said}; repair the file first")]
    Refused { said: String },
    /// The copy that the engine is to read cannot be written.
    #[error("cannot write a copy for the engine to check to {}: {source}", .path.display())]
    Trial { path: PathBuf, r#source: io::Error },
}

/// An engine's program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
}

impl Program {
    /// The program of this name, or the one that the user has named.
    pub(super) fn find(name: &str, named: Option<&Path>) -> Result<Self, AskError> {
        if let Some(path) = named {
            let there = path.is_file();
            let missing = || AskError::Missing { name: path.display().to_string() };
            return there.then(|| Self { path: path.to_owned() }).ok_or_else(missing);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path)
            .chain(SYSTEM_PATH.iter().map(PathBuf::from))
            .map(|dir| dir.join(name))
            .find(|file| file.is_file());
        found.map(|path| Self { path }).ok_or_else(|| AskError::Missing { name: name.to_owned() })
    }

    /// The program's output. The last line of the output tells a failure.
    pub(super) fn output<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<String, AskError> {
        self.output_of(Command::new(&self.path).args(args))
    }

    /// The same with a file that a variable of the environment names.
    pub(super) fn reads(&self, variable: &str, file: &Path, args: &[&str]) -> Result<(), AskError> {
        self.output_of(Command::new(&self.path).args(args).env(variable, file)).map(drop)
    }

    fn output_of(&self, command: &mut Command) -> Result<String, AskError> {
        let failed = |source| AskError::Run { program: self.path.clone(), source };
        let output = command.stdin(Stdio::null()).output().map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let said = last.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned());
        Err(AskError::Refused { said })
    }

    /// The program's version.
    pub(super) fn version(&self) -> Result<Version, AskError> {
        Ok(Version::of(&self.output(&["--version"])?))
    }
}

/// A version, as the engine writes it, and the two numbers that decide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Version {
    text: String,
    numbers: Option<(u32, u32)>,
}

impl Version {
    /// The first word that has two numbers with a dot between them.
    fn of(text: &str) -> Self {
        let numbers = |word: &str| -> Option<(u32, u32)> {
            let mut parts = word.trim_start_matches('v').split('.');
            let minor = parts.by_ref().nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?;
            let major = word.trim_start_matches('v').split('.').next()?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        };
        let found = text.split([' ', ',', '\n']).find_map(|word| Some((word, numbers(word)?)));
        match found {
            Some((word, numbers)) => Self { text: word.to_owned(), numbers: Some(numbers) },
            None => Self { text: text.trim().to_owned(), numbers: None },
        }
    }

    /// Whether it is known to be older than this.
    pub(super) fn is_before(&self, wanted: (u32, u32)) -> bool {
        self.numbers.is_some_and(|numbers| numbers < wanted)
    }

    /// As the engine writes it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// A copy of a file that is only for the engine to read; gone when dropped.
#[derive(Debug)]
pub(super) struct Trial {
    path: PathBuf,
}

impl Trial {
    /// Beside the file, because what it imports by a relative path is looked for there; by a name
    /// that patterns such as `*.toml` do not match. Elsewhere where nothing can be written there, for
    /// who only asks what would change.
    pub(super) fn beside(file: &Path, text: &str) -> Result<Self, AskError> {
        let name = format!("{TRIAL}{}", std::process::id());
        let elsewhere = env::temp_dir().join(&name);
        let beside = file.parent().map_or_else(|| elsewhere.clone(), |dir| dir.join(&name));
        let write = |path: &Path| -> io::Result<()> {
            // Never through a link that somebody else has put there.
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            options.open(path)?.write_all(text.as_bytes())
        };
        let (path, written) = match write(&beside) {
            Err(e) if is_no_place(&e) => (elsewhere.clone(), write(&elsewhere)),
            other => (beside, other),
        };
        written.map_err(|source| AskError::Trial { path: path.clone(), source })?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether nothing can be written into a folder.
fn is_no_place(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
    )
}

impl Drop for Trial {
    fn drop(&mut self) {
        // That it is gone already is what is wanted.
        let _ = fs::remove_file(&self.path);
    }
}

/// A refusal speaks of the file, not of its copy, and begins with the line, where the engine tells the line.
pub(super) fn in_place(error: AskError, trial: &Trial, file: &Path) -> AskError {
    let (from, to) = (trial.path().display().to_string(), file.display().to_string());
    match error {
        AskError::Refused { said } => {
            let line = line_in(&said).map(|line| format!("line {line}: ")).unwrap_or_default();
            AskError::Refused { said: line + &said.replace(&from, &to) }
        }
        other => other,
    }
}

/// The line that an engine speaks of in words of its own: `(2, 8): `, or `row 2 column 8`.
fn line_in(said: &str) -> Option<u32> {
    let number = |text: &str| {
        let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
        Some((digits.parse::<u32>().ok()?, text.get(digits.len()..)?.to_owned()))
    };
    let row = said.split(" row ").skip(1).find_map(|rest| Some(number(rest)?.0));
    let pair = || {
        said.split('(').skip(1).find_map(|rest| {
            let (line, rest) = number(rest)?;
            number(rest.strip_prefix(", ")?)?.1.starts_with("):").then_some(line)
        })
    };
    row.or_else(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_own_word_for_a_line_is_read() {
        for (said, line) in [
            ("containerd: failed to unmarshal TOML at row 2 column 8: toml: cannot", Some(2)),
            ("containerd: failed to load TOML: /x/config.toml: (13, 1): Can't convert 3", Some(13)),
            ("containerd: a throw (3 of 4) of the row", None),
            ("", None),
        ] {
            assert_eq!(line_in(said), line, "{said}");
        }
    }

    #[test]
    fn versions_are_read_as_engines_print_them() {
        for (text, word, numbers) in [
            (
                "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n",
                "1.6.20~ds1",
                (1, 6),
            ),
            (
                "containerd github.com/containerd/containerd/v2 2.1.9+unknown \n",
                "2.1.9+unknown",
                (2, 1),
            ),
            ("containerd containerd.io v1.7.27 05044ec0", "v1.7.27", (1, 7)),
            ("Docker version 26.1.5+dfsg1, build 411e817\n", "26.1.5+dfsg1", (26, 1)),
            ("Docker version 20.10.24+dfsg1, build 297e128\n", "20.10.24+dfsg1", (20, 10)),
        ] {
            let version = Version::of(text);
            assert_eq!((version.text(), version.numbers), (word, Some(numbers)), "{text}");
        }
        let odd = Version::of("Docker, built by hand\n");
        assert!(!odd.is_before((25, 0)) && odd.text() == "Docker, built by hand");
        assert!(Version::of("24.9").is_before((25, 0)) && !Version::of("25.0").is_before((25, 0)));
    }

    #[test]
    fn a_failure_is_told_by_its_last_line() {
        let shell = Program::find("sh", None).unwrap();
        let error = shell.output(&["-c", "echo first >&2; echo why >&2; exit 1"]).unwrap_err();
        assert!(error.to_string().starts_with("why;"), "{error}");
        let error = Program::find("no-such-engine", None).unwrap_err().to_string();
        assert!(error.contains("--engine") && error.contains("--no-verify"), "{error}");
    }

    #[test]
    fn a_trial_is_beside_its_file_and_gone_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let trial = Trial::beside(&dir.path().join("config.toml"), "x").unwrap();
        assert_eq!(trial.path().parent(), Some(dir.path()));
        assert_eq!(fs::read_to_string(trial.path()).unwrap(), "x");
        // Neither a second one nor what others have put there is written to.
        assert!(Trial::beside(&dir.path().join("config.toml"), "y").is_err());
        drop(trial);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let far = Trial::beside(&dir.path().join("none/config.toml"), "x").unwrap();
        assert_eq!(far.path().parent(), Some(env::temp_dir().as_path()));
    }
}
