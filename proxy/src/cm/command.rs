//! Commands to the connection manager, copied from the guest that wrote them.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use verbgate_abi::Errno;
use verbgate_abi::cm;
use verbgate_abi::cm::CmHeader;
use verbgate_abi::cm::CmSpec;
use verbgate_abi::cm::HDR_LEN;
use verbgate_abi::cm::Length;
use verbgate_sys::cm::Command;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::process::GuestFile;
use verbgate_sys::seccomp::Notification;

use crate::cm::account::CmAccount;
use crate::fetch;
use crate::observe::Verdict;

/// A command that a guest has written, and all that it takes.
#[derive(Debug)]
pub(crate) struct CmCommand {
    pub(super) trap: Notification,
    pub(super) file: OwnedFd,
    pub(super) copied: CmCopy,
    /// The value of an option.
    pub(super) value: Vec<u8>,
    /// The file that it names besides.
    pub(super) other: Option<GuestFile>,
    /// The network namespace that an id is made in, or a driver's TCP socket.
    pub(super) network: Option<File>,
    pub(super) count: usize,
    pub(super) started: Instant,
    /// The ids of the file, as the tenant is charged for them.
    pub(super) ids: Arc<Mutex<CmAccount>>,
    /// The ids of the other file.
    pub(super) from: Option<Arc<Mutex<CmAccount>>>,
}

/// Why a command has no response: the kernel's error, or a reason for which the kernel was not asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Denied {
    pub(super) errno: Errno,
    pub(super) reason: Option<&'static str>,
}

impl From<Errno> for Denied {
    fn from(errno: Errno) -> Self {
        Self { errno, reason: None }
    }
}

impl Denied {
    pub(super) fn because(reason: &'static str, errno: Errno) -> Self {
        Self { errno, reason: Some(reason) }
    }

    pub(super) fn verdict(self) -> Verdict {
        match self.reason {
            Some(reason) => Verdict::Refused(reason, self.errno),
            None => Verdict::Executed(-i64::from(self.errno.0)),
        }
    }
}

/// A command, copied.
#[derive(Debug)]
pub(super) struct CmCopy {
    pub(super) spec: &'static CmSpec,
    pub(super) header: CmHeader,
    /// The structure; shorter than the kernel's where it takes a part.
    pub(super) body: Vec<u8>,
}

impl CmCopy {
    /// One read of the guest's memory, and what it says.
    pub(super) fn read(memory: &impl GuestMemory, addr: u64, count: usize) -> Result<Self, Errno> {
        if count < HDR_LEN {
            return Err(Errno::EINVAL);
        }
        let mut bytes = vec![0; HDR_LEN + cm::MAX_LEN];
        let all = Range { addr, len: bytes.len() };
        let have = memory.read(&mem::pages(all), &mut bytes).map_err(fetch::fault)?;
        bytes.truncate(have);
        let header = CmHeader::read(&bytes).ok_or(Errno::EFAULT)?;
        if usize::from(header.input) + HDR_LEN > count {
            return Err(Errno::EINVAL);
        }
        let spec = cm::command(header.cmd)?;
        let len = if spec.partial { spec.len.min(header.input.into()) } else { spec.len };
        // The kernel reads all of it, behind `count` as well.
        let body = bytes.get(HDR_LEN..HDR_LEN + len).ok_or(Errno::EFAULT)?.to_vec();
        Ok(Self { spec, header, body })
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        let word = self.body.get(at..).and_then(|rest| rest.first_chunk::<4>());
        word.map_or(0, |word| u32::from_ne_bytes(*word))
    }

