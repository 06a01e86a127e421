//! The preflight: faults that show before any queue pair exists. Each rank checks its own rails,
//! and the way from its rails to the other ranks.

mod lossless;
mod reach;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

pub(crate) use reach::again;
use serde::Deserialize;
use serde::Serialize;

use crate::cause::Cause;
use crate::class::Class;
use crate::class::Partition;
use crate::rail::Rail;
use crate::rendezvous::Entry;
use crate::rendezvous::Table;

/// `CAP_IPC_LOCK`, linux/capability.h: RLIMIT_MEMLOCK does not bind who has it.
const CAP_IPC_LOCK: u32 = 14;

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Verdict {
    Ok,
    Fail,
    Skip,
}

/// One check of one rail of one rank.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Check {
    pub rank: u32,
    /// None: of the rank as a whole.
    pub rail: Option<usize>,
    pub check: String,
    pub verdict: Verdict,
    /// What was found, and, when it failed, the remedy.
    pub(crate) detail: String,
    /// What is wrong, when it failed.
    #[serde(default)]
    pub(crate) cause: Option<Cause>,
    /// With whom, if not with all.
    #[serde(default)]
    pub(crate) peer: Option<u32>,
}

/// What a check says: a detail, or a fault and its remedy, or why it cannot be made.
#[derive(Debug)]
struct Said {
    verdict: Verdict,
    detail: String,
    cause: Option<Cause>,
    peer: Option<u32>,
    /// It is this rank's own, whichever peer it was found with.
    own: bool,
}

fn said(verdict: Verdict, detail: impl Into<String>, cause: Option<Cause>) -> Said {
    Said { verdict, detail: detail.into(), cause, peer: None, own: false }
}

fn ok(detail: impl Into<String>) -> Said {
    said(Verdict::Ok, detail, None)
}

fn fail(cause: Cause, detail: impl Into<String>) -> Said {
    said(Verdict::Fail, detail, Some(cause))
}

fn skip(detail: impl Into<String>) -> Said {
    said(Verdict::Skip, detail, None)
}

impl Said {
    /// Notes with whom it was found.
    fn of_peer(&mut self, rank: u32) {
        if !self.own {
            self.detail = format!("rank {rank}: {}", self.detail);
            self.peer = Some(rank);
        }
    }

    fn check(self, rank: u32, rail: Option<usize>, check: &str) -> Check {
        let Self { verdict, detail, cause, peer, .. } = self;
        Check { rank, rail, check: check.to_owned(), verdict, detail, cause, peer }
    }
}

/// All checks that one rank can make of its own.
///
/// `registered`: what became of opening and registering the memory of each rail.
pub(crate) fn run(
    me: &Entry,
    table: &Table,
    registered: &[Result<(), (Cause, String)>],
    class: Class,
    memory: usize,
) -> Vec<Check> {
    let mut checks = of_table(me, table);
    let mut push = |rail: Option<usize>, check: &str, said: Said| {
        checks.push(said.check(me.rank, rail, check));
    };
    push(None, "locked memory", memlock(me.rails.len(), memory));
    let rails = me.rails.iter().enumerate().filter(|(_, rail)| rail.fault.is_none());
    for (index, rail) in rails {
        let mut push = |check, said| push(Some(index), check, said);
        if let Some(key) = class.pkey {
            push("partition", partition(rail, key));
        }
        push(
            "memory registers",
            match registered.get(index) {
                Some(Err((cause, why))) => fail(*cause, why.clone()),
                _ => ok(format!("{memory} bytes")),
            },
        );
        push("lossless class", lossless::of(me, table, index, class));
        push("ARP answers", reach::answers(me.rank, rail));
        let each: [(&str, reach::OfPeer); 2] =
            [("neighbours", reach::neighbour), ("routes", reach::route)];
        for (name, check) in each {
            let all = reach::of_peers(me, table, index, check);
            all.into_iter().for_each(|said| push(name, said));
        }
    }
    checks
}

/// The checks of what ranks say of themselves.
pub(crate) fn of_table(me: &Entry, table: &Table) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut push = |rail: Option<usize>, check: &str, said: Said| {
        checks.push(said.check(me.rank, rail, check));
    };
    push(None, "rails symmetric", symmetric(me, table));
    for (index, rail) in me.rails.iter().enumerate() {
        let mut push = |check, said| push(Some(index), check, said);
        push(
            "device opens",
            match &rail.fault {
                None => ok(format!("{}:{}", rail.device, rail.port)),
                // Open, and without the GID that was named.
                Some(why) if !rail.link_layer.is_empty() => fail(Cause::WrongGid, why.clone()),
                Some(why) => fail(Cause::NoDevice, why.clone()),
            },
        );
        if rail.fault.is_some() {
            continue;
        }
        push("port active", port(rail));
        push("GID", gid(rail));
        push(
            "MTU along the rail",
            alike(me, table, index, (Cause::MtuMismatch, "MTU"), |rail| {
                format!("{}", rail.mtu_bytes())
            }),
        );
        push(
            "GID type along the rail",
            alike(me, table, index, (Cause::GidTypeMismatch, "GID type"), |rail| {
                rail.gid_type.clone()
            }),
        );
        push(
            "address family along the rail",
            alike(me, table, index, (Cause::AddressFamilyMismatch, "address family"), |rail| {
                family(rail).to_owned()
            }),
        );
    }
    checks
}

