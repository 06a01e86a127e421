//! Policy: the requests that a sandbox may make.
//!
//! A profile is data ([`PROFILES`], and the operator's own in [`DIRECTORY`]), and refuses what the
//! profile does not name. The errno of a refusal leads libibverbs to the right conclusion:
//! EPROTONOSUPPORT for a method makes libibverbs try the legacy command, and EOPNOTSUPP says that
//! there is no such feature. ENOTTY is never used, because libibverbs then gives up ioctls for the
//! whole ucontext.

mod attributes;
mod error;
pub mod keys;
mod limits;
mod narrowing;
mod paces;
mod private;
mod ranges;
mod rates;
mod refusal;
mod set;
mod slips;
mod tenant;
mod text;

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::Hash;
use std::net::Ipv6Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use verbgate_abi::legacy;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::qp_types::QP_TYPES;
use verbgate_abi::qp_types::QpType;
use verbgate_abi::request::Request;
use verbgate_abi::table;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::MethodId;
pub use verbgate_sys::foreign::Owner as FileOwner;

pub(crate) use self::attributes::prepare;
use self::error::Document;
pub use self::error::PolicyError;
pub use self::error::PolicyPlace;
use self::error::Source;
pub use self::error::hint;
use self::limits::Limits;
pub use self::narrowing::Left;
pub use self::narrowing::Narrowing;
use self::private::Private;
pub use self::ranges::Beyond;
pub use self::ranges::Predicate;
pub use self::refusal::AskedFor;
pub use self::refusal::Denial;
pub(crate) use self::refusal::qp_type as made_type;
pub use self::set::DIRECTORY;
pub use self::set::Policies;
pub use self::tenant::DeviceRule;
pub use self::tenant::DraClaim;
pub use self::tenant::Subject;
pub use self::tenant::Tenant;
pub use self::tenant::WARNED as WARNED_CAPABILITIES;
use self::text::Name;
use self::text::ProfileText;
use self::text::RulesText;

/// Profiles that come with this crate: name and text.
pub const PROFILES: [(&str, &str); 3] = [
    ("standard", include_str!("../profiles/standard.toml")),
    ("hpc", include_str!("../profiles/hpc.toml")),
    ("full", include_str!("../profiles/full.toml")),
];

/// What tells methods apart: drivers reuse each other's ids.
type MethodKey = (ObjectRef, MethodId, Provider);

fn key(method: &MethodSpec) -> MethodKey {
    (method.object, method.id, method.provider)
}

/// Methods, commands and queue pair types.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Names {
    /// By value, and whose type it means.
    qp_types: HashSet<(u64, Provider)>,
    methods: HashSet<MethodKey>,
    commands: HashSet<u64>,
}

/// What a profile grants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Grants {
    everything: bool,
    rdma_cm: bool,
    granted: Names,
    /// Taken away by name: from what is granted, and from everything.
    removed: Names,
    private: Arc<Private>,
}

/// What a sandbox may ask for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    name: String,
    grants: Arc<Grants>,
    limits: Arc<Limits>,
    /// Policies that must grant a request, too.
    also: Vec<Policy>,
}