    /// Puts another number in the place of one.
    pub(super) fn set_u32(&mut self, at: usize, number: u32) {
        if let Some(word) = self.body.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
            *word = number.to_ne_bytes();
        }
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        let word = self.body.get(at..).and_then(|rest| rest.first_chunk::<8>());
        word.map_or(0, |word| u64::from_ne_bytes(*word))
    }

    /// Where the guest wants the response.
    pub(super) fn response_at(&self) -> Option<u64> {
        self.spec.response.map(|(at, _)| self.u64(at))
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.spec.id.map(|at| self.u32(at))
    }

    /// The command as the supervisor gives it.
    pub(super) fn command<'a>(&self, value: Option<(usize, &'a [u8])>) -> Command<'a> {
        // No more than what follows, so that header and count agree.
        let input = u16::try_from(self.body.len()).unwrap_or(u16::MAX).min(self.header.input);
        let mut bytes = CmHeader { input, ..self.header }.bytes().to_vec();
        bytes.extend(&self.body);
        Command {
            bytes,
            response: self.spec.response.map(|(at, _)| HDR_LEN + at),
            out: self.header.output,
            value: value.map(|(at, value)| (HDR_LEN + at, value)),
        }
    }

    /// How many bytes of the response the kernel has written.
    pub(super) fn written(&self, response: &[u8]) -> usize {
        let out = usize::from(self.header.output);
        match self.spec.response {
            None => 0,
            Some((_, Length::Fixed(len))) => len.min(out),
            Some((_, Length::Query(at))) => cm::query_len(self.u32(at), response, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn memory(bytes: Vec<u8>) -> mem::FakeMemory {
        mem::FakeMemory { base: 4096, bytes: RefCell::new(bytes) }
    }

    fn written(cmd: u32, input: u16, output: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = CmHeader { cmd, input, output }.bytes().to_vec();
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_command_is_copied_whole_whatever_its_header_says() {
        let mut bytes = written(cm::DESTROY_ID, 0, 4, &[9; 16]);
        bytes.resize(4096, 1);
        let copied = CmCopy::read(&memory(bytes), 4096, 8).unwrap();
        assert_eq!(copied.body, [9; 16]);
        let command = copied.command(None);
        assert_eq!(command.bytes.len(), 24);
        assert_eq!(CmHeader::read(&command.bytes).unwrap().input, 0);
        assert_eq!(command.response, Some(8));
    }

    #[test]
    fn a_part_is_copied_where_the_kernel_takes_a_part() {
        let mut bytes = written(6, 280, 0, &[7; 280]);
        bytes.resize(8192, 1);
        let copied = CmCopy::read(&memory(bytes), 4096, 288).unwrap();
        assert_eq!(copied.body, [7; 280]);
    }

    #[test]
    fn bad_commands_get_the_kernels_errors() {
        let read =
            |bytes: Vec<u8>, count| CmCopy::read(&memory(bytes), 4096, count).map(|c| c.spec.name);
        assert_eq!(read(vec![0; 400], 7), Err(Errno::EINVAL));
        assert_eq!(read(written(0, 24, 4, &[0; 400]), 31), Err(Errno::EINVAL));
        assert_eq!(read(written(13, 0, 4, &[0; 400]), 8), Err(Errno::ENOSYS));
        assert_eq!(read(written(99, 0, 4, &[0; 400]), 8), Err(Errno::EINVAL));
        assert_eq!(read(written(0, 24, 4, &[0; 400]), 32), Ok("CM_CREATE_ID"));
        let nothing = memory(Vec::new());
        assert_eq!(CmCopy::read(&nothing, 64, 8).map(|_| ()), Err(Errno::EFAULT));
    }

    #[test]
    fn a_response_is_as_long_as_the_kernel_makes_it() {
        let copied = |cmd, output, body: &[u8]| {
            let mut bytes = written(cmd, 16, output, body);
            bytes.resize(4096, 0);
            CmCopy::read(&memory(bytes), 4096, 24).unwrap()
        };
        assert_eq!(copied(0, 4, &[0; 16]).written(&[]), 4);
        assert_eq!(copied(12, 300, &[0; 16]).written(&[]), 300);
        assert_eq!(copied(4, 300, &[0; 16]).written(&[]), 0);
        let mut query = [0; 16];
        query[12] = 1;
        assert_eq!(copied(cm::QUERY, 200, &query).written(&1_u32.to_ne_bytes()), 80);
    }
}
