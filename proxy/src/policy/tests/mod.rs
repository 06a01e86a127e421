//! Tests of profiles, policy files and tenants.

mod limits;

use verbgate_abi::decode;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::ids;
use verbgate_abi::qp_types;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;

use super::*;

/// CREATE_QP of a type, as a program of `driver` asks for it.
fn create_qp(qp_type: u64, driver: DriverId) -> Request {
    let (object, id) = (ids::UVERBS_OBJECT_DEVICE.id, ids::UVERBS_METHOD_INVOKE_WRITE);
    let invoke = table::method(object, id, driver).unwrap();
    let spec = legacy::commands().iter().find(|spec| spec.short_name == "CREATE_QP").unwrap();
    let mut core_in = vec![0; spec.req_size()];
    core_in[usize::from(spec.req.field("qp_type").unwrap().offset)] =
        u8::try_from(qp_type).unwrap();
    let encoded = RequestBuilder::new(invoke, driver)
        .input(ids::UVERBS_ATTR_CORE_IN, &core_in)
        .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), 32)
        .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd)
        .build(GuestAddr(0x1_0000));
    let outline = decode::parse(&encoded.bytes).unwrap();
    let mut arena = vec![0; outline.arena_len()];
    for payload in outline.payloads() {
        let start = usize::try_from(payload.addr.0 - 0x1_0000).unwrap();
        arena[payload.range.clone()]
            .copy_from_slice(&encoded.payload[start..start + payload.range.len()]);
    }
    outline.with_payloads(arena).unwrap()
}

#[test]
fn a_drivers_type_is_granted_on_that_drivers_devices() {
    let [standard, hpc, full] = PROFILES.map(|(name, _)| Policy::named(name).unwrap());
    let srd = create_qp(qp_types::DRIVER, DriverId::EFA);
    assert!([&standard, &hpc, &full].iter().all(|policy| policy.check(&srd).is_ok()));
    let dc = create_qp(qp_types::DRIVER, DriverId::MLX5);
    assert!([&standard, &hpc, &full].iter().all(|policy| policy.check(&dc).is_ok()));
    let xrc = create_qp(9, DriverId::MLX5);
    let refusal = standard.check(&xrc).unwrap_err();
    assert_eq!(refusal.reason, "QP type not granted");
    assert_eq!(
        refusal.to_string(),
        "queue pair type XRC_INI is not granted by profile \"standard\"; profile \"hpc\" \
         grants it"
    );
    assert!(hpc.check(&xrc).is_ok());
    // Where the value means nothing, it is no name of something else's.
    let of_rxe = hpc.check(&create_qp(qp_types::DRIVER, DriverId::RXE)).unwrap_err();
    assert_eq!(
        of_rxe.to_string(),
        "queue pair type 255 (a device of driver rxe) is not granted by profile \"hpc\"; \
         profile \"full\" grants it"
    );
    assert!(full.check(&create_qp(qp_types::DRIVER, DriverId::RXE)).is_ok());
}

#[test]
fn a_bare_name_is_the_cores_and_a_drivers_has_the_driver_before_it() {
    let of_port = |driver| {
        let found = table::methods().iter().filter(|method| {
            method.object == ids::UVERBS_OBJECT_DEVICE
                && method.short_name() == "QUERY_PORT"
                && method.provider == driver
        });
        found.collect::<Vec<_>>()
    };
    let (core, mlx5) = (of_port(Provider::Core)[0], of_port(Provider::Driver(DriverId::MLX5))[0]);
    let standard = Policy::named("standard").unwrap();
    assert!(standard.grants_method(core) && !standard.grants_method(mlx5));
    let profile = |name: &str| format!("name = \"own\"\nmethods = [{name:?}]");
    let own = Policy::read(&profile("mlx5:DEVICE.QUERY_PORT")).unwrap();
    assert!(own.grants_method(mlx5) && !own.grants_method(core));
    assert!(Policy::read(&profile("efa:DEVICE.QUERY_PORT")).is_err());
}

