//! Attacks on a stub while it is made, and on what a finished stub has.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use crate::board::Board;
use crate::few::release;
use crate::guest::Guest;
use crate::guest::go_on;
use crate::guest::minion;
use crate::raw;
use crate::raw::ALLOW;
use crate::raw::LOAD;
use crate::raw::RETURN;
use crate::raw::addr;
use crate::raw::addr_mut;
use crate::raw::call;
use crate::raw::gettid;
use crate::raw::int;
use crate::raw::line;
use crate::raw::name;
use crate::raw::test;
use crate::request;
use crate::stubs;

/// The thread, other than the first one, that ran the guest's code behind the instruction; 0: none.
static RAN_IN: AtomicI32 = AtomicI32::new(0);
/// The first thread.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// The answer of a filter of the guest's where an injected call would be made.
const ANSWER: i64 = -777;

// `hostile_call(number, a, b, c)`: a system call, behind whose instruction there is code of the guest's: a thread that
// finds [`ANSWER`] there and is not the first one tells so, and stays.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl hostile_call",
    "hostile_call:",
    "mov eax, edi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "syscall",
    ".globl hostile_call_behind",
    "hostile_call_behind:",
    "cmp rax, {answer}",
    "jne 2f",
    "mov eax, {gettid}",
    "syscall",
    "cmp eax, dword ptr [rip + {first}]",
    "mov rax, {answer}",
    "je 2f",
    "mov dword ptr [rip + {ran_in}], 1",
    "3:",
    "pause",
    "jmp 3b",
    "2:",
    "ret",
    answer = const ANSWER,
    gettid = const libc::SYS_gettid,
    first = sym FIRST,
    ran_in = sym RAN_IN,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl hostile_call",
    "hostile_call:",
    "mov w8, w0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x2, x3",
    "mov x3, xzr",
    "mov x4, xzr",
    "mov x5, xzr",
    "svc #0",
    ".globl hostile_call_behind",
    "hostile_call_behind:",
    "cmn x0, #{negative}",
    "b.ne 2f",
    "mov w8, #{gettid}",
    "svc #0",
    "adrp x9, {first}",
    "ldr w9, [x9, :lo12:{first}]",
    "cmp w0, w9",
    "mov x0, #-{negative}",
    "b.eq 2f",
    "adrp x9, {ran_in}",
    "add x9, x9, :lo12:{ran_in}",
    "mov w10, #1",
    "str w10, [x9]",
    "3:",
    "yield",
    "b 3b",
    "2:",
    "ret",
    negative = const -ANSWER,
    gettid = const libc::SYS_gettid,
    first = sym FIRST,
    ran_in = sym RAN_IN,
);

unsafe extern "C" {
    fn hostile_call(number: u32, a: u64, b: u64, c: u64) -> i64;
    fn hostile_call_behind();
}

fn hostile(number: libc::c_long, args: [u64; 3]) -> i64 {
    let [a, b, c] = args;
    // SAFETY: the code above keeps to the C calling convention, and the call's memory lives through it.
    unsafe { hostile_call(number as u32, a, b, c) }
}

/// A filter that answers one call with an errno; of calls of the instruction above alone, or of all.
pub(super) fn answered(number: libc::c_long, errno: i64, there: bool) -> io::Result<()> {
    const ERRNO: u32 = 0x0005_0000;
    let ip = hostile_call_behind as *const () as u64;
    let is_there =
        [line(LOAD, 8), test(ip as u32, 0, 3), line(LOAD, 12), test((ip >> 32) as u32, 0, 1)];
    let is_there = if there { &is_there[..] } else { &[] };
    let head = [line(LOAD, 0), test(number as u32, 0, is_there.len() as u8 + 1)];
    let ends = [line(RETURN, ERRNO | (-errno) as u32), line(RETURN, ALLOW)];
    raw::confine(&[&head, is_there, &ends].concat(), 0)
}

