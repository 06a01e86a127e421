//! A host with a device, and requests of its guests.

use std::cell::RefCell;

use verbgate_abi::decode;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::table;
use verbgate_abi::wire::GuestAddr;
use verbgate_sys::mem::FakeMemory;
use verbgate_sysfs::DevNumber;
use verbgate_sysfs::Identity;
use verbgate_sysfs_fixtures::Changing;
use verbgate_sysfs_fixtures::Software;

use crate::gids::tests::own_loopback;
use crate::gids::tests::view;
use crate::vet::*;

pub(super) const DEVICE: Software<'_> = Software {
    number: (231, 192),
    node: "uverbs0",
    ibdev: "rxe0",
    node_guid: "0000:0000:0000:0000",
    function: None,
};

/// A host with one device, as sysfs shows it.
pub(super) struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    /// Port 1 is one of RoCE: the GIDs at 0 and 1 are the loopback device's, of versions 2 and 1. Port 2 is
    /// one of InfiniBand. Each has two P_Keys.
    pub(super) fn new() -> Self {
        let host = Self { dir: tempfile::tempdir().unwrap() };
        Changing::new(host.dir.path()).unwrap().add(&DEVICE).unwrap();
        host.put("node_type", "1: CA\n");
        host.put("ports/1/link_layer", "Ethernet\n");
        for (index, kind) in [(0, "RoCE v2\n"), (1, "IB/RoCE v1\n")] {
            host.put(&format!("ports/1/gids/{index}"), "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
            host.put(&format!("ports/1/gid_attrs/ndevs/{index}"), "lo\n");
            host.put(&format!("ports/1/gid_attrs/types/{index}"), kind);
        }
        host.put("ports/2/link_layer", "InfiniBand\n");
        host.put("ports/2/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n");
        for (place, key) in [("1/pkeys/0", "0xffff\n"), ("1/pkeys/1", "0x8001\n")] {
            host.put(&format!("ports/{place}"), key);
        }
        for (place, key) in [("2/pkeys/0", "0x8002\n"), ("2/pkeys/1", "0x8001\n")] {
            host.put(&format!("ports/{place}"), key);
        }
        host
    }

    pub(super) fn put(&self, file: &str, text: &str) {
        let file = self.path(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    pub(super) fn path(&self, file: &str) -> std::path::PathBuf {
        self.dir.path().join(DEVICE.path()).join(file)
    }

    pub(super) fn view(&self) -> GidView {
        let number = DevNumber { major: 231, minor: 192 };
        let identity = Identity::below(self.dir.path(), number).unwrap();
        let view = view(self.dir.path(), vec![identity]);
        own_loopback(&view, &self.path("ports/1"));
        view
    }
}

pub(super) fn command(name: &str) -> &'static legacy::LegacySpec {
    legacy::commands().iter().find(|spec| spec.short_name == name).unwrap()
}

/// A command with these bytes in these fields; of a number, the first are enough.
pub(super) fn request(driver: DriverId, name: &str, fields: &[(&str, &[u8])]) -> RequestBuilder {
    let invoke = table::methods().iter().find(|method| method.is_invoke_write()).unwrap();
    let spec = command(name);
    let mut input = vec![0; spec.req_size()];
    for (path, bytes) in fields {
        let at = usize::from(spec.req.field(path).unwrap().offset);
        input[at..at + bytes.len()].copy_from_slice(bytes);
    }
    RequestBuilder::new(invoke, driver)
        .input(ids::UVERBS_ATTR_CORE_IN, &input)
        .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), 4096)
        .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd)
}

pub(super) const BASE: u64 = 0x1_0000;

/// The decoded request for a command of Soft-RoCE's.
pub(crate) fn of(name: &str, fields: &[(&str, &[u8])]) -> Request {
    let encoded = request(DriverId::RXE, name, fields).build(GuestAddr(BASE));
    let outline = decode::parse(&encoded.bytes).unwrap();
    let mut arena = vec![0; outline.arena_len()];
    for payload in outline.payloads() {
        let start = usize::try_from(payload.addr.0 - BASE).unwrap();
        let len = payload.range.len();
        arena[payload.range].copy_from_slice(&encoded.payload[start..start + len]);
    }
    outline.with_payloads(arena).unwrap()
}

/// Why a request is refused, if it is.
pub(super) fn refused(rules: &Rules<'_>, request: RequestBuilder) -> Option<&'static str> {
    let encoded = request.build(GuestAddr(BASE + 4096));
    let mut bytes = encoded.bytes.clone();
    bytes.resize(4096, 0);
    bytes.extend(encoded.payload);
    let memory = FakeMemory { base: BASE, bytes: RefCell::new(bytes) };
    let copied = Copied::read(&memory, BASE, encoded.bytes.len()).unwrap();
    match vet(&memory, Form::Ioctl(BASE), copied, rules) {
        Vetted::Refused(_, refusal) => Some(refusal.reason),
        Vetted::Execute(..) | Vetted::Answered(..) => None,
    }
}

pub(super) fn own(rules: &str) -> Policy {
    Policy::read(&format!("name = \"own\"\nextends = \"standard\"\n{rules}\n")).unwrap()
}

pub(super) fn rules<'a>(policy: &'a Policy, gids: &'a GidView) -> Rules<'a> {
    Rules {
        driver: DriverId::RXE,
        policy,
        narrowed: None,
        withdrawn: false,
        ports: None,
        gids: Some(gids),
        rdev: DEVICE.number,
        asked: true,
    }
}
