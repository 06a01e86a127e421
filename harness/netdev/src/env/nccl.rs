//! NCCL's settings.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::Environment;
use super::Gids;
use super::Rail;
use super::Wish;
use super::gids;
use super::partition;
use super::range;
use super::told;
use crate::hca::ENTRIES_MAX;

pub(super) fn settings(rails: &[&Rail], wish: &Wish) -> (Environment, Vec<String>) {
    let (mut env, mut warnings) = (Environment::default(), Vec::new());
    let places: Option<Vec<(u32, Option<u32>)>> = rails.iter().map(|rail| place(rail)).collect();
    hcas(&mut env, rails, places.as_deref());
    if rails.len() > ENTRIES_MAX {
        let count = rails.len();
        warnings.push(format!(
            "NCCL reads {ENTRIES_MAX} entries of NCCL_IB_HCA, and there are {count} ports; leave \
             some out (--hca)"
        ));
    }
    addresses(&mut env, rails, wish.by_address, &mut warnings);
    if let Some((index, key)) = partition(rails) {
        let why = format!("the ports share partition {key:#06x}, which is not their first");
        match index {
            Some(index) => env.set("NCCL_IB_PKEY", index, why),
            None => warnings.push(format!(
                "NCCL_IB_PKEY is not set, because partition {key:#06x} has no index in common on \
                 the ports; have the subnet manager give all ports the same table"
            )),
        }
    }
    let class = &wish.class;
    for (name, value) in [("NCCL_IB_TC", class.traffic), ("NCCL_IB_SL", class.level)] {
        if let Some(value) = value {
            env.set(name, value, &class.why);
        }
    }
    match (class.fifo, class.traffic) {
        (Some(fifo), _) => env.set("NCCL_IB_FIFO_TC", fifo, "given on the command line"),
        (None, Some(traffic)) => {
            let why = "control messages must not be dropped either; this is NCCL's own default, too \
                       (2.22.3 and newer)";
            env.set("NCCL_IB_FIFO_TC", traffic, why);
        }
        (None, None) => {}
    }
    merging(&mut env, rails, wish, places.is_some());
    if let Some(socket) = &wish.socket {
        // NCCL takes a name as a prefix, as it does with devices; Gloo takes it as it is.
        env.set("NCCL_SOCKET_IFNAME", format!("={}", socket.name), socket.why);
        env.set("GLOO_SOCKET_IFNAME", &socket.name, socket.why);
    }
    (env, warnings)
}

/// Exact names with their ports, in the order in which people count: without `=`, mlx5_1 would also
/// mean mlx5_10.
fn hcas(env: &mut Environment, rails: &[&Rail], places: Option<&[(u32, Option<u32>)]>) {
    let entry = |(at, rail): (usize, &&Rail)| {
        let place = match places.and_then(|places| places.get(at)) {
            Some((rail, Some(plane))) => format!(":{rail}:{plane}"),
            Some((rail, None)) => format!(":{rail}"),
            None => String::new(),
        };
        rail.hca() + &place
    };
    let names: Vec<String> = rails.iter().enumerate().map(entry).collect();
    let why = match places {
        Some(_) => "exactly these ports, with their declared rails (NCCL 2.30 and newer)",
        None => "exactly these ports: without \"=\" mlx5_1 would also mean mlx5_10",
    };
    env.set("NCCL_IB_HCA", format!("={}", names.join(",")), why);
}

/// Rail and plane of a declared name: `rail3`, `3`, `3/1`.
fn place(rail: &Rail) -> Option<(u32, Option<u32>)> {
    let name = rail.rail.as_ref()?;
    let (name, plane) = match name.split_once('/') {
        Some((name, plane)) => (name, Some(plane.parse().ok()?)),
        None => (name.as_str(), None),
    };
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    Some((digits.parse().ok()?, plane))
}

fn addresses(env: &mut Environment, rails: &[&Rail], by_address: bool, warnings: &mut Vec<String>) {
    let indices = match gids(rails) {
        Gids::Own => return,
        Gids::Index(index) if by_address => {
            BTreeMap::from([(Some(index), rails.iter().map(|rail| rail.rdma.clone()).collect())])
        }
        Gids::Index(index) => {
            let why = "the RoCE v2 GID of each port's address has this index";
            return env.set("NCCL_IB_GID_INDEX", index, why);
        }
        Gids::Differ(indices) => indices,
    };
    let told = told(&indices);
    match range(rails).filter(|_| !indices.contains_key(&None)) {
        Some((ip, prefix)) => {
            let why = match by_address {
                true => "the GIDs may get other indices, so NCCL (2.21 and newer) chooses them by \
                         their addresses"
                    .to_owned(),
                false => format!(
                    "the GIDs have no index in common ({told}), so NCCL (2.21 and newer) chooses \
                     them by their addresses"
                ),
            };
            env.set("NCCL_IB_ADDR_RANGE", format!("{ip}/{prefix}"), &why);
            if ip.is_ipv6() {
                env.set("NCCL_IB_ADDR_FAMILY", "AF_INET6", &why);
            }
        }
        None => warnings.push(format!(
            "NCCL_IB_GID_INDEX is not set, because the RoCE v2 GIDs of the NICs have no index in \
             common ({told}), and no range of addresses says which GID is meant; NCCL chooses for \
             itself"
        )),
    }
}