fn partition(rail: &Rail, key: Partition) -> Said {
    match rail.partition(key) {
        Some(index) => ok(format!("{key} at index {index}")),
        None => fail(
            Cause::WrongPkey,
            format!("the port's table does not have the partition key {key}: see pkeys/"),
        ),
    }
}

fn port(rail: &Rail) -> Said {
    if rail.active {
        return ok(rail.rate.clone());
    }
    let netdev = rail.netdev.as_deref().unwrap_or("the rail's network device");
    let state = rail.place().attribute("state").unwrap_or_default();
    if rail.is_infiniband() {
        let why = "look at the cable, and that a subnet manager runs (opensm)";
        return fail(Cause::RailDown, format!("the port is {state}: {why}"));
    }
    // The end that was set down takes the other's carrier away.
    let why = match netdev_is_up(netdev) {
        Some(true) => {
            format!("{netdev} is up and has no carrier: look at the cable and at the other end")
        }
        Some(false) => format!("{netdev} is set down: bring it up"),
        None => format!("bring {netdev} up, and look at the cable"),
    };
    fail(Cause::RailDown, format!("the port is {state}: {why}"))
}

/// Whether it was set up (`IFF_UP`, linux/if.h); nothing if it is not visible here.
fn netdev_is_up(netdev: &str) -> Option<bool> {
    let flags = fs::read_to_string(Path::new("/sys/class/net").join(netdev).join("flags")).ok()?;
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
    Some(flags & 1 == 1)
}

fn gid(rail: &Rail) -> Said {
    let Rail { gid, gid_index, gid_type, netdev, .. } = rail;
    if !rail.is_roce() {
        return ok(format!("{gid} at index {gid_index}"));
    }
    if !rail.is_v2() {
        return fail(
            Cause::GidTypeMismatch,
            format!(
                "index {gid_index} is {gid_type}, which is not routed: choose a RoCE v2 index by \
             --device {}@INDEX",
                rail.device
            ),
        );
    }
    match netdev {
        Some(netdev) => ok(format!("{gid} at index {gid_index}, {gid_type}, {netdev}")),
        None => fail(
            Cause::WrongGid,
            format!(
                "{gid} at index {gid_index} has no network device here: move the network device \
                 into this namespace, or choose another index"
            ),
        ),
    }
}

/// RLIMIT_MEMLOCK against what will be registered.
fn memlock(rails: usize, memory: usize) -> Said {
    let needed = u64::try_from(rails * memory).unwrap_or(u64::MAX);
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_ascii_whitespace().next()).unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    if capabilities.is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1) {
        return ok("CAP_IPC_LOCK");
    }
    match soft.parse::<u64>() {
        Err(_) if soft == "unlimited" => ok("unlimited"),
        Err(_) => skip("/proc/self/limits cannot be read"),
        Ok(limit) if limit >= needed => ok(format!("{limit} bytes")),
        Ok(limit) => fail(
            Cause::MemlockTooSmall,
            format!(
                "RLIMIT_MEMLOCK is {limit} bytes, and {needed} are needed: raise `ulimit -l`, or \
             LimitMEMLOCK of the service"
            ),
        ),
    }
}

/// Whether most ranks have another value, and which: of those who differ, the few are at fault.
fn odd<'a>(all: &'a [(u32, String)], mine: &str) -> Option<&'a (u32, String)> {
    // Counted once: with as many ranks as there are, each comparison of all with all shows.
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    all.iter().for_each(|(_, value)| *counts.entry(value).or_default() += 1);
    let count = |value: &str| counts.get(value).copied().unwrap_or(0);
    let others = all.iter().filter(|(_, value)| value != mine);
    // Of the most frequent, the first rank's.
    let other = others.max_by_key(|(rank, value)| (count(value), std::cmp::Reverse(*rank)))?;
    (count(mine) * 2 <= all.len()).then_some(other)
}

