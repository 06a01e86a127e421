//! `verbgate run`: a program in its sandbox, and its supervisor.

use std::cell::OnceCell;
use std::time::Duration;

use anyhow::Context;
use anyhow::anyhow;
use verbgate_sys::process;
use verbgate_sys::sandbox;
use verbgate_sys::sandbox::DeviceNode;
use verbgate_sys::sandbox::Job;
use verbgate_sys::sandbox::Spawn;
use verbgate_sys::sandbox::Sysfs;

use crate::cli::RunArgs;
use crate::cli::SysfsOf;
use crate::failure::Failure;
use crate::grant;
use crate::grant::Host;
use crate::supervise;
use crate::supervise::Guard;
use crate::supervise::Plan;
use crate::trace::Trace;
use crate::virtual_sys;
use crate::virtual_sys::Views;

/// How long killed processes may take to end that have work to do at their end, as much memory is.
/// Those that the kernel holds (in a driver, on a dead file server) are not waited for.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Runs the program; the exit code is its own.
pub(crate) fn run(args: &RunArgs) -> Result<u8, Failure> {
    supervised(args, None)
}

/// The common part of `run` and `trace`.
pub(crate) fn supervised(args: &RunArgs, trace: Option<Trace>) -> Result<u8, Failure> {
    let mut devices = grant::resolve(&args.devices, Host::real())?;
    let mut plan = Plan::new(&devices, &args.profile)?;
    if let Some(cm) = grant::connection_manager(Host::real()).filter(|_| plan.grants_rdma_cm()) {
        plan.add_rdma_cm(&cm);
        devices.push(cm);
    }
    let guard = Guard::new(process::descriptor_limit())?;
    let report = args.report.as_deref().map(supervise::report_file).transpose()?;
    // Before any thread: they inherit the blocked signals, and the child is forked.
    let job = Job::begin().map_err(|e| anyhow!("cannot take charge of signals: {e}"))?;
    let nodes: Vec<DeviceNode> = devices.iter().map(DeviceNode::from).collect();
    let shown = virtual_sys::shown(&devices);
    let views = OnceCell::new();
    let serve = |guest, served| {
        let made = Views::of(guest, &devices)?;
        views.get_or_init(|| made).serve(served, shown.clone())
    };
    let sysfs = Sysfs { keep: verbgate_sysfs::KEPT, serve: &serve };
    let spec = Spawn {
        argv: &args.command,
        devices: &nodes,
        netns: args.netns.as_deref(),
        preserve_fds: args.preserve_fds,
        sysfs: (args.sysfs == SysfsOf::Virtual).then_some(sysfs),
        install: &|| guard.install(),
    };
    let started = sandbox::spawn(&job, &spec)?;
    let views = match views.into_inner() {
        Some(views) => views,
        None => Views::of(started.gate.pid(), &devices)?,
    };
    let supervisor = plan.supervisor(&guard, started.listener, &views, None, trace)?;
    supervise::start(&supervisor).context("cannot start the supervisor")?;
    let guest = started.gate.exec()?;
    let ended = job.attend(&guest);
    let left = sandbox::end_descendants(END_PATIENCE);
    if left > 0 {
        log::warn!(
            "{left} processes of the program have been killed and do not end: the kernel holds them \
             until the device or file server that they use answers"
        );
    }
    if let Some(file) = &report {
        supervise::report(&supervisor.counts(), file)?;
    }
    let exit = ended.map_err(|e| anyhow!("cannot wait for the program: {e}"))?;
    Ok(exit.code())
}
