//! `verbgate abi list`: the kernel's methods as this build knows them, and the profiles that grant
//! each.

use serde::Serialize;
use verbgate_abi::legacy;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::residue;
use verbgate_abi::table;
use verbgate_abi::table::Access;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::Kernels;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::Provider;
use verbgate_host::output::print;
use verbgate_proxy::policy::PROFILES;
use verbgate_proxy::policy::Policy;
use verbgate_proxy::policy::PolicyError;

use crate::cli::AbiListArgs;
use crate::failure::Failure;

#[derive(Debug, Serialize)]
struct AbiList {
    methods: Vec<Method>,
    commands: Vec<CommandRow>,
}

#[derive(Debug, Serialize)]
struct Method {
    /// As profiles name it.
    name: String,
    object: &'static str,
    method: &'static str,
    object_id: u16,
    method_id: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<&'static str>,
    kernels: Vec<&'static str>,
    /// Profiles that grant it.
    profiles: Vec<String>,
    attributes: Vec<Attribute>,
    residue: Vec<Residue>,
}

#[derive(Debug, Serialize)]
struct Attribute {
    name: &'static str,
    id: u16,
    kind: String,
    mandatory: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<&'static str>,
    kernels: Vec<&'static str>,
}

/// An attribute that a guest could smuggle into its own request.
#[derive(Debug, Serialize)]
struct Residue {
    attribute: &'static str,
    /// Why that does no harm.
    why: String,
}

/// A legacy command.
#[derive(Debug, Serialize)]
struct CommandRow {
    /// Type of the object that it is about.
    object: &'static str,
    /// As profiles name it.
    command: &'static str,
    number: u8,
    extended: bool,
    request: Structure,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Structure>,
    kernels: Vec<&'static str>,
    profiles: Vec<String>,
    residue: Vec<Residue>,
}

#[derive(Debug, Serialize)]
struct Structure {
    name: &'static str,
    size: u16,
}

/// Checks that a profile exists: one that does not is a usage error.
pub(crate) fn profile(name: &str) -> Result<String, PolicyError> {
    Policy::named(name).map(|policy| policy.name())
}

/// Prints the table.
pub(crate) fn list(args: &AbiListArgs) -> Result<u8, Failure> {
    let profiles = PROFILES.iter().map(|(name, _)| Policy::named(name));
    let profiles = profiles.collect::<Result<Vec<_>, _>>()?;
    let abi = collect(&profiles, args.profile.as_deref());
    let text = if args.json { serde_json::to_string_pretty(&abi)? + "\n" } else { text(&abi) };
    print(&text)?;
    Ok(0)
}

/// What the profile grants; all, if none is named.
fn collect(profiles: &[Policy], only: Option<&str>) -> AbiList {
    let granting = |grants: &dyn Fn(&Policy) -> bool| -> Option<Vec<String>> {
        let granting = profiles.iter().filter(|profile| grants(profile));
        let names: Vec<_> = granting.map(|profile| profile.name()).collect();
        let wanted = only.is_none_or(|only| names.iter().any(|name| name == only));
        wanted.then_some(names)
    };
    let methods = table::methods()
        .iter()
        .filter_map(|method| Some(of_method(method, granting(&|p| p.grants_method(method))?)));
    let commands = legacy::commands()
        .iter()
        .filter_map(|command| Some(of_command(command, granting(&|p| p.grants_command(command))?)));
    AbiList { methods: methods.collect(), commands: commands.collect() }
}

fn of_method(method: &'static MethodSpec, profiles: Vec<String>) -> Method {
    let mut residue: Vec<&AttrSpec> = Vec::new();
    for attr in residue::drivers(method).into_iter().flat_map(|driver| residue::of(method, driver))
    {
        if !residue.iter().any(|known| std::ptr::eq(*known, attr)) {
            residue.push(attr);
        }
    }
    Method {
        name: method.full_name(),
        object: method.object.name(),
        method: method.short_name(),
        object_id: method.object.id.0,
        method_id: method.id.0,
        driver: driver(method.provider),
        kernels: versions(method.kernels),
        profiles,
        attributes: method.attrs.iter().map(of_attr).collect(),
        residue: explained(method, &residue),
    }
}

fn of_attr(attr: &'static AttrSpec) -> Attribute {
    Attribute {
        name: attr.short_name(),
        id: attr.id.0,
        kind: kind(attr),
        mandatory: attr.mandatory,
        driver: driver(attr.provider),
        kernels: versions(attr.kernels),
    }
}

fn of_command(command: &'static LegacySpec, profiles: Vec<String>) -> CommandRow {
    let structure =
        |spec: &'static legacy::StructSpec| Structure { name: spec.name, size: spec.size };
    let invoke = table::methods().iter().find(|method| method.is_invoke_write());
    let residue = residue::of_command(command);
    CommandRow {
        object: command.object.name(),
        command: command.short_name,
        number: command.number,
        extended: command.extended,
        request: structure(command.req),
        response: command.resp.map(structure),
        kernels: versions(command.kernels),
        profiles,
        residue: invoke.map_or_else(Vec::new, |invoke| explained(invoke, &residue)),
    }
}

fn explained(method: &MethodSpec, residue: &[&'static AttrSpec]) -> Vec<Residue> {
    let of_attr = |attr: &&'static AttrSpec| Residue {
        attribute: attr.short_name(),
        why: residue::why(method, attr).map_or_else(String::new, |why| why.to_string()),
    };
    residue.iter().map(of_attr).collect()
}

