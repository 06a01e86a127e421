//! A replay of requests that a script lists, which prints the effects of each.
//!
//! A script is text, a line for each step, so that a request which showed a fault can be kept as it
//! was. Numbers are hexadecimal, but for slots and descriptors:
//!
//! ```text
//! open                                     two new ucontexts, and nothing else is open
//! ioctl NAME FD ADDR ARG BYTES [LINK…]     BYTES go to ADDR, then ioctl(FD, RDMA_VERBS_IOCTL, ARG)
//! write:LEN NAME FD ADDR ARG BYTES [LINK…] the same, then write(FD, ARG, LEN)
//! ```
//!
//! FD is `0` or `1` for a ucontext, `sN` for the number in a slot, `-1`. A link is `<N:ADDR:WIDTH`,
//! which puts slot N there before the call, or `>N:ADDR`, which takes the 32 bits there into slot N
//! after one that went well. Every line is answered by one: the result or `-errno`, and the bytes of
//! memory that the call has changed, as `OFFSET:BYTES`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::io::Write as _;
use std::os::fd::IntoRawFd;

use verbgate_sys::window::FdWindow;

use crate::kernel::call;
use crate::kernel::int;
use crate::kernel::mmap;
use crate::raw;
use crate::raw::RDMA_VERBS_IOCTL;

/// Where the memory that requests name is. Far from what the linker, the heap and stubs use.
const BASE: u64 = 0x1000_0000_0000;
/// Between the starts of the regions; what a region leaves of it is not mapped.
const STRIDE: usize = 0x1_0000;
/// How long a region is.
const REGION: usize = 0x4000;
/// Requests, outputs, and memory for registrations; then one that can only be read.
const WRITABLE: usize = 3;
/// What a slot holds that nothing was put into: no handle and no descriptor.
const NOTHING: u64 = 9999;

/// The memory.
struct Arena {
    /// What the regions hold between steps.
    clean: Vec<u8>,
}

impl Arena {
    fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        for region in 0..=WRITABLE {
            let prot = libc::PROT_READ | if region < WRITABLE { libc::PROT_WRITE } else { 0 };
            let at = BASE + (region * STRIDE) as u64;
            mmap(at, REGION as u64, prot, flags, -1)?;
        }
        Ok(Self { clean: vec![0; REGION] })
    }

    /// The bytes of a region.
    fn region(index: usize) -> &'static mut [u8] {
        let at = usize::try_from(BASE).unwrap_or(0) + index * STRIDE;
        let at = std::ptr::with_exposed_provenance_mut::<u8>(at);
        // SAFETY: the region is mapped readable and writable for as long as the process lives, and
        // one reference to it exists at a time: no caller keeps it over another call of this or
        // over the system call that changes it.
        unsafe { std::slice::from_raw_parts_mut(at, REGION) }
    }

    /// Puts bytes at an address; what is not in a region is left out.
    fn put(&self, addr: u64, bytes: &[u8]) {
        let Some(offset) = addr.checked_sub(BASE).and_then(|o| usize::try_from(o).ok()) else {
            return;
        };
        if offset / STRIDE < WRITABLE {
            let region = Self::region(offset / STRIDE);
            let to = region.iter_mut().skip(offset % STRIDE);
            to.zip(bytes).for_each(|(to, from)| *to = *from);
        }
    }

    fn word(&self, addr: u64) -> u64 {
        let offset = usize::try_from(addr.wrapping_sub(BASE)).unwrap_or(usize::MAX);
        if offset / STRIDE >= WRITABLE {
            return NOTHING;
        }
        let region = Self::region(offset / STRIDE);
        let word = region.get(offset % STRIDE..).and_then(|bytes| bytes.first_chunk::<4>());
        word.map_or(NOTHING, |word| u32::from_ne_bytes(*word).into())
    }

    /// Writes down what differs from `before`, and makes all clean again.
    fn changes(&self, before: &[Vec<u8>], into: &mut String) {
        for (index, before) in before.iter().enumerate() {
            let region = Self::region(index);
            if *region != before[..] {
                let mut at = 0;
                while at < REGION {
                    let end = (at..REGION).find(|i| region[*i] == before[*i]).unwrap_or(REGION);
                    if end > at {
                        let _ = write!(into, " {:x}:", index * STRIDE + at);
                        for byte in &region[at..end] {
                            let _ = write!(into, "{byte:02x}");
                        }
                    }
                    at = end + 1;
                }
            }
            region.copy_from_slice(&self.clean);
        }
    }
}

