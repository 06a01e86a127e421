//! The names of verbgate's CDI devices.

/// Our kind of device.
pub(crate) const KIND: &str = "verbgate.org/rdma";

/// The hidden command that hooks give.
pub const HOOK: &str = "cdi-hook";

/// Between a device and its port.
pub(crate) const PORT: char = ':';

/// The device that a name among ours means.
pub(crate) fn device_of(name: &str) -> &str {
    name.split_once(PORT).map_or(name, |(device, _)| device)
}
