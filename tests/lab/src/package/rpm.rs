//! The same package for distributions with rpm: the same files and scripts, under other names.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;

use super::Compression;
use super::Package;
use super::Recipe;
use crate::tool;

/// rpm's scripts, the Debian script that each is, and that script's arguments by the number of packages of the
/// name that there will be: "Syntax" in rpm's documentation of scriptlets.
const SCRIPTS: &[(&str, &str, &str)] = &[
    ("post", "postinst", "1) set -- configure ;; *) set -- configure older ;;"),
    ("preun", "prerm", "0) set -- remove ;; *) set -- upgrade ;;"),
    ("postun", "postrm", "0) set -- remove ;; *) set -- upgrade ;;"),
];
/// Folders that have other names than Debian's.
const FOLDERS: &[(&str, &str)] =
    &[("usr/share/zsh/vendor-completions", "usr/share/zsh/site-functions")];

impl Recipe<'_> {
    /// Makes the rpm package in a folder, and gives its path.
    ///
    /// # Errors
    /// A file of it is missing, or rpmbuild, or what that says.
    pub fn build_rpm(&self, into: &Path) -> Result<PathBuf> {
        let scratch = tempfile::tempdir()?;
        let tree = scratch.path().join("tree");
        let package = self.package()?;
        self.fill(&tree, &package.name, &package.metadata.deb)?;
        for (from, to) in FOLDERS {
            let to = tree.join(to);
            fs::create_dir_all(to.parent().context("the path has no folder")?)?;
            fs::rename(tree.join(from), to)?;
            // With nothing else in it.
            let above = tree.join(from);
            let _ = fs::remove_dir(above.parent().context("the path has no folder")?);
        }
        let spec = scratch.path().join("verbgate.spec");
        fs::write(&spec, self.spec(&package, &tree)?)?;
        let mut build = tool::command("rpmbuild");
        build.arg("-bb").arg("--quiet").arg(&spec);
        let top = scratch.path().join("top");
        let payload = match self.compression {
            Compression::Xz => "w6.xzdio",
            Compression::None => "w.ufdio",
        };
        let define = |name: &str, value: &str| format!("{name} {value}");
        for (name, value) in [
            ("_topdir", top.to_string_lossy().as_ref()),
            ("_binary_payload", payload),
            // What is packed is finished: nothing is stripped, compressed or linked by build ids.
            ("debug_package", "%{nil}"),
            ("__os_install_post", "%{nil}"),
            ("_build_id_links", "none"),
        ] {
            build.args(["--define", &define(name, value)]);
        }
        tool::capture(&mut build)
            .context("cannot make the rpm package (rpmbuild is in the package rpm)")?;
        let made = top.join("RPMS");
        let arch = fs::read_dir(&made)?.next().context("rpmbuild has made nothing")??.path();
        let file = fs::read_dir(arch)?.next().context("rpmbuild has made nothing")??.path();
        let to = into.join(file.file_name().context("the path has no file name")?);
        fs::copy(&file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(to)
    }

    fn spec(&self, package: &Package, tree: &Path) -> Result<String> {
        let deb = &package.metadata.deb;
        let recommends: Vec<String> = deb
            .recommends
            .split(',')
            // `a | b` there is `(a or b)` here; the library has another name.
            .map(|one| match one.trim().split_once(" | ") {
                Some((first, second)) => format!("({first} or {second})"),
                None => one.trim().replace("libibverbs1", "libibverbs"),
            })
            .collect();
        let mut text = format!(
            "Name: {}\nVersion: {}\nRelease: 1\nSummary: {}\nLicense: Apache-2.0\n",
            package.name, self.version, package.description
        );
        for one in recommends {
            text += &format!("Recommends: {one}\n");
        }
        text += &format!("\n%description\n{}\n", deb.extended_description);
        text += &format!("\n%install\ncp -a {}/. %{{buildroot}}/\n", tree.display());
        for (name, script, arguments) in SCRIPTS {
            let source = self.krate.join(&deb.maintainer_scripts).join(script);
            let body = fs::read_to_string(&source)
                .with_context(|| format!("cannot read {}", source.display()))?;
            // A percent sign begins a macro.
            let body = body.replace('%', "%%");
            text += &format!("\n%{name}\ncase $1 in {arguments} esac\n{body}\n");
        }
        text += "\n%files\n%defattr(-,root,root,-)\n";
        let mut files = Vec::new();
        list(tree, tree, &package.name, &mut files)?;
        files.sort();
        Ok(text + &files.concat())
    }
}

/// The lines for the files below a folder, and for the folders of the package's name and those in them: the others
/// are of the distribution.
fn list(tree: &Path, dir: &Path, name: &str, lines: &mut Vec<String>) -> Result<()> {
    let inside = dir.strip_prefix(tree)?;
    if inside.iter().any(|part| part == name) {
        lines.push(format!("%dir \"/{}\"\n", inside.display()));
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            list(tree, &path, name, lines)?;
            continue;
        }
        let file = path.strip_prefix(tree)?.display();
        let mode = meta.permissions().mode() & 0o7777;
        lines.push(match meta.is_symlink() {
            true => format!("\"/{file}\"\n"),
            false => format!("%attr({mode:o},root,root) \"/{file}\"\n"),
        });
    }
    Ok(())
}
