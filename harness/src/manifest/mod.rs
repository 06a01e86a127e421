//! `verbgate manifest`: a node's rails, and the rails that all nodes of a cluster have alike.
//!
//! Ranks that see different sets of NICs fail in ways that name nothing ("Could not find NET with
//! id N", or a hang at the first collective operation), so the nodes agree on the set before.

mod agree;
mod facts;
mod node;
mod pair;
mod parity;

use std::path::Path;

use verbgate_netdev::Error;
use verbgate_netdev::journal;
use verbgate_netdev::rails;
use verbgate_netdev::select::Shared;

use self::agree::agree;
pub(crate) use self::facts::HostFacts;
pub(crate) use self::node::DEGRADED;
pub(crate) use self::node::Manifest;
pub(crate) use self::node::Rail;
use self::node::VERSION;
use crate::cli::AgreeArgs;
use crate::cli::HostArgs;
use crate::cli::ManifestArgs;
use crate::cli::ManifestCommand;
use crate::cli::PairingTerms;
use crate::cli::SelectArgs;
use crate::failure::Failure;
use crate::output::print_json;
use verbgate_host::output::print;
use verbgate_host::output::say;
use verbgate_sys::foreign::Owner;

/// Prints this node's manifest, or what the nodes agree on.
pub(crate) fn run(args: &ManifestArgs) -> Result<u8, Failure> {
    match &args.agree {
        Some(ManifestCommand::Agree(args)) => agree_all(args)?,
        None => print_json(&local(args.node.as_deref(), &args.select, &args.host)?)?,
    }
    Ok(0)
}

/// A manifest in a file.
pub(crate) fn read(path: &Path) -> Result<Manifest, Error> {
    let failed = |source| Error::file(path.to_owned(), source);
    let foreign = |why: String| {
        Error::Invalid(format!(
            "{} is not a manifest of this version of Verbgate: {why}; write the manifest again: \
             verbgate manifest",
            path.display()
        ))
    };
    let text = verbgate_sys::foreign::read(path, Owner::Anybody).map_err(failed)?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| foreign(e.to_string()))?;
    if manifest.version != VERSION {
        return Err(foreign(format!("the manifest's version is {}", manifest.version)));
    }
    Ok(manifest)
}

/// This node's manifest: of the NICs that were moved, or else of the NICs that would be moved; and of
/// InfiniBand's ports and of bonds, which stay.
pub(crate) fn local(
    node: Option<&str>,
    select: &SelectArgs,
    host: &HostArgs,
) -> Result<Manifest, Error> {
    let sysfs = &host.sysfs_root;
    let rails = match journal::load(&host.state_dir)? {
        Some(journal) => {
            let found = rails::of_journal(&journal, &select.selection(), sysfs)?;
            let found = declared(found, select)?;
            match journal.namespace() {
                Some(namespace) => {
                    namespace.within(|| Ok::<_, Error>(facts::with_facts(found, sysfs)))?
                }
                None => facts::with_facts(found, sysfs),
            }
        }
        None => selected(select, sysfs)?,
    };
    let node = node.map_or_else(host_name, str::to_owned);
    Ok(Manifest { version: VERSION, node, host: HostFacts::of(sysfs), rails })
}

fn host_name() -> String {
    nix::unistd::gethostname()
        .map_or_else(|_| "localhost".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn selected(select: &SelectArgs, sysfs: &Path) -> Result<Vec<Rail>, Error> {
    Ok(facts::with_facts(own(select, sysfs)?, sysfs))
}

/// This node's rails while nothing is moved, with the names that were declared for them.
pub(crate) fn own(select: &SelectArgs, sysfs: &Path) -> Result<Vec<rails::Rail>, Error> {
    declared(rails::here(&select.selection(), sysfs)?, select)
}

/// Rails with the names that were declared for them, without those that the peers do not have.
pub(crate) fn declared(
    mut found: Vec<rails::Rail>,
    select: &SelectArgs,
) -> Result<Vec<rails::Rail>, Error> {
    let left_out = select.shared.as_ref().map(|shared| &shared.left_out);
    let here = |name: &str| left_out.is_none_or(|left_out| !left_out.contains_key(name));
    found.retain(|rail| here(&rail.name()));
    // A NIC that the peers do not have was declared, too.
    let declared = select.pairing.rails.iter().filter(|(netdev, _)| here(netdev));
    rails::declare(found, &declared.cloned().collect::<Vec<_>>())
}

/// The NICs of this node that are rails of the peers too, and the reasons why the others are not.
pub(crate) fn shared(select: &SelectArgs, sysfs: &Path) -> Result<Shared, Error> {
    let own = SelectArgs { peer_manifest: Vec::new(), ..select.clone() };
    // Cannot be a node's name.
    let node = "this node".to_owned();
    let mut all = vec![Manifest {
        version: VERSION,
        node: node.clone(),
        host: HostFacts::of(sysfs),
        rails: selected(&own, sysfs)?,
    }];
    for path in &select.peer_manifest {
        all.push(read(path)?);
    }
    let agreement = agree(&all, select.pairing.terms.by)?;
    agreement.lines().for_each(|line| say(&line));
    let set = agreement.of(&node)?;
    Ok(Shared {
        names: set.netdevs.iter().cloned().collect(),
        left_out: set.left_out.clone(),
        dropped: agreement.dropped,
    })
}

/// Refuses to go on with fewer rails than there are, unless the user allows it.
pub(crate) fn allow(dropped: usize, terms: &PairingTerms) -> Result<(), Error> {
    if dropped == 0 || terms.allow_dropped {
        return Ok(());
    }
    let rails = if dropped == 1 { "1 rail is" } else { &format!("{dropped} rails are") };
    Err(Error::Invalid(format!(
        "{rails} not alike on all nodes (see above): repair the difference, leave the NIC out on \
         each node (--iface, --hca), or go on with the other rails by --allow-dropped"
    )))
}

fn agree_all(args: &AgreeArgs) -> Result<(), Error> {
    let manifests: Vec<Manifest> =
        args.manifests.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let agreement = agree(&manifests, args.terms.by)?;
    agreement.lines().for_each(|line| say(&line));
    let allowed = allow(agreement.dropped, &args.terms);
    if let Some(node) = &args.node {
        // What a script moves by: nothing, if it may not.
        allowed?;
        let set = agreement.of(node)?;
        let text =
            if args.options { set.options(agreement.rail_only) } else { set.names().join(",") };
        return Ok(print(&(text + "\n"))?);
    }
    if args.json {
        print_json(&agreement)?;
        return allowed;
    }
    let lines =
        agreement.nodes.iter().map(|set| format!("{} {}\n", set.node, set.names().join(",")));
    print(&lines.collect::<String>())?;
    allowed
}
