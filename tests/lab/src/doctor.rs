//! The lab's doctor: whether this machine can run the lab, and what to do if not.

use std::path::Path;

use crate::apt;
use crate::cache;
use crate::host;
use crate::host::Need;
use crate::lab::Lab;
use crate::machine;
use crate::recipe::KERNELS;
use crate::recipe::Vmm;

/// Enough for all kernels and userlands of the lab.
const COMFORTABLE_MIB: u64 = 12_000;

/// How a check ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Works.
    Pass,
    /// Works after something that the lab does by itself, or works worse.
    Warn,
    /// Does not work before somebody does something.
    Fail,
}

/// What one check found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// How it ended.
    pub verdict: Verdict,
    /// What was looked at, and what was found.
    pub what: String,
    /// What to do, unless it passed.
    pub remedy: Option<String>,
}

impl Finding {
    fn pass(what: impl Into<String>) -> Self {
        Self { verdict: Verdict::Pass, what: what.into(), remedy: None }
    }

    fn new(verdict: Verdict, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict, what: what.into(), remedy: Some(remedy.into()) }
    }
}

/// Looks at everything the lab needs. Changes nothing.
pub fn examine() -> Vec<Finding> {
    let mut findings = vec![architecture(), clock()];
    findings.push(programs("programs to run QEMU", host::TO_RUN));
    findings.push(programs("programs to make kernels and userlands", host::TO_BUILD));
    if !host::is_root() {
        findings
            .push(programs("programs to make userlands without root", host::TO_BUILD_UNPRIVILEGED));
    }
    findings.push(programs("programs to build User-Mode Linux", host::TO_BUILD_UML));
    findings.push(mirror());
    findings.push(space());
    findings.extend(KERNELS.iter().map(|kernel| {
        let name = format!("{} with {}", kernel.name, kernel.userland);
        match kernel.default_userland().and_then(|u| Lab::is_ready(kernel, u)) {
            Ok(true) => Finding::pass(format!("{name} is prepared")),
            Ok(false) => {
                let long = if kernel.vmm == Vmm::Uml {
                    " (it compiles a kernel: about ten minutes)"
                } else {
                    ""
                };
                Finding::new(
                    Verdict::Warn,
                    format!("{name} is not prepared"),
                    format!(
                        "the first run prepares it{long}; or: cargo xtask lab prepare --kernel {}",
                        kernel.name
                    ),
                )
            }
            Err(error) => Finding::new(Verdict::Fail, name, format!("{error:#}")),
        }
    }));
    findings
}

fn architecture() -> Finding {
    let arch = std::env::consts::ARCH;
    if arch == "x86_64" {
        Finding::pass("this machine is x86_64")
    } else {
        Finding::new(
            Verdict::Fail,
            format!("this machine is {arch}"),
            "the lab's kernels are for x86_64: use such a machine",
        )
    }
}

fn clock() -> Finding {
    match machine::host_khz() {
        Some(khz) => Finding::pass(format!("the clock rate is known ({khz} kHz)")),
        None => Finding::new(
            Verdict::Warn,
            "/proc/cpuinfo has no clock rate",
            "kernels after 6.1 may hang while they boot: retry such runs",
        ),
    }
}

fn programs(what: &str, needs: &[Need]) -> Finding {
    let mut packages: Vec<&str> = needs.iter().filter(|n| !n.is_met()).map(|n| n.package).collect();
    packages.dedup();
    if packages.is_empty() {
        return Finding::pass(format!("{what}: all there"));
    }
    let list = packages.join(" ");
    let what = format!("{what}: {list} missing");
    if host::is_root() {
        Finding::new(Verdict::Warn, what, "the lab installs them when it needs them")
    } else {
        Finding::new(
            Verdict::Fail,
            what,
            format!("as root: apt-get update && apt-get install --no-install-recommends {list}"),
        )
    }
}

fn mirror() -> Finding {
    match apt::mirror() {
        Ok(uri) => Finding::pass(format!("apt has a Debian mirror ({uri})")),
        Err(error) => Finding::new(Verdict::Fail, "no Debian mirror", format!("{error:#}")),
    }
}

fn space() -> Finding {
    let root = match cache::root() {
        Ok(root) => root,
        Err(error) => return Finding::new(Verdict::Fail, "no cache folder", format!("{error:#}")),
    };
    let existing = root.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    match cache::free_mib(existing) {
        Ok(free) if free >= COMFORTABLE_MIB => {
            Finding::pass(format!("{} has {free} MiB free", root.display()))
        }
        Ok(free) => Finding::new(
            Verdict::Warn,
            format!("{} has {free} MiB free", root.display()),
            format!(
                "preparing everything takes {COMFORTABLE_MIB} MiB: free some, or set VERBGATE_CACHE"
            ),
        ),
        Err(error) => Finding::new(
            Verdict::Fail,
            format!("cannot examine {}", root.display()),
            format!("{error:#}"),
        ),
    }
}
