//! OCI bundles for tests: a root file system that shows the host's programs, and a container in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use serde_json::Value;
use serde_json::json;
use tempfile::TempDir;
use verbgate_wait::Stalled;
use verbgate_wait::Wait;

use crate::common::NULL_AS_UVERBS;
use crate::common::has;
use crate::common::is_root;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// What [`Bundle::edit`] changes.
pub(crate) type Object = serde_json::Map<String, Value>;

/// A runtime under test.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) name: &'static str,
}

pub(crate) const RUNTIMES: [Runtime; 2] = [Runtime { name: "runc" }, Runtime { name: "crun" }];

/// The two runtimes, where they can run.
pub(crate) fn runtimes() -> impl Iterator<Item = &'static Runtime> {
    let root = is_root();
    RUNTIMES.iter().filter(move |runtime| root && has(runtime.name) && works(runtime))
}

/// Whether it can run a container here, all by itself; says so when it cannot.
fn works(runtime: &'static Runtime) -> bool {
    let output = Bundle::new(runtime, &["true"]).run_natively();
    if !output.status.success() {
        eprintln!("SKIPPED: {} cannot run a container here: {}", runtime.name, stderr(&output));
    }
    output.status.success()
}

/// Debian's crun refuses to run where version 2 of cgroups is mounted beside version 1.
const WITHOUT_UNIFIED: &str =
    "if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi; exec \"$@\"";

/// A container.
#[derive(Debug)]
pub(crate) struct Bundle {
    runtime: &'static Runtime,
    id: String,
    dir: TempDir,
    /// Words before each command, such as those that enter a namespace.
    pub(crate) prefix: Vec<String>,
    /// Options of `verbgate oci`.
    pub(crate) options: Vec<String>,
    /// Options before the command `oci`.
    pub(crate) global: Vec<String>,
    /// Stands for the runtime where that is asked for by its path.
    pub(crate) instead: Option<PathBuf>,
    /// A link by which `verbgate` is called as a runtime, without options.
    pub(crate) called: Option<PathBuf>,
}

