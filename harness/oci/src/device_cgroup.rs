//! Rules of the device cgroup, as `linux.resources.devices` lists them (OCI runtime specification, config-linux.md): of
//! rules that contradict each other the last counts, for reading and writing each by itself.

use serde_json::Value;

/// The field of `config.json`, as errors name it.
pub(crate) const RULES: &str = "linux.resources.devices";

/// A character device's major and minor number; without a minor, all of the major.
pub(crate) type Numbers = (u32, Option<u32>);

/// The rules of a container about character devices.
#[derive(Debug)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    allows: bool,
    /// Wildcards are `None`.
    major: Option<u32>,
    minor: Option<u32>,
    read: bool,
    write: bool,
}

impl Rules {
    /// Those of a configuration.
    pub(crate) fn of(config: &Value) -> Self {
        let all = config.pointer("/linux/resources/devices").and_then(Value::as_array);
        Self(all.into_iter().flatten().filter_map(Rule::of).collect())
    }

    /// Whether the container may read or write a device, or any of a major number. Without any rule runtimes differ: runc
    /// opens nothing, and crun everything.
    pub(crate) fn open(&self, numbers: Numbers) -> bool {
        let (mut read, mut write) = (self.0.is_empty(), self.0.is_empty());
        // That one of several may not be opened says nothing of the others.
        let about = |rule: &&Rule| rule.means(numbers) && (rule.allows || !rule.is_part(numbers));
        for rule in self.0.iter().filter(about) {
            read = if rule.read { rule.allows } else { read };
            write = if rule.write { rule.allows } else { write };
        }
        read || write
    }

    /// Whether a rule opens a device, which without any rule is the runtime's choice.
    pub(crate) fn allow(&self, numbers: Numbers) -> bool {
        !self.0.is_empty() && self.open(numbers)
    }

    /// Whether a rule opens a device, or one of a major number, that names the major number.
    pub(crate) fn name(&self, numbers: Numbers) -> bool {
        self.open(numbers) && self.opening().any(|rule| rule.major.is_some() && rule.means(numbers))
    }

    /// The numbers that rules name and open.
    pub(crate) fn named(&self) -> impl Iterator<Item = Numbers> {
        let numbers = self.opening().filter_map(|rule| Some((rule.major?, rule.minor)));
        numbers.filter(|numbers| self.open(*numbers))
    }

    fn opening(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter().filter(|rule| rule.allows && (rule.read || rule.write))
    }
}

impl Rule {
    fn of(rule: &Value) -> Option<Self> {
        let text = |key| rule.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let kind = text("type").unwrap_or("a");
        let access = text("access").unwrap_or("rwm");
        ["a", "c", "u"].contains(&kind).then(|| Self {
            allows: rule.get("allow").and_then(Value::as_bool).unwrap_or(false),
            major: number(rule, "major"),
            minor: number(rule, "minor"),
            read: access.contains('r'),
            write: access.contains('w'),
        })
    }

    fn means(&self, (major, minor): Numbers) -> bool {
        self.major.is_none_or(|own| own == major)
            && self.minor.is_none_or(|own| minor.is_none_or(|minor| own == minor))
    }

    /// Whether the rule is about one of several devices.
    fn is_part(&self, (_, minor): Numbers) -> bool {
        minor.is_none() && self.minor.is_some()
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

    const ALL: Numbers = (231, None);

    fn rules(all: &[Value]) -> Rules {
        let deny = json!({"allow": false, "access": "rwm"});
        let all: Vec<_> = [deny].iter().chain(all).cloned().collect();
        Rules::of(&json!({"linux": {"resources": {"devices": all}}}))
    }

    fn rule(allow: bool, minor: Option<i64>, access: &str) -> Value {
        json!({"allow": allow, "type": "c", "major": 231, "minor": minor, "access": access})
    }

    #[test]
    fn the_last_rule_counts_for_each_access() {
        for (all, open) in [
            (vec![], false),
            (vec![rule(true, Some(192), "m")], false),
            (vec![rule(true, Some(192), "r")], true),
            (vec![json!({"allow": true, "access": "rwm"})], true),
            (vec![json!({"allow": true})], true),
            (vec![json!({"allow": true, "type": "b", "access": "rwm"})], false),
            (vec![json!({"allow": true, "type": "c", "major": 10, "minor": 229})], false),
            (vec![rule(true, Some(192), "rw"), rule(false, None, "rwm")], false),
            (vec![rule(true, Some(192), "rw"), rule(false, Some(193), "rwm")], true),
            (vec![rule(true, Some(-1), "rw"), rule(false, None, "w")], true),
            (vec![rule(true, None, "r"), rule(false, None, "r")], false),
        ] {
            assert_eq!(rules(&all).open(ALL), open, "{all:?}");
        }
        let some = rules(&[rule(true, None, "rw"), rule(false, Some(193), "")]);
        assert!(some.open((231, Some(192))) && !some.open((231, Some(193))));
        assert!(Rules::of(&json!({})).open(ALL) && !Rules::of(&json!({})).name(ALL));
    }

    #[test]
    fn a_rule_for_all_devices_names_none() {
        let wild = rules(&[json!({"allow": true, "access": "rwm"})]);
        assert!(wild.open(ALL) && !wild.name(ALL));
        let one = rules(&[rule(true, Some(192), "rwm")]);
        assert!(one.name(ALL) && one.name((231, Some(192))) && !one.name((231, Some(193))));
        assert_eq!(one.named().collect::<Vec<_>>(), [(231, Some(192))]);
        let taken = rules(&[rule(true, Some(192), "rwm"), rule(false, None, "rwm")]);
        assert!(!taken.name(ALL) && taken.named().next().is_none());
    }
}
