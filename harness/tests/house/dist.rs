//! The files for packages and operators: the tool that reads a file checks the file.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use crate::common::chart::read;
use crate::common::chart::rendered;
use crate::common::has;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use serde_json::Value;

fn dist() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/dist"))
}

/// The files of a directory of `dist` that end so.
fn files(dir: &str, end: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(dist().join(dir)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = all.filter(|path| path.to_str().unwrap().ends_with(end)).collect();
    files.sort();
    assert!(!files.is_empty(), "{dir}");
    files
}

fn silent(output: &Output) {
    let text = stdout(output) + &stderr(output);
    assert!(output.status.success() && text.is_empty(), "{text}");
}

#[test]
fn systemd_takes_the_units() {
    if !has("systemd-analyze") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for unit in files("systemd", "") {
        let text = fs::read_to_string(&unit).unwrap().replace("/usr/bin/verbgate", verbgate());
        fs::write(dir.path().join(unit.file_name().unwrap()), text).unwrap();
    }
    let units = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let output = Command::new("systemd-analyze").args(["--man=no", "verify"]).args(units).output();
    silent(&output.unwrap());
}

/// After an installation, the units are enabled that do nothing where there is nothing to do, and no others.
#[test]
fn the_preset_names_every_unit() {
    if !has("systemctl") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let put = |dir: &str, file: &Path| {
        let to = root.path().join("usr/lib/systemd").join(dir);
        fs::create_dir_all(&to).unwrap();
        fs::copy(file, to.join(file.file_name().unwrap())).unwrap();
    };
    let units = files("systemd", "");
    units.iter().for_each(|unit| put("system", unit));
    put("system-preset", &dist().join("90-verbgate.preset"));
    let names: Vec<&str> =
        units.iter().map(|unit| unit.file_name().unwrap().to_str().unwrap()).collect();
    let mut preset = Command::new("systemctl");
    let output = preset.arg("--root").arg(root.path()).arg("preset").args(&names).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let enabled = |name: &&&str| {
        let mut asked = Command::new("systemctl");
        let asked = asked.arg("--root").arg(root.path()).args(["is-enabled", name]).output();
        stdout(&asked.unwrap()) == "enabled"
    };
    let enabled: Vec<&str> = names.iter().filter(enabled).copied().collect();
    let wanted = [
        "verbgate-cdi.path",
        "verbgate-cdi.service",
        "verbgate-gc.service",
        "verbgate-netdev-restore.service",
    ];
    assert_eq!(enabled, wanted);
    // Without a line of its own, a unit would be enabled on some distributions and not on others.
    let text = fs::read_to_string(dist().join("90-verbgate.preset")).unwrap();
    for name in names {
        assert!(text.lines().any(|line| line.ends_with(&format!("able {name}"))), "{name}");
    }
}

/// The policy module is compiled and packed by SELinux's own tools. No test loads the module: that needs a kernel
/// with SELinux, and the policy of containers.
#[test]
fn selinux_compiles_the_policy_module() {
    if !has("checkmodule") || !has("semodule_package") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let from = |name: &str| dist().join("selinux").join(name);
    let mut check = Command::new("checkmodule");
    check.args(["-M", "-m", "-o"]).arg(path("verbgate.mod")).arg(from("verbgate.te"));
    assert!(check.output().unwrap().status.success(), "{:?}", check.output());
    let mut pack = Command::new("semodule_package");
    pack.arg("-o").arg(path("verbgate.pp")).arg("-m").arg(path("verbgate.mod"));
    let output = pack.arg("-f").arg(from("verbgate.fc")).output().unwrap();
    assert!(output.status.success() && path("verbgate.pp").exists(), "{output:?}");
    // Nothing that is a supervisor's is given to a container.
    let rules = fs::read_to_string(from("verbgate.te")).unwrap();
    let given = |line: &&str| line.starts_with("allow container_t verbgate");
    assert_eq!(rules.lines().filter(given).count(), 0);
}

/// A command that a unit starts is one that there is.
#[test]
fn units_and_scripts_call_commands_that_there_are() {
    let mut calls = 0;
    let scripts = files("", ".sh").into_iter().chain(files("systemd", ".service"));
    for file in scripts.chain(files("debian", "")).chain(files("kubernetes", ".sh")) {
        let text = fs::read_to_string(&file).unwrap();
        for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with('#')) {
            for (at, _) in line.match_indices("verbgate ") {
                let before = line[..at].chars().next_back().unwrap_or(' ');
                let is_command = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
                let words = line[at..].split_whitespace().skip(1).take(2).take_while(is_command);
                let words: Vec<&str> = words.collect();
                if !" =/'(".contains(before) || words.is_empty() {
                    continue;
                }
                let output = Command::new(verbgate()).args(&words).arg("--help").output().unwrap();
                assert!(output.status.success(), "{}: verbgate {words:?}", file.display());
                calls += 1;
            }
        }
    }
    assert!(calls > 8, "{calls}");
}

