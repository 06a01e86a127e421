//! The capabilities that a guest loses, because each reaches a device around the supervisor.

use rustix::io::Errno;
use rustix::thread::CapabilitySet;

/// What is cut from all sets of the guest, and why.
///
/// Kept on purpose: NET_ADMIN and NET_RAW (RDMA programs set up their own interfaces and use raw
/// QPs), IPC_LOCK (pinned memory), SYS_RESOURCE (root's programs raise their rlimits; what it
/// adds to `PR_SET_MM` the filter refuses), SYS_NICE, SYS_CHROOT (mounts outside a chroot are
/// `nodev` as well), SETUID and the rest of what a container's root has.
pub const CUT: &[(CapabilitySet, &str)] = &[
    (CapabilitySet::MKNOD, "makes a node of the device"),
    (CapabilitySet::SYS_ADMIN, "unmounts the private /dev/infiniband, or enters the host's mounts"),
    (CapabilitySet::SYS_RAWIO, "reads and writes I/O ports, /dev/mem and PCI registers"),
    (CapabilitySet::SYS_MODULE, "loads code into the kernel"),
    (CapabilitySet::SYS_BOOT, "loads another kernel by kexec"),
    (CapabilitySet::SYS_PTRACE, "reads and steers the supervisor"),
    (CapabilitySet::DAC_READ_SEARCH, "opens files of covered mounts by handle"),
    (CapabilitySet::BPF, "loads programs that read kernel memory"),
    (CapabilitySet::PERFMON, "lets those programs trace and read any process"),
    (CapabilitySet::CHECKPOINT_RESTORE, "opens other processes' files through map_files"),
];

fn cut() -> CapabilitySet {
    CUT.iter().fold(CapabilitySet::empty(), |all, (one, _)| all | *one)
}

/// Cuts [`CUT`] from the bounding set, so that no exec brings it back, and from the others.
///
/// Of these the caller keeps CAP_SYS_ADMIN, with which the filter is installed next; the program's
/// execve(2) takes it, because a program gets what the bounding set has. (Under the filter capset(2)
/// would wait for a supervisor that does not serve yet.)
pub(super) fn drop_for_guest() -> rustix::io::Result<()> {
    let none = CapabilitySet::empty();
    drop_with(none, none, none)
}

/// What becomes of CAP_SETPCAP, which a container's process was given to give up others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setpcap {
    /// Nothing in the container has it ever.
    Never,
    /// Only execve(2) may give it to root's programs, from the bounding set.
    ByExec,
    /// The process had it anyway.
    Kept,
}

impl Setpcap {
    const NAMES: [(Self, &str); 3] =
        [(Self::Never, "never"), (Self::ByExec, "by-exec"), (Self::Kept, "kept")];

    /// Its name in arguments.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| name)
    }

    /// The one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(one, _)| *one)
    }
}

/// The same for a container's process. Neither the inheritable nor the ambient set passes
/// CAP_SETPCAP on, whatever they held before.
pub(super) fn drop_for_container(setpcap: Setpcap) -> rustix::io::Result<()> {
    let (none, given) = (CapabilitySet::empty(), CapabilitySet::SETPCAP);
    let bounding = if setpcap == Setpcap::Never { given } else { none };
    let permitted = if setpcap == Setpcap::Kept { none } else { given };
    drop_with(bounding, permitted, given)
}

/// Cuts more than [`CUT`] from these sets.
fn drop_with(
    bounding: CapabilitySet,
    permitted: CapabilitySet,
    inheritable: CapabilitySet,
) -> rustix::io::Result<()> {
    for capability in CUT.iter().map(|(one, _)| *one).chain(bounding.iter()) {
        match rustix::thread::capability_is_in_bounding_set(capability) {
            Ok(true) => rustix::thread::remove_capability_from_bounding_set(capability)?,
            // EINVAL: this kernel is older than the capability.
            Ok(false) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut sets = rustix::thread::capabilities(None)?;
    // The ambient set follows: the kernel keeps it within permitted and inheritable.
    let now = (cut() | permitted) - CapabilitySet::SYS_ADMIN;
    sets.effective -= now;
    sets.permitted -= now;
    sets.inheritable -= cut() | inheritable;
    rustix::thread::set_capabilities(None, sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rdma_programs_need_is_kept() {
        let kept = CapabilitySet::NET_ADMIN
            | CapabilitySet::NET_RAW
            | CapabilitySet::IPC_LOCK
            | CapabilitySet::SYS_RESOURCE
            | CapabilitySet::SETUID;
        assert!((cut() & kept).is_empty());
    }

    #[test]
    fn each_is_one_capability_named_once() {
        let bits: u32 = CUT.iter().map(|(c, _)| c.bits().count_ones()).sum();
        assert_eq!(bits as usize, CUT.len());
        assert_eq!(cut().bits().count_ones() as usize, CUT.len());
    }
}
