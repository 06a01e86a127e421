//! The Landlock domain of a guest: landlock(7).
//!
//! The domain handles one access right, making character devices, and grants that right nowhere. A
//! domain brings two more wanted effects: mount(2), umount(2) and pivot_root(2) fail with EPERM in
//! the domain, user namespace or not, and a process outside can neither be traced nor looked into
//! through `/proc/PID/{root,cwd,fd,mem,...}`.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::fs::OFlags;

use crate::check;

/// ABI 1 (Linux 5.13 to 5.18) refuses every rename across directories and cannot be told not
/// to: worse for honest programs than what the domain adds to the cut capabilities.
pub(super) const LEAST_ABI: u32 = 2;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
const ACCESS_FS_MAKE_CHAR: u64 = 1 << 6;
/// Rename and link across directories: forbidden by any domain unless handled and granted.
const ACCESS_FS_REFER: u64 = 1 << 13;

/// `struct landlock_ruleset_attr` as of ABI 1; the kernel takes the rest as zero.
#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

/// The kernel's Landlock ABI; `None` where it has none, has it switched off, or where an outer
/// seccomp filter refuses it.
pub(super) fn abi() -> Option<u32> {
    // SAFETY: with this flag the kernel takes a null attribute of size 0 and returns a number.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttr>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(ret).ok()
}

/// Puts the calling thread and its descendants into the domain, where the kernel can.
///
/// Needs CAP_SYS_ADMIN in the user namespace, or `no_new_privs`.
pub(super) fn enter() -> io::Result<()> {
    if abi().is_none_or(|abi| abi < LEAST_ABI) {
        return Ok(());
    }
    let attr = RulesetAttr { handled_access_fs: ACCESS_FS_MAKE_CHAR | ACCESS_FS_REFER };
    // SAFETY: `attr` is a prefix of `struct landlock_ruleset_attr` of the size given.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attr,
            size_of::<RulesetAttr>(),
            0u32,
        )
    })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(fd) };

    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let rule = PathBeneathAttr { allowed_access: ACCESS_FS_REFER, parent_fd: root.as_raw_fd() };
    // SAFETY: `rule` is a `struct landlock_path_beneath_attr`, which lives through the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0u32,
        )
    })?;
    // SAFETY: all arguments are plain numbers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) })
        .map(drop)
}
