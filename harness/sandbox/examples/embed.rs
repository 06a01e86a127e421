#![forbid(unsafe_code)]
//! A program of your own that starts another program in a sandbox with RDMA, with a policy of its
//! own, and prints each request:
//!
//! ```text
//! cargo run -p verbgate-sandbox --example embed -- mlx5_0 ibv_devinfo
//! ```
//!
//! The first argument names the RDMA device; `uverbs9=/dev/null` tries the example on a host
//! without an RDMA device.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Mutex;

use verbgate_sandbox::CmDone;
use verbgate_sandbox::Done;
use verbgate_sandbox::Errno;
use verbgate_sandbox::Error;
use verbgate_sandbox::GuestFd;
use verbgate_sandbox::Host;
use verbgate_sandbox::Observer;
use verbgate_sandbox::Policy;
use verbgate_sandbox::Program;
use verbgate_sandbox::Sandbox;
use verbgate_sandbox::Tid;
use verbgate_sandbox::Verdict;
use verbgate_sandbox::name;
use verbgate_sandbox::resolve;

/// A program may look at the device and nothing else: no queue pair, no memory, no rdma_cm. The
/// names are those of `verbgate abi list`; `extends = "standard"` would add to what comes with
/// Verbgate.
const POLICY: &str = r#"
name = "look-only"
methods = [
    "DEVICE.INVOKE_WRITE",
    "DEVICE.GET_CONTEXT",
    "DEVICE.QUERY_PORT",
    "DEVICE.QUERY_GID_TABLE",
    "DEVICE.QUERY_GID_ENTRY",
    "ASYNC_EVENT.ASYNC_EVENT_ALLOC",
]
commands = ["GET_CONTEXT", "QUERY_DEVICE", "EX_QUERY_DEVICE", "QUERY_PORT"]
"#;

/// How often something was refused, by the reason.
type Refused = Arc<Mutex<BTreeMap<&'static str, u32>>>;

/// Prints requests as they are done. The threads that serve the program call this: what takes long
/// here, the program waits for.
struct Printer {
    refused: Refused,
}

impl Observer for Printer {
    fn opened(&mut self, tid: Tid, device: &str, result: Result<GuestFd, Errno>) {
        match result {
            Ok(fd) => println!("thread {tid} opened {device} as descriptor {fd}"),
            Err(errno) => println!("thread {tid} may not open {device}: {errno}"),
        }
    }

    fn done(&mut self, done: &Done<'_>) {
        let request = done.request.map_or("a request that is none", name);
        match done.verdict {
            Verdict::Executed(result) => println!("{}: {request} = {result}", done.device),
            Verdict::Refused(reason, errno) => {
                println!("{}: {request} refused, {errno}: {reason}", done.device);
                if let Ok(mut refused) = self.refused.lock() {
                    *refused.entry(reason).or_default() += 1;
                }
            }
        }
    }

    fn cm(&mut self, done: &CmDone) {
        println!("rdma_cm: {} {:?} after {:?}", done.name, done.verdict, done.elapsed);
    }
}

fn run(device: OsString, argv: &[OsString]) -> Result<u8, Error> {
    let devices = resolve(&[device], Host::real())?;
    let sandbox = Sandbox::new(devices, Policy::read(POLICY)?)?;
    let refused = Refused::default();
    let printer = Printer { refused: Arc::clone(&refused) };
    // This process may have no thread yet. Afterwards it may not make files any more.
    let mut running = sandbox.start(&Program::new(argv), Some(Box::new(printer)))?;
    println!("started as process {}", running.tgid());
    let exit = running.wait()?;
    let counts = running.counts();
    println!("{} devices opened, {} requests executed", counts.opened, counts.executed());
    if let Ok(refused) = refused.lock() {
        refused.iter().for_each(|(reason, times)| println!("{times} refused: {reason}"));
    }
    Ok(exit.code())
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(device), argv) = (args.next(), args.collect::<Vec<_>>()) else {
        eprintln!("usage: embed DEVICE PROGRAM [ARGUMENT]...");
        return ExitCode::from(2);
    };
    match run(device, &argv) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprint!("embed: {error}");
            // A text never repeats its cause.
            let mut cause = error.source();
            while let Some(one) = cause {
                eprint!(": {one}");
                cause = one.source();
            }
            eprintln!();
            ExitCode::from(error.exit_code())
        }
    }
}
