//! The shape of containerd's file on the way to a runtime, and the lines of keys.

use anyhow::Error;
use anyhow::anyhow;
use toml_edit::Item;

use super::wanted::place_of;

/// The line of a key of the file's, for a refusal; nothing where the file does not have the key.
pub(super) fn place(text: &str, keys: &[&str]) -> String {
    let document = toml_edit::Document::parse(text).ok();
    let root = document.as_ref().map(|document| document.as_item());
    let item = keys.iter().fold(root, |at, key| at?.get(key));
    let line = item.and_then(Item::span).map(|span| place_of(text, span.start).0);
    line.map(|line| format!("line {line}: ")).unwrap_or_default()
}

/// Refuses what has another shape on the way to a runtime, by its line.
pub(super) fn check_shape(text: &str, plugin: &str, name: &str) -> Result<(), Error> {
    let Ok(document) = toml_edit::Document::parse(text) else { return Ok(()) };
    let mut at = document.as_item();
    let mut keys: Vec<&str> = Vec::new();
    for key in ["plugins", plugin, "containerd", "runtimes", name] {
        keys.push(key);
        let Some(item) = at.get(key) else { return Ok(()) };
        shaped(text, &keys, "a table", item.is_table_like())?;
        at = item;
    }
    for (key, what) in [
        ("options", "a table"),
        ("pod_annotations", "an array"),
        ("container_annotations", "an array"),
    ] {
        if let Some(item) = at.get(key) {
            let is = if key == "options" { item.is_table_like() } else { item.is_array() };
            shaped(text, &[keys.as_slice(), &[key]].concat(), what, is)?;
        }
    }
    Ok(())
}

fn shaped(text: &str, keys: &[&str], what: &str, is: bool) -> Result<(), Error> {
    let key = keys.last().copied().unwrap_or_default();
    if is {
        return Ok(());
    }
    Err(anyhow!("{}{key}: must be {what}; repair the file first", place(text, keys)))
}