/// A link of a line.
enum Link {
    Put { slot: usize, addr: u64, width: usize },
    Take { slot: usize, addr: u64 },
}

fn link(word: &str) -> Result<Link, Box<dyn Error>> {
    let mut parts = word.get(1..).unwrap_or_default().split(':');
    let mut part = || parts.next().ok_or("a link is <N:ADDR:WIDTH or >N:ADDR");
    let slot = part()?.parse()?;
    let addr = u64::from_str_radix(part()?, 16)?;
    Ok(match word.starts_with('<') {
        true => Link::Put { slot, addr, width: part()?.parse()? },
        false => Link::Take { slot, addr },
    })
}

fn bytes(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let pairs = text.trim_start_matches('-').as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

/// Opens the device where the supervisor would put it, so that all numbers are the same without one.
fn open(device: &str) -> io::Result<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let window = FdWindow::under(limit.unwrap_or(u64::MAX));
    let fd = raw::open(device)?.into_raw_fd();
    if window.contains(fd) {
        return Ok(int(fd));
    }
    let dup = int(libc::F_DUPFD_CLOEXEC);
    let there = call(libc::SYS_fcntl, &[int(fd), dup, window.first.into()])?;
    call(libc::SYS_close, &[int(fd)])?;
    Ok(there)
}

/// Runs a script.
pub(crate) fn run(device: &str, script: &str) -> Result<(), Box<dyn Error>> {
    let script = fs::read_to_string(script)?;
    let arena = Arena::new()?;
    let mut fds = Vec::new();
    let mut slots: BTreeMap<usize, u64> = BTreeMap::new();
    let mut out = io::stdout().lock();
    let mut answer = String::new();
    for (number, line) in script.lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        answer.clear();
        match words.as_slice() {
            ["open"] => {
                call(libc::SYS_close_range, &[3, u64::from(u32::MAX), 0])?;
                slots.clear();
                fds = vec![open(device)?, open(device)?];
                answer.push_str("opened");
            }
            [what, _, fd, addr, arg, image, links @ ..] => {
                let fd = match fd.strip_prefix('s') {
                    Some(slot) => slots.get(&slot.parse()?).copied().unwrap_or(NOTHING),
                    None => {
                        let open = fd.parse::<usize>().ok().and_then(|n| fds.get(n));
                        open.copied().unwrap_or(int(-1))
                    }
                };
                let arg = u64::from_str_radix(arg, 16)?;
                arena.put(u64::from_str_radix(addr, 16)?, &bytes(image)?);
                let links: Result<Vec<Link>, _> = links.iter().map(|word| link(word)).collect();
                let links = links?;
                for link in &links {
                    if let Link::Put { slot, addr, width } = link {
                        let value = slots.get(slot).copied().unwrap_or(NOTHING).to_ne_bytes();
                        arena.put(*addr, value.get(..*width).unwrap_or(&value));
                    }
                }
                let before: Vec<Vec<u8>> =
                    (0..WRITABLE).map(|index| Arena::region(index).to_vec()).collect();
                let result = match what.strip_prefix("write:") {
                    Some(len) => call(libc::SYS_write, &[fd, arg, u64::from_str_radix(len, 16)?]),
                    None => call(libc::SYS_ioctl, &[fd, RDMA_VERBS_IOCTL, arg]),
                };
                match &result {
                    Ok(value) => write!(answer, "{value}")?,
                    Err(e) => write!(answer, "-{}", e.raw_os_error().unwrap_or(0))?,
                }
                for link in &links {
                    if let (Link::Take { slot, addr }, true) = (link, result.is_ok()) {
                        slots.insert(*slot, arena.word(*addr));
                    }
                }
                arena.changes(&before, &mut answer);
            }
            _ => return Err(format!("line {}: {line:?} is no step", number + 1).into()),
        }
        answer.push('\n');
        out.write_all(answer.as_bytes())?;
    }
    Ok(())
}
