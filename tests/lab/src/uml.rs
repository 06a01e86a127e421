//! User-Mode Linux: a kernel as an ordinary process, built from the distribution's source.
//! User-Mode Linux has siw beside rxe, starts in a second, and never runs two threads in
//! parallel.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use anyhow::Result;
use anyhow::bail;
use rustix::thread::CpuSet;

use crate::cache;
use crate::cache::Artifact;
use crate::host;
use crate::kernel;
use crate::kernel::BootFiles;
use crate::progress::Progress;
use crate::recipe::Kernel;
use crate::source;
use crate::tool;

const REVISION: u32 = 2;
const CONFIG: &str = include_str!("../uml.config");
/// The source, unpacked and built.
const SPACE_MIB: u64 = 4500;
/// Options whose loss would show late and far away. Kconfig drops an option without a word when
/// something it depends on is not there.
const ESSENTIAL: &[&str] = &[
    "BLK_DEV_INITRD",
    "BLK_DEV_UBD",
    "EXT4_FS",
    "HOSTFS",
    "INFINIBAND_USER_ACCESS",
    "IP_ROUTE_MULTIPATH",
    "MEMCG",
    "NET_NS",
    "NET_SCH_NETEM",
    "RDMA_RXE",
    "RDMA_SIW",
    "SECCOMP_FILTER",
    "SECURITY_LANDLOCK",
    "USER_NS",
    "VETH",
];

/// A User-Mode Linux to start.
#[derive(Debug)]
pub(crate) struct UmlMachine<'a> {
    pub(crate) boot: &'a BootFiles,
    pub(crate) root: &'a Path,
    /// For what it writes.
    pub(crate) dir: &'a Path,
    pub(crate) control: &'a Path,
    pub(crate) memory_mib: u32,
    /// Whether the guest reads what the machine's process reads.
    pub(crate) reads: bool,
}

impl UmlMachine<'_> {
    /// Adds the kernel and its arguments to a command that starts another.
    pub(crate) fn complete(&self, command: &mut Command) {
        // The kernel hands each call of the guest from one process to another, which on one processor takes a third
        // of the time that it takes between two.
        if let Some(cpu) = cpu() {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        command.arg(&self.boot.kernel).args(self.arguments());
        // Its memory is a file, best in the default place; but that may be too small to hold it.
        let shm = cache::free_mib(Path::new("/dev/shm")).unwrap_or(0);
        if shm < u64::from(self.memory_mib) {
            command.env("TMPDIR", self.dir);
        }
    }

    fn arguments(&self) -> Vec<String> {
        let output = if self.reads { "con1=fd:0,fd:1" } else { "con1=null,fd:1" };
        vec![
            format!("mem={}M", self.memory_mib),
            "ncpus=1".to_owned(),
            // A file of changes over the image, which stays as it is. Without "c" the image would be locked, and QEMU
            // would refuse it.
            format!("ubd0c={},{}", self.dir.join("root.cow").display(), self.root.display()),
            format!("initrd={}", self.boot.initramfs.display()),
            "root=/dev/ram0".to_owned(),
            format!("uml_dir={}", self.dir.join("uml").display()),
            "lab.vmm=uml".to_owned(),
            format!("lab.control={}", self.control.display()),
            "con=null".to_owned(),
            "con0=null,fd:2".to_owned(),
            output.to_owned(),
            "loglevel=4".to_owned(),
            // As in distributions' kernels. Otherwise QUERY_QP of a queue pair with a shared receive queue answers
            // what was in the kernel's memory (`ib_uverbs_query_qp`, drivers/infiniband/core/uverbs_cmd.c).
            "init_on_alloc=1".to_owned(),
            "seccomp=on".to_owned(),
        ]
    }
}

/// One of the processors that this process may use: each in turn.
fn cpu() -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    cpus.get(NEXT.fetch_add(1, Ordering::Relaxed) % cpus.len().max(1)).copied()
}

fn artifact<'a>(kernel: &Kernel, name: &'a str) -> Artifact<'a> {
    let recipe = format!("{REVISION} {} {:?}\n{CONFIG}", kernel.series, kernel.suites);
    Artifact { name, recipe, space_mib: SPACE_MIB }
}

fn initramfs_artifact() -> Artifact<'static> {
    Artifact { name: "uml-initramfs", recipe: kernel::EARLY_INIT.to_owned(), space_mib: 100 }
}

fn folder(kernel: &Kernel) -> String {
    format!("kernel-{}", kernel.name)
}

/// Whether the kernel is in the cache.
pub(crate) fn is_ready(kernel: &Kernel, root: &Path) -> bool {
    artifact(kernel, &folder(kernel)).existing(root).is_some()
        && initramfs_artifact().existing(root).is_some()
}

/// The kernel's files; built if the cache has them not, which takes about ten minutes on two CPUs.
pub(crate) fn ensure(kernel: &Kernel, progress: &Progress) -> Result<BootFiles> {
    let name = folder(kernel);
    let dir = artifact(kernel, &name).ensure(progress, |dir| build(kernel, dir, progress))?;
    // Apart from the kernel, because a change of its script must not cost ten minutes.
    let initramfs = initramfs_artifact().ensure(progress, |dir| {
        let initramfs = kernel::initramfs(None, &dir_of_busybox(&name)?)?;
        Ok(fs::write(dir.join("initramfs"), initramfs)?)
    })?;
    Ok(BootFiles {
        kernel: dir.join("linux"),
        initramfs: initramfs.join("initramfs"),
        modules: None,
    })
}

