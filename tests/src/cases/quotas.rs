//! A tenant that takes all that there is: natively nothing stops the tenant, and inside the tenant's
//! quotas and rate do, while a neighbour goes on.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;

use super::Case;
use super::Verdict;
use super::containers::of_each;
use super::tenants::Script;
use crate::bundle::Container;
use crate::bundle::bind;
use crate::exec;
use crate::exec::Program;
use crate::world::Place;
use crate::world::World;

const SCRIPT: &str = include_str!("../../scripts/quotas.py");

/// Requests of the neighbour, of which each is two.
const TURNS: &str = "spin 200";

/// Requests a second, and at once.
const RATE: f64 = 200.0;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("tenant_floods_and_meets_its_quotas", flood),
        Case::new("tenant_binds_and_listens_within_its_ports", ports),
        Case::new("tenant_that_holds_much_is_slowed_by_class", slowed),
        Case::new("container_is_bounded_by_the_kernel_too", |world| of_each(world, bounded)),
        Case::new("supervisor_is_bounded_and_ends_closed", |world| of_each(world, ends_closed)),
        Case::new("frozen_and_squeezed_container_is_served", |world| of_each(world, frozen)),
    ]
}

fn flood(world: &World) -> Result<Verdict> {
    let script = Script::of("quotas.py", SCRIPT)?;
    let words = [world.device.as_str()];
    let mut native = script.start(world, Place::Native, "native", &words)?;
    native.hear()?;
    for step in ["qp", "mr", "cm"] {
        native.expect(step, "40 not-refused").context("natively nothing is refused")?;
    }
    drop(native);

    let policies = script.folder("policy.d")?;
    let text = format!(
        "version = 1\n[tenant.flood]\nmatch.uid = 0\nprofile = \"hpc\"\n\
         devices = [{{ name = \"*\" }}]\n[tenant.flood.rules]\n\
         quota = {{ qp = 8, mr_bytes = 1048576, cm_ids = 16 }}\n\
         rate = {{ per_s = {RATE}, burst = {RATE} }}\n"
    );
    fs::write(policies.join("flood.toml"), text)?;
    let policies = policies.to_str().context("an odd path")?.to_owned();
    let audit = script.folder("audit")?.join("lines");
    let audit = audit.to_str().context("an odd path")?.to_owned();
    let options = ["--policy-dir", &policies, "--audit", &audit];
    let start = |name: &str| -> Result<_> {
        let mut one = script.start_with(world, Place::Sandbox, name, &options, &words)?;
        one.hear()?;
        Ok(one)
    };
    let all = [("qp", "8 EAGAIN"), ("mr", "16 ENOMEM"), ("cm", "16 EAGAIN")];
    let none = [("qp", "0 EAGAIN"), ("mr", "0 ENOMEM"), ("cm", "0 EAGAIN")];
    let (mut one, mut other) = (start("one")?, start("other")?);
    for ((step, most), (_, nothing)) in all.into_iter().zip(none) {
        one.expect(step, most)?;
        other.expect(step, nothing).context("the tenant's other sandbox has the same quota")?;
    }
    one.expect("drop", "dropped")?;
    // Ids end with their file, whose end the kernel tells a moment later.
    exec::wait_until("what was dropped", || Ok(other.ask("cm")? == "16 EAGAIN"))?;
    other.expect("qp", "8 EAGAIN")?;
    other.expect("mr", "16 ENOMEM")?;
    one.expect("qp", "0 EAGAIN")?;
    other.program.kill_alone()?;
    exec::wait_until("what a killed supervisor held", || Ok(one.ask("qp")? == "8 EAGAIN"))?;
    let lines = fs::read_to_string(&audit)?;
    let told = |words: &[&str]| lines.lines().any(|l| words.iter().all(|word| l.contains(word)));
    if !told(&["quota reached", "QP_CREATE", "EAGAIN", "remedy", "rules.quota"])
        || !told(&[
            "quota reached",
            "CM_CREATE_ID",
            "EAGAIN",
            "\"tenant\":\"flood\"",
            "rules.quota",
        ])
    {
        bail!("the audit does not tell of the quota: {lines}");
    }

    // A neighbour, whose tenant has no bound.
    let mut neighbour = script.start(world, Place::Sandbox, "neighbour", &words)?;
    neighbour.hear()?;
    neighbour.ask(TURNS)?;
    let before = neighbour.ask(TURNS)?;
    one.expect("flood", "flooding")?;
    let during = neighbour.ask(TURNS)?;
    let flooded = one.ask("flooded")?;
    println!("    the neighbour: {before} alone, {during} beside a flood of {flooded} s");
    let (made, took) = flooded.split_once(" in ").context("an odd answer")?;
    let (made, took): (f64, f64) = (made.parse()?, took.parse()?);
    // Each takes two requests; the first ones of an open, and the burst, come on top.
    if made * 2.0 > RATE * (took + 1.5) {
        bail!("the flood makes {made} in {took} s, and the rate is {RATE} a second");
    }
    Ok(Verdict::Ok)
}

