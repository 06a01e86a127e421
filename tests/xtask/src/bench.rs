//! `cargo xtask bench`: measures the proxy's cost, natively and proxied in one run.

use std::process::Command;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Kernel;
use verbgate_lab::Limit;
use verbgate_lab::Nic;
use verbgate_lab::Progress;
use verbgate_lab::Unpacked;
use verbgate_tests::bench::calls;
use verbgate_tests::bench::containers;
use verbgate_tests::bench::fabric;
use verbgate_tests::bench::host;
use verbgate_tests::bench::nics;
use verbgate_tests::bench::sysfs;

use crate::guest::Programs;
use crate::guest::TESTS;

const KERNEL: &str = "6.12";
/// The suite of Debian's whose gVisor is measured: the first with the platform systrap.
const GVISOR: &str = "trixie";
/// From boot to power-off.
const LIMIT: Limit = Limit::Whole(Duration::from_secs(20 * 60));

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure only the mechanism, on this machine, with the null device.
    #[arg(long)]
    host: bool,
    /// Measure only verbs and traffic, in a virtual machine.
    #[arg(long, conflicts_with = "host")]
    lab: bool,
    /// Kernel of the virtual machine.
    #[arg(long, default_value = KERNEL, conflicts_with = "host")]
    kernel: String,
    /// Measure only traffic between two of the lab's NICs: efa, erdma or mlx5; may be repeated.
    #[arg(long = "nic", value_name = "MODEL", conflicts_with_all = ["host", "lab"])]
    nics: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    eprintln!("building Verbgate");
    let programs = Programs::build()?;
    if !args.lab && args.nics.is_empty() {
        println!("$ cargo xtask bench --host\n");
        let built = host::Programs(programs.folder().to_owned());
        host::run(&built)?;
        let gvisor = Unpacked::of("runsc", GVISOR, &Progress::stderr())
            .and_then(|package| Ok((package.program("runsc")?, package)))
            .inspect_err(|why| println!("gVisor is not measured: {why:#}\n"));
        calls::run(&built, gvisor.as_ref().ok().map(|(runsc, _)| runsc.as_path()))?;
        sysfs::host(&built)?;
        nics::run(&programs.path("verbgate"))?;
        containers::run(&programs.path("verbgate"))?;
        fabric::run(&programs.path("verbgate"))?;
        let status = Command::new(programs.path(TESTS)).arg("policy-bench").status()?;
        if !status.success() {
            bail!("the measurement of policies failed: {status}");
        }
    }
    let kernel = Kernel::find(&args.kernel)?;
    for nic in &args.nics {
        println!("$ cargo xtask bench --nic {nic} --kernel {}", kernel.name);
        println!("(emulated: of these only the ratios mean anything)\n");
        let (model, argv) = (Nic::find(nic)?, [TESTS, "bench", "--nics", nic]);
        let mut stdout = std::io::stdout().lock();
        let status = programs.run_on_nics(kernel, &[model, model], &argv, LIMIT, &mut stdout)?;
        if status != 0 {
            bail!("the measurements of {nic} failed, with status {status}: see above");
        }
    }
    if !args.host && args.nics.is_empty() {
        println!("$ cargo xtask bench --lab --kernel {}", kernel.name);
        println!("(emulated: of these only the ratios mean anything)\n");
        let mut stdout = std::io::stdout().lock();
        let status = programs.run_in_lab(kernel, &[TESTS, "bench"], LIMIT, &mut stdout)?;
        if status != 0 {
            bail!("the measurements in the lab failed, with status {status}: see above");
        }
    }
    Ok(ExitCode::SUCCESS)
}