/// As many rails, and of the same kinds, as most ranks have.
fn symmetric(me: &Entry, table: &Table) -> Said {
    let kind = |rail: &Rail| format!("{} of {}", rail.link_layer, rail.rate);
    let counts: Vec<(u32, String)> =
        table.entries.iter().map(|entry| (entry.rank, entry.rails.len().to_string())).collect();
    let mine = me.rails.len().to_string();
    if let Some((rank, theirs)) = odd(&counts, &mine) {
        return fail(
            Cause::AsymmetricRails,
            format!(
                "rank {} has {mine} rails, and rank {rank} has {theirs}: name the same on each by \
                 --device",
                me.rank
            ),
        );
    }
    for (index, rail) in me.rails.iter().enumerate().filter(|(_, rail)| rail.fault.is_none()) {
        let kinds = table.entries.iter().filter_map(|entry| {
            let rail = entry.rails.get(index).filter(|rail| rail.fault.is_none())?;
            Some((entry.rank, kind(rail)))
        });
        let kinds: Vec<(u32, String)> = kinds.collect();
        if let Some((rank, theirs)) = odd(&kinds, &kind(rail)) {
            return fail(
                Cause::AsymmetricRails,
                format!(
                    "rail {index} is {} on rank {}, and {theirs} on rank {rank}: name rails in the \
                     same order",
                    kind(rail),
                    me.rank
                ),
            );
        }
    }
    ok(mine)
}

/// Whether a property of a rail is what most ranks have.
fn alike(
    me: &Entry,
    table: &Table,
    index: usize,
    (cause, what): (Cause, &str),
    of: impl Fn(&Rail) -> String,
) -> Said {
    let rails = table.entries.iter().filter_map(|entry| {
        let rail = entry.rails.get(index).filter(|rail| rail.fault.is_none())?;
        Some((entry.rank, of(rail)))
    });
    let all: Vec<(u32, String)> = rails.collect();
    let Some(mine) = me.rails.get(index).map(&of) else { return skip("no such rail") };
    let same = all.iter().filter(|(_, value)| *value == mine).count();
    let Some((rank, other)) = odd(&all, &mine) else { return ok(mine) };
    let count = all.len();
    fail(
        cause,
        format!(
            "{what} is {mine} here and on {same} of {count} ranks, and {other} on rank {rank}: set \
             the same on each"
        ),
    )
}

fn family(rail: &Rail) -> &'static str {
    match rail.address() {
        Some(IpAddr::V4(_)) => "IPv4",
        _ => "IPv6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rail(mtu: u32, gid_type: &str) -> Rail {
        let (gid, link_layer) = ("::ffff:127.0.0.1".to_owned(), "Ethernet".to_owned());
        let (netdev, active) = (Some("lo".to_owned()), true);
        let gid_type = gid_type.to_owned();
        Rail { mtu, gid_type, gid, link_layer, netdev, active, ..Rail::default() }
    }

    fn table(rails: Vec<Vec<Rail>>) -> Table {
        let entries =
            (0..).zip(rails).map(|(rank, rails)| Entry { rank, host: "here".to_owned(), rails });
        Table { entries: entries.collect() }
    }

    /// The checks that fail for rank 1.
    fn failures(table: &Table) -> Vec<(String, String)> {
        let me = &table.entries[1];
        let registered: Vec<_> = me.rails.iter().map(|_| Ok(())).collect();
        let checks = run(me, table, &registered, Class::default(), 4096).into_iter();
        let failed = checks.filter(|c| c.verdict == Verdict::Fail && c.check != "locked memory");
        failed.map(|check| (check.check, check.detail)).collect()
    }

    #[test]
    fn differences_between_ranks_are_named_by_what_differs() {
        let good = || rail(3, "RoCE v2");
        assert_eq!(failures(&table(vec![vec![good()], vec![good()]])), []);
        let cases = [
            (vec![rail(4, "RoCE v2")], "MTU along the rail", "MTU is 2048 here"),
            (vec![rail(3, "IB/RoCE v1")], "GID", "is IB/RoCE v1, which is not routed"),
            (vec![good(), good()], "rails symmetric", "rank 1 has 2 rails, and rank 0 has 1"),
            (vec![Rail { active: false, ..good() }], "port active", "the port is "),
            (vec![Rail { netdev: None, ..good() }], "GID", "has no network device here"),
            (vec![Rail { rate: "1".into(), ..good() }], "rails symmetric", "rail 0 is"),
            (vec![Rail { fault: Some("gone".into()), ..good() }], "device opens", "gone"),
        ];
        for (rails, check, words) in cases {
            let failed = failures(&table(vec![vec![good()], rails]));
            let found = failed.iter().find(|(name, _)| name == check);
            let (_, detail) = found.unwrap_or_else(|| panic!("{check}: {failed:?}"));
            assert!(detail.contains(words), "{detail}");
        }
    }
}
