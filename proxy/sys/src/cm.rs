//! Commands that the supervisor gives to an rdma_cm file for a guest.
//!
//! The kernel takes such commands only with the credentials that opened the file, and these are the
//! supervisor's. So the commands name the supervisor's memory. A guest that writes to such a file
//! by itself gets EACCES.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;

use crate::check;

/// More than any structure that a command has, and any response of a fixed length. The kernel
/// reads and writes whole structures, whatever lengths a header names.
const MOST: usize = 512;

/// A command to be given.
#[derive(Debug)]
pub struct Command<'a> {
    /// Header and structure.
    pub bytes: Vec<u8>,
    /// Where the address of the response belongs, if there is one.
    pub response: Option<usize>,
    /// How long the header says that the response may be.
    pub out: u16,
    /// Where the address of an option's value belongs, and the value.
    pub value: Option<(usize, &'a [u8])>,
}

/// Gives a command, and returns the memory in which its response is, longer than that.
///
/// # Errors
/// The command's own; `EINVAL` for one that is too long.
pub fn give(file: BorrowedFd<'_>, command: Command<'_>) -> io::Result<Vec<u8>> {
    let Command { mut bytes, response: response_at, out, value } = command;
    let count = bytes.len();
    if count > MOST {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // What is behind the command's end is read, too, and must not be anything of ours.
    bytes.resize(MOST, 0);
    let mut response = vec![0; MOST.max(out.into())];
    let mut put = |at: usize, address: u64| {
        for (to, from) in bytes.iter_mut().skip(at).zip(address.to_ne_bytes()) {
            *to = from;
        }
    };
    if let Some(at) = response_at {
        put(at, response.as_mut_ptr() as u64);
    }
    if let Some((at, value)) = value {
        put(at, value.as_ptr() as u64);
    }
    // SAFETY: the kernel reads no more than MOST bytes from `bytes`. The addresses in it, whose
    // places the caller knows, are those of `response`, of which the kernel writes no more than
    // `out` or a structure shorter than MOST, and of `value`, of which it reads what the command
    // says; all live through the call.
    let ret = unsafe { libc::write(file.as_raw_fd(), bytes.as_ptr().cast(), count) };
    check(ret as libc::c_long)?;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn what_the_kernel_reads_is_the_command_with_our_addresses() {
        let (read, write) = io::pipe().unwrap();
        let value = [7_u8; 3];
        let bytes = vec![1; 8 + 24];
        let command = Command { bytes, response: Some(8), out: 600, value: Some((24, &value)) };
        let response = give(OwnedFd::from(write).as_fd(), command).unwrap();
        assert_eq!(response.len(), 600);
        let mut got = [0; 64];
        let n = File::from(OwnedFd::from(read)).read(&mut got).unwrap();
        assert_eq!(n, 32);
        assert_eq!(got[8..16], (response.as_ptr() as u64).to_ne_bytes());
        assert_eq!(got[24..32], (value.as_ptr() as u64).to_ne_bytes());
        assert_eq!(got[16..24], [1; 8]);
    }

    #[test]
    fn a_command_that_is_too_long_is_refused() {
        let null = File::options().write(true).open("/dev/null").unwrap();
        let command = Command { bytes: vec![0; 513], response: None, out: 0, value: None };
        assert_eq!(give(null.as_fd(), command).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
