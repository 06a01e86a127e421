//! Errors of policies: the place, the slip, and the nearest right name.

use std::cell::Cell;
use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

/// What is in force while a file has a slip.
const IN_FORCE: &str = "until the files in policy.d are right, no sandbox starts, and sandboxes that run keep the \
     policy that they started with";

/// How alike a name must be to be proposed: 1 for the same.
const ALIKE: f64 = 0.5;

/// A place in a policy's text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyPlace {
    /// The file; none for a text that an embedding program brings.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for PolicyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}:{}", file.display(), self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// Reasons why a policy cannot be used, or grants nothing.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The text has a slip.
    #[error("{place}: {slip}{}", in_force(.place))]
    Slip {
        /// Where.
        place: PolicyPlace,
        /// What is wrong, and the nearest right name.
        slip: String,
    },
    /// A file or the directory cannot be read.
    #[error("cannot read the policy {}: {source}; {IN_FORCE}", .path.display())]
    Unreadable {
        /// File or directory.
        path: PathBuf,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// Somebody else than the owner could have written the file.
    #[error(
        "{} belongs to user {owner} and has mode {mode:04o}; run chown root and chmod go-w on it, \
         because a policy is believed only if root alone can write it; {IN_FORCE}",
        .path.display()
    )]
    Writable {
        /// File or directory.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
        /// Permission bits.
        mode: u32,
    },
    /// No profile has the name.
    #[error("there is no profile {name:?}; {hint}")]
    NoProfile {
        /// The name.
        name: String,
        /// The names that exist.
        hint: String,
    },
    /// No tenant matches.
    #[error(
        "no tenant of {} matches {subject}, and what matches no tenant gets no RDMA; add a tenant, \
         or widen the match of one; see: verbgate policy explain",
        .dir.display()
    )]
    NoTenant {
        /// The directory.
        dir: PathBuf,
        /// What was looked for.
        subject: String,
    },
    /// Two tenants match.
    #[error("tenants {first} and {second} both match {subject}; narrow one match")]
    TwoTenants {
        /// A tenant, and where the tenant is written.
        first: String,
        /// The other.
        second: String,
        /// What both match.
        subject: String,
    },
    /// No tenant has the name.
    #[error("there is no tenant {name:?}; {hint}")]
    NoSuchTenant {
        /// The name.
        name: String,
        /// The names that exist.
        hint: String,
    },
}

fn in_force(place: &PolicyPlace) -> String {
    place.file.as_ref().map_or_else(String::new, |_| format!("; {IN_FORCE}"))
}

/// A text, and where the text is from: what turns spans into places.
#[derive(Debug)]
pub(super) struct Document {
    file: Option<PathBuf>,
    text: String,
    /// Where the lines end: with thousands of names, nobody counts them for each name.
    ends: OnceCell<Vec<usize>>,
    /// Where the last slip was.
    slipped: Cell<Option<(usize, usize)>>,
}

/// The document that a span is of.
pub(super) type Source<'a> = &'a Document;

impl Document {
    pub(super) fn new(file: Option<PathBuf>, text: String) -> Self {
        Self { file, text, ends: OnceCell::new(), slipped: Cell::new(None) }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn place(&self, span: &Range<usize>) -> PolicyPlace {
        let ends = self.ends.get_or_init(|| {
            let ends = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            ends.map(|(at, _)| at).collect()
        });
        let line = ends.partition_point(|end| *end < span.start) + 1;
        PolicyPlace { file: self.file.clone(), line }
    }

    pub(super) fn slip(&self, span: &Range<usize>, slip: impl Into<String>) -> PolicyError {
        self.slipped.set(Some((span.start, span.end)));
        PolicyError::Slip { place: self.place(span), slip: slip.into() }
    }

    /// Where the last slip was, once.
    pub(super) fn slipped(&self) -> Option<Range<usize>> {
        self.slipped.take().map(|(start, end)| start..end)
    }

    /// What has been read, or the slip.
    pub(super) fn read<T>(&self, read: Result<T, toml::de::Error>) -> Result<T, PolicyError> {
        read.map_err(|e| {
            self.slip(&e.span().unwrap_or_default(), with_nearest(e.message().trim_end()))
        })
    }

    /// Reads the text.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, PolicyError> {
        self.read(toml::from_str(&self.text))
    }
}

/// Serde's message about a name, with the nearest name that serde expects.
fn with_nearest(message: &str) -> String {
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let line = message.replace('\n', " ");
    match words.split_first() {
        Some((wrong, known)) if line.starts_with("unknown ") => {
            match nearest(wrong, known.iter().copied()) {
                Some(right) => format!("unknown name {wrong:?}; did you mean {right:?}?"),
                None => line,
            }
        }
        _ => line,
    }
}

/// The known name that is most like a wrong one.
pub(super) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let alike = |name: &str| strsim::normalized_damerau_levenshtein(&wrong, &name.to_lowercase());
    let scored = known.map(|name| (alike(name), name)).filter(|(score, _)| *score >= ALIKE);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// What to say of a wrong name: the nearest known one, or some that are known.
pub fn hint<'a>(wrong: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(wrong, known.clone()) {
        Some(right) => format!("did you mean {right:?}?"),
        None => {
            let names: Vec<&str> = known.take(12).collect();
            format!("known: {}", names.join(", "))
        }
    }
}
