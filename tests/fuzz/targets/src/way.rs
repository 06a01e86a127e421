//! Fuzzing of the whole way of a request, over memory that changes after each read and a kernel
//! that is a script.
//!
//! The memory is a guest's at its worst: every byte changes as soon as it was read. So bytes that
//! are read again and used show as a difference between the vetted request and the executed
//! request.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range as Span;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use verbgate_abi::Errno;
use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::residue;
use verbgate_abi::table::AttrKind;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::HDR_LEN;
use verbgate_abi::wire::INLINE_LEN;
use verbgate_proxy::books::Books;
use verbgate_proxy::executor::Recorded;
use verbgate_proxy::executor::recorded::ScriptEvent;
use verbgate_proxy::executor::recorded::ScriptedAnswer;
use verbgate_proxy::fetch::FIRST_READ;
use verbgate_proxy::fetch::Form;
use verbgate_proxy::policy::PROFILES;
use verbgate_proxy::policy::Policy;
use verbgate_proxy::translate::lent_number;
use verbgate_proxy::vet::Rules;
use verbgate_proxy::way;
use verbgate_proxy::way::Carried;
use verbgate_sys::GuestFd;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::seccomp::Reply;

use crate::decoder;

/// Where the guest sees the frame.
const FRAME: u64 = 0x6ae0_0010_0000;
/// Where its request is.
const REQUEST: u64 = 0x5500_0000_0100;
/// Below, nothing can be read.
const FIRST: u64 = 0x1000;

/// What the guest is told whose table is full.
const EMFILE: i32 = 24;

/// All profiles that there are, and one that grants nothing.
static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(|| {
    let profiles = PROFILES.iter().map(|(name, _)| Policy::named(name).unwrap());
    profiles.chain([Policy::default()]).collect()
});

type Script = Box<dyn FnMut(&Request) -> ScriptedAnswer>;

thread_local! {
    static KERNEL: RefCell<Recorded<Script>> = RefCell::new(
        Recorded::new(FRAME, Box::new(|_: &Request| ScriptedAnswer::of(0)) as Script).unwrap()
    );
}

/// What surrounds a request.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Which of the profiles is in force; the last grants nothing.
    pub policy: usize,
    /// The device's driver is known.
    pub known_driver: bool,
    /// Inputs are right behind the request, as rdma-core builds them, and not where it says.
    pub near: bool,
    /// The guest's descriptors are open.
    pub open_fds: bool,
    /// What the kernel does.
    pub answer: ScriptedAnswer,
}

/// How many profiles a [`World`] can choose from.
pub const POLICIES_LEN: usize = PROFILES.len() + 1;

impl World {
    /// One out of many, by a number.
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        let bit = |at: u32| number >> at & 1 == 1;
        let [low, high, fill, ..] = number.to_le_bytes();
        Self {
            // Mostly one that grants something.
            policy: usize::from(low >> 4) % (2 * POLICIES_LEN) % POLICIES_LEN,
            known_driver: bit(0),
            near: bit(3),
            open_fds: !bit(1) || bit(2),
            answer: ScriptedAnswer {
                result: if bit(8) && bit(9) { -i64::from(high >> 2) - 1 } else { 0 },
                fill: bit(10).then_some(fill),
                handle: u32::from(fill),
                fd: bit(11).then_some(GuestFd(high.into())),
                writable: bit(12) || bit(13),
            },
        }
    }
}

/// Carries the request that the bytes are, for the decoder or repaired as there, through a world
/// that depends on the bytes.
pub fn run(data: &[u8]) {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let number = data.iter().fold(0xcbf2_9ce4_8422_2325, hash);
    for bytes in [data, &decoder::repaired(data)] {
        ioctl(bytes, World::numbered(number ^ number >> 32));
    }
}

/// Carries a request made by `ioctl`, and tells whether it was executed.
#[must_use]
pub fn executes(data: &[u8], world: World) -> bool {
    ioctl(data, world);
    KERNEL.with_borrow(|kernel| kernel.asked().next().is_some())
}

