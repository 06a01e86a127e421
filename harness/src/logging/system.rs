//! The system's log: the journal of systemd where there is one, else syslog.
//!
//! No crate does this: crates send by sendto(2), which a confined supervisor may not call. The
//! socket is connected before the confinement, and a datagram is written by write(2). The socket
//! outlives restarts of journald, because systemd holds the other end.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use log::Level;
use log::LevelFilter;
use log::Log;
use log::Metadata;
use log::Record;

use super::level_of;
use super::line;

/// The journal's native protocol: systemd's JOURNAL_NATIVE_PROTOCOL.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// syslog(3).
const SYSLOG: &str = "/dev/log";
/// The facility of daemons: RFC 5424, 6.2.1.
const DAEMON: u8 = 3;
/// Who logs.
const NAME: &str = "verbgate";

/// How an event is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineFormat {
    Journal,
    Syslog,
}

/// The system's log, as one process writes to it.
#[derive(Debug)]
pub(super) struct System {
    format: LineFormat,
    socket: File,
    /// The container that is logged about.
    about: String,
    /// The level that the options ask for.
    level: LevelFilter,
}

impl System {
    /// Finds it; `None` where there is none.
    pub(super) fn reach(place: &Path, level: LevelFilter) -> Option<Self> {
        [(LineFormat::Journal, JOURNAL), (LineFormat::Syslog, SYSLOG)]
            .into_iter()
            .find_map(|(format, path)| Self::at(format, Path::new(path), place, level))
    }

    fn at(format: LineFormat, path: &Path, place: &Path, level: LevelFilter) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(path).ok()?;
        // A log that is full is no reason to wait.
        socket.set_nonblocking(true).ok()?;
        let about = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Some(Self { format, socket: File::from(OwnedFd::from(socket)), about, level })
    }

    fn datagram(&self, record: &Record<'_>) -> Vec<u8> {
        let (severity, text) =
            (severity(record.level()), format!("{}: {}", self.about, line(record)));
        // A line stays a line.
        let text = text.replace('\n', " ");
        let pid = std::process::id();
        match self.format {
            LineFormat::Journal => format!(
                "MESSAGE={text}\nPRIORITY={severity}\nSYSLOG_IDENTIFIER={NAME}\n\
                 SYSLOG_PID={pid}\nVERBGATE_CONTAINER={}\n",
                self.about.replace('\n', " ")
            ),
            LineFormat::Syslog => format!("<{}>{NAME}[{pid}]: {text}", DAEMON * 8 + severity),
        }
        .into_bytes()
    }
}

/// syslog(3)'s levels.
fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

impl Log for System {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= level_of(metadata.target(), self.level)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // Nobody is left to be told.
            let _ = (&self.socket).write(&self.datagram(record));
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_arrives_as_each_log_wants_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = UnixDatagram::bind(&path).unwrap();
        let pid = std::process::id();
        for (format, want) in [
            (
                LineFormat::Journal,
                format!(
                    "MESSAGE=c1: warn: a b\nPRIORITY=4\nSYSLOG_IDENTIFIER=verbgate\n\
                     SYSLOG_PID={pid}\nVERBGATE_CONTAINER=c1\n"
                ),
            ),
            (LineFormat::Syslog, format!("<28>verbgate[{pid}]: c1: warn: a b")),
        ] {
            let system =
                System::at(format, &path, Path::new("/run/verbgate/oci/c1"), LevelFilter::Info);
            let system = system.unwrap();
            let record = |target, args| {
                system.datagram(
                    &Record::builder().level(Level::Warn).target(target).args(args).build(),
                )
            };
            let bytes = record("verbgate", format_args!("a\nb"));
            (&system.socket).write_all(&bytes).unwrap();
            let mut got = [0; 512];
            let len = log.recv(&mut got).unwrap();
            assert_eq!(String::from_utf8_lossy(&got[..len]), want);
            for (target, level, want) in [
                ("verbgate", Level::Info, true),
                ("verbgate", Level::Debug, false),
                ("fuser::session", Level::Error, true),
                ("fuser::session", Level::Warn, false),
                ("fuser::reply", Level::Error, false),
            ] {
                let metadata = Metadata::builder().target(target).level(level).build();
                assert_eq!(system.enabled(&metadata), want, "{target} at {level}");
            }
        }
        let nowhere = dir.path().join("nothing");
        assert!(System::at(LineFormat::Syslog, &nowhere, dir.path(), LevelFilter::Error).is_none());
    }
}
