//! `verbgate policy reload`: containers that run are narrowed to what their tenants are granted now.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;

use anyhow::Error;
use anyhow::anyhow;
use rustix::fs::MemfdFlags;
use verbgate_host::output::print;
use verbgate_proxy::policy::FileOwner;
use verbgate_proxy::policy::Narrowing;
use verbgate_proxy::policy::Policies;
use verbgate_sys::post::Way;

use crate::letter::Word;
use crate::letter::of_container;
use crate::letter::tell;
use crate::options::Globals;
use crate::place;
use crate::place::Place;
use crate::place::Spec;

/// Narrows all containers; a container that cannot be narrowed is named, and the others are narrowed.
///
/// # Errors
/// A slip in the policy: then no container is touched. Or a container could not be narrowed.
pub fn reload(globals: &Globals, policy_dir: &Path) -> Result<u8, Error> {
    let policies = Policies::load(policy_dir, FileOwner::User(0))?.ok_or_else(|| {
        anyhow!(
            "there is no directory {}; containers keep the policy that they started with",
            policy_dir.display()
        )
    })?;
    let root = std::path::absolute(&globals.root)?;
    let mut failed: Vec<String> = Vec::new();
    for place in place::list(&root)? {
        // A directory that another process is removing.
        let Ok(spec) = place.spec() else { continue };
        match narrow(&place, &spec, &policies) {
            Ok(Some(profile)) => print(&format!("{}: narrowed by {profile}\n", spec.id))?,
            Ok(None) => log::debug!("container {} was started without a tenant", spec.id),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    if failed.is_empty() { Ok(0) } else { Err(anyhow!("{}", failed.join("; "))) }
}

fn narrow(place: &Place, spec: &Spec, policies: &Policies) -> Result<Option<String>, Error> {
    let Some(tenant) = &spec.tenant else { return Ok(None) };
    let tenant = policies.named(tenant).map_err(|e| {
        anyhow!("container {} keeps its policy: {e}; delete the container to end it", spec.id)
    })?;
    // By a file, since a letter is short.
    let mut file = std::fs::File::from(rustix::fs::memfd_create("policy", MemfdFlags::CLOEXEC)?);
    file.write_all(serde_json::to_string(&Narrowing::from(tenant))?.as_bytes())?;
    let way = Way::to(&place.control()).map_err(|e| of_container(&spec.id, &e.into()))?;
    tell(&way, &Word::Narrow, &[file.as_fd()]).map_err(|e| of_container(&spec.id, &e))?;
    Ok(Some(tenant.policy.name()))
}
