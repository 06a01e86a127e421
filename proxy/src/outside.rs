//! Requests that the supervisor makes itself, on the guest's open file: one notification instead of two.
//!
//! Each names objects of that file by their handles, and no memory and no descriptor; the kernel takes nothing from
//! the process that makes it, and writes nothing into the guest's memory. So the supervisor needs no way to write there:
//! wherever the kernel would write, a stub makes the request.
//!
//! - Ends of objects for which the guest pins nothing. (A memory region's end may give memory of a GPU back, whose
//!   driver looks for that memory by the current process.)
//! - MODIFY_QP without an address, whose resolution may take a second, and without a privileged Q_Key, which takes
//!   CAP_NET_RAW of the caller (`modify_qp`, `ib_uverbs_modify_qp`: drivers/infiniband/core/uverbs_cmd.c).
//! - MODIFY_CQ, and multicast groups.
//! - Soft-RoCE's doorbell: a POST_SEND without work requests, by which the provider wakes the kernel
//!   (providers/rxe/rxe.c in rdma-core), where the guest's memory holds the response, 0, already; and REQ_NOTIFY_CQ.
//!
//! A doorbell waits for nobody. The others may wait for the device, so the thread that serves the guest lets go of the
//! guest's state before, and other threads serve the guest meanwhile. One such request of a process is made at a time.
//!
//! A driver may hold a lock of the file while a stub's request waits for a page of the guest. So a stub makes these
//! requests, too, while one is in the kernel. A stub may begin after that was looked at, but none of the requests above
//! takes a lock under which a stub's waits for a page; siw's MODIFY_QP would, and is left to stubs.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use verbgate_abi::ids;
use verbgate_abi::request::Request;
use verbgate_abi::table::Access;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::wire::DriverId;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::verbs;
use verbgate_sys::verbs::Plain;

use crate::books::Books;
use crate::books::Known;
use crate::books::UcontextId;
use crate::crew;
use crate::flight::Prepared;
use crate::observe::Verdict;
use crate::reply;
use crate::session::Guest;
use crate::session::GuestState;
use crate::supervisor::Supervisor;
use crate::task::About;
use crate::task::Outside;
use crate::way;

/// Drivers whose post_send does nothing without work requests but wake a worker, and whose
/// req_notify_cq sets a flag (`rxe_post_send`, `rxe_req_notify_cq`,
/// drivers/infiniband/sw/rxe/rxe_verbs.c). The post_send of siw sends in the caller's time.
const WAKING: &[DriverId] = &[DriverId::RXE];
/// `IB_QP_AV`, `IB_QP_ALT_PATH`, include/rdma/ib_verbs.h.
const ADDRESSES: u64 = 1 << 7 | 1 << 14;
/// `IB_QP_QKEY`, and the bit of a Q_Key that is privileged.
const QKEY: (u64, u64) = (1 << 6, 1 << 31);
/// The largest work request that a doorbell may speak of. The kernel allocates as much, though there is none.
const LARGEST_WQE: u64 = 4096;

/// A doorbell.
#[derive(Debug)]
pub(crate) struct Doorbell<'a> {
    driver: DriverId,
    bell: Plain<'a>,
    /// `struct ib_uverbs_post_send_resp`, where there is one.
    response: Option<Range>,
}

impl<'a> Doorbell<'a> {
    /// The doorbell that a vetted request is, if it is one.
    pub(crate) fn of(request: &'a Request) -> Option<Self> {
        let legacy = request.legacy()?;
        let driver = DriverId(request.hdr().driver_id);
        if !WAKING.contains(&driver) {
            return None;
        }
        let core_in = request.core_in();
        if legacy.spec.write_cmd == ids::IB_USER_VERBS_CMD_REQ_NOTIFY_CQ {
            let bell = Plain::Command { nr: legacy.spec.write_cmd, core_in };
            return legacy.core_out.is_none().then_some(Self { driver, bell, response: None });
        }
        let field = |path| request.legacy_field(path);
        let is_doorbell = legacy.spec.write_cmd == ids::IB_USER_VERBS_CMD_POST_SEND
            && [field("wr_count"), field("sge_count")] == [Some(0); 2]
            && field("wqe_size").is_some_and(|size| size <= LARGEST_WQE);
        let bell = Plain::PostSend(core_in.try_into().ok().filter(|_| is_doorbell)?);
        let response = request.attrs().get(legacy.core_out?)?.attr;
        let response = Range { addr: response.data, len: response.len.into() };
        let response = (response.len == verbs::POST_SEND_RESP_LEN).then_some(response);
        response.is_some().then_some(Self { driver, bell, response })
    }

