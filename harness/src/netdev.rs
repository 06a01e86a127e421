//! `verbgate netdev`: NICs into a container's network namespace, and back.

use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use serde::Serialize;
use verbgate_host::is_root;
use verbgate_host::link;
use verbgate_host::netns::Namespace;
use verbgate_host::signals::Signals;
use verbgate_netdev::Error;
use verbgate_netdev::back;
use verbgate_netdev::journal;
use verbgate_netdev::journal::Journal;
use verbgate_netdev::journal::Step;
use verbgate_netdev::journal::Store;
use verbgate_netdev::plan;
use verbgate_netdev::plan::Plan;
use verbgate_netdev::select::Candidate;
use verbgate_netdev::share;
use verbgate_netdev::share::Share;
use verbgate_netdev::share::Wanted;
use verbgate_netdev::transfer;
use verbgate_netdev::transfer::Terms;
use verbgate_netdev::verify;
use verbgate_netdev::verify::Claim;
use verbgate_sysfs::discover;

use crate::cli::ListArgs;
use crate::cli::MoveArgs;
use crate::cli::NetdevCommand;
use crate::cli::RestoreArgs;
use crate::cli::SelectArgs;
use crate::cli::ShareArgs;
use crate::cli::StatusArgs;
use crate::cli::TermsArgs;
use crate::cli::UnshareArgs;
use crate::cli::VerifyArgs;
use crate::failure::Failure;
use crate::manifest;
use crate::output::print_json;
use verbgate_host::output::print;
use verbgate_host::output::say;

/// Runs one of the subcommands.
pub(crate) fn run(command: &NetdevCommand) -> Result<u8, Failure> {
    let done = match command {
        NetdevCommand::List(args) => list(args),
        NetdevCommand::Plan(args) => show_plan(args),
        NetdevCommand::Move(args) => {
            let journal = move_there(&args.to, &args.terms)?;
            if args.json { print_json(&journal) } else { Ok(()) }
        }
        NetdevCommand::Restore(args) => restore(args),
        NetdevCommand::Status(args) => status(args),
        NetdevCommand::Verify(args) => verify_peer(args),
        NetdevCommand::Share(args) => make_share(args),
        NetdevCommand::Unshare(args) => unshare(args),
    };
    Ok(done.map(|()| 0)?)
}

/// The options with what other manifests add to them; rails that were left out are refused, unless
/// that is allowed.
pub(crate) fn symmetric(args: &SelectArgs, sysfs: &Path) -> Result<SelectArgs, Error> {
    let args = paired(args, sysfs)?;
    whole(&args)?;
    Ok(args)
}

/// The same, whatever was left out.
fn paired(args: &SelectArgs, sysfs: &Path) -> Result<SelectArgs, Error> {
    let mut args = args.clone();
    // Once: what was left out then is no rail of this node any more.
    if !args.peer_manifest.is_empty() && args.shared.is_none() {
        args.shared = Some(manifest::shared(&args, sysfs)?);
    }
    Ok(args)
}

fn whole(args: &SelectArgs) -> Result<(), Error> {
    let dropped = args.shared.as_ref().map_or(0, |shared| shared.dropped);
    manifest::allow(dropped, &args.pairing.terms)
}

fn list(args: &ListArgs) -> Result<(), Error> {
    let select = paired(&args.select, &args.sysfs_root)?;
    let (candidates, _) = plan::candidates(&select.selection(), &args.sysfs_root)?;
    if args.json {
        print_json(&candidates)?;
    } else {
        print(&table(&candidates))?;
    }
    whole(&select)
}

fn table(candidates: &[Candidate]) -> String {
    if candidates.is_empty() {
        return "no NIC on this host has RDMA\n".to_owned();
    }
    let mut rows = vec![
        ["NETDEV", "RDMA", "PCI", "NUMA", "GB/S", "MTU", "ADDRESSES", "GIDS", "VERDICT"]
            .map(str::to_owned),
    ];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for candidate in candidates {
        let rdma = candidate.rdma.iter().map(|port| {
            let state = port.state.as_deref().unwrap_or("?");
            format!("{}/{} {state}", port.device, port.port)
        });
        let v2 = |gid: &&discover::Gid| gid.kind.as_deref() == Some(discover::ROCE_V2);
        let gids: Vec<String> =
            candidate.gids.iter().filter(v2).map(|gid| gid.index.to_string()).collect();
        let join = |list: Vec<String>| {
            if list.is_empty() { "-".to_owned() } else { list.join(",") }
        };
        rows.push([
            candidate.netdev.clone(),
            join(rdma.collect()),
            or_dash(candidate.pci.clone()),
            or_dash(candidate.numa_node.map(|n| n.to_string())),
            or_dash(candidate.speed.map(|n| n.to_string())),
            or_dash(candidate.mtu.map(|n| n.to_string())),
            join(candidate.addresses.clone()),
            join(gids),
            candidate.dropped.as_ref().map_or("move".to_owned(), |why| format!("stays: {why}")),
        ]);
    }
    columns(&rows)
}

