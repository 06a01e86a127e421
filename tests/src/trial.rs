//! Trials: a case on a device of a kernel, and why `cargo xtask test` runs the trial by default.

use std::fmt;

use crate::cases;
use crate::cases::Device;

/// The kernels whose machines run cases, by the lab's names.
pub const KERNELS: &[&str] = &["6.1", "6.12", "7.2", UML, ARM64];
/// A kernel of another processor, without models of NICs.
const ARM64: &str = "arm64-6.12";

/// A kernel that is a process of this machine: no emulated processor, and no models of NICs.
const UML: &str = "uml-7.2";
/// Cases that the lab's User-Mode Linux cannot run: it has no firmware that tells serial numbers, and is built without
/// netfilter and other users of RDMA. On one busy processor `rping` of rdma-core 65 now and then destroys its id between
/// seeing the id's last event and asking for the event, and then waits for ever (`librdmacm/examples/rping.c`).
const NOT_OF_UML: &[&str] = &[
    "rping",
    "sysfs_keeps_modes_and_has_no_serials",
    "tenant_behind_a_fence_speaks_roce_by_verbs",
    "tenant_has_the_kernel_speak_rdma",
    "tenant_speaks_roce_by_a_plain_socket",
];

/// A case on one kernel; prints as `KERNEL::DEVICE::CASE`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Trial {
    /// The kernel, by the lab's name.
    pub kernel: &'static str,
    /// The device.
    pub device: Device,
    /// The case.
    pub case: &'static str,
    /// Why `cargo xtask test` runs the trial; none if only `--all` does.
    pub why: Option<&'static str>,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}::{}", self.kernel, self.device.name(), self.case)
    }
}

impl Trial {
    /// The trial of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        all().into_iter().find(|trial| trial.to_string() == name)
    }

    /// Whether the trial takes two machines, which a case does not know.
    #[must_use]
    pub fn is_of_two_machines(&self) -> bool {
        BETWEEN_MACHINES.iter().any(|(case, _)| *case == self.case)
    }
}

/// Cases between two machines whose NICs are on one wire.
pub const BETWEEN_MACHINES: &[(&str, Device)] = &[
    ("two_machines_efa", Device::Efa),
    ("two_machines_erdma", Device::Erdma),
    ("two_machines_mlx5", Device::Mlx5),
];

/// The reason of an Rxe case that depends on no kernel. On 7.2 Soft-RoCE carries data between namespaces, and
/// User-Mode Linux does the same work for a quarter of what an emulated processor costs.
const ANY: &str = "any kernel";

/// Cases that run by default on these kernels.
struct Row {
    why: &'static str,
    kernels: &'static [&'static str],
    device: Device,
    cases: &'static [&'static str],
}

