//! Several kernels' facts as one table.

use std::collections::BTreeMap;

use serde::Serialize;
use verbgate_abi_gen::facts::Attr;
use verbgate_abi_gen::facts::Change;
use verbgate_abi_gen::facts::Facts;
use verbgate_abi_gen::facts::Legacy;
use verbgate_abi_gen::facts::Method;
use verbgate_abi_gen::facts::Object;
use verbgate_abi_gen::facts::Struct;

use crate::Error;

/// The union of kernels: each entry as in the newest kernel that has it, with the kernels that do.
/// An attribute is mandatory if every kernel that has it says so: what one of them does without, a
/// guest can leave out (`verbgate_abi::residue` counts on that).
///
/// # Errors
///
/// There is no kernel, or one series twice; or two kernels mean different things by one name, for
/// which no union is right.
pub fn merge(mut kernels: Vec<Facts>) -> Result<Facts, Error> {
    kernels.sort_by_key(|facts| facts.kernels.first().map(|kernel| numbers(&kernel.release)));
    let mut kernels = kernels.into_iter();
    let mut all = kernels.next().ok_or(Error::NoKernel)?;
    sort(&mut all);
    for mut newer in kernels {
        for kernel in &newer.kernels {
            if all.kernels.iter().any(|known| known.series == kernel.series) {
                return Err(Error::SameKernel { series: kernel.series.clone() });
            }
        }
        let before = all.kernels.last().map(|kernel| kernel.series.clone()).unwrap_or_default();
        sort(&mut newer);
        all.wire = newer.wire;
        union(&mut all.objects, newer.objects, &before)?;
        union(&mut all.methods, newer.methods, &before)?;
        union(&mut all.legacy_write_commands, newer.legacy_write_commands, &before)?;
        let older: Vec<String> = all.kernels.iter().map(|kernel| kernel.series.clone()).collect();
        same_places(&all.legacy_structs, &newer.legacy_structs, &before)?;
        structs(&mut all.legacy_structs, newer.legacy_structs, &older);
        structs(&mut all.private_structs, newer.private_structs, &older);
        all.kernels.extend(newer.kernels);
        sort(&mut all);
    }
    Ok(all)
}

/// A version's numbers, for comparison.
pub(crate) fn numbers(version: &str) -> Vec<u32> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}

/// An entry of the tables.
trait Entry: Serialize + Sized {
    /// The keys that make the meaning: no two kernels may differ in them.
    const MEANING: &'static [&'static str];
    /// What makes two kernels' entries the same one.
    fn key(&self) -> (&str, &str, &str);
    /// The kernels that have it.
    fn present_in(&mut self) -> &mut Vec<String>;
    /// Takes over what the older kernels' entry knows.
    fn succeed(&mut self, older: Self, before: &str) -> Result<(), Error>;
}

fn union<E: Entry>(all: &mut Vec<E>, newer: Vec<E>, before: &str) -> Result<(), Error> {
    for mut entry in newer {
        if let Some(at) = all.iter().position(|old| old.key() == entry.key()) {
            let mut older = all.swap_remove(at);
            let differs = differences(&older, &entry);
            if let Some(key) = E::MEANING.iter().find(|key| differs.contains_key(**key)) {
                let (name, key) = (entry.key().0.to_owned(), (*key).to_owned());
                return Err(Error::OtherMeaning { name, key, before: before.to_owned() });
            }
            let mut present = std::mem::take(older.present_in());
            present.append(entry.present_in());
            *entry.present_in() = present;
            entry.succeed(older, before)?;
        }
        all.push(entry);
    }
    Ok(())
}

impl Entry for Object {
    const MEANING: &'static [&'static str] = &["object_id", "class"];

    fn key(&self) -> (&str, &str, &str) {
        (&self.object, &self.provider, "")
    }

    fn present_in(&mut self) -> &mut Vec<String> {
        &mut self.present_in
    }

    fn succeed(&mut self, older: Self, _: &str) -> Result<(), Error> {
        self.first_seen = older.first_seen;
        Ok(())
    }
}