    /// Makes the request on the guest's open file; returns what the kernel does, or `-errno`. `None` for
    /// what a stub has to make.
    pub(crate) fn ring(&self, memory: &impl GuestMemory, file: impl AsFd) -> Option<i64> {
        let held = way::current(memory, self.response.into_iter()).ok()?;
        let is_answered = held.iter().all(|(_, bytes)| bytes.iter().all(|byte| *byte == 0));
        is_answered.then(|| verbs::make(file.as_fd(), self.driver.0, self.bell))
    }
}

impl Supervisor {
    /// Makes a request that needs no stub, and returns what the kernel does, or `-errno`.
    pub(crate) fn ring(
        &self,
        ucontext: UcontextId,
        request: &Request,
        memory: &impl GuestMemory,
    ) -> Option<i64> {
        let doorbell = Doorbell::of(request)?;
        let known = self.books.lock().known(ucontext)?;
        match known {
            Known::Token(_, file) => doorbell.ring(memory, &*file),
            Known::File => None,
        }
    }
}

/// A vetted request as the kernel is given it, if the kernel takes nothing from the process that makes it, and writes
/// nothing there.
fn plain(request: &Request) -> Option<Plain<'_>> {
    if request.outputs().next().is_some()
        || request.new_handles().next().is_some()
        || request.new_fds().next().is_some()
        || request.fds().next().is_some()
    {
        return None;
    }
    let Some(legacy) = request.legacy() else {
        let ([attr], [used]) = (request.attrs(), &*request.handles().collect::<Vec<_>>()) else {
            return None;
        };
        let hdr = request.hdr();
        return (used.access == Access::Destroy && is_ended_anywhere(used.object)).then_some(
            Plain::Destroy {
                object: hdr.object_id,
                method: hdr.method_id,
                attr: attr.attr.attr_id,
                handle: used.handle.0,
            },
        );
    };
    let field = |path| request.legacy_field(path);
    // A driver may take an address in its own input.
    if !request.uhw_in().is_empty() {
        return None;
    }
    let is_plain = match legacy.spec.short_name {
        // `qp->state_lock`, under which POST_SEND reads the caller's memory (drivers/infiniband/sw/siw/siw_verbs.c).
        "MODIFY_QP" if request.hdr().driver_id == DriverId::SIW.0 => false,
        "MODIFY_QP" => {
            let mask = field("attr_mask")?;
            let (set, privileged) = QKEY;
            let is_privileged = mask & set != 0 && field("qkey")? & privileged != 0;
            mask & ADDRESSES == 0 && !is_privileged
        }
        "ATTACH_MCAST" | "DETACH_MCAST" | "REQ_NOTIFY_CQ" | "EX_MODIFY_CQ" => true,
        _ => {
            let mut used = request.handles();
            let is_end =
                used.all(|one| one.access == Access::Destroy && is_ended_anywhere(one.object));
            is_end && request.handles().next().is_some()
        }
    };
    let (nr, core_in) = (legacy.spec.write_cmd, request.core_in());
    is_plain.then_some(Plain::Command { nr, core_in })
}

/// Whether the end of an object takes nothing from the process that asks for it.
fn is_ended_anywhere(object: ObjectRef) -> bool {
    [
        ids::UVERBS_OBJECT_PD,
        ids::UVERBS_OBJECT_AH,
        ids::UVERBS_OBJECT_MW,
        ids::UVERBS_OBJECT_FLOW,
        ids::UVERBS_OBJECT_FLOW_ACTION,
        ids::UVERBS_OBJECT_RWQ_IND_TBL,
        ids::UVERBS_OBJECT_COUNTERS,
        ids::UVERBS_OBJECT_DM,
        ids::MLX5_IB_OBJECT_DEVX_OBJ,
        ids::MLX5_IB_OBJECT_FLOW_MATCHER,
        ids::MLX5_IB_OBJECT_STEERING_ANCHOR,
        ids::MLX5_IB_OBJECT_PP,
        ids::MLX5_IB_OBJECT_UAR,
        ids::MLX5_IB_OBJECT_VAR,
    ]
    .contains(&object)
}

