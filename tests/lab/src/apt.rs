//! Debian packages through apt itself, from the machine's own mirror, without touching the
//! machine's apt state. Nothing here names a host, and nothing is taken unverified.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::host;
use crate::progress::Progress;
use crate::recipe::Arch;
use crate::tool;

/// Overrides the mirror, for machines whose apt has no Debian source.
pub(crate) const MIRROR_VARIABLE: &str = "VERBGATE_DEBIAN_MIRROR";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Settings of the machine's apt that another apt needs to reach the same mirror.
const FORWARDED: &[&str] = &[
    "Acquire::http::Proxy",
    "Acquire::https::Proxy",
    "Acquire::http::Proxy-Auto-Detect",
    "Acquire::https::CaInfo",
    "Acquire::ForceIPv4",
    "Acquire::Retries",
    "Acquire::Check-Date",
    "Acquire::Check-Valid-Until",
];
const TARGET_FORMAT: &str = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)";

/// The machine's Debian mirror.
pub(crate) fn mirror() -> Result<String> {
    if let Ok(uri) = std::env::var(MIRROR_VARIABLE)
        && !uri.is_empty()
    {
        return Ok(uri);
    }
    let known = targets(&[])?;
    if let Some(uri) = debian_uri(&known) {
        return Ok(uri);
    }
    // A fresh machine: apt has fetched nothing yet and so does not know who is behind a URI.
    match debian_uri_by_path(&targets(&["--no-release-info"])?) {
        Some(uri) => Ok(uri),
        None => bail!(
            "this machine's apt has no Debian source with the component main: add one, or set \
             {MIRROR_VARIABLE} to a mirror's URI"
        ),
    }
}

fn targets(more: &[&str]) -> Result<String> {
    tool::capture_text(
        tool::command("apt-get").arg("indextargets").args(more).args(["--format", TARGET_FORMAT]),
    )
}

/// The URI of the first target that is the distribution's own main archive.
fn debian_uri(targets: &str) -> Option<String> {
    main_targets(targets).find(|t| t.origin == "Debian").map(|t| t.uri.to_owned())
}

/// The same when the origins are unknown; a wrong guess fails at the signature, not later.
fn debian_uri_by_path(targets: &str) -> Option<String> {
    main_targets(targets)
        .find(|t| t.uri.trim_end_matches('/').ends_with("/debian"))
        .map(|t| t.uri.to_owned())
}

struct Target<'a> {
    uri: &'a str,
    origin: &'a str,
}

fn main_targets(targets: &str) -> impl Iterator<Item = Target<'_>> {
    targets.lines().filter_map(|line| {
        let mut fields = line.split('|');
        let (uri, release, component, origin) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        // Security archives hold no whole suite.
        let whole = !release.contains("-security") && !release.contains("/updates");
        (whole && component == "main").then_some(Target { uri, origin })
    })
}

/// The lines of `apt-config dump` that reaching the mirror may depend on.
pub(crate) fn forwarded_settings() -> Result<Vec<String>> {
    let dump = tool::capture_text(tool::command("apt-config").arg("dump"))?;
    Ok(select_settings(&dump))
}

fn select_settings(dump: &str) -> Vec<String> {
    dump.lines()
        .filter(|line| {
            line.split_once(' ').is_some_and(|(key, value)| {
                let wanted = |f: &&str| {
                    key == *f || key.strip_prefix(*f).is_some_and(|rest| rest.starts_with("::"))
                };
                FORWARDED.iter().any(wanted) && value != "\"\";"
            })
        })
        .map(str::to_owned)
        .collect()
}

/// One suite of the archive, with an apt state of its own in a scratch folder.
#[derive(Debug)]
pub(crate) struct Suite {
    /// The suite's name.
    pub(crate) name: String,
    /// Where it comes from.
    pub(crate) uri: String,
    /// What verifies it.
    pub(crate) keyring: PathBuf,
    arch: Arch,
    dir: PathBuf,
}

impl Suite {
    /// Fetches and verifies the suite's index into `scratch`.
    pub(crate) fn open(name: &str, scratch: &Path, progress: &Progress) -> Result<Suite> {
        Self::open_for(Arch::Amd64, name, scratch, progress)
    }

    /// The same for packages of another processor.
    pub(crate) fn open_for(
        arch: Arch,
        name: &str,
        scratch: &Path,
        progress: &Progress,
    ) -> Result<Suite> {
        let mut suite = Suite {
            name: name.to_owned(),
            uri: mirror()?,
            keyring: PathBuf::from(KEYRING),
            arch,
            dir: scratch.join(format!("apt-{name}")),
        };
        if !suite.keyring.exists() {
            suite.keyring = newest_keyring(scratch)?;
        }
        match suite.update(progress) {
            Err(error) if is_missing_key(&format!("{error:#}")) => {
                progress.say(&format!("  the keyring is too old for {name}: fetching a newer one"));
                suite.keyring = newest_keyring(scratch)?;
                suite.update(progress)?;
            }
            other => other?,
        }
        Ok(suite)
    }

