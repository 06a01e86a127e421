//! `verbgate run`: a program in its sandbox.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use nix::sys::resource::Resource;
use nix::sys::resource::setrlimit;
use verbgate_host::is_root;
use verbgate_sandbox::Allowed;
use verbgate_sandbox::Audit;
use verbgate_sandbox::Expected;
use verbgate_sandbox::Granted;
use verbgate_sandbox::Host;
use verbgate_sandbox::Observer;
use verbgate_sandbox::Policy;
use verbgate_sandbox::Program;
use verbgate_sandbox::Running;
use verbgate_sandbox::Sandbox;
use verbgate_sandbox::Subject;
use verbgate_sandbox::Tgid;
use verbgate_sandbox::resolve;

use crate::cli::RunArgs;
use crate::cli::SysfsOf;
use crate::failure::Failure;

/// Runs the program; the exit code is its own.
pub(crate) fn run(args: &RunArgs, root: &Path) -> Result<u8, Failure> {
    supervised(args, root, None, |_| Ok(()))
}

/// The common part of `run` and `trace`; `after` is done when the program has ended.
pub(crate) fn supervised(
    args: &RunArgs,
    root: &Path,
    observer: Option<Box<dyn Observer>>,
    after: impl FnOnce(&Running) -> Result<(), anyhow::Error>,
) -> Result<u8, Failure> {
    let (devices, policy, tenant) = granted(args)?;
    let mut sandbox = Sandbox::new(devices, policy)?;
    if args.compat {
        sandbox.allow_compat()?;
    }
    match sandbox.register_in(root) {
        // Whoever is nobody's neighbour needs no register.
        Err(error) if !is_root() => log::debug!("{error}"),
        registered => registered?,
    }
    if let Some(tenant) = &tenant {
        sandbox.charge_to(root, tenant)?;
        sandbox.follow_policy(root, &args.policy.policy_dir, tenant)?;
    }
    if let Some(to) = &args.audit {
        let uid = format!("uid {}", nix::unistd::Uid::current());
        let audit = Audit::open(to, tenant.as_deref().unwrap_or(&uid), None);
        sandbox.audit(audit.with_context(|| format!("--audit: cannot write to {to}"))?);
    }
    // Before the start, after which this process may no longer make files.
    let file = args.report.as_deref().map(report_file).transpose()?;
    let program = Program {
        argv: &args.command,
        netns: args.netns.as_deref(),
        keep: &args.keep,
        preserve_fds: args.preserve_fds,
        virtual_sysfs: args.sysfs == SysfsOf::Virtual,
    };
    let mut running = sandbox.start(&program, observer)?;
    let within = args.rdma_within.or(args.require_rdma.then_some(60));
    if let Some(within) = within {
        running.expect(Expected { within, required: args.require_rdma })?;
    }
    let ended = running.wait();
    if let Some(file) = &file {
        report(&running, file)?;
    }
    after(&running)?;
    Ok(ended?.code())
}

/// The devices and requests that the operator allows, and the tenant, or the command line where no operator says.
fn granted(args: &RunArgs) -> Result<(Vec<Granted>, Policy, Option<String>), Failure> {
    let subject = Subject {
        uid: Some(nix::unistd::Uid::current().as_raw()),
        cgroup: verbgate_sandbox::cgroup_of(Tgid(std::process::id().cast_signed())),
        ..Subject::default()
    };
    let asked = args.profile.as_deref();
    let narrowed = asked.as_slice();
    let Some(allowed) = Allowed::of(&args.policy.policy_dir, &subject, narrowed)? else {
        let devices = resolve(&args.devices, Host::real())?;
        return Ok((devices, Policy::named(asked.unwrap_or("standard"))?, None));
    };
    // A tenant who names no device gets all that the tenant has.
    let all = args.devices.is_empty() || args.devices.iter().any(|name| name == "all");
    let every = [OsString::from("all")];
    let options = if args.devices.is_empty() { &every[..] } else { &args.devices };
    let devices = allowed.devices(resolve(options, Host::real())?, !all)?;
    if let Some(bytes) = allowed.memlock() {
        lock_at_most(bytes);
    }
    let tenant = allowed.tenant().to_owned();
    Ok((devices, allowed.policy, Some(tenant)))
}

/// Has this process, and the program that it starts, lock so many bytes at most.
fn lock_at_most(bytes: u64) {
    if let Err(e) = setrlimit(Resource::RLIMIT_MEMLOCK, bytes, bytes) {
        log::warn!(
            "the tenant's memlock is {bytes} bytes, and the limit of this process cannot be set: {e}; \
             start verbgate as root, or raise the limit before (ulimit -l, LimitMEMLOCK)"
        );
    }
}

/// A file for the report.
fn report_file(path: &Path) -> Result<File, anyhow::Error> {
    File::create(path).with_context(|| format!("--report: cannot create {}", path.display()))
}

/// Writes what a supervisor did, as JSON.
fn report(running: &Running, mut file: &File) -> Result<(), anyhow::Error> {
    let mut counted = verbgate_sandbox::counted(&running.counts());
    if let Some(counted) = counted.as_object_mut() {
        counted.insert("sysfs_files".to_owned(), running.sysfs_files().into());
    }
    writeln!(file, "{counted}").context("cannot write the report")
}
