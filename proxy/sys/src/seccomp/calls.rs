//! The system calls that a guest may make, by ABI: the table `calls.txt`, whose rows stand under the reason for which
//! they can do nothing to a stub. What has no row is unknown, and fails.

/// The table, for people to read.
pub const TABLE: &str = include_str!("calls.txt");

/// `AUDIT_ARCH_*` of the table's columns: x86-64, IA32, AArch64, AArch32.
pub const ABIS: [u32; 4] = [0xc000_003e, 0x4000_0003, 0xc000_00b7, 0x4000_0028];

/// The calls of an ABI that have a row: number and name, by number.
#[must_use]
pub fn of(audit: u32) -> Vec<(u32, &'static str)> {
    let column = ABIS.iter().position(|abi| *abi == audit);
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let number = |row: &'static str| {
        let mut words = row.split_whitespace();
        let name = words.next()?;
        Some((words.nth(column?)?.parse().ok()?, name))
    };
    let mut calls: Vec<(u32, &str)> = rows.filter_map(number).collect();
    calls.sort_unstable();
    calls
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::arch::Arch;
    use crate::arch::Native;
    use crate::arch::aarch64::Aarch64;
    use crate::arch::x86_64::X86_64;
    use crate::seccomp::rules::native;

    #[test]
    fn every_call_has_one_row_under_a_reason() {
        let mut reason = false;
        let mut names = BTreeSet::new();
        for line in TABLE.lines() {
            reason = line.starts_with('#') || reason && !line.is_empty();
            let Some(name) = line.split_whitespace().next().filter(|_| !line.starts_with('#'))
            else {
                continue;
            };
            assert!(reason && names.insert(name), "{line}");
            assert_eq!(line.split_whitespace().count(), 1 + ABIS.len(), "{line}");
        }
        for abi in ABIS {
            let numbers: BTreeSet<u32> = of(abi).into_iter().map(|(nr, _)| nr).collect();
            assert_eq!(numbers.len(), of(abi).len(), "{abi:#x}");
            assert!(numbers.len() > 300, "{abi:#x}");
        }
    }

    #[test]
    fn every_rule_is_about_a_call_of_the_table() {
        for (audit, rules) in
            [(X86_64::AUDIT, native::<X86_64>()), (Aarch64::AUDIT, native::<Aarch64>())]
        {
            let calls = of(audit);
            for rule in rules {
                assert!(calls.contains(&(rule.nr, rule.name)), "{rule:?}");
            }
        }
    }

    /// The C library's numbers are the kernel's.
    #[test]
    fn numbers_are_the_kernels() {
        let calls = of(Native::AUDIT);
        for (nr, name) in [
            (libc::SYS_read, "read"),
            (libc::SYS_openat, "openat"),
            (libc::SYS_pidfd_getfd, "pidfd_getfd"),
            (libc::SYS_futex_waitv, "futex_waitv"),
            (libc::SYS_set_mempolicy_home_node, "set_mempolicy_home_node"),
            (libc::SYS_fchmodat2, "fchmodat2"),
            (libc::SYS_mseal, "mseal"),
        ] {
            assert!(calls.contains(&(u32::try_from(nr).unwrap(), name)), "{name}");
        }
    }
}
