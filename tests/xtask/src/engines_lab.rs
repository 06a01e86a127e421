//! `cargo xtask engines --lab KERNEL`: real RDMA between containers of Docker and between pods of containerd,
//! in the lab's machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::AppArmor;
use verbgate_lab::Arch;
use verbgate_lab::Engines;
use verbgate_lab::Kernel;
use verbgate_lab::Lab;
use verbgate_lab::Limit;
use verbgate_lab::Progress;
use verbgate_lab::RunSpec;
use verbgate_lab::Vmm;

use crate::guestbin;
use crate::guestbin::Linking;
use crate::guestbin::Profile;
use crate::host::target_directory;

/// What runs in the machine: every exchange, and the requests of a kubelet.
const SCRIPTS: [(&str, &str); 2] =
    [("lab.sh", include_str!("../engines/lab.sh")), ("cri.py", include_str!("../engines/cri.py"))];
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
const CASES: [&str; 2] = ["docker", "cri"];
/// The suite of Docker 20.10 and containerd 1.6.
const WITHOUT_CDI: &str = "bookworm";
/// From boot to power-off, under emulation.
const LIMIT: Limit = Limit::Whole(Duration::from_secs(15 * 60));
/// Two engines, and their containers' files.
const MEMORY_MIB: u32 = 2048;

/// Runs the cases of one engine, or of all.
pub(crate) fn run(kernel: &str, word: Option<&str>) -> Result<ExitCode> {
    let cases: Vec<&str> =
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
    let progress = Progress::stderr();
    // Of the same suite, so that the userland's libraries fit.
    let engines = Engines::of(userland.name, &progress)?;
    let built = guestbin::build(Arch::Amd64, Linking::Static, Profile::Quick, &["verbgate"])?;
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
    copy(&AppArmor::of(userland.name, &progress)?.parser()?, &bin)?;
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
