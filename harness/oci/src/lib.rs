#![forbid(unsafe_code)]
//! Containers with RDMA: an OCI runtime around another runtime ([`run`]), an agent for runtimes
//! that take only a seccomp profile ([`agent`]), a plug-in by which engines give containers that
//! profile ([`nri`]), and the configuration of engines ([`engine`], [`cdi`], [`claims`]).
//!
//! For a container that asks for RDMA (`wish`), the bundle's `config.json` is rewritten (`rewrite`)
//! and a supervisor started (`start`, `supervisor`). Then this process comes under the filter
//! (`under`) and becomes the wrapped runtime, so that output, exit code, signals, terminals and
//! inherited descriptors are the wrapped runtime's own. Every other command, and every other
//! container, gets only the last step.
//!
//! A container's files are in a directory of the host (`place`). The wrapped runtime tells by hooks
//! when the container is made and when the container is gone (`hook`). Hooks and supervisors are
//! processes of the program that calls [`run`]: that program has the hidden commands [`HOOK`],
//! [`SUPERVISOR`], [`KEEPER`], [`WARDEN`], [`agent::SUPERVISOR`] and [`cdi::HOOK`], and calls [`hook`],
//! [`supervise`], [`keep`], [`ward`], [`agent::supervise`] and [`cdi::hook`] for them.
//!
//! The names by which containers ask an engine for this host's devices:
//!
//! ```
//! for name in verbgate_oci::cdi::names()? {
//!     println!("docker run --device {name} ...");
//! }
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod agent;
mod bounds;
pub mod cdi;
pub mod claims;
mod device_cgroup;
pub mod engine;
mod exec;
mod exposed;
mod granted;
mod home;
mod hook;
mod inspect;
mod keeper;
mod kind;
mod letter;
mod line;
mod metrics;
mod netdevs;
pub mod nri;
mod options;
mod place;
mod pod;
mod podman;
mod reload;
mod rewrite;
mod runtime;
mod served;
mod settings;
mod show;
mod start;
mod supervisor;
mod under;
mod warden;
mod wish;

use std::ffi::OsString;
use std::path::Path;

use anyhow::Error;
use serde_json::Value;

pub use self::hook::Event;
pub use self::hook::run as hook;
pub use self::inspect::gc;
pub use self::inspect::processes;
pub use self::inspect::ps;
pub use self::keeper::keep;
use self::line::Line;
use self::line::Verb;
pub use self::netdevs::journals;
pub use self::options::Allowed;
pub use self::options::Annotations;
pub use self::options::Globals;
pub use self::options::HOOK;
pub use self::options::KEEPER;
pub use self::options::Options;
pub use self::options::SUPERVISOR;
pub use self::options::WARDEN;
pub use self::reload::reload;
pub use self::show::show;
pub use self::show::stats;
pub use self::supervisor::run as supervise;
pub use self::warden::ward;

/// Whether a runtime's arguments make a container.
pub fn creates(args: &[OsString]) -> bool {
    matches!(Line::parse(args).verb, Verb::Create | Verb::Run)
}

/// A name by which this program is an OCI runtime, for engines that can be told a path and no
/// arguments; what follows it names the real one, as in `verbgate-oci-crun`.
const CALLED: &str = "verbgate-oci";

/// The arguments as they would be with `oci`, when this program is called by a runtime's name.
pub fn called(args: &[OsString]) -> Option<Vec<OsString>> {
    let name = Path::new(args.first()?).file_name()?.to_str()?;
    if nri::is_called(name) {
        return Some(vec!["verbgate".into(), "nri".into()]);
    }
    let name = name.strip_prefix(CALLED)?.to_owned();
    let mut all: Vec<OsString> = vec!["verbgate".into(), "oci".into()];
    if let Some(runtime) = name.strip_prefix('-') {
        all.extend(["--runtime".into(), runtime.into()]);
    }
    all.push("--".into());
    all.extend(args.iter().skip(1).cloned());
    Some(all)
}

/// Becomes the real runtime; returns only why that could not be.
#[must_use]
pub fn run(options: &Options, globals: &Globals) -> Error {
    let mut line = Line::parse(&options.args);
    let prepared = runtime::find(options.runtime.as_deref()).and_then(|runtime| {
        match line.verb {
            Verb::Create | Verb::Run => start::prepare(&line, options, globals, &runtime)?,
            Verb::Start => exec::start(&line, globals)?,
            Verb::Exec => exec::prepare(&mut line, globals)?,
            Verb::Delete => start::forget_dead(&line, globals),
            Verb::Checkpoint => start::refuse_checkpoint(&line, globals)?,
            Verb::Restore => start::refuse_restore(&line, options)?,
            Verb::Other => {}
        }
        Ok(runtime)
    });
    let error = match prepared {
        Ok(runtime) => runtime::become_it(&runtime, &line.words),
        Err(error) => error,
    };
    runtime::tell(&line, &error);
    error
}

/// Whether a container of this `config.json` is one of ours: rewritten, or with the agent's profile.
pub fn serves(config: &Value) -> bool {
    let text = |at: &str| config.pointer(at).and_then(Value::as_str);
    rewrite::is_ours(config)
        || text("/linux/seccomp/listenerMetadata").is_some_and(agent::profile::is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn called_by_a_runtimes_name_it_is_one() {
        let of = |words: &[&str]| called(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["/usr/bin/verbgate", "run"]), None);
        assert_eq!(
            of(&["/usr/bin/verbgate-oci", "--root", "/x", "state"]).unwrap(),
            ["verbgate", "oci", "--", "--root", "/x", "state"]
        );
        assert_eq!(
            of(&["verbgate-oci-crun", "--version"]).unwrap(),
            ["verbgate", "oci", "--runtime", "crun", "--", "--version"]
        );
        assert_eq!(of(&["/opt/nri/plugins/10-verbgate"]).unwrap(), ["verbgate", "nri"]);
        assert_eq!(of(&["x-verbgate"]), None);
    }
}
