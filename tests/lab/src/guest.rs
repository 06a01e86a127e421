//! The command that the lab's guest runs, and how the guest is told.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::nic::Network;
use crate::nic::Nic;
use crate::pace::Limit;
use crate::recipe::Vmm;

const INIT: &str = include_str!("../guest/init.sh");
/// Long enough for a benchmark under emulation, short enough to notice.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
/// Where the shared folder is in the guest.
const SHARE: &str = "/lab";

/// The standard input of a guest's command, by the name in the guest's settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Terminal {
    /// Nothing.
    Null,
    /// Lines that the host sends while the command runs.
    Lines,
    /// The caller's terminal, by which the command also writes.
    Caller,
}

impl Terminal {
    pub(crate) fn of(input: Option<&Receiver<String>>) -> Self {
        if input.is_some() { Self::Lines } else { Self::Null }
    }
}

/// One command to run in a lab, and what it gets.
#[derive(Clone, Debug)]
pub struct RunSpec {
    pub(crate) argv: Vec<String>,
    pub(crate) share: Option<PathBuf>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<String>,
    pub(crate) limit: Limit,
    pub(crate) memory_mib: u32,
    pub(crate) cpus: u32,
    pub(crate) rdma: bool,
    pub(crate) nics: Vec<Nic>,
    pub(crate) network: Option<Network>,
}

impl RunSpec {
    /// A command with its arguments; found by the guest's `PATH`.
    pub fn new<I: IntoIterator<Item = S>, S: Into<String>>(argv: I) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            share: None,
            env: Vec::new(),
            cwd: None,
            limit: Limit::Whole(DEFAULT_TIMEOUT),
            memory_mib: 2048,
            cpus: 2,
            rdma: true,
            nics: Vec::new(),
            network: None,
        }
    }

    /// A script for the guest's `/bin/sh`.
    pub fn script(text: &str) -> Self {
        Self::new(["/bin/sh", "-c", text])
    }

    /// Shares a folder of the host, to read and write, at `/lab`. It is then the working folder too.
    #[must_use]
    pub fn share(mut self, folder: impl Into<PathBuf>) -> Self {
        self.share = Some(folder.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The working folder; without this it is `/lab` if a folder is shared, else `/`.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<String>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    /// How long the whole run may take, boot included; 300 s without this. Time in which the machine
    /// waits for a processor does not count.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.limit(Limit::Whole(timeout))
    }

    /// How the run is limited.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limit = limit;
        self
    }

    /// The guest's memory; 2048 MiB without this.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// The guest's CPUs; 2 without this. User-Mode Linux takes them too.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Makes no RDMA device; the command makes its own.
    #[must_use]
    pub fn without_rdma(mut self) -> Self {
        self.rdma = false;
        self
    }

    /// Plugs NICs in, each behind a bridge and on a NUMA node of its own; only where the lab was prepared
    /// for them ([`Lab::prepare_nics`](crate::Lab::prepare_nics)).
    #[must_use]
    pub fn nics(mut self, nics: &[Nic]) -> Self {
        self.nics = nics.to_vec();
        self
    }

    /// Joins the NICs, and an interface of the machine, with those of another machine.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    /// The shared folder as an absolute path that exists.
    pub(crate) fn shared_folder(&self) -> Result<Option<PathBuf>> {
        let Some(folder) = &self.share else {
            return Ok(None);
        };
        let real = fs::canonicalize(folder)
            .with_context(|| format!("cannot share {} with the guest", folder.display()))?;
        if !real.is_dir() {
            bail!("cannot share {} with the guest: the path is not a folder", real.display());
        }
        Ok(Some(real))
    }

    /// Writes what the guest reads into its control share.
    pub(crate) fn write_control(&self, control: &Path, vmm: Vmm, terminal: Terminal) -> Result<()> {
        let share = self.shared_folder()?;
        let yes = |b: bool| if b { "yes" } else { "no" };
        let cwd = match (&self.cwd, &share) {
            (Some(cwd), _) => cwd.as_str(),
            (None, Some(_)) => SHARE,
            (None, None) => "/",
        };
        let share_path =
            share.as_deref().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
        let settings = format!(
            "lab_vmm={}\nlab_rdma={}\nlab_nics={}\nlab_terminal={}\nlab_share={}\nlab_share_path={}\nlab_cwd={}\nlab_mhz={}\n",
            if vmm == Vmm::Uml { "uml" } else { "qemu" },
            yes(self.rdma),
            self.nics.len(),
            match terminal {
                Terminal::Null => "null",
                Terminal::Lines => "lines",
                Terminal::Caller => "caller",
            },
            yes(share.is_some()),
            quoted(&share_path),
            quoted(cwd),
            crate::machine::host_khz().unwrap_or(1_000_000) / 1000,
        );
        fs::write(control.join("settings.sh"), settings)?;
        fs::write(control.join("environment.sh"), self.environment()?)?;
        let argv: Vec<String> = self.argv.iter().map(|a| quoted(a)).collect();
        if argv.is_empty() {
            bail!("there is no command to run in the lab");
        }
        fs::write(control.join("command.sh"), format!("exec {}\n", argv.join(" ")))?;
        fs::write(control.join("init.sh"), INIT)?;
        Ok(())
    }

    fn environment(&self) -> Result<String> {
        let mut text = String::new();
        for (name, value) in &self.env {
            let plain = |b: u8| b == b'_' || b.is_ascii_alphanumeric();
            if name.is_empty()
                || !name.bytes().all(plain)
                || name.starts_with(|c: char| c.is_ascii_digit())
            {
                bail!("{name:?} cannot name an environment variable");
            }
            writeln!(text, "export {name}={}", quoted(value))?;
        }
        Ok(text)
    }
}

/// One word for a POSIX shell, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(spec: &RunSpec) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        spec.write_control(dir.path(), Vmm::Qemu, Terminal::Null).unwrap();
        dir
    }

    #[test]
    fn any_argument_survives_the_shell() {
        let odd = "it's \"$HOME\" `x` \\ \n*";
        let dir = control(&RunSpec::new(["printf", "%s", odd]));
        let output =
            std::process::Command::new("sh").arg(dir.path().join("command.sh")).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), odd);
    }

    #[test]
    fn the_share_is_the_working_folder() {
        let share = tempfile::tempdir().unwrap();
        let read =
            |spec: RunSpec| fs::read_to_string(control(&spec).path().join("settings.sh")).unwrap();
        assert!(read(RunSpec::new(["true"])).contains("lab_cwd='/'"));
        assert!(read(RunSpec::new(["true"]).share(share.path())).contains("lab_cwd='/lab'"));
        assert!(
            read(RunSpec::new(["true"]).share(share.path()).cwd("/tmp")).contains("lab_cwd='/tmp'")
        );
    }

    #[test]
    fn bad_specs_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let error = |spec: RunSpec| {
            format!("{:#}", spec.write_control(dir.path(), Vmm::Qemu, Terminal::Null).unwrap_err())
        };
        assert!(error(RunSpec::new(["true"]).share("/no/such")).contains("/no/such"));
        assert!(error(RunSpec::new(["true"]).env("A-B", "c")).contains("A-B"));
        assert!(error(RunSpec::new(Vec::<String>::new())).contains("no command"));
    }
}
