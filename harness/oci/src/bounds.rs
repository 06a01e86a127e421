//! The tenant's quotas as the kernel's own bounds: `rdma.max` of a container's control group.
//!
//! The kernel counts a sandbox's opens and objects there, whoever makes them: stubs are threads of the
//! container's. The runtime is not asked to write the file (`linux.resources.rdma`), because a runtime
//! refuses the container where the file is missing, as in the groups that systemd makes.

use std::fs;
use std::io;
use std::path::Path;

use verbgate_proxy::quota::Resource;
use verbgate_sandbox::Policy;
use verbgate_sandbox::PolicyError;

use crate::place::Spec;
use crate::pod::mount_of;

/// The controller's name: Documentation/admin-guide/cgroup-v1/rdma.rst, and the same in version 2.
const CONTROLLER: &str = "rdma";
/// A group's file of bounds.
const MOST: &str = "rdma.max";

/// Has the kernel enforce the quotas of a container's tenant, too, where the kernel can. `process` is one of
/// the container's.
///
/// # Errors
/// The policy cannot be read.
pub(crate) fn enforce(spec: &Spec, process: i32) -> Result<(), PolicyError> {
    let devices: Vec<&str> = spec.devices.iter().filter_map(|one| one.identity.ibdev()).collect();
    if let Err(e) = set(&spec.policy()?, &devices, process) {
        log::warn!(
            "container {}: the kernel does not enforce the tenant's quotas ({e}), only verbgate does; \
             enable the controller rdma in the groups above the container's (cgroup.subtree_control)",
            spec.id
        );
    }
    Ok(())
}

/// Writes the quotas of a policy about these devices, by their names in the kernel, for the group of a
/// container's process. Does nothing where the policy has none.
///
/// # Errors
/// The kernel has no such controller, or the group's parents cannot have it.
fn set(policy: &Policy, devices: &[&str], process: i32) -> io::Result<()> {
    let Some(bounds) = bounds(policy) else { return Ok(()) };
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let missing = || io::Error::other("no control group has the controller rdma");
    let (controllers, group) = group_of(&groups).ok_or_else(missing)?;
    let mount = mount_of(&mounts, controllers).ok_or_else(missing)?;
    let folder = mount.at(Path::new(group));
    if !folder.join(MOST).exists() {
        mount.enable(CONTROLLER, &folder)?;
    }
    for device in devices {
        fs::write(folder.join(MOST), format!("{device} {bounds}"))?;
    }
    Ok(())
}

/// What is written behind a device's name.
fn bounds(policy: &Policy) -> Option<String> {
    let of =
        |name: &str, resource| Some(format!("{name}={}", policy.quota(resource)?.min(KERNELS)));
    let words: Vec<String> =
        [of("hca_handle", Resource::Ucontexts), of("hca_object", Resource::Objects)]
            .into_iter()
            .flatten()
            .collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// The largest bound that the kernel takes: S32_MAX, kernel/cgroup/rdma.c.
const KERNELS: u64 = i32::MAX as u64;

/// The controllers and the path of the line of `/proc/PID/cgroup` for the hierarchy that has the controller:
/// one of version 1, or else version 2.
fn group_of(text: &str) -> Option<(&str, &str)> {
    let fields = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    fields()
        .find(|(controllers, _)| controllers.split(',').any(|one| one == CONTROLLER))
        .or_else(|| fields().find(|(controllers, _)| controllers.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &str) -> Policy {
        Policy::read_all(&[format!("name = \"a\"\nextends = \"standard\"\n{rules}")]).unwrap()
    }

    #[test]
    fn quotas_are_the_kernels_words() {
        let both = policy("rules.quota = { ucontexts = 4, objects = 5000000000, qp = 8 }");
        assert_eq!(bounds(&both).unwrap(), "hca_handle=4 hca_object=2147483647");
        assert_eq!(bounds(&policy("rules.quota.objects = 100")).unwrap(), "hca_object=100");
        assert_eq!(bounds(&policy("rules.quota.qp = 8")), None);
    }

    #[test]
    fn the_group_is_found_in_both_versions() {
        let mixed = "3:rdma:/docker/x\n2:pids:/y\n0::/z\n";
        assert_eq!(group_of(mixed), Some(("rdma", "/docker/x")));
        assert_eq!(group_of("2:pids:/y\n0::/z\n"), Some(("", "/z")));
        assert_eq!(group_of("2:pids:/y\n"), None);
    }
}
