//! The texts of errors. An error's text either holds the cause or has the cause as `source()`,
//! never both: a printed chain would say the cause twice. And printing an error prints the whole
//! chain.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common;
use crate::common::output;
use crate::common::stderr;
use crate::common::verbgate;
use proc_macro2::TokenStream;
use proc_macro2::TokenTree;
use syn::Attribute;
use syn::Fields;
use syn::Item;

/// The sources of every crate.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    let mut dirs: Vec<PathBuf> =
        ["harness", "proxy", "sysfs", "tests"].map(|dir| root.join(dir)).to_vec();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// An error's text, and the fields that it is made of.
struct Definition<'a> {
    name: String,
    attrs: &'a [Attribute],
    fields: &'a Fields,
}

/// Those of types that derive an error.
fn definitions(item: &Item) -> Vec<Definition<'_>> {
    let one =
        |name: &syn::Ident, attrs, fields| Definition { name: name.to_string(), attrs, fields };
    match item {
        Item::Enum(of) => of.variants.iter().map(|v| one(&v.ident, &*v.attrs, &v.fields)).collect(),
        Item::Struct(of) => vec![one(&of.ident, &*of.attrs, &of.fields)],
        Item::Mod(of) => {
            of.content.iter().flat_map(|(_, items)| items).flat_map(definitions).collect()
        }
        _ => Vec::new(),
    }
}

impl Definition<'_> {
    /// The tokens of `#[error(...)]`.
    fn text(&self) -> Option<TokenStream> {
        let attr = self.attrs.iter().find(|attr| attr.path().is_ident("error"))?;
        Some(attr.meta.require_list().unwrap().tokens.clone())
    }

    /// The field that thiserror takes for the source, by name or number.
    fn source(&self) -> Option<String> {
        self.fields.iter().enumerate().find_map(|(index, field)| {
            let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
            let marked = |mark| field.attrs.iter().any(|attr| attr.path().is_ident(mark));
            // `r#source` is how a field of that name is kept from being it.
            (name == "source" || marked("source") || marked("from")).then_some(name)
        })
    }
}

/// Whether the text of an error is made with a field, in a placeholder or in an argument.
fn says(text: &TokenStream, field: &str) -> bool {
    let tokens: Vec<TokenTree> = text.clone().into_iter().collect();
    let placeholder = |literal: &str| {
        literal.replace("{{", "").split('{').skip(1).any(|rest| {
            let end = rest.find(['}', ':']).unwrap_or(rest.len());
            rest[..end] == *field
        })
    };
    let inner = tokens.iter().any(|token| match token {
        TokenTree::Group(group) => says(&group.stream(), field),
        TokenTree::Literal(literal) => placeholder(&literal.to_string()),
        _ => false,
    });
    // `.source`, `.0`
    inner
        || tokens.windows(2).any(|pair| {
            matches!(&pair[0], TokenTree::Punct(dot) if dot.as_char() == '.')
                && pair[1].to_string() == field
        })
}

/// What is wrong in a source, and how many texts of errors there are.
fn judge(path: &Path, source: &str) -> (Vec<String>, usize) {
    let file = syn::parse_file(source).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (mut twice, mut texts) = (Vec::new(), 0);
    for definition in file.items.iter().flat_map(definitions) {
        let Some(text) = definition.text() else { continue };
        texts += 1;
        if let Some(field) = definition.source().filter(|field| says(&text, field)) {
            twice.push(format!("{}: {} says {field}", path.display(), definition.name));
        }
    }
    (twice, texts)
}

#[test]
fn no_error_says_its_source_which_the_chain_says_again() {
    let (mut twice, mut texts) = (Vec::new(), 0);
    for path in sources() {
        let (more, count) = judge(&path, &fs::read_to_string(&path).unwrap());
        twice.extend(more);
        texts += count;
    }
    assert!(texts > 70, "{texts} texts of errors: the search is broken");
    assert!(twice.is_empty(), "{twice:#?}");
}

#[test]
fn the_search_finds_what_it_looks_for() {
    let judged = |variant: &str| {
        let source = format!("enum Error {{ {variant} }}");
        judge(Path::new("x"), &source)
    };
    for twice in [
        r#"#[error("no {what}: {source}")] A { what: u8, source: io::Error }"#,
        r#"#[error("no: {0:?}")] A(#[from] io::Error)"#,
        r#"#[error("no: {}", .cause.kind())] A { #[source] cause: io::Error }"#,
        r#"#[error("no {}", hint(.source))] A { source: io::Error }"#,
        r#"#[error("no {}", .0)] A(#[source] io::Error)"#,
    ] {
        assert_eq!((judged(twice).0.len(), judged(twice).1), (1, 1), "{twice}");
    }
    for once in [
        r#"#[error("no {what}: {source}")] A { what: u8, r#source: io::Error }"#,
        r#"#[error(transparent)] A(#[from] io::Error)"#,
        r#"#[error("no {what}")] A { what: u8, source: io::Error }"#,
        r#"#[error("no {{source}}: {0}")] A(String)"#,
    ] {
        assert_eq!((judged(once).0.len(), judged(once).1), (0, 1), "{once}");
    }
}

/// Whoever reads a failure is told why, and once.
#[test]
fn a_failure_is_said_with_its_cause() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("report").to_str().unwrap().to_owned();
    let device = ["--device", common::NULL_AS_UVERBS];
    let cases: [(Vec<&str>, &str); 5] = [
        ([&["run", "--report", &below][..], &device, &["--", "true"]].concat(), "Not a directory"),
        ([&["trace", "-o", &below][..], &device, &["--", "true"]].concat(), "Not a directory"),
        (vec!["run", "--device", "uverbs9=/no/such", "--", "true"], "No such file"),
        (vec!["run", "--netns", "/no/such", "--", "true"], "No such file"),
        (vec!["sysfs", "show", "--snapshot", &below], "Not a directory"),
    ];
    for (args, cause) in cases {
        let ended = output(Command::new(verbgate()).args(&args));
        let line = stderr(&ended);
        assert!(!ended.status.success(), "{args:?}: {line}");
        assert_eq!(line.matches(cause).count(), 1, "{args:?}: {line}");
        assert_eq!(line.matches("os error").count(), 1, "{args:?}: {line}");
    }
}
