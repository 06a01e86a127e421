//! Mutations: ways to make a valid request wrong.

use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::HDR_LEN;
use verbgate_abi::wire::IoctlHdr;

use super::borders::KEPT;
use super::borders::LENGTHS;
use super::borders::cap;
use super::borders::interesting;
use super::draft::Bytes;
use super::draft::Draft;
use super::draft::Field;
use super::draft::Form;
use super::draft::IMAGE;
use super::draft::NOWHERE;
use super::draft::OUT;
use super::draft::On;
use super::draft::Part;
use super::draft::READ_ONLY;
use super::draft::REGION;
use super::draft::SlotId;
use super::draft::Value;
use verbgate_hostile::Random;

/// Changes a request in one way, and says so in its name.
pub fn mutate(rng: &mut Random, draft: &mut Draft, channel: SlotId) {
    let what = match rng.below(20) {
        0 => misplace(rng, draft),
        1 => elsewhere(rng, draft, channel),
        2..=9 if !draft.fields.is_empty() => field(rng, draft),
        _ => match &mut draft.form {
            Form::Ioctl(..) if rng.percent(6) => flip(rng, draft),
            Form::Ioctl(hdr, _) if rng.percent(12) => {
                let what = header(rng, hdr);
                draft.raw_lengths |= what == "length" || what == "num_attrs";
                what
            }
            Form::Ioctl(_, parts) => attributes(rng, parts),
            Form::Write(bytes) => {
                let (what, longer) = command(rng, bytes);
                draft.longer += longer;
                what
            }
        },
    };
    draft.name.push('~');
    draft.name.push_str(what);
}

/// The address that the call is given.
fn misplace(rng: &mut Random, draft: &mut Draft) -> &'static str {
    match rng.below(5) {
        0 => {
            draft.arg = Some(0);
            "null"
        }
        1 => {
            draft.arg = Some(NOWHERE);
            "nowhere"
        }
        2 => {
            draft.shift = 1 + rng.draw() % 7;
            "unaligned"
        }
        3 => {
            draft.arg = Some(rng.pick(&[u64::MAX, 1 << 63, IMAGE + REGION]).copied().unwrap_or(0));
            "no-address"
        }
        _ => {
            draft.straddle = Some(rng.below(160));
            "straddles"
        }
    }
}

/// Another descriptor.
fn elsewhere(rng: &mut Random, draft: &mut Draft, channel: SlotId) -> &'static str {
    match rng.below(3) {
        0 => {
            draft.on = On::Ucontext(1);
            "no-ucontext"
        }
        1 => {
            draft.on = On::Slot(channel);
            "on-channel"
        }
        _ => {
            draft.on = On::Nothing;
            "on-nothing"
        }
    }
}

/// A field of a legacy command.
fn field(rng: &mut Random, draft: &mut Draft) -> &'static str {
    let free: Vec<Field> = draft
        .fields
        .iter()
        .filter(|field| !KEPT.iter().any(|(name, _)| *name == field.name))
        .copied()
        .collect();
    let Some(field) = rng.pick(&free).copied() else { return "nothing" };
    let value = match field.name {
        "response" => pointer(rng, OUT),
        _ => interesting(rng, field.name),
    };
    let bytes = match &mut draft.form {
        Form::Write(bytes) => Some(bytes),
        Form::Ioctl(_, parts) => parts.iter_mut().find_map(|part| match &mut part.value {
            Value::Input(bytes) if part.name == "CORE_IN" => Some(bytes),
            _ => None,
        }),
    };
    if let Some(bytes) = bytes {
        // Of a field longer than a word, one byte, so that reserved ones are found out everywhere.
        let (start, len) =
            if field.size > 8 { (rng.below(field.size), 1) } else { (0, field.size) };
        let value = value.to_ne_bytes();
        let value = value.get(..len).unwrap_or(&value);
        bytes.set(draft.core_at + field.offset + start, value);
    }
    field.name
}

/// An address for an output or input, mostly wrong.
fn pointer(rng: &mut Random, right: u64) -> u64 {
    let wrong = [
        0,
        1,
        NOWHERE,
        READ_ONLY,
        OUT + REGION,
        // Part of what is there can be written.
        OUT + REGION - 4,
        OUT + REGION - 32,
        right.wrapping_add(1),
        right.wrapping_add(4),
        1 << 63,
        u64::MAX,
        0xffff_8000_0000_0000,
    ];
    rng.pick(&wrong).copied().unwrap_or(right)
}

