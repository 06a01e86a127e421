//! What the models of NICs say of themselves, for who works on one: the file that `VERBGATE_NIC_LOG` names gets
//! each command of a driver, and each thing that a model does not know.

use std::fs::File;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use log::LevelFilter;
use log::Log;
use log::Metadata;
use log::Record;

/// Names the file.
const VARIABLE: &str = "VERBGATE_NIC_LOG";

/// The file, and when it was opened.
struct Diary {
    file: Mutex<File>,
    began: Instant,
}

static DIARY: OnceLock<Diary> = OnceLock::new();

impl Log for Diary {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("verbgate_nic")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = format!(
            "{:9.3} {:5} {}: {}\n",
            self.began.elapsed().as_secs_f64(),
            record.level(),
            record.target(),
            record.args()
        );
        // A diary that cannot be written does not end what it is about.
        if let Ok(mut file) = self.file.lock() {
            let _ = file.write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// Begins the diary, if one is wanted and none is open.
pub(crate) fn open() -> Result<()> {
    let Some(path) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let file = File::create(&path)
        .with_context(|| format!("{VARIABLE}: cannot write {}", path.display()))?;
    let diary = DIARY.get_or_init(|| Diary { file: Mutex::new(file), began: Instant::now() });
    // Fails if there is a logger already, which is this one or the caller's.
    if log::set_logger(diary).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
    Ok(())
}
