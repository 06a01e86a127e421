//! What a person has to decide: `annotations.toml`. The kernel's tables say that an attribute is
//! eight bytes; only its handler says that they are an address.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Deserialize;

/// All annotations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotations {
    /// By method, then by attribute.
    pub attributes: BTreeMap<String, BTreeMap<String, Role>>,
    /// By command.
    pub commands: BTreeMap<String, Command>,
    /// Drivers' private inputs.
    pub private: Vec<Private>,
    /// What no guest may use until someone has annotated it: the name of a method, of a command, or
    /// `METHOD.ATTRIBUTE`, and the reason.
    #[serde(default)]
    pub left_out: BTreeMap<String, String>,
}

/// What the value of an attribute means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Handles of objects: the kernel's table says of which.
    Handle,
    /// A descriptor of an object: the kernel's table says of which.
    ObjectFd,
    /// Numbers and names without an address, a handle or a descriptor in them.
    Plain,
    /// Bits.
    Flags,
    /// A number of the program's own that the kernel only hands back.
    Cookie,
    /// An address in the guest's memory, which the kernel pins or reads.
    Address,
    /// Structures with addresses or memory keys in them.
    Addresses,
    /// An address as the device sees it.
    Iova,
    /// How many bytes.
    Length,
    /// A descriptor of any file.
    Fd,
    /// An array of descriptors.
    Fds,
    /// `struct ib_uverbs_buffer_desc`: an address or a descriptor.
    Buffer,
    /// A port.
    Port,
    /// An index into the GID table.
    GidIndex,
    /// A command to the device's firmware, with whatever is in it.
    DeviceCommand,
    /// A driver's private data.
    Private,
    /// The structure of a legacy command.
    LegacyCommand,
    /// An output without handles or descriptors in it.
    Output,
    /// An output with handles of the ucontext's own objects.
    OutputHandles,
    /// An output that the kernel's table calls an input: the handler writes the answer to the address that
    /// the value is. Handed on as a value, a part of that address would be taken for the address.
    OutputDeclaredAsInput,
}

/// A legacy command.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Command {
    /// Fields with handles; one field several times for alternatives that exclude each other.
    pub handles: Vec<Handle>,
    /// Fields with descriptors.
    pub fds: Vec<Fd>,
    /// Memory of the guest that the kernel pins.
    pub memory: Vec<Memory>,
    /// What follows the request structure.
    pub trailing_in: Option<Trailing>,
    /// Work completions follow the response structure.
    pub trailing_completions: bool,
    /// Makes the ucontext.
    pub creates_ucontext: bool,
    /// The capability that the kernel asks for, for people.
    pub capability: Option<String>,
}

/// A field with a handle.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handle {
    /// The dotted path in the request; `resp.` and the path in the response.
    pub field: String,
    /// The type of the object, without `UVERBS_OBJECT_`.
    pub object: String,
    /// What is done with it.
    pub access: Access,
    /// When the kernel looks it up: all of these hold.
    #[serde(default)]
    pub when: Vec<Test>,
}

/// What a command does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the kernel's names, explained in verbgate_abi::table::Access")]
pub enum Access {
    Read,
    Write,
    New,
    Destroy,
}

/// A condition on a field of the request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The field's dotted path.
    pub field: String,
    /// The comparison.
    pub is: Comparison,
    /// With this.
    pub value: u64,
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "explained in verbgate_abi::legacy::TestOp")]
pub enum Comparison {
    Eq,
    Ne,
    AnyBit,
    NoBit,
}

/// A field with a descriptor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fd {
    /// As in [`Handle::field`]; in the response, a new descriptor.
    pub field: String,
    /// The object that it must be of; none for other files.
    pub object: Option<String>,
    /// Values that mean no descriptor.
    #[serde(default)]
    pub none: NoFd,
}

/// Values that mean no descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoFd {
    /// There are none.
    #[default]
    Never,
    /// Every negative number.
    Negative,
    /// -1 alone.
    MinusOne,
}

/// Memory of the guest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The field with the address.
    pub address: String,
    /// The field with the length.
    pub length: String,
    /// When the kernel pins it: all of these hold.
    #[serde(default)]
    pub when: Vec<Test>,
}

/// What follows a request structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "explained in verbgate_abi::legacy::Trailing")]
pub enum Trailing {
    SendWrs,
    RecvWrs,
    FlowSpecs,
    WqHandles,
}

/// A driver's private input to a command.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Private {
    /// The drivers, as constants of `DriverId`.
    pub drivers: Vec<String>,
    /// The commands, without the prefix.
    pub operations: Vec<String>,
    /// The structure; or any name, if `size` is given.
    pub structure: String,
    /// Bytes of an input that is no structure of a header. Then every field says `at`.
    pub size: Option<u16>,
    /// How long the memory is that the addresses name, for people.
    #[serde(default)]
    pub length_rule: String,
    /// The fields of interest.
    pub fields: Vec<PrivateField>,
    /// The structure's other fields: someone has looked at each.
    #[serde(default)]
    pub plain: Vec<String>,
}

/// A field of a private input.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateField {
    /// The dotted path.
    pub name: String,
    /// What it means.
    pub role: PrivateRole,
    /// More about it, for people.
    pub note: Option<String>,
    /// Offset and size, where no header says them.
    pub at: Option<[u16; 2]>,
}

/// What a field of a private input means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "explained in verbgate_abi::legacy::UhwRole")]
pub enum PrivateRole {
    VaPin,
    VaPinPage,
    LenInput,
    VaLookupKey,
    NestedUserPointerRead,
    NestedUserPointerWritten,
    Fd,
    Other,
}

impl PrivateRole {
    /// The name in `UhwRole`, and the note of a field that has none of its own.
    pub(crate) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::VaPin => ("VaPin", "va_pin"),
            Self::VaPinPage => ("VaPinPage", "va_pin_page"),
            Self::LenInput => ("Len", "len_input"),
            Self::VaLookupKey => ("VaKey", "va_lookup_key"),
            Self::NestedUserPointerRead => ("NestedIn", "nested_user_pointer_read"),
            Self::NestedUserPointerWritten => ("NestedOut", "nested_user_pointer_written"),
            Self::Fd => ("Fd", "fd"),
            Self::Other => ("Other", "other"),
        }
    }
}

impl Annotations {
    /// Reads the TOML.
    ///
    /// # Errors
    ///
    /// The text is no TOML, or says something that is not known here.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        toml::from_str(text).context("annotations.toml")
    }

    /// The role of an attribute.
    pub(crate) fn role(&self, method: &str, attr: &str) -> Option<Role> {
        self.attributes.get(method)?.get(attr).copied()
    }

    /// Whether nobody may use the attribute for now.
    pub(crate) fn leaves_out(&self, method: &str, attr: &str) -> bool {
        self.left_out.contains_key(&format!("{method}.{attr}"))
    }
}
