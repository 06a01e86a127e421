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
    /// The name of the userland that a run gets when it asks for none.
    pub userland: &'static str,
    /// What is fetched for it, about, for people.
    pub megabytes: u32,
}

/// A userland that the lab can boot into. One of [`USERLANDS`].
#[derive(Debug, Eq, PartialEq)]
pub struct Userland {
    /// What people type, and the suite it comes from: `trixie`.
    pub name: &'static str,
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
];

/// Every userland.
#[rustfmt::skip]
pub static USERLANDS: &[Userland] = &[
    Userland { name: "bookworm", rdma_core: "44", megabytes: 120 },
    Userland { name: "trixie",   rdma_core: "56", megabytes: 145 },
    Userland { name: "sid",      rdma_core: "65", megabytes: 155 },
];

const fn kernel(
    name: &'static str,
    series: &'static str,
    suites: &'static [&'static str],
    vmm: Vmm,
    userland: &'static str,
    megabytes: u32,
) -> Kernel {
    Kernel { name, series, suites, vmm, userland, megabytes }
}

/// What a userland holds beyond the distribution's essential packages.
pub(crate) const PACKAGES: &[&str] = &[
    "rdma-core",
    "ibverbs-utils",
    "ibverbs-providers",
    "perftest",
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
            kernel.default_userland().unwrap();
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
