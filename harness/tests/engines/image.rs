//! An image of busybox alone, made of the package: no registry is asked.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::common::stdout;
use crate::world::World;

/// What containers call it.
pub(crate) const NAME: &str = "docker.io/library/box:latest";
/// An archive as `docker save` writes it; `ctr image import` and `docker load` read it.
pub(crate) const ARCHIVE: &str = "/tmp/box.tar";
const PROGRAMS: &[&str] = &["sh", "cat", "grep", "ls", "sleep", "tail", "true"];

/// Makes the image in the world.
pub(crate) fn make(world: &World) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("rootfs");
    for name in ["bin", "proc", "sys", "dev", "tmp", "etc"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::copy(world.path("/bin/busybox"), root.join("bin/busybox")).unwrap();
    for name in PROGRAMS {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    let tar = |from: &Path, to: &Path, names: &[&str]| {
        let mut command = Command::new("tar");
        command.arg("-C").arg(from).arg("-cf").arg(to).args(names);
        assert!(command.status().unwrap().success());
    };
    let layer = dir.path().join("layer.tar");
    tar(&root, &layer, &["."]);
    let sum = Command::new("sha256sum").arg(&layer).output().unwrap();
    let sum = stdout(&sum).split(' ').next().unwrap().to_owned();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{sum}")]},
    });
    let manifest = json!([{
        "Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"],
    }]);
    for (name, value) in [("config.json", config), ("manifest.json", manifest)] {
        fs::write(dir.path().join(name), value.to_string()).unwrap();
    }
    let archive = dir.path().join("image.tar");
    tar(dir.path(), &archive, &["manifest.json", "config.json", "layer.tar"]);
    world.write(ARCHIVE, &fs::read(archive).unwrap());
}
