//! What reloads of the operator's policy have left of the rights that a sandbox started with.
//!
//! Nothing is granted that was not granted at the start. **What lives is only narrowed**: data keeps moving
//! between queue pairs that were connected, by memory that programs share with the NIC and that nobody sees;
//! so the requests that move data elsewhere (Soft-RoCE's doorbells), and those that end objects, pass on a
//! device that the operator has taken away, and no others do.

use std::sync::OnceLock;

use verbgate_abi::Errno;

use crate::device::Devices;
use crate::policy::Left;
use crate::policy::Narrowing;
use crate::policy::Policy;
use crate::supervisor::Supervisor;

/// A narrowing, with what is left of each device, and what came after it.
#[derive(Debug)]
struct Narrowed {
    by: Narrowing,
    left: Vec<Left>,
    next: Chain,
}

/// The narrowings, of which the last counts. A chain that only grows can be read without a lock, by those
/// who judge requests; an operator makes it longer, and no guest.
#[derive(Debug, Default)]
pub(crate) struct Chain(OnceLock<Box<Narrowed>>);

impl Chain {
    /// A narrowing of a sandbox with these devices, in the place of the one before.
    fn push(&self, by: Narrowing, devices: &Devices) {
        let left = devices.iter().map(|device| device.left_by(&by)).collect();
        let mut next = Box::new(Narrowed { by, left, next: Self::default() });
        let mut end = self;
        loop {
            match end.0.set(next) {
                Ok(()) => return,
                // Somebody was there before; in this one's turn, too.
                Err(refused) => next = refused,
            }
            let Some(there) = end.0.get() else { return };
            end = &there.next;
        }
    }

    fn last(&self) -> Option<&Narrowed> {
        let mut last = self.0.get()?;
        while let Some(next) = last.next.0.get() {
            last = next;
        }
        Some(last)
    }

    /// The policy that narrows the guests, if one does.
    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.last().map(|last| last.by.policy())
    }

    /// What is left of a device, if the guests are narrowed.
    fn left(&self, device: usize) -> Option<&Left> {
        self.last()?.left.get(device)
    }

    /// Whether the operator has taken a device away.
    pub(crate) fn is_withdrawn(&self, device: usize) -> bool {
        self.left(device) == Some(&Left::Nothing)
    }

    /// The ports of a device by which requests may speak; all when there are none.
    pub(crate) fn ports<'a>(&'a self, devices: &'a Devices, device: usize) -> Option<&'a [u32]> {
        match self.left(device) {
            Some(Left::Ports(ports)) => ports.as_deref(),
            Some(Left::Nothing) | None => devices.get(device)?.ports.as_deref(),
        }
    }

    /// Whether the verbs device that is the kernel's of this number has this port for the sandbox.
    pub(crate) fn has_port(&self, devices: &Devices, index: u32, port: u32) -> bool {
        let Some(device) = devices.position(|device| device.index() == Some(index)) else {
            return false;
        };
        !self.is_withdrawn(device)
            && self.ports(devices, device).is_none_or(|ports| ports.contains(&port))
    }

    /// The devices that are left.
    pub(crate) fn devices(&self, devices: &Devices) -> Devices {
        let left = devices.iter().enumerate().filter(|(device, _)| !self.is_withdrawn(*device));
        Devices::from(left.map(|(_, device)| device.clone()).collect::<Vec<_>>())
    }
}

impl Supervisor {
    /// From now on a request must also pass this, in the place of what narrowed the guests before. Nothing
    /// is granted that was not granted at the start.
    pub fn narrow(&self, by: Narrowing) {
        self.ledger.publish();
        self.narrowed.push(by, &self.devices);
    }

    /// The policy that narrows the guests, if one does.
    pub(crate) fn narrowed(&self) -> Option<&Policy> {
        self.narrowed.policy()
    }

