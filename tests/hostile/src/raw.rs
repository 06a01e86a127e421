//! System calls as a hostile program makes them: by number, with whatever arguments.

use std::ffi::CString;
use std::fs;
use std::io;
use std::time::Duration;
use std::time::Instant;

use libc::c_int;
use libc::c_long;

pub(crate) const PAGE: u64 = 4096;

/// Makes a system call.
///
/// Addresses among the arguments are of memory that the caller keeps for it, or meant to fail.
pub(crate) fn call(nr: c_long, args: &[u64]) -> io::Result<u64> {
    let at = |place: usize| args.get(place).copied().unwrap_or(0);
    // SAFETY: the callers' affair, as said above. What it breaks is this test program's own.
    let ret = unsafe { libc::syscall(nr, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if ret == -1 { Err(io::Error::last_os_error()) } else { Ok(ret.cast_unsigned()) }
}

/// The same for calls that are given plain numbers and files only.
pub(crate) fn int(n: c_int) -> u64 {
    i64::from(n).cast_unsigned()
}

/// The address of a value as an argument.
pub(crate) fn addr<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>().expose_provenance() as u64
}

/// The same of a value that the call writes.
pub(crate) fn addr_mut<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).cast::<u8>().expose_provenance() as u64
}

/// Anonymous memory, readable and writable; at an address, if one is given.
pub(crate) fn memory(at: Option<u64>, len: u64) -> io::Result<u64> {
    let fixed = if at.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    mmap(at.unwrap_or(0), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
}

pub(crate) fn mmap(at: u64, len: u64, prot: c_int, flags: c_int, fd: c_int) -> io::Result<u64> {
    call(libc::SYS_mmap, &[at, len, int(prot), int(flags), int(fd), 0])
}

pub(crate) fn mprotect(at: u64, len: u64, prot: c_int) -> io::Result<()> {
    call(libc::SYS_mprotect, &[at, len, int(prot)]).map(drop)
}

/// Reads a word of this process's memory, whoever else writes it.
pub(crate) fn peek(at: u64) -> u64 {
    let at = std::ptr::with_exposed_provenance::<[u8; 8]>(at as usize);
    // SAFETY: the caller has found the address mapped and readable.
    u64::from_ne_bytes(unsafe { at.read_volatile() })
}

/// Writes a word of this process's memory, whoever else reads it.
pub(crate) fn poke(at: u64, word: u64) {
    let at = std::ptr::with_exposed_provenance_mut::<[u8; 8]>(at as usize);
    // SAFETY: nothing of Rust lives at the address: it is a mapping made for this; where it is not
    // writable, the process is meant to die of it.
    unsafe { at.write_volatile(word.to_ne_bytes()) }
}

/// Forks; the child runs `child` and exits with the code that it returns.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: the child is a copy; where this process has threads, it calls nothing that another
    // of them could have been in the middle of.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = child();
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        pid => Ok(pid),
    }
}

/// Ends this process at once.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: takes a number, and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for a child; gives its code, or 128 and the signal. None: it is no child.
pub(crate) fn wait(pid: i32) -> Option<i32> {
    waitpid(pid, 0)
}

/// The same of a child that has ended. None: it goes on.
pub(crate) fn ended(pid: i32) -> Option<i32> {
    waitpid(pid, libc::WNOHANG)
}

fn waitpid(pid: i32, flags: c_int) -> Option<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is an int that lives through the call.
        let got = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | flags) };
        if got == pid {
            return Some(if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                128 + libc::WTERMSIG(status)
            });
        }
        if got == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

/// Whether an error, also a negative one, is that no process number is free this moment: on a busy machine, processes
/// take long to end, and a supervisor has many threads.
pub(crate) fn is_short(errno: i32) -> bool {
    errno.abs() == libc::EAGAIN
}

pub(crate) fn kill(pid: i32, signal: c_int) {
    // SAFETY: both arguments are plain numbers.
    unsafe { libc::kill(pid, signal) };
}

pub(crate) fn gettid() -> i32 {
    // SAFETY: takes no argument.
    unsafe { libc::gettid() }
}

pub(crate) fn sleep(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Waits until something is so. Whoever watches this process notices when that never comes.
pub(crate) fn until(so: impl FnMut() -> bool) {
    within(Duration::MAX, so);
}

/// The same for a bounded time: says whether it came to be. No verdict may depend on the answer.
pub(crate) fn within(patience: Duration, mut so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if so() {
            return true;
        }
        if begun.elapsed() > patience {
            return false;
        }
        sleep(1);
    }
}

