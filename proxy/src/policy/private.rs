//! Drivers' private input: the bytes behind a command that go to the driver.
//!
//! The kernel's headers say which fields there are (`verbgate_abi::legacy::uhw_specs`). Addresses,
//! lengths and handles pass with the operation. Every other field passes if the profile grants the
//! field; all other bytes must be zero. So a flag that a new kernel gives a meaning stays out of reach
//! until somebody has looked at the flag.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::OnceLock;

use serde::Deserialize;
use verbgate_abi::legacy::UhwSpec;
use verbgate_abi::legacy::operation_of;
use verbgate_abi::legacy::uhw_specs;
use verbgate_abi::request::Request;
use verbgate_abi::wire::DriverId;

use super::error::PolicyError;
use super::error::Source;
use super::error::hint;
use super::ranges::Beyond;
use super::ranges::Predicate;
use super::text::Name;

/// Which values of a field pass.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(
    untagged,
    expecting = "write \"any\", a table of only, min, max or mask, or { clear_all_but = BITS }"
)]
pub(super) enum Allowed {
    /// Every one.
    Word(Any),
    /// These.
    Number(Predicate),
    /// Every one, but the other bits are cleared before the kernel sees the field: for capabilities
    /// that a library announces, and that an older kernel would overlook.
    Clear(Clear),
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(super) enum Any {
    Any,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Clear {
    clear_all_but: u64,
}

/// What a text says of private input: by `driver:OPERATION`, and by field.
pub(super) type PrivateText = BTreeMap<Name, BTreeMap<Name, Allowed>>;

/// What a profile grants of private input.
#[derive(Clone, Debug, Default)]
pub(super) struct Private {
    granted: BTreeMap<String, BTreeMap<String, Allowed>>,
    /// The same for the bytes; only of operations that are in the table.
    forms: HashMap<(DriverId, &'static str), Vec<PrivateForm>>,
}

impl PartialEq for Private {
    fn eq(&self, other: &Self) -> bool {
        // The rest is made of it.
        self.granted == other.granted
    }
}

impl Eq for Private {}

/// A structure, as a profile grants it.
#[derive(Clone, Debug)]
struct PrivateForm {
    spec: &'static UhwSpec,
    /// Where, how long, and what passes; every value where nothing is said.
    fields: Vec<(usize, usize, Option<Allowed>, &'static str)>,
}

impl Private {
    /// Nothing.
    pub(super) fn none() -> Arc<Self> {
        static NONE: OnceLock<Arc<Private>> = OnceLock::new();
        Arc::clone(NONE.get_or_init(|| {
            let mut none = Self::default();
            none.form_all();
            Arc::new(none)
        }))
    }

    pub(super) fn with(
        mut self,
        text: &PrivateText,
        source: Source<'_>,
    ) -> Result<Self, PolicyError> {
        for (of, fields) in text {
            let specs: Vec<&UhwSpec> = named(of.get_ref()).collect();
            if specs.is_empty() {
                let known: Vec<String> = uhw_specs().iter().flat_map(names).collect();
                let hint = hint(of.get_ref(), known.iter().map(String::as_str));
                let slip = format!("no driver has a private input {:?}; {hint}", of.get_ref());
                return Err(source.slip(&of.span(), slip));
            }
            for (field, allowed) in fields {
                let all = || specs.iter().flat_map(|spec| spec.fields.iter().chain(spec.plain));
                if !all().any(|known| known.name == field.get_ref()) {
                    let hint = hint(field.get_ref(), all().map(|known| known.name));
                    let slip = format!("{} has no field {field:?}; {hint}", of.get_ref());
                    return Err(source.slip(&field.span(), slip));
                }
                let own = self.granted.entry(of.get_ref().clone()).or_default();
                own.insert(field.get_ref().clone(), allowed.clone());
            }
        }
        self.form_all();
        Ok(self)
    }

    /// Puts down what is granted for the bytes.
    fn form_all(&mut self) {
        self.forms.clear();
        for spec in uhw_specs() {
            for (driver, operation) in pairs(spec) {
                let granted = self.granted.get(&name_of(driver, operation));
                let of = |name| granted.and_then(|granted| granted.get(name)).cloned();
                let needed = spec.fields.iter().map(|field| (field, of(field.name)));
                let plain =
                    spec.plain.iter().filter_map(|field| Some((field, Some(of(field.name)?))));
                let fields = needed.chain(plain).map(|(field, allowed)| {
                    (field.offset.into(), field.size.into(), allowed, field.name)
                });
                let form = PrivateForm { spec, fields: fields.collect() };
                self.forms.entry((driver, operation)).or_default().push(form);
            }
        }
    }

    pub(super) fn write(&self, text: &mut String) {
        for (of, fields) in &self.granted {
            for (field, allowed) in fields {
                let allowed = match allowed {
                    Allowed::Word(Any::Any) => "\"any\"".to_owned(),
                    Allowed::Number(predicate) => predicate.to_string(),
                    Allowed::Clear(Clear { clear_all_but }) => {
                        format!("{{ clear_all_but = {clear_all_but:#x} }}")
                    }
                };
                // Writing to a string cannot fail.
                let _ = writeln!(text, "private.{of:?}.{field} = {allowed}");
            }
        }
    }

    /// The structure that a request's private input is.
    fn form(&self, request: &Request, len: usize) -> Option<&PrivateForm> {
        let of = (request.hdr().driver(), operation_of(request.operation()));
        let forms = self.forms.get(&of)?;
        let size = |form: &&PrivateForm| usize::from(form.spec.size);
        // A longer input has the fields of the longest structure that fits in the input.
        let fits = forms.iter().filter(|form| size(form) <= len).max_by_key(size);
        fits.or_else(|| forms.iter().min_by_key(size))
    }

    /// The first field, or byte of none, that does not pass. With `everything`, only what is named is
    /// judged.
    pub(super) fn beyond(&self, request: &Request, everything: bool) -> Option<Beyond> {
        if everything && self.granted.is_empty() {
            return None;
        }
        let bytes = request.uhw_in();
        if bytes.iter().all(|byte| *byte == 0) {
            return None;
        }
        let form = self.form(request, bytes.len());
        let mut rest = bytes.to_vec();
        for (offset, size, allowed, name) in form.into_iter().flat_map(|form| &form.fields) {
            let end = rest.len().min(offset + size);
            let Some(part) = rest.get_mut(*offset..end) else { continue };
            if let Some(Allowed::Number(predicate)) = allowed {
                // As the input has it: of a union, another field may have been here before.
                let number = bytes.get(*offset..end).and_then(number);
                if !number.is_some_and(|number| predicate.holds(number)) {
                    return Some(Beyond {
                        name: format!("private input {name}"),
                        value: number.map_or_else(|| "long".to_owned(), |n| format!("{n:#x}")),
                        rule: format!("{name} = {predicate}"),
                    });
                }
            }
            part.fill(0);
        }
        let at = rest.iter().position(|byte| *byte != 0).filter(|_| !everything)?;
        let covers = |field: &&verbgate_abi::legacy::UhwField| {
            (usize::from(field.offset)..usize::from(field.offset) + usize::from(field.size))
                .contains(&at)
        };
        let field = form.and_then(|form| form.spec.plain.iter().find(covers));
        let value = rest.get(at).copied().unwrap_or_default();
        Some(Beyond {
            name: match field {
                Some(field) => format!("private input {}", field.name),
                None => format!("private input at byte {at}"),
            },
            value: format!("{value:#x}"),
            rule: "what no profile names is zero".to_owned(),
        })
    }

    /// Clears the bits that the profile has cleared.
    pub(super) fn clear(&self, request: &mut Request) {
        let len = request.uhw_in().len();
        let Some(form) = self.form(request, len) else { return };
        let fields = form.fields.iter().filter_map(|(offset, size, allowed, _)| match allowed {
            Some(Allowed::Clear(Clear { clear_all_but })) => Some((*offset, *size, *clear_all_but)),
            _ => None,
        });
        let bytes = request.uhw_in();
        let changed = fields.filter_map(|(offset, size, mask)| {
            let part = bytes.get(offset..len.min(offset + size))?;
            let kept = number(part).map_or(0, |number| number & mask);
            let kept = kept.to_ne_bytes().get(..part.len())?.to_vec();
            (kept != part).then_some((offset, kept))
        });
        let changed: Vec<(usize, Vec<u8>)> = changed.collect();
        let pos = request.attrs().iter().position(|attr| attr.spec.is_uhw_in());
        for (offset, kept) in changed {
            // The bytes are there: they were just read.
            let _ = pos.is_some_and(|pos| request.patch(pos, offset, &kept));
        }
    }

    /// Whether a field of some request is cleared.
    pub(super) fn clears(&self) -> bool {
        let of = |allowed: &Allowed| matches!(allowed, Allowed::Clear(_));
        self.granted.values().flat_map(BTreeMap::values).any(of)
    }
}

/// The number of bytes of a field; none of a field that is longer than a number.
fn number(bytes: &[u8]) -> Option<u64> {
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_ne_bytes(word))
}

fn pairs(spec: &'static UhwSpec) -> impl Iterator<Item = (DriverId, &'static str)> {
    spec.drivers.iter().flat_map(|driver| spec.operations.iter().map(|one| (*driver, *one)))
}

fn name_of(driver: DriverId, operation: &str) -> String {
    format!("{driver}:{operation}")
}

fn names(spec: &'static UhwSpec) -> impl Iterator<Item = String> {
    pairs(spec).map(|(driver, operation)| name_of(driver, operation))
}

fn named(name: &str) -> impl Iterator<Item = &'static UhwSpec> {
    uhw_specs().iter().filter(move |spec| names(spec).any(|one| one == name))
}
