//! Rights of a guest for which the kernel asks the supervisor in the guest's place.
//!
//! pidfd_getfd(2) for a guest: a file out of another process's table, by the guest's rights.
//!
//! The supervisor takes the file itself. If the kernel made the guest's own call, another thread of the guest could put
//! a stub's descriptor in the place of the one that was judged.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use super::by_number;
use super::pidfd::PidFd;
use crate::GuestFd;
use crate::Tid;
use crate::caller::Caller;
use crate::process::GuestFile;

/// `CAP_NET_BIND_SERVICE` and `CAP_SYS_PTRACE`, include/uapi/linux/capability.h.
const NET_BIND_SERVICE: u64 = 1 << 10;
const SYS_PTRACE: u64 = 1 << 19;

impl Caller<'_> {
    /// The file that a process, which a descriptor of this caller's names, has under a number.
    ///
    /// # Errors
    /// pidfd_getfd(2)'s; `EPERM` also for a thread that is not the first one of its process: stubs are such.
    pub fn file_of(self, named: GuestFd, at: GuestFd) -> io::Result<GuestFile> {
        let error = |errno: i32| Err(io::Error::from_raw_os_error(errno));
        let named = self.take(named)?;
        if named.name().is_none_or(|name| name != b"anon_inode:[pidfd]") {
            return error(libc::EBADF);
        }
        let Some(file) = named.known() else { return error(libc::EBADF) };
        let info = by_number::text(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        let number = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
        let Some(tid) = number.filter(|number| *number > 0).map(Tid) else {
            return error(libc::ESRCH);
        };
        let pidfd = PidFd::from(file);
        let is_first = by_number::tgid(tid)?.0 == tid.0;
        let may = is_first && may_trace(self.tid(), tid)?;
        // The number was the process's all the while, if the process lives now.
        if pidfd.has_ended() {
            return error(libc::ESRCH);
        }
        self.believed(())?;
        if may { pidfd.get_fd(at).map(GuestFile::from) } else { error(libc::EPERM) }
    }

    /// Whether it may bind to ports below 1024: by its capabilities, which are those of the supervisor's user namespace.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn may_bind_low_ports(self) -> io::Result<bool> {
        let Credentials { effective, namespace, .. } = Credentials::of(self.tid())?;
        let is_here = namespace == fs::read_link("/proc/thread-self/ns/user")?;
        self.believed(is_here && effective & NET_BIND_SERVICE != 0)
    }
}

/// The facts by which the kernel decides who traces whom (`__ptrace_may_access`, kernel/ptrace.c).
struct Credentials {
    user: [u32; 4],
    group: [u32; 4],
    permitted: u64,
    effective: u64,
    namespace: std::path::PathBuf,
}

impl Credentials {
    fn of(tid: Tid) -> io::Result<Self> {
        let status = by_number::text(format!("/proc/{tid}/status"))?;
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let four = |name: &str| {
            let words = line(name)?.split_whitespace().filter_map(|word| word.parse().ok());
            words.collect::<Vec<u32>>().try_into().ok()
        };
        let mask = |name: &str| u64::from_str_radix(line(name)?.trim(), 16).ok();
        Ok(Self {
            user: four("Uid:").ok_or_else(wrong)?,
            group: four("Gid:").ok_or_else(wrong)?,
            permitted: mask("CapPrm:").ok_or_else(wrong)?,
            effective: mask("CapEff:").ok_or_else(wrong)?,
            namespace: fs::read_link(format!("/proc/{tid}/ns/user"))?,
        })
    }
}

/// Whether a thread may take files of a process: of its own, or of another of the sandbox, by its credentials, and as far as Yama (Documentation/admin-guide/LSM/Yama.rst)
/// can be asked. Where the kernel knows of more, such as PR_SET_PTRACER, the answer is no.
fn may_trace(tracer: Tid, process: Tid) -> io::Result<bool> {
    let own = by_number::tgid(tracer)?;
    if own.0 == process.0 {
        return Ok(true);
    }
    // A sandbox has mounts of its own. Where they are the supervisor's, nothing tells a guest from others.
    let mounts = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt"));
    let its = mounts(&process.to_string())?;
    if its != mounts(&tracer.to_string())? || its == mounts("self")? {
        return Ok(false);
    }
    let (who, whom) = (Credentials::of(tracer)?, Credentials::of(process)?);
    let is_able = who.effective & SYS_PTRACE != 0;
    let same = |own: u32, theirs: [u32; 4]| theirs.iter().take(3).all(|id| *id == own);
    let [user, ..] = who.user;
    let [group, ..] = who.group;
    // The files of a process that is not dumpable are root's.
    let [_, theirs, ..] = whom.user;
    let is_dumpable = fs::metadata(format!("/proc/{process}/status"))?.uid() == theirs;
    let by_ids = same(user, whom.user) && same(group, whom.group) && is_dumpable;
    let is_below = || {
        let mut above = std::iter::successors(Some(process), |one| by_number::parent(*one).ok());
        above.any(|one| one.0 == own.0)
    };
    let by_yama = match fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) => match scope.trim() {
            "0" => true,
            "1" => is_able || is_below(),
            "2" => is_able,
            _ => false,
        },
        Err(_) => true,
    };
    Ok(who.namespace == whom.namespace
        && whom.permitted & !who.permitted == 0
        && (by_ids || is_able)
        && by_yama)
}
