//! Sockets of guests, and what stands behind them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use verbgate_abi::Errno;
use verbgate_abi::netlink;
use verbgate_abi::netlink::Grant;
use verbgate_abi::netlink::Judged;
use verbgate_abi::netlink::Message;
use verbgate_abi::netlink::Writer;

use crate::counted::Counted;
use crate::device::Device;
use crate::device::DeviceView;
use crate::device::Devices;
use crate::device::Kind;
use crate::fetch::errno;
use crate::gids::GidView;
use crate::netlink::kernel::ask;
use crate::netlink::message::Address;

/// The guests' sockets, by the inode number of the guest's end: whose number is its own until the
/// guest has closed it, which the other end tells.
pub(crate) type Sockets = HashMap<u64, Socket>;

/// What stands behind a guest's socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// The other end of the guest's.
    pub(super) peer: OwnedFd,
    /// The kernel's answers come here.
    pub(super) kernel: OwnedFd,
    /// By which the guest's socket is addressed.
    pub(super) port: u32,
    pub(super) granted: Granted,
}

/// What of the host's a sandbox may ask about.
#[derive(Debug)]
pub(super) struct Granted {
    /// The kernel's numbers, and names, which the GIDs of ports go by.
    pub(super) devices: Vec<(u32, Option<String>)>,
    pub(super) cm: bool,
    pub(super) gids: Option<Arc<GidView>>,
    /// What is counted of the sandbox's own.
    pub(super) counted: Option<Arc<Counted>>,
}

impl Granted {
    /// By the numbers that were recorded when the devices were granted: what was removed since has
    /// taken its own along, and whatever came in its place has another. Who does not find a device
    /// in sysfs does not find it here.
    pub(super) fn of(
        devices: &Devices,
        found: Option<&dyn DeviceView>,
        gids: Option<Arc<GidView>>,
        counted: Option<Arc<Counted>>,
    ) -> Self {
        let shown = |device: &&Device| found.is_none_or(|found| found.shows(&device.name));
        let name = |device: &Device| device.identity.identity().ibdev().map(str::to_owned);
        let known = |device: &Device| Some((device.index()?, name(device)));
        let known = devices.iter().filter(shown).filter_map(known);
        Self { devices: known.collect(), cm: devices.has(Kind::Cm), gids, counted }
    }

    /// What is counted of the sandbox's own on a port that it shares, in the form of the kernel's answer.
    fn own_counters(&self, question: &Message<'_>) -> Option<Vec<u8>> {
        let number = |wanted| {
            let mut all = netlink::attributes(question.payload);
            netlink::index(all.find(|(number, _)| *number == wanted)?.1)
        };
        let (device, port) = (number(netlink::DEV_INDEX)?, number(netlink::PORT_INDEX)?);
        let values = self.counted.as_ref()?.of_index(device, port)?;
        let name = self.devices.iter().find(|(known, _)| *known == device)?.1.as_ref()?;
        let head = netlink::encode(&[
            (netlink::DEV_INDEX, &device.to_ne_bytes()),
            (netlink::DEV_NAME, &[name.as_bytes(), b"\0"].concat()),
            (netlink::PORT_INDEX, &port.to_ne_bytes()),
        ]);
        let values = values.iter().map(|(name, value)| (&**name, *value));
        Some([head, netlink::hw_counters(values)].concat())
    }
}

impl Grant for Granted {
    fn device(&self, index: u32) -> bool {
        self.devices.iter().any(|(known, _)| *known == index)
    }

    fn counters(&self, index: u32, port: u32) -> bool {
        let Some(gids) = &self.gids else { return true };
        let name = self.devices.iter().find(|(known, _)| *known == index);
        name.and_then(|(_, name)| name.as_ref()).is_some_and(|name| !gids.is_shared(name, port))
    }

    fn node(&self, kind: &str) -> bool {
        kind == "uverbs" || kind == "rdma_cm" && self.cm
    }
}

/// Forgets the sockets that guests have closed.
pub(crate) fn forget_closed(sockets: &mut Sockets) {
    sockets.retain(|_, socket| {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Hanging up is told without being asked for.
        let mut fds = [PollFd::new(&socket.peer, PollFlags::empty())];
        !poll(&mut fds, Some(&at_once)).is_ok_and(|n| n > 0)
    });
}

impl Socket {
    pub(super) fn bind(&mut self, to: &Address) -> Result<i64, Errno> {
        if to.groups != 0 {
            // News of devices, which are told to everybody.
            return Err(Errno::EPERM);
        }
        if to.port != 0 {
            self.port = to.port;
        }
        Ok(0)
    }

    /// Has the questions of a datagram answered.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<i64, Errno> {
        for message in netlink::messages(bytes) {
            match netlink::judge(&message, &self.granted) {
                Judged::Ignored => {}
                Judged::Refused(errno) => {
                    // That is a port's counters, which tell of others.
                    let is_counters = errno == Errno::EPERM;
                    let own = is_counters.then(|| self.granted.own_counters(&message)).flatten();
                    let answer = match &own {
                        Some(payload) => {
                            let mut writer = Writer::default();
                            writer.message(&Message { flags: 0, payload, ..message }, self.port);
                            writer.into_bytes()
                        }
                        None => netlink::refusal(&message, errno, self.port),
                    };
                    self.deliver(&answer)?;
                }
                Judged::Asked(payload) => {
                    let message = Message { payload: &payload, ..message };
                    let parts = ask(&self.kernel, &message).map_err(errno)?;
                    for part in parts {
                        let mut seen = Writer::default();
                        for answer in netlink::messages(&part) {
                            if netlink::may_see(&answer, &self.granted) {
                                seen.message(&answer, self.port);
                            }
                        }
                        self.deliver(&seen.into_bytes())?;
                    }
                }
            }
        }
        Ok(i64::try_from(bytes.len()).unwrap_or(i64::MAX))
    }

    pub(super) fn deliver(&self, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        // Who asks and does not read is told as by the kernel.
        rustix::io::write(&self.peer, bytes).map(drop).map_err(|_| Errno(libc::ENOBUFS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netlink_tells_of_the_kernels_devices_that_were_granted_and_are_found() {
        use std::path::Path;

        use verbgate_abi::wire::DriverId;
        use verbgate_sysfs::DevNumber;
        use verbgate_sysfs::Identity;

        use crate::device::Watched;

        struct Shows(&'static str);
        impl DeviceView for Shows {
            fn shows(&self, node: &str) -> bool {
                node == self.0
            }
        }
        let device = |name: &str, index| Device {
            name: name.to_owned(),
            rdev: (1, 3),
            identity: Watched::new(
                Identity::unknown(DevNumber { major: 1, minor: 3 }),
                Path::new("/absent"),
            ),
            source: "/dev/null".into(),
            kind: Kind::Verbs { driver: DriverId::UNKNOWN, index },
            ports: None,
        };
        let devices =
            vec![device("uverbs0", Some(4)), device("uverbs1", Some(7)), device("uverbs9", None)];
        let devices = Devices::from(devices);
        let indices = |found: Option<&dyn DeviceView>| -> Vec<u32> {
            Granted::of(&devices, found, None, None)
                .devices
                .iter()
                .map(|(index, _)| *index)
                .collect()
        };
        assert_eq!(indices(None), [4, 7]);
        assert_eq!(indices(Some(&Shows("uverbs1"))), [7]);
        assert_eq!(indices(Some(&Shows("uverbs9"))), [0; 0]);
        assert!(!Granted::of(&devices, None, None, None).cm);
    }
}