/// Natively any port is anybody's, and so many; inside those that the policy has, and no more waiting
/// connections than the quota.
fn ports(world: &World) -> Result<Verdict> {
    let script = Script::of("quotas.py", SCRIPT)?;
    let words = [world.device.as_str()];
    let mut native = script.start(world, Place::Native, "native", &words)?;
    native.hear()?;
    for step in ["bind 21000", "listen 20001 0", "listen 20002 0", "listen 20003 1", "listen 0 1"] {
        native.expect(step, "ok").context("natively")?;
    }
    native.expect("ports", "40 not-refused").context("natively nothing is refused")?;
    drop(native);

    let policies = script.folder("policy.d")?;
    let text = "version = 1\n[tenant.ports]\nmatch.uid = 0\nprofile = \"standard\"\n\
         devices = [{ name = \"*\" }]\n[tenant.ports.rules]\n\
         ports = [\"20000-20999\"]\nquota = { ports = 4, backlog = 200 }\n";
    fs::write(policies.join("ports.toml"), text)?;
    let options = ["--policy-dir", policies.to_str().context("an odd path")?];
    let mut one = script.start_with(world, Place::Sandbox, "ports", &options, &words)?;
    one.hear()?;
    // The kernel's choice is for who connects.
    for (step, answer) in [("bind 21000", "EACCES"), ("listen 0 1", "EACCES"), ("drop", "dropped")]
    {
        one.expect(step, answer)?;
    }
    // What ends with a file ends a moment later.
    exec::wait_until("ids that are gone", || Ok(one.ask("bind 20000")? == "ok"))?;
    one.expect("drop", "dropped")?;
    exec::wait_until("four ports", || {
        let all = one.ask("ports")?;
        one.expect("drop", "dropped")?;
        Ok(all == "4 EAGAIN")
    })?;
    exec::wait_until("ports that are free", || Ok(one.ask("bind 20000")? == "ok"))?;
    for (step, answer) in [
        // 128, and the 72 that are left.
        ("listen 20001 0", "ok"),
        ("listen 20002 0", "ok"),
        ("listen 20003 1", "EAGAIN"),
        ("bind 20004", "EAGAIN"),
    ] {
        one.expect(step, answer)?;
    }
    Ok(Verdict::Ok)
}

/// A tenant that holds a part of its quota of queue pairs makes further ones slowly, and regions as before.
fn slowed(world: &World) -> Result<Verdict> {
    let script = Script::of("quotas.py", SCRIPT)?;
    let (policies, audit) = (script.folder("policy.d")?, script.folder("audit")?.join("lines"));
    let text = "version = 1\n[tenant.slowed]\nmatch.uid = 0\nprofile = \"hpc\"\n\
         devices = [{ name = \"*\" }]\n[tenant.slowed.rules]\nquota.qp = 16\n\
         rates.connections = { per_s = 1000, exceed = \"EAGAIN\", hot = { from = 25, per_s = 1 } }\n";
    fs::write(policies.join("slowed.toml"), text)?;
    let [policies, log] = [policies.to_str(), audit.to_str()].map(|path| path.unwrap_or_default());
    let options = ["--policy-dir", policies, "--audit", log];
    let words = [world.device.as_str()];
    let mut one = script.start_with(world, Place::Sandbox, "slowed", &options, &words)?;
    one.hear()?;
    let begun = Instant::now();
    let said = one.ask("qp")?;
    let made = said.strip_suffix(" EAGAIN").and_then(|made| made.parse::<u64>().ok());
    let made = made.with_context(|| format!("queue pairs: {said}"))?;
    // A quarter of the quota, and one a second from there on, the first at once.
    if made < 5 || made > 6 + begun.elapsed().as_secs() {
        bail!("{made} queue pairs in {} s", begun.elapsed().as_secs());
    }
    one.expect("mr", "40 not-refused").context("regions are of another class")?;
    let lines = fs::read_to_string(&audit)?;
    if made < 16 && !lines.lines().any(|line| line.contains("rates.connections")) {
        bail!("the audit does not tell of the class: {lines}");
    }
    Ok(Verdict::Ok)
}

