//! The connections of all sandboxes of a host: who speaks with a queue pair of a peer, and by which
//! address.
//!
//! A reliable queue pair believes packets by the sender's address, its own number and a sequence
//! number of 24 bits. A second sandbox that shares the sender's address, and names the same queue
//! pair, writes into the peer's memory in the first one's name, and the first one's writes are taken
//! for duplicates and acknowledged (NeVerMore). So a sandbox claims a connection before the request that
//! makes the connection, and a claim of another sandbox refuses the request.
//!
//! A claim is a lock of one byte of a file that all supervisors of a host open; the byte's place is
//! a keyed hash of the connection. The kernel takes the locks of a supervisor back, however the
//! supervisor ends. Nobody looks at the file while data moves: only MODIFY_QP and what ends a queue
//! pair do.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::btree_map::Entry;
use std::fs::DirBuilder;
use std::fs::File;
use std::fs::OpenOptions;
use std::hash::Hasher as _;
#[allow(
    deprecated,
    reason = "the one whose algorithm is said to stay, of all versions of Verbgate"
)]
use std::hash::SipHasher;
use std::io;
use std::io::Read as _;
use std::io::Seek as _;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use verbgate_abi::Errno;
use verbgate_abi::connects::Connect;
use verbgate_abi::connects::Destination;
use verbgate_abi::connects::PeerPath;
use verbgate_abi::ids;
use verbgate_abi::request::Request;
use verbgate_abi::table::Access;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::wire::Handle;
use verbgate_sys::foreign;
use verbgate_sys::foreign::Owner;
use verbgate_sys::node::FileId;
use verbgate_sys::process::GuestFile;
use verbgate_sys::range_lock::RangeLocks;

use crate::gids::GidView;
use crate::gids::Seen;
use crate::vet::Refusal;

/// The name of the file, in the directory of run-time state.
const FILE: &str = "connections";
/// Bytes of the key, at the file's beginning.
const KEY: usize = 16;
/// Claims of one queue pair: its paths, and changes of those without a reset.
const MOST_OF_ONE: usize = 64;
/// Files of XRC domains of one ucontext; programs have one for all their processes.
const MOST_DOMAINS: usize = 64;

/// The connections of a host, as one sandbox sees them.
pub struct Register {
    locks: RangeLocks,
    key: (u64, u64),
    /// How often this sandbox has claimed a place. A table of hashes would keep the memory of as many places as
    /// there ever were, and twice that after some turns.
    counts: Mutex<BTreeMap<u64, u32>>,
}

impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Register").finish_non_exhaustive()
    }
}

impl Register {
    /// The register of the sandboxes that share a directory of run-time state, which is made if need
    /// be.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(dir: &Path) -> io::Result<Arc<Self>> {
        DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = foreign::open(&dir.join(FILE), &mut options, Owner::Trusted)?;
        let key = key(&mut file)?;
        Ok(Arc::new(Self { locks: RangeLocks::new(file), key, counts: Mutex::default() }))
    }

    /// Claims a place; none if another sandbox has it.
    fn claim(self: &Arc<Self>, place: u64) -> io::Result<Option<Claim>> {
        let mut counts = self.counts.lock();
        let count = counts.entry(place).or_default();
        if *count == 0 && !self.locks.take(place)? {
            counts.remove(&place);
            return Ok(None);
        }
        *count = count.saturating_add(1);
        Ok(Some(Claim { register: Arc::clone(self), place }))
    }

    /// Where a connection is. Keyed, so that nobody finds another connection of the same place.
    fn place(&self, bytes: &[u8]) -> u64 {
        #[allow(deprecated, reason = "see above")]
        let mut hasher = SipHasher::new_with_keys(self.key.0, self.key.1);
        hasher.write(bytes);
        // Places are below 2^63, and the key has its own.
        (hasher.finish() >> 2) | 1 << 62
    }
}

