//! A distribution kernel, made ready to boot: the kernel, an initial root, and an image of modules.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::apt;
use crate::apt::Suite;
use crate::cache::Artifact;
use crate::cpio::Cpio;
use crate::host;
use crate::modules;
use crate::progress::Progress;
use crate::recipe::Kernel;
use crate::tool;
use crate::userland::make_image;

/// Counts changes of what is built here; more than the recipe's text says.
const REVISION: u32 = 1;
/// Process 1 of every initial root.
pub(crate) const EARLY_INIT: &str = include_str!("../guest/early-init.sh");
/// Uncompressed 6.1 with its modules, twice (tree and image), and the packages.
const SPACE_MIB: u64 = 1500;

/// The files to boot from.
#[derive(Clone, Debug)]
pub(crate) struct BootFiles {
    /// The kernel itself.
    pub(crate) kernel: PathBuf,
    /// The initial root.
    pub(crate) initramfs: PathBuf,
    /// The image for `/lib/modules`; none if everything is built in.
    pub(crate) modules: Option<PathBuf>,
}

fn artifact<'a>(kernel: &Kernel, name: &'a str) -> Artifact<'a> {
    // The early init is part of what is built.
    let recipe = format!("{REVISION} {} {:?}\n{EARLY_INIT}", kernel.series, kernel.suites);
    Artifact { name, recipe, space_mib: SPACE_MIB }
}

/// Whether the kernel is in the cache.
pub(crate) fn is_ready(kernel: &Kernel, cache: &Path) -> bool {
    artifact(kernel, &folder(kernel)).existing(cache).is_some()
}

fn folder(kernel: &Kernel) -> String {
    format!("kernel-{}", kernel.name)
}

/// The kernel's files; fetched and made if the cache has them not.
pub(crate) fn ensure(kernel: &Kernel, progress: &Progress) -> Result<BootFiles> {
    let name = folder(kernel);
    let dir = artifact(kernel, &name).ensure(progress, |dir| build(kernel, dir, progress))?;
    Ok(files(&dir))
}

/// A kernel of the series that was fetched later than the lab's own, if there is one.
pub(crate) fn newer(kernel: &Kernel, cache: &Path) -> Option<BootFiles> {
    artifact(kernel, &newer_folder(kernel)).existing(cache).map(|dir| files(&dir))
}

/// The same; fetched if the cache has it not. The lab's own stays, because machines may run it.
pub(crate) fn ensure_newer(kernel: &Kernel, progress: &Progress) -> Result<BootFiles> {
    let name = newer_folder(kernel);
    let dir = artifact(kernel, &name).ensure(progress, |dir| build(kernel, dir, progress))?;
    Ok(files(&dir))
}

fn newer_folder(kernel: &Kernel) -> String {
    format!("{}-newer", folder(kernel))
}

fn files(dir: &Path) -> BootFiles {
    BootFiles {
        kernel: dir.join("vmlinuz"),
        initramfs: dir.join("initramfs"),
        modules: Some(dir.join("modules.ext4")),
    }
}

fn build(kernel: &Kernel, dir: &Path, progress: &Progress) -> Result<()> {
    host::require(&[host::TO_BUILD], progress)?;
    progress.say(&format!("making kernel {}", kernel.name));
    let scratch = dir.join("scratch");
    fs::create_dir_all(&scratch)?;
    let (suite, version) = find(kernel, &scratch, progress)?;
    let mut packages = Vec::new();
    // Newer releases split what linux-image held.
    for part in ["linux-image-", "linux-binary-", "linux-modules-"] {
        let name = format!("{part}{version}");
        if suite.names(&name)?.contains(&name) {
            packages.push(name);
        }
    }
    packages.push("busybox-static".to_owned());
    let tree = scratch.join("tree");
    suite.unpack(&packages, &tree, progress)?;

    let base = module_base(&tree, &version)?;
    let release = base.join("lib/modules").join(&version);
    // The second is the place of newer releases.
    let places = [tree.join(format!("boot/vmlinuz-{version}")), release.join("vmlinuz")];
    match places.iter().find(|place| place.is_file()) {
        Some(vmlinuz) => fs::rename(vmlinuz, dir.join("vmlinuz"))?,
        None => bail!("the packages {} hold no vmlinuz", packages.join(", ")),
    }
    for unused in modules::UNUSED {
        let folder = release.join(unused);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
    }
    // Links to headers that are not there.
    for link in ["build", "source"] {
        let _ = fs::remove_file(release.join(link));
    }
    progress.say("  making the initial root and the image of modules");
    tool::capture(tool::command("depmod").arg("-b").arg(&base).arg(&version))?;
    let initramfs = initramfs(Some(&release), &busybox(&tree)?)?;
    fs::write(dir.join("initramfs"), initramfs)?;
    make_image(&base.join("lib/modules"), &dir.join("modules.ext4"), 1, progress)?;
    fs::write(dir.join("version"), format!("{version}\n"))?;
    fs::remove_dir_all(&scratch)?;
    progress.say(&format!("  kernel {} is {version}", kernel.name));
    Ok(())
}