/// A program without rights registers a region of so many MiB.
pub(super) const REGISTER: &str = "from pyverbs.device import Context; from pyverbs.pd import PD; \
    from pyverbs.mr import MR; import sys; LOCAL_WRITE = 1; \
    c = Context(name=sys.argv[1]); p = PD(c); MR(p, int(sys.argv[2]) << 20, LOCAL_WRITE)";

/// A container of a tenant's has the tenant's quotas from the kernel, too, and may lock as much memory as
/// the tenant may.
fn bounded(world: &World, runtime: &'static str) -> Result<()> {
    let policies = tempfile::tempdir()?;
    let text = "version = 1\n[tenant.bounded]\nmatch.annotation = { \"org.verbgate.devices\" = \"*\" }\n\
         profile = \"standard\"\ndevices = [{ name = \"*\" }]\nmemlock = 67108864\n\
         [tenant.bounded.rules]\nquota = { ucontexts = 5, objects = 70 }\n";
    fs::write(policies.path().join("bounded.toml"), text)?;
    let policies = policies.path();
    let container = of_nobody(world, (runtime, policies), "lab-bounded", &["sleep", "infinity"])?;
    let mut create = container.wrapped("run");
    create.arg("--detach").arg("--bundle").arg(container.dir.path()).arg(&container.id);
    exec::run(create)?.expect_status(0)?;

    let mut state = container.wrapped("state");
    state.arg(&container.id);
    let state: Value = serde_json::from_str(&exec::run(state)?.expect_status(0)?.stdout)?;
    let pid = state.get("pid").and_then(Value::as_i64).context("no pid")?;
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let of = |prefix| groups.lines().find_map(|line| line.split_once(prefix).map(|parts| parts.1));
    let file = match (of(":rdma:"), of("0::")) {
        (Some(group), _) => format!("/sys/fs/cgroup/rdma{group}/rdma.max"),
        (None, Some(group)) => format!("/sys/fs/cgroup{group}/rdma.max"),
        (None, None) => bail!("no control group: {groups}"),
    };
    let bounds = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let wanted = format!("{} hca_handle=5 hca_object=70", world.device);
    if !bounds.lines().any(|line| line.trim_end() == wanted) {
        bail!("{file}: {bounds}, and not {wanted}");
    }
    let register = |mebibytes: &str| {
        let argv = ["python3", "-c", REGISTER, &world.device, mebibytes];
        let container = of_nobody(world, (runtime, policies), "lab-registers", &argv)?;
        exec::run(container.run())
    };
    register("32")?.expect_status(0)?;
    let beyond = register("96")?;
    if beyond.status == 0 || !beyond.stderr.contains("Cannot allocate memory") {
        bail!("96 MiB are registered where 64 may be locked: {beyond}");
    }
    Ok(())
}

/// Opens the device, and again once a file is there; then makes a request by the first open.
const AGAIN: &str = "import errno, fcntl, os, sys, time
device = os.open(sys.argv[1], os.O_RDWR)
print('opened', flush=True)
while not os.path.exists('/tmp/go'):
    time.sleep(0.05)
