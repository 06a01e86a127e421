//! The memory of the supervisor's control group: a guest that would have the supervisor take more than the group may is told
//! so, before the kernel has the supervisor wait (`memory.high`), or ends it.
//!
//! The kernel counts all that is charged to the group: what this process takes, what its helpers take, and what the kernel
//! holds for them, such as the tmpfs of a token. So nothing here is estimated.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Files of a group, of version 2 and of version 1: what is used, and a limit; and how many sixteenths of the limit
/// may be used. Where the kernel ends who goes beyond, three quarters of what is used where it has one wait.
const FILES: [(&str, &str, u64); 2] =
    [("memory.current", "memory.high", 14), ("memory.usage_in_bytes", "memory.limit_in_bytes", 10)];

/// A control group's memory.
#[derive(Debug)]
pub struct Memory {
    used: File,
    limit: File,
    /// The file that tells how much is pages of files, which the kernel takes back before anybody waits.
    parts: File,
    sixteenths: u64,
}

impl Memory {
    /// Opens the files of a group with this directory, which bounds memory.
    ///
    /// # Errors
    /// open(2)'s.
    pub fn of(group: &Path) -> io::Result<Self> {
        let of = |(used, limit, sixteenths): (&str, &str, u64)| {
            let [used, limit, parts] =
                [used, limit, "memory.stat"].map(|file| File::open(group.join(file)));
            Ok(Self { used: used?, limit: limit?, parts: parts?, sixteenths })
        };
        of(FILES[0]).or_else(|_: io::Error| of(FILES[1]))
    }

    /// Whether no more may be taken; no, where the limit is "max".
    #[must_use]
    pub fn is_short(&self) -> bool {
        let (Some(used), Some(limit)) = (number(&self.used), number(&self.limit)) else {
            return false;
        };
        let most = limit / 16 * self.sixteenths;
        // The parts take longer to read.
        used >= most && used.saturating_sub(self.files()) >= most
    }

    fn files(&self) -> u64 {
        let mut text = vec![0; 8192];
        let n = self.parts.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(text.get(..n).unwrap_or_default());
        let of = |line: &str| {
            let (name, bytes) = line.split_once(' ')?;
            ["active_file", "inactive_file"].contains(&name).then(|| bytes.parse::<u64>().ok())?
        };
        text.lines().filter_map(of).sum()
    }
}

/// The number that a file of a control group says now.
fn number(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let n = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(text.get(..n)?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn memory_is_short_before_the_limit() {
        for (used, limit, sixteenths) in FILES {
            let group = tempfile::tempdir().unwrap();
            let write = |file: &str, text: &str| fs::write(group.path().join(file), text).unwrap();
            write(used, "0\n");
            write(limit, "16000\n");
            write("memory.stat", "anon 7\n");
            let memory = Memory::of(group.path()).unwrap();
            let is_short = |bytes: u64| {
                write(used, &format!("{bytes}\n"));
                memory.is_short()
            };
            assert!(!is_short(1000 * sixteenths - 1) && is_short(1000 * sixteenths));
            write("memory.stat", "anon 7\nactive_file 1\ninactive_file 2\n");
            assert!(!is_short(1000 * sixteenths + 2) && is_short(1000 * sixteenths + 3));
            write(limit, "max\n");
            assert!(!is_short(u64::MAX));
        }
        assert!(Memory::of(Path::new("/nonexistent")).is_err());
    }
}
