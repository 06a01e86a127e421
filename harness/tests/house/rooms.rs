//! The rooms of the house: crates depend on crates of lower floors only, the command alone knows
//! clap, unsafe code has one room, and a crate's files do not import each other in large circles.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use proc_macro2::TokenStream;
use proc_macro2::TokenTree;
use serde_json::Value;

/// The crates that users get. Each may depend on those before it in another row.
const FLOORS: &[&[&str]] = &[
    &["verbgate-abi", "verbgate-sysfs"],
    &["verbgate-sys", "verbgate-host", "verbgate-segments", "verbgate-verbs"],
    &["verbgate-proxy", "verbgate-netdev", "verbgate-fabric"],
    &["verbgate-sandbox"],
    &["verbgate-oci"],
    &["verbgate-dra"],
    &[COMMAND],
];
const COMMAND: &str = "verbgate";
/// Where unsafe code is: what serves guests, and what calls libibverbs.
const UNSAFE: [&str; 2] = ["verbgate-sys", "verbgate-verbs"];
/// Files that may import each other in a circle.
const CIRCLE_MAX: usize = 3;

/// The workspace's packages, by name.
fn packages() -> BTreeMap<String, Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = metadata["packages"].as_array().unwrap().iter();
    all.map(|one| (one["name"].as_str().unwrap().to_owned(), one.clone())).collect()
}

/// What a package is built of: neither for its tests nor for its build script.
fn dependencies(package: &Value) -> Vec<&str> {
    let all = package["dependencies"].as_array().unwrap().iter();
    all.filter(|one| one["kind"].is_null()).map(|one| one["name"].as_str().unwrap()).collect()
}

