//! `/etc/verbgate/config.toml`: options of the commands that give containers RDMA, for engines that take a runtime's
//! path and no arguments; and the directories of those commands, where other commands look, too. Options of the
//! command line override the file.
//!
//! **The file cannot hurt what runs.** A file that cannot be read refuses RDMA to new containers, and changes nothing
//! else: the last one that could be read stays in force, as it does when the file is gone.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Error;
use anyhow::anyhow;
use clap::CommandFactory;
use serde::Serialize;
use toml::de::DeTable;
use toml::de::DeValue;
use verbgate_host::files;
use verbgate_host::output::print;
use verbgate_host::output::say;
use verbgate_proxy::policy::DIRECTORY;
use verbgate_proxy::policy::FileOwner;
use verbgate_proxy::policy::Policies;
use verbgate_proxy::policy::hint;
use verbgate_sys::foreign;
use verbgate_sys::foreign::Owner;
use verbgate_sys::sandbox::EXIT_OURS;

use self::Kind::Flag;
use self::Kind::List;
use self::Kind::Number;
use self::Kind::Path as Place;
use self::Kind::Text;
use crate::cli;
use crate::cli::Cli;
use crate::cli::ConfigCheckArgs;
use crate::cli::ConfigCommand;
use crate::cli::ConfigShowArgs;
use crate::cli::Global;
use crate::failure::Failure;
use crate::netdev::columns;
use crate::slip::Slip;

/// Path of the file.
pub(crate) const FILE: &str = "/etc/verbgate/config.toml";
/// The last file that could be read. Containers that run, and those without RDMA, depend on no mistake in the next.
pub(crate) const LAST: &str = "/run/verbgate/config.toml";

/// The commands that give containers RDMA, the one that takes every key first.
const RUNTIMES: &[&str] = &["oci", "agent", "nri"];
/// Commands that start a program with what the file says, or not at all.
const STARTS: &[&str] = &["run", "trace"];
/// The command whose options follow a second word.
const OF_TWO_WORDS: &str = "policy";
/// Keys that can give containers more than the defaults do.
const GIVES: [&str; 5] = ["profile", "annotations", "keep-cap", "compat", "sysfs"];
/// Slips that a line of the log has.
const SAID: usize = 3;

/// Kind of a value.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    /// An absolute path: nobody knows in which directory an engine starts its runtime.
    Path,
    Number,
    Flag,
    List,
}

/// A key: the option of that name, what the value is, whether the option stands before the command, and the commands
/// that take it.
#[derive(Debug)]
struct ConfigKey(&'static str, Kind, bool, &'static [&'static str]);

const KEYS: &[ConfigKey] = &[
    ConfigKey("profile", Text, false, RUNTIMES),
    ConfigKey("annotations", Text, false, RUNTIMES),
    ConfigKey("keep-cap", List, false, RUNTIMES),
    ConfigKey("audit", Text, false, &["oci", "agent"]),
    ConfigKey("require-rdma", Flag, false, &["oci", "agent"]),
    ConfigKey("rdma-within", Number, false, &["oci", "agent"]),
    ConfigKey("compat", Flag, false, &["oci"]),
    ConfigKey("sysfs", Text, false, &["oci"]),
    ConfigKey("without-supervisor", Text, false, &["oci"]),
    ConfigKey("log", Place, true, RUNTIMES),
    ConfigKey("log-level", Text, true, RUNTIMES),
    ConfigKey("log-format", Text, true, RUNTIMES),
    ConfigKey(
        "root",
        Place,
        true,
        &["oci", "agent", "nri", "policy", "ps", "show", "stats", "gc", "doctor"],
    ),
    ConfigKey("policy-dir", Place, false, &["oci", "agent", "nri", "policy", "run", "trace"]),
    ConfigKey("state-dir", Place, false, &["oci", "gc", "doctor"]),
];

impl Kind {
    fn wanted(self) -> &'static str {
        match self {
            Text => "a text in quotes",
            Place => "a path in quotes, which begins with /",
            Number => "a number without quotes",
            Flag => "true or false, without quotes",
            List => "a list of texts, as in [\"NET_RAW\"]",
        }
    }
}

impl ConfigKey {
    /// The value in words; none where the value is of another kind.
    fn values(&self, value: &DeValue<'_>) -> Option<Vec<String>> {
        let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
        match self.1 {
            Text => text(value).map(|text| vec![text]),
            Place => text(value).filter(|text| text.starts_with('/')).map(|text| vec![text]),
            Number => {
                let number = value.as_integer()?;
                Some(vec![u64::from_str_radix(number.as_str(), number.radix()).ok()?.to_string()])
            }
            Flag => value.as_bool().map(|is| vec![is.to_string()]),
            List => value.as_array()?.iter().map(|one| text(one.get_ref())).collect(),
        }
    }
}

/// A key of a file, with its value.
#[derive(Debug)]
struct Said {
    key: &'static ConfigKey,
    values: Vec<String>,
    line: usize,
}

impl Said {
    /// The options of a command line.
    fn words(&self) -> Vec<OsString> {
        let option = OsString::from(format!("--{}", self.key.0));
        match self.key.1 {
            Flag if self.values == ["true"] => vec![option],
            Flag => Vec::new(),
            _ => self.values.iter().flat_map(|value| [option.clone(), value.into()]).collect(),
        }
    }
}

/// The options of some keys, before and after a command.
fn words<'a>(said: impl Iterator<Item = &'a Said>) -> [Vec<OsString>; 2] {
    let mut both = [Vec::new(), Vec::new()];
    for one in said {
        let [globals, own] = &mut both;
        (if one.key.2 { globals } else { own }).extend(one.words());
    }
    both
}