fn merging(env: &mut Environment, rails: &[&Rail], wish: &Wish, placed: bool) {
    if rails.len() > 1 && wish.rail_only.unwrap_or_else(|| is_rail_only(rails)) {
        let why = match wish.rail_only {
            Some(_) => "--rail-only: a rail reaches no other",
            None => "each rail has a network of its own, and no route leads from one to another",
        };
        env.set("NCCL_CROSS_NIC", 0, why);
        if placed {
            let why = "NCCL must not merge ports of two rails into one device (2.30.5 and newer)";
            env.set("NCCL_NET_MERGE_POLICY", "RAIL", why);
        }
    }
    if rails.iter().any(|rail| rail.bonded) {
        let why = "a bond has merged its ports already; NCCL must not merge bonds";
        env.set("NCCL_IB_MERGE_NICS", 0, why);
        let why = "a GPU has one bond, with both of its ports (NCCL 2.28 and newer)";
        env.set("NCCL_NETDEVS_POLICY", "MAX:1", why);
    }
}

/// Whether the rails' networks and routes say that nothing leads from one rail to another.
pub(super) fn is_rail_only(rails: &[&Rail]) -> bool {
    let networks: BTreeSet<_> = rails.iter().map(|rail| rail.network()).collect();
    let plain = |rail: &&Rail| !rail.is_infiniband() && !rail.routed && rail.network().is_some();
    networks.len() == rails.len() && rails.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn roce(n: u8, index: u32) -> Rail {
        Rail {
            netdev: Some(format!("rail{n}")),
            rdma: format!("mlx5_{n}"),
            port: 1,
            link_layer: Some("Ethernet".to_owned()),
            address: Some(IpAddr::from([10, n, 0, 1])),
            prefix: 16,
            gid_index: Some(index),
            ..Rail::default()
        }
    }

    fn of(rails: &[Rail], wish: &Wish) -> (Vec<String>, Vec<String>) {
        let (env, warnings) = crate::env::of(crate::env::Library::Nccl, rails, wish).unwrap();
        assert!(env.0.values().all(|variable| !variable.why.is_empty()));
        let lines = env.0.iter().map(|(name, v)| format!("{name}={}", v.value)).collect();
        (lines, warnings)
    }

    #[test]
    fn an_index_that_differs_becomes_a_range() {
        let (lines, warnings) = of(&[roce(4, 3), roce(10, 5), roce(5, 3)], &Wish::default());
        let expected = [
            "NCCL_CROSS_NIC=0",
            "NCCL_IB_ADDR_RANGE=10.0.0.0/12",
            "NCCL_IB_HCA==mlx5_4:1,mlx5_5:1,mlx5_10:1",
        ];
        assert_eq!(lines, expected);
        assert!(warnings.is_empty());
        let mut v6 = [roce(0, 3), roce(1, 5)];
        for (n, rail) in v6.iter_mut().enumerate() {
            rail.address = Some(format!("fd00:{n}::1").parse().unwrap());
            rail.prefix = 64;
        }
        let (lines, _) = of(&v6, &Wish::default());
        assert!(lines.contains(&"NCCL_IB_ADDR_FAMILY=AF_INET6".to_owned()), "{lines:?}");
        assert!(lines.contains(&"NCCL_IB_ADDR_RANGE=fd00::/31".to_owned()), "{lines:?}");
        // A port without any GID is not hidden by a range.
        v6[0].gid_index = None;
        let (lines, warnings) = of(&v6, &Wish::default());
        assert!(!lines.concat().contains("RANGE"), "{lines:?}");
        assert!(warnings[0].contains("none on mlx5_0"), "{warnings:?}");
    }

    #[test]
    fn rails_and_planes_are_written_when_all_are_declared() {
        let mut rails = [roce(0, 3), roce(1, 3)];
        rails[0].rail = Some("rail0".to_owned());
        assert!(of(&rails, &Wish::default()).0.contains(&"NCCL_IB_HCA==mlx5_0:1,mlx5_1:1".into()));
        rails[1].rail = Some("rail1".to_owned());
        let lines = of(&rails, &Wish::default()).0;
        assert!(lines.contains(&"NCCL_IB_HCA==mlx5_0:1:0,mlx5_1:1:1".to_owned()), "{lines:?}");
        assert!(lines.contains(&"NCCL_NET_MERGE_POLICY=RAIL".to_owned()), "{lines:?}");
        (rails[0].rail, rails[1].rail) = (Some("0/0".to_owned()), Some("0/1".to_owned()));
        let lines = of(&rails, &Wish::default()).0;
        let hca = lines.iter().find_map(|line| line.strip_prefix("NCCL_IB_HCA=")).unwrap();
        assert_eq!(hca, "=mlx5_0:1:0:0,mlx5_1:1:0:1");
        // What is written is read.
        assert!(hca.parse::<crate::hca::Filter>().unwrap().allows("mlx5_1", 1));
    }

    #[test]
    fn rails_that_routes_connect_may_be_crossed() {
        let mut rails = [roce(0, 3), roce(1, 3)];
        rails[0].routed = true;
        assert!(!of(&rails, &Wish::default()).0.concat().contains("CROSS_NIC"));
        let wish = Wish { rail_only: Some(true), ..Wish::default() };
        assert!(of(&rails, &wish).0.contains(&"NCCL_CROSS_NIC=0".to_owned()));
        rails[0].routed = false;
        rails.iter_mut().for_each(|rail| rail.prefix = 8);
        assert!(!of(&rails, &Wish::default()).0.concat().contains("CROSS_NIC"));
    }

    #[test]
    fn infiniband_needs_a_partition_at_times_and_never_an_index_of_gids() {
        let port = |n: u8, pkeys: &[(u32, u16)]| Rail {
            rdma: format!("mlx5_{n}"),
            port: 1,
            link_layer: Some("InfiniBand".to_owned()),
            gid: Some("fe80::1".parse().unwrap()),
            pkeys: pkeys.to_vec(),
            stays: true,
            ..Rail::default()
        };
        let plain = [port(0, &[(0, 0xffff)]), port(1, &[(0, 0xffff)])];
        assert_eq!(of(&plain, &Wish::default()).0, ["NCCL_IB_HCA==mlx5_0:1,mlx5_1:1"]);
        let tenant = [port(0, &[(0, 0x7ffe), (1, 0x8002)]), port(1, &[(1, 0x8002)])];
        assert!(of(&tenant, &Wish::default()).0.contains(&"NCCL_IB_PKEY=1".to_owned()));
        let other = [port(0, &[(1, 0x8002)]), port(1, &[(2, 0x8002)])];
        let (lines, warnings) = of(&other, &Wish::default());
        assert_eq!(lines.len(), 1);
        assert!(warnings[0].contains("0x8002"), "{warnings:?}");
        let (env, _) = crate::env::of(crate::env::Library::Ucx, &other, &Wish::default()).unwrap();
        assert_eq!(env.0["UCX_IB_PKEY"].value, "0x8002");
    }

    #[test]
    fn control_messages_have_the_class_of_the_data_or_one_of_their_own() {
        let class = |fifo| super::super::Class {
            traffic: Some(104),
            fifo,
            level: None,
            why: "DSCP 26 is lossless".to_owned(),
        };
        for (fifo, expected) in [(None, "104"), (Some(192), "192")] {
            let wish = Wish { class: class(fifo), ..Wish::default() };
            let (env, _) = crate::env::of(crate::env::Library::Nccl, &[roce(0, 3)], &wish).unwrap();
            assert_eq!(env.0["NCCL_IB_FIFO_TC"].value, expected);
            assert_eq!(env.0["NCCL_IB_TC"].value, "104");
        }
        let none = of(&[roce(0, 3)], &Wish::default()).0.concat();
        assert!(!none.contains("_TC"), "{none}");
    }

    #[test]
    fn bonds_are_not_merged_again_and_too_many_ports_are_told() {
        let bond = Rail { bonded: true, ..roce(0, 3) };
        let (lines, _) = of(&[bond], &Wish::default());
        assert!(lines.contains(&"NCCL_IB_MERGE_NICS=0".to_owned()), "{lines:?}");
        assert!(lines.contains(&"NCCL_NETDEVS_POLICY=MAX:1".to_owned()), "{lines:?}");
        let many: Vec<Rail> = (0..33).map(|n| roce(n, 3)).collect();
        assert!(of(&many, &Wish::default()).1[0].contains("33 ports"));
    }
}
