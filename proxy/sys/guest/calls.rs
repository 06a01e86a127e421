//! What calls of an ordinary program cost, and reads of an ordinary program's files.

use std::error::Error;
use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use rustix::thread::CpuSet;
use rustix::thread::sched_getcpu;
use rustix::thread::sched_setaffinity;

use crate::kernel::fork;

/// Calls between two looks at the clock.
const BATCH: u32 = 50;

/// Makes each call so many times; prints the median of batches, in nanoseconds a call. The file is made.
pub(crate) fn calls(path: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let count: u32 = count.parse()?;
    let options = |create: bool| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(create);
        options
    };
    let file = options(true).open(path)?;
    file.set_len(4096)?;
    let (zero, null) =
        (File::open("/dev/zero")?, OpenOptions::new().write(true).open("/dev/null")?);
    // gVisor knows FIONREAD of sockets, and of no files.
    let (socket, _other) = UnixStream::pair()?;
    let mut byte = [0_u8; 1];
    // SAFETY: a call without arguments.
    each("getppid", count, || checked(unsafe { libc::syscall(libc::SYS_getppid) }))?;
    each("read", count, || (&zero).read(&mut byte).map(drop))?;
    each("write", count, || io::Write::write(&mut &null, b".").map(drop))?;
    each("ioctl", count, || {
        let mut waiting = 0_i32;
        // SAFETY: FIONREAD writes an int into the variable.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut waiting) };
        checked(done.into())
    })?;
    each("open for reading", count, || File::open(path).map(drop))?;
    each("open for both", count, || options(false).open(path).map(drop))?;
    each("open, made and truncated", count, || options(true).open(path).map(drop))?;
    file.set_len(4096)?;
    each("mmap, private", count, || {
        // SAFETY: a mapping that nothing refers to, of a file that stays as it is.
        unsafe { memmap2::MmapOptions::new().len(4096).map_copy_read_only(&file) }.map(drop)
    })?;
    each("mmap, shared", count, || memmap2::MmapOptions::new().len(4096).map_raw(&file).map(drop))?;
    // A child that starts on another processor costs several times as much, natively, too: the scheduler would be
    // measured.
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here)?;
    each("fork", count / BATCH, || fork(|| 0)?.wait().map(drop))?;
    fs::remove_file(path)?;
    Ok(())
}

fn checked(done: libc::c_long) -> io::Result<()> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn each(
    name: &str,
    count: u32,
    mut call: impl FnMut() -> io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..(count / BATCH).max(5) {
        let begun = Instant::now();
        for _ in 0..BATCH {
            call()?;
        }
        times.push(begun.elapsed() / BATCH);
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).map_or(0, Duration::as_nanos);
    println!("{name}: {median} ns");
    Ok(())
}

/// Reads each file below the directories, as programs do (open, read until the end, close), so many
/// times; prints how many files, and how many a second the first time and at the best.
pub(crate) fn reads(rounds: &str, dirs: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for dir in dirs {
        below(Path::new(dir), &mut files)?;
    }
    let mut rates = Vec::new();
    for _ in 0..rounds.parse::<u32>()? {
        let begun = Instant::now();
        for file in &files {
            // Some can be opened and not read, natively, too.
            let _ = fs::read(file);
        }
        rates.push(f64::from(u32::try_from(files.len())?) / begun.elapsed().as_secs_f64());
    }
    let first = rates.first().copied().unwrap_or_default();
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or_default();
    println!("files {}, first {first:.0} /s, median {median:.0} /s", files.len());
    Ok(())
}

fn below(dir: &Path, files: &mut Vec<std::path::PathBuf>) -> io::Result<()> {
    let mut entries: Vec<fs::DirEntry> = fs::read_dir(dir)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            below(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}
