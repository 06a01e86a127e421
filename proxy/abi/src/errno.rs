//! Error numbers as the guest sees them.

use std::fmt;

/// A Linux error number, positive, as in `errno`: the same on every architecture that has RDMA.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $number:literal $doc:literal,)*) => {
        impl Errno {
            $(#[doc = $doc] pub const $name: Self = Self($number);)*

            /// The symbolic name, if it is one of those that this crate names.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1 "Operation not permitted.",
    ENOENT = 2 "No such object.",
    EINTR = 4 "Interrupted.",
    EIO = 5 "Input/output error; also: the device is gone.",
    E2BIG = 7 "Too long.",
    EBADF = 9 "Bad descriptor.",
    EAGAIN = 11 "Try again.",
    ENOMEM = 12 "No memory, or over a limit of locked memory.",
    EACCES = 13 "Permission denied.",
    EFAULT = 14 "Bad address.",
    EBUSY = 16 "Object in use.",
    ENODEV = 19 "No such device.",
    EINVAL = 22 "Invalid argument.",
    EMFILE = 24 "Too many descriptors.",
    ENOTTY = 25 "The descriptor does not know this ioctl.",
    ENOSPC = 28 "A buffer is too small, or a limit is reached.",
    ENOSYS = 38 "No such system call.",
    EPROTONOSUPPORT = 93 "No such object, method or mandatory attribute.",
    EOPNOTSUPP = 95 "The kernel or the device cannot do this.",
    EADDRINUSE = 98 "A connection is another's.",
    EDQUOT = 122 "Over a quota.",
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "Errno({name})"),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}
