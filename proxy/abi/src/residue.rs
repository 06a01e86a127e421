//! The residue: attributes that a racing guest thread could smuggle into a framed request.
//!
//! A frame puts the request across the boundary of read-only and read-write memory, because the
//! kernel writes `flags` and `data` of outputs and new objects into the attribute array. Identity
//! and length of the first written attribute are before the boundary, with all inputs. The entries
//! of the other written attributes are behind the boundary, and a guest thread that wins the race
//! with the kernel's one copy of the array can change these entries at will. The effect of such a
//! change, method by method:
//!
//! - The number of entries is in the header, so something new takes the place of something that
//!   was asked for. `ib_uverbs_run_method` refuses a request that lacks a mandatory attribute
//!   before it destroys anything or calls the handler. So only the place of an *optional* written
//!   attribute is of use, and only if it is not the first: [`order`] makes an optional one the
//!   first. With at most one of them in a request there is nothing to be gained, whatever
//!   attributes the running kernel has that these tables do not know.
//! - With two or more, the place of the second can be given to an optional attribute that the
//!   request does not name. A frame names those that have a value that means the same as their
//!   absence ([`neutral`]), and the kernel refuses duplicates. The others are the residue, [`of`] a
//!   method, and each is explained in [`RESIDUE`].
//! - An output can be pointed elsewhere, be given another length, or be dropped: it is the guest's
//!   memory that is written or not, with the guest's rights to it (`copy_to_user`).
//! - What a new object's entry holds does not matter: the kernel ignores it.

use std::fmt;

use crate::generated::ids;
use crate::legacy::LegacySpec;
use crate::table::AttrKind;
use crate::table::AttrSpec;
use crate::table::MethodSpec;
use crate::table::Provider;
use crate::table::method;
use crate::wire::Attr;
use crate::wire::AttrId;
use crate::wire::DriverId;

/// An attribute that can be smuggled in, and why that does no harm.
#[derive(Clone, Copy, Debug)]
pub struct Explained {
    /// The method, by the kernel's name.
    pub method: &'static str,
    /// The attribute, by the kernel's name.
    pub attr: &'static str,
    /// The reason.
    pub why: Why,
}

/// Why an attribute may be smuggled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Decoding refuses a request without it, so that every frame names it.
    AlwaysNamed,
    /// An output of the method, which goes to the guest's memory with the guest's rights to it.
    Output,
    /// The kernel looks descriptors up in the table of the thread that executes, and the stub's
    /// holds only the ucontext, a socket and what the request brought: nothing of this kind.
    StubDescriptors,
    /// Policy judges the method, not this attribute: whoever may call the one may name the other.
    /// A handle is one of the guest's own ucontext. A profile that begins to judge the attribute
    /// makes this reason void.
    NotJudged,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlwaysNamed => "a request without it is refused",
            Self::Output => "an output, into the guest's own memory",
            Self::StubDescriptors => "looked up among the stub's descriptors, which are of no use",
            Self::NotJudged => "may be named by whoever may call the method",
        })
    }
}

const fn explained(method: &'static str, attr: &'static str, why: Why) -> Explained {
    Explained { method, attr, why }
}

/// Every attribute of every method's residue. A test compares it with what [`of`] computes.
#[rustfmt::skip]
pub static RESIDUE: &[Explained] = &[
    // Optional outputs: CORE_OUT, UHW_OUT. UHW_IN has a neutral value.
    explained("UVERBS_METHOD_INVOKE_WRITE", "UVERBS_ATTR_CORE_IN", Why::AlwaysNamed),
    // Optional outputs: these three. No file of the stub's is a ucap (ib_get_ucaps: EINVAL).
    explained("UVERBS_METHOD_GET_CONTEXT", "UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS", Why::Output),
    explained("UVERBS_METHOD_GET_CONTEXT", "UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT", Why::Output),
    explained("UVERBS_METHOD_GET_CONTEXT", "UVERBS_ATTR_UHW_OUT", Why::Output),
    explained("UVERBS_METHOD_GET_CONTEXT", "UVERBS_ATTR_GET_CONTEXT_FD_ARR", Why::StubDescriptors),
    // Optional outputs: RESP_SRQ_NUM, UHW_OUT. The type is an input and cannot be changed; a basic
    // SRQ ignores all but EVENT_FD. There is an XRCD only where the profile grants OPEN_XRCD.
    explained("UVERBS_METHOD_SRQ_CREATE", "UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE", Why::NotJudged),
    explained("UVERBS_METHOD_SRQ_CREATE", "UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE", Why::NotJudged),
    explained("UVERBS_METHOD_SRQ_CREATE", "UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS", Why::NotJudged),
    explained("UVERBS_METHOD_SRQ_CREATE", "UVERBS_ATTR_CREATE_SRQ_EVENT_FD", Why::StubDescriptors),
    // Optional outputs: RESP_WQ_NUM, UHW_OUT.
    explained("UVERBS_METHOD_WQ_CREATE", "UVERBS_ATTR_CREATE_WQ_CQ_HANDLE", Why::NotJudged),
    explained("UVERBS_METHOD_WQ_CREATE", "UVERBS_ATTR_CREATE_WQ_EVENT_FD", Why::StubDescriptors),
];

