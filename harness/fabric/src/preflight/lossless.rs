//! Whether the class of traffic is lossless at both ends: what switches and NICs pause instead of
//! dropping (PFC) is one priority or two, and packets of another class are dropped under load, while
//! each small test passes.

use verbgate_host::dcb::Dcb;

use super::Said;
use super::fail;
use super::ok;
use super::skip;
use crate::cause::Cause;
use crate::class::Class;
use crate::rail::Rail;
use crate::rendezvous::Entry;
use crate::rendezvous::Table;

/// What a port does with packets of a class when there is no room for them.
#[derive(Debug)]
enum Fate {
    Paused(u8),
    Dropped(u8),
    /// Why the port does not tell.
    Unknown(String),
}

fn fate(dcb: &Dcb, class: Class) -> Fate {
    let dscp = class.dscp();
    let priority = match dcb.dscp.get(&dscp) {
        Some(priority) => *priority,
        // Without a map the port trusts the VLAN's priority, which is the service level's.
        None if dcb.dscp.is_empty() => class.level & 7,
        None => return Fate::Unknown(format!("DSCP {dscp} has no priority of its own here")),
    };
    match dcb.pfc >> priority & 1 {
        1 => Fate::Paused(priority),
        _ => Fate::Dropped(priority),
    }
}

/// What to run with instead, if a port has a lossless class at all.
fn instead(dcb: &Dcb) -> Option<String> {
    if let Some(dscp) = dcb.lossless_dscp().first() {
        let traffic = u16::from(*dscp) << 2;
        return Some(format!(
            "DSCP {dscp} is lossless: give --traffic-class {traffic}, and NCCL_IB_TC={traffic} to \
             the job"
        ));
    }
    let priority = *dcb.lossless().first()?;
    Some(format!("priority {priority} is lossless: give --sl {priority}, or map a DSCP to it"))
}

/// Whether this rank's end drops packets of the class, and whether a peer's end does otherwise.
pub(super) fn of(me: &Entry, table: &Table, index: usize, class: Class) -> Said {
    let Some(mine) = me.rails.get(index) else { return skip("no such rail") };
    if !mine.is_roce() {
        return skip("not of Ethernet");
    }
    let netdev = mine.netdev.as_deref().unwrap_or("the rail's network device");
    let Some(dcb) = &mine.dcb else {
        return skip(format!("unknown: {netdev} does not tell of classes (no DCB)"));
    };
    let dscp = class.dscp();
    let of_peer =
        |entry: &Entry| Some((entry.rank, fate(usable(entry, index)?.dcb.as_ref()?, class)));
    let peers = table.entries.iter().filter(|entry| entry.rank != me.rank).filter_map(of_peer);
    match fate(dcb, class) {
        Fate::Unknown(why) => skip(format!("unknown: {why}")),
        Fate::Paused(priority) => ok(format!("DSCP {dscp} has priority {priority}, lossless")),
        Fate::Dropped(priority) => {
            let what =
                format!("DSCP {dscp} has priority {priority}, which {netdev} drops under load");
            let paused = peers.into_iter().find(|(_, fate)| matches!(fate, Fate::Paused(_)));
            match (paused, instead(dcb)) {
                (Some((rank, _)), _) => fail(
                    Cause::LossyClass,
                    format!(
                        "{what}, and rank {rank} does not: set PFC, trust and the DSCP map alike \
                         on all (dcb pfc, dcb app)"
                    ),
                ),
                (None, Some(instead)) => fail(Cause::LossyClass, format!("{what}: {instead}")),
                // A fabric without PFC may be meant so: some NICs repeat single packets.
                (None, None) => ok(format!("{what}, as all others; no port has a lossless class")),
            }
        }
    }
}

fn usable(entry: &Entry, index: usize) -> Option<&Rail> {
    entry.rails.get(index).filter(|rail| rail.fault.is_none())
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// PFC for these priorities, and DSCP 26 with priority 3.
    fn dcb(pfc: u8) -> Option<Dcb> {
        Some(Dcb { pfc, dscp: (0..64).map(|dscp| (dscp, dscp >> 3)).collect() })
    }

    fn says(ends: [Option<Dcb>; 2], traffic: u8) -> (Verdict, String, Option<Cause>) {
        let entry = |(rank, dcb): (u32, &Option<Dcb>)| {
            let (link_layer, netdev) = ("Ethernet".to_owned(), Some("eth0".to_owned()));
            let rail = Rail { link_layer, netdev, dcb: dcb.clone(), ..Rail::default() };
            Entry { rank, host: String::new(), rails: vec![rail] }
        };
        let table = Table { entries: (0..).zip(&ends).map(entry).collect() };
        let class = Class { traffic, ..Class::default() };
        let said = of(&table.entries[0], &table, 0, class);
        (said.verdict, said.detail, said.cause)
    }

    #[test]
    fn a_class_that_ports_drop_is_named_with_one_that_they_do_not() {
        let (verdict, detail, _) = says([dcb(8), dcb(8)], 26 << 2);
        assert_eq!((verdict, &*detail), (Verdict::Ok, "DSCP 26 has priority 3, lossless"));
        let (verdict, detail, cause) = says([dcb(8), dcb(8)], 0);
        assert_eq!((verdict, cause), (Verdict::Fail, Some(Cause::LossyClass)));
        assert!(detail.starts_with("DSCP 0 has priority 0, which eth0 drops"), "{detail}");
        assert!(detail.contains("DSCP 24 is lossless: give --traffic-class 96"), "{detail}");
        // The service level counts where the port has no map.
        let pcp = Some(Dcb { pfc: 8, ..Dcb::default() });
        let (verdict, detail, _) = says([pcp.clone(), pcp], 104);
        assert_eq!(verdict, Verdict::Fail);
        assert!(detail.contains("priority 3 is lossless: give --sl 3"), "{detail}");
    }

    #[test]
    fn an_end_that_differs_is_named_and_what_is_not_known_is_said() {
        let (verdict, detail, cause) = says([dcb(0), dcb(8)], 104);
        assert_eq!((verdict, cause), (Verdict::Fail, Some(Cause::LossyClass)));
        assert!(detail.contains("and rank 1 does not"), "{detail}");
        // The other end names itself.
        assert_eq!(says([dcb(8), dcb(0)], 104).0, Verdict::Ok);
        let (verdict, detail, _) = says([dcb(0), dcb(0)], 104);
        assert_eq!(verdict, Verdict::Ok);
        assert!(detail.contains("no port has a lossless class"), "{detail}");
        let (verdict, detail, _) = says([None, dcb(8)], 104);
        assert_eq!(verdict, Verdict::Skip);
        assert!(detail.starts_with("unknown: eth0 does not tell"), "{detail}");
        let other = Some(Dcb { pfc: 8, dscp: [(24, 3)].into() });
        let (verdict, detail, _) = says([other, dcb(8)], 104);
        assert_eq!(
            (verdict, &*detail),
            (Verdict::Skip, "unknown: DSCP 26 has no priority of its own here")
        );
    }
}
