//! The recorded attributes: those that libibverbs, NCCL, UCX, hwloc and people read. Attributes
//! that are missing here (`resourceN`, `rom`, `reset`, `sriov_*`) either reach hardware or tell of
//! other devices.

/// Of every function and what lies between it and an RDMA device; Documentation/ABI/testing/
/// sysfs-bus-pci.
#[rustfmt::skip]
pub(super) const DEVICE: &[&str] = &[
    "aer_dev_correctable", "aer_dev_fatal", "aer_dev_nonfatal", "ari_enabled",
    "broken_parity_status", "class", "config", "consistent_dma_mask_bits", "current_link_speed",
    "current_link_width", "d3cold_allowed", "device", "dma_mask_bits", "enable", "irq",
    "local_cpulist", "local_cpus", "max_link_speed", "max_link_width", "modalias", "msi_bus",
    "numa_node", "power_state", "resource", "revision", "secondary_bus_number",
    "subordinate_bus_number", "subsystem_device", "subsystem_vendor", "uevent", "vendor",
    // virtio
    "features", "status",
];

/// Of a PCI bus.
pub(super) const BUS: &[&str] = &["cpuaffinity", "cpulistaffinity", "uevent"];

/// Of `class/infiniband_verbs/uverbsN`; drivers/infiniband/core/uverbs_main.c.
pub(super) const VERBS: &[&str] = &["abi_version", "dev", "ibdev", "uevent"];

/// Of a network interface; Documentation/ABI/testing/sysfs-class-net. `statistics` is a directory.
#[rustfmt::skip]
pub(super) const NETDEV: &[&str] = &[
    "addr_assign_type", "addr_len", "address", "broadcast", "carrier", "carrier_changes",
    "carrier_down_count", "carrier_up_count", "dev_id", "dev_port", "dormant", "duplex", "flags",
    "gro_flush_timeout", "ifalias", "ifindex", "iflink", "link_mode", "mtu", "name_assign_type",
    "netdev_group", "operstate", "phys_port_id", "phys_port_name", "phys_switch_id",
    "proto_down", "speed", "statistics", "testing", "threaded", "tx_queue_len", "type", "uevent",
];

/// The SMBIOS tables.
pub(super) const DMI: &str = "devices/virtual/dmi/id";

/// Files and directories of no device, by the directory that they are in. Directories are recorded whole,
/// symbolic links and what is inside deeper ones left out.
#[rustfmt::skip]
pub(super) const SYSTEM: &[(&str, &[&str])] = &[
    ("devices/system/node", &[
        "has_cpu", "has_generic_initiator", "has_memory", "has_normal_memory", "online", "possible",
    ]),
    ("devices/system/cpu", &["kernel_max", "offline", "online", "possible", "present"]),
    // What NCCL takes as a sign that a NIC can reach GPU memory.
    ("kernel/mm/memory_peers", &["nv_mem"]),
    ("module", &["nvidia_peermem", "nv_peer_mem", "nvidia", "nvidia_uvm", "gdrdrv", "amdgpu"]),
    // On which cloud's machine this is: aws-ofi-nccl and UCX ask.
    ("devices/virtual/dmi", &["id"]),
];

/// The attributes of NUMA nodes and processors, which are numbered.
pub(super) const NUMBERED: &[(&str, &str, &[&str])] = &[
    ("devices/system/node", "node", &["cpulist", "cpumap", "distance", "meminfo"]),
    ("devices/system/cpu", "cpu", &["online", "topology"]),
];

/// Directories of the host's sysfs that are mounted into a served one as they are, and why: they
/// have nothing of RDMA, of GPUs or of other programs' devices, and what is in them points
/// nowhere outside of them or each other.
#[rustfmt::skip]
pub const KEPT: &[&str] = &[
    "bus/cpu",          // points into devices/system
    "bus/node",         // hwloc looks here first
    "devices/system",   // processors, memory, NUMA nodes
    "devices/virtual/kfd", // topology of AMD's GPUs
    "fs/cgroup",        // the control groups, as they are mounted
    "fs/selinux",       // libselinux asks whether it is on
    "kernel/mm",        // huge pages, and memory_peers
    "kernel/security",  // securityfs: AppArmor
];
