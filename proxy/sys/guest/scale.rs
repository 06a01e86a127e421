//! Scale: many processes with many objects each.

use std::error::Error;
use std::io;
use std::io::PipeReader;
use std::io::PipeWriter;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::kernel::Child;
use crate::kernel::End;
use crate::kernel::fork;
use crate::kernel::pipe;
use crate::raw;
use crate::raw::MANDATORY;
use crate::raw::Request;

/// How often it looks whether it may go on.
const TICK: Duration = Duration::from_millis(20);
/// `enum rdma_driver_id`: Soft-RoCE.
const RXE: u64 = 14;

/// GET_CONTEXT.
pub(crate) fn context(fd: i32) -> io::Result<i32> {
    let mut out = [0_u64; 2];
    let at = out.as_mut_ptr() as u64;
    let attrs = Request::new(0, 3).attr(0, 4, MANDATORY, at).attr(1, 8, MANDATORY, at + 8);
    for_rxe(attrs).send(fd)
}

/// ALLOC_PD, as libibverbs makes it.
fn alloc_pd(fd: i32) -> io::Result<i32> {
    let mut response = [0_u64; 1];
    let at = response.as_mut_ptr() as u64;
    // CORE_IN of 8 bytes, CORE_OUT, WRITE_CMD.
    let attrs = Request::new(0, 0).attr(0, 8, MANDATORY, 0).attr(1, 4, MANDATORY, at);
    for_rxe(attrs.attr(2, 8, MANDATORY, 3)).send(fd)
}

pub(crate) fn for_rxe(mut request: Request) -> Request {
    if let Some(word) = request.words.get_mut(2) {
        *word = RXE;
    }
    request
}

/// One of the processes: a context, its objects, and the end, each when it is told to.
fn one(device: &str, objects: u32, mut told: PipeReader, mut say: PipeWriter) -> io::Result<()> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    context(fd)?;
    say.write_all(b".")?;
    told.read_exact(&mut [0])?;
    for _ in 0..objects {
        alloc_pd(fd)?;
    }
    say.write_all(b".")?;
    told.read_exact(&mut [0])
}

/// So many processes with so many objects each. After every stage it says so, and goes on when
/// there is a file of the stage's name in `flags`.
pub(crate) fn run(
    device: &str,
    processes: &str,
    objects: &str,
    flags: &str,
) -> Result<(), Box<dyn Error>> {
    let (processes, objects): (u32, u32) = (processes.parse()?, objects.parse()?);
    let stage = |name: &str| {
        println!("{name}");
        while !Path::new(flags).join(name).exists() {
            thread::sleep(TICK);
        }
    };
    stage("started");
    let mut all: Vec<(Child, PipeWriter, PipeReader)> = Vec::new();
    for _ in 0..processes {
        let (told, tell) = pipe()?;
        let (mut heard, say) = pipe()?;
        let child = fork(|| match one(device, objects, told, say) {
            Ok(()) => 0,
            Err(e) => {
                eprintln!("guest: {e}");
                1
            }
        })?;
        // One after the other, as the machine is small.
        heard.read_exact(&mut [0])?;
        all.push((child, tell, heard));
    }
    stage("opened");
    for (_, tell, heard) in &mut all {
        tell.write_all(b".")?;
        heard.read_exact(&mut [0])?;
    }
    stage("made");
    for (child, mut tell, _) in all {
        tell.write_all(b".")?;
        if child.wait()? != End::Code(0) {
            return Err("a process failed".into());
        }
    }
    stage("ended");
    Ok(())
}
