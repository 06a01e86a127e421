#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "clippy.toml allows it in test functions")]
//! Requests made by the calling process, on a file that knows none.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

use verbgate_abi::Errno;
use verbgate_abi::legacy;
use verbgate_abi::wire::DriverId;
use verbgate_proxy::books::Books;
use verbgate_proxy::executor::Executor;
use verbgate_proxy::executor::Local;
use verbgate_proxy::executor::local::Recipient;
use verbgate_proxy::fetch::Copied;
use verbgate_proxy::fetch::Form;
use verbgate_proxy::policy::Policy;
use verbgate_proxy::translate::Lent;
use verbgate_proxy::translate::Plan;
use verbgate_proxy::vet::Rules;
use verbgate_proxy::way;
use verbgate_proxy::way::Next;
use verbgate_sys::GuestFd;
use verbgate_sys::mem::FakeMemory;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::verbs::Device;
use verbgate_sys::window::RO_LEN;
use verbgate_sys::window::RW_LEN;

const REQUEST: u64 = 0x5000;
const RESPONSE: u64 = REQUEST + 0x800;

#[derive(Default)]
struct Written(Vec<(u64, Vec<u8>)>);

impl Recipient for Written {
    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.0.push((addr, bytes.to_vec()));
        Ok(())
    }

    fn give(&mut self, _file: OwnedFd) -> io::Result<GuestFd> {
        Ok(GuestFd(9))
    }
}

fn local() -> Local<Written> {
    Local::new(Device::stand_in(tempfile::tempfile().unwrap().into()).unwrap(), Written::default())
}

/// A plain command, given with `write`, whose response goes to [`RESPONSE`].
fn command(name: &str) -> (FakeMemory, usize) {
    let spec = legacy::commands().iter().find(|spec| spec.short_name == name).unwrap();
    let mut bytes = u32::try_from(spec.write_cmd).unwrap().to_ne_bytes().to_vec();
    for words in [(8 + spec.req_size()) / 4, spec.resp_size() / 4] {
        bytes.extend(u16::try_from(words).unwrap().to_ne_bytes());
    }
    bytes.extend(RESPONSE.to_ne_bytes());
    bytes.resize(8 + spec.req_size(), 0);
    let count = bytes.len();
    bytes.resize(0x1000, 0x77);
    (FakeMemory { base: REQUEST, bytes: RefCell::new(bytes) }, count)
}

fn rules(policy: &Policy) -> Rules<'_> {
    Rules {
        driver: DriverId::RXE,
        policy,
        narrowed: None,
        withdrawn: false,
        ports: None,
        gids: None,
        rdev: (231, 192),
        asked: false,
    }
}

#[test]
fn what_the_kernel_refuses_changes_nothing() {
    let policy = Policy::named("full").unwrap();
    for name in ["GET_CONTEXT", "ALLOC_PD", "DEALLOC_PD"] {
        let (memory, count) = command(name);
        let mut local = local();
        let mut books = Books::default();
        let id = books.open(0, None);
        let ucontext = books.get_mut(id).unwrap();
        let call = (Form::Write(count), REQUEST);
        let carried =
            way::carry(&mut local, &memory, call, &rules(&policy), ucontext, |_| Err(Errno::EBADF));
        // Of a file that is no device: the kernel has seen it.
        assert_eq!(carried.reply, Reply::Errno(25), "{name}");
        assert_eq!(ucontext.live.kinds().count(), 0);
        assert_eq!(ucontext.asked, name == "GET_CONTEXT");
        let same = |(addr, bytes): &(u64, Vec<u8>)| {
            let at = usize::try_from(addr - REQUEST).unwrap();
            memory.bytes.borrow()[at..at + bytes.len()] == *bytes
        };
        assert!(local.guest().0.iter().all(same), "{name}: {:x?}", local.guest().0);
    }
}

/// An address of the guest's is none of the calling process's.
#[test]
fn no_output_goes_to_an_address_of_the_guest() {
    let policy = Policy::named("full").unwrap();
    for name in ["GET_CONTEXT", "ALLOC_PD", "REG_MR", "CREATE_QP", "QUERY_DEVICE", "POLL_CQ"] {
        let (memory, count) = command(name);
        let mut local = local();
        let copied = Copied::read(&memory, REQUEST, count).unwrap();
        let closed = |_| Err(Errno::EBADF);
        let form = Form::Write(count);
        let next = way::prepare(&local, &memory, form, copied, &rules(&policy), closed).unwrap();
        let Next::Execute(prepared, _) = next else { panic!("{name}: {next:?}") };
        let (done, _) = way::begin(&mut local, prepared).unwrap();
        assert!(done.supervised && !done.layout.written.is_empty());
        for written in &done.layout.written {
            let mut data = [0; 8];
            local.frame().rw_read(written.flags_at + 4, &mut data);
            let data = u64::from_ne_bytes(data);
            let rw = local.base() + RO_LEN as u64;
            assert!((rw..rw + RW_LEN as u64).contains(&data), "{name}: {data:#x}");
        }
    }
}

#[test]
fn descriptors_are_the_calling_processs_own() {
    let file = File::open("/dev/null").unwrap();
    let number = file.as_raw_fd().cast_unsigned();
    let place = verbgate_abi::request::Place::AttrData(0);
    let mut plan = Plan {
        lent: vec![Lent { at: 1000, file: OwnedFd::from(file).into() }],
        patches: vec![verbgate_proxy::translate::Patch { place, number: 1000 }],
        ..Plan::default()
    };
    local().plan(&mut plan);
    assert!(plan.supervised);
    assert_eq!((plan.lent[0].at, plan.patches[0].number), (number, number));
}
