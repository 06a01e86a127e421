//! `verbgate oci`: an OCI runtime around another one.
//!
//! For a container that asks for RDMA ([`wish`]), the bundle's `config.json` is rewritten
//! ([`rewrite`]) and a supervisor started ([`start`], [`supervisor`]); then this process comes under
//! the filter ([`under`]) and becomes the real runtime, so that its output, its exit code and what it does with signals, terminals and
//! inherited descriptors are the real ones. Every other command, and every other container, gets
//! nothing but the last step.
//!
//! What a container has lives in a directory of the host ([`place`]). The real runtime tells by
//! hooks when the container is made and when it is gone ([`hook`]).

pub(crate) mod agent;
mod exec;
mod exposed;
mod home;
mod hook;
mod inspect;
mod keeper;
mod letter;
mod line;
mod netdevs;
mod place;
mod podman;
mod rewrite;
mod runtime;
mod show;
mod shown;
mod start;
mod supervisor;
mod under;
mod wish;

use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use clap::Parser;
use serde_json::Value;

use self::agent::profile::ProfileArgs;
pub(crate) use self::hook::HookArgs;
pub(crate) use self::hook::run as hook;
pub(crate) use self::inspect::GcArgs;
pub(crate) use self::inspect::InspectArgs;
pub(crate) use self::inspect::gc;
pub(crate) use self::inspect::ps;
pub(crate) use self::keeper::KeeperArgs;
pub(crate) use self::keeper::keep;
use self::line::Line;
use self::line::Verb;
pub(crate) use self::show::ShowArgs;
pub(crate) use self::show::StatsArgs;
pub(crate) use self::show::show;
pub(crate) use self::show::stats;
pub(crate) use self::supervisor::run as supervise;
use crate::cli::Global;
use crate::cli::SysfsOf;
use crate::failure::Failure;
use verbgate_netdev::journal::STATE_DIR;

/// The hidden command that hooks give.
pub(crate) const HOOK: &str = "oci-hook";
/// The hidden command of supervisors.
pub(crate) const SUPERVISOR: &str = "oci-supervisor";

/// The hidden command of what moves NICs.
pub(crate) const KEEPER: &str = "oci-netdevs";

/// The command that is ours and no runtime's.
const PROFILE: &str = "profile";

/// A name by which this program is an OCI runtime, for engines that can be told a path and no
/// arguments; what follows it names the real one, as in `verbgate-oci-crun`.
const CALLED: &str = "verbgate-oci";

#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(after_help = "The arguments are those of the real runtime, and so are output and exit \
                        code. Engines take this program as a runtime by the name verbgate-oci: \
                        make a link of that name, or verbgate-oci-crun, verbgate-oci-runc. \
                        `verbgate oci profile` prints the seccomp profile for `verbgate agent`.")]
pub(crate) struct OciArgs {
    /// The real runtime: a path, or a name to look for in PATH [default: runc, else crun]
    #[arg(long, value_name = "RUNTIME")]
    pub(crate) runtime: Option<OsString>,
    /// What containers may ask for, unless their annotation org.verbgate.profile says less:
    /// standard, hpc or full
    #[arg(long, value_name = "NAME", default_value = "standard")]
    pub(crate) profile: String,
    /// What containers see as /sys: their own devices and what is around them, or what the real
    /// runtime mounts there
    #[arg(long, value_name = "WHICH", default_value = "virtual")]
    pub(crate) sysfs: SysfsOf,
    /// Have a character device stand for an RDMA device, for tests; may be repeated
    #[arg(long, value_name = "uverbsN=PATH")]
    pub(crate) stand_in: Vec<OsString>,
    /// Directory for the journals of NICs that are in containers; it must outlive a reboot
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Read sysfs here, to find NICs of RDMA devices; for tests
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    pub(crate) sysfs_root: PathBuf,
    /// The real runtime's arguments
    #[arg(value_name = "RUNTIME-ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct SupervisorArgs {
    /// The container's directory
    pub(crate) place: PathBuf,
    /// The process that is, or becomes, the real runtime
    pub(crate) runtime: i32,
}

/// The arguments as they would be with `oci`, when this program is called by a runtime's name.
pub(crate) fn called(args: &[OsString]) -> Option<Vec<OsString>> {
    let name = Path::new(args.first()?).file_name()?.to_str()?.strip_prefix(CALLED)?.to_owned();
    let mut all: Vec<OsString> = vec!["verbgate".into(), "oci".into()];
    if let Some(runtime) = name.strip_prefix('-') {
        all.extend(["--runtime".into(), runtime.into()]);
    }
    all.push("--".into());
    all.extend(args.iter().skip(1).cloned());
    Some(all)
}

/// Becomes the real runtime; returns only why that could not be.
pub(crate) fn run(args: &OciArgs, global: &Global) -> Result<u8, Failure> {
    if args.args.first().is_some_and(|word| word == PROFILE) {
        return match ProfileArgs::try_parse_from(&args.args) {
            Ok(args) => agent::profile::print(&args).map_err(Failure::of_tool),
            Err(error) => Ok(crate::cli::complain(&error, "oci profile ", crate::cli::EXIT_USAGE)),
        };
    }
    let mut line = Line::parse(&args.args);
    let prepared = runtime::find(args.runtime.as_deref()).and_then(|runtime| {
        match line.verb {
            Verb::Create | Verb::Run => start::prepare(&line, args, global)?,
            Verb::Start => exec::start(&line, global)?,
            Verb::Exec => exec::prepare(&mut line, global)?,
            Verb::Delete => start::forget_dead(&line, global)?,
            Verb::Other => {}
        }
        Ok(runtime)
    });
    let error = match prepared {
        Ok(runtime) => runtime::become_it(&runtime, &line.words),
        Err(error) => error,
    };
    runtime::tell(&line, &error);
    Err(Failure::of_tool(error))
}

/// An error before the command line is understood, which the engine reads where it told the runtime
/// to write.
pub(crate) fn untimely(args: &[OsString], error: anyhow::Error) -> Failure {
    let after = args.iter().position(|word| word == "--").map_or(args.len(), |at| at + 1);
    runtime::tell(&Line::parse(args.get(after..).unwrap_or_default()), &error);
    Failure::of_tool(error)
}

/// Whether a container of this `config.json` is one of ours: rewritten, or with the agent's profile.
pub(crate) fn serves(config: &Value) -> bool {
    let text = |at: &str| config.pointer(at).and_then(Value::as_str);
    rewrite::is_ours(config)
        || text("/linux/seccomp/listenerMetadata").is_some_and(agent::profile::is_ours)
}

/// A container's id as a name in a directory.
fn name_of(line: &Line) -> Result<Option<String>, anyhow::Error> {
    let Some(id) = line.id() else { return Ok(None) };
    match id.to_str() {
        Some(text) if !text.contains('/') && !text.starts_with('.') && !text.is_empty() => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(anyhow!(
            "container id {}: it must be text without \"/\", and not begin with \".\"",
            id.display()
        )),
    }
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
    }
}
