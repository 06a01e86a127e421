//! Tenants: who is matched, and which devices a tenant has.

use std::collections::BTreeMap;
use std::fmt;

use super::Policy;
use super::error::PolicyError;
use super::error::PolicyPlace;
use super::error::Source;
use super::text::DeviceText;
use super::text::MatchText;
use super::text::TenantText;

/// What is known of a sandbox before it starts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    /// A container's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The user who starts `verbgate run`; none for containers.
    pub uid: Option<u32>,
    /// Path in the cgroup hierarchy, as `/system.slice/job.service`.
    pub cgroup: Option<String>,
    /// Claims of Kubernetes' Dynamic Resource Allocation by which a container has its devices.
    pub claims: Vec<DraClaim>,
}

/// A claim of a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DraClaim {
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// The tenant that the claim's DeviceClass names.
    pub tenant: Option<String>,
}

impl Subject {
    /// The system's unit: the outermost part of the cgroup's path that names one. Below that, users name
    /// units themselves (`systemd-run --user`).
    fn unit(&self) -> Option<&str> {
        let of_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
        self.cgroup.as_deref()?.split('/').find(of_unit)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.uid.map(|uid| format!("uid {uid}")));
        words.extend(self.cgroup.as_ref().map(|path| format!("cgroup {path:?}")));
        words.extend(self.claims.iter().map(|claim| {
            let of =
                claim.tenant.as_ref().map(|tenant| format!(" of the class' tenant {tenant:?}"));
            format!("claim {:?}{}", claim.name, of.unwrap_or_default())
        }));
        let pairs = self.annotations.iter().map(|(key, value)| format!("{key}={value:?}"));
        let pairs: Vec<String> = pairs.collect();
        words.push(match pairs.as_slice() {
            [] => "no annotation".to_owned(),
            all => format!("annotations {}", all.join(" ")),
        });
        f.write_str(&words.join(", "))
    }
}

/// Capabilities that an agent warns of, and refuses where a policy says so.
pub const WARNED: [&str; 1] = ["NET_RAW"];

/// A device of a tenant's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceRule(pub(super) DeviceText);

impl DeviceRule {
    /// Whether a device is meant: by the directory that is its parent in sysfs (of a PCI device, the
    /// address), and by any of its names.
    #[must_use]
    pub fn means(&self, parent: Option<&str>, names: &[&str]) -> bool {
        let of_pci = |pci: &String| parent == Some(pci.as_str());
        let of_name = |pattern: &String| names.iter().any(|name| is_like(pattern, name));
        self.0.pci.as_ref().is_none_or(of_pci) && self.0.name.as_ref().is_none_or(of_name)
    }

    /// The ports; none when the tenant has all.
    #[must_use]
    pub fn ports(&self) -> Option<&[u32]> {
        self.0.ports.as_deref()
    }
}

impl fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceText { pci, name, ports } = &self.0;
        let mut words = Vec::new();
        words.extend(pci.as_ref().map(|pci| format!("pci = {pci:?}")));
        words.extend(name.as_ref().map(|name| format!("name = {name:?}")));
        words.extend(ports.as_ref().map(|ports| format!("ports = {ports:?}")));
        write!(f, "{{ {} }}", words.join(", "))
    }
}

/// A tenant of a policy file.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The name.
    pub name: String,
    /// Where the tenant is written.
    pub place: PolicyPlace,
    /// The requests.
    pub policy: Policy,
    /// The devices.
    pub devices: Vec<DeviceRule>,
    /// Bytes that a process of the tenant's may lock: RLIMIT_MEMLOCK, getrlimit(2).
    pub memlock: Option<u64>,
    /// Capabilities with which the agent refuses a container, as `NET_RAW`.
    pub refuse_capabilities: Vec<String>,
    who: Who,
}

#[derive(Clone, Debug)]
struct Who {
    annotations: BTreeMap<String, String>,
    uid: Option<u32>,
    unit: Option<String>,
    cgroup: Option<String>,
    claim: Option<String>,
    claim_tenant: Option<String>,
}