/// The keys of a text, or everything that is wrong with the text.
fn read(file: &Path, text: &str) -> Result<Vec<Said>, Vec<Slip>> {
    let (said, slips) = right_and_wrong(file, text);
    if slips.is_empty() { Ok(said) } else { Err(slips) }
}

/// The keys of a text that are right, and everything that is wrong with the text.
fn right_and_wrong(file: &Path, text: &str) -> (Vec<Said>, Vec<Slip>) {
    let line = |at: usize| text.get(..at).unwrap_or_default().matches('\n').count() + 1;
    let slip = |at: usize, slip: String| Slip { file: file.to_owned(), line: Some(line(at)), slip };
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let of = |e: toml::de::Error| {
            slip(e.span().unwrap_or_default().start, e.message().trim_end().replace('\n', " "))
        };
        return (Vec::new(), errors.into_iter().map(of).collect());
    }
    let (mut said, mut slips) = (Vec::new(), Vec::new());
    for (name, value) in table.get_ref() {
        let at = name.span().start;
        let Some(key) = KEYS.iter().find(|key| key.0 == name.get_ref()) else {
            let names = KEYS.iter().map(|key| key.0);
            slips.push(slip(
                at,
                format!("unknown key {:?}; {}", name.get_ref(), hint(name.get_ref(), names)),
            ));
            continue;
        };
        match key.values(value.get_ref()) {
            Some(values) => said.push(Said { key, values, line: line(at) }),
            None => slips.push(slip(at, format!("{}: must be {}", key.0, key.1.wanted()))),
        }
    }
    // One by one, where the options do not take all together.
    if options(said.iter()).is_err() {
        said.retain(|one| match options(std::iter::once(one)) {
            Ok(()) => true,
            Err(slip) => {
                slips.push(Slip { file: file.to_owned(), line: Some(one.line), slip });
                false
            }
        });
    }
    slips.sort_by_key(|slip| slip.line);
    said.sort_by_key(|one| one.line);
    (said, slips)
}

/// Whether values are those that the runtime's options take.
fn options<'a>(said: impl Iterator<Item = &'a Said>) -> Result<(), String> {
    let [globals, own] = words(said);
    let line = [vec!["verbgate".into()], globals, vec!["oci".into()], own, vec!["state".into()]];
    Cli::of(&line.concat()).map(drop).map_err(|error| cli::one_line(&error.render().to_string()))
}

fn text(file: &Path, owner: Owner) -> Result<Option<String>, Slip> {
    match foreign::read_text(file, owner) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|e| Slip {
            file: file.to_owned(),
            line: None,
            slip: format!("the file cannot be read: {e}{}", hint_of(&e)),
        }),
    }
}

