//! Mappings at some of a process's addresses, by what the kernel says.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::os::fd::AsRawFd;

use crate::Tid;
use crate::check;

/// Bytes of a name at most (`PATH_MAX`).
const NAME: u32 = 4096;
/// Bytes of `/proc/PID/maps` that the kernel writes at once: what is looked for is among the first, usually.
const AT_ONCE: usize = 512;

/// `PROCMAP_QUERY` (6.11), include/uapi/linux/fs.h.
const QUERY: libc::c_ulong = 0xc068_6611;
const COVERING_OR_NEXT: u64 = 0x10;
/// `PROCMAP_QUERY_VMA_*`, and their letters in `/proc/PID/maps`.
const RIGHTS: [(u64, char); 3] = [(1, 'r'), (2, 'w'), (4, 'x')];
const SHARED: u64 = 8;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    rights: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// The mappings in ranges of a thread's addresses, which are in order; a line of `/proc/TID/maps` each, with single spaces.
///
/// A kernel before 6.11 tells all mappings below these, too; `None` if these are `most` at least.
///
/// # Errors
/// `ESRCH`, `ENOENT`: the thread is gone. When descriptors run out.
pub(crate) fn mapped(
    tid: Tid,
    ranges: &[(u64, u64)],
    most: usize,
) -> io::Result<Option<Vec<String>>> {
    let maps = File::open(format!("/proc/{tid}/maps"))?;
    match asked(&maps, ranges) {
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => read(maps, ranges, most),
        found => found.map(Some),
    }
}

fn asked(maps: &File, ranges: &[(u64, u64)]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for (at, end) in ranges {
        let mut at = *at;
        while at < *end {
            let mut name = [0_u8; NAME as usize];
            let mut query = Query {
                size: size_of::<Query>() as u64,
                flags: COVERING_OR_NEXT,
                addr: at,
                name_size: NAME,
                name: name.as_mut_ptr().expose_provenance() as u64,
                ..Query::default()
            };
            // SAFETY: the kernel writes the structure, whose length is in it, and so many bytes of the name; both live
            // through the call.
            let ret = unsafe { libc::ioctl(maps.as_raw_fd(), QUERY, &raw mut query) };
            match check(ret.into()) {
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => break,
                asked => asked.map(drop)?,
            }
            if query.start >= *end {
                break;
            }
            found.push(line(&query, &name));
            at = query.end;
        }
    }
    found.dedup();
    Ok(found)
}

fn line(query: &Query, name: &[u8]) -> String {
    let Query { start, end, offset, inode, rights, device: [major, minor], .. } = query;
    let letter = |(bit, letter): (u64, char)| if rights & bit == 0 { '-' } else { letter };
    let letters: String = RIGHTS.map(letter).iter().collect();
    let shared = if rights & SHARED == 0 { 'p' } else { 's' };
    let name = CStr::from_bytes_until_nul(name).unwrap_or_default().to_string_lossy();
    format!(
        "{start:x}-{end:x} {letters}{shared} {offset:08x} {major:02x}:{minor:02x} {inode} {name}"
    )
    .trim_end()
    .to_owned()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn read(maps: File, ranges: &[(u64, u64)], most: usize) -> io::Result<Option<Vec<String>>> {
    let mut found = Vec::new();
    for (before, line) in BufReader::with_capacity(AT_ONCE, maps).lines().enumerate() {
        if before >= most {
            return Ok(None);
        }
        let line = line?;
        let bounds = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let bounds = bounds.and_then(|(from, to)| Some((hex(from)?, hex(to)?)));
        let Some((from, to)) = bounds else { return Ok(None) };
        if ranges.iter().all(|(_, end)| from >= *end) {
            break;
        }
        if ranges.iter().any(|(at, end)| from < *end && to > *at) {
            found.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_is_asked_for_is_what_its_list_says() {
        let maps = || File::open("/proc/thread-self/maps").unwrap();
        let text = std::fs::read_to_string("/proc/thread-self/maps").unwrap();
        let bounds = |line: &str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            Some((hex(from)?, hex(to)?))
        };
        // A few files, which nothing of this process changes meanwhile, and what lies between.
        let files: Vec<_> = text.lines().filter(|line| line.contains(".so")).collect();
        let first = bounds(files.first().unwrap()).unwrap();
        let last = bounds(files.last().unwrap()).unwrap();
        for ranges in
            [vec![first], vec![first, last], vec![(first.0 + 4096, first.1)], vec![(0, 1)]]
        {
            let told = read(maps(), &ranges, usize::MAX).unwrap().unwrap();
            match asked(&maps(), &ranges) {
                Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => return,
                found => assert_eq!(found.unwrap(), told),
            }
        }
        assert_eq!(read(maps(), &[last], 1).unwrap(), None);
    }
}
