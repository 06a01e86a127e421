//! The operator's policy about one sandbox: the tenant's requests and devices.

use std::fs;
use std::path::Path;

use verbgate_proxy::policy::FileOwner;
use verbgate_proxy::policy::Policies;
use verbgate_proxy::policy::Policy;
use verbgate_proxy::policy::PolicyError;
use verbgate_proxy::policy::Subject;
use verbgate_proxy::policy::Tenant;
use verbgate_sys::Tgid;

use crate::grant::GrantError;
use crate::grant::Granted;
use crate::grant::RDMA_CM;

/// The requests and devices that the operator's policy allows a sandbox.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// The requests.
    pub policy: Policy,
    tenant: Tenant,
}

impl Allowed {
    /// What the policy of a directory allows a sandbox, narrowed by the profiles that the sandbox asks
    /// for, if there are any. `None`: there is no such directory, and so no operator's policy.
    ///
    /// # Errors
    /// See [`PolicyError`]: a slip in any file, no tenant, two tenants.
    pub fn of(dir: &Path, subject: &Subject, asked: &[&str]) -> Result<Option<Self>, PolicyError> {
        let Some(policies) = Policies::load(dir, FileOwner::User(0))? else { return Ok(None) };
        let tenant = policies.tenant(subject)?.clone();
        let narrow = |policy: Policy, name: &&str| Ok(policy.and(policies.profile(name)?));
        let policy = asked.iter().try_fold(tenant.policy.clone(), narrow)?;
        log::info!("tenant {} ({}), profile {}", tenant.name, tenant.place, policy.name());
        Ok(Some(Self { policy, tenant }))
    }

    /// The tenant's name.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant.name
    }

    /// Bytes that a process of the tenant's may lock, if the policy says so.
    #[must_use]
    pub fn memlock(&self) -> Option<u64> {
        self.tenant.memlock
    }

    /// Capabilities with which the agent refuses a container of the tenant's.
    #[must_use]
    pub fn refuse_capabilities(&self) -> &[String] {
        &self.tenant.refuse_capabilities
    }

    /// The devices that are the tenant's, with the tenant's ports. A device that was asked for by name
    /// and is not the tenant's is an error; of all devices of the host, the tenant gets the tenant's.
    ///
    /// # Errors
    /// [`GrantError::NotOfTenant`].
    pub fn devices(
        &self,
        granted: Vec<Granted>,
        by_name: bool,
    ) -> Result<Vec<Granted>, GrantError> {
        let refused = |device: String| GrantError::NotOfTenant {
            device,
            tenant: self.tenant.name.clone(),
            place: self.tenant.place.to_string(),
            devices: self.tenant.devices.iter().map(ToString::to_string).collect(),
        };
        let mut kept = Vec::new();
        for mut one in granted {
            if one.name == RDMA_CM {
                kept.push(one);
                continue;
            }
            let names = [one.identity.ibdev(), one.identity.uverbs(), Some(&*one.name)];
            let names: Vec<&str> = names.into_iter().flatten().collect();
            let rule = |parent| self.tenant.devices.iter().find(|rule| rule.means(parent, &names));
            match rule(one.identity.parent()) {
                Some(rule) => {
                    one.ports = rule.ports().map(<[u32]>::to_vec);
                    kept.push(one);
                }
                None if by_name => return Err(refused(one.name)),
                None => log::debug!("{} is not a device of tenant {}", one.name, self.tenant.name),
            }
        }
        if kept.iter().all(|one| one.name == RDMA_CM) {
            return Err(refused("no device of this host".to_owned()));
        }
        Ok(kept)
    }
}

/// The path of a process in the cgroup hierarchy: in version 2 if there is one, else in systemd's own
/// of version 1 (cgroups(7)).
#[must_use]
pub fn cgroup_of(process: Tgid) -> Option<String> {
    path_in(&fs::read_to_string(format!("/proc/{}/cgroup", process.0)).ok()?)
}

fn path_in(text: &str) -> Option<String> {
    let of = |prefix| text.lines().find_map(|line| line.strip_prefix(prefix));
    let systemd = || text.lines().find_map(|line| line.split_once(":name=systemd:").map(|p| p.1));
    let path = of("0::").filter(|path| *path != "/").or_else(systemd).or_else(|| of("0::"))?;
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use verbgate_proxy::policy::Policies;

    use super::*;
    use crate::grant::Host;
    use crate::grant::resolve;

    fn allowed(devices: &str) -> Allowed {
        let text = format!(
            "version = 1\n[tenant.a]\nmatch.uid = 7\nprofile = \"standard\"\ndevices = {devices}\n"
        );
        let policies = Policies::read(Path::new("/p/a.toml"), &text).unwrap();
        let tenant = policies.named("a").unwrap().clone();
        Allowed { policy: tenant.policy.clone(), tenant }
    }

    fn granted(names: &[&str]) -> Vec<Granted> {
        let options: Vec<OsString> =
            names.iter().map(|name| format!("{name}=/dev/null").into()).collect();
        resolve(&options, Host::real()).unwrap()
    }

    #[test]
    fn a_tenant_gets_its_own_devices_and_ports() {
        let two = || granted(&["uverbs8", "uverbs9"]);
        let of = |devices: &str, by_name| allowed(devices).devices(two(), by_name);
        let kept = of("[{ name = \"uverbs9\", ports = [1] }]", false).unwrap();
        assert_eq!(kept.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["uverbs9"]);
        assert_eq!(kept[0].ports.as_deref(), Some(&[1][..]));
        assert_eq!(of("[{ name = \"uverbs*\" }]", true).unwrap().len(), 2);
        let error = of("[{ name = \"uverbs9\" }]", true).unwrap_err().to_string();
        for word in ["uverbs8", "\"a\"", "/p/a.toml:2", "name = \"uverbs9\""] {
            assert!(error.contains(word), "{word}: {error}");
        }
        // A device without a PCI parent is no PCI function's, and a name is no address.
        let pci = "[{ pci = \"0000:3b:00.2\" }, { pci = \"0000:3b:00.2\", name = \"*\" }]";
        assert!(matches!(of(pci, false), Err(GrantError::NotOfTenant { .. })));
    }

    #[test]
    fn the_cgroup_is_found_in_both_versions() {
        let path = |text: &str| path_in(text);
        assert_eq!(
            path("0::/system.slice/a.service\n").as_deref(),
            Some("/system.slice/a.service")
        );
        let mixed = "12:cpu:/x\n1:name=systemd:/user.slice\n0::/\n";
        assert_eq!(path(mixed).as_deref(), Some("/user.slice"));
        assert_eq!(path("0::/\n").as_deref(), Some("/"));
        assert_eq!(path("3:cpu:/\n"), None);
    }
}
