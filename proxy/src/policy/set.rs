//! `/etc/verbgate/policy.d`: the profiles and tenants of all files there.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::path::PathBuf;

use verbgate_sys::foreign;

use super::FileOwner;
use super::PROFILES;
use super::Policy;
use super::error::Document;
use super::error::PolicyError;
use super::error::PolicyPlace;
use super::error::Source;
use super::error::hint;
use super::slips;
use super::slips::Errors;
use super::slips::MOST_SLIPS;
use super::tenant::Subject;
use super::tenant::Tenant;
use super::text::FileText;
use super::text::Name;
use super::text::ProfileText;
use super::text::TenantText;

/// The directory of the operator's policy.
pub const DIRECTORY: &str = "/etc/verbgate/policy.d";

/// The schema that this version reads.
const VERSION: u32 = 1;

/// How many profiles one may extend, one through another.
const MOST_BASES: usize = 32;

/// The policy of all files of a directory.
#[derive(Debug)]
pub struct Policies {
    dir: PathBuf,
    profiles: BTreeMap<String, Policy>,
    tenants: Vec<Tenant>,
}

/// A profile that is yet to be put together with the profile that it extends.
struct Draft<'a> {
    source: Source<'a>,
    name: Name,
    text: ProfileText,
}

/// The profiles that are put together, each with how many it extends.
type Composed = BTreeMap<String, (Policy, usize)>;

impl Policies {
    /// Reads the files `*.toml` of a directory, all of them or none.
    ///
    /// `None`: there is no such directory, and so no operator's policy.
    ///
    /// # Errors
    /// See [`PolicyError`]: the first.
    pub fn load(dir: &Path, owner: FileOwner) -> Result<Option<Self>, PolicyError> {
        Self::all(dir, owner, 1).map_err(|Errors(first, _)| first)
    }

    /// The same, with all errors of all files.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn check(dir: &Path, owner: FileOwner) -> Result<Option<Self>, Vec<PolicyError>> {
        Self::all(dir, owner, MOST_SLIPS).map_err(Errors::all)
    }

    fn all(dir: &Path, owner: FileOwner, most: usize) -> Result<Option<Self>, Errors> {
        let (mut documents, mut errors) = (Vec::new(), Vec::new());
        let Some(paths) = paths(dir, owner).map_err(|e| Errors(e, Vec::new()))? else {
            return Ok(None);
        };
        for path in paths {
            match text(&path, owner) {
                Ok(text) => documents.push(Document::new(Some(path), text)),
                Err(error) => errors.push(error),
            }
        }
        let mut unread = errors.into_iter();
        match unread.next() {
            None => Self::of(dir, &documents, most).map(Some),
            Some(first) => {
                let slips = slips::all(&documents, most, |_| Ok(()));
                Err(Errors(first, unread.chain(slips).collect()))
            }
        }
    }

    /// The policy of one text, as a file of that name has it.
    ///
    /// # Errors
    /// See [`PolicyError`]: all.
    pub fn read(path: &Path, text: &str) -> Result<Self, Vec<PolicyError>> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let document = Document::new(Some(path.to_owned()), text.to_owned());
        Self::of(dir, &[document], MOST_SLIPS).map_err(Errors::all)
    }

    fn of(dir: &Path, documents: &[Document], most: usize) -> Result<Self, Errors> {
        let made = |texts| Self::made(dir, documents, texts);
        let texts: Result<Vec<FileText>, _> = documents.iter().map(Document::parse).collect();
        texts.and_then(made).map_err(|first| {
            let all = if most > 1 {
                slips::all(documents, most, |texts| made(texts).map(drop))
            } else {
                Vec::new()
            };
            let mut all = all.into_iter();
            Errors(all.next().unwrap_or(first), all.collect())
        })
    }

    fn made(dir: &Path, documents: &[Document], texts: Vec<FileText>) -> Result<Self, PolicyError> {
        let mut drafts: BTreeMap<String, Draft<'_>> = BTreeMap::new();
        let mut tenants: Vec<(Source<'_>, PolicyPlace, Name, TenantText)> = Vec::new();
        let mut places: HashMap<String, PolicyPlace> = HashMap::new();
        for (source, text) in documents.iter().zip(texts) {
            let FileText { version, profile, tenant } = text;
            if *version.get_ref() != VERSION {
                let slip = format!("version must be {VERSION}, the schema of this verbgate");
                return Err(source.slip(&version.span(), slip));
            }
            for (name, text) in profile {
                let known = name.get_ref();
                if PROFILES.iter().any(|(built_in, _)| built_in == known) {
                    let slip = format!("{known:?} is a built-in profile; choose another name");
                    return Err(source.slip(&name.span(), slip));
                }
                if let Some(inner) = &text.name {
                    let slip = "the heading names the profile; remove the key name";
                    return Err(source.slip(&inner.span(), slip));
                }
                if let Some(other) = drafts.get(known) {
                    let other = other.source.place(&other.name.span());
                    let slip = format!("profile {known:?} is at {other}, too");
                    return Err(source.slip(&name.span(), slip));
                }
                drafts.insert(known.clone(), Draft { source, name, text });
            }
            for (name, text) in tenant {
                let place = source.place(&name.span());
                if let Some(other) = places.insert(name.get_ref().clone(), place.clone()) {
                    let slip = format!("tenant {:?} is at {other}, too", name.get_ref());
                    return Err(source.slip(&name.span(), slip));
                }
                tenants.push((source, place, name, text));
            }
        }
        let mut done = Composed::new();
        for name in drafts.keys() {
            put_together(name, &drafts, &mut done, &mut Vec::new())?;
        }
        let profiles = done.into_iter().map(|(name, (policy, _))| (name, policy)).collect();
        let mut made = Vec::with_capacity(tenants.len());
        for (source, place, name, text) in tenants {
            let policy = find(&text.profile, &profiles, source)?.limited(&text.rules, source)?;
            made.push(Tenant::read(name.get_ref(), place, text, policy, source)?);
        }
        Ok(Self { dir: dir.to_owned(), profiles, tenants: made })
    }

    /// The tenant of a sandbox.
    ///
    /// # Errors
    /// No tenant matches, or more than one.
    pub fn tenant(&self, subject: &Subject) -> Result<&Tenant, PolicyError> {
        let mut found = self.tenants.iter().filter(|tenant| tenant.matches(subject));
        let subject = subject.to_string();
        match (found.next(), found.next()) {
            (Some(tenant), None) => Ok(tenant),
            (None, _) => Err(PolicyError::NoTenant { dir: self.dir.clone(), subject }),
            (Some(first), Some(second)) => {
                let of = |tenant: &Tenant| format!("{:?} ({})", tenant.name, tenant.place);
                let (first, second) = (of(first), of(second));
                Err(PolicyError::TwoTenants { first, second, subject })
            }
        }
    }

    /// The tenant of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(&self, name: &str) -> Result<&Tenant, PolicyError> {
        let names = self.tenants.iter().map(|tenant| tenant.name.as_str());
        self.tenants.iter().find(|tenant| tenant.name == name).ok_or_else(|| {
            PolicyError::NoSuchTenant { name: name.to_owned(), hint: hint(name, names) }
        })
    }

    /// A profile, one of these files' or a built-in one.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn profile(&self, name: &str) -> Result<Policy, PolicyError> {
        match self.profiles.get(name) {
            Some(own) => Ok(own.clone()),
            None => Policy::named(name),
        }
    }

    /// All tenants.
    #[must_use]
    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    /// The names of the files' own profiles.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }
}

