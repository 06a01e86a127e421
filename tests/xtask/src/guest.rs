//! Transport of our programs into a lab, where they run.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Arch;
use verbgate_lab::Kernel;
use verbgate_lab::Lab;
use verbgate_lab::Limit;
use verbgate_lab::Network;
use verbgate_lab::Nic;
use verbgate_lab::Progress;
use verbgate_lab::RunSpec;
use verbgate_lab::Userland;
use verbgate_tests::world;

use crate::guestbin;
use crate::guestbin::Profile;
use crate::host::target_directory;

/// The program of tests, as it is called in the lab.
pub(crate) const TESTS: &str = "verbgate-lab-tests";
/// What takes lines for debuggers out of a program, and the package that holds it.
const STRIP: (&str, &str) = ("strip", "binutils");
/// What a guest needs, and the packages that hold it.
const PROGRAMS: &[&str] = &["verbgate", "verbgate-guest", "verbgate-hostile", TESTS];
const PACKAGES: &[&str] = &["verbgate", "verbgate-sys", "verbgate-hostile", "verbgate-tests"];
/// Programs run from the guest's own disk, as an installed one would: the share is slow and has
/// neither owners nor capabilities.
const INSTALL: &str = r#"cp /lab/verbgate* /usr/local/bin/ && cd / && exec "$0" "$@""#;

/// How long a machine may say nothing while a case runs, which says every few seconds that it does.
const SERVING: Limit = Limit::Silence(Duration::from_secs(5 * 60));

/// A machine cannot be had: something could not be fetched or built. It says nothing of a case.
#[derive(Debug, thiserror::Error)]
#[error("a machine cannot be made")]
pub(crate) struct Missing;

/// The folder of traces.
const TRACES: &str = "traces";

/// A folder with our programs.
#[derive(Clone)]
pub(crate) struct Programs {
    folder: PathBuf,
    /// Sandboxes write traces, to this folder in ours.
    traces: Option<String>,
}

impl Programs {
    /// Builds them, optimized and static.
    pub(crate) fn build() -> Result<Self> {
        Self::built(Arch::Amd64, "lab-share", Profile::Release)
    }

    /// Those of this machine's tests. For arm64 the programs are cross-compiled, and without `verbgate fabric`.
    pub(crate) fn build_for(arch: Arch) -> Result<Self> {
        if arch == Arch::Arm64 {
            return Self::built(arch, "lab-share-arm64", Profile::Dev);
        }
        verbgate_lab::require_programs(&[STRIP], &Progress::stderr())?;
        let built = guestbin::of_tests()?;
        let programs = Self::in_folder("lab-share-tests")?;
        for name in PROGRAMS {
            let from = built.get(*name).with_context(|| format!("cargo built no {name}"))?;
            let to = programs.folder.join(name);
            // Two thirds of a file are for debuggers, and each machine copies the file.
            let stripped = Command::new(STRIP.0).arg("-o").arg(&to).arg(from).status();
            if !stripped.context("cannot run strip(1)")?.success() {
                bail!("cannot make {}: strip(1) says why above", to.display());
            }
        }
        Ok(programs)
    }

    /// Builds them sooner: for who waits to see them run.
    pub(crate) fn build_quickly() -> Result<Self> {
        Self::built(Arch::Amd64, "lab-share-quick", Profile::Quick)
    }

    fn built(arch: Arch, folder: &str, profile: Profile) -> Result<Self> {
        let built = guestbin::build(arch, profile, PACKAGES)?;
        let programs = Self::in_folder(folder)?;
        for name in PROGRAMS {
            let from = built.get(*name).with_context(|| format!("cargo built no {name}"))?;
            let to = programs.folder.join(name);
            fs::copy(from, &to)
                .with_context(|| format!("cannot copy {name} to {}", to.display()))?;
        }
        Ok(programs)
    }

    fn in_folder(folder: &str) -> Result<Self> {
        let folder = target_directory()?.join(folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self { folder, traces: None })
    }

    /// The folder of all traces.
    pub(crate) fn traces(&self) -> PathBuf {
        self.folder.join(TRACES)
    }

    /// Has sandboxes of the next boots write traces, to a folder of this name among all traces. What is
    /// in the folder stays.
    pub(crate) fn trace(&mut self, boot: &str) -> Result<()> {
        fs::create_dir_all(self.traces().join(boot))?;
        self.traces = Some(format!("{TRACES}/{boot}"));
        Ok(())
    }

