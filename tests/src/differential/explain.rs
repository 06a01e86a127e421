//! The known differences, each with its reason, and as narrow as possible.

use std::collections::BTreeSet;

use verbgate_abi::DecodeError;
use verbgate_abi::decode;
use verbgate_abi::ids;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::FdPayload;
use verbgate_abi::table::Kernels;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::IoctlHdr;
use verbgate_abi::write;
use zerocopy::FromBytes;

use super::draft::IMAGE;
use super::draft::OUT;
use super::draft::REGION;

const ENOENT: i64 = -2;
const E2BIG: i64 = -7;
const EBADF: i64 = -9;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const ENOSPC: i64 = -28;
const EPROTONOSUPPORT: i64 = -93;
const EOPNOTSUPP: i64 = -95;

/// What one gets that asks for what there is not on this kernel or device.
const LACKING: &[i64] = &[EPROTONOSUPPORT, EOPNOTSUPP];
/// What a request of the wrong form gets.
const FORM: &[i64] = &[EINVAL, ENOSPC, EFAULT, E2BIG, EPROTONOSUPPORT];
/// What one of the right form gets that names what there is not.
const LOOK_UP: &[i64] = &[ENOENT, EBADF];

/// Whatever the proxy can answer.
const ANY: &[i64] = &[EINVAL, ENOSPC, EFAULT, E2BIG, EPROTONOSUPPORT, EOPNOTSUPP, ENOENT, EBADF];

/// No command's answer has more bytes; that of EX_QUERY_DEVICE has some 300.
const LONGEST_RESPONSE: u64 = 512;

/// A difference.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The script's line.
    pub line: &'a str,
    /// The result natively.
    pub native: i64,
    /// The result in the sandbox.
    pub inside: i64,
    /// Words of memory that differ, by offset from the start of all memory.
    pub words: &'a BTreeSet<u64>,
}

