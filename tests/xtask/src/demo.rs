//! `cargo xtask demo`: two programs that talk RDMA, natively and then each in its own sandbox.

use std::process::Command;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Kernel;
use verbgate_lab::Limit;

use crate::guest::Programs;
use crate::guest::TESTS;

/// The kernel of the demonstration; its userland is the distribution's own.
const KERNEL: &str = "6.12";
/// From boot to power-off.
const LIMIT: Limit = Limit::Whole(Duration::from_secs(10 * 60));

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// On this machine's own RDMA device, not in a virtual machine.
    #[arg(long)]
    host: bool,
    /// The device. [default: the first]
    #[arg(long, value_name = "NAME", requires = "host")]
    device: Option<String>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    eprintln!("building Verbgate");
    let programs = Programs::build()?;
    let status = if args.host {
        let mut command = Command::new(programs.path(TESTS));
        if let Some(device) = &args.device {
            command.args(["--device", device]);
        }
        command.arg("demo").status().context("cannot start the demonstration")?.code().unwrap_or(1)
    } else {
        let kernel = Kernel::find(KERNEL)?;
        let argv = [TESTS, "demo"];
        let mut stdout = std::io::stdout().lock();
        programs.run_in_lab(kernel, &argv, LIMIT, &mut stdout)?
    };
    if status != 0 {
        bail!("the demonstration failed, with status {status}: it says why above");
    }
    println!("demo: ok");
    Ok(ExitCode::SUCCESS)
}
