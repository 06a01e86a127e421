//! An agent whose policy has tenants, and a policy that changes.

use verbgate_wait::until;

use super::*;

/// The operator's policy: a tenant whose name is a namespace's beginning, and the tenant's profile.
fn write_policy(dir: &Path, tenant: &str, profile: &str) {
    let text = format!(
        "version = 1\n[tenant.{tenant}]\nmatch.annotation.\"io.kubernetes.cri.sandbox-namespace\" = \
         \"{tenant}*\"\nprofile = \"{profile}\"\ndevices = [{{ name = \"uverbs9\" }}]\n"
    );
    fs::write(dir.join("tenants.toml"), text).unwrap();
}

/// A container of a namespace.
fn of_namespace(bundle: &mut Bundle, namespace: &str) {
    bundle.bind(guest::program(), "/guest");
    bundle.edit(|config| {
        let all = config["annotations"].as_object_mut().unwrap();
        all.insert("io.kubernetes.cri.sandbox-namespace".to_owned(), namespace.into());
    });
}

#[test]
fn the_agent_serves_tenants_and_nobody_else_and_survives_a_slip_in_the_policy() {
    let policies = tempfile::tempdir().unwrap();
    let agent = Agent::with(&["--policy-dir", policies.path().to_str().unwrap()]);
    for runtime in runtimes() {
        let run = |namespace: &str| {
            let mut bundle = agent.bundle(runtime, &["/guest", "types", DEVICE]);
            of_namespace(&mut bundle, namespace);
            stdout(&bundle.run_natively())
        };
        let served = |text: &str| text.contains("RC: ENOTTY");
        let told = |words: [&str; 2], from: usize| {
            until("a line of the log", || {
                let log = agent.log();
                let all = |line: &str| words.iter().all(|word| line.contains(word));
                log.lines().skip(from).any(all)
            });
        };
        write_policy(policies.path(), "team", "standard");
        let before = agent.log().lines().count();
        let text = run("other");
        assert!(!served(&text), "{text}");
        told(["no tenant", "verbgate-test-"], before);
        assert!(served(&run("team-a")), "{}", agent.log());
        write_policy(policies.path(), "team", "standart");
        let before = agent.log().lines().count();
        let text = run("team-a");
        assert!(!served(&text), "{text}");
        told(["tenants.toml:4", "standard"], before);
        write_policy(policies.path(), "team", "standard");
        assert!(served(&run("team-a")), "{}", agent.log());
    }
}

#[test]
fn a_reload_narrows_a_container_of_the_agents_and_a_directory_that_is_none_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policy.d");
    fs::create_dir(&policies).unwrap();
    let place = policies.to_str().unwrap();
    let agent = Agent::with(&["--policy-dir", place]);
    for runtime in runtimes() {
        write_policy(&policies, "team", "full");
        let mut bundle = agent.bundle(runtime, &["sleep", "infinity"]);
        of_namespace(&mut bundle, "team-a");
        bundle.natively("create", &["--bundle", bundle.path().to_str().unwrap()], &[]);
        ok(&bundle.natively("start", &[], &[]));
        until("its start", || agent.containers().first().is_some_and(|one| one["started"] == true));
        let raw = || {
            let text = ok(&bundle.natively("exec", &[], &["/guest", "types", DEVICE]));
            let line = text.lines().find_map(|line| line.strip_prefix("RAW_PACKET: "));
            line.unwrap().to_owned()
        };
        let reload = || {
            let mut command = Command::new(verbgate());
            command.arg("--root").arg(agent.dir.path()).args(["policy", "reload"]);
            command.args(["--policy-dir", place]).output().unwrap()
        };
        assert_eq!(raw(), "ENOTTY");
        // No directory, and one that others could have written: what runs keeps what it has.
        let away = folder.path().join("away");
        fs::rename(&policies, &away).unwrap();
        fs::write(&policies, "").unwrap();
        let unread = reload();
        assert!(!unread.status.success() && stderr(&unread).contains(place), "{unread:?}");
        assert_eq!(raw(), "ENOTTY");
        fs::remove_file(&policies).unwrap();
        fs::rename(&away, &policies).unwrap();
        write_policy(&policies, "team", "standard");
        fs::set_permissions(&policies, fs::Permissions::from_mode(0o777)).unwrap();
        let others = reload();
        assert!(!others.status.success() && stderr(&others).contains("chown root"), "{others:?}");
        assert_eq!(raw(), "ENOTTY");
        fs::set_permissions(&policies, fs::Permissions::from_mode(0o755)).unwrap();
        let narrowed = reload();
        assert!(stdout(&narrowed).ends_with("narrowed by standard"), "{narrowed:?}");
        assert_eq!(raw(), "EOPNOTSUPP");
        // A wider policy gives back no more than the start granted, and nothing is lost by one more reload.
        write_policy(&policies, "team", "full");
        ok(&reload());
        assert_eq!(raw(), "ENOTTY");
        bundle.natively("delete", &["--force"], &[]);
        until("its supervisor's end", || agent.containers().is_empty());
    }
}
