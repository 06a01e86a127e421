//! The driver of a node: what the kubelet asks, and what the cluster is told, again and again.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use verbgate_host::output::say;
use verbgate_host::signals::Signals;

use crate::DRIVER;
use crate::claims;
use crate::cluster::Cluster;
use crate::cluster::is_name;
use crate::devices::devices;
use crate::messages::AllPrepared;
use crate::messages::AllUnprepared;
use crate::messages::Claim;
use crate::messages::Claims;
use crate::messages::OnePrepared;
use crate::messages::OneUnprepared;
use crate::messages::PluginInfo;
use crate::messages::Prepared;
use crate::messages::RegistrationStatus;
use crate::serve;
use crate::slice;
use crate::slice::Published;

/// The services of the kubelet's API that are served, by the names under which the kubelet looks for them.
const SERVED: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];
/// What the kubelet calls drivers.
const TYPE: &str = "DRAPlugin";
/// Devices come and go, and ports go down: how often sysfs is looked at.
const PERIOD: Duration = Duration::from_secs(30);
/// How long the kubelet may take to find the driver, before the log says that it has not.
const FOUND_WITHIN: Duration = Duration::from_secs(60);
/// How soon a signal ends the driver.
const TICK: Duration = Duration::from_millis(200);

/// Options of the driver.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's name in the cluster.
    pub node: String,
    /// The kubelet's directory, `/var/lib/kubelet`.
    pub kubelet: PathBuf,
    /// The directory of the node's sysfs.
    pub sysfs: PathBuf,
    /// The node's root directory, with the folders of CDI.
    pub host: PathBuf,
    /// The API server's address; none: that of the pod's environment.
    pub server: Option<String>,
    /// The directory with the account's `token` and `ca.crt`.
    pub account: PathBuf,
}

/// What answers the kubelet.
#[derive(Debug)]
pub(crate) struct Driver {
    node: String,
    sysfs: PathBuf,
    host: PathBuf,
    endpoint: PathBuf,
    cluster: Cluster,
    registered: AtomicBool,
}

impl Driver {
    /// `GetInfo`.
    pub(crate) fn info(&self) -> PluginInfo {
        PluginInfo {
            r#type: TYPE.into(),
            name: DRIVER.into(),
            endpoint: self.endpoint.to_string_lossy().into_owned(),
            supported_versions: SERVED.map(Into::into).to_vec(),
        }
    }

    /// `NotifyRegistrationStatus`.
    pub(crate) fn notified(&self, status: &RegistrationStatus) {
        self.registered.store(status.plugin_registered, Ordering::Relaxed);
        if status.plugin_registered {
            say("the kubelet has registered the driver");
        } else {
            let why = status.error.replace('\n', " ");
            log::error!(
                "the kubelet refuses the driver: {why}; a kubelet of 1.34, or of 1.32 with the feature gate \
                 DynamicResourceAllocation, is needed"
            );
        }
    }

    /// `NodePrepareResources`: each claim has devices or an error.
    pub(crate) fn prepare(&self, claims: &Claims) -> AllPrepared {
        let one = |claim: &Claim| match self.devices_of(claim) {
            Ok(devices) => OnePrepared { devices, error: String::new() },
            Err(error) => {
                let error = format!("{DRIVER}: {error:#}");
                log::warn!("claim {}/{}: {error}", claim.namespace, claim.name);
                OnePrepared { devices: Vec::new(), error }
            }
        };
        let all = claims.claims.iter().map(|claim| (claim.uid.clone(), one(claim)));
        AllPrepared { claims: all.collect() }
    }

    fn devices_of(&self, claim: &Claim) -> Result<Vec<Prepared>, Error> {
        let devices = devices(&self.sysfs)?;
        Ok(claims::prepare(&self.cluster, &self.node, &devices, claim, &self.host)?)
    }

    /// `NodeUnprepareResources`: what the runtime was told of the claims is taken back.
    pub(crate) fn unprepare(&self, claims: &Claims) -> AllUnprepared {
        let one = |claim: &Claim| {
            let undone = claims::unprepare(claim, &self.host);
            let error = undone.err().map_or_else(String::new, |e| format!("{DRIVER}: {e}"));
            (claim.uid.clone(), OneUnprepared { error })
        };
        AllUnprepared { claims: claims.claims.iter().map(one).collect() }
    }

