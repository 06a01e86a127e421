//! Images of busybox and a program that makes requests, made from programs of this machine, without
//! a registry.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::common::stdout;
use crate::guest;
use crate::world::World;

/// What containers call it.
pub(crate) const NAME: &str = "docker.io/library/box:latest";
/// What holds a pod's namespaces: the same, but left alone it waits.
pub(crate) const PAUSE: &str = "docker.io/library/pause:latest";
const COMMANDS: [(&str, &[&str]); 2] = [(NAME, &["/bin/sh"]), (PAUSE, &["/bin/sleep", "100000"])];
/// An archive as `docker save` writes it; `ctr image import` and `docker load` read it.
pub(crate) const ARCHIVE: &str = "/tmp/box.tar";
/// Opens the device and makes requests, the first of which plants a stub; and what that says then of the
/// null device, which knows none (ENOTTY).
pub(crate) const ASK: [&str; 4] = ["/bin/ask", "requests", "/dev/infiniband/uverbs0", "3"];
pub(crate) const ANSWER: &str = "errno 25";
const PROGRAMS: &[&str] = &["sh", "cat", "grep", "ls", "readlink", "sleep", "tail", "true"];

/// What a program loads, by ldd(1).
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let text = stdout(&listed);
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}

/// Makes the images in the world.
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
    fs::copy(guest::program(), root.join("bin/ask")).unwrap();
    for library in libraries(guest::program()) {
        let inside = root.join(library.strip_prefix("/").unwrap());
        fs::create_dir_all(inside.parent().unwrap()).unwrap();
        fs::copy(library, inside).unwrap();
    }
    let tar = |from: &Path, to: &Path, names: &[String]| {
        let mut command = Command::new("tar");
        command.arg("-C").arg(from).arg("-cf").arg(to).args(names);
        assert!(command.status().unwrap().success());
    };
    let layer = dir.path().join("layer.tar");
    tar(&root, &layer, &[".".to_owned()]);
    let sum = Command::new("sha256sum").arg(&layer).output().unwrap();
    let sum = stdout(&sum).split(' ').next().unwrap().to_owned();
    let mut manifest = Vec::new();
    let mut names = vec!["manifest.json".to_owned(), "layer.tar".to_owned()];
    for (index, (name, command)) in COMMANDS.iter().enumerate() {
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": {"Cmd": command},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{sum}")]},
        });
        let file = format!("config-{index}.json");
        fs::write(dir.path().join(&file), config.to_string()).unwrap();
        manifest.push(json!({"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]}));
        names.push(file);
    }
    fs::write(dir.path().join("manifest.json"), json!(manifest).to_string()).unwrap();
    let archive = dir.path().join("image.tar");
    tar(dir.path(), &archive, &names);
    world.write(ARCHIVE, &fs::read(archive).unwrap());
}