fn dir_of_busybox(name: &str) -> Result<PathBuf> {
    Ok(cache::root()?.join(name).join("busybox"))
}

fn build(kernel: &Kernel, dir: &Path, progress: &Progress) -> Result<()> {
    host::require(&[host::TO_BUILD, host::TO_BUILD_UML], progress)?;
    progress.say(&format!("making {}: about ten minutes on two CPUs, once", kernel.name));
    let scratch = dir.join("scratch");
    fs::create_dir_all(&scratch)?;
    let package = format!("linux-source-{}", kernel.series);
    let suite = source::find(kernel.suites, &package, &scratch, progress)?;
    let tree = scratch.join("tree");
    suite.unpack(&[package.clone(), "busybox-static".to_owned()], &tree, progress)?;
    fs::copy(kernel::busybox(&tree)?, dir.join("busybox"))?;

    progress.say("  unpacking the source");
    let tarball = tree.join("usr/src").join(format!("{package}.tar.xz"));
    let mut tar = tool::command("tar");
    tar.arg("-xf").arg(&tarball).arg("-C").arg(&scratch);
    tool::run_logged(&mut tar, "unpacking the source", &scratch.join("tar.log"), progress)?;
    fs::remove_dir_all(&tree)?;
    let source = scratch.join(&package);

    progress.say("  configuring");
    make(&source, &["tinyconfig"], progress)?;
    fs::write(source.join("lab.config"), CONFIG)?;
    let mut merge = tool::command("sh");
    merge
        .args(["scripts/kconfig/merge_config.sh", "-m", ".config", "lab.config"])
        .current_dir(&source);
    tool::run_logged(
        &mut merge,
        "merging the configuration",
        &scratch.join("merge.log"),
        progress,
    )?;
    make(&source, &["olddefconfig"], progress)?;
    let lost = lost_options(&fs::read_to_string(source.join(".config"))?);
    if !lost.is_empty() {
        bail!(
            "Linux {} does not take these options of tests/lab/uml.config: {}",
            kernel.series,
            lost.join(", ")
        );
    }
    patch(&source)?;
    progress.say("  compiling");
    let jobs = format!("-j{}", std::thread::available_parallelism().map_or(2, usize::from));
    make(&source, &[&jobs], progress)?;
    fs::rename(source.join("linux"), dir.join("linux"))?;
    fs::copy(source.join(".config"), dir.join("config"))?;
    fs::remove_dir_all(&scratch)?;
    Ok(())
}

/// Has seccomp tell from which instruction a call was made. Linux 7.2 tells an instruction of the kernel instead
/// (`KSTK_EIP`, arch/x86/um/asm/processor.h), and no stub could be told from its guest.
fn patch(source: &Path) -> Result<()> {
    let file = source.join("arch/x86/um/asm/processor.h");
    let text = fs::read_to_string(&file)?;
    let (wrong, right) = ("KSTK_REG(tsk, HOST_IP)", "PT_REGS_IP(task_pt_regs(tsk))");
    if !text.contains(wrong) {
        bail!("{} has changed: does seccomp see where a call was made?", file.display());
    }
    Ok(fs::write(file, text.replace(wrong, right))?)
}

/// `make ARCH=um` in the source, politely.
fn make(source: &Path, arguments: &[&str], progress: &Progress) -> Result<()> {
    let mut command = tool::command("nice");
    command.args(["-n", "10", "make", "ARCH=um", "-C"]).arg(source).args(arguments);
    tool::run_logged(
        &mut command,
        "building User-Mode Linux",
        &source.with_extension("log"),
        progress,
    )
}

/// The essential options that a finished configuration lacks.
fn lost_options(config: &str) -> Vec<&'static str> {
    let has = |option: &str| {
        config
            .lines()
            .any(|l| l.strip_prefix("CONFIG_").and_then(|l| l.strip_suffix("=y")) == Some(option))
    };
    ESSENTIAL.iter().copied().filter(|option| !has(option)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fragment_asks_for_what_is_essential() {
        assert!(lost_options(CONFIG).is_empty());
        let without = CONFIG.replace("CONFIG_RDMA_SIW=y", "# CONFIG_RDMA_SIW is not set");
        assert_eq!(lost_options(&without), ["RDMA_SIW"]);
    }

    #[test]
    fn the_image_is_not_written() {
        let boot = BootFiles {
            kernel: "/c/linux".into(),
            initramfs: "/c/initramfs".into(),
            modules: None,
        };
        let machine = UmlMachine {
            boot: &boot,
            root: Path::new("/c/root.ext4"),
            dir: Path::new("/r"),
            control: Path::new("/r/control"),
            memory_mib: 512,
            reads: false,
        };
        let line = machine.arguments().join(" ");
        assert!(line.contains("ubd0c=/r/root.cow,/c/root.ext4"), "{line}");
        assert!(
            line.contains("con1=null,fd:1") && line.contains("lab.control=/r/control"),
            "{line}"
        );
    }
}
