//! userfaultfd(2): page faults that wait until they are told to go on.

use std::io;

use crate::kernel::addr_mut;
use crate::kernel::call;

const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const MISSING: u64 = 1;

/// Has the faults of a range wait.
pub(crate) fn take_faults(uffd: u64, start: u64, len: u64) -> io::Result<()> {
    let mut api = [0xaa_u64, 0, 0];
    call(libc::SYS_ioctl, &[uffd, UFFDIO_API, addr_mut(&mut api)])?;
    let mut range = [start, len, MISSING, 0];
    call(libc::SYS_ioctl, &[uffd, UFFDIO_REGISTER, addr_mut(&mut range)]).map(drop)
}

/// Lets the faults of a range go on, with zeros.
pub(crate) fn fill(uffd: u64, start: u64, len: u64) -> io::Result<()> {
    let mut range = [start, len, 0, 0];
    call(libc::SYS_ioctl, &[uffd, UFFDIO_ZEROPAGE, addr_mut(&mut range)]).map(drop)
}
