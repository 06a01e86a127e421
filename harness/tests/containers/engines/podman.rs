//! podman, which has no daemon.

use crate::common::stderr;
use crate::common::stdout;
use crate::engines::image;
use crate::engines::world::World;

/// Words before each command: no systemd runs in a world.
pub(crate) const PODMAN: [&str; 3] =
    ["podman", "--cgroup-manager=cgroupfs", "--events-backend=file"];
pub(crate) const CONFIGURE: [&str; 4] = ["verbgate", "runtime", "configure", "--runtime=podman"];

/// Whether podman itself can run a container here, with the image that it is given; says why not.
pub(crate) fn works(world: &World) -> bool {
    image::make(world);
    // Of the host's names; podman makes a container's of them.
    for file in ["/etc/hosts", "/etc/resolv.conf"] {
        world.write(file, b"");
    }
    world.done(&[&PODMAN[..], &["load", "--quiet", "--input", image::ARCHIVE]].concat());
    let native = ["run", "--rm", "--network=none", image::NAME, "true"];
    let native = world.run(&[&PODMAN[..], &native].concat());
    if !native.status.success() {
        eprintln!("SKIPPED: podman cannot run a container here: {}", stderr(&native));
    }
    native.status.success()
}

/// An image whose author annotates it with a wish.
const ANNOTATED: &str = "localhost/annotated";

fn make_annotated(world: &World) {
    world.write("/tmp/annotated/Containerfile", format!("FROM {}\n", image::NAME).as_bytes());
    let build = ["build", "--quiet", "--pull=never", "--annotation=org.verbgate.devices=mlx5_0"];
    world.done(&[&PODMAN[..], &build, &["--tag", ANNOTATED, "/tmp/annotated"]].concat());
}

/// An image's author is not who runs the image: on a node whose annotations grant, too, the image's give nothing.
fn takes_no_wish_of_an_image(suite: &str, version: &str, passes: bool) {
    let Some(world) = World::of(suite) else { return };
    world.done(&CONFIGURE);
    if !works(&world) {
        return;
    }
    let podman = |words: &[&str]| world.run(&[&PODMAN[..], words].concat());
    assert!(stdout(&podman(&["--version"])).contains(version));
    make_annotated(&world);
    // What the runtime is told is what this podman shows.
    let created = podman(&["create", "--name=shows", ANNOTATED, "true"]);
    assert!(created.status.success(), "{created:?}");
    let format = "--format={{.Config.Annotations}}";
    let shown = stdout(&podman(&["inspect", format, "shows"]));
    assert_eq!(shown.contains("org.verbgate.devices"), passes, "{shown}");
    let run = |image: &str, options: &[&str]| {
        let ours = ["--runtime=verbgate", "run", "--rm", "--network=none"];
        podman(&[&ours[..], options, &[image, "ls", "/dev"]].concat())
    };
    let output = run(ANNOTATED, &[]);
    if passes {
        let why = stderr(&output);
        assert!(!output.status.success(), "{output:?}");
        assert!(why.contains("passes an image's annotations on") && why.contains("4.6"), "{why}");
    } else {
        assert!(output.status.success() && !stdout(&output).contains("infiniband"), "{output:?}");
    }
    assert!(world.supervised().is_empty());
    // The same annotation by who runs the image is a wish where podman keeps the two apart.
    let own = run(image::NAME, &["--annotation=org.verbgate.devices=mlx5_0"]);
    assert_eq!(own.status.success() && stdout(&own).contains("infiniband"), !passes, "{own:?}");
    let listed = run(image::NAME, &["--device=/dev/infiniband/uverbs0"]);
    assert!(stdout(&listed).contains("infiniband"), "{listed:?}");
}

#[test]
fn v4_takes_no_wish_of_an_image() {
    takes_no_wish_of_an_image("bookworm", " 4.3.", true);
}

#[test]
fn v5_takes_no_wish_of_an_image() {
    takes_no_wish_of_an_image("trixie", " 5.", false);
}
