//! Profiles as operators put them together, by chance; and the verdict on every request, by a model.
//!
//! The model knows three sentences: a profile grants what the profile that it extends grants, and what it
//! adds, but for what it removes; a rule replaces the same rule; and a request passes if all that it asks
//! for is granted, and all its numbers pass.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::sample::subsequence;
use verbgate_abi::Request;
use verbgate_abi::legacy;
use verbgate_abi::qp_types::QP_TYPES;
use verbgate_abi::table;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::DriverId;
use verbgate_proxy::policy::PROFILES;
use verbgate_proxy::policy::Policies;
use verbgate_proxy::policy::Policy;

use super::build::*;

/// A name, by its list: `methods`, `commands`, `qp_types`; and what a request asks for besides.
type Named = (&'static str, String);

static NAMES: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let methods = table::methods().iter().map(|method| ("methods", method.full_name()));
    let commands = legacy::commands().iter().map(|spec| ("commands", spec.short_name.to_owned()));
    let types = QP_TYPES.iter().map(|known| ("qp_types", known.full_name()));
    methods.chain(commands).chain(types).collect()
});

/// A field of drivers' private input, and of a command.
static PRIVATE: LazyLock<Vec<(String, &'static str)>> = LazyLock::new(|| {
    let of = |spec: &'static legacy::UhwSpec| {
        let names = spec.drivers.iter().flat_map(|driver| {
            spec.operations.iter().map(move |operation| format!("{driver}:{operation}"))
        });
        names.flat_map(|name| spec.plain.iter().map(move |field| (name.clone(), field.name)))
    };
    legacy::uhw_specs().iter().flat_map(of).collect()
});
static FIELDS: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    let of = |spec: &'static legacy::LegacySpec| {
        let numbers = spec.req.fields.iter().filter(|field| matches!(field.size, 1 | 2 | 4 | 8));
        numbers.map(|field| (spec.short_name, field.name))
    };
    legacy::commands().iter().flat_map(of).collect()
});

