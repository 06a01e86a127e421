//! Requests of a process that a timer interrupts.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::os::fd::AsRawFd;

use crate::kernel::addr;
use crate::kernel::call;
use crate::kernel::fork;
use crate::kernel::int;
use crate::life::catch;
use crate::life::request;
use crate::raw;

/// Requests of one process: the first has its stub planted.
const REQUESTS: i32 = 5;

/// Where the first of a sequence failed that failed, and with what.
fn sequence(device: &str, micros: u64, phase: u64) -> io::Result<i32> {
    let timer = [0, micros, 0, 1 + phase % micros];
    call(libc::SYS_setitimer, &[int(libc::ITIMER_REAL), addr(&timer), 0])?;
    let failed = |at: i32, e: io::Error| match e.raw_os_error() {
        Some(libc::EINTR) => at,
        _ => 100 + at,
    };
    let file = match raw::open(device) {
        Ok(file) => file,
        Err(e) => return Ok(failed(1, e)),
    };
    for nth in 0..REQUESTS {
        match request(file.as_raw_fd()) {
            // The null device's answer.
            Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => {}
            Err(e) => return Ok(failed(2 + nth, e)),
            Ok(_) => return Ok(100),
        }
    }
    Ok(0)
}

/// Processes that open the device and make five requests under a timer of so many microseconds,
/// whose handler asks for restarts or does not.
pub(crate) fn timers(device: &str, micros: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let (micros, count): (u64, u64) = (micros.parse()?, count.parse()?);
    for (name, flags) in [("restarting", libc::SA_RESTART), ("interrupting", 0)] {
        let mut ends: BTreeMap<String, u64> = BTreeMap::new();
        for nth in 0..count {
            let child = fork(|| {
                catch(libc::SIGALRM, flags);
                sequence(device, micros, nth * 997).unwrap_or(99)
            })?;
            let end = match child.wait()? {
                crate::kernel::End::Code(0) => "well".to_owned(),
                crate::kernel::End::Code(1) => "EINTR at open".to_owned(),
                crate::kernel::End::Code(2) => "EINTR at the first".to_owned(),
                crate::kernel::End::Code(3..=6) => "EINTR later".to_owned(),
                other => format!("{other:?}"),
            };
            *ends.entry(end).or_default() += 1;
        }
        let ends: Vec<String> = ends.iter().map(|(end, count)| format!("{end} {count}")).collect();
        println!("{name}: {}", ends.join(", "));
    }
    Ok(())
}
