//! `verbgate sysfs`, and the `/sys` of `verbgate run`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use verbgate_sysfs_fixtures::Fixture;

use crate::common;
use crate::common::is_root;
use crate::common::output;
use crate::common::run_sh;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// A fixture in memory, and a place for files beside it.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new(fixture: &str) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir(dir.path().join("sys")).unwrap();
        Fixture::named(fixture).unwrap().write(&dir.path().join("sys")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn sysfs(&self, args: &[&str]) -> Output {
        let args =
            args.iter().map(|arg| arg.replace("@", &format!("{}/", self.dir.path().display())));
        output(Command::new(verbgate()).arg("sysfs").args(args))
    }
}

fn ok(output: &Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    stdout(output)
}

/// The line of a failure, which is one.
fn failure(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let line = stderr(output);
    assert!(!line.contains('\n') && line.starts_with("verbgate: "), "{line}");
    line
}

#[test]
fn a_snapshot_goes_its_way() {
    let host = Host::new("hgx");
    ok(&host.sysfs(&["snapshot", "--root", "@sys", "-o", "@all"]));
    let shown = ok(&host.sysfs(&["show", "--snapshot", "@all"]));
    assert_eq!(shown, ok(&host.sysfs(&["show", "--root", "@sys"])));
    let at = |word: &str| shown.find(word).unwrap_or_else(|| panic!("{word} in {shown}"));
    // A NIC and its GPU behind one switch, with its GIDs below it.
    assert!(at("0000:08:00.0 bridge") < at("0000:0c:00.0 NIC 15b3:1021 x16"));
    assert!(at("mlx5_0 RDMA device uverbs0") < at("GID 3 ::ffff:10.0.0.0 RoCE v2 enp12s0np0"));
    assert!(at("0000:e1:00.0 switch") > at("0000:9a:00.1 NIC"));
    let json: serde_json::Value =
        serde_json::from_str(&ok(&host.sysfs(&["show", "--root", "@sys", "--json"]))).unwrap();
    assert_eq!(json[0]["name"], "pci0000:07");
    assert_eq!(json[0]["children"][0]["type"], "bridge");

    // Reduced, it shows the rest no more.
    ok(&host.sysfs(&[
        "select",
        "--snapshot",
        "@all",
        "--device",
        "mlx5_10",
        "--no-gpus",
        "-o",
        "@one",
    ]));
    let one = ok(&host.sysfs(&["show", "--snapshot", "@one"]));
    assert!(one.contains("mlx5_10") && !one.contains("mlx5_1 ") && !one.contains("GPU"), "{one}");
    let changes = host.sysfs(&["diff", "@one", "@all"]);
    assert_eq!(changes.status.code(), Some(1));
    assert!(stdout(&changes).lines().all(|line| line.starts_with("+ ")), "{changes:?}");
    assert_eq!(ok(&host.sysfs(&["diff", "@all", "@all"])), "");
    ok(&host.sysfs(&["materialise", "--snapshot", "@one", "@tree"]));
    let names: Vec<_> = fs::read_dir(host.path("tree/class/infiniband")).unwrap().collect();
    assert_eq!(names.len(), 1);
}

#[test]
fn it_is_said_why() {
    let host = Host::new("nic_without_gids");
    let explain = |args: &[&str]| ok(&host.sysfs(&[&["explain", "--root", "@sys"], args].concat()));
    assert_eq!(
        explain(&["mlx5_1"]),
        "mlx5_1 hidden: no GID; give the device's interface an address, and bring the interface up"
    );
    assert_eq!(
        explain(&["0000:2a:00.0"]),
        "0000:2a:00.0 hidden: the RDMA device (mlx5_1) is hidden"
    );
    let other = explain(&["--device", "uverbs1", "mlx5_0", "enp12s0np0"]);
    let expected =
        "mlx5_0 hidden: not granted\nenp12s0np0 hidden: the RDMA device (mlx5_0) is hidden";
    assert_eq!(other, expected);
}