impl Policy {
    /// Reads a profile that stands alone: its text names the profile, and extends no profile but
    /// built-in ones.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn read(text: &str) -> Result<Self, PolicyError> {
        let source = &Document::new(None, text.to_owned());
        let profile: ProfileText = source.parse()?;
        let base = match &profile.extends {
            None => Self::default(),
            Some(base) => {
                Self::named(base.get_ref()).map_err(|e| source.slip(&base.span(), e.to_string()))?
            }
        };
        let Some(name) = &profile.name else {
            return Err(source.slip(&(0..0), "the profile has no name; add name = \"...\""));
        };
        base.extended(name.get_ref(), &profile, source)
    }

    /// A profile that comes with this crate.
    ///
    /// # Errors
    /// [`PolicyError::NoProfile`].
    pub fn named(name: &str) -> Result<Self, PolicyError> {
        // Thousands of tenants may name the same.
        static READ: Mutex<BTreeMap<&str, Policy>> = Mutex::new(BTreeMap::new());
        let Some((known, text)) = PROFILES.iter().find(|(known, _)| *known == name) else {
            return Err(PolicyError::NoProfile {
                name: name.to_owned(),
                hint: hint(name, PROFILES.iter().map(|(known, _)| *known)),
            });
        };
        if let Some(read) = READ.lock().get(known) {
            return Ok(read.clone());
        }
        // Not under the lock: a profile extends another.
        let read = Self::read(text)?;
        READ.lock().insert(known, read.clone());
        Ok(read)
    }

    /// This policy with what a text adds and removes.
    fn extended(
        self,
        name: &str,
        text: &ProfileText,
        source: Source<'_>,
    ) -> Result<Self, PolicyError> {
        // Profiles that grant the same share that.
        if *self.grants != Grants::default() && text.grants_nothing() {
            return Self { name: name.to_owned(), ..self }.limited(&text.rules, source);
        }
        let Grants { everything, rdma_cm, mut granted, mut removed, private } =
            Arc::unwrap_or_clone(self.grants);
        let remove = &text.remove;
        for (names, is_granted) in [(&text.methods, true), (&remove.methods, false)] {
            let found = |name: &str| {
                table::methods().iter().find(|method| method.full_name() == name).map(key)
            };
            let known = || table::methods().iter().map(MethodSpec::full_name).collect();
            let of = Of { what: "method", found: &found, known: &known };
            of.change(names, is_granted, &mut granted.methods, &mut removed.methods, source)?;
        }
        for (names, is_granted) in [(&text.commands, true), (&remove.commands, false)] {
            let found = |name: &str| {
                legacy::commands().iter().find(|c| c.short_name == name).map(|c| c.write_cmd)
            };
            let known = || legacy::commands().iter().map(|c| c.short_name.to_owned()).collect();
            let of = Of { what: "command", found: &found, known: &known };
            of.change(names, is_granted, &mut granted.commands, &mut removed.commands, source)?;
        }
        for (names, is_granted) in [(&text.qp_types, true), (&remove.qp_types, false)] {
            let found = |name: &str| QpType::named(name).map(|known| (known.value, known.provider));
            let known = || QP_TYPES.iter().map(QpType::full_name).collect();
            let of = Of { what: "queue pair type", found: &found, known: &known };
            of.change(names, is_granted, &mut granted.qp_types, &mut removed.qp_types, source)?;
        }
        let everything = everything || text.everything;
        let rdma_cm = text.rdma_cm.unwrap_or(rdma_cm || text.everything);
        let private = match &text.private {
            none if none.is_empty() && *private == Private::default() => Private::none(),
            none if none.is_empty() => private,
            some => Arc::new(Arc::unwrap_or_clone(private).with(some, source)?),
        };
        let grants = Arc::new(Grants { everything, rdma_cm, granted, removed, private });
        let own = Self { name: name.to_owned(), grants, limits: self.limits, also: self.also };
        own.limited(&text.rules, source)
    }

    /// This policy with the limits of a text in the place of its own for the same values.
    fn limited(self, text: &RulesText, source: Source<'_>) -> Result<Self, PolicyError> {
        let limits = (*self.limits).clone().with(text, source)?;
        Ok(Self { limits: Arc::new(limits), ..self })
    }

    /// This policy, narrowed: a request passes if the other policy grants the request, too.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        if other != self && !self.also.contains(&other) {
            self.also.push(other);
        }
        self
    }

    /// The profile's name; of a narrowed policy, all names.
    #[must_use]
    pub fn name(&self) -> String {
        let names: Vec<String> =
            std::iter::once(self.name.clone()).chain(self.also.iter().map(Self::name)).collect();
        names.join(" and ")
    }

    /// Profiles that stand alone and together are this policy: what [`Policy::read_all`] reads.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let also = self.also.iter().flat_map(Self::texts);
        std::iter::once(self.text()).chain(also).collect()
    }

    /// Reads what [`Policy::texts`] gave.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn read_all(texts: &[String]) -> Result<Self, PolicyError> {
        let mut policies = texts.iter().map(|text| Self::read(text));
        let first = policies.next().unwrap_or_else(|| Ok(Self::default()))?;
        policies.try_fold(first, |all, one| Ok(all.and(one?)))
    }

    fn text(&self) -> String {
        let Grants { everything, rdma_cm, granted, removed, private } = &*self.grants;
        let mut text = format!("name = {:?}\n", self.name);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "everything = {everything}\nrdma_cm = {rdma_cm}");
        for (prefix, names) in [("", granted), ("remove.", removed)] {
            for (key, list) in names.lists() {
                if !list.is_empty() {
                    let _ = writeln!(text, "{prefix}{key} = {list:?}");
                }
            }
        }
        self.limits.write(&mut text);
        private.write(&mut text);
        text
    }

    /// Whether it grants a method, if perhaps not with every value.
    #[must_use]
    pub fn grants_method(&self, method: &MethodSpec) -> bool {
        let (Grants { everything, granted, removed, .. }, key) = (&*self.grants, key(method));
        !removed.methods.contains(&key)
            && (*everything || granted.methods.contains(&key))
            && self.also.iter().all(|also| also.grants_method(method))
    }

    /// Whether it grants a legacy command, given in whatever way.
    #[must_use]
    pub fn grants_command(&self, command: &LegacySpec) -> bool {
        let Grants { everything, granted, removed, .. } = &*self.grants;
        !removed.commands.contains(&command.write_cmd)
            && (*everything || granted.commands.contains(&command.write_cmd))
            && self.also.iter().all(|also| also.grants_command(command))
    }

    /// Whether it grants the connection manager.
    #[must_use]
    pub fn grants_rdma_cm(&self) -> bool {
        self.grants.rdma_cm && self.also.iter().all(Self::grants_rdma_cm)
    }

    /// Whether it grants what a request asks for.
    fn grants(&self, asked: &AskedFor) -> bool {
        let Grants { everything, granted, removed, .. } = &*self.grants;
        match asked {
            AskedFor::Method(method) => self.grants_method(method),
            AskedFor::Command(command) => self.grants_command(command),
            AskedFor::QpType(value, driver) => match QpType::of(*value, *driver) {
                Some(known) => {
                    let key = (known.value, known.provider);
                    !removed.qp_types.contains(&key)
                        && (*everything || granted.qp_types.contains(&key))
                }
                None => *everything,
            },
            AskedFor::Attribute(..) | AskedFor::SourceQpn => *everything,
            AskedFor::Value(_) | AskedFor::Private(_) => false,
        }
    }

    /// Judges a request, whose driver is the device's.
    ///
    /// # Errors
    /// The refusal.
    pub fn check(&self, request: &Request) -> Result<(), Denial> {
        let all = self.grants.everything && self.grants.removed == Names::default();
        let kind = || refusal::asked(request).into_iter().find(|asked| !self.grants(asked));
        let value = || self.limits.beyond(request).map(Box::new).map(AskedFor::Value);
        let everything = self.grants.everything;
        let private =
            || self.grants.private.beyond(request, everything).map(Box::new).map(AskedFor::Private);
        let denied = if all { None } else { kind() };
        if let Some(asked) = denied.or_else(value).or_else(private) {
            return Err(Denial {
                reason: asked.reason(),
                errno: asked.errno(),
                asked,
                profile: self.name.clone().into(),
            });
        }
        self.also.iter().try_for_each(|also| also.check(request))
    }
}

