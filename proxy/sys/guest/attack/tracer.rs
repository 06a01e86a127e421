//! An attack: guests that trace each other.

use std::error::Error;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;

use crate::kernel::addr_mut;
use crate::kernel::call;
use crate::kernel::fork;
use crate::kernel::gettid;
use crate::kernel::int;
use crate::kernel::outcome;
use crate::kernel::pipe;
use crate::kernel::say;
use crate::kernel::threads;
use crate::raw;

fn ptrace(what: u32, tid: i32) -> std::io::Result<u64> {
    call(libc::SYS_ptrace, &[u64::from(what), int(tid), 0, 0])
}

fn let_go(tid: i32) {
    let mut status = 0_i32;
    let _ = ptrace(libc::PTRACE_INTERRUPT, tid);
    let _ = call(libc::SYS_wait4, &[int(tid), addr_mut(&mut status), int(libc::__WALL), 0]);
    let _ = ptrace(libc::PTRACE_DETACH, tid);
}

/// Another process attaches to this one's threads: to an ordinary one, and to the stub.
pub(super) fn of_threads(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let mut out = [0_u64; 2];
    let mut good = raw::query_context(&mut out);
    say("before", &good.send(file.as_raw_fd()));
    let ordinary = gettid();
    let stub = threads().into_iter().find(|tid| *tid != ordinary).ok_or("no stub")?;
    let tracer = fork(|| {
        for (name, tid) in [("ordinary", ordinary), ("stub", stub)] {
            let seized = ptrace(libc::PTRACE_SEIZE, tid);
            if seized.is_ok() {
                let_go(tid);
            }
            let attached = ptrace(libc::PTRACE_ATTACH, tid);
            if attached.is_ok() {
                let_go(tid);
            }
            println!("{name}: {} {}", outcome(&seized), outcome(&attached));
        }
        0
    })?;
    while tracer.wait().is_err_and(|e| e.kind() == std::io::ErrorKind::Interrupted) {}
    say("after", &good.send(file.as_raw_fd()));
    Ok(())
}

/// A process that is traced already makes its first request; then its tracer lets it go.
pub(super) fn of_itself(device: &str) -> Result<(), Box<dyn Error>> {
    let (mut ready, mut tell) = pipe()?;
    let (mut go, mut let_go_on) = pipe()?;
    let (mut said, mut say_so) = pipe()?;
    let child = fork(|| {
        let mut requests = || -> std::io::Result<()> {
            let file = raw::open(device)?;
            let mut out = [0_u64; 2];
            let mut good = raw::query_context(&mut out);
            for turn in ["traced", "free"] {
                tell.write_all(b".")?;
                go.read_exact(&mut [0])?;
                for _ in 0..3 {
                    let line = format!("{turn}: {}\n", outcome(&good.send(file.as_raw_fd())));
                    say_so.write_all(line.as_bytes())?;
                }
            }
            Ok(())
        };
        i32::from(requests().is_err())
    })?;
    drop((tell, say_so));
    let traced = &mut said;
    ready.read_exact(&mut [0])?;
    say("seize", &ptrace(libc::PTRACE_SEIZE, child.0));
    let_go_on.write_all(b".")?;
    // It is between two reads now, or about to be.
    ready.read_exact(&mut [0])?;
    let_go(child.0);
    let_go_on.write_all(b".")?;
    let mut lines = String::new();
    traced.read_to_string(&mut lines)?;
    print!("{lines}");
    println!("{:?}", child.wait()?);
    Ok(())
}
