//! An attack: threads that change a request's bytes while the request is on its way.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use verbgate_sys::control;
use verbgate_sys::stub;

use super::regions;
use crate::cases::create_qp;
use crate::cases::destroy;
use crate::cases::object;
use crate::kernel::addr;
use crate::kernel::addr_mut;
use crate::kernel::call;
use crate::kernel::dup2;
use crate::kernel::int;
use crate::kernel::outcome;
use crate::kernel::peek;
use crate::kernel::pipe;
use crate::kernel::poke;
use crate::raw;
use crate::raw::RDMA_VERBS_IOCTL;
use crate::raw::Request;

/// Enough for every interleaving that matters to occur, few enough for a test.
const MANY: u32 = 20_000;

/// Runs `racer` in a loop beside `work`.
fn beside<T>(racer: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                racer();
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// How so many calls ended, as `ENOTTY 3, EBADF 1`.
fn tally(count: u32, mut make: impl FnMut() -> io::Result<u64>) -> BTreeMap<String, u32> {
    let mut ends = BTreeMap::new();
    for _ in 0..count {
        *ends.entry(outcome(&make()).to_string()).or_default() += 1;
    }
    ends
}

fn print(what: &str, ends: &BTreeMap<String, u32>) {
    let ends: Vec<String> = ends.iter().map(|(end, count)| format!("{end} {count}")).collect();
    println!("{what}: {}", ends.join(", "));
}

fn ioctl(fd: RawFd, at: u64) -> io::Result<u64> {
    call(libc::SYS_ioctl, &[int(fd), RDMA_VERBS_IOCTL, at])
}

/// A thread overwrites all of the frame that can be written, while this one makes requests and
/// another process does, too.
pub(super) fn scribble(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    let mut out = [0_u64; 2];
    let mut good = raw::query_context(&mut out);
    let _ = good.send(fd);
    let (_, scratch) =
        regions().into_iter().find(|(name, _)| *name == "scratch").ok_or("no scratch")?;
    let bystander = crate::kernel::fork(|| bystander(device).map_or(2, i32::from))?;
    let word = AtomicU64::new(1);
    let overwrite = || {
        let word = word.fetch_add(0x0101_0101_0101_0101, Ordering::Relaxed);
        // The array's tail and the outputs are at the start; the rest less often.
        for _ in 0..64 {
            (0..2048).for_each(|at| poke(scratch.start + at * 8, word));
        }
        (0..scratch.len / 8).for_each(|at| poke(scratch.start + at * 8, word));
    };
    let ends = beside(overwrite, || {
        tally(MANY, || {
            let mut out = [0_u64; 2];
            raw::query_context(&mut out).send(fd).map(|_| 0)
        })
    });
    print("racer", &ends);
    println!("bystander: {:?}", bystander.wait()?);
    Ok(())
}

/// Whether a process that nobody disturbs finds anything of its requests changed.
fn bystander(device: &str) -> io::Result<bool> {
    let file = raw::open(device)?;
    let mut disturbed = false;
    for _ in 0..MANY / 4 {
        let mut out = [7_u64; 2];
        let mut request = raw::query_context(&mut out);
        let before = request.words.clone();
        let ended = request.send(file.as_raw_fd());
        let refused = ended.is_err_and(|e| e.raw_os_error() == Some(libc::ENOTTY));
        disturbed |= !refused || request.words != before || out != [7; 2];
    }
    Ok(disturbed)
}

/// A thread puts other files in the descriptor's place.
pub(super) fn swap(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    let kept = file.try_clone()?;
    let other = raw::open(device)?;
    let plain = File::open("/proc/self/status")?;
    let (reader, _writer) = pipe()?;
    let mut out = [0_u64; 2];
    let good = raw::query_context(&mut out);
    let others = [plain.as_raw_fd(), other.as_raw_fd(), reader.as_raw_fd(), kept.as_raw_fd()];
    let swap = || {
        for other in others {
            let _ = dup2(other, fd);
        }
        let _ = call(libc::SYS_close, &[int(fd)]);
        let _ = dup2(kept.as_raw_fd(), fd);
    };
    let ends = beside(swap, || tally(MANY / 2, || ioctl(fd, addr(good.words.as_slice()))));
    print("racer", &ends);
    dup2(kept.as_raw_fd(), fd)?;
    print("after", &tally(1, || ioctl(fd, addr(good.words.as_slice()))));
    Ok(())
}

/// Two requests take turns at one address, of which only one is granted.
fn flip(
    fd: RawFd,
    granted: &Request,
    refused: &Request,
    seen: &AtomicBool,
) -> BTreeMap<String, u32> {
    let mut turns: Vec<u64> = granted.words.clone();
    let at = addr_mut(turns.as_mut_slice());
    let frame = regions().into_iter().find(|(name, _)| *name == "frame").map(|(_, m)| m.start);
    let header = frame.map(|start| start + stub::request_offset(stub::INPUTS) as u64);
    let watch = || {
        // Object and method are in the first word, unaligned.
        let Some(header) = header else { return };
        let low = peek(header & !7);
        let high = peek((header & !7) + 8);
        let word = low >> ((header & 7) * 8) | high << (64 - (header & 7) * 8);
        let object_and_method = |word: u64| word >> 16 & 0xffff_ffff;
        if object_and_method(word) == object_and_method(refused.words[0]) {
            seen.store(true, Ordering::Relaxed);
        }
    };
    let write = || {
        for request in [refused, granted] {
            request.words.iter().zip((at..).step_by(8)).for_each(|(word, at)| poke(at, *word));
            watch();
        }
    };
    beside(write, || tally(MANY, || ioctl(fd, at)))
}

/// The method changes: from one that is granted to one that is not.
pub(super) fn flip_method(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    // They differ in the first word alone.
    let (granted, refused) = (destroy(object::PD), destroy(object::COUNTERS));
    let _ = granted.clone().send(file.as_raw_fd());
    let seen = AtomicBool::new(false);
    let ends = flip(file.as_raw_fd(), &granted, &refused, &seen);
    print("racer", &ends);
    println!("seen in the frame: {}", seen.load(Ordering::Relaxed));
    Ok(())
}

/// The type of a queue pair changes, in an input behind a pointer.
pub(super) fn flip_payload(device: &str) -> Result<(), Box<dyn Error>> {
    const RC: u8 = 2;
    const RAW_PACKET: u8 = 8;
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    let mut answer = [0; 32];
    let mut request = create_qp(RC, &mut answer);
    let _ = request.send(fd);
    // The type is the second byte of the seventh word of the input.
    let type_at = request.words[4] + 48;
    let word = |qp_type: u8| u64::from(qp_type) << 40;
    let frame = regions().into_iter().find(|(name, _)| *name == "frame").map(|(_, m)| m);
    let frame = frame.ok_or("no frame")?;
    let seen = AtomicBool::new(false);
    let payloads = frame.start + control::END as u64;
    let change = || {
        for qp_type in [RAW_PACKET, RC] {
            poke(type_at, word(qp_type));
            if peek(payloads + 48) == word(RAW_PACKET) {
                seen.store(true, Ordering::Relaxed);
            }
        }
    };
    let ends = beside(change, || tally(MANY, || ioctl(fd, addr(request.words.as_slice()))));
    print("racer", &ends);
    println!("where it would be: {}", peek(payloads + 48) == word(RC));
    println!("seen in the frame: {}", seen.load(Ordering::Relaxed));
    Ok(())
}

/// The path of an open changes under the reader.
pub(super) fn flip_path(device: &str) -> Result<(), Box<dyn Error>> {
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::fs::MetadataExt;
    let scratch = std::env::temp_dir().join(format!("verbgate-flip-{}", std::process::id()));
    std::fs::write(&scratch, "plain")?;
    let padded = |path: &str| {
        let mut words = vec![0_u64; 16];
        for (at, byte) in path.bytes().enumerate() {
            words[at / 8] |= u64::from(byte) << (at % 8 * 8);
        }
        words
    };
    let (one, two) = (padded(device), padded(scratch.to_str().unwrap_or_default()));
    let mut path = one.clone();
    let at = addr_mut(path.as_mut_slice());
    let change = || {
        for words in [&two, &one] {
            words.iter().zip((at..).step_by(8)).for_each(|(word, at)| poke(at, *word));
        }
    };
    let plain = std::fs::metadata(&scratch)?.ino();
    let (mut devices, mut files, mut errors, mut others) = (0, 0, 0, 0);
    beside(change, || {
        for _ in 0..MANY / 4 {
            let flags = int(libc::O_RDWR | libc::O_CLOEXEC);
            let opened = call(libc::SYS_openat, &[int(libc::AT_FDCWD), at, flags, 0]);
            let Ok(fd) = opened else {
                errors += 1;
                continue;
            };
            match std::fs::metadata(format!("/proc/self/fd/{fd}")) {
                Ok(meta) if meta.file_type().is_char_device() => devices += 1,
                Ok(meta) if meta.ino() == plain => files += 1,
                _ => others += 1,
            }
            let _ = call(libc::SYS_close, &[fd]);
        }
    });
    std::fs::remove_file(&scratch)?;
    println!("both: {}, others: {others}", devices > 0 && files > 0);
    eprintln!("{devices} devices, {files} files, {errors} errors");
    Ok(())
}
