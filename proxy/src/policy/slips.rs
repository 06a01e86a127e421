//! All slips of texts. Whoever reads a text stops at the first slip; so a slip is taken out of the text, and the text
//! is read again.

use std::ops::Range;

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::DeArray;
use toml::de::DeTable;
use toml::de::DeValue;
use toml::de::Deserializer;

use super::error::Document;
use super::error::PolicyError;
use super::error::nearest;
use super::text::FileText;

/// Slips that are told at once.
pub(super) const MOST_SLIPS: usize = 64;

/// The one key that each document must have.
const VERSION: &str = "version = 1";

/// Errors, of which there is a first.
pub(super) struct Errors(pub(super) PolicyError, pub(super) Vec<PolicyError>);

impl Errors {
    pub(super) fn all(self) -> Vec<PolicyError> {
        std::iter::once(self.0).chain(self.1).collect()
    }
}

/// All slips of documents, those of TOML first. `check` reads the texts of all documents together, without what was
/// told.
pub(super) fn all(
    documents: &[Document],
    most: usize,
    check: impl Fn(Vec<FileText>) -> Result<(), PolicyError>,
) -> Vec<PolicyError> {
    let mut found = Vec::new();
    let mut trees: Vec<(&Document, Tree<'_>)> = Vec::new();
    for document in documents {
        let (root, slips) = DeTable::parse_recoverable(document.text());
        match slips.is_empty() {
            true => trees.push((document, Tree { root, robbed: Vec::new() })),
            false => {
                found.extend(slips.into_iter().filter_map(|e| document.read::<()>(Err(e)).err()))
            }
        }
    }
    let is_whole = trees.len() == documents.len();
    for document in documents {
        let _ = document.slipped();
    }
    // Each round takes something out.
    for _ in 0..2 * most {
        let texts = trees.iter().map(|(document, tree)| document.read(tree.text()));
        let texts: Result<Vec<FileText>, PolicyError> = texts.collect();
        // What one file has, another may need.
        let checked = texts.and_then(|texts| if is_whole { check(texts) } else { Ok(()) });
        let Err(error) = checked else { break };
        let told = error.to_string();
        let mut slipped =
            trees.iter_mut().filter_map(|(document, tree)| Some((document.slipped()?, tree)));
        let taken = slipped.next().map_or(Taken::Nothing, |(at, tree)| tree.take(&at, &told));
        if taken != Taken::Told {
            found.push(error);
        }
        if taken == Taken::Nothing || found.len() >= most {
            break;
        }
    }
    found.sort_by_key(|error| match error {
        PolicyError::Slip { place, .. } => Some((place.file.clone(), place.line)),
        _ => None,
    });
    found
}

/// What was taken out of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Slip,
    /// A slip that follows from what was taken out before.
    Told,
    Nothing,
}

/// A document as TOML has it.
struct Tree<'a> {
    root: Spanned<DeTable<'a>>,
    /// Tables and lists from which something was taken, and the keys.
    robbed: Vec<(Vec<Step>, String)>,
}

/// A step from a table or a list to a part.
#[derive(Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl<'a> Tree<'a> {
    fn text(&self) -> Result<FileText, toml::de::Error> {
        FileText::deserialize(Deserializer::from(self.root.clone()))
    }

    /// Takes out the smallest part that a slip is in.
    fn take(&mut self, at: &Range<usize>, slip: &str) -> Taken {
        let mut best = None;
        // What the document itself is missing is nowhere.
        if !at.is_empty() {
            smallest_in_table(self.root.get_ref(), at, &mut Vec::new(), &mut best);
        }
        let path = best.map(|(_, path)| path).unwrap_or_default();
        let missing = slip.split("missing field `").nth(1).and_then(|rest| rest.split('`').next());
        let is_told = self.robbed.iter().any(|(robbed, key)| {
            *robbed == path
                && missing.is_none_or(|field| nearest(key, [field].into_iter()).is_some())
        });
        let taken = if is_told { Taken::Told } else { Taken::Slip };
        let Some((last, above)) = path.split_last() else {
            // Of the document itself.
            return match DeTable::parse(VERSION) {
                Ok(version) if missing.is_some() => {
                    self.root.get_mut().extend(version.into_inner());
                    taken
                }
                _ => Taken::Nothing,
            };
        };
        let key = match last {
            Step::Key(key) => key.clone(),
            Step::Index(_) => String::new(),
        };
        self.robbed.push((above.to_vec(), key));
        remove(self.root.get_mut(), above, last);
        taken
    }
}

/// The smallest part found until now: its length, and the way to it.
type Best = Option<(usize, Vec<Step>)>;

fn smallest(
    value: &Spanned<DeValue<'_>>,
    at: &Range<usize>,
    path: &mut Vec<Step>,
    best: &mut Best,
) {
    consider(&value.span(), at, path, best);
    match value.get_ref() {
        DeValue::Table(table) => smallest_in_table(table, at, path, best),
        DeValue::Array(list) => {
            for (index, one) in list.iter().enumerate() {
                path.push(Step::Index(index));
                smallest(one, at, path, best);
                path.pop();
            }
        }
        _ => {}
    }
}

fn smallest_in_table(
    table: &DeTable<'_>,
    at: &Range<usize>,
    path: &mut Vec<Step>,
    best: &mut Best,
) {
    for (key, value) in table {
        path.push(Step::Key(key.get_ref().to_string()));
        consider(&key.span(), at, path, best);
        smallest(value, at, path, best);
        path.pop();
    }
}

fn consider(span: &Range<usize>, at: &Range<usize>, path: &[Step], best: &mut Best) {
    let holds = span.start <= at.start && at.end <= span.end && !path.is_empty();
    if holds && best.as_ref().is_none_or(|(len, _)| span.len() <= *len) {
        *best = Some((span.len(), path.to_vec()));
    }
}

fn remove(table: &mut DeTable<'_>, above: &[Step], last: &Step) {
    let mut parent = ParentOf::Table(table);
    for step in above {
        let next = match (parent, step) {
            (ParentOf::Table(table), Step::Key(key)) => table.get_mut(key.as_str()),
            (ParentOf::List(list), Step::Index(index)) => list.get_mut(*index),
            _ => None,
        };
        parent = match next.map(Spanned::get_mut) {
            Some(DeValue::Table(table)) => ParentOf::Table(table),
            Some(DeValue::Array(list)) => ParentOf::List(list),
            _ => return,
        };
    }
    match (parent, last) {
        (ParentOf::Table(table), Step::Key(key)) => drop(table.remove(key.as_str())),
        (ParentOf::List(list), Step::Index(index)) => {
            let mut others = DeArray::new();
            let kept = list.iter().enumerate().filter(|(at, _)| at != index);
            kept.for_each(|(_, one)| others.push(one.clone()));
            *list = others;
        }
        _ => {}
    }
}

enum ParentOf<'a, 'i> {
    Table(&'a mut DeTable<'i>),
    List(&'a mut DeArray<'i>),
}
