//! The kernel's tables of objects, methods, attributes and legacy commands: their types, and the
//! look-ups in `generated.rs`.
//!
//! The union of the kernels that [`Kernels`] lists, which says which trees have an entry. A request
//! that is in no table is refused, so these tables are the border of what a guest can reach.

use std::fmt;

use crate::generated;
use crate::wire::AttrId;
use crate::wire::DRIVER_NS;
use crate::wire::DriverId;
use crate::wire::MethodId;
use crate::wire::ObjectId;

pub use crate::generated::Kernels;

impl Kernels {
    /// The trees by their numbers, oldest first.
    pub fn versions(self) -> impl Iterator<Item = &'static str> {
        let known = generated::KERNELS.iter();
        known.filter_map(move |(tree, number)| self.contains(*tree).then_some(*number))
    }
}

/// Whose an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// `drivers/infiniband/core`: every device has it (if it has the driver operation).
    Core,
    /// One driver's: means something only under that [`DriverId`].
    Driver(DriverId),
}

impl Provider {
    /// True when an entry of this provider exists for a device of `driver`.
    #[must_use]
    pub fn serves(self, driver: DriverId) -> bool {
        match self {
            Self::Core => true,
            Self::Driver(own) => own == driver,
        }
    }

    /// What stands before the name of an entry: `efa:`, and nothing before the core's.
    #[must_use]
    pub fn prefix(self) -> String {
        match self {
            Self::Core => String::new(),
            Self::Driver(driver) => format!("{driver}:"),
        }
    }
}

/// A type of object: the id, and whose namespace the id is from. Equal only to itself, although
/// drivers reuse each other's numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The id on the wire.
    pub id: ObjectId,
    /// Whose id.
    pub provider: Provider,
}

impl ObjectRef {
    /// `UVERBS_IDR_ANY_OBJECT`: an object of any type (mlx5 DEVX queries).
    pub const ANY: Self = Self::core(0xffff);

    /// A core object.
    #[must_use]
    pub const fn core(id: u16) -> Self {
        Self { id: ObjectId(id), provider: Provider::Core }
    }

    /// A driver's object.
    #[must_use]
    pub const fn of(driver: DriverId, id: u16) -> Self {
        Self { id: ObjectId(id), provider: Provider::Driver(driver) }
    }

    /// True for [`ObjectRef::ANY`].
    #[must_use]
    pub fn is_any(self) -> bool {
        self == Self::ANY
    }

    /// The table's entry; none for [`ObjectRef::ANY`].
    #[must_use]
    pub fn spec(self) -> Option<&'static ObjectSpec> {
        generated::OBJECTS.iter().find(|spec| spec.object == self)
    }

    /// The kernel's name, without `UVERBS_OBJECT_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.spec() {
            Some(spec) => spec.short_name(),
            None if self.is_any() => "ANY",
            None => "?",
        }
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectRef({})", self.name())
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How objects of a type are named by programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectClass {
    /// No instances: a bundle of methods.
    None,
    /// By a handle in the ucontext.
    Idr,
    /// By a descriptor.
    Fd,
}

/// A type of object.
#[derive(Debug)]
pub struct ObjectSpec {
    /// The kernel's name.
    pub name: &'static str,
    /// The id and whose it is.
    pub object: ObjectRef,
    /// How instances are named.
    pub class: ObjectClass,
    /// Where it exists.
    pub kernels: Kernels,
}

impl ObjectSpec {
    /// The name without `UVERBS_OBJECT_`; a driver's keeps its driver.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        strip(self.name, &["UVERBS_OBJECT_"])
    }
}

/// What a method does with an object that an attribute names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Looks it up, shared.
    Read,
    /// Looks it up, exclusive.
    Write,
    /// Makes it; the input value means nothing.
    New,
    /// Destroys it.
    Destroy,
}

/// One alternative of an [`AttrKind::EnumIn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElemSpec {
    /// Fewest bytes.
    pub min: u16,
    /// Most bytes, or the size the kernel knows when `zero_trailing`.
    pub max: u16,
    /// Longer is allowed if the rest is zero.
    pub zero_trailing: bool,
}

