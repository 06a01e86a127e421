//! What one kernel has that another has not, a line for each difference.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;
use verbgate_abi_gen::annotations::Annotations;
use verbgate_abi_gen::facts::Attr;
use verbgate_abi_gen::facts::Facts;
use verbgate_abi_gen::facts::Legacy;
use verbgate_abi_gen::facts::Method;
use verbgate_abi_gen::facts::Object;
use verbgate_abi_gen::facts::Struct;

use crate::merge::differences;

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What happened.
    pub change: Change,
    /// To what: `method UVERBS_METHOD_QUERY_PORT`, and the details.
    pub what: String,
}

/// What happened to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only the newer kernel has it.
    Added,
    /// Only the older kernel has it.
    Removed,
    /// Both have it, and not alike.
    Changed,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.change {
            Change::Added => '+',
            Change::Removed => '-',
            Change::Changed => '~',
        };
        write!(f, "{sign} {}", self.what)
    }
}

/// The differences, in the order of the tables: objects, methods with their attributes, commands,
/// structures. Where in a file something is declared is none.
#[must_use]
pub fn diff(old: &Facts, new: &Facts, notes: &Annotations) -> Vec<Difference> {
    let mut found = Found::default();
    found.fields("wire", &old.wire, &new.wire, &[]);
    let [old_objects, new_objects] = [old, new].map(objects);
    found.lists(&old_objects, &new_objects, |object| {
        (format!("object {}", object.object), describe_object(object))
    });
    methods(&mut found, old, new, notes);
    found.lists(&old.legacy_write_commands, &new.legacy_write_commands, |command| {
        (format!("command {}", command.name), describe_command(command, notes))
    });
    structs(&mut found, &old.legacy_structs, &new.legacy_structs);
    structs(&mut found, &old.private_structs, &new.private_structs);
    found.0
}

/// [`diff`] of two tables of the same kernels: in which of them an entry is, and what has changed
/// between them, has to be the same, too.
#[must_use]
pub fn compare(known: &Facts, found: &Facts, notes: &Annotations) -> Vec<Difference> {
    let mut differences = Found(diff(known, found, notes));
    let places = &["source", "attrs", "file"];
    for (one, other) in known.objects.iter().zip(&found.objects) {
        differences.again(&format!("object {}", one.object), one, other, places);
    }
    for (one, other) in known.methods.iter().zip(&found.methods) {
        differences.again(&format!("method {}", one.method), one, other, places);
        for (attr, other) in one.attrs.iter().zip(&other.attrs) {
            let name = format!("attribute {}.{}", one.method, attr.name);
            differences.again(&name, attr, other, places);
        }
    }
    let commands = known.legacy_write_commands.iter().zip(&found.legacy_write_commands);
    for (one, other) in commands {
        differences.again(&format!("command {}", one.name), one, other, places);
    }
    differences.0
}

/// What a merged table says about its making, and what moves with every line of code.
const NO_DIFFERENCE: &[&str] =
    &["first_seen", "present_in", "source", "file", "changed", "attrs", "header"];

#[derive(Debug, Default)]
struct Found(Vec<Difference>);

impl Found {
    fn add(&mut self, change: Change, what: String) {
        self.0.push(Difference { change, what });
    }

    /// Compares entries by name, and those of one name key by key.
    fn lists<E: Serialize>(
        &mut self,
        old: &[E],
        new: &[E],
        describe: impl Fn(&E) -> (String, String),
    ) {
        let named = |list: &[E]| list.iter().map(|e| describe(e).0).collect::<Vec<_>>();
        let (old_names, new_names) = (named(old), named(new));
        for (entry, name) in old.iter().zip(&old_names) {
            if !new_names.contains(name) {
                self.add(Change::Removed, with(name, &describe(entry).1));
            }
        }
        for (entry, name) in new.iter().zip(&new_names) {
            match old.iter().zip(&old_names).find(|(_, old)| *old == name) {
                None => self.add(Change::Added, with(name, &describe(entry).1)),
                Some((before, _)) => self.fields(name, before, entry, NO_DIFFERENCE),
            }
        }
    }

    /// As `fields`, for entries of two lists that may have differed before: each line once.
    fn again<E: Serialize>(&mut self, name: &str, old: &E, new: &E, except: &[&str]) {
        let mut more = Self::default();
        more.fields(name, old, new, except);
        more.0.retain(|line| !self.0.contains(line));
        self.0.extend(more.0);
    }

