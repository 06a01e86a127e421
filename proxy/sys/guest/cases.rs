//! Requests, one of each kind that matters, and the errno of each.

use std::error::Error;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::RawFd;

use crate::kernel::addr;
use crate::kernel::addr_mut;
use crate::kernel::call;
use crate::kernel::dup2;
use crate::kernel::int;
use crate::kernel::mmap;
use crate::kernel::outcome;
use crate::kernel::pipe;
use crate::kernel::say;
use crate::raw;
use crate::raw::MANDATORY;
use crate::raw::RDMA_VERBS_IOCTL;
use crate::raw::Request;

const PAGE: u64 = 4096;
/// An address that is never mapped.
const NOWHERE: u64 = 8;

pub(crate) mod object {
    pub(crate) const DEVICE: u16 = 0;
    pub(crate) const PD: u16 = 1;
    pub(crate) const COUNTERS: u16 = 15;
}

pub(crate) mod command {
    pub(crate) const ALLOC_PD: u64 = 3;
    pub(crate) const CREATE_QP: u64 = 24;
    pub(crate) const ATTACH_MCAST: u64 = 30;
}

/// The method that destroys an object of a kind, which is granted for some kinds.
pub(crate) fn destroy(kind: u16) -> Request {
    let method = if kind == object::COUNTERS { 1 } else { 0 };
    Request::new(kind, method).attr(0, 0, MANDATORY, 0)
}

/// `UVERBS_METHOD_INVOKE_WRITE` of a command, with its request structure.
pub(crate) fn invoke(command: u64, core_in: &[u8], core_out: &mut [u8]) -> Request {
    let len = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let (in_len, out_len) = (len(core_in), len(core_out));
    Request::new(object::DEVICE, 0)
        .attr(0, in_len, MANDATORY, addr(core_in))
        .attr(1, out_len, MANDATORY, addr_mut(core_out))
        .attr(2, 8, MANDATORY, command)
}

/// Requests good and bad: a line each.
pub(crate) fn errors(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    let mut out = [0_u64; 2];
    let good = raw::query_context(&mut out);
    say("good", &good.clone().send(fd));

    let with = |word: usize, value: u64| {
        let mut request = good.clone();
        if let Some(word) = request.words.get_mut(word) {
            *word = value;
        }
        request
    };
    let head = good.words.first().copied().unwrap_or(0);
    say("length too short", &with(0, head & !0xffff | 40).send(fd));
    say("length too long", &with(0, head & !0xffff | 72).send(fd));
    say("length over a page", &with(0, 0xff0 | 254 << 48).send(fd));
    say("first reserved field", &with(1, 1).send(fd));
    say("second reserved field", &with(2, 1 << 32).send(fd));
    say("unknown object", &Request::new(0x2fff, 0).send(fd));
    say("unknown method", &Request::new(object::DEVICE, 0x2fff).send(fd));
    say("attribute twice", &good.clone().attr(1, 8, MANDATORY, addr(&out)).send(fd));
    say("unknown mandatory attribute", &good.clone().attr(77, 8, MANDATORY, 0).send(fd));
    say("unknown optional attribute", &good.clone().attr(77, 8, 0, 0).send(fd));
    say("missing mandatory attribute", &Request::new(object::PD, 0).send(fd));
    let mut reserved = good.clone();
    if let Some(word) = reserved.words.get_mut(3) {
        *word |= 1 << 48;
    }
    say("reserved field of an attribute", &reserved.send(fd));
    say("attribute too short", &Request::new(object::DEVICE, 4).attr(0, 2, 1, 0).send(fd));

    let ioctl = |fd: RawFd, at: u64| call(libc::SYS_ioctl, &[int(fd), RDMA_VERBS_IOCTL, at]);
    say("header nowhere", &ioctl(fd, NOWHERE));
    say("header in the kernel", &ioctl(fd, 0xffff_8880_0000_0000));
    say("header at the end of addresses", &ioctl(fd, u64::MAX - 7));
    at_the_end_of_memory(fd, &good)?;
    let mut answer = [0; 4];
    let mut lost = invoke(command::ALLOC_PD, &[0; 16], &mut answer);
    if let Some(word) = lost.words.get_mut(4) {
        *word = NOWHERE;
    }
    say("payload nowhere", &lost.send(fd));

    say("descriptor that is not open", &ioctl(999, addr(good.words.as_slice())));
    say("descriptor -1", &ioctl(-1, addr(good.words.as_slice())));
    let null = File::open("/proc/self/status")?;
    say("a plain file", &good.clone().send(null.as_raw_fd()));
    let (reader, _writer) = pipe()?;
    say("a pipe", &good.clone().send(reader.as_raw_fd()));
    let high = 1 << 32 | int(fd) & 0xffff_ffff;
    let high =
        call(libc::SYS_ioctl, &[high, 7 << 32 | RDMA_VERBS_IOCTL, addr(good.words.as_slice())]);
    say("upper words are ignored", &high);

    say("method not granted", &destroy(object::COUNTERS).send(fd));
    say("command not granted", &invoke(command::ATTACH_MCAST, &[0; 24], &mut []).send(fd));
    say("QP type not granted", &create_qp(8, &mut [0; 32]).send(fd));
    say("QP type granted", &create_qp(2, &mut [0; 32]).send(fd));
    say("command that does not exist", &invoke(63, &[0; 24], &mut []).send(fd));
    say("bits that no command has", &invoke(1 << 40, &[0; 24], &mut []).send(fd));
    say("another ioctl", &call(libc::SYS_ioctl, &[int(fd), 0x5401, 0]));
    Ok(())
}