    fn publish(&self) -> Result<(), Error> {
        let devices = devices(&self.sysfs)?;
        if slice::publish(&self.cluster, &self.node, &devices)? == Published::Written {
            say(&format!("published {} RDMA devices of node {}", devices.len(), self.node));
        }
        Ok(())
    }
}

fn node(options: &Options) -> Result<&str, Error> {
    let node = options.node.as_str();
    if !is_name(node) {
        return Err(anyhow!(
            "--node {node:?}: not a node's name; kubectl get nodes lists the names"
        ));
    }
    Ok(node)
}

/// Removes what the driver has published of this node.
///
/// # Errors
/// The cluster cannot be asked, or refuses.
pub fn withdraw(options: &Options) -> Result<u8, Error> {
    let cluster = Cluster::of(options.server.as_deref(), options.account.clone())?;
    slice::remove(&cluster, node(options)?)?;
    verbgate_oci::claims::forget_all(&options.host)?;
    Ok(0)
}

/// The sockets, which go with the driver: a kubelet gives a driver up whose socket is gone.
#[derive(Debug)]
struct Sockets {
    endpoint: PathBuf,
    registration: PathBuf,
}

impl Sockets {
    fn of(kubelet: &Path) -> Result<Self, Error> {
        let registry = kubelet.join("plugins_registry");
        if !registry.is_dir() {
            return Err(anyhow!(
                "{} is missing: no kubelet runs on this node, or its directory is another; give --kubelet-dir",
                registry.display()
            ));
        }
        let own = kubelet.join("plugins").join(DRIVER);
        let made = fs::DirBuilder::new().mode(0o750).recursive(true).create(&own);
        made.with_context(|| format!("cannot make {}", own.display()))?;
        let registration = registry.join(format!("{DRIVER}-reg.sock"));
        Ok(Self { endpoint: own.join("dra.sock"), registration })
    }

    fn remove(&self) -> io::Result<()> {
        [&self.registration, &self.endpoint].into_iter().try_for_each(|path| match fs::remove_file(
            path,
        ) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        })
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            log::warn!("cannot remove the driver's sockets: {error}");
        }
    }
}

/// Publishes the node's devices and answers the kubelet, until a signal comes.
///
/// # Errors
/// The kubelet's directory or the cluster's address is missing, or the sockets cannot be made. A cluster that cannot
/// be reached later is no end: the log says so, and the driver tries again.
pub fn run(options: &Options) -> Result<u8, Error> {
    let cluster = Cluster::of(options.server.as_deref(), options.account.clone())?;
    let node = node(options)?.to_owned();
    let sockets = Sockets::of(&options.kubelet)?;
    sockets.remove().context("cannot remove the sockets of an earlier driver")?;
    // Before threads are made, which inherit what is held.
    let signals = Signals::hold();
    let driver = Arc::new(Driver {
        node,
        sysfs: options.sysfs.clone(),
        host: options.host.clone(),
        endpoint: sockets.endpoint.clone(),
        cluster,
        registered: AtomicBool::new(false),
    });
    // The endpoint first: who finds the registration asks there at once.
    let serving = serve::start(&driver, &[&sockets.endpoint, &sockets.registration])?;
    let begun = Instant::now();
    let mut warned = false;
    let mut next = begun;
    loop {
        if signals.have_come() {
            return Ok(0);
        }
        if serving.is_finished() {
            return Err(anyhow!("the driver's sockets are not served any more; its log says why"));
        }
        if Instant::now() >= next {
            if let Err(error) = driver.publish() {
                log::error!("cannot publish this node's devices: {error:#}");
            }
            next = Instant::now() + PERIOD;
        }
        if !warned && begun.elapsed() > FOUND_WITHIN && !driver.registered.load(Ordering::Relaxed) {
            warned = true;
            log::warn!(
                "the kubelet has not registered the driver: is {} the directory of the kubelet, is the kubelet's version \
                 1.34 (1.32 with the feature gate DynamicResourceAllocation)?",
                options.kubelet.display()
            );
        }
        thread::sleep(TICK);
    }
}
