//! What a reload of the operator's policy leaves of what runs: requests, and devices with their ports.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

use super::DeviceRule;
use super::Policy;
use super::PolicyError;
use super::Tenant;
use super::text::DeviceText;

/// What is left of a sandbox's rights: nothing that was not granted at the start, and of that no more than
/// this.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "NarrowingText", try_from = "NarrowingText")]
pub struct Narrowing {
    policy: Policy,
    /// Every device, if there is no list.
    devices: Option<Vec<DeviceRule>>,
}

/// A narrowing on its way from one process to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NarrowingText {
    policies: Vec<String>,
    devices: Option<Vec<DeviceText>>,
}

/// What is left of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// Nothing: the operator has taken the device away.
    Nothing,
    /// The device, with these ports, from 1; all when there are none.
    Ports(Option<Vec<u32>>),
}

impl Narrowing {
    /// The requests that are left.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What is left of a device that was granted with these ports: by its parent in sysfs, and by any of
    /// its names.
    #[must_use]
    pub fn left(&self, parent: Option<&str>, names: &[&str], granted: Option<&[u32]>) -> Left {
        let granted = granted.map(<[u32]>::to_vec);
        let Some(devices) = &self.devices else { return Left::Ports(granted) };
        // The first rule, as at the start.
        let Some(rule) = devices.iter().find(|rule| rule.means(parent, names)) else {
            return Left::Nothing;
        };
        let both = match (granted, rule.ports()) {
            (granted, None) => return Left::Ports(granted),
            (None, Some(ports)) => ports.to_vec(),
            (Some(granted), Some(ports)) => {
                granted.into_iter().filter(|port| ports.contains(port)).collect()
            }
        };
        if both.is_empty() { Left::Nothing } else { Left::Ports(Some(both)) }
    }
}

impl From<Policy> for Narrowing {
    /// Of requests alone.
    fn from(policy: Policy) -> Self {
        Self { policy, devices: None }
    }
}

impl From<&Tenant> for Narrowing {
    fn from(tenant: &Tenant) -> Self {
        Self { policy: tenant.policy.clone(), devices: Some(tenant.devices.clone()) }
    }
}

impl From<Narrowing> for NarrowingText {
    fn from(Narrowing { policy, devices }: Narrowing) -> Self {
        let devices = devices.map(|rules| rules.into_iter().map(|rule| rule.0).collect());
        Self { policies: policy.texts(), devices }
    }
}

impl TryFrom<NarrowingText> for Narrowing {
    type Error = PolicyError;

    fn try_from(NarrowingText { policies, devices }: NarrowingText) -> Result<Self, PolicyError> {
        let devices = devices.map(|texts| texts.into_iter().map(DeviceRule).collect());
        Ok(Self { policy: Policy::read_all(&policies)?, devices })
    }
}

impl fmt::Display for Narrowing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.policy.name())
    }
}