/// A queue pair of each type, and a domain: a line each.
pub(crate) fn types(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    say("PD", &invoke(command::ALLOC_PD, &[0; 8], &mut [0; 4]).send(fd));
    // enum ib_qp_type.
    for (name, kind) in [("RC", 2), ("UC", 3), ("UD", 4), ("RAW_PACKET", 8)] {
        say(name, &create_qp(kind, &mut [0; 32]).send(fd));
    }
    Ok(())
}

/// CREATE_QP of a type. `answer` outlives the request; what it reads is leaked.
pub(crate) fn create_qp(qp_type: u8, answer: &mut [u8; 32]) -> Request {
    // struct ib_uverbs_create_qp: the type is the byte at 52.
    let core_in: &'static mut [u8; 56] = Box::leak(Box::new([0; 56]));
    core_in[53] = qp_type;
    invoke(command::CREATE_QP, core_in, answer)
}

/// Requests that end where the memory ends, and beyond.
fn at_the_end_of_memory(fd: RawFd, good: &Request) -> io::Result<()> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let start = mmap(0, 2 * PAGE, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    call(libc::SYS_munmap, &[start + PAGE, PAGE])?;
    let put = |at: u64| {
        let words = good.words.iter().zip((at..start + PAGE).step_by(8));
        words.for_each(|(word, at)| crate::kernel::poke(at, *word));
        call(libc::SYS_ioctl, &[int(fd), RDMA_VERBS_IOCTL, at])
    };
    let len = good.words.len() as u64 * 8;
    say("request that ends with its page", &put(start + PAGE - len));
    say("request cut by the end of memory", &put(start + PAGE - len + 16));
    say("header cut by the end of memory", &put(start + PAGE - 16));
    call(libc::SYS_munmap, &[start, PAGE])?;
    absent(fd, good)
}

/// A request in memory that is there and has to be fetched: a file's, given back by the program.
fn absent(fd: RawFd, good: &Request) -> io::Result<()> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let file = tempfile()?;
    file.set_len(2 * PAGE)?;
    let start = mmap(0, 2 * PAGE, prot, libc::MAP_SHARED, file.as_raw_fd())?;
    let at = start + PAGE - 32;
    let put = || {
        let words = good.words.iter().zip((at..).step_by(8));
        words.for_each(|(word, at)| crate::kernel::poke(at, *word));
    };
    let send = || call(libc::SYS_ioctl, &[int(fd), RDMA_VERBS_IOCTL, at]);
    let drop = |from, len| call(libc::SYS_madvise, &[from, len, int(libc::MADV_DONTNEED)]);
    put();
    drop(start, 2 * PAGE)?;
    say("request that is not in memory", &send());
    put();
    drop(start + PAGE, PAGE)?;
    say("request whose end is not in memory", &send());
    call(libc::SYS_munmap, &[start, 2 * PAGE])?;
    Ok(())
}

fn tempfile() -> io::Result<File> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"absent".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The same call by the 32-bit interface, and by x32's number.
pub(crate) fn foreign(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    let mut out = [0_u64; 2];
    let good = raw::query_context(&mut out);
    say("native", &good.clone().send(fd));
    println!("32-bit: {}", outcome(&int80(54, fd.cast_unsigned(), 0xc018_1b01)));
    println!("32-bit, another ioctl: {}", outcome(&int80(54, fd.cast_unsigned(), 0x5401)));
    let x32 = call(0x4000_0000 | libc::SYS_ioctl, &[int(fd), RDMA_VERBS_IOCTL, addr(&out)]);
    say("x32", &x32);
    Ok(())
}

