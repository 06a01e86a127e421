//! `cargo xtask lab`: run a command, or a shell, beside a Soft-RoCE device.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use clap::Subcommand;
use verbgate_lab::Arch;
use verbgate_lab::KERNELS;
use verbgate_lab::Kernel;
use verbgate_lab::Lab;
use verbgate_lab::Network;
use verbgate_lab::Nic;
use verbgate_lab::Progress;
use verbgate_lab::RunSpec;
use verbgate_lab::Userland;
use verbgate_lab::Verdict;
use verbgate_lab::Vmm;
use verbgate_tests::said::Said;

use crate::broker;
use crate::broker::Broker;
use crate::guest::Programs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Boot, run one command, power off, and exit with the command's status.
    Run {
        #[command(flatten)]
        pair: Pair,
        #[command(flatten)]
        guest: Guest,
        /// Seconds for the whole run, boot included.
        #[arg(long, default_value_t = 300, value_name = "S")]
        timeout: u64,
        /// The command and its arguments.
        #[arg(last = true, required = true, value_name = "CMD")]
        argv: Vec<String>,
    },
    /// Boot into a shell on this terminal; `exit` powers off.
    Shell {
        #[command(flatten)]
        pair: Pair,
        #[command(flatten)]
        guest: Guest,
    },
    /// List the cases: on which kernel and device each runs, by default or by `test --all`, and why.
    Cases {
        /// Part of a trial's name, KERNEL::DEVICE::CASE; may be repeated.
        #[arg(value_name = "WORD")]
        words: Vec<String>,
    },
    /// Run one case in a machine of its own.
    Case {
        /// The trial's name: KERNEL::DEVICE::CASE.
        name: String,
        /// Go on with a shell in the machine, as which the case has left it.
        #[arg(long)]
        keep: bool,
    },
    /// Keep machines for tests that run without `cargo xtask test`, until this is interrupted.
    Serve,
    /// List what the lab needs, and what is missing on this machine.
    Doctor,
    /// Fetch and build, so that later runs start at once.
    Prepare {
        #[command(flatten)]
        pair: Pair,
        /// Every x86-64 kernel that runs under QEMU, and User-Mode Linux.
        #[arg(long)]
        all: bool,
    },
    /// Remove everything that the lab has fetched and built.
    Clean,
}

#[derive(Debug, clap::Args)]
struct Pair {
    /// Kernel: 6.1, 6.12, 7.2, uml-7.2 or arm64-6.12.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Userland: bookworm, trixie, sid or arm64-trixie. [default: the kernel's own]
    #[arg(long)]
    userland: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Guest {
    /// Folder to share with the guest, for reading and writing, at /lab.
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Environment variable for the command.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Memory of the guest in MiB.
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    memory: u32,
    /// Number of the guest's CPUs.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Make no Soft-RoCE device.
    #[arg(long)]
    no_rdma: bool,
    /// Models of NICs to plug in: efa, erdma and mlx5, as often as wanted.
    #[arg(long, value_delimiter = ',', value_name = "MODEL")]
    nic: Vec<String>,
    /// Folder that two machines have in common: it joins their NICs into one network, and gives them the
    /// addresses 10.98.0.201 and 10.98.0.202.
    #[arg(long, value_name = "DIR", requires_all = ["nic", "place"])]
    network: Option<PathBuf>,
    /// Place of the machine in the network: 1 or 2.
    #[arg(long, requires = "network", value_name = "N")]
    place: Option<u16>,
}

impl Pair {
    fn find(&self) -> Result<(&'static Kernel, &'static Userland)> {
        let kernel = Kernel::find(&self.kernel)?;
        let userland = match &self.userland {
            Some(name) => Userland::find(name)?,
            None => kernel.default_userland()?,
        };
        Ok((kernel, userland))
    }

    fn prepare(&self) -> Result<Lab> {
        let (kernel, userland) = self.find()?;
        Lab::prepare(kernel, userland, &Progress::stderr())
    }