/// Whether the kernel lets this user not read a file, and what helps.
fn hint_of(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::ACCESS) => "; as root, let others read the file: chmod go+r",
        _ => "",
    }
}

/// What is in force.
#[derive(Default)]
struct InForce {
    said: Vec<Said>,
    /// The file of that, and its text.
    from: Option<(PathBuf, String)>,
    slips: Vec<Slip>,
    /// A line for the log, where another file is in force than the one that is there.
    notice: Option<String>,
}

impl InForce {
    fn of(file: &Path, last: &Path) -> Self {
        let now = text(file, Owner::Trusted).map_err(|slip| vec![slip]).and_then(|text| {
            let said = text.as_deref().map(|text| read(file, text)).transpose()?;
            Ok(said.zip(text))
        });
        let slips = match now {
            Ok(Some((said, text))) => {
                return Self { said, from: Some((file.to_owned(), text)), ..Self::default() };
            }
            Ok(None) => Vec::new(),
            Err(slips) => slips,
        };
        // Another version of this program may have taken what this one does not. What gives containers more than the
        // defaults goes with the file.
        let last_text = text(last, Owner::Trusted).ok().flatten();
        let of_last = last_text.map(|text| {
            let mut said = right_and_wrong(last, &text).0;
            said.retain(|one| !slips.is_empty() || !GIVES.contains(&one.key.0));
            (said, text)
        });
        let stays = match of_last {
            Some(_) => {
                format!("the last one that could be read stays in force ({})", last.display())
            }
            None => "the defaults are in force".to_owned(),
        };
        let notice = match (slips.is_empty(), &of_last) {
            (true, None) => None,
            (true, Some(_)) => Some(format!(
                "{} is gone, and {stays}, but for {}: put the file back, or, for the defaults, remove the last one, too",
                file.display(),
                GIVES.join(", ")
            )),
            (false, _) => Some(format!("{}; {stays}", told(&slips))),
        };
        let (said, text) = of_last.map(|(said, text)| (said, Some(text))).unwrap_or_default();
        Self { said, from: text.map(|text| (last.to_owned(), text)), slips, notice }
    }

    /// The options of a command.
    fn words(&self, command: &str) -> [Vec<OsString>; 2] {
        words(self.said.iter().filter(|one| one.key.3.contains(&command)))
    }
}

/// Slips in one line.
fn told(slips: &[Slip]) -> String {
    let first: Vec<String> = slips.iter().take(SAID).map(ToString::to_string).collect();
    let more = slips.len().saturating_sub(SAID);
    let more =
        if more == 0 { String::new() } else { format!("; {more} more: verbgate config check") };
    format!("{}{more}", first.join("; "))
}

/// A command line with what the file adds to it.
#[derive(Debug)]
pub(crate) struct Added {
    pub(crate) args: Vec<OsString>,
    /// A line for the log.
    pub(crate) notice: Option<String>,
}

/// A command line with what the file adds to it; the same where there is no file, or the command takes nothing of it.
/// With a file that cannot be read, a runtime has what the last one says, and gives no new container RDMA.
pub(crate) fn add(args: &[OsString], file: &Path, last: &Path) -> Result<Added, Failure> {
    let unchanged = || Ok(Added { args: args.to_vec(), notice: None });
    let Some((program, rest)) = args.split_first() else { return unchanged() };
    let command = cli::first_word(rest);
    let Some((before, after)) = command.and_then(|at| rest.split_at_checked(at + 1)) else {
        return unchanged();
    };
    let word = before.last().and_then(|word| word.to_str()).unwrap_or_default();
    if !KEYS.iter().any(|key| key.3.contains(&word)) {
        return unchanged();
    }
    let now = InForce::of(file, last);
    if STARTS.contains(&word) && !now.slips.is_empty() {
        return Err(Failure::new(
            EXIT_OURS,
            anyhow!("{}; no program starts until then", told(&now.slips)),
        ));
    }
    let [globals, mut own] = now.words(word);
    if RUNTIMES.contains(&word) {
        if !now.slips.is_empty() {
            let again = if RUNTIMES.first() == Some(&word) {
                ""
            } else {
                ", and this command is started anew"
            };
            let why = format!(
                "{}; no new container gets RDMA until the file is right{again}",
                told(&now.slips)
            );
            own.extend(["--refuse".into(), why.into()]);
        }
        if let Some((_, text)) = now.from.filter(|(from, _)| from == file)
            && foreign::read_text(last, Owner::Trusted).ok().as_ref() != Some(&text)
        {
            // A later mistake would cost the directories that the file names.
            let _ = files::replace_for_now(last, text.as_bytes(), files::PUBLIC);
        }
    }
    let second = usize::from(word == OF_TWO_WORDS).min(after.len());
    let (second, after) = after.split_at(second);
    let args = [std::slice::from_ref(program), &globals, before, second, &own, after].concat();
    Ok(Added { args, notice: now.notice })
}

