//! The class of traffic: the one that the fabric does not drop.

use verbgate_host::dcb;
use verbgate_host::dcb::Dcb;

use crate::Error;
use crate::plan::open;
use crate::rails::Rail;

/// DSCP that most fabrics give to RoCE (802.1Q priority 3): preferred where several are lossless.
const USUAL: u8 = 26;

/// The class of traffic of a fabric. What nobody asks for and no port tells is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// The traffic class, which is four times the DSCP.
    pub traffic: Option<u8>,
    /// The traffic class of NCCL's control messages.
    pub fifo: Option<u8>,
    /// The service level; on RoCE the VLAN's priority.
    pub level: Option<u8>,
    /// The reason, for people.
    pub why: String,
}

/// The class that the ports of rails do not drop, as DCB netlink tells; runs in the rails' namespace.
/// A warning, where ports contradict each other.
///
/// # Errors
/// There is no netlink socket.
pub fn of_ports(rails: &[Rail]) -> Result<(Class, Option<String>), Error> {
    let mut netlink = open()?;
    let mut ports = Vec::new();
    for name in rails.iter().filter_map(|rail| rail.netdev.clone()) {
        // A port that is gone has no class.
        let dcb = dcb::read(&mut netlink, &name).ok().flatten();
        ports.extend(dcb.map(|dcb| (name, dcb)));
    }
    Ok(common(&ports))
}

fn common(ports: &[(String, Dcb)]) -> (Class, Option<String>) {
    let none = |warning: Option<String>| (Class::default(), warning);
    let Some((name, first)) = ports.first() else { return none(None) };
    if let Some((other, _)) = ports.iter().find(|(_, dcb)| dcb != first) {
        return none(Some(format!(
            "{name} and {other} have different classes of traffic (dcb pfc show, dcb app show), so \
             no class is set; make them alike, or give --traffic-class"
        )));
    }
    let lossless = first.lossless();
    let [priority] = lossless.as_slice() else {
        // Nothing is lossless, or nobody can tell which is meant.
        let several = lossless.len() > 1;
        let why = || {
            format!(
                "the priorities {lossless:?} of {name} are lossless, and one cannot tell which is \
                 for RDMA; give --traffic-class"
            )
        };
        return none(several.then(why));
    };
    if first.dscp.is_empty() {
        let why = format!("priority {priority} is the lossless one (dcb pfc show dev {name})");
        return (Class { level: Some(*priority), why, ..Class::default() }, None);
    }
    let dscps = first.lossless_dscp();
    let Some(dscp) = dscps.iter().find(|d| **d == USUAL).or(dscps.first()) else {
        return none(Some(format!(
            "priority {priority} of {name} is lossless, and no DSCP leads to that priority (dcb app \
             show)"
        )));
    };
    let why = format!(
        "DSCP {dscp} has priority {priority}, which is lossless (dcb app show dev {name}, dcb pfc \
         show)"
    );
    (Class { traffic: Some(dscp << 2), why, ..Class::default() }, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(pfc: u8, dscp: &[(u8, u8)]) -> Dcb {
        Dcb { pfc, dscp: dscp.iter().copied().collect() }
    }

    fn of(ports: &[Dcb]) -> (Class, Option<String>) {
        let named = ports.iter().enumerate().map(|(n, dcb)| (format!("rail{n}"), dcb.clone()));
        common(&named.collect::<Vec<_>>())
    }

    #[test]
    fn the_class_is_the_lossless_one() {
        let usual = port(0b1000, &[(24, 3), (26, 3), (48, 6)]);
        let (class, warning) = of(&[usual.clone(), usual.clone()]);
        assert_eq!((class.traffic, class.level, warning), (Some(104), None, None));
        // Only DSCP 59 is lossless, on priority 5.
        let (class, _) = of(&[port(0b10_0000, &[(26, 3), (59, 5)])]);
        assert_eq!(class.traffic, Some(236));
        assert!(class.why.contains("DSCP 59 has priority 5"), "{}", class.why);
        // The port trusts the VLAN's priority.
        assert_eq!(of(&[port(0b1000, &[])]).0.level, Some(3));
    }

    #[test]
    fn no_class_is_guessed() {
        let usual = port(0b1000, &[(26, 3)]);
        assert_eq!(of(&[]), (Class::default(), None));
        assert_eq!(of(&[port(0, &[(26, 3)])]), (Class::default(), None));
        for (ports, word) in [
            (vec![usual.clone(), port(0, &[])], "rail0 and rail1"),
            (vec![port(0b1_1000, &[(26, 3)])], "[3, 4]"),
            (vec![port(0b1_0000, &[(26, 3)])], "no DSCP leads"),
        ] {
            let (class, warning) = of(&ports);
            assert_eq!(class, Class::default());
            assert!(warning.as_ref().unwrap().contains(word), "{warning:?}");
        }
    }
}
