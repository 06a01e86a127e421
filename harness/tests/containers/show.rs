//! `verbgate show` and `verbgate stats` of a running container.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::process::Output;

use serde_json::Value;
use verbgate_wait::until;

use crate::common::bundle;
use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::guest;
use crate::common::output;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

fn tell(bundle: &Bundle, args: &[&str]) -> Output {
    let root = bundle.path().join("state");
    Command::new(verbgate()).arg("--root").arg(root).args(args).output().unwrap()
}

#[test]
fn counters_are_served_on_a_socket_and_take_no_other_files_place() {
    let dir = tempfile::tempdir().unwrap();
    let stats = |path: &str| {
        let mut command = Command::new(verbgate());
        command.current_dir(&dir).arg("--root").arg(dir.path()).args(["stats", "--listen", path]);
        output(&mut command)
    };
    for port in [":9999", "127.0.0.1:9999"] {
        let told = stats(port);
        assert!(!told.status.success() && stderr(&told).contains("Unix socket"), "{told:?}");
        assert!(!dir.path().join(port).exists());
    }
    std::fs::write(dir.path().join("file"), "kept").unwrap();
    let told = stats("./file");
    assert!(!told.status.success() && stderr(&told).contains("no socket"), "{told:?}");
    assert!(dir.path().join("file").exists());
}

/// A container that has the device open twice, and its id.
fn started(runtime: &'static bundle::Runtime) -> (Bundle, String) {
    // A shell would give the descriptors other numbers, which are known when they are used only.
    let node = guest::DEVICE;
    let script = format!("open(my $a, '+<', '{node}') && open(my $b, '+<', '{node}') && sleep");
    let bundle = Bundle::new(runtime, &["perl", "-e", &script]);
    bundle.start();
    let id = bundle.ps()[0]["id"].as_str().unwrap().to_owned();
    until("two opens", || {
        let output = tell(&bundle, &["show", &id, "--json"]);
        let one: Value = serde_json::from_slice(&output.stdout).unwrap();
        one["served"][0]["opened"] == 2
    });
    (bundle, id)
}

#[test]
fn what_a_container_holds_is_shown_to_people_and_programs() {
    for runtime in runtimes() {
        let (bundle, id) = started(runtime);
        let output = tell(&bundle, &["show", &id, "--json"]);
        let one: Value = serde_json::from_slice(&output.stdout).unwrap();
        let served = &one["served"][0];
        assert_eq!((&served["ucontext_count"], &one["devices"][0]), (&2.into(), &"uverbs9".into()));
        assert_eq!(served["ucontexts"][1]["device"], "uverbs9");
        assert_eq!(served["processes"][0]["pinned"], 0);
        let text = stdout(&tell(&bundle, &["show", &id]));
        assert_eq!(text.matches("ucontext    ").count(), 2, "{text}");
        let output = tell(&bundle, &["show", "nonsense"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("verbgate ps"), "{output:?}");
        let output = tell(&bundle, &["stats"]);
        let text = stdout(&output);
        for line in [
            "verbgate_sandboxes 1".to_owned(),
            format!("verbgate_opened_total{{sandbox=\"{id}\"}} 2"),
            format!("verbgate_ucontexts{{sandbox=\"{id}\"}} 2"),
            format!("verbgate_supervised{{sandbox=\"{id}\"}} 1"),
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
        let all: Value =
            serde_json::from_slice(&tell(&bundle, &["stats", "--json"]).stdout).unwrap();
        assert_eq!(all[0]["id"], one["id"]);
        bundle.delete();
        let text = stdout(&tell(&bundle, &["stats"]));
        assert!(text.contains("verbgate_sandboxes 0"), "{text}");
        bundle.assert_nothing_left();
    }
}

/// Its network is one that Verbgate has put no NIC into, and so no rules.
#[test]
fn the_doctor_names_a_container_with_rdma_whose_network_has_no_rules() {
    for runtime in runtimes() {
        let (bundle, id) = started(runtime);
        let state = bundle.path().join("netdev");
        let doctor = || {
            let words = ["doctor", "--sysfs-root", "/nonexistent", "--state-dir"];
            let told = tell(&bundle, &[&words[..], &[state.to_str().unwrap()]].concat());
            let told = stdout(&told);
            told.lines().find(|line| line.contains(" container networks: ")).unwrap().to_owned()
        };
        let hole = "programs can send RoCE by plain sockets, and from any address";
        assert_eq!(doctor(), format!("WARN container networks: container {id} ({hole})"));
        bundle.delete();
        assert_eq!(doctor(), "PASS container networks: none has a NIC or RDMA");
    }
}

/// The supervisor's socket for onlookers is nowhere in the container.
#[test]
fn a_container_does_not_reach_what_shows_it() {
    for runtime in runtimes() {
        let (bundle, _) = started(runtime);
        let output = bundle.verb(
            "exec",
            &["sh", "-c", "find / /dev -xdev -type s; ls -d /dev/.verbgate; echo end"],
        );
        assert_eq!(stdout(&output), "end", "{output:?}");
        bundle.delete();
    }
}

#[test]
fn numbers_are_served_on_a_socket_of_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("stats.sock");
    let mut server = Command::new(verbgate())
        .arg("--root")
        .arg(dir.path())
        .args(["stats", "--listen"])
        .arg(&socket)
        .spawn()
        .unwrap();
    until("the socket", || {
        std::fs::metadata(&socket).is_ok_and(|m| m.permissions().mode() & 0o777 == 0o600)
    });
    let ask = |words: &[u8]| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(words).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        verbgate_wait::call("an answer", || std::io::read_to_string(stream)).unwrap()
    };
    let text = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert_eq!(ask(b""), body);
    assert!(body.ends_with("# EOF\n") && body.contains("verbgate_sandboxes 0"), "{body}");
    // One that says nothing and stays keeps nobody waiting for long.
    let silent = UnixStream::connect(&socket).unwrap();
    assert_eq!(ask(b""), body);
    drop(silent);
    server.kill().unwrap();
    server.wait().unwrap();
}
