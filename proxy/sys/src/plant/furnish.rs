//! A thread of the guest's becomes a stub: by its place on the stubs' code, its memory, and the supervisor's
//! knowledge of it.
//!
//! The new thread is traced by the supervisor until it is known as a stub, so that nobody else can trace
//! it: a tracer would have its device, and could change what it does.

use std::io;
use std::sync::Arc;

use super::After;
use super::New;
use super::PlantError;
use super::Planter;
use super::Worked;
use super::failed;
use super::lost;
use super::short;
use crate::Tid;
use crate::arch::Arch;
use crate::arch::Call;
use crate::arch::Native;
use crate::arch::StubAddrs;
use crate::arch::stub_fd;
use crate::control;
use crate::frame;
use crate::frame::Memory;
use crate::inject;
use crate::inject::Cloned;
use crate::process;
use crate::process::Thread;
use crate::ptrace;
use crate::ptrace::Stopped;
use crate::stub;
use crate::window::CODE_LEN;

impl Planter<'_> {
    /// Has the stopped guest thread map the code from the descriptor that it was lent, and make the new one, which
    /// closes that.
    pub(super) async fn multiplied(
        &mut self,
        mut stopped: Stopped,
        before: &ptrace::Regs,
        (new, lent): (&New<'_>, Option<u32>),
    ) -> Worked<Arc<Thread>> {
        if let Some(lent) = lent {
            let (held, mapped) = self.code_mapped(stopped, before, lent).await?;
            if let Err(e) = mapped {
                return Ok((self.closed(held, before, Some(lent)).await?, Err(e)));
            }
            stopped = held;
        }
        let flags = libc::CLONE_VM
            | libc::CLONE_FILES
            | libc::CLONE_FS
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        let args = [u64::from(flags.cast_unsigned()), 0, 0, 0, 0, 0];
        let clone = Call { name: "clone", nr: Native::NUMBERS.clone, args };
        let (maker, born) = match inject::clone(stopped, before, &clone).await? {
            Cloned::Born(maker, born) => (maker, born),
            Cloned::Failed(stopped, result) => {
                let stopped = self.closed(stopped, before, lent).await?;
                return Ok((stopped, Err(failed(&clone, result))));
            }
        };
        let tid = born.tid();
        self.traps.expect(tid);
        let (stub, _) = born.wait().await.map_err(|e| lost(tid, e))?;
        let made = self.equipped(stub, before, (new, lent)).await;
        let stopped = inject::out_of_clone(maker).await?;
        let planted = match made {
            // A filter of the guest's own has ended the new thread alone: the maker goes on without.
            Err(PlantError::Gone(gone)) if gone == tid => {
                let source = io::Error::from_raw_os_error(libc::EIO);
                Err(PlantError::Injected { call: "a new stub", source })
            }
            made => made?,
        };
        Ok((stopped, planted.map(|thread| (thread, After::Again))))
    }

    /// Has the stopped guest thread map the code.
    async fn code_mapped(
        &mut self,
        stopped: Stopped,
        before: &ptrace::Regs,
        lent: u32,
    ) -> Result<(Stopped, Result<(), PlantError>), PlantError> {
        let n = &Native::NUMBERS;
        let number = |flags: i32| u64::from(flags.cast_unsigned());
        let rx = number(libc::PROT_READ | libc::PROT_EXEC);
        let fixed = number(libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
        let window = self.code.window();
        let at = window.code();
        let args = [at, CODE_LEN as u64, rx, fixed, lent.into(), 0];
        let map = Call { name: "mmap", nr: n.mmap, args };
        let (stopped, mapped) = self.injector().inject(stopped, before, &map).await?;
        // The code was inherited, or another process that shares the memory has stubs: there is one code for all.
        if mapped == EXISTS && self.code.is_there(stopped.tid()) {
            return Ok((stopped, Ok(())));
        }
        // A result of 0 and more that is no address is that of a filter of the guest's.
        let result = if mapped < 0 { mapped } else { -i64::from(libc::EPERM) };
        let mapped = if mapped.cast_unsigned() == at { Ok(()) } else { Err(failed(&map, result)) };
        Ok((stopped, mapped))
    }

    /// Has a new thread, which has executed nothing yet, become a stub. The outer error leaves it in the middle of
    /// that.
    async fn equipped(
        &mut self,
        stub: Stopped,
        like: &ptrace::Regs,
        (new, lent): (&New<'_>, Option<u32>),
    ) -> Result<Result<Arc<Thread>, PlantError>, PlantError> {
        let tid = stub.tid();
        let (stub, made) = self.furnished(stub, like, (new, lent)).await?;
        let known = made.and_then(|thread| {
            let thread = Arc::new(thread.map_err(|e| short(tid, "a handle for a stub", e))?);
            let is_known = self.traps.announce(&thread);
            if is_known { Ok(thread) } else { Err(PlantError::Sought(tid)) }
        });
        let window = self.code.window();
        match known {
            Ok(thread) => {
                let ro_at = window.slot(new.slot);
                let addrs = StubAddrs {
                    code: window.code(),
                    request: ro_at + stub::request_offset(stub::INPUTS) as u64,
                    after: ro_at + control::AFTER as u64,
                    message: ro_at + control::MESSAGE as u64,
                    // The second lock; the filter is the first, and the only one before 6.10.
                    sealed: frame::range(window, new.slot),
                };
                stub.set_regs(&Native::enter_stub(&addrs, like)).map_err(|e| lost(tid, e))?;
                stub.detach(0).map_err(|e| lost(tid, e))?;
                Ok(Ok(thread))
            }
            Err(e) => inject::end(stub, like, self.code).await.map(|()| Err(e)),
        }
    }

    /// Has a new thread leave the guest's descriptor table, and map its memory; and takes a handle of it.
    async fn furnished(
        &mut self,
        mut stub: Stopped,
        like: &ptrace::Regs,
        (new, mut lent): (&New<'_>, Option<u32>),
    ) -> Result<(Stopped, Result<io::Result<Thread>, PlantError>), PlantError> {
        let mut give = vec![(stub_fd::SCRATCH, new.scratch)];
        give.extend(new.ro.map(|ro| (stub_fd::LENT, ro)));
        let (window, slot, tid) = (self.code.window(), new.slot, stub.tid());
        let mut memory = if new.ro.is_some() { Memory::New } else { Memory::There };
        loop {
            let calls = frame::calls(window, slot, memory);
            let list = self.code.list(slot, memory);
            let follow = (&*calls, &list, lent.take());
            let mut thread = Err(io::ErrorKind::Other.into());
            let handle = || {
                thread = Thread::by_number(tid)
                    .and_then(|mut thread| thread.learn_numbers().map(|()| thread));
                thread.is_ok()
            };
            let (held, made) = self.injector().follow(stub, like, follow, &give, handle).await?;
            stub = held;
            if thread.is_err() {
                return Ok((stub, Ok(thread)));
            }
            let is_in_the_way = memory == Memory::New && matches!(made, Err((_, EXISTS)));
            // Another process may share this memory, and have a stub there.
            let shares = |other: Tid| {
                process::same_memory(tid, other)
                    .unwrap_or_else(|e| e.raw_os_error() != Some(libc::ESRCH))
            };
            let is_leftover = || {
                frame::holds_leftovers_only(tid, window, slot)
                    && !self.traps.stubs_beside().into_iter().any(shares)
            };
            if is_in_the_way && is_leftover() {
                memory = Memory::Over;
            } else {
                let made = made.map_err(|(call, result)| failed(&call, result));
                return Ok((stub, made.map(|()| thread)));
            }
        }
    }
}

/// The result of a mapping where something is mapped already.
const EXISTS: i64 = -(libc::EEXIST as i64);
