//! What checks look at.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Error;
use verbgate_oci::Globals;
use verbgate_oci::engine::Engine;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::Device;
use verbgate_sysfs::hardware;
use verbgate_sysfs::hardware::Hardware;

use crate::check::Finding;
use crate::check::Verdict;
use crate::cli::HostArgs;
use crate::cli::Purpose;
use crate::config;

/// Preflight of a host, and what was asked about it.
#[derive(Debug)]
pub(crate) struct Preflight<'a> {
    pub(crate) host: &'a HostArgs,
    pub(crate) globals: &'a Globals,
    pub(crate) purpose: Purpose,
    /// A peer to reach.
    pub(crate) peer: Option<IpAddr>,
    /// The only engine to look at.
    pub(crate) engine: Option<Engine>,
    /// The engine that is to start a container.
    pub(crate) tried: Option<Engine>,
    /// `/etc/verbgate/config.toml`, if the file is there.
    pub(crate) config: Result<Option<config::Keys>, Error>,
    pub(crate) devices: Vec<Device>,
    /// The hardware of each device, by the device's name.
    pub(crate) hardware: Vec<(String, Hardware)>,
}

impl<'a> Preflight<'a> {
    pub(crate) fn of(host: &'a HostArgs, globals: &'a Globals, purpose: Purpose) -> Self {
        let devices = discover::devices(&host.sysfs_root);
        let of =
            |device: &Device| (device.name.clone(), hardware::of(&host.sysfs_root, &device.name));
        Self {
            host,
            globals,
            purpose,
            peer: None,
            engine: None,
            tried: None,
            config: config::checked(Path::new(config::FILE)),
            hardware: devices.iter().map(of).collect(),
            devices,
        }
    }

    /// Whether a netdev is that of an RDMA device's port.
    pub(crate) fn is_rdma(&self, netdev: &str) -> bool {
        self.devices.iter().any(|device| device.port_of(netdev).is_some())
    }

    /// A finding about an engine. Where engines are the question, an engine that is not ready is the answer no.
    pub(crate) fn asked(&self, finding: Finding) -> Finding {
        match (self.purpose, finding.verdict) {
            (Purpose::RuntimeStatus | Purpose::NodeLabel, Verdict::Warn) => {
                Finding { verdict: Verdict::Fail, ..finding }
            }
            _ => finding,
        }
    }
}
