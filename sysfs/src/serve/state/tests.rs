//! A served tree of devices that come, go, and change their names and modes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use verbgate_sysfs_fixtures::Changing;
use verbgate_sysfs_fixtures::Software;

use super::*;
use crate::collect::DevNumber;
use crate::gids::AllGids;

const GRANTED: Software<'_> = Software {
    number: (231, 192),
    node: "uverbs0",
    ibdev: "rxe0",
    node_guid: "1111:1111:1111:1111",
    function: None,
};
/// The same place, number and names.
const OTHER: Software<'_> = Software { node_guid: "2222:2222:2222:2222", ..GRANTED };

fn state(root: &Path) -> State {
    let number = DevNumber { major: 231, minor: 192 };
    let identity = Identity::below(root, number).unwrap();
    let root = fs::File::open(root).unwrap().into();
    State::granting(root, vec![identity], Names::All, Arc::new(AllGids)).unwrap()
}

fn guid_of(state: &State, of: &Numbered, device: &Software<'_>) -> Result<String, i32> {
    let id = of.tree().find(&format!("{}/node_guid", device.path())).ok_or(libc::ENOENT)?;
    state.read(of, id).map(|bytes| String::from_utf8(bytes).unwrap().trim().to_owned())
}

fn later(state: &State) -> Arc<Numbered> {
    std::thread::sleep(FRESHNESS * 2);
    state.tree()
}

#[test]
fn a_device_in_the_place_of_the_granted_one_is_neither_listed_nor_read() {
    let dir = tempfile::tempdir().unwrap();
    let host = Changing::new(dir.path()).unwrap();
    host.add(&GRANTED).unwrap();
    let state = state(dir.path());
    let before = state.tree();
    assert_eq!(guid_of(&state, &before, &GRANTED).unwrap(), GRANTED.node_guid);
    assert!(state.shows("uverbs0"));
    host.remove(&GRANTED).unwrap();
    host.add(&OTHER).unwrap();
    // By what a guest had looked up before, and has open.
    assert_eq!(guid_of(&state, &before, &GRANTED), Err(libc::ENODEV));
    // Once the tree is read anew, which a busy machine puts off.
    let gone = || guid_of(&state, &later(&state), &GRANTED) == Err(libc::ENOENT);
    assert!((0..100).any(|_| gone()));
    assert_eq!(guid_of(&state, &before, &GRANTED), Err(libc::ENODEV));
    assert!(!state.shows("uverbs0"));
    let tree = state.tree();
    for class in ["class/infiniband", "class/infiniband_verbs"] {
        let class = tree.tree().find(class).unwrap();
        assert!(tree.tree().entries(class).is_empty(), "it is listed");
    }
}

#[test]
fn who_may_read_a_file_is_the_hosts_to_say_at_each_moment() {
    let dir = tempfile::tempdir().unwrap();
    let host = Changing::new(dir.path()).unwrap();
    host.add(&GRANTED).unwrap();
    let state = state(dir.path());
    let tree = state.tree();
    let file = format!("{}/node_guid", GRANTED.path());
    let id = tree.tree().find(&file).unwrap();
    for mode in [0o400, 0o644] {
        fs::set_permissions(dir.path().join(&file), fs::Permissions::from_mode(mode)).unwrap();
        let Access { mode: now, .. } = state.access(tree.tree(), id).unwrap();
        assert_eq!(u32::from(now), mode);
    }
    // Nobody may read what cannot be asked about.
    fs::remove_file(dir.path().join(&file)).unwrap();
    assert_eq!(state.access(tree.tree(), id), None);
}

#[test]
fn a_sandbox_is_not_served_what_it_has_from_the_host() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["devices/system/cpu/online", "devices/virtual/dmi/id/sys_vendor"] {
        fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
        fs::write(dir.path().join(file), "0\n").unwrap();
    }
    let has = |state: &State, path| state.tree().tree().find(path).is_some();
    let root = || fs::File::open(dir.path()).unwrap().into();
    let sandbox = State::granting(root(), Vec::new(), Names::All, Arc::new(AllGids)).unwrap();
    let grant = Grant { rdma: Names::All, gpus: Names::All };
    let whole = State::live(root(), grant, Arc::new(AllGids)).unwrap();
    assert!(has(&whole, "devices/system/cpu/online"));
    assert!(has(&sandbox, "devices/system") && !has(&sandbox, "devices/system/cpu"));
    assert!(has(&sandbox, "devices/virtual/dmi/id/sys_vendor"));
}

