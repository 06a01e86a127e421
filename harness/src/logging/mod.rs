//! The log: one line per event, to standard error, a file, or the system's log.

mod system;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::anyhow;
use env_logger::Target;
use log::LevelFilter;
use log::kv::Key;
use log::kv::Value;
use log::kv::VisitSource;

use self::system::System;
use verbgate_sys::foreign;

use crate::cli::Global;
use crate::cli::LogFormat;
use crate::failure::Failure;

/// Fields for programs: a line for people says the same in its text.
const SAID: [&str; 2] = ["kind", "unsaid"];

/// The FUSE library.
const FUSER: &str = "fuser";

/// The module of the FUSE library that answers the kernel.
const REPLY: &str = "fuser::reply";

/// The options by which a process that this one starts logs as this one.
static OPTIONS: OnceLock<Vec<OsString>> = OnceLock::new();

/// See [`OPTIONS`]; none before the log is started.
pub(crate) fn options() -> &'static [OsString] {
    OPTIONS.get().map_or(&[], Vec::as_slice)
}

/// Starts logging as the global options say. A process alone, for a container of this directory,
/// writes to the system's log where no file is given: nobody reads its standard error. Containers depend on no log: with
/// `anyway`, a file that cannot be opened is no error, and the answer says why.
pub(crate) fn start(
    global: &Global,
    alone: Option<&Path>,
    anyway: bool,
) -> Result<Option<anyhow::Error>, Failure> {
    let _ = OPTIONS.set(options_of(global)?);
    let mut file = None;
    let mut missing = None;
    if let Some(path) = &global.log {
        match foreign::append(path, 0o666) {
            Ok(opened) => file = Some(opened),
            Err(e) => {
                let error = anyhow!("cannot open the log file {}: {e}", path.display());
                if !anyway {
                    return Err(error.into());
                }
                missing = Some(error);
            }
        }
    }
    if let (Some(place), None) = (alone, &file)
        && let Some(system) = System::reach(place, global.log_level)
    {
        log::set_boxed_logger(Box::new(system))?;
        log::set_max_level(global.log_level);
        return Ok(missing);
    }
    let mut builder = env_logger::Builder::new();
    builder.filter_level(global.log_level);
    for module in [FUSER, REPLY] {
        builder.filter_module(module, level_of(module, global.log_level));
    }
    match global.log_format {
        LogFormat::Text => {
            builder.format(|out, record| writeln!(out, "verbgate: {}", line(record)))
        }
        LogFormat::Json => builder.format(|out, record| {
            let line = serde_json::json!({
                "time": seconds_since_epoch(),
                "level": record.level().as_str().to_ascii_lowercase(),
                "target": record.target(),
                "msg": record.args().to_string(),
                "fields": fields(record),
            });
            writeln!(out, "{line}")
        }),
    };
    if let Some(file) = file {
        builder.target(Target::Pipe(Box::new(file)));
    }
    builder.try_init()?;
    Ok(missing)
}

/// The level up to which a module logs, where the options ask for `level`.
fn level_of(target: &str, level: LevelFilter) -> LevelFilter {
    if target.starts_with(REPLY) && level < LevelFilter::Debug {
        // The module writes an error for each answer to a program that was killed meanwhile.
        LevelFilter::Off
    } else if target.starts_with(FUSER) {
        // The library's warnings describe requests, which a guest makes as often as it likes.
        level.min(LevelFilter::Error)
    } else {
        level
    }
}

fn options_of(global: &Global) -> Result<Vec<OsString>, std::io::Error> {
    let mut all = Vec::new();
    if let Some(path) = &global.log {
        all.extend(["--log".into(), std::path::absolute(path)?.into_os_string()]);
    }
    all.extend(["--log-level", global.log_level.as_str()].map(Into::into));
    let format = match global.log_format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    all.extend(["--log-format", format].map(Into::into));
    Ok(all)
}

/// An event as a line for people.
fn line(record: &log::Record<'_>) -> String {
    let level = record.level().as_str().to_ascii_lowercase();
    let fields = fields(record).into_iter().filter(|(key, _)| !SAID.contains(&key.as_str()));
    let fields = fields.map(|(key, value)| format!(" {key}={value}"));
    format!("{level}: {}{}", record.args(), fields.collect::<String>())
}

fn seconds_since_epoch() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Structured fields of an event, by name.
fn fields(record: &log::Record<'_>) -> BTreeMap<String, String> {
    struct Collect(BTreeMap<String, String>);
    impl<'kvs> VisitSource<'kvs> for Collect {
        fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
            self.0.insert(key.to_string(), value.to_string());
            Ok(())
        }
    }
    let mut collect = Collect(BTreeMap::new());
    // Collecting never fails.
    let _ = record.key_values().visit(&mut collect);
    collect.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_fuse_library_the_module_that_answers_is_silent_below_debug() {
        for (target, level, want) in [
            (REPLY, LevelFilter::Info, LevelFilter::Off),
            (REPLY, LevelFilter::Debug, LevelFilter::Error),
            ("fuser::session", LevelFilter::Error, LevelFilter::Error),
            ("fuser::session", LevelFilter::Info, LevelFilter::Error),
            (FUSER, LevelFilter::Debug, LevelFilter::Error),
            ("verbgate", LevelFilter::Debug, LevelFilter::Debug),
        ] {
            assert_eq!(level_of(target, level), want, "{target} at {level}");
        }
    }
}
