#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows these in test functions; here the helpers of tests use them, too"
)]
//! What is not annotated comes into no table, and is named.

use std::path::Path;

use verbgate_abi_gen::annotations::Annotations;
use verbgate_abi_gen::annotations::Role;
use verbgate_abi_gen::check;
use verbgate_abi_gen::facts::Facts;
use verbgate_abi_gen::facts::Kind;
use verbgate_abi_gen::generate;
use verbgate_abi_gen::skeleton;

const METHOD: &str = "UVERBS_METHOD_REG_MR";
const ATTR: &str = "UVERBS_ATTR_REG_MR_ADDR";

fn read(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data");
    std::fs::read_to_string(data.join(name)).expect(name)
}

fn real() -> (Facts, Annotations) {
    let facts = Facts::parse(&read("uverbs_methods.json")).unwrap();
    (facts, Annotations::parse(&read("annotations.toml")).unwrap())
}

/// The findings after a change, as texts.
fn after(change: impl FnOnce(&mut Facts, &mut Annotations)) -> Vec<String> {
    let (mut facts, mut notes) = real();
    change(&mut facts, &mut notes);
    check(&facts, &notes).iter().map(ToString::to_string).collect()
}

fn one(findings: &[String], words: &[&str]) {
    let [finding] = findings else {
        panic!("{findings:#?}");
    };
    assert!(words.iter().all(|word| finding.contains(word)), "{finding}");
}

#[test]
fn the_annotations_cover_the_facts() {
    assert!(after(|_, _| {}).is_empty());
}

#[test]
fn an_attribute_without_a_role_is_named_and_nothing_is_generated() {
    let found = after(|_, notes| {
        notes.attributes.get_mut(METHOD).unwrap().remove(ATTR);
    });
    one(&found, &[ATTR, METHOD, "7.2", "PtrIn"]);
    let less = read("annotations.toml").replace(&format!("{ATTR} = \"address\"\n"), "");
    let error = generate(&read("uverbs_methods.json"), &less).unwrap_err().to_string();
    assert!(error.contains(ATTR), "{error}");
}

#[test]
fn a_method_or_command_without_annotations_is_named_as_refused() {
    let found = after(|_, notes| {
        notes.attributes.remove(METHOD);
    });
    one(&found, &[METHOD, "UVERBS_OBJECT_MR", "refused until"]);
    let found = after(|_, notes| {
        notes.commands.remove("IB_USER_VERBS_CMD_REG_MR");
    });
    one(&found, &["IB_USER_VERBS_CMD_REG_MR", "refused until"]);
}

#[test]
fn what_is_left_out_is_in_no_table() {
    let facts = read("uverbs_methods.json");
    let whole = generate(&facts, &read("annotations.toml")).unwrap();
    let of_method = format!("id: ids::{METHOD},");
    let of_attr = "id: ids::UVERBS_ATTR_CREATE_CQ_BUFFER_FD,";
    let of_command = "LegacySpec { name: \"IB_USER_VERBS_CMD_OPEN_QP\"";
    assert!([&of_method, of_attr, of_command].iter().all(|text| whole.contains(*text)));
    let left_out = format!(
        "[left_out]\n{METHOD} = \"a test\"\nIB_USER_VERBS_CMD_OPEN_QP = \"a test\"\n\
         \"UVERBS_METHOD_CQ_CREATE.UVERBS_ATTR_CREATE_CQ_BUFFER_FD\" = \"a test\"\n"
    );
    let less = generate(&facts, &read("annotations.toml").replace("[left_out]\n", &left_out));
    let less = less.unwrap();
    assert!([&of_method, of_attr, of_command].iter().all(|text| !less.contains(*text)));
}