#[test]
fn every_profile_names_what_exists_and_the_next_grants_more() {
    let [standard, hpc, full] = PROFILES.map(|(name, _)| Policy::named(name).unwrap());
    assert_eq!(standard.name(), "standard");
    assert!(standard.grants.granted.commands.len() > 30 && !standard.grants.everything);
    assert!(hpc.grants.granted.commands.is_superset(&standard.grants.granted.commands));
    assert!(hpc.grants.granted.methods.len() > standard.grants.granted.methods.len());
    assert!(full.grants.everything && !hpc.grants.everything);
    assert!([&standard, &hpc, &full].into_iter().all(Policy::grants_rdma_cm));
    assert!(matches!(Policy::named("ful"), Err(PolicyError::NoProfile { .. })));
}

#[test]
fn a_profile_with_a_slip_is_refused_by_name() {
    let standard = PROFILES[0].1;
    let slip = standard.replace("\"DESTROY_QP\"", "\"DESTROY_QQ\"");
    let error = Policy::read(&slip).unwrap_err().to_string();
    assert!(error.contains("DESTROY_QQ"), "{error}");
    let extra = format!("surprise = 1\n{standard}");
    assert!(Policy::read(&extra).unwrap_err().to_string().contains("surprise"));
}

/// A file with a profile and two tenants.
const FILE: &str = r#"version = 1

[profile.srd]
extends = "standard"
qp_types = ["XRC_INI"]
remove.qp_types = ["UD"]
remove.methods = ["MR.ADVISE_MR"]
rdma_cm = false

[profile.raw]
extends = "full"
remove.commands = ["EX_CREATE_FLOW"]

[tenant.a]
match = { annotation."io.kubernetes.cri.sandbox-namespace" = "team-a" }
profile = "srd"
devices = [{ pci = "0000:3b:00.2" }, { name = "mlx5_3", ports = [1] }]

[tenant.b]
match = { uid = 1000, unit = "job-*.service" }
profile = "raw"
devices = [{ name = "*" }]
"#;

fn read(text: &str) -> Result<Policies, PolicyError> {
    Policies::read(std::path::Path::new("/p/x.toml"), text)
        .map_err(|all| all.into_iter().next().unwrap())
}

#[test]
fn a_profile_of_ones_own_adds_and_removes() {
    let policies = read(FILE).unwrap();
    let [srd, raw] = ["srd", "raw"].map(|name| policies.profile(name).unwrap());
    let ud = QpType::named("UD").unwrap().value;
    assert!(srd.check(&create_qp(qp_types::DRIVER, DriverId::MLX5)).is_ok());
    let refused = srd.check(&create_qp(ud, DriverId::MLX5)).unwrap_err().to_string();
    assert!(refused.contains("UD") && refused.contains("\"srd\""), "{refused}");
    assert!(!srd.grants_rdma_cm());
    let advise = table::methods().iter().find(|m| m.full_name() == "MR.ADVISE_MR").unwrap();
    assert!(!srd.grants_method(advise) && raw.grants_method(advise));
    // Of everything, one thing can be taken away.
    let flow = legacy::commands().iter().find(|c| c.short_name == "EX_CREATE_FLOW").unwrap();
    assert!(!raw.grants_command(flow) && raw.grants_rdma_cm());
    assert!(raw.check(&create_qp(ud, DriverId::RXE)).is_ok());
    // And given back by a profile that extends this one.
    let again =
        format!("{FILE}\n[profile.more]\nextends = \"raw\"\ncommands = [\"EX_CREATE_FLOW\"]");
    assert!(read(&again).unwrap().profile("more").unwrap().grants_command(flow));
}

#[test]
fn a_policy_as_text_is_the_policy() {
    let policies = read(FILE).unwrap();
    for name in ["srd", "raw", "standard", "hpc", "full"] {
        let policy = policies.profile(name).unwrap();
        assert_eq!(Policy::read_all(&policy.texts()).unwrap(), policy, "{name}");
        let narrowed = policy.and(policies.profile("srd").unwrap());
        assert_eq!(Policy::read_all(&narrowed.texts()).unwrap(), narrowed, "{name}");
    }
}

