//! The questions that a request asks of a policy, and the text of a refusal.

use std::fmt;
use std::sync::LazyLock;

use verbgate_abi::Errno;
use verbgate_abi::ids;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::qp_types::QpType;
use verbgate_abi::request::Request;
use verbgate_abi::table::Access;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::wire::DriverId;

use super::Beyond;
use super::PROFILES;
use super::Policy;
use super::attributes;

pub(super) const SOURCE_QPN: &str = "source QP number not granted";

/// `IB_UVERBS_QP_CREATE_...`: `IB_QP_CREATE_SOURCE_QPN`, include/rdma/ib_verbs.h.
const CREATE_FLAG_SOURCE_QPN: u64 = 1 << 10;

/// Something that a profile grants or does not.
#[derive(Clone, Debug)]
pub enum AskedFor {
    /// A method.
    Method(&'static MethodSpec),
    /// A legacy command, given in whatever way.
    Command(&'static LegacySpec),
    /// A queue pair of a type, on a device of a driver.
    QpType(u64, DriverId),
    /// An attribute of a method.
    Attribute(&'static MethodSpec, &'static AttrSpec, &'static str),
    /// The legacy commands' way to name a source number for a queue pair.
    SourceQpn,
    /// A value beyond a limit.
    Value(Box<Beyond>),
    /// Something in a driver's private input.
    Private(Box<Beyond>),
}

impl AskedFor {
    /// The kind of refusal, for counters.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Method(_) => "method not granted",
            Self::Command(_) => "command not granted",
            Self::QpType(..) => "QP type not granted",
            Self::Attribute(.., reason) => reason,
            Self::SourceQpn => SOURCE_QPN,
            Self::Value(_) => "value beyond a limit",
            Self::Private(_) => "private input not granted",
        }
    }

    pub(super) const fn errno(&self) -> Errno {
        match self {
            Self::Method(_) => Errno::EPROTONOSUPPORT,
            Self::Value(_) => Errno::EPERM,
            _ => Errno::EOPNOTSUPP,
        }
    }
}

impl fmt::Display for AskedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(method) => write!(f, "method {}", method.full_name()),
            Self::Command(command) => write!(f, "command {}", command.short_name),
            Self::QpType(value, driver) => match QpType::of(*value, *driver) {
                Some(known) => write!(f, "queue pair type {}", known.full_name()),
                None => write!(f, "queue pair type {value} (a device of driver {driver})"),
            },
            Self::Attribute(method, attr, _) => {
                write!(f, "attribute {} of method {}", attr.short_name(), method.full_name())
            }
            Self::SourceQpn => f.write_str("a source number for a queue pair (create_flags)"),
            Self::Value(beyond) | Self::Private(beyond) => {
                let Beyond { name, value, rule } = &**beyond;
                write!(f, "{name} = {value} (rule: {rule})")
            }
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Debug)]
pub struct Denial {
    /// For counters.
    pub reason: &'static str,
    /// For the guest.
    pub errno: Errno,
    /// What was asked for.
    pub asked: AskedFor,
    /// The name of the profile that refused it.
    pub(super) profile: Box<str>,
}

static BUILT_IN: LazyLock<Vec<Policy>> =
    LazyLock::new(|| PROFILES.iter().filter_map(|(name, _)| Policy::named(name).ok()).collect());

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, profile, .. } = self;
        write!(f, "{asked} is not granted by profile {profile:?}")?;
        match BUILT_IN.iter().find(|policy| policy.grants(asked)) {
            Some(other) => write!(f, "; profile {:?} grants it", other.name()),
            None => Ok(()),
        }
    }
}

/// All that a request asks for, in the order in which it is judged.
pub(super) fn asked(request: &Request) -> Vec<AskedFor> {
    let method = request.method();
    let mut asked = vec![AskedFor::Method(method)];
    asked.extend(request.legacy().map(|legacy| AskedFor::Command(legacy.spec)));
    let made = qp_type(request);
    asked.extend(made.map(|value| AskedFor::QpType(value, request.hdr().driver())));
    let specs = request.attrs().iter().map(|attr| attr.spec);
    asked.extend(specs.filter_map(|spec| {
        let reason = attributes::withheld(method, spec)?;
        Some(AskedFor::Attribute(method, spec, reason))
    }));
    let flags = made.and_then(|_| request.legacy_field("create_flags")).unwrap_or_default();
    asked.extend((flags & CREATE_FLAG_SOURCE_QPN != 0).then_some(AskedFor::SourceQpn));
    asked
}

/// The type of the queue pair that a request makes, if it makes one.
pub(crate) fn qp_type(request: &Request) -> Option<u64> {
    let method = request.method();
    if method.object == ids::UVERBS_OBJECT_QP && method.id == ids::UVERBS_METHOD_QP_CREATE {
        return request.value(ids::UVERBS_ATTR_CREATE_QP_TYPE);
    }
    let makes_one = request
        .legacy()?
        .spec
        .handles
        .iter()
        .any(|handle| handle.object == ids::UVERBS_OBJECT_QP && handle.access == Access::New);
    if makes_one { request.legacy_field("qp_type") } else { None }
}
