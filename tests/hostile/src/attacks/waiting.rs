//! Attacks that make everybody wait who looks at this guest: for its memory, or for the kernel's
//! lock of its execve(2).

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::faults;
use crate::guest::Guest;
use crate::guest::go_on;
use crate::guest::minion;
use crate::raw;
use crate::raw::PAGE;
use crate::raw::call;
use crate::raw::gettid;
use crate::raw::int;
use crate::raw::memory;
use crate::raw::mmap;
use crate::raw::name;
use crate::raw::poke;
use crate::raw::sleep;
use crate::request;

/// Children whose planting lasts as long as the supervisor lets it: the instruction by which they
/// made their first request is in a page that goes away under them.
pub(super) fn stall(guest: &Guest) -> io::Result<()> {
    const AT_ONCE: usize = 12;
    let begun = Instant::now();
    let mut children = Vec::new();
    let mut used = 0_u64;
    let mut ends = std::collections::BTreeMap::new();
    loop {
        while children.len() < AT_ONCE {
            used += 1;
            // From at once to when the supervisor is in the middle of it.
            let spin = Duration::from_micros(20 + used * 7919 % 900);
            children.push((minion(|| stalled(guest, spin))?, Instant::now()));
        }
        children.retain(|(child, since)| match raw::ended(*child) {
            Some(code) => {
                *ends.entry(code).or_insert(0) += 1;
                false
            }
            None => {
                // One that was planted in time does no harm: make room for the next, but not
                // before it is clear that nobody else ends it.
                if since.elapsed() > Duration::from_millis(1500) {
                    raw::kill(*child, libc::SIGKILL);
                }
                true
            }
        });
        if begun.elapsed() > Duration::from_millis(3700) {
            println!("{used} children, ended {ends:?}");
            return Ok(());
        }
        sleep(5);
    }
}

fn stalled(guest: &Guest, spin: Duration) -> io::Result<()> {
    static FLAG: AtomicI32 = AtomicI32::new(0);
    let fd = request::open(guest.device())?;
    let everything = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let page = mmap(0, PAGE, everything, anonymous, -1)?;
    let words = memory(None, PAGE)?;
    request::lay_out(words, words + 1024);
    let uffd = faults::of_programs()?;
    let call_it = raw::ioctl_at(page);
    faults::take(uffd, page, PAGE)?;
    let _caller = thread::spawn(move || {
        FLAG.store(1, Ordering::SeqCst);
        call_it(fd, words);
    });
    while FLAG.load(Ordering::SeqCst) == 0 {
        std::hint::spin_loop();
    }
    let begun = Instant::now();
    while begun.elapsed() < spin {
        std::hint::spin_loop();
    }
    call(libc::SYS_madvise, &[page, PAGE, int(libc::MADV_DONTNEED)])?;
    go_on()
}

/// A first request beside an execve(2) that waits for a lease on its interpreter.
pub(super) fn exec_lease(guest: &Guest) -> io::Result<()> {
    exec_waits(guest, false)
}

/// The same beside one that waits for a sibling thread which is traced, dead and not reaped.
pub(super) fn exec_zombie(guest: &Guest) -> io::Result<()> {
    exec_waits(guest, true)
}

fn exec_waits(guest: &Guest, zombie: bool) -> io::Result<()> {
    let dir = format!("{}/open", guest.dir);
    let (interpreter, script) = (format!("{dir}/interpreter"), format!("{dir}/script"));
    fs::copy(guest.program(), &interpreter)?;
    fs::write(&script, format!("#!{interpreter}\n"))?;
    for file in [&interpreter, &script] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    }
    let (board, leased) = (guest.board, 0);
    board.set_mine(leased, 0);
    // Holds the lease and does not give it up; or only as long as the other waits for it.
    minion(|| {
        call(libc::SYS_rt_sigprocmask, &[0, raw::addr(&u64::MAX), 0, 8])?;
        let file = fs::File::open(&interpreter)?;
        let lease = |kind: i32| {
            call(libc::SYS_fcntl, &[int(file.as_raw_fd()), int(libc::F_SETLEASE), int(kind)])
        };
        lease(libc::F_WRLCK)?;
        board.set_mine(leased, 1);
        if zombie {
            raw::until(|| board.mine(3) != 0);
            sleep(450);
            lease(libc::F_UNLCK)?;
        }
        go_on()
    })?;
    if !raw::within(Duration::from_secs(5), || board.mine(0) != 0) {
        return Err(io::Error::other("SKIPPED: needs a file system with leases"));
    }
    minion(|| {
        if zombie {
            thread::spawn(move || {
                board.set_mine(1, gettid() as u64);
                go_on()
            });
            // Traced by the one that does not reap it.
            raw::until(|| board.mine(2) != 0);
        }
        let fd = request::open(guest.device())?;
        thread::spawn(move || {
            sleep(100);
            println!("execve: {}", Command::new(&script).exec());
        });
        sleep(250);
        let begun = Instant::now();
        board.set_mine(3, 1);
        println!("a first request: {}, after {:.1?}", name(request::query(fd)), begun.elapsed());
        go_on()
    })?;
    if zombie {
        raw::until(|| board.mine(1) != 0);
        const PTRACE_SEIZE: u64 = 0x4206;
        let seized = call(libc::SYS_ptrace, &[PTRACE_SEIZE, board.mine(1), 0, 0]);
        println!("the sibling is traced: {}", seized.is_ok());
        board.set_mine(2, 1);
    }
    raw::until(|| board.mine(3) != 0);
    println!("a first request beside an execve that waits");
    guest.in_effect();
    go_on()
}

