//! What a NIC counts of a sandbox's own queue pairs, apart from what others send by the same port.
//!
//! The kernel binds queue pairs to counters of the NIC's, one set for each thread that makes queue pairs
//! ("auto mode by pid", drivers/infiniband/core/counters.c), where the driver can: mlx5. Threads that make
//! queue pairs are stubs, and whose those are the supervisor knows. Sets count as long as a queue pair of
//! theirs lives; then the kernel adds them to the port's own counters, which always show the sum of all.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Weak;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use verbgate_abi::netlink;
use verbgate_abi::netlink::Message;
use verbgate_abi::netlink::StatCounter;
use verbgate_sys::process::Thread;

use crate::gids::MAX_PORTS;
use crate::netlink::kernel;

/// How long an answer is good. The kernel asks the device for every set of the port's, so that a guest that
/// reads counters all the time would keep the device's command queue busy, which is everybody's.
const FRESH: Duration = Duration::from_secs(5);

/// Counters by name.
pub(crate) type Values = BTreeMap<String, u64>;

/// The last answers, by device and port, and when they came.
type Answers = HashMap<(u32, u32), (Instant, Option<Values>)>;

/// The counters of a sandbox's own queue pairs.
#[derive(Debug)]
pub struct Counted {
    /// Names of RDMA devices, the kernel's numbers, and ports on which queue pairs are counted.
    ports: Vec<(String, u32, u32)>,
    kernel: Mutex<(OwnedFd, Answers)>,
    /// Those who make queue pairs for the sandbox.
    stubs: Mutex<Vec<Weak<Thread>>>,
}

impl Counted {
    /// Has the kernel count the queue pairs of these devices, by name and number, where the kernel and
    /// the driver can and nobody has chosen another way. That takes CAP_NET_ADMIN; the mode stays set.
    ///
    /// # Errors
    /// socket(2)'s. `EPROTONOSUPPORT`: a kernel without RDMA.
    pub fn of(devices: &[(String, u32)]) -> io::Result<Self> {
        let kernel = kernel::socket()?;
        let mut ports = Vec::new();
        for (name, index) in devices {
            for port in 1..=MAX_PORTS {
                let parts = kernel::ask(&kernel, &count_by_thread(&counting(*index, port)))?;
                let is_done =
                    |message: Message<'_>| message.kind == netlink::nldev(netlink::STAT_SET);
                if !parts.iter().flat_map(|part| netlink::messages(part)).any(is_done) {
                    log::debug!("{name}: queue pairs of port {port} are not counted one by one");
                    break;
                }
                ports.push((name.clone(), *index, port));
            }
        }
        Ok(Self { ports, kernel: Mutex::new((kernel, Answers::new())), stubs: Mutex::default() })
    }

    /// A thread makes queue pairs for the sandbox from now on.
    pub(crate) fn joins(&self, stub: &Arc<Thread>) {
        let mut stubs = self.stubs.lock();
        stubs.retain(|known| known.strong_count() > 0);
        stubs.push(Arc::downgrade(stub));
    }

    /// The sums of a port's counters over the sandbox's queue pairs that live, as they were at most five
    /// seconds ago; nothing where none is counted.
    #[must_use]
    pub fn of_port(&self, ibdev: &str, port: u32) -> Option<Values> {
        let known = self.ports.iter().find(|(name, _, of)| name == ibdev && *of == port)?;
        self.sums(known.1, port).inspect_err(|e| log::debug!("counters of {ibdev}: {e}")).ok()?
    }

    /// The same of a device by the kernel's number.
    pub(crate) fn of_index(&self, index: u32, port: u32) -> Option<Values> {
        let known = self.ports.iter().find(|(_, known, of)| *known == index && *of == port)?;
        self.of_port(&known.0, port)
    }

    /// All that is counted, by device and port.
    #[must_use]
    pub fn all(&self) -> Vec<(&str, u32, Values)> {
        let of = |(name, _, port): &'_ (String, u32, u32)| self.of_port(name, *port);
        self.ports.iter().filter_map(|one| Some((&*one.0, one.2, of(one)?))).collect()
    }

    fn sums(&self, index: u32, port: u32) -> io::Result<Option<Values>> {
        let mut kernel = self.kernel.lock();
        let (kernel, answers) = &mut *kernel;
        let known = answers.get(&(index, port)).filter(|(came, _)| came.elapsed() < FRESH);
        if let Some((_, known)) = known {
            return Ok(known.clone());
        }
        let sums = self.asked(kernel, index, port)?;
        answers.insert((index, port), (Instant::now(), sums.clone()));
        Ok(sums)
    }

    fn asked(&self, kernel: &OwnedFd, index: u32, port: u32) -> io::Result<Option<Values>> {
        let stubs: Vec<Arc<Thread>> = self.stubs.lock().iter().filter_map(Weak::upgrade).collect();
        let wanted = netlink::encode(&[
            (netlink::DEV_INDEX, &index.to_ne_bytes()),
            (netlink::STAT_RES, &netlink::RES_QP.to_ne_bytes()),
        ]);
        let kind = netlink::nldev(netlink::STAT_GET);
        let flags = netlink::REQUEST | netlink::DUMP;
        let question = Message { kind, flags, seq: 1, payload: &wanted };
        let parts = kernel::ask(kernel, &question)?;
        let messages = parts.iter().flat_map(|part| netlink::messages(part));
        let counters = messages.flat_map(|message| netlink::stat_counters(message.payload));
        let own = |counter: &StatCounter| {
            // Who lives after the answer had the number all the time.
            let number = counter.pid.map(u32::cast_signed);
            let is = |stub: &Arc<Thread>| Some(stub.tid().0) == number && stub.is_alive();
            counter.port == Some(port) && stubs.iter().any(is)
        };
        let mut sums: Option<Values> = None;
        for counter in counters.filter(own) {
            let sums = sums.get_or_insert_default();
            for (name, value) in counter.values {
                let sum = sums.entry(name).or_default();
                *sum = sum.wrapping_add(value);
            }
        }
        Ok(sums)
    }
}

/// The attributes that have a port's queue pairs counted by thread.
fn counting(index: u32, port: u32) -> Vec<u8> {
    netlink::encode(&[
        (netlink::DEV_INDEX, &index.to_ne_bytes()),
        (netlink::PORT_INDEX, &port.to_ne_bytes()),
        (netlink::STAT_RES, &netlink::RES_QP.to_ne_bytes()),
        (netlink::STAT_MODE, &netlink::MODE_AUTO.to_ne_bytes()),
        (netlink::STAT_AUTO_MODE_MASK, &netlink::MASK_PID.to_ne_bytes()),
    ])
}

fn count_by_thread(payload: &[u8]) -> Message<'_> {
    let kind = netlink::nldev(netlink::STAT_SET);
    Message { kind, flags: netlink::REQUEST, seq: 1, payload }
}
