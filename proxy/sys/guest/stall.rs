//! A device whose requests take as long as a test wants.
//!
//! `/dev/net/tun` takes the lock of the network configuration for every `ioctl` that it does not
//! know at once, and the kernel holds that lock while it writes the answer to an ethtool request
//! into memory: here, into memory whose page faults wait. That stops everybody's network
//! configuration, so it does not last long.

use std::error::Error;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::faults::fill;
use crate::faults::take_faults;
use crate::kernel::addr_mut;
use crate::kernel::call;
use crate::kernel::int;
use crate::kernel::mmap;
use crate::kernel::poke;

const PAGE: u64 = 4096;

/// Released after so long, whatever the test does.
const LONGEST: Duration = Duration::from_secs(300);

/// Obeys lines: `block` makes requests wait until `release`.
pub(crate) fn serve() -> Result<(), Box<dyn Error>> {
    let mut stall = None;
    for line in io::stdin().lines() {
        match line?.as_str() {
            "block" => {
                stall = Some(Stall::start()?);
                println!("blocked");
            }
            "release" => {
                if let Some(stall) = stall.take() {
                    stall.end()?;
                }
                println!("released");
            }
            other => println!("what is {other}?"),
        }
    }
    Ok(())
}

struct Stall {
    uffd: u64,
    start: u64,
    holder: std::thread::JoinHandle<()>,
}

impl Stall {
    fn start() -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let start = mmap(0, 2 * PAGE, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        // Faults of the kernel's, too: only root may. One that blocks cannot be polled.
        let uffd = call(libc::SYS_userfaultfd, &[int(libc::O_CLOEXEC | libc::O_NONBLOCK)])?;
        // struct ethtool_value: the command ends the first page, the answer begins the second.
        const ETHTOOL_GLINK: u64 = 0xa;
        let value = start + PAGE - 4;
        poke(start + PAGE - 8, ETHTOOL_GLINK << 32);
        take_faults(uffd, start + PAGE, PAGE)?;
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let holder = std::thread::Builder::new().spawn(move || {
            let _ = ask_for_link(socket.as_raw_fd(), value);
        })?;
        let fd = i32::try_from(uffd).unwrap_or(-1);
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one `struct pollfd`, which lives through the call.
        unsafe { libc::poll(&raw mut poll, 1, -1) };
        std::thread::Builder::new().spawn(move || {
            std::thread::sleep(LONGEST);
            let _ = fill(uffd, start + PAGE, PAGE);
        })?;
        Ok(Self { uffd, start, holder })
    }

    fn end(self) -> io::Result<()> {
        fill(self.uffd, self.start + PAGE, PAGE)?;
        let _ = self.holder.join();
        Ok(())
    }
}

/// `SIOCETHTOOL` with `struct ifreq`, on the loopback device.
fn ask_for_link(socket: RawFd, value: u64) -> io::Result<()> {
    const SIOCETHTOOL: u64 = 0x8946;
    let mut ifreq = [0_u64; 5];
    ifreq[0] = u64::from_ne_bytes(*b"lo\0\0\0\0\0\0");
    ifreq[2] = value;
    call(libc::SYS_ioctl, &[int(socket), SIOCETHTOOL, addr_mut(&mut ifreq)]).map(drop)
}