/// What is put into memory whose faults wait.
fn in_such_memory(guest: &Guest, what: impl Fn(i32, u64) -> i32) -> io::Result<()> {
    // First, to be sure that it can be had.
    let uffd = faults::of_the_kernel(&guest.board)?;
    let _ = call(libc::SYS_close, &[uffd]);
    for number in 0..3 {
        minion(|| {
            let fd = guest.planted(guest.device())?;
            let uffd = faults::of_the_kernel(&guest.board)?;
            let page = faults::page_after_a_good_one(uffd)?;
            let begun = Instant::now();
            if number == 0 {
                println!("a call begins");
                guest.in_effect();
            }
            println!("the call: {} after {:.1?}", name(what(fd, page)), begun.elapsed());
            Ok(())
        })?;
    }
    go_on()
}

/// A request's bytes.
pub(super) fn faults_request(guest: &Guest) -> io::Result<()> {
    // Its header is in good memory, its attributes are not.
    in_such_memory(guest, |fd, page| {
        let request = page - 24;
        for (place, word) in [56 | 4 << 32 | 2 << 48, 0, 0].into_iter().enumerate() {
            poke(request + 8 * place as u64, word);
        }
        request::send(fd, request)
    })
}

/// The path of an open.
pub(super) fn faults_path(guest: &Guest) -> io::Result<()> {
    by_path(guest, libc::SYS_openat, libc::O_RDWR)
}

/// The path of a question whether a file may be written.
pub(super) fn faults_access(guest: &Guest) -> io::Result<()> {
    by_path(guest, libc::SYS_faccessat, libc::R_OK | libc::W_OK)
}

fn by_path(guest: &Guest, number: libc::c_long, how: i32) -> io::Result<()> {
    in_such_memory(guest, |_, page| {
        poke(page - 8, u64::from_ne_bytes(*b"////dev/"));
        request::errno(&call(number, &[int(libc::AT_FDCWD), page - 8, int(how)]))
    })
}

/// The vector of a writev.
pub(super) fn faults_vector(guest: &Guest) -> io::Result<()> {
    in_such_memory(guest, |fd, page| request::errno(&call(libc::SYS_writev, &[int(fd), page, 1])))
}

/// The bytes of a write.
pub(super) fn faults_write(guest: &Guest) -> io::Result<()> {
    in_such_memory(guest, |fd, page| request::errno(&call(libc::SYS_write, &[int(fd), page, 24])))
}

/// A payload that a request points to.
pub(super) fn faults_input(guest: &Guest) -> io::Result<()> {
    in_such_memory(guest, |fd, page| {
        // INVOKE_WRITE of ALLOC_PD: WRITE_CMD 3, CORE_IN of 8 bytes and more, CORE_OUT.
        const ALLOC_PD: u64 = 3;
        let request = page - PAGE;
        let words = [
            72 | 3 << 48,
            0,
            request::driver_of(fd),
            2 | 8 << 16 | 1 << 32,
            ALLOC_PD,
            16 << 16 | 1 << 32,
            page,
            1 | 4 << 16 | 1 << 32,
            page - 64,
        ];
        for (place, word) in words.into_iter().enumerate() {
            poke(request + 8 * place as u64, word);
        }
        request::send(fd, request)
    })
}

/// The outputs of a request.
pub(super) fn faults_output(guest: &Guest) -> io::Result<()> {
    in_such_memory(guest, |fd, page| {
        request::lay_out(page - PAGE, page);
        request::send(fd, page - PAGE)
    })
}

/// The request's bytes, in memory of which only the program's own faults wait.
pub(super) fn faults_of_programs(guest: &Guest) -> io::Result<()> {
    faults::of_programs()?;
    for _ in 0..3 {
        minion(|| {
            let fd = guest.planted(guest.device())?;
            let page = faults::page_after_a_good_one(faults::of_programs()?)?;
            println!("a request in such memory: {}", name(request::send(fd, page)));
            request::lay_out(page - PAGE, page);
            println!("outputs in such memory: {}", name(request::send(fd, page - PAGE)));
            Ok(())
        })?;
    }
    sleep(2000);
    Ok(())
}
