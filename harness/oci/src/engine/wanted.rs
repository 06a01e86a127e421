//! The runtime that an engine shall know, and the facts about each engine.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Error;
use anyhow::anyhow;
use serde::Deserialize;
use serde::Serialize;

use super::names;
use crate::runtime;

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
    /// NVIDIA's container toolkit, which calls a runtime as engines do.
    Nvidia,
}

/// The runtime that an engine shall know.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The runtime's name.
    pub(super) name: String,
    /// The path of this program.
    pub(super) program: String,
    /// The wrapped runtime: a name, or a path.
    pub(super) wrapped: String,
    pub(super) cdi: bool,
}

impl Wanted {
    /// The path for engines that take no arguments: this program by a name that says them.
    pub(super) fn called(&self) -> String {
        let beside = Path::new(&self.program)
            .with_file_name(format!("verbgate-oci-{}", self.wrapped_name()));
        beside.to_string_lossy().into_owned()
    }

    /// The wrapped runtime's name, also where a path is known.
    pub(super) fn wrapped_name(&self) -> &str {
        self.wrapped.rsplit('/').next().unwrap_or_default()
    }

    /// What is to be said of the engine's default runtime of this name and program, where that is NVIDIA's.
    pub(super) fn note_default(&self, name: &str, program: &str) -> Option<String> {
        names::is_nvidias(program).then(|| {
            format!(
                "the default runtime is {name:?}, NVIDIA's: containers that name no runtime get GPUs by NVIDIA's runtime, and \
                 RDMA through verbgate where NVIDIA's runtime calls verbgate; the runtime {:?} wraps {}, and gives GPUs by \
                 CDI alone",
                self.name, self.wrapped
            )
        })
    }

    /// Checks that the wrapped runtime is there, and that those who are called by a name find the same one.
    pub(super) fn check(&self, engine: Engine) -> Result<(), Error> {
        let odd = |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c));
        if self.wrapped_name().is_empty() || self.wrapped_name().contains(odd) {
            return Err(anyhow!(
                "--wrap {:?}: a runtime's name has letters, digits and -_. only",
                self.wrapped
            ));
        }
        names::refuse_nvidias("--wrap", &self.wrapped)?;
        if !self.wrapped.contains('/') {
            return runtime::find(Some(self.wrapped.as_ref())).map(drop).map_err(|_| {
                anyhow!(
                    "--wrap {}: not found in PATH; install the runtime, or name another: runc, crun, or a path",
                    self.wrapped
                )
            });
        }
        if !self.wrapped.starts_with('/') {
            return Err(anyhow!("--wrap {}: the path must be absolute", self.wrapped));
        }
        let there = runtime::find(Some(self.wrapped.as_ref()))
            .map_err(|_| anyhow!("--wrap {}: not an executable file", self.wrapped))?;
        let same = |found: PathBuf| fs::canonicalize(found).ok() == fs::canonicalize(&there).ok();
        let by_name = || runtime::find(Some(self.wrapped_name().as_ref()));
        if engine.takes_path() && !by_name().is_ok_and(same) {
            return Err(anyhow!(
                "--wrap {0}: this engine calls verbgate by a name, {1}, and verbgate then looks for {2} in \
                 PATH, where another {2} or none is; make a link: ln -s {0} \
                 /usr/local/bin/{2}",
                self.wrapped,
                self.called(),
                self.wrapped_name()
            ));
        }
        Ok(())
    }
}

impl Engine {
    /// The file that names the engine's runtimes, or the one that Verbgate adds for that.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Docker => "/etc/docker/daemon.json",
            Self::Containerd => "/etc/containerd/config.toml",
            Self::Podman => "/etc/containers/containers.conf.d/50-verbgate.conf",
            Self::Crio => "/etc/crio/crio.conf.d/50-verbgate.conf",
            Self::Nvidia => "/etc/nvidia-container-runtime/config.toml",
        }
    }

    /// The engine's word on the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Containerd => "containerd",
            Self::Podman => "podman",
            Self::Crio => "crio",
            Self::Nvidia => "nvidia",
        }
    }

    /// The command that is left to the user.
    pub(super) fn next(self) -> &'static str {
        match self {
            Self::Docker => "systemctl restart docker",
            Self::Containerd => "systemctl restart containerd",
            Self::Podman | Self::Nvidia => "",
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
        wrapped: "runc".into(),
        cdi: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_of_another_name_is_wrapped_where_it_is_found() {
        let of = |wrapped: &str| Wanted { wrapped: wrapped.into(), ..wanted_for_tests() };
        assert_eq!(of("/opt/bin/youki").called().rsplit('/').next(), Some("verbgate-oci-youki"));
        // Any program that is there.
        let shell = runtime::find(Some("sh".as_ref())).unwrap();
        of(shell.to_str().unwrap()).check(Engine::Containerd).unwrap();
        for (wrapped, needle) in [
            ("no-such-runtime", "install the runtime, or name another"),
            ("nvidia-container-runtime", "have NVIDIA's runtime call verbgate"),
            ("/usr/bin/nvidia-container-runtime.cdi", "have NVIDIA's runtime call verbgate"),
            ("", "letters"),
            ("a b", "letters"),
            ("bin/sh", "absolute"),
            ("/no/such/runtime", "not an executable file"),
        ] {
            let error = of(wrapped).check(Engine::Docker).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
        // Not where a runtime is looked for.
        let dir = tempfile::tempdir().unwrap();
        let hidden = dir.path().join("hidden-runtime");
        fs::copy(shell, &hidden).unwrap();
        of(hidden.to_str().unwrap()).check(Engine::Docker).unwrap();
        let error = of(hidden.to_str().unwrap()).check(Engine::Podman).unwrap_err().to_string();
        assert!(error.contains("ln -s") && !error.contains('\n'), "{error}");
    }
}
