//! A lab: a prepared pair of kernel and userland, and runs in the pair.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;

use crate::attend::Attended;
use crate::attend::KillOnDrop;
use crate::attend::MachineDied;
use crate::attend::STATUS;
use crate::attend::attend;
use crate::cache;
use crate::driver;
use crate::driver::NoHeaders;
use crate::elapsed::seconds;
use crate::guest::RunSpec;
use crate::guest::Terminal;
use crate::host;
use crate::kernel;
use crate::kernel::BootFiles;
use crate::machine;
use crate::machine::Machine;
use crate::nic::Nics;
use crate::pace::Limit;
use crate::progress::Progress;
use crate::qemu;
use crate::qemu::Emulator;
use crate::recipe::Arch;
use crate::recipe::Kernel;
use crate::recipe::Userland;
use crate::recipe::Vmm;
use crate::tool;
use crate::uml;
use crate::uml::UmlMachine;
use crate::userland;

/// How much of the console an error quotes.
const CONSOLE_LINES: usize = 40;

/// A kernel and a userland that are ready to run.
#[derive(Debug)]
pub struct Lab {
    kernel: &'static Kernel,
    boot: BootFiles,
    root: PathBuf,
    /// A QEMU newer than the machine's own, which takes models of NICs, and three quarters of the time.
    emulator: Option<Emulator>,
    /// The folder of drivers of NICs.
    drivers: Option<PathBuf>,
    // Keeps the cache from being cleaned under us.
    _in_use: cache::Lock,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RunResult {
    /// The command's exit status as a shell gives it: 127 for not found, 128+n for signal n.
    pub status: i32,
    /// From the start to the command's start.
    pub boot: Duration,
    /// From the start to power-off.
    pub total: Duration,
}

impl Lab {
    /// Makes sure that the kernel and the userland are in the cache, which takes minutes the first
    /// time, and that the machine has what it takes to run them.
    pub fn prepare(
        kernel: &'static Kernel,
        userland: &'static Userland,
        progress: &Progress,
    ) -> Result<Lab> {
        let in_use = cache::lock_for_use(progress)?;
        if let Some(words) = Self::to_fetch(kernel, userland)? {
            progress.say(&words);
        }
        if kernel.arch != userland.arch {
            bail!("the kernel {} cannot run the userland {}", kernel.name, userland.name);
        }
        let needs = match (kernel.vmm, kernel.arch) {
            (Vmm::Uml, _) => host::TO_RUN_UML,
            (Vmm::Qemu, Arch::Amd64) => host::TO_RUN,
            (Vmm::Qemu, Arch::Arm64) => host::TO_RUN_ARM64,
        };
        host::require(&[needs], progress)?;
        // At the same time: the one waits for the network while the other unpacks.
        let (boot, root) = thread::scope(|scope| {
            let root = scope.spawn(|| userland::ensure(userland, progress));
            let boot = match kernel.vmm {
                Vmm::Qemu => kernel::ensure(kernel, progress),
                Vmm::Uml => uml::ensure(kernel, progress),
            };
            (boot, root.join())
        });
        let root = root.map_err(|_| anyhow!("making the userland {} failed", userland.name))?;
        let emulator = match kernel.arch {
            Arch::Amd64 => qemu::existing(&cache::root()?),
            Arch::Arm64 => None,
        };
        Ok(Lab { kernel, boot: boot?, root: root?, emulator, drivers: None, _in_use: in_use })
    }

