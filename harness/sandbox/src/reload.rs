//! A reload of the operator's policy, for programs of `verbgate run`: a socket in the directory of
//! run-time state, on which the supervisor is told to look at the files again.
//!
//! **A letter carries no policy.** A program that runs as root and sees the host's files reaches the
//! socket, too. The supervisor therefore takes nothing from a letter but the wish: the supervisor reads
//! the operator's files itself, below the directory that was in force at the start, with the checks of
//! the start. A letter of a hostile program causes what the operator's own would. A policy that is in
//! force already is not entered again, so letters do not make the supervisor grow; and letters are
//! taken slowly.

use std::fs;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::panic;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;

use serde::Deserialize;
use serde::Serialize;
use verbgate_proxy::policy::FileOwner;
use verbgate_proxy::policy::Narrowing;
use verbgate_proxy::policy::Policies;
use verbgate_sys::post::Post;
use verbgate_sys::post::Way;

use crate::Error;

/// The directory of the sockets, in the directory of run-time state.
const DIRECTORY: &str = "run";
/// Time for a supervisor to read the files.
const PATIENCE_MS: i32 = 5_000;
/// Between two letters, so that whoever writes many does not keep a processor busy.
const PAUSE: Duration = Duration::from_millis(50);

/// The only letter: look at the policy of this directory again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    reload: PathBuf,
}

/// What a supervisor did about a reload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Reloaded {
    /// The program's requests must pass the profile of this name, too.
    Narrowed(String),
    /// Nothing has changed, and why.
    Kept(String),
}

/// The policy that a program follows while the program runs.
#[derive(Debug)]
pub(crate) struct Follower {
    post: Post,
    dir: PathBuf,
    tenant: String,
    /// What is in force.
    now: Narrowing,
}

impl Follower {
    /// Makes the socket: to be called before the supervisor confines itself.
    pub(crate) fn bind(
        root: &Path,
        dir: &Path,
        tenant: &str,
        now: Narrowing,
    ) -> Result<Self, Error> {
        let all = root.join(DIRECTORY);
        let failed = |source| Error::Reload { path: all.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&all).map_err(failed)?;
        // A supervisor at its end can remove nothing any more.
        sockets(&all).map_err(failed)?.iter().for_each(|socket| drop(way(socket)));
        // Process ids come again, and another PID namespace has the same.
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("{}-{:x}", std::process::id(), at.as_nanos());
        let post = Post::bind(&all.join(name)).map_err(failed)?;
        let dir = std::path::absolute(dir).map_err(failed)?;
        Ok(Self { post, dir, tenant: tenant.to_owned(), now })
    }

    /// Starts the thread that takes letters, and narrows by `narrow`.
    pub(crate) fn start(mut self, narrow: impl Fn(Narrowing) + Send + 'static) -> io::Result<()> {
        let take = move || {
            let error = loop {
                let letter = match self.post.wait() {
                    Ok(letter) => letter,
                    Err(error) => break error,
                };
                let done =
                    panic::catch_unwind(AssertUnwindSafe(|| self.heed(&letter.body, &narrow)));
                let done = done.unwrap_or_else(|_| self.kept("verbgate has a fault"));
                match &done {
                    Reloaded::Narrowed(name) => log::info!("narrowed by {name}"),
                    Reloaded::Kept(why) => log::warn!("{why}"),
                }
                letter.reply(&serde_json::to_vec(&done).unwrap_or_default());
                std::thread::sleep(PAUSE);
            };
            log::error!(
                "a reload of the policy no longer reaches this program: {error}; to apply one, \
                 start the program again"
            );
        };
        std::thread::Builder::new().name("reload".to_owned()).spawn(take).map(drop)
    }

    fn heed(&mut self, body: &[u8], narrow: impl Fn(Narrowing)) -> Reloaded {
        let Ok(Wish { reload }) = serde_json::from_slice(body) else {
            return self.kept("the message is no wish for a reload");
        };
        if reload != self.dir {
            let (own, other) = (self.dir.display(), reload.display());
            return self.kept(&format!("it is under the policy of {own} and not of {other}"));
        }
        let by = match Policies::load(&self.dir, FileOwner::User(0)) {
            Err(error) => return self.kept(&error.to_string()),
            Ok(None) => {
                return self.kept(&format!("there is no directory {}", self.dir.display()));
            }
            Ok(Some(policies)) => match policies.named(&self.tenant) {
                Err(error) => return self.kept(&error.to_string()),
                Ok(tenant) => Narrowing::from(tenant),
            },
        };
        let name = by.to_string();
        if by != self.now {
            narrow(by.clone());
            self.now = by;
        }
        Reloaded::Narrowed(name)
    }

    fn kept(&self, why: &str) -> Reloaded {
        let (tenant, name) = (&self.tenant, &self.now);
        Reloaded::Kept(format!("tenant {tenant} keeps the policy in force, profile {name}: {why}"))
    }
}

