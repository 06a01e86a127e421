//! Codes in the log lines of NCCL, UCX, perftest and the kernel.

use std::sync::LazyLock;

use regex_lite::Regex;

use super::Meaning;
use super::codes::CodeEntry;
use super::codes::ERRNOS;
use super::codes::MLX5;
use super::codes::Of;
use super::codes::PHRASES;
use super::codes::TABLE;
use super::number;
use super::row;
use super::word;

/// What a number is that follows such words.
#[derive(Clone, Copy, Debug)]
enum NumberKind {
    Status,
    Mlx5,
    Errno,
}

/// What comes before numbers. NCCL: `status=12 opcode=0 len=0 vendor err 129`, `error 12, opcode 1`;
/// perftest: `Failed status 12: wr_id 0 syndrom 0x81`; UCX: `synd 0x15 vend 0x81`; the kernel:
/// `syndrome 0x5, vendor syndrome 0xf9`, `WC error: 12`; verbs: `failed with 110`, `errno 22`.
const PATTERNS: &[(NumberKind, &str)] = &[
    (NumberKind::Status, r"(?i)\bstatus\s*[=: ]\s*([0-9]+)\b"),
    (NumberKind::Status, r"(?i)\berror\s+([0-9]+),\s*opcode\b"),
    (NumberKind::Status, r"(?i)\bwc error:?\s*([0-9]+)\b"),
    (
        NumberKind::Mlx5,
        r"(?i)\bvend(?:or)?(?:[_ ](?:err(?:or)?|syndrome?|err_synd))?\s*[=:]?\s*(0x[0-9a-f]+|[0-9]+)\b",
    ),
    (NumberKind::Mlx5, r"(?i)\bsynd(?:rome?)?\s*[=:]?\s*\(?(0x[0-9a-f]+)\b"),
    (NumberKind::Errno, r"(?i)\b(?:failed with|errno|error)\s*(?:error\s*)?[=:]?\s*(-?[0-9]+)\b"),
];

static EXPRESSIONS: LazyLock<Vec<(NumberKind, Regex)>> = LazyLock::new(|| {
    PATTERNS.iter().filter_map(|(kind, text)| Some((*kind, Regex::new(text).ok()?))).collect()
});

/// Words that make `status 12` the status of a completion, and not of a process.
const OF_COMPLETIONS: &[&str] = &["completion", "opcode", "wr_id", "vend", "synd", "wc ", "cqe"];

/// Whether an argument is a part of a line, not a code.
pub(super) fn is_prose(arg: &str) -> bool {
    arg.contains([' ', '=', ':', '(', '\n'])
        || !arg.contains(|c: char| c.is_ascii_digit() || c == '_')
}

/// All that a line tells, in the order of its kinds.
pub(super) fn meanings(line: &str) -> Vec<Meaning> {
    let lower = line.to_ascii_lowercase();
    let mut found = Vec::new();
    for (kind, expression) in EXPRESSIONS.iter() {
        let numbers = expression.captures_iter(line).filter_map(|of| number(of.get(1)?.as_str()));
        numbers.for_each(|number| found.extend(of_number(*kind, number, &lower)));
    }
    let phrases = PHRASES.iter().filter(|(.., phrase)| lower.contains(phrase));
    found.extend(phrases.filter_map(|(of, number, _)| Some(Meaning::Row(row(*of, *number)?))));
    let errnos = ERRNOS.iter().filter(|(_, phrase)| lower.contains(phrase));
    errnos.for_each(|(errno, _)| found.extend(of_number(NumberKind::Errno, *errno, &lower)));
    let parts = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '/');
    found.extend(parts.filter(|part| is_name(part)).flat_map(word));
    found
}

fn of_number(kind: NumberKind, number: i32, line: &str) -> Vec<Meaning> {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    match kind {
        NumberKind::Status if has(OF_COMPLETIONS) => {
            row(Of::Completion, number).map(Meaning::Row).into_iter().collect()
        }
        NumberKind::Status => Vec::new(),
        NumberKind::Mlx5 => {
            MLX5.iter().filter(|(its, ..)| *its == number).map(Meaning::Mlx5).collect()
        }
        NumberKind::Errno => {
            // Which verb it is of decides what it means.
            let of = match (has(&["modify_qp", "rtr"]), has(&["reg_mr", "regist", "memlock"])) {
                (true, _) => Some(Of::Rtr),
                (_, true) => Some(Of::RegMr),
                _ => None,
            };
            let is = |entry: &&CodeEntry| {
                matches!(entry.of, Of::Rtr | Of::RegMr)
                    && of.is_none_or(|of| of == entry.of)
                    && entry.number == number
            };
            let known = has(&["ibv_", "rdma_", "errno", "qp", "mr"]) || of.is_some();
            TABLE.iter().filter(|_| known).filter(is).map(Meaning::Row).collect()
        }
    }
}

/// Whether a word of a line can be a name: as C and sysfs write them.
fn is_name(word: &str) -> bool {
    let of_c = word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let errno = of_c && word.starts_with('E') && word.len() > 3;
    let event = of_c && word.len() > 7;
    word.contains('_') || errno || event
}
