//! A distribution's userland with the RDMA packages, as an image to boot into.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;

use crate::apt;
use crate::apt::Suite;
use crate::cache::Artifact;
use crate::host;
use crate::progress::Progress;
use crate::recipe::Arch;
use crate::recipe::PACKAGES;
use crate::recipe::Userland;
use crate::tool;

/// Counts changes of what is built here; more than the recipe's text says.
const REVISION: u32 = 1;
/// The tarball, the image with its free space, and the packages.
const SPACE_MIB: u64 = 2500;
/// What a run may write into its (discarded) copy of the image.
const FREE_MIB: u64 = 512;
const IMAGE: &str = "root.ext4";
/// Documentation is not run; but pyverbs' tests are shipped as documentation.
const DPKG_OPTIONS: &[&str] = &[
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/rdma-core/*",
];
/// Runs on the host with the tree's path as `$1`.
const CUSTOMIZE: &str = r#"set -e
mkdir -p "$1/lab" "$1/opt" "$1/lib/modules"
if [ -d "$1/usr/share/doc/rdma-core/tests" ]; then
    mkdir "$1/opt/pyverbs"
    mv "$1/usr/share/doc/rdma-core/tests" "$1/opt/pyverbs/tests"
    rm -r "$1/usr/share/doc/rdma-core"
    gzip -dr "$1/opt/pyverbs"
fi
echo lab > "$1/etc/hostname"
printf '127.0.0.1 localhost lab\n10.99.0.1 rxe0\n' > "$1/etc/hosts"
rm -rf "$1"/var/cache/* "$1"/var/lib/apt/lists/*"#;

/// Instead of the packages' own scripts, which would need an emulator of their processor on the host.
const UNCONFIGURED: &str = r#"set -e
cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"
cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"
mkdir -p "$1/usr/local/bin" "$1/usr/local/sbin" "$1/usr/local/lib" "$1/mnt" "$1/srv"
[ -e "$1/usr/bin/awk" ] || ln -s mawk "$1/usr/bin/awk"
[ -e "$1/bin/sh" ] || ln -s dash "$1/bin/sh""#;

fn artifact<'a>(userland: &Userland, name: &'a str) -> Artifact<'a> {
    let mut recipe = format!(
        "{REVISION} {} {PACKAGES:?} {DPKG_OPTIONS:?} {FREE_MIB}\n{CUSTOMIZE}",
        userland.name
    );
    if userland.arch != Arch::Amd64 {
        recipe.push_str(UNCONFIGURED);
    }
    if !userland.more.is_empty() {
        recipe.push_str(&userland.more.join(" "));
    }
    Artifact { name, recipe, space_mib: SPACE_MIB }
}

fn folder(userland: &Userland) -> String {
    format!("userland-{}", userland.name)
}

/// Whether the userland is in the cache.
pub(crate) fn is_ready(userland: &Userland, cache: &Path) -> bool {
    artifact(userland, &folder(userland)).existing(cache).is_some()
}

/// The userland's image; made if the cache has it not.
pub(crate) fn ensure(userland: &Userland, progress: &Progress) -> Result<PathBuf> {
    let name = folder(userland);
    let dir = artifact(userland, &name).ensure(progress, |dir| build(userland, dir, progress))?;
    Ok(dir.join(IMAGE))
}

fn build(userland: &Userland, dir: &Path, progress: &Progress) -> Result<()> {
    host::require(&[host::TO_BUILD], progress)?;
    if !host::is_root() {
        host::require(&[host::TO_BUILD_UNPRIVILEGED], progress)?;
    }
    progress.say(&format!("making userland {} (rdma-core {})", userland.name, userland.rdma_core));
    let scratch = dir.join("scratch");
    fs::create_dir_all(&scratch)?;
    // Finds a keyring that verifies the suite before mmdebstrap needs it.
    let suite = Suite::open_for(userland.arch, userland.suite, &scratch, progress)?;
    let tarball = scratch.join("root.tar");
    let mut command = tool::command("mmdebstrap");
    command.arg("--format=tar").arg(format!("--architectures={}", userland.arch.debian()));
    command.arg(format!("--keyring={}", suite.keyring.display()));
    let packages = [PACKAGES, userland.more].concat().join(",");
    match userland.arch {
        Arch::Amd64 => {
            command.args(["--variant=essential", &format!("--include={packages}")]);
            command.arg(format!("--customize-hook={CUSTOMIZE}"));
            for option in DPKG_OPTIONS {
                command.arg(format!("--dpkgopt={option}"));
            }
        }
        Arch::Arm64 => {
            command.args(["--variant=extract", "--skip=check/qemu"]);
            // Each apart: a pattern takes the rest of the option.
            command.args(["--include=?essential", &format!("--include={packages}")]);
            // The only hooks that run where packages are not installed.
            command.arg(format!("--extract-hook={UNCONFIGURED}"));
            command.arg(format!("--extract-hook={CUSTOMIZE}"));
        }
    }
    for setting in apt::forwarded_settings()? {
        command.arg(format!("--aptopt={setting}"));
    }
    command.arg("--aptopt=Acquire::Languages \"none\";");
    if host::is_root() {
        command.arg("--mode=root");
        // It works beside its output; everything is removed with it.
        command.env("TMPDIR", &scratch);
    } else {
        // Its other way without root, fakechroot, cannot run a libc newer than the machine's. The
        // subordinate users it works as may not enter the cache folder, so TMPDIR stays.
        command.arg("--mode=unshare");
    }
    command
        .arg(userland.suite)
        .arg(&tarball)
        .arg(format!("deb {} {} main", suite.uri, userland.suite));
    progress.say("  installing packages into it with mmdebstrap");
    tool::run_logged(&mut command, "mmdebstrap", &scratch.join("mmdebstrap.log"), progress)?;

    progress.say("  making the image");
    make_image_of_tarball(&tarball, &scratch.join("tree"), &dir.join(IMAGE), progress)?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// Unpacks and makes the image in one go, because owners live only as long as one fakeroot.
fn make_image_of_tarball(
    tarball: &Path,
    tree: &Path,
    image: &Path,
    progress: &Progress,
) -> Result<()> {
    fs::create_dir_all(tree)?;
    let size = fs::metadata(tarball)?.len().div_ceil(1 << 20);
    // Devices come from devtmpfs. Without root, a file that nobody may read (etc/shadow-) cannot be
    // copied into the image.
    let script = r#"set -e
tar -xf "$1" -C "$2" --numeric-owner --exclude='./dev/*'
find "$2" -type f ! -perm -u=r -exec chmod u+r {} +
truncate -s "$4M" "$3"
exec "$5" -q -F -t ext4 -m 0 -O ^has_journal -i 8192 -d "$2" "$3""#;
    let mke2fs = tool::find("mke2fs").unwrap_or_else(|| PathBuf::from("mke2fs"));
    let mut command = if host::is_root() {
        tool::command("sh")
    } else {
        let mut fakeroot = tool::command("fakeroot");
        fakeroot.arg("sh");
        fakeroot
    };
    let megabytes = with_overhead(size) + FREE_MIB;
    command
        .args(["-c", script, "sh"])
        .arg(tarball)
        .arg(tree)
        .arg(image)
        .arg(megabytes.to_string())
        .arg(mke2fs);
    tool::run_logged(&mut command, "making the image", &tree.with_extension("log"), progress)
}

/// An ext4 image of a folder, owned by root, with `free` MiB to spare.
pub(crate) fn make_image(tree: &Path, image: &Path, free: u64, progress: &Progress) -> Result<()> {
    let megabytes = with_overhead(disk_use(tree)?.div_ceil(1 << 20)) + free;
    fs::File::create(image)?.set_len(megabytes << 20)?;
    let mut command = tool::command("mke2fs");
    command.args([
        "-q",
        "-F",
        "-t",
        "ext4",
        "-m",
        "0",
        "-O",
        "^has_journal",
        "-E",
        "root_owner=0:0",
        "-d",
    ]);
    command.arg(tree).arg(image);
    let log = image.with_extension("log");
    tool::run_logged(&mut command, "making an image", &log, progress)?;
    Ok(fs::remove_file(&log)?)
}

/// What a file system of this content takes: inodes, maps, rounding.
fn with_overhead(mib: u64) -> u64 {
    mib + mib / 8 + 24
}

/// The bytes that a tree takes on disk.
fn disk_use(tree: &Path) -> Result<u64> {
    let meta =
        fs::symlink_metadata(tree).with_context(|| format!("cannot read {}", tree.display()))?;
    let mut total = meta.blocks() * 512;
    if meta.is_dir() {
        for entry in fs::read_dir(tree)? {
            total += disk_use(&entry?.path())?;
        }
    }
    Ok(total)
}
