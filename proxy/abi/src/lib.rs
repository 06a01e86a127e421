#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
//! The kernel's uverbs ABI as data: every object, method, attribute and legacy command that Linux
//! 6.1, 6.12 and 7.2 know, and a decoder and an encoder for requests made of them.
//!
//! No unsafe code, no I/O, no panics: this crate reads the bytes of an untrusted guest. The tables
//! in `generated.rs` come from the kernel's own declarations (see `data/`), and they are the border
//! of a guest's reach: a request that is not in the tables is refused.
//!
//! The way of a request: [`decode::header`], [`decode::check_driver`], [`decode::parse`], fetch the
//! [`decode::Outline::payloads`], [`decode::Outline::with_payloads`], and there is a [`Request`].
//! [`write::parse_write`] turns a command given with `write(2)` into the same.

pub mod cm;
mod command;
pub mod connects;
pub mod contexts;
pub mod decode;
pub mod encode;
pub mod errno;
pub mod error;
pub mod fmt;
#[rustfmt::skip]
mod generated;
pub mod gids;
pub mod legacy;
pub mod netlink;
pub mod qp_types;
pub mod request;
pub mod residue;
pub mod table;
mod uses;
pub mod values;
pub mod wire;
pub mod write;

pub use errno::Errno;
pub use error::DecodeError;
pub use generated::ids;
pub use request::Request;