/// Bits of header and array.
fn flip(rng: &mut Random, draft: &mut Draft) -> &'static str {
    let Form::Ioctl(_, parts) = &draft.form else { return "nothing" };
    let index = rng.below(parts.len() + 2);
    // Of an attribute that is capped only the head.
    let capped = index.checked_sub(2).and_then(|index| parts.get(index));
    let words = match capped {
        Some(part) if cap(part.name) != u64::MAX => 64,
        _ => 128,
    };
    let start = match index.checked_sub(2) {
        Some(index) => 8 * (HDR_LEN + ATTR_LEN * index),
        None => 8 * 12 * index,
    };
    draft.flips.push(start + rng.below(if index < 2 { 96 } else { words }));
    "flip"
}

fn header(rng: &mut Random, hdr: &mut IoctlHdr) -> &'static str {
    let small = u16::try_from(rng.below(20)).unwrap_or_default();
    let odd = rng.pick(&LENGTHS).copied().unwrap_or_default();
    match rng.below(8) {
        0 => {
            hdr.length = if rng.percent(50) { odd } else { 24 + 16 * small };
            "length"
        }
        1 => {
            hdr.num_attrs = if rng.percent(50) { odd } else { small };
            "num_attrs"
        }
        2 => {
            hdr.object_id = if rng.percent(70) { small } else { 0x1000 | small };
            "object_id"
        }
        3 => {
            hdr.method_id = if rng.percent(70) { small } else { 0x1000 | small };
            "method_id"
        }
        4 => {
            hdr.driver_id = u32::from(small);
            "driver_id"
        }
        5 => {
            hdr.reserved1 = 1 << rng.below(64);
            "reserved1"
        }
        6 => {
            hdr.reserved2 = 1 << rng.below(32);
            "reserved2"
        }
        _ => {
            hdr.driver_id |= 1 << 31;
            "driver_id-high"
        }
    }
}

/// The array of attributes.
fn attributes(rng: &mut Random, parts: &mut Vec<Part>) -> &'static str {
    let at = rng.below(parts.len());
    let other = rng.below(parts.len());
    if parts.is_empty() {
        parts.push(unknown(rng));
        return "unknown";
    }
    match rng.below(14) {
        0 => {
            parts.remove(at);
            "dropped"
        }
        1 => {
            let again = parts.get(at).cloned();
            parts.extend(again);
            "duplicate"
        }
        2 | 3 => {
            parts.swap(at, other);
            "swapped"
        }
        4 => {
            parts.insert(at, unknown(rng));
            "unknown"
        }
        5 => {
            for _ in 0..rng.below(280) {
                parts.push(unknown(rng));
            }
            "crowd"
        }
        _ => parts.get_mut(at).map_or("nothing", |part| attribute(rng, part)),
    }
}

/// An attribute that no method has.
fn unknown(rng: &mut Random) -> Part {
    let ids = [0x77, 0x0ffe, 0x1077, 0x1fff, 0xffff];
    let attr = Attr {
        attr_id: rng.pick(&ids).copied().unwrap_or_default(),
        len: rng.pick(&LENGTHS).copied().unwrap_or_default(),
        flags: u16::from(rng.percent(30)),
        ..Attr::default()
    };
    Part { name: "unknown", attr, value: Value::Word(rng.draw()) }
}

