//! The look-up of a caller's path: by the caller's root, directories and symbolic links.
//!
//! The answer says which granted device the path means, if any: a guest learns no more than by
//! naming the device. Nothing is opened; links are read one at a time, each below the caller's own
//! root, so the supervisor's root and the supervisor's links in `/proc` play no part.
//!
//! Reading a link may wait for the file system of the link, which anybody may serve: so a helper process reads it.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;

use crate::GuestFd;
use crate::caller::Caller;
use crate::resident;
use crate::shortage;

/// Components that are looked at, those of links included; the kernel follows 40 links.
const MOST: usize = 128;

/// A path as a call names it.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The directory that it begins at if it is relative; `AT_FDCWD` for the working directory.
    pub dir: GuestFd,
    /// The path.
    pub path: &'a [u8],
    /// Whether it is followed when its last component is a symbolic link.
    pub follow: bool,
}

/// A path from the root of the process that named it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The root, as seen from the root of its mounts.
    root: Vec<u8>,
    /// The path from there.
    path: Vec<u8>,
}

impl Place {
    /// The path as seen from the process's root, and from that of its mounts.
    #[must_use]
    pub fn names(&self) -> [Vec<u8>; 2] {
        let root = self.root.strip_suffix(b"/").unwrap_or(&self.root);
        [self.path.clone(), [root, &self.path].concat()]
    }
}

impl Caller<'_> {
    /// What it means by a path if no component is a link. No file system is asked.
    #[must_use]
    pub fn means_by(self, named: &Named<'_>) -> Option<Place> {
        let tid = self.tid();
        let root = self.believed(link(&format!("/proc/{tid}/root")).ok()?).ok()?;
        let mut path = Vec::new();
        if named.path.first() != Some(&b'/') {
            let from = if named.dir.0 == libc::AT_FDCWD {
                self.believed(link(&format!("/proc/{tid}/cwd")).ok()?).ok()?
            } else {
                self.name_of(named.dir).ok()?
            };
            path.extend(below(&root, &from)?);
            path.push(b'/');
        }
        path.extend(named.path);
        Some(Place { path: walked(&path, true, |_| Ok(None))?, root })
    }

    /// What it means by a path, links followed.
    ///
    /// It may wait for the file systems that the path leads through.
    ///
    /// # Errors
    /// An error that [`shortage`] knows.
    pub fn leads_to(self, named: &Named<'_>) -> io::Result<Option<Place>> {
        let Some(Place { root, path: mut from }) = self.means_by(&Named { path: b".", ..*named })
        else {
            return Ok(None);
        };
        if named.path.first() == Some(&b'/') {
            from.clear();
        }
        from.push(b'/');
        from.extend(named.path);
        let Ok(share) = self.share() else { return Ok(None) };
        let mut short = None;
        let own_root = format!("/proc/{}/root", self.tid());
        let path = walked(&from, named.follow, |path| {
            // Links in there are about whoever reads them.
            if path.starts_with(b"/proc/") {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let at = [own_root.as_bytes(), path].concat();
            let at = CString::new(at).map_err(io::Error::other)?;
            match resident::link_elsewhere(at, &share, || self.waits()) {
                Ok(target) => Ok(Some(target)),
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(None),
                Err(e) => {
                    short = Some(e).filter(shortage::is);
                    Err(io::ErrorKind::Other.into())
                }
            }
        });
        match (short, path) {
            (Some(short), _) => Err(short),
            (None, Some(path)) => Ok(self.believed(Place { root, path }).ok()),
            (None, None) => Ok(None),
        }
    }
}

fn link(path: &str) -> io::Result<Vec<u8>> {
    fs::read_link(path).map(|name| name.into_os_string().into_vec())
}

/// A path as seen from a root.
fn below(root: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    if root == b"/" {
        return Some(path.to_vec());
    }
    let rest = path.strip_prefix(root)?;
    (rest.is_empty() || rest.starts_with(b"/")).then(|| rest.to_vec())
}

/// An absolute path without `.`, `..` and links; `read` gives what a path leads to that is a link.
/// `None`: it leads nowhere, or its last component is a link that is not to be followed.
fn walked(
    path: &[u8],
    follow: bool,
    mut read: impl FnMut(&[u8]) -> io::Result<Option<Vec<u8>>>,
) -> Option<Vec<u8>> {
    let components = |path: &[u8]| -> Vec<Vec<u8>> {
        path.rsplit(|byte| *byte == b'/').filter(|c| !c.is_empty()).map(<[u8]>::to_vec).collect()
    };
    // The next one is the last.
    let mut ahead = components(path);
    let mut done = Vec::new();
    for _ in 0..MOST {
        let Some(next) = ahead.pop() else { return Some(done) };
        let up = done.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        match next.as_slice() {
            b"." => continue,
            b".." => {
                done.truncate(up);
                continue;
            }
            _ => {}
        }
        let len = done.len();
        done.push(b'/');
        done.extend(next);
        let Some(target) = read(&done).ok()? else { continue };
        if ahead.is_empty() && !follow {
            return None;
        }
        done.truncate(if target.first() == Some(&b'/') { 0 } else { len });
        ahead.extend(components(&target));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_one_by_one() {
        let links = |path: &[u8]| {
            let target: &[u8] = match path {
                b"/tmp/link" => b"/devices/./node",
                b"/devices" => b"dev/../dev",
                b"/tmp/up" => b"../../dev/node",
                b"/tmp/round" => b"round",
                b"/gone" => return Err(io::ErrorKind::NotFound.into()),
                _ => return Ok(None),
            };
            Ok(Some(target.to_vec()))
        };
        let walk = |path: &str, follow| {
            walked(path.as_bytes(), follow, links).map(|path| String::from_utf8(path).unwrap())
        };
        let node = Some("/dev/node".to_owned());
        for path in ["/dev/node", "//dev/.//x/../node", "/tmp/link", "/devices/node", "/tmp/up"] {
            assert_eq!(walk(path, true), node, "{path}");
        }
        assert_eq!(walk("/devices/node", false), node);
        for path in ["/tmp/link", "/tmp/up"] {
            assert_eq!(walk(path, false), None, "{path}");
        }
        assert_eq!((walk("/tmp/round", true), walk("/gone/x", true)), (None, None));
    }

    #[test]
    fn a_path_is_seen_from_its_root() {
        assert_eq!(below(b"/", b"/dev/x").unwrap(), b"/dev/x");
        assert_eq!(below(b"/jail", b"/jail/dev/x").unwrap(), b"/dev/x");
        assert_eq!(below(b"/jail", b"/jail").unwrap(), b"");
        assert_eq!(below(b"/jail", b"/jailed/dev/x"), None);
        let place = |root: &[u8]| Place { root: root.to_vec(), path: b"/x".to_vec() };
        assert_eq!(place(b"/").names(), [b"/x".to_vec(), b"/x".to_vec()]);
        assert_eq!(place(b"/dev").names(), [b"/x".to_vec(), b"/dev/x".to_vec()]);
    }
}
