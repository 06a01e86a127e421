//! The preflight, and the commands that only look, as every user of a host runs them.
//!
//! Each test is a script in the host's network, with an `/etc` and a `/var/lib` of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::symlink;
use std::process::Output;

use serde_json::Value;

use crate::common::has;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use crate::world::Subnets;
use crate::world::World;

/// Changes of `/etc` and `/var/lib` go to a file system of the script's own.
const OWN_FILES: &str = r#"
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir -p "$dir/own"
mount -t tmpfs tmpfs "$dir/own"
mkdir "$dir/own/upper" "$dir/own/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$dir/own/upper,workdir=$dir/own/work" overlay /etc
rm -rf /etc/verbgate
mkdir -p -m 755 /etc/verbgate/policy.d
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$@"; }
"#;

fn world(nics: u8) -> Option<World> {
    let world = World::new(nics, Subnets::Same).filter(|_| has("setpriv"))?;
    fs::create_dir_all(world.sysfs()).unwrap();
    fs::set_permissions(world.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    Some(world)
}

/// Runs a script, in which `$verbgate` is the program, `$sys` a sysfs, and `$to` the container's process.
fn script(world: &World, lines: &str) -> Output {
    let text = format!(
        "dir={} sys={} to={} verbgate={}\n{OWN_FILES}\n{lines}",
        world.dir.path().display(),
        world.sysfs().display(),
        world.target.pid(),
        verbgate()
    );
    world.home.command(&["unshare", "--mount", "sh", "-ec", &text]).output().unwrap()
}

/// What a script prints that ends well.
fn told(world: &World, lines: &str) -> String {
    let output = script(world, lines);
    assert!(output.status.success(), "{lines}: {} {}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// The first result of a name in what `doctor --json` has printed.
fn check(all: &Value, name: &str) -> (String, String) {
    let checks = all["checks"].as_array().unwrap();
    let one =
        checks.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {all}"));
    let text = |key: &str| one[key].as_str().unwrap().to_owned();
    (text("verdict"), format!("{}; {}", text("found"), text("remedy")))
}

/// The doctor's answer in a world whose files a script has made before.
fn doctor(world: &World, before: &str) -> Value {
    let lines = format!("{before}\n$verbgate doctor --json --sysfs-root $sys || true");
    serde_json::from_str(&told(world, &lines)).unwrap()
}

/// Root's umask is one that hides new files, as many sites have it.
#[test]
fn other_users_look_after_root_has_configured() {
    let Some(world) = world(1) else { return };
    let text = told(
        &world,
        "umask 077
        $verbgate runtime configure --runtime=podman --no-verify >&2
        stat -c %a /var/lib/verbgate /var/lib/verbgate/configure-*
        nobody $verbgate netdev status
        nobody $verbgate manifest --node a --sysfs-root $sys | grep -c mlx5_0
        nobody $verbgate nccl env --sysfs-root $sys --socket-ifname eth0 | grep HCA=
        nobody $verbgate doctor --sysfs-root $sys | grep -e privilege -e 'state directory' -e skipped
        $verbgate netdev move --to $to --sysfs-root $sys --wait 0 >&2
        stat -c %a /var/lib/verbgate/netdev.json
        nobody $verbgate netdev status | head -n 1
        nobody $verbgate doctor --sysfs-root $sys | grep journal
        nobody $verbgate nccl env --sysfs-root $sys 2>&1 >&- | cut -d: -f2- || true
        $verbgate netdev restore",
    );
    let mut lines = text.lines();
    let mut next = || lines.next().unwrap_or_else(|| panic!("{text}")).trim().to_owned();
    assert_eq!([next(), next()], ["755", "600"]);
    assert_eq!(next(), "all NICs are home");
    assert_ne!(next(), "0");
    assert!(next().contains("=mlx5_0:1"), "{text}");
    assert_eq!(next(), "SKIPPED privilege: needs root");
    assert_eq!(next(), "PASS state directory: /var/lib/verbgate");
    assert!(next().contains(" failed, "), "{text}");
    assert_eq!(next(), "644");
    assert!(next().starts_with("moved to "), "{text}");
    assert_eq!(next(), "PASS journal: away: rail0");
    // The container's namespace is closed to others, which is no reason to call the container gone.
    assert!(next().contains("needs root"), "{text}");
}

#[test]
fn a_list_that_a_user_cannot_see_is_no_empty_list() {
    let Some(world) = world(0) else { return };
    let text = told(
        &world,
        "mount -t tmpfs -o mode=755 tmpfs /run
        mkdir -p /run/verbgate $dir/r
        mkdir -m 700 /run/verbgate/oci $dir/r/oci
        for verb in ps 'ps --json' stats 'stats --json'; do
            nobody $verbgate $verb 2>&1 && echo empty
            nobody $verbgate --root $dir/r $verb 2>&1 && echo empty
        done
        $verbgate --root $dir/r ps --json",
    );
    let lines: Vec<&str> = text.lines().collect();
    let (all, others) = lines.split_last().unwrap();
    assert_eq!((*all, others.len()), ("[]", 8), "{text}");
    assert!(others.iter().all(|line| line.contains("root")), "{text}");
    assert!(!text.contains("empty"), "{text}");
}

/// As versions before left it: closed to all, with journals and records that nobody else could reach.
#[test]
fn a_state_directory_that_was_closed_is_opened_by_roots_next_command() {
    let Some(world) = world(0) else { return };
    let text = told(
        &world,
        "mkdir -m 700 /var/lib/verbgate
        cd /var/lib/verbgate
        echo '{\"version\":1,\"shares\":[]}' >share.json
        echo secret >configure-0123456789abcdef.json
        chmod 600 share.json
        nobody $verbgate netdev status 2>&1 || true
        nobody $verbgate doctor --sysfs-root $sys | grep -A1 'state directory'
        $verbgate netdev status
        nobody $verbgate netdev status
        nobody $verbgate doctor --sysfs-root $sys | grep 'state directory'
        stat -c %a share.json configure-*
        nobody cat configure-* 2>/dev/null || echo closed",
    );
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("Permission denied"), "{text}");
    assert!(lines[1].starts_with("FAIL state directory: cannot read"), "{text}");
    assert!(lines[2].contains("by root"), "{text}");
    let rest =
        ["all NICs are home", "all NICs are home", "PASS state directory: /var/lib/verbgate"];
    assert_eq!(lines[3..6], rest);
    assert_eq!(lines[6..], ["644", "600", "closed"]);
}

#[test]
fn a_policy_or_profile_or_configuration_that_lets_no_container_start_fails() {
    let Some(world) = world(0) else { return };
    let good = doctor(&world, "");
    for name in ["configuration", "policy"] {
        assert_eq!(check(&good, name).0, "PASS", "{good}");
    }
    let bad = doctor(&world, "printf 'version = 1\\n[tenat.x]\\n' >/etc/verbgate/policy.d/a.toml");
    let (verdict, why) = check(&bad, "policy");
    assert!(verdict == "FAIL" && why.contains("tenat") && why.contains("policy check"), "{why}");
    let bad = doctor(&world, "echo 'profile = \"hpcc\"' >/etc/verbgate/config.toml");
    let (verdict, why) = check(&bad, "configuration");
    assert!(verdict == "FAIL" && why.contains("hpcc") && why.contains("hpc\""), "{why}");
    // A wrong value is found, too, and the cause is named once.
    for text in ["log-levl = \"info\"", "sysfs = \"mine\""] {
        let bad = doctor(&world, &format!("echo '{text}' >/etc/verbgate/config.toml"));
        let (verdict, why) = check(&bad, "configuration");
        assert!(verdict == "FAIL" && why.contains("config.toml"), "{why}");
        let failed = bad["checks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["found"].as_str().unwrap().contains("config.toml"));
        assert_eq!(failed.count(), 1, "{bad}");
    }
    // The policy is that of the directory which the file names.
    let named = doctor(
        &world,
        "mkdir -m 755 /etc/verbgate/other && printf 'version = 2\\n' >/etc/verbgate/other/a.toml
        echo 'policy-dir = \"/etc/verbgate/other\"' >/etc/verbgate/config.toml",
    );
    assert_eq!(check(&named, "policy").0, "FAIL", "{named}");
}

/// The chart's label depends on fewer checks than the doctor has, and on each of these.
#[test]
fn a_node_is_labelled_when_its_own_checks_hold() {
    let Some(world) = world(0) else { return };
    let names = |purpose: &str, before: &str| {
        let words = format!("$verbgate doctor --for {purpose} --runtime=podman --json");
        let lines = format!("{before}\n{words} --sysfs-root $sys || true");
        let all: Value = serde_json::from_str(&told(&world, &lines)).unwrap();
        let all = all["checks"].as_array().unwrap().clone();
        let of = |one: &Value| {
            format!("{} {}", one["verdict"].as_str().unwrap(), one["name"].as_str().unwrap())
        };
        all.iter().map(of).collect::<Vec<_>>()
    };
    let status = names("runtime-status", "");
    // An engine that is not ready is the answer no, where engines are the question.
    assert_eq!(status, ["FAIL podman"]);
    let label = names("node-label", "echo nonsense >/etc/verbgate/config.toml");
    for name in ["PASS kernel", "FAIL configuration", "FAIL podman"] {
        assert!(label.iter().any(|one| one == name), "{label:?}");
    }
    assert!(label.len() < names("all", "").len(), "{label:?}");
    let output = script(&world, "$verbgate runtime status --runtime=podman --json");
    assert_eq!(output.status.code(), Some(1));
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(check(&status, "podman").0, "FAIL");
}

#[test]
fn a_nic_without_a_driver_is_named_with_its_modules() {
    let Some(world) = world(0) else { return };
    let nic = |at: &str, class: &str, vendor: &str, device: &str| {
        let dir = format!("bus/pci/devices/{at}");
        for (file, text) in [("class", class), ("vendor", vendor), ("device", device)] {
            world.put(&format!("{dir}/{file}"), text);
        }
        dir
    };
    let of = || {
        let all: Value = serde_json::from_str(&stdout(&world.run(&["doctor", "--json"]))).unwrap();
        let checks = all["checks"].as_array().unwrap();
        checks.iter().any(|one| one["name"] == "NIC drivers").then(|| check(&all, "NIC drivers"))
    };
    nic("0000:01:00.0", "0x020000", "0x10ec", "0x8168");
    nic("0000:02:00.0", "0x010802", "0x15b3", "0x6001");
    assert_eq!(of(), None, "neither is a NIC that can have RDMA");
    let ours = nic("0000:81:00.0", "0x020700", "0x15b3", "0x1021");
    let (verdict, text) = of().unwrap();
    assert_eq!(verdict, "WARN");
    assert!(text.starts_with("0000:81:00.0 (15b3:1021) has no driver; "), "{text}");
    assert!(text.contains("modprobe -a mlx5_core mlx5_ib"), "{text}");
    world.put("bus/pci/drivers/mlx5_core/module", "");
    let driver = |name: &str| {
        let link = world.sysfs().join(&ours).join("driver");
        let _ = fs::remove_file(&link);
        symlink(world.sysfs().join("bus/pci/drivers").join(name), link).unwrap();
    };
    driver("mlx5_core");
    let (verdict, text) = of().unwrap();
    assert!(verdict == "WARN" && text.contains("has the driver mlx5_core and no RDMA"), "{text}");
    assert!(text.contains("modprobe -a mlx5_ib;"), "{text}");
    // Given to a virtual machine.
    driver("vfio-pci");
    assert_eq!(of(), None);
    driver("mlx5_core");
    world.put("class/infiniband/mlx5_0/node_type", "1: CA");
    let function = world.sysfs().join(&ours);
    symlink(function, world.sysfs().join("class/infiniband/mlx5_0/device")).unwrap();
    assert_eq!(of().unwrap().0, "PASS");
}

#[test]
fn the_end_says_how_many_checks_ended_how_and_the_json_says_the_same() {
    let Some(world) = world(1) else { return };
    let json =
        || -> Value { serde_json::from_str(&stdout(&world.run(&["doctor", "--json"]))).unwrap() };
    // Some checks see what other tests do on this host meanwhile.
    let (text, all) = verbgate_wait::until("two equal reports", || {
        let before = json();
        let text = stdout(&world.run(&["doctor"]));
        (json() == before).then_some((text, before))
    });
    let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    let counts = ["PASS ", "WARN ", "FAIL ", "SKIPPED "].map(count);
    let [pass, warn, fail, skipped] = counts;
    assert_eq!(counts.iter().sum::<usize>(), all["checks"].as_array().unwrap().len());
    let of = |key: &str| usize::try_from(all["counts"][key].as_u64().unwrap()).unwrap();
    assert_eq!(counts, ["pass", "warn", "fail", "skipped"].map(of));
    let last = text.lines().last().unwrap();
    let plural = if warn == 1 { "" } else { "s" };
    let begins = format!(
        "{pass} passed, {warn} warning{plural}, {fail} failed, {skipped} skipped; verbgate "
    );
    assert!(last.starts_with(&begins) && last.contains(env!("CARGO_PKG_VERSION")), "{last}");
    assert_eq!(all["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn on_a_terminal_lines_fit_and_verdicts_have_colors() {
    let Some(world) = world(0) else { return };
    if !has("script") {
        return;
    }
    let on = |before: &str| {
        let command =
            format!("stty cols 60; {before} {} doctor --sysfs-root /none || true", verbgate());
        let words = ["script", "--quiet", "--command", &command, "/dev/null"];
        stdout(&world.home.command(&words).output().unwrap())
    };
    let plain = on("NO_COLOR=1");
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let long = plain.lines().find(|line| line.trim_end().chars().count() > 60);
    // A word that is longer stays whole.
    assert!(long.is_none_or(|line| line.trim().split(' ').count() == 1), "{long:?}");
    assert!(on("NO_COLOR=").contains("\u{1b}[31mFAIL\u{1b}[0m RDMA devices: none"));
}
