//! `verbgate explain`: the meanings of codes, which `diagnose` uses for statuses too.

mod codes;
mod counters;
mod line;

use std::io::Read;

use verbgate_verbs as rdma;

use self::codes::MLX5;
use self::codes::TABLE;
use crate::error::Error;

pub(crate) use self::codes::CodeEntry;
pub(crate) use self::codes::Of;
pub(crate) use self::counters::Counter;
pub(crate) use self::counters::Sign;

/// Prefixes of names in C, and what they are names of; none: of several.
const PREFIXES: &[(&str, Option<Of>)] = &[
    ("IBV_WC_", Some(Of::Completion)),
    ("IB_WC_", Some(Of::Completion)),
    ("RDMA_CM_EVENT_", Some(Of::Cm)),
    ("IBV_EVENT_", Some(Of::Event)),
    ("IB_EVENT_", Some(Of::Event)),
    ("IBV_", None),
];
/// How many names are suggested for one that is unknown.
const SUGGESTIONS: usize = 3;
/// More text than this is no excerpt of a log.
const TEXT_MAX: u64 = 1 << 20;

/// What a word or a line was found to be.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Row(&'static CodeEntry),
    /// A row of [`MLX5`].
    Mlx5(&'static (i32, bool, i32, &'static str)),
    Counter(&'static Counter),
}

impl PartialEq for Meaning {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Row(a), Self::Row(b)) => std::ptr::eq(*a, *b),
            (Self::Mlx5(a), Self::Mlx5(b)) => std::ptr::eq(*a, *b),
            (Self::Counter(a), Self::Counter(b)) => std::ptr::eq(*a, *b),
            _ => false,
        }
    }
}

/// The row of a completion's status.
pub(crate) fn completion(status: u32) -> Option<&'static CodeEntry> {
    row(Of::Completion, i32::try_from(status).ok()?)
}

/// What a completion says.
pub(crate) fn words(of: &rdma::Completion) -> String {
    let rdma::Completion { status, vendor_err, .. } = of;
    let name = completion(*status).map_or("an unknown status", |entry| entry.name);
    format!("{name} ({status}, vendor {vendor_err:#x})")
}

/// The row of a verb's errno.
pub(crate) fn verb(of: Of, errno: i32) -> Option<&'static CodeEntry> {
    row(of, errno)
}

fn row(of: Of, number: i32) -> Option<&'static CodeEntry> {
    TABLE.iter().find(|entry| entry.of == of && entry.number == number)
}

/// Decimal, or hexadecimal behind `0x`; without its sign, which kernels put before an errno.
fn number(text: &str) -> Option<i32> {
    let text = text.strip_prefix('-').unwrap_or(text);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok().filter(|number| *number >= 0),
    }
}

/// A name in capitals without its prefix, and what it is a name of, if the prefix tells.
fn bare(name: &str) -> (Option<Of>, String) {
    let name = name.trim().to_ascii_uppercase().replace([' ', '-'], "_");
    let prefix = PREFIXES.iter().find_map(|(prefix, of)| Some((name.strip_prefix(prefix)?, *of)));
    let (bare, of) = prefix.unwrap_or((&name, None));
    (of, bare.to_owned())
}

/// A name as it is compared: also without the `_ERR` and `_EXC` that people leave out.
fn plain(name: &str) -> (Option<Of>, String) {
    let (of, name) = bare(name);
    let name = name.strip_suffix("_ERR").unwrap_or(&name);
    (of, name.strip_suffix("_EXC").unwrap_or(name).to_owned())
}

/// All that one word may mean: a number, a name in any form, or a counter.
fn word(code: &str) -> Vec<Meaning> {
    let mut found = Vec::new();
    if let Some(number) = number(code) {
        // Events and stalls are not known by numbers.
        let is = |entry: &&CodeEntry| {
            entry.number == number && !matches!(entry.of, Of::Event | Of::Stall)
        };
        found.extend(TABLE.iter().filter(is).map(Meaning::Row));
        // A syndrome is written in hexadecimal; in decimal it would be a status.
        let is = |(its, vendor, ..): &&(i32, bool, i32, &str)| {
            *its == number && (*vendor || code.to_ascii_lowercase().starts_with("0x"))
        };
        found.extend(MLX5.iter().filter(is).map(Meaning::Mlx5));
        return found;
    }
    let (of, name) = plain(code);
    let is = |entry: &&CodeEntry| of.is_none_or(|of| of == entry.of) && plain(entry.name).1 == name;
    found.extend(TABLE.iter().filter(is).map(Meaning::Row));
    if found.is_empty() {
        found.extend(counters::find(code).map(Meaning::Counter));
    }
    found
}

/// A row in words.
pub(crate) fn text(entry: &CodeEntry) -> String {
    let CodeEntry { of, number, name, class, causes, remedy, counters } = entry;
    let mut text = format!("{name} ({number}), {}\n  class: {class}\n", of.words());
    for (index, cause) in causes.iter().enumerate() {
        text += &format!("  cause {}: {cause}\n", index + 1);
    }
    if !counters.is_empty() {
        text += &format!("  counters: {}\n", counters.join(", "));
    }
    text + &format!("  remedy: {remedy}\n")
}

