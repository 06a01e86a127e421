//! Grants of containers, judged by plain runc: what a container of the same bundle can open without Verbgate is the most
//! that Verbgate gives the container, but for the rows of SECURITY.md that say otherwise.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::Mode;
use serde_json::Value;
use serde_json::json;

use super::Case;
use super::Verdict;
use super::agent;
use super::nodes::SecondDevice;
use crate::bundle::Container;
use crate::exec;
use crate::world::World;

/// The judge, and what Verbgate wraps.
const RUNC: &str = "runc";
const DIR: &str = "/dev/infiniband";

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("containers_open_no_more_than_with_plain_runc", judged)]
}

/// The writer of a part of `config.json`, by whom Verbgate gives a container nothing, or something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Writer {
    /// A pod's author, or whoever calls Docker's or podman's API without mounting paths of the host: nothing.
    Author,
    /// The engine: what runc gives.
    Engine,
    /// The engine, without a rule that lets the device be opened: more than runc gives, as SECURITY.md says.
    EngineWithoutRule,
}
use Writer::Author;
use Writer::Engine;
use Writer::EngineWithoutRule;

/// A change of a bundle: what it is, who writes it, and members to add.
type Edit = (String, Writer, Vec<(&'static str, &'static str, Value)>);

/// A node's numbers.
type Numbers = (u32, u32);

fn numbers(node: &str) -> Result<Numbers> {
    let text = fs::read_to_string(format!("/sys/class/infiniband_verbs/{node}/dev"))?;
    let (major, minor) = text.trim().split_once(':').context("an odd number")?;
    Ok((major.parse()?, minor.parse()?))
}

/// A mount as the CRI, Docker and podman make one of a volume.
fn volume(source: &Path, destination: &str) -> (&'static str, &'static str, Value) {
    let options = ["rbind", "rprivate", "rw"];
    let mount = json!({
        "destination": destination, "type": "bind", "source": source, "options": options,
    });
    ("/mounts", "-", mount)
}

/// Everything of `config.json` that somebody chooses who may not give devices. The fields are those that a PodSpec
/// (k8s.io/api/core/v1), Docker's `POST /containers/create` and podman's SpecGenerator let anybody write.
fn of_authors(scratch: &Path, node: &str, (major, minor): Numbers) -> Result<Vec<Edit>> {
    let dir = |name: &str| -> Result<_> {
        let dir = scratch.join(name);
        fs::create_dir(&dir)?;
        Ok(dir)
    };
    let (empty, files, made) = (dir("emptyDir")?, dir("configMap")?, dir("mknod")?);
    fs::write(files.join(node), "text")?;
    // A container with CAP_MKNOD can leave one in a volume.
    let rdev = rustix::fs::makedev(major, minor);
    let made_node = made.join(node);
    rustix::fs::mknodat(CWD, &made_node, FileType::CharacterDevice, Mode::from(0o666), rdev)?;
    let inside = format!("{DIR}/{node}");
    let mut edits: Vec<Edit> = Vec::new();
    for (what, source) in [("empty volume", &empty), ("files", &files), ("nodes made", &made)] {
        for destination in [DIR, "/dev/infiniband/", "/dev/./infiniband", "/mnt"] {
            let mount = volume(source, destination);
            edits.push((format!("{what} at {destination}"), Author, vec![mount]));
        }
    }
    for (what, source) in [
        ("file by subPath", files.join(node)),
        ("node made, by subPath", made_node),
        ("file of the image", "/etc/hostname".into()),
        ("null device", "/dev/null".into()),
    ] {
        edits.push((format!("{what} at {inside}"), Author, vec![volume(&source, &inside)]));
    }
    let tmpfs = json!({"destination": DIR, "type": "tmpfs", "source": inside});
    edits.push(("tmpfs".into(), Author, vec![("/mounts", "-", tmpfs)]));
    let text =
        |what: &str, at, key, value: Value| (what.to_owned(), Author, vec![(at, key, value)]);
    edits.extend([
        text("environment", "/process/env", "-", "NVIDIA_MOFED=enabled".into()),
        text("environment", "/process/env", "-", format!("VERBGATE_DEVICES={node}").into()),
        text("host name", "", "hostname", node.into()),
        text("annotation of ours", "/annotations", "org.verbgate.devices", "all".into()),
        text("annotation of ours", "/annotations", "org.verbgate.granted", node.into()),
        text("annotation of CDI", "/annotations", "cdi.k8s.io/x", "verbgate.org/rdma=all".into()),
    ]);
    Ok(edits)
}