const DEFAULT: &[Row] = &[
    Row {
        why: "rdma-core 44 makes other requests for the same verbs",
        kernels: &["6.1"],
        device: Device::Rxe,
        cases: &[
            "ibv_devinfo_v",
            "ibv_rc_pingpong",
            "ibv_rc_pingpong_e",
            "ibv_rc_pingpong_odp",
            "ibv_rc_pingpong_stamps",
            "ibv_rc_pingpong_dm",
            "ibv_ud_pingpong",
            "ibv_srq_pingpong_e",
            "ibv_xsrq_pingpong",
            "ib_send_bw_e",
        ],
    },
    Row {
        why: "rdma_cm's commands grow with kernels",
        kernels: &["6.1"],
        device: Device::Rxe,
        cases: &["rping", "raw_commands_of_rdma_cm"],
    },
    Row {
        why: "the kernel's own checks and attributes differ",
        kernels: &["6.1", "7.2"],
        device: Device::Rxe,
        cases: &[
            "malformed_requests",
            "unusual_requests",
            "refused_requests",
            "trace",
            "differential_of_old",
        ],
    },
    Row {
        why: "seccomp, ptrace, pidfds and mseal differ",
        kernels: &["6.1", "7.2"],
        device: Device::Rxe,
        cases: &[
            "several_processes_of_one_guest",
            "raw_node_of_a_granted_device",
            "raw_node_of_rdma_cm",
            "raw_descriptor_that_was_inherited",
            "raw_descriptor_that_was_passed",
            "requests_without_a_supervisor",
            "guest_killed",
            "supervisor_ended_by_a_signal",
            "supervisor_under_a_tracer",
            "guest_under_a_debugger",
            "stopped_while_waiting_for_an_event",
            "sandbox_of_an_ordinary_user",
        ],
    },
    Row {
        why: "GID tables, netlink and sysfs differ most in the oldest kernel",
        kernels: &["6.1"],
        device: Device::Rxe,
        cases: &[
            "gids_of_two_sandboxes",
            "gid_of_a_new_address",
            "gids_of_a_look_alike",
            "devices_by_netlink",
            "network_namespace",
            "device_that_is_replaced",
            "sysfs_is_the_hosts_for_a_granted_device",
            "sysfs_keeps_modes_and_has_no_serials",
            "sysfs_of_a_device_that_vanishes",
            "sysfs_of_a_network_namespace",
        ],
    },
    Row {
        why: "control groups, namespaces and netdevs differ most in the oldest kernel",
        kernels: &["6.1"],
        device: Device::Rxe,
        cases: &[
            "container_with_a_nic",
            "tenant_floods_and_meets_its_quotas",
            "supervisor_is_bounded_and_ends_closed",
            "rails_are_prepared_and_restored",
            "fabric_verify",
        ],
    },
    Row {
        why: "User-Mode Linux cannot run these",
        kernels: &["7.2"],
        device: Device::Rxe,
        cases: NOT_OF_UML,
    },
    Row {
        why: "mseal, pidfds of threads and handles of pidfs are missing",
        kernels: &["6.1"],
        device: Device::Rxe,
        cases: &["hostile_ways"],
    },
    Row {
        why: "another processor",
        kernels: &[ARM64],
        device: Device::Rxe,
        cases: &[
            "ibv_rc_pingpong_checked",
            "ib_send_bw_e",
            "malformed_requests",
            "raw_node_of_a_granted_device",
            "several_processes_of_one_guest",
            "hostile_heirs",
            "hostile_traced",
            "hostile_ways",
        ],
    },
    Row {
        why: "a NIC is seen, carries data, costs no trap, and may go away",
        kernels: &["6.12"],
        device: Device::Efa,
        cases: &[
            "nic_devices",
            "nic_srd_send_lat",
            "nic_no_trap_for_any_work_request",
            "nic_memory_comes_from_the_callers_node",
            "nic_dmabuf_is_its_holders",
            "nic_fabric_srd_dma_buf",
            "nic_removed_under_doorbells",
        ],
    },
    Row {
        why: "a NIC is seen and connects",
        kernels: &["6.12"],
        device: Device::Erdma,
        cases: &["nic_rc_devices", "nic_rc_rping", "nic_rc_ucmatose"],
    },
    Row {
        why: "a NIC is seen, carries data, costs no trap, is shared, and outlives a supervisor",
        kernels: &["6.12"],
        device: Device::Mlx5,
        cases: &[
            "nic_mlx5_devices",
            "nic_mlx5_rc_pingpong_e",
            "nic_mlx5_write_bw",
            "nic_mlx5_xrc_domain_is_one_sandboxs",
            "nic_mlx5_fabric_verify",
            "nic_mlx5_fabric_ud",
            "nic_mlx5_counters_are_the_tenants_own",
            "nic_mlx5_no_trap_for_any_work_request",
            "nic_mlx5_supervisor_killed_under_doorbells",
            "two_machines_mlx5",
        ],
    },
];

/// Every trial, kernel by kernel.
#[must_use]
pub fn all() -> Vec<Trial> {
    let mut trials = Vec::new();
    for kernel in KERNELS {
        let has_nics = ![ARM64, UML].contains(kernel);
        let runs =
            |case: &str| *kernel != UML || !cases::is_hostile(case) && !NOT_OF_UML.contains(&case);
        for device in Device::ALL.into_iter().filter(|device| has_nics || *device == Device::Rxe) {
            let between = BETWEEN_MACHINES.iter().filter(|(_, of)| *of == device);
            let cases = cases::of(device).into_iter().map(|case| case.name);
            let cases = cases.chain(between.map(|(case, _)| *case)).filter(|case| runs(case));
            trials.extend(cases.map(|case| Trial {
                kernel,
                device,
                case,
                why: why(kernel, device, case),
            }));
        }
    }
    trials
}

fn why(kernel: &str, device: Device, case: &str) -> Option<&'static str> {
    let listed = DEFAULT.iter().find(|row| {
        row.kernels.contains(&kernel) && row.device == device && row.cases.contains(&case)
    });
    // Attacks take as long as all else, and are tried on this machine, with stand-ins for the device.
    let anywhere = kernel == UML && device == Device::Rxe && !cases::is_hostile(case);
    listed.map(|row| row.why).or(anywhere.then_some(ANY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_default_names_trials() {
        for row in DEFAULT {
            for (kernel, case) in row
                .kernels
                .iter()
                .flat_map(|kernel| row.cases.iter().map(move |case| (kernel, case)))
            {
                let name = format!("{kernel}::{}::{case}", row.device.name());
                assert_eq!(
                    Trial::find(&name).map(|trial| trial.why),
                    Some(Some(row.why)),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn names_are_unique_and_each_case_runs_by_default_or_by_all() {
        let all = all();
        let names: std::collections::BTreeSet<String> = all.iter().map(Trial::to_string).collect();
        assert_eq!(names.len(), all.len());
        let software =
            |trial: &&Trial| trial.device == Device::Rxe && !cases::is_hostile(trial.case);
        let by_default = all.iter().filter(software).filter(|trial| trial.why.is_some());
        let cases: std::collections::BTreeSet<&str> = by_default.map(|trial| trial.case).collect();
        let of = cases::of(Device::Rxe);
        assert!(of.iter().all(|case| cases::is_hostile(case.name) || cases.contains(case.name)));
    }
}
