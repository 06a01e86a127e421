#![forbid(unsafe_code)]
//! `cargo xtask`: the project's own commands. Each is a module with an `Args` type and a `run`
//! function; a new one is a `mod` line, a variant and an arm.

mod abi;
mod api;
mod bench;
mod broker;
mod clients;
mod conformance;
mod coverage;
mod deb;
mod demo;
mod differential;
mod engines;
mod engines_lab;
mod fuzz;
mod guest;
mod guestbin;
mod host;
mod house;
mod image;
mod lab;
mod machines;
mod nextest;
mod outcome;
mod soak;
mod stream;
mod test;

use std::process::ExitCode;

use clap::Parser;
use clap::Subcommand;

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    /// Install the packages that are missing, without asking.
    #[arg(long, global = true)]
    install: bool,
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Show two sandboxes that talk RDMA to each other, on any machine.
    Demo(demo::Args),
    /// Check formatting, generated tables and lints: before every commit.
    Check(test::CheckArgs),
    /// Run every test; the last line counts them.
    Test(test::Args),
    /// Measure the cost of the proxy.
    Bench(bench::Args),
    /// Run programs that people run over RDMA (NCCL, NIXL, Mooncake, UCX, MPI), natively and in sandboxes.
    Clients(clients::Args),
    /// Run rdma-core's own tests natively and through the proxy, and compare.
    Conformance(conformance::Args),
    /// Count what of the kernel's tables drivers were asked for, with the same result in a sandbox as natively.
    Coverage(coverage::Args),
    /// Make the same raw requests natively and in a sandbox, and compare the answers.
    Differential(differential::Args),
    /// Have sandboxes work for hours, and watch what their supervisors take.
    Soak(soak::Args),
    /// Fuzz all code that reads a guest's bytes.
    Fuzz(fuzz::Args),
    /// Run commands in virtual machines with a real uverbs device.
    Lab(lab::Args),
    /// Try every container engine by every feature, and make the table in harness/README.md.
    Engines(engines::Args),
    /// Make the Debian package.
    Deb(deb::Args),
    /// Make the rpm package.
    Rpm(deb::Args),
    /// Make the chart's image, without a registry and without Docker, from packages of Debian.
    Image(image::Args),
    /// Write the lists of each library's public API.
    Api {
        /// Check whether the lists are up to date, and write nothing.
        #[arg(long)]
        check: bool,
    },
    /// Read the kernel's tables from kernels' sources, compare kernels, generate the Rust tables.
    #[command(subcommand)]
    Abi(abi::Command),
}

/// What a task that fails to do its work exits with, as container engines do: a command's own
/// statuses stay distinguishable.
const OUR_FAILURE: u8 = 125;

fn main() -> ExitCode {
    if let Some(code) = api::as_rustdoc() {
        return code;
    }
    let cli = Cli::parse();
    // What is run for its own sake gets what it needs; tests go without, unless they are told.
    let asks = matches!(cli.task, Task::Check(_) | Task::Test(_));
    if cli.install || !asks {
        verbgate_lab::permit_installing();
    }
    let result = match cli.task {
        Task::Demo(args) => demo::run(args),
        Task::Check(args) => test::check(&args),
        Task::Test(args) => test::run(&args),
        Task::Bench(args) => bench::run(args),
        Task::Clients(args) => clients::run(args),
        Task::Conformance(args) => conformance::run(args),
        Task::Coverage(args) => coverage::run(args),
        Task::Differential(args) => differential::run(args),
        Task::Soak(args) => soak::run(&args),
        Task::Fuzz(args) => fuzz::run(args),
        Task::Lab(args) => lab::run(args),
        Task::Engines(args) => engines::run(&args),
        Task::Deb(args) => deb::run(args, deb::Kind::Deb),
        Task::Rpm(args) => deb::run(args, deb::Kind::Rpm),
        Task::Image(args) => image::run(args),
        Task::Api { check } => api::lists(check, |line| println!("{line}"))
            .map(|current| ExitCode::from(u8::from(!current))),
        Task::Abi(command) => abi::run(command),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(OUR_FAILURE)
    })
}