#[cfg(target_arch = "x86_64")]
fn int80(nr: u32, a: u32, b: u32) -> io::Result<u64> {
    let ret: u64;
    // SAFETY: a system call by the 32-bit entry; rbx, which the compiler keeps for itself, is put
    // back, and the registers that older kernels do not preserve are given up.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {a}",
            "int 0x80",
            "xchg rbx, {a}",
            a = inout(reg) u64::from(a) => _,
            inlateout("rax") u64::from(nr) => ret,
            in("rcx") u64::from(b),
            in("rdx") 8_u64,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
        );
    }
    let ret = i32::try_from(ret & 0x7fff_ffff).unwrap_or(0)
        | if ret >> 31 & 1 == 1 { i32::MIN } else { 0 };
    if ret < 0 { Err(io::Error::from_raw_os_error(-ret)) } else { Ok(0) }
}

#[cfg(not(target_arch = "x86_64"))]
fn int80(_: u32, _: u32, _: u32) -> io::Result<u64> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// `struct ib_uverbs_cmd_hdr` and what follows it.
fn legacy(command: u32, out_words: u16, body: &[u8]) -> Vec<u8> {
    let words = u16::try_from((8 + body.len()) / 4).unwrap_or(0);
    let mut bytes = command.to_ne_bytes().to_vec();
    bytes.extend(words.to_ne_bytes());
    bytes.extend(out_words.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// Commands given with `write(2)`.
pub(crate) fn writes(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    let answer = [0_u64; 8];
    let body = addr(&answer).to_ne_bytes();
    let good = legacy(3, 1, &body);
    let write =
        |bytes: &[u8]| call(libc::SYS_write, &[int(fd), addr(bytes), bytes.len() as u64]).map(drop);
    say("command", &write(&good));
    say("command of another length", &write(&good[..12]));
    say("no command", &write(&[]));
    say("command that is not granted", &write(&legacy(30, 0, &[0; 24])));
    say("command that does not exist", &write(&legacy(63, 0, &[0; 24])));
    say("command nowhere", &call(libc::SYS_write, &[int(fd), NOWHERE, 16]));
    let vectors = [[addr(good.as_slice()), good.len() as u64], [NOWHERE, 16]];
    say("vector", &call(libc::SYS_writev, &[int(fd), addr(&vectors), 2]));
    say("vector nowhere", &call(libc::SYS_writev, &[int(fd), NOWHERE, 1]));
    Ok(())
}

/// Plain files at numbers that the filter watches: the same as anywhere.
pub(crate) fn watched_numbers(device: &str) -> Result<(), Box<dyn Error>> {
    for planted in [false, true] {
        if planted {
            let file = raw::open(device)?;
            let mut out = [0_u64; 2];
            let _ = raw::query_context(&mut out).send(file.as_raw_fd());
        }
        for at in [960, 991, 1023] {
            plain_at(at)?;
        }
    }
    Ok(())
}

fn plain_at(at: RawFd) -> Result<(), Box<dyn Error>> {
    use std::io::Read;
    let (mut reader, writer) = pipe()?;
    let (mut second_reader, second_writer) = pipe()?;
    say("write to a number that is not open", &call(libc::SYS_write, &[int(at), addr(b"x"), 1]));
    dup2(writer.as_raw_fd(), at)?;
    let bytes = b"abcdef";
    let wrote = call(libc::SYS_write, &[int(at), addr(bytes), 3])?;
    let vectors = [[addr(bytes), 2], [addr(bytes) + 4, 2]];
    let vectored = call(libc::SYS_writev, &[int(at), addr(&vectors), 2])?;
    let nowhere = call(libc::SYS_write, &[int(at), NOWHERE, 3]);
    // Over it, by both calls that can; then itself over itself.
    dup2(second_writer.as_raw_fd(), at)?;
    call(libc::SYS_write, &[int(at), addr(b"second"), 6])?;
    let same = dup2(at, at)?;
    let dup3 = call(libc::SYS_dup3, &[int(writer.as_raw_fd()), int(at), 0])?;
    call(libc::SYS_write, &[int(at), addr(b"again"), 5])?;
    let bad = dup2(998, at);
    call(libc::SYS_write, &[int(at), addr(b"!"), 1])?;
    let closed = call(libc::SYS_close, &[int(at)]);
    let twice = call(libc::SYS_close, &[int(at)]);
    drop((writer, second_writer));
    let (mut text, mut second) = (String::new(), String::new());
    reader.read_to_string(&mut text)?;
    second_reader.read_to_string(&mut second)?;
    println!(
        "{wrote} {vectored} {} {} {} {} {} {} {text} {second}",
        outcome(&nowhere),
        same == at,
        dup3 == int(at),
        outcome(&bad),
        outcome(&closed),
        outcome(&twice)
    );
    io::stdout().flush()?;
    Ok(())
}
