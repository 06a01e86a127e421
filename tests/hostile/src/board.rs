//! A page that all processes of a world share: who is ready, and who has waited for how long.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::raw::PAGE;
use crate::raw::mmap;
use crate::raw::within;

/// What a word of the board means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Word {
    /// The attack may begin.
    Go,
    /// The attacker has ended: its code plus one.
    AttackerDone,
    /// An attack that goes on has begun.
    InEffect,
    /// Four words of each meter: requests, the worst, the beginning of the present one, ready.
    Inside,
    /// The bystander of another sandbox.
    Outside = 8,
    /// The canary's: ready, changed, where, what.
    Canary = 12,
    /// The canary that has a number which the attacker freed.
    Heir = 16,
    /// A file server is to answer no more of these operations (bits).
    Silent = 20,
    /// How many it has left without an answer.
    Unanswered,
    /// A descriptor of `/dev/userfaultfd` that the attacker inherits.
    Faults,
    /// A number that was freed, for the world outside to take.
    Freed,
    /// Of the attacks themselves.
    Mine = 32,
}

/// The board, mapped for good.
#[derive(Clone, Copy)]
pub(crate) struct Board(&'static [AtomicU64]);

impl Board {
    /// Far from all else: what a guest writes at random does not come here.
    const PLACE: u64 = 0x2a5a_5a5a_0000;

    /// Makes the file, for everybody to write.
    pub(crate) fn make(dir: &str) -> io::Result<Self> {
        let path = Path::new(dir).join("board");
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o666).open(&path)?;
        file.set_len(PAGE)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o666))?;
        Self::open(dir)
    }

    pub(crate) fn open(dir: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(Path::new(dir).join("board"))?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let at = mmap(Self::PLACE, PAGE, prot, flags, file.as_raw_fd())?;
        let at = std::ptr::with_exposed_provenance::<AtomicU64>(at as usize);
        // SAFETY: a page of shared memory that is never unmapped, or only for the same page; every process uses it as atomic
        // words, and zeros are such.
        Ok(Self(unsafe { std::slice::from_raw_parts(at, (PAGE / 8) as usize) }))
    }

    pub(crate) fn at(&self, word: Word, offset: usize) -> &AtomicU64 {
        &self.0[word as usize + offset]
    }

    pub(crate) fn get(&self, word: Word) -> u64 {
        self.at(word, 0).load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, word: Word, value: u64) {
        self.at(word, 0).store(value, Ordering::SeqCst);
    }

    /// A word of the attack's own.
    pub(crate) fn mine(&self, offset: usize) -> u64 {
        self.at(Word::Mine, offset).load(Ordering::SeqCst)
    }

    pub(crate) fn set_mine(&self, offset: usize, value: u64) {
        self.at(Word::Mine, offset).store(value, Ordering::SeqCst);
    }

    /// Adds to a word of the attack's own.
    pub(crate) fn add_mine(&self, offset: usize, value: u64) {
        self.at(Word::Mine, offset).fetch_add(value, Ordering::Relaxed);
    }

    /// Waits for a word that is not zero, for a bounded time.
    pub(crate) fn wait(&self, word: Word, patience: Duration) -> bool {
        within(patience, || self.get(word) != 0)
    }

    pub(crate) fn meter(&self, word: Word) -> Meter {
        Meter(&self.0[word as usize..word as usize + 4])
    }
}

/// Nanoseconds of a clock that all processes share.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How long the requests of a bystander take.
#[derive(Clone, Copy)]
pub(crate) struct Meter(&'static [AtomicU64]);

impl Meter {
    pub(crate) fn begin(&self) {
        self.0[2].store(now(), Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        let begun = self.0[2].swap(0, Ordering::SeqCst);
        let took = now().saturating_sub(begun);
        self.0[1].fetch_max(took, Ordering::SeqCst);
        self.0[0].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn ready(&self) {
        self.0[1].store(0, Ordering::SeqCst);
        self.0[3].store(1, Ordering::SeqCst);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0[3].load(Ordering::SeqCst) != 0
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0[0].load(Ordering::SeqCst)
    }

    /// The longest request since the last call, the present one included.
    pub(crate) fn take_worst(&self) -> Duration {
        let worst = self.0[1].swap(0, Ordering::SeqCst);
        let begun = self.0[2].load(Ordering::SeqCst);
        let present = if begun == 0 { 0 } else { now().saturating_sub(begun) };
        Duration::from_nanos(worst.max(present))
    }
}
