//! `cargo xtask engines --lab KERNEL`: real RDMA between containers of Docker, between pods of containerd, and
//! between pods of a Kubernetes cluster of one node, in the lab's machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Arch;
use verbgate_lab::Cluster;
use verbgate_lab::Engines;
use verbgate_lab::Kernel;
use verbgate_lab::Lab;
use verbgate_lab::Limit;
use verbgate_lab::Progress;
use verbgate_lab::RunSpec;
use verbgate_lab::Unpacked;
use verbgate_lab::Vmm;

use crate::guestbin;
use crate::guestbin::Profile;
use crate::host::target_directory;

/// What runs in the machine: every exchange, the requests of a kubelet, and a cluster with its user.
const SCRIPTS: [(&str, &str); 4] = [
    ("lab.sh", include_str!("../engines/lab.sh")),
    ("cri.py", include_str!("../engines/cri.py")),
    ("cluster.sh", include_str!("../../../harness/tests/containers/engines/cluster.sh")),
    ("kubernetes.py", include_str!("../engines/kubernetes.py")),
];
/// The programs of an engines' folder that the userland has not, or has in another version.
const PROGRAMS: [&str; 8] = [
    "usr/bin/docker",
    "usr/sbin/dockerd",
    "usr/sbin/docker-proxy",
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/bin/tini-static",
    "usr/sbin/runc",
];
/// containerd's configuration as Debian ships it.
const CONFIG: &str = "etc/containerd/config.toml";
/// Engines, in the order in which they run.
const CASES: [&str; 3] = ["docker", "cri", KUBERNETES];
/// The last, since containerd is without Verbgate afterwards.
const KUBERNETES: &str = "kubernetes";
/// The suite with the newest containerd that speaks with the cluster's kubelet, by the CRI's version 1alpha2.
const OLD_KUBELET: &str = "trixie";
/// Programs of the cluster: one for etcd, and one that is all others by their names.
const COMPONENTS: [&str; 4] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"];
/// The suite of Docker 20.10 and containerd 1.6.
const WITHOUT_CDI: &str = "bookworm";
/// From boot to power-off, under emulation.
const LIMIT: Limit = Limit::Whole(Duration::from_secs(60 * 60));
/// Two engines, a cluster, and their containers' files.
const MEMORY_MIB: u32 = 4096;

/// Runs the cases of one engine, or of all.
pub(crate) fn run(kernel: &str, word: Option<&str>) -> Result<ExitCode> {
    let mut cases: Vec<&str> =
        CASES.into_iter().filter(|case| word.is_none_or(|it| it == *case)).collect();
    if cases.is_empty() {
        bail!(
            "the lab has no engine {:?}: use one of {}",
            word.unwrap_or_default(),
            CASES.join(", ")
        );
    }
    let kernel = Kernel::find(kernel)?;
    if kernel.vmm == Vmm::Uml {
        bail!(
            "{}: User-Mode Linux does not run the engines; use one of QEMU's kernels",
            kernel.name
        );
    }
    let userland = kernel.default_userland()?;
    if userland.name == WITHOUT_CDI {
        bail!("{}: the engines of {WITHOUT_CDI} know no CDI devices; use 6.12 or 7.2", kernel.name);
    }
    if userland.name != OLD_KUBELET && cases.contains(&KUBERNETES) {
        if word.is_some() {
            bail!(
                "{}: the containerd of {} does not speak with the cluster's kubelet, of Kubernetes 1.20: \
                 use 6.12",
                kernel.name,
                userland.name
            );
        }
        println!(
            "skipped kubernetes: {}'s containerd does not speak with a kubelet of 1.20",
            userland.name
        );
        cases.retain(|case| *case != KUBERNETES);
    }
    let progress = Progress::stderr();
    // Of the same suite, so that the userland's libraries fit.
    let engines = Engines::of(userland.name, &progress)?;
    let built = guestbin::build(Arch::Amd64, Profile::Quick, &["verbgate"])?;
    let verbgate = built.get("verbgate").context("cargo built no verbgate")?;
    let folder = target_directory()?.join("lab-engines");
    let bin = folder.join("bin");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&bin).with_context(|| format!("cannot create {}", bin.display()))?;
    for (name, text) in SCRIPTS {
        fs::write(folder.join(name), text)?;
    }
    copy(verbgate, &bin)?;
    for program in PROGRAMS {
        copy(&engines.root().join(program), &bin)?;
    }
    copy(&engines.root().join(CONFIG), &folder)?;
    let apparmor = Unpacked::of("apparmor", userland.name, &progress)?;
    copy(&apparmor.program("apparmor_parser")?, &bin)?;
    if cases.contains(&KUBERNETES) {
        cluster(&folder.join("cluster"), &progress)?;
    }
    let lab = Lab::prepare(kernel, userland, &progress)?;
    let words = ["sh", "/lab/lab.sh", &cases.join(" ")];
    let spec = RunSpec::new(words).share(&folder).memory_mib(MEMORY_MIB).limit(LIMIT);
    let status = lab.run(&spec, &mut std::io::stdout().lock())?.status;
    if status != 0 {
        bail!(
            "the engines failed on {}, with status {status}: the output above says why",
            kernel.name
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The programs of a cluster, and a key by which the cluster's accounts are signed.
fn cluster(folder: &Path, progress: &Progress) -> Result<()> {
    fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let programs = Cluster::of(progress)?;
    for name in ["etcd", "allinone"] {
        copy(&programs.dir().join(name), folder)?;
    }
    for name in COMPONENTS {
        symlink("allinone", folder.join(name))?;
    }
    let key = Command::new("openssl").args(["genrsa", "2048"]).output();
    let key = key.context("cannot run openssl (Debian's package openssl)")?;
    if !key.status.success() {
        bail!("openssl makes no key: {}", String::from_utf8_lossy(&key.stderr));
    }
    fs::write(folder.join("account.key"), key.stdout)?;
    Ok(())
}

/// Copies a file into a folder, so that its owner may run it.
fn copy(from: &Path, folder: &Path) -> Result<()> {
    let name = from.file_name().context("a path without a name")?;
    let to = folder.join(name);
    fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_run_is_named_before_anything_is_built() {
        for (kernel, word, needle) in [
            ("6.12", Some("kata"), "docker, cri"),
            ("5.10", None, "6.12"),
            ("uml-7.2", None, "User-Mode Linux"),
            ("6.1", None, "CDI"),
            ("7.2", Some("kubernetes"), "1.20"),
        ] {
            let error = run(kernel, word).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }

    #[test]
    fn the_script_has_every_case() {
        for case in CASES {
            assert!(SCRIPTS[0].1.contains(&format!("\n{case}_case() {{")), "{case}");
        }
    }
}
