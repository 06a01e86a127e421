//! `cargo xtask demo`: two programs that talk RDMA, natively and then each in its own sandbox.

use std::process::Command;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use verbgate_lab::Kernel;
use verbgate_lab::Lab;
use verbgate_lab::Limit;
use verbgate_lab::Progress;

use crate::guest::Programs;
use crate::guest::TESTS;

/// The kernel of the demonstration; its userland is the distribution's own.
const KERNEL: &str = "6.12";
/// What is said when nothing is there yet. All of it takes seven and a half minutes of one processor:
/// `time XDG_CACHE_HOME=DIR CARGO_TARGET_DIR=DIR cargo xtask demo` with an empty DIR.
const FIRST: &str = "the first time, this fetches a kernel and a userland and builds Verbgate: \
                     about five minutes with two processors that have nothing else to do; later, \
                     half a minute";
/// From boot to power-off.
const LIMIT: Limit = Limit::Whole(Duration::from_secs(10 * 60));

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Use this machine's own RDMA device instead of a virtual machine.
    #[arg(long)]
    host: bool,
    /// RDMA device to use. [default: the first]
    #[arg(long, value_name = "NAME", requires = "host")]
    device: Option<String>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let status = if args.host { on_host(args.device.as_deref())? } else { in_lab()? };
    if status != 0 {
        bail!("the demonstration failed, with status {status}: the output above says why");
    }
    println!("demo: ok");
    Ok(ExitCode::SUCCESS)
}

fn on_host(device: Option<&str>) -> Result<i32> {
    eprintln!("building Verbgate");
    let programs = Programs::build_quickly()?;
    let mut command = Command::new(programs.path(TESTS));
    if let Some(device) = device {
        command.args(["--device", device]);
    }
    let status = command.arg("demo").status().context("cannot start the demonstration")?;
    Ok(status.code().unwrap_or(1))
}

/// Builds our programs while the lab's kernel and userland are fetched: the one takes processors,
/// the other the network.
fn in_lab() -> Result<i32> {
    let kernel = Kernel::find(KERNEL)?;
    let userland = kernel.default_userland()?;
    let meanwhile = match Lab::to_fetch(kernel, userland)? {
        Some(_) => {
            eprintln!("{FIRST}");
            ", while the lab is fetched"
        }
        None => "",
    };
    eprintln!("building Verbgate{meanwhile}");
    let (programs, lab) = thread::scope(|scope| {
        let lab = scope.spawn(|| Lab::prepare(kernel, userland, &Progress::stderr()));
        let programs = Programs::build_quickly();
        if programs.is_err() && !lab.is_finished() {
            eprintln!("the build failed; waiting for downloads, which the cache keeps");
        }
        (programs, lab.join())
    });
    let lab = lab.map_err(|_| anyhow!("preparing the lab panicked"));
    let (programs, lab) = (programs?, lab??);
    programs.run_in(&lab, &[], &[TESTS, "demo"], LIMIT, &mut std::io::stdout().lock())
}