/// A help page calls the command by all words that a user types.
#[test]
fn help_pages_say_how_their_commands_are_called() {
    for words in
        [&["oci", "profile"][..], &["runtime", "configure"], &["cdi", "generate"], &["oci"]]
    {
        let output = Command::new(verbgate()).args(words).arg("--help").output().unwrap();
        let usage = format!("Usage: verbgate {} ", words.join(" "));
        assert!(stdout(&output).contains(&usage), "{usage}: {output:?}");
    }
    // An option that there is not: the error, too.
    let output = Command::new(verbgate()).args(["oci", "profile", "--no-such"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("verbgate oci profile"), "{text}");
}

#[test]
fn shellcheck_finds_nothing_in_the_scripts() {
    if !has("shellcheck") {
        return;
    }
    let worlds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/containers/engines/world.sh");
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/xtask/engines/lab.sh");
    let scripts = files("", ".sh").into_iter().chain(files("debian", ""));
    let scripts = scripts.chain(files("kubernetes", ".sh")).chain([worlds, lab]);
    silent(&Command::new("shellcheck").args(scripts).output().unwrap());
}

/// The prolog undoes what it did when it fails, and the epilog goes on after a step that fails.
#[test]
fn slurms_scripts_bring_nics_home_whatever_fails() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let fake = |failing: &str| {
        // Stands for the command, of which only the calls are of interest.
        let text = format!(
            "#!/bin/sh\necho \"$*\" >>{}\ncase \"$*\" in {failing}*) exit 1;; esac\n",
            log.display()
        );
        fs::write(dir.path().join("verbgate"), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir.path().join("verbgate"), mode).unwrap();
    };
    let run = |script: &str| {
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .arg(dist().join(script))
            .env("PATH", path)
            .env("SLURM_JOB_ID", format!("test-{}", std::process::id()))
            .output()
            .unwrap();
        let calls = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        (output.status.code(), calls.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    fake("prepare");
    let (code, calls) = run("slurm-prolog.sh");
    assert_eq!((code, calls.last().unwrap().as_str()), (Some(1), "netdev restore"), "{calls:?}");
    fake("netdev");
    let (code, calls) = run("slurm-epilog.sh");
    assert_eq!((code, calls), (Some(1), vec!["netdev restore".to_owned(), "gc".to_owned()]));
    fake("nothing");
    assert_eq!(run("slurm-epilog.sh").0, Some(0));
}

#[test]
fn pages_and_completions_are_there_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    silent(
        &Command::new(verbgate()).arg("pages").arg(dir.path()).arg("2026-01-31").output().unwrap(),
    );
    let pages: Vec<PathBuf> =
        fs::read_dir(dir.path().join("man")).unwrap().map(|entry| entry.unwrap().path()).collect();
    for name in ["verbgate", "verbgate-agent", "verbgate-netdev-move", "verbgate-runtime-configure"]
    {
        assert!(pages.contains(&dir.path().join(format!("man/{name}.1"))), "{name}: {pages:?}");
    }
    assert!(!pages.iter().any(|page| page.to_str().unwrap().contains("hook")), "{pages:?}");
    for (shell, file) in [("bash", "verbgate"), ("zsh", "_verbgate")] {
        if has(shell) {
            let file = dir.path().join("completions").join(file);
            silent(&Command::new(shell).arg("-n").arg(file).output().unwrap());
        }
    }
    if has("mandoc") {
        silent(
            &Command::new("mandoc").args(["-Tlint", "-Wwarning"]).args(&pages).output().unwrap(),
        );
    }
}

/// Every document of the YAML files, as JSON.
fn documents() -> Option<Vec<Value>> {
    let mut all = read(&files("kubernetes", ".yaml"))?;
    all.extend(rendered(&[])?);
    Some(all)
}

#[test]
fn kubernetes_files_are_of_one_piece() {
    let Some(all) = documents() else { return };
    let of = |kind: &str| all.iter().filter(|one| one["kind"] == kind).collect::<Vec<_>>();
    let versions = [
        ("RuntimeClass", "node.k8s.io/v1", 1),
        ("ServiceAccount", "v1", 1),
        ("ClusterRole", "rbac.authorization.k8s.io/v1", 1),
        ("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", 1),
        ("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1", 1),
        ("ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1", 1),
        ("DaemonSet", "apps/v1", 1),
        ("Service", "v1", 2),
        ("Job", "batch/v1", 1),
        ("Pod", "v1", 2),
    ];
    for (kind, version, count) in versions {
        assert!(of(kind).iter().all(|one| one["apiVersion"] == version), "{kind}");
        assert_eq!(of(kind).len(), count, "{kind}");
    }
    assert_eq!(all.len(), versions.iter().map(|(.., count)| count).sum::<usize>());
    for one in &all {
        let name = one["metadata"]["name"].as_str().unwrap();
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
    }
    let class = of("RuntimeClass")[0];
    assert_eq!(class["handler"], "verbgate");
    let daemon = &of("DaemonSet")[0]["spec"];
    assert_eq!(daemon["selector"]["matchLabels"], daemon["template"]["metadata"]["labels"]);
    let spec = &daemon["template"]["spec"];
    let volumes: Vec<&Value> =
        spec["volumes"].as_array().unwrap().iter().map(|v| &v["name"]).collect();
    assert_eq!(of("ClusterRoleBinding")[0]["subjects"][0]["namespace"], "site");
    for container in spec["containers"].as_array().unwrap() {
        for mount in container["volumeMounts"].as_array().unwrap() {
            assert!(volumes.contains(&&mount["name"]), "{mount}");
        }
    }
    let service = &of("Service")[0]["spec"]["selector"];
    for (rank, pod) in of("Pod").into_iter().enumerate() {
        let spec = &pod["spec"];
        assert_eq!(spec["runtimeClassName"], class["metadata"]["name"]);
        assert_eq!(&pod["metadata"]["labels"], service);
        assert_eq!(spec["hostname"], pod["metadata"]["name"]);
        assert_eq!(spec["subdomain"], of("Service")[0]["metadata"]["name"]);
        assert!(pod["metadata"]["annotations"]["org.verbgate.devices"].is_string());
        // The command as it is, but for an end: it waits for the other rank.
        let container = &spec["containers"][0];
        let words = ["command", "args"].map(|key| container[key].as_array().unwrap().clone());
        let words: Vec<String> =
            words.concat().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
        assert_eq!(words[words.len() - 3..], [&rank.to_string(), "--ranks", "2"]);
        let parsed = Command::new(verbgate()).args(&words[1..]).arg("--nonsense").output().unwrap();
        assert!(stderr(&parsed).contains("'--nonsense'"), "{parsed:?}");
    }
}

/// The values reach the node, and a chart that takes itself back runs nothing else.
#[test]
fn the_chart_does_as_its_values_say() {
    let values =
        [("uninstall", "yes"), ("admission", "no"), ("engine", "crio"), ("restartEngine", "yes")];
    let Some(all) = rendered(&values) else { return };
    assert!(!all.iter().any(|one| one["kind"] == "ValidatingAdmissionPolicy"));
    let daemon = all.iter().find(|one| one["kind"] == "DaemonSet").unwrap();
    let container = &daemon["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], serde_json::json!(["uninstall"]));
    let value = |name: &str| {
        let all = container["env"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!((value("ENGINE"), value("RESTART")), ("crio".into(), "yes".into()));
    // What the node's script reads is given.
    let script = fs::read_to_string(dist().join("kubernetes/node.sh")).unwrap();
    for name in ["NODE", "ENGINE", "RUNTIME", "RESTART", "DRA", "KUBELET"] {
        assert!(script.contains(&format!("${name}")) || script.contains(&format!("${{{name}")));
        value(name);
    }
}

/// The driver has its rights, its folders and its class, and goes with the chart.
#[test]
fn the_chart_has_a_driver_where_one_is_asked_for() {
    let Some(all) = rendered(&[("dra", "v1"), ("kubelet", "/data/kubelet")]) else { return };
    let of = |kind: &str| all.iter().find(|one| one["kind"] == kind).unwrap();
    assert_eq!(of("DeviceClass")["apiVersion"], "resource.k8s.io/v1");
    let expression = &of("DeviceClass")["spec"]["selectors"][0]["cel"]["expression"];
    assert_eq!(*expression, format!("device.driver == \"{}\"", verbgate_dra::DRIVER));
    let rules = of("ClusterRole")["rules"].to_string();
    assert!(rules.contains("resourceslices") && rules.contains("resourceclaims"), "{rules}");
    let spec = &of("DaemonSet")["spec"]["template"]["spec"];
    let driver = &spec["containers"][1];
    let words = ["command", "args"].map(|key| driver[key].as_array().unwrap().clone()).concat();
    let words: Vec<&str> = words.iter().skip(1).map(|word| word.as_str().unwrap()).collect();
    let parsed = Command::new(verbgate()).args(&words).arg("--nonsense").output().unwrap();
    assert!(stderr(&parsed).contains("'--nonsense'"), "{parsed:?}");
    assert!(words.contains(&"--kubelet-dir=/data/kubelet"), "{words:?}");
    for mount in driver["volumeMounts"].as_array().unwrap() {
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|one| one["name"] == mount["name"]).unwrap();
        // The kubelet finds the driver's socket by the path that the driver says.
        let path = volume["hostPath"]["path"].as_str().unwrap();
        let inside = mount["mountPath"].as_str().unwrap();
        assert_eq!(inside.strip_prefix("/host").unwrap_or(inside), path);
        let option = format!("--sysfs-root={inside}");
        assert!(inside == path || words.contains(&&*option), "{words:?}");
    }
    let gone = rendered(&[("dra", "v1"), ("uninstall", "yes")]).unwrap();
    let daemon = gone.iter().find(|one| one["kind"] == "DaemonSet").unwrap();
    assert_eq!(daemon["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
}

/// The image is made of what there is: no tool that reads the file is in Debian.
#[test]
fn the_image_is_made_of_what_there_is() {
    let text = fs::read_to_string(dist().join("docker/Dockerfile")).unwrap();
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<(&str, &str)> = lines.map(|line| line.split_once(' ').unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["FROM", "RUN", "COPY", "COPY", "COPY", "RUN", "CMD"]);
    for (_, files) in &lines[3..5] {
        let from = files.split_once(' ').unwrap().0.strip_prefix("harness/dist/").unwrap();
        assert!(dist().join(from).is_file(), "{from}");
    }
    assert_eq!(lines[2].1, "target/release/verbgate /usr/bin/verbgate");
    let command: Vec<String> = serde_json::from_str(lines[6].1).unwrap();
    assert_eq!(command, ["ibv_devinfo"]);
    for (_, script) in lines.iter().filter(|(name, _)| *name == "RUN") {
        silent(&Command::new("sh").args(["-n", "-c", script]).output().unwrap());
    }
    let known = fs::read_dir("/var/lib/apt/lists").into_iter().flatten().flatten();
    let mut known = known.map(|list| list.file_name().to_string_lossy().into_owned());
    if !known.any(|list| list.contains("_Packages")) {
        eprintln!("SKIPPED: needs apt's lists, to look packages up: apt-get update");
        return;
    }
    let packages = lines[1].1.split("--no-install-recommends").nth(1).unwrap();
    let packages = packages.split("&&").next().unwrap().split_whitespace();
    let packages: Vec<&str> = packages.collect();
    let shown = Command::new("apt-cache").arg("policy").args(&packages).output().unwrap();
    assert_eq!(stdout(&shown).matches("Candidate:").count(), packages.len(), "{shown:?}");
}

/// What the package is made of is there, or is made by what says how.
#[test]
fn the_package_has_all_its_files() {
    let manifest: toml::Value = toml::from_str(include_str!("../../Cargo.toml")).unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut units = Vec::new();
    for asset in deb["assets"].as_array().unwrap() {
        let source = asset[0].as_str().unwrap();
        if source.starts_with("target/") {
            continue;
        }
        assert!(fs::symlink_metadata(root.join(source.trim_end_matches("/*"))).is_ok(), "{source}");
        units.extend(source.strip_prefix("dist/systemd/").map(str::to_owned));
    }
    let scripts = root.join(deb["maintainer-scripts"].as_str().unwrap());
    for script in files("debian", "") {
        assert_eq!(script.parent(), Some(scripts.as_path()));
        let mode = fs::metadata(&script).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o755, "{script:?}");
    }
    units.sort();
    let known: Vec<String> = files("systemd", "")
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(units, known);
}
