//! The lab's needs of this machine, and their installation.

use std::io::BufRead as _;
use std::io::IsTerminal as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::progress::Progress;
use crate::tool;

/// A program that the lab runs, or a file that it reads, and the package it comes from.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Need {
    /// A program's name, or an absolute path.
    pub(crate) thing: &'static str,
    /// The Debian package.
    pub(crate) package: &'static str,
}

/// Needed for each run.
pub(crate) const TO_RUN: &[Need] = &[
    Need { thing: "qemu-system-x86_64", package: "qemu-system-x86" },
    Need { thing: "setpriv", package: "util-linux" },
];

/// Needed for each run of an arm64 kernel.
pub(crate) const TO_RUN_ARM64: &[Need] = &[
    Need { thing: "qemu-system-aarch64", package: "qemu-system-arm" },
    Need { thing: "setpriv", package: "util-linux" },
];

/// Needed to run User-Mode Linux.
pub(crate) const TO_RUN_UML: &[Need] = &[Need { thing: "setpriv", package: "util-linux" }];

/// Needed to make kernels and userlands.
pub(crate) const TO_BUILD: &[Need] = &[
    Need { thing: "mmdebstrap", package: "mmdebstrap" },
    Need { thing: "mke2fs", package: "e2fsprogs" },
    Need { thing: "depmod", package: "kmod" },
    Need { thing: "dpkg-deb", package: "dpkg" },
    Need { thing: "tar", package: "tar" },
    Need { thing: "xz", package: "xz-utils" },
    Need { thing: "zstd", package: "zstd" },
    Need {
        thing: "/usr/share/keyrings/debian-archive-keyring.gpg",
        package: "debian-archive-keyring",
    },
];

/// Needed beyond [`TO_BUILD`] when not root.
pub(crate) const TO_BUILD_UNPRIVILEGED: &[Need] = &[
    Need { thing: "fakeroot", package: "fakeroot" },
    Need { thing: "newuidmap", package: "uidmap" },
];

/// Needed to build User-Mode Linux.
pub(crate) const TO_BUILD_UML: &[Need] = &[
    Need { thing: "make", package: "make" },
    Need { thing: "gcc", package: "gcc" },
    Need { thing: "/usr/include/stdio.h", package: "libc6-dev" },
    Need { thing: "flex", package: "flex" },
    Need { thing: "bison", package: "bison" },
    Need { thing: "bc", package: "bc" },
    Need { thing: "perl", package: "perl" },
    Need { thing: "xz", package: "xz-utils" },
    Need { thing: "nice", package: "coreutils" },
];

impl Need {
    /// Whether the machine has it.
    pub(crate) fn is_met(&self) -> bool {
        if self.thing.starts_with('/') {
            Path::new(self.thing).exists()
        } else {
            tool::find(self.thing).is_some()
        }
    }
}

/// Says to this process and to those that it starts that packages may be installed.
pub const INSTALL: &str = "VERBGATE_INSTALL";
/// The same, said by nearly all services that run tests for a project: nobody is there to ask.
const CI: &str = "CI";

static PERMITTED: OnceLock<()> = OnceLock::new();

/// Lets this process install packages without asking.
pub fn permit_installing() {
    PERMITTED.get_or_init(|| ());
}

/// Whether packages may be installed without asking.
#[must_use]
pub fn may_install() -> bool {
    PERMITTED.get().is_some() || [CI, INSTALL].iter().any(|name| is_set(name))
}

/// Whether packages may be installed; asked if there is somebody to ask.
///
/// # Errors
/// Nobody may be asked, or says no.
fn permission(list: &str) -> Result<()> {
    let (mut stdin, mut stderr) = (std::io::stdin().lock(), std::io::stderr().lock());
    let somebody = stdin.is_terminal() && stderr.is_terminal();
    decide(list, may_install(), somebody, || {
        write!(stderr, "Install {list}? [y/N] ")?;
        stderr.flush()?;
        let mut answer = String::new();
        stdin.read_line(&mut answer)?;
        Ok(answer)
    })
}

fn decide(
    list: &str,
    permitted: bool,
    somebody: bool,
    ask: impl FnOnce() -> Result<String>,
) -> Result<()> {
    if permitted {
        return Ok(());
    }
    if !somebody {
        bail!("{list}: not installed without being asked to: give --install, or set {CI}");
    }
    if ["y", "yes"].contains(&ask()?.trim().to_lowercase().as_str()) {
        return Ok(());
    }
    bail!("{list}: not installed, as you say")
}

