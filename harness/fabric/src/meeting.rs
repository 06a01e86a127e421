//! The rendezvous by a file that all ranks see, or by the launcher's own exchange (PMI): rank 0 writes
//! where it listens, and the others read that. For launchers that tell ranks their numbers, and not
//! where rank 0 is.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use verbgate_host::netlink::Message;
use verbgate_host::netlink::Netlink;
use verbgate_host::route;
use verbgate_host::uapi::AF_INET;
use verbgate_host::uapi::RTM_GETADDR;

use crate::error::Error;
use crate::pmi;

/// How such a rendezvous begins.
const FILE: &str = "file:";

/// How one begins of which PMI tells.
pub(crate) const PMI: &str = "pmi:";
/// Addresses that rank 0 tells: with more, they would not fit a value of PMI (1024 bytes).
const TOLD: usize = 20;

/// Whether rank 0 is told of by something else than an address, and so listens at any port.
pub(crate) fn is_told(rendezvous: &str) -> bool {
    file(rendezvous).is_some() || rendezvous.starts_with(PMI)
}

/// Where rank 0 listens, by PMI, if that is what the rendezvous is: rank 0 says where, and all hear it.
pub(crate) fn by_pmi(
    rendezvous: &str,
    listens: Option<SocketAddr>,
    patience: Duration,
) -> Result<Option<String>, Error> {
    let Some(number) = rendezvous.strip_prefix(PMI) else { return Ok(None) };
    let failed = |error| Error::Io {
        what: format!("PMI by descriptor {number} of the launcher; --rendezvous needs no PMI"),
        error,
    };
    let say = listens.map(all).transpose().map_err(failed)?;
    let say = say.map(|all| {
        let all: Vec<String> = all.iter().take(TOLD).map(SocketAddr::to_string).collect();
        all.join(",")
    });
    pmi::exchange(number, say.as_deref(), patience).map(Some).map_err(failed)
}

/// All addresses at which a listener is found.
fn all(listens: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    let addresses = match listens.ip() {
        any if any.is_unspecified() => own()?,
        one => vec![one],
    };
    Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, listens.port())).collect())
}

/// The file, if it is one.
pub(crate) fn file(rendezvous: &str) -> Option<&Path> {
    rendezvous.strip_prefix(FILE).map(Path::new)
}

/// The file in which rank 0 says where it listens; it is there for as long as this is.
#[derive(Debug)]
pub(crate) struct Published<'a>(&'a Path);

impl<'a> Published<'a> {
    /// Replaces what an earlier run has left there.
    pub(crate) fn new(file: &'a Path, listens: SocketAddr) -> Result<Self, Error> {
        let failed = |error| Error::Io {
            what: format!("cannot write the rendezvous {}", file.display()),
            error,
        };
        let text: String =
            all(listens).map_err(failed)?.iter().map(|at| format!("{at}\n")).collect();
        // Nobody reads a half of it.
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let new = file.with_file_name(format!("{name}.{}", std::process::id()));
        fs::write(&new, text).and_then(|()| fs::rename(&new, file)).map_err(failed)?;
        Ok(Self(file))
    }
}

impl Drop for Published<'_> {
    fn drop(&mut self) {
        // Somebody may have taken it away.
        let _ = fs::remove_file(self.0);
    }
}

/// Where rank 0 listens; an error until the file is there.
pub(crate) fn read(file: &Path) -> io::Result<Vec<SocketAddr>> {
    let text = fs::read_to_string(file)?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// This host's addresses of IPv4; loopback last, for ranks of this host.
fn own() -> io::Result<Vec<IpAddr>> {
    let mut message = Message::new(RTM_GETADDR);
    message.set_byte(0, AF_INET);
    let mut all: Vec<IpAddr> =
        Netlink::route()?.dump(&message)?.iter().filter_map(route::local).collect();
    all.sort_by_key(IpAddr::is_loopback);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_read_where_rank_0_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meet");
        let text = format!("file:{}", path.display());
        assert_eq!(file(&text), Some(path.as_path()));
        assert_eq!(file("node0:4711"), None);
        assert!(read(&path).is_err());
        fs::write(&path, "10.9.9.9:1\n").unwrap();
        {
            let any = "0.0.0.0:4711".parse().unwrap();
            let _published = Published::new(&path, any).unwrap();
            let found = read(&path).unwrap();
            assert!(
                found.iter().all(|at| at.port() == 4711 && !at.ip().is_unspecified()),
                "{found:?}"
            );
            assert!(found.contains(&"127.0.0.1:4711".parse().unwrap()), "{found:?}");
        }
        assert!(!path.exists());
        let one = "127.0.0.1:5".parse().unwrap();
        let _published = Published::new(&path, one).unwrap();
        assert_eq!(read(&path).unwrap(), [one]);
        let error = Published::new(&folder.path().join("none/meet"), one).unwrap_err();
        assert!(error.to_string().contains("cannot write the rendezvous"), "{error}");
    }
}