#[test]
fn narrowing_takes_away_and_never_gives() {
    let [standard, full] = ["standard", "full"].map(|name| Policy::named(name).unwrap());
    let ud = QpType::named("RAW_PACKET").unwrap().value;
    let raw = create_qp(ud, DriverId::RXE);
    assert!(full.check(&raw).is_ok());
    for narrowed in [full.clone().and(standard.clone()), standard.and(full)] {
        assert!(narrowed.check(&raw).is_err());
        let devx = table::methods().iter().find(|m| m.object.name().contains("DEVX")).unwrap();
        assert!(!narrowed.grants_method(devx));
    }
}

#[test]
fn a_sandbox_has_one_tenant_or_none() {
    let policies = read(FILE).unwrap();
    let namespace = |name: &str| Subject {
        annotations: [("io.kubernetes.cri.sandbox-namespace".to_owned(), name.to_owned())].into(),
        ..Subject::default()
    };
    assert_eq!(policies.tenant(&namespace("team-a")).unwrap().name, "a");
    let error = policies.tenant(&namespace("team-ab")).unwrap_err();
    assert!(matches!(error, PolicyError::NoTenant { .. }), "{error}");
    assert!(error.to_string().contains("team-ab"), "{error}");
    let run = |uid, unit: &str| Subject {
        uid: Some(uid),
        cgroup: Some(format!("/system.slice/{unit}/leaf")),
        ..Subject::default()
    };
    assert_eq!(policies.tenant(&run(1000, "job-7.service")).unwrap().name, "b");
    assert!(policies.tenant(&run(1001, "job-7.service")).is_err());
    // A user's own unit of the name is not the system's.
    assert!(policies.tenant(&run(1000, "user@1000.service/app.slice/job-7.service")).is_err());
    assert!(policies.tenant(&run(1000, "jib.service")).is_err());
    assert!(policies.tenant(&Subject::default()).is_err());
    let both =
        Subject { annotations: namespace("team-a").annotations, ..run(1000, "job-1.service") };
    let error = policies.tenant(&both).unwrap_err().to_string();
    assert!(error.contains("x.toml:14") && error.contains("x.toml:19"), "{error}");
}

/// Tenants of one file by their matches; the device of each is its own.
fn matching(matches: &[&str]) -> Policies {
    let tenant = |(at, wanted): (usize, &&str)| {
        format!(
            "[tenant.t{at}]\nmatch = {wanted}\nprofile = \"standard\"\ndevices = [{{ name = \"*\" }}]\n"
        )
    };
    let tenants: String = matches.iter().enumerate().map(tenant).collect();
    read(&format!("version = 1\n{tenants}")).unwrap()
}

#[test]
fn a_tenant_is_matched_by_its_cgroup() {
    let policies = matching(&[
        "{ cgroup = \"/kubepods.slice/*team-a*\" }",
        "{ cgroup = \"/jobs/?\" }",
        "{ cgroup = \"/users/*\", uid = 7 }",
    ]);
    let of = |cgroup: Option<&str>, uid| {
        let cgroup = cgroup.map(str::to_owned);
        let subject = Subject { cgroup, uid, ..Subject::default() };
        policies.tenant(&subject).ok().map(|tenant| tenant.name.clone())
    };
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(of(Some("/kubepods.slice/pod-team-a-1.slice/cri.scope"), None), named("t0"));
    assert_eq!(of(Some("/kubepods.slice/pod-team-b-1.slice/cri.scope"), None), None);
    // A pattern is the whole path's, and not a part's.
    assert_eq!(of(Some("/else/kubepods.slice/team-a"), None), None);
    assert_eq!((of(Some("/jobs/1"), None), of(Some("/jobs/12"), Some(0))), (named("t1"), None));
    // All that is given must hold.
    assert_eq!(of(Some("/users/a"), Some(7)), named("t2"));
    assert_eq!((of(Some("/users/a"), Some(8)), of(Some("/users/a"), None)), (None, None));
    assert_eq!((of(Some("/nobody/a"), Some(7)), of(None, Some(7))), (None, None));
    assert_eq!(of(None, None), None);
}