/// One attribute.
fn attribute(rng: &mut Random, part: &mut Part) -> &'static str {
    let attr = &mut part.attr;
    match rng.below(10) {
        0 => {
            attr.attr_id = u16::try_from(rng.below(24)).unwrap_or_default();
            "attr_id"
        }
        1 => {
            attr.attr_id ^= 0x1000;
            "attr_id-driver"
        }
        2 => {
            attr.len = rng.pick(&LENGTHS).copied().unwrap_or_default();
            "len"
        }
        3 => {
            let less = rng.percent(50);
            attr.len = if less { attr.len.wrapping_sub(1) } else { attr.len.wrapping_add(1) };
            "len-by-one"
        }
        4 => {
            attr.flags = u16::try_from(rng.below(0x1_0000)).unwrap_or_default();
            "flags"
        }
        5 => {
            attr.attr_data = 1 << rng.below(16);
            "attr_data"
        }
        6 => {
            if let Value::Input(input) = &mut part.value {
                resize(rng, input);
                attr.len = u16::try_from(input.bytes.len()).unwrap_or(u16::MAX);
            }
            "resized"
        }
        _ => {
            part.value = match &mut part.value {
                Value::Input(input) if input.bytes.len() > 8 && rng.percent(50) => {
                    Value::Word(pointer(rng, OUT))
                }
                Value::Input(input) if part.name != "CORE_IN" => {
                    let value = interesting(rng, part.name).to_ne_bytes();
                    // What is behind a pointer is words of 32 bits with caps of their own.
                    if input.bytes.len() <= 8 {
                        input.set(0, &value);
                    } else {
                        let word = rng.below(input.bytes.len() / 4);
                        let small = u32::try_from(rng.below(600)).unwrap_or_default();
                        input.set(4 * word, &small.to_ne_bytes());
                    }
                    part.value.clone()
                }
                Value::Word(word) if *word >= IMAGE && *word < READ_ONLY => {
                    Value::Word(pointer(rng, *word))
                }
                Value::Word(_) | Value::Slot(_) => Value::Word(interesting(rng, part.name)),
                Value::Input(_) => part.value.clone(),
            };
            "value"
        }
    }
}

fn resize(rng: &mut Random, input: &mut Bytes) {
    let len = input.bytes.len();
    let fill = if rng.percent(60) { 0 } else { 1 };
    match rng.below(4) {
        0 => input.resize(rng.below(len + 1), 0),
        1 => input.resize(len + 1 + rng.below(16), fill),
        2 => input.resize(len + 8 * (1 + rng.below(8)), fill),
        _ => input.resize(len + rng.below(3000), fill),
    }
}

/// What `write(2)` is given; also by how much its length is told wrong.
fn command(rng: &mut Random, bytes: &mut Bytes) -> (&'static str, i64) {
    let word = |bytes: &Bytes, at: usize| {
        let pair = bytes.bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
        pair.map_or(0, |pair| u16::from_ne_bytes(*pair))
    };
    match rng.below(9) {
        0 => {
            bytes.set(0, &[u8::try_from(rng.below(70)).unwrap_or_default()]);
            ("command", 0)
        }
        1 => {
            let bit = rng.below(32);
            if let Some(byte) = bytes.bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            ("command-bit", 0)
        }
        2 | 3 => {
            let at = 4 + 2 * rng.below(2);
            let wrong = match rng.below(4) {
                0 => 0,
                1 => word(bytes, at).wrapping_add(1),
                2 => word(bytes, at).wrapping_sub(1),
                _ => rng.pick(&LENGTHS).copied().unwrap_or_default(),
            };
            bytes.set(at, &wrong.to_ne_bytes());
            ("words", 0)
        }
        // The response of a plain command is here, and of an extended one its header.
        4 => {
            let address = pointer(rng, OUT).to_ne_bytes();
            bytes.set(8, &address);
            ("at-8", 0)
        }
        5 => {
            let at = 16 + 2 * rng.below(4);
            let small = u16::try_from(rng.below(5)).unwrap_or_default();
            bytes.set(at, &small.to_ne_bytes());
            ("at-16", 0)
        }
        6 => {
            let by = i64::try_from(rng.below(33)).unwrap_or_default() - 16;
            ("count", by)
        }
        7 => {
            let len = rng.below(bytes.bytes.len() + 1);
            bytes.resize(len, 0);
            ("cut", 0)
        }
        _ => {
            // Longer, and the header says so.
            let more = 8 * (1 + rng.below(4));
            let len = bytes.bytes.len();
            let fill = u8::from(rng.percent(40));
            bytes.resize(len + more, fill);
            let per_word = if word(bytes, 2) & 0x8000 == 0 { 4 } else { 8 };
            let words = usize::from(word(bytes, 4)) + more / per_word;
            bytes.set(4, &u16::try_from(words).unwrap_or(u16::MAX).to_ne_bytes());
            ("longer", 0)
        }
    }
}
