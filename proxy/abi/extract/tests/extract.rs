#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows these in test functions; here the helpers of tests use them, too"
)]
//! Extraction, merging and comparing on a small kernel of our own.

mod kernel;

use std::collections::BTreeMap;

use kernel::Kernel;
use verbgate_abi_extract::Error;
use verbgate_abi_extract::diff::Change;
use verbgate_abi_extract::diff::diff;
use verbgate_abi_extract::extract;
use verbgate_abi_extract::merge;
use verbgate_abi_extract::to_json;
use verbgate_abi_gen::annotations::Annotations;
use verbgate_abi_gen::facts::Access;
use verbgate_abi_gen::facts::Attr;
use verbgate_abi_gen::facts::Class;
use verbgate_abi_gen::facts::Facts;
use verbgate_abi_gen::facts::Kind;

fn attr<'a>(facts: &'a Facts, method: &str, name: &str) -> &'a Attr {
    let method = facts.methods.iter().find(|m| m.method == method).expect(method);
    method.attrs.iter().find(|attr| attr.name == name).expect(name)
}

#[test]
fn objects_and_methods_are_found_with_their_ids_and_places() {
    let facts = extract(Kernel::new("9.1.4").path()).unwrap();
    assert_eq!(facts.kernels[0].series, "9.1");
    assert_eq!(facts.kernels[0].release, "9.1.4");
    let objects: BTreeMap<&str, (u16, Class)> =
        facts.objects.iter().map(|o| (o.object.as_str(), (o.object_id, o.class))).collect();
    let wanted = [
        ("T_OBJECT_BOX", (1, Class::Idr)),
        ("T_OBJECT_BELL", (2, Class::Fd)),
        ("ACME_OBJECT_GLOBAL", (0x1000, Class::None)),
    ];
    assert_eq!(objects, BTreeMap::from(wanted));
    let make = facts.methods.iter().find(|m| m.method == "T_METHOD_MAKE").unwrap();
    assert_eq!((make.method_id, make.object_id, make.provider.as_str()), (0, 1, "core"));
    assert!(make.has_uhw);
    // The core's declaration first, then the driver's that adds to it.
    assert_eq!(
        make.source["9.1"],
        ["drivers/infiniband/core/box.c:3", "drivers/infiniband/hw/acme/main.c:1"]
    );
    let blink = facts.methods.iter().find(|m| m.method == "ACME_METHOD_BLINK").unwrap();
    assert_eq!((blink.provider.as_str(), blink.method_id), ("acme", 0x1000));
}

#[test]
fn attributes_have_what_the_kernel_s_macros_make_of_them() {
    let facts = extract(Kernel::new("9.1.4").path()).unwrap();
    let of = |name| attr(&facts, "T_METHOD_MAKE", name);
    let handle = of("T_ATTR_MAKE_HANDLE");
    assert_eq!(
        (handle.kind, handle.access, handle.obj_type),
        (Kind::Idr, Some(Access::New), Some(1))
    );
    assert!(handle.mandatory && handle.min_len.is_none());
    let size = of("T_ATTR_MAKE_SIZE");
    assert_eq!((size.kind, size.min_len, size.len), (Kind::PtrIn, Some(4), Some(8)));
    assert_eq!((size.zero_trailing, size.mandatory), (Some(true), true));
    // Two macros of the file's own are in this one.
    let copied = of("T_ATTR_MAKE_TEXT");
    assert_eq!(
        (copied.min_len, copied.len, copied.alloc_and_copy),
        (Some(3), Some(40), Some(true))
    );
    assert!(!copied.mandatory);
    let choice = of("T_ATTR_MAKE_CHOICE");
    let elems: Vec<(u16, u16)> =
        choice.elems.as_ref().unwrap().iter().map(|e| (e.min_len, e.len)).collect();
    assert_eq!((choice.kind, elems), (Kind::EnumIn, vec![(2, 2), (0, 0)]));
    let list = of("T_ATTR_MAKE_LIST");
    assert_eq!((list.kind, list.min_cnt, list.max_cnt), (Kind::IdrsArray, Some(1), Some(3)));
    assert!(of("UVERBS_ATTR_UHW_IN").is_udata && of("UVERBS_ATTR_UHW_OUT").is_udata);
    assert_eq!(of("ACME_ATTR_MAKE_COLOUR").provider, "acme");
}

