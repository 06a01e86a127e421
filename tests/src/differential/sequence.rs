//! The sequence of requests that a seed stands for.
//!
//! A sequence is made of rounds. A round opens the device again, makes one object of each kind,
//! then makes requests at random, and in the end asks the kernel which objects there are. So the
//! effects of a request show in the requests behind it, and no further than the request's round.

use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::table;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::ObjectClass;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::MethodId;

use super::catalogue::Catalogue;
use super::catalogue::Device;
use super::catalogue::Way;
use super::catalogue::slot;
use super::draft::Bytes;
use super::draft::Draft;
use super::draft::Form;
use super::draft::Value;
use super::mutate::mutate;
use verbgate_hostile::Random;

/// Requests at random in a round.
const RANDOM: usize = 80;

/// The commands that make what most others need, in their order.
const SETUP: [&str; 8] = [
    "ALLOC_PD",
    "CREATE_COMP_CHANNEL",
    "EX_CREATE_CQ",
    "CREATE_SRQ",
    "CREATE_QP",
    "REG_MR",
    "CREATE_AH",
    "ALLOC_MW",
];

/// What can be asked for, by way.
#[derive(Debug)]
struct Kinds {
    methods: Vec<&'static MethodSpec>,
    commands: &'static [LegacySpec],
}

/// A round: lines of a script, the first of which is `open`.
pub fn round(device: &Device, seed: u64, number: usize) -> Vec<String> {
    let mut rng = Random::new(seed);
    // Rounds are independent, so that one can be repeated alone.
    let offset = rng.draw().wrapping_add(u64::try_from(number).unwrap_or(u64::MAX));
    let mut rng = Random::new(offset);
    let rng = &mut rng;
    let kinds = Kinds { methods: Catalogue::methods(), commands: legacy::commands() };
    let setup = Catalogue { device, first: true, optional: 0 };
    let random = Catalogue { device, first: false, optional: 25 };
    let channel = slot(ids::UVERBS_OBJECT_COMP_CHANNEL, 0);
    let mut lines = vec!["open".to_owned()];

    // Now and then a request before there is a ucontext.
    if rng.percent(30) {
        let mut draft = any(rng, &random, &kinds);
        mutate(rng, &mut draft, channel);
        lines.push(draft.line());
    }
    lines.push(context(rng, &setup, &kinds).line());
    for name in SETUP {
        if let Some(spec) = kinds.commands.iter().find(|spec| spec.short_name == name) {
            let way = way(rng);
            lines.push(setup.command(rng, spec, way).line());
        }
    }
    for _ in 0..RANDOM {
        let mut draft = any(rng, &random, &kinds);
        if rng.percent(75) {
            mutate(rng, &mut draft, channel);
            if rng.percent(15) {
                mutate(rng, &mut draft, channel);
            }
        }
        lines.push(draft.line());
    }
    lines.extend(what_exists(rng, &Catalogue { optional: 100, ..setup }));
    lines
}

fn way(rng: &mut Random) -> Way {
    if rng.percent(50) { Way::Invoke } else { Way::Write }
}

fn device_method(id: MethodId) -> Option<&'static MethodSpec> {
    table::method(ids::UVERBS_OBJECT_DEVICE.id, id, DriverId::UNKNOWN)
}

/// The request that makes a ucontext, in one of its forms.
fn context(rng: &mut Random, catalogue: &Catalogue<'_>, kinds: &Kinds) -> Draft {
    let method = device_method(ids::UVERBS_METHOD_GET_CONTEXT);
    let command = kinds.commands.iter().find(|spec| spec.creates_ucontext);
    match (method, command) {
        (Some(method), Some(_)) if catalogue.device.context_by_method => {
            catalogue.method(rng, method)
        }
        (Some(method), Some(command)) => match rng.below(3) {
            0 => catalogue.method(rng, method),
            1 => catalogue.command(rng, command, Way::Invoke),
            _ => catalogue.command(rng, command, Way::Write),
        },
        _ => Draft::new("nothing".to_owned(), Form::Write(Bytes::default())),
    }
}

fn any(rng: &mut Random, catalogue: &Catalogue<'_>, kinds: &Kinds) -> Draft {
    let command = rng.pick(kinds.commands);
    match (rng.percent(40), rng.pick(&kinds.methods), command) {
        (false, _, Some(command)) => {
            let way = way(rng);
            catalogue.command(rng, command, way)
        }
        (_, Some(method), _) => catalogue.method(rng, method),
        _ => Draft::new("nothing".to_owned(), Form::Write(Bytes::default())),
    }
}

/// Asks for the handles of each kind.
fn what_exists(rng: &mut Random, catalogue: &Catalogue<'_>) -> Vec<String> {
    let Some(info) = device_method(ids::UVERBS_METHOD_INFO_HANDLES) else { return Vec::new() };
    let core = table::objects().iter().filter(|o| o.object.provider == Provider::Core);
    let kinds = core.filter(|o| o.class == ObjectClass::Idr);
    let ask = |object: &table::ObjectSpec| {
        let mut draft = catalogue.method(rng, info);
        draft.name = format!("exist.{}", object.short_name());
        if let Form::Ioctl(_, parts) = &mut draft.form {
            for part in parts.iter_mut() {
                if part.name == "UVERBS_ATTR_INFO_OBJECT_ID" {
                    part.value = Value::Word(object.object.id.0.into());
                }
            }
        }
        draft.line()
    };
    kinds.map(ask).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::differential::SEED;

    const DEVICE: Device =
        Device { driver: DriverId::RXE, gid: [7; 16], gid_index: 1, context_by_method: false };

    #[test]
    fn a_round_is_the_same_every_time_and_rounds_differ() {
        let rounds: Vec<_> = (0..20).map(|number| round(&DEVICE, SEED, number)).collect();
        assert_eq!(rounds[3], round(&DEVICE, SEED, 3));
        assert_ne!(rounds[3], round(&DEVICE, SEED + 1000, 3));
        let lines: BTreeSet<&String> = rounds.iter().flatten().collect();
        let all: usize = rounds.iter().map(Vec::len).sum();
        assert!(lines.len() > all * 2 / 3, "{} of {all}", lines.len());
    }

    #[test]
    fn every_method_and_command_is_asked_for_in_every_way() {
        let lines: Vec<_> = (0..150).flat_map(|number| round(&DEVICE, SEED, number)).collect();
        let names: BTreeSet<&str> =
            lines.iter().filter_map(|line| line.split(' ').nth(1)?.split('~').next()).collect();
        for method in Catalogue::methods() {
            let name = format!("{}.{}", method.object.name(), method.short_name());
            assert!(names.contains(name.as_str()), "{name}");
        }
        for command in legacy::commands() {
            for way in ["invoke", "write"] {
                let name = format!("{way}.{}", command.short_name);
                assert!(names.contains(name.as_str()), "{name}");
            }
        }
    }
}
