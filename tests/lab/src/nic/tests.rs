use super::*;

fn ask(control: &Path, request: &str) -> String {
    let folder = control.join(REQUESTS);
    fs::write(folder.join("1.new"), request).unwrap();
    fs::rename(folder.join("1.new"), folder.join("1.request")).unwrap();
    let answer = folder.join("1.answer");
    verbgate_wait::until("the answer", || answer.exists());
    let text = fs::read_to_string(&answer).unwrap();
    fs::remove_file(answer).unwrap();
    text
}

#[test]
fn requests_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let nics = Nics::start((&[Nic::Efa, Nic::Efa], None), "6.12", dir.path(), dir.path()).unwrap();
    assert_eq!(ask(dir.path(), "faults loss=0.5 delay=10"), "ok ");
    assert!(ask(dir.path(), "census 1").starts_with("ok Census { uars: 0"));
    assert_eq!(ask(dir.path(), "counters 0"), "ok commands=0 doorbells=0");
    assert_eq!(ask(dir.path(), "census 2"), "error there is no NIC 2");
    assert!(ask(dir.path(), "faults luck=1").contains("no fault is called luck"));
    drop(nics);
}

#[test]
fn each_nic_has_a_bridge_and_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let nics = Nics::start((&[Nic::Efa, Nic::Efa], None), "6.12", dir.path(), dir.path()).unwrap();
    let line = nics.arguments(2048, 2).join(" ");
    for part in [
        "memory-backend-memfd,id=memory1,size=1024M,share=on",
        "node,nodeid=1,memdev=memory1",
        "pxb-pcie,id=host1,bus=pcie.0,bus_nr=96,numa_node=1",
        "pcie-root-port,id=port1,bus=host1,chassis=2",
        r#""bus":"port1""#,
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[test]
fn a_card_has_its_interface_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let nics = Nics::start((&[Nic::Erdma], None), "7.2", dir.path(), dir.path()).unwrap();
    let line = nics.arguments(2048, 2).join(" ");
    for part in [
        "hubport,id=net0,hubid=0",
        r#""addr":"0.1","bus":"port0""#,
        r#""mac":"02:00:00:98:00:01""#,
        r#""multifunction":true"#,
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(ask(dir.path(), "census 0").starts_with("ok Census { uars: 0"));
}

#[test]
fn old_drivers_speak_iwarp() {
    assert_eq!(
        ["6.1", "6.12", "6.14", "7.2"].map(|s| speaks_roce(s).unwrap()),
        [false, false, true, true]
    );
    assert!(speaks_roce("new").is_err());
}

#[test]
fn unknown_models_name_the_known() {
    assert!(Nic::find("mlx4").unwrap_err().to_string().contains("efa"));
}

#[test]
fn machines_of_a_network_have_numbers_and_interfaces_of_their_own() {
    let (dir, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let network = Network::new(folder.path(), 2).unwrap();
    assert_eq!(network.address(), "10.98.0.202");
    let nics = Nics::start((&[Nic::Erdma], Some(&network)), "7.2", dir.path(), dir.path()).unwrap();
    let line = nics.arguments(2048, 2).join(" ");
    for part in [
        r#""mac":"02:00:00:98:00:11""#,
        r#""mac":"02:00:00:98:00:ca""#,
        "hubport,id=joined,hubid=0,netdev=cable",
        r#""reconnect-ms":200"#,
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(
        Network::new(folder.path(), 3).is_err() && Network::new("/no/such".as_ref(), 1).is_err()
    );
}
