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
    let path = ["plugins", plugin, "containerd", "runtimes", name];
    let list = |item: &Item| item.as_array().is_some();
    let rules: [(&str, &str, fn(&Item) -> bool); 3] = [
        ("options", "a table", Item::is_table_like),
        ("pod_annotations", "an array", list),
        ("container_annotations", "an array", list),
    ];
    let tables = (1..=path.len())
        .map(|to| (path[..to].to_vec(), "a table", Item::is_table_like as fn(&Item) -> bool));
    let below = rules.map(|(key, what, is)| ([&path[..], &[key]].concat(), what, is));
    for (keys, what, is) in tables.chain(below) {
        let item = keys.iter().try_fold(document.as_item(), |at, key| at.get(key));
        if let (Some(item), Some(key)) = (item, keys.last())
            && !is(item)
        {
            return Err(anyhow!(
                "{}{key}: must be {what}; repair the file first",
                place(text, &keys)
            ));
        }
    }
    Ok(())
}
