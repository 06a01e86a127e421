//! The manual page and the JSON schema of policy files, from one list of keys.

use anyhow::Error;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use verbgate_proxy::policy::DIRECTORY;
use verbgate_proxy::policy::keys::FILE;
use verbgate_proxy::policy::keys::Holds;
use verbgate_proxy::policy::keys::KEYS;
use verbgate_proxy::policy::keys::Key;

/// An example, which a test runs.
pub(crate) const EXAMPLE: &str = include_str!("../dist/policy/example.toml");

/// Paths below the directory of pages, and texts.
pub(crate) fn all(date: &str) -> Result<[(&'static str, String); 2], Error> {
    let schema = serde_json::to_string_pretty(&schema())? + "\n";
    Ok([("man/verbgate-policy.5", page(date)), ("schema/verbgate-policy.json", schema)])
}

/// The kinds of tables, in the order of their first keys.
fn tables() -> Vec<&'static str> {
    let mut tables: Vec<&str> = Vec::new();
    for key in KEYS {
        if !tables.contains(&key.table) {
            tables.push(key.table);
        }
    }
    tables
}

fn keys(table: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.table == table)
}

/// Text as troff shows it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace("\n.", "\n\\&.").replace("\n'", "\n\\&'")
}

fn page(date: &str) -> String {
    let mut text = format!(
        ".TH VERBGATE\\-POLICY 5 \"{date}\" \"verbgate {}\" \"Verbgate\"\n\
         .SH NAME\nverbgate\\-policy \\- requests, devices and limits of the tenants of RDMA\n\
         .SH SYNOPSIS\n.I {}/*.toml\n.SH DESCRIPTION\n{}\n",
        env!("CARGO_PKG_VERSION"),
        escaped(DIRECTORY),
        escaped(ABOUT),
    );
    for table in tables() {
        let heading = if table == FILE { "FILE".to_owned() } else { table.to_uppercase() };
        text.push_str(&format!(".SH \"{heading}: KEYS\"\n"));
        for key in keys(table) {
            let needed = if key.needed { " (needed)" } else { "" };
            let holds = escaped(&words(key.holds));
            let about = escaped(key.text);
            text.push_str(&format!(".TP\n.B {}\n{holds}{needed}.\n{about}\n", escaped(key.name)));
        }
    }
    text.push_str(&format!(".SH EXAMPLE\n.nf\n{}\n.fi\n", escaped(EXAMPLE.trim_end())));
    text.push_str(
        ".SH SEE ALSO\n.BR verbgate\\-policy (1),\n.BR verbgate\\-run (1),\n\
         .BR verbgate\\-oci (1)\n",
    );
    text
}

const ABOUT: &str = "The files say which programs and containers may use which RDMA devices, which \
requests they may make, and with which values. verbgate run, verbgate oci and verbgate agent read all files \
of the directory whose names end in .toml when a sandbox starts. The directory and the files must belong to \
root, and nobody else may write them.
.PP
Without the directory, there is no tenant: the option \\-\\-profile decides about requests, and every \
device may be asked for. Where the directory is, even if it is empty, a sandbox that matches no tenant gets \
no RDMA.
.PP
A slip in any file refuses all files. Then no sandbox starts, and sandboxes that run keep what they were \
granted. A sandbox keeps the policy that it started with until verbgate policy reload narrows it: a request \
must then pass the policy of the start and the present one, and use a device and a port of both. What lives is \
only narrowed: on a device that was taken away, queue pairs go on moving data, and objects can be destroyed; \
opens, maps and all other requests are refused. A reload reaches \
the containers and the programs of verbgate run whose \\-\\-root is the same.";

fn words(holds: Holds) -> String {
    match holds {
        Holds::Text => "Text".to_owned(),
        Holds::Texts => "List of texts".to_owned(),
        Holds::Number => "Number".to_owned(),
        Holds::Numbers => "List of numbers".to_owned(),
        Holds::Flag => "true or false".to_owned(),
        Holds::Table(of) => format!("Table: {of}"),
        Holds::Tables(of) => format!("List of tables: {of}"),
        Holds::Named(of) => format!("Tables by name: {of}"),
        Holds::NamedTexts => "Texts by name".to_owned(),
        Holds::Fields(of) => format!("Tables by two names: {of}"),
        Holds::FieldsOrAny(_) => {
            "By two names: \"any\", a predicate, or { clear_all_but = BITS }, \
                                  which clears the other bits before the kernel sees the field"
                .to_owned()
        }
    }
}

/// The JSON schema of a file, for editors.
fn schema() -> Value {
    let mut root = of_table(FILE);
    let definitions = tables().into_iter().filter(|table| *table != FILE);
    let definitions: Map<String, Value> =
        definitions.map(|table| (table.to_owned(), of_table(table))).collect();
    if let Some(root) = root.as_object_mut() {
        root.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
        root.insert("title".to_owned(), "A file of Verbgate's policy".into());
        root.insert("$defs".to_owned(), definitions.into());
    }
    root
}

