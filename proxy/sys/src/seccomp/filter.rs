//! The filter that every guest thread runs under.
//!
//! The table [`rules`] says which calls the filter sends to the supervisor and which calls the
//! filter refuses, with the reasons. All arguments that the filter judges are scalars: the filter
//! cannot read memory, and no decision depends on memory.

use std::collections::BTreeMap;

use super::bpf::AssembleError;
use super::bpf::Assembler;
use super::bpf::Label;
use super::bpf::RET_ALLOW;
use super::bpf::RET_ERRNO;
use super::bpf::RET_USER_NOTIF;
use super::bpf::SockFilter;
use super::bpf::data::ARCH;
use super::bpf::data::NR;
use super::bpf::data::arg_hi;
use super::bpf::data::arg_lo;
use super::calls;
use super::rules;
use super::rules::Rule;
use super::rules::Verdict;
use super::rules::When;
use super::rules::Word;
use crate::arch::Arch;
use crate::arch::stub_fd;
use crate::window::AddrWindow;
use crate::window::FdWindow;

const ENOSYS: u32 = 38;
/// The bits of an address's upper word that the kernel looks at. It takes others for a tag: the top byte on arm64
/// (Documentation/arch/arm64/tagged-address-abi.rst), bits 57 to 62 with LAM; no address of a program has them.
const ADDRESS: u32 = 0x00ff_ffff;
/// The bit that MAP_SHARED and MAP_SHARED_VALIDATE have in common, and MAP_PRIVATE has not.
const SHARES: u32 = 0x1;
const ANONYMOUS: u32 = 0x20;

/// Where a judgement ends.
struct Verdicts {
    allow: Label,
    notify: Label,
    /// Of calls that fail, by errno.
    fail: BTreeMap<u32, Label>,
}

impl Verdicts {
    fn of(&mut self, asm: &mut Assembler, verdict: Verdict) -> Label {
        match verdict {
            Verdict::Notify => self.notify,
            Verdict::Fail(errno) => *self.fail.entry(errno).or_insert_with(|| asm.label()),
        }
    }
}

/// Judgements that several calls share, each placed once.
struct Shared {
    /// Of a descriptor number, by the argument that it is.
    fds: BTreeMap<u32, Label>,
    /// Of a range of addresses, by the arguments that it is.
    ranges: BTreeMap<(u32, u32), Label>,
}

/// The filter of one sandbox.
///
/// # Errors
/// Never in practice: a rule list that grew past what jumps can express is found by the tests.
pub fn program<A: Arch>(
    addrs: AddrWindow,
    fds: FdWindow,
) -> Result<Vec<SockFilter>, AssembleError> {
    with::<A>(addrs, fds, false)
}

/// The filter of one sandbox; `compat`: programs of the processor's 32-bit kind run there, without RDMA.
///
/// # Errors
/// As for [`program`].
pub fn with<A: Arch>(
    addrs: AddrWindow,
    fds: FdWindow,
    compat: bool,
) -> Result<Vec<SockFilter>, AssembleError> {
    let mut asm = Assembler::default();
    asm.load(ARCH);
    let (native, other) = (asm.label(), asm.label());
    asm.if_eq(A::AUDIT, native);
    // Calls by other numbers: those of IA32 and AArch32.
    if compat {
        asm.if_eq(A::COMPAT, other);
    }
    asm.ret(RET_ERRNO | ENOSYS);
    let after = asm.label();
    if compat {
        asm.place(other);
        asm.goto(after);
    }
    asm.place(native);
    abi(&mut asm, &calls::of(A::AUDIT), &rules::native::<A>(), (addrs, fds));
    if compat {
        asm.place(after);
        abi(&mut asm, &calls::of(A::COMPAT), &rules::compat::<A>(), (addrs, fds));
    }
    asm.assemble()
}

/// The judgement of one ABI's calls.
fn abi(
    asm: &mut Assembler,
    calls: &[(u32, &str)],
    rules: &[Rule],
    (addrs, fds): (AddrWindow, FdWindow),
) {
    let (allow, notify, unknown) = (asm.label(), asm.label(), asm.label());
    let mut ends = Verdicts { allow, notify, fail: BTreeMap::new() };
    let mut shared = Shared { fds: BTreeMap::new(), ranges: BTreeMap::new() };
    asm.load(NR);
    let groups: Vec<&[Rule]> = rules.chunk_by(|a, b| a.nr == b.nr).collect();
    // From each of these numbers on, up to the next one.
    let mut turns = vec![(0, unknown)];
    let mut turn = |from: u32, to: Label| match turns.last_mut() {
        Some((at, label)) if *at == from => *label = to,
        _ => turns.push((from, to)),
    };
    let mut bodies = Vec::new();
    for (nr, _) in calls.iter().copied() {
        let rules = groups.iter().find(|rules| rules.first().is_some_and(|rule| rule.nr == nr));
        let to = match rules {
            Some(rules) => match alone(asm, rules, &mut ends, &mut shared) {
                Some(to) => to,
                None => {
                    let body = asm.label();
                    bodies.push((body, *rules));
                    body
                }
            },
            None => allow,
        };
        turn(nr, to);
        turn(nr + 1, unknown);
    }
    turns.dedup_by_key(|(_, to)| *to);
    tree(asm, &turns);
    for (label, rules) in bodies {
        asm.place(label);
        call(asm, rules, (addrs, fds), &mut ends, &mut shared);
    }
    for (arg, label) in shared.fds {
        asm.place(label);
        asm.load(arg_lo(arg));
        asm.if_lt(fds.first, allow);
        asm.if_lt(fds.end(), notify);
        asm.goto(allow);
    }
    for (range, label) in shared.ranges {
        asm.place(label);
        touches(asm, addrs, range, &ends, allow);
    }
    asm.place(unknown);
    asm.ret(RET_ERRNO | ENOSYS);
    for (errno, label) in ends.fail {
        asm.place(label);
        asm.ret(RET_ERRNO | errno);
    }
    asm.place(notify);
    asm.ret(RET_USER_NOTIF);
    asm.place(allow);
    asm.ret(RET_ALLOW);
}

