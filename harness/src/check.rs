//! Results of checks, for people and as JSON.

use std::borrow::Cow;
use std::io;
use std::io::IsTerminal;
use std::iter::Once;

use serde::Serialize;
use verbgate_host::output::print;
use verbgate_netdev::Error;
use verbgate_sys::sandbox::probe;

use crate::output::print_json;

/// Number of names in a line.
const SHOWN: usize = 8;
/// Space before the lines of a remedy, and before the second line of a result.
const INDENT: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Verdict {
    Pass,
    Warn,
    Fail,
    /// The user may not look.
    Skipped,
}

impl Verdict {
    /// The word, and the color of the word on a terminal (ECMA-48, SGR).
    fn word(self) -> (&'static str, u8) {
        match self {
            Self::Pass => ("PASS", 32),
            Self::Warn => ("WARN", 33),
            Self::Fail => ("FAIL", 31),
            Self::Skipped => ("SKIPPED", 36),
        }
    }
}

/// The privilege that a check needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Needs {
    Nothing,
    Root,
}

/// What a check has found.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    pub(crate) found: String,
    /// The remedy; empty where there is nothing to do.
    pub(crate) remedy: Cow<'static, str>,
}

impl IntoIterator for Finding {
    type Item = Self;
    type IntoIter = Once<Self>;

    fn into_iter(self) -> Once<Self> {
        std::iter::once(self)
    }
}

pub(crate) fn pass(found: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Pass, found: found.into(), remedy: "".into() }
}

pub(crate) fn warn(found: impl Into<String>, remedy: impl Into<Cow<'static, str>>) -> Finding {
    Finding { verdict: Verdict::Warn, found: found.into(), remedy: remedy.into() }
}

pub(crate) fn fail(found: impl Into<String>, remedy: impl Into<Cow<'static, str>>) -> Finding {
    Finding { verdict: Verdict::Fail, found: found.into(), remedy: remedy.into() }
}

/// The finding of a check that the user may not make.
pub(crate) fn skipped(why: impl Into<String>) -> Finding {
    let remedy = "run the command as root".into();
    Finding { verdict: Verdict::Skipped, found: why.into(), remedy }
}

/// Whether an error is that the user may not look.
pub(crate) fn is_denied(error: &anyhow::Error) -> bool {
    let denied = |e: &io::Error| e.kind() == io::ErrorKind::PermissionDenied;
    let of_host = |e: &verbgate_host::Error| e.kernels().is_some_and(denied);
    error.chain().any(|cause| {
        cause.downcast_ref().is_some_and(denied)
            || cause.downcast_ref().is_some_and(of_host)
            || matches!(cause.downcast_ref(), Some(Error::Host(e)) if of_host(e))
    })
}

/// The first few names.
pub(crate) fn some(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN).copied().collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// One finding of a named check.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    #[serde(flatten)]
    pub(crate) finding: Finding,
}

/// How many checks ended in each way.
#[derive(Debug, Serialize)]
struct Counts {
    pass: usize,
    warn: usize,
    fail: usize,
    skipped: usize,
}

impl Counts {
    fn of(checks: &[Check]) -> Self {
        let count = |verdict| checks.iter().filter(|one| one.finding.verdict == verdict).count();
        Self {
            pass: count(Verdict::Pass),
            warn: count(Verdict::Warn),
            fail: count(Verdict::Fail),
            skipped: count(Verdict::Skipped),
        }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    version: &'static str,
    kernel: String,
    counts: Counts,
    checks: &'a [Check],
}

/// Prints checks, how they ended, and by which version.
pub(crate) fn report(checks: &[Check], as_json: bool) -> Result<(), Error> {
    let (version, counts) = (env!("CARGO_PKG_VERSION"), Counts::of(checks));
    let (kernel, arch) = probe::kernel();
    if as_json {
        return print_json(&Report { version, kernel, counts, checks });
    }
    let Counts { pass, warn, fail, skipped } = counts;
    let plural = if warn == 1 { "" } else { "s" };
    let last = format!(
        "{pass} passed, {warn} warning{plural}, {fail} failed, {skipped} skipped; verbgate {version} on \
         Linux {kernel} {arch}"
    );
    let terminal = io::stdout().is_terminal();
    let width = terminal.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten();
    let width = width.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    // NO_COLOR: see no-color.org.
    let colored = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Ok(print(&format!("{}{}", text(checks, width, colored), wrapped(&last, width, 0)))?)
}

/// A paragraph for each check, and one below it for the remedy.
pub(crate) fn text(checks: &[Check], width: Option<usize>, colored: bool) -> String {
    let lines = checks.iter().map(|Check { name, finding, .. }| {
        let (word, color) = finding.verdict.word();
        let line = wrapped(&format!("{word} {name}: {}", finding.found), width, INDENT);
        let line = match colored {
            true => line.replacen(word, &format!("\x1b[{color}m{word}\x1b[0m"), 1),
            false => line,
        };
        let space = " ".repeat(INDENT);
        let remedy = match finding.remedy.as_ref() {
            "" => String::new(),
            remedy => wrapped(&format!("{space}remedy: {remedy}"), width, 2 * INDENT),
        };
        line + &remedy
    });
    lines.collect()
}

/// A paragraph in lines that fit a width, where words allow; lines after the first are indented.
fn wrapped(text: &str, width: Option<usize>, indent: usize) -> String {
    let (mut done, mut line) = (String::new(), String::new());
    for word in text.split_inclusive(' ') {
        let length = line.chars().count() + word.trim_end().chars().count();
        if width.is_some_and(|width| length > width) && !line.trim().is_empty() {
            done += line.trim_end();
            done.push('\n');
            line = " ".repeat(indent);
        }
        line += word;
    }
    done + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_terminal_and_hang_below_their_beginning() {
        let text = "WARN memlock: 8192 KiB under containerd and more";
        assert_eq!(wrapped(text, None, 5), format!("{text}\n"));
        assert_eq!(
            wrapped(text, Some(24), 5),
            "WARN memlock: 8192 KiB\n     under containerd\n     and more\n"
        );
        // A word that is longer than a line stays whole, and so do spaces at the beginning.
        assert_eq!(
            wrapped("     remedy: a-long-one b", Some(12), 7),
            "     remedy:\n       a-long-one\n       b\n"
        );
    }

    #[test]
    fn colors_come_around_the_verdict_alone() {
        let check = Check { name: "FAIL", needs: Needs::Nothing, finding: fail("FAIL", "mend") };
        let plain = text(std::slice::from_ref(&check), None, false);
        assert_eq!(plain, "FAIL FAIL: FAIL\n     remedy: mend\n");
        let colored = text(&[check], None, true);
        assert_eq!(colored, plain.replacen("FAIL", "\x1b[31mFAIL\x1b[0m", 1));
    }
}