/// The keys of a file in which nothing is wrong.
#[derive(Debug)]
pub(crate) struct Keys(Vec<Said>);

impl Keys {
    /// The first value of a key.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        let one = self.0.iter().find(|one| one.key.0 == key)?;
        one.values.first().map(String::as_str)
    }
}

/// The keys of the file, if there is a file.
///
/// # Errors
/// Everything that is wrong with the file, with which no container gets RDMA.
pub(crate) fn checked(file: &Path) -> Result<Option<Keys>, Error> {
    let said = text(file, Owner::Trusted).map_err(|slip| vec![slip]);
    let said = said.and_then(|text| text.map(|text| read(file, &text)).transpose());
    said.map(|said| said.map(Keys)).map_err(|slips| anyhow!("{}", told(&slips)))
}

/// Runs `verbgate config`.
pub(crate) fn run(command: &ConfigCommand, global: &Global) -> Result<u8, Failure> {
    match command {
        ConfigCommand::Check(args) => check(args),
        ConfigCommand::Show(args) => show(args, global),
        ConfigCommand::Apply(args) => apply(&args.file),
    }
    .map_err(Failure::of_tool)
}

/// All slips of the file and of the policy.
fn check(args: &ConfigCheckArgs) -> Result<u8, Error> {
    let owner = if args.file.is_some() { Owner::Anybody } else { Owner::Trusted };
    let file = args.file.as_deref().unwrap_or(Path::new(FILE));
    let (keys, mut slips) = match text(file, owner) {
        Ok(None) if args.file.is_some() => {
            return Err(anyhow!("there is no file {}", file.display()));
        }
        Ok(None) => (Vec::new(), Vec::new()),
        Ok(Some(text)) => match read(file, &text) {
            Ok(said) => (said, Vec::new()),
            Err(slips) => (Vec::new(), slips),
        },
        Err(slip) => (Vec::new(), vec![slip]),
    };
    let said = keys.iter().find(|one| one.key.0 == "policy-dir").and_then(|one| one.values.first());
    let dir = args.policy_dir.clone().or_else(|| said.map(PathBuf::from));
    if let Some(dir) = dir.as_ref().filter(|dir| !dir.is_dir()) {
        let line = keys.iter().find(|one| one.key.0 == "policy-dir").map(|one| one.line);
        let slip = format!("policy-dir: {} is no directory", dir.display());
        slips.push(Slip { file: file.to_owned(), line, slip });
    }
    let dir = dir.unwrap_or_else(|| DIRECTORY.into());
    let policies = Policies::check(&dir, FileOwner::User(0)).unwrap_or_else(|errors| {
        slips.extend(errors.into_iter().map(Slip::from));
        None
    });
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&slips)?))?;
    } else if slips.is_empty() {
        if args.file.is_none() {
            InForce::of(file, Path::new(LAST)).notice.inspect(|notice| say(notice));
        }
        let policies = policies.map(|all| {
            format!("{} profiles, {} tenants", all.profiles().count(), all.tenants().len())
        });
        let policies = policies.unwrap_or_else(|| "no operator's policy".to_owned());
        print(&format!(
            "{}: {} keys\n{}: {policies}\n",
            file.display(),
            keys.len(),
            dir.display()
        ))?;
    } else {
        slips.iter().for_each(|slip| say(&slip.to_string()));
    }
    if slips.is_empty() { Ok(0) } else { Err(anyhow!("{} slips", slips.len())) }
}

