//! `verbgate policy`, and the operator's policy in force: for `run` and for containers.

use std::fs;
use std::fs::Permissions;
use std::io::BufRead as _;
use std::io::BufReader;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use serde_json::Value;
use serde_json::json;
use tempfile::TempDir;

use crate::common::NULL_AS_UVERBS;
use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::guest;
use crate::common::is_root;
use crate::common::output;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// A directory that only root can write, with one file.
fn policy(text: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), text);
    dir
}

fn write(dir: &Path, text: &str) {
    let file = dir.join("10-tenants.toml");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
}

/// A tenant whom the user of this test is.
fn own(rest: &str) -> String {
    format!("version = 1\n[tenant.own]\nmatch.uid = 0\n{rest}\n")
}

fn command(args: &[&str], dir: &Path) -> Output {
    output(Command::new(verbgate()).args(args).arg("--policy-dir").arg(dir))
}

fn reload(root: &Path, dir: &Path) -> Output {
    let mut command = Command::new(verbgate());
    command.arg("--root").arg(root).args(["policy", "reload", "--policy-dir"]);
    output(command.arg(dir))
}

fn run_in(dir: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(verbgate());
    command.args(["run", "--policy-dir"]).arg(dir).args(options);
    output(command.args(["--device", NULL_AS_UVERBS, "--", "echo", "served"]))
}

#[test]
fn run_gives_a_tenant_the_tenants_devices_and_nobody_else_any() {
    if !is_root() {
        return;
    }
    let of = |text: &str| run_in(policy(text).path(), &[]);
    let mine = own("profile = \"standard\"\ndevices = [{ name = \"uverbs9\" }]");
    assert_eq!(stdout(&of(&mine)), "served");
    let refusals = [
        (own("profile = \"standard\"\ndevices = [{ name = \"uverbs8\" }]"), "tenant \"own\""),
        (mine.replace("uid = 0", "uid = 12345"), "no tenant"),
        ("version = 1\n".to_owned(), "no tenant"),
        (mine.replace("devices", "device"), "10-tenants.toml:5"),
    ];
    for (text, word) in refusals {
        let output = of(&text);
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{text}: {line}");
        assert!(line.contains(word) && line.lines().count() == 1, "{text}: {line}");
    }
    // Without the directory, the command line decides, as ever.
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(stdout(&run_in(&dir.path().join("none"), &[])), "served");
    // What others could have written is no policy.
    let dir = policy(&mine);
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    assert!(stderr(&run_in(dir.path(), &[])).contains("chown root"));
}

#[test]
fn a_policy_is_checked_and_explained_before_and_while_it_is_in_force() {
    if !is_root() {
        return;
    }
    let text = own("profile = \"mine\"\ndevices = [{ name = \"mlx5_*\", ports = [1] }]\n\
                    [profile.mine]\nextends = \"hpc\"\nremove.qp_types = [\"UD\"]");
    let dir = policy(&text);
    let checked = command(&["policy", "check"], dir.path());
    let file = dir.path().join("10-tenants.toml");
    let place = format!("tenant own ({}:2)", file.display());
    assert_eq!(stdout(&checked), format!("profile mine\n{place}"), "{checked:?}");
    let explained = stdout(&command(&["policy", "explain", "own"], dir.path()));
    for line in [&*format!("# {place}"), "name = \"mine\"", "remove.qp_types = [\"UD\"]"] {
        assert!(explained.lines().any(|one| one == line), "{line}: {explained}");
    }
    let wrong = command(&["policy", "explain", "onw"], dir.path());
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("did you mean \"own\""), "{wrong:?}");
    // A file that is not in force yet may be anybody's.
    let draft = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    fs::write(draft.path(), text.replace("[\"UD\"]", "[\"DU\"]")).unwrap();
    let wrong = output(Command::new(verbgate()).args(["policy", "check"]).arg(draft.path()));
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains(":8: there is no queue pair type \"DU\""), "{wrong:?}");
    // A broken pipe before it is no success.
    let mut empty = Command::new(verbgate());
    let empty = output(empty.args(["policy", "test", "-"]).stdin(Stdio::null()));
    assert_eq!(empty.status.code(), Some(1));
    assert!(stderr(&empty).contains("nothing was tried"), "{empty:?}");
    let none = command(&["policy", "check"], &dir.path().join("none"));
    assert!(stderr(&none).contains("no operator's policy is in force"), "{none:?}");
}