#[test]
fn commands_and_structures_have_their_sizes() {
    let facts = extract(Kernel::new("9.1.4").path()).unwrap();
    let [make, make_ex] = facts.legacy_write_commands.as_slice() else {
        panic!("{:?}", facts.legacy_write_commands);
    };
    assert_eq!((make.write_cmd_attr, make.req_struct_size, make.resp_struct_size), (3, 16, 4));
    assert!(make.has_response_pointer && make.takes_uhw && !make.extended);
    assert_eq!(make.needs_driver_ops, ["all_of_them", "make_box"]);
    assert_eq!((make_ex.write_cmd_attr, make_ex.req_min_declared), (0x8000_0004, 8));
    assert_eq!(make_ex.req_struct_size, 16);
    let fields = |of: &BTreeMap<_, verbgate_abi_gen::facts::Struct>, name: &str| {
        of[name].fields.iter().map(|f| (f.name.clone(), f.offset, f.size)).collect::<Vec<_>>()
    };
    let make = fields(&facts.legacy_structs, "t_make");
    assert_eq!(make.last().unwrap(), &("driver_data".to_owned(), 16, 0));
    let private = fields(&facts.private_structs, "acme_make");
    let wanted = [("addr", 0, 8), ("either", 8, 8), ("either.a", 8, 4), ("either.b", 8, 8)];
    assert_eq!(private, wanted.map(|(name, offset, size)| (name.to_owned(), offset, size)));
}

#[test]
fn what_is_not_understood_is_an_error_and_never_a_gap() {
    let cases: [(&str, &str, &[&str]); 6] = [
        (
            "UVERBS_ATTR_PTR_IN(T_ATTR_MAKE_SIZE",
            "UVERBS_ATTR_NOVEL(T_ATTR_MAKE_SIZE",
            &["UVERBS_ATTR_NOVEL", "box.c:3"],
        ),
        (
            "DECLARE_UVERBS_NAMED_METHOD_DESTROY(",
            "DECLARE_UVERBS_NOVEL_METHOD(",
            &["DECLARE_UVERBS_NOVEL_METHOD", "box.c"],
        ),
        ("UVERBS_TYPE_ALLOC_FD(", "UVERBS_TYPE_ALLOC_NOVEL(", &["UVERBS_TYPE_ALLOC_NOVEL"]),
        ("UVERBS_ACCESS_NEW", "UVERBS_ACCESS_NOVEL", &["UVERBS_ACCESS_NOVEL"]),
        ("struct t_size, low", "struct t_nothing, low", &["T_ATTR_MAKE_SIZE", "box.c:3"]),
        (", &UVERBS_METHOD(T_METHOD_BREAK)", "", &["T_METHOD_BREAK", "no object lists"]),
    ];
    for (from, to, told) in cases {
        let kernel = Kernel::new("9.1.4");
        kernel.replace("drivers/infiniband/core/box.c", from, to);
        let error = extract(kernel.path()).unwrap_err().to_string();
        assert!(told.iter().all(|word| error.contains(word)), "{to}: {error}");
    }
    let kernel = Kernel::new("9.1.4");
    let folders = ["hw", "ulp"].map(|name| kernel.path().join("drivers/infiniband").join(name));
    std::fs::rename(&folders[0], &folders[1]).unwrap();
    let error = extract(kernel.path()).unwrap_err().to_string();
    assert!(error.contains("ulp/acme/main.c:1"), "{error}");
    let kernel = Kernel::new("9.1.4");
    kernel.replace(
        "drivers/infiniband/core/uverbs_cmd.c",
        "UAPI_DEF_WRITE_UDATA_IO(struct",
        "UAPI_DEF_WRITE_NOVEL(struct",
    );
    let error = extract(kernel.path()).unwrap_err().to_string();
    assert!(error.contains("UAPI_DEF_WRITE_NOVEL"), "{error}");
}

