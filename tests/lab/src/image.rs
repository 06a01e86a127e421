//! Images of containers, made of files and of a distribution's packages, without a registry and without an engine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::json;

use crate::apt;
use crate::apt::Suite;
use crate::cache;
use crate::cache::Artifact;
use crate::host;
use crate::progress::Progress;
use crate::tool;

/// Counts changes of what is made here; more than the recipe's text says.
const REVISION: u32 = 1;
const SPACE_MIB: u64 = 1500;
const LAYER: &str = "layer.tar";
/// What no container reads.
const EXCLUDED: &str = "path-exclude=/usr/share/{doc,man,locale}/*";
/// How a file of Docker's says where packages come from, and which.
const SUITE: (&str, &str) = ("debian:", "-slim");
const PACKAGES: &str = "--no-install-recommends";
/// What is built, and is not of the repository.
const BUILT: &str = "target/release/verbgate";

/// An image of an archive.
#[derive(Debug)]
pub struct Image<'a> {
    /// The name by which containers ask for the image.
    pub name: &'a str,
    /// The program and the arguments of a container that names none.
    pub command: &'a [&'a str],
}

/// Writes an archive of images with the same layers, as `docker save` writes archives: `ctr image import` and `docker
/// load` read the archive.
///
/// # Errors
/// A layer that cannot be read, a file that cannot be written.
pub fn archive(layers: &[&Path], images: &[Image<'_>], to: &Path) -> Result<()> {
    let dir = to.with_extension("parts");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut names = vec!["manifest.json".to_owned()];
    let mut sums = Vec::new();
    let mut of_layers = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        let name = format!("layer-{at}.tar");
        let sum = tool::capture_text(tool::command("sha256sum").arg(layer))?;
        sums.push(format!("sha256:{}", sum.split(' ').next().unwrap_or_default()));
        symlink(std::path::absolute(layer)?, dir.join(&name))?;
        of_layers.push(name);
    }
    let mut manifest = Vec::new();
    for (at, image) in images.iter().enumerate() {
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": {"Cmd": image.command},
            "rootfs": {"type": "layers", "diff_ids": sums},
        });
        let file = format!("config-{at}.json");
        fs::write(dir.join(&file), config.to_string())?;
        manifest.push(json!({"Config": file, "RepoTags": [image.name], "Layers": of_layers}));
        names.push(file);
    }
    names.extend(of_layers);
    fs::write(dir.join("manifest.json"), json!(manifest).to_string())?;
    // Links are followed: no layer is copied twice.
    let mut tar = tool::command("tar");
    tar.arg("-C").arg(&dir).arg("-chf").arg(to).args(&names);
    tool::capture(&mut tar)?;
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
}

/// Makes a layer of a folder.
///
/// # Errors
/// A file that cannot be read or written.
pub fn layer(root: &Path, to: &Path) -> Result<()> {
    let mut tar = tool::command("tar");
    tar.args(["--owner=0", "--group=0", "-C"]).arg(root).arg("-cf").arg(to).arg(".");
    tool::capture(&mut tar).map(drop)
}

/// A file of Docker's, of the few steps that the chart's image is made by.
#[derive(Debug, Default, Eq, PartialEq)]
struct Steps {
    suite: String,
    packages: Vec<String>,
    /// From the repository, to the image.
    copies: Vec<(String, String)>,
    /// What a link says, and its path in the image.
    links: Vec<(String, String)>,
    command: Vec<String>,
}

impl Steps {
    fn read(text: &str) -> Result<Self> {
        let text = text.replace("\\\n", " ");
        let mut steps = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let words: Vec<&str> = rest.split_whitespace().collect();
            match (word, &*words) {
                ("FROM", [base]) => {
                    let suite = base.strip_prefix(SUITE.0).and_then(|it| it.strip_suffix(SUITE.1));
                    steps.suite = suite.with_context(|| format!("FROM {base}"))?.to_owned();
                }
                ("RUN", words) if words.contains(&PACKAGES) => {
                    let after = words.iter().skip_while(|word| **word != PACKAGES).skip(1);
                    let names = after.take_while(|word| **word != "&&");
                    steps.packages = names.map(|&word| word.to_owned()).collect();
                }
                ("RUN", words) => {
                    for part in words.split(|word| *word == "&&") {
                        let ["ln", "-s", to, at] = part else { bail!("RUN {}", part.join(" ")) };
                        steps.links.push(((*to).to_owned(), (*at).to_owned()));
                    }
                }
                ("COPY", [from, to]) => {
                    steps.copies.push(((*from).to_owned(), (*to).to_owned()));
                }
                ("CMD", _) => steps.command = serde_json::from_str(rest)?,
                _ => bail!("{line}"),
            }
        }
        Ok(steps)
    }
}