#[test]
fn a_device_is_the_tenants_by_its_pci_function_its_name_or_both() {
    let text = "[{ pci = \"0000:3b:00.2\" }, { name = \"mlx5_?\", ports = [2] }, \
                { pci = \"0000:5e:00.0\", name = \"uverbs7\", ports = [1, 2] }]";
    let policies = read(&format!(
        "version = 1\n[tenant.t]\nmatch.uid = 1\nprofile = \"standard\"\ndevices = {text}\n"
    ));
    let policies = policies.unwrap();
    let devices = &policies.named("t").unwrap().devices;
    // Which of the rules mean the device of a parent and of names.
    let means = |parent: Option<&str>, names: &[&str]| {
        devices.iter().map(|rule| rule.means(parent, names)).collect::<Vec<_>>()
    };
    assert_eq!(means(Some("0000:3b:00.2"), &["irdma0", "uverbs0"]), [true, false, false]);
    assert_eq!(means(Some("0000:3b:00.3"), &["irdma0", "uverbs0"]), [false; 3]);
    assert_eq!(means(Some("0000:3b:00.3"), &["mlx5_3", "uverbs0"]), [false, true, false]);
    assert_eq!(means(Some("0000:3b:00.2"), &["mlx5_3"]), [true, true, false]);
    assert_eq!(means(None, &["mlx5_10", "0000:3b:00.2"]), [false; 3]);
    assert_eq!(means(Some("0000:5e:00.0"), &["mlx4_0", "uverbs7"]), [false, false, true]);
    assert_eq!(means(Some("0000:5e:00.0"), &["mlx4_0", "uverbs8"]), [false; 3]);
    assert_eq!(means(Some("0000:5e:00.1"), &["mlx4_0", "uverbs7"]), [false; 3]);
    let ports: Vec<_> = devices.iter().map(|rule| rule.ports()).collect();
    assert_eq!(ports, [None, Some(&[2][..]), Some(&[1, 2])]);
}

