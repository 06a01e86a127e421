//! A network device's own counters, as `ethtool -S` shows them: SIOCETHTOOL of netdevice(7),
//! include/uapi/linux/ethtool.h.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use rustix::net::AddressFamily;
use rustix::net::SocketType;

/// `ETHTOOL_GDRVINFO`, `ETHTOOL_GSTRINGS` and `ETHTOOL_GSTATS`.
const DRIVER: u32 = 0x3;
const STRINGS: u32 = 0x1b;
const STATISTICS: u32 = 0x1d;
/// `ETHTOOL_GFECPARAM`; `struct ethtool_fecparam`, and where its `active_fec` is, in bytes.
const FEC: u32 = 0x50;
const FEC_SIZE: usize = 16;
const FEC_ACTIVE: usize = 4;
/// `enum ethtool_fec_config_bits`, from bit 0 on.
const FECS: [&str; 6] = ["none", "auto", "off", "rs", "baser", "llrs"];
/// `ETH_SS_STATS`: the set of the statistics' names.
const NAMES: u32 = 1;
/// `ETH_GSTRING_LEN`, in bytes.
const NAME: usize = 32;
/// `struct ethtool_drvinfo`, and where its `n_stats` is, in bytes.
const DRIVER_SIZE: usize = 196;
const DRIVER_COUNT: usize = 180;
/// Before the names: command, set, number. Before the values: command, number. In bytes.
const NAMES_HEADER: usize = 12;
const VALUES_HEADER: usize = 8;
/// Buffers have room for so many, because the kernel writes as many as there are, whatever number it
/// was told. mlx5 has some thousands with all its rings. Pages that are not written cost nothing.
const ROOM: usize = 1 << 17;

/// `struct ifreq`, with a pointer.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut u8,
    rest: [u8; 16],
}

/// All of them, by their names.
///
/// # Errors
/// `ENODEV` without such a device in this network namespace; `EOPNOTSUPP` when its driver has none.
pub fn statistics(netdev: &str) -> io::Result<BTreeMap<String, u64>> {
    let mut driver = vec![0; DRIVER_SIZE];
    put(&mut driver, 0, DRIVER);
    ask(netdev, &mut driver)?;
    let count = usize::try_from(get(&driver, DRIVER_COUNT)).unwrap_or(usize::MAX);
    if count == 0 || count > ROOM / 2 {
        return Ok(BTreeMap::new());
    }
    let wanted = u32::try_from(count).unwrap_or(0);
    let mut names = vec![0; NAMES_HEADER + ROOM * NAME];
    put(&mut names, 0, STRINGS);
    put(&mut names, 4, NAMES);
    put(&mut names, 8, wanted);
    ask(netdev, &mut names)?;
    let mut values = vec![0; VALUES_HEADER + ROOM * 8];
    put(&mut values, 0, STATISTICS);
    put(&mut values, 4, wanted);
    ask(netdev, &mut values)?;
    let names = names.get(NAMES_HEADER..).unwrap_or_default().chunks_exact(NAME);
    let values = values.get(VALUES_HEADER..).unwrap_or_default().chunks_exact(8);
    let pair = |(name, value): (&[u8], &[u8])| {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        let name = String::from_utf8_lossy(name.get(..end)?).trim().to_owned();
        Some((name, u64::from_ne_bytes(value.try_into().ok()?)))
    };
    Ok(names.zip(values).take(count).filter_map(pair).collect())
}

/// The forward error correction that is active, as ethtool(8) calls it: `rs`, `baser`, `off`.
///
/// # Errors
/// `ENODEV` without such a device in this network namespace; `EOPNOTSUPP` when its driver has none.
pub fn fec(netdev: &str) -> io::Result<String> {
    let mut parameters = vec![0; FEC_SIZE];
    put(&mut parameters, 0, FEC);
    ask(netdev, &mut parameters)?;
    Ok(fec_name(get(&parameters, FEC_ACTIVE)))
}

fn fec_name(bits: u32) -> String {
    let set = FECS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    let names: Vec<&str> = set.map(|(_, name)| *name).collect();
    names.join("+")
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(to) = bytes.get_mut(at..at + 4) {
        to.copy_from_slice(&value.to_ne_bytes());
    }
}

fn get(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    found.map_or(0, u32::from_ne_bytes)
}

/// One command, whose buffer has [`ROOM`] for what it lists.
fn ask(netdev: &str, buffer: &mut [u8]) -> io::Result<()> {
    let mut name = [0; libc::IFNAMSIZ];
    if netdev.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    name.iter_mut().zip(netdev.as_bytes()).for_each(|(to, from)| *to = *from);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = Request { name, data: buffer.as_mut_ptr(), rest: [0; 16] };
    // SAFETY: the request is whole; its buffer is ours for as long as the call takes, and holds twice
    // as many names or values as the driver has just said that there are, and more.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_statistics_or_none_is_an_error_and_no_crash() {
        // The loopback device has no driver to ask.
        let fec_of = |name: &str| fec(name).unwrap_err().raw_os_error();
        assert_eq!(fec_of("lo"), Some(libc::EOPNOTSUPP));
        assert_eq!(fec_of("no-such-device"), Some(libc::ENODEV));
        assert_eq!((fec_name(8).as_str(), fec_name(4).as_str()), ("rs", "off"));
        let of = |name: &str| statistics(name).unwrap_err().raw_os_error();
        assert_eq!(of("lo"), Some(libc::EOPNOTSUPP));
        assert_eq!(of("no-such-device"), Some(libc::ENODEV));
        assert_eq!(of("a name that is too long for any"), Some(libc::ENODEV));
    }
}
