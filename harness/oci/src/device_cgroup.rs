//! Rules of the device cgroup, as `linux.resources.devices` lists them (OCI runtime specification, config-linux.md).
//!
//! Runtimes differ. runc keeps a default and exceptions from it, and takes back an exception only by the numbers that made
//! the exception (opencontainers/cgroups, devices/devices_emulator.go). With crun the last rule counts that has all of a
//! request's accesses (libcrun/ebpf.c). What either opens is open here.

use std::collections::BTreeMap;

use serde_json::Value;

/// The field of `config.json`, as errors name it.
pub(crate) const RULES: &str = "linux.resources.devices";

/// A character device's major and minor number; without a minor, all of the major.
pub(crate) type RuleNumbers = (u32, Option<u32>);

/// The rules of a container about character devices.
#[derive(Debug)]
pub(crate) struct Rules(Vec<Rule>);

/// Wildcards are `None`.
type Wild = (Option<u32>, Option<u32>);

#[derive(Debug)]
struct Rule {
    allows: bool,
    /// Whether the rule is of type `a`, which for runc is about all devices, whatever the numbers and accesses.
    is_all: bool,
    numbers: Wild,
    access: Access,
    /// Whether the rule names accesses; crun takes none for none, and runc for all.
    is_said: bool,
}

/// Reading, 1, and writing, 2.
type Access = u8;
const READ: Access = 1;
const WRITE: Access = 2;
const BOTH: Access = READ | WRITE;

fn means((major, minor): Wild, number: (u32, u32)) -> bool {
    major.is_none_or(|own| own == number.0) && minor.is_none_or(|own| own == number.1)
}

impl Rules {
    /// Reads the rules of a configuration.
    pub(crate) fn of(config: &Value) -> Self {
        let all = config.pointer("/linux/resources/devices").and_then(Value::as_array);
        Self(all.into_iter().flatten().filter_map(Rule::of).collect())
    }

    /// Whether the container may read or write a device, or any of a major number. Without any rule runc opens nothing, and
    /// crun everything.
    pub(crate) fn open(&self, (major, minor): RuleNumbers) -> bool {
        // A major stands for the minors that rules are about, and one that no rule is about.
        let minors = self.0.iter().filter_map(|rule| rule.numbers.1).chain([u32::MAX]);
        let minors = minors.filter(|_| minor.is_none()).chain(minor);
        let mut numbers = minors.map(|minor| (major, minor));
        self.0.is_empty()
            || numbers.any(|number| self.runc_opens(number) || self.crun_opens(number))
    }

    /// Whether a rule opens a device, which without any rule is the runtime's choice.
    pub(crate) fn allow(&self, numbers: RuleNumbers) -> bool {
        !self.0.is_empty() && self.open(numbers)
    }

    /// Whether a rule that names the device's major number opens the device.
    pub(crate) fn names(&self, (major, minor): (u32, u32)) -> bool {
        self.open((major, Some(minor)))
            && self
                .opening()
                .any(|rule| rule.numbers.0.is_some() && means(rule.numbers, (major, minor)))
    }

    /// The numbers that rules name and open.
    pub(crate) fn named(&self) -> impl Iterator<Item = RuleNumbers> {
        let numbers = self.opening().filter_map(|rule| Some((rule.numbers.0?, rule.numbers.1)));
        numbers.filter(|numbers| self.open(*numbers))
    }

    fn opening(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter().filter(|rule| rule.allows && rule.access != 0 && !rule.is_all)
    }

    fn runc_opens(&self, number: (u32, u32)) -> bool {
        let (mut default, mut exceptions) = (false, BTreeMap::<Wild, Access>::new());
        for rule in &self.0 {
            if rule.is_all {
                (default, exceptions) = (rule.allows, BTreeMap::new());
            } else if rule.allows == default {
                exceptions.entry(rule.numbers).and_modify(|access| *access &= !rule.access);
            } else {
                *exceptions.entry(rule.numbers).or_default() |= rule.access;
            }
        }
        let about = exceptions.into_iter().filter(|(numbers, _)| means(*numbers, number));
        let excepted = about.fold(0, |all, (_, access)| all | access);
        if default { excepted != BOTH } else { excepted != 0 }
    }

