//! The programs: how each is started, and what shows that it has done its work.
//!
//! In the words, `{role}` is server or client, `{device}` the end's RDMA device, `{gid}` the index of the device's GID,
//! `{netdev}` the network device of that, behind a comma, if there is one, `{own}` the end's address, `{address}` the
//! server's, `{port}` a free port, `{scripts}` the folder of this crate's scripts, `{fetched}` that of unpacked wheels, and
//! `{server}` what the server says of where it listens.

use anyhow::Result;
use anyhow::bail;

/// What the ends have between them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Card {
    /// Soft-RoCE, one device for both ends.
    Software,
    /// Two NICs of the lab, one for each end: EFAs (datagrams alone, no `rdma_cm`).
    Efa,
    /// ERDMAs: RoCE v2 from Linux 6.14 on, before that iWARP.
    Erdma,
    /// ConnectXs with an InfiniBand port each, and no IP upon it: no `rdma_cm`.
    Mlx5,
}

impl Card {
    /// By the name of a NIC's model, as `--nic` takes it; without a name, Soft-RoCE.
    pub(super) fn find(name: Option<&str>) -> Result<Self> {
        Ok(match name {
            None => Self::Software,
            Some("efa") => Self::Efa,
            Some("erdma") => Self::Erdma,
            Some("mlx5") => Self::Mlx5,
            Some(other) => bail!("no NIC is called {other:?}: use efa, erdma or mlx5"),
        })
    }
}

/// A program.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: &'static str,
    /// Whether it compares every byte that it moves, or checks sums of them.
    pub(super) compares: bool,
    /// What it can use.
    pub(super) on: &'static [Card],
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
    /// Two ranks, started by a launcher, from which they have their environment.
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
/// What makes reliable connections between queue pairs, whose numbers the ends exchange themselves.
const CONNECTED: &[Card] = &[Card::Software, Card::Erdma, Card::Mlx5];
/// What has the connection manager.
const MANAGED: &[Card] = &[Card::Software, Card::Erdma];
const SOFTWARE: &[Card] = &[Card::Software];

/// The index is that of the address's GID: not every GID of Soft-RoCE's reaches the same machine.
const UCX_RC: &[(&str, &str)] =
    &[("UCX_NET_DEVICES", "{device}:1"), ("UCX_TLS", "rc_v,self"), ("UCX_IB_GID_INDEX", "{gid}")];
