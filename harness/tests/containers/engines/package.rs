//! The Debian package, installed, upgraded, removed and purged where Docker runs containers.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use tempfile::TempDir;
use verbgate_lab::package::Compression;
use verbgate_lab::package::Recipe;

use crate::common::has;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use crate::engines::docker;
use crate::engines::docker::docker_run;
use crate::engines::world::World;

pub(crate) const DEB: &str = "/tmp/verbgate.deb";
const OLD_DEB: &str = "/tmp/verbgate-old.deb";
/// An older version of the package: of the same program, for there is no released one.
const OLD: &str = "0.0.1";
/// By its path: the shell of busybox has a dpkg of its own.
const DPKG: [&str; 2] = ["/usr/bin/dpkg", "--force-bad-path"];
const STATUS: &str = "/var/lib/dpkg/status";
const UNIT: &str = "/usr/lib/systemd/system/verbgate-cdi.service";

const CONMON: &str = "/usr/bin/conmon";
/// A container that it keeps.
const KEPT: &str = "0123456789abcdef";

/// The package of the program under test, put into the world; none where it cannot be made.
pub(crate) fn make(world: &World) -> bool {
    if !has("dpkg-shlibdeps") || !has("dpkg-deb") {
        return false;
    }
    let file = built(env!("CARGO_PKG_VERSION"), |recipe, into| recipe.build(into));
    world.write(DEB, &file);
    knows_libraries(world);
    let depends = world.done(&["/usr/bin/dpkg-deb", "--field", DEB, "Depends"]);
    assert!(depends.contains("libc6"), "{depends}");
    let files = world.done(&["/usr/bin/dpkg-deb", "--contents", DEB]);
    for file in ["bin/verbgate-oci-runc -> verbgate", "man1/verbgate.1.gz", "verbgate-gc.service"] {
        assert!(files.contains(file), "{file}: {files}");
    }
    true
}

/// The world's packages are unpacked, not installed: dpkg is told of the libraries that are there. That of C says its
/// version itself, and with that what the package asks for is compared.
fn knows_libraries(world: &World) {
    let said = world.sh("/lib/*-linux-gnu/libc.so.6 --version");
    let version = said.split(['(', ')']).nth(1).unwrap().rsplit(' ').next().unwrap().to_owned();
    let architecture = world.done(&["/usr/bin/dpkg", "--print-architecture"]);
    let package = |name: &str, version: &str| {
        format!(
            "Package: {name}\nStatus: install ok installed\nMaintainer: x <x@example.org>\n\
             Architecture: {architecture}\nMulti-Arch: same\nVersion: {version}\nDescription: x\n\n"
        )
    };
    world.write(STATUS, (package("libc6", &version) + &package("libgcc-s1", "12")).as_bytes());
}

/// A package of the program under test.
fn built(version: &str, build: impl Fn(&Recipe<'_>, &Path) -> anyhow::Result<PathBuf>) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let (program, pages) = (dir.path().join("verbgate"), dir.path().join("pages"));
    // What debuggers want is most of it.
    let stripped = Command::new("strip").arg("-o").arg(&program).arg(verbgate()).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(verbgate(), &program).unwrap();
    }
    let made = Command::new(verbgate()).arg("pages").arg(&pages).arg("2026-01-31").status();
    assert!(made.unwrap().success());
    let krate = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Nobody fetches it: to compress it takes longer than the test.
    let compression = Compression::None;
    let recipe = Recipe { krate, version, program: &program, pages: &pages, compression };
    fs::read(build(&recipe, dir.path()).unwrap()).unwrap()
}

pub(crate) fn dpkg(world: &World, words: &[&str]) -> Output {
    world.run(&[&DPKG[..], words].concat())
}

pub(crate) fn is_installed(world: &World) -> bool {
    let status = world.read(STATUS).unwrap();
    let ours = status.lines().skip_while(|line| *line != "Package: verbgate").nth(1);
    // What somebody wants of it is before that.
    ours.is_some_and(|line| line.ends_with(" ok installed"))
}