/// Filters of the guest's answer calls by which a stub is made: a new thread must run none of the guest's code, and
/// whoever has no stub has no RDMA.
pub(super) fn filters(guest: &Guest) -> io::Result<()> {
    // Outside of a sandbox, a thread whose call a filter answers runs the code behind.
    let native = minion(|| {
        FIRST.store(gettid(), Ordering::SeqCst);
        answered(libc::SYS_getppid, ANSWER, true)?;
        thread::spawn(|| hostile(libc::SYS_getppid, [0; 3]));
        raw::until(|| RAN_IN.load(Ordering::SeqCst) != 0);
        Ok(())
    })?;
    match raw::wait(native) {
        Some(0) => println!("natively: a thread whose call a filter answers: runs the code behind"),
        end => println!("BROKEN: natively, code behind a call that a filter answers: {end:?}"),
    }
    // A real device has its stub before it answers requests.
    let device = guest.other();
    for number in [
        libc::SYS_clone,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_madvise,
        libc::SYS_mprotect,
        libc::SYS_close,
        libc::SYS_close_range,
        libc::SYS_mseal,
        libc::SYS_ioctl,
    ] {
        for (errno, there) in [(ANSWER, true), (ANSWER, false), (-1, false), (0, false)] {
            let one = minion(|| {
                let fd = request::open(device)?;
                let mut outputs = [0_u64; 8];
                let words = [0_u64; 8];
                request::lay_out_on(fd, addr(&words), addr_mut(&mut outputs));
                FIRST.store(gettid(), Ordering::SeqCst);
                let there = there && number != libc::SYS_ioctl;
                answered(number, errno, there)?;
                // The filter does what it is for.
                if there && hostile(number, [u64::MAX, 0, 0]) != ANSWER {
                    println!("BROKEN: a filter does not answer call {number}");
                }
                let ask = || {
                    let verbs = [int(fd), request::RDMA_VERBS_IOCTL, addr(&words)];
                    hostile(libc::SYS_ioctl, verbs)
                };
                let answers = [ask(), ask()];
                if RAN_IN.load(Ordering::SeqCst) != 0 {
                    println!(
                        "BROKEN: code of the guest's ran in a thread that was to become a stub"
                    );
                }
                let good = -i64::from(guest.answer_of(device));
                if there && answers != [good; 2] && number != libc::SYS_clone {
                    println!("call {number} answered {errno}: {answers:?}");
                }
                Ok(())
            })?;
            // Ended by the kernel, where its stub could not be made: its own loss.
            raw::wait(one);
        }
    }
    Ok(())
}

/// A call by the numbers of IA32.
#[cfg(target_arch = "x86_64")]
pub(super) fn int80(number: u32, [a, b, c]: [u64; 3]) -> i64 {
    let result: i64;
    // SAFETY: a system call by the 32-bit entry; rbx, which the compiler keeps for itself, is put back, and registers
    // that older kernels do not preserve are given up. What the calls name is plain numbers.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {a}",
            "int 0x80",
            "xchg rbx, {a}",
            a = inout(reg) a => _,
            inlateout("rax") u64::from(number) => result,
            in("rcx") b,
            in("rdx") c,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
        );
    }
    result as i32 as i64
}

/// An AArch64 thread has no instruction for calls of AArch32: see [`aarch32`].
#[cfg(target_arch = "aarch64")]
pub(super) fn int80(_: u32, _: [u64; 3]) -> i64 {
    -i64::from(libc::ENOSYS)
}

/// What an AArch32 program exits with that opens a thread's pidfd; none if its calls fail, and it comes to an
/// instruction that is none.
fn aarch32(dir: &str, tid: i32) -> io::Result<Option<i32>> {
    const AT: u32 = 0x10000;
    #[rustfmt::skip]
    let words = [
        // struct elf32_hdr, struct elf32_phdr.
        0x464c_457f, 0x0001_0101, 0, 0, 0x0028_0002, 1, AT + 84, 52, 0, 0x0500_0000, 0x0020_0034, 1, 0,
        1, 0, AT, AT, 116, 116, 5, 0x1000,
        // ldr r0, tid; mov r1, O_EXCL; mov r7, pidfd_open; svc 0; mov r7, exit; svc 0; udf 0; tid
        0xe59f_0014, 0xe3a0_1080, 0xe300_71b2, 0xef00_0000, 0xe3a0_7001, 0xef00_0000, 0xe7f0_00f0, tid as u32,
    ];
    let path = format!("{dir}/open/aarch32-{}", std::process::id());
    fs::write(&path, words.map(u32::to_le_bytes).as_flattened())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(Command::new(&path).status()?.code())
}