/// SRQ_CREATE has two optional outputs: a guest that wins a race makes one of them what it likes.
#[test]
fn an_attribute_that_could_be_smuggled_in_is_not_left_out() {
    let left = "UVERBS_METHOD_SRQ_CREATE.UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS";
    let found = after(|_, notes| {
        notes.left_out.insert(left.into(), "a test".into());
    });
    one(&found, &[left, "smuggle"]);
    let found = after(|_, notes| {
        notes.left_out.insert("UVERBS_METHOD_SRQ_CREATE".into(), "a test".into());
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_role_must_not_contradict_the_kernel() {
    let found = after(|_, notes| {
        notes.attributes.get_mut(METHOD).unwrap().insert(ATTR.into(), Role::Handle);
    });
    one(&found, &[ATTR, "PtrIn", "Handle"]);
    // An input of this type has a descriptor in it, whatever macro declares the input.
    let found = after(|facts, _| {
        let attrs = facts.methods.iter_mut().flat_map(|method| &mut method.attrs);
        let attr = attrs.into_iter().find(|attr| attr.name == ATTR).unwrap();
        attr.ctype = Some("UVERBS_ATTR_TYPE(struct ib_uverbs_buffer_desc)".into());
    });
    one(&found, &[ATTR, "Address"]);
}

#[test]
fn a_new_field_of_a_private_structure_is_named() {
    let found = after(|facts, _| {
        let fields = &mut facts.private_structs.get_mut("mlx5_ib_create_cq").unwrap().fields;
        let mut field = fields.first().unwrap().clone();
        field.name = "novel".into();
        fields.push(field);
    });
    one(&found, &["novel", "mlx5_ib_create_cq"]);
}

#[test]
fn an_annotation_of_nothing_is_named() {
    let found = after(|facts, _| facts.methods.retain(|method| method.method != METHOD));
    assert!(found.iter().all(|line| line.contains("is not in the facts")), "{found:?}");
    assert!(found.iter().any(|line| line.contains(ATTR)), "{found:?}");
}

#[test]
fn an_entry_that_a_newer_kernel_has_not_says_so() {
    let (mut facts, _) = real();
    let method = facts.methods.iter_mut().find(|m| m.method == "UVERBS_METHOD_QUERY_MR").unwrap();
    method.present_in.retain(|series| series != "7.2");
    let json = serde_json::to_string(&facts).unwrap();
    let text = generate(&json, &read("annotations.toml")).unwrap();
    let line = text.lines().find(|line| line.contains("name: \"UVERBS_METHOD_QUERY_MR\"")).unwrap();
    assert!(line.contains("kernels: Kernels::V6_1.union(Kernels::V6_12),"), "{line}");
}

#[test]
fn the_skeleton_has_the_roles_that_kinds_tell_and_no_others() {
    let (facts, mut notes) = real();
    notes.attributes.remove(METHOD);
    let text = skeleton(&facts, &notes);
    assert!(text.contains(&format!("[attributes.{METHOD}]\n")), "{text}");
    assert!(text.contains(&format!("{ATTR} = \"?\"\n")), "{text}");
    assert!(text.contains("UVERBS_ATTR_REG_MR_PD_HANDLE = \"handle\"\n"), "{text}");
    // Whoever pastes the text as it is has not read the handler.
    let pasted = format!("private = []\n[commands]\n{text}");
    let error = format!("{:#}", Annotations::parse(&pasted).unwrap_err());
    assert!(error.contains('?'), "{error}");
    assert!(facts.methods.iter().any(|m| m.attrs.iter().any(|a| a.kind == Kind::PtrIn)));
}

#[test]
fn words_that_are_not_known_are_refused() {
    for (from, to) in [
        ("= \"address\"", "= \"adress\""),
        ("access = \"read\"", "access = \"reads\""),
        ("trailing_in = ", "trailing = "),
        ("is = \"eq\"", "is = \"==\""),
    ] {
        let text = read("annotations.toml").replacen(from, to, 1);
        let error = format!("{:#}", Annotations::parse(&text).unwrap_err());
        let word = to.rsplit(['"', ' ']).find(|word| !word.is_empty() && *word != "=").unwrap();
        assert!(error.contains(word), "{error}");
    }
}
