//! Container engines as Debian ships them, each in a world of its own with a stand-in for a device.
//!
//! Needs root. The packages are fetched once, into the lab's cache.

mod claims;
mod cluster;
mod containerd;
mod cri;
mod docker;
mod doctor;
mod drivers;
mod image;
mod matrix;
mod node;
mod nri;
mod package;
mod podman;
mod pods;
mod shared;
mod world;
mod wrapped;
