//! Seccomp: the filter that traps, and the listener that answers.

pub mod bpf;
pub mod calls;
pub mod filter;
mod listener;
pub mod rules;

pub use listener::AddFd;
pub use listener::Listener;
pub use listener::NotifId;
pub use listener::Notification;
pub use listener::Reply;
pub use listener::install;