/// Parts of `config.json` that only an engine writes, asked by somebody who may give devices.
fn of_engines(node: &str, (major, minor): Numbers) -> Vec<Edit> {
    let inside = format!("{DIR}/{node}");
    let device = json!({"path": inside, "type": "c", "major": major, "minor": minor});
    let devices = ("/linux", "devices", json!([device]));
    let of_access = |minor: Option<u32>, access: &str| {
        let rule =
            json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": access});
        ("/linux/resources/devices", "-", rule)
    };
    let rule = |minor| of_access(minor, "rwm");
    let all = ("/linux/resources/devices", "-", json!({"allow": true, "access": "rwm"}));
    let mount = || volume(Path::new(&inside), &inside);
    let dir = || volume(Path::new(DIR), DIR);
    let edits = [
        ("device, and its rule", Engine, vec![devices.clone(), rule(Some(minor))]),
        ("mount of the node, and its rule", Engine, vec![mount(), rule(Some(minor))]),
        ("mount of all nodes, and their rule", Engine, vec![dir(), rule(None)]),
        ("mount of all nodes, and a rule for one", Engine, vec![dir(), rule(Some(minor))]),
        ("rule alone, and CAP_MKNOD", Engine, vec![rule(Some(minor))]),
        (
            "rule that runc does not take back",
            Engine,
            vec![
                rule(Some(minor)),
                (
                    "/linux/resources/devices",
                    "-",
                    json!({"allow": false, "type": "c", "major": major, "access": "rwm"}),
                ),
            ],
        ),
        ("host's /dev, where all is allowed", Engine, vec![volume(Path::new("/dev"), "/dev"), all]),
        ("device without a rule", EngineWithoutRule, vec![devices.clone()]),
        ("device of CDI", EngineWithoutRule, vec![devices, of_access(Some(minor), "m")]),
        ("mount of the node without a rule", EngineWithoutRule, vec![mount()]),
        ("mount of all nodes without a rule", EngineWithoutRule, vec![dir()]),
    ];
    edits.map(|(what, writer, edits)| (what.to_owned(), writer, edits)).to_vec()
}

/// What an engine writes for a claim of Dynamic Resource Allocation: the edits of two CDI devices, Verbgate's for the NIC
/// (`verbgate cdi`) and the driver's for the claim (`verbgate dra`).
fn of_claim(
    verbgate: &str,
    node: &str,
    (major, minor): Numbers,
) -> Vec<(&'static str, &'static str, Value)> {
    let record = json!({"claim": "ml/nics", "tenant": "gold"}).to_string();
    let hook = |args: &[&str]| json!({"path": verbgate, "args": args});
    let hooks =
        [hook(&["verbgate", "cdi-hook"]), hook(&["verbgate", "cdi-hook", "--claim", &record])];
    let device =
        json!({"path": format!("{DIR}/{node}"), "type": "c", "major": major, "minor": minor});
    let rule = json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "m"});
    vec![
        ("", "hooks", json!({"createRuntime": hooks})),
        ("/linux", "devices", json!([device])),
        ("/linux/resources/devices", "-", rule),
    ]
}

