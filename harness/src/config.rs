//! `/etc/verbgate/config.toml`: options of `verbgate oci`, for engines that take a runtime's path
//! and no arguments; and the directories of that runtime, where other commands look, too. Options of the command line
//! override the file.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Error;
use anyhow::anyhow;
use serde::Deserialize;
use verbgate_host::files;

use crate::cli;
use crate::cli::Cli;

/// Path of the file.
pub(crate) const FILE: &str = "/etc/verbgate/config.toml";
/// The last file that could be read. Containers that run, and those without RDMA, depend on no mistake in the next.
pub(crate) const LAST: &str = "/run/verbgate/config.toml";

/// The command whose options it has.
const COMMAND: &str = "oci";
/// The other commands that look into the same directories: whether each one takes `--root` and `--policy-dir`, and whether
/// the command is of use with a file that cannot be read.
const OTHERS: [(&str, bool, bool, bool); 8] = [
    ("agent", true, true, false),
    ("policy", true, true, false),
    ("run", false, true, false),
    ("ps", true, false, true),
    ("show", true, false, true),
    ("stats", true, false, true),
    ("gc", true, false, true),
    ("doctor", true, false, true),
];
/// Of these commands, the one whose options follow a second word.
const OF_TWO_WORDS: &str = "policy";

/// The file's keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    pub(crate) profile: Option<String>,
    pub(crate) sysfs: Option<String>,
    without_supervisor: Option<String>,
    annotations: Option<String>,
    audit: Option<String>,
    rdma_within: Option<u64>,
    #[serde(default)]
    require_rdma: bool,
    #[serde(default)]
    keep_cap: Vec<String>,
    log: Option<PathBuf>,
    log_level: Option<String>,
    log_format: Option<String>,
    root: Option<PathBuf>,
    pub(crate) policy_dir: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    /// Why the file is not the one in force.
    #[serde(skip)]
    refuse: Option<String>,
}

/// What the file says; nothing where there is none.
fn read(file: &Path) -> Result<Option<File>, Error> {
    text(file)?.map(|text| parsed(file, &text)).transpose()
}

fn text(file: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).with_context(|| format!("cannot read {}", file.display())),
    }
}

fn parsed(file: &Path, text: &str) -> Result<File, Error> {
    toml::from_str(text)
        .map_err(|e| anyhow!("{}: {}", file.display(), e.to_string().trim_end().replace('\n', " ")))
}

/// A command line with what the file adds to it; the same where there is no file, or the command is
/// another. With a file that cannot be read, a runtime has what the last one says, and gives no container RDMA.
pub(crate) fn add(args: &[OsString], file: &Path, last: &Path) -> Result<Vec<OsString>, Error> {
    let Some((program, rest)) = args.split_first() else { return Ok(Vec::new()) };
    let command = cli::first_word(rest);
    let Some((before, after)) = command.and_then(|at| rest.split_at_checked(at + 1)) else {
        return Ok(args.to_vec());
    };
    let word = before.last().and_then(|word| word.to_str()).unwrap_or_default();
    if word != COMMAND {
        return others(program, before, after, file);
    }
    let with = |file: File| of_runtime(program, before, after, file);
    let Some(text) = text(file).transpose() else {
        // Whoever removes the file means the defaults.
        let _ = fs::remove_file(last);
        return Ok(args.to_vec());
    };
    let read = text.and_then(|text| Ok((with(parsed(file, &text)?)?, text)));
    match read {
        Ok((all, text)) => {
            if fs::read(last).ok().as_deref() != Some(text.as_bytes()) {
                // Without it, a later mistake costs the directories that the file names.
                let _ = files::replace_for_now(last, text.as_bytes(), files::PUBLIC);
            }
            Ok(all)
        }
        Err(error) => {
            let refuse = Some(format!("{error:#}"));
            let last = self::read(last).ok().flatten().unwrap_or_default();
            // Another version of this program may have taken what this one does not.
            with(File { refuse: refuse.clone(), ..last })
                .or_else(|_| with(File { refuse, ..File::default() }))
        }
    }
}