impl Supervisor {
    /// Takes a request that the supervisor makes itself; gives back what a stub makes.
    pub(crate) fn left_outside(
        &self,
        guest: &Guest,
        state: &mut GuestState,
        about: About,
        prepared: Prepared,
    ) -> Option<Prepared> {
        // A device may be slow. With one more thread that waits for it, the process would have its calls put aside
        // (`Crew::beyond`), and stubs make requests at the same time as well.
        let is_free = state.outside.is_none() && !guest.outside.load(Ordering::Acquire);
        let is_plain = is_free && prepared.plan.told.is_none();
        let file = plain(&prepared.request).filter(|_| is_plain).and_then(|_| {
            let books = self.books.lock();
            match books.known(about.ucontext) {
                Some(Known::Token(_, file)) if !has_stub_at_work(&books, &about) => Some(file),
                _ => None,
            }
        });
        let Some(file) = file else { return Some(prepared) };
        let Prepared { form, request, .. } = prepared;
        guest.outside.store(true, Ordering::Release);
        state.outside = Some(Outside { about, form, request, file });
        None
    }

    /// Makes a request that was taken, and answers its caller.
    pub(crate) fn make_outside(&self, guest: &Guest, outside: Outside) {
        let Outside { about, form, request, file } = outside;
        crew::serving_caller(about.trap);
        // Stubs may have begun since.
        let result = if has_stub_at_work(&self.books.lock(), &about) {
            None
        } else {
            let driver = request.hdr().driver_id;
            plain(&request).map(|plain| verbs::make(file.as_fd(), driver, plain))
        };
        // The last close of a file may take long.
        drop(file);
        guest.outside.store(false, Ordering::Release);
        let Some(result) = result else {
            self.ended(&about, false);
            return self.handle(about.trap);
        };
        if let Some(ucontext) = self.books.lock().get_mut(about.ucontext) {
            ucontext.enter(&request, result);
        }
        self.tell(&about, Some(&request), Verdict::Executed(result));
        self.ended(&about, result >= 0);
        self.answer(about.trap, reply::value(form, result));
    }
}

