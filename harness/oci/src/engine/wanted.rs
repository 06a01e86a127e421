//! The runtime that an engine shall know, and the facts about each engine.

use std::path::Path;

use serde::Deserialize;
use serde::Serialize;

/// A container engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Docker.
    Docker,
    /// containerd.
    Containerd,
    /// Podman.
    Podman,
    /// CRI-O.
    Crio,
}

/// An OCI runtime that can be wrapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrapped {
    /// runc.
    Runc,
    /// crun.
    Crun,
}

impl Wrapped {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
        }
    }
}

/// The runtime that an engine shall know.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The runtime's name.
    pub(super) name: String,
    /// The path of this program.
    pub(super) program: String,
    /// The wrapped runtime.
    pub(super) wrapped: &'static str,
    pub(super) cdi: bool,
}

impl Wanted {
    /// The path for engines that take no arguments: this program by a name that says them.
    pub(super) fn called(&self) -> String {
        let beside =
            Path::new(&self.program).with_file_name(format!("verbgate-oci-{}", self.wrapped));
        beside.to_string_lossy().into_owned()
    }
}

impl Engine {
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Docker => "/etc/docker/daemon.json",
            Self::Containerd => "/etc/containerd/config.toml",
            Self::Podman => "/etc/containers/containers.conf.d/50-verbgate.conf",
            Self::Crio => "/etc/crio/crio.conf.d/50-verbgate.conf",
        }
    }

    /// The command that is left to the user.
    pub(super) fn next(self) -> &'static str {
        match self {
            Self::Docker => "systemctl restart docker",
            Self::Containerd => "systemctl restart containerd",
            Self::Podman => "",
            Self::Crio => "systemctl restart crio",
        }
    }

    /// Whether the engine takes only a path.
    pub(super) fn takes_path(self) -> bool {
        self != Self::Docker
    }
}

/// Line and column of a byte, as editors count them.
pub(super) fn place_of(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[cfg(test)]
pub(super) fn wanted_for_tests() -> Wanted {
    Wanted {
        name: "verbgate".into(),
        program: "/usr/bin/verbgate".into(),
        wrapped: "runc",
        cdi: true,
    }
}