    fn fields<E: Serialize>(&mut self, name: &str, old: &E, new: &E, except: &[&str]) {
        for (key, [before, after]) in differences(old, new) {
            if !except.contains(&key.as_str()) {
                self.add(
                    Change::Changed,
                    format!("{name}: {key}: {} -> {}", word(&before), word(&after)),
                );
            }
        }
    }
}

fn with(name: &str, details: &str) -> String {
    if details.is_empty() { name.to_owned() } else { format!("{name} ({details})") }
}

/// A value as people write it.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

fn methods(found: &mut Found, old: &Facts, new: &Facts, notes: &Annotations) {
    let name = |method: &Method| match method.provider.as_str() {
        "core" => format!("method {}.{}", method.object, method.method),
        driver => format!("method {driver}:{}.{}", method.object, method.method),
    };
    let describe = |method: &Method| (name(method), describe_method(method, notes));
    found.lists(&old.methods, &new.methods, describe);
    let attr = |method: &Method, attr: &Attr| {
        let place = format!("attribute {}.{}", method.method, attr.name);
        (place, describe_attr(method, attr, notes))
    };
    for method in &new.methods {
        let before = old.methods.iter().find(|older| name(older) == name(method));
        // Of a new method's attributes each has to be looked at, too.
        let older = before.map(|older| older.attrs.as_slice()).unwrap_or_default();
        found.lists(older, &method.attrs, |one| attr(method, one));
    }
}

/// The objects without the macros of their types, which name functions of the kernel's own.
fn objects(facts: &Facts) -> Vec<Object> {
    let all = facts.objects.iter();
    all.map(|object| Object { r#type: String::new(), ..object.clone() }).collect()
}

fn describe_object(object: &Object) -> String {
    format!("{:?}, id {:#x}, {}", object.class, object.object_id, object.provider)
}

fn describe_method(method: &Method, notes: &Annotations) -> String {
    let verdict = if notes.left_out.contains_key(&method.method) {
        "left out: refused"
    } else if notes.attributes.contains_key(&method.method) {
        "annotated"
    } else {
        "refused until annotated"
    };
    format!("id {:#x}, {}; {verdict}", method.method_id, method.provider)
}

fn describe_attr(method: &Method, attr: &Attr, notes: &Annotations) -> String {
    let role = notes.attributes.get(&method.method).and_then(|roles| roles.get(&attr.name));
    let verdict = match role {
        _ if notes.left_out.contains_key(&format!("{}.{}", method.method, attr.name)) => {
            "left out: refused".to_owned()
        }
        Some(role) => format!("annotated {role:?}"),
        None => "needs an annotation".to_owned(),
    };
    let length = match (attr.min_len, attr.len) {
        (Some(min), Some(len)) if min == len => format!(", {len} bytes"),
        (Some(min), Some(len)) => format!(", {min} to {len} bytes"),
        _ => String::new(),
    };
    let object = attr.obj.as_ref().map_or(String::new(), |name| format!(" of {name}"));
    let needed = if attr.mandatory { "mandatory" } else { "optional" };
    format!(
        "id {:#x}, {:?}{object}{length}, {needed}, {}; {verdict}",
        attr.id, attr.kind, attr.provider
    )
}

fn describe_command(command: &Legacy, notes: &Annotations) -> String {
    let verdict = if notes.left_out.contains_key(&command.name) {
        "left out: refused"
    } else if notes.commands.contains_key(&command.name) {
        "annotated"
    } else {
        "refused until annotated"
    };
    format!("number {:#x}, {} bytes; {verdict}", command.write_cmd_attr, command.req_struct_size)
}

fn structs(found: &mut Found, old: &BTreeMap<String, Struct>, new: &BTreeMap<String, Struct>) {
    let size = |name: &str, spec: &Struct| format!("struct {name} ({} bytes)", spec.size);
    for (name, spec) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
        found.add(Change::Removed, size(name, spec));
    }
    for (name, spec) in new {
        let Some(before) = old.get(name) else {
            found.add(Change::Added, size(name, spec));
            continue;
        };
        if before.size != spec.size {
            let what = format!("struct {name}: size: {} -> {}", before.size, spec.size);
            found.add(Change::Changed, what);
        }
        found.lists(&before.fields, &spec.fields, |field| {
            let details =
                format!("{}, offset {}, {} bytes", field.r#type, field.offset, field.size);
            (format!("field {name}.{}", field.name), details)
        });
    }
}
