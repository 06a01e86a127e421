//! Structures of headers: the fields' names and types from the text, sizes and offsets from the
//! compiler.

use std::collections::BTreeMap;

use verbgate_abi_gen::facts::Field;
use verbgate_abi_gen::facts::Struct;

use crate::Error;
use crate::compile::Program;
use crate::text;
use crate::text::Source;

/// Qualifiers and attributes that are no part of a type.
const NO_TYPE: &[&str] =
    &["const", "volatile", "__aligned", "__attribute__", "__packed", "__counted_by"];

/// A structure whose numbers a program will print.
#[derive(Debug)]
pub(crate) struct Pending {
    header: Option<String>,
    size: usize,
    /// Name, type, and the places of offset and size among the program's values.
    fields: Vec<(String, String, usize, Option<usize>)>,
}

/// Puts the structures of a header into the program.
pub(crate) fn ask(
    source: &Source,
    with_header: bool,
    program: &mut Program,
) -> Result<BTreeMap<String, Pending>, Error> {
    let mut all = BTreeMap::new();
    for body in source.bodies("struct") {
        let name = body.name;
        let what = format!("struct {name} of {}", source.path.display());
        let size = program.value(&what, format!("sizeof(struct {name})"));
        let mut fields = Vec::new();
        for (field, ctype) in fields_of(&body.inside, &what)? {
            let what = format!("{field} of {what}");
            let offset = program.value(&what, format!("offsetof(struct {name}, {field})"));
            // An array without a length has no size.
            let size = (!ctype.ends_with("[]"))
                .then(|| program.value(&what, format!("sizeof(((struct {name} *)0)->{field})")));
            fields.push((field, ctype, offset, size));
        }
        let header = with_header.then(|| source.path.display().to_string());
        all.insert(name, Pending { header, size, fields });
    }
    Ok(all)
}

/// Fills in what the program has printed.
pub(crate) fn fill(
    pending: BTreeMap<String, Pending>,
    values: &[u64],
) -> Result<BTreeMap<String, Struct>, Error> {
    let number = |at: usize| crate::small(values, at);
    pending
        .into_iter()
        .map(|(name, one)| {
            let mut fields = Vec::new();
            for (name, r#type, offset, size) in one.fields {
                let size = size.map_or(Ok(0), number)?;
                fields.push(Field { name, r#type, offset: number(offset)?, size });
            }
            Ok((
                name,
                Struct {
                    header: one.header,
                    size: number(one.size)?,
                    older_sizes: BTreeMap::new(),
                    fields,
                },
            ))
        })
        .collect()
}

/// Names and types of fields. The fields of a structure or union that is defined in place have its
/// name and a dot before theirs; those of one without a name are the outer one's.
fn fields_of(inside: &str, what: &str) -> Result<Vec<(String, String)>, Error> {
    let mut fields = Vec::new();
    for line in text::split(inside, ';') {
        let unknown = || Error::Field { what: what.to_owned(), line: line.clone() };
        let aggregate = ["struct", "union"].into_iter().find_map(|keyword| {
            let rest = line.strip_prefix(keyword)?.trim_start();
            text::bracketed(rest, '{').map(|inner| (keyword, inner, rest))
        });
        if let Some((keyword, inner, rest)) = aggregate {
            let after = rest.get(inner.len().saturating_add(2)..).unwrap_or_default();
            match declarator(after) {
                Some((name, array)) => {
                    let within =
                        if array.is_empty() { fields_of(inner, what)? } else { Vec::new() };
                    fields.push((name.clone(), format!("{keyword} {{...}}{array}")));
                    let dotted = |(field, ctype)| (format!("{name}.{field}"), ctype);
                    fields.extend(within.into_iter().map(dotted));
                }
                None => fields.extend(fields_of(inner, what)?),
            }
            continue;
        }
        if let Some(call) = text::call(&line) {
            let (suffix, [ctype, name]) = match (call.name.as_str(), call.args.as_slice()) {
                ("__DECLARE_FLEX_ARRAY" | "DECLARE_FLEX_ARRAY", [ctype, name]) => {
                    ("[]", [ctype, name])
                }
                ("RDMA_UAPI_PTR" | "RDMA_ATOMIC_UAPI", [ctype, name]) => ("", [ctype, name]),
                _ => return Err(unknown()),
            };
            fields.push((name.clone(), format!("{ctype}{suffix}")));
            continue;
        }
        // `enum X` and `struct X` are two words, every other type is one.
        let words: Vec<(usize, &str)> = text::names(&line).collect();
        let type_words = match words.first().map(|(_, word)| *word) {
            Some("struct" | "union" | "enum") => 2_usize,
            Some(_) => 1,
            None => return Err(unknown()),
        };
        let (_, last) = words.get(type_words.saturating_sub(1)).ok_or_else(unknown)?;
        let (first_name, _) = words.get(type_words).ok_or_else(unknown)?;
        let ctype = match type_words {
            2 => format!("{} {last}", words.first().ok_or_else(unknown)?.1),
            _ => (*last).to_owned(),
        };
        for one in text::split(line.get(*first_name..).unwrap_or_default(), ',') {
            let (name, array) = declarator(&one).ok_or_else(unknown)?;
            fields.push((name, format!("{ctype}{array}")));
        }
    }
    Ok(fields)
}

/// `name`, `name[4]`, `name[]`: the name and the dimensions.
fn declarator(text: &str) -> Option<(String, String)> {
    let text = text.trim();
    let (at, name) = text::names(text).find(|(_, name)| !NO_TYPE.contains(name))?;
    let mut after = text.get(at.saturating_add(name.len())..)?.trim_start();
    let mut array = String::new();
    while let Some(inside) = text::bracketed(after, '[') {
        array.push_str(&format!("[{inside}]"));
        after = after.get(inside.len().saturating_add(2)..)?.trim_start();
    }
    Some((name.to_owned(), array))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(inside: &str) -> Vec<(String, String)> {
        fields_of(inside, "struct test").unwrap()
    }

    #[test]
    fn fields_have_names_and_types() {
        let found = fields(
            "__u32 a; __u8 b[4]; struct inner c; enum kind d, e[2]; __aligned_u64 f[]; \
             __u16 g __attribute__((aligned(8)));",
        );
        let pairs: Vec<(&str, &str)> =
            found.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("a", "__u32"),
                ("b", "__u8[4]"),
                ("c", "struct inner"),
                ("d", "enum kind"),
                ("e", "enum kind[2]"),
                ("f", "__aligned_u64[]"),
                ("g", "__u16"),
            ]
        );
    }

    #[test]
    fn fields_of_an_unnamed_union_are_the_structures_own() {
        let found =
            fields("union { __u32 a; struct { __u16 b; __u16 c; }; }; union { __u8 x; } d;");
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "d.x"]);
        assert_eq!(found[3].1, "union {...}");
        assert_eq!(fields("__DECLARE_FLEX_ARRAY(__u8, tail);"), [("tail".into(), "__u8[]".into())]);
    }

    #[test]
    fn what_is_no_field_is_an_error_that_names_the_structure() {
        let error = fields_of("42;", "struct test of x.h").unwrap_err().to_string();
        assert!(error.contains("struct test of x.h") && error.contains("42"), "{error}");
    }
}