    /// The names of packages that begin so.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let text = tool::capture_text(self.apt("apt-cache").args(["pkgnames", prefix]))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Downloads and verifies packages, and unpacks them all into `to`.
    pub(crate) fn unpack(&self, packages: &[String], to: &Path, progress: &Progress) -> Result<()> {
        let downloads = self.dir.join("downloads");
        fs::create_dir_all(&downloads)?;
        fs::create_dir_all(to)?;
        let what = format!("downloading {}", packages.join(", "));
        progress.say(&format!("  {what}"));
        let mut download = self.apt("apt-get");
        download.arg("download").args(packages).current_dir(&downloads);
        tool::run_logged(&mut download, &what, &self.dir.join("download.log"), progress)?;
        unpack_all(&downloads, to)
    }

    /// Downloads and verifies the source of a package; the tarball of those who wrote the programs.
    pub(crate) fn source(&self, package: &str, progress: &Progress) -> Result<PathBuf> {
        let downloads = self.dir.join("sources");
        fs::create_dir_all(&downloads)?;
        self.refresh(&["deb-src"], progress)?;
        let what = format!("downloading the source of {package}");
        progress.say(&format!("  {what}"));
        let mut download = self.apt("apt-get");
        download.args(["source", "--download-only", package]).current_dir(&downloads);
        tool::run_logged(&mut download, &what, &self.dir.join("source.log"), progress)?;
        let files = fs::read_dir(&downloads)?.collect::<Result<Vec<_>, _>>()?;
        let tarball = files.iter().map(fs::DirEntry::path).find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains(".orig.tar."))
        });
        tarball.with_context(|| format!("the source of {package} has no tarball"))
    }

    fn update(&self, progress: &Progress) -> Result<()> {
        fs::create_dir_all(self.dir.join("state/lists/partial"))?;
        fs::create_dir_all(self.dir.join("cache/archives/partial"))?;
        fs::write(self.dir.join("status"), "")?;
        self.refresh(&["deb"], progress)
    }

    /// Fetches the indices of these kinds of packages, and no others.
    fn refresh(&self, kinds: &[&str], progress: &Progress) -> Result<()> {
        let line = |kind: &&str| {
            format!(
                "{kind} [arch={} signed-by={}] {} {} main\n",
                self.arch.debian(),
                self.keyring.display(),
                self.uri,
                self.name
            )
        };
        let source: String = kinds.iter().map(line).collect();
        fs::write(self.dir.join("sources.list"), source)?;
        let what = format!("fetching the index of {}", self.name);
        tool::run_logged(
            self.apt("apt-get").arg("update"),
            &what,
            &self.dir.join("update.log"),
            progress,
        )
    }

    fn apt(&self, program: &str) -> std::process::Command {
        let mut command = tool::command(program);
        let dir = self.dir.display();
        for option in [
            format!("Dir::Etc::SourceList={dir}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            // Pins and preferences of the machine are about the machine's packages.
            "Dir::Etc::Preferences=/dev/null".to_owned(),
            "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
            format!("Dir::State={dir}/state"),
            format!("Dir::State::status={dir}/status"),
            format!("Dir::Cache={dir}/cache"),
            "Acquire::Languages=none".to_owned(),
            // The sandbox user may not enter the cache folder.
            "APT::Sandbox::User=root".to_owned(),
            format!("APT::Architecture={}", self.arch.debian()),
            format!("APT::Architectures={}", self.arch.debian()),
        ] {
            command.arg("-o").arg(option);
        }
        command.arg("-q");
        command
    }
}

fn unpack_all(downloads: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(downloads)? {
        let package = entry?.path();
        if package.extension().is_some_and(|e| e == "deb") {
            tool::capture(tool::command("dpkg-deb").arg("-x").arg(&package).arg(to))
                .with_context(|| format!("cannot unpack {}", package.display()))?;
        }
    }
    Ok(())
}

fn is_missing_key(error: &str) -> bool {
    ["NO_PUBKEY", "not signed", "Missing key", "EXPKEYSIG"].iter().any(|sign| error.contains(sign))
}