fn of_table(table: &str) -> Value {
    let properties: Map<String, Value> = keys(table)
        .map(|key| {
            let mut value = of(key.holds);
            if let Some(object) = value.as_object_mut() {
                object.insert("description".to_owned(), key.text.into());
            }
            (key.name.to_owned(), value)
        })
        .collect();
    let needed: Vec<&str> = keys(table).filter(|key| key.needed).map(|key| key.name).collect();
    json!({
        "type": "object", "properties": properties, "required": needed,
        "additionalProperties": false,
    })
}

fn of(holds: Holds) -> Value {
    let reference = |of: &str| json!({"$ref": format!("#/$defs/{of}")});
    let number = || json!({"type": "integer", "minimum": 0});
    let named = |value: Value| json!({"type": "object", "additionalProperties": value});
    match holds {
        Holds::Text => json!({"type": "string"}),
        Holds::Texts => json!({"type": "array", "items": {"type": "string"}}),
        Holds::Number => number(),
        Holds::Numbers => json!({"type": "array", "items": number()}),
        Holds::Flag => json!({"type": "boolean"}),
        Holds::Table(table) => json!({"allOf": [reference(table)]}),
        Holds::Tables(table) => json!({"type": "array", "items": reference(table)}),
        Holds::Named(table) => named(reference(table)),
        Holds::NamedTexts => named(json!({"type": "string"})),
        Holds::Fields(table) => named(named(reference(table))),
        Holds::FieldsOrAny(_) => {
            let clear = json!({
                "type": "object", "properties": {"clear_all_but": number()},
                "required": ["clear_all_but"], "additionalProperties": false,
            });
            named(named(json!({"anyOf": [{"const": "any"}, reference("predicate"), clear]})))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a schema refuses of a value: enough of JSON Schema for the schema here.
    fn faults(root: &Value, schema: &Value, value: &Value) -> Vec<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            return faults(root, &root["$defs"][reference.rsplit('/').next().unwrap()], value);
        }
        if let Some(all) = schema["allOf"].as_array() {
            return all.iter().flat_map(|one| faults(root, one, value)).collect();
        }
        if let Some(any) = schema["anyOf"].as_array() {
            let fits = any.iter().any(|one| faults(root, one, value).is_empty());
            return if fits { vec![] } else { vec![value.to_string()] };
        }
        if let Some(constant) = schema.get("const") {
            return if value == constant { vec![] } else { vec![value.to_string()] };
        }
        match (schema["type"].as_str().unwrap(), value) {
            ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => vec![],
            ("integer", Value::Number(number)) if number.is_u64() => vec![],
            ("array", Value::Array(items)) => {
                items.iter().flat_map(|item| faults(root, &schema["items"], item)).collect()
            }
            ("object", Value::Object(object)) => {
                let needed = schema["required"].as_array().into_iter().flatten();
                let missing = needed.filter(|key| !object.contains_key(key.as_str().unwrap()));
                let mut found: Vec<String> = missing.map(ToString::to_string).collect();
                for (key, value) in object {
                    let rest = &schema["additionalProperties"];
                    match schema["properties"].get(key) {
                        Some(own) => found.extend(faults(root, own, value)),
                        None if rest.is_object() => found.extend(faults(root, rest, value)),
                        None => found.push(key.clone()),
                    }
                }
                found
            }
            (kind, other) => vec![format!("{other} is no {kind}")],
        }
    }

    fn json_of(text: &str) -> Value {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_schema_takes_what_the_reader_takes() {
        let root = schema();
        assert_eq!(faults(&root, &root, &json_of(EXAMPLE)), [""; 0]);
        for (right, wrong) in [
            ("version = 1", "version = \"1\""),
            ("extends", "extend"),
            ("profile = \"mlx5-rc\"", ""),
            ("min = 2", "minimum = 2"),
        ] {
            let text = EXAMPLE.replacen(right, wrong, 1);
            assert_ne!(text, EXAMPLE, "{right}");
            assert!(!faults(&root, &root, &json_of(&text)).is_empty(), "{wrong}");
        }
        // And the built-in profiles, which are profiles by themselves.
        for (name, text) in verbgate_proxy::policy::PROFILES {
            assert_eq!(faults(&root, &root["$defs"]["profile"], &json_of(text)), [""; 0], "{name}");
        }
    }

    #[test]
    fn the_page_explains_every_key() {
        let page = page("2026-01-31");
        for key in KEYS {
            assert!(page.contains(&format!(".B {}\n", escaped(key.name))), "{}", key.name);
        }
        assert!(page.contains(&escaped("extends = \"standard\"")));
    }
}