/// The kernel's macro could come to mean something else under its old name.
#[test]
fn a_macro_that_no_longer_means_what_its_name_says_is_an_error() {
    let kernel = Kernel::new("9.1.4");
    kernel.replace(
        "include/rdma/uverbs_ioctl.h",
        "UVERBS_ATTR_TYPE_FD, .u.obj",
        "UVERBS_ATTR_TYPE_IDR, .u.obj",
    );
    let error = extract(kernel.path()).unwrap_err().to_string();
    assert!(error.contains("UVERBS_ATTR_FD(T_ATTR_RING_BELL"), "{error}");
}

#[test]
fn a_folder_that_is_no_kernel_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    let error = extract(empty.path()).unwrap_err();
    assert!(matches!(error, Error::NoTree { .. }), "{error}");
    std::fs::write(empty.path().join("Makefile"), "all:\n").unwrap();
    let error = extract(empty.path()).unwrap_err().to_string();
    assert!(error.contains("VERSION"), "{error}");
}

/// The next kernel: a method and an attribute are new, one method is gone, one attribute is wider
/// and another is optional now.
fn next() -> Kernel {
    let kernel = Kernel::new("9.2.1");
    let file = "drivers/infiniband/core/box.c";
    kernel.replace(
        file,
        "UVERBS_ATTR_TYPE(u32), UA_MANDATORY",
        "UVERBS_ATTR_TYPE(u64), UA_OPTIONAL",
    );
    kernel.replace(file, "T_METHOD_BREAK, UVERBS", "T_METHOD_MELT, UVERBS");
    kernel.replace(file, "&UVERBS_METHOD(T_METHOD_BREAK)", "&UVERBS_METHOD(T_METHOD_MELT)");
    kernel.replace(
        "include/uapi/rdma/ib_user_ioctl_cmds.h",
        "T_METHOD_BREAK,",
        "T_METHOD_MELT = 7,",
    );
    // A function of the kernel's own has another name.
    kernel.replace(file, "free_box", "free_any_box");
    kernel
}

#[test]
fn a_union_says_who_has_what_and_takes_the_newest() {
    let (old, new) = (Kernel::new("9.1.4"), next());
    // The order of the arguments means nothing.
    let facts = [new.path(), old.path()].map(|path| extract(path).unwrap());
    let all = merge(facts.into()).unwrap();
    let series: Vec<&str> = all.kernels.iter().map(|kernel| kernel.series.as_str()).collect();
    assert_eq!(series, ["9.1", "9.2"]);
    let present = |name: &str| {
        let method = all.methods.iter().find(|method| method.method == name).unwrap();
        (method.first_seen.clone(), method.present_in.join(" "))
    };
    assert_eq!(present("T_METHOD_MAKE"), ("9.1".into(), "9.1 9.2".into()));
    assert_eq!(present("T_METHOD_BREAK"), ("9.1".into(), "9.1".into()));
    assert_eq!(present("T_METHOD_MELT"), ("9.2".into(), "9.2".into()));
    let weight = attr(&all, "T_METHOD_MAKE", "T_ATTR_MAKE_WEIGHT");
    assert_eq!((weight.len, weight.mandatory), (Some(8), false));
    assert_eq!(weight.changed[0].between, ["9.1", "9.2"]);
    assert!(weight.changed[0].diff.contains_key("len"), "{:?}", weight.changed);
    // What one kernel does without, a guest can leave out, whichever kernel that is.
    let back = [(new.path(), "8.9"), (old.path(), "9.1")].map(|(path, series)| {
        let mut facts = extract(path).unwrap();
        facts.kernels[0] = verbgate_abi_gen::facts::Kernel {
            series: series.into(),
            release: format!("{series}.0"),
        };
        facts
    });
    let all = merge(back.into()).unwrap();
    assert!(!attr(&all, "T_METHOD_MAKE", "T_ATTR_MAKE_WEIGHT").mandatory);
    // And the file says the same.
    assert_eq!(Facts::parse(&to_json(&all).unwrap()).unwrap(), all);
}

