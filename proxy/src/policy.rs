//! Policy: may this request be made at all.
//!
//! A profile is data ([`PROFILES`]); what it does not name is refused. The errno of a refusal is
//! one from which libibverbs draws the right conclusion: EPROTONOSUPPORT for a method makes it
//! try the legacy command, EOPNOTSUPP says that there is no such feature. Never ENOTTY, on which
//! it gives up ioctls for the whole ucontext.

use std::collections::HashSet;

use serde::Deserialize;
use verbgate_abi::Errno;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::request::Request;
use verbgate_abi::table;
use verbgate_abi::table::Access;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::table::Provider;
use verbgate_abi::table::QP_TYPES;
use verbgate_abi::wire::AttrId;
use verbgate_abi::wire::MethodId;

/// Profiles that come with this crate: name and text.
pub const PROFILES: [(&str, &str); 3] = [
    ("standard", include_str!("../profiles/standard.toml")),
    ("hpc", include_str!("../profiles/hpc.toml")),
    ("full", include_str!("../profiles/full.toml")),
];

/// A profile as it is written.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Profile {
    name: String,
    /// A profile that comes with this crate, all of which is granted too.
    extends: Option<String>,
    /// Every method, command and queue pair type.
    #[serde(default)]
    everything: bool,
    /// The connection manager, `/dev/infiniband/rdma_cm`.
    #[serde(default)]
    rdma_cm: bool,
    #[serde(default)]
    qp_types: Vec<String>,
    #[serde(default)]
    methods: Vec<String>,
    #[serde(default)]
    commands: Vec<String>,
}

/// Attributes of granted methods by which a guest would reach more than its own: granted by
/// `everything` alone.
const RESTRICTED: [(AttrId, &str); 2] = [
    // UD with a source number of one's choice speaks for another queue pair; the ioctl path does
    // not ask for CAP_NET_RAW, as the legacy command does.
    (ids::UVERBS_ATTR_CREATE_QP_SOURCE_QPN, "source QP number not granted"),
    // Receives what flow steering spreads.
    (ids::UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, "indirection table not granted"),
];

/// `IB_UVERBS_QP_CREATE_...`: `IB_QP_CREATE_SOURCE_QPN`, include/rdma/ib_verbs.h.
const CREATE_FLAG_SOURCE_QPN: u64 = 1 << 10;

/// What tells methods apart: drivers reuse each other's ids.
type MethodKey = (ObjectRef, MethodId, Provider);

fn key(method: &MethodSpec) -> MethodKey {
    (method.object, method.id, method.provider)
}

/// What a sandbox may ask for.
#[derive(Debug, Default)]
pub struct Policy {
    name: String,
    everything: bool,
    rdma_cm: bool,
    qp_types: HashSet<u64>,
    methods: HashSet<MethodKey>,
    commands: HashSet<u64>,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It is not well written.
    #[error("profile: {0}")]
    Syntax(String),
    /// There is none of that name.
    #[error("there is no profile {0:?}; there are standard, hpc and full")]
    NoSuch(String),
    /// It names something that no table knows.
    #[error("profile {profile:?}: there is no {what} {name:?}; `verbgate abi list` prints them")]
    Unknown {
        /// The profile.
        profile: String,
        /// Method, command or queue pair type.
        what: &'static str,
        /// The name.
        name: String,
    },
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// For counters and people.
    pub reason: &'static str,
    /// For the guest.
    pub errno: Errno,
}

