//! Requests about GIDs, and requests that speak by a GID.

use std::io;

use verbgate_abi::Errno;
use verbgate_abi::gids::SourceGid;
use verbgate_abi::ids;
use verbgate_abi::request::Request;
use verbgate_abi::wire::AttrFlags;
use verbgate_abi::wire::AttrId;
use verbgate_abi::wire::GidIndex;

use super::Entry;
use super::GidView;
use super::Seen;
use crate::outcome::Outcome;

/// Bytes of `struct ib_uverbs_gid_entry`, include/uapi/rdma/ib_user_ioctl_verbs.h.
const ENTRY_LEN: usize = 32;

/// Where `gid_tbl_len` is in `struct ib_uverbs_query_port_resp`, with which
/// `struct ib_uverbs_query_port_resp_ex` begins; include/uapi/rdma/ib_user_verbs.h.
const GID_TBL_LEN: usize = 16;

/// What becomes of a request, as far as GIDs go.
#[derive(Debug)]
pub enum Judged {
    /// The kernel may have it.
    Passed,
    /// It is about an entry that the sandbox does not see.
    Refused(&'static str, Errno),
    /// This is what the kernel would answer if there were the sandbox's entries only.
    Answered(Outcome),
    /// The kernel may have it, and this is put into its answer.
    Patched(GidPatch),
}

/// What a sandbox is told in the place of the kernel's word, in an output of a request that
/// succeeds.
///
/// It is no secret: a guest that looks into its frame while the kernel writes sees the length of a
/// table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidPatch {
    /// The position of the output among the request's attributes.
    pub pos: usize,
    /// Where in the output.
    pub offset: usize,
    /// The bytes.
    pub bytes: [u8; 4],
}

impl GidPatch {
    /// Puts the bytes into the output; none where the output ends before.
    pub fn put(&self, output: &mut [u8]) {
        let end = self.offset.saturating_add(self.bytes.len());
        if let Some(place) = output.get_mut(self.offset..end) {
            place.copy_from_slice(&self.bytes);
        }
    }
}

/// What the kernel says of an entry that is empty (`rdma_get_gid_attr`,
/// drivers/infiniband/core/cache.c).
const EMPTY: Errno = Errno(libc::ENODATA);

impl GidView {
    /// Judges a request on a device; `asked` says whether the kernel was asked to make
    /// its ucontext, without which it answers no such request.
    #[must_use]
    pub fn judge(&self, request: &Request, rdev: (u32, u32), asked: bool) -> Judged {
        self.look(request, rdev, asked).unwrap_or_else(|e| {
            log::debug!("cannot tell whose the GIDs of device {rdev:?} are: {e}");
            Judged::Refused("cannot tell whose the GID is", Errno(libc::EIO))
        })
    }

    fn look(&self, request: &Request, rdev: (u32, u32), asked: bool) -> io::Result<Judged> {
        for SourceGid { port, index } in request.source_gids() {
            if self.at(rdev, port, index)? == Seen::Nothing {
                return Ok(Judged::Refused("source GID not the sandbox's", EMPTY));
            }
        }
        let method = request.method();
        if let Some((port, pos)) = port_asked(request).filter(|_| asked) {
            return self.port(rdev, port, pos);
        }
        if method.object != ids::UVERBS_OBJECT_DEVICE {
            return Ok(Judged::Passed);
        }
        if method.id == ids::UVERBS_METHOD_QUERY_GID_ENTRY {
            return self.entry(request, rdev);
        }
        if method.id == ids::UVERBS_METHOD_QUERY_GID_TABLE && asked {
            return self.answer_table(request, rdev);
        }
        Ok(Judged::Passed)
    }

    /// What QUERY_PORT says of the table's length, with the answer at a position.
    fn port(&self, rdev: (u32, u32), port: u32, pos: usize) -> io::Result<Judged> {
        Ok(match self.length_of(rdev, port)? {
            Some(length) => {
                Judged::Patched(GidPatch { pos, offset: GID_TBL_LEN, bytes: length.to_ne_bytes() })
            }
            None => Judged::Passed,
        })
    }