#[test]
fn bad_input_is_named_in_one_line() {
    let host = Host::new("vmd_domain");
    for (args, words) in [
        (&["explain", "--root", "@sys", "mlx5_9"][..], &["mlx5_9"][..]),
        (&["select", "--root", "@sys", "--device", "nope"], &["nope", "sysfs show"]),
        (&["show", "--root", "@nowhere"], &["nowhere"]),
        (&["show", "--snapshot", "@nowhere"], &["nowhere"]),
        (&["materialise", "--root", "@sys", "@sys"], &["sys", "not empty"]),
        (&["serve", "--root", "@sys", "@nowhere"], &["nowhere", "directory"]),
    ] {
        let line = failure(&host.sysfs(args), 1);
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    fs::write(host.path("bad"), "{\"version\": 9}").unwrap();
    let line = failure(&host.sysfs(&["show", "--snapshot", "@bad"]), 1);
    assert!(line.contains("version 9") && line.contains("verbgate sysfs snapshot"), "{line}");
    fs::write(host.path("bad"), "{\"version\": 1, \"dev").unwrap();
    let line = failure(&host.sysfs(&["show", "--snapshot", "@bad"]), 1);
    assert!(line.contains("cut off"), "{line}");
    failure(&host.sysfs(&["show", "--snapshot", "@bad", "--root", "@sys"]), 2);
    failure(&host.sysfs(&["nonsense"]), 2);
}

/// Whether FUSE can be mounted here; says so when it cannot.
fn has_fuse() -> bool {
    let fuse = is_root() && PathBuf::from("/dev/fuse").exists();
    if !fuse {
        eprintln!("SKIPPED: needs root and /dev/fuse (modprobe fuse)");
    }
    fuse
}

/// Serves a fixture in a mount namespace of its own and does something in the mount: the script
/// finds the server's process in `$server`, and itself in the mount.
fn while_served(host: &Host, options: &str, script: &str) -> Output {
    let served = format!(
        "mkdir {dir}/mnt && {verbgate} sysfs serve {options} {dir}/mnt & server=$!
         tries=0
         until grep -q {dir}/mnt /proc/self/mounts; do
             tries=$((tries + 1)); [ $tries -lt 2000 ] || exit 99; sleep 0.05
         done
         cd {dir}/mnt
         {script}",
        dir = host.dir.path().display(),
        verbgate = verbgate(),
    );
    output(Command::new("unshare").args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        &served,
    ]))
}

#[test]
fn what_is_served_is_what_is_materialised() {
    if !has_fuse() {
        return;
    }
    let host = Host::new("hgx");
    ok(&host.sysfs(&["snapshot", "--root", "@sys", "-o", "@all"]));
    ok(&host.sysfs(&["materialise", "--root", "@sys", "--device", "mlx5_3", "@plain"]));
    for source in ["--root", "--snapshot"] {
        let file = host.path(if source == "--root" { "sys" } else { "all" });
        let compare = format!(
            // What sysfs says of a file's size is not what can be read of it.
            "diff -r --no-dereference --exclude config . {plain} && find . | wc -l
             find . -name config | while read file; do cmp - {plain}/$file <$file || exit 97; done
             touch x 2>&1
             # Although this is in the way.
             kill $server && wait $server
             cd / && rmdir {mnt}",
            plain = host.path("plain"),
            mnt = host.path("mnt")
        );
        let done = while_served(&host, &format!("{source} {file} --device mlx5_3"), &compare);
        let text = stdout(&done);
        assert!(done.status.success(), "{done:?}");
        let count: usize =
            text.lines().next().unwrap().parse().unwrap_or_else(|_| panic!("{done:?}"));
        assert!(count > 1000 && text.contains("Read-only file system"), "{text}");
    }
}

