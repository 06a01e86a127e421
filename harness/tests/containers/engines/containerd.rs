//! containerd, with the configuration that Debian ships, and with none.

use crate::common::stderr;
use crate::engines::image;
use crate::engines::world::Daemon;
use crate::engines::world::SYS;
use crate::engines::world::World;
use crate::engines::world::assert_sys_is_ours;

pub(crate) const FILE: &str = "/etc/containerd/config.toml";
pub(crate) const CONFIGURE: [&str; 4] =
    ["verbgate", "runtime", "configure", "--runtime=containerd"];
/// As version 0.1 of Verbgate left Debian's file.
pub(crate) const OURS_ALONE: &str = "version = 2\n\
    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.verbgate]\n\
    runtime_type = \"io.containerd.runc.v2\"\n\
    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.verbgate.options]\n\
    BinaryName = \"/usr/bin/verbgate-oci-runc\"\n";

pub(crate) fn start(world: &mut World) -> Daemon {
    world.start(&["containerd"], &["ctr", "version"])
}

/// What became of the CRI plug-in when containerd started: `ok` or `error`.
fn cri(world: &mut World) -> String {
    let daemon = start(world);
    let plugins = world.done(&["ctr", "plugins", "ls"]);
    daemon.stop();
    let mut lines = plugins.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let cri = lines.rfind(|line| line.get(1) == Some(&"cri"));
    cri.unwrap_or_else(|| panic!("{plugins}")).last().unwrap().to_string()
}

/// `runtime configure` of what is found, a restart: the CRI loads with both runtimes.
fn keeps_its_cri(suite: &str, version: &str, knows_cdi: bool, loses_runc: bool) {
    let Some(mut world) = World::of(suite) else { return };
    assert!(world.done(&["containerd", "--version"]).contains(version));
    let debian = world.read(FILE).unwrap();
    // What this test would see if it failed.
    world.write(FILE, OURS_ALONE.as_bytes());
    assert_eq!(cri(&mut world) == "error", loses_runc);
    for found in [Some(debian.as_str()), None, Some(OURS_ALONE)] {
        match found {
            Some(text) => world.write(FILE, text.as_bytes()),
            None => std::fs::remove_file(world.path(FILE)).unwrap(),
        }
        assert_eq!(cri(&mut world) == "error", loses_runc && found == Some(OURS_ALONE));
        let output = world.run(&[&CONFIGURE[..], &["--cdi"]].concat());
        assert!(output.status.success(), "{output:?}");
        assert_eq!(stderr(&output).contains("--cdi has no effect"), !knows_cdi, "{output:?}");
        assert_eq!(cri(&mut world), "ok", "{found:?}");
        let dump = world.done(&["containerd", "config", "dump"]);
        for runtime in ["runc", "verbgate"] {
            assert!(dump.contains(&format!("containerd.runtimes.{runtime}]")), "{runtime}: {dump}");
        }
        assert_eq!(dump.contains("enable_cdi = true"), knows_cdi, "{dump}");
        let undone = world.run(&[&CONFIGURE[..], &["--undo"]].concat());
        // What would take the node down is taken back by who says so alone.
        let harms = loses_runc && found == Some(OURS_ALONE);
        assert_eq!(undone.status.success(), !harms, "{undone:?}");
        if harms {
            assert!(stderr(&undone).contains("lose the runtime \"runc\""), "{undone:?}");
            assert_eq!(cri(&mut world), "ok");
            world.done(&[&CONFIGURE[..], &["--undo", "--no-verify"]].concat());
        }
        assert_eq!(world.read(FILE).as_deref(), found);
    }
}

#[test]
fn v1_6_keeps_its_cri() {
    keeps_its_cri("bookworm", " 1.6.", false, true);
}

#[test]
fn v1_7_keeps_its_cri() {
    keeps_its_cri("trixie", " 1.7.", true, true);
}

/// It adds to its own runtimes, rather than replaces them.
#[test]
fn v2_keeps_its_cri() {
    keeps_its_cri("sid", " 2.", true, false);
}