#[test]
fn all_of_the_configuration_is_checked_at_once() {
    if !is_root() {
        return;
    }
    let wrong = policy(&own("profil = \"hpc\"\ndevices = [{ name = \"*\" }]\n[tenat.x]"));
    let file = wrong.path().join("config.conf");
    let check = |text: &str, policies: &Path, options: &[&str]| {
        fs::write(&file, text).unwrap();
        let mut command = Command::new(verbgate());
        command
            .args(["config", "check"])
            .args(options)
            .arg(&file)
            .arg("--policy-dir")
            .arg(policies);
        output(&mut command)
    };
    let text = "profile = \"hpcc\"\n\nlog-levl = \"info\"\n";
    let checked = check(text, wrong.path(), &[]);
    let told = stderr(&checked);
    for place in [
        "config.conf:1: ",
        "config.conf:3: unknown key \"log-levl\"; did you mean \"log-level\"?",
        "10-tenants.toml:4: ",
        "10-tenants.toml:6: ",
        "4 slips",
    ] {
        assert_eq!(told.matches(place).count(), 1, "{place}: {told}");
    }
    assert_eq!((checked.status.code(), told.lines().count()), (Some(1), 5), "{told}");
    let json: Value =
        serde_json::from_str(&stdout(&check(text, wrong.path(), &["--json"]))).unwrap();
    assert_eq!((json.as_array().unwrap().len(), &json[1]["line"]), (4, &json!(3)));
    let empty = tempfile::tempdir().unwrap();
    let right = check("profile = \"hpc\"\n", empty.path(), &[]);
    assert!(right.status.success() && stdout(&right).contains("config.conf: 1 keys"), "{right:?}");
    let missing = check("profile = \"hpc\"\n", &empty.path().join("none"), &[]);
    assert!(stderr(&missing).contains("none is no directory"), "{missing:?}");
    let both = command(&["policy", "check"], wrong.path());
    assert!(stderr(&both).contains(".toml:4: ") && stderr(&both).contains(".toml:6: "), "{both:?}");
    // What is broken is not put in force.
    fs::write(&file, text).unwrap();
    let applied = output(Command::new(verbgate()).args(["config", "apply"]).arg(&file));
    assert!(
        !applied.status.success() && stderr(&applied).contains("stays as it is"),
        "{applied:?}"
    );
    let shown = output(Command::new(verbgate()).args(["config", "show", "--json"]));
    let shown: Value = serde_json::from_str(&stdout(&shown)).unwrap();
    let keys: Vec<&str> =
        shown.as_array().unwrap().iter().filter_map(|one| one["key"].as_str()).collect();
    assert!(keys.contains(&"profile") && keys.contains(&"root") && keys.len() == 15, "{keys:?}");
}