/// A profile that a text names.
fn find(
    name: &Name,
    profiles: &BTreeMap<String, Policy>,
    source: Source<'_>,
) -> Result<Policy, PolicyError> {
    match profiles.get(name.get_ref()) {
        Some(own) => Ok(own.clone()),
        None => built_in(name, profiles.keys(), source),
    }
}

/// A built-in profile that a text names; these files have others.
fn built_in<'a>(
    name: &Name,
    others: impl Iterator<Item = &'a String> + Clone,
    source: Source<'_>,
) -> Result<Policy, PolicyError> {
    Policy::named(name.get_ref()).map_err(|_| {
        let known = others.map(String::as_str).chain(PROFILES.iter().map(|(n, _)| *n));
        let hint = hint(name.get_ref(), known);
        source.slip(&name.span(), format!("there is no profile {:?}; {hint}", name.get_ref()))
    })
}

fn put_together<'a>(
    name: &'a str,
    drafts: &'a BTreeMap<String, Draft<'_>>,
    done: &mut Composed,
    under_way: &mut Vec<&'a str>,
) -> Result<(), PolicyError> {
    let Some(draft) = drafts.get(name).filter(|_| !done.contains_key(name)) else {
        return Ok(());
    };
    let (mut base, mut bases) = (Policy::default(), 0);
    if let Some(extended) = &draft.text.extends {
        let slip = |slip: String| Err(draft.source.slip(&extended.span(), slip));
        under_way.push(name);
        if under_way.contains(&extended.get_ref().as_str()) {
            let circle = under_way.join(" extends ");
            return slip(format!("profile {:?} extends itself: {circle}", extended.get_ref()));
        }
        if under_way.len() <= MOST_BASES {
            put_together(extended.get_ref(), drafts, done, under_way)?;
        }
        under_way.pop();
        (base, bases) = match done.get(extended.get_ref()) {
            Some((base, bases)) => (base.clone(), bases + 1),
            None if drafts.contains_key(extended.get_ref()) => (base, MOST_BASES + 1),
            None => (built_in(extended, drafts.keys(), draft.source)?, 1),
        };
        if bases > MOST_BASES {
            return slip(format!(
                "profile {name:?} extends more than {MOST_BASES} profiles, one through another; have it extend one of \
                 the first of them"
            ));
        }
    }
    let policy = base.extended(name, &draft.text, draft.source)?;
    done.insert(name.to_owned(), (policy, bases));
    Ok(())
}

/// The files of a directory; none where there is no such directory.
fn paths(dir: &Path, owner: FileOwner) -> Result<Option<Vec<PathBuf>>, PolicyError> {
    let unreadable = |source| PolicyError::Unreadable { path: dir.to_owned(), source };
    let mut options = File::options();
    match options.read(true).custom_flags(libc::O_DIRECTORY).open(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(e)),
        Ok(opened) => check_owner(&opened, dir, owner)?,
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(Some(paths))
}

fn text(path: &Path, owner: FileOwner) -> Result<String, PolicyError> {
    let unreadable = |source| PolicyError::Unreadable { path: path.to_owned(), source };
    let file = foreign::open(path, File::options().read(true), FileOwner::Anybody);
    check_owner(&file.map_err(unreadable)?, path, owner)?;
    foreign::read_text(path, owner).map_err(unreadable)
}

/// Refuses what others than the owner could have written.
fn check_owner(file: &File, path: &Path, owner: FileOwner) -> Result<(), PolicyError> {
    match owner.stranger(file) {
        Ok(None) => Ok(()),
        Ok(Some((owner, mode))) => {
            Err(PolicyError::Writable { path: path.to_owned(), owner, mode })
        }
        Err(source) => Err(PolicyError::Unreadable { path: path.to_owned(), source }),
    }
}