/// The parts of a policy for which more must be known than the request.
impl Policy {
    /// Clears what the profile has cleared in drivers' private input: before the request is judged.
    pub fn clear(&self, request: &mut Request) {
        if self.grants.private.clears() && request.uhw_in().iter().any(|byte| *byte != 0) {
            self.grants.private.clear(request);
        }
        self.also.iter().for_each(|also| also.clear(request));
    }

    /// Whether a source GID of this type passes (`enum ib_uverbs_gid_type`).
    #[must_use]
    pub fn grants_gid_type(&self, gid_type: u32) -> bool {
        let of_it = |types: &Vec<u32>| types.contains(&gid_type);
        self.limits.gid_types.as_ref().is_none_or(of_it)
            && self.also.iter().all(|also| also.grants_gid_type(gid_type))
    }

    /// Whether every source GID passes, whatever its type.
    #[must_use]
    pub fn grants_all_gid_types(&self) -> bool {
        self.limits.gid_types.is_none() && self.also.iter().all(Self::grants_all_gid_types)
    }

    /// Whether a P_Key passes: by its number, without the bit that says full member.
    #[must_use]
    pub fn grants_pkey(&self, pkey: u16) -> bool {
        let of_it = |pkeys: &Vec<u16>| pkeys.iter().any(|one| (one ^ pkey) & 0x7fff == 0);
        self.limits.pkeys.as_ref().is_none_or(of_it)
            && self.also.iter().all(|also| also.grants_pkey(pkey))
    }

