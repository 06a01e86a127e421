//! podman, which has no daemon.

use crate::common::stderr;
use crate::image;
use crate::world::World;

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