/// A request, and what it asks for.
struct Asked {
    request: Request,
    names: Vec<Named>,
    /// Private fields of which it has bytes.
    private: Vec<(String, &'static str)>,
    /// An attribute that `everything` alone grants.
    restricted: bool,
}

/// A request for each method, with each optional attribute, for each command, for each type of queue pair,
/// and for each field of private input.
static REQUESTS: LazyLock<Vec<Asked>> = LazyLock::new(|| {
    let mut all = Vec::new();
    let invoke = || ("methods", INVOKE.to_owned());
    let plain = |request, names| Asked { request, names, private: Vec::new(), restricted: false };
    let rc = |makes: bool| makes.then(|| ("qp_types", "RC".to_owned()));
    for method in table::methods().iter().filter(|method| !method.is_invoke_write()) {
        let driver = driver_of(method);
        let names = || {
            let own = [("methods", method.full_name())].into_iter();
            own.chain(rc(method.full_name() == "QP.QP_CREATE")).collect()
        };
        all.push(plain(built(method_with(method, driver, None)), names()));
        let drivers = method.attrs.iter().filter(|spec| !spec.mandatory && !spec.is_uhw_in());
        for spec in drivers.filter(|spec| !spec.is_output()) {
            let driver = match spec.provider {
                Provider::Driver(driver) => driver,
                Provider::Core => driver,
            };
            let added = method.provider == Provider::Core && spec.provider != Provider::Core;
            let named = ["CREATE_QP_SOURCE_QPN", "CREATE_QP_IND_TABLE_HANDLE"];
            let restricted = added || named.contains(&spec.short_name());
            let request = built(method_with(method, driver, Some(spec)));
            all.push(Asked { restricted, ..plain(request, names()) });
        }
    }
    for spec in legacy::commands() {
        let own = ("commands", spec.short_name.to_owned());
        let makes = spec.req.field("qp_type").is_some();
        let names = [invoke(), own].into_iter().chain(rc(makes)).collect();
        all.push(plain(command(spec), names));
    }
    let create = legacy::commands().iter().find(|spec| spec.short_name == "CREATE_QP").unwrap();
    for known in &QP_TYPES {
        let driver = match known.provider {
            Provider::Driver(driver) => driver,
            Provider::Core => DriverId::MLX5,
        };
        let at = usize::from(create.req.field("qp_type").unwrap().offset);
        let value = u8::try_from(known.value).unwrap();
        let request = command_with(create, driver, &[], |input| input[at] = value);
        let names =
            vec![invoke(), ("commands", "CREATE_QP".to_owned()), ("qp_types", known.full_name())];
        all.push(plain(request, names));
    }
    all.extend(legacy::uhw_specs().iter().flat_map(with_plain_fields));
    all
});

/// Commands, each with one bit in one field of the private input.
fn with_plain_fields(spec: &'static legacy::UhwSpec) -> Vec<Asked> {
    let mut all = Vec::new();
    for (driver, operation) in
        spec.drivers.iter().flat_map(|d| spec.operations.iter().map(|o| (*d, *o)))
    {
        for field in spec.plain {
            let mut bytes = vec![0; spec.size.into()];
            bytes[usize::from(field.offset)] = 1;
            let covers = |other: &&legacy::UhwField| {
                (other.offset..other.offset + other.size).contains(&field.offset)
            };
            // What passes with the operation lies here, too: a union.
            if spec.fields.iter().any(|field| covers(&field)) {
                continue;
            }
            let here = spec.plain.iter().filter(covers);
            let private = here.map(|field| (format!("{driver}:{operation}"), field.name)).collect();
            let of = |known: &&legacy::LegacySpec| {
                known.takes_uhw && legacy::operation_of(known.short_name) == operation
            };
            let Some(command) = legacy::commands().iter().find(of) else { continue };
            let request = command_with(command, driver, &bytes, |_| {});
            let mut names =
                vec![("methods", INVOKE.to_owned()), ("commands", command.short_name.to_owned())];
            if command.short_name.ends_with("CREATE_QP") {
                names.push(("qp_types", "RC".to_owned()));
            }
            all.push(Asked { request, names, private, restricted: false });
        }
    }
    all
}

/// What a profile of a file says.
#[derive(Clone, Debug)]
struct Profile {
    extends: Base,
    everything: bool,
    rdma_cm: Option<bool>,
    add: Vec<Named>,
    remove: Vec<Named>,
    /// A field of a command, and the only numbers that pass.
    fields: Vec<((&'static str, &'static str), Vec<u64>)>,
    private: Vec<(String, &'static str)>,
}

#[derive(Clone, Copy, Debug)]
enum Base {
    Nothing,
    BuiltIn(&'static str),
    /// The profile before this one.
    Before,
}

fn profiles() -> impl Strategy<Value = Vec<Profile>> {
    let names = || subsequence(NAMES.clone(), 0..=NAMES.len());
    let few = || subsequence(NAMES.clone(), 0..12);
    let base = prop_oneof![
        1 => Just(Base::Nothing),
        2 => select(vec!["standard", "hpc", "full"]).prop_map(Base::BuiltIn),
        4 => Just(Base::Before),
    ];
    let numbers = || subsequence(vec![0, 1, 2, 128], 0..=4);
    let fields = vec((select(FIELDS.clone()), numbers()), 0..6);
    let private = vec(select(PRIVATE.clone()), 0..6);
    let add = prop_oneof![1 => names(), 1 => few()];
    let remove = prop_oneof![1 => names(), 3 => few()];
    let rdma_cm = proptest::option::of(any::<bool>());
    let one = (base, prop::bool::weighted(0.1), rdma_cm, add, remove, fields, private);
    let one = one.prop_map(|(extends, everything, rdma_cm, add, remove, fields, private)| {
        Profile { extends, everything, rdma_cm, add, remove, fields, private }
    });
    vec(one, 1..5)
}

/// The text of a file.
fn text(profiles: &[Profile]) -> String {
    let mut text = "version = 1\n".to_owned();
    for (at, profile) in profiles.iter().enumerate() {
        text += &format!("[profile.p{at}]\neverything = {}\n", profile.everything);
        match profile.extends {
            Base::BuiltIn(name) => text += &format!("extends = {name:?}\n"),
            Base::Before if at > 0 => text += &format!("extends = \"p{}\"\n", at - 1),
            Base::Nothing | Base::Before => {}
        }
        text.extend(profile.rdma_cm.map(|rdma_cm| format!("rdma_cm = {rdma_cm}\n")));
        for (prefix, names) in [("", &profile.add), ("remove.", &profile.remove)] {
            for list in ["methods", "commands", "qp_types"] {
                let of = names.iter().filter(|(kind, _)| *kind == list).map(|(_, name)| name);
                text += &format!("{prefix}{list} = {:?}\n", of.collect::<Vec<_>>());
            }
        }
        let fields: BTreeMap<_, _> = profile.fields.iter().cloned().collect();
        for ((command, path), only) in fields {
            text += &format!("rules.fields.{command:?}.{path:?} = {{ only = {only:?} }}\n");
        }
        let private: BTreeMap<_, _> = profile.private.iter().map(|one| (one, ())).collect();
        for (of, field) in private.into_keys() {
            text += &format!("private.{of:?}.{field} = \"any\"\n");
        }
    }
    text
}

/// What the text grants.
#[derive(Clone, Debug, Default)]
struct Model {
    everything: bool,
    rdma_cm: bool,
    /// By name: what was said last.
    said: BTreeMap<Named, bool>,
    fields: BTreeMap<(&'static str, &'static str), Vec<u64>>,
    private: BTreeMap<(String, String), Option<toml::Value>>,
}

impl Model {
    fn built_in(name: &str) -> Self {
        let (_, text) = PROFILES.iter().find(|(known, _)| *known == name).unwrap();
        let text: toml::Table = text.parse().unwrap();
        let base = text
            .get("extends")
            .map_or_else(Self::default, |base| Self::built_in(base.as_str().unwrap()));
        let flag = |key| text.get(key).and_then(toml::Value::as_bool).unwrap_or(false);
        let mut own = Self { everything: flag("everything"), ..base };
        own.rdma_cm |= flag("rdma_cm") || own.everything;
        for list in ["methods", "commands", "qp_types"] {
            let names = text.get(list).and_then(toml::Value::as_array).into_iter().flatten();
            own.said.extend(names.map(|name| ((list, name.as_str().unwrap().to_owned()), true)));
        }
        for (of, fields) in
            text.get("private").and_then(toml::Value::as_table).into_iter().flatten()
        {
            for (field, allowed) in fields.as_table().unwrap() {
                own.private.insert((of.clone(), field.clone()), Some(allowed.clone()));
            }
        }
        own
    }

