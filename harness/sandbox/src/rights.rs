//! The rights of a guest: devices, and a policy.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;

use anyhow::anyhow;
use serde_json::Value;
use verbgate_proxy::Config;
use verbgate_proxy::Device;
use verbgate_proxy::Ledger;
use verbgate_proxy::Memory;
use verbgate_proxy::Register;
use verbgate_proxy::Siblings;
use verbgate_proxy::Supervisor;
use verbgate_proxy::Watched;
use verbgate_proxy::device;
use verbgate_proxy::device::Kind;
use verbgate_proxy::index_of;
use verbgate_proxy::observe::Observer;
use verbgate_proxy::policy::Narrowing;
use verbgate_proxy::policy::Policy;
use verbgate_sys::Tgid;
use verbgate_sys::process;
use verbgate_sys::process::Process;
use verbgate_sys::seccomp::Listener;
use verbgate_sysfs::Identity;
use verbgate_sysfs::collect::SYSFS_ROOT;

use crate::Error;
use crate::audit::Audit;
use crate::grant::Granted;
use crate::grant::RDMA_CM;
use crate::guard::Guard;
use crate::views::Views;

/// The devices that a guest may use, and the requests that the guest may make: decided before the
/// guest exists.
#[derive(Clone, Debug)]
pub struct Rights {
    devices: Vec<Device>,
    policy: Arc<Policy>,
    /// What has narrowed the rights since, if anything has.
    narrowed: Option<Narrowing>,
    register: Option<Arc<Register>>,
    /// What the sandbox holds of its tenant's quotas.
    ledger: Arc<Ledger>,
    audit: Option<Audit>,
    memory: Arc<OnceLock<Memory>>,
}

impl Rights {
    /// Asks each device for its driver.
    ///
    /// # Errors
    /// When a device is not what was granted, or cannot be opened.
    pub fn new(nodes: &[Granted], policy: Policy) -> Result<Self, Error> {
        let policy = Arc::new(policy);
        let devices = nodes.iter().map(device).collect::<Result<_, _>>()?;
        let ledger = Arc::default();
        Ok(Self {
            devices,
            policy,
            narrowed: None,
            register: None,
            ledger,
            audit: None,
            memory: Arc::default(),
        })
    }

    /// The same for nodes, one of which may be the connection manager's.
    pub fn with_cm(nodes: &[Granted], policy: Policy) -> Result<Self, Error> {
        let (cm, nodes): (Vec<Granted>, Vec<Granted>) =
            nodes.iter().cloned().partition(|node| node.name == RDMA_CM);
        let mut plan = Self::new(&nodes, policy)?;
        if plan.grants_rdma_cm() {
            cm.iter().for_each(|node| plan.add_rdma_cm(node));
        }
        Ok(plan)
    }

    /// Follows granted devices into the network namespace of a process, to which this command has
    /// moved them. Where RDMA devices belong to namespaces (`rdma system`: exclusive), moving one
    /// makes its node anew, and so another entry of sysfs; the kernel's index stays
    /// (`rdma_dev_change_netns`, drivers/infiniband/core/device.c), and says that it is the same.
    /// Whatever else has come in the place of one stays another device.
    pub fn follow(&mut self, granted: &mut [Granted], into: Tgid) {
        for one in granted {
            let own = self.devices.iter_mut().find(|device| device.name == one.name);
            let Some(device) = own else { continue };
            let Some(index) = device.index() else { continue };
            if one.identity.check_below(Path::new(SYSFS_ROOT)).is_ok() {
                continue;
            }
            match moved(one, index, into) {
                Ok(now) => {
                    log::info!(
                        "{}: the network device {} was {} before the move",
                        one.name,
                        now,
                        one.identity
                    );
                    one.identity = now;
                    device.identity = Watched::new(one.identity.clone(), Path::new(SYSFS_ROOT));
                }
                Err(error) => log::warn!("{}: {error:#}", one.name),
            }
        }
    }

    /// Narrows what the guests of supervisors to come may ask for, as [`Supervisor::narrow`] does.
    pub fn narrow(&mut self, by: Narrowing) {
        self.narrowed = Some(by);
    }

    /// Claims connections in the register of a directory of run-time state, in which all sandboxes of
    /// the host do: to be called before the supervisor confines itself.
    pub fn register_in(&mut self, root: &Path) -> Result<(), Error> {
        let failed = |source| Error::Register { path: root.to_owned(), source };
        self.register = Some(Register::open(root).map_err(failed)?);
        Ok(())
    }

