//! Classes of traffic on an Ethernet port: which priorities are lossless (PFC), and which priority a
//! packet has by its DSCP. dcb(8), net/dcb/dcbnl.c; `struct ieee_pfc` and `struct dcb_app` of
//! linux/dcbnl.h.

use std::collections::BTreeMap;
use std::io;

use serde::Deserialize;
use serde::Serialize;

use super::netlink::Message;
use super::netlink::Netlink;
use super::netlink::decode;
use super::uapi::*;

/// `EOPNOTSUPP`: the driver has no DCB.
const UNSUPPORTED: i32 = 95;
/// `pfc_en`, in bytes from the beginning of `struct ieee_pfc`.
const PFC_ENABLED: usize = 1;

/// The classes of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dcb {
    /// A bit for each priority that is paused instead of dropped.
    pub pfc: u8,
    /// Priority of each DSCP that has one. Empty: the port trusts the VLAN's priority (PCP).
    pub dscp: BTreeMap<u8, u8>,
}

impl Dcb {
    /// The lossless priorities.
    pub fn lossless(&self) -> Vec<u8> {
        (0..8).filter(|priority| self.pfc >> priority & 1 == 1).collect()
    }

    /// The DSCPs whose packets are lossless.
    pub fn lossless_dscp(&self) -> Vec<u8> {
        let of = self.dscp.iter().filter(|(_, priority)| self.pfc >> *priority & 1 == 1);
        of.map(|(dscp, _)| *dscp).collect()
    }
}

/// The classes of a port of the thread's namespace; none where the driver has no DCB.
///
/// # Errors
/// The kernel's, such as `ENODEV`.
pub fn read(netlink: &mut Netlink, netdev: &str) -> io::Result<Option<Dcb>> {
    let mut message = Message::new(RTM_GETDCB);
    message.set_byte(DCB_COMMAND, DCB_CMD_IEEE_GET);
    message.set_text(DCB_ATTR_IFNAME, netdev);
    match netlink.ask(&message) {
        Err(e) if e.raw_os_error() == Some(UNSUPPORTED) => Ok(None),
        other => Ok(other?.as_ref().map(classes)),
    }
}

fn classes(answer: &Message) -> Dcb {
    let ieee = answer.nested(DCB_ATTR_IEEE);
    let get = |kind| ieee.iter().find(|(its, _)| *its == kind).map(|(_, value)| value.as_slice());
    let pfc = get(DCB_ATTR_IEEE_PFC).and_then(|value| value.get(PFC_ENABLED).copied());
    let apps = get(DCB_ATTR_IEEE_APP_TABLE).map(decode).unwrap_or_default();
    let apps = apps.iter().filter(|(kind, _)| *kind == DCB_ATTR_IEEE_APP);
    let dscp = apps.filter_map(|(_, value)| match value.as_slice() {
        [IEEE_8021QAZ_APP_SEL_DSCP, priority, low, high, ..] => {
            let dscp = u8::try_from(u16::from_ne_bytes([*low, *high])).ok()?;
            Some((dscp, *priority & 7))
        }
        _ => None,
    });
    Dcb { pfc: pfc.unwrap_or(0), dscp: dscp.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::netlink::encode;
    use super::*;

    /// As the kernel nests them (dcbnl_ieee_fill).
    #[test]
    fn pfc_and_dscp_are_read() {
        // pfc_cap, pfc_en, mbc, padding, delay, padding, and two counters for each priority.
        let pfc = [&[8, 0b0000_1000, 0, 0][..], &[0; 132]].concat();
        let app = |selector: u8, priority: u8, protocol: u16| {
            (DCB_ATTR_IEEE_APP, [&[selector, priority][..], &protocol.to_ne_bytes()].concat())
        };
        // The one with selector 1 is an Ethertype.
        let table = encode(&[app(1, 5, 0x8915), app(5, 3, 26), app(5, 6, 48), app(5, 3, 24)]);
        let ieee = encode(&[
            (1, vec![0; 59]),
            (DCB_ATTR_IEEE_PFC, pfc),
            (DCB_ATTR_IEEE_APP_TABLE | NLA_F_NESTED, table),
        ]);
        let mut answer = Message::new(RTM_GETDCB);
        answer.set_text(DCB_ATTR_IFNAME, "eth2");
        answer.set(DCB_ATTR_IEEE | NLA_F_NESTED, ieee);
        let dcb = classes(&answer);
        assert_eq!(dcb.lossless(), [3]);
        assert_eq!(dcb.lossless_dscp(), [24, 26]);
        assert_eq!(dcb.dscp.get(&48), Some(&6));
        assert_eq!(classes(&Message::new(RTM_GETDCB)), Dcb::default());
    }

    /// The kernel takes the question: loopback has no DCB, and no other device is asked for.
    #[test]
    fn a_device_without_dcb_has_none() {
        let mut netlink = Netlink::route().unwrap();
        assert_eq!(read(&mut netlink, "lo").unwrap(), None);
        assert!(read(&mut netlink, "no-such-device").is_err());
    }
}