/// Text in columns; the last one is not padded.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Plans, and explains each NIC that stays.
pub(crate) fn planned(to: &str, args: &TermsArgs) -> Result<Plan, Error> {
    let select = symmetric(&args.select, &args.host.sysfs_root)?;
    let plan = plan::plan(&select.selection(), &args.host.sysfs_root, to, args.arp.into())?;
    for candidate in &plan.candidates {
        if let Some(why) = &candidate.dropped {
            say(&format!("{} stays: {why}", candidate.netdev));
        }
    }
    for warning in &plan.warnings {
        say(&format!("warning: {warning}"));
    }
    Ok(plan)
}

#[derive(Debug, Serialize)]
struct Planned {
    netdev: String,
    target_name: String,
    rdma: Vec<(String, u32)>,
    addresses: Vec<String>,
    mtu: u32,
    up: bool,
    routes: Vec<String>,
    rules: usize,
    neighbours: usize,
    table: Option<u32>,
}

fn show_plan(args: &MoveArgs) -> Result<(), Error> {
    let plan = planned(&args.to, &args.terms)?;
    let nics: Vec<Planned> = plan
        .entries
        .iter()
        .map(|nic| Planned {
            netdev: nic.state.link.name.clone(),
            target_name: nic.target_name.clone(),
            rdma: nic.rdma.clone(),
            addresses: nic.state.ips().iter().map(|(ip, n)| format!("{ip}/{n}")).collect(),
            mtu: nic.state.link.mtu,
            up: nic.state.link.up,
            routes: nic
                .state
                .routes
                .iter()
                .map(|r| verbgate_netdev::dress::describe(&r.message))
                .collect(),
            rules: nic.state.rules.len(),
            neighbours: nic.state.neighbours.len(),
            table: nic.table,
        })
        .collect();
    if args.json {
        return print_json(&nics);
    }
    let mut text = format!("{} NICs to {}\n", nics.len(), plan.target);
    for nic in nics {
        let state = if nic.up { "up" } else { "down" };
        let table = nic.table.map_or_else(String::new, |table| format!(", own table {table}"));
        text += &format!(
            "{} as {}: {}, MTU {}, {state}{table}\n",
            nic.netdev,
            nic.target_name,
            nic.addresses.join(" "),
            nic.mtu
        );
        for route in nic.routes {
            text += &format!("  route {route}\n");
        }
        text += &format!("  {} rules, {} permanent neighbours\n", nic.rules, nic.neighbours);
    }
    Ok(print(&text)?)
}

/// Moves, verifies and reports.
pub(crate) fn move_there(to: &str, args: &TermsArgs) -> Result<Journal, Error> {
    let store = Store::lock(&args.host.state_dir)?;
    let signals = Signals::hold();
    let terms = Terms {
        sysfs: &args.host.sysfs_root,
        patience: Duration::from_secs(args.wait),
        signals: &signals,
        progress: &|line| say(line),
    };
    if let Some(mut left_over) = journal::load(&args.host.state_dir)? {
        if left_over.complete {
            return Err(Error::NotHome { path: store.path(), nics: left_over.names() });
        }
        say("an earlier move or restore was interrupted; first that is undone");
        let left = back::back(&mut left_over, &store, &terms)?;
        if let Some(why) = left.first() {
            let why = format!("{why}; see: verbgate netdev restore");
            return Err(Error::Invalid(why));
        }
    }
    let started = Instant::now();
    let plan = planned(to, args)?;
    let names: Vec<&str> = plan.entries.iter().map(|nic| nic.state.link.name.as_str()).collect();
    share::refuse_shared(&args.host.state_dir, &names)?;
    let peer = args.verify_from.as_deref().map(Namespace::named).transpose()?;
    let check = |journal: &Journal, target: &Namespace| match &peer {
        Some(peer) => verify::both(journal, target, peer, Duration::from_secs(args.wait)),
        None => verify::alone(journal, target),
    };
    let journal = transfer::execute(plan, &store, args.arp.into(), &terms, &check)?;
    let how = match &peer {
        Some(peer) => format!("each NIC answers for itself, as {peer} sees"),
        None => "routes checked; not resolved, because no --verify-from is given".to_owned(),
    };
    say(&format!(
        "{} NICs moved in {:.2} s; {how}",
        journal.nics.len(),
        started.elapsed().as_secs_f64()
    ));
    Ok(journal)
}

