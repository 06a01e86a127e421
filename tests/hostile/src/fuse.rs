//! A FUSE server, as a tenant's sidecar is one: a file `f` whose operations are answered until
//! they are not.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use crate::board::Board;
use crate::board::Word;
use crate::raw::fork;

/// Operations that can be left without an answer.
pub(crate) const GETATTR: u32 = 3;
pub(crate) const READ: u32 = 15;
pub(crate) const FLUSH: u32 = 25;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

/// Where the file is, in a world's folder.
pub(crate) fn path(dir: &str) -> String {
    format!("{dir}/fuse/f")
}

/// Answers no more operations of this kind.
pub(crate) fn silence(board: &Board, operation: u32) {
    board.at(Word::Silent, 0).fetch_or(1 << operation, Ordering::SeqCst);
}

/// Mounts it, and starts its server.
pub(crate) fn prepare(board: &Board, dir: &str) -> io::Result<()> {
    prepare_with(board, dir, 1)
}

/// The same without `FUSE_ASYNC_READ`: then the reader itself waits for the answer.
pub(crate) fn prepare_sync(board: &Board, dir: &str) -> io::Result<()> {
    prepare_with(board, dir, 0)
}

fn prepare_with(board: &Board, dir: &str, flags: u32) -> io::Result<()> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let mut device =
        device.map_err(|e| io::Error::other(format!("SKIPPED: needs /dev/fuse: {e}")))?;
    let place = format!("{dir}/fuse");
    fs::create_dir(&place)?;
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    crate::raw::mount("hostile", &place, "fuse", libc::MS_NODEV | libc::MS_NOSUID, &options)
        .map_err(|e| io::Error::other(format!("SKIPPED: needs FUSE: {e}")))?;
    let board = *board;
    fork(|| {
        let _ = serve(&mut device, &board, flags);
        0
    })?;
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

fn serve(device: &mut File, board: &Board, flags: u32) -> io::Result<()> {
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        let request = match device.read(&mut buffer) {
            Ok(len) => &buffer[..len],
            Err(e) if [Some(libc::EINTR), Some(libc::ENOENT)].contains(&e.raw_os_error()) => {
                continue;
            }
            Err(e) => return Err(e),
        };
        // struct fuse_in_header: len, opcode, unique, nodeid, ...
        let (operation, node) = (word(request, 4), u64::from(word(request, 16)));
        if board.get(Word::Silent) & (1 << operation) != 0 {
            board.at(Word::Unanswered, 0).fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let answer = match operation {
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            DESTROY => return Ok(()),
            INIT => Ok(init(flags)),
            LOOKUP => Ok(entry()),
            GETATTR => Ok([vec![0; 16], attributes(node)].concat()),
            OPEN | OPENDIR => Ok(vec![0; 16]),
            READ => Ok(vec![0; word(request, 40 + 16) as usize]),
            FLUSH | RELEASE | RELEASEDIR => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        // struct fuse_out_header: len, error, unique.
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut reply = Vec::new();
        reply.extend((16 + body.len() as u32).to_ne_bytes());
        reply.extend(error.to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        // A request whose caller was killed is gone.
        let _ = device.write(&reply);
    }
}

/// struct fuse_init_out.
fn init(flags: u32) -> Vec<u8> {
    let words: [u32; 16] = [7, 31, 4096, flags, 0, 4096, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// struct fuse_entry_out: attributes are never valid, so every stat(2) asks again.
fn entry() -> Vec<u8> {
    let head: [u64; 5] = [2, 1, 1000, 0, 0];
    let mut bytes: Vec<u8> = head.iter().flat_map(|w| w.to_ne_bytes()).collect();
    bytes.extend(attributes(2));
    bytes
}

/// struct fuse_attr.
fn attributes(node: u64) -> Vec<u8> {
    let mode: u32 = if node == 1 { 0o040_755 } else { 0o100_777 };
    let mut bytes: Vec<u8> =
        [node, 8192, 16, 0, 0, 0].iter().flat_map(|w| w.to_ne_bytes()).collect();
    let rest: [u32; 10] = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    bytes.extend(rest.iter().flat_map(|w| w.to_ne_bytes()));
    bytes
}