    /// Makes sure that machines of this lab can have NICs: an emulator and drivers are fetched and built
    /// the first time, which takes minutes.
    ///
    /// # Errors
    /// The kernel is User-Mode Linux, or something cannot be fetched.
    pub fn prepare_nics(&mut self, progress: &Progress) -> Result<()> {
        if self.kernel.arch != Arch::Amd64 {
            bail!("{} has no NICs: models and drivers are for x86-64 only", self.kernel.name);
        }
        if self.kernel.vmm != Vmm::Qemu {
            bail!("{} has no PCI: NICs need a kernel that runs under QEMU", self.kernel.name);
        }
        if let Some(newer) = kernel::newer(self.kernel, &cache::root()?) {
            self.boot = newer;
        }
        let drivers = match self.drivers(progress) {
            Err(error) if error.root_cause().is::<NoHeaders>() => {
                progress.say(&format!("fetching a newer kernel: {:#}", error.root_cause()));
                self.boot = kernel::ensure_newer(self.kernel, progress)?;
                self.drivers(progress)?
            }
            drivers => drivers?,
        };
        self.drivers = Some(drivers);
        self.emulator = Some(qemu::ensure(progress)?);
        Ok(())
    }

    /// The folder of drivers for the kernel that this lab boots.
    fn drivers(&self, progress: &Progress) -> Result<PathBuf> {
        let boot = self.boot.kernel.parent().context("the kernel is in no folder")?;
        driver::ensure(self.kernel, boot, progress)
    }

    /// What the first run will fetch and how long that takes; nothing if all is in the cache.
    pub fn to_fetch(kernel: &Kernel, userland: &Userland) -> Result<Option<String>> {
        let cache = cache::root()?;
        let (kernel_is_ready, userland_is_ready) =
            (is_ready(kernel, &cache), userland::is_ready(userland, &cache));
        let mut parts = Vec::new();
        if !kernel_is_ready {
            parts.push(format!("Linux {} ({} MB)", kernel.name, kernel.megabytes));
        }
        if !userland_is_ready {
            parts.push(format!("the userland {} ({} MB)", userland.name, userland.megabytes));
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let long = match (kernel.vmm, kernel_is_ready) {
            (Vmm::Uml, false) => "; compiling that kernel takes about ten minutes",
            _ => "; unpacking takes about a minute, fetching what the network needs",
        };
        let cache = cache.display();
        Ok(Some(format!("to be fetched, once, into {cache}: {}{long}", parts.join(" and "))))
    }

    /// Whether both are in the cache, so that `prepare` is quick.
    pub fn is_ready(kernel: &Kernel, userland: &Userland) -> Result<bool> {
        let cache = cache::root()?;
        Ok(is_ready(kernel, &cache) && userland::is_ready(userland, &cache))
    }

    /// The kernel that this lab boots.
    pub fn kernel(&self) -> &'static Kernel {
        self.kernel
    }

    /// Boots, runs the command with its stdout and stderr written to `output` as they come, powers
    /// off.
    ///
    /// A command that fails is a result; an error is a lab that did not work: no boot, no device,
    /// the limit. It quotes the end of the console.
    ///
    /// The machine dies with the calling thread: call from one that waits for the result.
    pub fn run(&self, spec: &RunSpec, output: &mut dyn Write) -> Result<RunResult> {
        self.attended(spec, None, output)
    }

    /// Boots and runs a command that reads the lines of `input`; kills the machine when nobody can send any more, which
    /// is an error as any other end without a status.
    pub fn serve(
        &self,
        spec: &RunSpec,
        input: &Receiver<String>,
        output: &mut dyn Write,
    ) -> Result<RunResult> {
        self.attended(spec, Some(input), output)
    }

    fn attended(
        &self,
        spec: &RunSpec,
        input: Option<&Receiver<String>>,
        output: &mut dyn Write,
    ) -> Result<RunResult> {
        let run = Run::new(self, spec, Terminal::of(input))?;
        let mut command = run.command(spec)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        run.to_the_end(command, spec, input, Some(output))
    }

    /// Boots and runs the command on the caller's terminal, without a limit.
    pub fn shell(&self, spec: &RunSpec) -> Result<RunResult> {
        let mut spec = spec.clone();
        // The guest's terminal cannot ask for the size of ours.
        if let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout())
            && size.ws_row > 0
        {
            spec =
                spec.env("LINES", size.ws_row.to_string()).env("COLUMNS", size.ws_col.to_string());
        }
        let spec = &spec;
        let run = Run::new(self, spec, Terminal::Caller)?;
        let command = run.command(spec)?;
        run.to_the_end(command, spec, None, None)
    }
}