/// The key, made by whoever opens the file first.
fn key(file: &mut File) -> io::Result<(u64, u64)> {
    rustix::fs::flock(&*file, rustix::fs::FlockOperation::LockExclusive)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    if bytes.len() < KEY {
        bytes.clear();
        File::open("/dev/urandom")?.take(KEY as u64).read_to_end(&mut bytes)?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&bytes)?;
    }
    rustix::fs::flock(&*file, rustix::fs::FlockOperation::Unlock)?;
    let half = |at: usize| {
        let half = bytes.get(at..).and_then(|rest| rest.first_chunk());
        half.copied().map(u64::from_ne_bytes).ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))
    };
    Ok((half(0)?, half(KEY / 2)?))
}

/// A place that is this sandbox's while this lives.
#[derive(Debug)]
struct Claim {
    register: Arc<Register>,
    place: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut counts = self.register.counts.lock();
        let Entry::Occupied(mut entry) = counts.entry(self.place) else { return };
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
            if let Err(e) = self.register.locks.give(self.place) {
                log::warn!("cannot give the claim of a connection back: {e}");
            }
        }
    }
}

#[derive(Debug)]
struct Claimed {
    /// The request that needs it has been made, and has succeeded.
    settled: bool,
    _claim: Claim,
}

/// What a request changes, once it has been made.
#[derive(Debug)]
struct Pending {
    qp: Handle,
    new: Vec<u64>,
    /// Claims that end if it succeeds.
    old: Vec<u64>,
    number: Option<u32>,
    forgets: bool,
}

/// The connections of a ucontext.
///
/// A claim ends with its queue pair: when the queue pair is destroyed or reset, or its ucontext is
/// closed. What is in flight while a queue pair is reset keeps its claim, whichever came first.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// By queue pair, and by the number that [`Connections::made`] gave them.
    held: BTreeMap<(Handle, u64), Claimed>,
    /// The peers' numbers, of queue pairs that have one.
    numbers: HashMap<Handle, u32>,
    pending: HashMap<u64, Pending>,
    made: u64,
    /// Files by which XRC domains were opened, until the ucontext is closed; open, so that no other file
    /// gets the number.
    domains: HashMap<FileId, (Claim, GuestFile)>,
}

/// Names what a request changes; 0 for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ticket(u64);

/// Where the source of a path is looked up.
pub(crate) struct Sources<'a> {
    pub(crate) gids: Option<&'a GidView>,
    pub(crate) rdev: (u32, u32),
}

impl Connections {
    /// Claims what a request is about to connect.
    pub(crate) fn begin(
        &mut self,
        request: &Request,
        paths: &[(PeerPath, Vec<u8>)],
        register: &Arc<Register>,
    ) -> Result<Ticket, Refusal> {
        let connect = request.connect();
        let Some(qp) = connect.as_ref().map(|connect| connect.qp).or_else(|| destroyed(request))
        else {
            return Ok(Ticket::default());
        };
        let forgets = connect.as_ref().is_none_or(|connect| connect.resets);
        let old = if forgets { self.settled(qp) } else { Vec::new() };
        let number = connect.as_ref().and_then(|connect| connect.number);
        let mut pending = Pending { qp, new: Vec::new(), old, number, forgets };
        if let Some(connect) = connect {
            self.claim(&mut pending, &connect, paths, register)?;
        }
        if pending.new.is_empty() && pending.old.is_empty() && pending.number.is_none() {
            return Ok(Ticket::default());
        }
        self.made += 1;
        self.pending.insert(self.made, pending);
        Ok(Ticket(self.made))
    }

