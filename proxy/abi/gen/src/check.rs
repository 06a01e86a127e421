//! Whether the annotations cover the facts.

use std::collections::BTreeSet;
use std::fmt;

use crate::annotations::Annotations;
use crate::annotations::Private;
use crate::annotations::Role;
use crate::facts::Attr;
use crate::facts::Facts;
use crate::facts::Kind;

/// Something that is not annotated, or annotated and not there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what the texts name")]
pub enum Finding {
    /// A method without annotations.
    Method { method: String, object: String, since: String },
    /// An attribute without a role.
    Attr { method: String, attr: String, kind: Kind, since: String },
    /// A role that an attribute of this kind cannot have.
    Unfit { method: String, attr: String, kind: Kind, role: Role },
    /// An attribute that cannot be left out alone.
    InReach { method: String, attr: String },
    /// A command without annotations.
    Command { command: String, since: String },
    /// A field of a private structure that nobody has looked at.
    Field { structure: String, field: String, r#type: String },
    /// An annotation of something that no kernel has.
    Stale { what: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method { method, object, since } => write!(
                f,
                "the method {method} of {object} (since {since}) has no annotation, and is refused until it has: add [attributes.{method}] to annotations.toml, or name the method under [left_out]"
            ),
            Self::Attr { method, attr, kind, since } => write!(
                f,
                "the attribute {attr} of {method} ({kind:?}, since {since}) has no annotation: add its role to [attributes.{method}] in annotations.toml, or name {method}.{attr} under [left_out]"
            ),
            Self::Unfit { method, attr, kind, role } => {
                write!(f, "the attribute {attr} of {method} is {kind:?} and cannot be {role:?}")
            }
            Self::InReach { method, attr } => write!(
                f,
                "{method}.{attr} cannot be left out alone: the method has optional outputs in whose place a guest could smuggle the attribute, and proxy/abi/src/residue.rs explains only what is in the tables: annotate the attribute, or leave the whole method out"
            ),
            Self::Command { command, since } => write!(
                f,
                "the command {command} (since {since}) has no annotation, and is refused until it has: add [commands.{command}] to annotations.toml, or name the command under [left_out]"
            ),
            Self::Field { structure, field, r#type } => write!(
                f,
                "the field {field} ({type}) of struct {structure} has no annotation: add the field to `fields` with its role, or to `plain`, in annotations.toml"
            ),
            Self::Stale { what } => {
                write!(
                    f,
                    "annotations.toml names {what}, which is not in the facts: remove the name, or write the new one"
                )
            }
        }
    }
}

/// All that does not fit.
#[must_use]
pub fn check(facts: &Facts, notes: &Annotations) -> Vec<Finding> {
    let mut findings = Vec::new();
    methods(facts, notes, &mut findings);
    commands(facts, notes, &mut findings);
    for private in &notes.private {
        fields(facts, private, &mut findings);
    }
    stale(facts, notes, &mut findings);
    findings
}

fn methods(facts: &Facts, notes: &Annotations, findings: &mut Vec<Finding>) {
    for method in facts.methods.iter().filter(|m| !notes.left_out.contains_key(&m.method)) {
        let name = &method.method;
        let Some(roles) = notes.attributes.get(name) else {
            findings.push(Finding::Method {
                method: name.clone(),
                object: method.object.clone(),
                since: method.first_seen.clone(),
            });
            continue;
        };
        // verbgate_abi::residue: one optional output has nothing to be gained from.
        let optional = |attr: &&Attr| attr.kind == Kind::PtrOut && !attr.mandatory;
        let in_reach = method.attrs.iter().filter(optional).count() > 1;
        for attr in &method.attrs {
            if notes.leaves_out(name, &attr.name) {
                if in_reach {
                    let (method, attr) = (name.clone(), attr.name.clone());
                    findings.push(Finding::InReach { method, attr });
                }
                continue;
            }
            let (method, kind) = (name.clone(), attr.kind);
            match roles.get(&attr.name) {
                None => findings.push(Finding::Attr {
                    method,
                    attr: attr.name.clone(),
                    kind,
                    since: attr.first_seen.clone(),
                }),
                Some(role) if !fits(attr, *role) => findings.push(Finding::Unfit {
                    method,
                    attr: attr.name.clone(),
                    kind,
                    role: *role,
                }),
                Some(_) => {}
            }
        }
    }
}

/// Whether an input is the structure that holds a descriptor or an address.
fn is_buffer(attr: &Attr) -> bool {
    attr.ctype.as_ref().is_some_and(|ctype| ctype.contains("struct ib_uverbs_buffer_desc"))
}

