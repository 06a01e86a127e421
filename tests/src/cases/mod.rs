//! The cases that run on a real device. Each compares with the native behaviour where there is one.

mod agent;
mod census;
mod cluster;
mod cm;
mod containers;
mod death;
mod diagnose;
mod differential;
mod fabric;
mod fabric_bench;
mod fabric_cm;
mod fabric_hosts;
pub(crate) mod flooded;
mod gids;
mod grants;
mod hostile;
mod neighbours;
pub(crate) mod nic;
mod nodes;
mod paths;
mod podman;
mod quotas;
mod rails;
mod refusals;
mod replaced;
mod requests;
mod scale;
mod sysfs;
mod tenants;
mod verbs;

use std::fmt;

use anyhow::Result;

use crate::world::World;

/// The device that a case runs on, by the driver's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Device {
    /// Soft-RoCE, or the device that is there.
    Rxe,
    /// Elastic Fabric Adapters, which carry datagrams.
    Efa,
    /// Elastic RDMA Adapters, which make reliable connections, each with a network interface.
    Erdma,
    /// ConnectXs, with InfiniBand ports.
    Mlx5,
}

impl Device {
    /// Every device, Soft-RoCE first.
    pub const ALL: [Self; 4] = [Self::Rxe, Self::Efa, Self::Erdma, Self::Mlx5];

    /// The driver's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Efa => "efa",
            Self::Erdma => "erdma",
            Self::Mlx5 => "mlx5",
        }
    }

    /// The device of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|device| device.name() == name)
    }
}

/// What a case does.
pub type Body = Box<dyn Fn(&World) -> Result<Verdict>>;

/// One case.
pub struct Case {
    /// Unique, and a file name.
    pub name: &'static str,
    /// An error is a failure, and says why.
    pub run: Body,
}

/// How a case that did not fail ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// As it should.
    Ok,
    /// It cannot run here, for this reason.
    Skipped(String),
}

impl Case {
    fn new(name: &'static str, run: impl Fn(&World) -> Result<Verdict> + 'static) -> Self {
        Self { name, run: Box::new(run) }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Whether a case is an attack.
#[must_use]
pub fn is_hostile(name: &str) -> bool {
    name.contains("hostile")
}

/// Every case of a device.
pub fn of(device: Device) -> Vec<Case> {
    match device {
        Device::Rxe => on_software(),
        Device::Efa => nic::cases(),
        Device::Erdma => nic::connected(),
        Device::Mlx5 => nic::infiniband(),
    }
}

/// The case of this name.
#[must_use]
pub fn find(name: &str) -> Option<Case> {
    Device::ALL.into_iter().flat_map(of).find(|case| case.name == name)
}

fn on_software() -> Vec<Case> {
    let mut all = verbs::cases();
    all.extend(cm::cases());
    all.extend(requests::cases());
    all.extend(differential::cases());
    all.extend(scale::cases());
    all.extend(nodes::cases());
    all.extend(replaced::cases());
    all.extend(rails::cases());
    all.extend(gids::cases());
    all.extend(neighbours::cases());
    all.extend(flooded::cases());
    all.extend(quotas::cases());
    all.extend(tenants::cases());
    all.extend(paths::cases());
    all.extend(containers::cases());
    all.extend(grants::cases());
    all.extend(agent::cases());
    all.extend(podman::cases());
    all.extend(sysfs::cases());
    all.extend(fabric::cases());
    all.extend(diagnose::cases());
    all.extend(fabric_bench::cases());
    all.extend(fabric_cm::cases());
    all.extend(fabric_hosts::cases());
    all.extend(death::cases());
    all.extend(refusals::cases());
    all.extend(hostile::cases());
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_fit_a_control_group() {
        let mut seen = BTreeSet::new();
        for case in Device::ALL.into_iter().flat_map(of) {
            assert!(seen.insert(case.name), "{}", case.name);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(case.name.chars().all(plain), "{}", case.name);
        }
        assert!(seen.len() > 20);
    }
}
