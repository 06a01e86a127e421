#![forbid(unsafe_code)]
//! What a container's runtime executes before the container's command: see
//! [`verbgate_sys::sandbox::container`].
//!
//! ```text
//! verbgate-init SOCKET CAPABILITY -- COMMAND...
//! ```
//! CAPABILITY is `setpcap` when the container is to lose CAP_SETPCAP, else `-`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use rustix::thread::CapabilitySet;
use verbgate_sys::sandbox;
use verbgate_sys::sandbox::container;
use verbgate_sys::sandbox::container::Init;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [socket, capability, dashes, argv @ ..] = args.as_slice() else {
        return fail(sandbox::EXIT_OURS, "it is started by `verbgate oci`, not by hand");
    };
    if dashes != "--" {
        return fail(sandbox::EXIT_OURS, "the command must follow \"--\"");
    }
    let give_up = match capability.to_str() {
        Some("-") => CapabilitySet::empty(),
        Some("setpcap") => CapabilitySet::SETPCAP,
        _ => return fail(sandbox::EXIT_OURS, "no such capability to give up"),
    };
    let (code, line) = container::enter(&Init { socket: Path::new(socket), give_up, argv });
    fail(code, &line)
}

fn fail(code: u8, line: &str) -> ExitCode {
    eprintln!("verbgate-init: {}", line.replace('\n', " "));
    ExitCode::from(code)
}
