//! The names by which a device can be opened.

use std::error::Error;
use std::ffi::CString;
use std::fs;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::kernel::addr;
use crate::kernel::call;
use crate::kernel::dup2;
use crate::kernel::fork;
use crate::kernel::int;
use crate::kernel::outcome;
use crate::life::request;
use crate::raw;

/// Opens and asks; tells which of them failed.
fn tell(name: &str, opened: io::Result<OwnedFd>) {
    match opened {
        Ok(file) => println!("{name}: {}", outcome(&request(file.as_raw_fd()))),
        Err(_) => println!("{name}: cannot be opened: {}", outcome(&opened)),
    }
}

fn owned(fd: io::Result<u64>) -> io::Result<OwnedFd> {
    let fd = i32::try_from(fd?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given this number to this process, which tells nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn openat(dir: i32, path: impl AsRef<Path>, flags: i32) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_ref().as_os_str().as_encoded_bytes())?;
    let args = [int(dir), path.as_ptr() as u64, int(flags | libc::O_CLOEXEC), 0];
    owned(call(libc::SYS_openat, &args))
}

fn openat2(dir: i32, path: impl AsRef<Path>, resolve: u64) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_ref().as_os_str().as_encoded_bytes())?;
    let how = [int(libc::O_RDWR), 0, resolve];
    owned(call(libc::SYS_openat2, &[int(dir), path.as_ptr() as u64, addr(&how), 24]))
}

/// By paths and links of all kinds.
pub(crate) fn names(device: &str) -> Result<(), Box<dyn Error>> {
    const RESOLVE_NO_SYMLINKS: u64 = 4;
    let device = Path::new(device);
    let (dir, name) = device.parent().zip(device.file_name()).ok_or("not a path of a device")?;
    let cwd = libc::AT_FDCWD;
    let both = libc::O_RDWR;
    let opened = File::open(dir)?;
    // Links elsewhere have the device's name; those in /dev have any.
    let make = |below: &Path| {
        let temp = below.join(format!("verbgate-names-{}", std::process::id()));
        fs::create_dir(&temp).map(|()| temp)
    };
    let (temp, in_dev) = (make(&std::env::temp_dir())?, make(Path::new("/dev/shm"))?);
    let (link, second) = (temp.join(name), in_dev.join("second"));
    let (folder, upwards) = (temp.join("folder"), in_dev.join("upwards"));
    symlink(device, &link)?;
    symlink(&link, &second)?;
    symlink(dir, &folder)?;
    let up: String = "../".repeat(in_dev.components().count() - 1);
    symlink(format!("{up}{}", &device.display().to_string()[1..]), &upwards)?;

    tell("plain", openat(cwd, device, both));
    tell(
        "detour",
        openat(cwd, dir.join("./../").join(dir.file_name().unwrap_or(name)).join(name), both),
    );
    tell("slashes", openat(cwd, format!("/{}", device.display()), both));
    tell("folder's descriptor", openat(opened.as_raw_fd(), name, both));
    tell("openat2", openat2(opened.as_raw_fd(), name, 0));
    tell("link", openat(cwd, &link, both));
    tell("link to a link", openat(cwd, &second, both));
    tell("linked folder", openat(cwd, folder.join(name), both));
    tell("relative link", openat(cwd, &upwards, both));
    tell("link not followed", openat(cwd, &link, both | libc::O_NOFOLLOW));
    tell("no links at all", openat2(cwd, &link, RESOLVE_NO_SYMLINKS));
    std::env::set_current_dir(dir)?;
    tell("relative", openat(cwd, name, both));
    let (_, below_first) =
        device.to_str().and_then(|d| d[1..].split_once('/')).ok_or("not below a folder")?;
    let up = "../".repeat(dir.components().count() - 2);
    tell("relative detour", openat(cwd, format!("./{up}/.//{below_first}"), both));
    std::env::set_current_dir(&in_dev)?;
    tell("relative path of a link", openat(cwd, "second", both));
    tell("nothing", openat(cwd, "nothing", both));
    let jailed = fork(|| {
        let root = c"/dev";
        if call(libc::SYS_chroot, &[root.as_ptr() as u64]).is_err() {
            return 1;
        }
        let inside = device.strip_prefix("/dev").unwrap_or(device);
        tell("under another root", openat(cwd, Path::new("/").join(inside), both));
        0
    })?;
    println!("{:?}", jailed.wait()?);
    // With close-on-exec, as `openat` adds: a shell's `<>` is without that flag.
    let unusual = [libc::O_CREAT, libc::O_TRUNC, libc::O_APPEND].map(|flag| both | flag);
    for flags in [libc::O_RDONLY, libc::O_WRONLY].into_iter().chain(unusual) {
        println!("{flags}: {}", outcome(&openat(cwd, device, flags)));
    }
    fs::remove_dir_all(temp)?;
    fs::remove_dir_all(in_dev)?;
    Ok(())
}

/// What a process with few numbers can do; and one that uses high ones.
pub(crate) fn narrow(device: &str) -> Result<(), Box<dyn Error>> {
    tell("first", openat(libc::AT_FDCWD, device, libc::O_RDWR));
    let held: Vec<_> = (0..3).map(|_| raw::open(device)).collect();
    let well = held.iter().flatten().filter(|file| {
        request(file.as_raw_fd()).is_err_and(|e| e.raw_os_error() == Some(libc::ENOTTY))
    });
    println!("three: {}", well.count());
    for high in [1100, 5000, 17_000] {
        let moved = dup2(held.iter().flatten().next().ok_or("none")?.as_raw_fd(), high);
        println!("at {high}: {}", outcome(&moved.and_then(request)));
    }
    Ok(())
}
