//! A guest that writes raw commands to rdma_cm, good ones and bad ones.

use std::fs;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context as _;
use anyhow::Result;
use verbgate_abi::cm;
use verbgate_abi::cm::CmHeader;

/// The node.
const NODE: &str = "/dev/infiniband/rdma_cm";
const CREATE_ID: u32 = 0;
const BIND_IP: u32 = 2;
const GET_EVENT: u32 = 12;
/// `RDMA_PS_TCP`.
const TCP: u16 = 0x106;
/// What is refused in a sandbox and not natively, and must be.
pub(crate) const FORBIDDEN: &str = "by the file opened anew";

/// `probe cm`: prints a line for each attempt: what it is, and `ok` or the errno.
pub(crate) fn run() -> Result<()> {
    let open = |flags| File::options().read(true).write(true).custom_flags(flags).open(NODE);
    let file = open(0).context(NODE)?;
    let mut id = 0_u32;
    let at = (&raw mut id) as u64;
    let say = |what: &str, result: io::Result<usize>| match result {
        Ok(n) => println!("{what}: {n}"),
        Err(e) => println!("{what}: {}", e.raw_os_error().unwrap_or(0)),
    };
    let good = command(CREATE_ID, 24, 4, &create(at, TCP));
    say("an id", send(&file, &good, 32));
    println!("it was told: {}", std::hint::black_box(id) != u32::MAX);
    say("a header that says less", send(&file, &command(CREATE_ID, 0, 4, &create(at, TCP)), 8));
    say("a header that says more", send(&file, &command(CREATE_ID, 25, 4, &create(at, TCP)), 32));
    say("half a header", send(&file, &good, 7));
    say("no space for the answer", send(&file, &command(CREATE_ID, 24, 3, &create(at, TCP)), 32));
    say("nowhere for the answer", send(&file, &command(CREATE_ID, 24, 4, &create(64, TCP)), 32));
    say("no such port space", send(&file, &command(CREATE_ID, 24, 4, &create(at, 1)), 32));
    for (what, cmd) in [("a gap", 13), ("the end", 99), ("far behind the end", u32::MAX)] {
        say(what, send(&file, &command(cmd, 8, 0, &[0; 8]), 16));
    }
    // But for GET_EVENT, which would wait.
    for cmd in (1..23).filter(|cmd| *cmd != GET_EVENT) {
        // Of an id that there is not, with answers to nowhere.
        let body = [0xff; cm::MAX_LEN];
        say(&format!("command {cmd} of no id"), send(&file, &command(cmd, 320, 400, &body), 328));
    }
    let other = open(0)?;
    let mut destroy = at.to_ne_bytes().to_vec();
    destroy.extend(std::hint::black_box(id).to_ne_bytes());
    destroy.extend([0; 4]);
    let destroy = command(cm::DESTROY_ID, 16, 4, &destroy);
    say("an id of another file", send(&other, &destroy, 24));
    let waiting = open(rustix_nonblock())?;
    say("no event", send(&waiting, &command(GET_EVENT, 8, 400, &at.to_ne_bytes()), 16));
    say("by a duplicate", send(&file.try_clone()?, &good, 32));
    let again = File::options().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    say(FORBIDDEN, again.and_then(|again| send(&again, &good, 32)));
    let bound = |file: &File, port| -> Result<io::Result<usize>> {
        Ok(send(file, &bind(Ipv4Addr::UNSPECIFIED, port, new_id(file)?), 48))
    };
    say("port 80", bound(&file, 80)?);
    say("it is destroyed", send(&file, &destroy, 24));
    say("and gone", send(&file, &destroy, 24));
    // The kernel takes commands from who has the capabilities of the file's opener alone.
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective -= rustix::thread::CapabilitySet::NET_BIND_SERVICE;
    rustix::thread::set_capabilities(None, sets)?;
    let file = open(0)?;
    say("port 81 without CAP_NET_BIND_SERVICE", bound(&file, 81)?);
    say("port 18681 without", bound(&file, 18_681)?);
    // struct rdma_ucm_resolve_addr: id, timeout, sizes of 0 and of an IPv6 address, and addresses of two families: the
    // kernel binds before it finds that these do not go together.
    let id = new_id(&file)?;
    let mut resolve = id.to_ne_bytes().to_vec();
    resolve.extend([0; 6]);
    resolve.extend(28_u16.to_ne_bytes());
    resolve.resize(16, 0);
    resolve.extend([2, 0, 0, 82]);
    resolve.resize(16 + 128, 0);
    resolve.push(10);
    resolve.resize(16 + 2 * 128, 0);
    say("from port 82 without", send(&file, &command(cm::RESOLVE_ADDR, 272, 0, &resolve), 280));
    println!("LISTEN then: {}", listens(&file, id));
    Ok(())
}

