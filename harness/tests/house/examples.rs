//! The policies in the documents, each in force: whoever is a tenant there makes a request that is granted, and
//! one that is refused; nobody else gets RDMA.

use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use crate::common::NULL_AS_UVERBS;
use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::guest;
use crate::common::is_root;
use crate::common::output;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use tempfile::TempDir;

/// Who a tenant of an example is.
enum Who {
    /// A container of a namespace, in a control group.
    Container { namespace: &'static str, group: Option<&'static str> },
    /// A container with a claim whose DeviceClass names a tenant.
    Claim { of: &'static str },
    /// A program of a user, in a unit.
    Program { uid: u32, unit: &'static str },
}

/// A tenant of a document, and lines of `verbgate-guest types` for its sandboxes: a granted request and a
/// refused one. The null device stands in for the NIC, and answers all that comes through with ENOTTY.
struct Example {
    page: &'static str,
    tenant: &'static str,
    who: Who,
    granted: &'static str,
    refused: &'static str,
}

const TEAM_A: Who = Who::Container { namespace: "team-a", group: None };

const EXAMPLES: &[Example] = &[
    Example {
        page: "harness/README.md",
        tenant: "team-a",
        who: TEAM_A,
        granted: "RC: ENOTTY",
        refused: "UD: EOPNOTSUPP",
    },
    Example {
        page: "harness/dist/policy/example.toml",
        tenant: "team-a",
        who: TEAM_A,
        granted: "RC: ENOTTY",
        refused: "UC: EOPNOTSUPP",
    },
    Example {
        page: "harness/dist/policy/example.toml",
        tenant: "training",
        who: Who::Container { namespace: "training-7", group: Some("/kubepods.slice/rank-0") },
        granted: "PD: ENOTTY",
        refused: "RC: EOPNOTSUPP",
    },
    Example {
        page: "harness/dist/policy/example.toml",
        tenant: "gold",
        who: Who::Claim { of: "gold" },
        granted: "RC: ENOTTY",
        refused: "UD: EOPNOTSUPP",
    },
    Example {
        page: "harness/dist/policy/example.toml",
        tenant: "jobs",
        who: Who::Program { uid: 1000, unit: "job-77.service" },
        granted: "UD: ENOTTY",
        refused: "RAW_PACKET: EOPNOTSUPP",
    },
];

impl Who {
    /// Writes into a container's configuration who the container is, as an engine does.
    fn is_asked_for(&self, config: &mut Map<String, Value>) {
        match self {
            Self::Container { namespace, group } => {
                let key = "io.kubernetes.cri.sandbox-namespace";
                config["annotations"][key] = (*namespace).into();
                if let Some(group) = group {
                    config["linux"]["cgroupsPath"] = (*group).into();
                }
            }
            Self::Claim { of } => {
                let record = json!({"claim": "ml/nics", "tenant": of}).to_string();
                let args = ["verbgate", "cdi-hook", "--claim", &record];
                let hook = json!({"path": verbgate(), "args": args});
                config.insert("hooks".to_owned(), json!({"createRuntime": [hook]}));
            }
            Self::Program { .. } => {}
        }
    }
}

/// Whole files, which begin with a version, with the page that has each.
fn examples() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    let pages = [
        "README.md",
        "SECURITY.md",
        "THREATS.md",
        "CONTRIBUTING.md",
        "harness/README.md",
        "harness/dist/kubernetes/README.md",
    ];
    for page in pages {
        let text = fs::read_to_string(root.join(page)).unwrap();
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            if block.starts_with("version") {
                found.push((page.to_owned(), block.to_owned()));
            }
        }
    }
    for dir in ["harness/dist/policy", "harness/dist/kubernetes"] {
        let entries = fs::read_dir(root.join(dir)).unwrap();
        let is_policy = |path: &PathBuf| path.extension().is_some_and(|word| word == "toml");
        for path in entries.map(|entry| entry.unwrap().path()).filter(is_policy) {
            let page = path.strip_prefix(root).unwrap().display().to_string();
            found.push((page, fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// A directory that only root can write, with one file.
fn policy(text: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("example.toml");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

fn command(args: &[&str], dir: &Path) -> Output {
    output(Command::new(verbgate()).args(args).arg("--policy-dir").arg(dir))
}

/// The names of an example's tenants, as `policy check` lists them.
fn tenants(page: &str, dir: &Path) -> Vec<String> {
    let checked = command(&["policy", "check"], dir);
    assert!(checked.status.success(), "{page}: {checked:?}");
    let lines = stdout(&checked);
    let names = lines.lines().filter_map(|line| line.strip_prefix("tenant ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_example_of_the_documents_is_in_force_as_the_documents_say() {
    if !is_root() {
        return;
    }
    let examples = examples();
    assert!(examples.len() >= 2, "{examples:?}");
    for (page, text) in examples {
        let dir = policy(&text);
        let tenants = tenants(&page, dir.path());
        assert!(!tenants.is_empty(), "{page}");
        for tenant in &tenants {
            let explained = command(&["policy", "explain", tenant], dir.path());
            assert!(explained.status.success(), "{page}: {explained:?}");
            // What is printed is a profile, and one that says the same.
            let text = stdout(&explained);
            assert!(text.contains("rules.peer_qp = { min = 2 }"), "{page}: {text}");
            let is_it = |one: &&Example| one.page == page && one.tenant == tenant;
            assert_eq!(EXAMPLES.iter().filter(is_it).count(), 1, "{page}: {tenant}: no example");
        }
        // The tests' own program is nobody's tenant there.
        let words = ["run", "--device", NULL_AS_UVERBS, "--policy-dir"];
        let mut refused = Command::new(verbgate());
        let refused = output(refused.args(words).arg(dir.path()).args(["--", "true"]));
        assert_eq!(refused.status.code(), Some(125), "{page}: {refused:?}");
        assert!(stderr(&refused).contains("no tenant"), "{page}: {refused:?}");
    }
}

/// The text of an example, whose devices are the one that stands in here.
fn with_stand_in(page: &str) -> String {
    let (_, text) = examples().into_iter().find(|(one, _)| one == page).unwrap();
    text.replace("\"mlx5_3\"", "\"uverbs9\"").replace("\"mlx5_*\"", "\"uverbs*\"")
}

/// The control group of a unit, in all hierarchies that tell of units; removed with this.
struct Unit(Vec<PathBuf>);

impl Unit {
    fn new(name: &str) -> Self {
        let hierarchies = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"];
        let roots = hierarchies.iter().map(Path::new);
        let groups: Vec<PathBuf> = roots
            .filter(|root| root.join("cgroup.procs").exists())
            .map(|root| root.join(name))
            .collect();
        groups.iter().for_each(|group| fs::create_dir_all(group).unwrap());
        Self(groups)
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        for group in &self.0 {
            guest::eventually("the end of a unit", || match fs::remove_dir(group) {
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => Err(e),
                _ => Ok(()),
            });
        }
    }
}

/// What the program of a user prints in a unit.
fn program(dir: &Path, uid: u32, unit: &str) -> Output {
    let unit = Unit::new(unit);
    let home = tempfile::tempdir().unwrap();
    // Readable by the user, wherever the build is.
    let copies = ["verbgate", "verbgate-guest"].map(|name| home.path().join(name));
    fs::copy(verbgate(), &copies[0]).unwrap();
    fs::copy(guest::program(), &copies[1]).unwrap();
    fs::set_permissions(home.path(), Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new("sh");
    let script = "for group in $1; do echo $$ >$group/cgroup.procs; done; shift; exec \"$@\"";
    let groups: Vec<String> = unit.0.iter().map(|group| group.display().to_string()).collect();
    command.args(["-c", script, "sh", &groups.join(" ")]);
    command.args(["setpriv", "--reuid", &uid.to_string(), "--clear-groups"]);
    command.arg(&copies[0]).arg("--root").arg(home.path().join("run"));
    command.args(["run", "--policy-dir"]).arg(dir).args(["--device", NULL_AS_UVERBS, "--"]);
    output(command.arg(&copies[1]).args(["types", guest::DEVICE]).current_dir("/"))
}

#[test]
fn each_tenant_of_an_example_makes_a_granted_request_and_a_refused_one() {
    for runtime in runtimes() {
        for example in EXAMPLES {
            let Example { page, tenant, who, granted, refused } = example;
            let dir = policy(&with_stand_in(page));
            let ended = match who {
                Who::Program { uid, unit } => program(dir.path(), *uid, unit),
                Who::Container { .. } | Who::Claim { .. } => {
                    let mut bundle = Bundle::new(runtime, &["/guest", "types", guest::DEVICE]);
                    bundle.bind(guest::program(), "/guest");
                    let dir = dir.path().to_str().unwrap();
                    bundle.options.extend(["--policy-dir", dir].map(Into::into));
                    bundle.edit(|config| who.is_asked_for(config));
                    let ended = bundle.run();
                    bundle.assert_nothing_left();
                    ended
                }
            };
            let text = stdout(&ended);
            for line in [granted, refused] {
                let has = text.lines().any(|one| one == *line);
                assert!(has, "{page}: {tenant}: no {line:?}: {ended:?}");
            }
        }
    }
}