/// Sorts the written attributes of a request: optional ones first, so that the one whose identity
/// a frame protects is one of them; then by id, so that it is not the guest who says which.
#[must_use]
pub const fn order(spec: &AttrSpec) -> (bool, AttrId) {
    (spec.mandatory, spec.id)
}

/// The optional written attributes from which on a frame has to name neutral values.
pub const OPEN: usize = 2;

/// An optional input with a value that means the same as its absence, if it has one.
#[must_use]
pub fn neutral(spec: &AttrSpec) -> Option<Attr> {
    let len = match spec.kind {
        _ if spec.mandatory => return None,
        // No flag set: uverbs_get_flags64() gives 0 for an absent attribute too.
        AttrKind::FlagsIn => 8,
        // No private input: uverbs_fill_udata() gives length 0 for an absent one too.
        _ if spec.is_uhw_in() => 0,
        _ => return None,
    };
    Some(Attr { attr_id: spec.id.0, len, ..Attr::default() })
}

/// What can be smuggled into some request for this method of a device of `driver`: into the worst
/// one, with every optional output that leaves a place and no optional input.
#[must_use]
pub fn of(method: &MethodSpec, driver: DriverId) -> Vec<&'static AttrSpec> {
    let optional = || method.attrs_of(driver).filter(|spec| !spec.mandatory);
    let written = optional().filter(|spec| spec.is_written_by_kernel()).count();
    if written < OPEN {
        return Vec::new();
    }
    // To smuggle in one of the written ones, two others must be there: one before the boundary
    // and one whose place it takes.
    let in_reach = |spec: &&AttrSpec| !spec.is_written_by_kernel() || written > OPEN;
    optional().filter(in_reach).filter(|spec| neutral(spec).is_none()).collect()
}

/// [`of`] a legacy command, which is an `INVOKE_WRITE` whatever way it came. All commands are
/// alike, since what makes them different is in `CORE_IN`.
#[must_use]
pub fn of_command(_: &LegacySpec) -> Vec<&'static AttrSpec> {
    let object = ids::UVERBS_OBJECT_DEVICE.id;
    // No driver adds to it.
    method(object, ids::UVERBS_METHOD_INVOKE_WRITE, DriverId::UNKNOWN)
        .map_or_else(Vec::new, |invoke| of(invoke, DriverId::UNKNOWN))
}

/// The reason why an attribute may be smuggled into a method.
#[must_use]
pub fn why(method: &MethodSpec, attr: &AttrSpec) -> Option<Why> {
    RESIDUE
        .iter()
        .find(|known| known.method == method.name && known.attr == attr.name)
        .map(|known| known.why)
}

/// Drivers whose devices differ in this method: the method's own, or those that add to it, and one
/// that stands for all others.
#[must_use]
pub fn drivers(method: &MethodSpec) -> Vec<DriverId> {
    let of_method = [method.object.provider, method.provider];
    let own = of_method.iter().find_map(|provider| match provider {
        Provider::Driver(driver) => Some(*driver),
        Provider::Core => None,
    });
    if let Some(own) = own {
        return vec![own];
    }
    let mut drivers = vec![DriverId::UNKNOWN];
    for attr in method.attrs {
        if let Provider::Driver(driver) = attr.provider
            && !drivers.contains(&driver)
        {
            drivers.push(driver);
        }
    }
    drivers
}
