//! `verbgate policy`: checks, explains and tries the operator's policy, and narrows what runs.

use std::io;
use std::io::BufRead as _;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Error;
use anyhow::anyhow;
use verbgate_host::output::print;
use verbgate_host::output::say;
use verbgate_proxy::policy::DeviceRule;
use verbgate_proxy::policy::FileOwner;
use verbgate_proxy::policy::Policies;
use verbgate_proxy::policy::Policy;
use verbgate_proxy::vet::offline;
use verbgate_sandbox::Recorded;
use verbgate_sandbox::Reloaded;
use verbgate_sys::foreign;

use crate::cli::Global;
use crate::cli::PolicyCheckArgs;
use crate::cli::PolicyCommand;
use crate::cli::PolicyExplainArgs;
use crate::cli::PolicyTestArgs;
use crate::failure::Failure;
use crate::oci;
use crate::slip::Slip;

/// Exit code of a test in which a request was refused.
const REFUSED: u8 = 1;

/// Runs the command.
pub(crate) fn run(command: &PolicyCommand, global: &Global) -> Result<u8, Failure> {
    match command {
        PolicyCommand::Check(args) => check(args),
        PolicyCommand::Explain(args) => explain(args),
        PolicyCommand::Test(args) => test(args),
        PolicyCommand::Reload(args) => reload(&args.policy_dir, global),
    }
    .map_err(Failure::of_tool)
}

/// The policy of a directory, which must be there.
fn load(dir: &Path) -> Result<Policies, Error> {
    Policies::load(dir, FileOwner::User(0))?.ok_or_else(|| nowhere(dir))
}

fn nowhere(dir: &Path) -> Error {
    anyhow!(
        "there is no directory {}, so no operator's policy is in force: the option --profile \
         of each command decides, and every device may be asked for",
        dir.display()
    )
}

/// Narrows containers and programs of `run`: each that can be, whatever becomes of the others.
fn reload(dir: &Path, global: &Global) -> Result<u8, Error> {
    let containers = verbgate_oci::reload(&oci::globals(global), dir);
    let mut failed: Vec<String> = containers.err().map(|e| format!("{e:#}")).into_iter().collect();
    for (process, done) in verbgate_sandbox::reload(&global.root(), dir)? {
        match done {
            Reloaded::Narrowed(profile) => {
                print(&format!("process {process}: narrowed by {profile}\n"))?;
            }
            Reloaded::Kept(why) => failed.push(format!("process {process}: {why}")),
        }
    }
    if failed.is_empty() { Ok(0) } else { Err(anyhow!("{}", failed.join("; "))) }
}

fn check(args: &PolicyCheckArgs) -> Result<u8, Error> {
    let found = match &args.file {
        None => Policies::check(&args.dir.policy_dir, FileOwner::User(0)),
        Some(path) if path.is_dir() => Policies::check(path, FileOwner::Anybody),
        Some(path) => {
            let text = foreign::read_text(path, FileOwner::Anybody);
            let text = text.map_err(|e| anyhow!("cannot read {}: {e}", path.display()))?;
            Policies::read(path, &text).map(Some)
        }
    };
    let policies = match (found, &args.file) {
        (Ok(Some(policies)), _) => policies,
        (Ok(None), file) => return Err(nowhere(file.as_deref().unwrap_or(&args.dir.policy_dir))),
        (Err(errors), file) => {
            let count = errors.len();
            errors.into_iter().for_each(|error| say(&Slip::from(error).to_string()));
            let then = match file {
                None => {
                    "; until the files are right, no sandbox starts, and sandboxes that run keep their policy"
                }
                Some(_) => " in a policy that is not in force",
            };
            return Err(anyhow!("{count} slips{then}"));
        }
    };
    let mut text = String::new();
    for profile in policies.profiles() {
        text.push_str(&format!("profile {profile}\n"));
    }
    for tenant in policies.tenants() {
        text.push_str(&format!("tenant {} ({})\n", tenant.name, tenant.place));
    }
    print(&text)?;
    Ok(0)
}