#[test]
fn a_function_in_the_place_of_another_is_not_read() {
    let vf = Software { function: Some("0000:03:00.4"), ..GRANTED };
    let dir = tempfile::tempdir().unwrap();
    let host = Changing::new(dir.path()).unwrap();
    host.add(&vf).unwrap();
    let snapshot = record::record(dir.path(), Detail::Names).unwrap();
    let root: OwnedFd = fs::File::open(dir.path()).unwrap().into();
    let guards = Guards::of(&snapshot, root.as_fd());
    let function = "devices/pci0000:00/0000:03:00.4";
    let of_it = ["vendor", "net/eth0/address", "infiniband/rxe0/ports/1/gids/0"];
    for file in of_it.map(|file| format!("{function}/{file}")) {
        assert!(guards.hold(&file, root.as_fd()), "{file}");
    }
    fs::rename(dir.path().join(function), dir.path().join("aside")).unwrap();
    fs::create_dir_all(dir.path().join(function)).unwrap();
    for file in of_it.map(|file| format!("{function}/{file}")) {
        assert!(!guards.hold(&file, root.as_fd()), "{file}");
    }
    // What is above it and beside it is nobody's.
    for file in ["devices/pci0000:00/uevent", "devices/pci0000:00/0000:03:00.40/vendor"] {
        assert!(guards.hold(file, root.as_fd()), "{file}");
    }
}

#[test]
fn a_granted_device_that_is_renamed_is_shown_by_its_new_name_alone() {
    let dir = tempfile::tempdir().unwrap();
    let host = Changing::new(dir.path()).unwrap();
    host.add(&GRANTED).unwrap();
    let state = state(dir.path());
    let before = state.tree();
    let renamed = host.rename(&GRANTED, "rxe7").unwrap();
    // Another one, with another number, takes its name.
    let other = Software { number: (231, 193), node: "uverbs1", ..OTHER };
    host.add(&other).unwrap();
    assert_eq!(guid_of(&state, &before, &GRANTED), Err(libc::ENODEV));
    let after = later(&state);
    assert_eq!(guid_of(&state, &after, &renamed).unwrap(), GRANTED.node_guid);
    assert_eq!(guid_of(&state, &after, &other), Err(libc::ENOENT));
    assert!(state.shows("uverbs0") && !state.shows("uverbs1"));
}

/// What a grant by names would do, and did: the check of the tests above.
#[test]
fn names_are_whoever_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let host = Changing::new(dir.path()).unwrap();
    host.add(&GRANTED).unwrap();
    let root = fs::File::open(dir.path()).unwrap().into();
    let rdma = Names::Only(["uverbs0".to_owned()].into());
    let grant = Grant { rdma, gpus: Names::All };
    let state = State::live(root, grant, Arc::new(AllGids)).unwrap();
    host.remove(&GRANTED).unwrap();
    host.add(&OTHER).unwrap();
    let now = later(&state);
    assert_eq!(guid_of(&state, &now, &OTHER).unwrap(), OTHER.node_guid);
}

/// A port whose table grows after it was first asked about.
#[derive(Debug)]
struct Growing(AtomicU32);

impl GidView for Growing {
    fn shows(&self, _: &str, _: u32, _: [u8; 16], _: Option<&str>) -> bool {
        true
    }

    fn length(&self, _: &str, _: u32) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed))
    }

    fn slots(&self, _: &str, _: u32) -> Option<u32> {
        Some(self.0.swap(3, Ordering::Relaxed))
    }
}

#[test]
fn a_table_that_grows_while_a_host_is_recorded_is_recorded_again() {
    let dir = tempfile::tempdir().unwrap();
    let host = Changing::new(dir.path()).unwrap();
    host.add(&GRANTED).unwrap();
    for index in 1..4 {
        fs::write(dir.path().join(format!("{}/ports/1/gids/{index}", GRANTED.path())), "").unwrap();
    }
    let identity = Identity::below(dir.path(), DevNumber { major: 231, minor: 192 }).unwrap();
    let root = fs::File::open(dir.path()).unwrap().into();
    let view = Arc::new(Growing(AtomicU32::new(2)));
    let state = State::granting(root, vec![identity], Names::All, view).unwrap();
    let slots = |tree: &Numbered| {
        let gids = tree.tree().find(&format!("{}/ports/1/gids", GRANTED.path())).unwrap();
        tree.tree().entries(gids).len()
    };
    assert_eq!(slots(&state.last_tree()), 2);
    assert!((0..100).any(|_| slots(&later(&state)) == 3));
}

#[test]
fn of_devices_that_are_not_granted_only_gids_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let host = Changing::new(dir.path()).unwrap();
    host.add(&GRANTED).unwrap();
    let other = Software { number: (231, 193), node: "uverbs1", ibdev: "rxe1", ..OTHER };
    host.add(&other).unwrap();
    // More slots than the table has.
    let view = Growing(AtomicU32::new(9));
    let whom = For { view: &view, granted: Some(["rxe0".to_owned()].into()) };
    let snapshot = record::record_for(dir.path(), Detail::Served, &whom).unwrap();
    let of = |name: &str| snapshot.rdma.iter().find(|rdma| rdma.name == name).unwrap();
    assert!(of("rxe0").attrs.contains_key("node_guid"));
    assert_eq!(of("rxe0").gids(1).collect::<Vec<_>>(), [0]);
    assert_eq!(of("rxe1").attrs.keys().collect::<Vec<_>>(), ["ports/1/gids/0"]);
}