#[test]
fn a_request_of_a_trace_is_tried() {
    let invoke = "{\"driver\": 1, \"method\": \"DEVICE.INVOKE_WRITE\", \"attributes\": [\
        {\"name\": \"CORE_IN\", \"id\": 0, \"bytes\": \"00000000000000000000000000000000\
        00000000000000000000000000000000\"}, \
        {\"name\": \"CORE_OUT\", \"id\": 1, \"room\": 64}, \
        {\"name\": \"WRITE_CMD\", \"id\": 2, \"bytes\": \"NN00000000000000\"}]}";
    // IB_USER_VERBS_CMD_ALLOC_PD and _ATTACH_MCAST.
    let (pd, multicast) = (invoke.replace("NN", "03"), invoke.replace("NN", "1e"));
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    let test =
        |request: &str, profile| command(&["policy", "test", request, "--profile", profile], &none);
    let granted = test(&pd, "standard");
    assert_eq!((stdout(&granted).as_str(), granted.status.code()), ("ALLOC_PD: granted", Some(0)));
    let refused = test(&multicast, "standard");
    assert_eq!(refused.status.code(), Some(1));
    let line = stdout(&refused);
    assert!(line.contains("ATTACH_MCAST: refused with EOPNOTSUPP"), "{line}");
    assert!(line.contains("profile \"hpc\" grants it"), "{line}");
    assert_eq!(test(&multicast, "hpc").status.code(), Some(0));
    // CREATE_AH by port 2.
    let handle = invoke.replace("NN", "05").replace(&"0".repeat(64), &("0".repeat(109) + "200"));
    let handle = handle.replacen('{', "{\"device\": \"uverbs9\", ", 1);
    for (ports, said) in [
        ("[1]", "refused with EPERM: CREATE_AH: attr.port_num = 2: port not granted"),
        ("[2]", "granted; not judged: quota.ah = 4 (it takes 1; what the tenant holds)"),
    ] {
        let devices = format!("devices = [{{ name = \"uverbs9\", ports = {ports} }}]");
        let dir = policy(&own(&format!("profile = \"standard\"\nrules.quota.ah = 4\n{devices}")));
        let tried = command(&["policy", "test", &handle, "--tenant", "own"], dir.path());
        assert_eq!(stdout(&tried), format!("CREATE_AH: {said}"), "{tried:?}");
    }
    for request in ["QP_CREATE(...)", "{}", &pd.replace("DEVICE.INVOKE", "DEVICE.INVOKED")] {
        let error = test(request, "standard");
        assert_eq!(error.status.code(), Some(1), "{request}");
        assert!(stderr(&error).starts_with("verbgate: "), "{error:?}");
    }
}

/// The tenant of the containers of these tests.
fn namespace(name: &str, rest: &str) -> String {
    format!(
        "version = 1\n[tenant.{name}]\nmatch.annotation.\"io.kubernetes.cri.sandbox-namespace\" = \
         \"{name}*\"\ndevices = [{{ name = \"uverbs9\" }}]\n{rest}\n"
    )
}

/// The operator's policy, as an engine's configuration gives it to the runtime.
fn under(bundle: &mut Bundle, dir: &Path, namespace: &str) {
    bundle.options.extend(["--policy-dir", dir.to_str().unwrap()].map(Into::into));
    bundle.edit(|config| {
        let all = config["annotations"].as_object_mut().unwrap();
        all.insert("io.kubernetes.cri.sandbox-namespace".to_owned(), namespace.into());
    });
}