#[test]
fn a_structure_that_has_grown_keeps_the_older_kernels_sizes() {
    let grown = |version, field| {
        let kernel = Kernel::new(version);
        kernel.replace("include/uapi/rdma/acme-abi.h", "__aligned_u64 addr;", field);
        extract(kernel.path()).unwrap()
    };
    let facts = vec![
        extract(Kernel::new("9.1.4").path()).unwrap(),
        grown("9.2.1", "__aligned_u64 addr;"),
        grown("9.3.0", "__aligned_u64 addr, more;"),
        grown("9.10.0", "__aligned_u64 addr, more, yet;"),
    ];
    let all = merge(facts).unwrap();
    let make = &all.private_structs["acme_make"];
    let older = [("9.1", 16), ("9.2", 16), ("9.3", 24)];
    assert_eq!(make.size, 32);
    assert_eq!(make.older_sizes, BTreeMap::from(older.map(|(name, size)| (name.to_owned(), size))));
}

#[test]
fn kernels_that_mean_different_things_have_no_union() {
    let (old, new) = (Kernel::new("9.1.4"), Kernel::new("9.2.1"));
    new.replace(
        "drivers/infiniband/core/box.c",
        "UVERBS_ATTR_RAW_FD(T_ATTR_MAKE_FILE, ",
        "UVERBS_ATTR_PTR_IN(T_ATTR_MAKE_FILE, UVERBS_ATTR_TYPE(u32), ",
    );
    let facts = [old.path(), new.path()].map(|path| extract(path).unwrap());
    let error = merge(facts.into()).unwrap_err().to_string();
    assert!(error.contains("T_ATTR_MAKE_FILE") && error.contains("kind"), "{error}");
    let moved = Kernel::new("9.2.1");
    moved.replace("include/uapi/rdma/ib_user_verbs.h", "__u32 handle;", "__u32 novel, handle;");
    let facts = [old.path(), moved.path()].map(|path| extract(path).unwrap());
    let error = merge(facts.into()).unwrap_err().to_string();
    assert!(error.contains("t_make.handle") && error.contains("9.1"), "{error}");
    let twice = [old.path(), old.path()].map(|path| extract(path).unwrap());
    assert!(matches!(merge(twice.into()), Err(Error::SameKernel { .. })));
    assert!(matches!(merge(Vec::new()), Err(Error::NoKernel)));
}

#[test]
fn a_difference_is_a_line_that_says_what_is_refused() {
    let (old, new) = (Kernel::new("9.1.4"), next());
    new.replace(
        "include/uapi/rdma/acme-abi.h",
        "__aligned_u64 addr;",
        "__aligned_u64 addr; __u64 more;",
    );
    let [old, new] = [old.path(), new.path()].map(|path| extract(path).unwrap());
    let notes = Annotations::parse(
        "private = []\n[commands]\n[attributes.T_METHOD_MAKE]\nT_ATTR_MAKE_WEIGHT = \"plain\"\n",
    )
    .unwrap();
    let lines: Vec<String> = diff(&old, &new, &notes).iter().map(ToString::to_string).collect();
    let wanted = [
        "- method T_OBJECT_BOX.T_METHOD_BREAK (id 0x1, core; refused until annotated)",
        "+ method T_OBJECT_BOX.T_METHOD_MELT (id 0x7, core; refused until annotated)",
        "+ attribute T_METHOD_MELT.T_ATTR_BREAK_HANDLE (id 0x0, Idr of T_OBJECT_BOX, mandatory, core; needs an annotation)",
        "~ attribute T_METHOD_MAKE.T_ATTR_MAKE_WEIGHT: len: 4 -> 8",
        "~ attribute T_METHOD_MAKE.T_ATTR_MAKE_WEIGHT: mandatory: true -> false",
        "~ struct acme_make: size: 16 -> 24",
        "+ field acme_make.more (__u64, offset 8, 8 bytes)",
        "~ field acme_make.either: offset: 8 -> 16",
    ];
    for line in wanted {
        assert!(lines.iter().any(|found| found == line), "{line}\nnot in\n{}", lines.join("\n"));
    }
    let back = diff(&new, &old, &notes);
    assert_eq!(back.len(), lines.len());
    assert!(back.iter().any(|d| d.change == Change::Removed && d.what.contains("T_METHOD_MELT")));
    assert!(lines.iter().all(|line| !line.contains("free_any_box")), "{lines:?}");
    assert_eq!(diff(&old, &old, &notes), []);
}
