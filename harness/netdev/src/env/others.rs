//! The settings of UCX, NIXL and Mooncake, where they differ from NCCL's.

use std::collections::BTreeSet;

use super::Environment;
use super::Gids;
use super::Rail;
use super::Wish;
use super::gids;
use super::partition;
use super::told;

type Settings = (Environment, Vec<String>);

/// MTUs of a path, and the headers of RoCE v2 that a link's MTU must have room for beside them.
const PATH_MTUS: [u32; 4] = [4096, 2048, 1024, 512];
const HEADERS: u32 = 96;

pub(super) fn ucx(rails: &[&Rail], wish: &Wish) -> Settings {
    let (mut env, mut warnings) = (Environment::default(), Vec::new());
    let names: Vec<String> = rails.iter().map(|rail| rail.hca()).collect();
    env.set("UCX_NET_DEVICES", names.join(","), "these ports and no others");
    match gids(rails) {
        Gids::Own => {}
        Gids::Index(index) => {
            let why = "the RoCE v2 GID of each port's address has this index";
            env.set("UCX_IB_GID_INDEX", index, why);
        }
        Gids::Differ(indices) => warnings.push(format!(
            "UCX_IB_GID_INDEX is not set, because the RoCE v2 GIDs have no index in common ({}); \
             UCX chooses for each port",
            told(&indices)
        )),
    }
    if let Some((_, key)) = partition(rails) {
        // UCX wants the key, and not the key's place.
        let why = "the ports share this partition, which is not their first";
        env.set("UCX_IB_PKEY", format!("{key:#06x}"), why);
    }
    let class = &wish.class;
    for (name, value) in [("UCX_IB_TRAFFIC_CLASS", class.traffic), ("UCX_IB_SL", class.level)] {
        if let Some(value) = value {
            env.set(name, value, &class.why);
        }
    }
    (env, warnings)
}

/// NIXL's usual backend is UCX; the other one that uses verbs is Mooncake, which asks for an address.
pub(super) fn nixl(rails: &[&Rail], wish: &Wish) -> Settings {
    let (mut env, warnings) = ucx(rails, wish);
    if let Some((socket, ip)) = wish.socket.as_ref().and_then(|s| Some((s, s.address?))) {
        env.set("NIXL_MOONCAKE_IP_ADDR", ip, socket.why);
    }
    (env, warnings)
}

pub(super) fn mooncake(rails: &[&Rail], wish: &Wish) -> Settings {
    let (mut env, mut warnings) = (Environment::default(), Vec::new());
    let mut names: Vec<&str> = rails.iter().map(|rail| rail.rdma.as_str()).collect();
    names.dedup();
    let why = "these devices and no others; the option device_name of the transfer engine";
    env.set("MOONCAKE_DEVICE", names.join(","), why);
    let ports: BTreeSet<u32> = rails.iter().map(|rail| rail.port).collect();
    match ports.iter().collect::<Vec<_>>().as_slice() {
        [port] => env.set("MC_IB_PORT", port, "the port of every device"),
        _ => warnings.push(format!(
            "MC_IB_PORT is not set: Mooncake uses one port's number for all devices, and the rails \
             are the ports {ports:?}"
        )),
    }
    match gids(rails) {
        Gids::Own => {}
        Gids::Index(index) => {
            let why = "the RoCE v2 GID of each port's address has this index";
            env.set("MC_GID_INDEX", index, why);
        }
        Gids::Differ(indices) => warnings.push(format!(
            "MC_GID_INDEX is not set, because the RoCE v2 GIDs have no index in common ({})",
            told(&indices)
        )),
    }
    let least = rails.iter().map(|rail| rail.mtu).filter(|mtu| *mtu > 0).min();
    let fits = |mtu: &&u32| least.is_some_and(|least| **mtu + HEADERS <= least);
    if let Some(mtu) = PATH_MTUS.iter().find(fits) {
        let why = format!("the largest that fits a link's MTU of {}", least.unwrap_or_default());
        env.set("MC_MTU", mtu, why);
    }
    let class = &wish.class;
    for (name, value) in [("MC_IB_TC", class.traffic), ("MC_IB_SL", class.level)] {
        if let Some(value) = value {
            env.set(name, value, &class.why);
        }
    }
    (env, warnings)
}

#[cfg(test)]
mod tests {
    use super::super::Class;
    use super::super::Socket;
    use super::*;

    #[test]
    fn each_library_has_the_words_of_its_own() {
        let rail = |n: u32, port| Rail {
            rdma: format!("mlx5_{n}"),
            port,
            mtu: 1500,
            address: Some("10.0.0.1".parse().unwrap()),
            gid_index: Some(3),
            ..Rail::default()
        };
        let class = Class { traffic: Some(104), why: "x".into(), ..Class::default() };
        let socket = Socket {
            name: "eth0".to_owned(),
            address: Some("192.0.2.7".parse().unwrap()),
            why: "x",
        };
        let wish = Wish { class, socket: Some(socket), ..Wish::default() };
        let (both, other) = ([rail(0, 1), rail(1, 1)], [rail(0, 1), rail(0, 2)]);
        let lines = |(env, _): Settings| -> Vec<String> {
            env.0.iter().map(|(name, v)| format!("{name}={}", v.value)).collect()
        };
        let all: Vec<&Rail> = both.iter().collect();
        let expected =
            ["UCX_IB_GID_INDEX=3", "UCX_IB_TRAFFIC_CLASS=104", "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1"];
        assert_eq!(lines(ucx(&all, &wish)), expected);
        // NIXL's backends: UCX, and Mooncake, which asks for an address.
        let of_nixl = lines(nixl(&all, &wish));
        assert_eq!(of_nixl[0], "NIXL_MOONCAKE_IP_ADDR=192.0.2.7");
        assert_eq!(of_nixl[1..], expected);
        let alone = Wish { socket: None, ..wish.clone() };
        assert_eq!(lines(nixl(&all, &alone)), expected);
        let expected = [
            "MC_GID_INDEX=3",
            "MC_IB_PORT=1",
            "MC_IB_TC=104",
            "MC_MTU=1024",
            "MOONCAKE_DEVICE=mlx5_0,mlx5_1",
        ];
        assert_eq!(lines(mooncake(&all, &wish)), expected);
        let (env, warnings) = mooncake(&other.iter().collect::<Vec<_>>(), &wish);
        assert_eq!(env.0["MOONCAKE_DEVICE"].value, "mlx5_0");
        assert!(warnings[0].contains("{1, 2}"), "{warnings:?}");
    }
}