    fn crun_opens(&self, number: (u32, u32)) -> bool {
        let opens = |request: Access| {
            let decides = |rule: &&Rule| {
                rule.is_said && means(rule.numbers, number) && rule.access & request == request
            };
            self.0.iter().rev().find(decides).is_some_and(|rule| rule.allows)
        };
        [READ, WRITE, BOTH].into_iter().any(opens)
    }
}

impl Rule {
    fn of(rule: &Value) -> Option<Self> {
        let text = |key| rule.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let kind = text("type").unwrap_or("a");
        let (access, is_said) = (text("access").unwrap_or("rwm"), text("access").is_some());
        let of = |letter, access_of: Access| if access.contains(letter) { access_of } else { 0 };
        ["a", "c", "u"].contains(&kind).then(|| Self {
            allows: rule.get("allow").and_then(Value::as_bool).unwrap_or(false),
            is_all: kind == "a",
            numbers: (number(rule, "major"), number(rule, "minor")),
            access: of('r', READ) | of('w', WRITE),
            is_said,
        })
    }
}

/// A device's number; wildcards are negative, or missing.
pub(crate) fn number(value: &Value, key: &str) -> Option<u32> {
    value.get(key).and_then(Value::as_i64).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: RuleNumbers = (231, None);

    fn rules(all: &[Value]) -> Rules {
        let deny = json!({"allow": false, "access": "rwm"});
        let all: Vec<_> = [deny].iter().chain(all).cloned().collect();
        Rules::of(&json!({"linux": {"resources": {"devices": all}}}))
    }

    fn rule(allow: bool, minor: Option<i64>, access: &str) -> Value {
        json!({"allow": allow, "type": "c", "major": 231, "minor": minor, "access": access})
    }

    /// runc 1.1.5 was asked where rules contradict each other or are of type `a`; crun's column is read from libcrun/ebpf.c.
    #[test]
    fn what_a_runtime_opens_is_open() {
        let all = |allow: bool| json!({"allow": allow, "access": "rwm"});
        for (all, open) in [
            (vec![], false),
            (vec![rule(true, Some(192), "m")], false),
            (vec![rule(true, Some(192), "r")], true),
            (vec![all(true)], true),
            (vec![json!({"allow": true})], true),
            (
                vec![json!({"allow": true, "type": "a", "major": 5, "minor": 3, "access": "m"})],
                true,
            ),
            (vec![json!({"allow": true, "type": "b", "access": "rwm"})], false),
            (vec![json!({"allow": true, "type": "c", "major": 10, "minor": 229})], false),
            (vec![json!({"allow": true, "type": "c", "minor": 192, "access": "rw"})], true),
            // runc takes back what has the same numbers alone.
            (vec![rule(true, Some(192), "rw"), rule(false, None, "rwm")], true),
            (vec![rule(true, Some(192), "rw"), rule(false, Some(192), "rwm")], false),
            (vec![rule(true, Some(192), "rw"), rule(false, Some(193), "rwm")], true),
            (vec![rule(true, Some(192), "rw"), all(false)], false),
            (vec![all(true), rule(false, None, "rwm")], false),
            (vec![rule(true, None, "r"), rule(false, None, "r")], false),
            (vec![rule(true, None, "rw"), rule(false, None, "r"), rule(false, None, "w")], true),
        ] {
            assert_eq!(rules(&all).open(ALL), open, "{all:?}");
        }
        let most = rules(&[all(true), rule(false, None, "rwm")]);
        assert!(!most.runc_opens((231, 192)) && !most.crun_opens((231, 192)));
        assert!(Rules::of(&json!({})).open(ALL) && !Rules::of(&json!({})).allow(ALL));
    }

    #[test]
    fn a_rule_for_all_devices_names_none() {
        let wild = rules(&[json!({"allow": true, "access": "rwm"})]);
        assert!(wild.open(ALL) && !wild.names((231, 192)) && wild.named().next().is_none());
        let one = rules(&[rule(true, Some(192), "rwm")]);
        assert!(one.names((231, 192)) && !one.names((231, 193)));
        assert_eq!(one.named().collect::<Vec<_>>(), [(231, Some(192))]);
        let taken = rules(&[rule(true, Some(192), "rwm"), rule(false, Some(192), "rwm")]);
        assert!(!taken.names((231, 192)) && taken.named().next().is_none());
    }
}