/// Whether a stub's request on the same file is in the kernel: a driver may hold a lock, and wait for a page of the guest.
fn has_stub_at_work(books: &Books, about: &About) -> bool {
    books.get(about.ucontext).is_none_or(|ucontext| ucontext.at_work > 0)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use verbgate_abi::write;
    use verbgate_sys::mem::FakeMemory;

    use super::*;

    const ANSWER: u64 = 0x9000;

    /// A POST_SEND as a provider writes one: `struct ib_uverbs_cmd_hdr`, response, queue pair, work
    /// requests, their scatter entries, and the size of one.
    fn post_send(driver: DriverId, [wrs, sges, size]: [u32; 3], more: &[u8]) -> Request {
        let len = u16::try_from((8 + 24 + more.len()) / 4).unwrap();
        let mut bytes = 0x1c_u32.to_ne_bytes().to_vec();
        bytes.extend([len, 1].map(u16::to_ne_bytes).as_flattened());
        bytes.extend(ANSWER.to_ne_bytes());
        bytes.extend([7, wrs, sges, size].map(u32::to_ne_bytes).as_flattened());
        bytes.extend(more);
        write::parse_write(&bytes).unwrap().into_request(driver).unwrap()
    }

    #[test]
    fn only_what_names_no_work_request_of_soft_roce_is_a_doorbell() {
        let plain = post_send(DriverId::RXE, [0, 0, 128], &[]);
        let doorbell = Doorbell::of(&plain).unwrap();
        let Plain::PostSend(core_in) = doorbell.bell else { panic!("{doorbell:?}") };
        assert_eq!(core_in[8..12], 7_u32.to_ne_bytes());
        let response = doorbell.response.unwrap();
        assert_eq!((response.addr, response.len), (ANSWER, 4));
        for request in [
            post_send(DriverId::MLX5, [0, 0, 128], &[]),
            post_send(DriverId::RXE, [0, 1, 128], &[0; 16]),
            post_send(DriverId::RXE, [1, 0, 128], &[0; 128]),
            post_send(DriverId::RXE, [0, 0, 1 << 20], &[]),
            post_send(DriverId::RXE, [0, 0, 128], &[0; 8]),
        ] {
            assert!(Doorbell::of(&request).is_none(), "{request:?}");
        }
    }

    /// Command, words of input and of output, and then the input.
    fn req_notify(driver: DriverId) -> Request {
        let mut bytes = 0x17_u32.to_ne_bytes().to_vec();
        bytes.extend([4_u16, 0].map(u16::to_ne_bytes).as_flattened());
        bytes.extend([9_u32, 1].map(u32::to_ne_bytes).as_flattened());
        write::parse_write(&bytes).unwrap().into_request(driver).unwrap()
    }

    #[test]
    fn an_event_is_asked_for_without_a_response() {
        let request = req_notify(DriverId::RXE);
        let doorbell = Doorbell::of(&request).unwrap();
        let Plain::Command { core_in, .. } = doorbell.bell else { panic!("{doorbell:?}") };
        assert_eq!(core_in[..], [9_u32, 1].map(u32::to_ne_bytes).as_flattened()[..]);
        let null = File::open("/dev/null").unwrap();
        let rung = doorbell.ring(&FakeMemory::default(), &null);
        assert_eq!(rung, Some(-i64::from(libc::ENOTTY)));
        assert!(Doorbell::of(&req_notify(DriverId::MLX5)).is_none());
    }

    /// MODIFY_QP as a provider writes one.
    fn modify_qp(mask: u32, qkey: u32) -> Request {
        let mut command = [0_u8; 112];
        command[64..76].copy_from_slice([7, mask, qkey].map(u32::to_ne_bytes).as_flattened());
        let len = u16::try_from((8 + command.len()) / 4).unwrap();
        let mut bytes = 0x1a_u32.to_ne_bytes().to_vec();
        bytes.extend([len, 0].map(u16::to_ne_bytes).as_flattened());
        bytes.extend(command);
        write::parse_write(&bytes).unwrap().into_request(DriverId::MLX5).unwrap()
    }

    #[test]
    fn a_modified_queue_pair_takes_nothing_of_its_process_but_for_an_address_or_a_privileged_key() {
        let (state, key, address, alternate) = (1, 1 << 6, 1 << 7, 1 << 14);
        let is_plain = |mask, qkey| plain(&modify_qp(mask, qkey)).is_some();
        assert!(is_plain(state, 0));
        assert!(is_plain(state | key, 0x1234));
        // The kernel looks at the key only where the mask has it.
        assert!(is_plain(state, 1 << 31));
        assert!(!is_plain(state | key, 1 << 31));
        assert!(!is_plain(state | address, 0));
        assert!(!is_plain(state | alternate, 0));
    }

    #[test]
    fn the_end_of_memory_is_left_to_a_stub() {
        let end = |command: u32| {
            let mut bytes = command.to_ne_bytes().to_vec();
            bytes.extend([3_u16, 0].map(u16::to_ne_bytes).as_flattened());
            bytes.extend(7_u32.to_ne_bytes());
            write::parse_write(&bytes).unwrap().into_request(DriverId::MLX5).unwrap()
        };
        let (dealloc_pd, destroy_ah, dealloc_mw, dereg_mr) = (4, 8, 16, 13);
        for command in [dealloc_pd, destroy_ah, dealloc_mw] {
            assert!(plain(&end(command)).is_some(), "{command}");
        }
        assert!(plain(&end(dereg_mr)).is_none());
    }

    /// Whatever the kernel would have changed in the guest's memory is changed.
    #[test]
    fn a_response_that_is_to_be_written_is_left_to_a_stub() {
        let request = post_send(DriverId::RXE, [0, 0, 128], &[]);
        let doorbell = Doorbell::of(&request).unwrap();
        let holding = |bytes: [u8; 4]| FakeMemory { base: ANSWER, bytes: bytes.to_vec().into() };
        let null = File::open("/dev/null").unwrap();
        assert_eq!(doorbell.ring(&holding([0, 0, 1, 0]), &null), None);
        assert_eq!(doorbell.ring(&holding([0; 4]), &null), Some(-i64::from(libc::ENOTTY)));
        let nowhere = FakeMemory { base: ANSWER + 0x1000, ..FakeMemory::default() };
        assert_eq!(doorbell.ring(&nowhere, &null), None);
    }
}
