//! The closer: a thread of its own that closes guests' files, because each close may wait for the
//! guest.
//!
//! A close that waits for long keeps that thread, and another thread goes on with the rest.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

/// Files that may be waited for, or for their turn, before another thread helps.
const CROWD: usize = 16;
/// Threads at most: a guest that keeps so many waiting makes its own files, and others' of its
/// sandbox, stay open for longer.
const MOST_THREADS: usize = 64;

struct Closer {
    give: mpsc::Sender<OwnedFd>,
    take: Arc<Mutex<mpsc::Receiver<OwnedFd>>>,
    /// Given and not closed yet.
    open: Arc<AtomicUsize>,
    threads: AtomicUsize,
}

static CLOSER: LazyLock<Closer> = LazyLock::new(|| {
    let (give, take) = mpsc::channel();
    Closer {
        give,
        take: Arc::new(Mutex::new(take)),
        open: Arc::default(),
        threads: AtomicUsize::new(0),
    }
});

/// Has a file closed.
pub(crate) fn close(file: OwnedFd) {
    let closer = &*CLOSER;
    let open = closer.open.fetch_add(1, Ordering::AcqRel);
    // A channel whose receiver is a static does not hang up.
    let _ = closer.give.send(file);
    let threads = closer.threads.load(Ordering::Acquire);
    if threads <= open / CROWD && threads < MOST_THREADS {
        closer.threads.fetch_add(1, Ordering::AcqRel);
        let (take, open) = (Arc::clone(&closer.take), Arc::clone(&closer.open));
        let work = move || {
            loop {
                let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(file) = next else { return };
                drop(file);
                open.fetch_sub(1, Ordering::AcqRel);
            }
        };
        if let Err(e) = thread::Builder::new().name("closer".to_owned()).spawn(work) {
            closer.threads.fetch_sub(1, Ordering::AcqRel);
            log::warn!(
                "cannot start the thread that closes guests' files: {e}; the supervisor closes \
                 them later"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_is_closed() {
        let (mut read, write) = std::io::pipe().unwrap();
        close(write.into());
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(read.read(&mut [0; 1]).unwrap()));
        assert_eq!(verbgate_wait::until("the end of the pipe", || told.try_recv().ok()), 0);
    }
}