    /// Refuses to open, or to map memory of, a device that the operator has taken away.
    pub(crate) fn check_left(&self, device: usize, what: &str) -> Result<(), Errno> {
        if !self.narrowed.is_withdrawn(device) {
            return Ok(());
        }
        self.warn("device taken away", || {
            let name = self.devices.get(device).map_or("?", |device| &*device.name);
            format!(
                "{what} {name}: the operator's policy has this device no more (verbgate policy reload); \
                 start the program again, or grant the device"
            )
        });
        Err(Errno::EACCES)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use verbgate_abi::wire::DriverId;
    use verbgate_sysfs::DevNumber;
    use verbgate_sysfs::Identity;

    use super::*;
    use crate::device::Device;
    use crate::device::Kind;
    use crate::device::Watched;
    use crate::policy::Policies;

    /// Devices of the kernel's numbers 3 and 4, of which the second was granted with ports; and rdma_cm.
    fn devices() -> Devices {
        let sysfs = Path::new("/sys");
        let device = |name: &str, kind, ports: Option<Vec<u32>>| Device {
            name: name.to_owned(),
            rdev: (1, 3),
            identity: Watched::new(
                Identity::below(sysfs, DevNumber { major: 1, minor: 3 }).unwrap(),
                sysfs,
            ),
            source: "/dev/null".into(),
            kind,
            ports,
        };
        let verbs = |index| Kind::Verbs { driver: DriverId::RXE, index: Some(index) };
        Devices::from(vec![
            device("uverbs3", verbs(3), None),
            device("uverbs4", verbs(4), Some(vec![2, 3])),
            device("rdma_cm", Kind::Cm, None),
        ])
    }

    fn tenant(devices: &str) -> Narrowing {
        let text = format!(
            "version = 1\n[tenant.t]\nmatch.uid = 1\nprofile = \"standard\"\ndevices = {devices}\n"
        );
        let policies = Policies::read(Path::new("/p/x.toml"), &text).unwrap();
        policies.named("t").unwrap().into()
    }

    #[test]
    fn a_reload_takes_devices_and_ports_away_and_gives_none() {
        let devices = devices();
        let chain = Chain::default();
        // What a device is, and which of its ports are left.
        let left = |chain: &Chain| {
            let of = |device| {
                let ports = chain.ports(&devices, device).map(<[u32]>::to_vec);
                (!chain.is_withdrawn(device)).then_some(ports)
            };
            (of(0), of(1))
        };
        let all = (Some(None), Some(Some(vec![2, 3])));
        assert_eq!(left(&chain), all);
        assert!(chain.policy().is_none());
        for (text, first, second) in [
            ("[{ name = \"uverbs3\" }]", Some(None), None),
            ("[{ name = \"uverbs?\" }]", Some(None), Some(Some(vec![2, 3]))),
            ("[{ name = \"*\", ports = [1, 2] }]", Some(Some(vec![1, 2])), Some(Some(vec![2]))),
            // Of the ports of the start none is left.
            ("[{ name = \"*\", ports = [1] }]", Some(Some(vec![1])), None),
            // The first rule that means a device, as at the start.
            (
                "[{ name = \"uverbs4\", ports = [3] }, { name = \"*\" }]",
                Some(None),
                Some(Some(vec![3])),
            ),
            ("[{ pci = \"0000:3b:00.2\" }]", None, None),
            // And what an earlier one took away, a later one gives back: of the start, no more.
            ("[{ name = \"*\" }]", Some(None), Some(Some(vec![2, 3]))),
        ] {
            let by = tenant(text);
            chain.push(by.clone(), &devices);
            assert_eq!(left(&chain), (first.clone(), second.clone()), "{text}");
            assert_eq!(chain.policy(), Some(by.policy()));
            for (index, left) in [(3, first), (4, second)] {
                for port in 1..=4 {
                    let granted = left.as_ref().is_some_and(|ports: &Option<Vec<u32>>| {
                        ports.as_ref().is_none_or(|ports| ports.contains(&port))
                    });
                    assert_eq!(
                        chain.has_port(&devices, index, port),
                        granted,
                        "{text} {index} {port}"
                    );
                }
            }
            assert!(!chain.has_port(&devices, 5, 1));
            // The connection manager is the profile's to give and take.
            assert!(!chain.is_withdrawn(2));
            let shown = chain.devices(&devices).iter().count();
            assert_eq!(shown, (0..3).filter(|device| !chain.is_withdrawn(*device)).count());
        }
        // Of requests alone.
        chain.push(Policy::named("standard").unwrap().into(), &devices);
        assert_eq!(left(&chain), all);
    }
}