/// Carries a request made by `ioctl`. Behind header and attributes the bytes hold the payloads.
pub fn ioctl(data: &[u8], world: World) {
    let mut pieces = Vec::new();
    let outline = decode::parse(data).ok();
    let length = outline.as_ref().map_or(data.len(), |o| usize::from(o.hdr().length));
    let mut array = data[..length].to_vec();
    let mut behind = REQUEST + length as u64;
    for payload in outline.iter().flat_map(|outline| outline.payloads()) {
        let range = length + payload.range.start..length + payload.range.end;
        let mut bytes = data.get(range.start..).unwrap_or_default().to_vec();
        bytes.resize(range.len(), 0);
        let index = outline.as_ref().and_then(|outline| outline.attrs()[payload.pos].index);
        let mut addr = payload.addr.0;
        if let Some(index) = index.filter(|_| world.near) {
            let at = HDR_LEN + ATTR_LEN * index + 8;
            array[at..at + 8].copy_from_slice(&behind.to_ne_bytes());
            addr = behind;
            behind += range.len().next_multiple_of(8) as u64;
        }
        pieces.push((addr, bytes));
    }
    pieces.push((REQUEST, array));
    let driver = outline.map(|outline| outline.hdr().driver());
    carry(Form::Ioctl(REQUEST), pieces, driver, world);
}

/// Carries a command given with `write`.
pub fn write(data: &[u8], driver: DriverId, world: World) {
    carry(Form::Write(data.len()), vec![(REQUEST, data.to_vec())], Some(driver), world);
}

fn carry(form: Form, pieces: Vec<(u64, Vec<u8>)>, driver: Option<DriverId>, world: World) {
    let context = answer_of_context(form, &pieces);
    let memory = Restless { pieces, ..Restless::default() };
    let policy = &POLICIES[world.policy];
    let driver = driver.filter(|_| world.known_driver || matches!(form, Form::Write(_)));
    let driver = driver.unwrap_or(DriverId::UNKNOWN);
    let rules = Rules {
        driver,
        policy,
        narrowed: None,
        withdrawn: false,
        ports: None,
        gids: None,
        rdev: (231, 192),
        asked: true,
    };
    let mut books = Books::default();
    let id = books.open(0, None);
    let look_up = |_| match world.open_fds {
        // Any open file will do: what is lent is not looked at here.
        true => {
            File::open("/dev/null").map(|file| OwnedFd::from(file).into()).map_err(|_| Errno::EBADF)
        }
        false => Err(Errno::EBADF),
    };
    KERNEL.with_borrow_mut(|kernel| {
        kernel.again(Box::new(move |_| world.answer));
        let ucontext = books.get_mut(id).unwrap();
        let carried = way::carry(kernel, &memory, (form, REQUEST), &rules, ucontext, look_up);
        let seen: Vec<&Request> = kernel.asked().collect();
        granted(policy, &carried, &seen);
        if let ([seen], Some(vetted)) = (seen.as_slice(), &carried.request) {
            same(vetted, seen);
        }
        // A request that is made as it was written names the answer itself.
        let by_methods = carried.request.as_ref().is_some_and(|it| it.legacy().is_none());
        let context = context.filter(|_| by_methods);
        writes((form, context.clone()), &memory, &carried, &kernel.events, world.answer);
        ends(form, &carried, seen.len(), world.answer);
        reads((form, context), &memory, carried.request.as_ref());
        let counted = ucontext.live.kinds().count();
        assert!(counted == 0 || seen.len() == 1 && world.answer.result >= 0, "{counted} kinds");
    });
}

/// Nothing is executed that the policy does not grant.
fn granted(policy: &Policy, carried: &Carried, seen: &[&Request]) {
    // A GET_CONTEXT may be made by methods.
    let by_methods = |one: &&&Request| one.legacy().is_some_and(|it| it.spec.creates_ucontext);
    assert!(seen.len() <= 1 || seen.len() == 2 && seen.first().is_some_and(|one| by_methods(&one)));
    for seen in seen {
        assert!(carried.refusal.is_none(), "refused, and executed: {seen:?}");
        assert!(policy.check(seen).is_ok(), "{seen:?}");
    }
    if let Some(request) = &carried.request {
        assert!(policy.check(request).is_ok() || carried.refusal.is_some(), "{request:?}");
    }
}