/// The first suite that has the kernel's series, and the version in it.
fn find(kernel: &Kernel, scratch: &Path, progress: &Progress) -> Result<(Suite, String)> {
    let mut tried = Vec::new();
    for name in kernel.suites {
        match Suite::open_for(kernel.arch, name, scratch, progress) {
            Ok(suite) => match newest(&suite, kernel)? {
                Some(version) => return Ok((suite, version)),
                None => tried.push(format!("{name} no longer has that kernel")),
            },
            Err(error) => tried.push(format!("{name}: {error:#}")),
        }
    }
    bail!("no Debian package of Linux {} was found: {}", kernel.series, tried.join("; "))
}

fn newest(suite: &Suite, kernel: &Kernel) -> Result<Option<String>> {
    Ok(apt::newest_kernel(&suite.names("linux-image-")?, kernel.series, kernel.arch))
}

/// The folder that `depmod -b` wants: the one with `lib/modules/VERSION` in it.
fn module_base(tree: &Path, version: &str) -> Result<PathBuf> {
    for base in [tree.to_owned(), tree.join("usr")] {
        if base.join("lib/modules").join(version).is_dir() {
            return Ok(base);
        }
    }
    bail!("the kernel's packages hold no modules for {version}")
}

/// The static busybox in an unpacked package.
pub(crate) fn busybox(tree: &Path) -> Result<PathBuf> {
    for place in ["bin/busybox", "usr/bin/busybox"] {
        let file = tree.join(place);
        if file.is_file() {
            return Ok(file);
        }
    }
    bail!("the package busybox-static holds no busybox")
}

/// The initial root: busybox, the script, and the early modules of a release that has modules.
pub(crate) fn initramfs(release: Option<&Path>, busybox: &Path) -> Result<Vec<u8>> {
    let mut cpio = Cpio::default();
    for folder in ["bin", "dev", "proc", "sys", "new", "modules"] {
        cpio.folder(folder)?;
    }
    cpio.device("dev/console", 5, 1)?;
    cpio.file("bin/busybox", 0o755, &fs::read(busybox)?)?;
    cpio.file("init", 0o755, EARLY_INIT.as_bytes())?;
    if let Some(release) = release {
        let dep = fs::read_to_string(release.join("modules.dep"))?;
        for (index, path) in modules::load_order(&dep, modules::EARLY).iter().enumerate() {
            // Numbered, so that the shell's order of names is the order to load in.
            let name = format!("modules/{index:02}-{}.ko", modules::name(path));
            cpio.file(&name, 0o644, &decompress(&release.join(path))?)?;
        }
    }
    Ok(cpio.finish()?)
}

/// A module's plain content: not every busybox reads every compression.
fn decompress(file: &Path) -> Result<Vec<u8>> {
    let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let program = match extension {
        "xz" => "xz",
        "zst" => "zstd",
        "gz" => "gzip",
        _ => {
            return fs::read(file)
                .with_context(|| format!("cannot read the module {}", file.display()));
        }
    };
    tool::capture(tool::command(program).arg("-dc").arg(file))
        .with_context(|| format!("cannot unpack the module {}", file.display()))
}