fn is_module(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "ko")
}

fn is_ready(kernel: &Kernel, cache: &Path) -> bool {
    match kernel.vmm {
        Vmm::Qemu => kernel::is_ready(kernel, cache),
        Vmm::Uml => uml::is_ready(kernel, cache),
    }
}

/// One run: its folder, and what is in it.
#[derive(Debug)]
struct Run<'a> {
    lab: &'a Lab,
    dir: tempfile::TempDir,
    control: PathBuf,
    terminal: Terminal,
    nics: Option<Nics>,
}

impl<'a> Run<'a> {
    fn new(lab: &'a Lab, spec: &RunSpec, terminal: Terminal) -> Result<Self> {
        let runs = cache::root()?.join("runs");
        fs::create_dir_all(&runs).with_context(|| format!("cannot create {}", runs.display()))?;
        remove_stale(&runs)?;
        let dir = tempfile::Builder::new()
            .prefix(&format!("{}-", std::process::id()))
            .tempdir_in(&runs)
            .with_context(|| format!("cannot create a folder in {}", runs.display()))?;
        let control = dir.path().join("control");
        fs::create_dir(&control)?;
        spec.write_control(&control, lab.kernel.vmm, terminal)?;
        let nics = match (&lab.drivers, spec.nics.as_slice()) {
            (_, []) if spec.network.is_some() => bail!("a network needs NICs"),
            (_, []) => None,
            (None, _) => bail!("the lab is not prepared for NICs"),
            (Some(drivers), nics) => {
                let modules = control.join("modules");
                fs::create_dir(&modules)?;
                for entry in fs::read_dir(drivers)? {
                    let file = entry?.path();
                    if let Some(name) = file.file_name().filter(|_| is_module(&file)) {
                        fs::copy(&file, modules.join(name))?;
                    }
                }
                let nics = (nics, spec.network.as_ref());
                Some(Nics::start(nics, lab.kernel.series, dir.path(), &control)?)
            }
        };
        Ok(Self { lab, dir, control, terminal, nics })
    }

    fn console_log(&self) -> PathBuf {
        self.dir.path().join("console.log")
    }

    fn vmm_log(&self) -> PathBuf {
        self.dir.path().join("vmm.log")
    }