/// The command line of a runtime. Values that no option takes are an error.
fn of_runtime(
    program: &OsString,
    before: &[OsString],
    after: &[OsString],
    file: File,
) -> Result<Vec<OsString>, Error> {
    let mut globals: Vec<OsString> = Vec::new();
    globals.extend(option("--root", file.root.map(PathBuf::into_os_string)));
    globals.extend(option("--log", file.log.map(PathBuf::into_os_string)));
    globals.extend(option("--log-level", file.log_level.map(Into::into)));
    globals.extend(option("--log-format", file.log_format.map(Into::into)));
    let mut own: Vec<OsString> = Vec::new();
    own.extend(option("--policy-dir", file.policy_dir.map(PathBuf::into_os_string)));
    own.extend(option("--state-dir", file.state_dir.map(PathBuf::into_os_string)));
    own.extend(option("--profile", file.profile.map(Into::into)));
    own.extend(option("--sysfs", file.sysfs.map(Into::into)));
    own.extend(option("--without-supervisor", file.without_supervisor.map(Into::into)));
    let within = file.rdma_within.map(|seconds| seconds.to_string().into());
    own.extend(option("--rdma-within", within));
    own.extend(file.require_rdma.then(|| "--require-rdma".into()));
    own.extend(option("--audit", file.audit.map(Into::into)));
    own.extend(option("--annotations", file.annotations.map(Into::into)));
    own.extend(file.keep_cap.into_iter().flat_map(|name| option("--keep-cap", Some(name.into()))));
    own.extend(option("--refuse", file.refuse.map(Into::into)));
    let program = std::slice::from_ref(program);
    let alone = [program, &globals, &[COMMAND.into()], &own, &["state".into()]].concat();
    if let Err(error) = Cli::of(&alone) {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        return Err(anyhow!("{FILE}: {}", first.trim_start_matches("error: ")));
    }
    Ok([program, &globals, before, &own, after].concat())
}

fn option(name: &str, value: Option<OsString>) -> impl Iterator<Item = OsString> {
    value.map(|value| [OsString::from(name), value]).into_iter().flatten()
}

/// The command line of another command, with the directories of the file.
fn others(
    program: &OsString,
    before: &[OsString],
    after: &[OsString],
    file: &Path,
) -> Result<Vec<OsString>, Error> {
    let word = before.last().and_then(|word| word.to_str()).unwrap_or_default();
    let mut all = [std::slice::from_ref(program), before, after].concat();
    let Some((_, rooted, of_policy, anyway)) = OTHERS.iter().find(|(name, ..)| *name == word)
    else {
        return Ok(all);
    };
    let file = match read(file) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(all),
        Err(_) if *anyway => return Ok(all),
        Err(e) => return Err(e),
    };
    // Whoever gives such an option means another directory.
    let is_given = |words: &[OsString], name: &str| {
        let own = words.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--");
        own.into_iter().any(|word| word == name || word.starts_with(&format!("{name}=")))
    };
    let at = before.len() + 1 + usize::from(word == OF_TWO_WORDS && !after.is_empty());
    if *of_policy && !is_given(after, "--policy-dir") {
        let added = option("--policy-dir", file.policy_dir.map(PathBuf::into_os_string));
        all.splice(at..at, added);
    }
    if matches!(word, "gc" | "doctor") && !is_given(after, "--state-dir") {
        all.splice(at..at, option("--state-dir", file.state_dir.map(PathBuf::into_os_string)));
    }
    if *rooted && !is_given(before, "--root") {
        all.splice(1..1, option("--root", file.root.map(PathBuf::into_os_string)));
    }
    Ok(all)
}

