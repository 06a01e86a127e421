//! Structures that a driver, a program and a device share.

/// Makes structures of unaligned little and big endian numbers, and of bytes.
macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout,
            zerocopy::Immutable, zerocopy::Unaligned)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )* };
}
pub(crate) use layout;