const IA32: &str = "pidfd_open of IA32";
const X32: &str = "pidfd_open of x32";

/// A pidfd of a thread, by each way that there is, and the kernel that the way comes with.
fn pidfds(tid: i32) -> [(&'static str, (u32, u32), Option<u64>); 4] {
    const PIDFD_OPEN: u32 = 434;
    let [stub, thread] = [tid as u64, int(libc::O_EXCL)];
    let natively = call(libc::SYS_pidfd_open, &[stub, thread]).ok();
    let by_int80 = u64::try_from(int80(PIDFD_OPEN, [stub, thread, 0])).ok();
    [
        ("pidfd_open of a thread", (6, 9), natively),
        (IA32, (6, 9), by_int80),
        (X32, (6, 9), call(1 << 30 | libc::SYS_pidfd_open, &[stub, thread]).ok()),
        ("a file handle", (6, 14), by_handle(tid)),
    ]
}

/// An address with a tag in the byte that arm64 ignores.
const TAG: u64 = 0x5a << 56;

/// Shows outside of every sandbox that each of the [`ways`] works, on a thread with a descriptor table of its own; or why
/// this kernel has no such way.
pub(super) fn natively(_: &Board, dir: &str) -> io::Result<()> {
    // The world is to have no more threads.
    let child = raw::fork(|| i32::from(!all_work(dir).is_ok_and(|all| all)))?;
    match raw::wait(child) {
        Some(0) => Ok(()),
        end => Err(io::Error::other(format!("BROKEN: natively, a way does not work: {end:?}"))),
    }
}

fn all_work(dir: &str) -> io::Result<bool> {
    stay_on_a_processor()?;
    let (say, hear) = mpsc::channel();
    thread::spawn(move || {
        call(libc::SYS_unshare, &[libc::CLONE_FILES as u64])?;
        let null = fs::File::open("/dev/null")?;
        let _ = say.send((gettid(), null.as_raw_fd()));
        raw::until(|| false);
        io::Result::Ok(())
    });
    let (tid, at) = hear.recv().map_err(io::Error::other)?;
    let is_taken = |pidfd: u64| {
        let file = call(libc::SYS_pidfd_getfd, &[pidfd, int(at), 0]);
        file.and_then(|file| request::device_number(file as i32)).is_ok_and(|null| null == 1003)
    };
    let is_arm64 = cfg!(target_arch = "aarch64");
    let page = raw::memory(None, raw::PAGE)?;
    let node = format!("/proc/self/task/{tid}/fd/{at}");
    let mode = fs::metadata(&node)?.permissions();
    let foreign = aarch32(dir, tid);
    let has_aarch32 = is_arm64 && foreign.is_ok();
    let by_aarch32 = matches!(foreign, Ok(Some(0..128)));
    let by_tag = call(libc::SYS_munmap, &[page | TAG, raw::PAGE]).is_ok();
    let mut ways = vec![
        ("getpid of IA32", (0, 0), !is_arm64, int80(20, [0; 3]) > 0),
        ("pidfd_open of AArch32", (6, 9), has_aarch32, by_aarch32),
        ("the mode of its node, by root", (0, 0), true, fs::set_permissions(&node, mode).is_ok()),
        ("a tagged address", (0, 0), is_arm64, by_tag),
        // No way, but a lock that the stub's code and a filter's answer are about.
        ("mseal", (6, 10), true, call(libc::SYS_mseal, &[0, 0, 0]).is_ok()),
    ];
    let has = |way| match way {
        IA32 => !is_arm64,
        X32 => call(1 << 30 | libc::SYS_getpid, &[]).is_ok(),
        _ => true,
    };
    let opened = pidfds(tid).into_iter();
    ways.extend(
        opened.map(|(way, since, pidfd)| (way, since, has(way), pidfd.is_some_and(is_taken))),
    );
    let mut all = true;
    for (way, since, has, works) in ways {
        let (major, minor) = since;
        let why = match (works, has, release() >= since) {
            (true, ..) => "works".to_owned(),
            (_, false, _) => "this kernel or processor has none".to_owned(),
            (.., false) => format!("comes with Linux {major}.{minor}"),
            _ => {
                all = false;
                "DOES NOT WORK".to_owned()
            }
        };
        println!("natively: {way}: {why}");
    }
    Ok(all)
}

/// The word in which a stub waits that has nothing to do is woken by the guest all the time, and then the stub waits for
/// another word.
pub(super) fn parked(guest: &Guest) -> io::Result<()> {
    let (wake, requeue) = (libc::FUTEX_WAKE as u64, libc::FUTEX_REQUEUE as u64);
    let fd = guest.planted(guest.device())?;
    let word = stubs::find(&[gettid()])?.word();
    let other = raw::memory(None, raw::PAGE)?;
    let (woken, over) = (AtomicI32::new(0), AtomicI32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while over.load(Ordering::Relaxed) == 0 {
                let count = call(libc::SYS_futex, &[word, wake, 1]).unwrap_or(0);
                woken.fetch_add(count as i32, Ordering::Relaxed);
            }
        });
        for _ in 0..40 {
            let answer = request::query(fd);
            if answer != guest.answer_of(guest.device()) {
                println!("BROKEN: beside wakes of its stub the guest is answered {}", name(answer));
            }
            // The stub parks after 20 ms.
            raw::sleep(60);
        }
        over.store(1, Ordering::Relaxed);
    });
    println!("the stub was woken {} times", woken.load(Ordering::Relaxed));
    if woken.load(Ordering::Relaxed) == 0 {
        println!("BROKEN: a stub that has nothing to do does not wait in its word");
    }
    let moved = (0..1000).any(|_| {
        raw::sleep(5);
        call(libc::SYS_futex, &[word, requeue, 0, 1, other]).is_ok_and(|moved| moved > 0)
    });
    println!("the stub waits for another word: {moved}");
    // The guest's own requests wait, and nobody else's.
    thread::spawn(move || request::query(fd));
    guest.in_effect();
    go_on()
}

