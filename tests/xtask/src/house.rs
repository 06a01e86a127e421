//! Checks of the whole house: the origins of dependencies, documentation without warnings, and
//! compilers and processors other than this machine's.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use serde::Deserialize;

use crate::host;
use crate::outcome::Outcome;
use crate::stream;
use crate::stream::cargo;

/// The processor that is only compiled for.
const OTHER: &str = "aarch64-unknown-linux-gnu";
/// Where crates may come from (`[sources]` of deny.toml).
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// What users build.
const SHIPPED: &str = "verbgate";

/// What of deny.toml is held here, too.
#[derive(Debug, Deserialize)]
struct Deny {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
    /// Who may depend on it all the same.
    #[serde(default)]
    wrappers: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Crates {
    packages: Vec<Package>,
    resolve: Option<Resolve>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Reason>,
}

/// Why a package depends on another: none is the usual reason.
#[derive(Debug, Deserialize)]
struct Reason {
    kind: Option<String>,
}

impl Crates {
    /// The packages of which what is shipped is made, but for what only tests need.
    fn shipped(self) -> Vec<Package> {
        let nodes = self.resolve.map(|resolve| resolve.nodes).unwrap_or_default();
        let mut next: Vec<&str> = self
            .packages
            .iter()
            .filter(|one| one.source.is_none() && one.name == SHIPPED)
            .map(|one| &*one.id)
            .collect();
        let mut found: BTreeSet<&str> = next.iter().copied().collect();
        while let Some(id) = next.pop() {
            let of = nodes.iter().filter(|node| node.id == id).flat_map(|node| &node.deps);
            let is_built = |edge: &&Edge| {
                edge.dep_kinds.iter().any(|reason| reason.kind.as_deref() != Some("dev"))
            };
            next.extend(of.filter(is_built).map(|edge| &*edge.pkg).filter(|id| found.insert(id)));
        }
        let name = |id: &str| self.packages.iter().find(|one| one.id == id).map(|one| &*one.name);
        let users = |of: &Package| {
            let uses = |node: &&Node| {
                found.contains(&*node.id) && node.deps.iter().any(|edge| edge.pkg == of.id)
            };
            nodes.iter().filter(uses).filter_map(|node| name(&node.id)).map(str::to_owned).collect()
        };
        let shipped = self.packages.iter().filter(|one| found.contains(&*one.id));
        shipped.map(|one| Package { users: users(one), ..one.clone() }).collect()
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    rust_version: Option<String>,
    /// Names of those that depend on it.
    #[serde(skip)]
    users: BTreeSet<String>,
}

fn metadata(arguments: &[&str]) -> Result<Crates> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked"]).args(arguments);
    let text = stream::answer(&mut command).context("`cargo metadata` failed")?;
    Ok(serde_json::from_str(&text)?)
}

/// `cargo deny check`. Where there is no cargo-deny, which takes longer to build than all of this:
/// licences, bans and sources by the same file, and a line that says what was not asked.
pub(crate) fn dependencies() -> Result<Outcome> {
    if host::has("deny") {
        let mut command = cargo();
        command.args(["deny", "--manifest-path", "harness/Cargo.toml", "--exclude-dev", "check"]);
        return Ok(Outcome::of(stream::lines(command, host::show)?));
    }
    let text = fs::read_to_string(Path::new(stream::workspace()).join("deny.toml"))?;
    let deny: Deny = toml::from_str(&text).context("deny.toml")?;
    let platforms: Vec<&str> =
        deny.graph.targets.iter().flat_map(|one| ["--filter-platform", one]).collect();
    let packages = metadata(&platforms)?.shipped();
    host::show(&format!("{} crates are linked into what is shipped", packages.len()));
    let refused = refused(&deny, &packages);
    refused.iter().for_each(|line| host::show(line));
    host::show("advisories and yanked crates were not asked for: cargo install cargo-deny");
    Ok(Outcome::of(refused.is_empty()))
}

/// What is not allowed, a line each.
fn refused(deny: &Deny, packages: &[Package]) -> Vec<String> {
    let allowed: BTreeSet<&str> = deny.licenses.allow.iter().map(String::as_str).collect();
    let banned: BTreeMap<&str, &Ban> = deny.bans.deny.iter().map(|ban| (&*ban.name, ban)).collect();
    let mut lines = Vec::new();
    for one in packages {
        let mut refuse = |why: String| lines.push(format!("{} {}: {why}", one.name, one.version));
        let license = one.license.as_deref().unwrap_or_default();
        if !is_allowed(license, &allowed) {
            refuse(format!("the licence {license:?} is not among those allowed"));
        }
        if let Some(Ban { reason, wrappers, .. }) = banned.get(&*one.name).copied() {
            let others: Vec<_> = one.users.difference(wrappers).map(String::as_str).collect();
            if wrappers.is_empty() || !others.is_empty() {
                refuse(format!("banned, and used by {}: {reason}", others.join(", ")));
            }
        }
        if let Some(source) = one.source.as_deref().filter(|source| *source != REGISTRY) {
            refuse(format!("from {source}"));
        }
    }
    lines
}

/// Whether a package may be had under licences that are allowed only.
fn is_allowed(license: &str, allowed: &BTreeSet<&str>) -> bool {
    let mode = spdx::ParseMode::LAX;
    spdx::Expression::parse_mode(license, mode).is_ok_and(|expression| {
        expression.evaluate(|required| allowed.contains(&*required.to_string()))
    })
}

/// Documentation without a warning.
pub(crate) fn documentation() -> Result<Outcome> {
    let mut command = cargo();
    command.args(["doc", "--quiet", "--no-deps", "--workspace", "--keep-going"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    Ok(Outcome::of(stream::lines(command, host::show)?))
}

/// Whether what is shipped compiles for the other processor.
pub(crate) fn other_processor() -> Result<Outcome> {
    if let Some(skipped) = target(OTHER) {
        return Ok(skipped);
    }
    let mut command = cargo();
    command.args(["check", "--quiet", "--locked", "-p", SHIPPED, "--target", OTHER]);
    Ok(Outcome::of(stream::lines(command, host::show)?))
}

/// Whether the oldest compiler that Cargo.toml promises (`rust-version`) can build what is shipped.
pub(crate) fn oldest_compiler() -> Result<Outcome> {
    let packages = metadata(&["--no-deps"])?.packages;
    let shipped = packages.into_iter().find(|one| one.name == SHIPPED);
    let version = shipped.and_then(|one| one.rust_version).context("there is no rust-version")?;
    let toolchain = format!("{version}.0");
    let runs = stream::answer(Command::new("rustup").args(["run", &toolchain, "rustc", "-V"]));
    if runs.is_none() {
        let remedy = [
            "rustup",
            "toolchain",
            "install",
            &toolchain,
            "--profile",
            "minimal",
            "--no-self-update",
        ];
        if let Some(skipped) = fetched(&remedy) {
            return Ok(skipped);
        }
    }
    let mut command = Command::new("rustup");
    command.current_dir(stream::workspace()).args(["run", &toolchain, "cargo"]);
    command.args(["check", "--quiet", "--locked", "-p", SHIPPED, "--target-dir"]);
    command.arg(host::target_directory()?.join("oldest"));
    // Those that rustup has set for the toolchain that runs this.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    Ok(Outcome::of(stream::lines(command, host::show)?))
}

/// Fetches the standard library of a target where it is missing; what is skipped without the target.
pub(crate) fn target(name: &str) -> Option<Outcome> {
    let installed = stream::answer(Command::new("rustup").args(["target", "list", "--installed"]));
    let there = installed.is_some_and(|list| list.lines().any(|line| line == name));
    if there { None } else { fetched(&["rustup", "target", "add", name]) }
}

/// Runs what fetches a part of a toolchain, if that is permitted; otherwise what is skipped.
fn fetched(remedy: &[&str]) -> Option<Outcome> {
    let [program, arguments @ ..] = remedy else { return None };
    let mut command = Command::new(program);
    command.args(arguments);
    let line = remedy.join(" ");
    if !verbgate_lab::may_install() {
        return Some(Outcome::skipped(&format!("needs: {line} (--install does that)")));
    }
    host::show(&line);
    let done = stream::lines(command, |_| {});
    let why = || format!("`{line}` fails");
    if done.is_ok_and(|well| well) { None } else { Some(Outcome::skipped(&why())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_bans_and_sources_are_held() {
        let deny: Deny = toml::from_str(
            "[graph]\ntargets = []\n[licenses]\nallow = ['MIT', 'Apache-2.0', \
             'Apache-2.0 WITH LLVM-exception']\n[bans]\ndeny = [{ crate = 'tokio', reason = 'x' }, \
             { crate = 'ring', reason = 'x', wrappers = ['tls'] }]",
        )
        .unwrap();
        let used = |name: &str, license: &str, source: &str, users: &[&str]| {
            let one = Package {
                id: name.to_owned(),
                name: name.to_owned(),
                version: "1.0.0".to_owned(),
                license: Some(license.to_owned()),
                source: Some(source.to_owned()),
                rust_version: None,
                users: users.iter().map(|name| (*name).to_owned()).collect(),
            };
            refused(&deny, &[one]).len()
        };
        let of = |name: &str, license: &str, source: &str| used(name, license, source, &["b"]);
        for license in ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "Apache-2.0 WITH LLVM-exception"]
        {
            assert_eq!(of("a", license, REGISTRY), 0, "{license}");
        }
        for license in ["", "GPL-3.0", "MIT AND GPL-2.0", "Unlicensed"] {
            assert_eq!(of("a", license, REGISTRY), 1, "{license}");
        }
        assert_eq!(of("tokio", "MIT", REGISTRY), 1);
        assert_eq!(used("ring", "MIT", REGISTRY, &["tls"]), 0);
        assert_eq!(used("ring", "MIT", REGISTRY, &["tls", "b"]), 1);
        assert_eq!(of("a", "MIT", "git+https://example.org/a"), 1);
    }
}
