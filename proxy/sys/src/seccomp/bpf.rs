//! Classic BPF by hand: instructions that compare equal in tests, and an assembler with labels.

use std::collections::HashMap;
use std::fmt;

/// `struct sock_filter`, include/uapi/linux/filter.h.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SockFilter {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

// Operations, include/uapi/linux/bpf_common.h; only the ones used.
const LD_W_ABS: u16 = 0x20;
const LD_MEM: u16 = 0x60;
const LDX_MEM: u16 = 0x61;
const ST: u16 = 0x02;
const ADD_X: u16 = 0x0c;
const ADD_K: u16 = 0x04;
const AND_K: u16 = 0x54;
const JA: u16 = 0x05;
const JEQ_K: u16 = 0x15;
const JGT_K: u16 = 0x25;
const JGE_K: u16 = 0x35;
const JGE_X: u16 = 0x3d;
const RET_K: u16 = 0x06;

/// `SECCOMP_RET_ALLOW`.
pub const RET_ALLOW: u32 = 0x7fff_0000;
/// `SECCOMP_RET_USER_NOTIF`.
pub const RET_USER_NOTIF: u32 = 0x7fc0_0000;
/// `SECCOMP_RET_ERRNO`.
pub const RET_ERRNO: u32 = 0x0005_0000;

/// Offsets in `struct seccomp_data`.
pub mod data {
    /// System call number.
    pub const NR: u32 = 0;
    /// `AUDIT_ARCH_*`.
    pub const ARCH: u32 = 4;
    /// Lower word of an argument.
    #[must_use]
    pub const fn arg_lo(i: u32) -> u32 {
        16 + 8 * i
    }
    /// Upper word of an argument.
    #[must_use]
    pub const fn arg_hi(i: u32) -> u32 {
        20 + 8 * i
    }
}

impl fmt::Debug for SockFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, jt, jf, k } = *self;
        match code {
            LD_W_ABS => write!(f, "ld [{k}]"),
            LD_MEM => write!(f, "ld M[{k}]"),
            LDX_MEM => write!(f, "ldx M[{k}]"),
            ST => write!(f, "st M[{k}]"),
            ADD_X => write!(f, "add x"),
            ADD_K => write!(f, "add #{k}"),
            AND_K => write!(f, "and #{k:#x}"),
            JA => write!(f, "ja +{k}"),
            JEQ_K => write!(f, "jeq #{k:#x} +{jt} +{jf}"),
            JGT_K => write!(f, "jgt #{k:#x} +{jt} +{jf}"),
            JGE_K => write!(f, "jge #{k:#x} +{jt} +{jf}"),
            JGE_X => write!(f, "jge x +{jt} +{jf}"),
            RET_K => match (k & 0xffff_0000, k & 0xffff) {
                (RET_ALLOW, _) => write!(f, "ret allow"),
                (RET_USER_NOTIF, _) => write!(f, "ret notify"),
                (RET_ERRNO, errno) => write!(f, "ret errno {errno}"),
                _ => write!(f, "ret {k:#x}"),
            },
            _ => write!(f, "?{code:#x} {k:#x} +{jt} +{jf}"),
        }
    }
}

/// A place in a program that jumps refer to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Label(usize);

enum Item {
    Plain(SockFilter),
    /// A comparison with targets; `None` falls through.
    Branch {
        code: u16,
        k: u32,
        yes: Option<Label>,
        no: Option<Label>,
    },
    Goto(Label),
}

/// Assembles a program whose jumps are forward, as classic BPF wants.
#[derive(Default)]
pub struct Assembler {
    items: Vec<Item>,
    labels: HashMap<Label, usize>,
    next_label: usize,
}

impl fmt::Debug for Assembler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assembler").field("len", &self.items.len()).finish_non_exhaustive()
    }
}

/// Why a program could not be assembled.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AssembleError {
    /// A jump goes to a label that was never placed, backwards, or over more than 255 instructions.
    #[error("the jump at instruction {at} cannot reach the label")]
    Jump {
        /// Index of the jump.
        at: usize,
    },
    /// Longer than `BPF_MAXINSNS`.
    #[error("a filter of {0} instructions, where the kernel takes 4096")]
    TooLong(usize),
}

