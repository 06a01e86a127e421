//! Raw requests, byte by byte.

use std::error::Error;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Instant;

pub(crate) const RDMA_VERBS_IOCTL: u64 = 0xc018_1b01;
/// `UVERBS_ATTR_F_MANDATORY`.
pub(crate) const MANDATORY: u16 = 1;

/// `struct ib_uverbs_ioctl_hdr` and attributes, as words.
#[derive(Clone, Default)]
pub(crate) struct Request {
    pub(crate) words: Vec<u64>,
}

impl Request {
    pub(crate) fn new(object: u16, method: u16) -> Self {
        let head = u64::from(object) << 16 | u64::from(method) << 32;
        let mut request = Self { words: vec![head, 0, 0] };
        request.seal();
        request
    }

    /// Appends an attribute.
    pub(crate) fn attr(mut self, id: u16, len: u16, flags: u16, data: u64) -> Self {
        self.words.push(u64::from(id) | u64::from(len) << 16 | u64::from(flags) << 32);
        self.words.push(data);
        self.seal();
        self
    }

    fn seal(&mut self) {
        let attrs = (self.words.len() as u64 - 3) / 2;
        let length = 24 + 16 * attrs;
        self.words[0] = self.words[0] & 0x0000_ffff_ffff_0000 | length | attrs << 48;
    }

    /// Makes the request.
    pub(crate) fn send(&mut self, fd: i32) -> io::Result<i32> {
        // SAFETY: the kernel, or who stands in for it, checks the request; what it writes goes to
        // `words` and to buffers that the caller keeps alive.
        let ret = unsafe { libc::ioctl(fd, RDMA_VERBS_IOCTL, self.words.as_mut_ptr()) };
        if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
    }
}

/// DEVICE.QUERY_CONTEXT, both outputs: about the smallest request that has any.
pub(crate) fn query_context(out: &mut [u64; 2]) -> Request {
    let at = out.as_mut_ptr() as u64;
    Request::new(0, 4).attr(0, 4, 1, at).attr(1, 8, 1, at + 8)
}

pub(crate) fn open(device: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(device)
}

/// Makes a request with outputs so many times.
pub(crate) fn requests(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let mut out = [0; 2];
    repeated(device, count, query_context(&mut out))
}

/// Ends a protection domain, which names no memory, so many times.
pub(crate) fn destroys(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    repeated(device, count, end())
}

/// The end of a protection domain: PD.DESTROY.
pub(crate) fn end() -> Request {
    Request::new(1, 0).attr(0, 0, MANDATORY, 7)
}

/// Makes one request so many times, and prints the first and the median time in nanoseconds.
fn repeated(device: &str, count: &str, mut request: Request) -> Result<(), Box<dyn Error>> {
    let count: usize = count.parse()?;
    let file = open(device)?;
    let mut times = Vec::with_capacity(count);
    let mut last = String::new();
    for _ in 0..count {
        let start = Instant::now();
        let result = request.send(file.as_raw_fd());
        times.push(start.elapsed().as_nanos());
        if let Err(e) = result {
            last = e.raw_os_error().unwrap_or(0).to_string();
        }
    }
    let first = times.first().copied().unwrap_or(0);
    times.sort_unstable();
    let median = times.get(count / 2).copied().unwrap_or(0);
    println!("first {first} ns, median {median} ns, errno {last}");
    Ok(())
}

/// Opens a file for reading and writing so many times.
pub(crate) fn opens(path: &str, count: &str) -> Result<(), Box<dyn Error>> {
    timed(count, || open(path))
}

/// Maps a page of a file, shared, so many times; says how long that took.
pub(crate) fn maps(path: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let file = open(path)?;
    file.set_len(4096)?;
    // SAFETY: a mapping that nothing refers to.
    timed(count, || unsafe { memmap2::MmapOptions::new().len(4096).map(&file) })
}

/// The median of so many times that something takes; its undoing is not counted.
fn timed<T>(count: &str, mut work: impl FnMut() -> io::Result<T>) -> Result<(), Box<dyn Error>> {
    let count: usize = count.parse()?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let done = work()?;
        times.push(start.elapsed().as_nanos());
        drop(done);
    }
    times.sort_unstable();
    println!("median {} ns", times.get(count / 2).copied().unwrap_or(0));
    Ok(())
}
