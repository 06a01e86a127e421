//! Engines, as the command line names them.

use clap::ValueEnum;
use verbgate_oci::engine::Engine;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum EngineArg {
    Docker,
    Containerd,
    Podman,
    Crio,
    /// NVIDIA's container toolkit, whose runtime calls verbgate then
    Nvidia,
}

impl From<EngineArg> for Engine {
    fn from(arg: EngineArg) -> Self {
        match arg {
            EngineArg::Docker => Self::Docker,
            EngineArg::Containerd => Self::Containerd,
            EngineArg::Podman => Self::Podman,
            EngineArg::Crio => Self::Crio,
            EngineArg::Nvidia => Self::Nvidia,
        }
    }
}
