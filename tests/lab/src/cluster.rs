//! The programs of a Kubernetes cluster, built from the newest source package of a distribution that has all of them.
//!
//! Debian's later packages hold the source of `kubectl` alone.

use std::fs;
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
use crate::tool;

/// Counts changes of what is made here.
const REVISION: u32 = 1;
const SUITE: &str = "bookworm";
/// The source, what the compiler keeps while it runs, and the programs.
const SPACE_MIB: u64 = 3500;
const PACKAGE: &str = "kubernetes";
const VERSION: &str = "1.20.2";
const STORE: &str = "etcd-server";
/// One program that is every other, by the name by which it is called.
const MAIN: &str = include_str!("../guest/cluster.go");
/// A library that the source holds in a version which crashes when built by Debian's Go, and the package with a newer one.
const NEWER: (&str, &str) =
    ("github.com/modern-go/reflect2", "golang-github-modern-go-reflect2-dev");
/// The file that needs descriptions of the API which the package's source does not hold.
const SERVER: &str = "cmd/kube-apiserver/app/server.go";
/// Lines with these go: the server then describes its API to nobody.
const UNDESCRIBED: &[&str] = &["generatedopenapi", "OpenAPIConfig.Info.Title"];
/// The servers' authentication adds to what describes the API: it gets an empty one.
const INSTEAD: &[(&str, &str)] = &[
    (" genericConfig.OpenAPIConfig,", " new(openapicommon.Config),"),
    (
        "\topenapinamer \"k8s.io/apiserver/pkg/endpoints/openapi\"",
        "\topenapicommon \"k8s.io/kube-openapi/pkg/common\"",
    ),
];
/// These imports are of use for those lines alone.
const UNUSED: &[&str] = &["\textensionsapiserver \"", "\taggregatorscheme \""];

/// A cluster's programs in the cache. While this lives, the cache is not removed.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    _use: cache::Lock,
}

impl Cluster {
    /// The programs; built if the cache has them not, which takes minutes.
    ///
    /// # Errors
    /// Without Go, without a mirror, or where the source is another than is known here.
    pub fn of(progress: &Progress) -> Result<Self> {
        let artifact = Artifact {
            name: "cluster",
            recipe: format!("{REVISION} {SUITE} {VERSION} {MAIN}"),
            space_mib: SPACE_MIB,
        };
        let held = cache::lock_for_use(progress)?;
        let dir = artifact.ensure(progress, |dir| build(dir, progress))?;
        Ok(Self { dir, _use: held })
    }

    /// The folder with `etcd` and `allinone`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn build(dir: &Path, progress: &Progress) -> Result<()> {
    host::require(&[host::TO_BUILD], progress)?;
    host::require_program("go", "golang-go", progress)?;
    progress.say(&format!("building Kubernetes {VERSION}, once: some minutes"));
    let scratch = dir.join("scratch");
    let tree = scratch.join("go/src/k8s.io/kubernetes");
    fs::create_dir_all(&tree)?;
    let suite = Suite::open(SUITE, &scratch, progress)?;
    let (library, package) = NEWER;
    let packages = scratch.join("packages");
    suite.unpack(&[STORE.to_owned(), package.to_owned()], &packages, progress)?;
    fs::copy(packages.join("usr/bin/etcd"), dir.join("etcd"))?;
    let tarball = suite.source(PACKAGE, progress)?;
    let mut tar = tool::command("tar");
    tar.arg("-xf").arg(&tarball).arg("-C").arg(&tree).arg("--strip-components=1");
    tool::run_logged(&mut tar, "unpacking Kubernetes", &scratch.join("tar.log"), progress)?;
    let vendored = tree.join("vendor").join(library);
    fs::remove_dir_all(&vendored).with_context(|| format!("{PACKAGE} has no {library}"))?;
    fs::rename(packages.join("usr/share/gocode/src").join(library), &vendored)?;
    let server = tree.join(SERVER);
    let text = fs::read_to_string(&server).with_context(|| format!("{PACKAGE} has no {SERVER}"))?;
    fs::write(&server, undescribed(&text)?)?;
    let main = tree.join("cmd/allinone");
    fs::create_dir_all(&main)?;
    fs::write(main.join("main.go"), MAIN)?;
    let mut go = tool::command("go");
    let version = "k8s.io/kubernetes/vendor/k8s.io/component-base/version";
    let named = format!(
        "-s -w -X {version}.gitVersion=v{VERSION} -X {version}.gitMajor=1 -X {version}.gitMinor=20"
    );
    go.args(["build", "-tags", "providerless dockerless", "-ldflags", &named, "-o"]);
    go.arg(dir.join("allinone")).arg("k8s.io/kubernetes/cmd/allinone").current_dir(&tree);
    // Nothing is fetched: the package has what it needs of others.
    go.env("GO111MODULE", "off").env("GOPATH", scratch.join("go")).env("CGO_ENABLED", "0");
    go.env("GOCACHE", scratch.join("built"));
    tool::run_logged(&mut go, "building Kubernetes", &scratch.join("go.log"), progress)?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// The server's source without descriptions of the API.
fn undescribed(text: &str) -> Result<String> {
    let replaced = INSTEAD.iter().map(|(old, _)| old);
    for part in UNDESCRIBED.iter().chain(UNUSED).chain(replaced) {
        if !text.contains(part) {
            bail!("{SERVER} of {PACKAGE} is not that of {VERSION}: {part:?} is missing");
        }
    }
    let kept = text.lines().filter(|line| !UNDESCRIBED.iter().any(|part| line.contains(part)));
    let kept = kept.map(|line| match UNUSED.iter().find(|unused| line.starts_with(**unused)) {
        // What the package does when it is loaded stays.
        Some(unused) => format!("\t_ \"{}\n", line.strip_prefix(unused).unwrap_or_default()),
        None => format!("{line}\n"),
    });
    let text = kept.collect::<String>();
    Ok(INSTEAD.iter().fold(text, |text, (old, new)| text.replace(old, new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_describes_the_api_goes() {
        let text = "import (\n\textensionsapiserver \"k/pkg/apiserver\"\n\taggregatorscheme \"k/scheme\"\n\
                    \topenapinamer \"k8s.io/apiserver/pkg/endpoints/openapi\"\n\tgeneratedopenapi \"k/gen\"\n)\n\
                    a(x, genericConfig.OpenAPIConfig, y)\nc.OpenAPIConfig.Info.Title = \"K\"\nb()\n";
        let wanted = "import (\n\t_ \"k/pkg/apiserver\"\n\t_ \"k/scheme\"\n\
                      \topenapicommon \"k8s.io/kube-openapi/pkg/common\"\n)\n\
                      a(x, new(openapicommon.Config), y)\nb()\n";
        assert_eq!(undescribed(text).unwrap(), wanted);
        let error = undescribed(wanted).unwrap_err().to_string();
        assert!(error.contains("generatedopenapi"), "{error}");
    }
}