/// What the executor was asked is what was vetted: with the stub's descriptors for the guest's, and
/// absent attributes perhaps named with a neutral value.
fn same(vetted: &Request, seen: &Request) {
    let (a, b) = (vetted.hdr(), seen.hdr());
    assert_eq!((a.object(), a.method(), a.driver()), (b.object(), b.method(), b.driver()));
    let mut want = vetted.clone();
    let fds: Vec<_> = vetted.fds().collect();
    let lent: Vec<u32> = (0..fds.len()).map(|at| lent_number(at).unwrap()).collect();
    for (used, number) in fds.iter().zip(&lent) {
        assert!(want.set_fd(used.place, number.cast_signed()));
    }
    assert!(seen.fds().map(|fd| fd.fd.0.cast_unsigned()).eq(lent));
    for attr in want.attrs() {
        let again = seen.attr(attr.spec.id).expect("an attribute was lost");
        let words = |attr: &verbgate_abi::wire::Attr| (attr.len, attr.flags, attr.attr_data);
        assert_eq!(words(&attr.attr), words(&again.attr), "{}", attr.spec.name);
        let bytes = |request: &Request, attr| {
            let bytes: &[u8] = request.bytes(attr);
            bytes[..bytes.len().min(attr.len())].to_vec()
        };
        assert_eq!(bytes(&want, attr), bytes(seen, again), "{}", attr.spec.name);
        if matches!(attr.spec.kind, AttrKind::Idr { .. }) && !attr.spec.is_new() {
            assert_eq!(attr.attr.data, again.attr.data, "{}", attr.spec.name);
        }
    }
    for again in seen.attrs() {
        let named = want.attr(again.spec.id).is_some();
        assert!(named || residue::neutral(again.spec) == Some(again.attr), "{}", again.spec.name);
    }
}

/// Where a request lets the kernel write: outputs, and of its array `flags` and new handles.
fn places(form: Form, request: &Request) -> Vec<Span<u64>> {
    let mut places = Vec::new();
    let mut add = |at: u64, len: u64| places.push(at..at.saturating_add(len));
    for attr in request.attrs() {
        if attr.spec.is_output() {
            add(attr.attr.data, attr.len() as u64);
        }
        if let (Form::Ioctl(array), Some(index)) = (form, attr.index)
            && attr.spec.is_written_by_kernel()
        {
            let at = array + (HDR_LEN + ATTR_LEN * index) as u64;
            add(at + 4, 2);
            if attr.spec.is_new() {
                add(at + 8, 8);
            }
        }
    }
    places
}

/// Where a GET_CONTEXT that is written has its answer. It may be made by methods, whose outputs are parts of the answer.
fn answer_of_context(form: Form, pieces: &[(u64, Vec<u8>)]) -> Option<Span<u64>> {
    let (_, bytes) = pieces.last()?;
    let (command, rest) = bytes.split_first_chunk::<4>()?;
    let (_, words) = rest.split_at_checked(2)?;
    let (words, rest) = words.split_first_chunk::<2>()?;
    let at = u64::from_ne_bytes(*rest.first_chunk()?);
    let length = 4 * u64::from(u16::from_ne_bytes(*words));
    let is_get_context = matches!(form, Form::Write(_)) && *command == [0; 4];
    is_get_context.then(|| at..at.saturating_add(length))
}

/// Nothing is written but where the request named outputs, and nothing for one that failed: what is
/// written before it is made is what was there.
fn writes(
    (form, context): (Form, Option<Span<u64>>),
    memory: &Restless,
    carried: &Carried,
    events: &[ScriptEvent],
    answer: ScriptedAnswer,
) {
    let mut executed = false;
    for event in events {
        let (addr, bytes) = match event {
            ScriptEvent::Asked(_) => {
                executed = true;
                continue;
            }
            ScriptEvent::Nonsense(errno) => {
                panic!("what lies in the frame is no request: {errno:?}")
            }
            ScriptEvent::Wrote(addr, bytes) => (*addr, bytes),
        };
        let request = carried.request.as_ref();
        let range = addr..addr.saturating_add(bytes.len() as u64);
        if executed {
            assert!(answer.result >= 0, "it failed, and {bytes:x?} was written at {addr:#x}");
        } else {
            assert_eq!(memory.last_read(addr, bytes.len()).as_ref(), Some(bytes));
        }
        // One whose descriptor could not be lent, or that did not fit, is not told of.
        let Some(request) = request else {
            assert!(!executed);
            continue;
        };
        let inside = |place: &Span<u64>| place.start <= range.start && range.end <= place.end;
        let named = places(form, request);
        assert!(named.iter().chain(&context).any(inside), "{range:x?} was not named");
    }
}