/// A key as it is in force.
#[derive(Serialize)]
struct Shown {
    key: &'static str,
    value: String,
    /// Where the value comes from; none for a default.
    file: Option<PathBuf>,
    line: Option<usize>,
}

/// What is in force, and where that comes from.
fn show(args: &ConfigShowArgs, global: &Global) -> Result<u8, Error> {
    let now = InForce::of(Path::new(FILE), Path::new(LAST));
    let mut built = Cli::command();
    built.build();
    let default = |key: &ConfigKey| {
        let of = if key.2 { Some(&built) } else { built.find_subcommand("oci") };
        let mut options = of.into_iter().flat_map(clap::Command::get_arguments);
        let option = options.find(|option| option.get_long() == Some(key.0));
        let values = option.map(clap::Arg::get_default_values).unwrap_or_default();
        match (key.0, key.1) {
            ("root", _) => global.root().display().to_string(),
            (_, Flag) => false.to_string(),
            _ => {
                values.first().map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
            }
        }
    };
    let shown = KEYS.iter().map(|key| match now.said.iter().find(|one| one.key.0 == key.0) {
        Some(one) => Shown {
            key: key.0,
            value: one.values.join(","),
            file: now.from.as_ref().map(|(from, _)| from.clone()),
            line: Some(one.line),
        },
        None => Shown { key: key.0, value: default(key), file: None, line: None },
    });
    let shown: Vec<Shown> = shown.collect();
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&shown)?))?;
    } else {
        let from = |one: &Shown| match (&one.file, one.line) {
            (Some(file), Some(line)) => format!("{}:{line}", file.display()),
            _ => "default".to_owned(),
        };
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let heading = ["KEY", "VALUE", "FROM"].map(str::to_owned);
        let rows = shown.iter().map(|one| [one.key.to_owned(), or_dash(&one.value), from(one)]);
        print(&columns(&std::iter::once(heading).chain(rows).collect::<Vec<_>>()))?;
    }
    now.notice.inspect(|notice| say(notice));
    Ok(0)
}

