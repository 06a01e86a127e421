//! This program, to be executed again.

use std::env;
use std::io;
use std::path::PathBuf;

/// This program's file, for a process that this one starts. A package's upgrade may have replaced the file since
/// this process began: then the link to the old one, which is there as long as the process (proc_pid_exe(5)).
///
/// # Errors
/// readlink(2)'s, without `/proc`.
pub fn own() -> io::Result<PathBuf> {
    const LINK: &str = "/proc/self/exe";
    let path = env::current_exe()?;
    Ok(if path.exists() { path } else { LINK.into() })
}