/// The ranks of a launcher find each other by TCP, as UCX does it by UD otherwise: on Soft-RoCE, UD of UCX ends with
/// an "unhandled timeout error". No message is to be carried by TCP in part.
const UCX_RANKS: &[(&str, &str)] = &[
    ("UCX_NET_DEVICES", "{device}:1{netdev}"),
    ("UCX_TLS", "rc_v,tcp,self"),
    ("UCX_MAX_RNDV_RAILS", "1"),
    ("UCX_IB_GID_INDEX", "{gid}"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];
const UCX_UD: &[(&str, &str)] = &[
    ("UCX_NET_DEVICES", "{device}:1"),
    ("UCX_TLS", "ud_v,self"),
    ("UCX_IB_GID_INDEX", "{gid}"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];
/// MPI brings the ends together, and moves no data. Containers share no memory, and some machines of the lab have no
/// network device but the one that Open MPI leaves out.
#[rustfmt::skip]
const MPI_APART: &[&str] = &[
    "mpirun", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo",
];
const MOONCAKE: &str = "{fetched}/mooncake/mooncake/transfer_engine_bench";

#[rustfmt::skip]
pub(super) static CLIENTS: &[Client] = &[
    Client {
        name: "nccl-16-connections",
        compares: true,
        on: CONNECTED,
        env: &[("NCCL_SOCKET_IFNAME", "lo"), ("NCCL_IB_HCA", "{device}"), ("NCCL_IB_GID_INDEX", "{gid}")],
        ends: both(&["python3", "{scripts}/nccl_net.py", "{role}", "{port}", NCCL, "16", "2", "1", "4096", "262144"]),
        says: "every byte compared",
    },
    Client {
        name: "nccl-no-gid-index",
        compares: true,
        on: CONNECTED,
        env: &[("NCCL_SOCKET_IFNAME", "lo"), ("NCCL_IB_HCA", "{device}")],
        ends: both(&["python3", "{scripts}/nccl_net.py", "{role}", "{port}", NCCL, "1", "2", "1", "8388608"]),
        says: "every byte compared",
    },
    Client {
        name: "nccl-relaxed-4-qps",
        compares: true,
        on: CONNECTED,
        env: &[
            ("NCCL_SOCKET_IFNAME", "lo"), ("NCCL_IB_HCA", "{device}"), ("NCCL_IB_GID_INDEX", "{gid}"),
            ("NCCL_IB_QPS_PER_CONNECTION", "4"), ("NCCL_IB_PCI_RELAXED_ORDERING", "1"),
        ],
        ends: both(&["python3", "{scripts}/nccl_net.py", "{role}", "{port}", NCCL, "2", "4", "1", "1048576"]),
        says: "every byte compared",
    },
    Client {
        name: "nixl",
        compares: true,
        on: CONNECTED,
        env: UCX_RC,
        ends: both(&["python3", "{scripts}/nixl_pair.py", "{role}", "{port}", "{fetched}/nixl", "UCX", "65536", "10"]),
        says: "every byte compared",
    },
    // As UCX chooses for itself on a ConnectX: it writes work requests and rings doorbells itself. The lab's model makes
    // no receive queues by DEVX, which UCX would ask for.
    Client {
        name: "nixl-rc-mlx5",
        compares: true,
        on: &[Card::Mlx5],
        env: &[("UCX_NET_DEVICES", "{device}:1"), ("UCX_TLS", "rc_x,self"), ("UCX_IB_MLX5_DEVX", "n")],
        ends: both(&["python3", "{scripts}/nixl_pair.py", "{role}", "{port}", "{fetched}/nixl", "UCX", "65536", "10"]),
        says: "every byte compared",
    },
    Client {
        name: "nixl-srd",
        compares: true,
        on: &[Card::Efa],
        env: &[("UCX_NET_DEVICES", "{device}:1"), ("UCX_TLS", "srd,self")],
        ends: both(&["python3", "{scripts}/nixl_pair.py", "{role}", "{port}", "{fetched}/nixl", "UCX", "65536", "10"]),
        says: "every byte compared",
    },
    Client {
        name: "mooncake",
        compares: false,
        on: CONNECTED,
        env: &[("LD_LIBRARY_PATH", "{fetched}/mooncake/mooncake")],
        ends: Ends::Pair {
            server: &[
                MOONCAKE, "-mode=target", "-protocol=rdma", "-device_name={device}",
                "-metadata_server=P2PHANDSHAKE", "-local_server_name={address}:{port}", "-buffer_size=67108864",
            ],
            // The initiator ends and starts again, to the same target.
            client: &[
                "sh", "-c", r#""$@" && "$@""#, "twice",
                MOONCAKE, "-mode=initiator", "-protocol=rdma", "-device_name={device}",
                "-metadata_server=P2PHANDSHAKE", "-local_server_name={address}", "-segment_id={server}",
                "-buffer_size=67108864", "-block_size=65536", "-threads=4", "-duration=1",
            ],
            ready: Some("listening on "),
        },
        says: "",
    },
    Client {
        name: "ucx-rc",
        compares: false,
        on: CONNECTED,
        env: UCX_RANKS,
        ends: Ends::Ranks {
            launcher: MPI_APART,
            rank: &["ucx_perftest", "-t", "tag_bw", "-s", "65536", "-n", "200", "-w", "10"],
        },
        says: "Final:",
    },
    Client {
        name: "ucx-ud",
        compares: false,
        on: CONNECTED,
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
        on: SOFTWARE,
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
        on: SOFTWARE,
        env: &[],
        ends: Ends::Pair {
            server: &["fi_pingpong", "-p", "verbs;ofi_rxm", "-e", "rdm", "-c", "-I", "50", "-B", "{port}"],
            client: &["fi_pingpong", "-p", "verbs;ofi_rxm", "-e", "rdm", "-c", "-I", "50", "-P", "{port}", "{address}"],
            ready: None,
        },
        says: "64k",
    },
    Client {
        name: "libfabric-efa",
        compares: true,
        on: &[Card::Efa],
        env: &[],
        ends: Ends::Pair {
            server: &["fi_pingpong", "-p", "efa", "-e", "rdm", "-d", "{device}-rdm", "-c", "-I", "50", "-B", "{port}"],
            client: &["fi_pingpong", "-p", "efa", "-e", "rdm", "-d", "{device}-rdm", "-c", "-I", "50", "-P", "{port}", "127.0.0.1"],
            ready: None,
        },
        // The longest message of its own choice.
        says: "4k",
    },
    Client {
        name: "open-mpi-ucx",
        compares: true,
        on: CONNECTED,
        env: UCX_RANKS,
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
        on: MANAGED,
        env: &[],
        ends: Ends::Pair {
            server: &["fio", "--name=server", "--ioengine=rdma", "--port={port}", "--rw=read", "--bs=65536", "--size=16m", "--verify=crc32c", "--iodepth=4"],
            client: &["fio", "--name=client", "--ioengine=rdma", "--hostname={address}", "--bindname={own}", "--port={port}", "--verb=write", "--rw=write", "--bs=65536", "--size=16m", "--verify=crc32c", "--do_verify=0", "--iodepth=4"],
            ready: Some("waiting for connection"),
        },
        says: "err= 0",
    },
    Client {
        name: "qperf",
        compares: true,
        on: SOFTWARE,
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
        on: SOFTWARE,
        env: &[],
        ends: Ends::Pair {
            server: &["rstream", "-b", "{address}", "-p", "{port}", "-C", "20", "-I", "5", "-S", "65536", "-T", "v"],
            client: &["rstream", "-s", "{address}", "-p", "{port}", "-C", "20", "-I", "5", "-S", "65536", "-T", "v"],
            ready: None,
        },
        says: "64k",
    },
    // A client that binds takes the port of the server, too, and so needs an address of its own.
    Client {
        name: "rsockets-bound",
        compares: true,
        on: &[Card::Erdma],
        env: &[],
        ends: Ends::Pair {
            server: &["rstream", "-b", "{address}", "-p", "{port}", "-C", "20", "-I", "5", "-S", "65536", "-T", "v"],
            client: &["rstream", "-s", "{address}", "-b", "{own}", "-p", "{port}", "-C", "20", "-I", "5", "-S", "65536", "-T", "v"],
            ready: None,
        },
        says: "64k",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_client_has_a_name_of_its_own_and_each_card_has_clients() {
        let names: BTreeSet<&str> = CLIENTS.iter().map(|client| client.name).collect();
        assert_eq!(names.len(), CLIENTS.len());
        for model in [None, Some("efa"), Some("erdma"), Some("mlx5")] {
            let card = Card::find(model).unwrap();
            assert!(CLIENTS.iter().any(|client| client.on.contains(&card)), "{model:?}");
        }
        assert!(Card::find(Some("mlx6")).is_err());
    }
}
