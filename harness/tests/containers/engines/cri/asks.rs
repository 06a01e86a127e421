//! What pods and containers ask for.

use std::collections::HashMap;

use super::CdiDevice;
use super::Container;
use super::ContainerMetadata;
use super::ContainerSecurity;
use super::Device;
use super::HOST;
use super::Image;
use super::KeyValue;
use super::LOCALHOST;
use super::LOGS;
use super::LinuxContainer;
use super::LinuxPod;
use super::Mount;
use super::Namespaces;
use super::Pod;
use super::PodMetadata;
use super::PodSecurity;
use super::Seccomp;

impl Pod {
    /// A pod under the default seccomp profile, with a network of its own.
    pub(crate) fn of(name: &str, annotations: &[(&str, &str)]) -> Self {
        let security = PodSecurity { namespaces: None, seccomp: Some(Seccomp::default()) };
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self {
            metadata: Some(PodMetadata {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                namespace: "default".to_owned(),
            }),
            hostname: name.to_owned(),
            log_directory: LOGS.to_owned(),
            annotations: annotations.iter().map(owned).collect(),
            linux: Some(LinuxPod {
                cgroup_parent: format!("/kubepods/poduid-of-{name}"),
                security: Some(security),
            }),
        }
    }

    /// The same in the network of the host, as most pods with RDMA are.
    pub(crate) fn in_the_hosts_network(mut self) -> Self {
        self.hostname.clear();
        let security = self.linux.iter_mut().flat_map(|linux| &mut linux.security);
        security.for_each(|security| security.namespaces = Some(Namespaces { network: HOST }));
        self
    }

    pub(super) fn namespaces(&self) -> Option<Namespaces> {
        self.linux.as_ref()?.security.as_ref()?.namespaces
    }
}

impl Container {
    /// A container under the default seccomp profile.
    pub(crate) fn of(name: &str, image: &str, command: &[&str]) -> Self {
        let security = ContainerSecurity { namespaces: None, seccomp: Some(Seccomp::default()) };
        Self {
            metadata: Some(ContainerMetadata { name: name.to_owned() }),
            image: Some(Image { image: image.to_owned() }),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            envs: Vec::new(),
            mounts: Vec::new(),
            devices: Vec::new(),
            annotations: HashMap::new(),
            log_path: format!("{name}.log"),
            linux: Some(LinuxContainer { security: Some(security) }),
            cdi: Vec::new(),
        }
    }

    /// As an image's environment, or a pod's, asks.
    pub(crate) fn with_env(mut self, (key, value): (&str, &str)) -> Self {
        self.envs.push(KeyValue { key: key.to_owned(), value: value.to_owned() });
        self
    }

    /// With a volume, which the kubelet has made on the node.
    pub(crate) fn with_volume(mut self, outside: &str, inside: &str) -> Self {
        self.mounts.push(Mount { inside: inside.to_owned(), outside: outside.to_owned() });
        self
    }

    /// As a device plug-in of Kubernetes hands devices out.
    pub(crate) fn with_device(mut self, path: &str) -> Self {
        let (inside, outside) = (path.to_owned(), path.to_owned());
        self.devices.push(Device { inside, outside, permissions: "rw".to_owned() });
        self
    }

    /// As a device plug-in names CDI devices to an engine without CDI.
    pub(crate) fn with_annotation(mut self, (key, value): (&str, &str)) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Under a profile of the node's.
    pub(crate) fn with_profile(mut self, file: &str) -> Self {
        let security = self.linux.iter_mut().flat_map(|linux| &mut linux.security);
        let seccomp = Seccomp { kind: LOCALHOST, file: file.to_owned() };
        security.for_each(|security| security.seccomp = Some(seccomp.clone()));
        self
    }

    /// As a driver for dynamic resource allocation names devices.
    pub(crate) fn with_cdi(mut self, name: &str) -> Self {
        self.cdi.push(CdiDevice { name: name.to_owned() });
        self
    }
}
