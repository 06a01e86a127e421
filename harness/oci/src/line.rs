//! The command line of an OCI runtime, as far as a wrapper must understand the line: runc(8),
//! crun(1).

use std::ffi::OsStr;
use std::ffi::OsString;

use anyhow::Error;
use anyhow::anyhow;

/// Options before the command that take a value.
const GLOBAL: &[&str] =
    &["--root", "--log", "--log-format", "--log-level", "--criu", "--cgroup-manager", "--rootless"];

/// Options of `start` and `delete` that take a value.
const NONE: &[&str] = &[];

/// Options of `create` and `run` that take a value.
const START: &[&str] =
    &["--bundle", "-b", "--config", "-f", "--console-socket", "--pid-file", "--preserve-fds"];

/// Options of `checkpoint` and `restore` that take a value.
const CHECKPOINT: &[&str] = &[
    "--image-path",
    "--work-path",
    "--parent-path",
    "--page-server",
    "--status-fd",
    "--manage-cgroups-mode",
    "--empty-ns",
    "--lsm-profile",
    "--lsm-mount-context",
    "--network-lock",
    "--bundle",
    "-b",
    "--console-socket",
    "--pid-file",
];

/// Options of `exec` that take a value.
const EXEC: &[&str] = &[
    "--console-socket",
    "--cwd",
    "--env",
    "-e",
    "--user",
    "-u",
    "--additional-gids",
    "-g",
    "--process",
    "-p",
    "--pid-file",
    "--process-label",
    "--apparmor",
    "--cap",
    "-c",
    "--preserve-fds",
    "--cgroup",
];

/// The meaning of a runtime's command for the wrapper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// `create`.
    Create,
    /// `run`: both `create` and `start`.
    Run,
    Start,
    Exec,
    Delete,
    Checkpoint,
    Restore,
    /// The runtime's own business.
    Other,
}

/// A runtime's arguments.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) words: Vec<OsString>,
    pub(crate) verb: Verb,
    /// Place of the command among the words.
    command: usize,
    /// Place of the container's id.
    pub id: usize,
}

impl Line {
    pub(crate) fn parse(words: &[OsString]) -> Self {
        let command = first_positional(words, 0, GLOBAL);
        let (verb, options) = match words.get(command).and_then(|word| word.to_str()) {
            Some("create") => (Verb::Create, START),
            Some("run") => (Verb::Run, START),
            Some("start") => (Verb::Start, NONE),
            Some("delete") => (Verb::Delete, NONE),
            Some("exec") => (Verb::Exec, EXEC),
            Some("checkpoint") => (Verb::Checkpoint, CHECKPOINT),
            Some("restore") => (Verb::Restore, CHECKPOINT),
            _ => (Verb::Other, START),
        };
        let id = first_positional(words, command + 1, options);
        Self { words: words.to_vec(), verb, command, id }
    }

    /// The container's id.
    pub(crate) fn id(&self) -> Option<&OsStr> {
        self.words.get(self.id).map(OsString::as_os_str)
    }

    /// The value of an option before the command.
    pub(crate) fn global(&self, name: &str) -> Option<&OsStr> {
        let words = self.words.get(..self.command).unwrap_or_default();
        option(words, &[name], GLOBAL).map(|(_, value)| value)
    }

    /// The value of an option of `create` or `run`, by any of its names.
    pub(crate) fn of_start(&self, names: &[&str]) -> Option<&OsStr> {
        option(self.between(), names, START).map(|(_, value)| value)
    }

    /// The same of `restore`.
    pub(crate) fn of_restore(&self, names: &[&str]) -> Option<&OsStr> {
        option(self.between(), names, CHECKPOINT).map(|(_, value)| value)
    }

    /// The file that describes the process of an `exec`.
    pub(crate) fn process_file(&self) -> Option<&OsStr> {
        option(self.between(), &["--process", "-p"], EXEC).map(|(_, value)| value)
    }

    /// Makes the `exec` take another file.
    pub(crate) fn set_process_file(&mut self, file: OsString) {
        let at = option(self.between(), &["--process", "-p"], EXEC).map(|(at, _)| at);
        let Some(at) = at.map(|at| self.command + 1 + at) else { return };
        let joined = self.words.get(at).is_some_and(|word| word.as_encoded_bytes().contains(&b'='));
        let Some(word) = self.words.get_mut(if joined { at } else { at + 1 }) else { return };
        if joined {
            *word = "--process=".into();
            word.push(file);
        } else {
            *word = file;
        }
    }

    /// Takes capabilities from those that an `exec` asks for; those that were there.
    pub(crate) fn remove_capabilities(&mut self, is_cut: impl Fn(&str) -> bool) -> Vec<String> {
        let mut taken = Vec::new();
        let mut at = self.command + 1;
        while at < self.id {
            let text = self.words.get(at).and_then(|word| word.to_str()).unwrap_or_default();
            let (name, joined) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (text, None),
            };
            let len = if joined.is_none() && EXEC.contains(&name) { 2 } else { 1 };
            let value = joined.or_else(|| self.words.get(at + 1)?.to_str()).unwrap_or_default();
            if ["--cap", "-c"].contains(&name) && is_cut(value) {
                taken.push(value.to_owned());
                self.words.drain(at..(at + len).min(self.words.len()));
                self.id -= len;
            } else {
                at += len;
            }
        }
        taken
    }

    /// The words between the command and the container's id.
    fn between(&self) -> &[OsString] {
        self.words.get(self.command + 1..self.id).unwrap_or_default()
    }
}