/// Puts a file in force, unless something is wrong with it.
fn apply(from: &Path) -> Result<u8, Error> {
    let Some(text) = text(from, Owner::Anybody).map_err(|slip| anyhow!("{slip}"))? else {
        return Err(anyhow!("there is no file {}", from.display()));
    };
    if let Err(slips) = read(from, &text) {
        return Err(anyhow!("{}; {FILE} stays as it is", told(&slips)));
    }
    let file = Path::new(FILE);
    if file.is_symlink() {
        return Err(anyhow!("{FILE} is a link; write to what the link leads to"));
    }
    // A replacement keeps owner and mode, which may be those of a stranger.
    let right = || {
        files::replace(file, text.as_bytes(), files::PUBLIC)?;
        std::os::unix::fs::chown(file, Some(0), Some(0))?;
        std::fs::set_permissions(file, Permissions::from_mode(files::PUBLIC))?;
        files::replace_for_now(Path::new(LAST), text.as_bytes(), files::PUBLIC)
    };
    right().map_err(|e| anyhow!("cannot write {FILE} or {LAST}: {e}"))?;
    say(
        "the file is in force for new containers; restart verbgate agent and verbgate nri, if they run",
    );
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;

    use clap::Parser;

    use super::*;
    use crate::cli::Command;
    use crate::cli::SysfsOf;

    fn added(text: &str, line: &str) -> Result<Vec<OsString>, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let (file, last) = (dir.path().join("config.toml"), dir.path().join("last"));
        fs::write(&file, text).unwrap();
        let line: Vec<OsString> =
            ["verbgate"].into_iter().chain(line.split(' ')).map(Into::into).collect();
        add(&line, &file, &last).map(|added| added.args)
    }

    #[test]
    fn every_key_is_an_option_of_every_command_that_takes_it() {
        let mut built = Cli::command();
        built.build();
        for ConfigKey(name, kind, is_global, commands) in KEYS {
            assert!(commands.contains(&RUNTIMES[0]), "{name}");
            for command in *commands {
                let of = built.find_subcommand(command).unwrap();
                let of_second = of
                    .get_subcommands()
                    .all(|second| second.get_arguments().any(|o| o.get_long() == Some(name)));
                let mut options =
                    if *is_global { built.get_arguments() } else { of.get_arguments() };
                let option = options.find(|option| option.get_long() == Some(name));
                assert!(option.is_some() || of_second, "{command} --{name}");
                let Some(option) = option else { continue };
                let takes = option.get_action().takes_values();
                assert_eq!(takes, !matches!(kind, Flag), "{name}");
            }
        }
    }

    #[test]
    fn the_file_gives_what_the_command_line_does_not() {
        let text = "profile = \"hpc\"\nsysfs = \"host\"\nlog = \"/l\"\nlog-level = \"debug\"\n";
        let line = "--log-level info oci --profile full -- state";
        let cli = Cli::try_parse_from(added(text, line).unwrap()).unwrap();
        assert_eq!(cli.global.log.as_deref(), Some(Path::new("/l")));
        assert_eq!(cli.global.log_level, log::LevelFilter::Info);
        let Command::Oci(oci) = cli.command else { panic!("not oci") };
        assert_eq!((oci.allowed.profile.as_str(), oci.sysfs), ("full", SysfsOf::Host));
        assert_eq!(oci.args, ["state"]);
        // What gives containers RDMA in another way has the same.
        let text = "profile = \"hpc\"\nannotations = \"grant\"\nkeep-cap = [\"NET_RAW\"]\nrequire-rdma = true\n";
        for line in ["agent", "nri", "nri --profile hpc"] {
            let allowed = match Cli::try_parse_from(added(text, line).unwrap()).unwrap().command {
                Command::Agent(agent) => {
                    assert!(agent.served.require_rdma);
                    agent.allowed
                }
                Command::Nri(nri) => nri.allowed,
                _ => panic!("{line}"),
            };
            let allowed = verbgate_oci::Allowed::from(&allowed);
            assert_eq!(
                (allowed.profile.as_str(), &*allowed.keep),
                ("hpc", &["NET_RAW".to_owned()][..]),
                "{line}"
            );
            assert_eq!(allowed.annotations, verbgate_oci::Annotations::Grant);
        }
    }

    #[test]
    fn other_commands_and_machines_without_the_file_are_left_alone() {
        let line = "--log oci netdev";
        assert_eq!(added("nonsense = 1", line).unwrap()[1..].join(OsStr::new(" ")), line);
        let (args, none) =
            (["verbgate", "oci", "ps"].map(OsString::from), Path::new("/no/such/file"));
        let same = add(&args, none, none).unwrap();
        assert!(same.args == args && same.notice.is_none());
        assert_eq!(add(&[], none, none).unwrap().args, [""; 0]);
    }

    #[test]
    fn the_directories_are_those_of_every_command_that_looks_there() {
        let text = "root = \"/r\"\npolicy-dir = \"/p\"\nstate-dir = \"/s\"\n";
        for (line, with) in [
            ("oci state", "--root /r oci --policy-dir /p --state-dir /s state"),
            ("ps", "--root /r ps"),
            ("gc --json", "--root /r gc --state-dir /s --json"),
            ("--root /x show c", "--root /r --root /x show c"),
            ("agent", "--root /r agent --policy-dir /p"),
            ("policy check a", "--root /r policy check --policy-dir /p a"),
            (
                "policy check --policy-dir=/q",
                "--root /r policy check --policy-dir /p --policy-dir=/q",
            ),
            ("run -- ls --policy-dir x", "run --policy-dir /p -- ls --policy-dir x"),
            ("netdev list", "netdev list"),
        ] {
            let got = added(text, line).unwrap();
            assert_eq!(got[1..].join(OsStr::new(" ")), *with);
            let cli = Cli::try_parse_from(got).unwrap();
            assert!(!with.contains("/x") || cli.global.root() == Path::new("/x"));
        }
        // Without its policy, nothing starts; what runs can still be looked at.
        for (line, is_error) in
            [("run x", true), ("trace x", true), ("agent", false), ("policy", false), ("ps", false)]
        {
            assert_eq!(added("nonsense = 1", line).is_err(), is_error, "{line}");
        }
    }

    #[test]
    fn all_slips_of_a_file_are_told_with_their_lines() {
        let text = "profil = \"hpc\"\nprofile = \"hpcc\"\nroot = \"r\"\n\nkeep-cap = \"NET_RAW\"\nrdma-within = -1\n\
                    require-rdma = 1\nsysfs = \"none\"\nkeep-cap-x = 1\nlog-level = \"loud\"\nstate-dir = \"/s\"\n";
        let slips = read(Path::new("/c"), text).unwrap_err();
        let lines: Vec<usize> = slips.iter().filter_map(|slip| slip.line).collect();
        assert_eq!(lines, [1, 2, 3, 5, 6, 7, 8, 9, 10], "{slips:?}");
        for word in [
            "/c:1: unknown key \"profil\"; did you mean \"profile\"?",
            "/c:2: ",
            "\"hpc\"",
            "begins with /",
            "loud",
        ] {
            assert!(slips.iter().any(|slip| slip.to_string().contains(word)), "{word}: {slips:?}");
        }
        let broken = read(Path::new("/c"), "a = = 1\nb = \"\n").unwrap_err();
        assert!(
            broken.len() > 1 && broken.iter().all(|slip| !slip.to_string().contains('\n')),
            "{broken:?}"
        );
        assert!(told(&slips).ends_with("; 6 more: verbgate config check"));
        assert!(read(Path::new("/c"), "# nothing\n").unwrap().is_empty());
        let hex = read(Path::new("/c"), "rdma-within = 0x3c\n").unwrap();
        assert_eq!(hex[0].values, ["60"]);
    }

    #[test]
    fn with_a_file_that_cannot_be_read_the_last_one_stays_and_nobody_gets_rdma() {
        let dir = tempfile::tempdir().unwrap();
        let (file, last) = (dir.path().join("config.toml"), dir.path().join("last/config.toml"));
        let of =
            |command: &str| add(&["verbgate", command].map(OsString::from), &file, &last).unwrap();
        let added = |text: &str| {
            fs::write(&file, text).unwrap();
            let Added { args, notice } = of("oci");
            let Command::Oci(oci) = Cli::try_parse_from(&args).unwrap().command else { panic!() };
            assert_eq!(oci.allowed.refuse.is_some(), notice.is_some());
            (args[1..3].join(OsStr::new(" ")), oci.allowed.refuse)
        };
        let wrong = ["profil = \"hpc\"", "profile = 3", "profile", "sysfs = \"prof\""];
        for text in wrong {
            let (first, refused) = added(text);
            let refused = refused.unwrap();
            assert!(refused.contains("config.toml:1: ") && !refused.contains('\n'), "{refused}");
            assert_eq!(first, "oci --refuse");
        }
        assert_eq!(added("root = \"/r\""), ("--root /r".into(), None));
        for text in wrong {
            let (first, refused) = added(text);
            assert!(first == "--root /r" && refused.is_some());
            // Those who look at what runs find it, and are told.
            let shown = of("ps");
            assert!(shown.args[1] == "--root" && shown.notice.unwrap().contains("stays in force"));
            for command in ["agent", "nri"] {
                let refused = of(command).args.join(OsStr::new(" ")).into_string().unwrap();
                assert!(
                    refused.contains("--refuse") && refused.contains("started anew"),
                    "{refused}"
                );
            }
        }
        // A file that is gone means nothing: a pipe in its place is not waited for.
        fs::remove_file(&file).unwrap();
        let gone = of("oci");
        assert_eq!(gone.args[1], "--root");
        assert!(
            gone.notice.unwrap().contains("is gone")
                && gone.args.iter().all(|word| word != "--refuse")
        );
        // With the file goes what it gave; what another version has written is no reason to lose the rest.
        fs::write(&last, "annotations = \"grant\"\nroot = \"/r\"\nlater = 1\n").unwrap();
        assert_eq!(of("oci").args[1..].join(OsStr::new(" ")), "--root /r oci");
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        assert!(of("oci").notice.unwrap().contains("no regular file"));
        fs::remove_file(&last).unwrap();
        assert!(of("oci").notice.unwrap().contains("the defaults are in force"));
        fs::remove_file(&file).unwrap();
        assert!(of("oci").notice.is_none());
    }
}