fn judged(world: &World) -> Result<Verdict> {
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let scratch = tempfile::tempdir()?;
    let own = numbers(&world.node)?;
    let nodes = [own, numbers(&second.node)?];
    let mut edits = of_authors(scratch.path(), &world.node, own)?;
    edits.extend(of_engines(&world.node, own));
    let verbgate = world.beside("verbgate").to_string_lossy().into_owned();
    let dir = tempfile::tempdir()?;
    let (mut agent, socket) = agent::started(world, dir.path(), None)?;
    let profile = agent::profile(world, RUNC, &socket)?;
    let mut wrong = Vec::new();
    // A claim, and what its pod's author writes beside it: never more than what is claimed.
    let claim = of_claim(&verbgate, &world.node, own);
    let claimed = BTreeSet::from([own]);
    let nothing = ("nothing".to_owned(), Author, Vec::new());
    let of_author = edits.iter().filter(|(_, writer, _)| *writer == Author);
    for (what, _, members) in of_author.chain([&nothing]) {
        let all = [&claim[..], members].concat();
        let oci = opened(world, &[&verbgate, "oci", "--runtime", RUNC], None, &all, &nodes)?;
        // A mount may hide the device, and a container that says what only an engine may is refused.
        if !oci.is_subset(&claimed) || members.is_empty() && oci != claimed {
            wrong.push(format!("{what}, beside a claim: {oci:?}"));
        }
    }
    for (what, writer, members) in &edits {
        let opened = |wrapper: &[&str], profile| opened(world, wrapper, profile, members, &nodes);
        let raw = opened(&[RUNC], None).with_context(|| format!("{what}: {RUNC}"))?;
        let oci = opened(&[&verbgate, "oci", "--runtime", RUNC], None).context(what.clone())?;
        // An agent cannot take away what the engine's rules open, and refuses the container.
        let by_agent = opened(&[RUNC], Some(&profile)).context(what.clone())?;
        let holds = match writer {
            Author => [&raw, &oci, &by_agent].iter().all(|given| given.is_empty()),
            Engine => oci == raw && oci.contains(&own) && by_agent.is_empty(),
            EngineWithoutRule => raw.is_empty() && oci.contains(&own) && by_agent == oci,
        };
        if !holds {
            wrong.push(format!(
                "{what} ({writer:?}): {RUNC} {raw:?}, oci {oci:?}, agent {by_agent:?}"
            ));
        }
    }
    let said = agent.describe()?;
    agent.kill_alone()?;
    if !wrong.is_empty() {
        bail!("of {} bundles these differ:\n{}\nthe agent {said}", edits.len(), wrong.join("\n"));
    }
    Ok(Verdict::Ok)
}

/// The nodes, of these, that a container can open: by any name there, or by a node that it makes. A container that is not
/// created can open none.
fn opened(
    world: &World,
    wrapper: &[&str],
    profile: Option<&Value>,
    members: &[(&str, &str, Value)],
    nodes: &[Numbers],
) -> Result<BTreeSet<Numbers>> {
    let mut script =
        String::from("exec 2>/dev/null; open() { (exec 3<>\"$1\") && stat -c %t:%T \"$1\"; }\n");
    for (number, (major, minor)) in nodes.iter().enumerate() {
        script += &format!("mknod /tmp/{number} c {major} {minor} && open /tmp/{number}\n");
    }
    // A directory tells the kind of the file that a mount covers.
    script += "for node in $(find /dev /mnt); do [ -c \"$node\" ] && open \"$node\"; done; exit 0";
    let words: Vec<OsString> = wrapper.iter().map(OsString::from).collect();
    let container = Container::under(words, &world.device, "judged", &["sh", "-c", &script])?;
    container.add("", "annotations", json!({}))?;
    if let Some(profile) = profile {
        container.add("/linux", "seccomp", profile.clone())?;
    }
    for (pointer, key, value) in members {
        container.add(pointer, key, value.clone())?;
    }
    let mut ended = exec::run(container.run())?;
    // Verbgate may refuse a bundle.
    if wrapper == [RUNC] && profile.is_none() {
        ended = ended.expect_status(0)?;
    }
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let found = ended.stdout.lines().filter_map(|line| {
        let (major, minor) = line.split_once(':')?;
        Some((hex(major)?, hex(minor)?))
    });
    Ok(found.filter(|found| nodes.contains(found)).collect())
}