fn explain(args: &PolicyExplainArgs) -> Result<u8, Error> {
    let policies = load(&args.dir.policy_dir)?;
    let tenant = policies.named(&args.tenant)?;
    let mut text = format!("# tenant {} ({})\n", tenant.name, tenant.place);
    for device in &tenant.devices {
        text.push_str(&format!("# device {device}\n"));
    }
    if let Some(bytes) = tenant.memlock {
        text.push_str(&format!("# memlock {bytes}\n"));
    }
    text.push_str(&tenant.policy.texts().join("\n"));
    print(&text)?;
    Ok(0)
}

/// What a request is tried by.
struct Tried {
    policy: Policy,
    /// The tenant's devices, if a tenant was named.
    devices: Vec<DeviceRule>,
}

impl Tried {
    fn of(args: &PolicyTestArgs) -> Result<Self, Error> {
        let policy = match (&args.tenant, &args.profile) {
            (Some(tenant), _) => {
                let policies = load(&args.dir.policy_dir)?;
                let tenant = policies.named(tenant)?;
                return Ok(Self { policy: tenant.policy.clone(), devices: tenant.devices.clone() });
            }
            (None, Some(profile)) => {
                match Policies::load(&args.dir.policy_dir, FileOwner::User(0))? {
                    Some(policies) => policies.profile(profile)?,
                    None => Policy::named(profile)?,
                }
            }
            (None, None) => Policy::named("standard")?,
        };
        Ok(Self { policy, devices: Vec::new() })
    }

    /// The ports that the tenant has of a device, by its name in the sandbox; an error where that cannot be
    /// told: a trace has neither PCI addresses nor the names of RDMA devices.
    fn ports(&self, device: Option<&str>) -> Result<Option<&[u32]>, ()> {
        let [first, rest @ ..] = &self.devices[..] else { return Ok(None) };
        // The first rule that means a device counts.
        let is_meant = device.is_some_and(|device| first.means(None, &[device]));
        let same = rest.iter().all(|rule| rule.ports() == first.ports());
        if is_meant || same { Ok(first.ports()) } else { Err(()) }
    }

    /// Says whether a request passes, and what of the policy its line does not decide; true if not.
    fn judge(&self, line: &str) -> Result<bool, Error> {
        let recorded = Recorded::read(line)?;
        let request = recorded.request()?;
        let name = verbgate_sandbox::name(&request);
        let ports = self.ports(recorded.device());
        if let Err(refusal) = offline::judge(&self.policy, ports.unwrap_or(None), &request) {
            let (errno, line) = (refusal.errno, refusal.line);
            print(&format!("{name}: refused with {errno}: {line}\n"))?;
            return Ok(true);
        }
        let mut rest = offline::not_judged(&self.policy, &request);
        if ports.is_err() {
            rest.push("ports (which of the tenant's devices it is)".to_owned());
        }
        let rest = match rest.join(", ") {
            rest if rest.is_empty() => rest,
            rest => format!("; not judged: {rest}"),
        };
        print(&format!("{name}: granted{rest}\n"))?;
        Ok(false)
    }
}

fn test(args: &PolicyTestArgs) -> Result<u8, Error> {
    let tried = Tried::of(args)?;
    let mut refused = false;
    let mut tried_any = args.request != "-";
    if args.request == "-" {
        for line in io::stdin().lock().lines() {
            let line = line.context("cannot read standard input")?;
            // Opens, and commands to the connection manager, are lines of a trace, too.
            if line.contains("\"attributes\"") {
                refused |= tried.judge(&line)?;
                tried_any = true;
            }
        }
    } else {
        refused = tried.judge(&args.request)?;
    }
    if !tried_any {
        return Err(anyhow!(
            "standard input has no request, so nothing was tried; did the command before the pipe fail? Requests are \
             the lines of verbgate trace --json"
        ));
    }
    Ok(if refused { REFUSED } else { 0 })
}