/// Has the programs of `verbgate run` narrowed whose supervisors share a directory of run-time state:
/// each program's process id of its supervisor, and what was done.
///
/// # Errors
/// The file system's, about the directory.
pub fn reload(root: &Path, dir: &Path) -> io::Result<Vec<(String, Reloaded)>> {
    let wish = serde_json::to_vec(&Wish { reload: std::path::absolute(dir)? })?;
    let mut all = Vec::new();
    for socket in sockets(&root.join(DIRECTORY))? {
        let asked = match way(&socket) {
            Ok(None) => continue,
            Ok(Some(way)) => way.ask(&wish, &[], PATIENCE_MS),
            Err(error) => Err(error),
        };
        let done = match asked {
            // The program has ended meanwhile.
            Err(e) if is_gone(&e) => continue,
            Err(e) => Reloaded::Kept(format!(
                "the supervisor has not answered, and may or may not have narrowed the program: \
                 {e}; try again, or end the program"
            )),
            // Whoever made that socket: the others are told.
            Ok(answer) => serde_json::from_slice(&answer).unwrap_or_else(|e| {
                Reloaded::Kept(format!("the answer is not a supervisor's: {e}"))
            }),
        };
        let name = socket.file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.push((name.split('-').next().unwrap_or_default().to_owned(), done));
    }
    Ok(all)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NotFound
            | io::ErrorKind::UnexpectedEof
    )
}

fn sockets(all: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(all) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

/// The way to a supervisor; a socket of which nobody reads any more is removed. A name is never used
/// twice.
fn way(socket: &Path) -> io::Result<Option<Way>> {
    match Way::to(socket) {
        Ok(way) => Ok(Some(way)),
        Err(e) if is_gone(&e) => {
            // Another may have removed the same.
            let _ = fs::remove_file(socket);
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::PermissionsExt as _;

    use verbgate_proxy::policy::Policy;

    use super::*;

    fn write(dir: &Path, profile: &str) {
        let text = format!(
            "version = 1\n[tenant.a]\nmatch.uid = 7\nprofile = \"{profile}\"\n\
             devices = [{{ name = \"uverbs9\" }}]\n"
        );
        let file = dir.join("a.toml");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    }

    #[test]
    fn a_letter_brings_the_files_to_bear_and_nothing_else() {
        if !verbgate_host::is_root() {
            eprintln!("SKIPPED: root must own the policy");
            return;
        }
        let (root, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let hpc = Policy::named("hpc").unwrap();
        let mut follower = Follower::bind(root.path(), dir.path(), "a", hpc.into()).unwrap();
        let narrowed = RefCell::new(Vec::new());
        let mut heed = |body: &[u8]| {
            let done = follower.heed(body, |by| narrowed.borrow_mut().push(by.to_string()));
            (done, narrowed.borrow().len())
        };
        let wish = |dir: &Path| serde_json::to_vec(&Wish { reload: dir.to_owned() }).unwrap();
        let own = wish(dir.path());
        write(dir.path(), "standard");
        let standard = Reloaded::Narrowed("standard".to_owned());
        assert_eq!(heed(&own), (standard.clone(), 1));
        // However often: nothing grows.
        assert_eq!(heed(&own), (standard.clone(), 1));
        // The attacks of whoever reaches the socket: a policy in a letter, and a directory of his own.
        let other = tempfile::tempdir().unwrap();
        write(other.path(), "full");
        let mut beside = own.clone();
        beside.truncate(beside.len() - 1);
        beside.extend(b",\"policy\":\"full\"}");
        for body in [&b""[..], b"\"narrow\"", &beside, &wish(other.path()), &[0xff; 1024]] {
            let (done, count) = heed(body);
            assert!(matches!(done, Reloaded::Kept(_)) && count == 1, "{body:?}: {done:?}");
        }
        // A slip, files that others may write, and no files: what is in force is said, and stays.
        let keeps = |(done, count): (Reloaded, usize), word: &str| {
            let Reloaded::Kept(why) = done else { panic!("{done:?}") };
            assert!(why.contains("tenant a keeps") && why.contains("profile standard"), "{why}");
            assert!(why.contains(word) && count == 1, "{why}");
        };
        write(dir.path(), "standart");
        keeps(heed(&own), "a.toml:4");
        write(dir.path(), "full");
        let file = dir.path().join("a.toml");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        keeps(heed(&own), "a.toml");
        fs::remove_file(&file).unwrap();
        keeps(heed(&own), "\"a\"");
        drop(dir);
        keeps(heed(&own), "there is no directory");
    }

    #[test]
    fn sockets_of_the_dead_are_removed_and_those_of_the_living_are_asked() {
        let root = tempfile::tempdir().unwrap();
        let bind = || {
            let policy = Policy::named("hpc").unwrap();
            Follower::bind(root.path(), Path::new("/none"), "a", policy.into()).unwrap()
        };
        let count = || sockets(&root.path().join(DIRECTORY)).unwrap().len();
        assert!(reload(root.path(), Path::new("/none")).unwrap().is_empty());
        drop(bind());
        assert_eq!(count(), 1);
        bind().start(|_| panic!("nothing is to be narrowed")).unwrap();
        assert_eq!(count(), 1);
        let asked = reload(root.path(), Path::new("/none")).unwrap();
        let [(process, Reloaded::Kept(why))] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(*process, std::process::id().to_string());
        assert!(why.contains("there is no directory /none"), "{why}");
        // Somebody else's socket keeps nobody from being told.
        let false_one = Post::bind(&root.path().join(DIRECTORY).join("0-0")).unwrap();
        std::thread::spawn(move || false_one.wait().unwrap().reply(b"granted"));
        let asked = reload(root.path(), Path::new("/none")).unwrap();
        assert_eq!(asked.len(), 2, "{asked:?}");
        assert!(asked.iter().all(|(_, done)| matches!(done, Reloaded::Kept(_))), "{asked:?}");
        let mode = fs::metadata(root.path().join(DIRECTORY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