/// Adds what is not there yet; a code of mlx5 brings its status along.
fn add(all: &mut Vec<Meaning>, found: impl IntoIterator<Item = Meaning>) {
    for meaning in found {
        if !all.contains(&meaning) {
            all.push(meaning);
        }
        if let Meaning::Mlx5((_, _, status, _)) = meaning {
            add(all, row(Of::Completion, *status).map(Meaning::Row));
        }
    }
}

impl Meaning {
    fn text(self) -> String {
        match self {
            Self::Row(entry) => text(entry),
            Self::Counter(counter) => counters::text(counter),
            Self::Mlx5((number, vendor, status, says)) => {
                let kind = if *vendor { "vendor error" } else { "syndrome" };
                let name = row(Of::Completion, *status).map_or("", |entry| entry.name);
                format!("{number:#04x} ({number}), {kind} of mlx5, with {name}\n  says: {says}\n")
            }
        }
    }
}

impl Meaning {
    fn json(self) -> serde_json::Value {
        match self {
            Self::Row(entry) => {
                let CodeEntry { of, number, name, class, causes, remedy, counters } = entry;
                serde_json::json!({
                    "kind": of.words(), "name": name, "number": number, "class": class,
                    "causes": causes, "remedy": remedy, "counters": counters,
                })
            }
            Self::Counter(counter) => counters::json(counter),
            Self::Mlx5((number, vendor, status, says)) => serde_json::json!({
                "kind": if *vendor { "vendor error of mlx5" } else { "syndrome of mlx5" },
                "name": format!("{number:#04x}"), "number": number, "says": says,
                "status": row(Of::Completion, *status).map(|entry| entry.name),
            }),
        }
    }
}

/// Known names that are much like an unknown one.
fn nearest(word: &str) -> Vec<&'static str> {
    let wanted = bare(word).1;
    let names = TABLE.iter().map(|entry| entry.name);
    let names = names.chain(counters::COUNTERS.iter().map(|counter| counter.name));
    // Whatever people leave out of a name, they may leave out of one that they misspell.
    let far = |name: &str| {
        let whole = bare(name).1;
        let middle = whole.strip_suffix("_ERR").unwrap_or(&whole);
        let forms = [&whole, middle, &plain(name).1];
        let far = forms.map(|form| strsim::damerau_levenshtein(form, &wanted));
        far.into_iter().min().unwrap_or(usize::MAX)
    };
    let most = (wanted.len() / 3).max(2);
    let mut near: Vec<(usize, &str)> =
        names.map(|name| (far(name), name)).filter(|(far, _)| *far <= most).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().map(|(_, name)| name).take(SUGGESTIONS).collect()
}

fn unknown(word: &str) -> String {
    let near = nearest(word);
    let meant = match near.is_empty() {
        true => String::new(),
        false => format!(": did you mean {}?", near.join(", ")),
    };
    format!("nothing is known of {word:?}{meant}")
}

/// `verbgate explain CODE...`: codes, names, counters and lines of logs; `-` is standard input.
pub(crate) fn run(args: &[String], json: bool) -> Result<String, Error> {
    let mut input = String::new();
    if args.iter().any(|arg| arg == "-") {
        let read = std::io::stdin().take(TEXT_MAX).read_to_string(&mut input);
        read.map_err(|error| Error::Io { what: "cannot read standard input".to_owned(), error })?;
    }
    let args: Vec<&str> = args.iter().map(|arg| if arg == "-" { &*input } else { arg }).collect();
    let (mut all, mut strange) = (Vec::new(), Vec::new());
    for arg in &args {
        let found = word(arg);
        if found.is_empty() {
            strange.push(*arg);
        }
        add(&mut all, found);
    }
    if !strange.is_empty() {
        // A line may have been pasted with quotes or without.
        let lines = args.join(" ");
        let found: Vec<Meaning> = lines.lines().flat_map(line::meanings).collect();
        if found.is_empty() {
            return Err(Error::Usage(format!(
                "{}; give a number or a name, as 12, 0x81, RETRY_EXC, IBV_EVENT_PORT_ERR, ENODEV or \
                 out_of_sequence, or a line of a log in quotes",
                strange.iter().map(|word| unknown(word)).collect::<Vec<_>>().join("; ")
            )));
        }
        // What the words of a line are one by one (`opcode`, `0`) is not meant.
        if args.iter().any(|arg| line::is_prose(arg)) {
            all.clear();
        }
        add(&mut all, found);
    }
    if json {
        let list: Vec<serde_json::Value> = all.into_iter().map(Meaning::json).collect();
        return Ok(serde_json::Value::from(list).to_string() + "\n");
    }
    Ok(all.into_iter().map(Meaning::text).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests;
