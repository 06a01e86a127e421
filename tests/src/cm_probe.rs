//! A guest that writes raw commands to rdma_cm, good ones and bad ones.

use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::Context as _;
use anyhow::Result;
use verbgate_abi::cm;
use verbgate_abi::cm::CmHeader;

/// The node.
const NODE: &str = "/dev/infiniband/rdma_cm";
const CREATE_ID: u32 = 0;
const GET_EVENT: u32 = 12;
/// `RDMA_PS_TCP`.
const TCP: u16 = 0x106;
/// What is refused in a sandbox and not natively, and must be.
pub(crate) const FORBIDDEN: [&str; 2] = ["by a duplicate", "by the file opened anew"];

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
    let create = |response: u64, port_space: u16| {
        let mut body = 7_u64.to_ne_bytes().to_vec();
        body.extend(response.to_ne_bytes());
        body.extend(port_space.to_ne_bytes());
        body.extend([0; 6]);
        body
    };
    let command = |cmd, input: usize, output, body: &[u8]| {
        let input = u16::try_from(input).unwrap_or(u16::MAX);
        let mut bytes = CmHeader { cmd, input, output }.bytes().to_vec();
        bytes.extend(body);
        // The kernel reads whole structures, also behind the end.
        bytes.resize(bytes.len().max(8 + cm::MAX_LEN), 0);
        bytes
    };
    let send = |file: &File, bytes: &[u8], count: usize| {
        let mut file = file;
        file.write(bytes.get(..count).unwrap_or(bytes))
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
    say(FORBIDDEN[0], send(&file.try_clone()?, &good, 32));
    let again = File::options().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    say(FORBIDDEN[1], again.and_then(|again| send(&again, &good, 32)));
    say("it is destroyed", send(&file, &destroy, 24));
    say("and gone", send(&file, &destroy, 24));
    Ok(())
}

fn rustix_nonblock() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0)
}
