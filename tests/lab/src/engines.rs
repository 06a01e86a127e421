//! Container engines as Debian packages them, unpacked into a folder to run in namespaces of their own.
//!
//! Nothing is installed: programs and configuration are there as shipped, and no maintainer script
//! has run.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::apt;
use crate::apt::Suite;
use crate::cache;
use crate::cache::Artifact;
use crate::host;
use crate::progress::Progress;
use crate::tool;

/// Counts changes of what is made here; more than the recipe's text says.
const REVISION: u32 = 1;
/// The packages and what is unpacked.
const SPACE_MIB: u64 = 1500;
const ROOT: &str = "root";
/// In this suite, the client of Docker is in the package of its daemon.
const CLIENT: (&str, &str) = ("bookworm", "docker-cli");
/// The engines, what they run, what shells and images are made of, the first process, and what installs
/// packages.
const PACKAGES: &[&str] = &[
    "base-files",
    "containerd",
    "docker.io",
    "docker-cli",
    "podman",
    "rpm",
    "crun",
    "runc",
    "busybox-static",
    "tini",
    "dpkg",
    "tar",
    "libc-bin",
];
/// What older packages take to be links.
const MERGED: &[&str] = &["bin", "sbin", "lib", "lib64"];

/// The suites whose engines are tried, the oldest first.
pub const ENGINE_SUITES: &[&str] = &["bookworm", "trixie", "sid"];

/// Engines that are in the cache. While this lives, the cache is not removed.
#[derive(Debug)]
pub struct Engines {
    root: PathBuf,
    _use: cache::Lock,
}

impl Engines {
    /// The engines of a suite; fetched if the cache has them not.
    ///
    /// # Errors
    /// Without root, without what unpacks, or without a mirror.
    pub fn of(suite: &str, progress: &Progress) -> Result<Self> {
        if !host::is_root() {
            bail!("needs root, to unpack packages and to run engines");
        }
        let name = format!("engines-{suite}");
        let artifact = Artifact {
            name: &name,
            recipe: format!("{REVISION} {suite} {PACKAGES:?}"),
            space_mib: SPACE_MIB,
        };
        let held = cache::lock_for_use(progress)?;
        let dir = artifact.ensure(progress, |dir| build(suite, dir, progress))?;
        Ok(Self { root: dir.join(ROOT), _use: held })
    }

    /// The folder that holds their root file system; not to be written to.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// A package of one suite, unpacked, of which single programs are run. While this lives, the cache is not removed.
#[derive(Debug)]
pub struct Unpacked {
    package: &'static str,
    root: PathBuf,
    _use: cache::Lock,
}

impl Unpacked {
    /// A package; fetched if the cache does not have it.
    ///
    /// # Errors
    /// Without a mirror.
    pub fn of(package: &'static str, suite: &str, progress: &Progress) -> Result<Self> {
        let name = format!("{package}-{suite}");
        let recipe = format!("{REVISION} {suite}");
        let artifact = Artifact { name: &name, recipe, space_mib: 100 };
        let held = cache::lock_for_use(progress)?;
        let dir = artifact.ensure(progress, |dir| {
            let scratch = tempfile::tempdir()?;
            let known = Suite::open(suite, scratch.path(), progress)?;
            known.unpack(&[package.to_owned()], &dir.join(ROOT), progress)
        })?;
        Ok(Self { package, root: dir.join(ROOT), _use: held })
    }

    /// A program of it.
    ///
    /// # Errors
    /// The package has no such program.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let dirs = ["usr/sbin", "sbin", "usr/bin", "bin"];
        let mut places = dirs.map(|dir| self.root.join(dir).join(name)).into_iter();
        let found = places.find(|path| path.exists());
        found.with_context(|| format!("the package {} has no program {name}", self.package))
    }
}

fn build(suite: &str, dir: &Path, progress: &Progress) -> Result<()> {
    host::require(&[host::TO_BUILD], progress)?;
    progress.say(&format!("fetching the container engines of {suite}"));
    let scratch = dir.join("scratch");
    fs::create_dir_all(&scratch)?;
    // Finds a keyring that verifies the suite before mmdebstrap needs it.
    let known = Suite::open(suite, &scratch, progress)?;
    let root = dir.join(ROOT);
    let mut command = tool::command("mmdebstrap");
    command.args(["--variant=extract", "--mode=root", "--format=directory"]);
    command.arg("--architectures=amd64");
    let packages = PACKAGES.iter().filter(|package| CLIENT != (suite, **package));
    command.arg(format!("--include={}", packages.copied().collect::<Vec<_>>().join(",")));
    command.arg(format!("--keyring={}", known.keyring.display()));
    for setting in apt::forwarded_settings()? {
        command.arg(format!("--aptopt={setting}"));
    }
    command.arg("--aptopt=Acquire::Languages \"none\";").env("TMPDIR", &scratch);
    command.arg(suite).arg(&root).arg(format!("deb {} {suite} main", known.uri));
    let log = scratch.join("mmdebstrap.log");
    tool::run_logged(&mut command, "fetching engines", &log, progress)?;
    finish(&root)?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// What maintainer scripts would have made: links of the merged `/usr`, folders to mount upon, and
/// names for busybox, by which there is a shell.
fn finish(root: &Path) -> Result<()> {
    for name in MERGED {
        if fs::symlink_metadata(root.join(name)).is_err() && root.join("usr").join(name).is_dir() {
            std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
        }
    }
    for name in ["proc", "sys", "dev", "run", "tmp", "var/lib", "var/tmp", "root"] {
        fs::create_dir_all(root.join(name))?;
    }
    let busybox = root.join("bin/busybox");
    let text = tool::capture_text(std::process::Command::new(&busybox).arg("--list"))?;
    for name in text.lines() {
        let taken = ["bin", "sbin", "usr/bin", "usr/sbin"]
            .iter()
            .any(|dir| fs::symlink_metadata(root.join(dir).join(name)).is_ok());
        if !taken {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name))?;
        }
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\ndocker:x:999:\n")?;
    Ok(())
}
