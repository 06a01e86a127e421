//! Border values, which are worth trying, and values that are not.

use verbgate_hostile::Random;

/// Values at the borders of rules.
const INTERESTING: [u64; 20] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    16,
    0x20,
    0xff,
    0x1000,
    0x1001,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    1 << 63,
    u64::MAX,
];

/// Lengths at the borders of rules.
pub(super) const LENGTHS: [u16; 14] =
    [0, 1, 4, 7, 8, 9, 12, 16, 24, 32, 48, 0x1000, 0x4001, 0xffff];

/// Fields and attributes that keep small values, or get one that no device takes: in between lies
/// what the kernel would do.
#[rustfmt::skip]
const CAPPED: &[(&str, u64, &str)] = &[
    ("cqe", 4096, "the kernel allocates a queue of so many"),
    ("CQE", 4096, "the kernel allocates a queue of so many"),
    ("max_wr", 4096, "the kernel allocates a queue of so many"),
    ("MAX_WR", 4096, "the kernel allocates a queue of so many"),
    ("max_send_wr", 4096, "the kernel allocates a queue of so many"),
    ("max_recv_wr", 4096, "the kernel allocates a queue of so many"),
    ("max_send_sge", 64, "it multiplies the size of a queue"),
    ("max_recv_sge", 64, "it multiplies the size of a queue"),
    ("max_sge", 64, "it multiplies the size of a queue"),
    ("MAX_SGE", 64, "it multiplies the size of a queue"),
    ("max_inline_data", 512, "it multiplies the size of a queue"),
    ("length", 0x10_0000, "an on-demand region allocates a word for each page"),
    ("LENGTH", 0x10_0000, "an on-demand region allocates a word for each page"),
    ("ne", 64, "the native kernel writes so many completions, whatever the length"),
    ("log_ind_tbl_size", 8, "the kernel allocates a table of so many"),
];

/// Fields that are left as they are.
#[rustfmt::skip]
pub(super) const KEPT: &[(&str, &str)] = &[
    ("dgid", "the kernel waits a second for the neighbour to answer"),
    ("sgid_index", "from another address the neighbour may not answer, which takes a second"),
    ("hop_limit", "with 0 or 1 the neighbour is looked for on the link, which takes a second"),
];

pub(super) fn cap(name: &str) -> u64 {
    let ends = |known: &str| {
        name == known || name.strip_suffix(known).is_some_and(|rest| rest.ends_with('_'))
    };
    CAPPED.iter().find(|(known, ..)| ends(known)).map_or(u64::MAX, |(_, cap, _)| *cap)
}

pub(super) fn interesting(rng: &mut Random, name: &str) -> u64 {
    let value = match rng.below(4) {
        0 => rng.draw() >> rng.below(64),
        _ => rng.pick(&INTERESTING).copied().unwrap_or_default(),
    };
    let cap = cap(name);
    // More than any device has is refused at once, but for lengths.
    let is_length = name.ends_with("length") || name.ends_with("LENGTH");
    if value <= cap || (value & 0xffff_ffff == 0xffff_ffff && !is_length) {
        value
    } else {
        value % (cap + 1)
    }
}
