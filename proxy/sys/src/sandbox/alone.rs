//! A process that is nobody's child.

use std::io;

use nix::unistd::ForkResult;

/// Goes on as a process whose parent has ended: who started the calling process, and waits for all
/// of its children, such as an OCI runtime, does not wait for this one.
///
/// To be called before the process has started a thread.
///
/// # Errors
/// fork(2)'s; `Other` when there are threads.
pub fn leave_parent() -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("the process has {threads} threads already")));
    }
    // SAFETY: the process has one thread (checked above), so no lock is held by a thread that the
    // child misses.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Child => Ok(()),
        ForkResult::Parent { .. } => {
            // SAFETY: ends the process at once; nothing of it is used afterwards. Handlers of
            // exit(3) are the child's business.
            unsafe { libc::_exit(0) }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_with_threads_stays() {
        // The test runner itself has more than one thread.
        assert!(super::leave_parent().unwrap_err().to_string().contains("threads"));
    }
}
