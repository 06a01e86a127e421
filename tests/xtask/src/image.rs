//! `cargo xtask image`: the image of the chart.

use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Progress;
use verbgate_lab::image;

use crate::host::target_directory;
use crate::stream::cargo;
use crate::stream::workspace;

/// The image is made by the steps of this file.
const FILE: &str = "harness/dist/docker/Dockerfile";

/// What takes minutes, for whoever makes the image later.
pub(crate) fn prepare() -> Result<()> {
    image::prepare(&Path::new(workspace()).join(FILE), &Progress::stderr())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to write: `ctr --namespace k8s.io image import FILE`, or `docker load`. [default: verbgate-image.tar in
    /// cargo's target folder]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the image, as the chart's value `image` has it, with the registry by which the engine completes names.
    #[arg(long, default_value = "docker.io/library/verbgate:latest")]
    name: String,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let target = target_directory()?;
    let mut build = cargo();
    if !build.args(["build", "--release", "--package", "verbgate"]).status()?.success() {
        bail!("verbgate is not built");
    }
    let program = target.join("release/verbgate");
    let output = args.output.unwrap_or_else(|| target.join("verbgate-image.tar"));
    let root = Path::new(workspace());
    image::build(&root.join(FILE), root, &program, &args.name, &output, &Progress::stderr())?;
    println!("{}", output.display());
    Ok(ExitCode::SUCCESS)
}
