#![forbid(unsafe_code)]
//! What a container's runtime executes before the container's command: see
//! [`verbgate_sys::sandbox::container`].
//!
//! ```text
//! verbgate-init SOCKET SETPCAP -- COMMAND...
//! ```
//! SETPCAP is the name of a [`Setpcap`].

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use verbgate_sys::sandbox;
use verbgate_sys::sandbox::Setpcap;
use verbgate_sys::sandbox::container;
use verbgate_sys::sandbox::container::Init;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [socket, setpcap, dashes, argv @ ..] = args.as_slice() else {
        return fail(sandbox::EXIT_OURS, "it is started by `verbgate oci`, not by hand");
    };
    if dashes != "--" {
        return fail(sandbox::EXIT_OURS, "the command must follow \"--\"");
    }
    let Some(setpcap) = setpcap.to_str().and_then(Setpcap::named) else {
        return fail(sandbox::EXIT_OURS, "what becomes of CAP_SETPCAP is not said");
    };
    let (code, line) = container::enter(&Init { socket: Path::new(socket), setpcap, argv });
    fail(code, &line)
}

fn fail(code: u8, line: &str) -> ExitCode {
    eprintln!("verbgate-init: {}", line.replace('\n', " "));
    ExitCode::from(code)
}