    /// Claims a file that names an XRC domain: whoever opens the domain by the same file reaches the queue
    /// pairs and receive queues in it.
    pub(crate) fn claim_domain(
        &mut self,
        (id, file): (FileId, GuestFile),
        register: &Arc<Register>,
    ) -> Result<(), Refusal> {
        if self.domains.contains_key(&id) {
            return Ok(());
        }
        if self.domains.len() >= MOST_DOMAINS {
            let line =
                format!("OPEN_XRCD: more than {MOST_DOMAINS} files name XRC domains of one open");
            return Err(Refusal::warn("too many XRC domains", Errno(libc::EBUSY), line));
        }
        let (major, minor, inode) = id;
        let device = u64::from(major) << 32 | u64::from(minor);
        let place = [&[2][..], &device.to_ne_bytes(), &inode.to_ne_bytes()].concat();
        match register.claim(register.place(&place)) {
            Ok(Some(claim)) => {
                self.domains.insert(id, (claim, file));
                Ok(())
            }
            Ok(None) => Err(Refusal::warn(
                "XRC domain of another sandbox",
                Errno(libc::EBUSY),
                "OPEN_XRCD: another sandbox of this host has opened an XRC domain by this file; let each \
                 have a file of its own, or none"
                    .to_owned(),
            )),
            Err(e) => Err(Refusal::warn(
                "connection not registered",
                Errno(libc::EAGAIN),
                format!("OPEN_XRCD: cannot claim the file: {e}"),
            )),
        }
    }

    fn claim(
        &mut self,
        pending: &mut Pending,
        connect: &Connect,
        paths: &[(PeerPath, Vec<u8>)],
        register: &Arc<Register>,
    ) -> Result<(), Refusal> {
        // Without a number it has no peer yet, and the kernel refuses.
        let number = connect.number.or_else(|| self.numbers.get(&connect.qp).copied());
        let Some(number) = number else { return Ok(()) };
        for (path, source) in paths {
            let destination = match path.destination {
                Destination::Gid(gid) => [&[0][..], &gid].concat(),
                Destination::Lid(lid) => [&[1][..], &lid.to_be_bytes()].concat(),
            };
            let place = [source, &*destination, &number.to_be_bytes()].concat();
            let refused = match register.claim(register.place(&place)) {
                Ok(Some(claim)) => {
                    self.made += 1;
                    if self.held.range(all_of(connect.qp)).count() < MOST_OF_ONE {
                        let claimed = Claimed { settled: false, _claim: claim };
                        self.held.insert((connect.qp, self.made), claimed);
                        pending.new.push(self.made);
                        continue;
                    }
                    Refusal::warn(
                        "too many paths of a queue pair",
                        Errno(libc::EBUSY),
                        format!("queue pair {}: more than {MOST_OF_ONE} paths", connect.qp),
                    )
                }
                Ok(None) => Refusal::warn(
                    "connection of another sandbox",
                    Errno(libc::EADDRINUSE),
                    format!(
                        "MODIFY_QP: another sandbox of this host is connected with queue pair \
                         {number} of {}, by the same address; each queue pair has one peer",
                        peer(path.destination)
                    ),
                ),
                Err(e) => Refusal::warn(
                    "connection not registered",
                    Errno(libc::EAGAIN),
                    format!("MODIFY_QP: cannot claim the connection: {e}"),
                ),
            };
            self.forget(connect.qp, &pending.new);
            return Err(refused);
        }
        Ok(())
    }

    /// A request has been made.
    pub(crate) fn end(&mut self, ticket: Ticket, succeeded: bool) {
        let Some(Pending { qp, new, old, number, forgets }) = self.pending.remove(&ticket.0) else {
            return;
        };
        if !succeeded {
            return self.forget(qp, &new);
        }
        self.forget(qp, &old);
        if forgets {
            self.numbers.remove(&qp);
        }
        if let Some(number) = number {
            self.numbers.insert(qp, number);
        }
        let held = self.held.range_mut(all_of(qp)).filter(|((_, id), _)| new.contains(id));
        held.for_each(|(_, held)| held.settled = true);
    }

    fn settled(&self, qp: Handle) -> Vec<u64> {
        let held = self.held.range(all_of(qp));
        held.filter(|(_, held)| held.settled).map(|((_, id), _)| *id).collect()
    }

    fn forget(&mut self, qp: Handle, ids: &[u64]) {
        for id in ids {
            self.held.remove(&(qp, *id));
        }
    }
}

