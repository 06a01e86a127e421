//! A limit of process numbers.

use std::fs;
use std::io;

/// Few process numbers, so that one is given again soon.
pub(crate) struct Few {
    /// What the machine's limit was, if it was changed.
    before: Option<String>,
}

pub(crate) const PID_MAX: &str = "/proc/sys/kernel/pid_max";

impl Few {
    pub(crate) fn new(numbers: u32, machine: bool) -> io::Result<Self> {
        if namespaces_have_their_own() || !machine {
            return Ok(Self { before: None });
        }
        let before = fs::read_to_string(PID_MAX)?;
        fs::write(PID_MAX, numbers.to_string())?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for Few {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = fs::write(PID_MAX, before.trim());
        }
    }
}

/// Since 6.14, a pid namespace has a limit of its own.
pub(crate) fn namespaces_have_their_own() -> bool {
    release() >= (6, 14)
}

/// The kernel's release, as 6 and 14.
pub(crate) fn release() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