impl Side<'_> {
    /// The places, as offsets, at which the request names what it makes.
    fn makes(&self) -> impl Iterator<Item = u64> {
        let links = self.line.split(' ').filter_map(|word| word.strip_prefix('>'));
        let addrs = links.filter_map(|link| u64::from_str_radix(link.split_once(':')?.1, 16).ok());
        addrs.map(|addr| addr.wrapping_sub(IMAGE))
    }

    /// What `write(2)` was given.
    fn written(&self) -> Option<Vec<u8>> {
        let mut words = self.line.split(' ');
        words.next()?.strip_prefix("write:")?;
        bytes(words.nth(4)?)
    }

    /// How often it was changed.
    fn mutations(&self) -> usize {
        self.line.split(' ').nth(1).map_or(0, |name| name.matches('~').count())
    }

    /// Header, attributes and payloads of an ioctl, and where they are.
    fn image(&self) -> Option<(u64, Vec<u8>)> {
        let mut words = self.line.strip_prefix("ioctl ")?.split(' ');
        let addr = u64::from_str_radix(words.nth(2)?, 16).ok()?;
        Some((addr, bytes(words.nth(1)?)?))
    }

    /// The attributes of an ioctl, each with its place as an offset and the table's entry.
    fn attrs(&self) -> Vec<(u64, Attr, Option<&'static AttrSpec>)> {
        let Some((addr, image)) = self.image() else { return Vec::new() };
        let Ok((hdr, rest)) = IoctlHdr::read_from_prefix(&image) else { return Vec::new() };
        let method = table::method(hdr.object(), hdr.method(), hdr.driver());
        let places = (addr.wrapping_sub(IMAGE) + 24..).step_by(16);
        let attrs = rest.chunks_exact(16).take(hdr.num_attrs.into()).zip(places);
        attrs
            .filter_map(|(bytes, at)| {
                let attr = Attr::read_from_bytes(bytes).ok()?;
                let spec = method.and_then(|method| method.attr(attr.id(), hdr.driver()));
                Some((at, attr, spec))
            })
            .collect()
    }

    /// Where the core's response goes, as an offset.
    fn response(&self) -> Option<u64> {
        let addr = match self.written() {
            Some(bytes) => u64::from_ne_bytes(*bytes.get(8..)?.first_chunk()?),
            None => self.attrs().iter().find(|(_, attr, _)| attr.attr_id == 1)?.1.data,
        };
        Some(addr.wrapping_sub(IMAGE))
    }

    /// What the decoder says; slots are zero here.
    fn fault(&self) -> Option<DecodeError> {
        if let Some(bytes) = self.written() {
            let parsed = write::parse_write(&bytes);
            return parsed.and_then(|write| write.into_request(DriverId::RXE)).err();
        }
        let (addr, image) = self.image()?;
        let outline = match decode::parse(&image) {
            Ok(outline) => outline,
            Err(error) => return Some(error),
        };
        let mut arena = vec![0; outline.arena_len()];
        for payload in outline.payloads() {
            let start = usize::try_from(payload.addr.0.wrapping_sub(addr)).ok()?;
            let from = image.get(start..start.checked_add(payload.range.len())?)?;
            arena.get_mut(payload.range)?.copy_from_slice(from);
        }
        outline.with_payloads(arena).err()
    }

    /// It has an attribute of a kind.
    fn names(&self, is: fn(AttrKind) -> bool) -> bool {
        self.attrs().iter().any(|(.., spec)| spec.is_some_and(|spec| is(spec.kind)))
    }

    /// It lends descriptors to GET_CONTEXT.
    fn lends(&self) -> bool {
        let array = |spec: &AttrSpec| spec.fd_payload == FdPayload::Array;
        self.attrs().iter().any(|(.., spec)| spec.is_some_and(array))
    }

    /// It is made on the script's second file, which never gets one.
    fn has_no_ucontext(&self) -> bool {
        self.line.split(' ').nth(2) == Some("1")
    }

    /// It makes an object, whose place is where the kernel looks for a ucontext.
    fn makes_an_object(&self) -> bool {
        self.attrs().iter().any(|(.., spec)| spec.is_some_and(AttrSpec::is_new))
    }

    /// It has a payload where the script has no memory.
    fn has_no_payload(&self) -> bool {
        self.attrs().iter().any(|(_, attr, spec)| {
            let payload = spec.is_some_and(|spec| !spec.is_output() && !spec.is_new());
            payload && attr.len > 8 && !(IMAGE..OUT + REGION).contains(&attr.data)
        })
    }

    /// It has a payload at an address with a tag in the top byte, which arm64 leaves out of account.
    fn has_a_tag(&self) -> bool {
        cfg!(target_arch = "aarch64")
            && self.attrs().iter().any(|(_, attr, spec)| {
                let payload = spec.is_some_and(|spec| !spec.is_output() && !spec.is_new());
                let (tag, rest) = (attr.data >> 56, attr.data & ((1 << 56) - 1));
                payload && attr.len > 8 && tag != 0 && (IMAGE..OUT + REGION).contains(&rest)
            })
    }

    /// It has a payload that ends where the script has no memory.
    fn has_no_end_of_payload(&self) -> bool {
        self.attrs().iter().any(|(_, attr, spec)| {
            let payload = spec.is_some_and(|spec| !spec.is_output() && !spec.is_new());
            let end = attr.data.wrapping_add(attr.len.into());
            payload && attr.len > 8 && end > OUT + REGION
        })
    }

    /// It has a structure that is longer than any kernel knows it.
    fn has_more_than_is_known(&self) -> bool {
        self.attrs().iter().any(|(_, attr, spec)| match spec.map(|spec| spec.kind) {
            Some(AttrKind::PtrIn { max, zero_trailing: true, .. }) => attr.len > max,
            _ => false,
        })
    }

    fn handle_is_too_wide(&self) -> bool {
        matches!(self.fault(), Some(DecodeError::HandleRange { .. }))
    }

    fn has_no_space_for_its_result(&self) -> bool {
        matches!(self.fault(), Some(DecodeError::ResponseShort { .. }))
    }

    /// It insists on an attribute that this kernel may not know.
    fn insists(&self) -> bool {
        self.attrs().iter().any(|(_, attr, spec)| {
            let known = spec.is_some_and(|spec| spec.kernels == Kernels::all());
            attr.flags & 1 != 0 && !known
        })
    }

    /// `write(2)` of an extended command whose response is no address of a program's.
    fn response_is_the_kernels(&self) -> bool {
        let written = self.written().unwrap_or_default();
        let extended = written.get(3).is_some_and(|byte| byte & 0x80 != 0);
        let addr = self.response().map_or(0, |offset| offset.wrapping_add(IMAGE));
        extended && addr >= 1 << 47
    }

    /// It asks about a port, in whatever form.
    fn queries_port(&self) -> bool {
        let command = ids::IB_USER_VERBS_CMD_QUERY_PORT;
        if let Some(written) = self.written() {
            return written
                .first_chunk()
                .is_some_and(|n| u64::from(u32::from_ne_bytes(*n)) == command);
        }
        let image = self.image().unwrap_or_default().1;
        let Ok((hdr, _)) = IoctlHdr::read_from_prefix(&image) else { return false };
        if hdr.object() != ids::UVERBS_OBJECT_DEVICE.id {
            return false;
        }
        let carried = |(_, attr, _): &(u64, Attr, _)| {
            attr.id() == ids::UVERBS_ATTR_WRITE_CMD && attr.data == command
        };
        hdr.method() == ids::UVERBS_METHOD_QUERY_PORT
            || hdr.method() == ids::UVERBS_METHOD_INVOKE_WRITE && self.attrs().iter().any(carried)
    }

    /// All that differs is `gid_tbl_len` of `struct ib_uverbs_query_port_resp`.
    fn differs_in_a_tables_length(&self) -> bool {
        let Some(at) = self.response().filter(|_| self.queries_port()) else { return false };
        let of_length = |word: &u64| (at + 13..at + 20).contains(word);
        !self.words.is_empty() && self.words.iter().all(of_length)
    }

    fn has_no_core_in(&self) -> bool {
        let invoke = self.line.starts_with("ioctl invoke.");
        invoke && !self.attrs().iter().any(|(_, attr, _)| attr.attr_id == 0)
    }

    fn command_does_not_exist(&self) -> bool {
        matches!(self.fault(), Some(DecodeError::UnknownCommand { .. }))
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Errors that stand for each other.
struct Rule {
    native: &'static [i64],
    inside: &'static [i64],
    when: fn(&Side<'_>) -> bool,
    why: &'static str,
}

#[rustfmt::skip]
const RULES: &[Rule] = &[
    Rule { native: LACKING, inside: ANY, when: |_| true,
        why: "wrong, too, and asks for what this kernel or device lacks: the proxy knows what kernels have, not this one" },
    Rule { native: LOOK_UP, inside: FORM, when: |_| true,
        why: "malformed, and names what there is not: the form is looked at first" },
    Rule { native: ANY, inside: &[EBADF], when: |_| true,
        why: "wrong in another way, and names a descriptor that is not open: descriptors are looked up first" },
    Rule { native: FORM, inside: FORM, when: |side| side.mutations() > 1,
        why: "malformed in two ways: the kernel looks at payloads one by one, the proxy behind all else" },
    Rule { native: FORM, inside: &[ENOENT], when: |side| side.handle_is_too_wide(),
        why: "wrong in another way, and names a handle of more than 32 bits, which is the form's fault here" },
    Rule { native: FORM, inside: &[E2BIG], when: |side| side.line.starts_with("write:"),
        why: "wrong in another way, and has more space for a response than an attribute can tell" },
    Rule { native: &[EINVAL], inside: &[ENOSPC], when: |side| side.has_no_core_in(),
        why: "wrong in another way, and without CORE_IN, which the proxy wants" },
    Rule { native: FORM, inside: &[EPROTONOSUPPORT], when: |side| side.insists(),
        why: "wrong in another way, and insists on an attribute that is not known: the proxy sees that first" },
    Rule { native: &[EINVAL], inside: &[ENOENT], when: |side| side.has_no_ucontext(),
        why: "without a ucontext, and names what there is not, which the kernel sees first as the frame is ordered" },
    Rule { native: &[EINVAL], inside: &[ENOENT], when: |side| side.makes_an_object(),
        why: "without a ucontext, and names what there is not: in a frame, what is made comes last" },
    Rule { native: ANY, inside: &[EOPNOTSUPP], when: |side| side.has_more_than_is_known(),
        why: "wrong in another way, and has more than is known, which is not zero: payloads are looked at first" },
    Rule { native: FORM, inside: &[EFAULT], when: |side| side.has_no_payload(),
        why: "wrong in another way, and has a payload that cannot be read: payloads are copied first" },
    Rule { native: &[EFAULT], inside: &[ENOENT, EBADF, EINVAL], when: |side| side.response_is_the_kernels(),
        why: "wrong in another way, and names the kernel's memory for the response" },
    Rule { native: &[EINVAL], inside: &[E2BIG], when: |side| side.lends(),
        why: "wrong in another way, and names more descriptors than can be lent to a stub" },
    Rule { native: &[EINVAL], inside: &[ENOSPC], when: |side| side.has_no_space_for_its_result(),
        why: "wrong in another way, and has no place for the handle of what it makes, which the proxy wants" },
    Rule { native: &[EINVAL], inside: &[EOPNOTSUPP], when: |side| side.command_does_not_exist(),
        why: "a command that does not exist, with a wrong header: the kernel looks at the header if the number is small" },
];

/// Whether the numbers in a request's response lie across words.
pub fn is_unaligned(line: &str) -> bool {
    let words = BTreeSet::new();
    let side = Side { line, native: 0, inside: 0, words: &words };
    side.response().is_some_and(|at| at % 4 != 0)
}

/// The reason of a difference, if it is a known one.
pub fn explain(side: &Side<'_>) -> Option<&'static str> {
    if side.native >= 0 && side.inside == ENOSPC && side.has_no_space_for_its_result() {
        return Some("makes what nobody could name: the proxy wants a place for the handle");
    }
    if side.native >= 0 && side.inside == EBADF && side.line.contains(" write.GET_CONTEXT") {
        return Some(
            "Linux 7.2 cannot make a ucontext by INVOKE_WRITE, to which `write` is turned",
        );
    }
    if side.native >= 0 && side.inside == ENOSPC && side.has_no_core_in() {
        return Some("an extended command of zeros without CORE_IN, which the proxy wants");
    }
    if side.native >= 0 && side.inside == EBADF && side.names(|kind| kind == AttrKind::RawFd) {
        return Some("a descriptor that is not open, in an attribute that the driver ignores");
    }
    if side.native >= 0 && side.inside == EFAULT && side.names(|kind| kind == AttrKind::Umem) {
        return Some("a buffer's description that cannot be read, and that the driver ignores");
    }
    if side.native >= 0 && side.inside == EFAULT && side.has_no_end_of_payload() {
        return Some(
            "an input that cannot be read to its end, of which the driver reads the start",
        );
    }
    if side.native == EFAULT && side.has_a_tag() {
        return Some(
            "an address with a tag, which arm64's kernel takes from threads that asked for tags, and the \
             proxy from all (Documentation/arch/arm64/tagged-address-abi.rst)",
        );
    }
    if side.native == side.inside && side.differs_in_a_tables_length() {
        return Some("the length of a GID table, which ends behind its last entry in a sandbox");
    }
    if side.native >= 0 || side.inside >= 0 {
        return None;
    }
    // What a request that fails leaves in the places of its outputs means nothing; it must be in
    // these places, though.
    let attrs = side.attrs();
    let new = attrs.iter().filter(|(.., spec)| spec.is_some_and(AttrSpec::is_new));
    let places: Vec<u64> = side.makes().chain(new.map(|(at, ..)| at + 8)).collect();
    let in_attr = |word: u64| places.iter().any(|at| word + 4 > *at && word < at + 8);
    // Of commands: a mutation can make one of another that has an answer.
    let in_response = |word: u64| {
        let command = side.line.starts_with("write:") || side.line.starts_with("ioctl invoke.");
        command && side.response().is_some_and(|at| word.wrapping_sub(at) < LONGEST_RESPONSE)
    };
    let outputs = attrs.iter().filter(|(.., spec)| spec.is_some_and(AttrSpec::is_output));
    let outputs: Vec<(u64, Attr)> = outputs.map(|(at, attr, _)| (*at, *attr)).collect();
    let in_output = |word: u64| {
        outputs.iter().any(|(at, attr)| {
            let target = attr.data.wrapping_sub(IMAGE);
            // Its flags, which may lie across words.
            word < at + 6 && word + 4 > at + 4 || word.wrapping_sub(target) < attr.len.into()
        })
    };
    let end = OUT + REGION - IMAGE;
    let at_end = |word: u64| side.native == EFAULT && (end - 64..end).contains(&word);
    let is_output =
        |word: u64| in_attr(word) || in_response(word) || in_output(word) || at_end(word);
    if side.words.iter().any(|word| !is_output(*word)) {
        return None;
    }
    if side.native == side.inside {
        return Some("fails, after the kernel has written of what it would have made");
    }
    let rule = RULES.iter().find(|rule| {
        rule.native.contains(&side.native)
            && rule.inside.contains(&side.inside)
            && (rule.when)(side)
    });
    rule.map(|rule| rule.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(line: &str, native: i64, inside: i64, words: &[u64]) -> Option<&'static str> {
        let words = words.iter().copied().collect();
        explain(&Side { line, native, inside, words: &words })
    }

    #[test]
    fn nothing_explains_another_success() {
        assert!(why("ioctl a 0 0 0 00", 0, -22, &[]).is_none());
        assert!(why("ioctl a 0 0 0 00", -22, 0, &[]).is_none());
        assert!(why("ioctl a 0 0 0 00 >4:100000000020", 0, 0, &[0x20]).is_none());
        assert!(why("ioctl a 0 0 0 00", -22, -28, &[]).is_none());
        assert!(why("ioctl a 0 0 0 00", -95, -1, &[]).is_none());
    }

    #[test]
    fn the_length_of_a_gid_table_may_differ_and_nothing_else_of_a_port() {
        // Command 2, 6 words in, 10 out; the response at 0x100000000020, and port 1.
        let line = "write:18 write.QUERY_PORT 0 0 0 0200000006000a00200000000010000001000000\
                    00000000";
        assert!(why(line, 24, 24, &[0x30]).is_some());
        assert!(why(line, 24, 24, &[0x30, 0x34]).is_none());
        assert!(why(line, 24, 24, &[0x20]).is_none());
        assert!(why(&line.replacen(" 0200", " 0100", 1), 24, 24, &[0x30]).is_none());
        assert!(why(line, 24, -22, &[0x30]).is_none());
    }

    #[test]
    fn memory_that_is_not_an_outputs_place_must_not_differ() {
        let line = "ioctl PD.X 0 100000000000 100000000000 00 >4:100000000020";
        assert!(why(line, -22, -22, &[0x20, 0x24]).is_some());
        assert!(why(line, -22, -22, &[0x28]).is_none());
        assert!(why(line, -93, -22, &[0x10000]).is_none());
    }

    #[test]
    fn commands_and_attributes_are_read_from_the_line() {
        let unknown = "write:10 write.X 0 0 0 04000080040002000000010000100000";
        assert!(why(unknown, -22, -95, &[]).is_some());
        let known = "write:10 write.X 0 0 0 03000000040002000000010000100000";
        assert!(why(known, -22, -95, &[]).is_none());
        let invoke = |id: &str| {
            let head = "280000000000010000000000000000000e00000000000000";
            format!("ioctl invoke.X 0 0 0 {head}{id}0800010000000000000000000000")
        };
        assert!(why(&invoke("0200"), -22, -28, &[]).is_some());
        assert!(why(&invoke("0000"), -22, -28, &[]).is_none());
    }
}