    /// The machine's command. It is killed when the thread that starts it ends, however it ends.
    fn command(&self, spec: &RunSpec) -> Result<Command> {
        let mut command = tool::command("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).stdin(Stdio::inherit());
        let share = spec.shared_folder()?;
        match self.lab.kernel.vmm {
            Vmm::Qemu => {
                let machine = Machine {
                    arch: self.lab.kernel.arch,
                    boot: &self.lab.boot,
                    root: &self.lab.root,
                    control: &self.control,
                    share,
                    console_log: &self.console_log(),
                    memory_mib: spec.memory_mib,
                    cpus: spec.cpus,
                    tsc_khz: machine::host_khz(),
                    interactive: self.terminal == Terminal::Caller,
                    nics: self
                        .nics
                        .as_ref()
                        .map_or_else(Vec::new, |nics| nics.arguments(spec.memory_mib, spec.cpus)),
                };
                match &self.lab.emulator {
                    Some(emulator) => emulator.complete(&mut command),
                    None => {
                        command.arg(machine::program(self.lab.kernel.arch));
                    }
                }
                command.args(machine.arguments());
                // Where QEMU keeps the changes to the image.
                command.env("TMPDIR", self.dir.path());
            }
            Vmm::Uml => {
                let machine = UmlMachine {
                    boot: &self.lab.boot,
                    root: &self.lab.root,
                    dir: self.dir.path(),
                    control: &self.control,
                    memory_mib: spec.memory_mib,
                    reads: self.terminal != Terminal::Null,
                };
                machine.complete(&mut command);
            }
        }
        Ok(command)
    }

    fn to_the_end(
        &self,
        mut command: Command,
        spec: &RunSpec,
        input: Option<&Receiver<String>>,
        output: Option<&mut dyn Write>,
    ) -> Result<RunResult> {
        let log = fs::File::create(self.vmm_log())?;
        let (start, start_of_day) = (Instant::now(), SystemTime::now());
        command.stderr(log);
        let attended = match output {
            Some(output) => attend(command, &self.control, spec.limit, input, output)?,
            None => {
                let child = command.spawn().context("cannot start the lab's machine")?;
                KillOnDrop(child).0.wait()?;
                Attended { ended: true, elapsed: start.elapsed(), lost: Duration::ZERO }
            }
        };
        let total = start.elapsed();
        self.keep_console();
        if let Ok(failure) = fs::read_to_string(self.control.join("failure")) {
            bail!(
                "the lab's guest ({}) could not be set up: {}\n{}",
                self.lab.kernel.name,
                failure.trim(),
                self.console()
            );
        }
        if let Ok(status) = fs::read_to_string(self.control.join(STATUS)) {
            let status = status
                .trim()
                .parse()
                .with_context(|| format!("the guest reported the status {status:?}"))?;
            let ready = fs::metadata(self.control.join("ready"))
                .and_then(|m| m.modified())
                .unwrap_or(start_of_day);
            return Ok(RunResult {
                status,
                boot: ready.duration_since(start_of_day).unwrap_or_default(),
                total,
            });
        }
        let what = self.unfinished(attended, spec.limit);
        let said = fs::read(self.console_log()).unwrap_or_default();
        let error = anyhow!("{what}\n{}", self.console());
        if String::from_utf8_lossy(&said).contains(STALE_BREAKPOINT) {
            return Err(error.context(MachineDied::OfStaleCode));
        }
        Err(if attended.ended { error.context(MachineDied::OfItself) } else { error })
    }

    /// What to say of a machine that ended without a status, or was ended by its limit.
    fn unfinished(&self, attended: Attended, limit: Limit) -> String {
        let name = self.lab.kernel.name;
        let is_ready = self.control.join("ready").exists();
        let time = seconds(limit.time());
        let what = match (attended.ended, is_ready, limit) {
            (true, true, _) => return "the guest stopped while the command ran".to_owned(),
            (true, false, _) => return format!("Linux {name} stopped while it booted"),
            (false, false, _) => format!("Linux {name} did not boot in {time}"),
            (false, true, Limit::Whole(_)) => format!(
                "the command did not end in {time}: raise the timeout, or find out what the \
                 command waits for"
            ),
            (false, true, Limit::Silence(_)) => {
                format!("the command is stuck: no output for {time}")
            }
        };
        let (elapsed, lost) = (seconds(attended.elapsed), seconds(attended.lost));
        format!("{what} (after {elapsed}, of which {lost} without a processor do not count)")
    }

    /// The end of what the machine and its console said, for an error.
    fn console(&self) -> String {
        let mut text = String::new();
        for (whose, file) in
            [("QEMU or the kernel's process", self.vmm_log()), ("the console", self.console_log())]
        {
            let said = String::from_utf8_lossy(&fs::read(&file).unwrap_or_default()).into_owned();
            if !said.trim().is_empty() {
                text.push_str(&format!(
                    "--- the end of what {whose} said\n{}\n",
                    tool::tail(&said, CONSOLE_LINES)
                ));
            }
        }
        text
    }

    /// Keeps the newest console where people find it. Best effort: it is only for looking.
    fn keep_console(&self) {
        if let Ok(root) = cache::root() {
            let _ = fs::copy(self.console_log(), root.join("console.log"));
        }
    }
}

/// How the kernel puts it that it met a breakpoint which it had taken away.
const STALE_BREAKPOINT: &str = "Oops: int3";

/// Removes the folders of runs whose process is gone.
fn remove_stale(runs: &Path) -> Result<()> {
    for entry in fs::read_dir(runs)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let alive = name.split('-').next().is_some_and(|pid| Path::new("/proc").join(pid).exists());
        if !alive {
            // Another run may be removing it at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
