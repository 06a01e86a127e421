//! `verbgate prepare`: makes a node of a cluster ready, in one command.

use std::fs;
use std::path::Path;

use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use verbgate_host::link;
use verbgate_host::netns::Namespace;
use verbgate_netdev::Error;
use verbgate_netdev::env::Library;
use verbgate_netdev::journal;
use verbgate_netdev::journal::Journal;
use verbgate_netdev::plan;
use verbgate_netdev::plan::open;
use verbgate_netdev::rails;
use verbgate_netdev::rails::Rail;
use verbgate_oci::Globals;

use crate::check;
use crate::check::Check;
use crate::check::Verdict;
use crate::cli::Format;
use crate::cli::PrepareArgs;
use crate::cli::Purpose;
use crate::cli::TermsArgs;
use crate::doctor;
use crate::doctor::preflight::Preflight;
use crate::env;
use crate::failure::Failure;
use crate::manifest;
use crate::netdev::move_there;
use crate::netdev::symmetric;
use verbgate_host::output::print;
use verbgate_host::output::say;

/// Directory of ip-netns(8)'s named namespaces.
const NAMED: &str = "/run/netns";

/// Checks, moves, verifies, and prints what comes next.
pub(crate) fn run(args: &PrepareArgs, globals: &Globals) -> Result<u8, Failure> {
    preflight(args, globals)?;
    let to = match &args.to {
        Some(to) => to.clone(),
        None => holder(&args.role)?,
    };
    let sysfs = &args.terms.host.sysfs_root;
    let select = symmetric(&args.terms.select, sysfs)?;
    if let Some(path) = &args.manifest {
        let own = manifest::local(Some(&args.role), &select, &args.terms.host)?;
        let text =
            serde_json::to_string_pretty(&own).map_err(|e| Error::Invalid(e.to_string()))? + "\n";
        fs::write(path, text).map_err(|source| Error::file(path.clone(), source))?;
    }
    let terms = TermsArgs { select, ..args.terms.clone() };
    let staying = staying(&terms)?;
    let environment = |rails: &[Rail], namespace: Option<&Namespace>| -> Result<String, Error> {
        let found = env::derive(Library::Nccl, rails, namespace, &args.env, sysfs)?;
        Ok(env::lines(&found, Format::Sh))
    };
    let text = match staying {
        Some(rails) => in_place(&args.role, &to, &rails, &environment(&rails, None)?),
        None => {
            let journal = move_there(&to, &terms)?;
            let rails = rails::of_journal(&journal, &terms.select.selection(), sysfs)?;
            let rails = manifest::declared(rails, &terms.select)?;
            let namespace = Namespace::named(&to)?;
            summary(&args.role, &to, &journal, &environment(&rails, Some(&namespace))?)
        }
    };
    print(&text)?;
    Ok(0)
}

/// The rails, if no move concerns any of them: InfiniBand's ports, and bonds.
fn staying(terms: &TermsArgs) -> Result<Option<Vec<Rail>>, Error> {
    // What an earlier move left is the move's business.
    if journal::load(&terms.host.state_dir)?.is_some() {
        return Ok(None);
    }
    let rails = manifest::own(&terms.select, &terms.host.sysfs_root)?;
    let all_stay = !rails.is_empty() && rails.iter().all(|rail| rail.stays);
    Ok(all_stay.then_some(rails))
}

/// What the user sees where nothing moves. `dist/docker.sh` looks for "no NIC to move" and "a bond stays".
fn in_place(role: &str, to: &str, rails: &[Rail], environment: &str) -> String {
    let mut text = format!("# {role}: {} rails, and no NIC to move\n", rails.len());
    for rail in rails {
        let why = match rail.is_infiniband() {
            true => format!("InfiniBand serves every network namespace, also {to}"),
            false => "a bond stays: run the container in the host's network namespace".to_owned(),
        };
        text += &format!("#   {} {}: {why}\n", rail.name(), rail.hca());
    }
    text + environment
}

fn preflight(args: &PrepareArgs, globals: &Globals) -> Result<(), Error> {
    // A name in a path and in a line of shell.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if args.role.is_empty() || !args.role.chars().all(plain) || args.role.starts_with(['.', '-']) {
        let role = &args.role;
        return Err(Error::Usage(format!(
            "--role {role:?} is not a name; use letters, digits, '-', '_' and '.'"
        )));
    }
    let host = &args.terms.host;
    let peer = args.terms.select.peer;
    let checks =
        doctor::checks(&Preflight { peer, ..Preflight::of(host, globals, Purpose::Prepare) });
    let (told, bad): (Vec<_>, Vec<_>) = checks
        .into_iter()
        .filter(|check| check.finding.verdict != Verdict::Pass)
        .partition(|check| check.finding.verdict == Verdict::Warn);
    check::text(&told, None, false).lines().for_each(say);
    match bad.first() {
        None => Ok(()),
        Some(Check { name, finding, .. }) => Err(Error::Invalid(format!(
            "preflight: {name}: {}; {} (all: verbgate doctor)",
            finding.found, finding.remedy
        ))),
    }
}

/// A namespace that outlives containers, for them to join: made as `ip netns add` does.
fn holder(role: &str) -> Result<String, Error> {
    let name = format!("verbgate-{role}");
    let path = Path::new(NAMED).join(&name);
    if path.exists() && Namespace::open(&path).is_ok() {
        return Ok(name);
    }
    let failed = |source: std::io::Error| Error::file(path.clone(), source);
    fs::create_dir_all(NAMED).map_err(failed)?;
    fs::write(&path, "").map_err(failed)?;
    let make = || -> Result<(), Error> {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET).map_err(|e| failed(e.into()))?;
        let own = Path::new("/proc/thread-self/ns/net");
        nix::mount::mount(Some(own), &path, None::<&Path>, MsFlags::MS_BIND, None::<&Path>)
            .map_err(|e| failed(e.into()))?;
        // As engines do for a container: loopback is up.
        let loopback = plan::links()?.into_iter().find(|link| link.name == "lo");
        let what = || "set the loopback up".to_owned();
        loopback.map_or(Ok(()), |lo| {
            link::set_up(&mut open()?, lo.index, true)
                .map_err(|source| Error::netlink(what(), source))
        })
    };
    // On a thread of its own: this one stays where it is.
    let made = std::thread::scope(|scope| scope.spawn(make).join());
    made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    say(&format!(
        "made the network namespace {name}; join the namespace, e.g. verbgate run --netns \
         {NAMED}/{name}"
    ));
    Ok(name)
}

fn summary(role: &str, to: &str, journal: &Journal, environment: &str) -> String {
    let mut text = format!("# {role}: {} NICs in {to}\n", journal.nics.len());
    for nic in &journal.nics {
        let rdma: Vec<String> =
            nic.rdma.iter().map(|(device, port)| format!("{device}:{port}")).collect();
        let ips: Vec<String> = nic.state.ips().iter().map(|(ip, n)| format!("{ip}/{n}")).collect();
        text += &format!("#   {} {} {}\n", nic.target_name, rdma.join(","), ips.join(" "));
    }
    text += environment;
    let names: Vec<&str> = journal.nics.iter().map(|nic| nic.state.link.name.as_str()).collect();
    text += "# and on the peer, with a role of its own:\n";
    text += &format!("#   verbgate prepare --role PEER --peer-ifaces {}\n", names.join(","));
    text
}
