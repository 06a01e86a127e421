//! Charges against the tables: what every request takes, and which quota refuses it.

use std::collections::BTreeMap;

use verbgate_abi::decode;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::legacy;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::wire::Handle;

use super::*;
use crate::ledger::Ledger;
use crate::policy::Policy;

/// Of every command and method that makes an object of which sizes are charged, the size is known:
/// a table that grows without this file fails here.
#[test]
fn the_size_of_every_object_that_has_one_is_in_the_request() {
    let (mut commands, mut methods) = (0, 0);
    for spec in legacy::commands() {
        let made = spec.handles.iter().filter(|field| field.in_resp);
        for kind in made.filter_map(|field| Resource::of(field.object)?.sized()) {
            let wanted: &[&str] = match kind {
                Resource::MrBytes => &["length"],
                Resource::Cqe => &["cqe"],
                _ if spec.req.field("max_send_wr").is_some() => &["max_send_wr", "max_recv_wr"],
                // Another's queue pair, by its number.
                _ if spec.short_name == "OPEN_QP" => &[],
                _ => &["max_wr"],
            };
            for path in wanted {
                assert!(spec.req.field(path).is_some(), "{}: no {path}", spec.short_name);
            }
            commands += 1;
        }
    }
    let sizes = [
        ("CQ.CQ_CREATE", "CREATE_CQ_CQE"),
        ("QP.QP_CREATE", "CREATE_QP_CAP"),
        ("SRQ.SRQ_CREATE", "CREATE_SRQ_MAX_WR"),
        ("WQ.WQ_CREATE", "CREATE_WQ_MAX_WR"),
        ("MR.REG_MR", "REG_MR_LENGTH"),
        ("MR.REG_DMABUF_MR", "REG_DMABUF_MR_LENGTH"),
        ("MR.DM_MR_REG", "REG_DM_MR_LENGTH"),
    ];
    for method in table::methods() {
        let makes = method.attrs.iter().any(|attr| {
            matches!(attr.kind, AttrKind::Idr { object, access: Access::New }
                if Resource::of(object).and_then(Resource::sized).is_some())
        });
        if !makes {
            continue;
        }
        let name = method.full_name();
        let size = sizes.iter().find(|(method, _)| *method == name).map(|(_, size)| *size);
        let Some(size) = size else { panic!("{name}: the size of its object is not known") };
        assert!(method.attrs.iter().any(|attr| attr.short_name() == size), "{name}: no {size}");
        methods += 1;
    }
    assert!(commands >= 7 && methods == sizes.len(), "{commands} {methods}");
}

#[test]
fn every_quantity_has_its_place() {
    for (at, (resource, name)) in NAMES.iter().enumerate() {
        assert_eq!(*resource as usize, at, "{name}");
        assert_eq!(Amounts::of(*resource, 7).some().collect::<Vec<_>>(), [(*resource, 7)]);
    }
    let amounts = Amounts::of(Resource::Wr, 9).plus(&Amounts::of(Resource::Pd, 1));
    assert_eq!(Amounts::read(&amounts.bytes()), amounts);
    assert_eq!(amounts.minus(&Amounts::of(Resource::Wr, 10)).get(Resource::Wr), 0);
}

/// A request for a command or a method, with what the kernel demands.
fn least(name: &str) -> Request {
    let driver = verbgate_abi::wire::DriverId::MLX5;
    let command = legacy::commands().iter().find(|spec| spec.short_name == name);
    let builder = match command {
        Some(spec) => {
            let invoke = table::methods().iter().find(|method| method.is_invoke_write()).unwrap();
            let mut input = vec![0; spec.req_size() + 8];
            if let Some(field) = spec.req.field("wqe_size") {
                input[usize::from(field.offset)] = 128;
            }
            RequestBuilder::new(invoke, driver)
                .input(ids::UVERBS_ATTR_CORE_IN, &input)
                .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), 4096)
                .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd)
        }
        None => {
            let method = table::methods().iter().find(|method| method.full_name() == name).unwrap();
            let driver = match method.provider {
                Provider::Driver(driver) => driver,
                Provider::Core => driver,
            };
            let wanted = method.attrs_of(driver).filter(|spec| spec.mandatory);
            wanted.fold(RequestBuilder::new(method, driver), |builder, spec| match spec.kind {
                AttrKind::PtrOut { min, .. } => builder.output(spec.id, GuestAddr(0x9000), min),
                AttrKind::Idr { .. } => builder.handle(spec.id, Handle(1)),
                AttrKind::Fd { .. } | AttrKind::RawFd => builder.fd(spec.id, 1),
                AttrKind::EnumIn { elems } => {
                    builder.elem(spec.id, 0, &vec![0; elems[0].min.into()])
                }
                AttrKind::PtrIn { min, .. } => builder.input(spec.id, &vec![0; min.into()]),
                AttrKind::ConstIn | AttrKind::FlagsIn => builder.constant(spec.id, 0),
                AttrKind::IdrsArray { min, .. } => {
                    builder.input(spec.id, &vec![0; 4 * usize::from(min)])
                }
                AttrKind::Umem => builder.input(spec.id, &[1; 32]),
            })
        }
    };
    let encoded = builder.build(GuestAddr(0x1_0000));
    let outline = decode::parse(&encoded.bytes).unwrap();
    let mut arena = vec![0; outline.arena_len()];
    for payload in outline.payloads() {
        let start = usize::try_from(payload.addr.0 - 0x1_0000).unwrap();
        let len = payload.range.len();
        arena[payload.range].copy_from_slice(&encoded.payload[start..start + len]);
    }
    outline.with_payloads(arena).unwrap()
}

/// Of each request, and of each quantity that a policy can have a quota of: with a quota of none, what takes
/// some does not pass, and nothing else is refused.
#[test]
fn a_request_that_takes_what_a_quota_does_not_leave_never_passes() {
    let commands = legacy::commands().iter().map(|spec| spec.short_name.to_owned());
    let methods = table::methods().iter().filter(|method| !method.is_invoke_write());
    let names = commands.chain(methods.map(table::MethodSpec::full_name));
    let (mut refused, mut all) = (BTreeMap::<Resource, u32>::new(), 0);
    let policies = NAMES.map(|(resource, name)| {
        (resource, Policy::read(&format!("name = \"q\"\nrules.quota.{name} = 0\n")).unwrap())
    });
    for name in names {
        let request = least(&name);
        let charge = Takes::of(&request).charge();
        let made = request.new_handles().count() as u64;
        assert_eq!(charge.get(Resource::Objects), made, "{name}");
        for (resource, policy) in &policies {
            let bounds = |resource| policy.quota(resource);
            let over = Ledger::default().charge(&charge, &bounds).is_err();
            assert_eq!(over, charge.get(*resource) > 0, "{name}: {resource:?}");
            *refused.entry(*resource).or_default() += u32::from(over);
        }
        all += 1;
    }
    // Amounts are 0 in these requests; opens and ids are charged by those who make them.
    let elsewhere = [
        Resource::Ucontexts,
        Resource::MrBytes,
        Resource::Cqe,
        Resource::Wr,
        Resource::CmIds,
        Resource::Ports,
        Resource::Backlog,
    ];
    for (resource, name) in NAMES {
        assert_eq!(refused[&resource] == 0, elsewhere.contains(&resource), "{name}");
    }
    assert!(all > 100, "{all}");
}
