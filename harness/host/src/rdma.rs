//! The mode of RDMA devices: whether they belong to network namespaces; rdma-system(8),
//! rdma-dev(8).

use std::collections::BTreeMap;
use std::io;

use netlink_sys::protocols::NETLINK_RDMA;

use super::netlink::Message;
use super::netlink::Netlink;
use super::netlink::decode;
use super::netlink::to_text;
use super::netlink::to_u32;
use super::netns::Namespace;
use super::uapi::*;
use crate::Error;

const EOPNOTSUPP: i32 = 95;

/// How the RDMA subsystem treats network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every device is in all of them.
    Shared,
    /// A device is in one of them.
    Exclusive,
    /// This kernel has no RDMA, or does not tell.
    Unknown,
}

/// The mode of this machine.
pub fn mode() -> Mode {
    let answer = Netlink::open(NETLINK_RDMA)
        .and_then(|mut netlink| netlink.ask(&Message::new(RDMA_NLDEV_CMD_SYS_GET)));
    match answer.ok().flatten().and_then(|m| m.u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE)) {
        Some(0) => Mode::Exclusive,
        Some(_) => Mode::Shared,
        None => Mode::Unknown,
    }
}

/// Whether the thread's namespace has a device of this name.
pub fn index(name: &str) -> io::Result<Option<u32>> {
    let mut netlink = Netlink::open(NETLINK_RDMA)?;
    let devices = netlink.dump(&Message::new(RDMA_NLDEV_CMD_GET))?;
    let found = devices.iter().find(|m| m.text(RDMA_NLDEV_ATTR_DEV_NAME).as_deref() == Some(name));
    Ok(found.and_then(|m| m.u32(RDMA_NLDEV_ATTR_DEV_INDEX)))
}

/// Sends a device from the thread's namespace to another; a device that is not there is not sent.
pub fn send_to(name: &str, target: &Namespace) -> Result<(), Error> {
    let sent = || -> io::Result<()> {
        let Some(index) = index(name)? else { return Ok(()) };
        let mut message = Message::new(RDMA_NLDEV_CMD_SET);
        message.set_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
        message.set(RDMA_NLDEV_NET_NS_FD, target.raw_fd().to_ne_bytes());
        Netlink::open(NETLINK_RDMA)?.change(0, &message)
    };
    sent().map_err(|source| {
        let why = match source.raw_os_error() {
            Some(EOPNOTSUPP) => "its driver cannot move devices; use: rdma system set netns shared",
            _ => "is it in use?",
        };
        let what = format!("move the RDMA device {name} to {target} ({why})");
        Error::Netlink { what, source }
    })
}

/// `hw_counters` of a port (rdma-statistic(8)); none of a device that is not in the thread's
/// namespace.
pub fn counters(device: &str, port: u32) -> io::Result<BTreeMap<String, u64>> {
    let Some(index) = index(device)? else { return Ok(BTreeMap::new()) };
    let mut message = Message::new(RDMA_NLDEV_CMD_STAT_GET);
    message.set_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
    message.set_u32(RDMA_NLDEV_ATTR_PORT_INDEX, port);
    let answer = Netlink::open(NETLINK_RDMA)?.ask(&message)?;
    Ok(answer.as_ref().map(counters_in).unwrap_or_default())
}

fn counters_in(answer: &Message) -> BTreeMap<String, u64> {
    let entry = |value: &[u8]| {
        let of = decode(value);
        let get = |kind| of.iter().find(|(its, _)| *its == kind).map(|(_, value)| &**value);
        let name = to_text(get(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME)?);
        let value = get(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE)?;
        Some((name, u64::from_ne_bytes(value.try_into().ok()?)))
    };
    let entries = answer.nested(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS).into_iter();
    entries
        .filter(|(kind, _)| *kind == RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY)
        .filter_map(|(_, value)| entry(&value))
        .collect()
}

/// How many queue pairs a process has, on all devices that are visible here (rdma-resource(8)).
pub fn queue_pairs(pid: u32) -> io::Result<usize> {
    let mut netlink = Netlink::open(NETLINK_RDMA)?;
    let devices = netlink.dump(&Message::new(RDMA_NLDEV_CMD_GET))?;
    let mut count = 0;
    for index in devices.iter().filter_map(|device| device.u32(RDMA_NLDEV_ATTR_DEV_INDEX)) {
        let mut message = Message::new(RDMA_NLDEV_CMD_RES_QP_GET);
        message.set_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
        count +=
            netlink.dump(&message)?.iter().map(|answer| queue_pairs_in(answer, pid)).sum::<usize>();
    }
    Ok(count)
}

/// The kernel's own have no process.
fn queue_pairs_in(answer: &Message, pid: u32) -> usize {
    let is_its = |value: &[u8]| {
        let of = decode(value);
        let its = of.iter().find(|(kind, _)| *kind == RDMA_NLDEV_ATTR_RES_PID);
        its.and_then(|(_, value)| to_u32(value)) == Some(pid)
    };
    let entries = answer.nested(RDMA_NLDEV_ATTR_RES_QP).into_iter();
    entries.filter(|(kind, value)| *kind == RDMA_NLDEV_ATTR_RES_QP_ENTRY && is_its(value)).count()
}

#[cfg(test)]
mod tests {
    use super::super::netlink::encode;
    use super::*;

    /// As the kernel nests them (drivers/infiniband/core/nldev.c): a table of entries.
    fn answer(kind: u16, table: u16, entry: u16, entries: &[&[(u16, Vec<u8>)]]) -> Message {
        let entries: Vec<_> = entries.iter().map(|of| (entry | NLA_F_NESTED, encode(of))).collect();
        let mut message = Message::new(kind);
        message.set_u32(RDMA_NLDEV_ATTR_DEV_INDEX, 3);
        message.set_text(RDMA_NLDEV_ATTR_DEV_NAME, "rxe0");
        message.set(table | NLA_F_NESTED, encode(&entries));
        message
    }

    #[test]
    fn counters_of_a_port_are_read_by_name() {
        let entry = |name: &str, value: u64| {
            let name = [name.as_bytes(), &[0]].concat();
            let value = value.to_ne_bytes().to_vec();
            vec![
                (RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name),
                (RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, value),
            ]
        };
        let answer = answer(
            RDMA_NLDEV_CMD_STAT_GET,
            RDMA_NLDEV_ATTR_STAT_HWCOUNTERS,
            RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY,
            &[&entry("sent_pkts", 1 << 40), &entry("out_of_seq_request", 2), &[]],
        );
        let counters = counters_in(&answer);
        assert_eq!(counters.len(), 2);
        assert_eq!((counters["sent_pkts"], counters["out_of_seq_request"]), (1 << 40, 2));
        assert_eq!(counters_in(&Message::new(RDMA_NLDEV_CMD_STAT_GET)).len(), 0);
    }

    #[test]
    fn queue_pairs_of_other_processes_are_not_counted() {
        let pid = |pid: u32| vec![(RDMA_NLDEV_ATTR_RES_PID, pid.to_ne_bytes().to_vec())];
        // RDMA_NLDEV_ATTR_RES_KERN_NAME is 29.
        let kernel = vec![(29, b"ib_core\0".to_vec())];
        let answer = answer(
            RDMA_NLDEV_CMD_RES_QP_GET,
            RDMA_NLDEV_ATTR_RES_QP,
            RDMA_NLDEV_ATTR_RES_QP_ENTRY,
            &[&kernel, &pid(7), &pid(8), &pid(7)],
        );
        let of = |pid| queue_pairs_in(&answer, pid);
        assert_eq!((of(7), of(8), of(9)), (2, 1, 0));
    }
}
