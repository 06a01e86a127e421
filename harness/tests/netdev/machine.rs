//! A node as a machine: the node's network with processes, mounts and folders of its own, where the files of
//! `dist` run as they are, by the paths that the files name.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use crate::world::Net;
use crate::world::until;

/// Folders that are written to, each over the host's own: nothing of a machine is left on the host.
const OVER: &str = "for at in etc usr var/lib; do
    mkdir -p \"$over/$at/upper\" \"$over/$at/work\"
    mount -t overlay -o \"lowerdir=/$at,upperdir=$over/$at/upper,workdir=$over/$at/work\" overlay \"/$at\"
done";

/// The folder of the project.
const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The machine's first process. `/sys` is a tree of files, and `/dev` has two nodes of RDMA.
const BOOT: &str = r#"
sysfs=$1 over=$2 tool=$3 name=$4 checkout=$5
mount --make-rprivate /
hostname "$name"
mount -t tmpfs tmpfs /run
OVER
mkdir -p /run/dev /var/lib/verbgate
mount -t tmpfs tmpfs /run/dev
cd /dev && cp -R --preserve=mode null zero full random urandom tty /run/dev && cd /
mkdir /run/dev/infiniband
mknod /run/dev/fuse c 10 229
for n in 0 1; do mknod "/run/dev/infiniband/uverbs$n" c 1 3; done
mount --move /run/dev /dev
mount --bind "$sysfs" /sys
: >>/usr/bin/verbgate
mount --bind "$tool" /usr/bin/verbgate
# Processes of all machines have the same numbers, by which some call their temporary files. The checkout may be there.
mkdir /run/checkout
mount --bind "$checkout" /run/checkout
mount -t tmpfs tmpfs /tmp
[ -e "$checkout" ] || { mkdir -p "$checkout"; mount --bind /run/checkout "$checkout"; }
: >/run/booted
exec sleep infinity
"#;

/// A pod's first process.
const POD: &str = r#"
over=$1 pod=$2
shift 2
mount --make-rprivate /
hostname "$pod"
mkdir -p "$over" "/run/pods/$pod"
mount -t tmpfs tmpfs "$over"
cd "$over"
mkdir upper work root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
cd root
for at in proc sys dev; do mount --rbind "/$at" "$at"; done
mount --bind "/run/pods/$pod" run
put() {
    mkdir -p "${2%/*}"
    : >>"$2"
    mount --bind "$1" "$2"
}
FILES
exec chroot . "$@"
"#;

pub(crate) struct Machine {
    pub(crate) name: String,
    boot: Child,
    /// The number of its first process.
    init: String,
    dir: PathBuf,
}

impl Machine {
    /// `home` is the machine's network, `sysfs` its `/sys`, and `dir` a folder for what the machine writes.
    pub(crate) fn new(name: &str, home: &Net, sysfs: &Path, dir: &Path) -> Self {
        for n in 0..2 {
            let folder = sysfs.join(format!("class/infiniband_verbs/uverbs{n}"));
            fs::create_dir_all(&folder).unwrap();
            for (file, text) in [("ibdev", format!("mlx5_{n}")), ("dev", format!("1:{}", 3 + n))] {
                fs::write(folder.join(file), text + "\n").unwrap();
            }
            fs::write(folder.join("abi_version"), "1\n").unwrap();
        }
        let mut command = home.command(&["unshare", "--mount", "--pid", "--fork", "--uts"]);
        command.args(["--mount-proc", "--kill-child", "sh", "-ec", &BOOT.replace("OVER", OVER)]);
        command.arg("sh").arg(sysfs).arg(dir.join("over")).arg(tool()).arg(name).arg(CHECKOUT);
        let boot = command.stdout(Stdio::null()).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", boot.id());
        let mut init = String::new();
        until("a machine", || {
            init = fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
            !init.is_empty() && Path::new(&format!("/proc/{init}/root/run/booted")).exists()
        });
        Self { name: name.to_owned(), boot, init, dir: dir.to_owned() }
    }

    /// A file of the machine, as it is seen from outside.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        format!("/proc/{}/root{path}", self.init).into()
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.file(path)).unwrap_or_default()
    }

    /// A command in the machine, with an environment of its own and nobody at the terminal.
    pub(crate) fn command(&self, argv: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init, "--mount", "--pid", "--net", "--uts", "--"]);
        command.args(argv).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    pub(crate) fn run(&self, argv: &[&str]) -> Output {
        self.command(argv).output().unwrap()
    }

    pub(crate) fn ok(&self, argv: &[&str]) -> String {
        let output = self.run(argv);
        assert!(output.status.success(), "{}: {argv:?}: {}", self.name, stderr(&output));
        stdout(&output)
    }

    /// A command in a pod: with a root of its own, which is the host's under the image's files. `files` puts
    /// these there, in the current folder; the pod's `/run` is the machine's `/run/pods/POD`.
    pub(crate) fn pod(&self, pod: &str, files: &str, argv: &[String]) -> Command {
        let script = POD.replace("FILES", files);
        let mut command = self.command(&["unshare", "--mount", "--uts", "sh", "-ec", &script]);
        command.arg("sh").arg(self.dir.join(pod)).arg(pod).args(argv);
        command
    }
}

impl Drop for Machine {
    /// All its processes end with the first.
    fn drop(&mut self) {
        let _ = self.boot.kill();
        let _ = self.boot.wait();
    }
}

/// The program, without what only debuggers read: each node of a cluster gets a copy.
pub(crate) fn tool() -> PathBuf {
    static TOOL: OnceLock<PathBuf> = OnceLock::new();
    let small = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // One file for all tests, of which none replaces what another's machines run.
        let built = fs::metadata(verbgate()).and_then(|file| file.modified()).unwrap();
        let built = built.duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let tool = folder.join(format!("verbgate-{built}"));
        if tool.exists() {
            return tool;
        }
        let others = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        let is_of_another_build =
            |path: &PathBuf| *path != tool && path.to_string_lossy().contains("/verbgate-");
        others.filter(is_of_another_build).for_each(|path| drop(fs::remove_file(path)));
        let made = tempfile::NamedTempFile::new_in(folder).unwrap().into_temp_path();
        let strip = Command::new("strip").arg("-o").arg(&made).arg(verbgate()).status();
        if !strip.is_ok_and(|status| status.success()) {
            return verbgate().into();
        }
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).unwrap();
        // Another test may have been quicker.
        let _ = fs::hard_link(&made, &tool);
        tool
    };
    TOOL.get_or_init(small).clone()
}