/// What is left of us, but for the package's own file.
fn left(world: &World) -> String {
    world.sh("find / -xdev -iname '*verbgate*' ! -path '/proc/*' ! -path '/tmp/verbgate*.deb' ! -path '/tmp/verbgate*.rpm'
         ls -d /run/verbgate /var/lib/verbgate /etc/verbgate 2>/dev/null
         grep -rl verbgate /etc /run/cdi 2>/dev/null; true")
}

fn assert_runs_as_before(world: &World) {
    let output = docker_run(world, &[], &["true"]);
    assert!(output.status.success(), "{output:?}");
}

/// Engines end by our runtime also what has no RDMA: Docker, and those that keep a container by a conmon,
/// of which there is a stand-in.
fn stays_while_engines_need_it(world: &World) {
    let detached = ["--runtime=verbgate", "--detach", "--name=plain"];
    let started = docker_run(world, &detached, &["sleep", "1000"]);
    assert!(started.status.success(), "{started:?}");
    world.write(CONMON, &fs::read(world.path("/usr/bin/tini")).unwrap());
    world.done(&["chmod", "755", CONMON]);
    let words = format!("-c {KEPT} -u {KEPT} -r /usr/bin/verbgate-oci-crun -b /");
    let line = format!("{CONMON} -s -- sh -c 'sleep 1000' {words} >/dev/null 2>&1 & echo $!");
    let conmon = world.sh(&line);
    let output = dpkg(world, &["--remove", "verbgate"]);
    let why = stderr(&output);
    assert!(!output.status.success() && is_installed(world), "{why}");
    for needle in ["without the runtime: 2", KEPT, &stdout(&started)] {
        assert!(why.contains(needle), "{needle}: {why}");
    }
    world.done(&["kill", "-KILL", &conmon]);
    world.done(&["docker", "rm", "--force", "plain"]);
}

#[test]
fn is_not_removed_under_running_containers() {
    let Some(mut world) = World::with("trixie", "") else { return };
    if !make(&world) {
        return;
    }
    world.write(OLD_DEB, &built(OLD, |recipe, into| recipe.build(into)));
    assert_eq!(left(&world), "");
    let output = dpkg(&world, &["--install", OLD_DEB]);
    assert!(output.status.success(), "{output:?}");
    // The message names the second command, and that is all there is to do.
    let said = stdout(&output);
    let next = said.lines().find_map(|line| line.split_once("RDMA: ")).unwrap().1;
    let configure = next.split_once(" && systemctl restart docker").unwrap().0;
    assert_eq!(configure, "verbgate runtime configure --runtime=docker --cdi");
    world.sh(configure);
    // No systemd is here to start the unit that the package enables.
    let unit = world.read(UNIT).unwrap();
    world.sh(unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap());
    let daemon = docker::start(&mut world);
    if !docker::works(&world) {
        return;
    }
    let ours = ["--runtime=verbgate", "--device=verbgate.org/rdma=mlx5_0"];
    let detached = ["--detach", "--name=stays"];
    let started = docker_run(&world, &[&ours[..], &detached].concat(), &["sleep", "1000"]);
    assert!(started.status.success(), "{started:?}");
    let id = stdout(&started);

    // An upgrade disturbs nothing, and does not repeat itself.
    let version =
        || world.done(&["/usr/bin/dpkg-query", "--show", "--showformat=${Version}", "verbgate"]);
    assert_eq!(version(), OLD);
    let configured = world.read(docker::FILE);
    let output = dpkg(&world, &["--install", DEB]);
    assert!(output.status.success() && !stdout(&output).contains("RDMA: "), "{output:?}");
    assert_eq!(
        (version().as_str(), world.read(docker::FILE)),
        (env!("CARGO_PKG_VERSION"), configured)
    );
    let exec = ["docker", "exec", "stays", "ls", "/dev/infiniband"];
    assert_eq!(world.done(&exec), "uverbs0");

    for verb in ["--remove", "--purge"] {
        let output = dpkg(&world, &[verb, "verbgate"]);
        let why = stderr(&output);
        assert!(!output.status.success(), "{why}");
        for needle in ["which only this package can end cleanly: 1", &id, "docker rm --force"] {
            assert!(why.contains(needle), "{needle}: {why}");
        }
        assert!(is_installed(&world));
        assert_eq!(world.done(&exec), "uverbs0");
        assert!(world.read(docker::FILE).unwrap().contains("verbgate"));
        assert!(world.read("/run/cdi/verbgate.json").is_some());
    }

    world.done(&["docker", "rm", "--force", "stays"]);
    world.assert_nothing_left();

    stays_while_engines_need_it(&world);
    let output = dpkg(&world, &["--purge", "verbgate"]);
    assert!(output.status.success(), "{output:?}");
    let why = stderr(&output);
    assert!(why.contains("systemctl restart docker"), "{why}");
    assert_eq!(left(&world), "", "{why}");
    assert_runs_as_before(&world);
    daemon.stop();
    let daemon = docker::start(&mut world);
    assert_runs_as_before(&world);
    daemon.stop();
}

/// Docker would not start without its default runtime.
#[test]
fn is_not_removed_where_an_engine_needs_it() {
    let Some(mut world) = World::with("trixie", "") else { return };
    if !make(&world) {
        return;
    }
    assert!(dpkg(&world, &["--install", DEB]).status.success());
    world.done(&["verbgate", "runtime", "configure", "--runtime=docker"]);
    let ours = world.read(docker::FILE).unwrap();
    let default = ours.replacen('{', "{\n  \"default-runtime\": \"verbgate\",", 1);
    world.write(docker::FILE, default.as_bytes());
    let output = dpkg(&world, &["--remove", "verbgate"]);
    let why = stderr(&output);
    assert!(!output.status.success() && is_installed(&world), "{why}");
    assert!(why.contains("default-runtime is \"verbgate\""), "{why}");
    assert!(why.contains("VERBGATE_REMOVE_ANYWAY"), "{why}");
    assert_eq!(world.read(docker::FILE).as_deref(), Some(default.as_str()));
    // NICs that are away could not come home.
    world.write(docker::FILE, ours.as_bytes());
    world.write("/var/lib/verbgate/netdev.json", b"{}");
    let output = dpkg(&world, &["--remove", "verbgate"]);
    assert!(stderr(&output).contains("first: verbgate netdev restore"), "{output:?}");
    assert!(is_installed(&world) && world.read(docker::FILE).as_deref() == Some(ours.as_str()));
    fs::remove_file(world.path("/var/lib/verbgate/netdev.json")).unwrap();
    // As the messages say.
    world.write(docker::FILE, ours.as_bytes());
    let output = dpkg(&world, &["--remove", "verbgate"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(world.read(docker::FILE), None);
    let output = dpkg(&world, &["--purge", "verbgate"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(left(&world), "");
    let daemon = docker::start(&mut world);
    daemon.stop();
}

/// Who says so removes it all the same: what runs goes on, and nothing points to what is gone.
#[test]
fn is_removed_all_the_same_by_who_says_so() {
    let Some(mut world) = World::with("trixie", "") else { return };
    if !make(&world) {
        return;
    }
    assert!(dpkg(&world, &["--install", DEB]).status.success());
    world.done(&["verbgate", "runtime", "configure", "--runtime=docker"]);
    let daemon = docker::start(&mut world);
    if !docker::works(&world) {
        return;
    }
    let ours = ["--runtime=verbgate", "--device=/dev/infiniband/uverbs0", "--detach"];
    assert!(docker_run(&world, &ours, &["sleep", "1000"]).status.success());
    let anyway = ["env", "VERBGATE_REMOVE_ANYWAY=1"];
    let output = world.run(&[&anyway[..], &DPKG, &["--remove", "verbgate"]].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(!is_installed(&world));
    assert_eq!(world.read(docker::FILE), None);
    assert!(world.sh("ps -o args").contains("sleep 1000"));
    daemon.stop();
}

const OLD_RPM: &str = "/tmp/verbgate-old.rpm";
const RPM: &str = "/tmp/verbgate.rpm";

/// The same package for distributions with rpm, by rpm's own program; the world's packages are unpacked, so
/// that rpm knows no dependency.
#[test]
fn as_rpm_is_installed_upgraded_and_removed() {
    let Some(mut world) = World::with("trixie", "") else { return };
    if !has("rpmbuild") {
        return;
    }
    world.write(OLD_RPM, &built(OLD, |recipe, into| recipe.build_rpm(into)));
    world.write(RPM, &built(env!("CARGO_PKG_VERSION"), |recipe, into| recipe.build_rpm(into)));
    let requires = world.done(&["/usr/bin/rpm", "--query", "--requires", "--package", RPM]);
    assert!(requires.contains("libc.so.6"), "{requires}");
    let files = world.done(&["/usr/bin/rpm", "--query", "--list", "--package", RPM]);
    for file in ["/usr/bin/verbgate-oci-crun", "site-functions/_verbgate", "verbgate-cdi.path"] {
        assert!(files.contains(file), "{file}: {files}");
    }
    let rpm =
        |world: &World, words: &[&str]| world.run(&[&["/usr/bin/rpm", "--nodeps"], words].concat());
    let output = rpm(&world, &["--install", OLD_RPM]);
    assert!(output.status.success() && stdout(&output).contains("RDMA: "), "{output:?}");
    world.done(&["verbgate", "runtime", "configure", "--runtime=docker"]);
    world.done(&["verbgate", "cdi", "refresh"]);
    let daemon = docker::start(&mut world);
    if !docker::works(&world) {
        return;
    }
    let ours =
        ["--runtime=verbgate", "--device=/dev/infiniband/uverbs0", "--detach", "--name=stays"];
    let started = docker_run(&world, &ours, &["sleep", "1000"]);
    assert!(started.status.success(), "{started:?}");
    // An upgrade disturbs nothing.
    let output = rpm(&world, &["--upgrade", RPM]);
    assert!(output.status.success() && !stdout(&output).contains("RDMA: "), "{output:?}");
    let exec = ["docker", "exec", "stays", "ls", "/dev/infiniband"];
    assert_eq!(world.done(&exec), "uverbs0");
    assert!(world.read(docker::FILE).unwrap().contains("verbgate"));
    assert!(world.read("/run/cdi/verbgate.json").is_some());

    let output = rpm(&world, &["--erase", "verbgate"]);
    let why = stdout(&output) + &stderr(&output);
    assert!(!output.status.success() && why.contains("docker rm --force"), "{why}");
    assert_eq!(world.done(&exec), "uverbs0");
    assert!(
        world.done(&["/usr/bin/rpm", "--query", "verbgate"]).contains(env!("CARGO_PKG_VERSION"))
    );

    world.done(&["docker", "rm", "--force", "stays"]);
    world.assert_nothing_left();
    let output = rpm(&world, &["--erase", "verbgate"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(left(&world), "");
    daemon.stop();
    let daemon = docker::start(&mut world);
    assert_runs_as_before(&world);
    daemon.stop();
}
