//! A C compiler, asked for the values of constant expressions.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use crate::items::Item;

/// The kernel's headers; those that a version does not have are left out.
pub(crate) const KERNEL: &[&str] = &[
    "linux/types.h",
    "rdma/rdma_user_ioctl.h",
    "rdma/rdma_user_ioctl_cmds.h",
    "rdma/ib_user_verbs.h",
    "rdma/ib_user_ioctl_verbs.h",
    "rdma/ib_user_ioctl_cmds.h",
    "rdma/bnxt_re-abi.h",
    "rdma/cxgb4-abi.h",
    "rdma/efa-abi.h",
    "rdma/erdma-abi.h",
    "rdma/hns-abi.h",
    "rdma/ionic-abi.h",
    "rdma/irdma-abi.h",
    "rdma/mana-abi.h",
    "rdma/mlx4-abi.h",
    "rdma/mlx5-abi.h",
    "rdma/mlx5_user_ioctl_verbs.h",
    "rdma/mlx5_user_ioctl_cmds.h",
    "rdma/mthca-abi.h",
    "rdma/ocrdma-abi.h",
    "rdma/qedr-abi.h",
    "rdma/rdma_user_cm.h",
    "rdma/rdma_user_rxe.h",
    "rdma/rvt-abi.h",
    "rdma/siw-abi.h",
    "rdma/vmw_pvrdma-abi.h",
];

/// The library's, which has copies of some of the kernel's and names of its own for the rest.
pub(crate) const LIBIBVERBS: &[&str] = &[
    "linux/types.h",
    "infiniband/ib_user_ioctl_verbs.h",
    "infiniband/verbs.h",
    "infiniband/mlx5_user_ioctl_verbs.h",
];

/// What the headers say to an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    Value(u64),
    /// They do not declare what is in it.
    Lacking,
}

/// What compilers say of something that is not declared; anything else is an error of ours.
const UNDECLARED: &[&str] =
    &["undeclared", "has no member named", "no member named", "incomplete type", "undefined type"];

/// The values of all expressions. `folder` is looked for headers before the machine's own.
pub(crate) fn measure(folder: Option<&Path>, includes: &[&str], items: &[Item]) -> Vec<Measured> {
    let work = Work::new();
    // A line for each expression, so that an error tells which one it is.
    let mut head = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for include in includes {
        write!(head, "#if __has_include(<{include}>)\n#include <{include}>\n#endif\n").unwrap();
    }
    head += "static const unsigned long long values[] = {\n";
    let first = head.lines().count() + 1;
    let program = |lacking: &BTreeSet<usize>| {
        let mut text = head.clone();
        for (at, item) in items.iter().enumerate() {
            let expr = if lacking.contains(&at) { "0" } else { &item.expr };
            writeln!(text, "(unsigned long long)({expr}),").unwrap();
        }
        text += "};\nint main(void) {\n\
                 for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)\n\
                 printf(\"%llu\\n\", values[i]);\nreturn 0;\n}\n";
        text
    };

    let output = work.compile(folder, &program(&BTreeSet::new()));
    let lacking = if output.status.success() {
        BTreeSet::new()
    } else {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        lacking(&errors, first, items.len())
    };
    if !lacking.is_empty() {
        let output = work.compile(folder, &program(&lacking));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = Command::new(work.file("a.out")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let values = String::from_utf8(output.stdout).unwrap();
    let measured = values.lines().enumerate().map(|(at, value)| match value.parse() {
        Ok(value) if !lacking.contains(&at) => Measured::Value(value),
        Ok(_) => Measured::Lacking,
        Err(e) => panic!("{value}: {e}"),
    });
    measured.collect()
}

/// Which expressions a compiler complained about.
fn lacking(errors: &str, first: usize, count: usize) -> BTreeSet<usize> {
    let mut lacking = BTreeSet::new();
    for line in errors.lines() {
        let Some((place, message)) = line.split_once(": error: ") else {
            continue;
        };
        assert!(UNDECLARED.iter().any(|known| message.contains(known)), "{errors}");
        let mut parts = place.rsplitn(3, ':');
        let number: usize = parts.nth(1).and_then(|n| n.parse().ok()).expect(line);
        let at = number.checked_sub(first).filter(|at| *at < count).expect(line);
        lacking.insert(at);
    }
    assert!(!lacking.is_empty(), "{errors}");
    lacking
}

/// A scratch folder, gone when this is.
struct Work(PathBuf);

impl Work {
    fn new() -> Self {
        use std::sync::atomic::AtomicU32;
        use std::sync::atomic::Ordering;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("parity-{}-{next}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn compile(&self, folder: Option<&Path>, text: &str) -> Output {
        let source = self.file("parity.c");
        fs::write(&source, text).unwrap();
        let mut command = Command::new("cc");
        // The messages are read: no translations, no limit of their number, no colours.
        command.env("LC_ALL", "C").args(["-std=gnu11", "-w", "-fno-diagnostics-color"]);
        command.args(["-fmax-errors=0", "-fno-diagnostics-show-caret"]);
        if let Some(folder) = folder {
            command.arg("-I").arg(folder);
        }
        command.arg(&source).arg("-o").arg(self.file("a.out")).output().unwrap()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // A leftover in the build folder hurts nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
