//! Debian packages that the comparison needs, as the lab gets its own.

use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::sync::Mutex;

/// Makes sure that all files are there, each of the package beside it: installs what is missing
/// when root.
///
/// # Errors
///
/// Why the comparison cannot be made, in one line.
pub(crate) fn require(needs: &[(&str, &'static str)]) -> Result<(), String> {
    // Apt takes one at a time.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let missing =
        |(file, package): &(&str, &'static str)| (!Path::new(file).exists()).then_some(*package);
    let packages: Vec<&str> = needs.iter().filter_map(missing).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let wanted = packages.join(" ");
    let id = Command::new("id").arg("-u").output().map_err(|e| format!("id: {e}"))?;
    if id.stdout.trim_ascii() != b"0" {
        return Err(format!("install {wanted}"));
    }
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let install: Vec<&str> =
        ["install", "-qq", "--no-install-recommends"].into_iter().chain(packages).collect();
    // On a fresh machine apt knows no packages yet.
    if apt(&install) || (apt(&["update", "-qq"]) && apt(&install)) {
        return Ok(());
    }
    Err(format!("apt-get cannot install {wanted}"))
}
