//! `cargo xtask bench`: measures the proxy's cost, natively and proxied in one run.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Kernel;
use verbgate_lab::Limit;
use verbgate_lab::Nic;
use verbgate_lab::Progress;
use verbgate_lab::Unpacked;
use verbgate_tests::bench::against;
use verbgate_tests::bench::calls;
use verbgate_tests::bench::containers;
use verbgate_tests::bench::fabric;
use verbgate_tests::bench::host;
use verbgate_tests::bench::nics;
use verbgate_tests::bench::sysfs;

use crate::guest::Programs;
use crate::guest::TESTS;
use crate::host::target_directory;
use crate::stream::workspace;

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
    /// Compare this build with another one, by turns: with a checkout, which is built, or with a folder that holds
    /// the program verbgate. The build's own folder shows the noise of each row.
    #[arg(long, value_name = "DIR", requires = "host")]
    against: Option<PathBuf>,
    /// Print each row of the comparison as an object of JSON.
    #[arg(long, requires = "against")]
    json: bool,
    /// Measure only how long other guests wait beside each attack, or beside those whose names hold WORD, and beside
    /// the same load without the attack.
    #[arg(long, value_name = "WORD", num_args = 0..=1, conflicts_with_all = ["host", "lab", "nics"])]
    hostile: Option<Option<String>>,
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
    if let Some(dir) = &args.against {
        return compare(dir, args.json);
    }
    eprintln!("building Verbgate");
    let programs = Programs::build()?;
    if let Some(word) = args.hostile {
        let mut bench = Command::new(programs.path("verbgate-hostile"));
        bench.arg("bench").args(word).arg("--verbgate").arg(programs.path("verbgate"));
        return Ok(ExitCode::from(u8::from(!bench.status()?.success())));
    }
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

/// Prints how this build and another one differ.
fn compare(dir: &Path, json: bool) -> Result<ExitCode> {
    let target = target_directory()?;
    let this = built(Path::new(workspace()), &target)?;
    let other = match dir.join("Cargo.toml").exists() {
        true => built(dir, &dir.join("target"))?,
        false => dir.to_owned(),
    };
    // Both builds are measured by this build's guests: the other one's may be unable to do the same.
    let folder = |name: &str, build: &Path| -> Result<host::Programs> {
        let folder = target.join("bench").join(name);
        fs::create_dir_all(&folder)?;
        for (from, program) in [(build, "verbgate"), (&*this, "verbgate-guest")] {
            let from = from.join(program);
            fs::copy(&from, folder.join(program))
                .with_context(|| format!("cannot copy {}", from.display()))?;
        }
        Ok(host::Programs(folder))
    };
    against::run(&folder("this", &this)?, &folder("other", &other)?, json)?;
    Ok(ExitCode::SUCCESS)
}

/// Has a checkout build what users install, by its own toolchain; gives the folder.
fn built(checkout: &Path, target: &Path) -> Result<PathBuf> {
    eprintln!("building {}", checkout.display());
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "-p", "verbgate", "-p", "verbgate-sys", "--target-dir"]);
    cargo.arg(target).current_dir(checkout).env_remove("RUSTUP_TOOLCHAIN");
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("cannot build {}: cargo says why above", checkout.display());
    }
    Ok(target.join("release"))
}
