//! Policy: the requests that a sandbox may make.
//!
//! A profile is data ([`PROFILES`]), and refuses what the profile does not name. The errno of a
//! refusal leads libibverbs to the right conclusion: EPROTONOSUPPORT for a method makes libibverbs
//! try the legacy command, and EOPNOTSUPP says that there is no such feature. ENOTTY is never used,
//! because libibverbs then gives up ioctls for the whole ucontext.

mod refusal;

use std::collections::HashSet;

use serde::Deserialize;
use verbgate_abi::legacy;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::qp_types::QpType;
use verbgate_abi::request::Request;
use verbgate_abi::table;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::MethodId;

pub use self::refusal::AskedFor;
pub use self::refusal::Denial;

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
    /// By value, and whose type it means.
    qp_types: HashSet<(u64, Provider)>,
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
    #[error("there is no profile {0:?}; the profiles are standard, hpc and full")]
    NoSuch(String),
    /// It names something that no table knows.
    #[error(
        "profile {profile:?}: there is no {what} {name:?}; `verbgate abi list` prints the names"
    )]
    Unknown {
        /// The profile.
        profile: String,
        /// Method, command or queue pair type.
        what: &'static str,
        /// The name.
        name: String,
    },
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
            let found = table::methods().iter().find(|method| method.full_name() == *name);
            methods.insert(key(found.ok_or_else(|| unknown("method", name))?));
        }
        for name in &profile.commands {
            let found = legacy::commands().iter().find(|c| c.short_name == name);
            commands.insert(found.ok_or_else(|| unknown("command", name))?.write_cmd);
        }
        for name in &profile.qp_types {
            let found = QpType::named(name).ok_or_else(|| unknown("queue pair type", name))?;
            qp_types.insert((found.value, found.provider));
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

    /// Whether it grants what a request asks for.
    fn grants(&self, asked: AskedFor) -> bool {
        self.everything
            || match asked {
                AskedFor::Method(method) => self.grants_method(method),
                AskedFor::Command(command) => self.grants_command(command),
                AskedFor::QpType(value, driver) => QpType::of(value, driver)
                    .is_some_and(|known| self.qp_types.contains(&(known.value, known.provider))),
                AskedFor::Attribute(..) | AskedFor::SourceQpn => false,
            }
    }

    /// Judges a request, whose driver is the device's.
    ///
    /// # Errors
    /// The refusal.
    pub fn check(&self, request: &Request) -> Result<(), Denial> {
        if self.everything {
            return Ok(());
        }
        match refusal::asked(request).into_iter().find(|asked| !self.grants(*asked)) {
            None => Ok(()),
            Some(asked) => Err(Denial {
                reason: asked.reason(),
                errno: asked.errno(),
                asked,
                profile: self.name.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use verbgate_abi::decode;
    use verbgate_abi::encode::RequestBuilder;
    use verbgate_abi::ids;
    use verbgate_abi::qp_types;
    use verbgate_abi::wire::DriverId;
    use verbgate_abi::wire::GuestAddr;

    use super::*;

    /// CREATE_QP of a type, as a program of `driver` asks for it.
    fn create_qp(qp_type: u64, driver: DriverId) -> Request {
        let (object, id) = (ids::UVERBS_OBJECT_DEVICE.id, ids::UVERBS_METHOD_INVOKE_WRITE);
        let invoke = table::method(object, id, driver).unwrap();
        let spec = legacy::commands().iter().find(|spec| spec.short_name == "CREATE_QP").unwrap();
        let mut core_in = vec![0; spec.req_size()];
        core_in[usize::from(spec.req.field("qp_type").unwrap().offset)] =
            u8::try_from(qp_type).unwrap();
        let encoded = RequestBuilder::new(invoke, driver)
            .input(ids::UVERBS_ATTR_CORE_IN, &core_in)
            .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), 32)
            .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd)
            .build(GuestAddr(0x1_0000));
        let outline = decode::parse(&encoded.bytes).unwrap();
        let mut arena = vec![0; outline.arena_len()];
        for payload in outline.payloads() {
            let start = usize::try_from(payload.addr.0 - 0x1_0000).unwrap();
            arena[payload.range.clone()]
                .copy_from_slice(&encoded.payload[start..start + payload.range.len()]);
        }
        outline.with_payloads(arena).unwrap()
    }

    #[test]
    fn a_drivers_type_is_granted_on_that_drivers_devices() {
        let [standard, hpc, full] = PROFILES.map(|(name, _)| Policy::named(name).unwrap());
        let srd = create_qp(qp_types::DRIVER, DriverId::EFA);
        assert!([&standard, &hpc, &full].iter().all(|policy| policy.check(&srd).is_ok()));
        let dc = create_qp(qp_types::DRIVER, DriverId::MLX5);
        let refusal = standard.check(&dc).unwrap_err();
        assert_eq!(refusal.reason, "QP type not granted");
        assert_eq!(
            refusal.to_string(),
            "queue pair type mlx5:DC is not granted by profile \"standard\"; profile \"hpc\" \
             grants it"
        );
        assert!(hpc.check(&dc).is_ok());
        // Where the value means nothing, it is no name of something else's.
        let of_rxe = hpc.check(&create_qp(qp_types::DRIVER, DriverId::RXE)).unwrap_err();
        assert_eq!(
            of_rxe.to_string(),
            "queue pair type 255 (a device of driver rxe) is not granted by profile \"hpc\"; \
             profile \"full\" grants it"
        );
        assert!(full.check(&create_qp(qp_types::DRIVER, DriverId::RXE)).is_ok());
    }

    #[test]
    fn a_bare_name_is_the_cores_and_a_drivers_has_the_driver_before_it() {
        let of_port = |driver| {
            let found = table::methods().iter().filter(|method| {
                method.object == ids::UVERBS_OBJECT_DEVICE
                    && method.short_name() == "QUERY_PORT"
                    && method.provider == driver
            });
            found.collect::<Vec<_>>()
        };
        let (core, mlx5) =
            (of_port(Provider::Core)[0], of_port(Provider::Driver(DriverId::MLX5))[0]);
        let standard = Policy::named("standard").unwrap();
        assert!(standard.grants_method(core) && !standard.grants_method(mlx5));
        let profile = |name: &str| format!("name = \"own\"\nmethods = [{name:?}]");
        let own = Policy::read(&profile("mlx5:DEVICE.QUERY_PORT")).unwrap();
        assert!(own.grants_method(mlx5) && !own.grants_method(core));
        assert!(Policy::read(&profile("efa:DEVICE.QUERY_PORT")).is_err());
    }

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
