//! The capabilities that a guest loses, because each reaches a device around the supervisor.

use rustix::io::Errno;
use rustix::thread::CapabilitySet;

/// What is cut from all sets of the guest, and why.
///
/// Those of [`KEEPABLE`] stay where the operator says so.
///
/// Kept on purpose: IPC_LOCK (pinned memory), SYS_RESOURCE (root's programs raise their rlimits; what
/// it adds to `PR_SET_MM` the filter refuses), SYS_NICE, SYS_CHROOT (mounts outside a chroot are
/// `nodev` as well), SETUID and the rest of what a container's root has.
const CUT: &[(CapabilitySet, &str)] = &[
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
    (CapabilitySet::NET_RAW, "sends packets that the NIC of another executes as RDMA"),
    (CapabilitySet::NET_ADMIN, "takes addresses of others, and the fence of its network away"),
];

/// Of these, what an operator can leave to a guest, by name: raw queue pairs and interfaces of the
/// guest's own need them.
pub const KEEPABLE: [&str; 2] = ["NET_RAW", "NET_ADMIN"];

/// What is cut from a guest that keeps these, and why.
pub fn cut_but(kept: &[String]) -> impl Iterator<Item = &'static (CapabilitySet, &'static str)> {
    let stays = |one: &CapabilitySet| {
        let mut names = one.iter_names().map(|(name, _)| name);
        names.any(|name| KEEPABLE.contains(&name) && kept.iter().any(|kept| kept == name))
    };
    CUT.iter().filter(move |(one, _)| !stays(one))
}

fn cut(kept: &[String]) -> CapabilitySet {
    cut_but(kept).fold(CapabilitySet::empty(), |all, (one, _)| all | *one)
}

/// Cuts [`CUT`], less what is kept, from the bounding set, so that no exec brings it back, and from the others.
///
/// Of these the caller keeps CAP_SYS_ADMIN, with which the filter is installed next; the program's
/// execve(2) takes it, because a program gets what the bounding set has. (Under the filter capset(2)
/// would wait for a supervisor that does not serve yet.)
pub(super) fn drop_for_guest(kept: &[String]) -> rustix::io::Result<()> {
    for (capability, _) in cut_but(kept) {
        match rustix::thread::capability_is_in_bounding_set(*capability) {
            Ok(true) => rustix::thread::remove_capability_from_bounding_set(*capability)?,
            // EINVAL: this kernel is older than the capability.
            Ok(false) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut sets = rustix::thread::capabilities(None)?;
    // The ambient set follows: the kernel keeps it within permitted and inheritable.
    let cut = cut(kept);
    let now = cut - CapabilitySet::SYS_ADMIN;
    sets.effective -= now;
    sets.permitted -= now;
    sets.inheritable -= cut;
    rustix::thread::set_capabilities(None, sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rdma_programs_need_is_kept() {
        let kept = CapabilitySet::IPC_LOCK | CapabilitySet::SYS_RESOURCE | CapabilitySet::SETUID;
        assert!((cut(&[]) & kept).is_empty());
    }

    #[test]
    fn an_operator_leaves_two_to_a_guest_and_no_others() {
        let names: Vec<String> = CUT
            .iter()
            .flat_map(|(one, _)| one.iter_names().map(|(name, _)| name.to_owned()))
            .collect();
        let network = CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN;
        assert!(cut(&[]).contains(network));
        assert_eq!(cut(&[]) - cut(&names), network);
        assert_eq!(cut(&[]) - cut(&["NET_RAW".to_owned()]), CapabilitySet::NET_RAW);
    }

    #[test]
    fn each_is_one_capability_named_once() {
        let bits: u32 = CUT.iter().map(|(c, _)| c.bits().count_ones()).sum();
        assert_eq!(bits as usize, CUT.len());
        assert_eq!(cut(&[]).bits().count_ones() as usize, CUT.len());
    }
}
