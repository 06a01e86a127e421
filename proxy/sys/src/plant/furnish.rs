//! What makes a thread of the guest's a stub: its descriptors, its memory, and the supervisor's
//! knowledge of it.
//!
//! The new thread is traced by the supervisor until it is known as a stub, so that nobody else can trace
//! it: a tracer would have its device, and could change what it does.

use std::sync::Arc;

use super::After;
use super::New;
use super::PlantError;
use super::Planter;
use super::Worked;
use super::failed;
use super::lost;
use super::unexpected;
use crate::Tid;
use crate::arch::Arch;
use crate::arch::Native;
use crate::arch::RDMA_VERBS_IOCTL;
use crate::arch::StubAddrs;
use crate::arch::stub_fd;
use crate::control;
use crate::frame;
use crate::inject;
use crate::inject::Call;
use crate::inject::Cloned;
use crate::inject::Given;
use crate::inject::RESTART;
use crate::inject::Sight;
use crate::process;
use crate::process::Thread;
use crate::ptrace;
use crate::ptrace::Running;
use crate::ptrace::Stopped;
use crate::stub;
use crate::window::CODE_LEN;

impl Planter<'_> {
    /// Has the stopped guest thread make the new one.
    pub(super) fn multiplied(
        &mut self,
        stopped: Stopped,
        before: &ptrace::Regs,
        slot: usize,
        new: &New<'_>,
    ) -> Worked<Arc<Thread>> {
        let flags = libc::CLONE_VM
            | libc::CLONE_FILES
            | libc::CLONE_FS
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        let args = [u64::from(flags.cast_unsigned()), 0, 0, 0, 0, 0];
        let clone =
            Call { name: "clone", nr: Native::NUMBERS.clone, args, sight: Sight::Untrapped };
        let (maker, born) = match inject::clone(stopped, before, &clone)? {
            Cloned::Born(maker, born) => (maker, born),
            Cloned::Failed(stopped, result) => return Ok((stopped, Err(failed(&clone, result)))),
        };
        self.traps.expect(born);
        let (stub, _) = Running::born(born).wait().map_err(|e| lost(born, e))?;
        let mut thread = Thread::by_number(born).map_err(|e| lost(born, e))?;
        let (mut maker, mut left, mut learnt) = (Some(maker), None, Ok(()));
        let mut meanwhile = || {
            if let Some(maker) = maker.take() {
                learnt = thread.learn_numbers();
                left = Some(inject::out_of_clone(maker));
            }
        };
        let (stub, equipped) = self.equip(stub, before, slot, new, &mut meanwhile)?;
        let stopped = left.unwrap_or(Err(PlantError::Gone(born)))?;
        let planted = match equipped.and(learnt.map_err(|e| lost(born, e))) {
            Ok(()) => self.known(stub, before, (slot, new.first), Arc::new(thread)),
            Err(e) => self.injector().end(stub, before).and(Err(e)),
        };
        Ok((stopped, planted.map(|thread| (thread, After::Again))))
    }

    /// Sets an equipped thread going, once it is known as a stub.
    fn known(
        &mut self,
        stub: Stopped,
        like: &ptrace::Regs,
        (slot, first): (usize, bool),
        thread: Arc<Thread>,
    ) -> Result<Arc<Thread>, PlantError> {
        let tid = stub.tid();
        if !self.traps.announce(&thread) {
            self.injector().end(stub, like)?;
            return Err(PlantError::Sought(tid));
        }
        let ro_at = self.window.slot(slot);
        let addrs = StubAddrs {
            code: self.window.code(),
            request: ro_at + stub::request_offset(stub::INPUTS) as u64,
            after: ro_at + control::AFTER as u64,
            message: ro_at + control::MESSAGE as u64,
            // The second lock; the filter is the first, and the only one before 6.10.
            sealed: frame::range(self.window, slot, first),
        };
        stub.set_regs(&Native::enter_stub(&addrs, like)).map_err(|e| lost(tid, e))?;
        stub.detach(0).map_err(|e| lost(tid, e))?;
        Ok(thread)
    }

    /// Gives the new thread its descriptors and memory.
    fn equip(
        &mut self,
        stub: Stopped,
        like: &ptrace::Regs,
        slot: usize,
        new: &New<'_>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(Stopped, Result<(), PlantError>), PlantError> {
        let n = &Native::NUMBERS;
        let own = [0, u64::from(u32::MAX), CLOSE_RANGE_UNSHARE, 0, 0, 0];
        let trapped = |name, nr, args| Call { name, nr, args, sight: Sight::Trapped };
        // Instead of a copy of a table, which may be large: the kernel copies 64 descriptors at most
        // before it closes them (fs/file.c).
        let empty = [trapped("close_range", n.close_range, own)];
        let (stub, emptied) = self.make_while(stub, like, &empty, &[], meanwhile)?;
        if emptied.is_err() {
            return Ok((stub, emptied));
        }
        let Some(ro) = new.ro else {
            let args = [0, RDMA_VERBS_IOCTL.into(), 0, 0, 0, 0];
            let give = Call { name: "ioctl", nr: n.ioctl, args, sight: Sight::Answered };
            return self.make(stub, like, &[give], &[(stub_fd::SCRATCH, new.scratch)]);
        };
        let give = [(stub_fd::SCRATCH, new.scratch), (frame::FILE, ro)];
        let range = frame::range(self.window, slot, new.first);
        let (stub, mapped) = self.map(stub, like, slot, new.first, &give)?;
        if !exists(&mapped) || !holds_leftovers_only(stub.tid(), range) {
            return Ok((stub, mapped));
        }
        // Of a planting in the parent, which had not got farther when this process was made: without
        // access, so of no use to anybody.
        let clear = [trapped("munmap", n.munmap, [range.0, range.1, 0, 0, 0, 0])];
        let (stub, cleared) = self.make(stub, like, &clear, &[])?;
        if cleared.is_err() {
            return Ok((stub, cleared));
        }
        self.map(stub, like, slot, new.first, &give)
    }

    /// Has a new stub map its memory: by its own code if that is not there yet, which takes fewer
    /// stops.
    fn map(
        &mut self,
        stub: Stopped,
        like: &ptrace::Regs,
        slot: usize,
        first: bool,
        give: &Given<'_>,
    ) -> Result<(Stopped, Result<(), PlantError>), PlantError> {
        let sight = Sight::Trapped;
        let frame = frame::calls(self.window, slot, first);
        let frame = frame.map(|(name, nr, args)| Call { name, nr, args, sight });
        if !first {
            return self.make(stub, like, &frame, give);
        }
        let number = |flags: i32| u64::from(flags.cast_unsigned());
        let rx = number(libc::PROT_READ | libc::PROT_EXEC);
        let fixed = number(libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
        let at = self.window.code();
        let args = [at, CODE_LEN as u64, rx, fixed, frame::FILE.into(), 0];
        let code = Call { name: "mmap", nr: Native::NUMBERS.mmap, args, sight };
        let (stub, mapped) = self.make(stub, like, &[code], give)?;
        if mapped.is_err() {
            return Ok((stub, mapped));
        }
        let begin = Native::begin(at + Native::stub_code(&[]).calls_at, like);
        let (stub, done) = self.injector().follow(stub, &begin, &frame)?;
        match (done, frame.last()) {
            (Err((call, result)), _) => Ok((stub, Err(failed(call, result)))),
            (Ok(0), _) | (_, None) => Ok((stub, Ok(()))),
            (Ok(shown), Some(last)) if RESTART.contains(&shown) => {
                self.make(stub, like, &[*last], &[])
            }
            (Ok(shown), Some(last)) => Ok((stub, Err(failed(last, shown)))),
        }
    }

    /// Makes calls until one fails, the first of which gets descriptors. The outer error leaves the thread in the middle of one.
    fn make(
        &mut self,
        stub: Stopped,
        like: &ptrace::Regs,
        calls: &[Call],
        give: &Given<'_>,
    ) -> Result<(Stopped, Result<(), PlantError>), PlantError> {
        self.make_while(stub, like, calls, give, &mut || ())
    }

    /// The same; something else is done while the thread comes to its call, which takes as long as to wake a
    /// processor.
    fn make_while(
        &mut self,
        mut stub: Stopped,
        like: &ptrace::Regs,
        calls: &[Call],
        mut give: &Given<'_>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(Stopped, Result<(), PlantError>), PlantError> {
        let n = &Native::NUMBERS;
        for call in calls {
            let tid = stub.tid();
            let (after, result) =
                self.injector().inject_while(stub, like, call, give, meanwhile)?;
            (stub, give) = (after, &[]);
            if (-4095..0).contains(&result) {
                return Ok((stub, Err(failed(call, result))));
            }
            if call.nr == n.mmap && result.cast_unsigned() != call.args[0] {
                // Before 4.17 MAP_FIXED_NOREPLACE is a mere hint.
                return Err(unexpected(tid, call.name, format!("address {result:#x}")));
            }
        }
        Ok((stub, Ok(())))
    }
}

/// include/uapi/linux/close_range.h.
const CLOSE_RANGE_UNSHARE: u64 = 2;

/// Whether something was mapped already.
fn exists(result: &Result<(), PlantError>) -> bool {
    matches!(result, Err(PlantError::Injected { call: "mmap", source })
        if source.raw_os_error() == Some(libc::EEXIST))
}

/// Whether nothing is mapped in a range but what planting maps.
fn holds_leftovers_only(tid: Tid, (at, len): (u64, u64)) -> bool {
    process::mapped(tid, at, len)
        .is_ok_and(|names| names.iter().all(|name| name.starts_with("/memfd:verbgate-")))
}
