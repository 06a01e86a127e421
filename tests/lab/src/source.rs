//! A kernel's source, as the distribution packages it: what of it declares the RDMA interfaces.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::apt::Suite;
use crate::cache;
use crate::cache::Artifact;
use crate::host;
use crate::progress::Progress;
use crate::recipe::KERNELS;
use crate::tool;

const REVISION: u32 = 1;
/// The package, its tarball, and what is unpacked of it.
const SPACE_MIB: u64 = 800;
/// Suites that may have a series that the lab does not boot, likeliest first.
const SUITES: &[&str] = &[
    "sid",
    "trixie-backports",
    "forky",
    "experimental",
    "trixie",
    "bookworm-backports",
    "bookworm",
];
/// What is unpacked: the rest of the kernel is a gigabyte.
const PARTS: &[&str] = &[
    "Makefile",
    "include",
    "drivers/infiniband",
    "arch/x86/entry/syscalls",
    "arch/arm64/tools",
    "scripts",
];

/// The source of a series, if it is in the cache.
pub fn cached_source(series: &str) -> Result<Option<PathBuf>> {
    let name = folder(series);
    Ok(artifact(series, &name).existing(&cache::root()?))
}

/// The source of a series; fetched if the cache has it not.
///
/// # Errors
///
/// The name is no series, no suite has the series, or the package cannot be fetched.
pub fn fetch_source(series: &str, progress: &Progress) -> Result<PathBuf> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if series.split('.').count() != 2 || !series.split('.').all(is_number) {
        bail!("{series:?} is no series of kernels: write two numbers, such as 6.12");
    }
    let name = folder(series);
    artifact(series, &name).ensure(progress, |dir| build(series, dir, progress))
}

fn folder(series: &str) -> String {
    format!("source-{series}")
}

fn artifact<'a>(series: &str, name: &'a str) -> Artifact<'a> {
    Artifact { name, recipe: format!("{REVISION} {series} {PARTS:?}"), space_mib: SPACE_MIB }
}

fn build(series: &str, dir: &Path, progress: &Progress) -> Result<()> {
    host::require(&[host::TO_BUILD], progress)?;
    progress.say(&format!("fetching the source of Linux {series}: about 150 MB"));
    let scratch = dir.join("scratch");
    std::fs::create_dir_all(&scratch)?;
    let package = format!("linux-source-{series}");
    let known = KERNELS.iter().find(|kernel| kernel.series == series);
    let suite = find(known.map_or(SUITES, |kernel| kernel.suites), &package, &scratch, progress)?;
    let tree = scratch.join("tree");
    suite.unpack(std::slice::from_ref(&package), &tree, progress)?;
    progress.say("  unpacking the source");
    let tarball = tree.join("usr/src").join(format!("{package}.tar.xz"));
    let mut tar = tool::command("tar");
    tar.arg("-xf").arg(&tarball).arg("-C").arg(dir).arg("--strip-components=1");
    tar.args(PARTS.iter().map(|part| format!("{package}/{part}")));
    tool::run_logged(&mut tar, "unpacking the source", &scratch.join("tar.log"), progress)?;
    std::fs::remove_dir_all(&scratch)?;
    Ok(())
}

/// The first of the suites that has a package.
pub(crate) fn find(
    suites: &[&str],
    package: &str,
    scratch: &Path,
    progress: &Progress,
) -> Result<Suite> {
    let mut unreachable = Vec::new();
    for name in suites {
        // Not every mirror has every suite.
        let suite = match Suite::open(name, scratch, progress) {
            Ok(suite) => suite,
            Err(error) => {
                unreachable.push(error.context(format!("cannot look for {package} in {name}")));
                continue;
            }
        };
        if suite.names(package)?.iter().any(|n| n == package) {
            return Ok(suite);
        }
    }
    match unreachable.pop() {
        Some(error) => Err(error).with_context(|| none(suites, package)),
        None => bail!("{}", none(suites, package)),
    }
}

fn none(suites: &[&str], package: &str) -> String {
    format!("none of {} has the package {package}", suites.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_series_is_refused_before_anything_is_fetched() {
        for name in ["", "6", "6.", "6.1.2", "../6.1", "v6.1"] {
            let error = fetch_source(name, &Progress::stderr()).unwrap_err().to_string();
            assert!(error.contains("such as 6.12"), "{name}: {error}");
        }
    }
}