/// Goes to the label of the last number that is not above the one in the accumulator.
fn tree(asm: &mut Assembler, turns: &[(u32, Label)]) {
    match turns {
        [] => {}
        [(_, to)] => asm.goto(*to),
        _ => {
            let (left, right) = turns.split_at(turns.len() / 2);
            let above = asm.label();
            asm.if_ge(right.first().map_or(u32::MAX, |(from, _)| *from), above);
            tree(asm, left);
            asm.place(above);
            tree(asm, right);
        }
    }
}

/// The judgement that is all of a system call's rules, if that is shared with others.
fn alone(
    asm: &mut Assembler,
    rules: &[Rule],
    ends: &mut Verdicts,
    shared: &mut Shared,
) -> Option<Label> {
    let [Rule { when, verdict, .. }] = rules else { return None };
    match (*when, *verdict) {
        (When::Always, verdict) => Some(ends.of(asm, verdict)),
        (When::Fd(arg), Verdict::Notify) => {
            Some(*shared.fds.entry(arg).or_insert_with(|| asm.label()))
        }
        (When::Range { addr, len }, Verdict::Notify) => {
            Some(*shared.ranges.entry((addr, len)).or_insert_with(|| asm.label()))
        }
        _ => None,
    }
}

/// The rules for one system call.
fn call(
    asm: &mut Assembler,
    rules: &[Rule],
    (addrs, fds): (AddrWindow, FdWindow),
    ends: &mut Verdicts,
    shared: &mut Shared,
) {
    for (at, rule) in rules.iter().enumerate() {
        if let (When::Range { addr, len }, Verdict::Notify) = (rule.when, rule.verdict)
            && at + 1 == rules.len()
        {
            let range = *shared.ranges.entry((addr, len)).or_insert_with(|| asm.label());
            return asm.goto(range);
        }
        let (next, end) = (asm.label(), ends.of(asm, rule.verdict));
        match rule.when {
            When::Always => asm.goto(end),
            When::Words(words) => {
                if let Some((last, first)) = words.split_last() {
                    compare(asm, first, next);
                    load(asm, last);
                    asm.if_eq(last.value, end);
                }
            }
            When::FdWords(arg, words) => {
                compare(asm, words, next);
                asm.load(arg_lo(arg));
                asm.if_lt(fds.first, next);
                asm.if_lt(fds.end(), end);
            }
            When::Fd(arg) => {
                asm.load(arg_lo(arg));
                asm.if_lt(fds.first, next);
                asm.if_lt(fds.end(), end);
            }
            When::FdRange => {
                asm.load(arg_lo(0));
                asm.if_ge(fds.end(), next);
                asm.load(arg_lo(1));
                asm.if_ge(fds.first, end);
            }
            When::SharesFile => {
                asm.load(arg_lo(3));
                asm.and(SHARES | ANONYMOUS);
                asm.if_ne(SHARES, next);
                asm.load(arg_lo(4));
                asm.if_ne(stub_fd::UCONTEXT, end);
            }
            When::Range { addr, len } => touches(asm, addrs, (addr, len), ends, next),
        }
        asm.place(next);
    }
    asm.goto(ends.allow);
}

fn load(asm: &mut Assembler, word: &Word) {
    asm.load(arg_lo(word.arg));
    if word.mask != u32::MAX {
        asm.and(word.mask);
    }
}

/// Goes to `no` unless all of these words are so.
fn compare(asm: &mut Assembler, words: &[Word], no: Label) {
    for word in words {
        load(asm, word);
        asm.if_ne(word.value, no);
    }
}

/// Notifies when `[args[addr], args[addr] + args[len]]` meets the window: the end counts as
/// inside, which errs on the safe side and saves instructions. Goes to `no` otherwise.
fn touches(
    asm: &mut Assembler,
    window: AddrWindow,
    (addr, len): (u32, u32),
    ends: &Verdicts,
    no: Label,
) {
    let no_carry = asm.label();
    let sum = asm.label();
    asm.load(arg_hi(addr));
    asm.and(ADDRESS);
    asm.if_gt(window.hi(), no);
    // No program has so many addresses (2^56, x86-64 with five levels of page tables): some calls do what they can, and
    // fail in the end.
    asm.load(arg_hi(len));
    asm.if_ge(0x100_0000, ends.notify);
    asm.store(0);
    // The upper word of the end is the sum of the upper words and the carry of the lower ones.
    asm.load(arg_lo(len));
    asm.store(1);
    asm.load_x(1);
    asm.load(arg_lo(addr));
    asm.add_x();
    asm.if_ge_x(no_carry);
    asm.load(arg_hi(addr));
    asm.and(ADDRESS);
    asm.add(1);
    asm.goto(sum);
    asm.place(no_carry);
    asm.load(arg_hi(addr));
    asm.and(ADDRESS);
    asm.place(sum);
    asm.load_x(0);
    asm.add_x();
    asm.if_ge(window.hi(), ends.notify);
    asm.goto(no);
}

#[cfg(test)]
mod tests;
