//! Numbers, ranges of addresses and of ports, as policies write them; and a value beyond them.

use std::fmt;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use serde::Deserialize;

/// Addresses with a common prefix; an IPv4 address is the GID that RoCE makes of the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Net {
    first: u128,
    bits: u32,
    v4: bool,
}

impl Net {
    pub(super) fn read(text: &str) -> Option<Self> {
        let (addr, bits) = match text.split_once('/') {
            Some((addr, bits)) => (addr, Some(bits.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let (addr, whole, v4) = match addr.parse().ok()? {
            IpAddr::V4(addr) => (addr.to_ipv6_mapped(), 32, true),
            IpAddr::V6(addr) => (addr, 128, false),
        };
        let bits = bits.unwrap_or(whole);
        let bits = if bits <= whole { bits + 128 - whole } else { return None };
        let first = u128::from(addr);
        (first & !mask(bits) == 0).then_some(Self { first, bits, v4 })
    }

    pub(super) fn holds(&self, gid: Ipv6Addr) -> bool {
        u128::from(gid) & mask(self.bits) == self.first
    }
}

fn mask(bits: u32) -> u128 {
    u128::MAX.checked_shl(128 - bits).unwrap_or(0)
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addr = Ipv6Addr::from(self.first);
        match addr.to_ipv4_mapped().filter(|_| self.v4) {
            Some(v4) => write!(f, "{v4}/{}", self.bits - 96),
            None => write!(f, "{addr}/{}", self.bits),
        }
    }
}

/// Ports of rdma_cm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ports(RangeInclusive<u16>);

impl Ports {
    pub(super) fn read(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first > 0 && first <= last).then_some(Self(first..=last))
    }

    pub(super) fn holds(&self, port: u16) -> bool {
        self.0.contains(&port)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

/// Which numbers pass; all that is given must hold.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct Predicate {
    /// One of these.
    pub only: Option<Vec<u64>>,
    /// At least this.
    pub min: Option<u64>,
    /// At most this.
    pub max: Option<u64>,
    /// No bits but these.
    pub mask: Option<u64>,
}

impl Predicate {
    pub(super) fn holds(&self, number: u64) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&number))
            && self.min.is_none_or(|min| number >= min)
            && self.max.is_none_or(|max| number <= max)
            && self.mask.is_none_or(|mask| number & !mask == 0)
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.only.as_ref().map(|only| format!("only = {only:?}")));
        words.extend(self.min.map(|min| format!("min = {min}")));
        words.extend(self.max.map(|max| format!("max = {max}")));
        words.extend(self.mask.map(|mask| format!("mask = {mask:#x}")));
        write!(f, "{{ {} }}", words.join(", "))
    }
}

/// A value that does not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beyond {
    /// The field or attribute.
    pub name: String,
    /// The value, as the request has the value.
    pub value: String,
    /// The rule, as a policy writes the rule.
    pub rule: String,
}