/// What the kernel's macro says already, an annotation must not contradict.
fn fits(attr: &Attr, role: Role) -> bool {
    if attr.is_udata {
        return role == Role::Private;
    }
    match attr.kind {
        Kind::Idr | Kind::IdrsArray => role == Role::Handle,
        Kind::Fd => role == Role::ObjectFd,
        Kind::RawFd => role == Role::Fd,
        Kind::Umem => role == Role::Buffer,
        Kind::FlagsIn => role == Role::Flags,
        Kind::PtrOut => matches!(
            role,
            Role::Output | Role::OutputHandles | Role::LegacyCommand | Role::DeviceCommand
        ),
        Kind::EnumIn => role == Role::Plain,
        Kind::ConstIn => {
            matches!(role, Role::Plain | Role::Port | Role::GidIndex | Role::Length | Role::Fd)
        }
        // Not every such input is declared with UVERBS_ATTR_UMEM.
        Kind::PtrIn if is_buffer(attr) => role == Role::Buffer,
        // A copy of an input that the kernel makes is written to by nobody.
        Kind::PtrIn if role == Role::OutputDeclaredAsInput => attr.alloc_and_copy == Some(false),
        Kind::PtrIn => !matches!(
            role,
            Role::Handle
                | Role::ObjectFd
                | Role::Buffer
                | Role::Private
                | Role::Output
                | Role::OutputHandles
        ),
    }
}

/// What to put into `annotations.toml` for the methods and attributes that are not there: the roles
/// that the kind tells, and `?`, which is no role, where someone has to read the handler.
#[must_use]
pub fn skeleton(facts: &Facts, notes: &Annotations) -> String {
    let mut text = String::new();
    for method in facts.methods.iter().filter(|m| !notes.left_out.contains_key(&m.method)) {
        let name = &method.method;
        let known = |attr: &&Attr| {
            notes.role(name, &attr.name).is_none() && !notes.leaves_out(name, &attr.name)
        };
        let missing: Vec<&Attr> = method.attrs.iter().filter(known).collect();
        if missing.is_empty() && notes.attributes.contains_key(name) {
            continue;
        }
        text.push_str(&format!("\n[attributes.{name}]\n"));
        for attr in missing {
            text.push_str(&format!("{} = \"{}\"\n", attr.name, told_by_kind(attr)));
        }
    }
    text
}

fn told_by_kind(attr: &Attr) -> &'static str {
    match attr.kind {
        Kind::PtrIn if is_buffer(attr) => "buffer",
        _ if attr.is_udata => "private",
        Kind::Idr | Kind::IdrsArray => "handle",
        Kind::Fd => "object_fd",
        Kind::RawFd => "fd",
        Kind::Umem => "buffer",
        Kind::FlagsIn => "flags",
        Kind::EnumIn => "plain",
        Kind::PtrIn | Kind::ConstIn | Kind::PtrOut => "?",
    }
}

fn commands(facts: &Facts, notes: &Annotations, findings: &mut Vec<Finding>) {
    for command in &facts.legacy_write_commands {
        let name = &command.name;
        if !notes.commands.contains_key(name) && !notes.left_out.contains_key(name) {
            let since = command.present_in.first().cloned().unwrap_or_default();
            findings.push(Finding::Command { command: name.clone(), since });
        }
    }
}

fn fields(facts: &Facts, private: &Private, findings: &mut Vec<Finding>) {
    let structure = &private.structure;
    if private.size.is_some() {
        return;
    }
    let Some(spec) = facts.private_structs.get(structure) else {
        findings.push(Finding::Stale { what: format!("struct {structure}") });
        return;
    };
    let named = |name: &str| {
        // A dotted path covers the outer field, too.
        let covers = |known: &str| known == name || known.starts_with(&format!("{name}."));
        private.fields.iter().any(|field| covers(&field.name))
            || private.plain.iter().any(|p| covers(p))
    };
    // What is inside of a field of the header's own is covered by the field.
    for field in spec.fields.iter().filter(|field| !field.name.contains('.') && !named(&field.name))
    {
        findings.push(Finding::Field {
            structure: structure.clone(),
            field: field.name.clone(),
            r#type: field.r#type.clone(),
        });
    }
    let names = private.fields.iter().map(|field| &field.name).chain(&private.plain);
    for name in names.filter(|name| facts.private_field(structure, name).is_err()) {
        findings.push(Finding::Stale { what: format!("the field {name} of struct {structure}") });
    }
}

fn stale(facts: &Facts, notes: &Annotations, findings: &mut Vec<Finding>) {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for method in &facts.methods {
        known.insert(method.method.clone());
        known.extend(method.attrs.iter().map(|attr| format!("{}.{}", method.method, attr.name)));
    }
    known.extend(facts.legacy_write_commands.iter().map(|command| command.name.clone()));
    let attrs = notes.attributes.iter().flat_map(|(method, roles)| {
        roles.keys().map(move |attr| format!("{method}.{attr}")).chain([method.clone()])
    });
    let all = attrs.chain(notes.commands.keys().cloned()).chain(notes.left_out.keys().cloned());
    for what in all.filter(|what| !known.contains(what)) {
        findings.push(Finding::Stale { what });
    }
}