/// All claims of a queue pair.
fn all_of(qp: Handle) -> RangeInclusive<(Handle, u64)> {
    (qp, 0)..=(qp, u64::MAX)
}

impl Sources<'_> {
    /// The paths of a request, with the bytes that tell their sources apart.
    pub(crate) fn paths(&self, request: &Request) -> io::Result<Vec<(PeerPath, Vec<u8>)>> {
        let connect = request.connect();
        let paths = connect.into_iter().flat_map(|connect| connect.paths);
        paths.map(|path| Ok((path, self.source(&path)?))).collect()
    }

    fn source(&self, path: &PeerPath) -> io::Result<Vec<u8>> {
        let seen = match (self.gids, path.source) {
            (Some(gids), Some(index)) => gids.at(self.rdev, path.port, index)?,
            _ => Seen::Anything,
        };
        if let Seen::Entry(entry) = seen {
            return Ok([&[0][..], &entry.gid.octets()].concat());
        }
        let index = path.source.map_or(u32::MAX, |index| index.0);
        let numbers = [self.rdev.0, self.rdev.1, path.port, index];
        Ok([1].into_iter().chain(numbers.iter().flat_map(|n| n.to_be_bytes())).collect())
    }
}

/// The queue pair that a request destroys.
fn destroyed(request: &Request) -> Option<Handle> {
    let qp = ObjectRef::core(ids::UVERBS_OBJECT_QP.id.0);
    let mut used = request.handles();
    used.find(|used| used.access == Access::Destroy && used.object == qp).map(|used| used.handle)
}

/// A peer, for people.
pub fn peer(destination: Destination) -> String {
    match destination {
        Destination::Gid(gid) => std::net::Ipv6Addr::from(gid).to_string(),
        Destination::Lid(lid) => format!("LID {lid}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_place_is_one_sandboxs_as_long_as_one_of_its_claims_lives() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) =
            (Register::open(dir.path()).unwrap(), Register::open(dir.path()).unwrap());
        let place = one.place(b"connection");
        assert_eq!(place, other.place(b"connection"), "one key for all");
        assert_ne!(place, one.place(b"another"));
        let (first, second) = (one.claim(place).unwrap(), one.claim(place).unwrap());
        assert!(first.is_some() && second.is_some());
        assert!(other.claim(place).unwrap().is_none());
        drop(first);
        assert!(other.claim(place).unwrap().is_none());
        drop(second);
        assert!(one.counts.lock().is_empty());
        let claimed = other.claim(place).unwrap().unwrap();
        assert!(one.claim(place).unwrap().is_none());
        // As when its supervisor is killed.
        drop((claimed.register.locks.give(place), other));
        assert!(one.claim(place).unwrap().is_some());
    }

    #[test]
    fn a_file_that_names_an_xrc_domain_is_one_sandboxs_until_the_open_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| Register::open(dir.path()).unwrap());
        let (mut mine, mut theirs) = (Connections::default(), Connections::default());
        let open = || OwnedFd::from(File::open(dir.path()).unwrap());
        let named = |inode| ((8, 1, inode), GuestFile::from(open()));
        mine.claim_domain(named(1), &one).unwrap();
        mine.claim_domain(named(1), &one).unwrap();
        let refusal = theirs.claim_domain(named(1), &other).unwrap_err();
        assert_eq!(
            (refusal.reason, refusal.errno.0),
            ("XRC domain of another sandbox", libc::EBUSY)
        );
        theirs.claim_domain(named(2), &other).unwrap();
        drop(mine);
        theirs.claim_domain(named(1), &other).unwrap();
        let all = (3..=MOST_DOMAINS as u64).map(|file| theirs.claim_domain(named(file), &other));
        assert!(all.into_iter().all(|claimed| claimed.is_ok()));
        assert!(theirs.claim_domain(named(0), &other).is_err());
    }

    #[test]
    fn keys_of_two_hosts_differ() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [one, other] = dirs.each_ref().map(|dir| Register::open(dir.path()).unwrap());
        assert_ne!(one.place(b"connection"), other.place(b"connection"));
    }
}