/// Ways to what a finished stub has: its thread's pidfd, by native calls, by those of IA32 and AArch32 and by file
/// handles; its node by `/proc`; its memory by tagged addresses.
pub(super) fn ways(guest: &Guest) -> io::Result<()> {
    stay_on_a_processor()?;
    let fd = guest.planted(guest.device())?;
    let seen = stubs::find(&[gettid()])?;
    let stub = seen.tid as u64;
    let is_compat = guest.settings.get("compat") == "true";
    if is_compat {
        const PTRACE_ATTACH: u64 = 16;
        const SHMAT_REMAP: [u64; 3] = [21, 0, 0o40000];
        let (mm, own) = (libc::PR_SET_MM as u64, u64::from(std::process::id()));
        // prctl, pidfd_getfd, ptrace, setuid32, socketcall, ipc.
        for (number, args, errno) in [
            (172, [mm, 1, 0], libc::EPERM),
            (438, [0; 3], libc::EPERM),
            (26, [PTRACE_ATTACH, own, 0], libc::EPERM),
            (213, [0; 3], libc::EPERM),
            (102, [1, 0, 0], libc::ENOSYS),
            (117, SHMAT_REMAP, libc::EINVAL),
        ] {
            let result = int80(number, args);
            if cfg!(target_arch = "x86_64") && result != -i64::from(errno) {
                println!("BROKEN: call {number} of IA32 says {result}");
            }
        }
    }
    // getpid, brk, prctl.
    for number in [20, 45, 172] {
        let is_made = int80(number, [0; 3]) != -i64::from(libc::ENOSYS);
        if is_made && !is_compat {
            println!("BROKEN: call {number} of IA32 is made");
        }
    }
    if cfg!(target_arch = "aarch64") {
        let end = aarch32(&guest.dir, seen.tid);
        println!("a program of AArch32 ended with {end:?}");
        if end.is_ok_and(|end| end.is_some() != is_compat || end.is_some_and(|fd| fd < 128)) {
            println!("BROKEN: calls of AArch32 are made");
        }
    }
    for (way, _, pidfd) in pidfds(seen.tid) {
        let Some(pidfd) = pidfd else { continue };
        println!("a descriptor of the stub's thread by {way}");
        for at in 0..12 {
            if let Ok(file) = call(libc::SYS_pidfd_getfd, &[pidfd, at, 0]) {
                let number = request::device_number(file as i32);
                println!("BROKEN: file {at} of the stub by {way}: {number:?}");
            }
        }
    }
    // Programs take files of their own processes.
    let own = call(libc::SYS_pidfd_open, &[u64::from(std::process::id()), 0])?;
    let null = fs::File::open("/dev/null")?;
    match call(libc::SYS_pidfd_getfd, &[own, int(null.as_raw_fd()), 0]) {
        Ok(copy) => raw::close(copy as i32),
        Err(error) => println!("BROKEN: a process cannot take its own file by a pidfd: {error}"),
    }
    let error = |result: io::Result<u64>| result.err().and_then(|e| e.raw_os_error());
    let flags = error(call(libc::SYS_pidfd_getfd, &[own, int(null.as_raw_fd()), 1]));
    let closed = error(call(libc::SYS_pidfd_getfd, &[own, 900, 0]));
    let other = error(call(libc::SYS_pidfd_getfd, &[int(null.as_raw_fd()), 0, 0]));
    let natively = (Some(libc::EINVAL), Some(libc::EBADF), Some(libc::EBADF));
    if (flags, closed, other) != natively {
        println!("BROKEN: pidfd_getfd says {:?}", (flags, closed, other));
    }
    let path = format!("/proc/self/task/{stub}/fd/0");
    // At work, and parked.
    for millis in [0, 300] {
        raw::sleep(millis);
        let Ok(node) = fs::metadata(&path) else { continue };
        match fs::set_permissions(&path, node.permissions()) {
            Ok(()) if node.file_type().is_char_device() => {
                println!("BROKEN: a node of the host's is reached by {path}");
            }
            Ok(()) => println!("the stub has an empty file"),
            Err(error) => println!("the mode of the stub's node: {error}"),
        }
    }
    // The kernel takes the top byte for a tag on arm64.
    for mapping in stubs::mappings("memfd:verbgate-") {
        for tag in [0, TAG] {
            let (at, len) = (mapping.start | tag, mapping.end - mapping.start);
            if call(libc::SYS_munmap, &[at, len]).is_ok() {
                println!("BROKEN: a stub's memory was taken away, tag {tag:#x}");
            }
        }
    }
    let answer = request::query(fd);
    if answer != guest.answer_of(guest.device()) {
        println!("BROKEN: afterwards the device answers {}", name(answer));
    }
    Ok(())
}