    /// The same, with what the NICs of a guest need.
    fn prepare_for(&self, guest: &Guest) -> Result<Lab> {
        let mut lab = self.prepare()?;
        if !guest.nic.is_empty() {
            lab.prepare_nics(&Progress::stderr())?;
        }
        Ok(lab)
    }
}

impl Guest {
    fn nics(&self) -> Result<Vec<Nic>> {
        self.nic.iter().map(|name| Nic::find(name)).collect()
    }

    fn apply(&self, mut spec: RunSpec) -> Result<RunSpec> {
        if let Some(folder) = &self.share {
            spec = spec.share(folder);
        }
        for pair in &self.environment {
            let (name, value) =
                pair.split_once('=').with_context(|| format!("--env {pair}: write NAME=VALUE"))?;
            spec = spec.env(name, value);
        }
        spec = spec.nics(&self.nics()?);
        if let (Some(folder), Some(place)) = (&self.network, self.place) {
            spec = spec.network(Network::new(folder, place)?);
        }
        if self.no_rdma {
            spec = spec.without_rdma();
        }
        Ok(spec.memory_mib(self.memory).cpus(self.cpus))
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        LabCommand::Run { pair, guest, timeout, argv } => {
            let spec = guest.apply(RunSpec::new(argv))?.timeout(Duration::from_secs(timeout));
            let lab = pair.prepare_for(&guest)?;
            let result = lab.run(&spec, &mut std::io::stdout().lock())?;
            Ok(exit_code(result.status))
        }
        LabCommand::Shell { pair, guest } => {
            let mut spec = guest.apply(RunSpec::new(["bash", "-l"]))?;
            if let Ok(terminal) = std::env::var("TERM") {
                spec = spec.env("TERM", terminal);
            }
            Ok(exit_code(pair.prepare_for(&guest)?.shell(&spec)?.status))
        }
        LabCommand::Cases { words } => {
            println!("{}", broker::table(&words)?);
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Case { name, keep } => case(&name, keep),
        LabCommand::Serve => {
            let broker = Broker::start()?;
            broker.programs(Arch::Amd64).map_err(anyhow::Error::msg)?;
            println!("ready: cargo nextest run -p verbgate-tests --test lab NAME");
            loop {
                std::thread::park();
            }
        }
        LabCommand::Doctor => doctor(),
        LabCommand::Prepare { pair, all } => {
            if all {
                prepare_all()?;
            } else {
                pair.prepare()?;
            }
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Clean => {
            verbgate_lab::clean(&Progress::stderr())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs a trial, and says how it ended.
fn case(name: &str, keep: bool) -> Result<ExitCode> {
    let trial = broker::find(name)?;
    if keep {
        if trial.is_of_two_machines() {
            bail!("{name} takes two machines, of which none can be kept: leave out --keep");
        }
        let kernel = Kernel::find(trial.kernel)?;
        let programs = Programs::build_for(kernel.arch)?;
        return Ok(exit_code(programs.keep(kernel, broker::nics(trial.device), trial.case)?));
    }
    let end = Arc::new(Broker::default()).run(name);
    println!("{}: {}", trial, end.to_string().replace('\u{1e}', "\n    "));
    Ok(ExitCode::from(u8::from(matches!(end, Said::Failed(_)))))
}

fn exit_code(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}

/// QEMU's kernels first: they take a minute, User-Mode Linux takes ten.
fn prepare_all() -> Result<()> {
    let progress = Progress::stderr();
    for vmm in [Vmm::Qemu, Vmm::Uml] {
        for kernel in KERNELS.iter().filter(|k| k.vmm == vmm && k.arch == Arch::Amd64) {
            let mut lab = Lab::prepare(kernel, kernel.default_userland()?, &progress)?;
            if vmm == Vmm::Qemu {
                lab.prepare_nics(&progress)?;
            }
        }
    }
    Ok(())
}

fn doctor() -> Result<ExitCode> {
    let findings = verbgate_lab::examine();
    for finding in &findings {
        let word = match finding.verdict {
            Verdict::Pass => "PASS",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
        };
        println!("{word}  {}", finding.what);
        if let Some(remedy) = &finding.remedy {
            println!("      {remedy}");
        }
    }
    if findings.iter().any(|f| f.verdict == Verdict::Fail) {
        bail!("the lab cannot run here: first repair everything that is marked FAIL");
    }
    Ok(ExitCode::SUCCESS)
}