impl Policy {
    /// Reads a profile.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub fn read(text: &str) -> Result<Self, ProfileError> {
        let profile: Profile =
            toml::from_str(text).map_err(|e| ProfileError::Syntax(e.to_string()))?;
        let unknown = |what, name: &str| ProfileError::Unknown {
            profile: profile.name.clone(),
            what,
            name: name.to_owned(),
        };
        let base = match profile.extends.as_deref() {
            Some(base) => Self::named(base)?,
            None => Self::default(),
        };
        let Self { everything, rdma_cm, mut qp_types, mut methods, mut commands, .. } = base;
        for name in &profile.methods {
            let found = table::methods().iter().filter(|m| method_name(m) == *name);
            let before = methods.len();
            methods.extend(found.map(key));
            if methods.len() == before {
                return Err(unknown("method", name));
            }
        }
        for name in &profile.commands {
            let found = legacy::commands().iter().find(|c| c.short_name == name);
            commands.insert(found.ok_or_else(|| unknown("command", name))?.write_cmd);
        }
        for name in &profile.qp_types {
            let found = QP_TYPES.iter().find(|(known, _)| known == name);
            qp_types.insert(found.ok_or_else(|| unknown("queue pair type", name))?.1);
        }
        let everything = everything || profile.everything;
        let rdma_cm = rdma_cm || profile.rdma_cm || everything;
        Ok(Self { name: profile.name, everything, rdma_cm, qp_types, methods, commands })
    }

    /// A profile that comes with this crate.
    ///
    /// # Errors
    /// [`ProfileError::NoSuch`].
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        match PROFILES.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::read(text),
            None => Err(ProfileError::NoSuch(name.to_owned())),
        }
    }

    /// The profile's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it grants a method, if perhaps not with every value.
    #[must_use]
    pub fn grants_method(&self, method: &MethodSpec) -> bool {
        self.everything || self.methods.contains(&key(method))
    }

    /// Whether it grants a legacy command, given in whatever way.
    #[must_use]
    pub fn grants_command(&self, command: &LegacySpec) -> bool {
        self.everything || self.commands.contains(&command.write_cmd)
    }

    /// Whether it grants the connection manager.
    #[must_use]
    pub fn grants_rdma_cm(&self) -> bool {
        self.rdma_cm
    }

    /// Judges a request.
    ///
    /// # Errors
    /// The refusal.
    pub fn check(&self, request: &Request) -> Result<(), Refusal> {
        if self.everything {
            return Ok(());
        }
        if !self.grants_method(request.method()) {
            return Err(Refusal { reason: "method not granted", errno: Errno::EPROTONOSUPPORT });
        }
        if let Some(legacy) = request.legacy()
            && !self.grants_command(legacy.spec)
        {
            return Err(Refusal { reason: "command not granted", errno: Errno::EOPNOTSUPP });
        }
        if let Some(qp_type) = qp_type(request)
            && !self.qp_types.contains(&qp_type)
        {
            return Err(Refusal { reason: "QP type not granted", errno: Errno::EOPNOTSUPP });
        }
        if let Some(reason) = restricted(request) {
            return Err(Refusal { reason, errno: Errno::EOPNOTSUPP });
        }
        Ok(())
    }
}

/// `OBJECT.METHOD`, as profiles name it.
#[must_use]
pub fn method_name(method: &MethodSpec) -> String {
    format!("{}.{}", method.object.name(), method.short_name())
}

/// What a request asks for beyond what its method is for.
fn restricted(request: &Request) -> Option<&'static str> {
    let method = request.method();
    if request.attrs().iter().any(|attr| is_drivers_own(method, attr.spec)) {
        return Some("driver attribute not granted");
    }
    if method.object == ids::UVERBS_OBJECT_QP && method.id == ids::UVERBS_METHOD_QP_CREATE {
        let named = |(id, _): &&(AttrId, &str)| request.attr(*id).is_some();
        return RESTRICTED.iter().find(named).map(|(_, reason)| *reason);
    }
    let flags = request.legacy_field("create_flags").filter(|_| qp_type(request).is_some())?;
    (flags & CREATE_FLAG_SOURCE_QPN != 0).then_some(RESTRICTED[0].1)
}

/// Whether an attribute is an optional input that a driver has added to a method of the core:
/// mlx5's and bnxt_re's name doorbells, pages and kinds of memory beyond what the core knows.
fn is_drivers_own(method: &MethodSpec, attr: &AttrSpec) -> bool {
    let added = method.provider == Provider::Core && attr.provider != Provider::Core;
    added && !attr.is_output() && !attr.mandatory
}

/// The type of the queue pair that a request makes, if it makes one.
fn qp_type(request: &Request) -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_names_what_exists_and_the_next_grants_more() {
        let [standard, hpc, full] = PROFILES.map(|(name, _)| Policy::named(name).unwrap());
        assert_eq!(standard.name(), "standard");
        assert!(standard.commands.len() > 30 && !standard.everything);
        assert!(hpc.commands.is_superset(&standard.commands));
        assert!(hpc.methods.len() > standard.methods.len() && !hpc.everything);
        assert!(full.everything);
        assert!([&standard, &hpc, &full].into_iter().all(Policy::grants_rdma_cm));
        assert!(matches!(Policy::named("ful"), Err(ProfileError::NoSuch(_))));
    }

    #[test]
    fn a_profile_with_a_slip_is_refused_by_name() {
        let standard = PROFILES[0].1;
        let slip = standard.replace("\"DESTROY_QP\"", "\"DESTROY_QQ\"");
        let error = Policy::read(&slip).unwrap_err().to_string();
        assert!(error.contains("DESTROY_QQ"), "{error}");
        let extra = format!("{standard}\nsurprise = 1\n");
        assert!(matches!(Policy::read(&extra), Err(ProfileError::Syntax(_))));
    }
}
