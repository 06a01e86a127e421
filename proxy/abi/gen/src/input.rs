//! The form of `uverbs_methods.json`, as far as the tables need it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use anyhow::bail;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Tables {
    pub(crate) objects: Vec<Object>,
    pub(crate) methods: Vec<Method>,
    pub(crate) legacy_write_commands: Vec<Legacy>,
    pub(crate) legacy_structs: BTreeMap<String, Struct>,
    pub(crate) driver_uhw: Vec<Uhw>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Object {
    pub(crate) object: String,
    pub(crate) object_id: u16,
    pub(crate) present_in: Vec<String>,
    pub(crate) class: String,
    pub(crate) provider: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Method {
    pub(crate) object: String,
    pub(crate) method: String,
    pub(crate) method_id: u16,
    pub(crate) provider: String,
    pub(crate) present_in: Vec<String>,
    pub(crate) source: BTreeMap<String, Vec<String>>,
    pub(crate) attrs: Vec<Attr>,
    pub(crate) has_uhw: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Attr {
    pub(crate) name: String,
    pub(crate) id: u16,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) ctype: String,
    pub(crate) mandatory: bool,
    pub(crate) min_len: Option<u16>,
    pub(crate) len: Option<u16>,
    pub(crate) zero_trailing: Option<u8>,
    pub(crate) alloc_and_copy: Option<u8>,
    pub(crate) provider: String,
    pub(crate) first_seen: String,
    pub(crate) obj: Option<String>,
    pub(crate) access: Option<String>,
    pub(crate) min_cnt: Option<u16>,
    pub(crate) max_cnt: Option<u16>,
    pub(crate) elems: Option<Vec<Elem>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Elem {
    pub(crate) elem_id: usize,
    pub(crate) min_len: u16,
    pub(crate) len: u16,
    pub(crate) zero_trailing: u8,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Legacy {
    pub(crate) name: String,
    pub(crate) number: u8,
    pub(crate) extended: bool,
    pub(crate) write_cmd_attr: u64,
    pub(crate) object: String,
    pub(crate) req_struct: String,
    pub(crate) req_struct_size: u16,
    pub(crate) req_min_declared: u16,
    pub(crate) resp_struct: Option<String>,
    pub(crate) resp_struct_size: u16,
    pub(crate) resp_min_declared: u16,
    pub(crate) min_sizes_enforced_on_invoke_write: bool,
    pub(crate) takes_uhw: bool,
    pub(crate) present_in: Vec<String>,
    pub(crate) response_pointer_field: Option<String>,
    #[serde(default)]
    pub(crate) fds: Vec<Fd>,
    #[serde(default)]
    pub(crate) handles: Vec<HandleEntry>,
    #[serde(default)]
    pub(crate) user_vas: Vec<Va>,
    #[serde(default)]
    pub(crate) creates_ucontext: bool,
    pub(crate) trailing_in: Option<String>,
    pub(crate) trailing_out: Option<String>,
    pub(crate) cap: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Fd {
    pub(crate) field: String,
    pub(crate) dir: String,
    pub(crate) object: String,
    pub(crate) none: Option<i32>,
    #[serde(default)]
    pub(crate) signed: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HandleEntry {
    pub(crate) field: String,
    pub(crate) object: String,
    pub(crate) access: String,
    pub(crate) when: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Va {
    pub(crate) field: String,
    pub(crate) length_field: String,
    pub(crate) when: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Struct {
    pub(crate) size: u16,
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) r#type: String,
    pub(crate) offset: u16,
    pub(crate) size: u16,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Uhw {
    pub(crate) driver: String,
    pub(crate) operation: String,
    pub(crate) r#struct: Option<String>,
    pub(crate) size: u16,
    pub(crate) fields: Vec<UhwField>,
    pub(crate) length_rule: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct UhwField {
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) offset: u16,
    pub(crate) size: u16,
}

impl Tables {
    /// The structure that a C type names, if it is `struct NAME`.
    pub(crate) fn struct_of<'a>(&self, ctype: &'a str) -> anyhow::Result<(&'a str, &Struct)> {
        let name = ctype.strip_prefix("struct ").unwrap_or(ctype);
        let found = self.legacy_structs.get(name).with_context(|| format!("no struct {name}"))?;
        Ok((name, found))
    }

    /// Offset and size of a dotted path in a structure.
    pub(crate) fn field(&self, ctype: &str, path: &str) -> anyhow::Result<(u16, u16)> {
        let (name, spec) = self.struct_of(ctype)?;
        let (head, rest) = path.split_once('.').map_or((path, None), |(h, r)| (h, Some(r)));
        let Some(field) = spec.fields.iter().find(|field| field.name == head) else {
            bail!("no field {head} in struct {name}");
        };
        match rest {
            None => Ok((field.offset, field.size)),
            Some(rest) => {
                let (offset, size) = self.field(&field.r#type, rest)?;
                Ok((field.offset + offset, size))
            }
        }
    }

    /// The object that the JSON names in full or without `UVERBS_OBJECT_`.
    pub(crate) fn object(&self, name: &str) -> anyhow::Result<&Object> {
        self.objects
            .iter()
            .find(|o| o.object == name || o.object.strip_prefix("UVERBS_OBJECT_") == Some(name))
            .with_context(|| format!("no object {name}"))
    }
}