impl Entry for Method {
    const MEANING: &'static [&'static str] = &["method_id", "object_id"];

    fn key(&self) -> (&str, &str, &str) {
        (&self.method, &self.object, &self.provider)
    }

    fn present_in(&mut self) -> &mut Vec<String> {
        &mut self.present_in
    }

    fn succeed(&mut self, older: Self, before: &str) -> Result<(), Error> {
        self.first_seen = older.first_seen;
        self.source.extend(older.source);
        let newer = std::mem::replace(&mut self.attrs, older.attrs);
        union(&mut self.attrs, newer, before)?;
        self.has_uhw = self.attrs.iter().any(|attr| attr.is_udata);
        Ok(())
    }
}

impl Entry for Attr {
    const MEANING: &'static [&'static str] =
        &["id", "kind", "obj", "obj_type", "access", "is_udata"];

    fn key(&self) -> (&str, &str, &str) {
        (&self.name, &self.provider, "")
    }

    fn present_in(&mut self) -> &mut Vec<String> {
        &mut self.present_in
    }

    fn succeed(&mut self, older: Self, before: &str) -> Result<(), Error> {
        let diff = differences(&plain(&older), &plain(self));
        let newer = self.first_seen.clone();
        self.first_seen = older.first_seen;
        self.changed = older.changed;
        self.mandatory &= older.mandatory;
        if !diff.is_empty() {
            self.changed.push(Change { between: [before.to_owned(), newer], diff });
        }
        Ok(())
    }
}

impl Entry for Legacy {
    const MEANING: &'static [&'static str] =
        &["write_cmd_attr", "object", "req_struct", "resp_struct"];

    fn key(&self) -> (&str, &str, &str) {
        (&self.name, "", "")
    }

    fn present_in(&mut self) -> &mut Vec<String> {
        &mut self.present_in
    }

    fn succeed(&mut self, _: Self, _: &str) -> Result<(), Error> {
        Ok(())
    }
}

/// The attribute without what merging itself writes.
fn plain(attr: &Attr) -> Attr {
    Attr { first_seen: String::new(), present_in: Vec::new(), changed: Vec::new(), ..attr.clone() }
}

/// The keys whose values differ.
pub(crate) fn differences<T: Serialize>(
    old: &T,
    new: &T,
) -> BTreeMap<String, [serde_json::Value; 2]> {
    let object = |value: &T| match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (object(old), object(new));
    let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .map(|key| {
            let of = |map: &serde_json::Map<String, serde_json::Value>| map.get(key).cloned();
            (key.clone(), [of(&old).unwrap_or_default(), of(&new).unwrap_or_default()])
        })
        .collect()
}

/// A command's structure may grow at the end; a field that moves is another request.
fn same_places(
    all: &BTreeMap<String, Struct>,
    newer: &BTreeMap<String, Struct>,
    before: &str,
) -> Result<(), Error> {
    for (name, old) in all {
        let Some(new) = newer.get(name) else { continue };
        for field in &old.fields {
            let now = new.fields.iter().find(|now| now.name == field.name);
            if now.is_some_and(|now| (now.offset, now.size) != (field.offset, field.size)) {
                let (name, key) = (format!("{}.{}", name, field.name), "place".to_owned());
                return Err(Error::OtherMeaning { name, key, before: before.to_owned() });
            }
        }
    }
    Ok(())
}

/// The newer layouts, with the sizes that older kernels had.
fn structs(all: &mut BTreeMap<String, Struct>, newer: BTreeMap<String, Struct>, older: &[String]) {
    for (name, mut new) in newer {
        if let Some(old) = all.get(&name) {
            let size = |series: &String| old.older_sizes.get(series).copied().unwrap_or(old.size);
            let sizes = older.iter().map(|series| (series.clone(), size(series)));
            new.older_sizes = sizes.filter(|(_, size)| *size != new.size).collect();
        }
        all.insert(name, new);
    }
}

/// One order, whatever the order of files: by ids; of equal ids the older first, then by owner.
fn sort(facts: &mut Facts) {
    let first = |seen: &str| numbers(seen);
    let core = |provider: &str| (provider != "core", provider.to_owned());
    facts.objects.sort_by_key(|o| (o.object_id, first(&o.first_seen), core(&o.provider)));
    facts
        .methods
        .sort_by_key(|m| (m.object_id, m.method_id, first(&m.first_seen), core(&m.provider)));
    for method in &mut facts.methods {
        method.attrs.sort_by_key(|attr| (attr.id, core(&attr.provider)));
    }
    facts.legacy_write_commands.sort_by_key(|command| (command.extended, command.number));
}