/// Ids of this process's threads.
pub(crate) fn threads() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut ids: Vec<i32> =
        entries.filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok())).collect();
    ids.sort_unstable();
    ids
}

/// Whether this process has a thread of this number.
pub(crate) fn has_thread(tid: i32) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{tid}")).exists()
}

/// Becomes a user without rights, for good.
pub(crate) fn become_user(uid: u32) -> io::Result<()> {
    let id = u64::from(uid);
    call(libc::SYS_setgroups, &[0, 0])?;
    call(libc::SYS_setresgid, &[id, id, id])?;
    call(libc::SYS_setresuid, &[id, id, id]).map(drop)
}

/// Makes one descriptor number mean the file of another.
pub(crate) fn dup2(from: c_int, to: c_int) -> io::Result<c_int> {
    // SAFETY: both arguments are plain numbers; what `to` meant is the caller's to know.
    let ret = unsafe { libc::dup2(from, to) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: a plain number, that nothing of Rust owns.
    unsafe { libc::close(fd) };
}

/// Starts a task with its own stack, by clone(2); it runs `body` with `argument`.
///
/// `cleared` is set to zero, and woken as a futex, when a thread has ended.
pub(crate) fn clone(
    body: extern "C" fn(*mut libc::c_void) -> c_int,
    argument: u64,
    flags: c_int,
    stack: &Stack,
    cleared: u64,
) -> io::Result<i32> {
    let cleared = std::ptr::with_exposed_provenance_mut::<libc::pid_t>(cleared as usize);
    let argument = std::ptr::with_exposed_provenance_mut::<libc::c_void>(argument as usize);
    let top = std::ptr::with_exposed_provenance_mut::<libc::c_void>(stack.top() as usize);
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the stack is a mapping that is never unmapped, and its top is aligned; the task runs
    // `body`, which touches atomics and makes system calls only.
    let pid = unsafe {
        libc::clone(body, top, flags, argument, std::ptr::null_mut::<libc::pid_t>(), none, cleared)
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

/// A stack for [`clone`], never freed.
pub(crate) struct Stack(u64);

impl Stack {
    const LEN: u64 = 128 << 10;

    pub(crate) fn new() -> io::Result<Self> {
        memory(None, Self::LEN).map(Self)
    }

    fn top(&self) -> u64 {
        self.0 + Self::LEN
    }
}

/// A filter's instruction: `struct sock_filter` without jumps.
pub(crate) fn line(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// Jumps over so many instructions where the word that was loaded is `k`, and over so many others where it is not.
pub(crate) fn test(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: 0x15, jt, jf, k }
}

/// Loads a word of `struct seccomp_data`, and ends with an action.
pub(crate) const LOAD: u16 = 0x20;
pub(crate) const RETURN: u16 = 0x06;
pub(crate) const ALLOW: u32 = 0x7fff_0000;

/// Puts this thread under a filter, or all threads, by `SECCOMP_FILTER_FLAG_TSYNC`.
pub(crate) fn confine(filter: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    call(libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0])?;
    let mode = u64::from(libc::SECCOMP_SET_MODE_FILTER);
    call(libc::SYS_seccomp, &[mode, flags, addr(&program)]).map(drop)
}

/// Forks a process that has this number, which must be free: `set_tid` of clone3(2).
pub(crate) fn fork_as(number: i32, child: impl FnOnce() -> i32) -> io::Result<i32> {
    #[repr(C)]
    #[derive(Default)]
    struct CloneArgs {
        head: [u64; 4],
        exit_signal: u64,
        stack: [u64; 2],
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }
    let numbers = [number];
    let args = CloneArgs {
        exit_signal: libc::SIGCHLD as u64,
        set_tid: addr(&numbers),
        set_tid_size: 1,
        ..CloneArgs::default()
    };
    let pid = call(libc::SYS_clone3, &[addr(&args), size_of::<CloneArgs>() as u64])?;
    if pid == 0 {
        exit(child());
    }
    Ok(pid as i32)
}

/// The name of an error number, as a number of its own where it has none here.
pub(crate) fn name(errno: i32) -> String {
    let known = match errno {
        0 => "ok",
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::ENOTTY => "ENOTTY",
        libc::ENOSPC => "ENOSPC",
        libc::ENOSYS => "ENOSYS",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENOTCONN => "ENOTCONN",
        libc::ETIMEDOUT => "ETIMEDOUT",
        other => return format!("errno{other}"),
    };
    known.to_owned()
}

/// Sends a descriptor over a socket.
pub(crate) fn send(socket: &std::os::unix::net::UnixStream, fd: c_int) -> io::Result<()> {
    let control = Control { len: 20, level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, fd, pad: 0 };
    message(socket, libc::SYS_sendmsg, &control)
}

/// Receives a descriptor over a socket.
pub(crate) fn receive(socket: &std::os::unix::net::UnixStream) -> io::Result<c_int> {
    let control = Control { len: 0, level: 0, kind: 0, fd: -1, pad: 0 };
    message(socket, libc::SYS_recvmsg, &control)?;
    let fd = peek(addr(&control.fd)) as i32;
    if fd < 0 { Err(io::Error::other("no descriptor came")) } else { Ok(fd) }
}

/// `struct cmsghdr` with one descriptor.
#[repr(C)]
struct Control {
    len: u64,
    level: c_int,
    kind: c_int,
    fd: c_int,
    pad: c_int,
}

fn message(
    socket: &std::os::unix::net::UnixStream,
    nr: c_long,
    control: &Control,
) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let byte = [0_u8; 8];
    let vector = [addr(&byte), 1];
    let header = [0, 0, addr(&vector), 1, addr(control), 24, 0];
    call(nr, &[int(socket.as_raw_fd()), addr(&header), 0]).map(drop)
}

/// A function in a page of the caller's: `ioctl(fd, RDMA_VERBS_IOCTL, request)`.
pub(crate) fn ioctl_at(page: u64) -> impl Fn(i32, u64) + Send {
    for (place, word) in (0..).zip(IOCTL) {
        poke(page + 8 * place, word);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: what was written to the page becomes code; no memory changes.
    unsafe {
        std::arch::asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", "dsb ish", "isb", in(reg) page);
    }
    move |fd: i32, request: u64| {
        let at = std::ptr::with_exposed_provenance::<()>(page as usize);
        // SAFETY: the code above is at this address, and follows the C calling convention; if the
        // page goes away, its caller is meant to wait for ever.
        let code = unsafe { std::mem::transmute::<*const (), extern "C" fn(u64, u64) -> i64>(at) };
        code(int(fd), request);
    }
}

/// The code of [`ioctl_at`]'s function: mov rdx, rsi; mov esi, imm32; mov eax, imm32; syscall; ret.
#[cfg(target_arch = "x86_64")]
pub(crate) const IOCTL: [u64; 2] =
    [0xc018_1b01_bef2_8948, 0xc305_0f00_0000_00b8 | (libc::SYS_ioctl as u64) << 8];
/// The last word with other instructions: `int 0x80` or a jump to itself in the place of the call.
#[cfg(target_arch = "x86_64")]
pub(crate) const CHANGED: [u64; 2] =
    [IOCTL[1] ^ (0x050f ^ 0x80cd) << 40, IOCTL[1] ^ (0x050f ^ 0xfeeb) << 40];

/// The code of [`ioctl_at`]'s function: mov x2, x1; mov x1, imm16; movk x1, imm16, lsl 16; mov x8, imm16; svc 0; ret.
#[cfg(target_arch = "aarch64")]
pub(crate) const IOCTL: [u64; 3] = [
    0xd283_6021_aa01_03e2,
    0xd280_0008_f2b8_0301 | (libc::SYS_ioctl as u64) << 37,
    0xd65f_03c0_d400_0001,
];
/// The last word with other instructions: `svc 1`, which is the same call, or a jump to itself in the place of the call.
#[cfg(target_arch = "aarch64")]
pub(crate) const CHANGED: [u64; 2] = [0xd65f_03c0_d400_0021, 0xd65f_03c0_1400_0000];

/// mount(2).
pub(crate) fn mount(
    source: &str,
    target: &str,
    kind: &str,
    flags: libc::c_ulong,
    data: &str,
) -> io::Result<()> {
    let [source, target, kind, data] =
        [source, target, kind, data].map(|word| CString::new(word).unwrap_or_default());
    let at = |word: &CString| addr(&word.as_bytes_with_nul()[0]);
    call(libc::SYS_mount, &[at(&source), at(&target), at(&kind), flags, at(&data)]).map(drop)
}