/// What an attribute carries, and the kernel's rules for it (`uverbs_process_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrKind {
    /// Input bytes: inline up to 8, else behind a pointer.
    PtrIn {
        /// Fewest bytes.
        min: u16,
        /// Most bytes, or the size the kernel knows when `zero_trailing`.
        max: u16,
        /// Longer is allowed if the rest is zero.
        zero_trailing: bool,
        /// The kernel copies a pointed-to value while it parses.
        alloc_and_copy: bool,
    },
    /// Input u64, inline.
    ConstIn,
    /// Input u32 or u64 of bits, inline.
    FlagsIn,
    /// Output bytes, always behind a pointer.
    PtrOut {
        /// Fewest bytes.
        min: u16,
        /// Most bytes, or the size the kernel knows when `zero_trailing`.
        max: u16,
        /// Longer is allowed (the contents do not matter).
        zero_trailing: bool,
    },
    /// Input of which `elem_id` selects the shape.
    EnumIn {
        /// The shapes, by `elem_id`.
        elems: &'static [ElemSpec],
    },
    /// A handle, inline.
    Idr {
        /// Type of the object.
        object: ObjectRef,
        /// Use of the object.
        access: Access,
    },
    /// A descriptor of a uverbs object, inline.
    Fd {
        /// Type of the object.
        object: ObjectRef,
        /// Use of the object; only `Read` and `New` exist.
        access: Access,
    },
    /// Some other descriptor, inline (7.2).
    RawFd,
    /// An array of u32 handles: inline up to 8 bytes, else behind a pointer.
    IdrsArray {
        /// Type of the objects.
        object: ObjectRef,
        /// Use of the objects.
        access: Access,
        /// Fewest handles.
        min: u16,
        /// Most handles.
        max: u16,
    },
    /// A [`crate::wire::BufferDesc`] behind a pointer (7.2).
    Umem,
}

/// Descriptors inside the value of an attribute that is not [`AttrKind::Fd`] or [`AttrKind::RawFd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FdPayload {
    /// None.
    None,
    /// The value is one descriptor (u32).
    One,
    /// The value is an array of descriptors (int).
    Array,
    /// The value is a [`crate::wire::BufferDesc`], whose `fd` counts when its type is a dma-buf.
    BufferDesc,
}

/// An attribute of a method.
#[derive(Debug)]
pub struct AttrSpec {
    /// The kernel's name.
    pub name: &'static str,
    /// The id on the wire.
    pub id: AttrId,
    /// Whose: a driver may add attributes to a core method.
    pub provider: Provider,
    /// What it carries.
    pub kind: AttrKind,
    /// A request without it is refused (EINVAL).
    pub mandatory: bool,
    /// Where it exists.
    pub kernels: Kernels,
    /// Descriptors within the value.
    pub fd_payload: FdPayload,
    /// The kernel's C type or size macro; empty for handles.
    pub ctype: &'static str,
}

impl AttrSpec {
    /// `UVERBS_ATTR_UHW_IN`: the provider's private input.
    #[must_use]
    pub fn is_uhw_in(&self) -> bool {
        self.provider == Provider::Core && self.id == generated::ids::UVERBS_ATTR_UHW_IN
    }

    /// `UVERBS_ATTR_UHW_OUT`: the provider's private output.
    #[must_use]
    pub fn is_uhw_out(&self) -> bool {
        self.provider == Provider::Core && self.id == generated::ids::UVERBS_ATTR_UHW_OUT
    }

    /// True when the kernel writes into the attribute array: `flags` of an output
    /// (`uverbs_set_output`), `data` of a new object (`uverbs_process_attr`).
    #[must_use]
    pub fn is_written_by_kernel(&self) -> bool {
        self.is_output() || self.is_new()
    }

    /// True for [`AttrKind::PtrOut`].
    #[must_use]
    pub fn is_output(&self) -> bool {
        matches!(self.kind, AttrKind::PtrOut { .. })
    }

