//! The page that `verbgate fabric` writes, looked at as people do: what a browser makes of the page, and
//! a picture of that.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use crate::common::output;
use crate::common::stdout;
use crate::common::verbgate;

/// A browser, if one is there: `cargo xtask test --install` installs the first.
fn browser() -> Option<&'static str> {
    let names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
    let found = names.into_iter().find(|name| {
        let found = Command::new(name).arg("--version").stdin(Stdio::null()).output();
        found.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        println!("SKIPPED: needs a browser: install `chromium-headless-shell`");
    }
    found
}

/// A browser that looks at a file and at nothing else: no profile of anybody's, and no traffic of its own.
fn look(browser: &str, page: &Path, what: &str) -> Output {
    let profile = tempfile::tempdir().unwrap();
    let mut look = Command::new(browser);
    look.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    look.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    look.args(["--hide-scrollbars", "--window-size=1200,1600", what]);
    look.arg(format!("--user-data-dir={}", profile.path().display()));
    look.arg(format!("file://{}", page.display())).env("HOME", profile.path());
    let seen = output(look.stdin(Stdio::null()));
    assert!(seen.status.success(), "{seen:?}");
    seen
}

/// `fabric simulate` with these options writes a page; what the browser makes of the page.
fn seen(options: &[&str]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let (page, picture) = (folder.path().join("page.html"), folder.path().join("page.png"));
    let mut command = Command::new(verbgate());
    command.args(["fabric", "simulate"]).args(options).arg("--html").arg(&page);
    let run = output(command.stdin(Stdio::null()));
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let browser = browser()?;
    let dom = stdout(&look(browser, &page, "--dump-dom"));
    look(browser, &page, &format!("--screenshot={}", picture.display()));
    let bytes = fs::read(&picture).unwrap();
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000, "{}", bytes.len());
    println!("{browser} shows the page: {} bytes of picture", bytes.len());
    Some(dom)
}

#[test]
fn a_browser_shows_the_page_with_what_is_wrong() {
    let faults = ["--fault", "nothing-arrives@rank=3", "--fault", "data-differs@pair=1-9,rail=1"];
    let options = [&["--ranks", "16", "--rails", "2"], &faults[..]].concat();
    let Some(dom) = seen(&options) else { return };
    assert!(dom.contains("id=\"verdict\">FAILED<"), "{dom}");
    for words in
        ["rank 3, with all others", "data-differs: the way between ranks 1 and 9 on rail 1"]
    {
        assert!(dom.contains(words), "{words}: {dom}");
    }
    // Both directions of all paths of rank 3 on both rails, and one path.
    assert_eq!(dom.matches("<td class=\"x\"").count(), 15 * 2 * 2 + 2);
}

/// Of a benchmark: eight nodes of four rails at 400 Gb/s, as `--save` writes them. The numbers are made up,
/// because no test machine has such NICs: one rail of a rank is slow, and one path has failed.
#[test]
fn a_browser_shows_the_page_of_a_benchmark() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/bench.json");
    let Some(dom) = seen(&["--outcome", recorded]) else { return };
    let outcome: serde_json::Value = serde_json::from_slice(&fs::read(recorded).unwrap()).unwrap();
    let paths = outcome["paths"].as_array().unwrap();
    let mut good = 0;
    for path in paths {
        let (from, to, rail) = (&path["from"], &path["to"], &path["rail"]);
        let Some(gbps) = path["gbps"].as_f64() else { continue };
        let us = path["p50_us"].as_f64().unwrap();
        // The number is in the cell, and beside it the rest.
        let title = format!("title=\"rank {from} to {to}, rail {rail}: {gbps:.1} Gb/s; {us:.1} us");
        let (_, cell) = dom.split_once(&title).unwrap_or_else(|| panic!("{title}: {dom}"));
        let shown = cell.split_once('>').unwrap().1.split_once('<').unwrap().0;
        match path["good"].as_bool().unwrap() {
            true => assert_eq!(shown, format!("{gbps:.0}"), "{title}"),
            false => assert_eq!(shown, "X", "{title}"),
        }
        good += usize::from(path["good"] == true);
    }
    // Each path that is well has a colour of its speed; the others are red, with the cause beside them.
    assert_eq!(dom.matches("<td style=\"background:").count(), good, "{dom}");
    assert_eq!(dom.matches("<td class=\"x\"").count(), paths.len() - good, "{dom}");
    for words in
        ["FAILED<", "rail 2 of rank 5: 3 % of the wire", "rail 0: RETRY_EXC_ERR &lt;12&gt;"]
    {
        assert!(dom.contains(words), "{words}: {dom}");
    }
}