/// What the real one would not take, or would not use.
fn refuses(suite: &str) {
    let Some(world) = World::of(suite) else { return };
    let site = "/etc/containerd/conf.d/50-site.toml";
    let cri = "[plugins.\"io.containerd.grpc.v1.cri\"]\n";
    let site_text = format!("version = 2\n{cri}sandbox_image = \"pause:site\"\n");
    world.write(site, site_text.as_bytes());
    let no_default = format!(
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n{}",
        "default_runtime_name = \"kata\"\n"
    );
    for (text, needle) in [
        // Docker Inc.'s own file.
        ("# Docker's\ndisabled_plugins = [\"cri\"]\n", "line 2: disabled_plugins names \"cri\""),
        (
            "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n",
            "--config /etc/containerd/conf.d",
        ),
        ("version = 2\nroot = 3\n", "/etc/containerd/config.toml: "),
        (&no_default, "default_runtime_name is \"kata\""),
    ] {
        world.write(FILE, text.as_bytes());
        let output = world.run(&CONFIGURE);
        assert_eq!(output.status.code(), Some(1), "{text}: {output:?}");
        assert!(stderr(&output).contains(needle), "{output:?}");
        assert_eq!(world.read(FILE).as_deref(), Some(text));
        assert_eq!(world.sh("ls -A /etc/containerd"), "conf.d\nconfig.toml");
    }
    // As the refusal says.
    world.done(&[&CONFIGURE[..], &["--config", site]].concat());
    world.write(FILE, b"version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
    let dump = world.done(&["containerd", "config", "dump"]);
    assert!(dump.contains("runtimes.verbgate]") && dump.contains("runtimes.runc]"), "{dump}");
    assert!(dump.contains("pause:site"), "{dump}");
}

#[test]
fn v1_6_is_not_given_what_it_would_not_use() {
    refuses("bookworm");
}

#[test]
fn v1_7_is_not_given_what_it_would_not_use() {
    refuses("trixie");
}

/// A file that imports a folder: the engine's own file stays where the engine takes a file of ours beside it, and only
/// there. Either way no other setting is lost.
fn prefers_a_file_of_its_own(suite: &str, takes_one: bool) {
    let Some(mut world) = World::of(suite) else { return };
    let own = "/etc/containerd/conf.d/99-verbgate.toml";
    let site = "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n\
        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
        runtime_type = \"io.containerd.runc.v2\"\n\
        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n\
        SystemdCgroup = true\n\
        [plugins.\"io.containerd.grpc.v1.cri\".registry]\nconfig_path = \"/etc/site\"\n";
    world.write(FILE, site.as_bytes());
    world
        .write("/etc/containerd/conf.d/10-debug.toml", b"version = 2\n[debug]\nlevel = \"info\"\n");
    let found = world.sh("ls -A /etc/containerd /etc/containerd/conf.d");
    let dry = world.run(&[&CONFIGURE[..], &["--dry-run"]].concat());
    assert!(dry.status.success(), "{dry:?}");
    assert_eq!(crate::common::stdout(&dry).contains("99-verbgate"), takes_one, "{dry:?}");
    assert_eq!(world.sh("ls -A /etc/containerd /etc/containerd/conf.d"), found);
    world.done(&CONFIGURE);
    assert_eq!(world.read(FILE).as_deref() == Some(site), takes_one);
    assert_eq!(world.read(own).is_some(), takes_one);
    let again = world.run(&CONFIGURE);
    assert!(stderr(&again).contains("nothing to change"), "{again:?}");
    let dump = world.done(&["containerd", "config", "dump"]);
    assert!(dump.contains("runtimes.verbgate]") && dump.contains("runtimes.runc]"), "{dump}");
    assert_eq!(dump.matches("SystemdCgroup = true").count(), 2, "{dump}");
    assert!(
        dump.contains("/etc/site")
            && dump.contains("level = 'info'") | dump.contains("level = \"info\""),
        "{dump}"
    );
    assert_eq!(cri(&mut world), "ok");
    let daemon = start(&mut world);
    world.done(&["verbgate", "runtime", "status", "--runtime=containerd"]);
    daemon.stop();
    world.done(&[&CONFIGURE[..], &["--undo"]].concat());
    assert_eq!(world.read(FILE).as_deref(), Some(site));
    assert_eq!(world.sh("ls -A /etc/containerd /etc/containerd/conf.d"), found);
}

#[test]
fn v1_6_keeps_its_settings_beside_imports() {
    prefers_a_file_of_its_own("bookworm", false);
}

#[test]
fn v1_7_keeps_its_settings_beside_imports() {
    prefers_a_file_of_its_own("trixie", false);
}

#[test]
fn v2_is_given_a_file_of_its_own() {
    prefers_a_file_of_its_own("sid", true);
}

/// A setting of the default runtime that an imported file has is a setting of ours, in whatever file ours then is.
fn copies_what_is_imported(suite: &str, takes_one: bool) {
    let Some(mut world) = World::of(suite) else { return };
    let site = "/etc/containerd/conf.d/10-cgroups.toml";
    let runc = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc";
    let site_text = format!(
        "version = 2\n{runc}]\nruntime_type = \"io.containerd.runc.v2\"\n{runc}.options]\nSystemdCgroup = true\n"
    );
    let main = "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    world.write(site, site_text.as_bytes());
    world.write(FILE, main.as_bytes());
    let output = world.run(&CONFIGURE);
    assert_eq!(output.status.success(), takes_one, "{output:?}");
    let named = ["--config", site];
    let file = if takes_one { &[][..] } else { &named };
    if !takes_one {
        assert!(stderr(&output).contains(&named.join(" ")), "{output:?}");
        world.done(&[&CONFIGURE[..], file].concat());
    }
    let dump = world.done(&["containerd", "config", "dump"]);
    assert!(dump.contains("runtimes.verbgate]"), "{dump}");
    assert_eq!(dump.matches("SystemdCgroup = true").count(), 2, "{dump}");
    assert_eq!(world.read(FILE).as_deref(), Some(main));
    assert_eq!(cri(&mut world), "ok");
    world.done(&[&CONFIGURE[..], file, &["--undo"]].concat());
    assert_eq!(world.read(site).as_deref(), Some(site_text.as_str()));
    assert_eq!(world.sh("ls -A /etc/containerd/conf.d"), "10-cgroups.toml");
}

#[test]
fn v1_6_copies_what_is_imported() {
    copies_what_is_imported("bookworm", false);
}

#[test]
fn v1_7_copies_what_is_imported() {
    copies_what_is_imported("trixie", false);
}

#[test]
fn v2_copies_what_is_imported() {
    copies_what_is_imported("sid", true);
}

/// What each containerd says of a line in words of its own.
#[test]
fn tells_the_line_of_a_mistake() {
    for suite in ["bookworm", "trixie", "sid"] {
        let Some(world) = World::of(suite) else { return };
        let text = "version = 2\nroot = 3\n";
        world.write(FILE, text.as_bytes());
        let output = world.run(&CONFIGURE);
        let why = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(why.contains(&format!("{FILE}: line 2: ")), "{suite}: {why}");
        assert!(why.contains("repair the file first"), "{suite}: {why}");
        assert_eq!(world.read(FILE).as_deref(), Some(text));
    }
}

const RUN: [&str; 3] = ["ctr", "run", "--seccomp"];
const OURS: [&str; 2] = ["--runc-binary", "/usr/bin/verbgate-oci-runc"];
const RDMA: [&str; 2] = ["--annotation", "org.verbgate.devices=mlx5_0"];

/// Whether containerd itself can run a container here, with the image that it is given; says why not.
fn works(world: &World) -> bool {
    image::make(world);
    world.done(&["ctr", "image", "import", image::ARCHIVE]);
    let native = world.run(&[&RUN[..], &["--rm", image::NAME, "native", "true"]].concat());
    if !native.status.success() {
        eprintln!("SKIPPED: containerd cannot run a container here: {}", stderr(&native));
    }
    native.status.success()
}

/// The host's `/sys` is shown to no container, also where the profile keeps it from mounting.
fn keeps_the_hosts_sys(suite: &str) {
    let Some(mut world) = World::of(suite) else { return };
    let daemon = start(&mut world);
    if !works(&world) {
        return;
    }
    let words = ["--rm", image::NAME, "sys", "sh", "-c", SYS];
    assert_sys_is_ours(&world.run(&[&RUN[..], &OURS, &RDMA, &words].concat()));
    daemon.stop();
}

#[test]
fn v1_6_keeps_the_hosts_sys_under_its_default_profile() {
    keeps_the_hosts_sys("bookworm");
}

#[test]
fn v1_7_keeps_the_hosts_sys_under_its_default_profile() {
    keeps_the_hosts_sys("trixie");
}

/// A container by `ctr`, under containerd's default seccomp profile.
fn gives_rdma(suite: &str) {
    let Some(mut world) = World::of(suite) else { return };
    let daemon = start(&mut world);
    if !works(&world) {
        return;
    }
    let with = |options: &[&str], words: &[&str]| {
        world.run(&[&RUN[..], &OURS, &RDMA, options, &[image::NAME], words].concat())
    };
    // Without a wish, nothing is changed.
    let plain = [&RUN[..], &OURS, &["--rm", image::NAME, "plain", "ls", "/dev"]].concat();
    assert!(!world.done(&plain).contains("infiniband"));
    let output = with(&["--rm"], &["nodes", "ls", "/dev/infiniband"]);
    assert_eq!(crate::common::stdout(&output), "uverbs0", "{output:?}");
    let output = with(&["--rm"], &[&["asks"][..], &image::ASK].concat());
    assert!(crate::common::stdout(&output).ends_with(image::ANSWER), "{output:?}");
    let output = with(&["--detach", "--null-io"], &["stays", "sleep", "1000"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(world.supervised().len(), 1);
    // The engine goes and comes; its containers stay, and can be ended.
    daemon.stop();
    let daemon = start(&mut world);
    assert_eq!(world.supervised().len(), 1);
    world.done(&["ctr", "task", "kill", "--signal", "SIGKILL", "stays"]);
    world.sh("until ctr task ls | grep -q STOPPED; do sleep 1; done");
    world.done(&["ctr", "task", "rm", "stays"]);
    world.done(&["ctr", "container", "rm", "stays"]);
    world.assert_nothing_left();
    daemon.stop();
}

#[test]
fn v1_6_gives_rdma_under_its_default_profile() {
    gives_rdma("bookworm");
}

#[test]
fn v1_7_gives_rdma_under_its_default_profile() {
    gives_rdma("trixie");
}