impl Bundle {
    /// One that wishes for the null device, and runs a command.
    pub(crate) fn new(runtime: &'static Runtime, args: &[&str]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = format!("verbgate-test-{}-{number}", std::process::id());
        let bundle = Self {
            runtime,
            id,
            dir: tempfile::tempdir().unwrap(),
            prefix: Vec::new(),
            options: Vec::new(),
            global: Vec::new(),
            instead: None,
            called: None,
        };
        let root = bundle.dir.path().join("rootfs");
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                   "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
            json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]}),
        ];
        fs::create_dir_all(root.join("usr")).unwrap();
        mounts.push(bind("/usr", "/usr"));
        for name in ["bin", "sbin", "lib", "lib64"] {
            let host = Path::new("/").join(name);
            if let Ok(target) = fs::read_link(&host) {
                std::os::unix::fs::symlink(target, root.join(name)).unwrap();
            } else if host.is_dir() {
                fs::create_dir(root.join(name)).unwrap();
                mounts.push(bind(host.to_str().unwrap(), host.to_str().unwrap()));
            }
        }
        let capabilities = ["CAP_KILL", "CAP_CHOWN", "CAP_SETPCAP", "CAP_SETUID"];
        let namespaces = ["pid", "ipc", "uts", "mount", "network"];
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": args,
                "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
                "cwd": "/",
                "capabilities": {
                    "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
                },
            },
            "root": {"path": "rootfs"},
            "mounts": mounts,
            "annotations": {"org.verbgate.devices": "uverbs9"},
            "linux": {
                "namespaces": namespaces.map(|kind| json!({"type": kind})),
                "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            },
        });
        fs::write(bundle.file(), config.to_string()).unwrap();
        bundle
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("config.json")
    }

    pub(crate) fn config(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Object)) {
        let mut config: Object = serde_json::from_str(&self.config()).unwrap();
        change(&mut config);
        fs::write(self.file(), serde_json::to_string(&config).unwrap()).unwrap();
    }

    /// Shows a file of the host.
    pub(crate) fn bind(&mut self, source: &Path, destination: &str) {
        let mount = bind(source.to_str().unwrap(), destination);
        self.edit(|config| config["mounts"].as_array_mut().unwrap().push(mount));
    }

    /// A description of a process for `exec`, with what the container's own command has.
    pub(crate) fn process_file(&self, args: &[&str]) -> PathBuf {
        let config: Value = serde_json::from_str(&self.config()).unwrap();
        let mut process = config["process"].clone();
        let own = ["CAP_KILL", "CAP_CHOWN", "CAP_SETPCAP", "CAP_SETUID"];
        process["args"] = args.into();
        process["capabilities"] = json!({"bounding": own, "effective": own, "permitted": own});
        let path = self.dir.path().join("process.json");
        fs::write(&path, process.to_string()).unwrap();
        path
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn verbgate(&self) -> Vec<String> {
        vec![verbgate().into(), "--root".into(), self.root().to_str().unwrap().into()]
    }

    fn runtime(&self) -> &str {
        self.instead.as_deref().map_or(self.runtime.name, |path| path.to_str().unwrap())
    }

    fn wrapped(&self) -> Vec<String> {
        if let Some(link) = &self.called {
            return vec![link.to_str().unwrap().to_owned()];
        }
        let mut words = self.verbgate();
        words.extend(self.global.iter().cloned());
        words.extend(["oci", "--stand-in", NULL_AS_UVERBS, "--runtime"].map(Into::into));
        words.push(self.runtime().to_owned());
        words.extend(self.options.iter().cloned());
        words
    }

    /// Runs words in a mount namespace in which both runtimes work.
    fn output(&self, words: &[String], quiet: bool) -> Output {
        let mut command = self.command(words);
        if quiet {
            // What a detached container inherits would be waited for.
            let log = self.dir.path().join("stderr");
            command.stderr(fs::File::create(&log).unwrap());
            let status = verbgate_wait::end(&mut command.spawn().unwrap());
            return Output { status, stdout: Vec::new(), stderr: fs::read(log).unwrap() };
        }
        verbgate_wait::output(&mut command)
    }

    fn command(&self, words: &[String]) -> Command {
        let within = ["unshare", "--mount", "sh", "-c", WITHOUT_UNIFIED, "sh"].map(str::to_owned);
        let mut all = self.prefix.iter().chain(&within).chain(words);
        let mut command = Command::new(all.next().unwrap());
        command.args(all).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Begins to create the container, as the leader of a process group.
    pub(crate) fn begin_to_create(&self) -> Child {
        let mut words = self.wrapped();
        words.extend(["create".into(), "--bundle".into(), self.bundle(), self.id.clone()]);
        self.command(&words).spawn().unwrap()
    }

    /// The processes of the container's real runtime, of `verbgate` about it, and its own that show
    /// such words: by what pgrep(1) finds.
    pub(crate) fn processes(&self, words: &str) -> Vec<String> {
        let found = Command::new("pgrep").args(["-f", words]).output().unwrap();
        let name = self.dir.path().file_name().unwrap().to_str().unwrap().to_owned();
        let is_mine = |pid: &&str| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            line.contains(&name) || line.contains(&self.id)
        };
        let text = stdout(&found);
        text.lines().filter(is_mine).map(str::to_owned).collect()
    }

    /// Lets every user see the bundle, such as one of a user namespace.
    pub(crate) fn show_to_all(&self) {
        let root = self.dir.path().join("rootfs");
        for path in [self.dir.path(), &root] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // Where it mounts, but may make nothing.
        for name in ["proc", "sys", "dev", "tmp"] {
            fs::create_dir(root.join(name)).unwrap();
        }
    }

    /// Has commands see the bundle's directory as one that cannot be written; state is beside it.
    pub(crate) fn make_read_only(&mut self) {
        let script = "mkdir -p $1/state && mount --bind $1/state $1/state && \
                      mount --rbind $1 $1 && mount -o remount,bind,ro $1 && shift && exec \"$@\"";
        let words = ["unshare", "--mount", "sh", "-c", script, "sh"].map(str::to_owned);
        self.prefix = words.into_iter().chain([self.bundle()]).collect();
    }

    /// Its directory.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    fn bundle(&self) -> String {
        self.dir.path().to_str().unwrap().to_owned()
    }

    /// Runs the container to its end.
    pub(crate) fn run(&self) -> Output {
        let mut words = self.wrapped();
        words.extend(["run".into(), "--bundle".into(), self.bundle(), self.id.clone()]);
        self.output(&words, false)
    }

    /// The same by the runtime alone; before [`Bundle::run`] rewrites it.
    pub(crate) fn run_natively(&self) -> Output {
        let words = [self.runtime(), "run", "--bundle", &self.bundle(), &self.id];
        self.output(&words.map(Into::into), false)
    }

    /// A command of the runtime alone. What `create` leaves running inherits nothing.
    pub(crate) fn natively(&self, verb: &str, options: &[&str], args: &[&str]) -> Output {
        let mut words = vec![self.runtime.name, verb];
        words.extend(options);
        words.push(&self.id);
        words.extend(args);
        let words: Vec<String> = words.into_iter().map(Into::into).collect();
        self.output(&words, verb == "create")
    }

    pub(crate) fn create(&self) {
        let mut words = self.wrapped();
        words.extend(["create".into(), "--bundle".into(), self.bundle(), self.id.clone()]);
        let output = self.output(&words, true);
        assert!(output.status.success(), "{output:?}");
    }

    /// Creates the container, starts it, and waits until its command runs.
    pub(crate) fn start(&self) {
        self.create();
        let output = self.verb("start", &[]);
        assert!(output.status.success(), "{output:?}");
        verbgate_wait::until("the container's start", || self.ps()[0]["started"] == true);
    }

    pub(crate) fn verb(&self, verb: &str, args: &[&str]) -> Output {
        self.verb_with(verb, &[], args)
    }

    pub(crate) fn verb_with(&self, verb: &str, options: &[&str], args: &[&str]) -> Output {
        let mut words = self.wrapped();
        words.push(verb.into());
        words.extend(options.iter().map(|word| (*word).to_owned()));
        words.push(self.id.clone());
        words.extend(args.iter().map(|word| (*word).to_owned()));
        self.output(&words, false)
    }

    pub(crate) fn delete(&self) {
        let output = self.verb_with("delete", &["--force"], &[]);
        assert!(output.status.success(), "{output:?}");
    }

    /// Deletes what may not have been created.
    pub(crate) fn delete_if_there(&self) {
        let _ = self.verb_with("delete", &["--force"], &[]);
    }

    /// Has the real runtime alone forget the container: no hook is run then, but by the runtime.
    pub(crate) fn forget(&self) {
        let words = [self.runtime.name, "delete", "--force", &self.id];
        let output = self.output(&words.map(Into::into), false);
        assert!(output.status.success(), "{output:?}");
    }

    pub(crate) fn ps(&self) -> Value {
        let mut words = self.verbgate();
        words.extend(["ps".into(), "--json".into()]);
        let output = self.output(&words, false);
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }

    /// A command of `verbgate` about the containers.
    pub(crate) fn own(&self, args: &[&str]) -> Output {
        let mut words = self.verbgate();
        words.extend(args.iter().map(|arg| (*arg).to_owned()));
        self.output(&words, false)
    }

    pub(crate) fn gc(&self) -> Output {
        let mut words = self.verbgate();
        words.push("gc".into());
        // Of its options, gc has that of the journals.
        let mut options = self.options.iter();
        if options.any(|option| option == "--state-dir") {
            words.extend(["--state-dir".to_owned(), options.next().unwrap().clone()]);
        }
        self.output(&words, false)
    }

    /// No directory, no mount, no process, no socket, no control group of the container, and
    /// nothing by which its runtime would know it. With its processes its namespaces are gone: they
    /// are held by nothing else, as there is no mount of one.
    pub(crate) fn assert_nothing_left(&self) {
        self.await_no(|| [self.left(), self.left_by_runtime()].concat());
    }

    /// The same but for what the runtime itself leaves when it is killed.
    pub(crate) fn assert_nothing_of_ours_left(&self) {
        self.await_no(|| self.left());
    }

    /// The same, by `verbgate gc`, as often as it takes.
    pub(crate) fn assert_gc_leaves_nothing_of_ours(&self) {
        self.await_no(|| {
            let told = self.gc();
            assert!(told.status.success(), "{told:?}");
            self.left()
        });
    }

    fn await_no(&self, left: impl Fn() -> Vec<String>) {
        // A supervisor ends right after its container, and nobody waits for it.
        let gone = Wait::new("what is left of the container to be gone");
        let is_gone = || {
            // Control groups that the kernel held too long for a deletion are noted for the next start, deletion or gc.
            if fs::read_dir(self.root().join("held-groups"))
                .is_ok_and(|mut notes| notes.next().is_some())
            {
                self.gc();
            }
            Ok::<_, Stalled>(left().is_empty())
        };
        if let Err(stalled) = gone.try_until(is_gone) {
            panic!("left: {:?}: {stalled}", left());
        }
    }

    fn left_by_runtime(&self) -> Vec<String> {
        let of_id = Command::new("find")
            .args(["/sys/fs/cgroup", "/run/runc", "/run/crun", "-name"])
            .arg(format!("*{}*", self.id))
            .output();
        // Runc tries to remove a control group five times within a third of a second; a process that ends later, on a
        // busy machine, leaves the group behind, empty.
        let group = format!("/{}", self.id);
        let is_empty_group = |path: &&str| {
            path.starts_with("/sys/fs") && path.ends_with(&group) && fs::remove_dir(path).is_ok()
        };
        let of_id = stdout(&of_id.unwrap());
        of_id.lines().filter(|path| !is_empty_group(path)).map(Into::into).collect()
    }

    fn left(&self) -> Vec<String> {
        let places = fs::read_dir(self.root().join("oci")).into_iter().flatten().flatten();
        let mut left: Vec<String> = places.map(|place| format!("{:?}", place.path())).collect();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        left.extend(mounts.lines().filter(|line| line.contains(&self.bundle())).map(Into::into));
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        left.extend(sockets.lines().filter(|line| line.contains(&self.bundle())).map(Into::into));
        let found = Command::new("pgrep").args(["-af", &self.bundle()]).output().unwrap();
        left.extend(stdout(&found).lines().map(Into::into));
        left
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        // What a failed test has left behind.
        let output = self.verb_with("delete", &["--force"], &[]);
        if std::thread::panicking() {
            eprintln!("{}", stderr(&output));
        }
    }
}

fn bind(source: &str, destination: &str) -> Value {
    json!({"destination": destination, "type": "bind", "source": source,
           "options": ["rbind", "ro"]})
}
