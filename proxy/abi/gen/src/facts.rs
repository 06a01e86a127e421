//! The form of `uverbs_methods.json`: what kernels' sources say, and nothing that a person has to
//! decide. `verbgate-abi-extract` writes the file.

use std::collections::BTreeMap;

use anyhow::Context as _;
use anyhow::bail;
use serde::Deserialize;
use serde::Serialize;

/// The facts of one kernel, or of several: then an entry is the newest kernel's, with the kernels
/// that have it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The kernels, oldest first.
    pub kernels: Vec<Kernel>,
    /// Sizes and flags of the request itself.
    pub wire: Wire,
    /// Types of objects.
    pub objects: Vec<Object>,
    /// Methods with their attributes.
    pub methods: Vec<Method>,
    /// The commands of write(2) and of `UVERBS_METHOD_INVOKE_WRITE`.
    pub legacy_write_commands: Vec<Legacy>,
    /// The structures of `ib_user_verbs.h`, by name.
    pub legacy_structs: BTreeMap<String, Struct>,
    /// The structures of drivers' headers, by name.
    pub private_structs: BTreeMap<String, Struct>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// `7.2`.
    pub series: String,
    /// `7.2.13`.
    pub release: String,
}

/// The request's own numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// `RDMA_VERBS_IOCTL`.
    pub ioctl: String,
    /// `sizeof(struct ib_uverbs_ioctl_hdr)`.
    pub header_size: u16,
    /// `sizeof(struct ib_uverbs_attr)`.
    pub attr_size: u16,
    /// Flags of an attribute.
    pub flags: BTreeMap<String, u16>,
}

/// A type of object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// The kernel's name.
    pub object: String,
    /// The id on the wire.
    pub object_id: u16,
    /// The oldest of the kernels that have it.
    pub first_seen: String,
    /// The kernels that have it.
    pub present_in: Vec<String>,
    /// The kernel's macro for the type.
    pub r#type: String,
    /// How programs name an instance.
    pub class: Class,
    /// The file that declares it.
    pub file: String,
    /// `core`, or the driver's folder.
    pub provider: String,
}

/// How programs name an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Class {
    /// No instances.
    None,
    /// By a handle.
    Idr,
    /// By a descriptor.
    Fd,
}

/// A method.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Its object.
    pub object: String,
    /// The object's id.
    pub object_id: u16,
    /// The kernel's name.
    pub method: String,
    /// The id on the wire.
    pub method_id: u16,
    /// `core`, or the folder of the driver that has the handler.
    pub provider: String,
    /// The oldest of the kernels that have it.
    pub first_seen: String,
    /// The kernels that have it.
    pub present_in: Vec<String>,
    /// For each kernel, the places that declare it or add attributes to it.
    pub source: BTreeMap<String, Vec<String>>,
    /// By id; the core's before drivers'.
    pub attrs: Vec<Attr>,
    /// Has the attributes of drivers' private data.
    pub has_uhw: bool,
}

/// An attribute of a method.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Attr {
    /// The kernel's name.
    pub name: String,
    /// The id on the wire.
    pub id: u16,
    /// What it carries.
    pub kind: Kind,
    /// The kernel's words for the type of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctype: Option<String>,
    /// The object that a handle or descriptor is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obj: Option<String>,
    /// The object's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obj_type: Option<u16>,
    /// What is done with the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// A request without it is refused.
    pub mandatory: bool,
    /// Drivers' private data.
    pub is_udata: bool,
    /// Fewest bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_len: Option<u16>,
    /// The bytes that the kernel knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len: Option<u16>,
    /// Longer is allowed if the rest is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_trailing: Option<bool>,
    /// The parser copies the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc_and_copy: Option<bool>,
    /// Fewest handles of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_cnt: Option<u16>,
    /// Most handles of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cnt: Option<u16>,
    /// The alternatives of an enum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elems: Option<Vec<Elem>>,
    /// `core`, or the folder of the driver that adds it.
    pub provider: String,
    /// The oldest of the kernels that have it.
    pub first_seen: String,
    /// The kernels that have it.
    pub present_in: Vec<String>,
    /// How it was before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Change>,
}