#[test]
fn all_claims_of_a_container_are_the_tenants() {
    let matches = |conditions: &str, claims: &[(&str, Option<&str>)]| {
        let text = format!(
            "version = 1\n[tenant.a]\nmatch = {{ {conditions} }}\nprofile = \"hpc\"\ndevices = [{{ name = \"*\" }}]"
        );
        let claim = |(name, tenant): &(&str, Option<&str>)| DraClaim {
            name: (*name).to_owned(),
            tenant: tenant.map(str::to_owned),
        };
        let claims = claims.iter().map(claim).collect();
        read(&text).unwrap().tenant(&Subject { claims, ..Subject::default() }).is_ok()
    };
    let (own, other) = (("ml/nics", Some("gold")), ("web/nics", None));
    for (conditions, ours) in
        [("claim = \"ml/*\"", true), ("claim_tenant = \"gold\"", true), ("claim = \"ml/n\"", false)]
    {
        assert_eq!(matches(conditions, &[own]), ours, "{conditions}");
        assert_eq!(matches(conditions, &[own, own]), ours, "{conditions}");
        for others in [&[][..], &[other], &[own, other], &[other, own]] {
            assert!(!matches(conditions, others), "{conditions} {others:?}");
        }
    }
    assert!(matches("claim = \"*\"", &[own, other]));
    let policies = read(FILE).unwrap();
    let error = policies.tenant(&Subject {
        claims: vec![DraClaim { name: "ml/nics".to_owned(), tenant: Some("gold".to_owned()) }],
        ..Subject::default()
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("claim \"ml/nics\" of the class' tenant \"gold\""), "{error}");
}

#[test]
fn a_slip_has_file_line_nearest_name_and_what_is_in_force() {
    let slips = [
        ("version = 1", "version = 2", 1, "version must be 1"),
        ("remove.qp_types = [\"UD\"]", "remove.qp_types = [\"UDP\"]", 6, "\"UD\""),
        ("MR.ADVISE_MR", "MR.ADVISE", 7, "\"MR.ADVISE_MR\""),
        ("EX_CREATE_FLOW", "EX_CRATE_FLOW", 12, "\"EX_CREATE_FLOW\""),
        ("extends = \"standard\"", "extends = \"standart\"", 4, "\"standard\""),
        ("rdma_cm = false", "rdma_mc = false", 8, "\"rdma_cm\""),
        ("profile = \"srd\"", "profile = \"srdd\"", 16, "\"srd\""),
        ("devices = [{ name = \"*\" }]", "device = [{ name = \"*\" }]", 22, "\"devices\""),
        ("0000:3b:00.2", "3b:00.2", 17, "0000:3b:00.2"),
        ("ports = [1]", "ports = [0]", 17, "count from 1"),
        ("devices = [{ name = \"*\" }]", "devices = [{ ports = [1] }]", 22, "pci or name"),
        ("devices = [{ name = \"*\" }]", "devices = []", 22, "no device"),
        ("match = { uid = 1000, unit = \"job-*.service\" }", "match = {}", 20, "nobody"),
        ("[profile.srd]", "[profile.hpc]", 3, "built-in"),
        ("[tenant.b]", "[tenant.b", 19, ""),
    ];
    for (right, wrong, line, word) in slips {
        let text = FILE.replace(right, wrong);
        assert_ne!(text, FILE, "{right}");
        let error = read(&text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/p/x.toml:{line}: ")), "{wrong}: {error}");
        assert!(error.contains(word) && error.contains("no sandbox starts"), "{wrong}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let circle = "version = 1\n[profile.a]\nextends = \"b\"\n[profile.b]\nextends = \"a\"\n";
    assert!(read(circle).unwrap_err().to_string().contains("extends itself"));
}

/// The slips of files, each with the file's name and the line.
fn slips(files: &[&str]) -> Vec<(String, String)> {
    let dir = tempfile::tempdir().unwrap();
    for (number, text) in files.iter().enumerate() {
        std::fs::write(dir.path().join(format!("{number}.toml")), text).unwrap();
    }
    let errors = Policies::check(dir.path(), FileOwner::Anybody).unwrap_err();
    let of = |error: PolicyError| match error {
        PolicyError::Slip { place, slip } => {
            let file = place.file.unwrap();
            (format!("{}:{}", file.file_name().unwrap().display(), place.line), slip)
        }
        other => (String::new(), other.to_string()),
    };
    errors.into_iter().map(of).collect()
}

#[test]
fn all_slips_of_all_files_are_told_at_once_and_nothing_that_follows_from_them() {
    let tenant = "[tenant.t]\nmatch.uid = 1\nprofile = \"own\"\ndevices = [{ name = \"*\" }]\n";
    let places = |files: &[&str]| -> Vec<String> {
        slips(files).into_iter().map(|(place, _)| place).collect()
    };
    let own = "version = 1\n[profile.own]\nextends = \"hcp\"\nrdma_mc = true\n\
               methods = [\"MR.ADVISE\", \"MR.ADVISE_MR\", \"MR.X\"]\n";
    let found = slips(&[own, &format!("version = 1\n{tenant}rules.qouta.qp = 3\n[tenat.x]\n")]);
    let lines: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(
        lines,
        ["0.toml:3", "0.toml:4", "0.toml:5", "0.toml:5", "1.toml:6", "1.toml:7"],
        "{found:?}"
    );
    // A wrong value is no missing one, and what is missing is told once.
    for (right, wrong, line) in [
        ("profile = \"own\"", "profil = \"own\"", "1.toml:4"),
        ("profile = \"own\"", "profile = 3", "1.toml:4"),
        ("profile = \"own\"", "", "1.toml:2"),
        ("name = \"*\"", "pci = \"3b:0\"", "1.toml:5"),
        ("match.uid", "match.uuid", "1.toml:3"),
        ("version = 1", "version = 2", "1.toml:1"),
        ("version = 1", "versoin = 1", "1.toml:1"),
    ] {
        let text = format!("version = 1\n{tenant}");
        let own = "version = 1\n[profile.own]\n";
        assert_eq!(places(&[own, &text.replace(right, wrong)]), [line], "{wrong}");
    }
    // Of a text that is no TOML, nothing else can be told; of the others, their own.
    assert_eq!(
        places(&["version = 1\nx\n", &format!("{tenant}x = 1\n")]),
        ["0.toml:2", "1.toml:1", "1.toml:5"]
    );
    let many: String = (0..100).map(|number| format!("x{number} = 1\n")).collect();
    assert_eq!(slips(&[&many]).len(), 64);
}

#[test]
fn profiles_extend_each_other_as_far_as_a_person_reads() {
    let chain = |len: usize| -> String {
        let of = |at: usize| format!("[profile.p{at}]\nextends = \"p{}\"\n", at + 1);
        let profiles: String = (1..len).map(of).collect();
        format!("version = 1\n{profiles}[profile.p{len}]\nrdma_cm = true\n")
    };
    assert!(read(&chain(33)).unwrap().profile("p1").unwrap().grants_rdma_cm());
    for len in [34, 100] {
        let error = read(&chain(len)).unwrap_err().to_string();
        assert!(error.contains("more than 32 profiles"), "{error}");
    }
}

#[test]
fn a_directory_is_read_whole_or_not_at_all_and_only_from_its_owner() {
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let own = std::fs::metadata(dir.path()).unwrap().uid();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let load = || Policies::load(dir.path(), FileOwner::User(own));
    assert!(Policies::load(&dir.path().join("none"), FileOwner::User(own)).unwrap().is_none());
    // An empty directory is a policy: nobody gets anything.
    assert!(load().unwrap().unwrap().tenant(&Subject::default()).is_err());
    let (first, second) = (dir.path().join("a.toml"), dir.path().join("b.toml"));
    std::fs::write(&first, FILE).unwrap();
    std::fs::write(dir.path().join("b.toml~"), "nonsense").unwrap();
    mode(&first, 0o644);
    assert_eq!(load().unwrap().unwrap().tenants().len(), 2);
    // Profiles and tenants of one file are known to the others, once.
    std::fs::write(&second, "version = 1\n[profile.c]\nextends = \"srd\"\n").unwrap();
    mode(&second, 0o600);
    assert_eq!(load().unwrap().unwrap().profiles().collect::<Vec<_>>(), ["c", "raw", "srd"]);
    std::fs::write(&second, "version = 1\n[profile.srd]\n").unwrap();
    assert!(load().unwrap_err().to_string().contains("a.toml:3, too"));
    std::fs::write(&second, "version = 1\nsurprise = 1\n").unwrap();
    assert!(matches!(load(), Err(PolicyError::Slip { .. })));
    std::fs::write(&second, "version = 1\n").unwrap();
    for path in [&second, dir.path()] {
        mode(path, 0o777);
        let error = load().unwrap_err();
        assert!(matches!(error, PolicyError::Writable { .. }), "{error}");
        assert!(error.to_string().contains("0777"), "{error}");
        mode(path, 0o700);
    }
    // Nobody waits for a pipe, or reads a device to its end.
    std::fs::remove_file(&second).unwrap();
    let pipe = |path| {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
    };
    pipe(&second).unwrap();
    assert!(load().unwrap_err().to_string().contains("no regular file"));
    std::fs::remove_file(&second).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &second).unwrap();
    assert!(load().unwrap_err().to_string().contains("no regular file"));
    std::fs::remove_file(&second).unwrap();
    let other = Policies::load(dir.path(), FileOwner::User(own + 1)).unwrap_err();
    assert!(matches!(other, PolicyError::Writable { .. }), "{other}");
    assert!(Policies::load(dir.path(), FileOwner::Anybody).is_ok());
}

#[test]
fn patterns_match_as_the_shells_do() {
    use super::tenant::is_like;
    for (pattern, text, like) in [
        ("", "", true),
        ("*", "", true),
        ("a*c", "abbc", true),
        ("a*c", "abcd", false),
        ("*a*b*", "xxaxxbxx", true),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("a", "A", false),
        ("*.slice/*", "/a.slice/b", true),
    ] {
        assert_eq!(is_like(pattern, text), like, "{pattern} {text}");
    }
    // A pattern of many stars ends.
    assert!(!is_like(&"*a".repeat(40), &"a".repeat(39)));
}
