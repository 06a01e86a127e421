//! Lines that people have in hand, and the explanations that they get.

use super::*;

fn explained(args: &[&str]) -> String {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    run(&args, false).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

/// The first lines of all that is said, without what follows the name.
fn titles(args: &[&str]) -> Vec<String> {
    let text = explained(args);
    let first = text.split("\n\n").filter_map(|one| one.lines().next());
    first.map(|line| line.split([',', ' ']).next().unwrap_or_default().to_owned()).collect()
}

fn refusal(args: &[&str]) -> String {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let error = run(&args, false).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn every_status_and_event_has_its_row() {
    // IBV_WC_SUCCESS to IBV_WC_TM_RNDV_INCOMPLETE.
    for status in 0..=23 {
        let entry = completion(status).unwrap();
        assert!(status == 0 || !entry.causes.is_empty(), "{entry:?}");
    }
    // RDMA_CM_EVENT_ADDR_RESOLVED to RDMA_CM_EVENT_TIMEWAIT_EXIT, IBV_EVENT_CQ_ERR to
    // IBV_EVENT_WQ_FATAL.
    for (of, last) in [(Of::Cm, 15), (Of::Event, 19)] {
        assert!((0..=last).all(|event| row(of, event).is_some()), "{of:?}");
    }
}

#[test]
fn no_row_is_there_twice_and_all_that_is_referred_to_is_there() {
    for (index, entry) in TABLE.iter().enumerate() {
        let same = |other: &CodeEntry| (other.of, other.number) == (entry.of, entry.number);
        assert_eq!(TABLE.iter().position(same), Some(index), "{entry:?}");
        for counter in entry.counters {
            assert!(counters::find(counter).is_some(), "{counter}");
        }
    }
    for (of, number, phrase) in codes::PHRASES {
        assert!(row(*of, *number).is_some(), "{phrase}");
        assert_eq!(phrase.to_ascii_lowercase(), *phrase);
    }
    for (number, _, status, _) in MLX5 {
        assert!(row(Of::Completion, *status).is_some(), "{number:#x}");
        assert_eq!(MLX5.iter().filter(|(other, ..)| other == number).count(), 1);
    }
    for (errno, phrase) in codes::ERRNOS {
        assert!(TABLE.iter().any(|entry| entry.number == *errno), "{phrase}");
        let said = std::io::Error::from_raw_os_error(*errno).to_string();
        assert!(said.to_ascii_lowercase().starts_with(phrase), "{said}");
    }
}

/// All that `diagnose` names as evidence can be asked about.
#[test]
fn every_counter_that_tells_is_explained() {
    for counter in counters::COUNTERS {
        // Of two drivers with one name the first is found: it tells the same.
        if let Some(found) = Counter::named(counter.name) {
            assert_eq!(counters::text(found), counters::text(counter), "it is there twice");
        }
    }
    assert_eq!(titles(&["out_of_sequence", "Local_Ack_Timeout_Err"]).len(), 2);
    assert!(explained(&["hw_counters/rnr_nak_retry_err"]).contains("post more receives"));
    assert!(explained(&["rx_prio3_pause"]).contains("the other end of the link asked for"));
    assert!(explained(&["tx_pause_ctrl_phy"]).contains("this end asked for"));
}

#[test]
fn names_are_found_in_any_form() {
    for name in [
        "RETRY_EXC",
        "retry_exc_err",
        "IBV_WC_RETRY_EXC_ERR",
        "ib_wc_retry_exc_err",
        "RETRY",
        "0xc",
    ] {
        assert_eq!(titles(&[name])[0], "RETRY_EXC_ERR", "{name}");
    }
    for name in ["RNR_RETRY", "rnr-retry", "RNR_RETRY_EXC", "IBV_WC_RNR_RETRY_EXC_ERR"] {
        assert_eq!(titles(&[name]), ["RNR_RETRY_EXC_ERR"], "{name}");
    }
    for (name, title) in [
        ("IBV_EVENT_QP_FATAL", "QP_FATAL"),
        ("ibv_event_port_err", "PORT_ERR"),
        ("GID_CHANGE", "GID_CHANGE"),
        ("RDMA_CM_EVENT_REJECTED", "REJECTED"),
        ("ENODEV", "ENODEV"),
        ("port error", "PORT_ERR"),
        ("transport retry counter exceeded", "RETRY_EXC_ERR"),
        ("RNR retry counter exceeded", "RNR_RETRY_EXC_ERR"),
        ("GID table change", "GID_CHANGE"),
    ] {
        assert_eq!(titles(&[name]), [title], "{name}");
    }
    assert_eq!(titles(&["12"]), ["RETRY_EXC_ERR", "MULTICAST_JOIN", "ENOMEM", "ENOMEM"]);
    assert_eq!(titles(&["-110"]), ["ETIMEDOUT"]);
    for both in ["0x81", "129", "0X81"] {
        assert_eq!(titles(&[both]), ["0x81", "RETRY_EXC_ERR"], "{both}");
    }
    assert_eq!(titles(&["12", "RETRY_EXC", "249"]).len(), 6);
}

#[test]
fn lines_of_programs_are_taken_apart() {
    let nccl = "node1:1357 [4] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer \
                192.168.3.5<53908> with status=12 opcode=129 len=1048576 vendor err 129 (Recv) \
                localGid ::ffff:192.168.6.3 remoteGids::ffff:192.168.6.5 hca mlx5_10";
    let cases: [(&str, &[&str]); 11] = [
        (nccl, &["RETRY_EXC_ERR", "0x81"]),
        (
            "NET/IB : Got completion from peer 10.0.35.1<49189> with error 4, opcode 5327, len 5327, \
             vendor err 81 (Send)",
            &["LOC_PROT_ERR", "0x51"],
        ),
        (
            "ib_plugin.c:1615 NCCL WARN NET/IB : Got completion with status=5 opcode=1 vendor err 249",
            &["WR_FLUSH_ERR", "0xf9"],
        ),
        (
            "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1",
            &["ETIMEDOUT"],
        ),
        (
            "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
            &["ENOMEM"],
        ),
        ("NCCL WARN NET/IB : mlx5_0:1 Got async event : port error", &["PORT_ERR"]),
        (
            "Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128",
            &["RETRY_EXC_ERR", "0x81"],
        ),
        (
            "ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 \
             hw_synd 0/0)",
            &["0x81", "RETRY_EXC_ERR", "0x15"],
        ),
        (
            "mlx5_poll_one:530:(pid 0): syndrome 0x5, vendor syndrome 0xf9",
            &["0xf9", "WR_FLUSH_ERR", "0x05"],
        ),
        ("event RDMA_CM_EVENT_UNREACHABLE, error -110", &["ETIMEDOUT", "UNREACHABLE"]),
        ("mlx5_0/ports/1/hw_counters/out_of_sequence:  412", &["out_of_sequence"]),
    ];
    for (line, expected) in cases {
        assert_eq!(titles(&[line]), expected, "{line}");
        // Pasted without quotes.
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(titles(&words), expected, "{line}");
    }
}

#[test]
fn what_is_unknown_is_said_with_what_is_like_it() {
    for (word, meant) in [
        ("RETRY_EXEC", "RETRY_EXC_ERR"),
        ("RNR_RERTY", "RNR_RETRY_EXC_ERR"),
        ("IBV_EVENT_PORT_EROR", "PORT_ERR"),
        ("out_of_sequense", "out_of_sequence"),
        ("ENODEF", "ENODEV"),
    ] {
        let told = refusal(&[word]);
        assert!(told.contains(&format!("nothing is known of {word:?}: did you mean ")), "{told}");
        assert!(told.split(';').next().unwrap().contains(meant), "{told}");
    }
    let told = refusal(&["xyzzy-plugh"]);
    assert!(!told.contains("did you mean"), "{told}");
    assert!(refusal(&["77777"]).contains("nothing is known of \"77777\""));
    // Prose is no code.
    refusal(&["the job ended with exit status 12"]);
    refusal(&[""]);
}

#[test]
fn programs_get_the_same_as_json() {
    let args = ["12", "0x81", "out_of_sequence"].map(str::to_owned);
    let all: serde_json::Value = serde_json::from_str(&run(&args, true).unwrap()).unwrap();
    let all = all.as_array().unwrap();
    assert_eq!(all[0]["name"], "RETRY_EXC_ERR");
    assert_eq!((&all[0]["kind"], &all[0]["number"]), (&"completion status".into(), &12.into()));
    assert!(!all[0]["causes"].as_array().unwrap().is_empty());
    let of = |name: &str| all.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(of("0x81")["status"], "RETRY_EXC_ERR");
    assert_eq!(of("out_of_sequence")["kind"], "counter of mlx5 hw_counters");
}

/// Whoever meets these first suspects the application; it is the MTU, the version or the link.
#[test]
fn events_of_connections_name_what_is_often_overlooked() {
    for (event, words) in [
        ("RDMA_CM_EVENT_UNREACHABLE", "MTU"),
        ("RDMA_CM_EVENT_REJECTED", "versions"),
        ("RDMA_CM_EVENT_DISCONNECTED", "link counters first"),
    ] {
        assert!(explained(&[event]).contains(words), "{event}");
    }
}