    /// True when the method makes the object that this attribute names.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.object().is_some_and(|(_, access)| access == Access::New)
    }

    /// The object that a handle, descriptor or array of handles names.
    #[must_use]
    pub fn object(&self) -> Option<(ObjectRef, Access)> {
        match self.kind {
            AttrKind::Idr { object, access }
            | AttrKind::Fd { object, access }
            | AttrKind::IdrsArray { object, access, .. } => Some((object, access)),
            _ => None,
        }
    }

    /// The name without the prefixes that all attributes have.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        strip(self.name, &["UVERBS_ATTR_", "MLX5_IB_ATTR_", "EFA_IB_ATTR_", "BNXT_RE_"])
    }
}

/// A method of an object.
#[derive(Debug)]
pub struct MethodSpec {
    /// The object's id and whose object it is.
    pub object: ObjectRef,
    /// The kernel's name.
    pub name: &'static str,
    /// The id on the wire.
    pub id: MethodId,
    /// Whose: a driver may add methods to a core object.
    pub provider: Provider,
    /// Where it exists.
    pub kernels: Kernels,
    /// It has `UHW_IN` and `UHW_OUT`.
    pub has_uhw: bool,
    /// Declared here, in the newest tree that has it.
    pub source: &'static str,
    /// Attributes, of core and of all drivers, by id.
    pub attrs: &'static [AttrSpec],
}

impl MethodSpec {
    /// The attribute with this id, as a device of `driver` has it.
    #[must_use]
    pub fn attr(&self, id: AttrId, driver: DriverId) -> Option<&'static AttrSpec> {
        self.attrs.iter().find(|attr| attr.id == id && attr.provider.serves(driver))
    }

    /// The attributes that a device of `driver` has.
    pub fn attrs_of(&self, driver: DriverId) -> impl Iterator<Item = &'static AttrSpec> {
        self.attrs.iter().filter(move |attr| attr.provider.serves(driver))
    }

    /// The name without the prefix that all methods have.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        strip(
            self.name,
            &["UVERBS_METHOD_", "MLX5_IB_METHOD_", "EFA_IB_METHOD_", "BNXT_RE_METHOD_"],
        )
    }

    /// The name by which profiles, logs and people tell the method from every other one:
    /// `OBJECT.METHOD` is the core's, `DRIVER:OBJECT.METHOD` a driver's own.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}{}.{}", self.provider.prefix(), self.object.name(), self.short_name())
    }

    /// True for `UVERBS_METHOD_INVOKE_WRITE`, which carries the legacy commands.
    #[must_use]
    pub fn is_invoke_write(&self) -> bool {
        self.object == generated::ids::UVERBS_OBJECT_DEVICE
            && self.id == generated::ids::UVERBS_METHOD_INVOKE_WRITE
            && self.provider == Provider::Core
    }
}

/// All types of objects.
#[must_use]
pub fn objects() -> &'static [ObjectSpec] {
    generated::OBJECTS
}

/// All methods.
#[must_use]
pub fn methods() -> &'static [MethodSpec] {
    generated::METHODS
}

/// The object type with this id, as a device of `driver` has it.
#[must_use]
pub fn object(id: ObjectId, driver: DriverId) -> Option<&'static ObjectSpec> {
    generated::OBJECTS
        .iter()
        .find(|spec| spec.object.id == id && spec.object.provider.serves(driver))
}

/// The method with these ids, as a device of `driver` has it: core ids are the same everywhere,
/// ids from [`DRIVER_NS`] mean what that driver says.
#[must_use]
pub fn method(object: ObjectId, method: MethodId, driver: DriverId) -> Option<&'static MethodSpec> {
    generated::METHODS.iter().find(|spec| {
        spec.object.id == object
            && spec.id == method
            && spec.object.provider.serves(driver)
            && spec.provider.serves(driver)
    })
}

/// The attribute of `method` with this id, as a device of `driver` has it.
#[must_use]
pub fn attr(method: &MethodSpec, id: AttrId, driver: DriverId) -> Option<&'static AttrSpec> {
    method.attr(id, driver)
}

/// True for an id of a driver's namespace.
#[must_use]
pub const fn is_driver_id(id: u16) -> bool {
    id & DRIVER_NS != 0
}

/// `name` without the first of `prefixes` that it starts with.
pub(crate) fn strip(name: &'static str, prefixes: &[&str]) -> &'static str {
    prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}