fn restore(args: &RestoreArgs) -> Result<(), Error> {
    // Nothing is made where there is nothing to do.
    if journal::load(&args.host.state_dir)?.is_none() {
        say("all NICs are home");
        return Ok(());
    }
    let store = Store::lock(&args.host.state_dir)?;
    // Anew: another verbgate may have been at it.
    let Some(mut journal) = journal::load(&args.host.state_dir)? else { return Ok(()) };
    let signals = Signals::hold();
    let terms = Terms {
        sysfs: &args.host.sysfs_root,
        patience: Duration::from_secs(args.wait),
        signals: &signals,
        progress: &|line| say(line),
    };
    let left = back::back(&mut journal, &store, &terms)?;
    for line in &left {
        say(line);
    }
    if left.is_empty() {
        say(&format!("{} NICs are home", journal.nics.len()));
    } else if args.forget {
        store.remove()?;
        say("the journal is removed all the same");
    } else {
        let why = "some NICs are not as before; repair them and restore again, or: verbgate netdev \
                   restore --forget";
        return Err(Error::Invalid(why.to_owned()));
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct Status {
    complete: bool,
    target: String,
    /// None where only root can tell.
    target_alive: Option<bool>,
    nics: Vec<NicStatus>,
}

#[derive(Debug, Serialize)]
struct NicStatus {
    netdev: String,
    target_name: String,
    rdma: Vec<(String, u32)>,
    addresses: Vec<String>,
    step: Step,
    /// `home`, `container` or `nowhere`; `hidden` from who is not root.
    place: &'static str,
}

fn status(args: &StatusArgs) -> Result<(), Error> {
    let shares = share::load(&args.host.state_dir)?;
    let Some(journal) = journal::load(&args.host.state_dir)? else {
        if args.json {
            return Ok(print("null\n")?);
        }
        return Ok(print(&format!("all NICs are home\n{}", shared_text(&shares)))?);
    };
    // Others may find the namespace, and not enter it.
    let hidden = !is_root();
    let target = journal.namespace().filter(|_| !hidden);
    let here = plan::links()?;
    let there = target.as_ref().map(link::of).transpose()?.unwrap_or_default();
    let place = |nic: &journal::Entry| match () {
        () if link::find(&there, &nic.identity).is_some() => "container",
        () if link::find(&here, &nic.identity).is_some() => "home",
        () if hidden => "hidden",
        () => "nowhere",
    };
    let nics = journal.nics.iter().map(|nic| NicStatus {
        netdev: nic.state.link.name.clone(),
        target_name: nic.target_name.clone(),
        rdma: nic.rdma.clone(),
        addresses: nic.state.ips().iter().map(|(ip, n)| format!("{ip}/{n}")).collect(),
        step: nic.step,
        place: place(nic),
    });
    let status = Status {
        complete: journal.complete,
        target: journal.target_path.display().to_string(),
        target_alive: (!hidden).then_some(target.is_some()),
        nics: nics.collect(),
    };
    if args.json {
        return print_json(&status);
    }
    let alive = gone(status.target_alive == Some(true));
    let done = if status.complete { "" } else { ", not finished: verbgate netdev restore" };
    let mut text = format!("moved to {}{alive}{done}\n", status.target);
    for nic in status.nics {
        text += &format!(
            "{} as {}: {}, {}\n",
            nic.netdev,
            nic.target_name,
            nic.addresses.join(" "),
            nic.place
        );
    }
    Ok(print(&(text + &shared_text(&shares)))?)
}

/// What a line says of a namespace: only root finds every one.
fn gone(is_found: bool) -> &'static str {
    match (is_found, is_root()) {
        (true, _) => "",
        (false, true) => " (which is gone)",
        (false, false) => " (which only root can look into)",
    }
}

/// A line for each link upon a NIC.
fn shared_text(shares: &[Share]) -> String {
    let line = |share: &Share| {
        let ips: Vec<String> = share.addresses.iter().map(|(ip, n)| format!("{ip}/{n}")).collect();
        let gone = gone(share.namespace().is_some());
        format!(
            "shared: {} {} upon {} in {}{gone}: {}\n",
            share.kind.name(),
            share.name,
            share.nic,
            share.target_path.display(),
            ips.join(" ")
        )
    };
    shares.iter().map(line).collect()
}

fn make_share(args: &ShareArgs) -> Result<(), Error> {
    let wanted = Wanted {
        nic: args.iface.clone(),
        name: args.name.clone(),
        kind: args.kind.into(),
        addresses: args.address.clone(),
        gateways: args.gateway.clone(),
        arp: args.arp.into(),
    };
    let (state, sysfs) = (&args.host.state_dir, &args.host.sysfs_root);
    let made = share::share(&wanted, &args.to, state, sysfs, Duration::from_secs(args.wait))?;
    if args.json {
        return print_json(&made);
    }
    Ok(print(&shared_text(&[made]))?)
}

fn unshare(args: &UnshareArgs) -> Result<(), Error> {
    let to = args.to.as_deref();
    let removed = share::unshare(to, args.name.as_deref(), &args.host.state_dir)?;
    say(&format!("{} links are removed", removed.len()));
    Ok(())
}

fn verify_peer(args: &VerifyArgs) -> Result<(), Error> {
    let mut claims: Vec<Claim> = Vec::new();
    for file in &args.manifests {
        claims.extend(manifest::read(file)?.claims());
    }
    let pairs = match &args.netns {
        Some(name) => {
            Namespace::named(name)?.within(|| verify::resolve(&claims, verify::PATIENCE))?
        }
        None => verify::resolve(&claims, verify::PATIENCE)?,
    };
    Ok(print(&format!("{} addresses answer, each with the MAC of its NIC\n", pairs.len()))?)
}