    /// `UVERBS_METHOD_QUERY_GID_ENTRY`.
    fn entry(&self, request: &Request, rdev: (u32, u32)) -> io::Result<Judged> {
        let number = |id| u32::try_from(request.value(id).unwrap_or_default()).unwrap_or(u32::MAX);
        // Looked at by the kernel before the entry.
        if number(ids::UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS) != 0 {
            return Ok(Judged::Passed);
        }
        let port = number(ids::UVERBS_ATTR_QUERY_GID_ENTRY_PORT);
        let index = GidIndex(number(ids::UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX));
        Ok(match self.at(rdev, port, index)? {
            Seen::Nothing => Judged::Refused("GID not the sandbox's", EMPTY),
            Seen::Entry(_) | Seen::Anything => Judged::Passed,
        })
    }

    /// `UVERBS_METHOD_QUERY_GID_TABLE`, whose answer the kernel would put into the guest's memory
    /// whole (drivers/infiniband/core/uverbs_std_types_device.c).
    fn answer_table(&self, request: &Request, rdev: (u32, u32)) -> io::Result<Judged> {
        let Some(entries) = self.table(rdev)? else { return Ok(Judged::Passed) };
        let flags = request.value(ids::UVERBS_ATTR_QUERY_GID_TABLE_FLAGS).unwrap_or_default();
        let size = request.value(ids::UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE).unwrap_or_default();
        let room = request.attr(ids::UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
        let (Some(room), 0) = (room, flags) else { return Ok(Judged::Passed) };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // No entry, or a part of one, fits: EINVAL, which the kernel says as well.
        if size == 0 || room.is_empty() || room.len() % size != 0 {
            return Ok(Judged::Passed);
        }
        if entries.len() > room.len() / size {
            return Ok(Judged::Refused("no room for the GID table", Errno::EINVAL));
        }
        let count = u64::try_from(entries.len()).unwrap_or(u64::MAX);
        let mut outcome = Outcome::default();
        let records = entries.iter().flat_map(|entry| {
            let mut record = bytes(entry).to_vec();
            record.resize(size, 0);
            record
        });
        let values = [
            (ids::UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, records.collect()),
            (ids::UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count.to_ne_bytes().to_vec()),
        ];
        for (id, value) in values {
            put(&mut outcome, request, id, value);
        }
        Ok(Judged::Answered(outcome))
    }
}

/// The port that a request asks about, and where its answer goes: QUERY_PORT in the form of a
/// method, whose answer begins with that of the command, and of a command, by whatever way.
fn port_asked(request: &Request) -> Option<(u32, usize)> {
    let method = request.method();
    let (port, answer) = match request.legacy() {
        Some(legacy) if legacy.spec.write_cmd == ids::IB_USER_VERBS_CMD_QUERY_PORT => {
            (request.legacy_field("port_num")?, ids::UVERBS_ATTR_CORE_OUT)
        }
        None if method.object == ids::UVERBS_OBJECT_DEVICE
            && method.id == ids::UVERBS_METHOD_QUERY_PORT =>
        {
            let port = request.value(ids::UVERBS_ATTR_QUERY_PORT_PORT_NUM)?;
            (port, ids::UVERBS_ATTR_QUERY_PORT_RESP)
        }
        _ => return None,
    };
    Some((u32::try_from(port).ok()?, request.position(answer)?))
}

/// Fills an output.
fn put(outcome: &mut Outcome, request: &Request, id: AttrId, value: Vec<u8>) {
    let Some(pos) = request.position(id) else { return };
    let Some(attr) = request.attrs().get(pos) else { return };
    let flags = attr.attr.flags | AttrFlags::VALID_OUTPUT.bits();
    outcome.entries.push((pos, flags, attr.attr.data));
    if !value.is_empty() {
        outcome.outputs.push((attr.attr.data, value));
    }
}

/// `struct ib_uverbs_gid_entry`.
fn bytes(entry: &Entry) -> [u8; ENTRY_LEN] {
    let numbers = [entry.index.0, entry.port, entry.gid_type, entry.ifindex];
    let numbers = numbers.iter().flat_map(|number| number.to_ne_bytes());
    let mut bytes = [0; ENTRY_LEN];
    for (to, from) in bytes.iter_mut().zip(entry.gid.octets().into_iter().chain(numbers)) {
        *to = from;
    }
    bytes
}
