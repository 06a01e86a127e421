//! Raw requests to a device.

use std::ffi::CString;
use std::io;
use std::sync::OnceLock;

use crate::raw::addr;
use crate::raw::addr_mut;
use crate::raw::call;
use crate::raw::int;
use crate::raw::poke;

pub(crate) const RDMA_VERBS_IOCTL: u64 = 0xc018_1b01;

/// Bytes of [`query`]'s request.
pub(crate) const QUERY_LEN: u64 = 56;

/// Opens a device for reading and writing, as libibverbs does.
pub(crate) fn open(path: &str) -> io::Result<i32> {
    let path = CString::new(path).map_err(io::Error::other)?;
    let flags = int(libc::O_RDWR | libc::O_CLOEXEC);
    let at = addr(&path.as_bytes_with_nul()[0]);
    let fd = call(libc::SYS_openat, &[int(libc::AT_FDCWD), at, flags])? as i32;
    if real().is_some_and(|real| real.as_bytes() == path.as_bytes()) {
        get_context(fd)?;
    }
    Ok(fd)
}

/// The path of a device that is no stand-in: it wants a ucontext before it answers.
static REAL: OnceLock<String> = OnceLock::new();

/// Says which device is a real one.
pub(crate) fn is_real(path: &str) {
    let _ = REAL.set(path.to_owned());
}

/// The device of which that was said.
pub(crate) fn real() -> Option<&'static str> {
    REAL.get().map(String::as_str)
}

/// `UVERBS_METHOD_GET_CONTEXT`, without any attribute. The same by write(2) fails in a sandbox on Linux 7.2,
/// whose ioctl(2) form of that command ends with EBADF (`UVERBS_METHOD_INVOKE_WRITE`).
fn get_context(fd: i32) -> io::Result<()> {
    const METHOD: u64 = 3;
    let mut words = [24 | METHOD << 32, 0, RXE];
    match send(fd, addr_mut(&mut words)) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A command by write(2): its number, its words, and the length of its response.
pub(crate) fn command(fd: i32, number: u32, words: &[u64], response: u64) -> io::Result<u64> {
    let len = 8 + 8 * words.len() as u64;
    let head = u64::from(number) | (len / 4) << 32 | (response / 4) << 48;
    let bytes: Vec<u64> = std::iter::once(head).chain(words.iter().copied()).collect();
    call(libc::SYS_write, &[int(fd), addr(&bytes[0]), len])
}

/// Lays DEVICE.QUERY_CONTEXT out in memory, its two outputs in other memory; for a real device,
/// which has no answer to that, DEVICE.QUERY_PORT.
pub(crate) fn lay_out(request: u64, outputs: u64) {
    put(request, words(outputs, real().map_or(0, |_| RXE)));
}

/// Lays out the same for the device of a descriptor.
pub(crate) fn lay_out_on(fd: i32, request: u64, outputs: u64) {
    put(request, words(outputs, driver_of(fd)));
}

fn put(request: u64, words: [u64; 7]) {
    for (place, word) in words.into_iter().enumerate() {
        poke(request + 8 * place as u64, word);
    }
}

fn words(outputs: u64, driver: u64) -> [u64; 7] {
    const MANDATORY: u64 = 1 << 32;
    let (method, port, response) = (2 << 32, 8 << 16 | MANDATORY, 1 | 48 << 16 | MANDATORY);
    if driver != 0 {
        return [QUERY_LEN | method | 2 << 48, 0, driver, port, 1, response, outputs];
    }
    let (method, first, second) = (4 << 32, 4 << 16 | MANDATORY, 1 | 8 << 16 | MANDATORY);
    [QUERY_LEN | method | 2 << 48, 0, driver, first, outputs, second, outputs + 8]
}

/// Makes the request at an address; the errno, or 0.
pub(crate) fn send(fd: i32, request: u64) -> i32 {
    errno(&call(libc::SYS_ioctl, &[int(fd), RDMA_VERBS_IOCTL, request]))
}

/// `RDMA_DRIVER_RXE`: the one real device that is attacked.
const RXE: u64 = 14;

/// The driver that a request on a descriptor must name.
pub(crate) fn driver_of(fd: i32) -> u64 {
    /// `IB_UVERBS_MAJOR`.
    const UVERBS: i32 = 231;
    match real() {
        Some(_) if device_number(fd).is_ok_and(|number| number / 1000 == UVERBS) => RXE,
        _ => 0,
    }
}

/// The number of the device that a descriptor shows: 1000 times the major one, and the minor one.
pub(crate) fn device_number(fd: i32) -> io::Result<i32> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let at = addr_mut(&mut stat);
    call(libc::SYS_fstat, &[int(fd), at])?;
    // SAFETY: zeros are a valid `stat`, and the kernel has filled it in.
    let device = unsafe { stat.assume_init() }.st_rdev;
    Ok((libc::major(device) * 1000 + libc::minor(device)) as i32)
}

/// The errno of a result, or 0; a result above 0 as it is, since a device of ours has none.
pub(crate) fn errno(result: &io::Result<u64>) -> i32 {
    match result {
        Ok(value) => -(*value as i32),
        Err(error) => error.raw_os_error().unwrap_or(-1),
    }
}

/// About the smallest request that has outputs; its errno.
pub(crate) fn query(fd: i32) -> i32 {
    let mut outputs = [0_u64; 8];
    let mut words = words(addr_mut(&mut outputs), driver_of(fd));
    send(fd, addr_mut(&mut words))
}