/// Each processor gives its own numbers to new inodes of pidfs.
fn stay_on_a_processor() -> io::Result<()> {
    let (mut at, mut mask) = (0_u32, [0_u64; 16]);
    call(libc::SYS_getcpu, &[addr_mut(&mut at)])?;
    mask[at as usize / 64] = 1 << (at % 64);
    call(libc::SYS_sched_setaffinity, &[0, 128, addr(&mask)]).map(drop)
}

/// A pidfd of a thread, by a handle of pidfs (Linux 6.14): those of others are numbers near a new process's own.
fn by_handle(tid: i32) -> Option<u64> {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        number: u64,
    }
    let child = raw::fork(|| 0).ok()?;
    let own = call(libc::SYS_pidfd_open, &[child as u64, 0]);
    raw::wait(child);
    let own = own.ok()?;
    let (mut handle, mut mount) = (Handle { bytes: 8, kind: 0, number: 0 }, 0_i32);
    let empty = addr(&b"\0"[0]);
    let flags = int(libc::AT_EMPTY_PATH);
    let args = [own, empty, addr_mut(&mut handle), addr_mut(&mut mount), flags];
    call(libc::SYS_name_to_handle_at, &args).ok()?;
    for number in handle.number.saturating_sub(200)..handle.number + 200 {
        let near = Handle { number, ..handle };
        let opened = call(libc::SYS_open_by_handle_at, &[own, addr(&near), 0]);
        let Ok(opened) = opened else { continue };
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{opened}")).unwrap_or_default();
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
        if pid == Some(tid) {
            return Some(opened);
        }
        raw::close(opened as i32);
    }
    None
}