/// The guest's call ends as the kernel said.
fn ends(form: Form, carried: &Carried, executed: usize, answer: ScriptedAnswer) {
    let value = match form {
        Form::Ioctl(_) => Reply::Value(answer.result),
        Form::Write(count) => Reply::Value(i64::try_from(count).unwrap()),
    };
    match carried.reply {
        Reply::Continue => panic!("the kernel was left to make it"),
        reply if executed == 0 => assert!(matches!(reply, Reply::Errno(1..)), "{reply:?}"),
        Reply::Errno(errno) if answer.result < 0 => {
            assert_eq!(i64::from(errno), -answer.result);
        }
        // The guest's table is full, or its memory cannot be written.
        Reply::Errno(errno) => {
            let full = errno == EMFILE && answer.fd.is_none();
            assert!(full || errno == Errno::EFAULT.0 && !answer.writable, "{errno}");
        }
        reply => assert_eq!(reply, value),
    }
}

/// Nothing is read twice, but what the request itself names twice.
fn reads((form, context): (Form, Option<Span<u64>>), memory: &Restless, request: Option<&Request>) {
    let Some(request) = request else { return };
    let head = match form {
        Form::Ioctl(_) => FIRST_READ.max(usize::from(request.hdr().length)),
        Form::Write(count) => count,
    };
    let head = REQUEST..REQUEST + head as u64;
    let mut named = vec![head.clone()];
    for attr in request.attrs().iter().filter(|attr| attr.len() > INLINE_LEN) {
        let range = attr.attr.data..attr.attr.data.saturating_add(attr.len() as u64);
        let copied = head.start <= range.start && range.end <= head.end;
        // An input is taken from the first copy if that has it.
        if attr.spec.is_output() || attr.index.is_some() && !copied {
            named.push(range);
        }
    }
    for (_, attr) in request.outputs().filter(|(_, attr)| attr.len() <= INLINE_LEN) {
        named.push(attr.attr.data..attr.attr.data.saturating_add(attr.len() as u64));
    }
    if let Some(answer) = context {
        named.retain(|range| *range == head);
        named.push(answer);
    }
    let reads = memory.reads.borrow();
    let count = |spans: &mut dyn Iterator<Item = Span<u64>>, at: u64| {
        spans.filter(|span| span.contains(&at)).count()
    };
    for read in reads.iter() {
        let last = read.0 + read.1.len() as u64 - 1;
        for at in [read.0, last] {
            let spans = reads.iter().map(|(addr, bytes)| *addr..*addr + bytes.len() as u64);
            let times = count(&mut spans.into_iter(), at);
            let most = count(&mut named.iter().cloned(), at);
            assert!(times <= most, "{at:#x} was read {times} times and is named {most} times");
        }
    }
}

/// Guest memory in which every byte that was read is another one from then on.
#[derive(Default)]
struct Restless {
    /// What is where; the last one counts. Elsewhere are bytes that depend on the address.
    pieces: Vec<(u64, Vec<u8>)>,
    /// What was read, and where.
    reads: RefCell<Vec<(u64, Vec<u8>)>>,
}

impl Restless {
    fn byte(&self, addr: u64) -> u8 {
        let mut pieces = self.pieces.iter().rev();
        let found = pieces.find_map(|(start, bytes)| {
            bytes.get(usize::try_from(addr.checked_sub(*start)?).ok()?).copied()
        });
        let byte = found.unwrap_or(addr.to_le_bytes()[0]);
        let reads = self.reads.borrow();
        let covers = |(start, bytes): &&(u64, Vec<u8>)| {
            (*start..*start + bytes.len() as u64).contains(&addr)
        };
        let times = reads.iter().filter(covers).count();
        byte ^ times.to_le_bytes()[0].wrapping_mul(0x35)
    }

    fn last_read(&self, addr: u64, len: usize) -> Option<Vec<u8>> {
        let reads = self.reads.borrow();
        let mut reads = reads.iter().rev();
        reads.find(|(at, bytes)| *at == addr && bytes.len() == len).map(|(_, bytes)| bytes.clone())
    }
}

impl GuestMemory for Restless {
    fn read(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        for range in from.iter().filter(|range| range.len > 0) {
            let end = range.addr.checked_add(range.len as u64);
            if range.addr < FIRST || end.is_none() {
                break;
            }
            let bytes: Vec<u8> =
                (range.addr..).take(range.len).map(|addr| self.byte(addr)).collect();
            into[done..done + range.len].copy_from_slice(&bytes);
            done += range.len;
            self.reads.borrow_mut().push((range.addr, bytes));
        }
        if done == 0 { Err(io::Error::from_raw_os_error(Errno::EFAULT.0)) } else { Ok(done) }
    }
}
