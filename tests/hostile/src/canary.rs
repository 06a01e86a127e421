//! An innocent process outside of every sandbox: its memory must stay as it is.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use crate::board::Board;
use crate::board::Word;
use crate::raw::PAGE;
use crate::raw::memory;
use crate::raw::peek;
use crate::raw::poke;
use crate::raw::sleep;

/// Where its memory is, and where attackers put requests: what is meant for the memory of one
/// must not be written into that of the other.
pub(crate) const PLACE: u64 = 0x1000_0000;
pub(crate) const LEN: u64 = 4 * PAGE;

fn pattern(word: u64) -> u64 {
    (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Looks at its memory for ever.
pub(crate) fn watch(dir: &str, which: &str) -> io::Result<u8> {
    let board = Board::open(dir)?;
    let word = if which == "heir" { Word::Heir } else { Word::Canary };
    let _files = [File::open("/dev/null")?, File::open(dir)?];
    memory(Some(PLACE), LEN)?;
    (0..LEN / 8).for_each(|n| poke(PLACE + 8 * n, pattern(n)));
    board.at(word, 0).store(1, Ordering::SeqCst);
    loop {
        if let Some(n) = (0..LEN / 8).find(|n| peek(PLACE + 8 * n) != pattern(*n)) {
            board.at(word, 2).store(PLACE + 8 * n, Ordering::SeqCst);
            board.at(word, 3).store(peek(PLACE + 8 * n), Ordering::SeqCst);
            board.at(word, 1).store(1, Ordering::SeqCst);
        }
        sleep(1);
    }
}

/// What is wrong with a canary's memory, if anything.
pub(crate) fn changed(board: &Board, word: Word) -> Option<String> {
    let get = |n| board.at(word, n).load(Ordering::SeqCst);
    (get(1) != 0).then(|| format!("its word at {:#x} is now {:#018x}", get(2), get(3)))
}

/// What a process has and is: its descriptors, namespaces and rights.
pub(crate) fn possessions(pid: i32) -> io::Result<Vec<String>> {
    let mut all = Vec::new();
    for part in ["fd", "ns"] {
        for entry in std::fs::read_dir(format!("/proc/{pid}/{part}"))? {
            let path = entry?.path();
            all.push(format!("{} {}", path.display(), std::fs::read_link(&path)?.display()));
        }
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kept = [
        "Uid:",
        "Gid:",
        "Groups:",
        "CapEff:",
        "CapPrm:",
        "NoNewPrivs:",
        "Seccomp:",
        "TracerPid:",
        "SigCgt:",
    ];
    all.extend(status.lines().filter(|l| kept.iter().any(|k| l.starts_with(k))).map(str::to_owned));
    all.sort();
    Ok(all)
}