    /// Where they are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// One of them, to be run on this machine.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Boots this kernel with its userland, runs one of the programs, and gives its status.
    pub(crate) fn run_in_lab(
        &self,
        kernel: &'static Kernel,
        argv: &[&str],
        limit: Limit,
        output: &mut dyn Write,
    ) -> Result<i32> {
        self.run_on_nics(kernel, &[], argv, limit, output)
    }

    /// The same with NICs instead of Soft-RoCE, if any are named.
    pub(crate) fn run_on_nics(
        &self,
        kernel: &'static Kernel,
        nics: &[Nic],
        argv: &[&str],
        limit: Limit,
        output: &mut dyn Write,
    ) -> Result<i32> {
        self.run_in(&Self::lab_for(kernel, nics)?, nics, argv, limit, output)
    }

    /// A lab with this kernel, and with what NICs take if there are any.
    pub(crate) fn lab_for(kernel: &'static Kernel, nics: &[Nic]) -> Result<Lab> {
        // bookworm's perftest cannot be told by which device to reach an address of the same machine, which
        // connections of ERDMAs are made by where the driver speaks iWARP.
        let userland = match kernel.default_userland()? {
            old if old.name == "bookworm" && nics.contains(&Nic::Erdma) => {
                Userland::find("trixie")?
            }
            own => own,
        };
        let mut lab = Lab::prepare(kernel, userland, &Progress::stderr())?;
        if !nics.is_empty() {
            lab.prepare_nics(&Progress::stderr())?;
        }
        Ok(lab)
    }

    /// Boots a machine that runs the cases which the lines of `input` name, until nobody can send any more.
    pub(crate) fn serve(
        &self,
        kernel: &'static Kernel,
        nics: &[Nic],
        input: &Receiver<String>,
        output: &mut dyn Write,
    ) -> Result<i32> {
        let lab = Self::lab_for(kernel, nics).context(Missing)?;
        let mut spec = self.spec(&[TESTS, "serve"], SERVING);
        if !nics.is_empty() {
            spec = spec.nics(nics).without_rdma();
        }
        Ok(lab.serve(&spec, input, output)?.status)
    }

    /// Boots a machine that runs one case, and goes on with a shell on this terminal.
    pub(crate) fn keep(&self, kernel: &'static Kernel, nics: &[Nic], case: &str) -> Result<i32> {
        let lab = Self::lab_for(kernel, nics)?;
        let script =
            format!("{TESTS} case {case}; echo \"{case} ended with status $?\"; exec bash -l");
        let mut spec = self.spec(&["sh", "-c", &script], SERVING);
        if !nics.is_empty() {
            spec = spec.nics(nics).without_rdma();
        }
        Ok(lab.shell(&spec)?.status)
    }

    /// What runs one of the programs in a guest with NICs, of which other machines have some, too.
    pub(crate) fn spec_on(
        &self,
        argv: &[&str],
        limit: Limit,
        nics: &[Nic],
        network: Network,
    ) -> RunSpec {
        self.spec(argv, limit).nics(nics).without_rdma().network(network)
    }

    /// The same in a lab that is prepared, for NICs if any are named.
    pub(crate) fn run_in(
        &self,
        lab: &Lab,
        nics: &[Nic],
        argv: &[&str],
        limit: Limit,
        output: &mut dyn Write,
    ) -> Result<i32> {
        let mut spec = self.spec(argv, limit);
        if !nics.is_empty() {
            spec = spec.nics(nics).without_rdma();
        }
        Ok(lab.run(&spec, output)?.status)
    }

    /// What runs one of the programs in a guest.
    fn spec(&self, argv: &[&str], limit: Limit) -> RunSpec {
        let install = ["/bin/sh", "-c", INSTALL];
        let words = install.iter().chain(argv).copied();
        let spec = RunSpec::new(words).share(&self.folder).limit(limit);
        match &self.traces {
            Some(folder) => spec.env(world::TRACES, format!("/lab/{folder}")),
            None => spec,
        }
    }
}

/// A writer that hands on whole lines.
pub(crate) struct Lines<F: FnMut(&str)> {
    rest: Vec<u8>,
    line: F,
}

impl<F: FnMut(&str)> Lines<F> {
    pub(crate) fn new(line: F) -> Self {
        Self { rest: Vec::new(), line }
    }
}

impl<F: FnMut(&str)> Write for Lines<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            (self.line)(String::from_utf8_lossy(&line).trim_end());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole() {
        let mut seen = Vec::new();
        let mut lines = Lines::new(|line: &str| seen.push(line.to_owned()));
        for part in ["a", "b\nc\r", "\n\nd"] {
            lines.write_all(part.as_bytes()).unwrap();
        }
        assert_eq!(seen, ["ab", "c", ""]);
    }
}
