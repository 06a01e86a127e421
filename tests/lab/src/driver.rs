//! Drivers that the distribution's kernels leave out, built from its own source of the kernel against
//! its own headers, in its own userland: nothing of them is kept or passed on but in the cache.

use std::fmt;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;

use crate::apt::Suite;
use crate::cache::Artifact;
use crate::host;
use crate::progress::Progress;
use crate::qemu::debootstrap;
use crate::recipe::Kernel;
use crate::tool;

/// Counts changes of what is made here; more than the recipe's text says.
const REVISION: u32 = 1;
/// A compiler, a kernel's headers and its packed source, twice.
const SPACE_MIB: u64 = 3000;
/// What is fetched, for people.
const MEGABYTES: u32 = 420;

/// A driver that is left out, or that a case loads by itself.
#[derive(Debug)]
struct Driver {
    /// Of the module.
    name: &'static str,
    /// In the kernel's source.
    folder: &'static str,
    /// The option without which its Makefile builds nothing.
    option: &'static str,
    /// What is changed before: a file of the folder, and sed(1)'s words, which must change something.
    edit: [&'static str; 2],
}

/// Gives Soft-RoCE upon a card's network interface the card's place in the PCI tree, which RoCE cards have: the
/// kernel's own driver gives it none.
const PLACE: [&str; 2] = [
    "rxe_net.c",
    "s/rxe = ib_alloc_device[a-z_]*(.*);/& if (rxe) rxe->ib_dev.dev.parent = ndev->dev.parent;/",
];
const AS_IT_IS: [&str; 2] = ["Makefile", ""];

#[rustfmt::skip]
const DRIVERS: &[Driver] = &[
    Driver { name: "efa",      folder: "drivers/infiniband/hw/efa",   option: "CONFIG_INFINIBAND_EFA",   edit: AS_IT_IS },
    Driver { name: "erdma",    folder: "drivers/infiniband/hw/erdma", option: "CONFIG_INFINIBAND_ERDMA", edit: AS_IT_IS },
    Driver { name: "rdma_rxe", folder: "drivers/infiniband/sw/rxe",   option: "CONFIG_RDMA_RXE",         edit: PLACE },
];

/// Unpacks and builds one: the source package, the driver's folder, the kernel's version, the option,
/// the module, and the file to be changed and how are the arguments.
const BUILD: &str = r#"set -e
cd /root
tar -xf "/usr/src/$1.tar.xz" "$1/$2"
if [ -n "$7" ]; then
    cp "$1/$2/$6" before
    sed -i "$7" "$1/$2/$6"
    ! cmp -s before "$1/$2/$6"
fi
make -C "/usr/src/linux-headers-$3" M="/root/$1/$2" "$4=m" modules
strip --strip-debug "/root/$1/$2/$5.ko"
mv "/root/$1/$2/$5.ko" "/$5.ko""#;

fn artifact<'a>(kernel: &Kernel, version: &str, name: &'a str) -> Artifact<'a> {
    let recipe = format!("{REVISION} {version} {:?} {DRIVERS:?}\n{BUILD}", kernel.suites);
    Artifact { name, recipe, space_mib: SPACE_MIB }
}

fn folder(kernel: &Kernel) -> String {
    format!("drivers-{}", kernel.name)
}

/// The folder of the modules for a kernel whose files are in `boot`; built if the cache has them not.
pub(crate) fn ensure(kernel: &Kernel, boot: &Path, progress: &Progress) -> Result<PathBuf> {
    let version = fs::read_to_string(boot.join("version"))
        .with_context(|| format!("{} has no version", boot.display()))?;
    let (version, name) = (version.trim(), folder(kernel));
    artifact(kernel, version, &name).ensure(progress, |dir| build(kernel, version, dir, progress))
}

fn build(kernel: &Kernel, version: &str, dir: &Path, progress: &Progress) -> Result<()> {
    host::require(&[host::TO_BUILD], progress)?;
    let names: Vec<&str> = DRIVERS.iter().map(|driver| driver.name).collect();
    progress.say(&format!(
        "building {} for Linux {version}, once: a compiler, headers and source are fetched \
         ({MEGABYTES} MB)",
        names.join(", ")
    ));
    let scratch = dir.join("scratch");
    fs::create_dir_all(&scratch)?;
    let headers = format!("linux-headers-{version}");
    let source = format!("linux-source-{}", kernel.series);
    let suite = find(kernel, &[&headers, &source], &scratch, progress)?;

    let mut command = debootstrap(&suite, &scratch)?;
    command.args(["--variant=essential", "--format=null"]);
    // The headers depend on the compiler that the kernel was built with.
    command.arg(format!("--include={headers},{source},make,binutils,xz-utils"));
    for driver in DRIVERS {
        let words = [&source, driver.folder, version, driver.option, driver.name];
        let words = words.into_iter().chain(driver.edit);
        let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
        let build = format!("chroot \"$1\" sh -c '{BUILD}' sh {}", words.join(" "));
        command.arg(format!("--customize-hook={build}"));
        command.arg(format!("--customize-hook=copy-out /{}.ko {}", driver.name, dir.display()));
    }
    command.arg(&suite.name).arg("/dev/null").arg(format!("deb {} {} main", suite.uri, suite.name));
    let log = scratch.join("build.log");
    tool::run_logged(&mut command, "building drivers", &log, progress)?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// The first suite that has all of these packages.
fn find(kernel: &Kernel, wanted: &[&str], scratch: &Path, progress: &Progress) -> Result<Suite> {
    for name in kernel.suites {
        let Ok(suite) = Suite::open(name, scratch, progress) else { continue };
        let has = |package: &&str| {
            suite.names(package).is_ok_and(|names| names.iter().any(|name| name == package))
        };
        if wanted.iter().all(has) {
            return Ok(suite);
        }
    }
    Err(NoHeaders { version: wanted.join(" and ") }.into())
}

/// The archive has not all of a kernel's version any more: it keeps the newest few.
#[derive(Clone, Debug)]
pub(crate) struct NoHeaders {
    version: String,
}

impl fmt::Display for NoHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version } = self;
        write!(
            f,
            "the archive has no {version} any more; `cargo xtask lab clean` makes room for newer"
        )
    }
}

impl std::error::Error for NoHeaders {}