for step in (lambda: os.open(sys.argv[1], os.O_RDWR),
             lambda: fcntl.ioctl(device, 0xc0181b01, bytearray(24))):
    try:
        step()
        print('done', flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
";

/// A supervisor is in a control group of its own, whose bound the kernel keeps: one that wants more memory is
/// killed, its container's requests fail, and nothing is left.
fn ends_closed(world: &World, runtime: &'static str) -> Result<()> {
    let argv = ["python3", "-c", AGAIN, &world.node_path()];
    let container = Container::new(world, runtime, "closed", &argv)?;
    let mut program = Program::start(container.run())?;
    exec::wait_until("the container to open the device", || {
        Ok(program.stdout_so_far()?.contains("opened") || program.has_ended()?)
    })?;
    let shown = shown(world, &container)?;
    let first = shown.get("pid").and_then(Value::as_i64).context("no first process")?;
    let group = group_of_supervisor(&shown)?;
    let limit = fs::read_to_string(group.join("memory.max")).context("no bound of memory")?;
    if limit.trim() != "268435456" {
        bail!("the bound is {limit}");
    }
    let used = fs::read_to_string(group.join("memory.current"))?;
    println!("    {runtime}: the supervisor's group uses {} bytes", used.trim());
    // The kernel has the group reclaim, and then ends who is in the group.
    fs::write(group.join("memory.max"), "0")?;
    exec::wait_until("the supervisor's end", || {
        Ok(self::shown(world, &container)?.get("supervisor").is_none_or(Value::is_null))
    })?;
    fs::write(format!("/proc/{first}/root/tmp/go"), "")?;
    let ended = program.wait()?;
    if ended.stdout.split_whitespace().collect::<Vec<_>>() != ["opened", "ENOSYS", "ENOSYS"] {
        bail!("without its supervisor: {ended}");
    }
    drop(container);
    exec::wait_until("the group's end", || Ok(!group.exists()))
}

/// The row of `verbgate ps` of a container.
fn shown(world: &World, container: &Container) -> Result<Value> {
    let mut ps = world.program("verbgate");
    ps.args(["ps", "--json"]);
    let all: Value = serde_json::from_str(&exec::run(ps)?.expect_status(0)?.stdout)?;
    let one = all.as_array().and_then(|all| all.iter().find(|one| one["id"] == *container.id));
    one.cloned().with_context(|| format!("{} is not among {all}", container.id))
}

/// The control group of a container's supervisor, which is its own.
fn group_of_supervisor(shown: &Value) -> Result<PathBuf> {
    let supervisor = shown.get("supervisor").and_then(Value::as_i64).context("no supervisor")?;
    let groups = fs::read_to_string(format!("/proc/{supervisor}/cgroup"))?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::")).context("no version 2")?;
    let group = Path::new("/sys/fs/cgroup").join(group.trim_start_matches('/'));
    if !group.file_name().is_some_and(|name| name.to_string_lossy().starts_with("verbgate-lab-")) {
        bail!("the supervisor is in {groups}");
    }
    Ok(group)
}

/// A container whose control group is frozen again and again while its processes open the device. Each is served where
/// the container has little memory, and none is ended where the supervisor has.
fn frozen(world: &World, runtime: &'static str) -> Result<()> {
    const PROCESSES: &str = "60";
    let guest = world.beside("verbgate-guest");
    let guest = guest.to_str().context("an odd path")?;
    let argv = [guest, "storm", &world.node_path(), PROCESSES, "1", "4", "0"];
    for who in ["container", "supervisor"] {
        let container = Container::new(world, runtime, "frozen", &argv)?;
        container.add("/mounts", "-", bind(guest))?;
        let own = format!("/verbgate-frozen-{runtime}");
        container.add("/linux", "cgroupsPath", own.clone().into())?;
        let group = Path::new("/sys/fs/cgroup").join(&own[1..]);
        let mut program = Program::start(container.run())?;
        exec::wait_until("the container's group", || {
            Ok(group.join("cgroup.freeze").exists() || program.has_ended()?)
        })?;
        if who == "container" {
            // Swapped or thrown away and read again, it goes on slowly.
            let _ = fs::write(group.join("memory.high"), "6M");
        } else {
            let own = || shown(world, &container).and_then(|shown| group_of_supervisor(&shown));
            exec::wait_until("the supervisor's group", || {
                Ok(own().is_ok() || program.has_ended()?)
            })?;
            let group = own()?;
            let used = fs::read_to_string(group.join("memory.current"))?;
            fs::write(group.join("memory.high"), used.trim())?;
        }
        let mut times = 0;
        for long in [0.1, 0.5, 5.0].into_iter().cycle().take(6) {
            // The group is gone as soon as the container has ended.
            times += i32::from(fs::write(group.join("cgroup.freeze"), "1").is_ok());
            std::thread::sleep(std::time::Duration::from_secs_f64(long));
            let _ = fs::write(group.join("cgroup.freeze"), "0");
            if program.has_ended()? {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        let ended = program.wait()?.expect_status(0)?;
        let served = format!("{{\"Code(0)\": {PROCESSES}}}\nbystander: Code(0)\n");
        let wrong = match who {
            "container" => ended.stdout != served,
            _ => ended.stdout.contains("Signal") || !ended.stdout.contains("bystander: Code"),
        };
        println!("    {runtime}, little memory of the {who}: {}", ended.stdout.trim());
        if wrong || times == 0 {
            bail!("frozen {times} times: {ended}");
        }
    }
    Ok(())
}

/// A container of a user without rights, whose engine would let the user lock little.
fn of_nobody(
    world: &World,
    (runtime, policies): (&str, &Path),
    id: &str,
    argv: &[&str],
) -> Result<Container> {
    let mut wrapper = vec![world.beside("verbgate").into_os_string()];
    wrapper.extend(["oci", "--annotations", "grant", "--policy-dir"].map(OsString::from));
    wrapper.push(policies.into());
    wrapper.extend(["--runtime", runtime].map(OsString::from));
    let container = Container::under(wrapper, &world.device, id, argv)?;
    container.for_nobody()?;
    Ok(container)
}