/// What an attribute carries: the kernel's macro.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the kernel's names, explained in verbgate_abi::table::AttrKind")]
pub enum Kind {
    PtrIn,
    PtrOut,
    ConstIn,
    FlagsIn,
    EnumIn,
    Umem,
    Idr,
    IdrsArray,
    Fd,
    RawFd,
}

/// What a method does with an object: `enum uverbs_obj_access`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the kernel's names, explained in verbgate_abi::table::Access")]
pub enum Access {
    Read,
    Write,
    New,
    Destroy,
}

/// An alternative of an enum attribute.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Elem {
    /// Its number.
    pub elem_id: usize,
    /// Fewest bytes.
    pub min_len: u16,
    /// The bytes that the kernel knows.
    pub len: u16,
    /// Longer is allowed if the rest is zero.
    pub zero_trailing: bool,
    /// The parser copies the value.
    pub alloc_and_copy: bool,
}

/// What differs between two kernels, one after the other.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The older and the newer.
    pub between: [String; 2],
    /// For each key the older's and the newer's value.
    pub diff: BTreeMap<String, [serde_json::Value; 2]>,
}

/// A command of `enum ib_uverbs_write_cmds`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Legacy {
    /// The kernel's name.
    pub name: String,
    /// The number on the wire.
    pub number: u8,
    /// With the extended header.
    pub extended: bool,
    /// The value of `UVERBS_ATTR_WRITE_CMD`.
    pub write_cmd_attr: u64,
    /// The object that the kernel's table lists it under.
    pub object: String,
    /// The kernel's function.
    pub handler: String,
    /// The request.
    pub req_struct: String,
    /// `sizeof` the request.
    pub req_struct_size: u16,
    /// Fewest bytes of a request.
    pub req_min_declared: u16,
    /// The response.
    pub resp_struct: Option<String>,
    /// `sizeof` the response.
    pub resp_struct_size: u16,
    /// Fewest bytes of a response.
    pub resp_min_declared: u16,
    /// The request begins with the address of the response, which only write(2) uses.
    pub has_response_pointer: bool,
    /// Drivers' private data may follow.
    pub takes_uhw: bool,
    /// Functions that a driver must have.
    pub needs_driver_ops: Vec<String>,
    /// The kernels that have it.
    pub present_in: Vec<String>,
}

/// A structure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Struct {
    /// The header, of private structures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Bytes.
    pub size: u16,
    /// The size in those of the older kernels where the structure had another one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub older_sizes: BTreeMap<String, u16>,
    /// By offset.
    pub fields: Vec<Field>,
}

/// A field.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// The name.
    pub name: String,
    /// The type, as in the header; `[N]` or `[]` at the end.
    pub r#type: String,
    /// Bytes from the start.
    pub offset: u16,
    /// Bytes.
    pub size: u16,
}

impl Facts {
    /// Reads the JSON.
    ///
    /// # Errors
    ///
    /// The text has not this form.
    pub fn parse(json: &str) -> anyhow::Result<Self> {
        serde_json::from_str(json).context("the extracted facts have not the known form")
    }

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

    /// Offset and size of a dotted path in a private structure.
    pub(crate) fn private_field(&self, structure: &str, path: &str) -> anyhow::Result<[u16; 2]> {
        let spec = self
            .private_structs
            .get(structure)
            .with_context(|| format!("no header has struct {structure}"))?;
        let direct = spec.fields.iter().find(|field| field.name == path);
        if let Some(field) = direct {
            return Ok([field.offset, field.size]);
        }
        let missing = || format!("no field {path} in struct {structure}");
        let (head, rest) = path.split_once('.').with_context(missing)?;
        let outer = spec.fields.iter().find(|field| field.name == head).with_context(missing)?;
        let inner = outer.r#type.strip_prefix("struct ").with_context(missing)?;
        let [offset, size] = self.private_field(inner, rest)?;
        Ok([outer.offset + offset, size])
    }

    /// The object that the JSON names in full or without `UVERBS_OBJECT_`.
    pub(crate) fn object(&self, name: &str) -> anyhow::Result<&Object> {
        self.objects
            .iter()
            .find(|o| o.object == name || o.object.strip_prefix("UVERBS_OBJECT_") == Some(name))
            .with_context(|| format!("no object {name}"))
    }
}
