//! The programs: how each is started, and what shows that it has done its work.
//!
//! In the words, `{role}` is server or client, `{device}` the RDMA device, `{address}` its address, `{port}` a free
//! port, `{scripts}` the folder of this crate's scripts, `{fetched}` that of unpacked wheels, and `{server}` what the
//! server says of where it listens.

/// A program.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: &'static str,
    /// Whether it compares every byte that it moves, or checks sums of them.
    pub(super) compares: bool,
    pub(super) env: &'static [(&'static str, &'static str)],
    pub(super) ends: Ends,
    /// What it says when it has done its work.
    pub(super) says: &'static str,
}

/// How its ends are started.
#[derive(Debug)]
pub(super) enum Ends {
    /// A server, and a client as soon as the server listens at the port, or says this word.
    Pair {
        server: &'static [&'static str],
        client: &'static [&'static str],
        ready: Option<&'static str>,
    },
    /// Two ranks, started by a launcher.
    Ranks { launcher: &'static [&'static str], rank: &'static [&'static str] },
}

/// The ends of a program whose server and client are told apart by one word.
const fn both(words: &'static [&'static str]) -> Ends {
    Ends::Pair { server: words, client: words, ready: None }
}

/// Scripts, by their names in the folder.
pub(super) const SCRIPTS: &[(&str, &str)] = &[
    ("nccl_net.py", include_str!("../../scripts/nccl_net.py")),
    ("nixl_pair.py", include_str!("../../scripts/nixl_pair.py")),
    ("mpi_pair.py", include_str!("../../scripts/mpi_pair.py")),
];

