//! Images of busybox and a program that makes requests, made from programs of this machine, without
//! a registry.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use verbgate_lab::Progress;
use verbgate_lab::image as lab;
use verbgate_lab::image::Image;

use crate::common::guest;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use crate::engines::containerd;
use crate::engines::world::World;

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
/// The chart's image, and its archive.
pub(crate) const CHART: &str = "docker.io/library/verbgate:latest";
pub(crate) const CHARTS: &str = "/tmp/verbgate.tar";
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
    let [layer, archive] = ["layer.tar", "image.tar"].map(|name| dir.path().join(name));
    lab::layer(&root, &layer).unwrap();
    let images = COMMANDS.map(|(name, command)| Image { name, command });
    lab::archive(&[&layer], &images, &archive).unwrap();
    world.write(ARCHIVE, &fs::read(archive).unwrap());
}

/// The chart's image, made by the steps of its Dockerfile; says why where there can be none.
pub(crate) fn of_the_chart(world: &World) -> bool {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let file = repository.join("harness/dist/docker/Dockerfile");
    let to = world.path(CHARTS);
    let program = Path::new(verbgate());
    let made = lab::build(&file, repository, program, CHART, &to, &Progress::stderr());
    if let Err(why) = &made {
        eprintln!("SKIPPED: the chart's image cannot be made here: {why:#}");
    }
    made.is_ok()
}

/// What the pods of the chart run is there and runs.
#[test]
fn of_the_chart_runs() {
    let Some(mut world) = World::of("trixie") else { return };
    if !of_the_chart(&world) {
        return;
    }
    let daemon = containerd::start(&mut world);
    world.done(&["ctr", "image", "import", CHARTS]);
    let run = |name: &str, words: &[&str]| {
        world.run(&[&["ctr", "run", "--rm", CHART, name], words].concat())
    };
    let version = run("version", &["verbgate", "--version"]);
    if stderr(&version).contains("failed to create shim task") {
        eprintln!("SKIPPED: containerd cannot run a container here: {}", stderr(&version));
        return;
    }
    assert!(stdout(&version).starts_with("verbgate "), "{version:?}");
    for link in ["verbgate-oci-runc", "verbgate-oci-crun"] {
        let found = run(link, &["readlink", &format!("/usr/bin/{link}")]);
        assert_eq!(stdout(&found), "verbgate", "{found:?}");
    }
    let node = run("node", &["/usr/bin/verbgate-node"]);
    assert!(stderr(&node).contains("say run or uninstall"), "{node:?}");
    // What the script and the pods that the chart is for call.
    let missing = "for name in curl nsenter cmp install ibv_devinfo ib_write_bw rping ip; do
        command -v $name >/dev/null || echo $name
    done";
    assert_eq!(stdout(&run("tools", &["sh", "-c", missing])), "");
    assert!(run("prerm", &["sh", "-n", "/usr/libexec/verbgate/prerm"]).status.success());
    daemon.stop();
}