/// The keyring of the newest `debian-archive-keyring` that the machine's own, verified sources have.
fn newest_keyring(scratch: &Path) -> Result<PathBuf> {
    host::refresh_lists()?;
    let downloads = scratch.join("keyring");
    fs::create_dir_all(&downloads)?;
    let mut download = tool::command("apt-get");
    download
        .args(["-q", "-o", "APT::Sandbox::User=root", "download", "debian-archive-keyring"])
        .current_dir(&downloads);
    tool::capture(&mut download).context("cannot fetch a newer debian-archive-keyring")?;
    unpack_all(&downloads, &downloads)?;
    for name in ["debian-archive-keyring.gpg", "debian-archive-keyring.pgp"] {
        let keyring = downloads.join("usr/share/keyrings").join(name);
        if keyring.exists() {
            return Ok(keyring);
        }
    }
    bail!("the package debian-archive-keyring holds no keyring under a known name")
}

/// The newest plain kernel of a series among package names, as `6.12.107+deb13-amd64`.
pub(crate) fn newest_kernel(names: &[String], series: &str, arch: Arch) -> Option<String> {
    names
        .iter()
        .filter_map(|name| name.strip_prefix("linux-image-"))
        .filter(|version| is_plain_kernel(version, series, arch))
        .max_by_key(|version| numbers(version))
        .map(str::to_owned)
}

/// Whether this is a kernel of the series for the processor and of no other flavour (cloud, rt, unsigned).
fn is_plain_kernel(version: &str, series: &str, arch: Arch) -> bool {
    let Some(rest) = version.strip_prefix(series).and_then(|r| r.strip_prefix('.')) else {
        return false;
    };
    let Some(rest) = rest.strip_suffix(arch.debian()).and_then(|r| r.strip_suffix('-')) else {
        return false;
    };
    rest.split('-').skip(1).all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// The numbers in a version, in order: enough to tell which of two of one series is newer.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "http://third.party/deb/|stable|main|Third Party\n\
        http://mirror.example/debian-security/|bookworm-security|main|Debian\n\
        http://mirror.example/debian/|bookworm|contrib|Debian\n\
        http://mirror.example/debian/|bookworm|main|Debian\n";

    #[test]
    fn the_mirror_is_the_main_archive() {
        assert_eq!(debian_uri(TARGETS).unwrap(), "http://mirror.example/debian/");
        assert_eq!(debian_uri("http://third.party/deb/|stable|main|Third Party\n"), None);
        assert_eq!(debian_uri(""), None);
    }

    #[test]
    fn a_fresh_machine_is_judged_by_path() {
        let fresh = TARGETS.replace("|Debian", "|$(ORIGIN)");
        assert_eq!(debian_uri(&fresh), None);
        assert_eq!(debian_uri_by_path(&fresh).unwrap(), "http://mirror.example/debian/");
    }

    #[test]
    fn only_what_reaches_the_mirror_is_forwarded() {
        let dump = "Acquire \"\";\nAcquire::http::Proxy \"\";\nAcquire::http::Proxy::mirror.example \"DIRECT\";\n\
            Acquire::https::Proxy \"http://p:1\";\nAcquire::Check-Date \"false\";\nAPT::Get::AllowUnauthenticated \"1\";\n";
        assert_eq!(
            select_settings(dump),
            [
                "Acquire::http::Proxy::mirror.example \"DIRECT\";",
                "Acquire::https::Proxy \"http://p:1\";",
                "Acquire::Check-Date \"false\";"
            ]
        );
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|n| format!("linux-image-{n}")).collect()
    }

    #[test]
    fn the_newest_plain_kernel_is_chosen() {
        let trixie = names(&[
            "6.12.94+deb13-amd64",
            "6.12.107+deb13-cloud-amd64",
            "6.12.107+deb13-amd64-dbg",
            "6.12.107+deb13-rt-amd64",
            "6.12.107+deb13-amd64",
            "6.12.107+deb13-amd64-unsigned",
            "6.12.107+deb13-arm64",
            "6.12.107+deb13-arm64-16k",
            "amd64",
        ]);
        assert_eq!(newest_kernel(&trixie, "6.12", Arch::Amd64).unwrap(), "6.12.107+deb13-amd64");
        assert_eq!(newest_kernel(&trixie, "6.12", Arch::Arm64).unwrap(), "6.12.107+deb13-arm64");
        assert_eq!(newest_kernel(&trixie, "6.1", Arch::Amd64), None);
        let bookworm = names(&["6.1.0-47-amd64", "6.1.0-50-amd64", "6.1.0-50-cloud-amd64"]);
        assert_eq!(newest_kernel(&bookworm, "6.1", Arch::Amd64).unwrap(), "6.1.0-50-amd64");
    }

    #[test]
    fn a_missing_key_is_recognised() {
        assert!(is_missing_key("The following signatures couldn't be verified: NO_PUBKEY 0123"));
        assert!(!is_missing_key("Temporary failure resolving"));
    }
}
