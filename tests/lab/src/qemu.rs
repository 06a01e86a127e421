//! A QEMU that has vfio-user (10.1 and newer), as the distribution packages it, unpacked into a folder
//! and run by that folder's own loader: the machine's own QEMU stays what it is.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::apt;
use crate::apt::Suite;
use crate::cache::Artifact;
use crate::host;
use crate::progress::Progress;
use crate::tool;

/// Counts changes of what is made here; more than the recipe's text says.
const REVISION: u32 = 1;
/// The packages and what is unpacked.
const SPACE_MIB: u64 = 600;
/// What is fetched, for people.
const MEGABYTES: u32 = 65;
const PACKAGE: &str = "qemu-system-x86";
/// Suites whose QEMU is new enough, the first that can be reached is taken.
const SUITES: &[&str] = &["sid", "forky"];
const ROOT: &str = "root";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
const PROGRAM: &str = "usr/bin/qemu-system-x86_64";
/// Where firmware is, in this order.
const FIRMWARE: &[&str] = &["usr/share/seabios", "usr/share/qemu"];

/// A QEMU in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Emulator {
    root: PathBuf,
}

fn artifact() -> Artifact<'static> {
    let recipe = format!("{REVISION} {PACKAGE} {SUITES:?}");
    Artifact { name: "qemu", recipe, space_mib: SPACE_MIB }
}

/// The QEMU in the cache, if it is there.
pub(crate) fn existing(cache: &Path) -> Option<Emulator> {
    artifact().existing(cache).map(|dir| Emulator { root: dir.join(ROOT) })
}

/// The QEMU in the cache; fetched if it is missing there.
pub(crate) fn ensure(progress: &Progress) -> Result<Emulator> {
    let dir = artifact().ensure(progress, |dir| build(dir, progress))?;
    Ok(Emulator { root: dir.join(ROOT) })
}

impl Emulator {
    /// Adds the program and what it needs to find its own files to a command that starts another.
    pub(crate) fn complete(&self, command: &mut Command) {
        command.arg(self.root.join(LOADER)).arg("--library-path").arg(self.root.join(LIBRARIES));
        command.arg(self.root.join(PROGRAM));
        for folder in FIRMWARE {
            command.arg("-L").arg(self.root.join(folder));
        }
        command.env("QEMU_MODULE_DIR", self.root.join(LIBRARIES).join("qemu"));
    }
}

fn build(dir: &Path, progress: &Progress) -> Result<()> {
    host::require(&[host::TO_BUILD], progress)?;
    let mut tried = Vec::new();
    for suite in SUITES {
        match unpack(suite, dir, progress) {
            Ok(()) => return examine(&dir.join(ROOT), progress),
            Err(error) => tried.push(format!("{suite}: {error:#}")),
        }
    }
    bail!("no suite has a QEMU that can be fetched: {}", tried.join("; "))
}

fn unpack(suite: &str, dir: &Path, progress: &Progress) -> Result<()> {
    progress.say(&format!("fetching QEMU of {suite}, once ({MEGABYTES} MB)"));
    let scratch = dir.join("scratch");
    fs::create_dir_all(&scratch)?;
    // Finds a keyring that verifies the suite before mmdebstrap needs it.
    let known = Suite::open(suite, &scratch, progress)?;
    let tree = scratch.join("root.tar");
    let mut command = debootstrap(&known, &scratch)?;
    command.args(["--variant=extract", "--format=tar", &format!("--include={PACKAGE}")]);
    command.arg(suite).arg(&tree).arg(format!("deb {} {suite} main", known.uri));
    let log = scratch.join("mmdebstrap.log");
    tool::run_logged(&mut command, "fetching QEMU", &log, progress)?;
    let root = dir.join(ROOT);
    fs::create_dir_all(&root)?;
    let mut tar = tool::command("tar");
    // Devices and owners are of no use.
    tar.args(["--no-same-owner", "--exclude=./dev", "-xf"]).arg(&tree).arg("-C").arg(&root);
    tool::capture(&mut tar).context("cannot unpack QEMU")?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// `mmdebstrap` for a suite, as root or as a user who may have others.
pub(crate) fn debootstrap(suite: &Suite, scratch: &Path) -> Result<Command> {
    let mut command = tool::command("mmdebstrap");
    command.arg("--architectures=amd64").arg(format!("--keyring={}", suite.keyring.display()));
    for setting in apt::forwarded_settings()? {
        command.arg(format!("--aptopt={setting}"));
    }
    command.arg("--aptopt=Acquire::Languages \"none\";");
    if host::is_root() {
        command.arg("--mode=root").env("TMPDIR", scratch);
    } else {
        command.arg("--mode=unshare");
    }
    Ok(command)
}

/// It runs here, and has what it was fetched for.
fn examine(root: &Path, progress: &Progress) -> Result<()> {
    let ask = |arguments: &[&str]| -> Result<String> {
        let mut command = tool::command("env");
        Emulator { root: root.to_owned() }.complete(&mut command);
        tool::capture_text(command.args(arguments))
    };
    let version = ask(&["--version"]).context("the QEMU that was fetched does not run here")?;
    ask(&["-device", "vfio-user-pci,help"])
        .with_context(|| format!("{} has no vfio-user", version.trim()))?;
    progress.say(&format!("  {}", version.lines().next().unwrap_or_default()));
    Ok(())
}