    /// Whether queue pairs of UD pass where others speak by the port.
    #[must_use]
    pub fn grants_shared_ud(&self) -> bool {
        (self.grants.everything || self.limits.shared_ud == Some(true))
            && self.also.iter().all(Self::grants_shared_ud)
    }

    /// Whether every P_Key passes.
    #[must_use]
    pub fn grants_all_pkeys(&self) -> bool {
        self.limits.pkeys.is_none() && self.also.iter().all(Self::grants_all_pkeys)
    }

    /// Whether a peer of the connection manager passes; none for an address that is not known.
    ///
    /// # Errors
    /// The rule, and the address.
    pub fn check_peer(&self, peer: Option<Ipv6Addr>) -> Result<(), Beyond> {
        let beyond = match peer {
            Some(peer) => self.limits.peer(peer, "peer"),
            None => self.limits.has_peers().then(|| Beyond {
                name: "peer".to_owned(),
                value: "no IP address and no GID".to_owned(),
                rule: "peers".to_owned(),
            }),
        };
        match beyond {
            Some(beyond) => Err(beyond),
            None => self.also.iter().try_for_each(|also| also.check_peer(peer)),
        }
    }

    /// Whether the port of an id of rdma_cm passes; none for one that is not known.
    ///
    /// # Errors
    /// The rule, and the port.
    pub fn check_port(&self, port: Option<u16>) -> Result<(), Beyond> {
        match self.limits.port(port) {
            Some(beyond) => Err(beyond),
            None => self.also.iter().try_for_each(|also| also.check_port(port)),
        }
    }
}

impl Names {
    /// The names, by their keys in a profile.
    fn lists(&self) -> [(&'static str, Vec<String>); 3] {
        let of_type = |of: &&QpType| self.qp_types.contains(&(of.value, of.provider));
        let of_method = |of: &&MethodSpec| self.methods.contains(&key(of));
        let of_command = |of: &&LegacySpec| self.commands.contains(&of.write_cmd);
        let types = QP_TYPES.iter().filter(of_type).map(QpType::full_name);
        let methods = table::methods().iter().filter(of_method).map(MethodSpec::full_name);
        let commands = legacy::commands().iter().filter(of_command);
        [
            ("qp_types", types.collect()),
            ("methods", methods.collect()),
            ("commands", commands.map(|of| of.short_name.to_owned()).collect()),
        ]
    }
}

/// A kind of name: how names are found, and which there are.
struct Of<'a, K> {
    what: &'static str,
    found: &'a dyn Fn(&str) -> Option<K>,
    known: &'a dyn Fn() -> Vec<String>,
}

impl<K: Copy + Hash + Eq> Of<'_, K> {
    /// Grants names, or takes names away.
    fn change(
        &self,
        names: &[Name],
        is_granted: bool,
        granted: &mut HashSet<K>,
        removed: &mut HashSet<K>,
        source: Source<'_>,
    ) -> Result<(), PolicyError> {
        for name in names {
            let key = (self.found)(name.get_ref()).ok_or_else(|| {
                let known = (self.known)();
                let near = hint(name.get_ref(), known.iter().map(String::as_str));
                let what = self.what;
                let slip = format!(
                    "there is no {what} {:?}; {near} `verbgate abi list` prints all names",
                    name.get_ref()
                );
                source.slip(&name.span(), slip)
            })?;
            let (to, from) = if is_granted {
                (&mut *granted, &mut *removed)
            } else {
                (&mut *removed, &mut *granted)
            };
            from.remove(&key);
            to.insert(key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
