//! Files that others made, or could have made: none keeps a reader waiting, none fills a reader's memory, and where
//! the text decides something, only the right owner can have written it.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// No file that Verbgate reads is larger.
pub const MOST: u64 = 16 << 20;

/// The user whom a user namespace shows in the place of one that it does not have, as the host's root:
/// user_namespaces(7). Nothing is granted in such a namespace.
const UNMAPPED: u32 = 65534;
/// The number of the initial user namespace: PROC_USER_INIT_INO, include/linux/proc_ns.h.
const INITIAL: u64 = 0xEFFF_FFFD;

fn is_in_user_namespace() -> bool {
    fs::metadata("/proc/self/ns/user").is_ok_and(|meta| meta.ino() != INITIAL)
}

/// Who must own a file, and be the only one who can write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This user.
    User(u32),
    /// Root, or the calling user.
    Trusted,
    /// Anybody, for a file whose text decides nothing here.
    Anybody,
}

impl Owner {
    /// The owner and the permission bits of an open file or directory that somebody else than this owner could have
    /// written.
    ///
    /// # Errors
    /// fstat(2)'s.
    pub fn stranger(self, file: &File) -> io::Result<Option<(u32, u32)>> {
        let meta = file.metadata()?;
        let is_right = match self {
            Self::User(wanted) => meta.uid() == wanted,
            Self::Trusted => {
                let own = rustix::process::geteuid().as_raw();
                meta.uid() == 0
                    || meta.uid() == own
                    || meta.uid() == UNMAPPED && is_in_user_namespace()
            }
            Self::Anybody => return Ok(None),
        };
        let is_right = is_right && meta.mode() & 0o022 == 0;
        Ok((!is_right).then_some((meta.uid(), meta.mode() & 0o7777)))
    }
}

/// Opens a regular file as these options say, or makes the file if they say so. Nothing is waited for, as the opening
/// of a named pipe waits for the other end.
///
/// # Errors
/// The kernel's; and what the path names is no regular file, or not the owner's alone.
pub fn open(path: &Path, options: &mut OpenOptions, owner: Owner) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file; put one in its place"));
    }
    match owner.stranger(&file)? {
        None => Ok(file),
        Some((uid, mode)) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "it belongs to user {uid} and has mode {mode:04o}, so others could have written it; run chown root and \
                 chmod go-w on it"
            ),
        )),
    }
}

/// Reads such a file.
///
/// # Errors
/// Those of [`open`]; and a file that is longer than [`MOST`].
pub fn read(path: &Path, owner: Owner) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A pipe that the caller's shell has opened, for whom the caller waits.
    let is_own = ["/dev/fd", "/proc/self/fd", "/dev/stdin"].iter().any(|own| path.starts_with(own));
    let file = match owner {
        Owner::Anybody if is_own => File::open(path)?,
        _ => open(path, OpenOptions::new().read(true), owner)?,
    };
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::Error::other(format!("it is longer than {MOST} bytes")));
    }
    Ok(bytes)
}

/// Reads such a file as text.
///
/// # Errors
/// Those of [`read`]; and bytes that are no text.
pub fn read_text(path: &Path, owner: Owner) -> io::Result<String> {
    String::from_utf8(read(path, owner)?)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("it is no text: {e}")))
}

/// Opens a file for lines, as a log's, wherever the operator wants them: a terminal, too. A named pipe that nobody
/// reads is an error, and one that is full loses lines: who writes a log waits for nobody.
///
/// # Errors
/// The kernel's.
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(mode).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_neither_waited_for_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        for path in [&*pipe, dir.path(), Path::new("/dev/zero"), Path::new("/dev/tty")] {
            let error = read(path, Owner::Anybody).unwrap_err().to_string();
            assert!(
                error.contains("no regular file") || path.ends_with("tty"),
                "{path:?}: {error}"
            );
        }
        assert!(append(&pipe, 0o600).is_err());
        let log = dir.path().join("log");
        for _ in 0..2 {
            io::Write::write_all(&mut append(&log, 0o600).unwrap(), b"line\n").unwrap();
        }
        assert_eq!(read_text(&log, Owner::Trusted).unwrap(), "line\nline\n");
    }

    #[test]
    fn a_file_of_a_stranger_or_without_an_end_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "text").unwrap();
        let user = rustix::process::geteuid().as_raw();
        for owner in [Owner::User(user), Owner::Trusted, Owner::Anybody] {
            assert_eq!(read_text(&file, owner).unwrap(), "text");
        }
        let refused = |owner: Owner, word: &str| {
            let error = read(&file, owner).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        };
        refused(Owner::User(user + 1), "belongs to user");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o662)).unwrap();
        refused(Owner::Trusted, "mode 0662");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        if chown(&file, Some(user + 1), None).is_ok() {
            refused(Owner::Trusted, "belongs to user");
        }
        File::options().write(true).open(&file).unwrap().set_len(MOST + 1).unwrap();
        refused(Owner::Anybody, "longer than");
        fs::write(&file, [0xff]).unwrap();
        assert!(read_text(&file, Owner::Anybody).unwrap_err().to_string().contains("no text"));
    }
}