/// Makes the chart's image as `docker build` makes it of this file in this repository, with another program for the one
/// that is built.
///
/// # Errors
/// Without root, without what unpacks, without a mirror, or where the file has a step that is not known here.
pub fn build(
    file: &Path,
    repository: &Path,
    program: &Path,
    name: &str,
    to: &Path,
    progress: &Progress,
) -> Result<()> {
    let steps = steps(file)?;
    let (base, _held) = base(&steps, progress)?;
    let root = to.with_extension("root");
    let _ = fs::remove_dir_all(&root);
    for (from, at) in &steps.copies {
        let from = if from == BUILT { program.to_owned() } else { repository.join(from) };
        let inside = within(&root, at)?;
        fs::copy(&from, &inside).with_context(|| format!("cannot copy {}", from.display()))?;
        fs::set_permissions(&inside, fs::Permissions::from_mode(0o755))?;
    }
    for (target, at) in &steps.links {
        symlink(target, within(&root, at)?)?;
    }
    let own = to.with_extension("layer");
    layer(&root, &own)?;
    let command: Vec<&str> = steps.command.iter().map(String::as_str).collect();
    archive(&[&base, &own], &[Image { name, command: &command }], to)?;
    fs::remove_file(&own)?;
    fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))
}

/// Installs the packages of an image into the cache, if the cache has them not: what takes minutes of [`build`].
///
/// # Errors
/// As of [`build`].
pub fn prepare(file: &Path, progress: &Progress) -> Result<()> {
    base(&steps(file)?, progress).map(drop)
}

fn steps(file: &Path) -> Result<Steps> {
    let text = fs::read_to_string(file).with_context(|| format!("no {}", file.display()))?;
    Steps::read(&text).with_context(|| format!("{}: a step that is not known", file.display()))
}

/// The layer of an image's packages, and what keeps the cache from being removed meanwhile.
fn base(steps: &Steps, progress: &Progress) -> Result<(PathBuf, cache::Lock)> {
    let artifact = Artifact {
        name: "image",
        recipe: format!("{REVISION} {} {:?}", steps.suite, steps.packages),
        space_mib: SPACE_MIB,
    };
    let held = cache::lock_for_use(progress)?;
    let dir = artifact.ensure(progress, |dir| packages(steps, dir, progress))?;
    Ok((dir.join(LAYER), held))
}

/// A path of the image, in the folder of a layer.
fn within(root: &Path, path: &str) -> Result<PathBuf> {
    let inside = root.join(path.trim_start_matches('/'));
    if let Some(dir) = inside.parent() {
        fs::create_dir_all(dir)?;
    }
    Ok(inside)
}

/// The distribution's part of an image: installed, maintainer scripts included.
fn packages(steps: &Steps, dir: &Path, progress: &Progress) -> Result<()> {
    if !host::is_root() {
        bail!("needs root, to install packages into an image");
    }
    host::require(&[host::TO_BUILD], progress)?;
    progress.say("installing packages into an image");
    let scratch = dir.join("scratch");
    fs::create_dir_all(&scratch)?;
    let suite = Suite::open(&steps.suite, &scratch, progress)?;
    let mut command = tool::command("mmdebstrap");
    command.args(["--variant=minbase", "--mode=root", "--format=tar", "--architectures=amd64"]);
    command.arg(format!("--include={}", steps.packages.join(",")));
    command.arg(format!("--keyring={}", suite.keyring.display()));
    for setting in apt::forwarded_settings()? {
        command.arg(format!("--aptopt={setting}"));
    }
    command.arg("--aptopt=Acquire::Languages \"none\";").arg(format!("--dpkgopt={EXCLUDED}"));
    command.env("TMPDIR", &scratch).arg(&steps.suite).arg(dir.join(LAYER));
    command.arg(format!("deb {} {} main", suite.uri, steps.suite));
    let log = scratch.join("mmdebstrap.log");
    tool::run_logged(&mut command, "installing packages", &log, progress)?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_the_charts_image_are_known() {
        let steps = Steps::read(include_str!("../../../harness/dist/docker/Dockerfile")).unwrap();
        assert_eq!((&*steps.suite, &*steps.command), ("bookworm", &["ibv_devinfo".to_owned()][..]));
        assert!(steps.packages.iter().any(|name| name == "perftest"), "{steps:?}");
        assert!(!steps.packages.iter().any(|name| name.contains('&')), "{steps:?}");
        assert!(steps.copies.iter().any(|(from, to)| from == BUILT && to == "/usr/bin/verbgate"));
        assert_eq!((steps.copies.len(), steps.links.len()), (3, 2), "{steps:?}");
        for unknown in ["FROM scratch", "RUN make", "ENTRYPOINT [\"/x\"]", "CMD x"] {
            assert!(Steps::read(unknown).is_err(), "{unknown}");
        }
    }
}
