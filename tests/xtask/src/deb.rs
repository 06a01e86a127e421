//! `cargo xtask deb` and `cargo xtask rpm`: packages of the command.

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
    /// Folder for the package. [default: debian or rpm in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// Date of the man pages, so that the same source makes the same package. [default: today]
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
}

/// A kind of package.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Deb,
    Rpm,
}

pub(crate) fn run(args: Args, kind: Kind) -> Result<ExitCode> {
    let progress = Progress::stderr();
    match kind {
        Kind::Deb => {
            require_program("dpkg-deb", "dpkg", &progress)?;
            require_program("dpkg-shlibdeps", "dpkg-dev", &progress)?;
        }
        Kind::Rpm => require_program("rpmbuild", "rpm", &progress)?,
    }
    let target = target_directory()?;
    done(cargo().args(["build", "--release", "--package", "verbgate"]))?;
    let program = target.join("release/verbgate");
    let pages = target.join("release/pages");
    // Today's, as date(1) tells it.
    let today = || answer(Command::new("date").arg("+%F")).context("cannot run date");
    let date = args.date.map_or_else(today, Ok)?;
    done(Command::new(&program).arg("pages").arg(&pages).arg(date.trim()))?;
    let folder = match kind {
        Kind::Deb => "debian",
        Kind::Rpm => "rpm",
    };
    let into = args.into.unwrap_or_else(|| target.join(folder));
    std::fs::create_dir_all(&into)?;
    let krate = Path::new(workspace()).join("harness");
    let version = env!("CARGO_PKG_VERSION");
    let compression = Compression::Xz;
    let recipe = Recipe { krate: &krate, version, program: &program, pages: &pages, compression };
    let file = match kind {
        Kind::Deb => recipe.build(&into)?,
        Kind::Rpm => recipe.build_rpm(&into)?,
    };
    println!("{}", file.display());
    Ok(ExitCode::SUCCESS)
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
