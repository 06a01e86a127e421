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
    let mut asm = Assembler::default();
    let (allow, notify, foreign) = (asm.label(), asm.label(), asm.label());
    let mut ends = Verdicts { allow, notify, fail: BTreeMap::new() };
    let mut shared = Shared { fds: BTreeMap::new(), ranges: BTreeMap::new() };

    asm.load(ARCH);
    asm.if_ne(A::AUDIT, foreign);
    asm.load(NR);
    if let Some(alien) = A::FOREIGN.first_alien_number {
        // x32: the same verbs by other numbers, which no program of today uses.
        let native = asm.label();
        asm.if_lt(alien, native);
        asm.ret(RET_ERRNO | ENOSYS);
        asm.place(native);
    }
    let rules = rules::native::<A>();
    for rules in rules.chunk_by(|a, b| a.nr == b.nr) {
        call(&mut asm, rules, (addrs, fds), &mut ends, &mut shared);
    }
    asm.goto(allow);

    for (arg, label) in shared.fds {
        asm.place(label);
        asm.load(arg_lo(arg));
        asm.if_lt(fds.first, allow);
        asm.if_lt(fds.end(), notify);
        asm.goto(allow);
    }
    for (range, label) in shared.ranges {
        asm.place(label);
        touches(&mut asm, addrs, range, &ends, allow);
    }
    asm.place(foreign);
    asm.if_ne(A::FOREIGN.audit, allow);
    asm.load(NR);
    let mut shared = Shared { fds: BTreeMap::new(), ranges: BTreeMap::new() };
    for rules in rules::foreign(&A::FOREIGN).chunk_by(|a, b| a.nr == b.nr) {
        call(&mut asm, rules, (addrs, fds), &mut ends, &mut shared);
    }
    asm.goto(allow);
    for (errno, label) in ends.fail {
        asm.place(label);
        asm.ret(RET_ERRNO | errno);
    }
    asm.place(notify);
    asm.ret(RET_USER_NOTIF);
    asm.place(allow);
    asm.ret(RET_ALLOW);
    asm.assemble()
}

/// The rules for one system call. The number is in the accumulator, before and after.
fn call(
    asm: &mut Assembler,
    rules: &[Rule],
    (addrs, fds): (AddrWindow, FdWindow),
    ends: &mut Verdicts,
    shared: &mut Shared,
) {
    let Some(Rule { nr, .. }) = rules.first() else { return };
    // One jump, and no more in the way of other calls.
    if let [Rule { when, verdict, .. }] = rules {
        let to = match (*when, *verdict) {
            (When::Always, verdict) => Some(ends.of(asm, verdict)),
            (When::Fd(arg), Verdict::Notify) => {
                Some(*shared.fds.entry(arg).or_insert_with(|| asm.label()))
            }
            (When::Range { addr, len }, Verdict::Notify) => {
                Some(*shared.ranges.entry((addr, len)).or_insert_with(|| asm.label()))
            }
            _ => None,
        };
        if let Some(to) = to {
            return asm.if_eq(*nr, to);
        }
    }
    let other = asm.label();
    asm.if_ne(*nr, other);
    for (at, rule) in rules.iter().enumerate() {
        if let (When::Range { addr, len }, Verdict::Notify) = (rule.when, rule.verdict)
            && at + 1 == rules.len()
        {
            let range = *shared.ranges.entry((addr, len)).or_insert_with(|| asm.label());
            asm.goto(range);
            return asm.place(other);
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
    asm.place(other);
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
    asm.if_gt(window.hi(), no);
    // A length of 2^56 and more is refused by the kernel before it touches anything: a program's
    // addresses have 56 bits at most (x86-64 with five levels of page tables).
    asm.load(arg_hi(len));
    asm.if_ge(0x100_0000, no);
    asm.store(0);
    // The upper word of the end is the sum of the upper words and the carry of the lower ones.
    asm.load(arg_lo(len));
    asm.store(1);
    asm.load_x(1);
    asm.load(arg_lo(addr));
    asm.add_x();
    asm.if_ge_x(no_carry);
    asm.load(arg_hi(addr));
    asm.add(1);
    asm.goto(sum);
    asm.place(no_carry);
    asm.load(arg_hi(addr));
    asm.place(sum);
    asm.load_x(0);
    asm.add_x();
    asm.if_ge(window.hi(), ends.notify);
    asm.goto(no);
}

#[cfg(test)]
mod tests;
