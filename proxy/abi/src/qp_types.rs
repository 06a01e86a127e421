//! Types of queue pairs.

use crate::table::Provider;
use crate::wire::DriverId;

/// `IB_UVERBS_QPT_DRIVER`: whatever the device's driver understands by that value.
pub const DRIVER: u64 = 0xff;

/// A type of queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpType {
    /// The value of `CREATE_QP_TYPE`, and of `qp_type` in the legacy structures.
    pub value: u64,
    /// Whose type the value means.
    pub provider: Provider,
    /// The kernel's name for a type of the core, the vendor's for a driver's.
    pub name: &'static str,
}

const fn core(name: &'static str, value: u64) -> QpType {
    QpType { value, provider: Provider::Core, name }
}

const fn driver(driver: DriverId, name: &'static str) -> QpType {
    QpType { value: DRIVER, provider: Provider::Driver(driver), name }
}

/// `enum ib_uverbs_qp_type`, `include/uapi/rdma/ib_user_ioctl_verbs.h`, and the types that drivers
/// make of its last value. Each driver that makes any makes one kind (`create_qp` in
/// `drivers/infiniband/hw`, Linux 6.1 to 7.2), so that driver and value tell the type.
pub const QP_TYPES: [QpType; 8] = [
    core("RC", 2),
    core("UC", 3),
    core("UD", 4),
    core("RAW_PACKET", 8),
    core("XRC_INI", 9),
    core("XRC_TGT", 10),
    // `EFA_QP_DRIVER_TYPE_SRD`, the only `driver_qp_type`.
    driver(DriverId::EFA, "SRD"),
    // `MLX5_QP_FLAG_TYPE_DCI` and `_DCT`: the two ends of a dynamically connected transport.
    driver(DriverId::MLX5, "DC"),
];

impl QpType {
    /// What a value means on a device of a driver.
    #[must_use]
    pub fn of(value: u64, driver: DriverId) -> Option<&'static Self> {
        QP_TYPES.iter().find(|known| known.value == value && known.provider.serves(driver))
    }

    /// The type that a profile names: `RC`, or a driver's as `efa:SRD`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        QP_TYPES.iter().find(|known| known.full_name() == name)
    }

    /// The name that tells the type from every other one.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}{}", self.provider.prefix(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_one_name_and_every_value_one_meaning() {
        for known in &QP_TYPES {
            assert_eq!(QpType::named(&known.full_name()), Some(known));
            let driver = match known.provider {
                Provider::Core => DriverId::RXE,
                Provider::Driver(driver) => driver,
            };
            assert_eq!(QpType::of(known.value, driver), Some(known));
            let same =
                |other: &&QpType| other.value == known.value && other.provider == known.provider;
            assert_eq!(QP_TYPES.iter().filter(same).count(), 1);
        }
        assert_eq!(QpType::of(DRIVER, DriverId::RXE), None);
        assert_eq!(QpType::named("SRD"), None);
        assert_eq!(QpType::named("efa:SRD").map(|found| found.value), Some(DRIVER));
    }
}