impl Tenant {
    pub(super) fn read(
        name: &str,
        place: PolicyPlace,
        text: TenantText,
        policy: Policy,
        source: Source<'_>,
    ) -> Result<Self, PolicyError> {
        let span = text.r#match.span();
        let who = text.r#match.into_inner();
        if who == MatchText::default() {
            let slip = format!(
                "tenant {name:?} matches nobody: give match an annotation, claim, claim_tenant, uid, unit or cgroup"
            );
            return Err(source.slip(&span, slip));
        }
        let listed = text.devices.span();
        let mut devices = Vec::new();
        for device in text.devices.into_inner() {
            let at = device.span();
            let device = device.into_inner();
            if device.pci.is_none() && device.name.is_none() {
                let slip = "a device needs pci or name; name = \"*\" means every device";
                return Err(source.slip(&at, slip));
            }
            if device.ports.as_ref().is_some_and(|ports| ports.is_empty() || ports.contains(&0)) {
                return Err(source.slip(&at, "ports count from 1, and an empty list grants none"));
            }
            if device.pci.as_ref().is_some_and(|pci| !is_pci(pci)) {
                let slip = "pci is not an address in full, as in 0000:3b:00.2";
                return Err(source.slip(&at, slip));
            }
            devices.push(DeviceRule(device));
        }
        if devices.is_empty() {
            let slip = format!("tenant {name:?} has no device; name = \"*\" means every device");
            return Err(source.slip(&listed, slip));
        }
        let MatchText { annotation: annotations, uid, unit, cgroup, claim, claim_tenant } = who;
        let who = Who { annotations, uid, unit, cgroup, claim, claim_tenant };
        let mut refuse_capabilities = Vec::new();
        for capability in text.refuse_capabilities {
            if !WARNED.contains(&capability.get_ref().as_str()) {
                let slip = format!(
                    "{:?} is not one of {WARNED:?}; the agent refuses all others that matter anyhow",
                    capability.get_ref()
                );
                return Err(source.slip(&capability.span(), slip));
            }
            refuse_capabilities.push(capability.into_inner());
        }
        let (name, memlock) = (name.to_owned(), text.memlock);
        Ok(Self { name, place, policy, devices, memlock, refuse_capabilities, who })
    }

    /// Whether the sandbox is the tenant's.
    #[must_use]
    pub fn matches(&self, subject: &Subject) -> bool {
        let Who { annotations, uid, unit, cgroup, claim, claim_tenant } = &self.who;
        let like = |pattern: &Option<String>, value: Option<&str>| {
            pattern.as_ref().is_none_or(|pattern| value.is_some_and(|v| is_like(pattern, v)))
        };
        // A container may have several claims: a foreign one beside its own makes nobody a tenant.
        let claims = &subject.claims;
        let claimed = claim.is_none() && claim_tenant.is_none() || !claims.is_empty();
        let all_like = claims
            .iter()
            .all(|one| like(claim, Some(&one.name)) && like(claim_tenant, one.tenant.as_deref()));
        uid.is_none_or(|uid| subject.uid == Some(uid))
            && like(unit, subject.unit())
            && like(cgroup, subject.cgroup.as_deref())
            && claimed
            && all_like
            && annotations.iter().all(|(key, pattern)| {
                subject.annotations.get(key).is_some_and(|value| is_like(pattern, value))
            })
    }
}

/// `DDDD:BB:dd.f`, as sysfs names a PCI function.
fn is_pci(text: &str) -> bool {
    let shape = |at: usize, byte: u8| match at {
        4 | 7 => byte == b':',
        10 => byte == b'.',
        _ => byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase(),
    };
    text.len() == 12 && text.bytes().enumerate().all(|(at, byte)| shape(at, byte))
}

/// Whether a text is like a pattern, in which `*` stands for any text and `?` for any character.
pub(super) fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    // Where the last star was, and where the text was then: the star takes one more.
    let (mut p, mut t, mut star) = (0, 0, None);
    while let Some(byte) = text.get(t) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(known) if known == byte || *known == b'?' => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}