impl Assembler {
    /// A label to place later.
    pub fn label(&mut self) -> Label {
        self.next_label += 1;
        Label(self.next_label)
    }
    /// Places a label here.
    pub fn place(&mut self, label: Label) {
        self.labels.insert(label, self.items.len());
    }
    fn plain(&mut self, code: u16, k: u32) {
        self.items.push(Item::Plain(SockFilter { code, jt: 0, jf: 0, k }));
    }
    /// Loads a word of `struct seccomp_data`.
    pub fn load(&mut self, offset: u32) {
        self.plain(LD_W_ABS, offset);
    }
    /// Stores the accumulator in a scratch word.
    pub fn store(&mut self, slot: u32) {
        self.plain(ST, slot);
    }
    /// Loads a scratch word into X.
    pub fn load_x(&mut self, slot: u32) {
        self.plain(LDX_MEM, slot);
    }
    /// Adds X.
    pub fn add_x(&mut self) {
        self.plain(ADD_X, 0);
    }
    /// Adds a constant.
    pub fn add(&mut self, k: u32) {
        self.plain(ADD_K, k);
    }
    /// Masks.
    pub fn and(&mut self, k: u32) {
        self.plain(AND_K, k);
    }
    /// Ends with an action.
    pub fn ret(&mut self, action: u32) {
        self.plain(RET_K, action);
    }
    /// Jumps.
    pub fn goto(&mut self, to: Label) {
        self.items.push(Item::Goto(to));
    }
    fn branch(&mut self, code: u16, k: u32, yes: Option<Label>, no: Option<Label>) {
        self.items.push(Item::Branch { code, k, yes, no });
    }
    /// Jumps when equal.
    pub fn if_eq(&mut self, k: u32, to: Label) {
        self.branch(JEQ_K, k, Some(to), None);
    }
    /// Jumps when not equal.
    pub fn if_ne(&mut self, k: u32, to: Label) {
        self.branch(JEQ_K, k, None, Some(to));
    }
    /// Jumps when greater.
    pub fn if_gt(&mut self, k: u32, to: Label) {
        self.branch(JGT_K, k, Some(to), None);
    }
    /// Jumps when greater or equal.
    pub fn if_ge(&mut self, k: u32, to: Label) {
        self.branch(JGE_K, k, Some(to), None);
    }
    /// Jumps when less.
    pub fn if_lt(&mut self, k: u32, to: Label) {
        self.branch(JGE_K, k, None, Some(to));
    }
    /// Jumps when greater than or equal to X.
    pub fn if_ge_x(&mut self, to: Label) {
        self.branch(JGE_X, 0, Some(to), None);
    }

    /// The program.
    ///
    /// # Errors
    /// When a jump cannot be expressed.
    pub fn assemble(&self) -> Result<Vec<SockFilter>, AssembleError> {
        if self.items.len() > 4096 {
            return Err(AssembleError::TooLong(self.items.len()));
        }
        let reach = |at: usize, to: Option<Label>| -> Result<usize, AssembleError> {
            let Some(label) = to else { return Ok(0) };
            let target = self.labels.get(&label).copied();
            target.and_then(|t| t.checked_sub(at + 1)).ok_or(AssembleError::Jump { at })
        };
        let short = |at: usize, to| -> Result<u8, AssembleError> {
            u8::try_from(reach(at, to)?).map_err(|_| AssembleError::Jump { at })
        };
        let each = self.items.iter().enumerate().map(|(at, item)| {
            Ok(match *item {
                Item::Plain(insn) => insn,
                Item::Branch { code, k, yes, no } => {
                    SockFilter { code, jt: short(at, yes)?, jf: short(at, no)?, k }
                }
                Item::Goto(to) => {
                    let k = u32::try_from(reach(at, Some(to))?)
                        .map_err(|_| AssembleError::Jump { at })?;
                    SockFilter { code: JA, jt: 0, jf: 0, k }
                }
            })
        });
        each.collect()
    }
}

/// Runs a program on a system call, as the kernel does: for what a filter decides that runs elsewhere,
/// and for tests.
///
/// Returns `None` for a program that the kernel would not accept.
#[must_use]
pub fn interpret(program: &[SockFilter], nr: u32, arch: u32, args: [u64; 6]) -> Option<u32> {
    let word = |offset: u32| -> Option<u32> {
        match offset {
            data::NR => Some(nr),
            data::ARCH => Some(arch),
            _ => {
                let at = offset.checked_sub(16)?;
                let arg = args.get(usize::try_from(at / 8).ok()?)?;
                let shift = if at % 8 == 0 { 0 } else { 32 };
                u32::try_from((*arg >> shift) & 0xffff_ffff).ok()
            }
        }
    };
    let (mut a, mut x, mut mem, mut pc) = (0_u32, 0_u32, [0_u32; 16], 0_usize);
    loop {
        let insn = program.get(pc)?;
        pc += 1;
        let branch = |holds: bool| usize::from(if holds { insn.jt } else { insn.jf });
        let slot = usize::try_from(insn.k).ok()?;
        match insn.code {
            LD_W_ABS => a = word(insn.k)?,
            LD_MEM => a = *mem.get(slot)?,
            LDX_MEM => x = *mem.get(slot)?,
            ST => *mem.get_mut(slot)? = a,
            ADD_X => a = a.wrapping_add(x),
            ADD_K => a = a.wrapping_add(insn.k),
            AND_K => a &= insn.k,
            JA => pc += slot,
            JEQ_K => pc += branch(a == insn.k),
            JGT_K => pc += branch(a > insn.k),
            JGE_K => pc += branch(a >= insn.k),
            JGE_X => pc += branch(a >= x),
            RET_K => return Some(insn.k),
            _ => return None,
        }
    }
}