/// What the file says, if there is a file.
///
/// # Errors
/// A file that cannot be read, and an unknown key or a wrong value, with which no container gets RDMA.
pub(crate) fn checked(file: &Path) -> Result<Option<File>, Error> {
    let Some(read) = read(file)? else { return Ok(None) };
    of_runtime(&"verbgate".into(), &[COMMAND.into()], &[], read.clone())?;
    Ok(Some(read))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::Parser;

    use super::*;
    use crate::cli::Command;
    use crate::cli::SysfsOf;

    fn added(text: &str, args: &[&str]) -> Result<Vec<OsString>, Error> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let last = file.path().with_extension("last");
        let added = add(&args.iter().map(OsString::from).collect::<Vec<_>>(), file.path(), &last);
        let _ = fs::remove_file(last);
        added
    }

    #[test]
    fn the_file_gives_what_the_command_line_does_not() {
        let text = "profile = \"hpc\"\nsysfs = \"host\"\nlog = \"/l\"\nlog-level = \"debug\"\n";
        let args = ["verbgate", "--log-level", "info", "oci", "--profile", "full", "--", "state"];
        let cli = Cli::try_parse_from(added(text, &args).unwrap()).unwrap();
        assert_eq!(cli.global.log.as_deref(), Some(Path::new("/l")));
        assert_eq!(cli.global.log_level, log::LevelFilter::Info);
        let Command::Oci(oci) = cli.command else { panic!("not oci") };
        assert_eq!((oci.profile.as_str(), oci.sysfs), ("full", SysfsOf::Host));
        assert_eq!(oci.args, ["state"]);
    }

    #[test]
    fn other_commands_and_machines_without_the_file_are_left_alone() {
        let args: Vec<OsString> = ["verbgate", "--log", "oci", "ps"].map(Into::into).to_vec();
        let text = ["verbgate", "--log", "oci", "ps"];
        assert_eq!(added("nonsense = 1", &text).unwrap(), args);
        let none = Path::new("/no/such/file");
        assert_eq!(add(&args, none, none).unwrap(), args);
        assert_eq!(add(&[], none, none).unwrap(), [""; 0]);
    }

    #[test]
    fn the_directories_are_those_of_every_command_that_looks_there() {
        let text = "root = \"/r\"\npolicy-dir = \"/p\"\nstate-dir = \"/s\"\n";
        for (line, with) in [
            ("oci state", "--root /r oci --policy-dir /p --state-dir /s state"),
            ("ps", "--root /r ps"),
            ("gc --json", "--root /r gc --state-dir /s --json"),
            ("--root /x show c", "--root /x show c"),
            ("agent", "--root /r agent --policy-dir /p"),
            ("policy check a", "--root /r policy check --policy-dir /p a"),
            ("policy check --policy-dir=/q", "--root /r policy check --policy-dir=/q"),
            ("run -- ls --policy-dir x", "run --policy-dir /p -- ls --policy-dir x"),
            ("netdev list", "netdev list"),
        ] {
            let line: Vec<&str> = ["verbgate"].into_iter().chain(line.split(' ')).collect();
            let got = added(text, &line).unwrap();
            assert_eq!(got[1..].join(OsStr::new(" ")), *with);
            Cli::try_parse_from(got).unwrap();
        }
        // Without its policy, nothing starts; what runs can still be looked at.
        for (word, is_error) in [("run", true), ("agent", true), ("policy", true), ("ps", false)] {
            assert_eq!(added("nonsense = 1", &["verbgate", word]).is_err(), is_error, "{word}");
        }
    }

    #[test]
    fn with_a_file_that_cannot_be_read_the_last_one_stays_and_nobody_gets_rdma() {
        let dir = tempfile::tempdir().unwrap();
        let (file, last) = (dir.path().join("config.toml"), dir.path().join("last/config.toml"));
        let line = ["verbgate", "oci", "--", "state"].map(OsString::from);
        let added = |text: &str| {
            fs::write(&file, text).unwrap();
            let args = add(&line, &file, &last).unwrap();
            let Command::Oci(oci) = Cli::try_parse_from(&args).unwrap().command else { panic!() };
            (args[1..3].join(OsStr::new(" ")), oci.refuse)
        };
        let wrong = ["profil = \"hpc\"", "profile = 3", "profile", "sysfs = \"prof\""];
        for text in wrong {
            let (first, refused) = added(text);
            let refused = refused.unwrap();
            assert!(refused.contains("prof") && !refused.contains('\n'), "{refused}");
            assert_eq!(first, "oci --refuse");
        }
        assert_eq!(added("root = \"/r\""), ("--root /r".into(), None));
        for text in wrong {
            let (first, refused) = added(text);
            assert!(first == "--root /r" && refused.is_some());
        }
    }
}
