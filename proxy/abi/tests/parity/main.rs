#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows these in test functions; here the helpers of tests use them, too"
)]
//! The tables say what the kernel's headers say.
//!
//! A C compiler reads the headers of `linux-libc-dev` and of `libibverbs-dev`, and tells every id,
//! size and offset that the tables use. In headers that are older than the tables some names are
//! missing; the test counts them. Every name that the headers have must be the same.
//! `VERBGATE_UAPI`, a list of folders as in `PATH`, names more sets of headers, for example those
//! of a newer package:
//!
//! ```text
//! dpkg-deb -x linux-libc-dev_*.deb new
//! VERBGATE_UAPI=$PWD/new/usr/include cargo test -p verbgate-abi --test parity -- --nocapture
//! ```

mod cc;
mod items;
mod packages;

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use verbgate_abi::table::Kernels;

use crate::cc::Measured;
use crate::items::Item;
use crate::items::Kind;

/// Counts of one comparison.
#[derive(Debug, Default)]
struct Tally {
    same: usize,
    lacking: Vec<String>,
    different: Vec<String>,
}

/// Compares all items with the headers that `includes` names: how many are the same, or what the
/// headers say else.
fn compare(
    name: &str,
    folder: Option<&Path>,
    includes: &[&str],
    items: &[Item],
) -> Result<usize, String> {
    let measured = cc::measure(folder, includes, items);
    assert_eq!(measured.len(), items.len());
    let tree = tree(folder);
    let mut tallies: BTreeMap<Kind, Tally> = BTreeMap::new();
    for (item, measured) in items.iter().zip(measured) {
        let tally = tallies.entry(item.kind).or_default();
        match measured {
            Measured::Value(value) if item.agrees(value) => tally.same += 1,
            Measured::Value(value) => {
                let line = format!("{}: {value}, not {}", item.expr, item.want);
                tally.different.push(line);
            }
            // The tables say which kernels have what.
            Measured::Lacking if includes == cc::KERNEL && has(item, tree) => {
                tally.different.push(format!("{}: not there", item.expr));
            }
            Measured::Lacking => tally.lacking.push(item.expr.clone()),
        }
    }
    let mut same = 0;
    for (kind, tally) in &tallies {
        same += tally.same;
        let lacking = tally.lacking.len();
        println!("{name}: {kind:?}: {} compared, {lacking} not in these headers", tally.same);
        if std::env::var_os("VERBGATE_PARITY_VERBOSE").is_some() {
            tally.lacking.iter().for_each(|expr| println!("    {expr}"));
        }
    }
    let different: Vec<_> = tallies.values().flat_map(|tally| &tally.different).collect();
    if different.is_empty() { Ok(same) } else { Err(format!("{name} says: {different:#?}")) }
}

/// The kernel tree that headers are of, if it is one that the tables know.
fn tree(folder: Option<&Path>) -> Option<Kernels> {
    let code = Item::new(Kind::Id, "LINUX_VERSION_CODE >> 8", 0);
    match cc::measure(folder, &["linux/version.h"], &[code])[..] {
        [Measured::Value(code)] => {
            let series = format!("{}.{}", code >> 8, code & 0xff);
            Kernels::all().iter().find(|tree| tree.versions().any(|known| known == series))
        }
        _ => None,
    }
}

fn has(item: &Item, tree: Option<Kernels>) -> bool {
    item.kernels.zip(tree).is_some_and(|(kernels, tree)| kernels.contains(tree))
}

/// Whether the machine has, or now has, a compiler and these headers.
fn is_ready(header: &str, package: &'static str) -> bool {
    match packages::require(&[("/usr/bin/cc", "gcc"), (header, package)]) {
        Ok(()) => true,
        Err(reason) => {
            eprintln!("SKIPPED: {reason}");
            false
        }
    }
}

#[test]
fn the_kernel_s_headers_agree() {
    if !is_ready("/usr/include/rdma/ib_user_verbs.h", "linux-libc-dev") {
        return;
    }
    let items = items::all();
    let same = compare("linux-libc-dev", None, cc::KERNEL, &items).unwrap();
    // Those of 6.1, the oldest that the tables know, have most of it.
    assert!(same * 10 > items.len() * 8, "{same} of {}: were the headers read?", items.len());
}

#[test]
fn libibverbs_agrees() {
    if !is_ready("/usr/include/infiniband/ib_user_ioctl_verbs.h", "libibverbs-dev") {
        return;
    }
    let items = items::of_libibverbs();
    let same = compare("libibverbs-dev", None, cc::LIBIBVERBS, &items).unwrap();
    assert!(same > 20, "{same}: were the headers read?");
}

#[test]
fn further_headers_agree() {
    let folders = std::env::var_os("VERBGATE_UAPI").unwrap_or_default();
    for folder in std::env::split_paths(&folders).filter(|folder| *folder != PathBuf::new()) {
        assert!(folder.join("rdma/ib_user_verbs.h").exists(), "{}", folder.display());
        let name = folder.display().to_string();
        let items = items::all();
        let same = compare(&name, Some(&folder), cc::KERNEL, &items).unwrap();
        assert!(same * 10 > items.len() * 8, "{name}: {same} of {}", items.len());
        if folder.join("infiniband/verbs.h").exists() {
            let (name, items) = (format!("{name}/infiniband"), items::of_libibverbs());
            compare(&name, Some(&folder), cc::LIBIBVERBS, &items).unwrap();
        }
    }
}

/// The comparison itself can fail.
#[test]
fn a_wrong_value_is_found() {
    if !is_ready("/usr/include/rdma/ib_user_verbs.h", "linux-libc-dev") {
        return;
    }
    let item = |expr, want| Item::new(Kind::Size, expr, want);
    let items = [
        item("sizeof(struct ib_uverbs_sge)", 16),
        item("sizeof(struct ib_uverbs_nonsense)", 16),
        item("UVERBS_NONSENSE", 1),
        item("offsetof(struct ib_uverbs_sge, nonsense)", 1),
        item("UVERBS_OBJECT_QP", 4),
    ];
    let measured = cc::measure(None, cc::KERNEL, &items);
    assert_eq!(
        measured,
        [
            Measured::Value(16),
            Measured::Lacking,
            Measured::Lacking,
            Measured::Lacking,
            Measured::Value(4)
        ]
    );
    let wrong = [item("sizeof(struct ib_uverbs_sge)", 17)];
    assert!(compare("test", None, cc::KERNEL, &wrong).is_err());
}
