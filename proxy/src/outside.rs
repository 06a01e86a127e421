//! Doorbells by system call: the supervisor itself makes a POST_SEND without work requests, and a
//! REQ_NOTIFY_CQ.
//!
//! The provider of Soft-RoCE puts work requests into a queue that the provider shares with the kernel,
//! and then wakes the kernel by a POST_SEND that names none (providers/rxe/rxe.c in rdma-core). Such a
//! request reads no memory of the guest and waits for nobody, so no stub is needed: a small message
//! takes one notification instead of two. The kernel writes the number of the bad work request, 0, into
//! the response. Where the guest's memory holds that 0 already, as with every message but the first of
//! a loop, nothing has to be written; elsewhere a stub makes the request. Whoever sleeps until a completion
//! asks for the event before, by a REQ_NOTIFY_CQ, which has no response.

use std::os::fd::AsFd;

use verbgate_abi::ids;
use verbgate_abi::request::Request;
use verbgate_abi::wire::DriverId;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::verbs;
use verbgate_sys::verbs::Bell;

use crate::books::Known;
use crate::books::UcontextId;
use crate::supervisor::Supervisor;
use crate::way;

/// Drivers whose post_send does nothing without work requests but wake a worker, and whose
/// req_notify_cq sets a flag (`rxe_post_send`, `rxe_req_notify_cq`,
/// drivers/infiniband/sw/rxe/rxe_verbs.c). The post_send of siw sends in the caller's time.
const WAKING: &[DriverId] = &[DriverId::RXE];
/// Of the work requests that there are not; the kernel allocates so much.
const LARGEST_WQE: u64 = 4096;

/// A doorbell.
#[derive(Debug)]
pub(crate) struct Doorbell<'a> {
    driver: DriverId,
    bell: Bell<'a>,
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
            let bell = Bell::ReqNotifyCq(core_in.try_into().ok()?);
            return legacy.core_out.is_none().then_some(Self { driver, bell, response: None });
        }
        let field = |path| request.legacy_field(path);
        let is_doorbell = legacy.spec.write_cmd == ids::IB_USER_VERBS_CMD_POST_SEND
            && [field("wr_count"), field("sge_count")] == [Some(0); 2]
            && field("wqe_size").is_some_and(|size| size <= LARGEST_WQE);
        let bell = Bell::PostSend(core_in.try_into().ok().filter(|_| is_doorbell)?);
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
        is_answered.then(|| verbs::ring(file.as_fd(), self.driver.0, self.bell))
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
        let Bell::PostSend(core_in) = doorbell.bell else { panic!("{doorbell:?}") };
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
        let Bell::ReqNotifyCq(core_in) = doorbell.bell else { panic!("{doorbell:?}") };
        assert_eq!(core_in[..], [9_u32, 1].map(u32::to_ne_bytes).as_flattened()[..]);
        let null = File::open("/dev/null").unwrap();
        let rung = doorbell.ring(&FakeMemory::default(), &null);
        assert_eq!(rung, Some(-i64::from(libc::ENOTTY)));
        assert!(Doorbell::of(&req_notify(DriverId::MLX5)).is_none());
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
