#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy.toml allows it in test functions")]
//! A GET_CONTEXT that is given with `write`, on kernels that make none by `INVOKE_WRITE`.

use std::cell::RefCell;

use verbgate_abi::Errno;
use verbgate_abi::Request;
use verbgate_abi::wire::DriverId;
use verbgate_proxy::books::Books;
use verbgate_proxy::executor::Pieces;
use verbgate_proxy::executor::Recorded;
use verbgate_proxy::executor::recorded::ScriptEvent;
use verbgate_proxy::executor::recorded::ScriptedAnswer;
use verbgate_proxy::fetch::Form;
use verbgate_proxy::policy::Policy;
use verbgate_proxy::vet::Rules;
use verbgate_proxy::way;
use verbgate_sys::GuestFd;
use verbgate_sys::mem::FakeMemory;
use verbgate_sys::seccomp::Reply;

const BASE: u64 = 0x6ae0_0010_0000;
const REQUEST: u64 = 0x5000;
const RESPONSE: u64 = 0x9000;
const COUNT: usize = 16;

/// Carries the command; gives its end, the requests that were made, and what was written in the guest's
/// memory after the first of these.
fn carried(
    policy: &Policy,
    script: impl FnMut(&Request) -> ScriptedAnswer,
) -> (Reply, Vec<&'static str>, Pieces) {
    let mut bytes = [0_u32.to_ne_bytes(), [4, 0, 2, 0]].concat();
    bytes.extend(RESPONSE.to_ne_bytes());
    bytes.resize(0x1000, 0);
    bytes.resize(0x5000, 0x77);
    let memory = FakeMemory { base: REQUEST, bytes: RefCell::new(bytes) };
    let rules = Rules {
        driver: DriverId::RXE,
        policy,
        narrowed: None,
        withdrawn: false,
        ports: None,
        gids: None,
        rdev: (231, 192),
        asked: false,
    };
    let (mut kernel, mut books) = (Recorded::new(BASE, script).unwrap(), Books::default());
    let id = books.open(0, None);
    let call = (Form::Write(COUNT), REQUEST);
    let ucontext = books.get_mut(id).unwrap();
    let carried = way::carry(&mut kernel, &memory, call, &rules, ucontext, |_| Err(Errno::EBADF));
    let asked = kernel.asked().map(Request::operation).collect();
    let made = |event: &ScriptEvent| matches!(event, ScriptEvent::Asked(_));
    let first = kernel.events.iter().position(made).unwrap_or(0);
    let wrote = kernel.events.into_iter().skip(first).filter_map(|event| match event {
        ScriptEvent::Wrote(addr, bytes) => Some((addr, bytes)),
        _ => None,
    });
    (carried.reply, asked, wrote.collect())
}

/// The end of each request by its name.
fn as_linux_7(request: &Request, events: ScriptedAnswer) -> ScriptedAnswer {
    match (request.legacy().is_some(), request.operation()) {
        (true, _) => ScriptedAnswer::of(-i64::from(Errno::EBADF.0)),
        (false, "GET_CONTEXT") => ScriptedAnswer { fill: Some(3), ..ScriptedAnswer::of(0) },
        _ => events,
    }
}

#[test]
fn two_methods_do_what_the_command_does() {
    let standard = Policy::named("standard").unwrap();
    let events = ScriptedAnswer { fd: Some(GuestFd(9)), ..ScriptedAnswer::of(0) };
    let (reply, asked, wrote) = carried(&standard, |request| as_linux_7(request, events));
    assert_eq!(reply, Reply::Value(16));
    assert_eq!(asked, ["GET_CONTEXT", "GET_CONTEXT", "ASYNC_EVENT_ALLOC"]);
    let [(vectors, three), (fd, nine)] = wrote.as_slice() else { panic!("{wrote:x?}") };
    assert_eq!((*vectors, three.as_slice()), (RESPONSE + 4, &[3; 4][..]));
    assert_eq!((*fd, nine.as_slice()), (RESPONSE, &9_i32.to_ne_bytes()[..]));
}

#[test]
fn a_method_that_fails_or_is_not_granted_is_the_end() {
    let standard = Policy::named("standard").unwrap();
    let full = ScriptedAnswer::of(-i64::from(libc::EMFILE));
    let (reply, asked, wrote) = carried(&standard, |request| as_linux_7(request, full));
    assert_eq!((reply, asked.len(), wrote.len()), (Reply::Errno(libc::EMFILE), 3, 1));
    let (reply, asked, _) = carried(&standard, |_| ScriptedAnswer::of(-i64::from(Errno::EBADF.0)));
    assert_eq!((reply, asked.len()), (Reply::Errno(Errno::EBADF.0), 2));
    let command = Policy::read(
        "name = \"a\"\nmethods = [\"DEVICE.INVOKE_WRITE\"]\ncommands = [\"GET_CONTEXT\"]",
    )
    .unwrap();
    let (reply, asked, _) = carried(&command, |_| ScriptedAnswer::of(-i64::from(Errno::EBADF.0)));
    assert_eq!((reply, asked.len()), (Reply::Errno(Errno::EBADF.0), 1));
}
