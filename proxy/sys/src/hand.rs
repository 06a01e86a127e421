//! The making of a guest's descriptor that stands for a file by path alone (`O_PATH`).
//!
//! The kernel gives no such descriptor to a thread that waits in a trap: SECCOMP_IOCTL_NOTIF_ADDFD
//! fails with EBADF. So the waiting thread makes the descriptor itself, stopped in the same way as
//! for a planting ([`plant`](crate::plant)). The thread opens the node in the token's directory,
//! which the supervisor lends to the thread, by the name that stands in the thread's own memory.
//! Whatever the guest does to the name or to the directory meanwhile leads only to files that the
//! guest could open by itself.

use std::os::fd::AsFd;

use crate::GuestFd;
use crate::arch::Arch;
use crate::arch::Call;
use crate::arch::Native;
use crate::plant::After;
use crate::plant::PlantError;
use crate::plant::Planter;
use crate::plant::Worked;
use crate::plant::failed;
use crate::process::Process;
use crate::ptrace::Regs;
use crate::ptrace::Stopped;
use crate::seccomp::Notification;
use crate::token::Token;
use crate::window::FdWindow;

/// What an open is answered with.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The token.
    pub token: &'a Token,
    /// Where the token's name stands in the guest's memory.
    pub name: u64,
    /// A free number: the descriptor's if it is watched; else the lowest free one is.
    pub at: u32,
    /// The descriptor is closed by execve(2).
    pub cloexec: bool,
    /// The numbers that are watched.
    pub watched: FdWindow,
}

fn number(flags: i32) -> u64 {
    u64::from(flags.cast_unsigned())
}

impl Planter<'_> {
    /// Gives the thread whose open `trap` is the token's descriptor, which ends the call.
    ///
    /// # Errors
    /// See [`PlantError`]; also for what became of the call.
    pub async fn give_token(
        &mut self,
        process: &Process,
        trap: &Notification,
        answer: &Answer<'_>,
    ) -> Result<GuestFd, PlantError> {
        // The kernel chooses the number. At a number that is taken by now, the guest would close the file there in the
        // course of this, which can wait for a file system, under the listener's lock.
        let dir = Some(answer.token.dir.as_fd());
        let work = async |planter: &mut Self, held, before: &Regs, lent: Option<u32>| {
            planter.opened(held, before, (answer, lent.unwrap_or(u32::MAX))).await
        };
        self.attached((process, trap), dir, |_| Ok(()), work).await
    }

    /// Has the thread whose call `trap` is duplicate a watched descriptor to the first free number
    /// from `least` on, which ends the call.
    ///
    /// # Errors
    /// See [`PlantError`].
    pub async fn duplicate(
        &mut self,
        process: &Process,
        trap: &Notification,
        (fd, least, cloexec): (GuestFd, u32, bool),
    ) -> Result<GuestFd, PlantError> {
        let what = number(if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD });
        let args = [u64::from(fd.0.cast_unsigned()), what, least.into(), 0, 0, 0];
        let call = Call { name: "fcntl", nr: Native::NUMBERS.fcntl, args };
        let work = async |planter: &mut Self, held, before: &Regs, _| {
            let (held, made) = planter.result(held, before, &call).await?;
            Ok((held, made.map(returned)))
        };
        self.attached((process, trap), None, |_| Ok(()), work).await
    }

    async fn opened(
        &mut self,
        held: Stopped,
        before: &Regs,
        (answer, lent): (&Answer<'_>, u32),
    ) -> Worked<GuestFd> {
        let n = &Native::NUMBERS;
        let Answer { name, at, cloexec, watched, .. } = *answer;
        let cloexec = if cloexec { number(libc::O_CLOEXEC) } else { 0 };
        let flags = cloexec | number(libc::O_PATH);
        let close = |fd: u32| Call { name: "close", nr: n.close, args: [fd.into(), 0, 0, 0, 0, 0] };
        let args = [lent.into(), name, flags, 0, 0, 0];
        let open = Call { name: "openat", nr: n.openat, args };
        let (held, opened) = self.result(held, before, &open).await?;
        let (held, _) = self.result(held, before, &close(lent)).await?;
        let opened = match opened {
            Ok(opened) => opened,
            Err(e) => return Ok((held, Err(e))),
        };
        if !watched.contains(at.cast_signed()) {
            return Ok((held, Ok(returned(opened))));
        }
        let args = [opened.into(), at.into(), cloexec, 0, 0, 0];
        let dup3 = Call { name: "dup3", nr: n.dup3, args };
        let (held, made) = self.result(held, before, &dup3).await?;
        let (held, _) = self.result(held, before, &close(opened)).await?;
        Ok((held, made.map(returned)))
    }

    /// Has a stopped thread make a call that returns a descriptor, or 0.
    async fn result(
        &mut self,
        held: Stopped,
        before: &Regs,
        call: &Call,
    ) -> Result<(Stopped, Result<u32, PlantError>), PlantError> {
        let (held, result) = self.injector().inject(held, before, call).await?;
        let made = u32::try_from(result).map_err(|_| failed(call, result));
        Ok((held, made))
    }
}

fn returned(fd: u32) -> (GuestFd, After) {
    (GuestFd(fd.cast_signed()), After::Returns(fd.into()))
}