    fn of(profiles: &[Profile]) -> Self {
        profiles.iter().fold(Self::default(), |before, profile| {
            let mut own = match profile.extends {
                Base::Nothing => Self::default(),
                Base::BuiltIn(name) => Self::built_in(name),
                Base::Before => before,
            };
            own.everything |= profile.everything;
            own.rdma_cm = profile.rdma_cm.unwrap_or(own.rdma_cm || profile.everything);
            own.said.extend(profile.add.iter().map(|name| (name.clone(), true)));
            own.said.extend(profile.remove.iter().map(|name| (name.clone(), false)));
            own.fields.extend(profile.fields.iter().cloned());
            for (of, field) in &profile.private {
                own.private.insert((of.clone(), (*field).to_owned()), None);
            }
            own
        })
    }

    fn passes(&self, asked: &Asked) -> bool {
        let named = |name: &Named| self.said.get(name).copied().unwrap_or(self.everything);
        let rules = self.fields.iter().all(|((command, path), only)| {
            let of_it =
                |legacy: &verbgate_abi::request::LegacyRequest| legacy.spec.short_name == *command;
            !asked.request.legacy().is_some_and(of_it)
                || only.contains(&asked.request.legacy_field(path).unwrap())
        });
        let number = asked.request.uhw_in().iter().position(|byte| *byte != 0);
        let private = self.everything && self.private.is_empty()
            || number.is_none()
            || self.private_passes(&asked.private);
        asked.names.iter().all(named) && (!asked.restricted || self.everything) && rules && private
    }

    /// Of fields that share bytes, one that is named is enough; a field of a built-in profile may have a
    /// predicate, which the bit of these requests must pass.
    fn private_passes(&self, fields: &[(String, &'static str)]) -> bool {
        let verdicts: Vec<Option<bool>> = fields
            .iter()
            .map(|(of, field)| {
                self.private.get(&(of.clone(), (*field).to_owned())).map(|allowed| match allowed {
                    Some(toml::Value::Table(table)) => {
                        let int = |key| table.get(key).and_then(toml::Value::as_integer);
                        let only = table.get("only").and_then(toml::Value::as_array);
                        // Bits are cleared before the request is judged.
                        table.contains_key("clear_all_but")
                            || int("mask").is_some_and(|mask| mask & 1 != 0)
                            || only.is_some_and(|only| only.contains(&toml::Value::Integer(1)))
                    }
                    _ => true,
                })
            })
            .collect();
        !verdicts.contains(&Some(false)) && (self.everything || verdicts.contains(&Some(true)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_combination_of_profiles_grants_more_or_less_than_it_says(all in profiles()) {
        let policies = Policies::read(Path::new("/p/x.toml"), &text(&all)).unwrap();
        let policy = policies.profile(&format!("p{}", all.len() - 1)).unwrap();
        let model = Model::of(&all);
        prop_assert_eq!(policy.grants_rdma_cm(), model.rdma_cm);
        let standard = Policy::named("standard").unwrap();
        let (again, both) = (Policy::read_all(&policy.texts()).unwrap(), policy.clone().and(standard.clone()));
        for asked in REQUESTS.iter() {
            let denial = reason(&policy, &asked.request);
            prop_assert_eq!(denial.is_none(), model.passes(asked), "{:?}: {:?}", asked.names, denial);
            // Written and read again, it is the same; and with another, it grants what both grant.
            prop_assert_eq!(reason(&again, &asked.request), denial);
            let narrowed = denial.is_none() && reason(&standard, &asked.request).is_none();
            prop_assert_eq!(reason(&both, &asked.request).is_none(), narrowed);
        }
        for method in table::methods() {
            let named = model.said.get(&("methods", MethodSpec::full_name(method)));
            prop_assert_eq!(policy.grants_method(method), *named.unwrap_or(&model.everything));
        }
    }
}
