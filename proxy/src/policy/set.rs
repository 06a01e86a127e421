//! `/etc/verbgate/policy.d`: the profiles and tenants of all files there.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::path::PathBuf;

use super::PROFILES;
use super::Policy;
use super::error::PolicyError;
use super::error::PolicyPlace;
use super::error::Source;
use super::error::hint;
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

/// No policy is larger.
const MAX_BYTES: u64 = 16 << 20;

/// Who must own a policy, and be the only one who can write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileOwner {
    /// This user: 0 for every policy that is in force.
    User(u32),
    /// Anybody: for looking at a policy before it is in force.
    Anybody,
}

/// The policy of all files of a directory.
#[derive(Debug)]
pub struct Policies {
    dir: PathBuf,
    profiles: BTreeMap<String, Policy>,
    tenants: Vec<Tenant>,
}

/// A file, read.
struct Document {
    path: PathBuf,
    text: String,
}

/// A profile that is yet to be put together with the profile that it extends.
struct Draft<'a> {
    source: Source<'a>,
    place: PolicyPlace,
    text: ProfileText,
}

impl Policies {
    /// Reads the files `*.toml` of a directory, all of them or none.
    ///
    /// `None`: there is no such directory, and so no operator's policy.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn load(dir: &Path, owner: FileOwner) -> Result<Option<Self>, PolicyError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| PolicyError::Unreadable { path, source }
        };
        let entries = match File::open(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(unreadable(dir)(e)),
            Ok(opened) => {
                check_owner(&opened, dir, owner)?;
                fs::read_dir(dir).map_err(unreadable(dir))?
            }
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(unreadable(dir))?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                paths.push(path);
            }
        }
        paths.sort();
        let mut documents = Vec::new();
        for path in paths {
            let file = File::open(&path).map_err(unreadable(&path))?;
            check_owner(&file, &path, owner)?;
            let mut text = String::new();
            file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable(&path))?;
            if u64::try_from(text.len()).is_ok_and(|len| len > MAX_BYTES) {
                let e = io::Error::other(format!("the file is longer than {MAX_BYTES} bytes"));
                return Err(unreadable(&path)(e));
            }
            documents.push(Document { path, text });
        }
        Self::of(dir, &documents).map(Some)
    }

    /// The policy of one text, as a file of that name has it.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn read(path: &Path, text: &str) -> Result<Self, PolicyError> {
        let dir = path.parent().unwrap_or(Path::new("/")).to_owned();
        Self::of(&dir, &[Document { path: path.to_owned(), text: text.to_owned() }])
    }

    fn of(dir: &Path, documents: &[Document]) -> Result<Self, PolicyError> {
        let mut drafts: HashMap<String, Draft<'_>> = HashMap::new();
        let mut tenants: Vec<(Source<'_>, PolicyPlace, Name, TenantText)> = Vec::new();
        let mut places: HashMap<String, PolicyPlace> = HashMap::new();
        for document in documents {
            let source = Source { file: Some(&document.path), text: &document.text };
            let FileText { version, profile, tenant } = source.parse()?;
            if *version.get_ref() != VERSION {
                let slip = format!("version must be {VERSION}, the schema of this verbgate");
                return Err(source.slip(&version.span(), slip));
            }
            for (name, text) in profile {
                let (place, at) = (source.place(&name.span()), name.span());
                let name = name.into_inner();
                if PROFILES.iter().any(|(known, _)| *known == name) {
                    let slip = format!("{name:?} is a built-in profile; choose another name");
                    return Err(source.slip(&at, slip));
                }
                if let Some(inner) = &text.name {
                    let slip = "the heading names the profile; remove the key name";
                    return Err(source.slip(&inner.span(), slip));
                }
                let draft = Draft { source, place, text };
                if let Some(other) = drafts.insert(name.clone(), draft) {
                    let slip = format!("profile {name:?} is at {}, too", other.place);
                    return Err(source.slip(&at, slip));
                }
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
        let mut profiles: BTreeMap<String, Policy> = BTreeMap::new();
        for name in drafts.keys() {
            put_together(name, &drafts, &mut profiles, &mut Vec::new())?;
        }
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
    if let Some(own) = profiles.get(name.get_ref()) {
        return Ok(own.clone());
    }
    Policy::named(name.get_ref()).map_err(|_| {
        let known = profiles.keys().map(String::as_str).chain(PROFILES.iter().map(|(n, _)| *n));
        let hint = hint(name.get_ref(), known);
        source.slip(&name.span(), format!("there is no profile {:?}; {hint}", name.get_ref()))
    })
}

fn put_together(
    name: &str,
    drafts: &HashMap<String, Draft<'_>>,
    done: &mut BTreeMap<String, Policy>,
    under_way: &mut Vec<String>,
) -> Result<(), PolicyError> {
    let Some(draft) = drafts.get(name).filter(|_| !done.contains_key(name)) else {
        return Ok(());
    };
    if under_way.iter().any(|other| other == name) {
        let circle = under_way.join(" extends ");
        let slip = format!("profile {name:?} extends itself: {circle}");
        return Err(PolicyError::Slip { place: draft.place.clone(), slip });
    }
    under_way.push(name.to_owned());
    let base = match &draft.text.extends {
        None => Policy::default(),
        Some(base) => {
            put_together(base.get_ref(), drafts, done, under_way)?;
            find(base, done, draft.source)?
        }
    };
    under_way.pop();
    let policy = base.extended(name, &draft.text, draft.source)?;
    done.insert(name.to_owned(), policy);
    Ok(())
}

/// Refuses what others than the owner could have written. Asked of the open file, which is the one
/// that is read.
fn check_owner(file: &File, path: &Path, owner: FileOwner) -> Result<(), PolicyError> {
    let FileOwner::User(wanted) = owner else { return Ok(()) };
    let meta = file
        .metadata()
        .map_err(|source| PolicyError::Unreadable { path: path.to_owned(), source })?;
    if meta.uid() == wanted && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    Err(PolicyError::Writable { path: path.to_owned(), owner, mode })
}