/// `probe listen ADDRESS`: binds an id to an IPv4 address, and so to its device, listens, and prints
/// `0` or the errno.
pub(crate) fn listen(address: &str) -> Result<()> {
    let address: Ipv4Addr = address.parse().context("no IPv4 address")?;
    let file = File::options().read(true).write(true).open(NODE).context(NODE)?;
    let id = new_id(&file)?;
    send(&file, &bind(address, 0, id), 48).context("BIND_IP")?;
    let errno = listens(&file, id);
    println!("{errno}");
    Ok(())
}

/// `probe networks`: makes an id, has another process make one in a network namespace of its own, and has the first id
/// listen. Prints which namespace's TCP listens: the driver of a software NIC of iWARP makes a socket.
pub(crate) fn networks() -> Result<()> {
    const PORT: u16 = 18_682;
    let file = File::options().read(true).write(true).open(NODE).context(NODE)?;
    let id = new_id(&file)?;
    let mut other = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net"])
        .arg(std::env::current_exe()?)
        .args(["probe", "id"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("unshare(1)")?;
    let mut line = String::new();
    let stdout = other.stdout.take().context("no output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    println!("in the other network namespace: {}", line.trim());
    send(&file, &bind(Ipv4Addr::UNSPECIFIED, PORT, id), 48).context("BIND_IP")?;
    println!("LISTEN: {}", listens(&file, id));
    for (whose, pid) in [("own", std::process::id()), ("other", other.id())] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
        // The state of a listener, include/net/tcp_states.h.
        let is_one = |line: &str| line.contains(&format!("00000000:{PORT:04X} 00000000:0000 0A"));
        println!("{whose}: {}", table.lines().any(is_one));
    }
    drop(other.stdin.take());
    other.wait()?;
    Ok(())
}

/// `probe id`: makes an id, and keeps it until standard input ends.
pub(crate) fn id() -> Result<()> {
    let file = File::options().read(true).write(true).open(NODE).context(NODE)?;
    new_id(&file)?;
    println!("an id");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn new_id(file: &File) -> Result<u32> {
    let mut id = 0_u32;
    let made = command(CREATE_ID, 24, 4, &create((&raw mut id) as u64, TCP));
    send(file, &made, 32).context("CREATE_ID")?;
    Ok(std::hint::black_box(id))
}

/// `struct rdma_ucm_bind_ip`: a response that is not used, struct sockaddr_in6, the id.
fn bind(address: Ipv4Addr, port: u16, id: u32) -> Vec<u8> {
    let mut bind = vec![0; 8];
    bind.extend(rustix::net::AddressFamily::INET.as_raw().to_ne_bytes());
    bind.extend(port.to_be_bytes());
    bind.extend(address.octets());
    bind.resize(8 + 28, 0);
    bind.extend(id.to_ne_bytes());
    command(BIND_IP, 40, 0, &bind)
}

/// Has an id listen; 0 or the errno.
fn listens(file: &File, id: u32) -> i32 {
    let mut backlog = id.to_ne_bytes().to_vec();
    backlog.extend(8_u32.to_ne_bytes());
    match send(file, &command(cm::LISTEN, 8, 0, &backlog), 16) {
        Ok(_) => 0,
        Err(e) => e.raw_os_error().unwrap_or(-1),
    }
}

fn create(response: u64, port_space: u16) -> Vec<u8> {
    let mut body = 7_u64.to_ne_bytes().to_vec();
    body.extend(response.to_ne_bytes());
    body.extend(port_space.to_ne_bytes());
    body.extend([0; 6]);
    body
}

fn command(cmd: u32, input: usize, output: u16, body: &[u8]) -> Vec<u8> {
    let input = u16::try_from(input).unwrap_or(u16::MAX);
    let mut bytes = CmHeader { cmd, input, output }.bytes().to_vec();
    bytes.extend(body);
    // The kernel reads whole structures, also behind the end.
    bytes.resize(bytes.len().max(8 + cm::MAX_LEN), 0);
    bytes
}

fn send(mut file: &File, bytes: &[u8], count: usize) -> io::Result<usize> {
    file.write(bytes.get(..count).unwrap_or(bytes))
}

fn rustix_nonblock() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0)
}
