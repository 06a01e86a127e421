//! The packages of the command, made by dpkg's and rpm's own tools from `package.metadata.deb` of the
//! command's Cargo.toml, in the form of cargo-deb.

mod rpm;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde::Deserialize;

use crate::tool;

/// What dpkg knows as a maintainer script, of which those that are there are taken.
const SCRIPTS: &[&str] = &["preinst", "postinst", "prerm", "postrm"];
/// Where cargo puts what a list of assets names, wherever that is.
const BUILT: &str = "target/release/";

/// What a package is made of.
#[derive(Debug)]
pub struct Recipe<'a> {
    /// The folder of the crate.
    pub krate: &'a Path,
    /// Its version: the workspace's.
    pub version: &'a str,
    /// The program.
    pub program: &'a Path,
    /// What `verbgate pages` has written.
    pub pages: &'a Path,
    /// How the package is compressed.
    pub compression: Compression,
}

/// How a package is compressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Compression {
    /// As Debian's own packages.
    Xz,
    /// Not at all, for who only tries it.
    None,
}

impl Compression {
    fn option(self) -> &'static str {
        match self {
            Self::Xz => "-Zxz",
            Self::None => "-Znone",
        }
    }
}

#[derive(Debug, Deserialize)]
struct Manifest {
    package: Package,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    description: String,
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    deb: Deb,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Deb {
    maintainer: String,
    copyright: String,
    license_file: (PathBuf, String),
    extended_description: String,
    section: String,
    priority: String,
    depends: String,
    recommends: String,
    maintainer_scripts: PathBuf,
    assets: Vec<(String, String, String)>,
}

impl Recipe<'_> {
    /// Makes the Debian package in a folder, and gives its path.
    ///
    /// # Errors
    /// A file of it is missing, or one of dpkg's tools, or what that says.
    pub fn build(&self, into: &Path) -> Result<PathBuf> {
        let scratch = tempfile::tempdir()?;
        let tree = scratch.path().join("tree");
        let Package { name, description, metadata } = self.package()?;
        let deb = metadata.deb;
        self.fill(&tree, &name, &deb)?;

        let control = tree.join("DEBIAN");
        fs::create_dir(&control)?;
        for script in SCRIPTS {
            let source = self.krate.join(&deb.maintainer_scripts).join(script);
            if source.exists() {
                copy(&source, &control.join(script), 0o755)?;
            }
        }
        let architecture = tool::capture_text(tool::command("dpkg").arg("--print-architecture"))?;
        let architecture = architecture.trim();
        let depends = deb.depends.replace("$auto", &libraries(self.program, scratch.path())?);
        let extended: Vec<String> =
            deb.extended_description.lines().map(|line| format!(" {}", line.trim())).collect();
        let fields = [
            ("Package", name.as_str()),
            ("Version", self.version),
            ("Architecture", architecture),
            ("Maintainer", &deb.maintainer),
            ("Installed-Size", &kibibytes(&tree)?.to_string()),
            ("Depends", &depends),
            ("Recommends", &deb.recommends),
            ("Section", &deb.section),
            ("Priority", &deb.priority),
            ("Description", &format!("{description}\n{}", extended.join("\n"))),
        ];
        let lines = fields.map(|(name, value)| format!("{name}: {value}\n"));
        fs::write(control.join("control"), lines.concat())?;

        let file = into.join(format!("{name}_{}_{architecture}.deb", self.version));
        let mut build = tool::command("dpkg-deb");
        build
            .args(["--root-owner-group", self.compression.option(), "--build"])
            .arg(&tree)
            .arg(&file);
        tool::capture(&mut build)?;
        Ok(file)
    }

    /// What the manifest says of the package.
    fn package(&self) -> Result<Package> {
        let text = fs::read_to_string(self.krate.join("Cargo.toml"))?;
        Ok(toml::from_str::<Manifest>(&text)?.package)
    }

    /// Makes the tree of the package's files.
    fn fill(&self, tree: &Path, name: &str, deb: &Deb) -> Result<()> {
        for (source, target, mode) in &deb.assets {
            self.place(source, tree, target, mode)
                .with_context(|| format!("the package's file {source}"))?;
        }
        let documents = tree.join("usr/share/doc").join(name);
        fs::create_dir_all(&documents)?;
        let license = fs::read_to_string(self.krate.join(&deb.license_file.0))?;
        let text = format!("Copyright: {}\n\n{license}", deb.copyright);
        Ok(fs::write(documents.join("copyright"), text)?)
    }

    /// Where a source of the list is; a `*` in its name stands for what is there.
    fn sources(&self, source: &str) -> Result<Vec<PathBuf>> {
        let path = match source.strip_prefix(BUILT) {
            Some("verbgate") => self.program.to_owned(),
            Some(built) => match built.strip_prefix("pages/") {
                Some(page) => self.pages.join(page),
                None => bail!("the file is not among the built files: the program and pages/"),
            },
            None => self.krate.join(source),
        };
        let name =
            path.file_name().context("the path has no file name")?.to_string_lossy().into_owned();
        let Some((begin, end)) = name.split_once('*') else { return Ok(vec![path]) };
        let dir = path.parent().context("the path has no folder")?;
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(begin) && name.ends_with(end) {
                found.push(entry.path());
            }
        }
        if found.is_empty() {
            bail!("{} is missing", path.display());
        }
        Ok(found)
    }

    fn place(&self, source: &str, tree: &Path, target: &str, mode: &str) -> Result<()> {
        let mode = u32::from_str_radix(mode, 8)?;
        for from in self.sources(source)? {
            let mut to = tree.join(target);
            if target.ends_with('/') {
                to.push(from.file_name().context("the path has no file name")?);
            }
            fs::create_dir_all(to.parent().context("the path has no folder")?)?;
            if from.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
                continue;
            }
            copy(&from, &to, mode)?;
            if target.starts_with("usr/share/man/") {
                // Without the time and the name, the same page is the same file.
                tool::capture(tool::command("gzip").arg("-9n").arg(&to))?;
            }
        }
        Ok(())
    }
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// The packages of the libraries that a program loads, with their versions.
fn libraries(program: &Path, scratch: &Path) -> Result<String> {
    // What dpkg-shlibdeps wants to be run beside.
    fs::create_dir_all(scratch.join("debian"))?;
    fs::write(scratch.join("debian/control"), "Source: any\n\nPackage: any\nArchitecture: any\n")?;
    let mut command = tool::command("dpkg-shlibdeps");
    command.args(["-O", "-e"]).arg(std::path::absolute(program)?).current_dir(scratch);
    let text = tool::capture_text(&mut command).context(
        "cannot tell the program's libraries (dpkg-shlibdeps is in the package dpkg-dev)",
    )?;
    let depends = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(depends.context("dpkg-shlibdeps names no library")?.to_owned())
}

/// What a tree takes when it is installed, by the rule of deb-substvars(5).
fn kibibytes(tree: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(tree)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        total += 1;
        if meta.is_dir() {
            total += kibibytes(&entry.path())?;
        } else if meta.is_file() {
            total += meta.len().div_ceil(1024).saturating_sub(1);
        }
    }
    Ok(total)
}