    /// Charges what the guest holds to a tenant, together with all sandboxes of that tenant which have
    /// the same directory of run-time state: to be called before the supervisor confines itself. Else the
    /// sandbox is a tenant by itself.
    pub fn charge_to(&mut self, root: &Path, tenant: &str) -> Result<(), Error> {
        let failed = |source| {
            let (path, tenant) = (root.to_owned(), tenant.to_owned());
            Error::Ledger { path, tenant, source }
        };
        self.ledger = Arc::new(Ledger::open(root, tenant).map_err(failed)?);
        Ok(())
    }

    /// Writes down what the guest is refused, and whom the guest connects with.
    pub fn audit(&mut self, audit: Audit) {
        self.audit = Some(audit);
    }

    /// Writes an event down, if somebody wants to know.
    pub fn say(&self, event: Value) {
        if let Some(audit) = &self.audit {
            audit.say(event);
        }
    }

    /// Tells the memory of this process's own control group, which is bounded.
    pub fn bound(&self, memory: Memory) {
        let _ = self.memory.set(memory);
    }

    /// The policy of the start.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the profile has the connection manager.
    pub fn grants_rdma_cm(&self) -> bool {
        let narrowed = self.narrowed.as_ref().map(Narrowing::policy);
        self.policy.grants_rdma_cm() && narrowed.is_none_or(Policy::grants_rdma_cm)
    }

    /// Grants the connection manager.
    pub fn add_rdma_cm(&mut self, node: &Granted) {
        self.devices.push(of_kind(node, Kind::Cm));
    }

    /// The supervisor of the guest whose notifications arrive at `listener`.
    pub fn supervisor(
        &self,
        guard: &Guard,
        listener: OwnedFd,
        views: &Views,
        siblings: Option<Siblings>,
        observer: Option<Box<dyn Observer>>,
    ) -> Result<Arc<Supervisor>, Error> {
        let supervisor = Supervisor::new(Config {
            listener: Listener::from(listener),
            window: guard.window,
            fds: guard.fds,
            judge: guard.judges.then(|| guard.program.clone()),
            devices: self.devices.clone().into(),
            policy: Arc::clone(&self.policy),
            gids: Some(Arc::clone(&views.gids)),
            counted: views.counted.clone(),
            found: Some(Arc::new(views.clone())),
            siblings,
            register: self.register.clone(),
            ledger: Arc::clone(&self.ledger),
            observer: match &self.audit {
                Some(audit) => Some(audit.observer(observer)),
                None => observer,
            },
            memory: Arc::clone(&self.memory),
        })
        .map_err(Error::Supervisor)?;
        if let Some(narrowed) = &self.narrowed {
            supervisor.narrow(narrowed.clone());
        }
        Ok(Arc::new(supervisor))
    }
}

pub(crate) fn device(node: &Granted) -> Result<Device, Error> {
    let name = || node.name.clone();
    let driver = device::driver(&node.source).map_err(|source| {
        let path = node.source.clone();
        Error::Device { path, name: name(), source }
    })?;
    let index = match node.identity.uverbs() {
        Some(_) => index_of(node.rdev).map_err(|source| Error::Index { name: name(), source })?,
        None => None,
    };
    // After all that was asked by number and path, which then was of this device.
    if (node.identity.number.major, node.identity.number.minor) != node.rdev {
        return Err(Error::Older { name: name() });
    }
    let same = node.identity.check_below(Path::new(SYSFS_ROOT));
    same.map_err(|source| Error::Replaced { name: name(), source })?;
    Ok(of_kind(node, Kind::Verbs { driver, index }))
}

/// The device that a number leads to now, if that is still the kernel's device of this index.
fn moved(granted: &Granted, index: u32, into: Tgid) -> Result<Identity, anyhow::Error> {
    let sysfs = Path::new(SYSFS_ROOT);
    let now = Identity::below(sysfs, granted.identity.number)?;
    let number = granted.rdev;
    // In exclusive mode a device shows in its own namespace alone. A thread for it: the caller
    // stays where it is.
    let asked = std::thread::spawn(move || {
        process::enter_network(&Process::open(into)?.network()?)?;
        index_of(number)
    });
    let asked = asked.join().map_err(|_| anyhow!("the thread that asks RDMA netlink ended"))??;
    if asked != Some(index) {
        return Err(anyhow!("the device was removed, or is another device: {}", granted.identity));
    }
    // After the index was asked by the number, which then was that of this identity.
    now.check_below(sysfs)?;
    Ok(now)
}

fn of_kind(node: &Granted, kind: Kind) -> Device {
    let identity = Watched::new(node.identity.clone(), Path::new(SYSFS_ROOT));
    let (name, source) = (node.name.clone(), node.source.clone());
    Device { name, rdev: node.rdev, identity, source, kind, ports: node.ports.clone() }
}