fn versions(kernels: Kernels) -> Vec<&'static str> {
    kernels.versions().collect()
}

fn driver(provider: Provider) -> Option<&'static str> {
    match provider {
        Provider::Core => None,
        Provider::Driver(driver) => driver.name(),
    }
}

/// What an attribute carries, in a few words. Numbers are bytes, of handles their count.
fn kind(attr: &AttrSpec) -> String {
    let range = |min: u16, max: u16, open: bool| match (min, max) {
        _ if open || max == u16::MAX => format!("{min}.."),
        (min, max) if min == max => format!("{min}"),
        (min, max) => format!("{min}..{max}"),
    };
    match attr.kind {
        AttrKind::PtrIn { min, max, zero_trailing, .. } => {
            format!("in {}", range(min, max, zero_trailing))
        }
        AttrKind::PtrOut { min, max, zero_trailing } => {
            format!("out {}", range(min, max, zero_trailing))
        }
        AttrKind::ConstIn => "constant".to_owned(),
        AttrKind::FlagsIn => "flags".to_owned(),
        AttrKind::EnumIn { elems } => format!("one of {}", elems.len()),
        AttrKind::Idr { object, access } => format!("{object} {}", word(access)),
        AttrKind::Fd { object, access } => format!("fd {object} {}", word(access)),
        AttrKind::RawFd => "fd".to_owned(),
        AttrKind::IdrsArray { object, access, min, max } => {
            format!("{object}[{}] {}", range(min, max, false), word(access))
        }
        AttrKind::Umem => "buffer".to_owned(),
    }
}

const fn word(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::New => "new",
        Access::Destroy => "destroy",
    }
}

fn text(abi: &AbiList) -> String {
    let mut lines = Vec::new();
    for method in &abi.methods {
        lines.push(head(&method.name, &method.kernels, &method.profiles));
        for attr in &method.attributes {
            let presence = if attr.mandatory { "mandatory" } else { "optional" };
            // Only what differs from the method's.
            let mut more = String::new();
            if attr.kernels != method.kernels {
                more += &format!(" {}", attr.kernels.join(" "));
            }
            if let Some(driver) = attr.driver.filter(|_| method.driver.is_none()) {
                more += &format!(" ({driver})");
            }
            let residue = method.residue.iter().find(|r| r.attribute == attr.name);
            if let Some(residue) = residue {
                more += &format!(" [residue: {}]", residue.why);
            }
            let Attribute { name, id, kind, .. } = attr;
            let line = format!("  {id:#06x} {name:<40} {kind:<24} {presence:<9}{more}");
            lines.push(line.trim_end().to_owned());
        }
    }
    for command in &abi.commands {
        let name = format!("{} {:#x}", command.command, command.number);
        lines.push(head(&name, &command.kernels, &command.profiles));
        let Structure { name, size } = command.request;
        let response = command.response.as_ref();
        let response = response.map_or_else(String::new, |r| format!(" -> {}[{}]", r.name, r.size));
        lines.push(format!("  {name}[{size}]{response}"));
    }
    lines.join("\n") + "\n"
}

fn head(name: &str, kernels: &[&str], profiles: &[String]) -> String {
    format!("{name:<50} {:<14} {}", kernels.join(" "), profiles.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(only: Option<&str>) -> AbiList {
        let profiles = PROFILES.map(|(name, _)| Policy::named(name).unwrap());
        collect(&profiles, only)
    }

    #[test]
    fn everything_is_listed_and_a_profile_lists_its_own() {
        let all = collected(None);
        assert_eq!(all.methods.len(), table::methods().len());
        assert_eq!(all.commands.len(), legacy::commands().len());
        let [standard, hpc, full] = ["standard", "hpc", "full"].map(|p| collected(Some(p)));
        assert!(standard.methods.len() < hpc.methods.len());
        assert!(standard.commands.len() < hpc.commands.len());
        assert_eq!(full.methods.len(), all.methods.len());
        assert!(standard.methods.iter().all(|m| m.profiles.len() == 3));
        let devx = |m: &&Method| m.object.contains("DEVX");
        assert!(all.methods.iter().any(|m| devx(&m)) && !hpc.methods.iter().any(|m| devx(&m)));
    }

    #[test]
    fn no_residue_is_without_a_reason() {
        let all = collected(None);
        let methods = all.methods.iter().flat_map(|m| &m.residue);
        let commands = all.commands.iter().flat_map(|c| &c.residue);
        assert!(methods.chain(commands).all(|residue| !residue.why.is_empty()));
    }

    #[test]
    fn lines_say_what_there_is() {
        let text = text(&collected(Some("standard")));
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(line("CQ.CQ_CREATE ").ends_with("6.1 6.12 7.2   standard hpc full"));
        assert!(!text.contains("mlx5:"), "a driver's method that nobody granted");
        assert!(line("  0x000c CREATE_CQ_BUF_UMEM").ends_with("optional  7.2"));
        assert!(line("  0x1002 CREATE_CQ_UAR_INDEX").contains("6.12 7.2 (mlx5)"));
        assert!(line("  0x000a CREATE_SRQ_EVENT_FD").contains("[residue: "));
        assert!(line("EX_CREATE_QP 0x18").contains("standard"));
        assert!(!text.contains("RAW_PACKET") && !text.contains("OPEN_XRCD"));
    }
}