/// Whether a variable says yes.
fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !["", "0", "false"].contains(&value.as_str()))
}

/// Whether this process has the right to install packages.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes sure that all needs are met, by installing packages when root.
///
/// After: every need is met, or an error that names the packages and the command.
pub(crate) fn require(needs: &[&[Need]], progress: &Progress) -> Result<()> {
    let packages = missing(needs.iter().copied().flatten(), Need::is_met);
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    let remedy = format!("apt-get update && apt-get install --no-install-recommends {list}");
    if !is_root() {
        bail!("packages are missing on this machine: {list}. As root: {remedy}");
    }
    if tool::find("apt-get").is_none() {
        bail!("{list} is missing, and this machine has no apt-get: install the package by hand");
    }
    permission(&list)?;
    progress.say(&format!("installing {list}"));
    if let Err(first) = install(&packages, progress) {
        // Lists are empty on a fresh machine, and age on an old one.
        progress.say("  refreshing apt's lists and trying again");
        refresh_lists()?;
        install(&packages, progress)
            .with_context(|| format!("by hand: {remedy} (the first try said: {first:#})"))?;
    }
    let still = missing(needs.iter().copied().flatten(), Need::is_met);
    if still.is_empty() {
        Ok(())
    } else {
        bail!("installed {list}, but {} is still missing", still.join(" "))
    }
}

/// Makes sure that there is a program, as for the lab's own needs.
pub fn require_program(
    program: &'static str,
    package: &'static str,
    progress: &Progress,
) -> Result<()> {
    require_programs(&[(program, package)], progress)
}

/// The same of many, which are installed together.
pub fn require_programs(
    programs: &[(&'static str, &'static str)],
    progress: &Progress,
) -> Result<()> {
    let needs: Vec<Need> =
        programs.iter().map(|&(thing, package)| Need { thing, package }).collect();
    require(&[&needs], progress)
}

fn missing<'a>(
    needs: impl Iterator<Item = &'a Need>,
    is_met: impl Fn(&Need) -> bool,
) -> Vec<&'static str> {
    let mut packages: Vec<&'static str> = Vec::new();
    for need in needs {
        if !is_met(need) && !packages.contains(&need.package) {
            packages.push(need.package);
        }
    }
    packages
}

/// The machine's apt serves one at a time, and fails the second.
static APT: Mutex<()> = Mutex::new(());

fn install(packages: &[&str], progress: &Progress) -> Result<()> {
    let _alone = APT.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = tempfile::tempdir()?;
    let mut command = tool::command("apt-get");
    command.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages);
    tool::run_logged(&mut command, "installing packages", &scratch.path().join("log"), progress)
}

/// `apt-get update`, when root; apt's lists are the machine's, so others go with what is there.
pub(crate) fn refresh_lists() -> Result<()> {
    if is_root() {
        let _alone = APT.lock().unwrap_or_else(PoisonError::into_inner);
        tool::capture(tool::command("apt-get").args(["update", "-q"]))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_package_is_named_once() {
        let needs = [
            Need { thing: "a", package: "p" },
            Need { thing: "b", package: "p" },
            Need { thing: "c", package: "q" },
        ];
        assert_eq!(missing(needs.iter(), |_| false), ["p", "q"]);
        assert_eq!(missing(needs.iter(), |n| n.thing != "c"), ["q"]);
        assert!(missing(needs.iter(), |_| true).is_empty());
    }

    #[test]
    fn nothing_is_installed_unasked() {
        let decided = |permitted, somebody, answer: &str| {
            decide("crun", permitted, somebody, || Ok(answer.to_owned())).map_err(|e| e.to_string())
        };
        assert_eq!(decided(true, false, ""), Ok(()));
        assert_eq!(decided(false, true, "Yes\n"), Ok(()));
        for answer in ["", "\n", "n\n"] {
            assert!(decided(false, true, answer).is_err(), "{answer:?}");
        }
        let nobody = decided(false, false, "y").unwrap_err();
        assert!(nobody.contains("crun") && nobody.contains("--install"), "{nobody}");
    }

    #[test]
    fn a_need_is_a_program_or_a_path() {
        assert!(Need { thing: "sh", package: "dash" }.is_met());
        assert!(Need { thing: "/proc/self", package: "linux" }.is_met());
        assert!(!Need { thing: "/nowhere/at/all", package: "x" }.is_met());
    }
}
