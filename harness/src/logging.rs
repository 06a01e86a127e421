//! The log: one line per event, to standard error or a file.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::SystemTime;

use anyhow::anyhow;
use env_logger::Target;
use log::kv::Key;
use log::kv::Value;
use log::kv::VisitSource;

use crate::cli::Global;
use crate::cli::LogFormat;
use crate::failure::Failure;

/// Fields for programs: a line for people says the same in its text.
const SAID: [&str; 2] = ["kind", "unsaid"];

/// Starts logging as the global options say.
pub(crate) fn start(global: &Global) -> Result<(), Failure> {
    let mut builder = env_logger::Builder::new();
    builder.filter_level(global.log_level);
    // It writes a line for whatever a guest asks of a file system that it knows no answer to.
    builder.filter_module("fuser", global.log_level.min(log::LevelFilter::Error));
    match global.log_format {
        LogFormat::Text => builder.format(|out, record| {
            let level = record.level().as_str().to_ascii_lowercase();
            write!(out, "verbgate: {level}: {}", record.args())?;
            for (key, value) in fields(record) {
                if !SAID.contains(&&*key) {
                    write!(out, " {key}={value}")?;
                }
            }
            writeln!(out)
        }),
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
    if let Some(path) = &global.log {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|e| anyhow!("cannot open the log file {}: {e}", path.display()))?;
        builder.target(Target::Pipe(Box::new(file)));
    }
    builder.try_init()?;
    Ok(())
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