fn floor(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

/// The users' crates whose folders are below the command's: those that have been cut out of it.
fn of_harness(packages: &BTreeMap<String, Value>) -> Vec<(&str, PathBuf)> {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = |one: &Value| {
        Path::new(one["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
    };
    let all = packages.iter().map(|(name, one)| (name.as_str(), folder(one)));
    all.filter(|(name, folder)| floor(name).is_some() && folder.starts_with(harness)).collect()
}

#[test]
fn crates_depend_on_lower_floors_only() {
    let packages = packages();
    for (floor_of, name) in
        FLOORS.iter().enumerate().flat_map(|(n, f)| f.iter().map(move |c| (n, c)))
    {
        let of = dependencies(&packages[*name]);
        for one in of.iter().filter(|one| packages.contains_key(**one)) {
            assert!(
                floor(one).is_some_and(|floor| floor < floor_of),
                "{name} depends on {one}, which is on no lower floor"
            );
        }
    }
    // Each crate of the harness has its floor.
    assert_eq!(of_harness(&packages).len(), 9);
}

#[test]
fn the_command_alone_knows_clap() {
    let packages = packages();
    let knows = |name: &&str| {
        dependencies(&packages[*name]).iter().any(|dependency| dependency.starts_with("clap"))
    };
    let knowing: Vec<&str> =
        FLOORS.iter().copied().flatten().copied().filter(|n| knows(n)).collect();
    assert_eq!(knowing, [COMMAND]);
}

#[test]
fn unsafe_code_has_two_rooms() {
    let packages = packages();
    for name in FLOORS.iter().copied().flatten().filter(|name| !UNSAFE.contains(name)) {
        for target in packages[*name]["targets"].as_array().unwrap() {
            let path = target["src_path"].as_str().unwrap();
            let kind = target["kind"][0].as_str().unwrap();
            if ["lib", "bin", "example"].contains(&kind) {
                let text = fs::read_to_string(path).unwrap();
                assert!(text.contains("#![forbid(unsafe_code)]"), "{path}");
            }
        }
    }
}

#[test]
fn libraries_open_with_their_purpose_and_an_example() {
    for (name, folder) in of_harness(&packages()).iter().filter(|(name, _)| *name != COMMAND) {
        let text = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        let head: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
        let example = head.iter().position(|line| line.starts_with("```"));
        let purpose = head.first().is_some_and(|line| !line.starts_with('`'));
        assert!(purpose && example.is_some_and(|at| at > 1), "{name}: {head:#?}");
        let used = name.replace('-', "_");
        assert!(head.iter().any(|line| line.contains(&used)), "{name}: its example uses another");
    }
}

/// A module's name, from its crate's root.
type Module = Vec<String>;

/// The modules of a crate, with their texts.
fn modules(src: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![src.to_owned()];
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            // Tables stand beside the modules that read them.
            if path.extension().is_none_or(|kind| kind != "rs") {
                continue;
            }
            let name = path.strip_prefix(src).unwrap().with_extension("");
            let mut name: Module =
                name.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if ["mod", "lib", "main"].contains(&name.last().unwrap().as_str()) {
                name.pop();
            }
            // Tests may use whatever they test.
            if name.last().is_none_or(|last| last != "tests") {
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// The paths of a text, but for those of its tests and what it passes on (`pub use`).
fn paths(tokens: TokenStream, found: &mut Vec<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                path.push(ident.to_string());
            }
            TokenTree::Ident(ident) => {
                found.push(std::mem::take(&mut path));
                if passes_on(&tokens, at - 1) {
                    at += skipped(&tokens[at..], ";");
                } else {
                    path.push(ident.to_string());
                }
            }
            TokenTree::Group(group) => {
                found.push(std::mem::take(&mut path));
                let text = group.to_string().replace(' ', "");
                if text == "[cfg(test)]" {
                    at += skipped(&tokens[at..], "{;");
                } else {
                    paths(group.stream(), found);
                }
            }
            _ => found.push(std::mem::take(&mut path)),
        }
        colons = 0;
    }
    found.push(path);
    found.retain(|path| !path.is_empty());
}

/// Whether `pub use` or `pub(crate) use` begins at a token.
fn passes_on(tokens: &[TokenTree], at: usize) -> bool {
    let word = |at: usize| tokens.get(at).map(ToString::to_string).unwrap_or_default();
    let after =
        if matches!(tokens.get(at + 1), Some(TokenTree::Group(_))) { at + 2 } else { at + 1 };
    word(at) == "pub" && word(after) == "use"
}

/// How many tokens come before the end of an item: a block, or one of these characters.
fn skipped(tokens: &[TokenTree], ends: &str) -> usize {
    let end = tokens.iter().position(|token| match token {
        TokenTree::Punct(punct) => ends.contains(punct.as_char()),
        TokenTree::Group(group) => group.to_string().starts_with('{') && ends.contains('{'),
        _ => false,
    });
    end.map_or(tokens.len(), |end| end + 1)
}

/// Which modules a module names.
fn named(of: &Module, text: &str, all: &BTreeSet<&Module>) -> BTreeSet<Module> {
    let mut found = Vec::new();
    paths(text.parse().unwrap(), &mut found);
    // One word is no path: `pub(crate)`, `&self`.
    let targets = found.into_iter().filter(|path| path.len() > 1).filter_map(|path| {
        let mut base: Module = match path[0].as_str() {
            "crate" => Vec::new(),
            "self" => of.clone(),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                of[..of.len().checked_sub(up)?].to_vec()
            }
            // A module of this one.
            child => {
                let child = [of.as_slice(), &[child.to_owned()]].concat();
                return all.contains(&child).then_some(child);
            }
        };
        base.extend(
            path.into_iter().skip_while(|part| ["crate", "self", "super"].contains(&part.as_str())),
        );
        while !all.contains(&base) {
            base.pop()?;
        }
        Some(base)
    });
    targets.filter(|target| target != of).collect()
}

/// The circles of modules that name each other, each whole.
fn circles(modules: &BTreeMap<Module, String>) -> BTreeSet<Vec<Module>> {
    let all: BTreeSet<&Module> = modules.keys().collect();
    let arrows: BTreeMap<&Module, BTreeSet<Module>> =
        modules.iter().map(|(of, text)| (of, named(of, text, &all))).collect();
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = next.pop() {
            for target in &arrows[&module] {
                if seen.insert(target.clone()) {
                    next.push(target.clone());
                }
            }
        }
        seen
    };
    let reaches: BTreeMap<&Module, BTreeSet<Module>> =
        all.iter().map(|of| (*of, reached(of))).collect();
    let circle = |of: &&Module| -> Vec<Module> {
        reaches[*of].iter().filter(|other| reaches[other].contains(*of)).cloned().collect()
    };
    all.iter().map(circle).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn files_do_not_import_each_other_in_large_circles() {
    let packages = packages();
    for name in FLOORS.iter().copied().flatten() {
        let manifest = Path::new(packages[*name]["manifest_path"].as_str().unwrap());
        for circle in circles(&modules(&manifest.parent().unwrap().join("src"))) {
            assert!(circle.len() <= CIRCLE_MAX, "{name}: {circle:#?}");
        }
    }
}

/// The types that items define, but for those of tests.
fn types(items: &[syn::Item], found: &mut Vec<String>) {
    for item in items {
        let name = match item {
            syn::Item::Struct(item) => &item.ident,
            syn::Item::Enum(item) => &item.ident,
            syn::Item::Trait(item) => &item.ident,
            syn::Item::Type(item) => &item.ident,
            syn::Item::Union(item) => &item.ident,
            syn::Item::Mod(module) => {
                if let Some((_, inner)) =
                    module.content.as_ref().filter(|_| module.ident != "tests")
                {
                    types(inner, found);
                }
                continue;
            }
            _ => continue,
        };
        found.push(name.to_string());
    }
}

#[test]
fn a_crates_types_have_names_of_their_own() {
    let packages = packages();
    let mut alike = Vec::new();
    for name in FLOORS.iter().copied().flatten() {
        let manifest = Path::new(packages[*name]["manifest_path"].as_str().unwrap());
        let mut seen = BTreeMap::new();
        for (module, text) in modules(&manifest.parent().unwrap().join("src")) {
            let mut found = Vec::new();
            types(&syn::parse_file(&text).unwrap().items, &mut found);
            for one in found {
                match seen.insert(one.clone(), module.clone()) {
                    Some(other) if other != module => {
                        alike.push(format!(
                            "{name}: {one} of {} and {}",
                            other.join("/"),
                            module.join("/")
                        ));
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(alike.is_empty(), "{}", alike.join("\n"));
}

#[test]
fn the_search_for_circles_finds_what_it_looks_for() {
    let world = |texts: &[(&str, &str)]| {
        let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
        let all = texts.iter().map(|(name, text)| (module(name), (*text).to_owned()));
        circles(&all.chain([(Vec::new(), String::new())]).collect()).len()
    };
    let b = ("b", "fn f() { if true { crate::a::f() } }");
    assert_eq!(world(&[("a", "use crate::b::f;"), b]), 1);
    assert_eq!(world(&[("a", "use super::b;"), b]), 1);
    assert_eq!(world(&[("a", "fn g() { super::b::f(); }"), b]), 1);
    assert_eq!(world(&[("a", "mod b; fn g() { b::f(); }"), ("a::b", "use super::g;")]), 1);
    // Visibility, what is passed on, tests, and names of other crates.
    assert_eq!(world(&[("a", "pub use crate::b::f;"), b]), 0);
    assert_eq!(world(&[("a", "#[cfg(test)] mod tests { use crate::b::f; }"), b]), 0);
    assert_eq!(world(&[("a", "pub(crate) fn g() {}"), ("b", "use crate::a::g;")]), 0);
    assert_eq!(world(&[("a", "use b::f; struct B { c: bool }"), b]), 0);
}

/// Rows of SECURITY.md's limits: how each begins, where the code has a figure, the code, and the row's words.
#[rustfmt::skip]
const LIMITS: &[[&str; 4]] = &[
    ["stubs", "proxy/sys/src/window.rs", "MAX_SLOTS: usize = 8;", "| 8 |"],
    ["plantings", "proxy/src/tracer.rs", "OF_PROCESS: usize = 4;", "| 4 |"],
    ["plantings", "proxy/src/tracer.rs", "OF_USER: usize = 24;", "| 24 to"],
    ["plantings", "proxy/src/tracer.rs", "STILL: Duration = Duration::from_millis(50);", "last 50 ms"],
    ["plantings", "proxy/src/tracer.rs", "descriptor_limit() / 8)", "eighth of RLIMIT_NOFILE"],
    ["plantings", "proxy/src/tracer.rs", ".clamp(OF_USER, 1024)", "1024 at most"],
    ["waits for memory", "proxy/sys/src/share.rs", "OF_PROCESS: usize = 2;", "| 2 |"],
    ["waits for memory", "proxy/sys/src/share.rs", "OF_USER: usize = 23;", "| 23 |"],
    ["waits for memory", "proxy/sys/src/share.rs", "OF_ALL: usize = 64;", "| 64 |"],
    ["other looks", "proxy/src/crew/watch.rs", "LONG: Duration = Duration::from_millis(50);", "50 ms"],
    ["other looks", "proxy/src/crew/mod.rs", "STUCK: usize = 2;", "| 2 |"],
    ["other looks", "proxy/src/crew/mod.rs", "MOST: usize = 128;", "| 128 |"],
    ["opens and requests", "proxy/src/crew/mod.rs", "ASIDE_OF_PROCESS: usize = 256;", "| 256 |"],
    ["opens and requests", "proxy/src/crew/mod.rs", "ASIDE_OF_USER: usize = 512;", "| 512 |"],
    ["opens and requests", "proxy/src/crew/mod.rs", "ASIDE: usize = 4096;", "| 4096 |"],
    ["descriptors for open devices", "proxy/src/tokens.rs", "descriptor_limit() / 2", "half of RLIMIT_NOFILE"],
    ["descriptors for anything", "proxy/sys/src/shortage.rs", "RESERVE: u64 = 64;", "less 64"],
    ["memory", "proxy/src/memory.rs", "\"memory.high\", 14)", "fourteen sixteenths of memory.high"],
];

#[test]
fn limits_are_told_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let page = read("SECURITY.md");
    let limits = page.split("\n## ").find(|part| part.starts_with("Limits\n")).unwrap();
    for [row, file, code, words] in LIMITS {
        assert!(read(file).contains(code), "{file} has no {code}");
        let line = limits.lines().find(|line| line.starts_with(&format!("| {row}")));
        assert!(line.is_some_and(|line| line.contains(words)), "{row}: {words:?} in {line:?}");
    }
}