const NCCL: &str = "{fetched}/nccl/nvidia/nccl/lib/libnccl.so.2";
/// The index is that of the address's GID: not every GID of Soft-RoCE's reaches the same machine.
const UCX_RC: &[(&str, &str)] = &[
    ("UCX_NET_DEVICES", "{device}:1"),
    ("UCX_TLS", "rc_v,self"),
    ("UCX_IB_GID_INDEX", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];
const UCX_UD: &[(&str, &str)] = &[
    ("UCX_NET_DEVICES", "{device}:1"),
    ("UCX_TLS", "ud_v,self"),
    ("UCX_IB_GID_INDEX", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];
/// MPI brings the ends together, and moves no data.
const MPI_APART: &[&str] =
    &["mpirun", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp"];
const MOONCAKE: &str = "{fetched}/mooncake/mooncake/transfer_engine_bench";

#[rustfmt::skip]
pub(super) static CLIENTS: &[Client] = &[
    Client {
        name: "nccl-16-connections",
        compares: true,
        env: &[("NCCL_SOCKET_IFNAME", "lo"), ("NCCL_IB_HCA", "{device}"), ("NCCL_IB_GID_INDEX", "1")],
        ends: both(&["python3", "{scripts}/nccl_net.py", "{role}", "{port}", NCCL, "16", "2", "1", "4096", "262144"]),
        says: "every byte compared",
    },
    Client {
        name: "nccl-no-gid-index",
        compares: true,
        env: &[("NCCL_SOCKET_IFNAME", "lo"), ("NCCL_IB_HCA", "{device}")],
        ends: both(&["python3", "{scripts}/nccl_net.py", "{role}", "{port}", NCCL, "1", "2", "1", "8388608"]),
        says: "every byte compared",
    },
    Client {
        name: "nccl-relaxed-4-qps",
        compares: true,
        env: &[
            ("NCCL_SOCKET_IFNAME", "lo"), ("NCCL_IB_HCA", "{device}"), ("NCCL_IB_GID_INDEX", "1"),
            ("NCCL_IB_QPS_PER_CONNECTION", "4"), ("NCCL_IB_PCI_RELAXED_ORDERING", "1"),
        ],
        ends: both(&["python3", "{scripts}/nccl_net.py", "{role}", "{port}", NCCL, "2", "4", "1", "1048576"]),
        says: "every byte compared",
    },
    Client {
        name: "nixl",
        compares: true,
        env: UCX_RC,
        ends: both(&["python3", "{scripts}/nixl_pair.py", "{role}", "{port}", "{fetched}/nixl", "UCX", "65536", "10"]),
        says: "every byte compared",
    },
    Client {
        name: "mooncake",
        compares: false,
        env: &[("LD_LIBRARY_PATH", "{fetched}/mooncake/mooncake")],
        ends: Ends::Pair {
            server: &[
                MOONCAKE, "-mode=target", "-protocol=rdma", "-device_name={device}",
                "-metadata_server=P2PHANDSHAKE", "-local_server_name={address}:{port}", "-buffer_size=67108864",
            ],
            client: &[
                MOONCAKE, "-mode=initiator", "-protocol=rdma", "-device_name={device}",
                "-metadata_server=P2PHANDSHAKE", "-local_server_name={address}", "-segment_id={server}",
                "-buffer_size=67108864", "-block_size=65536", "-threads=4", "-duration=2",
            ],
            ready: Some("listening on "),
        },
        says: "",
    },
    Client {
        name: "ucx-rc",
        compares: false,
        env: UCX_RC,
        ends: Ends::Ranks {
            launcher: MPI_APART,
            rank: &["ucx_perftest", "-t", "tag_bw", "-s", "65536", "-n", "200", "-w", "10"],
        },
        says: "Final:",
    },
    Client {
        name: "ucx-ud",
        compares: false,
        env: UCX_UD,
        ends: Ends::Ranks {
            launcher: MPI_APART,
            rank: &["ucx_perftest", "-t", "tag_lat", "-s", "1024", "-n", "200", "-w", "10"],
        },
        says: "Final:",
    },
    Client {
        name: "libfabric-rc",
        compares: true,
        env: &[],
        ends: Ends::Pair {
            server: &["fi_pingpong", "-p", "verbs", "-e", "msg", "-c", "-I", "50", "-B", "{port}"],
            client: &["fi_pingpong", "-p", "verbs", "-e", "msg", "-c", "-I", "50", "-P", "{port}", "{address}"],
            ready: None,
        },
        says: "64k",
    },
    Client {
        name: "libfabric-rxm",
        compares: true,
        env: &[],
        ends: Ends::Pair {
            server: &["fi_pingpong", "-p", "verbs;ofi_rxm", "-e", "rdm", "-c", "-I", "50", "-B", "{port}"],
            client: &["fi_pingpong", "-p", "verbs;ofi_rxm", "-e", "rdm", "-c", "-I", "50", "-P", "{port}", "{address}"],
            ready: None,
        },
        says: "64k",
    },
    Client {
        name: "open-mpi-ucx",
        compares: true,
        env: UCX_RC,
        ends: Ends::Ranks {
            launcher: &["mpirun", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx"],
            rank: &["python3", "{scripts}/mpi_pair.py", "3"],
        },
        says: "every byte compared",
    },
    // Of what is written by RDMA the server sees no completion of its own, and compares nothing, whatever
    // --verify says.
    Client {
        name: "fio-rdma",
        compares: false,
        env: &[],
        ends: Ends::Pair {
            server: &["fio", "--name=server", "--ioengine=rdma", "--port={port}", "--rw=read", "--bs=65536", "--size=16m", "--verify=crc32c", "--iodepth=4"],
            client: &["fio", "--name=client", "--ioengine=rdma", "--hostname={address}", "--port={port}", "--verb=write", "--rw=write", "--bs=65536", "--size=16m", "--verify=crc32c", "--do_verify=0", "--iodepth=4"],
            ready: Some("waiting for connection"),
        },
        says: "err= 0",
    },
    Client {
        name: "qperf",
        compares: true,
        env: &[],
        ends: Ends::Pair {
            server: &["qperf", "-lp", "{port}"],
            client: &["qperf", "-lp", "{port}", "-t", "1", "-cm", "1", "{address}", "rc_rdma_write_bw", "rc_bi_bw", "ver_rc_compare_swap", "ver_rc_fetch_add"],
            ready: None,
        },
        says: "ver_rc_fetch_add",
    },
    Client {
        name: "rsockets",
        compares: true,
        env: &[],
        ends: Ends::Pair {
            server: &["rstream", "-b", "{address}", "-p", "{port}", "-C", "20", "-I", "5", "-S", "65536", "-T", "v"],
            client: &["rstream", "-s", "{address}", "-p", "{port}", "-C", "20", "-I", "5", "-S", "65536", "-T", "v"],
            ready: None,
        },
        says: "64k",
    },
];
