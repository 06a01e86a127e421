//! The parts of the lab, as data: kernels, userlands, and which goes with which.

use anyhow::Result;
use anyhow::bail;

/// How a kernel is run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Vmm {
    /// A distribution kernel under QEMU, in software emulation.
    Qemu,
    /// User-Mode Linux, built from the distribution's source.
    Uml,
}

/// The processor of a kernel and of a userland.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arch {
    /// x86-64: what the lab itself runs on.
    Amd64,
    /// AArch64, emulated.
    Arm64,
}

impl Arch {
    /// What Debian calls it.
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// A kernel that the lab can boot. One of [`KERNELS`].
#[derive(Debug, Eq, PartialEq)]
pub struct Kernel {
    /// What people type: `6.12`.
    pub name: &'static str,
    /// The release series that the package must be of.
    pub series: &'static str,
    /// The suites to look in, the first that has the series wins.
    pub suites: &'static [&'static str],
    /// How it is run.
    pub vmm: Vmm,
    /// The processor it runs on.
    pub arch: Arch,
    /// The name of the userland that a run gets when it asks for none.
    pub userland: &'static str,
    /// What is fetched for it, about, for people.
    pub megabytes: u32,
}

/// A userland that the lab can boot into. One of [`USERLANDS`].
#[derive(Debug, Eq, PartialEq)]
pub struct Userland {
    /// What people type: `trixie`.
    pub name: &'static str,
    /// The suite it comes from.
    pub suite: &'static str,
    /// The processor of its programs.
    pub arch: Arch,
    /// What it holds beyond what every userland holds.
    pub more: &'static [&'static str],
    /// The version of rdma-core in it, for people.
    pub rdma_core: &'static str,
    /// What is fetched for it, about, for people.
    pub megabytes: u32,
}

/// Every kernel, with the userland it is paired with by default: what a distribution ships together.
#[rustfmt::skip]
pub static KERNELS: &[Kernel] = &[
    kernel("6.1",     "6.1",  &["bookworm"],                     Vmm::Qemu, "bookworm", 85),
    kernel("6.12",    "6.12", &["trixie", "bookworm-backports"], Vmm::Qemu, "trixie",   125),
    kernel("7.2",     "7.2",  &["sid", "forky"],                 Vmm::Qemu, "sid",      140),
    kernel("uml-7.2", "7.2",  &["sid", "forky"],                 Vmm::Uml,  "sid",      180),
    Kernel { arch: Arch::Arm64, ..kernel("arm64-6.12", "6.12", &["trixie"], Vmm::Qemu, "arm64-trixie", 110) },
];

/// Every userland.
#[rustfmt::skip]
pub static USERLANDS: &[Userland] = &[
    Userland { name: "bookworm", suite: "bookworm", arch: Arch::Amd64, more: &[], rdma_core: "44", megabytes: 120 },
    Userland { name: "trixie",   suite: "trixie",   arch: Arch::Amd64, more: &[], rdma_core: "56", megabytes: 145 },
    Userland { name: "sid",      suite: "sid",      arch: Arch::Amd64, more: &[], rdma_core: "65", megabytes: 155 },
    Userland { name: "trixie-clients", suite: "trixie", arch: Arch::Amd64, more: CLIENTS, rdma_core: "56", megabytes: 300 },
    Userland { name: "arm64-trixie", suite: "trixie", arch: Arch::Arm64, more: &[], rdma_core: "56", megabytes: 145 },
];

const fn kernel(
    name: &'static str,
    series: &'static str,
    suites: &'static [&'static str],
    vmm: Vmm,
    userland: &'static str,
    megabytes: u32,
) -> Kernel {
    Kernel { name, series, suites, vmm, arch: Arch::Amd64, userland, megabytes }
}

/// What a userland holds beyond the distribution's essential packages.
pub(crate) const PACKAGES: &[&str] = &[
    "rdma-core",
    "ibverbs-utils",
    "ibverbs-providers",
    "perftest",
    "libfabric-bin",
    "rdmacm-utils",
    "infiniband-diags",
    "iproute2",
    "kmod",
    "mount",
    "util-linux",
    "procps",
    "strace",
    "python3",
    "python3-pyverbs",
    "crun",
    "runc",
    "podman",
];

/// Programs that people run over RDMA, and what their wheels need.
const CLIENTS: &[&str] = &[
    "ucx-utils",
    "openmpi-bin",
    "python3-mpi4py",
    "fio",
    "qperf",
    "libnuma1",
    "libcurl4t64",
    "python3-numpy",
];

impl Kernel {
    /// The kernel of this name; the error lists the names there are.
    pub fn find(name: &str) -> Result<&'static Kernel> {
        match KERNELS.iter().find(|k| k.name == name) {
            Some(kernel) => Ok(kernel),
            None => bail!(
                "the lab has no kernel {name:?}: use one of {}",
                names(KERNELS.iter().map(|k| k.name))
            ),
        }
    }

    /// The userland that goes with this kernel when none is named.
    pub fn default_userland(&self) -> Result<&'static Userland> {
        Userland::find(self.userland)
    }
}

impl Userland {
    /// The userland of this name; the error lists the names there are.
    pub fn find(name: &str) -> Result<&'static Userland> {
        match USERLANDS.iter().find(|u| u.name == name) {
            Some(userland) => Ok(userland),
            None => bail!(
                "the lab has no userland {name:?}: use one of {}",
                names(USERLANDS.iter().map(|u| u.name))
            ),
        }
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_its_userland() {
        for kernel in KERNELS {
            assert_eq!(kernel.default_userland().unwrap().arch, kernel.arch, "{}", kernel.name);
            assert!(!kernel.suites.is_empty(), "{}", kernel.name);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Kernel::find("5.10").unwrap_err().to_string();
        assert!(error.contains("5.10") && error.contains("6.12"), "{error}");
        let error = Userland::find("buster").unwrap_err().to_string();
        assert!(error.contains("trixie"), "{error}");
    }
}