/// The place of the first word from `from` on that is neither an option nor the value of one.
fn first_positional(words: &[OsString], from: usize, with_values: &[&str]) -> usize {
    let mut at = from;
    while let Some(word) = words.get(at) {
        if word == "--" {
            return at + 1;
        }
        if !word.as_encoded_bytes().starts_with(b"-") {
            break;
        }
        at += if word.to_str().is_some_and(|word| with_values.contains(&word)) { 2 } else { 1 };
    }
    at.min(words.len())
}

/// The last of an option's values, and the place of the option.
fn option<'a>(
    words: &'a [OsString],
    names: &[&str],
    with_values: &[&str],
) -> Option<(usize, &'a OsStr)> {
    let (mut at, mut found) = (0, None);
    while let Some(word) = words.get(at) {
        let text = word.to_str().unwrap_or_default();
        if let Some((name, value)) = text.split_once('=')
            && names.contains(&name)
        {
            found = Some((at, OsStr::new(value)));
        }
        if !with_values.contains(&text) {
            at += 1;
            continue;
        }
        if names.contains(&text)
            && let Some(value) = words.get(at + 1)
        {
            found = Some((at, value));
        }
        at += 2;
    }
    found
}

/// A container's id as a name in a directory.
pub(crate) fn name_of(line: &Line) -> Result<Option<String>, Error> {
    let Some(id) = line.id() else { return Ok(None) };
    match id.to_str() {
        Some(text) if !text.contains('/') && !text.starts_with('.') && !text.is_empty() => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(anyhow!(
            "container id {}: must be text without \"/\", and not begin with \".\"",
            id.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line::parse(&text.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_is_found_behind_options_and_their_values() {
        let line =
            line("--root /r --log=run --systemd-cgroup create --bundle exec -b /b --no-pivot c1");
        assert_eq!(line.verb, Verb::Create);
        assert_eq!(line.id(), Some(OsStr::new("c1")));
        assert_eq!(line.global("--root"), Some(OsStr::new("/r")));
        assert_eq!(line.global("--log"), Some(OsStr::new("run")));
        assert_eq!(line.of_start(&["--bundle", "-b"]), Some(OsStr::new("/b")));
        assert_eq!(line.of_start(&["--pid-file"]), None);
    }

    #[test]
    fn other_commands_are_left_alone() {
        for text in ["state c1", "--version", "features", "kill c1 KILL", "--root x ps c1"] {
            assert_eq!(line(text).verb, Verb::Other, "{text}");
        }
    }

    #[test]
    fn capabilities_are_taken_from_an_exec_and_nothing_else_is() {
        let mut line = line(
            "exec --cap CAP_SYS_ADMIN -t -c CAP_KILL --cap=CAP_BPF -e CAP_BPF c1 sh -c CAP_BPF",
        );
        let cut = ["CAP_SYS_ADMIN", "CAP_BPF"];
        assert_eq!(line.remove_capabilities(|name| cut.contains(&name)), cut);
        let words: Vec<_> = line.words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words.join(" "), "exec -t -c CAP_KILL -e CAP_BPF c1 sh -c CAP_BPF");
        assert_eq!(line.id(), Some(OsStr::new("c1")));
    }

    #[test]
    fn a_container_is_started_and_deleted_by_its_id() {
        let (start, delete) = (line("--root /r start c1"), line("delete --force c1"));
        assert_eq!((start.verb, start.id()), (Verb::Start, Some(OsStr::new("c1"))));
        assert_eq!((delete.verb, delete.id()), (Verb::Delete, Some(OsStr::new("c1"))));
    }

    #[test]
    fn the_words_of_a_program_are_its_own() {
        let line = line("exec -t --user 1 c1 sh -p x");
        assert_eq!((line.verb, line.id()), (Verb::Exec, Some(OsStr::new("c1"))));
        assert_eq!(line.process_file(), None);
        assert_eq!(line.words.get(line.id + 1).unwrap(), "sh");
    }

    #[test]
    fn the_file_of_an_exec_is_replaced() {
        for (before, after) in [
            ("exec -d -p /a c1", "exec -d -p /b c1"),
            ("exec --process=/a c1", "exec --process=/b c1"),
            (
                "--root /r exec --process /a --pid-file /p c1",
                "--root /r exec --process /b --pid-file /p c1",
            ),
        ] {
            let mut line = line(before);
            assert_eq!(line.process_file(), Some(OsStr::new("/a")));
            line.set_process_file("/b".into());
            assert_eq!(line.words.join(OsStr::new(" ")), OsStr::new(after));
        }
    }
}
