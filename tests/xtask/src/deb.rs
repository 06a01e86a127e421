//! `cargo xtask deb`: the Debian package of the command.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Progress;
use verbgate_lab::package::Compression;
use verbgate_lab::package::Recipe;
use verbgate_lab::require_program;

use crate::host::target_directory;
use crate::stream::answer;
use crate::stream::cargo;
use crate::stream::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for the package. [default: debian in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// Date of the man pages, so that the same source makes the same package. [default: today]
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let progress = Progress::stderr();
    require_program("dpkg-deb", "dpkg", &progress)?;
    require_program("dpkg-shlibdeps", "dpkg-dev", &progress)?;
    let target = target_directory()?;
    done(cargo().args(["build", "--release", "--package", "verbgate"]))?;
    let program = target.join("release/verbgate");
    let pages = target.join("release/pages");
    // Today's, as date(1) tells it.
    let today = || answer(Command::new("date").arg("+%F")).context("cannot run date");
    let date = args.date.map_or_else(today, Ok)?;
    done(Command::new(&program).arg("pages").arg(&pages).arg(date.trim()))?;
    let into = args.into.unwrap_or_else(|| target.join("debian"));
    std::fs::create_dir_all(&into)?;
    let krate = Path::new(workspace()).join("harness");
    let version = env!("CARGO_PKG_VERSION");
    let compression = Compression::Xz;
    let recipe = Recipe { krate: &krate, version, program: &program, pages: &pages, compression };
    println!("{}", recipe.build(&into)?.display());
    Ok(ExitCode::SUCCESS)
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
