//! Checks of Verbgate's own files: configuration, policy, state.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Error;
use verbgate_netdev::journal;
use verbgate_proxy::policy::DIRECTORY;
use verbgate_proxy::policy::FileOwner;
use verbgate_proxy::policy::Policies;
use verbgate_proxy::policy::PolicyError;

use super::preflight::Preflight;
use crate::check::Finding;
use crate::check::fail;
use crate::check::pass;
use crate::check::skipped;
use crate::config;

pub(super) fn configuration(facts: &Preflight<'_>) -> Finding {
    match &facts.config {
        Ok(None) => pass(format!("{} is missing: defaults", config::FILE)),
        Ok(Some(_)) => pass(config::FILE),
        Err(_) if is_hidden(config::FILE) => {
            skipped(format!("this user may not read {}", config::FILE))
        }
        Err(e) => fail(format!("{e:#}"), "until the file is repaired, no new container gets RDMA"),
    }
}

/// Whether the kernel lets this user not read a file, which is no reason to call the file broken.
fn is_hidden(path: impl AsRef<Path>) -> bool {
    fs::File::open(path).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
}

/// Whether the operator's policy can be read; nothing where its directory is not known.
pub(super) fn policy(facts: &Preflight<'_>) -> Result<Option<Finding>, Error> {
    let Ok(config) = &facts.config else { return Ok(None) };
    let dir = config.as_ref().and_then(|config| config.value("policy-dir"));
    let dir = Path::new(dir.unwrap_or(DIRECTORY));
    // A user who may not look is no reason to call the policy broken.
    match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Err(e).with_context(|| format!("cannot read {}", dir.display()));
        }
        _ => {}
    }
    Ok(Some(match Policies::load(dir, FileOwner::User(0)) {
        Ok(None) => pass(format!("{} is missing: the profile decides", dir.display())),
        Ok(Some(all)) => pass(format!("{}: {} tenants", dir.display(), all.tenants().len())),
        Err(PolicyError::Unreadable { path, .. }) if is_hidden(&path) => {
            skipped(format!("this user may not read {}", path.display()))
        }
        Err(e) => fail(e.to_string(), "verbgate policy check"),
    }))
}

/// Whether this user can read what commands of root have noted.
pub(super) fn state(facts: &Preflight<'_>) -> Finding {
    let dir = &facts.host.state_dir;
    match fs::read_dir(dir).map(drop) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => fail(
            format!("cannot read {}: {e}", dir.display()),
            "any command of verbgate by root, such as verbgate netdev status, lets every user read the directory",
        ),
        _ => pass(dir.display().to_string()),
    }
}

/// Whether NICs are where they belong.
pub(super) fn journal(facts: &Preflight<'_>) -> Result<Finding, verbgate_netdev::Error> {
    Ok(match journal::load(&facts.host.state_dir)? {
        None => pass("all NICs are home"),
        Some(journal) if journal.complete => pass(format!("away: {}", journal.names())),
        Some(journal) => fail(
            format!("a move of {} was interrupted", journal.names()),
            "verbgate netdev restore",
        ),
    })
}