#[test]
fn a_container_gets_its_tenants_policy_and_is_only_narrowed_by_a_reload() {
    for runtime in runtimes() {
        let dir = policy(&namespace("team", "profile = \"hpc\""));
        let mut bundle = Bundle::new(runtime, &["sleep", "1000"]);
        under(&mut bundle, dir.path(), "team-a");
        bundle.start();
        let shown: Value = bundle.ps();
        assert_eq!(shown[0]["profile"], json!("hpc"), "{shown}");
        let place = dir.path().to_str().unwrap();
        let reload = || bundle.own(&["policy", "reload", "--policy-dir", place]);
        write(dir.path(), &namespace("team", "profile = \"standard\""));
        let narrowed = reload();
        assert!(stdout(&narrowed).ends_with("narrowed by standard"), "{narrowed:?}");
        // A slip, or a tenant that is gone, changes nothing for what runs.
        write(dir.path(), &namespace("team", "profile = \"standart\""));
        assert!(stderr(&reload()).contains("10-tenants.toml:5"), "{:?}", reload());
        write(dir.path(), &namespace("other", "profile = \"standard\""));
        let gone = reload();
        assert!(stderr(&gone).contains("keeps its policy"), "{gone:?}");
        assert_eq!(bundle.ps()[0]["profile"], json!("hpc"));
        bundle.delete();
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_container_of_no_tenant_does_not_start_with_rdma() {
    for runtime in runtimes() {
        let dir = policy(&namespace("team", "profile = \"standard\""));
        for (namespace, word) in [("other", "no tenant"), ("team-b", "")] {
            let mut bundle = Bundle::new(runtime, &["echo", "served"]);
            under(&mut bundle, dir.path(), namespace);
            let output = bundle.run();
            if word.is_empty() {
                assert_eq!(stdout(&output), "served", "{output:?}");
            } else {
                assert!(!output.status.success(), "{output:?}");
                assert!(stderr(&output).contains(word), "{output:?}");
            }
            bundle.delete_if_there();
        }
    }
}

/// A guest of `verbgate run` that makes its steps when it is told to.
struct Steps {
    child: std::process::Child,
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Steps {
    fn start(dir: &Path, root: &Path, count: &str) -> Self {
        let mut command = Command::new(verbgate());
        command.arg("--root").arg(root).args(["run", "--policy-dir"]).arg(dir);
        command.args(["--device", NULL_AS_UVERBS, "--"]).arg(guest::program());
        command.args(["quota", guest::DEVICE, count]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said }
    }

    fn tell(&mut self, step: &str) -> String {
        writeln!(self.child.stdin.as_ref().unwrap(), "{step}").unwrap();
        self.said.next().unwrap().unwrap()
    }

    /// What the supervisor has said by the end.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        stderr(&output)
    }
}

fn with_rules(rules: &str) -> String {
    own(&format!(
        "profile = \"standard\"\ndevices = [{{ name = \"uverbs9\" }}]\n[tenant.own.rules]\n{rules}"
    ))
}

#[test]
fn all_sandboxes_of_a_tenant_share_a_quota_that_close_kill_and_death_give_back() {
    if !is_root() {
        return;
    }
    let (dir, root) = (policy(&with_rules("quota.ucontexts = 4")), tempfile::tempdir().unwrap());
    let start = || Steps::start(dir.path(), root.path(), "9");
    let mut one = start();
    assert_eq!(one.tell("open"), "own: 4 opens, then EAGAIN");
    // The kernel ends an open a moment after its last descriptor is closed; who opens next waits for no
    // clock, since the ends that have been told are looked at before each open.
    let until = |steps: &mut Steps, step: &str, wanted: &str| {
        verbgate_wait::until(wanted, || steps.tell(step) == wanted);
    };
    until(&mut one, "open", "own: 4 opens, then EAGAIN");
    assert!(one.tell("child").starts_with("child: "));
    // The child was killed with all that it had opened.
    let killed = one.said.next().unwrap().unwrap();
    assert!(killed.contains('9'), "{killed}");
    until(&mut one, "open", "own: 4 opens, then EAGAIN");
    let mut two = start();
    until(&mut two, "keep", "kept: 4 opens, then EAGAIN");
    until(&mut one, "open", "own: 0 opens, then EAGAIN");
    // As when the machine runs out of memory: nobody gives anything back.
    two.child.kill().unwrap();
    two.child.wait().unwrap();
    until(&mut one, "open", "own: 4 opens, then EAGAIN");
    let said = one.end();
    let line = said.lines().find(|line| line.contains("quota.ucontexts = 4"));
    assert!(line.is_some_and(|line| line.contains("raise the quota")), "{said}");
}

#[test]
fn requests_beyond_the_rate_fail_or_wait_as_the_policy_says() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let run = |rate: &str| {
        let dir = policy(&with_rules(&format!("rate = {{ {rate} }}")));
        let mut steps = Steps::start(dir.path(), root.path(), "60");
        let begun = std::time::Instant::now();
        let said = steps.tell("request");
        (said, begun.elapsed(), steps.end())
    };
    let (said, took, log) = run("per_s = 1, burst = 10, exceed = \"EAGAIN\"");
    let again = said.split("\"EAGAIN\": ").nth(1).and_then(|rest| rest.split(['}', ',']).next());
    let again: u32 = again.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    // The first plants, and each second grants one.
    assert!(again <= 50 && u64::from(again) + took.as_secs() >= 30, "{said} in {took:?}");
    assert!(log.contains("rate.per_s = 1") && log.contains("raise the rate"), "{log}");
    let (said, took, _) = run("per_s = 20, burst = 20, exceed = \"wait\"");
    assert_eq!(said, "requests: {\"ENOTTY\": 60}");
    assert!(took.as_millis() >= 1500, "{took:?}: 60 requests, 20 of them at once, 20 a second");
}

#[test]
fn a_reload_narrows_a_program_that_runs_and_never_widens_what_the_program_started_with() {
    if !is_root() {
        return;
    }
    let rules = |most: u32| with_rules(&format!("quota.ucontexts = {most}"));
    let (dir, root) = (policy(&rules(4)), tempfile::tempdir().unwrap());
    let mut steps = Steps::start(dir.path(), root.path(), "9");
    let until = |steps: &mut Steps, wanted: &str| {
        verbgate_wait::until(wanted, || steps.tell("open") == wanted);
    };
    until(&mut steps, "own: 4 opens, then EAGAIN");
    let place = dir.path();
    let reload = || reload(root.path(), place);
    let narrowed = |output: &Output| {
        let said = stdout(output);
        assert!(output.status.success(), "{output:?}");
        assert!(said.starts_with("process ") && said.ends_with(": narrowed by standard"), "{said}");
    };
    write(place, &rules(2));
    narrowed(&reload());
    until(&mut steps, "own: 2 opens, then EAGAIN");
    // A slip changes nothing; where the slip is, and what is in force, is said.
    write(place, &rules(1).replace("ucontexts", "ucontext"));
    let slip = reload();
    assert_eq!(slip.status.code(), Some(1), "{slip:?}");
    for word in ["10-tenants.toml:7", "tenant own keeps the policy in force, profile standard"] {
        assert!(stderr(&slip).contains(word), "{word}: {slip:?}");
    }
    until(&mut steps, "own: 2 opens, then EAGAIN");
    write(place, &rules(9));
    narrowed(&reload());
    until(&mut steps, "own: 4 opens, then EAGAIN");
    steps.end();
    let nobody = reload();
    assert!(nobody.status.success() && stdout(&nobody).is_empty(), "{nobody:?}");
}

#[test]
fn a_reload_takes_devices_away_of_which_nothing_new_is_made() {
    if !is_root() {
        return;
    }
    let of =
        |name: &str| own(&format!("profile = \"standard\"\ndevices = [{{ name = {name:?} }}]"));
    let (dir, root) = (policy(&of("uverbs*")), tempfile::tempdir().unwrap());
    let mut steps = Steps::start(dir.path(), root.path(), "3");
    assert_eq!(steps.tell("keep"), "kept: 3 opens, then none refused");
    assert_eq!(steps.tell("again"), "again: ENOTTY");
    let reload = |device: &str| {
        write(dir.path(), &of(device));
        let output = reload(root.path(), dir.path());
        assert!(stdout(&output).ends_with(": narrowed by standard"), "{output:?}");
    };
    reload("uverbs8");
    assert_eq!(steps.tell("open"), "own: 0 opens, then EACCES");
    assert_eq!(steps.tell("again"), "again: EPERM");
    // And given back: of what the start had granted.
    reload("*");
    assert_eq!(steps.tell("open"), "own: 3 opens, then none refused");
    assert_eq!(steps.tell("again"), "again: ENOTTY");
    let said = steps.end();
    for word in ["open uverbs9: the operator's policy has this device no more", "policy reload"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}