/// Who may not read a file on the host may not read it there; and what tells the machine from every
/// other is not there.
#[test]
fn a_served_file_keeps_its_mode() {
    if !has_fuse() || !common::has("setpriv") {
        return;
    }
    let host = Host::new("hgx");
    ok(&host.sysfs(&["snapshot", "--root", "@sys", "-o", "@all"]));
    for source in ["--root", "--snapshot"] {
        let file = host.path(if source == "--root" { "sys" } else { "all" });
        let script = format!(
            "dir=class/dmi/id; ls $dir; cat $dir/product_serial 2>&1 | grep -o 'No such file.*'
             guarded=module/nvidia/parameters/guarded; stat -c '%a %u:%g' $guarded; cat $guarded
             setpriv --reuid 65534 --regid 65534 --clear-groups cat $guarded 2>&1 |
                 grep -o 'Permission denied'
             kill $server && wait $server
             cd / && rmdir {mnt}",
            mnt = host.path("mnt")
        );
        let done = while_served(&host, &format!("{source} {file}"), &script);
        let text = stdout(&done);
        let expected = [
            "product_name",
            "sys_vendor",
            "No such file or directory",
            "440 0:0",
            "S3CRET-1234",
            "Permission denied",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{source}: {done:?}");
    }
}

#[test]
fn a_live_tree_follows_the_host() {
    if !has_fuse() {
        return;
    }
    let host = Host::new("nic_without_gids");
    let nic = "devices/pci0000:28/0000:28:01.0/0000:2a:00.0";
    let script = format!(
        "cd {dir}/mnt; sys={dir}/sys
         soon() {{
             tries=0
             until \"$@\"; do tries=$((tries + 1)); [ $tries -lt 2000 ] || exit 98; sleep 0.05; done
         }}
         not() {{ ! \"$@\"; }}
         ls class/infiniband
         # A value.
         echo 9: NEW >$sys/class/infiniband/mlx5_0/ports/1/state
         cat class/infiniband/mlx5_0/ports/1/state
         # A NIC that becomes usable: an interface, and a GID of it.
         mkdir -p $sys/{nic}/net/eth9; echo 1500 >$sys/{nic}/net/eth9/mtu
         ln -s ../../../0000:2a:00.0 $sys/{nic}/net/eth9/device
         ln -s ../../{nic}/net/eth9 $sys/class/net/eth9
         port=$sys/{nic}/infiniband/mlx5_1/ports/1
         mkdir -p $port/gid_attrs/ndevs; echo eth9 >$port/gid_attrs/ndevs/0
         echo fe80:0000:0000:0000:0000:0000:0000:0001 >$port/gids/0
         soon test -e class/infiniband/mlx5_1
         cat class/net/eth9/mtu class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0
         # And one that vanishes.
         exec 3<class/infiniband/mlx5_0/node_guid
         first=devices/pci0000:0a/0000:0a:01.0/0000:0c:00.0/infiniband
         mv $sys/class/infiniband/mlx5_0 {dir}/link; rm $sys/class/infiniband_verbs/uverbs0
         mv $sys/$first {dir}/infiniband
         soon not test -e class/infiniband/mlx5_0
         soon not test -e class/infiniband_verbs/uverbs0
         cat <&3 2>&1
         ls class/infiniband
         # It comes back: the kernel may know its files from before.
         mv {dir}/infiniband $sys/$first; mv {dir}/link $sys/class/infiniband/mlx5_0
         soon test -e class/infiniband/mlx5_0
         cat $first/mlx5_0/ports/1/state
         # A server that dies leaves errors, and nobody waiting.
         kill -9 $server
         soon not cat class/infiniband/mlx5_1/node_guid 2>/dev/null
         cat class/infiniband/mlx5_1/node_guid 2>&1
         exec 3<&-; cd /; umount {dir}/mnt",
        dir = host.dir.path().display(),
    );
    let done = while_served(&host, &format!("--root {}", host.path("sys")), &script);
    let text = stdout(&done);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..5],
        ["mlx5_0", "9: NEW", "1500", "eth9", "cat: -: No such device"],
        "{done:?}"
    );
    assert_eq!(lines[5..7], ["mlx5_1", "9: NEW"], "{done:?}");
    assert!(lines[7].ends_with("Transport endpoint is not connected"), "{done:?}");
    assert_eq!((lines.len(), done.status.code()), (8, Some(0)), "{done:?}");
}

#[test]
fn a_program_sees_the_virtual_one() {
    if !has_fuse() {
        return;
    }
    let script = "grep -o ' /sys fuse' /proc/mounts; ls -d /sys/class/infiniband /sys/fs/cgroup
        cat /sys/devices/system/cpu/online /sys/class/net/lo/mtu; ls /sys/bus/pci/devices | wc -l
        ls /sys/kernel/debug /sys/firmware 2>&1 | wc -l; echo 1 >/sys/class/net/lo/mtu";
    let inside = output(&mut run_sh(script));
    let text = stdout(&inside);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let mtu = fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
    let mut expected = vec![" /sys fuse", "/sys/class/infiniband", "/sys/fs/cgroup"];
    expected.extend([online.trim(), mtu.trim()]);
    assert_eq!(text.lines().take(5).collect::<Vec<_>>(), expected, "{inside:?}");
    assert!(stderr(&inside).contains("Read-only file system"), "{inside:?}");
}

#[test]
fn it_can_be_turned_off() {
    let options = ["run", "--device", common::NULL_AS_UVERBS, "--sysfs", "host", "--"];
    let mut command = Command::new(verbgate());
    let inside = output(command.args(options).args(["grep", "-c", " /sys fuse", "/proc/mounts"]));
    assert_eq!(stdout(&inside), "0", "{inside:?}");
}

/// A supervisor that is killed takes its guest's `/sys` along, and nobody waits.
#[test]
fn a_dead_supervisor_leaves_errors() {
    if !has_fuse() {
        return;
    }
    let script = "kill -9 $PPID; tries=0
        while cat /sys/class/net/lo/mtu >/dev/null 2>&1; do
            tries=$((tries + 1)); [ $tries -lt 2000 ] || exit 98; sleep 0.05
        done
        cat /sys/class/net/lo/mtu 2>/dev/null || echo gone";
    let inside = output(&mut run_sh(script));
    assert_eq!(stdout(&inside), "gone", "{inside:?}");
}
